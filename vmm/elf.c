/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel loader. The order is: what kind of file it is, its headers as a whole, each segment, and only
 * then the first byte into guest memory.
 */
#include "vmm/elf.h"
#include "common/io.h"
#include "vmm/reason.h"
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

/* The program headers come right behind the file's: one read brings both. */
enum { HEAD_BYTES = sizeof(Elf64_Ehdr) + ELF_SEGMENTS_MAX * sizeof(Elf64_Phdr) };

/* Where a bzImage says what it is: Documentation/x86/boot.rst, "The Real-Mode Kernel Header". */
enum { BZIMAGE_FLAG = 0x1fe, BZIMAGE_MAGIC = 0x202, BZIMAGE_HEAD = 0x206 };

/* A loadable segment whose numbers have been checked. */
struct segment {
	uint64_t offset, file_size; /* file_size <= size */
	gpa_t address;
	uint64_t size; /* not 0 */
	uint64_t virtual;
	bool executable;
};

struct kernel {
	int fd;
	uint64_t file_size;
	uint64_t entry;
	uint64_t headers; /* offset of the program headers */
	unsigned header_count;
	unsigned count;
	struct segment segments[ELF_SEGMENTS_MAX];
	uint64_t head_length;
	uint8_t head[HEAD_BYTES]; /* what the file begins with */
};

/* Reads exactly that; the caller has checked it against the size of the file. */
static int read_exactly(const struct kernel *kernel, uint64_t offset, void *data, uint64_t length, char *why)
{
	ssize_t count = io_pread_full(kernel->fd, data, length, (off_t)offset);

	if (count < 0)
		return reason_set(why, ELF_WHY_MAX, (int)count,
			"cannot be read (%s); check the disk it is on", strerror((int)-count));
	if ((uint64_t)count != length)
		return reason_set(why, ELF_WHY_MAX, -ENODATA,
			"became shorter while it was read; give a file that stays");
	return 0;
}

static int check_size(struct kernel *kernel, char *why)
{
	struct stat status;

	if (fstat(kernel->fd, &status) < 0)
		return reason_set(why, ELF_WHY_MAX, -errno, "cannot be examined (%s); give another file",
			strerror(errno));
	if (!S_ISREG(status.st_mode))
		return reason_set(
			why, ELF_WHY_MAX, -EINVAL, "is not a regular file; give the uncompressed vmlinux");
	if (status.st_size == 0)
		return reason_set(why, ELF_WHY_MAX, -ENODATA, "is empty; give the uncompressed vmlinux");
	kernel->file_size = (uint64_t)status.st_size;
	return 0;
}

