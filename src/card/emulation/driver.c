// SPDX-License-Identifier: MIT
/*
 * Owns the driver side of emulated functions: the doorbell page, to which a program stores, and the
 * descriptors by which it hears of interrupts.
 *
 *	page + 4 q:  stores become value[q], rung[q] and, where the map is armed, a wake-up
 *	raised[v] -> eventfd of v; without one the bit waits
 */
#include "card/emulation/emulated.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/file.h"
#include "base/rcu.h"
#include "card/device.h"
#include "card/sink.h"
#include "host/trap/trap.h"

enum { DOORBELL = 4 };

struct vb_emu_driver {
	struct vb_dev *dev;
	struct vb_function *function;
	void *page; /* NULL: this machine cannot trap stores */
	/* Written once each, under the lock, then published by its bit. */
	struct vb_file event[VB_FUNCTION_VECTORS];
	_Atomic uint64_t has_event[VB_FUNCTION_VECTOR_WORDS];
	struct vb_lock lock;
};

/* --- doorbells -------------------------------------------------------------------------------- */

/* Only atomic instructions and system calls where the thread is in the card: see doorbell_page.c. */
static void driver_ring(struct vb_emu_driver *driver, uint32_t queue, uint32_t value)
{
	struct vb_function_page *page = driver->function->page;

	atomic_store_explicit(&page->value[queue], value, memory_order_relaxed);
	/* Pairs with the device side, which says that it is armed first: see emulation.c. */
	atomic_fetch_or_explicit(vb_bit_word(page->rung, queue), vb_bit(queue),
				 memory_order_seq_cst);
	if (!(atomic_load_explicit(vb_bit_word(page->armed, queue), memory_order_seq_cst) &
	      vb_bit(queue)))
		return;
	if (vb_card_is_inside()) {
		struct vb_fabric *fabric = vb_dev_card(driver->dev)->fabric;

		vb_function_wake(fabric, vb_function_self(fabric));
		return;
	}
	vb_read_lock();
	vb_function_rung(driver->function, queue);
	vb_read_unlock();
}

static void driver_on_store(void *arg, size_t offset, const void *data, size_t size)
{
	struct vb_emu_driver *driver = arg;
	size_t end = offset + size;

	if (vb_dev_stale(driver->dev))
		return;
	for (size_t at = offset & ~(size_t)(DOORBELL - 1); at < end; at += DOORBELL) {
		size_t from = at > offset ? at : offset,
		       to = at + DOORBELL < end ? at + DOORBELL : end;
		uint32_t queue = (uint32_t)(at / DOORBELL), value = 0;

		memcpy((char *)&value + (from - at), (const char *)data + (from - offset),
		       to - from);
		if (queue < driver->function->info.queues)
			driver_ring(driver, queue, le32toh(value));
	}
}

int vb_emu_driver_ring(struct vb_emu_driver *driver, uint32_t queue, uint32_t value)
{
	if (vb_dev_stale(driver->dev))
		return vb_refuse_forked();
	if (queue >= driver->function->info.queues)
		return vb_refuse_range("queue", queue, 0, driver->function->info.queues - 1);
	driver_ring(driver, queue, value);
	return 0;
}

/* --- interrupts ------------------------------------------------------------------------------- */

static void driver_notify(struct vb_emu_driver *driver, uint32_t vector)
{
	const struct vb_file *file = &driver->event[vector];
	uint64_t one = 1;
	VB_NO_CANCEL;

	/* A counter at its limit refuses more, and is readable all the same. */
	if (vb_file_is_open(file) && vb_sys_write(file->fd, &one, sizeof(one)) < 0)
		return;
}

void vb_emu_driver_look(struct vb_function *function)
{
	struct vb_emu_driver *driver =
		atomic_load_explicit(&function->driver, memory_order_acquire);
	struct vb_function_page *page = function->page;

	for (uint32_t w = 0; driver && w < VB_FUNCTION_VECTOR_WORDS; w++) {
		uint64_t mine = atomic_load_explicit(&driver->has_event[w], memory_order_acquire),
			 bits = atomic_load_explicit(&page->raised[w], memory_order_acquire) & mine;

		if (bits)
			bits &= atomic_fetch_and_explicit(&page->raised[w], ~bits,
							  memory_order_seq_cst);
		for (; bits; bits &= bits - 1)
			driver_notify(driver, w * 64 + (uint32_t)__builtin_ctzll(bits));
	}
}

