// SPDX-License-Identifier: MIT
/*
 * Owns what queues by command have in common: fields of contexts, memory, the objects that they
 * name.
 */
#include "devx_queue.h"

#include <stdatomic.h>

#include "card/memory/mr.h"
#include "card/queue/cq.h"
#include "card/queue/doorbell.h"
#include "card/queue/eq.h"
#include "card/queue/qp.h"
#include "card/queue/srq.h"
#include "card/queue/umem.h"

enum { RING_ALIGN = 64, RECORD_BYTES = 8 };
enum { MAX_LOG_SIZE = 15, MIN_LOG_STRIDE = 4, LINKED_MIN_LOG_STRIDE = 5, MAX_LOG_STRIDE = 10 };

/* --- fields ----------------------------------------------------------------------------------- */

static const struct devx_field wq_fields[] = {
	{ 0x0, 4, DEVX_KEPT, "wq_type" },
	{ 0x4, 1, DEVX_ABSENT, "wq_signature" },
	{ 0x5, 2, DEVX_KEPT, "end_padding_mode" },
	{ 0x7, 1, DEVX_ABSENT, "cd_slave" },
	{ 0x20, 1, DEVX_ABSENT, "hds_skip_first_sge" },
	{ 0x21, 3, DEVX_ABSENT, "log2_hds_buf_size" },
	{ 0x2b, 5, DEVX_KEPT, "page_offset" },
	{ 0x30, 16, DEVX_KEPT, "lwm" },
	{ 0x48, 24, DEVX_KEPT, "pd" },
	{ 0x68, 24, DEVX_KEPT, "uar_page" },
	{ 0x80, 32, DEVX_KEPT, "dbr_addr" },
	{ 0xa0, 32, DEVX_KEPT, "dbr_addr" },
	{ 0xc0, 32, DEVX_SHOWN, "hw_counter" },
	{ 0xe0, 32, DEVX_SHOWN, "sw_counter" },
	{ 0x10c, 4, DEVX_KEPT, "log_wq_stride" },
	{ 0x113, 5, DEVX_KEPT, "log_wq_pg_sz" },
	{ 0x11b, 5, DEVX_KEPT, "log_wq_sz" },
	{ 0x120, 1, DEVX_KEPT, "dbr_umem_valid" },
	{ 0x121, 1, DEVX_KEPT, "wq_umem_valid" },
	{ 0x123, 5, DEVX_ABSENT, "log_hairpin_num_packets" },
	{ 0x12b, 5, DEVX_ABSENT, "log_hairpin_data_sz" },
	{ 0x134, 4, DEVX_KEPT, "single_wqe_log_num_of_strides" },
	{ 0x138, 1, DEVX_KEPT, "two_byte_shift_en" },
	{ 0x13d, 3, DEVX_KEPT, "single_stride_log_num_of_bytes" },
	{ 0x140, 32, DEVX_KEPT, "dbr_umem_id" },
	{ 0x160, 32, DEVX_KEPT, "wq_umem_id" },
	{ 0x180, 32, DEVX_KEPT, "wq_umem_offset" },
	{ 0x1a0, 32, DEVX_KEPT, "wq_umem_offset" },
};

int devx_check_fields(struct devx_cmd *cmd, const uint8_t *context, const struct devx_field *fields,
		      size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t value = get(context, fields[i].at, fields[i].bits);

		if (fields[i].use == DEVX_ABSENT && value)
			return devx_refuse(cmd, DEVX_BAD_PARAM,
					   vb_refuse_unsupported_value(fields[i].name, value));
	}
	return 0;
}

void devx_keep_fields(uint8_t *to, const uint8_t *from, const struct devx_field *fields,
		      size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fields[i].use == DEVX_KEPT)
			put(to, fields[i].at, fields[i].bits,
			    get(from, fields[i].at, fields[i].bits));
}

int devx_check_wq(struct devx_cmd *cmd, const uint8_t *context, const struct devx_field *fields,
		  size_t count)
{
	int err = devx_check_fields(cmd, context, fields, count);

	return err ? err : devx_check_fields(cmd, context + DEVX_WQ / 8, DEVX_FIELDS(wq_fields));
}

void devx_keep_wq(struct devx_queue *queue, const uint8_t *context, const struct devx_field *fields,
		  size_t count)
{
	devx_keep_fields(queue->kept, context, fields, count);
	devx_keep_fields(queue->kept + DEVX_WQ / 8, context + DEVX_WQ / 8, DEVX_FIELDS(wq_fields));
}

void devx_show_wq(struct devx_cmd *cmd, enum devx_wq_state state, uint32_t done, uint32_t posted)
{
	struct devx_queue *queue = devx_queue_of(cmd->obj);
	uint8_t *context = cmd->out + DEVX_CONTEXT / 8;

	vb_lock(&queue->lock);
	memcpy(context, queue->kept, DEVX_WQC_BYTES);
	vb_unlock(&queue->lock);
	put(context, 0x8, 4, state);
	put(context, DEVX_WQ + 0xc0, 32, done);
	put(context, DEVX_WQ + 0xe0, 32, posted);
}

