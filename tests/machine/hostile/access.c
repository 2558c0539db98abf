/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks by kinds of access: every width and instruction on memory that is none, every port, strings of
 * each. */
#include "tests/machine/hostile/guest.h"

enum {
	STRING = 24, /* bytes */
	PORTS = 0x10000,
	STRING_MAX = 4096,
	THICK_PORTS = 0x400,
	THIN_STEP = 7,
	STRIDE = 3, /* so that every alignment comes */
};
#define VALUE 0xaaaaaaaaaaaaaaaaull /* no panic, no power-off, no interrupt, no index that a ring has */

/* --- instructions on memory --- */

static void read1(uint64_t address, uint64_t value)
{
	(void)value;
	(void)*(volatile uint8_t *)address;
}

static void read2(uint64_t address, uint64_t value)
{
	(void)value;
	(void)*(volatile uint16_t *)address;
}

static void read4(uint64_t address, uint64_t value)
{
	(void)value;
	(void)*(volatile uint32_t *)address;
}

static void read8(uint64_t address, uint64_t value)
{
	(void)value;
	(void)*(volatile uint64_t *)address;
}

static void write1(uint64_t address, uint64_t value)
{
	*(volatile uint8_t *)address = (uint8_t)value;
}

static void write2(uint64_t address, uint64_t value)
{
	*(volatile uint16_t *)address = (uint16_t)value;
}

static void write4(uint64_t address, uint64_t value)
{
	*(volatile uint32_t *)address = (uint32_t)value;
}

static void write8(uint64_t address, uint64_t value)
{
	*(volatile uint64_t *)address = value;
}

static void read16(uint64_t address, uint64_t value)
{
	(void)value;
	__asm__ volatile("movdqu (%0), %%xmm0" : : "r"(address) : "memory");
}

static void write16(uint64_t address, uint64_t value)
{
	__asm__ volatile("movq %1, %%xmm1; punpcklqdq %%xmm1, %%xmm1; movdqu %%xmm1, (%0)"
			 :
			 : "r"(address), "r"(value)
			 : "memory");
}

static void locked_add(uint64_t address, uint64_t value)
{
	__asm__ volatile("lock addl %1, (%0)" : : "r"(address), "r"((uint32_t)value) : "memory");
}

static void locked_compare(uint64_t address, uint64_t value)
{
	__asm__ volatile("lock cmpxchgl %1, (%0)"
			 :
			 : "r"(address), "r"((uint32_t)value), "a"(0)
			 : "memory", "cc");
}

static void locked_compare8(uint64_t address, uint64_t value)
{
	__asm__ volatile("lock cmpxchg8b (%0)"
			 :
			 : "r"(address), "a"(0), "d"(0), "b"((uint32_t)value), "c"((uint32_t)value)
			 : "memory", "cc");
}

static void exchange(uint64_t address, uint64_t value)
{
	__asm__ volatile("xchgl %1, (%0)" : : "r"(address), "r"((uint32_t)value) : "memory");
}

static void exchange_add(uint64_t address, uint64_t value)
{
	__asm__ volatile("lock xaddw %1, (%0)" : : "r"(address), "r"((uint16_t)value) : "memory");
}

static void set_bit(uint64_t address, uint64_t value)
{
	__asm__ volatile("lock btsl %1, (%0)" : : "r"(address), "r"((uint32_t)value & 31) : "memory");
}

static void push_pop(uint64_t address, uint64_t value)
{
	(void)value;
	__asm__ volatile("pushq (%0); popq (%0)" : : "r"(address) : "memory");
}

static void store_string1(uint64_t address, uint64_t value)
{
	uint64_t count = STRING;

	__asm__ volatile("rep stosb" : "+D"(address), "+c"(count) : "a"(value) : "memory");
}

static void store_string8(uint64_t address, uint64_t value)
{
	uint64_t count = STRING / 8;

	__asm__ volatile("rep stosq" : "+D"(address), "+c"(count) : "a"(value) : "memory");
}

