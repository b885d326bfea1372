// SPDX-License-Identifier: MIT
/*
 * Owns the words of faults. A line comes from a file or a socket and is not trusted: it is cut into a
 * fixed number of words, each of which must be exactly one that is known.
 *
 *	[at TIME] CARD port N down | up
 *	[at TIME] CARD qp N | #K | all error
 *	[at TIME] CARD qp N | #K | all next [recv] STATUS
 *	[at TIME] CARD fatal
 *	[at TIME] CARD fail pd | mr | cq | srq | qp | any COUNT
 *	[at TIME] CARD eu N stuck | slow FACTOR | normal
 */
#include "card/fault/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS = 8, SLOW_MAX = 1000000, COUNT_MAX = 1000000000 };

static const struct {
	const char *name;
	enum ibv_wc_status status;
} statuses[] = {
	{ "LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR },
	{ "LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR },
	{ "LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR },
	{ "WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR },
	{ "MW_BIND_ERR", IBV_WC_MW_BIND_ERR },
	{ "BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR },
	{ "LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR },
	{ "REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR },
	{ "REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR },
	{ "REM_OP_ERR", IBV_WC_REM_OP_ERR },
	{ "RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR },
	{ "RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR },
	{ "REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR },
};

static const char *const objects[VB_INJECT_OBJECTS] = {
	[VB_INJECT_PD] = "pd",   [VB_INJECT_MR] = "mr", [VB_INJECT_CQ] = "cq",
	[VB_INJECT_SRQ] = "srq", [VB_INJECT_QP] = "qp", [VB_INJECT_ANY] = "any",
};

struct line {
	char text[VB_INJECT_LINE + 1];
	char *word[WORDS];
	unsigned int count, next;
	char *words; /* of the error */
	size_t size;
};

static int __attribute__((format(printf, 2, 3))) bad(struct line *line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(line->words, line->size, format, args);
	va_end(args);
	return -EINVAL;
}

/* The next word; "" where there is none. */
static const char *inject_parse_take(struct line *line)
{
	return line->next < line->count ? line->word[line->next++] : "";
}

/* A number of at most max, decimal or with 0x; nothing behind it. */
static bool inject_parse_number(const char *text, uint64_t max, uint64_t *value)
{
	bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	const char *digits = hex ? "0123456789abcdefABCDEF" : "0123456789";
	char *end;

	if (hex)
		text += 2;
	if (!*text || strlen(text) > 19 || strspn(text, digits) != strlen(text))
		return false;
	errno = 0;
	*value = strtoull(text, &end, hex ? 16 : 10);
	return !errno && *value <= max;
}

static int inject_parse_take_number(struct line *line, const char *what, uint64_t min, uint64_t max,
				    uint32_t *value)
{
	const char *text = inject_parse_take(line);
	uint64_t n;

	if (!inject_parse_number(text, max, &n) || n < min)
		return bad(line, "%s: '%s' is not a number from %llu to %llu", what, text,
			   (unsigned long long)min, (unsigned long long)max);
	*value = (uint32_t)n;
	return 0;
}

/* 200ms, 1s, 50us */
static int take_time(struct line *line, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = { { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
	char text[VB_INJECT_LINE + 1];
	size_t digits;
	uint64_t n;

	snprintf(text, sizeof(text), "%s", inject_parse_take(line));
	digits = strspn(text, "0123456789");
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(text + digits, units[i].name))
			continue;
		text[digits] = '\0';
		if (!inject_parse_number(text, 1000000000, &n))
			break;
		*ns = n * units[i].ns;
		return 0;
	}
	return bad(line, "at: '%s' is not a time, such as 200ms, 50us or 1s", text);
}

static int parse_port(struct line *line, struct vb_inject *fault)
{
	int ret = inject_parse_take_number(line, "port", 1, 255, &fault->number);
	const char *how;

	if (ret)
		return ret;
	how = inject_parse_take(line);
	fault->kind = VB_INJECT_PORT;
	fault->up = !strcmp(how, "up");
	if (!fault->up && strcmp(how, "down"))
		return bad(line, "port: '%s' is neither down nor up", how);
	return 0;
}

static int take_which(struct line *line, struct vb_inject *fault)
{
	const char *text = inject_parse_take(line);
	uint64_t n;

	if (!strcmp(text, "all")) {
		fault->which = VB_INJECT_ALL;
		return 0;
	}
	fault->which = *text == '#' ? VB_INJECT_NTH : VB_INJECT_NUMBER;
	if (!inject_parse_number(text + (*text == '#'), 0xffffff, &n) || !n)
		return bad(line, "qp: '%s' is not a number, #1, #2, ... or all", text);
	fault->number = (uint32_t)n;
	return 0;
}

static int take_status(struct line *line, struct vb_inject *fault)
{
	const char *text = inject_parse_take(line);

	if (!strcmp(text, "recv")) {
		fault->kind = VB_INJECT_QP_RECV;
		text = inject_parse_take(line);
	}
	if (!strncasecmp(text, "IBV_WC_", 7))
		text += 7;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		if (strcasecmp(text, statuses[i].name))
			continue;
		fault->status = statuses[i].status;
		return 0;
	}
	return bad(line,
		   "next: '%s' is not the status of a failed work request, such as RETRY_EXC_ERR",
		   text);
}

static int parse_qp(struct line *line, struct vb_inject *fault)
{
	int ret = take_which(line, fault);
	const char *what;

	if (ret)
		return ret;
	what = inject_parse_take(line);
	fault->kind = VB_INJECT_QP_ERROR;
	if (!strcmp(what, "error"))
		return 0;
	fault->kind = VB_INJECT_QP_NEXT;
	if (!strcmp(what, "next"))
		return take_status(line, fault);
	return bad(line, "qp: '%s' is neither error nor next", what);
}

static int parse_fatal(struct line *line, struct vb_inject *fault)
{
	fault->kind = VB_INJECT_FATAL;
	return 0;
}

static int parse_fail(struct line *line, struct vb_inject *fault)
{
	const char *what = inject_parse_take(line);
	unsigned int i = 0;

	while (i < VB_INJECT_OBJECTS && strcmp(what, objects[i]))
		i++;
	if (i == VB_INJECT_OBJECTS)
		return bad(line, "fail: '%s' is none of pd, mr, cq, srq, qp and any", what);
	fault->kind = VB_INJECT_FAIL;
	fault->object = (enum vb_inject_object)i;
	return inject_parse_take_number(line, "fail", 0, COUNT_MAX, &fault->count);
}

static int parse_eu(struct line *line, struct vb_inject *fault)
{
	int ret = inject_parse_take_number(line, "eu", 0, 4095, &fault->number);
	const char *how;

	if (ret)
		return ret;
	how = inject_parse_take(line);
	fault->kind = VB_INJECT_EU;
	if (!strcmp(how, "slow"))
		return inject_parse_take_number(line, "slow", 2, SLOW_MAX, &fault->slow);
	fault->slow = strcmp(how, "stuck") ? 0 : VB_INJECT_STUCK;
	if (!fault->slow && strcmp(how, "normal"))
		return bad(line, "eu: '%s' is none of stuck, slow and normal", how);
	return 0;
}

static const struct {
	const char *name;
	int (*parse)(struct line *line, struct vb_inject *fault);
} faults_by_name[] = {
	{ "port", parse_port }, { "qp", parse_qp }, { "fatal", parse_fatal },
	{ "fail", parse_fail }, { "eu", parse_eu },
};

static int parse_fault(struct line *line, struct vb_inject *fault)
{
	const char *word = inject_parse_take(line);
	int ret = 0;

	if (!strcmp(word, "at")) {
		fault->timed = true;
		ret = take_time(line, &fault->at_ns);
		word = inject_parse_take(line);
	}
	if (ret)
		return ret;
	if (!*word || strlen(word) >= sizeof(fault->card))
		return bad(line, "'%s' is not the name of a card", word);
	strcpy(fault->card, word);
	word = inject_parse_take(line);
	for (size_t i = 0; i < sizeof(faults_by_name) / sizeof(faults_by_name[0]); i++)
		if (!strcmp(word, faults_by_name[i].name))
			return faults_by_name[i].parse(line, fault);
	return bad(line, "'%s' is none of port, qp, fatal, fail and eu", word);
}

/* What follows a # at the start of a word that is no #K is a comment. */
static void inject_parse_cut(struct line *line)
{
	char *rest = line->text, *word;

	while ((word = strsep(&rest, " \t\r\n"))) {
		if (!*word)
			continue;
		if (*word == '#' && strspn(word + 1, "0123456789") != strlen(word) - 1)
			return;
		if (!strcmp(word, "#"))
			return;
		if (line->count == WORDS) {
			line->count++;
			return;
		}
		line->word[line->count++] = word;
	}
}

int vb_inject_parse(const char *text, struct vb_inject *fault, char *words, size_t size)
{
	struct line line = { .words = words, .size = size };
	struct vb_inject found = { 0 };
	size_t len = strnlen(text, VB_INJECT_LINE + 1);
	int ret;

	if (len > VB_INJECT_LINE)
		return bad(&line, "a line has more than %d characters", VB_INJECT_LINE);
	memcpy(line.text, text, len);
	inject_parse_cut(&line);
	if (!line.count)
		return 1;
	ret = line.count > WORDS ? bad(&line, "too many words") : parse_fault(&line, &found);
	if (!ret && line.next < line.count)
		ret = bad(&line, "'%s' is one word too many", line.word[line.next]);
	if (!ret)
		*fault = found;
	return ret;
}

/* --- scripts ---------------------------------------------------------------------------------- */

/*
 * The next line without its end: 1, 0 at the end of the file, or -errno and words. One that is too long
 * is cut to a length that is too long for vb_inject_parse(), too.
 */
static int inject_parse_next_line(FILE *f, char text[VB_INJECT_LINE + 2], char *words, size_t size)
{
	int len = 0, c;

	while ((c = getc(f)) != EOF && c != '\n') {
		if (!c) {
			snprintf(words, size, "there is a NUL character");
			return -EINVAL;
		}
		if (len <= VB_INJECT_LINE)
			text[len++] = (char)c;
	}
	text[len] = '\0';
	if (ferror(f)) {
		snprintf(words, size, "%s", strerror(errno));
		return -EIO;
	}
	return len || c == '\n';
}

/* Behind those of the same time. */
static void inject_parse_insert(struct vb_inject *faults, int count, const struct vb_inject *fault)
{
	while (count && faults[count - 1].at_ns > fault->at_ns) {
		faults[count] = faults[count - 1];
		count--;
	}
	faults[count] = *fault;
}

static int inject_parse_read_lines(FILE *f, const char *file, struct vb_inject *faults, char *words,
				   size_t size)
{
	char text[VB_INJECT_LINE + 2], why[160];
	struct vb_inject fault;
	int count = 0, ret;

	for (int n = 1; (ret = inject_parse_next_line(f, text, why, sizeof(why))); n++) {
		if (ret > 0)
			ret = vb_inject_parse(text, &fault, why, sizeof(why));
		if (ret < 0) {
			snprintf(words, size, "%s:%d: %s", file, n, why);
			return ret;
		}
		if (!ret && count == VB_INJECT_LINES) {
			snprintf(words, size, "%s:%d: more than %d faults", file, n,
				 VB_INJECT_LINES);
			return -E2BIG;
		}
		if (!ret)
			inject_parse_insert(faults, count++, &fault);
	}
	return count;
}

int vb_inject_read(const char *file, struct vb_inject **out, char *words, size_t size)
{
	struct vb_inject *faults = calloc(VB_INJECT_LINES, sizeof(*faults));
	/* A pipe that nobody writes to must not hold the program up. */
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), ret;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	struct stat st;

	if (!faults || !f)
		ret = f ? -ENOMEM : -errno;
	else
		ret = fstat(fileno(f), &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
	if (ret)
		snprintf(words, size, "%s: %s", file,
			 ret == -EINVAL ? "not a regular file" : strerror(-ret));
	else
		ret = inject_parse_read_lines(f, file, faults, words, size);
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	if (ret < 0)
		free(faults);
	else
		*out = faults;
	return ret;
}
