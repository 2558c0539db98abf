/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent in this process, over a Unix socket, and clients that drive its loop while they wait. Every wait
 * ends by WAIT_MS at the latest and fails the test. Teardown fails on a leaked fd or a leaked cgroup.
 */
#ifndef TESTS_UNIT_GUEST_FIXTURE_H
#define TESTS_UNIT_GUEST_FIXTURE_H

#include "tests/support/unit.h"

#include "common/frame.h"
#include "common/io.h"
#include "common/log.h"
#include "common/loop.h"
#include "guest-init/agent.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <mntent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 20000, TURN_MS = 50 };

struct fake_identity {
	int fail_at; /* 1..5: this part fails with EROFS; 0: none */
	int calls;
	char order[256];
	struct agent_identity got;
};

struct fixture {
	struct loop *loop;
	struct agent *agent;
	struct warnings warnings;
	struct fake_identity identity;
	int listener;
	struct sockaddr_un address;
	socklen_t address_length;
	char cgroup_root[256]; /* "" when this machine has no writable cgroup2 */
	int shutdowns, childless;
	uint32_t grace_ms;
	int fds_before;
};

struct client {
	int fd;
	struct frame_reader reader;
};

static inline int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(fds);
	while (readdir(fds))
		count++;
	closedir(fds);
	return count;
}

/* ---- identity that is only noted ---- */

static inline int fake_part(void *context, char name)
{
	struct fake_identity *fake = context;

	fake->order[fake->calls++] = name;
	return fake->calls == fake->fail_at ? -EROFS : 0;
}

static inline int fake_entropy(void *context, const uint8_t *bytes, size_t length)
{
	struct fake_identity *fake = context;

	assert_int_equal(length, AGENT_ENTROPY_BYTES);
	memcpy(fake->got.entropy, bytes, length);
	return fake_part(context, 'e');
}

static inline int fake_clock(void *context, uint64_t realtime_ns)
{
	struct fake_identity *fake = context;

	fake->got.realtime_ns = realtime_ns;
	return fake_part(context, 'c');
}

static inline int fake_machine_id(void *context, const uint8_t id[AGENT_MACHINE_ID_BYTES])
{
	struct fake_identity *fake = context;

	memcpy(fake->got.machine_id, id, AGENT_MACHINE_ID_BYTES);
	return fake_part(context, 'm');
}

static inline int fake_hostname(void *context, const char *name)
{
	struct fake_identity *fake = context;

	strcpy(fake->got.hostname, name);
	return fake_part(context, 'h');
}

static inline int fake_boot_id(void *context)
{
	return fake_part(context, 'b');
}

static const struct identity_ops fake_identity_ops = {
	.set_entropy = fake_entropy,
	.set_clock = fake_clock,
	.set_machine_id = fake_machine_id,
	.set_hostname = fake_hostname,
	.renew_boot_id = fake_boot_id,
};

/* ---- the agent ---- */

static inline void fake_shutdown(void *context, uint32_t grace_ms)
{
	struct fixture *f = context;

	f->shutdowns++;
	f->grace_ms = grace_ms;
}

static inline void note_childless(void *context)
{
	((struct fixture *)context)->childless++;
}

static inline void on_child(void *context, const struct signalfd_siginfo *info)
{
	struct fixture *f = context;

	(void)info;
	agent_reap(f->agent);
}

/* A folder of our own in whatever cgroup2 this machine has. */
static inline void find_cgroup(struct fixture *f)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *entry;

	f->cgroup_root[0] = '\0';
	while (mounts && (entry = getmntent(mounts)))
		if (strcmp(entry->mnt_type, "cgroup2") == 0)
			snprintf(f->cgroup_root, sizeof(f->cgroup_root), "%s/tinderbox-test-%d",
				entry->mnt_dir, getpid());
	if (mounts)
		endmntent(mounts);
	if (f->cgroup_root[0] && mkdir(f->cgroup_root, 0755) < 0 && errno != EEXIST)
		f->cgroup_root[0] = '\0';
}

