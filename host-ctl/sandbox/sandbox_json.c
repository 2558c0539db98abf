/* SPDX-License-Identifier: Apache-2.0 */
/* What the API tells of a sandbox. The values of env are not told: they may be secrets. */
#include "host-ctl/sandbox/sandbox.h"

static json_t *text_or_null(const char *text)
{
	return text[0] ? json_string(text) : json_null();
}

static json_t *env_to_json(const struct sandbox *sandbox)
{
	json_t *names = json_array(), *value;
	const char *name;

	json_object_foreach(sandbox->spec.env, name, value)
	{
		json_array_append_new(names, json_string(name));
	}
	return names;
}

json_t *sandbox_receipt_to_json(const struct sandbox *sandbox)
{
	if (sandbox->state != SANDBOX_GONE)
		return json_null();
	/* The control socket of its VM, and what its folder had. */
	return json_pack("{s:{s:o,s:o,s:i,s:I},s:b}", "removed", "vm", text_or_null(sandbox->vm_id), "cgroup",
		text_or_null(sandbox->vm_id), "files",
		(int)(sandbox->vm_id[0] ? 1 : 0) + (int)sandbox->removed.count, "bytes",
		(json_int_t)sandbox->removed.bytes, "verified", (int)sandbox->verified);
}

json_t *sandbox_to_json(const struct sandbox *sandbox)
{
	json_t *object = sandbox_spec_to_json(&sandbox->spec), *more;
	uint64_t expires_ms = sandbox->ttl_from_ms + sandbox->spec.ttl_ms;

	if (!object)
		return NULL;
	json_object_set_new(object, "env", env_to_json(sandbox));
	more = json_pack("{s:s,s:s,s:o,s:I,s:o,s:o,s:b,s:b,s:o}", "id", sandbox->id, "state",
		sandbox_state_name(sandbox->state), "reason", text_or_null(sandbox->reason), "created_ms",
		(json_int_t)sandbox->created_ms, "expires_ms",
		sandbox->spec.ttl_ms ? json_integer((json_int_t)expires_ms) : json_null(), "vm",
		text_or_null(sandbox->vm_id), "warm", (int)sandbox->warm, "cold", (int)sandbox->cold,
		"receipt", sandbox_receipt_to_json(sandbox));
	if (more && json_object_update(object, more) == 0) {
		json_decref(more);
		return object;
	}
	json_decref(more);
	json_decref(object);
	return NULL;
}
