/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taps of a network namespace of the test's own: opened by name, checked when inherited, in which words they
 * are refused, and as a backend. Where no namespace or no tap can be had, those cases are skipped.
 */
#include "tests/support/unit.h"

#include "common/io.h"
#include "vmm/files.h"
#include "vmm/tap.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { GOOD_FLAGS = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, NOBODY = 65534 };

static int open_tun(void)
{
	int fd = open(TAP_DEVICE, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* An fd that has the interface. */
static int join(const char *name, int flags)
{
	struct ifreq request = {.ifr_flags = (short)flags};
	int fd = open_tun();

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	assert_int_equal(ioctl(fd, TUNSETIFF, &request), 0);
	return fd;
}

static void make_tap(const char *name, int flags)
{
	int fd = join(name, flags);

	assert_int_equal(ioctl(fd, TUNSETPERSIST, 1UL), 0);
	close(fd);
}

static void remove_tap(const char *name, int flags)
{
	int fd = join(name, flags);

	assert_int_equal(ioctl(fd, TUNSETPERSIST, 0UL), 0);
	close(fd);
	assert_int_equal(if_nametoindex(name), 0);
}

static void set_flags(const char *name, short flags)
{
	struct ifreq request = {.ifr_flags = flags};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	close(fd);
}

/* The namespaces (also of mounts) are made once, before anything is opened. */
static bool have_taps;

static int make_namespace(void **state)
{
	int fd = -1;

	(void)state;
	have_taps = unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
		    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		    (fd = open(TAP_DEVICE, O_RDWR | O_CLOEXEC)) >= 0;
	fd_close(&fd);
	if (!have_taps)
		printf("# no network namespace or no " TAP_DEVICE ": cases with taps are skipped\n");
	return 0;
}

static int need_taps(void **state)
{
	(void)state;
	if (have_taps)
		make_tap("here", GOOD_FLAGS);
	return 0;
}

static int remove_taps(void **state)
{
	(void)state;
	if (have_taps && if_nametoindex("here"))
		remove_tap("here", GOOD_FLAGS);
	return 0;
}

#define SKIP_WITHOUT_TAPS()                                                                                  \
	do {                                                                                                 \
		if (!have_taps)                                                                              \
			skip();                                                                              \
	} while (0)

/* files_open's answer to --net, with a kernel that is there: 0 or -errno. */
static int open_files(const char *tap, struct files *files, char *error)
{
	struct config config = {.kernel = "/proc/self/exe"};

	snprintf(config.net.tap, sizeof(config.net.tap), "%s", tap);
	return files_open(&config, files, error);
}

static void expect_refusal(const char *tap, int wanted_error, const char *wanted)
{
	char error[FILES_ERROR_MAX] = "";
	struct files files;
	int before = dup(0), after;

	close(before);
	assert_int_equal(open_files(tap, &files, error), wanted_error);
	assert_string_equal(error, wanted);
	assert_int_equal(files.tap, -1);
	after = dup(0);
	close(after);
	assert_true(after <= before); /* an inherited one is closed too */
}

/* opened by name */

static int open_backend(const char *name)
{
	int fd = -1;

	assert_int_equal(tap_open(name, &fd), 0);
	return fd;
}

static void a_tap_is_opened_by_name(void **state)
{
	char error[FILES_ERROR_MAX], name[IFNAMSIZ];
	struct files files;
	struct ifreq request = {0};
	int size = 0;

	(void)state;
	SKIP_WITHOUT_TAPS();
	assert_int_equal(open_files("here", &files, error), 0);
	assert_true(files.tap >= 0);
	assert_int_equal(fcntl(files.tap, F_GETFD), FD_CLOEXEC);
	assert_true(fcntl(files.tap, F_GETFL) & O_NONBLOCK);
	assert_int_equal(ioctl(files.tap, TUNGETIFF, &request), 0);
	assert_int_equal(request.ifr_flags & GOOD_FLAGS, GOOD_FLAGS);
	assert_int_equal(ioctl(files.tap, TUNGETVNETHDRSZ, &size), 0);
	assert_int_equal(size, NET_HEADER);
	assert_int_equal(tap_name(files.tap, name), 0);
	assert_string_equal(name, "here");
	files_close(&files);
	assert_int_equal(files.tap, -1);
}

static void a_tap_that_is_missing_is_not_made(void **state)
{
	char wanted[FILES_ERROR_MAX];

	(void)state;
	SKIP_WITHOUT_TAPS();
	snprintf(wanted, sizeof(wanted),
		"--net nowhere does not exist; make it: ip tuntap add nowhere mode tap user %u, ip link set "
		"nowhere up",
		geteuid());
	expect_refusal("nowhere", -ENODEV, wanted);
	assert_int_equal(if_nametoindex("nowhere"), 0);
	/* a name that the kernel would number */
	snprintf(wanted, sizeof(wanted),
		"--net tap%%d does not exist; make it: ip tuntap add tap%%d mode tap user %u, ip link set "
		"tap%%d up",
		geteuid());
	expect_refusal("tap%d", -ENODEV, wanted);
}

static void a_tap_in_use_is_refused(void **state)
{
	int other;

	(void)state;
	SKIP_WITHOUT_TAPS();
	other = join("here", GOOD_FLAGS);
	expect_refusal("here", -EBUSY, "--net here is in use by another process; end it or give another tap");
	close(other);
}

static void what_is_no_tap_is_refused(void **state)
{
	int other;

	(void)state;
	SKIP_WITHOUT_TAPS();
	expect_refusal("lo", -EINVAL,
		"--net lo is not a tap with a single queue; give one made by ip tuntap add NAME mode tap");
	make_tap("routed", IFF_TUN | IFF_NO_PI);
	expect_refusal("routed", -EINVAL,
		"--net routed is not a tap with a single queue; give one made by ip tuntap add NAME mode "
		"tap");
	remove_tap("routed", IFF_TUN | IFF_NO_PI);
	other = join("wide", GOOD_FLAGS | IFF_MULTI_QUEUE);
	expect_refusal("wide", -EINVAL,
		"--net wide is not a tap with a single queue; give one made by ip tuntap add NAME mode tap");
	close(other);
}

/* Lays CAP_NET_ADMIN down, or takes it up again. */
static void set_net_admin(bool on)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	data[0].effective &= ~(1u << CAP_NET_ADMIN);
	data[0].effective |= on ? 1u << CAP_NET_ADMIN : 0;
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

static void a_tap_of_another_user_is_refused(void **state)
{
	char wanted[FILES_ERROR_MAX];
	int owner;

	(void)state;
	SKIP_WITHOUT_TAPS();
	owner = join("here", GOOD_FLAGS);
	assert_int_equal(ioctl(owner, TUNSETOWNER, 12345UL), 0);
	close(owner);
	snprintf(wanted, sizeof(wanted),
		"--net here belongs to another user; make it anew for this one: ip tuntap add here mode tap "
		"user %u",
		geteuid());
	set_net_admin(false);
	expect_refusal("here", -EPERM, wanted);
	set_net_admin(true);
	owner = join("here", GOOD_FLAGS);
	assert_int_equal(ioctl(owner, TUNSETOWNER, (unsigned long)geteuid()), 0);
	close(owner);
	set_net_admin(false);
	close(open_backend("here")); /* its own user needs no capability */
	set_net_admin(true);
}

/* Another /dev/net, for this process alone. */
static void the_device_may_be_missing_or_forbidden(void **state)
{
	static const char missing[] = "--net here: there is no /dev/net/tun; load the module tun";

	(void)state;
	SKIP_WITHOUT_TAPS();
	assert_int_equal(mount("test", "/dev/net", "tmpfs", 0, NULL), 0);
	expect_refusal("here", -ENOENT, missing);
	/* a number that no driver has; misc's own answer to one of its own is the same */
	assert_int_equal(mknod(TAP_DEVICE, S_IFCHR | 0666, makedev(10, 254)), 0);
	expect_refusal("here", -ENXIO, missing);
	assert_int_equal(chmod(TAP_DEVICE, 0600), 0);
	assert_int_equal(seteuid(NOBODY), 0);
	expect_refusal("here", -EACCES,
		"--net here: /dev/net/tun may not be opened (Permission denied); change its mode, or hand a "
		"tap over as fd:N");
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(umount("/dev/net"), 0);
}

/* inherited */

static void expect_inherited(int fd, int error, const char *rest)
{
	char tap[16], wanted[FILES_ERROR_MAX];

	snprintf(tap, sizeof(tap), "fd:%d", fd);
	snprintf(wanted, sizeof(wanted), "--net %s %s", tap, rest);
	expect_refusal(tap, error, wanted);
}

static void an_inherited_tap_is_taken(void **state)
{
	char error[FILES_ERROR_MAX], tap[16];
	struct files files;
	int fd, size = 0;

	(void)state;
	SKIP_WITHOUT_TAPS();
	fd = join("here", GOOD_FLAGS);
	snprintf(tap, sizeof(tap), "fd:%d", fd);
	assert_int_equal(open_files(tap, &files, error), 0);
	assert_int_equal(files.tap, fd);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(ioctl(fd, TUNGETVNETHDRSZ, &size), 0);
	assert_int_equal(size, NET_HEADER);
	files_close(&files);
}

static void what_is_inherited_and_no_tap_is_refused(void **state)
{
	static const char no_tap[] =
		"is not a tap; have the parent process open /dev/net/tun and name one by TUNSETIFF";
	int pair[2];

	(void)state;
	expect_refusal("fd:77", -EBADF, "--net fd:77 is not open; have the parent process pass it on");
	expect_inherited(memfd_create("no tap", MFD_CLOEXEC), -ENOTTY, no_tap);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	expect_inherited(pair[1], -ENOTTY, no_tap);
	close(pair[0]);
	expect_inherited(open("/dev/null", O_RDWR | O_CLOEXEC), -ENOTTY, no_tap);
}

static void inherited_taps_of_other_kinds_are_refused(void **state)
{
	static const char wrong_flags[] =
		"lacks IFF_VNET_HDR or IFF_NO_PI; have the parent process set both by TUNSETIFF";
	struct ifreq request = {0};
	int fd;

	(void)state;
	SKIP_WITHOUT_TAPS();
	expect_inherited(open_tun(), -EBADFD,
		"has no interface (any more); have the parent process name one by TUNSETIFF");
	expect_inherited(join("routed", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR), -ENOTTY,
		"is not a tap; have the parent process open /dev/net/tun and name one by TUNSETIFF");
	expect_inherited(join("plain", IFF_TAP | IFF_NO_PI), -EPROTOTYPE, wrong_flags);
	fd = join("info", IFF_TAP | IFF_VNET_HDR);
	assert_int_equal(ioctl(fd, TUNGETIFF, &request), 0);
	if (request.ifr_flags & IFF_NO_PI)
		close(fd); /* this kernel has no other */
	else
		expect_inherited(fd, -EPROTOTYPE, wrong_flags);
}

static void an_inherited_tap_must_be_open_both_ways(void **state)
{
	struct ifreq request = {.ifr_name = "here", .ifr_flags = GOOD_FLAGS};
	int fd;

	(void)state;
	SKIP_WITHOUT_TAPS();
	fd = open(TAP_DEVICE, O_RDONLY | O_CLOEXEC);
	assert_int_equal(ioctl(fd, TUNSETIFF, &request), 0);
	expect_inherited(
		fd, -EACCES, "is not open for reading and writing; have the parent process open it for both");
}

/* as a backend */

static void a_packet_that_is_sent_arrives(void **state)
{
	uint8_t frame[NET_HEADER + 60] = {
		[NET_HEADER] = 0xff, [NET_HEADER + 12] = 0x88, [NET_HEADER + 13] = 0xb5};
	struct iovec piece = {.iov_base = frame, .iov_len = sizeof(frame)};
	int fd;

	(void)state;
	SKIP_WITHOUT_TAPS();
	fd = open_backend("here");
	assert_int_equal(tap_backend.send(fd, &piece, 1), -EIO); /* the interface is down */
	set_flags("here", IFF_UP);
	assert_int_equal(tap_backend.send(fd, &piece, 1), 0);
	piece.iov_len = NET_HEADER + ETH_HLEN - 1;
	assert_int_equal(tap_backend.send(fd, &piece, 1), -EINVAL);
	close(fd);
}

static void received_packets_are_cut_to_the_pieces(void **state)
{
	uint8_t frame[NET_HEADER + 8];
	struct iovec piece = {.iov_base = frame, .iov_len = sizeof(frame)};
	ssize_t got;
	int fd;

	(void)state;
	SKIP_WITHOUT_TAPS();
	fd = open_backend("here");
	assert_int_equal(tap_backend.receive(fd, &piece, 1), -EAGAIN);
	set_flags("here", IFF_UP); /* the kernel's IPv6 speaks first */
	for (unsigned i = 0; i < 300 && (got = tap_backend.receive(fd, &piece, 1)) == -EAGAIN; i++)
		usleep(10000);
	if (got == -EAGAIN)
		skip(); /* a kernel without IPv6 */
	assert_int_equal(got, sizeof(frame));
	close(fd);
}

static void every_offload_can_be_set(void **state)
{
	int fd;

	(void)state;
	SKIP_WITHOUT_TAPS();
	fd = open_backend("here");
	for (unsigned offloads = 0; offloads < 16; offloads++) {
		bool segments = offloads & (NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6);
		bool sound = (offloads & NET_OFFLOAD_CSUM || !offloads) &&
			     (!(offloads & NET_OFFLOAD_ECN) || segments);

		assert_int_equal(tap_backend.set_offloads(fd, offloads), sound ? 0 : -EINVAL);
	}
	close(fd);
}

/* The kernel brings the flag up to date a little later. */
static bool await_running(const char *name, bool running)
{
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool now = !running;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	for (unsigned i = 0; i < 500 && now != running; i++) {
		assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &request), 0);
		now = request.ifr_flags & IFF_RUNNING;
		usleep(10000);
	}
	close(fd);
	return now == running;
}

