// SPDX-License-Identifier: MIT
/*
 * Owns the decoding for the checker, and the memo that makes it fast.
 *
 * An instruction is its head (prefixes, opcode, ModRM, SIB), a displacement and an immediate, in this
 * order. Whether a byte belongs to the head is told by the bytes before it, so that no head begins
 * another, and heads fit a tree with one branch for each byte:
 *
 *   root --48--> node --8b--> node --45--> form of mov rax, [rbp + disp8]
 *                       `-01--> node --d8--> form of add rax, rbx
 *
 * The tree is empty at first. What is not in it is decoded by Zydis and put there, so that all the
 * checker knows of instructions is what Zydis said of the first one with the same head. Instructions
 * that are refused whatever their operands are do not get there: they end the check.
 */
#include "dpa/cpu/jit/verify_insn.h"

#include <stdlib.h>
#include <string.h>

#include "dpa/cpu/jit/x86.h"

#define FORMS_MAX 8192 /* what does not fit is decoded each time */
#define NODES_MAX 4096
#define LEAF      0x8000U
#define LONGEST   15 /* bytes of an instruction */

struct memo {
	ZydisDecoder zydis;
	bool forget;
	uint16_t (*nodes)[256]; /* 0: none; LEAF | number of a form; number of a node */
	struct form *forms;
	unsigned int nnodes, nforms;
	struct form spare[HISTORY]; /* of instructions that are not in the tree, in turn */
	unsigned int nspare;
};

/* ---- what Zydis says, in short ---- */

/* Instructions that do nothing but compute, or read and write the operands that they show. */
#define M(name) ZYDIS_MNEMONIC_##name
static const uint16_t plain[] = {
	M(MOV),    M(MOVZX), M(MOVSX), M(MOVSXD),  M(LEA),  M(ADD),       M(ADC),
	M(SUB),    M(SBB),   M(AND),   M(OR),      M(XOR),  M(NOT),       M(NEG),
	M(CMP),    M(TEST),  M(SHL),   M(SHR),     M(SAR),  M(ROL),       M(ROR),
	M(SHLD),   M(IMUL),  M(MUL),   M(DIV),     M(IDIV), M(CDQ),       M(CQO),
	M(BTS),    M(BTR),   M(BTC),   M(BSWAP),   M(NOP),  M(LZCNT),     M(TZCNT),
	M(POPCNT), M(XCHG),  M(XADD),  M(CMPXCHG), M(MOVQ), M(PCLMULQDQ), M(PEXTRQ),
};
/* The same with a VEX prefix. With one, some of those above are another processor's. */
static const uint16_t plain_vex[] = { M(ANDN), M(SHLX), M(SHRX), M(SARX), M(RORX) };
#undef M

#define IN(list, mnemonic) in(list, sizeof(list) / sizeof((list)[0]), mnemonic)

static bool in(const uint16_t *list, size_t n, ZydisMnemonic mnemonic)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == mnemonic)
			return true;
	return false;
}

/*
 * Of what Zydis calls a nop only these are one on every processor: a prefetch of a register
 * (0f 0d), say, does nothing on Intel's and is no instruction on some of AMD's.
 */
static bool is_nop(const ZydisDecodedInstruction *i)
{
	return i->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT
		       ? i->opcode == 0x90
		       : i->opcode_map == ZYDIS_OPCODE_MAP_0F && i->opcode == 0x1f;
}

static bool verify_insn_is_plain(const ZydisDecodedInstruction *i)
{
	if (i->mnemonic == ZYDIS_MNEMONIC_NOP && !is_nop(i))
		return false;
	if (i->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX)
		return IN(plain_vex, i->mnemonic);
	return i->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
	       (IN(plain, i->mnemonic) || i->meta.category == ZYDIS_CATEGORY_SETCC ||
		i->meta.category == ZYDIS_CATEGORY_CMOV);
}

unsigned int gpr(unsigned int reg)
{
	if (reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15)
		return reg - ZYDIS_REGISTER_RAX;
	if (reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_R15D)
		return reg - ZYDIS_REGISTER_EAX;
	reg = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, (ZydisRegister)reg);
	return reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15 ? reg - ZYDIS_REGISTER_RAX
								      : 16;
}

/*
 * The three registers that hold addresses of the host are bases of memory operands, and nothing
 * else.
 */
static bool is_private(ZydisRegister reg)
{
	unsigned int n = gpr(reg);

	return n == RSP || n == RBP || n == R14;
}

/* A register that the body may name: the other general ones, xmm, flags; none of the system's. */
static bool verify_insn_is_ours(ZydisRegister reg)
{
	return gpr(reg) < 16 ? !is_private(reg)
			     : ZydisRegisterGetClass(reg) == ZYDIS_REGCLASS_XMM ||
				       ZydisRegisterGetClass(reg) == ZYDIS_REGCLASS_FLAGS;
}

