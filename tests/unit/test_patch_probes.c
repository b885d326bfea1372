// SPDX-License-Identifier: MIT
/*
 * Patched sites that somebody else writes to: breakpoints on the instructions behind a short store, whose bytes are part of
 * the jump; uprobes there and on the store itself; a debugger that comes and goes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "host/patch/patch.h"
#include "host/signals.h"
#include "host/trap/trap.h"
#include "patch_text.h"

enum { RINGS = 100, INT3 = 0xcc, MOST = 8, LOOK = 70000 };

/* Stores of two, three and four bytes; instructions of several lengths behind them. */
static const struct {
	uint8_t length, size, offset, breakpoints[3], code[16];
} stores[] = {
	/* mov %esi, (%rdi); ret; nopw 0(%rax,%rax,1) */
	{ 2, 4, 0, { 2 }, { 0x89, 0x37, 0xc3, 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00 } },
	/* mov %esi, (%rdi); mov %rdi, %rax; ret */
	{ 2, 4, 0, { 2 }, { 0x89, 0x37, 0x48, 0x89, 0xf8, 0xc3 } },
	/* mov %esi, (%rdi); xchg %eax, %eax; nop; ret */
	{ 2, 4, 0, { 2, 4 }, { 0x89, 0x37, 0x66, 0x90, 0x90, 0xc3 } },
	/* mov %esi, (%rdi); nop; nop; nop; ret */
	{ 2, 4, 0, { 2, 3, 4 }, { 0x89, 0x37, 0x90, 0x90, 0x90, 0xc3 } },
	/* mov %rsi, (%rdi); xor %eax, %eax; ret */
	{ 3, 8, 0, { 3 }, { 0x48, 0x89, 0x37, 0x31, 0xc0, 0xc3 } },
	/* mov %esi, 0x14(%rdi); nop; nop; ret */
	{ 3, 4, 0x14, { 3, 4 }, { 0x89, 0x77, 0x14, 0x90, 0x90, 0xc3 } },
	/* mov %rsi, 0x18(%rdi); ret */
	{ 4, 8, 0x18, { 4 }, { 0x48, 0x89, 0x77, 0x18, 0xc3 } },
};

/* Gigabytes from everything else, so that each jump finds room. */
#define ALONE ((void *)0x310000000000)

static _Atomic uint64_t total;
static uint8_t memory[64];

static void count(void *arg, size_t offset, const void *data, size_t size)
{
	atomic_fetch_add(&total, 1);
}

static uint32_t kept(enum vb_site_reason reason)
{
	return atomic_load(&vb_patch_counts.sites[reason]);
}

static void ring_many(store_function *store, void *bell, uint64_t n)
{
	uint64_t before = total;

	for (uint64_t i = 0; i < n; i++)
		store(bell, i);
	must(total == before + n);
}

/* --- breakpoints ---------------------------------------------------------------------------------------------------- */

static uint8_t *text;
static uint8_t behind[MOST];          /* breakpoint or not */
static volatile unsigned int reached; /* breakpoints */

static void write_text(uint8_t *at, uint8_t byte)
{
	int fd = open("/proc/self/mem", O_RDWR);

	must(fd >= 0 && pwrite(fd, &byte, 1, (off_t)(uintptr_t)at) == 1);
	close(fd);
}

/* What a debugger does that goes on from a breakpoint, without the step. */
static void on_breakpoint(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uint8_t *at = (uint8_t *)uc->uc_mcontext.gregs[REG_RIP] - 1;

	must(at >= text && at < text + MOST && behind[at - text]);
	write_text(at, behind[at - text]);
	behind[at - text] = 0;
	uc->uc_mcontext.gregs[REG_RIP]--;
	reached++;
}

static unsigned int set_breakpoints(unsigned int i, unsigned int set)
{
	unsigned int count = 0;

	for (unsigned int n = 0; n < 3; n++) {
		unsigned int at = stores[i].breakpoints[n];

		if (!at || !(set >> n & 1))
			continue;
		behind[at] = text[at];
		write_text(text + at, INT3);
		count++;
	}
	return count;
}

static unsigned int which;

static void must_be_stored(store_function *store)
{
	uint64_t value = 0, before = total;

	memset(memory, 0, sizeof(memory));
	store(memory, 0x12345678);
	memcpy(&value, memory + stores[which].offset, stores[which].size);
	must(value == 0x12345678 && total == before);
}

