/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --stats shows: when things happened, exits by reason, accesses by device and port. Counted always (one
 * relaxed addition an exit), printed on demand.
 *
 * "Boot" ends with the guest's first connection to the host by vsock, which the agent makes when it is ready;
 * all counters are noted then and shown beside the totals.
 */
#ifndef VMM_STATS_H
#define VMM_STATS_H

#include "vmm/bus.h"
#include "vmm/virtio/mmio.h"
#include "vmm/virtio/net.h"
#include <stdatomic.h>
#include <stdbool.h>

enum {
	STATS_REASONS_MAX = 48, /* KVM_EXIT_*; a newer one is counted as the last */
	STATS_DEVICES_MAX = 16,
	STATS_STEPS_MAX = 24,
};

enum stats_moment {
	STATS_PROCESS, /* main began */
	STATS_SET_UP,  /* KVM is set up, all is loaded */
	STATS_RUN,     /* the first vCPU enters the guest */
	STATS_BOOTED,  /* the guest's first connection */
	STATS_ENDED,
	STATS_MOMENTS
};

/* KVM's own counters that are shown, by its names; KVM counts exits that never reach us, too. */
enum stats_kvm {
	STATS_KVM_EXITS,
	STATS_KVM_FAULTS,
	STATS_KVM_EMULATED,
	STATS_KVM_HALTS,
	STATS_KVM_IRQS,
	STATS_KVM_COUNTERS
};
extern const char *const stats_kvm_names[STATS_KVM_COUNTERS];

struct stats_device {
	const char *name;
	struct virtio_mmio_stats counts;
};

/* All counters at one moment. */
struct stats_counts {
	uint64_t runs;			  /* returns of KVM_RUN, interrupted ones too */
	uint64_t kvm[STATS_KVM_COUNTERS]; /* 0: none, or not known */
	uint64_t faults;		  /* page faults of this process */
	uint64_t cpu_ns;		  /* CPU time of the vCPU threads */
	uint64_t reasons[STATS_REASONS_MAX];
	uint64_t ports[BUS_WINDOWS_MAX][2], mmio[BUS_WINDOWS_MAX][2]; /* reads, writes */
	struct stats_device devices[STATS_DEVICES_MAX];
	unsigned device_count;
	bool has_net;
	struct net_counts net; /* packets of the network device */
};

struct stats_step {
	const char *name;
	uint64_t ended; /* as moments */
};

struct stats {
	uint64_t moments[STATS_MOMENTS];	  /* CLOCK_MONOTONIC, ns; 0: has not come */
	struct stats_step steps[STATS_STEPS_MAX]; /* of set-up */
	unsigned step_count;
	atomic_uint_fast64_t runs;
	atomic_uint_fast64_t reasons[STATS_REASONS_MAX];
	struct stats_counts booted;
};

/* Their names in what is printed. NULL: a reason without one. */
const char *stats_reason_name(unsigned reason);
const char *stats_moment_name(enum stats_moment moment);

/* Notes the moment unless it has come already. */
void stats_note(struct stats *stats, enum stats_moment moment);

/* A step of set-up has ended; those over STATS_STEPS_MAX are not noted. name must outlive stats. */
void stats_note_step(struct stats *stats, const char *name);

/* One return of KVM_RUN; reason -1: it was interrupted. Any thread. */
void stats_count(struct stats *stats, int reason);
uint64_t stats_exits(const struct stats *stats);

/* Fills runs, faults, reasons and the buses' counters; the rest is the caller's to fill. */
void stats_collect(const struct stats *stats, const struct bus *ports, const struct bus *mmio,
	struct stats_counts *counts);

/* A table for people, or one JSON object. 0 or -errno of write. */
int stats_print(int fd, bool json, const struct stats *stats, const struct stats_counts *counts,
	struct bus *ports, struct bus *mmio);

#endif
