/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that are clients of the daemon, or need none. Each takes its own command line (argv[0] is the
 * verb) and returns the exit status: 0, CLI_FAILURE with the cause on standard error, or what it says here.
 */
#ifndef HOST_CTL_VERBS_H
#define HOST_CTL_VERBS_H

/* The command's exit status; see cmd_result.h. 141 when the reader of the output is gone. */
int cmd_run(int argc, char **argv);
/* As cmd_run, of a command in a sandbox. */
int cmd_exec(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_create(int argc, char **argv);
int cmd_ls(int argc, char **argv);
/* pause, resume, suspend, wake, stop, start and rm. */
int cmd_sandbox_verb(int argc, char **argv);
int cmd_fork(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_kill(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_template(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_control(int argc, char **argv);
int cmd_boot_report(int argc, char **argv);
int cmd_bench(int argc, char **argv);
/* 0: sound; 1: something fails. */
int cmd_doctor(int argc, char **argv);

/* The usage texts that `host-ctl help VERB` and `host-ctl VERB --help` print. */
extern const char run_usage[], pool_usage[], template_usage[], version_usage[], doctor_usage[],
	control_usage[], create_usage[], ls_usage[], sandbox_verb_usage[], fork_usage[], snapshot_usage[],
	exec_usage[], attach_usage[], logs_usage[], diff_usage[], events_usage[], image_usage[],
	boot_report_usage[], bench_usage[], ps_usage[], kill_usage[];

#endif
