/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/irq.h"
#include "vmm/kvm.h"
#include "vmm/trace.h"
#include <errno.h>

enum { MSI_VECTOR = 0xff }; /* of its data: SDM volume 3, 11.11.2 */

_Static_assert((int)IOAPIC_PINS_MAX <= (int)TRACE_PINS_MAX, "every pin is counted");

static void set_route(void *context, unsigned pin, uint64_t address, uint32_t data)
{
	struct irq_line *line = &((struct irq *)context)->lines[pin];

	line->has_message = true;
	line->address = address;
	line->data = data;
}

/* Whether a local APIC takes it (-EPERM: there is none at that address) is the guest's affair. */
static void send(const struct irq *irq, const struct irq_line *line)
{
	int r = kvm_signal_msi(irq->vm, line->address, line->data);

	if (r < 0 && r != -EPERM)
		irq->fault(irq->context, "KVM refused an interrupt");
}

static void raise_line(void *context, unsigned pin)
{
	struct irq *irq = context;
	struct irq_line *line = &irq->lines[pin];

	if (trace_is_on())
		trace_add_irq(trace_active, pin, line->has_message ? (int)(line->data & MSI_VECTOR) : -1);
	if (irq->vm < 0)
		line->pending = true;
	else if (line->has_message)
		send(irq, line);
}

const struct ioapic_ops irq_ioapic_ops = {.route = set_route, .raise = raise_line};

void irq_init(struct irq *irq, void (*fault)(void *context, const char *reason), void *context)
{
	*irq = (struct irq){.vm = -1, .fault = fault, .context = context};
}

void irq_attach(struct irq *irq, int vm)
{
	irq->vm = vm;
	for (unsigned pin = 0; pin < IOAPIC_PINS_MAX; pin++) {
		struct irq_line *line = &irq->lines[pin];

		if (line->pending && line->has_message)
			send(irq, line);
		line->pending = false;
	}
}
