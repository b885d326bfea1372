// SPDX-License-Identifier: MIT
/*
 * Owns what the translator knows before it emits: where instructions start, where control can
 * enter, the blocks between, which of them look at the budget, and how often the program uses
 * which register.
 *
 *   sweep     every instruction from the start of the text; a symbol inside of one means data
 *   leaders   targets of branches and jumps, return sites, behind an ecall, code addresses that the
 *             loader or an auipc+addi pair shows, entries of jump tables
 *   selects   branches over one instruction or two, which are no branches for the host
 *   blocks    from leader to leader, at most BLOCK_MAX, ended by control transfer
 *   checks    at every target of a backward jump or a call, in every block that ends with jalr, and
 *             where a forward path would otherwise execute more than UNCHECKED instructions
 *
 * A leader that is missed costs speed only: the interpreter takes over there (enter.c).
 */
#include "dpa/cpu/jit/code.h"

#include <errno.h>
#include <stdlib.h>

/* Halfwords to the next instruction. Bits that are none are taken as data, a halfword at a time. */
static uint32_t analyze_step(const struct vb_text *text, uint32_t index)
{
	if (text->insns[index].op == VB_OP_ILLEGAL)
		return 1;
	return vb_insn_len(text->base[text->lo + 2 * (uint64_t)index]) / 2;
}

static void analyze_sweep(struct vb_jit *jit, struct analysis *a)
{
	uint32_t i = 0;

	while (i < a->n) {
		unsigned int op = a->text->insns[i].op;
		uint32_t len;

		if (op == VB_OP_NOFETCH) {
			i++;
			continue;
		}
		len = analyze_step(a->text, i);
		if (len == 2 && i + 1 < a->n &&
		    __atomic_load_n(&jit->extra[i + 1], __ATOMIC_RELAXED) & EXTRA_SYMBOL) {
			i++;
			continue;
		}
		a->marks[i] |= (uint8_t)(len == 2 ? MARK_START | MARK_LONG : MARK_START);
		i += len;
	}
}

/* The same behind the sweep, without a look at the text; 1 where no instruction starts. */
static uint32_t length(const struct analysis *a, uint32_t index)
{
	return 1 + a->marks[index] / MARK_LONG % 2;
}

static void mark(struct analysis *a, uint64_t index, unsigned int marks)
{
	if (index < a->n && a->marks[index] & MARK_START)
		a->marks[index] |= (uint8_t)marks;
}

/* ---- code addresses that straight-line code makes ---- */

/* Where jump tables may begin: one bit for every aligned word of the data, range after range. */
struct tables {
	uint8_t *starts; /* NULL: there is no data */
};

static uint64_t data_words(const struct vb_text_range *range)
{
	return (range->hi - (range->lo & ~3ULL)) / 4;
}

static int tables_init(const struct vb_jit *jit, struct tables *t)
{
	uint64_t words = 0;

	t->starts = NULL;
	for (unsigned int i = 0; i < jit->ndata; i++)
		words += data_words(&jit->data[i]);
	if (words)
		t->starts = calloc(words / 8 + 1, 1);
	return words && !t->starts ? -ENOMEM : 0;
}

static void note_table(const struct vb_jit *jit, struct tables *t, uint64_t addr)
{
	uint64_t words = 0;

	for (unsigned int i = 0; i < jit->ndata; i++) {
		const struct vb_text_range *data = &jit->data[i];

		if (addr >= data->lo && addr < data->hi && data->hi - addr >= 4 && !(addr & 3)) {
			words += (addr - (data->lo & ~3ULL)) / 4;
			t->starts[words / 8] |= (uint8_t)(1U << words % 8);
			return;
		}
		words += data_words(data);
	}
}

/*
 * 32-bit entries relative to the table (gcc, clang with medany), as many as look like code. A table
 * ends at the latest where another one begins, so all of them together are read once.
 */
static void mark_tables(struct vb_jit *jit, struct analysis *a, const struct tables *t)
{
	const struct vb_text *text = a->text;
	uint64_t first = 0;

	for (unsigned int i = 0; i < jit->ndata && t->starts; i++) {
		const struct vb_text_range *data = &jit->data[i];
		uint64_t words = data_words(data), table = 0;

		for (uint64_t w = 0; w < words; w++) {
			uint64_t addr = (data->lo & ~3ULL) + 4 * w, target;
			int32_t entry;

			if (t->starts[(first + w) / 8] >> (first + w) % 8 & 1)
				table = addr;
			if (!table)
				continue;
			memcpy(&entry, text->base + addr, sizeof(entry));
			target = table + (uint64_t)(int64_t)entry;
			if (!vb_text_holds(text, target)) {
				table = 0;
				continue;
			}
			/* Kept: the memory may be gone when the text is translated again. */
			jit->extra[(target - text->lo) / 2] |= EXTRA_LEADER;
			mark(a, (target - text->lo) / 2, MARK_LEADER);
		}
		first += words;
	}
}

