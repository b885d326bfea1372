// SPDX-License-Identifier: MIT
/*
 * Owns the decoding of store instructions. Zydis reads the bytes, once; what they mean is kept as a
 * form, which is evaluated with the registers of each time.
 *
 *	mov, movnti, movbe, movdiri     a register or a number, movbe with its bytes turned round
 *	vector moves                    the low (movh*: high) part of a vector register, all of it or what a mask selects
 *	pextr, vextract                 one element of a vector register
 *	xchg                            a register, which gets what was in memory
 *	stos, movs, with rep            an element, or as many as cx says
 *	movdir64b                       64 bytes of memory
 *
 * Instructions that read, change and write, other than xchg, are not here: nobody rings a bell with
 * them, because the page reads as zero.
 *
 * And of load instructions: moves into general registers, which is what a compiler makes of reading a
 * volatile number and what the C library copies a few bytes with.
 */
#include "host/patch/store.h"

#include <errno.h>
#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdbool.h>
#include <Zydis/Zydis.h>

/* --- registers -------------------------------------------------------------------------------- */

/*
 * Where a register lies: number in encoding order and, for ah, ch, dh, bh, the second byte. False:
 * not a general one.
 */
static bool find_gpr(ZydisRegister reg, unsigned int *number, bool *high)
{
	*high = reg >= ZYDIS_REGISTER_AH && reg <= ZYDIS_REGISTER_BH;
	if (*high) {
		*number = (unsigned int)(reg - ZYDIS_REGISTER_AH);
		return true;
	}
	switch (ZydisRegisterGetClass(reg)) {
	case ZYDIS_REGCLASS_GPR8:
	case ZYDIS_REGCLASS_GPR16:
	case ZYDIS_REGCLASS_GPR32:
	case ZYDIS_REGCLASS_GPR64:
		*number = (unsigned int)ZydisRegisterGetId(
			ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg));
		return *number < VB_STORE_GPRS;
	default:
		return false;
	}
}

/*
 * Offsets in an XSAVE image (Intel SDM 1, 13.4): the legacy part is fixed, those behind it are
 * asked for.
 */
enum {
	FX_ST = 32,
	FX_XMM = 160,
	FX_MAGIC = 464, /* software bytes: the kernel says here that an XSAVE image follows */
	XSAVE_HEADER = 512,
	COMPONENT_AVX = 2,
	COMPONENT_OPMASK = 5,
	COMPONENT_ZMM_HI256 = 6,
	COMPONENT_HI16_ZMM = 7,
};

#define FX_MAGIC_VALUE 0x46505853u

static size_t component_offset(unsigned int component)
{
	static size_t offsets[8]; /* the same for every caller, so that a race writes the same */
	unsigned int size, offset, c, d;

	if (!offsets[component] && __get_cpuid_count(0xd, component, &size, &offset, &c, &d))
		offsets[component] = offset;
	return offsets[component];
}

/* Bytes of a component; one in its initial state is not written and means zeroes. */
static bool read_component(const struct vb_store_regs *regs, unsigned int component, size_t at,
			   size_t n, uint8_t *to)
{
	const uint8_t *image = regs->fpstate;
	size_t offset = component_offset(component);
	uint64_t present;
	uint32_t magic;

	memcpy(&magic, image + FX_MAGIC, sizeof(magic));
	if (magic != FX_MAGIC_VALUE || !offset || regs->fpstate_size < XSAVE_HEADER + 64)
		return false;
	memcpy(&present, image + XSAVE_HEADER, sizeof(present));
	if (!(present & 1ull << component)) {
		memset(to, 0, n);
		return true;
	}
	if (offset + at + n > regs->fpstate_size)
		return false;
	memcpy(to, image + offset + at, n);
	return true;
}

