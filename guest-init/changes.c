/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each folder is known by up to three others: of the upper layer; of the lower one, as it shows through now;
 * and the lower one's that showed through at the baseline. The latter two are mostly the same; then what is
 * in neither the upper layer nor the baseline has not changed. After a folder was renamed, replaced or made
 * anew they are not, and all names of both are gone through.
 */
#include "guest-init/changes.h"
#include "common/frame.h"
#include "common/io.h"
#include "guest-init/baseline.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_ID "/etc/machine-id"

struct level {
	int upper, now, then; /* folders; -1: there is none */
	struct names upper_names, now_names, then_names;
	size_t path_length;
};

struct changes {
	struct baseline baseline;
	unsigned depth; /* levels that are in use; 0: all is told */
	uint32_t limit;
	size_t path_bytes;
	int root; /* of the lower layer */
	struct agent_changes_end end;
	char after[AGENT_PATH_MAX + 1];	     /* "": from the first on */
	char path[AGENT_PATH_MAX + 1 + 256]; /* with room for one name more */
	struct level levels[LAYERS_DEPTH_MAX];
};

/* One name, now and at the baseline. */
struct item {
	struct stat now, then;
	bool is_now, is_then;	  /* there */
	bool in_upper, in_record; /* that is where it is known from; else from the lower layer */
};

/* ---- levels ---- */

static size_t names_left(const struct changes *changes)
{
	size_t left = LAYERS_NAMES_MAX;

	for (unsigned i = 0; i < changes->depth; i++) {
		const struct level *level = &changes->levels[i];

		left -= level->upper_names.bytes + level->now_names.bytes + level->then_names.bytes;
	}
	return left;
}

static void pop(struct changes *changes)
{
	struct level *level = &changes->levels[--changes->depth];

	fd_close(&level->upper);
	fd_close(&level->now);
	fd_close(&level->then);
	names_finish(&level->upper_names);
	names_finish(&level->now_names);
	names_finish(&level->then_names);
}

/* Both are in the lower layer, one file system that does not change. */
static bool is_same_folder(int a, int b)
{
	struct stat first, second;

	if (a < 0 || b < 0)
		return a < 0 && b < 0;
	return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino;
}

static int read_names(struct changes *changes, struct level *level, bool same)
{
	int r = level->upper < 0 ? 0 : names_read(&level->upper_names, level->upper, names_left(changes));

	if (r == 0 && !same && level->now >= 0)
		r = names_read(&level->now_names, level->now, names_left(changes));
	if (r == 0 && !same && level->then >= 0)
		r = names_read(&level->then_names, level->then, names_left(changes));
	return r;
}

/* The folders of *level are taken over; so is the next depth, also on failure. 0 or -errno. */
static int push(struct changes *changes, const struct level *level)
{
	struct level *top = &changes->levels[changes->depth++];

	*top = *level;
	return read_names(changes, top, is_same_folder(top->now, top->then));
}

/* ---- one name ---- */

static int find_now(const struct level *level, const char *name, bool in_upper, struct item *item)
{
	int r = in_upper ? layers_look(level->upper, name, &item->now) : 0;

	item->in_upper = r > 0;
	if (r > 0)
		item->is_now = !layers_is_whiteout(&item->now);
	if (r == 0 && level->now >= 0) {
		r = layers_look(level->now, name, &item->now);
		item->is_now = r > 0;
	}
	return r < 0 ? r : 0;
}

static int find_then(
	const struct level *level, const char *name, const struct baseline_record *record, struct item *item)
{
	int r = 0;

	item->in_record = record != NULL;
	if (record) {
		item->is_then = record->mode != 0;
		item->then.st_mode = record->mode;
		item->then.st_uid = record->uid;
		item->then.st_gid = record->gid;
		item->then.st_ino = record->inode;
		item->then.st_ctim.tv_sec = record->changed_s;
		item->then.st_ctim.tv_nsec = record->changed_ns;
	} else if (level->then >= 0) {
		r = layers_look(level->then, name, &item->then);
		item->is_then = r > 0;
	}
	return r < 0 ? r : 0;
}

static bool differs(const struct item *item)
{
	const struct stat *now = &item->now, *then = &item->then;

	if ((now->st_mode ^ then->st_mode) & S_IFMT)
		return true;
	if (S_ISDIR(now->st_mode))
		return now->st_mode != then->st_mode || now->st_uid != then->st_uid ||
		       now->st_gid != then->st_gid;
	if (item->in_upper != item->in_record || now->st_ino != then->st_ino)
		return true;
	return item->in_upper &&
	       (now->st_ctim.tv_sec != then->st_ctim.tv_sec || now->st_ctim.tv_nsec != then->st_ctim.tv_nsec);
}

