// SPDX-License-Identifier: MIT
/*
 * Owns user FIFOs: the register page that the program stores into, the entries, and their consumer
 * index.
 *
 *	store FIRST32, SECOND32 (DB) ... FOURTH32 (CC)      any thread; every store traps into vb_hbl_fifo_store()
 *	          |  the last dword pushes
 *	          v
 *	[ entry | entry | ... ] --> one thread at a time carries them out, in order; ci moves on
 *	    full: the storing thread waits for room
 *
 * Hardware takes entries without a processor, faster than they can be stored, and programs rely on
 * it: none may be lost because the thread that carries out was preempted. A thread that finds the
 * FIFO full carries out what is there, or sleeps until the thread that does has made room.
 *
 * A store by a handler of an asynchronous signal may have interrupted its thread inside of the
 * card, which holds locks then: the entry is left to the background thread. (No handler interrupts
 * a store: host/trap/trap.h. So the lock of a FIFO is free in every handler.) Nor can such a store wait:
 * the thread that carries out may need a lock of the interrupted one. It has more slots than the
 * program is told of, and beyond the latter a doorbell replaces one of its queue pair that was not
 * taken yet: the newest index is what counts. Only where there is no slot left is an entry lost,
 * with one event.
 *
 * The thread that stores an entry also carries it out, unless another thread is at work: then that
 * thread finds it. Dwords of an entry are kept twice: in the registers, as on hardware, and per
 * thread, so that two threads which write the halves of their doorbells at the same time do not mix
 * them. An entry has a thread's own dwords where it wrote them, and the registers' otherwise.
 */
#include "card/hbl/internal.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/rate.h"
#include "base/rcu.h"
#include "base/time.h"
#include "host/trap/trap.h"
#include "base/util.h"

enum {
	G2_SIZE = 512, /* bytes: 64 doorbells */
	G2_BP = 256,
	G2_CI_MASK = 63,
	G3_SIZE = 256, /* dwords: 128 doorbells */
	G3_BP = 128,
	G3_CI_MASK = 0x7ff,
	SECOND_OFFSET = 0x80, /* two doorbells in a page of the hardware */
	LATCHES = 8,
};

/* What this thread has written of an entry whose last dword is still to come. */
struct latch {
	uint64_t serial;  /* of the FIFO */
	uint32_t written; /* a bit per dword */
	uint32_t dword[4];
};

/*
 * A thread that has more entries than this under way finds them in the registers. Per thread, for FIFOs of
 * all hosts: their serial numbers are unique in the process.
 */
static _Thread_local struct latch latches[LATCHES];
static _Atomic uint64_t serials;

static uint32_t dwords(const struct vb_hbl_fifo *fifo)
{
	return fifo->type == VB_HBL_FIFO_CC ? 4 : 2;
}

/* --- carrying out ----------------------------------------------------------------------------- */

/*
 * Gaudi2 counts 8 bytes, modulo 64. The index of a CC FIFO is one behind, as programs expect it:
 * the first message moves it by one, later ones by two. Gaudi3 counts 4 bytes, in 11 bits.
 */
static uint32_t hbl_fifo_consumer_index(const struct vb_hbl_fifo *fifo)
{
	if (fifo->hbl->generation == VB_GAUDI3)
		return fifo->taken * dwords(fifo) & G3_CI_MASK;
	if (fifo->type == VB_HBL_FIFO_CC)
		return (2 * fifo->taken - 1) & G2_CI_MASK;
	return fifo->taken & G2_CI_MASK;
}

/* Lock held: a slot is taken, which stands for so many entries. */
static void hbl_fifo_advance(struct vb_hbl_fifo *fifo, uint32_t entries)
{
	fifo->head++;
	fifo->taken += entries;
	atomic_store_explicit(fifo->ci, htole32(hbl_fifo_consumer_index(fifo)),
			      memory_order_release);
}

static uint32_t used(const struct vb_hbl_fifo *fifo)
{
	return fifo->tail - fifo->head;
}

/*
 * Lock held, a slot was taken: true where threads that wait are to be woken. They came when it was
 * full, and slots go one by one, so that none of them misses the moment when half of it is free.
 */
static bool give_room(struct vb_hbl_fifo *fifo)
{
	if (likely(!fifo->waiting) || used(fifo) != fifo->capacity / 2)
		return false;
	atomic_fetch_add_explicit(&fifo->room, 1, memory_order_relaxed);
	return true;
}

