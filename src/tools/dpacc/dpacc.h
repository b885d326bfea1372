/* SPDX-License-Identifier: MIT */
/*
 * What the files of dpacc share.
 *
 *   source.c --scan.c--> functions --gen_device.c--> unpack wrappers + .dpa_meta --\
 *        \----------------------clang for RISC-V------------------------------------+--> S.ARCH.dpa.join.o
 *   functions --gen_host.c--> host stubs --host compiler--> S.dpa.o                  |
 *                                                        (-c: S.dpa.o carries the join objects in .dpa_obj)
 *   join objects + device libraries --ld.lld--> device_exec.ARCH --.dpa_meta--> APP.meta.c --> archive
 *
 * The section .dpa_meta of a device object lists its annotated functions as text; the linker
 * concatenates them, so the linked program itself says which functions the application has, whether
 * they came from sources, objects or libraries.
 *
 * dpacc is a short-lived command: all memory is taken from mem.c and given back at exit.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What `dpacc --version` says; build scripts ask for at least 1.8.0. */
#define DPACC_VERSION "1.13.0"
/* Longest name of an application or function that libflexio takes. */
#define DPACC_MAX_NAME 256

enum {
	DPACC_FAILED = 1, /* exit codes */
	DPACC_USAGE = 2,
	MAX_ARCHS = 4,
};

/* --- mem.c: memory that lives until the end, texts, lists of strings --- */

struct list {
	char **v; /* v[n] is NULL */
	int n, room;
};

void *mem_alloc(size_t size); /* zeroed; never NULL */
char *mem_dup(const char *text, size_t len);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *mem_vprintf(const char *format, va_list ap) __attribute__((format(printf, 1, 0)));

/* A text that is written piece by piece. */
struct text {
	FILE *out;
	char *data;
	size_t size;
};

FILE *text_open(struct text *text);
char *text_close(struct text *text);

