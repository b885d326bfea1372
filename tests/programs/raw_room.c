// SPDX-License-Identifier: MIT
/*
 * Frames that come faster than the receiving process runs: each one for which a buffer is posted arrives, in order. A
 * receiver that stands still keeps nobody from sending for long.
 *
 *	raw_room DEVICE         frames of each size, and of large sends
 *	raw_room DEVICE small   the same with a /dev/shm in which rings are small
 *	raw_room DEVICE stopped one of two receivers is stopped
 *	raw_room DEVICE threads many threads send, each by a queue pair of its own
 */
#include "station.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAMES = 500, POSTED = 512, DEPTH = 8, TYPE = 0x88b5 };

static const uint64_t to = 0x020000000001, from = 0x020000000002;

/* A large send: its segments have the number in the sequence number of TCP. */
enum { MSS = 1400, SEGMENTS = 46, LARGE_SENDS = 10, HEADERS = 14 + 20 + 20, SEQ_AT = 14 + 20 + 4 };

static uint32_t number_at(const uint8_t *p)
{
	return (uint32_t)(p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]);
}

static uint32_t number_of(const uint8_t *frame, uint32_t len)
{
	return len == HEADERS + MSS ? number_at(frame + SEQ_AT) / MSS : number_at(frame + 14);
}

/* --- the receiver ------------------------------------------------------------------------------- */

/*
 * Takes orders: so many frames of this length, which are numbered, have all come; ANY_ORDER: of many senders, each of
 * which counts by itself. 0 frames: it ends.
 */
enum { ANY_ORDER = 1 << 30 };
struct order {
	uint32_t frames, len, first;
};

static int receiver(const char *device)
{
	struct station s;
	struct ibv_flow *flow;
	struct order order;
	struct got got;

	station_open_deep(&s, device, POSTED);
	flow = flow_all(s.qp);
	for (;;) {
		msg_send(ROLE_FD, "", 1);
		msg_recv(ROLE_FD, &order, sizeof(order));
		if (!order.frames)
			break;
		for (uint32_t i = 0; i < order.frames; i++) {
			station_get(&s, &got);
			check_eq(got.len, order.len);
			if (order.first != ANY_ORDER)
				check_eq(number_of(got.data, got.len), order.first + i);
		}
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
	return 0;
}

struct peer {
	pid_t pid;
	int fd;
};

static void await(const struct peer *p)
{
	char done;

	msg_recv(p->fd, &done, 1);
}

static struct peer start(const char *device)
{
	char role[32];
	struct peer p;

	snprintf(role, sizeof(role), "=%s", device);
	p.pid = spawn_self(role, &p.fd);
	await(&p);
	return p;
}

static void order(const struct peer *p, uint32_t frames, uint32_t len, uint32_t first)
{
	struct order order = { frames, len, first };

	msg_send(p->fd, &order, sizeof(order));
}

static void end(const struct peer *p)
{
	order(p, 0, 0, 0);
	spawn_wait(p->pid);
	close(p->fd);
}

/* --- the sender ---------------------------------------------------------------------------------- */

static void wait_sent(struct station *s)
{
	struct ibv_wc wc;

	check(cq_wait(s->send_cq, &wc, PATIENCE_MS), "a send does not end");
	check_eq(wc.status, IBV_WC_SUCCESS);
}

/* As programs do that measure: the queue is kept full. */
static void send_numbered(struct station *s, uint32_t frames, uint32_t len, uint32_t first)
{
	uint8_t *at = s->buf + (size_t)s->slots * STATION_SLOT;
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < frames; i++) {
		uint8_t *f = at + (size_t)(i % DEPTH) * STATION_SLOT;
		struct ibv_sge sge = { (uintptr_t)f, len, s->mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED };

		if (i >= DEPTH)
			wait_sent(s);
		put_eth(f, 0, to, from, TYPE);
		put32(f + 14, first + i);
		check_eq(ibv_post_send(s->qp, &wr, &bad), 0);
	}
	for (uint32_t i = 0; i < frames && i < DEPTH; i++)
		wait_sent(s);
}

