/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: requests that bring files, in which order, how many, and that none stays open. */
#include "tests/unit/vmm_control_fixture.h"

#include <fcntl.h>

/* A request that brings the write ends of that many pipes; the read end of the first is returned. */
static int request_with_pipes(struct machine *machine, uint32_t type, uint64_t arg0, unsigned count)
{
	struct vmm_message message = {.type = type, .sequence = 1, .arg0 = arg0};
	int ends[3][2], fds[3] = {-1, -1, -1};

	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(pipe2(ends[i], O_CLOEXEC | O_NONBLOCK), 0);
		fds[i] = ends[i][1];
	}
	assert_int_equal(io_send_fds(machine->peer, &message, sizeof(message), fds, count), 0);
	for (unsigned i = 0; i < count; i++) {
		close(ends[i][1]);
		if (i > 0)
			close(ends[i][0]);
	}
	turn(machine);
	return ends[0][0];
}

/* The other end of a pipe: is it open anywhere still? */
static void expect_end(int fd, bool closed)
{
	char byte;

	assert_int_equal(read(fd, &byte, 1), closed ? 0 : -1);
}

static void a_link_is_set(void **state)
{
	struct machine *machine = *state;

	request(machine, VMM_NET, 1, VMM_LINK_UP);
	expect(machine, VMM_NET | VMM_REPLY, 1, 0, NULL);
	assert_true(machine->up);
	assert_int_equal(machine->tap, -1);
	request(machine, VMM_NET, 2, VMM_LINK_DOWN);
	expect(machine, VMM_NET | VMM_REPLY, 2, 0, NULL);
	assert_false(machine->up);
	machine->answer = -ENOTCONN;
	request(machine, VMM_NET, 3, VMM_LINK_UP);
	expect(machine, VMM_NET | VMM_REPLY, 3, -ENOTCONN, NULL);
	request(machine, VMM_NET, 4, 2);
	expect(machine, VMM_NET | VMM_REPLY, 4, -EINVAL, NULL);
	assert_int_equal(machine->nets, 3);
	expect_nothing(machine);
}

static void a_backend_comes_with_the_link(void **state)
{
	struct machine *machine = *state;
	int other = request_with_pipes(machine, VMM_NET, VMM_LINK_UP, 1);

	expect(machine, VMM_NET | VMM_REPLY, 1, 0, NULL);
	assert_true(machine->tap >= 0);
	assert_int_equal(fcntl(machine->tap, F_GETFD), FD_CLOEXEC);
	expect_end(other, false);
	fd_close(&machine->tap);
	expect_end(other, true);
	close(other);
	/* one for a link that is none is closed */
	other = request_with_pipes(machine, VMM_NET, 2, 1);
	expect(machine, VMM_NET | VMM_REPLY, 1, -EINVAL, NULL);
	expect_end(other, true);
	close(other);
}

static void two_backends_break_the_protocol(void **state)
{
	struct machine *machine = *state;
	int other = request_with_pipes(machine, VMM_NET, VMM_LINK_UP, 2);

	expect(machine, VMM_NET | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	expect_end(other, true);
	assert_int_equal(machine->nets, 0);
	close(other);
}

static void a_backend_with_another_request_breaks_the_protocol(void **state)
{
	struct machine *machine = *state;
	int other = request_with_pipes(machine, VMM_STATUS, 0, 1);

	expect(machine, VMM_STATUS | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	expect_end(other, true);
	close(other);
}

/* Sends one end each of so many pipes and returns what came out of each. */
static void ask_save(struct machine *machine, uint32_t sequence, uint64_t flags, unsigned count, char *out)
{
	struct vmm_message message = {.type = VMM_SAVE, .sequence = sequence, .arg0 = flags};
	int pipes[VMM_SAVE_FDS_MAX][2], fds[VMM_SAVE_FDS_MAX] = {-1, -1, -1};

	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(pipe2(pipes[i], O_CLOEXEC | O_NONBLOCK), 0);
		fds[i] = pipes[i][1];
	}
	assert_int_equal(io_send_fds(machine->peer, &message, sizeof(message), fds, count), 0);
	for (unsigned i = 0; i < count; i++)
		close(pipes[i][1]);
	turn(machine);
	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(read(pipes[i][0], &out[i], 1), 1);
		/* They are closed when the reply is there. */
		expect_end(pipes[i][0], true);
		close(pipes[i][0]);
	}
}

static void a_save_gets_state_and_memory_in_this_order(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;
	char out[2];

	ask_save(machine, 7, 0, 2, out);
	assert_memory_equal(out, "sm", 2);
	expect(machine, VMM_SAVE | VMM_REPLY, 7, 0, &message);
	assert_int_equal(message.arg0, 11);
	assert_int_equal(message.arg1, 22);
	assert_int_equal(machine->save_flags, 0);
	machine->answer = -ENOSPC;
	ask_save(machine, 8, VMM_SAVE_PRIVATE, 2, out);
	assert_int_equal(machine->save_flags, VMM_SAVE_PRIVATE);
	expect(machine, VMM_SAVE | VMM_REPLY, 8, -ENOSPC, &message);
	assert_string_equal(message.text, "no room");
	assert_int_equal(machine->saves, 2);
}

