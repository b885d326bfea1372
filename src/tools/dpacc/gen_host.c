// SPDX-License-Identifier: MIT
/*
 * Generated host code: the stubs whose addresses stand for device functions, and APP.meta.c, which
 * holds the device programs and creates the application before main.
 *
 * It is compiled with the user's compiler and options, beside the user's names: it needs no header
 * but the compiler's and C's own, and reaches every name of the user's through an assembler label,
 * so that a device function may be called "remove" and an application "stdout".
 *
 * The constructor has the first priority that programs may use, so that it runs before constructors
 * of C++ objects and those without priority; destructors run in the opposite order.
 */
#include "dpacc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PRIORITY = 101 };

/* Each stub's code is its own, so that no linker folds two into one address. */
static void write_stub(FILE *out, const char *name, int number, bool weak)
{
	fprintf(out,
		"\n%svoid dpa_stub_%d(void) __asm__(\"%s\");\n"
		"void dpa_stub_%d(void)\n{\n\tdpa_stub_called(\"%s\");\n}\n",
		weak ? "__attribute__((weak)) " : "", number, name, number, name);
}

static const char stub_called[] =
	"static void dpa_stub_called(const char *name)\n"
	"{\n"
	"\tfprintf(stderr, \"%s runs on the device: pass its address to flexio_process_call\\n\", name);\n"
	"\tabort();\n"
	"}\n";

char *gen_stubs(const struct functions *list)
{
	struct text text;
	FILE *out = text_open(&text);

	fputs("/* Made by dpacc: functions of the host whose addresses stand for device functions. */\n",
	      out);
	if (list->n)
		fprintf(out, "#include <stdio.h>\n#include <stdlib.h>\n\n%s", stub_called);
	else
		fputs("typedef int dpa_nothing;\n", out);
	for (int i = 0; i < list->n; i++)
		write_stub(out, list->v[i].name, i, list->v[i].is_static);
	return text_close(&text);
}

/* An argument as the call passes it, then as its slot has it. */
static const char *pack_expression(char letter)
{
	switch (letter) {
	case 'b':
		return "(va_arg(ap, int) != 0)";
	case 'c':
		return "(uint64_t)(int64_t)(int8_t)va_arg(ap, int)";
	case 'C':
		return "(uint8_t)va_arg(ap, int)";
	case 's':
		return "(uint64_t)(int64_t)(int16_t)va_arg(ap, int)";
	case 'S':
		return "(uint16_t)va_arg(ap, int)";
	case 'i':
		return "(uint64_t)(int64_t)va_arg(ap, int)";
	case 'I':
		return "va_arg(ap, unsigned int)";
	case 'p':
		return "(uint64_t)(uintptr_t)va_arg(ap, void *)";
	case 'f':
		return "dpa_float_bits((float)va_arg(ap, double))";
	case 'd':
		return "dpa_double_bits(va_arg(ap, double))";
	default:
		return "va_arg(ap, uint64_t)";
	}
}

static void write_argument(FILE *out, const char *type, unsigned int slot, const char *name)
{
	if (type_is_aggregate(type))
		fprintf(out,
			"\t{\n\t\t%s value = va_arg(ap, %s);\n\n"
			"\t\tmemcpy(slot + %u, &value, sizeof(value));\n\t}\n",
			name, name, slot);
	else
		fprintf(out, "\tslot[%u] = %s;\n", slot, pack_expression(*type));
}

static void write_pack(FILE *out, const struct function *f, int image, int number)
{
	unsigned int slot = 0;
	int i = 0;

	fprintf(out, "\n/* %s, %s:%u */\n", f->name, strstr(f->file, "*/") ? "" : f->file, f->line);
	for (const char *p = f->types + 1; *p; p = type_next(p), i++)
		if (type_is_aggregate(p))
			type_write(out, p, mem_printf("dpa_type_%d_%d_%d", image, number, i));
	fprintf(out,
		"static void dpa_pack_%d_%d(void *argbuf, va_list ap)\n{\n"
		"\tuint64_t *slot = (uint64_t *)argbuf;\n\n\t(void)slot;\n",
		image, number);
	i = 0;
	for (const char *p = f->types + 1; *p; slot += type_slots(p), p = type_next(p), i++)
		write_argument(out, p, slot, mem_printf("dpa_type_%d_%d_%d", image, number, i));
	fputs("}\n", out);
}

