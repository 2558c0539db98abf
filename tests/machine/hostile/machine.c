/* SPDX-License-Identifier: Apache-2.0 */
/* What the hostile guest stands on: page tables, exceptions, its word to the outside. */
#include "tests/machine/hostile/guest.h"

enum {
	ENTRIES = 512,
	DIRECTORIES = 4, /* 1 GiB each */
	PRESENT = 1 << 0,
	WRITE = 1 << 1,
	LARGE = 1 << 7,
	ELSEWHERE_ENTRY = 8, /* of the top table */
	EXCEPTIONS = 32,
	NMI = 2,
	GATE = 0x8e,
	CODE_SELECTOR = 0x10,
	EXCEPTION_STACK = 8192,
	TASK_IST1 = 36, /* offsets in the task state */
	TASK_IST2 = 44,
	TASK_LIMIT = 103,
	LAPIC_EOI = 0xb0,
	LAPIC_ID = 0x20,
	LAPIC_TPR = 0x80,
	LAPIC_SPURIOUS = 0xf0,
	LAPIC_LOCAL_FIRST = 0x320, /* the timer's: without its mode it has no deadline either */
	LAPIC_LOCAL_LAST = 0x370,
	LAPIC_STEP = 0x10,
	LAPIC_MASKED = 1 << 16,
	IOAPIC_PIN = 0x10,
	IOAPIC_MASKED = 1 << 16,
	MSR_APIC_BASE = 0x1b,
	APIC_BASE_FIRST = 1 << 8,
	APIC_BASE_ENABLE = 1 << 11,
	E820_COUNT = 0x1e8,
	E820_TABLE = 0x2d0,
	E820_BYTES = 20,
};
#define ELSEWHERE ((uint64_t)ELSEWHERE_ENTRY << 39)
#define LARGE_PAGE (2ull << 20)

volatile unsigned traps[VECTORS];
uint64_t memory_end;
bool long_run, thin_run, low_vectors;

static uint64_t top[ENTRIES] __attribute__((aligned(4096)));
static uint64_t middle[ENTRIES] __attribute__((aligned(4096)));
static uint64_t directories[DIRECTORIES][ENTRIES] __attribute__((aligned(4096)));
uint64_t *const spare_tables = directories[1]; /* and [2]: memory ends before, devices begin behind */
static uint64_t elsewhere_middle[ENTRIES] __attribute__((aligned(4096)));
static uint64_t elsewhere_directory[ENTRIES] __attribute__((aligned(4096)));
static uint8_t exception_stack[EXCEPTION_STACK] __attribute__((aligned(16)));
static uint8_t nmi_stack[EXCEPTION_STACK] __attribute__((aligned(16))); /* it comes within the others, too */

static struct __attribute__((packed)) gate {
	uint16_t offset_low, selector;
	uint8_t stack, type;
	uint16_t offset_middle;
	uint32_t offset_high, zero;
} gates[VECTORS];

bool handle_trap(uint64_t vector, uint64_t where, uint64_t in_probe);

/* True: the probe is cut short. */
bool handle_trap(uint64_t vector, uint64_t where, uint64_t in_probe)
{
	traps[vector]++;
	if (vector >= EXCEPTIONS || low_vectors) {
		lapic_write(LAPIC_EOI, 0);
		return false;
	}
	if (vector == NMI)
		return false;
	if (in_probe)
		return true;
	say("hostile: exception ");
	say_number(vector);
	say(" at ");
	say_number(where);
	say("\n");
	fail("an exception");
}

void map_again(void)
{
	for (unsigned i = 0; i < DIRECTORIES; i++) {
		for (unsigned k = 0; k < ENTRIES; k++)
			directories[i][k] =
				((uint64_t)i * ENTRIES + k) * LARGE_PAGE | PRESENT | WRITE | LARGE;
		middle[i] = (uint64_t)directories[i] | PRESENT | WRITE;
	}
	top[0] = (uint64_t)middle | PRESENT | WRITE;
	elsewhere_middle[0] = (uint64_t)elsewhere_directory | PRESENT | WRITE;
	top[ELSEWHERE_ENTRY] = (uint64_t)elsewhere_middle | PRESENT | WRITE;
	__asm__ volatile("mov %0, %%cr3" : : "r"((uint64_t)top) : "memory");
}

uint64_t map_elsewhere(uint64_t physical)
{
	/* The neighbour is there, so that an access may cross the border of the two. */
	elsewhere_directory[0] = (physical & ~(LARGE_PAGE - 1)) | PRESENT | WRITE | LARGE;
	elsewhere_directory[1] = elsewhere_directory[0] + LARGE_PAGE;
	__asm__ volatile("mov %0, %%cr3" : : "r"((uint64_t)top) : "memory");
	return ELSEWHERE + (physical & (LARGE_PAGE - 1));
}

static void set_gates(void)
{
	struct table_pointer pointer = {.limit = sizeof(gates) - 1, .base = (uint64_t)gates};

	for (unsigned i = 0; i < VECTORS; i++) {
		uint64_t stub = (uint64_t)trap_stubs + (uint64_t)i * 16;

		gates[i] = (struct gate){
			.offset_low = (uint16_t)stub,
			.offset_middle = (uint16_t)(stub >> 16),
			.offset_high = (uint32_t)(stub >> 32),
			.selector = CODE_SELECTOR,
			.stack = i == NMI ? 2 : 1,
			.type = GATE,
		};
	}
	__asm__ volatile("lidt %0" : : "m"(pointer));
}

