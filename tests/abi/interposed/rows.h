/* SPDX-License-Identifier: MIT */
/*
 * A row calls one function of libc that Verbatim stands in front of, where it succeeds and where it
 * fails, and says what came back, what is in errno, and what else the call has changed. A run
 * without Verbatim and one with it say the same: ../interposed.py compares them.
 */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct row {
	const char *name;
	void (*good)(void);
	void (*bad)(void); /* NULL: it has no failure that can be caused here */
};

struct rows {
	const struct row *row;
	size_t count;
};

#define ROW(name)                              \
	{                                      \
#name, good_##name, bad_##name \
	}
#define ROW_GOOD(name)                   \
	{                                \
#name, good_##name, NULL \
	}
#define ROWS(name, list) const struct rows name = { list, sizeof(list) / sizeof(list[0]) }

extern const struct rows signal_rows, wait_rows, file_rows, name_rows, memory_rows, process_rows;

/* How a value is said: a pointer or descriptor by whether it is one. */
enum kind { NUMBER, POINTER, DESCRIPTOR, FLAG };

enum { UNTOUCHED = 4321 }; /* in errno before each call */

/* What the expression gives, and errno. Its value is the result. */
#define CALL(kind, expression)                              \
	({                                                  \
		long value_;                                \
                                                            \
		errno = UNTOUCHED;                          \
		value_ = (long)(expression);                \
		say_call(#expression, kind, value_, errno); \
		value_;                                     \
	})

void say_call(const char *what, enum kind kind, long value, int err);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_set(const char *what, const sigset_t *set);
void say_action(const char *what, const struct sigaction *act);
/* A child of the row's process: how it ended. */
void say_child(pid_t pid);

/* A call that ends the process, in a child: how that ended. */
#define SAY_END(statement)               \
	do {                             \
		pid_t pid_ = fork();     \
                                         \
		if (!pid_) {             \
			close(2);        \
			statement;       \
			_exit(0);        \
		}                        \
		say("%s: ", #statement); \
		say_child(pid_);         \
	} while (0)

/* A folder of this row alone, which has the file "here" and the link "link" to it; the process is in it. */
void enter_folder(void);
/* From here on the process can have no child. */
void forbid_children(void);
/* A function that no header declares. */
void *named(const char *name);