struct constants {
	uint64_t value[33];
	uint64_t known; /* bit per register */
	uint64_t upper; /* and it is what lui or auipc left there */
};

static void track_constant(struct vb_jit *jit, struct analysis *a, struct constants *k,
			   struct tables *t, uint32_t i)
{
	const struct vb_insn *insn = &a->text->insns[i];
	uint64_t pc = a->text->lo + 2 * (uint64_t)i, value = 0, rd = 1ULL << insn->rd;
	bool known = true, upper = insn->op == VB_OP_AUIPC || insn->op == VB_OP_LUI;

	if (!upper && insn->op != VB_OP_JALR && !(k->known >> insn->rs1 & 1)) { /* most of them */
		k->known &= ~rd;
		k->upper &= ~rd;
		return;
	}
	if (insn->op == VB_OP_AUIPC)
		value = pc + (uint64_t)(int64_t)insn->imm;
	else if (insn->op == VB_OP_LUI)
		value = (uint64_t)(int64_t)insn->imm;
	else if (insn->op == VB_OP_ADDI && k->known >> insn->rs1 & 1)
		value = k->value[insn->rs1] + (uint64_t)(int64_t)insn->imm;
	else
		known = false;
	if (insn->op == VB_OP_JALR &&
	    k->known >> insn->rs1 & 1) { /* a call, as far as code in one piece is concerned */
		uint64_t target = k->value[insn->rs1] + (uint64_t)(int64_t)insn->imm;

		mark(a, (target - a->text->lo) / 2, MARK_LEADER | MARK_CHECK);
	}
	if (known && insn->op == VB_OP_ADDI && vb_text_holds(a->text, value))
		mark(a, (value - a->text->lo) / 2, MARK_LEADER);
	else if (known && insn->op == VB_OP_ADDI && k->upper >> insn->rs1 & 1)
		note_table(jit, t, value);
	k->value[insn->rd] = value;
	k->known = (k->known & ~rd) | (known ? rd : 0);
	k->upper = (k->upper & ~rd) | (upper ? rd : 0);
}

/* ---- leaders ---- */

/*
 * A branch over one or two instructions that can be done either way. The second has to ask for the
 * condition again, so the first must leave it alone.
 */
static bool is_select(const struct analysis *a, uint32_t i)
{
	const struct vb_insn *insn = &a->text->insns[i];
	uint32_t at, end = i + (uint32_t)insn->imm / 2;
	unsigned int n = 0;

	if (insn->op < VB_OP_BEQ || insn->op > VB_OP_BGEU || insn->imm <= 0 ||
	    insn->imm > 4 * (1 + SELECT_MAX) || end >= a->n)
		return false;
	for (at = i + length(a, i); at < end && n < SELECT_MAX; n++, at += length(a, at)) {
		const struct vb_insn *next = &a->text->insns[at];

		if (!(a->marks[at] & MARK_START) || !select_op(next->op) ||
		    next->rd == VB_CPU_SINK || next->rd == 2)
			return false;
		if (at + length(a, at) < end && (next->rd == insn->rs1 || next->rd == insn->rs2))
			return false;
	}
	return n && at == end && a->marks[end] & MARK_START;
}

/*
 * Somebody enters between the branch and its instruction: then it is a branch after all, and its
 * target a leader. That target lies behind a plain instruction, not behind a branch, so it makes no
 * other select invalid, and once through the text is enough.
 */
static void drop_selects(struct analysis *a)
{
	for (uint32_t i = 0; i < a->n; i++) {
		uint32_t at = i, end = i + (uint32_t)a->text->insns[i].imm / 2;
		bool entered = false;

		if (!(a->marks[i] & MARK_SELECT))
			continue;
		for (at += length(a, at); at < end; at += length(a, at))
			entered |= a->marks[at] & MARK_LEADER;
		if (!entered)
			continue;
		a->marks[i] &= (uint8_t)~MARK_SELECT;
		mark(a, end, MARK_LEADER);
	}
}

