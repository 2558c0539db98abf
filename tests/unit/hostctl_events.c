/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a whole daemon: what is told, to whom, and to whom it is not. */
#include "tests/unit/hostctl_sandboxes_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static void open_events(const struct daemon *daemon, struct stream *stream, const char *query)
{
	char path[SANDBOX_PATH_MAX], head[2048];

	snprintf(path, sizeof path, "/v1/events%s", query);
	stream->fd = client_open(daemon);
	assert_int_equal(frame_reader_init(&stream->reader, AGENT_FRAME_MAX), 0);
	client_request(stream->fd, "GET", path, UPGRADE, NULL);
	assert_int_equal(client_read_head(stream->fd, head, sizeof head), 101);
}

/* The next one, the caller's. */
static json_t *next_event(struct stream *stream)
{
	json_t *event;

	expect(stream, AGENT_HOST_EVENT);
	event = json_loadb((const char *)stream->frame.payload, stream->frame.length, 0, NULL);
	assert_non_null(event);
	return event;
}

static const char *text(const json_t *event, const char *name)
{
	const char *value = json_string_value(json_object_get(event, name));

	return value ? value : "null";
}

static void expect_state(struct stream *stream, const char *id, const char *before, const char *state)
{
	json_t *event = next_event(stream);

	assert_string_equal(text(event, "event"), "sandbox");
	assert_string_equal(text(event, "sandbox"), id);
	assert_string_equal(text(event, "before"), before);
	assert_string_equal(text(event, "state"), state);
	json_decref(event);
}

static void expect_command(struct stream *stream, const char *state, const char *result)
{
	json_t *event = next_event(stream);

	assert_string_equal(text(event, "event"), "command");
	assert_string_equal(text(event, "state"), state);
	assert_string_equal(text(event, "result"), result);
	json_decref(event);
}

static void test_what_is_told(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stream all, one;
	char id[32], other[32], query[64];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", other);
	open_events(&daemon, &all, "");
	snprintf(query, sizeof query, "?sandbox=%s", other);
	open_events(&daemon, &one, query);
	assert_int_equal(metric(&daemon, "tinderbox_events_readers "), 2);
	create_sandbox(&daemon, "{}", id);
	expect_state(&all, id, "creating", "ready");
	call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"exit\",\"1\"]}", &answer);
	answer_finish(&answer);
	expect_command(&all, "started", "null");
	expect_command(&all, "ended", "exited");
	call_sandbox(&daemon, "POST", other, "/pause", NULL, &answer);
	answer_finish(&answer);
	expect_state(&all, other, "ready", "pausing");
	expect_state(&all, other, "pausing", "paused");
	delete_sandbox(&daemon, id);
	expect_state(&all, id, "ready", "deleting");
	expect_state(&all, id, "deleting", "gone");
	/* Of the other it has heard nothing. */
	expect_state(&one, other, "ready", "pausing");
	expect_state(&one, other, "pausing", "paused");
	close_stream(&all);
	assert_int_equal(kill(daemon.pid, SIGTERM), 0);
	expect_error(&one, "not_ready", "the daemon is stopping: try again when it is back");
	daemon_stop(&daemon);
}

static void expect_template(struct stream *stream, const char *id, const char *state, const char *reason)
{
	json_t *event = next_event(stream);

	assert_string_equal(text(event, "event"), "template");
	assert_string_equal(text(event, "sandbox"), id);
	assert_string_equal(text(event, "template"), "frozen");
	assert_string_equal(text(event, "state"), state);
	assert_string_equal(text(event, "reason"), reason);
	assert_int_equal(json_object_size(event), 7);
	json_decref(event);
}

/* What came of a snapshot is told to who follows its sandbox. */
static void test_templates(void **state)
{
	static const char frozen[] = "{\"name\":\"frozen\"}";
	struct daemon daemon;
	struct answer answer;
	struct stream one;
	char id[32], query[64], reason[160];

	(void)state;
	start_with_templates_and(&daemon, "boot keep-refused", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(query, sizeof query, "?sandbox=%s", id);
	open_events(&daemon, &one, query);
	call_sandbox(&daemon, "POST", id, "/snapshot", frozen, &answer);
	answer_finish(&answer);
	expect_state(&one, id, "ready", "copying");
	expect_state(&one, id, "copying", "ready");
	snprintf(reason, sizeof reason,
		"sandbox %s could not be saved: writing the snapshot: No space left on device", id);
	expect_template(&one, id, "failed", reason);
	delete_sandbox(&daemon, id);
	close_stream(&one);
	daemon_stop(&daemon);
	remove_state(&daemon);
	start_with_templates_and(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	snprintf(query, sizeof query, "?sandbox=%s", id);
	open_events(&daemon, &one, query);
	call_sandbox(&daemon, "POST", id, "/snapshot", frozen, &answer);
	assert_int_equal(answer.status, 201);
	answer_finish(&answer);
	expect_state(&one, id, "ready", "copying");
	expect_state(&one, id, "copying", "ready");
	expect_template(&one, id, "made", "null");
	delete_sandbox(&daemon, id);
	close_stream(&one);
	await_vms(&daemon, "frozen", 0);
	succeed(&daemon, "DELETE", "/v1/templates/frozen", NULL);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_refusals(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stream stream;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	call(&daemon, "GET", "/v1/events", NULL, &answer);
	expect_error_answer(
		&answer, 400, "invalid", "events need the upgraded form (Upgrade: tinderbox-frames)");
	call(&daemon, "GET", "/v1/events?sandbox=sb-none", NULL, &answer);
	expect_error_answer(&answer, 404, "not_found", "there is no sandbox sb-none");
	open_events(&daemon, &stream, "");
	send_frame(&stream, AGENT_STDIN, "x", 1);
	expect_error(&stream, "invalid", "the client broke the frame protocol: it sends nothing to events");
	daemon_stop(&daemon);
}

/* It is not waited for, and learns how much it has not got. */
static void test_a_reader_that_does_not_read(void **state)
{
	enum { ROUNDS = 3000 };
	struct daemon daemon;
	struct answer answer;
	struct stream stream;
	json_int_t seen = 0, lost = 0;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	open_events(&daemon, &stream, "");
	for (int i = 0; i < ROUNDS; i++) {
		call_sandbox(&daemon, "POST", id, i % 2 ? "/resume" : "/pause", NULL, &answer);
		assert_int_equal(answer.status, 200);
		answer_finish(&answer);
	}
	while (seen + lost < 2 * ROUNDS) {
		json_t *event = next_event(&stream);

		if (!strcmp(text(event, "event"), "lost"))
			lost += json_integer_value(json_object_get(event, "count"));
		else
			seen++;
		json_decref(event);
	}
	assert_true(lost > 0);
	assert_int_equal(seen + lost, 2 * ROUNDS);
	close_stream(&stream);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_told),
		cmocka_unit_test(test_templates),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_a_reader_that_does_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
