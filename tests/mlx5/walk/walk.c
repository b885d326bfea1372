// SPDX-License-Identifier: MIT
/*
 * Every command that the card has: the good one, and what is wrong with it: too short, too long, no bytes at all, one
 * memory for command and answer, another call, another object, numbers of objects that are gone, of another context, of
 * another process, orders that there are not, random bytes. An opcode that some call takes and cases.c does not know fails
 * the test.
 *
 * Commands and answers lie at the end of a page behind which there is nothing: who reads or writes too far, faults.
 */
#include "walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	OK = 0,
	BAD_OP = 2,
	BAD_RES = 5,
	BAD_QP_STATE = 0x10,
	BAD_INP_LEN = 0x50,
	BAD_OUTP_LEN = 0x51
};
enum {
	LEAST = 16,
	SPACE = 1 << 17,
	FILL = 0xa5,
	RANDOM = 250,
	FUNCTIONS = 0x100,
	OPCODES = 1 << 16,
	KNOWN_OPCODES = 1 << 12
};

enum call { GENERAL, CREATE, MODIFY, QUERY, ASYNC };

static struct world world, other;   /* two contexts of this process */
static uint8_t *in_end, *out_end;   /* of memory for commands and answers */
static uint8_t good[WALK_MOST + 1]; /* the command that is tried */
static struct mlx5dv_devx_cmd_comp *comp;
static const char *now; /* what is walked through, for messages */
static uint32_t foreign[WALK_KINDS];

#define expect(cond, ...) check(cond, "%s: " __VA_ARGS__)

/* --- one command --------------------------------------------------------------------------------- */

struct result {
	int err; /* positive errno */
	uint8_t *out;
	struct mlx5dv_devx_obj *obj;
};

static int take_async(struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen, uint8_t *out,
		      size_t outlen)
{
	size_t size = sizeof(struct mlx5dv_devx_async_cmd_hdr) + outlen;
	struct mlx5dv_devx_async_cmd_hdr *answer = malloc(size);
	int err = mlx5dv_devx_obj_query_async(obj, in, inlen, outlen, 77, comp);

	if (!err) {
		check_eq(mlx5dv_devx_get_async_cmd_comp(comp, answer, size), 0);
		check_eq(answer->wr_id, 77);
		memcpy(out, answer->out_data, outlen);
		err = out[0] ? EREMOTEIO : 0;
	}
	free(answer);
	return err;
}

static struct result send_to(enum call call, struct ibv_context *ctx, struct mlx5dv_devx_obj *obj,
			     const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	struct result r = { .out = out };

	errno = 0;
	switch (call) {
	case GENERAL:
		r.err = mlx5dv_devx_general_cmd(ctx, in, inlen, out, outlen);
		break;
	case CREATE:
		r.obj = mlx5dv_devx_obj_create(ctx, in, inlen, out, outlen);
		r.err = r.obj ? 0 : errno;
		break;
	case MODIFY:
		r.err = mlx5dv_devx_obj_modify(obj, in, inlen, out, outlen);
		break;
	case QUERY:
		r.err = mlx5dv_devx_obj_query(obj, in, inlen, out, outlen);
		break;
	case ASYNC:
		r.err = take_async(obj, in, inlen, out, outlen);
		break;
	}
	return r;
}

/* What is true of all answers: a refusal of the kernel leaves them alone, one of the firmware has a status and zeros. */
static void check_answer(const struct result *r, size_t outlen)
{
	const uint8_t *out = r->out;

	expect(r->err == 0 || r->err == EINVAL || r->err == EREMOTEIO, "errno %d", now, r->err);
	if (r->err == EINVAL)
		for (size_t i = 0; i < outlen; i++)
			expect(out[i] == FILL, "byte %zu of an answer that there is not", now, i);
	else
		expect(!out[0] == !r->err, "status %#x with errno %d", now, out[0], r->err);
	if (r->err == EREMOTEIO)
		for (size_t i = 1; i < outlen; i++)
			expect(!out[i], "byte %zu of a refusal", now, i);
	if (!r->err)
		for (size_t i = 1; i < 8; i++)
			expect(!out[i], "byte %zu of a good answer", now, i);
}

