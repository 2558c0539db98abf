/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/serve/serve_options.h"
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/http/http.h"
#include "host-ctl/support/built_file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum option {
	OPTION_SOCKET,
	OPTION_GROUP,
	OPTION_RUNTIME_DIR,
	OPTION_STATE_DIR,
	OPTION_CGROUP_ROOT,
	OPTION_LIMITS,
	OPTION_POOL,
	OPTION_MAX_VMS,
	OPTION_STARTS,
	OPTION_QUEUE_MAX,
	OPTION_RESERVE,
	OPTION_DISK_RESERVE,
	OPTION_MEM,
	OPTION_CPUS,
	OPTION_UID_BASE,
	OPTION_BOOT_TIMEOUT,
	OPTION_KEY_GRACE,
	OPTION_CLIENT_TIMEOUT,
	OPTION_REHEARSALS,
	OPTION_KEEP,
	OPTION_KEEP_COMMANDS,
	OPTION_VMM,
	OPTION_KVM,
	OPTION_KERNEL,
	OPTION_INITRD,
	OPTION_IMAGE,
	OPTION_MKFS,
	OPTION_SERIAL_DIR,
	OPTION_COLD,
	OPTION_NO_PREFAULT,
	OPTION_STANDBY,
	OPTION_READY_FD,
	OPTION_VERBOSE,
	OPTION_HELP,
	OPTION_COUNT
};

