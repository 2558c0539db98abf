/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/identity.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

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

const struct identity_ops identity_ops_system = {
	.set_entropy = system_entropy,
	.set_clock = system_clock,
	.set_machine_id = system_machine_id,
	.set_hostname = system_hostname,
};

int identity_check(const struct agent_identity *identity)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
	size_t length = strnlen(identity->hostname, sizeof(identity->hostname));

	if (length == 0 || length == sizeof(identity->hostname))
		return -EPROTO;
	return strspn(identity->hostname, allowed) == length ? 0 : -EPROTO;
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
	if (r < 0)
		return r;
	*step = "machine id";
	r = ops->set_machine_id(context, identity->machine_id);
	if (r < 0)
		return r;
	*step = "host name";
	return ops->set_hostname(context, identity->hostname);
}
