/* SPDX-License-Identifier: Apache-2.0 */
/* Commands on a terminal. */
#include "guest_fixture.h"

static void start_on_tty(struct fixture *f, struct client *client, const char *script, uint32_t flags)
{
	static char payload[AGENT_FRAME_MAX];
	struct command command = {
		.argv = SHELL(script), .env = ARGV("TERM=dumb"), .flags = flags | AGENT_NEW_TTY};
	size_t length = make_new(&command, payload);
	struct agent_new *new = (struct agent_new *)payload;

	new->rows = 24;
	new->cols = 80;
	client_open(f, client);
	client_send(f, client, AGENT_NEW, payload, length);
}

/* Reads output until it ends in this. */
static void wait_for_text(struct fixture *f, struct client *client, struct outcome *outcome, const char *text)
{
	struct frame frame;

	while (outcome->out_length < strlen(text) ||
		strcmp(outcome->out + outcome->out_length - strlen(text), text) != 0) {
		if (client_next(f, client, &frame) != 1)
			fail_msg("the stream ended after \"%s\"", outcome->out);
		if (frame.type == AGENT_STDOUT)
			note_output(outcome->out, &outcome->out_length, &outcome->out_total, &frame);
		else if (frame.type == AGENT_EXIT)
			fail_msg("it ended after \"%s\"", outcome->out);
	}
}

static void has_a_terminal(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = {0};
	struct client client;

	give_identity(f);
	start_on_tty(f, &client,
		"test -t 0 && test -t 1 && test -t 2 && stty size && echo err >&2 && : </dev/tty", 0);
	client_finish(f, &client, &outcome);
	assert_string_equal(outcome.out, "24 80\r\nerr\r\n");
	assert_int_equal(outcome.err_total, 0);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	assert_int_equal(outcome.exit.code, 0);
}

static void takes_what_is_typed(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = {0};
	struct client client;

	give_identity(f);
	start_on_tty(f, &client, "stty -echo; echo ready; cat; echo end", AGENT_NEW_STDIN);
	wait_for_text(f, &client, &outcome, "ready\r\n");
	client_send(f, &client, AGENT_STDIN, "line\n", 5);
	wait_for_text(f, &client, &outcome, "line\r\n");
	client_send(f, &client, AGENT_STDIN_EOF, NULL, 0);
	client_finish(f, &client, &outcome);
	assert_string_equal(outcome.out, "ready\r\nline\r\nend\r\n");
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
}

static void control_c_interrupts(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = {0};
	struct client client;

	give_identity(f);
	start_on_tty(f, &client,
		"trap 'echo caught; exit 5' INT; stty -echo; echo ready; while :; do sleep 1; done",
		AGENT_NEW_STDIN);
	wait_for_text(f, &client, &outcome, "ready\r\n");
	client_send(f, &client, AGENT_STDIN, "\003", 1);
	client_finish(f, &client, &outcome);
	assert_string_equal(outcome.out, "ready\r\ncaught\r\n");
	assert_int_equal(outcome.exit.code, 5);
}

static void type(struct fixture *f, struct client *client, const char *text)
{
	client_send(f, client, AGENT_STDIN, text, strlen(text));
}

/* The shell's jobs are groups of their own, of which one has the terminal: keys reach that one, and not the
 * shell. */
static void a_shell_controls_its_jobs(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = {0};
	struct client client;

	give_identity(f);
	start_on_tty(f, &client, "stty -echo; exec env PS1= sh -i", AGENT_NEW_STDIN);
	type(f, &client, "echo ready\n");
	wait_for_text(f, &client, &outcome, "ready\r\n");
	type(f, &client, "sh -c 'echo begun; exec sleep 1000'\n");
	wait_for_text(f, &client, &outcome, "begun\r\n");
	type(f, &client, "\003");
	type(f, &client, "echo \"<$?>\"\n");
	wait_for_text(f, &client, &outcome, "<130>\r\n");
	/* It starts nothing: one that is stopped between vfork and exec would hold up the shell that waits
	 * for it. Nor does it read what is typed for the shell. */
	type(f, &client, "sh -c 'trap \"echo resumed\" CONT; echo stands; while :; do :; done'\n");
	wait_for_text(f, &client, &outcome, "stands\r\n");
	type(f, &client, "\032");
	type(f, &client, "echo \"<$?>\"\n");
	wait_for_text(f, &client, &outcome, "<148>\r\n");
	assert_non_null(strstr(outcome.out, "Stopped"));
	type(f, &client, "fg\n");
	wait_for_text(f, &client, &outcome, "resumed\r\n");
	type(f, &client, "\003");
	type(f, &client, "echo \"<$?>\"\n");
	wait_for_text(f, &client, &outcome, "<130>\r\n");
	type(f, &client, "exit 7\n");
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	assert_int_equal(outcome.exit.code, 7);
}

static void is_resized(void **state)
{
	struct fixture *f = *state;
	struct agent_resize resize = {.rows = 50, .cols = 132};
	struct outcome outcome = {0};
	struct client client;

	give_identity(f);
	start_on_tty(f, &client, "trap 'stty size; exit' WINCH; stty -echo; echo ready; while :; do :; done",
		AGENT_NEW_STDIN);
	wait_for_text(f, &client, &outcome, "ready\r\n");
	client_send(f, &client, AGENT_RESIZE, &resize, sizeof(resize));
	wait_for_text(f, &client, &outcome, "50 132\r\n");
	client_finish(f, &client, &outcome);
}

/* What was written just before the end is not lost, and who still has the terminal does not hold it back. */
static void its_last_words_are_heard(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = {0};
	struct client client;
	uint64_t begin = test_now_ms();

	give_identity(f);
	start_on_tty(f, &client,
		"trap '' HUP; stty -opost; setsid sleep 1000 & i=0; while [ $i -lt 500 ]; do echo 1234567; "
		"i=$((i+1)); "
		"done; exit 6",
		0);
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.out_total, 4000);
	assert_int_equal(outcome.exit.code, 6);
	assert_in_range(test_now_ms() - begin, 0, WAIT_MS / 2);
}

static void much_output_is_whole(void **state)
{
	struct fixture *f = *state;
	struct outcome outcome = {0};
	struct client client;

	give_identity(f);
	start_on_tty(f, &client, "stty -opost; exec head -c 1000000 /dev/zero", 0);
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.out_total, 1000000);
	assert_int_equal(outcome.exit.code, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(has_a_terminal),
		CASE(takes_what_is_typed),
		CASE(control_c_interrupts),
		CASE(a_shell_controls_its_jobs),
		CASE(is_resized),
		CASE(its_last_words_are_heard),
		CASE(much_output_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
