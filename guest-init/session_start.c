/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io.h"
#include "guest-init/session.h"
#include "guest-init/spawn.h"
#include "guest-init/tty.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t deadline_max_ms = 100ULL * 366 * 24 * 3600 * 1000; /* a later one is this one */

/* What the child gets, and what must be closed after it has it. */
struct start {
	struct spawn_request request;
	struct user user;
	int pipes[3]; /* the child's ends; -1: /dev/null; a terminal is the first alone */
	char home[sizeof("HOME=") + USERS_HOME_MAX];
};

/* A free slot, or that of the session that ended first and that nobody reads. NULL: there is none. */
static struct session *new_slot(struct sessions *sessions)
{
	struct session *oldest = NULL;

	for (int i = 0; i < AGENT_SESSIONS_MAX; i++) {
		struct session *session = &sessions->slots[i];

		if (session->state == SESSION_FREE)
			return session;
		if (session->state == SESSION_ENDED && !session->reader &&
			(!oldest || session->ended_order < oldest->ended_order))
			oldest = session;
	}
	if (oldest)
		session_evict(oldest);
	return oldest;
}

static void reset(struct session *session, const struct agent_new *new)
{
	session->id = new->session;
	session->flags = new->flags;
	session->forgotten = false;
	session->pid = 0;
	session->group = NULL;
	session->reader = NULL;
	session->started_ns = session_now_ns();
	session->exit = (struct agent_exit){0};
	session->in = (struct session_input){
		.fd = -1,
		.ring.bytes = session->in.ring.bytes,
		.open = (new->flags &AGENT_NEW_STDIN) != 0,
	};
	for (int i = 0; i < SESSION_OUTPUTS; i++) {
		session->out[i].ring.end = session->out[i].taken = 0;
		session->out[i].limit = UINT64_MAX;
	}
}

static void deadline_passed(void *context)
{
	session_end(context, AGENT_TIMED_OUT);
}

static int set_deadline(struct session *session, uint64_t ms)
{
	if (ms == 0)
		return 0;
	if (!session->deadline)
		session->deadline = loop_add_timer(session->sessions->loop, deadline_passed, session);
	if (!session->deadline)
		return -errno;
	return loop_set_timer(session->deadline, (ms < deadline_max_ms ? ms : deadline_max_ms) * 1000000);
}

static int make_input(struct session *session, int *child_end)
{
	int fds[2];

	if (!session->in.open)
		return 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*child_end = fds[0];
	session->in.fd = fds[1];
	return fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int make_output(struct session_output *output, int *child_end)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	*child_end = fds[1];
	output->fd = fds[0];
	/* The command may open the pipe through /proc and read from it: then we must not wait for bytes. */
	if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return session_watch_output(output);
}

/* One fd of the master for each direction, since each has its own place in the loop. */
static int make_terminal(struct session *session, const struct agent_new *new, struct start *start)
{
	struct session_output *output = &session->out[SESSION_STDOUT];
	int r = tty_open(new->rows, new->cols, start->user.uid, &output->fd, &start->pipes[0]);

	if (r < 0)
		return r;
	start->request.terminal = 1;
	for (int i = 0; i < 3; i++)
		start->request.stdio[i] = start->pipes[0];
	if (session->in.open) {
		session->in.fd = fcntl(output->fd, F_DUPFD_CLOEXEC, 3);
		if (session->in.fd < 0)
			return -errno;
	}
	return session_watch_output(output);
}

static int make_pipes(struct session *session, struct start *start)
{
	int r = make_input(session, &start->pipes[0]);

	for (int i = 0; r == 0 && i < SESSION_OUTPUTS; i++)
		r = make_output(&session->out[i], &start->pipes[i + 1]);
	for (int i = 0; i < 3; i++)
		start->request.stdio[i] = start->pipes[i] >= 0 ? start->pipes[i] : session->sessions->null_fd;
	return r;
}

/* argv, then env with PATH and HOME added where they are missing; the strings stay where they are. */
static void set_strings(struct sessions *sessions, const struct agent_new_view *view, struct start *start)
{
	char **vector = sessions->vector;
	char *string = (char *)view->strings; /* execve's type; nobody writes */
	const char *path = NULL;
	bool has_home = false;
	size_t at = 0;

	start->request.argv = vector;
	for (uint32_t i = 0; i < view->fixed.argc; i++, string += strlen(string) + 1)
		vector[at++] = string;
	vector[at++] = NULL;
	start->request.envp = &vector[at];
	for (uint32_t i = 0; i < view->fixed.envc; i++, string += strlen(string) + 1) {
		vector[at++] = string;
		if (!path && strncmp(string, "PATH=", 5) == 0)
			path = string + 5;
		has_home = has_home || strncmp(string, "HOME=", 5) == 0;
	}
	if (!path)
		vector[at++] = (char *)"PATH=" AGENT_DEFAULT_PATH;
	start->request.path = path ? path : AGENT_DEFAULT_PATH;
	snprintf(start->home, sizeof(start->home), "HOME=%s", start->user.home);
	if (!has_home)
		vector[at++] = start->home;
	vector[at] = NULL;
	start->request.cwd = view->cwd[0] ? view->cwd : start->user.home;
}

