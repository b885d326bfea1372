// SPDX-License-Identifier: MIT
/*
 * Patched sites of all kinds: each store that can be encoded, with many ways to address memory. It is executed three
 * times with the same registers:
 *
 *	plain       an untouched copy stores to ordinary memory: what the instruction does
 *	bell        the site, which trapped once and may be patched, stores to a doorbell page: the same bytes arrive
 *	elsewhere   the site stores to ordinary memory: the same bytes are there
 *
 * All registers, flags, vector and mask registers and the red zone are the same after each.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <Zydis/Zydis.h>

#include "host/patch/patch.h"
#include "host/trap/trap.h"
#include "patch_text.h"

enum {
	SLOT = 64,
	BATCH = 200, /* sites in one process: fewer than can be patched */
	RED_ZONE = 128,
	FLAGS = 0xcd5, /* carry, parity, adjust, zero, sign, direction, overflow */
	FIXED_FLAGS = 0x202,
};

struct context {
	uint64_t gpr[16];
	uint64_t flags;
	uint64_t red_zone[RED_ZONE / 8];
	uint64_t k[8];
	_Alignas(64) uint8_t zmm[32][64];
};

extern struct context patch_in, patch_out;
extern void *patch_target;
extern int patch_avx512, patch_avx;
void patch_run(void);
extern char patch_back[];

struct context patch_in, patch_out;
void *patch_target;
int patch_avx512, patch_avx;

_Static_assert(offsetof(struct context, flags) == 128 &&
		       offsetof(struct context, red_zone) == 136 &&
		       offsetof(struct context, k) == 264 && offsetof(struct context, zmm) == 384,
	       "known below");

/* clang-format off */
#define ALL_8(m)  m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7)
#define ALL_16(m) ALL_8(m) m(8) m(9) m(10) m(11) m(12) m(13) m(14) m(15)
#define ALL_32(m)                                                                                 \
	ALL_16(m)                                                                                 \
	m(16) m(17) m(18) m(19) m(20) m(21) m(22) m(23) m(24) m(25) m(26) m(27) m(28) m(29) m(30) \
		m(31)
#define LOAD_Z(i) "	vmovdqa64 patch_in+384+64*" #i "(%rip), %zmm" #i "\n"
#define SAVE_Z(i) "	vmovdqa64 %zmm" #i ", patch_out+384+64*" #i "(%rip)\n"
#define LOAD_Y(i) "	vmovdqa patch_in+384+64*" #i "(%rip), %ymm" #i "\n"
#define SAVE_Y(i) "	vmovdqa %ymm" #i ", patch_out+384+64*" #i "(%rip)\n"
#define LOAD_X(i) "	movaps patch_in+384+64*" #i "(%rip), %xmm" #i "\n"
#define SAVE_X(i) "	movaps %xmm" #i ", patch_out+384+64*" #i "(%rip)\n"
#define LOAD_K(i) "	kmovq patch_in+264+8*" #i "(%rip), %k" #i "\n"
#define SAVE_K(i) "	kmovq %k" #i ", patch_out+264+8*" #i "(%rip)\n"
#define RED_IN(i) \
	"	movq patch_in+136+8*" #i "(%rip), %rax\n	movq %rax, -128+8*" #i "(%rsp)\n"
#define RED_OUT(i) \
	"	movq -128+8*" #i "(%rsp), %rax\n	movq %rax, patch_out+136+8*" #i "(%rip)\n"
#define GPRS(m)                                                                              \
	m(rcx, 8) m(rdx, 16) m(rbx, 24) m(rbp, 40) m(rsi, 48) m(rdi, 56) m(r8, 64) m(r9, 72) \
		m(r10, 80) m(r11, 88) m(r12, 96) m(r13, 104) m(r14, 112) m(r15, 120)
#define LOAD_G(r, at) "	movq patch_in+" #at "(%rip), %" #r "\n"
#define SAVE_G(r, at) "	movq %" #r ", patch_out+" #at "(%rip)\n"

