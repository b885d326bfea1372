// SPDX-License-Identifier: MIT
/*
 * Owns how threads are named: numbers of the accelerator, and one more, NO_THREAD, that stands for a
 * process without threads.
 */
#include "gdb/session.h"

#include <stdio.h>
#include <stdlib.h>

bool vb_gdb_get_thread(const char **at, uint32_t *thread)
{
	uint64_t number;

	if (!strncmp(*at, "-1", 2)) {
		*at += 2;
		*thread = 0;
		return true;
	}
	if (!vb_gdb_get_number(at, &number) || number > UINT32_MAX)
		return false;
	*thread = (uint32_t)number;
	return true;
}

uint32_t *vb_gdb_threads(struct session *s, unsigned int *count)
{
	unsigned int room = 64, found;
	uint32_t *numbers = NULL, *more;

	for (;;) {
		more = realloc(numbers, room * sizeof(*numbers));
		if (!more) {
			free(numbers);
			return NULL;
		}
		numbers = more;
		found = vb_dpa_debug_threads(s->debug, numbers, room - 1);
		if (found < room)
			break;
		room = found + 1;
	}
	if (!found || s->bare)
		numbers[found++] = NO_THREAD;
	*count = found;
	return numbers;
}

void vb_gdb_threads_stopped(struct session *s)
{
	s->bare = !vb_dpa_debug_threads(s->debug, NULL, 0);
	s->thread = s->stop.thread ? s->stop.thread : s->bare ? NO_THREAD : vb_gdb_first_thread(s);
}

static bool is_busy(struct session *s, uint32_t thread)
{
	struct vb_dpa_thread_info info;

	return thread && !vb_dpa_debug_info(s->debug, thread, &info) && !info.idle;
}

uint32_t vb_gdb_first_thread(struct session *s)
{
	uint32_t first = NO_THREAD, *numbers;
	unsigned int count = 0;

	if (is_busy(s, s->thread))
		return s->thread;
	numbers = vb_gdb_threads(s, &count);
	if (!numbers)
		return first;
	first = numbers[0];
	for (unsigned int i = 0; i < count; i++)
		if (is_busy(s, numbers[i])) {
			first = numbers[i];
			break;
		}
	free(numbers);
	return first;
}

static int check_thread(struct session *s, uint32_t thread)
{
	struct vb_dpa_thread_info info;

	if (thread == NO_THREAD)
		return s->bare ? 0 : -ESRCH;
	return vb_dpa_debug_info(s->debug, thread, &info);
}

void vb_gdb_thread_packet(struct session *s, const char *body)
{
	bool select = body[0] == 'H';
	const char *at = body + 1 + select;
	uint32_t thread;
	int err = 0;

	if ((select && body[1] != 'g' && body[1] != 'c') || !vb_gdb_get_thread(&at, &thread) ||
	    *at) {
		vb_gdb_put_error(s, -EINVAL);
		return;
	}
	if (thread)
		err = check_thread(s, thread);
	if (!err && select && body[1] == 'c')
		s->resume = thread;
	else if (!err && select)
		s->thread = thread ? thread : vb_gdb_first_thread(s);
	vb_gdb_put_result(s, err);
}

/* Name and what else there is to say, for the columns of "info threads". */
static void threads_describe(struct session *s, uint32_t thread, struct vb_dpa_thread_info *info,
			     const char **more)
{
	*more = "no device thread exists";
	if (thread == NO_THREAD) {
		*info = (struct vb_dpa_thread_info){ .name = "process" };
		return;
	}
	*more = "";
	if (vb_dpa_debug_info(s->debug, thread, info))
		*info = (struct vb_dpa_thread_info){ .name = "gone" };
	else if (info->idle)
		*more = "idle";
	info->name[sizeof(info->name) - 1] = '\0';
	if (!**more && s->target->name)
		s->target->name(s->target->arg, thread, info->name, sizeof(info->name));
}

/* Names are the program's: they may have what XML has for itself, and what is not ASCII. */
static void print_escaped(FILE *f, const char *text)
{
	static const char special[] = "<>&\"'";
	static const char *const words[] = { "&lt;", "&gt;", "&amp;", "&quot;", "&apos;" };

	for (; *text; text++) {
		const char *found = strchr(special, *text);

		if (found)
			fputs(words[found - special], f);
		else
			fputc(*text < ' ' || *text > '~' ? '?' : *text, f);
	}
}

int vb_gdb_thread_doc(struct session *s)
{
	unsigned int count = 0;
	uint32_t *numbers = vb_gdb_threads(s, &count);
	FILE *f = numbers ? open_memstream(&s->doc, &s->doc_len) : NULL;

	if (!f) {
		free(numbers);
		return -ENOMEM;
	}
	fprintf(f, "<?xml version=\"1.0\"?>\n<threads>\n");
	for (unsigned int i = 0; i < count; i++) {
		struct vb_dpa_thread_info info;
		const char *more;

		threads_describe(s, numbers[i], &info, &more);
		fprintf(f, "<thread id=\"%x\" core=\"%u\" name=\"", numbers[i], info.eu);
		print_escaped(f, info.name);
		fprintf(f, "\">%s</thread>\n", more);
	}
	fprintf(f, "</threads>\n");
	free(numbers);
	return fclose(f) ? -ENOMEM : 0;
}

/* m and as many as fit; l when there are no more. */
static void threads_list(struct session *s, bool first)
{
	if (first) {
		free(s->list);
		s->listed = s->nlist = 0;
		s->list = vb_gdb_threads(s, &s->nlist);
	}
	if (!s->list || s->listed == s->nlist) {
		vb_gdb_put(s, "l");
		return;
	}
	for (char before = 'm'; s->listed < s->nlist && s->out_len + 10 < sizeof(s->out);
	     before = ',')
		vb_gdb_printf(s, "%c%x", before, s->list[s->listed++]);
}

static void extra_info(struct session *s, const char *at)
{
	struct vb_dpa_thread_info info;
	const char *more;
	uint32_t thread;

	if (!vb_gdb_get_thread(&at, &thread) || *at || check_thread(s, thread)) {
		vb_gdb_put_error(s, -ESRCH);
		return;
	}
	threads_describe(s, thread, &info, &more);
	vb_gdb_put_hex(s, info.name, strlen(info.name));
	if (*more) {
		vb_gdb_put_hex(s, " ", 1);
		vb_gdb_put_hex(s, more, strlen(more));
	}
}

void vb_gdb_thread_query(struct session *s, const char *body)
{
	if (!strcmp(body, "qC"))
		vb_gdb_printf(s, "QC%x", s->thread);
	else if (!strcmp(body, "qfThreadInfo") || !strcmp(body, "qsThreadInfo"))
		threads_list(s, body[1] == 'f');
	else if (!strncmp(body, "qThreadExtraInfo,", 17))
		extra_info(s, body + 17);
}
