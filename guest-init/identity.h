/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a guest its own before anything of a user's runs: entropy, the wall clock, the machine id, the
 * host name; applied in this order, the order of struct agent_identity. Then the boot id, which the guest
 * makes.
 */
#ifndef GUEST_INIT_IDENTITY_H
#define GUEST_INIT_IDENTITY_H

#include "common/proto_guest.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How each part is applied, 0 or -errno. Tests bring their own, so as not to set the clock of their machine.
 */
struct identity_ops {
	int (*set_entropy)(void *context, const uint8_t *bytes, size_t length);
	int (*set_clock)(void *context, uint64_t realtime_ns);
	int (*set_machine_id)(void *context, const uint8_t id[AGENT_MACHINE_ID_BYTES]);
	int (*set_hostname)(void *context, const char *name);
	/* A new random one. */
	int (*renew_boot_id)(void *context);
};
extern const struct identity_ops identity_ops_system;

/* 0, or -EPROTO when the host name is not one (form and length as in proto_guest.h). Nothing is applied. */
int identity_check(const struct agent_identity *identity);

/* It is of the machine that this one is already: no id is given. */
bool identity_is_same_machine(const struct agent_identity *identity);

/* Stops at the first failure: its -errno, with *step the name of the part. 0 when all is applied; of the same
 * machine, entropy and clock alone. */
int identity_apply(const struct agent_identity *identity, const struct identity_ops *ops, void *context,
	const char **step);

#endif
