/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of vmm: one table of options from which both the parser and `--help` are made.
 *
 * Parsing is pure: nothing is opened, and the texts in struct config are those of argv, which must outlive
 * it. Errors are one sentence that names the option, the cause and the mend.
 */
#ifndef VMM_CONFIG_H
#define VMM_CONFIG_H

#include "common/log.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/net.h"
#include <limits.h>
#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define CONFIG_MEMORY_DEFAULT (128ull << 20)
#define CONFIG_MEMORY_UNIT (1ull << 20) /* --mem is a multiple of this */
#define CONFIG_BALLOON_UNIT 4096ull	/* --balloon likewise: a page of the guest */
#define CONFIG_SERIAL_MIN (4ull << 10)	/* of --serial-max */
#define CONFIG_SERIAL_MAX (1024ull << 30)

enum {
	CONFIG_DISKS_MAX = 8,
	CONFIG_CMDLINE_MAX = 2048, /* NUL included: COMMAND_LINE_SIZE of Linux on x86 */
	CONFIG_CID_DEFAULT = 3,
	CONFIG_SOCKET_MAX = sizeof(((struct sockaddr_un *)0)->sun_path) - 1,
	CONFIG_VSOCK_MAX = CONFIG_SOCKET_MAX - 11, /* room for _<port> */
	CONFIG_TAP_MAX = IFNAMSIZ - 1,
	CONFIG_UPPER_MAX = 256, /* bytes of an upper file's path, NUL included: each VM has room for all */
	CONFIG_TRACE_MAX = PATH_MAX - 32, /* room for .PID.tmp */
	CONFIG_ERROR_MAX = 512,
	CONFIG_HELP_MAX = 8192,
};

/* How the guest is told what machine it is on. */
enum config_boot { CONFIG_BOOT_FDT, CONFIG_BOOT_MPTABLE };

enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION };

struct config_disk {
	char path[PATH_MAX];	      /* or fd:N */
	char upper[CONFIG_UPPER_MAX]; /* the same; not empty: path is only read, this is written to */
	char id[BLK_ID_BYTES + 1];    /* empty: none */
	bool read_only;
};

struct config_net {
	bool wanted;
	char tap[CONFIG_TAP_MAX + 1]; /* a name, or fd:N; empty: no backend */
	bool has_mac;
	uint8_t mac[ETH_ALEN];
};

struct config_restore {
	bool wanted;
	char state[PATH_MAX], memory[PATH_MAX]; /* or fd:N */
	char working_set[PATH_MAX];		/* the same; empty: none */
	char pages[PATH_MAX];			/* the same: what memory is the base of */
};

struct config_trace {
	bool wanted;
	bool until_hello;	     /* ends at the guest's first vsock stream; else with the VM */
	char file[CONFIG_TRACE_MAX]; /* or fd:N; empty: not wanted */
};

/* A file is a path or "fd:N", as io_open_arg takes it. */
struct config {
	enum config_action action; /* when not CONFIG_RUN, nothing else counts */
	char *const *command;	   /* all of it, for the trace */
	int command_count;
	struct config_restore restore; /* in place of kernel, initrd and cmdline */
	bool paused;
	bool standby;	     /* the control socket tells what to restore: vm_stand_by completes all of this */
	uint64_t base_sum;   /* of a sealed memory under restore's pages, not read then; 0: not known */
	const char *kernel;  /* NULL: restore */
	const char *initrd;  /* NULL: none */
	const char *cmdline; /* the user's part; NULL: none. See config_kernel_cmdline */
	struct config_disk disks[CONFIG_DISKS_MAX]; /* vda, vdb, ... */
	unsigned disk_count;
	struct config_net net;
	const char *vsock; /* path of the listening Unix socket; NULL: none */
	uint32_t vsock_cid;
	/* 0, with restore: not given, so it is the snapshot's; vm_snapshot_open completes them, and boot */
	uint64_t memory; /* bytes; LAYOUT_MEMORY_MIN..LAYOUT_MEMORY_MAX */
	unsigned cpus;
	bool balloon;
	uint64_t balloon_target; /* bytes, at most memory */
	enum config_boot boot;
	const char *serial;  /* NULL: none; "-": the terminal (fds 0 and 1) */
	uint64_t serial_max; /* bytes that are written to it; 0: without a bound */
	const char *control; /* NULL: none */
	const char *kvm;
	bool stats;
	const char *stats_file; /* NULL: standard error */
	struct config_trace trace;
	enum log_level log_level;
};

/*
 * 0, or -EINVAL with a sentence in error (CONFIG_ERROR_MAX bytes) and *config undefined. Words are taken from
 * left to right; `--help` and `--version` end the parsing, so that they work beside anything.
 */
int config_parse(int argc, char *const argv[], struct config *config, char *error);

/*
 * 0, or -ENOMEM with a sentence in error when the guest would have more memory than the host has altogether
 * (host_memory: its MemTotal in bytes).
 */
int config_check_memory(const struct config *config, uint64_t host_memory, char *error);
/* The sentence for memory that the host has but does not give (-ENOMEM of guest_memory_init). */
void config_explain_memory(const struct config *config, char *error);

/*
 * The kinds of devices, in their order in the machine: device N has window N. Disks come first and are called
 * vda, vdb, ... whatever else there is.
 */
enum config_device {
	CONFIG_DEVICE_DISK,
	CONFIG_DEVICE_NET,
	CONFIG_DEVICE_VSOCK,
	CONFIG_DEVICE_RNG,
	CONFIG_DEVICE_BALLOON,
	CONFIG_DEVICE_KINDS
};
/* How many devices the machine has, of one kind and of all. */
unsigned config_count_devices_of(const struct config *config, enum config_device kind);
unsigned config_count_devices(const struct config *config);
/* The IOAPIC's pin of a device, and how many pins there are: as many as are needed, and one at least. */
unsigned config_pin(const struct config *config, unsigned device);
unsigned config_count_pins(const struct config *config);

/* The vsock device exists when there is a host side to it: --vsock or --control. */
bool config_has_vsock(const struct config *config);

/*
 * The kernel's command line: what this machine needs (with CONFIG_BOOT_MPTABLE, where each device is), then
 * the user's part (so that it wins). line has CONFIG_CMDLINE_MAX bytes. 0, or -E2BIG; config_parse has
 * checked that already.
 */
int config_kernel_cmdline(const struct config *config, char *line);

/* The text of --help and of --version, made from the table; text has CONFIG_HELP_MAX bytes. */
void config_help(char *text);
void config_version(char *text);

#endif
