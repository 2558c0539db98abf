/* SPDX-License-Identifier: Apache-2.0 */
/* Text that came from elsewhere, made fit for logs and JSON; and base64 (RFC 4648, section 4). */
#ifndef HOST_CTL_TEXT_H
#define HOST_CTL_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces, in place, control bytes and bytes that are not ASCII by '?'. */
void text_make_printable(char *text);

/* Copies at most size - 1 bytes, NUL-terminates, and makes the copy printable. size is at least 1. */
void text_copy_printable(char *to, size_t size, const void *from, size_t length);

/* Bytes of the base64 of `length` bytes, NUL not included. */
size_t text_base64_length(size_t length);

/* Writes text_base64_length(length) bytes and a NUL. */
void text_base64_encode(char *to, const void *from, size_t length);

/* The base64 as a string, the caller's reference; NULL without memory. */
json_t *text_base64_to_json(const void *from, size_t length);

/*
 * Decodes padded base64 without white space. `to` has room for length / 4 * 3 bytes. The number of bytes,
 * or -1: not base64 (length not a multiple of 4, a foreign byte, bits left over at the end).
 */
ptrdiff_t text_base64_decode(uint8_t *to, const char *from, size_t length);

#endif
