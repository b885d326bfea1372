// SPDX-License-Identifier: MIT
/*
 * Links: that one that lies over another sees and may change all that passes, both ways and in layers, and that a link which is no
 * memory needs nothing but its operations. Two hosts in one process.
 *
 *	host a ---- [record] [spoil] shm ---- [count] shm ---- host b      links over links
 *	host a ---- wire: a socket, whose descriptor wakes ---- host b     another medium, with the path MTU
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hosts_kit.h"
#include "base/rcu.h"

enum { MOST = 64 };

/* --- links over links -------------------------------------------------------------------------- */

/* What happens to the packet with this number, once. */
enum fate { PASSES, IS_LOST, IS_REPEATED, IS_SWAPPED, FATES };

static struct spoiler {
	struct vb_link_ops ops;
	struct vb_link link;
	uint8_t fate[MOST]; /* enum fate, by PSN */
	uint32_t held;      /* 1 + the number of the packet that goes behind the next one */
} spoiler;

static struct recorder {
	struct vb_link_ops ops;
	struct vb_link link;
	_Atomic uint32_t count; /* after the number of its packet */
	uint32_t psn[MOST];
} sent, arrived;

static uint32_t payload_of[MOST];

static struct vb_pkt make_pkt(uint32_t psn, struct iovec *iov)
{
	payload_of[psn] = ~psn;
	*iov = (struct iovec){ &payload_of[psn], sizeof(payload_of[psn]) };
	return (struct vb_pkt){ .op = VB_PKT_SEND,
				.flags = VB_PKT_ONLY,
				.transport = IBV_QPT_RC,
				.psn = psn,
				.iov = iov,
				.iov_cnt = 1,
				.len = sizeof(payload_of[psn]) };
}

static int spoil(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	enum fate fate = spoiler.fate[pkt->psn];
	uint32_t held = spoiler.held;
	int ret;

	spoiler.fate[pkt->psn] = PASSES;
	if (fate == IS_LOST)
		return 0;
	if (fate == IS_SWAPPED) {
		spoiler.held = 1 + pkt->psn;
		return 0;
	}
	ret = vb_link_pass.send(link, path, pkt);
	if (!ret && fate == IS_REPEATED)
		ret = vb_link_pass.send(link, path, pkt);
	if (!ret && held) {
		struct iovec iov;
		struct vb_pkt late = make_pkt(held - 1, &iov);

		spoiler.held = 0;
		ret = vb_link_pass.send(link, path, &late);
	}
	return ret;
}

static void record(struct recorder *recorder, const struct vb_pkt *pkt)
{
	check(recorder->count < MOST, "too many packets");
	recorder->psn[recorder->count] = pkt->psn;
	recorder->count++;
}

static int record_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	record(&sent, pkt);
	return vb_link_pass.send(link, path, pkt);
}

/* Takes all, and hands on what is due next: the card counts without a gap. */
static void record_receive(struct vb_link *link, const struct vb_pkt *pkt)
{
	record(&arrived, pkt);
	if (pkt->psn == link->fabric->card->taken)
		vb_link_pass.receive(link, pkt);
}

static void make_wrapping(struct pair *pair)
{
	memset(pair, 0, sizeof(*pair));
	host_make(pair, 0);
	host_make(pair, 1);
	memset(&spoiler, 0, sizeof(spoiler));
	memset(&sent, 0, sizeof(sent));
	memset(&arrived, 0, sizeof(arrived));
	spoiler.ops = sent.ops = arrived.ops = vb_link_pass;
	spoiler.ops.name = "spoil";
	spoiler.ops.send = spoil;
	sent.ops.send = record_send;
	arrived.ops.receive = record_receive;
	spoiler.link.ops = &spoiler.ops;
	sent.link.ops = &sent.ops;
	arrived.link.ops = &arrived.ops;
	check_eq(vb_link_wrap(pair->host[0]->fabric, "nothing", &spoiler.link), -ENOENT);
	check_eq(vb_link_wrap(pair->host[0]->fabric, "shm", &spoiler.link), 0);
	check_eq(vb_link_wrap(pair->host[0]->fabric, "spoil", &sent.link), 0);
	check_eq(vb_link_wrap(pair->host[1]->fabric, "shm", &arrived.link), 0);
	for (int i = 0; i < 2; i++)
		check_eq(vb_fabric_start(pair->host[i], &counting_sink), 0);
}