/* The low bytes of vector register number. */
static bool read_vector(const struct vb_store_regs *regs, unsigned int number, size_t n,
			uint8_t *to)
{
	const uint8_t *image = regs->fpstate;

	if (regs->vectors) {
		memcpy(to, regs->vectors->zmm[number], n);
		return true;
	}
	if (!image || regs->fpstate_size < XSAVE_HEADER || n > VB_STORE_MAX || number > 31)
		return false;
	if (number >= 16)
		return read_component(regs, COMPONENT_HI16_ZMM, (number - 16) * 64, n, to);
	memcpy(to, image + FX_XMM + number * 16, n < 16 ? n : 16);
	if (n > 16 &&
	    !read_component(regs, COMPONENT_AVX, number * 16, n < 32 ? n - 16 : 16, to + 16))
		return false;
	return n <= 32 || read_component(regs, COMPONENT_ZMM_HI256, number * 32, n - 32, to + 32);
}

static bool read_opmask(const struct vb_store_regs *regs, unsigned int number, uint64_t *bits)
{
	if (regs->vectors) {
		*bits = regs->vectors->k[number];
		return true;
	}
	return regs->fpstate && regs->fpstate_size >= XSAVE_HEADER &&
	       read_component(regs, COMPONENT_OPMASK, number * sizeof(*bits), sizeof(*bits),
			      (uint8_t *)bits);
}

/* --- operands: from Zydis to a form ----------------------------------------------------------- */

struct decoded {
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
};

static bool take_index(ZydisRegister reg, uint8_t *number)
{
	unsigned int n;
	bool high;

	if (reg == ZYDIS_REGISTER_NONE) {
		*number = VB_STORE_NONE;
	} else if (reg == ZYDIS_REGISTER_RIP) {
		*number = VB_STORE_RIP;
	} else {
		if (!find_gpr(reg, &n, &high))
			return false;
		*number = (uint8_t)n;
	}
	return true;
}

/* Only FS and GS have a base that is added to addresses. */
static uint8_t segment_of(ZydisRegister segment)
{
	return segment == ZYDIS_REGISTER_FS   ? VB_STORE_FS
	       : segment == ZYDIS_REGISTER_GS ? VB_STORE_GS
					      : VB_STORE_FLAT;
}

static bool take_address(const ZydisDecodedOperand *op, struct vb_store_form *form)
{
	const ZydisDecodedOperandMem *mem = &op->mem;

	if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || mem->type != ZYDIS_MEMOP_TYPE_MEM ||
	    !take_index(mem->base, &form->base) || !take_index(mem->index, &form->index))
		return false;
	form->scale = mem->scale;
	form->disp = mem->disp.value;
	form->segment = segment_of(mem->segment);
	return true;
}

static bool take_register(ZydisRegister reg, struct vb_store_form *form)
{
	unsigned int number;
	bool high;

	if (find_gpr(reg, &number, &high)) {
		form->source = VB_STORE_FROM_GPR;
		form->reg = (uint8_t)number;
		form->reg_high = high;
		return form->size <= 8;
	}
	form->reg = (uint8_t)ZydisRegisterGetId(reg);
	switch (ZydisRegisterGetClass(reg)) {
	case ZYDIS_REGCLASS_XMM:
	case ZYDIS_REGCLASS_YMM:
	case ZYDIS_REGCLASS_ZMM:
		form->source = VB_STORE_FROM_VECTOR;
		return form->reg < 32;
	case ZYDIS_REGCLASS_MMX:
		form->source = VB_STORE_FROM_MMX;
		return form->size <= 8;
	default:
		return false;
	}
}

/* The last source of a move: AVX's scalar forms have none in between when they store. */
static bool take_source(const ZydisDecodedOperand *op, struct vb_store_form *form)
{
	if (op->type == ZYDIS_OPERAND_TYPE_REGISTER)
		return take_register(op->reg.value, form);
	if (op->type != ZYDIS_OPERAND_TYPE_IMMEDIATE || form->size > sizeof(form->imm))
		return false;
	form->source = VB_STORE_FROM_IMM;
	form->imm = op->imm.value.u;
	return true;
}

/* --- kinds ------------------------------------------------------------------------------------ */

static bool take_move(const struct decoded *d, struct vb_store_form *form)
{
	form->kind = VB_STORE_PLAIN;
	return form->size && take_address(&d->op[0], form) && take_source(&d->op[1], form);
}

