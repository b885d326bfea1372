// SPDX-License-Identifier: MIT
/*
 * The QP state machine, complete: for RC, UC and UD, from each of the seven states to each of the seven, with
 * exactly the required attributes, with each one missing, with each optional one more, and with each foreign one.
 * What is refused is EINVAL and leaves the QP as it was. One cmocka case per type, from and to.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../programs/common.h"
#include "qp_table.h"

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

/* Every attribute bit that ibv_modify_qp() knows beside the state itself. */
static const int attributes[] = {
	IBV_QP_CUR_STATE,
	IBV_QP_EN_SQD_ASYNC_NOTIFY,
	IBV_QP_ACCESS_FLAGS,
	IBV_QP_PKEY_INDEX,
	IBV_QP_PORT,
	IBV_QP_QKEY,
	IBV_QP_AV,
	IBV_QP_PATH_MTU,
	IBV_QP_TIMEOUT,
	IBV_QP_RETRY_CNT,
	IBV_QP_RNR_RETRY,
	IBV_QP_RQ_PSN,
	IBV_QP_MAX_QP_RD_ATOMIC,
	IBV_QP_ALT_PATH,
	IBV_QP_MIN_RNR_TIMER,
	IBV_QP_SQ_PSN,
	IBV_QP_MAX_DEST_RD_ATOMIC,
	IBV_QP_PATH_MIG_STATE,
	IBV_QP_CAP,
	IBV_QP_DEST_QPN,
};
enum { NUM_ATTRIBUTES = sizeof(attributes) / sizeof(attributes[0]) };

struct cell {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
};

static struct node node;
static bool has_migration; /* the card claims automatic path migration */

static void fail_case(const char *file, int line)
{
	_fail(file, line);
}

static int open_node(void **state)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_device_attr device;

	(void)state;
	attr.size = 4096;
	node_open(&node, &attr);
	check_eq(ibv_destroy_qp(node.qp), 0);
	node.qp = NULL;
	check_eq(ibv_query_device(node.ctx, &device), 0);
	has_migration = device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG;
	return 0;
}

static int close_node(void **state)
{
	(void)state;
	node_close(&node);
	return 0;
}

/* Good values for every attribute, so that only the mask decides. */
static void good_values(struct ibv_qp_attr *attr, enum ibv_qp_state from)
{
	memset(attr, 0, sizeof(*attr));
	attr->cur_qp_state = from;
	attr->qp_access_flags =
		node.attr.type == IBV_QPT_UC ? IBV_ACCESS_REMOTE_WRITE : ACCESS_REMOTE;
	attr->port_num = 1;
	attr->qkey = TEST_QKEY;
	ah_attr_to(&attr->ah_attr, &node.gid);
	ah_attr_to(&attr->alt_ah_attr, &node.gid);
	attr->alt_port_num = 1;
	attr->path_mtu = IBV_MTU_256;
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->timeout = 14;
	attr->retry_cnt = 7;
	attr->rnr_retry = 7;
	attr->rq_psn = TEST_PSN;
	attr->sq_psn = TEST_PSN;
	attr->max_rd_atomic = 1;
	attr->max_dest_rd_atomic = 1;
	attr->min_rnr_timer = 12;
	attr->dest_qp_num = node.qp ? node.qp->qp_num : 0;
	attr->cap = node.attr.cap;
}

/* A send from a key that does not exist: the one way into SQE, for UC and UD. */
static void enter_sqe(void)
{
	struct ibv_sge sge = { (uintptr_t)node.buf, 8, node.mr->lkey ^ 0x5a5a00 };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_send_wr *bad;
	struct ibv_ah_attr ah_attr;
	struct ibv_wc wc;

	ah_attr_to(&ah_attr, &node.gid);
	if (node.attr.type == IBV_QPT_UD) {
		wr.wr.ud.ah = ibv_create_ah(node.pd, &ah_attr);
		check(wr.wr.ud.ah != NULL);
		wr.wr.ud.remote_qpn = node.qp->qp_num;
		wr.wr.ud.remote_qkey = TEST_QKEY;
	}
	check_eq(ibv_post_send(node.qp, &wr, &bad), 0);
	check(cq_wait(node.send_cq, &wc, PATIENCE_MS), "no completion of the bad send");
	check_status(&wc, IBV_WC_LOC_PROT_ERR);
	if (wr.wr.ud.ah)
		check_eq(ibv_destroy_ah(wr.wr.ud.ah), 0);
}

