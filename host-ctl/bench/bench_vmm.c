/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boots and restores by vmm itself, without a daemon, in a folder of their own that is removed: also when a
 * signal of `signals` comes. These are blocked while it is there, and not taken: they end the process when it
 * is gone.
 */
#include "common/io.h"
#include "host-ctl/bench/bench.h"
#include "host-ctl/bench/hello.h"
#include "host-ctl/cli/vmm_client.h"
#include "host-ctl/support/text.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM_PATH_MAX = 64, FIXED_WORDS = 20, STATE, MEMORY, FILES = 2 };

/* The words of one command line; they point into the call's own texts. */
struct words {
	char *argv[FIXED_WORDS + BENCH_WORDS_MAX + 1];
	size_t count;
	char *split; /* a copy of the options, cut into words */
};

/* What the VMs of one call share. */
struct room {
	struct bench_call *call;
	char folder[ROOM_PATH_MAX], socket[ROOM_PATH_MAX], port[ROOM_PATH_MAX + 8], control[ROOM_PATH_MAX];
	char disk[PATH_MAX + 8], snapshot[3 * ROOM_PATH_MAX], state[ROOM_PATH_MAX], memory[ROOM_PATH_MAX];
	int listener, log, stop; /* stop: can be read when a signal has come */
	sigset_t before;	 /* which were blocked */
};

/* ---- the folder ---- */

static int block_signals(struct room *room)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, &room->before);
	room->stop = signalfd(-1, &set, SFD_CLOEXEC);
	return room->stop < 0 ? bench_fail(room->call, "cannot wait for signals: %s", strerror(errno)) : 0;
}

/* 0 or -1 (said). To be left in either case. */
static int make_room(struct room *room, struct bench_call *call)
{
	const char *parent = getenv("TMPDIR");

	*room = (struct room){.call = call, .listener = -1, .log = -1};
	if (block_signals(room) < 0)
		return -1;
	if (snprintf(room->folder, sizeof(room->folder), "%s/tinderbox.XXXXXX",
		    parent && parent[0] ? parent : "/tmp") >= ROOM_PATH_MAX - 8) {
		room->folder[0] = '\0';
		return bench_fail(call, "the path of $TMPDIR is too long for a socket in it; set another");
	}
	if (!mkdtemp(room->folder)) {
		room->folder[0] = '\0';
		return bench_fail(call,
			"cannot make a folder in %s: %s; set $TMPDIR to one that you may write to",
			parent && parent[0] ? parent : "/tmp", strerror(errno));
	}
	snprintf(room->socket, sizeof(room->socket), "%.*s/v", ROOM_PATH_MAX - 8, room->folder);
	snprintf(room->port, sizeof(room->port), "%s_%d", room->socket, HELLO_PORT);
	snprintf(room->control, sizeof(room->control), "%.*s/c", ROOM_PATH_MAX - 8, room->folder);
	snprintf(room->state, sizeof(room->state), "%.*s/s", ROOM_PATH_MAX - 8, room->folder);
	snprintf(room->memory, sizeof(room->memory), "%.*s/m", ROOM_PATH_MAX - 8, room->folder);
	snprintf(room->snapshot, sizeof(room->snapshot), "%s,memory=%s", room->state, room->memory);
	snprintf(room->disk, sizeof(room->disk), "%s,ro", call->image);
	room->log = memfd_create("bench-log", MFD_CLOEXEC);
	room->listener = hello_listen_unix(room->port);
	return room->log >= 0 && room->listener >= 0
		       ? 0
		       : bench_fail(call, "cannot listen in %s: %s", room->folder, strerror(errno));
}

static void remove_folder(const struct room *room)
{
	unlink(room->socket);
	unlink(room->port);
	unlink(room->control);
	unlink(room->state);
	unlink(room->memory);
	rmdir(room->folder);
}

/* A signal that has come meanwhile ends the process here. */
static void leave_room(struct room *room)
{
	fd_close(&room->listener);
	fd_close(&room->log);
	fd_close(&room->stop);
	if (room->folder[0])
		remove_folder(room);
	sigprocmask(SIG_SETMASK, &room->before, NULL);
}

/* ---- command lines ---- */

static void add_word(struct words *words, const char *word)
{
	words->argv[words->count++] = (char *)word;
}