/* 0: it has not changed. */
static uint8_t kind_of(const struct item *item)
{
	if (!item->is_now)
		return item->is_then ? AGENT_REMOVED : 0;
	if (!item->is_then)
		return AGENT_ADDED;
	return differs(item) ? AGENT_CHANGED : 0;
}

static int64_t to_ms(const struct timespec *time)
{
	const int64_t most = INT64_MAX / 1000 - 1;
	int64_t s = time->tv_sec;

	if (s > most || s < -most)
		s = s < 0 ? -most : most;
	return s * 1000 + time->tv_nsec / 1000000;
}

/* The bytes of it. */
static size_t put_change(struct changes *changes, const struct item *item, uint8_t kind, uint8_t *to)
{
	size_t length = strlen(changes->path);
	struct agent_change change = {.kind = kind, .path_length = (uint16_t)length};

	if (kind == AGENT_REMOVED) {
		change.mode = item->then.st_mode & S_IFMT;
	} else {
		change.mode = item->now.st_mode;
		change.uid = item->now.st_uid;
		change.gid = item->now.st_gid;
		change.size = (uint64_t)item->now.st_size;
		change.modified_ms = to_ms(&item->now.st_mtim);
	}
	memcpy(to, &change, sizeof(change));
	memcpy(to + sizeof(change), changes->path, length);
	changes->end.count++;
	changes->path_bytes += length;
	return sizeof(change) + length;
}

/* ---- the way down ---- */

/* What shows through a folder that is in the upper layer, or was. */
static int open_through(const struct changes *changes, int parent, const char *name, bool opaque,
	const char *redirect, int *folder)
{
	if (opaque || parent < 0)
		return 0;
	if (redirect[0] == '/')
		return layers_open_folder(changes->root, redirect + 1, folder);
	return layers_open_folder(parent, redirect[0] ? redirect : name, folder);
}

static int open_now(const struct changes *changes, const struct level *in, const char *name,
	const struct item *item, struct level *level)
{
	char redirect[LAYERS_REDIRECT_MAX] = "";
	bool opaque = false;
	int r = item->in_upper ? layers_open_folder(in->upper, name, &level->upper) : 0;

	if (r < 0)
		return r;
	if (level->upper >= 0) {
		opaque = layers_is_opaque(level->upper);
		layers_read_redirect(level->upper, redirect);
	}
	return open_through(changes, in->now, name, opaque, redirect, &level->now);
}

static int open_then(const struct changes *changes, const struct level *in, const char *name,
	const struct item *item, const struct baseline *was, struct level *level)
{
	if (!item->is_then || !S_ISDIR(item->then.st_mode))
		return 0;
	return open_through(changes, in->then, name, item->in_record && was->record.opaque,
		item->in_record ? was->redirect : "", &level->then);
}

/* Into a folder, if there may be something in it. *entered: the baseline's records of what is in it are for
 * its level to take. */
static int enter(struct changes *changes, const char *name, const struct item *item, bool *entered)
{
	const struct level *in = &changes->levels[changes->depth - 1];
	struct level level = {.upper = -1, .now = -1, .then = -1, .path_length = strlen(changes->path)};
	int r;

	*entered = false;
	if (changes->depth == LAYERS_DEPTH_MAX) {
		changes->end.skipped++;
		return 0;
	}
	r = open_now(changes, in, name, item, &level);
	if (r == 0)
		r = open_then(changes, in, name, item, &changes->baseline, &level);
	*entered = r == 0 && (item->in_upper || item->in_record || !is_same_folder(level.now, level.then));
	if (*entered)
		return push(changes, &level);
	fd_close(&level.upper);
	fd_close(&level.now);
	fd_close(&level.then);
	return r;
}

enum { PASSED, ON_THE_WAY, TO_TELL };

/* Where the present path stands to that after which is told. */
static int stands(const struct changes *changes)
{
	size_t length = strlen(changes->path);
	char next = changes->after[0] ? changes->after[length] : '\0';

	if (frame_compare_paths(changes->path, changes->after) > 0)
		return TO_TELL;
	return (next == '\0' || next == '/') && memcmp(changes->path, changes->after, length) == 0
		       ? ON_THE_WAY
		       : PASSED;
}

