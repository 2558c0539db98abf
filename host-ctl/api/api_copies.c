/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of a sandbox that runs on: POST /v1/sandboxes/ID/fork, other sandboxes; …/snapshot, a
 * template.
 */
#include "common/io.h"
#include "host-ctl/api/api_commands.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/image/image_store.h"
#include "host-ctl/sandbox/sandbox_fork.h"
#include "host-ctl/sandbox/sandbox_snapshot.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static void done(void *context, json_t *answer, const struct error *error)
{
	struct http_request *request = context;

	if (error)
		http_reply_error(request, error);
	else
		http_reply_json(request, 201, answer);
}

static void fork_left(void *context)
{
	sandbox_fork_leave(context);
}

/* Without a body it is one child. 0, or -1 with *error set; order->fields is the caller's then. */
static int parse_fork(
	const struct http_request *request, struct sandbox_fork_order *order, struct error *error)
{
	order->count = 1;
	order->uid = request->peer->uid;
	order->fields =
		request->body_length ? http_body_parse(request, sandbox_fork_fields, error) : json_object();
	if (!order->fields)
		return -1;
	return json_object_get(order->fields, "count")
		       ? http_body_number(order->fields, "count", 1, FORK_CHILDREN_MAX, &order->count, error)
		       : 0;
}

void api_sandbox_fork(struct api *api, struct http_request *request)
{
	struct sandbox_fork_order order = {.fields = NULL};
	struct sandbox_fork *fork = NULL;
	struct error error;
	struct sandbox *sandbox =
		parse_fork(request, &order, &error) ? NULL : api_find_sandbox(api, request, &error);

	if (sandbox)
		fork = sandbox_fork_begin(sandbox, &order, done, request, &error);
	json_decref(order.fields);
	if (!fork) {
		http_reply_error(request, &error);
		return;
	}
	request->left = fork_left;
	request->left_context = fork;
}

static void snapshot_left(void *context)
{
	sandbox_snapshot_leave(context);
}

/* Of the store of images, by the file's name. */
static int hold_image(const char *state_directory, const char *path)
{
	const char *file;
	char id[IMAGE_ID_SIZE], held[PATH_MAX];
	struct error ignored;
	int fd;

	if (!path)
		return -1;
	file = strrchr(path, '/');
	snprintf(id, sizeof id, "%s", file ? file + 1 : "");
	if (!image_id_is_valid(id))
		return -1;
	fd = image_store_hold(state_directory, id, held, &ignored);
	if (fd >= 0 && strcmp(held, path) != 0)
		fd_close(&fd);
	return fd < 0 ? -1 : fd;
}

void api_sandbox_snapshot(struct api *api, struct http_request *request)
{
	static const char *const fields[] = {"name", NULL};
	struct sandbox_snapshot *snapshot = NULL;
	struct sandbox *sandbox = NULL;
	struct error error;
	json_t *body = http_body_parse(request, fields, &error);
	const char *name;

	if (body && !template_name_read(body, "name", &name, &error))
		sandbox = api_find_sandbox(api, request, &error);
	if (sandbox)
		snapshot = sandbox_snapshot_begin(sandbox, name, hold_image, done, request, &error);
	json_decref(body);
	if (!snapshot) {
		http_reply_error(request, &error);
		return;
	}
	request->left = snapshot_left;
	request->left_context = snapshot;
}
