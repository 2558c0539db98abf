/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics: counted, noted once, and printed in both forms exactly. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "vmm/stats.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct bus_ops deaf_ops = {0};

struct fixture {
	struct stats stats;
	struct stats_counts counts;
	struct bus ports, mmio;
	int fd;
};

/* A machine of one device that has done a little of everything, with clocks that do not run. */
static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	uint8_t byte = 0;

	if (!fixture)
		return -1;
	bus_init(&fixture->ports);
	bus_init(&fixture->mmio);
	bus_add(&fixture->ports, 0x64, 1, &deaf_ops, NULL, "reset");
	bus_add(&fixture->mmio, 0xd0000000, 0x1000, &deaf_ops, NULL, "blk");
	fixture->stats.moments[STATS_PROCESS] = 1000000;
	fixture->stats.moments[STATS_RUN] = 1042000;
	fixture->stats.steps[0] = (struct stats_step){"load", 1005000};
	fixture->stats.step_count = 1;
	stats_count(&fixture->stats, KVM_EXIT_IO);
	bus_write(&fixture->ports, 0x64, &byte, 1);
	stats_collect(&fixture->stats, &fixture->ports, &fixture->mmio, &fixture->stats.booted);
	stats_count(&fixture->stats, KVM_EXIT_IO);
	stats_count(&fixture->stats, -1);
	bus_read(&fixture->ports, 0x80, &byte, 1);
	stats_collect(&fixture->stats, &fixture->ports, &fixture->mmio, &fixture->counts);
	fixture->stats.booted.faults = 3;
	fixture->counts.faults = 4;
	fixture->counts.cpu_ns = 7999;
	fixture->counts.kvm[STATS_KVM_EXITS] = 9;
	fixture->counts.device_count = 1;
	fixture->counts.devices[0] = (struct stats_device){"blk", {.notifies = 5, .interrupts = 6}};
	fixture->fd = memfd_create("stats", MFD_CLOEXEC);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	bus_finish(&fixture->ports);
	bus_finish(&fixture->mmio);
	fd_close(&fixture->fd);
	free(fixture);
	return 0;
}

static const char *print(struct fixture *fixture, bool json, char *text, size_t size)
{
	ssize_t n;

	assert_int_equal(stats_print(fixture->fd, json, &fixture->stats, &fixture->counts, &fixture->ports,
				 &fixture->mmio),
		0);
	n = io_pread_full(fixture->fd, text, size - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	return text;
}

/* With a network device, its packets are among the sums. */
static void a_network_device_is_shown(void **state)
{
	struct fixture *fixture = *state;
	char text[8192];

	fixture->counts.has_net = true;
	fixture->counts.net =
		(struct net_counts){.sent = 11, .received = 12, .lost_sent = 13, .lost_received = 14};
	fixture->stats.booted.net = (struct net_counts){.sent = 1, .received = 2};
	assert_non_null(strstr(print(fixture, true, text, sizeof(text)),
		"\"vcpu us\",\"boot\":0,\"total\":7},\n"
		" {\"name\":\"net sent\",\"boot\":1,\"total\":11},\n"
		" {\"name\":\"net received\",\"boot\":2,\"total\":12},\n"
		" {\"name\":\"net lost, of the guest\",\"boot\":0,\"total\":13},\n"
		" {\"name\":\"net lost, for the guest\",\"boot\":0,\"total\":14}],\n"));
}

static void json_is_exact(void **state)
{
	char text[8192];

	assert_string_equal(print(*state, true, text, sizeof(text)),
		"{\"moments\":[\n"
		" {\"name\":\"guest entered\",\"us\":42}],\n"
		"\"set-up\":[\n"
		" {\"name\":\"load\",\"us\":5}],\n"
		"\"sums\":[\n"
		" {\"name\":\"returns of KVM_RUN\",\"boot\":1,\"total\":3},\n"
		" {\"name\":\"kvm exits\",\"boot\":0,\"total\":9},\n"
		" {\"name\":\"page faults\",\"boot\":3,\"total\":4},\n"
		" {\"name\":\"vcpu us\",\"boot\":0,\"total\":7}],\n"
		"\"exits\":[\n"
		" {\"name\":\"port\",\"boot\":1,\"total\":2},\n"
		" {\"name\":\"interrupted\",\"boot\":0,\"total\":1}],\n"
		"\"accesses\":[\n"
		" {\"name\":\"port 0x64 "
		"reset\",\"boot_reads\":0,\"boot_writes\":1,\"reads\":0,\"writes\":1}],\n"
		"\"devices\":[\n"
		" {\"name\":\"blk\",\"boot_kicks\":0,\"boot_irqs\":0,\"kicks\":5,\"irqs\":6}],\n"
		"\"unanswered\":[\n"
		" {\"name\":\"port 0x80\",\"total\":1}]}\n");
}

static void the_table_is_exact(void **state)
{
	char text[8192];
	const char *shown = print(*state, false, text, sizeof(text));

	assert_non_null(strstr(shown, "exits                                boot        total\n"
				      "  port                                  1            2\n"
				      "  interrupted                           0            1\n"));
	assert_non_null(strstr(shown, "unanswered                          total\n"
				      "  port 0x80                             1\n"));
}

static void a_moment_comes_once(void **state)
{
	struct fixture *fixture = *state;

	stats_note(&fixture->stats, STATS_RUN);
	assert_int_equal(fixture->stats.moments[STATS_RUN], 1042000);
	stats_note(&fixture->stats, STATS_BOOTED);
	assert_true(fixture->stats.moments[STATS_BOOTED] > 0);
}

static void reasons_and_steps_have_bounds(void **state)
{
	struct fixture *fixture = *state;

	stats_count(&fixture->stats, STATS_REASONS_MAX);
	stats_count(&fixture->stats, INT32_MAX);
	assert_int_equal(fixture->stats.reasons[STATS_REASONS_MAX - 1], 2);
	assert_int_equal(stats_exits(&fixture->stats), 5);
	for (int i = 0; i < STATS_STEPS_MAX + 2; i++)
		stats_note_step(&fixture->stats, "more");
	assert_int_equal(fixture->stats.step_count, STATS_STEPS_MAX);
}

static void a_full_disk_is_an_error(void **state)
{
	struct fixture *fixture = *state;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	assert_int_equal(
		stats_print(full, true, &fixture->stats, &fixture->counts, &fixture->ports, &fixture->mmio),
		-ENOSPC);
	fd_close(&full);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(json_is_exact, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_network_device_is_shown, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_table_is_exact, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_moment_comes_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(reasons_and_steps_have_bounds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_full_disk_is_an_error, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
