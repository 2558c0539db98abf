/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/vm_trace.h"
#include "common/log.h"
#include "common/trace_marks.h"
#include "common/version.h"
#include "vmm/json.h"
#include "vmm/pagemap.h"
#include "vmm/trace.h"
#include "vmm/trace_file.h"
#include "vmm/virtio/mmio.h"
#include "vmm/vm.h"
#include <cpuid.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

_Static_assert((int)LAYOUT_CPUS_MAX <= (int)TRACE_CPUS_MAX, "every vCPU has a lane");

enum {
	BRAND_LEAF = 0x80000002, /* and the two after it: the processor's name */
	BRAND_LEAVES = 3,
	BRAND_BYTES = 16,  /* of each */
	BLOCKS_MAX = 1024, /* of a region, in what is told of memory */
};
/* Memory over this is not told of: its table of pages takes too long to read. */
#define TOLD_MEMORY_MAX (UINT64_C(16) << 30)
#define BLOCK_MIN (UINT64_C(1) << 20)

int vm_trace_start(const struct config *config, uint64_t began, uint64_t cpu)
{
	int r = config->trace.wanted ? trace_start(began, cpu, TRACE_EVENTS_MAX) : 0;

	if (r < 0)
		log_error("--trace: %s", strerror(-r));
	return r;
}

static void write_mark(void *context, uint64_t offset, const void *data, uint32_t length)
{
	uint8_t value;

	(void)context;
	(void)offset;
	if (length != sizeof(value))
		return;
	memcpy(&value, data, sizeof(value));
	trace_add_guest_mark(trace_active, value);
}

static const struct bus_ops mark_ops = {.write = write_mark};

int vm_trace_attach(struct vm *vm)
{
	if (!trace_is_on())
		return 0;
	if (vm->config->restore.wanted)
		trace_name_entry(trace_active, "resume");
	if (vm->pagemap < 0)
		vm->pagemap = pagemap_open();
	if (vm->pagemap < 0)
		vm->pagemap = -1;
	return bus_add(&vm->ports, TRACE_MARKS_PORT, 1, &mark_ops, vm, "marks");
}

/* --- names --- */

static const char *name_window(void *context, bool port, uint64_t address, unsigned size)
{
	struct vm *vm = context;

	return bus_name(port ? &vm->ports : &vm->mmio, address, size);
}

static const char *name_pin(void *context, unsigned pin)
{
	const struct vm *vm = context;

	for (unsigned i = 0; i < vm->device_count; i++)
		if (vm->devices[i].pin == pin)
			return virtio_mmio_name(vm->devices[i].mmio);
	return vm->config->serial && pin == LAYOUT_SERIAL_PIN ? "serial" : NULL;
}

static const char *name_device(void *context, const void *device, unsigned *number)
{
	const struct vm *vm = context;

	for (unsigned i = 0; i < vm->device_count; i++) {
		if (vm->devices[i].mmio != device)
			continue;
		*number = vm->devices[i].number;
		return virtio_mmio_name(vm->devices[i].mmio);
	}
	return NULL;
}

/* --- what is about the VM --- */

static void put_command(const struct config *config, struct json *json)
{
	json_key(json, "command");
	json_open(json, '[');
	for (int i = 0; i < config->command_count; i++)
		json_text(json, config->command[i]);
	json_close(json, ']');
}

static void put_config(const struct vm *vm, struct json *json)
{
	const struct config *config = vm->config;
	char line[CONFIG_CMDLINE_MAX];

	json_break(json);
	json_key(json, "kernel_cmdline");
	if (!config->restore.wanted && config_kernel_cmdline(config, line) == 0)
		json_text(json, line);
	else
		json_null(json);
	json_key(json, "config");
	json_open(json, '{');
	json_key(json, "kind");
	json_text(json, config->standby ? "standby" : config->restore.wanted ? "restore" : "boot");
	json_key(json, "memory");
	json_unsigned(json, config->memory);
	json_key(json, "cpus");
	json_unsigned(json, config->cpus);
	json_key(json, "boot");
	json_text(json, config->boot == CONFIG_BOOT_MPTABLE ? "mptable" : "fdt");
	json_key(json, "serial");
	json_bool(json, config->serial != NULL);
	json_key(json, "devices");
	json_open(json, '[');
	for (unsigned i = 0; i < vm->device_count; i++)
		json_text(json, virtio_mmio_name(vm->devices[i].mmio));
	json_close(json, ']');
	json_close(json, '}');
}

