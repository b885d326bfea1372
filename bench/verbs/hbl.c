// SPDX-License-Identifier: MIT
/*
 * hbl: what a doorbell costs. A doorbell is a store that traps until it is patched; beside it is a bare fault: a store into a
 * protected page whose handler only steps over the instruction.
 *
 *	hbl doorbell    a NOP, rung by one 64-bit store, and its completion read from memory
 *	hbl write       the same with a LINEAR write of 8 bytes to a queue pair of the same process
 *	hbl batch       a NOP where one doorbell rings 32
 *	hbl pingpong    writes of 8 bytes to and fro between hbl_0 and hbl_1 in two processes that spin on their CQs: half
 *	                a round. Who rings writes into the target's memory, so the limit is a bare process_vm_writev
 *	hbl wake        what it would cost to wake a thread instead: a sleeping thread is woken, and answers in memory
 *	                that the other one spins on
 */
#include "bench.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "../../tests/hbl/hbl.h"

enum { BATCH = 32, WQES = 64, ASLEEP_NS = 20000 /* by then a thread with nothing to do sleeps */ };

#ifdef __x86_64__
static void step_over(int sig, siginfo_t *info, void *context)
{
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* movl %eax, (%rdi) */
}

/* Before a device is opened: then the handler is the program's own and nobody's else. */
static void measure_fault(const struct bench *bench)
{
	struct sigaction action = { .sa_sigaction = step_over, .sa_flags = SA_SIGINFO }, before;
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t count = bench_iterations(bench, 8);
	double samples[BENCH_REPEATS];

	sigaction(SIGSEGV, &action, &before);
	for (int r = 0; r < bench->repeats; r++) {
		double start = bench_now();

		for (uint64_t i = 0; i < count; i++)
			__asm__ volatile("movl %%eax, (%%rdi)" : : "D"(page), "a"(1) : "memory");
		samples[r] = (bench_now() - start) / (double)count;
	}
	sigaction(SIGSEGV, &before, NULL);
	munmap(page, 4096);
	bench_print("hbl fault", "limit", 8, "ns", samples, bench->repeats);
}
#else
static void measure_fault(const struct bench *bench)
{
}
#endif

/* --- a wake-up ---------------------------------------------------------------------------------------------------- */

static struct {
	_Alignas(64) _Atomic uint32_t asked; /* futex */
	_Alignas(64) _Atomic uint32_t answered;
	uint32_t count;
} wake;

static void *sleeper(void *arg)
{
	for (uint32_t seen = 0; seen < wake.count; seen++) {
		while (wake.asked == seen)
			syscall(SYS_futex, &wake.asked, FUTEX_WAIT, seen, NULL, NULL, 0);
		wake.answered = seen + 1;
	}
	return NULL;
}

static void measure_wake(const struct bench *bench)
{
	double samples[BENCH_REPEATS];
	pthread_t thread;

	wake.count = bench->quick ? 100 : 5000;
	for (int r = 0; r < bench->repeats; r++) {
		double spent = 0;

		wake.asked = wake.answered = 0;
		pthread_create(&thread, NULL, sleeper, NULL);
		for (uint32_t i = 0; i < wake.count; i++) {
			double start = bench_now();

			while (bench_now() - start < ASLEEP_NS)
				;
			start = bench_now();
			wake.asked = i + 1;
			syscall(SYS_futex, &wake.asked, FUTEX_WAKE, 1, NULL, NULL, 0);
			while (wake.answered != i + 1)
				;
			spent += bench_now() - start;
		}
		samples[r] = spent / wake.count;
		pthread_join(thread, NULL);
	}
	bench_print("hbl wake", "limit", 8, "ns", samples, bench->repeats);
}

/* --- doorbells ---------------------------------------------------------------------------------------------------- */

static struct {
	struct dev dev;
	struct mem mem;
	struct end end;
	struct fifo fifo;
} b;

