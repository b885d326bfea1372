// SPDX-License-Identifier: MIT
/*
 * Owns DPA processes: from a file to guest memory with rights, decoded text and perhaps translated
 * text, and the names of addresses. A process is built in one go or not at all.
 */
#include "dpa/internal.h"

#include "base/config.h"
#include "base/env.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_DEFAULT 65536
#define LIMIT_DEFAULT (1ULL << 30)

/*
 * Text may have gaps, but not be mostly gap. A byte of gap costs a fifth of what one of text does.
 */
#define TEXT_SPREAD       2
#define TEXT_SPREAD_FIXED (1ULL << 20)

/* ---- memory ---- */

/* Rights of every page that segments touch; a page that two of them share has the rights of both.
 */
static int place_pages(struct vb_dpa_process *process, struct vb_dpa_error *error)
{
	struct space *space = &process->space;

	for (unsigned int i = 0; i < process->program.nsegments; i++) {
		const struct elf_segment *seg = &process->program.segments[i];
		uint64_t last = (seg->addr + seg->memsz - 1) / space->page;

		if (seg->addr < space->page || last >= space->limit / space->page)
			return vb_elf_fail(
				error, -ENOEXEC,
				"a segment at 0x%llx touches page 0 or the end of guest memory",
				(unsigned long long)seg->addr);
		for (uint64_t p = seg->addr / space->page; p <= last; p++) {
			space->pages[p] |= seg->rights ? seg->rights : PAGE_RESERVED;
			if ((space->pages[p] & (VB_DPA_WRITE | VB_DPA_EXEC)) ==
			    (VB_DPA_WRITE | VB_DPA_EXEC))
				return vb_elf_fail(
					error, -ENOEXEC,
					"text and writable data share the page at 0x%llx; align segments to %llu",
					(unsigned long long)(p * space->page),
					(unsigned long long)space->page);
		}
	}
	return 0;
}

static int protect_segments(struct vb_dpa_process *process, bool loading)
{
	struct space *space = &process->space;

	for (unsigned int i = 0; i < process->program.nsegments; i++) {
		const struct elf_segment *seg = &process->program.segments[i];
		uint64_t last = (seg->addr + seg->memsz - 1) / space->page;
		uint64_t p = seg->addr / space->page;

		while (p <= last) {
			uint64_t n = 1;
			int prot;

			while (p + n <= last && space->pages[p + n] == space->pages[p])
				n++;
			prot = space->pages[p] & (VB_DPA_READ | VB_DPA_EXEC) ? PROT_READ
									     : PROT_NONE;
			if (space->pages[p] & VB_DPA_WRITE || loading)
				prot = PROT_READ | PROT_WRITE;
			if (mprotect(space->base + p * space->page, n * space->page, prot))
				return -errno;
			p += n;
		}
	}
	return 0;
}

/*
 * Text of an executable segment: the bytes of the file, and as many zeros behind them as an
 * instruction that begins in the file can reach.
 */
static struct vb_text_range text_range(const struct elf_segment *seg)
{
	uint64_t end = seg->addr + seg->memsz, hi = ((seg->addr + seg->filesz + 1) & ~1ULL) + 2;

	return (struct vb_text_range){ seg->addr, hi < end ? hi : end, end };
}

/*
 * Every halfword between the first and the last byte of text has its decoded instruction and its
 * places in the jump tables, so text that is spread out must be worth it.
 */
