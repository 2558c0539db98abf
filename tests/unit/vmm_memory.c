/* SPDX-License-Identifier: Apache-2.0 */
/* Guest addresses: what is inside memory, what is not, and the edges between. */
#include "tests/support/unit.h"

#include "vmm/memory.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 0x10000ull

static int set_up(void **state)
{
	static struct guest_memory memory;

	*state = &memory;
	return guest_memory_init(&memory, SIZE);
}

static int tear_down(void **state)
{
	guest_memory_finish(*state);
	return 0;
}

static void sizes_are_checked(void **state)
{
	struct guest_memory memory;

	(void)state;
	assert_int_equal(guest_memory_init(&memory, 0), -EINVAL);
	assert_int_equal(guest_memory_init(&memory, 4095), -EINVAL);
	assert_int_equal(guest_memory_init(&memory, 4097), -EINVAL);
	assert_int_equal(guest_memory_init(&memory, GUEST_HOLE_END + 1), -EINVAL);
	assert_int_equal(guest_memory_init(&memory, UINT64_MAX), -EINVAL);
	assert_int_equal(guest_memory_init(&memory, UINT64_MAX & ~4095ull), -EINVAL); /* its end wraps */
	assert_int_equal(guest_memory_init(&memory, 1ull << 62), -ENOMEM);
	guest_memory_finish(&memory);
	assert_int_equal(guest_memory_size(&memory), 0);
}

static void memory_is_zero_at_first(void **state)
{
	uint64_t word = 1;

	assert_int_equal(guest_memory_size(*state), SIZE);
	assert_int_equal(guest_memory_read(*state, SIZE - sizeof(word), &word, sizeof(word)), 0);
	assert_int_equal(word, 0);
}

static void edges_are_exact(void **state)
{
	static const struct {
		gpa_t address;
		uint64_t length;
		int result;
	} cases[] = {
		{0, 1, 0},
		{0, SIZE, 0},
		{0, SIZE + 1, -EFAULT},
		{SIZE - 1, 1, 0},
		{SIZE - 1, 2, -EFAULT},
		{SIZE, 1, -EFAULT},
		{SIZE + 1, 1, -EFAULT},
		{0, 0, -EFAULT},
		{SIZE, 0, -EFAULT},
		{1, UINT64_MAX, -EFAULT}, /* the sum wraps to 0 */
		{2, UINT64_MAX, -EFAULT},
		{SIZE - 1, UINT64_MAX - SIZE + 2, -EFAULT},
		{UINT64_MAX, 1, -EFAULT},
		{UINT64_MAX, 2, -EFAULT},
		{UINT64_MAX, UINT64_MAX, -EFAULT},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		void *pointer = NULL;

		assert_int_equal(guest_memory_pointer(*state, cases[i].address, cases[i].length, &pointer),
			cases[i].result);
		if (cases[i].result < 0)
			assert_null(pointer);
		else
			memset(pointer, 1, cases[i].length); /* the sanitizer and the MMU look on */
	}
}

static void copies_are_whole_or_nothing(void **state)
{
	uint8_t out[8] = {1, 2, 3, 4, 5, 6, 7, 8}, in[8] = {0};

	assert_int_equal(guest_memory_write(*state, SIZE - 8, out, 8), 0);
	assert_int_equal(guest_memory_read(*state, SIZE - 8, in, 8), 0);
	assert_memory_equal(in, out, 8);
	memset(out, 9, sizeof(out));
	assert_int_equal(guest_memory_write(*state, SIZE - 7, out, 8), -EFAULT);
	assert_int_equal(guest_memory_read(*state, SIZE - 7, in, 8), -EFAULT);
	assert_int_equal(in[0], 1);
	assert_int_equal(guest_memory_read(*state, SIZE - 8, in, 8), 0);
	assert_int_equal(in[7], 8);
}

static void regions_are_not_joined(void **state)
{
	uint8_t low[16], high[16];
	struct guest_memory memory = {
		.regions =
			{
				{.base = 0x1000, .size = sizeof(low), .host = low},
				{.base = 0x1010, .size = sizeof(high), .host = high},
			},
		.count = 2,
	};
	void *pointer;

	(void)state;
	assert_int_equal(guest_memory_pointer(&memory, 0x100f, 1, &pointer), 0);
	assert_ptr_equal(pointer, &low[15]);
	assert_int_equal(guest_memory_pointer(&memory, 0x1010, 16, &pointer), 0);
	assert_ptr_equal(pointer, high);
	assert_int_equal(guest_memory_pointer(&memory, 0x100f, 2, &pointer), -EFAULT);
	assert_int_equal(guest_memory_pointer(&memory, 0xfff, 1, &pointer), -EFAULT);
	assert_int_equal(guest_memory_size(&memory), 32);
}

