/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox has changed, told by a guest that its user has taken over: frames with entries of any bytes,
 * in any order, cut anywhere; a stream that does not come or ends; a sandbox that leaves READY meanwhile;
 * time that is over; an asker who leaves. Whoever asked is told once and not from within the call, unless he
 * left; of what is told each entry is one, all are in order, behind what was asked for and no more than that;
 * and nothing holds the sandbox afterwards.
 */
#include "common/io.h"
#include "host-ctl/sandbox/changes.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/text.h"
#include "tests/fuzz/support/fake_guest.h"
#include "tests/fuzz/support/fake_time.h"
#include "tests/fuzz/support/fuzz.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AFTER_MAX = 64, LIST_ROOM = 4096, ENTRIES_IN_ONE = 8, END_TRIES = 8 };

static struct {
	struct fuzz_input *input;
	struct loop *loop;
	struct sandboxes all;
	struct sandbox sandbox;
	struct vm_request *stream; /* that was asked for; NULL: answered, or forgotten */
	struct changes *changes;   /* NULL: over, or left */
	bool asking;
	int guest; /* its end of the stream; -1: none, or closed */
	char after[AFTER_MAX + 1];
	uint32_t limit, listed; /* listed: entries that were sent before an end */
	bool ended;		/* one was sent */
	bool raw;		/* bytes that make no frame of ours were sent */
	unsigned int told;
} fuzz;

/* --- the daemon around it --- */

int __wrap_vm_ask_stream(struct vm *vm, struct vm_request *request);
int __wrap_vm_ask_stream(struct vm *vm, struct vm_request *request)
{
	(void)vm;
	if (fuzz_one_in(fuzz.input, 64))
		return fuzz_one_in(fuzz.input, 2) ? -EAGAIN : -ENOTCONN;
	fuzz.stream = request;
	return 0;
}

void __wrap_vm_forget(struct vm *vm, const struct vm_request *request);
void __wrap_vm_forget(struct vm *vm, const struct vm_request *request)
{
	(void)vm;
	FUZZ_ASSERT(!fuzz.stream || fuzz.stream == request);
	fuzz.stream = NULL;
}

int __wrap_sandbox_check(
	const struct sandbox *sandbox, enum sandbox_verb verb, enum sandbox_state *next, struct error *error);
int __wrap_sandbox_check(
	const struct sandbox *sandbox, enum sandbox_verb verb, enum sandbox_state *next, struct error *error)
{
	return sandbox_state_apply(sandbox->state, verb, sandbox->id, sandbox->reason, next, error);
}

void __wrap_sandbox_hold(struct sandbox *sandbox);
void __wrap_sandbox_hold(struct sandbox *sandbox)
{
	sandbox->users++;
}

void __wrap_sandbox_release(struct sandbox *sandbox);
void __wrap_sandbox_release(struct sandbox *sandbox)
{
	FUZZ_ASSERT(sandbox->users > 0);
	sandbox->users--;
}

/* --- who asked --- */

static bool is_one_of(const json_t *entry, const char *field, const char *const *words)
{
	const char *word = json_string_value(json_object_get(entry, field));

	FUZZ_ASSERT(word);
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words != NULL;
}

/* Of malloc. */
static char *path_of(const json_t *entry)
{
	const json_t *plain = json_object_get(entry, "path"), *coded = json_object_get(entry, "path_b64");
	char *path = calloc(1, AGENT_PATH_MAX + 4);
	ptrdiff_t length;

	FUZZ_ASSERT(path && !plain != !coded && json_is_string(plain ? plain : coded));
	FUZZ_ASSERT(json_string_length(plain) <= AGENT_PATH_MAX);
	if (plain) {
		memcpy(path, json_string_value(plain), json_string_length(plain));
		return path;
	}
	FUZZ_ASSERT(json_string_length(coded) <= text_base64_length(AGENT_PATH_MAX));
	length = text_base64_decode((uint8_t *)path, json_string_value(coded), json_string_length(coded));
	FUZZ_ASSERT(length > 0 && length <= AGENT_PATH_MAX);
	path[length] = '\0';
	return path;
}

static void check_entry(const json_t *entry)
{
	static const char *const kinds[] = {"added", "changed", "removed", NULL};
	static const char *const types[] = {"file", "directory", "symlink", "fifo", "socket", "char_device",
		"block_device", "unknown", NULL};
	static const char *const numbers[] = {"mode", "uid", "gid", "size", "modified_ms"};
	bool removed;

	FUZZ_ASSERT(is_one_of(entry, "kind", kinds) && is_one_of(entry, "type", types));
	removed = strcmp(json_string_value(json_object_get(entry, "kind")), "removed") == 0;
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		FUZZ_ASSERT(json_is_integer(json_object_get(entry, numbers[i])) == !removed);
	if (removed)
		return;
	FUZZ_ASSERT(json_integer_value(json_object_get(entry, "size")) >= 0);
	FUZZ_ASSERT(json_integer_value(json_object_get(entry, "mode")) <= 07777);
}

