// SPDX-License-Identifier: MIT
/*
 * libFuzzer target: the random programs of tests/isa/gen without end.
 *
 * The input only seeds the generator. Interpreter, translator and, where it is installed,
 * qemu-riscv64 must write what the reference model writes, and our tiers must count what it counts.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpa/dpa.h"
#include "gen.h"
#include "run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PROGRAMS = 40 };

struct sink {
	struct vb_dpa_process *process;
	uint8_t *out;
	size_t size, room;
};

static enum vb_dpa_action on_ecall(struct vb_dpa_thread *thread, struct vb_dpa_state *s, void *arg)
{
	struct sink *k = arg;

	(void)thread;
	if (s->x[17] == 93)
		return VB_DPA_EXIT;
	if (s->x[17] != 64 || k->size + s->x[12] > k->room ||
	    vb_dpa_mem_read(k->process, s->x[11], k->out + k->size, s->x[12]))
		return VB_DPA_TRAP;
	k->size += s->x[12];
	s->x[10] = s->x[12];
	return VB_DPA_CONTINUE;
}

static void differ(const char *who, u64 seed)
{
	fprintf(stderr, "%s differs from the model: isa-gen --seed %llu --per-elf %d\n", who,
		(unsigned long long)seed, PROGRAMS);
	abort();
}

static void on_tier(struct vb_dpa *dpa, enum vb_dpa_tier tier, const struct rv_prog *p,
		    const struct rv_model *m, u64 seed)
{
	static const struct vb_dpa_ops ops = { .ecall = on_ecall };
	struct sink k = { .out = malloc(m->out_size), .room = m->out_size };
	struct vb_dpa_process_attr attr = {
		.tier = tier, .limit = 16 << 20, .ops = &ops, .ops_arg = &k
	};
	struct vb_dpa_thread *thread;
	enum vb_dpa_why why;
	uint8_t *image;
	size_t len = rv_elf_image(p, &image);

	if (vb_dpa_process_create(dpa, image, len, &attr, &k.process, NULL) ||
	    vb_dpa_thread_create(k.process, NULL, &thread))
		abort();
	free(image);
	vb_dpa_thread_state(thread)->pc = RV_TEXT;
	if (vb_dpa_thread_run(thread, UINT64_MAX, &why) || why != VB_DPA_WHY_EXIT ||
	    k.size != m->out_size || memcmp(k.out, m->out, k.size) ||
	    vb_dpa_thread_state(thread)->instret != m->count)
		differ(tier == VB_DPA_TIER_JIT ? "translator" : "interpreter", seed);
	if (vb_dpa_thread_destroy(thread) || vb_dpa_process_destroy(k.process))
		abort();
	free(k.out);
}

static void on_qemu(const struct rv_prog *p, const struct rv_model *m, u64 seed)
{
	static bool missing;
	struct run_tools tools = { .qemu = "qemu-riscv64" };
	struct run r;
	char path[256];
	int fd;

	if (missing)
		return;
	run_scratch(path, sizeof(path), "fuzz.elf");
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
	if (fd < 0 || rv_write_elf(p, fd))
		abort();
	close(fd);
	if (run_elf(&tools, RUN_QEMU, path, NULL, &r)) {
		missing = true;
	} else {
		if (r.status || r.size != m->out_size || memcmp(r.out, m->out, r.size))
			differ("qemu-riscv64", seed);
		run_free(&r);
	}
	unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct vb_dpa *dpa;
	unsigned flags;
	struct rv_prog p;
	struct rv_model m;
	u64 seed = 0;

	setenv("VERBATIM_DPA_VERIFY", "abort", 1);
	if (!dpa && vb_dpa_create(NULL, &dpa))
		abort();
	for (size_t n = 0; n < size; n++)
		seed = seed * 257 + data[n] + 1;
	seed &= 0x7fffffffffffffffull;
	flags = gen_flags(seed);
	gen_programs(&p, seed, PROGRAMS, flags);
	rv_model_init(&m, &p);
	if (rv_model_run(&m, 100000000) != RV_EXIT)
		abort();
	on_tier(dpa, VB_DPA_TIER_INTERP, &p, &m, seed);
	on_tier(dpa, VB_DPA_TIER_JIT, &p, &m, seed);
	if (!(flags & GEN_OURS))
		on_qemu(&p, &m, seed);
	rv_model_free(&m);
	rv_free(&p);
	return 0;
}
