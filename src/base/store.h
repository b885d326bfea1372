/* SPDX-License-Identifier: MIT */
/*
 * What a machine instruction would store: the decoder behind trapped pages (base/trap.h).
 *
 * It reads an instruction and the registers it had, and says where which bytes were to go. It
 * touches no memory but what it is given. x86-64 only; elsewhere nothing can be decoded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/public.h"

enum { VB_STORE_MAX = 64, VB_STORE_CODE_MAX = 15, VB_STORE_GPRS = 16 };

/* General registers in the order of their encoding: ax cx dx bx sp bp si di r8 ... r15. */
enum vb_gpr { VB_GPR_AX = 0, VB_GPR_CX = 1, VB_GPR_SP = 4, VB_GPR_SI = 6, VB_GPR_DI = 7 };

struct vb_store_regs {
	uint64_t gpr[VB_STORE_GPRS];
	uint64_t rip, rflags;
	const void *fpstate;               /* FXSAVE or XSAVE image, or NULL: no vector registers */
	size_t fpstate_size;               /* bytes of it */
	uint64_t (*segment_base)(bool gs); /* of FS or GS; NULL: not known */
};

enum vb_store_kind {
	VB_STORE_PLAIN,    /* data goes to addr */
	VB_STORE_EXCHANGE, /* the same, and register reg (mask bits of it) gets what was there */
	VB_STORE_FILL,     /* stos: data (one element) to addr, di moves on */
	VB_STORE_COPY,     /* movs: one element from source to addr, si and di move on */
	VB_STORE_BLOCK,    /* movdir64b: size bytes from source to addr */
};

struct vb_store {
	enum vb_store_kind kind;
	uint8_t length;    /* of the instruction */
	uint8_t size;      /* bytes stored; of one element for FILL and COPY */
	uint8_t reg;       /* EXCHANGE */
	uint8_t reg_high;  /* EXCHANGE: it is ah, ch, dh or bh */
	uint8_t repeat;    /* FILL, COPY: cx times */
	uint8_t address32; /* FILL, COPY: the index registers have 32 bits */
	uint64_t addr;
	uint64_t source; /* COPY, BLOCK */
	uint64_t mask;   /* PLAIN: a bit for each byte that is really stored */
	uint8_t data[VB_STORE_MAX];
};

/* 0, or -EINVAL where the instruction is no store that is known here. */
VB_PUBLIC int vb_store_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
			      struct vb_store *store);
