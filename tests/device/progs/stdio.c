// SPDX-License-Identifier: MIT
/* Device code: standard IO. Run by ../stdio.c. */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <dpaintrin.h>

#include <libflexio-dev/flexio_dev.h>

#define RPC __attribute__((used, retain))

/* ---- formats ---- */

RPC void formats_printf(void)
{
#define FORMAT(...)          \
	printf(__VA_ARGS__); \
	printf("\n");
#include "formats.inc"
#undef FORMAT
}

RPC void formats_msg(void)
{
#define FORMAT(...)                    \
	flexio_dev_print(__VA_ARGS__); \
	flexio_dev_print("\n");
#include "formats.inc"
#undef FORMAT
}

RPC void formats_snprintf(void)
{
	char text[512];

#define FORMAT(...)                                \
	snprintf(text, sizeof(text), __VA_ARGS__); \
	puts(text);
#include "formats.inc"
#undef FORMAT
}

/* ---- the example of the manual, with its device registers as variables ---- */

static char uart[256];
static unsigned int uart_used;
#define UDR                           uart[uart_used++]
#define loop_until_bit_is_set(reg, b) ((void)0)
#define init_uart()                   (uart_used = 0)

static int uart_putchar(char c, FILE *stream);

static FILE mystdout = FDEV_SETUP_STREAM(uart_putchar, NULL, _FDEV_SETUP_WRITE);

static int uart_putchar(char c, FILE *stream)
{
	if (c == '\n')
		uart_putchar('\r', stream);
	loop_until_bit_is_set(UCSRA, UDRE);
	UDR = c;
	return 0;
}

RPC int example(void)
{
	init_uart();
	stdout = &mystdout;
	printf("Hello, world!\n");

	return 0;
}

RPC int example_result(void)
{
	return uart_used == 15 && !memcmp(uart, "Hello, world!\r\n", 15);
}

/* ---- streams ---- */

static char sink[64];
static unsigned int sunk, flushed;

static int sink_put(char c, FILE *stream)
{
	(void)stream;
	if (sunk == sizeof(sink))
		return _FDEV_ERR;
	sink[sunk++] = c;
	return 0;
}

static const char *source = "17 words";

static int source_get(FILE *stream)
{
	(void)stream;
	return *source ? *source++ : _FDEV_EOF;
}

static int sink_flush(FILE *stream)
{
	(void)stream;
	flushed++;
	return 0;
}

static FILE with_flush = FDEV_SETUP_STREAM(sink_put, source_get, sink_flush, _FDEV_SETUP_RW);
static FILE without = FDEV_SETUP_STREAM(NULL, source_get, _FDEV_SETUP_READ);

/* Each step is a bit of the result, so that the host sees which one is wrong. */
RPC uint64_t streams(void)
{
	uint64_t ok = 0;
	FILE made, *opened;
	char word[16] = "";
	int number = 0;

	sunk = flushed = 0;
	ok |= (uint64_t)(fprintf(&with_flush, "%d-%s", 5, "x") == 3 && sunk == 3 &&
			 !memcmp(sink, "5-x", 3));
	ok |= (uint64_t)(fflush(&with_flush) == 0 && flushed == 1) << 1;
	ok |= (uint64_t)(fscanf(&with_flush, "%d %15s", &number, word) == 2 && number == 17 &&
			 !strcmp(word, "words"))
	      << 2;
	ok |= (uint64_t)(fgetc(&with_flush) == EOF && feof(&with_flush)) << 3;
	clearerr(&with_flush);
	ok |= (uint64_t)(!feof(&with_flush) && !ferror(&with_flush)) << 4;
	ok |= (uint64_t)(fprintf(&without, "no") < 0) << 5; /* not open for writing */

	fdev_setup_stream(&made, sink_put, NULL, _FDEV_SETUP_WRITE);
	sunk = 0;
	ok |= (uint64_t)(fputs("four", &made) >= 0 && sunk == 4) << 6;
	fdev_setup_stream(&made, sink_put, NULL, sink_flush, _FDEV_SETUP_WRITE);
	ok |= (uint64_t)(fputc('5', &made) == '5' && sunk == 5 && !fdev_close(&made) &&
			 flushed == 2)
	      << 7;

	opened = fdevopen(sink_put, NULL);
	ok |= (uint64_t)(opened && fprintf(opened, "!") == 1 && sunk == 6) << 8;
	ok |= (uint64_t)(opened && !fclose(opened)) << 9;
	opened = fdevopen(sink_put, source_get, sink_flush);
	ok |= (uint64_t)(opened && putc('+', opened) == '+' && sunk == 7) << 10;
	if (opened)
		fclose(opened);

	sunk = sizeof(sink);
	ok |= (uint64_t)(fputc('x', &made) == EOF) << 11;
	ok |= (uint64_t)(sizeof(struct __file) == sizeof(FILE) && _FDEV_EOF == -2 && EOF == -1)
	      << 12;
	ok |= (uint64_t)(getchar() == EOF) << 13; /* there is no input */
	return ok;
}

