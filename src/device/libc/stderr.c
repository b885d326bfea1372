// SPDX-License-Identifier: MIT
/*
 * "Unless specifically assigned, identical to stdout": a stream that hands on to whatever stdout is
 * at the moment. A file of its own, so that a program which defines stderr itself gets its own.
 */
#include "line.h"

static FILE follow;

/* A program that assigns stderr to stdout means the default. */
static FILE *target(void)
{
	return stdout == &follow ? &__flexio_libc_line : stdout;
}

static int follow_put(char c, FILE *file)
{
	(void)file;
	return fputc(c, target());
}

static int follow_flush(FILE *file)
{
	(void)file;
	return fflush(target());
}

static FILE follow = FDEV_SETUP_STREAM(follow_put, NULL, follow_flush, _FDEV_SETUP_WRITE);

FILE *const stderr = &follow;