__asm__(".text\n"
	".globl patch_run, patch_back\n"
	".type patch_run, @function\n"
	"patch_run:\n"
	"	pushq %rbx\n	pushq %rbp\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	cmpl $0, patch_avx512(%rip)\n"
	"	jne 2f\n"
	"	cmpl $0, patch_avx(%rip)\n"
	"	jne 1f\n" ALL_16(
		LOAD_X) "	jmp 3f\n"
			"1:\n" ALL_16(
				LOAD_Y) "	jmp 3f\n"
					"2:\n" ALL_32(LOAD_Z) ALL_8(
						LOAD_K) "3:	pushq patch_in+128(%rip)\n"
							"	popfq\n" ALL_16(RED_IN) GPRS(LOAD_G) LOAD_G(
								rax,
								0) "	jmp *patch_target(%rip)\n"
								   "patch_back:\n" SAVE_G(rax, 0) GPRS(SAVE_G) SAVE_G(rsp, 32) ALL_16(
									   RED_OUT) "	pushfq\n"
										    "	popq patch_out+128(%rip)\n"
										    "	cld\n"
										    "	cmpl $0, patch_avx512(%rip)\n"
										    "	jne 2f\n"
										    "	cmpl $0, patch_avx(%rip)\n"
										    "	jne 1f\n" ALL_16(
											    SAVE_X) "	jmp 3f\n"
												    "1:\n" ALL_16(
													    SAVE_Y) "	vzeroupper\n	jmp 3f\n"
														    "2:\n" ALL_32(SAVE_Z) ALL_8(
															    SAVE_K) "	vzeroupper\n"
																    "3:	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbp\n	popq %rbx\n"
																    "	ret\n"
																    ".size patch_run, .-patch_run\n");
/* clang-format on */

/* --- forms ------------------------------------------------------------------------------------------------------ */

struct form {
	uint8_t code[16];
	uint8_t length;
};

enum { MAX_FORMS = 8000 };

static struct form forms[MAX_FORMS];
static unsigned int num_forms;
static uint64_t seed = 1;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* Without rsp: it stays the test's own. */
static ZydisRegister gpr64(void)
{
	unsigned int n = (unsigned int)(next_random() % 15);

	return ZYDIS_REGISTER_RAX + (n >= 4 ? n + 1 : n);
}

static void random_address(ZydisEncoderOperand *op, uint16_t size)
{
	unsigned int how = (unsigned int)(next_random() % 6);

	op->type = ZYDIS_OPERAND_TYPE_MEMORY;
	op->mem.size = size;
	if (how != 5)
		op->mem.base = gpr64();
	if (how >= 3) {
		do
			op->mem.index = gpr64();
		while (op->mem.index == op->mem.base);
		op->mem.scale = (uint8_t)(1u << next_random() % 4);
	}
	if (how == 1 || how == 4)
		op->mem.displacement = (int8_t)next_random();
	if (how == 2 || how == 5)
		op->mem.displacement = (int32_t)next_random();
}

static void add(ZydisEncoderRequest *req)
{
	ZyanUSize length = sizeof(forms[0].code);

	if (num_forms == MAX_FORMS ||
	    ZYAN_FAILED(ZydisEncoderEncodeInstruction(req, forms[num_forms].code, &length)))
		return;
	forms[num_forms++].length = (uint8_t)length;
}

static ZydisEncoderRequest request(ZydisMnemonic mnemonic, unsigned int operands, uint16_t size)
{
	ZydisEncoderRequest req = { .machine_mode = ZYDIS_MACHINE_MODE_LONG_64,
				    .mnemonic = mnemonic,
				    .operand_count = (ZyanU8)operands };

	random_address(&req.operands[0], size);
	return req;
}