static int bad_get(FILE *stream)
{
	(void)stream;
	return _FDEV_ERR;
}

static FILE failing = FDEV_SETUP_STREAM(sink_put, bad_get, _FDEV_SETUP_RW);

/* Flags of streams, and what functions return where the device fails. */
RPC uint64_t flags(void)
{
	static const char *const again = "z";
	FILE made;
	uint64_t ok = 0;

	sunk = flushed = 0;
	source = "";
	ok |= (uint64_t)(fgetc(&with_flush) == EOF && feof(&with_flush) && !ferror(&with_flush));
	/* only clearerr() takes the flag back, not what is read or written meanwhile */
	source = again;
	ok |= (uint64_t)(fputc('a', &with_flush) == 'a' && feof(&with_flush)) << 1;
	clearerr(&with_flush);
	ok |= (uint64_t)(!feof(&with_flush) && fgetc(&with_flush) == 'z') << 2;
	/* an error of the device is not the end of the file */
	ok |= (uint64_t)(fgetc(&failing) == EOF && ferror(&failing) && !feof(&failing)) << 3;
	ok |= (uint64_t)(fputc('b', &failing) == 'b' && ferror(&failing)) << 4;
	clearerr(&failing);
	ok |= (uint64_t)!ferror(&failing) << 5;
	/* a stream without a function to flush */
	fdev_setup_stream(&made, sink_put, NULL, _FDEV_SETUP_WRITE);
	ok |= (uint64_t)(fflush(&made) == 0 && flushed == 0) << 6;
	sunk = 0;
	ok |= (uint64_t)(fputs("ab\n", &made) == 0 && sunk == 3 && sink[2] == '\n') << 7;
	sunk = sizeof(sink) - 1;
	ok |= (uint64_t)(fputs("ab", &made) == EOF) << 8;
	ok |= (uint64_t)(fprintf(&without, "no") == EOF && fputs("no", &without) == EOF) << 9;
	ok |= (uint64_t)(fclose(&made) == 0) << 10; /* harmless */
	return ok;
}

static int vboth(char **allocated, char *text, size_t size, const char *format, ...)
{
	va_list ap;
	int a, b;

	va_start(ap, format);
	a = vasprintf(allocated, format, ap);
	va_end(ap);
	va_start(ap, format);
	b = vsnprintf(text, size, format, ap);
	va_end(ap);
	return a == b ? a : -1;
}

static int vshow(char *text, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	vsprintf(text, format, ap);
	va_end(ap);
	va_start(ap, format);
	n = vprintf(format, ap);
	va_end(ap);
	return n;
}

RPC uint64_t family(void)
{
	char text[32], *allocated = NULL, *other = NULL;
	uint64_t ok = 0;

	ok |= (uint64_t)(asprintf(&allocated, "%s %d", "number", 12345) == 12 &&
			 !strcmp(allocated, "number 12345"));
	ok |= (uint64_t)(snprintf(text, 5, "%s", "truncated") == 9 && !strcmp(text, "trun")) << 1;
	ok |= (uint64_t)(snprintf(NULL, 0, "%d", 1000) == 4) << 2;
	ok |= (uint64_t)(sprintf(text, "%c%s", 'a', "bc") == 3 && !strcmp(text, "abc")) << 3;
	ok |= (uint64_t)(vboth(&other, text, sizeof(text), "%x", 255) == 2 && !strcmp(text, "ff") &&
			 !strcmp(other, "ff"))
	      << 4;
	ok |= (uint64_t)(vshow(text, "%s\n", "shown") == 6 && !strcmp(text, "shown\n")) << 5;
	ok |= (uint64_t)(fprintf(stderr, "to stderr\n") == 10) << 6;
	ok |= (uint64_t)(puts("puts") >= 0 && fputs("fputs\n", stdout) >= 0 &&
			 putchar('c') == 'c' && putc('\n', stdout) == '\n')
	      << 7;
	/* as the manual has it, other than C: no digit where an explicit precision of 0 meets 0 */
	ok |= (uint64_t)(snprintf(text, sizeof(text), "%#.0o|%p", 0, (void *)0xbeef) == 7 &&
			 !strcmp(text, "|0xbeef"))
	      << 8;
	free(allocated);
	free(other);
	return ok;
}

