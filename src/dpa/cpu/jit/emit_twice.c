// SPDX-License-Identifier: MIT
/*
 * Owns loops in one piece (is_straight_loop), which are made twice: the first turn begins with
 * nothing known, as everything that can be entered from anywhere; all others begin with what is known
 * behind a turn. What others enter in between, they enter in the first copy.
 *
 *   head:  first copy           the leader; facts are empty
 *          jump if not to exit
 *   back:  second copy          nobody enters but from the first, and from itself
 *          jump if to back
 *   exit:                       facts are empty
 *
 * Or either copy ends with a jump, and the loop is left by branches inside. What is pending at such
 * a branch is extended out of line (STUB_EXIT): the loop goes on most of the time.
 *
 * What holds at the end of the first copy was found without asking how it began, so it holds at the
 * end of every turn; with one exception. That a base was compared may be known from a turn long ago:
 * then each turn has to keep it so. So the end of the second copy must know what its beginning
 * supposes. Where it does not, it is made again and supposes less.
 *
 * A register that is pending at the end of a turn is a word. Where the loop reads no more of it than
 * that, it stays pending from turn to turn. So does a fence, where the loop does not load.
 */
#include "dpa/cpu/jit/code.h"

#define TRIES 3 /* of the second copy; the last supposes nothing of bases */

/* The branch back at the end of either copy; cc: it is taken. */
void emit_jump_back(struct tx *tx, enum x86_cc cc)
{
	struct twice *w = &tx->twice;

	w->pending = tx->pending;
	if (w->pass == FIRST) {
		flush_pending(tx);
		w->exit = jcc_forward(&tx->c, cc ^ 1);
		w->ended = true;
	} else {
		flush_except(tx, w->waiting);
		jcc_to(&tx->c, cc, w->back);
	}
	memcpy(w->facts, tx->facts, sizeof(w->facts));
	if (w->pass == FIRST)
		return;
	flush_pending(tx);
	flush_fence(tx);
	patch32(&tx->c, w->exit, code_offset(&tx->c));
	memset(tx->facts, 0, sizeof(tx->facts));
	notes_void(tx);
}

/* The same, where the loop ends with a jump back, and is left from its inside. */
void emit_jump_always(struct tx *tx)
{
	struct twice *w = &tx->twice;

	w->pending = tx->pending;
	if (w->pass == FIRST) {
		flush_pending(tx);
		w->ended = true;
		memcpy(w->facts, tx->facts, sizeof(w->facts));
		return;
	}
	flush_except(tx, w->waiting);
	jmp_to(&tx->c, w->back);
	memcpy(w->facts, tx->facts, sizeof(w->facts));
	tx->pending = 0;
}

/* What the second copy's code leans on must not come back from elsewhere (emit_mem.c). */
static void seal_stub(struct tx *tx, const struct fact *fact)
{
	if (fact->checked && !tx->failed)
		tx->stubs[fact->stub].kind = STUB_LEAVE;
}

/* Make *have what also holds at the end of the copy made last. False: it held already. */
static bool suppose_less(struct tx *tx, struct fact *have, unsigned int reg)
{
	const struct fact *end = &tx->twice.facts[reg];
	bool less = false;

	if (have->checked && (!end->checked || end->drift != have->drift)) {
		have->checked = false;
		less = true;
	} else if (have->checked) {
		seal_stub(tx, end);
	}
	if (have->known && !(end->known && end->value == have->value)) {
		have->known = false;
		less = true;
	}
	if (have->below && (!end->below || end->below > have->below)) {
		have->below = 0;
		less = true;
	}
	if (have->word && !end->word && !(tx->twice.pending >> reg & 1)) {
		have->word = false;
		less = true;
	}
	return less;
}

static bool suppose_all_less(struct tx *tx, struct fact *have)
{
	bool less = false;

	for (unsigned int reg = 1; reg < 32; reg++)
		less |= suppose_less(tx, &have[reg], reg);
	return less;
}

static void emit_blocks(struct tx *tx, uint32_t first, uint32_t last)
{
	for (uint32_t k = first; k <= last && !tx->failed; k++)
		emit_block(tx, &tx->a.blocks[k]);
}

/* True: the second copy stands, and what it supposes holds at its end. */
static bool emit_again(struct tx *tx, uint32_t first, uint32_t last, struct fact *have)
{
	struct twice *w = &tx->twice;

	memcpy(tx->facts, have, sizeof(tx->facts));
	tx->pending = w->waiting;
	tx->fence = w->fence;
	for (unsigned int reg = 1; reg < 32; reg++)
		if (w->waiting >> reg & 1)
			tx->facts[reg] = (struct fact){ 0 };
	notes_void(tx);
	emit_blocks(tx, first, last);
	return tx->failed || !suppose_all_less(tx, have);
}

void emit_twice(struct tx *tx, uint32_t first, uint32_t last)
{
	struct twice *w = &tx->twice;
	struct fact have[33];
	struct code c;
	size_t nsites, nstubs, nfixups;

	*w = (struct twice){ .pass = FIRST,
			     .head = tx->a.blocks[first].index,
			     .last = tx->a.blocks[last].last };
	emit_blocks(tx, first, last);
	w->ended = false;
	w->pass = AGAIN;
	w->waiting = w->pending & ~whole_reads(&tx->a, first, last);
	memcpy(have, w->facts, sizeof(have));
	for (unsigned int reg = 1; reg < 32; reg++)
		seal_stub(tx, &have[reg]);
	emit_guesses(tx, first, last, have);
	align(&tx->c, 32);
	w->back = code_offset(&tx->c);
	c = tx->c;
	nsites = tx->gen->nsites;
	nstubs = tx->nstubs;
	nfixups = tx->nfixups;
	for (unsigned int n = 1; !tx->failed && !emit_again(tx, first, last, have); n++) {
		if (n == TRIES - 1)
			memset(have, 0, sizeof(have));
		tx->c = c;
		tx->gen->nsites = nsites;
		tx->nstubs = nstubs;
		tx->nfixups = nfixups;
	}
	w->pass = ONCE;
}
