// SPDX-License-Identifier: MIT
/*
 * Owns message streams: from a device thread's ecall to a FILE of the program.
 *
 *	device threads                 stream                                   file
 *	message --put()--> ring of records, data_bsize bytes --drain()--> out.c
 *	                                      ^
 *	    sync    the stream's thread drains whenever something is there; a lent call does so
 *	            itself, after each of its slices and at its end
 *	    batch   the same, but the thread waits until the ring is half full, or BATCH_NS after
 *	            the first message
 *	    async   flush and destroy drain; a full ring drops its oldest messages
 *	    tracer  messages without text, in another ring (tracer.c), drained by the thread
 *
 * In sync and batch mode a put that finds no room drains by itself, so nothing is lost as long as
 * the file takes it. A file that takes nothing for the time of a call (rpc_timeout) is stuck: from
 * then on nothing waits for it, and messages without room are lost, until it takes something again.
 * exit() drains all but async streams. A record is a length and the line with its prefix; messages
 * longer than half a ring become several records.
 *
 * The text of a message is device memory that was mapped when the message came. It can disappear at
 * any time, with the stack of another thread, so it is copied by vb_view_read() only; a message
 * whose memory disappears half way is cut there.
 *
 * Locks: streams_lock (of the list of all streams) before drain_lock (who writes to the file) before
 * lock (the ring). Neither of the last two is held while something waits for the file, the ring's not
 * over output either. put_lock keeps the records of one message together. All but put_lock tell a thread
 * that has them already (stream_lock()): exit() in a signal handler, over a call of the same thread,
 * leaves them alone.
 */
#include "api/flexio/stream.h"
#include "api/flexio/stream_lock.h"
#include "base/fork.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "api/flexio/process.h"
#include "host/fault.h"
#include "host/thread.h"

#define DATA_MIN 2048
#define DATA_MAX (1UL << 30)
#define BATCH_NS 10000000LL
#define SLICE_NS 100000000ULL /* after so long who waits for a file looks whether it shall go on */

#define LEVEL_TEXT \
	"%u is not the level of a stream; allowed: 0 and 2 to 5 (FLEXIO_MSG_DEV_NO_PRINT, _ERROR to _DEBUG)"

struct flexio_msg_stream {
	struct flexio_process *process;
	int id;
	_Atomic unsigned int level;
	flexio_msg_dev_sync_mode mode;
	struct tracer *tracer; /* of the tracer mode, in place of the ring; NULL */
	struct vb_list node;   /* of all streams */
	char name[FLEXIO_MAX_NAME_LEN + 1];

	pthread_mutex_t put_lock;
	pthread_mutex_t lock; /* of the ring */
	pthread_cond_t filled;
	char *ring;
	size_t size;         /* power of two */
	uint64_t head, tail; /* bytes put in and taken out; free running */
	unsigned int records;
	uint64_t lost; /* messages, since the last drain */
	bool sleeping; /* the thread waits for `filled` */
	bool quit;

	pthread_mutex_t drain_lock;
	struct out out;
	unsigned int out_records; /* that are in it */
	char *scratch;            /* what is being written; of `size` bytes */
	FILE *traces;             /* tracer mode: open_memstream(), for its text */
	char *text;
	size_t text_len;
	_Atomic bool stuck;        /* the file takes nothing */
	_Atomic uint64_t close_by; /* 0: the stream is not being closed */
	uint64_t unsaid;           /* messages that were lost, and no line has said so */
	struct vb_rate lost_rate;
	pthread_t thread;
	bool has_thread;
};

/* ---- the ring, under lock ---- */

static void ring_in(struct flexio_msg_stream *s, const void *data, size_t len)
{
	size_t at = s->head & (s->size - 1);
	size_t first = len < s->size - at ? len : s->size - at;

	memcpy(s->ring + at, data, first);
	memcpy(s->ring, (const char *)data + first, len - first);
	s->head += len;
}

/* The same with device memory. -EFAULT: nothing is in the ring. */
static int ring_in_guest(struct flexio_msg_stream *s, struct vb_dpa_view text, size_t len)
{
	size_t at = s->head & (s->size - 1);
	size_t first = len < s->size - at ? len : s->size - at;
	int err = vb_view_read(text, s->ring + at, first);

	if (!err)
		err = vb_view_read(vb_view_at(text, first), s->ring, len - first);
	if (!err)
		s->head += len;
	return err;
}

