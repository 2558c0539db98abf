/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/identity.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { BOOT_ID_LENGTH = 37 }; /* of a uuid and its newline */

static int system_entropy(void *context, const uint8_t *bytes, size_t length)
{
	/* The struct ends in a flexible array, so its bytes are reserved by hand. */
	union {
		struct rand_pool_info info;
		uint8_t reserve[sizeof(struct rand_pool_info) + AGENT_ENTROPY_BYTES];
	} pool = {.info = {.entropy_count = (int)length * 8, .buf_size = (int)length}};
	int fd = open("/dev/random", O_RDWR | O_CLOEXEC);
	int r = 0;

	(void)context;
	if (fd < 0)
		return -errno;
	memcpy(pool.reserve + sizeof(pool.info), bytes, length);
	/* Credit alone would reach the generator at its next own reseed, minutes later. */
	if (ioctl(fd, RNDADDENTROPY, &pool) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0)
		r = -errno;
	explicit_bzero(&pool, sizeof(pool));
	fd_close(&fd);
	return r;
}

static int system_clock(void *context, uint64_t realtime_ns)
{
	struct timespec time = {
		.tv_sec = (time_t)(realtime_ns / 1000000000),
		.tv_nsec = (long)(realtime_ns % 1000000000),
	};

	(void)context;
	return clock_settime(CLOCK_REALTIME, &time) < 0 ? -errno : 0;
}

static int system_machine_id(void *context, const uint8_t id[AGENT_MACHINE_ID_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	char text[2 * AGENT_MACHINE_ID_BYTES + 1];
	int fd, r;

	(void)context;
	for (int i = 0; i < AGENT_MACHINE_ID_BYTES; i++) {
		text[2 * i] = digits[id[i] >> 4];
		text[2 * i + 1] = digits[id[i] & 15];
	}
	text[sizeof(text) - 1] = '\n';
	fd = open("/etc/machine-id", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0444);
	if (fd < 0)
		return -errno;
	r = io_write_all(fd, text, sizeof(text));
	fd_close(&fd);
	return r;
}

static int system_hostname(void *context, const char *name)
{
	(void)context;
	return sethostname(name, strlen(name)) < 0 ? -errno : 0;
}

static const char boot_id[] = "/proc/sys/kernel/random/boot_id", boot_id_file[] = "/run/tinderbox-boot-id";

/* The file that stands in the boot id's place, which is proc's own before the first time. An fd or -errno. */
static int open_boot_id(void)
{
	struct statfs status;
	int fd;

	if (statfs(boot_id, &status) < 0)
		return -errno;
	if (status.f_type != PROC_SUPER_MAGIC) {
		fd = open(boot_id, O_WRONLY | O_TRUNC | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	fd = open(boot_id_file, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (fd < 0 || mount(boot_id_file, boot_id, NULL, MS_BIND, NULL) < 0) {
		int error = -errno;

		fd_close(&fd);
		return error;
	}
	return fd;
}

/*
 * The kernel draws its boot id once, when it is first read, and keeps it: had that been before a snapshot,
 * all clones would have the same. So another file lies over it, and is written anew.
 */
static int system_boot_id(void *context)
{
	char text[BOOT_ID_LENGTH];
	int source = open("/proc/sys/kernel/random/uuid", O_RDONLY | O_CLOEXEC), fd = -1;
	int r = source < 0 ? -errno : 0;

	(void)context;
	if (r == 0 && io_read_full(source, text, sizeof(text)) != (ssize_t)sizeof(text))
		r = -EIO;
	if (r == 0)
		r = fd = open_boot_id();
	if (r >= 0)
		r = io_write_all(fd, text, sizeof(text));
	fd_close(&fd);
	fd_close(&source);
	/* A kernel without /proc/sys has none. */
	return r == -ENOENT ? 0 : r;
}

const struct identity_ops identity_ops_system = {
	.set_entropy = system_entropy,
	.set_clock = system_clock,
	.set_machine_id = system_machine_id,
	.set_hostname = system_hostname,
	.renew_boot_id = system_boot_id,
};

int identity_check(const struct agent_identity *identity)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
	size_t length = strnlen(identity->hostname, sizeof(identity->hostname));

	if (length == 0 || length == sizeof(identity->hostname))
		return -EPROTO;
	return strspn(identity->hostname, allowed) == length ? 0 : -EPROTO;
}

bool identity_is_same_machine(const struct agent_identity *identity)
{
	static const uint8_t none[AGENT_MACHINE_ID_BYTES];

	return memcmp(identity->machine_id, none, sizeof(none)) == 0;
}

int identity_apply(const struct agent_identity *identity, const struct identity_ops *ops, void *context,
	const char **step)
{
	int r;

	*step = "entropy";
	r = ops->set_entropy(context, identity->entropy, sizeof(identity->entropy));
	if (r < 0)
		return r;
	*step = "clock";
	r = ops->set_clock(context, identity->realtime_ns);
	if (r < 0 || identity_is_same_machine(identity))
		return r;
	*step = "machine id";
	r = ops->set_machine_id(context, identity->machine_id);
	if (r < 0)
		return r;
	*step = "host name";
	r = ops->set_hostname(context, identity->hostname);
	if (r < 0)
		return r;
	*step = "boot id";
	return ops->renew_boot_id(context);
}
