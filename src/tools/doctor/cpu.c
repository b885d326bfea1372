// SPDX-License-Identifier: MIT
/* The processor, and memory that can be executed: what the translator of device code and the patched
 * doorbells stand on. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/env.h"
#include "tools/doctor/doctor.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u
#endif

enum { PAGE = 4096, ANSWER = 42 };

static const char interpreted[] =
	"device code is interpreted, which is many times slower than translated";
static const char trapped[] =
	"doorbells that direct-verbs programs ring by stores cost a trap each (microseconds, not nanoseconds)";

#ifdef __x86_64__
/* mov eax, 42; ret */
static const uint8_t answer_code[] = { 0xb8, ANSWER, 0, 0, 0, 0xc3 };

static void check_instructions(void)
{
	unsigned int a, b, c = 0, d, b7 = 0, c1 = 0, c8 = 0, ignored;
	char missing[64] = "";

	if (__get_cpuid(1, &a, &b, &c, &d))
		c1 = c;
	if (!__get_cpuid_count(7, 0, &a, &b7, &ignored, &d))
		b7 = 0;
	if (__get_cpuid(0x80000001, &a, &b, &c, &d))
		c8 = c;
	snprintf(missing, sizeof(missing), "%s%s%s%s", c1 & bit_POPCNT ? "" : " POPCNT",
		 b7 & bit_BMI ? "" : " BMI1", b7 & bit_BMI2 ? "" : " BMI2",
		 c8 & bit_LZCNT ? "" : " LZCNT");
	if (*missing)
		doctor_say(FALLS_BACK, "instructions", NULL,
			   "this x86-64 processor (or virtual machine) has no%s: %s", missing,
			   interpreted);
	else
		doctor_say(WORKS, "instructions", NULL, "x86-64 with POPCNT, BMI1, BMI2 and LZCNT");
	if (c1 & bit_PCLMUL && c1 & bit_SSE4_1)
		doctor_say(WORKS, "carry-less", NULL,
			   "PCLMULQDQ: clmul of device code is translated");
	else
		doctor_say(FALLS_BACK, "carry-less", NULL,
			   "no PCLMULQDQ: clmul of device code is a call of a function");
	if (c1 & bit_OSXSAVE && c8 & bit_LAHF_LM)
		doctor_say(WORKS, "xsave", NULL, "the state of vector registers can be kept");
	else
		doctor_say(FALLS_BACK, "xsave", NULL, "no XSAVE or LAHF: %s", trapped);
}

static int call_code(void *code)
{
	int (*function)(void);

	memcpy(&function, &code, sizeof(function));
	return function() == ANSWER ? 0 : 2;
}

/* As the translator does it: written, then executable, never both. */
static int try_protect(void *arg)
{
	void *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (code == MAP_FAILED) {
		fprintf(stderr, "mmap: %s\n", strerror(errno));
		return 1;
	}
	memcpy(code, answer_code, sizeof(answer_code));
	if (mprotect(code, PAGE, PROT_READ | PROT_EXEC)) {
		fprintf(stderr, "mprotect: %s\n", strerror(errno));
		return 1;
	}
	return call_code(code);
}

/* As a trampoline of a patched doorbell comes: a sealed file, mapped to execute. */
static int try_file(void *arg)
{
	int fd = memfd_create("verbatim-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	void *code;

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("verbatim-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || pwrite(fd, answer_code, sizeof(answer_code), 0) != sizeof(answer_code) ||
	    ftruncate(fd, PAGE)) {
		fprintf(stderr, "memfd_create: %s\n", strerror(errno));
		return 1;
	}
	code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (code == MAP_FAILED) {
		fprintf(stderr, "mmap of a memfd to execute: %s\n", strerror(errno));
		return 1;
	}
	return call_code(code);
}

/* Text is written through /proc/self/mem, past the rights of its pages. */
static int try_text(void *arg)
{
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	if (page == MAP_FAILED || fd < 0 ||
	    pwrite(fd, answer_code, sizeof(answer_code), (off_t)(uintptr_t)page) !=
		    sizeof(answer_code)) {
		fprintf(stderr, "/proc/self/mem: %s\n", strerror(errno));
		return 1;
	}
	return memcmp(page, answer_code, sizeof(answer_code)) ? 2 : 0;
}

static void cpu_check_memory(void)
{
	const char *patch = vb_getenv("VERBATIM_PATCH");
	char why[256];

	if (!doctor_try(try_protect, NULL, why, sizeof(why)))
		doctor_say(WORKS, "executable", NULL, "memory can be made executable");
	else
		doctor_say(
			FALLS_BACK, "executable",
			"Allow mprotect(PROT_EXEC): SELinux execmem, systemd MemoryDenyWriteExecute=no.",
			"%s: %s", why, interpreted);
	if (doctor_try(try_file, NULL, why, sizeof(why)))
		doctor_say(FALLS_BACK, "exec. files",
			   "sysctl vm.memfd_noexec=0, or another seccomp profile.", "%s: %s", why,
			   trapped);
	else
		doctor_say(WORKS, "exec. files", NULL,
			   "memory files can be written once and mapped a second time to execute");
	if (doctor_try(try_text, NULL, why, sizeof(why)))
		doctor_say(FALLS_BACK, "own text",
			   "Mount /proc, and allow writing to /proc/self/mem.", "%s: %s", why,
			   trapped);
	else if (patch && !strcmp(patch, "off"))
		doctor_say(FALLS_BACK, "own text", "Unset VERBATIM_PATCH.",
			   "VERBATIM_PATCH=off: %s", trapped);
	else
		doctor_say(WORKS, "own text", NULL, "stores that ring doorbells can be replaced");
}
#else
static void check_instructions(void)
{
	doctor_say(FALLS_BACK, "instructions", NULL, "the translator is for x86-64: %s",
		   interpreted);
	doctor_say(FALLS_BACK, "own text", NULL, "not x86-64: %s", trapped);
}

static void cpu_check_memory(void)
{
}
#endif

void doctor_check_cpu(void)
{
	doctor_group("Processor");
	check_instructions();
	cpu_check_memory();
}
