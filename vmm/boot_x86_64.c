/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot_x86_64.h"
#include "vmm/layout.h"
#include <asm/bootparam.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Bits of the control registers, of RFLAGS and EFER (AMD64 manual, volume 2, chapter 3). */
#define CR0_PE (1ull << 0)
#define CR0_ET (1ull << 4)
#define CR0_PG (1ull << 31)
#define CR4_PAE (1ull << 5)
#define EFER_LME (1ull << 8)
#define EFER_LMA (1ull << 10)
#define RFLAGS_FIXED (1ull << 1)

/* Page table entries (chapter 5). */
#define PAGE_PRESENT (1ull << 0)
#define PAGE_WRITE (1ull << 1)
#define PAGE_LARGE (1ull << 7)
#define LARGE_PAGE (2ull << 20)
#define DIRECTORY_SPAN (1ull << 30) /* what one page directory maps */
enum { TABLE_ENTRIES = 512 };

/* Types of descriptors (chapter 4). */
enum {
	TYPE_CODE = 0xb /* execute, read, accessed */,
	TYPE_DATA = 0x3 /* read, write, accessed */,
	TYPE_TSS_BUSY = 0xb
};

enum {
	GDT_ENTRIES = 6,	 /* two empty ones, code, data, and the task's two */
	LOADER_UNDEFINED = 0xff, /* type_of_loader: none with a number */
	BOOT_FLAG = 0xaa55,
	PROTOCOL_VERSION = 0x020f, /* 2.15, of Linux 6.1 */
	KERNEL_ALIGNMENT = 0x1000000,
	E820_RAM = 1,
	E820_RESERVED = 2,
	SETUP_ALIGNMENT = 8,
};
#define HEADER_MAGIC 0x53726448u /* "HdrS" */

_Static_assert(
	BOOT_GDT + GDT_ENTRIES * 8 <= BOOT_CMDLINE, "the descriptor table ends before the command line");
_Static_assert(BOOT_CMDLINE + BOOT_CMDLINE_MAX <= BOOT_PARAMS, "the command line ends before boot_params");
_Static_assert(sizeof(struct boot_params) == LAYOUT_PAGE, "boot protocol");
_Static_assert(
	BOOT_PARAMS + sizeof(struct boot_params) <= BOOT_PAGE_TABLES, "boot_params end before the tables");
_Static_assert(BOOT_PAGE_TABLES + LAYOUT_PAGE * (2 + GUEST_HOLE_START / DIRECTORY_SPAN) <= BOOT_SETUP_DATA,
	"the page tables end before setup_data");

static struct boot_segment flat_segment(uint16_t selector, uint8_t type, bool code)
{
	return (struct boot_segment){.base = 0,
		.limit = 0xffffffff,
		.selector = selector,
		.type = type,
		.present = 1,
		.db = !code,
		.s = 1,
		.l = code,
		.g = 1};
}

/* Intel refuses to enter a guest whose task register is not a busy TSS. */
static struct boot_segment task_segment(void)
{
	return (struct boot_segment){.limit = 0x67, .selector = BOOT_TR, .type = TYPE_TSS_BUSY, .present = 1};
}

/* The first 8 bytes of a descriptor (figure 4-20 and on). */
static uint64_t encode_segment(const struct boot_segment *segment)
{
	uint64_t limit = segment->g ? segment->limit >> 12 : segment->limit;
	uint64_t flags = (uint64_t)segment->type | (uint64_t)segment->s << 4 | (uint64_t)segment->dpl << 5 |
			 (uint64_t)segment->present << 7 | (uint64_t)segment->l << 13 |
			 (uint64_t)segment->db << 14 | (uint64_t)segment->g << 15;

	return (limit & 0xffff) | (segment->base & 0xffffff) << 16 | flags << 40 | (limit >> 16 & 0xf) << 48 |
	       (segment->base >> 24 & 0xff) << 56;
}

