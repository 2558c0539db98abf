/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, and the functions that take their values. */
#include "vmm/config_options.h"
#include "common/parse.h"
#include "vmm/kvm.h"
#include "vmm/layout.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int config_refuse(char *error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, CONFIG_ERROR_MAX, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

void config_format_size(uint64_t bytes, char text[CONFIG_SIZE_TEXT])
{
	static const char units[] = {'G', 'M', 'K'};

	for (unsigned i = 0; i < sizeof(units); i++) {
		unsigned shift = 30 - 10 * i;

		if (bytes != 0 && (bytes & ((1ull << shift) - 1)) == 0) {
			snprintf(text, CONFIG_SIZE_TEXT, "%llu%c", (unsigned long long)(bytes >> shift),
				units[i]);
			return;
		}
	}
	snprintf(text, CONFIG_SIZE_TEXT, "%llu", (unsigned long long)bytes);
}

int config_file_number(const char *file)
{
	uint64_t number = 0;

	if (strncmp(file, "fd:", 3) != 0)
		return -ENOENT;
	return parse_u64(file + 3, 0, INT_MAX, &number) < 0 ? -EINVAL : (int)number;
}

static int check_file(const struct config_option *option, const char *file, char *error)
{
	if (config_file_number(file) != -EINVAL)
		return 0;
	return config_refuse(error,
		"--%s: " CONFIG_SHOWN " is not a file descriptor; write fd: and its number", option->name,
		file);
}

static int take_kernel(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	config->kernel = value;
	return check_file(option, value, error);
}

static int take_initrd(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	config->initrd = value;
	return check_file(option, value, error);
}

static int take_cmdline(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	(void)option;
	config->cmdline = value;
	if (value[strcspn(value, "\r\n")] != '\0')
		return config_refuse(error, "--cmdline has a line break; write all of it in one line");
	return 0;
}

static int refuse_twice(const struct config_disk *disk, const char *part, char *error)
{
	return config_refuse(
		error, "--disk " CONFIG_SHOWN ": %s is given twice; give it once", disk->path, part);
}

static int take_disk_id(struct config_disk *disk, const char *part, size_t length, char *error)
{
	if (length == 0)
		return config_refuse(error,
			"--disk " CONFIG_SHOWN ": the id is empty; write ,id=ID or leave it out", disk->path);
	if (disk->id[0] != '\0')
		return refuse_twice(disk, "id", error);
	if (length > BLK_ID_BYTES)
		return config_refuse(error,
			"--disk " CONFIG_SHOWN ": an id of %zu bytes is too long; give at most %d",
			disk->path, length, BLK_ID_BYTES);
	memcpy(disk->id, part, length);
	return 0;
}

static int take_disk_upper(const struct config_option *option, struct config_disk *disk, const char *part,
	size_t length, char *error)
{
	if (disk->upper[0] != '\0')
		return refuse_twice(disk, "cow", error);
	if (length == 0)
		return config_refuse(error,
			"--disk " CONFIG_SHOWN ": ,cow= has no file; write ,cow=PATH or ,cow=fd:N",
			disk->path);
	if (length >= sizeof(disk->upper))
		return config_refuse(error,
			"--disk: an upper file's path of %zu bytes is too long; give one of at most %zu, or "
			"fd:N",
			length, sizeof(disk->upper) - 1);
	memcpy(disk->upper, part, length);
	return check_file(option, disk->upper, error);
}

/* One of ",ro", ",cow=UPPER" and ",id=ID"; part is not terminated. */
static int take_disk_part(const struct config_option *option, struct config_disk *disk, const char *part,
	size_t length, char *error)
{
	if (length == 2 && memcmp(part, "ro", 2) == 0) {
		if (disk->read_only)
			return refuse_twice(disk, "ro", error);
		disk->read_only = true;
		return 0;
	}
	if (length >= 4 && memcmp(part, "cow=", 4) == 0)
		return take_disk_upper(option, disk, part + 4, length - 4, error);
	if (length >= 3 && memcmp(part, "id=", 3) == 0)
		return take_disk_id(disk, part + 3, length - 3, error);
	return config_refuse(error,
		"--disk " CONFIG_SHOWN ": \"%.*s\" is not known; write ,ro or ,cow=FILE, and ,id=ID",
		disk->path, (int)(length > 96 ? 96 : length), part);
}

