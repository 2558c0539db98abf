/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/init.h"
#include "common/io.h"
#include "common/log.h"
#include "guest-init/agent.h"
#include "guest-init/host_link.h"
#include "guest-init/marks.h"
#include "guest-init/mounts.h"
#include "guest-init/power.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	GRACE_MS = 2000,     /* when a signal asks for the end and says no time */
	KILL_WAIT_MS = 2000, /* for processes that do not die of KILL at once: they hang in the kernel */
	NS_PER_MS = 1000000,
};

enum phase { PHASE_SERVING, PHASE_TERM, PHASE_KILL };

struct init {
	struct loop *loop;
	struct agent *agent;
	struct loop_source *timer;
	enum phase phase;
	int restart;
	struct warnings warnings;
	struct marks marks;
	struct layers layers;
};

/* ---- the end ---- */

static void advance_end(void *context)
{
	struct init *init = context;

	if (init->phase == PHASE_KILL) {
		log_warn("some processes do not end");
		power_end(init->restart);
	}
	init->phase = PHASE_KILL;
	kill(-1, SIGKILL);
	loop_set_timer(init->timer, (uint64_t)KILL_WAIT_MS * NS_PER_MS);
}

static void begin_end(struct init *init, int restart, uint32_t grace_ms)
{
	if (init->phase != PHASE_SERVING)
		return;
	log_info("%s", restart ? "restarting" : "powering off");
	init->restart = restart;
	init->phase = PHASE_TERM;
	agent_stop(init->agent);
	kill(-1, SIGTERM);
	/* A stopped process would never see it. */
	kill(-1, SIGCONT);
	agent_reap(init->agent); /* does not return when none is left */
	if (grace_ms == 0)
		advance_end(init);
	else
		loop_set_timer(init->timer, (uint64_t)grace_ms * NS_PER_MS);
}

static void none_is_left(void *context)
{
	const struct init *init = context;

	if (init->phase != PHASE_SERVING)
		power_end(init->restart);
}

static void shutdown_asked(void *context, uint32_t grace_ms)
{
	begin_end(context, 0, grace_ms);
}

/* ---- signals ---- */

static void child_ended(void *context, const struct signalfd_siginfo *info)
{
	struct init *init = context;

	(void)info;
	agent_reap(init->agent);
}

static void end_signalled(void *context, const struct signalfd_siginfo *info)
{
	begin_end(context, info->ssi_signo == SIGTERM || info->ssi_signo == SIGINT, GRACE_MS);
}

static void watch_signals(struct init *init)
{
	static const int ends[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

	if (!loop_add_signal(init->loop, SIGCHLD, child_ended, init))
		power_fail("cannot watch children", errno);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (!loop_add_signal(init->loop, ends[i], end_signalled, init))
			warnings_add(
				&init->warnings, "signal %d is not watched: %s", ends[i], strerror(errno));
}

/* ---- the start ---- */

/* fds 0 to 2 must be open, or the first ones we make would be a command's stdio. No console is no error: the
 * pool's VMs have none. */
static void open_stdio(void)
{
	int fd = open("/dev/null", O_RDWR);

	/* Not there (no devtmpfs): a file of the initramfs does as well. */
	if (fd < 0)
		fd = open("/.null", O_RDWR | O_CREAT, 0600);
	while (fd >= 0 && fd < 2)
		fd = dup(fd);
	if (fd > 2)
		close(fd);
}

/* Our lines go to the kernel's log, never straight to the serial port: there every byte is an exit of the VM,
 * and `quiet` keeps all but what is critical off it. */
static void open_log(void)
{
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		log_set_fd(fd);
}

static void read_options(struct options *options, struct warnings *warnings)
{
	char cmdline[OPTIONS_CMDLINE_MAX];
	int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : io_read_full(fd, cmdline, sizeof(cmdline) - 1);

	fd_close(&fd);
	if (n < 0)
		warnings_add(warnings, "no command line: %s", strerror((int)-n));
	cmdline[n > 0 ? n : 0] = '\0';
	options_parse(cmdline, options, warnings);
}

/*
 * A balloon is told of free memory in blocks of at least 2^order pages. By itself Linux waits until 32 blocks
 * of 4 MiB are free, which a guest of 128 MiB never has; 6.1 forgets what its command line says of it.
 */
static void report_small_blocks(void)
{
	static const char order[] = "5",
			  path[] = "/sys/module/page_reporting/parameters/page_reporting_order";
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	/* A kernel without it has nothing to be told. */
	if (fd >= 0)
		(void)!write(fd, order, strlen(order));
	fd_close(&fd);
}

static void set_up_system(struct init *init)
{
	struct options options;
	int r;

	mounts_early(&init->warnings);
	marks_set(&init->marks, TRACE_MARK_MOUNTED);
	report_small_blocks();
	open_stdio();
	open_log();
	read_options(&options, &init->warnings);
	mounts_root(&options, &init->warnings, &init->layers);
	marks_set(&init->marks, TRACE_MARK_ROOT);
	mounts_late(&init->warnings);
	mkdir("/etc", 0755);
	mkdir("/root", 0700);
	r = host_link_loopback_up();
	if (r < 0)
		warnings_add(&init->warnings, "network: lo is not up: %s", strerror(-r));
	marks_set(&init->marks, TRACE_MARK_SYSTEM);
}

static void set_up_agent(struct init *init)
{
	int listener = host_link_listen();
	const struct agent_config config = {
		.loop = init->loop,
		.listen_fd = listener < 0 ? -1 : listener,
		.cgroup_root = MOUNTS_CGROUP_ROOT,
		.users = &users_files_system,
		.identity = &identity_ops_system,
		.layers = &init->layers,
		.connect = host_link_connect,
		.shutdown = shutdown_asked,
		.shutdown_context = init,
		.childless = none_is_left,
		.childless_context = init,
		.warnings = &init->warnings,
	};
	int r;

	if (listener < 0)
		warnings_add(&init->warnings, "vsock: cannot listen: %s", strerror(-listener));
	r = agent_create(&config, &init->agent);
	if (r < 0)
		power_fail("no agent", -r);
	if (listener < 0)
		return;
	marks_set(&init->marks, TRACE_MARK_AGENT);
	/* Only now: who gets our HELLO may connect at once. */
	r = agent_open_link(init->agent);
	if (r < 0)
		warnings_add(&init->warnings, "vsock: no way to the host: %s", strerror(-r));
}

_Noreturn void init_run(void)
{
	struct init init = {0}; /* as long as the machine */
	sigset_t all;
	int r;

	/* First of all: no signal may end or interrupt what follows. PID 1 gets them by signalfd. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	umask(022);
	log_init("guest-init", LOG_LEVEL_INFO);
	/* ==== From here on PID 1 may not exit or return: every way out is power_end or power_fail. ==== */
	marks_open(&init.marks);
	marks_set(&init.marks, TRACE_MARK_INIT);
	set_up_system(&init);
	init.loop = loop_create();
	if (!init.loop)
		power_fail("no event loop", errno);
	init.timer = loop_add_timer(init.loop, advance_end, &init);
	if (!init.timer)
		power_fail("no timer", errno);
	set_up_agent(&init);
	marks_close(&init.marks);
	watch_signals(&init);
	r = loop_run(init.loop);
	power_fail("the event loop has ended", r < 0 ? -r : 0);
}
