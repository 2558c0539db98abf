/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in the state folder, of whoever could write there: the template.json of a template, and what its
 * image is; the saved.json of a suspended sandbox, beside files that are there or not. What is refused is
 * refused in words; what is taken is within the bounds of a VM, names only files that are there, and is what
 * the text says, read a second time.
 */
#include "common/io.h"
#include "host-ctl/image/image_store.h"
#include "host-ctl/pool/template_store.h"
#include "host-ctl/pool/templates.h"
#include "host-ctl/sandbox/sandbox_files.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "tests/fuzz/support/fuzz.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPLATE "tools"
#define SANDBOX "sb-x"

/* Of the first byte. */
enum { SHAPE_SAVED = 1 << 0 };

/* Those that a saved sandbox may have beside its description; which are there is the second byte. */
static const char *const names[] = {SANDBOX_SAVED_STATE, SANDBOX_SAVED_MEMORY, SANDBOX_SAVED_PAGES,
	SANDBOX_FILES_IMAGE, SANDBOX_FILES_LOWER, SANDBOX_FILES_UPPER};
enum { NAMES = sizeof names / sizeof names[0], ROOM = 160 };
static const char content[] = "file";

static char root[] = "/tmp/fuzz-stored-XXXXXX";

static void path_of(char path[ROOM], const char *inner, const char *name)
{
	FUZZ_ASSERT(snprintf(path, ROOM, "%s/%s/%s", root, inner, name) < ROOM);
}

static void put(const char *inner, const char *name, const void *data, size_t size)
{
	char path[ROOM];
	int fd;

	path_of(path, inner, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	FUZZ_ASSERT(fd >= 0 && io_pwrite_all(fd, data, size, 0) == 0);
	fd_close(&fd);
}

static void take(const char *inner, const char *name)
{
	char path[ROOM];

	path_of(path, inner, name);
	FUZZ_ASSERT(unlink(path) == 0 || errno == ENOENT);
}

static void make_folder(const char *inner)
{
	char path[ROOM];

	path_of(path, inner, "");
	FUZZ_ASSERT(mkdir(path, 0700) == 0);
}

static void remove_folders(void)
{
	static const char *const folders[] = {
		"templates/" TEMPLATE, "templates", "sandboxes/" SANDBOX, "sandboxes"};
	char path[ROOM];

	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
		path_of(path, folders[i], "");
		(void)rmdir(path);
	}
	(void)rmdir(root);
}

/* Once for all inputs: each takes away what it has put there. */
static void make_folders(void)
{
	static bool made;

	if (made)
		return;
	made = true;
	FUZZ_ASSERT(mkdtemp(root) && atexit(remove_folders) == 0);
	make_folder("templates");
	make_folder("templates/" TEMPLATE);
	make_folder("sandboxes");
	make_folder("sandboxes/" SANDBOX);
}

static void check_words(const struct error *error)
{
	FUZZ_ASSERT(error->kind != ERROR_NONE);
	FUZZ_ASSERT(error->message[0] != '\0' && strlen(error->message) < ERROR_MESSAGE_MAX);
}

/* --- a template --- */

static bool is_between(const json_t *value, json_int_t least, json_int_t most)
{
	return json_is_integer(value) && json_integer_value(value) >= least &&
	       json_integer_value(value) <= most;
}

static void check_about(const json_t *about)
{
	const json_t *inputs = json_object_get(about, "inputs"),
		     *disk = json_object_get(inputs, "disk_bytes");
	const char *image = json_string_value(json_object_get(json_object_get(inputs, "image"), "path"));

	FUZZ_ASSERT(strcmp(json_string_value(json_object_get(about, "name")), TEMPLATE) == 0);
	FUZZ_ASSERT(is_between(json_object_get(inputs, "cpus"), 1, TEMPLATE_CPUS_MAX));
	FUZZ_ASSERT(is_between(json_object_get(inputs, "memory_bytes"), TEMPLATE_MEMORY_MIN,
		(json_int_t)TEMPLATE_MEMORY_MAX));
	FUZZ_ASSERT(!disk || is_between(disk, TEMPLATE_DISK_MIN, (json_int_t)TEMPLATE_DISK_MAX));
	FUZZ_ASSERT(image && image[0] == '/');
}

