// SPDX-License-Identifier: MIT
/*
 * Atomics with masks, on words of 4 and 8 bytes, in WQEs that the program writes itself, as communication libraries do for
 * swap, and, or, xor and additions of 32 bits. Each is compared with a model that works bit by bit; the answer is the word
 * of the host in 8 bytes, and big endian in 4. Then threads, another process and the processor change the same words at
 * once, and nothing is lost. And what is refused.
 */
#include "direct.h"

#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	SIZE = 1 << 16,
	WORDS = 1024,   /* where the words are, in the target's buffer */
	ANSWER = 64,    /* where answers go, in one's own */
	EXTENDED_4 = 8, /* modifiers of the opcode */
	EXTENDED_8 = 9,
};

struct op {
	bool add;
	uint8_t size;
	uint64_t data, compare; /* add: compare is the boundary of the fields */
	uint64_t swap_mask, compare_mask;
};

struct peer {
	uint64_t addr;
	uint32_t rkey;
};

/* --- work requests ------------------------------------------------------------------------------- */

static void put_operands(struct wqe *wqe, const struct op *op)
{
	if (op->size == 8) {
		wqe_put_atomic(wqe, op->data, op->compare);
		if (!op->add)
			wqe_put_atomic(wqe, op->swap_mask, op->compare_mask);
	} else {
		__be32 *word = wqe_put(wqe, 16);

		word[0] = htobe32((uint32_t)op->data);
		word[1] = htobe32((uint32_t)op->compare);
		word[2] = op->add ? 0 : htobe32((uint32_t)op->swap_mask);
		word[3] = op->add ? 0 : htobe32((uint32_t)op->compare_mask);
	}
}

static void begin(struct wqe *wqe, const struct op *op, const struct peer *peer, uint64_t offset)
{
	wqe_begin(wqe, op->add ? MLX5_OPCODE_ATOMIC_MASKED_FA : MLX5_OPCODE_ATOMIC_MASKED_CS,
		  MLX5_WQE_CTRL_CQ_UPDATE, 0);
	wqe->opmod = op->size == 4 ? EXTENDED_4 : EXTENDED_8;
	wqe_put_raddr(wqe, peer->addr + offset, peer->rkey);
}

static void post(struct direct *d, struct wqe *wqe)
{
	direct_post(d, wqe);
	direct_ring(d);
}

/* Carry it out on the word at an offset of the peer's buffer; what was there before. */
static uint64_t run(struct direct *d, const struct op *op, const struct peer *peer, uint64_t offset)
{
	uint8_t *answer = d->node->buf + ANSWER;
	struct mlx5_cqe64 cqe;
	struct wqe wqe;
	uint64_t old8;
	uint32_t old4;

	memset(answer, 0xaa, 16);
	begin(&wqe, op, peer, offset);
	put_operands(&wqe, op);
	wqe_put_data(&wqe, (uintptr_t)answer, op->size, d->node->mr->lkey);
	post(d, &wqe);
	direct_expect(&d->send, d->node->qp->qp_num, MLX5_CQE_REQ, &cqe);
	check_eq(be32toh(cqe.sop_drop_qpn) >> 24, wqe.opcode);
	check_eq(be32toh(cqe.byte_cnt), op->size);
	check_eq(answer[op->size], 0xaa);
	memcpy(&old8, answer, 8);
	memcpy(&old4, answer, 4);
	return op->size == 8 ? old8 : be32toh(old4);
}

/* --- a model, bit by bit ------------------------------------------------------------------------- */

static uint64_t model(const struct op *op, uint64_t old)
{
	uint64_t result = 0;
	unsigned int carry = 0;

	for (unsigned int i = 0; i < op->size * 8u && op->add; i++) {
		unsigned int sum = (old >> i & 1) + (op->data >> i & 1) + carry;

		result |= (uint64_t)(sum & 1) << i;
		carry = op->compare >> i & 1 ? 0 : sum >> 1;
	}
	if (op->add)
		return result;
	for (unsigned int i = 0; i < op->size * 8u; i++)
		if ((op->compare_mask >> i & 1) && (old >> i & 1) != (op->compare >> i & 1))
			return old;
	for (unsigned int i = 0; i < op->size * 8u; i++)
		result |= ((op->swap_mask >> i & 1 ? op->data : old) >> i & 1) << i;
	return result;
}

static uint64_t cut(uint64_t value, uint8_t size)
{
	return size == 8 ? value : (uint32_t)value;
}

static uint64_t some(uint64_t *state)
{
	uint64_t value = (uint64_t)next_random(state) << 32 | next_random(state);

	switch (next_random(state) % 6) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return 1ull << value % 64;
	case 3:
		return 0x8000800080008000;
	default:
		return value;
	}
}