static void add_option(struct words *words, const char *name, const char *value)
{
	add_word(words, name);
	add_word(words, value);
}

/* Those of -a or -b, apart at spaces. 0 or -1 (said). */
static int add_options(struct bench_call *call, struct words *words, const char *options)
{
	size_t added = 0;
	char *next;

	words->split = strdup(options ? options : "");
	if (!words->split)
		return bench_fail(call, "out of memory");
	next = words->split;
	for (char *word; (word = strsep(&next, " ")) != NULL;) {
		if (!*word)
			continue;
		if (added++ == BENCH_WORDS_MAX)
			return bench_fail(call, "-a and -b take at most %d words each", BENCH_WORDS_MAX);
		add_word(words, word);
	}
	return 0;
}

static int boot_words(struct room *room, struct words *words, const char *options)
{
	struct bench_call *call = room->call;

	*words = (struct words){.count = 0};
	add_word(words, call->vmm);
	add_option(words, "--kernel", call->kernel);
	add_option(words, "--initrd", call->initrd);
	add_option(words, "--disk", room->disk);
	add_option(words, "--mem", call->memory);
	add_option(words, "--vsock", room->socket);
	return add_options(call, words, options);
}

static void restore_words(struct room *room, struct words *words)
{
	*words = (struct words){.count = 0};
	add_word(words, room->call->vmm);
	add_option(words, "--restore", room->snapshot);
	add_option(words, "--disk", room->disk);
	add_option(words, "--vsock", room->socket);
}

/* ---- one VM ---- */

/* What the program said last, for a sentence. */
static void read_log(const struct room *room, char log[BENCH_LOG_MAX])
{
	off_t size = lseek(room->log, 0, SEEK_END),
	      from = size > BENCH_LOG_MAX - 1 ? size - (BENCH_LOG_MAX - 1) : 0;
	ssize_t length = io_pread_full(room->log, log, BENCH_LOG_MAX - 1, from);
	char *line;

	log[length > 0 ? length : 0] = '\0';
	length = (ssize_t)strlen(log);
	if (length > 0 && log[length - 1] == '\n')
		log[length - 1] = '\0';
	line = strrchr(log, '\n');
	if (line)
		memmove(log, line + 1, strlen(line));
	text_make_printable(log);
}

/* What may help against an error of its start. */
static const char *mend_of(int r)
{
	switch (r) {
	case -ENOENT:
	case -ENOTDIR:
		return "say with --vmm where it is";
	case -EACCES:
	case -EPERM:
	case -ENOEXEC:
		return "it has to be a program that you may run; make it one, or name another with --vmm";
	case -EAGAIN:
	case -ENOMEM:
	case -EMFILE:
	case -ENFILE:
		return "this host or your limits have no room for it; end something, or raise them (ulimit "
		       "-a)";
	default:
		return "try again";
	}
}

static int fail_start(struct room *room, const struct words *words, const struct hello *hello, int r)
{
	char log[BENCH_LOG_MAX];

	read_log(room, log);
	if (r == -ECHILD && WIFSIGNALED(hello->status))
		return bench_fail(room->call, "%s was ended by signal %d before its guest said hello: %s",
			words->argv[0], WTERMSIG(hello->status), log[0] ? log : "it said nothing");
	if (r == -ECHILD)
		return bench_fail(room->call, "%s ended before its guest said hello, with status %d: %s",
			words->argv[0], WEXITSTATUS(hello->status), log[0] ? log : "it said nothing");
	if (r == -ETIMEDOUT)
		return bench_fail(room->call, "the guest of %s did not say hello within %d s: %s",
			words->argv[0], HELLO_LIMIT_MS / 1000, log[0] ? log : "vmm said nothing");
	return bench_fail(room->call, "cannot run %s: %s; %s", words->argv[0], strerror(-r), mend_of(r));
}

/* Starts it and waits for the hello. 0 or -1 (said). */
static int start_vm(struct room *room, struct words *words, struct hello *hello)
{
	int r;

	words->argv[words->count] = NULL;
	unlink(room->socket);
	unlink(room->control);
	if (ftruncate(room->log, 0) < 0 || lseek(room->log, 0, SEEK_SET) < 0)
		return bench_fail(room->call, "the log: %s", strerror(errno));
	r = hello_start(hello, room->listener, words->argv, room->log, room->stop);
	return r < 0 ? fail_start(room, words, hello, r) : 0;
}

