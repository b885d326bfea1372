// SPDX-License-Identifier: MIT
/*
 * Owns the functions over device memory: allocation on the heap, copies, fills. Every device range is
 * checked against what is mapped and writable in the process before a byte moves. Host memory cannot be checked
 * before, and device memory may go after the check, if it is a thread's stack: a copy that meets an address that is
 * not there stops and fails, as a card's would.
 */
#include "base/fault.h"
#include "internal.h"

static flexio_status alloc(struct flexio_process *process, size_t size, size_t align,
			   flexio_uintptr_t *daddr, const char *caller)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_heap_mem_info info;

	if (!daddr)
		return fail("%s: nowhere to put the address", caller);
	*daddr = 0;
	if (!pin)
		return fail("%s: not a process", caller);
	if (!size)
		return fail("%s: 0 bytes", caller);
	if (!align || align & (align - 1))
		return fail("%s: an alignment of %zu is not a power of two", caller, align);
	*daddr = vb_heap_alloc(&process->heap, size, align < HEAP_ALIGN ? HEAP_ALIGN : align);
	if (*daddr)
		return FLEXIO_STATUS_SUCCESS;
	vb_heap_info(&process->heap, &info);
	return fail("%s: no room for %zu bytes on the device heap (%zu of %zu are in use)", caller,
		    size, info.allocated, info.size);
}

flexio_status flexio_buf_dev_alloc(struct flexio_process *process, size_t buff_bsize,
				   flexio_uintptr_t *dest_daddr_p)
{
	return alloc(process, buff_bsize, HEAP_ALIGN, dest_daddr_p, __func__);
}

flexio_status flexio_buf_dev_memalign(struct flexio_process *process, size_t alignment,
				      size_t buff_bsize, flexio_uintptr_t *dest_daddr_p)
{
	return alloc(process, buff_bsize, alignment, dest_daddr_p, __func__);
}

flexio_status flexio_buf_dev_free(struct flexio_process *process, flexio_uintptr_t daddr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	if (!pin)
		return fail("not a process");
	if (!daddr)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_heap_free(&process->heap, daddr))
		return fail("0x%llx is not a buffer on the device heap", (unsigned long long)daddr);
	return FLEXIO_STATUS_SUCCESS;
}

/* The host's view of device memory for a copy, or NULL after a log line. */
static void *device_range(struct flexio_process *process, flexio_uintptr_t daddr, size_t size,
			  bool write)
{
	void *host = vb_dpa_mem_host(process->dpa, daddr, size,
				     VB_DPA_READ | (write ? VB_DPA_WRITE : 0U));

	if (!host)
		log_err("0x%llx and %zu bytes are not %s memory of the process",
			(unsigned long long)daddr, size, write ? "writable" : "readable");
	return host;
}

static flexio_status copy(void *to, const void *from, size_t size)
{
	return vb_fault_copy(to, from, size)
		       ? fail("%p or %p: not there for %zu bytes", to, from, size)
		       : FLEXIO_STATUS_SUCCESS;
}

static int fill(char *to, int value, size_t size)
{
	char pattern[4096];
	int err = 0;

	memset(pattern, value, size < sizeof(pattern) ? size : sizeof(pattern));
	for (size_t part; size && !err; to += part, size -= part) {
		part = size < sizeof(pattern) ? size : sizeof(pattern);
		err = vb_fault_copy(to, pattern, part);
	}
	return err;
}

flexio_status flexio_buf_dev_memset(struct flexio_process *process, int value, size_t buff_bsize,
				    flexio_uintptr_t dest_daddr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	void *dest;

	if (!pin)
		return fail("not a process");
	dest = device_range(process, dest_daddr, buff_bsize, true);
	if (!dest)
		return FLEXIO_STATUS_FAILED;
	if (fill(dest, value, buff_bsize))
		return fail("0x%llx: the memory went while it was filled",
			    (unsigned long long)dest_daddr);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_host2dev_memcpy(struct flexio_process *process, void *src_haddr,
				     size_t buff_bsize, flexio_uintptr_t dest_daddr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	void *dest;

	if (!pin)
		return fail("not a process");
	if (!src_haddr)
		return fail("no source");
	dest = device_range(process, dest_daddr, buff_bsize, true);
	if (!dest)
		return FLEXIO_STATUS_FAILED;
	return copy(dest, src_haddr, buff_bsize);
}

flexio_status flexio_copy_from_host(struct flexio_process *process, void *src_haddr,
				    size_t buff_bsize, flexio_uintptr_t *dest_daddr_p)
{
	flexio_uintptr_t daddr;
	flexio_status status;

	if (!dest_daddr_p)
		return fail("nowhere to put the address");
	*dest_daddr_p = 0;
	if (!src_haddr)
		return fail("no source");
	status = alloc(process, buff_bsize, HEAP_ALIGN, &daddr, __func__);
	if (status != FLEXIO_STATUS_SUCCESS)
		return status;
	status = flexio_host2dev_memcpy(process, src_haddr, buff_bsize, daddr);
	if (status == FLEXIO_STATUS_SUCCESS)
		*dest_daddr_p = daddr;
	else
		flexio_buf_dev_free(process, daddr);
	return status;
}

/* Either end of flexio_memcpy. */
static void *mem_range(struct flexio_process *process, const struct flexio_mem *mem, size_t size,
		       bool write)
{
	switch (mem->mem_type) {
	case FLEXIO_MEMTYPE_DPA:
		return device_range(process, mem->daddr, size, write);
	case FLEXIO_MEMTYPE_HOST:
		if (!mem->haddr)
			log_err("host address 0");
		return (void *)mem->haddr;
	default:
		log_err("%u is not a type of memory", (unsigned int)mem->mem_type);
		return NULL;
	}
}

flexio_status flexio_memcpy(struct flexio_process *process, struct flexio_mem *dest,
			    struct flexio_mem *src, size_t buff_bsize)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	void *to, *from;

	if (!pin)
		return fail("not a process");
	if (!dest || !src || !buff_bsize)
		return fail("no source, no destination, or 0 bytes");
	to = mem_range(process, dest, buff_bsize, true);
	from = to ? mem_range(process, src, buff_bsize, false) : NULL;
	if (!from)
		return FLEXIO_STATUS_FAILED;
	return copy(to, from, buff_bsize);
}
