// SPDX-License-Identifier: MIT
/*
 * Owns this process's file: its making, its growth, and which entries are in use. layout.h draws it.
 *
 * A page is made by the first entry after the process joined the registry, and belongs to that stay:
 * when the process leaves, the registry removes the file, and the memory goes with the last entry.
 * All functions here are for rare moments, and hold one lock, with signals blocked: a handler of the
 * program might fork, which takes the lock, too.
 *
 * Offsets and counts that this file depends on are kept in the process's own memory. What is in the
 * shared file is for others, and may be anything by the time that it is looked at.
 */
#include "control/show/monitor.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/time.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/log.h"
#include "meet/registry.h"
#include "meet/registry_dir.h"
#include "host/signals.h"

/* Entries of a first chunk, and how many there may be in all. */
static const struct kind {
	uint32_t entry_size, base, max;
} kinds[VB_MONITOR_KINDS] = {
	[VB_MONITOR_DPA_PROCESS] = { sizeof(struct vb_monitor_process), 16, VB_MONITOR_REQUESTS },
	[VB_MONITOR_DPA_THREAD] = { sizeof(struct vb_monitor_thread), 64, 131072 },
	[VB_MONITOR_ADAPTER] = { sizeof(struct vb_monitor_adapter), 8, 256 },
	[VB_MONITOR_ACCELERATOR] = { sizeof(struct vb_monitor_accelerator), 8, 256 },
	[VB_MONITOR_QP] = { sizeof(struct vb_monitor_qp), 32, 65536 },
};

uint32_t vb_monitor_most(enum vb_monitor_kind kind)
{
	return (unsigned int)kind < VB_MONITOR_KINDS ? kinds[kind].max : 0;
}

/* The entries of one kind. */
struct table {
	uint32_t *unused; /* a stack of indices below count */
	uint32_t nunused;
	uint32_t count;
	uint32_t capacity; /* of the chunks that there are */
	uint32_t nchunks;
	void *chunk[VB_MONITOR_CHUNKS];
};

/* Memory that was given back, for the next one who asks for as much. */
struct spare {
	void *at;
	size_t bytes;
	uint64_t offset;
	struct spare *next;
};

struct vb_monitor_page {
	struct vb_monitor_header *header; /* where the file is mapped */
	struct vb_file file;
	uint64_t size; /* of the file, in use */
	uint32_t slot;
	unsigned int entries; /* in use */
	bool left;            /* the process has left the registry */
	bool inherited;       /* by a fork: what is written is seen by nobody */
	bool full;            /* that was said */
	struct table tables[VB_MONITOR_KINDS];
	struct spare *spares;
	struct vb_monitor_page *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_registry *joined;      /* beside the slot of this host; NULL: not joined */
static struct vb_slot_info self;        /* while joined */
static struct vb_monitor_page *current; /* of this stay in the registry; NULL: none yet */
static bool failed;                     /* there can be none */
static struct vb_monitor_page *pages;   /* all that have memory */

static void page_take(sigset_t *before)
{
	vb_signal_block(before);
	pthread_mutex_lock(&lock);
}

static void page_give(const sigset_t *before)
{
	pthread_mutex_unlock(&lock);
	vb_signal_unblock(before);
}

/* ---- pages, with the lock ---- */

static void page_free(struct vb_monitor_page *page)
{
	struct vb_monitor_page **link = &pages;

	while (*link && *link != page)
		link = &(*link)->next;
	if (*link)
		*link = page->next;
	for (unsigned int kind = 0; kind < VB_MONITOR_KINDS; kind++)
		free(page->tables[kind].unused);
	for (struct spare *s = page->spares, *after; s; s = after) {
		after = s->next;
		free(s);
	}
	munmap(page->header, VB_MONITOR_MAX_SIZE);
	vb_file_close(&page->file);
	free(page);
}

static int page_map(struct vb_monitor_page *page)
{
	struct vb_monitor_header *header;
	int ret;

	ret = vb_registry_make_shown(joined, &page->file);
	if (!ret)
		ret = vb_file_reserve(page->file.fd, 0, 2 * VB_MONITOR_PAGE,
				      vb_registry_root(joined));
	if (ret)
		return ret;
	header = mmap(NULL, VB_MONITOR_MAX_SIZE, PROT_NONE, MAP_SHARED, page->file.fd, 0);
	if (header == MAP_FAILED)
		return -errno;
	ret = vb_file_uncover(header, 0, 2 * VB_MONITOR_PAGE);
	if (ret) {
		munmap(header, VB_MONITOR_MAX_SIZE);
		return ret;
	}
	header->slot = self.slot;
	header->generation = self.generation;
	header->pid = (uint32_t)self.pid;
	vb_ticks_moment(&header->base_ticks, &header->base_ns);
	page->slot = self.slot;
	page->size = 2 * VB_MONITOR_PAGE;
	page->header = header;
	atomic_store_explicit(&header->size, page->size, memory_order_relaxed);
	/* Whoever sees the magic sees the rest: pairs with vb_monitor_view_open(). */
	atomic_store_explicit(&header->magic, VB_MONITOR_MAGIC, memory_order_release);
	return 0;
}

/* The page of this stay. Where there cannot be one, the log says so once. */
static struct vb_monitor_page *page_get(void)
{
	struct vb_monitor_page *page;
	int ret;