static void expect_recorded(struct recorder *recorder, const uint32_t *psn, uint32_t count)
{
	check_eq(recorder->count, count);
	for (uint32_t i = 0; i < count; i++)
		check_eq(recorder->psn[i], psn[i]);
}

static void await_arrived(uint32_t count)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (arrived.count < count)
		check(now_us() < end, "%u packets of %u came", arrived.count, count);
}

/* Loss, repetition and exchange below the link that records what was sent, and above the one that records what came. */
static void spoiled(void)
{
	static const uint32_t all[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	static const uint32_t came[] = { 0, 2, 3, 3, 5, 4, 6, 7 };
	struct vb_path path;
	struct pair pair;

	make_wrapping(&pair);
	spoiler.fate[1] = IS_LOST;
	spoiler.fate[3] = IS_REPEATED;
	spoiler.fate[4] = IS_SWAPPED;
	open_to(&path, &pair, 0, 1);
	check(path.link == &sent.link, "the path is not that of the link on top");
	/* One that looks at packets is to see them: queues that are lent are not written to. */
	check(vb_path_can(&path, VB_PATH_DIRECT) && !vb_path_can(&path, VB_PATH_DELIVERS), "caps");
	for (uint32_t psn = 0; psn < 8; psn++)
		check_eq(send_one(&path, psn), 0);
	await_arrived(8);
	expect_recorded(&sent, all, 8);
	expect_recorded(&arrived, came, 8);
	check_eq(pair.card[1].taken, 1); /* number 1 was lost */
	/* Sent again by whoever has a timer. */
	check_eq(send_one(&path, 1), 0);
	await_taken(&pair.card[1], 2);
	vb_path_close(&path);
	pair_stop(&pair);
}

/* The other way there is no link over shm on the way out: a link on one end concerns nobody else. */
static void one_way(void)
{
	struct pair pair;

	make_wrapping(&pair);
	talk(&pair, 1, 0, 1000);
	check_eq(sent.count, 0);
	check_eq(arrived.count, 0);
	pair_stop(&pair);
}

/* --- another medium ---------------------------------------------------------------------------- */

/* An end of a socket as a host's network. A packet is a datagram: its number, and its payload. */
struct wire {
	struct vb_link link;
	struct vb_lock lock; /* of reading */
	int fd;
	_Atomic bool readable;
	uint32_t started, stopped, forked, watched;
	int refuses; /* start() fails with this */
	int raises;  /* start() and stop() are interrupted by this signal */
};

static struct wire *wire_of(struct vb_link *link)
{
	return (struct wire *)link;
}

static int wire_peek(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		     bool local, uint32_t qpn)
{
	(void)qpn;
	if (local)
		return -ENETUNREACH;
	*path = (struct vb_path){
		.link = link, .caps = VB_PATH_REACHES, .mtu = to->mtu, .span = to->mtu
	};
	return 0;
}

static int wire_open(struct vb_link *link, struct vb_path *path, const struct vb_address *to,
		     bool local, uint32_t qpn, uint32_t from)
{
	(void)from;
	return wire_peek(link, path, to, local, qpn);
}

static int wire_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	uint32_t psn = pkt->psn;
	struct iovec iov[2] = { { &psn, sizeof(psn) }, pkt->iov[0] };

	check(pkt->len <= path->mtu, "a packet of %u bytes", pkt->len);
	return writev(wire_of(link)->fd, iov, 2) < 0 ? (errno == EAGAIN ? -EAGAIN : -EHOSTDOWN) : 0;
}

