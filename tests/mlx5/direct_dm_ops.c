// SPDX-License-Identifier: MIT
/*
 * Addresses of operations on device memory: a store adds, a load tests and sets, atomically to each other and to atomics
 * of the card; what is no operation is a fault of the program, and an address that was unmapped is anybody's.
 */
#include "direct.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INCREMENT, TEST_AND_SET };
enum { PAGE = 4096, LENGTH = 2 * PAGE + 64, MAPPED = 3 * PAGE, THREADS = 10, ROUNDS = 200 };

static struct node node, peer;
static struct ibv_dm *dm;

static struct ibv_dm *alloc(size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };
	struct ibv_dm *made = ibv_alloc_dm(peer.ctx, &attr);

	check(made);
	return made;
}

static void *map(struct ibv_dm *from, uint8_t op)
{
	void *addr = mlx5dv_dm_map_op_addr(from, op);

	check(addr);
	return addr;
}

static uint64_t get(struct ibv_dm *from, uint64_t offset)
{
	uint64_t value;

	check_eq(ibv_memcpy_from_dm(&value, from, offset, sizeof(value)), 0);
	return value;
}

static void set(struct ibv_dm *to, uint64_t offset, uint64_t value)
{
	check_eq(ibv_memcpy_to_dm(to, offset, &value, sizeof(value)), 0);
}

/* Not aligned, too: the card says what becomes of that. */
__attribute__((noinline, no_sanitize("alignment"))) static void store(char *at, uint64_t value,
								      size_t size)
{
	if (size == 1)
		*(volatile uint8_t *)at = (uint8_t)value;
	else if (size == 2)
		*(volatile uint16_t *)at = (uint16_t)value;
	else if (size == 4)
		*(volatile uint32_t *)at = (uint32_t)value;
	else
		*(volatile uint64_t *)at = value;
}

__attribute__((noinline, no_sanitize("alignment"))) static uint64_t load(const char *at,
									 size_t size)
{
	if (size == 1)
		return *(const volatile uint8_t *)at;
	if (size == 2)
		return *(const volatile uint16_t *)at;
	if (size == 4)
		return *(const volatile uint32_t *)at;
	return *(const volatile uint64_t *)at;
}

static void refusals(void)
{
	static const uint8_t none[] = { 2, 31, 32, 255 };

	for (size_t i = 0; i < sizeof(none); i++) {
		errno = 0;
		check(!mlx5dv_dm_map_op_addr(dm, none[i]) && errno == EOPNOTSUPP);
	}
	errno = 0;
	check(!mlx5dv_dm_map_op_addr(NULL, INCREMENT) && errno == EINVAL);
}

/* Neighbours stay as they are, and a sum that is too large wraps around. */
static void sizes(void)
{
	char *add = map(dm, INCREMENT), *test = map(dm, TEST_AND_SET);

	for (size_t size = 1; size <= 8; size *= 2) {
		for (size_t at = PAGE; at < PAGE + 8; at += size) {
			uint64_t mask = (size == 8 ? UINT64_MAX : (1ull << 8 * size) - 1)
					<< 8 * (at - PAGE);

			set(dm, PAGE, UINT64_MAX);
			store(add + at, 3, size);
			check_eq(get(dm, PAGE), (~mask) | (2ull << 8 * (at - PAGE)));
			check_eq(load(test + at, size), 2);
			check_eq(get(dm, PAGE), UINT64_MAX);
			check_eq(load(test + at, size), mask >> 8 * (at - PAGE));
			set(dm, PAGE, 0);
			check_eq(load(test + at, size), 0);
			check_eq(get(dm, PAGE), mask);
		}
	}
	/* The first and the last. */
	set(dm, 0, 0x100);
	set(dm, LENGTH - 8, 5);
	store(add, 0x10, 8);
	store(add + LENGTH - 8, 1, 8);
	check_eq(get(dm, 0), 0x110);
	check_eq(load(test + LENGTH - 8, 8), 6);
	check_eq(munmap(add, LENGTH), 0);
	check_eq(munmap(test, LENGTH), 0);
}

/* --- together --------------------------------------------------------------------------------- */

static char *shared_add;

