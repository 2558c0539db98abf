/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/http/peer.h"
#include "host-ctl/http/http.h"

#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

enum { GROUPS_MAX = 1024 }; /* a peer in more supplementary groups is judged by its ids alone */

static bool is_in_group(int fd, gid_t group)
{
	gid_t groups[GROUPS_MAX];
	socklen_t length = sizeof groups;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) < 0)
		return false;
	for (socklen_t i = 0; i < length / sizeof groups[0]; i++)
		if (groups[i] == group)
			return true;
	return false;
}

void peer_read(struct http_peer *peer, int fd, gid_t group)
{
	struct ucred credentials;
	socklen_t length = sizeof credentials;

	*peer = (struct http_peer){.uid = (uid_t)-1, .gid = (gid_t)-1};
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
		return;
	peer->uid = credentials.uid;
	peer->gid = credentials.gid;
	peer->pid = credentials.pid;
	peer->allowed =
		peer->uid == 0 || peer->uid == geteuid() || peer->gid == group || is_in_group(fd, group);
}