static void set_up(void)
{
	struct address self;

	dev_open(&b.dev, 0);
	set_port(&b.dev, 1);
	mem_host(&b.mem, &b.dev, 4096);
	hbl_end_create(&b.end, &b.dev, &(struct end_attr){ .port = 1, .wqes = WQES });
	hbl_end_address(&b.end, &self);
	hbl_end_connect(&b.end, &self, NULL);
	fifo_create(&b.fifo, &b.dev, 1, HBLDV_USR_FIFO_TYPE_DB);
}

static void measure(const struct bench *bench, const char *name, uint32_t opcode, int batch)
{
	const struct wqe wqe = { .opcode = opcode,
				 .size = opcode == LINEAR ? 8 : 0,
				 .local = b.mem.va,
				 .remote = b.mem.va + 64 };
	uint64_t count = bench_iterations(bench, 8) / (uint64_t)batch;
	double samples[BENCH_REPEATS];
	struct cqe cqe;

	for (int r = 0; r < bench->repeats; r++) {
		double start = bench_now();

		for (uint64_t i = 0; i < count; i++) {
			for (int k = 0; k < batch; k++)
				hbl_end_post(&b.end, &wqe, k == batch - 1);
			fifo_ring(&b.fifo, b.end.q.qp_num, hbl_end_pi(&b.end));
			while (!hbl_cq_poll(&b.end.req, &cqe))
				;
		}
		samples[r] = (bench_now() - start) / (double)count / batch;
	}
	bench_print(name, "one", 8, "ns", samples, bench->repeats);
}

/* --- two processes ------------------------------------------------------------------------------------------------ */

static struct bench bench;

static void connect_side(int number, int fd, struct address *peer)
{
	struct address own;

	dev_open(&b.dev, number);
	set_port(&b.dev, 1);
	mem_host(&b.mem, &b.dev, 4096);
	hbl_end_create(&b.end, &b.dev, &(struct end_attr){ .port = 1, .wqes = WQES });
	hbl_end_address(&b.end, &own);
	own.va = b.mem.va;
	tell(fd, &own, sizeof(own));
	hear(fd, peer, sizeof(*peer));
	hbl_end_connect(&b.end, peer, NULL);
	fifo_create(&b.fifo, &b.dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	meet(fd);
	bench_pin(number);
}

static void spin(struct cq *cq)
{
	struct cqe cqe;

	while (!hbl_cq_poll(cq, &cqe))
		;
}

static void pingpong(int number, int fd)
{
	uint32_t count = bench.quick ? 50 : 2000;
	double samples[BENCH_REPEATS];
	struct address peer;

	connect_side(number, fd, &peer);
	for (int r = 0; r < bench.repeats; r++) {
		double start = bench_now();

		for (uint32_t i = 0; i < count; i++) {
			if (number)
				spin(&b.end.res);
			hbl_end_write(&b.end, &b.fifo, b.mem.va, peer.va + 64, 8, i);
			spin(&b.end.req);
			if (!number)
				spin(&b.end.res);
		}
		samples[r] = (bench_now() - start) / count / 2;
	}
	if (!number)
		bench_print("hbl pingpong", "two", 8, "ns", samples, bench.repeats);
	meet(fd);
}

int main(int argc, char **argv)
{
	bool doorbells = argc > 1 && !strcmp(argv[1], "doorbells"); /* these rows alone */

	bench.quick = argc > 1 && !strcmp(argv[argc - 1], "--quick");
	bench.repeats = bench.quick ? 1 : BENCH_REPEATS;
	measure_fault(&bench);
	if (!doorbells) {
		measure_wake(&bench);
		if (run_pair(pingpong))
			return 1;
	}
	set_up();
	bench_pin(0); /* this thread, not the card's */
	measure(&bench, "hbl doorbell", NOP, 1);
	measure(&bench, "hbl write", LINEAR, 1);
	measure(&bench, "hbl batch", NOP, BATCH);
	return 0;
}
