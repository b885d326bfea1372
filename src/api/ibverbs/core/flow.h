/* SPDX-License-Identifier: MIT */
/*
 * Verbs flows: rules of the adapter's steering (card/ether/flow.h). flow_spec.c translates what the program
 * says, flow.c makes rules of it, counters.c counts what they match.
 */
#pragma once

#include "card/ether/flow.h"
#include "objects.h"

/* What a flow matches, and what it does. */
struct flow_match {
	uint8_t mask[VB_STEER_PARAM], value[VB_STEER_PARAM]; /* struct fte_match_param */
	uint8_t criteria;                                    /* enum vb_steer_criteria */
	bool drop;
	uint8_t tags; /* how many there were */
	uint32_t tag;
	struct ibv_counters *counters; /* or NULL */
};

/* 0 or a positive errno. */
int api_flow_match(struct ibv_context *context, const struct ibv_flow_attr *attr,
		   struct flow_match *match);

/* counters.c */
enum { API_COUNTERS = 16 }; /* values that one object reports */

struct api_counters {
	struct ibv_counters ibv; /* first */
	struct vb_steer_counter counter;
	atomic_int users; /* flows */
	pthread_mutex_t lock;
	uint32_t count;               /* values that are read: the highest index + 1 */
	uint8_t points[API_COUNTERS]; /* by index: a bit for each enum ibv_counter_description */
};

static inline struct api_counters *to_counters(struct ibv_counters *counters)
{
	return (struct api_counters *)counters;
}
