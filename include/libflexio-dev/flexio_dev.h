/* SPDX-License-Identifier: MIT */
/*
 * Services for programs on the DPA: thread context, messages, ends of threads, windows, outbox, locks.
 *
 * Device code runs as an RPC that the host calls or as an event handler that completions wake. A handler ends its
 * run with flexio_dev_thread_reschedule() (or by returning), keeps its globals, heap and thread local storage, and
 * begins at its start with the next event.
 *
 * Functions that fail in a way from which the program can recover return FLEXIO_DEV_STATUS_FAILED where they return
 * something, and set the thread's error number (flexio_dev_err.h).
 */
#ifndef _FLEXIO_DEV_H_
#define _FLEXIO_DEV_H_

#include <stddef.h>
#include <stdint.h>

#include <libflexio-dev/flexio_dev_ver.h>

#ifndef FLEXIO_DEV_VER_USED
#define FLEXIO_DEV_VER_USED FLEXIO_DEV_CURRENT_VERSION
#endif
#if FLEXIO_DEV_VER_USED == FLEXIO_DEV_VER_LATEST
#undef FLEXIO_DEV_VER_USED
#define FLEXIO_DEV_VER_USED FLEXIO_DEV_CURRENT_VERSION
#endif

#if FLEXIO_DEV_VER_USED > FLEXIO_DEV_CURRENT_VERSION
#error FLEXIO_DEV_VER_USED is newer than this SDK (FLEXIO_DEV_CURRENT_VERSION)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FLEXIO_DEV_STABLE __attribute__((visibility("default")))

/*
 * What may change: the compiler warns of it unless FLEXIO_DEV_ALLOW_EXPERIMENTAL_API is defined. It only warns: without
 * the pragma -Werror would end the build.
 */
#ifdef FLEXIO_DEV_ALLOW_EXPERIMENTAL_API
#define FLEXIO_DEV_EXPERIMENTAL __attribute__((section(".text.experimental"))) FLEXIO_DEV_STABLE
#else
#pragma GCC diagnostic warning "-Wdeprecated-declarations"
#define FLEXIO_DEV_EXPERIMENTAL                                         \
	__attribute__((deprecated("Symbol is defined as experimental"), \
		       section(".text.experimental"))) FLEXIO_DEV_STABLE
#endif

#define FLEXIO_DEV_ALWAYS_INLINE static inline __attribute__((always_inline))

#ifndef __unused
#define __unused __attribute__((__unused__))
#endif

/* Older programs put these around their entry points. */
#ifdef __cplusplus
#define __FLEXIO_ENTRY_POINT_START extern "C" {
#define __FLEXIO_ENTRY_POINT_END   }
#else
#define __FLEXIO_ENTRY_POINT_START
#define __FLEXIO_ENTRY_POINT_END
#endif

/* ---- types ---- */

/* An address of the DPA. */
typedef uint64_t flexio_uintptr_t;

/* Names an adapter that a UAR was extended to (flexio_uar_get_extended_id() on the host). */
typedef uint32_t flexio_uar_device_id;

typedef enum {
	FLEXIO_DEV_STATUS_SUCCESS = 0,
	FLEXIO_DEV_STATUS_FAILED = 1,
} flexio_dev_status_t;

/* Level of a message; a stream prints what is at most as verbose as its own level. */
typedef uint8_t flexio_msg_dev_level;
#define FLEXIO_MSG_DEV_NO_PRINT           0
#define FLEXIO_MSG_DEV_ALWAYS_PRINT       1
#define FLEXIO_MSG_DEV_ERROR              2
#define FLEXIO_MSG_DEV_WARN               3
#define FLEXIO_MSG_DEV_INFO               4
#define FLEXIO_MSG_DEV_DEBUG              5

#define FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT 255
#define FLEXIO_MSG_DEV_DEFAULT_STREAM_ID  0
#define FLEXIO_MSG_DEV_BROADCAST_STREAM   0xff

/* Which of a thread's two windows. */
enum flexio_window_entity {
	FLEXIO_DEV_WINDOW_ENTITY_0 = 0,
	FLEXIO_DEV_WINDOW_ENTITY_1 = 1,
	FLEXIO_DEV_WINDOW_ENTITY_NUM = 2,
};
typedef enum flexio_window_entity flexio_window_entity_t;

