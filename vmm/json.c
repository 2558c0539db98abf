/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/json.h"
#include "common/io.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_MAX = 40, NS_PER_US = 1000 };

void json_init(struct json *json, int fd)
{
	json->fd = fd;
	json->error = 0;
	json->comma = false;
	json->used = 0;
}

static void flush(struct json *json)
{
	if (json->error == 0)
		json->error = io_write_all(json->fd, json->buffer, json->used);
	json->used = 0;
}

int json_finish(struct json *json)
{
	flush(json);
	return json->error;
}

static void put(struct json *json, const char *bytes, size_t length)
{
	while (length > 0) {
		size_t room = sizeof(json->buffer) - json->used, n = length < room ? length : room;

		memcpy(json->buffer + json->used, bytes, n);
		json->used += n;
		bytes += n;
		length -= n;
		if (json->used == sizeof(json->buffer))
			flush(json);
	}
}

/* Before each value; what follows it gets a comma. */
static void begin_value(struct json *json)
{
	if (json->comma)
		put(json, ",", 1);
	json->comma = true;
}

static void put_value(struct json *json, const char *text)
{
	begin_value(json);
	put(json, text, strlen(text));
}

void json_open(struct json *json, char bracket)
{
	begin_value(json);
	put(json, &bracket, 1);
	json->comma = false;
}

void json_close(struct json *json, char bracket)
{
	put(json, &bracket, 1);
	json->comma = true;
}

void json_key(struct json *json, const char *key)
{
	begin_value(json);
	put(json, "\"", 1);
	put(json, key, strlen(key));
	put(json, "\":", 2);
	json->comma = false;
}

void json_break(struct json *json)
{
	if (json->comma)
		put(json, ",", 1);
	put(json, "\n", 1);
	json->comma = false;
}

void json_line(struct json *json)
{
	put(json, "\n", 1);
}

void json_text(struct json *json, const char *text)
{
	char escape[8];

	if (!text) {
		json_null(json);
		return;
	}
	begin_value(json);
	put(json, "\"", 1);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte == '"' || byte == '\\')
			put(json, "\\", 1);
		if (byte >= ' ' && byte < 0x7f) {
			put(json, text, 1);
			continue;
		}
		snprintf(escape, sizeof(escape), "\\u%04x", byte);
		put(json, escape, strlen(escape));
	}
	put(json, "\"", 1);
}

void json_integer(struct json *json, int64_t value)
{
	char text[NUMBER_MAX];

	snprintf(text, sizeof(text), "%" PRId64, value);
	put_value(json, text);
}

void json_unsigned(struct json *json, uint64_t value)
{
	char text[NUMBER_MAX];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	put_value(json, text);
}

void json_hex(struct json *json, uint64_t value)
{
	char text[NUMBER_MAX];

	snprintf(text, sizeof(text), "\"0x%" PRIx64 "\"", value);
	put_value(json, text);
}

void json_us(struct json *json, uint64_t ns)
{
	char text[NUMBER_MAX];

	snprintf(text, sizeof(text), "%" PRIu64 ".%03u", ns / NS_PER_US, (unsigned)(ns % NS_PER_US));
	put_value(json, text);
}

void json_bool(struct json *json, bool value)
{
	put_value(json, value ? "true" : "false");
}

void json_null(struct json *json)
{
	put_value(json, "null");
}