static void breakpoints_behind(void)
{
	struct sigaction act = { .sa_sigaction = on_breakpoint, .sa_flags = SA_SIGINFO };
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store;

	must(!vb_signal_action(SIGTRAP, &act, NULL));
	text = text_map(ALONE, stores[which].code, sizeof(stores[which].code));
	store = function_at(text);
	for (unsigned int set = 1; set < 8; set++) {
		unsigned int count;

		for (int i = 0; i < 100000 && !vb_patch_counts.patched; i++)
			ring_many(store, bell, 1);
		must(vb_patch_counts.patched == 1);
		reached = 0;
		count = set_breakpoints(which, set);
		if (!count)
			continue;
		must_be_stored(store);
		must(reached == count);
		must(set_breakpoints(which, set) == count);
		ring_many(store, bell, 1);
		must(reached == 2 * count);
		/* It is seen, and the store is put back, so that the next one meets no fault but its own. */
		must(vb_patch_counts.patched == 0 && kept(VB_SITE_TRACED) == 1);
		must(!memcmp(text, stores[which].code, sizeof(stores[which].code)));
	}
}

static void map_code_at(uint8_t *from, int32_t distance, size_t size)
{
	uintptr_t low = (uintptr_t)(from + distance) & ~(uintptr_t)4095;
	uintptr_t high = ((uintptr_t)(from + distance) + size + 4095) & ~(uintptr_t)4095;

	must(mmap((void *)low, high - low, PROT_READ | PROT_EXEC,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)low);
}

/* Code where a breakpoint would lead the jump to, whatever prefixes it has: the trap stays. */
static void code_at_landings(void)
{
	/* mov %esi, 0x14(%rdi); nop; nop; ret */
	static const uint8_t code[] = { 0x89, 0x77, 0x14, 0x90, 0x90, 0xc3, 0xcc };
	void *bell = vb_trap_map(4096, count, NULL);

	text = text_map(ALONE, code, sizeof(code));
	map_code_at(text + 5, (int32_t)0x90cc0000, 65536);
	map_code_at(text + 6, (int32_t)0xc390cc00, 256);
	map_code_at(text + 7, (int32_t)0xccc390cc, 1);
	ring_many(function_at(text), bell, RINGS);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_PLACE) == 1);
	must(!memcmp(text, code, sizeof(code)));
}

/*
 * Two stores on one page whose jumps differ in the byte that a breakpoint replaces: each thread goes on where it came from.
 */
static void breakpoints_behind_two(void)
{
	/* mov %rsi, (%rdi); xor %esi, %esi; ret; the same with sub %esi, %esi */
	static const uint8_t code[] = { 0x48, 0x89, 0x37, 0x31, 0xf6, 0xc3, 0xcc, 0xcc,
					0x48, 0x89, 0x37, 0x29, 0xf6, 0xc3, 0xcc, 0xcc };
	struct sigaction act = { .sa_sigaction = on_breakpoint, .sa_flags = SA_SIGINFO };
	void *bell = vb_trap_map(4096, count, NULL);
	uint8_t *both = text_map(ALONE, code, sizeof(code));

	must(!vb_signal_action(SIGTRAP, &act, NULL));
	for (unsigned int i = 0; i < 4; i++) {
		for (unsigned int n = 0; n < 200000 && vb_patch_counts.patched < 2; n++)
			for (unsigned int at = 0; at < 16; at += 8)
				ring_many(function_at(both + at), bell, 1);
		must(vb_patch_counts.patched == 2);
		text = both + i % 2 * 8;
		reached = 0;
		behind[3] = text[3];
		write_text(text + 3, INT3);
		ring_many(function_at(text), bell, 1);
		must(reached == 1);
		must(!memcmp(text, code + i % 2 * 8, 8));
	}
}

static void breakpoints(void **state)
{
	in_child(breakpoints_behind_two, "first");
	in_child(code_at_landings, "first");
	for (which = 0; which < sizeof(stores) / sizeof(stores[0]); which++)
		in_child(breakpoints_behind, "first");
}

/* --- uprobes -------------------------------------------------------------------------------------------------------- */

/* Of this process, at an offset of the file that text was mapped from; -1 where that is not allowed. */
static int set_uprobe(const char *path, uint64_t offset)
{
	struct perf_event_attr attr = { .size = sizeof(attr), .sample_period = 1 };
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	int type = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%d", &type) != 1)
		type = -1;
	fclose(f);
	attr.type = (uint32_t)type;
	attr.uprobe_path = (uint64_t)(uintptr_t)path;
	attr.probe_offset = offset;
	return (int)syscall(SYS_perf_event_open, &attr, getpid(), -1, -1, 0);
}

