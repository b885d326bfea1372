/* SPDX-License-Identifier: MIT */
/*
 * hbl: what a doorbell costs. A doorbell is a store that traps, so the limit beside it is a bare fault: a store into a
 * protected page whose handler only steps over the instruction.
 *
 *	hbl doorbell    a NOP, rung by one 64-bit store, and its completion read from memory
 *	hbl write       the same with a LINEAR write of 8 bytes to a queue pair of the same process
 *	hbl batch       a NOP where one doorbell rings 32
 */
#include "bench.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "../../tests/hbl/hbl.h"

enum { BATCH = 32, WQES = 64 };

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

int main(int argc, char **argv)
{
	struct bench bench = { .quick = argc > 1 && !strcmp(argv[1], "--quick") };

	bench.repeats = bench.quick ? 1 : BENCH_REPEATS;
	measure_fault(&bench);
	set_up();
	bench_pin(0); /* this thread, not the card's */
	measure(&bench, "hbl doorbell", NOP, 1);
	measure(&bench, "hbl write", LINEAR, 1);
	measure(&bench, "hbl batch", NOP, BATCH);
	return 0;
}
