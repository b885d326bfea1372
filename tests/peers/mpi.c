// SPDX-License-Identifier: MIT
/*
 * An MPI program as a beginner writes it: pairs of ranks pass messages of all sizes to and fro, every byte is checked, then
 * all ranks do collectives and one-sided work together. Rank 0 prints one line for each part that went right.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST (4 << 20)

static int rank, ranks;

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "rank %d: %s\n", rank, what);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static unsigned char value(int size, int at, int round)
{
	return (unsigned char)(size * 7 + at * 31 + round);
}

/* Ranks 2k and 2k + 1. */
static void ping_pong(void)
{
	unsigned char *data = malloc(LARGEST);
	int peer = rank ^ 1;

	for (int size = 0; size <= LARGEST; size = size ? size * 4 : 1) {
		for (int round = 0; round < 10; round++) {
			for (int i = 0; i < size; i++)
				data[i] = rank & 1 ? 0 : value(size, i, round);
			if (rank & 1) {
				MPI_Recv(data, size, MPI_BYTE, peer, size, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
				MPI_Send(data, size, MPI_BYTE, peer, size, MPI_COMM_WORLD);
			} else {
				MPI_Send(data, size, MPI_BYTE, peer, size, MPI_COMM_WORLD);
				memset(data, 0, (size_t)size);
				MPI_Recv(data, size, MPI_BYTE, peer, size, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
			}
			for (int i = 0; i < size; i++)
				need(data[i] == value(size, i, round),
				     "a byte of a message is wrong");
		}
	}
	free(data);
}

static void together(void)
{
	long sum, *all = calloc((size_t)ranks, sizeof(*all)), mine = rank + 1;

	for (int round = 0; round < 100; round++) {
		MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		need(sum == (long)ranks * (ranks + 1) / 2, "the sum is wrong");
	}
	MPI_Allgather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		need(all[i] == i + 1, "a gathered value is wrong");
	free(all);
}

/* Counters of 4 and 8 bytes on rank 0, which all ranks change at once. */
static void counters(void)
{
	enum { ROUNDS = 40 };
	int *base, one = 1, old, bit = 1 << rank, zero = 0, ours;
	long *wide, step = 1L << 33, was;
	MPI_Win small, large;

	MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base,
			 &small);
	MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &wide, &large);
	memset(base, 0, 4 * sizeof(int));
	*wide = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, small);
	MPI_Win_lock_all(0, large);
	for (int round = 0, last = -1; round < ROUNDS; round++) {
		MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 0, MPI_SUM, small);
		MPI_Fetch_and_op(&step, &was, MPI_LONG, 0, 0, MPI_SUM, large);
		MPI_Win_flush(0, small);
		MPI_Win_flush(0, large);
		need(old > last && old < ranks * ROUNDS, "a counter went back");
		need(!(was & (step - 1)) && was < step * ranks * ROUNDS, "a wide counter is wrong");
		last = old;
	}
	MPI_Fetch_and_op(&bit, &old, MPI_INT, 0, 1, MPI_BOR, small);
	MPI_Win_flush(0, small);
	need(!(old & bit), "a bit was set before");
	/* One rank wins. */
	ours = rank + 1;
	MPI_Compare_and_swap(&ours, &zero, &old, MPI_INT, 0, 2, small);
	MPI_Win_flush(0, small);
	need(old >= 0 && old <= ranks && old != ours, "an exchange is wrong");
	MPI_Fetch_and_op(&ours, &old, MPI_INT, 0, 3, MPI_REPLACE, small);
	MPI_Win_flush(0, small);
	need(old >= 0 && old <= ranks && old != ours, "a swap is wrong");
	MPI_Win_unlock_all(small);
	MPI_Win_unlock_all(large);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank) {
		need(base[0] == ranks * ROUNDS && *wide == step * ranks * ROUNDS, "a sum is wrong");
		need(base[1] == (1 << ranks) - 1, "a bit is lost");
		need(base[2] > 0 && base[3] > 0, "an exchange is lost");
	}
	MPI_Win_free(&small);
	MPI_Win_free(&large);
}

/* Everybody puts into, adds to and gets from the next rank's memory. */
static void one_sided(void)
{
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
	long *base, got = 0, one = 1, mark = 1000 + rank;
	MPI_Win window;

	MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base,
			 &window);
	base[0] = base[1] = 0;
	MPI_Win_fence(0, window);
	MPI_Put(&mark, 1, MPI_LONG, next, 0, 1, MPI_LONG, window);
	for (int to = 0; to < ranks; to++)
		MPI_Accumulate(&one, 1, MPI_LONG, to, 1, 1, MPI_LONG, MPI_SUM, window);
	MPI_Win_fence(0, window);
	need(base[0] == 1000 + before, "the value that was put is wrong");
	need(base[1] == ranks, "the accumulated value is wrong");
	MPI_Get(&got, 1, MPI_LONG, next, 0, 1, MPI_LONG, window);
	MPI_Win_fence(0, window);
	need(got == 1000 + rank, "the value that was got is wrong");
	MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	ping_pong();
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks passed messages\n", ranks);
	together();
	if (!rank)
		printf("%d ranks agreed\n", ranks);
	one_sided();
	counters();
	if (!rank)
		printf("%d ranks reached each other's memory\n", ranks);
	MPI_Finalize();
	return 0;
}
