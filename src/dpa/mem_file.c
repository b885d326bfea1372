// SPDX-License-Identifier: MIT
/*
 * Owns guest memory that lies in a file: pages of a space that other processes of the user can map,
 * so that what they do by a memory key is loads and stores (host/shared/shared.h).
 *
 *	guest address = offset in the memfd of the space      known to peers: once a key covers it
 *
 * Such pages are readable and writable, and stay so until the space goes; then they are punched out,
 * because a peer may keep the file mapped. Where a file costs something that private memory does
 * not, the pages are private as all others: where it cannot be had, where the kernel does not
 * overcommit (a page that is not there would be a signal, where private memory is refused when it is
 * mapped), and where it gives huge pages to private memory only.
 *
 * A forked child has a copy of its own, as of private memory: it is made before the fork, of what
 * was written, and the child moves it over the file's pages. Where there is no copy (no room; a
 * handler of a fork forks) it maps the file's pages privately: it then sees its parent's later writes
 * to pages that it has not written itself. A child made past fork() shares the pages with its parent,
 * and leaves the file as it is.
 */
#include "dpa/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/fork.h"
#include "host/shared/shared.h"
#include "host/signals.h"

/* All spaces with such pages. Held over a fork, so what is below the lock does not change then. */
static struct {
	pthread_mutex_t lock;
	struct space *first;
} filed = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Handlers of signals may fork: none runs in a thread that has the lock. */
static void mem_file_lock(sigset_t *before)
{
	vb_signal_block(before);
	pthread_mutex_lock(&filed.lock);
}

static void mem_file_unlock(const sigset_t *before)
{
	pthread_mutex_unlock(&filed.lock);
	vb_signal_unblock(before);
}

/* ---- whether ---- */

