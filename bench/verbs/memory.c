// SPDX-License-Identifier: MIT
/*
 * What the memory of programs changes: one-sided requests to the node's buffer, to what malloc() gives and to device memory;
 * registration for each message; fork() and random reads with much memory; what allocating costs.
 *
 * The run script executes this part in turns as it is, and under `verbatim run` with VERBATIM_SHARE=all set, where the
 * same calls give memory that peers map. One sample of each row: the script has the median.
 */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { LARGE = 1 << 20, PAGE = 4096, HUGE_PAGE = 2 << 20, LINE = 64 };

/* --- where memory lies ------------------------------------------------------------------------- */

/* KiB that a field of /proc/self/smaps has, of the mapping of p; -1 where it has no such field. */
static long mapping_field(const void *p, const char *field, bool *born_shared)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	unsigned long from, to;
	char line[512];
	bool here = false;
	long found = -1;

	check(maps, "/proc/self/smaps");
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			here = (uintptr_t)p >= from && (uintptr_t)p < to;
			if (here)
				*born_shared = strstr(line, "memfd:verbatim-memory");
		} else if (here && !strncmp(line, field, strlen(field))) {
			sscanf(line + strlen(field), " %ld", &found);
		}
	}
	fclose(maps);
	return found;
}

/* Under VERBATIM_SHARE=all nothing is worth measuring where the program keeps its memory. */
static void need_arena(void)
{
	const char *share = getenv("VERBATIM_SHARE");
	struct ibv_context *ctx = device_open();
	char *block = malloc(LARGE);
	bool shared = false;

	check(block, "malloc");
	memset(block, 1, LARGE);
	mapping_field(block, "Rss:", &shared);
	if (share && !strcmp(share, "all") && !shared)
		test_skip("memory of programs is not born shared here");
	free(block);
	check_eq(ibv_close_device(ctx), 0);
}

/* --- requests ---------------------------------------------------------------------------------- */

static const struct row small_rows[] = {
	{ "write, target polls memory", IBV_WR_RDMA_WRITE, PING_PONG, POLLS_MEMORY },
	{ "read, passive target", IBV_WR_RDMA_READ, ROUND_TRIP, PASSIVE },
	{ "fetch_add, passive target", IBV_WR_ATOMIC_FETCH_AND_ADD, ROUND_TRIP, PASSIVE },
	{ "cmp_swap, passive target", IBV_WR_ATOMIC_CMP_AND_SWP, ROUND_TRIP, PASSIVE },
};
static const struct row loop_rows[] = {
	{ "write", IBV_WR_RDMA_WRITE, ROUND_TRIP, POLLS_CQ },
	{ "read", IBV_WR_RDMA_READ, ROUND_TRIP, POLLS_CQ },
	{ "fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, ROUND_TRIP, POLLS_CQ },
	{ "cmp_swap", IBV_WR_ATOMIC_CMP_AND_SWP, ROUND_TRIP, POLLS_CQ },
};
static const struct row large_rows[] = {
	{ "write_bw, passive target", IBV_WR_RDMA_WRITE, STREAM, PASSIVE },
	{ "read_bw, passive target", IBV_WR_RDMA_READ, STREAM, PASSIVE },
	{ "write_bw", IBV_WR_RDMA_WRITE, STREAM, POLLS_CQ },
	{ "read_bw", IBV_WR_RDMA_READ, STREAM, POLLS_CQ },
	{ "send_bw", IBV_WR_SEND, STREAM, POLLS_CQ },
};
/* What follows a row's name, and how many of the small and the large rows there are. */
static const struct {
	const char *suffix;
	int small, large, streams;
} kinds[] = {
	[MEMORY_NODE] = { "", 4, 5, 1 },
	[MEMORY_MALLOC] = { ", malloc", 1, 2, 0 },
	[MEMORY_SMALL] = { ", malloc of 4 KiB", 1, 0, 0 },
	[MEMORY_DEVICE] = { ", device memory", 4, 0, 1 },
};

static void measure_pair(const struct bench *bench, enum memory memory)
{
	struct side side;
	char name[64];
	pid_t pid;
	int fd;

	pid = pair_open(&side, memory, &fd);
	for (int i = 0; i < kinds[memory].small; i++) {
		snprintf(name, sizeof(name), "%s%s", small_rows[i].name, kinds[memory].suffix);
		pair_measure(bench, &side, fd, &small_rows[i], 8, "ns", name);
	}
	for (int i = 0; i < kinds[memory].streams; i++) {
		snprintf(name, sizeof(name), "%s%s", large_rows[i].name, kinds[memory].suffix);
		pair_measure(bench, &side, fd, &large_rows[i], 4096, "GB/s", name);
	}
	for (int i = 0; i < kinds[memory].large; i++) {
		snprintf(name, sizeof(name), "%s%s", large_rows[i].name, kinds[memory].suffix);
		pair_measure(bench, &side, fd, &large_rows[i], LARGE, "GB/s", name);
	}
	pair_close(&side, pid, fd);
}

static void measure_loop(const struct bench *bench, enum memory memory)
{
	struct side a, b;
	char name[64];

	side_open(&a, memory);
	side_open(&b, memory);
	side_join(&a, &b);
	for (int i = 0; i < 4; i++) {
		const struct row *row = &loop_rows[i];
		struct order o = { row->opcode, row->pattern, row->manner, 8, 0, false };
		double sample;

		o.count = bench_iterations(bench, 8) * (bench->quick ? 1 : 10);
		side_loop(&a, &b, &o);
		sample = side_loop(&a, &b, &o);
		snprintf(name, sizeof(name), "%s%s", row->name, kinds[memory].suffix);
		bench_print(name, "one", 8, "ns", &sample, 1);
	}
	side_close(&a);
	side_close(&b);
}

/* --- registration for each message ------------------------------------------------------------- */

/* The target says where to write, the initiator writes and says that it has. */
struct meeting {
	uint32_t bytes;
	bool registers; /* both sides for each message; else once */
	bool end;
	uint64_t count;
};

struct ticket {
	uint64_t addr;
	uint32_t rkey, pad;
};

static struct ibv_mr *register_area(struct side *side, struct area *area, const struct meeting *m)
{
	struct ibv_mr *mr;

	if (!m->registers)
		return area->mr;
	mr = ibv_reg_mr(side->node.pd, area->buf, m->bytes, ACCESS_ALL);
	check(mr, "%s", strerror(errno));
	return mr;
}

static void drop(struct ibv_mr *mr, const struct meeting *m)
{
	if (m->registers)
		check_eq(ibv_dereg_mr(mr), 0);
}

static void say(struct side *side, const void *what, uint32_t bytes, bool signalled)
{
	struct ibv_sge sge = { (uintptr_t)what, bytes, 0 };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags =
					  IBV_SEND_INLINE | (signalled ? IBV_SEND_SIGNALED : 0) },
			   *bad;

	check_eq(ibv_post_send(side->node.qp, &wr, &bad), 0);
	if (signalled)
		side_await(side->node.send_cq);
}