static bool take_movbe(const struct decoded *d, struct vb_store_form *form)
{
	form->turned = 1;
	return take_move(d, form) && form->size <= 8;
}

/* The upper eight of sixteen bytes. */
static bool take_high(const struct decoded *d, struct vb_store_form *form)
{
	form->at = 8;
	return form->size == 8 && take_move(d, form) && form->source == VB_STORE_FROM_VECTOR;
}

static bool take_exchange(const struct decoded *d, struct vb_store_form *form)
{
	unsigned int mem = d->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY ? 0 : 1;
	const ZydisDecodedOperand *reg = &d->op[1 - mem];

	if (reg->type != ZYDIS_OPERAND_TYPE_REGISTER)
		return false;
	form->kind = VB_STORE_EXCHANGE;
	form->size = (uint8_t)(reg->size / 8);
	return take_address(&d->op[mem], form) && take_register(reg->reg.value, form) &&
	       form->source == VB_STORE_FROM_GPR;
}

static bool patch_store_take_string(const struct decoded *d, struct vb_store_form *form)
{
	form->repeat = !!(d->insn.attributes & ZYDIS_ATTRIB_HAS_REP);
	return form->size && form->size <= 8;
}

static bool take_fill(const struct decoded *d, struct vb_store_form *form)
{
	form->kind = VB_STORE_FILL;
	return patch_store_take_string(d, form);
}

/* A source in another segment is not here: si must come out as it is without the segment's base. */
static bool patch_store_take_copy(const struct decoded *d, struct vb_store_form *form)
{
	form->kind = VB_STORE_COPY;
	return segment_of(d->op[1].mem.segment) == VB_STORE_FLAT &&
	       patch_store_take_string(d, form);
}

/* The string move, or the scalar one. */
static bool take_movsd(const struct decoded *d, struct vb_store_form *form)
{
	return d->op[1].type == ZYDIS_OPERAND_TYPE_MEMORY ? patch_store_take_copy(d, form)
							  : take_move(d, form);
}

/* The element of a vector register that the last byte names. */
static bool take_extract(const struct decoded *d, struct vb_store_form *form)
{
	size_t whole;

	if (d->op[1].type != ZYDIS_OPERAND_TYPE_REGISTER || !take_move(d, form) ||
	    form->source != VB_STORE_FROM_VECTOR)
		return false;
	whole = ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, d->op[1].reg.value) / 8u;
	if (whole > VB_STORE_MAX || whole < form->size)
		return false;
	form->at = (uint8_t)(d->insn.raw.imm[0].value.u % (whole / form->size) * form->size);
	return true;
}

/*
 * AVX's masked moves: the highest bit of each element of a vector register says whether it is
 * stored.
 */
static bool take_masked(const struct decoded *d, struct vb_store_form *form)
{
	if (d->op[1].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    d->op[2].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    !take_register(d->op[1].reg.value, form))
		return false;
	form->kind = VB_STORE_PLAIN;
	form->mask = VB_STORE_MASK_VECTOR;
	form->mask_reg = form->reg;
	form->element = (uint8_t)(d->op[0].element_size / 8);
	return form->element && take_address(&d->op[0], form) && take_source(&d->op[2], form);
}

/* reg has the address, the other operand is the source. */
static bool take_block(const struct decoded *d, struct vb_store_form *form)
{
	form->kind = VB_STORE_BLOCK;
	form->size = VB_STORE_MAX;
	return take_index(d->op[0].reg.value, &form->reg) && form->reg < VB_STORE_GPRS &&
	       take_address(&d->op[1], form);
}

/* --- all of them ------------------------------------------------------------------------------ */

