// SPDX-License-Identifier: MIT
/*
 * Trapped pages: every form of store that a program may ring a doorbell with is seen, once, with its bytes and its
 * effect on registers; what is no store that we know ends as a fault of the program's own.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <asm/prctl.h>
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/trap/trap.h"

enum { MAX_CALLS = 64 };

static struct call {
	size_t offset, size;
	uint8_t data[64];
} calls[MAX_CALLS];
static unsigned int num_calls;

static void record(void *arg, size_t offset, const void *data, size_t size)
{
	assert_ptr_equal(arg, calls);
	assert_in_range(num_calls, 0, MAX_CALLS - 1);
	calls[num_calls].offset = offset;
	calls[num_calls].size = size;
	memcpy(calls[num_calls].data, data, size);
	num_calls++;
}

static uint8_t *page;

/* In the test itself: cmocka puts a SIGSEGV handler of its own in front before each. */
static void begin(void)
{
	page = vb_trap_map(4096, record, calls);
	assert_non_null(page);
	num_calls = 0;
}

static void end(void)
{
	vb_trap_unmap(page);
}

static void expect(unsigned int call, size_t offset, const void *data, size_t size)
{
	assert_in_range(call, 0, num_calls - 1);
	assert_int_equal(calls[call].offset, offset);
	assert_int_equal(calls[call].size, size);
	assert_memory_equal(calls[call].data, data, size);
}

static void moves_of_general_registers(void **state)
{
	uint64_t value = 0x1122334455667788, base, index = 4;
	uint64_t turned = __builtin_bswap64(value);
	uint32_t imm = 0xcafef00d;
	int64_t sign = -2;

	begin();
	base = (uint64_t)page;
	__asm__ volatile("movb %b0, 1(%1)" ::"r"(value), "r"(base) : "memory");
	__asm__ volatile("movw %w0, 2(%1)" ::"r"(value), "r"(base) : "memory");
	__asm__ volatile("movl %k0, 0x14(%1)" ::"r"(value), "r"(base) : "memory");
	__asm__ volatile("movq %q0, 0x20(%1)" ::"r"(value), "r"(base) : "memory");
	__asm__ volatile("movb %%ah, 8(%1,%2,8)" ::"a"(value), "r"(base), "r"(index) : "memory");
	__asm__ volatile("movl $0xcafef00d, 0x30(%0)" ::"r"(base) : "memory");
	__asm__ volatile("movq $-2, 0x38(%0)" ::"r"(base) : "memory");
	__asm__ volatile("movntiq %q0, 0x40(%1)" ::"r"(value), "r"(base) : "memory");
	__asm__ volatile("movbe %q0, 0x48(%1)" ::"r"(value), "r"(base) : "memory");
	__asm__ volatile("movq %%r12, (%1)" ::"r"(value), "r"(base) : "memory");
	assert_int_equal(num_calls, 10);
	expect(0, 1, &value, 1);
	expect(1, 2, &value, 2);
	expect(2, 0x14, &value, 4);
	expect(3, 0x20, &value, 8);
	expect(4, 40, (uint8_t *)&value + 1, 1);
	expect(5, 0x30, &imm, 4);
	expect(6, 0x38, &sign, 8);
	expect(7, 0x40, &value, 8);
	expect(8, 0x48, &turned, 8);
	assert_int_equal(calls[9].size, 8);
	/* It never takes what is stored. */
	for (int i = 0; i < 4096; i++)
		assert_int_equal(page[i], 0);
	end();
}

