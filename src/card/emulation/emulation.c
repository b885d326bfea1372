// SPDX-License-Identifier: MIT
/*
 * Owns the device side of emulated functions: which there are, maps from a driver's doorbells to
 * CQs, and event queues that raise interrupts.
 *
 * A map is armed by device code, one doorbell at a time:
 *
 *	            rung: CQE
 *	armed ------------------> not armed        a doorbell meanwhile is noted, several count once
 *	  ^                           |
 *	  +------- arm, not rung -----+            arm, rung: CQE at once, stays not armed
 *
 * Whether a doorbell is noted is a bit that the driver sets and only we clear. Whether the map is
 * armed is ours alone, under its lock, so that a driver that writes nonsense makes no more CQEs than
 * device code has asked for; the driver sees a copy, to know whether anybody is to be woken. Both
 * sides write their bit and then read the other's, sequentially consistent, so that one of the two
 * sees the other.
 */
#include "card/emulation/emulated.h"

#include <errno.h>
#include <stdlib.h>

#include "base/time.h"
#include "base/rcu.h"
#include "card/device.h"
#include "card/queue/cq.h"
#include "card/queue/objects.h"

enum { FIRST_ID = 0x100, RETRY_NS = 10000000 };

/* CQEs of one arming: doorbells that are noted while a map is not armed wait in the page. */
struct vb_emu_map {
	struct vb_dev *dev;
	struct vb_function *function;
	struct vb_cq *cq; /* held */
	uint32_t queue, id;
	struct vb_lock lock;
	bool armed; /* under the lock */
};

struct vb_emu_eq {
	struct vb_dev *dev;
	struct vb_function *function;
	uint32_t number, vector;
	_Atomic uint32_t users; /* CQs */
};

/* --- which there are -------------------------------------------------------------------------- */

bool vb_function_info(const struct vb_adapter *adapter, unsigned int n,
		      struct vb_function_info *info)
{
	const struct vb_config_adapter *config = adapter->config;

	if (n >= config->functions)
		return false;
	*info = (struct vb_function_info){
		.adapter = adapter,
		.number = n,
		.vhca_id = FIRST_ID + adapter->index * VB_FUNCTIONS + n,
		.queues = config->function_queues,
		.vectors = config->function_vectors,
	};
	return true;
}

bool vb_function_by_id(struct vb_card *card, uint32_t vhca_id, struct vb_function_info *info)
{
	struct vb_adapter *const *list;
	unsigned int count, index = (vhca_id - FIRST_ID) / VB_FUNCTIONS;

	return vhca_id >= FIRST_ID && !vb_card_adapters(card, &list, &count) && index < count &&
	       vb_function_info(list[index], vhca_id % VB_FUNCTIONS, info);
}

/* With the lock. */
static struct vb_function *emulation_find(struct vb_card *card, uint32_t vhca_id)
{
	struct vb_function *f = atomic_load_explicit(&card->emulation.first, memory_order_relaxed);

	while (f && f->info.vhca_id != vhca_id)
		f = atomic_load_explicit(&f->next, memory_order_relaxed);
	return f;
}

/* With the lock; its first use. */
static int emulation_make(const struct vb_function_info *info, struct vb_function **out)
{
	struct vb_card *card = info->adapter->card;
	struct vb_function *function = calloc(1, sizeof(*function));
	int ret;

	if (!function)
		return vb_refuse_memory("the emulated function");
	function->info = *info;
	ret = vb_function_map_page(card->fabric, info->adapter->config->name, info->number,
				   &function->page);
	if (ret) {
		free(function);
		return ret;
	}
	function->users = 1;
	atomic_init(&function->next,
		    atomic_load_explicit(&card->emulation.first, memory_order_relaxed));
	atomic_store_explicit(&card->emulation.first, function, memory_order_release);
	*out = function;
	return 0;
}

