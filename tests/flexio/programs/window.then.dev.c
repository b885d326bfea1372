// SPDX-License-Identifier: MIT
/* The forms before 24.10: one window, and the thread context goes first. */
#define NAME(what)    then_##what
#define FIRST(entity) dtctx
#include "window.inc"
