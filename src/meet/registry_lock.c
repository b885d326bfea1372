// SPDX-License-Identifier: MIT
/*
 * Owns the lock on the whole of the registry file (flock), under which slots are taken and reaped and EU groups
 * change: waiting for it, and saying which process keeps it. The kernel drops it when its holder dies.
 *
 * The lock belongs to the open file, so all threads of a process have it together: own_lock is for
 * them. No handler of the program runs while either is held, because it might leave by a jump. Waiting is
 * in small sleeps with neither held, so that it can be interrupted and has a limit.
 *
 * Called by the other files of this folder. That a process is there is said by the lock of its slot (slot_lock.h).
 */
#include <errno.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "host/signals.h"
#include "meet/registry_dir.h"
#include "meet/registry_file.h"

struct vb_patience vb_patience_begin(unsigned int ms)
{
	return (struct vb_patience){ .end = vb_now_ns() + ms * 1000000ull, .pause_ns = 50000 };
}

bool vb_patience_wait(struct vb_patience *p)
{
	if (vb_now_ns() >= p->end)
		return false;
	vb_pause_ns((uint64_t)p->pause_ns);
	if (p->pause_ns < 5000000)
		p->pause_ns *= 2;
	return true;
}

void vb_lock_count_turn(struct vb_registry_file *file)
{
	atomic_fetch_add_explicit(&file->turns, 1, memory_order_relaxed);
}

uint64_t vb_lock_turns(int fd)
{
	uint64_t turns;
	off_t at = offsetof(struct vb_registry_file, turns);

	return pread(fd, &turns, sizeof(turns), at) == sizeof(turns) ? turns : 0;
}

bool vb_patience_renew(struct vb_patience *p, const char *root, const char *name,
		       const struct vb_file *lock, uint64_t turns)
{
	pid_t holder;

	if (!p->asked || p->ino != lock->ino || p->turns != turns) {
		p->asked = true;
		p->ino = lock->ino;
		p->turns = turns;
		p->end = vb_now_ns() + VB_LOCK_JOIN_MS * 1000000ull;
		return true;
	}
	holder = vb_dir_lock_holder(lock);
	if (holder > 0)
		vb_error(
			"process %d keeps %s/%s/registry locked; is it stopped? Let it go on, or end it",
			(int)holder, root, name);
	else
		vb_error("%s/%s/registry stays locked, by a process that is not visible from here",
			 root, name);
	return false;
}

/* With signals blocked: 0, -EWOULDBLOCK, or -EBADF where the program has closed our descriptor. */
static int registry_try_lock(struct vb_registry *registry)
{
	int ret = 0;

	if (pthread_mutex_trylock(&registry->own_lock))
		return -EWOULDBLOCK;
	if (!vb_file_is_open(&registry->place.lock))
		ret = -EBADF;
	else if (flock(registry->place.lock.fd, LOCK_EX | LOCK_NB))
		ret = -errno;
	if (ret)
		pthread_mutex_unlock(&registry->own_lock);
	else
		vb_lock_count_turn(registry->place.file);
	return ret;
}

int vb_registry_lock(struct vb_registry *registry, unsigned int ms, sigset_t *before)
{
	struct vb_patience left = vb_patience_begin(ms);
	int ret;

	for (;;) {
		vb_signal_block(before);
		ret = registry_try_lock(registry);
		if (!ret)
			return 0;
		vb_signal_unblock(before);
		if (ret != -EWOULDBLOCK)
			return ret;
		if (!vb_patience_wait(&left) &&
		    (ms < VB_LOCK_JOIN_MS ||
		     !vb_patience_renew(&left, registry->root, registry->place.name,
					&registry->place.lock,
					vb_lock_turns(registry->place.lock.fd))))
			return -ETIMEDOUT;
	}
}

void vb_registry_unlock(struct vb_registry *registry, const sigset_t *before)
{
	flock(registry->place.lock.fd, LOCK_UN);
	pthread_mutex_unlock(&registry->own_lock);
	vb_signal_unblock(before);
}
