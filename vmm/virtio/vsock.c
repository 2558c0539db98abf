/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/virtio/vsock.h"
#include "vmm/virtio/vsock_conn.h"
#include <errno.h>
#include <stdlib.h>

enum { GUEST_CID_FIRST = 3 };

/* device */

static bool notify(struct virtio_device *device, unsigned queue)
{
	struct vsock *vsock = (struct vsock *)device;
	bool more = false;

	if (queue == VSOCK_TX)
		more = vsock_packet_receive(vsock);
	if (queue == VSOCK_EVENT)
		vsock_packet_event(vsock);
	else
		vsock_packet_pump(vsock);
	vsock_conn_reap(vsock);
	return more;
}

static void end_all(struct vsock *vsock)
{
	vsock_conn_end_all(vsock);
	vsock->resets_count = 0;
	vsock->tx_stalled = false;
}

/* operations */

/* Nothing is freed here: a connection's own callback may be what this is called in. */
static void reset(struct virtio_device *device)
{
	struct vsock *vsock = (struct vsock *)device;

	end_all(vsock);
	/* A driver that begins anew has nothing to be told. */
	vsock->event_pending = vsock->event_told = false;
	vsock->events_held = 0;
	vsock_conn_activate_all(vsock);
}

/*
 * Connections are the host's and end with the snapshot; the guest is told so. Ports go on from where they
 * were: it may still know those that it had.
 */
static void save(const struct virtio_device *device, struct state_writer *state)
{
	const struct vsock *vsock = (const struct vsock *)device;
	const struct virtq *queue = &device->queues[VSOCK_EVENT];
	unsigned held = vsock->events_held;

	if (vsock->event_told)
		held = (uint16_t)(vsock->event_available + 1 - virtq_available(queue));
	state_put_u32(state, vsock->next_port);
	state_put_u32(
		state, held <= VSOCK_EVENT_QUEUE_SIZE ? held : 0); /* more: the guest made its index up */
}

static void load(struct virtio_device *device, struct state_reader *state)
{
	struct vsock *vsock = (struct vsock *)device;

	vsock->next_port = state_get_u32(state);
	if (vsock->next_port < VSOCK_HOST_PORT_FIRST || vsock->next_port > VSOCK_HOST_PORT_LAST)
		state_refuse(state);
	vsock->events_held = state_get_count(state, VSOCK_EVENT_QUEUE_SIZE);
	/* Told when the queue is looked at. A driver without that queue can't be told. */
	vsock->event_pending = device->queues[VSOCK_EVENT].live;
}

static void destroy(struct virtio_device *device)
{
	struct vsock *vsock = (struct vsock *)device;

	vsock_conn_destroy_all(vsock);
	free(vsock);
}

static const struct virtio_device_ops vsock_ops = {
	.notify = notify,
	.reset = reset,
	.save = save,
	.load = load,
	.destroy = destroy,
};

/* create */

int vsock_create(const struct vsock_config *config, struct virtio_device **out)
{
	struct vsock *vsock;

	if (config->cid < GUEST_CID_FIRST || config->cid == UINT32_MAX)
		return -EINVAL;
	vsock = calloc(1, sizeof(*vsock));
	if (!vsock)
		return -ENOMEM;
	vsock->config.guest_cid = config->cid;
	vsock->loop = config->loop;
	vsock->accept = config->accept;
	vsock->context = config->context;
	vsock->next_port = VSOCK_HOST_PORT_FIRST;
	vsock->base = (struct virtio_device){
		.ops = &vsock_ops,
		.name = "vsock",
		.id = VIRTIO_ID_VSOCK,
		.features = VIRTIO_FEATURES_COMMON,
		.config = &vsock->config,
		.config_length = sizeof(vsock->config),
		.queue_count = VSOCK_QUEUES,
	};
	vsock->base.queues[VSOCK_RX].size_max = VSOCK_QUEUE_SIZE;
	vsock->base.queues[VSOCK_TX].size_max = VSOCK_QUEUE_SIZE;
	vsock->base.queues[VSOCK_EVENT].size_max = VSOCK_EVENT_QUEUE_SIZE;
	*out = &vsock->base;
	return 0;
}

/* for the host */

/* At most VSOCK_CONNECTIONS_MAX ports are taken, so this ends. */
static uint32_t choose_port(struct vsock *vsock, uint32_t guest_port)
{
	uint32_t port;

	do {
		port = vsock->next_port;
		vsock->next_port = port == VSOCK_HOST_PORT_LAST ? VSOCK_HOST_PORT_FIRST : port + 1;
	} while (vsock_conn_find(vsock, guest_port, port));
	return port;
}

int vsock_connect(struct virtio_device *device, uint32_t guest_port, int fd,
	void (*done)(void *context, int status), void *context)
{
	struct vsock *vsock = (struct vsock *)device;
	struct vsock_conn *conn;
	int error;

	virtio_device_enter(device);
	error = vsock_conn_create(vsock, CONN_WAITING, guest_port, choose_port(vsock, guest_port), fd, &conn);
	if (error == 0) {
		conn->done = done;
		conn->context = context;
		vsock_conn_owe(conn, OWES_REQUEST);
		vsock_packet_pump(vsock);
	}
	vsock_conn_reap(vsock);
	virtio_device_leave(device);
	return error;
}
