/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of POST /v1/run, from JSON to the NEW frame that the guest gets. Whatever is wrong is refused by
 * name here; what passes fits common/proto_guest.h.
 */
#ifndef HOST_CTL_RUN_REQUEST_H
#define HOST_CTL_RUN_REQUEST_H

#include "common/proto_guest.h"
#include "host-ctl/support/error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	RUN_STDIN_MAX = 64 * 1024, /* in the request itself; more goes over the upgraded form */
	RUN_TIMEOUT_MAX_MS = 24 * 60 * 60 * 1000,
	RUN_USER_MAX = 64,
	RUN_CWD_MAX = 4096,
	RUN_MEMORY_MIN = 64 * 1024,
	RUN_PIDS_MAX = 4 * 1024 * 1024,
	RUN_TTY_MAX = 65535, /* rows, and columns */
	RUN_NAME_MAX = 128,  /* of argv[0] in the log */
	RUN_TEMPLATE_MAX = 64,
	RUN_SESSION = 1, /* the id of a pool VM's only session */
};

/* Which body it is of: POST /v1/run, plain or upgraded; or of a command in a sandbox. */
enum run_form { RUN_PLAIN, RUN_UPGRADED, RUN_COMMAND };

struct run_request {
	uint8_t *payload; /* of the NEW frame: struct agent_new and its strings */
	size_t payload_length;
	uint8_t *input; /* stdin that came with the request, or NULL */
	size_t input_length;
	bool has_input;	     /* stdin is not /dev/null */
	bool input_streams;  /* more comes as frames */
	bool has_terminal;   /* all three standard streams are one */
	uint64_t timeout_ms; /* 0: none */
	char name[RUN_NAME_MAX];
	char template[RUN_TEMPLATE_MAX]; /* empty: base */
};

/*
 * body: the JSON text. upgraded: stdin_stream is allowed. 0, or -1 with *error set (invalid, too_large, or
 * internal without memory); then nothing is to be finished.
 */
int run_request_parse(
	struct run_request *request, const char *body, size_t length, bool upgraded, struct error *error);
/* The JSON object of a body, of no fields but those of its form, the caller's; NULL with *error set,
 * ERROR_INVALID. */
json_t *run_request_load(const char *body, size_t length, enum run_form form, struct error *error);
/* The same as run_request_parse of such an object. room: bytes that its strings take, a NUL each included, or
 * more. The fields on_detach, wake and output_max of a command are its owner's to read. */
int run_request_take(
	struct run_request *request, json_t *root, size_t room, enum run_form form, struct error *error);
/* Of one that was taken: at most so many processes and threads, unless its own limit is smaller. 0: as it is.
 */
void run_request_limit_pids(struct run_request *request, uint32_t pids_max);
/* Takes a zeroed one too. */
void run_request_finish(struct run_request *request);

#endif
