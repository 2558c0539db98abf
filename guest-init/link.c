/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/link.h"
#include "guest-init/agent.h"
#include <errno.h>

enum { NS_PER_MS = 1000000 };

/* Never from within the call that reports an end: the slot of the stream is still in use there. */
static void try_again(struct link *link)
{
	loop_set_timer(link->timer, link->delay_ms ? link->delay_ms * NS_PER_MS : 1);
	link->waits = true;
	link->delay_ms = link->delay_ms ? 2 * link->delay_ms : LINK_RETRY_MIN_MS;
	if (link->delay_ms > LINK_RETRY_MAX_MS)
		link->delay_ms = LINK_RETRY_MAX_MS;
}

static int open_stream(struct link *link)
{
	int fd = link->connect(link->turn++);

	return fd < 0 ? fd : agent_add_outgoing(link->agent, fd);
}

static void time_is_up(void *context)
{
	struct link *link = context;

	link->waits = false;
	if (open_stream(link) < 0)
		try_again(link);
}

int link_init(struct link *link, struct loop *loop, struct agent *agent, int (*connect)(unsigned turn))
{
	*link = (struct link){.agent = agent, .connect = connect};
	if (!connect)
		return 0;
	link->timer = loop_add_timer(loop, time_is_up, link);
	return link->timer ? 0 : -errno;
}

void link_finish(struct link *link)
{
	loop_remove(link->timer);
	*link = (struct link){.agent = link->agent};
}

int link_open(struct link *link)
{
	return link->connect ? open_stream(link) : -ENOTCONN;
}

void link_connected(struct link *link)
{
	link->stood = true;
}

void link_proved(struct link *link)
{
	link->delay_ms = 0;
}

void link_hurry(struct link *link)
{
	if (link->waits)
		loop_set_timer(link->timer, 1);
}

void link_ended(struct link *link)
{
	if (link->timer && link->stood)
		try_again(link);
}
