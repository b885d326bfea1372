// SPDX-License-Identifier: MIT
/*
 * Frames for one MAC address are spread over many receive queues by a hash of addresses and ports
 * (receive side scaling); each queue wakes a device thread on an execution unit (EU) of its own.
 *
 *	                           +--> RQ 0 --> CQ --> thread on EU 0 --> SQ 0 --+
 *	rule --> TIR --> table ----+--> RQ 1 --> CQ --> thread on EU 1 --> SQ 1 --+--> back to the sender
 *	         hash              +--> ...
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

#define OUR_MAC 0x02427e7feb03ull

extern struct flexio_app *l2_reflector;
extern flexio_func_t reflect;

/* What the host has of a lane. */
struct objects {
	struct flexio_event_handler *handler;
	struct flexio_mkey *mkey;
	struct flexio_cq *rq_cq, *sq_cq;
	struct flexio_rq *rq;
	struct flexio_sq *sq;
};

struct steering {
	struct mlx5dv_devx_obj *rqt, *tir;
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *to_tir;
	struct mlx5dv_dr_rule *rule;
};

static struct flexio_process *process;
static struct ibv_pd *pd;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "l2-reflector: %s failed\n", what);
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
		fprintf(stderr, "l2-reflector: no device %s (did you say verbatim run?)\n", name);
	need(ctx != NULL, "opening the device");
	ibv_free_device_list(list);
	return ctx;
}

/* ---- memory of the device ---- */

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

static struct flexio_mkey *make_buffers(struct lane *lane)
{
	struct flexio_mkey_attr attr = { .pd = pd,
					 .len = DEPTH * BUFFER,
					 .access = IBV_ACCESS_LOCAL_WRITE };
	struct flexio_mkey *mkey;

	lane->buffers = attr.daddr = device_zeros(attr.len);
	need(!flexio_device_mkey_create(process, &attr, &mkey), "flexio_device_mkey_create");
	lane->lkey = flexio_mkey_get_id(mkey);
	return mkey;
}

/* ---- queues ---- */

/* thread: what a completion wakes; NULL: device code looks by itself */
static struct flexio_cq *make_cq(struct queue *q, struct flexio_thread *thread)
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
	q->record = device_zeros(8);
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

static struct flexio_sq *make_sq(struct lane *lane)
{
	struct flexio_wq_attr attr = { .log_wq_depth = LOG_DEPTH, .pd = pd };
	struct flexio_sq *sq;

	lane->sq.ring = attr.wq_ring_qmem.daddr = device_zeros(64 * DEPTH);
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	need(!flexio_sq_create(process, NULL, lane->sq_cq.number, &attr, &sq), "flexio_sq_create");
	lane->sq.number = flexio_sq_get_wq_num(sq);
	return sq;
}

/* A receive queue, with all of its buffers posted. */
static struct flexio_rq *make_rq(struct lane *lane)
{
	struct flexio_wq_attr attr = { .log_wq_depth = LOG_DEPTH, .pd = pd };
	struct mlx5_wqe_data_seg ring[DEPTH];
	__be32 record[2] = { htonl(DEPTH), 0 };
	struct flexio_rq *rq;

	for (int i = 0; i < DEPTH; i++)
		mlx5dv_set_data_seg(&ring[i], BUFFER, lane->lkey,
				    lane->buffers + (uint64_t)i * BUFFER);
	need(!flexio_copy_from_host(process, ring, sizeof(ring), &lane->rq.ring),
	     "flexio_copy_from_host");
	need(!flexio_copy_from_host(process, record, sizeof(record), &lane->rq.record),
	     "flexio_copy_from_host");
	attr.wq_ring_qmem.daddr = lane->rq.ring;
	attr.wq_dbr_qmem.daddr = lane->rq.record;
	need(!flexio_rq_create(process, NULL, lane->rq_cq.number, &attr, &rq), "flexio_rq_create");
	lane->rq.number = flexio_rq_get_wq_num(rq);
	return rq;
}

static void make_lane(struct lane *lane, struct objects *o, uint32_t eu)
{
	struct flexio_event_handler_attr attr = {
		.host_stub_func = reflect,
		.affinity = { .type = FLEXIO_AFFINITY_STRICT, .id = eu },
	};

	need(!flexio_event_handler_create(process, &attr, &o->handler),
	     "flexio_event_handler_create");
	o->mkey = make_buffers(lane);
	o->rq_cq = make_cq(&lane->rq_cq, flexio_event_handler_get_thread(o->handler));
	o->sq_cq = make_cq(&lane->sq_cq, NULL);
	o->sq = make_sq(lane);
	o->rq = make_rq(lane);
}