/* What a file of the kernel says; "" where there is none. */
static void kernel_says(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

	text[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

#define HUGE "/sys/kernel/mm/transparent_hugepage/"

/* huge: the pages must be asked for. */
static bool costs_nothing(bool *huge)
{
	char text[128];

	kernel_says("/proc/sys/vm/overcommit_memory", text, sizeof(text));
	if (text[0] == '2')
		return false;
	kernel_says(HUGE "enabled", text, sizeof(text));
	*huge = strstr(text, "[always]");
	if (!*huge)
		return true;
	kernel_says(HUGE "shmem_enabled", text, sizeof(text));
	return text[0] && !strstr(text, "[never]") && !strstr(text, "[deny]");
}

/* ---- pages of a file ---- */

static int map_private(struct space *space, uint64_t addr, uint64_t len)
{
	return mmap(space->base + addr, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED
		       ? -ENOMEM
		       : 0;
}

/* With the lock. */
static bool mem_file_make_file(struct space *space)
{
	int fd;

	if (space->file.fd >= 0)
		return space->owner == getpid() && vb_file_is_open(&space->file);
	fd = vb_shared_memfd("verbatim-dpa", space->limit);
	if (fd < 0 || vb_file_keep(&space->file, fd))
		return false;
	space->owner = getpid();
	space->next_filed = filed.first;
	filed.first = space;
	return true;
}

int vb_space_into_file(struct space *space, uint64_t addr, uint64_t len)
{
	VB_NO_CANCEL;
	bool huge = false;
	sigset_t before;
	int ret = 0;

	if (!vb_shared_wanted() || !costs_nothing(&huge))
		return 0;
	mem_file_lock(&before);
	if (space->num_filed == SPACE_FILED || !mem_file_make_file(space))
		goto unlock;
	if (mmap(space->base + addr, len, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_NORESERVE | MAP_FIXED, space->file.fd,
		 (off_t)addr) == MAP_FAILED) {
		ret = map_private(space, addr, len);
		goto unlock;
	}
	if (huge)
		madvise(space->base + addr, len, MADV_HUGEPAGE);
	space->filed[space->num_filed++] = (struct filed_range){ .addr = addr, .len = len };
unlock:
	mem_file_unlock(&before);
	return ret;
}

/* With the lock. The range that all of it lies in, or NULL. */
static const struct filed_range *range_of(const struct space *space, uint64_t addr, uint64_t len)
{
	for (unsigned int i = 0; i < space->num_filed; i++) {
		const struct filed_range *r = &space->filed[i];

		if (addr >= r->addr && addr - r->addr < r->len && len <= r->addr + r->len - addr)
			return r;
	}
	return NULL;
}

bool vb_space_is_filed(struct space *space, uint64_t addr, uint64_t len)
{
	bool is = false;
	sigset_t before;

	mem_file_lock(&before);
	for (unsigned int i = 0; i < space->num_filed; i++)
		is |= addr < space->filed[i].addr + space->filed[i].len &&
		      space->filed[i].addr < addr + len;
	mem_file_unlock(&before);
	return is;
}

/* With the lock, whole pages: those that peers do not know yet. */
static void show_pages(struct space *space, uint64_t addr, uint64_t len)
{
	struct vb_shared_piece piece;

	for (; len; addr += piece.len, len -= piece.len)
		if (!vb_shared_find(space->base + addr, len, &piece) &&
		    vb_shared_add(space->base + addr, piece.len, space->file.fd, (off_t)addr))
			return; /* peers go other ways */
}

void vb_dpa_mem_share(struct vb_dpa_process *process, uint64_t addr, uint64_t len)
{
	VB_NO_CANCEL;
	struct space *space = &process->space;
	uint64_t first = addr & ~(space->page - 1);
	sigset_t before;

	mem_file_lock(&before);
	/* The program may have closed the descriptor, and have another file there. */
	if (range_of(space, addr, len) && vb_file_is_open(&space->file))
		show_pages(space, first,
			   ((addr + len + space->page - 1) & ~(space->page - 1)) - first);
	mem_file_unlock(&before);
}

/* ---- what was written ---- */

/* Without a descriptor: the first page from addr on that is in memory, or is not; or end. */
static uint64_t find_in_memory(struct space *space, uint64_t addr, uint64_t end, bool is)
{
	unsigned char there[512];

	while (addr < end) {
		uint64_t count = (end - addr) / space->page;

		count = count < sizeof(there) ? count : sizeof(there);
		if (mincore(space->base + addr, count * space->page, there))
			return is ? addr : end; /* whoever reads it finds out */
		for (uint64_t i = 0; i < count; i++, addr += space->page)
			if ((there[i] & 1) == is)
				return addr;
	}
	return end;
}

/* With the lock. The first written pages of [addr, end): [*from, *to), empty where there are none. */
static void find_written(struct space *space, uint64_t addr, uint64_t end, uint64_t *from,
			 uint64_t *to)
{
	*from = *to = end;
	if (vb_file_is_open(&space->file)) {
		off_t at = lseek(space->file.fd, (off_t)addr, SEEK_DATA);
		bool none = at < 0 && errno == ENXIO;

		if (none || (at >= 0 && (uint64_t)at >= end))
			return;
		if (at >= 0) {
			*from = (uint64_t)at;
			at = lseek(space->file.fd, at, SEEK_HOLE);
			if (at > 0 && (uint64_t)at < end)
				*to = (uint64_t)at;
			return;
		}
	}
	*from = find_in_memory(space, addr, end, true);
	*to = find_in_memory(space, *from, end, false);
}

bool vb_space_written(struct space *space, uint64_t addr, uint64_t *from, uint64_t *to)
{
	const struct filed_range *range;
	sigset_t before;

	mem_file_lock(&before);
	range = range_of(space, addr, 1);
	if (range)
		find_written(space, addr, range->addr + range->len, from, to);
	mem_file_unlock(&before);
	return range;
}

/* ---- the end ---- */

void vb_space_leave_file(struct space *space)
{
	VB_NO_CANCEL;
	struct space **at = &filed.first;
	sigset_t before;

	mem_file_lock(&before);
	while (*at && *at != space)
		at = &(*at)->next_filed;
	if (*at)
		*at = space->next_filed;
	mem_file_unlock(&before);
	for (unsigned int i = 0; i < space->num_filed; i++) {
		const struct filed_range *r = &space->filed[i];

		vb_shared_remove(space->base + r->addr, r->len);
		/* Reserved on, until all of the space is unmapped. */
		mmap(space->base + r->addr, r->len, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		vb_shared_forget(space->base + r->addr, r->len);
	}
	/* What the file holds is the owner's, in a child made past fork(). */
	if (space->owner == getpid() && vb_file_is_open(&space->file) && space->num_filed)
		fallocate(space->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			  (off_t)space->limit);
	space->num_filed = 0;
	vb_file_close(&space->file);
}

/* ---- forks ---- */

static void copy_range(struct space *space, struct filed_range *range)
{
	uint64_t end = range->addr + range->len, from, to;
	char *copy = mmap(NULL, range->len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	range->copy = copy == MAP_FAILED ? NULL : copy;
	for (uint64_t at = range->addr; range->copy && at < end; at = to) {
		find_written(space, at, end, &from, &to);
		memcpy(copy + (from - range->addr), space->base + from, to - from);
	}
}

static void drop_copy(struct filed_range *range)
{
	if (range->copy)
		munmap(range->copy, range->len);
	range->copy = NULL;
}

static void spaces_prepare(void)
{
	pthread_mutex_lock(&filed.lock);
	for (struct space *s = filed.first; s; s = s->next_filed)
		for (unsigned int i = 0; i < s->num_filed; i++)
			copy_range(s, &s->filed[i]);
}

static void spaces_parent(void)
{
	for (struct space *s = filed.first; s; s = s->next_filed)
		for (unsigned int i = 0; i < s->num_filed; i++)
			drop_copy(&s->filed[i]);
	pthread_mutex_unlock(&filed.lock);
}

static void mem_file_take_copy(struct space *space, const struct filed_range *range)
{
	void *at = space->base + range->addr, *own = MAP_FAILED;

	if (range->copy)
		own = mremap(range->copy, range->len, range->len, MREMAP_MAYMOVE | MREMAP_FIXED,
			     at);
	if (own == MAP_FAILED && vb_file_is_open(&space->file))
		own = mmap(at, range->len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, space->file.fd,
			   (off_t)range->addr);
	/* Nothing rather than the parent's memory: what the child does there is its own fault. */
	if (own == MAP_FAILED)
		mmap(at, range->len, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void spaces_forked(void)
{
	for (struct space *s = filed.first; s; s = s->next_filed) {
		for (unsigned int i = 0; i < s->num_filed; i++)
			mem_file_take_copy(s, &s->filed[i]);
		s->num_filed = 0;
		vb_file_close(&s->file);
	}
	filed.first = NULL;
	pthread_mutex_init(&filed.lock, NULL);
}

VB_STAGE(SPACES, .prepare = spaces_prepare, .parent = spaces_parent, .child = spaces_forked);