static bool is_bzimage(const struct kernel *kernel)
{
	uint8_t head[BZIMAGE_HEAD];

	return kernel->file_size >= sizeof(head) &&
	       io_pread_full(kernel->fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	       head[BZIMAGE_FLAG] == 0x55 && head[BZIMAGE_FLAG + 1] == 0xaa &&
	       memcmp(head + BZIMAGE_MAGIC, "HdrS", 4) == 0;
}

static int check_kind(const Elf64_Ehdr *header, char *why)
{
	if (header->e_ident[EI_CLASS] == ELFCLASS32)
		return reason_set(why, ELF_WHY_MAX, -ENOEXEC, "is a 32-bit ELF file; give a 64-bit vmlinux");
	if (header->e_ident[EI_CLASS] != ELFCLASS64)
		return reason_set(why, ELF_WHY_MAX, -ENOEXEC,
			"has an unknown ELF class %u; give a 64-bit vmlinux", header->e_ident[EI_CLASS]);
	if (header->e_ident[EI_DATA] != ELFDATA2LSB)
		return reason_set(why, ELF_WHY_MAX, -ENOEXEC, "is not little-endian; give an x86-64 vmlinux");
	if (header->e_machine != EM_X86_64)
		return reason_set(why, ELF_WHY_MAX, -ENOEXEC,
			"is for another machine (ELF number %u); give an x86-64 vmlinux", header->e_machine);
	if (header->e_type != ET_EXEC && header->e_type != ET_DYN)
		return reason_set(why, ELF_WHY_MAX, -ENOEXEC,
			"is not an executable (ELF type %u); give a linked vmlinux", header->e_type);
	if (header->e_ident[EI_VERSION] != EV_CURRENT || header->e_version != EV_CURRENT)
		return reason_set(why, ELF_WHY_MAX, -ENOEXEC,
			"has an unknown ELF version %u; give a vmlinux of version 1",
			header->e_version != EV_CURRENT ? header->e_version : header->e_ident[EI_VERSION]);
	return 0;
}

/* Sets where the program headers are. */
static int read_header(struct kernel *kernel, char *why)
{
	Elf64_Ehdr header;
	uint64_t length = kernel->file_size, end = 0;
	int r;

	kernel->head_length = length < sizeof(kernel->head) ? length : sizeof(kernel->head);
	r = read_exactly(kernel, 0, kernel->head, kernel->head_length, why);
	if (r < 0)
		return r;
	memcpy(&header, kernel->head, sizeof(header)); /* zeros, where the file is shorter */
	if (length < SELFMAG || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return reason_set(why, ELF_WHY_MAX, -ENOEXEC,
			is_bzimage(kernel) ? "is a compressed bzImage; give the uncompressed vmlinux"
					   : "is not an ELF file; give the uncompressed vmlinux");
	if (length > EI_CLASS && header.e_ident[EI_CLASS] == ELFCLASS32)
		return check_kind(&header, why);
	if (length < sizeof(header))
		return reason_set(
			why, ELF_WHY_MAX, -ENODATA, "is truncated in its ELF header; copy it again");
	r = check_kind(&header, why);
	if (r < 0)
		return r;
	if (header.e_phentsize != sizeof(Elf64_Phdr))
		return reason_set(why, ELF_WHY_MAX, -EINVAL,
			"has program headers of %u bytes, not %zu; build the kernel again",
			header.e_phentsize, sizeof(Elf64_Phdr));
	if (header.e_phnum == 0 || header.e_phnum > ELF_SEGMENTS_MAX)
		return reason_set(why, ELF_WHY_MAX, -EINVAL,
			"has %u program headers, not 1 to %d; give the uncompressed vmlinux", header.e_phnum,
			ELF_SEGMENTS_MAX);
	if (__builtin_add_overflow(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr), &end) ||
		end > kernel->file_size)
		return reason_set(
			why, ELF_WHY_MAX, -ENODATA, "is truncated in its program headers; copy it again");
	kernel->entry = header.e_entry;
	kernel->headers = header.e_phoff;
	kernel->header_count = header.e_phnum;
	return 0;
}

static int check_segment(const struct kernel *kernel, unsigned number, const Elf64_Phdr *header,
	const struct guest_memory *memory, char *why)
{
	uint64_t end = 0;
	void *pointer = NULL;

	if (header->p_filesz > header->p_memsz)
		return reason_set(why, ELF_WHY_MAX, -EINVAL,
			"has more bytes in segment %u than memory for them; build the kernel again", number);
	if (header->p_filesz > 0 &&
		(__builtin_add_overflow(header->p_offset, header->p_filesz, &end) || end > kernel->file_size))
		return reason_set(
			why, ELF_WHY_MAX, -ENODATA, "is truncated in segment %u; copy it again", number);
	if (__builtin_add_overflow(header->p_paddr, header->p_memsz, &end))
		return reason_set(why, ELF_WHY_MAX, -EINVAL,
			"has a segment %u that wraps around the end of the address space; build the kernel "
			"again",
			number);
	if (header->p_paddr < ELF_LOAD_MIN)
		return reason_set(why, ELF_WHY_MAX, -EINVAL,
			"has a segment %u at 0x%llx, below 0x%llx; build the kernel for a higher address",
			number, (unsigned long long)header->p_paddr, ELF_LOAD_MIN);
	if (end > GUEST_HOLE_START)
		return reason_set(why, ELF_WHY_MAX, -EINVAL,
			"has a segment %u that ends at 0x%llx, above 0x%llx where memory has a hole; build "
			"the "
			"kernel for a lower address",
			number, (unsigned long long)end, GUEST_HOLE_START);
	if (guest_memory_pointer(memory, header->p_paddr, header->p_memsz, &pointer) < 0)
		return reason_set(why, ELF_WHY_MAX, -E2BIG,
			"needs memory up to %llu MiB and the guest has %llu MiB; give more with --mem",
			(unsigned long long)((end - 1) >> 20) + 1,
			(unsigned long long)guest_memory_size(memory) >> 20);
	return 0;
}

static int check_overlap(
	const struct kernel *kernel, const struct segment *segment, unsigned number, char *why)
{
	for (unsigned i = 0; i < kernel->count; i++) {
		const struct segment *other = &kernel->segments[i];

		if (segment->address < other->address + other->size &&
			other->address < segment->address + segment->size)
			return reason_set(why, ELF_WHY_MAX, -EINVAL,
				"has a segment %u that overlaps another; build the kernel again", number);
	}
	return 0;
}

/* Checks all segments; keeps those that take memory. */
static int read_segments(struct kernel *kernel, const struct guest_memory *memory, char *why)
{
	Elf64_Phdr headers[ELF_SEGMENTS_MAX];
	uint64_t length = kernel->header_count * sizeof(headers[0]);
	int r = 0;

	if (kernel->headers + length <= kernel->head_length)
		memcpy(headers, kernel->head + kernel->headers, length);
	else
		r = read_exactly(kernel, kernel->headers, headers, length, why);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < kernel->header_count; i++) {
		struct segment *segment = &kernel->segments[kernel->count];
		const Elf64_Phdr *header = &headers[i];

		if (header->p_type != PT_LOAD || (header->p_memsz == 0 && header->p_filesz == 0))
			continue;
		r = check_segment(kernel, i, header, memory, why);
		if (r < 0)
			return r;
		*segment = (struct segment){.offset = header->p_offset,
			.file_size = header->p_filesz,
			.address = header->p_paddr,
			.size = header->p_memsz,
			.virtual = header->p_vaddr,
			.executable = (header->p_flags & PF_X) != 0};
		r = check_overlap(kernel, segment, i, why);
		if (r < 0)
			return r;
		kernel->count++;
	}
	if (kernel->count == 0)
		return reason_set(
			why, ELF_WHY_MAX, -EINVAL, "has nothing to load; give the uncompressed vmlinux");
	return 0;
}

