/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM with a hostile guest (tests/machine/hostile), watched from outside: what it says, what its process
 * holds and uses, and what the control socket answers meanwhile. All waits are bounded by HOSTILE_LIMIT_MS,
 * but those for the end of an attack that is long.
 */
#ifndef TESTS_MACHINE_HOSTILE_VM_H
#define TESTS_MACHINE_HOSTILE_VM_H

#include "common/proto_vmm.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	HOSTILE_LIMIT_MS = 90000,
	HOSTILE_LONG_LIMIT_MS = 600000, /* of an attack with --long */
	HOSTILE_SAID_MAX = 4096,	/* the end of what a guest said is kept */
	HOSTILE_ERRORS_MAX = 64 * 1024, /* all of standard error; more is a finding */
	HOSTILE_OPTIONS_MAX = 16,
	HOSTILE_CMDLINE_MAX = 96,
	HOSTILE_WHY_MAX = 256,
	HOSTILE_DISK_BYTES = 1024 * 1024,
};

/* What the VMs of a suite are made of. */
struct hostile_setup {
	const char *vmm, *guest; /* paths */
	char folder[32];	 /* with the disks, removed by hostile_teardown */
	char shared[64], private[64], neighbour[64];
	const char *extra[HOSTILE_OPTIONS_MAX]; /* devices that this vmm has, NULL-terminated */
	bool sanitized;
};

struct hostile_vm {
	const struct hostile_setup *setup;
	pid_t pid;
	int control, serial, errors; /* -1: none */
	bool deaf;		     /* nobody reads the serial line */
	uint32_t sequence;
	char said[HOSTILE_SAID_MAX];
	size_t said_length;
	char error_text[HOSTILE_ERRORS_MAX + 1];
	size_t errors_length;
	bool errors_lost; /* it said more than that */
};

/* What a process holds, and the CPU time it has used. */
struct hostile_usage {
	unsigned fds, threads;
	uint64_t kib;	  /* anonymous memory that is resident, without the guest's */
	uint64_t cpu_ns;  /* of all threads */
	uint64_t loop_ns; /* of the first one, which runs the loop; 0: not known */
};

/* 0 or -errno. */
int hostile_setup(struct hostile_setup *setup, const char *vmm, const char *guest);
/* What is wrong with the files now: a name, or NULL when only the private disk may have changed. */
const char *hostile_check_files(const struct hostile_setup *setup);
void hostile_teardown(struct hostile_setup *setup);

/* options: NULL or NULL-terminated, after those of every VM. False: it could not be started. */
bool hostile_start(struct hostile_vm *vm, const struct hostile_setup *setup, const char *cmdline,
	const char *const *options);
/* Waits until the guest has said one of the words; false: the VM ended first, or the time ran out. */
bool hostile_await(struct hostile_vm *vm, const char *word, const char *or_word, unsigned limit_ms);
/* Reads what has been said until now. */
void hostile_drain(struct hostile_vm *vm);
/* Waits so long, and reads what is said meanwhile: a peer that does not read is dropped. */
void hostile_listen(struct hostile_vm *vm, unsigned ms);
bool hostile_usage(const struct hostile_vm *vm, struct hostile_usage *usage);
/* True when it used less than a third of a CPU for a while; why: what it used. */
bool hostile_is_idle(const struct hostile_vm *vm, char why[HOSTILE_WHY_MAX]);
/* Sends the request and waits for its reply; the microseconds that took, or -1: none, or another status than
 * 0. */
int64_t hostile_ask(struct hostile_vm *vm, uint32_t type, struct vmm_message *reply);
/* The same for VMM_SAVE, into two memfds that are closed again. */
int64_t hostile_save(struct hostile_vm *vm, struct vmm_message *reply);
/* Waits for its end. Its exit status, 128 + signal, or -1: it had to be killed. Closes everything. */
int hostile_finish(struct hostile_vm *vm);
/* The last line of its standard error, without the newline; after hostile_finish. */
const char *hostile_last_line(struct hostile_vm *vm);

uint64_t hostile_now_us(void);

#endif
