// SPDX-License-Identifier: MIT
/*
 * Owns the functions over device memory: allocation on the heap, copies, fills. Every device range
 * is checked against what is mapped and writable in the process before a byte moves. Host memory
 * cannot be checked before, and device memory can disappear after the check, if it is a thread's
 * stack: a copy that reaches an unmapped address stops and fails, as on a card.
 */
#include "host/fault.h"

#include "api/flexio/process.h"

/* ---- the heap ---- */

uint64_t vb_device_alloc(struct flexio_process *process, uint64_t size, uint64_t align)
{
	if (process->checked)
		return vb_dpa_check_alloc(process->dpa, size, align, vb_api_call.function);
	return vb_arena_alloc(&process->heap, size,
			      align < VB_ARENA_ALIGN ? VB_ARENA_ALIGN : align);
}

bool vb_device_free(struct flexio_process *process, uint64_t daddr)
{
	if (process->checked)
		return vb_dpa_check_free(process->dpa, daddr, vb_api_call.function);
	return vb_arena_free(&process->heap, daddr);
}

void vb_device_info(struct flexio_process *process, struct flexio_heap_mem_info *info)
{
	struct vb_arena_usage usage;

	if (process->checked)
		vb_dpa_check_usage(process->dpa, &usage.requested, &usage.allocated);
	else
		vb_arena_usage(&process->heap, &usage);
	*info = (struct flexio_heap_mem_info){ .base_addr = process->heap.base,
					       .size = process->heap.size,
					       .requested = usage.requested,
					       .allocated = usage.allocated };
}

static flexio_status flexio_memory_alloc(struct flexio_process *process, size_t size, size_t align,
					 flexio_uintptr_t *daddr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_heap_mem_info info;

	if (!daddr)
		return fail("dest_daddr_p is NULL");
	*daddr = 0;
	if (!pin)
		return bad_handle(process, "process");
	if (!size)
		return fail("buff_bsize is 0");
	if (!align || align & (align - 1))
		return fail("an alignment of %zu is not a power of two", align);
	*daddr = vb_device_alloc(process, size, align);
	if (*daddr)
		return FLEXIO_STATUS_SUCCESS;
	vb_device_info(process, &info);
	return fail(
		"process %s: no room for %zu bytes on the device heap, of whose %zu bytes %zu are in use (dpa_heap of the configuration, %zu MiB)",
		process->name, size, info.size, info.allocated, info.size >> 20);
}

flexio_status flexio_buf_dev_alloc(struct flexio_process *process, size_t buff_bsize,
				   flexio_uintptr_t *dest_daddr_p)
{
	API_CALL();
	return flexio_memory_alloc(process, buff_bsize, VB_ARENA_ALIGN, dest_daddr_p);
}

flexio_status flexio_buf_dev_memalign(struct flexio_process *process, size_t alignment,
				      size_t buff_bsize, flexio_uintptr_t *dest_daddr_p)
{
	API_CALL();
	return flexio_memory_alloc(process, buff_bsize, alignment, dest_daddr_p);
}

flexio_status flexio_buf_dev_free(struct flexio_process *process, flexio_uintptr_t daddr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!daddr)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_recoverable_free(process, daddr))
		return fail("process %s: no buffer of the device heap begins at 0x%llx",
			    process->name, (unsigned long long)daddr);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- copies ---- */

/* One side of a copy, and the address that the caller gave. */
struct range {
	struct vb_dpa_view view; /* of device memory */
	void *host;              /* other memory */
	uint64_t addr;
	bool device;
};

/* Whether a mapped range goes over an end of [from, to). */
static bool crosses(uint64_t from, uint64_t to, uint64_t addr, uint64_t len)
{
	return (addr < from && addr + len > from) || (addr < to && addr + len > to);
}

/* -EFAULT after a reason. */
static int device_range(struct flexio_process *process, flexio_uintptr_t daddr, size_t size,
			bool write, struct range *range)
{
	*range = (struct range){ .addr = daddr, .device = true };
	if (!size) {
		fail("buff_bsize is 0");
		return -EFAULT;
	}
	range->view = vb_dpa_mem_host(process->dpa, daddr, size,
				      VB_DPA_READ | (write ? VB_DPA_WRITE : 0U));
	if (!vb_view_is_none(range->view) &&
	    crosses(process->heap.base, process->heap.base + process->heap.size, daddr, size)) {
		fail("process %s: %zu bytes at device address 0x%llx are partly outside of the device heap, which is 0x%llx to 0x%llx",
		     process->name, size, (unsigned long long)daddr,
		     (unsigned long long)process->heap.base,
		     (unsigned long long)(process->heap.base + process->heap.size - 1));
		return -EFAULT;
	}
	if (!vb_view_is_none(range->view)) /* what a check finds is said by it */
		return vb_dpa_check_range(process->dpa, daddr, size, write, vb_api_call.function)
			       ? 0
			       : -EFAULT;
	fail("process %s: %zu bytes at device address 0x%llx are not all %s memory", process->name,
	     size, (unsigned long long)daddr, write ? "writable" : "readable");
	return -EFAULT;
}

