/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/doctor/doctor.h"
#include "common/io.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/doctor/doctor_host.h"
#include "host-ctl/doctor/doctor_kvm.h"
#include <stdarg.h>
#include <string.h>

/* clang-format off */
const char doctor_usage[] =
	"usage: host-ctl doctor [OPTION...]\n"
	"Checks what this host must have, runs a tiny guest to see whether its KVM is sound, and says how to\n"
	"mend what is wrong. Needs no daemon.\n"
	"\n"
	"  --kvm-only           the checks of KVM alone\n"
	"  --json               {\"sound\", \"verdict\", \"checks\": [{\"name\", \"state\", \"text\", \"mend\"}], \"figures\"}\n"
	"\n"
	"exit status: 0 sound (there may be warnings); 1 something fails; 125 wrong usage.\n";
/* clang-format on */

/* The checks in their order. Those of KVM come first and make the verdict. */
static const struct check {
	const char *name;
	bool kvm;
	void (*run)(struct doctor *doctor, struct doctor_finding *finding);
} checks[] = {
	{"kvm-device", true, doctor_check_device},
	{"kvm-api", true, doctor_check_api},
	{"kvm-capabilities", true, doctor_check_capabilities},
	{"kvm-speed", true, doctor_check_loop},
	{"kvm-syscall", true, doctor_check_syscall},
	{"kvm-int3", true, doctor_check_int3},
	{"kvm-xsave", true, doctor_check_xsave},
	{"memory", false, doctor_check_memory},
	{"cgroup", false, doctor_check_cgroup},
	{"runtime-space", false, doctor_check_space},
	{"kernel", false, doctor_check_kernel},
	{"open-files", false, doctor_check_files},
};
enum { CHECKS = sizeof(checks) / sizeof(checks[0]) };

static const char *const state_names[] = {
	[DOCTOR_OK] = "ok",
	[DOCTOR_WARN] = "warn",
	[DOCTOR_FAIL] = "fail",
	[DOCTOR_SKIPPED] = "skip",
};

void doctor_find(struct doctor_finding *finding, enum doctor_state state, const char *format, ...)
{
	va_list arguments;

	finding->state = state;
	finding->mend[0] = '\0';
	va_start(arguments, format);
	vsnprintf(finding->text, sizeof(finding->text), format, arguments);
	va_end(arguments);
}

void doctor_mend(struct doctor_finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(finding->mend, sizeof(finding->mend), format, arguments);
	va_end(arguments);
}

bool doctor_verdict(const struct doctor_finding *findings, size_t count, char verdict[DOCTOR_VERDICT_MAX])
{
	size_t length = 0;

	for (size_t i = 0; i < count; i++) {
		if (findings[i].state != DOCTOR_FAIL || length >= DOCTOR_VERDICT_MAX)
			continue;
		length += (size_t)snprintf(verdict + length, DOCTOR_VERDICT_MAX - length, "%s%s",
			length ? "; " : "KVM here can't run a Linux guest: ", findings[i].text);
	}
	if (length == 0)
		snprintf(verdict, DOCTOR_VERDICT_MAX, "KVM here is sound");
	return length == 0;
}

/* ---- output ---- */

static json_t *findings_json(const struct doctor_finding *findings, size_t count)
{
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(
			array, json_pack("{s:s, s:s, s:s, s:s*}", "name", checks[i].name, "state",
				       state_names[findings[i].state], "text", findings[i].text, "mend",
				       findings[i].mend[0] ? findings[i].mend : NULL));
	return array;
}

static int print_json(const struct doctor *doctor, const struct doctor_finding *findings, size_t count,
	bool sound, const char *verdict)
{
	const struct guest_figures *figures = &doctor->figures;
	json_t *numbers = json_null(), *report;
	int r;

	if (doctor->measured)
		numbers = json_pack("{s:I, s:I, s:i}", "loop_ps", (json_int_t)figures->loop_ps, "exit_ns",
			(json_int_t)figures->exit_ns, "syscall_cpl", (int)figures->cpl);
	report = json_pack("{s:b, s:s, s:o, s:o}", "sound", sound, "verdict", verdict, "checks",
		findings_json(findings, count), "figures", numbers);
	r = cli_print_json(report);
	json_decref(report);
	return r;
}

