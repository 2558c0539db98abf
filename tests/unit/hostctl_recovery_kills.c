/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills at random points under load: of the daemon, of it and a VM, of a VM and later of it, of everything.
 * After each: what a client was told is there, commands that ran are followed on where their client was, byte
 * by byte, and of processes, cgroups, sockets and mounts there are as many as sandboxes and the pool have.
 * TINDERBOX_KILLS says how many.
 */
#include "tests/unit/hostctl_recovery_fixture.h"

enum { KILLS = 25, GUESTS = 3, LOAD = 8, LINE_MAX_BYTES = 16, TOLD_MAX = LOAD };

/* A sandbox with a command that counts, and a client that follows it. */
struct guest {
	char id[32], vm[32];
	struct command command;
	uint64_t at;		   /* bytes that the client has read */
	unsigned long number;	   /* of the line that is read */
	char line[LINE_MAX_BYTES]; /* the part of it that came */
	size_t length;
	bool killed;
};

/* What clients were told before the kill. */
struct told {
	char sandboxes[TOLD_MAX][32];
	unsigned int count;
	struct command command; /* created in the first guest; empty: none was told */
};

enum victim { DAEMON, DAEMON_AND_VM, VM_FIRST, EVERYTHING, VICTIMS };

static void take_byte(struct guest *guest, char byte)
{
	char wanted[LINE_MAX_BYTES];

	assert_true(guest->length < sizeof guest->line - 1);
	guest->line[guest->length++] = byte;
	guest->at++;
	if (byte != '\n')
		return;
	guest->line[guest->length] = '\0';
	snprintf(wanted, sizeof wanted, "%lu\n", guest->number);
	assert_string_equal(guest->line, wanted);
	guest->number++;
	guest->length = 0;
}

/* The frame that came is output, and goes on where the client is. */
static void take_frame(struct guest *guest, const struct stream *stream)
{
	struct agent_output output;

	assert_int_equal(stream->frame.type, AGENT_STDOUT);
	memcpy(&output, stream->frame.payload, sizeof output);
	assert_true(output.offset == guest->at);
	for (size_t i = sizeof output; i < stream->frame.length; i++)
		take_byte(guest, (char)stream->frame.payload[i]);
}

static void reattach(const struct daemon *daemon, struct guest *guest, struct stream *stream)
{
	char more[64];

	renew_token(daemon, guest->id, &guest->command);
	snprintf(more, sizeof more, ",\"stdout_offset\":%llu", (unsigned long long)guest->at);
	assert_int_equal(attach(daemon, guest->id, &guest->command, more, stream), 101);
	expect(stream, AGENT_STARTED);
}

/* Reads on until there is more. */
static void follow(const struct daemon *daemon, struct guest *guest)
{
	const uint64_t before = guest->at;
	struct stream stream;

	reattach(daemon, guest, &stream);
	while (guest->at == before) {
		assert_true(next_frame(&stream));
		take_frame(guest, &stream);
	}
	close_stream(&stream);
}

static void make_guest(const struct daemon *daemon, struct guest *guest)
{
	*guest = (struct guest){.at = 0};
	create_sandbox(daemon, "{}", guest->id);
	vm_of(daemon, guest->id, guest->vm);
	create_command(daemon, guest->id, "{\"argv\":[\"count\",\"10000000\",\"20\"]}", &guest->command);
	follow(daemon, guest);
}

/* It is told to end, and says so after its last line. */
static void finish_guest(const struct daemon *daemon, struct guest *guest)
{
	const struct agent_signal interrupt = {.signal = SIGINT};
	struct stream stream;

	reattach(daemon, guest, &stream);
	send_frame(&stream, AGENT_SIGNAL, &interrupt, sizeof interrupt);
	while (next_frame(&stream) && stream.frame.type != AGENT_EXIT)
		take_frame(guest, &stream);
	assert_int_equal(stream.frame.type, AGENT_EXIT);
	assert_int_equal(guest->length, 0);
	expect_end(&stream);
	delete_sandbox(daemon, guest->id);
}

/* --- the load --- */

static void ask(const struct daemon *daemon, const struct guest *guest, int fds[LOAD])
{
	char path[SANDBOX_PATH_MAX];

	for (int i = 0; i < LOAD; i++) {
		fds[i] = client_open(daemon);
		if (i < LOAD / 2) {
			client_request(fds[i], "POST", "/v1/sandboxes", "", "{}");
		} else {
			snprintf(path, sizeof path, "/v1/sandboxes/%s/%s", guest->id,
				i == LOAD - 1 ? "commands" : "run");
			client_request(fds[i], "POST", path, "", "{\"argv\":[\"exit\",\"3\"]}");
		}
	}
}