static int text_span(const struct elf_program *program, uint64_t *span, struct vb_dpa_error *error)
{
	uint64_t lo = UINT64_MAX, hi = 0, bytes = 0;

	for (unsigned int i = 0; i < program->nsegments; i++) {
		struct vb_text_range range = text_range(&program->segments[i]);

		if (!(program->segments[i].rights & VB_DPA_EXEC))
			continue;
		lo = range.lo < lo ? range.lo : lo;
		hi = range.hi > hi ? range.hi : hi;
		bytes += range.hi - range.lo;
	}
	*span = lo < hi ? hi - lo + 2 : 0;
	if (*span > VB_CPU_TEXT_MAX)
		return vb_elf_fail(error, -ENOEXEC,
				   "executable segments span %llu MiB; the most is %llu",
				   (unsigned long long)(*span >> 20),
				   (unsigned long long)(VB_CPU_TEXT_MAX >> 20));
	if (*span > TEXT_SPREAD * bytes + TEXT_SPREAD_FIXED)
		return vb_elf_fail(error, -ENOEXEC,
				   "executable segments span %llu MiB with only %llu KiB of text",
				   (unsigned long long)(*span >> 20),
				   (unsigned long long)(bytes >> 10));
	return 0;
}

/* Writable pages go into the file before anything is in them; those that find no place stay private. */
static int share_data(struct space *space, const struct elf_segment *seg)
{
	uint64_t last = (seg->addr + seg->memsz - 1) / space->page, n;
	int err = 0;

	for (uint64_t p = seg->addr / space->page; p <= last && !err; p += n) {
		bool writable = space->pages[p] & VB_DPA_WRITE;

		/* Two segments may meet in one page. */
		for (n = 1; p + n <= last && writable == !!(space->pages[p + n] & VB_DPA_WRITE);)
			n++;
		if (writable && space->num_filed < SPACE_FILED - 2 &&
		    !vb_space_is_filed(space, p * space->page, n * space->page))
			err = vb_space_into_file(space, p * space->page, n * space->page);
	}
	return err;
}

static int load_memory(struct vb_dpa_process *process, const void *elf,
		       const struct vb_dpa_process_attr *attr, uint64_t limit,
		       enum vb_dpa_tier tier, struct vb_dpa_error *error)
{
	uint64_t span;
	int err;

	err = text_span(&process->program, &span, error);
	if (err)
		return err;
	err = vb_space_create(&process->space, limit, span, tier != VB_DPA_TIER_INTERP);
	if (err)
		return vb_elf_fail(error, err, "cannot reserve %llu MiB of address space",
				   (unsigned long long)(limit >> 20));
	err = place_pages(process, error);
	for (unsigned int i = 0; attr->share_data && i < process->program.nsegments && !err; i++)
		err = share_data(&process->space, &process->program.segments[i]);
	if (err)
		return err;
	if (protect_segments(process, true))
		return vb_elf_fail(error, -ENOMEM, "no memory for the program's segments");
	err = vb_elf_load(elf, &process->program, process->space.base, error);
	if (!err && protect_segments(process, false))
		err = vb_elf_fail(error, -ENOMEM,
				  "cannot set the rights of the program's segments");
	return err;
}

/* ---- text ---- */

static int load_text(struct vb_dpa_process *process, struct vb_dpa_error *error)
{
	const struct elf_program *program = &process->program;
	struct vb_text_range *ranges;
	unsigned int n = 0;
	int err;

	ranges = calloc(program->nsegments, sizeof(*ranges));
	if (!ranges)
		return vb_elf_fail(error, -ENOMEM, "no memory");
	for (unsigned int i = 0; i < program->nsegments; i++)
		if (program->segments[i].rights & VB_DPA_EXEC)
			ranges[n++] = text_range(&program->segments[i]);
	err = vb_text_create(&process->text, process->space.base, ranges, n);
	atomic_init(&process->run_text, &process->text);
	return err ? vb_elf_fail(error, err, "no memory to decode the text") : 0;
}

static bool add_leader(uint64_t **leaders, size_t *n, size_t *max, uint64_t addr)
{
	uint64_t *grown;

	if (*n == *max) {
		*max = *max ? 2 * *max : 1024;
		grown = realloc(*leaders, *max * sizeof(**leaders));
		if (!grown)
			return false;
		*leaders = grown;
	}
	(*leaders)[(*n)++] = addr;
	return true;
}

