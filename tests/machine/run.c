/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the tiny guests with the real vmm and says in TAP how each ended; then the control protocol with
 * guests that never end by themselves. Usage: run VMM FOLDER-OF-GUESTS
 */
#include "common/io.h"
#include "tests/machine/machine.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- guests that end by themselves --- */

static const struct {
	const char *name, *guest;
	int status;
	const char *line;
	const char *options[MACHINE_OPTIONS_MAX];
} endings[] = {
	{"ports in every width, and by strings", "ports", VMM_END_POWEROFF, "the guest powered off", {0}},
	{"the same with a serial line", "ports", VMM_END_POWEROFF, "the guest powered off",
		{"--serial", "/dev/null", NULL}},
	{"device registers in every width and alignment", "mmio", VMM_END_POWEROFF, "the guest powered off",
		{"--stats", NULL}},
	{"the same of a vsock device", "mmio", VMM_END_POWEROFF, "the guest powered off",
		{"--vsock", "machine-test.sock", NULL}},
	{"a device's interrupt, and one that came while masked", "irq", VMM_END_POWEROFF,
		"the guest powered off", {0}},
	{"an interrupt to itself", "ipi", VMM_END_POWEROFF, "the guest powered off", {0}},
	{"code in a device's registers is refused", "device_memory", VMM_END_GUEST_FAULT,
		"KVM cannot emulate", {0}},
};

static void test_endings(struct suite *suite)
{
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		struct machine machine;

		if (machine_start(suite, endings[i].guest, endings[i].options, false, &machine))
			machine_expect_end(
				suite, &machine, endings[i].name, endings[i].status, endings[i].line);
	}
}

static void test_kvm_fd(struct suite *suite)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	char name[16];
	const char *options[] = {"--kvm", name, NULL};
	struct machine machine;

	snprintf(name, sizeof(name), "fd:%d", kvm);
	fd_set_cloexec(kvm, 0);
	if (machine_start(suite, "ipi", options, false, &machine))
		machine_expect_end(
			suite, &machine, "a /dev/kvm that was handed over", VMM_END_POWEROFF, "powered off");
	fd_close(&kvm);
	options[1] = "/dev/null";
	if (machine_start(suite, "ipi", options, false, &machine))
		machine_expect_end(suite, &machine, "a /dev/kvm that is none", VMM_END_SETUP,
			"--kvm: /dev/null is not KVM: give /dev/kvm");
}

/* --- the control protocol --- */

static void test_states(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;
	enum vmm_state state = VMM_STATE_ENDED;
	uint64_t exits;

	if (!machine_start(suite, "exits", NULL, true, &machine))
		return;
	suite_report(suite, machine_receive(&machine, &message) && message.type == VMM_EVENT_STATE,
		"the first word is the state", "type %u", message.type);
	suite_report(suite, machine_await_state(&machine, VMM_STATE_RUNNING, &message), "it runs",
		"no event said so");
	suite_report(suite, machine_gets_on(&machine), "exits are counted", "they are not");
	suite_report(suite, machine_ask(&machine, VMM_PAUSE, &message), "a pause is done", "status %d",
		message.status);
	suite_report(suite, machine_await_state(&machine, VMM_STATE_PAUSED, &message), "and said",
		"no event said so");
	exits = machine_count_exits(&machine, &state);
	usleep(50 * 1000);
	suite_report(suite,
		state == VMM_STATE_PAUSED && exits > 0 && machine_count_exits(&machine, &state) == exits,
		"a paused guest stands still", "state %d, %llu exits", state, (unsigned long long)exits);
	suite_report(suite, machine_ask(&machine, VMM_PAUSE, &message), "a second pause is done already",
		"status %d", message.status);
	suite_report(suite, machine_ask(&machine, VMM_RESUME, &message) && machine_gets_on(&machine),
		"it resumes", "it does not");
	suite_report(suite, machine_ask(&machine, VMM_RESUME, &message), "a second resume is done already",
		"status %d", message.status);
	suite_report(suite, machine_ask(&machine, VMM_KILL, &message), "it is killed", "status %d",
		message.status);
	suite_report(suite,
		machine_await_state(&machine, VMM_STATE_ENDED, &message) && message.arg1 == VMM_END_KILLED,
		"and says so", "end %llu", (unsigned long long)message.arg1);
	machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by the control socket");
}

/* Pauses and resumes without a gap, so that kicks come at every point of the vCPU's way. */
static void test_many_pauses(struct suite *suite, const char *guest)
{
	struct vmm_message message = {0};
	struct machine machine;
	char name[64];
	int i = 0;

	snprintf(name, sizeof(name), "200 pauses (%s)", guest);
	if (!machine_start(suite, guest, NULL, true, &machine))
		return;
	while (i < 200 && machine_ask(&machine, VMM_PAUSE, &message) &&
		machine_ask(&machine, VMM_RESUME, &message))
		i++;
	suite_report(suite, i == 200, name, "the %dth failed with %d", i, message.status);
	snprintf(name, sizeof(name), "killed while paused (%s)", guest);
	machine_ask(&machine, VMM_PAUSE, &message);
	suite_report(suite, machine_ask(&machine, VMM_KILL, &message), name, "status %d", message.status);
	machine_expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket");
}

static void test_early_kill(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;

	if (!machine_start(suite, "spin", NULL, true, &machine))
		return;
	suite_report(suite, machine_ask(&machine, VMM_KILL, &message), "killed by the first word",
		"status %d", message.status);
	machine_expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket");
}

/* Nobody in this guest will ever answer: the request ends with the VM. */
static void test_connect(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;
	uint32_t sequence;
	bool ok;

	if (!machine_start(suite, "sleep", NULL, true, &machine))
		return;
	ok = machine_request(&machine, VMM_CONNECT, 1024);
	sequence = machine.sequence;
	ok = ok && machine_ask(&machine, VMM_KILL, &message);
	while (ok && message.sequence != sequence)
		ok = machine_receive(&machine, &message);
	suite_report(suite, ok && message.type == (VMM_CONNECT | VMM_REPLY) && message.status == -ECONNRESET,
		"a connection that waits ends with the VM", "type %u, status %d", message.type,
		message.status);
	machine_expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket");
}

static void test_peer_that_leaves(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;

	if (!machine_start(suite, "spin", NULL, true, &machine))
		return;
	suite_report(suite, machine_await_state(&machine, VMM_STATE_RUNNING, &message), "it runs",
		"no event said so");
	fd_close(&machine.control);
	usleep(50 * 1000);
	suite_report(
		suite, waitpid(machine.pid, NULL, WNOHANG) == 0, "a VM survives its daemon", "it is gone");
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, "and ends by SIGTERM", VMM_END_KILLED, "ended by SIGTERM");
}

int main(int argc, char *argv[])
{
	struct suite suite = {0};

	if (!suite_begin(&suite, argc, argv))
		return 2;
	test_endings(&suite);
	test_kvm_fd(&suite);
	test_states(&suite);
	test_many_pauses(&suite, "exits");
	test_many_pauses(&suite, "spin");
	test_many_pauses(&suite, "sleep");
	test_early_kill(&suite);
	test_connect(&suite);
	test_peer_that_leaves(&suite);
	return suite_end(&suite);
}
