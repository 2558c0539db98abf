/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/report/changes.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t distance(const struct change *change)
{
	return change->after > change->before ? change->after - change->before
					      : change->before - change->after;
}

static bool is_small(const struct change *change, unsigned bound)
{
	uint64_t larger = change->after > change->before ? change->after : change->before;

	if (change->unit == CHANGE_COUNT)
		return false;
	return distance(change) < CHANGES_NS_MIN || (double)distance(change) * 100 <= (double)larger * bound;
}

/* Those of equal values are none. */
static int add(struct changes *changes, const struct change *change)
{
	enum { ROOM = 64 };
	struct change *grown;

	if (change->before == change->after)
		return 0;
	if (changes->count % ROOM == 0) {
		grown = realloc(changes->changes, (changes->count + ROOM) * sizeof(grown[0]));
		if (!grown)
			return -ENOMEM;
		changes->changes = grown;
	}
	changes->changes[changes->count] = *change;
	changes->changes[changes->count++].small = is_small(change, changes->bound);
	return 0;
}

static int add_pair(
	struct changes *changes, const char *name, enum change_unit unit, uint64_t before, uint64_t after)
{
	return add(changes, &(struct change){0, name, "", unit, before, after, false});
}

static int add_whole(struct changes *changes)
{
	const struct report *before = changes->before, *after = changes->after;
	const struct {
		const char *name;
		enum change_unit unit;
		uint64_t before, after;
	} figures[] = {
		{after->scope == TRACE_BOOT ? "start to hello" : "the trace", CHANGE_NS, before->end,
			after->end},
		{"in the guest", CHANGE_NS, before->guest_ns, after->guest_ns},
		{"handling exits", CHANGE_NS, before->handle_ns, after->handle_ns},
		{"in ioctls of KVM", CHANGE_NS, before->ioctl_ns, after->ioctl_ns},
		{"returns of KVM_RUN", CHANGE_COUNT, before->returns, after->returns},
		{"ioctls of KVM", CHANGE_COUNT, before->ioctls, after->ioctls},
		{"interrupts", CHANGE_COUNT, before->irqs, after->irqs},
		{"queues served", CHANGE_COUNT, before->notifications, after->notifications},
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(figures) / sizeof(figures[0]); i++)
		r = add_pair(changes, figures[i].name, figures[i].unit, figures[i].before, figures[i].after);
	return r;
}

/* A row of a list that is sorted otherwise. */
struct entry {
	const struct report_row *row;
};

static int by_key(const void *left, const void *right)
{
	const struct report_row *a = ((const struct entry *)left)->row,
				*b = ((const struct entry *)right)->row;
	int order = strcmp(a->name, b->name);

	if (order == 0)
		order = strcmp(a->detail, b->detail);
	return order ? order : (a->start > b->start) - (a->start < b->start);
}

/* The same, whenever they began. */
static int compare_names(const struct report_row *a, const struct report_row *b)
{
	int order = strcmp(a->name, b->name);

	return order ? order : strcmp(a->detail, b->detail);
}

/* The rows of a list in the order of their names; the caller's. */
static struct entry *sort_rows(const struct report_rows *list)
{
	struct entry *entries = calloc(list->count + 1, sizeof(entries[0]));

	for (size_t i = 0; entries && i < list->count; i++)
		entries[i].row = &list->rows[i];
	if (entries && list->count > 1)
		qsort(entries, list->count, sizeof(entries[0]), by_key);
	return entries;
}

/* A row of both; what one of them lacks is 0 there. row: one that is there. */
static int add_row(struct changes *changes, enum report_list list, const struct report_row *row,
	const struct report_row *before, const struct report_row *after)
{
	const struct report_shape *shape = &report_shapes[list];
	struct change change = {.place = 1 + (unsigned)list,
		.name = row->name,
		.detail = row->detail,
		.unit = CHANGE_COUNT,
		.before = before ? before->count : 0,
		.after = after ? after->count : 0};
	int r = shape->counts ? add(changes, &change) : 0;

	change.unit = CHANGE_NS;
	change.before = before ? before->ns : 0;
	change.after = after ? after->ns : 0;
	return r == 0 && shape->times ? add(changes, &change) : r;
}

/* Both sorted: each name once, from the one, the other, or both. A name that comes several times in a list
 * meets its own of the other list in turn. */
static int add_list(struct changes *changes, enum report_list list)
{
	const struct report_rows *of_before = &changes->before->lists[list],
				 *of_after = &changes->after->lists[list];
	struct entry *before = sort_rows(of_before), *after = sort_rows(of_after);
	size_t i = 0, j = 0;
	int r = before && after ? 0 : -ENOMEM;

	while (r == 0 && (i < of_before->count || j < of_after->count)) {
		int order = i == of_before->count  ? 1
			    : j == of_after->count ? -1
						   : compare_names(before[i].row, after[j].row);

		r = add_row(changes, list, order <= 0 ? before[i].row : after[j].row,
			order <= 0 ? before[i].row : NULL, order >= 0 ? after[j].row : NULL);
		i += order <= 0;
		j += order >= 0;
	}
	free(before);
	free(after);
	return r;
}

/* Large before small; within each by place, times before counts, the largest first. */
static int by_weight(const void *left, const void *right)
{
	const struct change *a = left, *b = right;

	if (a->small != b->small)
		return a->small ? 1 : -1;
	if (a->place != b->place)
		return a->place < b->place ? -1 : 1;
	if (a->unit != b->unit)
		return a->unit == CHANGE_NS ? -1 : 1;
	return distance(a) != distance(b) ? (distance(a) < distance(b) ? 1 : -1) : strcmp(a->name, b->name);
}

int changes_init(
	struct changes *changes, const struct report *before, const struct report *after, unsigned bound)
{
	int r;

	*changes = (struct changes){.before = before, .after = after, .bound = bound};
	r = add_whole(changes);
	for (size_t list = 0; r == 0 && list < REPORT_LISTS; list++)
		r = add_list(changes, (enum report_list)list);
	if (r == 0 && changes->count > 1)
		qsort(changes->changes, changes->count, sizeof(changes->changes[0]), by_weight);
	for (size_t i = 0; i < changes->count; i++)
		changes->large += !changes->changes[i].small;
	return r;
}

void changes_finish(struct changes *changes)
{
	free(changes->changes);
	*changes = (struct changes){0};
}

const char *changes_place_key(const struct change *change)
{
	return change->place ? report_shapes[change->place - 1].key : "whole";
}

const char *changes_place_title(const struct change *change)
{
	return change->place ? report_shapes[change->place - 1].title : "The whole";
}
