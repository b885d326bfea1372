/* SPDX-License-Identifier: MIT */
/*
 * What the tests of steering share: a device, match parameters, frames to steer, receive queues of
 * the card.
 */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <infiniband/mlx5dv.h>

#include "api/ibverbs/accessors.h"
#include "card/ether/flow.h"

enum { MAX_CAUGHT = 8, FRAME_BYTES = 256 };
enum { OUTER = 1, MISC2 = 8 };

/* Bits of struct fte_match_param. */
enum { BIT_SMAC = 0x0, BIT_DMAC = 0x40, BIT_UDP_DPORT = 0xf0, BIT_REG_C0 = 0x760 };

#define MAC 0x02427e7feb02ull

/* A mask or a value. */
struct param {
	size_t match_sz;
	uint8_t bytes[520];
};

static inline struct mlx5dv_flow_match_parameters *match(struct param *param)
{
	return (struct mlx5dv_flow_match_parameters *)param;
}

struct caught {
	struct vb_steer_dest dest;
	struct vb_steer_meta meta;
	uint8_t bytes[FRAME_BYTES];
	uint32_t len;
};

struct kit {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint8_t frame[FRAME_BYTES];
	uint32_t len;
	struct caught caught[MAX_CAUGHT];
	unsigned int count;
};

extern struct kit kit;

/* Setup and teardown of a group: the device; closing it proves that nothing was left behind. */
int kit_open(void **state);
int kit_close(void **state);

struct param param_of(size_t size, uint32_t bit, uint32_t width, uint64_t value);
/* A UDP datagram to the MAC in kit.frame; bring kit.frame through the rules of a kind. */
void kit_frame(uint64_t dmac, uint16_t dport);
unsigned int kit_run(enum vb_steer_kind kind);

struct mlx5dv_dr_domain *make_domain(enum mlx5dv_dr_domain_type type);
struct mlx5dv_dr_table *make_table(struct mlx5dv_dr_domain *domain, uint32_t level);
/* On the destination MAC. */
struct mlx5dv_dr_matcher *make_matcher(struct mlx5dv_dr_table *table);
struct mlx5dv_dr_rule *make_rule(struct mlx5dv_dr_matcher *matcher, uint64_t dmac,
				 struct mlx5dv_dr_action *action);

/* A receive queue of raw frames, as libflexio and libibverbs make them. */
struct queue {
	struct vb_qp *card;
	__be32 dbr[2];
	uint8_t ring[16 * 16] __attribute__((aligned(64)));
};

void queue_open(struct queue *queue);
void queue_close(struct queue *queue);

/* DEVX: bit fields of commands. */
void put_bits(void *to, uint32_t bit, uint32_t len, uint64_t value);
uint64_t get_bits(const void *from, uint32_t bit, uint32_t len);
struct mlx5dv_devx_obj *make_tir(struct queue *queue, uint32_t *number);
struct mlx5dv_devx_obj *make_counters(uint32_t bulk, uint32_t *number);

#define assert_null_errno(expr, err)          \
	do {                                  \
		errno = 0;                    \
		assert_null(expr);            \
		assert_int_equal(errno, err); \
	} while (0)
#define assert_ok(expr) assert_int_equal(expr, 0)
