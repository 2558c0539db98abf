/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets: from the guest's tx queue to connections, and from connections to the guest's rx buffers.
 *
 * Payload is copied once: by the host's kernel, between guest memory and the host socket. Nothing is
 * allocated for a packet: what a connection has to say without data is a bit in it, and RSTs that no
 * connection sends are in a ring; when that is full the tx queue waits (5.10.6.1).
 */
#include "vmm/virtio/vsock_conn.h"
#include <errno.h>

enum {
	ROUND_PACKETS = VSOCK_QUEUE_SIZE,
	TOUCHED_BUFFERS = 16, /* what greeting, rehearsal and a first command take, and some more */
};

/* The driver cannot be served any more; its connections should not hang for it. */
static void refuse(struct vsock *vsock, unsigned queue, const char *reason)
{
	virtio_device_refuse(&vsock->base, queue, reason);
	vsock_conn_end_all(vsock);
}

static int pop(struct vsock *vsock, unsigned queue, struct virtq_chain *chain)
{
	int result = virtio_device_pop(&vsock->base, queue, chain);

	if (result < 0)
		vsock_conn_end_all(vsock);
	return result;
}

/* guest to host */

/* An RST back to where the packet came from, whatever it said of itself; none for an RST. */
static void answer_reset(struct vsock *vsock, const struct virtio_vsock_hdr *packet)
{
	unsigned end = (vsock->resets_start + vsock->resets_count) % VSOCK_RESETS_MAX;

	if (packet->op == VIRTIO_VSOCK_OP_RST)
		return;
	vsock->resets[end] = (struct virtio_vsock_hdr){
		.src_cid = packet->dst_cid,
		.dst_cid = packet->src_cid,
		.src_port = packet->dst_port,
		.dst_port = packet->src_port,
		.type = packet->type,
		.op = VIRTIO_VSOCK_OP_RST,
	};
	vsock->resets_count++;
}

static void update_peer(struct vsock_conn *conn, const struct virtio_vsock_hdr *packet)
{
	conn->peer_buffer = packet->buf_alloc;
	conn->peer_forwarded = packet->fwd_cnt;
	if (vsock_conn_credit(conn))
		conn->asked_credit = false;
	vsock_conn_activate(conn);
}

/* The guest connects. */
static void receive_request(struct vsock *vsock, const struct virtio_vsock_hdr *packet)
{
	struct vsock_conn *conn;
	int fd = -ECONNREFUSED;

	if (vsock->accept && vsock->count < VSOCK_CONNECTIONS_MAX)
		fd = vsock->accept(vsock->context, packet->src_port, packet->dst_port);
	if (fd < 0 || vsock_conn_create(
			      vsock, CONN_ESTABLISHED, packet->src_port, packet->dst_port, fd, &conn) < 0) {
		answer_reset(vsock, packet);
		return;
	}
	update_peer(conn, packet);
	vsock_conn_owe(conn, OWES_RESPONSE);
}

static void receive_for(
	struct vsock_conn *conn, const struct virtio_vsock_hdr *packet, struct virtq_bytes *bytes)
{
	if (conn->state == CONN_ENDED)
		return; /* an RST is on its way */
	update_peer(conn, packet);
	switch (packet->op) {
	case VIRTIO_VSOCK_OP_RESPONSE:
		if (conn->state == CONN_REQUESTED)
			vsock_conn_establish(conn);
		else
			vsock_conn_abort(conn);
		break;
	case VIRTIO_VSOCK_OP_RST:
		vsock_conn_end(conn, false);
		break;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		vsock_conn_shutdown(conn, packet->flags);
		break;
	case VIRTIO_VSOCK_OP_RW:
		vsock_conn_receive(conn, bytes);
		break;
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		break;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		if (conn->state == CONN_ESTABLISHED)
			vsock_conn_owe(conn, OWES_CREDIT_UPDATE);
		break;
	default: /* REQUEST too: there is a connection */
		vsock_conn_abort(conn);
		break;
	}
}

static void receive(struct vsock *vsock, const struct virtio_vsock_hdr *packet, struct virtq_bytes *bytes)
{
	struct vsock_conn *conn;

	if (packet->src_cid != vsock->config.guest_cid || packet->dst_cid != VSOCK_HOST_CID ||
		packet->type != VIRTIO_VSOCK_TYPE_STREAM) {
		answer_reset(vsock, packet);
		return;
	}
	conn = vsock_conn_find(vsock, packet->src_port, packet->dst_port);
	if (conn && packet->len > VSOCK_PACKET_MAX)
		vsock_conn_abort(conn);
	else if (conn)
		receive_for(conn, packet, bytes);
	else if (packet->op == VIRTIO_VSOCK_OP_REQUEST)
		receive_request(vsock, packet);
	else
		answer_reset(vsock, packet);
}

