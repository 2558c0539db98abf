/* SPDX-License-Identifier: Apache-2.0 */
/* In which order changes are told, how many of them at once, and over which stream. */
#include "guest_changes_fixture.h"

enum { MANY = 10000, DEEP = 140 };

/* ---- order, pages, bounds ---- */

static void put_ordered(const struct tree *tree)
{
	static const char *const names[] = {
		"a", "a.b", "a/-", "a/b", "a/b.", "a/b/c", "aa", "\x01", "\xff", "a b"};
	static const bool is_folder[] = {true, false, false, true, false, false, false, false, false, false};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (is_folder[i])
			put_folder(tree->layers.upper, names[i]);
		else
			put_file(tree->layers.upper, names[i], "");
	}
}

static void paths_come_in_the_order_of_their_names(void **state)
{
	struct tree tree;

	(void)state;
	make_tree(&tree);
	put_ordered(&tree);
	expect(&tree, "A /\x01\nA//a\nA /a/-\nA//a/b\nA /a/b/c\nA /a/b.\nA /a b\nA /a.b\nA /aa\nA /\xff\n");
	remove_tree(&tree);
}

/* The path of a listing's last line; false: there is none. */
static bool last_path(const char *listing, char path[64])
{
	size_t length = strlen(listing), start;

	if (length == 0)
		return false;
	for (start = length - 1; start > 0 && listing[start - 1] != '\n'; start--)
		;
	snprintf(path, 64, "%.*s", (int)(length - start - 3), listing + start + 2);
	return true;
}

static void pages_are_the_whole(void **state)
{
	char whole[512], all[512], after[64];
	struct tree tree;

	(void)state;
	make_template(&tree);
	put_ordered(&tree);
	drop(tree.layers.upper, "made/y");
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), 0);
	snprintf(whole, sizeof(whole), "%s", tree.listing);
	for (uint32_t limit = 1; limit < 14; limit++) {
		all[0] = after[0] = '\0';
		do {
			assert_int_equal(list(&tree, after, limit), 0);
			assert_true(tree.end.count <= limit && (tree.end.count == limit) >= tree.end.more);
			snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s", tree.listing);
		} while (last_path(tree.listing, after) && tree.end.more);
		assert_string_equal(all, whole);
	}
	/* Also after what is not there. */
	assert_int_equal(list(&tree, "/a/bb", 2), 0);
	assert_string_equal(tree.listing, "A /a b\nA /a.b\n");
	assert_int_equal(list(&tree, "/\xff\xff", 2), 0);
	assert_string_equal(tree.listing, "");
	remove_tree(&tree);
}

static void many_files_come_in_turns(void **state)
{
	struct agent_changes_end end;
	struct changes *changes;
	uint8_t bytes[CHANGES_ENTRY_MAX];
	struct tree tree;
	char name[32];
	size_t length;
	int calls = 1;

	(void)state;
	make_tree(&tree);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "n%05d", i);
		put_file(tree.layers.upper, name, "");
	}
	note(&tree);
	put_file(tree.layers.upper, "n07000", "");
	/* What has not changed takes time as well: it is never all looked at in one call. */
	assert_int_equal(changes_begin(&tree.layers, "", 0, 10, &changes), 0);
	while (changes_fill(changes, bytes, sizeof(bytes), &length, &end) == 1)
		calls++;
	changes_end(changes);
	assert_in_range(calls, MANY / CHANGES_STEPS, 2 * MANY / CHANGES_STEPS);
	assert_int_equal(end.count, 1);
	expect(&tree, "C /n07000\n");
	remove_tree(&tree);
}

