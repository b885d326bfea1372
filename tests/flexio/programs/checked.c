// SPDX-License-Identifier: MIT
/* Checked mode: every finding with its report, and that the process then goes as after any fault. */
#include "check.h"

#include <ctype.h>

extern struct flexio_app *bugs;
extern flexio_func_t overflow, in_front, after_free, after_realloc, twice, inside, free_this,
	copy_out, unset_block, unset_local, lose, poke, poke_byte, recover, unset_copies, later,
	strings, family, correct;

static struct ibv_context *ctx;
static char text[1 << 16];
static int saved;

/* ---- what is on standard error ---- */

static void listen(void)
{
	FILE *file = fopen("said", "w");

	saved = dup(STDERR_FILENO);
	CHECK(file && saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
	fclose(file);
}

/* Without what differs from one build to the next: numbers of addresses, and lines. */
static void simplify(char *to)
{
	for (const char *from = to; *from;) {
		if (!strncmp(from, " at /", 5) || !strncmp(from, " at .", 5)) {
			from += strcspn(from, "\n");
		} else if (!strncmp(from, "0x", 2)) {
			for (from += 2; isxdigit((unsigned char)*from); from++)
				;
			*to++ = 'X';
			if (!strncmp(from, "+X", 2))
				from += 2;
		} else if (*from == '+') { /* an offset in a function */
			for (from += 3; isxdigit((unsigned char)*from); from++)
				;
		} else {
			*to++ = *from++;
		}
	}
	*to = 0;
}

static void heard(void)
{
	FILE *file;
	size_t len;

	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	file = fopen("said", "r");
	CHECK(file);
	len = fread(text, 1, sizeof(text) - 1, file);
	text[len] = 0;
	fclose(file);
	simplify(text);
}

/* The report is in the text, and there is no second one. */
static void expect(const char *report)
{
	const char *first = strstr(text, "Check of device code");

	if (!first || strncmp(first, report, strlen(report)) ||
	    strstr(first + 1, "Check of device code")) {
		fprintf(stderr, "expected:\n%s\nthere is:\n%s\n", report, text);
		CHECK(!"report");
	}
}

static void expect_nothing(void)
{
	if (strstr(text, "Check of")) {
		fprintf(stderr, "nothing expected, there is:\n%s\n", text);
		CHECK(!"report");
	}
}

/* ---- processes ---- */

static struct flexio_process *make(const char *checks, int recovers)
{
	struct flexio_process_attr attr = { .name = "buggy" };
	struct flexio_process *process;

	setenv("VERBATIM_DPA_CHECK", checks, 1);
	OK(flexio_process_create(ctx, bugs, &attr, &process));
	if (recovers)
		OK(flexio_process_error_handler_set(process, recover));
	return process;
}

#define REPORT "Check of device code, process buggy\n  "

static const struct {
	flexio_func_t *func;
	uint64_t arg;
	const char *report;
} cases[] = {
	{ &overflow, 13,
	  REPORT
	  "heap overflow: store of 4 bytes at X, 0 bytes behind the end of a block of 48 bytes at X (malloc of the device)\n"
	  "  by device thread 1, RPC:\n"
	  "    #0  X fill\n"
	  "    #1  X overflow\n"
	  "  The block was allocated by device thread 1:\n"
	  "    #0  X make\n"
	  "    #1  X overflow\n" },
	{ &in_front, 0,
	  REPORT
	  "heap overflow: load of 4 bytes at X, 4 bytes before a block of 48 bytes at X (malloc of the device)\n"
	  "  by device thread 1, RPC:\n"
	  "    #0  X in_front\n" },
	{ &after_free, 0,
	  REPORT
	  "use after free: load of 4 bytes at X, 12 bytes inside a freed block of 48 bytes at X (malloc of the device)\n"
	  "  by device thread 1, RPC:\n"
	  "    #0  X after_free\n" },
	{ &after_realloc, 0,
	  REPORT
	  "use after free: load of 4 bytes at X, 0 bytes inside a freed block of 48 bytes at X (malloc of the device)\n" },
	{ &twice, 0,
	  REPORT
	  "double free: X, 0 bytes inside a freed block of 48 bytes at X (malloc of the device)\n"
	  "  by device thread 1, RPC:\n"
	  "    #0  X free\n" },
	{ &inside, 0,
	  REPORT
	  "free of what is no block: X, 8 bytes inside a block of 48 bytes at X (malloc of the device)\n" },
	{ &free_this, 1UL << 60, REPORT "free of what is no block: X\n" },
	{ &copy_out, 101,
	  REPORT
	  "heap overflow: store of 8 bytes at X, 0 bytes behind the end of a block of 100 bytes at X (malloc of the device)\n"
	  "  by device thread 1, RPC:\n"
	  "    #0  X memcpy\n"
	  "    #1  X copy_out\n" },
	{ &unset_block, 0,
	  REPORT "use of a value that nobody wrote: load of 8 bytes at X\n"
		 "  by device thread 1, RPC:\n"
		 "    #0  X unset_block\n" },
	{ &unset_local, 7,
	  REPORT "use of a value that nobody wrote: load of 8 bytes at X\n"
		 "  by device thread 1, RPC:\n"
		 "    #0  X unset_local\n" },
};

/* Each ends the process with a status of its own; the error handler may prevent that. */
static void ends(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct flexio_process *process = make("heap,uninit", i % 2);
		flexio_status status;

		listen();
		status = flexio_process_call(process, cases[i].func, NULL, cases[i].arg);
		heard();
		expect(cases[i].report);
		CHECK(status == (i % 2 ? FLEXIO_STATUS_FAILED : FLEXIO_STATUS_FATAL_ERR));
		CHECK(flexio_err_status_get(process) == (i % 2 ? 0 : 0x1a));
		listen();
		if (!(i % 2)) {
			OK(flexio_crash_data(process, NULL));
			heard();
			CHECK(strstr(text, "Status:   X, check-failed"));
			listen();
		}
		OK(flexio_process_destroy(process));
		heard();
	}
}

