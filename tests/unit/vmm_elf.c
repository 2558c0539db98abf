/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel loader and the initrd loader on files made here: each malformed input with its error and its
 * exact words, then every header field at its extremes.
 */
#include "tests/support/unit.h"

#include "vmm/elf.h"
#include "vmm/initrd.h"
#include "vmm/layout.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY (16ull << 20)
#define TEXT_ADDRESS 0x200000ull
#define DATA_ADDRESS 0x400000ull
enum { TEXT_OFFSET = 0x1000, TEXT_SIZE = 0x800, DATA_OFFSET = 0x2000, DATA_SIZE = 0x400, BSS_SIZE = 0x3000 };

/* The image of a small kernel: a text and a data segment, and a note between them. */
struct image {
	Elf64_Ehdr header;
	Elf64_Phdr segments[3];
	uint8_t padding[TEXT_OFFSET - sizeof(Elf64_Ehdr) - 3 * sizeof(Elf64_Phdr)];
	uint8_t text[DATA_OFFSET - TEXT_OFFSET];
	uint8_t data[DATA_SIZE];
};

enum { TEXT, NOTE, DATA };

static struct image sound_image(void)
{
	struct image image = {.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
						 ELFDATA2LSB, EV_CURRENT},
				      .e_type = ET_EXEC,
				      .e_machine = EM_X86_64,
				      .e_version = EV_CURRENT,
				      .e_entry = TEXT_ADDRESS + 0x10,
				      .e_phoff = sizeof(Elf64_Ehdr),
				      .e_phentsize = sizeof(Elf64_Phdr),
				      .e_phnum = 3}};

	image.segments[TEXT] = (Elf64_Phdr){.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_offset = TEXT_OFFSET,
		.p_vaddr = 0xffffffff80000000ull + TEXT_ADDRESS,
		.p_paddr = TEXT_ADDRESS,
		.p_filesz = TEXT_SIZE,
		.p_memsz = TEXT_SIZE};
	image.segments[NOTE] =
		(Elf64_Phdr){.p_type = PT_NOTE, .p_offset = UINT64_MAX, .p_filesz = UINT64_MAX};
	image.segments[DATA] = (Elf64_Phdr){.p_type = PT_LOAD,
		.p_flags = PF_R | PF_W,
		.p_offset = DATA_OFFSET,
		.p_vaddr = 0xffffffff80000000ull + DATA_ADDRESS,
		.p_paddr = DATA_ADDRESS,
		.p_filesz = DATA_SIZE,
		.p_memsz = BSS_SIZE};
	memset(image.text, 0xcc, sizeof(image.text));
	memset(image.data, 0xdd, sizeof(image.data));
	return image;
}

static int make_file(const void *data, size_t size)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, size), size);
	return fd;
}

/* Loads those bytes into fresh memory of MEMORY bytes. */
static int load(const void *data, size_t size, struct elf_image *image, char *why)
{
	struct guest_memory memory = {0};
	int fd = make_file(data, size), r;

	assert_int_equal(guest_memory_init(&memory, MEMORY), 0);
	why[0] = '\0';
	r = elf_load(fd, &memory, image, why);
	guest_memory_finish(&memory);
	close(fd);
	return r;
}

static void a_sound_kernel_is_loaded(void **state)
{
	(void)state;
	struct image file = sound_image();
	struct guest_memory memory = {0};
	struct elf_image image = {0};
	uint8_t byte = 0, bytes[DATA_SIZE + 1];
	char why[ELF_WHY_MAX];
	int fd = make_file(&file, sizeof(file));

	assert_int_equal(guest_memory_init(&memory, MEMORY), 0);
	assert_int_equal(elf_load(fd, &memory, &image, why), 0);
	assert_int_equal(image.entry, TEXT_ADDRESS + 0x10);
	assert_int_equal(image.start, TEXT_ADDRESS);
	assert_int_equal(image.end, DATA_ADDRESS + BSS_SIZE);
	assert_int_equal(guest_memory_read(&memory, TEXT_ADDRESS + TEXT_SIZE - 1, &byte, 1), 0);
	assert_int_equal(byte, 0xcc);
	assert_int_equal(guest_memory_read(&memory, TEXT_ADDRESS + TEXT_SIZE, &byte, 1), 0);
	assert_int_equal(byte, 0);
	assert_int_equal(guest_memory_read(&memory, DATA_ADDRESS, bytes, sizeof(bytes)), 0);
	assert_memory_equal(bytes, file.data, DATA_SIZE);
	assert_int_equal(bytes[DATA_SIZE], 0);
	guest_memory_finish(&memory);
	close(fd);
}

