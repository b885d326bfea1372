// SPDX-License-Identifier: MIT
/*
 * A virtio block device on the accelerator. A doorbell of the driver wakes the handler, which takes requests from the
 * driver's memory through a window, works on the disk in device memory, and answers with an interrupt.
 *
 * The driver is another program, and what it writes is not trusted: every address is checked before it is used, a chain
 * is never followed further than it can be long, and what is checked was copied first.
 */
#include <dpaintrin.h>
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>
#include <libflexio-dev/flexio_dev_queue_access.h>
#include <stddef.h>
#include <string.h>

#include "shared.h"

/* Requests before others get their turn; and pieces of one, all that a queue could have. */
enum { BUDGET = 64, MAX_PIECES = MAX_QUEUE };

struct piece {
	uint64_t addr;
	uint32_t len;
};

/* A chain of descriptors: what the device reads, then what it writes. */
struct chain {
	struct piece read[MAX_PIECES], write[MAX_PIECES];
	uint32_t reads, writes;
	uint64_t read_bytes, write_bytes;
};

static char *guest; /* its memory, through the window */

static int in_memory(uint64_t addr, uint64_t len)
{
	return addr <= MEMORY_SIZE && len <= MEMORY_SIZE - addr;
}

/* ---- chains ---- */

/* 0, or -1 where the chain cannot be what a driver means; what was collected of it is right all the same. */
static int collect(const struct device *d, uint16_t head, struct chain *c)
{
	uint16_t index = head;

	c->reads = c->writes = 0;
	c->read_bytes = c->write_bytes = 0;
	for (uint32_t n = 0; n < d->size; n++) {
		struct virtq_desc desc;
		struct piece *piece;

		if (index >= d->size)
			return -1;
		memcpy(&desc, guest + d->desc + index * sizeof(desc), sizeof(desc));
		if (desc.flags & ~(DESC_NEXT | DESC_WRITE) || !in_memory(desc.addr, desc.len))
			return -1;
		if (desc.flags & DESC_WRITE) {
			piece = &c->write[c->writes++];
			c->write_bytes += desc.len;
		} else if (c->writes) {
			return -1; /* what is read comes first */
		} else {
			piece = &c->read[c->reads++];
			c->read_bytes += desc.len;
		}
		*piece = (struct piece){ desc.addr, desc.len };
		if (!(desc.flags & DESC_NEXT))
			return 0;
		index = desc.next;
	}
	return -1; /* a circle */
}

/* Bytes [from, from + len) of pieces, to or from the device's memory. The caller has checked that they exist. */
static void copy(const struct piece *pieces, uint64_t from, char *memory, uint64_t len,
		 int to_guest)
{
	for (; len; pieces++) {
		uint64_t n = pieces->len > from ? pieces->len - from : 0;

		n = n < len ? n : len;
		if (to_guest)
			memcpy(guest + pieces->addr + from, memory, n);
		else
			memcpy(memory, guest + pieces->addr + from, n);
		memory += n;
		len -= n;
		from = n ? 0 : from - pieces->len;
	}
}

/* ---- requests ---- */

static int on_disk(uint64_t sector, uint64_t bytes)
{
	return bytes % SECTOR == 0 && sector <= SECTORS && bytes / SECTOR <= SECTORS - sector;
}

/* The status; *written: bytes of data that the driver finds. */
static uint8_t execute(const struct device *d, const struct chain *c, uint64_t *written)
{
	static char id[ID_BYTES] = "verbatim block disk";
	uint64_t out = c->read_bytes - sizeof(struct blk_header), in = c->write_bytes - 1;
	struct blk_header header;

	copy(c->read, 0, (char *)&header, sizeof(header), 0);
	switch (header.type) {
	case BLK_IN:
		if (!on_disk(header.sector, in))
			return BLK_IOERR;
		copy(c->write, 0, (char *)d->disk + header.sector * SECTOR, in, 1);
		*written = in;
		return BLK_OK;
	case BLK_OUT:
		if (!on_disk(header.sector, out))
			return BLK_IOERR;
		copy(c->read, sizeof(header), (char *)d->disk + header.sector * SECTOR, out, 0);
		return BLK_OK;
	case BLK_FLUSH:
		return BLK_OK; /* the disk is memory */
	case BLK_GET_ID:
		*written = in < ID_BYTES ? in : ID_BYTES;
		copy(c->write, 0, id, *written, 1);
		return BLK_OK;
	default:
		return BLK_UNSUPP;
	}
}

/* Bytes written to the driver's memory. */
static uint32_t answer(struct device *d, uint16_t head)
{
	static struct chain c; /* one handler, one chain at a time */
	uint64_t written = 0;
	uint8_t status = BLK_IOERR;
	int bad = collect(d, head, &c);

	if (!c.write_bytes) { /* there is no place for a status */
		d->errors++;
		return 0;
	}
	if (!bad && c.read_bytes >= sizeof(struct blk_header))
		status = execute(d, &c, &written);
	d->errors += status != BLK_OK;
	copy(c.write, c.write_bytes - 1, (char *)&status, 1, 1);
	return (uint32_t)written + 1;
}

