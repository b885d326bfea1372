// SPDX-License-Identifier: MIT
/*
 * Device memory reached by remote peers: the key of flexio_device_mkey_create() is an rkey like any other. The peer is once
 * in this process and once in another one.
 */
#include "bed.h"

#include "../programs/end.h"

#include <string.h>

enum { SIZE = 65536 };

struct setup {
	struct end here, peer;
	struct flexio_process *process;
	struct flexio_mkey *mkey;
	flexio_uintptr_t daddr;
};

static void open_setup(struct setup *s, enum end_place place, int access)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct flexio_mkey_attr mkey_attr = { .len = SIZE, .access = access };

	attr.size = SIZE;
	end_open(&s->here, HERE, &attr);
	end_open(&s->peer, place, &attr);
	end_connect(&s->here, &s->peer);
	assert_ok(flexio_process_create(s->here.node->ctx, bed_app, NULL, &s->process));
	s->daddr = bed_alloc(s->process, SIZE);
	mkey_attr.pd = s->here.node->pd; /* that of the queue pair */
	mkey_attr.daddr = s->daddr;
	assert_ok(flexio_device_mkey_create(s->process, &mkey_attr, &s->mkey));
}

static void close_setup(struct setup *s)
{
	assert_ok(flexio_device_mkey_destroy(s->mkey));
	bed_process_end(s->process);
	end_close(&s->here);
	end_close(&s->peer);
}

/* The peer's own memory to or from device memory. */
static void rdma(struct setup *s, enum ibv_wr_opcode opcode, uint64_t offset, uint32_t len,
		 enum ibv_wc_status status)
{
	struct end_wr wr = { .wr_id = 5,
			     .opcode = opcode,
			     .flags = IBV_SEND_SIGNALED,
			     .remote = s->daddr + offset,
			     .rkey = flexio_mkey_get_id(s->mkey),
			     .compare_add = 3,
			     .num_sge = 1,
			     .sge = { { s->peer.self.addr, len, s->peer.lkey } } };

	assert_int_equal(end_post_send(&s->peer, &wr), 0);
	end_expect(&s->peer, SQ, 5, status);
}

static const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		       IBV_ACCESS_REMOTE_ATOMIC;

static void write_read_add(enum end_place place)
{
	static uint8_t expected[SIZE];
	uint64_t want = 0;
	struct setup s;

	open_setup(&s, place, all);
	end_fill(&s.peer, s.peer.self.addr, SIZE, 7);
	rdma(&s, IBV_WR_RDMA_WRITE, 0, SIZE, IBV_WC_SUCCESS);
	pattern_fill(expected, SIZE, 7);
	for (unsigned int i = 0; i < SIZE; i++)
		want = want * 31 + expected[i];
	/* device code sees it */
	assert_int_equal(bed_words(s.process, "sum", (uint64_t[]){ s.daddr, SIZE }, 2), want);

	assert_ok(flexio_buf_dev_memset(s.process, 0, SIZE, s.daddr));
	bed_write(s.process, s.daddr + 64, 100);
	rdma(&s, IBV_WR_ATOMIC_FETCH_AND_ADD, 64, 8, IBV_WC_SUCCESS);
	assert_int_equal(bed_read(s.process, s.daddr + 64), 103);
	pattern_fill(expected, SIZE, 9);
	assert_ok(flexio_host2dev_memcpy(s.process, expected, SIZE, s.daddr));
	rdma(&s, IBV_WR_RDMA_READ, 0, SIZE, IBV_WC_SUCCESS);
	end_check(&s.peer, s.peer.self.addr, SIZE, 9);
	rdma(&s, IBV_WR_RDMA_WRITE, 1, SIZE, IBV_WC_REM_ACCESS_ERR); /* one byte too far */
	close_setup(&s);
}

static void test_here(void **state)
{
	write_read_add(HERE);
}

static void test_elsewhere(void **state)
{
	write_read_add(ELSEWHERE);
}

static void test_rights(void **state)
{
	struct setup s;

	open_setup(&s, ELSEWHERE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	rdma(&s, IBV_WR_RDMA_READ, 0, 64, IBV_WC_SUCCESS);
	rdma(&s, IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_REM_ACCESS_ERR);
	close_setup(&s);
}

/* Peers may write, the own queues may not: each right is its own, as in the card's mkeys. */
static void test_remote_write_alone(void **state)
{
	struct setup s;
	struct ibv_sge sge = { .length = 64 };
	struct ibv_recv_wr recv = { .wr_id = 8, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct end_wr send = {
		.wr_id = 9, .opcode = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED, .num_sge = 1
	};

	open_setup(&s, ELSEWHERE, IBV_ACCESS_REMOTE_WRITE);
	end_fill(&s.peer, s.peer.self.addr, 64, 3);
	rdma(&s, IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_SUCCESS);
	assert_int_not_equal(bed_read(s.process, s.daddr), 0);
	sge.addr = s.daddr;
	sge.lkey = flexio_mkey_get_id(s.mkey);
	assert_int_equal(ibv_post_recv(s.here.node->qp, &recv, &bad), 0);
	send.sge[0] = (struct ibv_sge){ s.peer.self.addr, 64, s.peer.lkey };
	assert_int_equal(end_post_send(&s.peer, &send), 0);
	end_expect(&s.peer, SQ, 9, IBV_WC_REM_OP_ERR);
	end_expect(&s.here, RQ, 8, IBV_WC_LOC_PROT_ERR);
	close_setup(&s);
	open_setup(&s, ELSEWHERE, IBV_ACCESS_REMOTE_WRITE);
	rdma(&s, IBV_WR_RDMA_READ, 0, 64, IBV_WC_REM_ACCESS_ERR);
	close_setup(&s);
}

/* The key dies with the mkey. */
static void test_destroyed(void **state)
{
	struct flexio_mkey_attr attr = { .len = 64, .access = all };
	struct flexio_mkey *mkey;
	struct setup s;
	uint32_t key;

	open_setup(&s, ELSEWHERE, all);
	attr.pd = s.here.node->pd;
	attr.daddr = s.daddr;
	assert_ok(flexio_device_mkey_create(s.process, &attr, &mkey));
	key = flexio_mkey_get_id(mkey);
	assert_ok(flexio_device_mkey_destroy(mkey));
	assert_int_equal(end_post_send(&s.peer, &(struct end_wr){ .wr_id = 6,
								  .opcode = IBV_WR_RDMA_WRITE,
								  .flags = IBV_SEND_SIGNALED,
								  .remote = s.daddr,
								  .rkey = key,
								  .num_sge = 1,
								  .sge = { { s.peer.self.addr, 8,
									     s.peer.lkey } } }),
			 0);
	end_expect(&s.peer, SQ, 6, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(bed_read(s.process, s.daddr), 0);
	close_setup(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_here),      cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_rights),    cmocka_unit_test(test_remote_write_alone),
		cmocka_unit_test(test_destroyed),
	};

	end_main(argc, argv);
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