/* stderr is where stdout is, unless a program defines it: also after stdout was assigned, and back again. */
RPC uint64_t follows(void)
{
	FILE *before = stdout, mine;
	uint64_t ok = 0;

	fdev_setup_stream(&mine, sink_put, NULL, sink_flush, _FDEV_SETUP_WRITE);
	sunk = flushed = 0;
	stdout = &mine;
	ok |= (uint64_t)(fprintf(stderr, "e%d", 1) == 2 && sunk == 2 && !memcmp(sink, "e1", 2));
	ok |= (uint64_t)(fputs("ab", stderr) >= 0 && sunk == 4) << 1;
	ok |= (uint64_t)(!fflush(stderr) && flushed == 1) << 2;
	sunk = sizeof(sink);
	ok |= (uint64_t)(fputc('x', stderr) == EOF)
	      << 3; /* what mine cannot take is an error there, too */
	clearerr(stderr);
	stdout = before;
	ok |= (uint64_t)(fprintf(stderr, "back\n") == 5) << 4;
	stdout = stderr; /* no circle */
	ok |= (uint64_t)(printf("itself\n") == 7 && fprintf(stderr, "too\n") == 4) << 5;
	stdout = before;
	return ok;
}

/* ---- %S: the manual's string in program memory, which is memory like any other ---- */

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat"
static int vwide(char *text, size_t size, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, size, format, ap);
	va_end(ap);
	return n;
}

RPC uint64_t program_strings(void)
{
	static char padding[600];
	char text[64], *format = NULL;
	uint64_t ok = 0;

	printf("%S|%-6S|%6S|%.2S|%%S|%d\n", "rom", "left", "right", "cut", 7);
	flexio_dev_print("%S %s\n", "message", "S");
	ok |= (uint64_t)(snprintf(text, sizeof(text), "%S%c%S", "a", 'S', "b") == 3 &&
			 !strcmp(text, "aSb"));
	ok |= (uint64_t)(vwide(text, sizeof(text), "%*S", 4, "x") == 4 && !strcmp(text, "   x"))
	      << 1;
	/* a format that is longer than what is kept on the stack */
	memset(padding, 'S', sizeof(padding) - 1);
	ok |= (uint64_t)(asprintf(&format, "%s%%S", padding) == 601) << 2;
	ok |= (uint64_t)(format && snprintf(text, sizeof(text), format, "end") == 602) << 3;
	ok |= (uint64_t)(snprintf(text, sizeof(text), "%", 0) >= 0) << 4; /* cut short: no harm */
	free(format);
	return ok;
}

/* 0 pads every conversion, h and hh are ignored; both also where other conversions are around. */
RPC uint64_t manual_formats(void)
{
	static const struct {
		const char *format, *want;
		long arg;
	} rows[] = {
		{ "%05s", "000ab", (long)"ab" },
		{ "%-05s|", "ab   |", (long)"ab" },
		{ "%05.1s", "0000a", (long)"ab" },
		{ "%1s", "ab", (long)"ab" },
		{ "%03c", "00x", 'x' },
		{ "%-03c|", "x  |", 'x' },
		{ "%05S", "000ab", (long)"ab" },
		{ "%hd", "70000", 70000 },
		{ "%hhd", "300", 300 },
		{ "%hhhd", "300", 300 },
		{ "%hu", "70000", 70000 },
		{ "%hhx", "1ff", 0x1ff },
		{ "%#08hx", "0x0001ff", 0x1ff },
		{ "%+hd", "+5", 5 },
		{ "%-6hd|", "-5    |", -5 },
		{ "%.4hd", "0300", 300 },
		{ "%08.4hd", "    0300", 300 },
		{ "%h", "", 0 },
		{ "%%%05s%%", "%000ab%", (long)"ab" },
	};
	char text[64];
	uint64_t bad = 0;

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (snprintf(text, sizeof(text), rows[i].format, rows[i].arg) !=
			    (int)strlen(rows[i].want) ||
		    strcmp(text, rows[i].want))
			bad |= 1ULL << i;
	if (snprintf(text, sizeof(text), "%hd %ld %05s %*d %-*s| %.*f %lld %c %p", 70000, -1L, "a",
		     4, 7, 3, "b", 1, 2.5, 1LL << 40, 'q', (void *)16) != 49 ||
	    strcmp(text, "70000 -1 0000a    7 b  | 2.5 1099511627776 q 0x10"))
		bad |= 1ULL << 40;
	printf("%03s|%hd\n", "x", 100000);
	flexio_dev_print("%03s|%hd\n", "y", 100000);
	return bad;
}

