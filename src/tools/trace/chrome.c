// SPDX-License-Identifier: MIT
/*
 * Owns the JSON form of a timeline: Chrome's trace events. A process of the host is a process there,
 * its threads are threads, and the execution units of its accelerator are threads with numbers from
 * EU_TRACK on. Times are microseconds since the first note.
 */
#include "tools/trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "card/notes.h"

enum { EU_TRACK = 1 << 24, EUS = 4096 };

struct writer {
	FILE *out;
	uint64_t start;       /* ns: of the first note */
	const char *sep;      /* before the next event */
	uint8_t eus[EUS / 8]; /* of the process at hand: whose track has a name */
	uint32_t tid;         /* the thread at hand */
};

/* --- pieces of JSON --------------------------------------------------------------------------- */

/* A string of the program's: at most max bytes of it, of which some may not be text. */
static void write_string(FILE *out, const char *text, size_t max)
{
	fputc('"', out);
	for (size_t i = 0; i < max && text[i]; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c >= 0x20 && c < 0x7f)
			fputc(c, out);
		else
			fputc('?', out);
	}
	fputc('"', out);
}

static void write_metadata(struct writer *w, uint32_t pid, int64_t tid, const char *what,
			   const char *text, size_t max)
{
	fprintf(w->out, "%s{\"ph\":\"M\",\"pid\":%u,", w->sep, pid);
	if (tid >= 0)
		fprintf(w->out, "\"tid\":%" PRId64 ",", tid);
	fprintf(w->out, "\"name\":\"%s\",\"args\":{\"name\":", what);
	write_string(w->out, text, max);
	fputs("}}", w->out);
	w->sep = ",\n";
}

/* Nanoseconds as microseconds, without the rounding of a floating point number. */
static void write_time(FILE *out, const char *key, uint64_t ns)
{
	fprintf(out, "\"%s\":%" PRIu64 ".%03u,", key, ns / 1000, (unsigned int)(ns % 1000));
}

/* Up to the name. */
static void open_event(struct writer *w, const struct trace_file *file, const struct vb_note *note,
		       uint32_t tid, bool span, const char *category)
{
	fprintf(w->out, "%s{\"ph\":\"%s\",%s\"pid\":%u,\"tid\":%u,", w->sep, span ? "X" : "i",
		span ? "" : "\"s\":\"t\",", file->head->pid, tid);
	w->sep = ",\n";
	write_time(w->out, "ts", note->time - w->start);
	if (span)
		write_time(w->out, "dur", note->duration);
	fprintf(w->out, "\"cat\":\"%s\",\"name\":", category);
}

static void write_name(struct writer *w, const struct trace_file *file, uint16_t name)
{
	char text[VB_TIMELINE_NAME_BYTES];

	trace_name(file, name, text);
	write_string(w->out, text, sizeof(text));
}

/* --- events ----------------------------------------------------------------------------------- */

static void chrome_write_call(struct writer *w, const struct trace_file *file,
			      const struct vb_note *note)
{
	bool rpc = note->kind == VB_NOTE_RPC;

	open_event(w, file, note, w->tid, true, rpc ? "rpc" : "call");
	write_name(w, file, note->name);
	if (rpc)
		fprintf(w->out, ",\"args\":{\"status\":%u}}", note->code);
	else if (note->object)
		fprintf(w->out, ",\"args\":{\"object\":\"0x%x\"}}", note->object);
	else
		fputs("}", w->out);
}

static void write_slice(struct writer *w, const struct trace_file *file, const struct vb_note *note)
{
	uint32_t eu = note->object % EUS;
	char name[16];

	if (!(w->eus[eu / 8] >> eu % 8 & 1)) {
		w->eus[eu / 8] |= (uint8_t)(1 << eu % 8);
		snprintf(name, sizeof(name), "EU %u", eu);
		write_metadata(w, file->head->pid, EU_TRACK + eu, "thread_name", name,
			       sizeof(name));
	}
	open_event(w, file, note, EU_TRACK + eu, true, "eu");
	write_name(w, file, note->name);
	fprintf(w->out,
		",\"args\":{\"process\":%u,\"thread\":%" PRIu64 ",\"instructions\":%" PRIu64 "}}",
		note->code, note->value >> 32, note->value & UINT32_MAX);
}

static void write_ready(struct writer *w, const struct trace_file *file, const struct vb_note *note)
{
	open_event(w, file, note, w->tid, false, "ready");
	write_name(w, file, note->name);
	fprintf(w->out, ",\"args\":{\"process\":%u,\"thread\":%" PRIu64 "}}", note->code,
		note->value >> 32);
}

static void write_work(struct writer *w, const struct trace_file *file, const struct vb_note *note)
{
	open_event(w, file, note, w->tid, false, note->kind == VB_NOTE_COPIED ? "copy" : "wqe");
	fprintf(w->out, "\"%s\",\"args\":{\"qp\":\"0x%x\",\"bytes\":%" PRIu64,
		vb_note_code_text(note), note->object, note->value);
	if (note->kind != VB_NOTE_COPIED)
		fprintf(w->out, ",\"index\":%" PRIu64, note->extra);
	fputs("}}", w->out);
}

