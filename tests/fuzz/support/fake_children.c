/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/support/fake_children.h"
#include "common/io.h"
#include "guest-init/spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The linker's names (--wrap). */
pid_t __wrap_spawn_start(const struct spawn_request *request, struct spawn_failure *failure);
int __wrap_kill(pid_t pid, int signal);
pid_t __wrap_wait4(pid_t pid, int *status, int options, struct rusage *usage);

enum { WRITE_MAX = 80 * 1024 };

static struct {
	struct fake_children *children;
	struct fuzz_input *input;
} now;

void fake_children_init(struct fake_children *children, struct fuzz_input *input)
{
	*children = (struct fake_children){.next_pid = FAKE_PID_FIRST};
	now.children = children;
	now.input = input;
}

static void release(struct fake_child *child)
{
	for (int i = 0; i < 3; i++)
		fd_close(&child->stdio[i]);
}

void fake_children_finish(struct fake_children *children)
{
	for (unsigned i = 0; i < children->count; i++)
		release(&children->children[i]);
	children->count = 0;
	now.children = NULL;
}

/* spawn_start */

static bool has_variable(char *const *env, const char *name)
{
	for (; *env; env++)
		if (strncmp(*env, name, strlen(name)) == 0)
			return true;
	return false;
}

/* What spawn.h asks of its caller. */
static void check_request(const struct spawn_request *request)
{
	FUZZ_ASSERT(request->argv[0] && request->argv[0][0] != '\0');
	FUZZ_ASSERT(request->path && request->cwd && request->cwd[0] != '\0' && request->user);
	FUZZ_ASSERT(has_variable(request->envp, "PATH=") && has_variable(request->envp, "HOME="));
	for (char *const *argument = request->argv; *argument; argument++)
		FUZZ_ASSERT(strlen(*argument) < AGENT_STRINGS_MAX);
	for (int i = 0; i < 3; i++)
		FUZZ_ASSERT(request->stdio[i] >= 3 && fcntl(request->stdio[i], F_GETFD) == FD_CLOEXEC);
}

pid_t __wrap_spawn_start(const struct spawn_request *request, struct spawn_failure *failure)
{
	uint8_t choice = fuzz_u8(now.input);
	struct fake_child *child;

	check_request(request);
	if (choice % 8 == 7 || now.children->count == FAKE_CHILDREN_MAX) {
		*failure = (struct spawn_failure){
			.step = AGENT_STEP_CLONE + choice / 8 % 4, .error = 1 + choice / 32};
		return -1;
	}
	child = &now.children->children[now.children->count++];
	*child = (struct fake_child){.pid = now.children->next_pid++};
	for (int i = 0; i < 3; i++) {
		child->stdio[i] = fcntl(request->stdio[i], F_DUPFD_CLOEXEC, 3);
		FUZZ_ASSERT(child->stdio[i] >= 0 && fd_set_nonblock(child->stdio[i]) == 0);
	}
	return child->pid;
}

/* kill, wait4 */

static void end(struct fake_child *child, int status)
{
	release(child);
	child->ended = true;
	child->status = status;
}

/* Signals go to leaders and their groups, never to all or to oneself. */
int __wrap_kill(pid_t pid, int signal)
{
	pid_t leader = pid < 0 ? -pid : pid;

	FUZZ_ASSERT(now.children && leader >= FAKE_PID_FIRST && leader < now.children->next_pid);
	FUZZ_ASSERT(signal >= 1 && signal <= 64);
	for (unsigned i = 0; i < now.children->count; i++) {
		struct fake_child *child = &now.children->children[i];

		if (child->pid != leader)
			continue;
		if (!child->ended && (signal == SIGKILL || signal == SIGTERM))
			end(child, signal);
		return 0;
	}
	FUZZ_ASSERT(pid < 0); /* a number that was reaped may be another's by now */
	errno = ESRCH;
	return -1;
}

pid_t __wrap_wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	(void)pid;
	FUZZ_ASSERT(options & WNOHANG);
	*usage = (struct rusage){.ru_maxrss = 1};
	for (unsigned i = 0; i < now.children->count; i++) {
		struct fake_child *child = &now.children->children[i];

		if (!child->ended)
			continue;
		*status = child->status;
		pid = child->pid;
		*child = now.children->children[--now.children->count];
		return pid;
	}
	errno = ECHILD;
	return now.children->count ? 0 : -1;
}

/* what they do */

static void write_some(int fd, size_t length)
{
	static const uint8_t bytes[WRITE_MAX];

	if (fd >= 0)
		(void)!write(fd, bytes, length);
}

static void read_some(int fd, size_t length)
{
	uint8_t bytes[8192];

	if (fd >= 0)
		while (length > 0 && read(fd, bytes, sizeof(bytes)) > 0)
			length = length > sizeof(bytes) ? length - sizeof(bytes) : 0;
}

bool fake_children_step(struct fake_children *children, struct fuzz_input *input)
{
	uint8_t choice = fuzz_u8(input);
	struct fake_child *child;

	if (children->count == 0)
		return false;
	child = &children->children[choice % children->count];
	choice = fuzz_u8(input);
	if (child->ended)
		return false;
	switch (choice & 7) {
	case 0:
		end(child, (choice >> 3) << 8); /* exited */
		break;
	case 1:
		end(child, 1 + (choice >> 3)); /* by a signal */
		break;
	case 2:
		read_some(child->stdio[0], 1 + fuzz_u16(input));
		break;
	case 3:
		fd_close(&child->stdio[(choice >> 3) % 3]);
		break;
	case 4:
		write_some(child->stdio[1 + (choice >> 7)], fuzz_u16(input));
		break;
	default:
		write_some(child->stdio[1 + (choice >> 7)], choice >> 3);
		break;
	}
	return true;
}
