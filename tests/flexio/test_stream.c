// SPDX-License-Identifier: MIT
/* Message streams: modes, levels, numbers, long messages, many threads. */
#include "bed.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/device/rtos.h"

/* A file whose contents can be looked at while the stream writes to it. */
struct sink {
	FILE *file;
	char *text;
	size_t len;
};

static void sink_open(struct sink *s)
{
	*s = (struct sink){ 0 };
	s->file = open_memstream(&s->text, &s->len);
	assert_non_null(s->file);
}

static void sink_close(struct sink *s)
{
	fclose(s->file);
	free(s->text);
}

static const flexio_msg_stream_attr_t sync_attr = { .data_bsize = 4096,
						    .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
						    .level = FLEXIO_MSG_DEV_INFO,
						    .stream_name = "test" };

static struct flexio_msg_stream *create(struct flexio_process *process,
					flexio_msg_dev_sync_mode mode, struct sink *sink,
					flexio_msg_dev_level level)
{
	flexio_msg_stream_attr_t attr = sync_attr;
	struct flexio_msg_stream *stream = NULL;

	attr.sync_mode = mode;
	attr.level = level;
	sink_open(sink);
	assert_ok(flexio_msg_stream_create(process, &attr, sink->file, NULL, &stream));
	return stream;
}

static void say(struct flexio_process *process, uint64_t stream, uint64_t level, uint64_t number)
{
	bed_words(process, "say", (uint64_t[]){ stream, level, number }, 3);
}

static uint64_t my_id(struct flexio_process *process)
{
	return bed_value(process, "context", 0);
}

/* What a sink must hold: the messages of these numbers, each with its prefix. */
static void expect(const struct sink *sink, uint64_t id, uint64_t from, uint64_t to)
{
	char line[64];
	size_t at = 0;

	for (uint64_t n = from; n < to; n++) {
		int len = snprintf(line, sizeof(line), "/%3lu/message %lu\n", id, n);

		assert_true(at + (size_t)len <= sink->len);
		assert_memory_equal(sink->text + at, line, (size_t)len);
		at += (size_t)len;
	}
	assert_int_equal(sink->len, at);
}

/* In sync mode all output of a call is there when the call is back. */
static void test_sync(void **state)
{
	struct flexio_process *process = bed_process();
	pthread_t thread = 0;
	struct flexio_msg_stream *stream;
	flexio_msg_stream_attr_t attr = sync_attr;
	struct sink sink;

	sink_open(&sink);
	assert_ok(flexio_msg_stream_create(process, &attr, sink.file, &thread, &stream));
	assert_int_not_equal(thread, 0);
	assert_int_equal(pthread_kill(thread, 0), 0); /* it is there */
	assert_int_equal(pthread_cancel(thread), 0);  /* and stays */
	assert_int_equal(flexio_msg_stream_get_id(stream), 0);
	for (unsigned int i = 0; i < 50; i++) {
		say(process, 0, FLEXIO_MSG_DEV_INFO, i);
		expect(&sink, my_id(process), 0, i + 1);
	}
	/* far more than the buffer holds, in one call */
	bed_words(process, "say_many", (uint64_t[]){ 0, 4, 50, 3000 }, 4);
	expect(&sink, my_id(process), 0, 3000);
	assert_ok(flexio_msg_stream_flush(stream)); /* has nothing to do */
	assert_ok(flexio_msg_stream_destroy(stream));
	say(process, 0, FLEXIO_MSG_DEV_INFO, 1); /* nobody listens */
	expect(&sink, my_id(process), 0, 3000);
	sink_close(&sink);
	bed_process_end(process);
}