int vb_function_get(struct vb_card *card, uint32_t vhca_id, struct vb_function **out)
{
	struct vb_function_info info;
	struct vb_function *function;
	int ret = 0;

	if (!vb_function_by_id(card, vhca_id, &info))
		return vb_refuse_no_function(vhca_id);
	pthread_mutex_lock(&card->emulation.lock);
	function = emulation_find(card, vhca_id);
	if (function)
		function->users++;
	else
		ret = emulation_make(&info, &function);
	pthread_mutex_unlock(&card->emulation.lock);
	if (!ret)
		*out = function;
	return ret;
}

void vb_function_put(struct vb_function *function)
{
	struct vb_card *card = function->info.adapter->card;
	_Atomic(struct vb_function *) *link = &card->emulation.first;
	struct vb_function *at;
	bool last;

	pthread_mutex_lock(&card->emulation.lock);
	last = !--function->users;
	if (last) {
		while ((at = atomic_load_explicit(link, memory_order_relaxed)) != function)
			link = &at->next;
		atomic_store_explicit(link,
				      atomic_load_explicit(&function->next, memory_order_relaxed),
				      memory_order_release);
	}
	pthread_mutex_unlock(&card->emulation.lock);
	if (!last)
		return;
	vb_read_wait();
	vb_function_unmap_page(function->page);
	free(function);
}

/* A process could not be told: the background thread tries again, because nobody else might ever. */
static void retry_later(struct vb_card *card)
{
	atomic_store_explicit(&card->emulation.retry, vb_now_ns() + RETRY_NS, memory_order_release);
	vb_fabric_kick(card->fabric);
}

/* --- maps ------------------------------------------------------------------------------------- */

void vb_emu_map_look(struct vb_emu_map *map)
{
	struct vb_function_page *page = map->function->page;
	uint64_t bit = vb_bit(map->queue);
	struct vb_completion zero = { .status = IBV_WC_SUCCESS };
	bool due;

	vb_lock(&map->lock);
	due = map->armed && (atomic_fetch_and_explicit(vb_bit_word(page->rung, map->queue), ~bit,
						       memory_order_seq_cst) &
			     bit);
	if (due) {
		map->armed = false;
		atomic_fetch_and_explicit(vb_bit_word(page->armed, map->queue), ~bit,
					  memory_order_relaxed);
	}
	vb_unlock(&map->lock);
	if (due) {
		vb_burst_begin(vb_dev_card(map->dev));
		vb_cq_push(map->cq, &zero);
		vb_burst_end();
	}
}

void vb_function_rung(struct vb_function *function, uint32_t queue)
{
	uint64_t server =
		atomic_load_explicit(&function->page->server[queue], memory_order_acquire);
	struct vb_emu_map *map = atomic_load_explicit(&function->map[queue], memory_order_acquire);
	struct vb_card *card = function->info.adapter->card;

	if (map)
		vb_emu_map_look(map);
	else if (server != vb_function_self(card->fabric) && /* it has no such map any more */
		 !vb_function_wake(card->fabric, server))
		retry_later(card); /* and finds the queue rung and armed */
}

static int emulation_publish(struct vb_emu_map *map)
{
	struct vb_card *card = vb_dev_card(map->dev);
	int64_t id = vb_ids_take(&card->numbers.emu_map, VB_EMU_MAPS);

	if (id < 0)
		return vb_refuse_numbers(VB_EMU_MAPS, "maps of emulated doorbells");
	map->id = (uint32_t)id;
	atomic_store_explicit(&map->function->map[map->queue], map, memory_order_release);
	atomic_store_explicit(&card->tables.emu_map[id], map, memory_order_release);
	atomic_fetch_add_explicit(&map->dev->objects, 1, memory_order_release);
	return 0;
}