/* A fresh QP in the state; only legal steps are used. */
static void make_qp(enum ibv_qp_type type, enum ibv_qp_state state)
{
	struct address self;

	if (node.qp)
		check_eq(ibv_destroy_qp(node.qp), 0);
	node.attr = node_attr(type);
	node.attr.cap.max_send_wr = node.attr.cap.max_recv_wr = 4;
	node.attr.size = 4096;
	node.qp = node_create_qp(&node);
	check(node.qp, "create %s: %s", qp_type_name(type), strerror(errno));
	check_eq(qp_get_state(node.qp), IBV_QPS_RESET);
	node_address(&node, &self);
	if (state == IBV_QPS_RESET)
		return;
	node_to_init(&node);
	if (state == IBV_QPS_ERR)
		check_eq(qp_set_state(node.qp, IBV_QPS_ERR), 0);
	if (state == IBV_QPS_INIT || state == IBV_QPS_ERR)
		return;
	node_to_rtr(&node, &self);
	if (state == IBV_QPS_RTR)
		return;
	node_to_rts(&node);
	if (state == IBV_QPS_SQD)
		check_eq(qp_set_state(node.qp, IBV_QPS_SQD), 0);
	if (state == IBV_QPS_SQE)
		enter_sqe();
	check_eq(qp_get_state(node.qp), state);
}

/* Try one transition; where accept is false it must be EINVAL with nothing changed. */
static void try_mask(const struct cell *cell, int mask, bool accept, const char *why)
{
	struct ibv_qp_attr attr;
	enum ibv_qp_state after;
	int err;

	make_qp(cell->type, cell->from);
	good_values(&attr, cell->from);
	attr.qp_state = cell->to;
	err = ibv_modify_qp(node.qp, &attr, mask | IBV_QP_STATE);
	after = qp_get_state(node.qp);
	if (accept) {
		check(err == 0, "%s, mask %#x: refused with %d", why, mask, err);
		check(after == cell->to, "%s: QP is in %s", why, qp_state_name(after));
	} else {
		check(err == EINVAL, "%s, mask %#x: returned %d", why, mask, err);
		check(after == cell->from, "%s: QP went to %s", why, qp_state_name(after));
	}
}

/* Path migration exists only where the card says so; there the table says nothing to us. */
static bool table_decides(int bit)
{
	return has_migration || !(bit & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE));
}

static void test_cell(void **state)
{
	const struct cell *cell = *state;
	struct transition want = qp_table_find(cell->type, cell->from, cell->to);

	try_mask(cell, want.required, want.valid, "required attributes only");
	for (int i = 0; i < NUM_ATTRIBUTES; i++) {
		int bit = attributes[i];

		if (!table_decides(bit))
			continue;
		if (want.required & bit)
			try_mask(cell, want.required & ~bit, false,
				 "one required attribute missing");
		else if (want.optional & bit)
			try_mask(cell, want.required | bit, want.valid, "one optional attribute");
		else
			try_mask(cell, want.required | bit, false, "one foreign attribute");
	}
}

/* A state beyond the enumeration, and no state at all where the attributes fit the current one. */
static void test_strange_states(void **state)
{
	struct ibv_qp_attr attr;

	(void)state;
	for (int i = 0; i < 3; i++) {
		make_qp(types[i], IBV_QPS_INIT);
		good_values(&attr, IBV_QPS_INIT);
		attr.qp_state = IBV_QPS_UNKNOWN;
		check_eq(ibv_modify_qp(node.qp, &attr, IBV_QP_STATE), EINVAL);
		attr.qp_state = (enum ibv_qp_state)255;
		check_eq(ibv_modify_qp(node.qp, &attr, IBV_QP_STATE), EINVAL);
		check_eq(qp_get_state(node.qp), IBV_QPS_INIT);
		/* Without IBV_QP_STATE the state stays, and INIT may change its pkey index. */
		check_eq(ibv_modify_qp(node.qp, &attr, IBV_QP_PKEY_INDEX), 0);
		check_eq(ibv_modify_qp(node.qp, &attr, IBV_QP_SQ_PSN), EINVAL);
		check_eq(qp_get_state(node.qp), IBV_QPS_INIT);
	}
}

