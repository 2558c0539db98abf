/* SPDX-License-Identifier: Apache-2.0 */
/* host-ctl: one program; `serve` is the daemon, the other verbs are its clients. */
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/serve/serve.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int cmd_help(int argc, char **argv);

/* clang-format off */
static const char help_usage[] =
	"usage: host-ctl help [VERB]\n"
	"Lists the verbs, or explains one.\n"
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

static const struct verb {
	const char *name, *summary;
	int (*run)(int argc, char **argv);
	const char *usage; /* NULL: it has a --help of its own */
} verbs[] = {
	{"run", "run a command in a fresh VM", cmd_run, run_usage},
	{"create", "make a sandbox, a VM that stays", cmd_create, create_usage},
	{"ls", "list the sandboxes", cmd_ls, ls_usage},
	{"exec", "run a command in a sandbox", cmd_exec, exec_usage},
	{"attach", "follow a command that was left running", cmd_attach, attach_usage},
	{"logs", "print what a command wrote", cmd_logs, logs_usage},
	{"ps", "list the commands of a sandbox", cmd_ps, ps_usage},
	{"kill", "end a command of a sandbox, or send it a signal", cmd_kill, kill_usage},
	{"diff", "list the files that a sandbox has changed", cmd_diff, diff_usage},
	{"pause", "have sandboxes stand still", cmd_sandbox_verb, sandbox_verb_usage},
	{"resume", "have them go on", cmd_sandbox_verb, sandbox_verb_usage},
	{"suspend", "put sandboxes on the disk, and give their memory back", cmd_sandbox_verb,
		sandbox_verb_usage},
	{"wake", "have them be ready again, whichever way they came to rest", cmd_sandbox_verb,
		sandbox_verb_usage},
	{"fork", "make sandboxes that go on from where one is", cmd_fork, fork_usage},
	{"snapshot", "make a template of a sandbox as it is", cmd_snapshot, snapshot_usage},
	{"stop", "switch sandboxes off; files stay that are on a disk", cmd_sandbox_verb, sandbox_verb_usage},
	{"start", "switch them on again", cmd_sandbox_verb, sandbox_verb_usage},
	{"rm", "remove sandboxes", cmd_sandbox_verb, sandbox_verb_usage},
	{"events", "print what happens to sandboxes and commands", cmd_events, events_usage},
	{"pool", "show the daemon's warm VMs", cmd_pool, pool_usage},
	{"template", "build, list, show and remove what VMs are cloned from", cmd_template, template_usage},
	{"image", "build, list and remove what templates are built from", cmd_image, image_usage},
	{"boot-report", "show where the time of a traced boot went", cmd_boot_report, boot_report_usage},
	{"bench", "measure boots, restores and warm runs on this machine", cmd_bench, bench_usage},
	{"control", "ask or tell a vmm that runs alone", cmd_control, control_usage},
	{"doctor", "check what this host lacks, and say how to mend it", cmd_doctor, doctor_usage},
	{"version", "print the versions of this program and of the daemon", cmd_version, version_usage},
	{"serve", "be the daemon", serve_main, NULL},
	{"help", "this list, or a verb's options", cmd_help, help_usage},
};

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

static void print_verbs(FILE *to)
{
	fputs("usage: host-ctl VERB [OPTION...]\n\n", to);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		fprintf(to, "  %-11s %s\n", verbs[i].name, verbs[i].summary);
	fputs("\n`host-ctl help VERB`, or `host-ctl VERB --help`, explains one.\n\n"
	      "exit status: 0 done; 125 it could not be done, the cause on standard error; of run, exec and "
	      "attach\nthe command's; doctor and serve have 1 as well.\n",
		to);
}

static int unknown_verb(const char *name)
{
	if (name[0] == '-')
		return cli_fail("unknown option '%s': a verb comes first (see `host-ctl help`)", name);
	return cli_fail("unknown verb '%s' (see `host-ctl help`)", name);
}

/* Of a verb, or the list of them. */
static int print_help(const char *name)
{
	const struct verb *verb = name ? find_verb(name) : NULL;
	char serve[] = "serve", help[] = "--help", *own_help[] = {serve, help, NULL};

	if (name && !verb)
		return unknown_verb(name);
	if (verb && !verb->usage)
		return verb->run(2, own_help);
	if (verb)
		fputs(verb->usage, stdout);
	else
		print_verbs(stdout);
	return cli_finish_output();
}

static int cmd_help(int argc, char **argv)
{
	static const struct cli_option options[] = {{.name = "help", .letter = 'h'}};
	struct cli_parser parser;
	const char *value;
	int option;

	cli_parser_init(&parser, options, 1, argc, argv);
	option = cli_parser_next(&parser, &value);
	if (option == CLI_BAD)
		return cli_fail_usage("help", parser.error);
	if (option >= 0)
		return print_help("help");
	if (argc - parser.next > 1)
		return cli_fail_unexpected("help", argv[parser.next + 1]);
	return print_help(argv[parser.next]);
}

/*
 * A standard stream that is closed becomes /dev/null, so that no file opened later takes its number. As
 * output it cannot be written: what a command says does not get lost unnoticed.
 */
static int open_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) < 0)
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	const struct verb *verb;
	const char *name = argc > 1 ? argv[1] : NULL;

	if (open_standard_streams() < 0)
		return CLI_FAILURE;
	if (!name) {
		print_verbs(stderr);
		return CLI_FAILURE;
	}
	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	else if (strcmp(name, "--version") == 0)
		name = "version";
	verb = find_verb(name);
	return verb ? verb->run(argc - 1, argv + 1) : unknown_verb(name);
}
