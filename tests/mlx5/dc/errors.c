// SPDX-License-Identifier: MIT
/*
 * What goes wrong with DC: wrong keys, targets that are not there, memory that may not be used, receives that are not
 * posted, targets that are destroyed and made anew, processes that are killed. An error is that of the initiator, which comes
 * back by way of RESET; the target goes on.
 */
#include "dc.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct dc dc;

/* A DCI from the error state to RTS. */
static void revive(struct dci *dci, const struct dci_attr *attr)
{
	check_eq(qp_get_state(dci->qp), IBV_QPS_ERR);
	check_eq(qp_set_state(dci->qp, IBV_QPS_RESET), 0);
	check_eq(dci_to_init(dci->qp), 0);
	check_eq(dci_to_rtr(dci->qp), 0);
	check_eq(dci_to_rts(dci->qp, attr), 0);
}

static void send_works(struct dci *dci, struct ibv_ah *ah, struct dc_side *side, unsigned int which)
{
	struct dc_wr wr = { .wr_id = 5, .opcode = IBV_WR_SEND, .len = 100 };

	pattern_fill(dc.buf, 100, 77);
	check_eq(dci_post(dci, ah, &side->target[which], &wr), 0);
	dc_side_tell(side, &(struct dc_command){ .order = DC_EXPECT,
						 .which = which,
						 .len = 100,
						 .seed = 77,
						 .src_qpn = dci->qp->qp_num });
	dc_expect_send(&dc, 5, IBV_WC_SUCCESS);
}

/* The first fails, the second is flushed, and after that it works again. */
static void fails(struct dci *dci, struct ibv_ah *ah, struct dc_side *side,
		  const struct dc_target *to, struct dc_wr wr, enum ibv_wc_status status)
{
	struct dci_attr attr = dci_attr();

	wr.wr_id = 1;
	check_eq(dci_post(dci, ah, to, &wr), 0);
	wr.wr_id = 2;
	check_eq(dci_post(dci, ah, &side->target[0], &wr), 0);
	dc_expect_send(&dc, 1, status);
	dc_expect_send(&dc, 2, IBV_WC_WR_FLUSH_ERR);
	revive(dci, &attr);
	send_works(dci, ah, side, 0);
}

static void refusals(struct dc_side *side)
{
	struct dc_wr write = { .opcode = IBV_WR_RDMA_WRITE, .len = 64, .remote = DC_SIZE / 4 };
	struct dc_wr send = { .opcode = IBV_WR_SEND, .len = 64 };
	struct dc_wr add = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8, .remote = 4 };
	struct dc_wr long_send = { .opcode = IBV_WR_SEND, .len = DC_BLOCK + 1 };
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct dci_attr attr = dci_attr();
	struct dc_target bad;
	struct ibv_wc wc;
	struct dci dci;

	dci_open(&dci, &dc, &attr);
	dc_side_tell(side,
		     &(struct dc_command){
			     .order = DC_FILL, .len = 64, .seed = 9, .offset = write.remote });
	bad = side->target[1];
	bad.key++;
	fails(&dci, ah, side, &bad, send, IBV_WC_REM_ACCESS_ERR);
	fails(&dci, ah, side, &bad, write, IBV_WC_REM_ACCESS_ERR);
	/* The key of another target opens nothing, connected to that one or not. */
	bad = side->target[1];
	bad.key = side->target[0].key;
	fails(&dci, ah, side, &bad, write, IBV_WC_REM_ACCESS_ERR);
	bad = side->target[1];
	bad.dctn ^= 0x7000;
	fails(&dci, ah, side, &bad, send, IBV_WC_RETRY_EXC_ERR);
	bad = side->target[1];
	bad.rkey ^= 0x5500;
	fails(&dci, ah, side, &bad, write, IBV_WC_REM_ACCESS_ERR);
	dc_side_tell(side,
		     &(struct dc_command){
			     .order = DC_CHECK, .len = 64, .seed = 9, .offset = write.remote });
	fails(&dci, ah, side, &side->target[1], add, IBV_WC_REM_INV_REQ_ERR);
	write.offset = DC_SIZE;
	fails(&dci, ah, side, &side->target[1], write, IBV_WC_LOC_PROT_ERR);
	/* More than the receive takes: that ends, too, and the next initiator finds the next one. */
	if (side->dc) {
		check_eq(dci_post(&dci, ah, &side->target[1], &long_send), 0);
		dc_expect_send(&dc, 0, IBV_WC_REM_INV_REQ_ERR);
		check(cq_wait(dc.recv_cq, &wc, PATIENCE_MS));
		check_status(&wc, IBV_WC_LOC_LEN_ERR);
		check_eq(wc.qp_num, side->target[1].dctn);
		dc_receive(&dc, (unsigned int)wc.wr_id);
		revive(&dci, &attr);
		send_works(&dci, ah, side, 1);
	}
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

