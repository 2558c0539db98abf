/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-rng (virtio 1.2, section 5.4): host entropy from getrandom(2), at most RNG_REQUEST_MAX bytes a
 * request and RNG_QUEUE_SIZE requests a round of the loop. A chain with a part that the device may only read
 * sets DEVICE_NEEDS_RESET. The smallest device: the one to copy for a new one.
 */
#ifndef VMM_VIRTIO_RNG_H
#define VMM_VIRTIO_RNG_H

struct virtio_device;

enum { RNG_QUEUE_SIZE = 8, RNG_REQUEST_MAX = 4096 };

/* 0 or -ENOMEM. */
int rng_create(struct virtio_device **out);

#endif
