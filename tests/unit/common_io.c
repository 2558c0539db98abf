/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers from text, fd arguments, fds over sockets, log lines. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "common/log.h"
#include "common/parse.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void numbers_are_whole_and_bounded(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int result;
		uint64_t value;
	} cases[] = {
		{"0", 0, 0},
		{"18446744073709551615", 0, UINT64_MAX},
		{"18446744073709551616", -ERANGE, 0},
		{"99999999999999999999999", -ERANGE, 0},
		{"", -EINVAL, 0},
		{"-1", -EINVAL, 0},
		{"+1", -EINVAL, 0},
		{" 1", -EINVAL, 0},
		{"1 ", -EINVAL, 0},
		{"1.5", -EINVAL, 0},
		{"0x10", -EINVAL, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t value = 0;

		assert_int_equal(parse_u64(cases[i].text, 0, UINT64_MAX, &value), cases[i].result);
		assert_int_equal(value, cases[i].value);
	}
}

static void numbers_keep_to_their_range(void **state)
{
	(void)state;
	uint64_t value = 42;

	assert_int_equal(parse_u64("0", 1, 8, &value), -ERANGE);
	assert_int_equal(parse_u64("9", 1, 8, &value), -ERANGE);
	assert_int_equal(value, 42);
	assert_int_equal(parse_u64("8", 1, 8, &value), 0);
	assert_int_equal(value, 8);
}

static void sizes_take_one_unit(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int result;
		uint64_t value;
	} cases[] = {
		{"7", 0, 7},
		{"2K", 0, 2048},
		{"128M", 0, 128ULL << 20},
		{"3G", 0, 3ULL << 30},
		{"17179869184G", -ERANGE, 0},
		{"1T", 0, 1ULL << 40},
		{"16777216T", -ERANGE, 0},
		{"1P", -EINVAL, 0},
		{"1MB", -EINVAL, 0},
		{"M", -EINVAL, 0},
		{"1.5G", -EINVAL, 0},
		{"1m", -EINVAL, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t value = 0;

		assert_int_equal(parse_size(cases[i].text, 0, UINT64_MAX, &value), cases[i].result);
		assert_int_equal(value, cases[i].value);
	}
}

static void fd_arguments_are_checked(void **state)
{
	(void)state;
	char text[16];
	int fd = open("/dev/null", O_RDONLY);

	snprintf(text, sizeof(text), "fd:%d", fd);
	assert_int_equal(io_open_arg(text, O_RDONLY, 0), fd);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	fd_close(&fd);
	assert_int_equal(fd, -1);
	assert_int_equal(io_open_arg(text, O_RDONLY, 0), -EBADF);
	assert_int_equal(io_open_arg("fd:", O_RDONLY, 0), -EINVAL);
	assert_int_equal(io_open_arg("fd:1x", O_RDONLY, 0), -EINVAL);
	assert_int_equal(io_open_arg("fd:99999999999", O_RDONLY, 0), -EINVAL);
	assert_int_equal(io_open_arg("/nonexistent/file", O_RDONLY, 0), -ENOENT);
}

static int open_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void fds_cross_a_socket_and_none_is_left_over(void **state)
{
	(void)state;
	int before = open_fds(), pair[2], sent[3] = {0, 1, 2}, got[3];
	size_t count = 3;
	char byte;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(io_send_fds(pair[0], "x", 1, sent, 3), 0);
	assert_int_equal(io_receive_fds(pair[1], &byte, 1, got, &count), 1);
	assert_int_equal(count, 3);
	for (int i = 0; i < 3; i++) {
		assert_true(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
		fd_close(&got[i]);
	}

	/* No room for the third: all are refused and closed. */
	assert_int_equal(io_send_fds(pair[0], "x", 1, sent, 3), 0);
	count = 2;
	assert_int_equal(io_receive_fds(pair[1], &byte, 1, got, &count), -EMSGSIZE);
	assert_int_equal(count, 0);

	/* A message longer than the buffer is refused, not cut. */
	assert_int_equal(io_send_fds(pair[0], "xyz", 3, sent, 1), 0);
	count = 1;
	assert_int_equal(io_receive_fds(pair[1], &byte, 1, got, &count), -EMSGSIZE);

	/* An empty one is taken for the end: its fds are closed too. */
	assert_int_equal(io_send_fds(pair[0], "", 0, sent, 3), 0);
	count = 3;
	assert_int_equal(io_receive_fds(pair[1], &byte, 1, got, &count), 0);
	assert_int_equal(count, 0);

	assert_int_equal(io_send_fds(pair[0], "x", 1, sent, IO_FDS_MAX + 1), -EINVAL);
	fd_close(&pair[1]);
	assert_int_equal(io_send_fds(pair[0], "x", 1, NULL, 0), -EPIPE);
	fd_close(&pair[0]);
	assert_int_equal(open_fds(), before);
}

static void log_lines_are_whole_and_cut_at_their_limit(void **state)
{
	(void)state;
	char line[2 * LOG_LINE_MAX], long_text[2 * LOG_LINE_MAX];
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	memset(long_text, 'x', sizeof(long_text));
	long_text[sizeof(long_text) - 1] = '\0';
	log_init("test", LOG_LEVEL_WARN);
	log_set_fd(fds[1]);
	errno = ENOENT;
	log_error("disk %d: %s", 1, "missing");
	assert_int_equal(errno, ENOENT);
	log_info("not shown");
	assert_int_equal(read(fds[0], line, sizeof(line)), 29);
	assert_memory_equal(line, "test: error: disk 1: missing\n", 29);
	log_warn("%s", long_text);
	assert_int_equal(read(fds[0], line, sizeof(line)), LOG_LINE_MAX);
	assert_int_equal(line[LOG_LINE_MAX - 1], '\n');
	log_set_fd(STDERR_FILENO);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

static void whole_reads_stop_at_the_end_of_the_file(void **state)
{
	(void)state;
	int fds[2];
	char data[8];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(io_write_all(fds[1], "abc", 3), 0);
	assert_int_equal(io_write_all(fds[1], "de", 2), 0);
	fd_close(&fds[1]);
	assert_int_equal(io_read_full(fds[0], data, sizeof(data)), 5);
	assert_memory_equal(data, "abcde", 5);
	assert_int_equal(io_pread_full(fds[0], data, 1, -1), -EINVAL);
	fd_close(&fds[0]);
	assert_int_equal(io_read_full(-1, data, 1), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_whole_and_bounded),
		cmocka_unit_test(numbers_keep_to_their_range),
		cmocka_unit_test(sizes_take_one_unit),
		cmocka_unit_test(fd_arguments_are_checked),
		cmocka_unit_test(fds_cross_a_socket_and_none_is_left_over),
		cmocka_unit_test(log_lines_are_whole_and_cut_at_their_limit),
		cmocka_unit_test(whole_reads_stop_at_the_end_of_the_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
