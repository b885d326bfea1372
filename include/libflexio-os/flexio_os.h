/* SPDX-License-Identifier: MIT */
/*
 * What the run-time system of the accelerator keeps for each thread.
 */
#ifndef __FLEXIO_OS_H__
#define __FLEXIO_OS_H__

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One per thread, made by the host; it stays where it is for the life of the thread. Fields have two names where SDK
 * versions disagree about them.
 */
struct flexio_os_thread_ctx {
	uint32_t version;
	union {
		uint16_t default_outbox_config_id;
		uint16_t outbox_config_id;
	};
	union {
		uint16_t default_primary_window_config_id;
		uint16_t window_config_id;
	};
	uint64_t outbox_base; /* address of the outbox page; 0: no outbox is configured */
	union {
		uint64_t per_app_table_base;
		uint64_t window_base;
	};
	uint64_t window_config_base;
	uint64_t metadata_parameter;
	uint32_t os_errno; /* last recoverable error (numbers of errno.h), kept until reset */
	uint8_t per_app_table_vhca_id_shift;
	uint8_t window_config_log_size;
	uint16_t default_secondary_window_config_id;
	uint8_t window_msbs;
	uint8_t window_log_size;
	uint8_t window_ix_log_size;
	uint8_t reserved[13];
} __attribute__((packed, aligned(8)));

#ifdef __cplusplus
static_assert(sizeof(struct flexio_os_thread_ctx) == 64, "a cache line");
#else
_Static_assert(sizeof(struct flexio_os_thread_ctx) == 64, "a cache line");
_Static_assert(offsetof(struct flexio_os_thread_ctx, os_errno) == 40, "layout");
_Static_assert(offsetof(struct flexio_os_thread_ctx, window_msbs) == 48, "layout");
#endif

/* Context of the calling thread. */
struct flexio_os_thread_ctx *__dpa_os_get_thread_ctx(void);

/* The same under its older name. */
static inline struct flexio_os_thread_ctx *flexio_os_get_thread_ctx(void)
{
	return __dpa_os_get_thread_ctx();
}

#ifdef __cplusplus
}
#endif

#endif
