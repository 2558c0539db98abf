/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/bench/bench.h"
#include "host-ctl/bench/warm.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

int bench_run(struct bench_call *call)
{
	struct warm warm = {
		.socket = call->socket,
		.template = call->template,
		.argv = call->argv,
		.here = call->here ? call->here : call->argv[0],
		.mark = -1,
	};
	uint64_t ns;

	if (access(warm.here, X_OK) < 0)
		return bench_fail(call,
			"cannot run %s on this host: %s; name a program that is the same file here and in "
			"the guest, or say with "
			"--here where it is",
			warm.here, strerror(errno));
	snprintf(call->series.names[0], SERIES_NAME_MAX, "a warm VM: request to first byte");
	snprintf(call->series.names[1], SERIES_NAME_MAX, "posix_spawn of the same program to first byte");
	/* Once unmeasured: both files are in memory then. */
	for (size_t i = 0; i <= call->rounds; i++) {
		if (warm_await_pool(&warm, NULL, NULL) < 0 || warm_time_spawn(&warm, &ns) < 0)
			return bench_fail(call, "%s", warm.error);
		if (i > 0)
			series_add(&call->series, 1, ns);
		if (warm_time_request(&warm, &ns) < 0)
			return bench_fail(call, "%s", warm.error);
		if (i > 0)
			series_add(&call->series, 0, ns);
	}
	return 0;
}
