// SPDX-License-Identifier: MIT
/*
 * Receive queues of libflexio as destinations of libmlx5: the TIR of a queue in rules and arrays,
 * what they keep from going, and TIRs that a program makes itself over the queue's number.
 */
#include "bed.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <infiniband/mlx5dv.h>

#define MAC 0x02427e7feb02ull

static struct flexio_process *process;
static struct flexio_cq *cq;
static struct flexio_wq_attr attr;

struct param {
	size_t match_sz;
	uint8_t bytes[64];
};

static int setup(void **state)
{
	struct flexio_cq_attr cq_attr = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ };

	process = bed_process();
	cq_attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	cq_attr.cq_ring_qmem.daddr = bed_alloc(process, 64);
	cq_attr.cq_dbr_daddr = bed_alloc(process, 8);
	assert_ok(flexio_cq_create(process, NULL, &cq_attr, &cq));
	attr.wq_ring_qmem.daddr = bed_alloc(process, 64);
	attr.wq_dbr_qmem.daddr = bed_alloc(process, 8);
	return 0;
}

static int teardown(void **state)
{
	assert_ok(flexio_cq_destroy(cq));
	bed_process_end(process);
	return 0;
}

static struct flexio_rq *make_rq(void)
{
	struct flexio_rq *rq;

	assert_ok(flexio_rq_create(process, NULL, flexio_cq_get_cq_num(cq), &attr, &rq));
	return rq;
}

/* As public programs have it: criteria 1, 64 bytes, the source or destination MAC. */
static struct param mac_param(uint64_t mac)
{
	struct param param = { .match_sz = 64 };

	for (int i = 0; i < 6; i++)
		param.bytes[8 + i] = (uint8_t)(mac >> (40 - 8 * i));
	return param;
}

static struct mlx5dv_flow_match_parameters *match(struct param *param)
{
	return (struct mlx5dv_flow_match_parameters *)param;
}

static void test_rules(void **state)
{
	struct param mask = mac_param(~0ull), value = mac_param(MAC);
	struct flexio_rq *rq = make_rq();
	struct mlx5dv_devx_obj *tir = flexio_rq_get_tir(rq);
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table;
	struct mlx5dv_dr_matcher *matcher;
	struct mlx5dv_dr_action *to_rq, *miss, *both;
	struct mlx5dv_dr_rule *rule;

	assert_non_null(tir);
	assert_ptr_equal(flexio_rq_get_tir(rq), tir);
	domain = mlx5dv_dr_domain_create(bed_ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	table = mlx5dv_dr_table_create(domain, 0);
	matcher = mlx5dv_dr_matcher_create(table, 0, 1, match(&mask));
	to_rq = mlx5dv_dr_action_create_dest_devx_tir(tir);
	assert_non_null(to_rq);
	rule = mlx5dv_dr_rule_create(matcher, match(&value), 1, &to_rq);
	assert_non_null(rule);
	assert_failed(flexio_rq_destroy(rq)); /* the rule leads to it; the queue goes on */
	assert_int_not_equal(flexio_rq_get_wq_num(rq), UINT32_MAX);
	assert_int_equal(mlx5dv_dr_rule_destroy(rule), 0);

	miss = mlx5dv_dr_action_create_default_miss();
	{
		struct mlx5dv_dr_action_dest_attr a = { MLX5DV_DR_ACTION_DEST, { miss } };
		struct mlx5dv_dr_action_dest_attr b = { MLX5DV_DR_ACTION_DEST, { to_rq } };
		struct mlx5dv_dr_action_dest_attr *dests[] = { &a, &b };

		both = mlx5dv_dr_action_create_dest_array(domain, 2, dests);
	}
	assert_non_null(both);
	assert_failed(flexio_rq_destroy(rq));
	rule = mlx5dv_dr_rule_create(matcher, match(&value), 1, &both);
	assert_non_null(rule);
	assert_int_equal(mlx5dv_dr_rule_destroy(rule), 0);
	assert_int_equal(mlx5dv_dr_action_destroy(both), 0);
	assert_int_equal(mlx5dv_dr_action_destroy(miss), 0);
	/* The queue before the action that led to it; the action leads nowhere from then on. */
	assert_ok(flexio_rq_destroy(rq));
	errno = 0;
	assert_null(mlx5dv_dr_rule_create(matcher, match(&value), 1, &to_rq));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(mlx5dv_dr_action_destroy(to_rq), 0);
	assert_int_equal(mlx5dv_dr_matcher_destroy(matcher), 0);
	assert_int_equal(mlx5dv_dr_table_destroy(table), 0);
	assert_int_equal(mlx5dv_dr_domain_destroy(domain), 0);
}

/*
 * The objects are lent: they end with what they are part of, and each is taken only as what it is.
 */
static void test_lent(void **state)
{
	struct flexio_rq *rq = make_rq();
	struct mlx5dv_devx_obj *tir = flexio_rq_get_tir(rq), *object = flexio_rq_get_object(rq);

	assert_non_null(object);
	assert_int_equal(mlx5dv_devx_obj_destroy(tir), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_destroy(object), EINVAL);
	errno = 0;
	assert_null(mlx5dv_dr_action_create_dest_devx_tir(object));
	assert_int_equal(errno, EINVAL);
	errno = 0;
	assert_null(mlx5dv_dr_action_create_dest_devx_tir(flexio_cq_get_obj(cq)));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(mlx5dv_devx_obj_destroy(flexio_cq_get_obj(cq)), EINVAL);
	assert_ok(flexio_rq_destroy(rq));
}

/* ---- queries: contexts of the programmer's reference manual ---- */

enum { QUERY_CQ = 0x402, QUERY_TIR = 0x903, QUERY_RQ = 0x90b, QUERY_GENERAL = 0xa02 };

static uint32_t field(const uint8_t *from, uint32_t bit, uint32_t len)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < len; i++)
		value = value << 1 | (from[(bit + i) / 8] >> (7 - (bit + i) % 8) & 1);
	return (uint32_t)value;
}

