/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file as a whole. The outermost object and the array of events are walked here, for a tree of all of it
 * would take ten times the file; each value in them is read by jansson, which leaves off where it ends.
 */
#include "host-ctl/report/trace.h"
#include "common/io.h"
#include "host-ctl/report/trace_reader.h"
#include "host-ctl/support/input_file.h"
#include "host-ctl/support/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int trace_refuse(struct trace_reader *reader, const char *mend, const char *format, ...)
{
	va_list arguments;
	int length = snprintf(reader->error, TRACE_ERROR_MAX, "%s: ", reader->path);

	if (length < 0 || length >= TRACE_ERROR_MAX)
		return -1;
	va_start(arguments, format);
	length += vsnprintf(reader->error + length, (size_t)(TRACE_ERROR_MAX - length), format, arguments);
	va_end(arguments);
	if (length < TRACE_ERROR_MAX)
		snprintf(reader->error + length, (size_t)(TRACE_ERROR_MAX - length), "; %s", mend);
	return -1;
}

int trace_refuse_memory(struct trace_reader *reader)
{
	return trace_refuse(reader, "free some on this host", "there is no memory for it");
}

/* ---- the text ---- */

static size_t line_of(const struct trace_reader *reader, size_t at)
{
	size_t line = 1;

	for (const char *text = reader->text, *end = text + at;
		(text = memchr(text, '\n', (size_t)(end - text))) != NULL; text++)
		line++;
	return line;
}

static int refuse_text(struct trace_reader *reader, const char *what)
{
	if (reader->at >= reader->length)
		return trace_refuse(reader, "it was cut off: " TRACE_MEND ", to a disk with room",
			"it ends in the middle, in line %zu", line_of(reader, reader->length));
	return trace_refuse(reader, TRACE_MEND, "line %zu: %s", line_of(reader, reader->at), what);
}

/* The next byte that is no space, not taken yet; '\0' at the end. */
static char look(struct trace_reader *reader)
{
	while (reader->at < reader->length && strchr(" \t\r\n", reader->text[reader->at]) &&
		reader->text[reader->at])
		reader->at++;
	return reader->at < reader->length ? reader->text[reader->at] : '\0';
}

static bool take(struct trace_reader *reader, char c)
{
	bool there = look(reader) == c;

	if (there)
		reader->at++;
	return there;
}

/* A value that goes on beyond what is looked at of it, or beyond the text. */
static void refuse_unended(struct trace_reader *reader, size_t limit)
{
	if (reader->length - reader->at > limit) {
		trace_refuse(reader, TRACE_MEND,
			"line %zu: a value has more than the %zu bytes that are read",
			line_of(reader, reader->at), limit);
		return;
	}
	reader->at = reader->length;
	refuse_text(reader, "");
}

/* The next value, the caller's; NULL (said) when it is none, or has more than `limit` bytes. */
static json_t *take_value(struct trace_reader *reader, size_t limit)
{
	const size_t flags = JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
	json_error_t error = {.position = 0};
	json_t *value;
	size_t left;

	if (look(reader) == '\0' && reader->at >= reader->length) {
		refuse_text(reader, "");
		return NULL;
	}
	left = reader->length - reader->at;
	value = json_loadb(reader->text + reader->at, left < limit ? left : limit, flags, &error);
	if (value) {
		reader->at += (size_t)error.position;
		return value;
	}
	if (json_error_code(&error) == json_error_out_of_memory)
		trace_refuse_memory(reader);
	else if (json_error_code(&error) == json_error_premature_end_of_input) {
		refuse_unended(reader, limit);
	} else {
		text_make_printable(error.text);
		trace_refuse(reader, TRACE_MEND, "line %zu: %s",
			line_of(reader, reader->at) + (size_t)(error.line > 0 ? error.line - 1 : 0),
			error.text);
	}
	return NULL;
}

/* ---- the outermost object ---- */

static int take_events(struct trace_reader *reader)
{
	if (reader->has_events)
		return refuse_text(reader, "traceEvents comes twice");
	reader->has_events = true;
	if (!take(reader, '['))
		return refuse_text(reader, "traceEvents is no array");
	if (take(reader, ']'))
		return 0;
	do {
		json_t *event = take_value(reader, TRACE_EVENT_MAX);
		int r = event ? trace_take_event(reader, event) : -1;

		json_decref(event);
		if (r < 0)
			return r;
	} while (take(reader, ','));
	return take(reader, ']') ? 0 : refuse_text(reader, "a ',' or ']' is missing between two events");
}

