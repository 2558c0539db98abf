/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: every way in which bytes can arrive, every bound, and the parsing of NEW. */
#include "tests/support/unit.h"

#include "common/frame.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
	int fds[2];
};

static int make_pair(void **state)
{
	struct pair *pair = malloc(sizeof(*pair));

	if (!pair || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair->fds) < 0)
		return -1;
	*state = pair;
	return 0;
}

static int free_pair(void **state)
{
	struct pair *pair = *state;

	fd_close(&pair->fds[0]);
	fd_close(&pair->fds[1]);
	free(pair);
	return 0;
}

static void frames_arrive_whole_whatever_the_cuts(void **state)
{
	(void)state;
	uint8_t stream[3 * AGENT_FRAME_HEADER + 5];
	struct agent_frame_header headers[3] = {
		{.length = 2, .type = AGENT_STDIN},
		{.length = 0, .type = AGENT_STDIN_EOF},
		{.length = 3, .type = AGENT_STDOUT},
	};
	uint8_t *at = stream;

	memcpy(at, &headers[0], 8);
	memcpy(at + 8, "ab", 2);
	memcpy(at + 10, &headers[1], 8);
	memcpy(at + 18, &headers[2], 8);
	memcpy(at + 26, "xyz", 3);
	for (size_t cut = 1; cut <= sizeof(stream); cut++) {
		struct frame_reader reader;
		struct frame frame;
		int seen = 0;

		assert_int_equal(frame_reader_init(&reader, AGENT_FRAME_MAX), 0);
		for (size_t done = 0; done < sizeof(stream); done += cut) {
			size_t n = sizeof(stream) - done < cut ? sizeof(stream) - done : cut;

			assert_int_equal(frame_reader_feed(&reader, stream + done, n), 0);
			while (frame_reader_next(&reader, &frame) == 1) {
				assert_int_equal(frame.type, headers[seen].type);
				assert_int_equal(frame.length, headers[seen].length);
				if (seen == 2)
					assert_memory_equal(frame.payload, "xyz", 3);
				seen++;
			}
		}
		assert_int_equal(seen, 3);
		assert_false(frame_reader_partial(&reader));
		frame_reader_finish(&reader);
	}
}

static void largest_frame_passes_and_one_more_is_refused(void **state)
{
	struct pair *pair = *state;
	struct frame_reader reader;
	struct frame frame;
	struct frame_queue queue;
	uint8_t *data = calloc(1, AGENT_FRAME_MAX + 1);
	int r, got = 0;

	data[AGENT_FRAME_MAX - 1] = 0x5a;
	frame_queue_init(&queue, AGENT_FRAME_MAX + AGENT_FRAME_HEADER);
	assert_int_equal(frame_reader_init(&reader, AGENT_FRAME_MAX), 0);
	assert_int_equal(frame_queue_put(&queue, AGENT_STDIN, data, AGENT_FRAME_MAX + 1, NULL, 0), -ENOBUFS);
	assert_int_equal(frame_queue_put(&queue, AGENT_STDIN, data, 10, data + 10, AGENT_FRAME_MAX - 10), 0);
	assert_int_equal(frame_queue_room(&queue), 0);
	assert_int_equal(frame_queue_put(&queue, AGENT_STDIN_EOF, NULL, 0, NULL, 0), -ENOBUFS);
	while (!got) {
		r = frame_queue_flush(&queue, pair->fds[0]);
		assert_true(r == 0 || r == 1);
		r = frame_reader_fill(&reader, pair->fds[1]);
		assert_true(r > 0);
		got = frame_reader_next(&reader, &frame);
		assert_true(got >= 0);
	}
	assert_int_equal(frame.length, AGENT_FRAME_MAX);
	assert_int_equal(frame.payload[AGENT_FRAME_MAX - 1], 0x5a);
	assert_int_equal(frame_queue_length(&queue), 0);
	frame_reader_finish(&reader);
	frame_queue_finish(&queue);
	free(data);
}

