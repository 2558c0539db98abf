/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upgraded form of POST /v1/templates, seen from the client: what a build's commands write goes to
 * standard output and error as it comes, and its phases are told on standard error where that is a terminal.
 *
 * It waits for the daemon and for the standard streams alone, and takes no signal: what ends the program ends
 * the connection, upon which the daemon ends the build.
 */
#ifndef HOST_CTL_CMD_BUILD_H
#define HOST_CTL_CMD_BUILD_H

#include "host-ctl/cli/client.h"

/*
 * Follows the build that a client which has upgraded asked for; order: what it asked. 0 with *answer a new
 * reference, {"template":…}; otherwise *error is set:
 *   -EREMOTEIO   the daemon's error (HOST_ERROR)
 *   -ECONNRESET  the stream ended without a terminal frame
 *   -EPROTO      a frame that may not come, or output that does not join on
 *   -errno       a standard stream or the socket
 */
int cmd_build_follow(struct client *client, const json_t *order, json_t **answer, struct client_error *error);

#endif