/* Where indirect jumps may go: named code, and words of data that look like code addresses. Only a
 * guess; see jit/. */
static size_t dpa_process_find_leaders(const struct vb_dpa_process *process, uint64_t **leaders,
				       size_t *nsymbols)
{
	const struct elf_program *program = &process->program;
	size_t n = 0, max = 0;

	add_leader(leaders, &n, &max, program->entry);
	for (size_t i = 0; i < program->nsymbols; i++)
		if (vb_text_holds(&process->text, program->symbols[i].addr) &&
		    !add_leader(leaders, &n, &max, program->symbols[i].addr))
			return n;
	*nsymbols = n;
	for (unsigned int i = 0; i < program->nsegments; i++) {
		const struct elf_segment *seg = &program->segments[i];
		uint64_t at = (seg->addr + 3) & ~3ULL;

		for (; seg->rights & VB_DPA_READ && !(seg->rights & VB_DPA_EXEC) &&
		       at + 4 <= seg->addr + seg->filesz;
		     at += 4) {
			uint32_t word;

			memcpy(&word, process->space.base + at, sizeof(word));
			if (vb_text_holds(&process->text, word) &&
			    !add_leader(leaders, &n, &max, word))
				return n;
		}
	}
	return n;
}

static const char *perf_name(void *arg, uint64_t pc, uint64_t *offset)
{
	return vb_dpa_symbol_name(arg, pc, offset);
}

static int choose_tier(enum vb_dpa_tier wanted, struct vb_dpa_error *error, enum vb_dpa_tier *tier)
{
	const char *env = vb_getenv("VERBATIM_DPA_TIER");

	*tier = wanted;
	if (!env || !*env)
		return 0;
	if (!strcmp(env, "interp"))
		*tier = VB_DPA_TIER_INTERP;
	else if (!strcmp(env, "jit"))
		*tier = VB_DPA_TIER_JIT;
	else
		return vb_elf_fail(error, -EINVAL, "VERBATIM_DPA_TIER=%s is neither interp nor jit",
				   env);
	return 0;
}

static int choose_checks(uint32_t wanted, struct vb_dpa_error *error, uint32_t *checks)
{
	const char *env = vb_getenv("VERBATIM_DPA_CHECK");
	char why[128];

	*checks = wanted;
	if (!env || !*env)
		return 0;
	if (vb_check_words(env, checks, why, sizeof(why)))
		return vb_elf_fail(error, -EINVAL, "VERBATIM_DPA_CHECK: %s", why);
	return 0;
}

static void dpa_process_translate(struct vb_dpa_process *process)
{
	static atomic_bool said;
	uint64_t *leaders = NULL;
	struct vb_text_range
		data[sizeof(process->program.segments) / sizeof(process->program.segments[0])];
	struct vb_jit_hints hints = { .data = data };
	const char *why = "", *map = vb_getenv("VERBATIM_DPA_PERF_MAP");
	int err;

	for (unsigned int i = 0; i < process->program.nsegments; i++) {
		const struct elf_segment *seg = &process->program.segments[i];

		if (seg->rights & VB_DPA_READ && !(seg->rights & VB_DPA_EXEC))
			data[hints.ndata++] =
				(struct vb_text_range){ seg->addr, seg->addr + seg->filesz,
							seg->addr + seg->filesz };
	}
	if (!process->space.whole) {
		why = "no 4 GiB of address space are free (ulimit -v)";
		err = -ENOMEM;
	} else {
		hints.nleaders = dpa_process_find_leaders(process, &leaders, &hints.nsymbols);
		hints.leaders = leaders;
		err = vb_jit_create(&process->text, process->space.limit, process->space.table,
				    (uint8_t *)process->space.table - process->space.base, &hints,
				    &why);
	}
	free(leaders);
	if (err && !atomic_exchange(&said, true))
		vb_warn("dpa: programs are interpreted, not translated: %s", why);
	if (!err && map && !strcmp(map, "1"))
		vb_jit_perf_map(&process->text, perf_name, process);
}

