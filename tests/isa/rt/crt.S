/* SPDX-License-Identifier: MIT */
/*
 * The start of a test program: the same on our engine and on qemu-riscv64, so it trusts no register.
 */
	.section .text.start, "ax"
	.globl	_start
	.type	_start, @function
_start:
	.option push
	.option norelax
	lla	gp, __global_pointer$
	.option pop
	lla	tp, __tls_base
	lla	sp, __stack
	li	a0, 0
	li	a1, 0
	call	main
	tail	_exit		/* not exit: picolibc tests a weak symbol there, which a PIE gets wrong */
	.size	_start, . - _start
