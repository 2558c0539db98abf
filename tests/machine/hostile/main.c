/* SPDX-License-Identifier: Apache-2.0 */
/* The hostile guest's start: reads its command line, runs the attack it names, and says how it went. */
#include "tests/machine/hostile/guest.h"

enum { BOOT_PARAMS_CMDLINE = 0x228, FLOOD_ALL = 2 /* queues.c */ };

static const struct attack *const kinds[] = {
	register_attacks,
	queue_attacks,
	access_attacks,
	processor_attacks,
	ending_attacks,
	random_attacks,
	several_attacks,
};

void hostile_main(const uint8_t *boot_params);

void *memset(void *to, int byte, size_t length)
{
	void *next = to;

	__asm__ volatile("rep stosb" : "+D"(next), "+c"(length) : "a"(byte) : "memory");
	return to;
}

void *memcpy(void *to, const void *from, size_t length)
{
	void *next = to;

	__asm__ volatile("rep movsb" : "+D"(next), "+S"(from), "+c"(length) : : "memory");
	return to;
}

static bool begins_with(const char *text, const char *beginning)
{
	while (*beginning)
		if (*text++ != *beginning++)
			return false;
	return true;
}

/* What stands behind " name=", or NULL. */
static const char *find_option(const char *cmdline, const char *name)
{
	for (const char *at = cmdline; *at; at++)
		if ((at == cmdline || at[-1] == ' ') && begins_with(at, name)) {
			while (*name++)
				at++;
			return at;
		}
	return NULL;
}

static uint64_t read_number(const char *text)
{
	uint64_t value = 0;

	while (text && *text >= '0' && *text <= '9')
		value = value * 10 + (uint64_t)(*text++ - '0');
	return value;
}

static bool is_word(const char *text, const char *word)
{
	while (*word)
		if (*text++ != *word++)
			return false;
	return *text == '\0' || *text == ' ';
}

static const struct attack *find_attack(const char *name)
{
	for (size_t i = 0; name && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (const struct attack *attack = kinds[i]; attack->name; attack++)
			if (is_word(name, attack->name))
				return attack;
	return NULL;
}

void hostile_main(const uint8_t *boot_params)
{
	uint32_t address;
	const char *cmdline;
	const char *name;
	const struct attack *attack;
	uint64_t seed;

	__builtin_memcpy(&address, boot_params + BOOT_PARAMS_CMDLINE, sizeof(address));
	cmdline = (const char *)(uint64_t)address;
	long_run = read_number(find_option(cmdline, "long="));
	seed = read_number(find_option(cmdline, "seed="));
	thin_run = read_number(find_option(cmdline, "thin="));
	machine_init(boot_params);
	scan_devices();
	name = find_option(cmdline, "attack=");
	if (!name) { /* a kernel as any other, to those who give it no such command line */
		attack = find_attack("flood");
		seed = FLOOD_ALL;
	} else {
		attack = find_attack(name);
	}
	if (!attack)
		fail("no such attack");
	say("hostile: begin\n");
	attack->run(seed);
	check_devices();
	say("\nhostile: done\n");
	sleep_for_ever();
}
