/* SPDX-License-Identifier: MIT */
/*
 * Errors of device code: ending the process with a code, and the recoverable error that the run-time system keeps for
 * each thread.
 *
 * What the host reads as the status of the process: 0 no error, 1 to 63 the run-time system's (a fault of device
 * code), 64 to 127 the SDK's, 128 to 255 the program's own.
 */
#ifndef _FLEXIO_DEV_ERR_H_
#define _FLEXIO_DEV_ERR_H_

#include <stdint.h>

#include <libflexio-dev/flexio_dev.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
	FLEXIO_DEV_ERROR_ILLEGAL_ERR =
		0x42, /* flexio_dev_error() was given no code of the user's range */
} flexio_dev_error_t;

/* Smallest and largest code that flexio_dev_error() passes on. */
#define FLEXIO_DEV_ERROR_USER_MIN 0x80
#define FLEXIO_DEV_ERROR_USER_MAX 0xFF

/* End the process with a code of 128 to 255; any other one becomes FLEXIO_DEV_ERROR_ILLEGAL_ERR. Does not return. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_error(uint8_t errcode) __attribute__((__noreturn__));

/* The thread's last recoverable error, 0 if there was none since the last reset. */
FLEXIO_DEV_EXPERIMENTAL uint64_t flexio_dev_get_errno(struct flexio_dev_thread_ctx *dtctx);

/* Forget it. */
FLEXIO_DEV_EXPERIMENTAL void flexio_dev_rst_errno(struct flexio_dev_thread_ctx *dtctx);

/* Both: return it and forget it. */
FLEXIO_DEV_EXPERIMENTAL uint64_t flexio_dev_get_and_rst_errno(struct flexio_dev_thread_ctx *dtctx);

#ifdef __cplusplus
}
#endif

#endif
