/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the command line by the table of options, then checks what no option alone can see. */
#include "vmm/config.h"
#include "vmm/config_options.h"
#include "vmm/layout.h"
#include "vmm/mptable_x86_64.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The option that a word "--name" or "--name=value" means; *value is what follows the '=', or NULL. */
static const struct config_option *find_option(const char *word, const char **value)
{
	size_t length;

	if (strncmp(word, "--", 2) != 0)
		return NULL;
	word += 2;
	length = strcspn(word, "=");
	*value = word[length] == '=' ? word + length + 1 : NULL;
	for (unsigned i = 0; i < CONFIG_OPTION_COUNT; i++)
		if (strlen(config_options[i].name) == length &&
			memcmp(config_options[i].name, word, length) == 0)
			return &config_options[i];
	return NULL;
}

/* Sees to it that the option has a value when it needs one: from the next word if need be. */
static int find_value(const struct config_option *option, int argc, char *const argv[], int *index,
	const char **value, char *error)
{
	const char *ignored = NULL;

	if (option->value == NULL)
		return *value == NULL
			       ? 0
			       : config_refuse(error, "--%s takes no value; write it alone", option->name);
	if (*value == NULL && option->value_optional)
		return 0;
	if (*value == NULL && *index + 1 < argc && find_option(argv[*index + 1], &ignored) == NULL)
		*value = argv[++*index];
	if (*value == NULL || **value == '\0')
		return config_refuse(error, "--%s needs a value; write --%s%s%s", option->name, option->name,
			option->value_optional ? "=" : " ", option->value);
	return 0;
}

static int check_count(const struct config_option *option, unsigned count, char *error)
{
	if (count <= option->most)
		return 0;
	if (option->most == 1)
		return config_refuse(error, "--%s is given twice; give it once", option->name);
	return config_refuse(error, "--%s is given more than %u times; a VM has no more of them",
		option->name, option->most);
}

/* No option: a word that follows an option whose value stands behind a '=' may have been meant as that. */
static int refuse_word(const struct config_option *before, const char *word, char *error)
{
	if (before != NULL && before->value_optional && word[0] != '-')
		return config_refuse(error,
			CONFIG_SHOWN " is not an option; as the value of --%s write --%s=" CONFIG_SHOWN, word,
			before->name, before->name, word);
	return config_refuse(error, CONFIG_SHOWN " is not an option; vmm --help lists them", word);
}

static int take_words(int argc, char *const argv[], struct config *config, unsigned *counts, char *error)
{
	const struct config_option *option = NULL;

	for (int i = 1; i < argc && config->action == CONFIG_RUN; i++) {
		const struct config_option *before = option;
		const char *value = NULL, *word = argv[i];

		option = find_option(word, &value);
		if (option == NULL)
			return refuse_word(before, word, error);
		if (check_count(option, ++counts[option - config_options], error) < 0 ||
			find_value(option, argc, argv, &i, &value, error) < 0 ||
			option->take(option, config, value, error) < 0)
			return -EINVAL;
	}
	return 0;
}

static int take_fallbacks(struct config *config, const unsigned *counts, char *error)
{
	for (unsigned i = 0; i < CONFIG_OPTION_COUNT; i++) {
		const struct config_option *option = &config_options[i];

		if (counts[i] == 0 && option->fallback != NULL &&
			option->take(option, config, option->fallback, error) < 0)
			return -EINVAL;
	}
	return 0;
}

