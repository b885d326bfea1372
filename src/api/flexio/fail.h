/* SPDX-License-Identifier: MIT */
/* The host log, and why a call fails: log.c. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#define FLEXIO_ALLOW_EXPERIMENTAL_API
#include <libflexio/flexio.h>

#include "base/rate.h"
#include "base/refusal.h"
#include "base/time.h"
#include "base/util.h"
#include "control/record/timeline.h"

extern _Atomic int vb_flexio_log_level;

void vb_flexio_log(const char *function, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Log lines that are not about a failing call: about device threads, queues and streams. They name
 * the function that writes them.
 */
#define log_at(level, ...)                                                                       \
	do {                                                                                     \
		if (atomic_load_explicit(&vb_flexio_log_level, memory_order_relaxed) >= (level)) \
			vb_flexio_log(__func__, __LINE__, __VA_ARGS__);                          \
	} while (0)
/* Lines that device code can cause again and again: some a second, and a count of the others. */
#define log_some(level, fmt, ...)                                                                  \
	do {                                                                                       \
		static struct vb_rate rate;                                                        \
		struct vb_rate_words more;                                                         \
		uint32_t held_back;                                                                \
                                                                                                   \
		if (atomic_load_explicit(&vb_flexio_log_level, memory_order_relaxed) >= (level) && \
		    vb_rate_allows(&rate, &held_back))                                             \
			vb_flexio_log(__func__, __LINE__, fmt "%s", __VA_ARGS__,                   \
				      vb_rate_tell(&more, held_back));                             \
	} while (0)
#define log_err(...)  log_at(FLEXIO_LOG_LVL_ERR, __VA_ARGS__)
#define log_warn(...) log_at(FLEXIO_LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...) log_at(FLEXIO_LOG_LVL_INFO, __VA_ARGS__)

/*
 * The public function that this thread is in. API_CALL() is the first statement of each; a public
 * function does not call another one, so nothing has to be put back.
 */
struct vb_api_call {
	const char *function; /* NULL: it never was in one */
	bool said;            /* the reason of its failure is in the log */
};

extern _Thread_local struct vb_api_call vb_api_call __attribute__((tls_model("initial-exec")));

static inline void vb_api_begin(const char *function)
{
	vb_api_call = (struct vb_api_call){ function, false };
}

/* A call as the timeline shows it, to the end of its scope. */
struct api_span {
	const char *function;
	uint64_t start; /* 0: the timeline is off */
};

void vb_api_note(const struct api_span *span) __attribute__((cold));

static inline struct api_span api_span_begin(const char *function)
{
	vb_api_begin(function);
	return (struct api_span){ function, vb_timeline_is_on() ? vb_timeline_now() : 0 };
}

static inline void api_span_end(struct api_span *span)
{
	if (__builtin_expect(span->start != 0, 0))
		vb_api_note(span);
}

#define API_CALL()                                                                 \
	struct api_span api_span_ __attribute__((cleanup(api_span_end), unused)) = \
		api_span_begin(__func__)

/*
 * Say why the public call fails, in its name, wherever that is decided: "<function> <line> -
 * <text>". Only the first reason counts, so each failing call leaves one line. The result is
 * FLEXIO_STATUS_FAILED, for `return fail("...")`.
 */
#define fail(...) vb_flexio_fail(__func__, __LINE__, __VA_ARGS__)
flexio_status vb_flexio_fail(const char *function, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* A helper failed. If it has not logged the reason, this logs at least the failure. */
#define failed() fail("something inside failed, and did not say why")
/* An invalid handle; what: the kind of object. */
#define bad_handle(handle, what) vb_flexio_bad_handle(__func__, __LINE__, handle, what)
flexio_status vb_flexio_bad_handle(const char *function, int line, const void *handle,
				   const char *what);

/*
 * Why the card, or libibverbs, refuses something becomes part of our line instead of one of its
 * own: CARD_WORDS(words) in front of what may be refused, for the rest of the scope; then
 * card_reason(&words, err).
 */
struct card_words {
	struct vb_call call;
	char text[256]; /* empty: nothing was refused */
};

static inline void card_words_begin(struct card_words *words)
{
	words->text[0] = 0;
	words->call = (struct vb_call){ .function = "libflexio",
					.nested = true,
					.words = words->text,
					.words_size = sizeof(words->text) };
	vb_call_begin(&words->call);
}

static inline void card_words_end(struct card_words *words)
{
	vb_call_end(&words->call);
}

/* err: -errno. */
static inline const char *card_reason(const struct card_words *words, int err)
{
	return words->text[0] ? words->text : strerror(-err);
}

#define CARD_WORDS(name)                                                 \
	struct card_words name __attribute__((cleanup(card_words_end))); \
	card_words_begin(&name)
