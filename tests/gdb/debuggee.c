// SPDX-License-Identifier: MIT
/*
 * A FlexIO program that does what it is told on standard input, a word a line, so that a test decides when device
 * code runs. It prints its token first, and one line for each word when that is done.
 *
 *	rpc A B       call sum_of_squares
 *	thread A B    the same, in a thread of its own
 *	fire          start the event handler that spins; "stop" ends it
 *	heap A        an RPC that uses malloc
 *	task          a task of the command queue, and its end
 *	null, illegal RPCs that fault
 *	window        an RPC that reads host memory through a window
 *	crash         a fault of the host program
 *	close         close what it did not open
 *	reuse         put a file of its own in the place of all of these, and "destroy"; how many of them are damaged
 *	another       a second process, and its token
 *	fork          a child that lives on for a moment
 *	heir          a child that destroys "another", and makes a process of its own; its token. It lives as long as we
 *	destroy       destroy everything, and the process
 *	exit N        end without any of that
 */
#define _GNU_SOURCE
#include "../flexio/programs/check.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern struct flexio_app *debuggee;
extern flexio_func_t sum_of_squares, spin, stop_spinning, kick, work, store_null, illegal, look,
	on_heap;

static struct ibv_context *ctx;
static struct flexio_process *process, *second;
static struct flexio_event_handler *handler;
static struct flexio_cmdq *cmdq;
static flexio_uintptr_t turns, done;
static unsigned long long arguments[2];

static void make(void)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = spin, .name = "spinner" };
	struct flexio_cmdq_attr cmdq_attr = { .workers = 2,
					      .batch_size = 1,
					      .state = FLEXIO_CMDQ_STATE_RUNNING };
	uint64_t zero = 0;

	OK(flexio_process_create(ctx, debuggee, NULL, &process));
	OK(flexio_copy_from_host(process, &zero, sizeof(zero), &turns));
	OK(flexio_copy_from_host(process, &zero, sizeof(zero), &done));
	OK(flexio_event_handler_create(process, &attr, &handler));
	OK(flexio_event_handler_run(handler, turns));
	OK(flexio_cmdq_create(process, &cmdq_attr, &cmdq));
}

static void destroy(void)
{
	OK(flexio_cmdq_destroy(cmdq));
	OK(flexio_event_handler_destroy(handler));
	OK(flexio_buf_dev_free(process, turns));
	OK(flexio_buf_dev_free(process, done));
	OK(flexio_process_destroy(process));
}

static flexio_status call(flexio_func_t *func, uint64_t *result)
{
	return flexio_process_call(process, func, result);
}

static void *call_sum(void *arg)
{
	uint64_t result = 0;
	flexio_status status =
		flexio_process_call(process, sum_of_squares, &result, arguments[0], arguments[1]);

	printf("thread %d %llu\n", status, (unsigned long long)result);
	fflush(stdout);
	return arg;
}

static void read_window(void)
{
	static uint64_t words[2] = { 0x1122334455667788, 1 };
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, words, sizeof(words), IBV_ACCESS_LOCAL_WRITE);
	struct flexio_window *window;
	uint64_t result = 0;

	OK(flexio_window_create(process, pd, &window));
	OK(flexio_process_call(process, look, &result, (uint16_t)flexio_window_get_id(window),
			       mr->lkey, (uint64_t)words));
	printf("window %llx\n", (unsigned long long)result);
	OK(flexio_window_destroy(window));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
}

/*
 * Every descriptor that the program did not open becomes its file, which nobody else may use. Here and for "close" by
 * system calls that ThreadSanitizer does not watch: it reports what both are about, descriptors in use by other threads.
 */
static void reuse(void)
{
	int open_before[256] = { 0 }, own = memfd_create("own", 0), damaged = 0;

	CHECK(own >= 0 && own < 256 && write(own, "content", 7) == 7 && !lseek(own, 0, SEEK_SET));
	for (int fd = 3; fd < 256; fd++) {
		open_before[fd] = fd != own && fcntl(fd, F_GETFD) >= 0;
		if (open_before[fd])
			CHECK(syscall(SYS_dup3, own, fd, 0) == fd);
	}
	destroy();
	for (int fd = 3; fd < 256; fd++)
		damaged += open_before[fd] && fcntl(fd, F_GETFD) < 0;
	damaged += lseek(own, 0, SEEK_CUR) != 0;
	damaged += lseek(own, 0, SEEK_END) != 7;
	printf("reused %d\n", damaged);
}