/* An inherited file serves one purpose: whoever has it closes it. */
static int check_numbers(const struct config *config, char *error)
{
	struct {
		const char *name, *file;
	} files[12 + 2 * CONFIG_DISKS_MAX] = {{"kernel", config->kernel}, {"initrd", config->initrd},
		{"serial", config->serial}, {"control", config->control}, {"kvm", config->kvm},
		{"stats", config->stats_file}, {"net", config->net.tap}, {"restore", config->restore.state},
		{"restore", config->restore.memory}, {"restore", config->restore.working_set},
		{"restore", config->restore.pages}, {"trace", config->trace.file}};
	unsigned count = 12;

	for (unsigned i = 0; i < config->disk_count; i++) {
		files[count].name = "disk";
		files[count++].file = config->disks[i].path;
		files[count].name = "disk";
		files[count++].file = config->disks[i].upper;
	}
	for (unsigned i = 0; i < count; i++) {
		int number = files[i].file == NULL ? -ENOENT : config_file_number(files[i].file);

		for (unsigned j = 0; j < i && number >= 0; j++)
			if (files[j].file != NULL && config_file_number(files[j].file) == number)
				return config_refuse(error,
					"fd:%d is given to both --%s and --%s; open one for each", number,
					files[j].name, files[i].name);
	}
	return 0;
}

bool config_was_given(const char *name, const unsigned *counts)
{
	for (unsigned i = 0; i < CONFIG_OPTION_COUNT; i++)
		if (strcmp(config_options[i].name, name) == 0)
			return counts[i] > 0;
	return false;
}

/* Bytes left for the user's part of the kernel's command line. */
static size_t cmdline_room(const struct config *config)
{
	struct config bare = *config;
	char line[CONFIG_CMDLINE_MAX];

	bare.cmdline = "";
	config_kernel_cmdline(&bare, line);
	return CONFIG_CMDLINE_MAX - 1 - strlen(line);
}

/* What no option alone can see. */
static int check_whole(struct config *config, const unsigned *counts, char *error)
{
	char line[CONFIG_CMDLINE_MAX], memory[CONFIG_SIZE_TEXT];

	if (config_check_standby(config, counts, error) < 0 ||
		config_check_restore(config, counts, error) < 0)
		return -EINVAL;
	if (config->kernel == NULL && !config->restore.wanted)
		return config_refuse(
			error, "--kernel is missing; write --kernel PATH with an uncompressed vmlinux");
	if (config->paused && config->control == NULL)
		return config_refuse(error, "--paused: nobody could resume the guest; add --control PATH");
	if (config_was_given("vsock-cid", counts) && !config_has_vsock(config))
		return config_refuse(
			error, "--vsock-cid is of no use alone; add --vsock PATH or --control PATH");
	if (config->serial_max != 0 && config->serial == NULL)
		return config_refuse(error, "--serial-max is of no use alone; add --serial PATH");
	if (config->vsock != NULL && config->control != NULL && strcmp(config->vsock, config->control) == 0)
		return config_refuse(error,
			"--vsock and --control are both " CONFIG_SHOWN "; give each a path of its own",
			config->vsock);
	if (config->balloon_target > config->memory && !config->restore.wanted) {
		config_format_size(config->memory, memory);
		return config_refuse(error,
			"--balloon wants more than the %s of --mem; give less, or more memory", memory);
	}
	if (config_kernel_cmdline(config, line) < 0)
		return config_refuse(error, "--cmdline of %zu bytes is too long; give at most %zu",
			strlen(config->cmdline), cmdline_room(config));
	return check_numbers(config, error);
}

int config_parse(int argc, char *const argv[], struct config *config, char *error)
{
	unsigned counts[CONFIG_OPTION_COUNT] = {0};

	memset(config, 0, sizeof(*config));
	config->command = argv;
	config->command_count = argc;
	if (take_words(argc, argv, config, counts, error) < 0)
		return -EINVAL;
	if (config->action != CONFIG_RUN)
		return 0;
	if (take_fallbacks(config, counts, error) < 0)
		return -EINVAL;
	return check_whole(config, counts, error);
}

int config_check_memory(const struct config *config, uint64_t host_memory, char *error)
{
	char wanted[CONFIG_SIZE_TEXT], host[CONFIG_SIZE_TEXT];

	if (config->memory <= host_memory)
		return 0;
	config_format_size(config->memory, wanted);
	config_format_size(host_memory & ~(CONFIG_MEMORY_UNIT - 1), host);
	config_refuse(error, "--mem %s is more than the %s that this host has; give less", wanted, host);
	return -ENOMEM;
}

