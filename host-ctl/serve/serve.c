/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's life.
 *
 *   options, files that are there → runtime folder, locks, state folder → cgroups → whose are leftovers?
 *   journal → leftovers away → templates, HTTP → loop
 *   SIGTERM, SIGINT, SIGHUP, SIGQUIT: no new connection, queued runs refused, VMs ended; when the last is
 * gone, the loop stops
 */
#include "host-ctl/serve/serve.h"
#include "common/io.h"
#include "common/log.h"
#include "common/version.h"
#include "host-ctl/api/api_stream.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/serve/recovery.h"
#include "host-ctl/serve/runtime.h"
#include "host-ctl/serve/serve_check.h"
#include "host-ctl/serve/serve_options.h"
#include "host-ctl/serve/state_claim.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	STATUS_FAILED = 1,   /* CLI_FAILURE: wrong usage */
	STOP_MS = 20 * 1000, /* for the VMs to end; then the daemon gives up and says so */
	STOP_SAVES_MS =
		60 * 1000,   /* more, for saves of sandboxes; the next daemon undoes one that is half done */
	FDS_PRESIZED = 1024, /* growing the table later would wait for an RCU grace period */
};

struct serve {
	struct serve_options options;
	struct runtime runtime;
	struct cgroup_tree cgroups;
	struct metrics metrics;
	struct api api;
	struct recovery *recovery; /* for the start */
	struct loop *loop;
	struct http *http;
	struct loop_source *signals, *stop_timer;
	int left;	/* VMs that an earlier daemon left, and that live */
	bool are_ours;	/* the runtime folder says so of them */
	bool anew;	/* the journal that knew them was damaged */
	bool has_claim; /* the runtime folder says whose its VMs are */
	bool stopping, is_late;
};

static void pool_full(void *context)
{
	struct serve *serve = context;

	log_info("ready: %u warm", serve->options.target);
	if (serve->options.ready_fd >= 0 && write(serve->options.ready_fd, "\n", 1) != 1)
		log_warn("cannot write to --ready-fd %d: %s", serve->options.ready_fd, strerror(errno));
	fd_close(&serve->options.ready_fd);
}

/* Nothing of a VM is left, and nothing is under way to the disk. */
static void nothing_is_left(void *context)
{
	struct serve *serve = context;

	if (!serve->stopping || !templates_are_empty(serve->api.templates) ||
		(serve->api.sandboxes && sandboxes_are_busy(serve->api.sandboxes)))
		return;
	/* Clients that have not read their last frame do not hold the daemon. */
	api_streams_stop(&serve->api);
	loop_stop(serve->loop, 0);
}

static void stop_is_late(void *context)
{
	struct serve *serve = context;

	/* A save that is on its way to the disk is brought to its end: half of it would be of no use. */
	if (!serve->is_late && templates_are_empty(serve->api.templates)) {
		serve->is_late = true;
		log_warn("what is saved of sandboxes is not on the disk yet: waiting for that");
		loop_set_timer(serve->stop_timer, STOP_SAVES_MS * CLOCK_NS_PER_MS);
		return;
	}
	log_error(
		"%s did not end within %d ms: what is left, in %s and in the state folder, is removed by the "
		"next daemon",
		templates_busy_with(serve->api.templates) ? "a template's build" : "VMs", STOP_MS,
		serve->options.cgroup_root);
	loop_stop(serve->loop, STATUS_FAILED);
}

static void stop(void *context, const struct signalfd_siginfo *info)
{
	struct serve *serve = context;

	if (serve->stopping)
		return;
	serve->stopping = true;
	log_info("signal %u: stopping", info->ssi_signo);
	loop_set_timer(serve->stop_timer, STOP_MS * CLOCK_NS_PER_MS);
	http_stop_listening(serve->http);
	/* Plain runs, and builds, end with their VMs. */
	api_streams_stop(&serve->api);
	templates_stop(serve->api.templates);
}

struct sweeping {
	const struct recovery *recovery;
	int *sandboxes; /* whose VMs are removed */
};

static bool keeps_or_counts(const void *context, const char *name)
{
	const struct sweeping *sweeping = context;

	if (recovery_keeps(sweeping->recovery, name))
		return true;
	*sweeping->sandboxes += recovery_knows(sweeping->recovery, name);
	return false;
}