static void file_of(const void *at, char path[512])
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[1024], *name;
	uintptr_t start, end;

	must(maps);
	path[0] = '\0';
	while (fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && (uintptr_t)at >= start &&
		    (uintptr_t)at < end && (name = strchr(line, '/')))
			snprintf(path, 512, "%.*s", (int)strcspn(name, "\n"), name);
	fclose(maps);
	must(path[0]);
}

static uint64_t hits(int fd)
{
	uint64_t n;

	must(read(fd, &n, sizeof(n)) == sizeof(n));
	return n;
}

/* Set on a patched site, hit, gone; the same once more. */
static void probe(uint64_t offset)
{
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store;
	char path[512];

	text = text_map(ALONE, stores[which].code, sizeof(stores[which].code));
	store = function_at(text);
	file_of(text, path);
	for (int round = 0; round < 2; round++) {
		int fd;

		for (int i = 0; i < 100000 && !vb_patch_counts.patched; i++)
			ring_many(store, bell, 1);
		must(vb_patch_counts.patched == 1);
		fd = set_uprobe(path, offset);
		must(fd >= 0);
		ring_many(store, bell, RINGS);
		must(hits(fd) == RINGS);
		must_be_stored(store);
		must(vb_patch_counts.patched == 0 && kept(VB_SITE_TRACED) == 1);
		close(fd);
		must(!memcmp(text, stores[which].code, sizeof(stores[which].code)));
		ring_many(store, bell, RINGS);
		must_be_stored(store);
	}
}

static void probe_store(void)
{
	probe(0);
}

static void probe_behind(void)
{
	probe(stores[which].length);
}

static bool may_probe(void)
{
	char path[512];
	int fd;

	file_of(text_map(NULL, stores[0].code, sizeof(stores[0].code)), path);
	fd = set_uprobe(path, 0);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void uprobes(void **state)
{
	if (!may_probe()) {
		print_message("no uprobes: perf_event_open() refuses them\n");
		skip();
	}
	for (which = 0; which < sizeof(stores) / sizeof(stores[0]); which++) {
		in_child(probe_store, "first");
		in_child(probe_behind, "first");
	}
}

/* --- a debugger ----------------------------------------------------------------------------------------------------- */

/* Passes on every signal until it is told to go. */
static void trace(pid_t pid, int come, int gone)
{
	char byte = 1;
	int status;

	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
		byte = 0;
	must(write(come, &byte, 1) == 1);
	while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == SIGUSR2) {
			must(!ptrace(PTRACE_DETACH, pid, NULL, NULL));
			must(write(gone, &byte, 1) == 1);
			_exit(0);
		}
		must(!ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)WSTOPSIG(status)));
	}
	_exit(1);
}

/* A site that rings is put back while it is there, and patched again when it is gone. */
static void debugger_comes(void)
{
	void *bell = vb_trap_map(4096, count, NULL);
	store_function *store;
	int come[2], gone[2], status;
	pid_t self = getpid(), pid;
	char byte;

	which = 5;
	text = text_map(ALONE, stores[which].code, sizeof(stores[which].code));
	store = function_at(text);
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 1 && !pipe(come) && !pipe(gone));
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	pid = fork();
	if (!pid)
		trace(self, come[1], gone[1]);
	must(read(come[0], &byte, 1) == 1);
	if (!byte)
		exit(0); /* nobody may trace here */
	ring_many(store, bell, LOOK);
	must(vb_patch_counts.patched == 0 && kept(VB_SITE_TRACED) == 1);
	must(!memcmp(text, stores[which].code, sizeof(stores[which].code)));
	ring_many(store, bell, RINGS);
	must(vb_patch_counts.patched == 0);
	raise(SIGUSR2);
	must(read(gone[0], &byte, 1) == 1);
	must(waitpid(pid, &status, 0) == pid && !status);
	ring_many(store, bell, 10 * RINGS);
	must(vb_patch_counts.patched == 1 && kept(VB_SITE_TRACED) == 0);
}

static void debuggers(void **state)
{
	in_child(debugger_comes, "first");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(breakpoints),
		cmocka_unit_test(uprobes),
		cmocka_unit_test(debuggers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
