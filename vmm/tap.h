/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taps: network interfaces of the host whose other end is an fd (Documentation/networking/tuntap.rst of
 * Linux). Opened by name or checked when they come from elsewhere, and a backend for the net device.
 */
#ifndef VMM_TAP_H
#define VMM_TAP_H

#include "vmm/virtio/net.h"
#include <net/if.h>

#define TAP_DEVICE "/dev/net/tun"

/*
 * Opens a tap that exists; none is made. 0 and *fd (CLOEXEC, non-blocking, the caller's), or -errno:
 * -ENOENT, -ENXIO: there is no TAP_DEVICE, or no driver behind it; -EACCES: it may not be opened;
 * -ENODEV: no interface has that name (nor could one); -EBUSY: another process has it; -EPERM: it belongs to
 * another user; -EINVAL: it is no tap, or one with several queues; or one of tap_adopt's.
 */
int tap_open(const char *name, int *fd);

/*
 * Checks a tap that somebody else opened, and sets it up as tap_open does. 0, or -errno, and the fd is the
 * caller's still: -EBADF: not open; -ENOTTY: no tap; -EBADFD: its interface is gone, or it never had one;
 * -EACCES: it is not open for reading and writing; -EPROTOTYPE: it lacks IFF_NO_PI or IFF_VNET_HDR;
 * -EOPNOTSUPP: the kernel does not know the header or the offloads that net needs.
 */
int tap_adopt(int fd);

/* The interface's name. 0, or as tap_adopt. */
int tap_name(int fd, char name[IFNAMSIZ]);

/*
 * An address made of the interface's name and the host's: locally administered, the same at each start, and
 * another one for the same name on another host.
 */
void tap_derive_mac(const char *name, const char *host, uint8_t mac[ETH_ALEN]);

extern const struct net_backend_ops tap_backend;

#endif
