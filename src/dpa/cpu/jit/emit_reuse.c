// SPDX-License-Identifier: MIT
/*
 * Owns what the host code of one guest instruction leaves for that of the next one: flags, and in
 * rax a register that lives in memory, or the low half of a product.
 *
 *   addi a, a, -1     add  a, -1          ZF tells whether a is zero
 *   bnez a, top       jne  top
 *
 *   add  s, s, b      add  s, b           CF tells whether the sum is below either addend
 *   sltu c, s, b      setb c
 *
 *   mulhu h, a, b     mul                 rax is a * b
 *   mul   l, a, b     mov  l, rax
 *
 *   srli t, b, 10     shr  rax, 10        rax is t, too
 *   xor  a, a, t      mov  [t], rax
 *                     xor  a, rax
 *
 *   ld   a, 0(p)      mov  eax, p32       rax is the low half of p
 *   addi a, a, 1      mov  a, [r14 + rax]
 *   ld   b, 8(p)      add  a, 1
 *                     mov  b, [r14 + rax + 8]
 *
 * The last one (struct low) holds until an instruction may change rax, the guest register is
 * written, or code comes in from elsewhere. Any other note holds at one place of the host code:
 * where nothing was emitted since, nothing changed the flags, rax, or a guest register. Whoever
 * enters in between, enters at a leader, whose block begins with code of its own; whoever comes
 * back from out of line has lost flags and rax (notes_void). An instruction that trusts a note
 * still does all that it does, and a trap in it finds all that the one before it did.
 */
#include "dpa/cpu/jit/code.h"

static bool emit_reuse_here(const struct tx *tx)
{
	return tx->notes.at == code_offset(&tx->c);
}

/* The notes of this place; those of an earlier one are void. */
static struct notes *notes(struct tx *tx)
{
	if (!emit_reuse_here(tx))
		tx->notes = (struct notes){ .at = code_offset(&tx->c) };
	return &tx->notes;
}

/* Writing sp is followed by a compare, writing x0 by nothing that was computed. */
static bool worth_a_note(unsigned int rd)
{
	return rd != 2 && rd != VB_CPU_SINK;
}

/* An extension to 64 bits was emitted, which changes neither flags nor rax nor a guest's value. */
void notes_move(struct tx *tx, uint32_t from)
{
	if (tx->notes.at == from)
		tx->notes.at = code_offset(&tx->c);
}

/* Here code comes in from elsewhere. */
void notes_void(struct tx *tx)
{
	tx->notes.at = 0;
	tx->low.reg = 0;
}

/* rax was stored to the slot of rd. */
void note_rax(struct tx *tx, unsigned int rd)
{
	if (worth_a_note(rd))
		notes(tx)->rax = (uint8_t)rd;
}

bool rax_is_noted(const struct tx *tx, unsigned int reg)
{
	return emit_reuse_here(tx) && reg && tx->notes.rax == reg;
}

/*
 * An access through reg was just emitted, and left rax and reg alone. If it has a stub that comes
 * back, rax is worthless on that way: whoever trusts this note makes the stub one that leaves.
 */
void note_low(struct tx *tx, unsigned int reg, uint32_t stub)
{
	tx->low = (struct low){ (uint8_t)reg, tx->c.changed, stub };
}

/* *stub: see note_low; UINT32_MAX: none. */
bool low_is_noted(const struct tx *tx, unsigned int reg, uint32_t *stub)
{
	*stub = tx->low.except;
	return reg && tx->low.reg == reg && tx->low.changed == tx->c.changed;
}

/* An instruction has written reg. */
void forget_low(struct tx *tx, unsigned int reg)
{
	if (tx->low.reg == reg)
		tx->low.reg = 0;
}

void note_zero(struct tx *tx, unsigned int rd)
{
	if (worth_a_note(rd))
		notes(tx)->zero = (uint8_t)rd;
}

bool zero_is_noted(const struct tx *tx, unsigned int reg)
{
	return emit_reuse_here(tx) && reg && tx->notes.zero == reg;
}

/* rd = a + b, all 64 bits. An addend that was overwritten is none any more. */
void note_carry(struct tx *tx, unsigned int rd, unsigned int a, unsigned int b)
{
	struct notes *n;

	if (!worth_a_note(rd))
		return;
	n = notes(tx);
	n->sum = (uint8_t)rd;
	n->addend[0] = (uint8_t)(a == rd ? 0 : a);
	n->addend[1] = (uint8_t)(b == rd ? 0 : b);
}

bool carry_is_noted(const struct tx *tx, unsigned int sum, unsigned int addend)
{
	return emit_reuse_here(tx) && sum && addend && tx->notes.sum == sum &&
	       (tx->notes.addend[0] == addend || tx->notes.addend[1] == addend);
}

/* rd = high half of a * b, the low half is in rax. */
void note_product(struct tx *tx, unsigned int rd, unsigned int a, unsigned int b)
{
	struct notes *n;

	if (!worth_a_note(rd) || rd == a || rd == b)
		return;
	n = notes(tx);
	n->product = true;
	n->factor[0] = (uint8_t)a;
	n->factor[1] = (uint8_t)b;
}

bool product_is_noted(const struct tx *tx, unsigned int a, unsigned int b)
{
	return emit_reuse_here(tx) && tx->notes.product &&
	       ((tx->notes.factor[0] == a && tx->notes.factor[1] == b) ||
		(tx->notes.factor[0] == b && tx->notes.factor[1] == a));
}
