/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vmm processes that are started before a clone is wanted: each in its cgroup, under a uid of its own, with
 * its control socket, waiting to be told what to restore (vmm --standby). vm_start takes one for a clone;
 * another is started when that is warm, so that it is in nobody's way. Where none is ready a clone's process
 * is started as any other.
 *
 * They are not among the VMs of any pool, nor of vms_max, until they are taken. One that ends by itself is
 * logged, and the next is started STANDBY_RETRY_MS later.
 */
#ifndef HOST_CTL_STANDBY_H
#define HOST_CTL_STANDBY_H

#include "host-ctl/vm/vm.h"

enum {
	STANDBY_MAX = 8,
	STANDBY_RETRY_MS = 1000,
	/* Numbers for uids: as many VMs as there can be, all of them born in standby, and the next ones. */
	STANDBY_SEATS = VM_SLOTS + STANDBY_MAX,
};

struct standby;

/* config: where it is set as the standby; outlives it, target: at most STANDBY_MAX. emptied is called when a
 * stopping one has nothing left. NULL without memory. */
struct standby *standby_create(
	const struct vm_config *config, unsigned int target, void (*emptied)(void *context), void *context);
/* Takes NULL. Only one that is empty, and no VM that it gave is left. */
void standby_destroy(struct standby *standby);

/* Begins to keep its target. 0 or -errno. */
int standby_start(struct standby *standby);
/* Ends all that is not taken; then emptied is called, at once if there is none. */
void standby_stop(struct standby *standby);
/* True for NULL, too. */
bool standby_is_empty(const struct standby *standby);

/* A VM is warm, or has ended: the place of one that was taken is filled. Takes NULL. */
void standby_refill(struct standby *standby);

/* The number of a seat; seat NULL: -1. */
int standby_number(const struct standby *standby, const bool *seat);
/* Takes the seat of that number for a VM that is there already. NULL: it is taken, or there is none. Takes
 * NULL. */
bool *standby_reserve(struct standby *standby, int number);

/* One that is ready, which the caller adopts (vm_adopt); NULL: there is none, or standby is NULL. */
struct vm *standby_take(struct standby *standby);

#endif