static void add_general(void)
{
	static const ZydisRegister first[] = { ZYDIS_REGISTER_AL, ZYDIS_REGISTER_AX,
					       ZYDIS_REGISTER_EAX, ZYDIS_REGISTER_RAX };
	static const ZydisMnemonic mnemonics[] = { ZYDIS_MNEMONIC_MOV, ZYDIS_MNEMONIC_XCHG,
						   ZYDIS_MNEMONIC_MOVBE, ZYDIS_MNEMONIC_MOVNTI };

	for (unsigned int m = 0; m < 4; m++)
		for (unsigned int s = 0; s < 4; s++)
			for (unsigned int r = 0; r < 20; r++) {
				ZydisEncoderRequest req =
					request(mnemonics[m], 2, (uint16_t)(1 << s));

				req.operands[1].type = ZYDIS_OPERAND_TYPE_REGISTER;
				req.operands[1].reg.value = first[s] + r % (s ? 16 : 20);
				/* not the stack pointer */
				if (s ? r >= 16 || r == 4
				      : req.operands[1].reg.value == ZYDIS_REGISTER_SPL)
					continue;
				add(&req);
			}
	for (unsigned int s = 0; s < 4; s++)
		for (unsigned int i = 0; i < 12; i++) {
			ZydisEncoderRequest req =
				request(ZYDIS_MNEMONIC_MOV, 2, (uint16_t)(1 << s));

			req.operands[1].type = ZYDIS_OPERAND_TYPE_IMMEDIATE;
			req.operands[1].imm.s = s == 0   ? (int8_t)next_random()
						: s == 1 ? (int16_t)next_random()
							 : (int32_t)next_random();
			add(&req);
		}
}

/* Two bytes: what the compiler makes of a doorbell at the start of a page. */
static void add_short(void)
{
	for (unsigned int base = 0; base < 8; base++)
		for (unsigned int reg = 0; reg < 8; reg++)
			if (base != 4 && base != 5 && reg != 4) {
				forms[num_forms].code[0] = 0x89;
				forms[num_forms].code[1] = (uint8_t)(reg << 3 | base);
				forms[num_forms++].length = 2;
			}
}

static void add_vector(ZydisMnemonic mnemonic, ZydisRegister first, unsigned int registers,
		       uint16_t size, bool immediate)
{
	for (unsigned int i = 0; i < 6; i++) {
		ZydisEncoderRequest req = request(mnemonic, immediate ? 3 : 2, size);

		req.operands[1].type = ZYDIS_OPERAND_TYPE_REGISTER;
		req.operands[1].reg.value = first + next_random() % registers;
		if (immediate) {
			req.operands[2].type = ZYDIS_OPERAND_TYPE_IMMEDIATE;
			req.operands[2].imm.u = next_random() & 0xff;
		}
		add(&req);
	}
}

/* EVEX with a mask register: the operand after memory. */
static void add_masked(ZydisMnemonic mnemonic, ZydisRegister first, uint16_t size)
{
	for (unsigned int i = 0; i < 6; i++) {
		ZydisEncoderRequest req = request(mnemonic, 3, size);

		req.operands[1].type = ZYDIS_OPERAND_TYPE_REGISTER;
		req.operands[1].reg.value = ZYDIS_REGISTER_K0 + 1 + next_random() % 7;
		req.operands[2].type = ZYDIS_OPERAND_TYPE_REGISTER;
		req.operands[2].reg.value = first + next_random() % 32;
		add(&req);
	}
}

