/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/api/api_run.h"

#include <stddef.h>
#include <stdlib.h>

static struct api_run *run_of_claim(struct pool_claim *claim)
{
	return (struct api_run *)((char *)claim - offsetof(struct api_run, claim));
}

void api_run_destroy(struct api_run *run, const char *why)
{
	if (run->pool)
		pool_cancel(run->pool, &run->claim);
	if (run->running)
		run_cancel(&run->run, why);
	run->form->finish(run);
	run_request_finish(&run->command);
	free(run);
}

static void client_left(void *context)
{
	api_run_destroy(context, "client_left");
}

static void refuse(struct api_run *run, const struct error *error)
{
	struct http_request *request = run->request;

	api_run_destroy(run, "refused");
	http_reply_error(request, error);
}

static void begin(struct api_run *run, struct vm *vm, bool warm)
{
	struct error error;
	int status;

	run->origin.pool = pool_metrics(run->pool);
	status = run_start(&run->run, vm, &run->command, warm, &run->origin, run->api->loop,
		run->api->metrics, run->form->sink, run);
	if (status) {
		error_set(&error, ERROR_INTERNAL, "out of memory for the run");
		refuse(run, &error);
		return;
	}
	run->running = true;
	pool_refill(run->pool);
	run_request_finish(&run->command);
	run->form->begin(run);
}

static void granted(struct pool_claim *claim, struct vm *vm)
{
	begin(run_of_claim(claim), vm, false);
}

static void refused(struct pool_claim *claim, const struct error *error)
{
	refuse(run_of_claim(claim), error);
}

void api_run_create(struct api *api, struct http_request *request)
{
	const struct api_run_form *form = request->wants_upgrade ? &api_run_upgraded : &api_run_plain;
	struct api_run *run = calloc(1, form->size);
	struct error error;
	struct vm *vm;

	if (!run) {
		error_set(&error, ERROR_INTERNAL, "out of memory for the run");
		http_reply_error(request, &error);
		return;
	}
	run->api = api;
	run->form = form;
	run->request = request;
	run->claim.granted = granted;
	run->claim.refused = refused;
	run->origin = (struct run_origin){
		.uid = request->peer->uid, .pid = request->peer->pid, .received_ns = request->received_ns};
	if (run_request_parse(
		    &run->command, request->body, request->body_length, request->wants_upgrade, &error)) {
		refuse(run, &error);
		return;
	}
	request->left = client_left;
	request->left_context = run;
	run->pool = templates_pool(
		api->templates, run->command.template[0] ? run->command.template : NULL, &error);
	vm = run->pool ? pool_claim_vm(run->pool, &run->claim, &error) : NULL;
	if (vm)
		begin(run, vm, true);
	else if (error.kind)
		refuse(run, &error);
}