static const struct {
	struct cli_option cli;
	const char *value, *help;
} table[OPTION_COUNT] = {
	[OPTION_SOCKET] = {{.name = "socket", .has_value = true}, "PATH",
		"the API's Unix socket (default /run/tinderbox/host-ctl.sock, or $TINDERBOX_SOCKET)"},
	[OPTION_GROUP] = {{.name = "group", .has_value = true}, "NAME",
		"group that may use the socket, mode 0660 (default: the daemon's own)"},
	[OPTION_RUNTIME_DIR] = {{.name = "runtime-dir", .has_value = true}, "DIR",
		"for control sockets and locks; made when missing (default /run/tinderbox)"},
	[OPTION_STATE_DIR] = {{.name = "state-dir", .has_value = true}, "DIR",
		"for templates, images, the journal and the files of sandboxes: their disks, and the memory "
		"of those that are suspended; made when missing (default " SERVE_STATE_DEFAULT ")"},
	[OPTION_CGROUP_ROOT] = {{.name = "cgroup-root", .has_value = true}, "DIR",
		"cgroup v2 folder of the VMs; made when missing (default " CGROUP_ROOT_DEFAULT ")"},
	[OPTION_LIMITS] = {{.name = "limits", .has_value = true}, "required|available",
		"refuse to start without cpu, memory and pids limits, or run VMs without them where the "
		"kernel "
		"offers none: for test hosts only (default required)"},
	[OPTION_POOL] = {{.name = "pool", .has_value = true}, "N", "warm VMs kept, 0 to 256 (default 2)"},
	[OPTION_MAX_VMS] = {{.name = "max-vms", .has_value = true}, "N",
		"VMs at once, busy ones included, 1 to 256 and at least --pool (default 128)"},
	[OPTION_STARTS] = {{.name = "starts", .has_value = true}, "N",
		"VMs that boot at the same time, 1 to 64 (default: the host's CPUs)"},
	[OPTION_QUEUE_MAX] = {{.name = "queue-max", .has_value = true}, "N",
		"runs that may wait for a VM, 0 to 4096; the next is refused as exhausted (default 64)"},
	[OPTION_RESERVE] = {{.name = "reserve", .has_value = true}, "SIZE",
		"memory of the host that refills leave free; a VM that a run waits for may take half of it, "
		"then runs are refused as exhausted; 0 looks at no memory and no fds (default 128M)"},
	[OPTION_DISK_RESERVE] = {{.name = "disk-reserve", .has_value = true}, "SIZE",
		"room on the disk of the state folder that new sandboxes with a disk leave free: with less "
		"they "
		"are refused as exhausted; 0 looks at none (default 256M)"},
	[OPTION_MEM] = {{.name = "mem", .has_value = true}, "SIZE",
		"memory of each VM, 32M to 511G (default 128M)"},
	[OPTION_CPUS] = {{.name = "cpus", .has_value = true}, "N",
		"processors of each VM, 1 to 8; with more than one the default kernel is vmlinux-smp "
		"(default 1)"},
	[OPTION_UID_BASE] = {{.name = "uid-base", .has_value = true}, "N",
		"VM in slot n runs as uid and gid N + n, one out of standby as N + 258 + n; 1 to 2147483647; "
		"another daemon on this host needs another, 516 or more away (default 700000)"},
	[OPTION_BOOT_TIMEOUT] = {{.name = "boot-timeout-ms", .has_value = true}, "N",
		"a VM that is not warm by then is ended, 100 to 3600000 (default 30000)"},
	[OPTION_KEY_GRACE] = {{.name = "key-grace-ms", .has_value = true}, "N",
		"what was asked for with an Idempotency-Key goes on so long without a client, to be asked "
		"for again, 0 to 86400000 (default 60000)"},
	[OPTION_CLIENT_TIMEOUT] = {{.name = "client-timeout-ms", .has_value = true}, "N",
		"a client whose request is not there by then, from its connection or its last answer on, is "
		"cut off, and one that takes five times as long to read its answer, 100 to 3600000 (default "
		"60000)"},
	[OPTION_REHEARSALS] = {{.name = "rehearsals", .has_value = true}, "N",
		"sample commands that each VM runs before it counts as warm, 0 to 8; the first makes a later "
		"command's "
		"start many times faster (default 1)"},
	[OPTION_KEEP] = {{.name = "keep-ms", .has_value = true}, "N",
		"a sandbox that is gone, and its commands with their output, can be read that long, 1 to "
		"86400000 (default 600000)"},
	[OPTION_KEEP_COMMANDS] = {{.name = "keep-commands-ms", .has_value = true}, "N",
		"a command that has ended, and its output, can be read that long in a sandbox, and no longer "
		"than "
		"that can, 0 to 2592000000; 0: as long as its sandbox (default 0)"},
	[OPTION_VMM] = {{.name = "vmm", .has_value = true}, "PATH", "the vmm's executable"},
	[OPTION_KVM] = {{.name = "kvm", .has_value = true}, "PATH", "the KVM device (default /dev/kvm)"},
	[OPTION_KERNEL] = {{.name = "kernel", .has_value = true}, "PATH", "guest kernel, vmlinux"},
	[OPTION_INITRD] = {{.name = "initrd", .has_value = true}, "PATH", "initramfs with guest-init"},
	[OPTION_IMAGE] = {{.name = "image", .has_value = true}, "PATH",
		"base image. The defaults of these four are of the build tree that host-ctl stands in, or "
		"else "
		"in " BUILT_FILE_LIBRARY},
	[OPTION_MKFS] = {{.name = "mkfs", .has_value = true}, "PATH",
		"mkfs.ext4 (e2fsprogs), for templates with a disk (default " SERVE_MKFS_DEFAULT ")"},
	[OPTION_SERIAL_DIR] = {{.name = "serial-dir", .has_value = true}, "DIR",
		"give each VM a serial port and write it to DIR/<id>.log, at most 4 MiB of each, with a "
		"disk, "
		"too: for debugging, it slows the boot"},
	[OPTION_COLD] = {{.name = "cold"}, NULL,
		"boot each VM of the pool, in place of clones of the template base, which is built at the "
		"start when it is missing or no longer right"},
	[OPTION_NO_PREFAULT] = {{.name = "no-prefault"}, NULL,
		"clones get the pages of their template's working set one by one, when they touch them, not "
		"before they run: to compare"},
	[OPTION_STANDBY] = {{.name = "standby", .has_value = true}, "N",
		"vmm processes kept started for the next clones, 0 to 8 (default 2)"},
	[OPTION_READY_FD] = {{.name = "ready-fd", .has_value = true}, "N",
		"write one byte to this fd and close it when the pool is first full"},
	[OPTION_VERBOSE] = {{.name = "verbose", .letter = 'v'}, NULL, "log more"},
	[OPTION_HELP] = {{.name = "help", .letter = 'h'}, NULL, "this text"},
};

enum { HELP_COLUMN = 30, HELP_WIDTH = 72 };

