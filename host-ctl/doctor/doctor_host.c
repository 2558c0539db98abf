/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/doctor/doctor_host.h"
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- memory ---- */

void doctor_judge_memory(unsigned long available_kib, struct doctor_finding *finding)
{
	unsigned long mib = available_kib / 1024;

	if (mib >= DOCTOR_POOL_VMS * DOCTOR_VM_MIB) {
		doctor_find(finding, DOCTOR_OK, "%lu MiB available", mib);
		return;
	}
	doctor_find(finding, mib >= DOCTOR_VM_MIB ? DOCTOR_WARN : DOCTOR_FAIL,
		"%lu MiB available; a pool of %d needs %d", mib, DOCTOR_POOL_VMS,
		DOCTOR_POOL_VMS * DOCTOR_VM_MIB);
	doctor_mend(finding, "free memory, or serve a smaller pool or smaller VMs (`host-ctl help serve`)");
}

void doctor_check_memory(struct doctor *doctor, struct doctor_finding *finding)
{
	unsigned long available = 0;
	bool found = false;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");

	(void)doctor;
	while (file && !found && fgets(line, sizeof(line), file))
		found = sscanf(line, "MemAvailable: %lu kB", &available) == 1;
	if (file)
		fclose(file);
	if (found) {
		doctor_judge_memory(available, finding);
		return;
	}
	doctor_find(finding, DOCTOR_WARN, "/proc/meminfo does not tell what is available");
	doctor_mend(finding, "mount /proc");
}

/* ---- cgroup v2 ---- */

#define MEND_BOOT                                                                                            \
	"boot with `systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all` on the kernel's command line"

static const char *const controllers_needed[] = {"cpu", "memory", "pids"};
enum { CONTROLLERS_NEEDED = sizeof(controllers_needed) / sizeof(controllers_needed[0]) };

/* Is the word one of the text's, which spaces, commas or line ends part? */
static bool has_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		if ((at == text || strchr(" ,", at[-1])) &&
			(at[length] == '\0' || strchr(" ,\n", at[length])))
			return true;
	return false;
}

/* "cpu, memory, pids", or those of them that are told. */
static void name_controllers(const bool told[CONTROLLERS_NEEDED], char *to, size_t size)
{
	to[0] = '\0';
	for (size_t i = 0; i < CONTROLLERS_NEEDED; i++)
		if (told[i])
			snprintf(to + strlen(to), size - strlen(to), "%s%s", to[0] ? ", " : "",
				controllers_needed[i]);
}

void doctor_judge_controllers(const char *controllers, struct doctor_finding *finding)
{
	bool lacks[CONTROLLERS_NEEDED];
	char missing[64];

	for (size_t i = 0; i < CONTROLLERS_NEEDED; i++)
		lacks[i] = !has_word(controllers, controllers_needed[i]);
	name_controllers(lacks, missing, sizeof(missing));
	if (!missing[0]) {
		doctor_find(finding, DOCTOR_OK, "version 2 with cpu, memory and pids");
		return;
	}
	doctor_find(finding, DOCTOR_FAIL, "version 2 lacks the controllers %s", missing);
	doctor_mend(finding, MEND_BOOT);
}

void doctor_judge_cgroup_mounts(const char *mounts, const char *path, struct doctor_finding *finding)
{
	char where[DOCTOR_PATH_MAX], type[16], options[256], v1[64], v2[DOCTOR_PATH_MAX] = "";
	bool in_v1[CONTROLLERS_NEEDED] = {false};

	for (const char *line = mounts; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		if (sscanf(line, "%*s %127s %15s %255s", where, type, options) != 3)
			continue;
		if (strcmp(type, "cgroup2") == 0 && !v2[0])
			snprintf(v2, sizeof(v2), "%s", where);
		for (size_t i = 0; strcmp(type, "cgroup") == 0 && i < CONTROLLERS_NEEDED; i++)
			in_v1[i] = in_v1[i] || has_word(options, controllers_needed[i]);
	}
	name_controllers(in_v1, v1, sizeof(v1));
	if (v1[0] && v2[0]) {
		doctor_find(
			finding, DOCTOR_FAIL, "version 1 has %s; version 2, at %s, is without them", v1, v2);
		doctor_mend(finding,
			MEND_BOOT
			"; or serve without limits, with `--cgroup-root %s/tinderbox --limits available`",
			v2);
	} else if (v1[0]) {
		doctor_find(finding, DOCTOR_FAIL, "version 1 alone, which has %s", v1);
		doctor_mend(finding, MEND_BOOT);
	} else if (v2[0]) {
		doctor_find(finding, DOCTOR_FAIL, "version 2 is at %s, and not at %s", v2, path);
		doctor_mend(finding, "serve with `--cgroup-root %s/tinderbox`", v2);
	} else {
		doctor_find(finding, DOCTOR_FAIL, "no cgroup version 2 at %s", path);
		doctor_mend(finding, "`mount -t cgroup2 none %s`, or " MEND_BOOT, path);
	}
}

