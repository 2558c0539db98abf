/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM's start with too few fds, one more each time until it succeeds: each failure is reported and leaves
 * nothing. And who may use the daemon's socket.
 */
#include "tests/support/fail_alloc.h"
#include "tests/unit/hostctl_vm_fixture.h"

#include "common/io.h"
#include "host-ctl/http/http.h"
#include "host-ctl/http/peer.h"
#include <grp.h>
#include <sys/resource.h>

enum { FDS_WANTED_MAX = 64, OTHER_UID = 61234, OTHER_GID = 61235, SHARED_GID = 61236 };

struct outcome {
	bool warm, gone;
	char cause[VM_CAUSE_MAX];
};

static void on_warm(void *context, struct vm *vm)
{
	struct outcome *outcome = context;

	outcome->warm = true;
	vm_end(vm, "the test is over");
}

static void on_ended(void *context, struct vm *vm)
{
	struct outcome *outcome = context;

	snprintf(outcome->cause, sizeof outcome->cause, "%s", vm_cause(vm));
}

static void on_gone(void *context, struct vm *vm)
{
	struct outcome *outcome = context;

	(void)vm;
	outcome->gone = true;
}

static const struct vm_events vm_events = {.warm = on_warm, .ended = on_ended, .gone = on_gone};

/* Limits this process to `more` fds beyond those it has. */
static void limit_fds(int more)
{
	const struct rlimit limit = {.rlim_cur = (rlim_t)more, .rlim_max = 4096};

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int first_free_fd(void)
{
	int fd = dup(STDIN_FILENO);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

static void run_until_gone(struct loop *loop, const struct outcome *outcome)
{
	for (int waited = 0; !outcome->gone && waited < WAIT_MS; waited += 10)
		assert_int_equal(loop_turn(loop, 10), 0);
	assert_true(outcome->gone);
	if (outcome->warm)
		assert_string_equal(outcome->cause, "the test is over");
}

static void test_start_with_too_few_fds(void **state)
{
	struct place place;
	struct error error;
	int status = -1, failures = 0;

	(void)state;
	place_init(&place);
	for (int more = 0; status < 0 && more < FDS_WANTED_MAX; more++) {
		struct outcome outcome = {.warm = false};
		struct vm *vm = NULL;

		limit_fds(first_free_fd() + more);
		status = vm_start(&place.config, &place.order, &vm_events, &outcome, &vm, &error);
		limit_fds(4096);
		if (status == 0) {
			run_until_gone(place.config.loop, &outcome);
			if (outcome.warm)
				continue;
			/* The child has the same limit, and moves its fds before it runs the vmm. */
			assert_non_null(strstr(outcome.cause, "(vmm: vmm not started: "));
			status = -1;
		} else {
			assert_int_equal(status, -EMFILE);
			assert_non_null(strstr(error.message, "Too many open files"));
		}
		failures++;
		place_check(&place);
	}
	assert_int_equal(status, 0);
	assert_true(failures >= 10);
	place_check(&place);
	place_finish(&place);
}

/* A name that a client gave may be anything's by the time that a VM is made from it. */
static void test_start_on_what_is_no_image(void **state)
{
	struct outcome outcome = {.warm = false};
	const struct vm_build build = {.state = -1, .memory = -1};
	struct place place;
	struct error error;
	struct vm *vm = NULL;
	char message[160];

	(void)state;
	place_init(&place);
	assert_int_equal(unlink(place.image), 0);
	assert_int_equal(mkfifo(place.image, 0600), 0);
	snprintf(message, sizeof message, "cannot open the image %s: it is a named pipe", place.image);
	for (int building = 0; building < 2; building++) {
		place.order.build = building ? &build : NULL;
		assert_int_equal(
			vm_start(&place.config, &place.order, &vm_events, &outcome, &vm, &error), -EINVAL);
		assert_string_equal(error.message, message);
		assert_int_equal(error.kind, building ? ERROR_INVALID : ERROR_INTERNAL);
		assert_null(vm);
		place_check(&place);
	}
	place_finish(&place);
}

/* What is left in the cgroup keeps it, and there is no fd to kill that by, or to be told of its end. */
static void test_end_with_too_few_fds(void **state)
{
	struct outcome outcome = {.warm = false};
	struct place place;
	struct vm *vm = NULL;
	struct error error;
	const time_t end = time(NULL) + WAIT_MS / 1000;
	int free_fd;

	(void)state;
	place_init(&place);
	write_text(place.daemon.folder, "kernel", "children-write");
	free_fd = first_free_fd();
	assert_int_equal(vm_start(&place.config, &place.order, &vm_events, &outcome, &vm, &error), 0);
	/* What closing the VM's own sets free is not to be had either. */
	limit_fds(free_fd);
	/* Its words wake the loop far more often than once in 10 ms. */
	while (!outcome.cause[0] && time(NULL) < end)
		assert_int_equal(loop_turn(place.config.loop, 10), 0);
	limit_fds(4096);
	assert_false(outcome.gone);
	run_until_gone(place.config.loop, &outcome);
	place_check(&place);
	place_finish(&place);
}

/* One that a run takes and gives back. */
struct use {
	struct vm *vm;
	bool gone, was_killed;
	struct loop_task answer;
};

static void session_ready_again(void *context, uint32_t events)
{
	(void)context;
	(void)events;
}

static void ignore(void *context)
{
	(void)context;
}

static const struct vm_session_events session_events = {
	.ready = session_ready_again, .ended = ignore, .alarm = ignore};

static void send_answer(void *context)
{
	struct use *use = context;

	use->was_killed = use->vm->killed;
}

static void use_it(void *context, struct vm *vm)
{
	struct use *use = context;

	vm_take(vm, &session_events, use);
	use->answer = (struct loop_task){.fn = send_answer, .context = use};
	use->was_killed = true;
	loop_defer(vm->config->loop, &use->answer);
	vm_release(vm, NULL);
	assert_int_equal(vm->state, VM_ENDING);
	/* Again, as by a daemon that stops. */
	vm_end(vm, "the test is over");
}

static void on_use_ended(void *context, struct vm *vm)
{
	(void)context;
	assert_true(vm->killed);
	assert_string_equal(vm_cause(vm), "its run is over");
}

static void on_use_gone(void *context, struct vm *vm)
{
	(void)vm;
	((struct use *)context)->gone = true;
}

/* What a run's client waits for does not wait for the end of its VM. */
static void test_a_vm_is_killed_behind_the_answer(void **state)
{
	static const struct vm_events events = {.warm = use_it, .ended = on_use_ended, .gone = on_use_gone};
	struct use use = {.gone = false};
	struct place place;
	struct error error;

	(void)state;
	place_init(&place);
	assert_int_equal(vm_start(&place.config, &place.order, &events, &use, &use.vm, &error), 0);
	for (int waited = 0; !use.gone && waited < WAIT_MS; waited += 10)
		assert_int_equal(loop_turn(place.config.loop, 10), 0);
	assert_true(use.gone);
	assert_false(use.was_killed);
	place_check(&place);
	place_finish(&place);
}

static void test_start_with_too_little_memory(void **state)
{
	enum { ALLOCATIONS_MAX = 20 };
	struct place place;
	struct error error;
	int status = -1;
	unsigned failing = 0;

	(void)state;
	place_init(&place);
	for (; status < 0 && failing < ALLOCATIONS_MAX; failing++) {
		struct outcome outcome = {.warm = false};
		struct vm *vm = NULL;

		fail_alloc(failing);
		status = vm_start(&place.config, &place.order, &vm_events, &outcome, &vm, &error);
		assert_int_equal(fail_alloc_end(), status < 0);
		if (status == 0) {
			run_until_gone(place.config.loop, &outcome);
			assert_true(outcome.warm);
		} else {
			assert_int_equal(status, -ENOMEM);
			assert_non_null(strstr(error.message, "Cannot allocate memory"));
		}
		place_check(&place);
	}
	assert_int_equal(status, 0);
	/* The VM, four sources, the reader's buffer. */
	assert_true(failing > 5);
	place_finish(&place);
}

/* Connects as somebody else and waits to be looked at. */
static void connect_as(const char *path, uid_t uid, gid_t gid, const gid_t *groups, size_t count)
{
	char byte;
	int fd;

	if (setgroups(count, groups) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		_exit(1);
	fd = unix_connect(path, SOCK_STREAM);
	if (fd < 0)
		_exit(2);
	fcntl(fd, F_SETFL, 0);
	_exit(read(fd, &byte, 1) == 0 ? 0 : 3);
}

static void expect_peer(
	const char *path, int listener, uid_t uid, gid_t gid, const gid_t *groups, size_t count, bool allowed)
{
	struct pollfd wait = {.fd = listener, .events = POLLIN};
	struct http_peer peer;
	pid_t pid = fork();
	int fd, status;

	if (pid == 0)
		connect_as(path, uid, gid, groups, count);
	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	peer_read(&peer, fd, SHARED_GID);
	assert_int_equal(peer.uid, uid);
	assert_int_equal(peer.gid, gid);
	assert_int_equal(peer.pid, pid);
	assert_int_equal(peer.allowed, allowed);
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_peers(void **state)
{
	const gid_t others[] = {OTHER_GID + 10, SHARED_GID};
	char folder[] = "/tmp/tinderbox-unit.XXXXXX", path[64];
	struct http_peer peer;
	int listener;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/s", folder);
	listener = unix_listen(path, SOCK_STREAM, 0666, 8);
	assert_true(listener >= 0);
	assert_int_equal(chmod(folder, 0755), 0);
	assert_int_equal(chmod(path, 0666), 0);
	expect_peer(path, listener, 0, 0, NULL, 0, true);
	expect_peer(path, listener, OTHER_UID, SHARED_GID, NULL, 0, true);
	expect_peer(path, listener, OTHER_UID, OTHER_GID, others, 2, true);
	expect_peer(path, listener, OTHER_UID, OTHER_GID, others, 1, false);
	expect_peer(path, listener, OTHER_UID, OTHER_GID, NULL, 0, false);
	close(listener);
	remove_folder(folder);
	/* What has no credentials is nobody. */
	peer_read(&peer, STDIN_FILENO, SHARED_GID);
	assert_false(peer.allowed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start_with_too_few_fds),
		cmocka_unit_test(test_start_on_what_is_no_image),
		cmocka_unit_test(test_end_with_too_few_fds),
		cmocka_unit_test(test_a_vm_is_killed_behind_the_answer),
		cmocka_unit_test(test_start_with_too_little_memory),
		cmocka_unit_test(test_peers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
