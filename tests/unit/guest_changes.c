/* SPDX-License-Identifier: Apache-2.0 */
/* What has become of the files, against the lower layer and against a baseline. */
#include "guest_changes_fixture.h"

/* ---- against the lower layer ---- */

static void nothing_has_changed_at_first(void **state)
{
	struct tree tree;

	(void)state;
	make_tree(&tree);
	expect(&tree, "");
	remove_tree(&tree);
}

static void each_kind_is_told(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_folder(upper, "dir");
	put_file(upper, "dir/a", "other");
	put_whiteout(upper, "dir/b");
	put_opaque(upper, "dir/new");
	put_file(upper, "dir/new/x", "");
	put_whiteout(upper, "file");
	put_whiteout(upper, "other");
	assert_int_equal(symlinkat("to", upper, "link"), 0);
	assert_int_equal(symlinkat("to", upper, "link2"), 0);
	assert_int_equal(mknodat(upper, "pipe", S_IFIFO | 0600, 0), 0);
	expect(&tree, "C /dir/a\nD /dir/b\nA//dir/new\nA /dir/new/x\nD "
		      "/file\nC@/link\nA@/link2\nD//other\nA?/pipe\n");
	remove_tree(&tree);
}

/* It is in the upper layer for what is in it, or for itself. */
static void a_folder_has_changed_by_itself_alone(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_folder(upper, "dir");
	put_folder(upper, "dir/sub");
	expect(&tree, "");
	assert_int_equal(fchmodat(upper, "dir/sub", 0700, 0), 0);
	expect(&tree, "C//dir/sub\n");
	assert_int_equal(fchmodat(upper, "dir/sub", 0755, 0), 0);
	assert_int_equal(fchownat(upper, "dir", 1, 0, 0), 0);
	expect(&tree, "C//dir\n");
	assert_int_equal(fchownat(upper, "dir", 0, 1, 0), 0);
	expect(&tree, "C//dir\n");
	remove_tree(&tree);
}

static void a_folder_that_was_made_anew_hides_what_was(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_opaque(upper, "dir");
	put_file(upper, "dir/a", "");
	put_file(upper, "dir/c", "");
	expect(&tree, "C /dir/a\nD /dir/b\nA /dir/c\nD//dir/sub\n");
	remove_tree(&tree);
}

static void what_was_replaced_has_changed(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_file(upper, "dir", "no folder");
	put_opaque(upper, "file");
	put_file(upper, "file/x", "");
	put_folder(upper, "link");
	expect(&tree, "C /dir\nC//file\nA /file/x\nC//link\n");
	remove_tree(&tree);
}

static void a_renamed_folder_is_told_with_all_that_shows_through(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_whiteout(upper, "dir");
	put_renamed(upper, "moved", "dir");
	put_whiteout(upper, "moved/b");
	put_file(upper, "moved/c", "");
	expect(&tree, "D//dir\nA//moved\nA /moved/a\nA /moved/c\nA//moved/sub\nA /moved/sub/deep\n");
	/* From one folder to another, its path is the lower layer's. */
	put_whiteout(upper, "moved/sub");
	put_folder(upper, "other");
	put_renamed(upper, "other/sub", "/dir/sub");
	expect(&tree, "D//dir\nA//moved\nA /moved/a\nA /moved/c\nA//other/sub\nA /other/sub/deep\n");
	remove_tree(&tree);
}

/* One renamed to where another was: what differs of both is told. */
static void a_folder_in_the_place_of_another_is_compared(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_file(tree.layers.lower, "other/a", "");
	put_file(tree.layers.lower, "other/z", "");
	put_whiteout(upper, "dir");
	put_renamed(upper, "other", "dir");
	expect(&tree, "D//dir\nC /other/a\nA /other/b\nA//other/sub\nA /other/sub/deep\nD /other/z\n");
	remove_tree(&tree);
}

static void what_makes_no_sense_is_nothing(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_whiteout(upper, "never");
	put_renamed(upper, "nowhere", "/not/there");
	put_renamed(upper, "self", "file");
	mark(upper, "self", "trusted.overlay.opaque", "x");
	expect(&tree, "A//nowhere\nA//self\n");
	remove_tree(&tree);
}

static void the_machine_id_is_the_agents(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_tree(&tree);
	upper = tree.layers.upper;
	put_folder(tree.layers.lower, "etc");
	put_folder(upper, "etc");
	put_file(upper, "etc/machine-id", "1");
	put_file(upper, "etc/machine-id2", "1");
	expect(&tree, "A /etc/machine-id2\n");
	note(&tree);
	put_file(upper, "etc/machine-id", "2");
	expect(&tree, "");
	remove_tree(&tree);
}

/* ---- against a baseline ---- */

static void what_the_template_did_is_no_change(void **state)
{
	struct tree tree;

	(void)state;
	make_template(&tree);
	expect(&tree, "");
	remove_tree(&tree);
}

