/* SPDX-License-Identifier: MIT */
/*
 * Standard IO on the DPA: picolibc's, with
 *   - stdout, which a program may assign;
 *   - FDEV_SETUP_STREAM and fdev_setup_stream with or without the function that flushes;
 *   - stdout and stderr that print to the default message stream of the host, a line at a time, unless the program
 *     says otherwise.
 */
#ifndef __FLEXIO_LIBC_STDIO_H

#if !__has_include_next(<stdio.h>)
/* Included by the name of the folder: begin again where the C library comes behind this file. */
#include <stdio.h>
#else

#define __FLEXIO_LIBC_STDIO_H

#define stdout __picolibc_const_stdout
#include_next <stdio.h>
#undef stdout

#ifdef __cplusplus
extern "C" {
#endif
extern FILE *stdout;
#ifdef __cplusplus
}
#endif

/* (put, get, flags) or (put, get, flush, flags) */
#undef FDEV_SETUP_STREAM
#define FDEV_SETUP_STREAM(...) \
	__FDEV_PICK4(__VA_ARGS__, __FDEV_SETUP_4, __FDEV_SETUP_3, )(__VA_ARGS__)
#define __FDEV_PICK4(a1, a2, a3, a4, name, ...) name
#define __FDEV_SETUP_3(p, g, f)                 __FDEV_SETUP_4(p, g, NULL, f)
#define __FDEV_SETUP_4(p, g, fl, f)                                  \
	{                                                            \
		.flags = (f), .put = (p), .get = (g), .flush = (fl), \
	}

/* The same with a stream in front. */
#undef fdev_setup_stream
#define fdev_setup_stream(...)                      __FDEV_PICK5(__VA_ARGS__, __FDEV_SET_5, __FDEV_SET_4, )(__VA_ARGS__)
#define __FDEV_PICK5(a1, a2, a3, a4, a5, name, ...) name
#define __FDEV_SET_4(stream, p, g, f)               __FDEV_SET_5(stream, p, g, NULL, f)
#define __FDEV_SET_5(stream, p, g, fl, f) \
	do {                              \
		(stream)->unget = 0;      \
		(stream)->flags = (f);    \
		(stream)->put = (p);      \
		(stream)->get = (g);      \
		(stream)->flush = (fl);   \
	} while (0)

/* (put, get) or (put, get, flush) */
#define fdevopen(...)                       __FDEV_PICK3(__VA_ARGS__, __FDEV_OPEN_3, __FDEV_OPEN_2, )(__VA_ARGS__)
#define __FDEV_PICK3(a1, a2, a3, name, ...) name
#define __FDEV_OPEN_2(p, g)                 (fdevopen)(p, g, NULL)
#define __FDEV_OPEN_3(p, g, fl)             (fdevopen)(p, g, fl)

#endif
#endif
