/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of files that are none: a few, of every kind, or with the word changes:N as many files. Who asks
 * for what comes after one of these paths is treated so: /refuse-busy, /refuse-root, /refuse-else   ERROR
 *   /bad-...                                   breaks the protocol, each in its way
 *   /close, /nothing, /die                     no end: of the stream, at all, of the VM
 */
#include "common/io.h"
#include "tests/fake-vmm/fake_vmm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRY_MAX = sizeof(struct agent_change) + 64 };

static const struct sample {
	const char *path;
	struct agent_change about;
} samples[] = {
	{"/a", {.kind = AGENT_ADDED,
		       .mode = S_IFREG | 0644,
		       .uid = 1,
		       .gid = 2,
		       .size = 3,
		       .modified_ms = 4}},
	{"/b.d", {.kind = AGENT_REMOVED, .mode = S_IFDIR}},
	{"/b\xff", {.kind = AGENT_CHANGED, .mode = S_IFDIR | 01777}},
	{"/b\xff/c\n", {.kind = AGENT_ADDED, .mode = S_IFLNK | 0777, .size = UINT64_MAX, .modified_ms = -1}},
};

/* Those of which the daemon must not see one before what it asked for. */
static size_t put_entry(uint8_t *to, const char *path, const struct agent_change *about)
{
	struct agent_change change = *about;

	change.path_length = (uint16_t)strlen(path);
	memcpy(to, &change, sizeof change);
	memcpy(to + sizeof change, path, change.path_length);
	return sizeof change + change.path_length;
}

static void send_entry(int fd, const char *path, const struct agent_change *about)
{
	uint8_t bytes[ENTRY_MAX];

	frame_write(fd, AGENT_CHANGE_LIST, bytes, put_entry(bytes, path, about), NULL, 0);
}

static void send_end(int fd, uint32_t count, uint32_t more)
{
	struct agent_changes_end end = {.count = count, .more = more, .skipped = 5};

	frame_write(fd, AGENT_CHANGES_END, &end, sizeof end, NULL, 0);
}

static void refuse(int fd, int error)
{
	struct agent_status status = {.status = error, .text_length = 2};

	frame_write(fd, AGENT_ERROR, &status, sizeof status, "no", 2);
}

static void break_protocol(int fd, const char *how)
{
	struct agent_change about = samples[0].about;
	uint8_t bytes[ENTRY_MAX];
	size_t length = put_entry(bytes, "/z", &about);

	if (!strcmp(how, "kind")) {
		about.kind = 4;
		send_entry(fd, "/z", &about);
	} else if (!strcmp(how, "mode")) {
		about.mode = UINT32_MAX;
		send_entry(fd, "/z", &about);
	} else if (!strcmp(how, "path")) {
		send_entry(fd, "z/z", &about);
	} else if (!strcmp(how, "root")) {
		send_entry(fd, "/", &about);
	} else if (!strcmp(how, "order")) {
		send_entry(fd, "/z/a", &about);
		send_entry(fd, "/z/a", &about);
	} else if (!strcmp(how, "length")) {
		frame_write(fd, AGENT_CHANGE_LIST, bytes, length - 1, NULL, 0);
	} else if (!strcmp(how, "empty")) {
		frame_write(fd, AGENT_CHANGE_LIST, NULL, 0, NULL, 0);
	} else if (!strcmp(how, "many")) {
		send_entry(fd, "/y", &about);
		send_entry(fd, "/z", &about);
	} else if (!strcmp(how, "count")) {
		send_end(fd, 1, 0);
	} else if (!strcmp(how, "more")) {
		send_end(fd, 0, 2);
	} else if (!strcmp(how, "type")) {
		frame_write(fd, AGENT_STDOUT, bytes, length, NULL, 0);
	} else {
		io_write_all(fd, "garbage!", 8);
	}
}

/* What it does to who asks for what comes after such a path. False: nothing of the kind. */
static bool misbehave(struct fake *fake, const char *after)
{
	if (!strcmp(after, "/refuse-busy"))
		refuse(fake->session, EAGAIN);
	else if (!strcmp(after, "/refuse-root"))
		refuse(fake->session, EOPNOTSUPP);
	else if (!strcmp(after, "/refuse-else"))
		refuse(fake->session, EIO);
	else if (!strncmp(after, "/bad-", 5))
		break_protocol(fake->session, after + 5);
	else if (!strcmp(after, "/die"))
		fake_end(fake, VMM_END_PANIC, "while it told its changes");
	else
		return !strcmp(after, "/close");
	return true;
}