/* 1 where the kernel does not say, or counts more than a set holds. */
static int count_cpus(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) < 0 ? 1 : CPU_COUNT(&cpus);
}

static void put_host(struct json *json)
{
	union {
		unsigned words[BRAND_LEAVES][BRAND_BYTES / sizeof(unsigned)];
		char text[BRAND_LEAVES * BRAND_BYTES + 1];
	} brand = {.text = ""};
	struct utsname names;

	for (unsigned i = 0; i < BRAND_LEAVES; i++)
		__get_cpuid(BRAND_LEAF + i, &brand.words[i][0], &brand.words[i][1], &brand.words[i][2],
			&brand.words[i][3]);
	json_break(json);
	json_key(json, "host");
	json_open(json, '{');
	json_key(json, "cpu");
	json_text(json, brand.text);
	json_key(json, "kernel");
	json_text(json, uname(&names) == 0 ? names.release : "");
	json_key(json, "cpus");
	json_integer(json, count_cpus());
	json_close(json, '}');
}

static void put_end(const struct vm *vm, bool ended, struct json *json)
{
	json_break(json);
	json_key(json, "until");
	json_text(json, vm->config->trace.until_hello ? "hello" : "end");
	json_key(json, "end");
	if (!ended) {
		json_null(json);
		return;
	}
	json_open(json, '{');
	json_key(json, "status");
	json_integer(json, vm->end);
	json_key(json, "reason");
	json_text(json, vm->reason);
	json_close(json, '}');
}

