// SPDX-License-Identifier: MIT
/*
 * Owns the registers as a debugger numbers them, and the target description that says so.
 *
 *	0..31  x0..x31    32  pc                 in g and G
 *	33 cycle  34 time  35 instret            user CSRs, read only
 *	36 cause  37 tval                        of the last trap: ours, read only
 */
#include "gdb/session.h"

#include <stdio.h>

enum { REG_PC = 32, REG_CYCLE, REG_TIME, REG_INSTRET, REG_CAUSE, REG_TVAL, REGS };

/*
 * Registers of a process without threads have no meaning, and those of an idle thread are left over:
 * zero, unless they show the trap that ended it.
 */
static int get_state(struct session *s, struct vb_dpa_state *state)
{
	struct vb_dpa_thread_info info;
	int err;

	if (s->thread == NO_THREAD) {
		*state = (struct vb_dpa_state){ 0 };
		return s->state == SESSION_STOPPED ? 0 : -EINVAL;
	}
	err = vb_dpa_debug_state(s->debug, s->thread, state);
	if (!err && !vb_dpa_debug_info(s->debug, s->thread, &info) && info.idle && !state->cause &&
	    state->pc != VB_DPA_RETURN_PC)
		*state = (struct vb_dpa_state){ .instret = state->instret };
	return err;
}

static int registers_set_state(struct session *s, const struct vb_dpa_state *state)
{
	return s->thread == NO_THREAD ? -ESRCH : vb_dpa_debug_set_state(s->debug, s->thread, state);
}

/* The machine's bytes are the guest's: both are little-endian, which the accelerator relies on. */
void vb_gdb_read_registers(struct session *s)
{
	struct vb_dpa_state state;
	int err = get_state(s, &state);

	if (err) {
		vb_gdb_put_error(s, err);
		return;
	}
	state.x[0] = 0;
	vb_gdb_put_hex(s, state.x, sizeof(state.x));
	vb_gdb_put_hex(s, &state.pc, sizeof(state.pc));
}

void vb_gdb_write_registers(struct session *s, const char *at)
{
	struct vb_dpa_state state;
	int err = get_state(s, &state);

	if (!err && (!vb_gdb_get_hex(&at, state.x, sizeof(state.x)) ||
		     !vb_gdb_get_hex(&at, &state.pc, sizeof(state.pc)) || *at))
		err = -EINVAL;
	vb_gdb_put_result(s, err ? err : registers_set_state(s, &state));
}

void vb_gdb_read_register(struct session *s, const char *at)
{
	struct vb_dpa_state state;
	uint64_t number, value;
	int err = get_state(s, &state);

	if (!err && (!vb_gdb_get_number(&at, &number) || *at || number >= REGS))
		err = -EINVAL;
	if (err) {
		vb_gdb_put_error(s, err);
		return;
	}
	switch (number) {
	case REG_PC:
		value = state.pc;
		break;
	case REG_CYCLE:
	case REG_TIME:
		value = vb_dpa_clock(s->target->process, state.instret);
		break;
	case REG_INSTRET:
		value = state.instret;
		break;
	case REG_CAUSE:
		value = state.cause;
		break;
	case REG_TVAL:
		value = state.tval;
		break;
	default:
		value = number ? state.x[number] : 0;
	}
	vb_gdb_put_hex(s, &value, sizeof(value));
}

void vb_gdb_write_register(struct session *s, const char *at)
{
	struct vb_dpa_state state;
	uint64_t number, value;
	int err = get_state(s, &state);

	if (!err && (!vb_gdb_get_number(&at, &number) || !vb_gdb_get_char(&at, '=') ||
		     !vb_gdb_get_hex(&at, &value, sizeof(value)) || *at || number >= REGS))
		err = -EINVAL;
	if (!err && number > REG_PC)
		err = -EROFS;
	if (!err && number == REG_PC)
		state.pc = value;
	else if (!err && number)
		state.x[number] = value;
	vb_gdb_put_result(s, err ? err : registers_set_state(s, &state));
}