static const char declarations[] =
	"#include <stdarg.h>\n"
	"#include <stddef.h>\n"
	"#include <stdint.h>\n"
	"#include <stdio.h>\n"
	"#include <stdlib.h>\n"
	"#include <string.h>\n"
	"\n"
	"/* libflexio, without its headers */\n"
	"struct flexio_app;\n"
	"struct dpa_app_attr {\n"
	"\tuint64_t *dev_versions;\n"
	"\tsize_t dev_versions_len;\n"
	"\tuint64_t api_version;\n"
	"\tconst char *name;\n"
	"\tvoid *program;\n"
	"\tsize_t size;\n"
	"\tvoid *signature;\n"
	"\tsize_t signature_size;\n"
	"};\n"
	"typedef void dpa_stub(void);\n"
	"typedef void dpa_pack(void *argbuf, va_list ap);\n"
	"extern int flexio_app_create(struct dpa_app_attr *attr, struct flexio_app **app);\n"
	"extern int flexio_app_destroy(struct flexio_app *app);\n"
	"extern int flexio_app_hw_model_register(struct flexio_app *app, unsigned int model);\n"
	"extern int flexio_func_pup_register(struct flexio_app *app, const char *function,\n"
	"\tconst char *unpack, dpa_stub *stub, size_t argbuf_size, dpa_pack *pack);\n"
	"\n"
	"struct dpa_function {\n"
	"\tconst char *name, *unpack;\n"
	"\tdpa_stub *stub;\n"
	"\tsize_t argbuf_size;\n"
	"\tdpa_pack *pack;\n"
	"};\n"
	"\n";

static bool has_parameter(const struct function *f, char letter)
{
	for (const char *p = f->types + 1; *p; p = type_next(p))
		if (*p == letter)
			return true;
	return false;
}

/* Only where they are used: -Wunused-function is an error to some. */
static void write_bits(FILE *out, const struct image *images, int n, char letter, const char *type,
		       const char *bits)
{
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < images[i].functions.n; j++) {
			if (!has_parameter(&images[i].functions.v[j], letter))
				continue;
			fprintf(out,
				"\nstatic uint64_t dpa_%s_bits(%s value)\n{\n\t%s bits;\n\n"
				"\tmemcpy(&bits, &value, sizeof(bits));\n\treturn bits;\n}\n",
				type, type, bits);
			return;
		}
	}
}

static const char *absolute(const char *path)
{
	char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0);
	const char *full = cwd ? mem_printf("%s/%s", cwd, path) : path;

	free(cwd);
	return full;
}

static void write_image(FILE *out, const struct image *image, int number)
{
	fprintf(out,
		"\nextern const unsigned char dpa_image_%d[], dpa_image_%d_end[];\n"
		"__asm__(\".pushsection .rodata.dpa_image,\\\"a\\\",%%progbits\\n\"\n"
		"\t\".balign 64\\n\"\n"
		"\t\".local dpa_image_%d\\n.local dpa_image_%d_end\\n\"\n"
		"\t\"dpa_image_%d:\\n\"\n"
		"\t\".incbin \\\"",
		number, number, number, number, number);
	/* absolute, because scripts compile what -keep-dir has kept from another folder */
	for (const char *p = absolute(image->file); *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(out, "\\\\\\%c", *p);
		else
			fputc(*p, out);
	}
	fprintf(out, "\\\"\\n\"\n\t\"dpa_image_%d_end:\\n\"\n\t\".popsection\\n\");\n", number);
}

static void write_table(FILE *out, const struct functions *functions, int image,
			const struct list *stubs)
{
	fprintf(out, "\nstatic const struct dpa_function dpa_functions_%d[] = {\n", image);
	for (int i = 0; i < functions->n; i++) {
		const struct function *f = &functions->v[i];
		int stub = 0;

		while (strcmp(stubs->v[stub], f->name))
			stub++;
		fprintf(out,
			"\t{ \"%s\", \"__dpa_unpack_%s\", dpa_stub_%d, %zu, dpa_pack_%d_%d },\n",
			function_symbol(f), f->name, stub, types_argbuf_size(f->types), image, i);
	}
	fputs("\t{ NULL, NULL, NULL, 0, NULL }\n};\n", out);
}

/*
 * The stubs of all targets; weak, because those of sources and objects are in objects of their own.
 */