static void tell_removed(const struct serve *serve, int count, int sandboxes)
{
	if (serve->anew && serve->left)
		log_warn("removed %d VMs that an earlier daemon left, those of its sandboxes among them: the "
			 "journal that knew which was damaged",
			count);
	else if (!serve->api.journal)
		log_warn("removed what is left of %d VMs that had ended", count);
	else
		log_warn("removed %d VMs that an earlier daemon left, %d of them of sandboxes that cannot be "
			 "taken back",
			count, sandboxes);
}

/* All but what is taken back. */
static int sweep(struct serve *serve, struct error *error)
{
	int sandboxes = 0;
	const struct sweeping sweeping = {serve->recovery, &sandboxes};
	int status = runtime_sweep(&serve->runtime, recovery_keeps, serve->recovery, error);
	int count = status ? status : cgroup_tree_sweep(&serve->cgroups, keeps_or_counts, &sweeping, error);

	if (count > 0) {
		tell_removed(serve, count, sandboxes);
		serve->metrics.leftovers_removed = (uint64_t)count;
	}
	return count < 0 ? count : 0;
}

/* They may be sandboxes', of another state folder's. */
static int look_at_leftovers(struct serve *serve, struct error *error)
{
	const struct serve_options *options = &serve->options;
	int status;

	serve->left = cgroup_tree_count(&serve->cgroups, error);
	if (serve->left < 0)
		return serve->left;
	status = state_claim_check(options->runtime_directory, options->state_directory, serve->left,
		options->cgroup_root, error);
	serve->are_ours = status > 0;
	return status < 0 ? status : 0;
}

static int open_host(struct serve *serve, struct error *error)
{
	const struct serve_options *options = &serve->options;
	/* Before anything is made, for a host without them gets no folder of ours. */
	int status = cgroup_tree_check(options->cgroup_root, options->limits_required, error);

	if (!status)
		status = runtime_open(&serve->runtime, options->runtime_directory, options->socket, error);
	if (!status && !options->cold)
		status = state_folder_check(options->state_directory, error);
	if (status)
		return status;
	status = cgroup_tree_open(&serve->cgroups, options->cgroup_root, options->limits_required, error);
	if (status)
		return status;
	if (!serve->cgroups.limits)
		log_warn("VMs run without limits of cpu, memory and pids (--limits available)");
	return look_at_leftovers(serve, error);
}

static struct templates *make_templates(struct serve *serve, struct error *error)
{
	const struct serve_options *options = &serve->options;
	const struct templates_config config = {.state_directory = options->state_directory,
		.cold = options->cold,
		.target = options->target,
		.vms_max = options->vms_max,
		.starts_max = options->starts_max,
		.queue_max = options->queue_max,
		.standby = options->standby,
		.reserve_bytes = options->reserve_bytes,
		.source = {.kernel = {options->kernel, options->kernel},
			.initrd = {options->initrd, options->initrd},
			.image = {options->image, options->image},
			.size = options->memory,
			.memory_bytes = options->memory_bytes,
			.cpus = options->cpus,
			.rehearsals = options->rehearsals},
		.kernel_smp = options->kernel_smp,
		.mkfs = options->mkfs,
		.vm = {.vmm = options->vmm,
			.kvm = options->kvm,
			.serial_directory = options->serial_directory,
			.socket_directory = serve->runtime.sockets,
			.upper_directory = options->state_directory,
			.uid_base = options->uid_base,
			.boot_timeout_ms = options->boot_timeout_ms,
			.no_prefault = options->no_prefault,
			.cgroups = &serve->cgroups,
			.loop = serve->loop}};

	return templates_create(&config, &serve->metrics, pool_full, nothing_is_left, serve, error);
}

/* Which of the VMs that are there are sandboxes', and which uids they have, only the journal tells: new VMs
 * beside them could have theirs. */
static int leave_alone(const struct serve *serve, struct error *error)
{
	const struct error why = *error;

	error_set(error, why.kind,
		"%.300s. %d VMs that an earlier daemon left, sandboxes perhaps, stay as they are: mend that, "
		"and the next start takes sandboxes back",
		why.message, serve->left);
	state_claim_add_end(error, serve->options.cgroup_root);
	return -1;
}