static const struct {
	ZydisMnemonic mnemonic;
	bool (*take)(const struct decoded *d, struct vb_store_form *form);
} forms[] = {
	{ ZYDIS_MNEMONIC_MOV, take_move },
	{ ZYDIS_MNEMONIC_MOVNTI, take_move },
	{ ZYDIS_MNEMONIC_MOVBE, take_movbe },
	{ ZYDIS_MNEMONIC_MOVDIRI, take_move },
	{ ZYDIS_MNEMONIC_MOVDIR64B, take_block },
	{ ZYDIS_MNEMONIC_XCHG, take_exchange },
	{ ZYDIS_MNEMONIC_STOSB, take_fill },
	{ ZYDIS_MNEMONIC_STOSW, take_fill },
	{ ZYDIS_MNEMONIC_STOSD, take_fill },
	{ ZYDIS_MNEMONIC_STOSQ, take_fill },
	{ ZYDIS_MNEMONIC_MOVSB, patch_store_take_copy },
	{ ZYDIS_MNEMONIC_MOVSW, patch_store_take_copy },
	{ ZYDIS_MNEMONIC_MOVSD, take_movsd },
	{ ZYDIS_MNEMONIC_MOVSQ, patch_store_take_copy },
	{ ZYDIS_MNEMONIC_MOVD, take_move },
	{ ZYDIS_MNEMONIC_MOVQ, take_move },
	{ ZYDIS_MNEMONIC_MOVNTQ, take_move },
	{ ZYDIS_MNEMONIC_MOVSS, take_move },
	{ ZYDIS_MNEMONIC_MOVLPS, take_move },
	{ ZYDIS_MNEMONIC_MOVLPD, take_move },
	{ ZYDIS_MNEMONIC_MOVHPS, take_high },
	{ ZYDIS_MNEMONIC_MOVHPD, take_high },
	{ ZYDIS_MNEMONIC_MOVAPS, take_move },
	{ ZYDIS_MNEMONIC_MOVAPD, take_move },
	{ ZYDIS_MNEMONIC_MOVUPS, take_move },
	{ ZYDIS_MNEMONIC_MOVUPD, take_move },
	{ ZYDIS_MNEMONIC_MOVDQA, take_move },
	{ ZYDIS_MNEMONIC_MOVDQU, take_move },
	{ ZYDIS_MNEMONIC_MOVNTPS, take_move },
	{ ZYDIS_MNEMONIC_MOVNTPD, take_move },
	{ ZYDIS_MNEMONIC_MOVNTDQ, take_move },
	{ ZYDIS_MNEMONIC_PEXTRB, take_extract },
	{ ZYDIS_MNEMONIC_PEXTRW, take_extract },
	{ ZYDIS_MNEMONIC_PEXTRD, take_extract },
	{ ZYDIS_MNEMONIC_PEXTRQ, take_extract },
	{ ZYDIS_MNEMONIC_EXTRACTPS, take_extract },
	{ ZYDIS_MNEMONIC_VMOVD, take_move },
	{ ZYDIS_MNEMONIC_VMOVQ, take_move },
	{ ZYDIS_MNEMONIC_VMOVSS, take_move },
	{ ZYDIS_MNEMONIC_VMOVSD, take_move },
	{ ZYDIS_MNEMONIC_VMOVLPS, take_move },
	{ ZYDIS_MNEMONIC_VMOVLPD, take_move },
	{ ZYDIS_MNEMONIC_VMOVHPS, take_high },
	{ ZYDIS_MNEMONIC_VMOVHPD, take_high },
	{ ZYDIS_MNEMONIC_VMOVAPS, take_move },
	{ ZYDIS_MNEMONIC_VMOVAPD, take_move },
	{ ZYDIS_MNEMONIC_VMOVUPS, take_move },
	{ ZYDIS_MNEMONIC_VMOVUPD, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQA, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQA32, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQA64, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQU, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQU8, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQU16, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQU32, take_move },
	{ ZYDIS_MNEMONIC_VMOVDQU64, take_move },
	{ ZYDIS_MNEMONIC_VMOVNTPS, take_move },
	{ ZYDIS_MNEMONIC_VMOVNTPD, take_move },
	{ ZYDIS_MNEMONIC_VMOVNTDQ, take_move },
	{ ZYDIS_MNEMONIC_VPEXTRB, take_extract },
	{ ZYDIS_MNEMONIC_VPEXTRW, take_extract },
	{ ZYDIS_MNEMONIC_VPEXTRD, take_extract },
	{ ZYDIS_MNEMONIC_VPEXTRQ, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTPS, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF128, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI128, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF32X4, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF64X2, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF32X8, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF64X4, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI32X4, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI64X2, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI32X8, take_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI64X4, take_extract },
	{ ZYDIS_MNEMONIC_VMASKMOVPS, take_masked },
	{ ZYDIS_MNEMONIC_VMASKMOVPD, take_masked },
	{ ZYDIS_MNEMONIC_VPMASKMOVD, take_masked },
	{ ZYDIS_MNEMONIC_VPMASKMOVQ, take_masked },
};

