// SPDX-License-Identifier: MIT
/*
 * Generated device code: for each annotated function F
 *
 *   uint64_t __dpa_unpack_F(void *argbuf, void *func)
 *
 * which takes the arguments from their 8-byte slots and calls func, and the text of .dpa_meta. The
 * wrappers need no header of the user's: to the calling convention an enum is an integer, a pointer
 * is a pointer, and a struct is one with the same members.
 */
#include "dpacc.h"

#include <string.h>

static const char *gen_device_type_name(const struct function *f, const char *type, int index)
{
	return type_is_aggregate(type) ? mem_printf("dpa_%s_type_%d", f->name, index)
				       : type_c_name(*type);
}

/* Structs are copied out of the buffer, where they may be less aligned than they want to be. */
static void write_types(FILE *out, const struct function *f)
{
	int i = 0;

	for (const char *p = f->types + 1; *p; p = type_next(p), i++)
		if (type_is_aggregate(p))
			type_write(out, p, gen_device_type_name(f, p, i));
}

static void write_copies(FILE *out, const struct function *f)
{
	unsigned int slot = 0;
	int i = 0;

	for (const char *p = f->types + 1; *p; slot += type_slots(p), p = type_next(p), i++)
		if (type_is_aggregate(p))
			fprintf(out,
				"\t%s a%d;\n\t__builtin_memcpy(&a%d, slot + %u, sizeof(a%d));\n",
				gen_device_type_name(f, p, i), i, i, 8 * slot, i);
}

static void gen_device_write_call(FILE *out, const struct function *f)
{
	unsigned int slot = 0;
	int i = 0;

	fprintf(out, "((%s (*)(", type_c_name(f->types[0]));
	for (const char *p = f->types + 1; *p; p = type_next(p), i++)
		fprintf(out, "%s%s", i ? ", " : "", gen_device_type_name(f, p, i));
	fprintf(out, "%s))func)(", i ? "" : "void");
	i = 0;
	for (const char *p = f->types + 1; *p; slot += type_slots(p), p = type_next(p), i++) {
		fputs(i ? ", " : "", out);
		if (type_is_aggregate(p))
			fprintf(out, "a%d", i);
		else
			fprintf(out, "*(%s *)(slot + %u)", type_c_name(*p), 8 * slot);
	}
	fputs(")", out);
}

static void write_unpack(FILE *out, const struct function *f)
{
	char result = f->types[0];

	fputc('\n', out);
	write_types(out, f);
	fprintf(out,
		"__attribute__((weak, used, retain)) unsigned long __dpa_unpack_%s(void *argbuf, void *func)\n"
		"{\n\tchar *slot = argbuf;\n\n\t(void)slot;\n",
		f->name);
	write_copies(out, f);
	if (result == 'f' || result == 'd') {
		/* the bits, as the call's 64-bit result can carry no other */
		fprintf(out,
			"\tunion { %s value; unsigned long bits; } result = { .bits = 0 };\n\n\tresult.value = ",
			type_c_name(result));
		gen_device_write_call(out, f);
		fputs(";\n\treturn result.bits;\n}\n", out);
		return;
	}
	fputs(result == 'v' ? "\t" : "\treturn (unsigned long)", out);
	gen_device_write_call(out, f);
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