/* Before a new one is made, which the next start would take for the one that knew them. */
static int look_for_journal(const struct serve *serve, struct error *error)
{
	const char *folder = serve->options.state_directory;

	if (!serve->left || !serve->are_ours || journal_is_there(folder))
		return 0;
	error_set(error, ERROR_CONFLICT,
		"the journal %.200s/journal.db is missing or empty: put it back, or mount the disk that has "
		"it",
		folder);
	return -ENOENT;
}

static int fail_newer(const struct serve *serve, struct error *error)
{
	const struct error why = *error;

	if (serve->left)
		return leave_alone(serve, error);
	return error_set(error, why.kind, "%.400s, or give another --state-dir", why.message);
}

/* Without one the daemon does what needs none, and refuses the rest with the reason; but where there is
 * another daemon's, or one that cannot be read, or VMs that it may know, it would do harm. */
static int open_journal(struct serve *serve, struct error *error)
{
	struct journal *journal = NULL;
	int status = look_for_journal(serve, error);

	if (status)
		return leave_alone(serve, error);
	status = journal_open(&journal, serve->options.state_directory, NULL, error);
	if (status == -EBUSY)
		return status;
	if (status == -ENOTSUP)
		return fail_newer(serve, error);
	if (!status) {
		serve->anew = journal_is_anew(journal);
		status = recovery_read(serve->recovery, journal, error);
	}
	if (!status)
		serve->api.journal = journal_queue_create(serve->loop, journal);
	if (serve->api.journal)
		return 0;
	journal_close(journal);
	if (!status)
		error_set(error, ERROR_INTERNAL, "out of memory for the journal");
	if (serve->left)
		return leave_alone(serve, error);
	log_error("%s. Until the daemon is started anew, sandboxes and requests with an Idempotency-Key are "
		  "refused",
		error->message);
	error_set(
		&serve->api.journal_error, error->kind, "%.450s, and start the daemon anew", error->message);
	return 0;
}

/* From here on what is left is ours. Without a journal there will be no sandboxes, and there is nothing left.
 */
static int take_over(struct serve *serve, struct error *error)
{
	const char *runtime = serve->options.runtime_directory;
	int status = open_journal(serve, error);

	if (!status)
		status = recovery_check(serve->recovery, &serve->cgroups, serve->options.cgroup_root, error);
	if (!status)
		status = state_claim_write(
			runtime, serve->api.journal ? serve->options.state_directory : NULL, error);
	serve->has_claim = !status;
	return status ? status : sweep(serve, error);
}

/* Not while there are VMs, which the next daemon may take back. */
static void give_up_claim(const struct serve *serve)
{
	struct error error;

	if (serve->has_claim && cgroup_tree_count(&serve->cgroups, &error) == 0)
		state_claim_remove(serve->options.runtime_directory);
}

static struct sandboxes *make_sandboxes(struct serve *serve)
{
	const struct sandboxes_config config = {.loop = serve->loop,
		.templates = serve->api.templates,
		.metrics = serve->api.metrics,
		.events = &serve->api.events,
		.keep_ms = serve->options.keep_ms,
		.keep_commands_ms = serve->options.keep_commands_ms,
		.state_directory = serve->options.state_directory,
		.disk_reserve_bytes = serve->options.disk_reserve_bytes,
		.journal = serve->api.journal,
		.journal_error = &serve->api.journal_error,
		.idle = nothing_is_left,
		.context = serve};

	return sandboxes_create(&config);
}

