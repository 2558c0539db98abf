/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of guest-init on the kernel's command line; all begin with "tinderbox.".
 *
 *   tinderbox.root=DEVICE|none   the base, read-only: erofs, else ext4. Default /dev/vda; none: no base is
 * looked for tinderbox.upper=tmpfs|DEVICE the writable layer over it: tmpfs (default), or an ext4 device
 */
#ifndef GUEST_INIT_OPTIONS_H
#define GUEST_INIT_OPTIONS_H

#include "guest-init/warnings.h"

enum { OPTIONS_VALUE_MAX = 64, OPTIONS_CMDLINE_MAX = 4096 };

struct options {
	char root[OPTIONS_VALUE_MAX];  /* "none" or a path */
	char upper[OPTIONS_VALUE_MAX]; /* "tmpfs" or a path */
};

/* Defaults, changed by what the line says; an unknown or bad option is named in warnings and passed over. */
void options_parse(const char *cmdline, struct options *options, struct warnings *warnings);

#endif
