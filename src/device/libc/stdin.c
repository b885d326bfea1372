// SPDX-License-Identifier: MIT
/*
 * There is no input on the DPA. A file of its own, so that a program which defines stdin itself
 * gets its own.
 */
#include <stdio.h>

static int no_input(FILE *file)
{
	(void)file;
	return _FDEV_EOF;
}

static FILE empty = FDEV_SETUP_STREAM(NULL, no_input, NULL, _FDEV_SETUP_READ);

FILE *const stdin = &empty;