static void against_model(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;
	struct direct d;
	uint64_t state = 1, words[3], hits = 0;
	struct peer peer;

	attr.size = SIZE;
	node_pair(&a, &b, &attr);
	direct_open(&d, &a);
	peer = (struct peer){ (uintptr_t)b.buf, b.mr->rkey };
	for (int i = 0; i < 6000; i++) {
		uint8_t size = next_random(&state) & 1 ? 4 : 8;
		uint32_t at = size == 4 ? WORDS + 8 + (i & 4) : WORDS + 8;
		uint64_t old, want;
		struct op op = { .add = next_random(&state) & 1, .size = size };

		for (int k = 0; k < 3; k++)
			words[k] = some(&state);
		memcpy(b.buf + WORDS, words, sizeof(words));
		old = 0;
		memcpy(&old, b.buf + at, size);
		op.data = cut(some(&state), size);
		op.compare = cut(next_random(&state) % 3 ? some(&state) : old, size);
		op.swap_mask = cut(some(&state), size);
		op.compare_mask = cut(some(&state), size);
		want = model(&op, old);
		hits += !op.add && want != old;
		memcpy((uint8_t *)words + (at - WORDS), &want, size);
		check_eq(run(&d, &op, &peer, at), old);
		check(!memcmp(b.buf + WORDS, words, sizeof(words)));
	}
	check(hits > 300); /* the comparison holds often enough to show something */
	node_close(&a);
	node_close(&b);
}

/* What libraries make of them. */
static void as_libraries(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;
	struct direct d;
	struct peer peer;

	attr.size = SIZE;
	node_pair(&a, &b, &attr);
	direct_open(&d, &a);
	peer = (struct peer){ (uintptr_t)b.buf, b.mr->rkey };
	for (int wide = 0; wide < 2; wide++) {
		uint8_t size = wide ? 8 : 4;
		uint64_t all = wide ? UINT64_MAX : UINT32_MAX, x = 0x123456789abcdef0 & all,
			 y = 0x0f1e2d3c4b5a6978 & all, now = 0;
		const struct {
			struct op op;
			uint64_t want;
		} cases[] = {
			{ { true, size, y, 0, 0, 0 }, (x + y) & all },
			{ { true, size, y, all, 0, 0 }, x ^ y },
			{ { false, size, y, 0, ~y & all, 0 }, x & y },
			{ { false, size, y, 0, y, 0 }, x | y },
			{ { false, size, y, 0, all, 0 }, y },
			{ { false, size, y, x, all, all }, y },
			{ { false, size, y, x ^ 1, all, all }, x },
		};

		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			memcpy(b.buf + WORDS, &x, size);
			check_eq(run(&d, &cases[i].op, &peer, WORDS), x);
			memcpy(&now, b.buf + WORDS, size);
			check_eq(now, cases[i].want);
		}
	}
	node_close(&a);
	node_close(&b);
}

/* --- refusals ------------------------------------------------------------------------------------ */

/* How a WQE differs from a good one. */
struct wrong {
	uint8_t size, opmod;
	bool add, no_masks;
	uint32_t offset, len;
	int access; /* of the word's key */
	enum ibv_qp_type type;
	uint8_t syndrome;
};

static void refuse(const struct wrong *w)
{
	struct node_attr attr = node_attr(w->type);
	struct op op = { .add = w->add, .size = w->size, .data = 1 };
	struct node a, b;
	struct direct d;
	struct ibv_mr *mr;
	struct peer peer;
	struct wqe wqe;

	attr.size = SIZE;
	node_pair(&a, &b, &attr);
	direct_open(&d, &a);
	mr = ibv_reg_mr(b.pd, b.buf, 4096 + 4, w->access);
	check(mr);
	memset(b.buf, 0x55, 8192);
	peer = (struct peer){ (uintptr_t)b.buf, mr->rkey };
	begin(&wqe, &op, &peer, w->offset);
	wqe.opmod = w->opmod;
	if (w->no_masks)
		wqe_put_atomic(&wqe, 0, 0);
	else
		put_operands(&wqe, &op);
	wqe_put_data(&wqe, (uintptr_t)a.buf + ANSWER, w->len, a.mr->lkey);
	post(&d, &wqe);
	direct_expect_error(&d.send, a.qp->qp_num, MLX5_CQE_REQ_ERR, w->syndrome);
	for (int i = 0; i < 8192; i++)
		check_eq(b.buf[i], 0x55);
	check_eq(ibv_dereg_mr(mr), 0);
	node_close(&a);
	node_close(&b);
}

