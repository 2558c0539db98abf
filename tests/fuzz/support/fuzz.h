/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all fuzz targets share. A target is one file tests/fuzz/MODULE_WHAT.c with LLVMFuzzerTestOneInput: it
 * takes its input for a program, runs it, and asserts what must hold whatever the program was. libFuzzer
 * calls it (make fuzz), and so does standalone.c for the corpora (make check).
 *
 * An input must do the same at each run: what the kernel or the clock would decide is either not looked at or
 * replaced (fake_time.h).
 */
#ifndef TESTS_FUZZ_SUPPORT_FUZZ_H
#define TESTS_FUZZ_SUPPORT_FUZZ_H

#include "common/loop.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FUZZ_FDS_MAX = 512,    /* a target opens no fd of this number or above */
	FUZZ_TURNS_MAX = 4096, /* of a loop, after the last thing that a program did */
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Says what and where, and aborts. */
_Noreturn void fuzz_fail(const char *what, const char *file, int line);
#define FUZZ_ASSERT(condition) ((condition) ? (void)0 : fuzz_fail(#condition, __FILE__, __LINE__))

/* Around each input: log lines go nowhere, and each fd that was opened in between must be closed. */
void fuzz_begin(void);
void fuzz_end(void);

/* One round of the loop, which waits for nothing. */
void fuzz_turn(struct loop *loop);
/* Turns until nothing happens any more, which must be within FUZZ_TURNS_MAX rounds. */
void fuzz_settle(struct loop *loop);

/* The input, consumed from its front. What is beyond its end reads as zero. */
struct fuzz_input {
	const uint8_t *at, *end;
};

static inline struct fuzz_input fuzz_open(const uint8_t *data, size_t size)
{
	return (struct fuzz_input){.at = data, .end = data + size};
}

static inline size_t fuzz_left(const struct fuzz_input *input)
{
	return (size_t)(input->end - input->at);
}

/* Fills all of `to`; the number of bytes that the input still had for it. */
size_t fuzz_take(struct fuzz_input *input, void *to, size_t length);
/* At most length bytes as they stand, consumed; *length is set to how many there are. */
const uint8_t *fuzz_bytes(struct fuzz_input *input, size_t *length);
uint8_t fuzz_u8(struct fuzz_input *input);
uint16_t fuzz_u16(struct fuzz_input *input);
uint32_t fuzz_u32(struct fuzz_input *input);
uint64_t fuzz_u64(struct fuzz_input *input);
/* A number below limit (1 to 65536), from one byte, or two where one is too few. */
uint32_t fuzz_below(struct fuzz_input *input, uint32_t limit);
/* True once in n (2 to 256), by one byte; false at the end of the input. */
bool fuzz_one_in(struct fuzz_input *input, unsigned n);

#endif