static void test_async(void **state)
{
	struct flexio_process *process = bed_process();
	struct sink sink;
	struct flexio_msg_stream *stream =
		create(process, FLEXIO_MSG_DEV_SYNC_MODE_ASYNC, &sink, FLEXIO_MSG_DEV_INFO);
	unsigned long first = 0;
	const char *rest;

	bed_words(process, "say_many", (uint64_t[]){ 0, 4, 0, 20 }, 4);
	usleep(20000);
	fflush(sink.file);
	assert_int_equal(sink.len, 0); /* only a flush writes */
	assert_ok(flexio_msg_stream_flush(stream));
	expect(&sink, my_id(process), 0, 20);
	sink.len = 0;
	rewind(sink.file);

	/* Too much: the oldest messages go, the last are there, none is cut. */
	bed_words(process, "say_many", (uint64_t[]){ 0, 4, 1000, 2000 }, 4);
	assert_ok(flexio_msg_stream_flush(stream));
	assert_int_equal(sscanf(sink.text, "/%*u/message %lu\n", &first), 1);
	assert_true(first > 1100 && first < 1999);
	rest = sink.text;
	for (unsigned long n = first, m = 0; n < 2000; n++) {
		assert_int_equal(sscanf(rest, "/%*u/message %lu\n", &m), 1);
		assert_int_equal(m, n);
		rest = strchr(rest, '\n') + 1;
	}
	assert_int_equal(rest - sink.text, sink.len);
	/* what nobody flushed comes out at the end */
	sink.len = 0;
	rewind(sink.file);
	bed_words(process, "say_many", (uint64_t[]){ 0, 4, 7, 9 }, 4);
	assert_ok(flexio_msg_stream_destroy(stream));
	assert_non_null(strstr(sink.text, "message 8\n"));
	sink_close(&sink);
	bed_process_end(process);
}

static void test_batch(void **state)
{
	struct flexio_process *process = bed_process();
	struct sink sink;
	struct flexio_msg_stream *stream =
		create(process, FLEXIO_MSG_DEV_SYNC_MODE_BATCH, &sink, FLEXIO_MSG_DEV_INFO);

	bed_words(process, "say_many", (uint64_t[]){ 0, 4, 0, 2000 }, 4); /* nothing is lost */
	assert_ok(flexio_msg_stream_flush(stream));
	expect(&sink, my_id(process), 0, 2000);
	say(process, 0, 4, 2000); /* comes by itself */
	for (unsigned int i = 0; i < 5000; i++) {
		usleep(1000);
		assert_ok(flexio_msg_stream_flush(stream));
		if (strstr(sink.text, "message 2000\n"))
			break;
	}
	expect(&sink, my_id(process), 0, 2001);
	assert_ok(flexio_msg_stream_destroy(stream));
	sink_close(&sink);
	bed_process_end(process);
}

/* Without any flush. */
static void test_batch_by_itself(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_msg_stream_attr_t attr = sync_attr;
	struct flexio_msg_stream *stream;
	char buf[64];
	int fds[2];
	FILE *out;

	assert_int_equal(pipe(fds), 0);
	out = fdopen(fds[1], "w");
	attr.sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_BATCH;
	assert_ok(flexio_msg_stream_create(process, &attr, out, NULL, &stream));
	say(process, 0, 4, 5);
	assert_true(read(fds[0], buf, sizeof(buf)) > 5); /* comes, or the test hangs */
	assert_non_null(memmem(buf, sizeof(buf), "message 5\n", 10));
	bed_process_end(process); /* the stream goes with it */
	assert_failed(flexio_msg_stream_destroy(stream));
	fclose(out);
	close(fds[0]);
}

