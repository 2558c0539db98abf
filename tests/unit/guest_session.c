/* SPDX-License-Identifier: Apache-2.0 */
/* Commands through the agent: how they start, run and end. Their output is in guest_output.c. */
#include "guest_fixture.h"
#include <sys/syscall.h>

static void expect_exit(const struct outcome *outcome, int kind, int code, int step)
{
	assert_int_equal(outcome->exit.kind, kind);
	assert_int_equal(outcome->exit.code, code);
	assert_int_equal(outcome->exit.step, step);
}

static void ends_in_every_way(void **state)
{
	static const struct {
		const char *name, *script;
		int kind, code;
	} cases[] = {
		{"true", "true", AGENT_EXITED, 0},
		{"false", "false", AGENT_EXITED, 1},
		{"3", "exit 3", AGENT_EXITED, 3},
		{"255", "exit 255", AGENT_EXITED, 255},
		{"137 is a code", "exit 137", AGENT_EXITED, 137},
		{"TERM", "kill -TERM $$", AGENT_SIGNALLED, SIGTERM},
		{"KILL", "kill -KILL $$", AGENT_SIGNALLED, SIGKILL},
		{"SEGV", "ulimit -c 0; kill -SEGV $$", AGENT_SIGNALLED, SIGSEGV},
	};
	struct fixture *f = *state;
	struct outcome outcome;

	give_identity(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct command command = {.argv = SHELL(cases[i].script), .id = i + 1};

		run_command(f, &command, &outcome);
		assert_true(outcome.started);
		if (outcome.exit.kind != cases[i].kind || outcome.exit.code != cases[i].code)
			fail_msg("%s: kind %d code %d", cases[i].name, outcome.exit.kind, outcome.exit.code);
		assert_int_equal(outcome.exit.step, AGENT_STEP_NONE);
		assert_int_equal(outcome.exit.core, 0);
	}
}

static void says_why_it_did_not_start(void **state)
{
	struct fixture *f = *state;
	const struct {
		struct command command;
		int error, step;
	} cases[] = {
		{{.argv = ARGV("/does/not/exist")}, ENOENT, AGENT_STEP_EXEC},
		{{.argv = ARGV("does-not-exist")}, ENOENT, AGENT_STEP_EXEC},
		{{.argv = ARGV("/etc/passwd")}, EACCES, AGENT_STEP_EXEC},
		{{.argv = ARGV("passwd"), .env = ARGV("PATH=/nowhere:/etc:/none")}, EACCES, AGENT_STEP_EXEC},
		{{.argv = ARGV("/etc")}, EACCES, AGENT_STEP_EXEC},
		{{.argv = ARGV("etc"), .env = ARGV("PATH=/")}, EACCES, AGENT_STEP_EXEC},
		{{.argv = ARGV("/etc/passwd/x")}, ENOTDIR, AGENT_STEP_EXEC},
		{{.argv = ARGV("/bin/true"), .cwd = "/does/not/exist"}, ENOENT, AGENT_STEP_CWD},
		{{.argv = ARGV("/bin/true"), .cwd = "/etc/passwd"}, ENOTDIR, AGENT_STEP_CWD},
		{{.argv = ARGV("/bin/true"), .user = "nobody-of-that-name"}, ENOENT, AGENT_STEP_USER},
	};
	struct outcome outcome;

	give_identity(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct command command = cases[i].command;

		command.id = i + 1;
		run_command(f, &command, &outcome);
		assert_false(outcome.started);
		expect_exit(&outcome, AGENT_FAILED_TO_START, cases[i].error, cases[i].step);
	}
}

static void passes_bytes_as_they_are(void **state)
{
	struct fixture *f = *state;
	struct command command = {
		.argv = ARGV("/bin/sh", "-c", "printf %s \"$1$VALUE\"; printf %s \"$2\" >&2", "\xff\xfe",
			"a\xc3(\x80 \n", "\x01\xff"),
		.env = ARGV("VALUE=\xf0\x28\x8c\x28"),
	};
	struct outcome outcome;

	give_identity(f);
	run_command(f, &command, &outcome);
	expect_exit(&outcome, AGENT_EXITED, 0, 0);
	assert_string_equal(outcome.out, "a\xc3(\x80 \n\xf0\x28\x8c\x28");
	assert_string_equal(outcome.err, "\x01\xff");
}

