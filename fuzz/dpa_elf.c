// SPDX-License-Identifier: MIT
/*
 * libFuzzer target: the DPA's ELF loader.
 *
 * A file that starts from nothing rarely gets past the magic, so most inputs are a list of changes
 * to a good file:
 *
 *      byte 0            what to start from: 0 the input itself, 1 a static program, 2 a static PIE
 *      then, repeated    offset (2 bytes), value (1 byte), until the input ends
 *
 * What loads is also run for a moment. Refusals must come with words; anything else is a crash the
 * fuzzer sees.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dpa/dpa.h"
#include "rv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct vb_dpa *dpa;

/* 4 KiB of file instead of pages of padding: text, data, and for a PIE a dynamic section with
 * relocations. */
static size_t good_file(uint8_t *f, int pie)
{
	static const u32 text[] = { 0x00150513, 0x00008067 }; /* addi a0, a0, 1; ret */
	Elf64_Ehdr eh = { .e_type = pie ? ET_DYN : ET_EXEC,
			  .e_machine = EM_RISCV,
			  .e_version = 1,
			  .e_entry = 0x10000,
			  .e_phoff = sizeof(eh),
			  .e_flags = EF_RISCV_RVC,
			  .e_ehsize = sizeof(eh),
			  .e_phentsize = sizeof(Elf64_Phdr),
			  .e_phnum = pie ? 4 : 3,
			  .e_shentsize = sizeof(Elf64_Shdr) };
	Elf64_Phdr ph[4] = {
		{ PT_LOAD, PF_R | PF_X, 0x200, 0x10200 - 0x200, 0x10000, sizeof(text), sizeof(text),
		  8 },
		{ PT_LOAD, PF_R | PF_W, 0x300, 0x11300, 0x11300, 0x200, 0x800, 8 },
		{ PT_TLS, PF_R, 0x480, 0x11480, 0x11480, 16, 64, 16 },
		{ PT_DYNAMIC, PF_R | PF_W, 0x300, 0x11300, 0x11300, 5 * 16, 5 * 16, 8 },
	};
	Elf64_Dyn dyn[5] = { { DT_RELA, { 0x11380 } },
			     { DT_RELASZ, { 3 * sizeof(Elf64_Rela) } },
			     { DT_RELAENT, { sizeof(Elf64_Rela) } },
			     { DT_RELACOUNT, { 3 } },
			     { DT_NULL, { 0 } } };
	Elf64_Rela rela[3] = { { 0x11400, R_RISCV_RELATIVE, 0x10000 },
			       { 0x11408, R_RISCV_RELATIVE, 0x11300 },
			       { 0x11410, R_RISCV_RELATIVE, 0x11800 } };

	memset(f, 0, 0x500);
	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	eh.e_ident[EI_VERSION] = EV_CURRENT;
	memcpy(f, &eh, sizeof(eh));
	memcpy(f + sizeof(eh), ph, sizeof(ph));
	memcpy(f + 0x200, text, sizeof(text));
	memcpy(f + 0x300, dyn, sizeof(dyn));
	memcpy(f + 0x380, rela, sizeof(rela));
	return 0x500;
}

static void run(struct vb_dpa_process *process)
{
	struct vb_dpa_thread *thread;
	enum vb_dpa_why why;

	if (vb_dpa_thread_create(process, NULL, &thread))
		return;
	if (!vb_dpa_thread_set_call(thread, vb_dpa_process_entry(process), NULL, 0))
		vb_dpa_thread_run(thread, 1000, &why);
	vb_dpa_thread_destroy(thread);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_dpa_process_attr attr = { .limit = 16 << 20 };
	struct vb_dpa_error error = { "" };
	struct vb_dpa_process *process;
	uint8_t *file;
	size_t len;
	int rc;

	setenv("VERBATIM_DPA_VERIFY", "abort", 1);
	if (!dpa && vb_dpa_create(NULL, &dpa))
		abort();
	if (size < 1 || size > 1 << 16)
		return 0;
	if (data[0] % 4 == 0) {
		len = size - 1;
		file = malloc(len ? len : 1); /* exactly as long, so that a step too far is seen */
		memcpy(file, data + 1, len);
	} else {
		file = malloc(0x500);
		len = good_file(file, data[0] % 4 == 2);
		for (size_t i = 1; i + 3 <= size; i += 3)
			file[(data[i] | data[i + 1] << 8) % 0x500] = data[i + 2];
	}
	attr.tier = data[0] & 0x80 ? VB_DPA_TIER_JIT : VB_DPA_TIER_INTERP;
	rc = vb_dpa_process_create(dpa, file, len, &attr, &process, &error);
	free(file);
	if (rc) {
		if (!error.text[0])
			abort();
		return 0;
	}
	run(process);
	if (vb_dpa_process_destroy(process))
		abort();
	return 0;
}
