/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registers by which a guest ends: a syscon power-off register, a pvpanic device, and the reset line of a
 * keyboard controller. Wrong widths and other values do nothing.
 */
#ifndef VMM_ENDS_H
#define VMM_ENDS_H

#include "common/proto_vmm.h"
#include "vmm/bus.h"

struct ends {
	void (*end)(void *context, enum vmm_end end, const char *reason); /* on a vCPU's thread */
	void *context;
};

/* Adds the windows to the buses; ends must outlive them. 0 or bus_add's error. */
int ends_add(struct ends *ends, struct bus *ports, struct bus *mmio);

#endif