static unsigned int all_flushed;

static int count_flush(FILE *file)
{
	all_flushed++;
	return 0;
}

static int flush_fails(FILE *file)
{
	return EOF;
}

static int take_char(char c, FILE *file)
{
	return (unsigned char)c;
}

/* fflush(NULL): all streams that are known, and the line that was begun. */
RPC uint64_t flush_all(void)
{
	static FILE counting = FDEV_SETUP_STREAM(take_char, NULL, count_flush, _FDEV_SETUP_WRITE);
	static FILE failing = FDEV_SETUP_STREAM(take_char, NULL, flush_fails, _FDEV_SETUP_WRITE);
	FILE *before = stdout;
	uint64_t ok = 0;

	printf("begun");
	stdout = &counting;
	ok |= (uint64_t)(fflush(NULL) == 0);
	ok |= (uint64_t)(all_flushed >= 1) << 1;
	stdout = &failing;
	ok |= (uint64_t)(fflush(NULL) == EOF) << 2;
	stdout = before;
	ok |= (uint64_t)(fflush(NULL) == 0) << 3;
	return ok;
}
#pragma clang diagnostic pop

/* ---- lines ---- */

RPC void partial(void)
{
	printf("one ");
	printf("line\n");
	printf("no newline");
}

RPC void partial_then_flush(void)
{
	printf("flushed");
	fflush(stdout);
}

RPC void partial_then_msg(void)
{
	printf("first ");
	flexio_dev_print("second\n");
}

RPC void partial_then_end(void)
{
	printf("last words");
	flexio_dev_thread_reschedule();
}

RPC void partial_then_fault(void)
{
	printf("before the fault");
	*(volatile int *)8 = 0;
}

RPC void long_line(uint64_t length)
{
	for (uint64_t i = 0; i < length; i++)
		putchar((int)('a' + i % 26));
	putchar('\n');
}

/* ---- string.h: the list of the manual ---- */

RPC uint64_t strings(void)
{
	char a[32] = "alpha", b[32];
	uint64_t ok = 0;
	unsigned int n = 0;

#define CHECK(x) (ok |= (uint64_t) !!(x) << n++)
	CHECK(memchr(a, 'p', 5) == a + 2);
	CHECK(memcmp("abc", "abd", 3) < 0);
	CHECK(memcpy(b, a, 6) == b && !strcmp(b, "alpha"));
	CHECK(memmove(b + 1, b, 6) == b + 1 && !strcmp(b, "aalpha"));
	CHECK(memset(b, 'z', 3) == b && !memcmp(b, "zzzpha", 6));
	CHECK(!strcmp(strcat(a, "bet"), "alphabet"));
	CHECK(strchr(a, 'b') == a + 5);
	CHECK(strcoll("a", "b") < 0);
	CHECK(!strcmp(strcpy(b, a), a));
	CHECK(strcspn(a, "xp") == 2);
	CHECK(strerror(EINVAL) && strlen(strerror(EINVAL)) > 0);
	CHECK(strlen(a) == 8);
	CHECK(!strcmp(strncat(b, "ical", 2), "alphabetic"));
	CHECK(!strncmp(a, b, 8));
	CHECK(!memcmp(strncpy(b, "ab", 4), "ab\0\0", 4));
	CHECK(strpbrk(a, "th") == a + 3);
	CHECK(strrchr(a, 'a') == a + 5 - 1);
	CHECK(strspn(a, "lap") == 3);
	CHECK(strstr(a, "bet") == a + 5);
	CHECK(strxfrm(b, "abc", sizeof(b)) == 3);
	return ok;
}

