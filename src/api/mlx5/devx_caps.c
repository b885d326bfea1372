// SPDX-License-Identifier: MIT
/*
 * QUERY_HCA_CAP: what the card can do, in groups of 4096 bytes.
 *
 * One table has the fields. A bit is set where the thing works here: numbers are the limits that
 * creation really has, and bits of objects are set where their command has a row. The maximum and
 * the current value are the same, since nothing can be configured. A group that the card lacks
 * answers with zeros.
 */
#include "mlx5.h"

#include "card/ether/flow.h"
#include "card/queue/counter_set.h"
#include "card/queue/eq.h"
#include "card/transport/pace.h"
#include "devx_bits.h"
#include "devx_table.h"

enum { CAP_BYTES = 4096, CAP_AT = 0x80, ANSWER_BYTES = 16 + CAP_BYTES };

enum group {
	GENERAL = 0x0,
	ETH = 0x1,
	ATOMIC = 0x3,
	ROCE = 0x4,
	NIC_FLOW = 0x7,
	ESW_FLOW = 0x8,
	QOS = 0xc,
	DEVICE_MEMORY = 0xf
};

/* What the values are made from. */
struct card {
	const struct vb_adapter *adapter;
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	struct mlx5dv_context dv;
	uint32_t dm_ops; /* operations of addresses of device memory */
};

struct field {
	enum group group;
	uint16_t at, bits; /* of the group */
	uint32_t value;    /* where the function is NULL; else it is its argument */
	uint32_t (*get)(const struct card *card, uint32_t value);
};

static uint32_t devx_caps_log_of(uint64_t value)
{
	uint32_t log = 0;

	while (value >>= 1)
		log++;
	return log;
}

/* --- values that are not constants ------------------------------------------------------------ */

static uint32_t vhca_id(const struct card *card, uint32_t value)
{
	return card->adapter->index;
}

static uint32_t log_max_qp(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->adapter->max_qp);
}

static uint32_t log_max_cq(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->adapter->max_cq);
}

static uint32_t log_max_srq(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->adapter->max_srq);
}

static uint32_t log_max_mkey(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->adapter->max_mr);
}

static uint32_t log_max_pd(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->adapter->max_pd);
}

static uint32_t ack_delay(const struct card *card, uint32_t value)
{
	return card->attr.orig_attr.local_ca_ack_delay;
}

static uint32_t ports(const struct card *card, uint32_t value)
{
	return card->adapter->config->ports;
}

/* 8 entries are 0, and each doubling is one more. */
static uint32_t gid_table(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->adapter->gid_table_len) - 3;
}

static uint32_t gid_entries(const struct card *card, uint32_t value)
{
	return card->adapter->gid_table_len;
}

static uint32_t khz(const struct card *card, uint32_t value)
{
	return (uint32_t)card->attr.hca_core_clock;
}

static uint32_t mhz(const struct card *card, uint32_t value)
{
	return (uint32_t)card->attr.hca_core_clock / 1000;
}

static uint32_t has(const struct card *card, uint32_t opcode)
{
	return devx_has((uint16_t)opcode);
}

/* The number of queues of a kind, where there is a command for it. */
static uint32_t log_queues(const struct card *card, uint32_t opcode)
{
	return devx_has((uint16_t)opcode) ? devx_caps_log_of(card->adapter->max_qp) : 0;
}

static uint32_t log_shared(const struct card *card, uint32_t opcode)
{
	return devx_has((uint16_t)opcode) ? devx_caps_log_of(card->adapter->max_srq) : 0;
}

static uint32_t log_domains(const struct card *card, uint32_t opcode)
{
	return devx_has((uint16_t)opcode) ? 16 : 0;
}

/* General objects by type: 32 types a word, the last first. */
static uint32_t object_types(const struct card *card, uint32_t first)
{
	uint32_t all = 0;

	for (uint32_t i = 0; i < 32; i++)
		all |= (uint32_t)devx_has_type((uint16_t)(first + i)) << i;
	return all;
}

static uint32_t device_memory(const struct card *card, uint32_t value)
{
	return card->attr.max_dm_size != 0;
}

static uint32_t device_memory_bytes(const struct card *card, uint32_t value)
{
	return (uint32_t)card->attr.max_dm_size;
}

static uint32_t operations(const struct card *card, uint32_t value)
{
	return card->dm_ops;
}

/* 1, 2, 4 and 8 bytes. */
static uint32_t operation_sizes(const struct card *card, uint32_t op)
{
	return card->dm_ops >> op & 1 ? 0xf : 0;
}

