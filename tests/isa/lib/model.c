// SPDX-License-Identifier: MIT
/*
 * The reference model: runs a laid-out program one instruction at a time and records what it
 * writes.
 *
 * It works on the instruction list, not on the bytes, so it also checks encoder and decoder against
 * each other: an instruction encoded wrongly runs differently in the engine than here. Calls: 64
 * write, 93 exit.
 */
#include "rv.h"

#include <stdlib.h>
#include <string.h>

void rv_model_init(struct rv_model *m, const struct rv_prog *p)
{
	memset(m, 0, sizeof(*m));
	m->prog = p;
	m->pc = RV_TEXT;
	m->mem_end = p->data_base + ((p->data_size + RV_PAGE - 1) & ~(RV_PAGE - 1));
	m->mem = calloc(1, m->mem_end - RV_TEXT);
	memcpy(m->mem, p->text, p->text_size);
	if (p->data_size)
		memcpy(m->mem + (p->data_base - RV_TEXT), p->data, p->data_size);
	m->reserved = ~0ull;
	m->index = malloc((p->text_size / 2 + 1) * sizeof(int));
	memset(m->index, 0xff, (p->text_size / 2 + 1) * sizeof(int));
	for (size_t n = 0; n < p->count; n++)
		m->index[(p->insn[n].pc - RV_TEXT) / 2] = (int)n;
}

void rv_model_free(struct rv_model *m)
{
	free(m->mem);
	free(m->index);
	free(m->out);
	memset(m, 0, sizeof(*m));
}

static uint8_t *at(struct rv_model *m, u64 address, u64 size, bool store)
{
	u64 text_end = (RV_TEXT + m->prog->text_size + RV_PAGE - 1) & ~(RV_PAGE - 1);

	if (address < (store ? m->prog->data_base : RV_TEXT) || address + size > m->mem_end ||
	    address + size < size)
		return NULL;
	if (address + size > text_end && address < m->prog->data_base) /* nothing is between them */
		return NULL;
	return m->mem + (address - RV_TEXT);
}

static u64 extend(enum rv_op op, const uint8_t *from)
{
	switch (op) {
#define LD(name, f3, type)                   \
	case OP_##name: {                    \
		type v;                      \
		memcpy(&v, from, sizeof(v)); \
		return (u64)(i64)v;          \
	}
#define R(...)
#define I(...)
#define SH(...)
#define U1(...)
#define ST(...)
#define BR(...)
#define AM(...)
#define XX(...)
#include "ops.def"
	default:
		return 0;
	}
}

static bool call(struct rv_model *m)
{
	u64 *x = m->x;
	uint8_t *from;

	if (x[17] == 93) {
		m->status = (int)(x[10] & 255);
		return false;
	}
	from = at(m, x[11], x[12], false);
	if (x[17] != 64 || !from) {
		x[10] = (u64)-38;
		return true;
	}
	if (m->out_size + x[12] > m->out_room) {
		m->out_room = (m->out_size + x[12]) * 2;
		m->out = realloc(m->out, m->out_room);
	}
	memcpy(m->out + m->out_size, from, x[12]);
	m->out_size += x[12];
	x[10] = x[12];
	return true;
}

/* Atomics and plain memory; false on an access the program must not make. */
static bool memory(struct rv_model *m, const struct rv_insn *i, u64 a, u64 b, u64 *value)
{
	const struct rv_info *f = &rv_info[i->op];
	bool wide = f->bits & 0x1000, atomic = f->format >= FMT_AM && f->format <= FMT_SC;
	unsigned size = f->arg ? f->arg : wide ? 8 : 4;
	u64 address = atomic ? a : a + (u64)i->imm, old;
	uint8_t *p = at(m, address, size, f->format != FMT_LD && f->format != FMT_LR);

	if (!p || (atomic && address % size))
		return false;
	old = extend(size == 8 ? OP_ld : OP_lw, size >= 4 ? p : (const uint8_t *)&b);
	switch (f->format) {
	case FMT_LD:
		*value = extend(i->op, p);
		break;
	case FMT_ST:
		memcpy(p, &b, size);
		break;
	case FMT_AM:
		*value = old;
		b = rv_amo(i->op, old, b);
		memcpy(p, &b, size);
		break;
	case FMT_LR:
		*value = old;
		m->reserved = address;
		break;
	default: /* SC */
		*value = m->reserved != address;
		m->reserved = ~0ull;
		if (!*value)
			memcpy(p, &b, size);
		break;
	}
	return true;
}

static enum rv_stop step(struct rv_model *m, const struct rv_insn *i)
{
	u64 a = m->x[i->rs1], b = m->x[i->rs2], value = 0, next = m->pc + i->size;
	enum rv_stop stop = RV_LIMIT;
	bool writes = true;

	switch (rv_info[i->op].format) {
	case FMT_R:
		value = rv_value(i->op, a, b);
		break;
	case FMT_I:
	case FMT_SH:
	case FMT_U1:
		value = rv_value(i->op, a, (u64)i->imm);
		break;
	case FMT_ST:
		writes = false;
		/* fall through */
	case FMT_LD:
	case FMT_AM:
	case FMT_LR:
	case FMT_SC:
		if (!memory(m, i, a, b, &value))
			return RV_FAULT;
		break;
	case FMT_BR:
		writes = false;
		if (rv_taken(i->op, a, b))
			next = m->pc + (u64)i->imm;
		break;
	case FMT_U:
		value = (i->op == OP_auipc ? m->pc : 0) + (u64)i->imm;
		break;
	case FMT_J:
		value = next;
		next = m->pc + (u64)i->imm;
		break;
	case FMT_JR:
		value = next;
		next = (a + (u64)i->imm) & ~1ull;
		break;
	case FMT_CSR: /* instret: the instructions before this one */
		value = m->count;
		break;
	case FMT_F:
		writes = false;
		break;
	case FMT_N:
		if (i->op != OP_ecall)
			return RV_FAULT;
		writes = false;
		stop = call(m) ? RV_LIMIT : RV_EXIT;
		break;
	}
	if (writes && i->rd)
		m->x[i->rd] = value;
	if (stop != RV_EXIT)
		m->pc = next;
	m->count++;
	return stop;
}

enum rv_stop rv_model_run(struct rv_model *m, u64 limit)
{
	while (m->count < limit) {
		u64 offset = m->pc - RV_TEXT;
		enum rv_stop stop;

		if (offset >= m->prog->text_size || m->index[offset / 2] < 0)
			return RV_FAULT;
		stop = step(m, &m->prog->insn[m->index[offset / 2]]);
		if (stop != RV_LIMIT)
			return stop;
	}
	return RV_LIMIT;
}
