// SPDX-License-Identifier: MIT
/*
 * Objects by commands of the programmer's reference manual (DEVX): those that steering needs. A
 * command is a struct of big-endian bit fields; its first 16 bits name it. One table says which
 * there are.
 *
 * A command that the firmware would refuse has a status in its answer, and the call fails with the
 * errno that rdma-core makes of it.
 */
#include "mlx5.h"

#include "base/lock.h"
#include "devx_bits.h"
#include "devx_obj.h"

enum status {
	STATUS_OK = 0,
	STATUS_BAD_PARAM = 0x3,
	STATUS_RES_BUSY = 0x6,
	STATUS_NO_RES = 0xf,
};

/* Bits of an answer, and of all commands. */
enum { OPCODE = 0x0, STATUS = 0x0, NUMBER = 0x48, COUNTER_NUMBER = 0x40 };

/*
 * One command makes objects of many types (general objects): the type tells them apart. Its
 * answer, and a query, name the object by all 32 bits of its number.
 */
enum { CREATE_OBJECT = 0xa00, QUERY_OBJECT = 0xa02, OBJECT_TYPE = 0x30, OBJECT_ID = 0x40 };

struct devx_rqt {
	struct devx_rqt *next;
	uint32_t number;
	uint32_t count;
	struct vb_qp *rq[VB_MAX_RSS];
};

/* --- flow counters ---------------------------------------------------------------------------- */

enum { BULK = 128 }; /* counters for the lowest bit of flow_counter_bulk */

static int create_counters(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen)
{
	static _Atomic uint32_t next = 1;
	uint32_t bulk = get(in, 0x78, 8), count = bulk ? bulk * BULK : 1;
	struct devx_counters *counters;

	if (bulk & (bulk - 1))
		return vb_refuse_bits("flow_counter_bulk", bulk);
	counters = calloc(1, sizeof(*counters) + count * sizeof(counters->counter[0]));
	if (!counters)
		return vb_refuse_memory("the flow counters");
	atomic_init(&counters->refs, 1);
	counters->count = count;
	obj->counters = counters;
	obj->number = atomic_fetch_add_explicit(&next, count, memory_order_relaxed);
	return 0;
}

static int destroy_counters(struct mlx5dv_devx_obj *obj)
{
	/* Pairs with the release in dr_hold_drop(). */
	if (atomic_load_explicit(&obj->counters->users, memory_order_acquire))
		return vb_refuse_busy("rules");
	devx_counters_put(obj->counters);
	return 0;
}

static int query_counters(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
			  size_t outlen)
{
	uint32_t count = get(in, 0xc2, 30), first = get(in, 0xe0, 32) - obj->number;
	bool clear = get(in, 0xc0, 1);

	count = count ? count : 1;
	if (get(in, 0xc1, 1))
		return vb_refuse_unsupported("dump_to_memory");
	if (first >= obj->counters->count || count > obj->counters->count - first)
		return vb_refuse_combination("the object has no such counters");
	if (outlen < 16 + 16 * (size_t)count)
		return vb_refuse_combination("the answer is too short for so many counters");
	for (uint32_t i = 0; i < count; i++) {
		struct vb_steer_counter *c = &obj->counters->counter[first + i];
		uint64_t packets = atomic_load_explicit(&c->packets, memory_order_relaxed);
		uint64_t bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed);

		if (clear) {
			atomic_fetch_sub_explicit(&c->packets, packets, memory_order_relaxed);
			atomic_fetch_sub_explicit(&c->bytes, bytes, memory_order_relaxed);
		}
		put64(out, 0x80 + i * 128, packets);
		put64(out, 0xc0 + i * 128, bytes);
	}
	return 0;
}

/* --- tables of receive queues ----------------------------------------------------------------- */

static struct {
	struct vb_lock lock;
	struct devx_rqt *first;
	uint32_t number;
} rqts;