/*
 * The next entry, for the thread that carries out. Being that thread ends here, with the lock that
 * entries are stored with: none is left to a thread that has just found the FIFO empty.
 */
static bool hbl_fifo_take(struct vb_hbl_fifo *fifo, bool consuming, uint32_t entry[4])
{
	const struct vb_hbl_fifo_slot *slot;
	bool any = false, wake = false;

	vb_lock(&fifo->lock);
	if (consuming || !fifo->consuming) {
		any = fifo->head != fifo->tail;
		if (any) {
			slot = &fifo->slot[fifo->head % VB_HBL_FIFO_SLOTS];
			memcpy(entry, slot->dword, sizeof(slot->dword));
			hbl_fifo_advance(fifo, slot->entries);
			wake = give_room(fifo);
		} else {
			fifo->overrun = false;
		}
		fifo->consuming = any;
	}
	vb_unlock(&fifo->lock);
	if (unlikely(wake))
		vb_futex_wake(&fifo->room, INT_MAX, VB_FUTEX_PRIVATE);
	return any;
}

/* The program only gets an event without a number. */
static void tell_bad_qpn(const struct vb_hbl_fifo *fifo, uint32_t qpn)
{
	static struct vb_rate rate;
	uint32_t more;

	if (vb_rate_allows(&rate, &more))
		vb_warn("%s port %u: syndrome 0x%x, QP %u: %s [%u more like this before]",
			fifo->hbl->adapter->config->name, fifo->port->number, VB_HBL_SYN_BAD_QPN,
			qpn, vb_hbl_syndrome_text(VB_HBL_SYN_BAD_QPN), more);
}

static void hbl_fifo_carry_out(struct vb_hbl_fifo *fifo, const uint32_t entry[4])
{
	struct vb_hbl_doorbell db;
	struct vb_hbl_cc cc;
	struct vb_hbl_qp *qp;
	uint32_t qpn;

	if (fifo->type == VB_HBL_FIFO_DB) {
		vb_hbl_decode_doorbell(entry, &db);
		qpn = db.qpn;
	} else {
		vb_hbl_decode_cc(entry, &cc);
		qpn = cc.qpn;
	}
	qp = qpn <= VB_HBL_MAX_QPN
		     ? atomic_load_explicit(&vb_hbl_port_qps(fifo->port)[qpn], memory_order_acquire)
		     : NULL;
	if (!qp) {
		tell_bad_qpn(fifo, qpn);
		vb_hbl_port_event(fifo->port, IBV_EVENT_PORT_ERR);
	} else if (fifo->type == VB_HBL_FIFO_DB) {
		vb_hbl_ring(qp, db.pi);
	} else {
		vb_hbl_congestion(qp, &cc);
	}
}

/* Once for each time that the FIFO filled. */
static void report_overrun(struct vb_hbl_fifo *fifo)
{
	static struct vb_rate rate;
	struct vb_rate_words more;
	uint32_t held_back;

	if (!atomic_load_explicit(&fifo->unreported, memory_order_relaxed) ||
	    !atomic_exchange_explicit(&fifo->unreported, false, memory_order_acq_rel))
		return;
	if (vb_rate_allows(&rate, &held_back))
		vb_warn("%s port %u: user FIFO %u overrun, doorbells are lost%s",
			fifo->hbl->adapter->config->name, fifo->port->number, fifo->info.number,
			vb_rate_tell(&more, held_back));
	vb_hbl_port_event(fifo->port, IBV_EVENT_PORT_ERR);
}

/* In a burst: what was stored, after an entry that this thread has taken already. */
static void consume(struct vb_hbl_fifo *fifo, bool taken, uint32_t entry[4])
{
	report_overrun(fifo);
	for (bool any = taken || hbl_fifo_take(fifo, false, entry); any;
	     any = hbl_fifo_take(fifo, true, entry))
		hbl_fifo_carry_out(fifo, entry);
}

/* ... whatever there is. */
static void consume_all(struct vb_hbl_fifo *fifo)
{
	uint32_t entry[4];

	consume(fifo, false, entry);
}

/* --- entries of signal handlers --------------------------------------------------------------- */

static void hbl_fifo_defer(struct vb_card *card)
{
	atomic_store_explicit(&card->hbl.deferred, true, memory_order_seq_cst);
	vb_fabric_kick(card->fabric);
}

