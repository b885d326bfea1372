// SPDX-License-Identifier: MIT
/*
 * ELF files, good and hostile: each way a header can lie is refused with words and without anything
 * left mapped; cut and mangled files never do worse.
 */
#include "bed.h"

#include <elf.h>

struct file {
	uint8_t *image;
	size_t size;
	Elf64_Ehdr *eh;
	Elf64_Phdr *ph;
};

/* A small good program with text and data. */
static struct file good(void)
{
	struct rv_prog p;
	struct file f;

	rv_init(&p);
	rv_data(&p, "data", 4, 8);
	rv_emit(&p, OP_addi, 10, 10, 0, 1);
	rv_emit(&p, OP_jalr, 0, 1, 0, 0);
	rv_layout(&p);
	f.size = rv_elf_image(&p, &f.image);
	f.eh = (Elf64_Ehdr *)f.image;
	f.ph = (Elf64_Phdr *)(f.image + f.eh->e_phoff);
	rv_free(&p);
	return f;
}

enum { LIMIT = 64 << 20 };

/* AddressSanitizer keeps a quarter of a gigabyte of what was freed. */
#ifdef __SANITIZE_ADDRESS__
enum { SLACK = 8 };
#else
enum { SLACK = 1 };
#endif

/*
 * Address space in use, in units of what one process takes: a forgotten one shows, what the
 * allocator or a sanitizer keeps for itself does not.
 */
static unsigned mappings(void)
{
	FILE *m = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	assert_non_null(m);
	assert_int_equal(fscanf(m, "%lu", &pages), 1);
	fclose(m);
	return (unsigned)(pages / (LIMIT / 4096));
}

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

static int load(const void *image, size_t size, struct vb_dpa_process **process,
		struct vb_dpa_error *error)
{
	struct vb_dpa_process_attr pa = { .tier = bed_tier, .limit = LIMIT };

	return vb_dpa_process_create(dpa, image, size, &pa, process, error);
}

/* Load a mangled file from an exact-size buffer; whatever happens must be orderly. 1 if it was refused. */
static int load_any(const uint8_t *image, size_t size)
{
	struct vb_dpa_error error = { "" };
	struct vb_dpa_process *process = (void *)1;
	uint8_t *copy = malloc(size ? size : 1);
	int rc;

	memcpy(copy, image, size);
	rc = load(copy, size, &process, &error);
	free(copy);
	if (rc) {
		assert_true(rc == -ENOEXEC || rc == -ENOMEM);
		assert_true(error.text[0]);
		assert_ptr_equal(process, (void *)1);
		return 1;
	}
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	return 0;
}

static void test_good(void **state)
{
	struct file f = good();
	struct vb_dpa_process *process;
	struct vb_dpa_thread *t;
	uint64_t arg = 41, result;

	(void)state;
	assert_int_equal(load(f.image, f.size, &process, NULL), 0);
	memset(f.image, 0, f.size); /* it is not kept */
	assert_int_equal(vb_dpa_process_entry(process), RV_TEXT);
	assert_int_equal(vb_dpa_process_limit(process), LIMIT);
	assert_int_equal(vb_dpa_thread_create(process, NULL, &t), 0);
	assert_int_equal(vb_dpa_call(t, RV_TEXT, &arg, 1, &result), 0);
	assert_int_equal(result, 42);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	free(f.image);
}

/* Each lie on its own; the text of the refusal is shown on failure. */
#define REFUSE(what, change)                            \
	do {                                            \
		struct file f = good();                 \
		change;                                 \
		if (!load_any(f.image, f.size))         \
			fail_msg("accepted: %s", what); \
		free(f.image);                          \
	} while (0)