static void moves_of_vector_registers(void **state)
{
	uint8_t v[64];

	begin();
	for (unsigned int i = 0; i < sizeof(v); i++)
		v[i] = (uint8_t)(i * 7 + 1);
	__asm__ volatile("movdqu %0, %%xmm9\n"
			 "movups %%xmm9, (%1)\n"
			 "movdqa %%xmm9, 16(%1)\n"
			 "movntdq %%xmm9, 32(%1)\n"
			 "movq %%xmm9, 0x20(%1)\n"
			 "movd %%xmm9, 0x14(%1)\n"
			 "movhps %%xmm9, 8(%1)\n"
			 "movlpd %%xmm9, 8(%1)\n"
			 "movss %%xmm9, 4(%1)\n"
			 "movsd %%xmm9, 4(%1)\n"
			 :
			 : "m"(v), "r"(page)
			 : "xmm9", "memory");
	assert_int_equal(num_calls, 9);
	expect(0, 0, v, 16);
	expect(1, 16, v, 16);
	expect(2, 32, v, 16);
	expect(3, 0x20, v, 8);
	expect(4, 0x14, v, 4);
	expect(5, 8, v + 8, 8);
	expect(6, 8, v, 8);
	expect(7, 4, v, 4);
	expect(8, 4, v, 8);
	if (__builtin_cpu_supports("avx")) {
		__asm__ volatile("vmovdqu %0, %%ymm3\n"
				 "vmovdqu %%ymm3, 64(%1)\n"
				 "vmovntps %%ymm3, 96(%1)\n"
				 "vmovq %%xmm3, (%1)\n"
				 "vzeroupper\n"
				 :
				 : "m"(v), "r"(page)
				 : "xmm3", "memory");
		assert_int_equal(num_calls, 12);
		expect(9, 64, v, 32);
		expect(10, 96, v, 32);
		expect(11, 0, v, 8);
	}
	if (__builtin_cpu_supports("avx512f")) {
		__asm__ volatile("vmovdqu64 %0, %%zmm4\n"
				 "vmovdqu64 %%zmm4, 128(%1)\n"
				 "vmovdqu64 %0, %%zmm20\n"
				 "vmovntdq %%zmm20, 192(%1)\n"
				 "vzeroupper\n"
				 :
				 : "m"(v), "r"(page)
				 : "xmm4", "memory");
		assert_int_equal(num_calls, 14);
		expect(12, 128, v, 64);
		expect(13, 192, v, 64);
	}
	end();
}

static void fill_vector(uint8_t v[64])
{
	for (unsigned int i = 0; i < 64; i++)
		v[i] = (uint8_t)(i * 5 + 3);
}

/* What compilers make of moves of a part, and of unaligned moves of 32 bytes. */
static void elements_of_vector_registers(void **state)
{
	uint8_t v[64];

	begin();
	fill_vector(v);
	if (!__builtin_cpu_supports("sse4.1"))
		skip();
	__asm__ volatile("movdqu %0, %%xmm9\n"
			 "pextrb $3, %%xmm9, (%1)\n"
			 "pextrw $2, %%xmm9, 2(%1)\n"
			 "pextrd $1, %%xmm9, 0x14(%1)\n"
			 "pextrq $1, %%xmm9, 0x20(%1)\n"
			 "extractps $3, %%xmm9, 0x14(%1)\n"
			 :
			 : "m"(v), "r"(page)
			 : "xmm9", "memory");
	assert_int_equal(num_calls, 5);
	expect(0, 0, v + 3, 1);
	expect(1, 2, v + 4, 2);
	expect(2, 0x14, v + 4, 4);
	expect(3, 0x20, v + 8, 8);
	expect(4, 0x14, v + 12, 4);
	if (__builtin_cpu_supports("avx2")) {
		__asm__ volatile("vmovdqu %0, %%ymm3\n"
				 "vextractf128 $1, %%ymm3, 16(%1)\n"
				 "vextracti128 $0, %%ymm3, 32(%1)\n"
				 "vpextrd $2, %%xmm3, 0x14(%1)\n"
				 "vzeroupper\n"
				 :
				 : "m"(v), "r"(page)
				 : "xmm3", "memory");
		assert_int_equal(num_calls, 8);
		expect(5, 16, v + 16, 16);
		expect(6, 32, v, 16);
		expect(7, 0x14, v + 8, 4);
	}
	if (__builtin_cpu_supports("avx512f")) {
		__asm__ volatile("vmovdqu64 %0, %%zmm20\n"
				 "vextracti32x4 $3, %%zmm20, 16(%1)\n"
				 "vextractf64x4 $1, %%zmm20, 64(%1)\n"
				 "vzeroupper\n"
				 :
				 : "m"(v), "r"(page)
				 : "memory");
		assert_int_equal(num_calls, 10);
		expect(8, 16, v + 48, 16);
		expect(9, 64, v + 32, 32);
	}
	end();
}

