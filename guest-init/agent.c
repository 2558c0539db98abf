/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/agent.h"
#include "common/io.h"
#include "common/log.h"
#include "guest-init/baseline.h"
#include "guest-init/changes.h"
#include "guest-init/hold.h"
#include "guest-init/standstill.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#ifndef GRND_INSECURE
#define GRND_INSECURE 4
#endif

struct agent {
	struct agent_config config;
	struct loop_source *listener;
	bool listening; /* false while there were no fds or memory for one more stream */
	bool identified;
	bool has_machine; /* machine_id was given once */
	uint8_t machine_id[AGENT_MACHINE_ID_BYTES];
	struct link link;
	struct loop_source *reaper; /* a timer, for children and groups that one turn leaves */
	struct hold hold;
	struct standstill still;
	struct agent_hello hello;
	struct cgroup_set groups;
	struct sessions *sessions;
	struct stream streams[AGENT_STREAMS_MAX];
};

struct loop *agent_loop(struct agent *agent)
{
	return agent->config.loop;
}

bool agent_is_stopping(const struct agent *agent)
{
	return agent->sessions->stopping;
}

/* ---- control ---- */

void agent_greet(struct agent *agent, struct stream *stream)
{
	const struct warnings *warnings = agent->config.warnings;

	agent->hello.warnings_length = (uint32_t)warnings->length;
	stream->kind = STREAM_CONTROL;
	stream_send(
		stream, AGENT_HELLO, &agent->hello, sizeof(agent->hello), warnings->text, warnings->length);
}

static void handle_control(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_control control;

	memcpy(&control, frame->payload, sizeof(control));
	if (control.reserved != 0)
		stream_refuse(stream, EPROTO, "CONTROL: reserved is not zero");
	else if (control.version != AGENT_PROTO_VERSION)
		stream_refuse(stream, EPROTONOSUPPORT, "CONTROL: this guest speaks version 2");
	else
		agent_greet(agent, stream);
}

/* What another machine's sessions were is nothing of this one's, though what runs of them runs on. */
static void change_machine(struct agent *agent, const uint8_t id[AGENT_MACHINE_ID_BYTES])
{
	if (agent->has_machine && memcmp(agent->machine_id, id, AGENT_MACHINE_ID_BYTES) != 0)
		sessions_forget(agent->sessions);
	agent->has_machine = true;
	memcpy(agent->machine_id, id, AGENT_MACHINE_ID_BYTES);
}

/* Before anything of a user's runs: unless the host says otherwise, that is against which it changes files.
 */
static void note_first_files(struct agent *agent)
{
	int r = baseline_ensure(agent->config.layers);

	if (r < 0 && r != -EOPNOTSUPP)
		log_error("the files at the start are not noted: %s", strerror(-r));
}

static void handle_identity(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_status status = {0};
	struct agent_identity identity;
	const char *step = "";
	int r;

	memcpy(&identity, frame->payload, sizeof(identity));
	if (identity_check(&identity) < 0) {
		stream_refuse(stream, EPROTO, "IDENTITY: the host name is not one");
		return;
	}
	if (identity_is_same_machine(&identity) && !agent->has_machine) {
		stream_refuse(stream, EPROTO, "IDENTITY: this guest had no machine id before");
		return;
	}
	r = identity_apply(&identity, agent->config.identity, agent->config.identity_context, &step);
	if (r == 0)
		note_first_files(agent);
	/* Before anything may be started. */
	if (r == 0 && (r = standstill_end(&agent->still)) < 0)
		step = "cgroup.freeze";
	agent->identified = r == 0;
	if (r == 0 && !identity_is_same_machine(&identity))
		change_machine(agent, identity.machine_id);
	explicit_bzero(&identity, sizeof(identity));
	if (stream->outgoing)
		link_proved(&agent->link);
	if (r == 0)
		step = "";
	else
		log_error("identity: %s: %s", step, strerror(-r));
	status.status = -r;
	status.text_length = (uint32_t)strlen(step);
	stream_send(stream, AGENT_IDENTITY_DONE, &status, sizeof(status), step, status.text_length);
}