/* Of a map whose function is known. */
static int emulation_claim(struct vb_emu_map *map, uint32_t cqn)
{
	struct vb_function *function = map->function;
	struct vb_function_page *page = function->page;
	int ret;

	if (function->info.adapter != map->dev->adapter)
		return vb_refuse_no_function(function->info.vhca_id);
	if (map->queue >= function->info.queues)
		return vb_refuse_range("queue_id", map->queue, 0, function->info.queues - 1);
	map->cq = vb_cq_get(map->dev, cqn);
	if (!map->cq)
		return vb_refuse_value("cqn", cqn);
	if (vb_function_claim(vb_dev_card(map->dev)->fabric, &page->server[map->queue])) {
		ret = vb_refuse_busy("another map of this queue");
		goto put_cq;
	}
	/* What an earlier server left. Doorbells that it did not take are for this one. */
	atomic_fetch_and_explicit(vb_bit_word(page->armed, map->queue), ~vb_bit(map->queue),
				  memory_order_relaxed);
	ret = emulation_publish(map);
	if (!ret)
		return 0;
	vb_function_release(vb_dev_card(map->dev)->fabric, &page->server[map->queue]);
put_cq:
	vb_cq_put(map->cq);
	return ret;
}

int vb_emu_map(struct vb_dev *dev, uint32_t vhca_id, uint32_t queue, uint32_t cqn,
	       struct vb_emu_map **out)
{
	struct vb_emu_map *map;
	int ret;

	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	map = calloc(1, sizeof(*map));
	if (!map)
		return vb_refuse_memory("the map");
	map->dev = dev;
	map->queue = queue;
	ret = vb_function_get(vb_dev_card(dev), vhca_id, &map->function);
	if (ret)
		goto free_map;
	ret = emulation_claim(map, cqn);
	if (ret)
		goto put_function;
	vb_fabric_unpolled(
		vb_dev_card(dev)
			->fabric); /* the background thread takes doorbells of other processes */
	*out = map;
	return 0;

put_function:
	vb_function_put(map->function);
free_map:
	free(map);
	return ret;
}

void vb_emu_unmap(struct vb_emu_map *map)
{
	struct vb_card *card = vb_dev_card(map->dev);
	struct vb_function *function = map->function;

	if (!vb_dev_stale(map->dev)) {
		atomic_store_explicit(&card->tables.emu_map[map->id], NULL, memory_order_release);
		atomic_store_explicit(&function->map[map->queue], NULL, memory_order_release);
		vb_read_wait(); /* no doorbell of either side is under way */
		atomic_fetch_and_explicit(vb_bit_word(function->page->armed, map->queue),
					  ~vb_bit(map->queue), memory_order_relaxed);
		vb_function_release(card->fabric, &function->page->server[map->queue]);
		vb_ids_give(&card->numbers.emu_map, map->id);
		vb_function_put(function);
	}
	vb_cq_put(map->cq);
	atomic_fetch_sub_explicit(&map->dev->objects, 1, memory_order_release);
	free(map);
}

uint32_t vb_emu_map_id(const struct vb_emu_map *map)
{
	return map->id;
}

void vb_emu_map_query(const struct vb_emu_map *map, uint32_t *vhca_id, uint32_t *queue,
		      uint32_t *cqn)
{
	*vhca_id = map->function->info.vhca_id;
	*queue = map->queue;
	*cqn = vb_cq_number(map->cq);
}

/* --- doorbells of device code ----------------------------------------------------------------- */

/* Inside a read section. */
static struct vb_emu_map *find_map(struct vb_card *card, uint64_t owner, uint32_t id)
{
	struct vb_emu_map *map = id <= VB_EMU_MAPS ? atomic_load_explicit(&card->tables.emu_map[id],
									  memory_order_acquire)
						   : NULL;

	return map && owner && map->cq->attr.owner == owner && !vb_dev_stale(map->dev) ? map : NULL;
}

static void emulation_arm(struct vb_emu_map *map)
{
	vb_lock(&map->lock);
	map->armed = true;
	/* Pairs with the driver, which sets its bit first. */
	atomic_fetch_or_explicit(vb_bit_word(map->function->page->armed, map->queue),
				 vb_bit(map->queue), memory_order_seq_cst);
	vb_unlock(&map->lock);
	vb_emu_map_look(map);
}

static void emulation_trigger(struct vb_emu_map *map)
{
	atomic_fetch_or_explicit(vb_bit_word(map->function->page->rung, map->queue),
				 vb_bit(map->queue), memory_order_seq_cst);
	vb_emu_map_look(map);
}

