/* SPDX-License-Identifier: Apache-2.0 */
/* Guest addresses: what is inside memory, what is not, and the edges between. */
#include "tests/support/unit.h"

#include "vmm/memory.h"
#include <errno.h>
#include <string.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_checked),
		cmocka_unit_test_setup_teardown(memory_is_zero_at_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(edges_are_exact, set_up, tear_down),
		cmocka_unit_test_setup_teardown(copies_are_whole_or_nothing, set_up, tear_down),
		cmocka_unit_test(regions_are_not_joined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
