// SPDX-License-Identifier: MIT
/*
 * Sizes and offsets of what crosses the border: programs were compiled with these, and the library
 * writes them. The numbers are those of rdma-core 44 on a 64-bit machine.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>
#include <infiniband/mlx5dv.h>

struct row {
	const char *what;
	size_t have, want;
};

static void check_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (rows[i].have != rows[i].want)
			print_error("%s: %zu, not %zu\n", rows[i].what, rows[i].have, rows[i].want);
		assert_int_equal(rows[i].have, rows[i].want);
	}
}

static void verbs_structs(void **state)
{
	static const struct row rows[] = {
		{ "struct ibv_device", sizeof(struct ibv_device), 664 },
		{ "struct ibv_context", sizeof(struct ibv_context), 328 },
		{ "struct verbs_context", sizeof(struct verbs_context), 648 },
		{ "struct ibv_device_attr", sizeof(struct ibv_device_attr), 232 },
		{ "struct ibv_device_attr_ex", sizeof(struct ibv_device_attr_ex), 400 },
		{ "struct ibv_port_attr", sizeof(struct ibv_port_attr), 52 },
		{ "struct ibv_gid_entry", sizeof(struct ibv_gid_entry), 32 },
		{ "struct ibv_pd", sizeof(struct ibv_pd), 16 },
		{ "struct ibv_mr", sizeof(struct ibv_mr), 48 },
		{ "struct ibv_cq", sizeof(struct ibv_cq), 128 },
		{ "struct ibv_cq_ex", sizeof(struct ibv_cq_ex), 288 },
		{ "struct ibv_qp", sizeof(struct ibv_qp), 160 },
		{ "struct ibv_qp_ex", sizeof(struct ibv_qp_ex), 352 },
		{ "struct ibv_srq", sizeof(struct ibv_srq), 128 },
		{ "struct ibv_ah", sizeof(struct ibv_ah), 24 },
		{ "struct ibv_ah_attr", sizeof(struct ibv_ah_attr), 32 },
		{ "struct ibv_qp_attr", sizeof(struct ibv_qp_attr), 144 },
		{ "struct ibv_qp_init_attr", sizeof(struct ibv_qp_init_attr), 64 },
		{ "struct ibv_qp_init_attr_ex", sizeof(struct ibv_qp_init_attr_ex), 136 },
		{ "struct ibv_wc", sizeof(struct ibv_wc), 48 },
		{ "struct ibv_send_wr", sizeof(struct ibv_send_wr), 128 },
		{ "struct ibv_recv_wr", sizeof(struct ibv_recv_wr), 32 },
		{ "struct ibv_sge", sizeof(struct ibv_sge), 16 },
		{ "struct ibv_comp_channel", sizeof(struct ibv_comp_channel), 16 },
		{ "struct ibv_async_event", sizeof(struct ibv_async_event), 16 },
		{ "struct ibv_grh", sizeof(struct ibv_grh), 40 },
		{ "struct ibv_context.ops", offsetof(struct ibv_context, ops), 8 },
		{ "struct ibv_context.cmd_fd", offsetof(struct ibv_context, cmd_fd), 264 },
		{ "struct ibv_context.async_fd", offsetof(struct ibv_context, async_fd), 268 },
		{ "struct ibv_context.abi_compat", offsetof(struct ibv_context, abi_compat), 320 },
		{ "struct ibv_context_ops.poll_cq", offsetof(struct ibv_context_ops, poll_cq), 88 },
		{ "struct ibv_context_ops.post_send", offsetof(struct ibv_context_ops, post_send),
		  200 },
		{ "struct ibv_context_ops.post_recv", offsetof(struct ibv_context_ops, post_recv),
		  208 },
		{ "struct verbs_context.sz", offsetof(struct verbs_context, sz), 312 },
		{ "struct verbs_context.context", offsetof(struct verbs_context, context), 320 },
		{ "struct verbs_context.query_port", offsetof(struct verbs_context, query_port),
		  0 },
		{ "struct verbs_context.create_cq_ex", offsetof(struct verbs_context, create_cq_ex),
		  200 },
		{ "struct verbs_context.create_qp_ex", offsetof(struct verbs_context, create_qp_ex),
		  264 },
		{ "struct ibv_qp.qp_num", offsetof(struct ibv_qp, qp_num), 52 },
		{ "struct ibv_qp.state", offsetof(struct ibv_qp, state), 56 },
		{ "struct ibv_cq.comp_events_completed",
		  offsetof(struct ibv_cq, comp_events_completed), 120 },
		{ "struct ibv_cq_ex.start_poll", offsetof(struct ibv_cq_ex, start_poll), 144 },
		{ "struct ibv_qp_ex.wr_start", offsetof(struct ibv_qp_ex, wr_start), 320 },
		{ "struct ibv_port_attr.port_cap_flags2",
		  offsetof(struct ibv_port_attr, port_cap_flags2), 48 },
	};

	check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

static void mlx5_structs(void **state)
{
	static const struct row rows[] = {
		{ "struct mlx5_cqe64", sizeof(struct mlx5_cqe64), 64 },
		{ "struct mlx5_err_cqe", sizeof(struct mlx5_err_cqe), 64 },
		{ "struct mlx5_wqe_ctrl_seg", sizeof(struct mlx5_wqe_ctrl_seg), 16 },
		{ "struct mlx5_wqe_data_seg", sizeof(struct mlx5_wqe_data_seg), 16 },
		{ "struct mlx5_wqe_raddr_seg", sizeof(struct mlx5_wqe_raddr_seg), 16 },
		{ "struct mlx5_wqe_atomic_seg", sizeof(struct mlx5_wqe_atomic_seg), 16 },
		{ "struct mlx5_wqe_datagram_seg", sizeof(struct mlx5_wqe_datagram_seg), 48 },
		{ "struct mlx5_wqe_inl_data_seg", sizeof(struct mlx5_wqe_inl_data_seg), 4 },
		{ "struct mlx5_wqe_srq_next_seg", sizeof(struct mlx5_wqe_srq_next_seg), 16 },
		{ "struct mlx5dv_context", sizeof(struct mlx5dv_context), 152 },
		{ "struct mlx5_cqe64.srqn_uidx", offsetof(struct mlx5_cqe64, srqn_uidx), 32 },
		{ "struct mlx5_cqe64.imm_inval_pkey", offsetof(struct mlx5_cqe64, imm_inval_pkey),
		  36 },
		{ "struct mlx5_cqe64.byte_cnt", offsetof(struct mlx5_cqe64, byte_cnt), 44 },
		{ "struct mlx5_cqe64.timestamp", offsetof(struct mlx5_cqe64, timestamp), 48 },
		{ "struct mlx5_cqe64.sop_drop_qpn", offsetof(struct mlx5_cqe64, sop_drop_qpn), 56 },
		{ "struct mlx5_cqe64.wqe_counter", offsetof(struct mlx5_cqe64, wqe_counter), 60 },
		{ "struct mlx5_cqe64.op_own", offsetof(struct mlx5_cqe64, op_own), 63 },
		{ "struct mlx5_err_cqe.syndrome", offsetof(struct mlx5_err_cqe, syndrome), 55 },
		{ "struct mlx5_err_cqe.s_wqe_opcode_qpn",
		  offsetof(struct mlx5_err_cqe, s_wqe_opcode_qpn), 56 },
	};

	check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(verbs_structs),
		cmocka_unit_test(mlx5_structs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
