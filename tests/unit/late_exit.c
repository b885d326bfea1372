// SPDX-License-Identifier: MIT
/* A library whose destructor calls the program: test_exit_fork loads it last, so that its destructor is the last. */

extern __attribute__((visibility("default"))) void (*late_exit_call)(void);

void (*late_exit_call)(void);

__attribute__((destructor)) static void late_exit(void)
{
	if (late_exit_call)
		late_exit_call();
}
