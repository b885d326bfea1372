// SPDX-License-Identifier: MIT
/*
 * Traces: numbers and arguments from device code become text of the host's formats, in order, over
 * both transports; what nobody reads in time is lost, and counted.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "check.h"

extern struct flexio_app *trace;
extern flexio_func_t all_kinds, count, flush, notify, levels, tell, count_and_flush;

static char *const formats[] = {
	"none\n",
	"one %d%%\n",
	"two %hhd %u\n",
	"three %lx %#x %X\n",
	"four %c%c %5d|%-5d|\n",
	"five %lu %lu %lu %lu %p\n",
	"six %d %d %d %d %d %ld\n",
	"n %lu of %lu\n",
	NULL,
};

static struct ibv_context *ctx;
static struct flexio_process *process;
static char *text;
static size_t text_len;
static FILE *file;

static struct flexio_msg_stream *open_stream(enum flexio_tracer_transport transport, size_t size)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = size,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_TRACER,
					  .level = FLEXIO_MSG_DEV_INFO,
					  .stream_name = "traces",
					  .tracer_mode = transport,
					  .tracer_msg_formats = formats };
	struct flexio_msg_stream *stream = NULL;

	file = open_memstream(&text, &text_len);
	CHECK(file);
	OK(flexio_msg_stream_create(process, &attr, file, NULL, &stream));
	return stream;
}

static void close_stream(struct flexio_msg_stream *stream)
{
	OK(flexio_msg_stream_destroy(stream));
	fclose(file);
}

static uint64_t call(flexio_func_t *func, struct flexio_msg_stream *stream, uint64_t a, uint64_t b)
{
	uint64_t result = 0;

	OK(flexio_process_call(process, func, &result, (uint64_t)flexio_msg_stream_get_id(stream),
			       a, b));
	return result;
}

/* Every number of arguments, every kind of conversion; a flush of the host brings what is stored. */
static void kinds(enum flexio_tracer_transport transport)
{
	struct flexio_msg_stream *stream = open_stream(transport, 2048);

	call(all_kinds, stream, 0, 0);
	OK(flexio_msg_stream_flush(stream));
	CHECK(!strcmp(text, "none\n"
			    "one -1%\n"
			    "two -2 4294967295\n"
			    "three 123456789abcdef 0x89abcdef DEAD\n"
			    "four ok    42|42   |\n"
			    "five 1 2 3 4 0x5000\n"
			    "six 1 2 3 4 5 -6\n"
			    "trace with format 99 of 8\n"));
	/* The same messages do not come again, whoever hands the buffer over. */
	call(flush, stream, 0, 0);
	call(notify, stream, 3, 0);
	close_stream(stream);
	CHECK(strlen(text) &&
	      strstr(text, "format 99") + strlen("format 99 of 8\n") == text + strlen(text));
	free(text);
}

/* Numbers from `from` on, without a gap; returns how many. */
static unsigned long expect_run(const char *at, unsigned long from, unsigned long of)
{
	unsigned long n, all, seen = 0;
	int len;

	while (*at) {
		CHECK(sscanf(at, "n %lu of %lu\n%n", &n, &all, &len) == 2);
		CHECK(n == from + seen && all == of);
		at += len;
		seen++;
	}
	return seen;
}

/* More than the buffers hold, slowly enough: nothing is lost. */
static void in_order(enum flexio_tracer_transport transport)
{
	struct flexio_msg_stream *stream = open_stream(transport, 65536);

	for (unsigned int i = 0; i < 40; i++) {
		call(count, stream, i * 100, 100);
		OK(flexio_msg_stream_flush(stream));
	}
	close_stream(stream);
	/* 100 at a time: each call's numbers go on where those of the last ended */
	CHECK(expect_run(text, 0, 100) == 4000);
	free(text);
}

