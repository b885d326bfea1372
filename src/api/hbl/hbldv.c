// SPDX-License-Identifier: MIT
/*
 * hbl direct verbs: devices, ports, completion queues, queue pairs. FIFOs and encapsulation are in
 * fifo.c.
 *
 * Thin: check arguments, translate, call the card. A context of another device is EOPNOTSUPP, a
 * missing argument EINVAL.
 */
#include "hbldv.h"

#include <stddef.h>
#include <string.h>

#include "card/card.h"

bool hbldv_is_supported(struct ibv_device *device)
{
	return device && vb_verbs_adapter(device)->config->format == VB_FORMAT_HBL;
}

struct ibv_context *hbldv_open_device(struct ibv_device *device, struct hbldv_ucontext_attr *attr)
{
	struct vb_verbs_hbl_open open;

	API_CALL(.kind = device ? device->name : NULL);
	if (!device)
		return api_refuse_null(null, "device");
	if (!hbldv_is_supported(device))
		return api_refuse_null(not_mlx, "hbl");
	if (!attr)
		return verbs_open_device(device, NULL); /* the default context */
	if (attr->core_fd < 0) {
		api_fail(EBADF);
		return NULL;
	}
	open = (struct vb_verbs_hbl_open){ .ports_mask = attr->ports_mask,
					   .core_fd = attr->core_fd };
	return verbs_open_device(device, &open);
}

int hbldv_query_device(struct ibv_context *context, struct hbldv_device_attr *attr)
{
	API_CALL(API_DEVICE(context));
	int err = hbl_check(context, attr);

	if (err)
		return err;
	*attr = (struct hbldv_device_attr){ .caps = HBLDV_DEVICE_ATTR_CAP_CC,
					    .ports_mask = vb_hbl_ports(hbl_device(context)) };
	return 0;
}

/* --- ports ------------------------------------------------------------------------------------ */

static bool any_nonzero(const uint32_t *value, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		if (value[i])
			return true;
	return false;
}

int hbldv_set_port_ex(struct ibv_context *context, struct hbldv_port_ex_attr *attr)
{
	const uint64_t known = HBLDV_PORT_CAP_ADVANCED | HBLDV_PORT_CAP_ADAPTIVE_TIMEOUT;
	const struct hbldv_wq_array_attr *wqs;
	API_CALL(API_DEVICE(context));
	int err = hbl_check(context, attr);

	if (err)
		return err;
	wqs = &attr->wq_arr_attr[HBLDV_WQ_ARRAY_TYPE_GENERIC];
	if ((attr->caps & ~known) ||
	    (wqs->mem_id != HBLDV_MEM_HOST && wqs->mem_id != HBLDV_MEM_DEVICE) ||
	    (wqs->swq_granularity != HBLDV_SWQE_GRAN_32B &&
	     wqs->swq_granularity != HBLDV_SWQE_GRAN_64B))
		return api_refuse(combination, "caps, mem_id or swq_granularity cannot be");
	return api_status(vb_hbl_port_setup(
		hbl_device(context),
		&(struct vb_hbl_port_attr){
			.port = attr->port_num,
			.max_wqs = wqs->max_num_of_wqs,
			.max_wqes = wqs->max_num_of_wqes_in_wq,
			.wide = wqs->swq_granularity == HBLDV_SWQE_GRAN_64B,
			.advanced = attr->caps & HBLDV_PORT_CAP_ADVANCED,
			.no_index_check = any_nonzero(attr->qp_wq_bp_offs, HBLDV_USER_BP_OFFS_MAX),
		}));
}

int hbldv_query_port(struct ibv_context *context, uint32_t port_num,
		     struct hbldv_query_port_attr *attr)
{
	struct vb_hbl_port_info info;
	API_CALL(API_DEVICE(context));
	int err = hbl_check(context, attr);

	if (!err)
		err = api_status(vb_hbl_port_query(hbl_device(context), port_num, &info));
	if (err)
		return err;
	*attr = (struct hbldv_query_port_attr){
		.max_num_of_qps = info.max_qps,
		.num_allocated_qps = info.qps,
		.max_allocated_qp_num = info.max_qpn,
		.max_cq_size = VB_HBL_CQE_MAX * VB_HBL_CQE_SIZE,
		.advanced = info.advanced,
		.max_num_of_cqs = VB_HBL_CQS,
		.max_num_of_usr_fifos = VB_HBL_FIFOS,
		.max_num_of_encaps = 1,
		.nic_macro_idx = (uint8_t)((port_num - 1) / 2),
		.nic_phys_port_idx = (uint8_t)(port_num - 1),
	};
	return 0;
}

/* --- completion queues ------------------------------------------------------------------------ */