static void write_stubs(FILE *out, const struct image *images, int n, struct list *stubs)
{
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < images[i].functions.n; j++) {
			const char *name = images[i].functions.v[j].name;
			int k;

			for (k = 0; k < stubs->n && strcmp(stubs->v[k], name); k++)
				;
			if (k == stubs->n)
				list_add(stubs, name);
		}
	}
	if (stubs->n)
		fputs(stub_called, out);
	for (int i = 0; i < stubs->n; i++)
		write_stub(out, stubs->v[i], i, true);
}

static void write_constructor(FILE *out, const char *app, const struct image *images, int n)
{
	int chosen = 0;

	/* our adapters are BlueField-3: where there is a program for it, that is the application */
	for (int i = 0; i < n; i++)
		if (!strcmp(images[i].arch->name, "bf3"))
			chosen = i;
	fprintf(out,
		"\nstatic struct flexio_app *dpa_apps[%d];\n"
		"\nstatic void dpa_create(unsigned int model, const char *cpu, const unsigned char *program,\n"
		"\tconst unsigned char *end, const struct dpa_function *f, struct flexio_app **app)\n"
		"{\n"
		"\tstruct dpa_app_attr attr;\n"
		"\tconst char *what = \"flexio_app_create\";\n"
		"\tint status;\n"
		"\n"
		"\tmemset(&attr, 0, sizeof(attr));\n"
		"\tattr.name = \"%s\";\n"
		"\tattr.program = (void *)(uintptr_t)program;\n"
		"\tattr.size = (size_t)(end - program);\n"
		"\tstatus = flexio_app_create(&attr, app);\n"
		"\tif (!status) {\n"
		"\t\twhat = \"flexio_app_hw_model_register\";\n"
		"\t\tstatus = flexio_app_hw_model_register(*app, model);\n"
		"\t}\n"
		"\tfor (; !status && f->name; f++) {\n"
		"\t\twhat = f->name;\n"
		"\t\tstatus = flexio_func_pup_register(*app, f->name, f->unpack, f->stub, f->argbuf_size,\n"
		"\t\t\tf->pack);\n"
		"\t}\n"
		"\tif (!status)\n"
		"\t\treturn;\n"
		"\tfprintf(stderr, \"device application '%s' (%%s): %%s failed with status %%d; \"\n"
		"\t\t\"flexio_process_create will refuse it\\n\", cpu, what, status);\n"
		"\tif (*app)\n"
		"\t\tflexio_app_destroy(*app);\n"
		"\t*app = NULL;\n"
		"}\n",
		n, app, app);
	fprintf(out, "\n__attribute__((constructor(%d))) static void dpa_begin(void)\n{\n",
		PRIORITY);
	for (int i = 0; i < n; i++)
		fprintf(out,
			"\tdpa_create(%u, \"%s\", dpa_image_%d, dpa_image_%d_end, dpa_functions_%d, &dpa_apps[%d]);\n",
			images[i].arch->hw_model, images[i].arch->cpu, i, i, i, i);
	fprintf(out, "\tdpa_app = dpa_apps[%d];\n}\n", chosen);
	fprintf(out,
		"\n__attribute__((destructor(%d))) static void dpa_end(void)\n{\n\tint i;\n\n\tdpa_app = NULL;\n"
		"\tfor (i = 0; i < %d; i++)\n\t\tif (dpa_apps[i])\n\t\t\tflexio_app_destroy(dpa_apps[i]);\n}\n",
		PRIORITY, n);
}

char *gen_meta(const char *app, const struct image *images, int n)
{
	struct list stubs = { 0 };
	struct text text;
	FILE *out = text_open(&text);

	fprintf(out,
		"/* Made by dpacc: the device application %s, there before main and after it. */\n%s",
		app, declarations);
	fprintf(out,
		"extern struct flexio_app *dpa_app __asm__(\"%s\");\nstruct flexio_app *dpa_app;\n\n",
		app);
	write_stubs(out, images, n, &stubs);
	write_bits(out, images, n, 'f', "float", "uint32_t");
	write_bits(out, images, n, 'd', "double", "uint64_t");
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < images[i].functions.n; j++)
			write_pack(out, &images[i].functions.v[j], i, j);
		write_image(out, &images[i], i);
		write_table(out, &images[i].functions, i, &stubs);
	}
	write_constructor(out, app, images, n);
	return text_close(&text);
}
