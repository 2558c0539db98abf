/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lets a client attach to one command, once: 32 random bytes in hexadecimal, until they are used or too
 * old. Compared in a time that does not tell how much of them was right.
 */
#ifndef HOST_CTL_COMMAND_TOKEN_H
#define HOST_CTL_COMMAND_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	COMMAND_TOKEN_BYTES = 32,
	COMMAND_TOKEN_TEXT = 2 * COMMAND_TOKEN_BYTES + 1, /* NUL included */
	COMMAND_TOKEN_MS = 60 * 1000,
};

enum command_token_verdict { TOKEN_GOOD, TOKEN_WRONG, TOKEN_USED, TOKEN_EXPIRED, TOKEN_REPLACED };

struct command_token {
	char text[COMMAND_TOKEN_TEXT];	 /* empty: none was made yet */
	char before[COMMAND_TOKEN_TEXT]; /* whose place it took; empty: of none */
	uint64_t expires_ns;		 /* CLOCK_MONOTONIC */
	bool used;
	bool restored; /* an earlier daemon may have made one */
};

/* A new one in place of what was there, good for so long. 0 or -EIO. */
int command_token_make(struct command_token *token, uint64_t milliseconds);
/* Is this it? It is not used by that. */
enum command_token_verdict command_token_check(const struct command_token *token, const char *text);

#endif