static inline void start_listening(struct fixture *f)
{
	f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	f->address = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* An abstract name: nothing is left in a folder. */
	f->address_length =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			    (size_t)snprintf(f->address.sun_path + 1, sizeof(f->address.sun_path) - 1,
				    "tinderbox-guest-test-%d", getpid()));
	assert_int_equal(bind(f->listener, (struct sockaddr *)&f->address, f->address_length), 0);
	assert_int_equal(listen(f->listener, 128), 0);
}

/* Where the agent's own stream goes: one test is at work at a time. Port 0: there is no host. */
static struct {
	struct sockaddr_in address;
	int tries;
	unsigned turn; /* of the last one */
} test_host;

static inline int connect_to_test_host(unsigned turn)
{
	int fd;

	test_host.tries++;
	test_host.turn = turn;
	if (test_host.address.sin_port == 0)
		return -ENODEV;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&test_host.address, sizeof(test_host.address)) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

/* What the root of the guest is made of; NULL: of nothing that it could tell changes of. */
static const struct layers *test_layers;

static inline int fixture_start(void **state, bool cgroups)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct agent_config config;
	sigset_t all;

	assert_non_null(f);
	f->fds_before = count_fds();
	/* What this process was started with is none of a command's. */
	assert_int_equal(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC), 0);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	/* Orphans come to us, as they come to PID 1. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	log_init("test", LOG_LEVEL_ERROR);
	f->loop = loop_create();
	assert_non_null(f->loop);
	if (cgroups)
		find_cgroup(f);
	start_listening(f);
	config = (struct agent_config){
		.loop = f->loop,
		.listen_fd = f->listener,
		.cgroup_root = f->cgroup_root[0] ? f->cgroup_root : NULL,
		.users = &users_files_system,
		.identity = &fake_identity_ops,
		.identity_context = &f->identity,
		.layers = test_layers,
		.connect = connect_to_test_host,
		.shutdown = fake_shutdown,
		.shutdown_context = f,
		.childless = note_childless,
		.childless_context = f,
		.warnings = &f->warnings,
	};
	assert_int_equal(agent_create(&config, &f->agent), 0);
	assert_non_null(loop_add_signal(f->loop, SIGCHLD, on_child, f));
	*state = f;
	return 0;
}

static inline int setup(void **state)
{
	return fixture_start(state, true);
}

static inline int setup_without_cgroups(void **state)
{
	return fixture_start(state, false);
}

/* Ends what a test has left running in it, and removes it. */
static inline bool remove_cgroup(const struct fixture *f)
{
	char path[300];
	int fd;

	if (!f->cgroup_root[0])
		return true;
	snprintf(path, sizeof(path), "%s/cgroup.kill", f->cgroup_root);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(fd, "1", 1), 1);
	close(fd);
	while (waitpid(-1, NULL, 0) > 0)
		;
	for (int i = 0; i < CGROUP_GROUPS_MAX; i++) {
		snprintf(path, sizeof(path), "%s/tinderbox/%d", f->cgroup_root, i);
		rmdir(path);
	}
	snprintf(path, sizeof(path), "%s/tinderbox", f->cgroup_root);
	rmdir(path);
	return rmdir(f->cgroup_root) == 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	bool removed;
	int leaked;

	agent_destroy(f->agent);
	removed = remove_cgroup(f);
	while (waitpid(-1, NULL, 0) > 0)
		;
	loop_destroy(f->loop);
	fd_close(&f->listener);
	leaked = count_fds() - f->fds_before;
	free(f);
	if (leaked)
		print_error("%d fds leaked\n", leaked);
	if (!removed)
		print_error("a cgroup is left over\n");
	return leaked || !removed ? -1 : 0;
}

/* ---- clients ---- */

static inline uint64_t test_now_ms(void)
{
	return session_now_ns() / 1000000;
}

static inline void client_open(struct fixture *f, struct client *client)
{
	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(client->fd >= 0);
	assert_int_equal(connect(client->fd, (struct sockaddr *)&f->address, f->address_length), 0);
	assert_int_equal(fd_set_nonblock(client->fd), 0);
	assert_int_equal(frame_reader_init(&client->reader, AGENT_FRAME_MAX), 0);
}