static void add_sse(void)
{
	static const struct {
		ZydisMnemonic mnemonic;
		uint16_t size;
	} moves[] = {
		{ ZYDIS_MNEMONIC_MOVD, 4 },     { ZYDIS_MNEMONIC_MOVQ, 8 },
		{ ZYDIS_MNEMONIC_MOVSS, 4 },    { ZYDIS_MNEMONIC_MOVSD, 8 },
		{ ZYDIS_MNEMONIC_MOVLPS, 8 },   { ZYDIS_MNEMONIC_MOVHPD, 8 },
		{ ZYDIS_MNEMONIC_MOVAPS, 16 },  { ZYDIS_MNEMONIC_MOVUPD, 16 },
		{ ZYDIS_MNEMONIC_MOVDQA, 16 },  { ZYDIS_MNEMONIC_MOVDQU, 16 },
		{ ZYDIS_MNEMONIC_MOVNTPS, 16 }, { ZYDIS_MNEMONIC_MOVNTDQ, 16 },
	};
	static const struct {
		ZydisMnemonic mnemonic;
		uint16_t size;
	} extracts[] = { { ZYDIS_MNEMONIC_PEXTRB, 1 },
			 { ZYDIS_MNEMONIC_PEXTRW, 2 },
			 { ZYDIS_MNEMONIC_PEXTRD, 4 },
			 { ZYDIS_MNEMONIC_PEXTRQ, 8 },
			 { ZYDIS_MNEMONIC_EXTRACTPS, 4 } };

	for (unsigned int i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
		add_vector(moves[i].mnemonic, ZYDIS_REGISTER_XMM0, 16, moves[i].size, false);
	for (unsigned int i = 0; i < sizeof(extracts) / sizeof(extracts[0]); i++)
		add_vector(extracts[i].mnemonic, ZYDIS_REGISTER_XMM0, 16, extracts[i].size, true);
}

static void add_avx(void)
{
	static const ZydisMnemonic whole[] = { ZYDIS_MNEMONIC_VMOVAPS,  ZYDIS_MNEMONIC_VMOVUPD,
					       ZYDIS_MNEMONIC_VMOVDQA,  ZYDIS_MNEMONIC_VMOVDQU,
					       ZYDIS_MNEMONIC_VMOVNTPS, ZYDIS_MNEMONIC_VMOVNTDQ };
	static const ZydisMnemonic selected[] = { ZYDIS_MNEMONIC_VMASKMOVPS,
						  ZYDIS_MNEMONIC_VMASKMOVPD,
						  ZYDIS_MNEMONIC_VPMASKMOVD,
						  ZYDIS_MNEMONIC_VPMASKMOVQ };

	for (unsigned int i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		add_vector(whole[i], ZYDIS_REGISTER_XMM0, 16, 16, false);
		add_vector(whole[i], ZYDIS_REGISTER_YMM0, 16, 32, false);
	}
	add_vector(ZYDIS_MNEMONIC_VMOVD, ZYDIS_REGISTER_XMM0, 16, 4, false);
	add_vector(ZYDIS_MNEMONIC_VMOVQ, ZYDIS_REGISTER_XMM0, 16, 8, false);
	add_vector(ZYDIS_MNEMONIC_VMOVHPS, ZYDIS_REGISTER_XMM0, 16, 8, false);
	add_vector(ZYDIS_MNEMONIC_VEXTRACTF128, ZYDIS_REGISTER_YMM0, 16, 16, true);
	add_vector(ZYDIS_MNEMONIC_VPEXTRD, ZYDIS_REGISTER_XMM0, 16, 4, true);
	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int k = 0; k < 6; k++) {
			ZydisEncoderRequest req = request(selected[i], 3, 32);

			req.operands[1].type = req.operands[2].type = ZYDIS_OPERAND_TYPE_REGISTER;
			req.operands[1].reg.value = ZYDIS_REGISTER_YMM0 + next_random() % 16;
			req.operands[2].reg.value = ZYDIS_REGISTER_YMM0 + next_random() % 16;
			add(&req);
		}
}

static void add_avx512(void)
{
	static const ZydisMnemonic moves[] = { ZYDIS_MNEMONIC_VMOVDQU8,  ZYDIS_MNEMONIC_VMOVDQU16,
					       ZYDIS_MNEMONIC_VMOVDQU32, ZYDIS_MNEMONIC_VMOVDQA64,
					       ZYDIS_MNEMONIC_VMOVUPS,   ZYDIS_MNEMONIC_VMOVAPD };

	for (unsigned int i = 0; i < 6; i++) {
		add_masked(moves[i], ZYDIS_REGISTER_ZMM0, 64);
		add_masked(moves[i], ZYDIS_REGISTER_YMM0, 32);
		add_masked(moves[i], ZYDIS_REGISTER_XMM0, 16);
	}
	add_vector(ZYDIS_MNEMONIC_VMOVNTDQ, ZYDIS_REGISTER_ZMM0, 32, 64, false);
	add_vector(ZYDIS_MNEMONIC_VEXTRACTI32X4, ZYDIS_REGISTER_ZMM0, 32, 16, true);
	add_vector(ZYDIS_MNEMONIC_VEXTRACTF64X4, ZYDIS_REGISTER_ZMM0, 32, 32, true);
}

