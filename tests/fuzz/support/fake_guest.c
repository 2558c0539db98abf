/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/support/fake_guest.h"
#include "common/proto_guest.h"
#include "host-ctl/run/run_request.h"
#include <string.h>
#include <sys/socket.h>

void fake_guest_send(int fd, uint8_t type, const void *payload, size_t length, size_t fill)
{
	static uint8_t bytes[AGENT_FRAME_HEADER + AGENT_FRAME_MAX];
	struct agent_frame_header header = {.length = (uint32_t)(length + fill), .type = type};

	memcpy(bytes, &header, sizeof(header));
	if (length)
		memcpy(bytes + sizeof(header), payload, length);
	memset(bytes + sizeof(header) + length, 'x', fill);
	if (fd >= 0)
		(void)!send(fd, bytes, sizeof(header) + length + fill, MSG_NOSIGNAL);
}

void fake_guest_hello(const struct fake_guest *guest, size_t text)
{
	struct agent_hello hello = {.version = AGENT_PROTO_VERSION, .warnings_length = (uint32_t)text};

	fake_guest_send(guest->agent, AGENT_HELLO, &hello, sizeof(hello), text);
}

void fake_guest_status(int fd, uint8_t type, int32_t status, size_t text)
{
	struct agent_status payload = {.status = status, .text_length = (uint32_t)text};

	fake_guest_send(fd, type, &payload, sizeof(payload), text);
}

void fake_guest_started(struct fake_guest *guest)
{
	struct agent_started started = {.session = RUN_SESSION, .pid = 2};

	fake_guest_send(guest->session, AGENT_STARTED, &started, sizeof(started), 0);
	guest->offset[0] = guest->offset[1] = 0;
}

void fake_guest_output(struct fake_guest *guest, int which, size_t length)
{
	struct agent_output output = {.offset = guest->offset[which]};

	fake_guest_send(guest->session, which ? AGENT_STDERR : AGENT_STDOUT, &output, sizeof(output), length);
	guest->offset[which] += length;
}

void fake_guest_exit(const struct fake_guest *guest, uint8_t kind, int32_t code)
{
	struct agent_exit ending = {.kind = kind,
		.code = code,
		.stdout_bytes = guest->offset[0],
		.stderr_bytes = guest->offset[1]};

	fake_guest_send(guest->session, AGENT_EXIT, &ending, sizeof(ending), 0);
}
