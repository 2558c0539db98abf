/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the fake agent outlive their streams, as a guest's do: each has a thread, which keeps the last
 * AGENT_OUTPUT_BUFFER bytes of each output, goes on without a stream, and is given the next one by the thread
 * of an ATTACH. One lock for all.
 */
#include "common/io.h"
#include "tests/fake-vmm/fake_vmm.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STAND_SECONDS = 1 };

struct fake_held {
	struct fake_held *next; /* the newest first */
	uint64_t id;
	int stream;	     /* of its thread, to be woken */
	int incoming;	     /* of who attached and is not served yet; or -1 */
	uint64_t at[2];	     /* what the one who is served has */
	uint64_t next_at[2]; /* and the one who comes */
	uint64_t end[2];
	uint8_t *bytes[2]; /* rings */
	uint64_t input;
	bool takes_input, returned, over, evicted, busy;
	struct agent_exit ending; /* of one that is over */
};

/* One in a state, before what it holds of its outputs. */
struct saved {
	uint64_t id, end[2], input;
	bool takes_input, over;
	struct agent_exit ending;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct fake_held *sessions;
static bool stands; /* the VM is paused */
static int busy;    /* sessions that are */

/* From then on no session begins, writes or ends, and what was taken in is put out: what is saved is all that
 * the host was told of. One that nobody reads is not waited for. */
void fake_stand(bool now)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += STAND_SECONDS;
	pthread_mutex_lock(&lock);
	stands = now;
	while (stands && busy && pthread_cond_timedwait(&changed, &lock, &end) == 0)
		;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void lock_running(const struct fake_held *held)
{
	pthread_mutex_lock(&lock);
	while (stands && !held->busy)
		pthread_cond_wait(&changed, &lock);
}

/* Locked. It has a frame that it has not done with. */
static void set_busy(struct fake_held *held, bool now)
{
	busy += now - held->busy;
	held->busy = now;
	pthread_cond_broadcast(&changed);
}

/* Beyond what a guest holds, those that ended give way, the oldest first. Locked. */
static void make_room(void)
{
	struct fake_held *over = NULL;
	int count = 0;

	for (struct fake_held *held = sessions; held; held = held->next, count++)
		if (held->over && !held->evicted)
			over = held;
	if (count < AGENT_SESSIONS_MAX || !over)
		return;
	over->evicted = true;
	pthread_cond_broadcast(&changed);
}

void fake_hold(struct fake *fake, bool has_input)
{
	struct fake_held *held = calloc(1, sizeof *held);

	if (!held)
		exit(VMM_END_SETUP);
	held->bytes[0] = malloc(2 * (size_t)AGENT_OUTPUT_BUFFER);
	if (!held->bytes[0])
		fake_fail("memory");
	held->bytes[1] = held->bytes[0] + AGENT_OUTPUT_BUFFER;
	held->id = fake->id;
	held->stream = fake->session;
	held->incoming = -1;
	held->takes_input = has_input;
	fake->held = held;
	lock_running(held);
	make_room();
	held->next = sessions;
	sessions = held;
	pthread_mutex_unlock(&lock);
}

static _Noreturn void evict(struct fake_held *held)
{
	struct fake_held **link = &sessions;

	while (*link != held)
		link = &(*link)->next;
	*link = held->next;
	pthread_mutex_unlock(&lock);
	free(held->bytes[0]);
	free(held);
	pthread_exit(NULL);
}

static uint64_t oldest(const struct fake_held *held, int stream)
{
	return held->end[stream] > AGENT_OUTPUT_BUFFER ? held->end[stream] - AGENT_OUTPUT_BUFFER : 0;
}

/* The stream is over; another is waited for elsewhere. */
static void lose(struct fake *fake)
{
	pthread_mutex_lock(&lock);
	fake->held->stream = -1;
	pthread_mutex_unlock(&lock);
	fd_close(&fake->session);
}

static void send_kept(struct fake *fake)
{
	struct fake_held *held = fake->held;

	for (int i = 0; i < 2; i++) {
		while (fake->session >= 0 && held->at[i] < held->end[i]) {
			const struct agent_output output = {.offset = held->at[i]};
			size_t from = held->at[i] % AGENT_OUTPUT_BUFFER;
			size_t length = held->end[i] - held->at[i];

			if (length > CHUNK)
				length = CHUNK;
			if (length > AGENT_OUTPUT_BUFFER - from)
				length = AGENT_OUTPUT_BUFFER - from;
			if (frame_write(fake->session, i ? AGENT_STDERR : AGENT_STDOUT, &output,
				    sizeof output, held->bytes[i] + from, length))
				lose(fake);
			held->at[i] += length;
		}
	}
}

static void put_started(struct fake *fake)
{
	const struct agent_started started = {.session = fake->id,
		.pid = 77,
		.stdin_credit = fake->held->takes_input ? AGENT_STDIN_WINDOW : 0,
		.stdin_offset = fake->held->input};

	frame_write(fake->session, AGENT_STARTED, &started, sizeof started, NULL, 0);
}

/* Takes the stream of who attached, if there is one, or waits for it. False: there is none. */
static bool take_over(struct fake *fake, bool wait)
{
	struct fake_held *held = fake->held;
	int incoming;

	pthread_mutex_lock(&lock);
	while (held->incoming < 0 && wait) {
		if (held->evicted)
			evict(held);
		pthread_cond_wait(&changed, &lock);
	}
	incoming = held->incoming;
	held->incoming = -1;
	if (incoming >= 0) {
		held->stream = incoming;
		memcpy(held->at, held->next_at, sizeof held->at);
	}
	pthread_mutex_unlock(&lock);
	if (incoming < 0)
		return false;
	fd_close(&fake->session);
	fake->session = incoming;
	held->returned = true;
	if (fake_told(fake, "attach-nothing"))
		return true;
	put_started(fake);
	send_kept(fake);
	return true;
}

static void keep(struct fake_held *held, int stream, const uint8_t *data, size_t length)
{
	lock_running(held);
	for (size_t i = 0; i < length; i++)
		held->bytes[stream][(held->end[stream] + i) % AGENT_OUTPUT_BUFFER] = data[i];
	held->end[stream] += length;
	pthread_mutex_unlock(&lock);
}

void fake_put(struct fake *fake, int type, const void *data, size_t length)
{
	int stream = type == AGENT_STDERR;

	take_over(fake, false);
	keep(fake->held, stream, data, length);
	fake->offset[stream] += length;
	send_kept(fake);
}

/* Takes so much of stdin, and nothing more before the next daemon. */
static void turn_deaf(struct fake *fake, struct frame *frame)
{
	const uint32_t taken = (uint32_t)fake_told_number(fake, "deaf:");
	char byte;

	if (frame->type != AGENT_STDIN || frame->length <= taken)
		return;
	frame->length = taken;
	while (read(fake->session, &byte, 1) > 0)
		;
}

void fake_take_frame(struct fake *fake, struct frame_reader *reader, struct frame *frame)
{
	struct fake_held *held = fake->held;

	pthread_mutex_lock(&lock);
	set_busy(held, false);
	pthread_mutex_unlock(&lock);
	while (fake->session < 0 || !fake_read_frame(fake->session, reader, frame)) {
		if (fake->session >= 0)
			lose(fake);
		take_over(fake, true);
		frame_reader_finish(reader);
		if (frame_reader_init(reader, AGENT_FRAME_MAX))
			fake_fail("memory");
	}
	if (fake_told_number(fake, "deaf:") >= 0 && held->id >= USERS_FIRST && !held->returned)
		turn_deaf(fake, frame);
	lock_running(held);
	set_busy(held, true);
	if (frame->type == AGENT_STDIN)
		held->input += frame->length;
	if (frame->type == AGENT_STDIN_EOF)
		held->takes_input = false;
	pthread_mutex_unlock(&lock);
}

bool fake_try_frame(struct fake *fake, struct frame_reader *reader, struct frame *frame, long milliseconds)
{
	struct pollfd wait = {.fd = fake->session, .events = POLLIN};

	if (poll(&wait, 1, (int)milliseconds) <= 0)
		return false;
	if (fake_read_frame(fake->session, reader, frame))
		return true;
	lose(fake);
	frame_reader_finish(reader);
	if (frame_reader_init(reader, AGENT_FRAME_MAX))
		fake_fail("memory");
	return false;
}

void fake_put_exit(struct fake *fake, const struct agent_exit *ending)
{
	lock_running(fake->held);
	set_busy(fake->held, false);
	fake->held->over = true;
	fake->held->ending = *ending;
	pthread_mutex_unlock(&lock);
	take_over(fake, false);
	for (;;) {
		if (fake->session >= 0)
			frame_write(fake->session, AGENT_EXIT, ending, sizeof *ending, NULL, 0);
		lose(fake);
		take_over(fake, true);
	}
}

/* 0, or the errno of the refusal. Locked. */
static int check(const struct fake *fake, const struct fake_held *held, const struct agent_attach *attach)
{
	const uint64_t offsets[2] = {attach->stdout_offset, attach->stderr_offset};

	if (!held || held->evicted || fake_told(fake, "attach-gone"))
		return ENOENT;
	for (int i = 0; i < 2; i++) {
		if (offsets[i] == AGENT_OFFSET_OLDEST)
			continue;
		if (offsets[i] < oldest(held, i))
			return ENODATA;
		if (offsets[i] > held->end[i])
			return EINVAL;
	}
	return 0;
}

static void hand_over(struct fake_held *held, const struct agent_attach *attach, int stream)
{
	held->next_at[0] =
		attach->stdout_offset == AGENT_OFFSET_OLDEST ? oldest(held, 0) : attach->stdout_offset;
	held->next_at[1] =
		attach->stderr_offset == AGENT_OFFSET_OLDEST ? oldest(held, 1) : attach->stderr_offset;
	held->incoming = stream;
	/* Whoever was attached is not any more. */
	if (held->stream >= 0)
		shutdown(held->stream, SHUT_RDWR);
	pthread_cond_broadcast(&changed);
}

void fake_attach(struct fake *fake)
{
	static const char text[] = "ATTACH: no such session";
	struct fake_held *held;
	uint8_t frame[AGENT_FRAME_HEADER + sizeof(struct agent_attach)];
	struct agent_attach attach;
	struct agent_status refusal = {.text_length = sizeof text - 1};

	/* What follows is the session's to read. */
	if (io_read_full(fake->session, frame, sizeof frame) != sizeof frame)
		fake_fail("no proper ATTACH");
	memcpy(&attach, frame + AGENT_FRAME_HEADER, sizeof attach);
	if (fake_told(fake, "attach-garbage")) {
		frame_write(fake->session, AGENT_STDOUT, "12345678x", 9, NULL, 0);
		fd_close(&fake->session);
		return;
	}
	pthread_mutex_lock(&lock);
	held = sessions;
	while (held && held->id != attach.session)
		held = held->next;
	refusal.status = check(fake, held, &attach);
	if (!refusal.status)
		hand_over(held, &attach, fake->session);
	pthread_mutex_unlock(&lock);
	if (!refusal.status)
		return;
	frame_write(fake->session, AGENT_ERROR, &refusal, sizeof refusal, text, refusal.text_length);
	fd_close(&fake->session);
}

/* --- saved and restored --- */

static size_t kept(const struct fake_held *held, int stream)
{
	return (size_t)(held->end[stream] - oldest(held, stream));
}

static void save_one(const struct fake_held *held, int fd)
{
	struct saved saved = {.id = held->id,
		.end = {held->end[0], held->end[1]},
		.input = held->input,
		.takes_input = held->takes_input,
		.over = held->over,
		.ending = held->ending};
	int status = io_write_all(fd, &saved, sizeof saved);

	for (int i = 0; i < 2; i++)
		for (uint64_t at = oldest(held, i); at < held->end[i] && !status; at++)
			status = io_write_all(fd, &held->bytes[i][at % AGENT_OUTPUT_BUFFER], 1);
	if (status)
		fake_fail("saving the sessions");
}

void fake_save_held(int fd)
{
	pthread_mutex_lock(&lock);
	for (const struct fake_held *held = sessions; held; held = held->next)
		if (held->id >= USERS_FIRST && !held->evicted)
			save_one(held, fd);
	pthread_mutex_unlock(&lock);
}

static void put_restored(struct fake *fake, int kind, int code)
{
	const struct agent_exit ending = {.kind = (uint8_t)kind,
		.code = code,
		.stdout_bytes = fake->held->end[0],
		.stderr_bytes = fake->held->end[1]};

	fake_put_exit(fake, &ending);
}

static void *run_restored(void *copy)
{
	struct fake *fake = copy;
	struct frame_reader reader;
	struct agent_signal order;
	struct frame frame;

	if (fake->held->over)
		fake_put_exit(fake, &fake->held->ending);
	if (frame_reader_init(&reader, AGENT_FRAME_MAX))
		fake_fail("memory");
	for (;;) {
		fake_take_frame(fake, &reader, &frame);
		if (frame.type == AGENT_STDIN)
			fake_put(fake, AGENT_STDOUT, frame.payload, frame.length);
		else if (frame.type == AGENT_STDIN_EOF)
			put_restored(fake, AGENT_EXITED, 0);
		else if (frame.type == AGENT_KILL)
			put_restored(fake, AGENT_KILLED, 0);
		else if (frame.type == AGENT_SIGNAL && frame.length == sizeof order) {
			memcpy(&order, frame.payload, sizeof order);
			put_restored(fake, AGENT_SIGNALLED, (int)order.signal);
		}
	}
	return NULL;
}

static struct fake *copy_of(const struct fake *fake)
{
	struct fake *copy = malloc(sizeof *copy);