void config_explain_memory(const struct config *config, char *error)
{
	char wanted[CONFIG_SIZE_TEXT];

	config_format_size(config->memory, wanted);
	config_refuse(error,
		"--mem %s is more than this process may map; raise the limit of address space (ulimit -v), "
		"set "
		"vm.overcommit_memory to 0, or give less",
		wanted);
}

bool config_has_vsock(const struct config *config)
{
	return config->vsock != NULL || config->control != NULL;
}

unsigned config_count_devices_of(const struct config *config, enum config_device kind)
{
	switch (kind) {
	case CONFIG_DEVICE_DISK:
		return config->disk_count;
	case CONFIG_DEVICE_NET:
		return config->net.wanted;
	case CONFIG_DEVICE_VSOCK:
		return config_has_vsock(config);
	case CONFIG_DEVICE_RNG:
		return 1;
	case CONFIG_DEVICE_BALLOON:
		return config->balloon;
	case CONFIG_DEVICE_KINDS:
		break;
	}
	return 0;
}

unsigned config_count_devices(const struct config *config)
{
	unsigned count = 0;

	for (unsigned kind = 0; kind < CONFIG_DEVICE_KINDS; kind++)
		count += config_count_devices_of(config, (enum config_device)kind);
	return count;
}

unsigned config_pin(const struct config *config, unsigned device)
{
	return layout_pin(
		config->boot == CONFIG_BOOT_MPTABLE ? MPTABLE_FIRST_PIN : 0, device, config->serial != NULL);
}

unsigned config_count_pins(const struct config *config)
{
	unsigned devices = config_count_devices(config);
	unsigned pins = devices > 0 ? config_pin(config, devices - 1) + 1 : 1;

	return config->serial != NULL && pins <= LAYOUT_SERIAL_PIN ? LAYOUT_SERIAL_PIN + 1 : pins;
}

_Static_assert((int)VIRTIO_MMIO_WINDOW == 4096, "a window has 4K");
_Static_assert(
	LAYOUT_VIRTIO_MAX *(sizeof(" " CONFIG_CMDLINE_DEVICE "=4K@0xd0000000:24") - 1) +
			sizeof(CONFIG_CMDLINE_ALWAYS " " CONFIG_CMDLINE_SILENT " " CONFIG_CMDLINE_HIGH_MEMORY
						     " " CONFIG_CMDLINE_TRACE) <
		CONFIG_CMDLINE_MAX,
	"what the machine needs fits");

/* Text for a line of CONFIG_CMDLINE_MAX bytes, of which *length are used; as many or more: it did not fit. */
__attribute__((format(printf, 3, 4))) static void append(char *line, size_t *length, const char *format, ...)
{
	va_list arguments;

	if (*length >= CONFIG_CMDLINE_MAX)
		return;
	va_start(arguments, format);
	*length += (size_t)vsnprintf(line + *length, CONFIG_CMDLINE_MAX - *length, format, arguments);
	va_end(arguments);
}

int config_kernel_cmdline(const struct config *config, char *line)
{
	unsigned devices = config->boot == CONFIG_BOOT_MPTABLE ? config_count_devices(config) : 0;
	size_t length = 0;

	append(line, &length, "%s %s", CONFIG_CMDLINE_ALWAYS,
		config->serial != NULL ? CONFIG_CMDLINE_SERIAL : CONFIG_CMDLINE_SILENT);
	if (config->memory > GUEST_HOLE_START)
		append(line, &length, " %s", CONFIG_CMDLINE_HIGH_MEMORY);
	for (unsigned i = 0; i < devices; i++)
		append(line, &length, " %s=4K@0x%llx:%u", CONFIG_CMDLINE_DEVICE, LAYOUT_VIRTIO(i),
			config_pin(config, i));
	if (config->trace.wanted)
		append(line, &length, " %s", CONFIG_CMDLINE_TRACE);
	if (config->cmdline != NULL)
		append(line, &length, " %s", config->cmdline);
	return length >= CONFIG_CMDLINE_MAX ? -E2BIG : 0;
}