static void the_bytes_of_paths_are_bounded(void **state)
{
	enum {
		LONG = 255,
		FILES = 2100,
		FIT = 2 + (AGENT_CHANGES_BYTES_MAX - (LONG + 1) - 1) / (2 * (LONG + 1))
	};
	struct agent_changes_end end;
	struct changes *changes;
	uint8_t bytes[CHANGES_ENTRY_MAX];
	struct tree tree;
	char name[2 * LONG + 2];
	size_t length;

	(void)state;
	make_tree(&tree);
	snprintf(name, sizeof(name), "%0255d", 0);
	put_folder(tree.layers.upper, name);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "%0255d/%0255d", 0, i);
		put_file(tree.layers.upper, name, "");
	}
	assert_int_equal(changes_begin(&tree.layers, "", 0, AGENT_CHANGES_MAX, &changes), 0);
	while (changes_fill(changes, bytes, sizeof(bytes), &length, &end) == 1)
		;
	changes_end(changes);
	assert_int_equal(end.count, FIT);
	assert_int_equal(end.more, 1);
	remove_tree(&tree);
}

static void what_is_too_deep_is_counted(void **state)
{
	int at[DEEP + 1];
	struct tree tree;

	(void)state;
	make_tree(&tree);
	at[0] = dup(tree.layers.upper);
	for (int i = 0; i < DEEP; i++) {
		put_folder(at[i], "d");
		put_file(at[i], "f", "");
		at[i + 1] = openat(at[i], "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), 0);
	assert_int_equal(tree.end.count, 2 * LAYERS_DEPTH_MAX);
	assert_int_equal(tree.end.skipped, 1);
	/* Noted as far as it is told. */
	note(&tree);
	put_file(at[LAYERS_DEPTH_MAX - 1], "f", "");
	put_file(at[LAYERS_DEPTH_MAX], "f", "");
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), 0);
	assert_int_equal(tree.end.count, 1);
	assert_int_equal(tree.end.skipped, 1);
	for (int i = 0; i <= DEEP; i++)
		close(at[i]);
	remove_tree(&tree);
}

static void what_has_too_long_a_path_is_counted(void **state)
{
	int at = -1, below;
	struct tree tree;
	char name[256];

	(void)state;
	make_tree(&tree);
	memset(name, 'n', 255);
	name[255] = '\0';
	at = dup(tree.layers.upper);
	/* 16 of 256 bytes: the last one's path has 4096. */
	for (int i = 0; i < 17; i++) {
		put_folder(at, name);
		below = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = below;
	}
	close(at);
	assert_int_equal(list(&tree, "", AGENT_CHANGES_MAX), 0);
	assert_int_equal(tree.end.count, 15);
	assert_int_equal(tree.end.skipped, 1);
	remove_tree(&tree);
}

static void names_are_bounded(void **state)
{
	struct names names;
	struct tree tree;

	(void)state;
	make_tree(&tree);
	assert_int_equal(names_read(&names, tree.layers.lower, 1023), -E2BIG);
	assert_int_equal(names_read(&names, tree.layers.lower, 1024 + 4 * sizeof(char *) - 1), -E2BIG);
	assert_int_equal(names_read(&names, tree.layers.lower, 1024 + 4 * sizeof(char *)), 0);
	assert_int_equal(names.count, 4);
	assert_string_equal(names_peek(&names), "dir");
	assert_false(names_take(&names, "file"));
	assert_true(names_take(&names, "dir"));
	assert_true(names_take(&names, "file"));
	names_finish(&names);
	assert_int_equal(names_read(&names, tree.layers.upper, 0), 0);
	assert_null(names_peek(&names));
	remove_tree(&tree);
}

/* ---- over the stream ---- */

static void ask_changes(struct fixture *f, struct client *client, uint32_t limit, const char *after)
{
	struct agent_changes changes = {.limit = limit, .after_length = (uint32_t)strlen(after)};
	char payload[sizeof(changes) + AGENT_PATH_MAX + 1];

	memcpy(payload, &changes, sizeof(changes));
	snprintf(payload + sizeof(changes), AGENT_PATH_MAX + 1, "%s", after);
	client_open(f, client);
	client_send(f, client, AGENT_CHANGES, payload, sizeof(changes) + strlen(after));
}

static void expect_refused(struct fixture *f, const void *payload, size_t length, int error, const char *text)
{
	struct client client;

	client_open(f, &client);
	client_send(f, &client, AGENT_CHANGES, payload, length);
	client_expect_error(f, &client, error, text);
	client_close(&client);
}

