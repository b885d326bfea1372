// SPDX-License-Identifier: MIT
/*
 * Frames for our MAC address and broadcasts are steered to a receive queue whose memory is on the accelerator; device
 * code answers them over a send queue. The host makes the queues and the rules, and then only waits.
 *
 *	mlx5_0 --> NIC_RX table: destination MAC --> TIR --> RQ --> CQ --> event handler --> SQ --> mlx5_0
 */
#include <arpa/inet.h>
#include <errno.h>
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

extern struct flexio_app *packet_processor_app;
extern flexio_func_t packet_processor;

enum { BROADCAST, OWN, RULES };

struct steering {
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *to_rq;
	struct mlx5dv_dr_rule *rules[RULES];
};

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "packet-processor: %s failed\n", what);
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
		fprintf(stderr, "packet-processor: no device %s (did you say verbatim run?)\n",
			name);
	need(ctx != NULL, "opening the device");
	ibv_free_device_list(list);
	return ctx;
}

/* ---- memory of the device ---- */

static flexio_uintptr_t device_zeros(struct flexio_process *process, size_t size)
{
	flexio_uintptr_t addr;

	need(!flexio_buf_dev_alloc(process, size, &addr), "flexio_buf_dev_alloc");
	need(!flexio_buf_dev_memset(process, 0, size, addr), "flexio_buf_dev_memset");
	return addr;
}

static void copy_back(struct flexio_process *process, flexio_uintptr_t from, void *to, size_t size)
{
	struct flexio_mem src = { .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = from };
	struct flexio_mem dst = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)to };

	need(!flexio_memcpy(process, &dst, &src, size), "flexio_memcpy");
}

static struct flexio_mkey *make_buffers(struct flexio_process *process, struct ibv_pd *pd,
					struct processor *p)
{
	struct flexio_mkey_attr attr = { .pd = pd,
					 .len = DEPTH * BUFFER,
					 .access = IBV_ACCESS_LOCAL_WRITE };
	struct flexio_mkey *mkey;

	p->buffers = attr.daddr = device_zeros(process, attr.len);
	need(!flexio_device_mkey_create(process, &attr, &mkey), "flexio_device_mkey_create");
	p->lkey = flexio_mkey_get_id(mkey);
	return mkey;
}

/* ---- queues ---- */

/* thread: what a completion wakes; NULL: device code looks by itself */
static struct flexio_cq *make_cq(struct flexio_process *process, struct queue *q,
				 struct flexio_thread *thread)
{
	struct mlx5_cqe64 ring[DEPTH] = { 0 };
	struct flexio_cq_attr attr = { .log_cq_depth = LOG_DEPTH,
				       .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ };
	struct flexio_cq *cq;

	/* No entry is valid yet. */
	for (int i = 0; i < DEPTH; i++)
		mlx5dv_set_cqe_owner(&ring[i], 1);
	need(!flexio_copy_from_host(process, ring, sizeof(ring), &q->ring),
	     "flexio_copy_from_host");
	q->record = device_zeros(process, 8);
	attr.cq_ring_qmem.daddr = q->ring;
	attr.cq_dbr_daddr = q->record;
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	if (thread) {
		attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
		attr.thread = thread;
	}
	need(!flexio_cq_create(process, NULL, &attr, &cq), "flexio_cq_create");
	q->number = flexio_cq_get_cq_num(cq);
	return cq;
}

static struct flexio_sq *make_sq(struct flexio_process *process, struct ibv_pd *pd,
				 struct processor *p)
{
	struct flexio_wq_attr attr = { .log_wq_depth = LOG_DEPTH, .pd = pd };
	struct flexio_sq *sq;

	p->sq.ring = attr.wq_ring_qmem.daddr = device_zeros(process, 64 * DEPTH);
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	need(!flexio_sq_create(process, NULL, p->sq_cq.number, &attr, &sq), "flexio_sq_create");
	p->sq.number = flexio_sq_get_wq_num(sq);
	return sq;
}

/* A receive queue, with all of its buffers posted. */
static struct flexio_rq *make_rq(struct flexio_process *process, struct ibv_pd *pd,
				 struct processor *p)
{
	struct flexio_wq_attr attr = { .log_wq_depth = LOG_DEPTH, .pd = pd };
	struct mlx5_wqe_data_seg ring[DEPTH];
	__be32 record[2] = { htonl(DEPTH), 0 };
	struct flexio_rq *rq;