static int take_other(struct trace_reader *reader, bool is_data)
{
	json_t *value = take_value(reader, TRACE_MEMBER_MAX);
	int r = value ? 0 : -1;

	if (r == 0 && is_data)
		r = reader->has_data ? refuse_text(reader, "otherData comes twice")
				     : trace_take_data(reader, value);
	reader->has_data = reader->has_data || is_data;
	json_decref(value);
	return r;
}

static int take_member(struct trace_reader *reader)
{
	json_t *key = look(reader) == '"' ? take_value(reader, TRACE_EVENT_MAX) : NULL;
	const char *name = json_string_value(key);
	int r;

	if (!key)
		return reader->error[0] ? -1 : refuse_text(reader, "the name of a member is expected");
	if (!take(reader, ':'))
		r = refuse_text(reader, "a ':' is missing");
	else if (strcmp(name, "traceEvents") == 0)
		r = take_events(reader);
	else
		r = take_other(reader, strcmp(name, "otherData") == 0);
	json_decref(key);
	return r;
}

static int take_object(struct trace_reader *reader)
{
	if (!take(reader, '{'))
		return reader->length == 0
			       ? trace_refuse(reader, TRACE_MEND, "it is empty")
			       : refuse_text(reader, "it is no trace: no JSON object begins here");
	do {
		if (take_member(reader) < 0)
			return -1;
	} while (take(reader, ','));
	if (!take(reader, '}'))
		return refuse_text(reader, "a ',' or '}' is missing");
	if (look(reader) != '\0' || reader->at < reader->length)
		return refuse_text(reader, "something follows the trace");
	if (!reader->has_events || !reader->has_data)
		return trace_refuse(reader, TRACE_MEND, "it is no trace of vmm: it has no %s",
			reader->has_events ? "otherData" : "traceEvents");
	return 0;
}

static int compare_starts(const void *left, const void *right)
{
	const struct trace_event *a = left, *b = right;

	return (a->start > b->start) - (a->start < b->start);
}

int trace_parse(
	struct trace *trace, const char *path, const char *text, size_t length, char error[TRACE_ERROR_MAX])
{
	struct trace_reader reader = {
		.trace = trace, .path = path, .error = error, .text = text, .length = length};
	uint32_t none;
	int r;

	*trace = (struct trace){0};
	error[0] = '\0';
	if (length > TRACE_FILE_MAX)
		return trace_refuse(&reader, "trace a shorter time",
			"it has more than the %d MiB that are read", TRACE_FILE_MAX >> 20);
	reader.index = json_object();
	r = reader.index ? trace_keep_name(&reader, "", &none) : trace_refuse_memory(&reader);
	if (r == 0)
		r = take_object(&reader);
	json_decref(reader.index);
	if (r == 0 && trace->event_count > 1)
		qsort(trace->events, trace->event_count, sizeof(trace->events[0]), compare_starts);
	return r;
}

/* ---- the file ---- */

static int refuse_file(struct trace_reader *reader, int error, const char *fault)
{
	if (fault)
		return trace_refuse(reader, "give the file that vmm --trace wrote", "it is %s", fault);
	return trace_refuse(reader,
		error == ENOENT	  ? "check the path"
		: error == EACCES ? "give yourself the right to read it"
				  : "check the path",
		"cannot read it: %s", strerror(error));
}

/* All of it, in memory that is the caller's. 0 or -1 (said). */
static int read_file(struct trace_reader *reader, int fd, size_t size, char **text)
{
	ssize_t length;

	if (size > TRACE_FILE_MAX)
		return trace_refuse(reader, "trace a shorter time",
			"it has more than the %d MiB that are read", TRACE_FILE_MAX >> 20);
	*text = malloc(size + 1);
	if (!*text)
		return trace_refuse_memory(reader);
	length = io_read_full(fd, *text, size);
	if (length < 0)
		return refuse_file(reader, (int)-length, NULL);
	reader->length = (size_t)length;
	return 0;
}

int trace_load(struct trace *trace, const char *path, char error[TRACE_ERROR_MAX])
{
	struct trace_reader reader = {.path = path, .error = error};
	const char *fault = NULL;
	struct stat status;
	char *text = NULL;
	int fd = input_file_open(AT_FDCWD, path, 0, INPUT_FILE, &status, &fault), r;

	*trace = (struct trace){0};
	if (fd < 0)
		return refuse_file(&reader, -fd, fault);
	r = read_file(&reader, fd, (size_t)status.st_size, &text);
	fd_close(&fd);
	if (r == 0)
		r = trace_parse(trace, path, text, reader.length, error);
	free(text);
	return r;
}

void trace_finish(struct trace *trace)
{
	free(trace->names);
	free(trace->events);
	for (size_t i = 0; i < TRACE_LISTS; i++)
		free(trace->lists[i].rows);
	free(trace->blocks);
	*trace = (struct trace){0};
}
