/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed values one after another in a bounded buffer: what a snapshot's state is made of (docs/snapshot.md).
 * Little-endian, without padding. Values are put and got in the same order; nothing in the bytes says what
 * they are, so a reader checks each value that it takes.
 *
 * Errors stick: whoever puts or gets looks once, at the end. After one, puts do nothing and gets give zeros.
 */
#ifndef VMM_STATE_H
#define VMM_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct state_writer {
	uint8_t *data; /* the caller's */
	size_t capacity, length;
	int error;	   /* 0, -ENOSPC, or state_fail's */
	bool disks_copied; /* the putter's: of disks, what lies upon their copies is told (blk_copy) */
};

struct state_reader {
	const uint8_t *data; /* the caller's */
	size_t length, offset;
	int error; /* 0, -EBADMSG */
};

void state_writer_init(struct state_writer *writer, void *data, size_t capacity);
void state_put_u8(struct state_writer *writer, uint8_t value);
void state_put_u16(struct state_writer *writer, uint16_t value);
void state_put_u32(struct state_writer *writer, uint32_t value);
void state_put_u64(struct state_writer *writer, uint64_t value);
void state_put_bool(struct state_writer *writer, bool value);
void state_put_bytes(struct state_writer *writer, const void *data, size_t length);
/* For what could not be brought into a state that can be saved: error is a -errno. */
void state_fail(struct state_writer *writer, int error);

void state_reader_init(struct state_reader *reader, const void *data, size_t length);
uint8_t state_get_u8(struct state_reader *reader);
uint16_t state_get_u16(struct state_reader *reader);
uint32_t state_get_u32(struct state_reader *reader);
uint64_t state_get_u64(struct state_reader *reader);
/* A byte of 0 or 1; another one is an error. */
bool state_get_bool(struct state_reader *reader);
void state_get_bytes(struct state_reader *reader, void *data, size_t length);
/* A number that must be at most `most`; a larger one is an error and gives 0. */
uint32_t state_get_count(struct state_reader *reader, uint32_t most);
/* Nothing is left to get. */
bool state_reader_is_empty(const struct state_reader *reader);
/* For a value that was got and that its taker cannot bear. */
void state_refuse(struct state_reader *reader);
/* 0 when all was got and borne, -EBADMSG: too few bytes, bytes left over, or a value refused. */
int state_reader_finish(const struct state_reader *reader);

/*
 * A record: a u32 tag, a u32 length and that many bytes. begin returns where it stands, for the end that
 * fills the length in.
 */
enum { STATE_RECORD_HEADER = 8 };
size_t state_begin_record(struct state_writer *writer, uint32_t tag);
void state_end_record(struct state_writer *writer, size_t where);
/* The next record must have that tag; *record reads its bytes, which stay the outer reader's. */
void state_get_record(struct state_reader *reader, uint32_t tag, struct state_reader *record);

#endif
