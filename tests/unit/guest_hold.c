/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HOLD, and the agent meanwhile. syncfs(2) is this test's own: it notes of what it was called, waits until it
 * is let go, and fails when it is told to; in the agent's child, so by memory that both have.
 */
#include "guest_fixture.h"
#include <sys/mman.h>

enum { FDS_LOOKED_AT = 64, A_WHILE_MS = 100, POLL_US = 1000 };

struct disk {
	_Atomic int go, error; /* written by the test */
	_Atomic int calls, pid, open_fds;
	dev_t device;
	ino_t inode;
};

static struct disk *disk;

int __wrap_syncfs(int fd);

int __wrap_syncfs(int fd)
{
	struct stat status = {.st_dev = 0};
	int open = 0;

	for (int i = 0; i < FDS_LOOKED_AT; i++)
		open += fcntl(i, F_GETFD) >= 0;
	(void)fstat(fd, &status);
	disk->device = status.st_dev;
	disk->inode = status.st_ino;
	disk->open_fds = open;
	disk->pid = getpid();
	disk->calls++;
	for (int i = 0; !disk->go && i < WAIT_MS * 1000 / POLL_US; i++)
		usleep(POLL_US);
	errno = disk->error;
	return disk->error ? -1 : 0;
}

static struct layers layers;

static int setup_with_disk(void **state)
{
	disk = mmap(NULL, sizeof(*disk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(disk, MAP_FAILED);
	layers = (struct layers){
		.upper = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), .lower = -1, .store = -1};
	assert_true(layers.upper >= 0);
	test_layers = &layers;
	return setup(state);
}

static int teardown_with_disk(void **state)
{
	int r;

	disk->go = 1; /* what still waits */
	r = teardown(state);
	test_layers = NULL;
	fd_close(&layers.upper);
	munmap(disk, sizeof(*disk));
	return r;
}

static void open_control(struct fixture *f, struct client *client)
{
	struct agent_control control = {.version = AGENT_PROTO_VERSION};
	struct frame frame;

	client_open(f, client);
	client_send(f, client, AGENT_CONTROL, &control, sizeof(control));
	client_expect(f, client, AGENT_HELLO, &frame);
}

static void expect_held(struct fixture *f, struct client *client, int error)
{
	struct agent_status status;
	struct frame frame;

	client_expect(f, client, AGENT_HELD, &frame);
	assert_int_equal(frame.length, sizeof(status));
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.status, error);
	assert_int_equal(status.text_length, 0);
}

static void expect_nothing_yet(struct fixture *f, struct client *client)
{
	uint64_t end = test_now_ms() + A_WHILE_MS;
	char byte;

	while (test_now_ms() < end)
		loop_turn(f->loop, 5);
	assert_int_equal(recv(client->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
	assert_int_equal(errno, EAGAIN);
}

static void await_call(struct fixture *f, int calls)
{
	uint64_t end = test_now_ms() + WAIT_MS;

	while (disk->calls < calls) {
		assert_true(test_now_ms() < end);
		loop_turn(f->loop, 5);
	}
}

static void it_is_answered_when_the_files_are_on_the_disk(void **state)
{
	struct command command = {.argv = ARGV("/bin/true")};
	struct fixture *f = *state;
	struct outcome outcome;
	struct client host;
	struct stat upper;

	give_identity(f);
	open_control(f, &host);
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	await_call(f, 1);
	expect_nothing_yet(f, &host);
	/* The agent serves on. */
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	disk->go = 1;
	expect_held(f, &host, 0);
	assert_int_equal(fstat(layers.upper, &upper), 0);
	assert_int_equal(disk->device, upper.st_dev);
	assert_int_equal(disk->inode, upper.st_ino);
	/* Stdio and the upper: a stream that is closed meanwhile is closed. */
	assert_int_equal(disk->open_fds, 4);
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	expect_held(f, &host, 0);
	assert_int_equal(disk->calls, 2);
	client_close(&host);
}

static void a_disk_that_fails_is_told_of(void **state)
{
	static const int errors[] = {EIO, ENOSPC, EDQUOT};
	struct fixture *f = *state;
	struct client host;

	disk->go = 1;
	open_control(f, &host);
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		disk->error = errors[i];
		client_send(f, &host, AGENT_HOLD, NULL, 0);
		expect_held(f, &host, errors[i]);
	}
	disk->error = 0;
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	expect_held(f, &host, 0);
	client_close(&host);
}

static void two_at_once_are_one(void **state)
{
	struct fixture *f = *state;
	struct client host, other;

	open_control(f, &host);
	open_control(f, &other);
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	await_call(f, 1);
	client_send(f, &other, AGENT_HOLD, NULL, 0);
	expect_held(f, &other, EAGAIN);
	/* Whoever asked first gets both answers. */
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	expect_held(f, &host, EAGAIN);
	disk->go = 1;
	expect_held(f, &host, 0);
	expect_nothing_yet(f, &other);
	client_send(f, &other, AGENT_HOLD, NULL, 0);
	expect_held(f, &other, 0);
	assert_int_equal(disk->calls, 2);
	client_close(&host);
	client_close(&other);
}

static void who_left_is_not_told(void **state)
{
	struct fixture *f = *state;
	struct client host, other;

	open_control(f, &host);
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	await_call(f, 1);
	client_close(&host);
	loop_turn(f->loop, 0);
	/* This one has its place. */
	open_control(f, &other);
	disk->go = 1;
	expect_nothing_yet(f, &other);
	client_send(f, &other, AGENT_HOLD, NULL, 0);
	expect_held(f, &other, 0);
	client_close(&other);
}

static void nothing_comes_after_an_error(void **state)
{
	struct fixture *f = *state;
	struct client host;

	open_control(f, &host);
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	await_call(f, 1);
	client_send(f, &host, AGENT_HOLD, "x", 1);
	client_expect_error(f, &host, EPROTO, "this frame has a wrong length");
	client_close(&host);
	disk->go = 1;
	open_control(f, &host);
	expect_nothing_yet(f, &host);
	client_close(&host);
}

static void one_whose_process_is_killed_has_failed(void **state)
{
	struct fixture *f = *state;
	struct client host;

	open_control(f, &host);
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	await_call(f, 1);
	assert_int_equal(kill(disk->pid, SIGKILL), 0);
	expect_held(f, &host, EINTR);
	client_close(&host);
}

static void it_is_for_control_streams(void **state)
{
	struct fixture *f = *state;
	struct client client;

	client_open(f, &client);
	client_send(f, &client, AGENT_HOLD, NULL, 0);
	client_expect_error(f, &client, EPROTO, "this frame is out of order on this stream");
	client_close(&client);
	assert_int_equal(disk->calls, 0);
}

static void files_in_memory_are_held_at_once(void **state)
{
	struct fixture *f = *state;
	struct client host;

	open_control(f, &host);
	client_send(f, &host, AGENT_HOLD, NULL, 0);
	expect_held(f, &host, 0);
	client_close(&host);
}

#define WITH_DISK(test) cmocka_unit_test_setup_teardown(test, setup_with_disk, teardown_with_disk)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DISK(it_is_answered_when_the_files_are_on_the_disk),
		WITH_DISK(a_disk_that_fails_is_told_of),
		WITH_DISK(two_at_once_are_one),
		WITH_DISK(who_left_is_not_told),
		WITH_DISK(nothing_comes_after_an_error),
		WITH_DISK(one_whose_process_is_killed_has_failed),
		WITH_DISK(it_is_for_control_streams),
		cmocka_unit_test_setup_teardown(files_in_memory_are_held_at_once, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
