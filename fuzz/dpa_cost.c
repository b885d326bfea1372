// SPDX-License-Identifier: MIT
/*
 * libFuzzer target: what loading a file costs.
 *
 * The input says how to put a file together, so that some bytes of it can become a long one; the
 * engine counts basic blocks and bytes while it loads that, and more than docs/security.md promises
 * for a file of that length is a crash.
 *
 *      byte 0        bit 0: tier; bit 1: a PIE
 *      then records of eight bytes: kind, address, length, extra, four bytes of pattern
 *        kind % 8    0 text   1 long text   2 data   3 zeros only   4 symbols   5 strings
 *                    6 dynamic   7 the bytes of the segment before, once more
 *        address     in steps of 64 KiB from the last one; 255: far away
 *        length      in steps of 256 bytes of pattern; of text its square, up to 64 KiB; of long
 *                    text 16 times that, with decoys first (file.h), the pattern a pair of 16-bit
 *                    instructions whose registers change
 *        extra       zeros behind it, as a power of two
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "count.h"
#include "dpa/dpa.h"
#include "file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORD = 8, SEGMENTS = 32, LONG_MOST = 6 << 20 };

struct maker {
	struct file f;
	uint64_t addr;
	unsigned strings, symbols; /* sections, 0: none */
};

static size_t pattern(struct file *f, const uint8_t *four, size_t len)
{
	size_t at = file_add(f, NULL, len);

	for (size_t i = 0; i + 4 <= len; i += 4)
		memcpy(f->bytes + at + i, four, 4);
	return at;
}

static size_t long_text(struct file *f, const uint8_t *four, size_t len)
{
	size_t at = file_add(f, NULL, len);
	uint32_t bits;

	memcpy(&bits, four, 4);
	file_decoys(f->bytes + at);
	for (size_t i = FILE_DECOYS; i + 4 <= len; i += 4) {
		uint32_t r = i / 4 % 8, turned = bits ^ (r << 7 | r << 2) * 0x10001U;

		memcpy(f->bytes + at + i, &turned, 4);
	}
	return at;
}

static void segment(struct maker *m, unsigned flags, size_t at, size_t len, const uint8_t *r)
{
	uint64_t zeros = r[3] & 31 ? 1ull << (r[3] & 31) % 30 : 0;

	if (m->f.phnum == SEGMENTS)
		return;
	m->addr += r[1] == 255 ? 48ull << 20 : (r[1] + 1ull) << 16;
	file_segment(&m->f, flags, m->addr, at, len, len + zeros);
	m->addr = (m->addr + len + zeros + 0xffff) & ~0xffffull;
}

static void section(struct maker *m, unsigned type, size_t at, size_t len)
{
	Elf64_Shdr *sh;

	if (m->f.shnum == 8)
		return;
	sh = file_section(&m->f, type, at, len);
	if (type == SHT_SYMTAB) {
		sh->sh_entsize = sizeof(Elf64_Sym);
		m->symbols = m->f.shnum - 1;
	} else {
		m->strings = m->f.shnum - 1;
	}
}

static void dynamic(struct maker *m, const uint8_t *r)
{
	uint64_t where = m->f.phnum ? m->f.ph[r[4] % m->f.phnum].p_vaddr : 0;
	Elf64_Dyn dyn[] = { { DT_RELA, { where } },
			    { DT_RELASZ, { (uint64_t)r[2] << (r[3] & 31) } },
			    { DT_SYMTAB, { where + r[5] } },
			    { DT_NULL, { 0 } } };
	size_t at = file_add(&m->f, dyn, sizeof(dyn));
	Elf64_Phdr *ph;

	if (m->f.phnum + 2 > SEGMENTS)
		return;
	segment(m, PF_R | PF_W, at, sizeof(dyn), r);
	ph = &m->f.ph[m->f.phnum++];
	*ph = ph[-1];
	ph->p_type = PT_DYNAMIC;
}

static void record(struct maker *m, const uint8_t *r)
{
	size_t len = (size_t)r[2] << 8, last = m->f.phnum ? m->f.phnum - 1 : 0;

	switch (r[0] % 8) {
	case 1:
		len = FILE_DECOYS + 16 * (size_t)r[2] * r[2];
		if (m->f.size + len < LONG_MOST) {
			segment(m, PF_R | PF_X, long_text(&m->f, r + 4, len), len, r);
			break;
		}
		/* fall through */
	case 0:
		len = (size_t)r[2] * r[2];
		segment(m, PF_R | PF_X, pattern(&m->f, r + 4, len), len, r);
		break;
	case 2:
		segment(m, PF_R | PF_W, pattern(&m->f, r + 4, len), len, r);
		break;
	case 3:
		segment(m, r[4] & 1 ? PF_R | PF_X : PF_R | PF_W, 0, 0, r);
		break;
	case 4:
		section(m, SHT_SYMTAB, pattern(&m->f, r + 4, len), len);
		break;
	case 5:
		section(m, SHT_STRTAB, pattern(&m->f, r + 4, len), len);
		break;
	case 6:
		dynamic(m, r);
		break;
	default:
		segment(m, PF_R | PF_X, m->f.ph[last].p_offset, m->f.ph[last].p_filesz, r);
		break;
	}
}

static void expensive(const char *what, uint64_t count, size_t size)
{
	fprintf(stderr, "a file of %zu bytes took %llu %s\n", size, (unsigned long long)count,
		what);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct vb_dpa *dpa;
	struct vb_dpa_process_attr attr = { .tier = size && data[0] & 1 ? VB_DPA_TIER_JIT
									: VB_DPA_TIER_INTERP };
	struct vb_dpa_text_stats stats = { 0 };
	struct maker m = { .addr = 0 };
	struct vb_dpa_process *process;
	struct count c;

	setenv("VERBATIM_DPA_VERIFY", "abort", 1);
	if (!dpa && vb_dpa_create(NULL, &dpa))
		abort();
	if (size < 1 + RECORD)
		return 0;
	file_begin(&m.f);
	for (size_t i = 1; i + RECORD <= size && i < 64 * RECORD; i += RECORD)
		record(&m, data + i);
	if (m.symbols && m.strings)
		m.f.sh[m.symbols].sh_link = m.strings;
	file_end(&m.f, data[0] & 2 ? ET_DYN : ET_EXEC, 0);
	count_start(&c);
	if (!vb_dpa_process_create(dpa, m.f.bytes, m.f.size, &attr, &process, NULL)) {
		vb_dpa_text_stats(process, &stats);
		vb_dpa_process_destroy(process);
	}
	count_stop(&c);
	if (stats.code_bytes > COST_CODE + COST_CODE_EACH * (uint64_t)m.f.size)
		expensive("bytes of host code", stats.code_bytes, m.f.size);
	if (c.steps > COST_STEPS + COST_STEPS_EACH * (uint64_t)m.f.size)
		expensive("steps", c.steps, m.f.size);
	if (c.asked > COST_BYTES + COST_BYTES_EACH * (uint64_t)m.f.size)
		expensive("bytes", c.asked, m.f.size);
	/* What is touched includes the sanitizer's shadow of it. */
	if (c.touched > 4 * (COST_BYTES + COST_BYTES_EACH * (uint64_t)m.f.size))
		expensive("bytes of pages", c.touched, m.f.size);
	file_free(&m.f);
	return 0;
}
