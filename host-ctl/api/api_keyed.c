/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariants: a key is in the list of api->keyed from its first request until the first is answered, so that
 * the journal is asked once; between two commits the job is nobody's but ours.
 */
#include "host-ctl/api/api_keyed.h"
#include "common/log.h"
#include "host-ctl/journal/journal_keys.h"
#include "host-ctl/support/clock.h"

#define XXH_INLINE_ALL
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum keyed_step { BEGINNING, WORKING, KEEPING };

/* A client's request that is answered when the key is. */
struct waiter {
	struct waiter *next;
	struct api_keyed *keyed;
	struct http_request *request;
	bool first; /* its request is the one that is done */
};

struct api_keyed {
	struct api *api;
	struct api_keyed *next, *previous;
	enum keyed_step step;
	char key[JOURNAL_KEY_MAX + 1];
	char *target; /* as of make_target */
	char *path;
	struct journal_key row;
	struct http_peer peer;
	struct http_request request; /* what the handler sees */
	void (*handle)(struct api *api, struct http_request *request);
	struct waiter *waiters;
	struct loop_source *timer; /* armed while nobody waits; NULL: never was */
	struct journal_job job;
	enum journal_key_state found;
	struct journal_answer answer;
	bool refused; /* the answer is not to be kept */
	bool replay;  /* the answer is from the journal */
};

int api_keyed_check(const struct http_request *request, struct error *error)
{
	size_t length = strlen(request->key);

	if (request->keys > 1)
		return error_set(error, ERROR_INVALID, "there are %u headers Idempotency-Key", request->keys);
	if (length < 1 || length > JOURNAL_KEY_MAX)
		return error_set(error, ERROR_INVALID, "Idempotency-Key has %zu characters, not 1 to %d",
			length, JOURNAL_KEY_MAX);
	for (size_t i = 0; i < length; i++)
		if (request->key[i] < ' ' || request->key[i] > '~')
			return error_set(error, ERROR_INVALID,
				"Idempotency-Key has a character that is not printable ASCII at %zu", i);
	if (request->wants_upgrade)
		return error_set(error, ERROR_INVALID,
			"Idempotency-Key is for the plain form, whose answer can be kept: leave out the key "
			"or the "
			"upgrade");
	return 0;
}

/* --- life --- */

/* Nobody joins it any more: who asks now is the journal's to answer. */
static void unlink_key(struct api_keyed *keyed)
{
	struct api *api = keyed->api;

	if (keyed->next)
		keyed->next->previous = keyed->previous;
	*(keyed->previous ? &keyed->previous->next : &api->keyed) = keyed->next;
	api->keyed_count--;
}

/* An unlinked one. */
static void destroy(struct api_keyed *keyed)
{
	loop_remove(keyed->timer);
	free(keyed->request.body);
	free(keyed->answer.body);
	free(keyed->target);
	free(keyed->path);
	json_decref(keyed->request.query);
	free(keyed);
}

static struct waiter *pop_waiter(struct api_keyed *keyed)
{
	struct waiter *waiter = keyed->waiters;

	keyed->waiters = waiter->next;
	return waiter;
}

/* Those that wait now: each answer may bring another request for the same key. */
static void tell_error(struct api_keyed *keyed, const struct error *error)
{
	unlink_key(keyed);
	while (keyed->waiters) {
		struct waiter *waiter = pop_waiter(keyed);
		struct http_request *request = waiter->request;

		free(waiter);
		http_reply_error(request, error);
	}
	destroy(keyed);
}

static char *copy_bytes(const char *bytes, size_t length)
{
	char *copy = bytes ? malloc(length + 1) : NULL;

	if (copy)
		memcpy(copy, bytes, length);
	return copy;
}

static void tell_answer(struct api_keyed *keyed)
{
	const struct journal_answer *answer = &keyed->answer;

	unlink_key(keyed);
	while (keyed->waiters) {
		struct waiter *waiter = pop_waiter(keyed);
		struct http_request *request = waiter->request;

		request->replayed = keyed->replay || (!waiter->first && !keyed->refused);
		keyed->api->metrics->replays += request->replayed;
		free(waiter);
		http_reply_text(request, answer->status, answer->type,
			copy_bytes(answer->body, answer->length), answer->length);
	}
	destroy(keyed);
}

/* --- the end --- */

static struct api_keyed *keyed_of(struct journal_job *job)
{
	return (struct api_keyed *)((char *)job - offsetof(struct api_keyed, job));
}

static int end_key(struct journal *journal, struct journal_job *job, struct error *error)
{
	const struct api_keyed *keyed = keyed_of(job);

	if (keyed->refused)
		return journal_key_forget(journal, keyed->key, error);
	return journal_key_end(journal, keyed->key, &keyed->answer, error);
}

/* What the disk did not take is told all the same; whoever comes later learns that it is not known. */
static void key_has_ended(struct journal_job *job)
{
	tell_answer(keyed_of(job));
}

