// SPDX-License-Identifier: MIT
/*
 * Fuses byte loads and shifts, by which programs read packets, into one wide load and, for the other
 * byte order, a swap.
 *
 *   lb   a, 0(p)            cmp   p, limit; jae       as for any load
 *   lbu  b, 1(p)            mov   eax, p32
 *   slli a, a, 8            movzx a, word [r14 + rax]
 *   or   c, a, b            rol   a16, 8
 *   zext.h a, c             movzx b, a8; ...          what is still wanted of the rest
 *
 * This is done for a run: instructions of one block of which none can stop but loads through one
 * register (the base), which lie within a page's size. The first code of a run touches the first and
 * the last byte that it loads, by the wide load itself or by a probe, and no register has changed by
 * then. If that faults, the interpreter begins at the run's first instruction and finds the
 * one that traps (SITE_RESTART). Otherwise no load of the run traps, nobody sees registers inside of
 * it, and what nobody reads is not computed. (Memory that the host takes away in that very moment
 * traps nevertheless; registers that nobody reads may then be those of before.)
 *
 * Each byte is read once: whoever wants a byte of a wide load as well gets it from the register.
 * Loads only move up, inside of the run, where no other load, store or fence tells the difference.
 */
#include "dpa/cpu/jit/code.h"

#define SPAN  2048 /* of the loads of a run; less than a page */
#define TRIES 5    /* what collides is left out and the rest sorted once more, so often */

/* What a byte of a register is: nothing, a byte that was loaded (its number and one), copies of that
 * one's sign, or something else. */
enum lane { LANE_ZERO = 0, LANE_SIGN = 0x80, LANE_ANY = 0xff };

struct value {
	uint8_t lane[8];
};

struct scan {
	const struct vb_insn *insn[BLOCK_MAX];
	struct value out[BLOCK_MAX]; /* what it writes */
	uint8_t load_of[BLOCK_MAX];  /* it loads this byte; UINT8_MAX: it does not */
	uint8_t at[BLOCK_MAX];       /* where that byte is loaded */
	uint8_t owner[BLOCK_MAX];    /* who has taken it; UINT8_MAX: nobody */
	unsigned int n, nbytes;
	uint64_t banned; /* bit per instruction: not to become a wide load */
	struct bytes *plan;
};

static bool emit_bytes_is_load(const struct vb_insn *insn)
{
	return insn->op >= VB_OP_LB && insn->op <= VB_OP_LWU;
}

static int32_t load_size(const struct vb_insn *insn)
{
	return 1 << ((insn->op - VB_OP_LB) & 3);
}

/* Arithmetic that neither stops nor asks the interpreter. */
static bool emit_bytes_is_plain(const struct vb_insn *insn)
{
	unsigned int op = insn->op;

	return insn->rd != 2 && (op <= VB_OP_AUIPC || (op >= VB_OP_ADDI && op <= VB_OP_SRAW) ||
				 (op >= VB_OP_MUL && op <= VB_OP_MULHU) || op == VB_OP_MULW ||
				 (op >= VB_OP_ADD_UW && op <= VB_OP_BSETI));
}

/* ---- what registers hold ---- */

static uint8_t sign_of(uint8_t lane)
{
	return lane == LANE_ZERO || lane == LANE_ANY ? lane : lane | LANE_SIGN;
}

/* n lanes stay, and what is above them is zero or the sign. */
static struct value emit_bytes_cut(struct value v, unsigned int n, bool sign)
{
	for (unsigned int i = n; i < 8; i++)
		v.lane[i] = sign ? sign_of(v.lane[n - 1]) : LANE_ZERO;
	return v;
}

static struct value shift(struct value v, int by)
{
	struct value r;

	for (int i = 0; i < 8; i++)
		r.lane[i] = i - by >= 0 && i - by < 8 ? v.lane[i - by] : LANE_ZERO;
	return r;
}

static struct value emit_bytes_join(struct value a, struct value b)
{
	for (unsigned int i = 0; i < 8; i++)
		a.lane[i] = !a.lane[i] ? b.lane[i] : !b.lane[i] ? a.lane[i] : LANE_ANY;
	return a;
}

static struct value emit_bytes_evaluate(const struct vb_insn *insn, const struct value *x)
{
	static const struct value any = { { 255, 255, 255, 255, 255, 255, 255, 255 } };
	struct value a = x[insn->rs1], b = x[insn->rs2];
	int by = insn->imm / 8;