static uint32_t compression(const struct card *card, uint32_t value)
{
	return card->dv.cqe_comp_caps.max_num != 0;
}

static uint32_t compression_most(const struct card *card, uint32_t value)
{
	return card->dv.cqe_comp_caps.max_num;
}

static uint32_t copy_log(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->dv.max_wr_memcpy_length);
}

static uint32_t copies(const struct card *card, uint32_t value)
{
	return card->dv.max_wr_memcpy_length != 0;
}

static uint32_t raw_cap(const struct card *card, uint32_t bit)
{
	return (card->attr.raw_packet_caps & bit) != 0;
}

static uint32_t log_tso(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->attr.tso_caps.max_tso);
}

static uint32_t fastest(const struct card *card, uint32_t value)
{
	return card->attr.packet_pacing_caps.qp_rate_limit_max;
}

static uint32_t slowest(const struct card *card, uint32_t value)
{
	return card->attr.packet_pacing_caps.qp_rate_limit_min;
}

static uint32_t devx_caps_paces(const struct card *card, uint32_t value)
{
	return fastest(card, value) != 0;
}

static uint32_t log_table(const struct card *card, uint32_t value)
{
	return devx_caps_log_of(card->attr.rss_caps.max_rwq_indirection_table_size);
}

/* --- the table -------------------------------------------------------------------------------- */

enum {
	CREATE_CQ = 0x400,
	CREATE_SRQ = 0x700,
	CREATE_DCT = 0x710,
	ALLOC_Q_COUNTER = 0x771,
	ALLOC_TRANSPORT_DOMAIN = 0x816,
	CREATE_TIR = 0x900,
	CREATE_SQ = 0x904,
	CREATE_RQ = 0x908,
	CREATE_RMP = 0x90c,
	CREATE_TIS = 0x912,
	MODIFY_TIS = 0x913,
	CREATE_RQT = 0x916,
	CREATE_FLOW_TABLE = 0x930,
	ALLOC_FLOW_COUNTER = 0x939,
	ALLOC_REFORMAT = 0x93d,
	ALLOC_MODIFY_HEADER = 0x940,
};

/* Of a block of flow table properties at bit at. */
#define FLOW_PROPERTIES(group, at, tag)                                                    \
	{ group, at + 0x0, 1, CREATE_FLOW_TABLE, has }, { group, at + 0x1, 1, tag, NULL }, \
		{ group, at + 0x2, 1, ALLOC_FLOW_COUNTER, has },                           \
		{ group, at + 0x3, 1, CREATE_FLOW_TABLE, has }, /* flow_modify_en */       \
		{ group, at + 0x7, 1, ALLOC_REFORMAT, has },                               \
		{ group, at + 0x8, 1, ALLOC_REFORMAT, has },    /* decap */                \
		{ group, at + 0xa, 1, CREATE_FLOW_TABLE, has }, /* pop_vlan */             \
		{ group, at + 0xb, 1, CREATE_FLOW_TABLE, has }, /* push_vlan */            \
		{ group, at + 0xd, 1, CREATE_FLOW_TABLE, has }, /* pop_vlan_2 */           \
		{ group, at + 0xe, 1, CREATE_FLOW_TABLE, has }, /* push_vlan_2 */          \
		{ group, at + 0x12, 1, ALLOC_REFORMAT, has },   /* l3_tunnel_to_l2 */      \
		{ group, at + 0x13, 1, ALLOC_REFORMAT, has },   /* l2_to_l3_tunnel */      \
		{ group, at + 0x22, 6, DEVX_LOG_FLOW_TABLE, NULL },                        \
		{ group, at + 0x28, 8, DEVX_LOG_FLOW_CONTEXTS, NULL },                     \
		{ group, at + 0x30, 8, VB_STEER_MAX_MODIFY, NULL },                        \
		{ group, at + 0x38, 8, DEVX_FLOW_LEVELS, NULL },                           \
		{ group, at + 0x78, 8, DEVX_LOG_FLOW_TABLES, NULL },                       \
		{ group, at + 0x98, 8, DEVX_LOG_FLOW_DESTINATIONS, NULL },                 \
	{                                                                                  \
		group, at + 0xb8, 8, DEVX_LOG_FLOW_TABLE, NULL                             \
	}

