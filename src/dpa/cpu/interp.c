// SPDX-License-Identifier: MIT
/*
 * The interpreter: the tier that runs everywhere, single steps, stops exactly, and says what is
 * right when the tiers are compared. Each vb_insn carries the address of its handler; a handler
 * ends by jumping to the next one.
 *
 * Every line of insns.h becomes two handlers, one for the 4-byte and one for the compressed form,
 * so that the length is a constant in each. Before a handler touches guest memory it writes ip and
 * left to the cpu: if the host MMU refuses, signal.c jumps back to run.c, which finds the exact
 * instruction and count there.
 *
 * Compiled twice: observed.c includes this file with VB_OBSERVED set and gets an interpreter that
 * shows each access to the observer of the text, and stops at marks. This one does not pay for it.
 */
#include "dpa/cpu/cpu.h"
#include "dpa/cpu/ops.h"

#ifndef VB_OBSERVED
#define VB_OBSERVED 0
#endif

/* Guest memory is shared with other guest threads on purpose, and GCC must not fold the 300
 * indirect jumps into one. */
#if defined(__clang__)
#define INTERP_ATTR VB_GUEST_ACCESS
#else
#define INTERP_ATTR VB_GUEST_ACCESS __attribute__((optimize("no-gcse", "no-crossjumping")))
#endif

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/*
 * A guest access: any alignment, any type, exactly once, behind everything the handlers stored
 * before.
 */
#define GUEST(T, addr) \
	(((volatile struct { T v; } __attribute__((packed, may_alias)) *)(base + (addr)))->v)
#define BARRIER() __asm__ volatile("" ::: "memory")

/* ---- what the words of insns.h mean here ---- */

#define A         (x[ip->rs1])
#define B         (x[ip->rs2])
#define AW        ((uint32_t)A)
#define BW        ((uint32_t)B)
#define IMM       ((uint64_t)(int64_t)ip->imm)
#define PC        (text->lo + 2 * (uint64_t)(ip - text->insns))
#define RD(v)     (x[ip->rd] = (uint64_t)(v))
#define RDW(v)    RD((int64_t)(int32_t)(v))
#define INSTRET() (end - left)
#define CLOCK()   vb_cpu_clock(cpu, INSTRET())
#define FENCE()   vb_cpu_fence()
#define BITS()    vb_text_bits(text, PC)

#define LEAVE(where, why)                   \
	do {                                \
		cpu->s.pc = (where);        \
		cpu->s.instret = INSTRET(); \
		return (why);               \
	} while (0)

#define EXIT(why) LEAVE(PC, why)

#define TRAP(why, value)                \
	do {                            \
		cpu->s.cause = (why);   \
		cpu->s.tval = (value);  \
		LEAVE(PC, VB_CPU_TRAP); \
	} while (0)

#define NO_FETCH()              \
	do {                    \
		cpu->s.pc = PC; \
		goto outside;   \
	} while (0)

/*
 * The jump itself retires; a target outside of the text is the next instruction's trap. Where the
 * text says how far, the guards of the array hold what the host may guess; a register may say
 * anything.
 */
#define JUMP(where)    JUMP_BY(where, (target_ - text->lo) / 2)
#define JUMP_TO(where) JUMP_BY(where, vb_cpu_below((target_ - text->lo) / 2, count))
#define JUMP_BY(where, index)                                  \
	do {                                                   \
		uint64_t target_ = (where);                    \
		RD(PC + LEN);                                  \
		left--;                                        \
		if (UNLIKELY(!vb_text_holds(text, target_))) { \
			cpu->s.pc = target_;                   \
			goto outside;                          \
		}                                              \
		ip = text->insns + (index);                    \
		DISPATCH();                                    \
	} while (0)

#define BRANCH(condition)                                                             \
	do {                                                                          \
		if (condition) {                                                      \
			uint64_t index_ = (uint64_t)(ip - text->insns + ip->imm / 2); \
			left--;                                                       \
			if (UNLIKELY(index_ >= count)) {                              \
				cpu->s.pc = PC + IMM;                                 \
				goto outside;                                         \
			}                                                             \
			ip = text->insns + index_;                                    \
			DISPATCH();                                                   \
		}                                                                     \
	} while (0)

#if VB_OBSERVED
/* A stop behind the instruction: it is the last one of the run, whose end moves here. */
#define OBEY(seen)                                  \
	do {                                        \
		enum vb_seen seen_ = (seen);        \
		if (seen_ == VB_SEEN_STOP)          \
			return VB_CPU_SEEN;         \
		if (seen_ == VB_SEEN_STOP_BEHIND) { \
			end -= left - 1;            \
			left = 1;                   \
			cpu->interp_end = end;      \
			cpu->stop_behind = true;    \
		}                                   \
	} while (0)
#define SHOW(where, size, kind)                                                              \
	do {                                                                                 \
		if (atomic_load_explicit(&text->observer->accesses, memory_order_relaxed)) { \
			cpu->s.pc = PC;                                                      \
			cpu->s.instret = INSTRET();                                          \
			OBEY(text->observer->access(cpu, where, size, kind));                \
		}                                                                            \
	} while (0)