static void refused(void)
{
	enum {
		LEN = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
		OP = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
		ACCESS = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
		INVALID = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR
	};
	const struct wrong cases[] = {
		/* words that are not aligned */
		{ 4, 8, true, false, 2, 4, ACCESS_ALL, IBV_QPT_RC, INVALID },
		{ 8, 9, true, false, 4, 8, ACCESS_ALL, IBV_QPT_RC, INVALID },
		{ 8, 9, false, false, 12, 8, ACCESS_ALL, IBV_QPT_RC, INVALID },
		/* answers of another size */
		{ 4, 8, true, false, 0, 8, ACCESS_ALL, IBV_QPT_RC, LEN },
		{ 8, 9, true, false, 0, 4, ACCESS_ALL, IBV_QPT_RC, LEN },
		/* sizes that there are not */
		{ 8, 0, true, false, 0, 8, ACCESS_ALL, IBV_QPT_RC, OP },
		{ 8, 1, true, false, 0, 8, ACCESS_ALL, IBV_QPT_RC, OP },
		{ 8, 10, true, false, 0, 16, ACCESS_ALL, IBV_QPT_RC, OP },
		{ 4, 0x88, false, false, 0, 4, ACCESS_ALL, IBV_QPT_RC, OP },
		/* the data segment in the place of the masks, and then no data */
		{ 8, 9, false, true, 0, 8, ACCESS_ALL, IBV_QPT_RC, LEN },
		/* the end of the key, and rights */
		{ 4, 8, true, false, 4096 + 4, 4, ACCESS_ALL, IBV_QPT_RC, ACCESS },
		{ 8, 9, true, false, 4096, 8, ACCESS_ALL, IBV_QPT_RC, ACCESS },
		{ 4, 8, false, false, 0, 4, ACCESS_ALL & ~IBV_ACCESS_REMOTE_ATOMIC, IBV_QPT_RC,
		  ACCESS },
		{ 4, 8, false, false, 0, 4, ACCESS_ALL, IBV_QPT_UC, OP },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		refuse(&cases[i]);
}

/* --- everybody at once --------------------------------------------------------------------------- */

enum {
	THREADS = 3, /* of each process; a thread of each has every field of 16 bits but one */
	ROUNDS = 400,
	FIELDS = 0,   /* offsets: fields of 16 bits in 8 bytes, */
	COUNT = 8,    /* a sum of 4 bytes, */
	PARITY = 12,  /* an exclusive or, */
	BITS = 16,    /* bits that are set one by one, */
	LOCK = 24,    /* and a lock of 4 bits in 4 bytes, around */
	GUARDED = 32, /* a word that is read and written */
	TOTALS = 128,
};

struct worker {
	struct node node;
	struct direct d;
	struct peer peer;
	unsigned int lane; /* of all workers of all processes */
};

static uint64_t add(struct worker *w, uint8_t size, uint64_t value, uint64_t boundary, uint32_t at)
{
	struct op op = { .add = true, .size = size, .data = value, .compare = boundary };

	return run(&w->d, &op, &w->peer, WORDS + at);
}

static uint64_t swap(struct worker *w, uint8_t size, uint64_t value, uint64_t swap_mask,
		     uint64_t compare, uint64_t compare_mask, uint32_t at)
{
	struct op op = { false, size, value, compare, swap_mask, compare_mask };

	return run(&w->d, &op, &w->peer, WORDS + at);
}

/* Read the guarded word and write it, by atomics that are two. */
static void in_turn(struct worker *w)
{
	enum { MASK = 0xf000, MINE = 0x5000 };
	uint64_t value;

	while (swap(w, 4, MINE, MASK, 0, MASK, LOCK) & MASK)
		;
	value = add(w, 8, 0, 0, GUARDED);
	swap(w, 8, value + 1, UINT64_MAX, 0, 0, GUARDED);
	check_eq(swap(w, 4, 0, MASK, MINE, MASK, LOCK) & MASK, MINE);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned int shift = w->lane % 3 * 16;
	uint64_t before = 0;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t old = add(w, 8, 0x7fffull << shift, 0x8000800080008000, FIELDS);

		/* Two workers have a field; what it was never comes again within two rounds. */
		check(!i || (old >> shift & 0xffff) != before);
		before = old >> shift & 0xffff;
		add(w, 4, w->lane + 1, 0, COUNT);
		add(w, 4, w->lane * 0x9e3779b9u + i, UINT32_MAX, PARITY);
		swap(w, 8, UINT64_MAX, 1ull << (w->lane * 8 + i % 8), 0, 0, BITS);
		if (i % 16 == 0)
			in_turn(w);
	}
	return NULL;
}

static void open_worker(struct worker *w)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	node_open(&w->node, &attr);
}