static void inherit(void)
{
	pid_t parent = getpid();

	if (fork())
		return;
	OK(flexio_process_destroy(second));
	ctx = open_device();
	OK(flexio_process_create(ctx, debuggee, NULL, &second));
	printf("token 0x%016llx\n", (unsigned long long)flexio_process_udbg_token_get(second));
	fflush(stdout);
	while (getppid() == parent)
		poll(NULL, 0, 10);
	_exit(0);
}

static void run(const char *word)
{
	uint64_t result = 0;
	flexio_status status;
	pthread_t thread;

	if (!strcmp(word, "rpc")) {
		status = flexio_process_call(process, sum_of_squares, &result, arguments[0],
					     arguments[1]);
		printf("rpc %d %llu\n", status, (unsigned long long)result);
	} else if (!strcmp(word, "heap")) {
		status = flexio_process_call(process, on_heap, &result, arguments[0]);
		printf("heap %d %llu\n", status, (unsigned long long)result);
	} else if (!strcmp(word, "thread")) {
		CHECK(!pthread_create(&thread, NULL, call_sum, NULL) && !pthread_detach(thread));
		return;
	} else if (!strcmp(word, "fire")) {
		OK(flexio_process_call(process, kick, &result,
				       flexio_event_handler_get_activation_id(handler)));
		dev_await(process, turns, 1);
		printf("fired\n");
	} else if (!strcmp(word, "stop")) {
		OK(call(stop_spinning, &result));
		dev_await(process, turns, UINT64_MAX);
		printf("stopped\n");
	} else if (!strcmp(word, "task")) {
		OK(flexio_cmdq_task_add(cmdq, work, done));
		dev_await(process, done, 144);
		printf("task\n");
	} else if (!strcmp(word, "null") || !strcmp(word, "illegal")) {
		status = strcmp(word, "null")
				 ? call(illegal, &result)
				 : flexio_process_call(process, store_null, &result, (uint64_t)7);
		printf("%s %d\n", word, status);
	} else if (!strcmp(word, "window")) {
		read_window();
	} else if (!strcmp(word, "fork")) {
		pid_t child = fork();

		if (!child) {
			poll(NULL, 0, 300);
			_exit(0);
		}
		printf("forked %d\n", child);
	} else if (!strcmp(word, "heir")) {
		inherit();
	} else if (!strcmp(word, "another")) {
		OK(flexio_process_create(ctx, debuggee, NULL, &second));
		printf("token 0x%016llx\n",
		       (unsigned long long)flexio_process_udbg_token_get(second));
	} else if (!strcmp(word, "close")) {
		CHECK(!close_range(3, 255, 0));
		printf("closed\n");
	} else if (!strcmp(word, "reuse")) {
		reuse();
	} else if (!strcmp(word, "crash")) {
		*(volatile int *)64 = 1; /* line: crash */
	} else if (!strcmp(word, "destroy")) {
		destroy();
		printf("destroyed\n");
	} else if (!strcmp(word, "exit")) {
		exit((int)arguments[0]);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	bool quiet = argc == 2 && !strcmp(argv[1], "quiet"); /* it does not think of debuggers */
	char line[128], word[32];

	ctx = open_device();
	make();
	if (argc > 1 && !quiet) { /* what to do, without anybody to ask */
		arguments[0] = 3;
		arguments[1] = 4;
		for (int i = 1; i < argc; i++)
			run(argv[i]);
		return 0;
	}
	printf("token 0x%016llx\n",
	       quiet ? 0 : (unsigned long long)flexio_process_udbg_token_get(process));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		arguments[0] = arguments[1] = 0;
		if (sscanf(line, "%31s %llu %llu", word, &arguments[0], &arguments[1]) >= 1)
			run(word);
	}
	return 0;
}