static void has_a_usual_environment(void **state)
{
	struct fixture *f = *state;
	const struct {
		struct command command;
		const char *out;
	} cases[] = {
		{{.argv = SHELL("echo $PATH $HOME $PWD"), .cwd = ""}, AGENT_DEFAULT_PATH " /root /root\n"},
		{{.argv = ARGV("sh", "-c", "echo $PATH $HOME"), .env = ARGV("PATH=/x:/bin", "HOME=/y")},
			"/x:/bin /y\n"},
		{{.argv = SHELL("umask; echo $OTHER"), .env = ARGV("OTHER=x")}, "0022\nx\n"},
		{{.argv = SHELL("id -u; id -g; id -G; echo $HOME; pwd"), .user = "daemon", .cwd = ""},
			"1\n1\n1\n/usr/sbin\n/usr/sbin\n"},
		/* a session of its own, no signal blocked or ignored, and only three fds */
		{{.argv = SHELL(
			  "read -r p c s pp g sid rest </proc/$$/stat; [ $p = $g ] && [ $p = $sid ]; "
			  "echo $?; grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l")},
			"0\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n4\n"},
		{{.argv = ARGV("/bin/cat")}, ""}, /* no stdin: /dev/null */
	};
	struct outcome outcome;

	umask(022);
	give_identity(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct command command = cases[i].command;

		command.id = i + 1;
		run_command(f, &command, &outcome);
		expect_exit(&outcome, AGENT_EXITED, 0, 0);
		assert_string_equal(outcome.out, cases[i].out);
		assert_string_equal(outcome.err, "");
	}
}

static void tells_what_it_used(void **state)
{
	struct fixture *f = *state;
	struct command command = {
		.argv = SHELL("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.05")};
	struct outcome outcome;

	give_identity(f);
	run_command(f, &command, &outcome);
	assert_in_range(outcome.exit.wall_us, 50000, WAIT_MS * 1000);
	assert_in_range(outcome.exit.user_us + outcome.exit.system_us, 1000, WAIT_MS * 1000);
	assert_in_range(outcome.exit.max_rss_kib, 100, 1000000);
}

static void a_deadline_ends_the_whole_tree(void **state)
{
	struct fixture *f = *state;
	/* So long that the shell has told of its child before, and how late it may come. */
	enum { DEADLINE_MS = 2000, LATE_MS = 4800 };
	/* The child leaves session and process group, and must be gone all the same. */
	struct command command = {
		.argv = SHELL("setsid sleep 1000 & echo $!; wait"), .deadline_ms = DEADLINE_MS};
	struct outcome outcome;
	uint64_t end;
	pid_t child;

	if (!f->cgroup_root[0])
		skip();
	give_identity(f);
	run_command(f, &command, &outcome);
	expect_exit(&outcome, AGENT_TIMED_OUT, 0, 0);
	assert_in_range(outcome.exit.wall_us, DEADLINE_MS * 1000, (DEADLINE_MS + LATE_MS) * 1000);
	child = (pid_t)atoi(outcome.out);
	assert_true(child > 1);
	end = test_now_ms() + WAIT_MS;
	while (kill(child, 0) == 0 && test_now_ms() < end)
		loop_turn(f->loop, TURN_MS);
	assert_int_equal(kill(child, 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void a_deadline_holds_without_cgroups(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("sleep 1000 & sleep 1000"), .deadline_ms = 100};
	struct outcome outcome;

	assert_memory_equal(f->warnings.text, "cgroup: no writable cgroup2", 27);
	give_identity(f);
	run_command(f, &command, &outcome);
	expect_exit(&outcome, AGENT_TIMED_OUT, 0, 0);
}

static void a_limit_without_its_controller_is_refused(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = ARGV("/bin/true"), .memory_max = 1 << 30};
	struct outcome outcome;

	give_identity(f);
	run_command(f, &command, &outcome);
	expect_exit(&outcome, AGENT_FAILED_TO_START, EOPNOTSUPP, AGENT_STEP_CGROUP);
	command = (struct command){.argv = ARGV("/bin/true"), .pids_max = 10, .id = 2};
	run_command(f, &command, &outcome);
	expect_exit(&outcome, AGENT_FAILED_TO_START, EOPNOTSUPP, AGENT_STEP_CGROUP);
}

/* What a root command can do to the groups that wait for the next ones. */
static void a_group_that_was_taken_away_is_replaced(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = ARGV("/bin/true"), .id = 1};
	struct outcome outcome;
	char path[512];

	if (!f->cgroup_root[0])
		skip();
	give_identity(f);
	snprintf(path, sizeof(path), "%s/tinderbox/0", f->cgroup_root);
	assert_int_equal(rmdir(path), 0);
	for (uint64_t id = 1; id < 4; id++) {
		command.id = id;
		run_command(f, &command, &outcome);
		expect_exit(&outcome, AGENT_EXITED, 0, 0);
	}
}

