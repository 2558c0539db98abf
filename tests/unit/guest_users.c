/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/unit.h"

#include "guest-init/users.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct texts {
	char passwd[64], group[64];
	struct users_files files;
};

static void write_text(const char *path, const char *text, size_t length)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, length), length);
	close(fd);
}

static int setup(void **state)
{
	struct texts *texts = calloc(1, sizeof(*texts));

	snprintf(texts->passwd, sizeof(texts->passwd), "/tmp/tinderbox-passwd-%d", getpid());
	snprintf(texts->group, sizeof(texts->group), "/tmp/tinderbox-group-%d", getpid());
	texts->files = (struct users_files){.passwd = texts->passwd, .group = texts->group};
	*state = texts;
	return 0;
}

static int teardown(void **state)
{
	struct texts *texts = *state;

	unlink(texts->passwd);
	unlink(texts->group);
	free(texts);
	return 0;
}

static void finds_whom_the_file_names(void **state)
{
	static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
				     "agent:x:1000:1000:Agent:/home/agent:/bin/sh\n"
				     "nohome:x:7:8:::\n"
				     "top:x:4294967294:4294967294::/:\n"
				     "agent:x:9:9:second:/no:/bin/sh\n";
	static const char group[] = "root:x:0:\n"
				    "agent:x:1000:agent\n"
				    "audio:x:29:root,agent\n"
				    "video:x:44:agentx,xagent,agen\n"
				    "wheel:x:10:agent,top\n";
	struct texts *texts = *state;
	struct user user;

	write_text(texts->passwd, passwd, strlen(passwd));
	write_text(texts->group, group, strlen(group));
	assert_int_equal(users_find(&texts->files, "agent", &user), 0);
	assert_int_equal(user.uid, 1000);
	assert_int_equal(user.gid, 1000);
	assert_string_equal(user.home, "/home/agent");
	assert_int_equal(user.group_count, 2);
	assert_int_equal(user.groups[0], 29);
	assert_int_equal(user.groups[1], 10);
	assert_int_equal(users_find(&texts->files, "nohome", &user), 0);
	assert_int_equal(user.uid, 7);
	assert_int_equal(user.gid, 8);
	assert_string_equal(user.home, "/");
	assert_int_equal(user.group_count, 0);
	assert_int_equal(users_find(&texts->files, "top", &user), 0);
	assert_int_equal(user.uid, 4294967294U);
	assert_int_equal(users_find(&texts->files, "agen", &user), -ENOENT);
	assert_int_equal(users_find(&texts->files, "", &user), -ENOENT);
	assert_int_equal(users_find(&texts->files, "root:x", &user), -ENOENT);
	assert_int_equal(users_find(&texts->files, "root:x:0:0:root:/root:/bin/sh", &user), -ENOENT);
	unlink(texts->group);
	assert_int_equal(users_find(&texts->files, "agent", &user), 0);
	assert_int_equal(user.group_count, 0);
	unlink(texts->passwd);
	assert_int_equal(users_find(&texts->files, "agent", &user), -ENOENT);
}

static void passes_over_broken_lines(void **state)
{
	static const char passwd[] = "\n"
				     ":::::::\n"
				     "short:x:1:1\n"
				     "word:x:one:1::/:\n"
				     "minus:x:-1:1::/:\n"
				     "none:x:4294967295:1::/:\n"
				     "huge:x:4294967296:1::/:\n"
				     "space:x: 1:1::/:\n"
				     "nul\0x:x:1:1::/:\n"
				     "good:x:5:6::/good:\n"
				     "unended:x:1:1::/:";
	static const char *const bad[] = {
		"short", "word", "minus", "none", "huge", "space", "nul", "unended"};
	static const char group[] = "x\nbad:x:one:good\nbad:x:4294967295:good\nok:x:3:good\n";
	struct texts *texts = *state;
	struct user user;

	write_text(texts->passwd, passwd, sizeof(passwd) - 1);
	write_text(texts->group, group, strlen(group));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (users_find(&texts->files, bad[i], &user) != -ENOENT)
			fail_msg("%s was found", bad[i]);
	assert_int_equal(users_find(&texts->files, "good", &user), 0);
	assert_int_equal(user.uid, 5);
	assert_int_equal(user.group_count, 1);
	assert_int_equal(user.groups[0], 3);
}