static void end(struct api_keyed *keyed)
{
	keyed->step = KEEPING;
	if (keyed->timer)
		loop_set_timer(keyed->timer, 0);
	keyed->job = (struct journal_job){.work = end_key, .done = key_has_ended};
	journal_queue_put(keyed->api->journal, &keyed->job);
}

static void answered(void *context, const struct http_answer *given)
{
	struct api_keyed *keyed = context;

	keyed->answer = (struct journal_answer){
		.status = given->status, .body = given->body, .length = given->length};
	snprintf(keyed->answer.type, sizeof keyed->answer.type, "%s", given->type);
	keyed->refused = error_is_refusal(given->error);
	end(keyed);
}

/* --- those who wait --- */

static void give_up(void *context)
{
	struct api_keyed *keyed = context;
	void (*left)(void *) = keyed->request.left;
	struct error error;

	/* A handler that cannot be told ends by itself. */
	if (!left)
		return;
	keyed->request.left = NULL;
	left(keyed->request.left_context);
	error_set(&error, ERROR_INCOMPLETE,
		"the request with the Idempotency-Key %s was ended: its client had left, and nobody asked "
		"for it "
		"again within %llu ms (--key-grace-ms)",
		keyed->key, (unsigned long long)keyed->api->key_grace_ms);
	http_reply_error(&keyed->request, &error);
}

static void nobody_waits(struct api_keyed *keyed)
{
	if (!keyed->timer)
		keyed->timer = loop_add_timer(keyed->api->loop, give_up, keyed);
	if (!keyed->timer || !keyed->api->key_grace_ms ||
		loop_set_timer(keyed->timer, keyed->api->key_grace_ms * CLOCK_NS_PER_MS) < 0)
		give_up(keyed);
}

static void waiter_left(void *context)
{
	struct waiter *waiter = context, **at;
	struct api_keyed *keyed = waiter->keyed;

	for (at = &keyed->waiters; *at != waiter; at = &(*at)->next)
		;
	*at = waiter->next;
	free(waiter);
	if (!keyed->waiters && keyed->step == WORKING)
		nobody_waits(keyed);
}

/* False without memory. */
static bool wait_for(struct api_keyed *keyed, struct http_request *request, bool first)
{
	struct waiter *waiter = malloc(sizeof *waiter), **at = &keyed->waiters;

	if (!waiter)
		return false;
	*waiter = (struct waiter){.keyed = keyed, .request = request, .first = first};
	while (*at)
		at = &(*at)->next;
	*at = waiter;
	request->left = waiter_left;
	request->left_context = waiter;
	if (keyed->timer)
		loop_set_timer(keyed->timer, 0);
	return true;
}

/* --- the beginning --- */

static int begin_key(struct journal *journal, struct journal_job *job, struct error *error)
{
	struct api_keyed *keyed = keyed_of(job);
	struct journal_time now;

	journal_read_time(journal, &now);
	free(keyed->answer.body);
	return journal_key_begin(journal, &keyed->row, &now, &keyed->found, &keyed->answer, error);
}

static int set_conflict(const char *key, struct error *error)
{
	return error_set(error, ERROR_CONFLICT,
		"the Idempotency-Key %s is another request's: give this one a key of its own, or send the "
		"same "
		"bytes to the same path as the same user",
		key);
}

static void work(struct api_keyed *keyed)
{
	/* Without anybody to be told, it does not begin. */
	if (!keyed->waiters) {
		keyed->refused = true;
		end(keyed);
		return;
	}
	keyed->step = WORKING;
	keyed->handle(keyed->api, &keyed->request);
}

static void key_has_begun(struct journal_job *job)
{
	struct api_keyed *keyed = keyed_of(job);
	struct error error = job->error;

	if (error.kind) {
		tell_error(keyed, &error);
		return;
	}
	switch (keyed->found) {
	case JOURNAL_KEY_NEW:
		work(keyed);
		return;
	case JOURNAL_KEY_ANSWERED:
		keyed->replay = true;
		tell_answer(keyed);
		return;
	case JOURNAL_KEY_OTHER:
		set_conflict(keyed->key, &error);
		break;
	case JOURNAL_KEY_BEGUN:
		error_set(&error, ERROR_INCOMPLETE,
			"the request with the Idempotency-Key %s was begun and may have been done, but its "
			"answer is "
			"not known: the daemon ended, or could not keep it",
			keyed->key);
		break;
	default:
		error_set(&error, ERROR_INCOMPLETE,
			"the request with the Idempotency-Key %s was done, but its answer is not kept any "
			"more",
			keyed->key);
	}
	tell_error(keyed, &error);
}

static struct api_keyed *find(const struct api *api, const char *key)
{
	struct api_keyed *keyed = api->keyed;

	while (keyed && strcmp(keyed->key, key) != 0)
		keyed = keyed->next;
	return keyed;
}

/* The query of a request, as it is read. */
struct query {
	json_t *object; /* of strings */
	struct error *error;
	int status;
};

