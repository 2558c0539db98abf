/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/ring.h"
#include <errno.h>
#include <string.h>

uint64_t ring_oldest(const struct ring *ring)
{
	return ring->end > RING_SIZE ? ring->end - RING_SIZE : 0;
}

/* Where `length` bytes from an offset on lie; at most RING_SIZE. */
static void locate(const struct ring *ring, uint64_t from, size_t length, struct iovec iov[2])
{
	size_t at = (size_t)(from & (RING_SIZE - 1)), first = RING_SIZE - at;

	if (first > length)
		first = length;
	iov[0] = (struct iovec){.iov_base = ring->bytes + at, .iov_len = first};
	iov[1] = (struct iovec){.iov_base = ring->bytes, .iov_len = length - first};
}

size_t ring_span(const struct ring *ring, uint64_t from, size_t limit, struct iovec iov[2])
{
	uint64_t held = ring->end - from;
	size_t length = held < limit ? (size_t)held : limit;

	locate(ring, from, length, iov);
	return length;
}

ssize_t ring_read(struct ring *ring, int fd, size_t limit)
{
	struct iovec iov[2];
	ssize_t n;

	locate(ring, ring->end, limit, iov);
	do
		n = readv(fd, iov, iov[1].iov_len > 0 ? 2 : 1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	ring->end += (uint64_t)n;
	return n;
}

void ring_put(struct ring *ring, const void *data, size_t length)
{
	struct iovec iov[2];

	locate(ring, ring->end, length, iov);
	memcpy(iov[0].iov_base, data, iov[0].iov_len);
	memcpy(iov[1].iov_base, (const uint8_t *)data + iov[0].iov_len, iov[1].iov_len);
	ring->end += length;
}

void ring_skip(struct ring *ring, uint64_t length)
{
	ring->end += length;
}

ssize_t ring_write(const struct ring *ring, uint64_t from, int fd)
{
	struct iovec iov[2];
	ssize_t n;

	ring_span(ring, from, RING_SIZE, iov);
	do
		n = writev(fd, iov, iov[1].iov_len > 0 ? 2 : 1);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}