static int write_gdt(const struct guest_memory *memory, struct boot_state *state)
{
	uint64_t gdt[GDT_ENTRIES] = {0};

	state->code = flat_segment(BOOT_CS, TYPE_CODE, true);
	state->data = flat_segment(BOOT_DS, TYPE_DATA, false);
	state->task = task_segment();
	gdt[BOOT_CS / 8] = encode_segment(&state->code);
	gdt[BOOT_DS / 8] = encode_segment(&state->data);
	gdt[BOOT_TR / 8] = encode_segment(&state->task);
	state->gdt_base = BOOT_GDT;
	state->gdt_limit = sizeof(gdt) - 1;
	return guest_memory_write(memory, BOOT_GDT, gdt, sizeof(gdt));
}

/*
 * Maps memory below the hole to itself by 2 MiB pages: they need no feature that a processor may lack. What a
 * kernel reads before it has tables of its own lies there, and the protocol asks for no more.
 */
static int write_page_tables(const struct guest_memory *memory, struct boot_state *state)
{
	uint64_t size = memory->regions[0].size;
	unsigned directories = (unsigned)((size + DIRECTORY_SPAN - 1) / DIRECTORY_SPAN);
	uint64_t *tables = NULL;
	void *pointer = NULL;
	int r;

	r = guest_memory_pointer(memory, BOOT_PAGE_TABLES, (2 + directories) * LAYOUT_PAGE, &pointer);
	if (r < 0)
		return r;
	tables = pointer;
	tables[0] = (BOOT_PAGE_TABLES + LAYOUT_PAGE) | PAGE_PRESENT | PAGE_WRITE;
	for (unsigned i = 0; i < directories; i++)
		tables[TABLE_ENTRIES + i] =
			(BOOT_PAGE_TABLES + (2 + i) * LAYOUT_PAGE) | PAGE_PRESENT | PAGE_WRITE;
	for (uint64_t i = 0; i * LARGE_PAGE < size; i++)
		tables[2 * TABLE_ENTRIES + i] = (i * LARGE_PAGE) | PAGE_PRESENT | PAGE_WRITE | PAGE_LARGE;
	state->cr3 = BOOT_PAGE_TABLES;
	return 0;
}

/* Prepends one setup_data to the list, at *next; *next moves behind it. */
static int add_setup_data(const struct guest_memory *memory, uint32_t type, const void *data, size_t size,
	gpa_t *next, gpa_t *head)
{
	struct setup_data header = {.next = *head, .type = type, .len = (uint32_t)size};
	int r;

	if (size == 0)
		return 0;
	if (*next + sizeof(header) + size > BOOT_MPTABLE)
		return -E2BIG;
	r = guest_memory_write(memory, *next, &header, sizeof(header));
	if (r == 0)
		r = guest_memory_write(memory, *next + sizeof(header), data, size);
	*head = *next;
	*next = (*next + sizeof(header) + size + SETUP_ALIGNMENT - 1) & ~(gpa_t)(SETUP_ALIGNMENT - 1);
	return r;
}

static int write_setup_data(const struct guest_memory *memory, const struct boot_config *config, gpa_t *head)
{
	gpa_t next = BOOT_SETUP_DATA;
	int r;

	*head = 0;
	if (config->tree_size > FDT_SIZE_MAX || config->seed_size > BOOT_SEED_MAX)
		return -E2BIG;
	r = add_setup_data(memory, SETUP_RNG_SEED, config->seed, config->seed_size, &next, head);
	return r < 0 ? r : add_setup_data(memory, SETUP_DTB, config->tree, config->tree_size, &next, head);
}

static int write_cmdline(const struct guest_memory *memory, const char *cmdline)
{
	size_t size = strlen(cmdline) + 1;

	return size > BOOT_CMDLINE_MAX ? -E2BIG : guest_memory_write(memory, BOOT_CMDLINE, cmdline, size);
}