/* The good command, inlen bytes of it (longer: with zeros), by this call. */
static struct result run(enum call call, struct mlx5dv_devx_obj *obj, size_t inlen, size_t outlen)
{
	uint8_t *in = in_end - inlen, *out = out_end - outlen;
	struct result r;

	memcpy(in, good, inlen);
	memset(out, FILL, outlen);
	r = send_to(call, world.hand.ctx, obj, in, inlen, out, outlen);
	expect(!memcmp(in, good, inlen), "the command was written to", now);
	check_answer(&r, outlen);
	return r;
}

static void expect_refused(enum call call, struct mlx5dv_devx_obj *obj, size_t inlen, size_t outlen,
			   uint8_t status)
{
	struct result r = run(call, obj, inlen, outlen);

	expect(r.err == EREMOTEIO && r.out[0] == status, "errno %d status %#x, not status %#x", now,
	       r.err, r.err == EREMOTEIO ? r.out[0] : 0, status);
}

static void expect_invalid(enum call call, struct mlx5dv_devx_obj *obj, size_t inlen, size_t outlen)
{
	struct result r = run(call, obj, inlen, outlen);

	expect(r.err == EINVAL, "errno %d, not EINVAL (%zu bytes, answer %zu)", now, r.err, inlen,
	       outlen);
}

static void destroy(struct mlx5dv_devx_obj *obj)
{
	int err = mlx5dv_devx_obj_destroy(obj);

	expect(!err, "destroy: %d", now, err);
}

/* --- lengths ------------------------------------------------------------------------------------- */

/* What a call that succeeds leaves, undone. */
static void undo(const struct result *r)
{
	if (r->obj)
		destroy(r->obj);
}

/* in: of the good command; head: what the firmware must have at least to look into it. */
static void walk_lengths(enum call call, struct mlx5dv_devx_obj *obj, size_t in, size_t head,
			 size_t out)
{
	struct ibv_context *ctx = world.hand.ctx;
	struct result r;

	expect_invalid(call, obj, 0, out);
	expect_invalid(call, obj, LEAST - 1, out);
	if (call != ASYNC)
		expect_invalid(call, obj, in, 0);
	expect_invalid(call, obj, in, LEAST - 1);
	if (in > LEAST)
		expect_refused(call, obj, in - 1, out, BAD_INP_LEN);
	if (head > LEAST)
		expect_refused(call, obj, head - 1, out, BAD_INP_LEN);
	if (out > LEAST)
		expect_refused(call, obj, in, out - 1, BAD_OUTP_LEN);
	/* beyond what a message of the kernel can have */
	expect_invalid(call, obj, WALK_MOST + 1, out);
	if (call != ASYNC)
		expect_invalid(call, obj, in, WALK_MOST + 1);
	if (call == ASYNC)
		return;
	r = send_to(call, ctx, obj, NULL, in, out_end - out, out);
	expect(r.err == EINVAL, "no command: %d", now, r.err);
	r = send_to(call, ctx, obj, good, in, NULL, out);
	expect(r.err == EINVAL, "no answer: %d", now, r.err);
}

/* Longer than it must be, and both in the same memory: as good as the good one. */
static void walk_long(enum call call, struct mlx5dv_devx_obj *obj, size_t in, size_t out)
{
	size_t most = in > out ? in : out;
	uint8_t *both = in_end - most;
	struct result r;

	r = run(call, obj, in + 64, out + 64);
	expect(!r.err, "with more bytes: %d, status %#x", now, r.err, r.out[0]);
	undo(&r);
	r = run(call, obj, WALK_MOST, out);
	expect(!r.err, "with the most bytes: %d, status %#x", now, r.err, r.out[0]);
	undo(&r);
	memset(both, 0, most);
	memcpy(both, good, in);
	r = send_to(call, world.hand.ctx, obj, both, in, both, out);
	expect(!r.err && !r.out[0], "in one memory: %d, status %#x", now, r.err, r.out[0]);
	undo(&r);
	/* the answer begins inside of the command */
	both = in_end - in - out;
	memcpy(both, good, in);
	r = send_to(call, world.hand.ctx, obj, both, in, both + 4, out);
	expect(!r.err && !r.out[0], "overlapping: %d, status %#x", now, r.err, r.out[0]);
	undo(&r);
}

