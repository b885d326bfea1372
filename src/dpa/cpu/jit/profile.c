// SPDX-License-Identifier: MIT
/*
 * Owns the second thoughts about which guest registers live in host registers. The first choice is
 * made from the text alone, where a library that never runs counts as much as the loop that always
 * does. So the first runs are sampled: now and then one starts with some interpreted instructions
 * whose registers are counted. If another map would serve clearly more of them, the text is
 * translated once more; then the map is settled.
 */
#include "dpa/cpu/jit/runtime.h"

#define EVERY    16  /* one run in so many starts with a sample; short programs never see one */
#define STEPS    512 /* instructions of a sample */
#define RUNS     128 /* the map is settled with this run */
#define GAIN_PER 50  /* worth a translation: one use in so many more is served */

static void profile_count(struct vb_jit *jit, const struct vb_insn *insn)
{
	atomic_fetch_add_explicit(&jit->uses[insn->rd], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&jit->uses[insn->rs1], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&jit->uses[insn->rs2], 1, memory_order_relaxed);
}

static void profile_choose_map(struct vb_jit *jit)
{
	const int8_t *old = jit->epochs[0].host;
	uint64_t uses[33], total = 0, served_old = 0, served_new = 0;
	int8_t host[33];

	for (unsigned int r = 1; r < 32; r++)
		total += uses[r] = atomic_load_explicit(&jit->uses[r], memory_order_relaxed);
	uses[0] = uses[VB_CPU_SINK] = 0;
	choose_registers(uses, host);
	for (unsigned int r = 1; r < 32; r++) {
		served_old += old[r] != NOREG ? uses[r] : 0;
		served_new += host[r] != NOREG ? uses[r] : 0;
	}
	if (served_new - served_old > total / GAIN_PER)
		vb_jit_remap(jit, host);
}

enum vb_cpu_exit vb_jit_profile(struct vb_cpu *cpu, uint64_t max)
{
	struct vb_jit *jit = cpu->text->jit;
	unsigned int run = atomic_fetch_add_explicit(&jit->runs, 1, memory_order_relaxed) + 1;
	uint64_t steps = max < STEPS ? max : STEPS;
	enum vb_cpu_exit exit = VB_CPU_BUDGET;

	if (run == RUNS) {
		profile_choose_map(jit);
		atomic_store_explicit(&jit->settled, true, memory_order_relaxed);
	}
	if (run % EVERY)
		return exit;
	/* What a program does first is rarely what it does most: older samples count half. */
	for (unsigned int r = 0; r < 33; r++)
		atomic_store_explicit(&jit->uses[r],
				      atomic_load_explicit(&jit->uses[r], memory_order_relaxed) / 2,
				      memory_order_relaxed);
	while (steps-- && exit == VB_CPU_BUDGET) {
		if (vb_text_holds(cpu->text, cpu->s.pc))
			profile_count(jit, &cpu->text->insns[vb_text_index(cpu->text, cpu->s.pc)]);
		exit = vb_interp_run(cpu, 1);
	}
	return exit;
}
