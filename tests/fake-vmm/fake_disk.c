/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake vmm does with a second disk. */
#include "tests/fake-vmm/fake_vmm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, FLAT_AT = 2 * PAGE_BYTES };

static const char flat_mark[8] = "flatten";

const char *fake_option_value(int argc, char **argv, const char *name)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], name))
			return argv[i + 1];
	return NULL;
}

/* What fake_flatten has written. */
static void check_flat(int lower)
{
	char mark[sizeof flat_mark];

	if (pread(lower, mark, sizeof mark, FLAT_AT) != sizeof mark ||
		memcmp(mark, flat_mark, sizeof mark) != 0)
		fake_fail("the disk's lower file is not the one that was saved");
}

void fake_flatten(const struct fake *fake, int disk)
{
	char start[8] = "";
	off_t bytes = lseek(fake->lower, 0, SEEK_END);

	if (bytes <= 0 || pread(fake->lower, start, sizeof start, 0) < 0 || ftruncate(disk, bytes) ||
		pwrite(disk, start, sizeof start, 0) != sizeof start ||
		pwrite(disk, flat_mark, sizeof flat_mark, FLAT_AT) != sizeof flat_mark)
		fake_fail("saving the disk");
}

void fake_use_upper(struct fake *fake, int lower, int upper)
{
	off_t bytes = lseek(lower, 0, SEEK_END);
	char start[8];

	fake->lower = lower;
	fake->upper = upper;
	if (fake->is_flat)
		check_flat(lower);

	if (bytes <= 0 || (fcntl(lower, F_GETFL) & O_ACCMODE) != O_RDONLY)
		fake_fail("the disk's lower file");
	if (flock(upper, LOCK_EX | LOCK_NB))
		fake_fail("locking the disk's upper file");
	if (fake->is_saved) {
		if (pread(upper, start, sizeof start, 0) != sizeof start || memcmp(start, "TNDX-COW", 8) != 0)
			fake_fail("the disk's upper file is not what was saved");
		return;
	}
	if (lseek(upper, 0, SEEK_END) != 0)
		fake_fail("the disk's upper file");
	if (pwrite(upper, "TNDX-COW", 8, 0) != 8 || pwrite(upper, "x", 1, bytes + PAGE_BYTES) != 1)
		fake_fail("writing to the disk");
}

/* A new one; or one that another VM has left: counts behind its beginning how often it was booted from. */
static void boot_upper(struct fake *fake, int argc, char **argv, int lower, int upper)
{
	static const char cmdline[] = "tinderbox.upper=/dev/vdb";
	const char *given = fake_option_value(argc, argv, "--cmdline");
	char start[9];

	fake->lower = lower;
	fake->upper = upper;
	if (!given || strcmp(given, cmdline) != 0)
		fake_fail("booting from an upper");
	if (lseek(upper, 0, SEEK_END) == 0) {
		fake_use_upper(fake, lower, upper);
		return;
	}
	if (flock(upper, LOCK_EX | LOCK_NB))
		fake_fail("locking an upper");
	if (pread(upper, start, sizeof start, 0) != sizeof start || memcmp(start, "TNDX-COW", 8) != 0)
		fake_fail("the upper of an earlier VM");
	start[8]++;
	if (pwrite(upper, start, sizeof start, 0) != sizeof start)
		fake_fail("writing to the disk");
}

/* What a boot writes on a raw disk, as its guest does. */
static void use_disk(int disk)
{
	if (flock(disk, LOCK_EX | LOCK_NB) || pwrite(disk, "built", 5, 0) != 5)
		fake_fail("writing to the disk");
}

void fake_take_disk(struct fake *fake, int argc, char **argv)
{
	unsigned int found = 0;

	for (int i = 1; i + 1 < argc && argv[i]; i++) {
		const char *value = argv[i + 1], *cow;
		int number;

		if (!value || strcmp(argv[i], "--disk") != 0 || ++found != 2)
			continue;
		cow = strstr(value, ",cow=fd:");
		number = atoi(value + 3);
		if (cow && fake_option_value(argc, argv, "--kernel"))
			boot_upper(fake, argc, argv, number, atoi(cow + strlen(",cow=fd:")));
		else if (cow)
			fake_use_upper(fake, number, atoi(cow + strlen(",cow=fd:")));
		else
			use_disk(number);
	}
}