/* --- one form --------------------------------------------------------------------------------------------------- */

static uint8_t *bell, *memory;
static uint8_t rung[4096]; /* what arrived, by offset */
static unsigned int calls;

/* Vector registers and flags are not as they were when this returns. */
static void record(void *arg, size_t offset, const void *data, size_t size)
{
	memcpy(rung + offset, data, size);
	calls++;
	if (__builtin_cpu_supports("avx512bw"))
		__asm__ volatile("vpternlogd $255, %%zmm3, %%zmm3, %%zmm3\n"
				 "vpternlogd $255, %%zmm19, %%zmm19, %%zmm19\n"
				 "vzeroupper\n"
				 "kxnorq %%k3, %%k3, %%k3\n" ::
					 : "xmm3");
	else
		__asm__ volatile("pcmpeqd %%xmm3, %%xmm3\n" ::: "xmm3");
}

/* The store, something that changes nothing and has random bytes, and the way back. */
static void emit(uint8_t *slot, const struct form *form)
{
	const uint8_t jump[] = { 0xff, 0x25, 0, 0, 0, 0 };
	uint8_t filler[] = { 0x0f, 0x1f, 0x80, 0, 0, 0, 0 }; /* nopl disp32(%rax) */
	uint64_t back = (uint64_t)patch_back, random = next_random();
	uint8_t *at = slot;

	memcpy(at, form->code, form->length);
	at += form->length;
	if (random & 1) {
		memcpy(filler + 3, (uint8_t *)&random + 1, 4);
		memcpy(at, filler, sizeof(filler));
		at += sizeof(filler);
	}
	memcpy(at, jump, sizeof(jump));
	memcpy(at + sizeof(jump), &back, sizeof(back));
}

/* Registers such that the store goes to `to`; false where that cannot be. */
static bool aim(const struct vb_store_form *form, uint64_t to)
{
	uint64_t rest = to - (uint64_t)form->disp;

	if (form->index != VB_STORE_NONE && form->base != VB_STORE_NONE) {
		patch_in.gpr[form->index] = next_random() % 4096;
		patch_in.gpr[form->base] = rest - patch_in.gpr[form->index] * form->scale;
	} else if (form->base != VB_STORE_NONE) {
		patch_in.gpr[form->base] = rest;
	} else if (form->index != VB_STORE_NONE) {
		if (rest % form->scale)
			return false;
		patch_in.gpr[form->index] = rest / form->scale;
	} else {
		return false;
	}
	return true;
}

static void run_at(void *site)
{
	memset(&patch_out, 0, sizeof(patch_out));
	patch_target = site;
	patch_run();
}

static void same_registers(const struct context *a, const struct context *b,
			   const struct vb_store_form *form, bool bell_too)
{
	for (unsigned int i = 0; i < 16; i++) {
		bool address = i == form->base || i == form->index;

		/* Those of the address differ, and an exchange reads other things from a bell. */
		if (address || (bell_too && form->kind == VB_STORE_EXCHANGE && i == form->reg))
			continue;
		assert_true(a->gpr[i] == b->gpr[i]);
	}
	assert_int_equal(a->flags, b->flags);
	assert_memory_equal(a->red_zone, b->red_zone, sizeof(a->red_zone));
	assert_memory_equal(a->k, b->k, sizeof(a->k));
	assert_memory_equal(a->zmm, b->zmm, sizeof(a->zmm));
}

static bool reads_address(const struct vb_store_form *form)
{
	return form->source == VB_STORE_FROM_GPR &&
	       (form->reg == form->base || form->reg == form->index);
}

