// SPDX-License-Identifier: MIT
/*
 * What device code said is in the file when the program exits, destroyed its streams or not; a file
 * that takes nothing holds neither calls nor the end of a stream up, nor does one whose reader is gone end the
 * program; and a forked child may end what it has of its parent, while device code of the parent runs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

extern struct flexio_app *words;
extern flexio_func_t start, last_words, forever, flood, trace, to_all;

enum { ROUNDS = 10, LINES = 6000, UNLOCKS = 16, LIMIT = 100 };

static char *const formats[] = { "trace %lu\n", NULL };

static struct ibv_context *ctx;
static struct flexio_process *process;

static struct flexio_msg_stream *begin(FILE *out, flexio_msg_dev_sync_mode mode)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096,
					  .sync_mode = mode,
					  .level = FLEXIO_MSG_DEV_INFO,
					  .stream_name = "words",
					  .tracer_mode = FLEXIO_TRACER_TRANSPORT_QP,
					  .tracer_msg_formats = formats };
	struct flexio_msg_stream *stream;

	ctx = open_device();
	OK(flexio_process_create(ctx, words, NULL, &process));
	OK(flexio_msg_stream_create(process, &attr, out, NULL, &stream));
	return stream;
}

static struct flexio_event_handler *run(flexio_func_t *func, uint64_t arg)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = func, .arg = arg };
	struct flexio_event_handler *handler;

	OK(flexio_event_handler_create(process, &attr, &handler));
	OK(flexio_event_handler_run(handler, arg));
	/* The handler may crash before the call has returned. */
	flexio_process_call(process, start, NULL, flexio_event_handler_get_activation_id(handler));
	return handler;
}

/* In a process of its own, with a file for its streams; the text of the file. */
static char *apart(void (*function)(FILE *out), int expected)
{
	FILE *file = tmpfile();
	pid_t pid = fork();
	size_t len;
	char *text;
	int status;

	CHECK(file && pid >= 0);
	if (!pid) {
		alarm(LIMIT); /* instead of a hang */
		function(file);
		exit(expected);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected);
	fseek(file, 0, SEEK_END);
	len = (size_t)ftell(file);
	text = calloc(1, len + 1);
	rewind(file);
	CHECK(text && fread(text, 1, len, file) == len);
	fclose(file);
	return text;
}

static unsigned int count(const char *text, const char *word)
{
	unsigned int n = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		n++;
	return n;
}

/* ---- exit ---- */

/* The program exits when it sees that its handler crashed. */
static void crash(FILE *out)
{
	struct pollfd error = { .events = POLLIN };

	begin(out, FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	run(last_words, 0);
	error.fd = flexio_err_handler_fd(process);
	CHECK(poll(&error, 1, -1) == 1);
}

static void few_traces(FILE *out)
{
	struct flexio_msg_stream *stream = begin(out, FLEXIO_MSG_DEV_SYNC_MODE_TRACER);

	OK(flexio_process_call(process, trace, NULL, (uint64_t)flexio_msg_stream_get_id(stream),
			       (uint64_t)3));
}

static void batch(FILE *out)
{
	begin(out, FLEXIO_MSG_DEV_SYNC_MODE_BATCH);
	OK(flexio_process_call(process, flood, NULL, (uint64_t)3));
}

/* Against the manual, but no reason to crash: nothing is written to a file that is closed. */
static void closed_file(FILE *out)
{
	few_traces(out);
	fclose(out);
}

static void exits(void)
{
	char *text;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		text = apart(crash, 0);
		if (count(text, "word ") != 9 || count(text, "the end") != 1)
			fprintf(stderr, "round %u: %s\n", i, text);
		CHECK(count(text, "word ") == 9 && count(text, "the end") == 1);
		free(text);
	}
	text = apart(few_traces, 1);
	CHECK(!strcmp(text, "trace 0\ntrace 1\ntrace 2\n"));
	free(text);
	text = apart(batch, 0);
	CHECK(count(text, "line ") == 3);
	free(text);
	free(apart(closed_file, 0));
}

/* ---- a pipe ---- */

static void unread(flexio_msg_dev_sync_mode mode)
{
	struct flexio_msg_stream *stream;
	int fds[2];
	FILE *out;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "300", 1);
	CHECK(!pipe(fds));
	out = fdopen(fds[1], "w");
	CHECK(out);
	stream = begin(out, mode);
	for (int i = 0; i < 3; i++)
		flexio_process_call(process, flood, NULL, (uint64_t)LINES);
	if (mode == FLEXIO_MSG_DEV_SYNC_MODE_TRACER)
		for (int i = 0; i < 2000; i++)
			OK(flexio_process_call(process, trace, NULL,
					       (uint64_t)flexio_msg_stream_get_id(stream),
					       (uint64_t)16));
	CHECK(flexio_err_status_get(process) == 0);
	OK(flexio_msg_stream_destroy(stream));
	CHECK(!fclose(out));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
}

