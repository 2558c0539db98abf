/* SPDX-License-Identifier: Apache-2.0 */
/* A session over a stream whose other end is the test. */
#include "tests/support/unit.h"

#include "host-ctl/run/session.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SESSION = 7, FULL = FRAME_READER_START - AGENT_FRAME_HEADER, BUFFER = 2 * 1024 * 1024 };

struct fixture {
	struct loop *loop;
	struct loop_source *source;
	struct session session;
	int fds[2]; /* the session's, the guest's */
	unsigned int frames, settled;
};

static bool has_room(void *context)
{
	(void)context;
	return true;
}

static void take_frame(void *context, const struct frame *frame)
{
	(void)frame;
	((struct fixture *)context)->frames++;
}

static void settled(void *context)
{
	((struct fixture *)context)->settled++;
}

static void ignore(void *context)
{
	(void)context;
}

static void exited(void *context, const struct agent_exit *exit)
{
	(void)context;
	(void)exit;
}

static void refused(void *context, const char *text, bool started)
{
	(void)context;
	(void)started;
	fail_msg("refused: %s", text);
}

static void broken(void *context, const char *fault)
{
	(void)context;
	fail_msg("broken: %s", fault);
}

static const struct session_events events = {.has_room = has_room,
	.frame = take_frame,
	.settled = settled,
	.drained = ignore,
	.exited = exited,
	.refused = refused,
	.broken = broken,
	.lost = ignore};

static void ready(void *context, uint32_t ready_events)
{
	session_ready(&((struct fixture *)context)->session, ready_events);
}

static void begin(struct fixture *f)
{
	const struct agent_started started = {.session = SESSION, .pid = 1};
	struct run_request request = {.payload_length = sizeof(struct agent_new)};
	int size = BUFFER;

	*f = (struct fixture){.loop = loop_create()};
	assert_non_null(f->loop);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, f->fds), 0);
	/* All of a burst is to be there before the first of it is read. */
	assert_int_equal(setsockopt(f->fds[1], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size), 0);
	request.payload = calloc(1, request.payload_length);
	assert_non_null(request.payload);
	assert_int_equal(session_init(&f->session, &request, SESSION, &events, f), 0);
	free(request.payload);
	f->source = loop_add_fd(f->loop, f->fds[0], EPOLLIN | EPOLLRDHUP, ready, f);
	assert_non_null(f->source);
	session_start(&f->session, f->fds[0], f->source);
	assert_int_equal(frame_write(f->fds[1], AGENT_STARTED, &started, sizeof started, NULL, 0), 0);
	assert_int_equal(loop_turn(f->loop, 1000), 0);
	assert_int_equal(f->frames, 1);
}

static void end(struct fixture *f)
{
	session_finish(&f->session);
	loop_remove(f->source);
	loop_destroy(f->loop);
	close(f->fds[0]);
	close(f->fds[1]);
}

static void write_output(const struct fixture *f, unsigned int number)
{
	static const uint8_t bytes[FULL - sizeof(struct agent_output)];
	const struct agent_output output = {.offset = (uint64_t)number * sizeof bytes};

	assert_int_equal(
		frame_write(f->fds[1], AGENT_STDOUT, &output, sizeof output, bytes, sizeof bytes), 0);
}

/* Each frame fills the buffer, and the last read of the turn empties the stream: no event tells of it. */
static void test_what_the_last_read_brings_is_handed_over(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	for (unsigned int i = 0; i < SESSION_READS_PER_TURN; i++)
		write_output(&f, i);
	assert_int_equal(loop_turn(f.loop, 1000), 0);
	assert_int_equal(f.frames, 1 + SESSION_READS_PER_TURN);
	assert_int_equal(f.settled, 2);
	end(&f);
}

/* What is beyond a turn's share comes in the next. */
static void test_a_turn_has_its_share_of_reads(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	for (unsigned int i = 0; i < SESSION_READS_PER_TURN + 3; i++)
		write_output(&f, i);
	assert_int_equal(loop_turn(f.loop, 1000), 0);
	assert_int_equal(f.frames, 1 + SESSION_READS_PER_TURN);
	assert_int_equal(loop_turn(f.loop, 1000), 0);
	assert_int_equal(f.frames, 1 + SESSION_READS_PER_TURN + 3);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_the_last_read_brings_is_handed_over),
		cmocka_unit_test(test_a_turn_has_its_share_of_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