/* ---- our own memory functions, against loops ---- */

#define AREA 192
static unsigned char area[2][AREA];

static void paint(unsigned int seed)
{
	for (unsigned int i = 0; i < AREA; i++)
		area[0][i] = area[1][i] = (unsigned char)(seed + i * 7 + (i >> 3));
}

static int differs(void)
{
	for (unsigned int i = 0; i < AREA; i++)
		if (area[0][i] != area[1][i])
			return 1;
	return 0;
}

/* Every length to 80 at every pair of alignments: apart, and overlapping by every distance to 40. */
RPC uint64_t memory(void)
{
	uint64_t bad = 0;

	for (size_t n = 0; n <= 80; n++)
		for (size_t to = 0; to < 9; to++)
			for (size_t from = 0; from < 9; from++) {
				volatile unsigned char *v = area[1];

				paint((unsigned int)n);
				bad += memcpy(area[0] + to, area[0] + 100 + from, n) !=
				       area[0] + to;
				for (size_t i = 0; i < n; i++)
					v[to + i] = v[100 + from + i];
				bad += (uint64_t)differs();
				bad += memset(area[0] + to, (int)(0x100 + from), n) != area[0] + to;
				for (size_t i = 0; i < n; i++)
					v[to + i] = (unsigned char)from;
				bad += (uint64_t)differs();
			}
	for (size_t n = 0; n <= 80; n++)
		for (int by = -40; by <= 40; by++) {
			volatile unsigned char *v = area[1];

			paint((unsigned int)n);
			memmove(area[0] + 50 + by, area[0] + 50, n);
			for (size_t i = 0; i < n; i++)
				if (by < 0)
					v[50 + by + i] = v[50 + i];
				else
					v[50 + by + n - 1 - i] = v[50 + n - 1 - i];
			bad += (uint64_t)differs();
		}
	return bad;
}

RPC uint64_t comparing(void)
{
	uint64_t bad = 0;

	for (size_t n = 1; n <= 40; n++)
		for (size_t at = 0; at < n; at++) {
			memset(area, 0x80, sizeof(area));
			bad += memcmp(area[0] + 1, area[1] + 3, n) != 0;
			area[0][1 + at] = 0x7f;
			bad += memcmp(area[0] + 1, area[1] + 3, n) >= 0;
			area[0][1 + at] = 0xff;
			bad += memcmp(area[0] + 1, area[1] + 3, n) <= 0;
			area[0][1 + at] = 0;
			area[0][1 + n] = 0;
			bad += strlen((char *)area[0] + 1) != at;
			area[0][1 + at] = 1; /* which the trick with words could take for the end */
			bad += strlen((char *)area[0] + 1) != n;
		}
	return bad;
}

static char from4k[4096 + 8], to4k[4096 + 8];

/* Instructions to copy 4 KiB between odd addresses. */
RPC uint64_t copy_cost(void)
{
	uint64_t before = __dpa_thread_inst_ret();

	memcpy(to4k + 3, from4k + 5, 4096);
	return __dpa_thread_inst_ret() - before;
}

/* ---- ends of the C library ---- */

static void at_end(void)
{
	printf("at exit\n");
}

RPC void end_atexit(void)
{
	atexit(at_end);
	exit(5);
}

RPC void end_exit(uint64_t code)
{
	printf("leaving");
	_Exit((int)code);
}

RPC void end_abort(void)
{
	abort();
}

RPC void end_assert(void)
{
	assert(1 + 1 == 3);
}

RPC uint64_t exhaust(void)
{
	void *last = NULL;
	uint64_t blocks = 0;

	for (size_t size = 100000; size >= 10; size /= 10)
		for (void *p; (p = malloc(size)); blocks += size == 100000) {
			*(void **)p = last;
			last = p;
		}
	if (errno != ENOMEM)
		return 0;
	/* A message that needs memory comes nevertheless, in pieces. */
	if (flexio_dev_print("%0300d|%s\n", 7, "end") != 305)
		return 0;
	while (last) {
		void *next = *(void **)last;

		free(last);
		last = next;
	}
	last = malloc(100000);
	free(last);
	return last ? blocks : 0;
}
