/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual CPU and its thread. What is the processor's own is in vcpu_x86_64.c.
 *
 *             run                  stand
 *   STANDING -----> RUNNING ----------------> STANDING
 *       |              | quit, or the guest's end
 *       `------------->`--> STANDING for good, and the thread ends at quit
 *
 * The thread stands only between two instructions of the guest, with the exit before completed, so that its
 * state could be saved. Wishes may come from any thread, the vCPU's own included. A vCPU that the guest has
 * not started yet counts as running: its thread waits within KVM_RUN, and leaves it as others do.
 */
#ifndef VMM_VCPU_H
#define VMM_VCPU_H

#include "common/proto_vmm.h"
#include "vmm/bus.h"
#include "vmm/kvm.h"
#include "vmm/stats.h"
#include <pthread.h>
#include <stdbool.h>

struct boot_state;

enum vcpu_wish { VCPU_STAND, VCPU_RUN, VCPU_QUIT /* final */ };

/* What a vCPU needs of its machine; the functions are called on the vCPU's thread. */
struct vcpu_machine {
	struct bus *ports, *mmio;
	struct stats *stats;
	void *context;
	/* Only the first counts. The reason names the vCPU, unless it is the first one. */
	void (*end)(void *context, enum vmm_end end, const char *reason);
	void (*stands)(void *context); /* with the vCPU's lock held: must not call back */
};

struct vcpu {
	const struct kvm *kvm;
	const struct vcpu_machine *machine;
	unsigned id;
	int fd;
	int stats; /* fd of KVM's counters; -1: none */
	struct kvm_run *run;
	pthread_t thread;
	bool has_thread;
	bool over; /* the thread's own: not to run again */
	pthread_mutex_t lock;
	pthread_cond_t wished;
	enum vcpu_wish wish; /* under the lock, as is `running` */
	bool running;
	uint64_t cpu_ns; /* of the thread, when it last came to stand */
};

/* Makes the signal that takes a vCPU out of the guest harmless. Once in a process, before any vcpu_start. */
int vcpu_install_kick(void);

/* Standing, without a thread. kvm and machine must outlive it. 0 or -errno; then vcpu_finish need not be
 * called. */
int vcpu_init(
	struct vcpu *vcpu, const struct kvm *kvm, int vm, unsigned id, const struct vcpu_machine *machine);
/* Starts the thread, standing. 0 or -errno. */
int vcpu_start(struct vcpu *vcpu);
void vcpu_wish(struct vcpu *vcpu, enum vcpu_wish wish);
/* False while a guest instruction may still be run. */
bool vcpu_stands(struct vcpu *vcpu);
/* CPU time of its thread in ns. */
uint64_t vcpu_cpu_ns(struct vcpu *vcpu);
/* Quits, waits for the thread, closes. Takes a zeroed one. */
void vcpu_finish(struct vcpu *vcpu);

/*
 * The processor. Features are what KVM supports here, asked for once and shared by all vCPUs of a VM, so that
 * all agree; the rules by which each vCPU's are made from them are in cpuid_x86_64.h.
 */
struct vcpu_features;
int vcpu_features_create(const struct kvm *kvm, struct vcpu_features **out);
void vcpu_features_destroy(struct vcpu_features *features);

struct kvm_cpuid2;
/* What vCPU `id` of `cpus` gets; cpuid has room for CPUID_ENTRIES_MAX entries. */
void vcpu_features_adapt(
	const struct vcpu_features *features, unsigned id, unsigned cpus, struct kvm_cpuid2 *cpuid);

/* CPUID and model-specific registers; cpus: how many the VM has. 0 or -errno. */
int vcpu_set_features(struct vcpu *vcpu, const struct vcpu_features *features, unsigned cpus);
/* Registers for the first instruction. The other vCPUs wait for the first to start them. 0 or -errno. */
int vcpu_set_entry(struct vcpu *vcpu, const struct boot_state *state);

/* Tells the guest's watchdogs, if it has kvm-clock, that it stood for a while. While it stands. */
void vcpu_excuse_pause(const struct vcpu *vcpu);

/* Where the guest is; 0 when KVM does not say. On the vCPU's thread, or while it stands. */
uint64_t vcpu_program_counter(const struct vcpu *vcpu);

#endif