/* Exceptions have a stack of their own, so that they come even where the stack is no memory. */
static void set_task(void)
{
	uint64_t base = (uint64_t)task_state, *descriptor = (uint64_t *)task_descriptor;
	uint64_t stack = (uint64_t)exception_stack + sizeof(exception_stack);

	__builtin_memcpy(task_state + TASK_IST1, &stack, sizeof(stack));
	stack = (uint64_t)nmi_stack + sizeof(nmi_stack);
	__builtin_memcpy(task_state + TASK_IST2, &stack, sizeof(stack));
	descriptor[0] = TASK_LIMIT | (base & 0xffffff) << 16 | 0x89ull << 40 | (base >> 24 & 0xff) << 56;
	descriptor[1] = base >> 32;
	load_tables();
}

/* SSE, which some of the accesses are made with. */
static void set_control(void)
{
	uint64_t cr0, cr4;

	__asm__ volatile("mov %%cr0, %0" : "=r"(cr0));
	cr0 = (cr0 & ~(1ull << 2 | 1ull << 3)) | 1ull << 1;
	__asm__ volatile("mov %0, %%cr0" : : "r"(cr0));
	__asm__ volatile("mov %%cr4, %0" : "=r"(cr4));
	cr4 |= 3ull << 9;
	__asm__ volatile("mov %0, %%cr4" : : "r"(cr4));
}

static void find_memory(const uint8_t *boot_params)
{
	for (unsigned i = 0; i < boot_params[E820_COUNT]; i++) {
		uint64_t entry[2]; /* address, size */

		__builtin_memcpy(entry, boot_params + E820_TABLE + (size_t)i * E820_BYTES, sizeof(entry));
		if (entry[0] == 1 << 20)
			memory_end = entry[0] + entry[1];
	}
}

static void restore_apic_base(uint64_t b, uint64_t c, uint64_t d)
{
	(void)b;
	(void)c;
	(void)d;
	/* By way of off: x2APIC is not left for xAPIC at once, and what it had under way ends. */
	write_msr(MSR_APIC_BASE, LAPIC_BASE | APIC_BASE_FIRST);
	write_msr(MSR_APIC_BASE, LAPIC_BASE | APIC_BASE_ENABLE | APIC_BASE_FIRST);
}

void machine_settle(void)
{
	map_again();
	probe(restore_apic_base, 0, 0, 0);
	for (unsigned pin = 0; pin < PINS_MAX; pin++)
		ioapic_write(IOAPIC_PIN + 2 * pin, IOAPIC_MASKED);
	for (uint32_t local = LAPIC_LOCAL_FIRST; local <= LAPIC_LOCAL_LAST; local += LAPIC_STEP)
		lapic_write(local, LAPIC_MASKED);
	/* Masked, a timer would still wake the processor out of its sleep. */
	lapic_write(LAPIC_TIMER_INITIAL, 0);
	lapic_write(LAPIC_ID, 0);
	lapic_write(LAPIC_TPR, 0);
	lapic_write(LAPIC_SPURIOUS, 0x1ff);
	for (unsigned i = 0; i < VECTORS; i++) { /* whatever is in service or waits */
		lapic_write(LAPIC_EOI, 0);
		allow_interrupts_briefly();
	}
}

void machine_init(const uint8_t *boot_params)
{
	find_memory(boot_params);
	set_task();
	set_gates();
	set_control();
	map_again();
	lapic_write(LAPIC_SPURIOUS, 0x1ff);
}

/* Attacks may have left the port in any state. */
static void say_byte(char byte)
{
	out8(SERIAL_PORT, (uint8_t)byte);
}

void say(const char *text)
{
	out8(SERIAL_PORT + 3, 3); /* line control: data, not the divisor */
	out8(SERIAL_PORT + 4, 0); /* modem control: no loop */
	while (*text)
		say_byte(*text++);
}

void say_number(uint64_t value)
{
	char text[20] = "0x", *next = text + 2;

	for (int shift = 60; shift >= 0; shift -= 4)
		if (value >> shift || shift == 0)
			*next++ = "0123456789abcdef"[value >> shift & 15];
	*next = '\0';
	say(text);
}

void sleep_for_ever(void)
{
	for (;;)
		__asm__ volatile("cli; hlt");
}

void fail(const char *what)
{
	say("\nhostile: failed ");
	say(what);
	say("\n");
	sleep_for_ever();
}

unsigned list_values(uint64_t values[VALUES_MAX], bool short_list)
{
	const uint64_t fixed[] = {0, 1, 2, 3, 0xff, 0x100, PAGE - 1, PAGE, PAGE + 1, 0x7fff, 0x8000, 0xffff,
		0x10000, 0x7fffffff, 0x80000000, 0xffffffff, LOW_HOLE, HIGH_HOLE, WINDOWS_BASE, POWEROFF_BASE,
		IOAPIC_BASE, LAPIC_BASE, memory_end - PAGE, memory_end - 16, memory_end - 1, memory_end,
		memory_end + 1, (uint64_t)top, (uint64_t)directories, (uint64_t)arena};
	unsigned count = sizeof(fixed) / sizeof(fixed[0]);

	__builtin_memcpy(values, fixed, sizeof(fixed));
	for (unsigned bit = 2; !short_list && bit < 64; bit++)
		values[count++] = 1ull << bit;
	return count;
}

uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}
