/* SPDX-License-Identifier: MIT */
/*
 * The driver's side of emulated functions: devices of a Verbatim adapter whose other side is code of
 * its accelerator (flexio_emu_db_to_cq_map() and flexio_dev_msix_send() of FlexIO).
 *
 * There is no PCI bus here. A program of the same user and host opens a function, stores to its
 * doorbells, and waits for its interrupts at descriptors:
 *
 *	struct verbatim_function *f = verbatim_function_open(0x100);
 *	volatile uint32_t *doorbell = verbatim_function_doorbells(f);
 *	int fd = verbatim_function_eventfd(f, 0);
 *
 *	doorbell[3] = 1;                // rings queue 3, with the value 1
 *	poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, -1);
 *
 * What the queues are, and where they lie, is for the two sides to agree on. Functions return a
 * negative errno, or NULL with errno. They may be called from any thread; a function must not be
 * used after it was closed. verbatim-emulation(7) has more.
 */
#ifndef VERBATIM_EMULATION_H
#define VERBATIM_EMULATION_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct verbatim_function; /* an open one */

struct verbatim_function_info {
	char adapter[32]; /* the name that ibv_get_device_name() gives */
	uint32_t vhca_id; /* names the function, for both sides */
	uint32_t queues;  /* numbered from 0, as the vectors */
	uint32_t vectors;
};

/*
 * The functions of all adapters, in order: fills in up to max of them (list may be NULL where that is
 * 0) and returns how many there are.
 */
int verbatim_function_list(struct verbatim_function_info *list, unsigned int max);

/*
 * A function has one driver at a time: EBUSY where a program that runs has it. EINVAL: there is none
 * with this vhca_id.
 */
struct verbatim_function *verbatim_function_open(uint32_t vhca_id);
/* NULL is allowed. Doorbells and descriptors are gone when this returns. */
int verbatim_function_close(struct verbatim_function *function);
int verbatim_function_query(const struct verbatim_function *function,
			    struct verbatim_function_info *info);

/*
 * The doorbells, 32 bits for each queue, little-endian. Every store rings, by whatever thread; what is
 * read is 0. NULL with ENOTSUP on a machine where stores cannot be seen: then only
 * verbatim_function_ring() rings.
 */
volatile uint32_t *verbatim_function_doorbells(struct verbatim_function *function);
/* The same as a call. */
int verbatim_function_ring(struct verbatim_function *function, uint32_t queue, uint32_t value);

/*
 * A descriptor that becomes readable when the vector is raised: an eventfd(2) that does not block, and
 * counts. It is the function's, which closes it; each call gives the same one. What was raised before
 * the first call is not lost.
 */
int verbatim_function_eventfd(struct verbatim_function *function, uint32_t vector);

/* 1 where a program that runs serves the queue, else 0: whether there is a device yet, or still. */
int verbatim_function_served(const struct verbatim_function *function, uint32_t queue);

#ifdef __cplusplus
}
#endif

#endif