static void ring_out(struct flexio_msg_stream *s, void *data, size_t len)
{
	size_t at = s->tail & (s->size - 1);
	size_t first = len < s->size - at ? len : s->size - at;

	memcpy(data, s->ring + at, first);
	memcpy((char *)data + first, s->ring, len - first);
	s->tail += len;
}

static void stream_drop_oldest(struct flexio_msg_stream *s)
{
	uint32_t len;

	ring_out(s, &len, sizeof(len));
	s->tail += len;
	s->records--;
	s->lost++;
}

static size_t ring_room(const struct flexio_msg_stream *s)
{
	return s->size - (size_t)(s->head - s->tail);
}

/* ---- out of the ring ---- */

/* Not a line for each: what may not go out now is added to the next one. Under drain_lock. */
static void say_lost(struct flexio_msg_stream *s, uint64_t lost, bool last)
{
	uint32_t held_back;

	s->unsaid += lost;
	if (!s->unsaid || (!vb_rate_allows(&s->lost_rate, &held_back) && !last))
		return;
	log_warn("stream %d %s: %llu messages were lost; data_bsize is %zu", s->id, s->name,
		 (unsigned long long)s->unsaid, s->size);
	s->unsaid = 0;
}

/* Everything that is in the ring, without the lengths, becomes what is being written. */
static bool stream_take_all(struct flexio_msg_stream *s)
{
	size_t bytes = 0;
	uint64_t lost;

	if (!stream_lock(&s->lock))
		return false;
	while (s->tail != s->head) {
		uint32_t len;

		ring_out(s, &len, sizeof(len));
		ring_out(s, s->scratch + bytes, len);
		bytes += len;
	}
	s->out_records = s->records;
	s->records = 0;
	lost = s->lost;
	s->lost = 0;
	stream_unlock(&s->lock);
	say_lost(s, lost, false);
	vb_out_fill(&s->out, s->scratch, bytes);
	return bytes;
}

/* A buffer of traces, in the same way. */
static bool take_traces(struct flexio_msg_stream *s)
{
	const struct vb_rtos_trace *traces = (const struct vb_rtos_trace *)s->scratch;
	uint64_t lost = 0;
	bool pending;
	uint32_t n = 0;

	if (!stream_lock(&s->lock))
		return false;
	pending = vb_tracer_pending(s->tracer);
	if (pending)
		n = vb_tracer_out(s->tracer, (struct vb_rtos_trace *)s->scratch, &lost);
	stream_unlock(&s->lock);
	say_lost(s, lost, false);
	if (!pending)
		return false;
	rewind(s->traces);
	for (uint32_t i = 0; i < n; i++)
		vb_tracer_print(s->tracer, &traces[i], s->traces);
	if (fflush(s->traces))
		log_err("stream %d %s: no memory for the text of traces", s->id, s->name);
	else
		vb_out_fill(&s->out, s->text, s->text_len);
	return true;
}

/* What is there goes out without waiting, under drain_lock. False: the file does not take all. */
static bool write_out(struct flexio_msg_stream *s)
{
	/* What comes meanwhile is for the next time: device code may be faster than the file. */
	unsigned int takes = s->tracer ? TRACER_BUFFERS + 1 : 1;
	int err;

	do {
		if (!vb_out_write(&s->out, &err))
			return false;
		if (err)
			log_some(FLEXIO_LOG_LVL_ERR, "stream %d %s: cannot write: %s", s->id,
				 s->name, strerror(err));
		if (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_SYNC)
			atomic_fetch_sub_explicit(&s->process->unwritten, s->out_records,
						  memory_order_release);
		s->out_records = 0;
	} while (takes-- && (s->tracer ? take_traces(s) : stream_take_all(s)));
	return true;
}

/* For how long calls, and who closes the stream, wait for a file. */
static uint64_t stream_patience(const struct flexio_msg_stream *s)
{
	return s->process->accel->timeout_ns;
}