#else
#define SHOW(where, size, kind) (void)0
#endif

#define LOAD(T)                                                                           \
	do {                                                                              \
		uint64_t addr_ = A + IMM, value_;                                         \
		SHOW(addr_, sizeof(T), VB_ACCESS_LOAD);                                   \
		cpu->ip = ip;                                                             \
		cpu->left = left;                                                         \
		BARRIER();                                                                \
		if (LIKELY(addr_ < limit))                                                \
			value_ = (uint64_t)(int64_t)GUEST(T, vb_cpu_below(addr_, limit)); \
		else if (vb_access_load(cpu, addr_, sizeof(T), &value_))                  \
			value_ = (uint64_t)(int64_t)(T)value_;                            \
		else                                                                      \
			TRAP(VB_DPA_CAUSE_LOAD, addr_);                                   \
		RD(value_);                                                               \
	} while (0)

/*
 * A store to a device page may take long, or find that the thread must stop: it stops right behind.
 */
#define STORE(T)                                                                               \
	do {                                                                                   \
		uint64_t addr_ = A + IMM;                                                      \
		SHOW(addr_, sizeof(T), VB_ACCESS_STORE);                                       \
		cpu->ip = ip;                                                                  \
		cpu->left = left;                                                              \
		BARRIER();                                                                     \
		if (LIKELY(addr_ < limit)) {                                                   \
			GUEST(T, vb_cpu_below(addr_, limit)) = (T)B;                           \
		} else if (!vb_access_store(cpu, addr_, sizeof(T), B)) {                       \
			TRAP(VB_DPA_CAUSE_STORE, addr_);                                       \
		} else if (UNLIKELY(atomic_load_explicit(&cpu->stop, memory_order_relaxed))) { \
			left--;                                                                \
			LEAVE(PC + LEN, VB_CPU_STOPPED);                                       \
		}                                                                              \
	} while (0)