static inline void client_close(struct client *client)
{
	fd_close(&client->fd);
	frame_reader_finish(&client->reader);
}

static inline void client_send_raw(struct fixture *f, struct client *client, const void *data, size_t length)
{
	uint64_t end = test_now_ms() + WAIT_MS;
	const uint8_t *bytes = data;

	while (length > 0) {
		ssize_t n = send(client->fd, bytes, length, MSG_NOSIGNAL);

		if (n > 0) {
			bytes += n;
			length -= (size_t)n;
			continue;
		}
		/* The agent has closed: what was to be refused may be longer than what it reads. */
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return;
		assert_int_equal(errno, EAGAIN);
		assert_true(test_now_ms() < end);
		loop_turn(f->loop, TURN_MS);
	}
}

static inline void client_send(
	struct fixture *f, struct client *client, uint8_t type, const void *payload, size_t length)
{
	struct agent_frame_header header = {.length = (uint32_t)length, .type = type};

	client_send_raw(f, client, &header, sizeof(header));
	client_send_raw(f, client, payload, length);
}

/* 1: a frame; 0: end of the stream. */
static inline int client_next(struct fixture *f, struct client *client, struct frame *frame)
{
	uint64_t end = test_now_ms() + WAIT_MS;

	for (;;) {
		int r = frame_reader_next(&client->reader, frame);

		assert_true(r >= 0);
		if (r == 1)
			return 1;
		r = frame_reader_fill(&client->reader, client->fd);
		/* A reset is how a Unix socket tells that the peer closed with our bytes unread. */
		if (r == 0 || r == -ECONNRESET) {
			assert_false(frame_reader_partial(&client->reader));
			return 0;
		}
		if (r > 0)
			continue;
		assert_int_equal(r, -EAGAIN);
		if (test_now_ms() >= end)
			fail_msg("no frame came in %d ms", WAIT_MS);
		loop_turn(f->loop, TURN_MS);
	}
}

static inline void client_expect(struct fixture *f, struct client *client, uint8_t type, struct frame *frame)
{
	if (client_next(f, client, frame) != 1)
		fail_msg("the stream ended before frame 0x%x", type);
	if (frame->type != type)
		fail_msg("frame 0x%x came, not 0x%x", frame->type, type);
}

static inline void client_expect_end(struct fixture *f, struct client *client)
{
	struct frame frame;

	if (client_next(f, client, &frame) != 0)
		fail_msg("frame 0x%x came, not the end", frame.type);
}

/* ERROR with this errno and text, then the end. */
static inline void client_expect_error(struct fixture *f, struct client *client, int error, const char *text)
{
	struct agent_status status;
	struct frame frame;

	client_expect(f, client, AGENT_ERROR, &frame);
	assert_true(frame.length >= sizeof(status));
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.text_length, frame.length - sizeof(status));
	if (strlen(text) != status.text_length ||
		memcmp(text, frame.payload + sizeof(status), status.text_length) != 0)
		fail_msg("the error says \"%.*s\", not \"%s\"", (int)status.text_length,
			(const char *)frame.payload + sizeof(status), text);
	assert_int_equal(status.status, error);
	client_expect_end(f, client);
}

static inline void give_identity_of(struct fixture *f, uint8_t machine)
{
	struct agent_control control = {.version = AGENT_PROTO_VERSION};
	struct agent_identity identity = {.realtime_ns = 1, .machine_id = {machine}, .hostname = "sandbox-1"};
	struct agent_status status;
	struct client client;
	struct frame frame;

	client_open(f, &client);
	client_send(f, &client, AGENT_CONTROL, &control, sizeof(control));
	client_expect(f, &client, AGENT_HELLO, &frame);
	client_send(f, &client, AGENT_IDENTITY, &identity, sizeof(identity));
	client_expect(f, &client, AGENT_IDENTITY_DONE, &frame);
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.status, 0);
	client_close(&client);
}

static inline void give_identity(struct fixture *f)
{
	give_identity_of(f, 1);
}

/* ---- commands ---- */

