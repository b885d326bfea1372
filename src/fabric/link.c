// SPDX-License-Identifier: MIT
/*
 * Owns which links a host has, and the link that only passes on what goes through it. Called when a host starts,
 * and by what lays a link over another one.
 */
#include <errno.h>
#include <string.h>

#include "fabric/state.h"

/* Those at the top that receive, for progress.c. */
static void links_chain_receivers(struct vb_fabric *fabric)
{
	struct vb_link **end = &fabric->receivers;

	for (struct vb_link *link = fabric->links; link; link = link->next)
		if (link->ops->poll) {
			*end = link;
			end = &link->next_receiver;
		}
	*end = NULL;
}

static void links_append(struct vb_fabric *fabric, struct vb_link *link)
{
	struct vb_link **end = &fabric->links;

	while (*end)
		end = &(*end)->next;
	link->fabric = fabric;
	link->next = NULL;
	*end = link;
	links_chain_receivers(fabric);
}

void vb_links_init(struct vb_fabric *fabric)
{
	if (fabric->links)
		return;
	fabric->loop.ops = &vb_loop_ops;
	fabric->shm.ops = &vb_shm_ops;
	/* In the order of what is asked for most: datagrams ask with every packet. */
	links_append(fabric, &fabric->shm);
	links_append(fabric, &fabric->loop);
}

void vb_link_add(struct vb_fabric *fabric, struct vb_link *link)
{
	vb_links_init(fabric);
	links_append(fabric, link);
}

static bool link_has_name(const struct vb_link *link, const char *name)
{
	for (; link; link = link->under)
		if (!strcmp(link->ops->name, name))
			return true;
	return false;
}

int vb_link_wrap(struct vb_fabric *fabric, const char *name, struct vb_link *over)
{
	struct vb_link **at;

	vb_links_init(fabric);
	for (at = &fabric->links; *at && !link_has_name(*at, name); at = &(*at)->next)
		;
	if (!*at)
		return -ENOENT;
	over->fabric = fabric;
	over->under = *at;
	over->next = over->under->next;
	over->under->over = over;
	*at = over;
	links_chain_receivers(fabric);
	return 0;
}

int vb_link_watch(struct vb_link *link, int fd)
{
	int ret = vb_wait_add(&link->fabric->wait, fd);

	if (!ret)
		atomic_fetch_add_explicit(&link->fabric->watched, 1, memory_order_relaxed);
	return ret;
}

void vb_link_unwatch(struct vb_link *link, int fd)
{
	vb_wait_remove(&link->fabric->wait, fd);
	atomic_fetch_sub_explicit(&link->fabric->watched, 1, memory_order_relaxed);
}

/* --- a link that passes everything on --------------------------------------------------------- */

/* A path that the link below has made becomes one of this link. */
static int pass_taken(struct vb_link *link, struct vb_path *path, int ret)
{
	if (ret || !vb_path_can(path, VB_PATH_REACHES))
		return ret;
	path->link = link;
	/* A link that looks at packets is to see them. */
	path->caps &= (uint8_t)~VB_PATH_DELIVERS;
	return 0;
}

static int pass_peek(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		     bool local, uint32_t qpn)
{
	return pass_taken(link, path, link->under->ops->peek(link->under, path, to, local, qpn));
}

static int pass_open(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		     bool local, uint32_t qpn, uint32_t from)
{
	return pass_taken(link, path,
			  link->under->ops->open(link->under, path, to, local, qpn, from));
}

static int pass_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	return link->under->ops->send(link->under, path, pkt);
}

static void pass_flush(struct vb_link *link, struct vb_path *path)
{
	link->under->ops->flush(link->under, path);
}

static bool pass_alive(struct vb_link *link, struct vb_path *path)
{
	return link->under->ops->alive(link->under, path);
}

static bool pass_drained(struct vb_link *link, struct vb_path *path)
{
	return link->under->ops->drained(link->under, path);
}

static bool pass_unread(struct vb_link *link, struct vb_path *path)
{
	return link->under->ops->unread(link->under, path);
}

static bool pass_polled(struct vb_link *link, const struct vb_path *path)
{
	return link->under->ops->polled(link->under, path);
}

static uint32_t pass_expected(struct vb_link *link, struct vb_path *path, uint32_t qpn,
			      uint32_t sqpn, uint32_t otherwise)
{
	return link->under->ops->expected(link->under, path, qpn, sqpn, otherwise);
}

static __be64 pass_adapter(struct vb_link *link, struct vb_path *path, uint32_t qpn)
{
	return link->under->ops->adapter(link->under, path, qpn);
}

static uint64_t pass_connection(struct vb_link *link, struct vb_path *path, uint32_t qpn)
{
	return link->under->ops->connection(link->under, path, qpn);
}

static void pass_close(struct vb_link *link, struct vb_path *path)
{
	link->under->ops->close(link->under, path);
}

static void pass_drop(struct vb_link *link, struct vb_path *path)
{
	link->under->ops->drop(link->under, path);
}

static uint32_t pass_poll(struct vb_link *link, bool thorough)
{
	return link->under->ops->poll(link->under, thorough);
}

static enum vb_link_left pass_pending(struct vb_link *link)
{
	return link->under->ops->pending(link->under);
}

static void pass_tend(struct vb_link *link)
{
	if (link->under->ops->tend)
		link->under->ops->tend(link->under);
}

static bool pass_readable(struct vb_link *link, int fd)
{
	return link->under->ops->readable && link->under->ops->readable(link->under, fd);
}

static void pass_receive(struct vb_link *link, const struct vb_pkt *pkt)
{
	vb_link_deliver(link, pkt);
}

static int pass_start(struct vb_link *link)
{
	return link->under->ops->start ? link->under->ops->start(link->under) : 0;
}

static void pass_linger(struct vb_link *link)
{
	if (link->under->ops->linger)
		link->under->ops->linger(link->under);
}

static void pass_stop(struct vb_link *link)
{
	if (link->under->ops->stop)
		link->under->ops->stop(link->under);
}

static void pass_forked(struct vb_link *link)
{
	if (link->under->ops->forked)
		link->under->ops->forked(link->under);
}

const struct vb_link_ops vb_link_pass = {
	.name = "pass",
	.peek = pass_peek,
	.open = pass_open,
	.send = pass_send,
	.flush = pass_flush,
	.alive = pass_alive,
	.drained = pass_drained,
	.unread = pass_unread,
	.polled = pass_polled,
	.expected = pass_expected,
	.adapter = pass_adapter,
	.connection = pass_connection,
	.close = pass_close,
	.drop = pass_drop,
	.poll = pass_poll,
	.pending = pass_pending,
	.tend = pass_tend,
	.readable = pass_readable,
	.receive = pass_receive,
	.start = pass_start,
	.linger = pass_linger,
	.stop = pass_stop,
	.forked = pass_forked,
};