/* Far more than the buffers hold in one call: the last ones are there, the others are counted. */
static void overrun(void)
{
	struct flexio_msg_stream *stream = open_stream(FLEXIO_TRACER_TRANSPORT_QP, 2048);
	unsigned long n, seen = 0, lost = 0, some;
	int saved = dup(STDERR_FILENO);
	FILE *log = tmpfile();
	enum flexio_log_lvl level;
	char line[1024];

	CHECK(log && saved >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
	level = flexio_log_lvl_set(FLEXIO_LOG_LVL_WARN);
	call(count, stream, 0, 20000);
	close_stream(stream);
	flexio_log_lvl_set(level);
	dup2(saved, STDERR_FILENO);
	close(saved);
	CHECK(sscanf(strrchr(text, 'n'), "n %lu of", &n) == 1);
	CHECK(n == 19999);
	for (const char *at = text; *at; at++)
		seen += *at == '\n';
	free(text);
	rewind(log);
	while (fgets(line, sizeof(line), log)) {
		const char *words = strstr(line, " traces: ");

		if (words && sscanf(words, " traces: %lu messages were lost", &some) == 1)
			lost += some;
	}
	fclose(log);
	CHECK(lost && seen + lost == 20000);
}

struct caller {
	struct flexio_msg_stream *stream;
	uint64_t from;
};

static void *caller_main(void *arg)
{
	struct caller *c = arg;

	for (unsigned int i = 0; i < 20; i++)
		call(count, c->stream, c->from + i * 50, 50);
	return NULL;
}

/* Four device threads at a time: every message is whole, and once in the text. */
static void threads(enum flexio_tracer_transport transport)
{
	enum { CALLERS = 4, EACH = 1000 };
	struct flexio_msg_stream *stream = open_stream(transport, 1 << 20);
	static unsigned char seen[CALLERS * EACH];
	struct caller callers[CALLERS];
	pthread_t ids[CALLERS];
	unsigned long n, of;
	int len;

	memset(seen, 0, sizeof(seen));
	for (int i = 0; i < CALLERS; i++) {
		callers[i] = (struct caller){ stream, (uint64_t)i * EACH };
		CHECK(!pthread_create(&ids[i], NULL, caller_main, &callers[i]));
	}
	for (int i = 0; i < CALLERS; i++)
		pthread_join(ids[i], NULL);
	close_stream(stream);
	for (const char *at = text; *at; at += len) {
		CHECK(sscanf(at, "n %lu of %lu\n%n", &n, &of, &len) == 2);
		CHECK(n < CALLERS * EACH && of == 50 && !seen[n]);
		seen[n] = 1;
	}
	for (int i = 0; i < CALLERS * EACH; i++)
		CHECK(seen[i]);
	free(text);
}

/* A number that is too large brings what is there, and what comes later comes. */
static void told_too_many(enum flexio_tracer_transport transport)
{
	struct flexio_msg_stream *stream = open_stream(transport, 2048);

	call(count, stream, 0, 3);
	call(tell, stream, 6, 0);
	call(count, stream, 3, 3);
	OK(flexio_msg_stream_flush(stream));
	CHECK(!strcmp(text, "n 0 of 3\nn 1 of 3\nn 2 of 3\nn 3 of 3\nn 4 of 3\nn 5 of 3\n"));
	close_stream(stream);
	free(text);
}

static atomic_bool enough;

/* Calls are short: a busy machine must not bring them to their time limit. */
static void *trace_main(void *arg)
{
	flexio_status *status = arg;
	uint64_t result;

	do
		*status = flexio_process_call(process, count_and_flush, &result, (uint64_t)1,
					      (uint64_t)0, (uint64_t)1000);
	while (*status == FLEXIO_STATUS_SUCCESS && !atomic_load(&enough));
	return NULL;
}

/* Streams of one number, and of all sizes, come and go under threads that trace. */
static void reopened(void)
{
	enum { THREADS = 3, ROUNDS = 200 };
	flexio_status status[THREADS];
	pthread_t callers[THREADS];
	struct flexio_msg_stream *stream = open_stream(FLEXIO_TRACER_TRANSPORT_QP, 2048);

	CHECK(flexio_msg_stream_get_id(stream) == 1);
	for (unsigned int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&callers[i], NULL, trace_main, &status[i]));
	for (unsigned int i = 0; i < ROUNDS; i++) {
		OK(flexio_msg_stream_flush(stream));
		close_stream(stream);
		free(text);
		stream = open_stream(i & 2 ? FLEXIO_TRACER_TRANSPORT_QP
					   : FLEXIO_TRACER_TRANSPORT_WINDOW,
				     i & 1 ? 2048 : 65536);
		usleep(i % 7 * 100);
	}
	atomic_store(&enough, true);
	for (unsigned int i = 0; i < THREADS; i++) {
		CHECK(!pthread_join(callers[i], NULL));
		OK(status[i]);
	}
	close_stream(stream);
	free(text);
	in_order(FLEXIO_TRACER_TRANSPORT_QP);
}