	switch (insn->op) {
	case VB_OP_SLLI:
		return insn->imm % 8 ? any : shift(a, by);
	case VB_OP_SRLI:
		return insn->imm % 8 ? any : shift(a, -by);
	case VB_OP_SLLIW:
		return insn->imm % 8 ? any : emit_bytes_cut(shift(a, by), 4, true);
	case VB_OP_SRLIW:
		return insn->imm % 8
			       ? any
			       : emit_bytes_cut(shift(emit_bytes_cut(a, 4, false), -by), 4, true);
	case VB_OP_OR:
		return emit_bytes_join(a, b);
	case VB_OP_ZEXT_H:
		return emit_bytes_cut(a, 2, false);
	case VB_OP_ANDI:
		return insn->imm == 0xff ? emit_bytes_cut(a, 1, false) : any;
	case VB_OP_ADDI:
		return insn->imm ? any : a;
	case VB_OP_ADDIW:
		return insn->imm ? any : emit_bytes_cut(a, 4, true);
	case VB_OP_ADD:
		return !insn->rs1 ? b : !insn->rs2 ? a : any;
	case VB_OP_ADD_UW:
		return insn->rs2 ? any : emit_bytes_cut(a, 4, false);
	default:
		return any;
	}
}

/* ---- the run ---- */

static bool emit_bytes_overlaps(const struct scan *s, const struct vb_insn *insn)
{
	for (unsigned int k = 0; k < s->n; k++)
		if (emit_bytes_is_load(s->insn[k]) &&
		    s->insn[k]->imm < insn->imm + load_size(insn) &&
		    insn->imm < s->insn[k]->imm + load_size(s->insn[k]))
			return true;
	return false;
}

/* Add the instruction to the run; false: the run ends before it. */
static bool extend_run(struct scan *s, const struct vb_insn *insn, struct value *x, bool gone)
{
	int32_t low = s->insn[0]->imm;
	struct value *out = &s->out[s->n];

	s->load_of[s->n] = UINT8_MAX;
	if (emit_bytes_is_load(insn)) {
		if (gone || insn->rs1 != s->insn[0]->rs1 || insn->rd == 2 ||
		    insn->rd == VB_CPU_SINK || insn->imm < low - SPAN / 2 + 8 ||
		    insn->imm > low + SPAN / 2 - 8 || emit_bytes_overlaps(s, insn))
			return false;
		memset(out, LANE_ANY, sizeof(*out));
		if (load_size(insn) == 1) {
			s->at[s->nbytes] = (uint8_t)s->n;
			s->load_of[s->n] = (uint8_t)s->nbytes;
			out->lane[0] = (uint8_t)++s->nbytes;
			*out = emit_bytes_cut(*out, 1, insn->op == VB_OP_LB);
		}
	} else if (emit_bytes_is_plain(insn)) {
		*out = emit_bytes_evaluate(insn, x);
	} else {
		return false;
	}
	s->insn[s->n++] = insn;
	if (insn->rd != VB_CPU_SINK)
		x[insn->rd] = *out;
	return true;
}

static void scan_run(const struct tx *tx, struct scan *s)
{
	const struct vb_text *text = tx->jit->text;
	struct value x[33];
	uint32_t i = tx->index;
	bool gone = false;

	memset(x, LANE_ANY, sizeof(x));
	memset(&x[0], LANE_ZERO, sizeof(x[0]));
	s->insn[0] = &text->insns[i];
	for (unsigned int left = tx->left; left && !(tx->a.marks[i] & MARK_SELECT); left--) {
		const struct vb_insn *insn = &text->insns[i];

		if (!extend_run(s, insn, x, gone))
			break;
		gone |= insn->rd == s->insn[0]->rs1;
		i += vb_insn_len(text->base[pc_of(tx, i)]) / 2;
	}
	s->plan->end = i;
}

/* ---- wide loads ---- */

static int32_t offset_of(const struct scan *s, uint8_t lane)
{
	return s->insn[s->at[lane - 1]]->imm;
}

/* Bytes of the value that lie side by side in memory, in one of the orders, with zeros or the sign
 * above them. */
