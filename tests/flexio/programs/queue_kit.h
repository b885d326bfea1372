/* SPDX-License-Identifier: MIT */
/* The host's half of the queue programs: queues in device memory, connected, with what device code needs to know. */
#pragma once

#include "check.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include "queue_work.h"

#ifndef FLEXIO_ALLOW_EXPERIMENTAL_API
#error "pkg-config --cflags libflexio says so"
#endif

/* Device numbers of the types of sends (the newest header's). */
enum {
	SEG_SEND = 1,
	SEG_LDMA = 2,
	SEG_WRITE = 3,
	SEG_READ = 4,
	SEG_CAS = 5,
	SEG_LSO = 6,
	SEG_NOP = 7,
	SEG_WRITE_IMM = 8,
	SEG_TRANSPOSE = 9,
	SEG_SEND_UD = 10,
	SEG_WAIT = 11,
	SEG_FAA = 12,
	SEG_SEND_EN = 0
};
enum { CE_ERROR = 0, CE_FIRST_ERROR = 1, CE_ALWAYS = 2, CE_AND_EQE = 3 };

static inline void dev_write(struct flexio_process *process, flexio_uintptr_t to, const void *from,
			     size_t size)
{
	OK(flexio_host2dev_memcpy(process, (void *)from, size, to));
}

static inline void dev_get(struct flexio_process *process, void *to, flexio_uintptr_t from,
			   size_t size)
{
	struct flexio_mem dst = { FLEXIO_MEMTYPE_HOST, { .haddr = (uintptr_t)to } };
	struct flexio_mem src = { FLEXIO_MEMTYPE_DPA, { .daddr = from } };

	OK(flexio_memcpy(process, &dst, &src, size));
}

static inline flexio_uintptr_t dev_alloc(struct flexio_process *process, size_t size)
{
	flexio_uintptr_t addr;

	OK(flexio_buf_dev_alloc(process, size, &addr));
	OK(flexio_buf_dev_memset(process, 0, size, addr));
	return addr;
}

/* ---- the host log ---- */

struct kit_log {
	int saved;
	FILE *file;
};

/* From here on lines of the log, and of failed checks, go to a file. */
static inline void log_begin(struct kit_log *log)
{
	log->file = tmpfile();
	log->saved = dup(STDERR_FILENO);
	CHECK(log->file && log->saved >= 0);
	dup2(fileno(log->file), STDERR_FILENO);
}

/* Back to normal; how many lines of the log had this text. */
static inline unsigned int log_end(struct kit_log *log, const char *text)
{
	unsigned int lines = 0;
	char line[1024];

	dup2(log->saved, STDERR_FILENO);
	close(log->saved);
	rewind(log->file);
	while (fgets(line, sizeof(line), log->file))
		lines += strstr(line, text) != NULL;
	fclose(log->file);
	return lines;
}

/* ---- completion queues ---- */

/* A ring in which no entry is valid. */
static inline flexio_uintptr_t cq_ring(struct flexio_process *process, uint32_t log)
{
	struct mlx5_cqe64 *ring = calloc(1u << log, sizeof(*ring));
	flexio_uintptr_t addr;

	CHECK(ring);
	for (uint32_t i = 0; i < 1u << log; i++) {
		mlx5dv_set_cqe_owner(&ring[i], 1);
		ring[i].signature = 0xff;
	}
	OK(flexio_copy_from_host(process, ring, sizeof(*ring) << log, &addr));
	free(ring);
	return addr;
}

struct kit_cq {
	struct flexio_cq *cq;
	struct work_cq work;
};

static inline struct flexio_cq_attr cq_attr(struct flexio_process *process, uint32_t log)
{
	return (struct flexio_cq_attr){
		.log_cq_depth = (uint8_t)log,
		.element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ,
		.uar_id = flexio_uar_get_id(flexio_process_get_uar(process)),
		.cq_ring_qmem = { .memtype = FLEXIO_MEMTYPE_DPA, .daddr = cq_ring(process, log) },
		.cq_dbr_daddr = dev_alloc(process, 8),
	};
}

static inline void cq_make(struct flexio_process *process, struct ibv_context *ctx,
			   const struct flexio_cq_attr *attr, struct kit_cq *kit)
{
	*kit = (struct kit_cq){ 0 };
	OK(flexio_cq_create(process, ctx, attr, &kit->cq));
	kit->work = (struct work_cq){
		.ring = attr->cq_ring_qmem.daddr,
		.dbr = attr->cq_dbr_daddr,
		.number = flexio_cq_get_cq_num(kit->cq),
		.log_depth = attr->log_cq_depth,
	};
	CHECK(kit->work.number && kit->work.number < 1u << 24);
}

static inline void cq_simple(struct flexio_process *process, uint32_t log,
			     struct flexio_event_handler *handler, struct kit_cq *kit)
{
	struct flexio_cq_attr attr = cq_attr(process, log);

	if (handler) {
		attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
		attr.thread = flexio_event_handler_get_thread(handler);
	}
	cq_make(process, NULL, &attr, kit);
}

/* ---- queue pairs ---- */

struct kit_qp {
	struct flexio_qp *qp;
	struct work_qp work;
	union ibv_gid gid;
	enum flexio_qp_transport_type transport;
};