static struct tree shared;

static int setup_with_layers(void **state)
{
	make_tree(&shared);
	test_layers = &shared.layers;
	return setup(state);
}

static int teardown_with_layers(void **state)
{
	int r = teardown(state);

	test_layers = NULL;
	remove_tree(&shared);
	return r;
}

static void changes_are_asked_for_properly(void **state)
{
	static const char short_one[] = "CHANGES: limit is not 1..4096";
	struct agent_changes changes = {.limit = 1};
	struct fixture *f = *state;
	char payload[sizeof(changes) + 2];

	expect_refused(f, &changes, sizeof(changes), EPERM,
		"CHANGES: this guest has no identity yet (IDENTITY comes first)");
	give_identity(f);
	expect_refused(f, &changes, sizeof(changes) - 1, EPROTO, "this frame has a wrong length");
	changes.limit = 0;
	expect_refused(f, &changes, sizeof(changes), EPROTO, short_one);
	changes.limit = AGENT_CHANGES_MAX + 1;
	expect_refused(f, &changes, sizeof(changes), EPROTO, short_one);
	changes = (struct agent_changes){.limit = 1, .after_length = 1};
	expect_refused(f, &changes, sizeof(changes), EPROTO, "CHANGES: the path has another length");
	changes.after_length = 2;
	memcpy(payload, &changes, sizeof(changes));
	payload[sizeof(changes)] = payload[sizeof(changes) + 1] = 'a';
	expect_refused(
		f, payload, sizeof(payload), EPROTO, "CHANGES: the path is not absolute, or has a NUL");
	payload[sizeof(changes)] = '/';
	payload[sizeof(changes) + 1] = '\0';
	expect_refused(
		f, payload, sizeof(payload), EPROTO, "CHANGES: the path is not absolute, or has a NUL");
}

/* The entries of all frames; the reader is left at the end of the stream. */
static uint32_t read_changes(struct fixture *f, struct client *client, struct agent_changes_end *end)
{
	struct agent_change change;
	struct frame frame;
	uint32_t count = 0;

	while (client_next(f, client, &frame) == 1 && frame.type == AGENT_CHANGE_LIST) {
		assert_in_range(frame.length, sizeof(change) + 2, AGENT_CHANGE_LIST_MAX);
		for (size_t at = 0; at < frame.length; at += sizeof(change) + change.path_length, count++)
			memcpy(&change, frame.payload + at, sizeof(change));
	}
	assert_int_equal(frame.type, AGENT_CHANGES_END);
	assert_int_equal(frame.length, sizeof(*end));
	memcpy(end, frame.payload, sizeof(*end));
	client_expect_end(f, client);
	client_close(client);
	return count;
}

static void put_many(int upper, int count)
{
	char name[64];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "a-longer-name-than-most-files-have-%05d", i);
		put_file(upper, name, "");
	}
}

static void they_come_in_frames(void **state)
{
	struct command command = {.argv = ARGV("/bin/true")};
	struct agent_changes_end end;
	struct fixture *f = *state;
	struct client client, other;
	struct outcome outcome;

	give_identity(f);
	put_many(shared.layers.upper, 4000);
	ask_changes(f, &client, AGENT_CHANGES_MAX, "");
	/* Who does not read holds up nobody, but whoever wants the same. */
	for (int i = 0; i < 100; i++)
		loop_turn(f->loop, 0);
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	ask_changes(f, &other, 1, "");
	client_expect_error(f, &other, EAGAIN, "CHANGES: others are being told");
	client_close(&other);
	assert_int_equal(read_changes(f, &client, &end), 4000);
	assert_int_equal(end.count, 4000);
	ask_changes(f, &client, 100, "/a-longer-name-than-most-files-have-03949");
	assert_int_equal(read_changes(f, &client, &end), 50);
	assert_int_equal(end.more, 0);
}