static void a_virtual_entry_is_translated(void **state)
{
	(void)state;
	struct image file = sound_image();
	struct elf_image image = {0};
	char why[ELF_WHY_MAX];

	file.header.e_type = ET_DYN;
	file.header.e_entry = 0xffffffff80000000ull + TEXT_ADDRESS + 0x20;
	assert_int_equal(load(&file, sizeof(file), &image, why), 0);
	assert_int_equal(image.entry, TEXT_ADDRESS + 0x20);
}

static void a_segment_may_end_where_memory_ends(void **state)
{
	(void)state;
	struct image file = sound_image();
	struct elf_image image = {0};
	char why[ELF_WHY_MAX];

	file.segments[DATA].p_paddr = MEMORY - BSS_SIZE;
	assert_int_equal(load(&file, sizeof(file), &image, why), 0);
	assert_int_equal(image.end, MEMORY);
	file.segments[DATA].p_paddr++;
	assert_int_equal(load(&file, sizeof(file), &image, why), -E2BIG);
	assert_string_equal(why, "needs memory up to 17 MiB and the guest has 16 MiB; give more with --mem");
}

/* Changes one thing of a sound image. */
struct flaw {
	size_t offset, width;
	uint64_t value;
	int error;
	const char *why;
};

#define HEADER(field) offsetof(struct image, header.field), sizeof(((Elf64_Ehdr *)0)->field)
#define IDENT(index) offsetof(struct image, header.e_ident) + (index), 1
#define SEGMENT(number, field)                                                                               \
	offsetof(struct image, segments) + (number) * sizeof(Elf64_Phdr) + offsetof(Elf64_Phdr, field),      \
		sizeof(((Elf64_Phdr *)0)->field)

