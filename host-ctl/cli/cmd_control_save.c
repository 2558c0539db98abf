/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl control SOCKET save DIR`: a folder that is whole, or nothing of it. */
#include "common/io.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_control.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the largest memory to a slow disk. */
enum { SAVE_MS = 30 * 60 * 1000, FILES = 2 };

/* In the order of VMM_SAVE. */
static const char *const names[FILES] = {"state", "memory"};

struct snapshot {
	const char *path;
	bool made; /* the folder, by us */
	int folder, files[FILES];
};

static int fail(struct control_call *call, const char *what, const char *path, int error)
{
	const char *mend = "give another folder";

	if (error == EEXIST)
		mend = "remove it, or give another folder";
	else if (error == ENOSPC || error == EDQUOT)
		mend = "make room, or give a folder elsewhere";
	else if (error == EACCES || error == EPERM)
		mend = "give one that you may write to";
	client_error_set(&call->error, error == EACCES || error == EPERM ? "denied" : "io",
		"cannot %s %s: %s; %s", what, path, strerror(error), mend);
	return -1;
}

static int open_snapshot(struct control_call *call, struct snapshot *snapshot)
{
	snapshot->made = mkdir(snapshot->path, 0700) == 0;
	if (!snapshot->made && errno != EEXIST)
		return fail(call, "make the folder", snapshot->path, errno);
	snapshot->folder = open(snapshot->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (snapshot->folder < 0)
		return fail(call, "open the folder", snapshot->path, errno);
	for (size_t i = 0; i < FILES; i++) {
		char path[PATH_MAX];

		/* What is in them is the guest's memory. */
		snapshot->files[i] =
			openat(snapshot->folder, names[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (snapshot->files[i] >= 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", snapshot->path, names[i]);
		return fail(call, "make the file", path, errno);
	}
	return 0;
}

/* A power failure after the answer loses nothing. */
static int sync_snapshot(struct control_call *call, const struct snapshot *snapshot)
{
	for (size_t i = 0; i < FILES; i++)
		if (fsync(snapshot->files[i]) < 0)
			return fail(call, "write the files of", snapshot->path, errno);
	return fsync(snapshot->folder) < 0 ? fail(call, "write the folder", snapshot->path, errno) : 0;
}

/* Of what was there before nothing is touched. */
static void remove_snapshot(const struct snapshot *snapshot)
{
	for (size_t i = 0; i < FILES; i++)
		if (snapshot->files[i] >= 0)
			unlinkat(snapshot->folder, names[i], 0);
	if (snapshot->made)
		rmdir(snapshot->path);
}

static int print_saved(const struct control_call *call, const char *path, const struct vmm_message *reply)
{
	if (call->json)
		return control_print_object(json_pack("{s:s, s:I, s:I}", "folder", path, "state_bytes",
			(json_int_t)reply->arg0, "memory_bytes", (json_int_t)reply->arg1));
	printf("saved in %s: state %.1f KiB, memory %.1f MiB\n", path, (double)reply->arg0 / 1024,
		(double)reply->arg1 / (1024 * 1024));
	return cli_finish_output();
}

int control_save(struct control_call *call)
{
	struct snapshot snapshot = {.path = call->operands[1], .folder = -1, .files = {-1, -1}};
	struct vmm_message reply;
	int r = open_snapshot(call, &snapshot);

	call->client.reply_ms = SAVE_MS;
	if (r == 0)
		r = control_ask(call, VMM_SAVE, 0, snapshot.files, FILES, &reply);
	if (r == 0)
		r = sync_snapshot(call, &snapshot);
	if (r < 0)
		remove_snapshot(&snapshot);
	for (size_t i = 0; i < FILES; i++)
		fd_close(&snapshot.files[i]);
	fd_close(&snapshot.folder);
	return r < 0 ? -1 : print_saved(call, snapshot.path, &reply);
}
