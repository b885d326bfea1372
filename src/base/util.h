/* SPDX-License-Identifier: MIT */
/*
 * What C itself lacks: branch hints, containers of members, array sizes, small arithmetic, and a
 * doubly linked list.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * A function on the way of every message: what it calls in its own file is made part of it, except
 * what is noinline. Calls, and saving registers for them, were a tenth of a small message.
 */
#define VB_FLAT __attribute__((flatten))
/* Not part of it: a way that few messages take. */
#define VB_APART                        __attribute__((noinline))

#define ARRAY_SIZE(a)                   (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* to is a power of two. */
static inline uint32_t align_up(uint32_t n, uint32_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* The smallest power of two that is not below n; n is at most 1 << 31. */
static inline uint32_t roundup_pow2(uint32_t n)
{
	return n <= 1 ? 1 : 1u << (32 - __builtin_clz(n - 1));
}

/* Rounded down; n is not 0. */
static inline uint32_t ilog2(uint32_t n)
{
	return 31 - (uint32_t)__builtin_clz(n);
}

/*
 * A circular list through nodes inside of its members; the head is a node of its own. The caller
 * locks.
 *
 *	head <-> node <-> node <-> (head)
 */
struct vb_list {
	struct vb_list *prev, *next;
};

static inline void vb_list_init(struct vb_list *head)
{
	head->prev = head->next = head;
}

static inline bool vb_list_empty(const struct vb_list *head)
{
	return head->next == head;
}

static inline void vb_list_insert(struct vb_list *prev, struct vb_list *next, struct vb_list *node)
{
	node->prev = prev;
	node->next = next;
	prev->next = node;
	next->prev = node;
}

static inline void vb_list_add_head(struct vb_list *head, struct vb_list *node)
{
	vb_list_insert(head, head->next, node);
}

static inline void vb_list_add_tail(struct vb_list *head, struct vb_list *node)
{
	vb_list_insert(head->prev, head, node);
}

/* The node itself still points to its former neighbours. */
static inline void vb_list_del(struct vb_list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

/* The body may delete node. */
#define vb_list_for_each_safe(node, after, head)                              \
	for ((node) = (head)->next, (after) = (node)->next; (node) != (head); \
	     (node) = (after), (after) = (node)->next)