/* --- states ----------------------------------------------------------------------------------- */

enum devx_wq_state devx_wq_state_of(const struct devx_queue *queue)
{
	switch (vb_qp_state(queue->qp)) {
	case IBV_QPS_RESET:
		return DEVX_RST;
	case IBV_QPS_SQE:
	case IBV_QPS_ERR:
		return DEVX_ERR;
	default:
		return DEVX_RDY;
	}
}

/*
 * RST -> RDY -> ERR, and from everywhere to RST or to where it is already.
 */
int devx_read_states(struct devx_cmd *cmd, enum devx_wq_state is, enum devx_wq_state *to)
{
	static const char *const names[] = {
		[DEVX_RST] = "RST", [DEVX_RDY] = "RDY", [DEVX_ERR] = "ERR"
	};
	uint32_t from = get(cmd->in, DEVX_OLD_STATE, 4);
	uint32_t want = get(cmd->in, DEVX_CONTEXT + 0x8, 4);

	if (want > DEVX_ERR || want == 2)
		return vb_refuse_value("state", want);
	if (from != is)
		return devx_refuse(cmd, DEVX_BAD_RES_STATE, vb_refuse_command_state(names[is]));
	if (want != DEVX_RST && want != is && want != (is == DEVX_RST ? DEVX_RDY : DEVX_ERR))
		return devx_refuse(cmd, DEVX_BAD_RES_STATE, vb_refuse_command_state(names[is]));
	*to = (enum devx_wq_state)want;
	return 0;
}

/* --- life ------------------------------------------------------------------------------------- */

struct devx_queue *devx_queue_new(struct devx_cmd *cmd)
{
	struct devx_queue *queue = calloc(1, sizeof(*queue));

	if (!queue) {
		devx_refuse(cmd, DEVX_NO_RES, vb_refuse_memory("the queue"));
		return NULL;
	}
	queue->obj = cmd->obj;
	return queue;
}

void devx_queue_free(struct devx_queue *queue)
{
	if (queue->list)
		vb_srq_destroy(queue->list);
	if (queue->eq)
		vb_eq_put(queue->eq, queue->eq_user);
	free(queue->eq_user);
	if (queue->tis)
		devx_put(queue->tis);
	if (queue->ring)
		vb_umem_put(queue->ring);
	if (queue->record)
		vb_umem_put(queue->record);
	free(queue);
}

uint32_t devx_new_number(struct devx_cmd *cmd, _Atomic uint32_t *next)
{
	struct mlx5dv_devx_obj *other;
	uint32_t number;

	do {
		number = atomic_fetch_add_explicit(next, 1, memory_order_relaxed) % 0xffffff + 1;
		other = devx_get(cmd->context, cmd->row->kind, number);
		if (other)
			devx_put(other);
	} while (other);
	return number;
}

int devx_card_refused(struct devx_cmd *cmd, int err)
{
	return devx_refuse(cmd,
			   err == -ENOMEM  ? DEVX_NO_RES
			   : err == -EBUSY ? DEVX_BAD_RES_STATE
					   : DEVX_BAD_PARAM,
			   err);
}

/* --- memory ----------------------------------------------------------------------------------- */

int devx_place(struct devx_cmd *cmd, const char *what, uint32_t number, uint64_t offset,
	       uint64_t size, uintptr_t align, struct vb_umem **umem, void **addr)
{
	struct vb_umem *found = vb_umem_get(cmd->dev, number, offset, size, addr);

	if (!found)
		return devx_refuse(cmd, DEVX_BAD_RES,
				   vb_refuse_no_umem(what, size, offset, number));
	if ((uintptr_t)*addr & (align - 1)) {
		vb_umem_put(found);
		return devx_refuse(cmd, DEVX_BAD_PARAM,
				   vb_refuse_combination("a ring is not at a multiple of 64, or a "
							 "doorbell record not of 8"));
	}
	*umem = found;
	return 0;
}

int devx_place_record(struct devx_cmd *cmd, struct devx_queue *queue, uint32_t number,
		      uint64_t offset)
{
	void *addr;
	int err = devx_place(cmd, "the doorbell record", number, offset, RECORD_BYTES, RECORD_BYTES,
			     &queue->record, &addr);

	if (!err)
		queue->dbr = addr;
	return err;
}

uint64_t devx_ring_offset(uint64_t offset, uint32_t page_offset, uint32_t log_page_size)
{
	return offset + (((uint64_t)page_offset << (log_page_size + 12)) >> 6);
}

