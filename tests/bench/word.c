/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program whose first byte is waited for: static, and short, so that what is measured is how it came to
 * run. With an argument it stays for a second, for who counts to its first byte alone.
 */
#include <unistd.h>

int main(int argc, char **argv)
{
	static const char word[] = "here\n";

	(void)argv;
	if (write(STDOUT_FILENO, word, sizeof(word) - 1) != (ssize_t)sizeof(word) - 1)
		return 1;
	if (argc > 1)
		sleep(1);
	return 0;
}
