/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what a sandbox is to be, which `create` and `fork` share, and what a request has of
 * them.
 */
#ifndef HOST_CTL_CMD_SPEC_H
#define HOST_CTL_CMD_SPEC_H

#include "host-ctl/cli/cli.h"

enum {
	CMD_SPEC_NAME,
	CMD_SPEC_METADATA,
	CMD_SPEC_ENV,
	CMD_SPEC_TTL,
	CMD_SPEC_TTL_PAUSE,
	CMD_SPEC_TTL_SUSPEND,
	CMD_SPEC_IDLE_KILL,
	CMD_SPEC_IDLE_PAUSE,
	CMD_SPEC_IDLE_SUSPEND,
	CMD_SPEC_MEMORY,
	CMD_SPEC_CPU,
	CMD_SPEC_PIDS,
	CMD_SPEC_JSON,
	CMD_SPEC_SOCKET,
	CMD_SPEC_HELP,
	CMD_SPEC_OWN, /* from here on those of the verb alone */
};

/* For the beginning of a verb's table. */
/* clang-format off */
#define CMD_SPEC_OPTIONS \
	[CMD_SPEC_NAME] = {.name = "name", .has_value = true, .not_empty = true}, \
	[CMD_SPEC_METADATA] = {.name = "metadata", .has_value = true, .repeats = true}, \
	[CMD_SPEC_ENV] = {.name = "env", .has_value = true, .repeats = true}, \
	[CMD_SPEC_TTL] = {.name = "ttl", .has_value = true}, \
	[CMD_SPEC_TTL_PAUSE] = {.name = "ttl-pause", .has_value = true}, \
	[CMD_SPEC_TTL_SUSPEND] = {.name = "ttl-suspend", .has_value = true}, \
	[CMD_SPEC_IDLE_KILL] = {.name = "idle-kill", .has_value = true}, \
	[CMD_SPEC_IDLE_PAUSE] = {.name = "idle-pause", .has_value = true}, \
	[CMD_SPEC_IDLE_SUSPEND] = {.name = "idle-suspend", .has_value = true}, \
	[CMD_SPEC_MEMORY] = {.name = "memory", .has_value = true}, \
	[CMD_SPEC_CPU] = {.name = "cpu", .has_value = true}, \
	[CMD_SPEC_PIDS] = {.name = "pids", .has_value = true}, \
	[CMD_SPEC_JSON] = {.name = "json"}, \
	[CMD_SPEC_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true}, \
	[CMD_SPEC_HELP] = {.name = "help", .letter = 'h'}

/* Of its usage. */
#define CMD_SPEC_USAGE_TIMES \
	"  --ttl TIME           it is removed after TIME: 90s, 10m, 2h, 7d, seconds alone; at most 30d\n" \
	"  --ttl-pause TIME     it is paused then, and has TIME again when it is resumed\n" \
	"  --ttl-suspend TIME   it is suspended then, and has TIME again when it is woken\n" \
	"  --idle-kill TIME     it is removed when nothing ran in it for TIME\n" \
	"  --idle-pause TIME    it is paused then\n" \
	"  --idle-suspend TIME  it is suspended then\n"
/* clang-format on */

struct cmd_spec {
	json_t *body;	    /* of the request; the caller's */
	const char *socket; /* NULL: not given */
	bool json, help;
	char error[CLI_TEXT_MAX];
};

/* One of the options before CMD_SPEC_OWN. 0, or -1 with spec->error set. */
int cmd_spec_set(struct cmd_spec *spec, int option, const char *value);
/* A field of that option's name; and a number, as the field. 0, or -1 with spec->error set. */
int cmd_spec_set_text(struct cmd_spec *spec, const char *name, const char *value);
int cmd_spec_set_number(struct cmd_spec *spec, const char *name, const char *field, uint64_t least,
	uint64_t most, const char *value);

#endif
