// SPDX-License-Identifier: MIT
/*
 * Owns the set of handles that are alive, so that a pointer that was never one, or is not one any
 * more, is refused without reading what it points to; and pins, by which an object stays alive
 * during a call.
 *
 *	bucket[hash] -> entry -> entry -> NULL    key: address + kind, FREE, or ENDING (waits for pins)
 *
 * Looking up takes no lock: entries are published once and never freed or moved, only their keys
 * change. So the set keeps as many entries as there ever were handles at a time.
 *
 * vb_handle_pin() counts a pin and then reads the key again; vb_handle_end() changes the key and
 * then reads the number of pins. vb_handle_unpin() takes its pin back and then reads the key, to
 * wake vb_handle_end(). All of these are sequentially consistent, so that of two threads one sees
 * what the other did.
 *
 * A child of fork() has the set, and none of the threads that held pins and locks of it.
 */
#include "api/flexio/process.h"
#include "api/flexio/stream.h"
#include "base/fork.h"

#define BUCKETS 1024

/* Keys that are no handle's: addresses are not 0. */
enum { FREE = 0, ENDING = 1 };

struct handle {
	_Atomic uintptr_t key;
	_Atomic unsigned int pins;
	struct handle *next; /* written before the entry is published */
};

static struct handle *_Atomic buckets[BUCKETS];
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unpinned = PTHREAD_COND_INITIALIZER;

/* Objects are aligned to at least 16 bytes, so the kind fits the lowest bits. */
_Static_assert(HANDLE_KINDS <= 16, "kind and address share a word");

static uintptr_t key_of(enum handle_kind kind, const void *handle)
{
	return (uintptr_t)handle + (uintptr_t)kind;
}

static struct handle *_Atomic *handle_bucket_of(const void *handle)
{
	return &buckets[((uintptr_t)handle * 0x9e3779b97f4a7c15ULL) >> 54];
}

static struct handle *handle_find(struct handle *_Atomic *bucket, uintptr_t key)
{
	/* Pairs with the release in vb_handle_add(). */
	struct handle *entry = atomic_load_explicit(bucket, memory_order_acquire);

	while (entry && atomic_load_explicit(&entry->key, memory_order_acquire) != key)
		entry = entry->next;
	return entry;
}

static struct handle *find_handle(enum handle_kind kind, const void *handle)
{
	if (!handle || (uintptr_t)handle & 15)
		return NULL;
	return handle_find(handle_bucket_of(handle), key_of(kind, handle));
}

static void handles_forked(void)
{
	for (unsigned int i = 0; i < BUCKETS; i++)
		for (struct handle *entry = atomic_load_explicit(&buckets[i], memory_order_relaxed);
		     entry; entry = entry->next)
			atomic_store_explicit(&entry->pins, 0, memory_order_relaxed);
	pthread_mutex_init(&adding, NULL);
	pthread_mutex_init(&ending, NULL);
	pthread_cond_init(&unpinned, NULL);
}

VB_STAGE(HANDLES, .child = handles_forked);

bool vb_handle_add(enum handle_kind kind, const void *handle)
{
	struct handle *_Atomic *bucket = handle_bucket_of(handle);
	struct handle *entry;

	pthread_mutex_lock(&adding);
	entry = handle_find(bucket, FREE);
	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (entry) {
			entry->next = atomic_load_explicit(bucket, memory_order_relaxed);
			atomic_store_explicit(bucket, entry, memory_order_release);
		}
	}
	if (entry)
		/* Pairs with the acquire in handle_find(): the object is complete. */
		atomic_store_explicit(&entry->key, key_of(kind, handle), memory_order_release);
	pthread_mutex_unlock(&adding);
	if (!entry)
		fail("no memory for a handle");
	return entry;
}

bool vb_handle_valid(enum handle_kind kind, const void *handle)
{
	return find_handle(kind, handle);
}

void vb_handles_visit(enum handle_kind kind, void (*visit)(void *handle, void *arg), void *arg)
{
	for (unsigned int i = 0; i < BUCKETS; i++)
		for (struct handle *entry = atomic_load_explicit(&buckets[i], memory_order_acquire);
		     entry; entry = entry->next) {
			uintptr_t key = atomic_load_explicit(&entry->key, memory_order_acquire);
			void *handle = (void *)(key & ~(uintptr_t)15);
			struct handle *pin AUTO_UNPIN =
				(key & 15) == (uintptr_t)kind ? vb_handle_pin(kind, handle) : NULL;

			if (pin)
				visit(handle, arg);
		}
}

struct handle *vb_handle_pin(enum handle_kind kind, const void *handle)
{
	struct handle *entry = find_handle(kind, handle);

	if (!entry)
		return NULL;
	atomic_fetch_add_explicit(&entry->pins, 1, memory_order_seq_cst);
	if (likely(atomic_load_explicit(&entry->key, memory_order_seq_cst) == key_of(kind, handle)))
		return entry;
	vb_handle_unpin(&entry);
	return NULL;
}

void vb_handle_unpin(struct handle **pin)
{
	struct handle *entry = *pin;

	*pin = NULL;
	if (!entry || atomic_fetch_sub_explicit(&entry->pins, 1, memory_order_seq_cst) > 1 ||
	    likely(atomic_load_explicit(&entry->key, memory_order_seq_cst) != ENDING))
		return;
	pthread_mutex_lock(&ending);
	pthread_cond_broadcast(&unpinned);
	pthread_mutex_unlock(&ending);
}

bool vb_handle_end(struct handle **pin)
{
	struct handle *entry = *pin;
	uintptr_t key = entry ? atomic_load_explicit(&entry->key, memory_order_relaxed) : ENDING;
	int cancel;

	/*
	 * Of two that end it at the same time one wins. While it is pinned, its key can only become
	 * ENDING.
	 */
	if (key == ENDING ||
	    !atomic_compare_exchange_strong_explicit(&entry->key, &key, ENDING,
						     memory_order_seq_cst, memory_order_relaxed))
		return false;
	vb_handle_unpin(pin);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&ending);
	while (atomic_load_explicit(&entry->pins, memory_order_seq_cst))
		pthread_cond_wait(&unpinned, &ending);
	pthread_mutex_unlock(&ending);
	pthread_setcancelstate(cancel, NULL);
	/* Pairs with the acquire in handle_find(), from vb_handle_add(). */
	atomic_store_explicit(&entry->key, FREE, memory_order_release);
	return true;
}
