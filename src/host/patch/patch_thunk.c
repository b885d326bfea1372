// SPDX-License-Identifier: MIT
/*
 * Owns the way from a trampoline into C and back: every register that the program can see is the
 * same afterwards, and what the processor calls initial is initial again.
 *
 *	S             stack pointer at the site           <- the frame's CFA
 *	S - 128       red zone
 *	S - 152       rax, arithmetic flags (lahf, seto), rcx, saved by the trampoline
 *	frame  (rbp)  struct vb_store_regs: general registers, rip of the site, flags; then the trampoline
 *	       (rsp)  struct state, aligned to 64: vector registers
 *
 * An unwinder finds the site as the caller of this function: its address is where a return address
 * would be, and the registers have the values that they had there. The trampoline itself is on no
 * stack.
 *
 * Which vector registers are kept: those that are not in their initial state (xgetbv with 1). The
 * others are zero, and are made so again: the upper halves by vzeroupper, the rest by an xrstor that
 * restores nothing. xsave and xrstor of all would take longer than the call itself. x87 and MMX
 * registers are not touched by the card (tests/abi/registers.py), so they are not kept.
 */
#include "host/patch/patch.h"

#if defined(__x86_64__)

#include <cpuid.h>

/* Components of the state (Intel SDM 1, 13.1). */
enum { SSE = 0x2, AVX = 0x4, OPMASK = 0x20, ZMM_HIGH = 0x40, ZMM_16 = 0x80 };

struct state {
	struct vb_store_vectors vectors;
	_Alignas(64) uint8_t xsave[512 + 64]; /* legacy part and header */
	uint32_t mxcsr, now;
};

struct frame {
	struct vb_store_regs regs;
	struct vb_tramp *tramp;
	uint64_t unused;
	uint64_t rcx, flags, rax;
};

uint32_t vb_patch_components;
/* Whether xgetbv tells what is in use; otherwise all is. */
__attribute__((visibility("hidden"))) uint32_t vb_patch_knows_use;

_Static_assert(offsetof(struct vb_tramp, elsewhere) == 0 && offsetof(struct vb_tramp, done) == 8 &&
		       offsetof(struct vb_tramp, site) == 16 &&
		       offsetof(struct vb_tramp, vectors) == 24,
	       "known to the code below");
_Static_assert(offsetof(struct vb_store_regs, rip) == 128 &&
		       offsetof(struct vb_store_regs, rflags) == 136 &&
		       offsetof(struct vb_store_regs, vectors) == 144 &&
		       offsetof(struct vb_store_regs, fpstate) == 152 &&
		       sizeof(struct vb_store_regs) == 176 &&
		       offsetof(struct frame, tramp) == 176 && offsetof(struct frame, rcx) == 192 &&
		       sizeof(struct frame) == 216,
	       "known to the code below");
_Static_assert(offsetof(struct state, vectors.k) == 2048 && offsetof(struct state, xsave) == 2112 &&
		       offsetof(struct state, mxcsr) == 2688 &&
		       offsetof(struct state, now) == 2692 && sizeof(struct state) == 2752,
	       "known to the code below");

bool vb_patch_thunk_setup(void)
{
	unsigned int a, b, c, d, low, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return false;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	vb_patch_components = low & (SSE | AVX | OPMASK | ZMM_HIGH | ZMM_16);
	if (!(low & SSE) || ((low & OPMASK) && (!__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
						!(b & bit_AVX512BW) || !(low & AVX))))
		return false;
	if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & bit_LAHF_LM))
		return false;
	vb_patch_knows_use = __get_cpuid_count(0xd, 1, &a, &b, &c, &d) && (a & 4);
	return true;
}

/* The C side: what the thunk calls. */
__attribute__((visibility("hidden"), used)) bool vb_patch_called(struct frame *frame,
								 struct state *state);

bool vb_patch_called(struct frame *frame, struct state *state)
{
	frame->regs.vectors = &state->vectors;
	return vb_trap_direct(&frame->regs, frame->tramp);
}

#define LOW_16(m) \
	m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11) m(12) m(13) m(14) m(15)
#define HIGH_16(m)                                                                                \
	m(16) m(17) m(18) m(19) m(20) m(21) m(22) m(23) m(24) m(25) m(26) m(27) m(28) m(29) m(30) \
		m(31)
#define ALL_K(m)    m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7)
#define SAVE_XMM(i) "	movaps %xmm" #i ", 64*" #i "(%rsp)\n"
#define LOAD_XMM(i) "	movaps 64*" #i "(%rsp), %xmm" #i "\n"
#define SAVE_YMM(i) "	vmovdqa %ymm" #i ", 64*" #i "(%rsp)\n"
#define LOAD_YMM(i) "	vmovdqa 64*" #i "(%rsp), %ymm" #i "\n"
#define SAVE_ZMM(i) "	vmovdqa64 %zmm" #i ", 64*" #i "(%rsp)\n"
#define LOAD_ZMM(i) "	vmovdqa64 64*" #i "(%rsp), %zmm" #i "\n"
#define SAVE_K(i)   "	kmovq %k" #i ", 2048+8*" #i "(%rsp)\n"
#define LOAD_K(i)   "	kmovq 2048+8*" #i "(%rsp), %k" #i "\n"