enum { RQT_CTX = 0x100, RQT_LIST = RQT_CTX + 0x780 };

static void put_rqs(struct devx_rqt *rqt)
{
	while (rqt->count)
		vb_rq_put(rqt->rq[--rqt->count]);
}

static int create_rqt(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen)
{
	uint32_t count = get(in, RQT_CTX + 0xd0, 16);
	struct devx_rqt *rqt;

	if (!count || count & (count - 1) || count > VB_MAX_RSS)
		return vb_refuse_combination("rqt_actual_size is no power of two up to 128");
	if (inlen < RQT_LIST / 8 + 4 * (size_t)count)
		return vb_refuse_combination("the command ends before its list of queues");
	rqt = calloc(1, sizeof(*rqt));
	if (!rqt)
		return vb_refuse_memory("the table of receive queues");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t number = get(in, RQT_LIST + 32 * i + 8, 24);

		rqt->rq[i] = vb_rq_get(vb_verbs_dev(obj->context), number);
		if (!rqt->rq[i]) {
			put_rqs(rqt);
			free(rqt);
			return vb_refuse_value("rq_num", number);
		}
		rqt->count = i + 1;
	}
	vb_lock(&rqts.lock);
	obj->number = rqt->number = ++rqts.number & 0xffffff;
	rqt->next = rqts.first;
	rqts.first = rqt;
	vb_unlock(&rqts.lock);
	obj->rqt = rqt;
	return 0;
}

static int destroy_rqt(struct mlx5dv_devx_obj *obj)
{
	struct devx_rqt **at = &rqts.first, *rqt = obj->rqt;

	vb_lock(&rqts.lock);
	while (*at != rqt)
		at = &(*at)->next;
	*at = rqt->next;
	vb_unlock(&rqts.lock);
	put_rqs(rqt);
	free(rqt);
	return 0;
}

/* --- transport domains ------------------------------------------------------------------------ */

static int create_td(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen)
{
	obj->number = vb_transport_domain_take();
	return obj->number ? 0 : vb_refuse_memory("another transport domain");
}