static void test_levels(void **state)
{
	struct flexio_process *process = bed_process();
	struct sink sinks[2];
	struct flexio_msg_stream *first = create(process, 0, &sinks[0], FLEXIO_MSG_DEV_INFO);
	struct flexio_msg_stream *stream = create(process, 0, &sinks[1], FLEXIO_MSG_DEV_WARN);
	char want[64];

	assert_int_equal(flexio_msg_stream_get_id(stream), 1);
	assert_int_equal(bed_value(process, "level_of", 0), FLEXIO_MSG_DEV_INFO);
	assert_int_equal(bed_value(process, "level_of", 1), FLEXIO_MSG_DEV_WARN);
	assert_int_equal(bed_value(process, "level_of", 2), 0);
	assert_int_equal(bed_value(process, "level_of", 255), FLEXIO_MSG_DEV_INFO);
	for (uint64_t level = 0; level <= 6; level++) {
		say(process, 1, level, level);
		assert_int_equal(sinks[1].len, level < 1 ? 0 : level > 3 ? 3 * 15 : level * 15);
	}
	assert_ok(flexio_msg_stream_level_set(stream, FLEXIO_MSG_DEV_NO_PRINT));
	assert_int_equal(bed_value(process, "level_of", 1), 0);
	say(process, 1, FLEXIO_MSG_DEV_ALWAYS_PRINT, 1);
	assert_int_equal(sinks[1].len, 3 * 15);
	assert_ok(flexio_msg_stream_level_set(stream, FLEXIO_MSG_DEV_DEBUG));
	say(process, 1, FLEXIO_MSG_DEV_DEBUG, 9);
	snprintf(want, sizeof(want), "/%3lu/message 9\n", my_id(process));
	assert_string_equal(sinks[1].text + 3 * 15, want);
	assert_failed(flexio_msg_stream_level_set(stream, FLEXIO_MSG_DEV_ALWAYS_PRINT));
	assert_failed(flexio_msg_stream_level_set(stream, FLEXIO_MSG_DEV_DEBUG + 1));
	assert_failed(
		flexio_msg_stream_level_set(first, FLEXIO_MSG_DEV_DEBUG)); /* the default one */
	assert_failed(flexio_msg_stream_level_set(NULL, FLEXIO_MSG_DEV_DEBUG));
	bed_process_end(process);
	sink_close(&sinks[0]);
	sink_close(&sinks[1]);
}

static void test_broadcast_and_numbers(void **state)
{
	struct flexio_process *process = bed_process();
	static struct sink sinks[FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT + 1];
	static struct flexio_msg_stream *streams[FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT];
	flexio_msg_stream_attr_t attr = sync_attr;
	struct flexio_msg_stream *more = (void *)16;
	uint64_t id = my_id(process);

	for (int i = 0; i < FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT; i++) {
		streams[i] = create(process, i % 2 ? FLEXIO_MSG_DEV_SYNC_MODE_ASYNC : 0, &sinks[i],
				    FLEXIO_MSG_DEV_INFO);
		assert_int_equal(flexio_msg_stream_get_id(streams[i]), i);
	}
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &more));
	assert_ptr_equal(more, (void *)16);
	say(process, FLEXIO_MSG_DEV_BROADCAST_STREAM, FLEXIO_MSG_DEV_INFO, 0);
	for (int i = 0; i < FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT; i++) {
		assert_ok(flexio_msg_stream_flush(streams[i]));
		expect(&sinks[i], id, 0, 1);
	}
	/* A number is used again; 0 is the default stream whoever has it. */
	assert_ok(flexio_msg_stream_destroy(streams[7]));
	assert_failed(flexio_msg_stream_destroy(streams[7]));
	assert_failed(flexio_msg_stream_flush(streams[7]));
	assert_int_equal(flexio_msg_stream_get_id(streams[7]), -1);
	assert_int_equal(flexio_msg_stream_get_id(NULL), -1);
	assert_failed(flexio_log_dev_init(process, &attr, stdout, NULL)); /* there is a default */
	sink_close(&sinks[7]);
	streams[7] = create(process, 0, &sinks[7], FLEXIO_MSG_DEV_INFO);
	assert_int_equal(flexio_msg_stream_get_id(streams[7]), 7);
	bed_process_end(process);
	for (int i = 0; i < FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT; i++)
		sink_close(&sinks[i]);
}

