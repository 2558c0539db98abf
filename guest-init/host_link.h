/* SPDX-License-Identifier: Apache-2.0 */
/* The vsock ends of the agent, and the guest's own loopback interface. */
#ifndef GUEST_INIT_HOST_LINK_H
#define GUEST_INIT_HOST_LINK_H

/* A listening socket on AGENT_GUEST_PORT, non-blocking, the caller's; or -errno (-EAFNOSUPPORT: a kernel
 * without vsock). */
int host_link_listen(void);

/*
 * A socket whose connection to the host's AGENT_HOST_PORT is under way or stands, non-blocking, the caller's;
 * or -errno (-ENODEV: no vsock device; -EADDRINUSE: each port that it may come from is in use). It comes from
 * a port from AGENT_LINK_PORT_FIRST to AGENT_LINK_PORT_LAST, by which the host knows it. turn counts the
 * connections: each begins with the next port, so that one is not used again while the vmm, or a packet on
 * its way, may still mean the connection before; one that the kernel has not let go of yet (up to 8 s after a
 * close that the host did not answer) is passed over.
 */
int host_link_connect(unsigned turn);

/* Brings lo up; the kernel gives it its addresses. 0 or -errno. */
int host_link_loopback_up(void);

#endif