static int query(struct mlx5dv_devx_obj *obj, uint16_t opcode, uint32_t number, uint8_t *out,
		 size_t size)
{
	uint8_t in[16] = { (uint8_t)(opcode >> 8), (uint8_t)opcode };

	in[9] = (uint8_t)(number >> 16);
	in[10] = (uint8_t)(number >> 8);
	in[11] = (uint8_t)number;
	memset(out, 0xa5, size);
	return mlx5dv_devx_obj_query(obj, in, sizeof(in), out, size);
}

/* Only its own command, with its own number, and room for the answer. */
static void query_refusals(struct mlx5dv_devx_obj *obj, uint16_t opcode, uint32_t number,
			   size_t size)
{
	static const uint16_t others[] = { 0, 0x400, QUERY_CQ, QUERY_TIR, QUERY_RQ, QUERY_GENERAL };
	uint8_t out[272], in[16] = { (uint8_t)(opcode >> 8), (uint8_t)opcode };

	for (unsigned int i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i] != opcode)
			assert_int_equal(query(obj, others[i], number, out, sizeof(out)), EINVAL);
	assert_int_equal(query(obj, opcode, number ^ 1, out, sizeof(out)), EINVAL);
	assert_int_equal(out[0], 0xa5); /* the kernel refuses it */
	assert_int_equal(query(obj, opcode, number, out, size - 1), EREMOTEIO);
	assert_int_equal(out[0], 0x51); /* BAD_OUTP_LEN */
	assert_int_equal(mlx5dv_devx_obj_query(obj, in, 15, out, sizeof(out)), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_query(obj, in, sizeof(in), NULL, sizeof(out)), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_modify(obj, in, sizeof(in), out, sizeof(out)), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_destroy(obj), EINVAL);
	errno = 0;
	assert_null(mlx5dv_dr_action_create_flow_counter(obj, 0));
	assert_int_equal(errno, EINVAL);
}