static void level_changes(void)
{
	struct flexio_msg_stream *stream = open_stream(FLEXIO_TRACER_TRANSPORT_QP, 2048);
	struct flexio_msg_stream *other;

	other = stream;
	call(levels, stream, 0, 0);
	OK(flexio_msg_stream_flush(stream));
	CHECK(!strcmp(text, "one 1%\none 2%\none 3%\none 4%\n"));
	if (flexio_msg_stream_get_id(other)) {
		OK(flexio_msg_stream_level_set(stream, FLEXIO_MSG_DEV_ERROR));
		call(levels, stream, 0, 0);
		OK(flexio_msg_stream_flush(stream));
		CHECK(!strcmp(text, "one 1%\none 2%\none 3%\none 4%\none 1%\none 2%\n"));
		OK(flexio_msg_stream_level_set(stream, FLEXIO_MSG_DEV_NO_PRINT));
		call(levels, stream, 0, 0);
		OK(flexio_msg_stream_flush(stream));
		CHECK(!strcmp(text, "one 1%\none 2%\none 3%\none 4%\none 1%\none 2%\n"));
	}
	close_stream(stream);
	free(text);
}

static void refusals(void)
{
	char *const bad[][2] = { { "%s\n" },
				 { "%f" },
				 { "%*d" },
				 { "%n" },
				 { "%" },
				 { "%d%d%d%d%d%d%d" },
				 { "%000000000000000000000000000000d" } };
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_TRACER,
					  .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_msg_stream *stream = NULL;

	CHECK(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream) ==
	      FLEXIO_STATUS_FAILED);
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		attr.tracer_msg_formats = bad[i];
		CHECK(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream) ==
		      FLEXIO_STATUS_FAILED);
	}
	attr.tracer_msg_formats = formats;
	attr.tracer_mode = 7;
	CHECK(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream) ==
	      FLEXIO_STATUS_FAILED);
	CHECK(!stream);
}

int main(void)
{
	struct flexio_msg_stream *dflt;
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
					  .level = FLEXIO_MSG_DEV_INFO };

	ctx = open_device();
	OK(flexio_process_create(ctx, trace, NULL, &process));
	OK(flexio_msg_stream_create(process, &attr, stderr, NULL, &dflt));
	for (int round = 0; round < 2; round++) {
		kinds(FLEXIO_TRACER_TRANSPORT_QP);
		kinds(FLEXIO_TRACER_TRANSPORT_WINDOW);
		in_order(FLEXIO_TRACER_TRANSPORT_QP);
		in_order(FLEXIO_TRACER_TRANSPORT_WINDOW);
	}
	overrun();
	threads(FLEXIO_TRACER_TRANSPORT_QP);
	threads(FLEXIO_TRACER_TRANSPORT_WINDOW);
	told_too_many(FLEXIO_TRACER_TRANSPORT_QP);
	told_too_many(FLEXIO_TRACER_TRANSPORT_WINDOW);
	reopened();
	level_changes();
	refusals();
	open_stream(FLEXIO_TRACER_TRANSPORT_WINDOW, 4096); /* goes with the process */
	OK(flexio_process_destroy(process));
	fclose(file);
	free(text);
	CHECK(!ibv_close_device(ctx));
	return 0;
}
