// SPDX-License-Identifier: MIT
/*
 * Device code without the device library: calls the run-time system itself, also with arguments that the library would
 * never make. Functions take one uint64_t, or come with an unpack function written by hand.
 */
#include <stddef.h>
#include <stdint.h>

#include "../../../src/device/rtos.h"

#define EXPORT __attribute__((used, visibility("default")))

EXPORT const uint64_t __flexio_dev_abi_version = VB_RTOS_ABI_VERSION;
EXPORT volatile uint8_t __flexio_dev_msg_levels[256];

static uint64_t ecall(uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	register uint64_t a0 __asm__("a0") = a;
	register uint64_t a1 __asm__("a1") = b;
	register uint64_t a2 __asm__("a2") = c;
	register uint64_t a3 __asm__("a3") = d;
	register uint64_t a7 __asm__("a7") = number;

	__asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a7) : "memory");
	return a0;
}

/* ---- calls ---- */

EXPORT uint64_t add_one(uint64_t arg)
{
	return arg + 1;
}

/* A name of 256 bytes, the longest that there can be. */
#define F64 "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
EXPORT uint64_t longest_name(uint64_t arg) __asm__(F64 F64 F64 F64);

EXPORT uint64_t longest_name(uint64_t arg)
{
	return arg + 256;
}

EXPORT uint64_t many(int8_t a, uint16_t b, int32_t c, uint64_t d, const void *e)
{
	return (uint64_t)a * 1000003 + b * 1009 + (uint64_t)(int64_t)c * 31 + d + (uint64_t)e;
}

EXPORT uint64_t unpack_many(void *argbuf, void *func)
{
	uint64_t *a = argbuf;
	uint64_t (*f)(int8_t, uint16_t, int32_t, uint64_t, const void *) = func;

	return f((int8_t)a[0], (uint16_t)a[1], (int32_t)a[2], a[3], (const void *)a[4]);
}

EXPORT uint64_t raw_call(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	return ecall(a[0], a[1], a[2], a[3], a[4]);
}

static uint64_t counter;
static _Thread_local uint64_t mine = 7;

EXPORT uint64_t count(uint64_t arg)
{
	return __atomic_add_fetch(&counter, arg, __ATOMIC_RELAXED);
}

EXPORT uint64_t count_mine(uint64_t arg)
{
	return mine += arg;
}

EXPORT uint64_t spin(uint64_t n)
{
	volatile uint64_t i;

	for (i = 0; i < n; i++)
		;
	return i;
}

/* Retires 2 * n + 1 instructions; n is not 0. */
EXPORT __attribute__((naked)) uint64_t counted(uint64_t n)
{
	__asm__ volatile("1: addi a0, a0, -1\n"
			 "bnez a0, 1b\n"
			 "ret");
}

EXPORT uint64_t forever(uint64_t flag)
{
	for (;;)
		if (flag)
			__atomic_add_fetch((uint64_t *)flag, 1, __ATOMIC_RELAXED);
}

/* Wait until a word of device memory has a value. */
EXPORT uint64_t wait_for(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	while (__atomic_load_n((uint64_t *)a[0], __ATOMIC_ACQUIRE) < a[1])
		ecall(VB_RTOS_RELAX, 0, 0, 0, 0);
	return __atomic_load_n((uint64_t *)a[0], __ATOMIC_ACQUIRE);
}

EXPORT uint64_t context(uint64_t field)
{
	const struct vb_rtos_thread *t =
		(const struct vb_rtos_thread *)ecall(VB_RTOS_THREAD_CTX, 0, 0, 0, 0);

	switch (field) {
	case 0:
		return t->thread_id;
	case 1:
		return t->flags;
	case 2:
		return t->tls;
	case 3:
		return t->metadata_parameter == (uint64_t)&t->thread_id;
	default:
		return (uint64_t)t;
	}
}

/* ---- memory ---- */

