/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device: its link, its backend and when which direction is served. The backend's fd is watched for edges
 * only, so it need not be taken out of the loop while there are no buffers or no room: what an edge told is
 * kept in `waiting` and `blocked`.
 */
#include "common/io.h"
#include "common/log.h"
#include "vmm/virtio/net_parts.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum { STALE_BYTES = 64, BACKEND_EVENTS = (int)(EPOLLIN | EPOLLOUT | EPOLLET) };

static struct net *from_base(struct virtio_device *device)
{
	return (struct net *)device;
}

/* loss */

void net_lose(struct net *net, atomic_uint_fast64_t *counter, enum net_loss why)
{
	static const char *const words[NET_LOSSES] = {
		[NET_LOST_HEADER] = "a packet of the guest has a header that does not fit it",
		[NET_LOST_REFUSED] = "the host does not take a packet (is the interface up?)",
		[NET_LOST_LONG] = "a packet is longer than the guest's buffers",
		[NET_LOST_FAULT] = "a packet could not be read",
	};

	net_count(counter);
	if (!net->logged[why])
		log_warn("net: %s; it is lost, and so are others like it", words[why]);
	net->logged[why] = true;
}

/* link and backend */

static void set_status(struct net *net, bool up)
{
	uint16_t status = up ? VIRTIO_NET_S_LINK_UP : 0;

	if (net->config.status == status)
		return;
	net->config.status = status;
	virtio_device_config_changed(&net->base);
}

static void drop_backend(struct net *net)
{
	loop_remove(net->source);
	net->source = NULL;
	fd_close(&net->fd);
	net->waiting = net->blocked = false;
}

void net_lose_backend(struct net *net, int error)
{
	log_warn("net: the tap is gone (%s): the link is down until another one is attached",
		error ? strerror(-error) : "end of file");
	drop_backend(net);
	set_status(net, false);
}

/*
 * A tap tells of room only to those who asked for it while it was full, and it may have some again by now.
 * Setting the events anew asks, and has an edge come if so.
 */
void net_block(struct net *net)
{
	net->blocked = true;
	(void)loop_set_events(net->source, BACKEND_EVENTS); /* cannot fail for an fd that is watched */
}

/* Throws away what waits; an edge that tells of more may have been taken for it. */
static void drain(const struct net *net, int fd)
{
	uint8_t bytes[STALE_BYTES];
	struct iovec piece = {.iov_base = bytes, .iov_len = sizeof(bytes)};

	for (unsigned i = 0; i < NET_STALE_MAX; i++) {
		ssize_t got = net->backend->receive(fd, &piece, 1);

		if (got <= 0 && got != -EBADMSG)
			return;
	}
}

/* 5.1.3.1: what each feature needs is looked at here, for a driver may take one without the other. */
static unsigned offloads_of(const struct net *net)
{
	unsigned offloads = NET_OFFLOAD_CSUM;

	if (!net->started || !virtio_device_has(&net->base, VIRTIO_NET_F_GUEST_CSUM))
		return 0;
	if (virtio_device_has(&net->base, VIRTIO_NET_F_GUEST_TSO4))
		offloads |= NET_OFFLOAD_TSO4;
	if (virtio_device_has(&net->base, VIRTIO_NET_F_GUEST_TSO6))
		offloads |= NET_OFFLOAD_TSO6;
	if (offloads != NET_OFFLOAD_CSUM && virtio_device_has(&net->base, VIRTIO_NET_F_GUEST_ECN))
		offloads |= NET_OFFLOAD_ECN;
	return offloads;
}

/* A backend takes every set (see net_backend_ops). */
static void apply_offloads(struct net *net)
{
	if (net->fd >= 0)
		(void)net->backend->set_offloads(net->fd, offloads_of(net));
}

/* The driver runs since just now, if it does. */
static void start(struct net *net)
{
	if (net->started || !net->base.running)
		return;
	net->started = true;
	apply_offloads(net);
}

static void serve(struct net *net, unsigned queue)
{
	if (queue == NET_RX ? net_receive(net) : net_send(net))
		virtio_device_recall(&net->base, queue);
}

static void handle_backend(void *context, uint32_t events)
{
	struct net *net = context;

	virtio_device_enter(&net->base);
	start(net);
	if (events & EPOLLERR) {
		net_lose_backend(net, -ENODEV);
	} else {
		if (events & (EPOLLIN | EPOLLHUP))
			net->waiting = true;
		if ((events & EPOLLOUT) && net->blocked) {
			net->blocked = false;
			serve(net, NET_TX);
		}
		serve(net, NET_RX);
	}
	virtio_device_leave(&net->base);
}

/*
 * Watches fd, which no driver has asked anything of. What waits there may have been made for offloads that
 * are not ours. 0 or -errno; closes fd then.
 */
static int take_backend(struct net *net, int fd)
{
	struct loop_source *source;
	int r = net->backend->set_offloads(fd, 0);

	if (r < 0)
		goto fail;
	drain(net, fd);
	source = loop_add_fd(net->loop, fd, BACKEND_EVENTS, handle_backend, net);
	if (!source) {
		r = -errno;
		goto fail;
	}
	drop_backend(net);
	net->fd = fd;
	net->source = source;
	net->waiting = true;
	apply_offloads(net);
	net->backend->set_carrier(fd, net_is_up(net));
	return 0;
fail:
	fd_close(&fd);
	return r;
}