static void hear(int fds[LOAD], struct told *told)
{
	struct answer answer;
	const char *id;

	*told = (struct told){.count = 0};
	for (int i = 0; i < LOAD; i++) {
		client_answer(fds[i], &answer);
		id = answer.status == 201 ? json_string_value(json_object_get(answer.json, "id")) : NULL;
		if (id && i < LOAD / 2)
			snprintf(told->sandboxes[told->count++], sizeof told->sandboxes[0], "%s", id);
		else if (id)
			snprintf(told->command.id, sizeof told->command.id, "%s", id);
		answer_finish(&answer);
		close(fds[i]);
	}
}

/* --- the kills --- */

/* Those of all VMs, at most `room`: how many. */
static size_t find_processes(const struct daemon *daemon, pid_t *pids, size_t room)
{
	DIR *groups = opendir(daemon->cgroups);
	struct dirent *entry;
	size_t count = 0;
	char path[512];

	while (groups && (entry = readdir(groups))) {
		FILE *file;
		int pid;

		if (strncmp(entry->d_name, "vm-", 3) != 0)
			continue;
		snprintf(path, sizeof path, "%s/%s/cgroup.procs", daemon->cgroups, entry->d_name);
		file = fopen(path, "re");
		while (file && count < room && fscanf(file, "%d", &pid) == 1)
			pids[count++] = pid;
		if (file)
			fclose(file);
	}
	if (groups)
		closedir(groups);
	return count;
}

/* Of a guest that is about to lose it. */
static pid_t doom(const struct daemon *daemon, struct guest *guest)
{
	long pid = pid_of_vm(daemon, guest->vm);

	assert_true(pid > 0);
	guest->killed = true;
	return (pid_t)pid;
}

static void kill_all(struct daemon *daemon, struct guest *guests)
{
	pid_t pids[64];
	size_t count;

	kill_daemon(daemon);
	count = find_processes(daemon, pids, sizeof pids / sizeof *pids);
	for (size_t i = 0; i < count; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < GUESTS; i++)
		guests[i].killed = true;
}

/* Kills in the midst of the load. */
static void strike(struct daemon *daemon, enum victim victim, struct guest *guests, struct told *told)
{
	pid_t vm = victim == VM_FIRST || victim == DAEMON_AND_VM ? doom(daemon, &guests[1]) : 0;
	struct pollfd wait = {.events = POLLIN};
	int fds[LOAD];

	if (victim == VM_FIRST)
		kill(vm, SIGKILL);
	ask(daemon, &guests[0], fds);
	sleep_ms(rand() % 150);
	/* Now and then somebody was told something before. */
	wait.fd = fds[0];
	if (rand() % 3 == 0)
		poll(&wait, 1, WAIT_MS);
	if (victim == DAEMON_AND_VM)
		kill(vm, SIGKILL);
	if (victim == EVERYTHING)
		kill_all(daemon, guests);
	else
		kill_daemon(daemon);
	hear(fds, told);
}

/* --- what is there afterwards --- */

static bool is_settled(const struct daemon *daemon)
{
	struct answer answer;
	bool settled;

	call(daemon, "GET", "/v1/sandboxes?state=resuming", NULL, &answer);
	settled = json_array_size(json_object_get(answer.json, "sandboxes")) == 0;
	answer_finish(&answer);
	return settled;
}

/* How many sandboxes have a VM. Each is ready, or has failed. */
static int count_living(const struct daemon *daemon)
{
	struct answer answer;
	const json_t *one;
	int living = 0;
	size_t i;

	call(daemon, "GET", "/v1/sandboxes", NULL, &answer);
	assert_int_equal(answer.status, 200);
	json_array_foreach(json_object_get(answer.json, "sandboxes"), i, one)
	{
		const char *now = json_string_value(json_object_get(one, "state"));

		assert_true(!strcmp(now, "ready") || !strcmp(now, "failed"));
		living += !strcmp(now, "ready");
	}
	answer_finish(&answer);
	return living;
}

static int count_mounts(const struct daemon *daemon)
{
	FILE *file = fopen("/proc/self/mounts", "re");
	char line[1024];
	int count = 0;

	assert_non_null(file);
	while (fgets(line, sizeof line, file))
		count += strstr(line, daemon->folder) || strstr(line, daemon->state);
	fclose(file);
	return count;
}

