// SPDX-License-Identifier: MIT
/*
 * Owns tracer streams: messages that device code stores as a number and arguments, and that become
 * text here.
 *
 *	device code                       notify                 stream's thread, flush
 *	[ buffer ][ buffer ][ buffer ]  --------->  host ring  ------------------------> file
 *
 * Device code fills one buffer after the other and never waits for the host. Buffers lie in device
 * memory and are copied into the ring when they are full (transport QP), or are the ring, seen
 * through a window (transport WINDOW). Where the host does not keep up, the oldest buffer that nobody
 * has read is lost, with a count of its messages.
 *
 * Device threads may be in the middle of a message when the stream is closed, and nothing can ask
 * them to let go. So its memory stays until the process ends; the next stream of the same number and
 * form gets it.
 *
 * stream.c calls all of this under the stream's lock, except for vb_tracer_print().
 */
#include "api/flexio/process.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/flexio/stream.h"

#define BUFFERS TRACER_BUFFERS
#define ARGS    6
/* How long a device thread may take for a message, when a stream is closed */
#define STOP_PAUSE_NS 100000
#define STOP_LOOKS    1000
/* Beside the outbox page, below the windows of threads. */
#define WINDOW_AT   (1ULL << 41)
#define WINDOW_EACH (1ULL << 31) /* more than the largest data_bsize */

/* What device code may write to at any time: kept until the process ends. */
struct tracer_memory {
	struct tracer_memory *next;
	int id;
	bool window, used;
	uint64_t addr, len;         /* as device code sees it */
	struct vb_rtos_trace *ring; /* BUFFERS buffers */
	struct vb_dpa_view from;    /* device memory where device code writes; none: to the ring */
};

struct tracer {
	struct flexio_process *process;
	struct tracer_memory *memory;
	struct vb_dpa_view
		data; /* this stream's part of the device's table: struct vb_rtos_tracer */
	char **formats;
	size_t num_formats;
	uint32_t per_buffer;
	uint64_t filling;         /* the buffer that device code fills; free running */
	uint32_t counts[BUFFERS]; /* messages in the ring, of each buffer */
	uint64_t reading;         /* the buffer that is being printed */
	uint32_t printed;         /* messages of it */
	uint64_t lost;
};

#define DATA(field) VB_VIEW_FIELD(struct vb_rtos_tracer, field)

/* ---- formats ---- */

struct conversion {
	char spec[24]; /* as given, without length and letter */
	unsigned int bits;
	char letter;
};

static unsigned int length_bits(const char **p)
{
	unsigned int bits = 32;

	if (!strncmp(*p, "hh", 2) || !strncmp(*p, "ll", 2)) {
		bits = **p == 'h' ? 8 : 64;
		*p += 2;
	} else if (**p && strchr("hlzjt", **p)) {
		bits = **p == 'h' ? 16 : 64;
		++*p;
	}
	return bits;
}

/*
 * *p is behind a '%'. False: not a conversion of an integer. Strings would be device pointers, '*'
 * and floating-point numbers no device code can pass.
 */
static bool parse_conversion(const char **p, struct conversion *c)
{
	const char *start = *p;
	size_t len;

	*p += strspn(*p, "-+ #0'");
	*p += strspn(*p, "0123456789");
	if (**p == '.') {
		++*p;
		*p += strspn(*p, "0123456789");
	}
	len = (size_t)(*p - start);
	if (len > sizeof(c->spec) - 5)
		return false;
	snprintf(c->spec, sizeof(c->spec), "%%%.*s", (int)len, start);
	c->bits = length_bits(p);
	c->letter = **p;
	if (!c->letter || !strchr("diouxXcp%", c->letter))
		return false;
	++*p;
	return true;
}

/* -1: it has something that cannot be printed. */
static int count_args(const char *format)
{
	struct conversion c;
	int args = 0;

	for (const char *p = format; *p;) {
		if (*p++ != '%')
			continue;
		if (!parse_conversion(&p, &c))
			return -1;
		args += c.letter != '%';
	}
	return args;
}

