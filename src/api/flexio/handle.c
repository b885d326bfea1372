// SPDX-License-Identifier: MIT
/*
 * Owns the set of handles that are alive, so that a pointer that was never one, or is not one any more,
 * is refused without reading what it points to.
 *
 *	bucket[hash] -> node -> node -> NULL      node.key = address + kind, or 0: free for another handle
 *
 * Looking up takes no lock: nodes are published once and never freed or moved, only their keys
 * change. So the set keeps as many nodes as there ever were handles at a time.
 */
#include "internal.h"

#define BUCKETS 1024

struct node {
	_Atomic uintptr_t key;
	struct node *next; /* written before the node is published */
};

static struct node *_Atomic buckets[BUCKETS];
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* Objects are aligned to at least 16 bytes, so the kind fits the lowest bits. */
_Static_assert(HANDLE_KINDS <= 16, "kind and address share a word");

static uintptr_t key_of(enum handle_kind kind, const void *handle)
{
	return (uintptr_t)handle + (uintptr_t)kind;
}

static struct node *_Atomic *bucket_of(const void *handle)
{
	return &buckets[((uintptr_t)handle * 0x9e3779b97f4a7c15ULL) >> 54];
}

static struct node *find(struct node *_Atomic *bucket, uintptr_t key)
{
	/* Pairs with the release in vb_handle_add(). */
	struct node *node = atomic_load_explicit(bucket, memory_order_acquire);

	while (node && atomic_load_explicit(&node->key, memory_order_acquire) != key)
		node = node->next;
	return node;
}

bool vb_handle_add(enum handle_kind kind, const void *handle)
{
	struct node *_Atomic *bucket = bucket_of(handle);
	struct node *node;

	pthread_mutex_lock(&adding);
	node = find(bucket, 0);
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (node) {
			node->next = atomic_load_explicit(bucket, memory_order_relaxed);
			atomic_store_explicit(bucket, node, memory_order_release);
		}
	}
	if (node)
		atomic_store_explicit(&node->key, key_of(kind, handle), memory_order_release);
	pthread_mutex_unlock(&adding);
	if (!node)
		log_err("no memory");
	return node;
}

bool vb_handle_valid(enum handle_kind kind, const void *handle)
{
	return handle && !((uintptr_t)handle & 15) && find(bucket_of(handle), key_of(kind, handle));
}

bool vb_handle_remove(enum handle_kind kind, const void *handle)
{
	uintptr_t key = key_of(kind, handle);
	struct node *node;

	if (!handle || (uintptr_t)handle & 15)
		return false;
	node = find(bucket_of(handle), key);
	/* Of two that end it at the same time one wins. */
	return node && atomic_compare_exchange_strong(&node->key, &key, 0);
}
