/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process in a guest can know that should be its own or its VM's, a line each: name and value. Linked
 * static and position-independent, so that it runs in any root and its own text is at a random address too.
 *
 * Of the process: getrandom, uuid, at_random, and where at_random, an anonymous mapping, the break and the
 * text are. Of the VM: boot_id, machine_id, hostname. Besides: wall, the time in ms.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { RANDOM_BYTES = 16, LINE = 128 };

static void tell_bytes(const char *name, const uint8_t *bytes)
{
	printf("%s ", name);
	for (int i = 0; i < RANDOM_BYTES; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

static void tell_file(const char *name, const char *path)
{
	char text[LINE + 1];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, LINE);

	text[length > 0 ? length : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	printf("%s %s\n", name, text);
	close(fd);
}

int main(void)
{
	const uint8_t *at_random =
		(const uint8_t *)getauxval(AT_RANDOM); /* NOLINT(performance-no-int-to-ptr) */
	uint8_t bytes[RANDOM_BYTES] = {0};
	char name[LINE] = "";
	struct timespec wall;

	clock_gettime(CLOCK_REALTIME, &wall);
	printf("wall %lld\n", (long long)wall.tv_sec * 1000 + wall.tv_nsec / 1000000);
	if (getrandom(bytes, sizeof(bytes), 0) == sizeof(bytes))
		tell_bytes("getrandom", bytes);
	tell_bytes("at_random", at_random);
	tell_file("uuid", "/proc/sys/kernel/random/uuid");
	printf("stack %p\n", (const void *)at_random);
	printf("mmap %p\n", mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	printf("break %p\n", sbrk(0));
	printf("text %p\n", (void *)(uintptr_t)main);
	tell_file("boot_id", "/proc/sys/kernel/random/boot_id");
	tell_file("machine_id", "/etc/machine-id");
	gethostname(name, sizeof(name) - 1);
	printf("hostname %s\n", name);
	return 0;
}
