/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/vmm_client.h"
#include "common/io.h"
#include "common/unix_socket.h"
#include "host-ctl/support/clock.h"
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

static int fail_connect(const char *path, int r, struct client_error *error)
{
	if (r == -ENOENT)
		client_error_set(error, "no_vm",
			"there is no %s: has the VM ended, or is its vmm without --control %s?", path, path);
	else if (r == -ECONNREFUSED &&
		 client_refuse_no_socket(path, "give the path that vmm has for --control", error))
		return -1;
	else if (r == -ECONNREFUSED)
		client_error_set(error, "no_vm",
			"nobody listens at %s: its vmm was killed; remove the socket or start the VM again",
			path);
	else if (r == -EPROTOTYPE)
		client_error_set(error, "protocol",
			"%s is not the control socket of a vmm but one of another kind; give the path that "
			"vmm has for --control",
			path);
	else if (r == -EACCES || r == -EPERM)
		client_error_set(error, "denied",
			"may not connect to %s; be root or the user that runs the vmm", path);
	else if (r == -ENAMETOOLONG || r == -EINVAL)
		client_error_set(error, "invalid", "'%s' cannot be the path of a socket: %s", path,
			r == -EINVAL ? "it is empty" : "it is too long");
	else if (r == -EAGAIN)
		client_error_set(error, "busy",
			"so many wait at %s already that it takes no more; try again later", path);
	else
		client_error_set(error, "io", "cannot connect to %s: %s", path, strerror(-r));
	error->retryable = r == -EAGAIN;
	return -1;
}

static int fail_protocol(const struct vmm_client *client, struct client_error *error)
{
	client_error_set(error, "protocol",
		"what answers at %s does not speak as a vmm of this version does; give the path that vmm has "
		"for --control",
		client->path);
	return -1;
}

static int fail_closed(const struct vmm_client *client, struct client_error *error)
{
	client_error_set(
		error, "no_vm", "%s was closed before there was an answer: the VM has ended", client->path);
	return -1;
}

static uint64_t now_ms(void)
{
	return clock_now() / CLOCK_NS_PER_MS;
}

/* The next message, until a moment of the monotonic clock. 1; 0: none came; -1: see error. */
static int receive(
	struct vmm_client *client, uint64_t until_ms, struct vmm_message *message, struct client_error *error)
{
	uint64_t now = now_ms();
	struct pollfd pollfd = {.fd = client->fd, .events = POLLIN};
	int fds[IO_FDS_MAX];
	size_t count = IO_FDS_MAX;
	ssize_t got;

	/* Over is over: one that sends without an end is not listened to any longer. */
	if (now >= until_ms || poll(&pollfd, 1, (int)(until_ms - now)) <= 0)
		return 0;
	got = io_receive_fds(client->fd, message, sizeof(*message), fds, &count);
	for (size_t i = 0; got > 0 && i < count; i++)
		fd_close(&fds[i]);
	if (got == 0 || got == -ECONNRESET)
		return fail_closed(client, error);
	if (got != (ssize_t)sizeof(*message) || message->reserved != 0 || message->status > 0 ||
		message->status < VMM_STATUS_MIN || !memchr(message->text, '\0', sizeof(message->text)))
		return fail_protocol(client, error);
	if (message->type == VMM_EVENT_STATE)
		client->state = *message;
	return 1;
}

static int greet(struct vmm_client *client, struct client_error *error)
{
	int r = receive(client, now_ms() + VMM_CLIENT_GREETING_MS, &client->state, error);

	if (r == 1 && client->state.type != VMM_EVENT_STATE)
		return fail_protocol(client, error);
	if (r == 0) {
		client_error_set(error, "busy",
			"the vmm at %s does not answer: it serves one peer at a time, and host-ctl serve or "
			"another one has it; try again when that has gone",
			client->path);
		error->retryable = true;
	}
	return r == 1 ? 0 : -1;
}

int vmm_client_connect(struct vmm_client *client, const char *path, struct client_error *error)
{
	*client = (struct vmm_client){
		.path = path, .fd = unix_connect(path, SOCK_SEQPACKET), .reply_ms = VMM_CLIENT_REPLY_MS};
	if (client->fd < 0)
		return fail_connect(path, client->fd, error);
	if (greet(client, error) == 0)
		return 0;
	vmm_client_finish(client);
	return -1;
}

void vmm_client_finish(struct vmm_client *client)
{
	if (client->fd >= 0)
		fd_close(&client->fd);
}

static int fail_slow(const struct vmm_client *client, struct client_error *error)
{
	client_error_set(error, "busy", "the vmm at %s took the request and did not answer within %u s",
		client->path, client->reply_ms / 1000);
	return -1;
}

int vmm_client_ask(struct vmm_client *client, struct vmm_message *request, const int *fds, size_t count,
	struct vmm_message *reply, struct client_error *error)
{
	uint64_t until = now_ms() + client->reply_ms;
	int r;

	request->sequence = ++client->sequence;
	r = io_send_fds(client->fd, request, sizeof(*request), fds, count);
	/* What it had to say may wait still. */
	if (r < 0 && r != -EPIPE && r != -ECONNRESET) {
		client_error_set(error, "io", "cannot write to %s: %s", client->path, strerror(-r));
		return -1;
	}
	do
		r = receive(client, until, reply, error);
	while (r == 1 && reply->sequence == 0);
	if (r == 0)
		return fail_slow(client, error);
	if (r == 1 && (reply->type != (request->type | VMM_REPLY) || reply->sequence != request->sequence))
		return fail_protocol(client, error);
	return r == 1 ? 0 : -1;
}

int vmm_client_await_end(struct vmm_client *client, struct client_error *error)
{
	uint64_t until = now_ms() + client->reply_ms;
	struct vmm_message message;

	while (client->state.arg0 != VMM_STATE_ENDED) {
		int r = receive(client, until, &message, error);

		if (r <= 0)
			return r < 0 ? -1 : fail_slow(client, error);
	}
	return 0;
}