static int time_vm(struct room *room, struct words *words, size_t kind, bool counts)
{
	struct hello hello;

	if (start_vm(room, words, &hello) < 0)
		return -1;
	hello_end(&hello);
	if (counts)
		series_add(&room->call->series, kind, hello.ns);
	return 0;
}

/* In turns, once unmeasured: all files are in memory then. */
static int take_turns(struct room *room, struct words *words, size_t kinds)
{
	for (size_t i = 0; i <= room->call->rounds; i++)
		for (size_t kind = 0; kind < kinds; kind++)
			if (time_vm(room, &words[kind], kind, i > 0) < 0)
				return -1;
	return 0;
}

/* ---- boots ---- */

static void name_boot(struct bench_call *call, size_t kind)
{
	const char *options = call->options[kind];

	snprintf(call->series.names[kind], SERIES_NAME_MAX, "boot: vmm's start to the agent's hello%s%.180s",
		options ? "; " : "", options ? options : "");
}

int bench_boot(struct bench_call *call)
{
	struct words words[SERIES_KINDS_MAX] = {{.count = 0}};
	struct room room;
	int r = make_room(&room, call);

	for (size_t i = 0; r == 0 && i < call->series.kinds; i++) {
		name_boot(call, i);
		r = boot_words(&room, &words[i], call->options[i]);
	}
	if (r == 0)
		r = take_turns(&room, words, call->series.kinds);
	for (size_t i = 0; i < SERIES_KINDS_MAX; i++)
		free(words[i].split);
	leave_room(&room);
	return r;
}

/* ---- restores ---- */

static int ask(struct room *room, struct vmm_client *client, uint32_t type, const int *fds, size_t count)
{
	struct vmm_message request = {.type = type}, reply;
	struct client_error error;

	if (vmm_client_ask(client, &request, fds, count, &reply, &error) < 0)
		return bench_fail(room->call, "%s", error.message);
	if (reply.status < 0)
		return bench_fail(room->call, "vmm cannot save its VM: %s",
			reply.text[0] ? reply.text : strerror(-reply.status));
	return 0;
}

static int save(struct room *room)
{
	const char *paths[FILES] = {room->state, room->memory};
	struct vmm_client client;
	struct client_error error;
	int files[FILES] = {-1, -1}, r;

	if (vmm_client_connect(&client, room->control, &error) < 0)
		return bench_fail(room->call, "%s", error.message);
	r = ask(room, &client, VMM_PAUSE, NULL, 0);
	for (size_t i = 0; r == 0 && i < FILES; i++) {
		files[i] = open(paths[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (files[i] < 0)
			r = bench_fail(room->call, "cannot make %s: %s", paths[i], strerror(errno));
	}
	if (r == 0)
		r = ask(room, &client, VMM_SAVE, files, FILES);
	for (size_t i = 0; i < FILES; i++)
		fd_close(&files[i]);
	vmm_client_finish(&client);
	return r;
}

/* A guest that has just said hello, as a template's is. */
static int make_snapshot(struct room *room)
{
	struct words words;
	struct hello hello;
	int r = boot_words(room, &words, room->call->options[0]);

	add_option(&words, "--control", room->control);
	if (r == 0)
		r = start_vm(room, &words, &hello);
	if (r == 0) {
		r = save(room);
		hello_end(&hello);
	}
	free(words.split);
	return r;
}

int bench_restore(struct bench_call *call)
{
	struct words words[SERIES_KINDS_MAX] = {{.count = 0}};
	struct room room;
	int r = make_room(&room, call);

	snprintf(call->series.names[0], SERIES_NAME_MAX, "restore: vmm's start to the agent's hello");
	snprintf(call->series.names[1], SERIES_NAME_MAX, "boot: vmm's start to the agent's hello");
	if (r == 0)
		r = make_snapshot(&room);
	if (r == 0)
		restore_words(&room, &words[0]);
	if (r == 0)
		r = boot_words(&room, &words[1], call->options[0]);
	if (r == 0)
		r = take_turns(&room, words, 2);
	free(words[1].split);
	leave_room(&room);
	return r;
}