/* Run `body` with p pointing to the operand of an atomic instruction. */
#define ATOMIC(bits, rights, misaligned, refused, body)                                          \
	do {                                                                                     \
		uint64_t addr_ = A;                                                              \
		_Atomic(uint##bits##_t) *p;                                                      \
		if (addr_ & (bits / 8 - 1))                                                      \
			TRAP(misaligned, addr_);                                                 \
		SHOW(addr_, bits / 8,                                                            \
		     (rights)&VB_DPA_WRITE ? VB_ACCESS_LOAD | VB_ACCESS_STORE : VB_ACCESS_LOAD); \
		cpu->ip = ip;                                                                    \
		cpu->left = left;                                                                \
		BARRIER();                                                                       \
		p = addr_ < limit ? (void *)(base + vb_cpu_below(addr_, limit))                  \
				  : vb_access_atomic_begin(cpu, addr_, bits / 8, rights);        \
		if (!p)                                                                          \
			TRAP(refused, addr_);                                                    \
		body;                                                                            \
		BARRIER();                                                                       \
		if (addr_ >= limit)                                                              \
			vb_access_end(cpu);                                                      \
	} while (0)

#define AMO(bits, expression)                                                              \
	ATOMIC(bits, VB_DPA_READ | VB_DPA_WRITE, VB_DPA_CAUSE_STORE_MISALIGNED,            \
	       VB_DPA_CAUSE_STORE, {                                                       \
		       uint##bits##_t b = (uint##bits##_t)B;                               \
		       uint##bits##_t old = atomic_load_explicit(p, memory_order_relaxed); \
		       while (!atomic_compare_exchange_weak(p, &old, expression))          \
			       ;                                                           \
		       RD((int64_t)(int##bits##_t)old);                                    \
	       })

/*
 * LR remembers what it saw and SC is a compare-and-swap against it; ABA is accepted
 * (docs/engine.md).
 */
#define LR(bits)                                                                     \
	ATOMIC(bits, VB_DPA_READ, VB_DPA_CAUSE_LOAD_MISALIGNED, VB_DPA_CAUSE_LOAD, { \
		uint##bits##_t old = atomic_load(p);                                 \
		cpu->reserved_addr = addr_ | (bits / 32 - 1);                        \
		cpu->reserved_value = old;                                           \
		RD((int64_t)(int##bits##_t)old);                                     \
	})

/* The low bits of an aligned address hold the width, so that LR.W does not reserve for SC.D. */
#define SC(bits)                                                                                \
	do {                                                                                    \
		uint64_t reserved_ = cpu->reserved_addr;                                        \
		if (A & (bits / 8 - 1))                                                         \
			TRAP(VB_DPA_CAUSE_STORE_MISALIGNED, A);                                 \
		cpu->reserved_addr = ~0ULL;                                                     \
		if (reserved_ != (A | (bits / 32 - 1))) {                                       \
			RD(1);                                                                  \
			break;                                                                  \
		}                                                                               \
		ATOMIC(bits, VB_DPA_READ | VB_DPA_WRITE, VB_DPA_CAUSE_STORE_MISALIGNED,         \
		       VB_DPA_CAUSE_STORE, {                                                    \
			       uint##bits##_t old = (uint##bits##_t)cpu->reserved_value;        \
			       RD(!atomic_compare_exchange_strong(p, &old, (uint##bits##_t)B)); \
		       });                                                                      \
	} while (0)

#define DISPATCH()                   \
	do {                         \
		if (UNLIKELY(!left)) \
			goto done;   \
		goto * ip->handler;  \
	} while (0)

static uint64_t fetch_tval(const struct vb_text *text, uint64_t pc)
{
	/* A 4-byte instruction whose second half is missing faults there. */
	for (unsigned int i = 0; i < text->nranges; i++)
		if (pc >= text->ranges[i].lo && pc + 1 < text->ranges[i].hi)
			return pc + 2;
	return pc;
}

/*
 * cpu == NULL: only tell the labels. Local labels cannot be named from outside, and this way there
 * is no second list.
 */
INTERP_ATTR static enum vb_cpu_exit interp(struct vb_cpu *cpu, uint64_t max,
					   const void *const **labels)
{
	static const void *const handlers[] = {
#define INSN(name, format, match, mask, semantics) &&four_##name, &&two_##name,
#include "dpa/cpu/insns.h"
#undef INSN
#if VB_OBSERVED
		&&mark,
#endif
	};

	if (labels) {
		*labels = handlers;
		return VB_CPU_BUDGET;
	}

	const struct vb_text *text = cpu->text;
	const uint64_t count = (text->hi - text->lo) / 2;
	const uint64_t limit = cpu->limit;
	uint64_t end = cpu->s.instret + max;
	uint8_t *const base = cpu->base;
	uint64_t *const x = cpu->s.x;
	uint64_t left = max;
	const struct vb_insn *ip;

	cpu->interp_end = end;
	if (!vb_text_holds(text, cpu->s.pc))
		goto outside;
	ip = text->insns + vb_text_index(text, cpu->s.pc);
	DISPATCH();

#define LEN 4
#define INSN(name, format, match, mask, semantics) \
	four_##name : semantics;                   \
	left--;                                    \
	ip += LEN / 2;                             \
	DISPATCH();
#include "dpa/cpu/insns.h"
#undef INSN
#undef LEN
#define LEN 2
#define INSN(name, format, match, mask, semantics) \
	two_##name : semantics;                    \
	left--;                                    \
	ip += LEN / 2;                             \
	DISPATCH();
#include "dpa/cpu/insns.h"
#undef INSN
#undef LEN

#if VB_OBSERVED
mark:
	cpu->s.pc = PC;
	cpu->s.instret = INSTRET();
	OBEY(text->observer->mark(cpu));
	if (cpu->s.pc == PC)
		goto *handlers[2 * ip->op + ((text->base[PC] & 3) != 3)];
	left--; /* so that a mark that leads to itself comes to an end */
	if (!vb_text_holds(text, cpu->s.pc))
		goto outside;
	ip = text->insns + vb_text_index(text, cpu->s.pc);
	DISPATCH();
#endif
done:
	LEAVE(PC, VB_CPU_BUDGET);
outside:
	cpu->s.instret = INSTRET();
	if (!left)
		return VB_CPU_BUDGET;
	if (cpu->s.pc == VB_CPU_RETURN_PC)
		return VB_CPU_RETURN;
	if (vb_text_zeros(text, cpu->s.pc)) {
		cpu->s.cause = VB_DPA_CAUSE_ILLEGAL;
		cpu->s.tval = 0;
		return VB_CPU_TRAP;
	}
	cpu->s.cause = VB_DPA_CAUSE_FETCH;
	cpu->s.tval = fetch_tval(text, cpu->s.pc);
	return VB_CPU_TRAP;
}

#if VB_OBSERVED
enum vb_cpu_exit vb_observed_run(struct vb_cpu *cpu, uint64_t max)
{
	enum vb_cpu_exit exit = interp(cpu, max, NULL);
	bool stop = cpu->stop_behind;

	cpu->stop_behind = false;
	/* Behind an instruction that trapped or called there is nothing to stop at. */
	return stop && (exit == VB_CPU_BUDGET || exit == VB_CPU_STOPPED) ? VB_CPU_SEEN : exit;
}

const void *vb_observed_handler(unsigned int op, bool compressed)
{
	static const void *const *handlers;

	if (!handlers)
		interp(NULL, 0, &handlers);
	return handlers[2 * op + compressed];
}

const void *vb_observed_mark_handler(void)
{
	return vb_observed_handler(VB_OP_COUNT, false);
}
#else
enum vb_cpu_exit vb_interp_run(struct vb_cpu *cpu, uint64_t max)
{
	return interp(cpu, max, NULL);
}

const void *vb_interp_handler(unsigned int op, bool compressed)
{
	static const void *const *handlers;

	if (!handlers)
		interp(NULL, 0, &handlers);
	return handlers[2 * op + compressed];
}
#endif