static void sizes(struct station *s, const struct peer *p)
{
	static const uint32_t len[] = { 64, 1518, 4096, 9000 };

	for (unsigned int i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		send_numbered(s, FRAMES, len[i], i * 1000);
		order(p, FRAMES, len[i], i * 1000);
		await(p);
	}
}

static void large_sends(struct station *s, const struct peer *p)
{
	uint8_t *data = s->buf + (size_t)s->slots * STATION_SLOT, header[HEADERS];
	struct ibv_sge sge = { (uintptr_t)data, MSS * SEGMENTS, s->mr->lkey };
	struct ibv_send_wr *bad;
	uint32_t at = put_eth(header, 0, to, from, 0x0800);

	at = put_ip4(header, at, 6, 1, 2, 20);
	check_eq(put_tcp(header, at, 1, 2, 0x10), HEADERS);
	for (uint32_t i = 0; i < LARGE_SENDS; i++) {
		struct ibv_send_wr wr = { .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_TSO,
					  .send_flags = IBV_SEND_SIGNALED,
					  .tso = { header, HEADERS, MSS } };

		put32(header + SEQ_AT, i * SEGMENTS * MSS);
		check_eq(ibv_post_send(s->qp, &wr, &bad), 0);
	}
	for (uint32_t i = 0; i < LARGE_SENDS; i++)
		wait_sent(s);
	order(p, LARGE_SENDS * SEGMENTS, HEADERS + MSS, 0);
	await(p);
}

/* A stopped process gets what its ring holds; the other one all; and both hear again afterwards. */
static void stopped(struct station *s, const char *device)
{
	struct peer other = start(device), p = start(device);

	check_eq(kill(p.pid, SIGSTOP), 0);
	for (uint32_t i = 0; i < 4; i++) {
		send_numbered(s, FRAMES, 1518, i * FRAMES);
		order(&other, FRAMES, 1518, i * FRAMES);
		await(&other);
	}
	/* It is gone for good, in the middle of what waits for it. */
	check_eq(kill(p.pid, SIGKILL), 0);
	send_numbered(s, FRAMES, 1518, 9000);
	order(&other, FRAMES, 1518, 9000);
	await(&other);
	check_eq(waitpid(p.pid, NULL, 0), p.pid);
	close(p.fd);
	end(&other);
}

enum { THREADS = 12, EACH = POSTED / THREADS, ROUNDS = 4 };

static void *send_each(void *arg)
{
	send_numbered(arg, EACH, 9000, 0);
	return NULL;
}

/* What one thread has found to be room is not taken by the frames of others. */
static void threads(struct station *first, const struct peer *p)
{
	struct station s[THREADS];
	pthread_t thread[THREADS];

	for (uint32_t i = 0; i < THREADS; i++)
		station_open_in(&s[i], first->ctx);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < THREADS; i++)
			check_eq(pthread_create(&thread[i], NULL, send_each, &s[i]), 0);
		for (uint32_t i = 0; i < THREADS; i++)
			check_eq(pthread_join(thread[i], NULL), 0);
		order(p, THREADS * EACH, 9000, ANY_ORDER);
		await(p);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		station_close(&s[i]);
}

int main(int argc, char **argv)
{
	const char *device = argv[1], *how = argc > 2 ? argv[2] : "";
	struct station s;
	struct peer p;

	if (device[0] == '=')
		return receiver(device + 1);
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	if (!strcmp(how, "small"))
		enter_small_shm("size=24m,mode=1777");
	station_open_with(&s, !strcmp(device, "mlx5_0") ? "mlx5_1" : "mlx5_0", 0, HEADERS);
	if (!strcmp(how, "stopped")) {
		stopped(&s, device);
	} else if (!strcmp(how, "threads")) {
		p = start(device);
		threads(&s, &p);
		end(&p);
	} else {
		p = start(device);
		sizes(&s, &p);
		large_sends(&s, &p);
		end(&p);
	}
	station_close(&s);
	return 0;
}