/* jcc, and not loop or jrcxz, which are of the same category */
static bool is_conditional(const ZydisDecodedInstruction *i)
{
	return i->meta.category == ZYDIS_CATEGORY_COND_BR &&
	       i->encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY &&
	       (i->opcode_map == ZYDIS_OPCODE_MAP_DEFAULT ? i->opcode >> 4 == 7
							  : i->opcode >> 4 == 8);
}

static enum kind verify_insn_kind_of(const ZydisDecodedInstruction *i)
{
	return i->mnemonic == ZYDIS_MNEMONIC_JMP    ? JMP
	       : i->mnemonic == ZYDIS_MNEMONIC_CALL ? CALL
	       : i->mnemonic == ZYDIS_MNEMONIC_RET  ? RET
	       : is_conditional(i)                  ? JCC
						    : PLAIN;
}

/*
 * Jumps: an operand size of 16 bits counts on processors of AMD, where displacement and target are
 * then shorter, and not on Intel's; a segment may lead a look-up elsewhere; the rest says nothing.
 * Others: what Zydis ignores may not be ignored by every processor.
 */
const char *bad_prefix(const ZydisDecodedInstruction *i)
{
	for (unsigned int k = 0; k < i->raw.prefix_count; k++) {
		bool rex = (i->raw.prefixes[k].value & 0xf0) == 0x40;

		if (verify_insn_kind_of(i) != PLAIN && !(rex && k + 1 == i->raw.prefix_count))
			return "a prefix of a jump";
		if (i->raw.prefixes[k].type == ZYDIS_PREFIX_TYPE_IGNORED)
			return "a prefix that has no effect";
	}
	return i->attributes & (ZYDIS_ATTRIB_HAS_XACQUIRE | ZYDIS_ATTRIB_HAS_XRELEASE)
		       ? "a prefix of transactions"
		       : NULL;
}

/* An access to memory; bases and displacements are the checker's own business. */
static const char *memory_flaw(const ZydisDecodedInstruction *i, const ZydisDecodedOperand *o)
{
	if (o->size > 64)
		return "an operand of more than 64 bits";
	if (o->mem.segment == ZYDIS_REGISTER_FS || o->mem.segment == ZYDIS_REGISTER_GS ||
	    i->address_width != 64)
		return "a segment, or an address of another width";
	if (i->mnemonic == ZYDIS_MNEMONIC_BTS || i->mnemonic == ZYDIS_MNEMONIC_BTR ||
	    i->mnemonic == ZYDIS_MNEMONIC_BTC)
		return "a bit string in memory";
	return NULL;
}

/* What lea computes with. */
static const char *address_flaw(const ZydisDecodedInstruction *i, const ZydisDecodedOperand *o)
{
	return is_private(o->mem.base) || is_private(o->mem.index) ||
			       o->mem.base == ZYDIS_REGISTER_RIP || i->address_width != 64
		       ? "an address of the host, or of another width"
		       : NULL;
}

static void add_operand(struct form *f, unsigned int k, const ZydisDecodedInstruction *i,
			const ZydisDecodedOperand *o)
{
	bool memory = o->type == ZYDIS_OPERAND_TYPE_MEMORY;
	struct operand kept = { .type = (uint8_t)o->type, .actions = o->actions, .size = o->size };

	if (memory) {
		kept.reg = (uint16_t)o->mem.base;
		kept.index = (uint16_t)o->mem.index;
		kept.scale = o->mem.scale;
	}
	if (o->type == ZYDIS_OPERAND_TYPE_REGISTER)
		kept.reg = (uint16_t)o->reg.value;
	if (k < sizeof(f->o) / sizeof(f->o[0]))
		f->o[k] = kept;
	if (o->type == ZYDIS_OPERAND_TYPE_REGISTER) {
		unsigned int n = gpr(o->reg.value);

		f->host |= !verify_insn_is_ours(o->reg.value);
		if (n < 16 && o->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) {
			f->written |= (uint16_t)(1U << n);
			if (f->mnemonic == ZYDIS_MNEMONIC_MOV && o->size == 32) {
				f->low = (uint8_t)n;
				f->low_bit = (uint16_t)(1U << n);
			}
		}
	}
	if (!memory || f->kind != PLAIN || f->mnemonic == ZYDIS_MNEMONIC_NOP)
		return;
	if (o->mem.type == ZYDIS_MEMOP_TYPE_AGEN) {
		f->why = f->why ? f->why : address_flaw(i, o);
		return;
	}
	if (f->memory >= 0 || k >= sizeof(f->o) / sizeof(f->o[0]))
		f->why = "more than one access";
	f->why = f->why ? f->why : memory_flaw(i, o);
	f->memory = (int8_t)k;
}

