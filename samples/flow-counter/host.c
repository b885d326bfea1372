// SPDX-License-Identifier: MIT
/*
 * Rules sort the frames of a port into flows. Each rule has three actions: a flow counter of the
 * card, a tag, and the receive queue of device code, which counts by tag. Both counts are printed
 * side by side.
 *
 *	priority 0: EtherType and IP protocol    ICMP, TCP, UDP
 *	priority 1: EtherType                    other IPv4, IPv6, ARP
 *	priority 2: everything                   the rest
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

#include "shared.h"

enum { PRIORITIES = 3, ACTIONS = 3, NO_CRITERIA = 0, OUTER_HEADERS = 1 };

extern struct flexio_app *flow_counter;
extern flexio_func_t count_flows;

static const struct flow {
	const char *name;
	uint16_t priority, ethertype;
	uint8_t protocol;
} flows[FLOWS] = {
	{ "ICMP", 0, 0x0800, 1 },       { "TCP", 0, 0x0800, 6 },  { "UDP", 0, 0x0800, 17 },
	{ "other IPv4", 1, 0x0800, 0 }, { "IPv6", 1, 0x86dd, 0 }, { "ARP", 1, 0x0806, 0 },
	{ "other", 2, 0, 0 },
};

struct steering {
	struct mlx5dv_devx_obj *counters; /* as many as there are flows, and more */
	uint32_t first_counter;
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher[PRIORITIES];
	struct mlx5dv_dr_action *to_rq, *count[FLOWS], *tag[FLOWS];
	struct mlx5dv_dr_rule *rule[FLOWS];
};

static struct flexio_process *process;
static struct ibv_pd *pd;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "flow-counter: %s failed\n", what);
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (!ctx)
		fprintf(stderr, "flow-counter: no device %s (did you say verbatim run?)\n", name);
	need(ctx != NULL, "opening the device");
	ibv_free_device_list(list);
	return ctx;
}

/* ---- memory and queues of the device ---- */

static flexio_uintptr_t device_zeros(size_t size)
{
	flexio_uintptr_t addr;

	need(!flexio_buf_dev_alloc(process, size, &addr), "flexio_buf_dev_alloc");
	need(!flexio_buf_dev_memset(process, 0, size, addr), "flexio_buf_dev_memset");
	return addr;
}

static void copy_back(flexio_uintptr_t from, void *to, size_t size)
{
	struct flexio_mem src = { .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = from };
	struct flexio_mem dst = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)to };

	need(!flexio_memcpy(process, &dst, &src, size), "flexio_memcpy");
}

static struct flexio_cq *make_cq(struct queue *q, struct flexio_thread *thread)
{
	struct mlx5_cqe64 ring[DEPTH] = { 0 };
	struct flexio_cq_attr attr = { .log_cq_depth = LOG_DEPTH,
				       .element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD,
				       .thread = thread };
	struct flexio_cq *cq;

	/* No entry is valid yet. */
	for (int i = 0; i < DEPTH; i++)
		mlx5dv_set_cqe_owner(&ring[i], 1);
	need(!flexio_copy_from_host(process, ring, sizeof(ring), &q->ring),
	     "flexio_copy_from_host");
	q->record = device_zeros(8);
	attr.cq_ring_qmem.daddr = q->ring;
	attr.cq_dbr_daddr = q->record;
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	need(!flexio_cq_create(process, NULL, &attr, &cq), "flexio_cq_create");
	q->number = flexio_cq_get_cq_num(cq);
	return cq;
}

/* A receive queue, with all of its buffers posted. */
static struct flexio_rq *make_rq(struct counter *c, struct flexio_mkey **mkey)
{
	struct flexio_mkey_attr mkey_attr = { .pd = pd,
					      .len = DEPTH * BUFFER,
					      .access = IBV_ACCESS_LOCAL_WRITE };
	struct flexio_wq_attr attr = { .log_wq_depth = LOG_DEPTH, .pd = pd };
	struct mlx5_wqe_data_seg ring[DEPTH];
	__be32 record[2] = { htonl(DEPTH), 0 };
	struct flexio_rq *rq;

	mkey_attr.daddr = device_zeros(mkey_attr.len);
	need(!flexio_device_mkey_create(process, &mkey_attr, mkey), "flexio_device_mkey_create");
	for (int i = 0; i < DEPTH; i++)
		mlx5dv_set_data_seg(&ring[i], BUFFER, flexio_mkey_get_id(*mkey),
				    mkey_attr.daddr + (uint64_t)i * BUFFER);
	need(!flexio_copy_from_host(process, ring, sizeof(ring), &c->rq.ring),
	     "flexio_copy_from_host");
	need(!flexio_copy_from_host(process, record, sizeof(record), &c->rq.record),
	     "flexio_copy_from_host");
	attr.wq_ring_qmem.daddr = c->rq.ring;
	attr.wq_dbr_qmem.daddr = c->rq.record;
	need(!flexio_rq_create(process, NULL, c->cq.number, &attr, &rq), "flexio_rq_create");
	c->rq.number = flexio_rq_get_wq_num(rq);
	return rq;
}