static void move_string(uint64_t address, uint64_t value)
{
	uint64_t count = STRING / 4, from = address;

	(void)value;
	address = (uint64_t)arena;
	__asm__ volatile("rep movsl" : "+D"(address), "+S"(from), "+c"(count) : : "memory");
}

static void move_string_within(uint64_t address, uint64_t value)
{
	uint64_t count = STRING / 2, from = address + 1;

	(void)value;
	__asm__ volatile("rep movsw" : "+D"(address), "+S"(from), "+c"(count) : : "memory");
}

static void move_string_back(uint64_t address, uint64_t value)
{
	uint64_t count = STRING / 4, to = (uint64_t)arena + STRING;

	(void)value;
	__asm__ volatile("std; rep movsl; cld" : "+D"(to), "+S"(address), "+c"(count) : : "memory");
}

static void scan_string(uint64_t address, uint64_t value)
{
	uint64_t count = STRING;

	__asm__ volatile("repne scasb" : "+D"(address), "+c"(count) : "a"(value) : "memory", "cc");
}

/* The first write and read plainly, and do not write what they read: at the panic register, that would be a
 * panic. */
static void (*const ways[])(uint64_t address, uint64_t value) = {
	read1,
	read2,
	read4,
	read8,
	write1,
	write2,
	write4,
	write8,
	read16,
	write16,
	locked_add,
	locked_compare,
	locked_compare8,
	exchange,
	exchange_add,
	set_bit,
	push_pop,
	store_string1,
	store_string8,
	move_string,
	move_string_within,
	move_string_back,
	scan_string,
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), PLAIN_WAYS = 10 };
const unsigned access_ways = WAYS;

void access_memory(unsigned how, uint64_t address, uint64_t value)
{
	ways[how % WAYS](address, value);
}

static void access_probed(uint64_t how, uint64_t address, uint64_t value)
{
	access_memory((unsigned)how, address, value);
}

static void try_ways(uint64_t address, unsigned count)
{
	for (unsigned how = 0; how < count; how++)
		probe(access_probed, how, address, VALUE);
}

/* --- attacks --- */

static void widths(uint64_t seed)
{
	const uint64_t starts[] = {WINDOWS_BASE, WINDOWS_BASE + WINDOW - 24, WINDOWS_BASE + 0x1fe8,
		WINDOWS_BASE + WINDOWS_MAX * WINDOW - 16, POWEROFF_BASE - 16, IOAPIC_BASE - 16,
		IOAPIC_BASE + WINDOW - 16, memory_end - 16, HIGH_HOLE - 16, LAPIC_BASE - 16,
		(1ull << 32) - 48};

	(void)seed;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		for (unsigned offset = 0; offset < (long_run ? 0x120 : 24); offset += STRIDE)
			try_ways(starts[i] + offset, WAYS);
	for (unsigned offset = 0; offset < 32; offset++)
		try_ways(PVPANIC_BASE - 16 + offset, PLAIN_WAYS);
	for (unsigned i = 0; i < device_count; i++)
		for (unsigned offset = 0; offset < 0x120; offset += long_run ? STRIDE : 37)
			try_ways(devices[i].base + offset, WAYS);
}

/* Where there is no memory: behind it, far above 4 GiB, above what the processor can address. */
static void addresses(uint64_t seed)
{
	const uint64_t physical[] = {memory_end, memory_end + (1ull << 30), 1ull << 32,
		(1ull << 32) + WINDOWS_BASE, 1ull << 36, (1ull << 36) - 8, 1ull << 39, 1ull << 40, 1ull << 45,
		1ull << 47, 1ull << 51};
	const uint64_t virtual[] = {1ull << 47, (1ull << 47) - 8, 0xffff800000000000, UINT64_MAX - 3,
		1ull << 40, 0xdead000000000000};

	(void)seed;
	for (size_t i = 0; i < sizeof(physical) / sizeof(physical[0]); i++)
		try_ways(map_elsewhere(physical[i]), WAYS);
	map_again();
	for (size_t i = 0; i < sizeof(virtual) / sizeof(virtual[0]); i++)
		try_ways(virtual[i], WAYS);
}