static void test_headers(void **state)
{
	unsigned before;

	(void)state;
	load_any((const uint8_t *)"", 0);
	before = mappings();
	REFUSE("magic", f.image[1] = 'F');
	REFUSE("32 bit", f.eh->e_ident[EI_CLASS] = ELFCLASS32);
	REFUSE("big endian", f.eh->e_ident[EI_DATA] = ELFDATA2MSB);
	REFUSE("another machine", f.eh->e_machine = EM_X86_64);
	REFUSE("object file", f.eh->e_type = ET_REL);
	REFUSE("core file", f.eh->e_type = ET_CORE);
	REFUSE("double float calls", f.eh->e_flags |= EF_RISCV_FLOAT_ABI_DOUBLE);
	REFUSE("no program headers", f.eh->e_phnum = 0);
	REFUSE("program headers beyond the end", f.eh->e_phoff = f.size - 8);
	REFUSE("program headers far beyond", f.eh->e_phoff = ~0ull - 20);
	REFUSE("odd program header size", f.eh->e_phentsize = 1);
	REFUSE("thousands of program headers", f.eh->e_phnum = 65000);
	REFUSE("entry in data", f.eh->e_entry = f.ph[1].p_vaddr);
	REFUSE("entry nowhere", f.eh->e_entry = 0x7000000);
	REFUSE("odd entry", f.eh->e_entry |= 1);
	REFUSE("an interpreter", f.ph[1].p_type = PT_INTERP);
	assert_in_range(mappings(), 0, before + SLACK);
}

static void test_segments(void **state)
{
	unsigned before;

	(void)state;
	load_any((const uint8_t *)"", 0);
	before = mappings();
	REFUSE("contents beyond the file", f.ph[0].p_offset = f.size);
	REFUSE("contents that wrap", f.ph[0].p_offset = ~0ull - 4095);
	REFUSE("more in the file than in memory", f.ph[0].p_memsz = f.ph[0].p_filesz - 1);
	REFUSE("more than the file has", f.ph[1].p_filesz = f.ph[1].p_memsz = f.size + 1);
	REFUSE("size that wraps", f.ph[1].p_memsz = ~0ull - 100);
	REFUSE("address that wraps", f.ph[1].p_vaddr = ~0ull - 4095);
	REFUSE("on page 0", f.ph[0].p_vaddr = 0; f.eh->e_entry = 0);
	REFUSE("across the limit", f.ph[1].p_memsz = LIMIT);
	REFUSE("above the limit", f.ph[1].p_vaddr = LIMIT);
	REFUSE("on the host's side", f.ph[1].p_vaddr = 0x7f0000000000);
	REFUSE("on top of text", f.ph[1].p_vaddr = f.ph[0].p_vaddr);
	REFUSE("text that can be written", f.ph[0].p_flags |= PF_W);
	REFUSE("the same bytes twice", f.ph[1] = f.ph[0]; f.ph[1].p_vaddr += 1 << 20;
	       f.ph[0].p_offset = f.ph[1].p_offset = 0;
	       f.ph[0].p_filesz = f.ph[0].p_memsz = f.ph[1].p_filesz = f.ph[1].p_memsz = f.size);
	REFUSE("text far from text", f.ph[1].p_flags = PF_R | PF_X; f.ph[1].p_vaddr = 32 << 20);
	assert_in_range(mappings(), 0, before + SLACK);
}

static void test_truncated(void **state)
{
	struct file f = good();
	unsigned before, refused = 0;

	(void)state;
	load_any(f.image, f.size);
	before = mappings();
	for (size_t size = 0; size < f.size; size += size < 256 || size > f.size - 64 ? 1 : 97)
		refused += (unsigned)load_any(f.image, size);
	assert_true(refused > 300); /* all of the header, and whatever cuts into a segment */
	assert_int_equal(load_any(f.image, f.size), 0);
	assert_in_range(mappings(), 0, before + SLACK);
	free(f.image);
}

/* Random damage: refused or loaded, and if loaded, run for a while. */
static void test_mangled(void **state)
{
	struct rng r = { 2024 };
	unsigned before, refused = 0;

	(void)state;
	load_any((const uint8_t *)"", 0);
	before = mappings();
	for (unsigned n = 0; n < 4000; n++) {
		struct file f = good();
		unsigned damage = 1 + rng_below(&r, 4);

		while (damage--) {
			unsigned at = rng_below(&r, 64 + 2 * 56);

			f.image[at] = (uint8_t)(rng_chance(&r, 50)
							? rng_next(&r)
							: f.image[at] ^ 1u << rng_below(&r, 8));
		}
		refused += (unsigned)load_any(f.image, f.size);
		free(f.image);
	}
	assert_true(refused > 1000 && refused < 4000);
	assert_in_range(mappings(), 0, before + SLACK);
}

