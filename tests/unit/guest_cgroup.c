/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that a command leaves below its own, in folders made by hand: all go, a bounded number a sweep. */
#include "tests/support/unit.h"

#include "common/log.h"
#include "guest-init/cgroup.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SWEEPS = 5, MANY = SWEEPS * CGROUP_SWEEP_MAX, PATH_BYTES = 256, SWEEPS_MOST = 100 };

struct fixture {
	char root[32], below[PATH_BYTES]; /* below: the folder of the group that was taken */
	struct warnings warnings;
	struct cgroup_set set;
	struct cgroup *group;
};

static void put_file(const char *folder, const char *name)
{
	char path[PATH_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* A set, and a group of it that a command has. */
static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[PATH_BYTES];

	assert_non_null(f);
	strcpy(f->root, "/tmp/tinderbox-XXXXXX");
	assert_non_null(mkdtemp(f->root));
	snprintf(path, sizeof(path), "%s/tinderbox", f->root);
	assert_int_equal(mkdir(path, 0700), 0);
	put_file(path, "cgroup.kill");
	log_init("test", LOG_LEVEL_ERROR);
	cgroup_set_init(&f->set, f->root, &f->warnings);
	assert_int_equal(cgroup_take(&f->set, 0, 0, &f->group), 0);
	assert_non_null(f->group);
	snprintf(f->below, sizeof(f->below), "%s/tinderbox/%d", f->root, (int)(f->group - f->set.groups));
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[PATH_BYTES];

	cgroup_set_finish(&f->set);
	snprintf(command, sizeof(command), "rm -r %s", f->root);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

static void make_below(const struct fixture *f, const char *prefix, int count)
{
	char path[2 * PATH_BYTES];

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s%d", f->below, prefix, i);
		assert_int_equal(mkdir(path, 0700), 0);
	}
}

/* Folders in the group's, whose links are its own two and one of each. */
static int count_below(const struct fixture *f)
{
	struct stat status;

	return stat(f->below, &status) == 0 ? (int)status.st_nlink - 2 : -1;
}

/* The group's processes are gone, and it is not to be used again. */
static void release(struct fixture *f)
{
	cgroup_kill(f->group);
	cgroup_release(&f->set, f->group, false);
}

static void many_groups_go_a_bounded_number_at_once(void **state)
{
	struct fixture *f = *state;
	int left = MANY;

	make_below(f, "", MANY);
	release(f);
	for (int i = 0; i < SWEEPS - 1; i++) {
		assert_true(cgroup_set_sweep(&f->set));
		assert_int_equal(count_below(f), left - CGROUP_SWEEP_MAX);
		left -= CGROUP_SWEEP_MAX;
	}
	(void)cgroup_set_sweep(&f->set);
	assert_int_equal(count_below(f), -1);
	assert_false(cgroup_set_sweep(&f->set));
}

static void deep_ones_go_too(void **state)
{
	struct fixture *f = *state;
	int sweeps = 0;

	for (int i = 0; i < CGROUP_DEPTH_MAX; i++) {
		size_t length = strlen(f->below);

		make_below(f, "w", CGROUP_SWEEP_MAX / 2);
		snprintf(f->below + length, sizeof(f->below) - length, "/w0");
	}
	release(f);
	while (cgroup_set_sweep(&f->set))
		assert_true(++sweeps < SWEEPS_MOST);
	assert_in_range(sweeps, CGROUP_DEPTH_MAX / 2 - 1, SWEEPS_MOST);
	assert_int_equal(f->group->fd, -1);
}

/* Else the loop would never rest. */
static void groups_that_are_in_use_are_not_come_back_for(void **state)
{
	struct fixture *f = *state;
	char path[2 * PATH_BYTES];

	make_below(f, "", CGROUP_SWEEP_MAX + 1);
	for (int i = 0; i <= CGROUP_SWEEP_MAX; i++) {
		snprintf(path, sizeof(path), "%s/%d", f->below, i);
		put_file(path, "process");
	}
	release(f);
	assert_false(cgroup_set_sweep(&f->set));
	assert_int_equal(count_below(f), CGROUP_SWEEP_MAX + 1);
	snprintf(path, sizeof(path), "rm %s/*/process", f->below);
	assert_int_equal(system(path), 0);
	assert_true(cgroup_set_sweep(&f->set));
	(void)cgroup_set_sweep(&f->set);
	assert_int_equal(count_below(f), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(many_groups_go_a_bounded_number_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(deep_ones_go_too, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			groups_that_are_in_use_are_not_come_back_for, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