static void check_answer(const json_t *answer)
{
	const json_t *list = json_object_get(answer, "changes"), *entry;
	char *before = calloc(1, AGENT_PATH_MAX + 4), *path;
	size_t i;

	FUZZ_ASSERT(before && json_is_array(list) && json_array_size(list) <= fuzz.limit);
	FUZZ_ASSERT(fuzz.raw || json_array_size(list) == fuzz.listed);
	FUZZ_ASSERT(json_is_boolean(json_object_get(answer, "more")));
	FUZZ_ASSERT(json_integer_value(json_object_get(answer, "skipped")) >= 0);
	memcpy(before, fuzz.after, sizeof fuzz.after);
	json_array_foreach(list, i, entry)
	{
		check_entry(entry);
		path = path_of(entry);
		FUZZ_ASSERT(path[0] == '/' && frame_compare_paths(path, before) > 0);
		free(before);
		before = path;
	}
	free(before);
}

static void done(void *context, json_t *answer, const struct error *error)
{
	FUZZ_ASSERT(context == &fuzz && fuzz.changes && !fuzz.asking);
	FUZZ_ASSERT(!answer != !error);
	if (error)
		FUZZ_ASSERT(error->kind != ERROR_NONE && error->message[0] != '\0');
	else
		check_answer(answer);
	json_decref(answer);
	fuzz.changes = NULL;
	fuzz.told++;
}

static void ask(void)
{
	size_t length = fuzz_below(fuzz.input, AFTER_MAX);
	const uint8_t *after = fuzz_bytes(fuzz.input, &length);
	struct changes_query query = {.limit = fuzz.limit};
	struct error error = {.kind = ERROR_NONE};

	/* As the API has checked it: absolute, and without a NUL. */
	if (length > 1 && after[0] == '/' && !memchr(after, '\0', length)) {
		memcpy(fuzz.after, after, length);
		query.after = fuzz.after;
	}
	fuzz.asking = true;
	fuzz.changes = changes_ask(&fuzz.sandbox, &query, done, &fuzz, &error);
	fuzz.asking = false;
	FUZZ_ASSERT(fuzz.changes || (error.kind != ERROR_NONE && error.message[0] != '\0'));
}

/* --- the guest --- */

/* The stream that was asked for, or none. */
static void answer_stream(void)
{
	struct vm_request *request = fuzz.stream;
	int pair[2];

	if (!request)
		return;
	fuzz.stream = NULL;
	if (fuzz_one_in(fuzz.input, 16)) {
		request->replied(request, -ECONNREFUSED, -1);
		return;
	}
	FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
	fd_close(&fuzz.guest);
	fuzz.guest = pair[1];
	request->replied(request, 0, pair[0]);
}

static void send_raw(void)
{
	size_t length = fuzz_u8(fuzz.input);
	const uint8_t *bytes = fuzz_bytes(fuzz.input, &length);

	if (fuzz.guest < 0 || !length)
		return;
	fuzz.raw = true;
	(void)!send(fuzz.guest, bytes, length, MSG_NOSIGNAL);
}

/* One entry of any bytes, of which most fields are as they should be; its length. */
static size_t make_entry(uint8_t *to, size_t room)
{
	static const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, 0};
	struct agent_change change = {.kind = (uint8_t)(AGENT_ADDED + fuzz_below(fuzz.input, 3))};
	size_t length = fuzz_u8(fuzz.input);
	const uint8_t *path = fuzz_bytes(fuzz.input, &length);

	FUZZ_ASSERT(room >= sizeof change + length);
	change.mode = types[fuzz_u8(fuzz.input) % 8];
	change.mode |= fuzz_u16(fuzz.input) & 07777;
	change.path_length = (uint16_t)length;
	if (fuzz_one_in(fuzz.input, 4)) {
		change.uid = fuzz_u32(fuzz.input);
		change.size = fuzz_u64(fuzz.input);
		change.modified_ms = (int64_t)fuzz_u64(fuzz.input);
	}
	if (fuzz_one_in(fuzz.input, 16)) {
		change.kind = fuzz_u8(fuzz.input);
		change.reserved = fuzz_u8(fuzz.input);
		change.mode = fuzz_u32(fuzz.input);
		change.path_length = fuzz_u16(fuzz.input);
	}
	memcpy(to, &change, sizeof change);
	if (length)
		memcpy(to + sizeof change, path, length);
	return sizeof change + length;
}