static void hear(struct side *side)
{
	side_await(side->node.recv_cq);
	side_post_receive(side);
}

static void lead_meeting(struct side *side, const struct meeting *m)
{
	struct order write = { .opcode = IBV_WR_RDMA_WRITE, .bytes = m->bytes };
	struct ibv_mr *kept = side->source.mr;

	for (uint64_t i = 0; i < m->count; i++) {
		struct ticket ticket;

		hear(side);
		memcpy(&ticket, side->node.buf + BENCH_MAX_BYTES, sizeof(ticket));
		side->source.mr = register_area(side, &side->source, m);
		side->remote_addr = ticket.addr;
		side->remote_key = ticket.rkey;
		side_post(side, &write, false, (uint8_t)i);
		say(side, "", 1, true); /* completes after the write, which may then lose its key */
		drop(side->source.mr, m);
		side->source.mr = kept;
	}
}

static void follow_meeting(struct side *side, const struct meeting *m)
{
	for (uint64_t i = 0; i < m->count; i++) {
		struct ibv_mr *mr = register_area(side, &side->landing, m);
		struct ticket ticket = { (uintptr_t)side->landing.buf, mr->rkey, 0 };

		say(side, &ticket, sizeof(ticket), i % 32 == 31);
		hear(side);
		check_eq(side->landing.buf[m->bytes - 1], (uint8_t)i);
		drop(mr, m);
	}
}

int bench_memory_child(void)
{
	struct meeting m;
	struct side side;

	bench_pin(1);
	side_open(&side, MEMORY_MALLOC);
	side_meet(&side, ROLE_FD);
	for (;;) {
		msg_recv(ROLE_FD, &m, sizeof(m));
		if (m.end)
			break;
		follow_meeting(&side, &m);
	}
	side_close(&side);
	return 0;
}

static double meet(struct side *side, int fd, const struct meeting *m)
{
	double start = bench_now();

	msg_send(fd, m, sizeof(*m));
	lead_meeting(side, m);
	return (bench_now() - start) / (double)m->count;
}

