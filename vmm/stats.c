/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/stats.h"
#include "common/io.h"
#include <errno.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

enum { COLUMNS_MAX = 4, NAME_MAX_SHOWN = 32, PUT_MAX = 128, NS_PER_US = 1000, NS_PER_S = 1000000000 };

static const char *const reason_names[STATS_REASONS_MAX] = {
	[KVM_EXIT_UNKNOWN] = "unknown",
	[KVM_EXIT_EXCEPTION] = "exception",
	[KVM_EXIT_IO] = "port",
	[KVM_EXIT_HYPERCALL] = "hypercall",
	[KVM_EXIT_DEBUG] = "debug",
	[KVM_EXIT_HLT] = "halt",
	[KVM_EXIT_MMIO] = "mmio",
	[KVM_EXIT_IRQ_WINDOW_OPEN] = "interrupt window",
	[KVM_EXIT_SHUTDOWN] = "shutdown",
	[KVM_EXIT_FAIL_ENTRY] = "failed entry",
	[KVM_EXIT_INTR] = "interrupted",
	[KVM_EXIT_INTERNAL_ERROR] = "internal error",
	[KVM_EXIT_SYSTEM_EVENT] = "system event",
	[KVM_EXIT_IOAPIC_EOI] = "end of interrupt",
	[KVM_EXIT_X86_RDMSR] = "msr read",
	[KVM_EXIT_X86_WRMSR] = "msr write",
};

static const char *const moment_names[STATS_MOMENTS] = {
	[STATS_PROCESS] = "process",
	[STATS_SET_UP] = "set up",
	[STATS_RUN] = "guest entered",
	[STATS_BOOTED] = "booted",
	[STATS_ENDED] = "ended",
};

const char *const stats_kvm_names[STATS_KVM_COUNTERS] = {
	[STATS_KVM_EXITS] = "exits",
	[STATS_KVM_FAULTS] = "pf_fixed",
	[STATS_KVM_EMULATED] = "insn_emulation",
	[STATS_KVM_HALTS] = "halt_exits",
	[STATS_KVM_IRQS] = "irq_exits",
};

const char *stats_reason_name(unsigned reason)
{
	return reason < STATS_REASONS_MAX ? reason_names[reason] : NULL;
}

const char *stats_moment_name(enum stats_moment moment)
{
	return moment_names[moment];
}

static uint64_t read_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void stats_note(struct stats *stats, enum stats_moment moment)
{
	if (stats->moments[moment] == 0)
		stats->moments[moment] = read_now();
}

void stats_note_step(struct stats *stats, const char *name)
{
	if (stats->step_count < STATS_STEPS_MAX)
		stats->steps[stats->step_count++] = (struct stats_step){.name = name, .ended = read_now()};
}

void stats_count(struct stats *stats, int reason)
{
	atomic_fetch_add_explicit(&stats->runs, 1, memory_order_relaxed);
	if (reason < 0)
		reason = KVM_EXIT_INTR;
	if (reason >= STATS_REASONS_MAX)
		reason = STATS_REASONS_MAX - 1;
	atomic_fetch_add_explicit(&stats->reasons[reason], 1, memory_order_relaxed);
}

static uint64_t load(const atomic_uint_fast64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

uint64_t stats_exits(const struct stats *stats)
{
	return load(&stats->runs);
}

static void collect_bus(const struct bus *bus, uint64_t counts[BUS_WINDOWS_MAX][2])
{
	for (unsigned i = 0; i < bus->count; i++) {
		counts[i][0] = load(&bus->windows[i].reads);
		counts[i][1] = load(&bus->windows[i].writes);
	}
}

void stats_collect(const struct stats *stats, const struct bus *ports, const struct bus *mmio,
	struct stats_counts *counts)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage) == 0)
		counts->faults = (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
	counts->runs = load(&stats->runs);
	for (unsigned i = 0; i < STATS_REASONS_MAX; i++)
		counts->reasons[i] = load(&stats->reasons[i]);
	collect_bus(ports, counts->ports);
	collect_bus(mmio, counts->mmio);
}