static const struct field fields[] = {
	{ GENERAL, 0x30, 16, 0, vhca_id },
	{ GENERAL, 0x6b, 5, 0, copy_log }, /* log_dma_mmo_max_size */
	{ GENERAL, 0x80, 8, 15, NULL },    /* log_max_srq_sz */
	{ GENERAL, 0x88, 8, 15, NULL },    /* log_max_qp_sz */
	{ GENERAL, 0x9b, 5, 0, log_max_qp },
	{ GENERAL, 0xab, 5, 0, log_max_srq },
	{ GENERAL, 0xc8, 8, 22, NULL }, /* log_max_cq_sz */
	{ GENERAL, 0xdb, 5, 0, log_max_cq },
	{ GENERAL, 0xe0, 8, 20, NULL }, /* log_max_eq_sz */
	{ GENERAL, 0xea, 6, 0, log_max_mkey },
	{ GENERAL, 0xfc, 4, 7, NULL }, /* log_max_eq */
	{ GENERAL, 0x100, 8, VB_MAX_INDIRECTION, NULL },
	{ GENERAL, 0x108, 1, 1, NULL },              /* fixed_buffer_size: KSM */
	{ GENERAL, 0x109, 7, 47, NULL },             /* log_max_mrw_sz: the address space */
	{ GENERAL, 0x11a, 6, 15, NULL },             /* log_max_klm_list_size */
	{ GENERAL, 0x14a, 6, 4, NULL },              /* log_max_ra_req_qp */
	{ GENERAL, 0x15a, 6, 4, NULL },              /* log_max_ra_res_qp */
	{ GENERAL, 0x168, 1, ALLOC_Q_COUNTER, has }, /* rnr_nak_q_counters */
	{ GENERAL, 0x170, 16, 0, gid_table },
	{ GENERAL, 0x180, 1, ALLOC_Q_COUNTER, has },       /* out_of_seq_cnt */
	{ GENERAL, 0x182, 1, ALLOC_Q_COUNTER, has },       /* retransmission_q_counters */
	{ GENERAL, 0x184, 1, ALLOC_Q_COUNTER, has },       /* modify_rq_counters_set_id */
	{ GENERAL, 0x186, 10, VB_COUNTER_SETS - 1, NULL }, /* max_qp_cnt */
	{ GENERAL, 0x1a6, 1, CREATE_FLOW_TABLE, has },     /* nic_flow_table */
	{ GENERAL, 0x1a7, 1, CREATE_FLOW_TABLE, has },     /* eswitch_manager */
	{ GENERAL, 0x1a8, 1, 0, device_memory },
	{ GENERAL, 0x1ab, 5, 0, ack_delay },
	{ GENERAL, 0x1b1, 1, ALLOC_Q_COUNTER, has }, /* enhanced_error_q_counters */
	{ GENERAL, 0x1b6, 2, 1, NULL },              /* port_type: Ethernet */
	{ GENERAL, 0x1b8, 8, 0, ports },
	{ GENERAL, 0x1c3, 5, VB_MAX_MSG_LOG, NULL },
	{ GENERAL, 0x1fc, 4, 1, NULL },            /* cqe_version */
	{ GENERAL, 0x201, 1, CREATE_RQ, has },     /* eth_striding_wq */
	{ GENERAL, 0x21a, 1, CREATE_DCT, has },    /* dct */
	{ GENERAL, 0x21b, 1, 0, devx_caps_paces }, /* qos */
	{ GENERAL, 0x21c, 1, 1, NULL },            /* eth_net_offloads */
	{ GENERAL, 0x21d, 1, 1, NULL },            /* roce */
	{ GENERAL, 0x21e, 1, 1, NULL },            /* atomic */
	{ GENERAL, 0x220, 1, CREATE_CQ, has },     /* cq_oi */
	{ GENERAL, 0x221, 1, CREATE_CQ, has },     /* cq_resize */
	{ GENERAL, 0x222, 1, CREATE_CQ, has },     /* cq_moderation */
	{ GENERAL, 0x223, 1, CREATE_CQ, has },     /* cq_period_mode_modify */
	{ GENERAL, 0x226, 1, CREATE_CQ, has },     /* cq_eq_remap */
	{ GENERAL, 0x23d, 1, 1, NULL },            /* ud */
	{ GENERAL, 0x23e, 1, 1, NULL },            /* uc */
	{ GENERAL, 0x23f, 1, 1, NULL },            /* rc */
	{ GENERAL, 0x240, 1, 1, NULL },            /* uar_4k */
	{ GENERAL, 0x252, 1, 1, NULL },            /* umem_uid_0 */
	{ GENERAL, 0x258, 8, 12, NULL },           /* log_pg_sz */
	{ GENERAL, 0x260, 1, 1, NULL },            /* bf */
	{ GENERAL, 0x26b, 5, 9, NULL },            /* log_bf_reg_size */
	{ GENERAL, 0x290, 16, 1024, NULL },        /* max_wqe_sz_sq */
	{ GENERAL, 0x2b0, 16, 1024, NULL },        /* max_wqe_sz_rq */
	{ GENERAL, 0x2c0, 16, 0x00ff, NULL },      /* max_flow_counter, the upper bits */
	{ GENERAL, 0x323, 5, ALLOC_TRANSPORT_DOMAIN, log_domains },
	{ GENERAL, 0x32b, 5, 0, log_max_pd },
	{ GENERAL, 0x348, 8, DEVX_LOG_COUNTERS_QUERIED, NULL }, /* log_max_flow_counter_bulk */
	{ GENERAL, 0x350, 16, 0xffff, NULL },                   /* and the lower ones */
	{ GENERAL, 0x360, 1, MODIFY_TIS, has },
	{ GENERAL, 0x363, 5, CREATE_RQ, log_queues },
	{ GENERAL, 0x36b, 5, CREATE_SQ, log_queues },
	{ GENERAL, 0x373, 5, CREATE_TIR, log_domains },
	{ GENERAL, 0x37b, 5, CREATE_TIS, log_domains },
	{ GENERAL, 0x380, 1, CREATE_RMP, has }, /* basic_cyclic_rcv_wqe */
	{ GENERAL, 0x383, 5, CREATE_RMP, log_shared },
	{ GENERAL, 0x38b, 5, CREATE_RQT, log_domains },
	{ GENERAL, 0x393, 5, 0, log_table }, /* log_max_rqt_size */
	{ GENERAL, 0x3a0, 1, 1, NULL },      /* ext_stride_num_range */
	{ GENERAL, 0x3a3, 5, 10, NULL },     /* log_max_stride_sz_rq */
	{ GENERAL, 0x3ab, 5, 4, NULL },      /* log_min_stride_sz_rq */
	{ GENERAL, 0x3b3, 5, 6, NULL },      /* log_max_stride_sz_sq */
	{ GENERAL, 0x3bb, 5, 6, NULL },      /* log_min_stride_sz_sq */
	{ GENERAL, 0x3db, 5, 15, NULL },     /* log_max_wq_sz */
	{ GENERAL, 0x400, 32, 32, object_types },
	{ GENERAL, 0x420, 32, 0, object_types },
	{ GENERAL, 0x440, 2, 2, NULL }, /* sq_ts_format: free running and real time */
	{ GENERAL, 0x442, 2, 2, NULL }, /* rq_ts_format */
	{ GENERAL, 0x470, 16, VB_EQ_VECTORS - 1, NULL }, /* max_num_eqs */
	{ GENERAL, 0x4c0, 32, 0, mhz },
	{ GENERAL, 0x4e0, 32, 0, khz },
	{ GENERAL, 0x520, 32, 1, NULL },       /* num_of_uars_per_page */
	{ GENERAL, 0x580, 8, 3, NULL },        /* log_max_atomic_size_qp */
	{ GENERAL, 0x5bc, 1, 0, compression }, /* mini_cqe_resp_stride_index */
	{ GENERAL, 0x5bf, 1, 0, compression },
	{ GENERAL, 0x5d0, 16, 0, compression_most },
	{ GENERAL, 0x748, 1, 0, copies }, /* dma_mmo_qp */

	{ ETH, 0x0, 1, IBV_RAW_PACKET_CAP_IP_CSUM, raw_cap },
	{ ETH, 0x1, 1, IBV_RAW_PACKET_CAP_CVLAN_STRIPPING, raw_cap },
	{ ETH, 0x7, 1, 1, NULL }, /* wqe_vlan_insert */
	{ ETH, 0xb, 5, 0, log_tso },
	{ ETH, 0x10, 2, 1, NULL }, /* multi_pkt_send_wqe */
	{ ETH, 0x12, 2, 2, NULL }, /* wqe_inline_mode: no header need be inline */
	{ ETH, 0x14, 4, 0, log_table },
	{ ETH, 0x18, 1, CREATE_SQ, has }, /* reg_umr_sq */
	{ ETH, 0x19, 1, IBV_RAW_PACKET_CAP_SCATTER_FCS, raw_cap },
	{ ETH, 0x1a, 1, 1, NULL }, /* enhanced_multi_pkt_send_wqe */
	{ ETH, 0x20, 1, 1, NULL }, /* swp */
	{ ETH, 0x21, 1, 1, NULL }, /* swp_csum */
	{ ETH, 0x22, 1, 1, NULL }, /* swp_lso */

	{ ATOMIC, 0x40, 2, 1, NULL }, /* atomic_req_8B_endianness_mode: the host's */
	{ ATOMIC, 0x46, 1, 1, NULL }, /* ... and that is supported */
	{ ATOMIC, 0x90, 16, 0xf,
	  NULL }, /* atomic_operations: compare and swap, fetch and add; with masks */
	{ ATOMIC, 0xb0, 16, 12, NULL }, /* atomic_size_qp: 4 and 8 bytes */
	{ ATOMIC, 0xd0, 16, 12, NULL }, /* atomic_size_dc */

	{ ROCE, 0x1e, 2, 2, NULL },     /* qp_ts_format: free running and real time */
	{ ROCE, 0x8c, 4, 6, NULL },     /* l3_type: IPv4 and IPv6 */
	{ ROCE, 0x98, 8, 5, NULL },     /* roce_version: 1 and 2 */
	{ ROCE, 0xb0, 16, 4791, NULL }, /* r_roce_dest_udp_port */
	{ ROCE, 0xf0, 16, 0, gid_entries },

	{ NIC_FLOW, 0x20, 1, ALLOC_REFORMAT, has }, /* encap_general_header */
	{ NIC_FLOW, 0x2b, 5, DEVX_LOG_FLOW_CONTEXTS, NULL },
	{ NIC_FLOW, 0x36, 10, VB_STEER_MAX_REFORMAT, NULL },
	FLOW_PROPERTIES(NIC_FLOW, 0x200, 1),
	FLOW_PROPERTIES(NIC_FLOW, 0x800, 0),
	FLOW_PROPERTIES(ESW_FLOW, 0x200, 0),

	{ QOS, 0x0, 1, 0, devx_caps_paces },   /* packet_pacing */
	{ QOS, 0x5, 1, 0, devx_caps_paces },   /* packet_pacing_burst_bound */
	{ QOS, 0xb, 1, 0, devx_caps_paces },   /* packet_pacing_uid: by mlx5dv_pp_alloc() */
	{ QOS, 0x40, 32, 0, fastest },         /* packet_pacing_max_rate, kbit/s */
	{ QOS, 0x60, 32, 0, slowest },         /* packet_pacing_min_rate */
	{ QOS, 0x90, 16, VB_PACES - 1, NULL }, /* packet_pacing_rate_table_size */

	{ DEVICE_MEMORY, 0x0, 1, 0, device_memory },
	{ DEVICE_MEMORY, 0x20, 8, 0, operation_sizes },      /* of increment */
	{ DEVICE_MEMORY, 0x30, 8, 1, operation_sizes },      /* of test and set */
	{ DEVICE_MEMORY, 0xa0, 32, 0, device_memory_bytes }, /* max_memic_size */
	{ DEVICE_MEMORY, 0x200, 32, 0, operations },         /* memic_operations */
};

