// SPDX-License-Identifier: MIT
/*
 * Owns how a process goes on, and what a debugger is told when it stops.
 */
#include "gdb/session.h"

#define ACTIONS_MAX 256

/* Signals by the numbers of the protocol, which are not all those of Linux. */
enum {
	SIGNAL_INT = 2,
	SIGNAL_ILL = 4,
	SIGNAL_TRAP = 5,
	SIGNAL_BUS = 10,
	SIGNAL_SEGV = 11,
	SIGNAL_SYS = 12,
	SIGNAL_XCPU = 24,
};

/* ---- going on ---- */

/* One of c, C sig, s, S sig, t, r start,end. Signals do not matter: a trap is delivered anyway. */
static bool get_action(const char **at, struct vb_dpa_resume *how)
{
	uint64_t sig;
	char action = **at;

	if (!action)
		return false;
	(*at)++;
	switch (action) {
	case 'C':
	case 'S':
		if (!vb_gdb_get_number(at, &sig))
			return false;
		how->go = action == 'C' ? VB_DPA_GO_ON : VB_DPA_GO_STEP;
		return true;
	case 'c':
		how->go = VB_DPA_GO_ON;
		return true;
	case 's':
		how->go = VB_DPA_GO_STEP;
		return true;
	case 't':
		how->go = VB_DPA_GO_STAY;
		return true;
	case 'r':
		how->go = VB_DPA_GO_STEP;
		return vb_gdb_get_number(at, &how->from) && vb_gdb_get_char(at, ',') &&
		       vb_gdb_get_number(at, &how->to) && how->from <= how->to;
	}
	return false;
}

/* What one thread is to do, by the first entry that names it. */
static enum vb_dpa_go go_of(const struct vb_dpa_resume *how, unsigned int n, uint32_t thread)
{
	for (unsigned int i = 0; i < n; i++)
		if (!how[i].thread || how[i].thread == thread)
			return how[i].go;
	return VB_DPA_GO_STAY;
}

/*
 * gdb finishes the outermost function, or steps out of it, by a breakpoint at its return address. There
 * are no instructions: the thread that stopped last is stepped to there instead. how has room for one
 * more.
 */
static void resume_threads(struct session *s, struct vb_dpa_resume *how, unsigned int n)
{
	uint32_t thread = s->stop.thread ? s->stop.thread : s->thread;
	int err;

	if (vb_gdb_breaks_at_return(s) && go_of(how, n, thread) == VB_DPA_GO_ON) {
		memmove(how + 1, how, n++ * sizeof(*how));
		how[0] = (struct vb_dpa_resume){ .thread = thread,
						 .go = VB_DPA_GO_STEP,
						 .to = VB_DPA_RETURN_PC };
	}
	err = vb_dpa_debug_resume(s->debug, how, n);
	if (err)
		vb_gdb_put_error(s, err);
	else
		s->state = SESSION_RUNNING;
}

void vb_gdb_vcont(struct session *s, const char *at)
{
	struct vb_dpa_resume how[ACTIONS_MAX + 1];
	unsigned int n = 0;

	while (vb_gdb_get_char(&at, ';')) {
		if (n == ACTIONS_MAX)
			goto bad;
		how[n] = (struct vb_dpa_resume){ 0 };
		if (!get_action(&at, &how[n]))
			goto bad;
		if (vb_gdb_get_char(&at, ':') && !vb_gdb_get_thread(&at, &how[n].thread))
			goto bad;
		n++;
	}
	if (*at || !n)
		goto bad;
	resume_threads(s, how, n);
	return;
bad:
	vb_gdb_put_error(s, -EINVAL);
}

/* At another address than where it stands: the selected thread. */
static int jump(struct session *s, const char *at)
{
	struct vb_dpa_state state;
	uint64_t pc;
	int err;

	if (!vb_gdb_get_number(&at, &pc) || *at)
		return -EINVAL;
	err = vb_dpa_debug_state(s->debug, s->thread, &state);
	state.pc = pc;
	return err ? err : vb_dpa_debug_set_state(s->debug, s->thread, &state);
}