/*
 * ---- counters of the card: commands of the programmer's reference manual, in big-endian words
 * ----
 */

/* ALLOC_FLOW_COUNTER: 128 of them at once. */
static void make_counters(struct steering *s, struct ibv_context *ctx)
{
	enum { OPCODE = 0x939, BULK_OF_128 = 1 };
	uint32_t in[4] = { htonl(OPCODE << 16), 0, 0, htonl(BULK_OF_128) }, out[4] = { 0 };

	s->counters = mlx5dv_devx_obj_create(ctx, in, sizeof(in), out, sizeof(out));
	need(s->counters != NULL, "ALLOC_FLOW_COUNTER");
	s->first_counter = ntohl(out[2]);
}

/* QUERY_FLOW_COUNTER: for each two words of 64 bits, frames and bytes. */
static void read_counters(struct steering *s, struct count counts[FLOWS])
{
	enum { OPCODE = 0x93b };
	uint32_t in[8] = {
		htonl(OPCODE << 16), 0, 0, 0, 0, 0, htonl(FLOWS), htonl(s->first_counter)
	};
	uint32_t out[4 + 4 * FLOWS] = { 0 };

	need(!mlx5dv_devx_obj_query(s->counters, in, sizeof(in), out, sizeof(out)),
	     "QUERY_FLOW_COUNTER");
	for (int i = 0; i < FLOWS; i++) {
		const uint32_t *words = out + 4 + 4 * i;

		counts[i].frames = (uint64_t)ntohl(words[0]) << 32 | ntohl(words[1]);
		counts[i].bytes = (uint64_t)ntohl(words[2]) << 32 | ntohl(words[3]);
	}
}

/* ---- steering ---- */

/* The bytes that matchers and rules take: 64 of them describe the outer headers. */
static struct mlx5dv_flow_match_parameters *match(uint16_t ethertype, uint8_t protocol)
{
	enum { SIZE = 64, ETHERTYPE = 6, PROTOCOL = 16 };
	struct mlx5dv_flow_match_parameters *match = calloc(1, sizeof(*match) + SIZE);
	uint8_t *bytes;

	need(match != NULL, "calloc");
	match->match_sz = SIZE;
	bytes = (uint8_t *)match->match_buf;
	bytes[ETHERTYPE] = (uint8_t)(ethertype >> 8);
	bytes[ETHERTYPE + 1] = (uint8_t)ethertype;
	bytes[PROTOCOL] = protocol;
	return match;
}

static void make_matchers(struct steering *s)
{
	struct mlx5dv_flow_match_parameters *masks[PRIORITIES] = { match(0xffff, 0xff),
								   match(0xffff, 0), match(0, 0) };

	for (uint16_t i = 0; i < PRIORITIES; i++) {
		s->matcher[i] = mlx5dv_dr_matcher_create(
			s->table, i, i < 2 ? OUTER_HEADERS : NO_CRITERIA, masks[i]);
		need(s->matcher[i] != NULL, "mlx5dv_dr_matcher_create");
		free(masks[i]);
	}
}

static void make_rule(struct steering *s, uint32_t i)
{
	struct mlx5dv_flow_match_parameters *value = match(flows[i].ethertype, flows[i].protocol);

	s->count[i] = mlx5dv_dr_action_create_flow_counter(s->counters, i);
	need(s->count[i] != NULL, "mlx5dv_dr_action_create_flow_counter");
	s->tag[i] = mlx5dv_dr_action_create_tag(i);
	need(s->tag[i] != NULL, "mlx5dv_dr_action_create_tag");
	s->rule[i] = mlx5dv_dr_rule_create(
		s->matcher[flows[i].priority], value, ACTIONS,
		(struct mlx5dv_dr_action *[]){ s->count[i], s->tag[i], s->to_rq });
	need(s->rule[i] != NULL, "mlx5dv_dr_rule_create");
	free(value);
}

