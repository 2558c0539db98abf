/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's own stream to the host: opened again when it ends, and what that means for identity and
 * sessions. */
#include "guest-init/standstill.h"
#include "guest_fixture.h"

enum { A_WHILE_MS = 300, TRIES_MOST = 7 }; /* tries of a back-off from 10 ms that doubles, in A_WHILE_MS */

struct host {
	int listener;
	struct client link;
};

/* Bound, and listening when it is to be found. */
static void host_open(struct host *host)
{
	struct sockaddr_in *address = &test_host.address;
	socklen_t length = sizeof(*address);

	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	host->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(host->listener, (struct sockaddr *)address, length), 0);
	assert_int_equal(getsockname(host->listener, (struct sockaddr *)address, &length), 0);
	assert_int_equal(listen(host->listener, 8), 0);
	test_host.tries = 0;
}

static void host_close(struct host *host)
{
	client_close(&host->link);
	fd_close(&host->listener);
	test_host.address.sin_port = 0;
}

/* Takes the next connection and reads its HELLO. */
static void host_accept(struct fixture *f, struct host *host)
{
	uint64_t end = test_now_ms() + WAIT_MS;
	struct frame frame;

	do {
		assert_true(test_now_ms() < end);
		loop_turn(f->loop, TURN_MS);
		host->link.fd = accept4(host->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	} while (host->link.fd < 0);
	assert_int_equal(frame_reader_init(&host->link.reader, AGENT_FRAME_MAX), 0);
	client_expect(f, &host->link, AGENT_HELLO, &frame);
}

static int host_try_identity(struct fixture *f, struct host *host, uint8_t machine)
{
	struct agent_identity identity = {.realtime_ns = 1, .machine_id = {machine}, .hostname = "a"};
	struct agent_status status;
	struct frame frame;

	client_send(f, &host->link, AGENT_IDENTITY, &identity, sizeof(identity));
	client_expect(f, &host->link, AGENT_IDENTITY_DONE, &frame);
	memcpy(&status, frame.payload, sizeof(status));
	return status.status;
}

static void host_identify(struct fixture *f, struct host *host, uint8_t machine)
{
	assert_int_equal(host_try_identity(f, host, machine), 0);
}

/* What a clone sees of its restore: every stream has ended. */
static void host_reset(struct host *host)
{
	const struct linger linger = {.l_onoff = 1};

	setsockopt(host->link.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	client_close(&host->link);
}

static void expect_new_refused(struct fixture *f, uint64_t id, int error, const char *text)
{
	struct command command = {.argv = ARGV("/bin/true"), .id = id};
	struct client client;

	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect_error(f, &client, error, text);
	client_close(&client);
}

static void a_reset_link_is_opened_again_and_needs_identity(void **state)
{
	struct fixture *f = *state;
	struct host host;

	host_open(&host);
	assert_int_equal(agent_open_link(f->agent), 0);
	host_accept(f, &host);
	host_identify(f, &host, 1);
	expect_runs(f, 1);
	for (int i = 0; i < 3; i++) {
		f->identity = (struct fake_identity){0};
		host_reset(&host);
		host_accept(f, &host);
		expect_new_refused(f, 2, EPERM, "NEW: this guest has no identity yet (IDENTITY comes first)");
		host_identify(f, &host, (uint8_t)(2 + i));
		/* All of it is done again, before the answer. */
		assert_int_equal(f->identity.calls, 5);
		assert_memory_equal(f->identity.order, "ecmhb", 5);
		expect_runs(f, 1);
	}
	assert_int_equal(test_host.tries, 4);
	/* Each may come from another port than the one before. */
	assert_int_equal(test_host.turn, 3);
	host_close(&host);
}

static void a_host_that_never_was_is_not_sought(void **state)
{
	struct fixture *f = *state;
	struct host host;

	host_open(&host);
	fd_close(&host.listener);
	assert_int_equal(agent_open_link(f->agent), 0);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(test_host.tries, 1);
	test_host.address.sin_port = 0;
	assert_int_equal(agent_open_link(f->agent), -ENODEV);
}

static void a_host_that_went_is_sought_ever_less_often(void **state)
{
	struct fixture *f = *state;
	struct host host;

	host_open(&host);
	assert_int_equal(agent_open_link(f->agent), 0);
	host_accept(f, &host);
	host_identify(f, &host, 1);
	fd_close(&host.listener);
	host_reset(&host);
	turn_for(f, A_WHILE_MS);
	assert_in_range(test_host.tries, 3, 1 + TRIES_MOST);
	/* A host that comes back is found; it is on another port here. */
	host_open(&host);
	host_accept(f, &host);
	host_identify(f, &host, 1);
	expect_runs(f, 1);
	host_close(&host);
}

static void a_host_that_says_nothing_is_not_flooded(void **state)
{
	struct fixture *f = *state;
	uint64_t end;
	struct host host;
	int fd;

	host_open(&host);
	assert_int_equal(agent_open_link(f->agent), 0);
	end = test_now_ms() + A_WHILE_MS;
	while (test_now_ms() < end) {
		loop_turn(f->loop, 5);
		fd = accept4(host.listener, NULL, NULL, SOCK_CLOEXEC);
		fd_close(&fd);
	}
	assert_in_range(test_host.tries, 3, 1 + TRIES_MOST);
	fd_close(&host.listener);
	test_host.address.sin_port = 0;
}

static void another_machine_forgets_the_sessions(void **state)
{
	struct command sleeper = {.argv = ARGV("/bin/sleep", "1000"), .id = 8};
	struct fixture *f = *state;
	struct client reader;
	struct frame frame;
	struct host host;

	host_open(&host);
	assert_int_equal(agent_open_link(f->agent), 0);
	host_accept(f, &host);
	host_identify(f, &host, 1);
	expect_runs(f, 7);
	/* The same machine, as by a host that came back: what ended can still be read, and its id is held. */
	host_reset(&host);
	host_accept(f, &host);
	host_identify(f, &host, 1);
	expect_new_refused(f, 7, EEXIST, "NEW: a session with this id is held");
	client_open(f, &reader);
	client_new(f, &reader, &sleeper);
	client_expect(f, &reader, AGENT_STARTED, &frame);
	host_reset(&host);
	host_accept(f, &host);
	host_identify(f, &host, 2);
	client_expect_end(f, &reader);
	client_close(&reader);
	expect_runs(f, 7);
	host_close(&host);
}

/* All groups of commands stand. */
static bool stands(const struct fixture *f)
{
	char path[300], value = '?';
	int fd;

	snprintf(path, sizeof(path), "%s/tinderbox/cgroup.freeze", f->cgroup_root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, &value, 1), 1);
	close(fd);
	return value == '1';
}

static void host_hold(struct fixture *f, struct host *host)
{
	struct agent_status status;
	struct frame frame;

	client_send(f, &host->link, AGENT_HOLD, NULL, 0);
	client_expect(f, &host->link, AGENT_HELD, &frame);
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.status, 0);
}

