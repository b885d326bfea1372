// SPDX-License-Identifier: MIT
/*
 * Owns the lines that refusals leave in the log: who was called, for which object, why, and what helps.
 *
 * A reason that comes again and again must not fill a disk: of each, BURST lines a second go out. What was held back is
 * counted and told with the next line of the same reason.
 */
#include "base/refusal.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { BURST = 10, LINE_MAX_BYTES = 512 };

static const struct {
	const char *name, *hint;
} reasons[] = {
#define X(name, err, hint, ...) { #name, hint },
	VB_REASONS(X)
#undef X
};

/* How many lines of a reason went out in the current second. Races only cost or save a line. */
static struct {
	_Atomic uint64_t second;
	_Atomic uint32_t lines, held_back;
} limits[VB_REASON_COUNT];

static _Thread_local struct vb_call *current;

void vb_call_begin(struct vb_call *call)
{
	call->outer = current;
	if (!current || call->nested)
		current = call;
}

void vb_call_end(struct vb_call *call)
{
	current = call->outer;
}

const char *vb_reason_name(enum vb_reason reason)
{
	return (unsigned int)reason < VB_REASON_COUNT ? reasons[reason].name : NULL;
}

/* True if the line may go out; *held_back of its kind have not since the last one. */
static bool take_turn(enum vb_reason reason, uint32_t *held_back)
{
	uint64_t now = vb_now_ns() / 1000000000u + 1;
	uint64_t second = atomic_load_explicit(&limits[reason].second, memory_order_relaxed);

	if (second != now &&
	    atomic_compare_exchange_strong_explicit(&limits[reason].second, &second, now,
						    memory_order_relaxed, memory_order_relaxed))
		atomic_store_explicit(&limits[reason].lines, 0, memory_order_relaxed);
	if (atomic_fetch_add_explicit(&limits[reason].lines, 1, memory_order_relaxed) >= BURST) {
		atomic_fetch_add_explicit(&limits[reason].held_back, 1, memory_order_relaxed);
		return false;
	}
	*held_back = atomic_exchange_explicit(&limits[reason].held_back, 0, memory_order_relaxed);
	return true;
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
	char prefix[160], text[LINE_MAX_BYTES], more[48] = "";
	const char *hint = reasons[reason].hint;
	uint32_t held_back = 0;
	va_list args;

	bool words = current && current->words;

	if (current)
		current->said = true;
	if (!words && (!vb_log_enabled(VB_LOG_INFO) || !take_turn(reason, &held_back)))
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
	if (held_back)
		snprintf(more, sizeof(more), " [%u more like this before]", held_back);
	vb_info("%s%s%s%s%s%s", prefix, text, hint ? " (" : "", hint ? hint : "", hint ? ")" : "",
		more);
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