	if (copy)
		*copy = *fake;
	else
		fake_fail("memory");
	return copy;
}

static void restore_one(const struct fake *fake, const struct saved *saved, int fd, off_t *at)
{
	struct fake *copy = copy_of(fake);
	struct fake_held *held;
	pthread_t thread;

	copy->session = -1;
	copy->id = saved->id;
	fake_hold(copy, saved->takes_input);
	held = copy->held;
	held->input = saved->input;
	held->over = saved->over;
	held->ending = saved->ending;
	memcpy(held->end, saved->end, sizeof held->end);
	memcpy(copy->offset, saved->end, sizeof copy->offset);
	for (int i = 0; i < 2; i++) {
		size_t length = kept(held, i);

		for (size_t byte = 0; byte < length; byte++)
			if (pread(fd, &held->bytes[i][(oldest(held, i) + byte) % AGENT_OUTPUT_BUFFER], 1,
				    (*at)++) != 1)
				fake_fail("the sessions of the state");
	}
	if (pthread_create(&thread, NULL, run_restored, copy) || pthread_detach(thread))
		fake_fail("a thread");
}

void fake_restore_held(const struct fake *fake, int fd, off_t at)
{
	struct saved saved;

	while (pread(fd, &saved, sizeof saved, at) == sizeof saved) {
		at += (off_t)sizeof saved;
		restore_one(fake, &saved, fd, &at);
	}
}
