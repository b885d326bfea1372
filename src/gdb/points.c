// SPDX-License-Identifier: MIT
/*
 * Owns the breakpoints and watchpoints of a session. The accelerator counts one that is set twice once;
 * a debugger may set one address as a software and as a hardware breakpoint, and clear one of them. So
 * the session keeps what is set, and the accelerator gets the union.
 */
#include "gdb/session.h"

#include <stdlib.h>

#define BREAKS ((1U << POINT_SOFT) | (1U << POINT_HARD))

/* What the accelerator is to look for on behalf of a point. */
static unsigned int watch_bits(unsigned int types)
{
	return ((types & (1U << POINT_READ | 1U << POINT_ACCESS)) ? VB_DPA_WATCH_READ : 0U) |
	       ((types & (1U << POINT_WRITE | 1U << POINT_ACCESS)) ? VB_DPA_WATCH_WRITE : 0U);
}

/*
 * The accelerator has breakpoints in text. A debugger that calls a function sets one on the stack, where
 * the function returns to: to arrive there traps anyway.
 */
static int change_break(struct session *s, struct point *p, bool set)
{
	uint64_t done;
	char byte;
	int err = p->loose ? 0 : vb_dpa_debug_break(s->debug, p->addr, set);

	if (err == -EFAULT && set && p->addr == VB_DPA_RETURN_PC)
		err = 0;
	else if (err == -EFAULT && set)
		err = vb_gdb_copy(s, p->addr, &byte, 1, false, &done);
	else
		return err;
	p->loose = !err;
	return err;
}

/* Take the accelerator from one set of types at a place to another. */
static int points_change(struct session *s, struct point *p, unsigned int from, unsigned int to)
{
	unsigned int had = watch_bits(from), has = watch_bits(to);
	int err = 0;

	if (!(from & BREAKS) != !(to & BREAKS))
		err = change_break(s, p, to & BREAKS);
	if (!err && has & ~had)
		err = vb_dpa_debug_watch(s->debug, p->addr, p->len, has & ~had, true);
	if (!err && had & ~has)
		err = vb_dpa_debug_watch(s->debug, p->addr, p->len, had & ~has, false);
	return err;
}

static struct point *points_find(const struct session *s, uint64_t addr, uint64_t len, bool watch)
{
	for (unsigned int i = 0; i < s->npoints; i++) {
		struct point *p = &s->points[i];

		if (p->addr == addr && p->len == len && !(p->types & BREAKS) == watch)
			return p;
	}
	return NULL;
}

static struct point *points_add(struct session *s, uint64_t addr, uint64_t len)
{
	if (!s->points)
		s->points = calloc(POINTS_MAX, sizeof(*s->points));
	if (!s->points || s->npoints == POINTS_MAX)
		return NULL;
	s->points[s->npoints] = (struct point){ .addr = addr, .len = len };
	return &s->points[s->npoints++];
}

static int set_point(struct session *s, enum point_type type, uint64_t addr, uint64_t len, bool set)
{
	bool watch = type >= POINT_WRITE;
	struct point *p = points_find(s, addr, len, watch);
	unsigned int to;
	int err;

	if (!p && !set)
		return 0; /* a debugger may clear what it has cleared */
	if (!p)
		p = points_add(s, addr, len);
	if (!p)
		return -ENOSPC;
	to = set ? p->types | 1U << type : p->types & ~(1U << type);
	err = points_change(s, p, p->types, to);
	if (!err)
		p->types = to;
	if (!p->types)
		*p = s->points[--s->npoints];
	return err;
}

/* TYPE,ADDRESS,KIND: for breakpoints the kind is the length of an instruction, which is known. */
void vb_gdb_point(struct session *s, const char *at, bool set)
{
	uint64_t type, addr, len;
	int err = -EINVAL;

	if (!vb_gdb_get_number(&at, &type) || type >= POINT_TYPES)
		return; /* not supported */
	if (vb_gdb_get_char(&at, ',') && vb_gdb_get_number(&at, &addr) &&
	    vb_gdb_get_char(&at, ',') && vb_gdb_get_number(&at, &len) && (!*at || *at == ';') &&
	    (type < POINT_WRITE || (len && addr + len >= addr)))
		err = set_point(s, (enum point_type)type, addr, type < POINT_WRITE ? 0 : len, set);
	vb_gdb_put_result(s, err);
}

/*
 * An access may begin in front of what is watched, but a debugger finds its watchpoint by an address
 * in it. No access is longer than 8 bytes.
 */
static bool touches(const struct point *p, uint64_t addr, uint64_t *inside)
{
	if (addr < p->addr && p->addr - addr < 8)
		*inside = p->addr;
	else if (addr >= p->addr && addr - p->addr < p->len)
		*inside = addr;
	else
		return false;
	return true;
}

const char *vb_gdb_watch_hit(const struct session *s, uint64_t *addr)
{
	static const char *const words[] = {
		[POINT_WRITE] = "watch", [POINT_READ] = "rwatch", [POINT_ACCESS] = "awatch"
	};
	uint64_t inside = *addr;

	for (int type = POINT_WRITE; type < POINT_TYPES; type++)
		for (unsigned int i = 0; i < s->npoints; i++) {
			const struct point *p = &s->points[i];

			if (p->types & 1U << type &&
			    watch_bits(1U << type) & (unsigned int)s->stop.watch &&
			    touches(p, *addr, &inside)) {
				*addr = inside;
				return words[type];
			}
		}
	return "watch";
}

const char *vb_gdb_break_hit(const struct session *s, uint64_t addr)
{
	const struct point *p = points_find(s, addr, 0, false);

	if (!p)
		return NULL;
	if (!(p->types & 1U << POINT_SOFT))
		return s->hwbreak ? "hwbreak" : NULL;
	return s->swbreak ? "swbreak" : NULL;
}

bool vb_gdb_is_loose_break(const struct session *s, const struct vb_dpa_state *state)
{
	const struct point *p = points_find(s, state->pc, 0, false);

	return p && p->loose && state->cause == VB_DPA_CAUSE_FETCH;
}

bool vb_gdb_breaks_at_return(const struct session *s)
{
	return points_find(s, VB_DPA_RETURN_PC, 0, false);
}
