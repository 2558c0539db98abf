/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session of the fake agent, one command:
 *   echo WORD...     the words and a newline on stdout
 *   exit N, signal N, oom, timeout   ends so
 *   cat              stdin to stdout, until its end
 *   both             "out" on stdout, "err" on stderr
 *   latin            bytes that are not UTF-8
 *   sizes N          of its terminal: the first, and those that N RESIZE frames tell
 *   lives            how often its guest was saved
 *   noted            whether it has noted its files since it was restored: yes or no
 *   limits           the limits that NEW has, of memory and processes
 *   flood BYTES      that many of a pattern; dribble BYTES: each in a frame
 *   count N MS       lines 0 to N-1, one each MS milliseconds, until a SIGNAL
 *   sleep            nothing at all; started-sleep: STARTED, then nothing until KILL or SIGNAL
 *   no-such-command  fails to start, ENOENT
 *   refuse           ERROR
 *   close            ends the stream without EXIT; half: and the VM, within a frame
 *   die N, panic     the vmm ends, with status N or as after a guest's panic
 *   bad-...          breaks the protocol
 */
#include "common/io.h"
#include "tests/fake-vmm/fake_vmm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void put_exit(struct fake *fake, int kind, int code, int step)
{
	const struct agent_exit ending = {.kind = (uint8_t)kind,
		.code = code,
		.step = (uint16_t)step,
		.stdout_bytes = fake->offset[0],
		.stderr_bytes = fake->offset[1],
		.wall_us = 1234,
		.max_rss_kib = 56};

	fake_put_exit(fake, &ending);
}

void fake_put_started(struct fake *fake)
{
	struct agent_started started = {.session = fake->id, .pid = 77};

	frame_write(fake->session, AGENT_STARTED, &started, sizeof started, NULL, 0);
}

