/* SPDX-License-Identifier: Apache-2.0 */
/* The structures are those of the specification's chapter 4, its tables named beside them. */
#include "vmm/mptable_x86_64.h"
#include "vmm/layout.h"
#include <errno.h>
#include <string.h>

enum {
	PARAGRAPH = 16,
	REVISION = 4, /* of 1.4 */

	/* types of entries (table 4-3) */
	ENTRY_PROCESSOR = 0,
	ENTRY_BUS = 1,
	ENTRY_IOAPIC = 2,
	ENTRY_INTERRUPT = 3,
	ENTRY_LOCAL_INTERRUPT = 4,

	CPU_ENABLED = 1 << 0,
	CPU_BOOTSTRAP = 1 << 1,
	CPU_SIGNATURE = 0xfff, /* family, model and stepping: what the field has room for */
	/* FPU, MCE, CX8, APIC: the features that the specification knows (table 4-6) */
	CPU_FEATURES = 1 << 0 | 1 << 7 | 1 << 8 | 1 << 9,

	APIC_VERSION_LOCAL = 0x14, /* of KVM's local APIC */
	APIC_VERSION_IO = 0x11,	   /* of the IOAPIC's version register */
	APIC_USABLE = 1 << 0,
	APIC_ALL = 0xff,

	/* types of interrupts (table 4-11) and their flags */
	INTERRUPT_VECTORED = 0,
	INTERRUPT_NMI = 1,
	FLAG_ACTIVE_HIGH = 1 << 0,
	FLAG_EDGE = 1 << 2,

	BUS_ISA = 0,
	LINT_NMI = 1, /* the pin of a local APIC that NMIs come in by */
};

/* Table 4-1. */
struct floating_pointer {
	uint8_t signature[4];
	uint32_t table;
	uint8_t paragraphs;
	uint8_t revision;
	uint8_t checksum;
	uint8_t default_configuration; /* 0: there is a table */
	uint8_t imcr;		       /* bit 7: PIC mode; 0: virtual wire */
	uint8_t reserved[3];
};

/* Table 4-2. */
struct table_header {
	uint8_t signature[4];
	uint16_t length; /* without extended entries, of which there are none */
	uint8_t revision;
	uint8_t checksum;
	uint8_t oem[8];
	uint8_t product[12];
	uint32_t oem_table;
	uint16_t oem_size;
	uint16_t entries;
	uint32_t local_apic;
	uint16_t extended_length;
	uint8_t extended_checksum;
	uint8_t reserved;
};

/* Table 4-4. */
struct processor {
	uint8_t type;
	uint8_t apic_id;
	uint8_t apic_version;
	uint8_t flags;
	uint32_t signature;
	uint32_t features;
	uint32_t reserved[2];
};

/* Table 4-7. */
struct bus {
	uint8_t type;
	uint8_t id;
	uint8_t name[6];
};

/* Table 4-9. */
struct ioapic_entry {
	uint8_t type;
	uint8_t id;
	uint8_t version;
	uint8_t flags;
	uint32_t address;
};

/* Tables 4-10 and 4-12, which have one form. */
struct interrupt {
	uint8_t type;
	uint8_t kind;
	uint16_t flags;
	uint8_t bus;
	uint8_t irq;
	uint8_t apic;
	uint8_t pin;
};

_Static_assert(sizeof(struct floating_pointer) == PARAGRAPH, "section 4.1");
_Static_assert(sizeof(struct table_header) == 44, "section 4.2");
_Static_assert(sizeof(struct processor) == 20 && sizeof(struct bus) == 8 &&
		       sizeof(struct ioapic_entry) == 8 && sizeof(struct interrupt) == 8,
	"section 4.3");
_Static_assert(sizeof(struct floating_pointer) + sizeof(struct table_header) +
			       LAYOUT_CPUS_MAX * sizeof(struct processor) + sizeof(struct bus) +
			       sizeof(struct ioapic_entry) +
			       (MPTABLE_DEVICES_MAX + 1) * sizeof(struct interrupt) <=
		       MPTABLE_SIZE_MAX,
	"the largest table fits");
_Static_assert(LAYOUT_CPUS_MAX < 15, "an IOAPIC's id has 4 bits, and 15 is for all");

/* A table being written. */
struct writer {
	uint8_t bytes[MPTABLE_SIZE_MAX];
	size_t length;
	uint16_t entries;
};

static void append(struct writer *writer, const void *data, size_t size)
{
	memcpy(writer->bytes + writer->length, data, size);
	writer->length += size;
}

static void append_entry(struct writer *writer, const void *entry, size_t size)
{
	append(writer, entry, size);
	writer->entries++;
}