static void start_and_wait_for_output(struct fixture *f, struct client *client, const struct command *command)
{
	struct frame frame;

	client_open(f, client);
	client_new(f, client, command);
	client_expect(f, client, AGENT_STARTED, &frame);
	client_expect(f, client, AGENT_STDOUT, &frame);
}

static void gets_signals(void **state)
{
	struct fixture *f = *state;
	struct command command = {
		.argv = SHELL(
			/* The signal goes to the sleep as well, of whose end some shells tell. */
			"exec 2>/dev/null; trap 'echo usr1' USR1; trap 'exit 7' TERM; echo;"
			"while :; do sleep 0.01; done")};
	struct agent_signal signal = {.signal = SIGUSR1};
	struct outcome outcome = {.out_total = 1};
	struct client client;
	struct frame frame;

	give_identity(f);
	start_and_wait_for_output(f, &client, &command);
	client_send(f, &client, AGENT_SIGNAL, &signal, sizeof(signal));
	client_expect(f, &client, AGENT_STDOUT, &frame);
	assert_memory_equal(frame.payload + sizeof(struct agent_output), "usr1\n", 5);
	outcome.out_total += 5;
	signal.signal = SIGTERM;
	client_send(f, &client, AGENT_SIGNAL, &signal, sizeof(signal));
	client_finish(f, &client, &outcome);
	expect_exit(&outcome, AGENT_EXITED, 7, 0);
}

static void is_killed_on_demand(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("trap '' TERM HUP INT; echo; sleep 1000")};
	struct outcome outcome = {.out_total = 1};
	struct client client;

	give_identity(f);
	start_and_wait_for_output(f, &client, &command);
	client_send(f, &client, AGENT_KILL, NULL, 0);
	/* In the time between, what a host may still send is not an error. */
	client_send(f, &client, AGENT_KILL, NULL, 0);
	client_finish(f, &client, &outcome);
	expect_exit(&outcome, AGENT_KILLED, 0, 0);
}

static void says_killed_at_shutdown(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("echo; sleep 1000")};
	struct outcome outcome = {.out_total = 1};
	struct client client, other;
	struct frame frame;

	give_identity(f);
	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect(f, &client, AGENT_STARTED, &frame);
	memcpy(&outcome.exit, frame.payload, 16);
	client_expect(f, &client, AGENT_STDOUT, &frame);
	agent_stop(f->agent);
	client_open(f, &other);
	command.id = 2;
	client_new(f, &other, &command);
	client_expect_error(f, &other, ESHUTDOWN, "NEW: this guest is shutting down");
	client_close(&other);
	/* What PID 1 does to all there is. */
	kill(-(pid_t)((struct agent_started *)&outcome.exit)->pid, SIGTERM);
	client_finish(f, &client, &outcome);
	expect_exit(&outcome, AGENT_KILLED, 0, 0);
}

static void children_end_with_their_session(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = SHELL("sleep 1000 & echo $!")};
	struct outcome outcome;
	uint64_t end = test_now_ms() + WAIT_MS;
	pid_t child;

	give_identity(f);
	run_command(f, &command, &outcome);
	expect_exit(&outcome, AGENT_EXITED, 0, 0);
	child = (pid_t)atoi(outcome.out);
	while (kill(child, 0) == 0 && test_now_ms() < end)
		loop_turn(f->loop, TURN_MS);
	assert_int_equal(kill(child, 0), -1);
}

