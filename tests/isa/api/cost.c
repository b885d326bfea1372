// SPDX-License-Identifier: MIT
/*
 * What a hostile file may cost: the work of loading it, the memory that takes, and the host code
 * stay within a multiple of its size, whatever it is made of (docs/security.md has the multiples).
 * Counted in steps and bytes, never in time.
 */
#include "bed.h"

#include "count.h"
#include "dpa/cpu/jit/x86.h"
#include "file.h"

#define C_LW 0x4108 /* c.lw a0, 0(a0): two bytes that take many of the host's */
#define RET  0x8082

/* A sanitizer has memory of its own beside ours. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SHADOW = 8 };
#else
enum { SHADOW = 1 };
#endif

static struct vb_dpa *dpa;

static int setup(void **state)
{
	(void)state;
	return vb_dpa_create(NULL, &dpa);
}

static int teardown(void **state)
{
	(void)state;
	return vb_dpa_destroy(dpa);
}

/* Load it, or be refused; either must not cost too much. 0 if it was loaded. */
static int expect_cheap(const char *what, const void *image, size_t size)
{
	struct vb_dpa_process_attr pa = { .tier = bed_tier };
	struct vb_dpa_text_stats stats = { 0 };
	struct vb_dpa_error error = { "" };
	struct vb_dpa_process *process;
	struct count c;
	int err;

	count_start(&c);
	err = vb_dpa_process_create(dpa, image, size, &pa, &process, &error);
	if (!err) {
		vb_dpa_text_stats(process, &stats);
		assert_int_equal(vb_dpa_process_destroy(process), 0);
	}
	count_stop(&c);
	if (getenv("VERBATIM_TEST_PRINT"))
		printf("%-28s %9zu bytes: %6.1f steps, %6.1f touched, %6.1f asked, %5.1f code for each %s\n",
		       what, size, (double)c.steps / (double)size, (double)c.touched / (double)size,
		       (double)c.asked / (double)size, (double)stats.code_bytes / (double)size,
		       error.text);
	assert_true(c.steps); /* they are counted */
	if (c.steps > COST_STEPS + COST_STEPS_EACH * size)
		fail_msg("%s: %zu bytes took %zu steps", what, size, (size_t)c.steps);
	if (c.touched > SHADOW * (COST_BYTES + COST_BYTES_EACH * size))
		fail_msg("%s: %zu bytes touched %zu bytes", what, size, (size_t)c.touched);
	if (c.asked > COST_BYTES + COST_BYTES_EACH * size)
		fail_msg("%s: %zu bytes asked for %zu bytes", what, size, (size_t)c.asked);
	if (stats.code_bytes > COST_CODE + COST_CODE_EACH * size)
		fail_msg("%s: %zu bytes became %zu of host code", what, size,
			 (size_t)stats.code_bytes);
	return err;
}

/* ---- text ---- */

/* A program whose text is given as it is. */
static void raw_text(struct rv_prog *p, size_t size, u32 each, unsigned len)
{
	rv_init(p);
	p->text_size = size;
	p->text = malloc(size);
	for (size_t i = 0; i + len <= size; i += len)
		memcpy(p->text + i, &each, len);
	p->data_base = (RV_TEXT + p->text_size + 2 * RV_PAGE - 1) & ~(RV_PAGE - 1);
	rv_data(p, NULL, 64, 8);
}