static void end_lane(struct objects *o)
{
	need(!flexio_rq_destroy(o->rq) && !flexio_sq_destroy(o->sq), "destroying queues");
	need(!flexio_cq_destroy(o->rq_cq) && !flexio_cq_destroy(o->sq_cq), "flexio_cq_destroy");
	need(!flexio_device_mkey_destroy(o->mkey), "flexio_device_mkey_destroy");
	need(!flexio_event_handler_destroy(o->handler), "flexio_event_handler_destroy");
}

/*
 * ---- commands of the programmer's reference manual: big-endian fields, told by their first bit
 * ----
 */

static void set(uint32_t *command, unsigned int bit, unsigned int width, uint32_t value)
{
	command[bit / 32] |= htonl(value << (32 - bit % 32 - width));
}

/* CREATE_RQT: which queues there are. */
static struct mlx5dv_devx_obj *make_rqt(struct ibv_context *ctx, const struct lane *lanes,
					uint32_t count, uint32_t *number)
{
	enum { CONTEXT = 0x100, LIST = CONTEXT + 0x780 };
	uint32_t in[LIST / 32 + MAX_LANES] = { 0 }, out[4] = { 0 };
	struct mlx5dv_devx_obj *rqt;

	set(in, 0, 16, 0x916);
	set(in, CONTEXT + 0xb0, 16, count);
	set(in, CONTEXT + 0xd0, 16, count);
	for (uint32_t i = 0; i < count; i++)
		set(in, LIST + 32 * i + 8, 24, lanes[i].rq.number);
	rqt = mlx5dv_devx_obj_create(ctx, in, LIST / 8 + 4 * count, out, sizeof(out));
	need(rqt != NULL, "CREATE_RQT");
	*number = ntohl(out[2]) & 0xffffff;
	return rqt;
}

/*
 * CREATE_TIR: Toeplitz hash over IPv4 addresses and UDP ports. Frames without them go to the first
 * queue.
 */
static struct mlx5dv_devx_obj *make_tir(struct ibv_context *ctx, uint32_t rqt)
{
	enum {
		CONTEXT = 0x100,
		KEY = (CONTEXT + 0x140) / 8,
		INDIRECT = 1,
		TOEPLITZ = 2,
		UDP = 1,
		ADDRESSES_AND_PORTS = 0xf
	};
	/* Its words repeat, so both directions of a flow have the same hash. */
	static const uint8_t key[2] = { 0x6d, 0x5a };
	uint32_t in[(CONTEXT + 1920) / 32] = { 0 }, out[4] = { 0 };
	struct mlx5dv_devx_obj *tir;

	set(in, 0, 16, 0x900);
	set(in, CONTEXT + 0x20, 4, INDIRECT);
	set(in, CONTEXT + 0x108, 24, rqt);
	set(in, CONTEXT + 0x120, 4, TOEPLITZ);
	for (int i = 0; i < 40; i++)
		((uint8_t *)in)[KEY + i] = key[i % 2];
	set(in, CONTEXT + 0x281, 1, UDP);
	set(in, CONTEXT + 0x282, 30, ADDRESSES_AND_PORTS);
	tir = mlx5dv_devx_obj_create(ctx, in, sizeof(in), out, sizeof(out));
	need(tir != NULL, "CREATE_TIR");
	return tir;
}

/* ---- steering ---- */

/*
 * The destination MAC in the bytes that matchers and rules take: 64 of them describe the outer
 * headers.
 */
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