void list_add(struct list *list, const char *text); /* text must live on */
void list_addf(struct list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
void list_append(struct list *to, const struct list *from);
void list_addv(struct list *list, ...) __attribute__((sentinel));

/* --- arch.c: the targets --- */

struct arch {
	const char *cpu;       /* as in -mcpu: nv-dpa-bf3 */
	const char *name;      /* bf3 */
	unsigned int macro;    /* value of __NV_DPA */
	unsigned int hw_model; /* enum flexio_hw_model_id */
};

const struct arch *arch_find(const char *cpu, size_t len);
const char *arch_names(void); /* all of them, for messages */
/* Compiler options that make clang a compiler for the device: target, macros, include folders. */
void arch_compiler_options(const struct arch *arch, struct list *out);

/* --- options.c: the command line --- */

struct options {
	struct list inputs;
	struct list device_options; /* for the device compiler; -I and -D too */
	struct list host_options;
	struct list link_options;
	struct list device_libs; /* -l, -L and files, as given */
	const struct arch *archs[MAX_ARCHS];
	int num_archs;
	const char *output; /* NULL: with -c only, a name for each input */
	const char *app_name;
	const char *hostcc;
	const char *keep_dir;   /* NULL: intermediate files go */
	const char *attributes; /* blob for the program, or NULL */
	bool compile_only, gen_libs, shared, lto, dryrun, verbose;
};

/* Exits where the command line is wrong. */
void options_parse(struct options *opt, int argc, char **argv);
bool is_identifier(const char *name);

/* --- words.c --- */

/* Split an option list at spaces, and at commas if asked to; quotes and backslashes keep them. Commas after -Wl, -Wa,
 * -Wp belong to that option, and those inside parentheses to the word, as in -DV=VER(24,7,0). False after a message where a quote is not closed. */
bool words_split(const char *text, bool commas, struct list *out);

/* --- tools.c: where things are --- */

/* Full path of a program in PATH, or NULL after a message that names the Debian package. */
const char *tool_find(const char *name);
const char *tree_path(const char *relative); /* below the tree that dpacc stands in */
/* A file of that tree that must be there; NULL after a message. */
const char *tree_file(const char *relative);
const char *picolibc_dir(void); /* NULL after a message */
const char *libgcc_file(void);  /* NULL after a message */

/* --- run.c: commands, the work folder, outputs --- */

/* Where intermediate files go; 0 or -1 after a message. */
int work_begin(const struct options *opt);
void work_end(void); /* removes what is not kept */
const char *work_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A compiler option by which the name of a work folder that goes stays out of what is compiled: outputs depend on
 * inputs alone. */
void work_hide(struct list *argv);
/* Write a generated file; nothing happens in a dry run. */
int work_write(const char *path, const void *data, size_t size);
/* Remove a file that was kept from before and would be added to. */
void work_remove(const char *path);
/* Run a command (argv[0] is a full path) and wait. 0, or -1 after its message or ours. */
int run_command(const struct list *argv);
/*
 * The first line that a command prints; NULL where it fails. For questions, so it also runs in a
 * dry run.
 */
const char *run_question(const struct list *argv);
/* Put a finished file in its place at the end, all or none: add them, then commit. */
int output_add(const char *from, const char *to);
int output_commit(void);
/* Early answer where an output cannot be written at all. */
int output_check(const char *to);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- types.c: C types as text --- */

/* Bytes of all arguments of a call; VB_RTOS_ARGBUF_SIZE of the run-time system. */
#define ARGBUF_SIZE 4096

/* Whether a word of types is one that scan.c could have written. The functions below need that. */
bool types_valid(const char *types);
size_t types_argbuf_size(const char *types);
/*
 * Parameters one after the other: for (p = types + 1; *p; p = type_next(p)). NULL where it is not a
 * type.
 */
const char *type_next(const char *type);
bool type_is_aggregate(const char *type);
size_t type_size(const char *type);        /* of a struct or union */
unsigned int type_slots(const char *type); /* of 8 bytes in the argument buffer */
const char *type_c_name(char letter);
/* Define a struct or union under this name, with a check of its size. */
void type_write(FILE *out, const char *type, const char *name);

/* --- scan.c: annotated functions of a source, by libclang --- */

struct function {
	const char *name;
	const char *file; /* where it is defined */
	unsigned int line;
	bool rpc; /* else __dpa_global__ */
	bool is_static;
	/* First the result, then the parameters: v void, b bool, c C s S i I l L integers of 1, 2, 4, 8 bytes (upper case:
	 * unsigned), p pointer, f float, d double; parameters may be structs and unions, see types.c. */
	const char *types;
};

struct functions {
	struct function *v;
	int n, room;
};

struct function *functions_add(struct functions *list);
/*
 * Registered name of the device function: that of a static one is made so that it cannot meet
 * another symbol.
 */
const char *function_symbol(const struct function *f);

/*
 * Read a source as the device compiler will. base: all its options. Finds out the argument forms:
 * own gets the options that this source needs. 0 or -1 after messages (types that cannot be
 * passed). Errors in the source are left to the compiler, which says them better; *error gets the
 * first, for the case that the compiler has none.
 */
int scan_source(const char *path, const struct list *base, struct functions *out, struct list *own,
		const char **error);

/* --- meta.c: functions as text, in .dpa_meta --- */

char *meta_format(const struct functions *list); /* lines */
/*
 * Of a linked program. -1 after a message where the text is damaged or two functions have one name.
 */
int meta_parse(const char *text, size_t size, const char *where, struct functions *out);
int functions_check_clash(const struct functions *list);

/* --- gen_device.c, gen_host.c: generated C --- */

char *gen_unpack(const struct functions *list);
char *gen_stubs(const struct functions *list);
struct image {
	const struct arch *arch;
	const char *file; /* device_exec.ARCH */
	struct functions functions;
};
/* What the blobs of dpa-app-attributes2blob begin with; the file's text follows. */
#define ATTRIBUTES_MAGIC "DPAATTR1"

char *gen_meta(const char *app, const struct image *images, int n);

/* --- files.c --- */

/* The bytes of a file; NULL after a message. */
const void *file_read(const char *path, size_t *size);
bool same_file(const char *a, const char *b);
/* There, and no ordinary file: it is written to where it is. */
bool file_is_special(const char *path);
const char *file_folder(const char *path);
/* A new file in the folder of an output, under a name of its own, to be renamed to its place: what a link leads to, or
 * the output itself. -1: not possible, see errno. */
int file_beside(const char *to, const char **temporary, const char **place);

/* --- object.c: ELF objects and archives --- */

struct member {
	const char *name;
	const void *data; /* valid until the end */
	size_t size;
};

/* Members of an ar archive in memory; -1 where it is none or damaged (no message). */
int archive_members(const void *data, size_t size, struct member **members, int *n);
/* A section of an ELF file in memory: 1 found, 0 not there, -1 no or damaged ELF (no message). */
int elf_section(const void *data, size_t size, const char *name, const void **section,
		size_t *section_size);
/* Whether an ELF file in memory defines a symbol. */
bool elf_defines(const void *data, size_t size, const char *name);

/* --- unit.c: one input --- */

struct unit {
	const char *path;
	const char *base;            /* unique name of its intermediate files */
	bool source;                 /* else an object of an earlier -c */
	struct functions functions;  /* of sources, all targets together */
	const char *join[MAX_ARCHS]; /* device objects */
	const char *host;            /* host object */
};

int units_make(const struct options *opt, struct unit **units);
int unit_compile(const struct options *opt, struct unit *unit);
/* The object that -c leaves; its path, or NULL. */
const char *unit_pack(const struct options *opt, const struct unit *unit);
/*
 * The host compiler, and arguments that came with it (-hostcc="ccache gcc"). 0 or -1 after a
 * message.
 */
int host_compiler(const struct options *opt, struct list *argv);
/*
 * Compile generated host code. Always position independent: the archive may go into a shared
 * library.
 */
int compile_host(const struct options *opt, const char *from, const char *to);

/* How the name of a device object for a target ends, after ".ARCH". */
#define JOIN_SUFFIX ".dpa.join.o"
bool has_suffix(const char *text, const char *suffix);
bool member_is_for(const char *name, const struct arch *arch);

/* --- link.c, library.c --- */

int link_app(const struct options *opt, struct unit *units, int n);
int make_libraries(const struct options *opt, struct unit *units, int n);
/* Linker arguments for the device libraries of a target. */
int library_arguments(const struct options *opt, const struct arch *arch, struct list *out);
