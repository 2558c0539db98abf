/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_spec.h"
#include "common/parse.h"
#include "host-ctl/run/run_request.h"
#include "host-ctl/sandbox/sandbox_spec.h"

#include <stdlib.h>
#include <string.h>

enum { DAY_MS = 24 * 60 * 60 * 1000 };

static const struct cli_option options[] = {CMD_SPEC_OPTIONS};

int cmd_spec_set_text(struct cmd_spec *spec, const char *name, const char *value)
{
	if (json_object_set_new(spec->body, name, json_string(value)) < 0)
		return cli_refuse(spec->error, "--%s is not UTF-8, or there is no memory", name);
	return 0;
}

static int set_pair(struct cmd_spec *spec, const char *name, const char *pair)
{
	const char *equals = strchr(pair, '=');
	json_t *object = json_object_get(spec->body, name);
	char *key;
	int status;

	if (!equals || equals == pair)
		return cli_refuse(spec->error, "--%s wants NAME=VALUE, not '%s'", name, pair);
	if (!object && json_object_set_new(spec->body, name, object = json_object()) < 0)
		return cli_refuse(spec->error, "no memory for --%s", name);
	key = strndup(pair, (size_t)(equals - pair));
	if (json_object_get(object, key)) {
		free(key);
		return cli_refuse(spec->error, "--%s gives %.*s twice", name, (int)(equals - pair), pair);
	}
	status = key ? json_object_set_new(object, key, json_string(equals + 1)) : -1;
	free(key);
	return status ? cli_refuse(spec->error, "--%s is not UTF-8, or there is no memory", name) : 0;
}

static int set_time(struct cmd_spec *spec, int option, json_t *object, const char *field, const char *value)
{
	uint64_t milliseconds;

	if (cli_parse_duration(value, SANDBOX_TTL_MAX_MS, &milliseconds) < 0)
		return cli_refuse(spec->error, "--%s wants 1ms to %dd, such as 90s, 10m or 2h, not '%s'",
			options[option].name, (int)(SANDBOX_TTL_MAX_MS / DAY_MS), value);
	return json_object_set_new(object, field, json_integer((json_int_t)milliseconds));
}

static int set_ttl(struct cmd_spec *spec, int option, const char *action, const char *value)
{
	if (json_object_get(spec->body, "ttl_ms"))
		return cli_refuse(spec->error, "give one of --ttl, --ttl-pause and --ttl-suspend");
	if (json_object_set_new(spec->body, "ttl_action", json_string(action)) < 0)
		return cli_refuse(spec->error, "no memory");
	return set_time(spec, option, spec->body, "ttl_ms", value);
}

static int set_idle(struct cmd_spec *spec, int option, const char *action, const char *value)
{
	json_t *idle = json_pack("{s:s}", "action", action);

	if (json_object_get(spec->body, "idle")) {
		json_decref(idle);
		return cli_refuse(spec->error, "give one of --idle-kill, --idle-pause and --idle-suspend");
	}
	if (json_object_set_new(spec->body, "idle", idle) < 0)
		return cli_refuse(spec->error, "no memory");
	return set_time(spec, option, idle, "after_ms", value);
}

static int set_memory(struct cmd_spec *spec, const char *value)
{
	uint64_t bytes;

	if (parse_size(value, SANDBOX_MEMORY_MIN, INT64_MAX, &bytes) < 0)
		return cli_refuse(spec->error,
			"--memory wants a size of at least %dM, such as 128M, not '%s'",
			SANDBOX_MEMORY_MIN >> 20, value);
	return json_object_set_new(spec->body, "memory_max", json_integer((json_int_t)bytes));
}

int cmd_spec_set_number(struct cmd_spec *spec, const char *name, const char *field, uint64_t least,
	uint64_t most, const char *value)
{
	uint64_t number;

	if (parse_u64(value, least, most, &number) < 0)
		return cli_refuse(spec->error, "--%s wants a number from %llu to %llu, not '%s'", name,
			(unsigned long long)least, (unsigned long long)most, value);
	return json_object_set_new(spec->body, field, json_integer((json_int_t)number));
}

int cmd_spec_set(struct cmd_spec *spec, int option, const char *value)
{
	switch (option) {
	case CMD_SPEC_NAME:
		return cmd_spec_set_text(spec, options[option].name, value);
	case CMD_SPEC_METADATA:
	case CMD_SPEC_ENV:
		return set_pair(spec, options[option].name, value);
	case CMD_SPEC_TTL:
		return set_ttl(spec, option, "kill", value);
	case CMD_SPEC_TTL_PAUSE:
		return set_ttl(spec, option, "pause", value);
	case CMD_SPEC_TTL_SUSPEND:
		return set_ttl(spec, option, "suspend", value);
	case CMD_SPEC_IDLE_KILL:
		return set_idle(spec, option, "kill", value);
	case CMD_SPEC_IDLE_PAUSE:
		return set_idle(spec, option, "pause", value);
	case CMD_SPEC_IDLE_SUSPEND:
		return set_idle(spec, option, "suspend", value);
	case CMD_SPEC_MEMORY:
		return set_memory(spec, value);
	case CMD_SPEC_CPU:
		return cmd_spec_set_number(
			spec, options[option].name, "cpu_max", SANDBOX_CPU_MIN, SANDBOX_CPU_MAX, value);
	case CMD_SPEC_PIDS:
		return cmd_spec_set_number(spec, options[option].name, "pids_max", 1, RUN_PIDS_MAX, value);
	case CMD_SPEC_JSON:
		spec->json = true;
		return 0;
	case CMD_SPEC_SOCKET:
		spec->socket = value;
		return 0;
	default:
		spec->help = true;
		return 0;
	}
}
