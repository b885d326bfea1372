// SPDX-License-Identifier: MIT
/* A file of its own, so that a program which defines stdout itself gets its own. */
#include "line.h"

FILE *stdout = &__flexio_libc_line;