/* Each with an address of its own, and with one that all have. */
static void *add_many(void *arg)
{
	char *own = map(dm, INCREMENT);

	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		store(i % 2 ? own : shared_add, 1, 8);
		store(shared_add + 8, 1, 4);
		store(own + 12, 1, 2);
		store(own + 14, 1, 1);
	}
	check_eq(munmap(own, LENGTH), 0);
	return NULL;
}

static void fetch_and_add(uint32_t rkey, uint64_t value)
{
	struct ibv_sge sge = { (uintptr_t)node.buf, 8, node.mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.atomic = { .compare_add = value, .rkey = rkey } };
	struct ibv_send_wr *bad;

	check_eq(ibv_post_send(node.qp, &wr, &bad), 0);
	cq_expect(node.send_cq, 0, IBV_WC_SUCCESS);
}

/* The card adds to the same number. */
static void threads(void)
{
	pthread_t thread[THREADS];
	struct ibv_mr *mr =
		ibv_reg_dm_mr(peer.pd, dm, 0, LENGTH, ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	uint64_t rest;

	check(mr);
	shared_add = map(dm, INCREMENT);
	set(dm, 0, 0);
	set(dm, 8, 0);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_create(&thread[i], NULL, add_many, NULL), 0);
	for (int i = 0; i < ROUNDS; i++)
		fetch_and_add(mr->rkey, 1ull << 32);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_join(thread[i], NULL), 0);
	check_eq(get(dm, 0), THREADS * ROUNDS + ((uint64_t)ROUNDS << 32));
	rest = get(dm, 8);
	check_eq((uint32_t)rest, THREADS * ROUNDS);
	check_eq((uint16_t)(rest >> 32), THREADS * ROUNDS);
	check_eq((uint8_t)(rest >> 48), (THREADS * ROUNDS) % 256);
	check_eq(rest >> 56, 0);
	check_eq(munmap(shared_add, LENGTH), 0);
	check_eq(ibv_dereg_mr(mr), 0);
}

static char *shared_test;
static unsigned int counter; /* by whoever has the lock */

static void *lock_many(void *arg)
{
	volatile uint32_t *release = arg;

	for (int i = 0; i < ROUNDS; i++) {
		while (load(shared_test, 4))
			sched_yield();
		counter++;
		__atomic_store_n(release, 0, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void locks(void)
{
	struct mlx5dv_dm dv = { 0 };
	struct mlx5dv_obj obj = { .dm = { .in = dm, .out = &dv } };
	pthread_t thread[THREADS];

	check_eq(mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM), 0);
	shared_test = map(dm, TEST_AND_SET);
	set(dm, 0, 0);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_create(&thread[i], NULL, lock_many, dv.buf), 0);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_join(thread[i], NULL), 0);
	check_eq(counter, THREADS * ROUNDS);
	check_eq(munmap(shared_test, LENGTH), 0);
}

/* --- what is no operation --------------------------------------------------------------------- */

static sigjmp_buf back;
static void *faulted;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	faulted = info->si_addr;
	siglongjmp(back, 1);
}

static bool store_faults(char *at, size_t size)
{
	if (sigsetjmp(back, 1)) {
		check_eq((uintptr_t)faulted, (uintptr_t)at);
		return true;
	}
	store(at, 1, size);
	return false;
}

static bool load_faults(char *at, size_t size)
{
	if (sigsetjmp(back, 1)) {
		check_eq((uintptr_t)faulted, (uintptr_t)at);
		return true;
	}
	load(at, size);
	return false;
}

static void faults(void)
{
	char *add = map(dm, INCREMENT), *test = map(dm, TEST_AND_SET);

	set(dm, 0, 7);
	check(store_faults(add + 1, 2) && store_faults(add + 2, 4) && store_faults(add + 4, 8));
	check(load_faults(test + 1, 2) && load_faults(test + 2, 4) && load_faults(test + 4, 8));
	check(load_faults(add, 4) && store_faults(test, 4));
	check(store_faults(add + LENGTH, 1) && load_faults(test + LENGTH, 8));
	check(store_faults(add + MAPPED - 8, 8) && load_faults(test + MAPPED - 1, 1));
	check_eq(get(dm, 0), 7);
	/* It works on. */
	store(add, 1, 4);
	check_eq(load(test, 4), 8);
	check_eq(munmap(add, LENGTH), 0);
	check_eq(munmap(test, LENGTH), 0);
}