/* Only what the mask selects, also where the rest would lie outside of the page. */
static void masked_stores(void **state)
{
	static const uint32_t select[8] = { 0, 0x80000000, 0xffffffff, 0x7fffffff, 0, 1u << 31 };
	uint8_t v[64];

	begin();
	fill_vector(v);
	if (!__builtin_cpu_supports("avx2"))
		skip();
	__asm__ volatile("vmovdqu %0, %%ymm3\n"
			 "vmovdqu %2, %%ymm4\n"
			 "vpmaskmovd %%ymm3, %%ymm4, (%1)\n"
			 "vmaskmovps %%ymm3, %%ymm4, 4072(%1)\n"
			 "vzeroupper\n"
			 :
			 : "m"(v), "r"(page), "m"(select)
			 : "xmm3", "xmm4", "memory");
	assert_int_equal(num_calls, 4);
	expect(0, 4, v + 4, 8);
	expect(1, 20, v + 20, 4);
	expect(2, 4076, v + 4, 8);
	expect(3, 4092, v + 20, 4);
	if (__builtin_cpu_supports("avx512bw")) {
		__asm__ volatile("vmovdqu64 %0, %%zmm20\n"
				 "kmovw %2, %%k1\n"
				 "vmovdqu32 %%zmm20, (%1)%{%%k1%}\n"
				 "vmovdqu8 %%zmm20, 64(%1)%{%%k1%}\n"
				 "vmovups %%zmm20, 4072(%1)%{%%k1%}\n"
				 "vzeroupper\n"
				 :
				 : "m"(v), "r"(page), "r"(0x29)
				 : "memory");
		assert_int_equal(num_calls, 13);
		expect(4, 0, v, 4);
		expect(5, 12, v + 12, 4);
		expect(6, 20, v + 20, 4);
		expect(7, 64, v, 1);
		expect(8, 67, v + 3, 1);
		expect(9, 69, v + 5, 1);
		expect(10, 4072, v, 4);
	}
	end();
}

/* By an address that is relative to a thread's own. */
static void segments(void **state)
{
	uint64_t fs = 0, gs = 0, value = 0x1122334455667788;

	begin();
	syscall(SYS_arch_prctl, ARCH_GET_FS, &fs);
	syscall(SYS_arch_prctl, ARCH_GET_GS, &gs);
	__asm__ volatile("movl %k0, %%fs:0x14(%1)" ::"r"(value), "r"((uint64_t)page - fs)
			 : "memory");
	syscall(SYS_arch_prctl, ARCH_SET_GS, page);
	__asm__ volatile("movq %q0, %%gs:0x20" ::"r"(value) : "memory");
	syscall(SYS_arch_prctl, ARCH_SET_GS, gs);
	assert_int_equal(num_calls, 2);
	expect(0, 0x14, &value, 4);
	expect(1, 0x20, &value, 8);
	end();
}

static bool has_movdir64b(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & 1u << 28);
}

static void blocks_of_memory(void **state)
{
	uint8_t v[64];

	begin();
	fill_vector(v);
	if (!has_movdir64b())
		skip();
	__asm__ volatile("movdir64b %0, %1" ::"m"(v), "r"(page + 128) : "memory");
	assert_int_equal(num_calls, 1);
	expect(0, 128, v, 64);
	end();
}

static void exchange_reads_zero(void **state)
{
	uint64_t a = 0x1111222233334444, b = a, c = a, d = a;

	begin();
	__asm__ volatile("xchgq %0, (%1)" : "+r"(a) : "r"(page) : "memory");
	__asm__ volatile("xchgl %k0, 4(%1)" : "+r"(b) : "r"(page) : "memory");
	__asm__ volatile("xchgw %w0, 8(%1)" : "+r"(c) : "r"(page) : "memory");
	__asm__ volatile("xchgb %%ah, 12(%1)" : "+a"(d) : "r"(page) : "memory");
	assert_int_equal(a, 0);
	assert_int_equal(b, 0);
	assert_true(c == 0x1111222233330000);
	assert_true(d == 0x1111222233330044);
	assert_int_equal(num_calls, 4);
	assert_int_equal(calls[0].size, 8);
	assert_int_equal(calls[3].data[0], 0x44);
	end();
}

