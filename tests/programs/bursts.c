// SPDX-License-Identifier: MIT
/*
 * Messages that a card takes all at once have the effect that they have one by one: what completes, with which status
 * and in which order for each queue pair; events, once and not more often; completions that a full CQ loses.
 *
 * Every case runs twice, and what both processes saw is compared. One by one: the next message is posted when the one
 * before has completed. All at once: the receiving process is stopped while they are posted.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { QPS = 2, MOST = 48, LEN = 16, SHORT = 4, BLOCK = 64, QUIET_MS = 20 };

struct seen {
	uint32_t count;
	struct {
		uint64_t wr_id;
		uint32_t status, opcode, len, imm;
	} wc[MOST];
};

/* What a process saw in one run of a case. */
struct outcome {
	struct seen qp[QPS];
	uint32_t lost;     /* receives of which there is no completion */
	uint32_t notified; /* events of completion channels, */
	uint32_t limit, overrun, other;
	uint64_t sum; /* of the bytes that arrived */
};

struct scenario {
	const char *name;
	uint32_t messages; /* every third to the second queue pair, unless there is only one */
	uint32_t receives; /* posted to each, or to the SRQ, before the first message */
	uint32_t short_at; /* of these, of the first queue pair: one that is too small; 0: none */
	uint32_t late;     /* posted when all of those are used up */
	uint32_t limit;    /* of the SRQ; 0: there is none */
	int cqe;
	uint32_t solicited_at; /* the message that is, counted from 1; 0: none */
	bool one_qp, armed, armed_solicited;
	uint32_t moderated; /* completions to an event */
	/* what must be seen */
	uint32_t completions, notified, limits, overruns;
};

static const struct scenario scenarios[] = {
	{ .name = "plain", .messages = 40, .receives = 40, .completions = 40 },
	{ .name = "refused", .messages = 24, .receives = 24, .short_at = 7, .completions = 24 + 8 },
	{ .name = "not-ready",
	  .messages = 24,
	  .receives = 7,
	  .late = 17,
	  .one_qp = true,
	  .completions = 24 },
	{ .name = "limit",
	  .messages = 24,
	  .receives = 32,
	  .limit = 20,
	  .one_qp = true,
	  .completions = 24,
	  .limits = 1 },
	{ .name = "overrun",
	  .messages = 40,
	  .receives = 40,
	  .cqe = 15,
	  .one_qp = true,
	  .completions = 16,
	  .overruns = 1 },
	{ .name = "armed",
	  .messages = 24,
	  .receives = 24,
	  .armed = true,
	  .completions = 24,
	  .notified = 1 },
	{ .name = "solicited",
	  .messages = 24,
	  .receives = 24,
	  .armed_solicited = true,
	  .solicited_at = 9,
	  .completions = 24,
	  .notified = 1 },
	{ .name = "unsolicited",
	  .messages = 24,
	  .receives = 24,
	  .armed_solicited = true,
	  .completions = 24 },
	{ .name = "error-is-solicited",
	  .messages = 24,
	  .receives = 24,
	  .short_at = 7,
	  .armed_solicited = true,
	  .completions = 24 + 8,
	  .notified = 1 },
	{ .name = "moderated",
	  .messages = 24,
	  .receives = 24,
	  .armed = true,
	  .moderated = 5,
	  .completions = 24,
	  .notified = 1 },
};

static const struct scenario *find_scenario(const char *name)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	test_failed(__FILE__, __LINE__, name, " is no case");
	return NULL;
}

static uint32_t qp_of(const struct scenario *s, uint32_t message)
{
	return !s->one_qp && message % 3 == 2;
}

/* Two queue pairs that share everything else. */
static void open_nodes(struct node node[QPS], const struct scenario *s, bool receives)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 0; /* a process that is stopped is not lost */
	attr.cap.max_send_wr = attr.cap.max_recv_wr = MOST;
	attr.events = receives;
	if (receives && s->cqe)
		attr.cqe = s->cqe;
	attr.srq = receives && s->limit;
	node_open(&node[0], &attr);
	node[1] = node[0];
	node[1].qp = node_create_qp(&node[1]);
	check(node[1].qp, "%s", strerror(errno));
}

static void close_nodes(struct node node[QPS])
{
	check_eq(ibv_destroy_qp(node[1].qp), 0);
	node_close(&node[0]);
}

