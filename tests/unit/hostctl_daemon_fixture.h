/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole daemon for a test: serve_main in a child process, with tests/fake-vmm in place of VMs. Everything
 * waits with a bound; what takes longer fails.
 *
 * Needs root and a writable cgroup v2 mount, with or without controllers; without them a test is skipped.
 */
#ifndef TESTS_UNIT_HOSTCTL_DAEMON_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_DAEMON_FIXTURE_H

#include "tests/support/unit.h"

#include "common/unix_socket.h"
#include "host-ctl/serve/serve.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAKE_VMM "build/tests/fake-vmm"

enum { WAIT_MS = 20 * 1000, POLL_MS = 5 };

struct daemon {
	pid_t pid;
	char folder[64], socket[96], cgroups[128];
	const char *vmm;     /* FAKE_VMM, until a test names another */
	bool templates;	     /* false: --cold */
	bool keep_kernel;    /* the script of the last start */
	const char *standby; /* NULL: none, so that command lines tell what a VM is */
	char state[96];	     /* folder of templates */
	rlim_t files;	     /* that it may have open; 0: as many as the test */
};

static inline void sleep_ms(long milliseconds)
{
	const struct timespec time = {
		.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};

	nanosleep(&time, NULL);
}

/* The mount point of cgroup v2, or false. */
static inline bool find_cgroups(char *path, size_t size)
{
	char line[512], at[64], type[64];
	FILE *mounts = fopen("/proc/mounts", "re");
	bool found = false;

	while (mounts && !found && fgets(line, sizeof line, mounts))
		found = sscanf(line, "%*s %63s %63s", at, type) == 2 && !strcmp(type, "cgroup2");
	if (mounts)
		fclose(mounts);
	if (found)
		snprintf(path, size, "%s", at);
	return found && geteuid() == 0 && access(path, W_OK) == 0;
}

