// SPDX-License-Identifier: MIT
/*
 * libprintf_min: a printf without floating point, for -Wl,-u,vfprintf -lprintf_min. Some 6 KB
 * smaller.
 */
#include <stdarg.h>
#include <stdio.h>

int __i_vfprintf(FILE *stream, const char *format, va_list ap);

int vfprintf(FILE *stream, const char *format, va_list ap)
{
	return __i_vfprintf(stream, format, ap);
}