/* Beside it what the kernel takes for a look at every page, which a registration cannot do without. */
static void measure_registration(const struct bench *bench, struct side *side, uint32_t bytes)
{
	struct meeting m = { .bytes = bytes, .registers = true };
	uintptr_t first = (uintptr_t)side->source.buf & ~(uintptr_t)(PAGE - 1);
	size_t len = ((uintptr_t)side->source.buf + bytes - first + PAGE - 1) & ~(size_t)(PAGE - 1);
	int count = bench->quick ? 10 : 1000;
	double sample = bench_now();

	for (int n = 0; n < count; n++)
		drop(register_area(side, &side->source, &m), &m);
	sample = (bench_now() - sample) / count;
	bench_print("ibv_reg_mr, ibv_dereg_mr", "one", bytes, "ns", &sample, 1);
	sample = bench_now();
	for (int n = 0; n < count; n++)
		if (madvise((void *)first, len, MADV_POPULATE_WRITE))
			return; /* before Linux 5.14 */
	sample = (bench_now() - sample) / count;
	bench_print("populate", "limit", bytes, "ns", &sample, 1);
}

static void measure_meetings(const struct bench *bench)
{
	static const uint32_t sizes[] = { 65536, LARGE };
	struct meeting end = { .end = true };
	struct side side;
	double sample;
	pid_t pid;
	int fd;

	pid = spawn_self("meetings", &fd);
	side_open(&side, MEMORY_MALLOC);
	side_meet(&side, fd);
	for (int i = 0; i < 4; i++) {
		struct meeting m = { .bytes = sizes[i / 2], .registers = i % 2 };

		m.count = bench->quick ? 10 : 1000;
		meet(&side, fd, &m);
		sample = meet(&side, fd, &m);
		bench_print(m.registers ? "write, registered each time" : "write, registered once",
			    "two", m.bytes, "ns", &sample, 1);
	}
	for (int i = 0; i < 2; i++)
		measure_registration(bench, &side, sizes[i]);
	msg_send(fd, &end, sizeof(end));
	spawn_wait(pid);
	close(fd);
	side_close(&side);
}

/* --- much memory ------------------------------------------------------------------------------- */

/* ns of fork(), and of fork() and a write to each page while the child lives. */
static void fork_once(uint8_t *block, size_t bytes, double *alone, double *written)
{
	double start;
	int fds[2];
	pid_t pid;
	char end;

	check_eq(pipe(fds), 0);
	start = bench_now();
	pid = fork();
	if (!pid) {
		close(fds[1]);
		_exit(read(fds[0], &end, 1) != 0);
	}
	*alone = bench_now() - start;
	check(pid > 0, "%s", strerror(errno));
	for (size_t i = 0; i < bytes; i += PAGE)
		block[i]++;
	*written = bench_now() - start;
	close(fds[0]);
	close(fds[1]);
	spawn_wait(pid);
}

/* Each address depends on what was read before: ns of one read. */
static double read_randomly(const uint8_t *block, size_t bytes, uint64_t count)
{
	uint64_t lines = bytes / LINE, state = 1;
	double start = bench_now();

	for (uint64_t i = 0; i < count; i++) {
		const volatile uint8_t *at = block + (state >> 33) % lines * LINE;

		state = state * 6364136223846793005u + 1442695040888963407u + *at;
	}
	return (bench_now() - start) / (double)count;
}

