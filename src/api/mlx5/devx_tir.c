// SPDX-License-Identifier: MIT
/* TIRs and transport domains by command (DEVX). A TIR keeps its queue, or its table of queues. */
#include "devx_obj.h"

#include "card/queue/qp.h"
#include "devx_queue.h"
#include "devx_rqt.h"

/* --- transport domains ------------------------------------------------------------------------ */

static int create_td(struct devx_cmd *cmd)
{
	cmd->obj->number = vb_transport_domain_take(vb_dev_adapter(cmd->dev)->card);
	return cmd->obj->number ? 0 : vb_refuse_memory("another transport domain");
}

int devx_get_domain(struct devx_cmd *cmd, uint32_t number, struct mlx5dv_devx_obj **domain)
{
	*domain = NULL;
	if (number && number == vb_verbs_mlx5(cmd->context)->transport_domain(cmd->context))
		return 0;
	*domain = devx_get(cmd->context, VB_DEVX_TRANSPORT_DOMAIN, number);
	return *domain ? 0
		       : devx_refuse(cmd, DEVX_BAD_RES,
				     vb_refuse_no_object("transport_domain", number));
}

static int destroy_td(struct devx_cmd *cmd)
{
	if (vb_transport_domain_busy(vb_dev_adapter(cmd->dev)->card, cmd->obj->number))
		return vb_refuse_busy("TIRs");
	vb_transport_domain_give(vb_dev_adapter(cmd->dev)->card, cmd->obj->number);
	return 0;
}

/* --- TIRs ------------------------------------------------------------------------------------- */

enum { TIR_CTX = 0x100, TIR_DIRECT = 0, TIR_INDIRECT = 1, HASH_TOEPLITZ = 2 };
enum { SELF_LB = 0x126, RQT_NUMBER = 0x108 };

static const struct devx_field tir_fields[] = {
	{ 0x20, 4, DEVX_KEPT, "disp_type" },
	{ 0x84, 16, DEVX_KEPT, "lro_timeout_period_usecs" },
	{ 0x94, 4, DEVX_ABSENT, "lro_enable_mask" },
	{ 0x98, 8, DEVX_KEPT, "lro_max_msg_sz" },
	{ 0xe8, 24, DEVX_KEPT, "inline_rqn" },
	{ 0x100, 1, DEVX_KEPT, "rx_hash_symmetric" },
	{ 0x102, 1, DEVX_KEPT, "tunneled_offload_en" },
	{ RQT_NUMBER, 24, DEVX_KEPT, "indirect_table" },
	{ 0x120, 4, DEVX_KEPT, "rx_hash_fn" },
	{ SELF_LB, 2, DEVX_KEPT, "self_lb_block" },
	{ 0x128, 24, DEVX_KEPT, "transport_domain" },
	{ 0x140, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x160, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x180, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x1a0, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x1c0, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x1e0, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x200, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x220, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x240, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x260, 32, DEVX_KEPT, "rx_hash_toeplitz_key" },
	{ 0x280, 32, DEVX_KEPT, "rx_hash_field_selector_outer" },
	{ 0x2a0, 32, DEVX_KEPT, "rx_hash_field_selector_inner" },
};

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

/* How a table's TIR hashes. */
static int read_hash(const uint8_t *in, struct vb_rss *rss)
{
	if (get(in, TIR_CTX + 0x120, 4) != HASH_TOEPLITZ)
		return vb_refuse_unsupported_value("rx_hash_fn", get(in, TIR_CTX + 0x120, 4));
	rss->symmetric = get(in, TIR_CTX + 0x100, 1);
	memcpy(rss->key, in + (TIR_CTX + 0x140) / 8, sizeof(rss->key));
	return read_fields(in, &rss->fields);
}

/* The table of a command, held; NULL after a refusal. */
static struct mlx5dv_devx_obj *hold_rqt(struct devx_cmd *cmd)
{
	uint32_t number = get(cmd->in, TIR_CTX + RQT_NUMBER, 24);
	struct mlx5dv_devx_obj *rqt = devx_get(cmd->context, VB_DEVX_RQT, number);

	if (!rqt)
		devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("indirect_table", number));
	return rqt;
}

