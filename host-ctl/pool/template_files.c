/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/template_files.h"
#include "common/io.h"
#include "host-ctl/pool/template.h"
#include "host-ctl/support/file_copy.h"
#include "host-ctl/support/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whoever has it open may have made it longer since. */
static int check_size(const struct stat *status, uint64_t least, uint64_t most)
{
	const uint64_t bytes = (uint64_t)status->st_size;

	return bytes < least || bytes > most ? -EBADMSG : 0;
}

static int take(int from, int to, const char *name, const atomic_bool *stop, uint64_t least, uint64_t most)
{
	struct stat status;
	const char *kind;
	int in = input_file_open(from, name, O_NOFOLLOW, INPUT_FILE, &status, &kind), out, r;

	if (in < 0)
		return in;
	out = openat(to, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	r = out < 0 ? -errno : check_size(&status, least, most);
	if (!r)
		r = file_copy(in, out, stop);
	/* And meanwhile. */
	if (!r)
		r = fstat(out, &status) < 0 ? -errno : check_size(&status, least, most);
	fd_close(&out);
	fd_close(&in);
	if (!r && unlinkat(from, name, 0) < 0)
		r = -errno;
	return r;
}

int template_files_take(
	const struct template_saved *saved, int folder, const atomic_bool *stop, const char **name)
{
	int r = take(saved->folder, folder, *name = "state", stop, 1, VM_STATE_FILE_MAX);

	if (!r)
		r = take(saved->folder, folder, *name = "memory", stop, saved->memory_bytes,
			saved->memory_bytes);
	if (!r && saved->disk_bytes)
		r = take(saved->folder, folder, *name = TEMPLATE_DISK, stop, saved->disk_bytes,
			saved->disk_bytes);
	return r;
}