/* 0, or -EPROTO: refused. */
static int receive_chain(struct vsock *vsock, struct virtq_chain *chain)
{
	struct virtio_vsock_hdr packet;

	if (chain->writable.count || virtq_bytes_take(&chain->readable, &packet, sizeof(packet)) < 0 ||
		packet.len > chain->readable.length) {
		refuse(vsock, VSOCK_TX, "a packet without its header or shorter than that says");
		return -EPROTO;
	}
	virtq_bytes_truncate(&chain->readable, packet.len);
	receive(vsock, &packet, &chain->readable);
	virtq_push(&vsock->base.queues[VSOCK_TX], chain->head, 0);
	return 0;
}

bool vsock_packet_receive(struct vsock *vsock)
{
	struct virtq *queue = &vsock->base.queues[VSOCK_TX];
	struct virtq_chain chain;

	virtq_no_notify(queue);
	for (unsigned served = 0; served < ROUND_PACKETS; served++) {
		vsock->tx_stalled = vsock->resets_count == VSOCK_RESETS_MAX;
		if (vsock->tx_stalled)
			break;
		if (pop(vsock, VSOCK_TX, &chain) <= 0 || receive_chain(vsock, &chain) < 0)
			break;
	}
	virtio_device_publish(&vsock->base, VSOCK_TX);
	return !vsock->tx_stalled && virtq_want_notify(queue);
}

/* host to guest */

static struct virtio_vsock_hdr header_of(struct vsock_conn *conn, uint16_t op)
{
	conn->told = conn->forwarded;
	conn->owes &= ~(unsigned)OWES_CREDIT_UPDATE; /* every packet tells */
	return (struct virtio_vsock_hdr){
		.src_cid = VSOCK_HOST_CID,
		.dst_cid = conn->vsock->config.guest_cid,
		.src_port = conn->host_port,
		.dst_port = conn->guest_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = VSOCK_BUFFER,
		.fwd_cnt = conn->forwarded,
	};
}

/* Fills the buffer from the host socket behind a header's room. True: *header is that of a packet. */
static bool build_data(
	struct vsock_conn *conn, const struct virtq_bytes *buffer, struct virtio_vsock_hdr *header)
{
	uint32_t credit = vsock_conn_credit(conn), length;
	struct iovec pieces[VIRTQ_SIZE_MAX];
	struct virtq_bytes room;

	if (conn->state != CONN_ESTABLISHED || !conn->readable || credit == 0)
		return false;
	room = virtq_bytes_view(buffer, pieces);
	virtq_bytes_skip(&room, VSOCK_HEADER);
	virtq_bytes_truncate(&room, credit < VSOCK_PACKET_MAX ? credit : VSOCK_PACKET_MAX);
	length = vsock_conn_read(conn, &room);
	if (length == 0)
		return false;
	*header = header_of(conn, VIRTIO_VSOCK_OP_RW);
	header->len = length;
	return true;
}

/* What is owed, in the order in which it is paid. */
static const struct {
	unsigned debt;
	uint16_t op;
} debts[] = {
	{OWES_RST, VIRTIO_VSOCK_OP_RST},
	{OWES_REQUEST, VIRTIO_VSOCK_OP_REQUEST},
	{OWES_RESPONSE, VIRTIO_VSOCK_OP_RESPONSE},
	{OWES_SHUTDOWN, VIRTIO_VSOCK_OP_SHUTDOWN},
	{OWES_CREDIT_UPDATE, VIRTIO_VSOCK_OP_CREDIT_UPDATE},
	{OWES_CREDIT_REQUEST, VIRTIO_VSOCK_OP_CREDIT_REQUEST},
};

/* True: *header is that of a packet without data. */
static bool build_owed(struct vsock_conn *conn, struct virtio_vsock_hdr *header)
{
	for (size_t i = 0; i < sizeof(debts) / sizeof(debts[0]); i++) {
		if (!(conn->owes & debts[i].debt))
			continue;
		conn->owes &= ~debts[i].debt;
		*header = header_of(conn, debts[i].op);
		if (debts[i].debt == OWES_SHUTDOWN)
			header->flags = conn->host_shutdown;
		else if (debts[i].debt == OWES_REQUEST)
			conn->state = CONN_REQUESTED;
		else if (debts[i].debt == OWES_RST)
			vsock_conn_reset_sent(conn);
		return true;
	}
	return false;
}

/*
 * The next packet of the connection. A shutdown goes before data: the one for the end of the host's bytes is
 * owed only after the last of them. Data goes before credit, for it carries that. False: it has none after
 * all.
 */
static bool build(struct vsock_conn *conn, const struct virtq_bytes *buffer, struct virtio_vsock_hdr *header)
{
	if (!(conn->owes & ~(unsigned)(OWES_CREDIT_UPDATE | OWES_CREDIT_REQUEST)) &&
		build_data(conn, buffer, header))
		return true;
	return build_owed(conn, header);
}

