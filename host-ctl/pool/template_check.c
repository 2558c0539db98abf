/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/template_check.h"
#include "host-ctl/pool/template.h"
#include "host-ctl/support/file_sum.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_OTHERS = S_IWGRP | S_IWOTH };

#define CID_MAX ((json_int_t)UINT32_MAX - 1) /* the last is VMADDR_CID_ANY */

static bool is_within(const json_t *value, json_int_t least, json_int_t most)
{
	return json_is_integer(value) && json_integer_value(value) >= least &&
	       json_integer_value(value) <= most;
}

/* One that an older daemon has built has none. */
static bool is_sum_or_none(const json_t *value)
{
	const char *digits = json_string_value(value);

	return !value || (digits && strlen(digits) == FILE_SUM_DIGITS &&
				 strspn(digits, "0123456789abcdef") == FILE_SUM_DIGITS);
}

static const char *check_inputs(const json_t *inputs)
{
	const json_t *memory = json_object_get(inputs, "memory_bytes"),
		     *image = json_object_get(inputs, "image"), *disk = json_object_get(inputs, "disk_bytes"),
		     *cid = json_object_get(inputs, "cid");
	const char *path = json_string_value(json_object_get(image, "path"));

	if (!is_within(json_object_get(inputs, "cpus"), 1, TEMPLATE_CPUS_MAX))
		return "cpus in its template.json is not a whole number from 1 to 8: build it again";
	if (!is_within(memory, TEMPLATE_MEMORY_MIN, (json_int_t)TEMPLATE_MEMORY_MAX) ||
		json_integer_value(memory) % TEMPLATE_MEMORY_UNIT)
		return "memory_bytes in its template.json is not from 32M to 511G in whole MiB: build it "
		       "again";
	if (disk && (!is_within(disk, TEMPLATE_DISK_MIN, (json_int_t)TEMPLATE_DISK_MAX) ||
			    json_integer_value(disk) % TEMPLATE_DISK_UNIT))
		return "disk_bytes in its template.json is not from 16M to 1024G in whole MiB: build it "
		       "again";
	if (cid && !is_within(cid, TEMPLATE_CID, CID_MAX))
		return "cid in its template.json is not a vsock address of a guest: build it again";
	if (!path || path[0] != '/' || !json_is_integer(json_object_get(image, "bytes")) ||
		!json_is_integer(json_object_get(image, "changed_ns")))
		return "image in its template.json is not whole: build it again";
	return NULL;
}

const char *template_check_about(const json_t *about, const char *name)
{
	const char *own = json_string_value(json_object_get(about, "name"));

	if (json_integer_value(json_object_get(about, "format")) != TEMPLATE_FORMAT)
		return "its template.json is damaged or of another version: build it again";
	if (!own || strcmp(own, name) != 0)
		return "its template.json is that of a template of another name: name its folder so again, "
		       "or build it again";
	if (!json_is_string(json_object_get(about, "generation")))
		return "generation in its template.json is not a string: build it again";
	if (!is_sum_or_none(json_object_get(about, TEMPLATE_DISK_SUM)))
		return "disk_sum in its template.json is not a checksum of 16 hexadecimal digits: build it "
		       "again";
	return check_inputs(json_object_get(about, "inputs"));
}

int template_check_folder(const struct stat *folder, char fault[TEMPLATE_FAULT_MAX])
{
	if (folder->st_uid != geteuid())
		snprintf(fault, TEMPLATE_FAULT_MAX,
			"its folder is uid %u's, who could replace what VMs are made of: give it to uid %u "
			"(chown) if you trust what is in it, or build it again",
			(unsigned int)folder->st_uid, (unsigned int)geteuid());
	else if (folder->st_mode & WRITE_OTHERS)
		snprintf(fault, TEMPLATE_FAULT_MAX,
			"its folder has mode %04o, so that others could replace what VMs are made of: take "
			"that from them (chmod go-w) if you trust what is in it, or build it again",
			(unsigned int)(folder->st_mode & 07777));
	else
		return 0;
	return -EPERM;
}