/* Random bytes in the good command, or random bytes only; whatever is made ends. */
static void walk_random(enum call call, struct mlx5dv_devx_obj *obj, size_t in, size_t out)
{
	static uint8_t kept[sizeof(good)];
	uint64_t seed = 12345;

	memcpy(kept, good, sizeof(kept));
	for (int i = 0; i < RANDOM; i++) {
		size_t inlen = in + (i % 5 == 0 ? (size_t)i : 0), from = i % 3 ? 2 : 8;
		struct result r;

		for (int n = i % 3 ? 1 + i % 7 : (int)inlen; n; n--) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			good[from + (seed >> 33) % (inlen - from)] = (uint8_t)(seed >> 25);
		}
		r = run(call, obj, inlen, out + (size_t)i % 40);
		undo(&r);
		memcpy(good, kept, sizeof(good));
	}
}

/* --- objects ------------------------------------------------------------------------------------- */

static uint32_t width(uint16_t at)
{
	return 32 - at % 32;
}

static void build(struct world *w, const struct walk_case *c)
{
	memset(good, 0, sizeof(good));
	put_bits(good, 0, 16, c->create);
	put_bits(good, 0x30, 16, c->type);
	if (c->build)
		c->build(w, good);
}

/* Of an entry the number is its index. */
static uint32_t number_in(const struct walk_case *c, const uint8_t *out)
{
	return c->number ? (uint32_t)get_bits(out, c->number, width(c->number))
			 : (uint32_t)get_bits(good, 0x100, 32);
}

static struct walk_object make_built(struct world *w, const struct walk_case *c)
{
	uint8_t out[LEAST];
	struct walk_object o;

	o.obj = mlx5dv_devx_obj_create(w->hand.ctx, good, c->in, out, sizeof(out));
	expect(o.obj != NULL, "it is not made: status %#x", now, out[0]);
	o.number = number_in(c, out);
	expect(!c->number || o.number, "it has no number", now);
	return o;
}

static struct walk_object make(struct world *w, const struct walk_case *c)
{
	build(w, c);
	return make_built(w, c);
}

static void begin_step(struct world *w, const struct walk_case *c, const struct walk_step *step,
		       const struct walk_object *o)
{
	memset(good, 0, sizeof(good));
	put_bits(good, 0, 16, step->opcode);
	put_bits(good, 0x30, 16, c->type);
	if (step->fill)
		step->fill(w, o, good);
	if (step->number)
		put_bits(good, step->number, width(step->number), o->number);
}

/* A query shows what a command said. */
static void check_same(const struct walk_case *c, const struct walk_object *o,
		       const struct walk_same *same)
{
	static uint8_t said[sizeof(good)];
	struct result r;

	if (!c->query.opcode)
		return;
	memcpy(said, good, sizeof(said));
	begin_step(&world, c, &c->query, o);
	r = run(QUERY, o->obj, c->query.in, c->query.out);
	expect(!r.err, "query: %d, status %#x", now, r.err, r.out[0]);
	for (int i = 0; i < WALK_SAME && same[i].bits; i++) {
		uint64_t is = get_bits(r.out, same[i].out, same[i].bits);
		uint64_t want = get_bits(said, same[i].in, same[i].bits);

		expect(is == want, "a query shows %#llx at %#x, not %#llx", now,
		       (unsigned long long)is, same[i].out, (unsigned long long)want);
	}
	memcpy(good, said, sizeof(good));
}

/* An object of each kind but this one: the command is not for it. */
static void walk_strangers(enum call call, enum walk_kind kind, const struct walk_step *step)
{
	for (int k = 0; k < WALK_KINDS; k++)
		if (k != (int)kind)
			expect_invalid(call, world.made[k].obj, step->in, step->out);
	expect(send_to(call, NULL, NULL, good, step->in, out_end - step->out, step->out).err ==
		       EINVAL,
	       "no object", now);
}

