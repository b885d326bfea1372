// SPDX-License-Identifier: MIT
/*
 * Run the instruction tests on one engine:  isa-insn interp|jit|qemu PATH [GROUP]
 *
 * PATH is verbatim-dpa-run or qemu-riscv64. The same cases on qemu check this test's own
 * expectations. Each group is one ELF file; each case is compared on its own and named when it
 * differs.
 */
#include "insn.h"
#include "run.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const u64 insn_edge[] = {
	0,
	1,
	2,
	0x1f,
	0x7f,
	0x80,
	0x7fff,
	0x8000,
	0x7fffffff,
	0x80000000,
	0xffffffff,
	0x100000000,
	0x7fffffffffffffff,
	0x8000000000000000,
	0xffffffff80000000,
	0xffffffff7fffffff,
	0xffffffffffffff80,
	0xfffffffffffffffe,
	0xffffffffffffffff,
	0x0123456789abcdef,
	0xfedcba9876543210,
};
const unsigned insn_edges = sizeof(insn_edge) / sizeof(insn_edge[0]);

unsigned insn_reg(struct insn_suite *s, unsigned used)
{
	unsigned r;

	do
		r = 1 + s->turn++ % 31;
	while (used >> r & 1);
	return r;
}

unsigned insn_begin(struct insn_suite *s, u64 a, u64 b, size_t size)
{
	size_t block = rv_data(&s->p, NULL, size, 8);
	unsigned base;

	if (s->count == s->room) {
		s->room = s->room * 2 + 1024;
		s->cases = realloc(s->cases, s->room * sizeof(*s->cases));
	}
	s->cases[s->count++] = (struct insn_case){ .block = block, .size = size, .a = a, .b = b };
	memcpy(s->p.data + block, &a, 8);
	memcpy(s->p.data + block + 8, &b, 8);
	s->turn += 3; /* prime to 31, so the roles drift against each other */
	base = insn_reg(s, 0);
	rv_la(&s->p, base, rv_data_label(&s->p, block));
	return base;
}

void insn_about(struct insn_suite *s)
{
	s->cases[s->count - 1].insn = s->p.insn[s->p.count - 1];
}

/* Write all data, exit 0. */
static void finish(struct insn_suite *s)
{
	rv_la(&s->p, 11, rv_data_label(&s->p, 0));
	rv_li(&s->p, 12, s->p.data_size);
	rv_li(&s->p, 10, 1);
	rv_li(&s->p, 17, 64);
	rv_emit(&s->p, OP_ecall, 0, 0, 0, 0);
	rv_li(&s->p, 10, 0);
	rv_li(&s->p, 17, 93);
	rv_emit(&s->p, OP_ecall, 0, 0, 0, 0);
	rv_layout(&s->p);
}

/* qemu 7.2 lets ctzw look at the upper half where the lower one is zero. */
static bool known_in_qemu(const struct insn_case *c)
{
	return c->insn.op == OP_ctzw && !(u32)c->a;
}

static unsigned differing(const struct insn_suite *s, const uint8_t *got, const uint8_t *want,
			  bool qemu)
{
	unsigned bad = 0;

	for (size_t n = 0; n < s->count; n++) {
		const struct insn_case *c = &s->cases[n];
		char buf[80];

		if (!memcmp(got + c->block, want + c->block, c->size) || (qemu && known_in_qemu(c)))
			continue;
		if (bad++ >= 10)
			continue;
		printf("#   %s, a=0x%016" PRIx64 " b=0x%016" PRIx64 ":\n",
		       rv_text(&c->insn, buf, sizeof(buf)), c->a, c->b);
		for (size_t off = 0; off < c->size; off += 8) {
			u64 g, w;

			memcpy(&g, got + c->block + off, 8);
			memcpy(&w, want + c->block + off, 8);
			if (g != w)
				printf("#     +%zu: 0x%016" PRIx64 ", expected 0x%016" PRIx64 "\n",
				       off, g, w);
		}
	}
	return bad;
}

static int compare(const struct insn_suite *s, const struct rv_model *m, const struct run *r,
		   bool qemu)
{
	unsigned bad;

	if (r->status || r->size != m->out_size) {
		printf("#   status %d, wrote %zu of %zu bytes\n%s", r->status, r->size, m->out_size,
		       r->err);
		return 1;
	}
	bad = differing(s, r->out, m->out, qemu);
	if (bad) {
		printf("#   %u cases differ\n", bad);
		return 1;
	}
	if (!qemu && run_count(r) != m->count) {
		printf("#   counted %" PRIu64 " instructions, expected %" PRIu64 "\n", run_count(r),
		       m->count);
		return 1;
	}
	return 0;
}

static int run_group(const struct insn_group *g, unsigned number, const struct run_tools *t,
		     enum run_tier tier)
{
	struct insn_suite s = { 0 };
	struct rv_model m;
	struct run r;
	char path[256];
	int fd, bad = 1;

	rv_init(&s.p);
	g->make(&s);
	finish(&s);
	rv_model_init(&m, &s.p);
	run_scratch(path, sizeof(path), "insn.elf");
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
	if (rv_model_run(&m, ~0ull) != RV_EXIT || fd < 0 || rv_write_elf(&s.p, fd))
		printf("#   cannot make %s\n", path);
	else if (close(fd) || run_elf(t, tier, path, NULL, &r))
		printf("#   cannot run %s\n", path);
	else {
		bad = compare(&s, &m, &r, tier == RUN_QEMU);
		run_free(&r);
	}
	printf("%s %u - %s: %zu cases\n", bad ? "not ok" : "ok", number, g->name, s.count);
	unlink(path);
	rv_model_free(&m);
	rv_free(&s.p);
	free(s.cases);
	return bad;
}

/* Is there something to run? qemu-riscv64 may not be installed. */
static bool can_start(const char *path)
{
	char *argv[] = { (char *)path, (char *)"--version", NULL };
	struct run r;

	if (run_command(argv, 60, &r))
		return false;
	run_free(&r);
	return true;
}

int main(int argc, char **argv)
{
	static const struct insn_group *const all[] = { insn_computing, insn_memory, insn_flow,
							insn_compressed };
	enum run_tier tier = RUN_INTERP;
	struct run_tools t;
	unsigned number = 0;
	int bad = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: isa-insn interp|jit|qemu PATH [GROUP]\n");
		return 2;
	}
	while (tier < RUN_QEMU && strcmp(argv[1], run_tier_name[tier]))
		tier++;
	t = (struct run_tools){ .dpa_run = argv[2], .qemu = argv[2] };
	if (!can_start(argv[2])) {
		printf("1..0 # SKIP %s is not installed\n", argv[2]);
		return 0;
	}
	for (unsigned n = 0; n < sizeof(all) / sizeof(all[0]); n++)
		for (const struct insn_group *g = all[n]; g->name; g++)
			if ((argc < 4 || strstr(g->name, argv[3])) &&
			    !(tier == RUN_QEMU && strstr(g->name, "(not qemu)")))
				bad += run_group(g, ++number, &t, tier);
	printf("1..%u\n", number);
	return bad ? 1 : 0;
}
