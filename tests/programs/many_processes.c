// SPDX-License-Identifier: MIT
/*
 * 64 processes on one card. Each sends a hundred messages to the next in a ring, and each writes into the memory of
 * the first. With "small" the same with a /dev/shm of 64 MiB, as containers have it.
 */
#include "common.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

enum { PROCESSES = 64, MESSAGES = 100, SLOT = 256 };

/* A process has two QPs: from its predecessor, and to its successor. Its memory is open to all. */
struct place {
	struct address in, out;
};

/* What the parent tells each about the others. */
struct neighbours {
	int index;
	struct address before, after; /* before.out and after.in */
	struct address hub;           /* the first one's QP that is ours */
};

static struct ibv_qp *hub_qps[PROCESSES];

static void open_with_two(struct node *in, struct node *out)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.cap.max_recv_wr = attr.cap.max_send_wr = 16;
	node_open(in, &attr);
	*out = *in;
	out->qp = node_create_qp(out);
	check(out->qp, "%s", strerror(errno));
}

/* Take one message from the process before us, where there is one; it says who sent it and which it is. */
static bool take(struct node *in, int index, int *got)
{
	int before = (index + PROCESSES - 1) % PROCESSES;
	struct ibv_wc wc;

	if (ibv_poll_cq(in->recv_cq, 1, &wc) == 0)
		return false;
	check_status(&wc, IBV_WC_SUCCESS);
	check(pattern_check(in->buf + 8192 + wc.wr_id * SLOT, SLOT,
			    (uint32_t)(before * 1000 + *got)) == SLOT,
	      "process %d: message %d", index, *got);
	(*got)++;
	check_eq(node_recv(in, wc.wr_id, 8192 + wc.wr_id * SLOT, SLOT), 0);
	return true;
}

/* Send to the next, one at a time, and receive from the one before. */
static void ring(struct node *in, struct node *out, int index)
{
	uint64_t limit = now_us() + 3ull * PATIENCE_MS * 1000;
	int posted = 0, sent = 0, got = 0;
	struct ibv_wc wc;

	for (uint64_t i = 0; i < 16; i++)
		check_eq(node_recv(in, i, 8192 + i * SLOT, SLOT), 0);
	while (sent < MESSAGES || got < MESSAGES) {
		check(now_us() < limit, "process %d: %d sent, %d received", index, sent, got);
		if (posted == sent && sent < MESSAGES) {
			pattern_fill(out->buf, SLOT, (uint32_t)(index * 1000 + sent));
			check_eq(node_send(out, 1, 0, SLOT, IBV_SEND_SIGNALED), 0);
			posted++;
		}
		if (ibv_poll_cq(out->send_cq, 1, &wc) > 0) {
			check_status(&wc, IBV_WC_SUCCESS);
			sent++;
		}
		/* 64 processes share the cores: whoever has nothing to do lets others run. */
		if (!take(in, index, &got))
			sched_yield();
	}
}

/* The first process offers one QP to each; all write and add into its memory at once. */
static void star_target(struct node *in, const struct address *others)
{
	struct node side = *in;

	for (int i = 1; i < PROCESSES; i++) {
		side.qp = hub_qps[i];
		node_connect(&side, &others[i]);
	}
}

static void star_writer(struct node *out, const struct neighbours *nb)
{
	for (uint64_t i = 0; i < 20; i++) {
		pattern_fill(out->buf, 64, (uint32_t)nb->index);
		check_eq(node_rdma(out, i, IBV_WR_RDMA_WRITE, 0, 64, &nb->hub,
				   (size_t)nb->index * 64),
			 0);
		cq_expect(out->send_cq, i, IBV_WC_SUCCESS);
		check_eq(node_rdma(out, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 128, 8, &nb->hub, 32768),
			 0);
		cq_expect(out->send_cq, i, IBV_WC_SUCCESS);
	}
}

/* The first process makes its QPs for the others and tells the parent their numbers. */
static void star_offer(struct node *in)
{
	struct address at[PROCESSES];
	struct node side = *in;

	memset(at, 0, sizeof(at));
	memset(in->buf, 0, in->attr.size);
	for (int i = 1; i < PROCESSES; i++) {
		hub_qps[i] = side.qp = node_create_qp(in);
		check(side.qp, "%s", strerror(errno));
		node_address(&side, &at[i]);
	}
	msg_send(ROLE_FD, at, sizeof(at));
	msg_recv(ROLE_FD, at, sizeof(at));
	star_target(in, at);
}

