// SPDX-License-Identifier: MIT
/*
 * What the translator believes of a register must not outlive what proved it. Pointers walk out of
 * guest memory in straight lines, over accesses that touch memory and over such that only may; each
 * access behind that must end as the interpreter says, and host memory beside the guest's must stay
 * as it was.
 */
#include "bed.h"

#include <inttypes.h>
#include <sys/mman.h>

#include "../gen/gen.h"
#include "dpa/internal.h"

#define WINDOW     VB_DPA_WINDOW_BASE
#define DEVICE     (VB_DPA_WINDOW_BASE + 0x10000)
#define LIMIT      (16ull << 20)

#define HIGH_LIMIT 0x7fff0000ull
#define HIGH_DATA  0x7fe00000ull

enum { NEIGHBOUR = 1 << 20, HOST = 512, TOP = 16384, STEP = 0x3f000 };

/* Memory of the host right behind the reservation of a process, for accesses that get too far. */
static uint8_t *neighbour(struct vb_dpa_process *process)
{
	const struct space *space = &process->space;
	uint8_t *at = (uint8_t *)space->region + space->region_len;
	void *p = mmap(at, NEIGHBOUR, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	/* Somebody else's memory is there: then that is what must not be read. */
	if (p != at) {
		if (p != MAP_FAILED)
			munmap(p, NEIGHBOUR);
		return NULL;
	}
	memset(at, 0xa5, NEIGHBOUR);
	return at;
}

static bool untouched(const uint8_t *neighbour)
{
	for (size_t i = 0; neighbour && i < NEIGHBOUR; i++)
		if (neighbour[i] != 0xa5)
			return false;
	return true;
}

/* ---- one walk at a time ---- */

struct walk {
	enum rv_op between, last;
	i64 step;
	u64 to;        /* the last access is there, or a little further */
	unsigned base; /* the register that walks; x31 has no host register, x10 has one */
};

/* Loops that are never entered: as far as the translator can see, they are what the program is about. */
static void favour_others(struct rv_prog *p)
{
	int top = rv_label(p), over = rv_label(p);

	rv_jump(p, 0, over);
	rv_place(p, top);
	for (unsigned i = 0; i < 600; i++)
		rv_emit(p, OP_add, 5 + i % 11 + (i % 11 == 4), 8, 8, 0);
	for (unsigned i = 0; i < 3; i++)
		rv_branch(p, OP_bne, 8, 0, top);
	rv_place(p, over);
}

/* The base points to data and is loaded from; then it goes on by steps, each with `between` at its end. */
static unsigned make_walk(struct rv_prog *p, const struct walk *w, u64 from)
{
	unsigned n = (unsigned)((w->step > 0 ? w->to - from : from - w->to) /
				(u64)(w->step > 0 ? w->step : -w->step)) +
		     1;

	favour_others(p);
	rv_emit(p, OP_lw, 6, w->base, 0, 0);
	rv_emit(p, OP_lui, 5, 0, 0, w->step);
	for (unsigned i = 0; i < n; i++) {
		rv_emit(p, OP_add, w->base, w->base, 5, 0);
		if (w->between)
			rv_emit(p, w->between, 0, w->base, w->between == OP_lui ? 0 : 8, 0);
	}
	rv_emit(p, w->last, rv_info[w->last].format == FMT_ST ? 0 : 7, w->base, 8, 0);
	rv_emit(p, OP_jalr, 0, 1, 0, 0);
	return n;
}

/*
 * From `at`, in guest memory that ends at the limit, to w->to. The guest must trap at the last access, or
 * at the first one between that touches memory.
 */
static void expect_walk(const struct walk *w, u64 limit, uint64_t at)
{
	struct vb_dpa_process *process;
	struct bed b = { 0 };
	u64 steps;
	uint8_t *beside;

	steps = make_walk(&b.p, w, at);
	bed_open_limit(&b, limit);
	process = b.process;
	assert_int_equal(vb_dpa_mem_map(process, &at, 65536, VB_DPA_READ | VB_DPA_WRITE), 0);
	beside = neighbour(process);
	assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, NULL, 0), 0);
	bed_state(&b)->x[w->base] = at;
	bed_state(&b)->x[8] = 0x1122334455667788ull;
	assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_TRAP);
	assert_int_equal(bed_state(&b)->cause, rv_info[w->last].format == FMT_LD
						       ? VB_DPA_CAUSE_LOAD
						       : VB_DPA_CAUSE_STORE);
	assert_int_equal(bed_state(&b)->tval, at + steps * (u64)w->step);
	assert_int_equal(bed_state(&b)->instret, 3 + steps * (w->between ? 2 : 1));
	assert_int_equal(bed_state(&b)->x[7], 0);
	assert_true(untouched(beside));
	if (beside)
		munmap(beside, NEIGHBOUR);
	bed_close(&b);
}

