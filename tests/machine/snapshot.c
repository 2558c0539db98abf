/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny guests that are saved and restored: registers and timers survive, time stands still meanwhile, what is
 * wrong with a snapshot is named. TAP. Usage: snapshot VMM FOLDER-OF-GUESTS [long]
 */
#include "vmm/snapshot.h"
#include "common/io.h"
#include "tests/machine/snapshot_vm.h"
#include "vmm/checksum.h"
#include "vmm/vcpu_state_x86_64.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	CHAIN = 20,
	CLONES = 20,
	CLONES_LONG = 1000,
	CLONES_AT_ONCE = SNAPSHOT_VM_CLONES_MAX, /* CLONES and CLONES_LONG are multiples of it */
	MEMORY = 16 << 20,
	LAPIC_CURRENT_COUNT = 0x390,
	NS_PER_MS = 1000000
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
}

/* --- registers --- */

static bool start_state(struct suite *suite, struct machine *machine)
{
	if (!machine_start(suite, "state", NULL, true, machine))
		return false;
	if (machine_gets_on(machine))
		return true;
	machine_expect_end(suite, machine, "the guest that compares registers runs", -1, "");
	return false;
}

/* Each generation is saved and the next restored from that. */
static void test_chain(struct suite *suite)
{
	struct snapshot_files files;
	struct machine machine;
	int i = 0;

	if (!start_state(suite, &machine))
		return;
	for (; i < CHAIN; i++) {
		if (!snapshot_vm_take(suite, &machine, "a chain of snapshots", &files))
			return;
		if (!snapshot_vm_restore(suite, &files, NULL, &machine))
			return;
		snapshot_files_close(&files);
		if (!machine_gets_on(&machine))
			break;
	}
	if (i == CHAIN)
		kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine,
		"chained snapshots: 20 times over, registers and memory are as they were", VMM_END_KILLED,
		"ended by SIGTERM");
}

static void test_goes_on(struct suite *suite)
{
	struct vmm_message reply = {.status = 0};
	struct snapshot_files files, more;
	struct machine machine;
	bool ok;

	if (!start_state(suite, &machine))
		return;
	ok = machine_ask(&machine, VMM_PAUSE, &reply) && snapshot_vm_save(&machine, &files, &reply) == 0;
	suite_report(suite, ok && reply.arg0 > SNAPSHOT_HEADER && reply.arg1 > 0 && reply.arg1 < MEMORY,
		"a save tells what it wrote", "status %d, %llu and %llu bytes", reply.status,
		(unsigned long long)reply.arg0, (unsigned long long)reply.arg1);
	ok = ok && machine_ask(&machine, VMM_RESUME, &reply) && machine_gets_on(&machine);
	suite_report(suite, ok, "and the guest goes on", "it does not: %s", reply.text);
	ok = machine_ask(&machine, VMM_PAUSE, &reply) && snapshot_vm_save(&machine, &more, &reply) == 0;
	suite_report(suite, ok, "and can be saved again", "status %d: %s", reply.status, reply.text);
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by SIGTERM");
	/* Two guests out of one snapshot, each with memory of its own. */
	if (snapshot_vm_restore(suite, &files, NULL, &machine)) {
		struct machine second;

		if (snapshot_vm_restore(suite, &files, NULL, &second)) {
			ok = machine_gets_on(&machine) && machine_gets_on(&second);
			suite_report(suite, ok, "two guests live on one snapshot", "one does not get on");
			kill(second.pid, SIGTERM);
			machine_expect_end(suite, &second, "one ends", VMM_END_KILLED, "ended by SIGTERM");
		}
		suite_report(suite, machine_gets_on(&machine), "and the other goes on", "it does not");
		kill(machine.pid, SIGTERM);
		machine_expect_end(suite, &machine, "and ends too", VMM_END_KILLED, "ended by SIGTERM");
	}
	snapshot_files_close(&files);
	snapshot_files_close(&more);
}

/* --- save, restore, save --- */