static void unread_sync(FILE *out)
{
	(void)out;
	unread(FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
}

static void unread_batch(FILE *out)
{
	(void)out;
	unread(FLEXIO_MSG_DEV_SYNC_MODE_BATCH);
}

static void unread_tracer(FILE *out)
{
	(void)out;
	unread(FLEXIO_MSG_DEV_SYNC_MODE_TRACER);
}

/* A stream that nothing ends, and a pipe that nothing reads: the program exits all the same. */
static void unread_exit(FILE *out)
{
	int fds[2];

	(void)out;
	setenv("VERBATIM_RPC_TIMEOUT_MS", "300", 1);
	CHECK(!pipe(fds));
	begin(fdopen(fds[1], "w"), FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	flexio_process_call(process, flood, NULL, (uint64_t)LINES);
}

static void fill(int fd)
{
	char page[4096] = "";

	CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK));
	while (write(fd, page, sizeof(page)) > 0)
		;
	CHECK(!fcntl(fd, F_SETFL, 0));
}

/* Many streams whose files take nothing hold a call, and the exit, up for no longer than one. */
static void unread_many(FILE *out)
{
	enum { STREAMS = 200 };
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
					  .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_msg_stream *stream;
	int fds[2];
	FILE *in;

	(void)out;
	setenv("VERBATIM_RPC_TIMEOUT_MS", "2000", 1);
	CHECK(!pipe(fds));
	fill(fds[1]);
	in = fdopen(fds[1], "w");
	begin(in, FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	for (int i = 1; i < STREAMS; i++)
		OK(flexio_msg_stream_create(process, &attr, in, NULL, &stream));
	flexio_process_call(process, to_all, NULL, (uint64_t)1);
	OK(flexio_process_destroy(process));
	OK(flexio_process_create(ctx, words, NULL, &process));
	attr.sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_BATCH; /* no call waits for it */
	for (int i = 1; i < STREAMS; i++)
		OK(flexio_msg_stream_create(process, &attr, in, NULL, &stream));
	flexio_process_call(process, to_all, NULL, (uint64_t)1);
}

struct reader {
	int from;
	FILE *to;
};

static void *read_slowly(void *arg)
{
	struct reader *reader = arg;
	char text[8192];
	ssize_t n;

	while ((n = read(reader->from, text, sizeof(text))) > 0) {
		CHECK(fwrite(text, 1, (size_t)n, reader->to) == (size_t)n);
		usleep(500);
	}
	return NULL;
}

/* The reader is slower than device code: all comes, in order. */
static void slow_reader(FILE *out)
{
	struct flexio_msg_stream *stream;
	struct reader reader = { .to = out };
	pthread_t thread;
	int fds[2];
	FILE *in;

	CHECK(!pipe(fds));
	in = fdopen(fds[1], "w");
	reader.from = fds[0];
	CHECK(in && !pthread_create(&thread, NULL, read_slowly, &reader));
	stream = begin(in, FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	OK(flexio_process_call(process, flood, NULL, (uint64_t)LINES));
	OK(flexio_msg_stream_destroy(stream));
	OK(flexio_process_destroy(process));
	fclose(in);
	CHECK(!pthread_join(thread, NULL));
	CHECK(!ibv_close_device(ctx));
}

/* Whoever read is gone: that is no reason for a signal to the program, which wrote nothing. */
static void gone_reader(FILE *out)
{
	struct flexio_msg_stream *stream;
	int fds[2];

	(void)out;
	signal(SIGPIPE, SIG_DFL);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	stream = begin(fdopen(fds[1], "w"), FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	OK(flexio_process_call(process, flood, NULL, (uint64_t)1));
	close(fds[0]);
	OK(flexio_process_call(process, flood, NULL, (uint64_t)LINES));
	OK(flexio_msg_stream_flush(stream));
}

static void *flood_all(void *arg)
{
	for (int i = 0; i < 3; i++)
		flexio_process_call(arg, flood, NULL, (uint64_t)LINES);
	return NULL;
}

static atomic_bool flooded;

/* Not more than comes: on a busy machine calls may end at their time limit with little said. */
static void *read_some(void *arg)
{
	struct pollfd fd = { *(int *)arg, POLLIN, 0 };
	char page[4096];

	for (int i = 0; i < 50 && !atomic_load(&flooded); usleep(200)) {
		if (poll(&fd, 1, 10) == 1) {
			CHECK(read(fd.fd, page, sizeof(page)) > 0);
			i++;
		}
	}
	return NULL;
}

/*
 * Several streams lead to a pipe that something reads for a while: the page that one of them finds free is
 * not for another to block on.
 */
static void unread_shared(FILE *out)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
					  .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_process *processes[4];
	pthread_t thread[4], reader;
	int fds[2];

	(void)out;
	setenv("VERBATIM_RPC_TIMEOUT_MS", "300", 1);
	CHECK(!pipe(fds));
	CHECK(!pthread_create(&reader, NULL, read_some, &fds[0]));
	ctx = open_device();
	for (int i = 0; i < 4; i++) {
		struct flexio_msg_stream *stream;

		OK(flexio_process_create(ctx, words, NULL, &processes[i]));
		OK(flexio_msg_stream_create(processes[i], &attr, fdopen(dup(fds[1]), "w"), NULL,
					    &stream));
	}
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&thread[i], NULL, flood_all, processes[i]));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(thread[i], NULL));
	atomic_store(&flooded, true);
	CHECK(!pthread_join(reader, NULL));
	for (int i = 0; i < 4; i++)
		OK(flexio_process_destroy(processes[i]));
	CHECK(!ibv_close_device(ctx));
}

