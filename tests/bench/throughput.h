/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What throughput_guest and throughput_host say on a stream, vsock or TCP: the guest connects and sends one
 * struct stream_request. STREAM_TO_HOST: the guest sends and ends its side, the host answers with a uint64_t
 * of how many bytes came. STREAM_TO_GUEST: the host sends for as long as was asked and ends. STREAM_ECHO: the
 * host returns what it is sent.
 */
#ifndef TESTS_BENCH_THROUGHPUT_H
#define TESTS_BENCH_THROUGHPUT_H

#include <errno.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum stream_op { STREAM_TO_HOST = 1, STREAM_TO_GUEST, STREAM_ECHO };

struct stream_request {
	uint32_t op; /* enum stream_op */
	uint32_t ms; /* for STREAM_TO_GUEST */
};

enum {
	STREAM_CHUNK = 64 * 1024, /* bytes of one write or read */
	STREAM_PORT = 5000,	  /* of the host, vsock and TCP */
};

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* All of it. 0, or -errno. */
static inline int write_all(int fd, const void *data, size_t length)
{
	const char *from = data;

	while (length) {
		ssize_t n = write(fd, from, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		from += n;
		length -= (size_t)n;
	}
	return 0;
}

/* All of it. 0, -errno, or -ECONNRESET when the stream ends before. */
static inline int read_all(int fd, void *data, size_t length)
{
	char *to = data;

	while (length) {
		ssize_t n = read(fd, to, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		to += n;
		length -= (size_t)n;
	}
	return 0;
}

/* Sends chunks until ms are over. 0 or -errno. */
static inline int send_for(int fd, const void *chunk, uint32_t ms)
{
	uint64_t end = now_ns() + ms * UINT64_C(1000000);
	int error = 0;

	while (!error && now_ns() < end)
		error = write_all(fd, chunk, STREAM_CHUNK);
	return error;
}

/* Reads to the end of the stream; its bytes in *total. 0 or -errno. */
static inline int drain(int fd, void *chunk, uint64_t *total)
{
	ssize_t n;

	for (*total = 0; (n = read(fd, chunk, STREAM_CHUNK)) != 0;) {
		if (n < 0 && errno != EINTR)
			return -errno;
		*total += n > 0 ? (uint64_t)n : 0;
	}
	return 0;
}

#endif