/* The one vCPU in a state file, and the bytes around its record. */
struct taken {
	uint8_t *data;
	size_t length, vcpu_start, vcpu_end;
	struct vcpu_state vcpu;
	uint64_t clock;
};

static bool take_apart(const struct snapshot_files *files, struct taken *taken)
{
	struct state_reader records, record;
	struct snapshot_memory memory;
	char why[SNAPSHOT_WHY_MAX];

	memset(taken, 0, sizeof(*taken));
	taken->data = snapshot_files_state(files, &taken->length);
	if (snapshot_parse(taken->data, taken->length, &memory, &records, why) < 0)
		return false;
	state_get_record(&records, SNAPSHOT_MACHINE, &record);
	state_get_record(&records, SNAPSHOT_CLOCK, &record);
	taken->clock = state_get_u64(&record);
	taken->vcpu_start = SNAPSHOT_HEADER + records.offset;
	state_get_record(&records, SNAPSHOT_VCPU, &record);
	taken->vcpu_end = SNAPSHOT_HEADER + records.offset;
	vcpu_state_get(&record, &taken->vcpu);
	return state_reader_finish(&record) == 0 && !records.error;
}

/* All but what counts time is the same, and that has not run ahead of it. */
static bool same(const struct taken *a, struct taken *b, uint64_t ticks, uint64_t ns, const char **what)
{
	*what = "the TSC";
	if (b->vcpu.tsc < a->vcpu.tsc || b->vcpu.tsc - a->vcpu.tsc > ticks)
		return false;
	*what = "kvm-clock";
	if (b->clock < a->clock || b->clock - a->clock > ns)
		return false;
	b->vcpu.tsc = a->vcpu.tsc;
	memcpy(b->vcpu.lapic.regs + LAPIC_CURRENT_COUNT, a->vcpu.lapic.regs + LAPIC_CURRENT_COUNT, 4);
	*what = "a vCPU";
	if (memcmp(&a->vcpu, &b->vcpu, sizeof(a->vcpu)) != 0)
		return false;
	*what = "another record";
	return a->length == b->length && a->vcpu_end == b->vcpu_end &&
	       memcmp(a->data + a->vcpu_end, b->data + b->vcpu_end,
		       a->length - a->vcpu_end - SNAPSHOT_CHECKSUM) == 0;
}

static bool same_memory(int a, int b)
{
	void *first = mmap(NULL, MEMORY, PROT_READ, MAP_PRIVATE, a, 0);
	void *second = mmap(NULL, MEMORY, PROT_READ, MAP_PRIVATE, b, 0);
	bool is_same = first != MAP_FAILED && second != MAP_FAILED && memcmp(first, second, MEMORY) == 0;

	if (first != MAP_FAILED)
		munmap(first, MEMORY);
	if (second != MAP_FAILED)
		munmap(second, MEMORY);
	return is_same;
}

static void test_register_not_saved(struct suite *suite)
{
	static const char name[] = "a register not saved: save, restore, save is identical";
	static const char *const paused[] = {"--paused", NULL};
	struct vmm_message reply = {.status = 0};
	struct snapshot_files first = {-1, -1, -1}, second = first;
	static struct taken a, b;
	struct machine machine;
	const char *what = "the format";
	uint64_t started, ticks;
	bool ok;

	if (!start_state(suite, &machine))
		return;
	ticks = vcpu_state_now();
	started = now_ms();
	if (!snapshot_vm_take(suite, &machine, name, &first) ||
		!snapshot_vm_restore(suite, &first, paused, &machine))
		return;
	ok = machine_await_state(&machine, VMM_STATE_PAUSED, &reply) &&
	     snapshot_vm_save(&machine, &second, &reply) == 0;
	suite_report(
		suite, ok, "a guest can be restored to stand", "status %d: %s", reply.status, reply.text);
	ticks = vcpu_state_now() - ticks;
	ok = ok && take_apart(&first, &a) && take_apart(&second, &b);
	ok = ok && same(&a, &b, ticks, (now_ms() - started + 1) * NS_PER_MS, &what);
	suite_report(suite, ok, name, "%s differs", what);
	suite_report(suite, same_memory(first.memory, second.memory), "and so is memory", "it is not");
	ok = machine_ask(&machine, VMM_RESUME, &reply) && machine_gets_on(&machine);
	suite_report(suite, ok, "and the guest goes on when it is resumed", "it does not: %s", reply.text);
	kill(machine.pid, SIGTERM);
	machine_expect_end(
		suite, &machine, "with every register in its place", VMM_END_KILLED, "ended by SIGTERM");
	free(a.data);
	free(b.data);
	snapshot_files_close(&first);
	snapshot_files_close(&second);
}