/* What lies on huge pages is told apart: their number depends on settings of the machine. */
static void measure_space(const struct bench *bench, bool huge)
{
	size_t bytes = bench->quick ? 8 << 20 : 256 << 20;
	uint8_t *block = malloc(bytes + HUGE_PAGE), *at;
	double sample, written;
	bool shared = false;
	long anonymous, of_file;

	check(block, "malloc");
	at = (uint8_t *)(((uintptr_t)block + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	if (huge)
		madvise(at, bytes, MADV_HUGEPAGE); /* where the kernel has them */
	memset(at, 1, bytes);
	read_randomly(at, bytes, bench->quick ? 1000 : 100000); /* warm */
	sample = read_randomly(at, bytes, bench->quick ? 1000 : 1000000);
	bench_print(huge ? "random read, MADV_HUGEPAGE" : "random read", "one", bytes, "ns",
		    &sample, 1);
	anonymous = mapping_field(at, "AnonHugePages:", &shared);
	of_file = mapping_field(at, "ShmemPmdMapped:", &shared);
	sample = (double)((anonymous > 0 ? anonymous : 0) + (of_file > 0 ? of_file : 0)) / 1024;
	bench_print(huge ? "on huge pages, MADV_HUGEPAGE" : "on huge pages", "one", bytes, "MiB",
		    &sample, 1);
	if (!huge) {
		fork_once(at, bytes, &sample, &written);
		sample /= 1e6;
		written /= 1e6;
		bench_print("fork", "one", bytes, "ms", &sample, 1);
		bench_print("fork, then all pages written", "one", bytes, "ms", &written, 1);
	}
	free(block);
}

/* --- calls ------------------------------------------------------------------------------------- */

/* Blocks of 64 KiB to 1 MiB come and go, 16 at a time, each touched at both ends: ns of one. */
static double allocate_often(uint64_t count, bool aligned)
{
	uint64_t state = 1;
	char *blocks[16] = { NULL };
	double start = bench_now();

	for (uint64_t i = 0; i < count; i++) {
		size_t size;
		char **block;

		state = state * 6364136223846793005u + 1442695040888963407u;
		size = 65536 + (state >> 33) % (LARGE - 65536);
		block = &blocks[(state >> 20) % 16];
		free(*block);
		*block = aligned ? aligned_alloc(PAGE, size) : malloc(size);
		check(*block, "malloc");
		(*block)[0] = (*block)[size - 1] = 1;
	}
	start = (bench_now() - start) / (double)count;
	for (int i = 0; i < 16; i++)
		free(blocks[i]);
	return start;
}

static double map_often(uint64_t count)
{
	double start = bench_now();

	for (uint64_t i = 0; i < count; i++) {
		char *at = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				-1, 0);

		check(at != MAP_FAILED, "mmap");
		at[0] = 1;
		check_eq(munmap(at, LARGE), 0);
	}
	return (bench_now() - start) / (double)count;
}

/* A block that grows by 64 KiB at a time to 16 MiB, and is written: ns of all of it. */
static double grow_block(void)
{
	enum { STEP = 65536 };
	char *block = NULL;
	double start = bench_now();

	for (size_t size = STEP; size <= 16 << 20; size += STEP) {
		block = realloc(block, size);
		check(block, "realloc");
		block[size - 1] = 1;
	}
	start = bench_now() - start;
	free(block);
	return start;
}

/* A mapping that is written, and then twice as long: ns of mremap(). first: ns of a first read of each page. */
static double grow_mapping(size_t bytes, double *first)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double start = bench_now();

	check(at != MAP_FAILED, "mmap");
	for (size_t i = 0; i < bytes; i += PAGE)
		*(volatile char *)(at + i);
	*first = bench_now() - start;
	memset(at, 1, bytes);
	start = bench_now();
	at = mremap(at, bytes, 2 * bytes, MREMAP_MAYMOVE);
	check(at != MAP_FAILED, "mremap");
	start = bench_now() - start;
	check_eq(munmap(at, 2 * bytes), 0);
	return start;
}

static void measure_calls(const struct bench *bench)
{
	uint64_t count = bench->quick ? 100 : 20000;
	size_t bytes = bench->quick ? 1 << 20 : 64 << 20;
	double sample, first;

	sample = allocate_often(count, false);
	bench_print("calls: malloc, free", "one", LARGE, "ns", &sample, 1);
	sample = allocate_often(count, true);
	bench_print("calls: aligned_alloc, free", "one", LARGE, "ns", &sample, 1);
	sample = map_often(count);
	bench_print("calls: mmap, munmap", "one", LARGE, "ns", &sample, 1);
	sample = grow_block();
	bench_print("calls: realloc by 64 KiB", "one", 16 << 20, "ns", &sample, 1);
	sample = grow_mapping(bytes, &first);
	bench_print("calls: mremap to twice the size", "one", bytes, "ns", &sample, 1);
	bench_print("calls: first read", "one", bytes, "ns", &first, 1);
}

void bench_memory(const struct bench *bench)
{
	struct ibv_context *ctx;
	enum memory last;

	need_arena();
	last = side_has_device_memory() && !getenv("VERBATIM_SHARE") ? MEMORY_DEVICE : MEMORY_SMALL;
	for (enum memory m = MEMORY_NODE; m <= last; m++) {
		if (m == MEMORY_NODE || m == MEMORY_DEVICE)
			measure_loop(bench, m);
		measure_pair(bench, m);
	}
	measure_meetings(bench);
	ctx = device_open(); /* memory is born shared while a card is open */
	measure_space(bench, false);
	measure_space(bench, true);
	measure_calls(bench);
	check_eq(ibv_close_device(ctx), 0);
}
