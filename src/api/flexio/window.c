// SPDX-License-Identifier: MIT
/*
 * Owns windows: host memory that device code sees at addresses of its own.
 *
 *	flexio_window (id, domain) <-- guest.windows[entity] -- map --> vb_mr_watch: events of the key
 *	                                                         `----> vb_dpa_window: guest memory
 *
 *	guest address = (1 + entity) << 48 | address in the memory region
 *
 * Each guest thread has two windows. Configuring one with a window object and a key maps the whole
 * region of that key for that thread, with the region's rights; nothing else is mapped there.
 * Configuring the same again changes nothing. A reregistration in the same domain changes the map:
 * what the guest does finds the old region or the new one. The map ends with the key
 * (deregistration, another domain), with the window object, with the next configuration, or with
 * the thread. It is gone before the call that ends it returns; then an access of the guest is a
 * trap or an error.
 *
 * windows.lock is held for everything that makes or ends a map but the end or change of a key.
 * Those come from the card while others may hold windows.lock and wait for them (vb_mr_unwatch), so
 * they take only the map's own lock, a leaf.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

#include "api/ibverbs/accessors.h"
#include "card/memory/mr.h"
#include "host/fault.h"

#define MAX_WINDOWS   4096
#define ADDRESS_LIMIT (1ULL << 48)
/* What is copied in one go: the end of a key waits for that. */
#define COPY_CHUNK (1U << 20)

struct flexio_window {
	struct flexio_process *process;
	struct ibv_pd *pd;
	uint32_t id;
	struct guest_window *users; /* configured with it */
};

static struct {
	pthread_mutex_t lock;
	struct flexio_window *table[MAX_WINDOWS]; /* by id; 0 is none */
	uint32_t last;                            /* id that was given out last */
} windows = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t entity_base(unsigned int entity)
{
	return (1ULL + entity) << 48;
}

/* ---- maps ---- */

static void flexio_window_key_gone(struct vb_mr_watch *watch)
{
	struct window_map *map = (struct window_map *)watch;
	struct vb_dpa_window *dpa;

	vb_lock(&map->lock);
	atomic_store_explicit(&map->live, false, memory_order_relaxed);
	dpa = map->dpa;
	map->dpa = NULL;
	vb_unlock(&map->lock);
	if (dpa)
		vb_dpa_window_destroy(dpa);
}

static bool is_mappable(const struct vb_mr_info *info)
{
	return info->length <= ADDRESS_LIMIT && info->iova <= ADDRESS_LIMIT - info->length;
}

static unsigned int rights_of(const struct vb_mr_info *info)
{
	return info->access & IBV_ACCESS_LOCAL_WRITE ? VB_DPA_READ | VB_DPA_WRITE : VB_DPA_READ;
}

/*
 * No other thread ends map->dpa meanwhile: the card makes one callback at a time, and map_end()
 * waits for it.
 */
static void flexio_window_key_changed(struct vb_mr_watch *watch, const struct vb_mr_info *info)
{
	struct window_map *map = (struct window_map *)watch;
	struct vb_dpa_window *dpa;
	int err = 0;

	vb_lock(&map->lock);
	map->info = *info;
	map->changes++;
	dpa = map->dpa;
	vb_unlock(&map->lock);
	if (dpa)
		err = vb_dpa_window_change(dpa, map->base + info->iova, info->length, info->addr,
					   rights_of(info));
	if (err || !is_mappable(info))
		flexio_window_key_gone(watch);
}

/* Under windows.lock. */
static void map_end(struct window_map *map)
{
	vb_mr_unwatch(&map->watch); /* neither function is under way any more */
	flexio_window_key_gone(&map->watch);
}

