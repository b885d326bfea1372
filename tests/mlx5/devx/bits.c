// SPDX-License-Identifier: MIT
/*
 * Every bit of QUERY_HCA_CAP is accounted for: one that is set stands for something that works, which is done here or in
 * the test that the table names; all others are 0. What direct verbs refuse with EOPNOTSUPP has no capability.
 */
#include "commands.h"

#include <stdio.h>
#include <sys/mman.h>

static struct command c;

enum {
	GENERAL = 0,
	ETH = 1,
	ATOMIC = 3,
	ROCE = 4,
	NIC_FLOW = 7,
	ESW_FLOW = 8,
	QOS = 0xc,
	DEVICE_MEMORY = 0xf
};
enum { GROUPS = 0x40, CAP_BITS = 0x8000 };

static void read_group(uint32_t group)
{
	command(&c, 0x100, 16, CAPABILITIES);
	put_bits(c.in, 0x30, 16, group << 1 | 1);
	assert_ok(general(&c));
	assert_int_equal(c.out[0], OK);
}

/* --- proofs -------------------------------------------------------------------------------------- */

/* The card has the command. */
static void served(uint32_t opcode)
{
	struct mlx5dv_devx_obj *obj = create(command(&c, (uint16_t)opcode, 16, 16));

	if (obj)
		destroy(obj);
	else
		assert_int_not_equal(c.out[0], BAD_OP);
	assert_int_not_equal(c.out[0], 0xa5); /* the kernel would refuse what nobody knows */
}

static void queue_pairs(uint32_t type)
{
	struct ibv_qp_init_attr init = { .send_cq = kit.cq,
					 .recv_cq = kit.cq,
					 .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = (enum ibv_qp_type)type };
	struct ibv_qp *qp = ibv_create_qp(kit.pd, &init);

	assert_non_null(qp);
	assert_ok(ibv_destroy_qp(qp));
}

static void frames(uint32_t cap)
{
	struct ibv_device_attr_ex attr;

	assert_ok(ibv_query_device_ex(kit.ctx, NULL, &attr));
	assert_int_equal(attr.raw_packet_caps & cap, cap);
}

static void atomics(uint32_t none)
{
	struct ibv_device_attr attr;

	(void)none;
	assert_ok(ibv_query_device(kit.ctx, &attr));
	assert_int_not_equal(attr.atomic_cap, IBV_ATOMIC_NONE);
}

static void memory(uint32_t none)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(kit.ctx, &attr);

	(void)none;
	assert_non_null(dm);
	assert_ok(ibv_free_dm(dm));
}

/* An address of each operation that a bit names; the sizes are those of mlx5_direct_dm_ops. */
static void memory_operations(uint32_t none)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm = ibv_alloc_dm(kit.ctx, &attr);
	uint32_t ops;

	(void)none;
	assert_non_null(dm);
	read_group(DEVICE_MEMORY);
	ops = (uint32_t)get_bits(c.out, 0x80 + 0x200, 32);
	for (uint8_t op = 0; op < 32; op++) {
		void *addr = mlx5dv_dm_map_op_addr(dm, op);

		assert_int_equal(addr != NULL, ops >> op & 1);
		if (addr)
			assert_ok(munmap(addr, attr.length));
		if (op < 2)
			assert_int_equal(get_bits(c.out, 0x80 + 0x20 + 0x10 * op, 8),
					 addr ? 0xf : 0);
	}
	assert_ok(ibv_free_dm(dm));
}

/* An entry of the largest and of the smallest rate that the numbers name. */
static void pacing(uint32_t none)
{
	uint8_t context[12] = { 0 };
	struct mlx5dv_pp *pp;
	uint64_t max, min;

	(void)none;
	read_group(QOS);
	max = get_bits(c.out, 0x80 + 0x40, 32);
	min = get_bits(c.out, 0x80 + 0x60, 32);
	assert_in_range(min, 1, max);
	for (int i = 0; i < 2; i++) {
		put_bits(context, 0, 32, i ? min : max);
		put_bits(context, 32, 32, 9000);
		pp = mlx5dv_pp_alloc(kit.ctx, sizeof(context), context, 0);
		assert_non_null(pp);
		mlx5dv_pp_free(pp);
	}
}

