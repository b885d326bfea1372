// SPDX-License-Identifier: MIT
/* The bed: one device, one app from a file, and calls that most cases begin with. */
#include "bed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ibv_context *bed_ctx;
struct flexio_app *bed_app;
const char *bed_elf_path;

void *bed_elf(size_t *size)
{
	int fd = open(bed_elf_path, O_RDONLY);
	struct stat st;
	char *elf;

	if (fd < 0 || fstat(fd, &st)) {
		perror(bed_elf_path);
		exit(1);
	}
	elf = malloc((size_t)st.st_size);
	if (!elf || read(fd, elf, (size_t)st.st_size) != st.st_size)
		exit(1);
	close(fd);
	*size = (size_t)st.st_size;
	return elf;
}

void bed_init(int argc, char **argv)
{
	struct flexio_app_attr attr = { .app_name = "bare" };
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (argc < 2 || !list || !list[0]) {
		fprintf(stderr, "usage: %s bare.elf, with an adapter\n", argv[0]);
		exit(1);
	}
	bed_elf_path = argv[1];
	bed_ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	attr.app_ptr = bed_elf(&attr.app_bsize);
	if (!bed_ctx || flexio_app_create(&attr, &bed_app))
		exit(1);
	free(attr.app_ptr); /* it was copied */
}

struct flexio_process *bed_process(void)
{
	struct flexio_process *process = NULL;

	assert_ok(flexio_process_create(bed_ctx, bed_app, NULL, &process));
	assert_non_null(process);
	return process;
}

void bed_process_end(struct flexio_process *process)
{
	assert_ok(flexio_process_destroy(process));
}

flexio_func_t *bed_func(const char *name)
{
	flexio_func_t *func = NULL;

	assert_ok(flexio_func_register(bed_app, name, &func));
	return func;
}

flexio_status bed_call(struct flexio_process *process, const char *name, uint64_t arg,
		       uint64_t *result)
{
	return flexio_process_call(process, bed_func(name), result, arg);
}

uint64_t bed_value(struct flexio_process *process, const char *name, uint64_t arg)
{
	uint64_t result = 0;

	assert_ok(bed_call(process, name, arg, &result));
	return result;
}

uint64_t bed_words(struct flexio_process *process, const char *name, const uint64_t *words,
		   unsigned int count)
{
	flexio_uintptr_t addr;
	uint64_t result;

	assert_ok(flexio_copy_from_host(process, (void *)words, count * sizeof(*words), &addr));
	result = bed_value(process, name, addr);
	assert_ok(flexio_buf_dev_free(process, addr));
	return result;
}

flexio_uintptr_t bed_alloc(struct flexio_process *process, size_t size)
{
	flexio_uintptr_t addr = 1;

	assert_ok(flexio_buf_dev_alloc(process, size, &addr));
	assert_ok(flexio_buf_dev_memset(process, 0, size, addr));
	return addr;
}

uint64_t bed_read(struct flexio_process *process, flexio_uintptr_t addr)
{
	uint64_t value = 0;
	struct flexio_mem dest = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)&value };
	struct flexio_mem src = { .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = addr };

	assert_ok(flexio_memcpy(process, &dest, &src, sizeof(value)));
	return value;
}

void bed_write(struct flexio_process *process, flexio_uintptr_t addr, uint64_t value)
{
	assert_ok(flexio_host2dev_memcpy(process, &value, sizeof(value), addr));
}

void bed_await(struct flexio_process *process, flexio_uintptr_t addr, uint64_t value)
{
	for (unsigned int i = 0; i < 20000; i++) {
		if (bed_read(process, addr) >= value)
			return;
		usleep(500);
	}
	fail_msg("0x%lx stays %lu; %lu was expected", addr, bed_read(process, addr), value);
}
