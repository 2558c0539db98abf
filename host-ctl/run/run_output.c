/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/run/run_output.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static size_t head_of(const struct run_output *output)
{
	return output->head ? output->head : RUN_OUTPUT_HEAD;
}

static size_t tail_of(const struct run_output *output)
{
	return output->tail ? output->tail : RUN_OUTPUT_TAIL;
}

static size_t most_of(const struct run_output *output)
{
	return head_of(output) + tail_of(output);
}

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

	if (needed > most_of(output))
		needed = most_of(output);
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
	uint8_t *ring = output->bytes + head_of(output);

	if (length > tail_of(output)) {
		data += length - tail_of(output);
		length = tail_of(output);
	}
	while (length) {
		size_t part = tail_of(output) - output->ring;

		if (part > length)
			part = length;
		memcpy(ring + output->ring, data, part);
		output->ring = (output->ring + part) % tail_of(output);
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
	if (length > part && output->length == most_of(output))
		overwrite(output, bytes + part, length - part);
}

uint64_t run_output_oldest(const struct run_output *output)
{
	if (is_whole(output))
		return output->first;
	return output->length == most_of(output) ? output->total - tail_of(output) : output->total;
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
		if (into >= head_of(output) || output->length < most_of(output))
			return -ENODATA;
		*bytes = output->bytes + into;
		return (ptrdiff_t)(head_of(output) - into);
	}
	/* The ring: its oldest byte stands at output->ring. */
	into = offset - oldest;
	at = (output->ring + (size_t)into) % tail_of(output);
	end = at < output->ring ? output->ring : tail_of(output);
	*bytes = output->bytes + head_of(output) + at;
	return (ptrdiff_t)(end - at);
}

/* Turns the ring so that the tail's oldest byte stands right after the head. 0, or -1 without memory. */
static int straighten(struct run_output *output)
{
	uint8_t *ring = output->bytes + head_of(output), *copy;

	if (!output->ring)
		return 0;
	copy = malloc(tail_of(output));
	if (!copy)
		return -1;
	memcpy(copy, ring + output->ring, tail_of(output) - output->ring);
	memcpy(copy + tail_of(output) - output->ring, ring, output->ring);
	memcpy(ring, copy, tail_of(output));
	free(copy);
	output->ring = 0;
	return 0;
}

void run_output_trim(struct run_output *output, size_t maximum)
{
	const size_t head = maximum / 2, tail = maximum - head;
	uint8_t *bytes;

	/* What was dropped for want of memory is not in the middle. */
	if (output->length <= maximum || (!is_whole(output) && output->length < most_of(output)) ||
		straighten(output) < 0)
		return;
	memmove(output->bytes + head, output->bytes + output->length - tail, tail);
	output->head = head;
	output->tail = tail;
	output->length = maximum;
	bytes = realloc(output->bytes, maximum);
	if (!bytes)
		return;
	output->bytes = bytes;
	output->capacity = maximum;
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
		data = text_base64_to_json(output->bytes, output->length);
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
			json_integer((json_int_t)(output->length < head_of(output) ? output->length
										   : head_of(output))));
	return object;
fail:
	json_decref(object);
	return NULL;
}
