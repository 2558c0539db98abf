/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of a whole daemon, with a vmm that only plays: what it counts, and what it does without room. */
#include "hostctl_fixture.h"

#include <inttypes.h>

enum { OPTION_SIZE = 32 };

/* MemAvailable, in MiB. */
static uint64_t available_mib(void)
{
	char line[128];
	uint64_t kib = 0;
	FILE *file = fopen("/proc/meminfo", "re");

	assert_non_null(file);
	while (fgets(line, sizeof line, file) && !kib)
		if (!strncmp(line, "MemAvailable:", 13))
			kib = strtoull(line + 13, NULL, 10);
	fclose(file);
	assert_true(kib > 0);
	return kib >> 10;
}

static void await_held(const struct daemon *daemon, bool wanted)
{
	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		struct answer answer;
		bool held;

		call(daemon, "GET", "/v1/pool", NULL, &answer);
		held = json_is_string(json_object_get(answer.json, "held"));
		answer_finish(&answer);
		if (held == wanted)
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("held did not become %d", wanted);
}

static void test_hits_misses_and_times_are_counted(void **state)
{
	static char *const options[] = {"--pool", "0", "--rehearsals", "0", NULL};
	struct daemon daemon;
	struct answer answer;
	const json_t *times;

	(void)state;
	daemon_start(&daemon, "boot", options);
	succeed(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\",\"a\"]}");
	call(&daemon, "PUT", "/v1/pool", "{\"template\":\"base\",\"target\":1}", &answer);
	answer_finish(&answer);
	await_pool(&daemon, "warm", 1);
	succeed(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\",\"a\"]}");
	/* One without output has no first byte. */
	await_pool(&daemon, "warm", 1);
	run_command(&daemon, "{\"argv\":[\"exit\",\"0\"]}", &answer);
	answer_finish(&answer);
	await_pool(&daemon, "warm", 1);
	assert_int_equal(metric(&daemon, "tinderbox_pool_hits_total{template=\"base\"} "), 2);
	assert_int_equal(metric(&daemon, "tinderbox_pool_misses_total{template=\"base\"} "), 1);
	assert_int_equal(metric(&daemon, "tinderbox_pool_waited_total{template=\"base\"} "), 1);
	assert_int_equal(metric(&daemon, "tinderbox_claim_seconds_count{template=\"base\"} "), 3);
	assert_int_equal(metric(&daemon, "tinderbox_run_first_byte_seconds_count{template=\"base\"} "), 2);
	assert_int_equal(
		metric(&daemon, "tinderbox_refill_seconds_count{template=\"base\",kind=\"boot\"} "), 4);
	assert_int_equal(
		metric(&daemon, "tinderbox_refill_seconds_count{template=\"base\",kind=\"clone\"} "), 0);
	call(&daemon, "GET", "/v1/pool", NULL, &answer);
	times = json_object_get(answer.json, "times");
	assert_int_equal(json_integer_value(json_object_get(json_object_get(times, "claim"), "count")), 3);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(times, "first_byte"), "count")), 2);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(times, "refill_boot"), "count")), 4);
	assert_true(json_integer_value(json_object_get(json_object_get(times, "claim"), "p99_us")) > 0);
	assert_string_equal(member(&answer, "claims_missed"), "1");
	assert_string_equal(member(&answer, "held"), "null");
	answer_finish(&answer);
	daemon_stop(&daemon);
}

/* Room for those who wait, and none for a refill. */
static void test_without_room_refills_stop_and_misses_are_served(void **state)
{
	char reserve[OPTION_SIZE];
	char *const options[] = {"--pool", "2", "--reserve", reserve, NULL};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	snprintf(reserve, sizeof reserve, "%" PRIu64 "M", available_mib() * 3 / 2);
	daemon_folder(&daemon);
	daemon_launch(&daemon, "boot", options, false);
	await_held(&daemon, true);
	call(&daemon, "GET", "/v1/healthz", NULL, &answer);
	assert_int_equal(answer.status, 503);
	assert_int_equal(strncmp(json_string_value(json_object_get(answer.json, "reason")),
				 "no room for one more VM: ", 25),
		0);
	answer_finish(&answer);
	for (int i = 0; i < 3; i++) {
		run_command(&daemon, "{\"argv\":[\"echo\",\"a\"]}", &answer);
		assert_int_equal(answer.status, 200);
		assert_string_equal(member(&answer, "warm"), "false");
		answer_finish(&answer);
	}
	assert_int_equal(pool_number(&daemon, "warm"), 0);
	assert_int_equal(metric(&daemon, "tinderbox_vm_starts_total{template=\"base\"} "), 3);
	/* A target that is met is not held. */
	call(&daemon, "PUT", "/v1/pool", "{\"template\":\"base\",\"target\":0}", &answer);
	answer_finish(&answer);
	await_held(&daemon, false);
	daemon_stop(&daemon);
}

static void test_without_any_room_a_miss_is_refused_with_the_figures(void **state)
{
	static char *const options[] = {"--pool", "1", "--reserve", "511G", NULL};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	if (available_mib() > 256 * 1024)
		skip();
	daemon_folder(&daemon);
	daemon_launch(&daemon, "boot", options, false);
	await_held(&daemon, true);
	run_command(&daemon, "{\"argv\":[\"echo\",\"a\"]}", &answer);
	assert_int_equal(answer.status, 429);
	assert_string_equal(error_member(&answer, "code"), "exhausted");
	assert_non_null(
		strstr(error_member(&answer, "message"), "MiB of memory can be had, 0 MiB of it are"));
	assert_non_null(strstr(error_member(&answer, "message"), "261632 MiB kept free: let runs end"));
	answer_finish(&answer);
	assert_int_equal(metric(&daemon, "tinderbox_pool_misses_total{template=\"base\"} "), 1);
	assert_int_equal(metric(&daemon, "tinderbox_pool_waited_total{template=\"base\"} "), 0);
	assert_int_equal(metric(&daemon, "tinderbox_vm_starts_total{template=\"base\"} "), 0);
	daemon_stop(&daemon);
}

/* All places are taken by warm VMs: who waits gets one of them, and a template that is new gets its place. */
static void test_warm_vms_make_way(void **state)
{
	static char *const options[] = {"--pool", "2", "--max-vms", "2", NULL};
	struct daemon daemon;

	(void)state;
	start_with_templates_and(&daemon, "boot", options);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	for (int i = 0; i < 3; i++) {
		await_vms(&daemon, "base", 2);
		succeed(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\",\"a\"],\"template\":\"tools\"}");
	}
	await_vms(&daemon, "base", 2);
	assert_int_equal(metric(&daemon, "tinderbox_vm_warm_lost_total{template=\"base\"} "), 0);
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"base\",\"target\":0}");
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":2}");
	await_vms(&daemon, "tools", 2);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"run\":[\"echo again\"]}");
	/* The one of that name now counts only its own. */
	await_vms(&daemon, "tools", 2);
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":0}");
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hits_misses_and_times_are_counted),
		cmocka_unit_test(test_without_room_refills_stop_and_misses_are_served),
		cmocka_unit_test(test_warm_vms_make_way),
		cmocka_unit_test(test_without_any_room_a_miss_is_refused_with_the_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
