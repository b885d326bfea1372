// SPDX-License-Identifier: MIT
/*
 * Owns the translations of a text: the first is made at load; another one when indirect jumps kept
 * going to addresses that nothing had shown to be code. Old ones stay until the process ends,
 * because threads may be inside.
 *
 * Code is written to memory that is not executable and made executable when nothing writes it any
 * more.
 */
#include "base/env.h"
#include "base/log.h"
#include "base/time.h"
#include "dpa/cpu/jit/runtime.h"
#include "dpa/cpu/jit/verify.h"

#include <cpuid.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Host code that a text may cost: one translation of it, and all that are ever made together.
 * Compilers' code takes 4 to 8 bytes for each of text; what takes more than 24 is interpreted.
 * CODE_MAX keeps every displacement within 32 bits.
 */
#define CODE_PER_BYTE  24
#define TOTAL_PER_BYTE 64
#define CODE_FIXED     (1UL << 20)
#define CODE_LEAST     65536 /* less is not worth a try */
#define CODE_MAX       (1UL << 30)

#define LEARN_MISSES \
	64U /* before the second translation; four times as many before each further one */

#define ARCH_SHSTK_STATUS 0x5005

/* ---- may we? ---- */

static const char *host_lacks(void)
{
	unsigned int a, b, c, d;
	unsigned long shadow = 0;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_POPCNT))
		return "the CPU has no POPCNT";
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_BMI) || !(b & bit_BMI2))
		return "the CPU has no BMI2";
	if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(c & bit_LZCNT))
		return "the CPU has no LZCNT";
	if (!syscall(SYS_arch_prctl, ARCH_SHSTK_STATUS, &shadow) && shadow & 1)
		return "shadow stacks are on, and returns are predicted with the host's stack";
	return NULL;
}

static bool host_has_clmul(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && c & bit_PCLMUL && c & bit_SSE4_1;
}

/* ---- one translation ---- */

static void generation_free(struct generation *gen)
{
	if (gen->code)
		munmap(gen->code, gen->code_len);
	free(gen->sites);
	free(gen->loops);
	*gen = (struct generation){ 0 };
}

static int make_executable(struct generation *gen, size_t reserved)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	gen->code_len = (gen->code_used + page - 1) & ~(page - 1);
	if (gen->code_len < reserved)
		munmap(gen->code + gen->code_len, reserved - gen->code_len);
	return mprotect(gen->code, gen->code_len, PROT_READ | PROT_EXEC) ? -EPERM : 0;
}

/* How much host code the next translation may be. */
static size_t code_room(const struct vb_jit *jit)
{
	size_t text = jit->text->bytes, page = (size_t)sysconf(_SC_PAGESIZE);
	size_t room = text * CODE_PER_BYTE + CODE_FIXED;
	size_t total = text * TOTAL_PER_BYTE + GENERATIONS * CODE_FIXED;

	for (unsigned int g = 0; g < GENERATIONS; g++)
		total -= jit->gens[g].code_len < total ? jit->gens[g].code_len : total;
	room = room < total ? room : total;
	room = room < CODE_MAX ? room : CODE_MAX;
	return room & ~(page - 1);
}

enum verify_mode { VERIFY_OFF, VERIFY_ON, VERIFY_ABORT };

/*
 * VERBATIM_DPA_VERIFY: 1 or nothing, what the checker refuses is interpreted; abort, for tests, is
 * the end; 0, nothing is checked.
 */
static enum verify_mode verify_mode(void)
{
	const char *value = vb_getenv("VERBATIM_DPA_VERIFY");
	static atomic_bool said;

	if (!value || !*value)
		return VERIFY_ON;
	if (!strcmp(value, "0"))
		return VERIFY_OFF;
	if (!strcmp(value, "abort"))
		return VERIFY_ABORT;
	if (strcmp(value, "1") && !atomic_exchange(&said, true))
		vb_warn("VERBATIM_DPA_VERIFY=%s is taken for 1; allowed: 0, 1, abort", value);
	return VERIFY_ON;
}

static int check_contract(const struct tx *tx)
{
	enum verify_mode mode = verify_mode();
	const struct vb_text *text = tx->jit->text;
	struct verify v = { .code = tx->gen->code,
			    .len = tx->gen->code_used,
			    .host = tx->gen->host,
			    .limit = tx->jit->limit,
			    .text_lo = text->lo,
			    .text_len = text->hi - text->lo,
			    .table = tx->epoch->table_disp,
			    .gen = tx->gen,
			    .sites = tx->gen->sites,
			    .nsites = tx->gen->nsites,
			    .offsets = tx->offsets,
			    .noffsets = tx->a.n,
			    .enter = tx->thunks.enter,
			    .miss = tx->thunks.miss,
			    .fences = vb_access_fences() };
	char why[160];
	int err;

	if (mode == VERIFY_OFF)
		return 0;
	err = vb_jit_verify(&v, why, sizeof(why));
	if (err == -EBADMSG) {
		vb_error("dpa: a translation breaks its contract and is not run: %s", why);
		if (mode == VERIFY_ABORT)
			abort();
	}
	return err;
}

