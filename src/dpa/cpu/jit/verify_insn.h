/* SPDX-License-Identifier: MIT */
/*
 * Host instructions as the checker sees them. Zydis decodes; what it says is kept in short as a form.
 * Two instructions have the same form if they differ in displacement and immediate alone.
 */
#pragma once

#include <Zydis/Zydis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HISTORY 16 /* instructions that stay valid; longer than any sequence, a power of two */

enum kind { PLAIN, JMP, JCC, CALL, RET };

struct operand {
	uint8_t type;    /* ZydisOperandType */
	uint8_t actions; /* ZydisOperandActions */
	uint16_t size;   /* bits */
	uint16_t reg;    /* ZydisRegister; of memory: the base */
	uint16_t index;
	uint8_t scale;
};

struct form {
	const char *why; /* whatever its displacement and immediate: refused; NULL */
	struct operand o[3];
	uint16_t mnemonic; /* ZydisMnemonic */
	uint16_t written;  /* general registers, one bit each */
	uint16_t low_bit;  /* the one of them that this 32-bit mov makes; 0 */
	uint8_t low;       /* its number; 16: none */
	int8_t memory;     /* the operand that is an access; -1 */
	uint8_t kind;      /* enum kind */
	bool host;         /* names a register that the body may not name */
	bool calm;         /* only computes: nothing else matters */
	bool direct;       /* jumps and calls: o[0] is a displacement from its end */
	bool lock;
	bool imm_signed;
	uint8_t length, disp_size, imm_size; /* bytes; the immediate is last */
};

struct insn {
	const struct form *f;
	const uint8_t *bytes;
	uint32_t at;
};

struct memo;

/* NULL: no memory. forget: decode each instruction anew. */
struct memo *memo_create(bool forget);
void memo_free(struct memo *m);
/* The instruction at code + at; false: there is none before the end. */
bool memo_decode(struct memo *m, const uint8_t *code, size_t len, uint32_t at, struct insn *x);

/* A prefix that decoders disagree about, in words; NULL. */
const char *bad_prefix(const ZydisDecodedInstruction *i);
/* Number of the 64-bit register that a register is part of, 16: none of the general ones. */
unsigned int gpr(unsigned int reg);
/* Of 0, 1, 2, 4 or 8 bytes, as all numbers in instructions are. */
static inline int64_t insn_number(const uint8_t *bytes, unsigned int size, bool sign)
{
	uint64_t value;
	uint32_t word;
	uint16_t half;

	switch (size) {
	case 0:
		return 0;
	case 1:
		return sign ? (int8_t)*bytes : *bytes;
	case 2:
		memcpy(&half, bytes, 2);
		return sign ? (int16_t)half : half;
	case 4:
		memcpy(&word, bytes, 4);
		return sign ? (int32_t)word : (int64_t)word;
	default:
		memcpy(&value, bytes, 8);
		return (int64_t)value;
	}
}

/* The displacement, 0: there is none. */
static inline int64_t insn_disp(const struct insn *x)
{
	const struct form *f = x->f;

	return insn_number(x->bytes + f->length - f->imm_size - f->disp_size, f->disp_size, true);
}

/* The same with the immediate. */
static inline int64_t insn_imm(const struct insn *x)
{
	const struct form *f = x->f;

	return insn_number(x->bytes + f->length - f->imm_size, f->imm_size, f->imm_signed);
}
