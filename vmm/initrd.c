/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/initrd.h"
#include "common/io.h"
#include "vmm/layout.h"
#include "vmm/reason.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static int file_size(int fd, uint64_t *size, char *why)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return reason_set(why, INITRD_WHY_MAX, -errno, "cannot be examined (%s); give another file",
			strerror(errno));
	if (!S_ISREG(status.st_mode))
		return reason_set(why, INITRD_WHY_MAX, -EINVAL, "is not a regular file; give an initramfs");
	if (status.st_size == 0)
		return reason_set(
			why, INITRD_WHY_MAX, -ENODATA, "is empty; give an initramfs or leave --initrd out");
	*size = (uint64_t)status.st_size;
	return 0;
}

/* The highest page boundary from which size bytes fit below the end of memory, or its hole: the kernel's
 * first page tables reach no further. */
static int place(
	const struct guest_memory *memory, gpa_t kernel_end, uint64_t size, gpa_t *address, char *why)
{
	const struct guest_region *region = &memory->regions[0];
	gpa_t end = region->base + region->size;

	if (size > end || ((end - size) & ~(LAYOUT_PAGE - 1)) < kernel_end)
		return reason_set(why, INITRD_WHY_MAX, -E2BIG,
			"has %llu KiB and the kernel leaves %llu KiB of memory%s",
			(unsigned long long)((size + 1023) >> 10),
			(unsigned long long)(kernel_end < end ? (end - kernel_end) >> 10 : 0),
			end < GUEST_HOLE_START ? "; give more with --mem"
					       : " below 3 GiB; give a smaller one");
	*address = (end - size) & ~(LAYOUT_PAGE - 1);
	return 0;
}

int initrd_load(int fd, const struct guest_memory *memory, gpa_t kernel_end, struct initrd *initrd, char *why)
{
	void *pointer = NULL;
	ssize_t count;
	int r = file_size(fd, &initrd->size, why);

	if (r < 0)
		return r;
	r = place(memory, kernel_end, initrd->size, &initrd->address, why);
	if (r < 0)
		return r;
	if (guest_memory_pointer(memory, initrd->address, initrd->size, &pointer) < 0)
		return reason_set(
			why, INITRD_WHY_MAX, -E2BIG, "does not fit into memory; give more with --mem");
	count = io_pread_full(fd, pointer, initrd->size, 0);
	if (count < 0)
		return reason_set(why, INITRD_WHY_MAX, (int)count,
			"cannot be read (%s); check the disk it is on", strerror((int)-count));
	if ((uint64_t)count != initrd->size)
		return reason_set(why, INITRD_WHY_MAX, -ENODATA,
			"became shorter while it was read; give a file that stays");
	return 0;
}
