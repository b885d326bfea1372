// SPDX-License-Identifier: MIT
/* Hosts for which there is no translator: the interpreter does it all. */
#include "dpa/cpu/jit/jit.h"

#include <errno.h>

int vb_jit_create(struct vb_text *text, uint64_t limit, void *table, int64_t table_offset,
		  const struct vb_jit_hints *hints, const char **why)
{
	*why = "there is no translator for this CPU";
	return -ENOTSUP;
}

void vb_jit_destroy(struct vb_text *text)
{
}

enum vb_cpu_exit vb_jit_run(struct vb_cpu *cpu, uint64_t max, bool exact)
{
	return vb_interp_run(cpu, max);
}

bool vb_jit_fault(struct vb_cpu *cpu, void *context)
{
	return false;
}

void vb_jit_stats(const struct vb_text *text, struct vb_dpa_text_stats *stats)
{
}

void vb_jit_perf_map(const struct vb_text *text,
		     const char *(*name)(void *arg, uint64_t pc, uint64_t *offset), void *arg)
{
}
