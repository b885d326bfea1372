// SPDX-License-Identifier: MIT
/* Owns the lines of `verbatim top`: rates from two looks, tables, load bars. */
#include "tools/look/frame.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"

enum { BAR = 30, EUS_PER_LINE = 64, CELLS = 10, CELL_BYTES = 24 };

/* A row of the list: what is printed, and what it is sorted by. */
struct row {
	double key;
	bool bad;
	char cell[CELLS][CELL_BYTES];
};

static void __attribute__((format(printf, 3, 4)))
put(struct frame *f, enum frame_style style, const char *fmt, ...)
{
	va_list args;

	if (f->count == f->room) {
		size_t room = f->room ? 2 * f->room : 64;
		struct frame_line *line = realloc(f->line, room * sizeof(*line));

		if (!line)
			return;
		f->line = line;
		f->room = room;
	}
	f->line[f->count].style = style;
	va_start(args, fmt);
	vsnprintf(f->line[f->count].text, sizeof(f->line[0].text), fmt, args);
	va_end(args);
	f->count++;
}

/* --- rates ------------------------------------------------------------------------------------ */

/* Per second; a counter that went back is another one's. */
static double rate(const struct look *before, const struct look *now, uint64_t was, uint64_t is)
{
	uint64_t ns = before ? now->time - before->time : 0;

	return ns && is >= was ? (double)(is - was) * 1e9 / (double)ns : 0;
}

static void bytes_per_second(double value, char text[CELL_BYTES])
{
	look_bytes(value < 0x1p64 ? (uint64_t)value : UINT64_MAX, text);
	strncat(text, "/s", CELL_BYTES - strlen(text) - 1);
}

static void per_second(double value, char text[CELL_BYTES])
{
	static const char units[] = " KMGT";
	unsigned int unit = 0;

	for (; value >= 10000 && unit < 4; unit++)
		value /= 1000;
	if (unit)
		snprintf(text, CELL_BYTES, "%.1f%c", value, units[unit]);
	else
		snprintf(text, CELL_BYTES, "%.0f", value);
}

static uint64_t requests(const struct look_traffic *t)
{
	return t->packets + t->stores + t->copies + t->calls;
}

/* --- adapters --------------------------------------------------------------------------------- */

static const struct look_adapter *same_adapter(const struct look *before,
					       const struct look_adapter *a)
{
	if (before)
		look_each(look_adapter, b,
			  &before->adapters) if (b->pid == a->pid &&
						 !strcmp(b->name, a->name)) return b;
	return NULL;
}

static void put_adapters(struct frame *f, const struct look *before, const struct look *now,
			 const struct frame_options *o)
{
	put(f, FRAME_HEAD, "%-10s %8s %6s %12s %12s %8s %8s %8s  %s", "ADAPTER", "PID", "QPS",
	    "SENT", "RECEIVED", "REQ/S", "RETRIES", "DROPPED", "COMMAND");
	look_each(look_adapter, a, &now->adapters)
	{
		const struct look_adapter *b = same_adapter(before, a);
		const struct look_traffic *was = b ? &b->traffic : &a->traffic;
		const struct look_process *p = look_process(now, a->pid);
		char sent[CELL_BYTES], received[CELL_BYTES], req[CELL_BYTES];

		if (o->adapter && strcmp(o->adapter, a->name))
			continue;
		bytes_per_second(rate(before, now, was->sent, a->traffic.sent), sent);
		bytes_per_second(rate(before, now, was->received, a->traffic.received), received);
		per_second(rate(before, now, requests(was), requests(&a->traffic)), req);
		put(f, FRAME_PLAIN, "%-10s %8d %6u %12s %12s %8s %8" PRIu64 " %8" PRIu64 "  %s",
		    a->name, (int)a->pid, a->qps, sent, received, req, a->traffic.retries,
		    a->traffic.dropped, p ? p->command : "?");
	}
}

/* --- execution units -------------------------------------------------------------------------- */

static const struct look_accelerator *same_accelerator(const struct look *before,
						       const struct look_accelerator *a)
{
	if (before)
		look_each(look_accelerator, b,
			  &before->accelerators) if (b->pid == a->pid &&
						     !strcmp(b->adapter, a->adapter) &&
						     b->eus == a->eus) return b;
	return NULL;
}

static double load_of(const struct look_accelerator *b, const struct look_accelerator *a,
		      uint32_t eu)
{
	double load;

	if (!b || a->ticks <= b->ticks || a->busy[eu] < b->busy[eu])
		return 0;
	load = (double)(a->busy[eu] - b->busy[eu]) / (double)(a->ticks - b->ticks);
	return load > 1 ? 1 : load;
}