static const struct flaw flaws[] = {
	{IDENT(0), 0, -ENOEXEC, "is not an ELF file; give the uncompressed vmlinux"},
	{IDENT(3), 'f', -ENOEXEC, "is not an ELF file; give the uncompressed vmlinux"},
	{IDENT(EI_CLASS), ELFCLASS32, -ENOEXEC, "is a 32-bit ELF file; give a 64-bit vmlinux"},
	{IDENT(EI_CLASS), 3, -ENOEXEC, "has an unknown ELF class 3; give a 64-bit vmlinux"},
	{IDENT(EI_DATA), ELFDATA2MSB, -ENOEXEC, "is not little-endian; give an x86-64 vmlinux"},
	{IDENT(EI_VERSION), 9, -ENOEXEC, "has an unknown ELF version 9; give a vmlinux of version 1"},
	{HEADER(e_version), 2, -ENOEXEC, "has an unknown ELF version 2; give a vmlinux of version 1"},
	{HEADER(e_machine), EM_AARCH64, -ENOEXEC,
		"is for another machine (ELF number 183); give an x86-64 vmlinux"},
	{HEADER(e_type), ET_REL, -ENOEXEC, "is not an executable (ELF type 1); give a linked vmlinux"},
	{HEADER(e_type), ET_CORE, -ENOEXEC, "is not an executable (ELF type 4); give a linked vmlinux"},
	{HEADER(e_phentsize), 32, -EINVAL, "has program headers of 32 bytes, not 56; build the kernel again"},
	{HEADER(e_phnum), 0, -EINVAL, "has 0 program headers, not 1 to 64; give the uncompressed vmlinux"},
	{HEADER(e_phnum), 65, -EINVAL, "has 65 program headers, not 1 to 64; give the uncompressed vmlinux"},
	{HEADER(e_phnum), PN_XNUM, -EINVAL,
		"has 65535 program headers, not 1 to 64; give the uncompressed vmlinux"},
	{HEADER(e_phoff), sizeof(struct image) - 3 * sizeof(Elf64_Phdr) + 1, -ENODATA,
		"is truncated in its program headers; copy it again"},
	{HEADER(e_phoff), UINT64_MAX, -ENODATA, "is truncated in its program headers; copy it again"},
	{HEADER(e_entry), TEXT_ADDRESS - 1, -EINVAL,
		"has its entry 0x1fffff outside of its code; build the kernel again"},
	{HEADER(e_entry), TEXT_ADDRESS + TEXT_SIZE, -EINVAL,
		"has its entry 0x200800 outside of its code; build the kernel again"},
	{HEADER(e_entry), DATA_ADDRESS, -EINVAL,
		"has its entry 0x400000 outside of its code; build the kernel again"},
	{SEGMENT(TEXT, p_offset), sizeof(struct image) - TEXT_SIZE + 1, -ENODATA,
		"is truncated in segment 0; copy it again"},
	{SEGMENT(TEXT, p_offset), UINT64_MAX - 16, -ENODATA, "is truncated in segment 0; copy it again"},
	{SEGMENT(DATA, p_filesz), DATA_SIZE + 1, -ENODATA, "is truncated in segment 2; copy it again"},
	{SEGMENT(TEXT, p_filesz), TEXT_SIZE + 1, -EINVAL,
		"has more bytes in segment 0 than memory for them; build the kernel again"},
	{SEGMENT(TEXT, p_memsz), 0, -EINVAL,
		"has more bytes in segment 0 than memory for them; build the kernel again"},
	{SEGMENT(DATA, p_memsz), UINT64_MAX, -EINVAL,
		"has a segment 2 that wraps around the end of the address space; build the kernel again"},
	{SEGMENT(DATA, p_memsz), MEMORY, -E2BIG,
		"needs memory up to 20 MiB and the guest has 16 MiB; give more with --mem"},
	{SEGMENT(DATA, p_paddr), MEMORY, -E2BIG,
		"needs memory up to 17 MiB and the guest has 16 MiB; give more with --mem"},
	{SEGMENT(DATA, p_paddr), 0xc0000000 - BSS_SIZE, -E2BIG,
		"needs memory up to 3072 MiB and the guest has 16 MiB; give more with --mem"},
	{SEGMENT(DATA, p_paddr), 0xc0000001 - BSS_SIZE, -EINVAL,
		"has a segment 2 that ends at 0xc0000001, above 0xc0000000 where memory has a hole; build "
		"the kernel "
		"for a lower address"},
	{SEGMENT(DATA, p_paddr), 0x100000000, -EINVAL,
		"has a segment 2 that ends at 0x100003000, above 0xc0000000 where memory has a hole; build "
		"the "
		"kernel for a lower address"},
	{SEGMENT(DATA, p_paddr), UINT64_MAX - BSS_SIZE, -EINVAL,
		"has a segment 2 that ends at 0xffffffffffffffff, above 0xc0000000 where memory has a hole; "
		"build "
		"the kernel for a lower address"},
	{SEGMENT(TEXT, p_paddr), ELF_LOAD_MIN - 1, -EINVAL,
		"has a segment 0 at 0xfffff, below 0x100000; build the kernel for a higher address"},
	{SEGMENT(DATA, p_paddr), TEXT_ADDRESS + TEXT_SIZE - 1, -EINVAL,
		"has a segment 2 that overlaps another; build the kernel again"},
	{SEGMENT(DATA, p_paddr), TEXT_ADDRESS - BSS_SIZE + 1, -EINVAL,
		"has a segment 2 that overlaps another; build the kernel again"},
};

static void malformed_kernels_are_refused_in_words(void **state)
{
	(void)state;

	for (size_t i = 0; i < sizeof(flaws) / sizeof(flaws[0]); i++) {
		struct image file = sound_image();
		struct elf_image image = {0};
		char why[ELF_WHY_MAX];

		memcpy((uint8_t *)&file + flaws[i].offset, &flaws[i].value, flaws[i].width);
		assert_int_equal(load(&file, sizeof(file), &image, why), flaws[i].error);
		assert_string_equal(why, flaws[i].why);
	}
}

static void nothing_to_load_is_refused(void **state)
{
	(void)state;
	struct image file = sound_image();
	struct elf_image image = {0};
	char why[ELF_WHY_MAX];

	file.segments[TEXT].p_type = PT_NULL;
	file.segments[DATA].p_filesz = 0;
	file.segments[DATA].p_memsz = 0;
	assert_int_equal(load(&file, sizeof(file), &image, why), -EINVAL);
	assert_string_equal(why, "has nothing to load; give the uncompressed vmlinux");
}

