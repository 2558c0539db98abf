/* SPDX-License-Identifier: Apache-2.0 */
/* The vsock ends of the agent, and the guest's own loopback interface. */
#ifndef GUEST_INIT_HOST_LINK_H
#define GUEST_INIT_HOST_LINK_H

/* A listening socket on AGENT_GUEST_PORT, non-blocking, the caller's; or -errno (-EAFNOSUPPORT: a kernel
 * without vsock). */
int host_link_listen(void);

/* A socket whose connection to the host's AGENT_HOST_PORT is under way or stands, non-blocking, the caller's;
 * or -errno (-ENODEV: no vsock device). */
int host_link_connect(void);

/* Brings lo up; the kernel gives it its addresses. 0 or -errno. */
int host_link_loopback_up(void);

#endif
