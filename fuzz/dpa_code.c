// SPDX-License-Identifier: MIT
/*
 * libFuzzer target: any bytes as text, on both tiers.
 *
 * Whatever they do must end in a trap or at the budget, never in a fault of the host, and the same
 * way on both tiers: registers, pc, cause, count and memory. Deterministic mode makes the clocks
 * comparable.
 *
 *      byte 0       bit 7: the rest is text as it is; otherwise six bytes choose an instruction
 *      byte 0..1    how the budget is cut into pieces
 *      the rest     text, at 64 KiB
 *
 * Registers start as pointers into data, text, a window onto host memory and a device page, and
 * other values.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpa/dpa.h"
#include "rv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WINDOW VB_DPA_WINDOW_BASE
#define DEVICE (VB_DPA_WINDOW_BASE + 0x10000)

enum { HOST = 512, DATA = 8192, TEXT_MAX = 4096, BUDGET = 3000 };

static struct vb_dpa *dpa;

struct outcome {
	struct vb_dpa_state state;
	enum vb_dpa_why why;
	uint8_t data[DATA];
	uint8_t host[HOST]; /* behind the window */
	uint64_t device;    /* what the device page has seen, in order */
};

static int on_load(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t *value,
		   void *arg)
{
	struct outcome *o = arg;

	(void)thread;
	o->device = o->device * 31 + offset + size;
	*value = o->device;
	return offset == 0x40 ? -1 : 0; /* one place that refuses */
}

static int on_store(struct vb_dpa_thread *thread, uint64_t offset, unsigned size, uint64_t value,
		    void *arg)
{
	struct outcome *o = arg;
	uint64_t seen = size == 8 ? value : value & ((1ull << (8 * size)) - 1);

	(void)thread;
	o->device = o->device * 37 + offset + size + seen;
	return offset == 0x48 ? -1 : 0;
}

static const struct vb_dpa_device_ops device_ops = { on_load, on_store };

static void set_registers(struct vb_dpa_state *s, u64 data_base)
{
	for (unsigned r = 1; r < 32; r++)
		switch (r % 4) {
		case 0:
			s->x[r] = data_base + 64 * r;
			break;
		case 1:
			s->x[r] = RV_TEXT + 2 * r;
			break;
		case 2:
			s->x[r] = data_base + DATA / 2;
			break;
		default:
			s->x[r] = 0x0123456789abcdefull * r;
			break;
		}
	s->x[2] = data_base + DATA - 256;
	s->x[11] = s->x[23] = WINDOW + HOST / 2;
	s->x[15] = s->x[27] = DEVICE + 32;
	s->x[10] = 3;
	s->pc = RV_TEXT;
}

/* Six bytes: operation, registers, immediate, kept near where that makes programs that go on for a
 * while. */
static void choose(struct rv_prog *p, const uint8_t *b)
{
	struct rv_insn i = { .op = (enum rv_op)(b[0] % OP_COUNT),
			     .rd = b[1] & 31,
			     .rs1 = b[2] & 31,
			     .rs2 = b[3] & 31,
			     .imm = (i64)(int16_t)(b[4] | b[5] << 8) };
	u32 bits;

	switch (rv_info[i.op].format) {
	case FMT_BR:
	case FMT_J:
		i.imm = i.imm % 32 * 2;
		break;
	case FMT_I:
	case FMT_LD:
	case FMT_ST:
	case FMT_JR:
		i.imm >>= 4;
		break;
	case FMT_SH:
		i.imm &= rv_info[i.op].arg == 6 ? 63 : 31;
		break;
	case FMT_U:
		i.imm *= 4096;
		break;
	case FMT_CSR:
		i.imm = 0xc00 + b[4] % 3;
		i.rs1 = 0;
		break;
	default:
		break;
	}
	bits = b[1] & 0x80 && rv_compress(&i) ? rv_compress(&i) : rv_encode(&i);
	memcpy(p->text + p->text_size, &bits, (bits & 3) == 3 ? 4 : 2);
	p->text_size += (bits & 3) == 3 ? 4 : 2;
}

static void run_on(enum vb_dpa_tier tier, const struct rv_prog *p, const uint8_t *cut,
		   struct outcome *o)
{
	struct vb_dpa_process_attr attr = { .tier = tier, .limit = 16 << 20 };
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
	struct vb_dpa_window *window;
	uint8_t *image;
	size_t len = rv_elf_image(p, &image);
	unsigned left = BUDGET;

