// SPDX-License-Identifier: MIT
/*
 * Raw frames between processes of one host: what a RAW_PACKET queue sends reaches the receivers of the same adapter in
 * other processes, queue pairs and receive WQs driven by hand alike. Nobody waits for a receiver that is stopped, killed
 * or has nothing posted.
 *
 *	sender (this process)  -- frames -->  receiver (role "verbs", "events" or "raw")
 *	                       <-- socket --  what it got
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

enum { SLOTS = 32, SLOT = 9216, FLOOD = 3000, HEADER = 14 };

static struct node tx;
static struct raw rtx;

static void open_raw(struct node *node, bool events)
{
	struct node_attr attr = node_attr(IBV_QPT_RAW_PACKET);

	attr.size = (size_t)SLOTS * SLOT;
	attr.events = events;
	node_open(node, &attr);
	raw_to_rts(node->qp);
}

/* --- frames: an EtherType for experiments, a number, and a pattern made from it ------------------------- */

static void fill_frame(uint8_t *frame, uint32_t len, uint32_t number)
{
	memset(frame, 0xff, HEADER);
	frame[12] = 0x88;
	frame[13] = 0xb5;
	memcpy(frame + HEADER, &number, sizeof(number));
	pattern_fill(frame + HEADER + 4, len - HEADER - 4, number);
}

static uint32_t check_frame(const uint8_t *frame, uint32_t len)
{
	uint32_t number;

	check(len >= 60 && frame[12] == 0x88 && frame[13] == 0xb5);
	memcpy(&number, frame + HEADER, sizeof(number));
	check_eq(pattern_check(frame + HEADER + 4, len - HEADER - 4, number), len - HEADER - 4);
	return number;
}

static void send_frame(uint32_t len, uint32_t number)
{
	struct mlx4_cqe cqe;

	fill_frame(tx.buf, len, number);
	raw_send(&rtx, 0, len, MLX4_WQE_CTRL_CQ_UPDATE);
	raw_ring(&rtx);
	/* It waits for receivers that have no room. */
	raw_wait(&rtx.send, &cqe);
	check(mlx4dv_get_cqe_opcode(&cqe) != MLX4_CQE_OPCODE_ERROR);
	raw_free(&rtx, &cqe);
}

/* --- receivers ------------------------------------------------------------------------------------------ */

struct report {
	uint32_t number, len;
};