static void walk_query(enum walk_kind kind, const struct walk_object *o)
{
	const struct walk_case *c = &walk_cases[kind];
	const struct walk_step *step = &c->query;
	static uint8_t answer[WALK_MOST];
	struct result r;

	if (!step->opcode)
		return;
	for (enum call call = QUERY; call <= ASYNC; call++) {
		begin_step(&world, c, step, o);
		r = run(call, o->obj, step->in, step->out);
		expect(!r.err, "query: %d, status %#x", now, r.err, r.out[0]);
		if (call == ASYNC)
			expect(!memcmp(answer, r.out, step->out), "the answer that comes later",
			       now);
		memcpy(answer, r.out, step->out);
		walk_lengths(call, o->obj, step->in, step->in, step->out);
		walk_strangers(call, kind, step);
		if (step->number) {
			put_bits(good, step->number, width(step->number), o->number ^ 1);
			expect_invalid(call, o->obj, step->in, step->out);
		}
	}
	begin_step(&world, c, step, o);
	expect_invalid(GENERAL, NULL, step->in, step->out);
	expect_invalid(CREATE, NULL, step->in, step->out);
	expect_invalid(MODIFY, o->obj, step->in, step->out);
	walk_long(QUERY, o->obj, step->in, step->out);
	walk_random(QUERY, o->obj, step->in, step->out);
}

/* From its first state an object goes nowhere but by its first transition, or back to where it is (2RST). */
static void walk_order(const struct walk_case *c, const struct walk_object *o)
{
	enum { TO_RESET = 0x50a };

	for (int i = 1; i < WALK_STEPS && c->modify[i].opcode; i++) {
		begin_step(&world, c, &c->modify[i], o);
		if (c->modify[i].opcode != TO_RESET)
			expect_refused(MODIFY, o->obj, c->modify[i].in, c->modify[i].out,
				       BAD_QP_STATE);
	}
}

static void walk_modify(enum walk_kind kind, const struct walk_object *o)
{
	const struct walk_case *c = &walk_cases[kind];

	if (c->ordered)
		walk_order(c, o);
	for (int i = 0; i < WALK_STEPS && c->modify[i].opcode; i++) {
		const struct walk_step *step = &c->modify[i];
		struct result r;

		begin_step(&world, c, step, o);
		walk_lengths(MODIFY, o->obj, step->in, step->in, step->out);
		walk_strangers(MODIFY, kind, step);
		expect_invalid(QUERY, o->obj, step->in, step->out);
		if (step->opcode != c->create)
			expect_invalid(GENERAL, NULL, step->in, step->out);
		put_bits(good, step->number, width(step->number), o->number ^ 1);
		expect_invalid(MODIFY, o->obj, step->in, step->out);
		begin_step(&world, c, step, o);
		r = run(MODIFY, o->obj, step->in, step->out);
		expect(step->status ? r.err == EREMOTEIO && r.out[0] == step->status : !r.err,
		       "modify %#x: %d, status %#x", now, step->opcode, r.err, r.out[0]);
		check_same(c, o, step->same);
	}
}

/* Random modifications, of an object that nobody needs. */
static void walk_modify_random(const struct walk_case *c)
{
	for (int i = 0; i < WALK_STEPS && c->modify[i].opcode; i++) {
		struct walk_object o = make(&world, c);

		for (int before = 0; before < i; before++) {
			begin_step(&world, c, &c->modify[before], &o);
			run(MODIFY, o.obj, c->modify[before].in, c->modify[before].out);
		}
		begin_step(&world, c, &c->modify[i], &o);
		walk_random(MODIFY, o.obj, c->modify[i].in, c->modify[i].out);
		destroy(o.obj);
	}
}

/* --- what a command names ------------------------------------------------------------------------ */

static void name(const struct walk_ref *ref, uint32_t number, size_t in)
{
	put_bits(good, ref->at, ref->bits, number);
	expect_refused(CREATE, NULL, in, LEAST, ref->status ? ref->status : BAD_RES);
}

/* Numbers that name nothing of this context: nothing is made with them. */
static void walk_dead_names(const struct walk_case *c, const struct walk_ref *ref)
{
	uint32_t nobody = ref->bits == 32 ? 0x7ffff : (1u << ref->bits) - 2, own;
	struct walk_object o;

	build(&world, c);
	name(ref, nobody, c->in);
	if (ref->kind == WALK_UMEM)
		return;
	own = world.made[ref->kind].number;
	o = make(&world, &walk_cases[ref->kind]);
	destroy(o.obj);
	build(&world, c);
	name(ref, o.number, c->in);
	if (other.made[ref->kind].number != own) {
		build(&world, c);
		name(ref, other.made[ref->kind].number, c->in);
	}
	if (foreign[ref->kind] != own) {
		build(&world, c);
		name(ref, foreign[ref->kind], c->in);
	}
}