/* The TIR holds the queues itself; the table stays as long as the TIR does. */
static int devx_tir_make_indirect(struct devx_cmd *cmd, struct vb_tir_attr *attr)
{
	struct mlx5dv_devx_obj *rqt;
	struct vb_rss rss = { 0 };
	int err = read_hash(cmd->in, &rss);

	if (err)
		return err;
	rqt = hold_rqt(cmd);
	if (!rqt)
		return -EINVAL;
	pthread_mutex_lock(&devx_rqt_mutex);
	rss.count = rqt->rqt->queues.count;
	memcpy(rss.wq, rqt->rqt->queues.wq, sizeof(rss.wq));
	attr->rss = &rss;
	err = vb_tir_create(cmd->dev, attr, &cmd->obj->tir);
	if (!err) {
		err = devx_rqt_attach(rqt->rqt, cmd->obj->tir);
		if (err)
			vb_tir_destroy(cmd->obj->tir);
	}
	pthread_mutex_unlock(&devx_rqt_mutex);
	if (err)
		devx_put(rqt);
	else
		cmd->obj->uses = rqt;
	return err;
}

static int make_direct(struct devx_cmd *cmd, struct vb_tir_attr *attr)
{
	uint32_t number = get(cmd->in, TIR_CTX + 0xe8, 24);
	int err;

	attr->rq = vb_rq_get(cmd->dev, number);
	if (!attr->rq)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_no_object("inline_rqn", number));
	err = vb_tir_create(cmd->dev, attr, &cmd->obj->tir);
	vb_rq_put(attr->rq); /* the TIR holds it itself */
	return err;
}

/* The domain is held while the TIR is made; then the TIR itself keeps it. */
static int devx_tir_make_tir(struct devx_cmd *cmd, uint32_t type, struct vb_tir_attr *attr)
{
	uint32_t number = attr->transport_domain;
	struct mlx5dv_devx_obj *domain = NULL;
	int err;

	err = number ? devx_get_domain(cmd, number, &domain) : 0;
	if (err)
		return err;
	err = type == TIR_DIRECT     ? make_direct(cmd, attr)
	      : type == TIR_INDIRECT ? devx_tir_make_indirect(cmd, attr)
				     : vb_refuse_value("disp_type", type);
	if (domain)
		devx_put(domain);
	return err;
}

static int create_tir(struct devx_cmd *cmd)
{
	const uint8_t *tirc = cmd->in + TIR_CTX / 8;
	struct vb_tir_attr attr = {
		.transport_domain = get(tirc, 0x128, 24),
		.loopback = (uint8_t)get(tirc, SELF_LB, 2),
	};
	uint8_t *kept;
	int err = devx_check_fields(cmd, tirc, DEVX_FIELDS(tir_fields));

	if (err)
		return err;
	kept = calloc(1, DEVX_TIRC_BYTES);
	if (!kept)
		return vb_refuse_memory("the TIR");
	devx_keep_fields(kept, tirc, DEVX_FIELDS(tir_fields));
	err = devx_tir_make_tir(cmd, get(tirc, 0x20, 4), &attr);
	if (err) {
		free(kept);
		return err;
	}
	cmd->obj->kept = kept;
	cmd->obj->number = vb_tir_number(cmd->obj->tir);
	return 0;
}

static int destroy_tir(struct devx_cmd *cmd)
{
	struct mlx5dv_devx_obj *obj = cmd->obj;
	int err;

	pthread_mutex_lock(&devx_rqt_mutex);
	err = vb_tir_destroy(obj->tir);
	if (!err && obj->uses)
		devx_rqt_detach(obj->uses->rqt, obj->tir);
	pthread_mutex_unlock(&devx_rqt_mutex);
	if (err)
		return vb_refuse_busy("rules");
	if (obj->uses)
		devx_put(obj->uses);
	free(obj->kept);
	return 0;
}

/* --- modify and query ------------------------------------------------------------------------- */

enum tir_part { TABLE = 1 << 1, HASH = 1 << 2, LOOPBACK = 1 << 4 };

/* What a command changes, field by field. */
static void keep_parts(uint8_t *kept, const uint8_t *tirc, uint64_t parts)
{
	for (size_t i = 0; i < sizeof(tir_fields) / sizeof(tir_fields[0]); i++) {
		const struct devx_field *f = &tir_fields[i];
		uint64_t part = f->at == SELF_LB                  ? LOOPBACK
				: f->at == RQT_NUMBER             ? TABLE
				: f->at < 0x100 || f->at == 0x128 ? 0
								  : HASH;

		if (parts & part)
			devx_keep_fields(kept, tirc, f, 1);
	}
}