/* The process goes on, results are what they would be, and each place is told once. */
static void goes_on(void)
{
	struct flexio_process *process = make("heap,uninit,continue", 0);
	uint64_t result;

	for (unsigned int round = 0; round < 2; round++) {
		listen();
		OK(flexio_process_call(process, &overflow, &result, (uint64_t)13));
		heard();
		CHECK(result == 13);
		if (round)
			expect_nothing();
		else
			expect(cases[0].report);
		listen();
		OK(flexio_process_call(process, &twice, &result));
		heard();
		CHECK(result == 5);
		if (round)
			expect_nothing();
		else
			expect(cases[4].report);
	}
	listen();
	OK(flexio_process_call(process, &unset_copies, &result, (uint64_t)40));
	heard();
	expect_nothing();
	CHECK(result == 42);
	listen();
	OK(flexio_process_call(process, &later, &result));
	heard();
	expect(REPORT "use of a value that nobody wrote: load of 8 bytes at X\n"
		      "  by device thread 1, RPC:\n"
		      "    #0  X later\n");
	OK(flexio_process_destroy(process));
}

static void clean(void)
{
	struct flexio_process *process = make("heap,uninit", 0);
	uint64_t result;

	listen();
	OK(flexio_process_call(process, &overflow, &result, (uint64_t)12));
	OK(flexio_process_call(process, &unset_local, &result, (uint64_t)8));
	OK(flexio_process_call(process, &unset_copies, &result, (uint64_t)40));
	OK(flexio_process_call(process, &strings, &result, (uint64_t)100));
	CHECK(result == 4950);
	OK(flexio_process_call(process, &family, &result));
	CHECK(!result);
	OK(flexio_process_call(process, &correct, &result));
	CHECK(result == 195);
	OK(flexio_process_destroy(process));
	heard();
	expect_nothing();
}

static void leaks(void)
{
	struct flexio_process *process = make("heap", 0);
	uint64_t result;

	OK(flexio_process_call(process, &strings, &result, (uint64_t)1));
	OK(flexio_process_call(process, &lose, &result, (uint64_t)3));
	OK(flexio_process_call(process, &lose, &result, (uint64_t)2));
	listen();
	OK(flexio_process_destroy(process));
	heard();
	expect(REPORT "leak: 240 bytes in 5 blocks, by malloc of the device\n"
		      "  240 bytes in 5 blocks, allocated at:\n"
		      "    #0  X make\n"
		      "    #1  X lose\n");
}