static void a_refused_kernel_leaves_memory_untouched(void **state)
{
	(void)state;
	struct image file = sound_image();
	struct guest_memory memory = {0};
	struct elf_image image = {0};
	uint8_t byte = 0x11;
	char why[ELF_WHY_MAX];
	int fd;

	file.segments[DATA].p_paddr = MEMORY;
	fd = make_file(&file, sizeof(file));
	assert_int_equal(guest_memory_init(&memory, MEMORY), 0);
	assert_int_equal(elf_load(fd, &memory, &image, why), -E2BIG);
	assert_int_equal(guest_memory_read(&memory, TEXT_ADDRESS, &byte, 1), 0);
	assert_int_equal(byte, 0);
	guest_memory_finish(&memory);
	close(fd);
}

/* Every length from nothing to all but the last byte. */
static void truncated_kernels_are_refused(void **state)
{
	(void)state;
	struct image file = sound_image();

	for (size_t size = 0; size < sizeof(file); size += size < TEXT_OFFSET ? 1 : 61) {
		struct elf_image image = {0};
		char why[ELF_WHY_MAX];
		int r = load(&file, size, &image, why);
		const char *wanted = "is truncated in segment 0; copy it again";

		if (size == 0)
			wanted = "is empty; give the uncompressed vmlinux";
		else if (size < SELFMAG)
			wanted = "is not an ELF file; give the uncompressed vmlinux";
		else if (size < sizeof(Elf64_Ehdr))
			wanted = "is truncated in its ELF header; copy it again";
		else if (size < sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr))
			wanted = "is truncated in its program headers; copy it again";
		else if (size >= TEXT_OFFSET + TEXT_SIZE)
			wanted = "is truncated in segment 2; copy it again";
		assert_string_equal(why, wanted);
		assert_int_equal(r, size > 0 && size < SELFMAG ? -ENOEXEC : -ENODATA);
	}
}

static void a_bzimage_is_named(void **state)
{
	(void)state;
	static const uint8_t magic[] = {'H', 'd', 'r', 'S'};
	static uint8_t file[4096];
	struct elf_image image = {0};
	char why[ELF_WHY_MAX];

	file[0x1fe] = 0x55;
	file[0x1ff] = 0xaa;
	memcpy(file + 0x202, magic, sizeof(magic));
	assert_int_equal(load(file, sizeof(file), &image, why), -ENOEXEC);
	assert_string_equal(why, "is a compressed bzImage; give the uncompressed vmlinux");
	/* as short as it can be told, and one byte less */
	assert_int_equal(load(file, 0x206, &image, why), -ENOEXEC);
	assert_string_equal(why, "is a compressed bzImage; give the uncompressed vmlinux");
	assert_int_equal(load(file, 0x205, &image, why), -ENOEXEC);
	assert_string_equal(why, "is not an ELF file; give the uncompressed vmlinux");
}

static void a_short_32_bit_file_is_named(void **state)
{
	(void)state;
	Elf32_Ehdr header = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS32, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = EM_386,
		.e_version = EV_CURRENT};
	struct elf_image image = {0};
	char why[ELF_WHY_MAX];

	assert_int_equal(load(&header, sizeof(header), &image, why), -ENOEXEC);
	assert_string_equal(why, "is a 32-bit ELF file; give a 64-bit vmlinux");
}

static void what_is_no_file_is_refused(void **state)
{
	(void)state;
	struct guest_memory memory = {0};
	struct elf_image image = {0};
	struct initrd initrd = {0};
	char why[ELF_WHY_MAX];
	int directory = open("/", O_RDONLY | O_CLOEXEC), unreadable = make_file("\x7f"
										"ELF",
								 4);
	char name[64];

	assert_int_equal(guest_memory_init(&memory, MEMORY), 0);
	assert_int_equal(elf_load(directory, &memory, &image, why), -EINVAL);
	assert_string_equal(why, "is not a regular file; give the uncompressed vmlinux");
	assert_int_equal(initrd_load(directory, &memory, 0, &initrd, why), -EINVAL);
	assert_string_equal(why, "is not a regular file; give an initramfs");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", unreadable);
	close(directory);
	directory = open(name, O_WRONLY | O_CLOEXEC);
	assert_true(directory >= 0);
	assert_int_equal(elf_load(directory, &memory, &image, why), -EBADF);
	assert_string_equal(why, "cannot be read (Bad file descriptor); check the disk it is on");
	assert_int_equal(initrd_load(directory, &memory, 0, &initrd, why), -EBADF);
	assert_string_equal(why, "cannot be read (Bad file descriptor); check the disk it is on");
	close(directory);
	close(unreadable);
	assert_int_equal(elf_load(-1, &memory, &image, why), -EBADF);
	assert_string_equal(why, "cannot be examined (Bad file descriptor); give another file");
	guest_memory_finish(&memory);
}

