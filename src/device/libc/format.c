// SPDX-License-Identifier: MIT
/*
 * What the manual's formats have beyond picolibc's:
 *
 *	%S      a string in program memory. On the DPA that is memory like any other, so %S is %s
 *	0       pads strings and characters with zeros, too
 *	h, hh   are ignored: the argument is an int, and all of it is printed
 *
 * Programs are linked with --wrap=vfprintf, behind which all of printf ends up here. A format with
 * none of the three goes to picolibc as it is; of others each conversion goes there by itself.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SPEC 64 /* flags, two numbers, length and letter */

int __real_vfprintf(FILE *stream, const char *format, va_list ap);
int __wrap_vfprintf(FILE *stream, const char *format, va_list ap);

struct conversion {
	char flags[8];        /* each once, with an end */
	bool left, zero;      /* of the flags */
	int width, precision; /* -1: none */
	char length[4];       /* without h */
	bool has_h;
	char letter; /* 0: the format ends before */
};

/* A number in the format, or the argument for an asterisk if there are arguments. -1: none. */
static int number(const char **at, va_list *ap)
{
	int n = -1;

	if (**at == '*') {
		++*at;
		return ap ? va_arg(*ap, int) : 0;
	}
	for (; **at >= '0' && **at <= '9'; ++*at)
		n = (n < 0 ? 0 : n > 100000 ? n : n * 10) + (**at - '0');
	return n;
}

static void parse_flags(const char **at, struct conversion *c)
{
	size_t n = 0;

	for (; **at && strchr("#0-+ '", **at); ++*at) {
		c->left |= **at == '-';
		c->zero |= **at == '0';
		if (!strchr(c->flags, **at) && n + 1 < sizeof(c->flags))
			c->flags[n++] = **at;
	}
}

/* at is behind the percent sign; behind the conversion afterwards. */
static void parse(const char **at, struct conversion *c, va_list *ap)
{
	size_t n = 0;

	*c = (struct conversion){ .precision = -1 };
	parse_flags(at, c);
	c->width = number(at, ap);
	if (c->width < -1) {
		c->left = true;
		c->width = -c->width;
		if (!strchr(c->flags, '-'))
			strcat(c->flags, "-");
	}
	if (**at == '.') {
		++*at;
		c->precision = number(at, ap);
		if (c->precision < 0 && (*at)[-1] == '.')
			c->precision = 0;
	}
	for (; **at && strchr("hlLqjzt", **at); ++*at) {
		c->has_h |= **at == 'h';
		if (**at != 'h' && n + 1 < sizeof(c->length))
			c->length[n++] = **at;
	}
	c->letter = **at;
	if (c->letter)
		++*at;
}

static bool is_text(const struct conversion *c)
{
	return !c->length[0] && (c->letter == 's' || c->letter == 'c');
}

static bool is_ours(const char *format)
{
	struct conversion c;

	while ((format = strchr(format, '%'))) {
		format++;
		parse(&format, &c, NULL);
		if (c.letter == 'S' || c.has_h || (c.zero && c.width > 0 && is_text(&c)))
			return true;
	}
	return false;
}

static int real(FILE *stream, const char *spec, ...)
{
	va_list ap;
	int n;

	va_start(ap, spec);
	n = __real_vfprintf(stream, spec, ap);
	va_end(ap);
	return n;
}

/* Zeros on the left, unless the flag for the other side is given. */
static int put_text(FILE *stream, const struct conversion *c, const char *text, size_t len)
{
	int pad = c->width > (int)len ? c->width - (int)len : 0, n = pad + (int)len;
	bool zeros = c->zero && !c->left;

	for (; !c->left && pad; pad--)
		if (fputc(zeros ? '0' : ' ', stream) == EOF)
			return EOF;
	for (; len; len--, text++)
		if (fputc(*text, stream) == EOF)
			return EOF;
	for (; pad; pad--)
		if (fputc(' ', stream) == EOF)
			return EOF;
	return n;
}

static size_t text_length(const struct conversion *c, const char *text)
{
	return c->precision < 0 ? strlen(text) : strnlen(text, (size_t)c->precision);
}

/* %, flags, *, length, letter; with .* in between if there is a precision. */
static void make_spec(char *spec, const struct conversion *c)
{
	*spec++ = '%';
	for (const char *f = c->flags; *f;)
		*spec++ = *f++;
	*spec++ = '*';
	if (c->precision >= 0) {
		*spec++ = '.';
		*spec++ = '*';
	}
	for (const char *l = c->length; *l;)
		*spec++ = *l++;
	*spec++ = c->letter;
	*spec = 0;
}

#define REAL(stream, spec, c, arg)                                          \
	((c)->precision < 0                                                 \
		 ? real(stream, spec, (c)->width > 0 ? (c)->width : 0, arg) \
		 : real(stream, spec, (c)->width > 0 ? (c)->width : 0, (c)->precision, arg))

/* A conversion that picolibc knows. */
static int put_other(FILE *stream, const struct conversion *c, va_list *ap)
{
	char spec[SPEC];

	make_spec(spec, c);
	if (strchr("eEfFgGaA", c->letter)) {
		if (c->length[0] == 'L') {
			long double wide = va_arg(*ap, long double);

			return REAL(stream, spec, c, wide);
		} else {
			double value = va_arg(*ap, double);

			return REAL(stream, spec, c, value);
		}
	}
	if (c->length[0] || c->letter == 'p' || c->letter == 'n') {
		long word = va_arg(*ap, long);

		return REAL(stream, spec, c, word);
	} else {
		int word = va_arg(*ap, int);

		return REAL(stream, spec, c, word);
	}
}

static int put(FILE *stream, struct conversion *c, va_list *ap)
{
	const char *text;
	char letter;

	switch (c->letter) {
	case '%':
		return put_text(stream, &(struct conversion){ 0 }, "%", 1);
	case 'S':
		c->length[0] = 0;
		c->letter = 's';
		break;
	default:
		break;
	}
	if (!is_text(c))
		return put_other(stream, c, ap);
	if (c->letter == 'c') {
		letter = (char)va_arg(*ap, int);
		return put_text(stream, c, &letter, 1);
	}
	text = va_arg(*ap, const char *);
	text = text ? text : "(null)";
	return put_text(stream, c, text, text_length(c, text));
}

static int put_all(FILE *stream, const char *format, va_list *ap)
{
	struct conversion c;
	int total = 0, n = 0;

	while (*format && n >= 0) {
		size_t plain = strcspn(format, "%");

		n = put_text(stream, &(struct conversion){ 0 }, format, plain);
		total += n;
		format += plain;
		if (n < 0 || !*format)
			break;
		format++;
		parse(&format, &c, ap);
		n = c.letter ? put(stream, &c, ap) : 0;
		total += n;
	}
	return n < 0 ? n : total;
}

int __wrap_vfprintf(FILE *stream, const char *format, va_list ap)
{
	va_list copy;
	int n;

	if (!is_ours(format))
		return __real_vfprintf(stream, format, ap);
	if (!(stream->flags & __SWR))
		return EOF;
	va_copy(copy, ap);
	n = put_all(stream, format, &copy);
	va_end(copy);
	return n;
}