static void steer(struct steering *s, struct ibv_context *ctx)
{
	enum { OUTER_HEADERS = 1 };
	struct mlx5dv_flow_match_parameters *mask = match_mac(0xffffffffffff),
					    *value = match_mac(OUR_MAC);

	s->domain = mlx5dv_dr_domain_create(ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	need(s->domain != NULL, "mlx5dv_dr_domain_create");
	s->table = mlx5dv_dr_table_create(s->domain, 0);
	need(s->table != NULL, "mlx5dv_dr_table_create");
	s->matcher = mlx5dv_dr_matcher_create(s->table, 0, OUTER_HEADERS, mask);
	need(s->matcher != NULL, "mlx5dv_dr_matcher_create");
	s->to_tir = mlx5dv_dr_action_create_dest_devx_tir(s->tir);
	need(s->to_tir != NULL, "mlx5dv_dr_action_create_dest_devx_tir");
	s->rule = mlx5dv_dr_rule_create(s->matcher, value, 1, &s->to_tir);
	need(s->rule != NULL, "mlx5dv_dr_rule_create");
	free(mask);
	free(value);
}

static void unsteer(struct steering *s)
{
	need(!mlx5dv_dr_rule_destroy(s->rule), "mlx5dv_dr_rule_destroy");
	need(!mlx5dv_dr_action_destroy(s->to_tir), "mlx5dv_dr_action_destroy");
	need(!mlx5dv_dr_matcher_destroy(s->matcher), "mlx5dv_dr_matcher_destroy");
	need(!mlx5dv_dr_table_destroy(s->table), "mlx5dv_dr_table_destroy");
	need(!mlx5dv_dr_domain_destroy(s->domain), "mlx5dv_dr_domain_destroy");
	need(!mlx5dv_devx_obj_destroy(s->tir), "destroying the TIR");
	need(!mlx5dv_devx_obj_destroy(s->rqt), "destroying the RQT");
}

/* ---- main ---- */

/* Until a signal comes, or limit frames (0: no limit). */
static void wait_for_end(flexio_uintptr_t daddr, struct lane *lanes, uint32_t count, uint64_t limit,
			 const sigset_t *signals)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	uint64_t frames;

	do {
		frames = 0;
		copy_back(daddr, lanes, count * sizeof(*lanes));
		for (uint32_t i = 0; i < count; i++)
			frames += lanes[i].frames;
	} while ((!limit || frames < limit) && sigtimedwait(signals, NULL, &pause) < 0);
	copy_back(daddr, lanes, count * sizeof(*lanes));
}

static void run(struct ibv_context *ctx, struct lane *lanes, uint32_t count, uint64_t limit,
		const sigset_t *signals)
{
	struct objects objects[MAX_LANES];
	struct steering steering;
	flexio_uintptr_t daddr;
	uint32_t rqt;

	pd = ibv_alloc_pd(ctx);
	need(pd != NULL, "ibv_alloc_pd");
	need(!flexio_process_create(ctx, l2_reflector, NULL, &process), "flexio_process_create");
	for (uint32_t i = 0; i < count; i++)
		make_lane(&lanes[i], &objects[i], i);
	need(!flexio_copy_from_host(process, lanes, count * sizeof(*lanes), &daddr),
	     "flexio_copy_from_host");
	for (uint32_t i = 0; i < count; i++)
		need(!flexio_event_handler_run(objects[i].handler, daddr + i * sizeof(*lanes)),
		     "flexio_event_handler_run");
	steering.rqt = make_rqt(ctx, lanes, count, &rqt);
	steering.tir = make_tir(ctx, rqt);
	steer(&steering, ctx);
	printf("l2-reflector: %s, %u queues\n", ibv_get_device_name(ctx->device), count);
	fflush(stdout);

	wait_for_end(daddr, lanes, count, limit, signals);

	unsteer(&steering);
	for (uint32_t i = 0; i < count; i++)
		end_lane(&objects[i]);
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	need(!ibv_dealloc_pd(pd), "ibv_dealloc_pd");
}

static int report(const struct lane *lanes, uint32_t count)
{
	uint64_t frames = 0, failed = 0;

	printf("%5s %12s %12s\n", "queue", "frames", "bytes");
	for (uint32_t i = 0; i < count; i++) {
		printf("%5u %12lu %12lu\n", i, (unsigned long)lanes[i].frames,
		       (unsigned long)lanes[i].bytes);
		frames += lanes[i].frames;
		failed += lanes[i].failed;
	}
	printf("%lu frames reflected\n", (unsigned long)frames);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct lane lanes[MAX_LANES];
	struct ibv_context *ctx;
	uint32_t count = 8;
	uint64_t limit = 0;
	sigset_t signals;
	int option;

	while ((option = getopt(argc, argv, "n:q:")) != -1) {
		if (option == 'n')
			limit = strtoull(optarg, NULL, 0);
		else if (option == 'q')
			count = (uint32_t)strtoul(optarg, NULL, 0);
		if (option == '?' || !count || count > MAX_LANES || count & (count - 1)) {
			fprintf(stderr,
				"usage: %s [-n FRAMES] [-q QUEUES] [DEVICE]\n"
				"QUEUES: a power of two up to %d\n",
				argv[0], MAX_LANES);
			return 2;
		}
	}
	/* Before any thread is made: they all leave these signals to us. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	ctx = open_device(optind < argc ? argv[optind] : "mlx5_0");
	run(ctx, lanes, count, limit, &signals);
	ibv_close_device(ctx);
	return report(lanes, count);
}
