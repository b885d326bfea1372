// SPDX-License-Identifier: MIT
/*
 * Queues by command in the hands of a program that errs: forked children that end what they inherited, contexts that
 * close while others lead to their queues, memory without the rights that a queue needs, layouts of keys that no driver
 * writes.
 */
#include "hand.h"

#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CQC = 0x80, CTX = 0x100, WQ = CTX + 0x180, PAGE = 4096 };
enum { BAD_PARAM = 3, BAD_RES = 5 };

static struct hand hand;
static struct hand_cq cq;
static struct hand_qp rq;
static struct mlx5dv_devx_obj *rqt, *tir;
static uint32_t rqt_number, tir_number;

/* --- TIRs with a table --------------------------------------------------------------------------- */

static void hash_command(struct command *c, uint16_t opcode)
{
	command_begin(c, opcode);
	put_bits(c->in, CTX + 0x20, 4, 1);
	put_bits(c->in, CTX + 0x108, 24, rqt_number);
	put_bits(c->in, CTX + 0x120, 4, 2);
	put_bits(c->in, CTX + 0x280, 32, 1u << 30 | 0xf);
}

static void open_tir(void)
{
	struct command c;

	hand_cq(&hand, &cq, 6);
	hand_rq_command(&hand, &rq, &cq, &c);
	hand_wq_create(&rq, &c);
	command_begin(&c, 0x916);
	put_bits(c.in, CTX + 0xb0, 16, 1);
	put_bits(c.in, CTX + 0xd0, 16, 1);
	put_bits(c.in, CTX + 0x780, 32, rq.number);
	rqt = command_create(&hand, &c, 276, &rqt_number);
	hash_command(&c, 0x900);
	tir = command_create(&hand, &c, 272, &tir_number);
}

static void close_tir(void)
{
	object_end(&tir);
	object_end(&rqt);
	hand_qp_end(&rq);
	hand_cq_end(&cq);
}

/* --- forked children ----------------------------------------------------------------------------- */

static bool stop;

static void *change_tir(void *arg)
{
	struct command c;

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		hash_command(&c, 0x901);
		put_bits(c.in, 0x80, 64, 1 << 2);
		check_eq(command_modify(tir, tir_number, &c, 272), 0);
	}
	return NULL;
}

/* The thread that changes the TIR is not in the child, whatever it was doing. */
static void children(void)
{
	enum { CHILDREN = 40, PATIENCE_S = 20 };
	pthread_t thread;

	open_tir();
	check_eq(pthread_create(&thread, NULL, change_tir, NULL), 0);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();
		int status = -1;

		if (!child) {
			alarm(PATIENCE_S);
			/* Queues count as used where the change was half done: all is well that ends. */
			mlx5dv_devx_obj_destroy(tir);
			mlx5dv_devx_obj_destroy(rqt);
			mlx5dv_devx_obj_destroy(rq.obj);
			mlx5dv_devx_obj_destroy(cq.obj);
			_exit(0);
		}
		check(child > 0 && waitpid(child, &status, 0) == child);
		check(!status, "child %d: status %#x", i, status);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	check_eq(pthread_join(thread, NULL), 0);
	close_tir();
}

/* --- memory without rights ----------------------------------------------------------------------- */

/* The card writes completions: a ring of them must be in memory that it may write. */
static void read_only(void)
{
	void *memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(hand.ctx, memory, PAGE, 0);
	struct hand_cq tried;
	struct command c;

	check(memory != MAP_FAILED && umem);
	hand_cq_command(&hand, &tried, 2, &c);
	put_bits(c.in, 0x280, 64, 0);
	put_bits(c.in, 0x2c0, 32, umem->umem_id);
	command_refused(&hand, &c, 272, BAD_PARAM);
	/* What it only reads may be there. */
	put_bits(c.in, 0x280, 64, (uint64_t)(tried.buf - hand.mem));
	put_bits(c.in, 0x2c0, 32, hand.umem->umem_id);
	put_bits(c.in, CQC + 0x20, 32, umem->umem_id);
	put_bits(c.in, CQC + 0x1c0, 64, 0);
	hand_cq_create(&tried, &c);
	hand_cq_end(&tried);
	check_eq(mlx5dv_devx_umem_dereg(umem), 0);
	munmap(memory, PAGE);
}