static void handle_baseline(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_status status = {.status = -baseline_write(agent->config.layers)};

	(void)frame;
	stream_send(stream, AGENT_BASELINE_DONE, &status, sizeof(status), NULL, 0);
}

static void send_held(struct agent *agent, struct stream *stream, int error)
{
	const struct agent_status status = {.status = error};

	if (error == 0)
		standstill_expect(&agent->still);
	stream_send(stream, AGENT_HELD, &status, sizeof(status), NULL, 0);
}

static void handle_hold(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	int r = hold_begin(&agent->hold, agent->config.layers);

	(void)frame;
	if (r <= 0)
		send_held(agent, stream, -r);
	else
		stream->awaits_held = true;
}

/* Whoever asked may be gone. */
static void tell_held(struct agent *agent, int error)
{
	if (error)
		log_error("the files cannot be written to the disk: %s", strerror(error));
	for (int i = 0; i < AGENT_STREAMS_MAX; i++) {
		struct stream *stream = &agent->streams[i];

		if (!stream->awaits_held)
			continue;
		stream->awaits_held = false;
		if (stream->kind != STREAM_CONTROL)
			continue;
		send_held(agent, stream, error);
		stream_pump(stream);
	}
}

static void handle_shutdown(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_shutdown shutdown;

	memcpy(&shutdown, frame->payload, sizeof(shutdown));
	if (shutdown.reserved != 0 || shutdown.grace_ms > AGENT_SHUTDOWN_GRACE_MAX_MS)
		stream_refuse(stream, EPROTO, "SHUTDOWN: the grace is too long, or reserved is not zero");
	else
		agent->config.shutdown(agent->config.shutdown_context, shutdown.grace_ms);
}

/* ---- sessions ---- */

static void send_started(struct stream *stream, const struct session *session)
{
	struct agent_started started = {
		.session = session->id,
		.pid = (uint32_t)session->pid,
		.stdin_offset = session->in.ring.end,
	};

	if (session->pid == 0)
		return; /* failed to start: EXIT alone says so */
	if (session->in.open && !session->in.eof)
		started.stdin_credit = (uint32_t)(session->in.allowed - session->in.ring.end);
	stream_send(stream, AGENT_STARTED, &started, sizeof(started), NULL, 0);
}

/* 0, or -errno with *why. */
static int start_session(
	struct agent *agent, const struct frame *frame, struct session **session, const char **why)
{
	struct agent_new_view view;
	int r = frame_parse_new(frame, &view, why);

	if (r < 0)
		return r;
	*why = "NEW: this guest has no identity yet (IDENTITY comes first)";
	if (!agent->identified)
		return -EPERM;
	return session_start(agent->sessions, &view, session, why);
}

static void handle_new(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct session *session;
	const char *why;
	int r = start_session(agent, frame, &session, &why);

	if (r < 0) {
		stream_refuse(stream, -r, why);
		return;
	}
	session_attach(session, &stream->link, 0, 0, &why); /* cannot fail: nothing was written yet */
	stream_bind(stream, session);
	send_started(stream, session);
}

static void handle_attach(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_attach attach;
	struct session *session;
	const char *why = "ATTACH: no such session";
	int r = -ENOENT;

	memcpy(&attach, frame->payload, sizeof(attach));
	session = sessions_find(agent->sessions, attach.session);
	if (session)
		r = session_attach(session, &stream->link, attach.stdout_offset, attach.stderr_offset, &why);
	if (r < 0) {
		stream_refuse(stream, -r, why);
		return;
	}
	stream_bind(stream, session);
	send_started(stream, session);
}

static void handle_stdin(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	const char *why;

	(void)agent;
	if (session_put_stdin(stream->session, frame->payload, frame->length, &why) < 0)
		stream_refuse(stream, EPROTO, why);
}