	for (int i = 0; i < DEPTH; i++)
		mlx5dv_set_data_seg(&ring[i], BUFFER, p->lkey, p->buffers + (uint64_t)i * BUFFER);
	need(!flexio_copy_from_host(process, ring, sizeof(ring), &p->rq.ring),
	     "flexio_copy_from_host");
	p->rq.record = device_zeros(process, sizeof(record));
	attr.wq_ring_qmem.daddr = p->rq.ring;
	attr.wq_dbr_qmem.daddr = p->rq.record;
	need(!flexio_rq_create(process, NULL, p->rq_cq.number, &attr, &rq), "flexio_rq_create");
	p->rq.number = flexio_rq_get_wq_num(rq);
	need(!flexio_host2dev_memcpy(process, record, sizeof(record), p->rq.record),
	     "flexio_host2dev_memcpy");
	return rq;
}

/* ---- steering ---- */

/* The destination MAC in the bytes that matchers and rules take: 64 of them describe the outer headers. */
static struct mlx5dv_flow_match_parameters *match_mac(uint64_t mac)
{
	enum { SIZE = 64, DMAC = 8 };
	struct mlx5dv_flow_match_parameters *match = calloc(1, sizeof(*match) + SIZE);

	need(match != NULL, "calloc");
	match->match_sz = SIZE;
	for (int i = 0; i < 6; i++)
		((uint8_t *)match->match_buf)[DMAC + i] = (uint8_t)(mac >> (40 - 8 * i));
	return match;
}

static struct mlx5dv_dr_rule *make_rule(struct steering *s, uint64_t mac)
{
	struct mlx5dv_flow_match_parameters *value = match_mac(mac);
	struct mlx5dv_dr_rule *rule = mlx5dv_dr_rule_create(s->matcher, value, 1, &s->to_rq);

	need(rule != NULL, "mlx5dv_dr_rule_create");
	free(value);
	return rule;
}

static void steer(struct steering *s, struct ibv_context *ctx, struct flexio_rq *rq)
{
	enum { OUTER_HEADERS = 1 };
	struct mlx5dv_flow_match_parameters *mask = match_mac(0xffffffffffff);

	s->domain = mlx5dv_dr_domain_create(ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	need(s->domain != NULL, "mlx5dv_dr_domain_create");
	s->table = mlx5dv_dr_table_create(s->domain, 0);
	need(s->table != NULL, "mlx5dv_dr_table_create");
	s->matcher = mlx5dv_dr_matcher_create(s->table, 0, OUTER_HEADERS, mask);
	need(s->matcher != NULL, "mlx5dv_dr_matcher_create");
	s->to_rq = mlx5dv_dr_action_create_dest_devx_tir(flexio_rq_get_tir(rq));
	need(s->to_rq != NULL, "mlx5dv_dr_action_create_dest_devx_tir");
	s->rules[OWN] = make_rule(s, OUR_MAC);
	s->rules[BROADCAST] = make_rule(s, 0xffffffffffff);
	free(mask);
}

static void unsteer(struct steering *s)
{
	for (int i = 0; i < RULES; i++)
		need(!mlx5dv_dr_rule_destroy(s->rules[i]), "mlx5dv_dr_rule_destroy");
	need(!mlx5dv_dr_action_destroy(s->to_rq), "mlx5dv_dr_action_destroy");
	need(!mlx5dv_dr_matcher_destroy(s->matcher), "mlx5dv_dr_matcher_destroy");
	need(!mlx5dv_dr_table_destroy(s->table), "mlx5dv_dr_table_destroy");
	need(!mlx5dv_dr_domain_destroy(s->domain), "mlx5dv_dr_domain_destroy");
}

/* ---- main ---- */

static void say_ready(const char *device)
{
	char ip[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &(struct in_addr){ htonl(OUR_IP) }, ip, sizeof(ip));
	printf("packet-processor: %s answers for %s at", device, ip);
	for (int i = 40; i >= 0; i -= 8)
		printf("%c%02x", i == 40 ? ' ' : ':', (unsigned int)(OUR_MAC >> i) & 0xff);
	printf("\n");
	fflush(stdout);
}

/* Until a signal comes, or limit frames (0: no limit). */
static void wait_for_end(struct flexio_process *process, flexio_uintptr_t daddr,
			 struct processor *p, const sigset_t *signals, uint64_t limit)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	do
		copy_back(process, daddr, p, sizeof(*p));
	while ((!limit || p->frames < limit) && sigtimedwait(signals, NULL, &pause) < 0);
}

