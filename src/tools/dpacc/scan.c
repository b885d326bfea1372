// SPDX-License-Identifier: MIT
/*
 * Annotated functions of a source and their C types, read with libclang: what is static, comes from a header, a macro
 * or a typedef needs no thought of ours.
 *
 * Argument forms. Before 24.10 some device functions took a thread context first. A source that does not say which
 * form it wants is read in the new form and, where that gives errors, in the old one; the form with fewer errors is
 * its own. clang 14 only warns where an integer meets a pointer, and that is just what a source in the other form
 * does, so these warnings count as errors here (they stay warnings for the compiler).
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

static const char *take_string(CXString string)
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
		const char *name = take_string(clang_getCursorSpelling(cursor));

		if (!strcmp(name, "dpa_rpc") || !strcmp(name, "dpa_global"))
			*found = name;
	}
	return CXChildVisit_Continue;
}

static void place(CXCursor cursor, const char **file, unsigned int *line, unsigned int *column)
{
	CXFile where;

	clang_getExpansionLocation(clang_getCursorLocation(cursor), &where, line, column, NULL);
	*file = take_string(clang_getFileName(where));
}

static void refuse(struct scan *scan, CXCursor at, const char *function, const char *what)
{
	unsigned int line, column;
	const char *file;

	place(at, &file, &line, &column);
	fprintf(stderr, "%s:%u:%u: error: function '%s' called from the host: %s\n", file, line,
		column, function, what);
	scan->errors++;
}

/* The result and parameter letters; what cannot be passed is said and counted. */
static const char *function_types(struct scan *scan, CXCursor cursor, const char *name)
{
	int n = clang_Cursor_getNumArguments(cursor);
	CXType result = clang_getCursorResultType(cursor);
	char *types = mem_alloc((size_t)(n < 0 ? 0 : n) + 2);

	types[0] = type_letter(result);
	if (!types[0])
		refuse(scan, cursor, name,
		       mem_printf(
			       "it returns '%s'; only integers, pointers, float and double can be returned",
			       take_string(clang_getTypeSpelling(result))));
	if (clang_Cursor_isVariadic(cursor))
		refuse(scan, cursor, name, "a variable number of arguments cannot be passed");
	for (int i = 0; i < n; i++) {
		CXCursor parameter = clang_Cursor_getArgument(cursor, (unsigned int)i);
		CXType type = clang_getCursorType(parameter);
		const char *spelling = take_string(clang_getCursorSpelling(parameter));

		types[1 + i] = type_letter(type);
		if (!types[1 + i])
			refuse(scan, parameter, name,
			       mem_printf(
				       "parameter %d%s%s%s has type '%s', which cannot be passed by value; "
				       "pass a pointer to device memory",
				       i + 1, *spelling ? " '" : "", spelling, *spelling ? "'" : "",
				       take_string(clang_getTypeSpelling(type))));
	}
	return types;
}

static enum CXChildVisitResult visit(CXCursor cursor, CXCursor parent, CXClientData data)
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
	f->name = take_string(clang_getCursorSpelling(cursor));
	f->rpc = !strcmp(annotation, "dpa_rpc");
	f->is_static = clang_getCursorLinkage(cursor) == CXLinkage_Internal;
	place(cursor, &f->file, &f->line, &column);
	f->types = function_types(scan, cursor, f->name);
	if (!strcmp(f->name, "main"))
		refuse(scan, cursor, f->name, "the host program has a main of its own");
	if (strlen(f->name) > DPACC_MAX_NAME - strlen("__dpa_unpack_"))
		refuse(scan, cursor, f->name, "the name is too long");
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

static CXTranslationUnit read_source(CXIndex index, const char *path, const struct list *base,
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
			if (!*hard && !*take_string(clang_getDiagnosticOption(diagnostic, NULL)))
				*hard = take_string(clang_formatDiagnostic(
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
		const char *option = take_string(clang_getDiagnosticOption(diagnostic, NULL));
		const char *text = take_string(clang_getDiagnosticSpelling(diagnostic));

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
	CXTranslationUnit unit = read_source(index, path, base, NULL);
	int errors = count_errors(unit, error);

	if (errors && !says_form(base)) {
		CXTranslationUnit old = read_source(index, path, base, OLD_FORM);
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
		clang_visitChildren(clang_getTranslationUnitCursor(unit), visit, &scan);
		clang_disposeTranslationUnit(unit);
	} else {
		say("%s: cannot be read", path);
		scan.errors++;
	}
	clang_disposeIndex(index);
	return scan.errors ? -1 : 0;
}