static void handle_stdin_eof(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	const char *why;

	(void)agent;
	(void)frame;
	if (session_end_stdin(stream->session, &why) < 0)
		stream_refuse(stream, EPROTO, why);
}

static void handle_signal(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_signal signal;

	(void)agent;
	memcpy(&signal, frame->payload, sizeof(signal));
	if (signal.signal < 1 || signal.signal > 64 || signal.reserved != 0)
		stream_refuse(stream, EPROTO, "SIGNAL: not 1..64, or reserved is not zero");
	else
		session_signal(stream->session, (int)signal.signal);
}

static void handle_resize(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_resize resize;
	const char *why = "RESIZE: reserved is not zero";

	(void)agent;
	memcpy(&resize, frame->payload, sizeof(resize));
	if (resize.reserved != 0 || session_resize(stream->session, resize.rows, resize.cols, &why) < 0)
		stream_refuse(stream, EPROTO, why);
}

static void handle_kill(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	(void)agent;
	(void)frame;
	session_end(stream->session, AGENT_KILLED);
}

/* ---- changes ---- */

static bool is_listing(const struct agent *agent)
{
	for (int i = 0; i < AGENT_STREAMS_MAX; i++)
		if (agent->streams[i].changes)
			return true;
	return false;
}

/* NULL, or what is wrong. */
static const char *check_changes(const struct agent_changes *fixed, const struct frame *frame)
{
	const uint8_t *after = frame->payload + sizeof(*fixed);

	if (fixed->limit < 1 || fixed->limit > AGENT_CHANGES_MAX)
		return "CHANGES: limit is not 1..4096";
	if (fixed->after_length != frame->length - sizeof(*fixed))
		return "CHANGES: the path has another length";
	if (fixed->after_length > 0 && (after[0] != '/' || memchr(after, '\0', fixed->after_length)))
		return "CHANGES: the path is not absolute, or has a NUL";
	return NULL;
}

static void handle_changes(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	struct agent_changes fixed;
	const char *why;
	int r;

	memcpy(&fixed, frame->payload, sizeof(fixed));
	why = check_changes(&fixed, frame);
	if (why) {
		stream_refuse(stream, EPROTO, why);
		return;
	}
	if (!agent->identified) {
		stream_refuse(
			stream, EPERM, "CHANGES: this guest has no identity yet (IDENTITY comes first)");
		return;
	}
	if (is_listing(agent)) {
		stream_refuse(stream, EAGAIN, "CHANGES: others are being told");
		return;
	}
	r = changes_begin(agent->config.layers, (const char *)frame->payload + sizeof(fixed),
		fixed.after_length, fixed.limit, &stream->changes);
	if (r == -EOPNOTSUPP)
		stream_refuse(stream, EOPNOTSUPP, "CHANGES: the root is not an overlay");
	else if (r < 0)
		stream_refuse(stream, -r, STREAM_CHANGES_FAILED);
	else
		stream->kind = STREAM_CHANGES;
}

/* ---- frames ---- */

