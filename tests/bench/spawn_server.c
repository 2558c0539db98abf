/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's counterpart where rates are compared: a server of the same kind, one process and one loop on a
 * Unix socket, that answers each POST with the output of a process of this host. It has no VM, no JSON to
 * parse, no limits and no record: what remains is a connection, posix_spawn, a pipe, a wait and an answer.
 *
 *   spawn_server SOCKET PROGRAM
 *
 * A request is what one recv brings, since tests/bench/load sends each in one piece. The answer has the form
 * of that of POST /v1/run as far as load looks, without the output. Serves until it is killed; prints "ready"
 * when it listens.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	BACKLOG = 128, /* as the daemon's */
	JOBS_MAX = 512,
	EVENTS_MAX = 16,
	READ_MAX = 4096, /* a request; a program's output at once, which is counted and dropped */
};

/* A request from its connection to its answer. */
struct job {
	int client; /* -1: none */
	int pipe;   /* -1 until the program runs */
	pid_t pid;
	size_t bytes; /* of output */
};

struct server {
	int epoll, listener;
	char *program;
	struct job jobs[JOBS_MAX];
};

static int watch(const struct server *server, int fd, struct job *job)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = job};

	return epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static void finish(struct job *job)
{
	if (job->pipe >= 0)
		close(job->pipe);
	close(job->client);
	job->client = -1;
}

static struct job *free_job(struct server *server)
{
	for (int i = 0; i < JOBS_MAX; i++)
		if (server->jobs[i].client < 0)
			return &server->jobs[i];
	return NULL;
}

static void take_client(struct server *server)
{
	struct job *job = free_job(server);
	int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (!job) {
		close(fd);
		return;
	}
	*job = (struct job){.client = fd, .pipe = -1};
	if (watch(server, fd, job) < 0)
		finish(job);
}

/* 0 or -errno. The job's output is watched from then on, its client no longer. */
static int start(const struct server *server, struct job *job)
{
	char *argv[] = {server->program, NULL}, *environment[] = {NULL};
	posix_spawn_file_actions_t actions;
	int ends[2], r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	job->pipe = ends[0];
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	r = -posix_spawn(&job->pid, server->program, &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (r == 0)
		r = watch(server, job->pipe, job);
	epoll_ctl(server->epoll, EPOLL_CTL_DEL, job->client, NULL);
	return r;
}

static void answer(struct job *job)
{
	char text[512], body[256];
	int status = 0, length;

	waitpid(job->pid, &status, 0);
	length = snprintf(body, sizeof(body),
		"{\"result\":{\"kind\":\"exited\",\"code\":%d},\"stdout\":{\"bytes\":%zu}}",
		WEXITSTATUS(status), job->bytes);
	length =
		snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, body);
	if (send(job->client, text, (size_t)length, MSG_NOSIGNAL) != length)
		perror("spawn_server: an answer");
}

/* Something to be read: the request, then what the program writes until its end. */
static void go_on(const struct server *server, struct job *job)
{
	char bytes[READ_MAX];
	ssize_t n;

	if (job->pipe < 0) {
		n = recv(job->client, bytes, sizeof(bytes), 0);
		if (n > 0 && start(server, job) == 0)
			return;
		finish(job);
		return;
	}
	n = read(job->pipe, bytes, sizeof(bytes));
	if (n > 0) {
		job->bytes += (size_t)n;
		return;
	}
	answer(job);
	finish(job);
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return fd;
}

int main(int argc, char **argv)
{
	struct server server = {.epoll = epoll_create1(EPOLL_CLOEXEC)};
	struct epoll_event events[EVENTS_MAX];
	int n;

	if (argc != 3) {
		fprintf(stderr, "usage: spawn_server SOCKET PROGRAM\n");
		return 2;
	}
	server.program = argv[2];
	for (int i = 0; i < JOBS_MAX; i++)
		server.jobs[i].client = -1;
	server.listener = listen_at(argv[1]);
	if (server.listener < 0 || watch(&server, server.listener, NULL) < 0) {
		fprintf(stderr, "spawn_server: %s: %s\n", argv[1], strerror(-server.listener));
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		n = epoll_wait(server.epoll, events, EVENTS_MAX, -1);
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				go_on(&server, events[i].data.ptr);
			else
				take_client(&server);
		}
	}
}
