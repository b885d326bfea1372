// SPDX-License-Identifier: MIT
/*
 * AddressSanitizer of GCC wants to be the first library of all and otherwise ends the program,
 * because one before it might bring a malloc() of its own. The preload brings none. Every program
 * that is built so asks here for its options before it looks; those that it has itself, and
 * ASAN_OPTIONS, count more.
 *
 * Its leak check guesses the size of the thread-local variables of libraries that came by dlopen(),
 * as libdw does (src/dpa/observe/libdw.c), and faults where the guess is wrong: where their block begins 16
 * bytes into a page. Without the guess it finds them as blocks that the loader allocated.
 */
#include "libc.h"

PUBLIC const char *__asan_default_options(void);

PUBLIC const char *__asan_default_options(void)
{
	return "verify_asan_link_order=0:intercept_tls_get_addr=0";
}
