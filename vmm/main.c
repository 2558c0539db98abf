/* SPDX-License-Identifier: Apache-2.0 */
/* The command vmm: one virtual machine, in the foreground. Its exit status is an enum vmm_end. */
#include "common/io.h"
#include "common/log.h"
#include "vmm/config.h"
#include "vmm/files.h"
#include "vmm/trace.h"
#include "vmm/trace_file.h"
#include "vmm/vm.h"
#include "vmm/vm_snapshot.h"
#include "vmm/vm_trace.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NS_PER_S = 1000000000 };

static int print_text(const struct config *config)
{
	char text[CONFIG_HELP_MAX];

	if (config->action == CONFIG_HELP)
		config_help(text);
	else
		config_version(text);
	return io_write_all(STDOUT_FILENO, text, strlen(text)) < 0 ? VMM_END_SETUP : 0;
}

/* *vm: NULL, or one in standby, which is gone after an error. 0 or -errno, logged. */
static int set_up(struct config *config, struct files *files, struct trace_file *trace_file, struct vm **vm)
{
	char error[FILES_ERROR_MAX];
	struct vm_snapshot *snapshot = NULL;
	uint64_t began = trace_begin();
	int r = files_open(config, files, error);

	if (r == 0 && config->trace.wanted) {
		r = trace_file_open(config->trace.file, trace_file, error);
		if (r < 0)
			files_close(files);
	}
	trace_phase(began, "files");
	if (r < 0)
		log_error("%s", error);
	else if (*vm)
		vm_standby_name_files(config);
	began = trace_begin();
	if (r == 0 && config->restore.wanted) {
		r = vm_snapshot_open(config, files, &snapshot);
		trace_phase(began, "snapshot");
	}
	if (r == 0)
		r = vm_create(config, files, snapshot, vm);
	if (r == 0) {
		(*vm)->trace_file = config->trace.wanted ? trace_file : NULL;
		r = files_begin_stats(config, files, error);
		if (r < 0)
			log_error("%s", error);
	}
	vm_snapshot_close(snapshot);
	if (r < 0 && *vm) {
		vm_answer(*vm, r);
		vm_destroy(*vm);
		*vm = NULL;
	}
	return r;
}

static int run(struct config *config)
{
	struct trace_file trace_file = {.fd = -1};
	struct files files;
	struct vm *vm = NULL;
	int status = VMM_END_SETUP, r = config->standby ? vm_stand_by(config, &vm) : 0;

	if (r < 0)
		return r == -ECANCELED ? VMM_END_KILLED : VMM_END_SETUP;
	r = set_up(config, &files, &trace_file, &vm);
	if (r == 0)
		status = (int)vm_run(vm);
	else if (r == -ENOTUNIQ)
		status = VMM_END_USAGE;
	vm_destroy(vm);
	files_close(&files);
	trace_file_discard(&trace_file);
	return status;
}

/* Before the command line has been read: whether the clock is worth a look. */
static bool may_trace(int argc, char *argv[])
{
	for (int i = 1; i < argc; i++)
		if (strncmp(argv[i], "--trace", strlen("--trace")) == 0)
			return true;
	return false;
}

static uint64_t read_cpu_time(void)
{
	struct timespec used = {0};

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec;
}

int main(int argc, char *argv[])
{
	bool traced = may_trace(argc, argv);
	uint64_t began = traced ? trace_clock() : 0, used = traced ? read_cpu_time() : 0;
	char error[CONFIG_ERROR_MAX];
	struct config config;
	int status;

	log_init("vmm", LOG_LEVEL_INFO);
	/* A reader that is gone is an error of write, for whoever wrote. */
	signal(SIGPIPE, SIG_IGN);
	/* So is a file that may grow no further. */
	signal(SIGXFSZ, SIG_IGN);
	/* In the background, input from the terminal is refused: that is no reason to stop the guest. */
	signal(SIGTTIN, SIG_IGN);
	if (config_parse(argc, argv, &config, error) < 0) {
		log_error("%s", error);
		return VMM_END_USAGE;
	}
	if (config.action != CONFIG_RUN)
		return print_text(&config);
	log_init("vmm", config.log_level);
	if (vm_trace_start(&config, began, used) < 0)
		return VMM_END_SETUP;
	trace_phase(config.trace.wanted ? began : 0, "config");
	status = run(&config);
	trace_stop();
	return status;
}
