/* SPDX-License-Identifier: Apache-2.0 */
/* A VM that an owner keeps: several streams at once, pause and resume, and each way in which it ends. */
#include "tests/unit/hostctl_vm_fixture.h"

#include "common/io.h"

struct request {
	struct vm_request base;
	int replies, status, fd;
};

/* An owned VM and what its owner was told. */
struct owned {
	struct place place;
	struct vm *vm; /* NULL: not warm yet, or freed */
	int stream;
	int ended, gone;
	char cause[VM_CAUSE_MAX];
};

static void on_warm(void *context, struct vm *vm);

static void on_vm_ended(void *context, struct vm *vm)
{
	(void)context;
	(void)vm;
}

static const struct vm_events vm_events = {.warm = on_warm, .ended = on_vm_ended, .gone = on_vm_ended};

static void on_ended(void *context)
{
	struct owned *owned = context;

	owned->ended++;
	snprintf(owned->cause, sizeof owned->cause, "%s", vm_cause(owned->vm));
}

static void on_gone(void *context)
{
	struct owned *owned = context;

	owned->gone++;
	owned->vm = NULL;
}

static const struct vm_owner_events owner_events = {.ended = on_ended, .gone = on_gone};

static void on_warm(void *context, struct vm *vm)
{
	struct owned *owned = context;

	owned->vm = vm;
	vm_own(vm, &owner_events, owned, &owned->stream);
}

static void on_replied(struct vm_request *base, int status, int fd)
{
	struct request *request = (struct request *)base;

	request->replies++;
	request->status = status;
	request->fd = fd;
}

static const struct request fresh = {.base.replied = on_replied, .fd = -1};

static void turn(struct owned *owned)
{
	assert_int_equal(loop_turn(owned->place.config.loop, 10), 0);
}

static void own(struct owned *owned, const char *script)
{
	struct error error;
	struct vm *vm;

	*owned = (struct owned){.stream = -1};
	place_init(&owned->place);
	/* The fake counts on a sample command before what is the owner's. */
	owned->place.source.rehearsals = 1;
	write_text(owned->place.daemon.folder, "kernel", script);
	assert_int_equal(
		vm_start(&owned->place.config, &owned->place.order, &vm_events, owned, &vm, &error), 0);
	for (int waited = 0; !owned->vm && waited < WAIT_MS; waited += 10)
		turn(owned);
	assert_non_null(owned->vm);
	assert_true(owned->stream >= 0);
	assert_string_equal(vm_state_name(owned->vm), "owned");
}

static void await_reply(struct owned *owned, const struct request *request, int status)
{
	for (int waited = 0; !request->replies && waited < WAIT_MS; waited += 10)
		turn(owned);
	assert_int_equal(request->replies, 1);
	assert_int_equal(request->status, status);
}

/* Waits for its end, and looks that nothing is left. */
static void expect_end(struct owned *owned, const char *cause)
{
	for (int waited = 0; !owned->gone && waited < WAIT_MS; waited += 10)
		turn(owned);
	assert_int_equal(owned->ended, 1);
	assert_int_equal(owned->gone, 1);
	assert_string_equal(owned->cause, cause);
	fd_close(&owned->stream);
	place_check(&owned->place);
	place_finish(&owned->place);
}

static void send_new(int fd, uint64_t session)
{
	static const char strings[] = "echo\0hello\0"; /* argv, cwd, user */
	const struct agent_new request = {
		.session = session, .argc = 2, .strings_length = sizeof strings + 1};
	char payload[sizeof strings + 1] = {0};

	memcpy(payload, strings, sizeof strings);
	assert_int_equal(frame_write(fd, AGENT_NEW, &request, sizeof request, payload, sizeof payload), 0);
}

static void expect_echo_on(int fd, uint64_t session)
{
	struct agent_started started;
	struct frame_reader reader;
	struct frame frame;
	const int types[] = {AGENT_STARTED, AGENT_STDOUT, AGENT_EXIT};

	assert_int_equal(frame_reader_init(&reader, AGENT_FRAME_MAX), 0);
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		int status;

		while ((status = frame_reader_next(&reader, &frame)) == 0) {
			assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
			assert_true(frame_reader_fill(&reader, fd) > 0);
		}
		assert_int_equal(status, 1);
		assert_int_equal(frame.type, types[i]);
		if (i == 0) {
			memcpy(&started, frame.payload, sizeof started);
			assert_true(started.session == session);
		}
	}
	frame_reader_finish(&reader);
}

static void test_several_streams(void **state)
{
	enum { STREAMS = 5 };
	struct request requests[STREAMS];
	struct owned owned;

	(void)state;
	own(&owned, "boot");
	for (int i = 0; i < STREAMS; i++) {
		requests[i] = fresh;
		assert_int_equal(vm_ask_stream(owned.vm, &requests[i].base), 0);
	}
	for (int i = 0; i < STREAMS; i++) {
		await_reply(&owned, &requests[i], 0);
		assert_true(requests[i].fd >= 0);
	}
	/* In another order than they were asked for, and the first one all the while. */
	for (int i = STREAMS - 1; i >= 0; i--)
		send_new(requests[i].fd, 100 + (uint64_t)i);
	for (int i = 0; i < STREAMS; i++) {
		expect_echo_on(requests[i].fd, 100 + (uint64_t)i);
		fd_close(&requests[i].fd);
	}
	send_new(owned.stream, 7);
	expect_echo_on(owned.stream, 7);
	vm_end(owned.vm, "the test is over");
	expect_end(&owned, "the test is over");
}

