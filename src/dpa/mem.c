// SPDX-License-Identifier: MIT
/*
 * Owns guest memory below the limit: one reservation per process and the rights of each of its
 * pages.
 *
 *      region                     base                              base + limit        base + 4 GiB
 *        | jump tables  | guard    | page 0 (never mapped) | ... pages ... | never mapped | guard |
 *
 * The reservation is inaccessible; mapping is a change of rights, so an address that the guest made
 * up meets either a page with rights that somebody gave or the host MMU's refusal. Where there is
 * no address space for 4 GiB (ulimit -v), the reservation ends behind the limit, and only the
 * interpreter, which compares every address, may work in it.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/tsan.h"

/* Guest 0 is at a multiple of it: the kernel then has huge pages for files, too (mem_file.c). */
enum { HUGE_PAGE = 2 << 20 };

static uint64_t dpa_mem_page_up(const struct space *space, uint64_t len)
{
	return (len + space->page - 1) & ~(space->page - 1);
}

static int host_prot(unsigned int rights)
{
	/* Guest text is data to the host: only translated code executes. */
	return (rights & (VB_DPA_READ | VB_DPA_EXEC) ? PROT_READ : 0) |
	       (rights & VB_DPA_WRITE ? PROT_READ | PROT_WRITE : 0);
}

static void *dpa_mem_reserve(struct space *space, uint64_t span)
{
	space->region_len = HUGE_PAGE + space->table_len + VB_CPU_GUARD + span + VB_CPU_GUARD;
	return mmap(NULL, space->region_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    -1, 0);
}

