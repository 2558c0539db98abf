/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers of an overlay, made by hand as the kernel makes them (Documentation/filesystems/overlayfs.rst), and
 * what is told of them. A real overlay is in the suite `changes`.
 */
#ifndef TESTS_UNIT_GUEST_CHANGES_FIXTURE_H
#define TESTS_UNIT_GUEST_CHANGES_FIXTURE_H

#include "guest-init/baseline.h"
#include "guest-init/changes.h"
#include "guest_fixture.h"
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>

enum { LISTING_MAX = 1 << 20 };

struct tree {
	char folder[64];
	struct layers layers;
	char *listing;
	struct agent_changes_end end;
};

/* ---- the layers ---- */

static inline void put_file(int layer, const char *path, const char *text)
{
	int fd = openat(layer, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static inline void put_folder(int layer, const char *path)
{
	assert_int_equal(mkdirat(layer, path, 0755), 0);
}

static inline void put_whiteout(int layer, const char *path)
{
	assert_int_equal(mknodat(layer, path, S_IFCHR, makedev(0, 0)), 0);
}

static inline void mark(int layer, const char *path, const char *name, const char *value)
{
	int fd = openat(layer, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fsetxattr(fd, name, value, strlen(value), 0), 0);
	close(fd);
}

static inline void put_opaque(int layer, const char *path)
{
	put_folder(layer, path);
	mark(layer, path, "trusted.overlay.opaque", "y");
}

static inline void put_renamed(int layer, const char *path, const char *from)
{
	put_folder(layer, path);
	mark(layer, path, "trusted.overlay.redirect", from);
}

static inline void drop(int layer, const char *path)
{
	assert_int_equal(unlinkat(layer, path, 0), 0);
}

static inline int open_layer(const struct tree *tree, const char *name)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", tree->folder, name);
	assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* The base of every test: /dir/{a,b,sub/deep}, /file, /link, /other. */
static inline void make_tree(struct tree *tree)
{
	*tree = (struct tree){.folder = "/tmp/tinderbox-changes.XXXXXX"};
	assert_non_null(mkdtemp(tree->folder));
	tree->layers.upper = open_layer(tree, "upper");
	tree->layers.lower = open_layer(tree, "lower");
	tree->layers.store = open_layer(tree, ".");
	tree->listing = malloc(LISTING_MAX);
	assert_non_null(tree->listing);
	put_folder(tree->layers.lower, "dir");
	put_file(tree->layers.lower, "dir/a", "a");
	put_file(tree->layers.lower, "dir/b", "b");
	put_folder(tree->layers.lower, "dir/sub");
	put_file(tree->layers.lower, "dir/sub/deep", "deep");
	put_file(tree->layers.lower, "file", "file");
	put_folder(tree->layers.lower, "other");
	assert_int_equal(symlinkat("file", tree->layers.lower, "link"), 0);
	if (mknodat(tree->layers.upper, "probe", S_IFCHR, makedev(0, 0)) < 0 ||
		setxattr(tree->folder, "trusted.overlay.opaque", "y", 1, 0) < 0) {
		print_message("needs root, and a /tmp with trusted xattrs\n");
		skip();
	}
	drop(tree->layers.upper, "probe");
}

static inline void remove_tree(struct tree *tree)
{
	int fds[] = {tree->layers.upper, tree->layers.lower, tree->layers.store};
	char command[96];

	for (int i = 0; i < 3; i++)
		close(fds[i]);
	free(tree->listing);
	snprintf(command, sizeof(command), "rm -r %s", tree->folder);
	assert_int_equal(system(command), 0);
}

/* What is written after it is written at another time, by the kernel's clock of files. */
static inline void note(const struct tree *tree)
{
	const struct timespec tick = {.tv_nsec = 20 * 1000 * 1000};

	nanosleep(&tick, NULL);
	assert_int_equal(baseline_write(&tree->layers), 0);
}

/* ---- what is told ---- */

/* A line of an entry: letter, type, path. Its bytes. */
static inline size_t add_line(char *to, const uint8_t *bytes, struct agent_change *change)
{
	static const char letters[] = " ACD";
	char type;

	memcpy(change, bytes, sizeof(*change));
	assert_in_range(change->kind, AGENT_ADDED, AGENT_REMOVED);
	assert_in_range(change->path_length, 2, AGENT_PATH_MAX);
	assert_int_equal(change->reserved, 0);
	type = S_ISDIR(change->mode) ? '/' : S_ISLNK(change->mode) ? '@' : S_ISREG(change->mode) ? ' ' : '?';
	return (size_t)sprintf(to, "%c%c%.*s\n", letters[change->kind], type, change->path_length,
		(const char *)bytes + sizeof(*change));
}

/* The listing of what comes after a path, in tree->listing. 0 or -errno. */
static inline int list(struct tree *tree, const char *after, uint32_t limit)
{
	struct agent_change change;
	struct changes *changes;
	uint8_t bytes[CHANGES_ENTRY_MAX + 512];
	size_t length, used = 0;
	uint32_t count = 0;
	int r = changes_begin(&tree->layers, after, strlen(after), limit, &changes);

	tree->listing[0] = '\0';
	if (r < 0)
		return r;
	do {
		r = changes_fill(changes, bytes, sizeof(bytes), &length, &tree->end);
		for (size_t at = 0; at < length; at += sizeof(change) + change.path_length, count++) {
			used += add_line(tree->listing + used, bytes + at, &change);
			assert_in_range(used, 0, LISTING_MAX - AGENT_PATH_MAX - 8);
		}
	} while (r == 1);
	changes_end(changes);
	if (r == 0)
		assert_int_equal(tree->end.count, count);
	return r;
}

static inline void expect(struct tree *tree, const char *wanted)
{
	assert_int_equal(list(tree, "", AGENT_CHANGES_MAX), 0);
	assert_string_equal(tree->listing, wanted);
	assert_int_equal(tree->end.more, 0);
	assert_int_equal(tree->end.skipped, 0);
}

/* What a template has done. */
static inline void make_template(struct tree *tree)
{
	int upper;

	make_tree(tree);
	upper = tree->layers.upper;
	put_folder(upper, "dir");
	put_whiteout(upper, "dir/a");
	put_file(upper, "dir/b", "template's");
	put_opaque(upper, "made");
	put_file(upper, "made/x", "x");
	put_file(upper, "made/y", "y");
	put_opaque(upper, "made/z");
	put_renamed(upper, "moved", "/dir/sub");
	put_whiteout(upper, "dir/sub");
	put_whiteout(upper, "file");
	note(tree);
}

#endif
