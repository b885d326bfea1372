// SPDX-License-Identifier: MIT
/* Crash data: what people read when device code went wrong, in a file and on standard error. */
#include "check.h"

extern struct flexio_app *fall;
extern flexio_func_t tumble, fall_in_background, give_up, run_over, on_error;

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
	if (have_lines())
		HAS("crash.fall.dev.c:10\n");
	else
		fprintf(stderr, "no libdw: lines are not looked at\n");
	crash_data(process, "mine", "./mine"); /* again, elsewhere */
	crash_data(process, "/tmp/crash-test", "/tmp/crash-test");
	CHECK(flexio_crash_data(process, "/nonexistent/file") == FLEXIO_STATUS_FAILED);
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

int main(void)
{
	struct flexio_process *process;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	ctx = open_device();
	calls();
	end_with(&run_over, 0, "Status:   0x20, stack overflow", "below the stack of the thread");
	end_with(&tumble, 1UL << 48 | 64, "Status:   0x8", "host address 0x40 in window 0");
	end_with(&tumble, 0, "Status:   0x8", "fixed+0x0 of the program");
	end_with(&give_up, 0x99, "Status:   0x99, flexio_dev_error()", "flexio_dev_error+0x");
	background();
	process = make(NULL); /* no crash */
	CHECK(flexio_process_call(process, &give_up, NULL, (uint64_t)0x40) ==
	      FLEXIO_STATUS_FATAL_ERR);
	CHECK(flexio_crash_data(process, NULL) == FLEXIO_STATUS_FAILED);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
