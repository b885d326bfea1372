// SPDX-License-Identifier: MIT
/*
 * The targets. All accelerators of the card execute the same instruction set, so they differ in the
 * macros that sources see and in the hardware model that the application is registered for.
 */
#include "dpacc.h"

#include <string.h>

static const struct arch archs[MAX_ARCHS] = {
	{ "nv-dpa-bf3", "bf3", 3, 2 },
	{ "nv-dpa-cx7", "cx7", 7, 1 },
	{ "nv-dpa-cx8", "cx8", 8, 3 },
	{ "nv-dpa-cx9", "cx9", 9, 4 },
};

const struct arch *arch_find(const char *cpu, size_t len)
{
	for (int i = 0; i < MAX_ARCHS; i++)
		if (strlen(archs[i].cpu) == len && !memcmp(archs[i].cpu, cpu, len))
			return &archs[i];
	return NULL;
}

const char *arch_names(void)
{
	return "nv-dpa-bf3, nv-dpa-cx7, nv-dpa-cx8, nv-dpa-cx9";
}

void arch_compiler_options(const struct arch *arch, struct list *out)
{
	static const char *const fixed[] = {
		"--target=riscv64-unknown-elf",
		"-march=rv64imac_zba_zbb_zbs",
		"-mabi=lp64",
		"-mcmodel=medany",
		"-ffreestanding",
		"-ftls-model=local-exec",
		/* functions that do not return keep their caller's address, for crash data */
		"-funwind-tables",
		"-D__DPA__=1",
		"-D__NV_DPA_BF3=3",
		"-D__NV_DPA_CX7=7",
		"-D__NV_DPA_CX8=8",
		"-D__NV_DPA_CX9=9",
		"-D__dpa_rpc__=__attribute__((annotate(\"dpa_rpc\"),used,retain))",
		"-D__dpa_global__=__attribute__((annotate(\"dpa_global\"),used,retain))",
	};

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		list_add(out, fixed[i]);
	list_addf(out, "-D__NV_DPA=%u", arch->macro);
}
