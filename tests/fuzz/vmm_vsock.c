/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile driver before vsock, and hosts that connect, write, read, half-close and leave as they like.
 *
 * Beyond what holds for every device: each connection of the host is answered once, and after every step the
 * table of connections is as vsock_conn.c says that it is.
 */
#include "tests/fuzz/support/driver.h"
#include "vmm/virtio/vsock.h"
#include "vmm/virtio/vsock_conn.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	GUEST_CID = 42,
	HOSTS_MAX = 40,
	PORTS = 4,
	PAIRS = 8,
	HEADER_AT = DRIVER_AREA,
	DATA_AT = DRIVER_AREA + 0x1000,
	RX_AT = DRIVER_AREA + 0x8000,
	RX_BYTES = 3776, /* as Linux offers them */
	WRITE_MAX = 96 * 1024,
	RECORD_MAX = 4096, /* of the device and its transport */
};

struct fuzz {
	struct driver driver;
	int hosts[HOSTS_MAX]; /* our ends */
	unsigned count, connects, answers;
	struct {
		uint32_t guest_port, host_port;
	} pairs[PAIRS]; /* of the latest connections, in a ring */
	unsigned attempts;
};

static void remember(struct fuzz *fuzz, uint32_t guest_port, uint32_t host_port)
{
	fuzz->pairs[fuzz->attempts % PAIRS].guest_port = guest_port;
	fuzz->pairs[fuzz->attempts % PAIRS].host_port = host_port;
	fuzz->attempts++;
}

/* the host's side */

/* A stream that may be narrow; one end is kept, the other returned. -1: there are enough. */
static int make_stream(struct fuzz *fuzz, bool narrow)
{
	int fds[2], small = 1;

	if (fuzz->count == HOSTS_MAX)
		return -1;
	FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	if (narrow)
		FUZZ_ASSERT(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
	fuzz->hosts[fuzz->count++] = fds[0];
	return fds[1];
}

static int on_accept(void *context, uint32_t guest_port, uint32_t host_port)
{
	int fd = host_port == PORTS - 1 ? -1 : make_stream(context, host_port & 1);

	(void)guest_port;
	return fd >= 0 ? fd : -ECONNREFUSED;
}

static void on_answer(void *context, int status)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(status == 0 || status == -ECONNREFUSED || status == -ECONNRESET);
	fuzz->answers++;
}

static void step_connect(struct fuzz *fuzz)
{
	struct vsock *vsock = (struct vsock *)fuzz->driver.device;
	uint8_t choice = fuzz_u8(fuzz->driver.input);
	int fd = make_stream(fuzz, choice & 0x80);

	if (fd < 0)
		return;
	remember(fuzz, choice % PORTS, vsock->next_port);
	FUZZ_ASSERT(vsock_connect(fuzz->driver.device, choice % PORTS, fd, on_answer, fuzz) == 0);
	fuzz->connects++;
}

static void close_hosts(struct fuzz *fuzz)
{
	while (fuzz->count)
		close(fuzz->hosts[--fuzz->count]);
}

static void step_host(struct fuzz *fuzz)
{
	static const uint8_t bytes[WRITE_MAX];
	uint8_t choice = fuzz_u8(fuzz->driver.input), drain[4096];
	unsigned which;

	if (fuzz->count == 0)
		return;
	which = fuzz_below(fuzz->driver.input, fuzz->count);
	switch (choice % 6) {
	case 0:
		close(fuzz->hosts[which]);
		fuzz->hosts[which] = fuzz->hosts[--fuzz->count];
		break;
	case 1:
		(void)shutdown(fuzz->hosts[which], choice / 6 % 3); /* SHUT_RD, SHUT_WR, SHUT_RDWR */
		break;
	case 2:
		while (read(fuzz->hosts[which], drain, sizeof(drain)) > 0)
			;
		break;
	case 3:
		(void)!read(fuzz->hosts[which], drain, choice);
		break;
	case 4:
		(void)!send(fuzz->hosts[which], bytes, 1 + choice / 6, MSG_NOSIGNAL);
		break;
	default:
		(void)!send(fuzz->hosts[which], bytes, fuzz_u16(fuzz->driver.input) + 1u, MSG_NOSIGNAL);
		break;
	}
}

/* a new device */

static void attach_device(struct fuzz *fuzz)
{
	struct vsock_config config = {
		.cid = GUEST_CID, .loop = fuzz->driver.loop, .accept = on_accept, .context = fuzz};
	struct virtio_device *device;

	FUZZ_ASSERT(vsock_create(&config, &device) == 0);
	driver_attach(&fuzz->driver, device);
}