/* The file may take something now; false: it is `until`, or the stream's last moment. */
static bool out_wait(struct flexio_msg_stream *s, uint64_t until)
{
	uint64_t close_by = atomic_load_explicit(&s->close_by, memory_order_relaxed);
	uint64_t now = vb_now_ns();

	if (close_by && close_by < until)
		until = close_by;
	if (now >= until)
		return false;
	vb_out_wait(&s->out, until - now < SLICE_NS ? until - now : SLICE_NS);
	return true;
}

/* Write out what is there, and wait until then for the file; 0: not at all. False: something is left. */
static bool drain_until(struct flexio_msg_stream *s, uint64_t until)
{
	bool done = false;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	while (stream_lock(&s->drain_lock)) {
		done = write_out(s);
		stream_unlock(&s->drain_lock);
		if (done || !until || !out_wait(s, until))
			break;
	}
	if (done && atomic_load_explicit(&s->stuck, memory_order_relaxed))
		atomic_store_explicit(&s->stuck, false, memory_order_relaxed);
	pthread_setcancelstate(cancel, NULL);
	return done;
}

/* The same, but a file that took nothing for so long is not waited for, from then on. */
static bool drain_by(struct flexio_msg_stream *s, uint64_t until)
{
	bool stuck = s->has_thread && atomic_load_explicit(&s->stuck, memory_order_relaxed);
	bool done = drain_until(s, stuck ? 0 : until);

	if (done || stuck || !stream_lock(&s->lock))
		return done;
	/* The stream's thread goes on trying. */
	atomic_store_explicit(&s->stuck, true, memory_order_relaxed);
	stream_unlock(&s->lock);
	pthread_cond_signal(&s->filled);
	log_warn("stream %d %s: its file took nothing for %llu ms; does anything read it?", s->id,
		 s->name, (unsigned long long)(stream_patience(s) / 1000000));
	return false;
}

static bool drain(struct flexio_msg_stream *s)
{
	return drain_until(s, 0) || drain_by(s, vb_now_ns() + stream_patience(s));
}

/* The program asks, or the stream ends: what was lost is said now. */
static void say_rest(struct flexio_msg_stream *s)
{
	stream_lock(&s->drain_lock);
	say_lost(s, 0, true);
	stream_unlock(&s->drain_lock);
}

static bool enough(const struct flexio_msg_stream *s)
{
	return s->mode == FLEXIO_MSG_DEV_SYNC_MODE_SYNC ? s->head != s->tail
							: s->head - s->tail >= s->size / 2;
}

/* Batch mode: wait for more, but not for long. */
static void wait_for_more(struct flexio_msg_stream *s)
{
	struct vb_time *time = vb_time_card();
	uint64_t until = vb_time_now(time) + BATCH_NS;

	while (!s->quit && !enough(s))
		if (vb_cond_wait_until(time, &s->filled, &s->lock, until))
			break;
}

static bool stream_is_empty(const struct flexio_msg_stream *s)
{
	if (atomic_load_explicit(&s->stuck, memory_order_relaxed))
		return false;
	return s->tracer ? !vb_tracer_pending(s->tracer) : s->head == s->tail;
}

/* Its process has ended, and the time for its file: what is left is for who closes it. */
static bool is_late(const struct flexio_msg_stream *s)
{
	uint64_t by = atomic_load_explicit(&s->close_by, memory_order_relaxed);

	return by && vb_now_ns() >= by;
}

static void *stream_thread(void *arg)
{
	struct flexio_msg_stream *s = arg;
	bool quit;

	prctl(PR_SET_NAME, "flexio-msg");
	/* The program has this thread's id and could cancel it. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	do {
		stream_lock(&s->lock);
		s->sleeping = true;
		while (!s->quit && stream_is_empty(s))
			vb_cond_wait_until(vb_time_card(), &s->filled, &s->lock, VB_NEVER);
		if (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_BATCH)
			wait_for_more(s);
		s->sleeping = false;
		quit = s->quit;
		stream_unlock(&s->lock);
		/* Who closes the stream writes the rest, if it can be written. */
		while (!drain_until(s, quit ? 0 : vb_now_ns() + SLICE_NS) && !quit) {
			stream_lock(&s->lock);
			while (!s->quit && is_late(s))
				vb_cond_wait_until(vb_time_card(), &s->filled, &s->lock, VB_NEVER);
			quit = s->quit;
			stream_unlock(&s->lock);
		}
	} while (!quit);
	return NULL;
}

/* ---- into the ring ---- */