/* A report is a list of sections, a section a list of rows: name and up to COLUMNS_MAX numbers. */
struct report {
	int fd;
	bool json;
	int error; /* the first */
	const char *const *columns;
	unsigned sections, rows;
};

static void put(struct report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct report *report, const char *format, ...)
{
	char text[PUT_MAX];
	va_list arguments;
	int length, r;

	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	r = length < PUT_MAX ? io_write_all(report->fd, text, (size_t)length) : -EOVERFLOW;
	if (report->error == 0)
		report->error = r;
}

static void put_section(struct report *report, const char *title, const char *const *columns, unsigned count)
{
	report->columns = columns;
	report->rows = 0;
	if (report->json) {
		put(report, "%s\"%s\":[", report->sections++ > 0 ? "],\n" : "{", title);
		return;
	}
	put(report, "%-28s", title);
	for (unsigned i = 0; i < count; i++)
		put(report, " %12s", columns[i]);
	put(report, "\n");
}

/* As many values as the section has columns. */
static void put_row(struct report *report, const char *name, const uint64_t *values, unsigned count)
{
	if (report->json)
		put(report, "%s{\"name\":\"%s\"", report->rows++ > 0 ? ",\n " : "\n ", name);
	else
		put(report, "  %-26s", name);
	for (unsigned i = 0; i < count; i++)
		if (report->json)
			put(report, ",\"%s\":%llu", report->columns[i], (unsigned long long)values[i]);
		else
			put(report, " %12llu", (unsigned long long)values[i]);
	put(report, "%s", report->json ? "}" : "\n");
}

static void put_moments(struct report *report, const struct stats *stats)
{
	static const char *const columns[] = {"us"};

	put_section(report, "moments", columns, 1);
	for (unsigned i = STATS_PROCESS + 1; i < STATS_MOMENTS; i++) {
		uint64_t us = (stats->moments[i] - stats->moments[STATS_PROCESS]) / NS_PER_US;

		if (stats->moments[i] != 0)
			put_row(report, moment_names[i], &us, 1);
	}
}

static void put_steps(struct report *report, const struct stats *stats)
{
	static const char *const columns[] = {"us"};
	uint64_t before = stats->moments[STATS_PROCESS];

	put_section(report, "set-up", columns, 1);
	for (unsigned i = 0; i < stats->step_count; i++) {
		uint64_t us = (stats->steps[i].ended - before) / NS_PER_US;

		before = stats->steps[i].ended;
		put_row(report, stats->steps[i].name, &us, 1);
	}
}

static const char *const boot_columns[] = {"boot", "total"};

/* Packets, and those that were lost on their way through the device. */
static void put_net(struct report *report, const struct net_counts *booted, const struct net_counts *counts)
{
	put_row(report, "net sent", (uint64_t[]){booted->sent, counts->sent}, 2);
	put_row(report, "net received", (uint64_t[]){booted->received, counts->received}, 2);
	put_row(report, "net lost, of the guest", (uint64_t[]){booted->lost_sent, counts->lost_sent}, 2);
	put_row(report, "net lost, for the guest", (uint64_t[]){booted->lost_received, counts->lost_received},
		2);
}

static void put_totals(
	struct report *report, const struct stats_counts *booted, const struct stats_counts *counts)
{
	put_section(report, "sums", boot_columns, 2);
	put_row(report, "returns of KVM_RUN", (uint64_t[]){booted->runs, counts->runs}, 2);
	for (unsigned i = 0; i < STATS_KVM_COUNTERS; i++) {
		char name[NAME_MAX_SHOWN];

		snprintf(name, sizeof(name), "kvm %s", stats_kvm_names[i]);
		if (counts->kvm[i] > 0)
			put_row(report, name, (uint64_t[]){booted->kvm[i], counts->kvm[i]}, 2);
	}
	put_row(report, "page faults", (uint64_t[]){booted->faults, counts->faults}, 2);
	put_row(report, "vcpu us", (uint64_t[]){booted->cpu_ns / NS_PER_US, counts->cpu_ns / NS_PER_US}, 2);
	if (counts->has_net)
		put_net(report, &booted->net, &counts->net);
}