/* A key has no more rights than the memory that it is over. */
static void key_over_umem(void)
{
	struct mlx5dv_devx_umem *umem = mlx5dv_devx_umem_reg(hand.ctx, hand.buf, PAGE, 0);
	struct mlx5dv_devx_obj *key;
	struct command c;

	check(umem != NULL);
	command_begin(&c, 0x200);
	put_bits(c.in, 0x61, 1, 1);
	put_bits(c.in, 0x80 + 0x16, 2, 1); /* MTT */
	put_bits(c.in, 0x80 + 0x15, 1, 1); /* local read */
	put_bits(c.in, 0x80 + 0x20, 24, 0xffffff);
	put_bits(c.in, 0x80 + 0x68, 24, hand.pdn);
	put_bits(c.in, 0x80 + 0xc0, 64, PAGE);
	put_bits(c.in, 0x320, 32, umem->umem_id);
	key = command_create(&hand, &c, 272, NULL);
	object_end(&key);
	put_bits(c.in, 0x80 + 0x14, 1, 1);
	command_refused(&hand, &c, 272, BAD_PARAM);
	put_bits(c.in, 0x80 + 0x14, 1, 0);
	put_bits(c.in, 0x80 + 0x11, 1, 1); /* atomics write, too */
	command_refused(&hand, &c, 272, BAD_PARAM);
	check_eq(mlx5dv_devx_umem_dereg(umem), 0);
}

/* --- a context that closes while a rule of another leads to its queue ------------------------------ */

static struct mlx5dv_devx_obj *flow_table(struct ibv_context *ctx, uint32_t *number)
{
	struct mlx5dv_devx_obj *table;
	struct command c;

	command_begin(&c, 0x930);
	put_bits(c.in, 0xc0 + 0x18, 8, 4);
	put_bits(c.in, 0xc0 + 0x8, 8, 3);
	table = mlx5dv_devx_obj_create(ctx, c.in, 64, c.out, 16);
	check(table != NULL);
	*number = (uint32_t)get_bits(c.out, 0x48, 24);
	return table;
}

static struct mlx5dv_devx_obj *flow_group(struct ibv_context *ctx, uint32_t table, uint32_t *number)
{
	static struct command c;
	struct mlx5dv_devx_obj *group;

	command_begin(&c, 0x933);
	put_bits(c.in, 0xa8, 24, table);
	put_bits(c.in, 0x120, 32, 15);
	group = mlx5dv_devx_obj_create(ctx, c.in, 1024, c.out, 16);
	check(group != NULL);
	*number = (uint32_t)get_bits(c.out, 0x48, 24);
	return group;
}

/* A transport domain that a TIR names is one of the context; 0 is none. */
static void foreign_domain(struct hand *victim, const struct command *good)
{
	struct mlx5dv_devx_obj *domain, *made;
	struct command c;
	uint32_t number;

	command_begin(&c, 0x816);
	domain = command_create(&hand, &c, 16, &number);
	c = *good;
	put_bits(c.in, CTX + 0x128, 24, number);
	command_refused(victim, &c, 272, BAD_RES);
	put_bits(c.in, CTX + 0x128, 24, 0xffffff);
	command_refused(victim, &c, 272, BAD_RES);
	object_end(&domain); /* nobody keeps it */
	command_begin(&c, 0x816);
	domain = command_create(victim, &c, 16, &number);
	c = *good;
	put_bits(c.in, CTX + 0x128, 24, number);
	made = command_create(victim, &c, 272, NULL);
	check_eq(mlx5dv_devx_obj_destroy(domain), EBUSY);
	object_end(&made);
	object_end(&domain);
}

