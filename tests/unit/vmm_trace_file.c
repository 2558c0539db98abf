/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a trace, which is what it was or whole, and the JSON that goes into it. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "vmm/json.h"
#include "vmm/trace_file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 128 };

struct place {
	char folder[32], path[PATH_SIZE];
	char error[CONFIG_ERROR_MAX], wanted[CONFIG_ERROR_MAX];
	struct trace_file file;
};

static int make_place(void **state)
{
	struct place *place = calloc(1, sizeof(*place));

	assert_non_null(place);
	strcpy(place->folder, "/tmp/vmm-trace-XXXXXX");
	assert_non_null(mkdtemp(place->folder));
	snprintf(place->path, PATH_SIZE, "%s/trace", place->folder);
	*state = place;
	return 0;
}

static int remove_place(void **state)
{
	struct place *place = *state;

	unlink(place->path);
	/* Nothing else may be left. */
	assert_int_equal(rmdir(place->folder), 0);
	free(place);
	return 0;
}

static unsigned count_files(const struct place *place)
{
	DIR *folder = opendir(place->folder);
	struct dirent *entry;
	unsigned count = 0;

	assert_non_null(folder);
	while ((entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

static void make_file(const char *path, const char *content)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, content, strlen(content)), 0);
	close(fd);
}

static void assert_content(const char *path, const char *content)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(io_read_full(fd, text, sizeof(text) - 1), strlen(content));
	assert_string_equal(text, content);
	close(fd);
}

