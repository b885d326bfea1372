// SPDX-License-Identifier: MIT
/*
 * Owns the text of C types, as far as they can be passed from the host to device code: one word for
 * the result and the parameters of a function, without blanks, because it travels in .dpa_meta.
 *
 *   type    = letter | struct | union
 *   struct  = '{' head member... '}'
 *   union   = '<' head member... '>'
 *   head    = size ',' alignment ['P'] ';'                 P: packed
 *   member  = type ['[' number ']']... [':' bits | '!' bits]         bit-fields with and without a name
 *
 * Letters are those of struct function (dpacc.h). From the word either side makes the same type
 * again, member by member: the calling conventions depend on it. What the words say is not
 * believed: a word that does not follow the grammar, or is larger than an argument buffer, is
 * refused.
 */
#include "dpacc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 16 };

/* ---- reading ---- */

/* A decimal number of at most `most`; NULL where there is none. */
static const char *types_number(const char *p, unsigned long most, unsigned long *value)
{
	char *end;

	if (!p || !isdigit((unsigned char)*p))
		return NULL;
	*value = strtoul(p, &end, 10);
	return *value <= most ? end : NULL;
}

static const char *expect(const char *p, char c)
{
	return p && *p == c ? p + 1 : NULL;
}

static const char *read_type(const char *p, int depth);

static const char *read_member(const char *p, int depth)
{
	unsigned long n;

	p = read_type(p, depth);
	while (p && *p == '[')
		p = expect(types_number(p + 1, ARGBUF_SIZE, &n), ']');
	if (p && (*p == ':' || *p == '!'))
		p = types_number(p + 1, 64, &n);
	return p;
}

static const char *read_head(const char *p, size_t *size, size_t *align, bool *packed)
{
	p = expect(types_number(p, ARGBUF_SIZE, size), ',');
	p = types_number(p, ARGBUF_SIZE, align);
	*packed = p && *p == 'P';
	p = expect(*packed ? p + 1 : p, ';');
	return *size && *align && !(*align & (*align - 1)) ? p : NULL;
}

static const char *read_type(const char *p, int depth)
{
	size_t size = 0, align = 0;
	bool packed;
	char close;

	if (*p && strchr("bcCsSiIlLpfd", *p))
		return p + 1;
	if ((*p != '{' && *p != '<') || depth == MAX_DEPTH)
		return NULL;
	close = *p == '{' ? '}' : '>';
	p = read_head(p + 1, &size, &align, &packed);
	if (!p || *p == close)
		return NULL;
	while (p && *p != close)
		p = *p ? read_member(p, depth + 1) : NULL;
	return p ? p + 1 : NULL;
}

const char *type_next(const char *type)
{
	return read_type(type, 0);
}

bool type_is_aggregate(const char *type)
{
	return *type == '{' || *type == '<';
}

size_t type_size(const char *type)
{
	return strtoul(type + 1, NULL, 10);
}

unsigned int type_slots(const char *type)
{
	return type_is_aggregate(type) ? (unsigned int)((type_size(type) + 7) / 8) : 1;
}

bool types_valid(const char *types)
{
	unsigned long slots = 0;

	if (!*types || !strchr("vbcCsSiIlLpfd", *types))
		return false;
	for (const char *p = types + 1; *p;) {
		const char *next = type_next(p);

		if (!next)
			return false;
		slots += type_slots(p);
		p = next;
	}
	return 8 * slots <= ARGBUF_SIZE;
}

size_t types_argbuf_size(const char *types)
{
	size_t slots = 0;

	for (const char *p = types + 1; *p; p = type_next(p))
		slots += type_slots(p);
	return 8 * slots;
}

/* ---- writing C, for device and host alike ---- */

const char *type_c_name(char letter)
{
	switch (letter) {
	case 'v':
		return "void";
	case 'b':
		return "_Bool";
	case 'c':
		return "signed char";
	case 'C':
		return "unsigned char";
	case 's':
		return "short";
	case 'S':
		return "unsigned short";
	case 'i':
		return "int";
	case 'I':
		return "unsigned int";
	case 'l':
		return "long";
	case 'L':
		return "unsigned long";
	case 'p':
		return "void *";
	case 'f':
		return "float";
	default:
		return "double";
	}
}

static const char *write_type(FILE *out, const char *p);

static const char *write_member(FILE *out, const char *p, int index)
{
	p = write_type(out, p);
	if (*p != '!')
		fprintf(out, " m%d", index);
	while (*p == '[') {
		size_t n = strcspn(p, "]") + 1;

		fprintf(out, "%.*s", (int)n, p);
		p += n;
	}
	if (*p == ':' || *p == '!') {
		size_t n = strspn(p + 1, "0123456789");

		fprintf(out, " : %.*s", (int)n, p + 1);
		p += 1 + n;
	}
	fputs("; ", out);
	return p;
}

static const char *write_type(FILE *out, const char *p)
{
	size_t size, align;
	bool packed, is_struct = *p == '{';

	if (!type_is_aggregate(p)) {
		/* a bool is a byte, and C++ has another name for it */
		fputs(*p == 'b' ? "unsigned char" : type_c_name(*p), out);
		return p + 1;
	}
	p = read_head(p + 1, &size, &align, &packed);
	fprintf(out, "%s __attribute__((%saligned(%zu))) { ", is_struct ? "struct" : "union",
		packed ? "packed, " : "", align);
	for (int i = 0; *p != '}' && *p != '>'; i++)
		p = write_member(out, p, i);
	fputc('}', out);
	return p + 1;
}

void type_write(FILE *out, const char *type, const char *name)
{
	fputs("typedef ", out);
	write_type(out, type);
	fprintf(out, " %s;\n", name);
	/* C and C++ of any age; a negative size is an error */
	fprintf(out, "typedef char %s_has_this_size[sizeof(%s) == %zu ? 1 : -1];\n", name, name,
		type_size(type));
}
