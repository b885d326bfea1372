/* SPDX-License-Identifier: MIT */
/*
 * Versions of the host interface.
 *
 * A program may say which version it was written for, before it includes flexio.h:
 *
 *	#include <libflexio/flexio_ver.h>
 *	#define FLEXIO_VER_USED FLEXIO_VER(24, 7, 0)
 *	#include <libflexio/flexio.h>
 *
 * Names that changed their form since then have the form of that version. Without it the current
 * version is used.
 */
#ifndef FLEXIO_VER_H
#define FLEXIO_VER_H

#define FLEXIO_VER_MAJOR_OFFS 24
#define FLEXIO_VER_MINOR_OFFS 16

#define FLEXIO_VER(major, minor, sub) \
	(((major) << FLEXIO_VER_MAJOR_OFFS) | ((minor) << FLEXIO_VER_MINOR_OFFS) | (sub))

/* Whatever is the current one; 64 bits, because the major number reaches the sign bit of an int. */
#define FLEXIO_VER_LATEST             FLEXIO_VER(0xFFULL, 0xFF, 0xFFFF)

#define FLEXIO_CURRENT_VERSION        FLEXIO_VER(26, 4, 0)
#define FLEXIO_LAST_SUPPORTED_VERSION FLEXIO_VER(0, 0, 0)

#endif