static void report(const uint8_t *frame, uint32_t len)
{
	struct report got = { check_frame(frame, len), len };

	/* The other side looks at the first of a flood only. */
	send(ROLE_FD, &got, sizeof(got), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void ready(void)
{
	char go = 1;

	msg_send(ROLE_FD, &go, 1);
}

static bool is_told_to_end(void)
{
	char byte;

	return recv(ROLE_FD, &byte, 1, MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR);
}

/* Until a completion event comes, or a message of the other side. */
static void sleep_for_event(struct node *rx)
{
	struct pollfd fds[] = { { .fd = rx->channel->fd, .events = POLLIN },
				{ .fd = ROLE_FD, .events = POLLIN } };
	struct ibv_cq *cq;
	void *context;

	check(poll(fds, 2, PATIENCE_MS) > 0);
	if (!fds[0].revents)
		return;
	check_eq(ibv_get_cq_event(rx->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	check_eq(ibv_req_notify_cq(rx->recv_cq, 0), 0);
}

/* A queue pair that receives with verbs, polling or asleep until an event wakes it. */
static void receive_verbs(bool events)
{
	struct ibv_flow *flow;
	struct node rx;
	struct ibv_wc wc;

	open_raw(&rx, events);
	flow = flow_all(rx.qp);
	if (events)
		check_eq(ibv_req_notify_cq(rx.recv_cq, 0), 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		check_eq(node_recv(&rx, i, (size_t)i * SLOT, SLOT), 0);
	ready();
	while (!is_told_to_end()) {
		if (ibv_poll_cq(rx.recv_cq, 1, &wc) != 1) {
			if (events)
				sleep_for_event(&rx);
			continue;
		}
		check_eq(wc.status, IBV_WC_SUCCESS);
		report(rx.buf + wc.wr_id * SLOT, wc.byte_len);
		check_eq(node_recv(&rx, wc.wr_id, (size_t)wc.wr_id * SLOT, SLOT), 0);
	}
	check_eq(ibv_destroy_flow(flow), 0);
	node_close(&rx);
}

static void post_wq(struct mlx4dv_rwq *dv, const struct node *rx, uint32_t index)
{
	struct mlx4_wqe_data_seg *seg =
		(void *)((char *)dv->buf.buf + dv->rq.offset +
			 ((size_t)(index & (dv->rq.wqe_cnt - 1)) << dv->rq.wqe_shift));

	mlx4dv_set_data_seg(seg, SLOT, rx->mr->lkey,
			    (uintptr_t)rx->buf + (size_t)(index % SLOTS) * SLOT);
	__atomic_store_n(dv->rdb, htobe32((index + 1) & 0xffff), __ATOMIC_RELEASE);
}

/* A receive WQ behind an indirection table, ring and CQ read by hand: no library call once it runs. */
static void receive_raw(void)
{
	static uint8_t key[40] = { 1 };
	struct node rx;
	struct ibv_wq *wq;
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = SLOTS, .max_sge = 1 };
	struct ibv_wq_attr rdy = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
	struct ibv_rwq_ind_table_init_attr table = { .ind_tbl = &wq };
	struct ibv_qp_init_attr_ex ex = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, 0 },
	};
	struct mlx4dv_rwq dv = { 0 };
	struct mlx4dv_obj obj = { 0 };
	struct raw_cq cq;
	struct mlx4_cqe cqe;
	struct ibv_flow *flow;
	struct ibv_qp *rss;

	open_raw(&rx, false);
	init.pd = ex.pd = rx.pd;
	init.cq = rx.recv_cq;
	wq = ibv_create_wq(rx.ctx, &init);
	check(wq);
	check_eq(ibv_modify_wq(wq, &rdy), 0);
	ex.rwq_ind_tbl = ibv_create_rwq_ind_table(rx.ctx, &table);
	rss = ibv_create_qp_ex(rx.ctx, &ex);
	check(rss, "%s", strerror(errno));
	raw_to_rts(rss);
	flow = flow_all(rss);
	obj.rwq.in = wq;
	obj.rwq.out = &dv;
	check_eq(mlx4dv_init_obj(&obj, MLX4DV_OBJ_RWQ), 0);
	raw_cq_open(&cq, rx.recv_cq);
	for (uint32_t i = 0; i < SLOTS; i++)
		post_wq(&dv, &rx, i);
	ready();
	while (!is_told_to_end()) {
		if (!raw_poll(&cq, &cqe)) {
			sched_yield();
			continue;
		}
		check(mlx4dv_get_cqe_opcode(&cqe) != MLX4_CQE_OPCODE_ERROR);
		check_eq(be32toh(cqe.vlan_my_qpn) & MLX4_CQE_QPN_MASK, wq->wq_num);
		report(rx.buf + (size_t)(be16toh(cqe.wqe_index) % SLOTS) * SLOT,
		       be32toh(cqe.byte_cnt));
		post_wq(&dv, &rx, (uint32_t)be16toh(cqe.wqe_index) + SLOTS);
	}
	check_eq(ibv_destroy_flow(flow), 0);
	check_eq(ibv_destroy_qp(rss), 0);
	check_eq(ibv_destroy_rwq_ind_table(ex.rwq_ind_tbl), 0);
	check_eq(ibv_destroy_wq(wq), 0);
	node_close(&rx);
}

/* --- the sender's side ---------------------------------------------------------------------------------- */

struct receiver {
	pid_t pid;
	int fd;
};

static struct receiver start(const char *role)
{
	struct receiver r;
	char go;

	r.pid = spawn_self(role, &r.fd);
	msg_recv(r.fd, &go, 1);
	return r;
}

static void end(struct receiver *r)
{
	char byte = 0;

	msg_send(r->fd, &byte, 1);
	spawn_wait(r->pid);
	close(r->fd);
}

/* It gets this frame; what is left of a flood may come before. */
static void expect(struct receiver *r, uint32_t number, uint32_t len)
{
	struct report got;

	do {
		msg_recv(r->fd, &got, sizeof(got));
	} while (got.number != number);
	check_eq(got.len, len);
}

static void every_frame_arrives(const char *role)
{
	static const uint32_t lens[] = { 60, 61, 1500, 4096, 4097, 8192, 9000, 9216 };
	struct receiver r = start(role);
	struct report extra;

	for (uint32_t i = 0; i < 400; i++) {
		uint32_t len = lens[i % (sizeof(lens) / sizeof(lens[0]))];

		send_frame(len, i);
		msg_recv(r.fd, &extra, sizeof(extra));
		check_eq(extra.number, i); /* once, in order, nothing else */
		check_eq(extra.len, len);
	}
	end(&r);
}

static void several_receivers(void)
{
	struct receiver r[3] = { start("verbs"), start("raw"), start("events") };
	struct ibv_flow *flow;
	struct node local;
	struct ibv_wc wc;

	open_raw(&local, false);
	flow = flow_all(local.qp);
	for (uint32_t i = 0; i < 50; i++) {
		check_eq(node_recv(&local, i, 0, SLOT), 0);
		send_frame(100 + i, i);
		for (int k = 0; k < 3; k++)
			expect(&r[k], i, 100 + i);
		cq_expect_at(__FILE__, __LINE__, local.recv_cq, i, IBV_WC_SUCCESS, &wc);
		check_eq(check_frame(local.buf, wc.byte_len), i);
	}
	check_eq(ibv_destroy_flow(flow), 0);
	node_close(&local);
	for (int k = 0; k < 3; k++)
		end(&r[k]);
}

/* Whatever becomes of a receiver, sending goes on, and others are heard. */
static void stopped_and_killed(const char *role)
{
	struct receiver victim = start(role), other = start("verbs");
	uint32_t number = 1000;
	int status;

	check_eq(kill(victim.pid, SIGSTOP), 0);
	for (int i = 0; i < FLOOD; i++)
		send_frame(1500, number++);
	check_eq(kill(victim.pid, SIGCONT), 0);
	for (int i = 0; i < FLOOD; i++) {
		if (i == FLOOD / 2)
			check_eq(kill(victim.pid, SIGKILL), 0);
		send_frame(1500, number++);
	}
	check_eq(waitpid(victim.pid, &status, 0), victim.pid);
	close(victim.fd);
	for (int i = 0; i < FLOOD; i++)
		send_frame(1500, number++);
	end(&other);
	victim = start(role);
	send_frame(777, number);
	expect(&victim, number, 777);
	end(&victim);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		if (!strcmp(argv[1], "raw"))
			receive_raw();
		else
			receive_verbs(!strcmp(argv[1], "events"));
		return 0;
	}
	/* Frames reach everybody on the host: without a namespace of our own others would hear us, and we them. */
	if (!enter_namespaces(CLONE_NEWNET))
		printf("# no network namespace: %s\n", strerror(errno));
	open_raw(&tx, false);
	raw_open(&rtx, &tx);
	every_frame_arrives("verbs");
	every_frame_arrives("events");
	every_frame_arrives("raw");
	several_receivers();
	stopped_and_killed("verbs");
	stopped_and_killed("raw");
	node_close(&tx);
	return 0;
}
