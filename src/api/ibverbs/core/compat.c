// SPDX-License-Identifier: MIT
/*
 * The forms of IBVERBS_1.0, which binaries from before 2007 bind, and the providers'
 * ibv_register_driver of 1.1.
 *
 * Their structs had another layout; there is no compatibility layer, so they fail cleanly: a
 * program of that age finds no device and says so.
 */
#include "objects.h"

/* __asm__ (".symver") rather than the attribute, which clang 14 does not know. */
#define OLD_SYMBOL(function, name, version) __asm__(".symver " #function ", " #name "@" version)

#define OLD_POINTER(name)                    \
	VB_PUBLIC void *compat_##name(void); \
	void *compat_##name(void)            \
	{                                    \
		return api_null(EOPNOTSUPP); \
	}                                    \
	OLD_SYMBOL(compat_##name, name, "IBVERBS_1.0")

#define OLD_STATUS(name, status)           \
	VB_PUBLIC int compat_##name(void); \
	int compat_##name(void)            \
	{                                  \
		errno = EOPNOTSUPP;        \
		return status;             \
	}                                  \
	OLD_SYMBOL(compat_##name, name, "IBVERBS_1.0")

#define OLD_VOID(name)                      \
	VB_PUBLIC void compat_##name(void); \
	void compat_##name(void)            \
	{                                   \
	}                                   \
	OLD_SYMBOL(compat_##name, name, "IBVERBS_1.0")

VB_PUBLIC void *compat_ibv_get_device_list(int *num_devices);

void *compat_ibv_get_device_list(int *num_devices)
{
	if (num_devices)
		*num_devices = 0;
	return api_null(EOPNOTSUPP);
}
OLD_SYMBOL(compat_ibv_get_device_list, ibv_get_device_list, "IBVERBS_1.0");

VB_PUBLIC __be64 compat_ibv_get_device_guid(void);

__be64 compat_ibv_get_device_guid(void)
{
	return 0;
}
OLD_SYMBOL(compat_ibv_get_device_guid, ibv_get_device_guid, "IBVERBS_1.0");

VB_PUBLIC void compat_ibv_register_driver(void);

void compat_ibv_register_driver(void)
{
}
OLD_SYMBOL(compat_ibv_register_driver, ibv_register_driver, "IBVERBS_1.1");

OLD_VOID(ibv_ack_async_event);
OLD_VOID(ibv_ack_cq_events);
OLD_VOID(ibv_free_device_list);

OLD_POINTER(ibv_alloc_pd);
OLD_POINTER(ibv_create_ah);
OLD_POINTER(ibv_create_cq);
OLD_POINTER(ibv_create_qp);
OLD_POINTER(ibv_create_srq);
OLD_POINTER(ibv_get_device_name);
OLD_POINTER(ibv_open_device);
OLD_POINTER(ibv_reg_mr);

OLD_STATUS(ibv_attach_mcast, EOPNOTSUPP);
OLD_STATUS(ibv_close_device, EOPNOTSUPP);
OLD_STATUS(ibv_dealloc_pd, EOPNOTSUPP);
OLD_STATUS(ibv_dereg_mr, EOPNOTSUPP);
OLD_STATUS(ibv_destroy_ah, EOPNOTSUPP);
OLD_STATUS(ibv_destroy_cq, EOPNOTSUPP);
OLD_STATUS(ibv_destroy_qp, EOPNOTSUPP);
OLD_STATUS(ibv_destroy_srq, EOPNOTSUPP);
OLD_STATUS(ibv_detach_mcast, EOPNOTSUPP);
OLD_STATUS(ibv_get_async_event, -1);
OLD_STATUS(ibv_get_cq_event, -1);
OLD_STATUS(ibv_modify_qp, EOPNOTSUPP);
OLD_STATUS(ibv_modify_srq, EOPNOTSUPP);
OLD_STATUS(ibv_query_device, EOPNOTSUPP);
OLD_STATUS(ibv_query_gid, -1);
OLD_STATUS(ibv_query_pkey, -1);
OLD_STATUS(ibv_query_port, EOPNOTSUPP);
OLD_STATUS(ibv_query_qp, EOPNOTSUPP);
OLD_STATUS(ibv_query_srq, EOPNOTSUPP);
OLD_STATUS(ibv_resize_cq, EOPNOTSUPP);
