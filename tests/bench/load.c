/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that ask one server of HTTP/1.1 on a Unix socket for the same, over and over: how many requests a
 * second are answered, and how long each takes.
 *
 *   load [--answer TEXT] NAME CLIENTS REQUESTS SOCKET BODY PATH...
 *
 * CLIENTS threads share REQUESTS; each asks its next one when its last is answered, the n-th of them at the
 * n-th PATH and round again. A request is a connection of its own: POST of BODY to PATH, timed from before
 * the connect to the last byte of the answer. It has failed unless the answer is 200 and holds TEXT, or
 * ANSWER, the end of a command with status 0.
 *
 * Prints "sample NAME NS" for each request that was answered so, and last "load NAME ANSWERED FAILED WARM
 * NS": WARM answers say that a VM was warm, and NS is from the first connect to the last answer. Exit status
 * 1 when one has failed, the first of them told on standard error.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	CLIENTS_MAX = 256,
	REQUESTS_MAX = 1000000,
	REQUEST_MAX = 4096, /* bytes */
	ANSWER_MAX = 65536,
	ANSWER_LIMIT_S = 120,
};
#define ANSWER "\"kind\":\"exited\",\"code\":0"

struct load {
	const char *name, *body, *wanted;
	struct sockaddr_un address;
	char **paths;
	int path_count;
	long requests;
	uint64_t *ns; /* of each request; 0: it failed */
	atomic_long next, failed, warm;
};

struct client {
	pthread_t thread;
	struct load *load;
	char request[REQUEST_MAX];
	size_t length;
	char answer[ANSWER_MAX];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A connected socket, or -errno. A full backlog is waited for, as by any client that blocks. */
static int connect_to(const struct sockaddr_un *address)
{
	const struct timeval limit = {.tv_sec = ANSWER_LIMIT_S};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/* The whole answer, NUL-terminated: the server closes after it. 0 or -errno. */
static int ask(int fd, struct client *client)
{
	size_t length = 0;
	ssize_t n;

	if (send(fd, client->request, client->length, MSG_NOSIGNAL) != (ssize_t)client->length)
		return errno ? -errno : -EIO;
	do {
		n = recv(fd, client->answer + length, ANSWER_MAX - 1 - length, 0);
		if (n < 0)
			return -errno;
		length += (size_t)n;
	} while (n > 0);
	client->answer[length] = '\0';
	return 0;
}

static bool is_good(const char *answer, const char *wanted)
{
	return strncmp(answer, "HTTP/1.1 200 ", 13) == 0 && strstr(answer, wanted);
}

static void fail(struct load *load, int error, const char *answer)
{
	if (atomic_fetch_add(&load->failed, 1) == 0)
		fprintf(stderr, "load: %s: %s\n", load->name, error < 0 ? strerror(-error) : answer);
}

static void do_request(struct client *client, long index)
{
	struct load *load = client->load;
	uint64_t start = now_ns();
	int fd = connect_to(&load->address);
	int r = fd < 0 ? fd : ask(fd, client);

	if (fd >= 0)
		close(fd);
	if (r < 0 || !is_good(client->answer, load->wanted)) {
		fail(load, r, client->answer);
		return;
	}
	load->ns[index] = now_ns() - start;
	if (strstr(client->answer, "\"warm\":true"))
		atomic_fetch_add(&load->warm, 1);
}

static void *run_client(void *context)
{
	struct client *client = context;
	long index;

	while ((index = atomic_fetch_add(&client->load->next, 1)) < client->load->requests)
		do_request(client, index);
	return NULL;
}

static int prepare(struct client *client, struct load *load, int index)
{
	int length = snprintf(client->request, sizeof(client->request),
		"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
		load->paths[index % load->path_count], strlen(load->body), load->body);

	client->load = load;
	client->length = (size_t)length;
	return length > 0 && client->length < sizeof(client->request) ? 0 : -EMSGSIZE;
}

/* 0 or -errno: the clients could not be started. */
static int run(struct load *load, int count)
{
	struct client *clients = calloc((size_t)count, sizeof(*clients));
	int started = 0, r = clients ? 0 : -ENOMEM;

	for (int i = 0; i < count && r == 0; i++)
		r = prepare(&clients[i], load, i);
	while (started < count && r == 0) {
		r = -pthread_create(&clients[started].thread, NULL, run_client, &clients[started]);
		started += r == 0;
	}
	for (int i = 0; i < started; i++)
		pthread_join(clients[i].thread, NULL);
	free(clients);
	return r;
}

static void print(struct load *load, uint64_t took)
{
	long failed = atomic_load(&load->failed);

	for (long i = 0; i < load->requests; i++)
		if (load->ns[i])
			printf("sample %s %llu\n", load->name, (unsigned long long)load->ns[i]);
	printf("load %s %ld %ld %ld %llu\n", load->name, load->requests - failed, failed,
		atomic_load(&load->warm), (unsigned long long)took);
}

/* 0, or -1: it is no number from 1 to maximum. */
static int parse_number(const char *text, long maximum, long *number)
{
	char *end;

	*number = strtol(text, &end, 10);
	return *end == '\0' && *number >= 1 && *number <= maximum ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct load load = {.address.sun_family = AF_UNIX, .wanted = ANSWER};
	uint64_t start;
	long clients;
	int r;

	if (argc > 2 && strcmp(argv[1], "--answer") == 0) {
		load.wanted = argv[2];
		argc -= 2;
		argv += 2;
	}
	if (argc < 7 || parse_number(argv[2], CLIENTS_MAX, &clients) < 0 ||
		parse_number(argv[3], REQUESTS_MAX, &load.requests) < 0 ||
		strlen(argv[4]) >= sizeof(load.address.sun_path)) {
		fprintf(stderr, "usage: load [--answer TEXT] NAME CLIENTS REQUESTS SOCKET BODY PATH...\n");
		return 2;
	}
	load.name = argv[1];
	memcpy(load.address.sun_path, argv[4], strlen(argv[4]) + 1);
	load.body = argv[5];
	load.paths = argv + 6;
	load.path_count = argc - 6;
	load.ns = calloc((size_t)load.requests, sizeof(*load.ns));
	if (!load.ns)
		return 1;
	start = now_ns();
	r = run(&load, (int)clients);
	if (r < 0)
		fprintf(stderr, "load: the clients: %s\n", strerror(-r));
	else
		print(&load, now_ns() - start);
	free(load.ns);
	return r < 0 || atomic_load(&load.failed) > 0 ? 1 : 0;
}
