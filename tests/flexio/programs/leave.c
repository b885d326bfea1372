// SPDX-License-Identifier: MIT
/*
 * A program that leaves everything as it is while device code runs and prints: it exits, or its main thread ends, which ends
 * it all the same, whichever threads of the card there are, also one that debuggers can attach to; a signal ends it, too.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

extern struct flexio_app *busy;
extern flexio_func_t forever, start;

static int said[2]; /* a pipe to the one that watches */

static void say(void)
{
	CHECK(write(said[1], "e", 1) == 1);
}

static void leave_all(void)
{
	struct ibv_context *ctx = open_device();
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096, .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_msg_stream *stream;
	struct flexio_process *process;
	flexio_uintptr_t word;

	OK(flexio_process_create(ctx, busy, NULL, &process));
	OK(flexio_msg_stream_create(process, &attr, fopen("/dev/null", "w"), NULL, &stream));
	OK(flexio_buf_dev_alloc(process, 8, &word));
	for (int i = 0; i < 3; i++) {
		struct flexio_event_handler_attr eh = { .host_stub_func = forever, .arg = word };
		struct flexio_event_handler *handler;

		OK(flexio_event_handler_create(process, &eh, &handler));
		OK(flexio_event_handler_run(handler, 0));
		OK(flexio_process_call(process, start, NULL,
				       flexio_event_handler_get_activation_id(handler)));
	}
	dev_await(process, word, 1000);
}

static void *stay(void *arg)
{
	say();
	for (;;)
		pause();
	return arg;
}

enum how { EXITS, ENDS_MAIN, DEBUGGED, SIGNALLED, HOWS };

static void leave(enum how how)
{
	pthread_t thread;

	if (how == DEBUGGED)
		setenv("VERBATIM_DPA_DEBUG", "on", 1);
	leave_all();
	if (how == EXITS)
		exit(0);
	if (how == SIGNALLED)
		CHECK(!pthread_create(&thread, NULL, stay, NULL));
	else
		atexit(say);
	pthread_exit(NULL);
}

int main(void)
{
	for (int how = 0; how < HOWS; how++) {
		int status;
		pid_t pid;
		char word;

		/* A thread of ThreadSanitizer's own stays: with it no process ends with its last thread. */
		if ((how == ENDS_MAIN || how == DEBUGGED) && dlsym(RTLD_DEFAULT, "__tsan_init"))
			continue;
		CHECK(!pipe(said));
		pid = fork();
		if (!pid)
			leave(how);
		close(said[1]);
		CHECK(read(said[0], &word, 1) == (how == EXITS ? 0 : 1));
		if (how == SIGNALLED)
			CHECK(!kill(pid, SIGTERM));
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK(status == (how == SIGNALLED ? SIGTERM : 0));
		close(said[0]);
	}
	return 0;
}
