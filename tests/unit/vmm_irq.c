/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupts of devices: what KVM is told of a line, and when. KVM is played. */
#include "tests/support/unit.h"

#include "vmm/irq.h"
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>

enum { VM = 1000, SENT_MAX = 8, PIN = 2, OTHER_PIN = 5 };

static struct {
	struct irq irq;
	struct kvm_msi sent[SENT_MAX];
	unsigned count, faults;
	int answer; /* of KVM: what it returns, or -errno */
} machine;

int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
	assert_int_equal(fd, VM);
	assert_int_equal(request, KVM_SIGNAL_MSI);
	assert_true(machine.count < SENT_MAX);
	memcpy(&machine.sent[machine.count++], argument, sizeof(machine.sent[0]));
	errno = machine.answer < 0 ? -machine.answer : 0;
	return machine.answer < 0 ? -1 : machine.answer;
}

static void note_fault(void *context, const char *reason)
{
	assert_ptr_equal(context, &machine);
	assert_string_equal(reason, "KVM refused an interrupt");
	machine.faults++;
}

static int set_up(void **state)
{
	(void)state;
	memset(&machine, 0, sizeof(machine));
	machine.answer = 1;
	irq_init(&machine.irq, note_fault, &machine);
	return 0;
}

static void route(unsigned pin, uint64_t address, uint32_t data)
{
	irq_ioapic_ops.route(&machine.irq, pin, address, data);
}

static void raise_pin(unsigned pin)
{
	irq_ioapic_ops.raise(&machine.irq, pin);
}

static void expect_sent(unsigned at, uint64_t address, uint32_t data)
{
	struct kvm_msi wanted = {
		.address_lo = (uint32_t)address, .address_hi = (uint32_t)(address >> 32), .data = data};

	assert_true(at < machine.count);
	assert_memory_equal(&machine.sent[at], &wanted, sizeof(wanted));
}

static void a_line_sends_the_message_it_has_now(void **state)
{
	(void)state;
	irq_attach(&machine.irq, VM);
	route(PIN, 0xfee01000, 0x4021);
	route(OTHER_PIN, 0x7fee02004, 0x4131);
	assert_int_equal(machine.count, 0);
	raise_pin(PIN);
	raise_pin(OTHER_PIN);
	route(PIN, 0xfee00000, 0x4055);
	raise_pin(PIN);
	assert_int_equal(machine.count, 3);
	expect_sent(0, 0xfee01000, 0x4021);
	expect_sent(1, 0x7fee02004, 0x4131);
	expect_sent(2, 0xfee00000, 0x4055);
	assert_int_equal(machine.faults, 0);
}

/* Of a snapshot: what is raised while its local APICs are not there yet is sent when they are, once. */
static void what_comes_before_the_cpus_waits_for_them(void **state)
{
	(void)state;
	route(PIN, 0xfee01000, 0x4021);
	route(OTHER_PIN, 0xfee02000, 0x4022);
	raise_pin(PIN);
	raise_pin(PIN);
	assert_int_equal(machine.count, 0);
	irq_attach(&machine.irq, VM);
	assert_int_equal(machine.count, 1);
	expect_sent(0, 0xfee01000, 0x4021);
	raise_pin(OTHER_PIN);
	assert_int_equal(machine.count, 2);
	expect_sent(1, 0xfee02000, 0x4022);
}

static void without_a_message_nothing_is_sent(void **state)
{
	(void)state;
	raise_pin(PIN);
	irq_attach(&machine.irq, VM);
	raise_pin(OTHER_PIN);
	assert_int_equal(machine.count, 0);
	/* Nor later: the edge is gone. */
	route(PIN, 0xfee01000, 0x4021);
	assert_int_equal(machine.count, 0);
}

/* 0: its local APIC has the interrupt already; EPERM: nobody has that address. Both are the guest's doing. */
static void a_message_that_nobody_takes_is_no_fault(void **state)
{
	static const int answers[] = {0, -EPERM};

	(void)state;
	irq_attach(&machine.irq, VM);
	route(PIN, 0xfee01000, 0x4021);
	for (unsigned i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		machine.answer = answers[i];
		raise_pin(PIN);
	}
	assert_int_equal(machine.count, 2);
	assert_int_equal(machine.faults, 0);
}

static void what_kvm_refuses_ends_the_vm(void **state)
{
	static const int answers[] = {-EINVAL, -ENOTTY, -EIO};

	(void)state;
	irq_attach(&machine.irq, VM);
	route(PIN, 0xfee01000, 0x4021);
	for (unsigned i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		machine.answer = answers[i];
		raise_pin(PIN);
		assert_int_equal(machine.faults, i + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_line_sends_the_message_it_has_now, set_up),
		cmocka_unit_test_setup(what_comes_before_the_cpus_waits_for_them, set_up),
		cmocka_unit_test_setup(without_a_message_nothing_is_sent, set_up),
		cmocka_unit_test_setup(a_message_that_nobody_takes_is_no_fault, set_up),
		cmocka_unit_test_setup(what_kvm_refuses_ends_the_vm, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