EXPORT uint64_t sum(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	const uint8_t *p = (const uint8_t *)a[0];
	uint64_t s = 0;

	for (uint64_t i = 0; i < a[1]; i++)
		s = s * 31 + p[i];
	return s;
}

EXPORT uint64_t global_addr(uint64_t which)
{
	return which == 0   ? (uint64_t)&counter
	       : which == 1 ? (uint64_t)&__flexio_dev_abi_version
			    : (uint64_t)&add_one;
}

EXPORT uint64_t level_of(uint64_t stream)
{
	return __flexio_dev_msg_levels[stream & 255];
}

/* args: how often, number and arguments of a call, a word that counts. */
EXPORT uint64_t repeat(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	for (uint64_t i = 0; i < a[0]; i++) {
		ecall(a[1], a[2], a[3], a[4], a[5]);
		__atomic_add_fetch((uint64_t *)a[6], 1, __ATOMIC_RELAXED);
	}
	return 0;
}

/* args: how often, a word that counts. Doorbells of a queue that does not exist. */
EXPORT uint64_t ring_often(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	const struct vb_rtos_thread *ctx =
		(const struct vb_rtos_thread *)ecall(VB_RTOS_THREAD_CTX, 0, 0, 0, 0);
	volatile uint64_t *send = (volatile uint64_t *)(ctx->outbox_base + 0x1c0);
	volatile uint64_t *count = (volatile uint64_t *)a[1];

	for (uint64_t i = 0; i < a[0]; i++) {
		*send = 0xffffffULL << 32;
		*count = i + 1;
	}
	return 0;
}

/* ---- windows ---- */

/* args: address, size. */
EXPORT uint64_t peek(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	switch (a[1]) {
	case 1:
		return *(volatile uint8_t *)a[0];
	case 2:
		return *(volatile uint16_t *)a[0];
	case 4:
		return *(volatile uint32_t *)a[0];
	default:
		return *(volatile uint64_t *)a[0];
	}
}

/* args: address, size, value. */
EXPORT uint64_t poke(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	switch (a[1]) {
	case 1:
		*(volatile uint8_t *)a[0] = (uint8_t)a[2];
		break;
	case 2:
		*(volatile uint16_t *)a[0] = (uint16_t)a[2];
		break;
	case 4:
		*(volatile uint32_t *)a[0] = (uint32_t)a[2];
		break;
	default:
		*(volatile uint64_t *)a[0] = a[2];
	}
	return 0;
}

/* args: address, number. */
EXPORT uint64_t fetch_add(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	return __atomic_fetch_add((uint64_t *)a[0], a[1], __ATOMIC_SEQ_CST);
}

/* args: address, number, how often. */
EXPORT uint64_t add_often(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	for (uint64_t i = 0; i < a[2]; i++)
		__atomic_fetch_add((uint64_t *)a[0], a[1], __ATOMIC_SEQ_CST);
	return a[2];
}

/*
 * args: window id, two times (key, address, what is there), rounds. Configures either key in turns, reads, and adds 1 to
 * the word behind. Returns the number of rounds that saw what they should.
 */
EXPORT uint64_t flip(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	uint64_t good = 0;

	for (uint64_t i = 0; i < a[7]; i++) {
		const uint64_t *m = a + 1 + (i & 1) * 3;
		volatile uint64_t *p;

		if (ecall(VB_RTOS_WINDOW_CONFIG, i >> 1 & 1, a[0], m[0], 0))
			continue;
		p = (volatile uint64_t *)ecall(VB_RTOS_WINDOW_PTR, i >> 1 & 1, m[1], 0, 0);
		good += p && p[0] == m[2];
		p[1]++;
	}
	return good;
}

/* args: window id, key, host address, source, length, a word that counts. Copies out again and again until refused. */
EXPORT uint64_t copy_on(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	ecall(VB_RTOS_WINDOW_CONFIG, 0, a[0], a[1], 0);
	while (!ecall(VB_RTOS_WINDOW_WRITE, 0, a[2], a[3], a[4]))
		__atomic_add_fetch((uint64_t *)a[5], 1, __ATOMIC_RELEASE);
	return 0;
}

