/* SPDX-License-Identifier: MIT */
/*
 * Log lines of the whole project, on standard error (or the file named by VERBATIM_LOG_FILE).
 *
 * The level comes from VERBATIM_LOG (error, warn, info; default warn). A line is logged once, where
 * the error is decided; callers stay silent.
 */
#pragma once

#include <stdbool.h>

#include "base/public.h"

enum vb_log_level { VB_LOG_ERROR, VB_LOG_WARN, VB_LOG_INFO };

VB_PUBLIC void vb_log(enum vb_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Whether a line of this level would go out: for callers whose line costs something to make. */
VB_PUBLIC bool vb_log_enabled(enum vb_log_level level);

#define vb_error(...) vb_log(VB_LOG_ERROR, __VA_ARGS__)
#define vb_warn(...)  vb_log(VB_LOG_WARN, __VA_ARGS__)
#define vb_info(...)  vb_log(VB_LOG_INFO, __VA_ARGS__)

/*
 * Say what is wrong with the two variables. Once per process that uses the card, not in tools that
 * only start one.
 */
void vb_log_check_environment(void);
