// SPDX-License-Identifier: MIT
/*
 * Owns outboxes: the page through which device code rings doorbells, and what it is set to.
 *
 *	thread: sd to OUTBOX_PAGE + register --> outbox_store() --> vb_doorbell_*(guest.owner, number)
 *
 * One page serves all threads of a process: the callback is told which thread stores. What a
 * thread's outbox is set to is kept in its struct guest on the host; the id in its context is for
 * programs to read. Values are not trusted: the number of a queue that this process did not make
 * rings nothing, and sets the thread's error number.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

#include "card/emulation/emulation.h"
#include "card/queue/doorbell.h"

enum outbox_register {
	UCTL = 0x000,
	BUFFER = 0x040,
	CQ_DB = 0x100,
	EQ_DB_REARM = 0x140,
	EQ_DB_NO_REARM = 0x180,
	SXD_DB = 0x1c0,
	EMU_CAP = 0x200,
	EMU_CAP_TRIGGER = 0x240,
	RXT_DB = 0x280,
	RXC_RD = 0x300,
	CC_DB = 0x340,
	CC_DB_MSB = 0x348,
};

/* What an outbox is good for; 0: there is none. */
enum outbox_can { OUTBOX_RINGS = 1, OUTBOX_CC = 2 };

enum { UCTL_ERR = 2, NUMBER_MASK = 0xffffff, EMU_MASK = 0x3ffffff };

struct flexio_outbox {
	struct flexio_process *process;
	uint32_t id;
};

/* ---- the page ---- */

/* What a driver stored last; the answer stands in the registers. */
static int read_doorbell(struct guest *guest, uint64_t value)
{
	uint32_t stored = 0;
	int err =
		vb_doorbell_emu_value(guest->card, guest->owner, (value >> 2) & EMU_MASK, &stored);

	guest->buffer = stored;
	guest->uctl = err ? UCTL_ERR : 0;
	return err;
}

static int outbox_ring(struct guest *guest, uint64_t offset, uint64_t value)
{
	uint32_t low = value & NUMBER_MASK, high = (value >> 32) & NUMBER_MASK,
		 emu = (value >> 32) & EMU_MASK;
	uint8_t can = atomic_load_explicit(&guest->process->outboxes[guest->outbox_id],
					   memory_order_relaxed);

	if (unlikely(!can))
		return -ENODEV;
	switch (offset) {
	case SXD_DB:
		return vb_doorbell_send(guest->card, guest->owner, high, value & 0xffff);
	case CQ_DB:
		return vb_doorbell_arm(guest->card, guest->owner, low, high);
	case EQ_DB_REARM:
	case EQ_DB_NO_REARM:
		return vb_doorbell_eq(guest->card, guest->owner, low, high);
	case RXT_DB:
		return vb_doorbell_zero_cqe(guest->card, guest->owner, low);
	case EMU_CAP:
		return vb_doorbell_emu_arm(guest->card, guest->owner, low, emu);
	case EMU_CAP_TRIGGER:
		return vb_doorbell_emu_trigger(guest->card, guest->owner, low, emu);
	case RXC_RD:
		return read_doorbell(guest, value);
	case CC_DB:
		return can & OUTBOX_CC ? vb_pcc_ring(guest, value) : -ENOENT;
	case CC_DB_MSB:
		if (!guest->process->pcc || !(can & OUTBOX_CC))
			return -ENOENT;
		guest->cc_high = value;
		return 0;
	default:
		return -ENOENT;
	}
}

static int outbox_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned int size,
			uint64_t value, void *arg)
{
	struct guest *guest = vb_dpa_thread_user(thread);
	struct event *event =
		vb_event_note(&guest->events, vb_dpa_thread_state(thread)->instret, EVENT_DOORBELL,
			      size, (uint64_t[EVENT_ARGS]){ offset, value });
	int err = likely(size == 8) ? outbox_ring(guest, offset, value) : -EINVAL;

	event->result = (uint64_t)err;

	if (unlikely(err))
		ctx_put(guest, os_errno, err == -ENODEV ? ENODEV : EINVAL);
	/* A doorbell moves data before it returns, and a slice may be nothing but doorbells. */
	if (unlikely(vb_call_worked(guest, WORK_DOORBELL)))
		vb_dpa_thread_halt(thread);
	return 0;
}

static int outbox_load(struct vb_dpa_thread *thread, uint64_t offset, unsigned int size,
		       uint64_t *value, void *arg)
{
	struct guest *guest = vb_dpa_thread_user(thread);

	/* Nothing takes long here, so it is never busy; all else reads as zero. */
	*value = offset == UCTL ? guest->uctl : offset == BUFFER ? guest->buffer : 0;
	return 0;
}

static const struct vb_dpa_device_ops page_ops = { .load = outbox_load,
						   .store = outbox_store,
						   .permanent = true };