/* When a send WQE makes a completion. */
enum cq_ce_mode {
	MLX5_CTRL_SEG_CE_CQE_ON_CQE_ERROR = 0x0,
	MLX5_CTRL_SEG_CE_CQE_ON_FIRST_CQE_ERROR = 0x1,
	MLX5_CTRL_SEG_CE_CQE_ALWAYS = 0x2,
	MLX5_CTRL_SEG_CE_CQE_AND_EQE = 0x3,
};
#define FLEXIO_CTRL_SEG_CE_CQE_ON_CQE_ERROR       MLX5_CTRL_SEG_CE_CQE_ON_CQE_ERROR
#define FLEXIO_CTRL_SEG_CE_CQE_ON_FIRST_CQE_ERROR MLX5_CTRL_SEG_CE_CQE_ON_FIRST_CQE_ERROR
#define FLEXIO_CTRL_SEG_CE_CQE_ALWAYS             MLX5_CTRL_SEG_CE_CQE_ALWAYS
#define FLEXIO_CTRL_SEG_CE_CQE_AND_EQE            MLX5_CTRL_SEG_CE_CQE_AND_EQE

enum flexio_dev_nic_counter_ids {
	FLEXIO_DEV_NIC_COUNTER_PORT0_RX_BYTES = 0x10,
	FLEXIO_DEV_NIC_COUNTER_PORT1_RX_BYTES = 0x11,
	FLEXIO_DEV_NIC_COUNTER_PORT2_RX_BYTES = 0x12,
	FLEXIO_DEV_NIC_COUNTER_PORT3_RX_BYTES = 0x13,

	FLEXIO_DEV_NIC_COUNTER_PORT0_TX_BYTES = 0x20,
	FLEXIO_DEV_NIC_COUNTER_PORT1_TX_BYTES = 0x21,
	FLEXIO_DEV_NIC_COUNTER_PORT2_TX_BYTES = 0x22,
	FLEXIO_DEV_NIC_COUNTER_PORT3_TX_BYTES = 0x23,
};

/* The calling thread, as the functions here want it named. Only pointers to it are used. */
struct flexio_dev_thread_ctx;

/* An RPC: called by flexio_process_call(), its result goes back to the host. */
typedef uint64_t(flexio_dev_rpc_handler_t)(uint64_t arg);
/* Made by dpacc for each RPC: takes the arguments from the buffer that the host wrote and calls func. */
typedef uint64_t(flexio_dev_arg_unpack_func_t)(void *argbuf, void *func);
/* An RPC of a command queue: nobody waits for a result. */
typedef void(flexio_dev_async_rpc_handler_t)(uint64_t arg);
/* An event handler; ends with one of flexio_dev_thread_*(), flexio_dev_process_finish() or a return. */
typedef void(flexio_dev_event_handler_t)(uint64_t thread_arg);

/* ---- the calling thread ---- */

/* Store the address of the thread's context in *dtctx. 0, or a negative number if dtctx is NULL. */
FLEXIO_DEV_EXPERIMENTAL int flexio_dev_get_thread_ctx(struct flexio_dev_thread_ctx **dtctx);

/* The number that messages show. */
FLEXIO_DEV_EXPERIMENTAL uint32_t flexio_dev_get_thread_id(struct flexio_dev_thread_ctx *dtctx);

/* thread_local_storage_daddr of the event handler, as the host gave it; 0 in an RPC. */
flexio_uintptr_t flexio_dev_get_thread_local_storage(struct flexio_dev_thread_ctx *dtctx);

/* Name of the event handler, or "" if it has none. Valid as long as the thread. */
FLEXIO_DEV_EXPERIMENTAL const char *flexio_dev_get_current_thread_name(void);

/* ---- ends; none of them returns, except the two yields ---- */

/* Wait for the next event, then begin at the start of the handler. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_thread_reschedule(void) __attribute__((__noreturn__));

/* The thread is done for good; events do not start it any more. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_thread_finish(void) __attribute__((__noreturn__));

/* Begin at the start of the handler at once, without an event. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_thread_retrigger(void) __attribute__((__noreturn__));

/* End the process with status 0x40, which is no error; all its threads stop. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_process_finish(void) __attribute__((__noreturn__));

/* In a handler that was created as continuable: wait for the next event and go on here. Otherwise no effect. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_yield(struct flexio_dev_thread_ctx *dtctx);

/* The same, with an event pending already: give way to other threads and go on. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_yield_and_retrigger(void);

/* Older names. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_reschedule(void) __attribute__((__noreturn__));
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_finish(void) __attribute__((__noreturn__));

#if FLEXIO_DEV_VER_USED < FLEXIO_DEV_VER(24, 10, 0)
/* Older still. */
#define flexio_dev_return() flexio_dev_reschedule()
#endif

/* Trigger the event handler of this process that has this activation id. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_event_handler_activate(uint32_t activation_id);

/* ---- messages ---- */

/*
 * Print to a message stream of the host, as one piece however many threads print. Returns what printf would: the
 * length, or a negative number. If no stream prints messages of this level, nothing is formatted and the result is 0.
 */