static void put_reasons(
	struct report *report, const struct stats_counts *booted, const struct stats_counts *counts)
{
	put_section(report, "exits", boot_columns, 2);
	for (unsigned i = 0; i < STATS_REASONS_MAX; i++) {
		char number[NAME_MAX_SHOWN];

		if (counts->reasons[i] == 0)
			continue;
		snprintf(number, sizeof(number), "reason %u", i);
		put_row(report, reason_names[i] ? reason_names[i] : number,
			(uint64_t[]){booted->reasons[i], counts->reasons[i]}, 2);
	}
}

static void put_windows(struct report *report, const struct bus *bus, const char *kind,
	const uint64_t (*booted)[2], const uint64_t (*counts)[2])
{
	for (unsigned i = 0; i < bus->count; i++) {
		char name[NAME_MAX_SHOWN];

		snprintf(name, sizeof(name), "%s 0x%llx %s", kind, (unsigned long long)bus->windows[i].base,
			bus->windows[i].name);
		if (counts[i][0] + counts[i][1] > 0)
			put_row(report, name,
				(uint64_t[]){booted[i][0], booted[i][1], counts[i][0], counts[i][1]}, 4);
	}
}

static void put_devices(
	struct report *report, const struct stats_counts *booted, const struct stats_counts *counts)
{
	static const char *const columns[] = {"boot_kicks", "boot_irqs", "kicks", "irqs"};

	put_section(report, "devices", columns, 4);
	for (unsigned i = 0; i < counts->device_count; i++) {
		const struct virtio_mmio_stats *then = &booted->devices[i].counts;
		const struct virtio_mmio_stats *now = &counts->devices[i].counts;

		put_row(report, counts->devices[i].name,
			(uint64_t[]){then->notifies, then->interrupts, now->notifies, now->interrupts}, 4);
	}
}

static void put_strays(struct report *report, struct bus *bus, const char *kind)
{
	pthread_mutex_lock(&bus->lock);
	for (unsigned i = 0; i < bus->stray_count; i++) {
		char name[NAME_MAX_SHOWN];

		snprintf(name, sizeof(name), "%s 0x%llx", kind, (unsigned long long)bus->strays[i].address);
		put_row(report, name, &bus->strays[i].count, 1);
	}
	if (bus->strays_other > 0) {
		char name[NAME_MAX_SHOWN];

		snprintf(name, sizeof(name), "%s elsewhere", kind);
		put_row(report, name, &bus->strays_other, 1);
	}
	pthread_mutex_unlock(&bus->lock);
}

int stats_print(int fd, bool json, const struct stats *stats, const struct stats_counts *counts,
	struct bus *ports, struct bus *mmio)
{
	static const char *const access_columns[] = {"boot_reads", "boot_writes", "reads", "writes"};
	static const char *const stray_columns[] = {"total"};
	struct report report = {.fd = fd, .json = json};
	const struct stats_counts *booted = &stats->booted;

	put_moments(&report, stats);
	put_steps(&report, stats);
	put_totals(&report, booted, counts);
	put_reasons(&report, booted, counts);
	put_section(&report, "accesses", access_columns, 4);
	put_windows(&report, ports, "port", booted->ports, counts->ports);
	put_windows(&report, mmio, "mmio", booted->mmio, counts->mmio);
	put_devices(&report, booted, counts);
	put_section(&report, "unanswered", stray_columns, 1);
	put_strays(&report, ports, "port");
	put_strays(&report, mmio, "mmio");
	if (json)
		put(&report, "]}\n");
	return report.error;
}