struct command {
	const char *const *argv;
	const char *const *env;
	const char *cwd, *user;
	uint64_t id, deadline_ms, memory_max;
	uint32_t flags, pids_max;
};

static inline size_t add_string(char *at, const char *string)
{
	strcpy(at, string);
	return strlen(string) + 1;
}

/* A NEW frame's payload in a buffer of AGENT_FRAME_MAX. */
static inline size_t make_new(const struct command *command, char *payload)
{
	struct agent_new new = {
		.session = command->id ? command->id : 1,
		.flags = command->flags,
		.deadline_ms = command->deadline_ms,
		.memory_max = command->memory_max,
		.pids_max = command->pids_max,
	};
	size_t at = sizeof(new);

	for (; command->argv && command->argv[new.argc]; new.argc++)
		at += add_string(payload + at, command->argv[new.argc]);
	for (; command->env && command->env[new.envc]; new.envc++)
		at += add_string(payload + at, command->env[new.envc]);
	at += add_string(payload + at, command->cwd ? command->cwd : "/");
	at += add_string(payload + at, command->user ? command->user : "");
	new.strings_length = (uint32_t)(at - sizeof(new));
	memcpy(payload, &new, sizeof(new));
	return at;
}

static inline void client_new(struct fixture *f, struct client *client, const struct command *command)
{
	char *payload = malloc(AGENT_FRAME_MAX);

	assert_non_null(payload);
	client_send(f, client, AGENT_NEW, payload, make_new(command, payload));
	free(payload);
}

struct outcome {
	struct agent_exit exit;
	bool started;
	char out[4096], err[4096]; /* the first of each */
	size_t out_length, err_length;
	uint64_t out_total, err_total;
};

static inline void note_output(char *text, size_t *length, uint64_t *total, const struct frame *frame)
{
	struct agent_output output;
	size_t bytes = frame->length - sizeof(output), room = 4095 - *length;

	memcpy(&output, frame->payload, sizeof(output));
	assert_int_equal(output.offset, *total);
	*total += bytes;
	memcpy(text + *length, frame->payload + sizeof(output), bytes < room ? bytes : room);
	*length += bytes < room ? bytes : room;
	text[*length] = '\0';
}

/* Everything up to EXIT and the end. Offsets must be gapless from where the outcome stands. */
static inline void client_finish(struct fixture *f, struct client *client, struct outcome *outcome)
{
	struct frame frame;

	for (;;) {
		if (client_next(f, client, &frame) != 1)
			fail_msg("the stream ended without EXIT");
		if (frame.type == AGENT_STARTED)
			outcome->started = true;
		else if (frame.type == AGENT_STDOUT)
			note_output(outcome->out, &outcome->out_length, &outcome->out_total, &frame);
		else if (frame.type == AGENT_STDERR)
			note_output(outcome->err, &outcome->err_length, &outcome->err_total, &frame);
		else if (frame.type == AGENT_EXIT)
			break;
		else if (frame.type != AGENT_STDIN_CREDIT)
			fail_msg("frame 0x%x", frame.type);
	}
	assert_int_equal(frame.length, sizeof(outcome->exit));
	memcpy(&outcome->exit, frame.payload, sizeof(outcome->exit));
	assert_int_equal(outcome->exit.stdout_bytes, outcome->out_total);
	assert_int_equal(outcome->exit.stderr_bytes, outcome->err_total);
	client_expect_end(f, client);
	client_close(client);
}

static inline void run_command(struct fixture *f, const struct command *command, struct outcome *outcome)
{
	struct client client;

	memset(outcome, 0, sizeof(*outcome));
	client_open(f, &client);
	client_new(f, &client, command);
	client_finish(f, &client, outcome);
}

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SHELL(script) ARGV("/bin/sh", "-c", script)

static inline void turn_for(struct fixture *f, uint64_t ms)
{
	uint64_t end = test_now_ms() + ms;

	while (test_now_ms() < end)
		loop_turn(f->loop, 5);
}

static inline void expect_runs(struct fixture *f, uint64_t id)
{
	struct command command = {.argv = ARGV("/bin/true"), .id = id};
	struct outcome outcome;

	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
}

#endif