/* Of one that is damaged none is used. */
static void check_users(int state, bool sound)
{
	const struct image_store store = {.state = state, .folder = -1, .names = -1};
	struct error error = {.kind = ERROR_NONE};
	json_t *users = image_store_users(&store, &error), *list;
	const char *id;

	FUZZ_ASSERT(users && json_object_size(users) <= sound);
	json_object_foreach(users, id, list)
	{
		FUZZ_ASSERT(image_id_is_valid(id) && json_array_size(list) == 1);
		FUZZ_ASSERT(strcmp(json_string_value(json_array_get(list, 0)), TEMPLATE) == 0);
	}
	json_decref(users);
}

static void read_template(const uint8_t *data, size_t size)
{
	struct template_store store = {.folder = -1};
	struct error error = {.kind = ERROR_NONE};
	json_t *about = NULL;
	int state = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder = -1, r;

	put("templates/" TEMPLATE, "template.json", data, size);
	store.folder = openat(state, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	FUZZ_ASSERT(state >= 0 && store.folder >= 0);
	r = template_store_read(&store, TEMPLATE, &folder, &about, &error);
	if (r == 0) {
		FUZZ_ASSERT(about && folder >= 0);
		check_about(about);
	} else {
		FUZZ_ASSERT(r == -EBADMSG && error.kind == ERROR_BUILD_FAILED && !about && folder < 0);
		check_words(&error);
	}
	check_users(state, r == 0);
	json_decref(about);
	fd_close(&folder);
	fd_close(&store.folder);
	fd_close(&state);
	take("templates/" TEMPLATE, "template.json");
}

/* --- a sandbox --- */

/* It is of the folder, and a file. */
static void check_file(const struct vm_file *file, bool wanted)
{
	struct stat status;

	if (!file->path) {
		FUZZ_ASSERT(!wanted);
		return;
	}
	FUZZ_ASSERT(strncmp(file->path, root, strlen(root)) == 0);
	FUZZ_ASSERT(lstat(file->path, &status) == 0 && S_ISREG(status.st_mode));
}

static void check_source(const struct vm_source *source, const uint8_t *data, size_t size)
{
	json_t *about = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);

	FUZZ_ASSERT(json_is_object(about));
	FUZZ_ASSERT(source->memory_bytes > 0 && source->memory_bytes <= TEMPLATE_MEMORY_MAX);
	FUZZ_ASSERT(json_integer_value(json_object_get(about, "memory_bytes")) ==
		    (json_int_t)source->memory_bytes);
	FUZZ_ASSERT(source->cpus >= 1 && source->cpus <= TEMPLATE_CPUS_MAX && source->cid >= TEMPLATE_CID);
	FUZZ_ASSERT(source->same_machine && source->held);
	check_file(&source->state, true);
	check_file(&source->memory, true);
	check_file(&source->image, true);
	check_file(&source->pages, json_is_true(json_object_get(about, "private")));
	check_file(&source->disk, source->disk_bytes > 0);
	check_file(&source->upper, source->disk_bytes > 0);
	json_decref(about);
}

static void read_saved(unsigned int there, const uint8_t *data, size_t size)
{
	struct error error = {.kind = ERROR_NONE};
	struct pool_source *source;

	put("sandboxes/" SANDBOX, SANDBOX_SAVED_ABOUT, data, size);
	for (unsigned int i = 0; i < NAMES; i++)
		if (there & 1u << i)
			put("sandboxes/" SANDBOX, names[i], content, sizeof content - 1);
	source = sandbox_saved_source(root, SANDBOX, NULL, NULL, &error);
	if (source) {
		check_source(&source->source, data, size);
		pool_source_drop(source);
	} else {
		FUZZ_ASSERT(error.kind == ERROR_INTERNAL || error.kind == ERROR_CONFLICT);
		check_words(&error);
	}
	for (unsigned int i = 0; i < NAMES; i++)
		take("sandboxes/" SANDBOX, names[i]);
	take("sandboxes/" SANDBOX, SANDBOX_SAVED_ABOUT);
}

/* None is loaded, whose memory could be shared. */
struct template *__wrap_templates_loaded(const struct templates *templates, const char *name);
struct template *__wrap_templates_loaded(const struct templates *templates, const char *name)
{
	(void)templates;
	(void)name;
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	unsigned int shape = fuzz_u8(&input), there = fuzz_u8(&input);

	fuzz_begin();
	make_folders();
	if (shape & SHAPE_SAVED)
		read_saved(there, input.at, fuzz_left(&input));
	else
		read_template(input.at, fuzz_left(&input));
	fuzz_end();
	return 0;
}