static void test_wrong_current_state(void **state)
{
	struct ibv_qp_attr attr;

	(void)state;
	make_qp(IBV_QPT_RC, IBV_QPS_RTS);
	good_values(&attr, IBV_QPS_SQD);
	attr.qp_state = IBV_QPS_RTS;
	check_eq(ibv_modify_qp(node.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	check_eq(qp_get_state(node.qp), IBV_QPS_RTS);
}

/* Refused values for INIT -> RTR of an RC QP; each is one field away from a good request. */
static void test_bad_values_rtr(void **state)
{
	const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_attr good, bad[7];
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	(void)state;
	check_eq(ibv_query_device(node.ctx, &device), 0);
	check_eq(ibv_query_port(node.ctx, 1, &port), 0);
	make_qp(IBV_QPT_RC, IBV_QPS_INIT);
	good_values(&good, IBV_QPS_INIT);
	good.qp_state = IBV_QPS_RTR;
	for (int i = 0; i < 7; i++)
		bad[i] = good;
	bad[0].path_mtu = (enum ibv_mtu)0;
	bad[1].path_mtu = (enum ibv_mtu)6;
	bad[2].ah_attr.is_global = 0; /* RoCE has no LIDs to route by */
	bad[3].ah_attr.port_num = 2;
	bad[4].ah_attr.grh.sgid_index = 200;
	bad[5].max_dest_rd_atomic = (uint8_t)(device.max_qp_rd_atom + 1);
	/* To this host it would do. */
	bad[6].path_mtu = (enum ibv_mtu)(port.active_mtu + 1);
	memcpy(bad[6].ah_attr.grh.dgid.raw, (uint8_t[]){ 0x20, 0x01, 0x0d, 0xb8 }, 4);
	for (int i = 0; i < 7; i++) {
		int err = ibv_modify_qp(node.qp, &bad[i], mask);

		check(err == EINVAL, "bad value %d: returned %d", i, err);
		check_eq(qp_get_state(node.qp), IBV_QPS_INIT);
	}
	check_eq(ibv_modify_qp(node.qp, &good, mask), 0);
}

static void test_bad_values_init(void **state)
{
	const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_attr good, bad;
	struct ibv_port_attr port;

	(void)state;
	check_eq(ibv_query_port(node.ctx, 1, &port), 0);
	make_qp(IBV_QPT_RC, IBV_QPS_RESET);
	good_values(&good, IBV_QPS_RESET);
	good.qp_state = IBV_QPS_INIT;
	bad = good;
	bad.port_num = 0;
	check_eq(ibv_modify_qp(node.qp, &bad, mask), EINVAL);
	bad.port_num = 2;
	check_eq(ibv_modify_qp(node.qp, &bad, mask), EINVAL);
	bad = good;
	bad.pkey_index = port.pkey_tbl_len;
	check_eq(ibv_modify_qp(node.qp, &bad, mask), EINVAL);
	check_eq(qp_get_state(node.qp), IBV_QPS_RESET);
	check_eq(ibv_modify_qp(node.qp, &good, mask), 0);
}

static void test_bad_values_rts(void **state)
{
	const int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	struct ibv_qp_attr good, bad;
	struct ibv_device_attr device;

	(void)state;
	check_eq(ibv_query_device(node.ctx, &device), 0);
	make_qp(IBV_QPT_RC, IBV_QPS_RTR);
	good_values(&good, IBV_QPS_RTR);
	good.qp_state = IBV_QPS_RTS;
	bad = good;
	bad.max_rd_atomic = (uint8_t)(device.max_qp_init_rd_atom + 1);
	check_eq(ibv_modify_qp(node.qp, &bad, mask), EINVAL);
	check_eq(qp_get_state(node.qp), IBV_QPS_RTR);
	check_eq(ibv_modify_qp(node.qp, &good, mask), 0);
}

/* What was set on the way to RTS is what ibv_query_qp() tells. */
static void test_query_rc(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)state;
	make_qp(IBV_QPT_RC, IBV_QPS_RTS);
	memset(&attr, 0xff, sizeof(attr));
	memset(&init, 0xff, sizeof(init));
	check_eq(ibv_query_qp(node.qp, &attr, 0x1fffff, &init), 0);
	check_eq(attr.qp_state, IBV_QPS_RTS);
	check_eq(attr.cur_qp_state, IBV_QPS_RTS);
	check_eq(attr.path_mtu, node.mtu);
	check_eq(attr.rq_psn, TEST_PSN);
	check_eq(attr.sq_psn, TEST_PSN);
	check_eq(attr.dest_qp_num, node.qp->qp_num);
	check_eq(attr.qp_access_flags, ACCESS_REMOTE);
	check_eq(attr.pkey_index, 0);
	check_eq(attr.port_num, 1);
	check_eq(attr.timeout, node.attr.timeout);
	check_eq(attr.retry_cnt, node.attr.retry_cnt);
	check_eq(attr.rnr_retry, node.attr.rnr_retry);
	check_eq(attr.min_rnr_timer, node.attr.min_rnr_timer);
	check_eq(attr.max_rd_atomic, node.attr.rd_atomic);
	check_eq(attr.max_dest_rd_atomic, node.attr.dest_rd_atomic);
	check_eq(attr.sq_draining, 0);
	check_eq(attr.ah_attr.is_global, 1);
	check_eq(attr.ah_attr.port_num, 1);
	check_eq(attr.ah_attr.grh.sgid_index, TEST_GID_INDEX);
	check_eq(attr.ah_attr.grh.hop_limit, 64);
	check(!memcmp(&attr.ah_attr.grh.dgid, &node.gid, sizeof(node.gid)), "dgid");
	check(attr.cap.max_send_wr >= 4 && attr.cap.max_recv_wr >= 4, "capacity");
	check_eq(init.qp_type, IBV_QPT_RC);
	check(init.send_cq == node.send_cq && init.recv_cq == node.recv_cq, "CQs");
	check(init.srq == NULL, "SRQ");
	check(init.cap.max_send_wr >= 4 && init.cap.max_recv_wr >= 4, "capacity in init");
	check_eq(init.sq_sig_all, 0);
}

static void test_query_ud(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)state;
	make_qp(IBV_QPT_UD, IBV_QPS_RTS);
	check_eq(ibv_query_qp(node.qp, &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_PORT, &init), 0);
	check_eq(attr.qp_state, IBV_QPS_RTS);
	check_eq(attr.qkey, TEST_QKEY);
	check_eq(attr.port_num, 1);
	check_eq(init.qp_type, IBV_QPT_UD);
	/* A later change shows, too. */
	attr.qkey = 0x77;
	check_eq(ibv_modify_qp(node.qp, &attr, IBV_QP_QKEY), 0);
	attr.qkey = 0;
	check_eq(ibv_query_qp(node.qp, &attr, IBV_QP_QKEY, &init), 0);
	check_eq(attr.qkey, 0x77);
}

