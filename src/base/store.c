// SPDX-License-Identifier: MIT
/*
 * Owns the decoding of store instructions. Zydis reads the bytes; here is what each kind means.
 *
 *	mov, movnti, movbe, movdiri     a register or a number, movbe with its bytes turned round
 *	vector moves                    the low (movh*: high) part of a vector register
 *	xchg                            a register, which gets what was in memory
 *	stos, movs, with rep            an element, or as many as cx says
 *
 * Reading modify-write instructions other than xchg are not here: nobody rings a bell with them, because the page reads
 * as zero.
 */
#include "base/store.h"

#include <errno.h>
#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <stdbool.h>
#include <Zydis/Zydis.h>

/* --- registers --------------------------------------------------------------------------------------------------- */

/* Where a register lies: number in encoding order and, for ah, ch, dh, bh, the second byte. False: not a general one. */
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

/* Offsets in an XSAVE image (Intel SDM 1, 13.4): the legacy part is fixed, those behind it are asked for. */
enum {
	FX_ST = 32,
	FX_XMM = 160,
	FX_MAGIC = 464, /* software bytes: the kernel says here that an XSAVE image follows */
	XSAVE_HEADER = 512,
	COMPONENT_SSE = 1,
	COMPONENT_AVX = 2,
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

/* --- operands ------------------------------------------------------------------------------------------------------ */

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

static bool address_of(const struct decoded *d, const ZydisDecodedOperand *op, uint64_t *addr)
{
	const ZydisDecodedOperandMem *mem = &op->mem;
	uint64_t base, index;

	if (mem->segment == ZYDIS_REGISTER_FS || mem->segment == ZYDIS_REGISTER_GS ||
	    (mem->type != ZYDIS_MEMOP_TYPE_MEM))
		return false;
	if (!index_value(d, mem->base, &base) || !index_value(d, mem->index, &index))
		return false;
	*addr = base + index * mem->scale + (uint64_t)mem->disp.value;
	if (d->insn.address_width == 32)
		*addr = (uint32_t)*addr;
	return true;
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

/* --- kinds --------------------------------------------------------------------------------------------------------- */

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

static int decode_string(struct decoded *d, struct vb_store *store, bool copy)
{
	store->kind = copy ? VB_STORE_COPY : VB_STORE_FILL;
	store->address32 = d->insn.address_width == 32;
	store->repeat = !!(d->insn.attributes & ZYDIS_ATTRIB_HAS_REP);
	store->addr = d->regs->gpr[VB_GPR_DI];
	store->source = d->regs->gpr[VB_GPR_SI];
	if (store->address32) {
		store->addr = (uint32_t)store->addr;
		store->source = (uint32_t)store->source;
	}
	if (!store->size || store->size > 8)
		return -EINVAL;
	if (!copy) {
		memcpy(store->data, &d->regs->gpr[VB_GPR_AX], store->size);
		return 0;
	}
	return d->insn.attributes & (ZYDIS_ATTRIB_HAS_SEGMENT_FS | ZYDIS_ATTRIB_HAS_SEGMENT_GS)
		       ? -EINVAL
		       : 0;
}

static bool is_masked(const ZydisDecodedInstruction *insn)
{
	return insn->avx.mask.reg != ZYDIS_REGISTER_NONE && insn->avx.mask.reg != ZYDIS_REGISTER_K0;
}

/* AVX-512 moves have the mask as a second operand. */
static void drop_mask_operand(struct decoded *d)
{
	if (d->op[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    ZydisRegisterGetClass(d->op[1].reg.value) == ZYDIS_REGCLASS_MASK)
		d->op[1] = d->op[2];
}

static int decode_by_mnemonic(struct decoded *d, struct vb_store *store)
{
	switch (d->insn.mnemonic) {
	case ZYDIS_MNEMONIC_MOVBE:
		return decode_movbe(d, store);
	case ZYDIS_MNEMONIC_MOVHPS:
	case ZYDIS_MNEMONIC_MOVHPD:
	case ZYDIS_MNEMONIC_VMOVHPS:
	case ZYDIS_MNEMONIC_VMOVHPD:
		return decode_high(d, store);
	case ZYDIS_MNEMONIC_XCHG:
		return decode_exchange(d, store);
	case ZYDIS_MNEMONIC_STOSB:
	case ZYDIS_MNEMONIC_STOSW:
	case ZYDIS_MNEMONIC_STOSD:
	case ZYDIS_MNEMONIC_STOSQ:
		return decode_string(d, store, false);
	case ZYDIS_MNEMONIC_MOVSB:
	case ZYDIS_MNEMONIC_MOVSW:
	case ZYDIS_MNEMONIC_MOVSQ:
		return decode_string(d, store, true);
	case ZYDIS_MNEMONIC_MOVSD: /* the string move, or the scalar one */
		if (d->op[1].type == ZYDIS_OPERAND_TYPE_MEMORY)
			return decode_string(d, store, true);
		return decode_move(d, store);
	case ZYDIS_MNEMONIC_MOV:
	case ZYDIS_MNEMONIC_MOVNTI:
	case ZYDIS_MNEMONIC_MOVDIRI:
	case ZYDIS_MNEMONIC_MOVD:
	case ZYDIS_MNEMONIC_MOVQ:
	case ZYDIS_MNEMONIC_MOVNTQ:
	case ZYDIS_MNEMONIC_MOVSS:
	case ZYDIS_MNEMONIC_MOVLPS:
	case ZYDIS_MNEMONIC_MOVLPD:
	case ZYDIS_MNEMONIC_MOVAPS:
	case ZYDIS_MNEMONIC_MOVAPD:
	case ZYDIS_MNEMONIC_MOVUPS:
	case ZYDIS_MNEMONIC_MOVUPD:
	case ZYDIS_MNEMONIC_MOVDQA:
	case ZYDIS_MNEMONIC_MOVDQU:
	case ZYDIS_MNEMONIC_MOVNTPS:
	case ZYDIS_MNEMONIC_MOVNTPD:
	case ZYDIS_MNEMONIC_MOVNTDQ:
	case ZYDIS_MNEMONIC_VMOVD:
	case ZYDIS_MNEMONIC_VMOVQ:
	case ZYDIS_MNEMONIC_VMOVSS:
	case ZYDIS_MNEMONIC_VMOVSD:
	case ZYDIS_MNEMONIC_VMOVLPS:
	case ZYDIS_MNEMONIC_VMOVLPD:
	case ZYDIS_MNEMONIC_VMOVAPS:
	case ZYDIS_MNEMONIC_VMOVAPD:
	case ZYDIS_MNEMONIC_VMOVUPS:
	case ZYDIS_MNEMONIC_VMOVUPD:
	case ZYDIS_MNEMONIC_VMOVDQA:
	case ZYDIS_MNEMONIC_VMOVDQA32:
	case ZYDIS_MNEMONIC_VMOVDQA64:
	case ZYDIS_MNEMONIC_VMOVDQU:
	case ZYDIS_MNEMONIC_VMOVDQU8:
	case ZYDIS_MNEMONIC_VMOVDQU16:
	case ZYDIS_MNEMONIC_VMOVDQU32:
	case ZYDIS_MNEMONIC_VMOVDQU64:
	case ZYDIS_MNEMONIC_VMOVNTPS:
	case ZYDIS_MNEMONIC_VMOVNTPD:
	case ZYDIS_MNEMONIC_VMOVNTDQ:
		return decode_move(d, store);
	default:
		return -EINVAL;
	}
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
	store->length = d.insn.length;
	if (is_masked(&d.insn))
		return -EINVAL;
	drop_mask_operand(&d);
	if (d.op[0].size / 8 > VB_STORE_MAX)
		return -EINVAL;
	store->size = (uint8_t)(d.op[0].size / 8);
	if (d.op[0].type != ZYDIS_OPERAND_TYPE_MEMORY && d.insn.mnemonic != ZYDIS_MNEMONIC_XCHG)
		return -EINVAL;
	return decode_by_mnemonic(&d, store);
}

#else

int vb_store_decode(const uint8_t *code, size_t len, const struct vb_store_regs *regs,
		    struct vb_store *store)
{
	memset(store, 0, sizeof(*store));
	return -EINVAL;
}

#endif