static inline struct flexio_qp_attr qp_attr(struct flexio_process *process, uint32_t log_sq,
					    uint32_t log_rq, uint32_t sq_cqn, uint32_t rq_cqn)
{
	return (struct flexio_qp_attr){
		.transport_type = FLEXIO_QPC_ST_RC,
		.uar_id = flexio_uar_get_id(flexio_process_get_uar(process)),
		.qp_access_mask = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.log_sq_depth = (int)log_sq,
		.log_rq_depth = (int)log_rq,
		.sq_cqn = sq_cqn,
		.rq_cqn = rq_cqn,
		.rq_type = FLEXIO_QP_QPC_RQ_TYPE_REGULAR,
		.qp_wq_buff_qmem = { .memtype = FLEXIO_MEMTYPE_DPA,
				     .daddr = dev_alloc(process,
							(16u << log_rq) + (64u << log_sq)) },
		.qp_wq_dbr_qmem = { .memtype = FLEXIO_MEMTYPE_DPA, .daddr = dev_alloc(process, 8) },
	};
}

static inline void qp_make(struct flexio_process *process, struct ibv_context *ctx,
			   struct flexio_qp_attr *attr, struct kit_qp *kit)
{
	uint64_t rq =
		attr->rq_type == FLEXIO_QP_QPC_RQ_TYPE_REGULAR ? 16u << attr->log_rq_depth : 0;

	*kit = (struct kit_qp){ 0 };
	OK(flexio_qp_create(process, ctx, attr, &kit->qp));
	kit->work = (struct work_qp){
		.rq = attr->qp_wq_buff_qmem.daddr,
		.sq = attr->qp_wq_buff_qmem.daddr + rq,
		.dbr = attr->qp_wq_dbr_qmem.daddr,
		.number = flexio_qp_get_qp_num(kit->qp),
		.log_sq = (uint32_t)attr->log_sq_depth,
		.log_rq = (uint32_t)attr->log_rq_depth,
		.stride = 16,
	};
	kit->transport = attr->transport_type;
	CHECK(kit->work.number && kit->work.number < 1u << 24);
	CHECK(flexio_qp_state_get(kit->qp) == FLEXIO_QP_STATE_RST);
}

/* How programs connect: one attribute struct, three steps. */
static inline struct flexio_qp_attr qp_link(uint32_t remote, const union ibv_gid *gid)
{
	struct flexio_qp_attr attr = {
		.remote_qp_num = remote,
		.fl = !gid,
		.min_rnr_nak_timer = 1,
		.path_mtu = FLEXIO_QP_QPC_MTU_BYTES_1K,
		.retry_count = 7,
		.vhca_port_num = 1,
		.udp_sport = 0xc000,
		.grh = 1,
		.log_rra_max = 3,
		.log_sra_max = 3,
		.next_send_psn = 0x123,
		.next_rcv_psn = 0x123,
		.q_key = 0x11111111,
		.isolate_vl_tc = 1,
	};

	if (gid)
		attr.rgid_or_rip = *gid;
	return attr;
}

static inline void qp_to_rts(struct flexio_qp *qp, struct flexio_qp_attr *attr)
{
	struct flexio_qp_attr_opt_param_mask mask = { 0 };

	attr->next_state = FLEXIO_QP_STATE_INIT;
	OK(flexio_qp_modify(qp, attr, &mask));
	attr->next_state = FLEXIO_QP_STATE_RTR;
	OK(flexio_qp_modify(qp, attr, &mask));
	attr->next_state = FLEXIO_QP_STATE_RTS;
	OK(flexio_qp_modify(qp, attr, &mask));
	CHECK(flexio_qp_state_get(qp) == FLEXIO_QP_STATE_RTS);
}

static inline void qp_reset(struct flexio_qp *qp)
{
	struct flexio_qp_attr attr = { .next_state = FLEXIO_QP_STATE_RST };

	OK(flexio_qp_modify(qp, &attr, NULL));
}

/* Two of them in this process, by forced loopback. */
static inline void qp_pair(struct kit_qp *a, struct kit_qp *b)
{
	struct flexio_qp_attr to_b = qp_link(b->work.number, NULL);
	struct flexio_qp_attr to_a = qp_link(a->work.number, NULL);

	qp_to_rts(a->qp, &to_b);
	qp_to_rts(b->qp, &to_a);
}

/* ---- memory that queues may touch ---- */

struct kit_mem {
	flexio_uintptr_t addr;
	struct flexio_mkey *mkey;
	uint32_t key;
	size_t size;
};

static inline void mem_make(struct flexio_process *process, size_t size, struct kit_mem *mem)
{
	struct flexio_mkey_attr attr = {
		.len = size,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	mem->size = size;
	mem->addr = attr.daddr = dev_alloc(process, size);
	OK(flexio_device_mkey_create(process, &attr, &mem->mkey));
	mem->key = flexio_mkey_get_id(mem->mkey);
}

static inline void mem_end(struct kit_mem *mem)
{
	OK(flexio_device_mkey_destroy(mem->mkey));
}

/* ---- work ---- */

/* Have device code do it; *w comes back with what it saw. */
static inline void work_run(struct flexio_process *process, flexio_func_t *func,
			    flexio_uintptr_t daddr, struct work *w)
{
	uint64_t got = 0;

	dev_write(process, daddr, w, sizeof(*w));
	OK(flexio_process_call(process, func, &got, daddr));
	dev_get(process, w, daddr, sizeof(*w));
	CHECK(got == w->expect);
}
