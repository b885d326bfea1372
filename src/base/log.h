/* SPDX-License-Identifier: MIT */
/*
 * Log lines of the whole project, on standard error (or the file named by VERBATIM_LOG_FILE).
 *
 * The level comes from VERBATIM_LOG (error, warn, info, debug; default warn). A line is logged once, where the
 * error is decided; callers stay silent.
 */
#pragma once

#include "base/public.h"

enum vb_log_level { VB_LOG_ERROR, VB_LOG_WARN, VB_LOG_INFO, VB_LOG_DEBUG };

extern VB_PUBLIC enum vb_log_level vb_log_threshold;

VB_PUBLIC void vb_log(enum vb_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define vb_error(...) vb_log(VB_LOG_ERROR, __VA_ARGS__)
#define vb_warn(...)  vb_log(VB_LOG_WARN, __VA_ARGS__)
#define vb_info(...)  vb_log(VB_LOG_INFO, __VA_ARGS__)
/* Arguments of a debug line are not evaluated unless somebody reads it. */
#define vb_debug(...)                                                      \
	do {                                                               \
		if (__builtin_expect(vb_log_threshold >= VB_LOG_DEBUG, 0)) \
			vb_log(VB_LOG_DEBUG, __VA_ARGS__);                 \
	} while (0)
