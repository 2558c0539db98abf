/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/tail.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void tail_add(struct tail *tail, const char *data, size_t length)
{
	size_t keep;

	if (length > TAIL_BYTES) {
		data += length - TAIL_BYTES;
		length = TAIL_BYTES;
	}
	keep = tail->length < TAIL_BYTES - length ? tail->length : TAIL_BYTES - length;
	memmove(tail->bytes, tail->bytes + tail->length - keep, keep);
	memcpy(tail->bytes + keep, data, length);
	tail->length = keep + length;
}

int tail_read(struct tail *tail, int fd)
{
	char data[TAIL_READ];
	ssize_t got = read(fd, data, sizeof data);

	if (got == 0)
		return -EPIPE;
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	tail_add(tail, data, (size_t)got);
	return got == (ssize_t)sizeof data;
}

void tail_format(const struct tail *tail, char *text, size_t size)
{
	const char *start = tail->bytes, *end = tail->bytes + tail->length;
	size_t at = 0;

	while (end > start && end[-1] == '\n')
		end--;
	/* A line whose beginning is gone, and early ones that do not fit beside the later, are left out. */
	while ((tail->length == TAIL_BYTES && start == tail->bytes) || (size_t)(end - start) >= size) {
		const char *newline = memchr(start, '\n', (size_t)(end - start));

		if (!newline)
			break;
		start = newline + 1;
	}
	for (; start < end && at + 3 < size; start++) {
		if (*start == '\n') {
			text[at++] = ';';
			text[at++] = ' ';
		} else {
			text[at++] = *start;
		}
	}
	text[at] = '\0';
	text_make_printable(text);
}
