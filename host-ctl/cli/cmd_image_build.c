/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_image_build.h"
#include "common/io.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FACTS_MAX = 4 * 1024 * 1024, WORD_MAX = 256, STATUS_NOT_STARTED = 127 };

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDS = sizeof ends / sizeof ends[0] };

/* --- the builder --- */

/* In the child. */
_Noreturn static void become_builder(char *const *argv, const sigset_t *mask, pid_t parent)
{
	int null = open("/dev/null", O_RDWR);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	/* What it prints for people who run it alone is not ours. */
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 || getppid() != parent)
		_exit(STATUS_NOT_STARTED);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execv(argv[0], argv);
	_exit(STATUS_NOT_STARTED);
}

/* Those that end us, but for what our parent has had us ignore; and the child's end. */
static void choose_signals(sigset_t *signals)
{
	struct sigaction action;

	sigemptyset(signals);
	sigaddset(signals, SIGCHLD);
	for (int i = 0; i < ENDS; i++)
		if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(signals, ends[i]);
}

/* Its wait status; *ended: the signal that ended us, or 0. */
static int await_builder(pid_t pid, const sigset_t *signals, int *ended)
{
	int status = 0, signal;

	*ended = 0;
	while (waitpid(pid, &status, WNOHANG) == 0) {
		signal = sigwaitinfo(signals, NULL);
		if (signal < 0 || signal == SIGCHLD)
			continue;
		kill(-pid, *ended ? SIGKILL : SIGTERM);
		*ended = signal;
	}
	return status;
}

/* 0: it has made the image; else as cmd_image_build. */
static int run_builder(char *const *argv, struct error *error)
{
	sigset_t signals, before;
	int status, ended;
	pid_t parent = getpid(), pid;

	choose_signals(&signals);
	sigprocmask(SIG_BLOCK, &signals, &before);
	pid = fork();
	if (pid == 0)
		become_builder(argv, &before, parent);
	if (pid < 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		return error_set(error, ERROR_INTERNAL, "cannot start the builder: %s", strerror(errno));
	}
	/* As the child does, so that its group is there before anything is sent to it. */
	setpgid(pid, pid);
	status = await_builder(pid, &signals, &ended);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (ended)
		return ended;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_NOT_STARTED)
		return error_set(error, ERROR_INTERNAL, "the builder %.300s cannot be started", argv[0]);
	return error_set(
		error, ERROR_BUILD_FAILED, "the image was not built (the builder's message is above)");
}

/* --- what it has made --- */

static int add_package(json_t *packages, char words[3][WORD_MAX])
{
	return json_array_append_new(packages,
		json_pack("{s:s,s:s,s:s}", "name", words[0], "version", words[1], "architecture", words[2]));
}

static int read_line(const char *line, char id[IMAGE_ID_SIZE], json_t *packages)
{
	char words[3][WORD_MAX];

	if (sscanf(line, "package %255s %255s %255s", words[0], words[1], words[2]) == 3)
		return add_package(packages, words);
	if (sscanf(line, "sha256 %255s", words[0]) != 1 || strlen(words[0]) != IMAGE_HEX)
		return -1;
	snprintf(id, IMAGE_ID_SIZE, IMAGE_ID_PREFIX "%.*s", IMAGE_HEX, words[0]);
	return image_id_is_valid(id) ? 0 : -1;
}

int cmd_image_read_facts(const char *text, char id[IMAGE_ID_SIZE], json_t **packages)
{
	json_t *list = json_array();
	int r = list ? 0 : -1;

	id[0] = '\0';
	while (!r && *text) {
		size_t length = strcspn(text, "\n");
		char *line = strndup(text, length);

		r = line ? read_line(line, id, list) : -1;
		free(line);
		text += length + (text[length] == '\n');
	}
	if (!r && id[0]) {
		*packages = list;
		return 0;
	}
	json_decref(list);
	return -1;
}

static int read_facts(int folder, char id[IMAGE_ID_SIZE], json_t **packages, struct error *error)
{
	int fd = openat(folder, "image.facts", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char *text = fd < 0 ? NULL : malloc(FACTS_MAX + 1);
	ssize_t length = text ? io_read_full(fd, text, FACTS_MAX) : -1;
	int r = -1;

	if (length >= 0) {
		text[length] = '\0';
		r = cmd_image_read_facts(text, id, packages);
	}
	free(text);
	fd_close(&fd);
	return r ? error_set(error, ERROR_INTERNAL, "the builder has not said what it has made") : 0;
}

static json_t *describe(const struct image_order *order, json_t *packages)
{
	json_t *of = json_string(order->source);
	char shown[PATH_MAX];

	if (!of) {
		text_copy_printable(shown, sizeof shown, order->source, strlen(order->source));
		of = json_string(shown);
	}
	return json_pack("{s:i,s:I,s:{s:s,s:o},s:O}", "format", IMAGE_FORMAT, "created_ms",
		(json_int_t)clock_wall_ms(), "source", "kind", order->kind, "of", of, "packages", packages);
}

static int put(const struct image_store *store, const struct image_building *building,
	const struct image_order *order, char id[IMAGE_ID_SIZE], struct error *error)
{
	json_t *packages = NULL, *about;
	int r = read_facts(building->folder, id, &packages, error);

	if (r)
		return r;
	about = describe(order, packages);
	r = about ? image_store_put(store, building, order->name, id, about, error)
		  : error_set(error, ERROR_INTERNAL, "out of memory for the image");
	json_decref(about);
	json_decref(packages);
	return r;
}

static int build(const struct image_store *store, struct image_building *building,
	const struct image_order *order, char id[IMAGE_ID_SIZE], struct error *error)
{
	char builder[PATH_MAX], output[PATH_MAX + 8], option[32], limit_option[] = "--limit";
	char *argv[] = {builder, output, option, (char *)order->source, order->limit ? limit_option : NULL,
		(char *)order->limit, NULL};
	int r;

	snprintf(builder, sizeof builder, "%s", order->builder);
	snprintf(output, sizeof output, "%s/image", building->path);
	snprintf(option, sizeof option, order->kind[0] == 'd' && order->kind[1] == 'e' ? "--%s" : "--from-%s",
		order->kind);
	r = run_builder(argv, error);
	return r ? r : put(store, building, order, id, error);
}

/* The name may have been another image's only one. */
static int collect(const struct image_store *store, json_t *answer, struct error *error)
{
	json_t *collected = json_array();

	if (!collected || json_object_set(answer, "collected", collected)) {
		json_decref(collected);
		return error_set(error, ERROR_INTERNAL, "out of memory for the image");
	}
	json_decref(collected);
	return image_store_collect(store, collected, error);
}

int cmd_image_build(const struct image_store *store, const struct image_order *order, json_t **answer,
	struct error *error)
{
	struct image_building building;
	char id[IMAGE_ID_SIZE];
	int r;

	*answer = NULL;
	if (access(order->builder, X_OK) < 0)
		return error_set(error, ERROR_NOT_FOUND,
			"there is no builder %.300s: give its path with --builder", order->builder);
	if (image_store_begin(store, &building, error))
		return -1;
	r = build(store, &building, order, id, error);
	image_store_abandon(&building);
	if (r)
		return r > 0 ? r : -1;
	*answer = image_store_describe(store, id, error);
	return *answer && !collect(store, *answer, error) ? 0 : -1;
}
