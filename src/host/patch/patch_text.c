// SPDX-License-Identifier: MIT
/*
 * Owns the change of a site's bytes.
 *
 * The bytes of a site are changed in this order, with all cores made to fetch anew in between:
 * first byte := hlt; the others; first byte. So a thread executes the old instruction, the new one,
 * or hlt, which faults, and is repeated when the change is over. `changes` of the site is odd
 * meanwhile.
 *
 * Text is written through /proc/self/mem, so that no mapping of it gets writable. Whoever calls has the
 * lock of patch.c, and signals blocked.
 */
#include "host/patch/patch.h"

#if defined(__x86_64__)

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "host/fault.h"
#include "base/file.h"

static bool serialize(void)
{
	return !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}

/* Looked at afterwards: a program that closes all descriptors closes this one, too. */
static bool patch_text_write_text(int fd, uintptr_t at, const uint8_t *bytes, size_t n)
{
	ssize_t done;

	do
		done = vb_sys_pwrite(fd, bytes, n, (off_t)at);
	while (done < 0 && errno == EINTR);
	return done == (ssize_t)n && !memcmp((const void *)at, bytes, n);
}

static int open_text(void)
{
	return vb_file_above_stdio(vb_proc_open("mem", O_RDWR));
}

/* Nothing is left but to do it. */
static void force_text(uintptr_t at, const uint8_t *bytes, size_t n)
{
	for (bool done = false; !done; sched_yield()) {
		int fd = open_text();

		done = fd >= 0 && patch_text_write_text(fd, at + 1, bytes + 1, n - 1) &&
		       serialize() && patch_text_write_text(fd, at, bytes, 1);
		if (fd >= 0)
			vb_sys_close(fd);
	}
}

/*
 * From `was` to `will`, n bytes. The other bytes are first written as they are: then the pages are
 * ours already, and the kernel has no reason left to refuse the rest.
 */
bool vb_text_change(struct vb_site *site, uintptr_t at, const uint8_t *was, const uint8_t *will,
		    size_t n)
{
	const uint8_t hlt = VB_HLT;
	bool done = false;
	int fd;

	/* A thread that executes the hlt must come to us. */
	if (!vb_fault_is_armed() || vb_proc_blocks_faults())
		return false;
	fd = open_text();
	if (fd < 0)
		return false;
	if (memcmp((const void *)at, was, n) ||
	    !patch_text_write_text(fd, at + 1, was + 1, n - 1) || !serialize()) {
		vb_sys_close(fd);
		return false;
	}
	atomic_fetch_add_explicit(&site->changes, 1, memory_order_seq_cst);
	if (patch_text_write_text(fd, at, &hlt, 1)) {
		done = serialize() && patch_text_write_text(fd, at + 1, will + 1, n - 1) &&
		       serialize() && patch_text_write_text(fd, at, will, 1);
		if (!done)
			force_text(at, was, n);
		serialize();
	}
	atomic_fetch_add_explicit(&site->changes, 1, memory_order_seq_cst);
	vb_sys_close(fd);
	return done;
}

/*
 * Only in a child that was forked past libc, while its parent was changing the site. Several threads
 * of it may be here, and write the same; one of them ends the change.
 */
void vb_text_finish(struct vb_site *site, const struct vb_tramp *tramp, uint32_t changes)
{
	VB_NO_CANCEL;
	int fd = open_text();

	if (fd < 0)
		return;
	if (patch_text_write_text(fd, tramp->site + 1, tramp->code + 1, tramp->changed - 1u)) {
		serialize();
		if (patch_text_write_text(fd, tramp->site, tramp->code, 1)) {
			serialize();
			atomic_compare_exchange_strong_explicit(&site->changes, &changes,
								changes + 1, memory_order_seq_cst,
								memory_order_relaxed);
		}
	}
	vb_sys_close(fd);
}

/* Threads that come to the site meanwhile are at the breakpoint, as they would be at a hlt. */
bool vb_text_change_below(const struct vb_tramp *tramp)
{
	int fd = open_text();
	bool done;

	if (fd < 0)
		return false;
	done = *(const uint8_t *)tramp->site == VB_INT3 &&
	       patch_text_write_text(fd, tramp->site + 1, tramp->code + 1, tramp->changed - 1u) &&
	       serialize();
	vb_sys_close(fd);
	return done;
}

#endif