static int member(void)
{
	struct node in, out;
	struct place place;
	struct neighbours nb;
	struct address mine;
	char go = 1;

	open_with_two(&in, &out);
	node_address(&in, &place.in);
	node_address(&out, &place.out);
	msg_send(ROLE_FD, &place, sizeof(place));
	msg_recv(ROLE_FD, &nb, sizeof(nb));
	node_connect(&in, &nb.before);
	node_connect(&out, &nb.after);
	msg_send(ROLE_FD, &go, 1);
	msg_recv(ROLE_FD, &go, 1);
	ring(&in, &out, nb.index);
	check_eq(ibv_destroy_qp(out.qp), 0);
	out.qp = NULL;
	if (nb.index == 0) {
		star_offer(&in);
	} else {
		out.qp = node_create_qp(&out);
		check(out.qp, "%s", strerror(errno));
		node_address(&out, &mine);
		msg_send(ROLE_FD, &mine, sizeof(mine));
		msg_recv(ROLE_FD, &nb.hub, sizeof(nb.hub));
		node_connect(&out, &nb.hub);
	}
	msg_send(ROLE_FD, &go, 1);
	msg_recv(ROLE_FD, &go, 1);
	if (nb.index)
		star_writer(&out, &nb);
	msg_send(ROLE_FD, &go, 1);
	msg_recv(ROLE_FD, &go, 1); /* all have written */
	if (nb.index == 0) {
		for (int i = 1; i < PROCESSES; i++)
			check(pattern_check(in.buf + i * 64, 64, (uint32_t)i) == 64, "writer %d",
			      i);
		check_eq(*(uint64_t *)(in.buf + 32768), 20 * (PROCESSES - 1));
		for (int i = 1; i < PROCESSES; i++)
			check_eq(ibv_destroy_qp(hub_qps[i]), 0);
	} else {
		check_eq(ibv_destroy_qp(out.qp), 0);
	}
	node_close(&in);
	return 0;
}

static int fds[PROCESSES];

/* All have come to this point; then all go on. */
static void barrier(void)
{
	char go;

	for (int i = 0; i < PROCESSES; i++)
		msg_recv(fds[i], &go, 1);
	for (int i = 0; i < PROCESSES; i++)
		msg_send(fds[i], &go, 1);
}

static void conduct(void)
{
	static struct place places[PROCESSES];
	static struct address hub[PROCESSES], others[PROCESSES];
	struct neighbours nb;

	for (int i = 0; i < PROCESSES; i++)
		msg_recv(fds[i], &places[i], sizeof(places[i]));
	for (int i = 0; i < PROCESSES; i++) {
		memset(&nb, 0, sizeof(nb));
		nb.index = i;
		nb.before = places[(i + PROCESSES - 1) % PROCESSES].out;
		nb.after = places[(i + 1) % PROCESSES].in;
		msg_send(fds[i], &nb, sizeof(nb));
	}
	barrier(); /* connected; the ring runs */
	for (int i = 1; i < PROCESSES; i++)
		msg_recv(fds[i], &others[i], sizeof(others[i]));
	msg_recv(fds[0], hub, sizeof(hub));
	msg_send(fds[0], others, sizeof(others));
	for (int i = 1; i < PROCESSES; i++)
		msg_send(fds[i], &hub[i], sizeof(hub[i]));
	barrier(); /* connected; the star runs */
	barrier(); /* all have written */
}

int main(int argc, char **argv)
{
	pid_t pids[PROCESSES];

	if (argc > 1 && !strcmp(argv[1], "member"))
		return member();
	if (argc > 1 && !strcmp(argv[1], "small"))
		enter_small_shm("size=64m,mode=1777");
	for (int i = 0; i < PROCESSES; i++)
		pids[i] = spawn_self("member", &fds[i]);
	conduct();
	for (int i = 0; i < PROCESSES; i++)
		spawn_wait(pids[i]);
	return 0;
}
