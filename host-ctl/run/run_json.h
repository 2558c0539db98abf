/* SPDX-License-Identifier: Apache-2.0 */
/* How a command ended, as JSON. Each the caller's reference; NULL without memory. */
#ifndef HOST_CTL_RUN_JSON_H
#define HOST_CTL_RUN_JSON_H

#include "host-ctl/run/run.h"
#include "host-ctl/run/run_output.h"

/* {"kind":…} of a result without an error. */
json_t *run_result_to_json(const struct run_result *result);
json_t *run_usage_to_json(const struct agent_exit *exit);
/* The whole answer of a plain run: result, stdout, stderr, usage, timing, vm, warm. */
json_t *run_answer_to_json(const struct run_result *result, struct run_output output[2]);

#endif
