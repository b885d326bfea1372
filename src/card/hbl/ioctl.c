// SPDX-License-Identifier: MIT
/*
 * Owns what a program does with /dev/accel/accelN: its ioctls. The preload of `verbatim run` leads
 * the program's open(), ioctl() and close() here.
 *
 * Two numbers name the memory ioctl: that of the driver under drivers/misc (until Linux 6.6), and
 * that of the DRM one.
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <misc/habanalabs.h>
#include <sys/ioctl.h>

#include "host/fault.h"

/* The fifth of the driver's own numbers, which begin at 0x40; 0x45 is HL_DEBUG. */
#define DRM_HL_MEMORY  _IOWR('d', 0x44, union hl_mem_args)
#define MEM_FORCE_HINT 0x8

static int ioctl_map(struct vb_hbl_memory *memory, const struct hl_mem_in *in, uint64_t *va)
{
	bool forced = in->flags & MEM_FORCE_HINT;

	if (in->flags & HL_MEM_USERPTR)
		return vb_hbl_memory_map_host(
			memory, (void *)(uintptr_t)in->map_host.host_virt_addr,
			in->map_host.mem_size, in->map_host.hint_addr, forced, va);
	return vb_hbl_memory_map(memory, in->map_device.handle, in->map_device.hint_addr, forced,
				 va);
}

/* result: the handle or the address, where the operation has one. */
static int ioctl_operate(struct vb_hbl_memory *memory, const struct hl_mem_in *in, uint64_t *result)
{
	switch (in->op) {
	case HL_MEM_OP_ALLOC:
		if (in->alloc.page_size & (in->alloc.page_size - 1))
			return -EINVAL;
		return vb_hbl_memory_alloc(memory, in->alloc.mem_size, result);
	case HL_MEM_OP_FREE:
		return vb_hbl_memory_free(memory, in->free.handle);
	case HL_MEM_OP_MAP:
		return ioctl_map(memory, in, result);
	case HL_MEM_OP_UNMAP:
		return vb_hbl_memory_unmap(memory, in->unmap.device_virt_addr);
	default:
		return -ENOTTY;
	}
}

/*
 * The arguments are the program's: copied in and out as by a kernel, and known to be writable
 * before anything is done.
 */
static int memory_ioctl(struct vb_hbl_memory *memory, union hl_mem_args *args)
{
	union hl_mem_args copy, answer = { 0 };
	uint64_t result = 0;
	int ret;

	if (vb_fault_copy(&copy, args, sizeof(copy)) || vb_fault_copy(args, &copy, sizeof(copy)))
		return -EFAULT;
	ret = ioctl_operate(memory, &copy.in, &result);
	if (ret || !result)
		return ret;
	answer.out.device_virt_addr = result; /* and .handle: the same place */
	return vb_fault_copy(args, &answer, sizeof(answer));
}

int vb_hbl_accel_ioctl(int fd, unsigned long request, void *arg)
{
	struct vb_card *card = vb_card_begun();
	struct vb_hbl *hbl;
	int ret;

	/* The number is an int to the kernel; programs pass it sign-extended, too. */
	if ((uint32_t)request != (uint32_t)HL_IOCTL_MEMORY &&
	    (uint32_t)request != (uint32_t)DRM_HL_MEMORY)
		return -ENOTTY;
	hbl = card ? vb_hbl_lock_fd(card, fd) : NULL;
	if (!hbl)
		return -ENOTTY;
	ret = memory_ioctl(&hbl->memory, arg);
	vb_hbl_unlock(card);
	return ret;
}
