// SPDX-License-Identifier: MIT
/* Flow counters by command (DEVX), singly or in bulks; actions of steering count in them. */
#include "mlx5.h"

#include "devx_bits.h"
#include "devx_obj.h"
#include "devx_table.h"

enum { BULK = 128 }; /* counters for the lowest bit of flow_counter_bulk */

static int create_counters(struct devx_cmd *cmd)
{
	static _Atomic uint32_t next = 1;
	uint32_t bulk = get(cmd->in, 0x78, 8), count = bulk ? bulk * BULK : 1;
	struct devx_counters *counters;

	if (bulk & (bulk - 1))
		return vb_refuse_bits("flow_counter_bulk", bulk);
	counters = calloc(1, sizeof(*counters) + count * sizeof(counters->counter[0]));
	if (!counters)
		return vb_refuse_memory("the flow counters");
	atomic_init(&counters->refs, 1);
	counters->count = count;
	cmd->obj->counters = counters;
	cmd->obj->number = atomic_fetch_add_explicit(&next, count, memory_order_relaxed);
	return 0;
}

static int destroy_counters(struct devx_cmd *cmd)
{
	/* Pairs with the release in dr_hold_drop(). */
	if (atomic_load_explicit(&cmd->obj->counters->users, memory_order_acquire))
		return vb_refuse_busy("rules");
	devx_counters_put(cmd->obj->counters);
	return 0;
}

static int query_counters(struct devx_cmd *cmd)
{
	struct devx_counters *counters = cmd->obj->counters;
	const uint8_t *in = cmd->in;
	uint32_t count = get(in, 0xc2, 30), first = get(in, 0xe0, 32) - cmd->obj->number;
	bool clear = get(in, 0xc0, 1);

	count = count ? count : 1;
	if (get(in, 0xc1, 1))
		return vb_refuse_unsupported("dump_to_memory");
	if (first >= counters->count || count > counters->count - first)
		return devx_refuse(cmd, DEVX_BAD_RES,
				   vb_refuse_combination("the object has no such counters"));
	if (cmd->outlen < 16 + 16 * (size_t)count)
		return devx_refuse(
			cmd, DEVX_BAD_OUTP_LEN,
			vb_refuse_combination("the answer is too short for so many counters"));
	for (uint32_t i = 0; i < count; i++) {
		struct vb_steer_counter *c = &counters->counter[first + i];
		uint64_t packets = atomic_load_explicit(&c->packets, memory_order_relaxed);
		uint64_t bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed);

		if (clear) {
			atomic_fetch_sub_explicit(&c->packets, packets, memory_order_relaxed);
			atomic_fetch_sub_explicit(&c->bytes, bytes, memory_order_relaxed);
		}
		put64(cmd->out, 0x80 + i * 128, packets);
		put64(cmd->out, 0xc0 + i * 128, bytes);
	}
	return 0;
}

static uint32_t count_of(const struct mlx5dv_devx_obj *obj)
{
	return obj->counters->count;
}

struct mlx5dv_devx_obj *devx_get_counters(struct ibv_context *context, uint32_t id, uint32_t *place)
{
	struct mlx5dv_devx_obj *obj = devx_get_in(context, VB_DEVX_COUNTERS, id, count_of);

	if (obj)
		*place = id - obj->number;
	return obj;
}

const struct devx_row devx_counter_rows[] = {
	{ "ALLOC_FLOW_COUNTER", 0x939, 0, DEVX_CREATE, VB_DEVX_COUNTERS, 16, 16, DEVX_OBJECT_ID,
	  create_counters },
	{ "QUERY_FLOW_COUNTER", 0x93b, 0, DEVX_QUERY, VB_DEVX_COUNTERS, 32, 32, DEVX_NO_NUMBER,
	  query_counters },
	{ "DEALLOC_FLOW_COUNTER", 0x93a, 0, DEVX_DESTROY, VB_DEVX_COUNTERS, 16, 16, DEVX_OBJECT_ID,
	  destroy_counters },
	{ 0 },
};
