/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/session.h"
#include "common/io.h"
#include "guest-init/tty.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	RINGS_PER_SESSION = SESSION_OUTPUTS + 1,
	TTY_DRAIN_MAX = 64 * 1024, /* more than a terminal's buffers hold */
};
static const size_t memory_bytes = (size_t)AGENT_SESSIONS_MAX * RINGS_PER_SESSION * RING_SIZE;

/* What is not here is not allowed. */
static const uint8_t transitions[SESSION_STATES][SESSION_EVENTS] = {
	[SESSION_FREE] = {[SESSION_START] = SESSION_RUNNING, [SESSION_FAIL] = SESSION_ENDED},
	[SESSION_RUNNING] = {[SESSION_END] = SESSION_ENDING, [SESSION_LEADER_ENDED] = SESSION_DRAINING},
	[SESSION_ENDING] = {[SESSION_END] = SESSION_ENDING, [SESSION_LEADER_ENDED] = SESSION_DRAINING},
	[SESSION_DRAINING] = {[SESSION_DRAINED] = SESSION_ENDED},
	[SESSION_ENDED] = {[SESSION_EVICT] = SESSION_FREE},
};

/* False, and nothing changes, when the event is not allowed in this state. */
bool session_step(struct session *session, enum session_event event)
{
	uint8_t next = transitions[session->state][event];

	if (next == 0)
		return false;
	session->state = next;
	return true;
}

static void init_slot(struct sessions *sessions, int index)
{
	struct session *session = &sessions->slots[index];
	uint8_t *memory = sessions->memory + (size_t)index * RINGS_PER_SESSION * RING_SIZE;

	session->sessions = sessions;
	session->state = SESSION_FREE;
	session->in.fd = -1;
	session->in.ring.bytes = memory;
	for (int i = 0; i < SESSION_OUTPUTS; i++) {
		session->out[i].session = session;
		session->out[i].fd = -1;
		session->out[i].ring.bytes = memory + (size_t)(i + 1) * RING_SIZE;
	}
}

int sessions_create(
	struct loop *loop, struct cgroup_set *groups, const struct users_files *users, struct sessions **out)
{
	struct sessions *sessions = calloc(1, sizeof(*sessions));
	int r;

	*out = NULL;
	if (!sessions)
		return -ENOMEM;
	sessions->loop = loop;
	sessions->groups = groups;
	sessions->users = users;
	sessions->memory = MAP_FAILED;
	sessions->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (sessions->null_fd < 0)
		goto fail;
	sessions->memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sessions->memory == MAP_FAILED)
		goto fail;
	/* The process of a HOLD has no use for it: nothing of it is copied while that waits. */
	(void)madvise(sessions->memory, memory_bytes, MADV_DONTFORK);
	for (int i = 0; i < AGENT_SESSIONS_MAX; i++)
		init_slot(sessions, i);
	*out = sessions;
	return 0;
fail:
	r = -errno;
	sessions_destroy(sessions);
	return r;
}

static void destroy_slot(struct session *session)
{
	session_end(session, AGENT_KILLED);
	session_close_input(session);
	for (int i = 0; i < SESSION_OUTPUTS; i++)
		session_close_output(&session->out[i]);
	loop_remove(session->deadline);
}

void sessions_destroy(struct sessions *sessions)
{
	if (!sessions)
		return;
	if (sessions->memory != MAP_FAILED) {
		for (int i = 0; i < AGENT_SESSIONS_MAX; i++)
			destroy_slot(&sessions->slots[i]);
		munmap(sessions->memory, memory_bytes);
	}
	fd_close(&sessions->null_fd);
	free(sessions);
}

struct session *sessions_find(struct sessions *sessions, uint64_t id)
{
	for (int i = 0; i < AGENT_SESSIONS_MAX; i++)
		if (sessions->slots[i].state != SESSION_FREE && !sessions->slots[i].forgotten &&
			sessions->slots[i].id == id)
			return &sessions->slots[i];
	return NULL;
}

/* The leader is a child that we have not reaped, so its pid is its own; it may have left its cgroup. */
void session_end(struct session *session, enum agent_exit_kind cause)
{
	enum session_state before = session->state;

	if (!session_step(session, SESSION_END))
		return;
	if (before == SESSION_RUNNING)
		session->cause = cause;
	kill(-session->pid, SIGKILL);
	kill(session->pid, SIGKILL);
	cgroup_kill(session->group);
}

void sessions_stop(struct sessions *sessions)
{
	sessions->stopping = true;
	for (int i = 0; i < AGENT_SESSIONS_MAX; i++)
		if (sessions->slots[i].state == SESSION_RUNNING &&
			session_step(&sessions->slots[i], SESSION_END))
			sessions->slots[i].cause = AGENT_KILLED;
}

void session_evict(struct session *session)
{
	for (int i = 0; i < SESSION_OUTPUTS; i++)
		session_close_output(&session->out[i]);
	/* A session's rings lie in a row; their pages go back to the system. */
	madvise(session->in.ring.bytes, (size_t)RINGS_PER_SESSION * RING_SIZE, MADV_DONTNEED);
	session_step(session, SESSION_EVICT);
}

/* Ended, but children that were to be kept hold its output: they would die of a pipe that nobody reads. */
static bool has_output(const struct session *session)
{
	for (int i = 0; i < SESSION_OUTPUTS; i++)
		if (session->out[i].fd >= 0)
			return true;
	return false;
}

