/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A POST with an Idempotency-Key: it is done once, however often it is sent (docs/protocol.md).
 *
 *   BEGINNING ──the key is in the journal──▶ WORKING ──answered──▶ KEEPING ──so is the answer──▶ gone, all
 * told │                                       └─ nobody waits for api->key_grace_ms: it is ended └─ the key
 * was there: the kept answer, or `incomplete`, or `conflict`; gone
 *
 * The handler sees a request of ours, which no client can leave. Those that send the same meanwhile wait with
 * the first. A refusal (error_is_refusal) is told and not kept: the key is free again.
 */
#ifndef HOST_CTL_API_KEYED_H
#define HOST_CTL_API_KEYED_H

#include "host-ctl/api/api.h"

enum {
	API_KEYED_MAX = 1024, /* keys under way; more are `exhausted` */
};

/* 0, or -1 with *error set: the key is malformed, there are several, or it asks for an upgrade. */
int api_keyed_check(const struct http_request *request, struct error *error);
/* Answers it, by the handler's answer or by that of an earlier request. */
void api_keyed_handle(struct api *api, struct http_request *request,
	void (*handle)(struct api *api, struct http_request *request));

#endif