static void print_signed(FILE *out, const char *spec, char letter, int64_t value)
{
	char full[32];

	snprintf(full, sizeof(full), "%sll%c", spec, letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	fprintf(out, full, (long long)value);
#pragma GCC diagnostic pop
}

static void print_one(FILE *out, const struct conversion *c, uint64_t value)
{
	char full[32];

	switch (c->letter) {
	case 'd':
	case 'i':
		/* Take the sign from the length that the format names. */
		print_signed(out, c->spec, 'd',
			     (int64_t)(value << (64 - c->bits)) >> (64 - c->bits));
		break;
	case 'c':
		snprintf(full, sizeof(full), "%sc", c->spec);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		fprintf(out, full, (int)(unsigned char)value);
#pragma GCC diagnostic pop
		break;
	case 'p':
		print_signed(out, "%#", 'x', (int64_t)value);
		break;
	default:
		print_signed(out, c->spec, c->letter,
			     (int64_t)(value << (64 - c->bits) >> (64 - c->bits)));
	}
}

void vb_tracer_print(const struct tracer *t, const struct vb_rtos_trace *msg, FILE *out)
{
	unsigned int arg = 0;
	struct conversion c;
	const char *p;

	if (msg->format_id >= t->num_formats) {
		fprintf(out, "trace with format %u of %zu\n", msg->format_id, t->num_formats);
		return;
	}
	for (p = t->formats[msg->format_id]; *p;) {
		size_t plain = strcspn(p, "%");

		fwrite(p, 1, plain, out);
		p += plain;
		if (!*p || (++p, !parse_conversion(&p, &c)))
			continue;
		if (c.letter == '%')
			fputc('%', out);
		else
			print_one(out, &c, msg->args[arg++]);
	}
}

static void free_formats(struct tracer *t)
{
	for (size_t i = 0; i < t->num_formats; i++)
		free(t->formats[i]);
	free(t->formats);
}

/* A copy: the program may change or free its own. */
static bool copy_formats(struct tracer *t, char *const *formats)
{
	size_t n = 0;

	while (formats[n])
		n++;
	t->formats = calloc(n + 1, sizeof(*t->formats));
	if (!t->formats)
		return false;
	for (; t->num_formats < n; t->num_formats++) {
		t->formats[t->num_formats] = strdup(formats[t->num_formats]);
		if (!t->formats[t->num_formats])
			return false;
	}
	return true;
}

flexio_status vb_tracer_check(const flexio_msg_stream_attr_t *attr)
{
	if (!attr->tracer_msg_formats)
		return fail(
			"tracer_msg_formats is NULL; the tracer mode needs the formats of its messages");
	if ((unsigned int)attr->tracer_mode > FLEXIO_TRACER_TRANSPORT_WINDOW)
		return fail(
			"%u is not a tracer_mode; allowed: 0 and 1 (FLEXIO_TRACER_TRANSPORT_QP, _WINDOW)",
			(unsigned int)attr->tracer_mode);
	for (size_t i = 0; attr->tracer_msg_formats[i]; i++) {
		int args = count_args(attr->tracer_msg_formats[i]);

		if (args < 0)
			return fail(
				"tracer_msg_formats[%zu] has a conversion other than d, i, o, u, x, X, c and p",
				i);
		if (args > ARGS)
			return fail(
				"tracer_msg_formats[%zu] has %d arguments; a trace has %d at most",
				i, args, ARGS);
	}
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- memory, under streams_lock of the process for writing ---- */

/* The table that device code finds through a symbol; 0 where the program has no traces. */
static int flexio_tracer_make_table(struct flexio_process *process)
{
	uint64_t symbol, size, addr = 0;
	int err;

	if (!vb_view_is_none(process->tracer_table))
		return 0;
	err = vb_dpa_mem_map(process->dpa, &addr, MAX_STREAMS * sizeof(struct vb_rtos_tracer),
			     VB_DPA_READ | VB_DPA_WRITE);
	if (err)
		return err;
	process->tracer_table =
		vb_dpa_mem_host(process->dpa, addr, MAX_STREAMS * sizeof(struct vb_rtos_tracer),
				VB_DPA_READ | VB_DPA_WRITE);
	if (!vb_dpa_symbol_value(process->dpa, VB_RTOS_SYM_TRACER, &symbol, &size)) {
		struct vb_dpa_view place = vb_dpa_mem_host(process->dpa, symbol, sizeof(addr),
							   VB_DPA_READ | VB_DPA_WRITE);

		/*
		 * Release: pairs with stream() of device/dev/tracer.c. Where a hostile file has the
		 * symbol lead to a stack that goes meanwhile, nothing is stored.
		 */
		if (!vb_view_is_none(place) && !(symbol & 7))
			vb_view_put(place, 0, sizeof(addr), addr);
	}
	return 0;
}

static int map_memory(struct flexio_process *process, struct tracer_memory *m)
{
	struct vb_dpa_window *window;
	int err;

	m->ring = calloc(1, m->len);
	if (!m->ring)
		return -ENOMEM;
	if (m->window) {
		m->addr = WINDOW_AT + process->tracer_windows * WINDOW_EACH;
		err = vb_dpa_window_create(process->dpa, NULL, m->addr, m->len, m->ring,
					   VB_DPA_READ | VB_DPA_WRITE, &window);
		process->tracer_windows += !err;
		return err;
	}
	err = vb_dpa_mem_map(process->dpa, &m->addr, m->len, VB_DPA_READ | VB_DPA_WRITE);
	if (!err)
		m->from =
			vb_dpa_mem_host(process->dpa, m->addr, m->len, VB_DPA_READ | VB_DPA_WRITE);
	return err;
}

static struct tracer_memory *take_memory(struct flexio_process *process, int id, uint64_t len,
					 bool window)
{
	struct tracer_memory *m;

	for (m = process->tracer_memory; m; m = m->next)
		if (!m->used && m->id == id && m->len == len && m->window == window)
			break;
	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return NULL;
		*m = (struct tracer_memory){ .id = id, .len = len, .window = window };
		if (map_memory(process, m)) {
			free(m->ring);
			free(m);
			return NULL;
		}
		m->next = process->tracer_memory;
		process->tracer_memory = m;
	}
	m->used = true;
	return m;
}

void vb_tracers_free(struct flexio_process *process)
{
	while (process->tracer_memory) {
		struct tracer_memory *m = process->tracer_memory;

		process->tracer_memory = m->next;
		free(m->ring);
		free(m);
	}
}

/* ---- open, close ---- */

static unsigned int log2_of(uint32_t n)
{
	return 31 - (unsigned int)__builtin_clz(n);
}

struct tracer *vb_tracer_open(struct flexio_process *process, const flexio_msg_stream_attr_t *attr,
			      int id)
{
	struct tracer *t = calloc(1, sizeof(*t));
	struct vb_rtos_tracer data;
	bool window = attr->tracer_mode == FLEXIO_TRACER_TRANSPORT_WINDOW;

	if (!t)
		return NULL;
	t->process = process;
	t->per_buffer = (uint32_t)(attr->data_bsize / sizeof(struct vb_rtos_trace) / BUFFERS);
	if (!copy_formats(t, attr->tracer_msg_formats) || flexio_tracer_make_table(process) ||
	    !(t->memory = take_memory(process, id, attr->data_bsize, window))) {
		free_formats(t);
		free(t);
		return NULL;
	}
	t->data = vb_view_at(process->tracer_table, (uint64_t)id * sizeof(data));
	data = (struct vb_rtos_tracer){
		.transport_mode = (uint8_t)attr->tracer_mode,
		.log_num_buf_msgs = (uint16_t)log2_of(t->per_buffer),
		.max_entries_per_buf = t->per_buffer,
		.buf_mask = BUFFERS - 1,
		.current_buffer = t->memory->addr,
		.buffer = t->memory->addr,
	};
	/* The level is still 0, so nobody looks at it. */
	(void)vb_view_write(t->data, &data, sizeof(data));
	return t;
}

void vb_tracer_level(struct tracer *t, unsigned int level)
{
	/* Release: device code that finds the level finds the buffers. */
	vb_view_put(t->data, DATA(valid_lvl), level);
}

/*
 * No device thread writes to the stream any more, except for one that is halted in the middle of a
 * message, which might not go on at all: so there is an end to the wait.
 */
void vb_tracer_stop(struct tracer *t)
{
	vb_view_put(t->data, DATA(valid_lvl), 0);
	/* The level before the count: pairs with enter() of device/dev/tracer.c. */
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned int i = 0; i < STOP_LOOKS; i++) {
		if (!vb_view_get(t->data, DATA(writing)))
			return;
		vb_pause_ns(STOP_PAUSE_NS);
	}
}

