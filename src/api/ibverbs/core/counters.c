// SPDX-License-Identifier: MIT
/*
 * ibv_create_counters() and its family: packets and bytes of the flows that name the object
 * (IBV_FLOW_SPEC_ACTION_COUNT). As on mlx5, what is read at which index is said before the first flow.
 */
#include "flow.h"

struct ibv_counters *api_counters_create(struct ibv_context *context,
					 struct ibv_counters_init_attr *attr)
{
	struct api_counters *counters;

	API_CALL_AS("ibv_create_counters", API_DEVICE(context));
	if (!attr)
		return api_refuse_null(null, "init_attr");
	if (attr->comp_mask)
		return api_refuse_null(bits, "comp_mask", attr->comp_mask);
	counters = calloc(1, sizeof(*counters));
	if (!counters)
		return api_refuse_null(memory, "the counters");
	counters->ibv.context = context;
	pthread_mutex_init(&counters->lock, NULL);
	return &counters->ibv;
}

int api_counters_destroy(struct ibv_counters *ibv)
{
	struct api_counters *counters = to_counters(ibv);

	API_CALL_AS("ibv_destroy_counters");
	if (!ibv)
		return api_refuse(null, "counters");
	/* Pairs with the release in flow.c. */
	if (atomic_load_explicit(&counters->users, memory_order_acquire))
		return api_refuse(busy, "flows");
	pthread_mutex_destroy(&counters->lock);
	free(counters);
	return 0;
}

int api_counters_attach(struct ibv_counters *ibv, struct ibv_counter_attach_attr *attr,
			struct ibv_flow *flow)
{
	struct api_counters *counters = to_counters(ibv);

	API_CALL_AS("ibv_attach_counters_point_flow");
	if (!ibv || !attr)
		return api_refuse(null, "counters or attr");
	if (flow)
		return api_refuse(unsupported, "counters of a flow that exists");
	if (attr->comp_mask)
		return api_refuse(bits, "comp_mask", attr->comp_mask);
	if ((unsigned int)attr->counter_desc > IBV_COUNTER_BYTES)
		return api_refuse(value, "counter_desc", attr->counter_desc);
	if (attr->index >= API_COUNTERS)
		return api_refuse(range, "index", attr->index, 0, API_COUNTERS - 1);
	if (atomic_load_explicit(&counters->users, memory_order_acquire))
		return api_refuse(busy, "flows");
	pthread_mutex_lock(&counters->lock);
	counters->points[attr->index] |= (uint8_t)(1u << attr->counter_desc);
	counters->count = max_u32(counters->count, attr->index + 1);
	pthread_mutex_unlock(&counters->lock);
	return 0;
}

int api_counters_read(struct ibv_counters *ibv, uint64_t *values, uint32_t count, uint32_t flags)
{
	struct api_counters *counters = to_counters(ibv);
	uint64_t now[2];
	int err = 0;

	API_CALL_AS("ibv_read_counters");
	if (!ibv || !values)
		return api_refuse(null, "counters or counters_value");
	if (flags & ~(uint32_t)IBV_READ_COUNTERS_ATTR_PREFER_CACHED)
		return api_refuse(bits, "flags", flags);
	now[IBV_COUNTER_PACKETS] =
		atomic_load_explicit(&counters->counter.packets, memory_order_relaxed);
	now[IBV_COUNTER_BYTES] =
		atomic_load_explicit(&counters->counter.bytes, memory_order_relaxed);
	pthread_mutex_lock(&counters->lock);
	if (count < counters->count)
		err = api_refuse(range, "ncounters", count, counters->count, API_COUNTERS);
	for (uint32_t i = 0; !err && i < counters->count; i++) {
		values[i] = 0;
		for (int what = IBV_COUNTER_PACKETS; what <= IBV_COUNTER_BYTES; what++)
			if (counters->points[i] & 1u << what)
				values[i] += now[what];
	}
	pthread_mutex_unlock(&counters->lock);
	return err;
}
