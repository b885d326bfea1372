// SPDX-License-Identifier: MIT
/*
 * Annotated functions of a source and their C types, read with libclang: what is static, comes from
 * a header, a macro or a typedef needs no thought of ours.
 *
 * Argument forms. Before 24.10 some device functions took a thread context first. A source that
 * does not say which form it wants is read in the new form and, where that gives errors, in the old
 * one; the form with fewer errors is its own. clang 14 only warns where an integer meets a pointer,
 * and that is just what a source in the other form does, so these warnings count as errors here
 * (they stay warnings for the compiler).
 */
#include "dpacc.h"

#include <clang-c/Index.h>
#include <stdio.h>
#include <string.h>

#define OLD_FORM "-DFLEXIO_DEV_VER_USED=0x18070000" /* 24.7 */

struct scan {
	struct functions *out;
	int errors;
};

static const char *scan_take_string(CXString string)
{
	const char *text = clang_getCString(string);
	const char *copy = mem_dup(text ? text : "", text ? strlen(text) : 0);

	clang_disposeString(string);
	return copy;
}

/* The letter of a type (see struct function), 0 for one that cannot be passed. */
static char type_letter(CXType type)
{
	type = clang_getCanonicalType(type);
	switch (type.kind) {
	case CXType_Void:
		return 'v';
	case CXType_Bool:
		return 'b';
	case CXType_Char_U:
	case CXType_UChar:
		return 'C';
	case CXType_Char_S:
	case CXType_SChar:
		return 'c';
	case CXType_UShort:
		return 'S';
	case CXType_Short:
		return 's';
	case CXType_WChar:
	case CXType_Int:
		return 'i';
	case CXType_Char32:
	case CXType_UInt:
		return 'I';
	case CXType_Long:
	case CXType_LongLong:
		return 'l';
	case CXType_ULong:
	case CXType_ULongLong:
		return 'L';
	case CXType_Pointer:
	case CXType_ConstantArray:
	case CXType_IncompleteArray:
	case CXType_VariableArray:
	case CXType_FunctionProto: /* a parameter of function type is a pointer */
	case CXType_FunctionNoProto:
		return 'p';
	case CXType_Float:
		return 'f';
	case CXType_Double:
		return 'd';
	case CXType_Enum:
		return type_letter(clang_getEnumDeclIntegerType(clang_getTypeDeclaration(type)));
	default:
		return 0;
	}
}

static enum CXChildVisitResult find_annotation(CXCursor cursor, CXCursor parent, CXClientData data)
{
	const char **found = data;

	if (clang_getCursorKind(cursor) == CXCursor_AnnotateAttr) {
		const char *name = scan_take_string(clang_getCursorSpelling(cursor));

		if (!strcmp(name, "dpa_rpc") || !strcmp(name, "dpa_global"))
			*found = name;
	}
	return CXChildVisit_Continue;
}

static void scan_place(CXCursor cursor, const char **file, unsigned int *line, unsigned int *column)
{
	CXFile where;

	clang_getExpansionLocation(clang_getCursorLocation(cursor), &where, line, column, NULL);
	*file = scan_take_string(clang_getFileName(where));
}

static void scan_refuse(struct scan *scan, CXCursor at, const char *function, const char *what)
{
	unsigned int line, column;
	const char *file;

	scan_place(at, &file, &line, &column);
	fprintf(stderr, "%s:%u:%u: error: function '%s' called from the host: %s\n", file, line,
		column, function, what);
	scan->errors++;
}

/* ---- structs and unions, into the text of types.c ---- */

struct record {
	FILE *out;
	const char *problem; /* NULL: none so far */
	int depth;
	bool any; /* it has a member */
};

static enum CXChildVisitResult is_kind(CXCursor cursor, CXCursor parent, CXClientData data)
{
	enum CXCursorKind *kind = data;

	if (clang_getCursorKind(cursor) != *kind)
		return CXChildVisit_Continue;
	*kind = CXCursor_InvalidFile;
	return CXChildVisit_Break;
}

