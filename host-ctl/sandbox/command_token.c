/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/command_token.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int command_token_make(struct command_token *token, uint64_t milliseconds)
{
	unsigned char random[COMMAND_TOKEN_BYTES];

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return -EIO;
	memcpy(token->before, token->text, sizeof token->before);
	for (size_t i = 0; i < sizeof random; i++)
		snprintf(token->text + 2 * i, 3, "%02x", random[i]);
	token->expires_ns = clock_now() + milliseconds * CLOCK_NS_PER_MS;
	token->used = false;
	return 0;
}

static bool is_same(const char *one, const char *other)
{
	unsigned char differences = 0;

	for (size_t i = 0; i < COMMAND_TOKEN_TEXT; i++)
		differences |= (unsigned char)(one[i] ^ other[i]);
	return differences == 0;
}

enum command_token_verdict command_token_check(const struct command_token *token, const char *text)
{
	char padded[COMMAND_TOKEN_TEXT] = "";

	if (!token->text[0] || strlen(text) != COMMAND_TOKEN_TEXT - 1)
		return TOKEN_WRONG;
	memcpy(padded, text, COMMAND_TOKEN_TEXT);
	if (!is_same(token->text, padded))
		return token->before[0] && is_same(token->before, padded) ? TOKEN_REPLACED : TOKEN_WRONG;
	if (token->used)
		return TOKEN_USED;
	return clock_now() > token->expires_ns ? TOKEN_EXPIRED : TOKEN_GOOD;
}