/* One record. -EAGAIN: no room, and not a mode that makes some; -EFAULT: the text is gone. */
static int put_record(struct flexio_msg_stream *s, const char *prefix, size_t prefix_len,
		      struct vb_dpa_view text, size_t len, bool lent)
{
	uint32_t total = (uint32_t)(prefix_len + len);
	uint64_t start;
	int err = 0;
	bool wake;

	stream_lock(&s->lock);
	while (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_ASYNC && ring_room(s) < sizeof(total) + total)
		stream_drop_oldest(s);
	start = s->head;
	if (ring_room(s) < sizeof(total) + total) {
		err = -EAGAIN;
	} else {
		ring_in(s, &total, sizeof(total));
		ring_in(s, prefix, prefix_len);
		err = ring_in_guest(s, text, len);
	}
	if (err) {
		s->head = start;
	} else {
		s->records++;
		if (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_SYNC)
			atomic_fetch_add_explicit(&s->process->unwritten, 1, memory_order_relaxed);
	}
	/* In batch mode the first message starts the clock, the half full ring ends it. */
	wake = s->sleeping && (s->records == 1 || enough(s));
	/* Waking a thread costs more than writing; a lent thread is about to write anyway. */
	wake = wake && !(lent && s->mode == FLEXIO_MSG_DEV_SYNC_MODE_SYNC);
	stream_unlock(&s->lock);
	if (wake)
		pthread_cond_signal(&s->filled);
	return err;
}

static int put(struct flexio_msg_stream *s, const struct guest *guest, struct vb_dpa_view text,
	       size_t len)
{
	char prefix[16];
	size_t prefix_len = (size_t)snprintf(prefix, sizeof(prefix), "/%3u/", guest->thread_id);
	int err = 0;

	pthread_mutex_lock(&s->put_lock);
	while (len && !err) {
		size_t part = s->size / 2 - sizeof(prefix) - sizeof(uint32_t);

		part = len < part ? len : part;
		err = put_record(s, prefix, prefix_len, text, part, guest->lent);
		if (err == -EAGAIN) {
			drain_until(s, 0);
			err = put_record(s, prefix, prefix_len, text, part, guest->lent);
		}
		while (err == -EAGAIN && drain(s))
			err = put_record(s, prefix, prefix_len, text, part, guest->lent);
		text = vb_view_at(text, part);
		len -= part;
		prefix_len = 0;
	}
	pthread_mutex_unlock(&s->put_lock);
	if (err != -EAGAIN)
		return err;
	stream_lock(&s->lock);
	s->lost++;
	stream_unlock(&s->lock);
	return 0;
}

static bool shows(const struct flexio_msg_stream *s, uint64_t level)
{
	return s && !s->tracer && level &&
	       level <= atomic_load_explicit(&s->level, memory_order_relaxed);
}

int vb_streams_message(struct guest *guest, uint64_t stream, uint64_t level,
		       struct vb_dpa_view text, size_t len)
{
	uint64_t units = WORK_MESSAGE + (len >> WORK_BYTES_SHIFT);
	struct flexio_process *process = guest->process;
	int err = 0;

	pthread_rwlock_rdlock(&process->streams_lock);
	if (stream == FLEXIO_MSG_DEV_BROADCAST_STREAM) {
		for (unsigned int i = 0; i < MAX_STREAMS && !err; i++)
			if (shows(process->streams[i], level)) {
				err = put(process->streams[i], guest, text, len);
				if (!err && vb_call_worked(guest, units))
					err = -ETIMEDOUT;
			}
	} else if (stream < MAX_STREAMS && shows(process->streams[stream], level)) {
		err = put(process->streams[stream], guest, text, len);
		vb_call_worked(guest, units);
	}
	pthread_rwlock_unlock(&process->streams_lock);
	return err;
}

int vb_streams_traces(struct guest *guest, uint64_t stream, uint64_t count, uint64_t buffer,
		      bool full)
{
	struct flexio_process *process = guest->process;
	struct flexio_msg_stream *s;
	int err = -EINVAL;

	pthread_rwlock_rdlock(&process->streams_lock);
	s = stream < MAX_STREAMS ? process->streams[stream] : NULL;
	if (s && s->tracer) {
		stream_lock(&s->lock);
		err = vb_tracer_take(s->tracer, buffer, count, full);
		stream_unlock(&s->lock);
		pthread_cond_signal(&s->filled);
	}
	pthread_rwlock_unlock(&process->streams_lock);
	vb_call_worked(guest, WORK_MESSAGE);
	return err;
}