void vb_hbl_fifo_run_deferred(struct vb_card *card)
{
	/*
	 * Pairs with hbl_fifo_defer(): the entries were stored before. Sequentially consistent with the
	 * kick, as in vb_uar_run_deferred().
	 */
	if (!atomic_load_explicit(&card->hbl.deferred, memory_order_seq_cst) ||
	    !atomic_exchange_explicit(&card->hbl.deferred, false, memory_order_acquire))
		return;
	for (uint32_t i = 0; i < VB_HBL_DEVICES; i++) {
		struct vb_hbl *hbl = vb_hbl_find(card, i);

		for (uint32_t p = 1; hbl && p <= hbl->adapter->config->ports; p++)
			for (uint32_t k = 0; k < VB_HBL_FIFOS; k++) {
				struct vb_hbl_fifo *fifo = atomic_load_explicit(
					&hbl->ports[p].fifos[k], memory_order_acquire);

				if (fifo)
					consume_all(fifo);
			}
	}
}

/* --- stores ----------------------------------------------------------------------------------- */

/* Lock held: a doorbell takes the place of one of its queue pair that is still to be taken. */
static bool hbl_fifo_replace(struct vb_hbl_fifo *fifo, const uint32_t entry[4])
{
	struct vb_hbl_doorbell db, was;

	if (fifo->type != VB_HBL_FIFO_DB)
		return false;
	vb_hbl_decode_doorbell(entry, &db);
	for (uint32_t i = fifo->tail; i != fifo->head; i--) {
		struct vb_hbl_fifo_slot *slot = &fifo->slot[(i - 1) % VB_HBL_FIFO_SLOTS];

		vb_hbl_decode_doorbell(slot->dword, &was);
		if (was.qpn == db.qpn) {
			memcpy(slot->dword, entry, sizeof(slot->dword));
			slot->entries++;
			return true;
		}
	}
	return false;
}

/* Lock held. Without room this is a handler that cannot wait for it. */
static void hbl_fifo_push(struct vb_hbl_fifo *fifo, const uint32_t entry[4])
{
	struct vb_hbl_fifo_slot *slot = &fifo->slot[fifo->tail % VB_HBL_FIFO_SLOTS];

	if (used(fifo) >= fifo->capacity && hbl_fifo_replace(fifo, entry))
		return;
	if (used(fifo) < VB_HBL_FIFO_SLOTS) {
		memcpy(slot->dword, entry, sizeof(slot->dword));
		slot->entries = 1;
		fifo->tail++;
	} else {
		if (!fifo->overrun)
			atomic_store_explicit(&fifo->unreported, true, memory_order_release);
		fifo->overrun = true;
	}
}

/*
 * Lock held, and held again afterwards: no room, outside of the card. Either another thread carries
 * out, which ends in room; or entries of handlers wait for the background thread, and this thread
 * is as good.
 */
static void hbl_fifo_wait_for_room(struct vb_hbl_fifo *fifo)
{
	uint32_t room = atomic_load_explicit(&fifo->room, memory_order_relaxed);

	if (fifo->consuming) {
		fifo->waiting++;
		vb_unlock(&fifo->lock);
		vb_futex_wait_until(vb_time_card(), &fifo->room, room, VB_FUTEX_PRIVATE, VB_NEVER);
		vb_lock(&fifo->lock);
		fifo->waiting--;
	} else {
		vb_unlock(&fifo->lock);
		vb_read_lock();
		vb_burst_begin(fifo->hbl->card);
		consume_all(fifo);
		vb_burst_end();
		vb_read_unlock();
		vb_lock(&fifo->lock);
	}
}

/*
 * Store an entry; true where this thread has taken it at once, and is the one that carries out. The
 * usual case, an empty FIFO and no thread at work, so costs one lock.
 */
static bool hbl_fifo_store_entry(struct vb_hbl_fifo *fifo, bool inside, const uint32_t entry[4])
{
	bool taken;

	vb_lock(&fifo->lock);
	while (unlikely(used(fifo) >= fifo->capacity && !inside))
		hbl_fifo_wait_for_room(fifo);
	taken = !inside && !fifo->consuming && fifo->head == fifo->tail;
	if (taken) {
		fifo->consuming = true;
		fifo->tail++;
		hbl_fifo_advance(fifo, 1);
	} else {
		hbl_fifo_push(fifo, entry);
	}
	vb_unlock(&fifo->lock);
	return taken;
}