static int query_hca_cap(struct devx_cmd *cmd)
{
	enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };
	uint32_t group = get(cmd->in, DEVX_OP_MOD, 16) >> 1;
	uint8_t answer[ANSWER_BYTES] = { 0 };
	struct card card = {
		.adapter = vb_dev_adapter(cmd->dev),
		.dm_ops = vb_verbs_mlx5(cmd->context)->dm_ops,
		.dv.comp_mask =
			MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH,
	};

	if (get(cmd->in, 0x40, 1))
		return vb_refuse_unsupported("capabilities of another function");
	if (ibv_query_device_ex(cmd->context, NULL, &card.attr) ||
	    mlx5dv_query_device(cmd->context, &card.dv))
		return -EIO;
	for (size_t i = 0; i < FIELDS; i++) {
		const struct field *f = &fields[i];

		if (f->group == group)
			put(answer, CAP_AT + f->at, f->bits,
			    f->get ? f->get(&card, f->value) : f->value);
	}
	/* Programs with an older manual know fewer fields, and ask for as many bytes. */
	memcpy(cmd->out, answer, cmd->outlen < sizeof(answer) ? cmd->outlen : sizeof(answer));
	return 0;
}

const struct devx_row devx_cap_rows[] = {
	{ "QUERY_HCA_CAP", 0x100, 0, DEVX_GENERAL, VB_DEVX_NONE, 16, DEVX_LEAST, DEVX_NO_NUMBER,
	  query_hca_cap },
	{ 0 },
};