/* What lies below and above the hole, byte by byte at each border. */
static void the_hole_is_no_memory(void **state)
{
	(void)state;
	static const uint64_t above[] = {4096, 1ull << 20, 1ull << 30, 3ull << 30};

	for (size_t i = 0; i < sizeof(above) / sizeof(above[0]); i++) {
		const gpa_t end = GUEST_HOLE_END + above[i];
		const struct {
			gpa_t address;
			uint64_t length;
			int result;
		} cases[] = {
			{GUEST_HOLE_START - 1, 1, 0},
			{GUEST_HOLE_START - 1, 2, -EFAULT},
			{0, GUEST_HOLE_START, 0},
			{0, GUEST_HOLE_START + 1, -EFAULT},
			{GUEST_HOLE_START, 1, -EFAULT},
			{GUEST_HOLE_START, GUEST_HOLE_END - GUEST_HOLE_START + 1, -EFAULT},
			{GUEST_HOLE_END - 1, 1, -EFAULT},
			{GUEST_HOLE_END - 1, 2, -EFAULT},
			{GUEST_HOLE_START - 1, GUEST_HOLE_END - GUEST_HOLE_START + 2, -EFAULT},
			{0, end, -EFAULT},
			{GUEST_HOLE_END, 1, 0},
			{GUEST_HOLE_END, above[i], 0},
			{GUEST_HOLE_END, above[i] + 1, -EFAULT},
			{GUEST_HOLE_END + 1, above[i], -EFAULT},
			{end - 1, 1, 0},
			{end - 1, 2, -EFAULT},
			{end, 1, -EFAULT},
			{end - 1, UINT64_MAX, -EFAULT},
			{GUEST_HOLE_END, UINT64_MAX - GUEST_HOLE_END + 1, -EFAULT}, /* the sum wraps to 0 */
			{GUEST_HOLE_END, UINT64_MAX - GUEST_HOLE_END + 2, -EFAULT},
			{UINT64_MAX, 1, -EFAULT},
		};
		struct guest_memory memory;

		assert_int_equal(guest_memory_init(&memory, GUEST_HOLE_START + above[i]), 0);
		assert_int_equal(guest_memory_size(&memory), GUEST_HOLE_START + above[i]);
		for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
			uint8_t *pointer = NULL;

			assert_int_equal(guest_memory_pointer(&memory, cases[k].address, cases[k].length,
						 (void **)&pointer),
				cases[k].result);
			assert_true((pointer == NULL) == (cases[k].result < 0));
			if (cases[k].result < 0)
				continue;
			/* the first and the last byte: the sanitizer and the MMU look on */
			pointer[0] = 1;
			pointer[cases[k].length - 1] = 1;
		}
		guest_memory_finish(&memory);
	}
}

static bool can_read(const uint8_t *pointer)
{
	int fd = memfd_create("byte", MFD_CLOEXEC);
	ssize_t n = write(fd, pointer, 1);

	assert_true(n == 1 || errno == EFAULT);
	close(fd);
	return n == 1;
}

static void the_regions_are_apart_and_aligned(void **state)
{
	(void)state;
	struct guest_memory memory;
	uint64_t word = 1;

	assert_int_equal(guest_memory_init(&memory, GUEST_HOLE_START), 0);
	assert_int_equal(memory.count, 1);
	assert_int_equal(memory.regions[0].base, 0);
	assert_int_equal(memory.regions[0].size, GUEST_HOLE_START);
	guest_memory_finish(&memory);
	assert_int_equal(guest_memory_init(&memory, 6ull << 30), 0);
	assert_int_equal(memory.count, 2);
	assert_int_equal(memory.regions[0].size, GUEST_HOLE_START);
	assert_int_equal(memory.regions[1].base, GUEST_HOLE_END);
	assert_int_equal(memory.regions[1].size, 3ull << 30);
	for (unsigned i = 0; i < memory.count; i++)
		assert_int_equal((uintptr_t)memory.regions[i].host % (2 << 20), 0);
	/* Right beside each there is nothing that can be read or written. */
	for (unsigned i = 0; i < memory.count; i++) {
		const struct guest_region *region = &memory.regions[i];

		assert_false(can_read(region->host + region->size));
		assert_true(can_read(region->host + region->size - 1));
		assert_false(can_read(region->host - 1));
	}
	/* Writing the one leaves the other alone. */
	assert_int_equal(guest_memory_write(&memory, GUEST_HOLE_START - 8, &word, 8), 0);
	assert_int_equal(guest_memory_read(&memory, GUEST_HOLE_END, &word, 8), 0);
	assert_int_equal(word, 0);
	guest_memory_finish(&memory);
	assert_int_equal(memory.count, 0);
}

/* Address space for the lower region only: the upper is refused, and the lower is given back. */
static void a_refusal_leaves_nothing_mapped(void **state)
{
	(void)state;
	struct guest_memory memory;

	for (int i = 0; i < 3; i++)
		assert_int_equal(guest_memory_init(&memory, GUEST_HOLE_START + (1ull << 60)), -ENOMEM);
	assert_int_equal(memory.count, 0);
	assert_null(memory.regions[0].host);
	assert_int_equal(guest_memory_size(&memory), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_checked),
		cmocka_unit_test_setup_teardown(memory_is_zero_at_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(edges_are_exact, set_up, tear_down),
		cmocka_unit_test_setup_teardown(copies_are_whole_or_nothing, set_up, tear_down),
		cmocka_unit_test(regions_are_not_joined),
		cmocka_unit_test(the_hole_is_no_memory),
		cmocka_unit_test(the_regions_are_apart_and_aligned),
		cmocka_unit_test(a_refusal_leaves_nothing_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
