/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/baseline.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "baseline"
#define NEW_NAME FILE_NAME ".new"

enum { WRITE_BYTES = 4096 };

/* ---- writing ---- */

struct writer {
	int fd;
	size_t used;
	size_t names_left;
	uint8_t bytes[WRITE_BYTES];
};

static int flush(struct writer *writer)
{
	int r = io_write_all(writer->fd, writer->bytes, writer->used);

	writer->used = 0;
	return r;
}

/* What is put is always shorter than the buffer. */
static int put(struct writer *writer, const void *data, size_t length)
{
	int r = length > sizeof(writer->bytes) - writer->used ? flush(writer) : 0;

	memcpy(writer->bytes + writer->used, data, length);
	writer->used += length;
	return r;
}

static int put_record(
	struct writer *writer, const struct stat *st, const char *name, int folder, unsigned depth)
{
	char redirect[LAYERS_REDIRECT_MAX];
	struct baseline_record record = {
		.depth = (uint8_t)depth,
		.name_length = (uint8_t)strlen(name),
		.redirect_length = (uint16_t)layers_read_redirect(folder, redirect),
		.opaque = layers_is_opaque(folder),
		.mode = layers_is_whiteout(st) ? 0 : st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.changed_ns = (uint32_t)st->st_ctim.tv_nsec,
		.changed_s = st->st_ctim.tv_sec,
		.inode = st->st_ino,
	};
	int r = put(writer, &record, sizeof(record));

	if (r == 0)
		r = put(writer, name, record.name_length);
	return r == 0 ? put(writer, redirect, record.redirect_length) : r;
}

static int write_folder(struct writer *writer, int folder, unsigned depth);

static int write_entry(struct writer *writer, int parent, const char *name, unsigned depth)
{
	struct stat st;
	int folder = -1, r = layers_look(parent, name, &st);

	if (r <= 0)
		return r;
	r = S_ISDIR(st.st_mode) ? layers_open_folder(parent, name, &folder) : 0;
	if (r == 0)
		r = put_record(writer, &st, name, folder, depth);
	if (r == 0 && folder >= 0 && depth < LAYERS_DEPTH_MAX)
		r = write_folder(writer, folder, depth + 1);
	fd_close(&folder);
	return r;
}

static int write_folder(struct writer *writer, int folder, unsigned depth)
{
	struct names names;
	const char *name;
	size_t bytes;
	int r = names_read(&names, folder, writer->names_left);

	if (r < 0)
		return r;
	bytes = names.bytes;
	writer->names_left -= bytes;
	for (; r == 0 && (name = names_peek(&names)); names.next++)
		r = write_entry(writer, folder, name, depth);
	names_finish(&names);
	writer->names_left += bytes;
	return r;
}

int baseline_write(const struct layers *layers)
{
	struct writer writer = {.names_left = LAYERS_NAMES_MAX};
	int r;

	if (!layers || layers->upper < 0)
		return -EOPNOTSUPP;
	writer.fd = openat(layers->store, NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (writer.fd < 0)
		return -errno;
	r = write_folder(&writer, layers->upper, 1);
	if (r == 0)
		r = flush(&writer);
	fd_close(&writer.fd);
	if (r == 0 && renameat(layers->store, NEW_NAME, layers->store, FILE_NAME) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(layers->store, NEW_NAME, 0);
	return r;
}

int baseline_ensure(const struct layers *layers)
{
	struct stat status;

	if (layers && layers->upper >= 0 && fstatat(layers->store, FILE_NAME, &status, 0) == 0)
		return 0;
	return baseline_write(layers);
}

/* ---- reading ---- */

/* Bytes of the file, at most what fits the buffer. -EIO: it ends before. */
static int get(struct baseline *baseline, void *to, size_t length)
{
	size_t have = baseline->end - baseline->start;

	if (have < length) {
		ssize_t n;

		memmove(baseline->bytes, baseline->bytes + baseline->start, have);
		n = io_read_full(baseline->fd, baseline->bytes + have, sizeof(baseline->bytes) - have);
		if (n < 0)
			return (int)n;
		baseline->start = 0;
		baseline->end = have + (size_t)n;
		if (baseline->end < length)
			return baseline->end == 0 ? 0 : -EIO;
	}
	memcpy(to, baseline->bytes + baseline->start, length);
	baseline->start += length;
	return 1;
}

static int get_text(struct baseline *baseline, char *to, size_t length)
{
	to[length] = '\0';
	return length == 0 || get(baseline, to, length) == 1 ? 0 : -EIO;
}

static int read_record(struct baseline *baseline)
{
	const struct baseline_record *record = &baseline->record;
	int r = baseline->fd < 0 ? 0 : get(baseline, &baseline->record, sizeof(baseline->record));

	baseline->has = r == 1;
	if (r != 1)
		return r;
	if (record->redirect_length >= sizeof(baseline->redirect))
		return -EIO;
	r = get_text(baseline, baseline->name, record->name_length);
	if (r == 0 && (baseline->name[0] == '\0' || strlen(baseline->name) != record->name_length))
		r = -EIO;
	return r == 0 ? get_text(baseline, baseline->redirect, record->redirect_length) : r;
}

int baseline_open(struct baseline *baseline, const struct layers *layers)
{
	baseline->start = baseline->end = 0;
	baseline->fd = openat(layers->store, FILE_NAME, O_RDONLY | O_CLOEXEC);
	if (baseline->fd < 0 && errno != ENOENT)
		return -errno;
	return read_record(baseline);
}

void baseline_close(struct baseline *baseline)
{
	fd_close(&baseline->fd);
	baseline->has = false;
}

bool baseline_is_at(const struct baseline *baseline, unsigned depth)
{
	return baseline->has && baseline->record.depth == depth;
}

int baseline_next(struct baseline *baseline, unsigned depth)
{
	int r;

	do
		r = read_record(baseline);
	while (r == 0 && baseline->has && baseline->record.depth > depth);
	return r;
}
