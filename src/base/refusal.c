// SPDX-License-Identifier: MIT
/*
 * Owns the lines that refusals leave in the log: who was called, for which object, why, and what
 * helps.
 */
#include "base/refusal.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/rate.h"

enum { LINE_MAX_BYTES = 512 };

static const struct {
	const char *name, *hint;
} reasons[] = {
#define X(name, err, hint, ...) { #name, hint },
	VB_REASONS(X)
#undef X
};

static struct vb_rate limits[VB_REASON_COUNT];

static _Thread_local struct vb_call *current;

static const struct vb_call_watch *_Atomic watch;

void vb_call_watch(const struct vb_call_watch *watcher)
{
	atomic_store_explicit(&watch, watcher, memory_order_release);
}

void vb_call_begin(struct vb_call *call)
{
	const struct vb_call_watch *watcher;

	vb_fork_step_out();
	call->outer = current;
	if (!current || call->nested)
		current = call;
	watcher = atomic_load_explicit(&watch, memory_order_acquire);
	if (__builtin_expect(watcher != NULL, 0) && current == call && !call->nested)
		watcher->begin(call);
}

void vb_call_end(struct vb_call *call)
{
	if (__builtin_expect(call->start != 0, 0))
		atomic_load_explicit(&watch, memory_order_acquire)->end(call);
	current = call->outer;
	vb_fork_step_in();
}

const char *vb_reason_name(enum vb_reason reason)
{
	return (unsigned int)reason < VB_REASON_COUNT ? reasons[reason].name : NULL;
}

/* "ibv_modify_qp: QP 0x1040 to RTR: " */
static void write_prefix(char *out, size_t size)
{
	static const struct vb_call nobody = { .function = "card" };
	const struct vb_call *call = current ? current : &nobody;
	int n;

	n = snprintf(out, size, "%s: ", call->function);
	if (!call->kind || n < 0 || (size_t)n >= size)
		return;
	if (call->number)
		n += snprintf(out + n, size - (size_t)n, "%s 0x%x", call->kind, call->number);
	else
		n += snprintf(out + n, size - (size_t)n, "%s", call->kind);
	if ((size_t)n < size)
		snprintf(out + n, size - (size_t)n, "%s%s: ", call->detail ? " " : "",
			 call->detail ? call->detail : "");
}

int vb_refuse(enum vb_reason reason, int err, const char *fmt, ...)
{
	char prefix[160], text[LINE_MAX_BYTES];
	struct vb_rate_words more;
	const char *hint = reasons[reason].hint;
	uint32_t held_back = 0;
	va_list args;

	bool words = current && current->words;

	if (current)
		current->said = true;
	if (!words &&
	    (!vb_log_enabled(VB_LOG_INFO) || !vb_rate_allows(&limits[reason], &held_back)))
		return -err;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (words) {
		snprintf(current->words, current->words_size, "%s%s%s%s", text, hint ? " (" : "",
			 hint ? hint : "", hint ? ")" : "");
		return -err;
	}
	write_prefix(prefix, sizeof(prefix));
	vb_info("%s%s%s%s%s%s", prefix, text, hint ? " (" : "", hint ? hint : "", hint ? ")" : "",
		vb_rate_tell(&more, held_back));
	return -err;
}

void vb_call_failed(const char *fallback, int err)
{
	struct vb_call call = { .function = fallback };

	vb_call_begin(&call);
	if (!current->said)
		vb_refuse_unexplained(strerror(err));
	vb_call_end(&call);
}