/* What control transfer makes a leader. */
static void mark_from(struct analysis *a, uint32_t i)
{
	const struct vb_insn *insn = &a->text->insns[i];
	uint64_t target = i + (uint64_t)(int64_t)(insn->imm / 2), next = i + length(a, i);
	bool links = insn->rd != VB_CPU_SINK;

	if (insn->op >= VB_OP_BEQ && insn->op <= VB_OP_BGEU) {
		if (is_select(a, i))
			a->marks[i] |= MARK_SELECT;
		else
			mark(a, target, MARK_LEADER | (target <= i ? MARK_CHECK : 0));
	} else if (insn->op == VB_OP_JAL) {
		mark(a, target, MARK_LEADER | (target <= i || links ? MARK_CHECK : 0));
		mark(a, links ? next : UINT64_MAX, MARK_LEADER);
	} else if (insn->op == VB_OP_ECALL || (insn->op == VB_OP_JALR && links)) {
		mark(a, next, MARK_LEADER);
	}
}

static int analyze_find_leaders(struct vb_jit *jit, struct analysis *a)
{
	struct constants k = { .known = 0 };
	struct tables t;
	int err = tables_init(jit, &t);

	if (err)
		return err;
	for (uint32_t i = 0; i < a->n; i += length(a, i)) {
		if (!(a->marks[i] & MARK_START))
			continue;
		/* Relaxed: others may learn right now. */
		if (__atomic_load_n(&jit->extra[i], __ATOMIC_RELAXED) & EXTRA_LEADER)
			a->marks[i] |= MARK_LEADER;
		mark_from(a, i);
		track_constant(jit, a, &k, &t, i);
	}
	mark_tables(jit, a, &t);
	free(t.starts);
	drop_selects(a);
	return 0;
}

/* ---- register map ---- */

/*
 * Loops nest where backward jumps span; an instruction counts eight times as much for each of up to
 * three.
 */
static void loop_depths(const struct analysis *a, int8_t *delta)
{
	for (uint32_t i = 0; i < a->n; i += length(a, i)) {
		const struct vb_insn *insn = &a->text->insns[i];
		int32_t span;

		if (!(a->marks[i] & MARK_START) || insn->op < VB_OP_JAL || insn->op > VB_OP_BGEU ||
		    insn->op == VB_OP_JALR)
			continue;
		span = -insn->imm / 2;
		if (insn->imm >= 0 || span > 2048 || (uint32_t)span > i ||
		    (insn->op == VB_OP_JAL && insn->rd != VB_CPU_SINK))
			continue;
		if (delta[i - (uint32_t)span] < 100 && delta[i + 1] > -100) {
			delta[i - (uint32_t)span]++;
			delta[i + 1]--;
		}
	}
}

void choose_registers(const uint64_t uses[33], int8_t host[33])
{
	static const int8_t pool[MAPPED] = { RBX, RSI, RDI, RCX, R8, R9, R10, R11, R12, R13 };

	memset(host, NOREG, 33);
	for (unsigned int k = 0; k < MAPPED; k++) {
		unsigned int best = 0;

		for (unsigned int r = 1; r < 32; r++)
			if (host[r] == NOREG && (!best || uses[r] > uses[best]))
				best = r;
		host[best] = pool[k];
	}
}

static int count_registers(struct analysis *a)
{
	uint64_t sp_base = 0, sp_writes = 0;
	int8_t *delta = calloc(a->n + 2, 1);
	int depth = 0;

	if (!delta)
		return -ENOMEM;
	loop_depths(a, delta);
	for (uint32_t i = 0; i < a->n; i += length(a, i)) {
		const struct vb_insn *insn = &a->text->insns[i];
		uint64_t weight;

		depth += delta[i];
		weight = 1ULL << 3 * (depth < 0 ? 0 : depth > 3 ? 3 : depth);
		depth += delta[i + 1] *
			 (int)(length(a, i) - 1); /* of the half that is passed over */
		if (!(a->marks[i] & MARK_START) || insn->op >= VB_OP_ILLEGAL)
			continue;
		a->uses[insn->rd] += weight;
		a->uses[insn->rs1] += weight;
		a->uses[insn->rs2] += weight;
		sp_writes += insn->rd == 2;
		sp_base += insn->rs1 == 2 && insn->op >= VB_OP_LB && insn->op <= VB_OP_SD;
	}
	free(delta);
	a->sp_checked = sp_base > sp_writes;
	return 0;
}

