/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of config: the table of options, which the parser and the text of --help read. */
#ifndef VMM_CONFIG_OPTIONS_H
#define VMM_CONFIG_OPTIONS_H

#include "common/trace_marks.h"
#include "vmm/config.h"

/* Texts of users are cut to this in messages. */
#define CONFIG_SHOWN "%.96s"

/* What the machine needs of every kernel; the user's part follows. */
#define CONFIG_CMDLINE_ALWAYS "panic=-1 reboot=k"
#define CONFIG_CMDLINE_SERIAL "console=ttyS0"
/* Without a serial line nothing is printed, and the port is not even probed: each access is an exit. */
#define CONFIG_CMDLINE_SILENT "quiet 8250.nr_uarts=0"

/* Above the hole Linux would set 64 MiB below it aside, for devices that reach no further: there are none. */
#define CONFIG_CMDLINE_HIGH_MEMORY "swiotlb=noforce"
/* With --trace: guest-init sets marks. */
#define CONFIG_CMDLINE_TRACE TRACE_MARKS_WORD "=1"
/* A device without a tree: size, address, IRQ (Documentation/admin-guide/kernel-parameters.txt). */
#define CONFIG_CMDLINE_DEVICE "virtio_mmio.device"

enum { CONFIG_OPTION_COUNT = 23, CONFIG_SIZE_TEXT = 24 };

/* What the limits of an option mean. */
enum config_kind {
	CONFIG_TEXT,   /* nothing */
	CONFIG_NUMBER, /* minimum and maximum of the value */
	CONFIG_SIZE,   /* the same, in bytes */
	CONFIG_SOCKET, /* maximum is the length of the path */
};

struct config_option {
	const char *name;
	const char *value;    /* its form; NULL: takes none */
	const char *fallback; /* taken when the option is not given; NULL: nothing is */
	enum config_kind kind;
	uint64_t minimum, maximum;
	unsigned most;	     /* times it may be given */
	bool value_optional; /* --name alone is allowed, a value only by --name=value */
	int (*take)(
		const struct config_option *option, struct config *config, const char *value, char *error);
	const char *text;
};

extern const struct config_option config_options[CONFIG_OPTION_COUNT];

/* Writes the sentence into error; always -EINVAL. */
int config_refuse(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes as the shortest exact number with a unit: 3G, 1536M, 4097. */
void config_format_size(uint64_t bytes, char text[CONFIG_SIZE_TEXT]);

/* config_net.c: the value of --net. */
int config_take_net(
	const struct config_option *option, struct config *config, const char *value, char *error);

/* config_trace.c: the value of --trace. */
int config_take_trace(
	const struct config_option *option, struct config *config, const char *value, char *error);

/* config_restore.c: the value of --restore, and what contradicts it. */
int config_take_restore(
	const struct config_option *option, struct config *config, const char *value, char *error);
/* counts: how often each option was given. 0, or -EINVAL with the sentence. */
int config_check_restore(struct config *config, const unsigned *counts, char *error);
int config_check_standby(struct config *config, const unsigned *counts, char *error);

/* True when the option of that name was given. */
bool config_was_given(const char *name, const unsigned *counts);

/* The number of "fd:N"; -ENOENT when the text is a path, -EINVAL when N is not a number. */
int config_file_number(const char *file);

#endif
