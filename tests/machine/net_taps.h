/* SPDX-License-Identifier: Apache-2.0 */
/* Taps of a test's own network namespace. What cannot be done ends the test. */
#ifndef TESTS_MACHINE_NET_TAPS_H
#define TESTS_MACHINE_NET_TAPS_H

#include <stdbool.h>
#include <stdint.h>

enum { NO_FD = -1 };

/* What the interface took in (from the guest) and gave out. */
struct net_traffic {
	uint64_t in_bytes, in_packets, out_bytes, out_packets;
};

/* Makes a tap that stays, up, with an address when one is given. The fd that has it; NO_FD: it is free. */
int net_make_tap(const char *name, uint32_t address, bool keep);
void net_delete_interface(const char *name);
struct net_traffic net_read_traffic(const char *name);

#endif