static void put_moments(const struct vm *vm, uint64_t start, struct json *json)
{
	json_break(json);
	json_key(json, "moments");
	json_open(json, '[');
	for (unsigned i = STATS_PROCESS; i < STATS_MOMENTS; i++) {
		uint64_t at = vm->stats.moments[i];

		if (at < start)
			continue;
		json_open(json, '{');
		json_key(json, "name");
		json_text(json, stats_moment_name((enum stats_moment)i));
		json_key(json, "us");
		json_us(json, at - start);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void put_pair(struct json *json, const char *name, uint64_t boot, uint64_t total)
{
	json_open(json, '{');
	json_key(json, "name");
	json_text(json, name);
	json_key(json, "boot");
	json_unsigned(json, boot);
	json_key(json, "total");
	json_unsigned(json, total);
	json_close(json, '}');
}

static void put_counts(const struct stats_counts *boot, const struct stats_counts *total, struct json *json)
{
	json_break(json);
	json_key(json, "kvm");
	json_open(json, '[');
	for (unsigned i = 0; i < STATS_KVM_COUNTERS; i++)
		if (total->kvm[i] > 0)
			put_pair(json, stats_kvm_names[i], boot->kvm[i], total->kvm[i]);
	json_close(json, ']');
	json_break(json);
	json_key(json, "process");
	json_open(json, '[');
	put_pair(json, "faults", boot->faults, total->faults);
	put_pair(json, "vcpu_ns", boot->cpu_ns, total->cpu_ns);
	json_close(json, ']');
}

/* --- memory --- */

/* Pages of [start, start + size) that are there. -errno: it is not known. */
static int64_t count_pages(int pagemap, const uint8_t *start, uint64_t size)
{
	int64_t touched = 0;

	for (uint64_t page = 0; page < size / LAYOUT_PAGE; page += PAGEMAP_PAGES_MAX) {
		uint64_t left = size / LAYOUT_PAGE - page;
		size_t count = left < PAGEMAP_PAGES_MAX ? (size_t)left : PAGEMAP_PAGES_MAX;
		bool own[PAGEMAP_PAGES_MAX];
		int r = pagemap_read(pagemap, start + page * LAYOUT_PAGE, count, own);

		if (r < 0)
			return r;
		for (size_t i = 0; i < count; i++)
			touched += own[i];
	}
	return touched;
}

static size_t blocks_of(const struct guest_region *region, uint64_t block)
{
	return (size_t)((region->size + block - 1) / block);
}

/* Of each block the pages that are there, region after region; the caller's. NULL: not all of it is known. */
static int64_t *count_blocks(const struct vm *vm, uint64_t block)
{
	size_t total = 0, at = 0;
	int64_t *counts;

	for (unsigned i = 0; i < vm->memory.count; i++)
		total += blocks_of(&vm->memory.regions[i], block);
	counts = calloc(total + 1, sizeof(*counts));
	for (unsigned i = 0; counts && i < vm->memory.count; i++) {
		const struct guest_region *region = &vm->memory.regions[i];

		for (uint64_t from = 0; counts && from < region->size; from += block, at++) {
			uint64_t left = region->size - from;

			counts[at] = count_pages(vm->pagemap, (const uint8_t *)region->host + from,
				left < block ? left : block);
			if (counts[at] < 0) {
				free(counts);
				counts = NULL;
			}
		}
	}
	return counts;
}

static int64_t put_region(
	const struct guest_region *region, const int64_t *counts, size_t count, struct json *json)
{
	int64_t sum = 0;

	json_open(json, '{');
	json_key(json, "address");
	json_hex(json, region->base);
	json_key(json, "size");
	json_unsigned(json, region->size);
	json_key(json, "touched");
	json_open(json, '[');
	for (size_t i = 0; i < count; i++) {
		sum += counts[i];
		json_integer(json, counts[i]);
	}
	json_close(json, ']');
	json_close(json, '}');
	return sum;
}

static void put_memory(const struct vm *vm, struct json *json)
{
	uint64_t size = vm->config->memory, block = BLOCK_MIN;
	int64_t sum = 0, *counts = NULL;
	size_t at = 0;

	json_break(json);
	json_key(json, "memory");
	while (size / block > BLOCKS_MAX)
		block *= 2;
	if (vm->pagemap >= 0 && size <= TOLD_MEMORY_MAX)
		counts = count_blocks(vm, block);
	if (!counts) {
		json_null(json);
		return;
	}
	json_open(json, '{');
	json_key(json, "page");
	json_unsigned(json, LAYOUT_PAGE);
	json_key(json, "block");
	json_unsigned(json, block);
	json_key(json, "regions");
	json_open(json, '[');
	for (unsigned i = 0; i < vm->memory.count; i++) {
		size_t count = blocks_of(&vm->memory.regions[i], block);

		sum += put_region(&vm->memory.regions[i], counts + at, count, json);
		at += count;
	}
	free(counts);
	json_close(json, ']');
	json_key(json, "touched");
	json_integer(json, sum);
	json_close(json, '}');
}

/* --- the file --- */

static int put_all(struct vm *vm, bool ended, int fd)
{
	const struct trace_names names = {.context = vm,
		.reason = stats_reason_name,
		.window = name_window,
		.pin = name_pin,
		.device = name_device};
	struct stats_counts *total = calloc(1, sizeof(*total));
	struct json *json = malloc(sizeof(*json));
	int r = -ENOMEM;

	if (!total || !json)
		goto done;
	vm_collect_stats(vm, total);
	json_init(json, fd);
	json_open(json, '{');
	trace_put_events(trace_active, &names, json);
	json_key(json, "displayTimeUnit");
	json_text(json, "ns");
	json_key(json, "otherData");
	json_open(json, '{');
	json_break(json);
	json_key(json, "format");
	json_integer(json, TRACE_FORMAT);
	json_key(json, "vmm");
	json_text(json, TINDERBOX_VERSION);
	put_command(vm->config, json);
	put_config(vm, json);
	put_host(json);
	put_end(vm, ended, json);
	put_moments(vm, trace_started(trace_active), json);
	trace_put_totals(trace_active, &names, json);
	put_counts(&vm->stats.booted, ended ? total : &vm->stats.booted, json);
	put_memory(vm, json);
	json_close(json, '}');
	json_close(json, '}');
	json_line(json);
	r = json_finish(json);
done:
	free(json);
	free(total);
	return r;
}

static void write_trace(struct vm *vm, bool ended)
{
	int r;

	if (!trace_close(trace_active) || !vm->trace_file)
		return;
	r = put_all(vm, ended, vm->trace_file->fd);
	if (r == 0)
		r = trace_file_commit(vm->trace_file);
	else
		trace_file_discard(vm->trace_file);
	if (r < 0)
		log_error("--trace %s cannot be written: %s; the VM is not concerned%s",
			vm->config->trace.file, strerror(-r),
			r == -ENOSPC || r == -EDQUOT || r == -EFBIG ? "; give a file where there is room"
								    : "");
}

void vm_trace_hello(struct vm *vm)
{
	(void)vm;
	if (trace_is_on())
		trace_add_hello(trace_active);
}

void vm_trace_greeted(struct vm *vm)
{
	if (trace_is_on() && vm->config->trace.until_hello)
		write_trace(vm, false);
}

void vm_trace_end(struct vm *vm)
{
	if (!trace_is_on())
		return;
	trace_add_mark(trace_active, "end");
	write_trace(vm, true);
}