int net_attach(struct virtio_device *device, int fd)
{
	struct net *net = from_base(device);
	int r;

	virtio_device_enter(device);
	r = take_backend(net, fd);
	if (r == 0) {
		/* What the old one refused is tried anew. */
		virtio_device_recall(device, NET_TX);
		virtio_device_recall(device, NET_RX);
	}
	virtio_device_leave(device);
	return r;
}

int net_set_link(struct virtio_device *device, bool up)
{
	struct net *net = from_base(device);
	int r = 0;

	virtio_device_enter(device);
	if (up && net->fd < 0) {
		r = -ENOTCONN;
	} else if (up != net_is_up(net)) {
		if (up)
			drain(net, net->fd);
		if (net->fd >= 0)
			net->backend->set_carrier(net->fd, up);
		net->held_length = 0;
		net->waiting = true;
		net->blocked = false;
		set_status(net, up);
		virtio_device_recall(device, NET_TX);
		virtio_device_recall(device, NET_RX);
	}
	virtio_device_leave(device);
	return r;
}

struct net_counts net_counts(const struct virtio_device *device)
{
	const struct net *net = (const struct net *)device;

	return (struct net_counts){
		.sent = atomic_load_explicit(&net->sent, memory_order_relaxed),
		.received = atomic_load_explicit(&net->received, memory_order_relaxed),
		.lost_sent = atomic_load_explicit(&net->lost_sent, memory_order_relaxed),
		.lost_received = atomic_load_explicit(&net->lost_received, memory_order_relaxed),
	};
}

/* operations */

static bool notify(struct virtio_device *device, unsigned queue)
{
	struct net *net = from_base(device);

	start(net);
	return queue == NET_RX ? net_receive(net) : net_send(net);
}

/* What waits at the backend is for the driver that is gone, and in its shape. */
static void reset(struct virtio_device *device)
{
	struct net *net = from_base(device);

	net_receive_reset(net);
	net->blocked = false;
	if (!net->started)
		return;
	net->started = false;
	apply_offloads(net);
	if (net->fd >= 0)
		drain(net, net->fd);
	net->waiting = true;
}

/* The link is as the host's side has it; a packet that is held is lost, as packets may be. */
static void save(const struct virtio_device *device, struct state_writer *state)
{
	const struct net *net = (const struct net *)device;

	state_put_bytes(state, net->config.mac, sizeof(net->config.mac));
	state_put_u16(state, net->config.status);
}

static void load(struct virtio_device *device, struct state_reader *state)
{
	struct net *net = from_base(device);
	uint16_t status = net->config.status;

	state_get_bytes(state, net->config.mac, sizeof(net->config.mac));
	net->config.status = state_get_u16(state);
	if (net->config.status & ~VIRTIO_NET_S_LINK_UP)
		state_refuse(state);
	set_status(net, status & VIRTIO_NET_S_LINK_UP);
}

static void destroy(struct virtio_device *device)
{
	struct net *net = from_base(device);

	drop_backend(net);
	free(net->held);
	free(net);
}

static const struct virtio_device_ops net_ops = {
	.notify = notify,
	.reset = reset,
	.save = save,
	.load = load,
	.destroy = destroy,
};

/* create */

static const unsigned net_features[] = {
	VIRTIO_NET_F_MAC,
	VIRTIO_NET_F_STATUS,
	VIRTIO_NET_F_MRG_RXBUF,
	VIRTIO_NET_F_CSUM,
	VIRTIO_NET_F_HOST_TSO4,
	VIRTIO_NET_F_HOST_TSO6,
	VIRTIO_NET_F_HOST_ECN,
	VIRTIO_NET_F_GUEST_CSUM,
	VIRTIO_NET_F_GUEST_TSO4,
	VIRTIO_NET_F_GUEST_TSO6,
	VIRTIO_NET_F_GUEST_ECN,
};

static void init_device(struct net *net, const struct net_config *config)
{
	net->base = (struct virtio_device){
		.ops = &net_ops,
		.name = "net",
		.id = VIRTIO_ID_NET,
		.features = VIRTIO_FEATURES_COMMON,
		.config = &net->config,
		.config_length = offsetof(struct virtio_net_config, max_virtqueue_pairs),
		.queue_count = 2,
	};
	for (size_t i = 0; i < sizeof(net_features) / sizeof(net_features[0]); i++)
		net->base.features |= VIRTIO_FEATURE(net_features[i]);
	net->base.queues[NET_RX].size_max = NET_QUEUE_SIZE;
	net->base.queues[NET_TX].size_max = NET_QUEUE_SIZE;
	memcpy(net->config.mac, config->mac, sizeof(net->config.mac));
	net->backend = config->backend;
	net->loop = config->loop;
	net->fd = -1;
}

int net_create(const struct net_config *config, struct virtio_device **out)
{
	struct net *net = calloc(1, sizeof(*net));
	int fd = config->fd, r = -ENOMEM;

	if (!net)
		goto fail;
	init_device(net, config);
	net->held = calloc(1, NET_HELD_BYTES); /* nothing of ours goes to the guest */
	if (!net->held)
		goto fail;
	if (fd >= 0) {
		net->config.status = VIRTIO_NET_S_LINK_UP;
		r = take_backend(net, fd);
		fd = -1;
		if (r < 0)
			goto fail;
	}
	*out = &net->base;
	return 0;
fail:
	fd_close(&fd);
	if (net)
		destroy(&net->base);
	return r;
}