static void test_refusals(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_msg_stream *stream = (void *)16;
	flexio_msg_stream_attr_t attr = sync_attr;
	static const size_t sizes[] = { 0, 1, 1024, 2047, 2049, 3000, (1UL << 40) + 1, 1UL << 40 };
	char name[FLEXIO_MAX_NAME_LEN + 2];

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		attr.data_bsize = sizes[i];
		assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream));
	}
	attr = sync_attr;
	attr.level = FLEXIO_MSG_DEV_ALWAYS_PRINT;
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream));
	attr.level = 6;
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream));
	attr = sync_attr;
	attr.sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_TRACER;
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream));
	attr.sync_mode = (flexio_msg_dev_sync_mode)4;
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream));
	attr = sync_attr;
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	attr.stream_name = name;
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream));
	attr = sync_attr;
	attr.mgmt_affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 100000 };
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream));
	attr = sync_attr;
	assert_failed(flexio_msg_stream_create(NULL, &attr, stdout, NULL, &stream));
	assert_failed(flexio_msg_stream_create(process, NULL, stdout, NULL, &stream));
	assert_failed(flexio_msg_stream_create(process, &attr, NULL, NULL, &stream));
	assert_failed(flexio_msg_stream_create(process, &attr, stdout, NULL, NULL));
	assert_failed(flexio_msg_stream_destroy(NULL));
	assert_failed(flexio_msg_stream_flush(NULL));
	assert_failed(flexio_log_dev_flush(process));
	assert_failed(flexio_log_dev_destroy(process));
	assert_failed(flexio_log_dev_init(NULL, &attr, stdout, NULL));
	assert_ptr_equal(stream, (void *)16);
	bed_process_end(process);
}

/* The older names; no level means that of flexio_dev_print(). */
static void test_log_dev(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_log_dev_attr attr = { .data_bsize = 2048,
					    .sync_mode = FLEXIO_LOG_DEV_SYNC_MODE_ASYNC };
	pthread_t thread = 0;
	struct sink sink;

	sink_open(&sink);
	assert_ok(flexio_log_dev_init(process, &attr, sink.file, &thread));
	assert_failed(flexio_log_dev_init(process, &attr, sink.file, &thread));
	say(process, 0, FLEXIO_MSG_DEV_INFO, 0);
	say(process, 0, FLEXIO_MSG_DEV_DEBUG, 5);
	assert_ok(flexio_log_dev_flush(process));
	expect(&sink, my_id(process), 0, 1);
	assert_ok(flexio_log_dev_destroy(process));
	assert_failed(flexio_log_dev_destroy(process));
	assert_ok(flexio_log_dev_init(process, &attr, sink.file, NULL));
	sink_close(&sink);
	sink_open(&sink);
	assert_ok(flexio_log_dev_destroy(process));
	sink_close(&sink);
	bed_process_end(process);
}

/* Without a destroy: the default stream of flexio_log_dev_init() goes with the process, and nothing of it is lost. */
static void test_log_dev_ends_with_process(void **state)
{
	static const flexio_msg_dev_sync_mode modes[] = { FLEXIO_LOG_DEV_SYNC_MODE_SYNC,
							  FLEXIO_LOG_DEV_SYNC_MODE_ASYNC,
							  FLEXIO_LOG_DEV_SYNC_MODE_BATCH };

	for (unsigned int i = 0; i < 3; i++) {
		struct flexio_process *process = bed_process();
		struct flexio_log_dev_attr attr = { .data_bsize = 2048, .sync_mode = modes[i] };
		struct sink sink;
		uint64_t id;

		sink_open(&sink);
		assert_ok(flexio_log_dev_init(process, &attr, sink.file, NULL));
		say(process, 0, FLEXIO_MSG_DEV_INFO, 0);
		if (modes[i] == FLEXIO_LOG_DEV_SYNC_MODE_SYNC) {
			size_t len = sink.len;

			assert_true(len);
			assert_ok(flexio_log_dev_flush(process)); /* has nothing to do */
			assert_int_equal(sink.len, len);
		}
		say(process, 0, FLEXIO_MSG_DEV_INFO, 1);
		id = my_id(process);
		bed_process_end(process);
		expect(&sink, id, 0, 2);
		sink_close(&sink);
	}
}

