// SPDX-License-Identifier: MIT
/*
 * What the checker of translations believes of instructions, it has from Zydis. Here this machine's
 * processor is asked: each form that the checker allows is executed, one step at a time, and must be
 * as long as Zydis says, write the registers that Zydis says, touch memory within the size that Zydis
 * says, and neither trap nor do anything else.
 *
 *   | no access | page, shown twice: read-only and writable | no access |
 *                ^ operands at its beginning, and at its end
 *
 * The steps are made by the trap flag: the handler of SIGTRAP looks at what the last instruction did and
 * prepares the next one.
 */
#include "bed.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "dpa/cpu/jit/verify_insn.h"
#include "dpa/cpu/jit/x86.h"

enum { PAGE = 4096, TRAP_FLAG = 0x100, DIRECTION_FLAG = 0x400, MAX_LEN = 15 };

static const uint8_t gregs[16] = {
	[RAX] = REG_RAX, [RCX] = REG_RCX, [RDX] = REG_RDX, [RBX] = REG_RBX,
	[RSP] = REG_RSP, [RBP] = REG_RBP, [RSI] = REG_RSI, [RDI] = REG_RDI,
	[R8] = REG_R8,   [R9] = REG_R9,   [R10] = REG_R10, [R11] = REG_R11,
	[R12] = REG_R12, [R13] = REG_R13, [R14] = REG_R14, [R15] = REG_R15,
};

/* One shape of instructions that is walked through: these bytes, with an opcode and a ModRM byte. */
struct shape {
	uint8_t lead[6];
	unsigned len;
};

static struct {
	struct memo *memo;
	uint8_t *code;                /* where instructions are executed */
	uint8_t *readable, *writable; /* the same page */
	sigjmp_buf done;
	struct shape shape;
	unsigned next;    /* opcode << 8 | ModRM; what comes next of this shape */
	unsigned stride;  /* between those that are tried */
	bool at_end;      /* where in its page the operand is */
	struct insn insn; /* being executed */
	greg_t before[16];
	unsigned executed, skipped, round;
	char bytes[64]; /* in hex */
} t;

static void name_bytes(void)
{
	for (unsigned k = 0; k < t.insn.f->length; k++)
		snprintf(t.bytes + 3 * k, 4, "%02x ", t.code[k]);
}

/* ---- one instruction ---- */

/* Nothing but a register of its own, or memory at r14, and nothing that is only safe in sequences. */
static bool is_tried(const struct form *f)
{
	if (f->why || f->kind != PLAIN || f->host || f->mnemonic == ZYDIS_MNEMONIC_DIV ||
	    f->mnemonic == ZYDIS_MNEMONIC_IDIV)
		return false;
	return f->memory < 0 || (f->o[f->memory].reg == ZYDIS_REGISTER_R14 &&
				 f->o[f->memory].index == ZYDIS_REGISTER_NONE);
}

/* Registers that look like neither addresses nor each other; the operand where it may be touched. */
static void set_registers(greg_t *regs)
{
	const struct form *f = t.insn.f;

	for (unsigned r = 0; r < 16; r++) {
		if (r != RSP)
			regs[gregs[r]] = (greg_t)(0x8123456789abcd00ULL * (2 * r + 3));
		if (f->memory >= 0 && r == R14) {
			unsigned size = f->o[f->memory].size / 8u;
			bool write = f->o[f->memory].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
			uint8_t *page = write ? t.writable : t.readable;

			regs[REG_R14] = (greg_t)(uintptr_t)(t.at_end ? page + PAGE - size : page);
		}
		t.before[r] = regs[gregs[r]];
	}
}

/* Find the next instruction that is allowed, and let the processor go on with it. */
static void prepare(greg_t *regs)
{
	for (;;) {
		uint8_t *to = t.code;

		if (t.insn.f && t.insn.f->memory >= 0 && !t.at_end) {
			t.at_end = true;
			break;
		}
		if (t.next >= 0x10000)
			siglongjmp(t.done, 1);
		memcpy(to, t.shape.lead, t.shape.len);
		to += t.shape.len;
		*to++ = (uint8_t)(t.next >> 8);
		*to++ = (uint8_t)t.next;
		t.next += t.stride;
		memset(to, 0, MAX_LEN);
		t.at_end = false;
		t.insn.f = NULL;
		if (memo_decode(t.memo, t.code, PAGE, 0, &t.insn) && is_tried(t.insn.f))
			break;
		t.insn.f = NULL;
	}
	set_registers(regs);
	regs[REG_RIP] = (greg_t)(uintptr_t)t.code;
	regs[REG_EFL] = (regs[REG_EFL] & ~(greg_t)0x8d5) | TRAP_FLAG;
}

