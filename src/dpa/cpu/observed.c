// SPDX-License-Identifier: MIT
/*
 * The observed interpreter: interp.c once more, with the places filled in where it shows accesses
 * and marks. A second copy, because a test of a flag in every handler of the first would slow down
 * whoever observes nothing.
 */
#define VB_OBSERVED 1
#include "dpa/cpu/interp.c"
