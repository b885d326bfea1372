// SPDX-License-Identifier: MIT
/*
 * Counter sets of queues by command (DEVX): what happened to the queue pairs and RQs that name one
 * in counter_set_id. The card counts (card/queue/counter_set.c); here are the fields of the answer.
 */
#include "mlx5.h"

#include "card/queue/counter_set.h"
#include "devx_bits.h"
#include "devx_table.h"

enum { SET_ID = 0xf8, CLEAR = 0xc0, AGGREGATE = 0xc1, OTHER_VPORT = 0x40 };
enum { QUERY_BYTES = 32, ANSWER_BYTES = 256 };

/* Counters that are not here stay 0: connections of DCTs, implied NAKs, CQ overruns by queue pair. */
static const struct {
	uint16_t at; /* 32 bits */
	enum vb_counter counter;
} fields[] = {
	{ 0x80, VB_COUNT_RX_WRITE },         { 0xc0, VB_COUNT_RX_READ },
	{ 0x100, VB_COUNT_RX_ATOMIC },       { 0x180, VB_COUNT_OUT_OF_BUFFER },
	{ 0x1c0, VB_COUNT_OUT_OF_SEQUENCE }, { 0x200, VB_COUNT_DUPLICATE },
	{ 0x240, VB_COUNT_RNR_NAK },         { 0x280, VB_COUNT_SEQUENCE_NAK },
	{ 0x300, VB_COUNT_ACK_TIMEOUT },     { 0x380, VB_COUNT_REQ_RNR_RETRIES },
	{ 0x3c0, VB_COUNT_RESP_LENGTH },     { 0x3e0, VB_COUNT_REQ_LENGTH },
	{ 0x400, VB_COUNT_RESP_QP },         { 0x420, VB_COUNT_REQ_QP },
	{ 0x440, VB_COUNT_RESP_PROTECTION }, { 0x460, VB_COUNT_REQ_PROTECTION },
	{ 0x480, VB_COUNT_RESP_CQE },        { 0x4a0, VB_COUNT_REQ_CQE },
	{ 0x4c0, VB_COUNT_REQ_BIND },        { 0x4e0, VB_COUNT_REQ_RESPONSE },
	{ 0x500, VB_COUNT_REQ_INVALID },     { 0x520, VB_COUNT_RESP_INVALID },
	{ 0x540, VB_COUNT_REQ_ACCESS },      { 0x560, VB_COUNT_RESP_ACCESS },
	{ 0x580, VB_COUNT_REQ_OPERATION },   { 0x5a0, VB_COUNT_REQ_RETRIES },
	{ 0x5e0, VB_COUNT_RESP_FLUSH },      { 0x600, VB_COUNT_REQ_FLUSH },
};

static int alloc_set(struct devx_cmd *cmd)
{
	struct vb_counter_set *set;
	int err = vb_counter_set_alloc(cmd->dev, &set);

	if (err)
		return devx_refuse(cmd, DEVX_NO_RES, err);
	cmd->obj->data = set;
	cmd->obj->number = vb_counter_set_number(set);
	return 0;
}

static int dealloc_set(struct devx_cmd *cmd)
{
	return vb_counter_set_free(cmd->obj->data);
}

static int query_set(struct devx_cmd *cmd)
{
	uint64_t values[VB_COUNTERS];

	if (get(cmd->in, OTHER_VPORT, 1))
		return vb_refuse_unsupported("counters of another vport (other_vport)");
	if (get(cmd->in, AGGREGATE, 1))
		return vb_refuse_unsupported("sums over counter sets (aggregate)");
	vb_counter_set_read(cmd->obj->data, get(cmd->in, CLEAR, 1), values);
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		put(cmd->out, fields[i].at, 32, (uint32_t)values[fields[i].counter]);
	return 0;
}

const struct devx_row devx_q_counter_rows[] = {
	{ "ALLOC_Q_COUNTER", 0x771, 0, DEVX_CREATE, VB_DEVX_Q_COUNTER, 16, 16, DEVX_NUMBER_8,
	  alloc_set },
	{ "DEALLOC_Q_COUNTER", 0x772, 0, DEVX_DESTROY, VB_DEVX_Q_COUNTER, 16, 16, DEVX_NUMBER_8,
	  dealloc_set },
	{ "QUERY_Q_COUNTER", 0x773, 0, DEVX_QUERY, VB_DEVX_Q_COUNTER, QUERY_BYTES, ANSWER_BYTES,
	  SET_ID, query_set },
	{ 0 },
};
