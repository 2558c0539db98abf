/* SPDX-License-Identifier: Apache-2.0 */
/* The text of --help, from the table of options. */
#include "common/proto_vmm.h"
#include "common/version.h"
#include "vmm/config_options.h"
#include <stdarg.h>
#include <stdio.h>

enum { HELP_FORM_MAX = 64 };

/* Text for a buffer of CONFIG_HELP_MAX bytes, of which *length are used. */
__attribute__((format(printf, 3, 4))) static void append(char *text, size_t *length, const char *format, ...)
{
	va_list arguments;
	int more;

	va_start(arguments, format);
	more = vsnprintf(text + *length, CONFIG_HELP_MAX - *length, format, arguments);
	va_end(arguments);
	*length += (size_t)more;
	if (*length >= CONFIG_HELP_MAX)
		*length = CONFIG_HELP_MAX - 1;
}

/* What is checked, from the same numbers. */
static void append_limits(char *text, size_t *length, const struct config_option *option)
{
	char minimum[CONFIG_SIZE_TEXT], maximum[CONFIG_SIZE_TEXT];

	config_format_size(option->minimum, minimum);
	config_format_size(option->maximum, maximum);
	if (option->kind == CONFIG_SIZE)
		append(text, length, "%s to %s", minimum, maximum);
	else if (option->kind == CONFIG_NUMBER)
		append(text, length, "%llu to %llu", (unsigned long long)option->minimum,
			(unsigned long long)option->maximum);
	else if (option->kind == CONFIG_SOCKET)
		append(text, length, "path of at most %llu bytes", (unsigned long long)option->maximum);
	else if (option->most > 1)
		append(text, length, "at most %u times", option->most);
	else
		append(text, length, "-");
}

static void append_option(char *text, size_t *length, const struct config_option *option)
{
	char form[HELP_FORM_MAX];

	snprintf(form, sizeof(form), "--%s%s%s%s", option->name,
		option->value == NULL	 ? ""
		: option->value_optional ? "[="
					 : " ",
		option->value == NULL ? "" : option->value, option->value_optional ? "]" : "");
	append(text, length, "  %-34s %-9s ", form, option->fallback == NULL ? "-" : option->fallback);
	append_limits(text, length, option);
	append(text, length, "\n        %s\n", option->text);
}

static const char *const end_texts[VMM_END_COUNT] = {
	[VMM_END_POWEROFF] = "the guest powered off (also: --help, --version)",
	[VMM_END_SETUP] = "a file, KVM or the host refused; no guest instruction ran",
	[VMM_END_USAGE] = "the command line is wrong",
	[VMM_END_PANIC] = "the guest's kernel panicked",
	[VMM_END_REBOOT] = "the guest asked for a reset",
	[VMM_END_TRIPLE_FAULT] = "the guest ended in a triple fault",
	[VMM_END_GUEST_FAULT] = "the guest did what the machine does not bear",
	[VMM_END_KVM] = "KVM failed while the guest ran",
	[VMM_END_KILLED] = "ended from outside: a signal (TERM, INT, HUP) or the control socket",
};

void config_help(char *text)
{
	size_t length = 0;

	append(text, &length,
		"usage: vmm --kernel PATH|fd:N | --restore DIR [option]...\n\n"
		"Runs one Linux guest on KVM until it ends. --name=value is the same as --name value;\n"
		"fd:N is a file that the parent process has opened.\n\n"
		"  %-34s %-9s %s\n",
		"option", "default", "limits");
	for (unsigned i = 0; i < CONFIG_OPTION_COUNT; i++)
		append_option(text, &length, &config_options[i]);
	append(text, &length,
		"\nThe kernel's command line is \"%s\", then \"%s\" with a serial\n"
		"line or \"%s\" without, \"" CONFIG_CMDLINE_HIGH_MEMORY "\" with more\n"
		"than 3G of memory, \"" CONFIG_CMDLINE_DEVICE "=...\" for each device with --boot mptable,\n"
		"\"" CONFIG_CMDLINE_TRACE "\" with --trace, then STR; at most %d bytes.\n",
		CONFIG_CMDLINE_ALWAYS, CONFIG_CMDLINE_SERIAL, CONFIG_CMDLINE_SILENT, CONFIG_CMDLINE_MAX - 1);
	append(text, &length, "\nexit status\n");
	for (unsigned i = 0; i < VMM_END_COUNT; i++)
		append(text, &length, "  %u  %s\n", i, end_texts[i]);
}

void config_version(char *text)
{
	snprintf(text, CONFIG_HELP_MAX, "vmm (Tinderbox) %s\n", TINDERBOX_VERSION);
}