/* A text of nothing but loads works, translated or not, and its translation is bounded. */
static void expect_bounded(size_t halfwords, enum vb_dpa_tier tier)
{
	struct vb_dpa_process_attr pa = { .tier = bed_tier };
	struct vb_dpa_text_stats stats;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
	struct rv_prog p;
	uint16_t ret = RET;
	uint64_t at, result;
	uint8_t *image;
	size_t size;

	raw_text(&p, 2 * halfwords, C_LW, 2);
	memcpy(p.text + p.text_size - 2, &ret, 2);
	at = p.data_base;
	memcpy(p.data, &at, 8); /* a pointer to itself */
	size = rv_elf_image(&p, &image);
	assert_int_equal(vb_dpa_process_create(dpa, image, size, &pa, &process, NULL), 0);
	assert_int_equal(vb_dpa_process_tier(process), tier);
	vb_dpa_text_stats(process, &stats);
	assert_in_range(stats.code_bytes, 0, COST_CODE_EACH * stats.text_bytes + COST_CODE);
	assert_int_equal(vb_dpa_thread_create(process, NULL, &thread), 0);
	assert_int_equal(vb_dpa_call(thread, RV_TEXT, &at, 1, &result), 0);
	assert_int_equal(result, at);
	assert_int_equal(vb_dpa_thread_state(thread)->instret, halfwords);
	assert_int_equal(vb_dpa_thread_destroy(thread), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	free(image);
	rv_free(&p);
}

static void test_host_code(void **state)
{
	(void)state;
	expect_bounded(1 << 12, bed_tier);
	expect_bounded(1 << 20, VB_DPA_TIER_INTERP); /* too much for its text: interpreted */
}

/* A jump that does not reach its target is never made. */
static void test_displacements(void **state)
{
	static const struct {
		uint32_t where, target;
		bool fits;
	} cases[] = {
		{ 0, 4, true },           { 0, 0, true },           { 0, 0x80000003, true },
		{ 0, 0x80000004, false }, { 0, 0xffffffff, false }, { 8, 0x8000000b, true },
		{ 8, 0x8000000c, false },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t bytes[16] = { 0 }, zero[4] = { 0 };
		struct code c = { .start = bytes, .at = bytes, .end = bytes + sizeof(bytes) };
		int32_t disp;

		patch32(&c, cases[i].where, cases[i].target);
		assert_int_equal(!c.too_far, cases[i].fits);
		memcpy(&disp, bytes + cases[i].where, 4);
		if (cases[i].fits)
			assert_true((int64_t)cases[i].where + 4 + disp == cases[i].target);
		else
			assert_memory_equal(bytes + cases[i].where, zero, 4);
	}
}

static void cheap_prog(const char *what, struct rv_prog *p)
{
	uint8_t *image;
	size_t size = rv_elf_image(p, &image);

	assert_int_equal(expect_cheap(what, image, size), 0);
	free(image);
	rv_free(p);
}

static void cheap_text(const char *what, u32 bits, unsigned len)
{
	struct rv_prog p;

	raw_text(&p, 1 << 20, bits, len);
	cheap_prog(what, &p);
}

/* A megabyte of each instruction, in its short form where it has one. */
static void test_instructions(void **state)
{
	(void)state;
	for (int op = 0; op < OP_COUNT; op++) {
		struct rv_insn i = { .op = (enum rv_op)op, .rd = 10, .rs1 = 10, .rs2 = 11 };
		enum rv_format format = rv_info[op].format;

		i.imm = format == FMT_BR || format == FMT_J ? 8 : format == FMT_CSR ? 0xc02 : 0;
		/* Those that take most, and a sample of the others. */
		if (format != FMT_SC && format != FMT_J && format != FMT_CSR && !rv_compress(&i) &&
		    op % 6)
			continue;
		cheap_text(rv_info[op].name, rv_encode(&i), 4);
		if (rv_compress(&i))
			cheap_text(rv_info[op].name, rv_compress(&i), 2);
	}
	cheap_text("zeros", 0, 4);
	cheap_text("ones", 0xffffffff, 4);
	cheap_text("a branch over the next", 0x00b50463, 4);
	cheap_text("a jump back", 0xfe9ff06f, 4);
}

/* A text of the same few instructions again and again. */
static void repeat_text(const char *what, size_t size, const struct rv_insn *insns, size_t n)
{
	struct rv_prog p;
	size_t at = 0;

	raw_text(&p, size, 0x00000013, 4); /* nop */
	for (size_t i = 0; at + 4 <= size; i = (i + 1) % n) {
		u32 bits = rv_compress(&insns[i]);
		unsigned len = bits ? 2 : 4;

		bits = bits ? bits : rv_encode(&insns[i]);
		memcpy(p.text + at, &bits, len);
		at += len;
	}
	cheap_prog(what, &p);
}

/*
 * What makes the checker look back: accesses through bases that nothing changes, one or all of them,
 * with and without a block's end or another base's copy in between.
 */
static void test_looking_back(void **state)
{
	static const struct {
		const char *what;
		size_t n;
		struct rv_insn insns[10];
	} texts[] = {
#define LW(a, b) { .op = OP_lw, .rd = a, .rs1 = b }
#define SD(a, b, c)                                       \
	{                                                 \
		.op = OP_sd, .rs1 = b, .rs2 = a, .imm = c \
	}
		{ "loads through one base", 1, { LW(11, 10) } },
		{ "stores through one base", 1, { SD(11, 10, 0) } },
		{ "a base without a host register", 1, { LW(11, 30) } },
		{ "loads through two bases", 2, { LW(11, 10), LW(11, 12) } },
		{ "loads through eight bases",
		  8,
		  { LW(9, 8), LW(9, 10), LW(9, 11), LW(9, 12), LW(9, 13), LW(9, 14), LW(9, 15),
		    LW(9, 18) } },
		{ "eight bases, each changed in turn",
		  10,
		  { LW(9, 8), LW(9, 10), LW(9, 11), LW(9, 12), LW(9, 13), LW(9, 14), LW(9, 15),
		    LW(9, 18), LW(10, 9), LW(11, 9) } },
		{ "a base and what it loads", 2, { LW(11, 10), LW(12, 11) } },
		{ "a base that walks",
		  2,
		  { LW(11, 10), { .op = OP_addi, .rd = 10, .rs1 = 10, .imm = 4 } } },
		{ "blocks of one load",
		  2,
		  { LW(11, 10), { .op = OP_beq, .rs1 = 11, .rs2 = 0, .imm = 8 } } },
		{ "divisions by a base",
		  2,
		  { LW(11, 10), { .op = OP_divu, .rd = 12, .rs1 = 11, .rs2 = 10 } } },
		{ "atomics through one base",
		  2,
		  { LW(11, 10), { .op = OP_amoadd_w, .rd = 12, .rs1 = 10, .rs2 = 11 } } },
#undef LW
#undef SD
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		repeat_text(texts[i].what, 64 << 10, texts[i].insns, texts[i].n);
		repeat_text(texts[i].what, 1 << 20, texts[i].insns, texts[i].n);
	}
}

static uint64_t steps_to_load(const char *verify)
{
	struct vb_dpa_process_attr pa = { .tier = bed_tier };
	struct vb_dpa_process *process;
	struct rv_prog p;
	struct count c;
	uint8_t *image;
	size_t size;

	if (verify)
		setenv("VERBATIM_DPA_VERIFY", verify, 1);
	else
		unsetenv("VERBATIM_DPA_VERIFY");
	raw_text(&p, 64 << 10, C_LW | 4, 2);
	size = rv_elf_image(&p, &image);
	count_start(&c);
	assert_int_equal(vb_dpa_process_create(dpa, image, size, &pa, &process, NULL), 0);
	count_stop(&c);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	free(image);
	rv_free(&p);
	setenv("VERBATIM_DPA_VERIFY", "abort", 1);
	return c.steps;
}

/* Translations are checked unless the user says otherwise. */
static void test_checked_by_default(void **state)
{
	uint64_t off = steps_to_load("0"), on = steps_to_load("1");

	(void)state;
	if (bed_tier != VB_DPA_TIER_JIT)
		return;
	assert_true(on > off + (64 << 10));
	assert_in_range(steps_to_load(NULL), on - off / 100, on + off / 100);
	assert_in_range(steps_to_load(""), on - off / 100, on + off / 100);
}

/* As many different heads of host instructions as a text can ask for. */
static void test_forms(void **state)
{
	struct rv_prog p;
	u32 lcg = 1;

	(void)state;
	raw_text(&p, 1 << 20, 0x00000013, 4);
	for (size_t at = 0; at + 4 <= p.text_size; at += 4) {
		struct rv_insn i;
		u32 bits;

		lcg = lcg * 1103515245u + 12345u;
		i = (struct rv_insn){ .op = (enum rv_op)((lcg >> 8) % OP_COUNT),
				      .rd = (lcg >> 16) & 31,
				      .rs1 = (lcg >> 21) & 31,
				      .rs2 = (lcg >> 26) & 31 };
		if (rv_info[i.op].format == FMT_BR || rv_info[i.op].format == FMT_J)
			i.imm = 4;
		else if (rv_info[i.op].format == FMT_CSR)
			i.imm = 0xc02;
		bits = rv_encode(&i);
		memcpy(p.text + at, &bits, 4);
	}
	cheap_prog("every instruction and register", &p);
}

/* Pairs that point into data, where every word looks like an entry of a jump table. */
static void test_jump_tables(void **state)
{
	enum { PAIRS = 32768, WORDS = 65536 };
	const u64 text = RV_TEXT, data = text + 16 * PAIRS;
	u32 *pairs = malloc(8 * PAIRS), *words = malloc(4 * WORDS);
	struct file f;
	size_t at;

	(void)state;
	for (int same = 0; same < 2; same++) {
		for (unsigned i = 0; i < PAIRS; i++) {
			u64 target = data + (same ? 0 : 4 * (i % WORDS));
			i64 far = (i64)(target - (text + 8 * i)), high = (far + 0x800) & ~0xfffll;
			struct rv_insn a = { .op = OP_auipc, .rd = 5, .imm = high };
			struct rv_insn b = { .op = OP_addi, .rd = 5, .rs1 = 5, .imm = far - high };

			pairs[2 * i] = rv_encode(&a);
			pairs[2 * i + 1] = rv_encode(&b);
		}
		/* Wherever a table begins, its entries lead into the text. */
		for (unsigned i = 0; i < WORDS; i++)
			words[i] = (u32)(text + 8 * PAIRS / 2 - data) & ~3u;
		file_begin(&f);
		at = file_add(&f, pairs, 8 * PAIRS);
		file_segment(&f, PF_R | PF_X, text, at, 8 * PAIRS, 8 * PAIRS);
		at = file_add(&f, words, 4 * WORDS);
		file_segment(&f, PF_R | PF_W, data, at, 4 * WORDS, 4 * WORDS);
		file_end(&f, ET_EXEC, text);
		assert_int_equal(expect_cheap("jump tables", f.bytes, f.size), 0);
		file_free(&f);
	}
	free(pairs);
	free(words);
}

/* ---- headers that ask for much ---- */

static void test_segments(void **state)
{
	static const u32 ret = RET;
	struct file f;
	size_t at;

	(void)state;
	file_begin(&f); /* 64 MiB of text in four bytes of file */
	at = file_add(&f, &ret, 4);
	file_segment(&f, PF_R | PF_X, RV_TEXT, at, 4, (64 << 20) - 4096);
	file_end(&f, ET_EXEC, RV_TEXT);
	assert_int_equal(expect_cheap("text without a file", f.bytes, f.size), 0);
	file_free(&f);

	file_begin(&f); /* two texts far apart */
	at = file_add(&f, &ret, 4);
	file_segment(&f, PF_R | PF_X, RV_TEXT, at, 4, 4);
	at = file_add(&f, &ret, 4);
	file_segment(&f, PF_R | PF_X, 60 << 20, at, 4, 4);
	file_end(&f, ET_EXEC, RV_TEXT);
	assert_int_equal(expect_cheap("text that is mostly gap", f.bytes, f.size), -ENOEXEC);
	f.ph[1].p_vaddr = RV_TEXT + (1 << 20) - 4096;
	memcpy(f.bytes + sizeof(Elf64_Ehdr), f.ph, sizeof(f.ph));
	assert_int_equal(expect_cheap("text with a gap", f.bytes, f.size), 0);
	file_free(&f);

	file_begin(&f); /* the same bytes, again and again */
	at = file_add(&f, NULL, 1 << 20);
	for (unsigned i = 0; i < 31; i++)
		file_segment(&f, PF_R | PF_X, RV_TEXT + ((u64)i << 20), at, 1 << 20, 1 << 20);
	file_end(&f, ET_EXEC, RV_TEXT);
	assert_int_equal(expect_cheap("bytes loaded often", f.bytes, f.size), -ENOEXEC);
	file_free(&f);

	file_begin(&f); /* all memory there is */
	at = file_add(&f, &ret, 4);
	file_segment(&f, PF_R | PF_X, RV_TEXT, at, 4, 4);
	file_segment(&f, PF_R | PF_W, 1 << 20, at, 0, (1023ull << 20) - 4096);
	file_end(&f, ET_EXEC, RV_TEXT);
	assert_int_equal(expect_cheap("a gigabyte of zeros", f.bytes, f.size), 0);
	file_free(&f);
}

/* 16-bit loads or stores of x8; x9 to x15 take their turns. */
static void fill_text(uint8_t *text, size_t n, size_t size, u32 first, u32 second)
{
	for (unsigned r = 0; n + 4 <= size; n += 4, r = (r + 1) % 8) {
		u32 a = first | r << 7 | r << 2, b = second | r << 7 | (r ^ 1) << 2;
		u32 bits = (a & 0xffff) | b << 16;

		memcpy(text + n, &bits, 4);
	}
}

/*
 * Loops of as many instructions as one that is translated twice may have. tries: a base that a failing SC
 * carries on makes the second copy be made once more.
 */
static void make_loops(uint8_t *text, size_t n, size_t size, bool tries)
{
	struct rv_insn sc = { .op = OP_sc_w, .rs1 = 31, .rs2 = 16 };
	struct rv_insn step = { .op = OP_addi, .rd = 31, .rs1 = 31, .imm = 8 };
	struct rv_insn back = { .op = OP_bne, .rs1 = 8 };

	for (size_t top = n; n + 256 <= size; top = n) {
		u32 words[] = { rv_encode(&sc), rv_encode(&step) };

		if (tries)
			memcpy(text + n, words, sizeof(words));
		n += (tries ? 93 + 2 : 95) * 2;
		back.imm = (i64)top - (i64)n;
		words[0] = rv_encode(&back);
		memcpy(text + n, words, 4);
		n += 4;
	}
}

enum loops {
	NO_LOOPS,
	LOOPS,
	LOOPS_AGAIN,
	TINY_LOOPS,
	FILL_LOOPS,
	POLL_LOOPS,
	BYTE_LOOPS,
	SHARED_LOOPS
};

/* Small loops, one after the other: a branch to itself, one that fills memory, one that waits for a word. */
static void make_small_loops(uint8_t *text, size_t n, size_t size, enum loops loops)
{
	static const struct {
		unsigned count;
		uint16_t bits[3];
	} kinds[] = {
		[TINY_LOOPS] = { 1, { 0xe001 } }, /* c.bnez s0 */
		[FILL_LOOPS] = { 3,
				 { 0xe080, 0x04a1,
				   0xfcf5 } }, /* c.sd s0, 0(s1); c.addi s1, 8; c.bnez s1 */
		[POLL_LOOPS] = { 2, { 0x4080, 0xfc7d } }, /* c.lw s0, 0(s1); c.bnez s0 */
	};

	for (; n + 2 * kinds[loops].count <= size; n += 2 * kinds[loops].count)
		memcpy(text + n, kinds[loops].bits, 2 * kinds[loops].count);
}

/* Loops of halfwords that are put together from bytes; shared: each byte is wanted by two of them. */
static void make_byte_loops(uint8_t *text, size_t n, size_t size, bool shared)
{
	struct rv_insn high = { .op = OP_lbu, .rd = 15, .rs1 = 8 };
	struct rv_insn low = { .op = OP_lbu, .rd = 14, .rs1 = 8 };
	struct rv_insn back = { .op = OP_bne, .rs1 = 8 };

	for (size_t top = n; n + 300 <= size; top = n) {
		for (unsigned i = 0; i < 23; i++) {
			static const uint16_t join[] = { 0x07a2,
							 0x8fd9 }; /* slli a5, 8; or a5, a4 */
			static const uint16_t copy = 0x86be;       /* mv a3, a5 */
			u32 words[2];

			high.imm = 2 * (i64)i;
			low.imm = high.imm + 1;
			words[0] = rv_encode(&high);
			words[1] = rv_encode(&low);
			memcpy(text + n, words, sizeof(words));
			memcpy(text + n + 8, join, sizeof(join));
			n += 12;
			if (shared && i < 2)
				memcpy(text + n, &copy, 2), n += 2;
		}
		back.imm = (i64)top - (i64)n;
		memcpy(text + n, &(u32){ rv_encode(&back) }, 4);
		n += 4;
	}
}

/*
 * Two texts with a gap between: four bytes, spread times the first one's size behind its start. Of the
 * first text, nops are so many eighths of the end.
 */
static int load_gap(size_t size, double spread, u32 first, u32 second, enum loops loops,
		    unsigned nops)
{
	static const char *const names[] = { "",
					     ", loops",
					     ", loops again",
					     ", tiny loops",
					     ", loops that fill",
					     ", loops that poll",
					     ", loops of bytes",
					     ", loops of shared bytes" };
	static const u32 ret = RET;
	uint8_t *text = malloc(size);
	size_t n = file_decoys(text), at, whole = size;
	u64 last = RV_TEXT + (u64)((double)size * spread) + (1 << 20) - (4 * RV_PAGE);
	char what[80];
	struct file f;
	int err;

	fill_text(text, n, size, first, second);
	for (size_t i = size - size / 8 * nops; i < size; i += 2)
		memcpy(text + i, &(uint16_t){ 1 }, 2);
	size -= size / 8 * nops;
	if (loops == LOOPS || loops == LOOPS_AGAIN)
		make_loops(text, n, size, loops == LOOPS_AGAIN);
	else if (loops == BYTE_LOOPS || loops == SHARED_LOOPS)
		make_byte_loops(text, n, size, loops == SHARED_LOOPS);
	else if (loops != NO_LOOPS)
		make_small_loops(text, n, size, loops);
	size = whole;
	snprintf(what, sizeof(what), "a gap, %.2f times, %04x %04x%s, nops %u/8", spread, first,
		 second, names[loops], nops);
	file_begin(&f);
	at = file_add(&f, text, size & ~3ul);
	file_segment(&f, PF_R | PF_X, RV_TEXT, at, size & ~3ul, size & ~3ul);
	at = file_add(&f, &ret, 4);
	file_segment(&f, PF_R | PF_X, last & ~(u64)(RV_PAGE - 1), at, 4, 4);
	file_end(&f, ET_EXEC, RV_TEXT);
	err = expect_cheap(what, f.bytes, f.size);
	file_free(&f);
	free(text);
	return err;
}

/* A gap is no room for host code, and where it has a price of its own it cannot be long. */
static void test_gaps(void **state)
{
	enum { CLW = 0x4000, CLD = 0x6000, CSW = 0xc000, CSD = 0xe000 };
	static const double spreads[] = { 1, 1.5, 2, 2.1, 3, 4 };

	(void)state;
	for (size_t size = 1 << 20; size <= 4 << 20; size <<= 2)
		for (unsigned i = 0; i < sizeof(spreads) / sizeof(spreads[0]); i++) {
			int err = spreads[i] > 2 ? -ENOEXEC : 0;

			assert_int_equal(load_gap(size, spreads[i], CLW, CLW, NO_LOOPS, 0), err);
			assert_int_equal(load_gap(size, spreads[i], CLD, CLD, NO_LOOPS, 0), err);
			assert_int_equal(load_gap(size, spreads[i], CSD, CLD, NO_LOOPS, 0), err);
			assert_int_equal(load_gap(size, spreads[i], CSW, CSW, NO_LOOPS, 0), err);
		}
}

/* The same made of loops, which are translated twice or more. */
static void test_loops(void **state)
{
	(void)state;
	for (size_t size = 1 << 20; size <= 4 << 20; size <<= 2)
		for (enum loops l = LOOPS; l <= SHARED_LOOPS; l++)
			assert_int_equal(load_gap(size, 2, 0x4000, 0x4000, l, 0), 0);
}

/* And diluted, so that host code is as much as is just allowed: then it is checked, too. */
static void test_diluted_loops(void **state)
{
	(void)state;
	for (unsigned nops = 1; nops < 5; nops++)
		for (enum loops l = LOOPS; l <= SHARED_LOOPS; l++)
			assert_int_equal(load_gap(1 << 19, 2, 0x4000, 0x4000, l, nops), 0);
}

/* A PIE whose relocations are said to be in zeroed memory: a gigabyte of them that do nothing. */
static void test_relocations(void **state)
{
	const u64 bss = 1 << 20, len = 900ull << 20;
	Elf64_Dyn dyn[] = { { DT_RELA, { bss } }, { DT_RELASZ, { len } }, { DT_NULL, { 0 } } };
	static const u32 ret = RET;
	struct file f;
	size_t at;

	(void)state;
	file_begin(&f);
	at = file_add(&f, &ret, 4);
	file_segment(&f, PF_R | PF_X, RV_TEXT, at, 4, 4);
	at = file_add(&f, dyn, sizeof(dyn));
	file_segment(&f, PF_R | PF_W, bss - sizeof(dyn), at, sizeof(dyn), sizeof(dyn) + len);
	file_segment(&f, PF_R | PF_W, bss - sizeof(dyn), at, sizeof(dyn), sizeof(dyn))->p_type =
		PT_DYNAMIC;
	file_end(&f, ET_DYN, RV_TEXT);
	assert_int_equal(expect_cheap("relocations of zeros", f.bytes, f.size), -ENOEXEC);
	file_free(&f);
}

/* Symbols with names that are long, shared, and never end. */
static void test_symbols(void **state)
{
	enum { COUNT = 40000, STRINGS = 1 << 20 };
	static const u32 ret = RET;
	Elf64_Sym *symbols = calloc(COUNT, sizeof(*symbols));
	char *strings = malloc(STRINGS);

	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		struct file f;
		Elf64_Shdr *sh;
		size_t at;

		memset(strings, 'a', STRINGS);
		for (unsigned i = 0; kind == 1 && i < STRINGS; i += 500)
			strings[i] = 0;
		strings[0] = 0;
		for (unsigned i = 0; i < COUNT; i++)
			symbols[i] = (Elf64_Sym){
				.st_name = kind == 2 ? STRINGS - 1 - i % 400 : 1 + i % 4,
				.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				.st_shndx = 1,
				.st_value = RV_TEXT + (kind == 1 ? 0 : 4 * (COUNT - i)),
			};
		file_begin(&f);
		at = file_add(&f, &ret, 4);
		file_segment(&f, PF_R | PF_X, RV_TEXT, at, 4, 4);
		at = file_add(&f, symbols, COUNT * sizeof(*symbols));
		sh = file_section(&f, SHT_SYMTAB, at, COUNT * sizeof(*symbols));
		sh->sh_entsize = sizeof(*symbols);
		sh->sh_link = 2;
		at = file_add(&f, strings, STRINGS);
		file_section(&f, SHT_STRTAB, at, STRINGS);
		file_end(&f, ET_EXEC, RV_TEXT);
		assert_int_equal(expect_cheap("symbols", f.bytes, f.size), 0);
		file_free(&f);
	}
	free(symbols);
	free(strings);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_code),
		cmocka_unit_test(test_displacements),
		cmocka_unit_test(test_instructions),
		cmocka_unit_test(test_looking_back),
		cmocka_unit_test(test_checked_by_default),
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_jump_tables),
		cmocka_unit_test(test_segments),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_loops),
		cmocka_unit_test(test_diluted_loops),
		cmocka_unit_test(test_relocations),
		cmocka_unit_test(test_symbols),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
