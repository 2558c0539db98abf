/* SPDX-License-Identifier: Apache-2.0 */
/* Claims that are refused and claim again at once, as a client can: they wait for the next time. */
#include "tests/support/unit.h"

#include "host-ctl/pool/pool.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLAIMS = 3, AGAIN_MAX = 100, QUEUE_MAX = 64 };

struct fixture {
	struct vm_config vm;
	struct vm_source source;
	struct room room;
	struct pool_slots slots;
	struct metrics_pool metrics;
	struct pool *pool;
	char meminfo[64];
};

/* One that does not give up. */
struct stubborn {
	struct pool_claim claim;
	struct fixture *f;
	int refusals;
};

static void claim_again(struct stubborn *stubborn)
{
	struct error error;

	assert_null(pool_claim_vm(stubborn->f->pool, &stubborn->claim, &error));
	assert_int_equal(error.kind, ERROR_NONE);
}

static void refused(struct pool_claim *claim, const struct error *error)
{
	struct stubborn *stubborn = (struct stubborn *)claim;

	assert_int_not_equal(error->kind, ERROR_NONE);
	if (++stubborn->refusals < AGAIN_MAX)
		claim_again(stubborn);
}

static void nothing(void *context)
{
	(void)context;
}

static void make_pool(struct fixture *f)
{
	const char text[] = "MemAvailable: 1024 kB\n";
	int fd;

	*f = (struct fixture){.meminfo = "/tmp/tinderbox-meminfo.XXXXXX",
		.slots = {.maximum = 4},
		.source = {.memory_bytes = 128 << 20},
		.room = {.groups = {-1, -1}, .reserve_bytes = ROOM_RESERVE_DEFAULT}};
	fd = mkstemp(f->meminfo);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
	close(fd);
	f->room.meminfo = f->meminfo;
	f->vm.loop = loop_create();
	assert_non_null(f->vm.loop);
	f->pool = pool_create(&(struct pool_config){.starts_max = 1,
				      .queue_max = QUEUE_MAX,
				      .slots = &f->slots,
				      .room = &f->room,
				      .vm = &f->vm,
				      .cold = &f->source},
		&f->metrics, nothing, nothing, f);
	assert_non_null(f->pool);
}

static void remove_pool(struct fixture *f)
{
	pool_destroy(f->pool);
	pool_slots_finish(&f->slots);
	loop_destroy(f->vm.loop);
	unlink(f->meminfo);
}

static void claim_all(struct fixture *f, struct stubborn claims[CLAIMS])
{
	for (int i = 0; i < CLAIMS; i++) {
		claims[i] = (struct stubborn){.claim = {.refused = refused}, .f = f};
		claim_again(&claims[i]);
	}
}

static void expect_refused_once_more(
	const struct fixture *f, const struct stubborn claims[CLAIMS], int refusals)
{
	struct metrics_gauges gauges;

	for (int i = 0; i < CLAIMS; i++)
		assert_int_equal(claims[i].refusals, refusals);
	pool_read_gauges(f->pool, &gauges);
	assert_int_equal(gauges.queued, CLAIMS);
}

static void test_all_are_refused_once(void **state)
{
	struct fixture f;
	struct stubborn claims[CLAIMS];
	struct error error;

	(void)state;
	make_pool(&f);
	claim_all(&f, claims);
	error_set(&error, ERROR_INTERNAL, "no template");
	for (int i = 1; i <= 2; i++) {
		pool_fail(f.pool, &error);
		expect_refused_once_more(&f, claims, i);
	}
	for (int i = 0; i < CLAIMS; i++)
		pool_cancel(f.pool, &claims[i].claim);
	remove_pool(&f);
}

static void test_without_room_each_is_refused_once_a_turn(void **state)
{
	struct fixture f;
	struct stubborn claims[CLAIMS];

	(void)state;
	make_pool(&f);
	claim_all(&f, claims);
	assert_int_equal(pool_start(f.pool), 0);
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(loop_turn(f.vm.loop, 2 * ROOM_RETRY_MS), 0);
		expect_refused_once_more(&f, claims, i);
	}
	for (int i = 0; i < CLAIMS; i++)
		pool_cancel(f.pool, &claims[i].claim);
	remove_pool(&f);
}

/* One that is refused may take another with it, as a client's end may. */
static struct stubborn *taken_along;

static void refused_with_another(struct pool_claim *claim, const struct error *error)
{
	struct stubborn *stubborn = (struct stubborn *)claim;

	(void)error;
	stubborn->refusals++;
	pool_cancel(stubborn->f->pool, &taken_along->claim);
}

static void test_one_that_leaves_meanwhile_is_not_told(void **state)
{
	struct fixture f;
	struct stubborn claims[CLAIMS];
	struct error error;

	(void)state;
	make_pool(&f);
	claim_all(&f, claims);
	taken_along = &claims[1];
	claims[0].claim.refused = refused_with_another;
	error_set(&error, ERROR_INTERNAL, "no template");
	pool_fail(f.pool, &error);
	assert_int_equal(claims[0].refusals, 1);
	assert_int_equal(claims[1].refusals, 0);
	assert_int_equal(claims[2].refusals, 1);
	pool_cancel(f.pool, &claims[2].claim);
	assert_false(pool_is_queued(f.pool));
	remove_pool(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_are_refused_once),
		cmocka_unit_test(test_without_room_each_is_refused_once_a_turn),
		cmocka_unit_test(test_one_that_leaves_meanwhile_is_not_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
