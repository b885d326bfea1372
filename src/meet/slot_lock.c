// SPDX-License-Identifier: MIT
/* Owns what slot_lock.h promises: taking, keeping and asking for the locks of slots. */
#include "meet/slot_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "meet/registry.h"

enum { PAGE = 4096 };

/* By a system call: fcntl(2) of libc is one that threads can be cancelled in. */
static int slot_lock_ask(int fd, int command, struct flock *lock)
{
	return syscall(SYS_fcntl, fd, command, lock) ? -errno : 0;
}

static struct flock slot_lock_bytes(uint32_t first, uint32_t count)
{
	return (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count
	};
}

int vb_slot_lock_take(int fd, uint32_t slot)
{
	struct flock lock = slot_lock_bytes(slot, 1);
	int ret = slot_lock_ask(fd, F_OFD_SETLK, &lock);

	return ret == -EACCES ? -EAGAIN : ret; /* POSIX allows both */
}

int vb_slot_lock_keep(struct vb_slot_lock *lock, int fd)
{
	void *at = mmap(NULL, PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	int ret = at == MAP_FAILED || madvise(at, PAGE, MADV_DONTFORK) ? -errno : 0;

	if (ret && at != MAP_FAILED)
		munmap(at, PAGE);
	vb_sys_close(fd);
	if (!ret)
		*lock = (struct vb_slot_lock){ at, getpid() };
	return ret;
}

void vb_slot_lock_end(struct vb_slot_lock *lock)
{
	if (lock->at && lock->owner == getpid())
		munmap(lock->at, PAGE);
	*lock = (struct vb_slot_lock){ 0 };
}

static enum vb_slot_lock_state slot_lock_state(int fd, uint32_t first, uint32_t count)
{
	struct flock lock = slot_lock_bytes(first, count);

	if (slot_lock_ask(fd, F_OFD_GETLK, &lock))
		return VB_SLOT_UNKNOWN;
	return lock.l_type == F_UNLCK ? VB_SLOT_FREE : VB_SLOT_HELD;
}

enum vb_slot_lock_state vb_slot_lock_of(int fd, uint32_t slot)
{
	return slot_lock_state(fd, slot, 1);
}

enum vb_slot_lock_state vb_slot_lock_any(int fd)
{
	return slot_lock_state(fd, 0, VB_SLOTS);
}
