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
};

void run_output_finish(struct run_output *output);
/* Keeps what fits; without memory the bytes count as dropped. */
void run_output_add(struct run_output *output, const void *data, size_t length);
/*
 * {"data": text} or {"data_b64": ...} when the bytes are not UTF-8, "bytes": written, "dropped": not held,
 * and with a gap "head_bytes": where in the data it is. written: what the guest says that the command wrote,
 * at least output->total. The caller's reference; NULL without memory.
 */
json_t *run_output_to_json(struct run_output *output, uint64_t written);

#endif
