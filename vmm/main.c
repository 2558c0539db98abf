/* SPDX-License-Identifier: Apache-2.0 */
/* The command vmm: one virtual machine, in the foreground. Its exit status is an enum vmm_end. */
#include "common/io.h"
#include "common/log.h"
#include "vmm/config.h"
#include "vmm/files.h"
#include "vmm/vm.h"
#include "vmm/vm_snapshot.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
static int set_up(struct config *config, struct files *files, struct vm **vm)
{
	char error[FILES_ERROR_MAX];
	struct vm_snapshot *snapshot = NULL;
	int r = files_open(config, files, error);

	if (r < 0)
		log_error("%s", error);
	else if (*vm)
		vm_standby_name_files(config);
	if (r == 0 && config->restore.wanted)
		r = vm_snapshot_open(config, files, &snapshot);
	if (r == 0)
		r = vm_create(config, files, snapshot, vm);
	if (r == 0) {
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
	struct files files;
	struct vm *vm = NULL;
	int status = VMM_END_SETUP, r = config->standby ? vm_stand_by(config, &vm) : 0;

	if (r < 0)
		return r == -ECANCELED ? VMM_END_KILLED : VMM_END_SETUP;
	r = set_up(config, &files, &vm);
	if (r == 0)
		status = (int)vm_run(vm);
	else if (r == -ENOTUNIQ)
		status = VMM_END_USAGE;
	vm_destroy(vm);
	files_close(&files);
	return status;
}

int main(int argc, char *argv[])
{
	char error[CONFIG_ERROR_MAX];
	struct config config;

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
	return run(&config);
}
