// SPDX-License-Identifier: MIT
/*
 * Generated device code: for each annotated function F
 *
 *   uint64_t __dpa_unpack_F(void *argbuf, void *func)
 *
 * which takes the arguments from their 8-byte slots and calls func, and the text of .dpa_meta. The wrappers need no
 * header of the user's: to the calling convention an enum is an integer and a pointer is a pointer.
 */
#include "dpacc.h"

#include <string.h>

static const char *c_type(char letter)
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

static void write_call(FILE *out, const char *types)
{
	fprintf(out, "((%s (*)(", c_type(types[0]));
	for (const char *p = types + 1; *p; p++)
		fprintf(out, "%s%s", p > types + 1 ? ", " : "", c_type(*p));
	fprintf(out, "%s))func)(", types[1] ? "" : "void");
	for (int i = 0; types[1 + i]; i++)
		fprintf(out, "%s*(%s *)(slot + %d)", i ? ", " : "", c_type(types[1 + i]), 8 * i);
	fputs(")", out);
}

static void write_unpack(FILE *out, const struct function *f)
{
	char result = f->types[0];

	fprintf(out,
		"\n__attribute__((weak, used, retain)) unsigned long __dpa_unpack_%s(void *argbuf, void *func)\n"
		"{\n\tchar *slot = argbuf;\n\n\t(void)slot;\n",
		f->name);
	if (result == 'f' || result == 'd') {
		/* the bits, as the call's 64-bit result can carry no other */
		fprintf(out,
			"\tunion { %s value; unsigned long bits; } result = { .bits = 0 };\n\n\tresult.value = ",
			c_type(result));
		write_call(out, f->types);
		fputs(";\n\treturn result.bits;\n}\n", out);
		return;
	}
	fputs(result == 'v' ? "\t" : "\treturn (unsigned long)", out);
	write_call(out, f->types);
	fputs(result == 'v' ? ";\n\treturn 0;\n}\n" : ";\n}\n", out);
}

/* Inside a string of a string: the assembler reads what the compiler has read. */
static void write_quoted(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\\\n", out);
		else if (*text == '"' || *text == '\\')
			fprintf(out, "\\\\\\%c", *text);
		else
			fputc(*text, out);
	}
}

char *gen_unpack(const struct functions *list)
{
	struct text text;
	FILE *out = text_open(&text);

	fputs("/* Made by dpacc: the device's side of calls from the host. */\n", out);
	if (list->n) {
		fputs("__asm__(\".pushsection .dpa_meta,\\\"\\\",@progbits\\n\"\n\t\".ascii \\\"",
		      out);
		write_quoted(out, meta_format(list));
		fputs("\\\"\\n\"\n\t\".popsection\\n\");\n", out);
	}
	for (int i = 0; i < list->n; i++)
		write_unpack(out, &list->v[i]);
	return text_close(&text);
}
