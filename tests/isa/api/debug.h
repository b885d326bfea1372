/* SPDX-License-Identifier: MIT */
/*
 * What the tests of src/dpa/observe/debug.h share: one program, processes made from it, and the patience of
 * a debugger.
 */
#ifndef ISA_DEBUG_H
#define ISA_DEBUG_H

#include "bed.h"

#include <pthread.h>
#include <stdatomic.h>

#include "dpa/observe/debug.h"

/* Entry points, and places inside of them. */
struct fn {
	int spin;             /* () for ever */
	int count, count_top; /* (n) 2 * n + 2 instructions, returns n; the loop */
	int block;            /* (n) n times ecall 1, which blocks; returns 7 */
	int yields;           /* (n) n times ecall 2, which yields; returns 7 */
	int calls;            /* (n) n times ecall 4, which returns at once; returns 7 */
	int leave;            /* ecall 3, which ends the thread */
	int touch;            /* (addr) ld, sd, lw 4, sb 7, amoadd.d; returns addr */
	int stack;            /* (n) n times sd, ld of its stack; returns n */
	int trap, trap_after; /* loads from address 0; then returns 9 */
	int ebreak;           /* the same with ebreak */
	int gate;             /* (u64 a[3]) waits until a[1] is set, then stores to address a[2] */
	int pass, pass_at;    /* (n) as count, with an addi at pass_at that counts in x12 */
};

extern struct fn fn;

struct place {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct rv_prog p;
	atomic_uint traps, dones;
	uint64_t divert; /* where traps lead; 0: nowhere */
};

void open_place(struct place *l, const struct vb_dpa_attr *attr);
/* A second process, on the accelerator of another one. */
void open_beside(struct place *l, const struct place *other);
void close_beside(struct place *l);
void close_place(struct place *l);

uint64_t at(const struct place *l, int label);
struct vb_dpa_thread *make(struct place *l);
/* One that is ready to be started. */
struct vb_dpa_thread *begin(struct place *l, int label, uint64_t arg);
void start(struct vb_dpa_thread *t);
void end(struct vb_dpa_thread *t); /* stop and destroy */

struct vb_dpa_debug *attach(struct place *l);
struct vb_dpa_stopped wait_stop(struct vb_dpa_debug *d);
struct vb_dpa_stopped hold(struct vb_dpa_debug *d);
void expect_stop(struct vb_dpa_debug *d, enum vb_dpa_stop why, const struct vb_dpa_thread *t);
void go_on(struct vb_dpa_debug *d);
/* This one steps, the others stay. */
void step_only(struct vb_dpa_debug *d, const struct vb_dpa_thread *t, uint64_t from, uint64_t to);
struct vb_dpa_state state_of(struct vb_dpa_debug *d, const struct vb_dpa_thread *t);
void set_pc(struct vb_dpa_debug *d, const struct vb_dpa_thread *t, uint64_t pc);
enum vb_dpa_why wait_end(struct vb_dpa_thread *t);

/* A host thread that makes a call, on itself. */
struct caller {
	struct vb_dpa_thread *thread;
	uint64_t pc, arg, result;
	int err;
	atomic_bool over;
	pthread_t host;
};

void call_begin(struct caller *c, struct vb_dpa_thread *t, uint64_t pc, uint64_t arg);
void call_end(struct caller *c);

#endif