static bool emit_bytes_is_wide(const struct scan *s, const struct value *v, struct wide *w)
{
	unsigned int n = 0;
	int32_t step;

	while (n < 8 && v->lane[n] != LANE_ZERO && v->lane[n] < LANE_SIGN)
		n++;
	if (n != 2 && n != 4 && n != 8)
		return false;
	step = offset_of(s, v->lane[1]) - offset_of(s, v->lane[0]);
	if (step != 1 && step != -1)
		return false;
	for (unsigned int i = 1; i < n; i++)
		if (offset_of(s, v->lane[i]) - offset_of(s, v->lane[i - 1]) != step)
			return false;
	for (unsigned int i = n; i < 8; i++)
		if (v->lane[i] != v->lane[n == 8 ? 0 : n])
			return false;
	if (n < 8 && v->lane[n] != LANE_ZERO && v->lane[n] != sign_of(v->lane[n - 1]))
		return false;
	w->size = (uint8_t)n;
	w->sign = n < 8 && v->lane[n] != LANE_ZERO;
	w->swap = step < 0;
	w->imm = offset_of(s, v->lane[w->swap ? n - 1 : 0]);
	return true;
}

/* Make the instruction a wide load. False: another one has some of its bytes, which then must not. */
static bool take_bytes(struct scan *s, unsigned int k, const struct wide *w)
{
	for (unsigned int i = 0; i < w->size; i++) {
		uint8_t owner = s->owner[s->out[k].lane[i] - 1];

		if (owner != UINT8_MAX) {
			s->banned |= 1ULL << owner;
			return false;
		}
	}
	for (unsigned int i = 0; i < w->size; i++)
		s->owner[s->out[k].lane[i] - 1] = (uint8_t)k;
	return true;
}

/*
 * What becomes of each instruction, from the last to the first: nobody reads its result, it is a wide
 * load, a byte of one, or itself. False: begin again, something else was banned.
 */
static bool sort_out(struct scan *s)
{
	uint32_t live = ~0U;
	uint64_t banned = s->banned;

	memset(s->owner, UINT8_MAX, sizeof(s->owner));
	for (unsigned int k = s->n; k-- > 0;) {
		const struct vb_insn *insn = s->insn[k];
		struct part *part = &s->plan->parts[k];

		part->what = PART_SKIP;
		part->wide = UINT8_MAX;
		if (insn->rd == VB_CPU_SINK || !(live >> insn->rd & 1))
			continue;
		live &= ~(1U << insn->rd);
		if (!(s->banned >> k & 1) && emit_bytes_is_wide(s, &s->out[k], &part->load) &&
		    take_bytes(s, k, &part->load)) {
			part->what = PART_WIDE;
		} else if (s->load_of[k] != UINT8_MAX && s->owner[s->load_of[k]] != UINT8_MAX) {
			part->what = PART_BYTE;
		} else {
			part->what = PART_ITSELF;
			live |= 1U << insn->rs1 | 1U << insn->rs2;
		}
	}
	return banned == s->banned;
}

/* Does the code of instruction i need the register as it was before wide load k, or write it? */
static bool emit_bytes_collides(const struct scan *s, unsigned int i, unsigned int k)
{
	const struct part *part = &s->plan->parts[i];
	unsigned int rd = s->insn[k]->rd, base = s->insn[0]->rs1;

	if (part->wide != UINT8_MAX && part->wide != k && base == rd)
		return true;
	if (part->what == PART_SKIP)
		return false;
	return s->insn[i]->rd == rd ||
	       (part->what == PART_ITSELF && (s->insn[i]->rs1 == rd || s->insn[i]->rs2 == rd));
}

/* Put wide load k in place of instruction p. */
static bool place_at(struct scan *s, unsigned int k, unsigned int p)
{
	for (unsigned int i = p; i < k; i++)
		if (emit_bytes_collides(s, i, k))
			return false;
	/* Another one, made before p for a place behind it, may have overwritten the base. */
	for (unsigned int i = 0; i < p; i++) {
		unsigned int other = s->plan->parts[i].wide;

		if (other != UINT8_MAX && other > p && s->insn[other]->rd == s->insn[0]->rs1)
			return false;
	}
	for (unsigned int i = 0; i < s->nbytes; i++)
		if (s->owner[i] == k && s->at[i] < p && s->plan->parts[s->at[i]].what == PART_BYTE)
			return false;
	s->plan->parts[p].wide = (uint8_t)k;
	return true;
}

/* Where its first byte is loaded, or its last one. False: nowhere, and it is banned. */
static bool emit_bytes_place(struct scan *s, unsigned int k)
{
	unsigned int first = BLOCK_MAX, last = 0;

	for (unsigned int i = 0; i < s->nbytes; i++) {
		if (s->owner[i] != k)
			continue;
		first = s->at[i] < first ? s->at[i] : first;
		last = s->at[i] > last ? s->at[i] : last;
	}
	s->plan->start = (uint8_t)(first < s->plan->start ? first : s->plan->start);
	if (place_at(s, k, first) || place_at(s, k, last))
		return true;
	s->banned |= 1ULL << k;
	return false;
}