static void what_the_template_had_is_told_when_it_changes(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_template(&tree);
	upper = tree.layers.upper;
	drop(upper, "dir/a");
	put_file(upper, "dir/a", "again");
	put_file(upper, "dir/b", "sandbox's");
	/* Nothing stands for what only the upper layer had. */
	drop(upper, "made/x");
	assert_int_equal(unlinkat(upper, "made/z", AT_REMOVEDIR), 0);
	put_file(upper, "made/w", "");
	assert_int_equal(fchmodat(upper, "made/y", 0600, 0), 0);
	put_file(upper, "moved/deep", "");
	drop(upper, "file");
	put_opaque(upper, "file");
	expect(&tree,
		"A /dir/a\nC /dir/b\nA//file\nA /made/w\nD /made/x\nC /made/y\nD//made/z\nC /moved/deep\n");
	/* And when that is noted, it is nothing new any more. */
	note(&tree);
	expect(&tree, "");
	remove_tree(&tree);
}

static void what_the_template_had_is_told_when_it_goes(void **state)
{
	struct tree tree;
	char path[96];
	int upper;

	(void)state;
	make_template(&tree);
	upper = tree.layers.upper;
	/* Renamed by the sandbox, without a mark, for the lower layer never had it. */
	assert_int_equal(renameat(upper, "made", upper, "after"), 0);
	drop(upper, "dir/b");
	put_whiteout(upper, "dir/b");
	snprintf(path, sizeof(path), "%s/upper/moved", tree.folder);
	assert_int_equal(removexattr(path, "trusted.overlay.redirect"), 0);
	mark(upper, "moved", "trusted.overlay.opaque", "y");
	expect(&tree, "A//after\nA /after/x\nA /after/y\nA//after/z\nD /dir/b\nD//made\nD /moved/deep\n");
	remove_tree(&tree);
}

static void a_folder_of_the_template_may_become_a_file(void **state)
{
	struct tree tree;
	int upper;

	(void)state;
	make_template(&tree);
	upper = tree.layers.upper;
	drop(upper, "made/x");
	drop(upper, "made/y");
	assert_int_equal(unlinkat(upper, "made/z", AT_REMOVEDIR), 0);
	assert_int_equal(unlinkat(upper, "made", AT_REMOVEDIR), 0);
	put_file(upper, "made", "");
	expect(&tree, "C /made\n");
	remove_tree(&tree);
}

static void the_first_baseline_stays(void **state)
{
	struct tree tree;

	(void)state;
	make_tree(&tree);
	put_file(tree.layers.upper, "before", "");
	assert_int_equal(baseline_ensure(&tree.layers), 0);
	put_file(tree.layers.upper, "later", "");
	assert_int_equal(baseline_ensure(&tree.layers), 0);
	expect(&tree, "A /later\n");
	remove_tree(&tree);
}

static void a_spoiled_baseline_is_found(void **state)
{
	struct tree tree;
	int fd;

	(void)state;
	make_template(&tree);
	fd = openat(tree.layers.store, "baseline", O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), -EIO);
	assert_int_equal(ftruncate(fd, 20), 0);
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), -EIO);
	/* Records without a name. */
	assert_int_equal(ftruncate(fd, 4000), 0);
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), -EIO);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, 4000), 0);
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), -EIO);
	/* Without records there is nothing that could have been before. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), 0);
	close(fd);
	remove_tree(&tree);
}

static void without_an_overlay_there_is_nothing(void **state)
{
	const struct layers none = {.upper = -1, .lower = -1, .store = -1};
	struct changes *changes;

	(void)state;
	assert_int_equal(changes_begin(&none, "", 0, 1, &changes), -EOPNOTSUPP);
	assert_null(changes);
	assert_int_equal(changes_begin(NULL, "", 0, 1, &changes), -EOPNOTSUPP);
	assert_int_equal(baseline_write(&none), -EOPNOTSUPP);
	assert_int_equal(baseline_ensure(NULL), -EOPNOTSUPP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_has_changed_at_first),
		cmocka_unit_test(each_kind_is_told),
		cmocka_unit_test(a_folder_has_changed_by_itself_alone),
		cmocka_unit_test(a_folder_that_was_made_anew_hides_what_was),
		cmocka_unit_test(what_was_replaced_has_changed),
		cmocka_unit_test(a_renamed_folder_is_told_with_all_that_shows_through),
		cmocka_unit_test(a_folder_in_the_place_of_another_is_compared),
		cmocka_unit_test(what_makes_no_sense_is_nothing),
		cmocka_unit_test(the_machine_id_is_the_agents),
		cmocka_unit_test(what_the_template_did_is_no_change),
		cmocka_unit_test(what_the_template_had_is_told_when_it_changes),
		cmocka_unit_test(what_the_template_had_is_told_when_it_goes),
		cmocka_unit_test(a_folder_of_the_template_may_become_a_file),
		cmocka_unit_test(the_first_baseline_stays),
		cmocka_unit_test(a_spoiled_baseline_is_found),
		cmocka_unit_test(without_an_overlay_there_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
