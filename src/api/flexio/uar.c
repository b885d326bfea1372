// SPDX-License-Identifier: MIT
/*
 * Owns UARs: the right of device code to ring queues.
 *
 * Doorbells of device code go through outboxes, and these belong to the process. So what decides is
 * the process and the adapter: a queue made with any UAR of a process on an adapter is rung by any
 * outbox of that process that is set to the adapter, and by nobody else. An extension is the
 * process's right on another adapter; its id is also the device id that device code names.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

#include "card/queue/doorbell.h"

/* In the header this is a macro, which takes a call with three arguments as the older form. */
#undef flexio_uar_create

uint64_t vb_flexio_uar_owner(const struct flexio_process *process, const struct vb_adapter *adapter)
{
	return (uint64_t)process->id << 8 | (adapter->index + 1);
}

/* ---- those of a process, under uar_lock ---- */

static struct flexio_uar **flexio_uar_bucket_of(struct flexio_process *process, uint64_t id)
{
	return &process->uars[id % UAR_BUCKETS];
}

static struct flexio_uar *flexio_uar_find(struct flexio_process *process, uint64_t id)
{
	struct flexio_uar *uar = *flexio_uar_bucket_of(process, id);

	while (uar && uar->id != id)
		uar = uar->next;
	return uar;
}

static struct flexio_uar *find_extension(const struct flexio_uar *base,
					 const struct vb_adapter *adapter)
{
	struct flexio_uar *uar = base->extensions;

	while (uar && uar->adapter != adapter)
		uar = uar->sibling;
	return uar;
}

struct flexio_uar *vb_flexio_uar_hold(struct flexio_process *process, uint32_t id,
				      const struct vb_adapter *adapter)
{
	struct flexio_uar *uar;

	vb_lock(&process->uar_lock);
	uar = flexio_uar_find(process, id);
	if (uar && uar->adapter != adapter)
		uar = find_extension(uar, adapter);
	if (uar)
		uar->users++;
	vb_unlock(&process->uar_lock);
	if (!uar)
		fail("uar_id: process %s has no UAR %u for %s", process->name, id,
		     adapter->config->name);
	return uar;
}

void vb_flexio_uar_release(struct flexio_uar *uar)
{
	vb_lock(&uar->process->uar_lock);
	uar->users--;
	vb_unlock(&uar->process->uar_lock);
}

uint64_t vb_flexio_uar_owner_by_id(struct flexio_process *process, uint64_t id)
{
	struct flexio_uar *uar;
	uint64_t owner;

	vb_lock(&process->uar_lock);
	uar = flexio_uar_find(process, id);
	owner = uar ? vb_flexio_uar_owner(process, uar->adapter) : 0;
	vb_unlock(&process->uar_lock);
	return owner;
}

/* ---- making and ending ---- */

static int uar_number(struct flexio_uar *uar)
{
	int64_t number = vb_uar_number_take(uar->adapter->card);

	if (number < 0) {
		fail("this program has all the UARs that there can be");
		return (int)number;
	}
	uar->id = (uint32_t)number;
	return 0;
}

/* 0, or the number of the extension to that adapter that is there already. */
static uint32_t flexio_uar_add(struct flexio_process *process, struct flexio_uar *uar)
{
	struct flexio_uar **bucket = flexio_uar_bucket_of(process, uar->id);
	const struct flexio_uar *existing;
	uint32_t id;

	vb_lock(&process->uar_lock);
	existing = uar->base ? find_extension(uar->base, uar->adapter) : NULL;
	id = existing ? existing->id : 0;
	if (!existing) {
		uar->next = *bucket;
		*bucket = uar;
	}
	if (!existing && uar->base) {
		uar->base->users++;
		uar->sibling = uar->base->extensions;
		uar->base->extensions = uar;
	}
	vb_unlock(&process->uar_lock);
	return id;
}

int vb_flexio_uar_init(struct flexio_process *process)
{
	struct flexio_uar *uar = &process->uar;
	int err;

	*uar = (struct flexio_uar){ .process = process, .adapter = vb_accel_adapter(process->ctx) };
	err = uar_number(uar);
	if (!err)
		flexio_uar_add(process, uar);
	return err;
}

void vb_flexio_uar_finish(struct flexio_process *process)
{
	if (process->uar.id)
		vb_uar_number_give(process->uar.adapter->card, process->uar.id);
}

static flexio_status uar_new(struct flexio_process *process, const struct vb_adapter *adapter,
			     struct flexio_uar *base, struct flexio_uar **out)
{
	struct handle *pin = NULL;
	struct flexio_uar *uar;
	uint32_t existing;