static void test_query_cq(void **state)
{
	struct flexio_cq_attr a = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ,
				    .log_cq_depth = 3,
				    .overrun_ignore = 1,
				    .cc = true,
				    .cq_period_mode = FLEXIO_CQ_PERIOD_MODE_CQE,
				    .cq_period = 77,
				    .cq_max_count = 9 };
	const uint8_t *cqc;
	struct flexio_cq *full;
	uint8_t out[80];
	uint32_t number;

	a.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	a.cq_ring_qmem.daddr = bed_alloc(process, 64 << 3);
	a.cq_dbr_daddr = bed_alloc(process, 8);
	assert_ok(flexio_cq_create(process, NULL, &a, &full));
	number = flexio_cq_get_cq_num(full);
	bed_write(process, a.cq_dbr_daddr, htobe32(5));
	assert_int_equal(query(flexio_cq_get_obj(full), QUERY_CQ, number, out, sizeof(out)), 0);
	cqc = out + 16;
	assert_int_equal(out[0], 0);
	assert_int_equal(field(cqc, 0x0, 4), 0);  /* status */
	assert_int_equal(field(cqc, 0x8, 3), 0);  /* CQEs of 64 bytes */
	assert_int_equal(field(cqc, 0xb, 1), 1);  /* cc */
	assert_int_equal(field(cqc, 0xe, 1), 1);  /* oi */
	assert_int_equal(field(cqc, 0xf, 2), 1);  /* cq_period_mode */
	assert_int_equal(field(cqc, 0x63, 5), 3); /* log_cq_size */
	assert_int_equal(field(cqc, 0x68, 24), a.uar_id);
	assert_int_equal(field(cqc, 0x84, 12), 77);
	assert_int_equal(field(cqc, 0x90, 16), 9);
	assert_int_equal(field(cqc, 0x148, 24), 5); /* consumer_counter */
	assert_int_equal(field(cqc, 0x168, 24), 0); /* producer_counter */
	/* What is changed meanwhile is what it is. */
	assert_ok(flexio_cq_modify_moderation(full, 4, 11, FLEXIO_CQ_PERIOD_MODE_EVENT));
	assert_int_equal(query(flexio_cq_get_obj(full), QUERY_CQ, number, out, sizeof(out)), 0);
	assert_int_equal(field(cqc, 0xf, 2), 0);
	assert_int_equal(field(cqc, 0x84, 12), 11);
	assert_int_equal(field(cqc, 0x90, 16), 4);
	query_refusals(flexio_cq_get_obj(full), QUERY_CQ, number, 80);
	assert_ok(flexio_cq_destroy(full));
}

static void test_query_rq(void **state)
{
	struct flexio_rq *rq = make_rq();
	struct mlx5dv_devx_obj *object = flexio_rq_get_object(rq), *tir = flexio_rq_get_tir(rq);
	uint32_t number = flexio_rq_get_wq_num(rq), tirn;
	uint8_t out[272], *rqc = out + 32, *wq = rqc + 0x180 / 8;

	assert_int_equal(query(object, QUERY_RQ, number, out, sizeof(out)), 0);
	assert_int_equal(field(rqc, 0x3, 1), 0); /* vsd */
	assert_int_equal(field(rqc, 0x8, 4), 1); /* RDY */
	assert_int_equal(field(rqc, 0x28, 24), 0);
	assert_int_equal(field(rqc, 0x48, 24), flexio_cq_get_cq_num(cq));
	assert_int_equal(field(wq, 0x0, 4), 1);   /* cyclic */
	assert_int_equal(field(wq, 0x10c, 4), 4); /* log_wq_stride */
	assert_int_equal(field(wq, 0x11b, 5), attr.log_wq_depth);
	query_refusals(object, QUERY_RQ, number, 272);
	assert_ok(flexio_rq_set_err_state(rq));
	assert_int_equal(query(object, QUERY_RQ, number, out, sizeof(out)), 0);
	assert_int_equal(field(rqc, 0x8, 4), 3); /* ERR */

	/* The TIR's number is in no answer of libflexio: a command that names another is refused. */
	for (tirn = 0; query(tir, QUERY_TIR, tirn, out, sizeof(out)) == EINVAL; tirn++)
		assert_true(tirn < 1 << 24);
	assert_int_equal(field(rqc, 0x20, 4), 0); /* direct */
	assert_int_equal(field(rqc, 0xe8, 24), number);
	query_refusals(tir, QUERY_TIR, tirn, 272);
	assert_ok(flexio_rq_destroy(rq));
}

