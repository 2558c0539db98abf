/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile guest: one kernel of our own, without Linux. It is told on its command line what to attack
 * (attack=NAME seed=N long), and says on the serial line how it went:
 *
 *   hostile: begin              what follows is the attack
 *   hostile: done               it is over, and the machine's devices still work for the guest
 *   hostile: failed WHAT        it is over, and something does not work
 *
 * After the last line it sleeps with interrupts off. Memory is mapped to itself up to 4 GiB; an exception
 * outside of probe() is a failure. Addresses as in vmm/layout.h.
 */
#ifndef TESTS_MACHINE_HOSTILE_GUEST_H
#define TESTS_MACHINE_HOSTILE_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WINDOWS_BASE 0xd0000000ull
#define POWEROFF_BASE 0xd0100000ull
#define PVPANIC_BASE 0xd0101000ull
#define IOAPIC_BASE 0xfec00000ull
#define LAPIC_BASE 0xfee00000ull
enum { LAPIC_TIMER_INITIAL = 0x380 }; /* from LAPIC_BASE */
#define LOW_HOLE 0xa0000ull
#define HIGH_HOLE 0xc0000000ull
#define GUEST_START 0x100000ull
#define PAGE 4096ull

enum {
	WINDOW = 0x1000,
	WINDOWS_MAX = 16,
	PINS_MAX = WINDOWS_MAX + 1, /* the serial line has one, too */
	SERIAL_PIN = 4,
	QUEUES_MAX = 8,
	RING_MAX = 256,
	SERIAL_PORT = 0x3f8,
	RESET_PORT = 0x64,
	RESET_VALUE = 0xfe,
	VECTOR_TEST = 0x40, /* counted and acknowledged, as all from 32 up are */
	VECTORS = 256,
	VALUES_MAX = 128,
};

/* --- entry.s --- */

/* Calls function(a, b, c). 0, or 1 + the vector of the exception that cut it short. */
unsigned probe(void (*function)(uint64_t a, uint64_t b, uint64_t c), uint64_t a, uint64_t b, uint64_t c);
void load_tables(void);	     /* descriptor tables, task register */
extern uint8_t trap_stubs[]; /* one each 16 bytes */
extern uint8_t task_descriptor[], task_state[];
struct __attribute__((packed)) table_pointer {
	uint16_t limit;
	uint64_t base;
};

/* --- machine.c --- */

extern volatile unsigned traps[VECTORS]; /* how often each vector came */
extern uint64_t memory_end;		 /* of memory from 1 MiB on */
extern bool long_run;			 /* as much as is sensible, not as little */
extern bool thin_run;			 /* where each exit costs more */
extern bool low_vectors;		 /* interrupts have the vectors of exceptions, too */
extern uint8_t _end[];			 /* of the guest itself, from GUEST_START */

void machine_init(const uint8_t *boot_params);
/* Maps that physical address' 2 MiB to the virtual address that is returned, in place of the one before. */
uint64_t map_elsewhere(uint64_t physical);
/* Interrupt controllers and page tables as they were at the start, whatever an attack did to them. */
void machine_settle(void);
void say(const char *text);
void say_number(uint64_t value);
/* Says that it failed, and sleeps. */
void fail(const char *what) __attribute__((noreturn));
void sleep_for_ever(void) __attribute__((noreturn));
void map_again(void); /* undoes what an attack did to the page tables */
/* Directories in use that map nothing the guest needs, and what they map. */
#define SPARE_TABLES_START (1ull << 30)
extern uint64_t *const spare_tables;

/* Values at which registers have their borders; the number of them. short_list: without single bits. */
unsigned list_values(uint64_t values[VALUES_MAX], bool short_list);

uint64_t next_random(uint64_t *state); /* SplitMix64 */

void *memset(void *to, int byte, size_t length);
void *memcpy(void *to, const void *from, size_t length);