/* --- timers --- */

/* The guest's timer is set when it reads the port. */
static bool await_exit(struct machine *machine)
{
	enum vmm_state state = VMM_STATE_RUNNING;
	int i = 0;

	while (i < 10000 && machine_count_exits(machine, &state) == 0)
		i++;
	return i < 10000;
}

static bool take_asleep(
	struct suite *suite, const char *guest, const char *name, struct snapshot_files *files)
{
	struct machine machine;

	if (!machine_start(suite, guest, NULL, true, &machine))
		return false;
	if (!await_exit(&machine))
		suite_report(suite, false, name, "it was not set");
	return snapshot_vm_take(suite, &machine, name, files);
}

static void test_timer(struct suite *suite, const char *guest)
{
	char name[96];
	struct snapshot_files files;
	struct machine machine;

	snprintf(name, sizeof(name), "timers lost: %s comes after a restore, and not before its time", guest);
	if (!take_asleep(suite, guest, name, &files))
		return;
	usleep(300 * 1000);
	if (snapshot_vm_restore(suite, &files, NULL, &machine))
		machine_expect_end(suite, &machine, name, VMM_END_POWEROFF, "the guest powered off");
	snapshot_files_close(&files);
}

static void test_timer_clones(struct suite *suite, const char *guest, int clones)
{
	char name[96];
	struct snapshot_files files;
	int awake = 0;

	snprintf(name, sizeof(name), "timers lost: %s comes in each of %d clones", guest, clones);
	if (!take_asleep(suite, guest, name, &files))
		return;
	snapshot_files_seal(&files);
	for (int i = 0; i < clones && awake == i; i += CLONES_AT_ONCE)
		awake += snapshot_vm_count_ends(suite, &files, CLONES_AT_ONCE, VMM_END_POWEROFF);
	suite_report(suite, awake == clones, name, "in %d", awake);
	snapshot_files_close(&files);
}

/* --- what is pending --- */

/* A guest that finds out when a vCPU is let go on that had halted, or an NMI comes within another. */
static void test_stays(struct suite *suite, const char *guest, bool runs, const char *name)
{
	struct vmm_message message;
	struct snapshot_files files;
	struct machine machine;

	if (!machine_start(suite, guest, NULL, true, &machine))
		return;
	if (!(runs ? machine_gets_on(&machine) : await_exit(&machine)))
		suite_report(suite, false, name, "it does not run");
	if (!snapshot_vm_take(suite, &machine, name, &files))
		return;
	if (!snapshot_vm_restore(suite, &files, NULL, &machine))
		return;
	snapshot_files_close(&files);
	if (runs)
		machine_gets_on(&machine);
	else if (machine_await_state(&machine, VMM_STATE_RUNNING, &message))
		usleep(300 * 1000);
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, name, VMM_END_KILLED, "ended by SIGTERM");
}

/* --- what is refused --- */

static void expect_refusal(struct suite *suite, const struct snapshot_files *files,
	const char *const *options, const char *name, const char *line)
{
	struct machine machine;

	if (snapshot_vm_restore(suite, files, options, &machine))
		machine_expect_end(suite, &machine, name, VMM_END_SETUP, line);
}