/* Which frame may come on which kind of stream, and how long it may be. What is not here is refused. */
static const struct rule {
	uint8_t type;
	uint8_t kinds; /* of enum stream_kind */
	uint32_t minimum, maximum;
	void (*handle)(struct agent *agent, struct stream *stream, const struct frame *frame);
} rules[] = {
	{AGENT_CONTROL, STREAM_FRESH | STREAM_CONTROL, sizeof(struct agent_control),
		sizeof(struct agent_control), handle_control},
	{AGENT_NEW, STREAM_FRESH, 0, AGENT_FRAME_MAX, handle_new},
	{AGENT_ATTACH, STREAM_FRESH, sizeof(struct agent_attach), sizeof(struct agent_attach), handle_attach},
	{AGENT_CHANGES, STREAM_FRESH, sizeof(struct agent_changes),
		sizeof(struct agent_changes) + AGENT_PATH_MAX, handle_changes},
	{AGENT_BASELINE, STREAM_CONTROL, 0, 0, handle_baseline},
	{AGENT_HOLD, STREAM_CONTROL, 0, 0, handle_hold},
	{AGENT_IDENTITY, STREAM_CONTROL, sizeof(struct agent_identity), sizeof(struct agent_identity),
		handle_identity},
	{AGENT_SHUTDOWN, STREAM_CONTROL, sizeof(struct agent_shutdown), sizeof(struct agent_shutdown),
		handle_shutdown},
	{AGENT_STDIN, STREAM_SESSION, 0, AGENT_DATA_MAX, handle_stdin},
	{AGENT_STDIN_EOF, STREAM_SESSION, 0, 0, handle_stdin_eof},
	{AGENT_SIGNAL, STREAM_SESSION, sizeof(struct agent_signal), sizeof(struct agent_signal),
		handle_signal},
	{AGENT_RESIZE, STREAM_SESSION, sizeof(struct agent_resize), sizeof(struct agent_resize),
		handle_resize},
	{AGENT_KILL, STREAM_SESSION, 0, 0, handle_kill},
};

void agent_handle_frame(struct agent *agent, struct stream *stream, const struct frame *frame)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const struct rule *rule = &rules[i];

		if (rule->type != frame->type)
			continue;
		if (!(rule->kinds & stream->kind))
			stream_refuse(stream, EPROTO, "this frame is out of order on this stream");
		else if (frame->length < rule->minimum || frame->length > rule->maximum)
			stream_refuse(stream, EPROTO, "this frame has a wrong length");
		else
			rule->handle(agent, stream, frame);
		return;
	}
	stream_refuse(stream, EPROTO, "a frame of unknown type");
}

/* ---- streams ---- */

static struct stream *free_stream(struct agent *agent)
{
	for (int i = 0; i < AGENT_STREAMS_MAX; i++)
		if (agent->streams[i].fd < 0)
			return &agent->streams[i];
	return NULL;
}

static bool is_host(const struct sockaddr_storage *address)
{
	const struct sockaddr_vm *vm = (const struct sockaddr_vm *)address;

	return address->ss_family != AF_VSOCK || vm->svm_cid == VMADDR_CID_HOST;
}

static void add_incoming(struct agent *agent, int fd)
{
	static const char text[] = "too many streams";
	const struct agent_status status = {.status = EAGAIN, .text_length = sizeof(text) - 1};
	struct stream *stream = free_stream(agent);
	int r;

	if (!stream) {
		log_warn("a stream is refused: %s", text);
		frame_write(fd, AGENT_ERROR, &status, sizeof(status), text, status.text_length);
		fd_close(&fd);
		return;
	}
	r = stream_open(stream, agent, fd, false);
	if (r < 0)
		log_error("cannot serve a stream: %s", strerror(-r));
	link_hurry(&agent->link);
}

static void accept_stream(void *context, uint32_t events)
{
	struct agent *agent = context;
	struct sockaddr_storage address = {0};
	socklen_t length = sizeof(address);
	int fd = accept4(
		agent->config.listen_fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)events;
	if (fd >= 0 && is_host(&address)) {
		add_incoming(agent, fd);
	} else if (fd >= 0) {
		log_warn("a stream is refused: it is not from the host");
		fd_close(&fd);
	} else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
		/* No fd or no memory: trying again at once would spin. A child's end may free some. */
		log_error("cannot accept: %s", strerror(errno));
		agent->listening = loop_set_events(agent->listener, 0) < 0;
	}
}

int agent_add_outgoing(struct agent *agent, int fd)
{
	struct stream *stream = free_stream(agent);

	if (stream)
		return stream_open(stream, agent, fd, true);
	fd_close(&fd);
	return -EAGAIN;
}

int agent_open_link(struct agent *agent)
{
	return link_open(&agent->link);
}

void agent_connected(struct agent *agent)
{
	link_connected(&agent->link);
}

