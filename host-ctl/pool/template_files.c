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

static int take(int from, int to, const char *name)
{
	struct stat status;
	const char *kind;
	int in = input_file_open(from, name, O_NOFOLLOW, INPUT_FILE, &status, &kind), out, r;

	if (in < 0)
		return in;
	out = openat(to, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	r = out < 0 ? -errno : file_copy(in, out);
	fd_close(&out);
	fd_close(&in);
	if (!r && unlinkat(from, name, 0) < 0)
		r = -errno;
	return r;
}

int template_files_take(int from, int to, bool has_disk, const char **name)
{
	int r = take(from, to, *name = "state");

	if (!r)
		r = take(from, to, *name = "memory");
	if (!r && has_disk)
		r = take(from, to, *name = TEMPLATE_DISK);
	return r;
}