static int take_disk(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	struct config_disk *disk = &config->disks[config->disk_count];
	size_t length = strcspn(value, ",");

	if (length == 0)
		return config_refuse(
			error, "--disk: " CONFIG_SHOWN " has no file; write --disk %s", value, option->value);
	if (length >= sizeof(disk->path))
		return config_refuse(error,
			"--disk: a path of %zu bytes is too long; give one of at most %zu", length,
			sizeof(disk->path) - 1);
	memcpy(disk->path, value, length);
	for (const char *part = value + length; *part != '\0'; part += length) {
		part++;
		length = strcspn(part, ",");
		if (take_disk_part(option, disk, part, length, error) < 0)
			return -EINVAL;
	}
	if (disk->read_only && disk->upper[0] != '\0')
		return config_refuse(error,
			"--disk " CONFIG_SHOWN ": ro and cow do not go together; leave one out", disk->path);
	config->disk_count++;
	return check_file(option, disk->path, error);
}

static int check_socket(const struct config_option *option, const char *path, char *error)
{
	size_t length = strlen(path);

	if (length <= option->maximum)
		return 0;
	return config_refuse(error,
		"--%s: a path of %zu bytes is too long for a socket; give one of at most %u", option->name,
		length, (unsigned)option->maximum);
}

static int take_vsock(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	config->vsock = value;
	if (config_file_number(value) != -ENOENT)
		return config_refuse(
			error, "--vsock: " CONFIG_SHOWN " is not a path; a socket is made there", value);
	return check_socket(option, value, error);
}

static int take_control(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	config->control = value;
	if (check_file(option, value, error) < 0)
		return -EINVAL;
	return check_socket(option, value, error);
}

static int take_number(const struct config_option *option, const char *value, uint64_t *number, char *error)
{
	int r = parse_u64(value, option->minimum, option->maximum, number);

	if (r == 0)
		return 0;
	if (r == -EINVAL)
		return config_refuse(error, "--%s " CONFIG_SHOWN " is not a number; write decimal digits",
			option->name, value);
	return config_refuse(error, "--%s " CONFIG_SHOWN " is out of range; choose %llu to %llu",
		option->name, value, (unsigned long long)option->minimum,
		(unsigned long long)option->maximum);
}

static int take_cid(const struct config_option *option, struct config *config, const char *value, char *error)
{
	uint64_t number = 0;
	int r = take_number(option, value, &number, error);

	config->vsock_cid = (uint32_t)number;
	return r;
}

static int take_cpus(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	uint64_t number = 0;
	int r = take_number(option, value, &number, error);

	config->cpus = (unsigned)number;
	return r;
}

/* example: of a size, for the words. */
static int take_size(const struct config_option *option, const char *value, const char *example,
	uint64_t *bytes, char *error)
{
	char minimum[CONFIG_SIZE_TEXT], maximum[CONFIG_SIZE_TEXT];
	int r = parse_size(value, option->minimum, option->maximum, bytes);

	if (r == 0)
		return 0;
	config_format_size(option->minimum, minimum);
	config_format_size(option->maximum, maximum);
	if (r == -EINVAL)
		return config_refuse(error,
			"--%s " CONFIG_SHOWN " is not a size; write a number with K, M or G, such as %s",
			option->name, value, example);
	return config_refuse(error, "--%s " CONFIG_SHOWN " is out of range; choose %s to %s", option->name,
		value, minimum, maximum);
}

static int take_memory(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	char unit[CONFIG_SIZE_TEXT];

	if (take_size(option, value, option->fallback, &config->memory, error) < 0)
		return -EINVAL;
	config_format_size(CONFIG_MEMORY_UNIT, unit);
	if (config->memory % CONFIG_MEMORY_UNIT != 0)
		return config_refuse(error,
			"--mem " CONFIG_SHOWN " is not a multiple of %s; round it up or down", value, unit);
	return 0;
}