static void expect_counts(const struct daemon *daemon)
{
	const int vms = count_living(daemon) + 2;
	pid_t pids[64];
	char sockets[96];

	await_pool(daemon, "warm", 2);
	assert_int_equal(count_entries(daemon->cgroups, "vm-"), vms);
	assert_int_equal(find_processes(daemon, pids, sizeof pids / sizeof *pids), vms);
	snprintf(sockets, sizeof sockets, "%s/vm", daemon->folder);
	assert_int_equal(count_entries(sockets, "vm-"), vms);
	assert_int_equal(count_mounts(daemon), 0);
	/* Besides itself and its parent: the journal and its log. */
	assert_int_equal(count_entries(daemon->state, ""), 4);
}

static void expect_told(
	const struct daemon *daemon, const struct told *told, const struct guest *first, bool all)
{
	struct answer answer;
	char rest[SANDBOX_PATH_MAX];

	for (unsigned int i = 0; i < told->count; i++)
		assert_string_equal(
			field(daemon, told->sandboxes[i], "state"), all ? "\"failed\"" : "\"ready\"");
	if (!told->command.id[0])
		return;
	snprintf(rest, sizeof rest, "/commands/%s", told->command.id);
	call_sandbox(daemon, "GET", first->id, rest, NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "state"), "\"created\"");
	answer_finish(&answer);
}

/* What it ran has ended without a result. */
static void expect_lost(const struct daemon *daemon, const struct guest *guest)
{
	struct answer answer;
	char rest[SANDBOX_PATH_MAX];

	assert_string_equal(field(daemon, guest->id, "state"), "\"failed\"");
	snprintf(rest, sizeof rest, "/commands/%s", guest->command.id);
	call_sandbox(daemon, "GET", guest->id, rest, NULL, &answer);
	assert_string_equal(json_string_value(json_object_get(json_object_get(answer.json, "error"), "code")),
		"guest_lost");
	answer_finish(&answer);
}

static bool is_guest(const struct guest *guests, const char *id)
{
	for (int i = 0; i < GUESTS; i++)
		if (!guests[i].killed && !strcmp(guests[i].id, id))
			return true;
	return false;
}

static void delete_others(const struct daemon *daemon, const struct guest *guests)
{
	struct answer answer;
	const json_t *one;
	size_t i;

	call(daemon, "GET", "/v1/sandboxes", NULL, &answer);
	json_array_foreach(json_object_get(answer.json, "sandboxes"), i, one)
	{
		const char *id = json_string_value(json_object_get(one, "id"));

		if (!is_guest(guests, id))
			delete_sandbox(daemon, id);
	}
	answer_finish(&answer);
}

static void test_kills_under_load(void **state)
{
	const char *wanted = getenv("TINDERBOX_KILLS");
	const int kills = wanted ? atoi(wanted) : KILLS;
	struct guest guests[GUESTS];
	struct daemon daemon;
	struct told told;
	unsigned int taken = 0, kept = 0;

	(void)state;
	srand(5);
	daemon_start(&daemon, "boot", pool_of_two);
	for (int i = 0; i < GUESTS; i++)
		make_guest(&daemon, &guests[i]);
	for (int i = 0; i < kills; i++) {
		/* Mostly the daemon alone. */
		enum victim victim = rand() % 4 ? DAEMON : (enum victim)(rand() % VICTIMS);

		strike(&daemon, victim, guests, &told);
		daemon_launch(&daemon, "boot", pool_of_two, false);
		while (!is_settled(&daemon))
			sleep_ms(POLL_MS);
		expect_told(&daemon, &told, &guests[0], victim == EVERYTHING);
		expect_counts(&daemon);
		taken += told.count;
		for (int j = 0; j < GUESTS; j++) {
			kept += !guests[j].killed;
			if (guests[j].killed)
				expect_lost(&daemon, &guests[j]);
			else
				follow(&daemon, &guests[j]);
		}
		delete_others(&daemon, guests);
		for (int j = 0; j < GUESTS; j++)
			if (guests[j].killed)
				make_guest(&daemon, &guests[j]);
	}
	print_message("%d kills: %u sandboxes were told, %u commands were followed on\n", kills, taken, kept);
	assert_true(taken > 0 && kept > 0);
	for (int i = 0; i < GUESTS; i++)
		finish_guest(&daemon, &guests[i]);
	assert_int_equal(count_living(&daemon), 0);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kills_under_load),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