/* What is named stays, can be queried, and goes when its user is gone. */
static void walk_held(enum walk_kind kind, const struct walk_ref *ref)
{
	const struct walk_case *c = &walk_cases[kind], *named = &walk_cases[ref->kind];
	struct walk_object o, held = make(&world, named);

	build(&world, c);
	put_bits(good, ref->at, ref->bits, held.number);
	if (kind == WALK_FLOW_ENTRY) /* an index of that group */
		put_bits(good, 0x100, 32, (world.turn - 2) % 200 * 64);
	o = make_built(&world, c);
	check_eq(mlx5dv_devx_obj_destroy(held.obj), EBUSY);
	if (named->query.opcode) {
		begin_step(&world, named, &named->query, &held);
		expect(!run(QUERY, held.obj, named->query.in, named->query.out).err,
		       "what is in use can be queried", now);
	}
	destroy(o.obj);
	destroy(held.obj);
}

static void walk_refs(enum walk_kind kind)
{
	const struct walk_case *c = &walk_cases[kind];

	for (int i = 0; i < WALK_REFS && c->refs[i].bits; i++) {
		walk_dead_names(c, &c->refs[i]);
		if (c->refs[i].held)
			walk_held(kind, &c->refs[i]);
	}
}

static void walk_kind(enum walk_kind kind)
{
	const struct walk_case *c = &walk_cases[kind];
	struct walk_object o;
	struct result r;

	now = c->name;
	build(&world, c);
	walk_lengths(CREATE, NULL, c->in, c->head ? c->head : c->in, LEAST);
	expect_invalid(GENERAL, NULL, c->in, LEAST);
	expect_invalid(QUERY, world.made[kind].obj, c->in, LEAST);
	r = run(CREATE, NULL, c->in, LEAST);
	expect(!r.err, "it is not made: %d, status %#x", now, r.err, r.out[0]);
	o = (struct walk_object){ r.obj, number_in(c, r.out) };
	check_same(c, &o, c->same);
	walk_query(kind, &o);
	walk_modify(kind, &o);
	destroy(o.obj);
	build(&world, c);
	walk_long(CREATE, NULL, c->in, LEAST);
	walk_refs(kind);
	walk_modify_random(c);
	build(&world, c);
	walk_random(CREATE, NULL, c->in, LEAST);
}

static void walk_general(const struct walk_general *g)
{
	struct result r;

	now = g->name;
	memset(good, 0, sizeof(good));
	put_bits(good, 0, 16, g->opcode);
	if (g->fill)
		g->fill(good);
	r = run(GENERAL, NULL, g->in, g->out);
	expect(!r.err, "%d, status %#x", now, r.err, r.out[0]);
	walk_lengths(GENERAL, NULL, g->in, g->in, g->out);
	walk_long(GENERAL, NULL, g->in, g->out);
	walk_random(GENERAL, NULL, g->in, g->out);
	expect_invalid(CREATE, NULL, g->in, g->out);
	for (int k = 0; k < WALK_KINDS; k++) {
		expect_invalid(MODIFY, world.made[k].obj, g->in, g->out);
		expect_invalid(QUERY, world.made[k].obj, g->in, g->out);
	}
}

/* --- every command has a case -------------------------------------------------------------------- */

static bool takes(const struct result *r)
{
	return !r->err || (r->err == EREMOTEIO && r->out[0] != BAD_OP);
}

static bool has_create(uint32_t opcode, uint32_t type)
{
	for (int k = 0; k < WALK_KINDS; k++)
		if (walk_cases[k].create == opcode && walk_cases[k].type == type)
			return true;
	return false;
}

static bool has_general(uint32_t opcode)
{
	for (size_t i = 0; i < walk_general_count; i++)
		if (walk_generals[i].opcode == opcode)
			return true;
	return false;
}

static bool has_step(const struct walk_case *c, enum call call, uint32_t opcode)
{
	if (call == QUERY)
		return c->query.opcode == opcode;
	for (int i = 0; i < WALK_STEPS && c->modify[i].opcode; i++)
		if (c->modify[i].opcode == opcode)
			return true;
	return false;
}