static void malformed_headers_are_refused(void **state)
{
	(void)state;
	static const struct {
		struct agent_frame_header header;
		int error;
	} cases[] = {
		{{.length = 0, .type = AGENT_STDIN, .flags = 1}, -EPROTO},
		{{.length = 0, .type = AGENT_STDIN, .reserved = 1}, -EPROTO},
		{{.length = 65, .type = AGENT_STDIN}, -EMSGSIZE},
		{{.length = UINT32_MAX, .type = AGENT_STDIN}, -EMSGSIZE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct frame_reader reader;
		struct frame frame;

		assert_int_equal(frame_reader_init(&reader, 64), 0);
		assert_int_equal(frame_reader_feed(&reader, &cases[i].header, sizeof(cases[i].header)), 0);
		assert_int_equal(frame_reader_next(&reader, &frame), cases[i].error);
		frame_reader_finish(&reader);
	}
}

static void a_reader_is_fed_no_more_than_a_largest_frame(void **state)
{
	static const uint8_t bytes[AGENT_FRAME_MAX];
	const struct agent_frame_header header = {.length = AGENT_FRAME_MAX, .type = AGENT_STDIN};
	struct frame_reader reader;
	struct frame frame;

	(void)state;
	assert_int_equal(frame_reader_init(&reader, AGENT_FRAME_MAX), 0);
	assert_int_equal(frame_reader_feed(&reader, &header, sizeof(header)), 0);
	assert_int_equal(frame_reader_feed(&reader, bytes, AGENT_FRAME_MAX - 1), 0);
	assert_int_equal(frame_reader_feed(&reader, bytes, 2), -EMSGSIZE);
	assert_int_equal(frame_reader_next(&reader, &frame), 0);
	assert_int_equal(frame_reader_feed(&reader, bytes, 1), 0);
	assert_int_equal(frame_reader_next(&reader, &frame), 1);
	assert_int_equal(frame.length, AGENT_FRAME_MAX);
	assert_int_equal(reader.capacity, sizeof(header) + AGENT_FRAME_MAX);
	frame_reader_finish(&reader);
}

static void stream_end_within_a_frame_is_told(void **state)
{
	struct pair *pair = *state;
	struct frame_reader reader;
	struct frame frame;

	assert_int_equal(frame_reader_init(&reader, AGENT_FRAME_MAX), 0);
	assert_int_equal(frame_reader_fill(&reader, pair->fds[1]), -EAGAIN);
	assert_int_equal(write(pair->fds[0], "\5\0\0", 3), 3);
	fd_close(&pair->fds[0]);
	assert_int_equal(frame_reader_fill(&reader, pair->fds[1]), 3);
	assert_int_equal(frame_reader_next(&reader, &frame), 0);
	assert_int_equal(frame_reader_fill(&reader, pair->fds[1]), 0);
	assert_true(frame_reader_partial(&reader));
	frame_reader_finish(&reader);
}

static void queue_tells_a_peer_that_left(void **state)
{
	struct pair *pair = *state;
	struct frame_queue queue;

	frame_queue_init(&queue, 1024);
	fd_close(&pair->fds[1]);
	assert_int_equal(frame_queue_put(&queue, AGENT_KILL, NULL, 0, NULL, 0), 0);
	assert_int_equal(frame_queue_flush(&queue, pair->fds[0]), -EPIPE);
	assert_int_equal(frame_write(pair->fds[0], AGENT_KILL, NULL, 0, NULL, 0), -EPIPE);
	frame_queue_finish(&queue);
}

/* Whoever holds the other end may hold this one too, and make it block. */
static void a_stream_made_blocking_is_not_waited_for(void **state)
{
	enum { MORE_THAN_A_SOCKET_HOLDS = 64 * 1024 * 1024 };
	struct pair *pair = *state;
	struct frame_reader reader;
	struct frame_queue queue;
	uint8_t *data = calloc(1, AGENT_FRAME_MAX);

	assert_int_equal(fcntl(pair->fds[0], F_SETFL, 0), 0);
	assert_int_equal(fcntl(pair->fds[1], F_SETFL, 0), 0);
	assert_int_equal(frame_reader_init(&reader, AGENT_FRAME_MAX), 0);
	reader.flags = MSG_DONTWAIT;
	assert_int_equal(frame_reader_fill(&reader, pair->fds[1]), -EAGAIN);
	frame_queue_init(&queue, MORE_THAN_A_SOCKET_HOLDS);
	while (frame_queue_put(&queue, AGENT_STDIN, data, AGENT_FRAME_MAX, NULL, 0) == 0)
		;
	assert_int_equal(frame_queue_flush(&queue, pair->fds[0]), 1);
	frame_queue_finish(&queue);
	frame_reader_finish(&reader);
	free(data);
}

/* A NEW with the given strings ("\0" within), its counts patched by the case. */
struct new_case {
	const char *name;
	uint64_t session;
	uint32_t flags, argc, envc;
	int32_t length_error; /* added to strings_length */
	const char *strings;
	size_t strings_length;
	int result;
	const char *why;
};

#define STRINGS(s) s, sizeof(s)

static const struct new_case new_cases[] = {
	{"good", 1, AGENT_NEW_STDIN, 2, 1, 0, STRINGS("cat\0-\0A=b\0/tmp\0agent"), 0, NULL},
	{"no session", 0, 0, 1, 0, 0, STRINGS("cat\0\0"), -EPROTO, "NEW: the session's id is zero"},
	{"flags", 1, 1u << 31, 1, 0, 0, STRINGS("cat\0\0"), -EPROTO, "NEW: unknown flags"},
	{"length", 1, 0, 1, 0, 1, STRINGS("cat\0\0"), -EPROTO,
		"NEW: the strings' length is not that of the frame"},
	{"argc", 1, 0, AGENT_ARGC_MAX + 1, 0, 0, STRINGS("cat\0\0"), -E2BIG,
		"argv has more than AGENT_ARGC_MAX entries"},
	{"envc", 1, 0, 1, UINT32_MAX, 0, STRINGS("cat\0\0"), -E2BIG,
		"env has more than AGENT_ENVC_MAX entries"},
	{"no argv", 1, 0, 0, 0, 0, STRINGS("\0"), -EINVAL, "argv is empty"},
	{"empty argv[0]", 1, 0, 1, 0, 0, STRINGS("\0\0"), -EINVAL, "argv[0] is empty"},
	{"too few", 1, 0, 2, 0, 0, STRINGS("cat\0\0"), -EPROTO,
		"NEW: the strings are not argc + envc + 2 in number"},
	{"too many", 1, 0, 1, 0, 0, STRINGS("cat\0\0\0x"), -EPROTO,
		"NEW: the strings are not argc + envc + 2 in number"},
	{"no last NUL", 1, 0, 1, 0, 0, "cat\0\0x", 6, -EPROTO,
		"NEW: the strings are not argc + envc + 2 in number"},
};

static void new_is_parsed_or_refused_by_name(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(new_cases) / sizeof(new_cases[0]); i++) {
		const struct new_case *c = &new_cases[i];
		/* Exactly as long as the frame, so that ASan sees a read beyond it. */
		uint8_t *payload = malloc(sizeof(struct agent_new) + c->strings_length);
		struct agent_new fixed = {
			.session = c->session,
			.flags = c->flags,
			.argc = c->argc,
			.envc = c->envc,
			.strings_length = (uint32_t)((int32_t)c->strings_length + c->length_error),
		};
		struct frame frame = {
			.type = AGENT_NEW,
			.length = (uint32_t)(sizeof(fixed) + c->strings_length),
			.payload = payload,
		};
		struct agent_new_view view;
		const char *why = "unset";

		memcpy(payload, &fixed, sizeof(fixed));
		memcpy(payload + sizeof(fixed), c->strings, c->strings_length);
		print_message("case: %s\n", c->name);
		assert_int_equal(frame_parse_new(&frame, &view, &why), c->result);
		if (c->why)
			assert_string_equal(why, c->why);
		else
			assert_null(why);
		if (c->result == 0) {
			assert_string_equal(view.cwd, "/tmp");
			assert_string_equal(view.user, "agent");
		}
		frame.length = sizeof(fixed) - 1;
		assert_int_equal(frame_parse_new(&frame, &view, &why), -EPROTO);
		free(payload);
	}
}