void vb_streams_wait_written(struct flexio_process *process)
{
	uint64_t until =
		0; /* for all of them: a call waits no longer for many files than for one */

	pthread_rwlock_rdlock(&process->streams_lock);
	for (unsigned int i = 0; i < MAX_STREAMS; i++) {
		struct flexio_msg_stream *s = process->streams[i];

		if (!s || s->mode != FLEXIO_MSG_DEV_SYNC_MODE_SYNC || drain_until(s, 0))
			continue;
		until = until ? until : vb_now_ns() + stream_patience(s);
		drain_by(s, until);
	}
	pthread_rwlock_unlock(&process->streams_lock);
}

/* ---- create, destroy ---- */

/* Tell device code what is shown, so that it need not format the rest. Under streams_lock. */
static void publish_levels(struct flexio_process *process)
{
	struct vb_dpa_view table;
	unsigned int most = 0;

	if (!process->levels_addr)
		return;
	table = vb_dpa_mem_host(process->dpa, process->levels_addr, MAX_STREAMS + 1,
				VB_DPA_READ | VB_DPA_WRITE);
	if (vb_view_is_none(table))
		return;
	for (unsigned int i = 0; i < MAX_STREAMS; i++) {
		unsigned int level = process->streams[i] && !process->streams[i]->tracer
					     ? atomic_load_explicit(&process->streams[i]->level,
								    memory_order_relaxed)
					     : 0;

		vb_view_put(table, i, 1, level);
		most = level > most ? level : most;
	}
	vb_view_put(table, MAX_STREAMS, 1, most);
}

static flexio_status stream_check_attr(struct flexio_process *process,
				       const flexio_msg_stream_attr_t *attr)
{
	struct vb_dpa_thread_attr thread = { 0 };

	if (attr->data_bsize < DATA_MIN || attr->data_bsize > DATA_MAX ||
	    attr->data_bsize & (attr->data_bsize - 1))
		return fail("data_bsize is %zu; it must be a power of two from %u to %lu",
			    attr->data_bsize, DATA_MIN, DATA_MAX);
	if ((unsigned int)attr->sync_mode > FLEXIO_MSG_DEV_SYNC_MODE_TRACER)
		return fail("%u is not a sync_mode", (unsigned int)attr->sync_mode);
	if (attr->sync_mode == FLEXIO_MSG_DEV_SYNC_MODE_TRACER &&
	    vb_tracer_check(attr) != FLEXIO_STATUS_SUCCESS)
		return failed();
	if (attr->level == FLEXIO_MSG_DEV_ALWAYS_PRINT || attr->level > FLEXIO_MSG_DEV_DEBUG)
		return fail(LEVEL_TEXT, attr->level);
	if (attr->stream_name &&
	    strnlen(attr->stream_name, FLEXIO_MAX_NAME_LEN + 1) > FLEXIO_MAX_NAME_LEN)
		return fail("stream_name has more than %d bytes", FLEXIO_MAX_NAME_LEN);
	/* The host manages streams: no thread runs for it, and no group is in use by it. */
	if (attr->mgmt_affinity.type != FLEXIO_AFFINITY_NONE) {
		if (vb_accel_affinity(process->accel, &attr->mgmt_affinity, &thread))
			return failed();
		vb_accel_affinity_end(process->accel, thread.group ? attr->mgmt_affinity.id : 0);
		free((void *)thread.group);
	}
	return FLEXIO_STATUS_SUCCESS;
}

static void stream_free(struct flexio_msg_stream *s)
{
	pthread_mutex_destroy(&s->put_lock);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->drain_lock);
	pthread_cond_destroy(&s->filled);
	if (s->traces)
		fclose(s->traces);
	free(s->text);
	free(s->ring);
	free(s->scratch);
	free(s);
}

