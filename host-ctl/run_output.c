/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/run_output.h"
#include "host-ctl/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { HELD_MAX = RUN_OUTPUT_HEAD + RUN_OUTPUT_TAIL };

void run_output_finish(struct run_output *output)
{
	free(output->bytes);
	*output = (struct run_output){0};
}

void run_output_drop(struct run_output *output)
{
	free(output->bytes);
	*output = (struct run_output){.total = output->total, .first = output->first};
}

void run_output_begin_at(struct run_output *output, uint64_t offset)
{
	output->first = output->total = offset;
}

/* Nothing is missing since the first that came. */
static bool is_whole(const struct run_output *output)
{
	return output->total - output->first == output->length;
}

static void grow(struct run_output *output, size_t needed)
{
	size_t capacity = output->capacity ? output->capacity : RUN_OUTPUT_START;
	uint8_t *bytes;

	if (needed > HELD_MAX)
		needed = HELD_MAX;
	while (capacity < needed)
		capacity *= 2;
	if (capacity == output->capacity)
		return;
	bytes = realloc(output->bytes, capacity);
	if (!bytes)
		return;
	output->bytes = bytes;
	output->capacity = capacity;
}

/* The oldest bytes of the tail give way. */
static void overwrite(struct run_output *output, const uint8_t *data, size_t length)
{
	uint8_t *ring = output->bytes + RUN_OUTPUT_HEAD;

	if (length > RUN_OUTPUT_TAIL) {
		data += length - RUN_OUTPUT_TAIL;
		length = RUN_OUTPUT_TAIL;
	}
	while (length) {
		size_t part = RUN_OUTPUT_TAIL - output->ring;

		if (part > length)
			part = length;
		memcpy(ring + output->ring, data, part);
		output->ring = (output->ring + part) % RUN_OUTPUT_TAIL;
		data += part;
		length -= part;
	}
}

void run_output_add(struct run_output *output, const void *data, size_t length)
{
	const uint8_t *bytes = data;
	size_t part;

	output->total += length;
	if (output->length + length > output->capacity)
		grow(output, output->length + length);
	part = output->capacity - output->length;
	if (part > length)
		part = length;
	if (part) {
		memcpy(output->bytes + output->length, bytes, part);
		output->length += part;
	}
	if (length > part && output->length == HELD_MAX)
		overwrite(output, bytes + part, length - part);
}

uint64_t run_output_oldest(const struct run_output *output)
{
	if (is_whole(output))
		return output->first;
	return output->length == HELD_MAX ? output->total - RUN_OUTPUT_TAIL : output->total;
}

ptrdiff_t run_output_peek(const struct run_output *output, uint64_t offset, const uint8_t **bytes)
{
	uint64_t oldest = run_output_oldest(output), into = offset - output->first;
	size_t at, end;

	if (offset > output->total)
		return -EINVAL;
	if (offset == output->total)
		return 0;
	if (offset < output->first)
		return -ENODATA;
	if (is_whole(output)) {
		*bytes = output->bytes + into;
		return (ptrdiff_t)(output->length - into);
	}
	if (offset < oldest) {
		if (into >= RUN_OUTPUT_HEAD || output->length < HELD_MAX)
			return -ENODATA;
		*bytes = output->bytes + into;
		return (ptrdiff_t)(RUN_OUTPUT_HEAD - into);
	}
	/* The ring: its oldest byte stands at output->ring. */
	into = offset - oldest;
	at = (output->ring + (size_t)into) % RUN_OUTPUT_TAIL;
	end = at < output->ring ? output->ring : RUN_OUTPUT_TAIL;
	*bytes = output->bytes + RUN_OUTPUT_HEAD + at;
	return (ptrdiff_t)(end - at);
}

/* Turns the ring so that the tail's oldest byte stands right after the head. 0, or -1 without memory. */
static int straighten(struct run_output *output)
{
	uint8_t *ring = output->bytes + RUN_OUTPUT_HEAD, *copy;

	if (!output->ring)
		return 0;
	copy = malloc(RUN_OUTPUT_TAIL);
	if (!copy)
		return -1;
	memcpy(copy, ring + output->ring, RUN_OUTPUT_TAIL - output->ring);
	memcpy(copy + RUN_OUTPUT_TAIL - output->ring, ring, output->ring);
	memcpy(ring, copy, RUN_OUTPUT_TAIL);
	free(copy);
	output->ring = 0;
	return 0;
}

static json_t *encode(const struct run_output *output)
{
	char *text = malloc(text_base64_length(output->length) + 1);
	json_t *value;

	if (!text)
		return NULL;
	text_base64_encode(text, output->bytes, output->length);
	value = json_string_nocheck(text);
	free(text);
	return value;
}

json_t *run_output_to_json(struct run_output *output, uint64_t written)
{
	uint64_t dropped = written - output->length;
	json_t *object = json_object(), *data;
	const char *key = "data";

	if (!object || straighten(output) < 0)
		goto fail;
	/* NULL for what is not UTF-8. */
	data = json_stringn(output->length ? (const char *)output->bytes : "", output->length);
	if (!data) {
		key = "data_b64";
		data = encode(output);
	}
	if (!data || json_object_set_new(object, key, data))
		goto fail;
	if (written > INT64_MAX)
		written = INT64_MAX;
	if (dropped > INT64_MAX)
		dropped = INT64_MAX;
	json_object_set_new(object, "bytes", json_integer((json_int_t)written));
	json_object_set_new(object, "dropped", json_integer((json_int_t)dropped));
	if (dropped)
		json_object_set_new(object, "head_bytes",
			json_integer(output->length < RUN_OUTPUT_HEAD ? (json_int_t)output->length
								      : RUN_OUTPUT_HEAD));
	return object;
fail:
	json_decref(object);
	return NULL;
}