/* The text, wrapped between words, each further line at HELP_COLUMN. */
static void print_wrapped(FILE *to, const char *text)
{
	while (strlen(text) > HELP_WIDTH) {
		const char *space = memrchr(text, ' ', HELP_WIDTH);

		if (!space)
			break;
		fprintf(to, "%.*s\n%*s", (int)(space - text), text, HELP_COLUMN, "");
		text = space + 1;
	}
	fprintf(to, "%s\n", text);
}

void serve_options_print_help(FILE *to)
{
	fputs("usage: host-ctl serve [OPTION...]\n\n"
	      "The daemon: keeps warm VMs and runs commands in them, one a VM, for the clients of its "
	      "socket.\n"
	      "Needs root, KVM and cgroup v2 (`host-ctl doctor` says what lacks). Ends on SIGTERM, SIGINT, "
	      "SIGHUP\n"
	      "or SIGQUIT, with its VMs; the runtime folder and the empty cgroup root stay, for the next "
	      "start.\n\n",
		to);
	for (int i = 0; i < OPTION_COUNT; i++) {
		int used = fprintf(to, "  --%s%s%s", table[i].cli.name, table[i].value ? " " : "",
			table[i].value ? table[i].value : "");

		if (used >= HELP_COLUMN - 1)
			used = fprintf(to, "\n") - 1;
		fprintf(to, "%*s", HELP_COLUMN - used, "");
		print_wrapped(to, table[i].help);
	}
	fputs("\nexit status: 0 stopped; 1 it could not start, or failed; 125 wrong usage.\n", to);
}

static const struct {
	enum option option;
	size_t offset;
	const char *built;     /* under the build folder; under BUILT_FILE_LIBRARY without its folder */
	const char *built_smp; /* in place of it for VMs of several processors; NULL: the same */
} files[5] = {
	{OPTION_VMM, offsetof(struct serve_options, vmm), "vmm/vmm", NULL},
	/* The first sees one processor only, the second takes longer to boot. */
	{OPTION_KERNEL, offsetof(struct serve_options, kernel), "kernel/vmlinux-up", "kernel/vmlinux-smp"},
	{OPTION_KERNEL, offsetof(struct serve_options, kernel_smp), "kernel/vmlinux-smp", NULL},
	{OPTION_INITRD, offsetof(struct serve_options, initrd), "images/initramfs.cpio", NULL},
	{OPTION_IMAGE, offsetof(struct serve_options, image), "images/base.erofs", NULL},
};

static void find_files(struct serve_options *options)
{
	options->kernel_smp = options->kernel;
	for (int i = 0; i < 5; i++) {
		const char **path = (const char **)((char *)options + files[i].offset);
		bool smp = options->cpus > 1 && files[i].built_smp;

		if (*path)
			continue;
		built_file_find(options->found[i], smp ? files[i].built_smp : files[i].built);
		*path = options->found[i];
	}
}

static int bad_number(enum option option, const char *value, const char *range, char *error)
{
	snprintf(error, SERVE_ERROR_MAX, "--%s wants %s, not '%.64s'", table[option].cli.name, range, value);
	return -1;
}

static int set_number(enum option option, const char *value, uint64_t minimum, uint64_t maximum,
	uint64_t *number, char *error)
{
	char range[64];

	if (!parse_u64(value, minimum, maximum, number))
		return 0;
	snprintf(range, sizeof range, "a number from %llu to %llu", (unsigned long long)minimum,
		(unsigned long long)maximum);
	return bad_number(option, value, range, error);
}

static int set_unsigned(enum option option, const char *value, unsigned int minimum, unsigned int maximum,
	unsigned int *number, char *error)
{
	uint64_t wide;

	if (set_number(option, value, minimum, maximum, &wide, error))
		return -1;
	*number = (unsigned int)wide;
	return 0;
}

static int set_group(struct serve_options *options, const char *name, char *error)
{
	const struct group *group = getgrnam(name);

	if (!group) {
		snprintf(error, SERVE_ERROR_MAX, "--group: there is no group '%.64s'", name);
		return -1;
	}
	options->group = group->gr_gid;
	return 0;
}

