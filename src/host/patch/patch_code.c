// SPDX-License-Identifier: MIT
/*
 * Owns the code of trampolines, and which jumps lead to them.
 *
 *	site:      jmp entry                     5 bytes, the last of which may be foreign ones
 *	entry:     jmp over hlt, where a jump may land that somebody else has changed (patch_stray.c)
 *	           below the red zone: save rax, arithmetic flags, rcx
 *	           rax := address of the store - bounds.low
 *	           rax < bounds.span ------------------------> hit
 *	           budget less one, if there is any
 *	elsewhere: rax, flags, rcx back
 *	original:  the store, as it was
 *	           jmp behind the site
 *	done:      rax, flags, rcx back
 *	           jmp behind the site
 *	hit:       rcx := trampoline; jmp vb_patch_thunk ----> elsewhere or done
 *
 * Nothing here calls: a return address in a trampoline would be one that no unwinder knows. A store
 * elsewhere needs 152 bytes of stack and nothing else, because it may be one of a handler that has
 * little of it.
 */
#include "host/patch/patch.h"

#include <string.h>

#if defined(__x86_64__)

enum { FIXED = 144 };

struct out {
	uint8_t *at, *end;
	uintptr_t base;
	uint8_t *start;
	bool failed;
};

static void put(struct out *out, const void *bytes, size_t n)
{
	if ((size_t)(out->end - out->at) < n) {
		out->failed = true;
		return;
	}
	memcpy(out->at, bytes, n);
	out->at += n;
}

