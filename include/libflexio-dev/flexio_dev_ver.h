/* SPDX-License-Identifier: MIT */
/*
 * Versions of the device API. A program that wants the behaviour of a certain version says so before it includes any
 * other header of libflexio-dev:
 *
 *	#include <libflexio-dev/flexio_dev_ver.h>
 *	#define FLEXIO_DEV_VER_USED FLEXIO_DEV_VER(24, 7, 0)
 *	#include <libflexio-dev/flexio_dev.h>
 *
 * Below 24.10 the functions that ring doorbells, arm queues and work with windows take the thread context as their
 * first argument and return a status; from 24.10 on they take neither.
 */
#ifndef _FLEXIO_DEV_VER_H_
#define _FLEXIO_DEV_VER_H_

#define FLEXIO_DEV_VER_MAJOR_OFFS 24
#define FLEXIO_DEV_VER_MINOR_OFFS 16

#define FLEXIO_DEV_VER(major, minor, patch) \
	(((major) << FLEXIO_DEV_VER_MAJOR_OFFS) | ((minor) << FLEXIO_DEV_VER_MINOR_OFFS) | (patch))

/* "Whatever is newest" for FLEXIO_DEV_VER_USED. */
#define FLEXIO_DEV_VER_LATEST             FLEXIO_DEV_VER(0xFFUL, 0xFFUL, 0xFFFFUL)

#define FLEXIO_DEV_CURRENT_VERSION        FLEXIO_DEV_VER(26UL, 4UL, 0UL)
#define FLEXIO_DEV_LAST_SUPPORTED_VERSION FLEXIO_DEV_VER(0UL, 0UL, 0UL)

#endif
