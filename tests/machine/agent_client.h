/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real guest with guest-init, and its agent's client over the vmm's vsock socket: commands are shell lines.
 * All waits are bounded by AGENT_LIMIT_MS, and a case that comes to that fails.
 */
#ifndef TESTS_MACHINE_AGENT_CLIENT_H
#define TESTS_MACHINE_AGENT_CLIENT_H

#include "common/frame.h"
#include "common/proto_guest.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	AGENT_LIMIT_MS =
		60000, /* for any frame, and for a VM's end, in an emulated machine on a loaded host */
	AGENT_OPTIONS_MAX = 8,
	AGENT_RESULT_MAX = 8192, /* bytes of output that are kept */
};

struct agent_suite {
	const char *vmm, *kernel, *initrd, *base;
	char **options; /* further ones of the vmm, up to NULL */
	int off;	/* its status when the guest was to power off */
	int count, failed;
	char folder[64], socket[96], hello_socket[96], serial[96];
};

/* What a VM is given. */
struct agent_boot {
	bool disk, vsock;
	const char *upper; /* a disk for the private layer, as --disk has it; NULL: tmpfs */
};

struct agent_machine {
	pid_t pid;
	int listener, control;
	struct frame_reader reader; /* of control */
	char warnings[AGENT_TEXT_MAX + 1];
};

struct agent_stream {
	int fd;
	struct frame_reader reader;
};

struct agent_command {
	const char *script;
	const char *user;
	uint64_t deadline_ms, memory_max;
	uint32_t pids_max, flags;
};

struct agent_result {
	bool complete;
	struct agent_exit exit;
	char out[AGENT_RESULT_MAX + 1];
	size_t length;
	uint64_t total, checksum;
};

/* One line of TAP; got: what was there instead. */
void agent_report(struct agent_suite *suite, bool ok, const char *name, const char *got);

/* Becomes the vmm, in a child that ends with its parent. */
void agent_exec_vmm(const struct agent_suite *suite, const struct agent_boot *boot);
/* Starts a VM and takes its HELLO. Whatever it returns, agent_await_end follows. */
bool agent_start(struct agent_suite *suite, struct agent_machine *machine, const struct agent_boot *boot);
/* Its clock is set to tomorrow, so that a guest which kept its own is found out. */
bool agent_give_identity(struct agent_machine *machine);
/* HOLD, and HELD's status; -1: another answer, or none. */
int agent_hold(struct agent_machine *machine);
void agent_ask_shutdown(struct agent_machine *machine, uint32_t grace_ms);
/* The VM's exit status, or -1 when it had to be killed. */
int agent_await_end(struct agent_machine *machine);

/* A stream for one command; agent_finish closes it, also after a failure. */
bool agent_open_stream(const struct agent_suite *suite, struct agent_stream *stream);
void agent_send_new(const struct agent_stream *stream, const struct agent_command *command);
/* 1: a frame; 0: the end, or nothing in time. */
int agent_next_frame(int fd, struct frame_reader *reader, struct frame *frame);
/* Takes a frame STDOUT or STDERR. */
void agent_note_output(struct agent_result *result, const struct frame *frame);
/* Until EXIT; stdout and stderr in one. */
void agent_finish(struct agent_stream *stream, struct agent_result *result);

/* A command from its start to its end. */
void agent_run(
	const struct agent_suite *suite, const struct agent_command *command, struct agent_result *result);
/* Runs it and reports whether it ended so and, unless out is NULL, wrote just that. */
void agent_expect(struct agent_suite *suite, const char *name, const struct agent_command *command, int kind,
	int code, const char *out);

#endif
