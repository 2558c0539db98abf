/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels and initramfs files that nobody built. Whatever they are: a refusal has words and has written
 * nothing, a kernel that is taken lies where it says, with its entry in it, and the initramfs lies above it.
 */
#include "tests/fuzz/support/fuzz.h"
#include "vmm/elf.h"
#include "vmm/initrd.h"
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PAGE = 4096,
	LOW_BYTES = 128 * 1024, /* of memory behind the first MiB, which no kernel may touch */
	HIGH_BYTES = 64 * 1024,
	SEGMENTS = 5,
	FILE_MAX = 8192,
};
#define HIGH_BASE (4ull << 30)

/* Of the process: memory whose first MiB nobody may touch, and guard pages around all. */
static struct {
	uint8_t *low, *high;
	struct guest_memory memory;
} guest;

static uint8_t *map_region(unsigned index, uint64_t base, uint64_t untouchable, uint64_t size)
{
	uint8_t *map =
		mmap(NULL, untouchable + size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	FUZZ_ASSERT(map != MAP_FAILED);
	map += PAGE;
	FUZZ_ASSERT(mprotect(map + untouchable, size, PROT_READ | PROT_WRITE) == 0);
	guest.memory.regions[index] =
		(struct guest_region){.base = base, .size = untouchable + size, .host = map};
	guest.memory.count = index + 1;
	return map + untouchable;
}

static void clear_memory(void)
{
	if (!guest.low) {
		guest.low = map_region(0, 0, ELF_LOAD_MIN, LOW_BYTES);
		guest.high = map_region(1, HIGH_BASE, 0, HIGH_BYTES);
	}
	memset(guest.low, 0, LOW_BYTES);
	memset(guest.high, 0, HIGH_BYTES);
}

static bool is_zero(const uint8_t *bytes, uint64_t length)
{
	return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Everything outside of start..end is zero. */
static void check_outside(gpa_t start, gpa_t end)
{
	gpa_t low_end = ELF_LOAD_MIN + LOW_BYTES, high_end = HIGH_BASE + HIGH_BYTES;
	gpa_t from = start < low_end ? start : low_end, to = end < low_end ? end : low_end;

	FUZZ_ASSERT(is_zero(guest.low, from - ELF_LOAD_MIN));
	FUZZ_ASSERT(is_zero(guest.low + (to - ELF_LOAD_MIN), low_end - to));
	from = start > HIGH_BASE ? start : HIGH_BASE;
	to = end > HIGH_BASE ? end : HIGH_BASE;
	if (start < high_end)
		FUZZ_ASSERT(is_zero(guest.high, from - HIGH_BASE));
	FUZZ_ASSERT(is_zero(guest.high + (to - HIGH_BASE), high_end - to));
}

static void check_refusal(int r, const char *why, size_t room)
{
	FUZZ_ASSERT(r == -ENOEXEC || r == -EINVAL || r == -ENODATA || r == -E2BIG);
	FUZZ_ASSERT(why[0] != '\0' && memchr(why, '\0', room));
}

static int make_file(const uint8_t *bytes, size_t length, uint64_t size)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	FUZZ_ASSERT(fd >= 0 && pwrite(fd, bytes, length, 0) == (ssize_t)length);
	FUZZ_ASSERT(ftruncate(fd, (off_t)size) == 0);
	return fd;
}

/* A number that lies at or near a bound, or any. */
static uint64_t some_number(struct fuzz_input *input)
{
	static const uint64_t near[] = {0, ELF_LOAD_MIN, ELF_LOAD_MIN + LOW_BYTES, HIGH_BASE,
		HIGH_BASE + HIGH_BYTES, FILE_MAX, PAGE, UINT64_MAX};
	uint8_t choice = fuzz_u8(input);

	if (choice & 8)
		return fuzz_u64(input);
	return near[choice & 7] + (choice & 16 ? fuzz_u16(input) : 0) - (choice >> 5);
}

/* A kernel that is right but for what the input chooses. The bytes of the file. */
static size_t make_kernel(struct fuzz_input *input, uint8_t file[FILE_MAX])
{
	Elf64_Ehdr header = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_entry = ELF_LOAD_MIN + fuzz_u8(input),
		.e_phoff = sizeof(header),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = (uint16_t)fuzz_below(input, SEGMENTS + 1)};
	Elf64_Phdr segment;
	uint8_t spoil = fuzz_u8(input), at;

	memset(file, 0xf4, FILE_MAX);
	for (unsigned i = 0; i < header.e_phnum; i++) {
		uint8_t choice = fuzz_u8(input);

		segment = (Elf64_Phdr){.p_type = choice & 1 ? fuzz_u8(input) : PT_LOAD,
			.p_flags = PF_R | PF_X,
			.p_offset = 1024u * (choice >> 6),
			.p_paddr = ELF_LOAD_MIN + 0x1000ull * i,
			.p_vaddr = 0xffffffff81000000ull + 0x1000ull * i,
			.p_filesz = 512,
			.p_memsz = 2048};
		if (choice & 2)
			segment.p_paddr = some_number(input);
		if (choice & 4)
			segment.p_memsz = some_number(input);
		if (choice & 8)
			segment.p_filesz = some_number(input);
		if (choice & 16)
			segment.p_offset = some_number(input);
		if (choice & 32)
			segment.p_flags = fuzz_u8(input);
		memcpy(file + sizeof(header) + i * sizeof(segment), &segment, sizeof(segment));
	}
	if (spoil & 1)
		header.e_entry = some_number(input);
	if (spoil & 2)
		header.e_phoff = some_number(input);
	if (spoil & 4)
		header.e_phnum = fuzz_u16(input);
	memcpy(file, &header, sizeof(header));
	if (spoil & 8) {
		at = fuzz_u8(input);
		file[at] = fuzz_u8(input);
	}
	return spoil & 16 ? fuzz_u16(input) % FILE_MAX : FILE_MAX;
}

