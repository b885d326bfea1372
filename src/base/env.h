/* SPDX-License-Identifier: MIT */
/*
 * Environment variables. A program with more rights than its caller (set-uid, set-gid, file
 * capabilities: AT_SECURE) runs in an environment that the caller wrote. No variable counts there,
 * because one of them would let the caller choose a file that the program opens. So nothing in src/
 * calls getenv(3) itself; tests/abi/environment.py checks that.
 */
#pragma once

#include <stdlib.h>

/* The value of a variable; NULL where there is none, and always in a secure execution. */
static inline const char *vb_getenv(const char *name)
{
	return secure_getenv(name);
}