/* ---- create, destroy ---- */

static void dpa_process_free(struct vb_dpa_process *process)
{
	vb_sample_end(process);
	vb_check_end(process);
	vb_observe_free(process);
	vb_jit_destroy(&process->text);
	vb_text_destroy(&process->text);
	vb_space_destroy(&process->space);
	vb_elf_free(&process->program);
	pthread_mutex_destroy(&process->lock);
	pthread_mutex_destroy(&process->cpus_lock);
	pthread_mutex_destroy(&process->snapshot_lock);
	free(process);
}

static int dpa_process_build(struct vb_dpa_process *process, const void *elf, size_t len,
			     const struct vb_dpa_process_attr *attr, uint64_t limit,
			     enum vb_dpa_tier tier, uint32_t checks, struct vb_dpa_error *error)
{
	int err;

	/* What is checked is interpreted. */
	if (checks & ~(uint32_t)VB_CHECK_CONTINUE)
		tier = VB_DPA_TIER_INTERP;
	err = vb_signal_install();
	if (err)
		return vb_elf_fail(error, err, "cannot install the SIGSEGV handler");
	vb_access_init();
	err = vb_elf_read(elf, len, limit, &process->program, error);
	if (!err)
		err = load_memory(process, elf, attr, limit, tier, error);
	if (!err)
		err = load_text(process, error);
	if (err)
		return err;
	if (tier != VB_DPA_TIER_INTERP)
		dpa_process_translate(process);
	if (vb_dpa_symbol_value(process, "__global_pointer$", &process->global_pointer, NULL))
		process->global_pointer = 0;
	err = vb_check_begin(process, checks, elf, len);
	if (err)
		return vb_elf_fail(error, err, "no memory to check it");
	return vb_sample_begin(process, elf, len, error);
}

/* Checked mode writes to stacks by itself: there nothing of them is kept back. */
static void choose_stacks(struct vb_dpa_process *p, const struct vb_dpa_process_attr *attr,
			  uint32_t checks)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	p->stack_size =
		((attr->stack_size ? attr->stack_size : STACK_DEFAULT) + page - 1) & ~(page - 1);
	p->stack_spare = attr->stack_spare & ~(page - 1);
	if (checks) {
		p->stack_size += p->stack_spare;
		p->stack_spare = 0;
	}
}

int vb_dpa_process_create(struct vb_dpa *dpa, const void *elf, size_t len,
			  const struct vb_dpa_process_attr *attr, struct vb_dpa_process **process,
			  struct vb_dpa_error *error)
{
	static const struct vb_dpa_process_attr defaults;
	static _Atomic uint32_t processes;
	struct vb_dpa_process *p;
	enum vb_dpa_tier tier;
	uint32_t checks;
	uint64_t limit;
	int err;

	attr = attr ? attr : &defaults;
	limit = attr->limit ? attr->limit : LIMIT_DEFAULT;
	if (!dpa || limit > VB_CPU_LIMIT_MAX || limit < 1U << 16 || attr->tier > VB_DPA_TIER_JIT)
		return vb_elf_fail(error, -EINVAL, "bad attributes");
	err = choose_tier(attr->tier, error, &tier);
	if (!err)
		err = choose_checks(attr->check, error, &checks);
	if (err)
		return err;
	p = calloc(1, sizeof(*p));
	if (!p)
		return vb_elf_fail(error, -ENOMEM, "no memory");
	p->dpa = dpa;
	p->number = (uint8_t)(1 + atomic_fetch_add_explicit(&processes, 1, memory_order_relaxed) %
					  UINT8_MAX);
	p->ops = attr->ops;
	p->ops_arg = attr->ops_arg;
	choose_stacks(p, attr, checks);
	snprintf(p->name, sizeof(p->name), "%s", attr->name ? attr->name : "dpa");
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->cpus_lock, NULL);
	p->cpus_end = &p->cpus;
	pthread_mutex_init(&p->snapshot_lock, NULL);
	err = dpa_process_build(p, elf, len, attr, limit, tier, checks, error);
	if (err) {
		dpa_process_free(p);
		return err;
	}
	pthread_mutex_lock(&dpa->lock);
	dpa->nprocesses++;
	pthread_mutex_unlock(&dpa->lock);
	*process = p;
	return 0;
}

