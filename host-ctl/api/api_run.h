/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/run, its two forms.
 *
 *   plain     parse → claim (maybe queued) → run → one JSON answer
 *   upgraded  parse → claim (maybe queued) → run and 101 → frames → EXIT or HOST_ERROR, close
 *
 * What is refused before the claim is an ordinary HTTP error in both.
 */
#ifndef HOST_CTL_API_RUN_H
#define HOST_CTL_API_RUN_H

#include "host-ctl/api/api.h"
#include "host-ctl/run/run.h"

/* The request's part that both forms share, first in the struct of each. */
struct api_run {
	struct api *api;
	struct http_request *request; /* NULL once it is answered, upgraded or left */
	struct pool *pool;	      /* that it claims from; NULL: not yet */
	struct pool_claim claim;
	struct run_request command;
	struct run_origin origin;
	struct run run;
	bool running; /* run was started and is not over */
	const struct api_run_form *form;
};

struct api_run_form {
	size_t size; /* of the struct that begins with a struct api_run, zeroed before begin */
	const struct run_sink *sink; /* its context is the struct */
	/* The run was started. */
	void (*begin)(struct api_run *run);
	/* Frees what the form holds. */
	void (*finish)(struct api_run *run);
};

extern const struct api_run_form api_run_plain;
extern const struct api_run_form api_run_upgraded;

/* Releases all of it: the place in the queue, the run if it still goes on (why: for the log), the memory. */
void api_run_destroy(struct api_run *run, const char *why);

#endif
