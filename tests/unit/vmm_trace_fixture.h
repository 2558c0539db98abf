/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of one vCPU. Each look at the clock puts it forward by 1 µs (tests/tests.mk wraps clock_gettime).
 */
#ifndef TESTS_UNIT_VMM_TRACE_FIXTURE_H
#define TESTS_UNIT_VMM_TRACE_FIXTURE_H

#include "tests/support/unit.h"

#include "vmm/trace_parts.h"
#include <linux/kvm.h>
#include <string.h>
#include <time.h>

enum { STEP_NS = 1000, START = 5000 };

static uint64_t clock_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	clock_ns += STEP_NS;
	*now = (struct timespec){.tv_nsec = (long)clock_ns};
	return 0;
}

/* A vCPU's shared pages. */
static struct {
	struct kvm_run run;
	uint8_t data[64];
} page;

static inline void start(size_t events)
{
	clock_ns = START - STEP_NS;
	assert_int_equal(trace_start(trace_clock(), 7000, events), 0);
}

static inline int set_up(void **state)
{
	(void)state;
	memset(&page, 0, sizeof(page));
	start(TRACE_EVENTS_MAX);
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	trace_stop();
	assert_null(trace_active);
	return 0;
}

static inline void return_mmio(uint64_t address, bool write, uint32_t value)
{
	page.run.exit_reason = KVM_EXIT_MMIO;
	page.run.mmio.phys_addr = address;
	page.run.mmio.len = sizeof(value);
	page.run.mmio.is_write = write;
	memcpy(page.run.mmio.data, &value, sizeof(value));
	trace_return(0, &page.run, 0);
}

static inline void return_port(uint16_t port, uint8_t direction, uint8_t value, uint32_t count)
{
	page.run.exit_reason = KVM_EXIT_IO;
	page.run.io.port = port;
	page.run.io.direction = direction;
	page.run.io.size = 1;
	page.run.io.count = count;
	page.run.io.data_offset = sizeof(page.run); /* a union's: the other kind of exit writes over it */
	page.data[0] = value;
	trace_return(0, &page.run, 0);
}

static inline void send(const char *text)
{
	while (*text)
		trace_add_byte(trace_active, (uint8_t)*text++);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

#endif