/* ---- buffers of the host ---- */

static void host_buffers(void)
{
	struct flexio_process *process = make("heap", 1);
	flexio_uintptr_t buffer, freed;
	struct flexio_heap_mem_info info;
	uint64_t word = 1, result;

	OK(flexio_buf_dev_alloc(process, 60, &buffer));
	OK(flexio_buf_dev_alloc(process, 64, &freed));
	OK(flexio_buf_dev_free(process, freed));
	OK(flexio_process_mem_info_get(process, &info));
	CHECK(info.requested == 60 && info.allocated == 64);
	OK(flexio_process_call(process, &poke_byte, &result, buffer + 59));
	listen();
	CHECK(flexio_process_call(process, &poke_byte, &result, buffer + 60) ==
	      FLEXIO_STATUS_FAILED);
	heard();
	expect(REPORT
	       "heap overflow: store of 1 bytes at X, 0 bytes behind the end of a block of 60 bytes at X (device heap)\n"
	       "  by device thread 1, RPC:\n"
	       "    #0  X poke_byte\n");
	CHECK(strstr(text, "  The block was allocated by the host, flexio_buf_dev_alloc()\n"));
	listen();
	CHECK(flexio_process_call(process, &poke, &result, freed) == FLEXIO_STATUS_FAILED);
	heard();
	CHECK(strstr(text, "use after free: store of 8 bytes"));
	CHECK(strstr(text, "  and freed by the host, flexio_buf_dev_free()\n"));
	listen();
	CHECK(flexio_process_call(process, &poke, &result, freed + (64 << 20)) ==
	      FLEXIO_STATUS_FAILED);
	heard();
	expect(REPORT "use of heap memory that nobody allocated: store of 8 bytes at X\n"
		      "  by device thread 1, RPC:\n");
	listen();
	CHECK(flexio_process_call(process, &free_this, &result, buffer) == FLEXIO_STATUS_FAILED);
	heard();
	expect(REPORT
	       "free by the wrong function: X, 0 bytes inside a block of 60 bytes at X (device heap)\n");

	/* calls of the host fail, with one line, and nothing is touched */
	OK(flexio_host2dev_memcpy(process, &word, 8, buffer));
	listen();
	CHECK(flexio_host2dev_memcpy(process, &word, 8, buffer + 56) == FLEXIO_STATUS_FAILED);
	heard();
	expect(REPORT
	       "heap overflow: store of 8 bytes at X, 0 bytes behind the end of a block of 60 bytes at X (device heap)\n"
	       "  by the host, flexio_host2dev_memcpy()\n");
	listen();
	CHECK(flexio_buf_dev_memset(process, 0, 8, freed) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_buf_dev_free(process, freed) == FLEXIO_STATUS_FAILED);
	CHECK(flexio_buf_dev_free(process, buffer + 64) == FLEXIO_STATUS_FAILED);
	heard();
	CHECK(strstr(text, "process buggy: double free: X, 0 bytes inside a freed block of 64"));
	CHECK(strstr(text, "free of what is no block"));
	flexio_log_lvl_set(FLEXIO_LOG_LVL_INFO);
	listen();
	OK(flexio_process_destroy(process));
	heard();
	CHECK(strstr(text, "1 buffers of the device heap, 60 bytes, were not freed"));
	flexio_log_lvl_set(FLEXIO_LOG_LVL_ERR);
}

static void unknown_word(void)
{
	struct flexio_process *process;

	setenv("VERBATIM_DPA_CHECK", "heap,moon", 1);
	listen();
	CHECK(flexio_process_create(ctx, bugs, NULL, &process) == FLEXIO_STATUS_FAILED);
	heard();
	CHECK(strstr(text,
		     "VERBATIM_DPA_CHECK: 'moon' is nothing to check; allowed: heap, uninit"));
}

int main(void)
{
	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	ctx = open_device();
	ends();
	goes_on();
	clean();
	leaks();
	host_buffers();
	unknown_word();
	CHECK(!ibv_close_device(ctx));
	return 0;
}