static void wire_nothing(struct vb_link *link, struct vb_path *path)
{
	(void)link;
	(void)path;
}

static bool wire_alive(struct vb_link *link, struct vb_path *path)
{
	(void)link;
	(void)path;
	return true;
}

static uint32_t wire_poll(struct vb_link *link, bool thorough)
{
	struct wire *wire = wire_of(link);
	uint32_t psn, payload, n = 0;
	struct iovec iov[2] = { { &psn, sizeof(psn) }, { &payload, sizeof(payload) } };

	(void)thorough;
	if (!vb_trylock(&wire->lock))
		return 0;
	atomic_store(&wire->readable, false);
	for (; readv(wire->fd, iov, 2) == sizeof(psn) + sizeof(payload); n++)
		vb_link_deliver(link, &(struct vb_pkt){ .op = VB_PKT_SEND,
							.psn = psn,
							.iov = &iov[1],
							.iov_cnt = 1,
							.len = sizeof(payload) });
	vb_unlock(&wire->lock);
	if (n)
		link->fabric->sink->received(link->fabric->card);
	return n;
}

static enum vb_link_left wire_pending(struct vb_link *link)
{
	return atomic_load(&wire_of(link)->readable) ? VB_LEFT_UNREAD : VB_LEFT_NOTHING;
}

static bool wire_readable(struct vb_link *link, int fd)
{
	struct wire *wire = wire_of(link);

	if (fd != wire->fd)
		return false;
	wire->watched++;
	atomic_store(&wire->readable, true);
	return true;
}

static int wire_start(struct vb_link *link)
{
	struct wire *wire = wire_of(link);

	if (wire->refuses)
		return wire->refuses;
	if (wire->raises)
		raise(wire->raises);
	wire->started++;
	return vb_link_watch(link, wire->fd);
}

static void wire_stop(struct vb_link *link)
{
	wire_of(link)->stopped++;
	if (wire_of(link)->raises)
		raise(wire_of(link)->raises);
	vb_link_unwatch(link, wire_of(link)->fd);
}

static void wire_forked(struct vb_link *link)
{
	wire_of(link)->forked++;
}

static const struct vb_link_ops wire_ops = {
	.name = "wire",
	.peek = wire_peek,
	.open = wire_open,
	.send = wire_send,
	.flush = wire_nothing,
	.alive = wire_alive,
	.close = wire_nothing,
	.drop = wire_nothing,
	.poll = wire_poll,
	.pending = wire_pending,
	.readable = wire_readable,
	.start = wire_start,
	.stop = wire_stop,
	.forked = wire_forked,
};

static void wires_make(struct wire wire[2], struct pair *pair)
{
	int fd[2];

	check_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
	memset(pair, 0, sizeof(*pair));
	memset(wire, 0, 2 * sizeof(*wire));
	for (int i = 0; i < 2; i++) {
		host_make(pair, i);
		wire[i].fd = fd[i];
		wire[i].link.ops = &wire_ops;
		vb_link_add(pair->host[i]->fabric, &wire[i].link);
	}
}

static void open_far(struct vb_path *path, const struct pair *pair, int from)
{
	union ibv_gid gid = { .raw = { FAR_AWAY } };
	struct vb_address to = { .dgid = &gid, .mtu = 1024, .transport = IBV_QPT_RC };

	check_eq(vb_path_open(pair->host[from]->fabric, path, &to, 17, 1), 0);
}

