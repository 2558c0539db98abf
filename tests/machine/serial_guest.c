/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest of tests/machine/serial: PID 1 of a Linux with a serial line, and nothing else. Writes to
 * /dev/console and to /dev/ttyS0, reads a line there and repeats it, then reboots. What fails it says in the
 * kernel's log, which comes by the same line but needs no interrupt. With "polled" on the kernel's command
 * line it takes the interrupt away from the port first.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/serial.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <termios.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, LINE_MAX_READ = 256 };

static void complain(const char *what)
{
	char line[128];
	int length = snprintf(line, sizeof(line), "<3>guest: %s: %s\n", what, strerror(errno));
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);

	(void)!write(fd, line, (size_t)length);
	close(fd);
}

static void copy_file(const char *path)
{
	char text[TEXT_MAX];
	int fd = open(path, O_RDONLY | O_CLOEXEC), console = open("/dev/console", O_WRONLY | O_CLOEXEC);
	ssize_t n;

	while ((n = read(fd, text, sizeof(text))) > 0)
		(void)!write(console, text, (size_t)n);
	close(console);
	close(fd);
}

/* Without an interrupt Linux asks the port now and then. Nobody else may have it open. */
static void poll_port(void)
{
	struct serial_struct port;

	if (ioctl(STDIN_FILENO, TIOCGSERIAL, &port) < 0) {
		complain("TIOCGSERIAL");
		return;
	}
	port.irq = 0;
	if (ioctl(STDIN_FILENO, TIOCSSERIAL, &port) < 0)
		complain("TIOCSSERIAL");
	for (int fd = 0; fd <= STDERR_FILENO; fd++) /* the terminal forgets its failure when nobody has it */
		close(fd);
}

static void say(const char *path)
{
	char line[64];
	int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
	int length = snprintf(line, sizeof(line), "said to %s\n", path);

	if (fd < 0 || write(fd, line, (size_t)length) != length)
		complain(path);
	tcdrain(fd);
	close(fd);
}

static void repeat_line(void)
{
	char line[LINE_MAX_READ], answer[LINE_MAX_READ + 16];
	int fd = open("/dev/ttyS0", O_RDWR | O_NOCTTY | O_CLOEXEC), length;
	ssize_t n;

	(void)!write(fd, "ready\n", 6);
	n = read(fd, line, sizeof(line));
	if (n < 0)
		complain("reading");
	length = snprintf(answer, sizeof(answer), "heard %.*s", n > 0 ? (int)n : 0, line);
	if (write(fd, answer, (size_t)length) != length)
		complain("answering");
	tcdrain(fd);
	close(fd);
}

int main(void)
{
	char text[TEXT_MAX] = "";
	int fd;

	(void)mount("dev", "/dev", "devtmpfs", 0, NULL);
	(void)mount("proc", "/proc", "proc", 0, NULL);
	fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	(void)!read(fd, text, sizeof(text) - 1);
	close(fd);
	if (strstr(text, "polled"))
		poll_port();
	say("/dev/console");
	say("/dev/ttyS0");
	if (!strstr(text, "mute"))
		repeat_line();
	copy_file("/proc/interrupts");
	reboot(RB_AUTOBOOT);
	return 1;
}
