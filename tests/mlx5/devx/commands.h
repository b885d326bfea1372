/* SPDX-License-Identifier: MIT */
/* Commands of the programmer's reference manual, on the device of the steering kit. */
#pragma once

#include "steering/kit.h"

enum devx_status {
	OK = 0x0,
	BAD_OP = 0x2,
	BAD_PARAM = 0x3,
	BAD_RES = 0x5,
	RES_BUSY = 0x6,
	EXCEED_LIM = 0x8,
	BAD_RES_STATE = 0x9,
	BAD_INDEX = 0xa,
	NO_RES = 0xf,
	BAD_INP_LEN = 0x50,
	BAD_OUTP_LEN = 0x51,
};

enum { CAPABILITIES = 0x1010 };

struct command {
	uint8_t in[4096], out[CAPABILITIES + 16];
	size_t inlen, outlen;
};

static inline struct command *command(struct command *c, uint16_t opcode, size_t inlen,
				      size_t outlen)
{
	memset(c->in, 0, sizeof(c->in));
	memset(c->out, 0xa5, sizeof(c->out));
	put_bits(c->in, 0, 16, opcode);
	c->inlen = inlen;
	c->outlen = outlen;
	return c;
}

static inline int general(struct command *c)
{
	memset(c->out, 0xa5, sizeof(c->out));
	return mlx5dv_devx_general_cmd(kit.ctx, c->in, c->inlen, c->out, c->outlen);
}

static inline int query(struct mlx5dv_devx_obj *obj, struct command *c)
{
	memset(c->out, 0xa5, sizeof(c->out));
	return mlx5dv_devx_obj_query(obj, c->in, c->inlen, c->out, c->outlen);
}

static inline int modify(struct mlx5dv_devx_obj *obj, struct command *c)
{
	memset(c->out, 0xa5, sizeof(c->out));
	return mlx5dv_devx_obj_modify(obj, c->in, c->inlen, c->out, c->outlen);
}

static inline struct mlx5dv_devx_obj *create(struct command *c)
{
	memset(c->out, 0xa5, sizeof(c->out));
	return mlx5dv_devx_obj_create(kit.ctx, c->in, c->inlen, c->out, c->outlen);
}

static inline void destroy(struct mlx5dv_devx_obj *obj)
{
	assert_ok(mlx5dv_devx_obj_destroy(obj));
}

/* The firmware refused: status, zeros, and nothing behind the answer. */
static inline void assert_status(const struct command *c, uint8_t status)
{
	assert_int_equal(c->out[0], status);
	for (size_t i = 1; i < c->outlen; i++)
		assert_int_equal(c->out[i], 0);
	for (size_t i = c->outlen; i < sizeof(c->out); i++)
		assert_int_equal(c->out[i], 0xa5);
}

/* The kernel refused: the answer is as it was. */
static inline void assert_untouched(const struct command *c)
{
	for (size_t i = 0; i < sizeof(c->out); i++)
		assert_int_equal(c->out[i], 0xa5);
}

static inline void refuse_create(struct command *c, uint8_t status)
{
	assert_null_errno(create(c), EREMOTEIO);
	assert_status(c, status);
}

static inline void refuse_general(struct command *c, uint8_t status)
{
	assert_int_equal(general(c), EREMOTEIO);
	assert_status(c, status);
}
