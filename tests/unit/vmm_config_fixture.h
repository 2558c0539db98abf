/* SPDX-License-Identifier: Apache-2.0 */
/* A command line of vmm, word by word. */
#ifndef TESTS_UNIT_VMM_CONFIG_FIXTURE_H
#define TESTS_UNIT_VMM_CONFIG_FIXTURE_H

#include "tests/support/unit.h"

#include "vmm/config.h"
#include <string.h>

enum { WORDS_MAX = 40 };

struct run {
	struct config config;
	char error[CONFIG_ERROR_MAX];
};

/* words: after the program's name, up to NULL. */
static inline int parse_words(struct run *run, const char *const *words)
{
	char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "vmm"};
	int argc = 1;

	while (words[argc - 1] != NULL && argc <= WORDS_MAX) {
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
		argc++;
	}
	memset(run, 0x5a, sizeof(*run));
	run->error[0] = '\0';
	return config_parse(argc, argv, &run->config, run->error);
}

#define parse(run, ...) parse_words(run, (const char *const[]){__VA_ARGS__, NULL})

#endif
