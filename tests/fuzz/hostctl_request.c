/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of POST /v1/run. What is refused is refused in words and leaves nothing; what is accepted makes a
 * NEW that a guest accepts too, and stdin within its bound. Then base64 and printable text, as the same code
 * reads and writes them.
 */
#include "common/frame.h"
#include "host-ctl/run/run_request.h"
#include "host-ctl/support/text.h"
#include "tests/fuzz/support/fuzz.h"
#include <stdlib.h>
#include <string.h>

static void check_request(const struct run_request *request, bool upgraded)
{
	struct frame frame = {
		.type = AGENT_NEW, .payload = request->payload, .length = (uint32_t)request->payload_length};
	struct agent_new_view view;
	const char *why, *entry;

	FUZZ_ASSERT(request->payload && request->payload_length <= AGENT_FRAME_MAX);
	FUZZ_ASSERT(frame_parse_new(&frame, &view, &why) == 0);
	FUZZ_ASSERT(view.fixed.session == RUN_SESSION);
	FUZZ_ASSERT(!(view.fixed.flags & AGENT_NEW_STDIN) == !request->has_input);
	FUZZ_ASSERT(
		view.fixed.deadline_ms == request->timeout_ms && request->timeout_ms <= RUN_TIMEOUT_MAX_MS);
	FUZZ_ASSERT(view.fixed.memory_max == 0 || view.fixed.memory_max >= RUN_MEMORY_MIN);
	FUZZ_ASSERT(view.fixed.pids_max <= RUN_PIDS_MAX);
	FUZZ_ASSERT(view.cwd[0] == '\0' || view.cwd[0] == '/');
	FUZZ_ASSERT(strlen(view.cwd) <= RUN_CWD_MAX && strlen(view.user) <= RUN_USER_MAX);
	FUZZ_ASSERT(request->input_length <= RUN_STDIN_MAX);
	FUZZ_ASSERT(!request->input_streams || (upgraded && request->has_input && !request->input));
	FUZZ_ASSERT(!request->input || request->has_input);
	FUZZ_ASSERT(strlen(request->name) < RUN_NAME_MAX);
	entry = view.strings;
	for (uint32_t i = 0; i < view.fixed.argc + view.fixed.envc; i++, entry += strlen(entry) + 1)
		FUZZ_ASSERT(i < view.fixed.argc || (entry[0] != '=' && strchr(entry, '=')));
}

static void parse(const uint8_t *data, size_t size, bool upgraded)
{
	struct run_request request;
	struct error error = {.kind = ERROR_NONE};

	if (run_request_parse(&request, (const char *)data, size, upgraded, &error) == 0) {
		check_request(&request, upgraded);
		run_request_finish(&request);
		return;
	}
	FUZZ_ASSERT(error.kind == ERROR_INVALID || error.kind == ERROR_TOO_LARGE);
	FUZZ_ASSERT(error.message[0] != '\0' && strlen(error.message) < ERROR_MESSAGE_MAX);
	FUZZ_ASSERT(!request.payload && !request.input);
}

static void code(const uint8_t *data, size_t size)
{
	char *text = malloc(text_base64_length(size) + 1), printable[64];
	uint8_t *decoded = malloc(text_base64_length(size) + 1);
	ptrdiff_t length;

	FUZZ_ASSERT(text && decoded);
	text_base64_encode(text, data, size);
	FUZZ_ASSERT(strlen(text) == text_base64_length(size));
	FUZZ_ASSERT(text_base64_decode(decoded, text, strlen(text)) == (ptrdiff_t)size);
	FUZZ_ASSERT(size == 0 || memcmp(decoded, data, size) == 0);
	/* As it came: what is taken for base64 is just what we would have written. */
	length = text_base64_decode(decoded, (const char *)data, size);
	FUZZ_ASSERT(length <= (ptrdiff_t)size);
	if (length >= 0) {
		text_base64_encode(text, decoded, (size_t)length);
		FUZZ_ASSERT(strlen(text) == size && memcmp(text, data, size) == 0);
	}
	text_copy_printable(printable, sizeof(printable), (const char *)data, size);
	for (size_t i = 0; printable[i] != '\0'; i++)
		FUZZ_ASSERT(printable[i] >= ' ' && printable[i] <= '~');
	free(decoded);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	uint8_t choice = fuzz_u8(&input);

	fuzz_begin();
	if (choice % 4 == 3)
		code(input.at, fuzz_left(&input));
	else
		parse(input.at, fuzz_left(&input), choice & 1);
	fuzz_end();
	return 0;
}