/* One letter for each EU that did something, at least one line of them. */
static void put_eus(struct frame *f, const struct look_accelerator *b,
		    const struct look_accelerator *a)
{
	static const char shades[] = ".:-=+*#%@";
	char line[EUS_PER_LINE + 1];

	for (uint32_t eu = 0; eu < a->eus; eu += EUS_PER_LINE) {
		bool any = false;
		uint32_t n = a->eus - eu < EUS_PER_LINE ? a->eus - eu : EUS_PER_LINE;

		for (uint32_t i = 0; i < n; i++) {
			double load = load_of(b, a, eu + i);

			any |= load > 0;
			line[i] = load > 0 ? shades[(int)(load * 8.999)] : ' ';
		}
		line[n] = '\0';
		if (any)
			put(f, FRAME_PLAIN, "%-10s EU %4u |%s|", "", eu, line);
	}
}

static void put_accelerators(struct frame *f, const struct look *before, const struct look *now,
			     const struct frame_options *o)
{
	look_each(look_accelerator, a, &now->accelerators)
	{
		const struct look_accelerator *b = same_accelerator(before, a);
		char bar[BAR + 1];
		double sum = 0;
		uint32_t busy = 0;
		int full;

		if (!a->eus || (o->adapter && strcmp(o->adapter, a->adapter)))
			continue;
		for (uint32_t i = 0; i < a->eus; i++) {
			double load = load_of(b, a, i);

			sum += load;
			busy += load > 0;
		}
		full = (int)(sum / a->eus * BAR + 0.5);
		memset(bar, ' ', BAR);
		memset(bar, '|', (size_t)(full < BAR ? full : BAR));
		bar[BAR] = '\0';
		put(f, FRAME_PLAIN, "%-10s %8d [%s] %5.2f of %u EUs, %u in use", a->adapter,
		    (int)a->pid, bar, sum, a->eus, busy);
		put_eus(f, b, a);
	}
}