int vb_dpa_process_destroy(struct vb_dpa_process *process)
{
	struct vb_dpa *dpa = process->dpa;
	bool busy;

	pthread_mutex_lock(&process->cpus_lock);
	busy = process->cpus;
	pthread_mutex_unlock(&process->cpus_lock);
	if (busy)
		return -EBUSY;
	vb_debug_free(process);
	vb_windows_free(process);
	dpa_process_free(process);
	pthread_mutex_lock(&dpa->lock);
	dpa->nprocesses--;
	pthread_mutex_unlock(&dpa->lock);
	return 0;
}

/* ---- what others ask ---- */

enum vb_dpa_tier vb_dpa_process_tier(const struct vb_dpa_process *process)
{
	return process->text.jit ? VB_DPA_TIER_JIT : VB_DPA_TIER_INTERP;
}

uint64_t vb_dpa_process_entry(const struct vb_dpa_process *process)
{
	return process->program.entry;
}

bool vb_dpa_program_holds(const struct vb_dpa_process *process, uint64_t addr, uint64_t len)
{
	for (unsigned int i = 0; i < process->program.nsegments; i++) {
		const struct elf_segment *seg = &process->program.segments[i];

		if (addr >= seg->addr && len <= seg->memsz && addr - seg->addr <= seg->memsz - len)
			return true;
	}
	return false;
}

uint64_t vb_dpa_process_limit(const struct vb_dpa_process *process)
{
	return process->space.limit;
}

uint64_t vb_dpa_process_bias(const struct vb_dpa_process *process)
{
	return process->program.bias;
}

const char *vb_dpa_process_name(const struct vb_dpa_process *process)
{
	return process->name;
}

void *vb_dpa_process_ops_arg(const struct vb_dpa_process *process)
{
	return process->ops_arg;
}

uint64_t vb_dpa_clock(const struct vb_dpa_process *process, uint64_t instret)
{
	return process->dpa->deterministic ? instret : vb_cpu_clock_now();
}

void vb_dpa_text_stats(const struct vb_dpa_process *process, struct vb_dpa_text_stats *out)
{
	*out = (struct vb_dpa_text_stats){ .text_bytes = process->text.bytes };
	if (process->text.jit)
		vb_jit_stats(&process->text, out);
}

int vb_dpa_symbol_value(const struct vb_dpa_process *process, const char *name, uint64_t *value,
			uint64_t *size)
{
	return vb_elf_symbol(&process->program, name, value, size);
}

const char *vb_dpa_symbol_name(const struct vb_dpa_process *process, uint64_t addr,
			       uint64_t *offset)
{
	const struct symbol *symbols = process->program.symbols;
	size_t lo = 0, hi = process->program.nsymbols;

	/* The last symbol that starts at or before addr ... */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (symbols[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	/*
	 * ... or one of its neighbours that is long enough; labels without a size reach to the next
	 * symbol.
	 */
	for (size_t i = lo, tries = 0; i-- > 0 && tries < 64; tries++) {
		const struct symbol *s = &symbols[i];

		if (s->size ? addr - s->addr >= s->size
			    : !vb_text_holds(&process->text, addr) ||
				      !vb_text_holds(&process->text, s->addr))
			continue;
		if (offset)
			*offset = addr - s->addr;
		/* Several names for one address: the first one has the size. */
		for (; i > 0 && symbols[i - 1].addr == s->addr && symbols[i - 1].size >= s->size &&
		       tries < 64;
		     tries++)
			s = &symbols[--i];
		return s->name;
	}
	return NULL;
}
