// SPDX-License-Identifier: MIT
/* See count.h. Link with --wrap for each of the functions: libFuzzer has a hook of the same name. */
#include "count.h"

#include <stddef.h>
#include <sys/resource.h>
#if defined(__x86_64__)
#include <Zydis/Zydis.h>
#endif

void __wrap___sanitizer_cov_trace_pc(void);
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static _Thread_local uint64_t steps, asked;

void __wrap___sanitizer_cov_trace_pc(void)
{
	steps++;
}

void *__wrap_malloc(size_t size)
{
	asked += size;
	return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	asked += n * size;
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	asked += size;
	return __real_realloc(p, size);
}

#if defined(__x86_64__)
ZyanStatus __real_ZydisDecoderDecodeFull(const ZydisDecoder *decoder, const void *buffer,
					 ZyanUSize length, ZydisDecodedInstruction *i,
					 ZydisDecodedOperand *o);
ZyanStatus __wrap_ZydisDecoderDecodeFull(const ZydisDecoder *decoder, const void *buffer,
					 ZyanUSize length, ZydisDecodedInstruction *i,
					 ZydisDecodedOperand *o);

/*
 * The library has no hooks: what it does counts as so many steps. Visible, because libverbatim.so
 * refers to the function, too, and --wrap renames that as well.
 */
__attribute__((visibility("default"))) ZyanStatus
__wrap_ZydisDecoderDecodeFull(const ZydisDecoder *decoder, const void *buffer, ZyanUSize length,
			      ZydisDecodedInstruction *i, ZydisDecodedOperand *o)
{
	steps += COUNT_DECODED;
	return __real_ZydisDecoderDecodeFull(decoder, buffer, length, i, o);
}
#endif

static uint64_t faults(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) ? 0 : (uint64_t)usage.ru_minflt;
}

void count_start(struct count *c)
{
	c->steps = steps;
	c->asked = asked;
	c->touched = faults();
}

void count_stop(struct count *c)
{
	c->steps = steps - c->steps;
	c->asked = asked - c->asked;
	c->touched = (faults() - c->touched) * 4096;
}