int devx_wq_place(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *wq,
		  uint32_t log_stride, void **ring)
{
	uint32_t log_size = get(wq, 0x11b, 5);
	uint64_t offset;
	int err;

	if (log_size > MAX_LOG_SIZE)
		return devx_refuse(cmd, DEVX_BAD_PARAM,
				   vb_refuse_range("log_wq_sz", log_size, 0, MAX_LOG_SIZE));
	offset = devx_ring_offset(get64(wq, 0x180), get(wq, 0x2b, 5), get(wq, 0x113, 5));
	err = devx_place(cmd, "the ring", get(wq, 0x160, 32), offset,
			 1ull << (log_size + log_stride), RING_ALIGN, &queue->ring, ring);
	return err ? err : devx_place_record(cmd, queue, get(wq, 0x140, 32), get64(wq, 0x80));
}

int devx_check_not_striding(struct devx_cmd *cmd, const uint8_t *wq)
{
	static const struct devx_field none[] = {
		{ 0x134, 4, DEVX_ABSENT, "single_wqe_log_num_of_strides" },
		{ 0x138, 1, DEVX_ABSENT, "two_byte_shift_en" },
		{ 0x13d, 3, DEVX_ABSENT, "single_stride_log_num_of_bytes" },
	};

	return devx_check_fields(cmd, wq, DEVX_FIELDS(none));
}

/* Numbers of strides are counted from 9 on; below that they are negative, in two's complement. */
static int read_striding(struct devx_cmd *cmd, const uint8_t *wq, struct vb_striding *striding)
{
	enum { COUNT_BASE = 9, BYTES_BASE = 6 };
	uint32_t count = get(wq, 0x134, 4);
	int log_count = (int)(count ^ 8) - 8 + COUNT_BASE;

	if (log_count < VB_STRIDES_LOG_MIN)
		return devx_refuse(
			cmd, DEVX_BAD_PARAM,
			vb_refuse_unsupported_value("single_wqe_log_num_of_strides", count));
	*striding = (struct vb_striding){
		.log_bytes = (uint8_t)(get(wq, 0x13d, 3) + BYTES_BASE),
		.log_count = (uint8_t)log_count,
		.shift = get(wq, 0x138, 1),
	};
	return 0;
}

int devx_wq_receives(struct devx_cmd *cmd, struct devx_queue *queue, const uint8_t *wq,
		     struct vb_srq_attr *attr, struct vb_striding *striding)
{
	enum { LINKED_LIST = 0, CYCLIC = 1, LINKED_LIST_STRIDING = 2, CYCLIC_STRIDING = 3 };
	uint32_t type = get(wq, 0x0, 4), log_stride = get(wq, 0x10c, 4);
	uint32_t least = type == CYCLIC ? MIN_LOG_STRIDE : LINKED_MIN_LOG_STRIDE;
	int err;

	if (type > CYCLIC_STRIDING || (type > CYCLIC && !striding))
		return devx_refuse(cmd, DEVX_BAD_PARAM,
				   vb_refuse_unsupported_value("wq_type", type));
	err = type > CYCLIC ? read_striding(cmd, wq, striding) : devx_check_not_striding(cmd, wq);
	if (err)
		return err;
	if (log_stride < least || log_stride > MAX_LOG_STRIDE)
		return devx_refuse(
			cmd, DEVX_BAD_PARAM,
			vb_refuse_range("log_wq_stride", log_stride, least, MAX_LOG_STRIDE));
	err = devx_wq_place(cmd, queue, wq, log_stride, &attr->buf);
	if (err)
		return err;
	attr->dbr = queue->dbr;
	attr->wqe_cnt = 1u << get(wq, 0x11b, 5);
	attr->wqe_shift = log_stride;
	attr->cyclic = type == CYCLIC || type == CYCLIC_STRIDING;
	return 0;
}

/* --- what a context names --------------------------------------------------------------------- */

struct vb_pd *devx_pd(struct devx_cmd *cmd, uint32_t number)
{
	struct vb_pd *pd = vb_pd_get(cmd->dev, number);

	if (!pd)
		devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("pd", number));
	return pd;
}

struct vb_cq *devx_cq(struct devx_cmd *cmd, const char *field, uint32_t number)
{
	struct vb_cq *cq = vb_cq_get(cmd->dev, number);

	if (!cq)
		devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object(field, number));
	return cq;
}

int devx_check_uar(struct devx_cmd *cmd, uint32_t number)
{
	if (vb_uar_exists(cmd->dev, number))
		return 0;
	return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("uar_page", number));
}

int devx_count_in(struct devx_cmd *cmd, struct vb_qp *qp, uint32_t set)
{
	int err = vb_qp_set_counters(qp, set);

	return err ? devx_refuse(cmd, DEVX_BAD_RES, err) : 0;
}

int devx_check_ts_format(struct devx_cmd *cmd, uint32_t ts_format)
{
	if (ts_format <= DEVX_REAL_TIME)
		return 0;
	return devx_refuse(cmd, DEVX_BAD_PARAM,
			   vb_refuse_unsupported_value("ts_format", ts_format));
}

/* --- events ----------------------------------------------------------------------------------- */

void devx_queue_event(void *cookie, enum ibv_event_type type)
{
	struct devx_queue *queue = cookie;

	vb_listeners_tell(&queue->obj->listeners, type, queue->obj->number);
}
