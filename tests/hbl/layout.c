// SPDX-License-Identifier: MIT
/* The header alone: sizes, offsets and values that programs were compiled with. */
#include <infiniband/hbldv.h>

#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
#define FIELD(type, field, at) \
	_Static_assert(offsetof(struct type, field) == (at), #type "." #field)
#define VALUE(name, value) _Static_assert((name) == (value), #name)

/* 000: the manual page */
SIZE(hbldv_usr_fifo_attr, 24);
FIELD(hbldv_usr_fifo_attr, port_num, 0);
FIELD(hbldv_usr_fifo_attr, reserved0, 4);
FIELD(hbldv_usr_fifo_attr, reserved1, 8);
FIELD(hbldv_usr_fifo_attr, usr_fifo_num_hint, 12);
FIELD(hbldv_usr_fifo_attr, usr_fifo_type, 16);
FIELD(hbldv_usr_fifo_attr, reserved2, 20);
SIZE(hbldv_usr_fifo, 32);
FIELD(hbldv_usr_fifo, ci_cpu_addr, 0);
FIELD(hbldv_usr_fifo, regs_cpu_addr, 8);
FIELD(hbldv_usr_fifo, regs_offset, 16);
FIELD(hbldv_usr_fifo, usr_fifo_num, 20);
FIELD(hbldv_usr_fifo, size, 24);
FIELD(hbldv_usr_fifo, bp_thresh, 28);
VALUE(HBLDV_USR_FIFO_TYPE_DB, 0);
VALUE(HBLDV_USR_FIFO_TYPE_CC, 1);

SIZE(hbldv_ucontext_attr, 16);
FIELD(hbldv_ucontext_attr, core_fd, 8);
SIZE(hbldv_wq_array_attr, 16);
FIELD(hbldv_port_ex_attr, caps, 80);
FIELD(hbldv_port_ex_attr, qp_wq_bp_offs, 88);
FIELD(hbldv_port_ex_attr, reserved0, 152);
FIELD(hbldv_port_ex_attr, port_num, 160);
FIELD(hbldv_port_ex_attr, reserved1, 164);
FIELD(hbldv_query_port_attr, max_cq_size, 12);
FIELD(hbldv_query_port_attr, advanced, 36);
FIELD(hbldv_query_port_attr, nic_phys_port_idx, 41);
FIELD(hbldv_qp_attr, local_key, 8);
FIELD(hbldv_qp_attr, congestion_wnd, 16);
FIELD(hbldv_qp_attr, dest_wq_size, 24);
FIELD(hbldv_qp_attr, wq_type, 28);
FIELD(hbldv_qp_attr, wq_granularity, 32);
FIELD(hbldv_qp_attr, priority, 36);
FIELD(hbldv_qp_attr, encap_num, 39);
SIZE(hbldv_query_qp_attr, 24);
FIELD(hbldv_query_qp_attr, swq_cpu_addr, 8);
SIZE(hbldv_cq_attr, 8);
FIELD(hbldv_cq_attr, cq_type, 4);
FIELD(hbldv_query_cq_attr, cq_size, 32);
FIELD(hbldv_query_cq_attr, cq_num, 36);
FIELD(hbldv_query_cq_attr, regs_offset, 40);
FIELD(hbldv_query_cq_attr, cq_type, 44);
FIELD(hbldv_encap_attr, tnl_hdr_size, 8);
FIELD(hbldv_encap_attr, port_num, 16);
FIELD(hbldv_encap_attr, udp_dst_port, 20);
FIELD(hbldv_encap_attr, ip_proto, 20);
FIELD(hbldv_encap_attr, encap_type, 24);
SIZE(hbldv_encap, 4);
SIZE(hbldv_device_attr, 16);
SIZE(hbldv_cc_cq, 32);

VALUE(HBLDV_QP_CAP_LOOPBACK, 1);
VALUE(HBLDV_QP_CAP_CONG_CTRL, 2);
VALUE(HBLDV_QP_CAP_COMPRESSION, 4);
VALUE(HBLDV_QP_CAP_ENCAP, 0x10);
VALUE(HBLDV_PORT_CAP_ADVANCED, 1);
VALUE(HBLDV_PORT_CAP_ADAPTIVE_TIMEOUT, 2);
VALUE(HBLDV_MEM_HOST, 1);
VALUE(HBLDV_MEM_DEVICE, 2);
VALUE(HBLDV_WQ_ARRAY_TYPE_GENERIC, 0);
VALUE(HBLDV_WQ_ARRAY_TYPE_MAX, 5);
VALUE(HBLDV_SWQE_GRAN_64B, 1);
VALUE(HBLDV_WQ_WRITE, 1);
VALUE(HBLDV_WQ_RECV_RDV, 2);
VALUE(HBLDV_WQ_READ_RDV, 4);
VALUE(HBLDV_WQ_SEND_RDV, 8);
VALUE(HBLDV_WQ_READ_RDV_ENDP, 0x10);
VALUE(HBLDV_CQ_TYPE_CC, 1);
VALUE(HBLDV_ENCAP_TYPE_ENC_OVER_UDP, 2);
VALUE(HBLDV_DEVICE_ATTR_CAP_CC, 1);
VALUE(HBL_IB_MTU_8192, 6);

int main(void)
{
	return 0;
}