static void fill_context(void)
{
	uint8_t *bytes = (uint8_t *)&patch_in;

	for (size_t i = 0; i < sizeof(patch_in); i++)
		bytes[i] = (uint8_t)next_random();
	patch_in.flags = (next_random() & FLAGS) | FIXED_FLAGS;
	if (!patch_avx512)
		memset(patch_in.k, 0, sizeof(patch_in.k));
	for (unsigned int i = 0; !patch_avx512 && i < 32; i++)
		memset(patch_in.zmm[i] + (i >= 16     ? 0
					  : patch_avx ? 32
						      : 16),
		       0,
		       i >= 16     ? 64
		       : patch_avx ? 32
				   : 48);
}

/* The registers of an address may be stored themselves: then what arrives is what they were. */
static void expect_bytes(const struct vb_store_form *form, const uint8_t *a, const uint8_t *b,
			 size_t at)
{
	if (!reads_address(form))
		assert_memory_equal(a + at, b + at, 64);
}

static void try_form(const struct form *code, void *site, void *plain)
{
	struct vb_store_form form;
	struct context first;
	size_t at = 64 * (size_t)(next_random() % 62);
	uint8_t before[4096];

	assert_int_equal(vb_store_parse(code->code, code->length, &form), 0);
	fill_context();
	for (unsigned int i = 0; i < 4096; i++)
		before[i] = (uint8_t)next_random();
	if (!aim(&form, (uint64_t)memory + at))
		return;
	memcpy(memory, before, 4096);
	run_at(plain);
	first = patch_out;
	memcpy(before, memory, 4096);
	/* elsewhere, through the site */
	for (unsigned int i = 0; i < 4096; i++)
		memory[i] = (uint8_t)~before[i];
	memset(rung, 0, sizeof(rung));
	calls = 0;
	run_at(site);
	same_registers(&first, &patch_out, &form, form.kind == VB_STORE_EXCHANGE);
	for (unsigned int i = 0; i < form.size; i++)
		assert_true(memory[at + i] == before[at + i] || form.mask != VB_STORE_MASK_NONE);
	assert_int_equal(calls, 0);
	/* the bell */
	if (!aim(&form, (uint64_t)bell + at))
		return;
	memset(memory, 0, 4096);
	run_at(site);
	same_registers(&first, &patch_out, &form, true);
	if (form.mask == VB_STORE_MASK_NONE)
		assert_int_equal(calls, 1);
	if (form.kind == VB_STORE_EXCHANGE && form.size == 8 && !reads_address(&form))
		assert_int_equal(patch_out.gpr[form.reg], 0);
	for (unsigned int i = 0;
	     i < form.size && form.mask == VB_STORE_MASK_NONE && !reads_address(&form); i++)
		assert_int_equal(rung[at + i], before[at + i]);
}

/* A masked store: what is not selected is left alone, in memory and at the bell. */
static void try_masked(const struct form *code, void *site, void *plain)
{
	struct vb_store_form form;
	size_t at = 64 * (size_t)(next_random() % 62);
	uint8_t expected[64];

	assert_int_equal(vb_store_parse(code->code, code->length, &form), 0);
	if (form.mask == VB_STORE_MASK_NONE)
		return;
	fill_context();
	if (!aim(&form, (uint64_t)memory + at))
		return;
	memset(memory, 0, 4096);
	run_at(plain);
	memcpy(expected, memory + at, 64);
	memset(memory, 0, 4096);
	run_at(site);
	assert_memory_equal(memory + at, expected, 64);
	if (!aim(&form, (uint64_t)bell + at))
		return;
	memset(rung, 0, sizeof(rung));
	run_at(site);
	expect_bytes(&form, rung + at, expected, 0);
}

/* --- all of them ------------------------------------------------------------------------------------------------ */

static unsigned int by_length[16], patched_by_length[16];