/* SQD with notification: an idle send queue is drained at once. */
static void test_sq_drained_event(void **state)
{
	struct ibv_qp_attr attr;

	(void)state;
	make_qp(IBV_QPT_RC, IBV_QPS_RTS);
	good_values(&attr, IBV_QPS_RTS);
	attr.qp_state = IBV_QPS_SQD;
	attr.en_sqd_async_notify = 1;
	check_eq(ibv_modify_qp(node.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	check_eq(event_wait(node.ctx, PATIENCE_MS), IBV_EVENT_SQ_DRAINED);
}

/* In which states work may be posted: IB specification 10.8.2, 10.8.3. */
static void test_posting_by_state(void **state)
{
	/* clang-format off */
	static const struct { enum ibv_qp_state state; bool send, recv; } rows[] = {
		{ IBV_QPS_RESET, false, false }, { IBV_QPS_INIT, false, true }, { IBV_QPS_RTR, false, true },
		{ IBV_QPS_RTS, true, true }, { IBV_QPS_SQD, true, true }, { IBV_QPS_ERR, true, true },
	};
	/* clang-format on */

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		make_qp(IBV_QPT_RC, rows[i].state);
		check((node_send(&node, 1, 0, 8, 0) == 0) == rows[i].send, "send in %s",
		      qp_state_name(rows[i].state));
		check((node_recv(&node, 2, 0, 8) == 0) == rows[i].recv, "receive in %s",
		      qp_state_name(rows[i].state));
	}
}

enum { STATES = IBV_QPS_ERR + 1, NUM_CELLS = 3 * STATES * STATES };

int main(void)
{
	static struct cell cells[NUM_CELLS];
	const struct CMUnitTest more[] = {
		cmocka_unit_test(test_strange_states),   cmocka_unit_test(test_wrong_current_state),
		cmocka_unit_test(test_bad_values_init),  cmocka_unit_test(test_bad_values_rtr),
		cmocka_unit_test(test_bad_values_rts),   cmocka_unit_test(test_query_rc),
		cmocka_unit_test(test_query_ud),         cmocka_unit_test(test_sq_drained_event),
		cmocka_unit_test(test_posting_by_state),
	};
	enum { NUM_MORE = sizeof(more) / sizeof(more[0]) };
	static struct CMUnitTest tests[NUM_CELLS + NUM_MORE];
	int n = 0;

	test_fail_hook = fail_case;
	for (int i = 0; i < NUM_CELLS; i++) {
		char *name;

		cells[i].type = types[i / (STATES * STATES)];
		cells[i].from = (enum ibv_qp_state)(i / STATES % STATES);
		cells[i].to = (enum ibv_qp_state)(i % STATES);
		/* RC has no SQE, so nothing can be tried from there. */
		if (cells[i].type == IBV_QPT_RC && cells[i].from == IBV_QPS_SQE)
			continue;
		if (asprintf(&name, "%s %s to %s", qp_type_name(cells[i].type),
			     qp_state_name(cells[i].from), qp_state_name(cells[i].to)) < 0)
			return 1;
		tests[n].name = name;
		tests[n].test_func = test_cell;
		tests[n++].initial_state = &cells[i];
	}
	memcpy(&tests[n], more, sizeof(more));
	n += NUM_MORE;
	return _cmocka_run_group_tests("qp_states", tests, (size_t)n, open_node, close_node) != 0;
}
