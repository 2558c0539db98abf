/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl control`: what a vmm that runs alone is asked and told over its control socket. */
#include "host-ctl/cli/cmd_control.h"
#include "common/io.h"
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>

#define TAP_DEVICE "/dev/net/tun"

/* clang-format off */
const char control_usage[] =
	"usage: host-ctl control [OPTION...] SOCKET ACTION\n"
	"Asks or tells a vmm that runs alone, by its control socket (vmm --control SOCKET).\n"
	"\n"
	"  status               what state the VM is in, and how often it left the guest\n"
	"  pause                stop its CPUs; returns when they stand\n"
	"  resume               let them go on\n"
	"  kill                 end the VM now\n"
	"  balloon              what the guest has given up of its memory (vmm --balloon)\n"
	"  balloon SIZE         have it give up that much, such as 64M, or take all back: 0; returns at once,\n"
	"                       the guest goes there by itself\n"
	"  net up, net down     set the link of its network device (vmm --net)\n"
	"  net attach TAP       give the device that tap, and set its link up\n"
	"  save DIR             write a paused VM's state and memory to new files there, which\n"
	"                       vmm --restore DIR runs on; the folder is made if there is none\n"
	"\n"
	CLI_USAGE_JSON
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

/* ---- answers ---- */

int control_print_object(json_t *object)
{
	int r = object ? cli_print_json(object) : cli_fail("out of memory");

	json_decref(object);
	return r;
}

static const char *state_name(uint64_t state)
{
	static const char *const names[] = {[VMM_STATE_STARTING] = "starting",
		[VMM_STATE_RUNNING] = "running",
		[VMM_STATE_PAUSED] = "paused",
		[VMM_STATE_ENDED] = "ended",
		[VMM_STATE_STANDBY] = "standby"};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

static int print_state(const struct control_call *call, const char *state)
{
	if (call->json)
		return control_print_object(json_pack("{s:s}", "state", state));
	printf("%s\n", state);
	return cli_finish_output();
}

static int print_status(const struct control_call *call, const struct vmm_message *reply)
{
	const char *state = state_name(reply->arg0);

	if (call->json)
		return control_print_object(json_pack("{s:s, s:I, s:I}", "state", state, "exits",
			(json_int_t)reply->arg1, "boot_cpu_ns", (json_int_t)reply->arg2));
	printf("state     %s\nexits     %" PRIu64 "\nboot CPU  %" PRIu64 ".%03" PRIu64 " ms\n", state,
		reply->arg1, reply->arg2 / 1000000, reply->arg2 / 1000 % 1000);
	return cli_finish_output();
}

static int print_end(const struct control_call *call, const struct vmm_message *state)
{
	char clean[VMM_MESSAGE_TEXT];

	if (call->json)
		return control_print_object(json_pack("{s:s, s:I, s:s}", "state", "ended", "status",
			(json_int_t)state->arg1, "reason", state->text));
	cli_clean_text(clean, sizeof(clean), state->text);
	printf("ended: %s\n", clean);
	return cli_finish_output();
}

static int print_balloon(const struct control_call *call, const struct vmm_message *reply)
{
	const double mib = 1024 * 1024;

	if (call->json)
		return control_print_object(json_pack("{s:I, s:I, s:I}", "target", (json_int_t)reply->arg0,
			"actual", (json_int_t)reply->arg1, "reported", (json_int_t)reply->arg2));
	printf("target    %.1f MiB\ngiven up  %.1f MiB\nreported  %.1f MiB free since the start\n",
		(double)reply->arg0 / mib, (double)reply->arg1 / mib, (double)reply->arg2 / mib);
	return cli_finish_output();
}

static int print_link(const struct control_call *call, bool up)
{
	if (call->json)
		return control_print_object(json_pack("{s:s}", "link", up ? "up" : "down"));
	printf("link %s\n", up ? "up" : "down");
	return cli_finish_output();
}

/* ---- actions: each returns the exit status, or -1 with call->error ---- */

static int show_status(struct control_call *call)
{
	struct vmm_message reply;

	return control_ask(call, VMM_STATUS, 0, NULL, 0, &reply) < 0 ? -1 : print_status(call, &reply);
}

static int pause_vm(struct control_call *call)
{
	struct vmm_message reply;

	return control_ask(call, VMM_PAUSE, 0, NULL, 0, &reply) < 0 ? -1 : print_state(call, "paused");
}

static int resume_vm(struct control_call *call)
{
	struct vmm_message reply;

	return control_ask(call, VMM_RESUME, 0, NULL, 0, &reply) < 0 ? -1 : print_state(call, "running");
}

static int kill_vm(struct control_call *call)
{
	struct vmm_message reply;

	if (control_ask(call, VMM_KILL, 0, NULL, 0, &reply) < 0 ||
		vmm_client_await_end(&call->client, &call->error) < 0)
		return -1;
	return print_end(call, &call->client.state);
}

static int move_balloon(struct control_call *call)
{
	uint64_t target = VMM_BALLOON_ASK;
	struct vmm_message reply;

	if (call->count > 1 && parse_size(call->operands[1], 0, INT64_MAX, &target) < 0) {
		client_error_set(&call->error, "invalid",
			"'%s' is not a size; write a number with K, M or G, such as 64M", call->operands[1]);
		return -1;
	}
	return control_ask(call, VMM_BALLOON, target, NULL, 0, &reply) < 0 ? -1 : print_balloon(call, &reply);
}

static int fail_tap(struct control_call *call, const char *name, int error)
{
	const char *mend = "give another one";

	if (error == ENODEV)
		mend = "make it first: ip tuntap add NAME mode tap, ip link set NAME up";
	else if (error == EBUSY)
		mend = "end the process that has it";
	else if (error == EPERM || error == EACCES)
		mend = "be root or the user it was made for";
	else if (error == EINVAL)
		mend = "give one that is a tap with one queue";
	client_error_set(&call->error, error == EPERM || error == EACCES ? "denied" : "invalid",
		"the tap '%s' cannot be had: %s; %s", name, strerror(error), mend);
	return -1;
}

/* That, or the VM has no place for one, which is the first thing to mend. /dev/null is no tap, and the VM
 * refuses it before its device sees it. */
static int fail_no_tap(struct control_call *call, const char *name)
{
	struct vmm_message reply = {.status = 0};
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC), r = 0;

	if (fd >= 0)
		r = control_ask(call, VMM_NET, VMM_LINK_UP, &fd, 1, &reply);
	fd_close(&fd);
	if (r < 0 && (reply.status == 0 || reply.status == -ENODEV))
		return -1;
	return fail_tap(call, name, ENODEV);
}

/* A tap that exists: TUNSETIFF alone would make one. The fd, or -1 with call->error. */
static int open_tap(struct control_call *call, const char *name)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int fd, r;

	if (strlen(name) >= sizeof(request.ifr_name) || if_nametoindex(name) == 0)
		return fail_no_tap(call, name);
	memcpy(request.ifr_name, name, strlen(name));
	fd = open(TAP_DEVICE, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		client_error_set(&call->error, errno == EACCES ? "denied" : "io",
			"cannot open " TAP_DEVICE ": %s; %s", strerror(errno),
			errno == EACCES ? "be root, or change its mode" : "load the module tun");
		return -1;
	}
	if (ioctl(fd, TUNSETIFF, &request) == 0)
		return fd;
	r = errno;
	fd_close(&fd);
	return fail_tap(call, name, r);
}

static int attach_tap(struct control_call *call)
{
	struct vmm_message reply;
	int r, fd;

	if (call->count < 3) {
		client_error_set(&call->error, "invalid", "net attach wants the name of a tap");
		return -1;
	}
	fd = open_tap(call, call->operands[2]);
	if (fd < 0)
		return -1;
	r = control_ask(call, VMM_NET, VMM_LINK_UP, &fd, 1, &reply);
	fd_close(&fd);
	return r < 0 ? -1 : print_link(call, true);
}

static int set_net(struct control_call *call)
{
	const char *what = call->count > 1 ? call->operands[1] : "";
	bool up = strcmp(what, "up") == 0;
	struct vmm_message reply;

	if (strcmp(what, "attach") == 0)
		return attach_tap(call);
	if ((!up && strcmp(what, "down") != 0) || call->count > 2) {
		client_error_set(&call->error, "invalid", "that action is written 'net up|down|attach TAP'");
		return -1;
	}
	return control_ask(call, VMM_NET, up ? VMM_LINK_UP : VMM_LINK_DOWN, NULL, 0, &reply) < 0
		       ? -1
		       : print_link(call, up);
}

static const struct action {
	const char *name, *form;
	size_t least, most; /* operands after it */
	int (*run)(struct control_call *call);
} actions[] = {
	{"status", "status", 0, 0, show_status},
	{"pause", "pause", 0, 0, pause_vm},
	{"resume", "resume", 0, 0, resume_vm},
	{"kill", "kill", 0, 0, kill_vm},
	{"balloon", "balloon [SIZE]", 0, 1, move_balloon},
	{"net", "net up|down|attach TAP", 1, 2, set_net},
	{"save", "save DIR", 1, 1, control_save},
};

/* ---- refusals of the vmm ---- */

/* Type 0: any request. What is not here is told by the vmm's own words. */
static const struct {
	uint32_t type;
	int status;
	const char *code, *text;
	bool retryable;
} refusals[] = {
	{0, -EPROTO, "protocol", "this vmm does not know that request; use the host-ctl of its version",
		false},
	{0, -ESRCH, "no_vm", "the VM has ended", false},
	{VMM_PAUSE, -EALREADY, "busy", "a pause is under way already; ask for the status", true},
	{VMM_PAUSE, -ECONNRESET, "no_vm", "the VM ended before its CPUs stood", false},
	{VMM_PAUSE, -EBUSY, "busy", "too many requests wait already; try again later", true},
	{VMM_RESUME, -EBUSY, "busy", "a pause is under way; try again when the VM is paused", true},
	{VMM_BALLOON, -ENODEV, "invalid", "the VM has no balloon; start vmm with --balloon", false},
	{VMM_BALLOON, -EINVAL, "invalid", "that is more than the guest's memory; give less", false},
	{VMM_SAVE, -EBUSY, "busy", "a VM that runs is not saved; pause it first", false},
	{VMM_NET, -ENODEV, "invalid", "the VM has no network device; start vmm with --net none or a tap",
		false},
	{VMM_NET, -ENOTCONN, "invalid", "nothing is behind the network device; give it a tap: net attach TAP",
		false},
};

static int fail_refused(struct control_call *call, const struct vmm_message *reply, uint32_t type)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		if ((refusals[i].type && refusals[i].type != type) || refusals[i].status != reply->status)
			continue;
		client_error_set(
			&call->error, refusals[i].code, "%s: %s", call->client.path, refusals[i].text);
		call->error.retryable = refusals[i].retryable;
		return -1;
	}
	client_error_set(&call->error, "io", "%s: the vmm refuses: %s", call->client.path,
		reply->text[0] ? reply->text : strerror(-reply->status));
	return -1;
}

int control_ask(struct control_call *call, uint32_t type, uint64_t arg0, const int *fds, size_t count,
	struct vmm_message *reply)
{
	struct vmm_message request = {.type = type, .arg0 = arg0};

	if (vmm_client_ask(&call->client, &request, fds, count, reply, &call->error) < 0)
		return -1;
	return reply->status < 0 ? fail_refused(call, reply, type) : 0;
}

/* ---- the verb ---- */

static const struct action *find_action(const char *name)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (strcmp(actions[i].name, name) == 0)
			return &actions[i];
	return NULL;
}

/* Options may stand before, between and after the operands. 0, 1 (help), or CLI_FAILURE, said. */
static int parse(struct control_call *call, int argc, char **argv, const char **socket)
{
	enum { JSON, HELP };
	static const struct cli_option options[] = {
		[JSON] = {.name = "json"},
		[HELP] = {.name = "help", .letter = 'h'},
	};
	struct cli_parser parser;
	const char *value;
	int option;

	cli_parser_init(&parser, options, sizeof(options) / sizeof(options[0]), argc, argv);
	for (;;) {
		do
			option = cli_parser_next(&parser, &value);
		while (option >= 0);
		if (option == CLI_BAD)
			return cli_fail_usage(argv[0], parser.error);
		if (parser.next == argc)
			break;
		if (!*socket)
			*socket = argv[parser.next++];
		else if (call->count < CONTROL_OPERANDS_MAX)
			call->operands[call->count++] = argv[parser.next++];
		else
			return cli_fail_unexpected(argv[0], argv[parser.next]);
	}
	call->json = cli_parser_given(&parser, JSON);
	return cli_parser_given(&parser, HELP) ? 1 : 0;
}

static int run_action(struct control_call *call, const struct action *action, const char *socket)
{
	int r = vmm_client_connect(&call->client, socket, &call->error);

	if (r == 0)
		r = action->run(call);
	vmm_client_finish(&call->client);
	return r < 0 ? cli_fail_client(&call->error, call->json) : r;
}

int cmd_control(int argc, char **argv)
{
	struct control_call call = {.client = {.fd = -1}};
	const struct action *action;
	const char *socket = NULL;
	int r = parse(&call, argc, argv, &socket);

	if (r == 1) {
		fputs(control_usage, stdout);
		return cli_finish_output();
	}
	if (r != 0)
		return r;
	if (call.count == 0)
		return cli_fail_usage(
			argv[0], socket ? "an action is missing" : "SOCKET and ACTION are missing");
	action = find_action(call.operands[0]);
	if (!action)
		return cli_fail("%s: unknown action '%s' (see `host-ctl help %s`)", argv[0], call.operands[0],
			argv[0]);
	if (call.count - 1 < action->least || call.count - 1 > action->most)
		return cli_fail("%s: that action is written '%s' (see `host-ctl help %s`)", argv[0],
			action->form, argv[0]);
	return run_action(&call, action, socket);
}