static bool read_text(const char *directory, const char *name, char *text, size_t size)
{
	char path[DOCTOR_PATH_MAX + 32];
	size_t n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "re");
	if (file) {
		n = fread(text, 1, size - 1, file);
		fclose(file);
	}
	text[n] = '\0';
	return file != NULL;
}

void doctor_check_cgroup(struct doctor *doctor, struct doctor_finding *finding)
{
	char controllers[512], mounts[DOCTOR_MOUNTS_MAX];
	struct statfs file_system;

	if (statfs(doctor->cgroup_path, &file_system) < 0 || file_system.f_type != CGROUP2_SUPER_MAGIC ||
		!read_text(doctor->cgroup_path, "cgroup.controllers", controllers, sizeof(controllers))) {
		read_text("/proc/self", "mounts", mounts, sizeof(mounts));
		doctor_judge_cgroup_mounts(mounts, doctor->cgroup_path, finding);
		return;
	}
	doctor_judge_controllers(controllers, finding);
	if (finding->state == DOCTOR_OK && access(doctor->cgroup_path, W_OK) < 0) {
		doctor_find(finding, DOCTOR_FAIL, "%s cannot be written: %s", doctor->cgroup_path,
			strerror(errno));
		doctor_mend(finding, "be root, or have a cgroup delegated to you");
	}
}

/* ---- the rest ---- */

/* The folder itself, or the nearest one above it that is there. */
static void find_existing(const char *path, char existing[DOCTOR_PATH_MAX])
{
	char *slash;

	snprintf(existing, DOCTOR_PATH_MAX, "%s", path);
	while (access(existing, F_OK) < 0 && (slash = strrchr(existing, '/')) != NULL && slash != existing)
		*slash = '\0';
	if (access(existing, F_OK) < 0)
		snprintf(existing, DOCTOR_PATH_MAX, "/");
}

void doctor_check_space(struct doctor *doctor, struct doctor_finding *finding)
{
	char path[DOCTOR_PATH_MAX];
	struct statvfs space;
	unsigned long long mib;

	find_existing(doctor->runtime_path, path);
	if (statvfs(path, &space) < 0) {
		doctor_find(finding, DOCTOR_WARN, "%s: %s", path, strerror(errno));
		doctor_mend(finding, "mount a tmpfs at /run");
		return;
	}
	mib = (unsigned long long)space.f_bavail * space.f_frsize / (1024 * 1024);
	if (mib < DOCTOR_SPACE_MIB) {
		doctor_find(finding, DOCTOR_FAIL, "%llu MiB free in %s; %d are needed", mib, path,
			DOCTOR_SPACE_MIB);
		doctor_mend(finding, "free space there");
	} else if (access(path, W_OK) < 0) {
		doctor_find(finding, DOCTOR_FAIL, "%s cannot be written: %s", path, strerror(errno));
		doctor_mend(finding, "be root, or serve with a --socket elsewhere");
	} else {
		doctor_find(finding, DOCTOR_OK, "%llu MiB free in %s", mib, path);
	}
}

void doctor_judge_kernel(const char *release, struct doctor_finding *finding)
{
	unsigned int major = 0, minor = 0;

	if (sscanf(release, "%u.%u", &major, &minor) == 2 &&
		(major > DOCTOR_KERNEL_MAJOR ||
			(major == DOCTOR_KERNEL_MAJOR && minor >= DOCTOR_KERNEL_MINOR))) {
		doctor_find(finding, DOCTOR_OK, "Linux %s", release);
		return;
	}
	doctor_find(finding, DOCTOR_FAIL, "Linux %s; %d.%d is the oldest that has all that is used", release,
		DOCTOR_KERNEL_MAJOR, DOCTOR_KERNEL_MINOR);
	doctor_mend(finding, "update the kernel");
}

void doctor_check_kernel(struct doctor *doctor, struct doctor_finding *finding)
{
	struct utsname name;

	(void)doctor;
	uname(&name);
	doctor_judge_kernel(name.release, finding);
}

void doctor_check_files(struct doctor *doctor, struct doctor_finding *finding)
{
	struct rlimit limit = {0};

	(void)doctor;
	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= DOCTOR_FILES) {
		doctor_find(finding, DOCTOR_OK, "%llu allowed", (unsigned long long)limit.rlim_cur);
		return;
	}
	doctor_find(finding, DOCTOR_WARN, "only %llu allowed; a busy daemon wants %d",
		(unsigned long long)limit.rlim_cur, DOCTOR_FILES);
	doctor_mend(finding, "raise the limit: `ulimit -n %d`", DOCTOR_FILES);
}