static const uint64_t extremes[] = {0, 1, 2, 7, 8, 0x7f, 0x80, 0xff, 0x100, 0xfff, 0x1000, 0x7fff, 0x8000,
	0xffff, 0x10000, 0xfffff, 0x100000, MEMORY - 1, MEMORY, MEMORY + 1, 0x7fffffff, 0x80000000,
	0xffffffff, 0x100000000, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 0xfff, UINT64_MAX - 1,
	UINT64_MAX};
enum { EXTREMES = sizeof(extremes) / sizeof(extremes[0]) };

static const struct {
	size_t offset, width;
} fields[] = {{HEADER(e_type)}, {HEADER(e_machine)}, {HEADER(e_version)}, {HEADER(e_entry)},
	{HEADER(e_phoff)}, {HEADER(e_shoff)}, {HEADER(e_flags)}, {HEADER(e_ehsize)}, {HEADER(e_phentsize)},
	{HEADER(e_phnum)}, {HEADER(e_shnum)}, {SEGMENT(TEXT, p_type)}, {SEGMENT(TEXT, p_flags)},
	{SEGMENT(TEXT, p_offset)}, {SEGMENT(TEXT, p_vaddr)}, {SEGMENT(TEXT, p_paddr)},
	{SEGMENT(TEXT, p_filesz)}, {SEGMENT(TEXT, p_memsz)}, {SEGMENT(TEXT, p_align)},
	{SEGMENT(DATA, p_offset)}, {SEGMENT(DATA, p_vaddr)}, {SEGMENT(DATA, p_paddr)},
	{SEGMENT(DATA, p_filesz)}, {SEGMENT(DATA, p_memsz)}};
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

/*
 * Memory whose last page is followed by one that cannot be touched: with ASan it shows every access outside.
 * What is accepted must lie within.
 */
static void check_bounds(const struct image *file, struct guest_memory *memory)
{
	static const int known[] = {0, -ENOEXEC, -EINVAL, -ENODATA, -E2BIG};
	struct elf_image image = {0};
	char why[ELF_WHY_MAX] = "";
	int fd = make_file(file, sizeof(*file)), r = elf_load(fd, memory, &image, why);
	bool found = false;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		found = found || r == known[i];
	assert_true(found);
	if (r == 0) {
		assert_true(image.start >= ELF_LOAD_MIN && image.start < image.end && image.end <= MEMORY);
		assert_true(image.entry >= image.start && image.entry < image.end);
	} else {
		assert_true(strlen(why) > 10 && strlen(why) < ELF_WHY_MAX - 1);
	}
	close(fd);
}

