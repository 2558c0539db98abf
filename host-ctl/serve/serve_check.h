/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon is given, looked at once before it starts: a file that no VM could start from is a refusal
 * with a sentence, not a pool that tries for ever. What goes missing later is told as a failed start.
 */
#ifndef HOST_CTL_SERVE_CHECK_H
#define HOST_CTL_SERVE_CHECK_H

#include "host-ctl/serve/serve_options.h"
#include "host-ctl/support/error.h"

/* 0, or -1 with *error set: the thing, the cause, the mend. Whether --kvm is KVM is left to the vmm. */
int serve_check(const struct serve_options *options, struct error *error);

#endif
