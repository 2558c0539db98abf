/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver may write to the rings at any time. Each of its values is loaded once, by an atomic load, so
 * that what was checked is what is used.
 */
#include "vmm/virtio/virtq.h"
#include <errno.h>
#include <string.h>

enum {
	DESC_ALIGN = 16,
	AVAIL_ALIGN = 2,
	USED_ALIGN = 4,
	EVENT_BYTES = 2, /* used_event or avail_event, after the ring's entries (2.7.6, 2.7.8) */
};

static void *ring_pointer(
	const struct guest_memory *memory, gpa_t address, uint64_t length, unsigned align, int *error)
{
	void *pointer = NULL;

	if (*error)
		return NULL;
	if (address % align)
		*error = -EINVAL;
	else
		*error = guest_memory_pointer(memory, address, length, &pointer);
	return pointer;
}

int virtq_enable(struct virtq *queue, const struct guest_memory *memory, bool event_idx)
{
	uint64_t size = queue->size;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	int error = 0;

	if (queue->ready)
		return -EBUSY;
	if (size == 0 || size > queue->size_max || (size & (size - 1)))
		return -EINVAL;
	desc = ring_pointer(memory, queue->desc_address, size * sizeof(*desc), DESC_ALIGN, &error);
	avail = ring_pointer(memory, queue->avail_address,
		sizeof(*avail) + size * sizeof(avail->ring[0]) + EVENT_BYTES, AVAIL_ALIGN, &error);
	used = ring_pointer(memory, queue->used_address,
		sizeof(*used) + size * sizeof(used->ring[0]) + EVENT_BYTES, USED_ALIGN, &error);
	if (error)
		return error;
	queue->memory = memory;
	queue->desc = desc;
	queue->avail = avail;
	queue->used = used;
	queue->event_idx = event_idx;
	queue->next_avail = 0;
	queue->next_used = 0;
	queue->published_used = 0;
	queue->ready = true;
	return 0;
}

void virtq_continue(struct virtq *queue, uint16_t used)
{
	queue->next_avail = used;
	queue->next_used = used;
	queue->published_used = used;
}

void virtq_disable(struct virtq *queue)
{
	*queue = (struct virtq){.size_max = queue->size_max};
}

/* Where the driver says which used entry it wants an interrupt for. */
static uint16_t *used_event(struct virtq *queue)
{
	return &queue->avail->ring[queue->size];
}

/* Where we say which available entry we want a notification for. */
static uint16_t *avail_event(struct virtq *queue)
{
	return (uint16_t *)(void *)&queue->used->ring[queue->size];
}

void virtq_start(struct virtq *queue)
{
	if (!queue->ready)
		return;
	queue->live = true;
	/* An index that the driver's first entry has passed already. */
	if (queue->event_idx)
		__atomic_store_n(avail_event(queue), (uint16_t)(queue->next_avail - 1), __ATOMIC_RELAXED);
	else
		virtq_no_notify(queue);
}

static struct vring_desc load_desc(const struct vring_desc *desc)
{
	return (struct vring_desc){
		.addr = __atomic_load_n(&desc->addr, __ATOMIC_RELAXED),
		.len = __atomic_load_n(&desc->len, __ATOMIC_RELAXED),
		.flags = __atomic_load_n(&desc->flags, __ATOMIC_RELAXED),
		.next = __atomic_load_n(&desc->next, __ATOMIC_RELAXED),
	};
}

/* Chains are counted, not marked: more descriptors than the queue has are a loop or as bad. */
static int add_desc(
	struct virtq *queue, struct virtq_chain *chain, unsigned index, const struct vring_desc *desc)
{
	struct virtq_bytes *part = &chain->readable;
	void *pointer;
	int error;

	if (desc->len == 0 || (desc->flags & VRING_DESC_F_INDIRECT))
		return -EPROTO;
	if (desc->flags & VRING_DESC_F_WRITE)
		part = &chain->writable;
	else if (chain->writable.count)
		return -EPROTO;
	error = guest_memory_pointer(queue->memory, desc->addr, desc->len, &pointer);
	if (error)
		return error;
	if (part->count == 0)
		part->iov = &chain->iov[index];
	chain->iov[index] = (struct iovec){.iov_base = pointer, .iov_len = desc->len};
	part->count++;
	part->length += desc->len;
	return 0;
}

static int walk(struct virtq *queue, struct virtq_chain *chain)
{
	uint16_t next = chain->head;

	for (unsigned index = 0; index < queue->size; index++) {
		struct vring_desc desc;
		int error;

		if (next >= queue->size)
			return -EPROTO;
		desc = load_desc(&queue->desc[next]);
		error = add_desc(queue, chain, index, &desc);
		if (error)
			return error;
		if (!(desc.flags & VRING_DESC_F_NEXT))
			return 0;
		next = desc.next;
	}
	return -EPROTO;
}

/* Acquire: what the driver wrote before it moved the index (entry, descriptors, buffers) is read after it. */
static uint16_t load_avail_index(const struct virtq *queue)
{
	return __atomic_load_n(&queue->avail->idx, __ATOMIC_ACQUIRE);
}

int virtq_pop(struct virtq *queue, struct virtq_chain *chain)
{
	uint16_t ahead;
	int error;

	if (!queue->live)
		return 0;
	ahead = (uint16_t)(load_avail_index(queue) - queue->next_avail);
	if (ahead == 0)
		return 0;
	if (ahead > queue->size)
		return -EOVERFLOW;
	chain->readable = (struct virtq_bytes){.iov = chain->iov};
	chain->writable = (struct virtq_bytes){.iov = chain->iov};
	chain->head =
		__atomic_load_n(&queue->avail->ring[queue->next_avail & (queue->size - 1)], __ATOMIC_RELAXED);
	error = walk(queue, chain);
	if (error)
		return error;
	queue->next_avail++;
	return 1;
}

