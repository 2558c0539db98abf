/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets by name: who may take a path, and who is refused. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "common/unix_socket.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct folder {
	char path[64], socket[80];
};

static int set_up(void **state)
{
	struct folder *folder = calloc(1, sizeof(*folder));

	if (!folder)
		return -1;
	strcpy(folder->path, "/tmp/unix-socket-XXXXXX");
	if (!mkdtemp(folder->path))
		return -1;
	snprintf(folder->socket, sizeof(folder->socket), "%s/s", folder->path);
	*state = folder;
	return 0;
}

static int tear_down(void **state)
{
	struct folder *folder = *state;

	unlink(folder->socket);
	rmdir(folder->path);
	free(folder);
	return 0;
}

static void a_free_path_is_bound_with_its_mode(void **state)
{
	struct folder *folder = *state;
	struct stat status;
	int fd = unix_listen(folder->socket, SOCK_STREAM, 0600, 1);
	int peer;

	assert_true(fd >= 0);
	assert_int_equal(stat(folder->socket, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	peer = unix_connect(folder->socket, SOCK_STREAM);
	assert_true(peer >= 0);
	assert_int_equal(fcntl(peer, F_GETFD), FD_CLOEXEC);
	fd_close(&peer);
	fd_close(&fd);
}

static void a_dead_socket_is_replaced(void **state)
{
	struct folder *folder = *state;
	int fd = unix_listen(folder->socket, SOCK_SEQPACKET, 0600, 1);

	fd_close(&fd); /* the file stays */
	assert_int_equal(unix_connect(folder->socket, SOCK_SEQPACKET), -ECONNREFUSED);
	fd = unix_listen(folder->socket, SOCK_SEQPACKET, 0600, 1);
	assert_true(fd >= 0);
	fd_close(&fd);
}

static void a_live_socket_is_refused(void **state)
{
	struct folder *folder = *state;
	int fd = unix_listen(folder->socket, SOCK_STREAM, 0600, 1);

	assert_int_equal(unix_listen(folder->socket, SOCK_STREAM, 0600, 1), -EADDRINUSE);
	assert_int_equal(unix_listen(folder->socket, SOCK_SEQPACKET, 0600, 1), -EADDRINUSE);
	assert_int_equal(unix_connect(folder->socket, SOCK_SEQPACKET), -EPROTOTYPE);
	assert_int_equal(access(folder->socket, F_OK), 0);
	fd_close(&fd);
}

static void a_socket_with_a_full_backlog_is_live(void **state)
{
	struct folder *folder = *state;
	int fd = unix_listen(folder->socket, SOCK_STREAM, 0600, 0);
	int first = unix_connect(folder->socket, SOCK_STREAM);

	assert_true(first >= 0);
	assert_int_equal(unix_connect(folder->socket, SOCK_STREAM), -EAGAIN);
	assert_int_equal(unix_listen(folder->socket, SOCK_STREAM, 0600, 0), -EADDRINUSE);
	fd_close(&first);
	fd_close(&fd);
}

static void a_file_is_never_replaced(void **state)
{
	struct folder *folder = *state;
	int file = open(folder->socket, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(file >= 0);
	assert_int_equal(unix_listen(folder->socket, SOCK_STREAM, 0600, 1), -EEXIST);
	assert_int_equal(access(folder->socket, F_OK), 0);
	fd_close(&file);
}

static void paths_have_bounds(void **state)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

	(void)state;
	memset(path, 'a', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(unix_listen(path, SOCK_STREAM, 0600, 1), -ENAMETOOLONG);
	assert_int_equal(unix_connect(path, SOCK_STREAM), -ENAMETOOLONG);
	assert_int_equal(unix_listen("", SOCK_STREAM, 0600, 1), -EINVAL);
	assert_int_equal(unix_connect("/no/such/folder/s", SOCK_STREAM), -ENOENT);
	assert_int_equal(unix_listen("/no/such/folder/s", SOCK_STREAM, 0600, 1), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_free_path_is_bound_with_its_mode, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_dead_socket_is_replaced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_live_socket_is_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_socket_with_a_full_backlog_is_live, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_is_never_replaced, set_up, tear_down),
		cmocka_unit_test(paths_have_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