static void a_save_of_the_disk_gets_it_last(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;
	char out[VMM_SAVE_FDS_MAX];

	ask_save(machine, 7, VMM_SAVE_DISK, 3, out);
	assert_memory_equal(out, "smd", 3);
	assert_int_equal(machine->save_flags, VMM_SAVE_DISK);
	expect(machine, VMM_SAVE | VMM_REPLY, 7, 0, &message);
	assert_int_equal(message.arg0, 11);
	assert_int_equal(message.arg1, 22);
	assert_int_equal(message.arg2, 33);
	ask_save(machine, 8, VMM_SAVE_DISK | VMM_SAVE_PRIVATE, 3, out);
	assert_int_equal(machine->save_flags, VMM_SAVE_DISK | VMM_SAVE_PRIVATE);
	expect(machine, VMM_SAVE | VMM_REPLY, 8, 0, NULL);
	/* What an unknown flag asks for is the machine's business. */
	ask_save(machine, 9, 4, 2, out);
	assert_int_equal(machine->save_flags, 4);
	expect(machine, VMM_SAVE | VMM_REPLY, 9, 0, NULL);
}

static void a_save_with_too_many_or_too_few_files_breaks_the_protocol(void **state)
{
	static const struct {
		uint64_t flags;
		unsigned count;
	} wrong[] = {{0, 1}, {0, 3}, {VMM_SAVE_PRIVATE, 3}, {VMM_SAVE_DISK, 2},
		{VMM_SAVE_DISK | VMM_SAVE_PRIVATE, 2}};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct machine *machine;
		int other;

		assert_int_equal(set_up(state), 0);
		machine = *state;
		other = request_with_pipes(machine, VMM_SAVE, wrong[i].flags, wrong[i].count);
		expect(machine, VMM_SAVE | VMM_REPLY, 1, -EPROTO, NULL);
		expect_closed(machine);
		expect_end(other, true);
		assert_int_equal(machine->saves, 0);
		close(other);
		tear_down(state);
	}
}

static void a_restore_is_answered_when_it_is_done(void **state)
{
	struct machine *machine = *state;
	int other;

	control_set_ops(machine->control, &standby_ops, machine);
	other = request_with_pipes(machine, VMM_RESTORE, 5, 3);
	assert_int_equal(machine->restores, 3);
	assert_int_equal(machine->cid, 5);
	expect_nothing(machine);
	expect_end(other, false);
	finish_waiter(machine, 0, 0);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, 0, NULL);
	fd_close(&machine->waiters[0].fd);
	expect_end(other, true);
	close(other);
}

static void a_restore_that_is_refused_closes_its_files(void **state)
{
	struct machine *machine = *state;
	int other;

	/* This one is no longer in standby. */
	other = request_with_pipes(machine, VMM_RESTORE, 5, 2);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -EALREADY, NULL);
	expect_end(other, true);
	close(other);
	control_set_ops(machine->control, &standby_ops, machine);
	machine->answer = -ENOMEM;
	other = request_with_pipes(machine, VMM_RESTORE, 5, 2);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -ENOMEM, NULL);
	expect_end(other, true);
	close(other);
}

static void a_restore_with_too_few_files_breaks_the_protocol(void **state)
{
	struct machine *machine = *state;
	int other;

	control_set_ops(machine->control, &standby_ops, machine);
	other = request_with_pipes(machine, VMM_RESTORE, 5, 1);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	expect_end(other, true);
	assert_int_equal(machine->restores, 0);
	assert_int_equal(machine->lefts, 1);
	close(other);
}

static void a_restore_with_too_many_files_breaks_the_protocol(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message = {.type = VMM_RESTORE, .sequence = 1};
	int fds[VMM_RESTORE_FDS_MAX + 1];

	control_set_ops(machine->control, &standby_ops, machine);
	for (unsigned i = 0; i <= VMM_RESTORE_FDS_MAX; i++)
		fds[i] = STDIN_FILENO;
	assert_int_equal(
		io_send_fds(machine->peer, &message, sizeof(message), fds, VMM_RESTORE_FDS_MAX + 1), 0);
	turn(machine);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	assert_int_equal(machine->restores, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_link_is_set, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_backend_comes_with_the_link, set_up, tear_down),
		cmocka_unit_test_setup_teardown(two_backends_break_the_protocol, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_save_gets_state_and_memory_in_this_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_save_of_the_disk_gets_it_last, set_up, tear_down),
		cmocka_unit_test(a_save_with_too_many_or_too_few_files_breaks_the_protocol),
		cmocka_unit_test_setup_teardown(a_restore_is_answered_when_it_is_done, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_restore_that_is_refused_closes_its_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_restore_with_too_few_files_breaks_the_protocol, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_restore_with_too_many_files_breaks_the_protocol, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_backend_with_another_request_breaks_the_protocol, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