void vb_tracer_close(struct tracer *t)
{
	t->memory->used = false;
	free_formats(t);
	free(t);
}

/* ---- from device code to the ring ---- */

/* The ring has no room for another buffer: the oldest goes. */
static void flexio_tracer_drop_oldest(struct tracer *t)
{
	t->lost += t->counts[t->reading % BUFFERS] - t->printed;
	t->printed = 0;
	t->reading++;
}

int vb_tracer_take(struct tracer *t, uint64_t buffer, uint64_t count, bool full)
{
	unsigned int at = t->filling % BUFFERS;
	struct vb_rtos_trace *slot = t->memory->ring + (size_t)at * t->per_buffer;
	uint32_t stored = (uint32_t)vb_view_get(t->data, DATA(current_ix));

	if (buffer != at || count > t->per_buffer)
		return -EINVAL;
	/* More than were stored: those that come later would count as taken. */
	if (!full && count > stored)
		count = stored;
	if (count > t->counts[at]) {
		size_t from = ((size_t)at * t->per_buffer + t->counts[at]) * sizeof(*slot);

		if (!t->memory->window &&
		    vb_view_read(vb_view_at(t->memory->from, from), slot + t->counts[at],
				 (count - t->counts[at]) * sizeof(*slot)))
			return -EFAULT;
		t->counts[at] = (uint32_t)count;
	}
	if (full) {
		t->filling++;
		if (t->filling - t->reading == BUFFERS)
			flexio_tracer_drop_oldest(t);
		t->counts[t->filling % BUFFERS] = 0;
	}
	return 0;
}

