// SPDX-License-Identifier: MIT
/*
 * mlx5 direct verbs that are not there yet: programs that link them load, and learn EOPNOTSUPP when
 * they call.
 *
 * mlx5dv.h is not included: the callee ignores its arguments, which the calling conventions of
 * x86-64 and AArch64 permit, and so each function is one line of a table.
 */
#include "base/refusal.h"

#define PUBLIC VB_PUBLIC

/* One line in the log, under the function's own name. */
static void mlx5_unsupported_refuse(const char *function)
{
	VB_CALL_AS(function);
	errno = -vb_refuse_function();
}

/* Returns a positive errno, as most of mlx5dv does. */
#define NO_INT(name)                            \
	PUBLIC int name(void);                  \
	int name(void)                          \
	{                                       \
		mlx5_unsupported_refuse(#name); \
		return EOPNOTSUPP;              \
	}

/* Returns a count, a size or a file descriptor, and a negative number on failure. */
#define NO_COUNT(name, failure)                 \
	PUBLIC long name(void);                 \
	long name(void)                         \
	{                                       \
		mlx5_unsupported_refuse(#name); \
		return failure;                 \
	}

#define NO_POINTER(name)                        \
	PUBLIC void *name(void);                \
	void *name(void)                        \
	{                                       \
		mlx5_unsupported_refuse(#name); \
		return NULL;                    \
	}

#define NO_VOID(name)           \
	PUBLIC void name(void); \
	void name(void)         \
	{                       \
	}

NO_COUNT(mlx5dv_vfio_get_events_fd, -EOPNOTSUPP)

NO_INT(_mlx5dv_mkey_check)
NO_INT(mlx5dv_crypto_login)
NO_INT(mlx5dv_crypto_login_destroy)
NO_INT(mlx5dv_crypto_login_query)
NO_INT(mlx5dv_crypto_login_query_state)
NO_INT(mlx5dv_crypto_logout)
NO_INT(mlx5dv_dek_destroy)
NO_INT(mlx5dv_dek_query)
NO_INT(mlx5dv_destroy_steering_anchor)
NO_INT(mlx5dv_devx_free_msi_vector)
NO_INT(mlx5dv_dr_action_modify_aso)
NO_INT(mlx5dv_dr_action_modify_flow_meter)
NO_INT(mlx5dv_dr_aso_other_domain_link)
NO_INT(mlx5dv_dr_aso_other_domain_unlink)
NO_INT(mlx5dv_modify_qp_lag_port)
NO_INT(mlx5dv_modify_qp_sched_elem)
NO_INT(mlx5dv_query_qp_lag_port)
NO_INT(mlx5dv_sched_leaf_destroy)
NO_INT(mlx5dv_sched_leaf_modify)
NO_INT(mlx5dv_sched_node_destroy)
NO_INT(mlx5dv_sched_node_modify)
NO_INT(mlx5dv_vfio_process_events)

NO_POINTER(mlx5dv_alloc_var)
NO_POINTER(mlx5dv_create_flow_action_esp)
NO_POINTER(mlx5dv_create_steering_anchor)
NO_POINTER(mlx5dv_crypto_login_create)
NO_POINTER(mlx5dv_dek_create)
NO_POINTER(mlx5dv_devx_alloc_msi_vector)
NO_POINTER(mlx5dv_dr_action_create_aso)
NO_POINTER(mlx5dv_dr_action_create_dest_root_table)
NO_POINTER(mlx5dv_dr_action_create_flow_meter)
NO_POINTER(mlx5dv_dr_action_create_flow_sampler)
NO_POINTER(mlx5dv_get_vfio_device_list)
NO_POINTER(mlx5dv_sched_leaf_create)
NO_POINTER(mlx5dv_sched_node_create)

NO_VOID(mlx5dv_free_var)