static int destroy_td(struct mlx5dv_devx_obj *obj)
{
	if (vb_transport_domain_busy(obj->number))
		return vb_refuse_busy("TIRs");
	vb_transport_domain_give(obj->number);
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

/* The queues are copied under the lock and held, so that the table may go meanwhile. */
static int read_rss(struct vb_dev *dev, const uint8_t *in, struct vb_rss *rss)
{
	uint32_t number = get(in, TIR_CTX + 0x108, 24);
	struct devx_rqt *rqt;
	bool all;
	int err;

	if (get(in, TIR_CTX + 0x120, 4) != HASH_TOEPLITZ)
		return vb_refuse_unsupported_value("rx_hash_fn", get(in, TIR_CTX + 0x120, 4));
	err = read_fields(in, &rss->fields);
	if (err)
		return err;
	rss->symmetric = get(in, TIR_CTX + 0x100, 1);
	vb_lock(&rqts.lock);
	for (rqt = rqts.first; rqt && rqt->number != number; rqt = rqt->next)
		;
	for (; rqt && rss->count < rqt->count; rss->count++) {
		rss->wq[rss->count] = vb_rq_get(dev, vb_qp_number(rqt->rq[rss->count]));
		if (!rss->wq[rss->count])
			break; /* a queue of another context */
	}
	all = rqt && rss->count == rqt->count;
	vb_unlock(&rqts.lock);
	if (!all)
		return vb_refuse_value("indirect_table", number);
	memcpy(rss->key, in + (TIR_CTX + 0x140) / 8, sizeof(rss->key));
	return 0;
}

static int create_tir(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen)
{
	struct vb_dev *dev = vb_verbs_dev(obj->context);
	struct vb_tir_attr attr = {
		.transport_domain = get(in, TIR_CTX + 0x128, 24),
		.loopback = (uint8_t)get(in, TIR_CTX + 0x126, 2),
	};
	uint32_t type = get(in, TIR_CTX + 0x20, 4), number = get(in, TIR_CTX + 0xe8, 24);
	struct vb_rss rss = { 0 };
	int err = 0;

	if (type == TIR_DIRECT) {
		attr.rq = vb_rq_get(dev, number);
		err = attr.rq ? 0 : vb_refuse_value("inline_rqn", number);
	} else if (type == TIR_INDIRECT) {
		attr.rss = &rss;
		err = read_rss(dev, in, &rss);
	} else {
		err = vb_refuse_value("disp_type", type);
	}
	if (!err)
		err = vb_tir_create(dev, &attr, &obj->tir);
	if (!err)
		obj->number = vb_tir_number(obj->tir);
	/* The TIR holds them itself. */
	if (attr.rq)
		vb_rq_put(attr.rq);
	while (rss.count)
		vb_rq_put(rss.wq[--rss.count]);
	return err;
}

static int destroy_tir(struct mlx5dv_devx_obj *obj)
{
	int err = vb_tir_destroy(obj->tir);

	return err ? vb_refuse_busy("rules") : 0;
}

/* --- the table of commands -------------------------------------------------------------------- */

static const struct command {
	uint16_t create, query; /* opcodes; 0: none */
	uint16_t type;          /* of a general object; 0: it is none */
	enum vb_devx_kind kind;
	uint16_t in, query_in; /* shortest commands, in bytes */
	uint16_t number_at;    /* bit of the answer, up to the end of its word */
	int (*make)(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen);
	int (*look)(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
		    size_t outlen);
	int (*destroy)(struct mlx5dv_devx_obj *obj);
} commands[] = {
	{ 0x816, 0, 0, VB_DEVX_TRANSPORT_DOMAIN, 16, 0, NUMBER, create_td, NULL, destroy_td },
	{ 0x900, 0, 0, VB_DEVX_TIR, 272, 0, NUMBER, create_tir, NULL, destroy_tir },
	{ 0x916, 0, 0, VB_DEVX_RQT, 272, 0, NUMBER, create_rqt, NULL, destroy_rqt },
	{ 0x939, 0x93b, 0, VB_DEVX_COUNTERS, 16, 32, COUNTER_NUMBER, create_counters,
	  query_counters, destroy_counters },
	{ CREATE_OBJECT, QUERY_OBJECT, 0x32, VB_DEVX_DB_CQ_MAP, DEVX_DB_CQ_MAP_BYTES, 16, OBJECT_ID,
	  devx_create_db_cq_map, devx_query_db_cq_map, devx_destroy_db_cq_map },
	{ CREATE_OBJECT, QUERY_OBJECT, 0x49, VB_DEVX_EMULATED_EQ, DEVX_EMULATED_EQ_BYTES, 16,
	  OBJECT_ID, devx_create_emulated_eq, devx_query_emulated_eq, devx_destroy_emulated_eq },
};

enum { ANSWER = 16, COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const struct command *command_of(enum vb_devx_kind kind)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (commands[i].kind == kind)
			return &commands[i];
	return NULL;
}

/* 0, or -errno with the status in the answer. */
static int answer(uint8_t *out, int err)
{
	if (err)
		put(out, STATUS, 8,
		    err == -ENOMEM  ? STATUS_NO_RES
		    : err == -EBUSY ? STATUS_RES_BUSY
				    : STATUS_BAD_PARAM);
	return err;
}

/* --- calls ------------------------------------------------------------------------------------ */

static int create(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, uint8_t *out,
		  size_t outlen)
{
	uint32_t opcode = in && inlen >= 16 ? get(in, OPCODE, 16) : 0;
	uint32_t type = opcode == CREATE_OBJECT ? get(in, OBJECT_TYPE, 16) : 0;
	const struct command *command = NULL;
	int err;

	for (size_t i = 0; i < COMMANDS; i++)
		if (commands[i].create == opcode && commands[i].type == type)
			command = &commands[i];
	if (!command && type)
		return vb_refuse_unsupported_value("general object type", type);
	if (!command)
		return vb_refuse_unsupported_value("command", opcode);
	if (!out || inlen < command->in || outlen < ANSWER)
		return vb_refuse_combination("the command or its answer is too short");
	memset(out, 0, outlen);
	obj->kind = command->kind;
	err = command->make(obj, in, inlen);
	if (!err)
		put(out, command->number_at, 32 - command->number_at % 32, obj->number);
	return answer(out, err);
}

VB_PUBLIC struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context,
							 const void *in, size_t inlen, void *out,
							 size_t outlen)
{
	struct mlx5dv_devx_obj *obj;
	int err;

	API_CALL(API_DEVICE(context));
	if (!context || !mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	obj = calloc(1, sizeof(*obj));
	if (!obj)
		return api_refuse_null(memory, "the object");
	obj->context = context;
	err = create(obj, in, inlen, out, outlen);
	if (err) {
		free(obj);
		return api_null(-err);
	}
	obj->mark = VB_DEVX_MARK;
	vb_verbs_hold(context, NULL);
	return obj;
}

static int check(const struct mlx5dv_devx_obj *obj)
{
	if (!obj)
		return vb_refuse_null("obj");
	return obj->mark == VB_DEVX_MARK ? 0 : vb_refuse_combination("obj is no DEVX object");
}

/* A query of what libflexio made. As the kernel has it, the command names the object's number again. */
static int query_lent(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
		      size_t outlen)
{
	const struct vb_devx_lender *lender = obj->lender;

	if (!out || outlen < (size_t)lender->at + lender->size)
		return vb_refuse_combination("the answer is too short for the context");
	memset(out, 0, outlen);
	if (get(in, NUMBER, 24) != obj->number)
		return answer(out, vb_refuse_value("number", get(in, NUMBER, 24)));
	lender->look(obj, out + lender->at);
	return 0;
}

VB_PUBLIC int mlx5dv_devx_obj_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen,
				    void *out, size_t outlen)
{
	const struct command *command;
	uint32_t opcode;
	int err;

	API_CALL(.kind = "DEVX object");
	err = check(obj);
	if (err)
		return api_fail(-err);
	opcode = in && inlen >= 16 ? get(in, OPCODE, 16) : 0;
	if (obj->lender && opcode == obj->lender->query)
		return api_status(query_lent(obj, in, out, outlen));
	command = obj->lent ? NULL : command_of(obj->kind);
	if (!command || !command->look || opcode != command->query)
		return api_refuse(unsupported_value, "command", opcode);
	if (!out || inlen < command->query_in || outlen < ANSWER)
		return api_refuse(combination, "the command or its answer is too short");
	if (command->type &&
	    (get(in, OBJECT_TYPE, 16) != command->type || get(in, OBJECT_ID, 32) != obj->number))
		return api_refuse(combination, "the command names another object");
	memset(out, 0, outlen);
	return api_status(answer(out, command->look(obj, in, out, outlen)));
}

VB_PUBLIC int mlx5dv_devx_obj_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen,
				     void *out, size_t outlen)
{
	int err;

	API_CALL(.kind = "DEVX object");
	err = check(obj);
	if (err)
		return api_fail(-err);
	return api_refuse(unsupported_value, "command",
			  in && inlen >= 16 ? get(in, OPCODE, 16) : 0);
}

VB_PUBLIC int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	int err;

	API_CALL(.kind = "DEVX object");
	err = check(obj);
	if (!err && obj->lent)
		err = vb_refuse_combination("the object is part of one of libflexio");
	if (!err)
		err = command_of(obj->kind)->destroy(obj);
	if (err)
		return api_fail(-err);
	vb_verbs_release(obj->context, NULL);
	obj->mark = 0;
	free(obj);
	return 0;
}