static void note(struct outcome *o, struct node node[QPS], const struct ibv_wc *wc)
{
	struct seen *seen = &o->qp[wc->qp_num == node[1].qp->qp_num];
	bool good = wc->status == IBV_WC_SUCCESS, receive = wc->opcode & IBV_WC_RECV;

	check(seen->count < MOST, "too many completions");
	seen->wc[seen->count].wr_id = wc->wr_id;
	seen->wc[seen->count].status = wc->status;
	seen->wc[seen->count].opcode = good ? wc->opcode : 0;
	seen->wc[seen->count].len = good && receive ? wc->byte_len : 0;
	seen->wc[seen->count].imm = good && receive ? wc->imm_data : 0;
	seen->count++;
}

/* --- the receiving process -------------------------------------------------------------------------- */

static uint32_t posted[QPS];

static void post_receives(struct node node[QPS], const struct scenario *s, uint32_t qp,
			  uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = posted[qp]++, index = qp * MOST + at;
		bool is_short = !qp && s->short_at && at == s->short_at;

		check_eq(node_recv(&node[qp], index, (size_t)index * BLOCK, is_short ? SHORT : LEN),
			 0);
	}
}

static void arm(struct node *node, const struct scenario *s)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
					   .moderate = { (uint16_t)s->moderated, 60000 } };

	if (s->moderated)
		check_eq(ibv_modify_cq(node->recv_cq, &attr), 0);
	if (s->armed || s->armed_solicited)
		check_eq(ibv_req_notify_cq(node->recv_cq, s->armed_solicited), 0);
}

