/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/list.h"

#include <stddef.h>

void list_add(struct list *list, struct list_entry *entry)
{
	entry->next = list->first;
	entry->link = &list->first;
	if (entry->next)
		entry->next->link = &entry->next;
	list->first = entry;
}

void list_remove(struct list_entry *entry)
{
	if (!entry->link)
		return;
	*entry->link = entry->next;
	if (entry->next)
		entry->next->link = entry->link;
	entry->link = NULL;
}

struct list_entry *list_take(struct list *list)
{
	struct list_entry *entry = list->first;

	if (entry)
		list_remove(entry);
	return entry;
}