static inline void write_text(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* One sector of these bytes. */
static inline void write_image(const struct daemon *daemon, char byte)
{
	char sector[512 + 1];

	memset(sector, byte, sizeof sector - 1);
	sector[sizeof sector - 1] = '\0';
	write_text(daemon->folder, "image", sector);
}

static inline void daemon_folder(struct daemon *daemon)
{
	char mount[64];

	if (!find_cgroups(mount, sizeof mount)) {
		print_message("needs root and a writable cgroup v2 mount\n");
		skip();
	}
	snprintf(daemon->folder, sizeof daemon->folder, "/tmp/tinderbox-unit.XXXXXX");
	assert_non_null(mkdtemp(daemon->folder));
	snprintf(daemon->socket, sizeof daemon->socket, "%s/api.sock", daemon->folder);
	snprintf(daemon->cgroups, sizeof daemon->cgroups, "%s/tinderbox-unit-%s", mount,
		strrchr(daemon->folder, '.') + 1);
	snprintf(daemon->state, sizeof daemon->state, "%s.state", daemon->folder);
	daemon->vmm = FAKE_VMM;
	daemon->templates = daemon->keep_kernel = false;
	daemon->standby = NULL;
	daemon->files = 0;
	write_text(daemon->folder, "initrd", "070701");
	write_image(daemon, 'i');
}

/* The child: never returns. */
static inline void daemon_child(const struct daemon *daemon, int ready, char *const *options)
{
	char kernel[96], initrd[96], image[96], ready_text[16];
	char *argv[64] = {"serve", "--socket", (char *)daemon->socket, "--runtime-dir",
		(char *)daemon->folder, "--cgroup-root", (char *)daemon->cgroups, "--limits", "available",
		"--kvm", "/dev/null", "--vmm", (char *)daemon->vmm, "--kernel", kernel, "--initrd", initrd,
		"--image", image, "--ready-fd", ready_text, "--state-dir", (char *)daemon->state};
	int argc = 23, log = open("/dev/null", O_WRONLY | O_CLOEXEC);

	snprintf(kernel, sizeof kernel, "%s/kernel", daemon->folder);
	snprintf(initrd, sizeof initrd, "%s/initrd", daemon->folder);
	snprintf(image, sizeof image, "%s/image", daemon->folder);
	snprintf(ready_text, sizeof ready_text, "%d", ready);
	if (!daemon->templates)
		argv[argc++] = "--cold";
	argv[argc++] = "--standby";
	argv[argc++] = (char *)(daemon->standby ? daemon->standby : "0");
	while (options && *options)
		argv[argc++] = *options++;
	if (!getenv("TINDERBOX_TEST_LOG"))
		dup2(log, STDERR_FILENO);
	if (daemon->files)
		setrlimit(RLIMIT_NOFILE,
			&(struct rlimit){.rlim_cur = daemon->files, .rlim_max = daemon->files});
	/* A test that fails leaves no daemon behind. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	exit(serve_main(argc, argv));
}

/* Waits for the child's status. */
static inline int daemon_wait(struct daemon *daemon)
{
	int status = 0;

	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid) {
			daemon->pid = 0;
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		sleep_ms(POLL_MS);
	}
	kill(daemon->pid, SIGKILL);
	fail_msg("the daemon did not end");
	return -1;
}

/* Starts it in its folder; with wait_ready returns when the pool is full, else when the socket answers. */
static inline void daemon_launch(
	struct daemon *daemon, const char *script, char *const *options, bool wait_ready)
{
	struct pollfd wait = {.events = POLLIN};
	char kernel[256];
	int ready[2], fd = -1;
	char byte;

	/* The daemon starts with nothing that does not begin as a kernel does. */
	snprintf(kernel, sizeof kernel, "\177ELF %s", script);
	if (!daemon->keep_kernel)
		write_text(daemon->folder, "kernel", kernel);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	fflush(NULL);
	daemon->pid = fork();
	assert_true(daemon->pid >= 0);
	if (daemon->pid == 0) {
		close(ready[0]);
		daemon_child(daemon, ready[1], options);
	}
	close(ready[1]);
	wait.fd = ready[0];
	if (wait_ready) {
		assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
		assert_int_equal(read(ready[0], &byte, 1), 1);
	}
	for (int waited = 0; !wait_ready && waited < WAIT_MS; waited += POLL_MS) {
		fd = unix_connect(daemon->socket, SOCK_STREAM);
		if (fd >= 0)
			break;
		sleep_ms(POLL_MS);
	}
	if (fd >= 0)
		close(fd);
	close(ready[0]);
}

static inline void daemon_start(struct daemon *daemon, const char *script, char *const *options)
{
	daemon_folder(daemon);
	daemon_launch(daemon, script, options, true);
}

static inline int count_entries(const char *path, const char *prefix)
{
	DIR *listing = opendir(path);
	struct dirent *entry;
	int count = 0;

	while (listing && (entry = readdir(listing)))
		count += !strncmp(entry->d_name, prefix, strlen(prefix));
	if (listing)
		closedir(listing);
	return count;
}

static inline void remove_folder(const char *path)
{
	DIR *listing = opendir(path);
	struct dirent *entry;

	while (listing && (entry = readdir(listing)))
		unlinkat(dirfd(listing), entry->d_name, 0);
	if (listing)
		closedir(listing);
	assert_int_equal(rmdir(path), 0);
}

/* Of a daemon that has ended. */
static inline void remove_journal(const struct daemon *daemon)
{
	char path[128];

	snprintf(path, sizeof path, "%s/journal.db", daemon->state);
	unlink(path);
	snprintf(path, sizeof path, "%s/journal.db-wal", daemon->state);
	unlink(path);
	/* Not when there are templates in it. */
	rmdir(daemon->state);
}

/* Ends it as a service manager does: status 0, and nothing is left. */
static inline void daemon_stop_by(struct daemon *daemon, int signal)
{
	assert_int_equal(kill(daemon->pid, signal), 0);
	assert_int_equal(daemon_wait(daemon), 0);
	assert_int_equal(access(daemon->socket, F_OK), -1);
	assert_int_equal(count_entries(daemon->cgroups, "vm-"), 0);
	assert_int_equal(count_entries(daemon->folder, "vm"), 0);
	remove_folder(daemon->folder);
	remove_journal(daemon);
	assert_int_equal(rmdir(daemon->cgroups), 0);
}

static inline void daemon_stop(struct daemon *daemon)
{
	daemon_stop_by(daemon, SIGTERM);
}

#endif
