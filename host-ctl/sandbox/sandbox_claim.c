/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a sandbox comes to its VM, at its creation or a start: from its template's pool; or, where it is to
 * have another shape than that template's VMs, by a boot for it alone, which is counted. What is woken,
 * forked or started from its files has the shape that it had.
 */
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"

int sandbox_claim_own(struct sandbox *sandbox, struct pool_source *source, struct error *error)
{
	int status;

	sandbox->pool = templates_own_pool(sandbox->all->config.templates);
	sandbox->warm = sandbox->cold = false;
	status = pool_claim_own(sandbox->pool, &sandbox->claim, source, error);
	pool_source_drop(source);
	if (status)
		sandbox->pool = NULL;
	return status;
}

static int claim_shape(struct sandbox *sandbox, struct pool_source *source, struct error *error)
{
	const struct sandboxes_config *config = &sandbox->all->config;

	if (source->source.disk.path &&
		sandbox_files_check_room(config->state_directory, config->disk_reserve_bytes, error)) {
		pool_source_drop(source);
		return -1;
	}
	if (sandbox_claim_own(sandbox, source, error))
		return -1;
	sandbox->cold = true;
	config->metrics->cold_starts++;
	return 0;
}

static int claim_of_pool(struct sandbox *sandbox, const char *template, struct vm **vm, struct error *error)
{
	const struct sandboxes_config *config = &sandbox->all->config;

	sandbox->pool = templates_pool(config->templates, template, error);
	/* Of one whose template is not loaded yet, this is seen when it has its VM. */
	if (sandbox->pool && pool_has_disks(sandbox->pool) &&
		sandbox_files_check_room(config->state_directory, config->disk_reserve_bytes, error))
		sandbox->pool = NULL;
	if (sandbox->pool)
		*vm = pool_claim_vm(sandbox->pool, &sandbox->claim, error);
	if (!sandbox->pool || (!*vm && error->kind)) {
		sandbox->pool = NULL;
		return -1;
	}
	sandbox->warm = *vm != NULL;
	sandbox->cold = false;
	return 0;
}

int sandbox_claim(
	struct sandbox *sandbox, const struct sandbox_spec *spec, struct vm **vm, struct error *error)
{
	const struct templates_shape shape = {spec->memory_bytes, spec->cpus};
	struct pool_source *source = NULL;

	*vm = NULL;
	if ((shape.memory_bytes || shape.cpus) && templates_shape_source(sandbox->all->config.templates,
							  spec->template, &shape, &source, error))
		return -1;
	return source ? claim_shape(sandbox, source, error)
		      : claim_of_pool(sandbox, spec->template, vm, error);
}