/* The level that the default stream was made with is the one it keeps; none means INFO. */
static void test_default_level(void **state)
{
	static const flexio_msg_dev_level levels[] = { FLEXIO_MSG_DEV_NO_PRINT,
						       FLEXIO_MSG_DEV_ERROR, FLEXIO_MSG_DEV_WARN,
						       FLEXIO_MSG_DEV_INFO, FLEXIO_MSG_DEV_DEBUG };

	for (unsigned int i = 0; i < 5; i++) {
		struct flexio_process *process = bed_process();
		struct sink sink, other;
		struct flexio_msg_stream *first = create(process, 0, &sink, levels[i]);
		struct flexio_msg_stream *second =
			create(process, 0, &other, FLEXIO_MSG_DEV_NO_PRINT);

		assert_int_equal(bed_value(process, "level_of", 0),
				 levels[i] ? levels[i] : FLEXIO_MSG_DEV_INFO);
		assert_int_equal(bed_value(process, "level_of", 1), FLEXIO_MSG_DEV_NO_PRINT);
		for (flexio_msg_dev_level to = 0; to <= FLEXIO_MSG_DEV_DEBUG; to++)
			assert_failed(flexio_msg_stream_level_set(first, to));
		assert_int_equal(bed_value(process, "level_of", 0),
				 levels[i] ? levels[i] : FLEXIO_MSG_DEV_INFO);
		for (unsigned int j = 0; j < 5; j++) {
			assert_ok(flexio_msg_stream_level_set(second, levels[j]));
			assert_int_equal(bed_value(process, "level_of", 1), levels[j]);
		}
		bed_process_end(process);
		sink_close(&sink);
		sink_close(&other);
	}
}

/* The next line of a sink: its thread and its number. */
static const char *next_line(const char *text, uint64_t *id, uint64_t *number)
{
	int len = 0;

	assert_int_equal(sscanf(text, "/%lu/message %lu%n", id, number, &len), 2);
	assert_int_equal(text[len], '\n');
	return text + len + 1;
}

struct changer {
	struct flexio_msg_stream *stream;
	_Atomic bool stop;
};

static void *change_levels(void *arg)
{
	struct changer *c = arg;

	while (!c->stop) {
		assert_ok(flexio_msg_stream_level_set(c->stream, FLEXIO_MSG_DEV_NO_PRINT));
		assert_ok(flexio_msg_stream_level_set(c->stream, FLEXIO_MSG_DEV_DEBUG));
	}
	return NULL;
}

/* A level that changes while messages are sent: some are missing, none is cut or comes twice. */
static void test_level_while_sending(void **state)
{
	struct flexio_process *process = bed_process();
	struct sink sinks[2];
	struct flexio_msg_stream *first = create(process, 0, &sinks[0], FLEXIO_MSG_DEV_INFO);
	struct changer c = { .stream = create(process, 0, &sinks[1], FLEXIO_MSG_DEV_INFO) };
	uint64_t id, number, before = 0;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, change_levels, &c), 0);
	bed_words(process, "say_many", (uint64_t[]){ 1, FLEXIO_MSG_DEV_INFO, 1, 5001 }, 4);
	c.stop = true;
	pthread_join(thread, NULL);
	/* Set once more and left alone it counts. */
	assert_ok(flexio_msg_stream_level_set(c.stream, FLEXIO_MSG_DEV_INFO));
	say(process, 1, FLEXIO_MSG_DEV_INFO, 5001);
	for (const char *p = sinks[1].text; *p; before = number) {
		p = next_line(p, &id, &number);
		assert_true(number > before && number <= 5001);
		assert_int_equal(id, my_id(process));
	}
	assert_int_equal(before, 5001);
	assert_ok(flexio_msg_stream_destroy(c.stream));
	assert_ok(flexio_msg_stream_destroy(first));
	bed_process_end(process);
	sink_close(&sinks[0]);
	sink_close(&sinks[1]);
}