static void the_carrier_shows_on_the_host(void **state)
{
	int fd;

	(void)state;
	SKIP_WITHOUT_TAPS();
	fd = open_backend("here");
	set_flags("here", IFF_UP);
	assert_true(await_running("here", true));
	tap_backend.set_carrier(fd, false);
	assert_true(await_running("here", false));
	tap_backend.set_carrier(fd, true);
	assert_true(await_running("here", true));
	close(fd);
}

/* addresses */

static void addresses_are_derived(void **state)
{
	uint8_t mac[ETH_ALEN], same[ETH_ALEN], other[ETH_ALEN];

	(void)state;
	tap_derive_mac("tap0", "host", mac);
	tap_derive_mac("tap0", "host", same);
	assert_memory_equal(mac, same, sizeof(mac));
	assert_int_equal(mac[0] & 3, 2);
	tap_derive_mac("tap1", "host", other);
	assert_memory_not_equal(mac, other, sizeof(mac));
	tap_derive_mac("tap0", "other", other);
	assert_memory_not_equal(mac, other, sizeof(mac));
	tap_derive_mac("tap", "0host", other);
	assert_memory_not_equal(mac, other, sizeof(mac));
}

/* 10 000 names: no address comes twice. */
static int compare(const void *a, const void *b)
{
	return memcmp(a, b, ETH_ALEN);
}

