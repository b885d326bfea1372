// SPDX-License-Identifier: MIT
/*
 * What a program may ask about a device, its port, its GIDs and its partition keys.
 *
 * Structures that grew over the years come with their size: the answer is made in full and cut to
 * what the caller has room for.
 */
#include "objects.h"

#include <stdio.h>

#include "card/queue/qp.h"

#undef ibv_query_port

enum {
	CA_ACK_DELAY = 16,
	CORE_CLOCK_KHZ = 1000000, /* vb_clock() */
	MAX_MODERATION_COUNT = 0xffff,
	MAX_MODERATION_PERIOD = 0xfff,
};

static const __be16 default_pkey = 0xffff; /* the same in either byte order */

static int as_int(uint64_t value)
{
	return value > INT32_MAX ? INT32_MAX : (int)value;
}

static void fill_device_attr(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct vb_adapter *adapter = context_adapter(context);
	const struct vb_identity *identity = vb_adapter_identity(adapter);
	const struct api_provider *provider = provider_of(context);

	*attr = (struct ibv_device_attr){
		.node_guid = adapter->guid,
		.sys_image_guid = adapter->guid,
		.max_mr_size = UINT64_MAX,
		.page_size_cap = ~(uint64_t)0xfff,
		.vendor_id = identity->vendor_id,
		.vendor_part_id = identity->part_id,
		.hw_ver = identity->hw_version,
		.max_qp = as_int(adapter->max_qp),
		.max_qp_wr = VB_MAX_QP_WR,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_sge = VB_MAX_SGE,
		.max_sge_rd = VB_MAX_SGE,
		.max_cq = as_int(adapter->max_cq),
		.max_cqe = VB_MAX_CQE,
		.max_mr = as_int(adapter->max_mr),
		.max_pd = as_int(adapter->max_pd),
		.max_qp_rd_atom = VB_MAX_RD_ATOMIC,
		.max_res_rd_atom = as_int((uint64_t)adapter->max_qp * VB_MAX_RD_ATOMIC),
		.max_qp_init_rd_atom = VB_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_ah = as_int(adapter->max_ah),
		.max_srq = as_int(adapter->max_srq),
		.max_srq_wr = VB_MAX_SRQ_WR,
		.max_srq_sge = VB_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = CA_ACK_DELAY,
		.phys_port_cnt = (uint8_t)adapter->config->ports,
	};
	if (provider->raw)
		attr->device_cap_flags |= IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_MANAGED_FLOW_STEERING;
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", identity->firmware);
	if (provider->query_device)
		provider->query_device(to_context(context), attr);
}

VB_PUBLIC int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (!context || !attr)
		return api_refuse(null, "context or device_attr");
	fill_device_attr(context, attr);
	return 0;
}