/* The guest goes on before one that is restored: whatever it has made of the rings, what is saved is taken.
 */
static void step_restore(struct fuzz *fuzz)
{
	uint8_t bytes[RECORD_MAX];
	struct state_writer writer;
	struct state_reader reader;

	virtio_mmio_drain(fuzz->driver.mmio);
	if (fuzz->driver.faults)
		return;
	state_writer_init(&writer, bytes, sizeof(bytes));
	virtio_mmio_save(fuzz->driver.mmio, &writer);
	FUZZ_ASSERT(writer.error == 0);
	virtio_mmio_destroy(fuzz->driver.mmio);
	attach_device(fuzz);
	state_reader_init(&reader, bytes, writer.length);
	virtio_mmio_load(fuzz->driver.mmio, &reader);
	FUZZ_ASSERT(state_reader_finish(&reader) == 0);
	virtio_mmio_wake(fuzz->driver.mmio);
}

/* the guest's side */

static void step_rx_buffers(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->driver.input);
	struct driver_buffer buffers[2] = {
		{.address = RX_AT, .length = RX_BYTES, .writable = true},
		{.address = RX_AT + 0x2000, .length = RX_BYTES, .writable = true},
	};

	if (choice & 0x80)
		buffers[0].length = VSOCK_HEADER + choice % 64;
	if (choice & 0x40)
		buffers[0].address = driver_some_address(&fuzz->driver);
	driver_offer(&fuzz->driver, VSOCK_RX,
		driver_chain(&fuzz->driver, VSOCK_RX, buffers, 1 + (choice & 1)), 1 + (choice >> 1) % 16);
	driver_kick(&fuzz->driver, VSOCK_RX);
}

/* Of a connection that may be there, more often than not. */
static struct virtio_vsock_hdr some_header(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->driver.input), pair = fuzz_u8(fuzz->driver.input);
	struct virtio_vsock_hdr header = {
		.src_cid = GUEST_CID,
		.dst_cid = VSOCK_HOST_CID,
		.src_port = fuzz->pairs[pair % PAIRS].guest_port,
		.dst_port = fuzz->pairs[pair % PAIRS].host_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = choice % 8, /* INVALID, REQUEST, RESPONSE, RST, SHUTDOWN, RW, UPDATE, CREDIT_REQUEST */
		.flags = choice >> 6,
		.buf_alloc = 256 * 1024,
	};

	if (header.op == VIRTIO_VSOCK_OP_REQUEST && !(choice & 8)) {
		header.src_port = pair % PORTS;
		header.dst_port = pair / PORTS % PORTS;
		remember(fuzz, header.src_port, header.dst_port);
	}
	if (choice & 16) {
		header.buf_alloc = fuzz_u16(fuzz->driver.input);
		header.fwd_cnt = fuzz_u16(fuzz->driver.input);
	}
	return header;
}

static void step_packet(struct fuzz *fuzz)
{
	struct virtio_vsock_hdr header = some_header(fuzz);
	struct driver_buffer buffers[2] = {
		{.address = HEADER_AT, .length = sizeof(header)},
		{.address = DATA_AT},
	};
	uint8_t choice = fuzz_u8(fuzz->driver.input);
	size_t room = sizeof(header);

	buffers[1].length = header.op == VIRTIO_VSOCK_OP_RW ? driver_some_length(&fuzz->driver) : 0;
	header.len = buffers[1].length;
	if (choice & 1)
		buffers[1].address = driver_some_address(&fuzz->driver);
	if (choice == 0xff) /* what nobody sends */
		fuzz_take(fuzz->driver.input, &header, sizeof(header));
	memcpy(driver_at(&fuzz->driver, HEADER_AT, &room), &header, sizeof(header));
	driver_offer(&fuzz->driver, VSOCK_TX,
		driver_chain(&fuzz->driver, VSOCK_TX, buffers, buffers[1].length ? 2 : 1), 1);
	driver_kick(&fuzz->driver, VSOCK_TX);
	if (!(choice & 2))
		driver_turn(&fuzz->driver); /* else another one overwrites it */
}

/* what holds of the table */

static bool is_in_bucket(const struct vsock *vsock, const struct vsock_conn *wanted)
{
	for (unsigned i = 0; i < VSOCK_BUCKETS; i++)
		for (const struct vsock_conn *conn = vsock->buckets[i]; conn; conn = conn->hash_next)
			if (conn == wanted)
				return true;
	return false;
}