/* Not PAUSE: many of these leave the guest. */
static inline void relax(void)
{
	__asm__ volatile("" : : : "memory");
}

static inline uint32_t read32(uint64_t address)
{
	return *(volatile uint32_t *)address;
}

static inline void write32(uint64_t address, uint32_t value)
{
	*(volatile uint32_t *)address = value;
}

static inline void out8(uint16_t port, uint8_t value)
{
	__asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port) : "memory");
}

static inline uint8_t in8(uint16_t port)
{
	uint8_t value;

	__asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port) : "memory");
	return value;
}

static inline uint64_t read_msr(uint32_t msr)
{
	uint32_t low, high;

	__asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr) : "memory");
	return (uint64_t)high << 32 | low;
}

static inline void write_msr(uint32_t msr, uint64_t value)
{
	__asm__ volatile("wrmsr" : : "c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32)) : "memory");
}

static inline void ioapic_write(uint32_t index, uint32_t value)
{
	write32(IOAPIC_BASE, index);
	write32(IOAPIC_BASE + 0x10, value);
}

static inline void lapic_write(uint32_t offset, uint32_t value)
{
	write32(LAPIC_BASE + offset, value);
}

static inline void allow_interrupts_briefly(void)
{
	__asm__ volatile("sti; nop; nop; nop; cli" : : : "memory");
}

/* --- devices.c --- */

struct ring {
	struct {
		uint64_t address;
		uint32_t length;
		uint16_t flags, next;
	} desc[RING_MAX];
	struct {
		uint16_t flags, index, ring[RING_MAX], used_event;
	} avail __attribute__((aligned(4096)));
	struct {
		uint16_t flags, index;
		struct {
			uint32_t id, length;
		} ring[RING_MAX];
		uint16_t avail_event;
	} used __attribute__((aligned(4096)));
} __attribute__((aligned(4096)));

enum { DESC_NEXT = 1, DESC_WRITE = 2 };

struct device {
	uint64_t base;
	uint32_t id;
	unsigned pin, queues;
	uint16_t queue_size[QUEUES_MAX];
};

extern struct device devices[WINDOWS_MAX];
extern unsigned device_count;
extern struct ring rings[QUEUES_MAX];
extern uint8_t arena[1 << 20];
/* The end of all that the guest has of its own, by the linker. */
extern uint8_t own_memory_end[] __asm__("_end");

void scan_devices(void);
/* NULL: none with that id after `after` (NULL: from the first). */
const struct device *find_device(uint32_t id, const struct device *after);
void device_reset(const struct device *device);
/* Resets it and goes up to that status; features as offered, but without EVENT_IDX. */
void device_go(const struct device *device, uint32_t status);
void device_set_queue(const struct device *device, unsigned queue, uint32_t size, uint64_t desc,
	uint64_t avail, uint64_t used);
/* Up, with all queues in `rings`, of at most `size` entries (a power of 2). */
void device_up(const struct device *device, unsigned size);
/* Shows what is in the table at head; kicks. */
void device_offer(const struct device *device, unsigned queue, unsigned size, uint16_t head);
/* False: it has not come. */
bool await_used(unsigned queue, uint16_t index);
/* A sector of a disk into arena; false: not with status 0. */
bool disk_read(const struct device *disk, uint64_t sector);
/* Resets all devices; then rng fills a buffer, disks read what was on them, an interrupt comes. Fails if not.
 */
void check_devices(void);

/* --- attacks: each returns when it is over --- */

struct attack {
	const char *name;
	void (*run)(uint64_t seed);
};
extern const struct attack register_attacks[], queue_attacks[], access_attacks[], processor_attacks[],
	ending_attacks[], random_attacks[], several_attacks[];

void feed(uint64_t seed); /* feed.c */

/* access.c: every instruction that reads or writes memory or ports in its own way; those up to `harmless`
 * need no probe. */
void access_memory(unsigned how, uint64_t address, uint64_t value);
extern const unsigned access_ways;

#endif