/*
 * AVX-512: the mask is a register of its own, and a second operand of moves. The stored elements
 * are its bits.
 */
static bool take_opmask(struct decoded *d, struct vb_store_form *form)
{
	unsigned int number = (unsigned int)(d->insn.avx.mask.reg - ZYDIS_REGISTER_K0);

	if (d->op[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    ZydisRegisterGetClass(d->op[1].reg.value) == ZYDIS_REGCLASS_MASK)
		d->op[1] = d->op[2];
	if (d->insn.avx.mask.reg == ZYDIS_REGISTER_NONE || !number)
		return true;
	form->mask = VB_STORE_MASK_K;
	form->mask_reg = (uint8_t)number;
	form->element = (uint8_t)(d->op[0].element_size / 8);
	return form->element;
}

static bool wants_alignment(ZydisMnemonic mnemonic)
{
	switch (mnemonic) {
	case ZYDIS_MNEMONIC_MOVAPS:
	case ZYDIS_MNEMONIC_MOVAPD:
	case ZYDIS_MNEMONIC_MOVDQA:
	case ZYDIS_MNEMONIC_MOVNTPS:
	case ZYDIS_MNEMONIC_MOVNTPD:
	case ZYDIS_MNEMONIC_MOVNTDQ:
	case ZYDIS_MNEMONIC_VMOVAPS:
	case ZYDIS_MNEMONIC_VMOVAPD:
	case ZYDIS_MNEMONIC_VMOVDQA:
	case ZYDIS_MNEMONIC_VMOVDQA32:
	case ZYDIS_MNEMONIC_VMOVDQA64:
	case ZYDIS_MNEMONIC_VMOVNTPS:
	case ZYDIS_MNEMONIC_VMOVNTPD:
	case ZYDIS_MNEMONIC_VMOVNTDQ:
	case ZYDIS_MNEMONIC_MOVDIR64B:
		return true;
	default:
		return false;
	}
}

static bool stores_to_memory(const struct decoded *d)
{
	return d->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY ||
	       d->insn.mnemonic == ZYDIS_MNEMONIC_XCHG ||
	       d->insn.mnemonic == ZYDIS_MNEMONIC_MOVDIR64B;
}

int vb_store_parse(const uint8_t *code, size_t len, struct vb_store_form *form)
{
	struct decoded d;
	ZydisDecoder decoder;

	memset(form, 0, sizeof(*form));
	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
	    ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, code, len, &d.insn, d.op)))
		return -EINVAL;
	if (!stores_to_memory(&d) || d.op[0].size / 8 > VB_STORE_MAX)
		return -EINVAL;
	form->length = d.insn.length;
	form->size = (uint8_t)(d.op[0].size / 8);
	form->address32 = d.insn.address_width == 32;
	form->base = form->index = VB_STORE_NONE;
	form->aligned = wants_alignment(d.insn.mnemonic);
	if (!take_opmask(&d, form))
		return -EINVAL;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (forms[i].mnemonic == d.insn.mnemonic)
			return forms[i].take(&d, form) ? 0 : -EINVAL;
	return -EINVAL;
}

unsigned int vb_store_length(const uint8_t *code, size_t len)
{
	ZydisDecoder decoder;
	ZydisDecodedInstruction insn;

	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
	    ZYAN_FAILED(ZydisDecoderDecodeInstruction(&decoder, NULL, code, len, &insn)))
		return 0;
	return insn.length;
}