static int make_parts(struct serve *serve, struct error *error)
{
	/* SIGHUP: the terminal that it was started from is closed. */
	static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

	error_set(error, ERROR_INTERNAL, "out of memory or fds for the daemon's parts");
	serve->loop = loop_create();
	if (!serve->loop)
		return -ENOMEM;
	serve->signals = loop_add_signals(serve->loop, ends, sizeof ends / sizeof ends[0], stop, serve);
	serve->stop_timer = loop_add_timer(serve->loop, stop_is_late, serve);
	serve->api = (struct api){.loop = serve->loop,
		.metrics = &serve->metrics,
		.key_grace_ms = serve->options.key_grace_ms,
		.state_directory = serve->options.state_directory};
	if (take_over(serve, error))
		return -EBUSY;
	serve->api.templates = make_templates(serve, error);
	if (!serve->signals || !serve->stop_timer || !serve->api.templates)
		return -ENOMEM;
	serve->api.sandboxes = make_sandboxes(serve);
	if (!serve->api.sandboxes)
		return -ENOMEM;
	/* What there was beside a journal that is new is elsewhere. */
	if (serve->api.journal)
		recovery_sweep_files(serve->recovery, serve->options.state_directory);
	recovery_apply(serve->recovery, serve->api.sandboxes, serve->api.templates, &serve->cgroups);
	if (runtime_listen(&serve->runtime, serve->options.group, error))
		return -EIO;
	error_set(error, ERROR_INTERNAL, "the HTTP server did not start");
	serve->http = http_create(serve->loop, serve->runtime.listener, serve->options.group,
		serve->options.client_timeout_ms, &serve->metrics, &api_handler, &serve->api);
	return serve->http ? 0 : -EIO;
}

static void finish(struct serve *serve)
{
	/* Answers that are to be kept are told when they are. */
	journal_queue_destroy(serve->api.journal);
	if (serve->api.sandboxes)
		sandboxes_leave_journal(serve->api.sandboxes);
	/* VMs that did not end still have runs, and these their connections, and a worker has its fork: then
	 * the process's end is theirs. */
	if ((!serve->api.templates || templates_are_empty(serve->api.templates)) &&
		!(serve->api.sandboxes && sandboxes_are_busy(serve->api.sandboxes))) {
		/* A client may have upgraded its connection in the loop's last round. */
		api_streams_stop(&serve->api);
		http_destroy(serve->http);
		sandboxes_destroy(serve->api.sandboxes);
		templates_destroy(serve->api.templates);
	}
	loop_remove(serve->stop_timer);
	loop_remove(serve->signals);
	loop_destroy(serve->loop);
	give_up_claim(serve);
	runtime_close(&serve->runtime);
	cgroup_tree_close(&serve->cgroups);
	fd_close(&serve->options.ready_fd);
}

/* Each VM takes eight fds or so; the kernel grows the table once, now. */
static void prepare_process(void)
{
	struct rlimit limit;
	int high;

	signal(SIGPIPE, SIG_IGN);
	umask(022);
	/* What libraries would open and read in the first request. */
	tzset();
	json_object_seed(0);
	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	high = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, FDS_PRESIZED);
	fd_close(&high);
}

static int run(struct serve *serve)
{
	struct error error;
	int status;

	prepare_process();
	serve->recovery = calloc(1, sizeof *serve->recovery);
	if (!serve->recovery)
		return STATUS_FAILED;
	status = serve_check(&serve->options, &error);
	if (!status)
		status = open_host(serve, &error);
	if (!status)
		status = make_parts(serve, &error);
	if (status) {
		log_error("%s", error.message);
		finish(serve);
		return STATUS_FAILED;
	}
	recovery_finish(serve->recovery);
	log_info("version %s listens on %s", TINDERBOX_VERSION, serve->options.socket);
	status = templates_start(serve->api.templates);
	if (!status)
		status = loop_run(serve->loop);
	log_info("stopped");
	finish(serve);
	return status ? STATUS_FAILED : 0;
}

int serve_main(int argc, char **argv)
{
	struct serve *serve = calloc(1, sizeof *serve);
	char error[SERVE_ERROR_MAX];
	int status = STATUS_FAILED;

	if (!serve)
		return STATUS_FAILED;
	serve->runtime = (struct runtime){.folder_lock = -1, .socket_lock = -1, .listener = -1};
	serve->cgroups.fd = -1;
	if (serve_options_parse(&serve->options, argc, argv, error)) {
		status = cli_fail_usage(argv[0], error);
	} else if (serve->options.help) {
		serve_options_print_help(stdout);
		status = 0;
	} else {
		log_init("host-ctl serve", serve->options.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
		status = run(serve);
	}
	if (serve->recovery)
		recovery_finish(serve->recovery);
	free(serve->recovery);
	free(serve);
	return status;
}