/* The name is at the end of the path. Bytes that were put, or -errno. */
static int look(
	struct changes *changes, const char *name, bool in_upper, bool in_record, uint8_t *to, bool *entered)
{
	const struct level *level = &changes->levels[changes->depth - 1];
	struct item item = {.is_now = false};
	int place = stands(changes), r, bytes = 0;
	uint8_t kind;

	if (place == PASSED || strcmp(changes->path, MACHINE_ID) == 0)
		return 0;
	r = find_now(level, name, in_upper, &item);
	if (r == 0)
		r = find_then(level, name, in_record ? &changes->baseline.record : NULL, &item);
	if (r < 0)
		return r;
	kind = kind_of(&item);
	if (kind != 0 && place == TO_TELL)
		bytes = (int)put_change(changes, &item, kind, to);
	if (item.is_now && S_ISDIR(item.now.st_mode))
		r = enter(changes, name, &item, entered);
	return r < 0 ? r : bytes;
}

static const char *first_of(const char *a, const char *b)
{
	if (!a || !b)
		return a ? a : b;
	return strcmp(a, b) <= 0 ? a : b;
}

/* The next name in the present folder, or the way back up. Bytes that were put, or -errno. */
static int step(struct changes *changes, uint8_t *to)
{
	struct baseline *was = &changes->baseline;
	struct level *level = &changes->levels[changes->depth - 1];
	unsigned depth = changes->depth;
	bool in_record = baseline_is_at(was, depth), in_upper, entered = false;
	const char *name = first_of(names_peek(&level->upper_names),
		first_of(names_peek(&level->now_names), names_peek(&level->then_names)));
	char *at = changes->path + level->path_length;
	int bytes = 0, r = 0;

	name = first_of(name, in_record ? was->name : NULL);
	if (!name) {
		pop(changes);
		return 0;
	}
	/* A name may be one of the baseline's, which is read on. */
	*at++ = '/';
	memcpy(at, name, strlen(name) + 1);
	in_upper = names_take(&level->upper_names, at);
	names_take(&level->now_names, at);
	names_take(&level->then_names, at);
	in_record = in_record && strcmp(was->name, at) == 0;
	if (strlen(changes->path) > AGENT_PATH_MAX)
		changes->end.skipped++;
	else
		bytes = look(changes, at, in_upper, in_record, to, &entered);
	if (bytes >= 0 && in_record)
		r = baseline_next(was, entered ? depth + 1 : depth);
	return r < 0 ? r : bytes;
}

/* ---- life ---- */

int changes_begin(const struct layers *layers, const char *after, size_t after_length, uint32_t limit,
	struct changes **out)
{
	struct level root = {.upper = -1, .now = -1, .then = -1};
	struct changes *changes;
	int r;

	*out = NULL;
	if (!layers || layers->upper < 0)
		return -EOPNOTSUPP;
	changes = calloc(1, sizeof(*changes));
	if (!changes)
		return -ENOMEM;
	changes->baseline.fd = -1;
	changes->root = layers->lower;
	changes->limit = limit;
	memcpy(changes->after, after, after_length);
	r = baseline_open(&changes->baseline, layers);
	if (r == 0)
		r = layers_open_folder(layers->upper, ".", &root.upper);
	if (r == 0)
		r = layers_open_folder(layers->lower, ".", &root.now);
	if (r == 0)
		r = layers_open_folder(layers->lower, ".", &root.then);
	if (r == 0)
		r = push(changes, &root);
	if (r == 0) {
		*out = changes;
		return 0;
	}
	if (changes->depth == 0)
		changes->levels[changes->depth++] = root;
	changes_end(changes);
	return r;
}

void changes_end(struct changes *changes)
{
	if (!changes)
		return;
	while (changes->depth > 0)
		pop(changes);
	baseline_close(&changes->baseline);
	free(changes);
}

int changes_fill(
	struct changes *changes, uint8_t *to, size_t room, size_t *length, struct agent_changes_end *end)
{
	*length = 0;
	for (int i = 0; i < CHANGES_STEPS && room - *length >= CHANGES_ENTRY_MAX; i++) {
		bool full = changes->end.count == changes->limit ||
			    changes->path_bytes >= AGENT_CHANGES_BYTES_MAX;
		int r;

		if (changes->depth == 0 || full) {
			changes->end.more = changes->depth > 0;
			*end = changes->end;
			return 0;
		}
		r = step(changes, to + *length);
		if (r < 0)
			return r;
		*length += (size_t)r;
	}
	return 1;
}