static void keeps_its_bounds(void **state)
{
	struct texts *texts = *state;
	size_t length = USERS_FILE_MAX + 64 * 1024, at;
	char *text = malloc(length);
	struct user user;

	/* A line of one byte too many is passed over, one of the most is not, and the next one is found. */
	at = (size_t)sprintf(text, "long:x:1:1:");
	memset(text + at, 'c', USERS_LINE_MAX);
	strcpy(text + USERS_LINE_MAX - 3, ":/:\nfits:x:2:2:");
	at = strlen(text);
	memset(text + at, 'c', USERS_LINE_MAX);
	at = USERS_LINE_MAX + 1 + USERS_LINE_MAX - 4;
	strcpy(text + at, ":/:\nnext:x:3:3::/:\n");
	write_text(texts->passwd, text, strlen(text));
	assert_int_equal(users_find(&texts->files, "long", &user), -ENOENT);
	assert_int_equal(users_find(&texts->files, "fits", &user), 0);
	assert_int_equal(user.uid, 2);
	assert_int_equal(users_find(&texts->files, "next", &user), 0);
	/* A home that does not fit is no home to start in. */
	at = (size_t)sprintf(text, "home:x:1:1::/");
	memset(text + at, 'h', USERS_HOME_MAX - 1);
	strcpy(text + at + USERS_HOME_MAX - 1, ":\n");
	write_text(texts->passwd, text, strlen(text));
	assert_int_equal(users_find(&texts->files, "home", &user), -ENOENT);
	strcpy(text + at + USERS_HOME_MAX - 2, ":\n");
	write_text(texts->passwd, text, strlen(text));
	assert_int_equal(users_find(&texts->files, "home", &user), 0);
	assert_int_equal(strlen(user.home), USERS_HOME_MAX - 1);
	/* No more of a file than the bound is read. */
	memset(text, '\n', length);
	memcpy(text + USERS_FILE_MAX - 18, "inside:x:1:1::/:\n", 17);
	memcpy(text + USERS_FILE_MAX + 5000, "outside:x:1:1::/:\n", 18);
	write_text(texts->passwd, text, length);
	assert_int_equal(users_find(&texts->files, "inside", &user), 0);
	assert_int_equal(users_find(&texts->files, "outside", &user), -ENOENT);
	/* Groups beyond the bound are left out. */
	write_text(texts->passwd, "many:x:1:1::/:\n", 15);
	at = 0;
	for (int i = 0; i < USERS_GROUPS_MAX + 5; i++)
		at += (size_t)sprintf(text + at, "g%d:x:%d:many\n", i, 100 + i);
	write_text(texts->group, text, at);
	assert_int_equal(users_find(&texts->files, "many", &user), 0);
	assert_int_equal(user.group_count, USERS_GROUPS_MAX);
	assert_int_equal(user.groups[USERS_GROUPS_MAX - 1], 100 + USERS_GROUPS_MAX - 1);
	free(text);
}

static void root_needs_no_files(void **state)
{
	struct user user;

	(void)state;
	users_root(&user);
	assert_int_equal(user.uid, 0);
	assert_int_equal(user.gid, 0);
	assert_int_equal(user.group_count, 0);
	assert_string_equal(user.home, "/root");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(finds_whom_the_file_names, setup, teardown),
		cmocka_unit_test_setup_teardown(passes_over_broken_lines, setup, teardown),
		cmocka_unit_test_setup_teardown(keeps_its_bounds, setup, teardown),
		cmocka_unit_test(root_needs_no_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
