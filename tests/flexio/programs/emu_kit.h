/* SPDX-License-Identifier: MIT */
/* The host's half of the programs of emulated functions: DEVX commands, and a queue of a device. */
#pragma once

#include "queue_kit.h"

#include <errno.h>
#include <poll.h>
#include <verbatim/emulation.h>

#include "emu.h"

enum { LOG_CQ = 4 };

static inline void put_be32(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 24);
	at[1] = (uint8_t)(value >> 16);
	at[2] = (uint8_t)(value >> 8);
	at[3] = (uint8_t)value;
}

static inline uint32_t get_be32(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Commands as the manual has them: 16 bytes of head, then the object. */
enum { COMMAND = 80, EQ_TYPE = 0x49, MAP_TYPE = 0x32 };

static inline void object_command(uint8_t in[COMMAND], uint32_t opcode, uint32_t type, uint32_t id)
{
	memset(in, 0, COMMAND);
	put_be32(in, opcode << 16);
	put_be32(in + 4, type);
	put_be32(in + 8, id);
}

static inline void eq_command(uint8_t in[COMMAND], uint32_t vhca_id, uint32_t vector)
{
	object_command(in, 0xa00, EQ_TYPE, 0);
	put_be32(in + 16 + 0x60 / 8, vhca_id);
	put_be32(in + 16 + 0x1a0 / 8, vector);
}

static inline void map_command(uint8_t in[COMMAND], uint32_t vhca_id, uint32_t queue, uint32_t cqn)
{
	object_command(in, 0xa00, MAP_TYPE, 0);
	in[16 + 10] = 1 << 4; /* map_state: mapped */
	put_be32(in + 16 + 16, vhca_id);
	put_be32(in + 16 + 20, queue);
	put_be32(in + 16 + 24, cqn);
}

static inline struct mlx5dv_devx_obj *eq_make(struct ibv_context *ctx, uint32_t vhca_id,
					      uint32_t vector, uint32_t *number)
{
	uint8_t in[COMMAND], out[16];
	struct mlx5dv_devx_obj *eq;

	eq_command(in, vhca_id, vector);
	eq = mlx5dv_devx_obj_create(ctx, in, sizeof(in), out, sizeof(out));
	CHECK(eq && !out[0]);
	*number = get_be32(out + 8);
	return eq;
}

/* A queue of the device: doorbells wake a handler; interrupts go out by a CQ of their own. */
struct emu_queue {
	struct flexio_process *process;
	struct flexio_event_handler *handler;
	struct kit_cq cq, msix;
	struct mlx5dv_devx_obj *eq;
	struct flexio_emu_db_to_cq_ctx *map;
	flexio_uintptr_t daddr;
	struct emu_state state;
};

static inline void emu_queue_open(struct emu_queue *q, struct ibv_context *ctx,
				  struct flexio_process *process, flexio_func_t *func,
				  const struct verbatim_function_info *f, uint32_t queue,
				  uint32_t vector, struct emu_state state)
{
	struct flexio_event_handler_attr handler = { .host_stub_func = func };
	struct flexio_cq_attr attr = cq_attr(process, LOG_CQ);

	*q = (struct emu_queue){ .process = process };
	OK(flexio_event_handler_create(process, &handler, &q->handler));
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
	attr.thread = flexio_event_handler_get_thread(q->handler);
	cq_make(process, ctx, &attr, &q->cq);
	attr = cq_attr(process, 1);
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ;
	q->eq = eq_make(ctx, f->vhca_id, vector, &attr.emulated_eqn);
	cq_make(process, ctx, &attr, &q->msix);
	OK(flexio_emu_db_to_cq_map(ctx, f->vhca_id, queue, q->cq.cq, &q->map));
	state.cq = q->cq.work;
	state.msix_cqn = q->msix.work.number;
	state.emu_id = flexio_emu_db_to_cq_ctx_get_id(q->map);
	CHECK(state.emu_id && state.emu_id < 1u << 26);
	q->state = state;
	OK(flexio_copy_from_host(process, &state, sizeof(state), &q->daddr));
	OK(flexio_event_handler_run(q->handler, q->daddr));
}

static inline void emu_queue_close(struct emu_queue *q)
{
	if (q->map)
		OK(flexio_emu_db_to_cq_unmap(q->map));
	OK(flexio_cq_destroy(q->cq.cq));
	OK(flexio_cq_destroy(q->msix.cq));
	CHECK(!mlx5dv_devx_obj_destroy(q->eq));
	OK(flexio_event_handler_destroy(q->handler));
	OK(flexio_buf_dev_free(q->process, q->daddr));
}

static inline uint64_t emu_runs(struct emu_queue *q)
{
	return dev_read(q->process, q->daddr + offsetof(struct emu_state, runs));
}

static inline uint64_t emu_cqes(struct emu_queue *q)
{
	return dev_read(q->process, q->daddr + offsetof(struct emu_state, cqes));
}

static inline void emu_await(struct emu_queue *q, uint64_t runs)
{
	dev_await(q->process, q->daddr + offsetof(struct emu_state, runs), runs);
}

/* Interrupts since the last look; waits for the first. */
static inline uint64_t interrupts(int fd)
{
	uint64_t count = 0;

	CHECK(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 20000) == 1);
	CHECK(read(fd, &count, sizeof(count)) == sizeof(count));
	return count;
}

static inline struct verbatim_function_info first_function(const char *adapter)
{
	struct verbatim_function_info list[64];
	int count = verbatim_function_list(list, 64);

	for (int i = 0; i < count; i++)
		if (!strcmp(list[i].adapter, adapter))
			return list[i];
	CHECK(!"the adapter has a function");
	return list[0];
}