static void steer(struct steering *s, struct ibv_context *ctx, struct flexio_rq *rq)
{
	make_counters(s, ctx);
	s->domain = mlx5dv_dr_domain_create(ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	need(s->domain != NULL, "mlx5dv_dr_domain_create");
	s->table = mlx5dv_dr_table_create(s->domain, 0);
	need(s->table != NULL, "mlx5dv_dr_table_create");
	make_matchers(s);
	s->to_rq = mlx5dv_dr_action_create_dest_devx_tir(flexio_rq_get_tir(rq));
	need(s->to_rq != NULL, "mlx5dv_dr_action_create_dest_devx_tir");
	for (uint32_t i = 0; i < FLOWS; i++)
		make_rule(s, i);
}

static void unsteer(struct steering *s)
{
	for (int i = 0; i < FLOWS; i++) {
		need(!mlx5dv_dr_rule_destroy(s->rule[i]), "mlx5dv_dr_rule_destroy");
		need(!mlx5dv_dr_action_destroy(s->count[i]), "mlx5dv_dr_action_destroy");
		need(!mlx5dv_dr_action_destroy(s->tag[i]), "mlx5dv_dr_action_destroy");
	}
	need(!mlx5dv_dr_action_destroy(s->to_rq), "mlx5dv_dr_action_destroy");
	for (int i = 0; i < PRIORITIES; i++)
		need(!mlx5dv_dr_matcher_destroy(s->matcher[i]), "mlx5dv_dr_matcher_destroy");
	need(!mlx5dv_dr_table_destroy(s->table), "mlx5dv_dr_table_destroy");
	need(!mlx5dv_dr_domain_destroy(s->domain), "mlx5dv_dr_domain_destroy");
	need(!mlx5dv_devx_obj_destroy(s->counters), "destroying the counters");
}

/* ---- main ---- */

static void report(const struct count card[FLOWS], const struct counter *device)
{
	printf("%-12s %12s %12s %12s %12s\n", "flow", "card: frames", "bytes", "DPA: frames",
	       "bytes");
	for (int i = 0; i < FLOWS; i++)
		printf("%-12s %12lu %12lu %12lu %12lu\n", flows[i].name,
		       (unsigned long)card[i].frames, (unsigned long)card[i].bytes,
		       (unsigned long)device->flow[i].frames, (unsigned long)device->flow[i].bytes);
	printf("%lu frames\n", (unsigned long)device->frames);
}

/* Until a signal comes, or limit frames (0: no limit). */
static void wait_for_end(flexio_uintptr_t daddr, struct counter *c, uint64_t limit,
			 const sigset_t *signals)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	do
		copy_back(daddr, c, sizeof(*c));
	while ((!limit || c->frames < limit) && sigtimedwait(signals, NULL, &pause) < 0);
	copy_back(daddr, c, sizeof(*c));
}

static void run(struct ibv_context *ctx, uint64_t limit, const sigset_t *signals)
{
	struct flexio_event_handler_attr handler_attr = { .host_stub_func = count_flows };
	struct flexio_event_handler *handler;
	struct count card[FLOWS];
	struct counter counter = { 0 };
	struct steering steering;
	struct flexio_mkey *mkey;
	struct flexio_cq *cq;
	struct flexio_rq *rq;
	flexio_uintptr_t daddr;

	pd = ibv_alloc_pd(ctx);
	need(pd != NULL, "ibv_alloc_pd");
	need(!flexio_process_create(ctx, flow_counter, NULL, &process), "flexio_process_create");
	need(!flexio_event_handler_create(process, &handler_attr, &handler),
	     "flexio_event_handler_create");
	cq = make_cq(&counter.cq, flexio_event_handler_get_thread(handler));
	rq = make_rq(&counter, &mkey);
	need(!flexio_copy_from_host(process, &counter, sizeof(counter), &daddr),
	     "flexio_copy_from_host");
	need(!flexio_event_handler_run(handler, daddr), "flexio_event_handler_run");
	steer(&steering, ctx, rq);
	printf("flow-counter: counts what arrives at %s\n", ibv_get_device_name(ctx->device));
	fflush(stdout);

	wait_for_end(daddr, &counter, limit, signals);
	read_counters(&steering, card);
	report(card, &counter);

	unsteer(&steering);
	need(!flexio_rq_destroy(rq) && !flexio_cq_destroy(cq), "destroying queues");
	need(!flexio_device_mkey_destroy(mkey), "flexio_device_mkey_destroy");
	need(!flexio_event_handler_destroy(handler), "flexio_event_handler_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	need(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
}

int main(int argc, char **argv)
{
	struct ibv_context *ctx;
	uint64_t limit = 0;
	sigset_t signals;
	int option;

	while ((option = getopt(argc, argv, "n:")) != -1) {
		if (option != 'n') {
			fprintf(stderr, "usage: %s [-n FRAMES] [DEVICE]\n", argv[0]);
			return 2;
		}
		limit = strtoull(optarg, NULL, 0);
	}
	/* Before any thread is made: they all leave these signals to us. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	ctx = open_device(optind < argc ? argv[optind] : "mlx5_0");
	run(ctx, limit, &signals);
	ibv_close_device(ctx);
	return 0;
}
