// SPDX-License-Identifier: MIT
#include "kit.h"

#include "base/rcu.h"

struct kit kit;

static uint8_t scratch[VB_STEER_SCRATCH];

int kit_open(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	(void)state;
	for (int i = 0; list[i] && !kit.ctx; i++)
		if (mlx5dv_is_supported(list[i]))
			kit.ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(kit.ctx);
	kit.pd = ibv_alloc_pd(kit.ctx);
	kit.cq = ibv_create_cq(kit.ctx, 16, NULL, NULL, 0);
	return !kit.pd || !kit.cq;
}

int kit_close(void **state)
{
	(void)state;
	assert_ok(ibv_destroy_cq(kit.cq));
	assert_ok(ibv_dealloc_pd(kit.pd));
	assert_ok(ibv_close_device(kit.ctx));
	return 0;
}

/* --- bits ------------------------------------------------------------------------------------- */

void put_bits(void *to, uint32_t bit, uint32_t len, uint64_t value)
{
	uint8_t *bytes = to;

	for (uint32_t i = 0; i < len; i++) {
		uint32_t at = bit + len - 1 - i;
		uint8_t mask = (uint8_t)(0x80 >> at % 8);

		bytes[at / 8] &= (uint8_t)~mask;
		if (i < 64 && value >> i & 1)
			bytes[at / 8] |= mask;
	}
}

uint64_t get_bits(const void *from, uint32_t bit, uint32_t len)
{
	const uint8_t *bytes = from;
	uint64_t value = 0;

	for (uint32_t at = bit; at < bit + len; at++)
		value = value << 1 | (bytes[at / 8] >> (7 - at % 8) & 1);
	return value;
}

struct param param_of(size_t size, uint32_t bit, uint32_t width, uint64_t value)
{
	struct param param = { .match_sz = size };

	put_bits(param.bytes, bit, width, value);
	return param;
}

/* --- frames ----------------------------------------------------------------------------------- */

void kit_frame(uint64_t dmac, uint16_t dport)
{
	static const uint8_t ip[] = { 0x45, 0,    0,   46, 0, 1, 0,   0, 64, 17,
				      0xb6, 0x8f, 192, 0,  2, 1, 192, 0, 2,  2 };

	memset(kit.frame, 0, sizeof(kit.frame));
	put_bits(kit.frame, 0, 48, dmac);
	put_bits(kit.frame, 48, 48, 0x024200000007);
	put_bits(kit.frame, 96, 16, 0x0800);
	memcpy(kit.frame + 14, ip, sizeof(ip));
	put_bits(kit.frame, 34 * 8, 16, 12345);
	put_bits(kit.frame, 36 * 8, 16, dport);
	put_bits(kit.frame, 38 * 8, 16, 26);
	kit.len = 60;
}

static void catch (void *arg, const struct vb_steer_dest *dest, const struct vb_frame *f,
		   const struct vb_steer_meta *meta)
{
	struct caught *to = &kit.caught[kit.count];

	(void)arg;
	assert_true(kit.count < MAX_CAUGHT && f->len <= FRAME_BYTES);
	to->dest = *dest;
	to->meta = *meta;
	to->len = f->len;
	memcpy(to->bytes, f->data, f->len);
	kit.count++;
}

unsigned int kit_run(enum vb_steer_kind kind)
{
	struct vb_steer *steer = vb_flow_domain(vb_verbs_dev(kit.ctx), kind);
	struct vb_frame f = { .data = kit.frame, .len = kit.len };
	struct vb_steer_meta meta = { 0 };
	unsigned int result;

	kit.count = 0;
	assert_non_null(steer);
	vb_frame_parse(&f);
	vb_read_lock();
	result = vb_steer_run(steer, &f, &meta, scratch, catch, NULL);
	vb_read_unlock();
	return result;
}

/* --- objects ---------------------------------------------------------------------------------- */

struct mlx5dv_dr_domain *make_domain(enum mlx5dv_dr_domain_type type)
{
	struct mlx5dv_dr_domain *domain = mlx5dv_dr_domain_create(kit.ctx, type);

	assert_non_null(domain);
	return domain;
}

struct mlx5dv_dr_table *make_table(struct mlx5dv_dr_domain *domain, uint32_t level)
{
	struct mlx5dv_dr_table *table = mlx5dv_dr_table_create(domain, level);

	assert_non_null(table);
	return table;
}

struct mlx5dv_dr_matcher *make_matcher(struct mlx5dv_dr_table *table)
{
	struct param mask = param_of(64, BIT_DMAC, 48, UINT64_MAX);
	struct mlx5dv_dr_matcher *matcher = mlx5dv_dr_matcher_create(table, 0, OUTER, match(&mask));

	assert_non_null(matcher);
	return matcher;
}

struct mlx5dv_dr_rule *make_rule(struct mlx5dv_dr_matcher *matcher, uint64_t dmac,
				 struct mlx5dv_dr_action *action)
{
	struct param value = param_of(64, BIT_DMAC, 48, dmac);
	struct mlx5dv_dr_rule *rule = mlx5dv_dr_rule_create(matcher, match(&value), 1, &action);

	assert_non_null(rule);
	return rule;
}

void queue_open(struct queue *queue)
{
	struct vb_verbs_cq cq;
	struct vb_qp_attr attr = {
		.type = IBV_QPT_RAW_PACKET,
		.pd = vb_verbs_pd(kit.pd),
		.rq_buf = queue->ring,
		.rq_cnt = 16,
		.rq_shift = 4,
		.dbr = queue->dbr,
		.wq = true,
	};

	vb_verbs_rings(kit.ctx)->cq(kit.cq, &cq);
	attr.send_cq = attr.recv_cq = cq.card;
	assert_ok(vb_qp_create(vb_verbs_dev(kit.ctx), &attr, &queue->card));
}

void queue_close(struct queue *queue)
{
	assert_ok(vb_qp_destroy(queue->card));
}

struct mlx5dv_devx_obj *make_tir(struct queue *queue, uint32_t *number)
{
	uint8_t in[272] = { 0 }, out[16];
	struct mlx5dv_devx_obj *tir;

	put_bits(in, 0, 16, 0x900);
	put_bits(in, 0x100 + 0xe8, 24, vb_qp_number(queue->card));
	tir = mlx5dv_devx_obj_create(kit.ctx, in, sizeof(in), out, sizeof(out));
	assert_non_null(tir);
	assert_int_equal(get_bits(out, 0, 8), 0);
	*number = (uint32_t)get_bits(out, 0x48, 24);
	return tir;
}

struct mlx5dv_devx_obj *make_counters(uint32_t bulk, uint32_t *number)
{
	uint8_t in[16] = { 0 }, out[16];
	struct mlx5dv_devx_obj *counters;

	put_bits(in, 0, 16, 0x939);
	put_bits(in, 0x78, 8, bulk);
	counters = mlx5dv_devx_obj_create(kit.ctx, in, sizeof(in), out, sizeof(out));
	assert_non_null(counters);
	*number = (uint32_t)get_bits(out, 0x40, 32);
	return counters;
}