	if (current || !joined || failed)
		return current;
	page = calloc(1, sizeof(*page));
	if (!page)
		return NULL;
	page->file = VB_NO_FILE;
	ret = page_map(page);
	if (ret) {
		vb_warn("dpa-ps and the other tools will not see this process: %s", strerror(-ret));
		failed = true;
		vb_file_close(&page->file);
		free(page);
		return NULL;
	}
	page->next = pages;
	pages = page;
	current = page;
	return page;
}

static void *page_grow(struct vb_monitor_page *page, size_t bytes, uint64_t *offset)
{
	uint64_t size;

	bytes = (bytes + 63) & ~(size_t)63;
	size = page->size + bytes;
	if (page->inherited || size > VB_MONITOR_MAX_SIZE)
		return NULL;
	if (!vb_file_is_open(&page->file) ||
	    vb_file_reserve(page->file.fd, page->size, size, vb_dir_root_path()) ||
	    vb_file_uncover(page->header, page->size, size))
		return NULL;
	*offset = page->size;
	page->size = size;
	atomic_store_explicit(&page->header->size, size, memory_order_release);
	return (char *)page->header + *offset;
}

/* ---- tables, with the lock ---- */

static struct vb_monitor_section *section_of(struct vb_monitor_page *page,
					     enum vb_monitor_kind kind)
{
	return &page->header->section[kind - 1];
}

static int page_table_grow(struct vb_monitor_page *page, enum vb_monitor_kind kind)
{
	struct vb_monitor_section *section = section_of(page, kind);
	struct table *t = &page->tables[kind];
	uint32_t entries = kinds[kind].base << t->nchunks;
	uint32_t *unused;
	uint64_t offset;
	void *chunk;

	if (t->nchunks == VB_MONITOR_CHUNKS)
		return -ENOSPC;
	unused = realloc(t->unused, (t->capacity + entries) * sizeof(*unused));
	if (!unused)
		return -ENOMEM;
	t->unused = unused;
	chunk = page_grow(page, (size_t)entries * kinds[kind].entry_size, &offset);
	if (!chunk)
		return -ENOSPC;
	if (!t->nchunks) {
		section->entry_size = kinds[kind].entry_size;
		section->base = kinds[kind].base;
	}
	t->chunk[t->nchunks] = chunk;
	atomic_store_explicit(&section->chunk[t->nchunks], offset, memory_order_release);
	t->nchunks++;
	t->capacity += entries;
	atomic_store_explicit(&section->kind, kind, memory_order_release);
	return 0;
}

static struct vb_monitor_seq *table_entry(struct vb_monitor_page *page, enum vb_monitor_kind kind,
					  uint32_t index)
{
	uint32_t base = kinds[kind].base;
	unsigned int k = 31 - (unsigned int)__builtin_clz(index / base + 1);

	index -= base * ((1u << k) - 1);
	return (void *)((char *)page->tables[kind].chunk[k] +
			(size_t)index * kinds[kind].entry_size);
}

static int page_table_take(struct vb_monitor_page *page, enum vb_monitor_kind kind, uint32_t *index)
{
	struct table *t = &page->tables[kind];
	int ret = 0;

	if (t->nunused) {
		*index = t->unused[--t->nunused];
		return 0;
	}
	if (t->count == kinds[kind].max)
		return -ENOSPC;
	if (t->count == t->capacity)
		ret = page_table_grow(page, kind);
	if (ret)
		return ret;
	*index = t->count++;
	return 0;
}

/* ---- entries ---- */

static int page_add(enum vb_monitor_kind kind, struct vb_monitor_place *place)
{
	struct vb_monitor_page *page = page_get();
	struct vb_monitor_seq *seq;
	uint32_t index;
	int ret;

	if (!page)
		return -ENODEV;
	ret = page_table_take(page, kind, &index);
	if (ret) {
		if (!page->full)
			vb_warn("dpa-ps and the other tools will not see all of this process: there is no room for more (%s)",
				strerror(-ret));
		page->full = true;
		return ret;
	}
	seq = table_entry(page, kind, index);
	/* It is free until vb_monitor_show(), so no reader looks at what is filled in. */
	vb_monitor_write_begin(seq);
	memset(seq + 1, 0, kinds[kind].entry_size - sizeof(*seq));
	vb_monitor_write_end(seq);
	page->entries++;
	atomic_store_explicit(&section_of(page, kind)->count, page->tables[kind].count,
			      memory_order_release);
	*place = (struct vb_monitor_place){ page, kind, index, seq };
	return 0;
}

int vb_monitor_add(enum vb_monitor_kind kind, struct vb_monitor_place *place)
{
	VB_NO_CANCEL;
	sigset_t before;
	int ret;

	*place = (struct vb_monitor_place){ 0 };
	page_take(&before);
	ret = page_add(kind, place);
	page_give(&before);
	return ret;
}

static void set_used(struct vb_monitor_place *place, uint32_t used)
{
	struct vb_monitor_seq *seq = place->entry;

	if (!seq)
		return;
	vb_monitor_write_begin(seq);
	seq->used = used;
	vb_monitor_write_end(seq);
}

void vb_monitor_show(struct vb_monitor_place *place)
{
	set_used(place, 1);
}

void vb_monitor_hide(struct vb_monitor_place *place)
{
	set_used(place, 0);
}

static void page_remove_entry(struct vb_monitor_place *place)
{
	struct vb_monitor_page *page = place->page;
	struct table *t = &page->tables[place->kind];

	set_used(place, 0);
	t->unused[t->nunused++] = place->index; /* there is room for all, see page_table_grow() */
	page->entries--;
	if (page->left && !page->entries)
		page_free(page);
}

void vb_monitor_remove(struct vb_monitor_place *place)
{
	VB_NO_CANCEL;
	sigset_t before;

	if (!place->entry)
		return;
	page_take(&before);
	page_remove_entry(place);
	page_give(&before);
	*place = (struct vb_monitor_place){ 0 };
}

static void *spare_take(struct vb_monitor_page *page, size_t bytes, uint64_t *offset)
{
	struct spare **link = &page->spares, *s;
	void *at;

	while (*link && (*link)->bytes != bytes)
		link = &(*link)->next;
	s = *link;
	if (!s)
		return NULL;
	*link = s->next;
	*offset = s->offset;
	at = memset(s->at, 0, bytes);
	free(s);
	return at;
}

void *vb_monitor_alloc(struct vb_monitor_place *place, size_t bytes, uint64_t *offset)
{
	VB_NO_CANCEL;
	sigset_t before;
	void *at;

	if (!place->entry)
		return NULL;
	page_take(&before);
	at = spare_take(place->page, bytes, offset);
	if (!at)
		at = page_grow(place->page, bytes, offset);
	page_give(&before);
	return at;
}

void vb_monitor_give(struct vb_monitor_place *place, void *at, size_t bytes, uint64_t offset)
{
	struct spare *s = malloc(sizeof(*s));
	sigset_t before;

	if (!s)
		return; /* then it is used no more */
	page_take(&before);
	*s = (struct spare){ at, bytes, offset, place->page->spares };
	place->page->spares = s;
	page_give(&before);
}

struct vb_monitor_requests *vb_monitor_requests(const struct vb_monitor_place *place)
{
	return (void *)((char *)place->page->header + VB_MONITOR_PAGE);
}

uint32_t vb_monitor_slot(const struct vb_monitor_place *place)
{
	return place->page->slot;
}

/* ---- joining, leaving, forking ---- */

/* With the lock. The file is the registry's to remove. */
static void page_leave(void)
{
	struct vb_monitor_page *page = current;

	current = NULL;
	if (!page)
		return;
	page->left = true;
	vb_file_close(&page->file);
	if (!page->entries)
		page_free(page);
}

void vb_monitor_start(struct vb_registry *registry, const struct vb_slot_info *info)
{
	sigset_t before;

	page_take(&before);
	if (!joined) {
		page_leave(); /* of a parent's stay */
		self = *info;
		joined = registry;
		failed = false;
	}
	page_give(&before);
}

void vb_monitor_stop(const struct vb_registry *registry)
{
	sigset_t before;

	page_take(&before);
	if (joined == registry) {
		page_leave();
		joined = NULL;
	}
	page_give(&before);
}

static void monitor_prepare(void)
{
	pthread_mutex_lock(&lock);
}

static void monitor_parent(void)
{
	pthread_mutex_unlock(&lock);
}

/*
 * A child may still run device code of its parent's, and drop entries of its parent's: it writes to
 * memory of its own, in the same place. The file is inherited and replaced here, not left out by
 * MADV_DONTFORK: whoever maps memory in the child before us would find room there.
 */
static void inherit(struct vb_monitor_page *page)
{
	void *at = mmap(page->header, VB_MONITOR_MAX_SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	(void)at; /* as many bytes as before: nothing can forbid it */
	page->inherited = true;
	page->left = true;
	page->entries++; /* never freed: the child of a program with threads does not call free() here */
	vb_file_close(&page->file);
}

static void monitor_forked(void)
{
	for (struct vb_monitor_page *page = pages; page; page = page->next)
		if (!page->inherited)
			inherit(page);
	current = NULL;
	joined = NULL;
	pthread_mutex_init(&lock, NULL);
}

VB_STAGE(MONITOR, .prepare = monitor_prepare, .parent = monitor_parent, .child = monitor_forked);