/* The address decides which link leads there. The descriptor wakes the other host, whose program polls nothing. */
static void descriptor(void)
{
	struct vb_path far, near;
	struct wire wire[2];
	struct pair pair;

	wires_make(wire, &pair);
	for (int i = 0; i < 2; i++)
		check_eq(vb_fabric_start(pair.host[i], &counting_sink), 0);
	open_far(&far, &pair, 0);
	check(far.link == &wire[0].link, "by another link");
	check_eq(far.transport, IBV_QPT_RC);
	check_eq(far.mtu, 1024);
	check_eq(far.span, 1024);
	open_to(&near, &pair, 0, 1);
	check(near.link == &pair.host[0]->fabric->shm, "by another link");
	check_eq(near.span, VB_SHM_SPAN);
	for (uint32_t psn = 0; psn < 100; psn++) {
		check_eq(send_one(psn % 2 ? &far : &near, psn), 0);
		await_taken(&pair.card[1], psn + 1);
	}
	check(wire[1].watched > 0, "nothing was heard of the descriptor");
	check_eq(wire[0].watched, 0);
	vb_path_close(&far);
	vb_path_close(&near);
	pair_stop(&pair);
	check_eq(wire[1].started, 1);
	check_eq(wire[1].stopped, 1);
	check_eq(wire[1].forked, 0);
	close(wire[0].fd);
	close(wire[1].fd);
}

/* A link that cannot start is a host that cannot; nothing is left of it, and it may start later. */
static void refusal(void)
{
	struct wire wire[2];
	struct pair pair;

	wires_make(wire, &pair);
	wire[0].refuses = -ENODEV;
	check_eq(vb_fabric_start(pair.host[0], &counting_sink), -ENODEV);
	check_eq(wire[0].started + wire[0].stopped, 0);
	check(!pair.host[0]->fabric->segment, "the segment is left");
	check(!vb_registry_is_joined(pair.host[0]->meet), "the slot is left");
	wire[0].refuses = 0;
	for (int i = 0; i < 2; i++)
		check_eq(vb_fabric_start(pair.host[i], &counting_sink), 0);
	talk(&pair, 0, 1, 10);
	pair_stop(&pair);
	check_eq(wire[0].started, 1);
	check_eq(wire[0].stopped, 1);
	close(wire[0].fd);
	close(wire[1].fd);
}

/* A child hears that its links are the parent's. */
static void forks(void)
{
	struct wire wire[2];
	struct pair pair;
	pid_t pid;

	wires_make(wire, &pair);
	for (int i = 0; i < 2; i++)
		check_eq(vb_fabric_start(pair.host[i], &counting_sink), 0);
	pid = fork();
	if (!pid)
		_exit(wire[0].forked != 1 || wire[1].forked != 1 || wire[0].stopped);
	spawn_wait(pid);
	check_eq(wire[0].forked, 0);
	talk(&pair, 0, 1, 10);
	pair_stop(&pair);
	close(wire[0].fd);
	close(wire[1].fd);
}

static unsigned int handler_forks;

static void fork_in_handler(int sig)
{
	pid_t pid = fork();

	(void)sig;
	if (!pid)
		_exit(0);
	handler_forks++;
	spawn_wait(pid);
}

static int start_and_stop(void)
{
	struct wire wire[2];
	struct pair pair;

	wires_make(wire, &pair);
	wire[0].raises = SIGUSR1;
	signal(SIGUSR1, fork_in_handler);
	check_eq(vb_fabric_start(pair.host[0], &counting_sink), 0);
	check_eq(handler_forks, 1);
	vb_fabric_stop(pair.host[0]->fabric);
	check_eq(handler_forks, 2);
	return 0;
}

/* A handler forks in the middle of start and stop. Where that hangs, only another process can end it. */
static void forks_in_start(void)
{
	pid_t pid = fork(), ended = 0;
	int status = -1;

	if (!pid)
		_exit(start_and_stop());
	for (int i = 0; i < 2000 && !ended; i++) {
		ended = waitpid(pid, &status, WNOHANG);
		usleep(10000);
	}
	if (!ended)
		kill(pid, SIGKILL);
	check(ended == pid && !status, "wait status %#x", status);
}

int main(void)
{
	spoiled();
	one_way();
	descriptor();
	refusal();
	forks();
	forks_in_start();
	return 0;
}
