/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `host-ctl bench` with a vmm that only says hello: this program itself, when it is started with a kernel or
 * a snapshot. What --mem it is given says how it behaves. Needs no KVM and no daemon.
 */
#include "tests/support/unit.h"

#include "common/io.h"
#include "common/proto_vmm.h"
#include "common/unix_socket.h"
#include "host-ctl/bench/bench.h"
#include "host-ctl/cli/verbs.h"
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define REFUSES "16M"
#define HANGS_UP "17M"
#define SILENT "18M"
#define DIES "19M"
#define SELF "/proc/self/exe"

/* ---- the vmm ---- */

static const char *option(int argc, char **argv, const char *name)
{
	for (int i = 1; i + 1 < argc && argv[i]; i++)
		if (strcmp(argv[i], name) == 0)
			return argv[i + 1];
	return NULL;
}

/* Answers each request, and is never told to end. */
static int serve_control(int listener)
{
	struct vmm_message message = {.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_RUNNING};
	struct pollfd wait = {.fd = listener, .events = POLLIN};
	int peer, fds[IO_FDS_MAX];
	size_t count = IO_FDS_MAX;

	poll(&wait, 1, -1);
	peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	while (peer >= 0 && io_send_fds(peer, &message, sizeof(message), NULL, 0) == 0) {
		count = IO_FDS_MAX;
		if (io_receive_fds(peer, &message, sizeof(message), fds, &count) != sizeof(message))
			break;
		for (size_t i = 0; i < count; i++) {
			io_write_all(fds[i], "saved", 5);
			fd_close(&fds[i]);
		}
		message.type |= VMM_REPLY;
	}
	fd_close(&peer);
	return 0;
}

static int be_vmm(int argc, char **argv)
{
	const char *memory = option(argc, argv, "--mem"), *control = option(argc, argv, "--control");
	const char *restore = option(argc, argv, "--restore");
	int listener = control ? unix_listen(control, SOCK_SEQPACKET, 0600, 1) : -1, stream;
	char path[128], state[128];

	if (memory && strcmp(memory, REFUSES) == 0) {
		fprintf(stderr, "vmm: info: one line\nvmm: error: it is refused\n");
		return 1;
	}
	/* What is to be restored must be what was saved. */
	snprintf(state, sizeof(state), "%.*s", restore ? (int)strcspn(restore, ",") : 0,
		restore ? restore : "");
	if (restore && access(state, R_OK) < 0)
		return 1;
	snprintf(path, sizeof(path), "%s_1024", option(argc, argv, "--vsock"));
	stream = unix_connect(path, SOCK_STREAM);
	if (memory && strcmp(memory, SILENT) == 0)
		poll(NULL, 0, -1);
	if (memory && strcmp(memory, DIES) == 0)
		kill(getpid(), SIGKILL);
	if (stream < 0 || (memory && strcmp(memory, HANGS_UP) == 0) || write(stream, "h", 1) != 1)
		return 3;
	if (listener >= 0)
		serve_control(listener);
	poll(NULL, 0, -1);
	return 0;
}

/* ---- the tests ---- */

static void prepare(struct bench_call *call, const char *memory, size_t kinds)
{
	memset(call, 0, sizeof(*call));
	call->vmm = SELF;
	call->kernel = call->initrd = call->image = "/dev/null";
	call->memory = memory;
	call->rounds = 3;
	assert_int_equal(series_init(&call->series, kinds, call->rounds), 0);
}

/* How many folders of ours are in the temporary one; -1: it cannot be read. */
static int left_over(void)
{
	const char *path = getenv("TMPDIR");
	DIR *folder = path ? opendir(path) : NULL;
	int count = 0;

	if (!folder)
		return -1;
	for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
		count += strncmp(entry->d_name, "tinderbox.", 10) == 0;
	closedir(folder);
	return count;
}

