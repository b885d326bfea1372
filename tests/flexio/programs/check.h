/* SPDX-License-Identifier: MIT */
/* What the programs of this folder share: a device, checks that end the program. */
#pragma once

#include <libflexio/flexio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(expr)                                                                        \
	do {                                                                               \
		if (!(expr)) {                                                             \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #expr); \
			_exit(1);                                                          \
		}                                                                          \
	} while (0)
#define OK(expr) CHECK((expr) == FLEXIO_STATUS_SUCCESS)

static inline struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	CHECK(list && list[0]);
	ctx = ibv_open_device(list[0]);
	CHECK(ctx);
	ibv_free_device_list(list);
	return ctx;
}

/* Read a word of device memory. */
static inline uint64_t dev_read(struct flexio_process *process, flexio_uintptr_t addr)
{
	uint64_t value = 0;
	struct flexio_mem to = { FLEXIO_MEMTYPE_HOST, { .haddr = (uintptr_t)&value } };
	struct flexio_mem from = { FLEXIO_MEMTYPE_DPA, { .daddr = addr } };

	OK(flexio_memcpy(process, &to, &from, sizeof(value)));
	return value;
}

static inline void dev_await(struct flexio_process *process, flexio_uintptr_t addr, uint64_t value)
{
	for (int i = 0; i < 20000 && dev_read(process, addr) < value; i++)
		usleep(500);
	CHECK(dev_read(process, addr) >= value);
}
