// SPDX-License-Identifier: MIT
/* Devices and device memory, through the accelerator file. */
#include "hbl.h"

#include <fcntl.h>
#include <misc/habanalabs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct ibv_device *find_device(int number)
{
	struct ibv_device **list, *found = NULL;
	char name[16];
	int count;

	snprintf(name, sizeof(name), "hbl_%d", number);
	list = ibv_get_device_list(&count);
	CHECK(list);
	for (int i = 0; i < count; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			found = list[i];
	ibv_free_device_list(list);
	CHECK(found);
	return found;
}

int try_open(struct dev *dev, int number, uint64_t ports)
{
	struct hbldv_ucontext_attr attr = { .ports_mask = ports };
	struct ibv_device_attr device;
	char path[32];

	*dev = (struct dev){ .number = number };
	snprintf(path, sizeof(path), "/dev/accel/accel%d", number);
	dev->accel = open(path, O_RDWR | O_CLOEXEC);
	if (dev->accel < 0)
		return errno;
	attr.core_fd = dev->accel;
	dev->context = hbldv_open_device(find_device(number), &attr);
	if (!dev->context)
		return errno;
	dev->pd = ibv_alloc_pd(dev->context);
	CHECK(dev->pd);
	CHECK(!ibv_query_device(dev->context, &device));
	dev->gaudi3 = device.vendor_part_id == 0x1060;
	return 0;
}

void dev_open(struct dev *dev, int number)
{
	CHECK(!try_open(dev, number, 0));
}

void dev_close(struct dev *dev)
{
	CHECK(!ibv_dealloc_pd(dev->pd));
	CHECK(!ibv_close_device(dev->context));
	CHECK(!close(dev->accel));
}

int try_set_port(struct dev *dev, uint32_t port, uint64_t caps, bool wide)
{
	struct hbldv_port_ex_attr attr = { .port_num = port, .caps = caps };

	attr.wq_arr_attr[HBLDV_WQ_ARRAY_TYPE_GENERIC] = (struct hbldv_wq_array_attr){
		.max_num_of_wqs = 600,
		.max_num_of_wqes_in_wq = 4096,
		.mem_id = HBLDV_MEM_HOST,
		.swq_granularity = wide ? HBLDV_SWQE_GRAN_64B : HBLDV_SWQE_GRAN_32B,
	};
	return hbldv_set_port_ex(dev->context, &attr);
}

void set_port(struct dev *dev, uint32_t port)
{
	CHECK(!try_set_port(dev, port, HBLDV_PORT_CAP_ADVANCED, true));
}

static uint64_t memory(struct dev *dev, union hl_mem_args *args)
{
	CHECK(!ioctl(dev->accel, HL_IOCTL_MEMORY, args));
	return args->out.device_virt_addr;
}

void mem_map(struct mem *mem)
{
	union hl_mem_args map = { .in.op = HL_MEM_OP_MAP };

	if (mem->handle) {
		map.in.map_device.handle = mem->handle;
	} else {
		map.in.flags = HL_MEM_USERPTR;
		map.in.map_host.host_virt_addr = (uintptr_t)mem->host;
		map.in.map_host.mem_size = mem->size;
	}
	mem->va = memory(mem->dev, &map);
}

void mem_unmap(struct mem *mem)
{
	union hl_mem_args unmap = { .in = { .op = HL_MEM_OP_UNMAP,
					    .unmap.device_virt_addr = mem->va } };

	CHECK(!ioctl(mem->dev->accel, HL_IOCTL_MEMORY, &unmap));
}

void mem_device(struct mem *mem, struct dev *dev, size_t size)
{
	union hl_mem_args alloc = { .in = { .op = HL_MEM_OP_ALLOC, .alloc.mem_size = size } };

	*mem = (struct mem){ .dev = dev, .size = size };
	mem->handle = memory(dev, &alloc);
	mem_map(mem);
	mem->host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, dev->accel,
			 (off_t)mem->handle);
	CHECK(mem->host != MAP_FAILED);
}

void mem_host(struct mem *mem, struct dev *dev, size_t size)
{
	*mem = (struct mem){ .dev = dev, .size = size };
	mem->host = kind_map(size, PROT_READ | PROT_WRITE);
	CHECK(mem->host);
	mem_map(mem);
}

void mem_free(struct mem *mem)
{
	union hl_mem_args release = { .in = { .op = HL_MEM_OP_FREE, .free.handle = mem->handle } };

	mem_unmap(mem);
	if (!mem->handle) {
		kind_unmap(mem->host, mem->size);
		return;
	}
	CHECK(!ioctl(mem->dev->accel, HL_IOCTL_MEMORY, &release));
	CHECK(!munmap(mem->host, mem->size));
}