static void string_stores(void **state)
{
	uint32_t words[40];
	uint64_t count = 5, at, from = (uint64_t)words;

	begin();
	at = (uint64_t)page + 0x100;
	for (uint32_t i = 0; i < 40; i++)
		words[i] = i * 0x01010101;
	__asm__ volatile("rep stosl" : "+c"(count), "+D"(at) : "a"(7) : "memory");
	assert_int_equal(count, 0);
	assert_ptr_equal((void *)at, page + 0x114);
	assert_int_equal(num_calls, 1);
	assert_int_equal(calls[0].size, 20);
	assert_int_equal(calls[0].data[16], 7);

	/* 150 bytes come in pieces, in order. */
	num_calls = 0;
	count = 150;
	at = (uint64_t)page + 3;
	__asm__ volatile("rep movsb" : "+c"(count), "+D"(at), "+S"(from) : : "memory");
	assert_int_equal(count, 0);
	assert_ptr_equal((void *)from, (char *)words + 150);
	assert_int_equal(num_calls, 3);
	expect(0, 3, words, 64);
	expect(1, 67, (char *)words + 64, 64);
	expect(2, 131, (char *)words + 128, 22);

	/* Downwards: each element for itself. */
	num_calls = 0;
	count = 2;
	at = (uint64_t)page + 8;
	from = (uint64_t)(words + 8);
	__asm__ volatile("std; rep movsq; cld"
			 : "+c"(count), "+D"(at), "+S"(from)
			 :
			 : "memory", "cc");
	assert_int_equal(num_calls, 2);
	expect(0, 8, words + 8, 8);
	expect(1, 0, words + 6, 8);
	assert_ptr_equal((void *)at, page - 8);

	num_calls = 0;
	at = (uint64_t)page;
	__asm__ volatile("stosq" : "+D"(at) : "a"(9) : "memory");
	assert_int_equal(num_calls, 1);
	assert_ptr_equal((void *)at, page + 8);
	end();
}

/* A fill that runs into the page from the one before. */
static void string_store_across_the_page(void **state)
{
	uint64_t count = 4096 + 64, at;
	uint8_t *before;

	begin();
	before = mmap(page - 4096, 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (before == MAP_FAILED) {
		end();
		skip();
	}
	at = (uint64_t)before;
	__asm__ volatile("rep stosb" : "+c"(count), "+D"(at) : "a"(0x5a) : "memory");
	assert_int_equal(count, 0);
	assert_int_equal(num_calls, 1);
	assert_int_equal(calls[0].offset, 0);
	assert_int_equal(calls[0].size, 64);
	assert_int_equal(before[4095], 0x5a);
	munmap(before, 4096);
	end();
}

static atomic_uint total;
static _Atomic uint64_t sum;

static void count_store(void *arg, size_t offset, const void *data, size_t size)
{
	uint32_t value;

	memcpy(&value, data, sizeof(value));
	atomic_fetch_add(&total, 1);
	atomic_fetch_add(&sum, value);
}

enum { THREADS = 4, STORES = 20000 };

static void *store_many(void *arg)
{
	uint32_t *bell = arg;

	for (uint32_t i = 1; i <= STORES; i++)
		__atomic_store_n(bell, i, __ATOMIC_RELAXED); /* a mov */
	return NULL;
}

/* Stores of several threads to one address: each is seen. */
static void threads_lose_nothing(void **state)
{
	void *bell = vb_trap_map(4096, count_store, NULL);
	pthread_t threads[THREADS];

	assert_non_null(bell);
	total = 0;
	sum = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, store_many, (char *)bell + 0x14),
				 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(total, THREADS * STORES);
	assert_true(sum == (uint64_t)THREADS * STORES * (STORES + 1) / 2);
	vb_trap_unmap(bell);
}