static bool place_all(struct scan *s)
{
	bool all = true;

	s->plan->start = BLOCK_MAX;
	for (unsigned int k = 0; k < s->n; k++)
		if (s->plan->parts[k].what == PART_WIDE)
			all &= emit_bytes_place(s, k);
	return all;
}

/* Which byte of the wide load that has taken it. */
static unsigned int lane_of(const struct scan *s, unsigned int byte)
{
	unsigned int i = 0;

	while (s->out[s->owner[byte]].lane[i] != byte + 1)
		i++;
	return i;
}

/* The first code of a run touches the ends of what it loads, as far as the load made there does not. */
static bool probes_low(const struct bytes *plan)
{
	unsigned int wide = plan->parts[plan->start].wide;

	return wide == UINT8_MAX || plan->parts[wide].load.imm > plan->low;
}

static bool probes_high(const struct bytes *plan)
{
	unsigned int wide = plan->parts[plan->start].wide;

	return wide == UINT8_MAX ||
	       plan->parts[wide].load.imm + plan->parts[wide].load.size < plan->high;
}

/* Fill in what emission needs of one instruction; the host instructions that it saves, about. */
static int finish_part(struct scan *s, unsigned int k)
{
	struct part *part = &s->plan->parts[k];

	part->rd = s->insn[k]->rd;
	switch (part->what) {
	case PART_SKIP:
		return 1;
	case PART_WIDE:
		return -part->load.swap;
	case PART_BYTE:
		part->lane = (uint8_t)lane_of(s, s->load_of[k]);
		part->from = s->insn[s->owner[s->load_of[k]]]->rd;
		return -(part->lane > 0);
	default:
		return 0;
	}
}

/* False: it would not save anything. */
static bool finish_plan(struct scan *s)
{
	struct bytes *plan = s->plan;
	int saved = 0;

	plan->count = (uint8_t)s->n;
	plan->low = INT32_MAX;
	plan->high = INT32_MIN;
	for (unsigned int k = 0; k < plan->start; k++)
		plan->parts[k].what = PART_ITSELF;
	for (unsigned int k = plan->start; k < s->n; k++) {
		const struct vb_insn *insn = s->insn[k];

		saved += finish_part(s, k);
		if (!emit_bytes_is_load(insn))
			continue;
		plan->low = insn->imm < plan->low ? insn->imm : plan->low;
		if (insn->imm + load_size(insn) > plan->high)
			plan->high = insn->imm + load_size(insn);
	}
	return saved > probes_low(plan) + probes_high(plan);
}

/* Is another byte near this one loaded soon? */
static bool is_worth_a_look(const struct tx *tx, const struct vb_insn *insn)
{
	const struct vb_text *text = tx->jit->text;
	uint32_t i = tx->next;

	for (unsigned int n = 1; n < 6 && n < tx->left; n++) {
		const struct vb_insn *other = &text->insns[i];

		if ((other->op == VB_OP_LB || other->op == VB_OP_LBU) && other->rs1 == insn->rs1 &&
		    other->imm - insn->imm <= 3 && insn->imm - other->imm <= 3)
			return insn->rd != insn->rs1;
		i += vb_insn_len(text->base[pc_of(tx, i)]) / 2;
	}
	return false;
}

/* Of the run that begins here. False: nothing in it is worth it. */
static bool make_plan(struct tx *tx)
{
	struct bytes *plan = &tx->bytes;
	unsigned int tries = 0;
	struct scan s;

	s.plan = plan;
	s.n = s.nbytes = 0;
	s.banned = 0;
	scan_run(tx, &s);
	if (s.nbytes < 2)
		return false;
	while (!sort_out(&s) || !place_all(&s))
		if (++tries == TRIES)
			return false;
	return plan->start < BLOCK_MAX && finish_plan(&s);
}

/* A byte is loaded here: does a run begin that is worth it? */
bool plan_bytes(struct tx *tx, const struct vb_insn *insn)
{
	const struct fact *base = &tx->facts[insn->rs1];
	struct bytes *plan = &tx->bytes;

	if (tx->index < plan->end || !insn->rs1 || base->known || base->window || insn->rd == 2 ||
	    insn->rd == VB_CPU_SINK || !is_worth_a_look(tx, insn) ||
	    __atomic_load_n(&tx->jit->extra[tx->index], __ATOMIC_RELAXED) & EXTRA_WINDOW)
		return false;
	plan->at = 0;
	if (!make_plan(tx))
		plan->count = 0;
	return plan->count;
}