void virtq_unpop(struct virtq *queue)
{
	queue->next_avail--;
}

bool virtq_empty(const struct virtq *queue)
{
	return !queue->live || load_avail_index(queue) == queue->next_avail;
}

void virtq_push(struct virtq *queue, uint16_t head, uint32_t written)
{
	struct vring_used_elem *element;

	if (!queue->live)
		return;
	element = &queue->used->ring[queue->next_used & (queue->size - 1)];
	__atomic_store_n(&element->id, head, __ATOMIC_RELAXED);
	__atomic_store_n(&element->len, written, __ATOMIC_RELAXED);
	queue->next_used++;
}

bool virtq_publish(struct virtq *queue)
{
	uint16_t old = queue->published_used;
	uint16_t new = queue->next_used;

	if (!queue->live || new == old)
		return false;
	/* Release: entries and buffers are written before the index that shows them. */
	__atomic_store_n(&queue->used->idx, new, __ATOMIC_RELEASE);
	queue->published_used = new;
	/*
	 * Our index is stored before the driver's wish is loaded; the driver stores its wish before it loads
	 * our index. So one of the two sees the other's, and no interrupt is lost.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (queue->event_idx)
		return vring_need_event(__atomic_load_n(used_event(queue), __ATOMIC_RELAXED), new, old);
	return !(__atomic_load_n(&queue->avail->flags, __ATOMIC_RELAXED) & VRING_AVAIL_F_NO_INTERRUPT);
}

uint16_t virtq_available(const struct virtq *queue)
{
	return queue->live ? load_avail_index(queue) : 0;
}

/* Our wish is stored before the driver's index is loaded: the mirror of the fence in virtq_publish. */
static uint16_t want_index(struct virtq *queue, uint16_t index)
{
	if (queue->event_idx)
		__atomic_store_n(avail_event(queue), index, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&queue->used->flags, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return load_avail_index(queue);
}

bool virtq_want_beyond(struct virtq *queue, uint16_t available)
{
	return queue->live && (int16_t)(want_index(queue, available) - available) > 0;
}

bool virtq_want_notify(struct virtq *queue)
{
	return queue->live && want_index(queue, queue->next_avail) != queue->next_avail;
}

void virtq_no_notify(struct virtq *queue)
{
	if (queue->live && !queue->event_idx)
		__atomic_store_n(&queue->used->flags, VRING_USED_F_NO_NOTIFY, __ATOMIC_RELAXED);
}

struct virtq_bytes virtq_bytes_view(const struct virtq_bytes *bytes, struct iovec *pieces)
{
	memcpy(pieces, bytes->iov, bytes->count * sizeof(*pieces));
	return (struct virtq_bytes){.iov = pieces, .count = bytes->count, .length = bytes->length};
}

struct virtq_bytes virtq_bytes_front(const struct virtq_bytes *bytes, uint64_t length, struct iovec *pieces)
{
	struct virtq_bytes part = {.iov = pieces};

	while (part.length < length) {
		struct iovec piece = bytes->iov[part.count];

		if (piece.iov_len > length - part.length)
			piece.iov_len = length - part.length;
		pieces[part.count++] = piece;
		part.length += piece.iov_len;
	}
	return part;
}

/* The longest run of bytes at the front, at most length; consumes it. */
static size_t front(struct virtq_bytes *bytes, size_t length, uint8_t **where)
{
	size_t run = bytes->iov->iov_len < length ? bytes->iov->iov_len : length;

	*where = bytes->iov->iov_base;
	bytes->iov->iov_base = *where + run;
	bytes->iov->iov_len -= run;
	bytes->length -= run;
	if (bytes->iov->iov_len == 0) {
		bytes->iov++;
		bytes->count--;
	}
	return run;
}

int virtq_bytes_take(struct virtq_bytes *bytes, void *data, size_t length)
{
	uint8_t *to = data, *where;

	if (bytes->length < length)
		return -EMSGSIZE;
	while (length) {
		size_t run = front(bytes, length, &where);

		memcpy(to, where, run);
		to += run;
		length -= run;
	}
	return 0;
}

int virtq_bytes_put(struct virtq_bytes *bytes, const void *data, size_t length)
{
	const uint8_t *from = data;
	uint8_t *where;

	if (bytes->length < length)
		return -EMSGSIZE;
	while (length) {
		size_t run = front(bytes, length, &where);

		memcpy(where, from, run);
		from += run;
		length -= run;
	}
	return 0;
}

void virtq_bytes_skip(struct virtq_bytes *bytes, uint64_t length)
{
	uint8_t *where;

	while (length)
		length -= front(bytes, length, &where);
}

void virtq_bytes_truncate(struct virtq_bytes *bytes, uint64_t length)
{
	while (bytes->length > length) {
		struct iovec *last = &bytes->iov[bytes->count - 1];
		uint64_t excess = bytes->length - length;

		if (excess < last->iov_len) {
			last->iov_len -= excess;
			bytes->length = length;
		} else {
			bytes->length -= last->iov_len;
			bytes->count--;
		}
	}
}

uint8_t *virtq_bytes_cut_last(struct virtq_bytes *bytes)
{
	struct iovec *last;
	uint8_t *where;

	if (bytes->length == 0)
		return NULL;
	last = &bytes->iov[bytes->count - 1];
	where = (uint8_t *)last->iov_base + last->iov_len - 1;
	virtq_bytes_truncate(bytes, bytes->length - 1);
	return where;
}