/* A host, and a command that runs. */
static void start_to_hold(struct fixture *f, struct host *host, struct client *reader)
{
	struct command command = {.argv = ARGV("/bin/sleep", "1000"), .id = 7};
	struct frame frame;

	if (!f->cgroup_root[0])
		skip();
	host_open(host);
	assert_int_equal(agent_open_link(f->agent), 0);
	host_accept(f, host);
	host_identify(f, host, 1);
	client_open(f, reader);
	client_new(f, reader, &command);
	client_expect(f, reader, AGENT_STARTED, &frame);
}

static void a_clone_of_one_that_was_held_stands_until_its_identity(void **state)
{
	struct fixture *f = *state;
	struct client reader;
	struct host host;

	start_to_hold(f, &host, &reader);
	host_hold(f, &host);
	assert_false(stands(f)); /* nor does the guest that goes on */
	host_reset(&host);
	host_accept(f, &host);
	assert_true(stands(f));
	expect_new_refused(f, 8, EPERM, "NEW: this guest has no identity yet (IDENTITY comes first)");
	/* One that fails is none. */
	f->identity = (struct fake_identity){.fail_at = 1};
	assert_int_equal(host_try_identity(f, &host, 2), EROFS);
	assert_true(stands(f));
	f->identity = (struct fake_identity){0};
	host_identify(f, &host, 2);
	assert_false(stands(f));
	expect_runs(f, 8);
	/* It was about that clone: a host that leaves and comes back is no news. */
	host_reset(&host);
	host_accept(f, &host);
	assert_false(stands(f));
	client_close(&reader);
	host_close(&host);
}

