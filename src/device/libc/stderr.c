/* SPDX-License-Identifier: MIT */
/* A file of its own, so that a program which defines stderr itself gets its own. */
#include "line.h"

FILE *const stderr = &__flexio_libc_line;