/*
 * Past both ends of the reservation, by steps that one check may vouch for, over an SC that fails. Upwards
 * the walk begins near the highest limit there is, so that it ends within one stay in translated code.
 */
static void test_failing_sc(void **state)
{
	struct bed b = { 0 };
	const struct space *space;
	u64 above, below;

	(void)state;
	rv_emit(&b.p, OP_ebreak, 0, 0, 0, 0);
	bed_open_limit(&b, HIGH_LIMIT);
	space = &b.process->space;
	above = (u64)((uint8_t *)space->region + space->region_len - space->base);
	below = 0ull - (u64)(space->base - (uint8_t *)space->region);
	bed_close(&b);
	for (unsigned n = 0; n < 4; n++) {
		enum rv_op sc = n % 2 ? OP_sc_d : OP_sc_w;
		unsigned base = n < 2 ? 10 : 31;

		expect_walk(&(struct walk){ sc, OP_ld, STEP, above, base }, HIGH_LIMIT, HIGH_DATA);
		expect_walk(&(struct walk){ sc, OP_sd, STEP, above, base }, HIGH_LIMIT, HIGH_DATA);
		expect_walk(&(struct walk){ sc, OP_amoswap_d, STEP, above, base }, HIGH_LIMIT,
			    HIGH_DATA);
		/* Below guest memory are the translator's own tables. */
		expect_walk(&(struct walk){ sc, OP_ld, -STEP, below, base }, LIMIT, 8 << 20);
		expect_walk(&(struct walk){ sc, OP_sd, -STEP, below, base }, LIMIT, 8 << 20);
		expect_walk(&(struct walk){ OP_lui, OP_ld, STEP, above, base }, HIGH_LIMIT,
			    HIGH_DATA);
	}
}

/* The same walk ends in a window, where it must find the host's memory and not the guest's. */
static void expect_window(unsigned base)
{
	static uint64_t host[64 << 10];
	struct walk w = { OP_sc_w, OP_ld, STEP, WINDOW, base };
	struct bed b = { 0 };
	struct vb_dpa_window *window;
	uint64_t at = HIGH_DATA;

	make_walk(&b.p, &w, HIGH_DATA);
	bed_open_limit(&b, HIGH_LIMIT);
	assert_int_equal(vb_dpa_mem_map(b.process, &at, 4096, VB_DPA_READ | VB_DPA_WRITE), 0);
	for (unsigned i = 0; i < sizeof(host) / 8; i++)
		host[i] = 0x1000000 + i;
	assert_int_equal(vb_dpa_window_create(b.process, NULL, WINDOW, sizeof(host), host,
					      VB_DPA_READ, &window),
			 0);
	for (unsigned round = 0; round < 3; round++) {
		assert_int_equal(vb_dpa_thread_set_call(b.thread, RV_TEXT, NULL, 0), 0);
		bed_state(&b)->x[base] = at;
		assert_int_equal(bed_run(&b, UINT64_MAX), VB_DPA_WHY_RETURN);
		assert_int_equal(bed_state(&b)->x[7],
				 0x1000000 + (bed_state(&b)->x[base] - WINDOW) / 8);
	}
	bed_close(&b);
}

