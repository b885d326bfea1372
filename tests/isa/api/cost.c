/* SPDX-License-Identifier: MIT */
/*
 * What a hostile file may cost: host code and memory stay within a multiple of its size, whatever
 * it is made of (docs/security.md has the multiples). Counted in bytes and steps, never in time.
 */
#include "bed.h"

#include "dpa/cpu/jit/x86.h"

#define C_LW 0x4108 /* c.lw a0, 0(a0): two bytes that take many of the host's */
#define RET  0x8082

/* A program whose text is given as it is. */
static void raw_text(struct rv_prog *p, size_t halfwords, uint16_t each)
{
	rv_init(p);
	p->text_size = 2 * halfwords;
	p->text = malloc(p->text_size);
	for (size_t i = 0; i < halfwords; i++)
		memcpy(p->text + 2 * i, &each, 2);
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
	struct vb_dpa *dpa;
	struct rv_prog p;
	uint16_t ret = RET;
	uint64_t at, result;
	uint8_t *image;
	size_t size;

	raw_text(&p, halfwords, C_LW);
	memcpy(p.text + p.text_size - 2, &ret, 2);
	at = p.data_base;
	memcpy(p.data, &at, 8); /* a pointer to itself */
	size = rv_elf_image(&p, &image);
	assert_int_equal(vb_dpa_create(NULL, &dpa), 0);
	assert_int_equal(vb_dpa_process_create(dpa, image, size, &pa, &process, NULL), 0);
	assert_int_equal(vb_dpa_process_tier(process), tier);
	vb_dpa_text_stats(process, &stats);
	assert_in_range(stats.code_bytes, 0, 24 * stats.text_bytes + (1 << 20));
	assert_int_equal(vb_dpa_thread_create(process, NULL, &thread), 0);
	assert_int_equal(vb_dpa_call(thread, RV_TEXT, &at, 1, &result), 0);
	assert_int_equal(result, at);
	assert_int_equal(vb_dpa_thread_state(thread)->instret, halfwords);
	assert_int_equal(vb_dpa_thread_destroy(thread), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	assert_int_equal(vb_dpa_destroy(dpa), 0);
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_code),
		cmocka_unit_test(test_displacements),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
