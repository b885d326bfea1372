// SPDX-License-Identifier: MIT
/* What builds and debugs device code. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "tools/cmd.h"
#include "tools/doctor/doctor.h"

#define PICOLIBC "/usr/lib/picolibc/riscv64-unknown-elf"

/* The programs that dpacc calls, and the Debian packages that have them. */
static const struct {
	const char *program, *package;
} needed[] = {
	{ "clang", "clang" },       { "ld.lld", "lld" },
	{ "llvm-ar", "llvm" },      { "llvm-link", "llvm" },
	{ "llvm-nm", "llvm" },      { "llvm-objcopy", "llvm" },
	{ "llvm-objdump", "llvm" }, { "riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf" },
	{ "gcc", "gcc" },
};

static const char no_builds[] = "device programs cannot be compiled (compiled ones run)";

static bool check_programs(void)
{
	char path[PATH_MAX], missing[256] = "", packages[256] = "", remedy[300];

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (doctor_find(needed[i].program, path))
			continue;
		snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s%s",
			 *missing ? ", " : "", needed[i].program);
		if (!i || strcmp(needed[i].package, needed[i - 1].package) ||
		    !strstr(packages, needed[i].package))
			snprintf(packages + strlen(packages), sizeof(packages) - strlen(packages),
				 " %s", needed[i].package);
	}
	snprintf(remedy, sizeof(remedy), "On Debian: apt-get install%s", packages);
	if (*missing)
		doctor_say(FAILS, "programs", remedy, "not in PATH: %s: %s", missing, no_builds);
	else
		doctor_say(WORKS, "programs", NULL, "clang, lld, llvm and gcc are there");
	return !*missing;
}

static bool check_libc(void)
{
	const char *dir = vb_getenv("DPACC_PICOLIBC");
	char path[PATH_MAX];

	dir = dir && *dir ? dir : PICOLIBC;
	if (snprintf(path, sizeof(path), "%s/lib/rv64imac/lp64/libc.a", dir) < (int)sizeof(path) &&
	    !access(path, R_OK)) {
		doctor_say(WORKS, "device libc", NULL, "picolibc is in %s", dir);
		return true;
	}
	doctor_say(FAILS, "device libc", "On Debian: apt-get install picolibc-riscv64-unknown-elf",
		   "no picolibc for rv64imac in %s: %s", dir, no_builds);
	return false;
}

static bool write_source(const char *path)
{
	static const char source[] =
		"#include <libflexio-dev/flexio_dev.h>\n"
		"__dpa_rpc__ uint64_t next_of(uint64_t n);\n"
		"__dpa_rpc__ uint64_t next_of(uint64_t n)\n{\n\treturn n + 1;\n}\n";
	FILE *f = fopen(path, "we");
	bool good = f && fputs(source, f) >= 0;

	return f && !fclose(f) && good;
}

/* A device program through the whole of dpacc: that clang knows RISC-V, libclang is of its version ... */
static void check_dpacc(void)
{
	const char *tmp = vb_getenv("TMPDIR");
	char dir[PATH_MAX - 64], source[PATH_MAX], output[PATH_MAX], tool[PATH_MAX], why[512] = "";
	char mcpu[] = "-mcpu=nv-dpa-bf3", app[] = "--app-name=doctor", cc[] = "-hostcc=gcc";
	char out[] = "-o";
	char *argv[] = { tool, mcpu, app, cc, source, out, output, NULL };
	int ret;

	snprintf(dir, sizeof(dir), "%s/verbatim-doctor-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(dir)) {
		doctor_say(FALLS_BACK, "dpacc", "Set TMPDIR to a folder that can be written.",
			   "not tried: no temporary file can be written");
		return;
	}
	snprintf(source, sizeof(source), "%s/doctor.c", dir);
	snprintf(output, sizeof(output), "%s/doctor.a", dir);
	ret = tools_path(tool, "bin/dpacc");
	if (!ret && write_source(source))
		ret = doctor_run(argv, why, sizeof(why));
	if (!ret && access(output, R_OK))
		ret = 1;
	unlink(source);
	unlink(output);
	rmdir(dir);
	if (ret)
		doctor_say(FAILS, "dpacc", "Run dpacc yourself: it says more.", "%s: %s",
			   *why ? why : "dpacc failed", no_builds);
	else
		doctor_say(WORKS, "dpacc", NULL, "a device program compiles and links");
}

static void check_gdb(void)
{
	static const char *const names[] = { "gdb-multiarch", "riscv64-unknown-elf-gdb",
					     "riscv64-linux-gnu-gdb" };
	const char *own = vb_getenv("VERBATIM_GDB");
	char path[PATH_MAX];

	if (own && *own) {
		doctor_say(WORKS, "gdb", NULL, "VERBATIM_GDB names %s", own);
		return;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!doctor_find(names[i], path))
			continue;
		doctor_say(WORKS, "gdb", NULL, "%s: verbatim gdb debugs device code", path);
		return;
	}
	doctor_say(
		FALLS_BACK, "gdb", "On Debian: apt-get install gdb-multiarch",
		"no gdb that knows RISC-V: verbatim gdb does not work; dpa-gdbserver serves a gdb elsewhere");
}

static int try_libdw(void *arg)
{
	if (dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL))
		return 0;
	printf("%s\n", dlerror());
	return 1;
}

static void check_libdw(void)
{
	char why[256];

	if (!doctor_try(try_libdw, NULL, why, sizeof(why)))
		doctor_say(WORKS, "libdw", NULL,
			   "dumps and profiles of device code have lines of source");
	else
		doctor_say(
			FALLS_BACK, "libdw", "On Debian: apt-get install libdw1",
			"%s: dumps and profiles of device code have functions, but no lines and less of the call stack",
			why);
}

void doctor_check_toolchain(void)
{
	bool programs, libc;

	doctor_group("Tools for device code");
	programs = check_programs();
	libc = check_libc();
	if (programs && libc)
		check_dpacc();
	check_gdb();
	check_libdw();
}
