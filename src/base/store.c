// SPDX-License-Identifier: MIT
/*
 * Owns the decoding of store instructions. Zydis reads the bytes; here is what each kind means.
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
 */
#include "base/store.h"

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

static bool read_register(const struct vb_store_regs *regs, ZydisRegister reg, size_t n,
			  uint8_t *to)
{
	unsigned int number;
	bool high;

	if (find_gpr(reg, &number, &high)) {
		uint64_t value = high ? regs->gpr[number] >> 8 : regs->gpr[number];

		if (n > sizeof(value))
			return false;
		memcpy(to, &value, n);
		return true;
	}
	switch (ZydisRegisterGetClass(reg)) {
	case ZYDIS_REGCLASS_XMM:
	case ZYDIS_REGCLASS_YMM:
	case ZYDIS_REGCLASS_ZMM:
		return read_vector(regs, (unsigned int)ZydisRegisterGetId(reg), n, to);
	case ZYDIS_REGCLASS_MMX:
		if (!regs->fpstate || regs->fpstate_size < XSAVE_HEADER || n > 8)
			return false;
		memcpy(to, (const uint8_t *)regs->fpstate + FX_ST + ZydisRegisterGetId(reg) * 16,
		       n);
		return true;
	default:
		return false;
	}
}

/* --- operands --------------------------------------------------------------------------------- */

struct decoded {
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	const struct vb_store_regs *regs;
};

static bool index_value(const struct decoded *d, ZydisRegister reg, uint64_t *value)
{
	unsigned int number;
	bool high;

	if (reg == ZYDIS_REGISTER_NONE) {
		*value = 0;
		return true;
	}
	if (reg == ZYDIS_REGISTER_RIP) {
		*value = d->regs->rip + d->insn.length;
		return true;
	}
	if (!find_gpr(reg, &number, &high))
		return false;
	*value = d->regs->gpr[number];
	return true;
}

static bool is_segment(ZydisRegister segment)
{
	return segment == ZYDIS_REGISTER_FS || segment == ZYDIS_REGISTER_GS;
}

/* What a segment adds to addresses: only FS and GS have a base. */
static bool add_segment(const struct decoded *d, ZydisRegister segment, uint64_t *addr)
{
	if (!is_segment(segment))
		return true;
	if (!d->regs->segment_base)
		return false;
	*addr += d->regs->segment_base(segment == ZYDIS_REGISTER_GS);
	return true;
}

static bool address_of(const struct decoded *d, const ZydisDecodedOperand *op, uint64_t *addr)
{
	const ZydisDecodedOperandMem *mem = &op->mem;
	uint64_t base, index;

	if (mem->type != ZYDIS_MEMOP_TYPE_MEM || !index_value(d, mem->base, &base) ||
	    !index_value(d, mem->index, &index))
		return false;
	*addr = base + index * mem->scale + (uint64_t)mem->disp.value;
	if (d->insn.address_width == 32)
		*addr = (uint32_t)*addr;
	return add_segment(d, mem->segment, addr);
}

/* The last source of a move: AVX's scalar forms have none in between when they store. */
static bool source_bytes(const struct decoded *d, const ZydisDecodedOperand *op, size_t n,
			 uint8_t *to)
{
	if (op->type == ZYDIS_OPERAND_TYPE_REGISTER)
		return read_register(d->regs, op->reg.value, n, to);
	if (op->type != ZYDIS_OPERAND_TYPE_IMMEDIATE || n > sizeof(op->imm.value.u))
		return false;
	memcpy(to, &op->imm.value.u, n);
	return true;
}

/* --- kinds ------------------------------------------------------------------------------------ */

static int decode_move(struct decoded *d, struct vb_store *store)
{
	if (!address_of(d, &d->op[0], &store->addr) || !store->size ||
	    !source_bytes(d, &d->op[1], store->size, store->data))
		return -EINVAL;
	store->kind = VB_STORE_PLAIN;
	return 0;
}

static int decode_movbe(struct decoded *d, struct vb_store *store)
{
	uint8_t turned[8];
	int ret = decode_move(d, store);

	if (ret || store->size > sizeof(turned))
		return -EINVAL;
	for (unsigned int i = 0; i < store->size; i++)
		turned[i] = store->data[store->size - 1 - i];
	memcpy(store->data, turned, store->size);
	return 0;
}