static int take_balloon(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	int r;

	(void)option;
	config->balloon = true;
	if (value == NULL)
		return 0;
	r = parse_size(value, 0, UINT64_MAX, &config->balloon_target);
	if (r == -EINVAL)
		return config_refuse(error,
			"--balloon " CONFIG_SHOWN
			" is not a size; write a number with K, M or G, such as 32M",
			value);
	if (r == 0 && config->balloon_target % CONFIG_BALLOON_UNIT != 0)
		return config_refuse(error,
			"--balloon " CONFIG_SHOWN
			" is not a multiple of 4K, the size of a page; round it up or down",
			value);
	/* More than --mem is refused once that is known. */
	if (r < 0)
		config->balloon_target = UINT64_MAX;
	return 0;
}

static int take_boot(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	if (strcmp(value, "fdt") == 0)
		config->boot = CONFIG_BOOT_FDT;
	else if (strcmp(value, "mptable") == 0)
		config->boot = CONFIG_BOOT_MPTABLE;
	else
		return config_refuse(
			error, "--boot " CONFIG_SHOWN " is not known; choose %s", value, option->value);
	return 0;
}

static int take_serial(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	config->serial = strcmp(value, "none") == 0 ? NULL : value;
	return check_file(option, value, error);
}

static int take_serial_max(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	return take_size(option, value, "4M", &config->serial_max, error);
}

static int take_kvm(const struct config_option *option, struct config *config, const char *value, char *error)
{
	config->kvm = value;
	return check_file(option, value, error);
}

static int take_stats(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	config->stats = true;
	config->stats_file = value;
	return value == NULL ? 0 : check_file(option, value, error);
}

static int take_log_level(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	static const char *const names[] = {[LOG_LEVEL_ERROR] = "error",
		[LOG_LEVEL_WARN] = "warn",
		[LOG_LEVEL_INFO] = "info",
		[LOG_LEVEL_DEBUG] = "debug"};

	for (unsigned level = 0; level < sizeof(names) / sizeof(names[0]); level++) {
		if (strcmp(value, names[level]) == 0) {
			config->log_level = (enum log_level)level;
			return 0;
		}
	}
	return config_refuse(
		error, "--log-level " CONFIG_SHOWN " is not known; choose %s", value, option->value);
}

static int take_help(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	(void)option;
	(void)value;
	(void)error;
	config->action = CONFIG_HELP;
	return 0;
}

static int take_version(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	(void)option;
	(void)value;
	(void)error;
	config->action = CONFIG_VERSION;
	return 0;
}

static int take_paused(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	(void)option;
	(void)value;
	(void)error;
	config->paused = true;
	return 0;
}

static int take_standby(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	(void)option;
	(void)value;
	(void)error;
	config->standby = true;
	return 0;
}