/* clang-format off */
/* rcx: the trampoline. r12: it; r13: components in use; r14: those to write down; r15: the answer */
__asm__(".text\n"
	".hidden vb_patch_thunk\n"
	".globl vb_patch_thunk\n"
	".type vb_patch_thunk, @function\n"
	".p2align 6\n"
	"vb_patch_thunk:\n"
	"	.cfi_startproc\n"
	"	.cfi_signal_frame\n"
	"	.cfi_def_cfa %rsp, 152\n"
	"	.cfi_offset %rax, -136\n"
	"	.cfi_offset %rcx, -152\n"
	"	.cfi_undefined %rip\n"
	"	leaq -192(%rsp), %rsp\n"
	"	.cfi_adjust_cfa_offset 192\n"
	"	movq %rdx, 16(%rsp)\n"
	"	movq %rbx, 24(%rsp)\n"
	"	movq %rbp, 40(%rsp)\n"
	"	movq %rsp, %rbp\n"
	"	.cfi_def_cfa_register %rbp\n"
	"	.cfi_offset %rdx, -328\n"
	"	.cfi_offset %rbx, -320\n"
	"	.cfi_offset %rbp, -304\n"
	"	movq %rsi, 48(%rbp)\n"
	"	movq %rdi, 56(%rbp)\n"
	"	movq %r8, 64(%rbp)\n"
	"	movq %r9, 72(%rbp)\n"
	"	movq %r10, 80(%rbp)\n"
	"	movq %r11, 88(%rbp)\n"
	"	movq %r12, 96(%rbp)\n"
	"	movq %r13, 104(%rbp)\n"
	"	movq %r14, 112(%rbp)\n"
	"	movq %r15, 120(%rbp)\n"
	"	.cfi_offset %rsi, -296\n"
	"	.cfi_offset %rdi, -288\n"
	"	.cfi_offset %r8, -280\n"
	"	.cfi_offset %r9, -272\n"
	"	.cfi_offset %r10, -264\n"
	"	.cfi_offset %r11, -256\n"
	"	.cfi_offset %r12, -248\n"
	"	.cfi_offset %r13, -240\n"
	"	.cfi_offset %r14, -232\n"
	"	.cfi_offset %r15, -224\n"
	"	movq %rcx, %r12\n"
	"	movq 208(%rbp), %rax\n"
	"	movq 192(%rbp), %rdx\n"
	"	movq 16(%rcx), %rdi\n" /* the site */
	"	leaq 344(%rbp), %rbx\n"
	"	movq %rax, (%rbp)\n"
	"	movq %rdx, 8(%rbp)\n"
	"	movq %rdi, 128(%rbp)\n"
	"	.cfi_offset %rip, -216\n"
	"	movq %rbx, 32(%rbp)\n"
	"	movq %rcx, 176(%rbp)\n"
	"	xorl %eax, %eax\n"
	"	movq %rax, 152(%rbp)\n" /* fpstate, its size, segment_base: none */
	"	movq %rax, 160(%rbp)\n"
	"	movq %rax, 168(%rbp)\n"
	/* what of the flags the trampoline has not saved: the direction, and alignment checks */
	"	pushfq\n"
	"	popq 136(%rbp)\n"
	"	cld\n"
	"	testl $0x40000, 136(%rbp)\n"
	"	jz 1f\n"
	"	pushfq\n"
	"	andl $~0x40000, (%rsp)\n"
	"	popfq\n"
	"1:\n"
	"	subq $2752, %rsp\n"
	"	andq $-64, %rsp\n"
	"	movl vb_patch_components(%rip), %r13d\n"
	"	cmpl $0, vb_patch_knows_use(%rip)\n"
	"	je 1f\n"
	"	movl $1, %ecx\n"
	"	xgetbv\n"
	"	andl %eax, %r13d\n"
	"1:	movl %r13d, %r14d\n"
	"	orl 24(%r12), %r14d\n"
	"	testl $0x40, %r14d\n"
	"	jnz 3f\n"
	"	testl $0x4, %r14d\n"
	"	jnz 2f\n" LOW_16(SAVE_XMM) "	jmp 4f\n"
	"2:\n" LOW_16(SAVE_YMM) "	jmp 4f\n"
	"3:\n" LOW_16(SAVE_ZMM) "4:	testl $0x80, %r14d\n"
	"	jz 5f\n" HIGH_16(SAVE_ZMM) "5:	testl $0x20, %r14d\n"
	"	jz 6f\n" ALL_K(SAVE_K) "6:	stmxcsr 2688(%rsp)\n"
	/* exceptions that were seen do no harm */
	"	movl 2688(%rsp), %eax\n"
	"	andl $0xffc0, %eax\n"
	"	cmpl $0x1f80, %eax\n"
	"	je 7f\n"
	"	movl $0x1f80, 2692(%rsp)\n"
	"	ldmxcsr 2692(%rsp)\n"
	/* code that uses the lower halves of dirty registers is slow */
	"7:	testl $0x4, vb_patch_components(%rip)\n"
	"	jz 8f\n"
	"	vzeroupper\n"
	"8:	movq %rbp, %rdi\n"
	"	movq %rsp, %rsi\n"
	"	call vb_patch_called\n"
	"	movzbl %al, %r15d\n"
	"	testl $0x4, vb_patch_components(%rip)\n"
	"	jz 1f\n"
	"	vzeroupper\n" /* the upper halves are initial */
	"1:	testl $0x40, %r13d\n"
	"	jnz 3f\n"
	"	testl $0x4, %r13d\n"
	"	jnz 2f\n" LOW_16(LOAD_XMM) "	jmp 4f\n"
	"2:\n" LOW_16(LOAD_YMM) "	jmp 4f\n"
	"3:\n" LOW_16(LOAD_ZMM) "4:	testl $0x80, %r13d\n"
	"	jz 5f\n" HIGH_16(LOAD_ZMM) "5:	testl $0x20, %r13d\n"
	"	jz 6f\n" ALL_K(LOAD_K) "6:	stmxcsr 2692(%rsp)\n"
	"	movl 2688(%rsp), %eax\n"
	"	cmpl %eax, 2692(%rsp)\n"
	"	je 7f\n"
	"	ldmxcsr 2688(%rsp)\n"
	/* what was initial and has been used since: only where that can be */
	"7:	movl vb_patch_components(%rip), %r14d\n"
	"	andl $0xa2, %r14d\n"
	"	notl %r13d\n"
	"	andl %r13d, %r14d\n"
	"	jz 8f\n"
	"	movl $1, %ecx\n"
	"	xgetbv\n"
	"	andl %r14d, %eax\n"
	"	jz 8f\n"
	"	leaq 2112(%rsp), %rbx\n"
	"	movl %eax, %r14d\n"
	"	xorl %eax, %eax\n"
	"	movq %rax, 512(%rbx)\n"
	"	movq %rax, 520(%rbx)\n"
	"	movq %rax, 528(%rbx)\n"
	"	movq %rax, 536(%rbx)\n"
	"	movq %rax, 544(%rbx)\n"
	"	movq %rax, 552(%rbx)\n"
	"	movq %rax, 560(%rbx)\n"
	"	movq %rax, 568(%rbx)\n"
	"	movl 2688(%rsp), %eax\n"
	"	movl %eax, 24(%rbx)\n"
	"	movl $0xffff, 28(%rbx)\n"
	"	movl %r14d, %eax\n"
	"	xorl %edx, %edx\n"
	"	xrstor64 (%rbx)\n"
	"8:	movq (%rbp), %rax\n"
	"	movq 8(%rbp), %rdx\n"
	"	movq %rax, 208(%rbp)\n"
	"	movq %rdx, 192(%rbp)\n"
	"	testl $0x40400, 136(%rbp)\n"
	"	jz 9f\n"
	"	pushq 136(%rbp)\n"
	"	popfq\n"
	"9:	leaq 8(%r12), %rcx\n" /* done */
	"	testl %r15d, %r15d\n"
	"	cmovz %r12, %rcx\n" /* elsewhere */
	/* whatever is below the stack pointer can be overwritten by a signal at any time */
	"	movq %rbp, %rsp\n"
	"	.cfi_def_cfa_register %rsp\n"
	"	movq 16(%rsp), %rdx\n"
	"	movq 24(%rsp), %rbx\n"
	"	movq 40(%rsp), %rbp\n"
	"	movq 48(%rsp), %rsi\n"
	"	movq 56(%rsp), %rdi\n"
	"	movq 64(%rsp), %r8\n"
	"	movq 72(%rsp), %r9\n"
	"	movq 80(%rsp), %r10\n"
	"	movq 88(%rsp), %r11\n"
	"	movq 96(%rsp), %r12\n"
	"	movq 104(%rsp), %r13\n"
	"	movq 112(%rsp), %r14\n"
	"	movq 120(%rsp), %r15\n"
	"	leaq 192(%rsp), %rsp\n"
	"	.cfi_def_cfa_offset 152\n"
	"	.cfi_undefined %rip\n"
	"	jmp *(%rcx)\n"
	"	.cfi_endproc\n"
	".size vb_patch_thunk, .-vb_patch_thunk\n");
/* clang-format on */

#endif
