/* SPDX-License-Identifier: Apache-2.0 */
/* The agent comes up whole, or not at all; and without what it can do without. */
#include "guest_fixture.h"
#include "tests/support/fail_alloc.h"

static int create(const char *cgroup_root, struct warnings *warnings, unsigned failing, int *failed)
{
	struct loop *loop = loop_create();
	struct agent_config config = {
		.loop = loop,
		.listen_fd = -1,
		.cgroup_root = cgroup_root,
		.users = &users_files_system,
		.identity = &fake_identity_ops,
		.warnings = warnings,
	};
	struct agent *agent = (struct agent *)1;
	int r;

	assert_non_null(loop);
	log_init("test", LOG_LEVEL_ERROR);
	fail_alloc(failing);
	r = agent_create(&config, &agent);
	*failed = fail_alloc_end();
	if (r < 0)
		assert_null(agent);
	agent_destroy(agent);
	loop_destroy(loop);
	return r;
}

static void each_allocation_may_fail(void **state)
{
	int fds = count_fds(), failed = 1, refused = 0;

	(void)state;
	for (unsigned n = 0; failed; n++) {
		struct warnings warnings = {0};
		int r = create(NULL, &warnings, n, &failed);

		/* The streams' memory is a convenience: they get it later. */
		assert_true(r == 0 || (r == -ENOMEM && failed));
		refused += r == -ENOMEM;
		assert_int_equal(count_fds(), fds);
		assert_in_range(n, 0, 20);
	}
	assert_int_equal(refused, 3); /* the agent, its sessions, its timer */
}

static void a_cgroup_that_is_none_is_named(void **state)
{
	static const struct {
		const char *root, *warning;
	} cases[] = {
		{NULL, "cgroup: no writable cgroup2 (No such file or directory): sessions end by process "
		       "group, "
		       "no limits\n"},
		{"/does/not/exist",
			"cgroup: no writable cgroup2 (No such file or directory): sessions end by "
			"process group, no limits\n"},
		{"/etc/passwd",
			"cgroup: no writable cgroup2 (Not a directory): sessions end by process group, no "
			"limits\n"},
		{"/proc", "cgroup: no writable cgroup2 (No such file or directory): sessions end by process "
			  "group, no limits\n"},
	};
	int failed;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct warnings warnings = {0};

		assert_int_equal(create(cases[i].root, &warnings, 1000, &failed), 0);
		assert_int_equal(warnings.length, strlen(cases[i].warning));
		assert_memory_equal(warnings.text, cases[i].warning, warnings.length);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_allocation_may_fail),
		cmocka_unit_test(a_cgroup_that_is_none_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