/* With the lock. */
static int make_event(struct vb_emu_driver *driver, uint32_t vector)
{
	_Atomic uint64_t *word = vb_bit_word(driver->has_event, vector);
	int fd, ret;

	if (atomic_load_explicit(word, memory_order_relaxed) & vb_bit(vector))
		return 0;
	fd = vb_file_above_stdio(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	ret = fd < 0 ? -errno : vb_file_keep(&driver->event[vector], fd);
	if (!ret)
		atomic_fetch_or_explicit(word, vb_bit(vector), memory_order_release);
	return ret;
}

int vb_emu_driver_eventfd(struct vb_emu_driver *driver, uint32_t vector)
{
	int ret;

	if (vb_dev_stale(driver->dev))
		return vb_refuse_forked();
	if (vector >= driver->function->info.vectors)
		return vb_refuse_range("vector", vector, 0, driver->function->info.vectors - 1);
	vb_card_enter();
	vb_lock(&driver->lock);
	ret = make_event(driver, vector);
	vb_unlock(&driver->lock);
	vb_card_leave();
	if (ret)
		return ret;
	/* An interrupt may have come before there was anybody to tell. */
	vb_read_lock();
	vb_emu_driver_look(driver->function);
	vb_read_unlock();
	return driver->event[vector].fd;
}

/* --- the object ------------------------------------------------------------------------------- */

int vb_emu_driver_served(const struct vb_emu_driver *driver, uint32_t queue)
{
	if (vb_dev_stale(driver->dev))
		return vb_refuse_forked();
	if (queue >= driver->function->info.queues)
		return vb_refuse_range("queue", queue, 0, driver->function->info.queues - 1);
	return vb_function_alive(
		vb_dev_card(driver->dev)->fabric,
		atomic_load_explicit(&driver->function->page->server[queue], memory_order_acquire));
}

/* What an earlier driver left is not this one's. */
static void driver_reset(struct vb_function_page *page)
{
	for (uint32_t w = 0; w < VB_FUNCTION_QUEUE_WORDS; w++)
		atomic_store_explicit(&page->rung[w], 0, memory_order_seq_cst);
	for (uint32_t w = 0; w < VB_FUNCTION_VECTOR_WORDS; w++)
		atomic_store_explicit(&page->raised[w], 0, memory_order_seq_cst);
	for (uint32_t q = 0; q < VB_FUNCTION_QUEUES; q++)
		atomic_store_explicit(&page->value[q], 0, memory_order_relaxed);
}

static int map_doorbells(struct vb_emu_driver *driver)
{
	driver->page = vb_trap_map((size_t)driver->function->info.queues * DOORBELL,
				   driver_on_store, driver);
	return driver->page || errno == ENOTSUP ? 0 : -errno;
}

int vb_emu_driver_open(struct vb_card *card, uint32_t vhca_id, struct vb_emu_driver **out)
{
	struct vb_emu_driver *driver;
	struct vb_function_info info;
	struct vb_function *function;
	int ret;

	if (!vb_function_by_id(card, vhca_id, &info))
		return vb_refuse_no_function(vhca_id);
	driver = calloc(1, sizeof(*driver));
	if (!driver)
		return vb_refuse_memory("the driver");
	ret = vb_dev_open((struct vb_adapter *)info.adapter, NULL, NULL, &driver->dev);
	if (ret)
		goto free_driver;
	ret = vb_function_get(card, vhca_id, &driver->function);
	if (ret)
		goto close_dev;
	function = driver->function;
	if (vb_function_claim(card->fabric, &function->page->driver)) {
		ret = vb_refuse_busy("another driver");
		goto put_function;
	}
	driver_reset(function->page);
	ret = map_doorbells(driver);
	if (ret)
		goto release;
	vb_fabric_unpolled(
		card->fabric); /* the background thread takes interrupts of other processes */
	atomic_store_explicit(&function->driver, driver, memory_order_release);
	*out = driver;
	return 0;

release:
	vb_function_release(card->fabric, &function->page->driver);
put_function:
	vb_function_put(function);
close_dev:
	vb_dev_close(driver->dev);
free_driver:
	free(driver);
	return ret;
}

void vb_emu_driver_close(struct vb_emu_driver *driver)
{
	struct vb_function *function = driver->function;

	vb_trap_unmap(driver->page);
	if (!vb_dev_stale(driver->dev)) {
		atomic_store_explicit(&function->driver, NULL, memory_order_release);
		vb_read_wait(); /* nobody writes to the descriptors any more */
		vb_function_release(function->info.adapter->card->fabric, &function->page->driver);
		vb_function_put(function);
	}
	for (uint32_t v = 0; v < VB_FUNCTION_VECTORS; v++)
		if (atomic_load_explicit(vb_bit_word(driver->has_event, v), memory_order_relaxed) &
		    vb_bit(v))
			vb_file_close(&driver->event[v]);
	vb_dev_close(driver->dev);
	free(driver);
}

const struct vb_function_info *vb_emu_driver_info(const struct vb_emu_driver *driver)
{
	return &driver->function->info;
}

void *vb_emu_driver_page(const struct vb_emu_driver *driver)
{
	return driver->page;
}