/* A callback that needs more stack than the program's alternate stack has. */
static void deep_store(void *arg, size_t offset, const void *data, size_t size)
{
	volatile char large[32768];

	for (size_t i = 0; i < sizeof(large); i += 512)
		large[i] = (char)offset;
	atomic_fetch_add(&total, 1 + (unsigned int)large[512] * 0);
}

static void small_alternate_stack(void **state)
{
	size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 4096;
	stack_t stack = { .ss_sp = malloc(size), .ss_size = size }, now;
	volatile uint32_t *bell = vb_trap_map(4096, deep_store, NULL);

	assert_int_equal(sigaltstack(&stack, NULL), 0);
	total = 0;
	for (int i = 0; i < 100; i++)
		bell[1] = 1;
	assert_int_equal(total, 100);
	/* And it is in place again. */
	assert_int_equal(sigaltstack(NULL, &now), 0);
	assert_ptr_equal(now.ss_sp, stack.ss_sp);
	assert_int_equal(now.ss_flags, 0);
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
	free(stack.ss_sp);
	vb_trap_unmap((void *)bell);
}

/* What was decoded at an address is not believed of other code that comes there. */
static void replaced_code(void **state)
{
	static const uint8_t stores[][8] = {
		{ 0x89, 0x37, 0xc3 },             /* mov %esi, (%rdi) */
		{ 0x48, 0x89, 0x77, 0x08, 0xc3 }, /* mov %rsi, 8(%rdi) */
		{ 0x66, 0x89, 0x37, 0xc3 },       /* mov %si, (%rdi) */
	};
	static const size_t offsets[] = { 0, 8, 0 }, sizes[] = { 4, 8, 2 };
	void *text = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t value = 0x1122334455667788;

	begin();
	for (unsigned int i = 0; i < 9; i++) {
		void (*store)(void *, uint64_t);

		num_calls = 0;
		assert_int_equal(mprotect(text, 4096, PROT_READ | PROT_WRITE), 0);
		memcpy(text, stores[i % 3], sizeof(stores[0]));
		assert_int_equal(mprotect(text, 4096, PROT_READ | PROT_EXEC), 0);
		*(void **)&store = text;
		for (unsigned int k = 0; k < 3; k++) {
			store(page, value);
			expect(k, offsets[i % 3], &value, sizes[i % 3]);
		}
		assert_int_equal(num_calls, 3);
	}
	end();
	munmap(text, 4096);
}

static int status_of(void (*act)(void), char *text, size_t len)
{
	int status, pipes[2];
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (!pid) {
		dup2(pipes[1], STDERR_FILENO);
		signal(SIGSEGV, SIG_DFL);
		/* cmocka's own handlers are not wanted here */
		act();
		_exit(0);
	}
	close(pipes[1]);
	n = read(pipes[0], text, len - 1);
	text[n > 0 ? n : 0] = '\0';
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void store_unknown(void)
{
	void *bell = vb_trap_map(4096, record, calls);

	__asm__ volatile("lock; addl $1, (%0)" ::"r"(bell) : "memory");
}

static void store_unmapped(void)
{
	volatile uint32_t *bell = vb_trap_map(4096, record, calls);

	vb_trap_unmap((void *)bell);
	*bell = 1;
}

static void others_are_the_programs_faults(void **state)
{
	char text[512];
	int status = status_of(store_unknown, text, sizeof(text));

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	assert_non_null(strstr(text, "verbatim: cannot decode the store to doorbell page"));
	assert_non_null(strstr(text, "f0 83"));
	status = status_of(store_unmapped, text, sizeof(text));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	assert_string_equal(text, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves_of_general_registers),
		cmocka_unit_test(moves_of_vector_registers),
		cmocka_unit_test(elements_of_vector_registers),
		cmocka_unit_test(masked_stores),
		cmocka_unit_test(segments),
		cmocka_unit_test(blocks_of_memory),
		cmocka_unit_test(exchange_reads_zero),
		cmocka_unit_test(string_stores),
		cmocka_unit_test(string_store_across_the_page),
		cmocka_unit_test(threads_lose_nothing),
		cmocka_unit_test(small_alternate_stack),
		cmocka_unit_test(replaced_code),
		cmocka_unit_test(others_are_the_programs_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