/* The upper eight of sixteen bytes. */
static int decode_high(struct decoded *d, struct vb_store *store)
{
	uint8_t all[16];

	if (!address_of(d, &d->op[0], &store->addr) || store->size != 8 ||
	    d->op[1].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    !read_register(d->regs, d->op[1].reg.value, sizeof(all), all))
		return -EINVAL;
	memcpy(store->data, all + 8, 8);
	store->kind = VB_STORE_PLAIN;
	return 0;
}

static int decode_exchange(struct decoded *d, struct vb_store *store)
{
	unsigned int mem = d->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY ? 0 : 1, number;
	const ZydisDecodedOperand *reg = &d->op[1 - mem];
	bool high;

	if (d->op[mem].type != ZYDIS_OPERAND_TYPE_MEMORY ||
	    reg->type != ZYDIS_OPERAND_TYPE_REGISTER || !find_gpr(reg->reg.value, &number, &high) ||
	    !address_of(d, &d->op[mem], &store->addr))
		return -EINVAL;
	store->size = (uint8_t)(reg->size / 8);
	if (!read_register(d->regs, reg->reg.value, store->size, store->data))
		return -EINVAL;
	store->kind = VB_STORE_EXCHANGE;
	store->reg = (uint8_t)number;
	store->reg_high = high;
	return 0;
}

static int decode_string(struct decoded *d, struct vb_store *store)
{
	store->address32 = d->insn.address_width == 32;
	store->repeat = !!(d->insn.attributes & ZYDIS_ATTRIB_HAS_REP);
	store->addr = d->regs->gpr[VB_GPR_DI];
	store->source = d->regs->gpr[VB_GPR_SI];
	if (store->address32) {
		store->addr = (uint32_t)store->addr;
		store->source = (uint32_t)store->source;
	}
	return store->size && store->size <= 8 ? 0 : -EINVAL;
}

static int decode_fill(struct decoded *d, struct vb_store *store)
{
	store->kind = VB_STORE_FILL;
	memcpy(store->data, &d->regs->gpr[VB_GPR_AX], sizeof(d->regs->gpr[VB_GPR_AX]));
	return decode_string(d, store);
}

/* A source in another segment is not here: si must come out as it is without the segment's base. */
static int decode_copy(struct decoded *d, struct vb_store *store)
{
	store->kind = VB_STORE_COPY;
	return is_segment(d->op[1].mem.segment) ? -EINVAL : decode_string(d, store);
}

/* The string move, or the scalar one. */
static int decode_movsd(struct decoded *d, struct vb_store *store)
{
	return d->op[1].type == ZYDIS_OPERAND_TYPE_MEMORY ? decode_copy(d, store)
							  : decode_move(d, store);
}

/* The element of a vector register that the last byte names. */
static int decode_extract(struct decoded *d, struct vb_store *store)
{
	ZydisRegister reg = d->op[1].reg.value;
	uint8_t all[VB_STORE_MAX];
	size_t whole, at;

	if (d->op[1].type != ZYDIS_OPERAND_TYPE_REGISTER)
		return -EINVAL;
	whole = ZydisRegisterGetWidth(ZYDIS_MACHINE_MODE_LONG_64, reg) / 8u;
	if (!store->size || whole > sizeof(all) || whole < store->size ||
	    !address_of(d, &d->op[0], &store->addr) || !read_register(d->regs, reg, whole, all))
		return -EINVAL;
	at = d->insn.raw.imm[0].value.u % (whole / store->size) * store->size;
	memcpy(store->data, all + at, store->size);
	store->kind = VB_STORE_PLAIN;
	return 0;
}

/*
 * AVX's masked moves: the highest bit of each element of a vector register says whether it is
 * stored.
 */
static int decode_masked(struct decoded *d, struct vb_store *store)
{
	uint32_t element = d->op[0].element_size / 8;
	uint8_t select[VB_STORE_MAX];

	if (!element || d->op[1].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    d->op[2].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    !address_of(d, &d->op[0], &store->addr) ||
	    !read_register(d->regs, d->op[1].reg.value, store->size, select) ||
	    !read_register(d->regs, d->op[2].reg.value, store->size, store->data))
		return -EINVAL;
	for (uint32_t i = 0; i < store->size; i++)
		if (!(select[i / element * element + element - 1] & 0x80))
			store->mask &= ~(1ull << i);
	store->kind = VB_STORE_PLAIN;
	return 0;
}