#define PUT(out, ...) \
	put(out, (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

static uintptr_t patch_code_here(const struct out *out)
{
	return out->base + (uintptr_t)(out->at - out->start);
}

static void put_word(struct out *out, uint64_t value)
{
	put(out, &value, sizeof(value));
}

static void put_jump(struct out *out, uintptr_t to)
{
	int64_t distance = (int64_t)(to - (patch_code_here(out) + VB_JUMP));
	int32_t rel = (int32_t)distance;

	if (rel != distance)
		out->failed = true;
	PUT(out, 0xe9);
	put(out, &rel, sizeof(rel));
}

/* mov $value, %rcx */
static void put_rcx(struct out *out, uint64_t value)
{
	PUT(out, 0x48, 0xb9);
	put_word(out, value);
}

/* lea address, %rax */
static void put_lea(struct out *out, const struct vb_store_form *form)
{
	bool block = form->kind == VB_STORE_BLOCK;
	uint8_t base = block ? form->reg : form->base, index = block ? VB_STORE_NONE : form->index;
	bool has_base = base != VB_STORE_NONE, has_index = index != VB_STORE_NONE;
	int32_t disp = block ? 0 : (int32_t)form->disp;
	uint8_t rex = 0x48, sib = 0;

	if (has_base)
		rex |= base >> 3;
	if (has_index) {
		rex = (uint8_t)(rex | (index >> 3) << 1);
		sib = (uint8_t)__builtin_ctz(form->scale) << 6;
	}
	/* an index of 4 is none, a base of 5 without mod is none */
	sib = (uint8_t)(sib | (has_index ? index & 7 : 4) << 3 | (has_base ? base & 7 : 5));
	if (form->address32)
		PUT(out, 0x67);
	PUT(out, rex, 0x8d, has_base ? 0x84 : 0x04, sib);
	put(out, &disp, sizeof(disp));
}

/* popf would take longer than all the rest. */
static void put_registers_back(struct out *out)
{
	PUT(out, 0x59, 0x58);             /* pop %rcx; pop %rax */
	PUT(out, 0x04, 0x7f, 0x9e, 0x58); /* add $127, %al; sahf; pop %rax */
	PUT(out, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0x00, 0x00, 0x00); /* lea 128(%rsp), %rsp */
}

bool vb_tramp_can(const struct vb_store_form *form)
{
	bool flat = form->segment == VB_STORE_FLAT && form->disp == (int32_t)form->disp &&
		    form->base != VB_STORE_RIP && form->base != VB_GPR_SP;

	switch ((enum vb_store_kind)form->kind) {
	case VB_STORE_PLAIN:
	case VB_STORE_EXCHANGE:
		return flat && form->source != VB_STORE_FROM_MMX &&
		       !(form->kind == VB_STORE_EXCHANGE && form->reg == VB_GPR_SP) &&
		       (form->index == VB_STORE_NONE || form->scale);
	case VB_STORE_BLOCK: /* disp and base are those of the source */
		return form->segment == VB_STORE_FLAT && form->base != VB_STORE_RIP &&
		       form->reg != VB_GPR_SP;
	case VB_STORE_FILL:
	case VB_STORE_COPY:
		break;
	}
	return false;
}

size_t vb_tramp_size(const struct vb_store_form *form)
{
	return (size_t)FIXED + form->length;
}

bool vb_tramp_build(struct vb_tramp *tramp, uintptr_t at, uint8_t *code, size_t size)
{
	struct out out = { .at = code, .end = code + size, .base = at, .start = code };
	uintptr_t behind = tramp->site + tramp->form.length;
	uint8_t *hit;

	tramp->code_start = at;
	if (tramp->skip) {
		put_jump(&out, at + tramp->skip);
		while (!out.failed && patch_code_here(&out) < at + tramp->skip)
			PUT(&out, VB_HLT);
	}
	PUT(&out, 0x48, 0x8d, 0x64, 0x24, 0x80, 0x50); /* lea -128(%rsp), %rsp; push %rax */
	PUT(&out, 0x9f, 0x0f, 0x90, 0xc0, 0x50);       /* lahf; seto %al; push %rax */
	PUT(&out, 0x48, 0x8b, 0x44, 0x24, 0x08);       /* mov 8(%rsp), %rax */
	put_lea(&out, &tramp->form);
	PUT(&out, 0x51); /* push %rcx */
	put_rcx(&out, (uintptr_t)&vb_patch_bounds);
	PUT(&out, 0x48, 0x2b, 0x01);       /* sub (%rcx), %rax */
	PUT(&out, 0x48, 0x3b, 0x41, 0x08); /* cmp 8(%rcx), %rax */
	PUT(&out, 0x72, 0);                /* jb hit */
	hit = out.at;
	put_rcx(&out, (uintptr_t)&tramp->budget);
	/* Once it is used up, threads share the line without writing it. */
	PUT(&out, 0x48, 0x83, 0x39, 0x00); /* cmpq $0, (%rcx) */
	PUT(&out, 0x7c, 4);                /* jl elsewhere */
	PUT(&out, 0x48, 0x83, 0x29, 0x01); /* subq $1, (%rcx) */
	tramp->elsewhere = patch_code_here(&out);
	put_registers_back(&out);
	tramp->original = patch_code_here(&out);
	put(&out, tramp->code, tramp->form.length);
	put_jump(&out, behind);
	tramp->done = patch_code_here(&out);
	put_registers_back(&out);
	put_jump(&out, behind);
	if (out.failed)
		return false;
	hit[-1] = (uint8_t)(out.at - hit);
	put_rcx(&out, (uintptr_t)tramp);
	/* not through memory: a word in here is not aligned, which the program may have checked */
	PUT(&out, 0x48, 0xb8); /* mov $thunk, %rax */
	put_word(&out, (uintptr_t)vb_patch_thunk);
	PUT(&out, 0xff, 0xe0); /* jmp *%rax */
	tramp->code_size = (size_t)(out.at - code);
	return !out.failed;
}

/* --- jumps ------------------------------------------------------------------------------------ */

/*
 * With p prefixes before it, the jump ends p + 5 bytes behind the site's start. Of its distance the
 * low bytes are ours as far as the instruction reaches; the high ones are what stands there.
 */
unsigned int vb_jump_windows(uintptr_t site, const uint8_t *code, unsigned int length,
			     struct vb_jump_window windows[VB_JUMP_WINDOWS])
{
	unsigned int count = 0;

	for (unsigned int p = 0; p < length && count < VB_JUMP_WINDOWS; p++) {
		unsigned int ours = length - p - 1;
		uintptr_t end = site + p + VB_JUMP;
		int32_t rel;

		if (ours >= 4) {
			uintptr_t back = (1ul << 31) - 8192;

			windows[count++] = (struct vb_jump_window){ end > back ? end - back : 0,
								    end + back, 0 };
			break;
		}
		memcpy(&rel, code + p + 1, sizeof(rel));
		rel = (int32_t)((uint32_t)rel & ~((1u << 8 * ours) - 1));
		windows[count].low = end + (uintptr_t)(intptr_t)rel;
		windows[count].high = windows[count].low + (1ul << 8 * ours);
		windows[count++].prefixes = (uint8_t)p;
	}
	return count;
}

#endif
