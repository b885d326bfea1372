/* SPDX-License-Identifier: MIT */
/*
 * What the tests of libflexio share: a device, the app of bare/device.c, a process, calls by name.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <libflexio/flexio.h>

extern struct ibv_context *bed_ctx;
extern struct flexio_app *bed_app;
extern const char *bed_elf_path;

/* Open mlx5_0 and make the app from the file that argv names. */
void bed_init(int argc, char **argv);
void *bed_elf(size_t *size);

struct flexio_process *bed_process(void);
void bed_process_end(struct flexio_process *process);

/* The function of bare/device.c with this name. */
flexio_func_t *bed_func(const char *name);
flexio_status bed_call(struct flexio_process *process, const char *name, uint64_t arg,
		       uint64_t *result);
/* Call it; it must succeed. */
uint64_t bed_value(struct flexio_process *process, const char *name, uint64_t arg);
/* The same with words in device memory as argument. */
uint64_t bed_words(struct flexio_process *process, const char *name, const uint64_t *words,
		   unsigned int count);
flexio_uintptr_t bed_alloc(struct flexio_process *process, size_t size);
uint64_t bed_read(struct flexio_process *process, flexio_uintptr_t addr);
void bed_write(struct flexio_process *process, flexio_uintptr_t addr, uint64_t value);
/* Wait until the word is at least value; fails after some seconds. */
void bed_await(struct flexio_process *process, flexio_uintptr_t addr, uint64_t value);

#define assert_ok(expr)     assert_int_equal((expr), FLEXIO_STATUS_SUCCESS)
#define assert_failed(expr) assert_int_equal((expr), FLEXIO_STATUS_FAILED)
