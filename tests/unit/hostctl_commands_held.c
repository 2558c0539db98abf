/* SPDX-License-Identifier: Apache-2.0 */
/* A command whose reader is told something is held: nobody may remove it until its session has looked again.
 */
#include "tests/support/unit.h"

#include "host-ctl/sandbox/command_private.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SESSION = 7, TURN_MS = 1000 };

/* A command of a sandbox that has no VM, and who reads it. */
struct fixture {
	struct metrics metrics;
	struct sandboxes all;
	struct sandbox sandbox;
	struct command *command;
	struct command_reader reader;
	int guest; /* the other end of its stream */
	int frames, drained;
};

static void see_frame(void *context, const struct frame *frame)
{
	struct fixture *f = context;

	assert_int_equal(frame->type, AGENT_STARTED);
	assert_int_equal(f->command->holders, 1);
	f->frames++;
}

static void see_drained(void *context)
{
	struct fixture *f = context;

	assert_int_equal(f->command->holders, 1);
	f->drained++;
}

static void ignore(void *context)
{
	(void)context;
}

static const struct command_reader_events reader_events = {.frame = see_frame,
	.more = ignore,
	.settled = ignore,
	.drained = see_drained,
	.ended = ignore,
	.replaced = ignore};

static void begin(struct fixture *f)
{
	struct run_request *request;

	*f = (struct fixture){.all = {.config = {.loop = loop_create(), .metrics = &f->metrics}},
		.sandbox = {.all = &f->all, .state = SANDBOX_READY, .stream = -1},
		.reader = {.events = &reader_events, .context = f}};
	assert_non_null(f->all.config.loop);
	f->command = command_make(&f->sandbox);
	assert_non_null(f->command);
	commands_add(f->command);
	request = &f->command->request;
	request->payload_length = sizeof(struct agent_new);
	request->payload = calloc(1, request->payload_length);
	assert_non_null(request->payload);
	f->command->session_id = SESSION;
	assert_int_equal(command_begin(f->command), 0);
	command_attach(f->command, &f->reader);
}

static void end(struct fixture *f)
{
	command_destroy(f->command);
	loop_destroy(f->all.config.loop);
	close(f->guest);
}

static void test_a_command_is_held_while_its_reader_is_told(void **state)
{
	const struct agent_started started = {.session = SESSION, .pid = 1};
	struct fixture f;
	int fds[2];

	(void)state;
	begin(&f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	f.guest = fds[1];
	command_stream_replied(f.command, 0, fds[0]);
	assert_int_equal(f.drained, 1);
	assert_int_equal(f.command->holders, 0);
	assert_int_equal(frame_write(f.guest, AGENT_STARTED, &started, sizeof started, NULL, 0), 0);
	assert_int_equal(loop_turn(f.all.config.loop, TURN_MS), 0);
	assert_int_equal(f.frames, 1);
	assert_int_equal(f.command->holders, 0);
	assert_int_equal(f.sandbox.users, 1);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_command_is_held_while_its_reader_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