static void check_step(const greg_t *regs)
{
	uint64_t length = (uint64_t)regs[REG_RIP] - (uint64_t)(uintptr_t)t.code;

	name_bytes();
	if (length != t.insn.f->length)
		fail_msg("%s: %u bytes for the checker, %llu for the processor", t.bytes,
			 t.insn.f->length, (unsigned long long)length);
	if (regs[REG_EFL] & DIRECTION_FLAG)
		fail_msg("%s: the direction flag is set", t.bytes);
	for (unsigned r = 0; r < 16; r++) {
		if (regs[gregs[r]] != t.before[r] && !(t.insn.f->written >> r & 1))
			fail_msg("%s: writes register %u", t.bytes, r);
		if (t.insn.f->low_bit >> r & 1 && (uint64_t)regs[gregs[r]] >> 32)
			fail_msg("%s: register %u is no low half", t.bytes, r);
	}
	t.executed++;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)info;
	if (t.insn.f && sig == SIGTRAP) {
		check_step(regs);
	} else if (t.insn.f) {
		ZydisMnemonic m = t.insn.f->mnemonic;

		name_bytes();
		/* Those that translations have only where the processor has them. */
		if (sig != SIGILL || (m != ZYDIS_MNEMONIC_PCLMULQDQ && m != ZYDIS_MNEMONIC_PEXTRQ))
			fail_msg("%s: signal %d", t.bytes, sig);
		t.skipped++;
	}
	prepare(regs);
}

/* ---- all of them ---- */

static void run_shape(const uint8_t *lead, unsigned len)
{
	memcpy(t.shape.lead, lead, len);
	t.shape.len = len;
	t.next = t.round++ % t.stride; /* another choice for each shape */
	t.insn.f = NULL;
	if (!sigsetjmp(t.done, 1))
		raise(SIGTRAP);
}

/* Prefixes, REX and map, each of them or none. */
static void run_legacy(uint8_t prefix, unsigned rex)
{
	static const uint8_t maps[4][2] = { { 0 }, { 0x0f }, { 0x0f, 0x38 }, { 0x0f, 0x3a } };

	for (unsigned map = 0; map < 4; map++) {
		uint8_t lead[4];
		unsigned n = 0;

		if (prefix)
			lead[n++] = prefix;
		if (rex < 16)
			lead[n++] = (uint8_t)(0x40 | rex);
		for (unsigned k = 0; k < 2 && maps[map][k]; k++)
			lead[n++] = maps[map][k];
		run_shape(lead, n);
	}
}

static void make_pages(void)
{
	int fd = memfd_create("operand", 0);
	uint8_t *pages = mmap(NULL, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(fd >= 0 && pages != MAP_FAILED && !ftruncate(fd, PAGE));
	t.readable = mmap(pages + PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	t.writable =
		mmap(pages + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	t.code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	close(fd);
	assert_true(t.readable != MAP_FAILED && t.writable != MAP_FAILED);
	if (t.code == MAP_FAILED)
		skip(); /* a system that refuses such memory */
}

/* In each test: cmocka takes the signals before it runs one. */
static void begin(unsigned stride)
{
	static const int signals[] = { SIGTRAP, SIGILL, SIGSEGV, SIGBUS, SIGFPE };
	struct sigaction action = { .sa_sigaction = on_signal,
				    .sa_flags = SA_SIGINFO | SA_NODEFER };

	memset(&t, 0, sizeof(t));
	make_pages();
	t.memo = memo_create(true);
	t.stride = getenv("VERBATIM_TEST_LONG") ? 1 : stride;
	for (unsigned k = 0; k < sizeof(signals) / sizeof(signals[0]); k++)
		sigaction(signals[k], &action, NULL);
}

static void test_legacy(void **state)
{
	static const uint8_t prefixes[] = { 0, 0x66, 0xf2, 0xf3, 0xf0 };

	(void)state;
	begin(11);
	for (unsigned p = 0; p < sizeof(prefixes); p++)
		for (unsigned rex = 0; rex <= 16; rex++)
			run_legacy(prefixes[p], rex);
	memo_free(t.memo);
	print_message("%u steps, %u skipped\n", t.executed, t.skipped);
	assert_true(t.executed > 20000);
}

static void test_vex(void **state)
{
	(void)state;
	begin(13);
	for (unsigned map = 1; map < 4; map++)
		for (unsigned high = 0; high < 8; high++) /* R, X, B */
			for (unsigned rest = 0; rest < 256; rest++) {
				uint8_t lead[3] = { 0xc4, (uint8_t)(high << 5 | map),
						    (uint8_t)rest };

				run_shape(lead, sizeof(lead));
			}
	memo_free(t.memo);
	print_message("%u steps\n", t.executed);
	assert_true(t.executed > 50);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_legacy),
					    cmocka_unit_test(test_vex) };

	(void)argc;
	(void)argv;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