/* Fills one rx buffer from whoever has the turn. The bytes of the packet; 0: there was none after all. */
static uint32_t fill(struct vsock *vsock, struct virtq_bytes *buffer)
{
	struct vsock_conn *conn = vsock->active_first;
	struct virtio_vsock_hdr header;
	bool built = true;

	if (vsock->resets_count) {
		header = vsock->resets[vsock->resets_start];
		vsock->resets_start = (vsock->resets_start + 1) % VSOCK_RESETS_MAX;
		vsock->resets_count--;
	} else {
		vsock_conn_deactivate(conn);
		built = build(conn, buffer, &header);
		vsock_conn_activate(conn); /* at the end of the turn, if there is more */
		if (!conn->active)
			vsock_conn_watch(conn);
	}
	if (!built)
		return 0;
	(void)virtq_bytes_put(buffer, &header, sizeof(header));
	return VSOCK_HEADER + header.len;
}

static bool rx_work(const struct vsock *vsock)
{
	return vsock->base.running && (vsock->resets_count || vsock->active_first);
}

/* Sends one packet. False: no buffer, or refused. */
static bool pump_one(struct vsock *vsock)
{
	struct virtq *queue = &vsock->base.queues[VSOCK_RX];
	struct virtq_chain chain;
	uint32_t written;

	if (pop(vsock, VSOCK_RX, &chain) <= 0)
		return false;
	if (chain.readable.count || chain.writable.length <= VSOCK_HEADER) {
		refuse(vsock, VSOCK_RX, "a buffer without room for a packet");
		return false;
	}
	written = fill(vsock, &chain.writable);
	if (written)
		virtq_push(queue, chain.head, written);
	else
		virtq_unpop(queue);
	return true;
}

/*
 * The buffers that the next packets will get are made ready to be written to, once: in a clone their pages
 * are the template's until then, and the packet that has one copied would be that of a user's command. The
 * first packet of all comes long before that. What is wrong with a buffer, or fails, its turn will show.
 */
static void touch_next(struct vsock *vsock)
{
	struct virtq *queue = &vsock->base.queues[VSOCK_RX];
	struct virtq_chain chain;
	unsigned popped = 0;

	vsock->rx_touched = true;
	while (popped < TOUCHED_BUFFERS && virtq_pop(queue, &chain) > 0) {
		popped++;
		for (unsigned i = 0; i < chain.writable.count; i++)
			guest_memory_populate(chain.writable.iov[i].iov_base, 1, true);
	}
	while (popped--)
		virtq_unpop(queue);
}

void vsock_packet_pump(struct vsock *vsock)
{
	struct virtq *queue = &vsock->base.queues[VSOCK_RX];
	unsigned tries;

	virtq_no_notify(queue);
	/* Tries are counted: a driver could take back and show a buffer again, without end. */
	for (tries = 0; rx_work(vsock) && tries < ROUND_PACKETS; tries++)
		if (!pump_one(vsock) && !virtq_want_notify(queue)) /* starved: the next buffer is notified */
			break;
	virtio_device_publish(&vsock->base, VSOCK_RX);
	if (tries && !vsock->rx_touched && !rx_work(vsock))
		touch_next(vsock);
	if (tries == ROUND_PACKETS && rx_work(vsock))
		virtio_device_recall(&vsock->base, VSOCK_RX);
	if (vsock->tx_stalled && vsock->resets_count < VSOCK_RESETS_MAX) {
		vsock->tx_stalled = false;
		virtio_device_recall(&vsock->base, VSOCK_TX);
	}
}

/* Linux gives an event's buffer back when it has acted on the event. */
static void await_understood(struct vsock *vsock)
{
	if (!virtq_want_beyond(&vsock->base.queues[VSOCK_EVENT], vsock->event_available))
		return;
	vsock->event_told = false;
	vsock_conn_activate_all(vsock);
	vsock_packet_pump(vsock);
}

static void tell_reset(struct vsock *vsock)
{
	struct virtio_vsock_event event = {.id = VIRTIO_VSOCK_EVENT_TRANSPORT_RESET};
	struct virtq *queue = &vsock->base.queues[VSOCK_EVENT];
	struct virtq_chain chain;

	if (virtq_empty(queue) && !virtq_want_notify(queue))
		return;
	if (pop(vsock, VSOCK_EVENT, &chain) <= 0)
		return;
	if (chain.readable.count || virtq_bytes_put(&chain.writable, &event, sizeof(event)) < 0) {
		refuse(vsock, VSOCK_EVENT, "a buffer without room for an event");
		return;
	}
	vsock->event_pending = false;
	vsock->event_told = true;
	/* Before the event is seen: from then on the driver may give the buffer back, after those it has. */
	vsock->event_available = (uint16_t)(virtq_available(queue) + vsock->events_held);
	vsock->events_held = 0;
	virtq_push(queue, chain.head, sizeof(event));
	virtio_device_publish(&vsock->base, VSOCK_EVENT);
}

void vsock_packet_event(struct vsock *vsock)
{
	if (vsock->event_pending)
		tell_reset(vsock);
	if (vsock->event_told)
		await_understood(vsock);
}