static void test_pause_and_resume(void **state)
{
	struct request pause = fresh, resume = fresh;
	struct owned owned;

	(void)state;
	own(&owned, "boot");
	assert_int_equal(vm_ask_pause(owned.vm, &pause.base), 0);
	await_reply(&owned, &pause, 0);
	assert_int_equal(vm_ask_resume(owned.vm, &resume.base), 0);
	await_reply(&owned, &resume, 0);
	assert_int_equal(resume.fd, -1);
	vm_end(owned.vm, "the test is over");
	assert_int_equal(vm_ask_pause(owned.vm, &pause.base), -ENOTCONN);
	expect_end(&owned, "the test is over");
}

static void test_refusals(void **state)
{
	struct request pause = fresh, stream = fresh, resume = fresh;
	struct owned owned;

	(void)state;
	own(&owned, "boot pause-refused resume-refused later-refused");
	assert_int_equal(vm_ask_pause(owned.vm, &pause.base), 0);
	assert_int_equal(vm_ask_stream(owned.vm, &stream.base), 0);
	assert_int_equal(vm_ask_resume(owned.vm, &resume.base), 0);
	await_reply(&owned, &pause, -EALREADY);
	await_reply(&owned, &stream, -ECONNREFUSED);
	await_reply(&owned, &resume, -EIO);
	assert_string_equal(vm_state_name(owned.vm), "owned");
	vm_end(owned.vm, "the test is over");
	expect_end(&owned, "the test is over");
}

/* What is not answered is bounded, and answers to what was forgotten reach nobody. */
static void test_a_vmm_that_does_not_answer(void **state)
{
	struct request requests[VM_ASKED_MAX + 1];
	struct owned owned;

	(void)state;
	own(&owned, "boot later-nothing");
	for (int i = 0; i <= VM_ASKED_MAX; i++) {
		requests[i] = fresh;
		assert_int_equal(vm_ask_stream(owned.vm, &requests[i].base), i < VM_ASKED_MAX ? 0 : -EAGAIN);
	}
	for (int i = 0; i < VM_ASKED_MAX; i++)
		vm_forget(owned.vm, &requests[i].base);
	/* Their places stay taken: they may still be answered. */
	assert_int_equal(vm_ask_pause(owned.vm, &requests[0].base), -EAGAIN);
	vm_end(owned.vm, "it does not answer");
	expect_end(&owned, "it does not answer");
	for (int i = 0; i <= VM_ASKED_MAX; i++)
		assert_int_equal(requests[i].replies, 0);
}

static void test_a_forgotten_stream_is_closed(void **state)
{
	struct request forgotten = fresh, next = fresh;
	struct owned owned;

	(void)state;
	own(&owned, "boot");
	assert_int_equal(vm_ask_stream(owned.vm, &forgotten.base), 0);
	vm_forget(owned.vm, &forgotten.base);
	assert_int_equal(vm_ask_pause(owned.vm, &next.base), 0);
	await_reply(&owned, &next, 0);
	assert_int_equal(forgotten.replies, 0);
	vm_end(owned.vm, "the test is over");
	expect_end(&owned, "the test is over");
}

static void test_answers_that_were_not_asked_for(void **state)
{
	struct request request = fresh;
	struct owned owned;

	(void)state;
	own(&owned, "boot later-twice");
	assert_int_equal(vm_ask_stream(owned.vm, &request.base), 0);
	await_reply(&owned, &request, 0);
	fd_close(&request.fd);
	expect_end(&owned, "the vmm replied to what was not asked");
}

static void test_it_dies_while_paused(void **state)
{
	struct request pause = fresh, resume = fresh;
	struct owned owned;

	(void)state;
	own(&owned, "boot pause-panic");
	assert_int_equal(vm_ask_pause(owned.vm, &pause.base), 0);
	await_reply(&owned, &pause, 0);
	if (owned.vm)
		vm_ask_resume(owned.vm, &resume.base);
	expect_end(&owned, "the guest's kernel panicked: while paused");
	assert_int_equal(resume.replies, 0);
}

static void test_a_stream_that_kills_it(void **state)
{
	static const char strings[] = "die\0005\0"; /* argv, cwd, user */
	char payload[sizeof strings + 1] = {0};
	const struct agent_new request = {.session = 9, .argc = 2, .strings_length = sizeof payload};
	struct owned owned;

	(void)state;
	own(&owned, "boot");
	memcpy(payload, strings, sizeof strings);
	assert_int_equal(
		frame_write(owned.stream, AGENT_NEW, &request, sizeof request, payload, sizeof payload), 0);
	expect_end(&owned, "the guest's processor gave up");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_several_streams),
		cmocka_unit_test(test_pause_and_resume),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_a_vmm_that_does_not_answer),
		cmocka_unit_test(test_a_forgotten_stream_is_closed),
		cmocka_unit_test(test_answers_that_were_not_asked_for),
		cmocka_unit_test(test_it_dies_while_paused),
		cmocka_unit_test(test_a_stream_that_kills_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
