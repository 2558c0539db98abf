/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/start_step.h"
#include "common/proto_guest.h"
#include <stddef.h>

static const char *const names[] = {
	[AGENT_STEP_NONE] = "none",
	[AGENT_STEP_CGROUP] = "cgroup",
	[AGENT_STEP_PIPES] = "pipes",
	[AGENT_STEP_CLONE] = "clone",
	[AGENT_STEP_USER] = "user",
	[AGENT_STEP_CWD] = "cwd",
	[AGENT_STEP_EXEC] = "exec",
};

const char *start_step_name(unsigned int step)
{
	return step < sizeof(names) / sizeof(names[0]) ? names[step] : NULL;
}
