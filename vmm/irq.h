/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interrupts of devices: an eventfd for each line, bound to a GSI of the same number, and the routes that the
 * IOAPIC wants for them. Raising a line is one write(2) and no ioctl.
 *
 * The calls of irq_ioapic_ops come with the IOAPIC's lock held, which therefore guards the routes.
 */
#ifndef VMM_IRQ_H
#define VMM_IRQ_H

#include "vmm/ioapic.h"
#include "vmm/kvm.h"

struct irq {
	int vm; /* KVM's fd, the caller's; -1 until irq_attach */
	unsigned lines;
	int eventfds[IOAPIC_PINS_MAX];
	struct kvm_route routes[IOAPIC_PINS_MAX];
	unsigned route_count;
	void (*fault)(void *context, const char *reason); /* KVM refused a route; on any thread */
	void *context;
};

/* The context of these is a struct irq. */
extern const struct ioapic_ops irq_ioapic_ops;

/* lines: at most IOAPIC_PINS_MAX. 0, -EINVAL, or -errno of eventfd. */
int irq_init(
	struct irq *irq, unsigned lines, void (*fault)(void *context, const char *reason), void *context);
/* Binds the eventfds to GSIs: the last thing in setting up a VM. Routes that were made before (of a snapshot)
 * take effect now, all in one call. 0 or -errno. */
int irq_attach(struct irq *irq, int vm);
/* Takes a zeroed one too; the VM may be gone already. */
void irq_finish(struct irq *irq);

#endif
