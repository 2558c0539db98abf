/* SPDX-License-Identifier: Apache-2.0 */
/* The resources of the HTTP API (docs/api.md): one table of routes, one handler a resource. */
#ifndef HOST_CTL_API_H
#define HOST_CTL_API_H

#include "common/loop.h"
#include "host-ctl/http/http.h"
#include "host-ctl/journal/journal_queue.h"
#include "host-ctl/pool/templates.h"
#include "host-ctl/sandbox/events.h"
#include "host-ctl/sandbox/sandboxes.h"
#include "host-ctl/support/metrics.h"

struct api_stream;
struct api_keyed;

enum {
	API_LOOK_MS = 30 * 1000, /* that a GET with ?wait=true waits for news; then it answers without */
};

/* What handlers share; outlives every request. */
struct api {
	struct loop *loop;
	struct templates *templates;
	struct metrics *metrics;
	struct sandboxes *sandboxes;
	struct events events;
	struct api_stream *streams;    /* the upgraded connections */
	struct journal_queue *journal; /* NULL: there is none... */
	struct error journal_error;    /* ...for this reason */
	struct api_keyed *keyed;       /* requests with an Idempotency-Key that are under way */
	unsigned int keyed_count;
	uint64_t key_grace_ms;	     /* that they go on without a client */
	const char *state_directory; /* where the images are */
};

/* What a route takes; anything else of that is refused. */
enum api_takes {
	API_QUERY = 1 << 0, /* parameters, which its handler checks */
	API_BODY = 1 << 1,  /* and so of a body */
};

/* path: '*' stands for one part that is not empty. */
struct api_route {
	const char *method, *path;
	void (*handle)(struct api *api, struct http_request *request);
	unsigned int takes; /* of enum api_takes */
};

/* One of the table, in its order; NULL: there are not so many. */
const struct api_route *api_route_at(size_t number);

extern const struct http_handler api_handler; /* its context is a struct api */

/* The part of the path with that number: of /v1/sandboxes/ID it is 2 for ID. One that is too long is cut. */
void api_path_part(const struct http_request *request, unsigned int number, char *text, size_t size);

/* Handlers, by resource. Each answers its request now or later. */
void api_run_create(struct api *api, struct http_request *request);
void api_pool_get(struct api *api, struct http_request *request);
void api_pool_put(struct api *api, struct http_request *request);
void api_pools_get(struct api *api, struct http_request *request);
void api_templates_post(struct api *api, struct http_request *request);
void api_templates_get(struct api *api, struct http_request *request);
void api_template_get(struct api *api, struct http_request *request);
void api_template_delete(struct api *api, struct http_request *request);
void api_sandboxes_post(struct api *api, struct http_request *request);
void api_sandboxes_get(struct api *api, struct http_request *request);
void api_sandbox_get(struct api *api, struct http_request *request);
void api_sandbox_delete(struct api *api, struct http_request *request);
void api_sandbox_pause(struct api *api, struct http_request *request);
void api_sandbox_resume(struct api *api, struct http_request *request);
void api_sandbox_suspend(struct api *api, struct http_request *request);
void api_sandbox_wake(struct api *api, struct http_request *request);
void api_sandbox_stop(struct api *api, struct http_request *request);
void api_sandbox_start(struct api *api, struct http_request *request);
void api_sandbox_fork(struct api *api, struct http_request *request);
void api_sandbox_snapshot(struct api *api, struct http_request *request);
void api_changes_get(struct api *api, struct http_request *request);
void api_sandbox_run(struct api *api, struct http_request *request);
void api_commands_post(struct api *api, struct http_request *request);
void api_commands_get(struct api *api, struct http_request *request);
void api_command_get(struct api *api, struct http_request *request);
void api_command_delete(struct api *api, struct http_request *request);
void api_command_token(struct api *api, struct http_request *request);
void api_command_attach(struct api *api, struct http_request *request);
void api_command_kill(struct api *api, struct http_request *request);
void api_command_signal(struct api *api, struct http_request *request);
void api_command_stdin(struct api *api, struct http_request *request);
void api_command_output(struct api *api, struct http_request *request);
void api_events_get(struct api *api, struct http_request *request);
void api_operation_get(struct api *api, struct http_request *request);
void api_healthz_get(struct api *api, struct http_request *request);
void api_metrics_get(struct api *api, struct http_request *request);

#endif
