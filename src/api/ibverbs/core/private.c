// SPDX-License-Identifier: MIT
/*
 * The node IBVERBS_PRIVATE_34: what providers of the real library call.
 *
 * Debian's libmlx5 and libefa, and programs linked to them, bind these names when they are loaded.
 * A provider may register itself and is never asked for a device, so whatever reaches a command
 * here fails cleanly. (Those that do work: verbs_open_device in device.c, ibv_query_gid_type in
 * query.c, ibv_read_ibdev_sysfs_file in sysfs.c.)
 *
 * The declarations are private to the real library; the callee ignores its arguments, which the
 * calling conventions of x86-64 and AArch64 permit.
 */
#include "objects.h"

VB_PUBLIC extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;

#define COMMAND(name)                        \
	VB_PUBLIC int name(void);            \
	int name(void)                       \
	{                                    \
		return api_refuse(function); \
	}

#define NOTHING(name)              \
	VB_PUBLIC void name(void); \
	void name(void)            \
	{                          \
	}

NOTHING(verbs_register_driver_34)
NOTHING(verbs_set_ops)
NOTHING(verbs_init_cq)
NOTHING(verbs_uninit_context)
NOTHING(__verbs_log)

VB_PUBLIC void *_verbs_init_and_alloc_context(void);

void *_verbs_init_and_alloc_context(void)
{
	return api_refuse_null(function);
}

VB_PUBLIC unsigned int __ioctl_final_num_attrs(void);

unsigned int __ioctl_final_num_attrs(void)
{
	return 0;
}

COMMAND(execute_ioctl)
COMMAND(ibv_cmd_advise_mr)
COMMAND(ibv_cmd_alloc_dm)
COMMAND(ibv_cmd_alloc_mw)
COMMAND(ibv_cmd_alloc_pd)
COMMAND(ibv_cmd_attach_mcast)
COMMAND(ibv_cmd_close_xrcd)
COMMAND(ibv_cmd_create_ah)
COMMAND(ibv_cmd_create_counters)
COMMAND(ibv_cmd_create_cq)
COMMAND(ibv_cmd_create_cq_ex)
COMMAND(ibv_cmd_create_flow)
COMMAND(ibv_cmd_create_flow_action_esp)
COMMAND(ibv_cmd_create_qp)
COMMAND(ibv_cmd_create_qp_ex)
COMMAND(ibv_cmd_create_qp_ex2)
COMMAND(ibv_cmd_create_rwq_ind_table)
COMMAND(ibv_cmd_create_srq)
COMMAND(ibv_cmd_create_srq_ex)
COMMAND(ibv_cmd_create_wq)
COMMAND(ibv_cmd_dealloc_mw)
COMMAND(ibv_cmd_dealloc_pd)
COMMAND(ibv_cmd_dereg_mr)
COMMAND(ibv_cmd_destroy_ah)
COMMAND(ibv_cmd_destroy_counters)
COMMAND(ibv_cmd_destroy_cq)
COMMAND(ibv_cmd_destroy_flow)
COMMAND(ibv_cmd_destroy_flow_action)
COMMAND(ibv_cmd_destroy_qp)
COMMAND(ibv_cmd_destroy_rwq_ind_table)
COMMAND(ibv_cmd_destroy_srq)
COMMAND(ibv_cmd_destroy_wq)
COMMAND(ibv_cmd_detach_mcast)
COMMAND(ibv_cmd_free_dm)
COMMAND(ibv_cmd_get_context)
COMMAND(ibv_cmd_modify_cq)
COMMAND(ibv_cmd_modify_flow_action_esp)
COMMAND(ibv_cmd_modify_qp)
COMMAND(ibv_cmd_modify_qp_ex)
COMMAND(ibv_cmd_modify_srq)
COMMAND(ibv_cmd_modify_wq)
COMMAND(ibv_cmd_open_qp)
COMMAND(ibv_cmd_open_xrcd)
COMMAND(ibv_cmd_poll_cq)
COMMAND(ibv_cmd_post_recv)
COMMAND(ibv_cmd_post_send)
COMMAND(ibv_cmd_post_srq_recv)
COMMAND(ibv_cmd_query_context)
COMMAND(ibv_cmd_query_device_any)
COMMAND(ibv_cmd_query_mr)
COMMAND(ibv_cmd_query_port)
COMMAND(ibv_cmd_query_qp)
COMMAND(ibv_cmd_query_srq)
COMMAND(ibv_cmd_read_counters)
COMMAND(ibv_cmd_reg_dm_mr)
COMMAND(ibv_cmd_reg_dmabuf_mr)
COMMAND(ibv_cmd_reg_mr)
COMMAND(ibv_cmd_req_notify_cq)
COMMAND(ibv_cmd_rereg_mr)
COMMAND(ibv_cmd_resize_cq)
