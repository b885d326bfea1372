/* SPDX-License-Identifier: MIT */
/*
 * Assertions that cost too much for every build: VB_CHECKS is defined in debug builds and in builds
 * with sanitizers.
 */
#pragma once

#include <assert.h>

#ifdef VB_CHECKS
#define vb_check(cond)    assert(cond)
#define vb_checked(thing) thing
#else
#define vb_check(cond)    ((void)0)
#define vb_checked(thing) ((void)0)
#endif