/* c and s of debuggers that do not know vCont: [ADDRESS]; C and S: SIGNAL[;ADDRESS]. */
void vb_gdb_go(struct session *s, const char *body)
{
	bool step = body[0] == 's' || body[0] == 'S', named = body[0] == 'C' || body[0] == 'S';
	struct vb_dpa_resume how[3] = {
		{ s->resume ? s->resume
		  : step    ? s->thread
			    : 0,
		  step ? VB_DPA_GO_STEP : VB_DPA_GO_ON },
		{ 0, VB_DPA_GO_ON },
	};
	const char *at = body + 1;
	uint64_t sig;
	int err = 0;

	if (named && !vb_gdb_get_number(&at, &sig))
		err = -EINVAL;
	if (!err && named && *at && !vb_gdb_get_char(&at, ';'))
		err = -EINVAL;
	if (!err && *at)
		err = jump(s, at);
	if (err)
		vb_gdb_put_error(s, err);
	else
		resume_threads(s, how, s->resume ? 1 : 2);
}

/* ---- stopping ---- */

static unsigned int resume_signal_of(uint64_t cause)
{
	switch (cause) {
	case VB_DPA_CAUSE_ILLEGAL:
		return SIGNAL_ILL;
	case VB_DPA_CAUSE_BREAKPOINT:
		return SIGNAL_TRAP;
	case VB_DPA_CAUSE_LOAD_MISALIGNED:
	case VB_DPA_CAUSE_STORE_MISALIGNED:
		return SIGNAL_BUS;
	case VB_DPA_CAUSE_ECALL:
		return SIGNAL_SYS;
	case VB_DPA_CAUSE_WATCHDOG:
		return SIGNAL_XCPU;
	default:
		return SIGNAL_SEGV;
	}
}

static unsigned int stop_signal(struct session *s, struct vb_dpa_state *state)
{
	switch (s->stop.why) {
	case VB_DPA_STOP_ASKED:
		return s->asked ? SIGNAL_INT : SIGNAL_TRAP;
	case VB_DPA_STOP_TRAP:
		return vb_gdb_is_loose_break(s, state) ? SIGNAL_TRAP
						       : resume_signal_of(state->cause);
	default:
		return SIGNAL_TRAP;
	}
}

void vb_gdb_stop_reply(struct session *s)
{
	uint32_t thread = s->stop.thread ? s->stop.thread : s->thread;
	struct vb_dpa_thread_info info;
	struct vb_dpa_state state = { 0 };
	uint64_t addr = s->stop.addr;
	const char *word;

	if (s->state != SESSION_STOPPED) {
		vb_gdb_put_error(s, -EINVAL);
		return;
	}
	if (thread != NO_THREAD && vb_dpa_debug_state(s->debug, thread, &state))
		state = (struct vb_dpa_state){ 0 };
	vb_gdb_printf(s, "T%02xthread:%x;", stop_signal(s, &state), thread);
	if (thread != NO_THREAD && !vb_dpa_debug_info(s->debug, thread, &info))
		vb_gdb_printf(s, "core:%x;", info.eu);
	if (s->stop.why == VB_DPA_STOP_WATCH) {
		word = vb_gdb_watch_hit(s, &addr);
		vb_gdb_printf(s, "%s:%llx;", word, (unsigned long long)addr);
	} else if (s->stop.why == VB_DPA_STOP_BREAK || state.pc == VB_DPA_RETURN_PC ||
		   (s->stop.why == VB_DPA_STOP_TRAP && vb_gdb_is_loose_break(s, &state))) {
		word = vb_gdb_break_hit(s, state.pc);
		if (word)
			vb_gdb_printf(s, "%s:;", word);
	}
}