/* The same files with one byte of the state changed; with `mend`, the checksum is right again. */
static void change_state(
	const struct snapshot_files *from, struct snapshot_files *to, size_t offset, uint8_t flip, bool mend)
{
	size_t length;
	uint8_t *data = snapshot_files_state(from, &length);

	snapshot_files_make(to);
	fd_close(&to->memory);
	to->memory = dup(from->memory);
	data[offset] ^= flip;
	if (mend) {
		uint64_t sum = checksum(data, length - SNAPSHOT_CHECKSUM);

		memcpy(data + length - SNAPSHOT_CHECKSUM, &sum, sizeof(sum));
	}
	if (io_write_all(to->state, data, length) < 0)
		perror("state");
	free(data);
}

static void expect_change_refused(struct suite *suite, const struct snapshot_files *files, size_t offset,
	bool mend, const char *name, const char *line)
{
	struct snapshot_files changed;

	change_state(files, &changed, offset, 1, mend);
	expect_refusal(suite, &changed, NULL, name, line);
	snapshot_files_close(&changed);
}

static void test_state_refused(struct suite *suite, const struct snapshot_files *files)
{
	struct snapshot_files none;
	struct taken taken;
	size_t cpuid;

	if (!take_apart(files, &taken))
		return;
	/* Behind tag, length, id, frequency, TSC and count: leaf 0's function, index, flags and EAX. */
	cpuid = taken.vcpu_start + 8 + 4 + 4 + 8 + 4;
	expect_change_refused(suite, files, 0, false, "no state file", "is not the state file of a snapshot");
	expect_change_refused(suite, files, 8, true, "a newer version",
		"has version 0 of the format and this vmm knows versions 1 and 2; use the vmm that wrote it");
	expect_change_refused(suite, files, taken.vcpu_start + 100, false, "a damaged state",
		"is damaged: its checksum is another");
	expect_change_refused(suite, files, cpuid + 16, true, "restored on another CPU: its vendor",
		"is of another processor: ");
	expect_change_refused(suite, files, cpuid + 28 + 12, true, "restored on another CPU: its model",
		"is of another processor: family, model and stepping are ");
	expect_change_refused(suite, files, cpuid + 28 + 24, true, "restored on another CPU: a feature",
		"is of another processor or KVM: CPUID leaf 0x1.0 has EDX ");
	expect_change_refused(suite, files, taken.vcpu_start + 8 + 4 + 3, true,
		"restored on another CPU: the TSC's frequency", "its TSC counts ");
	expect_change_refused(
		suite, files, SNAPSHOT_HEADER + 8, true, "another number of CPUs", "--restore fd:");
	expect_change_refused(suite, files, taken.vcpu_end + 8, true, "another number of pins",
		"what it says of the IOAPIC is not possible");
	free(taken.data);
	snapshot_files_make(&none);
	expect_refusal(suite, &none, NULL, "an empty state", "is not the state file of a snapshot");
	snapshot_files_close(&none);
}

static void test_truncated(struct suite *suite, const struct snapshot_files *files)
{
	struct snapshot_files cut;
	size_t length;

	free(snapshot_files_state(files, &length));
	for (size_t part = 1; part < 4; part++) {
		change_state(files, &cut, 0, 0, false);
		if (ftruncate(cut.state, (off_t)(length * part / 4)) < 0)
			perror("ftruncate");
		expect_refusal(suite, &cut, NULL, "a state that was cut off", "and its header speaks of");
		snapshot_files_close(&cut);
	}
}

static void test_memory_refused(struct suite *suite, const struct snapshot_files *files)
{
	struct snapshot_files other = {.state = files->state};
	uint8_t byte = 0x77, was = 0;

	if (pread(files->memory, &was, 1, 0x100000) != 1 || pwrite(files->memory, &byte, 1, 0x100000) != 1)
		perror("memory");
	expect_refusal(suite, files, NULL, "a damaged memory",
		"is damaged, or not the one that was saved with this state: its checksum is another");
	if (pwrite(files->memory, &was, 1, 0x100000) != 1 || ftruncate(files->memory, MEMORY - 1) < 0)
		perror("memory");
	expect_refusal(suite, files, NULL, "a memory that was cut off", "has 16777215 bytes, not 16777216");
	if (ftruncate(files->memory, MEMORY) < 0)
		perror("memory");
	other.memory = open("/dev/null", O_RDONLY);
	expect_refusal(suite, &other, NULL, "a memory that is no file", "is no regular file");
	fd_close(&other.memory);
}

