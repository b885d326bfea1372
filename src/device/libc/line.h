/* SPDX-License-Identifier: MIT */
/* The stream behind stdout and stderr, unless a program puts another one there. */
#pragma once

#include <stdio.h>

extern FILE __flexio_libc_line;