/* The same, so many times at most: one word more. */
EXPORT uint64_t copy_some(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	uint64_t left = a[6];

	ecall(VB_RTOS_WINDOW_CONFIG, 0, a[0], a[1], 0);
	while (left-- && !ecall(VB_RTOS_WINDOW_WRITE, 0, a[2], a[3], a[4]))
		__atomic_add_fetch((uint64_t *)a[5], 1, __ATOMIC_RELEASE);
	return 0;
}

/* args: window id, key, host address, -, -, a word that counts. Adds to the first and stores until that traps. */
EXPORT uint64_t store_on(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	volatile uint64_t *p;

	ecall(VB_RTOS_WINDOW_CONFIG, 0, a[0], a[1], 0);
	p = (volatile uint64_t *)ecall(VB_RTOS_WINDOW_PTR, 0, a[2], 0, 0);
	for (;;) {
		p[0]++;
		p[100] = 1;
		__atomic_fetch_add((uint64_t *)p + 200, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch((uint64_t *)a[5], 1, __ATOMIC_RELEASE);
	}
}

/* ---- faults: every one that user code can raise ---- */

EXPORT uint64_t fault(uint64_t kind)
{
	static uint32_t word[4];

	switch (kind) {
	case 1:
		((void (*)(void))(16 + (uint64_t)word))();
		break;
	case 2:
		__asm__ volatile(".word 0xffffffff");
		break;
	case 3:
		__asm__ volatile("ebreak");
		break;
	case 4:
		__asm__ volatile("lr.w a5, (%0)" ::"r"((uint64_t)word + 1) : "a5", "memory");
		break;
	case 5:
		return *(volatile uint64_t *)8;
	case 6:
		__asm__ volatile("amoadd.w a5, a5, (%0)" ::"r"((uint64_t)word + 1)
				 : "a5", "memory");
		break;
	case 7:
		*(volatile uint64_t *)0xfff0000000 = 1;
		break;
	case 8:
		ecall(12345, 0, 0, 0, 0);
		break;
	default:
		break;
	}
	return kind;
}

EXPORT uint64_t overflow(uint64_t depth)
{
	volatile uint64_t frame[64];

	frame[depth & 63] = depth;
	return depth == UINT64_MAX ? 0 : overflow(depth + 1) + frame[depth & 63];
}

/* So many bytes of stack, touched from the top down. */
EXPORT uint64_t use_stack(uint64_t bytes)
{
	volatile char *frame = __builtin_alloca(bytes);

	for (uint64_t i = bytes; i--;)
		frame[i] = (char)i;
	return (uint64_t)frame[0] + bytes;
}

/* A buffer of so many bytes on the stack that nothing has touched is what the card is asked to read. */
EXPORT uint64_t lend_stack(uint64_t bytes)
{
	char *frame = __builtin_alloca(bytes);

	return ecall(VB_RTOS_MSG, 0, 4, (uint64_t)frame, 4);
}

/* ---- messages ---- */

static size_t put_number(char *to, uint64_t n)
{
	char digits[20];
	size_t len = 0;

	do
		digits[len++] = (char)('0' + n % 10);
	while (n /= 10);
	for (size_t i = 0; i < len; i++)
		to[i] = digits[len - 1 - i];
	return len;
}

/* args: stream, level, number. */
EXPORT uint64_t say(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	static const char start[] = "message ";
	char text[64];
	size_t len = sizeof(start) - 1;

	__builtin_memcpy(text, start, len);
	len += put_number(text + len, a[2]);
	text[len++] = '\n';
	return ecall(VB_RTOS_MSG, a[0], a[1], (uint64_t)text, len);
}

/* args: stream, level, number, address, value. */
EXPORT uint64_t say_and_wait(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	say(args);
	while (__atomic_load_n((uint64_t *)a[3], __ATOMIC_ACQUIRE) < a[4])
		;
	return 0;
}

/* args: stream, level, from, to. */
EXPORT uint64_t say_many(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	uint64_t one[3] = { a[0], a[1], 0 };

	for (one[2] = a[2]; one[2] < a[3]; one[2]++)
		say((uint64_t)one);
	return 0;
}

/*
 * Two handlers that print in turns. arg: stream, level, number, the other one's arg, its activation id, the last
 * number, 1 when it is printed.
 */
EXPORT void relay(uint64_t arg)
{
	volatile uint64_t *a = (volatile uint64_t *)arg;

	say(arg);
	if (a[2] == a[5]) {
		__atomic_store_n(&a[6], 1, __ATOMIC_RELEASE);
	} else {
		((volatile uint64_t *)a[3])[2] = a[2] + 1;
		ecall(VB_RTOS_ACTIVATE, a[4], 0, 0, 0);
	}
	ecall(VB_RTOS_RESCHEDULE, 0, 0, 0, 0);
}

/* ---- memory that goes ---- */

/* Leave the address of a buffer on the own stack in a word of device memory, and stay. */
EXPORT uint64_t show_stack(uint64_t word)
{
	volatile char buffer[40000];

	for (uint64_t i = 0; i < sizeof(buffer); i++)
		buffer[i] = 'x';
	__atomic_store_n((uint64_t *)word, (uint64_t)buffer, __ATOMIC_RELEASE);
	for (;;)
		buffer[0] = 'x';
}

/* args: address, length. Pretend that stdout still holds this text. */
EXPORT uint64_t hold_line(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	struct vb_rtos_thread *t = (struct vb_rtos_thread *)context(9);

	t->line = a[0];
	t->line_len = (uint32_t)a[1];
	return 0;
}

/* ---- event handlers ---- */

struct shared {
	uint64_t runs, arg, seen_tls, id;
	uint64_t how;       /* VB_RTOS_RESCHEDULE, ..., 0: return */
	uint64_t next;      /* activation id to pass the trigger on to, + 1; 0: none */
	uint64_t hops;      /* left to pass on */
	uint64_t hold;      /* do not end while this is set */
	uint64_t in;        /* set when a run has begun */
	uint64_t continued; /* runs that went on behind a yield */
};

EXPORT void handler(uint64_t arg)
{
	struct shared *s = (struct shared *)arg;
	uint64_t how;

	s->arg = arg;
	s->seen_tls = context(2);
	s->id = context(0);
	__atomic_add_fetch(&s->in, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&s->hold, __ATOMIC_ACQUIRE))
		;
	if (s->next && s->hops) {
		s->hops--;
		ecall(VB_RTOS_ACTIVATE, s->next - 1, 0, 0, 0);
	}
	how = s->how;
	__atomic_add_fetch(&s->runs, 1, __ATOMIC_SEQ_CST);
	if (how == VB_RTOS_RETRIGGER && s->runs >= 5)
		how = VB_RTOS_RESCHEDULE;
	if (how)
		ecall(how, 0, 0, 0, 0);
}

