/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interrupts of devices: of each line the message (MSI) that the IOAPIC wants for it, and to raise the line
 * is to send that to KVM, in one ioctl. KVM has neither an eventfd nor a route of them: nothing is made for
 * them before the guest runs, a guest that routes its pins costs no call at all, and a VM without irqfds is
 * closed without waiting for their grace periods.
 *
 * The calls of irq_ioapic_ops come with the IOAPIC's lock held, which therefore guards the messages.
 */
#ifndef VMM_IRQ_H
#define VMM_IRQ_H

#include "vmm/ioapic.h"
#include <stdbool.h>

struct irq_line {
	bool has_message, pending; /* pending: raised before irq_attach */
	uint32_t data;
	uint64_t address;
};

struct irq {
	int vm; /* KVM's fd, the caller's; -1 until irq_attach */
	struct irq_line lines[IOAPIC_PINS_MAX];
	void (*fault)(void *context, const char *reason); /* KVM refused a message; on any thread */
	void *context;
};

/* The context of these is a struct irq. */
extern const struct ioapic_ops irq_ioapic_ops;

void irq_init(struct irq *irq, void (*fault)(void *context, const char *reason), void *context);
/*
 * From now on a raised line reaches the local APICs, and those that have been raised before do now. It comes
 * when all that a snapshot says of them has been put there, or that would replace what was sent; and before
 * any other thread may raise a line.
 */
void irq_attach(struct irq *irq, int vm);

#endif