static void try_port(uint16_t port, unsigned how)
{
	uint32_t value = 0;

	switch (how % 6) {
	case 0:
		__asm__ volatile("inb %1, %b0" : "+a"(value) : "d"(port) : "memory");
		break;
	case 1:
		__asm__ volatile("inw %1, %w0" : "+a"(value) : "d"(port) : "memory");
		break;
	case 2:
		__asm__ volatile("inl %1, %0" : "+a"(value) : "d"(port) : "memory");
		break;
	case 3:
		__asm__ volatile("outb %b0, %1" : : "a"(value), "d"(port) : "memory");
		break;
	case 4:
		__asm__ volatile("outw %w0, %1" : : "a"(value), "d"(port) : "memory");
		break;
	default:
		__asm__ volatile("outl %0, %1" : : "a"(value), "d"(port) : "memory");
	}
}

/* Each port in one way, in all six if the run is long. */
static void ports(uint64_t seed)
{
	for (uint32_t port = 0; port < PORTS; port += thin_run && port >= THICK_PORTS ? THIN_STEP : 1)
		for (unsigned how = 0; how < (long_run ? 6 : 1); how++)
			try_port((uint16_t)port, (unsigned)(port + port / 6 + seed + how));
}

static void string_io(uint64_t how, uint64_t port, uint64_t count)
{
	uint64_t from = (uint64_t)arena + (how & 8 ? 0x10000 : 0), to = from + 0x20000;

	if (how & 8)
		__asm__ volatile("std");
	switch (how & 7) {
	case 0:
		__asm__ volatile("rep insb" : "+D"(to), "+c"(count) : "d"(port) : "memory");
		break;
	case 1:
		__asm__ volatile("rep insw" : "+D"(to), "+c"(count) : "d"(port) : "memory");
		break;
	case 2:
		__asm__ volatile("rep insl" : "+D"(to), "+c"(count) : "d"(port) : "memory");
		break;
	case 3:
		__asm__ volatile("rep outsb" : "+S"(from), "+c"(count) : "d"(port) : "memory");
		break;
	case 4:
		__asm__ volatile("rep outsw" : "+S"(from), "+c"(count) : "d"(port) : "memory");
		break;
	case 5:
		__asm__ volatile("rep outsl" : "+S"(from), "+c"(count) : "d"(port) : "memory");
		break;
	case 6: /* across the end of memory */
		to = memory_end - 16;
		count = count > 64 ? 64 : count;
		__asm__ volatile("cld; rep insb" : "+D"(to), "+c"(count) : "d"(port) : "memory");
		break;
	default: /* out of a device's registers */
		from = WINDOWS_BASE;
		count = count > 64 ? 64 : count;
		__asm__ volatile("cld; rep outsb" : "+S"(from), "+c"(count) : "d"(port) : "memory");
	}
	__asm__ volatile("cld");
}

static void strings(uint64_t seed)
{
	static const uint16_t some[] = {0, 0x60, RESET_PORT, 0x80, SERIAL_PORT, SERIAL_PORT + 1,
		SERIAL_PORT + 5, SERIAL_PORT + 7, 0x400, 0xcf8, 0xffff, 0xfffd};
	static const uint16_t counts[] = {0, 1, 2, 15, 255, 257, 1023, 1024, 1025, 4095, 4096};

	(void)seed;
	memset(arena, 0, 0x40000); /* no reset */
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
			for (unsigned how = 0; how < 16; how++)
				/* KVM reads many items by one exit, and writes one. */
				if (long_run || how % 8 < 3 || counts[k] < (i % 4 ? 16 : 256))
					probe(string_io, how, some[i], counts[k]);
	probe(string_io, 3, 0x80, STRING_MAX);
}

const struct attack access_attacks[] = {
	{"widths", widths},
	{"addresses", addresses},
	{"ports", ports},
	{"strings", strings},
	{0},
};