struct ibv_cq *hbldv_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int comp_vector,
			       struct hbldv_cq_attr *attr)
{
	API_CALL(API_DEVICE(context));
	if (hbl_check(context, attr))
		return NULL;
	if (cqe < 1 || comp_vector < 0 || comp_vector >= context->num_comp_vectors ||
	    !attr->port_num ||
	    (attr->cq_type != HBLDV_CQ_TYPE_QP && attr->cq_type != HBLDV_CQ_TYPE_CC))
		return api_refuse_null(combination,
				       "cqe, comp_vector, port_num or cq_type cannot be");
	return hbl_of(context)->create_cq(context, (uint32_t)cqe, channel, NULL, attr->port_num,
					  attr->cq_type == HBLDV_CQ_TYPE_CC);
}

int hbldv_query_cq(struct ibv_cq *ibvcq, struct hbldv_query_cq_attr *attr)
{
	struct vb_hbl_cq_info info;
	API_CALL(API_DEVICE(ibvcq ? ibvcq->context : NULL));
	int err = ibvcq ? hbl_check(ibvcq->context, attr) : api_refuse(null, "ibvcq");

	if (err)
		return err;
	vb_hbl_cq_query(hbl_of(ibvcq->context)->cq(ibvcq), &info);
	*attr = (struct hbldv_query_cq_attr){
		.ibvcq = ibvcq,
		.mem_cpu_addr = info.mem,
		.pi_cpu_addr = info.pi,
		.regs_cpu_addr = info.regs,
		.cq_size = info.size,
		.cq_num = info.number,
		.regs_offset = info.regs_offset,
		.cq_type = info.cc ? HBLDV_CQ_TYPE_CC : HBLDV_CQ_TYPE_QP,
	};
	return 0;
}

/* --- queue pairs ------------------------------------------------------------------------------ */

int hbldv_query_qp(struct ibv_qp *ibvqp, struct hbldv_query_qp_attr *attr)
{
	struct vb_hbl_qp_info info;
	API_CALL(API_DEVICE(ibvqp ? ibvqp->context : NULL));
	int err = ibvqp ? hbl_check(ibvqp->context, attr) : api_refuse(null, "ibvqp");

	if (err)
		return err;
	vb_hbl_qp_query(hbl_of(ibvqp->context)->qp(ibvqp), &info);
	*attr = (struct hbldv_query_qp_attr){ .qp_num = info.qpn,
					      .swq_cpu_addr = info.swq,
					      .rwq_cpu_addr = info.rwq };
	return 0;
}

int hbldv_modify_qp(struct ibv_qp *ibvqp, struct ibv_qp_attr *attr, int attr_mask,
		    struct hbldv_qp_attr *hl_attr)
{
	struct vb_hbl_qp_attr hbl;
	API_CALL(.kind = "QP", .number = ibvqp ? ibvqp->qp_num : 0);
	int err = ibvqp ? hbl_check(ibvqp->context, attr) : api_refuse(null, "ibvqp");

	if (err)
		return err;
	if (!hl_attr)
		return hbl_of(ibvqp->context)->modify_qp(ibvqp, attr, attr_mask, NULL);
	if (hl_attr->caps & HBLDV_QP_CAP_MIGRATE)
		return api_refuse(unsupported, "a queue pair that takes another one's place");
	if ((attr_mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_INIT &&
	    hl_attr->wq_granularity != HBLDV_SWQE_GRAN_32B &&
	    hl_attr->wq_granularity != HBLDV_SWQE_GRAN_64B)
		return api_refuse(value, "wq_granularity", hl_attr->wq_granularity);
	hbl = (struct vb_hbl_qp_attr){
		.caps = hl_attr->caps,
		.local_key = hl_attr->local_key,
		.remote_key = hl_attr->remote_key,
		.congestion_window = hl_attr->congestion_wnd,
		.dest_wq_size = hl_attr->dest_wq_size,
		.wq_type = hl_attr->wq_type,
		.wide = hl_attr->wq_granularity == HBLDV_SWQE_GRAN_64B,
		.priority = hl_attr->priority,
		.encap = hl_attr->encap_num,
		.qpn_hint = hl_attr->caps & HBLDV_QP_CAP_COLL ? hl_attr->qp_num_hint : 0,
	};
	return hbl_of(ibvqp->context)->modify_qp(ibvqp, attr, attr_mask, &hbl);
}

int hbldv_reserve_coll_qps(struct ibv_pd *ibvpd, struct hbldv_coll_qp_attr *attr,
			   struct hbldv_coll_qp *coll_qp)
{
	API_CALL(API_DEVICE(ibvpd ? ibvpd->context : NULL));
	int err = ibvpd && coll_qp ? hbl_check(ibvpd->context, attr)
				   : api_refuse(null, "ibvpd or coll_qp");

	return err ? err
		   : api_status(vb_hbl_qpn_reserve(hbl_device(ibvpd->context), &coll_qp->qp_num));
}

/*
 * What of a queue pair goes to the port that takes over is known to the vendor's driver and firmware
 * alone.
 */
int hbldv_migrate_qp(struct ibv_qp *ibvqp)
{
	API_CALL(.kind = "QP", .number = ibvqp ? ibvqp->qp_num : 0);
	int err = ibvqp ? hbl_check(ibvqp->context, ibvqp) : api_refuse(null, "ibvqp");

	return err ? err : api_refuse(unsupported, "a queue pair that takes another one's place");
}