int vb_space_create(struct space *space, uint64_t limit, uint64_t text_span, bool whole)
{
	uintptr_t base;

	*space = (struct space){ .page = (uint64_t)sysconf(_SC_PAGESIZE),
				 .whole = whole,
				 .file = VB_NO_FILE };
	space->limit = limit & ~(space->page - 1);
	space->table_len = VB_JIT_TABLES * dpa_mem_page_up(space, text_span * 4);
	space->region = whole ? dpa_mem_reserve(space, VB_CPU_SPAN) : MAP_FAILED;
	if (space->region == MAP_FAILED) {
		space->whole = false;
		space->table_len = 0;
		space->region = dpa_mem_reserve(space, space->limit);
	}
	if (space->region == MAP_FAILED) {
		space->region = NULL;
		return -ENOMEM;
	}
	space->pages = mmap(NULL, space->limit / space->page, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (space->pages == MAP_FAILED) {
		munmap(space->region, space->region_len);
		space->region = NULL;
		return -ENOMEM;
	}
	base = (uintptr_t)space->region + space->table_len + VB_CPU_GUARD;
	base = (base + HUGE_PAGE - 1) & ~((uintptr_t)HUGE_PAGE - 1);
	space->base = (uint8_t *)base;
	space->table = space->base - VB_CPU_GUARD - space->table_len;
	space->pages[0] = PAGE_RESERVED;
	space->next = space->page;
	pthread_mutex_init(&space->lock, NULL);
	return 0;
}

void vb_space_destroy(struct space *space)
{
	if (!space->region)
		return;
	vb_space_leave_file(space);
	munmap(space->region, space->region_len);
	munmap(space->pages, space->limit / space->page);
	pthread_mutex_destroy(&space->lock);
	space->region = NULL;
}

/*
 * Page numbers [*first, *first + *count) of a byte range; false unless it lies below the limit,
 * above page 0.
 */
static bool page_range(const struct space *space, uint64_t addr, uint64_t len, uint64_t *first,
		       uint64_t *count)
{
	if (!len || addr >= space->limit || len > space->limit - addr)
		return false;
	*first = addr / space->page;
	*count = (addr + len - 1) / space->page - *first + 1;
	return *first > 0;
}

static bool pages_all(const struct space *space, uint64_t first, uint64_t count, uint8_t mask,
		      uint8_t value)
{
	for (uint64_t i = first; i < first + count; i++)
		if ((space->pages[i] & mask) != value)
			return false;
	return true;
}

/* First fit from where the last search ended, once around. 0: no room. */
static uint64_t dpa_mem_find_free(struct space *space, uint64_t count)
{
	uint64_t total = space->limit / space->page, start = space->next / space->page, run = 0;

	for (uint64_t step = 0, i = start; step < total + count; step++, i++) {
		if (i >= total) {
			i = 1;
			run = 0;
		}
		run = space->pages[i] ? 0 : run + 1;
		if (run == count) {
			space->next = (i + 1) * space->page;
			return i + 1 - count;
		}
	}
	return 0;
}

/* Fresh zeroed pages: what an earlier mapping left is dropped. */
static int pages_replace(struct space *space, uint64_t first, uint64_t count, unsigned int rights)
{
	void *at = space->base + first * space->page;

	if (mmap(at, count * space->page, host_prot(rights),
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return -ENOMEM;
	memset(space->pages + first, (int)rights, count);
	return 0;
}

int vb_space_map(struct space *space, uint64_t *addr, uint64_t len, unsigned int rights,
		 uint64_t guard)
{
	uint64_t first = 0, count = 0;
	int err = 0;

	if (!len || len > space->limit || *addr & (space->page - 1))
		return -EINVAL;
	len = dpa_mem_page_up(space, len);
	pthread_mutex_lock(&space->lock);
	if (!*addr) {
		count = len / space->page + guard;
		first = dpa_mem_find_free(space, count);
		if (!first)
			err = -ENOMEM;
	} else if (!page_range(space, *addr, len, &first, &count)) {
		err = -EINVAL;
	} else if (!pages_all(space, first, count, 0xff, 0)) {
		err = -EEXIST;
	}
	if (!err && !*addr) {
		memset(space->pages + first, PAGE_RESERVED, guard);
		first += guard;
		count -= guard;
	}
	if (!err)
		err = pages_replace(space, first, count, rights);
	pthread_mutex_unlock(&space->lock);
	if (!err)
		*addr = first * space->page;
	return err;
}

int vb_space_open(struct space *space, uint64_t addr, uint64_t len)
{
	uint64_t first, count;
	int err = -EINVAL;

	if (addr & (space->page - 1) || !page_range(space, addr, len, &first, &count))
		return err;
	pthread_mutex_lock(&space->lock);
	if (pages_all(space, first, count, 0xff, PAGE_RESERVED))
		err = pages_replace(space, first, count, VB_DPA_READ | VB_DPA_WRITE);
	pthread_mutex_unlock(&space->lock);
	return err;
}

static int space_protect(struct space *space, uint64_t addr, uint64_t len, unsigned int rights)
{
	uint64_t first, count;
	int err = 0;

	if (addr & (space->page - 1) || !page_range(space, addr, len, &first, &count))
		return -EINVAL;
	pthread_mutex_lock(&space->lock);
	for (uint64_t i = first; i < first + count && !err; i++)
		if (!space->pages[i] || space->pages[i] & PAGE_RESERVED)
			err = -ENOMEM;
	if (!err && mprotect(space->base + addr, count * space->page, host_prot(rights)))
		err = -errno;
	if (!err)
		memset(space->pages + first, (int)rights, count);
	pthread_mutex_unlock(&space->lock);
	return err;
}

int vb_space_unmap(struct space *space, uint64_t addr, uint64_t len)
{
	uint64_t first, count;
	int err = 0;

	if (addr & (space->page - 1) || !page_range(space, addr, len, &first, &count))
		return -EINVAL;
	pthread_mutex_lock(&space->lock);
	err = pages_replace(space, first, count, 0);
	pthread_mutex_unlock(&space->lock);
	return err;
}

bool vb_space_holds(struct space *space, uint64_t addr, uint64_t len, unsigned int rights)
{
	uint64_t first, count;
	bool holds;

	if (!page_range(space, addr, len, &first, &count))
		return false;
	pthread_mutex_lock(&space->lock);
	holds = pages_all(space, first, count, (uint8_t)rights, (uint8_t)rights);
	pthread_mutex_unlock(&space->lock);
	return holds;
}

/* ---- the interface ---- */

/* Text never changes under the decoded and translated copies of it. */
static bool touches_text(const struct vb_dpa_process *process, uint64_t addr, uint64_t len)
{
	uint64_t page = process->space.page;

	for (unsigned int i = 0; i < process->text.nranges; i++) {
		const struct vb_text_range *r = &process->text.ranges[i];

		if (addr < ((r->end + page - 1) & ~(page - 1)) &&
		    (r->lo & ~(page - 1)) < addr + len)
			return true;
	}
	return false;
}

static bool rights_valid(unsigned int rights)
{
	return rights == VB_DPA_READ || rights == (VB_DPA_READ | VB_DPA_WRITE);
}

int vb_dpa_mem_map(struct vb_dpa_process *process, uint64_t *addr, uint64_t len,
		   unsigned int rights)
{
	return rights_valid(rights) ? vb_space_map(&process->space, addr, len, rights, 0) : -EINVAL;
}

int vb_dpa_mem_map_shareable(struct vb_dpa_process *process, uint64_t *addr, uint64_t len)
{
	struct space *space = &process->space;
	int err = vb_space_map(space, addr, len, VB_DPA_READ | VB_DPA_WRITE, 0);

	return err ? err : vb_space_into_file(space, *addr, dpa_mem_page_up(space, len));
}

int vb_dpa_mem_protect(struct vb_dpa_process *process, uint64_t addr, uint64_t len,
		       unsigned int rights)
{
	if (!rights_valid(rights) || touches_text(process, addr, len) ||
	    vb_space_is_filed(&process->space, addr, len))
		return -EINVAL;
	return space_protect(&process->space, addr, len, rights);
}

int vb_dpa_mem_unmap(struct vb_dpa_process *process, uint64_t addr, uint64_t len)
{
	if (touches_text(process, addr, len) || vb_space_is_filed(&process->space, addr, len))
		return -EINVAL;
	return vb_space_unmap(&process->space, addr, len);
}

struct vb_dpa_view vb_dpa_mem_host(struct vb_dpa_process *process, uint64_t addr, uint64_t len,
				   unsigned int rights)
{
	if (!rights || !vb_space_holds(&process->space, addr, len, rights))
		return (struct vb_dpa_view){ 0 };
	return vb_space_view(&process->space, addr);
}

static bool dpa_mem_is_mapped(uint8_t rights)
{
	return rights & (VB_DPA_READ | VB_DPA_WRITE | VB_DPA_EXEC);
}

bool vb_dpa_mem_next(struct vb_dpa_process *process, uint64_t addr, struct vb_dpa_range *out)
{
	struct space *space = &process->space;
	uint64_t total = space->limit / space->page, first = addr / space->page, end;
	bool found;

	pthread_mutex_lock(&space->lock);
	while (first < total && !dpa_mem_is_mapped(space->pages[first]))
		first++;
	found = first < total;
	for (end = first; end < total && space->pages[end] == space->pages[first];)
		end++;
	if (found)
		*out = (struct vb_dpa_range){ first * space->page, (end - first) * space->page,
					      space->pages[first] };
	pthread_mutex_unlock(&space->lock);
	return found;
}

/* Threads of the guest may be writing it: which of the bytes are the new ones is theirs to know. */
#ifdef VB_TSAN
VB_GUEST_ACCESS static void copy_shared(void *to, const void *from, uint64_t len)
{
	uint8_t *t = to;
	const volatile uint8_t *f = from;

	while (len--)
		*t++ = *f++;
}
#else
static void copy_shared(void *to, const void *from, uint64_t len)
{
	memcpy(to, from, len);
}
#endif

int vb_space_read(struct space *space, uint64_t addr, void *to, uint64_t len)
{
	uint64_t first, count;
	int err = 0;

	if (!len)
		return 0;
	if (!page_range(space, addr, len, &first, &count))
		return -EFAULT;
	/*
	 * The lock is kept over the copy: what was checked stays mapped, whoever unmaps meanwhile.
	 */
	pthread_mutex_lock(&space->lock);
	for (uint64_t i = first; i < first + count && !err; i++)
		if (!(space->pages[i] & (VB_DPA_READ | VB_DPA_EXEC)))
			err = -EFAULT;
	if (!err)
		copy_shared(to, space->base + addr, len);
	pthread_mutex_unlock(&space->lock);
	return err;
}

int vb_dpa_mem_read(struct vb_dpa_process *process, uint64_t addr, void *to, uint64_t len)
{
	return vb_space_read(&process->space, addr, to, len);
}

int vb_dpa_mem_write(struct vb_dpa_process *process, uint64_t addr, const void *from, uint64_t len)
{
	struct space *space = &process->space;
	uint64_t first, count;
	int err = 0;

	if (!len)
		return 0;
	if (!page_range(space, addr, len, &first, &count) || touches_text(process, addr, len))
		return -EFAULT;
	/*
	 * Read-only pages are opened for the copy; the lock keeps others from changing rights
	 * meanwhile.
	 */
	pthread_mutex_lock(&space->lock);
	if (!pages_all(space, first, count, VB_DPA_READ, VB_DPA_READ))
		err = -EFAULT;
	if (!err && mprotect(space->base + first * space->page, count * space->page,
			     PROT_READ | PROT_WRITE))
		err = -errno;
	if (!err)
		memcpy(space->base + addr, from, len);
	for (uint64_t i = first; !err && i < first + count; i++)
		if (!(space->pages[i] & VB_DPA_WRITE))
			mprotect(space->base + i * space->page, space->page,
				 host_prot(space->pages[i]));
	pthread_mutex_unlock(&space->lock);
	return err;
}
