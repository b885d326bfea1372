// SPDX-License-Identifier: MIT
/* Names from a hostile file in what people and tools read: no line, no escape sequence and no length of its own. */
#include "bed.h"

#include <ctype.h>
#include <unistd.h>

#include "file.h"

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

static void test_printable(void **state)
{
	static const struct {
		const char *name, *text;
	} cases[] = {
		{ "", "" },
		{ "main", "main" },
		{ "_ZN3fooC2Ev.part.0", "_ZN3fooC2Ev.part.0" },
		{ "operator new(unsigned long)", "operator new(unsigned long)" },
		{ "a\nb", "a\\x0ab" },
		{ "\r\t\x7f", "\\x0d\\x09\\x7f" },
		{ "\x1b[2J", "\\x1b[2J" },
		{ "\xc2\x9b"
		  "2J",
		  "\\xc2\\x9b2J" },
		{ "a\\x0ab", "a\\x5cx0ab" }, /* nobody can write what we write */
	};
	char name[1000], text[VB_DPA_NAME_TEXT];

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(vb_dpa_printable(cases[i].name, text), cases[i].text);
	/* Every length, of plain and of strange characters: cut, and it says so. */
	for (unsigned n = 1; n < sizeof(name); n++)
		for (unsigned strange = 0; strange < 2; strange++) {
			size_t len, each = strange ? 4 : 1;

			memset(name, strange ? '\n' : 'a', n);
			name[n] = 0;
			memset(text, 'z', sizeof(text));
			vb_dpa_printable(name, text);
			len = strnlen(text, sizeof(text));
			assert_true(len < sizeof(text));
			if (n * each < sizeof(text))
				assert_int_equal(len, n * each);
			else
				assert_string_equal(text + len - 3, "...");
		}
}

/* A program whose only function has this name; it loads from address 0. */
static struct vb_dpa_process *load_named(const char *name)
{
	static const u32 code[] = { 0x00003503, 0x00008067 }; /* ld a0, 0(x0); ret */
	struct vb_dpa_process_attr pa = { .tier = bed_tier, .name = "names" };
	size_t len = strlen(name) + 2, at;
	Elf64_Sym symbols[2] = { { 0 },
				 { .st_name = 1,
				   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
				   .st_shndx = 1,
				   .st_value = RV_TEXT,
				   .st_size = sizeof(code) } };
	struct vb_dpa_process *process;
	char *strings = calloc(1, len);
	Elf64_Shdr *sh;
	struct file f;

	memcpy(strings + 1, name, len - 2);
	file_begin(&f);
	at = file_add(&f, code, sizeof(code));
	file_segment(&f, PF_R | PF_X, RV_TEXT, at, sizeof(code), sizeof(code));
	at = file_add(&f, symbols, sizeof(symbols));
	sh = file_section(&f, SHT_SYMTAB, at, sizeof(symbols));
	sh->sh_entsize = sizeof(symbols[0]);
	sh->sh_link = 2;
	at = file_add(&f, strings, len);
	file_section(&f, SHT_STRTAB, at, len);
	file_end(&f, ET_EXEC, RV_TEXT);
	assert_int_equal(vb_dpa_process_create(dpa, f.bytes, f.size, &pa, &process, NULL), 0);
	file_free(&f);
	free(strings);
	return process;
}

static unsigned count_lines(const char *text, size_t len)
{
	unsigned lines = 0;

	for (size_t i = 0; i < len; i++) {
		lines += text[i] == '\n';
		if (text[i] != '\n' && !isprint((unsigned char)text[i]))
			fail_msg("byte 0x%02x at %zu", (unsigned char)text[i], i);
	}
	return lines;
}

static unsigned dump_lines(const char *name)
{
	struct vb_dpa_process *process = load_named(name);
	struct vb_dpa_thread *thread;
	uint64_t result;
	char text[4096];
	size_t len;

	assert_int_equal(vb_dpa_thread_create(process, NULL, &thread), 0);
	assert_int_equal(vb_dpa_call(thread, RV_TEXT, NULL, 0, &result), -EFAULT);
	len = vb_dpa_state_format(process, vb_dpa_thread_state(thread), text, sizeof(text));
	assert_true(len < sizeof(text));
	assert_int_equal(vb_dpa_thread_destroy(thread), 0);
	assert_int_equal(vb_dpa_process_destroy(process), 0);
	return count_lines(text, len);
}

/* Lines of the profilers' map after one more program, of all that were loaded. */
static unsigned map_lines(const char *name)
{
	char path[64], text[16384];
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	setenv("VERBATIM_DPA_PERF_MAP", "1", 1);
	assert_int_equal(vb_dpa_process_destroy(load_named(name)), 0);
	unsetenv("VERBATIM_DPA_PERF_MAP");
	f = fopen(path, "r");
	assert_non_null(f);
	len = fread(text, 1, sizeof(text), f);
	fclose(f);
	assert_true(len < sizeof(text));
	return count_lines(text, len);
}

static void test_hostile(void **state)
{
	unsigned dump = dump_lines("plain"), map;
	char name[401], path[64];

	(void)state;
	memset(name, 'a', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_int_equal(dump_lines("f\nverbatim[1] error: forged\n"), dump);
	assert_int_equal(dump_lines("\x1b]0;title\a\x1b[2J\r"), dump);
	assert_int_equal(dump_lines(name), dump);
	if (bed_tier != VB_DPA_TIER_JIT)
		return;
	map = map_lines("plain");
	assert_int_equal(map_lines("f\n7f0000000000 1000 libc:system\n"), 2 * map);
	assert_int_equal(map_lines("\x1b[2J"), 3 * map);
	assert_int_equal(map_lines(name), 4 * map);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	unlink(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_printable),
		cmocka_unit_test(test_hostile),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