/* Under the mutex. *gone: the table that it had before. */
static int change_table(struct devx_cmd *cmd, uint64_t parts, const struct vb_rss *hash,
			struct mlx5dv_devx_obj *rqt, struct mlx5dv_devx_obj **gone)
{
	struct mlx5dv_devx_obj *obj = cmd->obj;
	struct vb_rss rss = *hash;
	int err = rqt ? devx_rqt_attach(rqt->rqt, obj->tir) : 0;

	if (err)
		return err;
	if (rqt) {
		rss.count = rqt->rqt->queues.count;
		memcpy(rss.wq, rqt->rqt->queues.wq, sizeof(rss.wq));
	}
	err = vb_tir_set_rss(obj->tir, &rss,
			     (rqt ? VB_TIR_QUEUES : 0u) | (parts & HASH ? VB_TIR_HASH : 0u));
	if (err && rqt)
		devx_rqt_detach(rqt->rqt, obj->tir);
	if (err || !rqt)
		return err;
	devx_rqt_detach(obj->uses->rqt, obj->tir);
	*gone = obj->uses;
	obj->uses = rqt;
	return 0;
}

static int modify_tir(struct devx_cmd *cmd)
{
	const uint8_t *tirc = cmd->in + TIR_CTX / 8;
	uint64_t parts = get64(cmd->in, DEVX_BITMASK), known = TABLE | HASH | LOOPBACK;
	struct mlx5dv_devx_obj *rqt = NULL, *gone = NULL;
	struct vb_rss hash = { 0 };
	int err = 0;

	if (parts & ~known)
		return vb_refuse_unsupported_value("bitmask", parts & ~known);
	if ((parts & (TABLE | HASH)) && !cmd->obj->uses)
		return vb_refuse_combination("a TIR with one queue has neither table nor hash");
	if (parts & HASH)
		err = read_hash(cmd->in, &hash);
	if (!err && (parts & TABLE)) {
		rqt = hold_rqt(cmd);
		err = rqt ? 0 : -EINVAL;
	}
	if (err)
		return err;
	pthread_mutex_lock(&devx_rqt_mutex);
	if (parts & (TABLE | HASH))
		err = change_table(cmd, parts, &hash, rqt, &gone);
	if (!err && (parts & LOOPBACK))
		err = vb_tir_set_loopback(cmd->obj->tir, (uint8_t)get(tirc, SELF_LB, 2));
	if (!err)
		keep_parts(cmd->obj->kept, tirc, parts);
	pthread_mutex_unlock(&devx_rqt_mutex);
	if (gone)
		devx_put(gone);
	else if (rqt)
		devx_put(rqt);
	return err;
}

static int devx_tir_query_tir(struct devx_cmd *cmd)
{
	pthread_mutex_lock(&devx_rqt_mutex);
	memcpy(cmd->out + TIR_CTX / 8, cmd->obj->kept, DEVX_TIRC_BYTES);
	pthread_mutex_unlock(&devx_rqt_mutex);
	return 0;
}

const struct devx_row devx_tir_rows[] = {
	{ "ALLOC_TRANSPORT_DOMAIN", 0x816, 0, DEVX_CREATE, VB_DEVX_TRANSPORT_DOMAIN, 16, 16,
	  DEVX_NUMBER, create_td },
	{ "DEALLOC_TRANSPORT_DOMAIN", 0x817, 0, DEVX_DESTROY, VB_DEVX_TRANSPORT_DOMAIN, 16, 16,
	  DEVX_NUMBER, destroy_td },
	{ "CREATE_TIR", 0x900, 0, DEVX_CREATE, VB_DEVX_TIR, 272, 16, DEVX_NUMBER, create_tir },
	{ "MODIFY_TIR", 0x901, 0, DEVX_MODIFY, VB_DEVX_TIR, 272, 16, DEVX_NUMBER, modify_tir },
	{ "DESTROY_TIR", 0x902, 0, DEVX_DESTROY, VB_DEVX_TIR, 16, 16, DEVX_NUMBER, destroy_tir },
	{ "QUERY_TIR", 0x903, 0, DEVX_QUERY, VB_DEVX_TIR, 16, 272, DEVX_NUMBER,
	  devx_tir_query_tir },
	{ 0 },
};