static void strings_over_their_limit_are_refused(void **state)
{
	(void)state;
	size_t length = AGENT_STRINGS_MAX + 1;
	uint8_t *payload = calloc(1, sizeof(struct agent_new) + length);
	struct agent_new fixed = {.session = 1, .argc = 1, .strings_length = (uint32_t)length};
	struct frame frame = {.length = (uint32_t)(sizeof(fixed) + length), .payload = payload};
	struct agent_new_view view;
	const char *why;

	memcpy(payload, &fixed, sizeof(fixed));
	assert_int_equal(frame_parse_new(&frame, &view, &why), -E2BIG);
	assert_string_equal(why, "argv, env, cwd and user together are longer than AGENT_STRINGS_MAX");
	free(payload);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_arrive_whole_whatever_the_cuts),
		cmocka_unit_test_setup_teardown(
			largest_frame_passes_and_one_more_is_refused, make_pair, free_pair),
		cmocka_unit_test(malformed_headers_are_refused),
		cmocka_unit_test_setup_teardown(
			a_reader_is_fed_no_more_than_a_largest_frame, make_pair, free_pair),
		cmocka_unit_test_setup_teardown(stream_end_within_a_frame_is_told, make_pair, free_pair),
		cmocka_unit_test_setup_teardown(queue_tells_a_peer_that_left, make_pair, free_pair),
		cmocka_unit_test_setup_teardown(
			a_stream_made_blocking_is_not_waited_for, make_pair, free_pair),
		cmocka_unit_test(new_is_parsed_or_refused_by_name),
		cmocka_unit_test(strings_over_their_limit_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