static void who_leaves_is_forgotten(void **state)
{
	struct agent_changes_end end;
	struct fixture *f = *state;
	struct client client;

	give_identity(f);
	put_many(shared.layers.upper, 4000);
	ask_changes(f, &client, AGENT_CHANGES_MAX, "");
	for (int i = 0; i < 5; i++)
		loop_turn(f->loop, 0);
	client_close(&client);
	for (int i = 0; i < 5; i++)
		loop_turn(f->loop, 0);
	ask_changes(f, &client, 3, "");
	assert_int_equal(read_changes(f, &client, &end), 3);
	assert_int_equal(end.more, 1);
	/* And who sends more than was asked for. */
	ask_changes(f, &client, AGENT_CHANGES_MAX, "");
	client_send(f, &client, AGENT_KILL, NULL, 0);
	client_close(&client);
}

static void a_baseline_is_noted_when_it_is_asked_for(void **state)
{
	struct agent_control control = {.version = AGENT_PROTO_VERSION};
	struct agent_status status = {.status = -1};
	struct agent_changes_end end;
	struct fixture *f = *state;
	struct client client, host;
	struct frame frame;

	/* The first identity notes what there was before it. */
	put_file(shared.layers.upper, "before", "");
	give_identity(f);
	put_file(shared.layers.upper, "after", "");
	ask_changes(f, &client, 10, "");
	assert_int_equal(read_changes(f, &client, &end), 1);
	client_open(f, &host);
	client_send(f, &host, AGENT_CONTROL, &control, sizeof(control));
	client_expect(f, &host, AGENT_HELLO, &frame);
	client_send(f, &host, AGENT_BASELINE, NULL, 0);
	client_expect(f, &host, AGENT_BASELINE_DONE, &frame);
	assert_int_equal(frame.length, sizeof(status));
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.status, 0);
	assert_int_equal(status.text_length, 0);
	client_send(f, &host, AGENT_BASELINE, "x", 1);
	client_expect_error(f, &host, EPROTO, "this frame has a wrong length");
	client_close(&host);
	ask_changes(f, &client, 10, "");
	assert_int_equal(read_changes(f, &client, &end), 0);
	/* Another identity notes nothing. */
	put_file(shared.layers.upper, "later", "");
	give_identity(f);
	ask_changes(f, &client, 10, "");
	assert_int_equal(read_changes(f, &client, &end), 1);
}

static void a_root_without_layers_has_no_changes(void **state)
{
	struct agent_control control = {.version = AGENT_PROTO_VERSION};
	struct agent_changes changes = {.limit = 1};
	struct fixture *f = *state;
	struct agent_status status;
	struct client host;
	struct frame frame;

	give_identity(f);
	expect_refused(f, &changes, sizeof(changes), EOPNOTSUPP, "CHANGES: the root is not an overlay");
	client_open(f, &host);
	client_send(f, &host, AGENT_CONTROL, &control, sizeof(control));
	client_expect(f, &host, AGENT_HELLO, &frame);
	client_send(f, &host, AGENT_BASELINE, NULL, 0);
	client_expect(f, &host, AGENT_BASELINE_DONE, &frame);
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.status, EOPNOTSUPP);
	client_close(&host);
}

#define WITH_LAYERS(test) cmocka_unit_test_setup_teardown(test, setup_with_layers, teardown_with_layers)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_come_in_the_order_of_their_names),
		cmocka_unit_test(pages_are_the_whole),
		cmocka_unit_test(many_files_come_in_turns),
		cmocka_unit_test(the_bytes_of_paths_are_bounded),
		cmocka_unit_test(what_is_too_deep_is_counted),
		cmocka_unit_test(what_has_too_long_a_path_is_counted),
		cmocka_unit_test(names_are_bounded),
		WITH_LAYERS(changes_are_asked_for_properly),
		WITH_LAYERS(they_come_in_frames),
		WITH_LAYERS(who_leaves_is_forgotten),
		WITH_LAYERS(a_baseline_is_noted_when_it_is_asked_for),
		cmocka_unit_test_setup_teardown(a_root_without_layers_has_no_changes, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
