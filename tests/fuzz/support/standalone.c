/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target without libFuzzer: runs it on each input of its arguments, which are files or `ar` archives
 * of files, with a limit of time for each. Any compiler builds it.
 *
 *   TARGET FILE...   says how many inputs there were; 1: there were none, or a file cannot be read.
 *
 * An input that is found guilty ends the process by a signal, after one line that names it.
 */
#include "tests/fuzz/support/fuzz.h"
#include <ar.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_SECONDS = 60 };

static struct {
	char name[128]; /* of the input that runs */
	bool running;
} now;

static void name_culprit(void)
{
	static const char text[] = "standalone: in input ";

	if (!now.running)
		return;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)!write(STDERR_FILENO, now.name, strlen(now.name));
	(void)!write(STDERR_FILENO, "\n", 1);
}

static void on_signal(int signal)
{
	name_culprit();
	raise(signal); /* the handler is gone: this ends the process */
}

static void run(const char *name, const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1); /* of just that size, so that a read behind it is seen */

	if (!copy)
		abort();
	if (size)
		memcpy(copy, data, size);
	snprintf(now.name, sizeof(now.name), "%s", name);
	now.running = true;
	alarm(INPUT_SECONDS);
	LLVMFuzzerTestOneInput(copy, size);
	alarm(0);
	now.running = false;
	free(copy);
}

/* The whole file. NULL: it cannot be read. */
static uint8_t *load(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rbe");
	uint8_t *data = NULL;
	long end = -1;

	if (file && fseek(file, 0, SEEK_END) == 0)
		end = ftell(file);
	if (end >= 0 && fseek(file, 0, SEEK_SET) == 0)
		data = malloc((size_t)end + 1);
	if (data && fread(data, 1, (size_t)end, file) != (size_t)end) {
		free(data);
		data = NULL;
	}
	if (file)
		fclose(file);
	*size = data ? (size_t)end : 0;
	return data;
}

/* Members whose names are in the header; ar's own tables, whose names begin with '/', are passed over. -1: it
 * is cut or malformed. */
static int run_archive(const uint8_t *data, size_t size)
{
	size_t at = SARMAG;
	int count = 0;

	while (at < size) {
		struct ar_hdr header;
		char length[sizeof(header.ar_size) + 1] = "", name[sizeof(header.ar_name) + 1] = "";
		size_t bytes;

		if (size - at < sizeof(header))
			return -1;
		memcpy(&header, data + at, sizeof(header));
		at += sizeof(header);
		memcpy(length, header.ar_size, sizeof(header.ar_size));
		memcpy(name, header.ar_name, sizeof(header.ar_name));
		bytes = strtoul(length, NULL, 10);
		if (memcmp(header.ar_fmag, ARFMAG, sizeof(header.ar_fmag)) != 0 || bytes > size - at)
			return -1;
		if (name[0] != '/') {
			name[strcspn(name, "/ ")] = '\0';
			run(name, data + at, bytes);
			count++;
		}
		at += bytes + bytes % 2;
	}
	return count;
}

static int run_file(const char *path)
{
	size_t size;
	uint8_t *data = load(path, &size);
	int count = 1;

	if (!data)
		return -1;
	if (size >= SARMAG && memcmp(data, ARMAG, SARMAG) == 0)
		count = run_archive(data, size);
	else
		run(path, data, size);
	free(data);
	return count;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	int count = 0;

	sigaction(SIGABRT, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	__sanitizer_set_death_callback(name_culprit); /* they end the process by exit */
	for (int i = 1; i < argc; i++) {
		int inputs = run_file(argv[i]);

		if (inputs < 0) {
			fprintf(stderr, "standalone: %s cannot be read\n", argv[i]);
			return 1;
		}
		count += inputs;
	}
	printf("%d inputs\n", count);
	return count == 0;
}