static void test_machine_refused(struct suite *suite, const struct snapshot_files *files)
{
	static const char *const memory[] = {"--mem", "32M", NULL}, *const cpus[] = {"--cpus", "2", NULL};
	static const char *const serial[] = {"--serial", "/dev/null", NULL}, *const net[] = {
										     "--net", "none", NULL};
	static const char *const cid[] = {"--vsock-cid", "4", NULL}, *const same_one[] = {"--mem", "16M",
									     "--cpus", "1", NULL};
	struct machine machine;

	expect_refusal(
		suite, files, memory, "another size of memory", "--mem 32M does not go with --restore fd:");
	expect_refusal(
		suite, files, cpus, "another number of CPUs", "--cpus 2 does not go with --restore fd:");
	expect_refusal(suite, files, serial, "a serial line that was not there",
		"is of a machine without a serial line; leave out --serial");
	expect_refusal(
		suite, files, net, "a device more", "is of a machine with 2 devices, and this one has 3");
	expect_refusal(suite, files, cid, "another address",
		"the guest has the vsock address 3; give --vsock-cid 3");
	if (!snapshot_vm_restore(suite, files, same_one, &machine))
		return;
	suite_report(suite, machine_gets_on(&machine), "the same given again is fine", "it does not get on");
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by SIGTERM");
}

static int make_disk(off_t bytes, char name[16])
{
	int fd = memfd_create("disk", 0);

	if (fd < 0 || ftruncate(fd, bytes) < 0)
		perror("disk");
	snprintf(name, 16, "fd:%d", fd);
	return fd;
}

static void test_devices_refused(struct suite *suite)
{
	char disk[16], read_only[24], larger[16];
	int fd = make_disk(1 << 20, disk), other = make_disk(2 << 20, larger);
	const char *const options[] = {"--disk", disk, "--net", "none,mac=02:00:00:00:00:01", NULL};
	const char *const ro[] = {"--disk", read_only, "--net", "none", NULL};
	const char *const size[] = {"--disk", larger, "--net", "none", NULL};
	const char *const kind[] = {"--disk", disk, "--balloon", NULL};
	const char *const mac[] = {"--disk", disk, "--net", "none,mac=02:00:00:00:00:02", NULL};
	const char *const good[] = {"--disk", disk, "--net", "none", NULL};
	struct snapshot_files files;
	struct machine machine;

	snprintf(read_only, sizeof(read_only), "%s,ro", disk);
	if (!machine_start(suite, "state", options, true, &machine) || !machine_gets_on(&machine) ||
		!snapshot_vm_take(suite, &machine, "a snapshot with devices", &files))
		return;
	expect_refusal(suite, &files, ro, "a disk that was writable",
		"--restore: disk 0 was writable; leave out its ,ro");
	expect_refusal(suite, &files, size, "a disk of another size",
		"--restore: disk 0 had 1048576 bytes and has 2097152 here; give the one of the snapshot");
	expect_refusal(suite, &files, kind, "another device in its place",
		"device 1 was a net device and is a vsock device here; give the same ones in the same order");
	expect_refusal(suite, &files, mac, "another MAC address",
		"--restore: the guest has the MAC address 02:00:00:00:00:01; leave mac= out");
	if (snapshot_vm_restore(suite, &files, good, &machine)) {
		suite_report(
			suite, machine_gets_on(&machine), "the same devices are fine", "it does not run");
		kill(machine.pid, SIGTERM);
		machine_expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by SIGTERM");
	}
	snapshot_files_close(&files);
	fd_close(&fd);
	fd_close(&other);
}

static void test_refusals(struct suite *suite)
{
	struct snapshot_files files;
	struct machine machine;

	if (!start_state(suite, &machine) || !snapshot_vm_take(suite, &machine, "a snapshot", &files))
		return;
	test_state_refused(suite, &files);
	test_truncated(suite, &files);
	test_memory_refused(suite, &files);
	test_machine_refused(suite, &files);
	snapshot_files_close(&files);
}

