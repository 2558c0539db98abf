/* SPDX-License-Identifier: Apache-2.0 */
/* Between api_commands.c, which answers at once, and api_attach.c, where a command is followed to its end. */
#ifndef HOST_CTL_API_COMMANDS_H
#define HOST_CTL_API_COMMANDS_H

#include "host-ctl/api/api.h"
#include "host-ctl/sandbox/commands.h"

/* The sandbox, and the command in it, of the path. NULL with *error set. */
struct sandbox *api_find_sandbox(struct api *api, const struct http_request *request, struct error *error);
struct command *api_find_command(struct api *api, const struct http_request *request, struct error *error);
/* A new one of the request's body. on_detach: what it is where the body does not say. NULL with *error set.
 */
struct command *api_create_command(
	struct api *api, const struct http_request *request, const char *on_detach, struct error *error);

/* 0; or -1 with *error set, ERROR_NOT_READY: its output is still to be fetched from its guest. */
int api_check_fetched(const struct command *command, struct error *error);

#endif
