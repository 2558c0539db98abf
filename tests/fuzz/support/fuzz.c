/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/support/fuzz.h"
#include "common/log.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* The linker's names (--wrap). */
int __real_epoll_wait(int epoll, struct epoll_event *events, int room, int timeout_ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int room, int timeout_ms);

static struct {
	bool begun;
	struct pollfd before[FUZZ_FDS_MAX], after[FUZZ_FDS_MAX];
	int last_events; /* of epoll_wait */
} state;

_Noreturn void fuzz_fail(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

/* One call tells which numbers are open: poll(2) says POLLNVAL of the others. */
static void list_fds(struct pollfd *fds)
{
	for (int i = 0; i < FUZZ_FDS_MAX; i++)
		fds[i] = (struct pollfd){.fd = i};
	FUZZ_ASSERT(poll(fds, FUZZ_FDS_MAX, 0) >= 0);
}

void fuzz_begin(void)
{
	if (!state.begun)
		log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
	state.begun = true;
	list_fds(state.before);
}

void fuzz_end(void)
{
	list_fds(state.after);
	for (int i = 0; i < FUZZ_FDS_MAX; i++) {
		bool before = !(state.before[i].revents & POLLNVAL),
		     after = !(state.after[i].revents & POLLNVAL);

		if (after != before)
			fprintf(stderr, "fd %d was %s\n", i, after ? "left open" : "closed");
		FUZZ_ASSERT(after == before);
	}
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int room, int timeout_ms)
{
	state.last_events = __real_epoll_wait(epoll, events, room, timeout_ms);
	return state.last_events;
}

void fuzz_turn(struct loop *loop)
{
	FUZZ_ASSERT(loop_turn(loop, 0) == 0);
}

void fuzz_settle(struct loop *loop)
{
	for (unsigned turn = 0; turn < FUZZ_TURNS_MAX; turn++) {
		fuzz_turn(loop);
		if (state.last_events == 0)
			return;
	}
	FUZZ_ASSERT(!"the loop comes to rest");
}

size_t fuzz_take(struct fuzz_input *input, void *to, size_t length)
{
	size_t have = fuzz_left(input) < length ? fuzz_left(input) : length;

	memset(to, 0, length);
	if (have)
		memcpy(to, input->at, have);
	input->at += have;
	return have;
}

const uint8_t *fuzz_bytes(struct fuzz_input *input, size_t *length)
{
	const uint8_t *at = input->at;

	if (*length > fuzz_left(input))
		*length = fuzz_left(input);
	input->at += *length;
	return at;
}

uint8_t fuzz_u8(struct fuzz_input *input)
{
	return input->at < input->end ? *input->at++ : 0;
}

uint16_t fuzz_u16(struct fuzz_input *input)
{
	uint16_t value;

	fuzz_take(input, &value, sizeof(value));
	return value;
}

uint32_t fuzz_u32(struct fuzz_input *input)
{
	uint32_t value;

	fuzz_take(input, &value, sizeof(value));
	return value;
}

uint64_t fuzz_u64(struct fuzz_input *input)
{
	uint64_t value;

	fuzz_take(input, &value, sizeof(value));
	return value;
}

uint32_t fuzz_below(struct fuzz_input *input, uint32_t limit)
{
	return (limit <= 256 ? fuzz_u8(input) : fuzz_u16(input)) % limit;
}

bool fuzz_one_in(struct fuzz_input *input, unsigned n)
{
	return input->at < input->end && fuzz_u8(input) % n == n - 1;
}