static void send_list(void)
{
	static uint8_t bytes[LIST_ROOM];
	unsigned int count = fuzz_below(fuzz.input, ENTRIES_IN_ONE + 1);
	size_t length = 0;

	_Static_assert(LIST_ROOM >= ENTRIES_IN_ONE * (sizeof(struct agent_change) + UINT8_MAX), "all fit");
	for (unsigned int i = 0; i < count; i++)
		length += make_entry(bytes + length, sizeof bytes - length);
	if (fuzz_one_in(fuzz.input, 16))
		length -= length ? 1 : 0;
	if (fuzz.guest >= 0 && !fuzz.ended)
		fuzz.listed += count;
	fake_guest_send(fuzz.guest, AGENT_CHANGE_LIST, bytes, length, 0);
}

static void send_end(void)
{
	struct agent_changes_end end = {.count = fuzz.listed, .more = fuzz_one_in(fuzz.input, 2)};

	if (fuzz_one_in(fuzz.input, 4)) {
		end.count = fuzz_u8(fuzz.input);
		end.more = fuzz_u8(fuzz.input);
		end.skipped = fuzz_u64(fuzz.input);
	}
	fuzz.ended = fuzz.ended || fuzz.guest >= 0;
	fake_guest_send(fuzz.guest, AGENT_CHANGES_END, &end, sizeof end, fuzz_one_in(fuzz.input, 16));
}

static void send_refusal(void)
{
	int32_t status = fuzz_u8(fuzz.input);

	fake_guest_status(fuzz.guest, AGENT_ERROR, status, fuzz_u8(fuzz.input));
}

/* --- the program --- */

/* As the daemon does it: whoever watches is told. */
static void move_sandbox(void)
{
	static const enum sandbox_state others[] = {
		SANDBOX_PAUSING, SANDBOX_SUSPENDING, SANDBOX_DELETING, SANDBOX_FAILED, SANDBOX_READY};
	struct list_entry *entry = fuzz.sandbox.watchers.first;

	fuzz.sandbox.state = others[fuzz_u8(fuzz.input) % 5];
	FUZZ_ASSERT(!entry || !entry->next);
	if (entry)
		((struct sandbox_watcher *)entry)->changed((struct sandbox_watcher *)entry, &fuzz.sandbox);
}

static void leave(void)
{
	if (!fuzz.changes)
		return;
	changes_leave(fuzz.changes);
	fuzz.changes = NULL;
	fuzz.told++;
}

static void step(void)
{
	switch (fuzz_u8(fuzz.input) % 10) {
	case 0:
		send_raw();
		break;
	case 1:
	case 2:
	case 3:
		send_list();
		break;
	case 4:
		send_end();
		break;
	case 5:
		send_refusal();
		break;
	case 6:
		fd_close(&fuzz.guest);
		break;
	case 7:
		answer_stream();
		break;
	case 8:
		if (fuzz_one_in(fuzz.input, 2))
			move_sandbox();
		else
			fake_time_fire(fuzz.loop, fuzz_u8(fuzz.input));
		break;
	default:
		if (fuzz_one_in(fuzz.input, 8))
			leave();
	}
	fuzz_turn(fuzz.loop);
}

static void set_up(struct fuzz_input *input)
{
	memset(&fuzz, 0, sizeof fuzz);
	fuzz.input = input;
	fuzz.guest = -1;
	fuzz.loop = loop_create();
	FUZZ_ASSERT(fuzz.loop);
	fuzz.all.config.loop = fuzz.loop;
	fuzz.sandbox.all = &fuzz.all;
	memcpy(fuzz.sandbox.id, "sb-x", sizeof "sb-x");
	fuzz.sandbox.state = SANDBOX_READY;
	fuzz.sandbox.vm = (struct vm *)&fuzz; /* nobody looks into it */
	fuzz.limit = 1 + fuzz_below(input, 32);
}

/* What is asked for comes to its end, if only by its clock. */
static void finish(bool asked)
{
	fuzz_settle(fuzz.loop);
	for (unsigned int i = 0; i < END_TRIES && fuzz.changes; i++)
		fake_time_fire(fuzz.loop, 0);
	FUZZ_ASSERT(!fuzz.changes && fuzz.told == asked && !fuzz.stream);
	FUZZ_ASSERT(fuzz.sandbox.users == 0 && !fuzz.sandbox.watchers.first);
	fd_close(&fuzz.guest);
	loop_destroy(fuzz.loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	bool asked;

	fuzz_begin();
	set_up(&input);
	ask();
	asked = fuzz.changes != NULL;
	while (fuzz_left(&input) && fuzz.changes)
		step();
	finish(asked);
	fuzz_end();
	return 0;
}