/* ---- blocks ---- */

/* Fills count and last; what is behind the block. */
static uint32_t block_end(const struct analysis *a, struct block *b)
{
	uint32_t i = b->index;
	unsigned int marks;

	do {
		/* A branch that is a choice goes with what it leaves out. */
		uint32_t end =
			a->marks[i] & MARK_SELECT ? i + (uint32_t)a->text->insns[i].imm / 2 : i + 1;

		for (; i < end; i += length(a, i)) {
			b->count++;
			b->last = i;
		}
		marks = i < a->n ? a->marks[i] : 0;
	} while ((marks & (MARK_START | MARK_LEADER)) == MARK_START && b->count < BLOCK_MAX &&
		 !op_ends_block(a->text->insns[b->last].op));
	return i;
}

static void analyze_reach(struct analysis *a, const uint32_t *block_of, uint64_t index,
			  uint32_t distance)
{
	struct block *b;

	if (index >= a->n || !(a->marks[index] & MARK_START) || block_of[index] == UINT32_MAX)
		return;
	b = &a->blocks[block_of[index]];
	if (distance > b->distance)
		b->distance = (uint16_t)(distance > UINT16_MAX ? UINT16_MAX : distance);
}

/* In address order, so that a block's distance is known before the blocks that it reaches. */
static void place_checks(struct analysis *a, const uint32_t *block_of)
{
	for (uint32_t k = 0; k < a->nblocks; k++) {
		struct block *b = &a->blocks[k];
		const struct vb_insn *insn = &a->text->insns[b->last];
		uint32_t out;

		/* A leader may be reached from any indirect jump, whose block has checked itself.
		 */
		if (b->leader && b->distance < BLOCK_MAX)
			b->distance = BLOCK_MAX;
		b->check = a->marks[b->index] & MARK_CHECK || insn->op == VB_OP_JALR ||
			   b->distance + b->count > UNCHECKED;
		out = b->check ? b->count : b->distance + b->count;
		if (!op_ends_block(insn->op) || (insn->op >= VB_OP_BEQ && insn->op <= VB_OP_BGEU))
			analyze_reach(a, block_of, b->last + length(a, b->last), out);
		if (insn->op >= VB_OP_JAL && insn->op <= VB_OP_BGEU && insn->op != VB_OP_JALR &&
		    insn->imm > 0)
			analyze_reach(a, block_of, b->last + (uint64_t)insn->imm / 2, out);
	}
}

/* ---- loops ---- */

/* Operands of which only the low half counts, or which are compared or combined as words. */
static void operand_kinds(const struct vb_insn *insn, uint32_t *whole)
{
	uint32_t a = 1U << (insn->rs1 & 31), b = 1U << (insn->rs2 & 31);

	switch (insn->op) {
	case VB_OP_ADDIW:
	case VB_OP_SLLIW:
	case VB_OP_SRLIW:
	case VB_OP_SRAIW:
	case VB_OP_ADDW:
	case VB_OP_SUBW:
	case VB_OP_SLLW:
	case VB_OP_SRLW:
	case VB_OP_SRAW:
	case VB_OP_MULW:
	case VB_OP_DIVW:
	case VB_OP_DIVUW:
	case VB_OP_REMW:
	case VB_OP_REMUW:
	case VB_OP_ROLW:
	case VB_OP_RORW:
	case VB_OP_RORIW:
	case VB_OP_XOR:
	case VB_OP_OR:
	case VB_OP_AND:
	case VB_OP_XORI:
	case VB_OP_ORI:
	case VB_OP_ANDI:
	case VB_OP_BEQ:
	case VB_OP_BNE:
	case VB_OP_BLT:
	case VB_OP_BGE:
	case VB_OP_BLTU:
	case VB_OP_BGEU:
	case VB_OP_ZEXT_H:
	case VB_OP_SEXT_B:
	case VB_OP_SEXT_H:
	case VB_OP_SLLI_UW:
		break;
	case VB_OP_ADD_UW:
	case VB_OP_SH1ADD_UW:
	case VB_OP_SH2ADD_UW:
	case VB_OP_SH3ADD_UW:
		*whole |= b;
		break;
	case VB_OP_SB:
	case VB_OP_SH:
	case VB_OP_SW:
	case VB_OP_SLL:
	case VB_OP_SRL:
	case VB_OP_SRA:
		*whole |= a;
		break;
	default:
		*whole |= a | b;
		break;
	}
}