static void write_doorbell(struct writer *w, const struct trace_file *file,
			   const struct vb_note *note)
{
	open_event(w, file, note, w->tid, false, "doorbell");
	fprintf(w->out, "\"doorbell\",\"args\":{\"qp\":\"0x%x\",\"index\":%" PRIu64 "}}",
		note->object, note->value);
}

static void chrome_write_cqe(struct writer *w, const struct trace_file *file,
			     const struct vb_note *note)
{
	open_event(w, file, note, w->tid, false, "cqe");
	fprintf(w->out,
		"\"%s\",\"args\":{\"cq\":%u,\"qp\":\"0x%x\",\"queue\":\"%s\",\"index\":%u,\"bytes\":%" PRIu64
		"}}",
		vb_note_code_text(note), note->object, (uint32_t)note->extra,
		note->extra >> 63 ? "receive" : "send", (uint32_t)(note->extra >> 32) & 0x7fffffff,
		note->value);
}

static void write_packet(struct writer *w, const struct trace_file *file,
			 const struct vb_note *note)
{
	bool sent = note->kind == VB_NOTE_SENT;

	open_event(w, file, note, w->tid, false, sent ? "sent" : "received");
	fprintf(w->out,
		"\"%s\",\"args\":{\"qp\":\"0x%x\",\"%s\":\"0x%" PRIx64 "\",\"psn\":%" PRIu64
		",\"bytes\":%" PRIu64 "}}",
		vb_note_code_text(note), note->object, sent ? "to" : "from",
		note->extra & UINT32_MAX, note->extra >> 32, note->value);
}

static void write_trouble(struct writer *w, const struct trace_file *file,
			  const struct vb_note *note)
{
	if (note->kind == VB_NOTE_RETRY) {
		open_event(w, file, note, w->tid, false, "retry");
		fprintf(w->out, "\"sent again\",\"args\":{\"qp\":\"0x%x\",\"psn\":%" PRIu64 "}}",
			note->object, note->extra >> 32);
		return;
	}
	open_event(w, file, note, w->tid, false, "lost");
	write_name(w, file, note->name);
	fprintf(w->out, ",\"args\":{\"object\":\"0x%x\"}}", note->object);
}

typedef void write_note(struct writer *w, const struct trace_file *file,
			const struct vb_note *note);

static write_note *const writers[VB_NOTE_KINDS] = {
	[VB_NOTE_CALL] = chrome_write_call,  [VB_NOTE_RPC] = chrome_write_call,
	[VB_NOTE_SLICE] = write_slice,       [VB_NOTE_READY] = write_ready,
	[VB_NOTE_DOORBELL] = write_doorbell, [VB_NOTE_WQE] = write_work,
	[VB_NOTE_HBL_WQE] = write_work,      [VB_NOTE_COPIED] = write_work,
	[VB_NOTE_CQE] = chrome_write_cqe,    [VB_NOTE_SENT] = write_packet,
	[VB_NOTE_RECEIVED] = write_packet,   [VB_NOTE_RETRY] = write_trouble,
	[VB_NOTE_LOST] = write_trouble,
};

static void chrome_visit(void *arg, const struct trace_file *file,
			 const struct vb_timeline_piece *piece, const struct vb_note *note)
{
	struct writer *w = arg;

	if (note->time < w->start)
		return; /* nobody's clock */
	if (piece->tid != w->tid) {
		w->tid = piece->tid;
		write_metadata(w, file->head->pid, w->tid, "thread_name", piece->name,
			       sizeof(piece->name));
	}
	writers[note->kind](w, file, note);
}

static void find_start(void *arg, const struct trace_file *file,
		       const struct vb_timeline_piece *piece, const struct vb_note *note)
{
	uint64_t *start = arg;

	if (note->time && note->time < *start)
		*start = note->time;
}

int trace_write_json(FILE *out, const struct trace_file *files, size_t count)
{
	struct writer w = { .out = out, .start = UINT64_MAX, .sep = "" };
	uint64_t lost = 0;

	for (size_t i = 0; i < count; i++) {
		trace_each(&files[i], find_start, &w.start);
		lost += files[i].lost;
	}
	fprintf(out,
		"{\"displayTimeUnit\":\"ns\",\"otherData\":{\"generator\":\"verbatim trace %s\","
		"\"lost\":%" PRIu64 "},\"traceEvents\":[\n",
		VERBATIM_VERSION, lost);
	for (size_t i = 0; i < count; i++) {
		memset(w.eus, 0, sizeof(w.eus));
		w.tid = 0;
		write_metadata(&w, files[i].head->pid, -1, "process_name", files[i].head->command,
			       sizeof(files[i].head->command));
		trace_each(&files[i], chrome_visit, &w);
	}
	fputs("\n]}\n", out);
	if (fflush(out) || ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}