static void derived_addresses_differ(void **state)
{
	enum { NAMES = 10000 };
	static uint8_t macs[NAMES][ETH_ALEN];

	(void)state;
	for (unsigned i = 0; i < NAMES; i++) {
		char name[IFNAMSIZ];

		snprintf(name, sizeof(name), "tap%u", i);
		tap_derive_mac(name, "host", macs[i]);
	}
	qsort(macs, NAMES, ETH_ALEN, compare);
	for (unsigned i = 1; i < NAMES; i++)
		assert_memory_not_equal(macs[i - 1], macs[i], ETH_ALEN);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, need_taps, remove_taps)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_tap_is_opened_by_name),
		CASE(a_tap_that_is_missing_is_not_made),
		CASE(a_tap_in_use_is_refused),
		CASE(what_is_no_tap_is_refused),
		CASE(a_tap_of_another_user_is_refused),
		CASE(the_device_may_be_missing_or_forbidden),
		CASE(an_inherited_tap_is_taken),
		CASE(what_is_inherited_and_no_tap_is_refused),
		CASE(inherited_taps_of_other_kinds_are_refused),
		CASE(an_inherited_tap_must_be_open_both_ways),
		CASE(a_packet_that_is_sent_arrives),
		CASE(received_packets_are_cut_to_the_pieces),
		CASE(every_offload_can_be_set),
		CASE(the_carrier_shows_on_the_host),
		cmocka_unit_test(addresses_are_derived),
		cmocka_unit_test(derived_addresses_differ),
	};

	return cmocka_run_group_tests(tests, make_namespace, NULL);
}
