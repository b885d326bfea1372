// SPDX-License-Identifier: MIT
/*
 * How a program begins. The host calls functions by their names; before the first one it calls
 * __flexio_dev_init, once per process.
 */
#include "ecall.h"

extern void (*const __init_array_start[])(void);
extern void (*const __init_array_end[])(void);

void __flexio_dev_init(void);
void __flexio_dev_entry(void) __attribute__((__noreturn__));

/* Constructors, in order of their priorities. */
__attribute__((used, retain)) void __flexio_dev_init(void)
{
	for (void (*const *f)(void) = __init_array_start; f < __init_array_end; f++)
		(*f)();
}

/*
 * Where the ELF file says that it begins. Nothing comes here; if something does, the process ends.
 */
__attribute__((used, retain)) void __flexio_dev_entry(void)
{
	ecall_end(VB_RTOS_PROCESS_FINISH, 0);
}