static struct latch *latch_of(const struct vb_hbl_fifo *fifo)
{
	struct latch *latch = &latches[fifo->serial % LATCHES];

	if (latch->serial != fifo->serial)
		*latch = (struct latch){ .serial = fifo->serial };
	return latch;
}

/* One register is written; true where that completed an entry. */
static bool write_register(struct vb_hbl_fifo *fifo, struct latch *latch, uint32_t at,
			   uint32_t value, uint32_t entry[4])
{
	latch->dword[at] = value;
	latch->written |= 1u << at;
	atomic_store_explicit(&fifo->regs[at], value, memory_order_relaxed);
	if (at != dwords(fifo) - 1)
		return false;
	for (uint32_t i = 0; i <= at; i++)
		entry[i] = latch->written >> i & 1
				   ? latch->dword[i]
				   : atomic_load_explicit(&fifo->regs[i], memory_order_relaxed);
	latch->written = 0;
	return true;
}

/* The registers that a store reaches; true where it completed an entry, one at most. */
static bool hbl_fifo_write_registers(struct vb_hbl_fifo *fifo, uint32_t offset, const void *data,
				     uint32_t size, uint32_t entry[4])
{
	struct latch *latch = latch_of(fifo);
	bool complete = false;

	for (uint32_t done = 0; done < size; done += 4) {
		uint32_t at = (offset + done - fifo->info.regs_offset) / 4, value;

		if (offset + done < fifo->info.regs_offset || at >= dwords(fifo))
			continue;
		memcpy(&value, (const char *)data + done, sizeof(value));
		complete |= write_register(fifo, latch, at, le32toh(value), entry);
	}
	return complete;
}

void vb_hbl_fifo_store(struct vb_hbl_fifo *fifo, uint32_t offset, const void *data, uint32_t size)
{
	uint32_t entry[4] = { 0 };
	bool inside, taken;

	if (vb_hbl_stale(fifo->hbl))
		return;
	/* Registers are dwords; other stores reach none. */
	if (offset % 4 || size % 4 || !hbl_fifo_write_registers(fifo, offset, data, size, entry))
		return;
	inside = vb_card_is_inside();
	taken = hbl_fifo_store_entry(fifo, inside, entry);
	if (inside) {
		hbl_fifo_defer(fifo->hbl->card);
		return;
	}
	vb_read_lock();
	vb_burst_begin(fifo->hbl->card);
	consume(fifo, taken, entry);
	vb_burst_end();
	/*
	 * What follows from it, too; but not what follows from the work of another thread, which
	 * may be long at it.
	 */
	vb_deferred_run_own(fifo->hbl->card);
	vb_read_unlock();
}

static void hbl_fifo_on_store(void *arg, size_t offset, const void *data, size_t size)
{
	vb_hbl_fifo_store(arg, (uint32_t)offset, data, (uint32_t)size);
}

/* --- life ------------------------------------------------------------------------------------- */

/* The device's mutex held: a number for it. */
static int hbl_fifo_enter(struct vb_hbl_fifo *fifo, uint32_t hint)
{
	struct vb_hbl_port *port = fifo->port;

	if (!port->ready)
		return vb_refuse_hbl_not_set_up(port->number);
	if (fifo->type == VB_HBL_FIFO_CC && !port->attr.advanced)
		return vb_refuse_hbl_not_advanced(port->number);
	if (hint && atomic_load_explicit(&port->fifos[hint - 1], memory_order_relaxed))
		return vb_refuse_hbl_used_up("FIFO of this number", port->number);
	for (uint32_t i = hint ? hint - 1 : 0; i < VB_HBL_FIFOS; i++) {
		if (atomic_load_explicit(&port->fifos[i], memory_order_relaxed))
			continue;
		atomic_store_explicit(&port->fifos[i], fifo, memory_order_release);
		fifo->info.number = i + 1;
		fifo->info.regs_offset = i % 2 ? SECOND_OFFSET : 0;
		return 0;
	}
	return vb_refuse_hbl_used_up("FIFO", port->number);
}

/* When this returns the background thread does not look at it any more. */
static void hbl_fifo_leave(struct vb_hbl_fifo *fifo)
{
	pthread_mutex_lock(&fifo->hbl->mutex);
	atomic_store_explicit(&fifo->port->fifos[fifo->info.number - 1], NULL,
			      memory_order_release);
	pthread_mutex_unlock(&fifo->hbl->mutex);
	vb_read_wait();
}

