/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/irq.h"
#include "common/io.h"
#include "vmm/trace.h"
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MSI_VECTOR = 0xff }; /* of its data: SDM volume 3, 11.11.2 */

_Static_assert((int)IOAPIC_PINS_MAX <= (int)KVM_ROUTES_MAX, "every pin can have a route");
_Static_assert((int)IOAPIC_PINS_MAX <= (int)TRACE_PINS_MAX, "every pin is counted");

static void set_route(void *context, unsigned pin, uint64_t address, uint32_t data)
{
	struct irq *irq = context;
	unsigned i = 0;

	while (i < irq->route_count && irq->routes[i].gsi != pin)
		i++;
	if (i == irq->route_count)
		irq->route_count++;
	irq->routes[i] = (struct kvm_route){.gsi = pin, .address = address, .data = data};
	if (irq->vm >= 0 && kvm_set_routes(irq->vm, irq->routes, irq->route_count) < 0)
		irq->fault(irq->context, "KVM refused an interrupt route");
}

/* Of the message that a pin is routed to; -1: it is to none. */
static int vector_of(const struct irq *irq, unsigned pin)
{
	for (unsigned i = 0; i < irq->route_count; i++)
		if (irq->routes[i].gsi == pin)
			return (int)(irq->routes[i].data & MSI_VECTOR);
	return -1;
}

static void raise_line(void *context, unsigned pin)
{
	struct irq *irq = context;
	uint64_t one = 1;

	if (trace_is_on())
		trace_add_irq(trace_active, pin, vector_of(irq, pin));
	/* KVM takes the count at once, so it never fills up; should it, the edge is pending anyway. */
	(void)!write(irq->eventfds[pin], &one, sizeof(one));
}

const struct ioapic_ops irq_ioapic_ops = {.route = set_route, .raise = raise_line};

int irq_init(struct irq *irq, unsigned lines, void (*fault)(void *context, const char *reason), void *context)
{
	*irq = (struct irq){.vm = -1, .fault = fault, .context = context};
	if (lines > IOAPIC_PINS_MAX)
		return -EINVAL;
	for (; irq->lines < lines; irq->lines++) {
		irq->eventfds[irq->lines] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (irq->eventfds[irq->lines] < 0) {
			int error = -errno;

			irq_finish(irq);
			return error;
		}
	}
	return 0;
}

int irq_attach(struct irq *irq, int vm)
{
	int r = irq->route_count > 0 ? kvm_set_routes(vm, irq->routes, irq->route_count) : 0;

	irq->vm = vm;
	for (unsigned i = 0; r == 0 && i < irq->lines; i++)
		r = kvm_add_irqfd(vm, i, irq->eventfds[i]);
	return r;
}

void irq_finish(struct irq *irq)
{
	while (irq->lines > 0)
		fd_close(&irq->eventfds[--irq->lines]);
}