/* ---- the target description ---- */

static void print_cpu(FILE *f)
{
	static const char *const names[] = { "zero", "ra", "sp",  "gp",  "tp", "t0", "t1", "t2",
					     "fp",   "s1", "a0",  "a1",  "a2", "a3", "a4", "a5",
					     "a6",   "a7", "s2",  "s3",  "s4", "s5", "s6", "s7",
					     "s8",   "s9", "s10", "s11", "t3", "t4", "t5", "t6" };

	fprintf(f, "<feature name=\"org.gnu.gdb.riscv.cpu\">\n");
	for (unsigned int i = 0; i < 32; i++)
		fprintf(f, "<reg name=\"%s\" bitsize=\"64\" type=\"%s\" regnum=\"%u\"/>\n",
			names[i],
			i == 1           ? "code_ptr"
			: i > 1 && i < 5 ? "data_ptr"
					 : "int",
			i);
	fprintf(f,
		"<reg name=\"pc\" bitsize=\"64\" type=\"code_ptr\" regnum=\"%d\"/>\n</feature>\n",
		REG_PC);
}

static void print_csrs(FILE *f)
{
	static const char *const names[] = { "cycle", "time", "instret" };

	fprintf(f, "<feature name=\"org.gnu.gdb.riscv.csr\">\n");
	for (int i = 0; i < 3; i++)
		fprintf(f,
			"<reg name=\"%s\" bitsize=\"64\" type=\"int\" regnum=\"%d\" save-restore=\"no\"/>\n",
			names[i], REG_CYCLE + i);
	fprintf(f, "</feature>\n");
}

static void registers_print_trap(FILE *f)
{
	static const struct {
		const char *name;
		enum vb_dpa_cause value;
	} causes[] = {
		{ "NONE", VB_DPA_CAUSE_NONE },
		{ "FETCH_FAULT", VB_DPA_CAUSE_FETCH },
		{ "ILLEGAL_INSTRUCTION", VB_DPA_CAUSE_ILLEGAL },
		{ "BREAKPOINT", VB_DPA_CAUSE_BREAKPOINT },
		{ "LOAD_MISALIGNED", VB_DPA_CAUSE_LOAD_MISALIGNED },
		{ "LOAD_FAULT", VB_DPA_CAUSE_LOAD },
		{ "STORE_MISALIGNED", VB_DPA_CAUSE_STORE_MISALIGNED },
		{ "STORE_FAULT", VB_DPA_CAUSE_STORE },
		{ "ECALL", VB_DPA_CAUSE_ECALL },
		{ "WATCHDOG", VB_DPA_CAUSE_WATCHDOG },
	};

	fprintf(f, "<feature name=\"verbatim.dpa.trap\">\n<enum id=\"cause\" size=\"8\">\n");
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		fprintf(f, "<evalue name=\"%s\" value=\"%d\"/>\n", causes[i].name, causes[i].value);
	fprintf(f,
		"</enum>\n"
		"<reg name=\"cause\" bitsize=\"64\" type=\"cause\" regnum=\"%d\" save-restore=\"no\"/>\n"
		"<reg name=\"tval\" bitsize=\"64\" type=\"data_ptr\" regnum=\"%d\" save-restore=\"no\"/>\n"
		"</feature>\n",
		REG_CAUSE, REG_TVAL);
}

int vb_gdb_features_doc(struct session *s, const char *annex)
{
	FILE *f;

	if (strcmp(annex, "target.xml"))
		return -ENOENT;
	f = open_memstream(&s->doc, &s->doc_len);
	if (!f)
		return -ENOMEM;
	fprintf(f, "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n"
		   "<target version=\"1.0\">\n<architecture>riscv:rv64</architecture>\n");
	print_cpu(f);
	print_csrs(f);
	registers_print_trap(f);
	fprintf(f, "</target>\n");
	return fclose(f) ? -ENOMEM : 0;
}