static int set_limits(struct serve_options *options, const char *value, char *error)
{
	options->limits_required = !strcmp(value, "required");
	if (options->limits_required || !strcmp(value, "available"))
		return 0;
	snprintf(error, SERVE_ERROR_MAX, "--limits wants required or available, not '%.64s'", value);
	return -1;
}

static int set_memory(struct serve_options *options, const char *value, char *error)
{
	options->memory = value;
	if (!parse_size(value, TEMPLATE_MEMORY_MIN, TEMPLATE_MEMORY_MAX, &options->memory_bytes) &&
		options->memory_bytes % TEMPLATE_MEMORY_UNIT == 0)
		return 0;
	return bad_number(OPTION_MEM, value, "a size from 32M to 511G in whole MiB", error);
}

static int set_reserve(struct serve_options *options, const char *value, char *error)
{
	if (!parse_size(value, 0, TEMPLATE_MEMORY_MAX, &options->reserve_bytes))
		return 0;
	return bad_number(OPTION_RESERVE, value, "a size of at most 511G", error);
}

static int set_disk_reserve(struct serve_options *options, const char *value, char *error)
{
	if (!parse_size(value, 0, SERVE_DISK_RESERVE_MAX, &options->disk_reserve_bytes))
		return 0;
	return bad_number(OPTION_DISK_RESERVE, value, "a size of at most 1048576G", error);
}

static int set_ready_fd(struct serve_options *options, const char *value, char *error)
{
	unsigned int fd;

	if (set_unsigned(OPTION_READY_FD, value, 0, INT_MAX, &fd, error))
		return -1;
	options->ready_fd = (int)fd;
	if (fcntl(options->ready_fd, F_SETFD, FD_CLOEXEC) == 0)
		return 0;
	snprintf(error, SERVE_ERROR_MAX, "--ready-fd %d is not an open fd", options->ready_fd);
	return -1;
}

static int set_value(struct serve_options *options, enum option option, const char *value, char *error)
{
	switch (option) {
	case OPTION_GROUP:
		return set_group(options, value, error);
	case OPTION_LIMITS:
		return set_limits(options, value, error);
	case OPTION_POOL:
		return set_unsigned(option, value, 0, POOL_TARGET_MAX, &options->target, error);
	case OPTION_MAX_VMS:
		return set_unsigned(option, value, 1, POOL_VMS_MAX, &options->vms_max, error);
	case OPTION_STARTS:
		return set_unsigned(option, value, 1, POOL_STARTS_MAX, &options->starts_max, error);
	case OPTION_QUEUE_MAX:
		return set_unsigned(option, value, 0, POOL_QUEUE_MAX, &options->queue_max, error);
	case OPTION_RESERVE:
		return set_reserve(options, value, error);
	case OPTION_DISK_RESERVE:
		return set_disk_reserve(options, value, error);
	case OPTION_MEM:
		return set_memory(options, value, error);
	case OPTION_CPUS:
		return set_unsigned(option, value, 1, TEMPLATE_CPUS_MAX, &options->cpus, error);
	case OPTION_UID_BASE:
		return set_unsigned(option, value, 1, INT_MAX, &options->uid_base, error);
	case OPTION_BOOT_TIMEOUT:
		return set_number(option, value, 100, 3600 * 1000, &options->boot_timeout_ms, error);
	case OPTION_KEY_GRACE:
		return set_number(option, value, 0, SERVE_KEY_GRACE_MAX_MS, &options->key_grace_ms, error);
	case OPTION_CLIENT_TIMEOUT:
		return set_number(option, value, 100, 3600 * 1000, &options->client_timeout_ms, error);
	case OPTION_KEEP:
		return set_number(option, value, 1, 24 * 3600 * 1000, &options->keep_ms, error);
	case OPTION_KEEP_COMMANDS:
		return set_number(
			option, value, 0, SERVE_KEEP_COMMANDS_MAX_MS, &options->keep_commands_ms, error);
	case OPTION_REHEARSALS:
		return set_unsigned(option, value, 0, SERVE_REHEARSALS_MAX, &options->rehearsals, error);
	case OPTION_READY_FD:
		return set_ready_fd(options, value, error);
	case OPTION_COLD:
		options->cold = true;
		return 0;
	case OPTION_STANDBY:
		return set_unsigned(option, value, 0, STANDBY_MAX, &options->standby, error);
	case OPTION_NO_PREFAULT:
		options->no_prefault = true;
		return 0;
	case OPTION_VERBOSE:
		options->verbose = true;
		return 0;
	case OPTION_HELP:
		options->help = true;
		return 0;
	default:
		return 0;
	}
}