/* Head, displacement, immediate, and nothing behind. */
static bool is_in_order(const ZydisDecodedInstruction *i)
{
	unsigned int disp = i->raw.disp.size / 8U, imm = i->raw.imm[0].size / 8U;

	return !i->raw.imm[1].size && (!imm || i->raw.imm[0].offset == i->length - imm) &&
	       (!disp || i->raw.disp.offset == i->length - imm - disp);
}

static void distill(struct form *f, const ZydisDecodedInstruction *i, const ZydisDecodedOperand *o)
{
	*f = (struct form){ .mnemonic = (uint16_t)i->mnemonic,
			    .kind = (uint8_t)verify_insn_kind_of(i),
			    .low = 16,
			    .memory = -1,
			    .lock = i->attributes & ZYDIS_ATTRIB_HAS_LOCK,
			    .length = i->length,
			    .disp_size = i->raw.disp.size / 8,
			    .imm_size = i->raw.imm[0].size / 8,
			    .imm_signed = i->raw.imm[0].is_signed };
	if ((f->kind == PLAIN && !verify_insn_is_plain(i)) || !is_in_order(i))
		f->why = "an instruction that translations do not have";
	else if (f->kind == RET && (i->length != 1 || i->opcode != 0xc3))
		f->why = "another kind of return";
	else
		f->why = bad_prefix(i);
	for (unsigned int k = 0; k < i->operand_count; k++)
		add_operand(f, k, i, &o[k]);
	f->direct = f->kind != PLAIN && f->kind != RET &&
		    o[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && o[0].imm.is_relative;
	f->calm = f->kind == PLAIN && f->memory < 0 && !f->host &&
		  f->mnemonic != ZYDIS_MNEMONIC_DIV && f->mnemonic != ZYDIS_MNEMONIC_IDIV;
}

/* ---- the tree ---- */

static uint16_t verify_insn_add_node(struct memo *m)
{
	memset(m->nodes[m->nnodes], 0, sizeof(m->nodes[0]));
	return (uint16_t)m->nnodes++;
}

struct memo *memo_create(bool forget)
{
	struct memo *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	ZydisDecoderInit(&m->zydis, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	m->forget = forget;
	m->nodes = malloc(NODES_MAX * sizeof(*m->nodes)); /* few of the pages are ever touched */
	m->forms = malloc(FORMS_MAX * sizeof(*m->forms));
	if (!m->nodes || !m->forms) {
		memo_free(m);
		return NULL;
	}
	verify_insn_add_node(m); /* the root is number 0, which nothing leads to */
	return m;
}

void memo_free(struct memo *m)
{
	if (m) {
		free(m->nodes);
		free(m->forms);
		free(m);
	}
}

/* NULL: not there. There are LONGEST bytes to read. */
static const struct form *verify_insn_lookup(const struct memo *m, const uint8_t *bytes)
{
	unsigned int n = 0;

	for (unsigned int k = 0; k < LONGEST; k++) {
		n = m->nodes[n][bytes[k]];
		if (n & LEAF)
			return &m->forms[n & ~LEAF];
		if (!n)
			return NULL;
	}
	return NULL;
}

static void verify_insn_learn(struct memo *m, const uint8_t *bytes, const struct form *f)
{
	unsigned int n = 0, head = f->length - f->disp_size - f->imm_size;

	if (f->why || m->nforms == FORMS_MAX || m->nnodes + head > NODES_MAX)
		return;
	for (unsigned int k = 0; k + 1 < head; k++) {
		uint16_t *next = &m->nodes[n][bytes[k]];

		if (!*next)
			*next = verify_insn_add_node(m);
		if (*next & LEAF)
			return;
		n = *next;
	}
	if (m->nodes[n][bytes[head - 1]])
		return;
	m->forms[m->nforms] = *f;
	m->nodes[n][bytes[head - 1]] = (uint16_t)(LEAF | m->nforms++);
}

static const struct form *ask_zydis(struct memo *m, const uint8_t *bytes, size_t left)
{
	struct form *f = &m->spare[m->nspare++ % HISTORY];
	ZydisDecodedInstruction i;
	ZydisDecodedOperand o[ZYDIS_MAX_OPERAND_COUNT];

	if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&m->zydis, bytes, left, &i, o)))
		return NULL;
	distill(f, &i, o);
	if (!m->forget)
		verify_insn_learn(m, bytes, f);
	return f;
}

/* ---- instructions ---- */

bool memo_decode(struct memo *m, const uint8_t *code, size_t len, uint32_t at, struct insn *x)
{
	const uint8_t *bytes = code + at;
	const struct form *f = NULL;

	if (!m->forget && len - at >= LONGEST)
		f = verify_insn_lookup(m, bytes);
	if (!f)
		f = ask_zydis(m, bytes, len - at);
	if (!f)
		return false;
	x->f = f;
	x->at = at;
	x->bytes = bytes;
	return true;
}