static void unmap_ci(struct vb_hbl_fifo *fifo)
{
	if (fifo->info.ci != MAP_FAILED)
		munmap(fifo->info.ci, VB_HBL_PAGE);
	if (fifo->ci != MAP_FAILED)
		munmap(fifo->ci, VB_HBL_PAGE);
}

/*
 * The consumer index is written through a mapping of our own: what the program does to its mapping
 * cannot make the card fault.
 */
static int map_ci(struct vb_hbl_fifo *fifo)
{
	VB_NO_CANCEL;
	int fd = memfd_create("verbatim-ci", MFD_CLOEXEC), ret = 0;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, VB_HBL_PAGE)) {
		ret = -errno;
		goto close_fd;
	}
	fifo->info.ci = mmap(NULL, VB_HBL_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fifo->ci = mmap(NULL, VB_HBL_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fifo->info.ci == MAP_FAILED || fifo->ci == MAP_FAILED) {
		ret = -errno;
		unmap_ci(fifo);
		goto close_fd;
	}
	/* Reserve the page: a store must not be what finds memory short. */
	atomic_store_explicit(fifo->ci, 0, memory_order_relaxed);
close_fd:
	close(fd);
	return ret;
}

static void set_sizes(struct vb_hbl_fifo *fifo)
{
	bool g3 = fifo->hbl->generation == VB_GAUDI3;

	fifo->info.size = g3 ? G3_SIZE : G2_SIZE;
	fifo->info.bp_thresh = g3 ? G3_BP : G2_BP;
	fifo->capacity = (g3 ? G3_SIZE * 4u : G2_SIZE) / 4 / dwords(fifo);
}

int vb_hbl_fifo_create(struct vb_hbl *hbl, uint32_t number, enum vb_hbl_fifo_type type,
		       uint32_t hint, struct vb_hbl_fifo **out)
{
	struct vb_hbl_port *port = vb_hbl_port(hbl, number);
	struct vb_hbl_fifo *fifo = NULL;
	int ret;

	if (!port)
		return vb_refuse_hbl_port(number);
	if (hint > VB_HBL_FIFOS || (type != VB_HBL_FIFO_DB && type != VB_HBL_FIFO_CC))
		return vb_refuse_range("usr_fifo_num_hint", hint, 0, VB_HBL_FIFOS);
	ret = vb_hbl_inject_create(hbl, VB_INJECT_ANY);
	if (ret)
		return ret;
	if (posix_memalign((void **)&fifo, _Alignof(struct vb_hbl_fifo), sizeof(*fifo)))
		return -ENOMEM;
	memset(fifo, 0, offsetof(struct vb_hbl_fifo, slot));
	fifo->hbl = hbl;
	fifo->port = port;
	fifo->type = type;
	fifo->serial = 1 + atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed);
	set_sizes(fifo);
	pthread_mutex_lock(&hbl->mutex);
	ret = hbl_fifo_enter(fifo, hint);
	pthread_mutex_unlock(&hbl->mutex);
	if (ret)
		goto free_fifo;
	ret = map_ci(fifo);
	if (ret)
		goto leave;
	fifo->info.regs = vb_trap_map(VB_HBL_PAGE, hbl_fifo_on_store, fifo);
	if (!fifo->info.regs) {
		ret = -errno;
		goto unmap_ci;
	}
	*out = fifo;
	return 0;

unmap_ci:
	unmap_ci(fifo);
leave:
	hbl_fifo_leave(fifo);
free_fifo:
	free(fifo);
	return ret;
}

void vb_hbl_fifo_query(const struct vb_hbl_fifo *fifo, struct vb_hbl_fifo_info *info)
{
	*info = fifo->info;
}

void vb_hbl_fifo_destroy(struct vb_hbl_fifo *fifo)
{
	if (vb_hbl_stale(fifo->hbl))
		return; /* a forked child: it is the parent's */
	/*
	 * Waits for stores that are being carried out; after them only those of signal handlers may
	 * be left.
	 */
	vb_trap_unmap(fifo->info.regs);
	hbl_fifo_leave(fifo);
	vb_read_lock();
	vb_burst_begin(fifo->hbl->card);
	consume_all(fifo);
	vb_burst_end();
	vb_read_unlock();
	unmap_ci(fifo);
	free(fifo);
}
