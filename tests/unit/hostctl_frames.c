/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that are none, on each kind of upgraded connection, byte by byte: too long, malformed, unknown, out
 * of order, half. Each costs its own stream. */
#include "tests/unit/hostctl_sandboxes_fixture.h"

#define BROKE "the client broke the frame protocol: "

static char *const pool_of_two[] = {"--pool", "2", NULL};
static const char body[] = "{\"argv\":[\"cat\"],\"stdin_stream\":true}";

/* A daemon with a sandbox. */
struct scene {
	struct daemon daemon;
	char sandbox[32];
};

static void scene_start(struct scene *scene)
{
	daemon_start(&scene->daemon, "boot", pool_of_two);
	create_sandbox(&scene->daemon, "{}", scene->sandbox);
	await_pool(&scene->daemon, "warm", 2);
}

static void scene_stop(struct scene *scene)
{
	await_state(&scene->daemon, scene->sandbox, "ready");
	delete_sandbox(&scene->daemon, scene->sandbox);
	await_pool(&scene->daemon, "busy", 0);
	daemon_stop(&scene->daemon);
}

static void open_run(const struct scene *scene, struct stream *stream)
{
	char head[2048];

	assert_int_equal(open_stream_at(&scene->daemon, stream, "/v1/run", body, head), 101);
	expect(stream, AGENT_STARTED);
}

static void open_sandbox_run(const struct scene *scene, struct stream *stream)
{
	char path[SANDBOX_PATH_MAX], head[2048];

	snprintf(path, sizeof path, "/v1/sandboxes/%s/run", scene->sandbox);
	assert_int_equal(open_stream_at(&scene->daemon, stream, path, body, head), 101);
	expect(stream, AGENT_STARTED);
}

static void open_attached(const struct scene *scene, struct stream *stream)
{
	char path[SANDBOX_PATH_MAX], token[256], head[2048];
	struct answer answer;

	call_sandbox(&scene->daemon, "POST", scene->sandbox, "/commands",
		"{\"argv\":[\"cat\"],\"stdin_stream\":true,\"on_detach\":\"kill\"}", &answer);
	assert_int_equal(answer.status, 201);
	snprintf(path, sizeof path, "/v1/sandboxes/%s/commands/%s/attach", scene->sandbox,
		json_string_value(json_object_get(answer.json, "id")));
	snprintf(token, sizeof token, "{\"token\":\"%s\"}",
		json_string_value(json_object_get(answer.json, "attach_token")));
	answer_finish(&answer);
	assert_int_equal(open_stream_at(&scene->daemon, stream, path, token, head), 101);
	expect(stream, AGENT_STARTED);
}

static void (*const kinds[])(const struct scene *scene, struct stream *stream) = {
	open_run, open_sandbox_run, open_attached};

static const struct {
	const char *bytes; /* length (u32), type, flags, reserved (u16), payload */
	size_t count;
	const char *fault;
} cases[] = {
	{"\xff\xff\xff\xff\x10\0\0\0", 8, BROKE "a frame over the limit"},
	{"\x01\0\x02\0\x10\0\0\0", 8, BROKE "a frame over the limit"},
	{"\0\0\0\0\x11\x01\0\0", 8, BROKE "a malformed frame"},
	{"\0\0\0\0\x11\0\0\x80", 8, BROKE "a malformed frame"},
	{"\0\0\0\0\xee\0\0\0", 8, BROKE "a frame of a type that a client does not send"},
	{"\0\0\0\0\0\0\0\0", 8, BROKE "a frame of a type that a client does not send"},
	{"GET /v1/healthz HTTP/1.1\r\n\r\n", 28, BROKE "a malformed frame"},
};

static void test_frames_that_are_none(void **state)
{
	struct scene scene;

	(void)state;
	scene_start(&scene);
	for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
		for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
			struct stream stream;

			kinds[kind](&scene, &stream);
			client_send(stream.fd, cases[i].bytes, cases[i].count);
			expect_error(&stream, "invalid", cases[i].fault);
		}
	scene_stop(&scene);
}

/* In bytes that come one by one, too. */
static void test_frames_out_of_order(void **state)
{
	static const char after_the_end[] = "\0\0\0\0\x11\0\0\0"
					    "\x01\0\0\0\x10\0\0\0x";
	struct scene scene;

	(void)state;
	assert_int_equal(AGENT_STDIN, 0x10);
	assert_int_equal(AGENT_STDIN_EOF, 0x11);
	scene_start(&scene);
	/* cat ends with its stdin: what comes behind that may find it gone, or not. */
	for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
		struct stream stream;

		kinds[kind](&scene, &stream);
		for (size_t i = 0; i < sizeof after_the_end - 1; i++)
			if (send(stream.fd, after_the_end + i, 1, MSG_NOSIGNAL) != 1)
				break;
		while (next_frame(&stream))
			if (stream.frame.type == AGENT_EXIT || stream.frame.type == AGENT_HOST_ERROR)
				break;
		assert_true(stream.frame.type == AGENT_EXIT || stream.frame.type == AGENT_HOST_ERROR);
		if (stream.frame.type == AGENT_HOST_ERROR)
			assert_non_null(memmem(stream.frame.payload, stream.frame.length,
				"STDIN after the end of stdin", 28));
		expect_end(&stream);
	}
	scene_stop(&scene);
}

/* Who leaves in the middle of a frame, or says that no more will come, has left. */
static void test_half_frames(void **state)
{
	struct scene scene;

	(void)state;
	scene_start(&scene);
	for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
		for (int half_closed = 0; half_closed < 2; half_closed++) {
			struct stream stream;

			kinds[kind](&scene, &stream);
			client_send(stream.fd, "\x05\0\0\0\x10\0\0\0ab", 10);
			if (half_closed) {
				shutdown(stream.fd, SHUT_WR);
				while (next_frame(&stream))
					;
			}
			close_stream(&stream);
			/* The sandbox's own VM. */
			await_pool(&scene.daemon, "busy", 1);
		}
	scene_stop(&scene);
}

/* The upgrade itself, and the end, in one: nothing stays of it. */
static void test_half_closed_upgrades(void **state)
{
	static const char *const requests[] = {"GET /v1/events HTTP/1.1\r\nHost: x\r\n" UPGRADE "\r\n",
		"POST /v1/run HTTP/1.1\r\nHost: x\r\n" UPGRADE
		"Content-Length: 40\r\n\r\n{\"argv\":[\"started-sleep\"],\"user\":\"root\"}"};
	struct scene scene;

	(void)state;
	scene_start(&scene);
	for (int i = 0; i < 2; i++) {
		char rest[4096];
		int fd = client_open(&scene.daemon);

		client_send_text(fd, requests[i]);
		shutdown(fd, SHUT_WR);
		while (read(fd, rest, sizeof rest) > 0)
			;
		close(fd);
		await_pool(&scene.daemon, "busy", 1);
	}
	scene_stop(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_that_are_none),
		cmocka_unit_test(test_frames_out_of_order),
		cmocka_unit_test(test_half_frames),
		cmocka_unit_test(test_half_closed_upgrades),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
