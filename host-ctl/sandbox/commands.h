/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of one sandbox. At most COMMANDS_MAX are known, and COMMANDS_ALL_MAX of all sandboxes: of
 * those that have ended the oldest gives way, then one that nobody may attach to any more;
 * COMMANDS_RUNNING_MAX run at a time. Within these bounds one that has ended is known for keep_commands_ms
 * (sandboxes.h), and as long as its sandbox is.
 */
#ifndef HOST_CTL_COMMANDS_H
#define HOST_CTL_COMMANDS_H

#include "host-ctl/sandbox/command.h"

enum {
	COMMANDS_MAX = 256,
	COMMANDS_ALL_MAX = 4096,   /* of all sandboxes */
	COMMANDS_RUNNING_MAX = 32, /* a guest holds AGENT_SESSIONS_MAX, ended ones included */
	/* Held output of all commands of the daemon that have ended; the oldest gives way. */
	COMMANDS_OUTPUT_MAX = 256 * 1024 * 1024,
};

/* NULL with *error not_found. */
struct command *commands_find(const struct sandbox *sandbox, const char *id, struct error *error);
/* {"commands":[…]}, the oldest first; the caller's. NULL without memory. */
json_t *commands_to_json(const struct sandbox *sandbox);
/* Whose token this is, of all sandboxes; NULL: nobody's. */
struct command *commands_find_token(const struct sandboxes *sandboxes, const char *token);

/* --- for command.c and sandbox.c --- */

/* A place for one more. 0, or -1 with *error exhausted. */
int commands_make_room(struct sandbox *sandbox, struct error *error);
void commands_add(struct command *command);
void commands_remove(struct command *command);
/* What it holds is cut to its output_max. */
void commands_trim(struct command *command);
/* One has ended: its output is counted, and its time begins. */
void commands_note_ended(struct command *command);
/* When the next one is to be forgotten for its time, if there is one. */
void commands_set_clock(struct sandbox *sandbox);
/* Those whose time is over, and that nobody reads, are forgotten. */
void commands_forget_old(struct sandbox *sandbox);
/* The sandbox is suspended, and its VM about to end: what runs, or is about to, is as command_sleep leaves
 * it. */
void commands_sleep(struct sandbox *sandbox);
/* What is to start one is on its way to the guest, or was it and nothing came back yet. */
bool commands_are_under_way(const struct sandbox *sandbox);
void commands_destroy(struct sandbox *sandbox);

#endif