/* True when the entry is a byte of the segment that comes from the file; then *entry is physical. */
static bool enters_at(const struct segment *segment, uint64_t base, uint64_t address, gpa_t *entry)
{
	if (!segment->executable || address < base || address - base >= segment->file_size)
		return false;
	*entry = segment->address + (address - base);
	return true;
}

/* vmlinux gives the physical address; other linkers' kernels the virtual one. */
static int find_entry(const struct kernel *kernel, gpa_t *entry, char *why)
{
	for (unsigned i = 0; i < kernel->count; i++)
		if (enters_at(&kernel->segments[i], kernel->segments[i].address, kernel->entry, entry))
			return 0;
	for (unsigned i = 0; i < kernel->count; i++)
		if (enters_at(&kernel->segments[i], kernel->segments[i].virtual, kernel->entry, entry))
			return 0;
	return reason_set(why, ELF_WHY_MAX, -EINVAL,
		"has its entry 0x%llx outside of its code; build the kernel again",
		(unsigned long long)kernel->entry);
}

/* Copies; the place to map page-aligned segments instead. */
static int load_segment(const struct kernel *kernel, const struct segment *segment,
	const struct guest_memory *memory, char *why)
{
	void *pointer = NULL;

	if (segment->file_size == 0)
		return 0;
	if (guest_memory_pointer(memory, segment->address, segment->file_size, &pointer) < 0)
		return reason_set(why, ELF_WHY_MAX, -E2BIG, "does not fit into memory; give more with --mem");
	return read_exactly(kernel, segment->offset, pointer, segment->file_size, why);
}

static int load_segments(
	const struct kernel *kernel, const struct guest_memory *memory, struct elf_image *image, char *why)
{
	image->start = UINT64_MAX;
	image->end = 0;
	for (unsigned i = 0; i < kernel->count; i++) {
		const struct segment *segment = &kernel->segments[i];
		int r = load_segment(kernel, segment, memory, why);

		if (r < 0)
			return r;
		if (segment->address < image->start)
			image->start = segment->address;
		if (segment->address + segment->size > image->end)
			image->end = segment->address + segment->size;
	}
	return 0;
}

int elf_load(int fd, const struct guest_memory *memory, struct elf_image *image, char *why)
{
	struct kernel kernel = {.fd = fd};
	int r = check_size(&kernel, why);

	if (r < 0)
		return r;
	r = read_header(&kernel, why);
	if (r < 0)
		return r;
	r = read_segments(&kernel, memory, why);
	if (r < 0)
		return r;
	r = find_entry(&kernel, &image->entry, why);
	if (r < 0)
		return r;
	return load_segments(&kernel, memory, image, why);
}
