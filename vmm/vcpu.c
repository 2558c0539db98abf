/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/vcpu.h"
#include "common/io.h"
#include "vmm/trace.h"
#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { KICK_SIGNAL = SIGUSR1, NS_PER_S = 1000000000 };

static void ignore_kick(int signal)
{
	(void)signal;
}

int vcpu_install_kick(void)
{
	/* A handler, not SIG_IGN: only a handled signal interrupts KVM_RUN. No SA_RESTART. */
	struct sigaction action = {.sa_handler = ignore_kick};

	return sigaction(KICK_SIGNAL, &action, NULL) < 0 ? -errno : 0;
}

int vcpu_init(
	struct vcpu *vcpu, const struct kvm *kvm, int vm, unsigned id, const struct vcpu_machine *machine)
{
	int r = kvm_create_vcpu(vm, id);

	*vcpu = (struct vcpu){
		.kvm = kvm, .machine = machine, .id = id, .fd = r, .stats = -1, .wish = VCPU_STAND};
	if (r < 0)
		return r;
	r = kvm_map_run(kvm, vcpu->fd, &vcpu->run);
	if (r < 0) {
		fd_close(&vcpu->fd);
		return r;
	}
	pthread_mutex_init(&vcpu->lock, NULL);
	pthread_cond_init(&vcpu->wished, NULL);
	return 0;
}

static void end(struct vcpu *vcpu, enum vmm_end how, const char *reason)
{
	char text[VMM_MESSAGE_TEXT];

	snprintf(text, sizeof(text), vcpu->id > 0 ? "%s (CPU %u)" : "%s", reason, vcpu->id);
	vcpu->over = true;
	vcpu->machine->end(vcpu->machine->context, how, text);
}

static void handle_port(struct vcpu *vcpu)
{
	const struct kvm_run *run = vcpu->run;
	uint8_t *data = (uint8_t *)vcpu->run + run->io.data_offset;

	/* A string instruction brings several items, all for one port. */
	for (uint32_t i = 0; i < run->io.count; i++, data += run->io.size)
		if (run->io.direction == KVM_EXIT_IO_IN)
			bus_read(vcpu->machine->ports, run->io.port, data, run->io.size);
		else
			bus_write(vcpu->machine->ports, run->io.port, data, run->io.size);
}

static void handle_mmio(struct vcpu *vcpu)
{
	struct kvm_run *run = vcpu->run;

	if (run->mmio.is_write)
		bus_write(vcpu->machine->mmio, run->mmio.phys_addr, run->mmio.data, run->mmio.len);
	else
		bus_read(vcpu->machine->mmio, run->mmio.phys_addr, run->mmio.data, run->mmio.len);
}

static void handle_internal_error(struct vcpu *vcpu)
{
	uint32_t kind = vcpu->run->internal.suberror;
	char reason[VMM_MESSAGE_TEXT];

	snprintf(reason, sizeof(reason),
		kind == KVM_INTERNAL_ERROR_EMULATION
			? "an instruction at 0x%llx that KVM cannot emulate (internal error %u)"
			: "KVM gave up at 0x%llx (internal error %u)",
		(unsigned long long)vcpu_program_counter(vcpu), kind);
	end(vcpu, kind == KVM_INTERNAL_ERROR_EMULATION ? VMM_END_GUEST_FAULT : VMM_END_KVM, reason);
}

static void handle_unknown(struct vcpu *vcpu)
{
	char reason[VMM_MESSAGE_TEXT];

	if (vcpu->run->exit_reason == KVM_EXIT_FAIL_ENTRY)
		snprintf(reason, sizeof(reason), "the processor refused to enter the guest (reason 0x%llx)",
			(unsigned long long)vcpu->run->fail_entry.hardware_entry_failure_reason);
	else
		snprintf(reason, sizeof(reason), "KVM exit %u is not known", vcpu->run->exit_reason);
	end(vcpu, VMM_END_KVM, reason);
}

static void handle_exit(struct vcpu *vcpu)
{
	switch (vcpu->run->exit_reason) {
	case KVM_EXIT_IO:
		handle_port(vcpu);
		break;
	case KVM_EXIT_MMIO:
		handle_mmio(vcpu);
		break;
	case KVM_EXIT_SHUTDOWN:
		end(vcpu, VMM_END_TRIPLE_FAULT, "triple fault");
		break;
	case KVM_EXIT_INTERNAL_ERROR:
		handle_internal_error(vcpu);
		break;
	case KVM_EXIT_INTR:
	case KVM_EXIT_IRQ_WINDOW_OPEN:
	case KVM_EXIT_IOAPIC_EOI:
		break;
	default:
		handle_unknown(vcpu);
	}
}