static void run_workers(struct worker *workers)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_create(&thread[i], NULL, work, &workers[i]), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

/* Workers of another process: it has the words. */
static void helper(int fd)
{
	struct worker workers[THREADS];
	struct address peer;
	char go;

	memset(workers, 0, sizeof(workers));
	for (unsigned int i = 0; i < THREADS; i++) {
		open_worker(&workers[i]);
		node_meet(&workers[i].node, fd, &peer);
		direct_open(&workers[i].d, &workers[i].node);
		msg_recv(fd, &workers[i].peer, sizeof(workers[i].peer));
		workers[i].lane = THREADS + i;
	}
	msg_recv(fd, &go, 1);
	run_workers(workers);
	msg_send(fd, &go, 1);
	msg_recv(fd, &go, 1);
	for (int i = 0; i < THREADS; i++)
		node_close(&workers[i].node);
}

static void expect_totals(const uint8_t *words)
{
	uint64_t fields, bits, guarded;
	uint32_t count, parity, want_count = 0, want_parity = 0;

	memcpy(&fields, words + FIELDS, 8);
	memcpy(&count, words + COUNT, 4);
	memcpy(&parity, words + PARITY, 4);
	memcpy(&bits, words + BITS, 8);
	memcpy(&guarded, words + GUARDED, 8);
	for (uint32_t lane = 0; lane < 2 * THREADS; lane++)
		for (uint32_t i = 0; i < ROUNDS; i++) {
			want_count += lane + 1;
			want_parity ^= lane * 0x9e3779b9u + i;
		}
	for (int i = 0; i < 3; i++)
		check_eq(fields >> i * 16 & 0xffff, (2 * ROUNDS * 0x7fff) & 0xffff);
	/* The processor's own field, to which nobody else's carry came. */
	check_eq(fields >> 48, 3 * ROUNDS);
	check_eq(count, want_count);
	check_eq(parity, want_parity);
	check_eq(bits, (1ull << 2 * THREADS * 8) - 1);
	check_eq(guarded, 2 * THREADS * (ROUNDS / 16));
}

static void everybody(void)
{
	struct worker mine[THREADS];
	struct node targets[2 * THREADS];
	struct address to, from;
	struct ibv_mr *mr[2 * THREADS];
	pthread_t thread[THREADS];
	uint8_t *words;
	char go = 0;
	pid_t pid;
	int fd;

	pid = spawn_self("helper", &fd);
	memset(mine, 0, sizeof(mine));
	for (unsigned int i = 0; i < 2 * THREADS; i++) {
		struct node_attr attr = node_attr(IBV_QPT_RC);

		attr.size = SIZE;
		node_open(&targets[i], &attr);
		words = targets[0].buf;
		mr[i] = ibv_reg_mr(targets[i].pd, words, SIZE, ACCESS_ALL);
		check(mr[i]);
		if (i < THREADS) {
			open_worker(&mine[i]);
			node_address(&mine[i].node, &from);
			node_address(&targets[i], &to);
			node_connect(&mine[i].node, &to);
			node_connect(&targets[i], &from);
			direct_open(&mine[i].d, &mine[i].node);
			mine[i].peer = (struct peer){ (uintptr_t)words, mr[i]->rkey };
			mine[i].lane = i;
		} else {
			struct peer peer = { (uintptr_t)words, mr[i]->rkey };

			node_meet(&targets[i], fd, &to);
			msg_send(fd, &peer, sizeof(peer));
		}
	}
	memset(words + WORDS, 0, TOTALS);
	msg_send(fd, &go, 1);
	for (int i = 0; i < THREADS; i++)
		check_eq(pthread_create(&thread[i], NULL, work, &mine[i]), 0);
	/* The processor takes part. */
	for (uint32_t i = 0; i < 3 * ROUNDS; i++) {
		__atomic_fetch_add((uint64_t *)(words + WORDS + FIELDS), 1ull << 48,
				   __ATOMIC_RELAXED);
		if (i % 64 == 0)
			sleep_ms(1);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	msg_recv(fd, &go, 1);
	expect_totals(words + WORDS);
	msg_send(fd, &go, 1);
	spawn_wait(pid);
	close(fd);
	for (unsigned int i = 0; i < 2 * THREADS; i++)
		check_eq(ibv_dereg_mr(mr[i]), 0);
	for (int i = 0; i < THREADS; i++)
		node_close(&mine[i].node);
	for (unsigned int i = 2 * THREADS; i--;)
		node_close(&targets[i]);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		helper(ROLE_FD);
		return 0;
	}
	against_model();
	as_libraries();
	refused();
	everybody();
	return 0;
}
