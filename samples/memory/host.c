// SPDX-License-Identifier: MIT
/*
 * Memory of the accelerator: a buffer on its heap, filled from the host, sorted by device code,
 * read back. The host looks at the heap before and after.
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

enum { WORDS = 16 };

extern struct flexio_app *memory_app;
extern flexio_func_t sort;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "memory: %s failed\n", what);
	exit(1);
}

static struct ibv_context *open_first_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	need(list && list[0], "finding an RDMA device (did you say verbatim run?)");
	ctx = ibv_open_device(list[0]);
	need(ctx != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	return ctx;
}

static void show_heap(struct flexio_process *process, const char *when)
{
	struct flexio_heap_mem_info info;

	need(!flexio_process_mem_info_get(process, &info), "flexio_process_mem_info_get");
	printf("%-18s %zu bytes requested, of a heap of %zu MiB\n", when, info.requested,
	       info.size >> 20);
}

static void copy_back(struct flexio_process *process, flexio_uintptr_t from, void *to, size_t size)
{
	struct flexio_mem src = { .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = from };
	struct flexio_mem dst = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)to };

	need(!flexio_memcpy(process, &dst, &src, size), "flexio_memcpy");
}

int main(void)
{
	struct ibv_context *ctx = open_first_device();
	struct flexio_process *process;
	flexio_uintptr_t buffer;
	uint32_t words[WORDS];
	uint64_t sum;

	for (uint32_t i = 0; i < WORDS; i++)
		words[i] = (i * 37 + 11) % 100;

	need(!flexio_process_create(ctx, memory_app, NULL, &process), "flexio_process_create");
	show_heap(process, "at first:");
	/* Allocates on the device and copies in one step. */
	need(!flexio_copy_from_host(process, words, sizeof(words), &buffer),
	     "flexio_copy_from_host");
	show_heap(process, "with the buffer:");

	need(!flexio_process_call(process, &sort, &sum, buffer, (size_t)WORDS),
	     "flexio_process_call");
	copy_back(process, buffer, words, sizeof(words));
	printf("sorted:           ");
	for (int i = 0; i < WORDS; i++)
		printf(" %u", words[i]);
	printf("\nsum:               %lu\n", (unsigned long)sum);

	need(!flexio_buf_dev_free(process, buffer), "flexio_buf_dev_free");
	show_heap(process, "and freed again:");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
	return 0;
}