/* How to try what needs KVM all the same; the verdict stays the last line. */
/* clang-format off */
static const char lab_hint[] =
	"No sound KVM? In the source tree `make run` shows it all in the lab, a host with one that QEMU emulates,\n"
	"and `make lab CMD='...'` runs what you like there.";
/* clang-format on */

static int print_lines(
	const struct doctor_finding *findings, size_t count, bool kvm_sound, const char *verdict)
{
	const struct cli_colours colours = cli_colours_for(stdout);
	const char *const state_colours[] = {
		[DOCTOR_OK] = colours.good,
		[DOCTOR_WARN] = colours.warn,
		[DOCTOR_FAIL] = colours.bad,
		[DOCTOR_SKIPPED] = colours.dim,
	};

	for (size_t i = 0; i < count; i++) {
		const struct doctor_finding *finding = &findings[i];

		printf("%s%-4s%s  %-16s  %s\n", state_colours[finding->state], state_names[finding->state],
			colours.reset, checks[i].name, finding->text);
		if (finding->mend[0])
			printf("%24s  %s-> %s%s\n", "", colours.dim, finding->mend, colours.reset);
	}
	if (!kvm_sound)
		printf("%s%s%s\n", colours.dim, lab_hint, colours.reset);
	printf("%s%s%s%s\n", colours.bold, kvm_sound ? colours.good : colours.bad, verdict, colours.reset);
	return cli_finish_output();
}

/* ---- the verb ---- */

static int examine(struct doctor *doctor, bool kvm_only, bool json)
{
	struct doctor_finding findings[CHECKS];
	char verdict[DOCTOR_VERDICT_MAX];
	size_t count = 0, kvm_count = 0;
	bool kvm_sound, sound = true;
	int r;

	for (; count < CHECKS && !(kvm_only && !checks[count].kvm); count++) {
		findings[count] = (struct doctor_finding){0};
		checks[count].run(doctor, &findings[count]);
		sound = sound && findings[count].state != DOCTOR_FAIL;
		kvm_count += checks[count].kvm;
	}
	kvm_sound = doctor_verdict(findings, kvm_count, verdict);
	r = json ? print_json(doctor, findings, count, sound, verdict)
		 : print_lines(findings, count, kvm_sound, verdict);
	return r ? r : !sound;
}

int cmd_doctor(int argc, char **argv)
{
	enum { KVM_ONLY, JSON, HELP };
	static const struct cli_option options[] = {
		[KVM_ONLY] = {.name = "kvm-only"},
		[JSON] = {.name = "json"},
		[HELP] = {.name = "help", .letter = 'h'},
	};
	struct doctor doctor = {
		.kvm_path = "/dev/kvm",
		.cgroup_path = "/sys/fs/cgroup",
		.runtime_path = "/run/tinderbox",
		.kvm = -1,
	};
	struct cli_parser parser;
	const char *value;
	int option, status;

	cli_parser_init(&parser, options, sizeof(options) / sizeof(options[0]), argc, argv);
	do
		option = cli_parser_next(&parser, &value);
	while (option >= 0);
	if (option == CLI_BAD)
		return cli_fail_usage(argv[0], parser.error);
	if (parser.next < argc)
		return cli_fail_unexpected(argv[0], argv[parser.next]);
	if (cli_parser_given(&parser, HELP)) {
		fputs(doctor_usage, stdout);
		return cli_finish_output();
	}
	status = examine(&doctor, cli_parser_given(&parser, KVM_ONLY), cli_parser_given(&parser, JSON));
	fd_close(&doctor.kvm);
	return status;
}