/* --- the end of addresses --------------------------------------------------------------------- */

static void freed(void)
{
	struct ibv_dm *old = alloc(LENGTH), *next;
	char *add = map(old, INCREMENT), *test = map(old, TEST_AND_SET);

	store(add, 1, 8);
	check_eq(ibv_free_dm(old), 0);
	next = alloc(LENGTH);
	set(next, 0, 77);
	check(store_faults(add, 8) && load_faults(test, 8));
	check_eq(get(next, 0), 77);
	check_eq(munmap(add, LENGTH), 0);
	check_eq(munmap(test, LENGTH), 0);
	check_eq(ibv_free_dm(next), 0);
}

static void *other_memory(char *at, size_t size, int prot, int flags)
{
	return mmap(at, size, prot, flags | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

/* Memory of the program, where it may and where it may not store. */
static void unmapped(void)
{
	static const int flags[] = { MAP_PRIVATE, MAP_SHARED };

	set(dm, 0, 50);
	for (int i = 0; i < 2; i++) {
		char *add = map(dm, INCREMENT);

		store(add, 1, 8);
		check_eq(munmap(add, LENGTH), 0);
		check(store_faults(add, 8));
		check(other_memory(add, PAGE, PROT_READ | PROT_WRITE, flags[i]) == add);
		store(add, 1234, 8);
		check_eq(load(add, 8), 1234);
		check_eq(mprotect(add, PAGE, PROT_READ), 0);
		check(store_faults(add, 8) && !load_faults(add, 8));
		check_eq(mprotect(add, PAGE, PROT_NONE), 0);
		check(store_faults(add, 8) && load_faults(add, 8));
		check_eq(munmap(add, PAGE), 0);
	}
	check_eq(get(dm, 0), 52);
}

/* The same without a fault in between, and only a page in the middle. */
static void partly_unmapped(void)
{
	char *add = map(dm, INCREMENT);

	set(dm, PAGE, 3);
	check_eq(munmap(add + PAGE, PAGE), 0);
	check(other_memory(add + PAGE, PAGE, PROT_READ, MAP_SHARED) == add + PAGE);
	store(add, 1, 8);
	check(store_faults(add + PAGE, 8));
	check_eq(get(dm, PAGE), 3);
	set(dm, 2 * PAGE, 4);
	store(add + 2 * PAGE, 1, 8);
	check_eq(get(dm, 2 * PAGE), 5);
	check_eq(munmap(add, LENGTH), 0);
}

static void mapped_again(void)
{
	char *first = map(dm, INCREMENT), *second = map(dm, INCREMENT);

	set(dm, 0, 0);
	check(first != second);
	store(first, 1, 8);
	store(second, 1, 8);
	check_eq(munmap(first, LENGTH), 0);
	store(second, 1, 8);
	check_eq(munmap(second, LENGTH), 0);
	for (int i = 0; i < 1000; i++) {
		first = map(dm, INCREMENT);
		store(first, 1, 8);
		check_eq(munmap(first, LENGTH), 0);
	}
	check_eq(get(dm, 0), 1003);
}

/* A child has no device memory. */
static void forked(void)
{
	char *add = map(dm, INCREMENT), *test = map(dm, TEST_AND_SET);
	int status;
	pid_t pid;

	set(dm, 0, 9);
	pid = fork();
	if (!pid)
		_exit(store_faults(add, 8) && load_faults(test, 8) ? 0 : 1);
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status) && !WEXITSTATUS(status));
	store(add, 1, 8);
	check_eq(load(test, 8), 10);
	check_eq(munmap(add, LENGTH), 0);
	check_eq(munmap(test, LENGTH), 0);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	char *left;

	node_pair(&node, &peer, &attr);
	check_eq(sigaction(SIGSEGV, &action, NULL), 0);
	dm = alloc(LENGTH);
	refusals();
	sizes();
	threads();
	locks();
	faults();
	freed();
	unmapped();
	partly_unmapped();
	mapped_again();
	forked();
	left = map(dm, INCREMENT);
	check_eq(ibv_free_dm(dm), 0);
	node_close(&node);
	node_close(&peer);
	check(store_faults(left, 4));
	return 0;
}