int api_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ibv_device_attr_ex all = {
		.completion_timestamp_mask = provider_of(context)->timestamp_mask,
		.hca_core_clock = CORE_CLOCK_KHZ,
		.cq_mod_caps = { .max_cq_count = MAX_MODERATION_COUNT,
				 .max_cq_period = MAX_MODERATION_PERIOD },
		.phys_port_cnt_ex = context_adapter(context)->config->ports,
	};

	API_CALL_AS("ibv_query_device_ex", API_DEVICE(context));
	if (!attr)
		return api_refuse(null, "attr");
	if (attr_size < sizeof(attr->orig_attr))
		return api_refuse(value, "attr_size", attr_size);
	if (input && input->comp_mask)
		return api_refuse(bits, "comp_mask", input->comp_mask);
	fill_device_attr(context, &all.orig_attr);
	if (provider_of(context)->raw) {
		const struct api_provider *provider = provider_of(context);

		all.raw_packet_caps = provider->raw_caps.packet;
		if (provider->raw_caps.max_tso)
			all.tso_caps =
				(struct ibv_tso_caps){ .max_tso = provider->raw_caps.max_tso,
						       .supported_qpts = 1u << IBV_QPT_RAW_PACKET };
		if (provider->raw_caps.max_rate)
			all.packet_pacing_caps = (struct ibv_packet_pacing_caps){
				.qp_rate_limit_min = 1,
				.qp_rate_limit_max = provider->raw_caps.max_rate,
				.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
			};
		all.max_wq_type_rq = context_adapter(context)->max_qp;
		all.rss_caps = (struct ibv_rss_caps){
			.supported_qpts = 1u << IBV_QPT_RAW_PACKET,
			.max_rwq_indirection_tables = context_adapter(context)->max_qp,
			.max_rwq_indirection_table_size = VB_MAX_RSS,
			.rx_hash_fields_mask = provider->raw_caps.rx_hash_fields,
			.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
		};
	}
	all.max_dm_size = provider_of(context)->max_dm;
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	if (all.raw_packet_caps & IBV_RAW_PACKET_CAP_SCATTER_FCS)
		all.device_cap_flags_ex |= IBV_DEVICE_RAW_SCATTER_FCS;
	if (provider_of(context)->raw_caps.wq_flags & IBV_WQ_FLAGS_PCI_WRITE_END_PADDING)
		all.device_cap_flags_ex |= IBV_DEVICE_PCI_WRITE_END_PADDING;
	if (attr_size > sizeof(all)) {
		memset((char *)attr + sizeof(all), 0, attr_size - sizeof(all));
		attr_size = sizeof(all);
	}
	memcpy(attr, &all, attr_size);
	return 0;
}

static bool valid_port(struct ibv_context *context, uint32_t port)
{
	return port >= 1 && port <= context_adapter(context)->config->ports;
}

static int refuse_port(struct ibv_context *context, uint32_t port)
{
	return api_refuse(port, port, context_adapter(context)->config->ports,
			  context->device->name);
}

/* --- the port --------------------------------------------------------------------------------- */

int api_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		   size_t size)
{
	struct ibv_port_attr all = { 0 };

	API_CALL_AS("ibv_query_port", API_DEVICE(context));
	if (!attr)
		return api_refuse(null, "port_attr");
	if (!valid_port(context, port))
		return refuse_port(context, port);
	vb_adapter_query_port(context_adapter(context), port, &all);
	if (size > sizeof(all)) {
		memset((char *)attr + sizeof(all), 0, size - sizeof(all));
		size = sizeof(all);
	}
	memcpy(attr, &all, size);
	return 0;
}

/* Binaries from before port_cap_flags2 pass a struct that ends there. */
int api_compat_query_port(struct ibv_context *context, uint8_t port,
			  struct _compat_ibv_port_attr *attr)
{
	if (!context)
		return api_refuse(null, "context");
	return api_query_port(context, port, (struct ibv_port_attr *)attr,
			      offsetof(struct ibv_port_attr, port_cap_flags2));
}

VB_PUBLIC int ibv_query_port(struct ibv_context *context, uint8_t port,
			     struct _compat_ibv_port_attr *attr)
{
	return api_compat_query_port(context, port, attr);
}

/* --- GIDs ------------------------------------------------------------------------------------- */

static int gid_entry(struct ibv_context *context, uint32_t port, uint32_t index,
		     struct ibv_gid_entry *entry)
{
	struct vb_gid gid;

	if (!context)
		return -vb_refuse_null("context");
	if (!valid_port(context, port))
		return refuse_port(context, port);
	if (index >= context_adapter(context)->gid_table_len)
		return -vb_refuse_range("index", index, 0,
					context_adapter(context)->gid_table_len - 1);
	if (vb_adapter_gid(context_adapter(context), port, index, &gid))
		return ENODATA;
	*entry = (struct ibv_gid_entry){
		.gid = gid.gid,
		.gid_index = index,
		.port_num = port,
		.gid_type = gid.type,
		.ndev_ifindex = gid.ifindex,
	};
	return 0;
}

