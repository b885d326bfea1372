// SPDX-License-Identifier: MIT
/*
 * Owns the question where a jump leads when somebody else changes its last bytes.
 *
 *	site:  e9 d0 d1 | 8b 07     a store of three bytes; the next instruction is part of the distance
 *	       e9 d0 d1 | cc 07     a breakpoint or a uprobe on that instruction: the jump lands elsewhere
 *
 * A breakpoint is one byte at an instruction's start, so there are few such places. At none of them
 * may there be code, unless it is the hlt between trampolines: then the jump ends in a fault, which is
 * recognized by its address and goes on in the trampoline. What is free there is made to stay so by a
 * mapping without rights.
 */
#include "host/patch/patch.h"

#if defined(__x86_64__)

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "host/fault.h"

enum { PAGE = 4096, DISTANCE = 4 };

#define LOWEST (1ul << 20)
/* A jump to an address between the two faults before it jumps; above it is the vsyscall page. */
#define HIGHEST  0x7fffffff0000ul
#define KERNEL   0xffff800000000000ul
#define VSYSCALL 0xffffffffff600000ul

uint16_t vb_stray_starts(const uint8_t *code, size_t len, unsigned int from, unsigned int to)
{
	uint16_t starts = 0;
	unsigned int n;

	for (unsigned int at = from; at < to; at += n) {
		starts = (uint16_t)(starts | 1u << at);
		n = vb_store_length(code + at, len - at);
		if (!n) {
			/* who knows */
			for (n = at; n < to; n++)
				starts = (uint16_t)(starts | 1u << n);
			break;
		}
	}
	return starts;
}

static uintptr_t patch_stray_target(const struct vb_tramp *tramp, const uint8_t *distance)
{
	int32_t rel;

	memcpy(&rel, distance, sizeof(rel));
	return tramp->site + tramp->span + (uintptr_t)(intptr_t)rel;
}

static uintptr_t landing(const struct vb_tramp *tramp, uint32_t breakpoints)
{
	unsigned int first = tramp->span - (unsigned int)DISTANCE;
	uint8_t distance[DISTANCE];

	for (unsigned int i = 0; i < DISTANCE; i++)
		distance[i] = breakpoints >> (first + i) & 1 ? VB_INT3 : tramp->jump[first + i];
	return patch_stray_target(tramp, distance);
}

/* All of the sets of breakpoints but those that change nothing: such a byte may stand there anyway. */
unsigned int vb_stray_landings(const struct vb_tramp *tramp, uintptr_t at[VB_LANDINGS])
{
	uint32_t starts = tramp->starts, set = starts;
	unsigned int count = 0;

	for (; set && count < VB_LANDINGS; set = (set - 1) & starts) {
		at[count] = landing(tramp, set);
		if (at[count] != tramp->code_start)
			count++;
	}
	return count;
}

bool vb_stray_led_to(const struct vb_tramp *tramp, uintptr_t rip)
{
	unsigned int first = tramp->span - (unsigned int)DISTANCE;
	uint8_t now[DISTANCE];
	uint32_t starts = tramp->starts, set = starts;

	if (rip == tramp->code_start)
		return false;
	for (; set; set = (set - 1) & starts)
		if (landing(tramp, set) == rip)
			return true;
	/* Something else than a breakpoint, behind a jump that is still there. */
	return starts && !vb_fault_copy(now, (const void *)(tramp->site + first), sizeof(now)) &&
	       !memcmp(now, tramp->jump + first, (size_t)(tramp->changed - first)) &&
	       patch_stray_target(tramp, now) == rip;
}

/* Where something is mapped already, it is there to stay, or so its owner hopes. */
static bool patch_stray_reserve(uintptr_t at)
{
	uintptr_t page = at & ~(uintptr_t)(PAGE - 1);
	void *map;

	if (at >= KERNEL && at < VSYSCALL)
		return true; /* never the program's */
	if (at >= HIGHEST)
		return false;
	if (at < LOWEST)
		return true; /* looked at below; nobody maps anything there later */
	map = mmap((void *)page, PAGE, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (map == MAP_FAILED)
		return errno == EEXIST;
	if (map != (void *)page)
		munmap(map, PAGE); /* a kernel that takes the address for a hint: it was not free */
	return true;
}

/* Of a page that is still to be mapped. */
static bool is_on_own_page(const struct vb_tramp *tramp, uintptr_t at)
{
	return at >= (tramp->code_start & ~(uintptr_t)(PAGE - 1)) &&
	       at <= ((tramp->code_start + tramp->code_size - 1) | (PAGE - 1));
}

/* Not in what is skipped. */
static bool is_inside(const struct vb_tramp *tramp, uintptr_t at)
{
	uintptr_t offset = at - tramp->code_start;

	return offset < tramp->code_size && (offset < VB_JUMP || offset >= tramp->skip);
}

bool vb_stray_close(const struct vb_tramp *tramp)
{
	uintptr_t at[VB_LANDINGS];
	unsigned int count = vb_stray_landings(tramp, at);

	for (unsigned int i = 0; i < count; i++)
		if (is_inside(tramp, at[i]) || vb_tramp_next(at[i], at[i] + 1) ||
		    (!is_on_own_page(tramp, at[i]) && !patch_stray_reserve(at[i])))
			return false;
	return !count || !vb_place_is_executable(at, count);
}

#endif