/* Let the guest see the region that the map watches. The key may die meanwhile. */
static int map_show(struct window_map *map, struct guest *guest, struct vb_dpa_thread *thread)
{
	int err = 0;

	vb_lock(&map->lock);
	if (atomic_load_explicit(&map->live, memory_order_relaxed) && map->info.length)
		err = vb_dpa_window_create(guest->process->dpa, thread, map->base + map->info.iova,
					   map->info.length, map->info.addr, rights_of(&map->info),
					   &map->dpa);
	vb_unlock(&map->lock);
	return err;
}

/* Watch a key. Nothing is mapped yet. */
static int map_begin(struct window_map *map, const struct flexio_window *window, uint32_t mkey,
		     unsigned int entity)
{
	struct vb_mr_info info;
	bool mappable;
	int err;

	*map = (struct window_map){ .watch.gone = flexio_window_key_gone,
				    .watch.changed = flexio_window_key_changed,
				    .base = entity_base(entity) };
	/* Before the watch: from there on only flexio_window_key_gone() writes it. */
	atomic_init(&map->live, true);
	err = vb_mr_watch(vb_verbs_pd(window->pd), mkey, &map->watch, &info);
	if (err)
		return err;
	vb_lock(&map->lock);
	if (!map->changes)
		map->info = info; /* a change since then is newer */
	mappable = is_mappable(&map->info);
	vb_unlock(&map->lock);
	if (mappable)
		return 0;
	map_end(map);
	return -EINVAL;
}

/* ---- windows of a guest thread, under windows.lock ---- */

static void flexio_window_detach(struct guest_window *gw)
{
	struct guest_window **link;

	if (!gw->window)
		return;
	for (link = &gw->window->users; *link != gw; link = &(*link)->next)
		;
	*link = gw->next;
	gw->window = NULL;
	map_end(&gw->maps[gw->current]);
}

static void flexio_window_attach(struct guest_window *gw, struct flexio_window *window,
				 uint32_t mkey)
{
	gw->window = window;
	gw->id = window->id;
	gw->mkey = mkey;
	gw->current ^= 1;
	gw->next = window->users;
	window->users = gw;
}

/* The new key first: one that is refused changes nothing. */
static int configure(struct guest *guest, struct vb_dpa_thread *thread, unsigned int entity,
		     struct flexio_window *window, uint32_t mkey)
{
	struct guest_window *gw = &guest->windows[entity];
	int err;

	err = map_begin(&gw->maps[gw->current ^ 1], window, mkey, entity);
	if (err)
		return err;
	flexio_window_detach(gw);
	flexio_window_attach(gw, window, mkey);
	err = map_show(&gw->maps[gw->current], guest, thread);
	if (err)
		flexio_window_detach(gw);
	return err;
}

static bool is_live(const struct guest_window *gw)
{
	return atomic_load_explicit(&gw->maps[gw->current].live, memory_order_relaxed);
}

void vb_windows_release(struct guest *guest)
{
	pthread_mutex_lock(&windows.lock);
	for (unsigned int i = 0; i < ARRAY_SIZE(guest->windows); i++)
		flexio_window_detach(&guest->windows[i]);
	pthread_mutex_unlock(&windows.lock);
}

bool vb_window_region(const struct guest *guest, unsigned int entity, struct vb_mr_info *info)
{
	struct window_map *map =
		(struct window_map *)&guest->windows[entity].maps[guest->windows[entity].current];
	bool live;

	vb_lock(&map->lock);
	live = atomic_load_explicit(&map->live, memory_order_relaxed);
	if (live)
		*info = map->info;
	vb_unlock(&map->lock);
	return live;
}

/* ---- calls of device code ---- */