/* What one handler prints before it activates another stands before what that one prints; a later call comes last. */
static void order(flexio_msg_dev_sync_mode mode, bool broadcast)
{
	enum { LAST = 99 };
	struct flexio_process *process = bed_process();
	struct sink sink;
	struct flexio_msg_stream *stream = create(process, mode, &sink, FLEXIO_MSG_DEV_INFO);
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("relay") };
	struct flexio_event_handler *h[2];
	uint64_t target = broadcast ? FLEXIO_MSG_DEV_BROADCAST_STREAM : 0, id, number, ids[2];
	flexio_uintptr_t args[2];
	const char *p;

	for (int i = 0; i < 2; i++) {
		args[i] = bed_alloc(process, 7 * 8);
		assert_ok(flexio_event_handler_create(process, &attr, &h[i]));
	}
	for (int i = 0; i < 2; i++) {
		uint64_t words[] = { target,
				     FLEXIO_MSG_DEV_INFO,
				     0,
				     args[!i],
				     flexio_event_handler_get_activation_id(h[!i]),
				     LAST,
				     0 };

		for (unsigned int w = 0; w < 7; w++)
			bed_write(process, args[i] + 8 * w, words[w]);
		assert_ok(flexio_event_handler_run(h[i], args[i]));
	}
	assert_int_equal(
		bed_value(process, "activate", flexio_event_handler_get_activation_id(h[0])), 0);
	bed_await(process, args[LAST & 1] + 6 * 8, 1);
	say(process, target, FLEXIO_MSG_DEV_INFO, LAST + 1);
	assert_ok(flexio_msg_stream_flush(stream));
	p = sink.text;
	for (uint64_t n = 0; n <= LAST + 1; n++) {
		p = next_line(p, &id, &number);
		assert_int_equal(number, n);
		if (n < 2)
			ids[n] = id;
		else if (n <= LAST)
			assert_int_equal(id, ids[n & 1]);
	}
	assert_int_equal(*p, 0);
	assert_int_not_equal(ids[0], ids[1]);
	for (int i = 0; i < 2; i++)
		assert_ok(flexio_event_handler_destroy(h[i]));
	bed_process_end(process);
	sink_close(&sink);
}

static void test_order(void **state)
{
	for (flexio_msg_dev_sync_mode mode = 0; mode < FLEXIO_MSG_DEV_SYNC_MODE_TRACER; mode++) {
		order(mode, false);
		order(mode, true);
	}
}

/* A message longer than the buffer. */
static void test_long(void **state)
{
	struct flexio_process *process = bed_process();
	struct sink sink;
	enum { LEN = 100000 };
	flexio_uintptr_t text = bed_alloc(process, LEN);
	char prefix[16];

	create(process, 0, &sink, FLEXIO_MSG_DEV_INFO);
	assert_ok(flexio_buf_dev_memset(process, 'y', LEN, text));
	assert_int_equal(bed_words(process, "raw_call", (uint64_t[]){ 2, 0, 4, text, LEN }, 5),
			 LEN);
	assert_int_equal(sink.len, 5 + LEN);
	snprintf(prefix, sizeof(prefix), "/%3lu/y", my_id(process));
	assert_memory_equal(sink.text, prefix, 6);
	assert_int_equal(sink.text[sink.len - 1], 'y');
	/* a line that device code says is longer than any */
	bed_write(process, bed_value(process, "context", 9) + offsetof(struct vb_rtos_thread, line),
		  bed_alloc(process, 64 << 20));
	bed_write(process,
		  bed_value(process, "context", 9) + offsetof(struct vb_rtos_thread, line_len),
		  64 << 20);
	bed_value(process, "add_one", 1);
	assert_int_equal(sink.len, 5 + LEN);
	bed_process_end(process);
	sink_close(&sink);
}

