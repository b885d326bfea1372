// SPDX-License-Identifier: MIT
/*
 * hbl: what a doorbell costs. A doorbell is a store that traps until it is patched; beside it is a bare fault: a store into a
 * protected page whose handler only steps over the instruction.
 *
 *	hbl doorbell    a NOP, rung by one 64-bit store, and its completion read from memory
 *	hbl write       the same with a LINEAR write of 8 bytes to a queue pair of the same process
 *	hbl batch       a NOP where one doorbell rings 32
 *	hbl pingpong    writes of 8 bytes to and fro between hbl_0 and hbl_1 in two processes that spin on their CQs: half
 *	                a round. Who rings writes into the target's memory: device memory, which it maps, by stores
 *	hbl pingpong, program's memory
 *	                the same to memory that the program brings, by process_vm_writev where that is not mapped
 *	hbl stream      writes of 8 bytes one way, 32 to a doorbell, with completions: time of one
 *	                These names end with the way that most of the messages took
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
#include "card/card.h"

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

static bool own_memory; /* the program's, not the device's */

static void connect_side(int number, int fd, struct address *peer)
{
	struct address own;

	dev_open(&b.dev, number);
	set_port(&b.dev, 1);
	if (own_memory)
		mem_host(&b.mem, &b.dev, 4096);
	else
		mem_device(&b.mem, &b.dev, 4096);
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

/* How messages left, since the last call. */
static struct vb_path_counters ways(void)
{
	static struct vb_path_counters last;
	struct vb_path_counters now, since;

	vb_path_counters(vb_card_program(), &now);
	since = (struct vb_path_counters){ now.calls - last.calls, now.stores - last.stores,
					   now.copies - last.copies, now.packets - last.packets };
	last = now;
	return since;
}

static void print_way(const char *what, double *samples)
{
	struct vb_path_counters w = ways();
	char name[64];

	snprintf(name, sizeof(name), "%s, %s", what,
		 w.packets >= w.stores && w.packets >= w.copies ? "in packets"
		 : w.stores >= w.copies                         ? "by stores"
								: "by copies");
	bench_print(name, "two", 8, "ns", samples, bench.repeats);
}

static void pingpong(int number, int fd)
{
	uint32_t count = bench.quick ? 50 : 2000;
	double samples[BENCH_REPEATS];
	struct address peer;

	connect_side(number, fd, &peer);
	ways();
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
		print_way(own_memory ? "hbl pingpong, program's memory" : "hbl pingpong", samples);
	meet(fd);
}

/* Messages that the target has seen: it may lose its core for long, and a CQ that is full does not wait for ever. */
static _Atomic uint32_t *seen;

static void stream_out(const struct address *peer, uint32_t count)
{
	uint32_t before = atomic_load(seen);

	for (uint32_t i = 0; i < count; i++) {
		while (i * BATCH - (atomic_load(seen) - before) > 4 * BATCH)
			;
		for (uint32_t k = 0; k < BATCH; k++)
			hbl_end_post(&b.end,
				     &(struct wqe){ .opcode = LINEAR,
						    .size = 8,
						    .tag = k,
						    .completion = CQ,
						    .local = b.mem.va,
						    .remote = peer->va + 64 * k },
				     true);
		fifo_ring(&b.fifo, b.end.q.qp_num, hbl_end_pi(&b.end));
		for (uint32_t k = 0; k < BATCH; k++)
			spin(&b.end.req);
	}
	while (atomic_load(seen) - before != count * BATCH)
		;
}

static void stream(int number, int fd)
{
	uint32_t count = bench.quick ? 10 : 2000;
	double samples[BENCH_REPEATS];
	struct address peer;

	connect_side(number, fd, &peer);
	ways();
	for (int r = 0; r < bench.repeats; r++) {
		double start = bench_now();

		if (!number)
			stream_out(&peer, count);
		for (uint32_t i = 0; number && i < count; i++) {
			for (uint32_t k = 0; k < BATCH; k++)
				spin(&b.end.res);
			atomic_fetch_add(seen, BATCH);
		}
		samples[r] = (bench_now() - start) / count / BATCH;
		meet(fd);
	}
	if (!number)
		print_way("hbl stream", samples);
	meet(fd);
}

static int run_pairs(void)
{
	int ret;

	seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(seen != MAP_FAILED);
	ret = run_pair(pingpong) || run_pair(stream);
	own_memory = true;
	return ret || run_pair(pingpong);
}

int main(int argc, char **argv)
{
	bool doorbells = argc > 1 && !strcmp(argv[1], "doorbells"); /* these rows alone */

	bench.quick = argc > 1 && !strcmp(argv[argc - 1], "--quick");
	bench.repeats = bench.quick ? 1 : BENCH_REPEATS;
	measure_fault(&bench);
	if (!doorbells) {
		measure_wake(&bench);
		if (run_pairs())
			return 1;
	}
	set_up();
	bench_pin(0); /* this thread, not the card's */
	measure(&bench, "hbl doorbell", NOP, 1);
	measure(&bench, "hbl write", LINEAR, 1);
	measure(&bench, "hbl batch", NOP, BATCH);
	return 0;
}