/* --- the list --------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (x->key < y->key) - (x->key > y->key);
}

static void frame_fill_qp(struct row *r, const struct look *before, const struct look *now,
			  const struct look_qp *qp, unsigned int column)
{
	const struct look_qp *b = before ? look_same_qp(before, qp) : NULL, *was = b ? b : qp;
	const struct look_process *p = look_process(now, qp->pid);
	double sent = rate(before, now, was->sq.sent + was->rq.sent, qp->sq.sent + qp->rq.sent);
	double received = rate(before, now, was->sq.received + was->rq.received,
			       qp->sq.received + qp->rq.received);
	double req = rate(before, now, requests(&was->sq), requests(&qp->sq));
	const double keys[] = { qp->number, qp->pid,  qp->type,
				qp->state,  qp->peer, sent,
				received,   req,      (double)qp->sq.retries,
				qp->pid };

	snprintf(r->cell[0], CELL_BYTES, "0x%x", qp->number);
	snprintf(r->cell[1], CELL_BYTES, "%d", (int)qp->pid);
	snprintf(r->cell[2], CELL_BYTES, "%s", look_type(qp->type));
	snprintf(r->cell[3], CELL_BYTES, "%s", look_state(qp->state));
	snprintf(r->cell[4], CELL_BYTES, qp->peer ? "0x%x" : "-", qp->peer);
	bytes_per_second(sent, r->cell[5]);
	bytes_per_second(received, r->cell[6]);
	per_second(req, r->cell[7]);
	snprintf(r->cell[8], CELL_BYTES, "%" PRIu64, qp->sq.retries);
	snprintf(r->cell[9], CELL_BYTES, "%s", p ? p->command : "?");
	r->key = keys[column];
	r->bad = !strcmp(r->cell[3], "ERR") || !strcmp(r->cell[3], "SQE");
}

static void fill_thread(struct row *r, const struct look *before, const struct look *now,
			const struct look_thread *t, unsigned int column)
{
	const struct look_thread *b = before ? look_same_thread(before, t) : NULL, *was = b ? b : t;
	double instructions = rate(before, now, was->instructions, t->instructions);
	double runs = rate(before, now, was->executions, t->executions);
	double ticks = rate(before, now, was->ticks, t->ticks);
	const double keys[] = {
		t->id,        t->pid, t->process_id,           ticks,
		instructions, runs,   (double)t->instructions, (double)t->executions,
		t->id,        t->id
	};

	snprintf(r->cell[0], CELL_BYTES, "%u", t->id);
	snprintf(r->cell[1], CELL_BYTES, "%d", (int)t->pid);
	snprintf(r->cell[2], CELL_BYTES, "0x%x", t->process_id);
	per_second(ticks, r->cell[3]);
	per_second(instructions, r->cell[4]);
	per_second(runs, r->cell[5]);
	per_second((double)t->instructions, r->cell[6]);
	per_second((double)t->executions, r->cell[7]);
	snprintf(r->cell[8], CELL_BYTES, "%s", t->adapter);
	snprintf(r->cell[9], CELL_BYTES, "%s", t->name);
	r->key = keys[column];
}

static const struct list {
	const char *title, *columns[CELLS];
	int width[CELLS];
} lists[FRAME_LISTS] = {
	[FRAME_QPS] = { "queue pairs",
			{ "QP", "PID", "TYPE", "STATE", "PEER", "SENT", "RECEIVED", "REQ/S",
			  "RETRIES", "COMMAND" },
			{ 9, 8, 5, 6, 9, 12, 12, 8, 8, -15 } },
	[FRAME_THREADS] = { "device threads",
			    { "THREAD", "PID", "PROCESS", "TICKS/S", "INSTR/S", "RUNS/S", "INSTR",
			      "RUNS", "ADAPTER", "NAME" },
			    { 7, 8, 9, 9, 9, 9, 9, 9, 10, -20 } },
};

static void put_list_head(struct frame *f, const struct list *list, const struct frame_options *o)
{
	char text[256] = "";

	for (int i = 0; i < CELLS; i++) {
		size_t n = strlen(text);

		snprintf(text + n, sizeof(text) - n, "%*s%s ", list->width[i], list->columns[i],
			 (unsigned int)i == o->column ? (o->reversed ? "^" : "v") : " ");
	}
	put(f, FRAME_HEAD, "%s", text);
}

static void put_row(struct frame *f, const struct list *list, const struct row *r)
{
	char text[256] = "";

	for (int i = 0; i < CELLS; i++) {
		size_t n = strlen(text);

		snprintf(text + n, sizeof(text) - n, "%*s  ", list->width[i], r->cell[i]);
	}
	put(f, r->bad ? FRAME_BAD : FRAME_PLAIN, "%s", text);
}

static void frame_put_list(struct frame *f, const struct look *before, const struct look *now,
			   const struct frame_options *o)
{
	const struct list *list = &lists[o->list];
	size_t count = o->list == FRAME_QPS ? now->qps.count : now->threads.count, n = 0;
	struct row *rows = calloc(count ? count : 1, sizeof(*rows));

	put_list_head(f, list, o);
	f->head = f->count;
	f->columns = CELLS;
	if (!rows)
		return;
	if (o->list == FRAME_QPS) {
		look_each(look_qp, qp,
			  &now->qps) if (!o->adapter || !strcmp(o->adapter, qp->adapter))
			frame_fill_qp(&rows[n++], before, now, qp, o->column);
	} else {
		look_each(look_thread, t,
			  &now->threads) if (!o->adapter || !strcmp(o->adapter, t->adapter))
			fill_thread(&rows[n++], before, now, t, o->column);
	}
	qsort(rows, n, sizeof(*rows), by_key);
	for (size_t i = 0; i < n; i++)
		put_row(f, list, &rows[o->reversed ? n - 1 - i : i]);
	if (!n)
		put(f, FRAME_PLAIN, "no %s", list->title);
	free(rows);
}

/* --- all of it -------------------------------------------------------------------------------- */

void frame_make(struct frame *f, const struct look *before, const struct look *now,
		const struct frame_options *options)
{
	time_t t = (time_t)(vb_wall_ns() / 1000000000u);
	struct tm tm;
	char clock[16] = "";

	*f = (struct frame){ 0 };
	if (localtime_r(&t, &tm))
		strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	put(f, FRAME_TITLE,
	    "verbatim top - %s, %zu processes, %zu queue pairs, %zu device processes, %zu device threads",
	    clock, now->processes.count, now->qps.count, now->dpas.count, now->threads.count);
	put(f, FRAME_PLAIN, " ");
	put_adapters(f, before, now, options);
	put_accelerators(f, before, now, options);
	put(f, FRAME_PLAIN, " ");
	frame_put_list(f, before, now, options);
}

void frame_free(struct frame *f)
{
	free(f->line);
}