static void expect_end(struct vb_dpa_thread *t, uint64_t target, uint64_t pc,
		       enum vb_dpa_cause cause, uint64_t tval)
{
	enum vb_dpa_why why;

	assert_int_equal(vb_dpa_thread_set_call(t, RV_TEXT, &target, 1), 0);
	assert_int_equal(vb_dpa_thread_run(t, UINT64_MAX, &why), 0);
	assert_int_equal(why, VB_DPA_WHY_TRAP);
	assert_int_equal(vb_dpa_thread_state(t)->pc, pc);
	assert_int_equal(vb_dpa_thread_state(t)->cause, cause);
	assert_int_equal(vb_dpa_thread_state(t)->tval, tval);
}

/* Executable memory behind the bytes of the file is zeros, which are no instruction. */
static void test_text_zeros(void **state)
{
	/* jr a0; the first half of addi a0, x0, 0, whose other half is zero */
	static const uint16_t text[] = { 0x8502, 0x0513 };
	const uint64_t end = RV_TEXT + 0x300000;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *t;
	struct file f = good();
	uint8_t zero = 1;

	(void)state;
	memcpy(f.image + f.ph[0].p_offset, text, sizeof(text));
	f.ph[0].p_filesz = sizeof(text);
	f.ph[0].p_memsz = end - RV_TEXT - 1; /* the last halfword is only half there */
	f.ph[1].p_vaddr = end + 4096;
	assert_int_equal(load(f.image, f.size, &process, NULL), 0);
	assert_int_equal(vb_dpa_thread_create(process, NULL, &t), 0);
	expect_end(t, RV_TEXT + 2, RV_TEXT + 6, VB_DPA_CAUSE_ILLEGAL, 0);
	assert_int_equal(vb_dpa_thread_state(t)->instret, 2);
	for (uint64_t at = 4; at < 12; at += 2)
		expect_end(t, RV_TEXT + at, RV_TEXT + at, VB_DPA_CAUSE_ILLEGAL, 0);
	expect_end(t, RV_TEXT + 0x200000, RV_TEXT + 0x200000, VB_DPA_CAUSE_ILLEGAL, 0);
	expect_end(t, end - 4, end - 4, VB_DPA_CAUSE_ILLEGAL, 0);
	expect_end(t, end - 2, end - 2, VB_DPA_CAUSE_FETCH, end - 2);
	expect_end(t, end, end, VB_DPA_CAUSE_FETCH, end);
	/* It is text all the same: it can be read, and nobody writes it. */
	assert_int_equal(vb_dpa_mem_read(process, RV_TEXT + 0x200000, &zero, 1), 0);
	assert_int_equal(zero, 0);
	assert_int_not_equal(vb_dpa_mem_write(process, RV_TEXT + 0x200000, &zero, 1), 0);
	assert_int_not_equal(vb_dpa_mem_unmap(process, RV_TEXT + 0x200000, 4096), 0);
	assert_int_equal(vb_dpa_thread_destroy(t), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	free(f.image);
}

static void test_bad_attributes(void **state)
{
	struct vb_dpa_process_attr pa = { .limit = 3ull << 30 };
	struct vb_dpa_process *process;
	struct file f = good();

	(void)state;
	assert_int_equal(vb_dpa_process_create(dpa, f.image, f.size, &pa, &process, NULL), -EINVAL);
	pa.limit = (1ull << 31) - (1 << 16);
	pa.tier = bed_tier;
	assert_int_equal(vb_dpa_process_create(dpa, f.image, f.size, &pa, &process, NULL), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	free(f.image);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),           cmocka_unit_test(test_headers),
		cmocka_unit_test(test_segments),       cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_mangled),        cmocka_unit_test(test_text_zeros),
		cmocka_unit_test(test_bad_attributes),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
