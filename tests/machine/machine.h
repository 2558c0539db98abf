/* SPDX-License-Identifier: Apache-2.0 */
/* For suites that run tiny guests with the real vmm and say in TAP how that went. */
#ifndef TESTS_MACHINE_MACHINE_H
#define TESTS_MACHINE_MACHINE_H

#include "common/proto_vmm.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	MACHINE_OPTIONS_MAX = 10,
	MACHINE_OUTPUT_MAX = 32768,
	MACHINE_LIMIT_MS = 60000, /* for anything that a VM is waited for */
};

struct suite {
	const char *vmm;
	const char *guests; /* folder of NAME.elf */
	const char *memory; /* NULL: 16M */
	int count, failed;
};

/* A VM that runs. */
struct machine {
	pid_t pid;
	int control; /* -1: none */
	int errors;  /* its standard error */
	uint32_t sequence;
};

/* Takes the arguments VMM FOLDER-OF-GUESTS; false: others were given, and the usage is said. */
bool suite_begin(struct suite *suite, int argc, char *argv[]);
/* Prints the plan; the process's exit status. */
int suite_end(const struct suite *suite);
void suite_report(struct suite *suite, bool ok, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* guest: a name in the folder, or a path; options end with NULL; controlled: with a control socket. False:
 * reported as failed. */
bool machine_start(struct suite *suite, const char *guest, const char *const *options, bool controlled,
	struct machine *machine);
/* The same with standard input and output of the caller's; -1: its own. */
bool machine_start_with(struct suite *suite, const char *guest, const char *const *options, bool controlled,
	const int stdio[2], struct machine *machine);
/* Its exit status, or -1 when it had to be killed; output (MACHINE_OUTPUT_MAX bytes) is what it said. */
int machine_finish(struct machine *machine, char *output);
/* Reports whether it ends with that status and says that line. */
void machine_expect_end(
	struct suite *suite, struct machine *machine, const char *name, int status, const char *line);

bool machine_receive(struct machine *machine, struct vmm_message *message);
bool machine_request(struct machine *machine, uint32_t type, uint64_t arg0);
/* The reply to the last request; events before it are passed over. */
bool machine_await_reply(struct machine *machine, struct vmm_message *reply);
/* A request and its reply; true when it was done. */
bool machine_ask(struct machine *machine, uint32_t type, struct vmm_message *reply);
bool machine_await_state(struct machine *machine, enum vmm_state state, struct vmm_message *event);
uint64_t machine_count_exits(struct machine *machine, enum vmm_state *state);
/* True when the guest gets on; the number of questions is a bound, not a time. */
bool machine_gets_on(struct machine *machine);

#endif