static int emulation_ring(struct vb_card *card, uint64_t owner, uint32_t cqn, uint32_t id,
			  void (*what)(struct vb_emu_map *map))
{
	struct vb_emu_map *map;

	vb_read_lock();
	map = find_map(card, owner, id);
	if (map && vb_cq_number(map->cq) != cqn)
		map = NULL;
	if (map)
		what(map);
	vb_read_unlock();
	return map ? 0 : -ENOENT;
}

int vb_doorbell_emu_arm(struct vb_card *card, uint64_t owner, uint32_t cqn, uint32_t id)
{
	return emulation_ring(card, owner, cqn, id, emulation_arm);
}

int vb_doorbell_emu_trigger(struct vb_card *card, uint64_t owner, uint32_t cqn, uint32_t id)
{
	return emulation_ring(card, owner, cqn, id, emulation_trigger);
}

int vb_doorbell_emu_value(struct vb_card *card, uint64_t owner, uint32_t id, uint32_t *value)
{
	struct vb_emu_map *map;

	vb_read_lock();
	map = find_map(card, owner, id);
	if (map)
		*value = atomic_load_explicit(&map->function->page->value[map->queue],
					      memory_order_acquire);
	vb_read_unlock();
	return map ? 0 : -ENOENT;
}

/* --- event queues ----------------------------------------------------------------------------- */

int vb_emu_eq_create(struct vb_dev *dev, uint32_t vhca_id, uint32_t vector, struct vb_emu_eq **out)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_function *function;
	struct vb_emu_eq *eq;
	int64_t number = -1;
	int ret;

	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	ret = vb_function_get(vb_dev_card(dev), vhca_id, &function);
	if (ret)
		return ret;
	eq = calloc(1, sizeof(*eq));
	if (function->info.adapter != dev->adapter)
		ret = vb_refuse_no_function(vhca_id);
	else if (vector >= function->info.vectors)
		ret = vb_refuse_range("intr", vector, 0, function->info.vectors - 1);
	else if (!eq)
		ret = vb_refuse_memory("the event queue");
	else if ((number = vb_ids_take(&card->numbers.emu_eq, VB_EMU_EQS)) < 0)
		ret = vb_refuse_numbers(VB_EMU_EQS, "emulated event queues");
	if (ret) {
		free(eq);
		vb_function_put(function);
		return ret;
	}
	*eq = (struct vb_emu_eq){
		.dev = dev, .function = function, .number = (uint32_t)number, .vector = vector
	};
	atomic_store_explicit(&card->tables.emu_eq[number], eq, memory_order_release);
	atomic_fetch_add_explicit(&dev->objects, 1, memory_order_release);
	*out = eq;
	return 0;
}

int vb_emu_eq_destroy(struct vb_emu_eq *eq)
{
	struct vb_card *card = vb_dev_card(eq->dev);

	if (vb_dev_stale(eq->dev)) {
		if (atomic_load_explicit(&eq->users, memory_order_acquire))
			return vb_refuse_busy("completion queues");
		free(eq);
		return 0;
	}
	/* Who has found it is counted when the wait ends. */
	atomic_store_explicit(&card->tables.emu_eq[eq->number], NULL, memory_order_release);
	vb_read_wait();
	if (atomic_load_explicit(&eq->users, memory_order_acquire)) {
		atomic_store_explicit(&card->tables.emu_eq[eq->number], eq, memory_order_release);
		return vb_refuse_busy("completion queues");
	}
	vb_ids_give(&card->numbers.emu_eq, eq->number);
	atomic_fetch_sub_explicit(&eq->dev->objects, 1, memory_order_release);
	vb_function_put(eq->function);
	free(eq);
	return 0;
}

uint32_t vb_emu_eq_number(const struct vb_emu_eq *eq)
{
	return eq->number;
}

void vb_emu_eq_query(const struct vb_emu_eq *eq, uint32_t *vhca_id, uint32_t *vector)
{
	*vhca_id = eq->function->info.vhca_id;
	*vector = eq->vector;
}