static void test_walk_to_window(void **state)
{
	(void)state;
	expect_window(10);
	expect_window(31);
}

/* ---- random walks on both tiers ---- */

enum { FUNCTIONS = 150, CALLS = 3 };

struct side {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
	struct vb_dpa_window *window;
	uint8_t *beside, host[HOST];
	uint64_t device; /* what the device page has seen, in order */
};

static int on_load(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t *value,
		   void *arg)
{
	struct side *s = arg;

	(void)thread;
	s->device = s->device * 31 + offset + size;
	*value = s->device;
	return 0;
}

static int on_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t value,
		    void *arg)
{
	struct side *s = arg;

	(void)thread;
	s->device = s->device * 37 + offset + size + value;
	return 0;
}

static void side_window(struct side *s, unsigned rights)
{
	if (s->window)
		assert_int_equal(vb_dpa_window_destroy(s->window), 0);
	s->window = NULL;
	if (rights)
		assert_int_equal(vb_dpa_window_create(s->process, NULL, WINDOW, HOST, s->host,
						      rights, &s->window),
				 0);
}

static void side_open(struct side *s, enum vb_dpa_tier tier, const struct rv_prog *p)
{
	static const struct vb_dpa_device_ops ops = { on_load, on_store, false };
	struct vb_dpa_process_attr pa = { .tier = tier, .limit = LIMIT };
	uint64_t at = LIMIT - TOP;
	struct vb_dpa_window *device;
	uint8_t *image;
	size_t size = rv_elf_image(p, &image);

	memset(s, 0, sizeof(*s));
	assert_int_equal(vb_dpa_create(NULL, &s->dpa), 0);
	assert_int_equal(vb_dpa_process_create(s->dpa, image, size, &pa, &s->process, NULL), 0);
	assert_int_equal(vb_dpa_process_tier(s->process), tier);
	assert_int_equal(vb_dpa_mem_map(s->process, &at, TOP, VB_DPA_READ | VB_DPA_WRITE), 0);
	assert_int_equal(vb_dpa_thread_create(s->process, NULL, &s->thread), 0);
	assert_int_equal(vb_dpa_device_create(s->process, NULL, DEVICE, 256, &ops, s, &device), 0);
	s->beside = neighbour(s->process);
	free(image);
}

static void side_close(struct side *s)
{
	side_window(s, 0);
	assert_true(untouched(s->beside));
	if (s->beside)
		munmap(s->beside, NEIGHBOUR);
	assert_int_equal(vb_dpa_thread_destroy(s->thread), 0);
	assert_int_equal(vb_dpa_process_destroy(s->process), 0);
	assert_int_equal(vb_dpa_destroy(s->dpa), 0);
}

/* Where pointers start: in the data, at both ends of memory, in the window, on the device, astray. */
static u64 any_pointer(struct rng *r, u64 data)
{
	u64 off = 8 * rng_below(r, 64);

	switch (rng_below(r, 16)) {
	case 0:
	case 1:
	case 2:
	case 12:
	case 13:
		return data + off;
	case 3:
	case 4:
	case 5:
	case 14:
	case 15:
		return LIMIT - TOP + off;
	case 6:
		return LIMIT - 8 - 8 * rng_below(r, 4);
	case 7:
		return LIMIT + off;
	case 8:
	case 9:
		return WINDOW + off;
	case 10:
		return rng_chance(r, 50) ? DEVICE + off % 256 : RV_PAGE + off;
	default:
		return rng_chance(r, 50) ? rng_value(r) : 0 - off;
	}
}

static enum vb_dpa_why side_call(struct side *s, u64 pc, const u64 x[32])
{
	struct vb_dpa_state *state = vb_dpa_thread_state(s->thread);
	enum vb_dpa_why why;

