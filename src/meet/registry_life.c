// SPDX-License-Identifier: MIT
/* Owns what registry_life.h promises: taking, keeping and asking for the locks of slots. */
#include "meet/registry_life.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cancel.h"
#include "meet/registry.h"

enum { PAGE = 4096 };

/* By a system call: fcntl(2) of libc is one that threads can be cancelled in. */
static int ask_kernel(int fd, int command, struct flock *lock)
{
	return syscall(SYS_fcntl, fd, command, lock) ? -errno : 0;
}

static struct flock bytes(uint32_t first, uint32_t count)
{
	return (struct flock){
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = count
	};
}

int vb_life_lock(int fd, uint32_t slot)
{
	struct flock lock = bytes(slot, 1);
	int ret = ask_kernel(fd, F_OFD_SETLK, &lock);

	return ret == -EACCES ? -EAGAIN : ret; /* POSIX allows both */
}

int vb_life_keep(struct vb_life *life, int fd)
{
	void *at = mmap(NULL, PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	int ret = at == MAP_FAILED || madvise(at, PAGE, MADV_DONTFORK) ? -errno : 0;

	if (ret && at != MAP_FAILED)
		munmap(at, PAGE);
	vb_sys_close(fd);
	if (!ret)
		*life = (struct vb_life){ at, getpid() };
	return ret;
}

void vb_life_end(struct vb_life *life)
{
	if (life->at && life->owner == getpid())
		munmap(life->at, PAGE);
	*life = (struct vb_life){ 0 };
}

static enum vb_life_state state_of(int fd, uint32_t first, uint32_t count)
{
	struct flock lock = bytes(first, count);

	if (ask_kernel(fd, F_OFD_GETLK, &lock))
		return VB_LIFE_UNKNOWN;
	return lock.l_type == F_UNLCK ? VB_LIFE_OVER : VB_LIFE_HELD;
}

enum vb_life_state vb_life_of(int fd, uint32_t slot)
{
	return state_of(fd, slot, 1);
}

enum vb_life_state vb_life_of_any(int fd)
{
	return state_of(fd, 0, VB_SLOTS);
}