/* A target is destroyed while initiators are connected to it, and another one comes in its place. */
static void recreated(struct dc_side *side)
{
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct dc_wr write = {
		.wr_id = 3, .opcode = IBV_WR_RDMA_WRITE, .len = 64, .remote = DC_SIZE / 4
	};
	struct dci_attr attr = dci_attr();
	struct dc_target old;
	struct dci dci;

	dci_open(&dci, &dc, &attr);
	for (uint64_t round = 0; round < 6; round++) {
		send_works(&dci, ah, side, 1);
		old = side->target[1];
		dc_side_tell(side, &(struct dc_command){ .order = DC_DESTROY, .which = 1 });
		dc_side_tell(side, &(struct dc_command){ .order = DC_FILL,
							 .len = 64,
							 .seed = 9,
							 .offset = write.remote });
		dc_side_tell(side, &(struct dc_command){
					   .order = DC_CREATE, .which = 1, .key = old.key + 100 });
		check_eq(dci_post(&dci, ah, &old, &write), 0);
		/* Whether its number came back is not promised. */
		dc_expect_send(&dc, 3,
			       side->target[1].dctn == old.dctn ? IBV_WC_REM_ACCESS_ERR
								: IBV_WC_RETRY_EXC_ERR);
		revive(&dci, &attr);
		dc_side_tell(side, &(struct dc_command){ .order = DC_CHECK,
							 .len = 64,
							 .seed = 9,
							 .offset = write.remote });
	}
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

/* Destroyed while messages are on their way: each ends, with success or with an error. */
static void destroyed_in_flight(struct dc_side *side)
{
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct dc_wr write = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm = 1, .len = 20000, .remote = DC_SIZE / 4
	};
	struct dci_attr attr = dci_attr();
	struct dci dci;
	enum { COUNT = 40 };
	struct ibv_wc wc;

	attr.timeout = 10;
	dci_open(&dci, &dc, &attr);
	send_works(&dci, ah, side, 1);
	for (write.wr_id = 0; write.wr_id < COUNT; write.wr_id++)
		check_eq(dci_post(&dci, ah, &side->target[1], &write), 0);
	dc_side_tell(side, &(struct dc_command){ .order = DC_DESTROY, .which = 1 });
	for (uint64_t i = 0, failed = 0; i < COUNT; i++) {
		check(cq_wait(dc.send_cq, &wc, PATIENCE_MS));
		check_eq(wc.wr_id, i);
		if (wc.status != IBV_WC_SUCCESS)
			check_status(&wc, failed++ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
		else
			check_eq(failed, 0);
	}
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

static void target_killed(void)
{
	struct dc_wr write = {
		.wr_id = 3, .opcode = IBV_WR_RDMA_WRITE, .len = 64, .remote = DC_SIZE / 4
	};
	struct dci_attr attr = dci_attr();
	struct dc_side side, next;
	struct dci idle, dci;
	struct ibv_ah *ah;
	int status;

	dc_side_spawn(&side, 2);
	ah = dc_ah(&dc, &side.target[0].gid);
	dci_open(&dci, &dc, &attr);
	dci_open(&idle, &dc, &attr);
	send_works(&dci, ah, &side, 0);
	send_works(&idle, ah, &side, 1);
	kill(side.pid, SIGKILL);
	check_eq(waitpid(side.pid, &status, 0), side.pid);
	close(side.fd);
	check_eq(dci_post(&dci, ah, &side.target[0], &write), 0);
	dc_expect_send(&dc, 3, IBV_WC_RETRY_EXC_ERR);
	revive(&dci, &attr);
	/* Another process, perhaps in the place of the first, is none the worse for it. */
	dc_side_spawn(&next, 2);
	send_works(&dci, ah, &next, 0);
	send_works(&idle, ah, &next, 1);
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_qp(idle.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
	dc_side_close(&next);
}

/* --- initiators that are killed ------------------------------------------------------------------ */

/* Sends for ever. */
static void initiate(int fd)
{
	struct dci_attr attr = dci_attr();
	struct dc_target target;
	struct ibv_ah *ah;
	struct dci dci;

	dc_open(&dc);
	msg_recv(fd, &target, sizeof(target));
	ah = dc_ah(&dc, &target.gid);
	for (;;) {
		dci_open(&dci, &dc, &attr);
		for (uint64_t i = 0; i < 50; i++) {
			struct dc_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .len = DC_BLOCK };

			check_eq(dci_post(&dci, ah, &target, &wr), 0);
			dc_expect_send(&dc, i, IBV_WC_SUCCESS);
		}
		check_eq(ibv_destroy_qp(dci.qp), 0);
	}
}

/* No receive is lost with them, however often: as many as were posted come back. */
static void initiators_killed(struct dc_side *side)
{
	struct ibv_ah *ah = dc_ah(&dc, &side->target[0].gid);
	struct dci_attr attr = dci_attr();
	struct dci dci;
	struct ibv_wc wc;

	dci_open(&dci, &dc, &attr);
	for (unsigned int i = 0; i < 8; i++) {
		int fd, status;
		pid_t pid = spawn_self("initiator", &fd);
		uint64_t end;

		msg_send(fd, &side->target[0], sizeof(side->target[0]));
		end = now_us() + 20000 + 3777 * i;
		for (uint64_t got = 0; got < 20 || now_us() < end; got++) {
			check(cq_wait(dc.recv_cq, &wc, PATIENCE_MS));
			check_status(&wc, IBV_WC_SUCCESS);
			dc_receive(&dc, (unsigned int)wc.wr_id);
		}
		kill(pid, SIGKILL);
		check_eq(waitpid(pid, &status, 0), pid);
		close(fd);
		while (cq_wait(dc.recv_cq, &wc, 30))
			dc_receive(&dc, (unsigned int)wc.wr_id);
		send_works(&dci, ah, side, 0);
	}
	check_eq(ibv_destroy_qp(dci.qp), 0);
	check_eq(ibv_destroy_ah(ah), 0);
}

int main(int argc, char **argv)
{
	struct dc_side side;

	if (argc > 1 && !strcmp(argv[1], "initiator")) {
		initiate(ROLE_FD);
	} else if (argc > 1) {
		dc_side_serve(ROLE_FD);
		return 0;
	}
	dc_open(&dc);
	for (int other = 0; other < 2; other++) {
		if (other)
			dc_side_spawn(&side, 2);
		else
			dc_side_open(&side, &dc, 2);
		refusals(&side);
		recreated(&side);
		if (!other)
			initiators_killed(&side);
		destroyed_in_flight(&side);
		dc_side_close(&side);
		if (!other)
			while (cq_wait(dc.recv_cq, &(struct ibv_wc){ 0 }, 10))
				;
	}
	target_killed();
	dc_close(&dc);
	return 0;
}