static bool has_child(CXCursor cursor, enum CXCursorKind kind)
{
	clang_visitChildren(cursor, is_kind, &kind);
	return kind == CXCursor_InvalidFile;
}

static const char *write_record(FILE *out, CXType type, int depth);

/* A type inside of another one: what is wrong with it, or NULL. */
static const char *write_inner(FILE *out, CXType type, int depth)
{
	const char *sizes = "", *problem = NULL;
	char letter;

	type = clang_getCanonicalType(type);
	for (; type.kind == CXType_ConstantArray;
	     type = clang_getCanonicalType(clang_getArrayElementType(type)))
		sizes = mem_printf("%s[%lld]", sizes, clang_getArraySize(type));
	letter = type_letter(type);
	if (type.kind == CXType_Record)
		problem = write_record(out, type, depth + 1);
	else if (letter == 'p')
		problem = "a pointer, or an array without a size";
	else if (!letter || letter == 'v')
		problem =
			mem_printf("the type '%s'", scan_take_string(clang_getTypeSpelling(type)));
	else
		fputc(letter, out);
	fputs(sizes, out);
	return problem;
}

static enum CXVisitorResult visit_field(CXCursor field, CXClientData data)
{
	struct record *record = data;
	const char *name = scan_take_string(clang_getCursorSpelling(field));
	const char *problem = write_inner(record->out, clang_getCursorType(field), record->depth);

	record->any = true;
	if (clang_Cursor_isBitField(field))
		fprintf(record->out, "%c%d", *name ? ':' : '!', clang_getFieldDeclBitWidth(field));
	if (!problem &&
	    (has_child(field, CXCursor_AlignedAttr) || has_child(field, CXCursor_PackedAttr)))
		problem = "an alignment of its own";
	/* What is wrong deeper inside is a sentence of its own. */
	if (problem && strncmp(problem, "it", 2))
		problem = mem_printf("its member%s%s%s has %s", *name ? " '" : "", name,
				     *name ? "'" : "", problem);
	record->problem = problem;
	return problem ? CXVisit_Break : CXVisit_Continue;
}

static const char *write_record(FILE *out, CXType type, int depth)
{
	CXCursor declaration = clang_getTypeDeclaration(type);
	bool is_union = clang_getCursorKind(declaration) == CXCursor_UnionDecl;
	struct record record = { .out = out, .depth = depth };
	long long size = clang_Type_getSizeOf(type);

	if (size > ARGBUF_SIZE)
		return mem_printf("it has %lld bytes; the most is %d", size, ARGBUF_SIZE);
	fprintf(out, "%c%lld,%lld%s;", is_union ? '<' : '{', size, clang_Type_getAlignOf(type),
		has_child(declaration, CXCursor_PackedAttr) ? "P" : "");
	clang_Type_visitFields(type, visit_field, &record);
	fputc(is_union ? '>' : '}', out);
	if (!record.problem && (!record.any || size <= 0))
		return "it has no members";
	return record.problem;
}

/* Whether a struct or union is marked __dpa_global__, itself or as a typedef. */
static bool is_marked(CXType type)
{
	const char *annotation = NULL;

	for (;;) {
		CXCursor declaration = clang_getTypeDeclaration(type);

		clang_visitChildren(declaration, find_annotation, &annotation);
		if (annotation)
			return true;
		if (type.kind == CXType_Elaborated)
			type = clang_Type_getNamedType(type);
		else if (clang_getCursorKind(declaration) == CXCursor_TypedefDecl)
			type = clang_getTypedefDeclUnderlyingType(declaration);
		else
			return false;
	}
}

/* ---- functions ---- */