/* --- what it stores now ----------------------------------------------------------------------- */

static bool address_of(const struct vb_store_form *form, const struct vb_store_regs *regs,
		       uint64_t *addr)
{
	uint64_t at = (uint64_t)form->disp;

	if (form->base == VB_STORE_RIP)
		at += regs->rip + form->length;
	else if (form->base != VB_STORE_NONE)
		at += regs->gpr[form->base];
	if (form->index != VB_STORE_NONE)
		at += regs->gpr[form->index] * form->scale;
	if (form->address32)
		at = (uint32_t)at;
	if (form->segment != VB_STORE_FLAT) {
		if (!regs->segment_base)
			return false;
		at += regs->segment_base(form->segment == VB_STORE_GS);
	}
	*addr = at;
	return true;
}

static bool patch_store_read_source(const struct vb_store_form *form,
				    const struct vb_store_regs *regs, uint8_t *to)
{
	uint8_t all[VB_STORE_MAX];
	uint64_t value;

	switch ((enum vb_store_source)form->source) {
	case VB_STORE_FROM_GPR:
		value = form->reg_high ? regs->gpr[form->reg] >> 8 : regs->gpr[form->reg];
		if (form->turned)
			value = __builtin_bswap64(value) >> (64 - 8 * form->size);
		memcpy(to, &value, sizeof(value));
		return true;
	case VB_STORE_FROM_IMM:
		memcpy(to, &form->imm, sizeof(form->imm));
		return true;
	case VB_STORE_FROM_VECTOR:
		if (!form->at)
			return read_vector(regs, form->reg, form->size, to);
		if (!read_vector(regs, form->reg, form->at + form->size, all))
			return false;
		memcpy(to, all + form->at, form->size);
		return true;
	case VB_STORE_FROM_MMX:
		if (!regs->fpstate || regs->fpstate_size < XSAVE_HEADER)
			return false;
		memcpy(to, (const uint8_t *)regs->fpstate + FX_ST + form->reg * 16, form->size);
		return true;
	}
	return false;
}

static bool read_mask(const struct vb_store_form *form, const struct vb_store_regs *regs,
		      uint64_t *mask)
{
	uint8_t select[VB_STORE_MAX];
	uint64_t bits;

	*mask = UINT64_MAX;
	if (form->mask == VB_STORE_MASK_NONE)
		return true;
	if (form->mask == VB_STORE_MASK_K) {
		if (!read_opmask(regs, form->mask_reg, &bits))
			return false;
		for (uint32_t i = 0; i < form->size; i++)
			if (!(bits >> i / form->element & 1))
				*mask &= ~(1ull << i);
		return true;
	}
	if (!read_vector(regs, form->mask_reg, form->size, select))
		return false;
	for (uint32_t i = 0; i < form->size; i++)
		if (!(select[i / form->element * form->element + form->element - 1] & 0x80))
			*mask &= ~(1ull << i);
	return true;
}

static void eval_string(const struct vb_store_form *form, const struct vb_store_regs *regs,
			struct vb_store *store)
{
	uint64_t mask = form->address32 ? UINT32_MAX : UINT64_MAX;

	store->repeat = form->repeat;
	store->address32 = form->address32;
	store->addr = regs->gpr[VB_GPR_DI] & mask;
	store->source = regs->gpr[VB_GPR_SI] & mask;
	if (form->kind == VB_STORE_FILL)
		memcpy(store->data, &regs->gpr[VB_GPR_AX], sizeof(regs->gpr[VB_GPR_AX]));
}