FLEXIO_DEV_EXPERIMENTAL int flexio_dev_msg(int stream_id, flexio_msg_dev_level level,
					   const char *format, ...)
	__attribute__((__format__(__printf__, 3, 4)));

/* To every open stream. */
#define flexio_dev_msg_broadcast(lvl, ...) \
	flexio_dev_msg(FLEXIO_MSG_DEV_BROADCAST_STREAM, lvl, __VA_ARGS__)
/* To the default stream, the first one that the host created. */
#define flexio_dev_msg_dflt(lvl, ...) \
	flexio_dev_msg(FLEXIO_MSG_DEV_DEFAULT_STREAM_ID, lvl, __VA_ARGS__)
/* To the default stream at level INFO. */
#define flexio_dev_print(...) \
	flexio_dev_msg(FLEXIO_MSG_DEV_DEFAULT_STREAM_ID, FLEXIO_MSG_DEV_INFO, __VA_ARGS__)

#define flexio_dev_msg_err(strm, ...)  flexio_dev_msg(strm, FLEXIO_MSG_DEV_ERROR, __VA_ARGS__)
#define flexio_dev_msg_warn(strm, ...) flexio_dev_msg(strm, FLEXIO_MSG_DEV_WARN, __VA_ARGS__)
#define flexio_dev_msg_info(strm, ...) flexio_dev_msg(strm, FLEXIO_MSG_DEV_INFO, __VA_ARGS__)
#define flexio_dev_msg_dbg(strm, ...)  flexio_dev_msg(strm, FLEXIO_MSG_DEV_DEBUG, __VA_ARGS__)

/* Print a string to the default stream. Returns its length, 0 if there is no stream. */
FLEXIO_DEV_EXPERIMENTAL int flexio_dev_puts(struct flexio_dev_thread_ctx *dtctx, char *str);

/* ---- windows: host memory seen by the DPA ---- */

/* Let the thread's window be this window object with this key. */
flexio_dev_status_t flexio_dev_multi_window_config(enum flexio_window_entity win_entity,
						   uint16_t window_config_id, uint32_t mkey);

/* Another key for the window. */
flexio_dev_status_t flexio_dev_multi_window_mkey_config(enum flexio_window_entity win_entity,
							uint32_t mkey);

/* *daddr becomes the address at which the DPA sees host address haddr through the window. */
flexio_dev_status_t flexio_dev_multi_window_ptr_acquire(enum flexio_window_entity win_entity,
							uint64_t haddr, flexio_uintptr_t *daddr);

/* Copy size bytes through the window. */
flexio_dev_status_t flexio_dev_multi_window_copy_from_host(enum flexio_window_entity win_entity,
							   void *daddr, uint64_t haddr,
							   uint32_t size);
flexio_dev_status_t flexio_dev_multi_window_copy_to_host(enum flexio_window_entity win_entity,
							 uint64_t haddr, const void *daddr,
							 uint32_t size);

/* The same by shorter names. Before 24.10 the first argument was the thread context and there was one window. */
#if FLEXIO_DEV_VER_USED >= FLEXIO_DEV_VER(24, 10, 0)
#define __FLEXIO_DEV_WINDOW_ARG enum flexio_window_entity win_entity
#define __FLEXIO_DEV_WINDOW     win_entity
#else
#define __FLEXIO_DEV_WINDOW_ARG struct flexio_dev_thread_ctx *dtctx __unused
#define __FLEXIO_DEV_WINDOW     FLEXIO_DEV_WINDOW_ENTITY_0
#endif

static inline __unused flexio_dev_status_t flexio_dev_window_config(__FLEXIO_DEV_WINDOW_ARG,
								    uint16_t window_config_id,
								    uint32_t mkey)
{
	return flexio_dev_multi_window_config(__FLEXIO_DEV_WINDOW, window_config_id, mkey);
}

static inline __unused flexio_dev_status_t flexio_dev_window_mkey_config(__FLEXIO_DEV_WINDOW_ARG,
									 uint32_t mkey)
{
	return flexio_dev_multi_window_mkey_config(__FLEXIO_DEV_WINDOW, mkey);
}

static inline __unused flexio_dev_status_t flexio_dev_window_ptr_acquire(__FLEXIO_DEV_WINDOW_ARG,
									 uint64_t haddr,
									 flexio_uintptr_t *daddr)
{
	return flexio_dev_multi_window_ptr_acquire(__FLEXIO_DEV_WINDOW, haddr, daddr);
}