static int call_config(struct guest *guest, struct vb_dpa_thread *thread, unsigned int entity,
		       uint64_t id, uint64_t mkey)
{
	struct guest_window *gw = &guest->windows[entity];
	struct flexio_window *window;
	int err = -ENOENT;

	if (likely(gw->id == id && gw->mkey == mkey && is_live(gw)))
		return 0;
	if (id >= MAX_WINDOWS || mkey > UINT32_MAX)
		return -EINVAL;
	pthread_mutex_lock(&windows.lock);
	window = windows.table[id];
	if (window && window->process == guest->process)
		err = configure(guest, thread, entity, window, (uint32_t)mkey);
	pthread_mutex_unlock(&windows.lock);
	vb_call_worked(guest, WORK_CONFIG);
	if (err)
		return err;
	if (entity)
		ctx_put(guest, secondary_window_config_id, id);
	else
		ctx_put(guest, window_config_id, id);
	return 0;
}

/* Another key for the window object that is configured. */
static int call_mkey(struct guest *guest, struct vb_dpa_thread *thread, unsigned int entity,
		     uint64_t mkey)
{
	return call_config(guest, thread, entity, guest->windows[entity].id, mkey);
}

/* Any address, like hardware: only what is mapped can be used. 0: no window. */
static uint64_t call_ptr(struct guest *guest, unsigned int entity, uint64_t haddr)
{
	if (!is_live(&guest->windows[entity]) || haddr >= ADDRESS_LIMIT)
		return 0;
	return entity_base(entity) + haddr;
}

static bool allowed(const struct vb_mr_info *info, uint64_t haddr, uint64_t len, bool write)
{
	return haddr >= info->iova && len <= info->length &&
	       haddr - info->iova <= info->length - len &&
	       (!write || info->access & IBV_ACCESS_LOCAL_WRITE);
}

struct window_copy {
	uint64_t haddr, len;
	struct vb_dpa_view device;
	bool write; /* to the host */
};

/*
 * One piece, during which the key cannot end or change. The first one is checked for all of the
 * copy and sets *changes; the others must find the same region.
 */
static int flexio_window_copy_piece(struct window_map *map, const struct window_copy *copy,
				    uint64_t done, unsigned int *changes)
{
	size_t len = copy->len - done < COPY_CHUNK ? copy->len - done : COPY_CHUNK;
	struct vb_dpa_view device = vb_view_at(copy->device, done);
	char *host;
	int err;

	vb_lock(&map->lock);
	if (!done)
		*changes = map->changes;
	if (!atomic_load_explicit(&map->live, memory_order_relaxed)) {
		err = -ENOENT;
	} else if (map->changes != *changes ||
		   !allowed(&map->info, copy->haddr, copy->len, copy->write)) {
		err = -EACCES;
	} else {
		/* Only now: an address that is not allowed is no address of the region. */
		host = (char *)map->info.addr + (copy->haddr - map->info.iova) + done;
		err = copy->write ? vb_view_read(device, host, len)
				  : vb_view_write(device, host, len);
	}
	vb_unlock(&map->lock);
	return err;
}

static int call_copy(struct guest *guest, unsigned int entity, uint64_t haddr, uint64_t daddr,
		     uint64_t len, bool write)
{
	struct guest_window *gw = &guest->windows[entity];
	struct window_map *map = &gw->maps[gw->current];
	struct window_copy copy = { .haddr = haddr, .len = len, .write = write };
	unsigned int changes = 0;
	uint64_t done = 0;
	int err;

	if (!is_live(gw))
		return -ENOENT;
	if (len) {
		copy.device = vb_dpa_mem_host(guest->process->dpa, daddr, len,
					      write ? VB_DPA_READ : VB_DPA_READ | VB_DPA_WRITE);
		if (vb_view_is_none(copy.device))
			return -EFAULT;
	}
	do {
		uint64_t piece = len - done < COPY_CHUNK ? len - done : COPY_CHUNK;

		err = flexio_window_copy_piece(map, &copy, done, &changes);
		done += COPY_CHUNK;
		/* Gigabytes are one call: neither the end of its time nor that of the process waits for them. */
		if (vb_call_worked(guest, WORK_CALL + (piece >> WORK_BYTES_SHIFT)))
			err = -ETIMEDOUT;
		else if (process_dead(guest->process))
			err = -EIO;
	} while (!err && done < len);
	return err;
}

