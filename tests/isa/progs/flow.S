/* SPDX-License-Identifier: MIT */
/*
 * Control flow no compiler makes: each function leaves its result in a0 for flow.c to print.
 */
	.text
	.macro	func name
	.globl	\name
	.type	\name, @function
	.p2align 1
\name:
	.endm

/* Jump a0 instructions (4 bytes each, 0..7) into straight code that no label marks. */
func mid_block
	.option	push
	.option	norvc
	auipc	t0, 0
	slli	a0, a0, 2
	add	t0, t0, a0
	li	a0, 1
	jr	24(t0)
	nop
	addi	a0, a0, 1
	slli	a0, a0, 1
	xori	a0, a0, 0x55
	addi	a0, a0, 7
	slli	a0, a0, 2
	addi	a0, a0, -3
	xori	a0, a0, 0x2a
	ret
	.option	pop

/* Enter the second half of a 32-bit instruction: those two bytes are themselves a c.li a0, 9. */
func half_insn
	lla	t0, 1f
	addi	t0, t0, 2
	li	a0, 0
	jr	t0
1:	.4byte	0x45254537	/* lui a0, ...; its upper half 0x4525 is c.li a0, 9 */
	ret

/* More returns than calls: a0 pieces are stacked and returned through, one after another. */
func returns_only
	mv	t1, ra
	mv	t2, a0
	li	a0, 0
	lla	ra, 2f
1:	ret
2:	addi	a0, a0, 3
	addi	t2, t2, -1
	lla	ra, 2b
	bgtz	t2, 1b
	mv	ra, t1
	ret

/* More calls than returns: a0 calls whose return addresses are dropped. */
func calls_only
	mv	t1, ra
	mv	t2, a0
	li	a0, 0
1:	jal	ra, 2f
	li	a0, -1		/* never reached */
2:	addi	a0, a0, 5
	addi	t2, t2, -1
	bgtz	t2, 1b
	mv	ra, t1
	ret

/* A callee that returns four bytes further than it was told, skipping an instruction. */
func skip_return
	mv	t1, ra
	li	a0, 10
	jal	3f
	.option	push
	.option	norvc
	addi	a0, a0, 100	/* skipped */
	.option	pop
	addi	a0, a0, 1
	mv	ra, t1
	ret
3:	addi	ra, ra, 4
	ret

/* Two coroutines that swap with jalr t0, t0: each return address is the other one's resume point. */
func swap_links
	mv	t1, ra
	li	a1, 0
	lla	t0, 5f
4:	jalr	t0, 0(t0)
	addi	a1, a1, 1
	slli	a1, a1, 1
	jalr	t0, 0(t0)
	addi	a1, a1, 3
	bnez	a0, 4b
	mv	a0, a1
	mv	ra, t1
	ret
5:	addi	a0, a0, -1
	jalr	t0, 0(t0)
	xori	a1, a1, 0x11
	jalr	t0, 0(t0)
	j	5b

/* The alternate link register, as -msave-restore uses it: jal t0, and return through t0. */
func alternate_link
	mv	t1, ra
	li	a1, 0
6:	jal	t0, 7f
	addi	a1, a1, 2
	addi	a0, a0, -1
	bnez	a0, 6b
	mv	a0, a1
	mv	ra, t1
	ret
7:	addi	a1, a1, 5
	jr	t0

/* The second call returns to the site of the first one: the engine's guess is wrong, the target known. */
func other_return
	mv	t1, ra
	li	a0, 0
	jal	8f
14:	addi	a0, a0, 1
	li	t2, 600
	bgt	a0, t2, 15f
	jal	9f
	li	a0, -1		/* never reached */
15:	mv	ra, t1
	ret
8:	addi	a0, a0, 256
	ret
9:	addi	a0, a0, 400
	lla	ra, 14b
	ret

/* A loop whose body starts inside another loop's body: overlapping blocks. a0 = count. */
func overlap
	li	a1, 0
	mv	a2, a0
	j	11f
10:	addi	a1, a1, 1
11:	addi	a1, a1, 10
12:	addi	a1, a1, 100
	addi	a2, a2, -1
	blez	a2, 13f
	andi	a3, a2, 3
	beqz	a3, 10b
	li	a4, 1
	beq	a3, a4, 11b
	j	12b
13:	mv	a0, a1
	ret

/* A jump through every register that can hold a target, mapped in the translator or not. */
	.macro	via r
	lla	\r, 1f
	jalr	zero, 0(\r)
	li	a0, -1
1:	addi	a0, a0, 1
	.endm
func all_registers
	addi	sp, sp, -128
	sd	ra, 0(sp)
	sd	gp, 8(sp)
	sd	tp, 16(sp)
	sd	s0, 24(sp)
	sd	s1, 32(sp)
	.irp	n, 2,3,4,5,6,7,8,9,10,11
	sd	s\n, 24 + 8 * \n(sp)
	.endr
	li	a0, 0
	.irp	r, ra,gp,tp,t0,t1,t2,s0,s1,a1,a2,a3,a4,a5,a6,a7,s2,s3,s4,s5,s6,s7,s8,s9,s10,s11,t3,t4,t5,t6
	via	\r
	.endr
	ld	ra, 0(sp)
	ld	gp, 8(sp)
	ld	tp, 16(sp)
	ld	s0, 24(sp)
	ld	s1, 32(sp)
	.irp	n, 2,3,4,5,6,7,8,9,10,11
	ld	s\n, 24 + 8 * \n(sp)
	.endr
	addi	sp, sp, 128
	ret