/* ---- the queue ---- */

static uint16_t load16(uint64_t addr)
{
	return *(volatile uint16_t *)(guest + addr);
}

/* The driver has broken the rules, and must begin anew. */
static void fail(struct device *d)
{
	d->size = 0;
	d->status |= STATUS_NEEDS_RESET;
}

/* How many requests were answered. */
static uint32_t serve_queue(struct device *d)
{
	uint32_t done = 0;
	uint16_t avail = load16(d->avail + 2);

	if ((uint16_t)(avail - d->next_avail) > d->size)
		fail(d);
	__dpa_thread_window_read_inv(); /* the entries behind the index, not from before it */
	for (; d->size && d->next_avail != avail && done < BUDGET; done++) {
		uint32_t mask = d->size - 1;
		uint16_t head = load16(d->avail + 4 + 2 * (d->next_avail++ & mask));
		struct virtq_used_elem elem = { head, 0 };

		if (head >= d->size) {
			fail(d);
			break;
		}
		elem.len = answer(d, head);
		memcpy(guest + d->used + 4 + sizeof(elem) * (d->next_used++ & mask), &elem,
		       sizeof(elem));
		__dpa_thread_window_writeback(); /* the answer before its index */
		*(volatile uint16_t *)(guest + d->used + 2) = d->next_used;
	}
	d->requests += done;
	return done;
}

static void take_queue(struct device *d, const struct registers *r)
{
	uint32_t size = r->queue_size;

	d->size = 0;
	d->next_avail = d->next_used = 0;
	if (!size || size > MAX_QUEUE || (size & (size - 1)) || r->desc % 16 || r->avail % 2 ||
	    r->used % 4 || !in_memory(r->desc, 16 * size) || !in_memory(r->avail, 6 + 2 * size) ||
	    !in_memory(r->used, 6 + 8 * size)) {
		fail(d);
		return;
	}
	d->desc = r->desc;
	d->avail = r->avail;
	d->used = r->used;
	d->size = size;
}

/* Whether the driver has written a new status. */
static int look_at_registers(struct device *d)
{
	struct registers r;

	memcpy(&r, guest, sizeof(r));
	if (r.driver_status == (d->status & ~(uint32_t)STATUS_NEEDS_RESET))
		return 0;
	d->status = r.driver_status & STATUS_RUNNING;
	if (d->status & STATUS_DRIVER_OK)
		take_queue(d, &r);
	else
		d->size = 0;
	return 1;
}

/* ---- events ---- */

static void drain(struct device *d)
{
	struct flexio_dev_cqe64 *ring = (struct flexio_dev_cqe64 *)d->cq_ring;

	while (flexio_dev_cqe_get_owner(&ring[d->cq_ci & ((1u << d->log_cq) - 1)]) ==
	       (d->cq_ci >> d->log_cq & 1))
		d->cq_ci++;
	flexio_dev_dbr_cq_set_ci((uint32_t *)d->cq_dbr, d->cq_ci);
}

__dpa_global__ void on_doorbell(uint64_t arg)
{
	struct device *d = (struct device *)arg;
	uint32_t was = d->status, done = 0, changed;
	flexio_uintptr_t at;

	if (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, (uint16_t)d->window_id, d->mkey) ||
	    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, d->memory, &at))
		flexio_dev_error(0x80);
	guest = (char *)at;
	drain(d);
	/* Armed before the look: what the driver publishes behind it rings again. */
	flexio_dev_db_ctx_arm(d->cqn, d->emu_id);
	flexio_dev_cq_arm(d->cq_ci, d->cqn);
	__dpa_thread_window_read_inv();
	changed = look_at_registers(d);
	if (d->size)
		done = serve_queue(d);
	if (changed || d->status != was) {
		*(volatile uint32_t *)(guest + offsetof(struct registers, device_status)) =
			d->status;
		__dpa_thread_window_writeback();
	}
	if (changed || d->status != was || (done && !(load16(d->avail) & AVAIL_NO_INTERRUPT)))
		flexio_dev_msix_send(d->msix_cqn);
	if (done == BUDGET) /* there may be more: come back as if the driver had rung */
		flexio_dev_db_ctx_force_trigger(d->cqn, d->emu_id);
	flexio_dev_thread_reschedule();
}

/* The first arming, before there was a doorbell. */
__dpa_rpc__ uint64_t start(uint64_t arg)
{
	const struct device *d = (const struct device *)arg;

	flexio_dev_db_ctx_arm(d->cqn, d->emu_id);
	return 0;
}