static int decode_block(struct decoded *d, struct vb_store *store)
{
	store->kind = VB_STORE_BLOCK;
	store->size = VB_STORE_MAX;
	if (!index_value(d, d->op[0].reg.value, &store->addr) ||
	    !address_of(d, &d->op[1], &store->source))
		return -EINVAL;
	if (d->insn.address_width == 32)
		store->addr = (uint32_t)store->addr;
	return 0;
}

/* --- all of them ------------------------------------------------------------------------------ */

static const struct {
	ZydisMnemonic mnemonic;
	int (*decode)(struct decoded *d, struct vb_store *store);
} forms[] = {
	{ ZYDIS_MNEMONIC_MOV, decode_move },
	{ ZYDIS_MNEMONIC_MOVNTI, decode_move },
	{ ZYDIS_MNEMONIC_MOVBE, decode_movbe },
	{ ZYDIS_MNEMONIC_MOVDIRI, decode_move },
	{ ZYDIS_MNEMONIC_MOVDIR64B, decode_block },
	{ ZYDIS_MNEMONIC_XCHG, decode_exchange },
	{ ZYDIS_MNEMONIC_STOSB, decode_fill },
	{ ZYDIS_MNEMONIC_STOSW, decode_fill },
	{ ZYDIS_MNEMONIC_STOSD, decode_fill },
	{ ZYDIS_MNEMONIC_STOSQ, decode_fill },
	{ ZYDIS_MNEMONIC_MOVSB, decode_copy },
	{ ZYDIS_MNEMONIC_MOVSW, decode_copy },
	{ ZYDIS_MNEMONIC_MOVSD, decode_movsd },
	{ ZYDIS_MNEMONIC_MOVSQ, decode_copy },
	{ ZYDIS_MNEMONIC_MOVD, decode_move },
	{ ZYDIS_MNEMONIC_MOVQ, decode_move },
	{ ZYDIS_MNEMONIC_MOVNTQ, decode_move },
	{ ZYDIS_MNEMONIC_MOVSS, decode_move },
	{ ZYDIS_MNEMONIC_MOVLPS, decode_move },
	{ ZYDIS_MNEMONIC_MOVLPD, decode_move },
	{ ZYDIS_MNEMONIC_MOVHPS, decode_high },
	{ ZYDIS_MNEMONIC_MOVHPD, decode_high },
	{ ZYDIS_MNEMONIC_MOVAPS, decode_move },
	{ ZYDIS_MNEMONIC_MOVAPD, decode_move },
	{ ZYDIS_MNEMONIC_MOVUPS, decode_move },
	{ ZYDIS_MNEMONIC_MOVUPD, decode_move },
	{ ZYDIS_MNEMONIC_MOVDQA, decode_move },
	{ ZYDIS_MNEMONIC_MOVDQU, decode_move },
	{ ZYDIS_MNEMONIC_MOVNTPS, decode_move },
	{ ZYDIS_MNEMONIC_MOVNTPD, decode_move },
	{ ZYDIS_MNEMONIC_MOVNTDQ, decode_move },
	{ ZYDIS_MNEMONIC_PEXTRB, decode_extract },
	{ ZYDIS_MNEMONIC_PEXTRW, decode_extract },
	{ ZYDIS_MNEMONIC_PEXTRD, decode_extract },
	{ ZYDIS_MNEMONIC_PEXTRQ, decode_extract },
	{ ZYDIS_MNEMONIC_EXTRACTPS, decode_extract },
	{ ZYDIS_MNEMONIC_VMOVD, decode_move },
	{ ZYDIS_MNEMONIC_VMOVQ, decode_move },
	{ ZYDIS_MNEMONIC_VMOVSS, decode_move },
	{ ZYDIS_MNEMONIC_VMOVSD, decode_move },
	{ ZYDIS_MNEMONIC_VMOVLPS, decode_move },
	{ ZYDIS_MNEMONIC_VMOVLPD, decode_move },
	{ ZYDIS_MNEMONIC_VMOVHPS, decode_high },
	{ ZYDIS_MNEMONIC_VMOVHPD, decode_high },
	{ ZYDIS_MNEMONIC_VMOVAPS, decode_move },
	{ ZYDIS_MNEMONIC_VMOVAPD, decode_move },
	{ ZYDIS_MNEMONIC_VMOVUPS, decode_move },
	{ ZYDIS_MNEMONIC_VMOVUPD, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQA, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQA32, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQA64, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQU, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQU8, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQU16, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQU32, decode_move },
	{ ZYDIS_MNEMONIC_VMOVDQU64, decode_move },
	{ ZYDIS_MNEMONIC_VMOVNTPS, decode_move },
	{ ZYDIS_MNEMONIC_VMOVNTPD, decode_move },
	{ ZYDIS_MNEMONIC_VMOVNTDQ, decode_move },
	{ ZYDIS_MNEMONIC_VPEXTRB, decode_extract },
	{ ZYDIS_MNEMONIC_VPEXTRW, decode_extract },
	{ ZYDIS_MNEMONIC_VPEXTRD, decode_extract },
	{ ZYDIS_MNEMONIC_VPEXTRQ, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTPS, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF128, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI128, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF32X4, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF64X2, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF32X8, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTF64X4, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI32X4, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI64X2, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI32X8, decode_extract },
	{ ZYDIS_MNEMONIC_VEXTRACTI64X4, decode_extract },
	{ ZYDIS_MNEMONIC_VMASKMOVPS, decode_masked },
	{ ZYDIS_MNEMONIC_VMASKMOVPD, decode_masked },
	{ ZYDIS_MNEMONIC_VPMASKMOVD, decode_masked },
	{ ZYDIS_MNEMONIC_VPMASKMOVQ, decode_masked },
};

