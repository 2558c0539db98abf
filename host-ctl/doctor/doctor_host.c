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

/* Is the word one of the text's, which spaces or line ends part? */
static bool has_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		if ((at == text || at[-1] == ' ') && (at[length] == '\0' || strchr(" \n", at[length])))
			return true;
	return false;
}

void doctor_judge_controllers(const char *controllers, struct doctor_finding *finding)
{
	static const char *const needed[] = {"cpu", "memory", "pids"};
	char missing[64] = "";
	size_t length = 0;

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!has_word(controllers, needed[i]))
			length += (size_t)snprintf(missing + length, sizeof(missing) - length, "%s%s",
				length ? ", " : "", needed[i]);
	if (!missing[0]) {
		doctor_find(finding, DOCTOR_OK, "version 2 with cpu, memory and pids");
		return;
	}
	doctor_find(finding, DOCTOR_FAIL, "version 2 lacks the controllers %s", missing);
	doctor_mend(finding,
		"boot with `systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all` on the kernel's "
		"command line");
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
	char controllers[512];
	struct statfs file_system;

	if (statfs(doctor->cgroup_path, &file_system) < 0 || file_system.f_type != CGROUP2_SUPER_MAGIC ||
		!read_text(doctor->cgroup_path, "cgroup.controllers", controllers, sizeof(controllers))) {
		doctor_find(finding, DOCTOR_FAIL, "no cgroup version 2 at %s", doctor->cgroup_path);
		doctor_mend(finding,
			"boot with `systemd.unified_cgroup_hierarchy=1`, or "
			"`mount -t cgroup2 none %s`",
			doctor->cgroup_path);
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
