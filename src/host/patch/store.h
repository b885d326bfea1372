/* SPDX-License-Identifier: MIT */
/*
 * What a machine instruction would store or load: the decoder behind trapped pages (host/trap/trap.h).
 *
 * It reads an instruction and the registers it had, and says where which bytes were to go, or which
 * register gets what is where. It touches no memory but what it is given. x86-64 only; elsewhere nothing can be decoded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/public.h"

enum { VB_STORE_MAX = 64, VB_STORE_CODE_MAX = 15, VB_STORE_GPRS = 16 };

/* General registers in the order of their encoding: ax cx dx bx sp bp si di r8 ... r15. */
enum vb_gpr { VB_GPR_AX = 0, VB_GPR_CX = 1, VB_GPR_SP = 4, VB_GPR_SI = 6, VB_GPR_DI = 7 };

/* Vector and mask registers as plain arrays. */
struct vb_store_vectors {
	uint8_t zmm[32][VB_STORE_MAX];
	uint64_t k[8];
};

struct vb_store_regs {
	uint64_t gpr[VB_STORE_GPRS];
	uint64_t rip, rflags;
	const struct vb_store_vectors *vectors; /* or NULL: in fpstate */
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

enum vb_store_source {
	VB_STORE_FROM_GPR,
	VB_STORE_FROM_IMM,
	VB_STORE_FROM_VECTOR,
	VB_STORE_FROM_MMX
};
enum vb_store_segment { VB_STORE_FLAT, VB_STORE_FS, VB_STORE_GS };
enum vb_store_mask { VB_STORE_MASK_NONE, VB_STORE_MASK_K, VB_STORE_MASK_VECTOR };
enum { VB_STORE_NONE = 0xff, VB_STORE_RIP = 0xfe }; /* in place of a register's number */

/* What an instruction's bytes say, whatever the registers are. */
struct vb_store_form {
	uint8_t kind;   /* enum vb_store_kind */
	uint8_t source; /* enum vb_store_source: PLAIN, EXCHANGE */
	uint8_t length, size;
	uint8_t reg, reg_high;  /* the source; BLOCK: the register with the address */
	uint8_t at;             /* first byte of a vector register that is stored */
	uint8_t turned;         /* movbe */
	uint8_t repeat;         /* FILL, COPY */
	uint8_t address32;      /* addresses have 32 bits */
	uint8_t segment;        /* enum vb_store_segment */
	uint8_t base, index;    /* registers, NONE or RIP */
	uint8_t scale;          /* of the index */
	uint8_t mask, mask_reg; /* enum vb_store_mask */
	uint8_t element;        /* bytes that one bit or sign of the mask stands for */
	uint8_t aligned;        /* it faults at an address that is no multiple of its size */
	int64_t disp;
	uint64_t imm;
};

/* 0, or -EINVAL where the instruction is no store that is known here. */
VB_PUBLIC int vb_store_parse(const uint8_t *code, size_t len, struct vb_store_form *form);

/* What it stores with these registers: 0, or -EINVAL where one of them is not known. */
VB_PUBLIC int vb_store_eval(const struct vb_store_form *form, const struct vb_store_regs *regs,
			    struct vb_store *store);

/* The length of an instruction, whatever it is; 0 where it is none, or not all of it is there. */
unsigned int vb_store_length(const uint8_t *code, size_t len);

/* Both at once. */
VB_PUBLIC int vb_store_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
			      struct vb_store *store);

/* A load of 1, 2, 4 or 8 bytes into a general register. */
struct vb_load {
	uint8_t length; /* of the instruction */
	uint8_t size;   /* bytes loaded */
	uint8_t width;  /* bytes of the register */
	uint8_t reg, reg_high;
	uint8_t sign;   /* movsx */
	uint8_t turned; /* movbe */
	uint64_t addr;
};

/* mov, movzx, movsx, movsxd or movbe: 0, or -EINVAL where it is none of these. */
VB_PUBLIC int vb_load_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
			     struct vb_load *load);

/* The register gets the value; bits beyond the load's size do not count. */
VB_PUBLIC void vb_load_finish(const struct vb_load *load, uint64_t value,
			      struct vb_store_regs *regs);