void agent_link_ended(struct agent *agent)
{
	agent->identified = false;
	standstill_begin(&agent->still);
	link_ended(&agent->link);
}

void agent_connect_failed(struct agent *agent, int error)
{
	/* Later tries have nothing new to say. */
	if (agent->link.stood)
		return;
	/* Nothing is missing in the guest: the host may come to our port when it likes. */
	log_info("vsock: nobody at the host's port %d: %s", AGENT_HOST_PORT, strerror(error));
}

/* ---- life ---- */

/* As wait4. */
static pid_t reap_one(struct agent *agent)
{
	struct rusage usage;
	int status, error;
	pid_t pid = wait4(-1, &status, WNOHANG, &usage);

	if (pid <= 0)
		return pid;
	if (hold_ended(&agent->hold, pid, status, &error))
		tell_held(agent, error);
	else
		sessions_child_ended(agent->sessions, pid, status, &usage);
	return pid;
}

void agent_reap(struct agent *agent)
{
	pid_t last = 1;
	bool more;

	for (int i = 0; i < AGENT_REAP_MAX && last > 0; i++)
		last = reap_one(agent);
	more = cgroup_set_sweep(&agent->groups) || last > 0;
	if (more)
		loop_set_timer(agent->reaper, 1);
	if (agent->listener && !agent->listening)
		agent->listening = loop_set_events(agent->listener, EPOLLIN) == 0;
	if (last < 0 && agent->config.childless)
		agent->config.childless(agent->config.childless_context);
}

static void reap_on(void *context)
{
	agent_reap(context);
}

void agent_stop(struct agent *agent)
{
	sessions_stop(agent->sessions);
}

static void fill_hello(struct agent_hello *hello)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	hello->version = AGENT_PROTO_VERSION;
	hello->boot_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	/* Told apart from other boots, not kept secret: so it does not wait for the pool to be seeded. */
	if (getrandom(hello->boot_id, sizeof(hello->boot_id), GRND_INSECURE) < 0)
		log_warn("no random boot id: %s", strerror(errno));
}

int agent_create(const struct agent_config *config, struct agent **out)
{
	struct agent *agent = calloc(1, sizeof(*agent));
	int r;

	*out = NULL;
	if (!agent)
		return -ENOMEM;
	agent->config = *config;
	for (int i = 0; i < AGENT_STREAMS_MAX; i++)
		agent->streams[i].fd = -1;
	/* The host's control stream and the first command's. */
	for (int i = 0; i < AGENT_STREAMS_READY; i++)
		stream_init(&agent->streams[i]);
	cgroup_set_init(&agent->groups, config->cgroup_root, config->warnings);
	r = sessions_create(config->loop, &agent->groups, config->users, &agent->sessions);
	if (r < 0)
		goto fail;
	r = link_init(&agent->link, config->loop, agent, config->connect);
	if (r < 0)
		goto fail;
	agent->reaper = loop_add_timer(config->loop, reap_on, agent);
	if (!agent->reaper) {
		r = -errno;
		goto fail;
	}
	standstill_init(&agent->still, config->loop, &agent->groups);
	fill_hello(&agent->hello);
	agent->listening = true;
	if (config->listen_fd >= 0) {
		agent->listener = loop_add_fd(config->loop, config->listen_fd, EPOLLIN, accept_stream, agent);
		if (!agent->listener) {
			r = -errno;
			goto fail;
		}
	}
	*out = agent;
	return 0;
fail:
	agent_destroy(agent);
	return r;
}

void agent_destroy(struct agent *agent)
{
	if (!agent)
		return;
	loop_remove(agent->listener);
	loop_remove(agent->reaper);
	link_finish(&agent->link);
	for (int i = 0; i < AGENT_STREAMS_MAX; i++)
		stream_finish(&agent->streams[i]);
	sessions_destroy(agent->sessions);
	standstill_finish(&agent->still);
	cgroup_set_finish(&agent->groups);
	free(agent);
}