static struct flexio_msg_stream *stream_new(struct flexio_process *process,
					    const flexio_msg_stream_attr_t *attr, FILE *out)
{
	struct flexio_msg_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->process = process;
	s->mode = attr->sync_mode;
	vb_out_init(&s->out, out);
	s->size = attr->data_bsize;
	snprintf(s->name, sizeof(s->name), "%s", attr->stream_name ? attr->stream_name : "");
	pthread_mutex_init(&s->put_lock, NULL);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->drain_lock, NULL);
	pthread_cond_init(&s->filled, NULL);
	s->ring = malloc(s->size);
	s->scratch = malloc(s->size);
	if (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_TRACER)
		s->traces = open_memstream(&s->text, &s->text_len);
	if (!s->ring || !s->scratch || (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_TRACER && !s->traces)) {
		stream_free(s);
		return NULL;
	}
	return s;
}

static int stream_start_thread(struct flexio_msg_stream *s)
{
	int err;

	if (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_ASYNC)
		return 0;
	err = vb_thread_start(&s->thread, NULL, stream_thread, s);
	s->has_thread = !err;
	return err;
}

/* Under streams_lock. */
static void set_level(struct flexio_msg_stream *s, flexio_msg_dev_level level)
{
	atomic_store_explicit(&s->level, level, memory_order_relaxed);
	if (s->tracer)
		vb_tracer_level(s->tracer, level);
	publish_levels(s->process);
}

/*
 * Give it the lowest free number; only_default: 0 or none. -EBUSY: there is none; -ENOMEM.
 */
static int stream_open(struct flexio_msg_stream *s, const flexio_msg_stream_attr_t *attr,
		       bool only_default)
{
	struct flexio_process *process = s->process;
	int id = 0, err = 0;

	pthread_rwlock_wrlock(&process->streams_lock);
	while (id < MAX_STREAMS && process->streams[id])
		id++;
	if (id == MAX_STREAMS || (only_default && id))
		err = -EBUSY;
	if (!err && attr->sync_mode == FLEXIO_MSG_DEV_SYNC_MODE_TRACER) {
		s->tracer = vb_tracer_open(process, attr, id);
		err = s->tracer ? 0 : -ENOMEM;
	}
	if (!err) {
		s->id = id;
		process->streams[id] = s;
		/* The default stream without a level shows what flexio_dev_print() prints. */
		set_level(s, id == FLEXIO_MSG_DEV_DEFAULT_STREAM_ID && !attr->level
				     ? FLEXIO_MSG_DEV_INFO
				     : attr->level);
	}
	pthread_rwlock_unlock(&process->streams_lock);
	return err;
}

static flexio_status no_stream(const struct flexio_process *process, int err, bool only_default,
			       size_t size)
{
	if (err == -ENOMEM)
		return fail("process %s: no memory for a stream with a buffer of %zu bytes",
			    process->name, size);
	return only_default ? fail("process %s has a default stream", process->name)
			    : fail("process %s has all %d streams", process->name, MAX_STREAMS);
}

/* All streams, for exit(). */
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list streams = { &streams, &streams };

static void stream_list_add(struct flexio_msg_stream *s)
{
	stream_lock(&streams_lock);
	vb_list_add_tail(&streams, &s->node);
	stream_unlock(&streams_lock);
}

static void stream_list_remove(struct flexio_msg_stream *s)
{
	stream_lock(&streams_lock);
	vb_list_del(&s->node);
	stream_unlock(&streams_lock);
}

/* In a child of fork(): the streams are the parent's. */
static void streams_forked(void)
{
	pthread_mutex_init(&streams_lock, NULL);
	vb_list_init(&streams);
}

VB_STAGE(STREAMS, .child = streams_forked);

static void stream_collect(struct flexio_msg_stream *s)
{
	if (!s->tracer || !stream_lock(&s->lock))
		return;
	vb_tracer_collect(s->tracer);
	stream_unlock(&s->lock);
}

void vb_streams_leave(void)
{
	struct vb_list *node;
	uint64_t until = 0; /* for all of them */
	int err;

	if (!stream_lock(&streams_lock))
		return;
	for (node = streams.next; node != &streams; node = node->next) {
		struct flexio_msg_stream *s = container_of(node, struct flexio_msg_stream, node);

		if (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_ASYNC || !vb_out_is_open(&s->out))
			continue;
		if (stream_has(&s->lock)) {
			/* A thread with drain_lock may wait for the ring, which this one has. */
			if (!pthread_mutex_trylock(&s->drain_lock)) {
				vb_out_write(&s->out, &err);
				pthread_mutex_unlock(&s->drain_lock);
			}
			continue;
		}
		if (!stream_lock(&s->drain_lock))
			continue;
		stream_unlock(&s->drain_lock);
		stream_collect(s);
		if (drain_until(s, 0))
			continue;
		until = until ? until : vb_now_ns() + stream_patience(s);
		drain_by(s, until);
	}
	stream_unlock(&streams_lock);
}

