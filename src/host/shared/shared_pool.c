// SPDX-License-Identifier: MIT
/*
 * Owns the card's own memory that is shared from the start: one memfd of the process, given out in
 * blocks, each mapped by itself.
 *
 * A block is reserved when it is given out, so that no access meets a full system, and punched out
 * of the file when it is freed, so that the next one is zero. A forked child keeps its parent's
 * blocks mapped, as it would a real card's memory, and has a file of its own for new ones.
 *
 * No handler runs in a thread that has the lock: one that forks would return, in the child, to the middle
 * of what is empty there.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/shared/arena.h"
#include "base/cancel.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/mask.h"
#include "host/shared/shared.h"

enum { POOL_BYTES = 256 << 20, FIRST = VB_SHARED_PAGE }; /* no block is at 0 */

static struct {
	pthread_mutex_t lock;
	struct vb_file file; /* fd -1: not made yet */
	bool failed;
	struct vb_arena arena; /* of offsets */
} pool = { PTHREAD_MUTEX_INITIALIZER, { .fd = -1 } };

static void pool_forked(void)
{
	vb_file_close(&pool.file);
	pthread_mutex_init(&pool.lock, NULL);
	pool.failed = false;
	memset(&pool.arena, 0, sizeof(pool.arena)); /* another thread may have been at it */
}

VB_STAGE(POOL, .child = pool_forked);

static void pool_lock(sigset_t *before)
{
	vb_signal_block(before);
	pthread_mutex_lock(&pool.lock);
}

static void pool_unlock(const sigset_t *before)
{
	pthread_mutex_unlock(&pool.lock);
	vb_signal_unblock(before);
}

static size_t shared_pool_whole_pages(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) & ~(page - 1);
}

/* With the lock. */
static int make_pool(void)
{
	int fd = vb_shared_memfd("verbatim-card", POOL_BYTES), ret;

	if (fd < 0)
		return fd;
	ret = vb_file_keep(&pool.file, fd);
	if (ret)
		return ret;
	ret = vb_arena_init(&pool.arena, FIRST, POOL_BYTES - FIRST);
	if (ret)
		vb_file_close(&pool.file);
	return ret;
}

static void shared_pool_give_back(uint64_t offset, size_t bytes)
{
	if (vb_file_is_open(&pool.file))
		fallocate(pool.file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			  (off_t)bytes);
	vb_arena_free(&pool.arena, offset);
}

/* With the lock: map a block, or NULL. */
static void *shared_pool_take(size_t bytes)
{
	uint64_t offset;
	void *at;

	if (pool.file.fd < 0 && !pool.failed)
		pool.failed = make_pool();
	/* The program may have closed it. */
	if (pool.failed || !vb_file_is_open(&pool.file))
		return NULL;
	offset = vb_arena_alloc(&pool.arena, bytes, (uint64_t)sysconf(_SC_PAGESIZE));
	if (!offset)
		return NULL;
	at = MAP_FAILED;
	if (!posix_fallocate(pool.file.fd, (off_t)offset, (off_t)bytes))
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool.file.fd,
			  (off_t)offset);
	if (at == MAP_FAILED || vb_shared_add(at, bytes, pool.file.fd, (off_t)offset)) {
		if (at != MAP_FAILED)
			munmap(at, bytes);
		shared_pool_give_back(offset, bytes);
		return NULL;
	}
	return at;
}

void *vb_shared_alloc(size_t bytes)
{
	VB_NO_CANCEL;
	sigset_t before;
	void *at = NULL;

	bytes = shared_pool_whole_pages(bytes);
	if (!bytes)
		return NULL;
	if (vb_shared_wanted()) {
		pool_lock(&before);
		at = shared_pool_take(bytes);
		pool_unlock(&before);
	}
	if (at)
		return at;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

void vb_shared_free(void *at, size_t bytes)
{
	VB_NO_CANCEL;
	struct vb_shared_piece piece;
	bool shared = vb_shared_find(at, 1, &piece);
	sigset_t before;

	bytes = shared_pool_whole_pages(bytes);
	vb_shared_remove(at, bytes);
	munmap(at, bytes);
	vb_shared_forget(at, bytes);
	if (!shared)
		return;
	pool_lock(&before);
	/* Not in a child that inherited it: what the file holds is its parent's. */
	if (piece.dev == pool.file.dev && piece.ino == pool.file.ino)
		shared_pool_give_back(piece.offset, bytes);
	pool_unlock(&before);
}