/* No public description says what a query of a device thread answers. */
static void test_thread_object(void **state)
{
	struct flexio_event_handler_attr a = { .host_stub_func = bed_func("handler") };
	struct flexio_event_handler *h;
	struct mlx5dv_devx_obj *obj;
	uint8_t out[272];

	assert_ok(flexio_event_handler_create(process, &a, &h));
	obj = flexio_event_handler_get_thread_obj(h);
	assert_ptr_equal(obj, flexio_event_handler_get_thread_obj(h));
	assert_int_equal(query(obj, QUERY_GENERAL, 1, out, sizeof(out)), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_modify(obj, out, 16, out, sizeof(out)), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_destroy(obj), EINVAL);
	errno = 0;
	assert_null(mlx5dv_dr_action_create_dest_devx_tir(obj));
	assert_int_equal(errno, EINVAL);
	assert_ok(flexio_event_handler_destroy(h));
}

/* CREATE_TIR with the queue's number. */
static void test_own_tir(void **state)
{
	uint8_t in[272] = { 0x09, 0x00 }, out[16];
	struct flexio_rq *rq = make_rq();
	uint32_t number = flexio_rq_get_wq_num(rq);
	struct mlx5dv_devx_obj *tir;

	in[61] = (uint8_t)(number >> 16);
	in[62] = (uint8_t)(number >> 8);
	in[63] = (uint8_t)number;
	tir = mlx5dv_devx_obj_create(bed_ctx, in, sizeof(in), out, sizeof(out));
	assert_non_null(tir);
	assert_failed(flexio_rq_destroy(rq));
	assert_non_null(flexio_rq_get_tir(rq)); /* it still is a queue that can be steered to */
	assert_failed(flexio_rq_destroy(rq));
	assert_int_equal(mlx5dv_devx_obj_destroy(tir), 0);
	assert_ok(flexio_rq_destroy(rq));
}

static void *ask(void *rq)
{
	return flexio_rq_get_tir(rq);
}

/* Threads that ask at once are told the same. */
static void test_threads(void **state)
{
	enum { THREADS = 8 };
	struct flexio_rq *rq = make_rq();
	pthread_t threads[THREADS];
	void *told[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask, rq), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], &told[i]), 0);
	for (int i = 0; i < THREADS; i++)
		assert_ptr_equal(told[i], told[0]);
	assert_non_null(told[0]);
	assert_ok(flexio_rq_destroy(rq));
}

static void test_transport_domains(void **state)
{
	struct flexio_transport_domain *td;
	struct flexio_sq_tis *tis;
	struct flexio_rq *rq;

	assert_ok(flexio_transport_domain_create(bed_ctx, &td));
	assert_ok(flexio_sq_tis_create(bed_ctx, td, &tis));
	attr.rq.td = td;
	rq = make_rq();
	attr.rq.td = NULL;
	assert_non_null(flexio_rq_get_tir(rq));
	assert_failed(flexio_transport_domain_destroy(td));
	assert_ok(flexio_rq_destroy(rq));
	assert_failed(flexio_transport_domain_destroy(td));
	assert_ok(flexio_sq_tis_destroy(tis));
	assert_ok(flexio_transport_domain_destroy(td));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),         cmocka_unit_test(test_lent),
		cmocka_unit_test(test_query_cq),      cmocka_unit_test(test_query_rq),
		cmocka_unit_test(test_thread_object), cmocka_unit_test(test_own_tir),
		cmocka_unit_test(test_threads),       cmocka_unit_test(test_transport_domains),
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