/* What makes the sum of all bytes 0. */
static uint8_t checksum(const void *data, size_t length)
{
	const uint8_t *bytes = data;
	uint8_t sum = 0;

	for (size_t i = 0; i < length; i++)
		sum = (uint8_t)(sum + bytes[i]);
	return (uint8_t)-sum;
}

static void append_processors(struct writer *writer, const struct mptable_config *config)
{
	for (unsigned i = 0; i < config->cpus; i++) {
		struct processor processor = {.type = ENTRY_PROCESSOR,
			.apic_id = (uint8_t)i,
			.apic_version = APIC_VERSION_LOCAL,
			.flags = CPU_ENABLED | (i == 0 ? CPU_BOOTSTRAP : 0),
			.signature = config->signature & CPU_SIGNATURE,
			.features = config->features & CPU_FEATURES};

		append_entry(writer, &processor, sizeof(processor));
	}
}

/* There is no PIC, so no pin has an ExtINT: what is not named is not connected. */
static void append_interrupts(struct writer *writer, const struct mptable_config *config)
{
	struct interrupt interrupt = {.type = ENTRY_INTERRUPT,
		.kind = INTERRUPT_VECTORED,
		.flags = FLAG_ACTIVE_HIGH | FLAG_EDGE,
		.bus = BUS_ISA,
		.apic = (uint8_t)mptable_ioapic_id(config->cpus)};

	for (unsigned i = 0; i < config->devices; i++) {
		interrupt.irq = interrupt.pin = (uint8_t)layout_pin(MPTABLE_FIRST_PIN, i, config->serial);
		append_entry(writer, &interrupt, sizeof(interrupt));
	}
	if (config->serial) {
		interrupt.irq = interrupt.pin = LAYOUT_SERIAL_PIN;
		append_entry(writer, &interrupt, sizeof(interrupt));
	}
	interrupt = (struct interrupt){.type = ENTRY_LOCAL_INTERRUPT,
		.kind = INTERRUPT_NMI,
		.bus = BUS_ISA,
		.apic = APIC_ALL,
		.pin = LINT_NMI};
	append_entry(writer, &interrupt, sizeof(interrupt));
}

/* In ascending order of their types, as section 4.3 wants them. */
static void append_entries(struct writer *writer, const struct mptable_config *config)
{
	struct bus bus = {.type = ENTRY_BUS, .id = BUS_ISA, .name = {'I', 'S', 'A', ' ', ' ', ' '}};
	struct ioapic_entry ioapic = {.type = ENTRY_IOAPIC,
		.id = (uint8_t)mptable_ioapic_id(config->cpus),
		.version = APIC_VERSION_IO,
		.flags = APIC_USABLE,
		.address = (uint32_t)LAYOUT_IOAPIC_BASE};

	append_processors(writer, config);
	append_entry(writer, &bus, sizeof(bus));
	append_entry(writer, &ioapic, sizeof(ioapic));
	append_interrupts(writer, config);
}

static void write_header(struct writer *writer)
{
	struct table_header header = {.signature = {'P', 'C', 'M', 'P'},
		.length = (uint16_t)writer->length,
		.revision = REVISION,
		.oem = {'T', 'N', 'D', 'R', 'B', 'O', 'X', ' '},
		.product = {'M', 'I', 'C', 'R', 'O', 'V', 'M', ' ', ' ', ' ', ' ', ' '},
		.entries = writer->entries,
		.local_apic = (uint32_t)LAYOUT_LAPIC_BASE};

	memcpy(writer->bytes, &header, sizeof(header));
	header.checksum = checksum(writer->bytes, writer->length);
	memcpy(writer->bytes, &header, sizeof(header));
}

unsigned mptable_ioapic_id(unsigned cpus)
{
	return cpus;
}

int mptable_write(
	const struct mptable_config *config, gpa_t address, void *buffer, size_t size, size_t *length)
{
	struct floating_pointer pointer = {.signature = {'_', 'M', 'P', '_'},
		.table = (uint32_t)(address + sizeof(pointer)),
		.paragraphs = sizeof(pointer) / PARAGRAPH,
		.revision = REVISION};
	struct writer writer = {.length = sizeof(struct table_header)};

	if (config->cpus == 0 || config->cpus > LAYOUT_CPUS_MAX ||
		config->devices > MPTABLE_DEVICES_MAX - (config->serial ? 1u : 0u) ||
		address % PARAGRAPH != 0 || address > UINT32_MAX - MPTABLE_SIZE_MAX)
		return -EINVAL;
	append_entries(&writer, config);
	write_header(&writer);
	if (size < sizeof(pointer) + writer.length)
		return -ENOSPC;
	pointer.checksum = checksum(&pointer, sizeof(pointer));
	memcpy(buffer, &pointer, sizeof(pointer));
	memcpy((uint8_t *)buffer + sizeof(pointer), writer.bytes, writer.length);
	*length = sizeof(pointer) + writer.length;
	return 0;
}