static int host_range(const void *haddr, struct range *range)
{
	*range = (struct range){ .host = (void *)(uintptr_t)haddr, .addr = (uintptr_t)haddr };
	if (haddr)
		return 0;
	fail("the host address is NULL");
	return -EFAULT;
}

static int flexio_memory_move(const struct range *to, const struct range *from, size_t size)
{
	if (to->device)
		return from->device ? vb_view_copy(to->view, from->view, size)
				    : vb_view_write(to->view, from->host, size);
	return from->device ? vb_view_read(from->view, to->host, size)
			    : vb_fault_copy(to->host, from->host, size);
}

static flexio_status copy(const struct range *to, const struct range *from, size_t size)
{
	const struct range *bad = to;

	if (!flexio_memory_move(to, from, size))
		return FLEXIO_STATUS_SUCCESS;
	if (!(from->device ? vb_view_is_readable(from->view, size)
			   : vb_fault_readable(from->host, size)))
		bad = from;
	return fail("%zu bytes at %s address 0x%llx cannot all be %s", size,
		    bad->device ? "device" : "host", (unsigned long long)bad->addr,
		    bad == to ? "written" : "read");
}

static int flexio_memory_fill(struct vb_dpa_view to, int value, size_t size)
{
	char pattern[4096];
	int err = 0;

	memset(pattern, value, size < sizeof(pattern) ? size : sizeof(pattern));
	for (size_t part; size && !err; to = vb_view_at(to, part), size -= part) {
		part = size < sizeof(pattern) ? size : sizeof(pattern);
		err = vb_view_write(to, pattern, part);
	}
	return err;
}

flexio_status flexio_buf_dev_memset(struct flexio_process *process, int value, size_t buff_bsize,
				    flexio_uintptr_t dest_daddr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct range dest;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (device_range(process, dest_daddr, buff_bsize, true, &dest))
		return failed();
	if (flexio_memory_fill(dest.view, value, buff_bsize))
		return fail(
			"process %s: %zu bytes at device address 0x%llx went while they were filled",
			process->name, buff_bsize, (unsigned long long)dest_daddr);
	return FLEXIO_STATUS_SUCCESS;
}

/* The process is pinned. */
static flexio_status flexio_memory_copy_in(struct flexio_process *process, const void *src_haddr,
					   size_t size, flexio_uintptr_t dest_daddr)
{
	struct range dest, src;

	if (host_range(src_haddr, &src) || device_range(process, dest_daddr, size, true, &dest))
		return failed();
	return copy(&dest, &src, size);
}

flexio_status flexio_host2dev_memcpy(struct flexio_process *process, void *src_haddr,
				     size_t buff_bsize, flexio_uintptr_t dest_daddr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	return flexio_memory_copy_in(process, src_haddr, buff_bsize, dest_daddr);
}

flexio_status flexio_copy_from_host(struct flexio_process *process, void *src_haddr,
				    size_t buff_bsize, flexio_uintptr_t *dest_daddr_p)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	flexio_uintptr_t daddr;
	flexio_status status;

	API_CALL();
	if (!dest_daddr_p)
		return fail("dest_daddr_p is NULL");
	*dest_daddr_p = 0;
	if (!pin)
		return bad_handle(process, "process");
	if (!src_haddr)
		return fail("src_haddr is NULL");
	status = flexio_memory_alloc(process, buff_bsize, VB_ARENA_ALIGN, &daddr);
	if (status != FLEXIO_STATUS_SUCCESS)
		return status;
	status = flexio_memory_copy_in(process, src_haddr, buff_bsize, daddr);
	if (status == FLEXIO_STATUS_SUCCESS)
		*dest_daddr_p = daddr;
	else
		vb_device_free(process, daddr);
	return status;
}

/* Either end of flexio_memcpy. */
static int mem_range(struct flexio_process *process, const struct flexio_mem *mem, size_t size,
		     bool write, struct range *range)
{
	switch (mem->mem_type) {
	case FLEXIO_MEMTYPE_DPA:
		return device_range(process, mem->daddr, size, write, range);
	case FLEXIO_MEMTYPE_HOST:
		return host_range((const void *)mem->haddr, range);
	default:
		fail("%u is not a type of memory", (unsigned int)mem->mem_type);
		return -EINVAL;
	}
}

flexio_status flexio_memcpy(struct flexio_process *process, struct flexio_mem *dest,
			    struct flexio_mem *src, size_t buff_bsize)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct range to, from;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!dest || !src)
		return fail("%s is NULL", !dest ? "dest" : "src");
	if (!buff_bsize)
		return fail("buff_bsize is 0");
	if (mem_range(process, dest, buff_bsize, true, &to) ||
	    mem_range(process, src, buff_bsize, false, &from))
		return failed();
	return copy(&to, &from, buff_bsize);
}
