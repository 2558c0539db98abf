/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template: a guest that was booted, prepared and saved once, and from which VMs are cloned.
 *
 * It holds what its clones are made of: its state and its memory, each in a memfd, and its image and its
 * disk, if it has one, open. So what happens to its files, or to the name of its image, does not touch clones
 * to come. Loaded, the memfds can still be written, and a clone checks the memory's checksum over them;
 * template_seal makes them unchangeable, and no clone checks again. So between the two comes exactly one
 * clone, which runs nothing of a user's.
 *
 * Its working set is what that clone has touched when it is warm: clones to come have these pages in place
 * before they run. Without one all works, more slowly.
 *
 * Counted: it lives while the store, a pool or a VM has a reference.
 */
#ifndef HOST_CTL_TEMPLATE_H
#define HOST_CTL_TEMPLATE_H

#include "host-ctl/support/error.h"
#include "host-ctl/vm/vm.h"
#include <jansson.h>
#include <stdbool.h>
#include <sys/stat.h>

enum {
	TEMPLATE_CPUS_MAX = 8, /* vCPUs that the vmm gives a VM */
	/* what our own kernel and images are tested with: tests/e2e/small */
	TEMPLATE_MEMORY_MIN = 32 * 1024 * 1024,
	TEMPLATE_MEMORY_UNIT = 1024 * 1024,
	TEMPLATE_DISK_MIN = 16 * 1024 * 1024, /* a file system with a journal, and room for files */
	TEMPLATE_DISK_UNIT = 1024 * 1024,
	TEMPLATE_NAME_MAX = 64, /* NUL included */
	TEMPLATE_FORMAT = 1,	/* of template.json */
	TEMPLATE_CID = 3, /* a clone keeps the vsock address of its template; that of one that was built */
	TEMPLATE_JSON_MAX = 1024 * 1024,
	TEMPLATE_FD_PATH = 32,
};
#define TEMPLATE_MEMORY_MAX (UINT64_C(511) << 30) /* as the vmm */
#define TEMPLATE_DISK_MAX (UINT64_C(1) << 40)	  /* as a copy-on-write disk of the vmm */
#define TEMPLATE_DISK "disk"			  /* its file in the folder */
#define TEMPLATE_DISK_SUM "disk_sum"		  /* of template.json: what file_sum says of that */
#define TEMPLATE_BASE "base"
/* In template.json of one that is made of a sandbox: its clones note their files (vm_source.notes). */
#define TEMPLATE_SNAPSHOT "snapshot"
/* Of its template.json: a boot from its image, and its disk if it has one, has all files that its clones
 * have.
 */
#define TEMPLATE_BOOTS "boots"

struct template
{
	struct template *next; /* in the store */
	unsigned int references;
	unsigned int vms; /* of it, now */
	char name[TEMPLATE_NAME_MAX];
	json_t *about;				     /* what is in template.json */
	int state, memory, image, working_set, disk; /* the last two may be none: -1 */
	char state_path[TEMPLATE_FD_PATH], memory_path[TEMPLATE_FD_PATH], image_path[TEMPLATE_FD_PATH];
	char working_set_path[TEMPLATE_FD_PATH], disk_path[TEMPLATE_FD_PATH];
	char state_name[TEMPLATE_NAME_MAX + 32], memory_name[TEMPLATE_NAME_MAX + 32];
	char working_set_name[TEMPLATE_NAME_MAX + 32], disk_name[TEMPLATE_NAME_MAX + 32];
	struct vm_source source;
};

/* [a-z0-9][a-z0-9._-]*, shorter than TEMPLATE_NAME_MAX. */
bool template_name_is_valid(const char *name);
/* The same, in words: 0, or -1 with *error set, ERROR_INVALID. what: the field or so that has the name. */
int template_name_check(const char *name, const char *what, struct error *error);
/* That of a body's field; *name lives in the body. Returns as template_name_check. */
int template_name_read(json_t *body, const char *field, const char **name, struct error *error);

/* The size of a guest's memory that a body's field has; absent: *bytes stays. Returns as template_name_check.
 */
int template_memory_read(const json_t *body, const char *field, uint64_t *bytes, struct error *error);

/* The image is still what inputs.image of a template.json says, by size and time of change. */
bool template_is_image(const json_t *image, const struct stat *status);

/* Another with each build, for "generation" of a template's description. NULL without memory. */
json_t *template_new_generation(void);

/*
 * Reads the state and memory files of a folder (an fd) into memory, and opens image and disk. about: what it
 * is, taken over (the reference is dropped on failure): "inputs" as of template_inputs. One reference is the
 * caller's. 0, or -errno with *error set: also when one is no file (it is not opened then), the memory has
 * another size than the guest's, or the image has changed. It takes a while: for a worker.
 */
int template_load(int folder, const char *name, json_t *about, unsigned int rehearsals, struct template **out,
	struct error *error);
/*
 * Takes the working set of a clone, by the pid of its vmm; into the file working-set of a folder too, unless
 * that is -1. For a template that has none. 0, or -errno: it has none then (footprint_record and the file say
 * why).
 */
int template_record(struct template *template, pid_t pid, int folder);
/* What the loaded files of a folder take of the host's memory. */
uint64_t template_loaded_bytes(int folder);
/* 0 or -errno: -EBUSY: something has it mapped for writing. */
int template_seal(struct template *template);

/* An image that a vmm would refuse; it is looked at again when it is opened. 0, or -1 with *error set. */
int template_check_image(const struct stat *status, const char *path, struct error *error);

/* Returns it. */
struct template *template_take(struct template *template);
/* Takes NULL. */
void template_drop(struct template *template);

/*
 * What a template of these commands would be made of: for each file path, size, time of change; memory,
 * processors, vmm version. Two that are json_equal give the same template. NULL: a file cannot be looked at
 * or the image is none that a vmm takes, *error says which; or there is no memory.
 */
json_t *template_inputs(const struct vm_config *config, const struct vm_source *source,
	const char *const *commands, unsigned int count, struct error *error);
/*
 * The same of one that is made of a sandbox: what its guest was booted with is not known any more, but which
 * vsock address it has is. image: {"path", "bytes", "changed_ns"}, a reference is taken. NULL without memory.
 */
json_t *template_inputs_of_saved(
	const struct vm_config *config, const struct vm_source *source, json_t *image);

#endif