/* --- saves that are refused --- */

static int save_into(struct machine *machine, int state, int memory, struct vmm_message *reply)
{
	struct vmm_message request = {.type = VMM_SAVE, .sequence = ++machine->sequence};
	int fds[2] = {state, memory};

	if (io_send_fds(machine->control, &request, sizeof(request), fds, 2) < 0 ||
		!machine_await_reply(machine, reply))
		return -ETIMEDOUT;
	return reply->status;
}

static void expect_no_save(
	struct suite *suite, struct machine *machine, int state, int memory, int error, const char *text)
{
	struct vmm_message reply = {.status = 0};
	int r = save_into(machine, state, memory, &reply);

	suite_report(suite, r == error && strstr(reply.text, text), text, "status %d: %s", r, reply.text);
}

static off_t size_of(int fd)
{
	struct stat status = {.st_size = -1};

	(void)fstat(fd, &status);
	return status.st_size;
}

static void test_save_refused(struct suite *suite)
{
	struct vmm_message reply = {.status = 0};
	struct snapshot_files files;
	struct machine machine;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), one;
	char name[32];

	if (!start_state(suite, &machine))
		return;
	snapshot_files_make(&files);
	expect_no_save(suite, &machine, files.state, files.memory, -EBUSY, "the VM is not paused");
	machine_ask(&machine, VMM_PAUSE, &reply);
	expect_no_save(suite, &machine, files.state, files.state, -EINVAL,
		"state and memory are to go to the same file");
	expect_no_save(suite, &machine, null, files.memory, -EINVAL,
		"the file for the state is not an empty regular file");
	expect_no_save(suite, &machine, files.state, null, -EINVAL,
		"the file for the memory is not an empty regular file");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", files.memory);
	one = open(name, O_RDONLY | O_CLOEXEC);
	expect_no_save(
		suite, &machine, files.state, one, -EBADF, "the file for the memory is not open for writing");
	fd_close(&one);
	fcntl(files.memory, F_ADD_SEALS, F_SEAL_GROW);
	expect_no_save(suite, &machine, files.state, files.memory, -EPERM,
		"writing the snapshot: Operation not permitted");
	suite_report(suite, size_of(files.state) == 0 && size_of(files.memory) == 0,
		"a save that failed leaves nothing", "%lld and %lld bytes", (long long)size_of(files.state),
		(long long)size_of(files.memory));
	snapshot_files_close(&files);
	suite_report(suite, snapshot_vm_save(&machine, &files, &reply) == 0, "and the next one is good",
		"status %d: %s", reply.status, reply.text);
	expect_no_save(suite, &machine, files.state, files.memory, -EINVAL,
		"the file for the state is not an empty regular file");
	suite_report(suite, machine_ask(&machine, VMM_RESUME, &reply) && machine_gets_on(&machine),
		"after all that the guest goes on", "it does not");
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by SIGTERM");
	snapshot_files_close(&files);
	fd_close(&null);
}

int main(int argc, char *argv[])
{
	struct suite suite = {0};
	bool is_long = argc == 4 && strcmp(argv[3], "long") == 0;
	int clones = is_long ? CLONES_LONG : CLONES;

	if (!suite_begin(&suite, is_long ? argc - 1 : argc, argv))
		return 2;
	test_goes_on(&suite);
	test_register_not_saved(&suite);
	test_chain(&suite);
	test_timer(&suite, "timer_deadline");
	test_timer(&suite, "timer_oneshot");
	test_timer(&suite, "timer_periodic");
	test_timer_clones(&suite, "timer_deadline", clones);
	test_timer_clones(&suite, "timer_oneshot", clones);
	test_timer_clones(&suite, "timer_periodic", clones);
	test_stays(&suite, "halted", false, "a CPU that had halted stays so");
	test_stays(&suite, "nmi", true, "an NMI that is being served keeps others out");
	test_refusals(&suite);
	test_devices_refused(&suite);
	test_save_refused(&suite);
	return suite_end(&suite);
}
