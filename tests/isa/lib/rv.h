/* SPDX-License-Identifier: MIT */
/*
 * RISC-V programs as the tests build them: a list of instructions with labels, laid out, encoded
 * and written as an ELF file, and a plain reference model that says what the program must print and
 * how many instructions it retires.
 *
 *   rv_emit*() -> struct rv_insn[] -- rv_layout() -> bytes -- rv_write_elf() -> interp, jit, qemu
 *                     |                                                          |
 *                     `-- rv_model_run() -> expected output and count ----- must agree
 *
 * A program is one text segment at RV_TEXT and one data segment on the page after it.
 */
#ifndef ISA_RV_H
#define ISA_RV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef int64_t i64;
typedef int32_t i32;
typedef __int128 i128;
typedef unsigned __int128 u128;

#define RV_TEXT 0x10000ull
#define RV_PAGE 0x1000ull

enum rv_op {
#define R(name, ...)  OP_##name,
#define I(name, ...)  OP_##name,
#define SH(name, ...) OP_##name,
#define U1(name, ...) OP_##name,
#define LD(name, ...) OP_##name,
#define ST(name, ...) OP_##name,
#define BR(name, ...) OP_##name,
#define AM(name, ...) OP_##name##_w, OP_##name##_d,
#define XX(name, ...) OP_##name,
#include "ops.def"
#undef R
#undef I
#undef SH
#undef U1
#undef LD
#undef ST
#undef BR
#undef AM
#undef XX
	OP_COUNT
};

enum rv_format {
	FMT_R,  /* rd, rs1, rs2 */
	FMT_I,  /* rd, rs1, imm12 */
	FMT_SH, /* rd, rs1, amount */
	FMT_U1, /* rd, rs1 */
	FMT_LD, /* rd, imm(rs1) */
	FMT_ST, /* rs2, imm(rs1) */
	FMT_BR, /* rs1, rs2, offset */
	FMT_AM, /* rd, rs2, (rs1) */
	FMT_LR,
	FMT_SC,
	FMT_U,
	FMT_J,
	FMT_JR,
	FMT_F,
	FMT_N,
	FMT_CSR, /* rd, csr in imm, rs1 = x0 */
};

struct rv_info {
	const char *name;
	enum rv_format format;
	u32 bits;     /* the encoding with all operands zero */
	unsigned arg; /* shift width, access size */
};

extern const struct rv_info rv_info[OP_COUNT];

/* What a label fixes up in an instruction. */
enum rv_fix {
	RV_FIX_NONE,
	RV_FIX_PC,  /* branch, jal: the distance */
	RV_FIX_HI,  /* auipc: upper part of the distance */
	RV_FIX_LO,  /* lower part; the auipc is the instruction before it */
	RV_FIX_LO2, /* the same, two instructions after the auipc */
};

struct rv_insn {
	enum rv_op op;
	uint8_t rd, rs1, rs2;
	uint8_t size;  /* 2 or 4 once laid out */
	bool compress; /* use the 16-bit form where there is one */
	enum rv_fix fix;
	int label; /* of the fix-up */
	i64 imm;
	u64 pc;
};

struct rv_prog {
	struct rv_insn *insn;
	size_t count, insn_room;
	int *label; /* label -> index of the instruction it stands before; data labels are below */
	u64 *label_data; /* label -> offset in data + 1, or 0 for a text label */
	size_t labels, label_room;
	uint8_t *text;
	size_t text_size;
	uint8_t *data;
	size_t data_size, data_room;
	struct {
		size_t offset;
		int label;
	} * word; /* data words that hold a label's address */
	size_t words, word_room;
	u64 data_base;
};

void rv_init(struct rv_prog *p);
void rv_free(struct rv_prog *p);

/* Emit one instruction; the returned pointer is valid until the next emit. */
struct rv_insn *rv_emit(struct rv_prog *p, enum rv_op op, unsigned rd, unsigned rs1, unsigned rs2,
			i64 imm);
void rv_branch(struct rv_prog *p, enum rv_op op, unsigned rs1, unsigned rs2, int label);
void rv_jump(struct rv_prog *p, unsigned rd, int label);
void rv_la(struct rv_prog *p, unsigned rd, int label);
void rv_li(struct rv_prog *p, unsigned rd, u64 value);

int rv_label(struct rv_prog *p);
void rv_place(struct rv_prog *p, int label);
/* Append to data; returns the offset. A data label names that place. */
size_t rv_data(struct rv_prog *p, const void *bytes, size_t size, size_t align);
int rv_data_label(struct rv_prog *p, size_t offset);
/* Make the eight data bytes at `offset` hold the address of `label`. */
void rv_data_word(struct rv_prog *p, size_t offset, int label);

/* Choose sizes, resolve labels, encode. */
void rv_layout(struct rv_prog *p);
u64 rv_address(const struct rv_prog *p, int label);
int rv_write_elf(const struct rv_prog *p, int fd);
size_t rv_elf_image(const struct rv_prog *p, uint8_t **image);

u32 rv_encode(const struct rv_insn *i);
/* The 16-bit form, or 0 where there is none. */
uint16_t rv_compress(const struct rv_insn *i);
const char *rv_text(const struct rv_insn *i, char *buf, size_t size);

/* The value of a computing instruction: b is rs2, the immediate or the shift amount. */
u64 rv_value(enum rv_op op, u64 a, u64 b);
bool rv_taken(enum rv_op op, u64 a, u64 b);
u64 rv_amo(enum rv_op op, u64 memory, u64 b);

enum rv_stop { RV_EXIT, RV_LIMIT, RV_FAULT };

struct rv_model {
	u64 x[32], pc, count;
	uint8_t *out;
	size_t out_size, out_room;
	int status; /* exit code */
	uint8_t *mem;
	u64 mem_end;
	u64 reserved; /* address of the reservation, or ~0 */
	const struct rv_prog *prog;
	int *index; /* (pc - RV_TEXT) / 2 -> instruction, or -1 */
};

void rv_model_init(struct rv_model *m, const struct rv_prog *p);
void rv_model_free(struct rv_model *m);
/* Run until exit, a fault, or `limit` instructions in total. */
enum rv_stop rv_model_run(struct rv_model *m, u64 limit);

/* A small seeded generator: the same seed gives the same programs on every machine. */
struct rng {
	u64 s;
};

static inline u64 rng_next(struct rng *r)
{
	u64 z = r->s += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline unsigned rng_below(struct rng *r, unsigned n)
{
	return (unsigned)((rng_next(r) >> 32) * n >> 32);
}

static inline bool rng_chance(struct rng *r, unsigned percent)
{
	return rng_below(r, 100) < percent;
}

/* A value that is often an edge: zero, all ones, a power of two and its neighbours, a sign boundary. */
u64 rng_value(struct rng *r);

#endif