static void forget(struct session *session)
{
	const struct session_reader *reader = session->reader;

	session->forgotten = true;
	session_detach(session); /* goes on where a reader that was slow held it up */
	if (reader)
		reader->replaced(reader->context);
	if (session->state == SESSION_ENDED && !has_output(session))
		session_evict(session);
}

void sessions_forget(struct sessions *sessions)
{
	for (int i = 0; i < AGENT_SESSIONS_MAX; i++)
		if (sessions->slots[i].state != SESSION_FREE)
			forget(&sessions->slots[i]);
}

int session_resize(struct session *session, uint16_t rows, uint16_t columns, const char **why)
{
	*why = "RESIZE: this session has no tty";
	if (!(session->flags & AGENT_NEW_TTY))
		return -EPROTO;
	if (session->out[SESSION_STDOUT].fd >= 0)
		tty_resize(session->out[SESSION_STDOUT].fd, rows, columns);
	return 0;
}

void session_signal(struct session *session, int signal)
{
	if (session->state == SESSION_RUNNING || session->state == SESSION_ENDING)
		kill(-session->pid, signal);
}

static uint64_t timeval_us(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

/* How it ended: our own doing first, then what wait(2) says, and the OOM killer told apart by its counter. */
static void fill_exit(struct session *session, int status)
{
	struct agent_exit *exit = &session->exit;

	if (session->state == SESSION_ENDING) {
		exit->kind = session->cause;
	} else if (WIFEXITED(status)) {
		exit->kind = AGENT_EXITED;
		exit->code = WEXITSTATUS(status);
	} else {
		exit->kind = AGENT_SIGNALLED;
		exit->code = WTERMSIG(status);
		exit->core = WCOREDUMP(status) ? 1 : 0;
		if (exit->code == SIGKILL && cgroup_had_oom(session->group))
			exit->kind = AGENT_OUT_OF_MEMORY;
	}
}

/*
 * Where the output stands now is where it ends, whoever else still holds the pipe. A terminal does not say
 * how much waits in it: there the drain ends when nothing does, or at TTY_DRAIN_MAX.
 */
static void fix_limit(struct session_output *output)
{
	int waiting = 0;

	if (output->fd >= 0 && ioctl(output->fd, FIONREAD, &waiting) < 0)
		waiting = 0;
	if (output->fd >= 0 && output->session->flags & AGENT_NEW_TTY)
		waiting = TTY_DRAIN_MAX;
	output->limit = output->ring.end + (uint64_t)waiting;
}

/* What the leader left behind: gone, or kept and never waited for. */
static void end_children(struct session *session)
{
	bool keep = session->flags & AGENT_NEW_KEEP_CHILDREN;

	/* Without a cgroup this is the best there is. The number stays the group's own while anyone is in it.
	 */
	if (!session->group && !keep)
		kill(-session->pid, SIGKILL);
	cgroup_release(session->sessions->groups, session->group, keep);
	session->group = NULL;
}

static void leader_ended(struct session *session, int status, const struct rusage *usage)
{
	fill_exit(session, status);
	session->exit.wall_us = (session_now_ns() - session->started_ns) / 1000;
	session->exit.user_us = timeval_us(&usage->ru_utime);
	session->exit.system_us = timeval_us(&usage->ru_stime);
	session->exit.max_rss_kib = (uint64_t)usage->ru_maxrss;
	session_step(session, SESSION_LEADER_ENDED);
	for (int i = 0; i < SESSION_OUTPUTS; i++)
		fix_limit(&session->out[i]);
	session_pump(session);
	if (session->reader)
		session->reader->ready(session->reader->context);
	/* After EXIT is on its way, unless a slow reader holds it up. */
	if (session->deadline)
		loop_set_timer(session->deadline, 0);
	session_close_input(session);
	end_children(session);
}

void sessions_child_ended(struct sessions *sessions, pid_t pid, int status, const struct rusage *usage)
{
	for (int i = 0; i < AGENT_SESSIONS_MAX; i++) {
		struct session *session = &sessions->slots[i];

		if (session->pid == pid &&
			(session->state == SESSION_RUNNING || session->state == SESSION_ENDING)) {
			leader_ended(session, status, usage);
			return;
		}
	}
}

/* DRAINING, and all output is in: the exit is final. */
void session_finish_drain(struct session *session)
{
	if (!session_step(session, SESSION_DRAINED))
		return;
	session->exit.stdout_bytes = session->out[SESSION_STDOUT].ring.end;
	session->exit.stderr_bytes = session->out[SESSION_STDERR].ring.end;
	session->ended_order = ++session->sessions->ended;
	for (int i = 0; i < SESSION_OUTPUTS; i++) {
		struct session_output *output = &session->out[i];
		bool keep = output->fd >= 0 && (session->flags & AGENT_NEW_KEEP_CHILDREN);

		if (!keep || (!output->source && session_watch_output(output) < 0))
			session_close_output(output);
	}
}

bool session_is_over(const struct session *session)
{
	if (session->state != SESSION_ENDED)
		return false;
	for (int i = 0; i < SESSION_OUTPUTS; i++)
		if (session->out[i].taken < session->out[i].ring.end)
			return false;
	return true;
}