/* Registers of which the instructions of some blocks read more than a word, before they write them. */
uint32_t whole_reads(const struct analysis *a, uint32_t first, uint32_t last)
{
	uint32_t whole = 0, written = 0;

	for (uint32_t k = first; k <= last; k++) {
		uint32_t i = a->blocks[k].index;

		for (unsigned int n = a->blocks[k].count; n; n--, i += length(a, i)) {
			const struct vb_insn *insn = &a->text->insns[i];
			uint32_t reads = 0;

			operand_kinds(insn, &reads);
			whole |= reads & ~written;
			written |= insn->rd == VB_CPU_SINK ? 0 : 1U << insn->rd;
		}
	}
	return whole;
}

/* Does a branch of these blocks lead to a leader between the first and the last of them? */
static bool enters_inside(const struct analysis *a, uint32_t first, uint32_t last)
{
	int64_t low = a->blocks[first].index, high = a->blocks[last].last;

	for (uint32_t k = first; k <= last; k++) {
		uint32_t at = a->blocks[k].last;
		int64_t to = (int64_t)at + a->text->insns[at].imm / 2;

		if (op_ends_block(a->text->insns[at].op) && to > low && to <= high)
			return true;
	}
	return false;
}

/*
 * A loop in one piece: from this block, a leader, straight on to a branch or jump back to it. Others
 * may enter in between, as gcc enters its loops, but the loop itself does not. *last is the block of
 * that branch.
 */
bool is_straight_loop(const struct analysis *a, uint32_t first, uint32_t *last)
{
	unsigned int count = 0;

	if (!(a->marks[a->blocks[first].index] & MARK_CHECK))
		return false;
	for (uint32_t k = first; k < a->nblocks; k++) {
		const struct block *b = &a->blocks[k];
		uint32_t at = b->last;
		unsigned int op = a->text->insns[at].op;

		count += b->count;
		/* A leader with a check is a loop or a function of its own. */
		if ((k > first && b->leader && a->marks[b->index] & MARK_CHECK) || count > LOOP_MAX)
			return false;
		*last = k;
		if (op >= VB_OP_BEQ && op <= VB_OP_BGEU && !(a->marks[at] & MARK_SELECT) &&
		    (int64_t)at + a->text->insns[at].imm / 2 == a->blocks[first].index)
			return !enters_inside(a, first, k);
		if (op == VB_OP_JAL && a->text->insns[at].rd == VB_CPU_SINK &&
		    (int64_t)at + a->text->insns[at].imm / 2 == a->blocks[first].index)
			return !enters_inside(a, first, k);
		if ((op_ends_block(op) && (op < VB_OP_BEQ || op > VB_OP_BGEU)) ||
		    k + 1 == a->nblocks || a->blocks[k + 1].index != at + length(a, at))
			return false;
	}
	return false;
}

static int find_blocks(struct analysis *a)
{
	uint32_t *block_of = malloc((a->n + 1) * sizeof(*block_of));
	uint32_t starts = 0;

	for (uint32_t i = 0; i < a->n; i++)
		starts += a->marks[i] & MARK_START;
	a->blocks = calloc(starts + 1, sizeof(*a->blocks));
	if (!a->blocks || !block_of) {
		free(block_of);
		return -ENOMEM;
	}
	memset(block_of, 0xff, (a->n + 1) * sizeof(*block_of));
	for (uint32_t i = 0; i < a->n;) {
		struct block *b = &a->blocks[a->nblocks];

		if (!(a->marks[i] & MARK_START)) {
			i++;
			continue;
		}
		b->index = i;
		b->leader = a->marks[i] & MARK_LEADER;
		block_of[i] = a->nblocks++;
		i = block_end(a, b);
	}
	place_checks(a, block_of);
	free(block_of);
	return 0;
}

int analyze(struct vb_jit *jit, struct analysis *a)
{
	int err;

	*a = (struct analysis){ .text = jit->text,
				.n = (uint32_t)((jit->text->hi - jit->text->lo) / 2) };
	a->marks = calloc(a->n + 4, 1);
	if (!a->marks)
		return -ENOMEM;
	analyze_sweep(jit, a);
	err = analyze_find_leaders(jit, a);
	if (!err)
		err = count_registers(a);
	if (!err)
		err = find_blocks(a);
	if (err)
		analysis_free(a);
	return err;
}

void analysis_free(struct analysis *a)
{
	free(a->marks);
	free(a->blocks);
	a->marks = NULL;
	a->blocks = NULL;
}