/* A flow entry leads to TIRs of its own context only, as other numbers in commands. */
static void foreign_tir(uint32_t number)
{
	struct mlx5dv_devx_obj *objs[2];
	struct command c;
	uint32_t table, group;

	objs[0] = flow_table(hand.ctx, &table);
	objs[1] = flow_group(hand.ctx, table, &group);
	command_begin(&c, 0x936);
	put_bits(c.in, 0xa8, 24, table);
	put_bits(c.in, 0x220, 32, group);
	put_bits(c.in, 0x270, 16, 4);
	put_bits(c.in, 0x288, 24, 1);
	put_bits(c.in, 0x1a00, 8, 2); /* TIR */
	put_bits(c.in, 0x1a08, 24, number);
	command_refused(&hand, &c, 840, BAD_RES);
	object_end(&objs[1]);
	object_end(&objs[0]);
}

/*
 * Rules of direct verbs may lead there. It closes: the queue takes no frame more, whose memory the
 * program may give back, and goes when the rule is gone.
 */
static void closing(void)
{
	struct mlx5dv_flow_match_parameters *none = calloc(1, sizeof(*none) + 64);
	struct hand victim;
	struct hand_cq its_cq;
	struct hand_qp its_rq;
	struct mlx5dv_devx_obj *its_tir;
	struct mlx5dv_dr_domain *domain =
		mlx5dv_dr_domain_create(hand.ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	struct mlx5dv_dr_table *table = mlx5dv_dr_table_create(domain, 0);
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *action;
	struct mlx5dv_dr_rule *rule;
	struct command c;
	uint32_t number;

	hand_open(&victim);
	hand_cq(&victim, &its_cq, 4);
	hand_rq_command(&victim, &its_rq, &its_cq, &c);
	hand_wq_create(&its_rq, &c);
	command_begin(&c, 0x900);
	put_bits(c.in, CTX + 0xe8, 24, its_rq.number);
	foreign_domain(&victim, &c);
	its_tir = command_create(&victim, &c, 272, &number);
	foreign_tir(number);
	none->match_sz = 64;
	matcher = mlx5dv_dr_matcher_create(table, 0, 0, none);
	action = mlx5dv_dr_action_create_dest_devx_tir(its_tir);
	rule = mlx5dv_dr_rule_create(matcher, none, 1, &action);
	check(rule != NULL);
	check_eq(ibv_close_device(victim.ctx), 0);
	check_eq(command_query(its_rq.obj, its_rq.number, 0x90b, &c, 272), 0);
	check_eq(get_bits(c.out, CTX + 0x8, 4), 0); /* RST */
	check_eq(mlx5dv_devx_obj_destroy(its_tir), EBUSY);
	check_eq(mlx5dv_dr_rule_destroy(rule), 0);
	check_eq(mlx5dv_dr_action_destroy(action), 0);
	check_eq(mlx5dv_dr_matcher_destroy(matcher), 0);
	check_eq(mlx5dv_dr_table_destroy(table), 0);
	check_eq(mlx5dv_dr_domain_destroy(domain), 0);
	check_eq(mlx5dv_devx_obj_destroy(its_tir), 0);
	check_eq(mlx5dv_devx_obj_destroy(its_rq.obj), 0);
	check_eq(mlx5dv_devx_obj_destroy(its_cq.obj), 0);
	check_eq(mlx5dv_devx_umem_dereg(victim.umem), 0);
	mlx5dv_devx_free_uar(victim.uar);
	munmap(victim.mem, HAND_MEM);
	kind_unmap(victim.buf, HAND_BUF);
	free(victim.mr); /* their structs stay */
	free(victim.pd);
	free(none);
}

int main(void)
{
	hand_open(&hand);
	read_only();
	key_over_umem();
	closing();
	children();
	hand_close(&hand);
	return 0;
}