static int find_user(struct sessions *sessions, const char *name, struct user *user)
{
	if (name[0])
		return users_find(sessions->users, name, user);
	users_root(user);
	return 0;
}

/* Everything up to the clone. 0, or -errno with the step that failed. */
static int prepare(struct session *session, const struct agent_new_view *view, struct start *start,
	enum agent_start_step *step)
{
	struct sessions *sessions = session->sessions;
	int r;

	*step = AGENT_STEP_USER;
	r = find_user(sessions, view->user, &start->user);
	if (r < 0)
		return r;
	*step = AGENT_STEP_CGROUP;
	r = cgroup_take(sessions->groups, view->fixed.memory_max, view->fixed.pids_max, &session->group);
	if (r < 0)
		return r;
	start->request.cgroup_fd = session->group ? session->group->fd : -1;
	*step = AGENT_STEP_PIPES;
	if (view->fixed.flags & AGENT_NEW_TTY)
		r = make_terminal(session, &view->fixed, start);
	else
		r = make_pipes(session, start);
	set_strings(sessions, view, start);
	return r;
}

/* The session ends before it began; nothing of it is left but its exit. */
static void fail(struct session *session, enum agent_start_step step, int error)
{
	session->exit = (struct agent_exit){
		.kind = AGENT_FAILED_TO_START,
		.step = (uint16_t)step,
		.code = error,
		.wall_us = (session_now_ns() - session->started_ns) / 1000,
	};
	session_close_input(session);
	for (int i = 0; i < SESSION_OUTPUTS; i++)
		session_close_output(&session->out[i]);
	cgroup_release(session->sessions->groups, session->group, false);
	session->group = NULL;
	if (session->deadline)
		loop_set_timer(session->deadline, 0);
	session->ended_order = ++session->sessions->ended;
	session_step(session, SESSION_FAIL);
}

/*
 * A root command may have removed the group that was ready, or made groups in it: then the kernel refuses the
 * clone, and another group is tried, once.
 */
static void spawn(struct session *session, const struct agent_new *new, struct start *start,
	struct spawn_failure *failure)
{
	struct cgroup_set *groups = session->sessions->groups;

	session->pid = spawn_start(&start->request, failure);
	if (session->pid > 0 || failure->step != AGENT_STEP_CLONE || !session->group)
		return;
	cgroup_kill(session->group);
	cgroup_release(groups, session->group, false);
	if (cgroup_take(groups, new->memory_max, new->pids_max, &session->group) < 0)
		return;
	start->request.cgroup_fd = session->group->fd;
	*failure = (struct spawn_failure){0};
	session->pid = spawn_start(&start->request, failure);
}

int session_start(
	struct sessions *sessions, const struct agent_new_view *view, struct session **out, const char **why)
{
	struct start start = {.request.user = &start.user, .pipes = {-1, -1, -1}};
	struct spawn_failure failure = {0};
	struct session *session;
	int r;

	*why = "NEW: this guest is shutting down";
	if (sessions->stopping)
		return -ESHUTDOWN;
	*why = "NEW: a session with this id is held";
	if (sessions_find(sessions, view->fixed.session))
		return -EEXIST;
	*why = "NEW: every session slot is in use";
	session = new_slot(sessions);
	if (!session)
		return -EAGAIN;
	reset(session, &view->fixed);
	*why = "NEW: no timer for the deadline";
	r = set_deadline(session, view->fixed.deadline_ms);
	if (r < 0)
		return r;
	r = prepare(session, view, &start, &failure.step);
	failure.error = -r;
	if (r == 0)
		spawn(session, &view->fixed, &start, &failure);
	for (int i = 0; i < 3; i++)
		fd_close(&start.pipes[i]);
	if (failure.error == 0) {
		session_step(session, SESSION_START);
	} else {
		session->pid = 0;
		fail(session, failure.step, failure.error);
	}
	*out = session;
	return 0;
}