int vb_store_eval(const struct vb_store_form *form, const struct vb_store_regs *regs,
		  struct vb_store *store)
{
	store->kind = (enum vb_store_kind)form->kind;
	store->length = form->length;
	store->size = form->size;
	store->reg = form->reg;
	store->reg_high = form->reg_high;
	store->repeat = store->address32 = 0;
	switch (store->kind) {
	case VB_STORE_PLAIN:
	case VB_STORE_EXCHANGE:
		if (address_of(form, regs, &store->addr) && read_mask(form, regs, &store->mask) &&
		    patch_store_read_source(form, regs, store->data))
			return 0;
		return -EINVAL;
	case VB_STORE_FILL:
	case VB_STORE_COPY:
		eval_string(form, regs, store);
		return 0;
	case VB_STORE_BLOCK:
		store->mask = UINT64_MAX;
		store->addr = regs->gpr[form->reg];
		if (form->address32)
			store->addr = (uint32_t)store->addr;
		return address_of(form, regs, &store->source) ? 0 : -EINVAL;
	}
	return -EINVAL;
}

/* --- loads ------------------------------------------------------------------------------------ */

static bool patch_store_is_load(const struct decoded *d, struct vb_load *load)
{
	switch (d->insn.mnemonic) {
	case ZYDIS_MNEMONIC_MOVBE:
		load->turned = 1;
		break;
	case ZYDIS_MNEMONIC_MOVSX:
	case ZYDIS_MNEMONIC_MOVSXD:
		load->sign = 1;
		break;
	case ZYDIS_MNEMONIC_MOV:
	case ZYDIS_MNEMONIC_MOVZX:
		break;
	default:
		return false;
	}
	return d->op[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       d->op[1].type == ZYDIS_OPERAND_TYPE_MEMORY;
}

int vb_load_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
		   struct vb_load *load)
{
	struct vb_store_form form = { 0 };
	struct decoded d;
	ZydisDecoder decoder;
	unsigned int number;
	bool high;

	memset(load, 0, sizeof(*load));
	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
	    ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, code, len, &d.insn, d.op)) ||
	    !patch_store_is_load(&d, load) || !find_gpr(d.op[0].reg.value, &number, &high) ||
	    !take_address(&d.op[1], &form))
		return -EINVAL;
	form.length = d.insn.length;
	form.address32 = d.insn.address_width == 32;
	load->length = d.insn.length;
	load->size = (uint8_t)(d.op[1].size / 8);
	load->width = (uint8_t)(d.op[0].size / 8);
	load->reg = (uint8_t)number;
	load->reg_high = high;
	if (!load->size || load->size > load->width || load->width > 8)
		return -EINVAL;
	return address_of(&form, regs, &load->addr) ? 0 : -EINVAL;
}

/* Writing 32 bits of a register clears the rest of it, fewer bits do not. */
void vb_load_finish(const struct vb_load *load, uint64_t value, struct vb_store_regs *regs)
{
	unsigned int unused = 64 - 8u * load->size, shift = load->reg_high ? 8 : 0;
	uint64_t *reg = &regs->gpr[load->reg], mask;

	value <<= unused;
	if (load->turned)
		value = __builtin_bswap64(value);
	else if (load->sign)
		value = (uint64_t)((int64_t)value >> unused);
	else
		value >>= unused;
	if (load->width == 8)
		mask = UINT64_MAX;
	else
		mask = (1ull << 8 * load->width) - 1;
	if (load->width >= 4)
		*reg = value & mask;
	else
		*reg = (*reg & ~(mask << shift)) | (value & mask) << shift;
}

#else

int vb_load_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
		   struct vb_load *load)
{
	memset(load, 0, sizeof(*load));
	return -EINVAL;
}

void vb_load_finish(const struct vb_load *load, uint64_t value, struct vb_store_regs *regs)
{
}

int vb_store_parse(const uint8_t *code, size_t len, struct vb_store_form *form)
{
	memset(form, 0, sizeof(*form));
	return -EINVAL;
}

int vb_store_eval(const struct vb_store_form *form, const struct vb_store_regs *regs,
		  struct vb_store *store)
{
	return -EINVAL;
}

#endif

int vb_store_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
		    struct vb_store *store)
{
	struct vb_store_form form;

	memset(store, 0, sizeof(*store));
	return vb_store_parse(code, len, &form) ? -EINVAL : vb_store_eval(&form, regs, store);
}