/* As many entries as the table has, and not one more. */
static void pacing_entries(uint32_t none)
{
	static struct mlx5dv_pp *pp[1024];
	uint8_t context[12] = { 0 };
	uint32_t size;

	(void)none;
	read_group(QOS);
	size = (uint32_t)get_bits(c.out, 0x80 + 0x90, 16);
	assert_in_range(size, 1, 1023);
	put_bits(context, 0, 32, 1000);
	for (uint32_t i = 0; i < size; i++) {
		pp[i] = mlx5dv_pp_alloc(kit.ctx, sizeof(context), context,
					MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX);
		assert_non_null(pp[i]);
	}
	assert_null(mlx5dv_pp_alloc(kit.ctx, sizeof(context), context,
				    MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX));
	while (size)
		mlx5dv_pp_free(pp[--size]);
}

static void counter_sets(uint32_t none)
{
	static struct mlx5dv_devx_obj *set[1024];
	uint32_t size;

	(void)none;
	read_group(GENERAL);
	size = (uint32_t)get_bits(c.out, 0x80 + 0x186, 10);
	for (uint32_t i = 0; i < size; i++) {
		set[i] = create(command(&c, 0x771, 16, 16));
		assert_non_null(set[i]);
	}
	refuse_create(command(&c, 0x771, 16, 16), NO_RES);
	while (size)
		destroy(set[--size]);
}

/* Tables of this type are made, with entries up to the size and levels that the numbers name. */
static void tables(uint32_t type)
{
	struct mlx5dv_devx_obj *table;

	command(&c, 0x930, 64, 16);
	put_bits(c.in, 0x80, 8, type);
	put_bits(c.in, 0xc8, 8, 1);
	table = create(&c);
	assert_non_null(table);
	destroy(table);
}