uint64_t vb_window_call(struct guest *guest, struct vb_dpa_thread *thread, uint64_t number,
			const uint64_t *args)
{
	unsigned int entity = (unsigned int)args[0];
	int err = -EINVAL;

	if (args[0] >= ARRAY_SIZE(guest->windows))
		return number == VB_RTOS_WINDOW_PTR ? 0 : (uint64_t)-1;
	switch (number) {
	case VB_RTOS_WINDOW_CONFIG:
		err = call_config(guest, thread, entity, args[1], args[2]);
		break;
	case VB_RTOS_WINDOW_MKEY:
		err = call_mkey(guest, thread, entity, args[1]);
		break;
	case VB_RTOS_WINDOW_PTR:
		return call_ptr(guest, entity, args[1]);
	case VB_RTOS_WINDOW_READ:
		err = call_copy(guest, entity, args[2], args[1], args[3], false);
		break;
	case VB_RTOS_WINDOW_WRITE:
		err = call_copy(guest, entity, args[1], args[2], args[3], true);
		break;
	default:
		break;
	}
	return err ? (uint64_t)-1 : 0;
}

/* ---- window objects ---- */

/* Under windows.lock. A free id, or 0. */
static uint32_t flexio_window_take_id(void)
{
	for (uint32_t i = 0; i < MAX_WINDOWS - 1; i++) {
		uint32_t id = 1 + (windows.last + i) % (MAX_WINDOWS - 1);

		if (!windows.table[id])
			return windows.last = id;
	}
	return 0;
}

static struct flexio_window *window_new(struct flexio_process *process, struct ibv_pd *pd)
{
	struct flexio_window *w = aligned_alloc(16, (sizeof(*w) + 15) & ~15UL);

	if (!w) {
		fail("process %s: no memory for a window", process->name);
		return NULL;
	}
	*w = (struct flexio_window){ .process = process, .pd = pd };
	pthread_mutex_lock(&windows.lock);
	w->id = flexio_window_take_id();
	if (!w->id)
		fail("this program has %d windows; there cannot be more", MAX_WINDOWS - 1);
	if (w->id && vb_handle_add(HANDLE_WINDOW, w)) {
		windows.table[w->id] = w;
	} else {
		free(w);
		w = NULL;
	}
	pthread_mutex_unlock(&windows.lock);
	return w;
}

flexio_status flexio_window_create(struct flexio_process *process, struct ibv_pd *pd,
				   struct flexio_window **window)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_window *w;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!pd || !window)
		return fail("%s is NULL", !pd ? "pd" : "window");
	if (strcmp(pd->context->device->name, process->ctx->device->name))
		return fail("the protection domain is of %s, process %s of %s",
			    pd->context->device->name, process->name, process->ctx->device->name);
	if (!vb_process_hold(process, PART_WINDOW))
		return failed();
	vb_verbs_hold(pd->context, pd);
	w = window_new(process, pd);
	if (!w) {
		vb_verbs_release(pd->context, pd);
		vb_process_release(process, PART_WINDOW);
		return failed();
	}
	*window = w;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_window_destroy(struct flexio_window *window)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_WINDOW, window);

	API_CALL();
	if (!vb_handle_end(&pin))
		return bad_handle(window, "window");
	pthread_mutex_lock(&windows.lock);
	windows.table[window->id] = NULL;
	while (window->users)
		flexio_window_detach(window->users);
	pthread_mutex_unlock(&windows.lock);
	vb_verbs_release(window->pd->context, window->pd);
	vb_process_release(window->process, PART_WINDOW);
	free(window);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_window_get_id(struct flexio_window *window)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_WINDOW, window);

	API_CALL();
	if (!pin) {
		bad_handle(window, "window");
		return UINT32_MAX;
	}
	return window->id;
}
