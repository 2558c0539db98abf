/* SPDX-License-Identifier: Apache-2.0 */
/* One stream of a run's output, kept for a JSON answer: its head and its tail, the middle counted. */
#ifndef HOST_CTL_RUN_OUTPUT_H
#define HOST_CTL_RUN_OUTPUT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RUN_OUTPUT_HEAD = 512 * 1024,
	RUN_OUTPUT_TAIL = 512 * 1024,
	RUN_OUTPUT_START = 4096, /* first allocation; doubled up to head + tail */
};

/* All zero is an empty one. */
struct run_output {
	uint8_t *bytes;	 /* the head, then a ring that holds the tail */
	size_t capacity; /* of bytes */
	size_t length;	 /* bytes held */
	size_t ring;	 /* where in the ring the oldest byte stands, once it is full */
	uint64_t total;
	size_t head, tail; /* so much is held at most; 0: RUN_OUTPUT_HEAD, RUN_OUTPUT_TAIL */
	uint64_t first;	   /* what was written before this was never here */
};

void run_output_finish(struct run_output *output);
/* Nothing is held any more; the total stays. */
void run_output_drop(struct run_output *output);
/* Of one to which nothing was added: what is added next stands at this offset. */
void run_output_begin_at(struct run_output *output, uint64_t offset);
/* Keeps what fits; without memory the bytes count as dropped. */
void run_output_add(struct run_output *output, const void *data, size_t length);
/* Of one to which nothing is added any more: at most so many bytes, 2 or more, are held from now on, half of
 * them from its start. Without memory it stays as it is. */
void run_output_trim(struct run_output *output, size_t maximum);
/*
 * Bytes that are held from that offset on, in *bytes until the next call that changes it: how many, as far as
 * they stand in one piece; 0 at the end; -ENODATA: they were dropped; -EINVAL: beyond the end.
 */
ptrdiff_t run_output_peek(const struct run_output *output, uint64_t offset, const uint8_t **bytes);
/* The first offset from which on nothing is missing. */
uint64_t run_output_oldest(const struct run_output *output);
/*
 * {"data": text} or {"data_b64": ...} when the bytes are not UTF-8, "bytes": written, "dropped": not held,
 * and with a gap "head_bytes": where in the data it is. written: what the guest says that the command wrote,
 * at least output->total. The caller's reference; NULL without memory.
 */
json_t *run_output_to_json(struct run_output *output, uint64_t written);

#endif
