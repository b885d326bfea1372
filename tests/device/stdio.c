// SPDX-License-Identifier: MIT
/* Standard IO on the DPA: progs/stdio.c, as the host sees it. */
#include "card.h"

#include <limits.h>
#include <sys/types.h>

static char *expected_formats(void)
{
	char *all = calloc(1, 8192);
	size_t used = 0;

#define FORMAT(...)                                                     \
	used += (size_t)snprintf(all + used, 8192 - used, __VA_ARGS__); \
	all[used++] = '\n';
#include "progs/formats.inc"
#undef FORMAT
	return all;
}

static void formats(void **state)
{
	static const char *const way[] = { "formats_printf", "formats_msg", "formats_snprintf" };
	struct card *c = *state;
	char *expected = expected_formats();

	for (int i = 0; i < 3; i++) {
		card_call(c, way[i]);
		assert_text(c, expected);
	}
	free(expected);
}

static void manual_example(void **state)
{
	struct card *c = *state;

	card_call(c, "example");
	assert_int_equal(card_call(c, "example_result"), 1);
	assert_text(c, "");
}

static void streams(void **state)
{
	assert_int_equal(card_call(*state, "streams"), (1 << 14) - 1);
}

static void stream_flags(void **state)
{
	assert_int_equal(card_call(*state, "flags"), (1 << 11) - 1);
}

static void printf_family(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "family"), (1 << 9) - 1);
	assert_text(c, "shown\nto stderr\nputs\nfputs\nc\n");
}

static void stderr_follows(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "follows"), (1 << 6) - 1);
	assert_text(c, "back\nitself\ntoo\n");
}

static void program_strings(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "program_strings"), (1 << 5) - 1);
	assert_text(c, "rom|left  | right|cu|%S|7\nmessage S\n");
}

static void manual_formats(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "manual_formats"), 0);
	assert_text(c, "00x|100000\n00y|100000\n");
}

static void flush_all(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "flush_all"), (1 << 4) - 1);
	assert_text(c, "begun");
}

static void string_list(void **state)
{
	assert_int_equal(card_call(*state, "strings"), (1 << 20) - 1);
}

static void memory_functions(void **state)
{
	struct card *c = *state;

	assert_int_equal(card_call(c, "memory"), 0);
	assert_int_equal(card_call(c, "comparing"), 0);
	assert_true(card_call(c, "copy_cost") < 2000);
}

/* A line is one message; what lacks its newline waits in the thread context for the host. */
static void lines(void **state)
{
	struct card *c = *state;
	struct vb_rtos_thread *ctx = c->main->ctx;
	char left[16];

	card_call(c, "partial");
	assert_int_equal(c->count, 1);
	assert_string_equal(c->messages[0].text, "one line\n");
	assert_int_equal(c->messages[0].stream, 0);
	assert_int_equal(c->messages[0].level, 1);
	assert_int_equal(ctx->line_len, 10);
	assert_int_equal(vb_dpa_mem_read(c->process, ctx->line, left, 10), 0);
	assert_memory_equal(left, "no newline", 10);
	ctx->line_len = 0; /* as the host does once it printed it */
	free(card_text(c));

	card_call(c, "partial_then_flush");
	assert_int_equal(ctx->line_len, 0);
	assert_text(c, "flushed");
	card_call(c, "partial_then_msg");
	assert_int_equal(c->count, 2);
	assert_text(c, "first second\n");
	card_call(c, "partial_then_end");
	assert_int_equal(c->main->end, END_RESCHEDULE);
	assert_text(c, "last words");
}

static void line_before_fault(void **state)
{
	struct card *c = *state;
	uint64_t args[1] = { 0 };

	card_signals();
	assert_int_not_equal(
		vb_dpa_call(c->main->thread, card_symbol(c, "partial_then_fault"), args, 1, args),
		0);
	assert_int_equal(c->main->end, END_TRAP);
	assert_int_equal(c->main->ctx->line_len, strlen("before the fault"));
}

static void long_lines(void **state)
{
	static const unsigned int length[] = { 247, 248, 249, 1000, 4095, 4096, 10000 };
	struct card *c = *state;

	for (int i = 0; i < 7; i++) {
		char *text;

		card_call(c, "long_line", (uint64_t)length[i]);
		assert_int_equal(c->count, 1 + (length[i]) / 4096);
		text = card_text(c);
		assert_int_equal(strlen(text), length[i] + 1);
		for (unsigned int k = 0; k < length[i]; k++)
			assert_int_equal(text[k], 'a' + k % 26);
		free(text);
		assert_int_equal(c->main->ctx->held, 0);
	}
}

static void ends(void **state)
{
	static const struct {
		uint64_t code;
		unsigned int status;
	} exits[] = { { 0, 0x40 }, { 1, 0x81 }, { 0x85, 0x85 }, { 0x7f, 0xff }, { 256, 0x80 } };
	struct card *c = *state;

	for (int i = 0; i < 5; i++) {
		card_call(c, "end_exit", exits[i].code);
		assert_int_equal(c->main->end, END_PROCESS);
		assert_int_equal(c->status, exits[i].status);
		assert_text(c, "leaving");
	}
	card_call(c, "end_atexit");
	assert_int_equal(c->status, 0x85);
	assert_text(c, "at exit\n");
	card_call(c, "end_abort");
	assert_int_equal(c->status, 0x86);
	assert_text(c, "abort called\n");
	card_call(c, "end_assert");
	assert_int_equal(c->status, 0x86);
	assert_int_equal(c->count, 1);
	assert_int_equal(c->messages[0].level, 2);
	assert_non_null(strstr(c->messages[0].text, "assertion \"1 + 1 == 3\" failed: "));
	assert_non_null(strstr(c->messages[0].text, "stdio.c:"));
}

static void no_memory(void **state)
{
	struct card *c = *state;
	char *text;

	c->brk_limit = 1 << 20;
	assert_in_range(card_call(c, "exhaust"), 8, 10);
	assert_true(c->count > 1);
	text = card_text(c);
	assert_int_equal(strlen(text), 305);
	assert_string_equal(text + 299, "7|end\n");
	free(text);
}

#define T(name) cmocka_unit_test_setup_teardown(name, card_setup, card_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(formats),
		T(manual_example),
		T(streams),
		T(stream_flags),
		T(printf_family),
		T(string_list),
		T(memory_functions),
		T(lines),
		T(line_before_fault),
		T(long_lines),
		T(ends),
		T(no_memory),
		T(stderr_follows),
		T(program_strings),
		T(manual_formats),
		T(flush_all),
	};

	return card_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