/* A parameter's type as text; NULL after its problem was said. */
static const char *parameter_type(struct scan *scan, CXCursor parameter, int number,
				  const char *function)
{
	CXType type = clang_getCursorType(parameter), canonical = clang_getCanonicalType(type);
	const char *spelling = scan_take_string(clang_getCursorSpelling(parameter));
	const char *problem = "pass a pointer to device memory";
	char letter = type_letter(type);
	struct text text;
	FILE *out;

	if (letter)
		return mem_printf("%c", letter);
	if (canonical.kind == CXType_Record && is_marked(type)) {
		out = text_open(&text);
		problem = write_record(out, canonical, 0);
		if (!problem)
			return text_close(&text);
		text_close(&text);
	} else if (canonical.kind == CXType_Record) {
		problem = "mark the type __dpa_global__, or pass a pointer to device memory";
	}
	scan_refuse(
		scan, parameter, function,
		mem_printf("parameter %d%s%s%s has type '%s', which cannot be passed by value; %s",
			   number, *spelling ? " '" : "", spelling, *spelling ? "'" : "",
			   scan_take_string(clang_getTypeSpelling(type)), problem));
	return NULL;
}

/* The text of the result and the parameters; what cannot be passed is said and counted. */
static const char *function_types(struct scan *scan, CXCursor cursor, const char *name)
{
	int n = clang_Cursor_getNumArguments(cursor), errors = scan->errors;
	CXType result = clang_getCursorResultType(cursor);
	char letter = type_letter(result);
	const char *types;
	struct text text;
	FILE *out = text_open(&text);

	fputc(letter, out);
	if (!letter)
		scan_refuse(
			scan, cursor, name,
			mem_printf(
				"it returns '%s'; only integers, pointers, float and double can be returned",
				scan_take_string(clang_getTypeSpelling(result))));
	if (clang_Cursor_isVariadic(cursor))
		scan_refuse(scan, cursor, name, "a variable number of arguments cannot be passed");
	for (int i = 0; i < n; i++) {
		CXCursor parameter = clang_Cursor_getArgument(cursor, (unsigned int)i);
		const char *type = parameter_type(scan, parameter, i + 1, name);

		if (type)
			fputs(type, out);
	}
	types = text_close(&text);
	if (scan->errors == errors && !types_valid(types))
		scan_refuse(scan, cursor, name,
			    mem_printf("its arguments take more than %d bytes", ARGBUF_SIZE));
	return types;
}

static enum CXChildVisitResult scan_visit(CXCursor cursor, CXCursor parent, CXClientData data)
{
	struct scan *scan = data;
	const char *annotation = NULL;
	struct function *f;
	unsigned int column;
	int errors = scan->errors;

	if (clang_getCursorKind(cursor) != CXCursor_FunctionDecl ||
	    !clang_isCursorDefinition(cursor))
		return CXChildVisit_Continue;
	clang_visitChildren(cursor, find_annotation, &annotation);
	if (!annotation)
		return CXChildVisit_Continue;
	f = functions_add(scan->out);
	f->name = scan_take_string(clang_getCursorSpelling(cursor));
	f->rpc = !strcmp(annotation, "dpa_rpc");
	f->is_static = clang_getCursorLinkage(cursor) == CXLinkage_Internal;
	scan_place(cursor, &f->file, &f->line, &column);
	f->types = function_types(scan, cursor, f->name);
	if (!strcmp(f->name, "main"))
		scan_refuse(scan, cursor, f->name, "the host program has a main of its own");
	if (strlen(f->name) > DPACC_MAX_NAME - strlen("__dpa_unpack_"))
		scan_refuse(scan, cursor, f->name, "the name is too long");
	if (scan->errors != errors)
		scan->out->n--;
	return CXChildVisit_Continue;
}

/* Options of the compiler that would make files, or mean nothing to a reader. */
static bool for_reader(const char *option)
{
	return strncmp(option, "-M", 2) && strcmp(option, "-c") &&
	       strncmp(option, "-save-temps", 11);
}

static bool has_own_value(const char *option)
{
	return !strcmp(option, "-MF") || !strcmp(option, "-MT") || !strcmp(option, "-MQ") ||
	       !strcmp(option, "-mllvm");
}

static const char *resource_dir(void)
{
	static const char *dir;
	struct list argv = { 0 };

	if (dir)
		return dir;
	list_add(&argv, tool_find("clang"));
	list_add(&argv, "-print-resource-dir");
	if (argv.v[0])
		dir = run_question(&argv);
	return dir;
}