static void leave(int signal)
{
	(void)signal;
	exit(7);
}

/* A handler of the program's exits, while the interrupted thread writes what device code says. */
static void exit_in_handler(FILE *out)
{
	struct flexio_msg_stream *stream = begin(out, FLEXIO_MSG_DEV_SYNC_MODE_SYNC);

	(void)stream;
	signal(SIGVTALRM, leave);
	setitimer(ITIMER_VIRTUAL, &(struct itimerval){ .it_value = { 0, 20000 } }, NULL);
	for (;;)
		flexio_process_call(process, flood, NULL, (uint64_t)LINES);
}

/*
 * The same at a chosen moment: when the thread gives its n-th lock back, and libc has taken note that it is
 * nobody's, but not given it back yet.
 */
static atomic_int unlocks_left = -1;

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*_Atomic libc)(pthread_mutex_t * mutex);

	if (!libc)
		libc = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	if (gettid() == getpid() && atomic_load(&unlocks_left) > 0 &&
	    atomic_fetch_sub(&unlocks_left, 1) == 1) {
		mutex->__data.__owner = 0;
		raise(SIGVTALRM);
	}
	return libc(mutex);
}

static int exit_at;

static void exit_at_unlock(FILE *out)
{
	begin(out, FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	signal(SIGVTALRM, leave);
	atomic_store(&unlocks_left, exit_at);
	for (;;)
		flexio_process_call(process, flood, NULL, (uint64_t)3);
}

static void pipes(void)
{
	char *text = apart(slow_reader, 0), line[64], *at = text;

	for (unsigned int i = 0; i < LINES; i++) {
		snprintf(line, sizeof(line), "/line %u of a flood that fills a pipe\n", i);
		at = strstr(at, line);
		CHECK(at);
	}
	free(text);
	free(apart(unread_sync, 0));
	free(apart(unread_batch, 0));
	free(apart(unread_tracer, 0));
	free(apart(unread_exit, 0));
	free(apart(unread_many, 0));
	free(apart(gone_reader, 0));
	free(apart(unread_shared, 0));
	for (unsigned int i = 0; i < ROUNDS; i++)
		free(apart(exit_in_handler, 7));
	for (exit_at = 1; exit_at <= UNLOCKS; exit_at++)
		free(apart(exit_at_unlock, 7));
}

/* ---- a child ---- */

static void forked(FILE *out)
{
	struct flexio_cmdq_attr attr = { .workers = 2,
					 .batch_size = 1,
					 .state = FLEXIO_CMDQ_STATE_RUNNING };
	struct flexio_msg_stream *stream = begin(out, FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	struct flexio_event_handler *handler;
	flexio_uintptr_t word, second;
	struct flexio_cmdq *cmdq;
	int status;
	pid_t pid;

	OK(flexio_buf_dev_alloc(process, 8, &word));
	OK(flexio_buf_dev_alloc(process, 8, &second));
	OK(flexio_buf_dev_memset(process, 0, 8, word));
	OK(flexio_buf_dev_memset(process, 0, 8, second));
	handler = run(forever, word);
	OK(flexio_cmdq_create(process, &attr, &cmdq));
	OK(flexio_cmdq_task_add(cmdq, forever, second));
	dev_await(process, word, 1);
	dev_await(process, second, 1);
	pid = fork();
	if (!pid) {
		alarm(LIMIT);
		OK(flexio_msg_stream_destroy(stream));
		OK(flexio_cmdq_destroy(cmdq));
		OK(flexio_event_handler_destroy(handler));
		OK(flexio_process_destroy(process));
		CHECK(flexio_process_destroy(process) != FLEXIO_STATUS_SUCCESS);
		CHECK(!ibv_close_device(ctx));
		exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	OK(flexio_process_call(process, flood, NULL, (uint64_t)1));
	OK(flexio_cmdq_destroy(cmdq));
	OK(flexio_event_handler_destroy(handler));
	OK(flexio_msg_stream_destroy(stream));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
}

int main(void)
{
	char *text;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	exits();
	pipes();
	text = apart(forked, 0);
	CHECK(count(text, "line ") == 1);
	free(text);
	return 0;
}