static void children_are_kept_when_asked(void **state)
{
	struct fixture *f = *state;
	/* The child writes more than a pipe holds after its leader has ended: it must neither wait nor die.
	 */
	struct command command = {
		.argv = SHELL(
			"(sleep 0.1; head -c 300000 /dev/zero && echo x >&3; sleep 1000) 3>$FILE & echo $!"),
		.flags = AGENT_NEW_KEEP_CHILDREN};
	char file[] = "/tmp/tinderbox-kept-XXXXXX", variable[64], byte = 0;
	uint64_t end = test_now_ms() + WAIT_MS;
	int fd = mkostemp(file, O_CLOEXEC);
	struct outcome outcome;

	assert_true(fd >= 0);
	snprintf(variable, sizeof(variable), "FILE=%s", file);
	command.env = ARGV(variable);
	give_identity(f);
	run_command(f, &command, &outcome);
	expect_exit(&outcome, AGENT_EXITED, 0, 0);
	assert_in_range(outcome.exit.stdout_bytes, 2, 12);
	while (pread(fd, &byte, 1, 0) != 1 && test_now_ms() < end)
		loop_turn(f->loop, TURN_MS);
	unlink(file);
	close(fd);
	assert_int_equal(byte, 'x');
	assert_int_equal(kill((pid_t)atoi(outcome.out), SIGKILL), 0);
}

static void many_at_once_and_no_more(void **state)
{
	struct fixture *f = *state;
	static struct client clients[AGENT_SESSIONS_MAX];
	struct command command = {.argv = ARGV("/bin/cat"), .flags = AGENT_NEW_STDIN};
	struct client other;
	struct frame frame;

	give_identity(f);
	for (size_t i = 0; i < AGENT_SESSIONS_MAX; i++) {
		command.id = i + 1;
		client_open(f, &clients[i]);
		client_new(f, &clients[i], &command);
		client_expect(f, &clients[i], AGENT_STARTED, &frame);
	}
	client_open(f, &other);
	command.id = 1000;
	client_new(f, &other, &command);
	client_expect_error(f, &other, EAGAIN, "NEW: every session slot is in use");
	client_close(&other);
	for (size_t i = 0; i < AGENT_SESSIONS_MAX; i++) {
		struct outcome outcome = {0};
		char text[32];

		snprintf(text, sizeof(text), "number %zu", i);
		client_send(f, &clients[i], AGENT_STDIN, text, strlen(text));
		client_send(f, &clients[i], AGENT_STDIN_EOF, NULL, 0);
		client_finish(f, &clients[i], &outcome);
		expect_exit(&outcome, AGENT_EXITED, 0, 0);
		assert_string_equal(outcome.out, text);
	}
	/* Ended ones give way to new ones. */
	for (size_t i = 0; i < AGENT_SESSIONS_MAX; i++) {
		struct outcome outcome;

		command = (struct command){.argv = ARGV("/bin/true"), .id = 2000 + i};
		run_command(f, &command, &outcome);
		expect_exit(&outcome, AGENT_EXITED, 0, 0);
	}
}

/*
 * glibc's posix_spawn, and so make, starts programs with its two internal signals ignored, and no call of
 * glibc's can undo that. As PID 1 guest-init has none ignored; neither shall the commands of these tests.
 */
static void reset_internal_signals(void)
{
	struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} action = {0};

	for (int signal = 32; signal <= 33; signal++)
		syscall(SYS_rt_sigaction, signal, &action, NULL, sizeof(action.mask));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define BARE(name) cmocka_unit_test_setup_teardown(name, setup_without_cgroups, teardown)
	const struct CMUnitTest tests[] = {
		CASE(ends_in_every_way),
		CASE(says_why_it_did_not_start),
		CASE(passes_bytes_as_they_are),
		CASE(has_a_usual_environment),
		CASE(tells_what_it_used),
		CASE(a_deadline_ends_the_whole_tree),
		BARE(a_deadline_holds_without_cgroups),
		BARE(a_limit_without_its_controller_is_refused),
		CASE(a_group_that_was_taken_away_is_replaced),
		CASE(gets_signals),
		CASE(is_killed_on_demand),
		BARE(is_killed_on_demand),
		CASE(says_killed_at_shutdown),
		CASE(children_end_with_their_session),
		BARE(children_end_with_their_session),
		CASE(children_are_kept_when_asked),
		CASE(many_at_once_and_no_more),
		BARE(many_at_once_and_no_more),
	};

	reset_internal_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