/*
 * AVX-512: the mask is a register of its own, and a second operand of moves. The stored elements
 * are its bits.
 */
static bool take_opmask(struct decoded *d, struct vb_store *store)
{
	unsigned int number = (unsigned int)(d->insn.avx.mask.reg - ZYDIS_REGISTER_K0);
	uint32_t element = d->op[0].element_size / 8;
	uint64_t bits = 0;

	if (d->op[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    ZydisRegisterGetClass(d->op[1].reg.value) == ZYDIS_REGCLASS_MASK)
		d->op[1] = d->op[2];
	if (d->insn.avx.mask.reg == ZYDIS_REGISTER_NONE || !number)
		return true;
	if (!element || !d->regs->fpstate || d->regs->fpstate_size < XSAVE_HEADER ||
	    !read_component(d->regs, COMPONENT_OPMASK, number * sizeof(bits), sizeof(bits),
			    (uint8_t *)&bits))
		return false;
	for (uint32_t i = 0; i < store->size; i++)
		if (!(bits >> i / element & 1))
			store->mask &= ~(1ull << i);
	return true;
}

static bool stores_to_memory(const struct decoded *d)
{
	return d->op[0].type == ZYDIS_OPERAND_TYPE_MEMORY ||
	       d->insn.mnemonic == ZYDIS_MNEMONIC_XCHG ||
	       d->insn.mnemonic == ZYDIS_MNEMONIC_MOVDIR64B;
}

int vb_store_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
		    struct vb_store *store)
{
	struct decoded d = { .regs = regs };
	ZydisDecoder decoder;

	memset(store, 0, sizeof(*store));
	if (ZYAN_FAILED(
		    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
	    ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder, code, len, &d.insn, d.op)))
		return -EINVAL;
	if (!stores_to_memory(&d) || d.op[0].size / 8 > VB_STORE_MAX)
		return -EINVAL;
	store->length = d.insn.length;
	store->size = (uint8_t)(d.op[0].size / 8);
	store->mask = UINT64_MAX;
	if (!take_opmask(&d, store))
		return -EINVAL;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (forms[i].mnemonic == d.insn.mnemonic)
			return forms[i].decode(&d, store);
	return -EINVAL;
}

#else

int vb_store_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
		    struct vb_store *store)
{
	memset(store, 0, sizeof(*store));
	return -EINVAL;
}

#endif
