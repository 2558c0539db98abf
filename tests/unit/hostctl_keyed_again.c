/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that ask again under the same key as soon as they are answered: each is answered in its turn, and
 * the loop goes on in between. */
#include "tests/unit/hostctl_journal_fixture.h"

#include "common/unix_socket.h"
#include "host-ctl/api/api_keyed.h"
#include <sys/socket.h>

enum { AGAIN_MAX = 100, TURNS_MAX = 1000, TURN_MS = 20 };

struct fixture {
	struct api api;
	struct metrics metrics;
	struct http_peer peer;
	char socket[96];
	int listener, handled;
	struct http *http;
};

/* Whose answer is the next request's beginning. */
struct asker {
	struct fixture *f;
	struct http_request request;
	json_t *query;
	const char *body;
	unsigned int status; /* of the last answer */
	int answers;
	bool stops;
};

/* What the handler makes of it. */
static enum error_kind outcome;

static void handle(struct api *api, struct http_request *request)
{
	struct fixture *f = (struct fixture *)api;
	struct error error;

	f->handled++;
	if (outcome == ERROR_NONE) {
		http_reply_json(request, 200, json_object());
		return;
	}
	error_set(&error, outcome, "not now");
	http_reply_error(request, &error);
}

static void ask(struct asker *asker);

static void answered(void *context, const struct http_answer *given)
{
	struct asker *asker = context;

	free(given->body);
	free(asker->request.body);
	asker->request.body = NULL;
	asker->status = given->status;
	if (++asker->answers < AGAIN_MAX && !asker->stops)
		ask(asker);
}

static void ask(struct asker *asker)
{
	asker->request = (struct http_request){.method = "POST",
		.path = "/v1/run",
		.peer = &asker->f->peer,
		.body = strdup(asker->body),
		.body_length = strlen(asker->body),
		.keys = 1,
		.key = "k",
		.query = asker->query,
		.answered = answered,
		.answered_context = asker,
		.http = asker->f->http};
	assert_non_null(asker->request.body);
	api_keyed_handle(&asker->f->api, &asker->request, handle);
}

static const struct http_handler no_handler = {.check = NULL};

static void start_api(struct fixture *f)
{
	*f = (struct fixture){.api = {.loop = loop_create(), .metrics = &f->metrics}};
	assert_non_null(f->api.loop);
	f->api.journal = journal_queue_create(f->api.loop, open_it());
	assert_non_null(f->api.journal);
	snprintf(f->socket, sizeof f->socket, "%s/api.sock", folder);
	f->listener = unix_listen(f->socket, SOCK_STREAM, 0600, 1);
	assert_true(f->listener >= 0);
	f->http = http_create(f->api.loop, f->listener, 0, 1000, &f->metrics, &no_handler, f);
	assert_non_null(f->http);
}

static void stop_api(struct fixture *f)
{
	journal_queue_destroy(f->api.journal);
	assert_null(f->api.keyed);
	assert_int_equal(f->api.keyed_count, 0);
	http_destroy(f->http);
	close(f->listener);
	loop_destroy(f->api.loop);
}

/* The loop's next round in which there is an answer has one; it asked again, and stops with that. */
static void expect_one_answer_a_round(struct fixture *f, struct asker *asker, int rounds)
{
	asker->f = f;
	asker->query = json_object();
	ask(asker);
	for (int round = 1; round <= rounds; round++) {
		for (int i = 0; i < TURNS_MAX && asker->answers < round; i++)
			assert_int_equal(loop_turn(f->api.loop, TURN_MS), 0);
		assert_int_equal(asker->answers, round);
	}
	asker->stops = true;
	for (int i = 0; i < TURNS_MAX && asker->answers <= rounds; i++)
		assert_int_equal(loop_turn(f->api.loop, TURN_MS), 0);
	assert_int_equal(asker->answers, rounds + 1);
	json_decref(asker->query);
}

/* A refusal is not kept: each is the handler's anew. */
static void test_who_is_refused_asks_anew(void **state)
{
	struct asker asker = {.body = "{}"};
	struct fixture f;

	(void)state;
	start_api(&f);
	outcome = ERROR_EXHAUSTED;
	expect_one_answer_a_round(&f, &asker, 3);
	assert_int_equal(asker.status, 429);
	assert_int_equal(f.handled, 4);
	stop_api(&f);
}

static void test_who_is_told_a_conflict_asks_anew(void **state)
{
	struct asker first = {.body = "{}"}, other = {.body = "{ }"};
	struct fixture f;

	(void)state;
	start_api(&f);
	outcome = ERROR_NONE;
	expect_one_answer_a_round(&f, &first, 2);
	assert_int_equal(first.status, 200);
	assert_int_equal(f.handled, 1);
	expect_one_answer_a_round(&f, &other, 3);
	assert_int_equal(other.status, 409);
	assert_int_equal(f.handled, 1);
	stop_api(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_who_is_refused_asks_anew, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(
			test_who_is_told_a_conflict_asks_anew, make_folder, remove_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
