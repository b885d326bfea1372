/* SPDX-License-Identifier: MIT */
/*
 * What the checks of `verbatim doctor` share: one finding each, and a child process to try things in.
 *
 * A check tries what the card does, with the call that the card makes, instead of reading version
 * numbers: a kernel, a container and a sandbox each have their own way to refuse something.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum verdict {
	WORKS,
	FALLS_BACK, /* slower, or a convenience less */
	FAILS,      /* something that Verbatim is for does not work here */
};

/* What follows belongs to this group. */
void doctor_group(const char *name);
/*
 * A finding. text: what works, what happens instead, or why it does not. remedy: what to do about
 * it, NULL where nothing has to be or can be done.
 */
void doctor_say(enum verdict verdict, const char *name, const char *remedy, const char *text, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Run try in a child process, which has a minute. The exit code, which is what try returns; or -1
 * where it was killed, or there is none. output: the last line that it left on standard output and
 * standard error, "" where none, or how it was killed.
 */
int doctor_try(int (*try)(void *arg), void *arg, char *output, size_t size);
/* The same for a program: argv, and its environment as it is now. */
int doctor_run(char *const argv[], char *output, size_t size);
/* Whether a program is in PATH, and where. */
bool doctor_find(const char *name, char path[PATH_MAX]);

/* The groups, each one file. */
void doctor_check_cpu(void);
void doctor_check_kernel(void);
void doctor_check_limits(void);
void doctor_check_tree(void);
void doctor_check_toolchain(void);