	if (!vb_process_hold(process, PART_QUEUE))
		return failed();
	uar = calloc(1, sizeof(*uar));
	if (!uar) {
		fail("process %s: no memory for a UAR", process->name);
		goto release;
	}
	*uar = (struct flexio_uar){ .process = process, .adapter = adapter, .base = base };
	if (uar_number(uar))
		goto free_uar;
	if (!vb_handle_add(HANDLE_UAR, uar))
		goto give_number;
	existing = flexio_uar_add(process, uar);
	if (existing) {
		fail("UAR %u is extended to %s already, as UAR %u", base->id, adapter->config->name,
		     existing);
		goto end_handle;
	}
	*out = uar;
	return FLEXIO_STATUS_SUCCESS;

end_handle:
	pin = vb_handle_pin(HANDLE_UAR, uar);
	vb_handle_end(&pin); /* nobody else knows it */

give_number:
	vb_uar_number_give(uar->adapter->card, uar->id);
free_uar:
	free(uar);
release:
	vb_process_release(process, PART_QUEUE);
	return failed();
}

static flexio_status uar_create(struct flexio_process *process, struct flexio_uar **flexio_uar)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	if (!pin)
		return bad_handle(process, "process");
	if (!flexio_uar)
		return fail("flexio_uar is NULL");
	return uar_new(process, process->uar.adapter, NULL, flexio_uar);
}

flexio_status flexio_uar_create(struct flexio_process *process, struct flexio_uar **flexio_uar)
{
	API_CALL();
	return uar_create(process, flexio_uar);
}

/* Before 24.10 a page of the host came along; it is the process's adapter that counts. */
flexio_status flexio_uar_create_v0(struct flexio_process *process, struct mlx5dv_devx_uar *devx_uar,
				   struct flexio_uar **flexio_uar)
{
	vb_api_begin("flexio_uar_create");
	if (!devx_uar)
		return fail("devx_uar is NULL");
	return uar_create(process, flexio_uar);
}

flexio_status flexio_uar_extend(struct flexio_uar *in_uar, struct ibv_context *to_extend,
				struct flexio_uar **extended)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_UAR, in_uar);
	const struct vb_adapter *adapter = vb_accel_adapter(to_extend);

	API_CALL();
	if (!pin)
		return bad_handle(in_uar, "UAR");
	if (!to_extend || !extended)
		return fail("%s is NULL", !to_extend ? "to_extend" : "extended");
	if (!adapter)
		return fail("%s is no adapter of the format mlx5", to_extend->device->name);
	if (in_uar->base)
		return fail("UAR %u is an extension, which cannot be extended", in_uar->id);
	if (adapter == in_uar->adapter)
		return fail("UAR %u is of %s itself", in_uar->id, adapter->config->name);
	return uar_new(in_uar->process, adapter, in_uar, extended);
}

static void leave_base(struct flexio_uar *uar)
{
	struct flexio_uar **link = &uar->base->extensions;

	while (*link != uar)
		link = &(*link)->sibling;
	*link = uar->sibling;
	uar->base->users--;
}

/* Nobody finds it any more. False: somebody needs it. */
static bool unlink_uar(struct flexio_uar *uar)
{
	struct flexio_process *process = uar->process;
	struct flexio_uar **link = flexio_uar_bucket_of(process, uar->id);
	bool idle;

	vb_lock(&process->uar_lock);
	idle = !uar->users;
	while (idle && *link != uar)
		link = &(*link)->next;
	if (idle) {
		*link = uar->next;
		if (uar->base)
			leave_base(uar);
	}
	vb_unlock(&process->uar_lock);
	return idle;
}

flexio_status flexio_uar_destroy(struct flexio_uar *uar)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_UAR, uar);

	API_CALL();
	if (!uar)
		return FLEXIO_STATUS_SUCCESS;
	if (!pin)
		return bad_handle(uar, "UAR");
	if (uar == &uar->process->uar)
		return fail("UAR %u is process %s's own, and goes with it", uar->id,
			    uar->process->name);
	if (!vb_handle_end(&pin))
		return bad_handle(uar, "UAR");
	if (!unlink_uar(uar)) {
		vb_handle_add(HANDLE_UAR, uar);
		return fail("queues or extensions still use UAR %u; destroy them first", uar->id);
	}
	vb_process_release(uar->process, PART_QUEUE);
	vb_uar_number_give(uar->adapter->card, uar->id);
	free(uar);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- what is asked ---- */

uint32_t flexio_uar_get_id(struct flexio_uar *uar)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_UAR, uar);

	API_CALL();
	if (!pin) {
		bad_handle(uar, "UAR");
		return UINT32_MAX;
	}
	return uar->id;
}

flexio_uar_device_id flexio_uar_get_extended_id(struct flexio_uar *uar)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_UAR, uar);

	API_CALL();
	if (!pin) {
		bad_handle(uar, "UAR");
		return UINT32_MAX;
	}
	if (!uar->base) {
		fail("UAR %u is no extension; flexio_uar_extend makes one", uar->id);
		return UINT32_MAX;
	}
	return uar->id;
}
