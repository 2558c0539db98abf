/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the vsock device: vsock.c is the device, vsock_packet.c what goes through its queues,
 * vsock_conn.c the connections and their host sockets. Everything here runs on the loop's thread with the
 * device's lock held.
 *
 *                    REQUEST sent            RESPONSE
 *   connect: WAITING ------------> REQUESTED ---------> ESTABLISHED <---- accept
 *               |                      |                     |
 *               +----------------------+---------------------+---> ENDED ---> removed
 *
 * WAITING survives a reset of the device: the guest knows nothing of it. It lasts until the driver is up and
 * has understood a TRANSPORT_RESET, if there was one. ENDED is over for the guest, but an RST may have to be
 * sent yet, or bytes that it sent before may wait for the host socket.
 */
#ifndef VMM_VIRTIO_VSOCK_CONN_H
#define VMM_VIRTIO_VSOCK_CONN_H

#include "vmm/virtio/virtio.h"
#include "vmm/virtio/vsock.h"
#include <linux/virtio_vsock.h>

enum { VSOCK_RX, VSOCK_TX, VSOCK_EVENT, VSOCK_QUEUES };
enum { VSOCK_HOST_CID = 2, VSOCK_HEADER = 44, VSOCK_BUCKETS = 64, VSOCK_EVENT_QUEUE_SIZE = 8 };
_Static_assert(sizeof(struct virtio_vsock_hdr) == VSOCK_HEADER, "wire layout");

enum vsock_conn_state { CONN_WAITING, CONN_REQUESTED, CONN_ESTABLISHED, CONN_ENDED };

/* Packets without data that a connection has to send: at most one of each. */
enum vsock_conn_owes {
	OWES_REQUEST = 1 << 0,
	OWES_RESPONSE = 1 << 1,
	OWES_RST = 1 << 2,
	OWES_SHUTDOWN = 1 << 3,
	OWES_CREDIT_UPDATE = 1 << 4,
	OWES_CREDIT_REQUEST = 1 << 5,
};

struct vsock;

struct vsock_conn {
	struct vsock *vsock;
	struct vsock_conn *next, *previous;		  /* of vsock->all */
	struct vsock_conn *hash_next;			  /* of a bucket; or of vsock->removed */
	struct vsock_conn *active_next, *active_previous; /* of vsock->active, when active */
	bool active, hashed, removed;

	enum vsock_conn_state state;
	uint32_t guest_port, host_port;
	unsigned owes;		 /* enum vsock_conn_owes */
	uint32_t guest_shutdown; /* VIRTIO_VSOCK_SHUTDOWN_*: what the guest said it does no more */
	uint32_t host_shutdown;	 /* the same for the host side; told by OWES_SHUTDOWN */

	int fd;			    /* -1 once the host side is over */
	struct loop_source *source; /* NULL too after a hang-up, which epoll would report for ever */
	uint32_t events;	    /* what source waits for */
	bool readable;		    /* fd may have bytes, or its end, to read; not waited for then */
	bool hung_up;		    /* the peer of fd is gone */
	void (*done)(void *context, int status); /* NULL once called */
	void *context;

	/* guest to host: free-running counts of bytes; received - forwarded are in buffer */
	uint32_t received, forwarded;
	uint32_t told;	 /* forwarded as the guest knows it */
	uint8_t *buffer; /* a ring of VSOCK_BUFFER bytes, taken when the host socket is first full */
	uint32_t buffer_start;

	/* host to guest */
	uint32_t sent, peer_buffer, peer_forwarded;
	bool asked_credit; /* since the credit ran out */
};

struct vsock {
	struct virtio_device base;
	struct virtio_vsock_config config;
	struct loop *loop;
	int (*accept)(void *context, uint32_t guest_port, uint32_t host_port);
	void *context;

	struct vsock_conn *buckets[VSOCK_BUCKETS];
	struct vsock_conn *all;
	struct vsock_conn *removed; /* freed when nothing above them on the stack can know them */
	struct vsock_conn *active_first, *active_last; /* have something for the guest; served in turn */
	unsigned count;
	uint32_t next_port;

	struct virtio_vsock_hdr resets[VSOCK_RESETS_MAX]; /* a ring of RSTs that no connection sends */
	unsigned resets_start, resets_count;
	bool tx_stalled; /* the tx queue waits for room in resets */
	bool rx_touched; /* buffers for the first packets are this machine's own */

	/* A TRANSPORT_RESET: to be told, then told and not understood yet, for the guest has not given its
	 * buffer back. Until then no connection is asked for: the guest would end it with the old ones. */
	bool event_pending, event_told;
	uint16_t event_available; /* beyond this index of the event queue, it is */
	unsigned events_held;	  /* told before a snapshot, and their buffers not given back then */
};

/* vsock_conn.c */

struct vsock_conn *vsock_conn_find(struct vsock *vsock, uint32_t guest_port, uint32_t host_port);
/* Takes fd over, on failure too. 0; -EMFILE: too many; -ENOMEM; -errno of epoll_ctl. */
int vsock_conn_create(struct vsock *vsock, enum vsock_conn_state state, uint32_t guest_port,
	uint32_t host_port, int fd, struct vsock_conn **out);
/* Owes the guest a packet: the next pump sends it. */
void vsock_conn_owe(struct vsock_conn *conn, unsigned owes);
/* Puts it into the turn, if it has anything for the guest: packets it owes, or bytes that the guest has room
 * for. */
void vsock_conn_activate(struct vsock_conn *conn);
void vsock_conn_deactivate(struct vsock_conn *conn);
/* Waits for what the host socket should tell next. */
void vsock_conn_watch(struct vsock_conn *conn);

/* The guest accepted. */
void vsock_conn_establish(struct vsock_conn *conn);
/* The guest broke a rule or we cannot go on: an RST goes out and the stream is closed. */
void vsock_conn_abort(struct vsock_conn *conn);
/* Nothing more comes from the guest, for it has closed (then it is owed an RST) or reset or vanished. */
void vsock_conn_end(struct vsock_conn *conn, bool owe_rst);
/* The RST that was owed is sent. */
void vsock_conn_reset_sent(struct vsock_conn *conn);
/* The guest said what it does no more. */
void vsock_conn_shutdown(struct vsock_conn *conn, uint32_t flags);
/* Bytes from the guest; aborts on a broken rule. */
void vsock_conn_receive(struct vsock_conn *conn, struct virtq_bytes *bytes);
/* Reads from the host socket. Bytes, or 0: nothing now (readable is false, or the end is owed). */
uint32_t vsock_conn_read(struct vsock_conn *conn, struct virtq_bytes *room);
/* Bytes that the guest has room for. */
uint32_t vsock_conn_credit(const struct vsock_conn *conn);

/* The driver is gone: all end but those WAITING, which have no turn until vsock_conn_activate_all. */
void vsock_conn_end_all(struct vsock *vsock);
/* Closes all at once; done gets -ECONNRESET. */
void vsock_conn_destroy_all(struct vsock *vsock);
/* Those WAITING may ask again. */
void vsock_conn_activate_all(struct vsock *vsock);
/* Frees what was removed. */
void vsock_conn_reap(struct vsock *vsock);

/* vsock_packet.c */

/* Takes packets from the tx queue. True: call again soon. */
bool vsock_packet_receive(struct vsock *vsock);
/* Sends what connections have for the guest, for as long as there are rx buffers; at most a round's worth. */
void vsock_packet_pump(struct vsock *vsock);
/* Tells a TRANSPORT_RESET that is pending, and looks whether one that was told is understood. */
void vsock_packet_event(struct vsock *vsock);

#endif