/* Counts in a register across yields. */
EXPORT void continuing(uint64_t arg)
{
	struct shared *s = (struct shared *)arg;

	for (uint64_t n = 1;; n++) {
		__atomic_add_fetch(&s->runs, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&s->continued, n, __ATOMIC_SEQ_CST);
		if (n == 1000000)
			break;
		ecall(VB_RTOS_YIELD, s->how == 1, 0, 0, 0);
		if (s->how == 2)
			break;
	}
}

EXPORT uint64_t activate(uint64_t id)
{
	return ecall(VB_RTOS_ACTIVATE, id, 0, 0, 0);
}

EXPORT uint64_t activate_many(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;

	for (uint64_t i = 0; i < a[1]; i++)
		ecall(VB_RTOS_ACTIVATE, a[0], 0, 0, 0);
	return 0;
}

/* ---- tasks of command queues ---- */

/* One task each. */
struct job {
	uint64_t tally;  /* address of a struct tally */
	uint64_t number; /* from 1 */
	uint64_t turns;  /* of a loop, to stay a little */
};

struct tally {
	uint64_t done, inside, most; /* most: of inside, ever */
	uint64_t
		log; /* address of words: (thread id << 32 | number) in the order of their beginning */
	uint64_t next; /* of the log */
};

EXPORT void job(uint64_t arg)
{
	const struct job *j = (const struct job *)arg;
	struct tally *t = (struct tally *)j->tally;
	uint64_t inside = __atomic_add_fetch(&t->inside, 1, __ATOMIC_SEQ_CST);
	uint64_t most = __atomic_load_n(&t->most, __ATOMIC_SEQ_CST);

	if (t->log)
		((uint64_t *)t->log)[__atomic_fetch_add(&t->next, 1, __ATOMIC_SEQ_CST)] =
			context(0) << 32 | j->number;
	while (inside > most && !__atomic_compare_exchange_n(&t->most, &most, inside, 0,
							     __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	spin(j->turns);
	__atomic_sub_fetch(&t->inside, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&t->done, 1, __ATOMIC_SEQ_CST);
}

/* Leave the thread's TLS address, which is that of a word, in that word. */
EXPORT void mark_tls(uint64_t arg)
{
	uint64_t tls = context(2);

	__atomic_add_fetch((uint64_t *)arg, tls ? 1 : 1ULL << 32, __ATOMIC_SEQ_CST);
	if (tls)
		__atomic_add_fetch((uint64_t *)tls, 1, __ATOMIC_SEQ_CST);
}

/* Overwrite everything that can be written between two addresses: args: from, to. */
EXPORT void scribble(uint64_t args)
{
	const uint64_t *a = (const uint64_t *)args;
	uint64_t from = a[0], to = a[1];

	for (; from < to; from += 8)
		*(volatile uint64_t *)from = 0xfefefefefefefefeULL;
}

/* ---- error handlers ---- */

static struct errors {
	uint64_t how;              /* 0: return; an end of rtos.h; 100 and more: see below */
	uint64_t count;            /* calls of the handler */
	uint64_t ctx, code, error; /* what it got, and the error number of its thread */
	uint64_t thread;           /* on which it ran */
	uint64_t stack;            /* address of a variable */
} errors;

EXPORT uint64_t errors_addr(uint64_t arg)
{
	return (uint64_t)&errors + arg;
}

EXPORT void on_error(uint64_t ctx, uint64_t code)
{
	const struct vb_rtos_thread *t = (const struct vb_rtos_thread *)ctx;
	volatile uint64_t here = 0;

	errors.ctx = ctx;
	errors.code = code;
	errors.error = t->os_errno;
	errors.thread = t->thread_id;
	errors.stack = (uint64_t)&here;
	__atomic_add_fetch(&errors.count, 1, __ATOMIC_SEQ_CST);
	switch (errors.how) {
	case 0:
		return;
	case 100:
		fault(2);
		break;
	case 101:
		forever(0);
		break;
	case 102:
		for (;;)
			ecall(VB_RTOS_RELAX, 0, 0, 0, 0);
	case 103:
		overflow(0);
		break;
	case 104: /* no trigger ends this: it has no effect here */
		ecall(VB_RTOS_YIELD, 0, 0, 0, 0);
		ecall(VB_RTOS_RESCHEDULE, 0, 0, 0, 0);
		break;
	case 105:
		for (;;)
			ecall(VB_RTOS_SBRK, 0, 0, 0, 0);
	default:
		ecall(errors.how, 0x91, 0, 0, 0);
	}
}

EXPORT void on_error_one(uint64_t ctx)
{
	on_error(ctx, 0);
}

/* A handler, or a task, that faults where its argument says so: arg: address of (kind, runs). */
EXPORT void faulty(uint64_t arg)
{
	uint64_t *a = (uint64_t *)arg;

	__atomic_add_fetch(&a[1], 1, __ATOMIC_SEQ_CST);
	if (a[0] == 9)
		overflow(0);
	fault(a[0]);
}