/* The notes are final: give back what the array grew too far. */
static void trim_sites(struct generation *gen)
{
	struct site *sites = realloc(gen->sites, (gen->nsites + 1) * sizeof(*sites));

	if (sites)
		gen->sites = sites;
}

/* Fill gen. *offsets, to be freed, is where each leader begins in its code. */
static int translate_text(struct vb_jit *jit, struct epoch *epoch, struct generation *gen,
			  struct thunks *thunks, uint32_t **offsets)
{
	size_t reserved = code_room(jit);
	struct tx tx = { .jit = jit, .epoch = epoch, .gen = gen };
	int err = reserved < CODE_LEAST ? -EFBIG : analyze(jit, &tx.a);

	*offsets = NULL;
	if (err)
		return err;
	tx.offsets = *offsets = calloc(tx.a.n + 1, sizeof(*tx.offsets));
	gen->code = mmap(NULL, reserved, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (gen->code == MAP_FAILED)
		gen->code = NULL;
	if (!tx.offsets || !gen->code) {
		err = -ENOMEM;
	} else {
		if (gen == &jit->gens[0]) {
			jit->sp_checked = tx.a.sp_checked;
			choose_registers(tx.a.uses, epoch->host);
		}
		memcpy(gen->host, epoch->host, sizeof(gen->host));
		gen->code_len = reserved;
		tx.c = (struct code){ .start = gen->code,
				      .at = gen->code,
				      .end = gen->code + reserved };
		emit_all(&tx);
		gen->code_used = code_offset(&tx.c);
		err = tx.out_of_room ? -EFBIG : tx.failed ? -ENOMEM : check_contract(&tx);
	}
	*thunks = tx.thunks;
	free(tx.stubs);
	free(tx.fixups);
	analysis_free(&tx.a);
	if (!err)
		err = make_executable(gen, reserved);
	if (err)
		generation_free(gen);
	else
		trim_sites(gen);
	return err;
}

/*
 * Let the table of an epoch show a new translation: all of it first, then the leaders that it has.
 */
static int jit_publish(struct vb_jit *jit, struct epoch *epoch, const uint8_t *code,
		       const struct thunks *thunks, const uint32_t *offsets)
{
	size_t n = (jit->text->hi - jit->text->lo) / 2;

	if (mprotect(epoch->table, jit->table_len, PROT_READ | PROT_WRITE))
		return -ENOMEM;
	if (!epoch->miss) {
		epoch->enter = (uint64_t(*)(struct vb_cpu *, const void *))(
			uintptr_t)(code + thunks->enter);
		epoch->miss = code + thunks->miss;
		for (size_t i = 0; i < n; i++)
			epoch->table[i] = epoch->miss;
	}
	for (size_t i = 0; i < n; i++)
		if (offsets[i])
			__atomic_store_n(&epoch->table[i], code + offsets[i], __ATOMIC_RELEASE);
	mprotect(epoch->table, jit->table_len, PROT_READ);
	return 0;
}

/*
 * Make a generation and let the epoch's table show it. jit.lock is held, or nobody else knows of
 * jit.
 */
static int jit_translate(struct vb_jit *jit, struct epoch *epoch)
{
	unsigned int g = atomic_load(&jit->ngens);
	uint64_t start = vb_machine_ns();
	struct thunks thunks;
	uint32_t *offsets;
	int err;

	err = translate_text(jit, epoch, &jit->gens[g], &thunks, &offsets);
	if (!err) {
		/* Before the first thread can be inside of it: a fault there must find it. */
		atomic_store_explicit(&jit->ngens, g + 1, memory_order_release);
		err = jit_publish(jit, epoch, jit->gens[g].code, &thunks, offsets);
		if (err) {
			atomic_store_explicit(&jit->ngens, g, memory_order_release);
			generation_free(&jit->gens[g]);
		}
	}
	free(offsets);
	jit->translate_ns += vb_machine_ns() - start;
	return err;
}

/* ---- create, learn, destroy ---- */

static int take_hints(struct vb_jit *jit, const struct vb_jit_hints *hints)
{
	const struct vb_text *text = jit->text;

	jit->extra = calloc((text->hi - text->lo) / 2 + 1, 1);
	jit->data = malloc((hints->ndata + 1) * sizeof(*jit->data));
	if (!jit->extra || !jit->data)
		return -ENOMEM;
	for (unsigned int i = 0; i < hints->ndata; i++)
		jit->data[i] = hints->data[i];
	jit->ndata = hints->ndata;
	for (size_t i = 0; i < hints->nleaders; i++)
		if (vb_text_holds(text, hints->leaders[i]))
			jit->extra[(hints->leaders[i] - text->lo) / 2] |=
				i < hints->nsymbols ? EXTRA_LEADER | EXTRA_SYMBOL : EXTRA_LEADER;
	return 0;
}

int vb_jit_create(struct vb_text *text, uint64_t limit, void *table, int64_t table_offset,
		  const struct vb_jit_hints *hints, const char **why)
{
	struct vb_jit *jit;
	uint64_t page;
	int err;

	*why = host_lacks();
	if (*why)
		return -ENOTSUP;
	*why = "no memory";
	if (text->hi == text->lo || table_offset < INT32_MIN)
		return -ENOMEM;
	jit = calloc(1, sizeof(*jit));
	if (!jit)
		return -ENOMEM;
	jit->text = text;
	jit->limit = limit;
	jit->has_clmul = host_has_clmul();
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	jit->table_len = ((text->hi - text->lo) * 4 + page - 1) & ~(page - 1);
	for (unsigned int e = 0; e < VB_JIT_TABLES; e++) {
		jit->epochs[e].table = (const void **)((uint8_t *)table + e * jit->table_len);
		jit->epochs[e].table_disp = (int32_t)(table_offset + (int64_t)(e * jit->table_len));
	}
	pthread_mutex_init(&jit->lock, NULL);
	text->jit = jit;
	err = take_hints(jit, hints);
	if (!err)
		err = jit_translate(jit, &jit->epochs[0]);
	jit->ndata = 0; /* from here on it is the guest's, and only this translation may read it */
	if (err == -EPERM)
		*why = "the system refuses executable memory";
	if (err == -EBADMSG)
		*why = "the checker refused the translation";
	if (err == -EFBIG)
		*why = "the translation would be too large for its text";
	if (err)
		vb_jit_destroy(text);
	return err;
}

void vb_jit_learn(struct vb_jit *jit, uint32_t index, unsigned int flags)
{
	unsigned int g = atomic_load_explicit(&jit->ngens, memory_order_relaxed);

	__atomic_fetch_or(&jit->extra[index], (uint8_t)flags, __ATOMIC_RELAXED);
	if (g == GENERATIONS || atomic_load_explicit(&jit->final, memory_order_relaxed) ||
	    atomic_fetch_add(&jit->misses, 1) < LEARN_MISSES << 2 * (g - 1))
		return;
	if (pthread_mutex_trylock(&jit->lock))
		return;
	if (atomic_load(&jit->ngens) == g) {
		atomic_store(&jit->misses, 0);
		/* What failed once would fail again, and each try costs as much as a load. */
		if (jit_translate(jit, &jit->epochs[atomic_load(&jit->epoch)]))
			atomic_store_explicit(&jit->final, true, memory_order_relaxed);
	}
	pthread_mutex_unlock(&jit->lock);
}

int vb_jit_remap(struct vb_jit *jit, const int8_t host[33])
{
	unsigned int e = atomic_load(&jit->epoch) + 1;
	int err;

	if (e == VB_JIT_TABLES || pthread_mutex_trylock(&jit->lock))
		return -EBUSY;
	err = atomic_load(&jit->epoch) != e - 1 || atomic_load(&jit->ngens) == GENERATIONS ? -EBUSY
											   : 0;
	if (!err) {
		memcpy(jit->epochs[e].host, host, sizeof(jit->epochs[e].host));
		err = jit_translate(jit, &jit->epochs[e]);
	}
	/* Threads inside of the old epoch finish their piece there; its code and table stay. */
	if (!err)
		atomic_store_explicit(&jit->epoch, e, memory_order_release);
	pthread_mutex_unlock(&jit->lock);
	return err;
}

void vb_jit_destroy(struct vb_text *text)
{
	struct vb_jit *jit = text->jit;

	if (!jit)
		return;
	for (unsigned int g = 0; g < GENERATIONS; g++)
		generation_free(&jit->gens[g]);
	pthread_mutex_destroy(&jit->lock);
	free(jit->extra);
	free(jit->data);
	free(jit);
	text->jit = NULL;
}

/* ---- what others ask ---- */

void vb_jit_stats(const struct vb_text *text, struct vb_dpa_text_stats *stats)
{
	const struct vb_jit *jit = text->jit;

	stats->translations = atomic_load(&jit->ngens);
	for (unsigned int g = 0; g < stats->translations; g++)
		stats->code_bytes += jit->gens[g].code_used;
	stats->translate_ns = jit->translate_ns;
}