/* An empty entry reads as zero, as it did when the library read sysfs. */
VB_PUBLIC int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
			    union ibv_gid *gid)
{
	struct ibv_gid_entry entry = { 0 };
	int err;

	API_CALL(API_DEVICE(context));
	err = gid ? gid_entry(context, port, (uint32_t)index, &entry) : -vb_refuse_null("gid");
	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	*gid = entry.gid;
	return 0;
}

VB_PUBLIC int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
				struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry all;
	int err;

	API_CALL_AS("ibv_query_gid_ex", API_DEVICE(context));
	if (!entry || flags || entry_size < sizeof(all))
		return api_refuse(combination,
				  "entry is NULL, flags are set, or the entry is small");
	err = gid_entry(context, port, index, &all);
	if (err)
		return err == ENODATA ? errno = err : api_fail(err);
	memset(entry, 0, entry_size);
	*entry = all;
	return 0;
}

/* All valid entries of all ports. */
VB_PUBLIC ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
				       size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry entry;
	size_t count = 0;

	API_CALL_AS("ibv_query_gid_table", API_DEVICE(context));
	if (!context || !entries || flags || entry_size < sizeof(*entries))
		return -api_refuse(combination,
				   "an argument is NULL, flags are set, or entries are small");
	for (uint32_t port = 1; valid_port(context, port); port++)
		for (uint32_t i = 0; i < VB_GID_TABLE_LEN && !gid_entry(context, port, i, &entry);
		     i++)
			count++;
	if (max_entries < count)
		return -api_refuse(range, "max_entries", max_entries, count, SIZE_MAX);
	memset(entries, 0, count * entry_size);
	for (uint32_t port = 1; valid_port(context, port); port++) {
		for (uint32_t i = 0; i < VB_GID_TABLE_LEN && !gid_entry(context, port, i, &entry);
		     i++) {
			*entries = entry;
			entries = (struct ibv_gid_entry *)((char *)entries + entry_size);
		}
	}
	return (ssize_t)count;
}

/*
 * IBVERBS_PRIVATE_34, but perftest and libfabric call it. The values are those of sysfs, not of
 * ibv_gid_type.
 */
enum gid_type_sysfs { GID_TYPE_SYSFS_IB_ROCE_V1, GID_TYPE_SYSFS_ROCE_V2 };

VB_PUBLIC int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				 enum gid_type_sysfs *type);

VB_PUBLIC int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
				 enum gid_type_sysfs *type)
{
	struct ibv_gid_entry entry;
	int err;

	API_CALL(API_DEVICE(context));
	err = type ? gid_entry(context, port, index, &entry) : -vb_refuse_null("type");
	if (err && err != ENODATA) {
		errno = err;
		return -1;
	}
	*type = !err && entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? GID_TYPE_SYSFS_ROCE_V2
							       : GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

/* --- partition keys: RoCE has only the default one -------------------------------------------- */

VB_PUBLIC int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	API_CALL(API_DEVICE(context));
	if (!context || !pkey || !valid_port(context, port) || index != 0) {
		api_refuse(combination, "an argument is NULL, or port or index do not exist");
		return -1;
	}
	*pkey = default_pkey;
	return 0;
}

VB_PUBLIC int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	API_CALL(API_DEVICE(context));
	if (!context || !valid_port(context, port) || pkey != default_pkey) {
		api_refuse(combination, "no such port, or no such P_Key: the only one is 0xffff");
		return -1;
	}
	return 0;
}

/* --- the clock -------------------------------------------------------------------------------- */

/* The raw clock goes whole into tv_nsec, as mlx5 gives it. */
int api_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	uint32_t answered = 0;

	API_CALL_AS("ibv_query_rt_values_ex", API_DEVICE(context));
	if (!values)
		return api_refuse(null, "values");
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
		values->raw_clock = (struct timespec){ .tv_nsec = (long)vb_clock() };
		answered = IBV_VALUES_MASK_RAW_CLOCK;
	}
	values->comp_mask = answered;
	return 0;
}