static void find_calls(void)
{
	memset(good, 0, sizeof(good));
	for (uint32_t opcode = 0; opcode < OPCODES; opcode++) {
		struct result r;

		put_bits(good, 0, 16, opcode);
		r = run(GENERAL, NULL, LEAST, LEAST);
		expect(takes(&r) == has_general(opcode), "the general command %#x has no case",
		       "walk_generals", opcode);
		if (opcode == 0xa00)
			continue;
		r = run(CREATE, NULL, LEAST, LEAST);
		expect(takes(&r) == has_create(opcode, 0), "the creating command %#x has no case",
		       "walk_cases", opcode);
		undo(&r);
	}
	put_bits(good, 0, 16, 0xa00);
	for (uint32_t type = 0; type < OPCODES; type++) {
		struct result r;

		put_bits(good, 0x30, 16, type);
		r = run(CREATE, NULL, LEAST, LEAST);
		/* one that there is not: BAD_PARAM; one that is there: too short */
		expect((r.err == EREMOTEIO && r.out[0] == BAD_INP_LEN) == has_create(0xa00, type),
		       "the general object %#x has no case", "walk_cases", type);
	}
}

static void find_steps(enum walk_kind kind)
{
	const struct walk_case *c = &walk_cases[kind];
	struct walk_object o = make(&world, c);

	memset(good, 0, sizeof(good));
	for (uint32_t opcode = 1; opcode < KNOWN_OPCODES; opcode++)
		for (enum call call = MODIFY; call <= QUERY; call++) {
			struct result r;

			put_bits(good, 0, 16, opcode);
			put_bits(good, 0x30, 16, c->type);
			put_bits(good, 0x40, 32, o.number);
			r = run(call, o.obj, LEAST, LEAST);
			expect(takes(&r) == has_step(c, call, opcode),
			       "command %#x by %s has no case", now, opcode,
			       call == QUERY ? "query" : "modify");
		}
	destroy(o.obj);
}

/* --- worlds -------------------------------------------------------------------------------------- */

static void open_world(struct world *w, uint32_t function)
{
	hand_open(&w->hand);
	w->function = function;
	for (int k = 0; k < WALK_KINDS; k++) {
		now = walk_cases[k].name;
		w->made[k] = make(w, &walk_cases[k]);
	}
}

static void close_world(struct world *w)
{
	for (int k = WALK_KINDS; k--;) {
		now = walk_cases[k].name;
		destroy(w->made[k].obj);
	}
	hand_close(&w->hand);
}

/* Memory behind which there is nothing. */
static uint8_t *guarded(void)
{
	uint8_t *memory = mmap(NULL, SPACE + 4096, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED);
	check_eq(mprotect(memory + SPACE, 4096, PROT_NONE), 0);
	return memory + SPACE;
}

/* Another process: several objects of each kind, of which the last has a number that this one may not have. */
static void peer(int fd)
{
	enum { EACH = 5 };
	uint32_t numbers[WALK_KINDS];
	char byte;

	open_world(&world, FUNCTIONS + 2);
	for (int k = 0; k < WALK_KINDS; k++)
		for (int i = 0; i < EACH; i++) {
			now = walk_cases[k].name;
			numbers[k] =
				make(&world, &walk_cases[k]).number; /* they end with the process */
		}
	msg_send(fd, numbers, sizeof(numbers));
	msg_recv(fd, &byte, 1);
	_exit(0);
}

int main(int argc, char **argv)
{
	pid_t pid;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "peer"))
		peer(ROLE_FD);
	pid = spawn_self("peer", &fd);
	msg_recv(fd, foreign, sizeof(foreign));
	in_end = guarded();
	out_end = guarded();
	open_world(&world, FUNCTIONS);
	open_world(&other, FUNCTIONS + 1);
	comp = mlx5dv_devx_create_cmd_comp(world.hand.ctx);
	check(comp != NULL);
	find_calls();
	for (int k = 0; k < WALK_KINDS; k++) {
		now = walk_cases[k].name;
		find_steps((enum walk_kind)k);
		walk_kind((enum walk_kind)k);
	}
	for (size_t i = 0; i < walk_general_count; i++)
		walk_general(&walk_generals[i]);
	mlx5dv_devx_destroy_cmd_comp(comp);
	close_world(&other);
	close_world(&world);
	msg_send(fd, "e", 1);
	spawn_wait(pid);
	close(fd);
	return 0;
}
