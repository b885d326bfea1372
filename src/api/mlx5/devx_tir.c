// SPDX-License-Identifier: MIT
/* TIRs and transport domains by command (DEVX). A TIR keeps its queue, or its table of queues. */
#include "mlx5.h"

#include "devx_bits.h"
#include "devx_obj.h"
#include "devx_rqt.h"
#include "devx_table.h"

/* --- transport domains ------------------------------------------------------------------------ */

static int create_td(struct devx_cmd *cmd)
{
	cmd->obj->number = vb_transport_domain_take();
	return cmd->obj->number ? 0 : vb_refuse_memory("another transport domain");
}

static int destroy_td(struct devx_cmd *cmd)
{
	if (vb_transport_domain_busy(cmd->obj->number))
		return vb_refuse_busy("TIRs");
	vb_transport_domain_give(cmd->obj->number);
	return 0;
}

/* --- TIRs ------------------------------------------------------------------------------------- */

enum { TIR_CTX = 0x100, TIR_DIRECT = 0, TIR_INDIRECT = 1, HASH_TOEPLITZ = 2 };

/* rx_hash_field_select to enum ibv_rx_hash_fields. */
static uint64_t hash_fields(const uint8_t *in, uint32_t at)
{
	bool v6 = get(in, at, 1), udp = get(in, at + 1, 1);
	const struct {
		uint32_t bit;
		uint64_t field;
	} fields[] = {
		{ 1, v6 ? IBV_RX_HASH_SRC_IPV6 : IBV_RX_HASH_SRC_IPV4 },
		{ 2, v6 ? IBV_RX_HASH_DST_IPV6 : IBV_RX_HASH_DST_IPV4 },
		{ 4, udp ? IBV_RX_HASH_SRC_PORT_UDP : IBV_RX_HASH_SRC_PORT_TCP },
		{ 8, udp ? IBV_RX_HASH_DST_PORT_UDP : IBV_RX_HASH_DST_PORT_TCP },
		{ 16, IBV_RX_HASH_IPSEC_SPI },
	};
	uint32_t selected = get(in, at + 2, 30);
	uint64_t all = 0;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (selected & fields[i].bit)
			all |= fields[i].field;
	return all;
}

/* Of the outer or of the inner headers. Both at once has no place in the one hash of a CQE. */
static int read_fields(const uint8_t *in, uint64_t *fields)
{
	enum { OUTER = TIR_CTX + 0x280, INNER = TIR_CTX + 0x2a0, KNOWN = 0x1f };
	uint32_t outer = get(in, OUTER + 2, 30), inner = get(in, INNER + 2, 30);

	if ((outer | inner) & ~(uint32_t)KNOWN)
		return vb_refuse_bits("selected_fields", (outer | inner) & ~(uint32_t)KNOWN);
	if (outer && inner)
		return vb_refuse_unsupported("a hash over outer and inner headers");
	if (inner && !get(in, TIR_CTX + 0x102, 1))
		return vb_refuse_combination("inner fields without tunneled_offload_en");
	*fields = inner ? hash_fields(in, INNER) | IBV_RX_HASH_INNER : hash_fields(in, OUTER);
	return 0;
}

/* The TIR holds the queues itself; the table stays as long as the TIR does. */
static int read_rss(struct devx_cmd *cmd, struct vb_rss *rss)
{
	const uint8_t *in = cmd->in;
	uint32_t number = get(in, TIR_CTX + 0x108, 24);
	struct devx_rqt *rqt;
	int err;

	if (get(in, TIR_CTX + 0x120, 4) != HASH_TOEPLITZ)
		return vb_refuse_unsupported_value("rx_hash_fn", get(in, TIR_CTX + 0x120, 4));
	err = read_fields(in, &rss->fields);
	if (err)
		return err;
	rss->symmetric = get(in, TIR_CTX + 0x100, 1);
	memcpy(rss->key, in + (TIR_CTX + 0x140) / 8, sizeof(rss->key));
	cmd->obj->uses = devx_get(cmd->context, VB_DEVX_RQT, number);
	if (!cmd->obj->uses)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("indirect_table", number));
	rqt = cmd->obj->uses->rqt;
	rss->count = rqt->count;
	memcpy(rss->wq, rqt->rq, sizeof(rss->wq));
	return 0;
}

static int create_tir(struct devx_cmd *cmd)
{
	const uint8_t *in = cmd->in;
	struct vb_tir_attr attr = {
		.transport_domain = get(in, TIR_CTX + 0x128, 24),
		.loopback = (uint8_t)get(in, TIR_CTX + 0x126, 2),
	};
	uint32_t type = get(in, TIR_CTX + 0x20, 4), number = get(in, TIR_CTX + 0xe8, 24);
	struct vb_rss rss = { 0 };
	int err = 0;

	if (type == TIR_DIRECT) {
		attr.rq = vb_rq_get(cmd->dev, number);
		if (!attr.rq)
			err = devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("inline_rqn", number));
	} else if (type == TIR_INDIRECT) {
		attr.rss = &rss;
		err = read_rss(cmd, &rss);
	} else {
		err = vb_refuse_value("disp_type", type);
	}
	if (!err)
		err = vb_tir_create(cmd->dev, &attr, &cmd->obj->tir);
	if (!err)
		cmd->obj->number = vb_tir_number(cmd->obj->tir);
	if (attr.rq)
		vb_rq_put(attr.rq); /* the TIR holds it itself */
	if (err && cmd->obj->uses)
		devx_put(cmd->obj->uses);
	return err;
}

static int destroy_tir(struct devx_cmd *cmd)
{
	if (vb_tir_destroy(cmd->obj->tir))
		return vb_refuse_busy("rules");
	if (cmd->obj->uses)
		devx_put(cmd->obj->uses);
	return 0;
}

const struct devx_row devx_tir_rows[] = {
	{ "ALLOC_TRANSPORT_DOMAIN", 0x816, 0, DEVX_CREATE, VB_DEVX_TRANSPORT_DOMAIN, 16, 16,
	  DEVX_NUMBER, create_td },
	{ "DEALLOC_TRANSPORT_DOMAIN", 0x817, 0, DEVX_DESTROY, VB_DEVX_TRANSPORT_DOMAIN, 16, 16,
	  DEVX_NUMBER, destroy_td },
	{ "CREATE_TIR", 0x900, 0, DEVX_CREATE, VB_DEVX_TIR, 272, 16, DEVX_NUMBER, create_tir },
	{ "DESTROY_TIR", 0x902, 0, DEVX_DESTROY, VB_DEVX_TIR, 16, 16, DEVX_NUMBER, destroy_tir },
	{ 0 },
};