static CXTranslationUnit scan_read_source(CXIndex index, const char *path, const struct list *base,
					  const char *form)
{
	struct list args = { 0 };
	CXTranslationUnit unit = NULL;

	for (int i = 0; i < base->n; i++) {
		if (has_own_value(base->v[i]))
			i++;
		else if (for_reader(base->v[i]))
			list_add(&args, base->v[i]);
	}
	if (form)
		list_add(&args, form);
	list_addv(&args, "-ferror-limit=0", "-Werror=int-conversion",
		  "-Werror=incompatible-pointer-types", "-Werror=implicit-function-declaration",
		  NULL);
	/* libclang looks for the compiler's own headers beside itself, where Debian has none */
	if (resource_dir())
		list_addv(&args, "-resource-dir", resource_dir(), NULL);
	if (clang_parseTranslationUnit2(index, path, (const char *const *)args.v, args.n, NULL, 0,
					CXTranslationUnit_None, &unit))
		return NULL;
	return unit;
}

/* hard: the first error that is no warning made one, so that the compiler will have it too. */
static int count_errors(CXTranslationUnit unit, const char **hard)
{
	int errors = 0;

	*hard = NULL;
	for (unsigned int i = 0; unit && i < clang_getNumDiagnostics(unit); i++) {
		CXDiagnostic diagnostic = clang_getDiagnostic(unit, i);

		if (clang_getDiagnosticSeverity(diagnostic) >= CXDiagnostic_Error) {
			errors++;
			if (!*hard &&
			    !*scan_take_string(clang_getDiagnosticOption(diagnostic, NULL)))
				*hard = scan_take_string(clang_formatDiagnostic(
					diagnostic, clang_defaultDiagnosticDisplayOptions()));
		}
		clang_disposeDiagnostic(diagnostic);
	}
	return errors;
}

/* Whether the compiler would complain about our own marks. */
static bool marks_types(CXTranslationUnit unit)
{
	bool found = false;

	for (unsigned int i = 0; unit && !found && i < clang_getNumDiagnostics(unit); i++) {
		CXDiagnostic diagnostic = clang_getDiagnostic(unit, i);
		const char *option = scan_take_string(clang_getDiagnosticOption(diagnostic, NULL));
		const char *text = scan_take_string(clang_getDiagnosticSpelling(diagnostic));

		found = !strcmp(option, "-Wignored-attributes") &&
			!strncmp(text, "'used' attribute", 16);
		clang_disposeDiagnostic(diagnostic);
	}
	return found;
}

static bool says_form(const struct list *options)
{
	for (int i = 0; i < options->n; i++)
		if (strstr(options->v[i], "FLEXIO_DEV_VER_USED"))
			return true;
	return false;
}

int scan_source(const char *path, const struct list *base, struct functions *out, struct list *own,
		const char **error)
{
	struct scan scan = { .out = out };
	CXIndex index = clang_createIndex(0, 0);
	CXTranslationUnit unit = scan_read_source(index, path, base, NULL);
	int errors = count_errors(unit, error);

	if (errors && !says_form(base)) {
		CXTranslationUnit old = scan_read_source(index, path, base, OLD_FORM);
		const char *old_error;

		if (old && count_errors(old, &old_error) < errors) {
			*error = old_error;
			clang_disposeTranslationUnit(unit);
			unit = old;
			list_add(own, OLD_FORM);
		} else if (old) {
			clang_disposeTranslationUnit(old);
		}
	}
	/* The marks also keep functions from being dropped, which means nothing for a type. */
	if (marks_types(unit))
		list_add(own, "-Wno-ignored-attributes");
	if (unit) {
		clang_visitChildren(clang_getTranslationUnitCursor(unit), scan_visit, &scan);
		clang_disposeTranslationUnit(unit);
	} else {
		say("%s: cannot be read", path);
		scan.errors++;
	}
	clang_disposeIndex(index);
	return scan.errors ? -1 : 0;
}