static void what_stands_can_be_killed(void **state)
{
	struct command command = {.argv = ARGV("/bin/sleep", "1000"), .id = 8, .deadline_ms = 300};
	struct fixture *f = *state;
	struct agent_attach attach = {.session = 8};
	struct outcome outcome = {0};
	struct client reader, other;
	struct frame frame;
	struct host host;

	start_to_hold(f, &host, &reader);
	client_open(f, &other);
	client_new(f, &other, &command);
	client_expect(f, &other, AGENT_STARTED, &frame);
	client_close(&other);
	host_hold(f, &host);
	host_reset(&host);
	host_accept(f, &host);
	client_open(f, &other);
	client_send(f, &other, AGENT_ATTACH, &attach, sizeof(attach));
	client_finish(f, &other, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_TIMED_OUT);
	assert_true(stands(f));
	client_close(&reader);
	host_close(&host);
}

static void nothing_stands_for_long(void **state)
{
	struct fixture *f = *state;
	struct client reader;
	struct host host;

	start_to_hold(f, &host, &reader);
	host_hold(f, &host);
	host_reset(&host);
	host_accept(f, &host);
	assert_true(stands(f));
	turn_for(f, STANDSTILL_MAX_MS + A_WHILE_MS);
	assert_false(stands(f));
	expect_new_refused(f, 8, EPERM, "NEW: this guest has no identity yet (IDENTITY comes first)");
	client_close(&reader);
	host_close(&host);
}

/* Its host has left it, which is no reason to stand. */
static void one_that_was_held_long_ago_or_never_does_not_stand(void **state)
{
	struct fixture *f = *state;
	struct client reader;
	struct host host;

	start_to_hold(f, &host, &reader);
	host_reset(&host);
	host_accept(f, &host);
	assert_false(stands(f));
	host_identify(f, &host, 0);
	host_hold(f, &host);
	turn_for(f, STANDSTILL_READY_MS + A_WHILE_MS);
	host_reset(&host);
	host_accept(f, &host);
	assert_false(stands(f));
	client_close(&reader);
	host_close(&host);
}

/* A host that takes its VMs back does not know their ids. */
static void the_same_machine_keeps_what_it_has(void **state)
{
	struct fixture *f = *state;
	struct agent_identity identity = {.realtime_ns = 1, .hostname = "a"};
	struct host host;

	host_open(&host);
	assert_int_equal(agent_open_link(f->agent), 0);
	host_accept(f, &host);
	client_send(f, &host.link, AGENT_IDENTITY, &identity, sizeof(identity));
	client_expect_error(f, &host.link, EPROTO, "IDENTITY: this guest had no machine id before");
	client_close(&host.link);
	host_accept(f, &host);
	expect_new_refused(f, 7, EPERM, "NEW: this guest has no identity yet (IDENTITY comes first)");
	host_identify(f, &host, 1);
	expect_runs(f, 7);
	f->identity = (struct fake_identity){0};
	host_reset(&host);
	host_accept(f, &host);
	host_identify(f, &host, 0);
	assert_int_equal(f->identity.calls, 2);
	assert_memory_equal(f->identity.order, "ec", 2);
	expect_new_refused(f, 7, EEXIST, "NEW: a session with this id is held");
	expect_runs(f, 8);
	/* It is still that machine. */
	host_identify(f, &host, 1);
	expect_new_refused(f, 7, EEXIST, "NEW: a session with this id is held");
	host_close(&host);
}

/* It need not be waited for until the next try, which may be seconds away. */
static void a_host_that_comes_is_sought_at_once(void **state)
{
	struct fixture *f = *state;
	struct host host;
	struct client client;
	uint64_t began;

	host_open(&host);
	assert_int_equal(agent_open_link(f->agent), 0);
	host_accept(f, &host);
	host_identify(f, &host, 1);
	fd_close(&host.listener);
	host_reset(&host);
	/* After that at 310 ms comes one at 630. */
	turn_for(f, A_WHILE_MS + 50);
	host_open(&host);
	client_open(f, &client);
	began = test_now_ms();
	host_accept(f, &host);
	assert_in_range(test_now_ms() - began, 0, A_WHILE_MS / 2);
	assert_int_equal(test_host.tries, 1);
	host_identify(f, &host, 0);
	expect_runs(f, 9);
	client_close(&client);
	host_close(&host);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_reset_link_is_opened_again_and_needs_identity),
		CASE(a_host_that_never_was_is_not_sought),
		CASE(a_host_that_went_is_sought_ever_less_often),
		CASE(a_host_that_says_nothing_is_not_flooded),
		CASE(another_machine_forgets_the_sessions),
		CASE(a_clone_of_one_that_was_held_stands_until_its_identity),
		CASE(what_stands_can_be_killed),
		CASE(nothing_stands_for_long),
		CASE(one_that_was_held_long_ago_or_never_does_not_stand),
		CASE(the_same_machine_keeps_what_it_has),
		CASE(a_host_that_comes_is_sought_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
