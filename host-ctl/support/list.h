/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of things that are part of their owners' memory: who waits for something, listens or watches. An
 * entry is the first member of its thing, so that a cast is the way from one to the other; it is in one list
 * at most, and knows by itself how to leave it.
 *
 * A list that is all zero is empty, an entry that is all zero is in none. Neither may be moved in memory
 * while one is in the other.
 */
#ifndef HOST_CTL_LIST_H
#define HOST_CTL_LIST_H

struct list_entry {
	struct list_entry *next, **link; /* link: what points to it; NULL: it is in no list */
};

struct list {
	struct list_entry *first;
};

/* At the front. Only what is in none. */
void list_add(struct list *list, struct list_entry *entry);
/* Takes one that is in no list. */
void list_remove(struct list_entry *entry);
/* Takes out the first; NULL: there is none. */
struct list_entry *list_take(struct list *list);

#endif