void vb_tracer_collect(struct tracer *t)
{
	uint32_t count = (uint32_t)vb_view_get(t->data, DATA(current_ix));

	/* Past the end: the thread that hands the buffer over is about to. */
	if (count > t->per_buffer)
		return;
	/* Threads that are storing a message need a moment; one that was stopped there has none. */
	for (unsigned int i = 0; i < 1000 && vb_view_get(t->data, DATA(writing)); i++)
		sched_yield();
	vb_tracer_take(t, vb_view_get(t->data, DATA(buf_idx)), count, false);
}

/* ---- out of the ring ---- */

bool vb_tracer_pending(const struct tracer *t)
{
	return t->reading != t->filling || t->printed < t->counts[t->reading % BUFFERS] || t->lost;
}

uint32_t vb_tracer_out(struct tracer *t, struct vb_rtos_trace *to, uint64_t *lost)
{
	unsigned int at = t->reading % BUFFERS;
	uint32_t n = t->counts[at] - t->printed;

	memcpy(to, t->memory->ring + (size_t)at * t->per_buffer + t->printed, n * sizeof(*to));
	t->printed += n;
	if (t->reading != t->filling) {
		t->reading++;
		t->printed = 0;
	}
	*lost = t->lost;
	t->lost = 0;
	return n;
}