/* The last moment of a stream: what the file did not take is lost. */
static void stream_forget(struct flexio_msg_stream *s)
{
	unsigned int records = s->out_records + s->records;

	if (s->mode == FLEXIO_MSG_DEV_SYNC_MODE_SYNC)
		atomic_fetch_sub_explicit(&s->process->unwritten, records, memory_order_release);
	log_warn("stream %d %s: its file takes nothing, what it did not take is lost", s->id,
		 s->name);
}

/* Who waits for the file waits until then, or until what was said before. */
static void close_by(struct flexio_msg_stream *s, uint64_t ns)
{
	uint64_t none = 0;

	atomic_compare_exchange_strong_explicit(&s->close_by, &none, ns, memory_order_relaxed,
						memory_order_relaxed);
}

static void stream_close(struct flexio_msg_stream *s)
{
	struct flexio_process *process = s->process;
	int cancel;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	close_by(s, vb_now_ns() + stream_patience(s));
	stream_list_remove(s);
	/* While it can still be handed buffers. */
	if (s->tracer)
		vb_tracer_stop(s->tracer);
	/* With the write lock no device thread is in put(). */
	pthread_rwlock_wrlock(&process->streams_lock);
	process->streams[s->id] = NULL;
	publish_levels(process);
	pthread_rwlock_unlock(&process->streams_lock);
	stream_collect(s);
	stream_lock(&s->lock);
	s->quit = true;
	stream_unlock(&s->lock);
	pthread_cond_signal(&s->filled);
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	pthread_setcancelstate(cancel, NULL);
	if (!drain_until(s, atomic_load_explicit(&s->close_by, memory_order_relaxed)))
		stream_forget(s);
	say_rest(s);
	if (s->tracer) {
		pthread_rwlock_wrlock(&process->streams_lock);
		vb_tracer_close(s->tracer);
		pthread_rwlock_unlock(&process->streams_lock);
	}
	stream_free(s);
}

static flexio_status stream_create(struct flexio_process *process,
				   const flexio_msg_stream_attr_t *attr, FILE *out,
				   pthread_t *ppthread, struct flexio_msg_stream **stream,
				   bool only_default)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_msg_stream *s;
	int err;

	if (!pin)
		return bad_handle(process, "process");
	if (!attr || !out)
		return fail("%s is NULL", !attr ? "stream_fattr" : "out");
	if (stream_check_attr(process, attr) != FLEXIO_STATUS_SUCCESS)
		return failed();
	s = stream_new(process, attr, out);
	err = s ? stream_open(s, attr, only_default) : -ENOMEM;
	if (err) {
		if (s)
			stream_free(s);
		return no_stream(process, err, only_default, attr->data_bsize);
	}
	stream_list_add(s);
	err = stream_start_thread(s);
	if (err)
		fail("process %s: no thread for the stream: %s", process->name, strerror(-err));
	if (err || !vb_handle_add(HANDLE_STREAM, s)) {
		stream_close(s);
		return failed();
	}
	if (ppthread && s->has_thread)
		*ppthread = s->thread;
	if (stream)
		*stream = s;
	return FLEXIO_STATUS_SUCCESS;
}

/*
 * Without streams_lock: functions that open or close streams pin the process, and no pin is left.
 */
void vb_streams_destroy(struct flexio_process *process)
{
	uint64_t now = vb_now_ns();

	/* All at once: many files that take nothing are waited for as one is. */
	for (unsigned int i = 0; i < MAX_STREAMS; i++)
		if (process->streams[i])
			close_by(process->streams[i], now + stream_patience(process->streams[i]));
	for (unsigned int i = 0; i < MAX_STREAMS; i++) {
		struct flexio_msg_stream *s = process->streams[i];
		struct handle *pin = vb_handle_pin(HANDLE_STREAM, s);

		if (vb_handle_end(&pin))
			stream_close(s);
	}
}

