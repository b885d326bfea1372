/* SPDX-License-Identifier: MIT */
/* /dev/accel/accelN: the one file that is more than something to look at. */
#pragma once

#include <stdbool.h>

/* True where name is an accelerator: *fd is the answer of open(), -1 with errno. */
bool accel_open(const char *name, int flags, int *fd);
