/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/command.h"
#include "tests/e2e/leaks/leak.h"
#include <stdio.h>
#include <sys/stat.h>

struct command *__real_command_create(
	struct sandbox *sandbox, json_t *body, size_t length, struct error *error);
struct command *__wrap_command_create(
	struct sandbox *sandbox, json_t *body, size_t length, struct error *error);

/* Also cgroups beside those of the VMs. */
struct command *__wrap_command_create(
	struct sandbox *sandbox, json_t *body, size_t length, struct error *error)
{
	static unsigned int groups;
	char path[64];

	if (leak()) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup/tinderbox/leak-%u", ++groups);
		mkdir(path, 0755);
	}
	return __real_command_create(sandbox, body, length, error);
}
