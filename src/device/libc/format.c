// SPDX-License-Identifier: MIT
/*
 * %S of the manual: a string in program memory. On the DPA that is memory like any other, so %S is
 * %s; to picolibc it would be a wide string. Programs are linked with --wrap=vfprintf, behind which
 * all of printf ends up here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT 256

int __real_vfprintf(FILE *stream, const char *format, va_list ap);
int __wrap_vfprintf(FILE *stream, const char *format, va_list ap);

/* The letter of the conversion that begins at the percent sign, or the end of the string. */
static char *conversion(char *at)
{
	at++;
	return at + strspn(at, "#0-+ '*.123456789hlLqjzt");
}

static void replace(char *format)
{
	while ((format = strchr(format, '%'))) {
		format = conversion(format);
		if (!*format)
			return;
		if (*format == 'S')
			*format = 's';
		format++;
	}
}

int __wrap_vfprintf(FILE *stream, const char *format, va_list ap)
{
	char text[SHORT], *copy = text;
	size_t size;
	int n;

	if (!strchr(format, 'S'))
		return __real_vfprintf(stream, format, ap);
	size = strlen(format) + 1;
	if (size > SHORT)
		copy = malloc(size);
	if (!copy)
		return EOF;
	memcpy(copy, format, size);
	replace(copy);
	n = __real_vfprintf(stream, copy, ap);
	if (copy != text)
		free(copy);
	return n;
}