const struct config_option config_options[CONFIG_OPTION_COUNT] = {
	{.name = "kernel",
		.value = "PATH|fd:N",
		.most = 1,
		.take = take_kernel,
		.text = "the guest's kernel, an uncompressed x86-64 vmlinux; must be given, or --restore"},
	{.name = "restore",
		.value = "DIR|STATE,memory=MEMORY",
		.most = 1,
		.take = config_take_restore,
		.text = "a snapshot in place of a kernel; ,pages=FILE: what lies upon its memory; "
			",working-set=FILE"},
	{.name = "paused",
		.most = 1,
		.take = take_paused,
		.text = "the guest stands at first, until the control socket resumes it"},
	{.name = "standby",
		.most = 1,
		.take = take_standby,
		.text = "no kernel yet: the control socket tells what to restore, and hands it over"},
	{.name = "initrd",
		.value = "PATH|fd:N",
		.most = 1,
		.take = take_initrd,
		.text = "initramfs, loaded at the end of memory"},
	{.name = "cmdline",
		.value = "STR",
		.most = 1,
		.take = take_cmdline,
		.text = "added to the kernel's command line, after what the machine needs"},
	{.name = "disk",
		.value = "FILE[,ro|,cow=FILE][,id=ID]",
		.most = CONFIG_DISKS_MAX,
		.take = take_disk,
		.text = "a raw disk (vda, ...), read-only with ro; cow's file takes all writes; paths with "
			"a comma go as fd:N"},
	{.name = "vsock",
		.kind = CONFIG_SOCKET,
		.value = "PATH",
		.maximum = CONFIG_VSOCK_MAX,
		.most = 1,
		.take = take_vsock,
		.text = "a Unix socket is made there: CONNECT <port> reaches the guest, whose port P reaches "
			"PATH_P"},
	{.name = "vsock-cid",
		.kind = CONFIG_NUMBER,
		.value = "N",
		.fallback = "3",
		.minimum = 3,
		.maximum = UINT32_MAX - 1,
		.most = 1,
		.take = take_cid,
		.text = "the guest's vsock address; several VMs may have the same"},
	{.name = "net",
		.value = "TAP|fd:N|none[,mac=MAC]",
		.most = 1,
		.take = config_take_net,
		.text = "a network device: an existing tap, or a link that is down; its MAC comes from "
			"the tap's name"},
	{.name = "mem",
		.kind = CONFIG_SIZE,
		.value = "SIZE",
		.fallback = "128M",
		.minimum = LAYOUT_MEMORY_MIN,
		.maximum = LAYOUT_MEMORY_MAX,
		.most = 1,
		.take = take_memory,
		.text = "memory of the guest, in whole MiB"},
	{.name = "cpus",
		.kind = CONFIG_NUMBER,
		.value = "N",
		.fallback = "1",
		.minimum = 1,
		.maximum = LAYOUT_CPUS_MAX,
		.most = 1,
		.take = take_cpus,
		.text = "processors of the guest"},
	{.name = "balloon",
		.value = "SIZE",
		.most = 1,
		.value_optional = true,
		.take = take_balloon,
		.text = "memory that the guest frees goes back to the host, and SIZE of it from the start"},
	{.name = "boot",
		.value = "fdt|mptable",
		.fallback = "fdt",
		.most = 1,
		.take = take_boot,
		.text = "what tells the kernel of the machine: a device tree, or an MP table and its command "
			"line"},
	{.name = "serial",
		.value = "-|none|PATH|fd:N",
		.fallback = "none",
		.most = 1,
		.take = take_serial,
		.text = "the serial line, the kernel's console: the terminal (-), or a file it is appended "
			"to"},
	{.name = "serial-max",
		.kind = CONFIG_SIZE,
		.value = "SIZE",
		.minimum = CONFIG_SERIAL_MIN,
		.maximum = CONFIG_SERIAL_MAX,
		.most = 1,
		.take = take_serial_max,
		.text = "so much is written to the serial line, and no more: the rest is dropped"},
	{.name = "control",
		.kind = CONFIG_SOCKET,
		.value = "PATH|fd:N",
		.maximum = CONFIG_SOCKET_MAX,
		.most = 1,
		.take = take_control,
		.text = "control socket: made there, or an inherited one that listens"},
	{.name = "kvm",
		.value = "PATH|fd:N",
		.fallback = KVM_DEVICE,
		.most = 1,
		.take = take_kvm,
		.text = "the KVM device"},
	{.name = "stats",
		.value = "PATH|fd:N",
		.most = 1,
		.value_optional = true,
		.take = take_stats,
		.text = "counts of exits by reason and device, at the end: words on standard error, or JSON "
			"in a file"},
	{.name = "trace",
		.value = "FILE[,until=hello|end]",
		.most = 1,
		.take = config_take_trace,
		.text = "phases, ioctls, exits and interrupts with their times, as Chrome's trace events "
			"(docs/trace.md)"},
	{.name = "log-level",
		.value = "error|warn|info|debug",
		.fallback = "info",
		.most = 1,
		.take = take_log_level,
		.text = "how much is said on standard error"},
	{.name = "help", .most = 1, .take = take_help, .text = "this text"},
	{.name = "version", .most = 1, .take = take_version, .text = "the version"},
};