static void run_batch(unsigned int from, unsigned int to)
{
	uint8_t *bytes = calloc(2 * BATCH, SLOT), *text;
	unsigned int patched = 0;

	seed = from + 1;
	for (unsigned int i = from; i < to; i++) {
		uint64_t again = seed;

		emit(bytes + (i - from) * SLOT, &forms[i]);
		seed = again;
		emit(bytes + (BATCH + i - from) * SLOT, &forms[i]);
	}
	bell = vb_trap_map(4096, record, NULL);
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	text = text_map(NULL, bytes, 2 * BATCH * SLOT);
	for (unsigned int i = from; i < to; i++) {
		uint8_t *site = text + (i - from) * SLOT, *plain = text + (BATCH + i - from) * SLOT;
		unsigned int before = vb_patch_counts.patched;
		uint64_t traps = vb_patch_counts.traps;

		for (unsigned int k = 0; k < 4; k++)
			try_form(&forms[i], site, plain);
		for (unsigned int k = 0; k < 4; k++)
			try_masked(&forms[i], site, plain);
		/* And then it traps no more. */
		if (vb_patch_counts.patched > before)
			assert_in_range(vb_patch_counts.traps - traps, 1, 3);
		by_length[forms[i].length]++;
		patched_by_length[forms[i].length] += vb_patch_counts.patched - before;
		patched += vb_patch_counts.patched - before;
		assert_memory_equal(plain, forms[i].code, forms[i].length);
	}
	assert_int_equal(patched, vb_patch_counts.patched);
	text_unmap(text, 2 * BATCH * SLOT);
	vb_trap_unmap(bell);
	free(bytes);
}

static void report(int fd)
{
	for (unsigned int i = 0; i < 16; i++) {
		assert_int_equal(write(fd, &by_length[i], sizeof(by_length[i])),
				 sizeof(by_length[i]));
		assert_int_equal(write(fd, &patched_by_length[i], sizeof(by_length[i])),
				 sizeof(by_length[i]));
	}
}

/* The sites of one process are bounded, so each batch has its own. */
static void try_all(int avx, int avx512)
{
	unsigned int sites[16] = { 0 }, patched[16] = { 0 }, got[2];
	int fd[2], status;

	patch_avx = avx;
	patch_avx512 = avx512;
	num_forms = 0;
	for (unsigned int round = 0; round < 3; round++) {
		add_short();
		add_general();
		add_sse();
		if (patch_avx)
			add_avx();
		if (patch_avx512)
			add_avx512();
	}
	assert_int_equal(pipe(fd), 0);
	for (unsigned int from = 0; from < num_forms; from += BATCH) {
		unsigned int to = from + BATCH < num_forms ? from + BATCH : num_forms;
		pid_t pid = fork();

		if (!pid) {
			run_batch(from, to);
			report(fd[1]);
			exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		for (unsigned int i = 0; i < 16; i++) {
			assert_int_equal(read(fd[0], got, sizeof(got)), sizeof(got));
			sites[i] += got[0];
			patched[i] += got[1];
		}
	}
	for (unsigned int i = 0; i < 16; i++)
		if (sites[i])
			print_message("%2u bytes: %4u sites, %4u patched\n", i, sites[i],
				      patched[i]);
	/* Longer ones always have a place; of the others it depends on what follows. */
	for (unsigned int i = 5; i < 16; i++)
		if (strcmp(getenv("VERBATIM_PATCH"), "off"))
			assert_in_range(patched[i], sites[i] / 2, sites[i]);
		else
			assert_int_equal(patched[i], 0);
}

/* With the upper parts of vector registers in their initial state, then with more and more of them in use. */
static void every_form_sse(void **state)
{
	try_all(0, 0);
}

static void every_form_avx(void **state)
{
	if (!__builtin_cpu_supports("avx2"))
		skip();
	try_all(1, 0);
}

static void every_form_avx512(void **state)
{
	if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
		skip();
	try_all(1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form_sse),
		cmocka_unit_test(every_form_avx),
		cmocka_unit_test(every_form_avx512),
	};

	setenv("VERBATIM_PATCH", "first", 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