/* The file or sample of that number. False: there is none. */
static bool take_sample(
	const struct fake *fake, long number, char path[32], const struct agent_change **about)
{
	long files = fake_told_number(fake, "changes:");

	if (number >= (files < 0 ? (long)(sizeof samples / sizeof samples[0]) : files))
		return false;
	*about = &samples[files < 0 ? number : 0].about;
	if (files < 0)
		snprintf(path, 32, "%s", samples[number].path);
	else
		snprintf(path, 32, "/file%08ld", number);
	return true;
}

static void tell(struct fake *fake, uint32_t limit, const char *after)
{
	const struct agent_change *about;
	uint32_t count = 0;
	char path[32];

	for (long i = 0; take_sample(fake, i, path, &about); i++) {
		if (frame_compare_paths(path, after) <= 0)
			continue;
		if (count == limit) {
			send_end(fake->session, count, 1);
			return;
		}
		send_entry(fake->session, path, about);
		count++;
	}
	send_end(fake->session, count, 0);
}

void fake_tell_changes(struct fake *fake)
{
	char after[AGENT_PATH_MAX + 1];
	struct agent_changes request;
	struct frame_reader reader;
	struct frame frame;

	if (frame_reader_init(&reader, AGENT_FRAME_MAX))
		fake_fail("memory");
	if (!fake_read_frame(fake->session, &reader, &frame) || frame.length < sizeof request)
		fake_fail("no whole CHANGES");
	memcpy(&request, frame.payload, sizeof request);
	if (request.after_length != frame.length - sizeof request || request.after_length > AGENT_PATH_MAX ||
		!request.limit || request.limit > AGENT_CHANGES_MAX)
		fake_fail("no proper CHANGES");
	snprintf(after, sizeof after, "%.*s", (int)request.after_length,
		(const char *)frame.payload + sizeof request);
	if (!strcmp(after, "/nothing")) {
		fake_mark("asked-changes");
		pause();
	}
	if (!misbehave(fake, after))
		tell(fake, request.limit, after);
	frame_reader_finish(&reader);
	fd_close(&fake->session);
}

/* 0, or the errno of it; -1: it is not answered. */
static int told_status(const struct fake *fake)
{
	const char *nothing = fake->restored ? "clone-notes-nothing" : "baseline-nothing";
	long number = fake_told_number(fake, fake->restored ? "clone-notes:" : "baseline-status:");

	if (fake_told(fake, nothing))
		return -1;
	return number > 0 ? (int)number : 0;
}

/* HOLD on the agent's own stream: of a build. */
static void bring_to_disk(const struct fake *fake)
{
	struct agent_status status = {.status = 0};

	if (fake_told(fake, "brought-nothing"))
		return;
	if (fake_told_number(fake, "brought-status:") > 0)
		status.status = (int)fake_told_number(fake, "brought-status:");
	if (fake_told(fake, "brought-garbage"))
		status.text_length = 1;
	frame_write(fake->agent, AGENT_HELD, &status, sizeof status, NULL, 0);
}

/* BASELINE, HOLD, or the end of the agent's stream. */
static void note_files(struct fake *fake)
{
	struct agent_status status = {.status = told_status(fake)};
	struct frame_reader reader;
	struct frame frame;

	if (frame_reader_init(&reader, AGENT_FRAME_MAX))
		fake_fail("memory");
	if (!fake_read_frame(fake->agent, &reader, &frame)) {
		fd_close(&fake->agent);
	} else if (frame.type == AGENT_HOLD && !frame.length) {
		bring_to_disk(fake);
	} else if (frame.type != AGENT_BASELINE || frame.length) {
		fake_fail("no proper BASELINE");
	} else if (fake_told(fake, "baseline-garbage")) {
		frame_write(fake->agent, AGENT_BASELINE_DONE, "garbage", 7, NULL, 0);
	} else {
		fake->noted = true;
		if (status.status >= 0)
			frame_write(fake->agent, AGENT_BASELINE_DONE, &status, sizeof status, NULL, 0);
	}
	frame_reader_finish(&reader);
}

void fake_await_request(struct fake *fake)
{
	struct pollfd wait[] = {
		{.fd = fake->control, .events = POLLIN}, {.fd = fake->agent, .events = POLLIN}};

	do {
		poll(wait, 2, -1);
		if (wait[1].revents)
			note_files(fake);
		wait[1].fd = fake->agent;
	} while (!wait[0].revents);
}