/* ---- emission ---- */

/* Only the first code of a run can fault: the interpreter then begins at the run's start. */
static void add_run_site(struct tx *tx, bool start)
{
	uint32_t site = add_site(tx);

	if (start && !tx->failed)
		tx->gen->sites[site].pending |= SITE_RESTART;
}

/* The operand of size bytes at base + imm; at the start of the run, who comes out of the compare
 * leaves. */
static struct rm run_address(struct tx *tx, unsigned int base, int32_t imm, unsigned int size)
{
	const struct vb_insn access = { .op = VB_OP_LBU, .rs1 = (uint8_t)base, .imm = imm };
	struct rm m = { 0 };
	uint32_t stub;

	flush_fence(tx);
	if (!guest_address(tx, &access, size, true, &m, &stub)) {
		tx->failed = true;
		return m;
	}
	if (stub != UINT32_MAX)
		tx->stubs[stub].kind = STUB_LEAVE;
	note_low(tx, base, stub);
	return m;
}

static void emit_probe(struct tx *tx, unsigned int base, int32_t imm)
{
	struct rm m = run_address(tx, base, imm, 1);

	add_run_site(tx, true);
	ins(&tx->c, X_GUEST, 0x0fb6, RDX, m); /* movzx edx */
}

static void emit_wide(struct tx *tx, unsigned int base, const struct part *part, bool start)
{
	static const uint32_t unsigned_op[] = { [2] = 0x0fb7, [4] = 0x8b, [8] = 0x8b };
	static const uint32_t signed_op[] = { [2] = 0x0fbf, [4] = 0x8b, [8] = 0x8b };
	const struct wide *w = &part->load;
	int d = tx->gen->host[part->rd] == NOREG ? RDX : tx->gen->host[part->rd];
	bool sign = w->sign && !(w->swap && w->size == 2); /* by the load itself */
	struct rm m = run_address(tx, base, w->imm, w->size);

	add_run_site(tx, start);
	ins(&tx->c, X_GUEST | (w->size == 8 || (sign && w->size == 2) ? X_W : 0),
	    sign ? signed_op[w->size] : unsigned_op[w->size], d, m);
	if (w->swap && w->size == 2) {
		ins(&tx->c, X_16, 0xc1, SH_ROL, rm_reg(d));
		put8(&tx->c, 8);
		if (w->sign)
			ins(&tx->c, X_W, 0x0fbf, d, rm_reg(d));
	} else if (w->swap) {
		bswap(&tx->c, w->size == 8, d);
	}
	if (w->size == 4 && w->sign)
		finish_word(tx, part->rd, d);
	else
		finish(tx, part->rd, d, w->size == 2);
	note_bits(tx, part->rd, w->sign ? 64 : 8U * w->size);
	forget_low(tx, part->rd);
}

static void emit_byte(struct tx *tx, const struct vb_insn *insn, const struct part *part)
{
	int d = tx->gen->host[insn->rd] == NOREG ? RDX : tx->gen->host[insn->rd];
	struct rm from = operand32(tx, part->from);
	bool sign = insn->op == VB_OP_LB;

	if (part->lane && from.reg != NOREG) {
		mov_rr(&tx->c, RDX, from.reg);
		shift_imm(&tx->c, X_W, SH_SHR, RDX, 8U * part->lane);
		from = rm_reg(RDX);
	} else if (part->lane) {
		from.disp += part->lane;
	}
	ins(&tx->c, X_BRM | (sign ? X_W : 0), sign ? 0x0fbe : 0x0fb6, d, from);
	finish(tx, insn->rd, d, true);
	note_bits(tx, insn->rd, sign ? 64 : 8);
}

/* The next instruction of the run. False: it is itself. */
bool emit_bytes(struct tx *tx, const struct vb_insn *insn)
{
	struct bytes *plan = &tx->bytes;
	unsigned int k = plan->at++;
	const struct part *part = &plan->parts[k];
	const struct part *wide = part->wide == UINT8_MAX ? NULL : &plan->parts[part->wide];
	bool start = k == plan->start;

	if (plan->at == plan->count)
		plan->count = 0;
	if (start && probes_low(plan))
		emit_probe(tx, insn->rs1, plan->low);
	if (start && probes_high(plan))
		emit_probe(tx, insn->rs1, plan->high - 1);
	if (wide)
		emit_wide(tx, insn->rs1, wide, start);
	if (part->what == PART_BYTE)
		emit_byte(tx, insn, part);
	return part->what != PART_ITSELF;
}