static void add_range(struct boot_params *params, gpa_t start, gpa_t end, uint32_t type)
{
	params->e820_table[params->e820_entries++] =
		(struct boot_e820_entry){.addr = start, .size = end - start, .type = type};
}

/* Memory as a PC has it: usable but for the hole of video memory and firmware, and the one of the devices. */
static void fill_memory_map(struct boot_params *params, const struct guest_memory *memory, bool mptable)
{
	add_range(params, 0, mptable ? BOOT_MPTABLE : BOOT_LOW_END, E820_RAM);
	if (mptable)
		add_range(params, BOOT_MPTABLE, BOOT_LOW_END, E820_RESERVED);
	add_range(params, BOOT_HIGH_START, memory->regions[0].size, E820_RAM);
	for (unsigned i = 1; i < memory->count; i++)
		add_range(params, memory->regions[i].base, memory->regions[i].base + memory->regions[i].size,
			E820_RAM);
}

static int write_params(const struct guest_memory *memory, const struct boot_config *config, gpa_t setup_data)
{
	struct boot_params params;
	struct setup_header *header = &params.hdr;

	memset(&params, 0, sizeof(params));
	header->boot_flag = BOOT_FLAG;
	header->header = HEADER_MAGIC;
	header->version = PROTOCOL_VERSION;
	header->type_of_loader = LOADER_UNDEFINED;
	header->loadflags = LOADED_HIGH;
	header->kernel_alignment = KERNEL_ALIGNMENT;
	header->cmd_line_ptr = (uint32_t)BOOT_CMDLINE;
	header->cmdline_size = BOOT_CMDLINE_MAX - 1;
	header->setup_data = setup_data;
	header->ramdisk_image = (uint32_t)config->initrd.address;
	header->ramdisk_size = (uint32_t)config->initrd.size;
	fill_memory_map(&params, memory, config->mptable_size > 0);
	return guest_memory_write(memory, BOOT_PARAMS, &params, sizeof(params));
}

/* Usable memory between the hole of the PC and that of the devices: its size bytes are there. */
static bool is_high(const struct guest_memory *memory, gpa_t address, uint64_t size)
{
	void *pointer = NULL;

	return address >= BOOT_HIGH_START && address < GUEST_HOLE_START &&
	       guest_memory_pointer(memory, address, size, &pointer) == 0;
}

static int check_config(const struct guest_memory *memory, const struct boot_config *config)
{
	if (guest_memory_size(memory) < BOOT_HIGH_START + LAYOUT_PAGE ||
		guest_memory_size(memory) > LAYOUT_MEMORY_MAX)
		return -EFAULT;
	if (config->mptable_size > BOOT_MPTABLE_MAX)
		return -E2BIG;
	if (!is_high(memory, config->entry, 1))
		return -EINVAL;
	if (config->initrd.size > 0 && !is_high(memory, config->initrd.address, config->initrd.size))
		return -EINVAL;
	return 0;
}

int boot_write(const struct guest_memory *memory, const struct boot_config *config, struct boot_state *state)
{
	gpa_t setup_data = 0;
	int r = check_config(memory, config);

	if (r < 0)
		return r;
	memset(state, 0, sizeof(*state));
	state->rip = config->entry;
	state->rsi = BOOT_PARAMS;
	state->rflags = RFLAGS_FIXED;
	state->cr0 = CR0_PE | CR0_ET | CR0_PG;
	state->cr4 = CR4_PAE;
	state->efer = EFER_LME | EFER_LMA;
	r = write_gdt(memory, state);
	if (r == 0)
		r = write_page_tables(memory, state);
	if (r == 0)
		r = write_setup_data(memory, config, &setup_data);
	if (r == 0)
		r = write_cmdline(memory, config->cmdline);
	if (r == 0)
		r = write_params(memory, config, setup_data);
	if (r == 0 && config->mptable_size > 0)
		r = guest_memory_write(memory, BOOT_MPTABLE, config->mptable, config->mptable_size);
	return r;
}