struct talker {
	pthread_t thread;
	struct flexio_process *process;
	flexio_func_t *func;
	flexio_uintptr_t args;
	flexio_status status;
};

static void *talk(void *arg)
{
	struct talker *t = arg;

	t->status = flexio_process_call(t->process, t->func, NULL, t->args);
	return NULL;
}

/* Threads at the same time: lines stay whole, none is lost, each thread's in order. */
static void test_threads(void **state)
{
	struct flexio_process *process = bed_process();
	enum { THREADS = 8, LINES = 500 };
	struct talker t[THREADS];
	unsigned int next[THREADS] = { 0 }, lines = 0;
	struct sink sink;
	char *line;

	create(process, 0, &sink, FLEXIO_MSG_DEV_INFO);
	for (unsigned int i = 0; i < THREADS; i++) {
		t[i] = (struct talker){ .process = process, .func = bed_func("say_many") };
		assert_ok(flexio_copy_from_host(
			process, (uint64_t[]){ 0, 4, i * 1000, i * 1000 + LINES }, 32, &t[i].args));
		assert_int_equal(pthread_create(&t[i].thread, NULL, talk, &t[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(t[i].thread, NULL);
		assert_ok(t[i].status);
	}
	for (line = strtok(sink.text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned int id, number;

		assert_int_equal(sscanf(line, "/%u/message %u", &id, &number), 2);
		assert_int_equal(number % 1000, next[number / 1000]++);
		lines++;
	}
	assert_int_equal(lines, THREADS * LINES);
	bed_process_end(process);
	sink_close(&sink);
}

/* What a long call prints can be read while it runs. */
static void test_long_call(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8);
	struct talker t = { .process = process, .func = bed_func("say_and_wait") };
	flexio_msg_stream_attr_t attr = sync_attr;
	struct flexio_msg_stream *stream;
	char buf[64] = "";
	int fds[2];
	FILE *out;

	assert_int_equal(pipe(fds), 0);
	out = fdopen(fds[1], "w");
	assert_ok(flexio_msg_stream_create(process, &attr, out, NULL, &stream));
	assert_ok(flexio_copy_from_host(process, (uint64_t[]){ 0, 4, 12, word, 1 }, 40, &t.args));
	assert_int_equal(pthread_create(&t.thread, NULL, talk, &t), 0);
	assert_true(read(fds[0], buf, sizeof(buf) - 1) > 5);
	assert_non_null(strstr(buf, "message 12\n"));
	bed_write(process, word, 1); /* only now it may end */
	pthread_join(t.thread, NULL);
	assert_ok(t.status);
	bed_process_end(process);
	fclose(out);
	close(fds[0]);
}

/* A file that cannot be written does no harm. */
static void test_bad_file(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_msg_stream_attr_t attr = sync_attr;
	struct flexio_msg_stream *stream;
	FILE *full = fopen("/dev/full", "w");

	assert_non_null(full);
	assert_ok(flexio_msg_stream_create(process, &attr, full, NULL, &stream));
	say(process, 0, 4, 1);
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
	fclose(full);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sync),
		cmocka_unit_test(test_async),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_batch_by_itself),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_broadcast_and_numbers),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_log_dev),
		cmocka_unit_test(test_log_dev_ends_with_process),
		cmocka_unit_test(test_default_level),
		cmocka_unit_test(test_level_while_sending),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_bad_file),
		cmocka_unit_test(test_long_call),
	};

	setenv("VERBATIM_RPC_TIMEOUT_MS", "60000", 1); /* a busy machine may be slow */
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