static bool is_active(const struct vsock *vsock, const struct vsock_conn *wanted)
{
	const struct vsock_conn *previous = NULL;

	for (const struct vsock_conn *conn = vsock->active_first; conn; conn = conn->active_next) {
		FUZZ_ASSERT(conn->active_previous == previous);
		if (conn == wanted)
			return true;
		previous = conn;
	}
	return false;
}

static void check_connection(const struct vsock *vsock, const struct vsock_conn *conn)
{
	FUZZ_ASSERT(conn->received - conn->forwarded <= VSOCK_BUFFER);
	FUZZ_ASSERT(conn->received - conn->told <= VSOCK_BUFFER);
	FUZZ_ASSERT(conn->received == conn->forwarded || (conn->buffer && conn->fd >= 0));
	FUZZ_ASSERT(conn->buffer_start < VSOCK_BUFFER);
	FUZZ_ASSERT(!conn->removed);
	FUZZ_ASSERT(conn->hashed == is_in_bucket(vsock, conn));
	FUZZ_ASSERT(conn->hashed || (conn->state == CONN_ENDED && !(conn->owes & OWES_RST)));
	FUZZ_ASSERT(conn->active == is_active(vsock, conn));
	/* Whoever owes a packet has a turn. */
	FUZZ_ASSERT(conn->active || conn->owes == 0 || conn->state == CONN_WAITING);
	FUZZ_ASSERT(conn->fd >= 0 || !conn->source);
	/* Somebody waits for an answer: the host until the guest gave one. */
	FUZZ_ASSERT(!conn->done || conn->state == CONN_WAITING || conn->state == CONN_REQUESTED);
	/* One that is over for the guest stays for an RST or for bytes that the host has yet to take. */
	FUZZ_ASSERT(conn->state != CONN_ENDED || conn->owes || conn->received != conn->forwarded);
}

/* With the loop at rest: the host's connections are asked for, if the guest can be asked. */
static void check_rest(struct fuzz *fuzz)
{
	const struct vsock *vsock = (const struct vsock *)fuzz->driver.device;

	if (!vsock->base.running || vsock->event_pending || vsock->event_told)
		return;
	for (const struct vsock_conn *conn = vsock->all; conn; conn = conn->next)
		FUZZ_ASSERT(conn->active || conn->owes == 0);
}

static void check_table(struct fuzz *fuzz)
{
	const struct vsock *vsock = (const struct vsock *)fuzz->driver.device;
	unsigned count = 0, unanswered = 0;

	for (const struct vsock_conn *conn = vsock->all; conn; conn = conn->next) {
		check_connection(vsock, conn);
		unanswered += conn->done != NULL;
		count++;
	}
	FUZZ_ASSERT(count == vsock->count && count <= VSOCK_CONNECTIONS_MAX);
	FUZZ_ASSERT(vsock->resets_count <= VSOCK_RESETS_MAX && vsock->resets_start < VSOCK_RESETS_MAX);
	count = 0;
	for (const struct vsock_conn *conn = vsock->removed; conn; conn = conn->hash_next) {
		FUZZ_ASSERT(conn->removed && conn->fd < 0);
		count++;
	}
	FUZZ_ASSERT(count <= VSOCK_CONNECTIONS_MAX);
	FUZZ_ASSERT(fuzz->connects == fuzz->answers + unanswered);
}

static void step(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->driver.input);

	switch (choice & 7) {
	case 0:
	case 1:
		step_packet(fuzz);
		break;
	case 2:
		step_rx_buffers(fuzz);
		break;
	case 3:
		step_connect(fuzz);
		break;
	case 4:
		step_host(fuzz);
		break;
	case 5:
		if (choice == 0xfd)
			step_restore(fuzz);
		else
			driver_turn(&fuzz->driver);
		break;
	default:
		driver_step(&fuzz->driver);
		break;
	}
	check_table(fuzz);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct fuzz fuzz = {.count = 0};

	fuzz_begin();
	driver_init(&fuzz.driver, &input);
	attach_device(&fuzz);
	while (driver_goes_on(&fuzz.driver))
		step(&fuzz);
	driver_settle(&fuzz.driver);
	check_rest(&fuzz);
	close_hosts(&fuzz);
	driver_settle(&fuzz.driver);
	check_table(&fuzz);
	driver_finish(&fuzz.driver);
	close_hosts(&fuzz);
	FUZZ_ASSERT(fuzz.connects == fuzz.answers);
	fuzz_end();
	return 0;
}