static void it_appears_whole(void **state)
{
	struct place *place = *state;

	assert_int_equal(trace_file_open(place->path, &place->file, place->error), 0);
	assert_int_equal(fcntl(place->file.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(io_write_all(place->file.fd, "new", 3), 0);
	assert_int_equal(access(place->path, F_OK), -1);
	assert_int_equal(trace_file_commit(&place->file), 0);
	assert_content(place->path, "new");
	trace_file_discard(&place->file);
	assert_content(place->path, "new");
}

static void what_was_there_stays_until_then(void **state)
{
	struct place *place = *state;

	make_file(place->path, "old");
	assert_int_equal(trace_file_open(place->path, &place->file, place->error), 0);
	assert_int_equal(io_write_all(place->file.fd, "new", 3), 0);
	assert_content(place->path, "old");
	trace_file_discard(&place->file);
	assert_content(place->path, "old");
	assert_int_equal(count_files(place), 1);
	assert_int_equal(trace_file_open(place->path, &place->file, place->error), 0);
	assert_int_equal(trace_file_commit(&place->file), 0);
	assert_content(place->path, "");
}

/* A process with this one's number was killed. */
static void a_left_file_is_no_hindrance(void **state)
{
	struct place *place = *state;
	char left[PATH_SIZE + 16];

	snprintf(left, sizeof(left), "%s.%d.tmp", place->path, (int)getpid());
	make_file(left, "of another");
	assert_int_equal(trace_file_open(place->path, &place->file, place->error), 0);
	assert_int_equal(trace_file_commit(&place->file), 0);
	assert_content(place->path, "");
}

static void a_folder_that_goes_is_an_error_at_the_end(void **state)
{
	struct place *place = *state;

	assert_int_equal(trace_file_open(place->path, &place->file, place->error), 0);
	assert_int_equal(unlink(place->file.temporary), 0);
	assert_int_equal(trace_file_commit(&place->file), -ENOENT);
	assert_int_equal(place->file.fd, -1);
}

/* text has one %s for the path. Nothing is open or left. */
__attribute__((format(printf, 4, 0))) static void refused(
	struct place *place, const char *path, int error, const char *text)
{
	assert_int_equal(trace_file_open(path, &place->file, place->error), error);
	snprintf(place->wanted, sizeof(place->wanted), text, path);
	assert_string_equal(place->error, place->wanted);
	assert_int_equal(place->file.fd, -1);
	trace_file_discard(&place->file);
}

static void refusals_name_the_mend(void **state)
{
	struct place *place = *state;
	char inside[PATH_SIZE + 8];

	make_file(place->path, "a file");
	snprintf(inside, sizeof(inside), "%s/x", place->path);
	refused(place, "/nowhere/trace", -ENOENT,
		"--trace %s is in a folder that does not exist; check the path");
	refused(place, inside, -ENOTDIR, "--trace %s is in a folder that does not exist; check the path");
	refused(place, place->folder, -EISDIR,
		"--trace %s cannot be written (Is a directory); give another file");
	refused(place, "/sys/kernel/trace", -EACCES,
		"--trace %s may not be written (Permission denied); change the mode or owner of its folder, "
		"or give another");
	refused(place, "fd:2147483647", -EBADF,
		"--trace %s is not open for writing; have the parent process pass it on");
}

static void an_inherited_file_is_for_writing(void **state)
{
	struct place *place = *state;
	char name[16];
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd > 2);
	snprintf(name, sizeof(name), "fd:%d", fd);
	refused(place, name, -EBADF,
		"--trace %s is not open for writing; have the parent process pass it on");
	close(fd);
	assert_int_equal(open("/dev/null", O_WRONLY | O_CLOEXEC), fd);
	assert_int_equal(trace_file_open(name, &place->file, place->error), 0);
	assert_int_equal(place->file.fd, fd);
	assert_int_equal(trace_file_commit(&place->file), 0);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* --- JSON --- */

static const char *written(int fd, char *text, size_t size)
{
	ssize_t n = io_pread_full(fd, text, size - 1, 0);

	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

static void every_kind_of_value(void **state)
{
	static struct json json;
	char text[512];
	int fd = memfd_create("json", MFD_CLOEXEC);

	(void)state;
	json_init(&json, fd);
	json_open(&json, '{');
	json_key(&json, "list");
	json_open(&json, '[');
	json_break(&json);
	json_integer(&json, INT64_MIN);
	json_break(&json);
	json_unsigned(&json, UINT64_MAX);
	json_hex(&json, 0x3f8);
	json_us(&json, 1002);
	json_us(&json, 0);
	json_open(&json, '{');
	json_close(&json, '}');
	json_close(&json, ']');
	json_key(&json, "yes");
	json_bool(&json, true);
	json_key(&json, "no");
	json_bool(&json, false);
	json_key(&json, "none");
	json_null(&json);
	json_key(&json, "empty");
	json_open(&json, '[');
	json_close(&json, ']');
	json_close(&json, '}');
	json_line(&json);
	assert_int_equal(json_finish(&json), 0);
	assert_string_equal(written(fd, text, sizeof(text)),
		"{\"list\":[\n-9223372036854775808,\n18446744073709551615,\"0x3f8\",1.002,0.000,{}],"
		"\"yes\":true,\"no\":false,\"none\":null,\"empty\":[]}\n");
	close(fd);
}

static void odd_bytes_are_escaped(void **state)
{
	static struct json json;
	char text[256];
	int fd = memfd_create("json", MFD_CLOEXEC);

	(void)state;
	json_init(&json, fd);
	json_text(&json, "a\"b\\c\n\x01\x7f\xc3\xa9/");
	json_text(&json, NULL);
	assert_int_equal(json_finish(&json), 0);
	assert_string_equal(
		written(fd, text, sizeof(text)), "\"a\\\"b\\\\c\\u000a\\u0001\\u007f\\u00c3\\u00a9/\",null");
	close(fd);
}

static void more_than_the_buffer_holds(void **state)
{
	enum { NUMBERS = 10000, DIGITS = 6 };
	static struct json json;
	struct stat status;
	char end[8] = "";
	int fd = memfd_create("json", MFD_CLOEXEC);

	(void)state;
	json_init(&json, fd);
	json_open(&json, '[');
	for (int i = 0; i < NUMBERS; i++)
		json_integer(&json, 100000 + i);
	json_close(&json, ']');
	assert_int_equal(json_finish(&json), 0);
	assert_int_equal(fstat(fd, &status), 0);
	assert_int_equal(status.st_size, 1 + NUMBERS * (DIGITS + 1));
	assert_int_equal(pread(fd, end, 7, status.st_size - 7), 7);
	assert_string_equal(end, "109999]");
	close(fd);
}

static void a_full_disk_is_told_once_and_for_all(void **state)
{
	static struct json json;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC), other = memfd_create("json", MFD_CLOEXEC);
	struct stat status;

	(void)state;
	assert_true(fd >= 0);
	json_init(&json, fd);
	for (int i = 0; i < JSON_BUFFER; i++)
		json_integer(&json, 1);
	assert_int_equal(json.error, -ENOSPC);
	/* Room that comes later does not make half a text whole. */
	json.fd = other;
	json_integer(&json, 1);
	assert_int_equal(json_finish(&json), -ENOSPC);
	assert_int_equal(fstat(other, &status), 0);
	assert_int_equal(status.st_size, 0);
	close(fd);
	close(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(it_appears_whole, make_place, remove_place),
		cmocka_unit_test_setup_teardown(what_was_there_stays_until_then, make_place, remove_place),
		cmocka_unit_test_setup_teardown(a_left_file_is_no_hindrance, make_place, remove_place),
		cmocka_unit_test_setup_teardown(
			a_folder_that_goes_is_an_error_at_the_end, make_place, remove_place),
		cmocka_unit_test_setup_teardown(refusals_name_the_mend, make_place, remove_place),
		cmocka_unit_test_setup_teardown(an_inherited_file_is_for_writing, make_place, remove_place),
		cmocka_unit_test(every_kind_of_value),
		cmocka_unit_test(odd_bytes_are_escaped),
		cmocka_unit_test(more_than_the_buffer_holds),
		cmocka_unit_test(a_full_disk_is_told_once_and_for_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