static void take_events(struct node *node, const struct scenario *s, struct outcome *o)
{
	struct pollfd pfd = { .fd = node->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int event;

	while (poll(&pfd, 1, o->notified < s->notified ? PATIENCE_MS : QUIET_MS) == 1) {
		check_eq(ibv_get_cq_event(node->channel, &cq, &context), 0);
		check(cq == node->recv_cq, "an event of another CQ");
		ibv_ack_cq_events(cq, 1);
		o->notified++;
	}
	while ((event = event_wait(node->ctx, o->limit < s->limits || o->overrun < s->overruns
						      ? PATIENCE_MS
						      : QUIET_MS)) >= 0) {
		o->limit += event == IBV_EVENT_SRQ_LIMIT_REACHED;
		o->overrun += event == IBV_EVENT_CQ_ERR;
		o->other += event != IBV_EVENT_SRQ_LIMIT_REACHED && event != IBV_EVENT_CQ_ERR;
	}
}

static int receiver(const struct scenario *s)
{
	struct outcome o = { .sum = 0 };
	uint32_t seen = 0, all = 0;
	struct address peer;
	struct node node[QPS];
	struct ibv_wc wc;
	char word;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody lets it go on if the test fails */
	open_nodes(node, s, true);
	for (uint32_t i = 0; i < QPS; i++)
		node_meet(&node[i], ROLE_FD, &peer);
	for (uint32_t i = 0; i < (s->one_qp ? 1 : QPS); i++)
		post_receives(node, s, i, s->receives);
	if (s->limit)
		check_eq(ibv_modify_srq(node[0].srq,
					&(struct ibv_srq_attr){ .srq_limit = s->limit },
					IBV_SRQ_LIMIT),
			 0);
	arm(&node[0], s);
	msg_send(ROLE_FD, "", 1);
	/* Where the sender waits for receives, they come now. Else the card works without us. */
	for (; s->late && seen < s->receives; seen++) {
		check(cq_wait(node[0].recv_cq, &wc, PATIENCE_MS), "%u completions", seen);
		note(&o, node, &wc);
	}
	post_receives(node, s, 0, s->late);
	msg_recv(ROLE_FD, &word, 1);
	for (; cq_wait(node[0].recv_cq, &wc, seen < s->completions ? PATIENCE_MS : QUIET_MS);
	     seen++)
		note(&o, node, &wc);
	check_eq(seen, s->completions);
	take_events(&node[0], s, &o);
	all = posted[0] + posted[1];
	o.lost = all - seen;
	for (size_t i = 0; i < (size_t)2 * QPS * MOST * BLOCK; i++)
		o.sum = o.sum * 31 + node[0].buf[i];
	msg_send(ROLE_FD, &o, sizeof(o));
	msg_recv(ROLE_FD, &word, 1);
	close_nodes(node);
	return 0;
}

/* --- the sending process ---------------------------------------------------------------------------- */

static void post(struct node node[QPS], const struct scenario *s, const struct address peer[QPS],
		 uint32_t i)
{
	uint32_t qp = qp_of(s, i);
	struct ibv_sge sge = { (uintptr_t)node[qp].buf + (size_t)i * BLOCK, LEN,
			       node[qp].mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = i,
		.sg_list = &sge,
		.num_sge = 1,
		/* one of four has its bytes behind the receives */
		.opcode = i % 4 == 1 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM,
		.imm_data = i,
		.send_flags =
			IBV_SEND_SIGNALED | (i + 1 == s->solicited_at ? IBV_SEND_SOLICITED : 0),
		.wr.rdma = { peer[qp].addr + (size_t)(QPS * MOST + i) * BLOCK, peer[qp].rkey },
	};
	struct ibv_send_wr *bad;

	check_eq(ibv_post_send(node[qp].qp, &wr, &bad), 0);
}

static void complete(struct node node[QPS], struct outcome *o)
{
	struct ibv_wc wc;

	check(cq_wait(node[0].send_cq, &wc, PATIENCE_MS), "a send does not complete");
	note(o, node, &wc);
}

static void send_all(struct node node[QPS], const struct scenario *s,
		     const struct address peer[QPS], pid_t pid, bool at_once, struct outcome *o)
{
	if (at_once) {
		kill(pid, SIGSTOP);
		check_eq(waitpid(pid, NULL, WUNTRACED), pid);
	}
	for (uint32_t i = 0; i < s->messages; i++) {
		post(node, s, peer, i);
		if (!at_once)
			complete(node, o);
	}
	if (!at_once)
		return;
	kill(pid, SIGCONT);
	for (uint32_t i = 0; i < s->messages; i++)
		complete(node, o);
}

static void run(const struct scenario *s, bool at_once, struct outcome out[2])
{
	struct address peer[QPS];
	struct node node[QPS];
	char word;
	int fd;
	pid_t pid = spawn_self(s->name, &fd);

	memset(out, 0, 2 * sizeof(*out));
	open_nodes(node, s, false);
	for (uint32_t i = 0; i < QPS; i++)
		node_meet(&node[i], fd, &peer[i]);
	for (uint32_t i = 0; i < MOST; i++)
		pattern_fill(node[0].buf + (size_t)i * BLOCK, LEN, i);
	msg_recv(fd, &word, 1);
	send_all(node, s, peer, pid, at_once, &out[0]);
	msg_send(fd, "", 1);
	msg_recv(fd, &out[1], sizeof(out[1]));
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
	close_nodes(node);
}

static void compare(const struct scenario *s, const char *side, const struct outcome *one,
		    const struct outcome *all)
{
	for (uint32_t q = 0; q < QPS; q++) {
		const struct seen *a = &one->qp[q], *b = &all->qp[q];

		check(a->count == b->count, "%s, %s: %u and %u completions of queue pair %u",
		      s->name, side, a->count, b->count, q);
		for (uint32_t i = 0; i < a->count && i < b->count; i++)
			check(!memcmp(&a->wc[i], &b->wc[i], sizeof(a->wc[i])),
			      "%s, %s: completion %u of queue pair %u is %llu, %s and %llu, %s",
			      s->name, side, i, q, (unsigned long long)a->wc[i].wr_id,
			      ibv_wc_status_str((enum ibv_wc_status)a->wc[i].status),
			      (unsigned long long)b->wc[i].wr_id,
			      ibv_wc_status_str((enum ibv_wc_status)b->wc[i].status));
	}
	check(one->lost == all->lost && one->sum == all->sum && one->notified == all->notified &&
		      one->limit == all->limit && one->overrun == all->overrun &&
		      one->other == all->other,
	      "%s, %s: %u %u %u %u %u and %u %u %u %u %u", s->name, side, one->lost, one->notified,
	      one->limit, one->overrun, one->other, all->lost, all->notified, all->limit,
	      all->overrun, all->other);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return receiver(find_scenario(argv[1]));
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		const struct scenario *s = &scenarios[i];
		struct outcome one[2], all[2];

		run(s, false, one);
		run(s, true, all);
		check_eq(one[1].notified, s->notified);
		check_eq(one[1].limit, s->limits);
		check_eq(one[1].overrun, s->overruns);
		compare(s, "sender", &one[0], &all[0]);
		compare(s, "receiver", &one[1], &all[1]);
	}
	return 0;
}
