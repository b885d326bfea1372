// SPDX-License-Identifier: MIT
/*
 * Verbs under the names of the vendor's own build, hlibv_*: its collective library loads libhbl.so
 * and looks for them there, by name. Each is the verb of that name.
 */
#include "hbldv.h"

#define NAMED(type, name, parameters, call)     \
	VB_PUBLIC type hlibv_##name parameters; \
	VB_PUBLIC type hlibv_##name parameters  \
	{                                       \
		return call;                    \
	}

/* In <infiniband/driver.h> of the real library, which programs do not have. */
enum ibv_gid_type_sysfs;
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
		       enum ibv_gid_type_sysfs *type);

NAMED(struct ibv_device **, get_device_list, (int *count), ibv_get_device_list(count))
NAMED(const char *, get_device_name, (struct ibv_device * device), ibv_get_device_name(device))
NAMED(int, close_device, (struct ibv_context * context), ibv_close_device(context))
NAMED(int, query_port, (struct ibv_context * context, uint8_t port, struct ibv_port_attr *attr),
      ibv_query_port(context, port, attr))
NAMED(int, query_gid, (struct ibv_context * context, uint8_t port, int index, union ibv_gid *gid),
      ibv_query_gid(context, port, index, gid))
NAMED(int, query_gid_type,
      (struct ibv_context * context, uint8_t port, unsigned int index,
       enum ibv_gid_type_sysfs *type),
      ibv_query_gid_type(context, port, index, type))
NAMED(struct ibv_pd *, alloc_pd, (struct ibv_context * context), ibv_alloc_pd(context))
NAMED(int, dealloc_pd, (struct ibv_pd * pd), ibv_dealloc_pd(pd))
NAMED(int, destroy_cq, (struct ibv_cq * cq), ibv_destroy_cq(cq))
NAMED(struct ibv_qp *, create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr *attr),
      ibv_create_qp(pd, attr))
NAMED(int, modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask),
      ibv_modify_qp(qp, attr, mask))
NAMED(int, query_qp,
      (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init),
      ibv_query_qp(qp, attr, mask, init))
NAMED(int, destroy_qp, (struct ibv_qp * qp), ibv_destroy_qp(qp))
NAMED(int, get_async_event, (struct ibv_context * context, struct ibv_async_event *event),
      ibv_get_async_event(context, event))

VB_PUBLIC void hlibv_free_device_list(struct ibv_device **list);
VB_PUBLIC void hlibv_free_device_list(struct ibv_device **list)
{
	ibv_free_device_list(list);
}

VB_PUBLIC void hlibv_ack_async_event(struct ibv_async_event *event);
VB_PUBLIC void hlibv_ack_async_event(struct ibv_async_event *event)
{
	ibv_ack_async_event(event);
}