static inline __unused flexio_dev_status_t flexio_dev_window_copy_from_host(__FLEXIO_DEV_WINDOW_ARG,
									    void *daddr,
									    uint64_t haddr,
									    uint32_t size)
{
	return flexio_dev_multi_window_copy_from_host(__FLEXIO_DEV_WINDOW, daddr, haddr, size);
}

static inline __unused flexio_dev_status_t flexio_dev_window_copy_to_host(__FLEXIO_DEV_WINDOW_ARG,
									  uint64_t haddr,
									  const void *daddr,
									  uint32_t size)
{
	return flexio_dev_multi_window_copy_to_host(__FLEXIO_DEV_WINDOW, haddr, daddr, size);
}

#undef __FLEXIO_DEV_WINDOW_ARG
#undef __FLEXIO_DEV_WINDOW

/* ---- outbox: the page through which doorbells go ---- */

/* Use this outbox object from now on. */
flexio_dev_status_t flexio_dev_outbox_config(struct flexio_dev_thread_ctx *dtctx,
					     uint16_t outbox_config_id);

/* The same without a result and without looking whether it is in use already. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_outbox_config_fast(struct flexio_dev_thread_ctx *dtctx,
							   uint16_t outbox_config_id);

/* Let the outbox ring doorbells of another adapter. */
flexio_dev_status_t flexio_dev_outbox_config_uar_extension(struct flexio_dev_thread_ctx *dtctx,
							   flexio_uar_device_id device_id);

/* Ring the doorbell of a queue of another adapter. */
flexio_dev_status_t flexio_dev_cross_device_ring_db(flexio_uar_device_id device_id, uint32_t qpn,
						    uint32_t pi);

/* ---- counters of the card, congestion control ---- */

/*
 * Choose the counters that flexio_dev_nic_counters_sample() stores in counter_values, in the order of counter_ids. Both
 * arrays are globals or heap memory. A process has one choice, the last one. A bad address or an unknown counter ends the process.
 */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_nic_counters_config(uint32_t *counter_values,
							    uint32_t *counter_ids,
							    uint32_t num_counters);

/* Store them. Ends the process if nothing was chosen before. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_nic_counters_sample(void);

/* Address of the congestion control table of a function of the card; 0: none. */
FLEXIO_DEV_EXPERIMENTAL uint64_t flexio_dev_get_pcc_table_base(uint16_t vhca_id);

/* ---- copies in units, for memory that wants accesses of one width (num of them) ---- */

FLEXIO_DEV_EXPERIMENTAL void flexio_dev_memcpy64(uint64_t *dest, const uint64_t *src, uint64_t num);
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_memcpy32(uint32_t *dest, const uint32_t *src, uint64_t num);
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_memcpy16(uint16_t *dest, const uint16_t *src, uint64_t num);

/* ---- spinlocks between threads of a process ---- */

struct spinlock_s {
	uint32_t locked;
#ifdef SPINLOCK_DEBUG
	uint32_t locker_tid; /* of the last thread that took it, plus one; 0: free */
#endif
};

/* Somebody holds what the caller waits for: let others run. */
void __flexio_dev_relax(void);
/* The calling thread's number. */
uint32_t __flexio_dev_thread_id(void);

#ifdef SPINLOCK_DEBUG
#define __SPINLOCK_OWNER(lock, tid) __atomic_store_n(&((lock)->locker_tid), (tid), __ATOMIC_SEQ_CST)
#define __SPINLOCK_TAKEN(lock)      __SPINLOCK_OWNER(lock, __flexio_dev_thread_id() + 1)
#else
#define __SPINLOCK_OWNER(lock, tid) ((void)0)
#define __SPINLOCK_TAKEN(lock)      ((void)0)
#endif

/* Before the first use. */
#define spin_init(lock) \
	(__SPINLOCK_OWNER(lock, 0u), __atomic_store_n(&((lock)->locked), 0, __ATOMIC_SEQ_CST))

/* Take the lock, however long it takes. */
#define spin_lock(lock)                                                             \
	do {                                                                        \
		while (__atomic_exchange_n(&((lock)->locked), 1, __ATOMIC_SEQ_CST)) \
			__flexio_dev_relax();                                       \
		__SPINLOCK_TAKEN(lock);                                             \
	} while (0)

/* Take it if it is free: 0, or not 0 if somebody holds it. */
#define spin_trylock(lock)                                           \
	(__atomic_exchange_n(&((lock)->locked), 1, __ATOMIC_SEQ_CST) \
		 ? 1u                                                \
		 : (__SPINLOCK_TAKEN(lock), 0u))

#define spin_unlock(lock) \
	(__SPINLOCK_OWNER(lock, 0u), __atomic_store_n(&((lock)->locked), 0, __ATOMIC_SEQ_CST))

#ifdef __cplusplus
}
#endif

#endif
