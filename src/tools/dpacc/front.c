// SPDX-License-Identifier: MIT
/*
 * dpa-clang, dpa-ar, dpa-nm, dpa-objdump: LLVM's own programs, with what they need to know about
 * the device. Each is this file, compiled with FRONT as its name.
 */
#include "dpacc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void say(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "dpa-" FRONT ": ");
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* libgcc is found by asking gcc, which only links need; not in a front. */
const char *run_question(const struct list *argv)
{
	return NULL;
}

static const char *front_value_of(const char *word, const char *option)
{
	size_t len = strlen(option);

	word += !strncmp(word, "--", 2);
	return strncmp(word, option, len) ? NULL : word + len;
}

/* -mcpu=nv-dpa-bf3 chooses the macros; the rest is clang's. */
static int clang_arguments(int argc, char **argv, struct list *out)
{
	const struct arch *arch = arch_find("nv-dpa-bf3", strlen("nv-dpa-bf3"));
	const char *libc = picolibc_dir();
	struct list rest = { 0 };

	if (!libc)
		return -1;
	for (int i = 1; i < argc; i++) {
		const char *cpu = front_value_of(argv[i], "-mcpu=");

		if (!cpu) {
			list_add(&rest, argv[i]);
			continue;
		}
		arch = arch_find(cpu, strlen(cpu));
		if (!arch) {
			say("unknown -mcpu '%s'; there are %s", cpu, arch_names());
			return -1;
		}
	}
	arch_compiler_options(arch, out);
	list_addv(out, "--start-no-unused-arguments", "-fuse-ld=lld", "--end-no-unused-arguments",
		  NULL);
	list_append(out, &rest);
	list_addv(out, "-isystem", tree_path("include/libflexio-libc"), "-isystem",
		  mem_printf("%s/include", libc), "-isystem", tree_path("include"), NULL);
	return 0;
}

int main(int argc, char **argv)
{
	bool clang = !strcmp(FRONT, "clang"), objdump = !strcmp(FRONT, "objdump");
	const char *tool = tool_find(clang ? "clang" : "llvm-" FRONT);
	struct list words = { 0 };

	if (!tool)
		return DPACC_FAILED;
	list_add(&words, tool);
	if (clang && clang_arguments(argc, argv, &words))
		return DPACC_FAILED;
	if (objdump) /* objects do not say which extensions they were compiled for */
		list_add(&words, "--mattr=+m,+a,+c,+zba,+zbb,+zbs");
	for (int i = 1; !clang && i < argc; i++)
		list_add(&words, argv[i]);
	execv(tool, words.v);
	say("%s: %s", tool, strerror(errno));
	return DPACC_FAILED;
}
