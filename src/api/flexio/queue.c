// SPDX-License-Identifier: MIT
/*
 * Owns what all queues have in common: their life, their memory, the device they are on.
 *
 * Memory of a queue must stay mapped while the card uses it. So device memory is taken from the
 * program, the heap of the host or the heap of device code only, which live as long as the process;
 * and a process lives as long as its queues.
 */
#include "queue.h"

#include <stdlib.h>

#include "card/queue/umem.h"

enum { RING_ALIGN = 64, DBR_SIZE = 8 };

static void qmem_put(struct qmem *mem)
{
	if (mem->umem)
		vb_umem_put(mem->umem);
	*mem = (struct qmem){ 0 };
}

/* ---- life ---- */

void *vb_queue_new(enum queue_kind kind, struct flexio_process *process, struct ibv_context *ctx,
		   size_t size)
{
	struct queue *queue;

	if (process && !vb_process_hold(process, PART_QUEUE))
		return NULL;
	queue = aligned_alloc(64, (size + 63) & ~(size_t)63);
	if (!queue) {
		fail("no memory for a queue");
		if (process)
			vb_process_release(process, PART_QUEUE);
		return NULL;
	}
	memset(queue, 0, size);
	queue->kind = kind;
	queue->process = process;
	queue->ctx = ctx;
	vb_verbs_hold(ctx, NULL);
	return queue;
}

void vb_queue_free(struct queue *queue)
{
	qmem_put(&queue->ring);
	qmem_put(&queue->dbr);
	if (queue->uar)
		vb_flexio_uar_release(queue->uar);
	vb_verbs_release(queue->ctx, NULL);
	if (queue->process)
		vb_process_release(queue->process, PART_QUEUE);
	free(queue);
}

bool vb_queue_publish(struct queue *queue)
{
	return vb_handle_add(HANDLE_QUEUE, queue);
}

struct handle *vb_queue_pin(enum queue_kind kind, const void *handle)
{
	struct handle *pin = vb_handle_pin(HANDLE_QUEUE, handle);

	if (pin && ((const struct queue *)handle)->kind != kind)
		vb_handle_unpin(&pin);
	return pin;
}

bool vb_queue_end(enum queue_kind kind, void *handle)
{
	struct handle *pin AUTO_UNPIN = vb_queue_pin(kind, handle);

	return vb_handle_end(&pin);
}

void vb_queue_revive(struct queue *queue)
{
	/* Hardly fails: vb_queue_end() has just freed an entry of the set. */
	vb_queue_publish(queue);
}

/* ---- memory ---- */

static int get_device(struct flexio_process *process, uint64_t addr, uint64_t size,
		      const char *what, struct qmem *out)
{
	out->addr = vb_process_queue_memory(process, addr, size);
	if (out->addr)
		return 0;
	fail("%s: %llu bytes at device address 0x%llx are not memory of process %s that stays (its heap, its program or what its malloc gave)",
	     what, (unsigned long long)size, (unsigned long long)addr, process->name);
	return -EFAULT;
}

static int get_host(struct vb_dev *dev, const struct flexio_qmem *qmem, uint64_t size,
		    const char *what, struct qmem *out)
{
	out->umem = vb_umem_get(dev, qmem->umem_id, qmem->humem_offset, size, &out->addr);
	if (out->umem)
		return 0;
	fail("%s: %llu bytes at offset 0x%llx are not in a umem %u of the device", what,
	     (unsigned long long)size, (unsigned long long)qmem->humem_offset, qmem->umem_id);
	return -EINVAL;
}

int vb_qmem_get(struct flexio_process *process, struct vb_dev *dev, const struct flexio_qmem *qmem,
		uint64_t size, const char *what, struct qmem *out)
{
	uintptr_t align = size > DBR_SIZE ? RING_ALIGN : DBR_SIZE;
	int err;

	*out = (struct qmem){ 0 };
	if (qmem->memtype == FLEXIO_MEMTYPE_DPA) {
		err = get_device(process, qmem->daddr, size, what, out);
	} else if (qmem->memtype == FLEXIO_MEMTYPE_HOST) {
		err = get_host(dev, qmem, size, what, out);
	} else {
		fail("%s: %u is not a type of memory", what, (unsigned int)qmem->memtype);
		return -EINVAL;
	}
	if (!err && (uintptr_t)out->addr & (align - 1)) {
		fail("%s: the address is not a multiple of %lu", what, (unsigned long)align);
		qmem_put(out);
		err = -EINVAL;
	}
	return err;
}

/* ---- place ---- */

int vb_queue_place(struct flexio_process *process, struct ibv_context *ctx,
		   struct queue_place *place)
{
	place->ctx = ctx ? ctx : process->ctx;
	place->adapter = vb_accel_adapter(place->ctx);
	if (!place->adapter) {
		fail("%s has no queues of this kind; adapters of the format mlx5 have them",
		     place->ctx->device ? place->ctx->device->name : "the device");
		return -ENODEV;
	}
	place->dev = vb_verbs_dev(place->ctx);
	return 0;
}

struct vb_pd *vb_queue_pd(struct flexio_process *process, const struct queue_place *place,
			  struct ibv_pd *pd)
{
	if (!pd)
		pd = process->pd;
	if (pd->context == place->ctx)
		return vb_verbs_pd(pd);
	if (vb_accel_adapter(pd->context) == place->adapter)
		fail("the protection domain is of another context of %s than the queue",
		     place->adapter->config->name);
	else
		fail("the protection domain is of %s, the queue of %s", pd->context->device->name,
		     place->adapter->config->name);
	return NULL;
}

int vb_queue_refused(const char *what, const struct queue_place *place,
		     const struct card_words *words, int err)
{
	fail("%s refuses the %s: %s", place->adapter->config->name, what, card_reason(words, err));
	return err;
}

void vb_queue_log_event(const char *what, uint32_t number, enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		log_some(FLEXIO_LOG_LVL_INFO, "%s 0x%x: %s", what, number,
			 ibv_event_type_str(type));
		break;
	default:
		log_err("%s 0x%x: %s", what, number, ibv_event_type_str(type));
	}
}