/* What is not UTF-8 is none. */
static bool take_parameter(void *context, const char *name, const char *value)
{
	struct query *query = context;

	if (json_object_get(query->object, name))
		query->status =
			error_set(query->error, ERROR_INVALID, "the parameter %.64s is there twice", name);
	else
		json_object_set_new(query->object, name, json_string(value ? value : ""));
	return query->status == 0;
}

/* "POST /path", and what is asked for with it, whatever its order. NULL without memory. */
static char *make_target(const struct http_request *request, json_t *query)
{
	char *text = json_dumps(query, JSON_COMPACT | JSON_SORT_KEYS), *target = NULL;

	if (text && asprintf(&target, "%s %s %s", request->method, request->path, text) < 0)
		target = NULL;
	free(text);
	return target;
}

static void read_row(struct journal_key *row, const struct http_request *request, const char *target)
{
	const XXH128_hash_t hash = XXH3_128bits(request->body, request->body_length);
	XXH128_canonical_t bytes;

	*row = (struct journal_key){.key = request->key, .target = target, .uid = request->peer->uid};
	XXH128_canonicalFromHash(&bytes, hash);
	_Static_assert(sizeof bytes == sizeof row->digest, "both are 128 bits");
	memcpy(row->digest, &bytes, sizeof bytes);
}

/* The body changes hands, and the query is shared. NULL without memory. */
static struct api_keyed *create(
	struct api *api, struct http_request *request, const struct journal_key *row, json_t *query)
{
	struct api_keyed *keyed = calloc(1, sizeof *keyed);
	char *target = strdup(row->target), *path = strdup(request->path);

	if (!keyed || !target || !path) {
		free(keyed);
		free(target);
		free(path);
		return NULL;
	}
	*keyed = (struct api_keyed){.api = api,
		.next = api->keyed,
		.target = target,
		.path = path,
		.row = *row,
		.peer = *request->peer,
		.request = {.path = path,
			.method = "POST",
			.body = request->body,
			.body_length = request->body_length,
			.received_ns = request->received_ns,
			.answered = answered,
			.answered_context = keyed,
			.query = json_incref(query),
			.http = request->http}};
	request->body = NULL;
	request->body_length = 0;
	keyed->request.peer = &keyed->peer;
	snprintf(keyed->key, sizeof keyed->key, "%s", request->key);
	keyed->row.key = keyed->key;
	keyed->row.target = keyed->target;
	if (keyed->next)
		keyed->next->previous = keyed;
	api->keyed = keyed;
	api->keyed_count++;
	return keyed;
}

/* Waits with an earlier request. */
static int join(struct api_keyed *keyed, struct http_request *request, const struct journal_key *row,
	struct error *error)
{
	if (keyed->row.uid != row->uid || strcmp(keyed->target, row->target) != 0 ||
		memcmp(keyed->row.digest, row->digest, sizeof row->digest) != 0)
		return set_conflict(keyed->key, error);
	if (wait_for(keyed, request, false))
		return 0;
	return error_set(error, ERROR_INTERNAL, "out of memory for the request");
}

static int start(struct api *api, struct http_request *request, const struct journal_key *row, json_t *query,
	void (*handle)(struct api *api, struct http_request *request), struct error *error)
{
	struct api_keyed *keyed;

	if (api->keyed_count >= API_KEYED_MAX)
		return error_set(error, ERROR_EXHAUSTED,
			"%u requests with an Idempotency-Key are under way, the limit", api->keyed_count);
	keyed = create(api, request, row, query);
	if (!keyed || !wait_for(keyed, request, true)) {
		if (keyed) {
			unlink_key(keyed);
			destroy(keyed);
		}
		return error_set(error, ERROR_INTERNAL, "out of memory for the request");
	}
	keyed->handle = handle;
	keyed->job = (struct journal_job){.work = begin_key, .done = key_has_begun};
	journal_queue_put(api->journal, &keyed->job);
	return 0;
}

static int join_or_start(struct api *api, struct http_request *request, json_t *query,
	void (*handle)(struct api *api, struct http_request *request), struct error *error)
{
	char *target = query ? make_target(request, query) : NULL;
	struct api_keyed *earlier = find(api, request->key);
	struct journal_key row;
	int status;

	if (!target)
		return error_set(error, ERROR_INTERNAL, "out of memory for the request");
	read_row(&row, request, target);
	status = earlier ? join(earlier, request, &row, error)
			 : start(api, request, &row, query, handle, error);
	free(target);
	return status;
}

void api_keyed_handle(struct api *api, struct http_request *request,
	void (*handle)(struct api *api, struct http_request *request))
{
	struct error error;
	struct query query = {.error = &error};

	if (!api->journal) {
		http_reply_error(request, &api->journal_error);
		return;
	}
	query.object = json_object();
	http_each_query(request, take_parameter, &query);
	if (query.status || join_or_start(api, request, query.object, handle, &error))
		http_reply_error(request, &error);
	json_decref(query.object);
}