	if (vb_dpa_process_create(dpa, image, len, &attr, &process, NULL) ||
	    vb_dpa_thread_create(process, NULL, &thread))
		abort();
	free(image);
	if (vb_dpa_process_tier(process) != tier) {
		fprintf(stderr, "this machine cannot translate: there is nothing to compare\n");
		exit(77);
	}
	for (unsigned n = 0; n < HOST; n++)
		o->host[n] = (uint8_t)(n * 7);
	o->device = 1;
	if (vb_dpa_window_create(process, NULL, WINDOW, HOST, o->host, VB_DPA_READ | VB_DPA_WRITE,
				 &window) ||
	    vb_dpa_device_create(process, NULL, DEVICE, 256, &device_ops, o, &window))
		abort();
	set_registers(vb_dpa_thread_state(thread), p->data_base);
	do {
		unsigned n = cut[0] % 5 ? BUDGET : 1 + (cut[1] * 7u) % 500;

		n = n < left ? n : left;
		if (vb_dpa_thread_run(thread, n, &o->why))
			abort();
		left -= n;
	} while (left && o->why == VB_DPA_WHY_BUDGET);
	o->state = *vb_dpa_thread_state(thread);
	o->state.sink = 0;
	if (o->why != VB_DPA_WHY_TRAP)
		o->state.cause = o->state.tval = 0;
	if (vb_dpa_mem_read(process, p->data_base, o->data, DATA) ||
	    vb_dpa_thread_destroy(thread) || vb_dpa_process_destroy(process))
		abort();
}

static void report(const struct outcome *a, const struct outcome *b)
{
	fprintf(stderr, "interpreter: ended %d cause %llu tval 0x%llx pc 0x%llx after %llu\n",
		(int)a->why, (unsigned long long)a->state.cause, (unsigned long long)a->state.tval,
		(unsigned long long)a->state.pc, (unsigned long long)a->state.instret);
	fprintf(stderr, "translator:  ended %d cause %llu tval 0x%llx pc 0x%llx after %llu\n",
		(int)b->why, (unsigned long long)b->state.cause, (unsigned long long)b->state.tval,
		(unsigned long long)b->state.pc, (unsigned long long)b->state.instret);
	for (unsigned r = 0; r < 32; r++)
		if (a->state.x[r] != b->state.x[r])
			fprintf(stderr, "x%u: 0x%llx and 0x%llx\n", r,
				(unsigned long long)a->state.x[r],
				(unsigned long long)b->state.x[r]);
	for (unsigned n = 0; n < DATA; n++)
		if (a->data[n] != b->data[n]) {
			fprintf(stderr, "data differs from byte %u on\n", n);
			break;
		}
	if (memcmp(a->host, b->host, HOST) || a->device != b->device)
		fprintf(stderr, "what the window or the device saw differs\n");
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_dpa_attr attr = { .deterministic = true, .seed = 1 };
	static struct outcome interp, jit;
	struct rv_prog p;

	setenv("VERBATIM_DPA_VERIFY", "abort", 1);
	if (!dpa && vb_dpa_create(&attr, &dpa))
		abort();
	if (size < 8 || size > TEXT_MAX)
		return 0;
	rv_init(&p);
	p.text = malloc(size);
	if (data[0] & 0x80) {
		p.text_size = (size - 2) & ~(size_t)1;
		memcpy(p.text, data + 2, p.text_size);
	} else {
		for (size_t n = 2; n + 6 <= size; n += 6)
			choose(&p, data + n);
	}
	p.data_base = RV_TEXT + 2 * RV_PAGE;
	rv_data(&p, NULL, DATA, 8);
	for (unsigned n = 0; n < DATA; n++)
		p.data[n] = (uint8_t)(n * 31);
	run_on(VB_DPA_TIER_INTERP, &p, data, &interp);
	run_on(VB_DPA_TIER_JIT, &p, data, &jit);
	rv_free(&p);
	if (interp.why != jit.why || memcmp(&interp.state, &jit.state, sizeof(interp.state)) ||
	    memcmp(interp.data, jit.data, DATA) || memcmp(interp.host, jit.host, HOST) ||
	    interp.device != jit.device)
		report(&interp, &jit);
	return 0;
}