int vb_outbox_init(struct flexio_process *process)
{
	struct vb_dpa_window *page; /* goes with the process */
	int err;

	atomic_store_explicit(&process->outboxes[0], OUTBOX_RINGS | OUTBOX_CC,
			      memory_order_relaxed);
	err = vb_dpa_device_create(process->dpa, NULL, OUTBOX_PAGE, OUTBOX_SIZE, &page_ops, NULL,
				   &page);
	if (err)
		fail("process %s: no outbox: %s", process->name, strerror(-err));
	return err;
}

/* ---- what a thread's outbox is set to ---- */

void vb_outbox_reset(struct guest *guest)
{
	guest->outbox_id = 0;
	ctx_put(guest, outbox_config_id, 0);
	guest->card = guest->process->uar.adapter->card;
	guest->owner = vb_flexio_uar_owner(guest->process, guest->process->uar.adapter);
	ctx_put(guest, outbox_base, OUTBOX_PAGE);
	guest->uctl = guest->buffer = 0;
	guest->cc_high = 0;
}

bool vb_outbox_config(struct guest *guest, uint64_t id)
{
	if (id >= MAX_OUTBOXES ||
	    !atomic_load_explicit(&guest->process->outboxes[id], memory_order_relaxed))
		return false;
	vb_outbox_reset(guest);
	guest->outbox_id = (uint16_t)id;
	ctx_put(guest, outbox_config_id, id);
	return true;
}

bool vb_outbox_extend(struct guest *guest, uint64_t device_id)
{
	uint64_t owner = vb_flexio_uar_owner_by_id(guest->process, device_id);

	if (owner)
		guest->owner = owner;
	return owner;
}

bool vb_outbox_cross_db(struct guest *guest, uint64_t device_id, uint64_t qpn, uint64_t pi)
{
	return !vb_doorbell_send(guest->card, vb_flexio_uar_owner_by_id(guest->process, device_id),
				 qpn & NUMBER_MASK, pi & 0xffff);
}

/* ---- objects ---- */

/* MAX_OUTBOXES: none is free. */
static uint32_t outbox_take_id(struct flexio_process *process, uint8_t can)
{
	uint32_t id = 1;

	for (; id < MAX_OUTBOXES; id++) {
		uint8_t used = 0;

		if (atomic_compare_exchange_strong_explicit(&process->outboxes[id], &used, can,
							    memory_order_relaxed,
							    memory_order_relaxed))
			break;
	}
	return id;
}

flexio_status flexio_outbox_create(struct flexio_process *process, struct flexio_outbox_attr *fattr,
				   struct flexio_outbox **outbox)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_outbox *o;
	uint32_t id;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!fattr || !outbox)
		return fail("%s is NULL", !fattr ? "fattr" : "outbox");
	if (fattr->en_pcc && !process->pcc)
		return fail("en_pcc: process %s was created without it", process->name);
	if (!vb_process_hold(process, PART_QUEUE))
		return failed();
	id = outbox_take_id(process, OUTBOX_RINGS | (fattr->en_pcc ? OUTBOX_CC : 0));
	if (id == MAX_OUTBOXES) {
		fail("process %s has %d outboxes, its own included; there cannot be more",
		     process->name, MAX_OUTBOXES);
		goto release_process;
	}
	o = calloc(1, sizeof(*o));
	if (!o) {
		fail("process %s: no memory for an outbox", process->name);
		goto give_id;
	}
	*o = (struct flexio_outbox){ .process = process, .id = id };
	if (!vb_handle_add(HANDLE_OUTBOX, o))
		goto free_outbox;
	*outbox = o;
	return FLEXIO_STATUS_SUCCESS;

free_outbox:
	free(o);
give_id:
	atomic_store_explicit(&process->outboxes[id], 0, memory_order_relaxed);
release_process:
	vb_process_release(process, PART_QUEUE);
	return failed();
}

flexio_status flexio_outbox_destroy(struct flexio_outbox *outbox)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_OUTBOX, outbox);

	API_CALL();
	if (!outbox)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_handle_end(&pin))
		return bad_handle(outbox, "outbox");
	/* From now on a thread that is still configured with it rings nothing. */
	atomic_store_explicit(&outbox->process->outboxes[outbox->id], 0, memory_order_relaxed);
	vb_process_release(outbox->process, PART_QUEUE);
	free(outbox);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_outbox_get_id(struct flexio_outbox *outbox)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_OUTBOX, outbox);

	API_CALL();
	if (!pin) {
		bad_handle(outbox, "outbox");
		return UINT32_MAX;
	}
	return outbox->id;
}

/* Always the process's: the attribute that named one is not used any more. */
struct flexio_uar *flexio_outbox_get_uar(struct flexio_outbox *outbox)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_OUTBOX, outbox);

	API_CALL();
	if (!pin) {
		bad_handle(outbox, "outbox");
		return NULL;
	}
	return &outbox->process->uar;
}