/* The options that are a path and no more. */
static const char **path_of(struct serve_options *options, enum option option)
{
	switch (option) {
	case OPTION_SOCKET:
		return &options->socket;
	case OPTION_RUNTIME_DIR:
		return &options->runtime_directory;
	case OPTION_STATE_DIR:
		return &options->state_directory;
	case OPTION_CGROUP_ROOT:
		return &options->cgroup_root;
	case OPTION_VMM:
		return &options->vmm;
	case OPTION_KVM:
		return &options->kvm;
	case OPTION_KERNEL:
		return &options->kernel;
	case OPTION_INITRD:
		return &options->initrd;
	case OPTION_IMAGE:
		return &options->image;
	case OPTION_MKFS:
		return &options->mkfs;
	case OPTION_SERIAL_DIR:
		return &options->serial_directory;
	default:
		return NULL;
	}
}

static int set_option(struct serve_options *options, enum option option, const char *value, char *error)
{
	const char **path = path_of(options, option);

	if (!path)
		return set_value(options, option, value, error);
	*path = value;
	if (value[0])
		return 0;
	snprintf(error, SERVE_ERROR_MAX, "--%s is empty: give a path", table[option].cli.name);
	return -1;
}

static void set_defaults(struct serve_options *options)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	*options = (struct serve_options){.runtime_directory = SERVE_RUNTIME_DEFAULT,
		.state_directory = SERVE_STATE_DEFAULT,
		.cgroup_root = CGROUP_ROOT_DEFAULT,
		.kvm = "/dev/kvm",
		.mkfs = SERVE_MKFS_DEFAULT,
		.memory = SERVE_MEMORY_DEFAULT,
		.memory_bytes = UINT64_C(128) << 20,
		.cpus = 1,
		.boot_timeout_ms = VM_BOOT_TIMEOUT_MS,
		.key_grace_ms = SERVE_KEY_GRACE_DEFAULT_MS,
		.client_timeout_ms = HTTP_LIMIT_MS,
		.keep_ms = SERVE_KEEP_MS,
		.reserve_bytes = ROOM_RESERVE_DEFAULT,
		.disk_reserve_bytes = SANDBOX_FILES_RESERVE_DEFAULT,
		.target = SERVE_POOL_DEFAULT,
		.rehearsals = SERVE_REHEARSALS_DEFAULT,
		.vms_max = SERVE_VMS_DEFAULT,
		.starts_max = cpus < 1		       ? 1
			      : cpus > POOL_STARTS_MAX ? POOL_STARTS_MAX
						       : (unsigned int)cpus,
		.queue_max = POOL_QUEUE_DEFAULT,
		.standby = SERVE_STANDBY_DEFAULT,
		.uid_base = SERVE_UID_BASE_DEFAULT,
		.group = getegid(),
		.limits_required = true,
		.ready_fd = -1};
}

int serve_options_parse(struct serve_options *options, int argc, char **argv, char *error)
{
	struct cli_option list[OPTION_COUNT];
	struct cli_parser parser;
	const char *value;
	int option;

	for (int i = 0; i < OPTION_COUNT; i++)
		list[i] = table[i].cli;
	set_defaults(options);
	cli_parser_init(&parser, list, OPTION_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0) {
		if (set_option(options, (enum option)option, value, error))
			return -1;
		if (options->help)
			return 0;
	}
	if (option == CLI_BAD || parser.next < argc) {
		if (option == CLI_BAD)
			snprintf(error, SERVE_ERROR_MAX, "%s", parser.error);
		else
			snprintf(error, SERVE_ERROR_MAX, CLI_UNEXPECTED, argv[parser.next]);
		return -1;
	}
	if (options->vms_max < options->target) {
		snprintf(error, SERVE_ERROR_MAX, "--max-vms %u is less than --pool %u", options->vms_max,
			options->target);
		return -1;
	}
	options->socket = cli_socket_path(options->socket);
	find_files(options);
	return 0;
}