static void compressed(uint32_t none)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
					  .cqe_comp_res_format =
						  MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX };
	struct ibv_cq_ex *cq = mlx5dv_create_cq(kit.ctx, &attr, &dv);

	(void)none;
	assert_non_null(cq);
	assert_ok(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

/* --- the table ----------------------------------------------------------------------------------- */

struct bits {
	uint32_t group, at, bits;
	const char *what; /* its name, and the test that has it where there is no proof here */
	void (*prove)(uint32_t arg);
	uint32_t arg;
};

#define FLOWS(group, at, type)                                                                       \
	{ group, at + 0x0, 1, "ft_support", tables, type },                                          \
		{ group,  at + 0x1, 3, "flow_tag, flow_counter, flow_modify_en: mlx5_devx_flows",    \
		  served, 0x939 },                                                                   \
		{ group, at + 0x7, 2, "reformat, decap", served, 0x93d },                            \
		{ group, at + 0xa, 2, "pop_vlan, push_vlan: mlx5_devx_flows", NULL, 0 },             \
		{ group, at + 0xd, 2, "pop_vlan_2, push_vlan_2: mlx5_devx_flows", NULL, 0 },         \
		{ group, at + 0x12, 2, "reformat_l3_tunnel_to_l2, l2_to_l3_tunnel", served, 0x93d }, \
		{ group, at + 0x22, 30, "sizes and levels: mlx5_devx_general", NULL, 0 },            \
		{ group, at + 0x78, 8, "log_max_ft_num", NULL, 0 },                                  \
		{ group, at + 0x98, 8, "log_max_destination", NULL, 0 },                             \
	{                                                                                            \
		group, at + 0xb8, 8, "log_max_flow", NULL, 0                                         \
	}

static const struct bits known[] = {
	{ GENERAL, 0x30, 16, "vhca_id", NULL, 0 },
	{ GENERAL, 0x6b, 5, "log_dma_mmo_max_size: mlx5_direct_rings", NULL, 0 },
	{ GENERAL, 0x80, 16, "log_max_srq_sz, log_max_qp_sz: mlx5_devx_general", NULL, 0 },
	{ GENERAL, 0x9b, 5, "log_max_qp", NULL, 0 },
	{ GENERAL, 0xab, 5, "log_max_srq", NULL, 0 },
	{ GENERAL, 0xc8, 8, "log_max_cq_sz", served, 0x400 },
	{ GENERAL, 0xdb, 5, "log_max_cq", NULL, 0 },
	{ GENERAL, 0xe0, 8, "log_max_eq_sz", NULL, 0 },
	{ GENERAL, 0xea, 6, "log_max_mkey", served, 0x200 },
	{ GENERAL, 0xfc, 4, "log_max_eq", NULL, 0 },
	{ GENERAL, 0x100, 8, "max_indirection: mlx5_direct_umr", NULL, 0 },
	{ GENERAL, 0x108, 1, "fixed_buffer_size: mlx5_devx_keys", NULL, 0 },
	{ GENERAL, 0x109, 7, "log_max_mrw_sz", NULL, 0 },
	{ GENERAL, 0x11a, 6, "log_max_klm_list_size: mlx5_devx_keys", NULL, 0 },
	{ GENERAL, 0x12a, 6, "log_max_ra_req_dc: mlx5_dc", NULL, 0 },
	{ GENERAL, 0x13a, 6, "log_max_ra_res_dc: mlx5_dc", NULL, 0 },
	{ GENERAL, 0x14a, 6, "log_max_ra_req_qp", NULL, 0 },
	{ GENERAL, 0x15a, 6, "log_max_ra_res_qp", NULL, 0 },
	{ GENERAL, 0x168, 1, "rnr_nak_q_counters: mlx5_queues_counters", served, 0x771 },
	{ GENERAL, 0x170, 16, "gid_table_size: mlx5_devx_general", NULL, 0 },
	{ GENERAL, 0x180, 1, "out_of_seq_cnt: mlx5_queues_counters", served, 0x771 },
	{ GENERAL, 0x182, 1, "retransmission_q_counters: mlx5_queues_counters", served, 0x771 },
	{ GENERAL, 0x184, 1, "modify_rq_counters_set_id: mlx5_queues_counters", served, 0x771 },
	{ GENERAL, 0x186, 10, "max_qp_cnt", counter_sets, 0 },
	{ GENERAL, 0x1a6, 1, "nic_flow_table", tables, 0 },
	{ GENERAL, 0x1a7, 1, "eswitch_manager", tables, 4 },
	{ GENERAL, 0x1a8, 1, "device_memory", memory, 0 },
	{ GENERAL, 0x1ab, 5, "local_ca_ack_delay", NULL, 0 },
	{ GENERAL, 0x1b1, 1, "enhanced_error_q_counters: mlx5_queues_counters", served, 0x771 },
	{ GENERAL, 0x1b6, 2, "port_type", NULL, 0 },
	{ GENERAL, 0x1b8, 8, "num_ports: mlx5_devx_general", NULL, 0 },
	{ GENERAL, 0x1c3, 5, "log_max_msg: mlx5_devx_general", NULL, 0 },
	{ GENERAL, 0x1fc, 4, "cqe_version", NULL, 0 },
	{ GENERAL, 0x201, 1, "eth_striding_wq: mlx5_queues_striding", NULL, 0 },
	{ GENERAL, 0x21a, 1, "dct", served, 0x710 },
	{ GENERAL, 0x21b, 1, "qos", pacing, 0 },
	{ GENERAL, 0x21c, 1, "eth_net_offloads", queue_pairs, IBV_QPT_RAW_PACKET },
	{ GENERAL, 0x21d, 1, "roce", queue_pairs, IBV_QPT_RC },
	{ GENERAL, 0x21e, 1, "atomic", atomics, 0 },
	{ GENERAL, 0x220, 1, "cq_oi: mlx5_queues_events", NULL, 0 },
	{ GENERAL, 0x221, 1, "cq_resize: mlx5_queues_cqs", NULL, 0 },
	{ GENERAL, 0x222, 1, "cq_moderation: mlx5_devx_walk", served, 0x400 },
	{ GENERAL, 0x223, 1, "cq_period_mode_modify: mlx5_queues_cqs", NULL, 0 },
	{ GENERAL, 0x226, 1, "cq_eq_remap: mlx5_queues_cqs", NULL, 0 },
	{ GENERAL, 0x23d, 1, "ud", queue_pairs, IBV_QPT_UD },
	{ GENERAL, 0x23e, 1, "uc", queue_pairs, IBV_QPT_UC },
	{ GENERAL, 0x23f, 1, "rc", queue_pairs, IBV_QPT_RC },
	{ GENERAL, 0x240, 1, "uar_4k", NULL, 0 },
	{ GENERAL, 0x252, 1, "umem_uid_0: mlx5_devx_general", NULL, 0 },
	{ GENERAL, 0x258, 8, "log_pg_sz", NULL, 0 },
	{ GENERAL, 0x260, 1, "bf: mlx5_direct_rings", NULL, 0 },
	{ GENERAL, 0x26b, 5, "log_bf_reg_size", NULL, 0 },
	{ GENERAL, 0x290, 16, "max_wqe_sz_sq", NULL, 0 },
	{ GENERAL, 0x2b0, 16, "max_wqe_sz_rq", NULL, 0 },
	{ GENERAL, 0x2c0, 16, "max_flow_counter_31_16", served, 0x939 },
	{ GENERAL, 0x2d0, 16, "max_wqe_sz_sq_dc: mlx5_dc", NULL, 0 },
	{ GENERAL, 0x323, 5, "log_max_transport_domain", served, 0x816 },
	{ GENERAL, 0x32b, 5, "log_max_pd", served, 0x800 },
	{ GENERAL, 0x348, 8, "log_max_flow_counter_bulk", served, 0x939 },
	{ GENERAL, 0x350, 16, "max_flow_counter_15_0", served, 0x939 },
	{ GENERAL, 0x360, 1, "modify_tis: mlx5_devx_walk", served, 0x912 },
	{ GENERAL, 0x363, 5, "log_max_rq", served, 0x908 },
	{ GENERAL, 0x36b, 5, "log_max_sq", served, 0x904 },
	{ GENERAL, 0x373, 5, "log_max_tir", served, 0x900 },
	{ GENERAL, 0x37b, 5, "log_max_tis", served, 0x912 },
	{ GENERAL, 0x380, 1, "basic_cyclic_rcv_wqe", served, 0x90c },
	{ GENERAL, 0x383, 5, "log_max_rmp", served, 0x90c },
	{ GENERAL, 0x38b, 5, "log_max_rqt", served, 0x916 },
	{ GENERAL, 0x393, 5, "log_max_rqt_size: mlx5_devx_general", NULL, 0 },
	{ GENERAL, 0x3a0, 1, "ext_stride_num_range: mlx5_queues_striding", NULL, 0 },
	{ GENERAL, 0x3a3, 5, "log_max_stride_sz_rq", NULL, 0 },
	{ GENERAL, 0x3ab, 5, "log_min_stride_sz_rq", NULL, 0 },
	{ GENERAL, 0x3b3, 5, "log_max_stride_sz_sq", NULL, 0 },
	{ GENERAL, 0x3bb, 5, "log_min_stride_sz_sq", NULL, 0 },
	{ GENERAL, 0x3db, 5, "log_max_wq_sz", NULL, 0 },
	{ GENERAL, 0x400, 64, "general_obj_types: mlx5_devx_walk", NULL, 0 },
	{ GENERAL, 0x440, 4, "sq_ts_format, rq_ts_format: mlx5_queues_cqs", NULL, 0 },
	{ GENERAL, 0x470, 16, "max_num_eqs", NULL, 0 },
	{ GENERAL, 0x4c0, 64, "device_frequency: mlx5_devx_general", NULL, 0 },
	{ GENERAL, 0x520, 32, "num_of_uars_per_page", NULL, 0 },
	{ GENERAL, 0x580, 8, "log_max_atomic_size_qp", atomics, 0 },
	{ GENERAL, 0x588, 8, "log_max_atomic_size_dc: mlx5_dc", NULL, 0 },
	{ GENERAL, 0x5bb, 1, "enhanced_cqe_compression: mlx5_queues_cqs", NULL, 0 },
	{ GENERAL, 0x5bc, 1, "mini_cqe_resp_stride_index", compressed, 0 },
	{ GENERAL, 0x5bf, 1, "cqe_compression", compressed, 0 },
	{ GENERAL, 0x5d0, 16, "cqe_compression_max_num", compressed, 0 },
	{ GENERAL, 0x748, 1, "dma_mmo_qp: mlx5_direct_rings", NULL, 0 },
	{ ETH, 0x0, 1, "csum_cap", frames, IBV_RAW_PACKET_CAP_IP_CSUM },
	{ ETH, 0x1, 1, "vlan_cap", frames, IBV_RAW_PACKET_CAP_CVLAN_STRIPPING },
	{ ETH, 0x7, 1, "wqe_vlan_insert: frames", NULL, 0 },
	{ ETH, 0xb, 5, "max_lso_cap", NULL, 0 },
	{ ETH, 0x10, 2, "multi_pkt_send_wqe: frames", NULL, 0 },
	{ ETH, 0x12, 2, "wqe_inline_mode", NULL, 0 },
	{ ETH, 0x14, 4, "rss_ind_tbl_cap", served, 0x916 },
	{ ETH, 0x18, 1, "reg_umr_sq: mlx5_queues_frames", served, 0x904 },
	{ ETH, 0x19, 1, "scatter_fcs", frames, IBV_RAW_PACKET_CAP_SCATTER_FCS },
	{ ETH, 0x1a, 1, "enhanced_multi_pkt_send_wqe: frames", NULL, 0 },
	{ ETH, 0x20, 3, "swp, swp_csum, swp_lso: frames", NULL, 0 },
	{ ATOMIC, 0x40, 2, "atomic_req_8B_endianness_mode", atomics, 0 },
	{ ATOMIC, 0x46, 1, "supported_atomic_req_8B_endianness_mode_1", atomics, 0 },
	{ ATOMIC, 0x90, 16, "atomic_operations: mlx5_queues_transport, mlx5_direct_masked", atomics,
	  0 },
	{ ATOMIC, 0xb0, 16, "atomic_size_qp: mlx5_direct_masked", atomics, 0 },
	{ ATOMIC, 0xd0, 16, "atomic_size_dc: mlx5_dc", NULL, 0 },
	{ ROCE, 0x8c, 4, "l3_type", NULL, 0 },
	{ ROCE, 0x1e, 2, "qp_ts_format: mlx5_queues_cqs", NULL, 0 },
	{ ROCE, 0x98, 8, "roce_version", NULL, 0 },
	{ ROCE, 0xb0, 16, "r_roce_dest_udp_port", NULL, 0 },
	{ ROCE, 0xf0, 16, "roce_address_table_size: mlx5_devx_general", NULL, 0 },
	{ NIC_FLOW, 0x20, 1, "encap_general_header", served, 0x93d },
	{ NIC_FLOW, 0x2b, 5, "log_max_packet_reformat_context", served, 0x93d },
	{ NIC_FLOW, 0x36, 10, "max_encap_header_size", served, 0x93d },
	FLOWS(NIC_FLOW, 0x200, 0),
	FLOWS(NIC_FLOW, 0x800, 1),
	FLOWS(ESW_FLOW, 0x200, 4),
	{ QOS, 0x0, 1, "packet_pacing", pacing, 0 },
	{ QOS, 0x5, 1, "packet_pacing_burst_bound", pacing, 0 },
	{ QOS, 0xb, 1, "packet_pacing_uid", pacing, 0 },
	{ QOS, 0x40, 64, "packet_pacing_max_rate, packet_pacing_min_rate", pacing, 0 },
	{ QOS, 0x90, 16, "packet_pacing_rate_table_size", pacing_entries, 0 },
	{ DEVICE_MEMORY, 0x0, 1, "memic", memory, 0 },
	{ DEVICE_MEMORY, 0x20, 8, "sizes of increment: mlx5_direct_dm_ops", memory_operations, 0 },
	{ DEVICE_MEMORY, 0x30, 8, "sizes of test and set: mlx5_direct_dm_ops", memory_operations,
	  0 },
	{ DEVICE_MEMORY, 0xa0, 32, "max_memic_size: mlx5_direct_dm", memory, 0 },
	{ DEVICE_MEMORY, 0x200, 32, "memic_operations", memory_operations, 0 },
};

enum { KNOWN = sizeof(known) / sizeof(known[0]) };

static const struct bits *entry_of(uint32_t group, uint32_t bit)
{
	for (size_t i = 0; i < KNOWN; i++)
		if (known[i].group == group && bit - known[i].at < known[i].bits)
			return &known[i];
	return NULL;
}

/* A bit that is set has a line in the table. */
static void accounted(void **state)
{
	(void)state;
	for (uint32_t group = 0; group < GROUPS; group++) {
		read_group(group);
		for (uint32_t bit = 0; bit < CAP_BITS; bit++)
			if (get_bits(c.out, 0x80 + bit, 1) && !entry_of(group, bit))
				fail_msg("bit %#x of group %#x is set, and nobody shows what for",
					 bit, group);
	}
}

/* ... and what it stands for works. */
static void proven(void **state)
{
	(void)state;
	for (size_t i = 0; i < KNOWN; i++) {
		bool set = false;

		read_group(known[i].group);
		for (uint32_t b = 0; b < known[i].bits; b++)
			set |= get_bits(c.out, 0x80 + known[i].at + b, 1);
		if (set && known[i].prove)
			known[i].prove(known[i].arg);
	}
}

/* --- what is not there --------------------------------------------------------------------------- */

#define NOT_THERE(call)                              \
	do {                                         \
		errno = 0;                           \
		assert_int_equal(call, EOPNOTSUPP);  \
		assert_int_equal(errno, EOPNOTSUPP); \
	} while (0)

static void zero(uint32_t group, uint32_t at, uint32_t bits, const char *what)
{
	read_group(group);
	if (get_bits(c.out, 0x80 + at, bits))
		fail_msg("%s has a capability", what);
}

/* No engines for signatures and encryption. */
static void no_engines(void **state)
{
	struct mlx5dv_context dv = { .comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD |
						  MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD };
	struct mlx5dv_mkey_init_attr attr = { .pd = kit.pd, .max_entries = 4 };
	uint8_t key[64] = { 0 };

	(void)state;
	assert_ok(mlx5dv_query_device(kit.ctx, &dv));
	assert_int_equal(dv.sig_caps.block_size, 0);
	assert_int_equal(dv.sig_caps.t10dif_bg, 0);
	assert_int_equal(dv.crypto_caps.crypto_engines, 0);
	assert_int_equal(dv.crypto_caps.flags, 0);
	zero(GENERAL, 0x147, 2, "sig_crc64_xp10, sig_crc32c");
	zero(GENERAL, 0x1f0, 1, "sig_block_4048");
	zero(GENERAL, 0x20f, 1, "drain_sigerr");
	zero(GENERAL, 0x212, 1, "sigerr_cqe");
	zero(GENERAL, 0x217, 1, "sho");
	zero(GENERAL, 0x469, 1, "crypto");
	zero(0x1a, 0, 64, "crypto, as a group");
	NOT_THERE(mlx5dv_crypto_login(kit.ctx, (void *)key));
	NOT_THERE(mlx5dv_crypto_logout(kit.ctx));
	NOT_THERE(mlx5dv_crypto_login_query_state(kit.ctx, (void *)key));
	assert_null_errno(mlx5dv_crypto_login_create(kit.ctx, (void *)key), EOPNOTSUPP);
	assert_null_errno(mlx5dv_dek_create(kit.ctx, (void *)key), EOPNOTSUPP);
	attr.create_flags =
		MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
	assert_null_errno(mlx5dv_create_mkey(&attr), EOPNOTSUPP);
	attr.create_flags =
		MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO;
	assert_null_errno(mlx5dv_create_mkey(&attr), EOPNOTSUPP);
	refuse_create(command(&c, 0x600, 16, 16), BAD_OP); /* CREATE_PSV */
}

/* One port, one function, no tree of schedulers, no hypervisor. */
static void no_others(void **state)
{
	struct mlx5dv_context dv = { .comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS };
	uint8_t attr[256] = { 0 }, port, active;
	struct ibv_device **list;

	(void)state;
	assert_ok(mlx5dv_query_device(kit.ctx, &dv));
	assert_int_equal(dv.num_lag_ports, 0);
	zero(GENERAL, 0x276, 3, "lag_dct, lag_tx_port_affinity");
	zero(GENERAL, 0x27b, 5, "lag_master, num_lag_ports");
	NOT_THERE(mlx5dv_query_qp_lag_port((void *)attr, &port, &active));
	NOT_THERE(mlx5dv_modify_qp_lag_port((void *)attr, 1));
	refuse_general(command(&c, 0x842, 16, 16), BAD_OP); /* QUERY_LAG */
	zero(QOS, 0x1, 3, "scheduling of an e-switch");
	zero(QOS, 0x8, 3, "scheduling of SQs");
	assert_null_errno(mlx5dv_sched_node_create(kit.ctx, (void *)attr), EOPNOTSUPP);
	assert_null_errno(mlx5dv_sched_leaf_create(kit.ctx, (void *)attr), EOPNOTSUPP);
	NOT_THERE(mlx5dv_modify_qp_sched_elem((void *)attr, NULL, NULL));
	refuse_create(command(&c, 0x782, 16, 16), BAD_OP); /* CREATE_SCHEDULING_ELEMENT */
	assert_null_errno(mlx5dv_alloc_var(kit.ctx, 0), EOPNOTSUPP);
	zero(0x13, 0, 64, "virtio emulation");
	list = mlx5dv_get_vfio_device_list((void *)attr);
	assert_null(list);
	assert_int_equal(errno, EOPNOTSUPP);
	assert_null_errno(mlx5dv_devx_alloc_msi_vector(kit.ctx), EOPNOTSUPP);
	zero(GENERAL, 0x23c, 1, "xrc");
	refuse_create(command(&c, 0x80e, 16, 16), BAD_OP); /* ALLOC_XRCD */
	zero(GENERAL, 0x3c0, 1, "hairpin");
	zero(GENERAL, 0x5f0, 1, "tag_matching");
	refuse_create(command(&c, 0x717, 16, 16), BAD_OP); /* CREATE_XRQ */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accounted),
		cmocka_unit_test(proven),
		cmocka_unit_test(no_engines),
		cmocka_unit_test(no_others),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