/* Until the thread is wanted elsewhere or the guest has ended. */
static void run_guest(struct vcpu *vcpu)
{
	while (!vcpu->over) {
		char reason[VMM_MESSAGE_TEXT];
		int r;

		trace_entry(vcpu->id, vcpu->run);
		r = kvm_run_vcpu(vcpu->fd);
		trace_return(vcpu->id, vcpu->run, r);
		stats_count(vcpu->machine->stats, r < 0 ? -1 : (int)vcpu->run->exit_reason);
		switch (r) {
		case 0:
			handle_exit(vcpu);
			break;
		case -EINTR: /* KVM has completed the exit before: the vCPU may stand here */
			return;
		case -EAGAIN: /* a vCPU that was not started yet has been */
			break;
		default:
			snprintf(reason, sizeof(reason), "KVM_RUN: %s", strerror(-r));
			end(vcpu, VMM_END_KVM, reason);
		}
	}
}

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* True: run now. False: the thread's end. */
static bool await_run(struct vcpu *vcpu)
{
	bool run;

	pthread_mutex_lock(&vcpu->lock);
	if (vcpu->wish != VCPU_RUN || vcpu->over) {
		vcpu->running = false;
		vcpu->cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
		vcpu->machine->stands(vcpu->machine->context);
	}
	while (vcpu->wish == VCPU_STAND || (vcpu->wish == VCPU_RUN && vcpu->over))
		pthread_cond_wait(&vcpu->wished, &vcpu->lock);
	run = vcpu->wish == VCPU_RUN;
	vcpu->running = run;
	/* Under the lock: a wish that comes after this sets it again, one that came before was just seen. */
	if (run)
		__atomic_store_n(&vcpu->run->immediate_exit, 0, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&vcpu->lock);
	return run;
}

static void *run_thread(void *argument)
{
	struct vcpu *vcpu = argument;
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, KICK_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &set, NULL);
	while (await_run(vcpu)) {
		run_guest(vcpu);
		trace_stand(vcpu->id, vcpu->run);
	}
	return NULL;
}

int vcpu_start(struct vcpu *vcpu)
{
	int r = pthread_create(&vcpu->thread, NULL, run_thread, vcpu);

	vcpu->has_thread = r == 0;
	return -r;
}

void vcpu_wish(struct vcpu *vcpu, enum vcpu_wish wish)
{
	pthread_mutex_lock(&vcpu->lock);
	if (vcpu->wish != VCPU_QUIT)
		vcpu->wish = wish;
	/* immediate_exit is for a kick that comes between the thread's last look and its entering the guest.
	 */
	if (vcpu->running && vcpu->wish != VCPU_RUN) {
		__atomic_store_n(&vcpu->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
		pthread_kill(vcpu->thread, KICK_SIGNAL);
	}
	pthread_cond_signal(&vcpu->wished);
	pthread_mutex_unlock(&vcpu->lock);
}

bool vcpu_stands(struct vcpu *vcpu)
{
	bool running;

	pthread_mutex_lock(&vcpu->lock);
	running = vcpu->running;
	pthread_mutex_unlock(&vcpu->lock);
	return !running;
}

uint64_t vcpu_cpu_ns(struct vcpu *vcpu)
{
	uint64_t used;
	clockid_t clock;

	pthread_mutex_lock(&vcpu->lock);
	used = vcpu->cpu_ns;
	/* Under the lock, a thread that runs does not end meanwhile. */
	if (vcpu->running && pthread_getcpuclockid(vcpu->thread, &clock) == 0)
		used = read_clock(clock);
	pthread_mutex_unlock(&vcpu->lock);
	return used;
}

void vcpu_finish(struct vcpu *vcpu)
{
	if (!vcpu->run)
		return;
	vcpu_wish(vcpu, VCPU_QUIT);
	if (vcpu->has_thread)
		pthread_join(vcpu->thread, NULL);
	pthread_cond_destroy(&vcpu->wished);
	pthread_mutex_destroy(&vcpu->lock);
	kvm_unmap_run(vcpu->kvm, vcpu->run);
	vcpu->run = NULL;
	fd_close(&vcpu->stats);
	fd_close(&vcpu->fd);
}