/* No more frames come: until the device has counted the last burst, unless it failed. */
static void wait_for_counts(struct flexio_process *process, flexio_uintptr_t daddr,
			    struct processor *p)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	copy_back(process, daddr, p, sizeof(*p));
	while (p->frames != p->arp + p->echo + p->forwarded + p->ignored &&
	       !flexio_err_status_get(process)) {
		nanosleep(&pause, NULL);
		copy_back(process, daddr, p, sizeof(*p));
	}
}

static void run(struct ibv_context *ctx, struct processor *p, uint64_t limit,
		const sigset_t *signals)
{
	struct flexio_event_handler_attr handler_attr = { .host_stub_func = packet_processor };
	flexio_msg_stream_attr_t stream_attr = { .data_bsize = 4096,
						 .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
						 .level = FLEXIO_MSG_DEV_INFO };
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct flexio_event_handler *handler;
	struct flexio_process *process;
	struct flexio_msg_stream *stream;
	struct flexio_mkey *mkey;
	struct flexio_cq *rq_cq, *sq_cq;
	struct flexio_rq *rq;
	struct flexio_sq *sq;
	struct steering steering;
	flexio_uintptr_t daddr;

	need(pd != NULL, "ibv_alloc_pd");
	need(!flexio_process_create(ctx, packet_processor_app, NULL, &process),
	     "flexio_process_create");
	need(!flexio_msg_stream_create(process, &stream_attr, stdout, NULL, &stream),
	     "flexio_msg_stream_create");
	need(!flexio_event_handler_create(process, &handler_attr, &handler),
	     "flexio_event_handler_create");
	mkey = make_buffers(process, pd, p);
	rq_cq = make_cq(process, &p->rq_cq, flexio_event_handler_get_thread(handler));
	sq_cq = make_cq(process, &p->sq_cq, NULL);
	sq = make_sq(process, pd, p);
	rq = make_rq(process, pd, p);
	need(!flexio_copy_from_host(process, p, sizeof(*p), &daddr), "flexio_copy_from_host");
	need(!flexio_event_handler_run(handler, daddr), "flexio_event_handler_run");
	steer(&steering, ctx, rq);
	say_ready(ibv_get_device_name(ctx->device));

	wait_for_end(process, daddr, p, signals, limit);

	unsteer(&steering);
	wait_for_counts(process, daddr, p);
	need(!flexio_rq_destroy(rq) && !flexio_sq_destroy(sq), "destroying queues");
	need(!flexio_cq_destroy(rq_cq) && !flexio_cq_destroy(sq_cq), "flexio_cq_destroy");
	need(!flexio_device_mkey_destroy(mkey), "flexio_device_mkey_destroy");
	need(!flexio_event_handler_destroy(handler), "flexio_event_handler_destroy");
	need(!flexio_msg_stream_destroy(stream), "flexio_msg_stream_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	need(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
}

int main(int argc, char **argv)
{
	struct processor p = { 0 };
	struct ibv_context *ctx;
	uint64_t limit = 0;
	sigset_t signals;
	int option;

	while ((option = getopt(argc, argv, "n:v")) != -1) {
		if (option == 'n') {
			limit = strtoull(optarg, NULL, 0);
		} else if (option == 'v') {
			p.verbose = 1;
		} else {
			fprintf(stderr, "usage: %s [-n FRAMES] [-v] [DEVICE]\n", argv[0]);
			return 2;
		}
	}
	/* Before any thread is made: they all leave these signals to us. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	ctx = open_device(optind < argc ? argv[optind] : "mlx5_0");
	run(ctx, &p, limit, &signals);
	ibv_close_device(ctx);
	printf("%lu frames: %lu ARP requests and %lu pings answered, %lu UDP datagrams sent on, %lu ignored\n",
	       (unsigned long)p.frames, (unsigned long)p.arp, (unsigned long)p.echo,
	       (unsigned long)p.forwarded, (unsigned long)p.ignored);
	return p.failed ? 1 : 0;
}
