/* SPDX-License-Identifier: Apache-2.0 */
/* The resources of the HTTP API (docs/protocol.md): one table of routes, one handler a resource. */
#ifndef HOST_CTL_API_H
#define HOST_CTL_API_H

#include "common/loop.h"
#include "host-ctl/http.h"
#include "host-ctl/metrics.h"
#include "host-ctl/templates.h"

struct api_stream;

/* What handlers share; outlives every request. */
struct api {
	struct loop *loop;
	struct templates *templates;
	struct metrics *metrics;
	struct api_stream *streams; /* the upgraded connections */
};

extern const struct http_handler api_handler; /* its context is a struct api */

/* Handlers, by resource. Each answers its request now or later. */
void api_run_create(struct api *api, struct http_request *request);
void api_pool_get(struct api *api, struct http_request *request);
void api_pool_put(struct api *api, struct http_request *request);
void api_pools_get(struct api *api, struct http_request *request);
void api_templates_post(struct api *api, struct http_request *request);
void api_templates_get(struct api *api, struct http_request *request);
void api_template_get(struct api *api, struct http_request *request);
void api_template_delete(struct api *api, struct http_request *request);
void api_healthz_get(struct api *api, struct http_request *request);
void api_metrics_get(struct api *api, struct http_request *request);

#endif