struct vb_emu_eq *vb_emu_eq_get(const struct vb_adapter *adapter, uint32_t number)
{
	struct vb_card *card = adapter->card;
	struct vb_emu_eq *eq;

	vb_read_lock();
	eq = number <= VB_EMU_EQS
		     ? atomic_load_explicit(&card->tables.emu_eq[number], memory_order_acquire)
		     : NULL;
	if (eq && eq->dev->adapter == adapter && !vb_dev_stale(eq->dev))
		atomic_fetch_add_explicit(&eq->users, 1, memory_order_release);
	else
		eq = NULL;
	vb_read_unlock();
	return eq;
}

void vb_emu_eq_put(struct vb_emu_eq *eq)
{
	atomic_fetch_sub_explicit(&eq->users, 1, memory_order_release);
}

/* Of what is raised; inside a read section. */
static void tell_driver(struct vb_function *function)
{
	if (atomic_load_explicit(&function->driver, memory_order_acquire))
		vb_emu_driver_look(function);
	else if (!vb_function_wake(
			 function->info.adapter->card->fabric,
			 atomic_load_explicit(&function->page->driver, memory_order_acquire))) {
		atomic_store_explicit(&function->missed, true, memory_order_release);
		retry_later(function->info.adapter->card);
	}
}

void vb_emu_eq_raise(struct vb_emu_eq *eq)
{
	struct vb_function *function = eq->function;

	vb_read_lock();
	atomic_fetch_or_explicit(vb_bit_word(function->page->raised, eq->vector),
				 vb_bit(eq->vector), memory_order_seq_cst);
	tell_driver(function);
	vb_read_unlock();
}

/* --- other processes -------------------------------------------------------------------------- */

/* Doorbells that somebody waits for: here, or, where a driver of ours has put them off, elsewhere. */
static void look_at_queues(struct vb_function *function)
{
	struct vb_function_page *page = function->page;
	bool driver = atomic_load_explicit(&function->driver, memory_order_acquire);

	for (uint32_t w = 0; w < VB_FUNCTION_QUEUE_WORDS; w++) {
		uint64_t bits = atomic_load_explicit(&page->rung[w], memory_order_acquire) &
				atomic_load_explicit(&page->armed[w], memory_order_relaxed);

		for (; bits; bits &= bits - 1) {
			uint32_t queue = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (driver ||
			    atomic_load_explicit(&function->map[queue], memory_order_relaxed))
				vb_function_rung(function, queue);
		}
	}
}

/* Whether somebody who could not be told is to be tried again; answers once. */
static bool is_retry_due(struct vb_card *card)
{
	uint64_t when = atomic_load_explicit(&card->emulation.retry, memory_order_relaxed);

	return __builtin_expect(when != 0, 0) && vb_now_ns() >= when &&
	       atomic_compare_exchange_strong_explicit(&card->emulation.retry, &when, 0,
						       memory_order_acquire, memory_order_relaxed);
}

uint64_t vb_emulation_next(struct vb_card *card)
{
	uint64_t when = atomic_load_explicit(&card->emulation.retry, memory_order_acquire);

	return when ? when : UINT64_MAX;
}

void vb_emulation_run(struct vb_card *card)
{
	struct vb_function *function;
	bool retry = is_retry_due(card);

	if (!vb_function_was_told(card->fabric) && !retry)
		return;
	for (function = atomic_load_explicit(&card->emulation.first, memory_order_acquire);
	     function; function = atomic_load_explicit(&function->next, memory_order_acquire)) {
		look_at_queues(function);
		vb_emu_driver_look(function);
		if (retry &&
		    atomic_exchange_explicit(&function->missed, false, memory_order_acq_rel))
			tell_driver(function);
	}
}

/* The pages were not inherited. */
void vb_emulation_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->emulation.lock, NULL);
	atomic_store_explicit(&card->emulation.first, NULL, memory_order_relaxed);
	atomic_store_explicit(&card->emulation.retry, 0, memory_order_relaxed);
}
