/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a daemon that is being started has all its sandboxes again.
 *
 *   ready_time SOCKET WANTED
 *
 * Asks until WANTED sandboxes are ready, every READY_POLL_MS, also while nobody listens yet. Prints the
 * seconds since 1970, as bash's EPOCHREALTIME, at which that answer was there. Exit status 1 when it did not
 * come within READY_LIMIT_MS.
 */
#include "host-ctl/cli/client.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { READY_POLL_MS = 5, READY_LIMIT_MS = 120 * 1000 };

static uint64_t now_us(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* How many are ready; 0 when nobody answers. */
static size_t ask(const char *path)
{
	struct client_error error;
	struct client client;
	json_t *answer = NULL;
	size_t ready = 0;

	if (client_connect(&client, path, CLIENT_QUERY_TIMEOUT_MS, &error) < 0)
		return 0;
	if (client_call(&client, "GET", "/v1/sandboxes?state=ready", NULL, NULL, &answer, &error) == 0)
		ready = json_array_size(json_object_get(answer, "sandboxes"));
	client_finish(&client);
	json_decref(answer);
	return ready;
}

int main(int argc, char **argv)
{
	static const struct timespec pause = {.tv_nsec = READY_POLL_MS * 1000000L};
	uint64_t end = now_us(CLOCK_MONOTONIC) + READY_LIMIT_MS * 1000ULL, at;
	size_t wanted = argc == 3 ? (size_t)strtoul(argv[2], NULL, 10) : 0, ready;

	if (wanted == 0) {
		fprintf(stderr, "usage: ready_time SOCKET WANTED\n");
		return 2;
	}
	while ((ready = ask(argv[1])) < wanted) {
		if (now_us(CLOCK_MONOTONIC) > end) {
			fprintf(stderr, "ready_time: %zu of %zu are ready\n", ready, wanted);
			return 1;
		}
		nanosleep(&pause, NULL);
	}
	at = now_us(CLOCK_REALTIME);
	printf("%llu.%06llu\n", (unsigned long long)(at / 1000000), (unsigned long long)(at % 1000000));
	return 0;
}