static void do_echo(struct fake *fake, const char *word, uint32_t count)
{
	char line[CHUNK];
	size_t length = 0;

	for (uint32_t i = 0; i < count; i++, word += strlen(word) + 1)
		length += (size_t)snprintf(
			line + length, sizeof line - length, "%s%s", word, i + 1 < count ? " " : "");
	line[length++] = '\n';
	fake_put(fake, AGENT_STDOUT, line, length);
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_limits(struct fake *fake)
{
	char line[64];
	int length = snprintf(
		line, sizeof line, "%llu %u\n", (unsigned long long)fake->memory_max, fake->pids_max);

	fake_put(fake, AGENT_STDOUT, line, (size_t)length);
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_lives(struct fake *fake)
{
	char line[32];
	int length = snprintf(line, sizeof line, "%llu\n", (unsigned long long)fake_lives());

	fake_put(fake, AGENT_STDOUT, line, (size_t)length);
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_noted(struct fake *fake)
{
	const char *answer = fake->noted ? "yes\n" : "no\n";

	fake_put(fake, AGENT_STDOUT, answer, strlen(answer));
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void put_size(struct fake *fake, unsigned int rows, unsigned int cols)
{
	char line[32];
	int length = snprintf(line, sizeof line, "%u %u\n", rows, cols);

	fake_put(fake, AGENT_STDOUT, line, (size_t)length);
}

static void do_sizes(struct fake *fake, struct frame_reader *reader, int count)
{
	struct agent_resize size;
	struct frame frame;

	put_size(fake, fake->rows, fake->cols);
	while (count) {
		fake_take_frame(fake, reader, &frame);
		if (frame.type != AGENT_RESIZE || frame.length != sizeof size)
			continue;
		memcpy(&size, frame.payload, sizeof size);
		put_size(fake, size.rows, size.cols);
		count--;
	}
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_flood(struct fake *fake, const char *bytes)
{
	static uint8_t chunk[CHUNK];
	unsigned long long left = strtoull(bytes, NULL, 10);

	for (size_t i = 0; i < sizeof chunk; i++)
		chunk[i] = (uint8_t)('a' + i % 26);
	while (left) {
		size_t part = left < sizeof chunk ? (size_t)left : sizeof chunk;

		fake_put(fake, AGENT_STDOUT, chunk, part);
		left -= part;
	}
	put_exit(fake, AGENT_EXITED, 0, 0);
}

/* Frames of one byte each, many in one write. */
static void do_dribble(struct fake *fake, const char *bytes)
{
	unsigned long count = strtoul(bytes, NULL, 10);
	struct agent_output output;
	struct frame_queue queue;

	frame_queue_init(&queue, SIZE_MAX);
	for (output.offset = 0; output.offset < count; output.offset++)
		if (frame_queue_put(&queue, AGENT_STDOUT, &output, sizeof output, "x", 1))
			fake_fail("memory");
	io_write_all(fake->session, queue.buffer, frame_queue_length(&queue));
	frame_queue_finish(&queue);
	fake->offset[0] = count;
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_cat(struct fake *fake, struct frame_reader *reader)
{
	struct agent_credit credit;
	struct frame frame;

	for (;;) {
		fake_take_frame(fake, reader, &frame);
		if (frame.type == AGENT_KILL) {
			put_exit(fake, AGENT_KILLED, 0, 0);
			return;
		}
		if (frame.type == AGENT_STDIN_EOF)
			break;
		if (frame.type != AGENT_STDIN)
			continue;
		credit = (struct agent_credit){.bytes = frame.length};
		fake_put(fake, AGENT_STDOUT, frame.payload, frame.length);
		frame_write(fake->session, AGENT_STDIN_CREDIT, &credit, sizeof credit, NULL, 0);
	}
	put_exit(fake, AGENT_EXITED, 0, 0);
}

/* Lines of numbers, one each so many milliseconds, until it gets a signal. */
static void do_count(struct fake *fake, const char *count, struct frame_reader *reader)
{
	long milliseconds = strtol(count + strlen(count) + 1, NULL, 10);
	unsigned long lines = strtoul(count, NULL, 10);
	struct frame frame;
	char line[32];

	for (unsigned long i = 0; i < lines; i++) {
		fake_put(fake, AGENT_STDOUT, line, (size_t)snprintf(line, sizeof line, "%lu\n", i));
		if (fake_try_frame(fake, reader, &frame, milliseconds) && frame.type == AGENT_SIGNAL)
			break;
	}
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_sleep(struct fake *fake, struct frame_reader *reader)
{
	struct frame frame;

	do
		fake_take_frame(fake, reader, &frame);
	while (frame.type != AGENT_KILL && frame.type != AGENT_SIGNAL);
	if (frame.type == AGENT_KILL)
		put_exit(fake, AGENT_KILLED, 0, 0);
	else
		put_exit(fake, AGENT_SIGNALLED, (int)frame.payload[0], 0);
}

static void break_protocol(struct fake *fake, const char *how)
{
	struct agent_output output = {.offset = fake->offset[0] + 1};
	struct agent_frame_header header = {.length = 0, .type = AGENT_EXIT, .flags = 1};
	struct agent_started started = {.session = 99};
	struct agent_credit credit = {.bytes = 0};

	if (!strcmp(how, "bad-type"))
		frame_write(fake->session, 0x6f, NULL, 0, NULL, 0);
	else if (!strcmp(how, "bad-flags"))
		io_write_all(fake->session, &header, sizeof header);
	else if (!strcmp(how, "bad-offset"))
		frame_write(fake->session, AGENT_STDOUT, &output, sizeof output, "x", 1);
	else if (!strcmp(how, "bad-exit"))
		put_exit(fake, AGENT_EXITED, 256, 0);
	else if (!strcmp(how, "bad-count")) {
		fake_put(fake, AGENT_STDOUT, "abc", 3);
		fake->offset[0] = 2;
		put_exit(fake, AGENT_EXITED, 0, 0);
	} else if (!strcmp(how, "bad-length")) {
		header = (struct agent_frame_header){.length = AGENT_FRAME_MAX, .type = AGENT_STDOUT};
		io_write_all(fake->session, &header, sizeof header);
	} else if (!strcmp(how, "bad-started"))
		frame_write(fake->session, AGENT_STARTED, &started, sizeof started, NULL, 0);
	else if (!strcmp(how, "bad-credit"))
		frame_write(fake->session, AGENT_STDIN_CREDIT, &credit, sizeof credit, NULL, 0);
	else
		fake_put(fake, AGENT_STDOUT, "early", 5);
	pause();
}

static void die_within_frame(struct fake *fake)
{
	struct agent_frame_header header = {.length = 100, .type = AGENT_STDOUT};

	io_write_all(fake->session, &header, sizeof header);
	fake_end(fake, VMM_END_TRIPLE_FAULT, "at the half of a frame");
}

/* What ends without STARTED. True when the command was one of these. */
static bool run_unstarted(struct fake *fake, const char *command)
{
	struct agent_status refusal = {.status = EPERM, .text_length = 7};

	if (!strcmp(command, "refuse") || (!strcmp(command, "sh") && fake_told(fake, "sample-refused")))
		frame_write(fake->session, AGENT_ERROR, &refusal, sizeof refusal, "not now", 7);
	else if (!strcmp(command, "no-such-command") ||
		 (!strcmp(command, "sh") && fake_told(fake, "sample-missing")))
		put_exit(fake, AGENT_FAILED_TO_START, ENOENT, AGENT_STEP_EXEC);
	else if (!strcmp(command, "sleep"))
		pause();
	else if (!strcmp(command, "bad-early") || !strcmp(command, "bad-started"))
		break_protocol(fake, command);
	else
		return false;
	return true;
}

static void run_started(
	struct fake *fake, const char *command, const char *next, uint32_t count, struct frame_reader *reader)
{
	if (!strcmp(command, "sh") && fake_told(fake, "sample-dies"))
		fake_end(fake, VMM_END_PANIC, "in the sample command");
	if (!strcmp(command, "sh") && fake_told(fake, "sample-hangs"))
		pause();
	if (!strcmp(command, "sh") && fake_told_number(fake, "sample-status:") > 0)
		put_exit(fake, AGENT_EXITED, (int)fake_told_number(fake, "sample-status:"), 0);
	else if (!strcmp(command, "sh") && fake_told(fake, "sample-malformed"))
		put_exit(fake, AGENT_EXITED, -1, 0);
	else if (!strcmp(command, "echo"))
		do_echo(fake, next, count);
	else if (!strcmp(command, "exit"))
		put_exit(fake, AGENT_EXITED, atoi(next), 0);
	else if (!strcmp(command, "signal"))
		put_exit(fake, AGENT_SIGNALLED, atoi(next), 0);
	else if (!strcmp(command, "oom"))
		put_exit(fake, AGENT_OUT_OF_MEMORY, SIGKILL, 0);
	else if (!strcmp(command, "timeout"))
		put_exit(fake, AGENT_TIMED_OUT, 0, 0);
	else if (!strcmp(command, "cat") || !strcmp(command, "sh"))
		do_cat(fake, reader);
	else if (!strcmp(command, "flood"))
		do_flood(fake, next);
	else if (!strcmp(command, "dribble"))
		do_dribble(fake, next);
	else if (!strcmp(command, "count") && count == 2)
		do_count(fake, next, reader);
	else if (!strcmp(command, "sizes"))
		do_sizes(fake, reader, atoi(next));
	else if (!strcmp(command, "limits"))
		do_limits(fake);
	else if (!strcmp(command, "lives"))
		do_lives(fake);
	else if (!strcmp(command, "noted"))
		do_noted(fake);
	else if (!strcmp(command, "started-sleep"))
		do_sleep(fake, reader);
	else if (!strcmp(command, "die"))
		exit(atoi(next));
	else if (!strcmp(command, "panic"))
		fake_end(fake, VMM_END_PANIC, "pvpanic");
	else if (!strcmp(command, "half"))
		die_within_frame(fake);
	else if (!strncmp(command, "bad-", 4))
		break_protocol(fake, command);
	else if (!strcmp(command, "latin")) {
		fake_put(fake, AGENT_STDOUT, "\xe9\xff\0x", 4);
		put_exit(fake, AGENT_EXITED, 0, 0);
	} else if (!strcmp(command, "both")) {
		fake_put(fake, AGENT_STDOUT, "out\n", 4);
		fake_put(fake, AGENT_STDERR, "err\n", 4);
		put_exit(fake, AGENT_EXITED, 0, 0);
	} else if (!strcmp(command, "close")) {
		close(fake->session);
		pause();
	} else {
		put_exit(fake, AGENT_FAILED_TO_START, EACCES, AGENT_STEP_EXEC);
	}
}

/* A line of a shell's: a command and one argument, which is the rest. */
static void split_line(char *line, char *command, size_t size, char **rest, uint32_t *count)
{
	size_t length = strcspn(line, " ");

	snprintf(command, size, "%.*s", (int)length, line);
	*count = line[length] ? 2 : 1;
	*rest = line + length + (line[length] != '\0');
}

/* Brings its files to the disk, and says so. */
static void hold(const struct fake *fake)
{
	const struct agent_hello hello = {.version = AGENT_PROTO_VERSION};
	struct agent_status held = {.status = 0};

	if (fake_told(fake, "hold-nothing"))
		return;
	if (fake_told_number(fake, "hold-status:") > 0)
		held.status = (int32_t)fake_told_number(fake, "hold-status:");
	if (fake_told(fake, "hold-garbage"))
		held.text_length = 1;
	frame_write(fake->session, AGENT_HELLO, &hello, sizeof hello, NULL, 0);
	frame_write(fake->session, AGENT_HELD, &held, sizeof held, NULL, 0);
}

/* A stream of the daemon's for control: the guest is told to shut down, and does; or to hold. */
static void serve_control(struct fake *fake, struct frame_reader *reader)
{
	struct agent_shutdown order;
	struct frame frame;

	if (!fake_read_frame(fake->session, reader, &frame))
		pause();
	if (frame.type == AGENT_HOLD && !frame.length) {
		hold(fake);
		while (fake_read_frame(fake->session, reader, &frame))
			;
		return;
	}
	if (frame.type != AGENT_SHUTDOWN || frame.length != sizeof order)
		fake_fail("no proper SHUTDOWN");
	memcpy(&order, frame.payload, sizeof order);
	if (!order.grace_ms || order.grace_ms > AGENT_SHUTDOWN_GRACE_MAX_MS || order.reserved)
		fake_fail("a SHUTDOWN without sense");
	if (fake_told(fake, "shutdown-nothing"))
		pause();
	fake_mark("told-shutdown");
	if (fake_told_number(fake, "shutdown-late:") > 0)
		fake_pause_ms(fake_told_number(fake, "shutdown-late:"));
	if (fake_told(fake, "shutdown-panic"))
		fake_end(fake, VMM_END_PANIC, "while it shut down");
	fake_end(fake, VMM_END_POWEROFF, "");
}

void fake_serve_session(struct fake *fake)
{
	struct agent_frame_header header;
	struct agent_new_view view;
	struct frame_reader reader;
	struct frame frame;
	const char *why;
	char command[64], strings[AGENT_STRINGS_MAX];
	char *next;

	if (recv(fake->session, &header, sizeof header, MSG_PEEK | MSG_WAITALL) != sizeof header) {
		fd_close(&fake->session);
		return;
	}
	if (header.type == AGENT_ATTACH) {
		fake_attach(fake);
		return;
	}
	if (header.type == AGENT_CHANGES) {
		fake_tell_changes(fake);
		return;
	}
	if (frame_reader_init(&reader, AGENT_FRAME_MAX))
		fake_fail("memory");
	if (!fake_read_frame(fake->session, &reader, &frame))
		fake_fail("no whole NEW");
	if (frame.type == AGENT_CONTROL) {
		serve_control(fake, &reader);
		frame_reader_finish(&reader);
		fd_close(&fake->session);
		return;
	}
	if (frame.type != AGENT_NEW || frame_parse_new(&frame, &view, &why))
		fake_fail("no proper NEW");
	fake->id = view.fixed.session;
	fake->memory_max = view.fixed.memory_max;
	fake->pids_max = view.fixed.pids_max;
	fake->rows = view.fixed.rows;
	fake->cols = view.fixed.cols;
	if (fake->id >= USERS_FIRST && fake_told_number(fake, "new-slow:") > 0)
		fake_pause_ms(fake_told_number(fake, "new-slow:"));
	fake_hold(fake, view.fixed.flags & AGENT_NEW_STDIN);
	/* The reader's buffer moves on with its next frame. */
	memcpy(strings, view.strings, view.fixed.strings_length);
	next = strings + strlen(strings) + 1;
	if (!strcmp(strings, "sh") && !(view.fixed.flags & AGENT_NEW_STDIN)) {
		split_line(next + strlen(next) + 1, command, sizeof command, &next, &view.fixed.argc);
	} else {
		snprintf(command, sizeof command, "%.*s", (int)sizeof command - 1, strings);
	}
	if (!run_unstarted(fake, command)) {
		fake_put_started(fake);
		run_started(fake, command, next, view.fixed.argc - 1, &reader);
	}
	frame_reader_finish(&reader);
	/* As a guest does: the stream is closed after the terminal frame, the VM goes on. */
	fd_close(&fake->session);
}
