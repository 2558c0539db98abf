/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops the guest's agent, for as long as it lives itself: PID 1 ignores SIGSTOP, but not who traces it.
 * Exits with 1 where that does not work.
 */
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	int status;

	if (ptrace(PTRACE_SEIZE, 1, NULL, NULL) < 0 || ptrace(PTRACE_INTERRUPT, 1, NULL, NULL) < 0 ||
		waitpid(1, &status, __WALL) != 1 || !WIFSTOPPED(status))
		return EXIT_FAILURE;
	for (;;)
		pause();
}
