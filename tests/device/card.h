/* SPDX-License-Identifier: MIT */
/*
 * A small stand-in for the host's side of the run-time system: it loads a device program, answers the calls of
 * src/device/rtos.h and writes down what it was told. Only what the device library needs; libflexio is the real one.
 *
 * Test programs take the tier (interp, jit) and the device program as arguments.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "device/rtos.h"
#include "dpa/dpa.h"

/* How a run ended, other than by returning. */
enum end {
	END_RETURN,
	END_RESCHEDULE,
	END_FINISH,
	END_RETRIGGER,
	END_PROCESS, /* status says why */
	END_TRAP,
};

struct message {
	uint32_t thread;
	uint8_t stream, level;
	char *text;
	size_t length;
};

struct guest {
	struct card *card;
	struct vb_dpa_thread *thread;
	struct vb_rtos_thread *ctx; /* host view */
	uint64_t ctx_addr;
	enum end end;
	unsigned int yields;
	uint64_t retrigger; /* argument of the last yield */
};

struct card {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct guest *main; /* the thread of card_call */

	pthread_mutex_t lock; /* of everything below */
	struct message *messages;
	size_t count;
	uint64_t brk, brk_mapped;
	uint64_t brk_limit; /* bytes; beyond it there is no memory */
	unsigned int status;
	uint64_t activated;
	unsigned int ctx_calls;
	uint64_t last_call[7];  /* number and arguments of the last call from 32 on */
	int64_t answer;         /* what it returns: -1, as long as nobody says otherwise */
	uint64_t outbox[64][2]; /* offset and value of stores */
	size_t stores;
	struct vb_dpa_state at_trap;
};

extern const char *card_program; /* second argument */
/* How card_setup makes the accelerator; NULL: as it is by default. */
extern const struct vb_dpa_attr *card_attr;

int card_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

/* cmocka's set-up and tear-down: *state is a struct card with one thread and stream 0 open at level INFO. */
int card_setup(void **state);
int card_teardown(void **state);

/* cmocka replaces the fault handlers before every function of a test; this puts the engine's back. */
void card_signals(void);

struct guest *card_guest(struct card *card, uint32_t id, const char *name, uint32_t flags);
void card_guest_free(struct guest *guest);

/* Run a function of the program with up to four arguments; the result is a0. */
uint64_t card_call(struct card *card, const char *function, ...);
#define card_call(card, ...) \
	(card_call)(card, __VA_ARGS__, (uint64_t)0, (uint64_t)0, (uint64_t)0, (uint64_t)0)
uint64_t guest_call(struct guest *guest, const char *function, uint64_t arg);
uint64_t card_symbol(struct card *card, const char *name);
/* The host's view of an object of the program. */
void *card_object(struct card *card, const char *name);

void card_level(struct card *card, unsigned int stream, uint8_t level);
/* Give the main thread an outbox page; stores are written down. */
void card_outbox(struct card *card);
/* All text of messages since the last call of this, one after the other; and forget them. */
char *card_text(struct card *card);
#define assert_text(card, expected)                    \
	do {                                           \
		char *text__ = card_text(card);        \
		assert_string_equal(text__, expected); \
		free(text__);                          \
	} while (0)