static void every_field_at_its_extremes_is_borne(void **state)
{
	(void)state;
	struct guest_memory memory = {.count = 1, .regions = {{.base = 0, .size = MEMORY}}};
	uint8_t *pages =
		mmap(NULL, MEMORY + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(pages, MAP_FAILED);
	memory.regions[0].host = pages + 4096;
	assert_int_equal(mprotect(memory.regions[0].host, MEMORY, PROT_READ | PROT_WRITE), 0);
	for (unsigned one = 0; one < FIELDS; one++)
		for (unsigned other = one; other < FIELDS; other++)
			for (unsigned value = 0; value < EXTREMES; value++) {
				struct image file = sound_image();

				memcpy((uint8_t *)&file + fields[one].offset, &extremes[value],
					fields[one].width);
				/* the same and the next value in a second field */
				memcpy((uint8_t *)&file + fields[other].offset,
					&extremes[(value + (one != other)) % EXTREMES], fields[other].width);
				check_bounds(&file, &memory);
			}
	munmap(pages, MEMORY + 8192);
}

static int load_initrd_into(
	uint64_t memory_size, size_t size, gpa_t kernel_end, struct initrd *initrd, uint8_t *last, char *why)
{
	struct guest_memory memory = {0};
	int fd = memfd_create("initrd", MFD_CLOEXEC), r;

	why[0] = '\0';
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (size > 0)
		assert_int_equal(pwrite(fd, "\x77", 1, (off_t)size - 1), 1);
	assert_int_equal(guest_memory_init(&memory, memory_size), 0);
	r = initrd_load(fd, &memory, kernel_end, initrd, why);
	if (r == 0)
		assert_int_equal(guest_memory_read(&memory, initrd->address + size - 1, last, 1), 0);
	guest_memory_finish(&memory);
	close(fd);
	return r;
}

static int load_initrd(size_t size, gpa_t kernel_end, struct initrd *initrd, uint8_t *last, char *why)
{
	return load_initrd_into(MEMORY, size, kernel_end, initrd, last, why);
}

/* However much memory there is above it. */
static void an_initrd_lies_below_the_hole(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {
		GUEST_HOLE_START, GUEST_HOLE_START + LAYOUT_PAGE, 6ull << 30, LAYOUT_MEMORY_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct initrd initrd = {0};
		uint8_t last = 0;
		char why[INITRD_WHY_MAX];

		assert_int_equal(load_initrd_into(sizes[i], 5000, 0x200000, &initrd, &last, why), 0);
		assert_int_equal(initrd.address, GUEST_HOLE_START - 8192);
		assert_int_equal(last, 0x77);
		assert_int_equal(
			load_initrd_into(sizes[i], 5000, GUEST_HOLE_START - 8191, &initrd, &last, why),
			-E2BIG);
		assert_string_equal(why,
			"has 5 KiB and the kernel leaves 7 KiB of memory below 3 GiB; give a smaller one");
	}
}

static void an_initrd_lies_at_the_end_of_memory(void **state)
{
	(void)state;
	struct initrd initrd = {0};
	uint8_t last = 0;
	char why[INITRD_WHY_MAX];

	assert_int_equal(load_initrd(1, 0x200000, &initrd, &last, why), 0);
	assert_int_equal(initrd.address, MEMORY - 4096);
	assert_int_equal(initrd.size, 1);
	assert_int_equal(last, 0x77);
	assert_int_equal(load_initrd(4096, 0x200000, &initrd, &last, why), 0);
	assert_int_equal(initrd.address, MEMORY - 4096);
	assert_int_equal(load_initrd(4097, 0x200000, &initrd, &last, why), 0);
	assert_int_equal(initrd.address, MEMORY - 8192);
	assert_int_equal(last, 0x77);
}

static void an_initrd_is_refused_in_words(void **state)
{
	(void)state;
	struct initrd initrd = {0};
	uint8_t last = 0;
	char why[INITRD_WHY_MAX];

	assert_int_equal(load_initrd(0, 0x200000, &initrd, &last, why), -ENODATA);
	assert_string_equal(why, "is empty; give an initramfs or leave --initrd out");
	/* to the last byte that fits, and one more */
	assert_int_equal(load_initrd(MEMORY - 0x200000, 0x200000, &initrd, &last, why), 0);
	assert_int_equal(initrd.address, 0x200000);
	assert_int_equal(load_initrd(MEMORY - 0x200000 + 1, 0x200000, &initrd, &last, why), -E2BIG);
	assert_string_equal(
		why, "has 14337 KiB and the kernel leaves 14336 KiB of memory; give more with --mem");
	assert_int_equal(load_initrd(MEMORY + 1, 0x200000, &initrd, &last, why), -E2BIG);
	assert_string_equal(
		why, "has 16385 KiB and the kernel leaves 14336 KiB of memory; give more with --mem");
	assert_int_equal(load_initrd(1, MEMORY, &initrd, &last, why), -E2BIG);
	assert_string_equal(why, "has 1 KiB and the kernel leaves 0 KiB of memory; give more with --mem");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sound_kernel_is_loaded),
		cmocka_unit_test(a_virtual_entry_is_translated),
		cmocka_unit_test(a_segment_may_end_where_memory_ends),
		cmocka_unit_test(malformed_kernels_are_refused_in_words),
		cmocka_unit_test(nothing_to_load_is_refused),
		cmocka_unit_test(a_refused_kernel_leaves_memory_untouched),
		cmocka_unit_test(truncated_kernels_are_refused),
		cmocka_unit_test(a_bzimage_is_named),
		cmocka_unit_test(a_short_32_bit_file_is_named),
		cmocka_unit_test(what_is_no_file_is_refused),
		cmocka_unit_test(every_field_at_its_extremes_is_borne),
		cmocka_unit_test(an_initrd_lies_at_the_end_of_memory),
		cmocka_unit_test(an_initrd_lies_below_the_hole),
		cmocka_unit_test(an_initrd_is_refused_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
