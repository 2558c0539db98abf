/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: peers that break the protocol, do not read or leave, and those that come to a path. */
#include "tests/unit/vmm_control_fixture.h"

#include "common/unix_socket.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { FDS_LIMIT = 128 };

/* What breaks the protocol is answered with -EPROTO, and the connection ends. */
static void a_broken_message_ends_the_connection(void **state)
{
	static const struct {
		struct vmm_message message;
		size_t length;
		uint32_t type, sequence;
	} cases[] = {
		{{.type = VMM_STATUS, .sequence = 3}, sizeof(struct vmm_message) - 1, VMM_STATUS, 3},
		{{.type = VMM_STATUS, .sequence = 3}, 1, VMM_STATUS, 0},
		{{.type = VMM_STATUS, .sequence = 0}, sizeof(struct vmm_message), VMM_STATUS, 0},
		{{.type = VMM_STATUS, .sequence = 3, .reserved = 1}, sizeof(struct vmm_message), VMM_STATUS,
			3},
		{{.type = 0, .sequence = 3}, sizeof(struct vmm_message), 0, 3},
		{{.type = VMM_RESTORE + 1, .sequence = 3}, sizeof(struct vmm_message), VMM_RESTORE + 1, 3},
		{{.type = VMM_KILL | VMM_REPLY, .sequence = 3}, sizeof(struct vmm_message), VMM_KILL, 3},
		{{.type = VMM_EVENT_STATE, .sequence = 3}, sizeof(struct vmm_message), VMM_EVENT_STATE, 3},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct machine *machine;

		assert_int_equal(set_up(state), 0);
		machine = *state;
		assert_int_equal(send(machine->peer, &cases[i].message, cases[i].length, 0), cases[i].length);
		turn(machine);
		expect(machine, cases[i].type | VMM_REPLY, cases[i].sequence, -EPROTO, NULL);
		expect_closed(machine);
		assert_int_equal(machine->kills, 0);
		assert_int_equal(control_offer_stream(machine->control, 1023, 1), -ECONNREFUSED);
		tear_down(state);
	}
}

static void a_longer_message_or_one_with_fds_ends_the_connection(void **state)
{
	struct {
		struct vmm_message message;
		char more;
	} longer = {.message = {.type = VMM_STATUS, .sequence = 4}};
	struct machine *machine;

	assert_int_equal(set_up(state), 0);
	machine = *state;
	assert_int_equal(
		send(machine->peer, &longer, sizeof(longer.message) + 1, 0), sizeof(longer.message) + 1);
	turn(machine);
	expect(machine, VMM_STATUS | VMM_REPLY, 4, -EPROTO, NULL);
	expect_closed(machine);
	tear_down(state);

	assert_int_equal(set_up(state), 0);
	machine = *state;
	assert_int_equal(
		io_send_fds(machine->peer, &longer.message, sizeof(longer.message), &machine->peer, 1), 0);
	turn(machine);
	expect(machine, VMM_STATUS | VMM_REPLY, 4, -EPROTO, NULL);
	expect_closed(machine);
	tear_down(state);
}

