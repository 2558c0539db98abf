/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/sandboxes/ID/changes: a page of what it has added, changed and removed against its template. */
#include "host-ctl/api/api_commands.h"
#include "host-ctl/sandbox/changes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse_changes_query(
	const struct http_request *request, struct changes_query *query, struct error *error)
{
	static const char *const parameters[] = {"after", "limit", NULL};
	const char *limit = http_query(request, "limit");
	unsigned long number = CHANGES_LIMIT_DEFAULT;
	char *end = NULL;

	if (http_check_query(request, parameters, error))
		return -1;
	query->after = http_query(request, "after");
	if (query->after && (query->after[0] != '/' || strlen(query->after) > AGENT_PATH_MAX))
		return error_set(error, ERROR_INVALID, "after is no absolute path of at most %d bytes",
			AGENT_PATH_MAX);
	errno = 0;
	if (limit)
		number = strtoul(limit, &end, 10);
	if (limit &&
		(limit[0] < '0' || limit[0] > '9' || *end || errno || !number || number > AGENT_CHANGES_MAX))
		return error_set(error, ERROR_INVALID, "limit is not a whole number from 1 to %d: \"%.32s\"",
			AGENT_CHANGES_MAX, limit);
	query->limit = (uint32_t)number;
	return 0;
}

static void done(void *context, json_t *answer, const struct error *error)
{
	struct http_request *request = context;

	if (error)
		http_reply_error(request, error);
	else
		http_reply_json(request, 200, answer);
}

static void client_left(void *context)
{
	changes_leave(context);
}

void api_changes_get(struct api *api, struct http_request *request)
{
	struct changes_query query = {.after = NULL};
	struct error error;
	struct changes *changes = NULL;
	struct sandbox *sandbox = api_find_sandbox(api, request, &error);

	if (sandbox && !parse_changes_query(request, &query, &error))
		changes = changes_ask(sandbox, &query, done, request, &error);
	if (!changes) {
		http_reply_error(request, &error);
		return;
	}
	request->left = client_left;
	request->left_context = changes;
}
