/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/agent_check.h"
#include "host-ctl/support/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SIGNAL_MAX = 64, ERRNO_MAX = 4095, STATUS_MAX = 255, MODE_MAX = 07777 };

const char *agent_check_started(const struct frame *frame, uint64_t session)
{
	struct agent_started started;

	if (frame->length != sizeof started)
		return "STARTED of a wrong length";
	memcpy(&started, frame->payload, sizeof started);
	return started.session == session ? NULL : "STARTED of another session";
}

const char *agent_check_output(const struct frame *frame, uint64_t expected)
{
	struct agent_output output;

	if (frame->length <= sizeof output || frame->length > sizeof output + AGENT_DATA_MAX)
		return "output of a wrong length";
	memcpy(&output, frame->payload, sizeof output);
	return output.offset == expected ? NULL : "output at a wrong offset";
}

const char *agent_check_credit(const struct frame *frame, struct agent_credit *credit)
{
	if (frame->length != sizeof *credit)
		return "STDIN_CREDIT of a wrong length";
	memcpy(credit, frame->payload, sizeof *credit);
	return credit->bytes && credit->bytes <= AGENT_STDIN_WINDOW ? NULL : "STDIN_CREDIT of a wrong size";
}

static int exit_code_is_valid(const struct agent_exit *exit)
{
	switch (exit->kind) {
	case AGENT_EXITED:
		return exit->code >= 0 && exit->code <= STATUS_MAX;
	case AGENT_SIGNALLED:
		return exit->code >= 1 && exit->code <= SIGNAL_MAX;
	case AGENT_FAILED_TO_START:
		return exit->code >= 1 && exit->code <= ERRNO_MAX;
	default:
		return 1;
	}
}

const char *agent_check_exit(const struct frame *frame, const uint64_t output[2], struct agent_exit *exit)
{
	if (frame->length != sizeof *exit)
		return "EXIT of a wrong length";
	memcpy(exit, frame->payload, sizeof *exit);
	if (exit->kind < AGENT_EXITED || exit->kind > AGENT_KILLED)
		return "EXIT of an unknown kind";
	if (exit->core > 1 || exit->step > AGENT_STEP_EXEC)
		return "EXIT with a field out of range";
	if (!exit_code_is_valid(exit))
		return "EXIT with a code out of range";
	if (exit->stdout_bytes < output[0] || exit->stderr_bytes < output[1])
		return "EXIT that counts less output than came";
	return NULL;
}

const char *agent_check_change(const uint8_t *bytes, size_t left, struct agent_change *change)
{
	const char *path = (const char *)bytes + sizeof *change;

	if (left < sizeof *change)
		return "CHANGE_LIST of a wrong length";
	memcpy(change, bytes, sizeof *change);
	if (change->path_length < 2 || change->path_length > AGENT_PATH_MAX ||
		change->path_length > left - sizeof *change)
		return "CHANGE_LIST with a path of a wrong length";
	if (change->kind < AGENT_ADDED || change->kind > AGENT_REMOVED || change->reserved)
		return "CHANGE_LIST with a kind out of range";
	if (change->mode & ~(uint32_t)(S_IFMT | MODE_MAX))
		return "CHANGE_LIST with a mode out of range";
	return path[0] == '/' && !memchr(path, '\0', change->path_length)
		       ? NULL
		       : "CHANGE_LIST with a path that is none";
}

const char *agent_check_changes_end(const struct frame *frame, uint32_t count, struct agent_changes_end *end)
{
	if (frame->length != sizeof *end)
		return "CHANGES_END of a wrong length";
	memcpy(end, frame->payload, sizeof *end);
	if (end->count != count)
		return "CHANGES_END that counts other entries than came";
	return end->more <= 1 && end->skipped <= INT64_MAX ? NULL : "CHANGES_END with a field out of range";
}

const char *agent_check_error(const struct frame *frame, char *text, size_t size)
{
	struct agent_status status;

	if (frame->length < sizeof status)
		return "ERROR of a wrong length";
	memcpy(&status, frame->payload, sizeof status);
	if (status.text_length != frame->length - sizeof status || status.text_length > AGENT_TEXT_MAX)
		return "ERROR with a text of a wrong length";
	if (status.status < 0 || status.status > ERRNO_MAX)
		return "ERROR with a status out of range";
	if (status.text_length)
		text_copy_printable(text, size, frame->payload + sizeof status, status.text_length);
	else
		snprintf(text, size, "%s", strerror(status.status));
	return NULL;
}

const char *agent_check_client(const struct frame *frame)
{
	struct agent_signal signal;

	switch (frame->type) {
	case AGENT_STDIN:
		return frame->length <= AGENT_DATA_MAX ? NULL : "STDIN of a wrong length";
	case AGENT_STDIN_EOF:
		return frame->length ? "STDIN_EOF with a payload" : NULL;
	case AGENT_KILL:
		return frame->length ? "KILL with a payload" : NULL;
	case AGENT_RESIZE:
		return frame->length == sizeof(struct agent_resize) ? NULL : "RESIZE of a wrong length";
	case AGENT_SIGNAL:
		if (frame->length != sizeof signal)
			return "SIGNAL of a wrong length";
		memcpy(&signal, frame->payload, sizeof signal);
		return signal.signal >= 1 && signal.signal <= SIGNAL_MAX && !signal.reserved
			       ? NULL
			       : "SIGNAL with a number out of range";
	default:
		return "a frame of a type that a client does not send";
	}
}
