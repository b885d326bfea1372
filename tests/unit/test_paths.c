// SPDX-License-Identifier: MIT
/*
 * Which way the data went, by the card's own counters: a call inside of a process; between processes loads and stores
 * for one-sided work in shared memory, a direct copy for one-sided work elsewhere, packets for the rest and, with
 * VERBATIM_DIRECT=off, for everything. The other tests show that the bytes arrive; this one shows that they tested what
 * their names say.
 */
#include "../programs/end.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "card/card.h"

enum way { CALL, STORE, COPY, PACKET };

/* Where the kernel forbids process_vm_*, one-sided work takes packets as well. */
static bool copies_allowed(struct end *b)
{
	const char *off = getenv("VERBATIM_DIRECT");
	uint64_t word;
	struct iovec local = { &word, 8 }, remote = { (void *)(uintptr_t)b->self.addr, 8 };

	if (off && !strcmp(off, "off"))
		return false;
	return process_vm_readv(b->pid, &local, 1, &remote, 1, 0) == 8;
}

static uint64_t count(enum way way)
{
	struct vb_path_counters now;

	vb_path_counters(vb_card_program(), &now);
	return way == CALL    ? now.calls
	       : way == STORE ? now.stores
	       : way == COPY  ? now.copies
			      : now.packets;
}

/* One request of this size goes this way and no other. */
static void expect_way(struct end *a, struct end *b, enum ibv_wr_opcode opcode, uint32_t len,
		       enum way way)
{
	uint64_t before[] = { count(CALL), count(STORE), count(COPY), count(PACKET) };
	struct end_wr wr = end_wr_rdma(a, 1, opcode, len, b);

	if (opcode == IBV_WR_SEND)
		check_eq(end_post_recv(b, 2, b->self.addr, len, b->lkey), 0);
	check_eq(end_post_send(a, &wr), 0);
	end_expect(a, SQ, 1, IBV_WC_SUCCESS);
	if (opcode == IBV_WR_SEND)
		end_expect(b, RQ, 2, IBV_WC_SUCCESS);
	for (enum way w = CALL; w <= PACKET; w++)
		check(count(w) == before[w] + (w == way),
		      "opcode %d of %u bytes, way %d: %llu, not %llu", (int)opcode, len, (int)w,
		      (unsigned long long)(count(w) - before[w]), (unsigned long long)(w == way));
}

/* From the start of a buffer on. */
static uint32_t shared_bytes(void)
{
	return !strcmp(getenv("VERBATIM_TEST_MEMORY"), "mixed") ? 3 * 4096 : UINT32_MAX;
}

static void ways(enum end_place place)
{
	static const uint32_t sizes[] = { 8, 1000, 4096, 60000 };
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct end a, b;
	enum way one_sided, two_sided, atomic;

	end_open(&a, HERE, &attr);
	end_open(&b, place, &attr);
	end_connect(&a, &b);
	one_sided = place == HERE ? CALL : copies_allowed(&b) ? COPY : PACKET;
	two_sided = atomic = place == HERE ? CALL : PACKET;
	if (place == ELSEWHERE && kind_is_shared())
		atomic = STORE;
	for (int i = 0; i < 4; i++) {
		if (place == ELSEWHERE && kind_is_shared())
			one_sided = sizes[i] <= shared_bytes() ? STORE : COPY;
		expect_way(&a, &b, IBV_WR_RDMA_WRITE, sizes[i], one_sided);
		expect_way(&a, &b, IBV_WR_RDMA_READ, sizes[i], one_sided);
		expect_way(&a, &b, IBV_WR_SEND, sizes[i], two_sided);
	}
	/* Atomics are carried out by the process that owns the memory, unless it is shared. */
	expect_way(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, atomic);
	expect_way(&a, &b, IBV_WR_ATOMIC_CMP_AND_SWP, 8, atomic);
	end_close(&a);
	end_close(&b);
}

int main(int argc, char **argv)
{
	static const struct end_case cases[] = { { "ways of the data", ways } };

	end_main(argc, argv);
	return end_run_cases("paths", cases, 1);
}