/* The end of the kernel; 0: it was refused. */
static gpa_t load_kernel(struct fuzz_input *input)
{
	uint8_t file[FILE_MAX];
	size_t length = sizeof(file);
	const uint8_t *bytes = file;
	struct elf_image image = {0};
	char why[ELF_WHY_MAX] = "";
	int fd, r;

	if (fuzz_u8(input) % 4 == 0)
		bytes = fuzz_bytes(input, &length); /* as it is */
	else
		length = make_kernel(input, file);
	fd = make_file(bytes, length, length);
	r = elf_load(fd, &guest.memory, &image, why);
	close(fd);
	if (r < 0) {
		check_refusal(r, why, sizeof(why));
		check_outside(ELF_LOAD_MIN, ELF_LOAD_MIN);
		return 0;
	}
	FUZZ_ASSERT(r == 0 && image.start >= ELF_LOAD_MIN && image.start < image.end);
	FUZZ_ASSERT(image.entry >= image.start && image.entry < image.end);
	FUZZ_ASSERT(image.end <= HIGH_BASE + HIGH_BYTES);
	check_outside(image.start, image.end);
	return image.end;
}

static void load_initrd(struct fuzz_input *input, gpa_t kernel_end)
{
	static const uint8_t bytes[PAGE] = {1};
	uint64_t size = fuzz_one_in(input, 4) ? fuzz_u64(input) >> 2 : fuzz_u16(input) * 4ull;
	gpa_t low_end = ELF_LOAD_MIN + LOW_BYTES;
	struct initrd initrd = {0};
	char why[INITRD_WHY_MAX] = "";
	int fd, r;

	if (fuzz_one_in(input, 8))
		kernel_end = some_number(input);
	if (kernel_end < ELF_LOAD_MIN)
		return; /* what lies below belongs to nobody here */
	fd = make_file(bytes, size < PAGE ? size : PAGE, size > INT64_MAX / 2 ? 1 : size);
	r = initrd_load(fd, &guest.memory, kernel_end, &initrd, why);
	close(fd);
	if (r < 0) {
		check_refusal(r, why, sizeof(why));
		return;
	}
	FUZZ_ASSERT(r == 0 && initrd.size > 0 && initrd.address % PAGE == 0);
	FUZZ_ASSERT(initrd.address >= kernel_end && initrd.address < low_end);
	FUZZ_ASSERT(initrd.size <= low_end - initrd.address);
	FUZZ_ASSERT(guest.low[initrd.address - ELF_LOAD_MIN] == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	gpa_t end;

	fuzz_begin();
	clear_memory();
	end = load_kernel(&input);
	load_initrd(&input, end ? end : ELF_LOAD_MIN);
	fuzz_end();
	return 0;
}
