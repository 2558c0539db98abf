/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/run/run_json.h"
#include "host-ctl/vm/start_step.h"

#include <string.h>

/* What a guest says may be any 64 bits; JSON's integers here are signed. */
static json_int_t clamp(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (json_int_t)value;
}

json_t *run_result_to_json(const struct run_result *result)
{
	const struct agent_exit *exit = &result->exit;
	const char *kind = run_result_name(result), *text;

	switch (exit->kind) {
	case AGENT_EXITED:
		return json_pack("{s:s,s:i}", "kind", kind, "code", (int)exit->code);
	case AGENT_SIGNALLED:
		return json_pack(
			"{s:s,s:i,s:b}", "kind", kind, "signal", (int)exit->code, "core", (int)exit->core);
	case AGENT_TIMED_OUT:
		return json_pack("{s:s,s:s}", "kind", kind, "by", result->by_host ? "host" : "guest");
	case AGENT_FAILED_TO_START:
		text = strerrordesc_np(exit->code);
		return json_pack("{s:s,s:i,s:s,s:s}", "kind", kind, "errno", (int)exit->code, "error",
			text ? text : "unknown error", "step", start_step_name(exit->step));
	default:
		return json_pack("{s:s}", "kind", kind);
	}
}

json_t *run_usage_to_json(const struct agent_exit *exit)
{
	return json_pack("{s:I,s:I,s:I,s:I}", "wall_us", clamp(exit->wall_us), "user_us",
		clamp(exit->user_us), "system_us", clamp(exit->system_us), "max_rss_kib",
		clamp(exit->max_rss_kib));
}

static json_t *timing_to_json(const struct run_result *result)
{
	return json_pack("{s:I,s:o,s:I}", "queued_us", clamp(result->queued_us), "first_byte_us",
		result->first_byte_us ? json_integer(clamp(result->first_byte_us)) : json_null(), "total_us",
		clamp(result->total_us));
}

json_t *run_answer_to_json(const struct run_result *result, struct run_output output[2])
{
	return json_pack("{s:o,s:o,s:o,s:o,s:o,s:s,s:b}", "result", run_result_to_json(result), "stdout",
		run_output_to_json(&output[0], result->exit.stdout_bytes), "stderr",
		run_output_to_json(&output[1], result->exit.stderr_bytes), "usage",
		run_usage_to_json(&result->exit), "timing", timing_to_json(result), "vm", result->vm, "warm",
		(int)result->warm);
}