static void boots_take_turns(void **state)
{
	struct bench_call call;

	(void)state;
	prepare(&call, "128M", 2);
	call.options[0] = "--cpus 2";
	call.options[1] = "  ";
	assert_int_equal(bench_boot(&call), 0);
	assert_int_equal(call.series.count[0], 3);
	assert_int_equal(call.series.count[1], 3);
	assert_string_equal(call.series.names[0], "boot: vmm's start to the agent's hello; --cpus 2");
	assert_true(call.series.ns[0][0] > 0);
	assert_int_equal(left_over(), 0);
	series_finish(&call.series);
}

static void a_restore_is_of_what_was_saved(void **state)
{
	struct bench_call call;

	(void)state;
	prepare(&call, "128M", 2);
	assert_int_equal(bench_restore(&call), 0);
	assert_int_equal(call.series.count[0], 3);
	assert_int_equal(call.series.count[1], 3);
	assert_int_equal(left_over(), 0);
	series_finish(&call.series);
}

static void a_vmm_that_fails_is_told(void **state)
{
	static const struct {
		const char *vmm, *memory, *error;
	} cases[] = {
		{SELF, REFUSES,
			SELF " ended before its guest said hello, with status 1: vmm: error: it is refused"},
		{SELF, HANGS_UP, SELF " ended before its guest said hello, with status 3: it said nothing"},
		{SELF, DIES, SELF " was ended by signal 9 before its guest said hello: it said nothing"},
		{"/none/vmm", "128M",
			"cannot run /none/vmm: No such file or directory; say with --vmm where it is"},
		{"/dev/null/vmm", "128M",
			"cannot run /dev/null/vmm: Not a directory; say with --vmm where it is"},
		{"/dev/null", "128M",
			"cannot run /dev/null: Permission denied; it has to be a program that you may run; "
			"make it "
			"one, or name another with --vmm"},
	};
	struct bench_call call;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		prepare(&call, cases[i].memory, 1);
		call.vmm = cases[i].vmm;
		assert_int_equal(bench_boot(&call), -1);
		assert_string_equal(call.error, cases[i].error);
		assert_int_equal(left_over(), 0);
		series_finish(&call.series);
	}
}

/* At any moment of it: here, while a guest says nothing. */
static void a_signal_leaves_nothing(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	(void)state;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct rlimit no_core = {0, 0};
		struct bench_call call;
		int status;
		pid_t pid;

		prepare(&call, SILENT, 1);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			setrlimit(RLIMIT_CORE, &no_core);
			_exit(bench_boot(&call) == 0 ? 0 : 1);
		}
		while (left_over() == 0)
			poll(NULL, 0, 1);
		assert_int_equal(kill(pid, signals[i]), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
		assert_int_equal(left_over(), 0);
		series_finish(&call.series);
	}
}

static void a_program_that_is_not_here(void **state)
{
	char *argv[] = {"/none/program", NULL};
	struct bench_call call;

	(void)state;
	prepare(&call, "128M", 2);
	call.argv = argv;
	assert_int_equal(bench_run(&call), -1);
	assert_string_equal(call.error,
		"cannot run /none/program on this host: No such file or directory; name a program "
		"that is the same file here and in the guest, or say with --here where it is");
	series_finish(&call.series);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boots_take_turns),
		cmocka_unit_test(a_restore_is_of_what_was_saved),
		cmocka_unit_test(a_vmm_that_fails_is_told),
		cmocka_unit_test(a_signal_leaves_nothing),
		cmocka_unit_test(a_program_that_is_not_here),
	};
	char folder[] = "/tmp/hostctl-bench.XXXXXX";
	int failed;

	if (argc > 1 && (strcmp(argv[1], "--kernel") == 0 || strcmp(argv[1], "--restore") == 0))
		return be_vmm(argc, argv);
	if (!mkdtemp(folder) || setenv("TMPDIR", folder, 1) < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(folder);
	return failed;
}
