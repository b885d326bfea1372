// SPDX-License-Identifier: MIT
/* Crash data: what people read when device code went wrong, in a file and on standard error. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern struct flexio_app *fall;
extern flexio_func_t tumble, fall_in_background, give_up, run_over, on_error;
extern flexio_func_t lose_stack, call_nothing, jump, add, jump_to, overwrite_text, stay, store_out,
	store_on;

static struct ibv_context *ctx;
static char text[1 << 16], console[1 << 16];

static size_t slurp(const char *path, char *to, size_t size)
{
	FILE *file = fopen(path, "r");
	size_t len;

	CHECK(file);
	len = fread(to, 1, size - 1, file);
	to[len] = 0;
	fclose(file);
	return len;
}

static struct flexio_process *make(flexio_func_t *handler)
{
	struct flexio_process_attr attr = { .name = "victim" };
	struct flexio_process *process;

	OK(flexio_process_create(ctx, fall, &attr, &process));
	if (handler)
		OK(flexio_process_error_handler_set(process, handler));
	return process;
}

/* The data of the process, in text: the file, and the same on standard error. */
static void crash_data(struct flexio_process *process, const char *outfile, const char *found)
{
	int saved = dup(STDERR_FILENO);
	char command[256];
	FILE *file = fopen("console", "w");

	CHECK(file && saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
	OK(flexio_crash_data(process, outfile));
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	fclose(file);
	slurp("console", console, sizeof(console));
	/* the name has the number of the process, which nothing else shows */
	snprintf(command, sizeof(command), "cat %s.*.crash > found; rm -f %s.*.crash", found,
		 found);
	CHECK(!system(command));
	CHECK(slurp("found", text, sizeof(text)) > 100);
	CHECK(!strcmp(text, console));
}

#define HAS(words)                                                       \
	do {                                                             \
		if (!strstr(text, words)) {                              \
			fprintf(stderr, "no '%s' in:\n%s", words, text); \
			CHECK(!"crash data");                            \
		}                                                        \
	} while (0)

static int have_lines(void)
{
	return strstr(text, ".dev.c:") != NULL;
}

/* Whatever lies in place of the file: the program neither waits nor ends. */
static void obstacles(struct flexio_process *process)
{
	struct rlimit before, none;
	char folder[256], path[512];
	unsigned int number;

	CHECK(sscanf(text, "flexio_crash_data: process victim (%x)", &number) == 1);
	CHECK(getcwd(folder, sizeof(folder)));
	snprintf(path, sizeof(path), "%s/pipe.%x.crash", folder, number);
	CHECK(!mkfifo(path, 0666));
	snprintf(path, sizeof(path), "%s/pipe", folder);
	CHECK(flexio_crash_data(process, path) == FLEXIO_STATUS_FAILED);
	snprintf(path, sizeof(path), "%s/pipe.%x.crash", folder, number);
	CHECK(!unlink(path));
	CHECK(!getrlimit(RLIMIT_FSIZE, &before));
	none = before;
	none.rlim_cur = 100;
	signal(SIGXFSZ, SIG_DFL);
	CHECK(!setrlimit(RLIMIT_FSIZE, &none));
	CHECK(flexio_crash_data(process, "small") == FLEXIO_STATUS_FAILED);
	CHECK(!setrlimit(RLIMIT_FSIZE, &before));
	snprintf(path, sizeof(path), "small.%x.crash", number);
	CHECK(access(path, F_OK));
}

static void calls(void)
{
	struct flexio_process *process = make(NULL);

	CHECK(flexio_crash_data(process, NULL) == FLEXIO_STATUS_FAILED); /* it is well */
	CHECK(flexio_process_call(process, &tumble, NULL, (uint64_t)8) == FLEXIO_STATUS_FATAL_ERR);
	crash_data(process, NULL, "./flexio_dev");
	HAS("process victim");
	HAS("Status:   0x8, store-access-fault");
	HAS("RPC");
	HAS("Address:  0x8, near NULL");
	HAS("innermost+0x");
	HAS("middle+0x");
	HAS("sp ");
	HAS("RPC tumble(0x8) begins\n"); /* the last thing that it did */
	if (have_lines()) {
		HAS("crash.fall.dev.c:11\n");
		HAS("Call stack (return addresses):\n  #1 ");
		HAS("tumble+0x"); /* the last one */
		CHECK(!strstr(text, "  #3 "));
	} else
		fprintf(stderr, "no libdw: lines are not looked at\n");
	crash_data(process, "mine", "./mine"); /* again, elsewhere */
	crash_data(process, "/tmp/crash-test", "/tmp/crash-test");
	CHECK(flexio_crash_data(process, "/nonexistent/file") == FLEXIO_STATUS_FAILED);
	obstacles(process);
	CHECK(flexio_crash_data(NULL, NULL) == FLEXIO_STATUS_FAILED);
	OK(flexio_process_destroy(process));
	CHECK(flexio_crash_data(process, NULL) == FLEXIO_STATUS_FAILED);
}

static void end_with(flexio_func_t *func, uint64_t arg, const char *status, const char *more)
{
	struct flexio_process *process = make(on_error); /* which returns: fatal */

	CHECK(flexio_process_call(process, func, NULL, arg) == FLEXIO_STATUS_FATAL_ERR);
	crash_data(process, "end", "./end");
	HAS(status);
	HAS(more);
	OK(flexio_process_destroy(process));
}

/* Standard error whose reader is gone, or that is closed: the file is made all the same. */
static void no_reader(void)
{
	struct flexio_process *process = make(NULL);
	int ends[2], saved = dup(STDERR_FILENO);
	flexio_status status[2];

	CHECK(flexio_process_call(process, &tumble, NULL, (uint64_t)8) == FLEXIO_STATUS_FATAL_ERR);
	signal(SIGPIPE, SIG_DFL);
	CHECK(!pipe(ends) && !close(ends[0]) && dup2(ends[1], STDERR_FILENO) >= 0);
	status[0] = flexio_crash_data(process, "unread");
	close(STDERR_FILENO);
	status[1] = flexio_crash_data(process, "closed");
	CHECK(dup2(saved, STDERR_FILENO) >= 0 && !close(saved) && !close(ends[1]));
	OK(status[0]);
	OK(status[1]);
	CHECK(!system("cmp unread.*.crash closed.*.crash && rm unread.*.crash closed.*.crash"));
	OK(flexio_process_destroy(process));
}

static void background(void)
{
	struct flexio_process *process = make(on_error);
	struct flexio_cmdq_attr attr = { .workers = 1,
					 .batch_size = 1,
					 .state = FLEXIO_CMDQ_STATE_RUNNING };
	struct flexio_cmdq *q;

	OK(flexio_cmdq_create(process, &attr, &q));
	OK(flexio_cmdq_task_add(q, fall_in_background, 3UL << 40));
	while (!flexio_cmdq_is_empty(q))
		usleep(500);
	crash_data(process, NULL, "./flexio_dev");
	HAS("worker of a command queue");
	HAS("Address:  0x30000000000, no memory of the process");
	HAS("innermost+0x"); /* the fault's, not the handler's */
	HAS("middle+0x");
	OK(flexio_cmdq_destroy(q));
	OK(flexio_process_destroy(process));
}

/* ---- what an address belongs to ---- */

/* The call ends the process, and its data has these words. */
static void fall_at(struct flexio_process *process, flexio_func_t *func, uint64_t arg,
		    const char *fmt, ...)
{
	char words[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(words, sizeof(words), fmt, args);
	va_end(args);
	CHECK(flexio_process_call(process, func, NULL, arg) == FLEXIO_STATUS_FATAL_ERR);
	crash_data(process, "at", "./at");
	HAS(words);
	OK(flexio_process_destroy(process));
}

static void heap_addresses(void)
{
	static const struct {
		flexio_func_t *func;
		int64_t offset;
		const char *words;
	} cases[] = {
		{ &jump, 24, "byte 24 of a buffer of 100 bytes that flexio_buf_dev_alloc()" },
		{ &add, 99, "byte 99 of a buffer of 100 bytes that flexio_buf_dev_alloc()" },
		{ &jump, 104, "4 bytes behind the end of a buffer of 100 bytes at 0x" },
		{ &jump, 1024, "924 bytes behind the end of a buffer of 100 bytes at 0x" },
	};
	struct flexio_process *process;
	flexio_uintptr_t a, b, c;

	for (unsigned int i = 0; i < 6; i++) {
		process = make(on_error);
		OK(flexio_buf_dev_alloc(process, 100, &a));
		if (i < 4) {
			fall_at(process, cases[i].func, a + (uint64_t)cases[i].offset, "%s",
				cases[i].words);
			continue;
		}
		/* of two that were there, the later one; and one that nobody has any more */
		OK(flexio_buf_dev_alloc(process, 200, &b));
		OK(flexio_buf_dev_free(process, b));
		OK(flexio_buf_dev_alloc(process, 220, &c));
		OK(flexio_buf_dev_free(process, c));
		CHECK(b == c);
		fall_at(process, jump, b + (i == 4 ? 30 : 218),
			"byte %d of a buffer of 220 bytes that flexio_buf_dev_alloc() or a relative of it gave out, and that was freed\n",
			i == 4 ? 30 : 218);
	}
	process = make(on_error);
	OK(flexio_buf_dev_alloc(process, 100, &a));
	OK(flexio_buf_dev_free(process, a));
	fall_at(process, jump, a + 1000, "in the device heap, of which nobody has a buffer\n");
}

static void own_addresses(void)
{
	fall_at(make(on_error), jump_to, 0,
		"of the memory for malloc() of device code, which has taken");
	fall_at(make(on_error), jump_to, 1, "in the thread-local storage of the thread\n");
	fall_at(make(on_error), jump_to, 2, "in the context of the thread\n");
	fall_at(make(on_error), jump_to, 3, "shared+0x0 of the program: data\n");
	fall_at(make(on_error), jump_to, 4, "in the stack of the thread, ");
	fall_at(make(on_error), overwrite_text, 0, "overwrite_text+0x0 of the program: text\n");
	fall_at(make(on_error), add, 1UL << 40 | 0x1c0, "register 0x1c0 of the outbox");
	fall_at(make(on_error), jump, UINT64_MAX - 7,
		"0xfffffffffffffff8, no memory of the process\n");
}

/* The stack of another thread, and what is below it. */
static void other_addresses(void)
{
	for (unsigned int i = 0; i < 2; i++) {
		struct flexio_process *process = make(on_error);
		struct flexio_cmdq_attr attr = { .workers = 1,
						 .batch_size = 1,
						 .state = FLEXIO_CMDQ_STATE_RUNNING };
		flexio_uintptr_t word;
		struct flexio_cmdq *q;
		uint64_t zero = 0, at;

		OK(flexio_copy_from_host(process, &zero, sizeof(zero), &word));
		OK(flexio_cmdq_create(process, &attr, &q));
		OK(flexio_cmdq_task_add(q, &stay, word));
		dev_await(process, word, 1);
		at = dev_read(process, word);
		CHECK(flexio_process_call(process, i ? tumble : jump, NULL,
					  i ? ((at | 4095) + 1 - 65536) - 24 : at) ==
		      FLEXIO_STATUS_FATAL_ERR);
		crash_data(process, "at", "./at");
		HAS(i ? " bytes below the stack of thread " : "in the stack of thread ");
		HAS(", CMDQ_");
		OK(flexio_cmdq_destroy(q));
		OK(flexio_process_destroy(process));
	}
}

static void *end_key(void *arg)
{
	volatile uint64_t *word = ((struct ibv_mr *)arg)->addr;

	while (!*word)
		usleep(100);
	CHECK(!ibv_dereg_mr(arg));
	return NULL;
}

static void window_addresses(void)
{
	static uint64_t memory[1024];
	uint64_t start = (uint64_t)(uintptr_t)memory;
	struct {
		int access;
		bool key;
		flexio_func_t *func;
		uint64_t at;
		const char *words;
	} const cases[] = {
		{ IBV_ACCESS_LOCAL_WRITE, true, store_out, start + sizeof(memory) + 24,
		  ", and this is 24 bytes behind its end\n" },
		{ IBV_ACCESS_LOCAL_WRITE, true, store_out, start - 16,
		  ", and this is 16 bytes before it\n" },
		{ 0, true, store_out, start + 8,
		  ", and this is in it, but it cannot be written\n" },
		{ 0, false, store_out, start,
		  " in window 0, which the thread has not configured\n" },
		{ IBV_ACCESS_LOCAL_WRITE, true, store_on, start, " is gone\n" },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct flexio_process *process = make(on_error);
		struct ibv_pd *pd = flexio_process_get_pd(process);
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), cases[i].access);
		bool ends = cases[i].func == store_on;
		struct flexio_window *window;
		char words[256];
		pthread_t thread;
		uint32_t key;

		CHECK(mr);
		key = mr->lkey;
		memory[0] = 0;
		OK(flexio_window_create(process, pd, &window));
		CHECK(!ends || !pthread_create(&thread, NULL, end_key, mr));
		CHECK(flexio_process_call(
			      process, cases[i].func, NULL, (uint32_t)flexio_window_get_id(window),
			      cases[i].key ? key : 0, cases[i].at) == FLEXIO_STATUS_FATAL_ERR);
		crash_data(process, "at", "./at");
		snprintf(words, sizeof(words), "host address 0x%lx in window 0",
			 (unsigned long)cases[i].at);
		HAS(words);
		HAS(cases[i].words);
		snprintf(words, sizeof(words), "key 0x%x", key);
		if (cases[i].key)
			HAS(words);
		if (cases[i].key && !ends) {
			snprintf(words, sizeof(words), " is 0x%lx to 0x%lx, ", (unsigned long)start,
				 (unsigned long)(start + sizeof(memory)));
			HAS(words);
			snprintf(words, sizeof(words), "WINDOW_CONFIG(0, %u, 0x%x) = 0\n",
				 flexio_window_get_id(window), key);
			HAS(words);
			HAS(", 41 times\n"); /* WINDOW_PTR */
		}
		if (!ends)
			CHECK(!ibv_dereg_mr(mr));
		else
			pthread_join(thread, NULL);
		OK(flexio_window_destroy(window));
		OK(flexio_process_destroy(process));
	}
}