	assert_int_equal(vb_dpa_thread_set_call(s->thread, pc, NULL, 0), 0);
	for (unsigned r = 2; r < 32; r++)
		state->x[r] = x[r];
	state->instret = 0;
	assert_int_equal(vb_dpa_thread_run(s->thread, UINT64_MAX, &why), 0);
	return why;
}

static void compare(struct side *a, struct side *b, const char *what, u64 data)
{
	const struct vb_dpa_state *x = vb_dpa_thread_state(a->thread),
				  *y = vb_dpa_thread_state(b->thread);
	static uint8_t mem[2][RV_PAGE + TOP];

	if (x->pc != y->pc || x->instret != y->instret || x->cause != y->cause ||
	    x->tval != y->tval)
		fail_msg("%s: interpreter pc 0x%" PRIx64 " after %" PRIu64 " cause %" PRIu64
			 " tval 0x%" PRIx64 ", translator pc 0x%" PRIx64 " after %" PRIu64
			 " cause %" PRIu64 " tval 0x%" PRIx64,
			 what, x->pc, x->instret, x->cause, x->tval, y->pc, y->instret, y->cause,
			 y->tval);
	for (unsigned r = 1; r < 32; r++)
		if (x->x[r] != y->x[r])
			fail_msg("%s: x%u is 0x%" PRIx64 " and 0x%" PRIx64, what, r, x->x[r],
				 y->x[r]);
	for (unsigned k = 0; k < 2; k++) {
		struct side *s = k ? b : a;

		assert_int_equal(vb_dpa_mem_read(s->process, data, mem[k], RV_PAGE), 0);
		assert_int_equal(vb_dpa_mem_read(s->process, LIMIT - TOP, mem[k] + RV_PAGE, TOP),
				 0);
	}
	if (memcmp(mem[0], mem[1], sizeof(mem[0])) || memcmp(a->host, b->host, HOST) ||
	    a->device != b->device)
		fail_msg("%s: memory, window or device differ", what);
}

static void random_batch(u64 seed)
{
	static const unsigned rights[] = { VB_DPA_READ, VB_DPA_WRITE, VB_DPA_READ | VB_DPA_WRITE };
	int labels[FUNCTIONS];
	struct side a, b;
	struct rv_prog p;
	struct rng r = { ~seed };

	gen_facts(&p, seed, FUNCTIONS, labels);
	side_open(&a, VB_DPA_TIER_INTERP, &p);
	side_open(&b, VB_DPA_TIER_JIT, &p);
	for (unsigned n = 0; n < FUNCTIONS * CALLS; n++) {
		unsigned f = n < FUNCTIONS ? n : rng_below(&r, FUNCTIONS);
		char what[64];
		u64 x[32];

		if (n % 32 == 0) {
			unsigned w = rng_chance(&r, 15) ? 0 : rights[rng_below(&r, 3)];

			side_window(&a, w);
			side_window(&b, w);
		}
		for (unsigned i = 0; i < 32; i++)
			x[i] = any_pointer(&r, p.data_base);
		snprintf(what, sizeof(what), "seed %" PRIu64 " call %u, function %u", seed, n, f);
		if (side_call(&a, rv_address(&p, labels[f]), x) !=
		    side_call(&b, rv_address(&p, labels[f]), x))
			fail_msg("%s: one of the tiers trapped, the other one did not", what);
		compare(&a, &b, what, p.data_base);
	}
	side_close(&a);
	side_close(&b);
	rv_free(&p);
}

/* Both tiers are in here; once is enough. */
static void test_random(void **state)
{
	unsigned batches = getenv("VERBATIM_TEST_LONG") ? 20000 : 300;

	(void)state;
	for (unsigned n = 0; bed_tier == VB_DPA_TIER_JIT && n < batches; n++)
		random_batch(n + 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failing_sc),
		cmocka_unit_test(test_walk_to_window),
		cmocka_unit_test(test_random),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
