/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end of a Unix socket. */
#ifndef HOST_CTL_PEER_H
#define HOST_CTL_PEER_H

#include <stdbool.h>
#include <sys/types.h>

struct http_peer;

/*
 * Fills the peer from SO_PEERCRED and SO_PEERGROUPS: what the kernel noted at connect. Allowed are root, the
 * daemon's own uid, and members of group; a peer that cannot be told is not.
 */
void peer_read(struct http_peer *peer, int fd, gid_t group);

#endif