static void a_peer_that_does_not_read_is_dropped(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message = {.type = VMM_STATUS, .sequence = 1};
	unsigned sent = 0;

	log_init("test", LOG_LEVEL_ERROR);
	while (sent < 100000 &&
		send(machine->peer, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
		sent++;
		assert_int_equal(loop_turn(machine->loop, 0), 0);
	}
	assert_true(sent > 1 && sent < 100000);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(control_offer_stream(machine->control, 1023, 1), -ECONNREFUSED);
}

static void a_peer_that_leaves_is_told_of_once(void **state)
{
	struct machine *machine = *state;

	control_set_ops(machine->control, &standby_ops, machine);
	fd_close(&machine->peer);
	turn(machine);
	assert_int_equal(machine->lefts, 1);
}

static void what_waits_outlives_its_peer(void **state)
{
	struct machine *machine = *state;

	request(machine, VMM_CONNECT, 1, 10);
	request(machine, VMM_PAUSE, 2, 0);
	fd_close(&machine->peer);
	turn(machine);
	finish_waiter(machine, 0, 0);
	finish_waiter(machine, 1, 0);
	assert_int_equal(machine->waiting, 2);
}

/* Listening sockets. */
static int open_peer(const char *path)
{
	int fd = unix_connect(path, SOCK_SEQPACKET);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* the test waits */
	return fd;
}

static void a_path_serves_one_peer_after_another(void **state)
{
	struct machine machine = {.loop = loop_create(), .state = VMM_STATE_RUNNING, .peer = -1};
	char folder[] = "/tmp/control-XXXXXX", path[64];
	int first, second;
	struct stat status;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	assert_int_equal(control_create(path, machine.loop, &ops, &machine, &machine.control), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	first = open_peer(path);
	turn(&machine);
	second = open_peer(path);
	turn(&machine);
	machine.peer = first;
	expect_state(&machine, VMM_STATE_RUNNING);
	machine.peer = second;
	expect_nothing(&machine);
	request(&machine, VMM_STATUS, 6, 0);
	expect_nothing(&machine);
	fd_close(&first);
	turn(&machine);
	turn(&machine);
	expect_state(&machine, VMM_STATE_RUNNING);
	expect(&machine, VMM_STATUS | VMM_REPLY, 6, 0, NULL);
	fd_close(&second);
	control_destroy(machine.control);
	assert_int_equal(stat(path, &status), -1);
	loop_destroy(machine.loop);
	assert_int_equal(rmdir(folder), 0);
}

/* As a guest does that opens connections until there are no more fds. */
static void take_every_fd(int fds[FDS_LIMIT], unsigned *count)
{
	while (*count < FDS_LIMIT && (fds[*count] = dup(STDIN_FILENO)) >= 0)
		++*count;
	assert_int_equal(errno, EMFILE);
}

static void the_next_peer_has_an_fd_whatever_is_open(void **state)
{
	struct machine machine = {.loop = loop_create(), .state = VMM_STATE_RUNNING, .peer = -1};
	char folder[] = "/tmp/control-XXXXXX", path[64];
	struct rlimit before, limit;
	int fds[FDS_LIMIT], first;
	unsigned count = 0;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	assert_int_equal(control_create(path, machine.loop, &ops, &machine, &machine.control), 0);
	first = open_peer(path);
	turn(&machine);
	machine.peer = open_peer(path);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){.rlim_cur = FDS_LIMIT, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	fd_close(&first);
	take_every_fd(fds, &count);
	assert_int_equal(loop_turn(machine.loop, 0), 0);
	take_every_fd(fds, &count);
	turn(&machine);
	expect_state(&machine, VMM_STATE_RUNNING);
	while (count > 0)
		close(fds[--count]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	control_destroy(machine.control);
	fd_close(&machine.peer);
	loop_destroy(machine.loop);
	assert_int_equal(rmdir(folder), 0);
}

static void a_peer_that_came_before_us_is_greeted(void **state)
{
	struct machine machine = {.loop = loop_create(), .state = VMM_STATE_STARTING};
	char folder[] = "/tmp/control-XXXXXX", path[64], name[16];
	int listener;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	listener = unix_listen(path, SOCK_SEQPACKET, 0600, 4);
	assert_true(listener >= 0);
	machine.peer = open_peer(path);
	snprintf(name, sizeof(name), "fd:%d", listener);
	assert_int_equal(control_create(name, machine.loop, &ops, &machine, &machine.control), 0);
	expect_state(&machine, VMM_STATE_STARTING);
	control_destroy(machine.control);
	expect_closed(&machine);
	assert_int_equal(fcntl(listener, F_GETFD), -1);
	assert_int_equal(access(path, F_OK), 0); /* the parent's, not ours to unlink */
	fd_close(&machine.peer);
	loop_destroy(machine.loop);
	unlink(path);
	rmdir(folder);
}

static void other_files_are_refused(void **state)
{
	struct machine machine = {.loop = loop_create(), .peer = -1};
	char name[16];
	int pair[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)state;
	assert_int_equal(control_create("fd:x", machine.loop, &ops, &machine, &machine.control), -EINVAL);
	assert_int_equal(control_create("fd:999999", machine.loop, &ops, &machine, &machine.control), -EBADF);
	snprintf(name, sizeof(name), "fd:%d", null);
	assert_int_equal(control_create(name, machine.loop, &ops, &machine, &machine.control), -ENOTSOCK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	snprintf(name, sizeof(name), "fd:%d", pair[0]);
	assert_int_equal(
		control_create(name, machine.loop, &ops, &machine, &machine.control), -ESOCKTNOSUPPORT);
	assert_int_equal(fcntl(pair[0], F_GETFD), -1); /* taken over, on failure too */
	assert_int_equal(
		control_create("/no/such/folder/s", machine.loop, &ops, &machine, &machine.control), -ENOENT);
	assert_null(machine.control);
	fd_close(&pair[1]);
	loop_destroy(machine.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_peer_that_leaves_is_told_of_once, set_up, tear_down),
		cmocka_unit_test(a_broken_message_ends_the_connection),
		cmocka_unit_test(a_longer_message_or_one_with_fds_ends_the_connection),
		cmocka_unit_test_setup_teardown(a_peer_that_does_not_read_is_dropped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_waits_outlives_its_peer, set_up, tear_down),
		cmocka_unit_test(a_path_serves_one_peer_after_another),
		cmocka_unit_test(the_next_peer_has_an_fd_whatever_is_open),
		cmocka_unit_test(a_peer_that_came_before_us_is_greeted),
		cmocka_unit_test(other_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