/* ---- the interface ---- */

flexio_status flexio_msg_stream_create(struct flexio_process *process,
				       flexio_msg_stream_attr_t *stream_fattr, FILE *out,
				       pthread_t *ppthread, struct flexio_msg_stream **stream)
{
	API_CALL();
	if (!stream)
		return fail("stream is NULL");
	return stream_create(process, stream_fattr, out, ppthread, stream, false);
}

static flexio_status stream_destroy(struct flexio_msg_stream *stream)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_STREAM, stream);
	/* A process that is being destroyed closes its streams itself. */
	struct handle *process_pin AUTO_UNPIN =
		pin ? vb_handle_pin(HANDLE_PROCESS, stream->process) : NULL;

	if (!process_pin || !vb_handle_end(&pin))
		return bad_handle(stream, "message stream");
	if (!vb_process_inherited(stream->process))
		stream_close(stream);
	return FLEXIO_STATUS_SUCCESS;
}

static flexio_status stream_flush(struct flexio_msg_stream *stream)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_STREAM, stream);
	bool drained;

	if (!pin)
		return bad_handle(stream, "message stream");
	if (vb_process_inherited(stream->process))
		return FLEXIO_STATUS_SUCCESS;
	stream_collect(stream);
	drained = drain(stream);
	say_rest(stream);
	if (!drained)
		return fail("stream %d %s: its file takes nothing", stream->id, stream->name);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_msg_stream_destroy(struct flexio_msg_stream *stream)
{
	API_CALL();
	return stream_destroy(stream);
}

flexio_status flexio_msg_stream_flush(struct flexio_msg_stream *stream)
{
	API_CALL();
	return stream_flush(stream);
}

int flexio_msg_stream_get_id(struct flexio_msg_stream *stream)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_STREAM, stream);

	API_CALL();
	if (!pin) {
		bad_handle(stream, "message stream");
		return -1;
	}
	return stream->id;
}

flexio_status flexio_msg_stream_level_set(struct flexio_msg_stream *stream,
					  flexio_msg_dev_level level)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_STREAM, stream);

	API_CALL();
	if (!pin)
		return bad_handle(stream, "message stream");
	if (stream->id == FLEXIO_MSG_DEV_DEFAULT_STREAM_ID)
		return fail("the level of the default stream cannot be changed");
	if (level == FLEXIO_MSG_DEV_ALWAYS_PRINT || level > FLEXIO_MSG_DEV_DEBUG)
		return fail(LEVEL_TEXT, level);
	if (vb_process_inherited(stream->process))
		return FLEXIO_STATUS_SUCCESS;
	pthread_rwlock_wrlock(&stream->process->streams_lock);
	set_level(stream, level);
	pthread_rwlock_unlock(&stream->process->streams_lock);
	return FLEXIO_STATUS_SUCCESS;
}

static struct flexio_msg_stream *default_stream(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_msg_stream *s = NULL;

	if (pin && vb_process_inherited(process)) {
		s = process->streams[FLEXIO_MSG_DEV_DEFAULT_STREAM_ID];
	} else if (pin) {
		pthread_rwlock_rdlock(&process->streams_lock);
		s = process->streams[FLEXIO_MSG_DEV_DEFAULT_STREAM_ID];
		pthread_rwlock_unlock(&process->streams_lock);
	}
	if (!pin)
		bad_handle(process, "process");
	else if (!s)
		fail("process %s has no default stream", process->name);
	return s;
}

flexio_status flexio_log_dev_init(struct flexio_process *process,
				  flexio_msg_stream_attr_t *stream_fattr, FILE *out,
				  pthread_t *ppthread)
{
	API_CALL();
	return stream_create(process, stream_fattr, out, ppthread, NULL, true);
}

flexio_status flexio_log_dev_flush(struct flexio_process *process)
{
	struct flexio_msg_stream *stream;

	API_CALL();
	stream = default_stream(process);
	return stream ? stream_flush(stream) : failed();
}

flexio_status flexio_log_dev_destroy(struct flexio_process *process)
{
	struct flexio_msg_stream *stream;

	API_CALL();
	stream = default_stream(process);
	return stream ? stream_destroy(stream) : failed();
}
