/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline: what the overlay's upper layer held when it was noted, so that what a sandbox changes can be
 * told from what its template did. It is a file in the store, one record for each name in the order of a
 * walk; so it is in the template's memory or on its disk, and goes wherever the guest's files go.
 *
 * A file is known again by its inode and the time of its last change, which the kernel sets with each write
 * and each change of what is known of it. Two writes are told apart when the guest's clock has moved between
 * them.
 */
#ifndef GUEST_INIT_BASELINE_H
#define GUEST_INIT_BASELINE_H

#include "guest-init/layers.h"
#include <stdint.h>

/* In the file it is followed by the name and the redirect, without NULs. */
struct baseline_record {
	uint8_t depth; /* 1: in the root; at most LAYERS_DEPTH_MAX */
	uint8_t name_length;
	uint16_t redirect_length;
	uint8_t opaque;
	uint8_t reserved[3];
	uint32_t mode; /* 0: a whiteout */
	uint32_t uid, gid;
	uint32_t changed_ns;
	int64_t changed_s;
	uint64_t inode;
};
_Static_assert(sizeof(struct baseline_record) == 40, "no padding");

/* Notes what is in the upper layer now, in place of what was noted before. 0, -EOPNOTSUPP: the root is no
 * overlay, or -errno: what was noted before still holds. */
int baseline_write(const struct layers *layers);
/* The same, unless there is one. */
int baseline_ensure(const struct layers *layers);

/* Reads it, in its order. */
struct baseline {
	int fd; /* -1: there is none */
	size_t start, end;
	bool has; /* the present record: */
	struct baseline_record record;
	char name[256], redirect[LAYERS_REDIRECT_MAX];
	uint8_t bytes[4096];
};

/* 0 or -errno. One that is missing is empty. */
int baseline_open(struct baseline *baseline, const struct layers *layers);
void baseline_close(struct baseline *baseline);
/* The present record is of this depth. */
bool baseline_is_at(const struct baseline *baseline, unsigned depth);
/* The next one that is no deeper than this. 0, also at the end, or -errno (-EIO: it makes no sense). */
int baseline_next(struct baseline *baseline, unsigned depth);

#endif