int main(void)
{
	struct flexio_process *process;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	unsetenv("LD_PRELOAD"); /* a sanitizer's run-time is not for shells */
	ctx = open_device();
	calls();
	end_with(&run_over, 0, "Status:   0x20, stack overflow", "below the stack of the thread");
	if (have_lines())
		HAS("  #1 to #"); /* recursion is one line */
	end_with(&tumble, 1UL << 48 | 64, "Status:   0x8", "host address 0x40 in window 0");
	end_with(&tumble, 0, "Status:   0x8", "fixed+0x0 of the program");
	end_with(&give_up, 0x99, "Status:   0x99, flexio_dev_error()", "flexio_dev_error+0x");
	end_with(&lose_stack, 0x3000, "Status:   0x8, store-access-fault",
		 " bytes below the stack, which has 8192 bytes\n");
	end_with(&lose_stack, UINT64_MAX - 7, "Status:   0x8, store-access-fault",
		 "Stack:    sp is 0xfffffffffffffff8, not in the stack: 0x");
	end_with(&call_nothing, 0, "Status:   0x9, ", "  call 65535, which is unknown\n");
	no_reader();
	background();
	heap_addresses();
	own_addresses();
	other_addresses();
	window_addresses();
	process = make(NULL); /* no crash */
	CHECK(flexio_process_call(process, &give_up, NULL, (uint64_t)0x40) ==
	      FLEXIO_STATUS_FATAL_ERR);
	CHECK(flexio_crash_data(process, NULL) == FLEXIO_STATUS_FAILED);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
