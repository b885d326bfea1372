// SPDX-License-Identifier: MIT
/*
 * Very many objects: the work to make and to end one does not grow with their number. Where it did, each of these cases would
 * take minutes.
 */
#include "bed.h"

#include <stdlib.h>

enum { MANY = 32000 };

static struct flexio_process *process;
static struct flexio_cq *cq;
static struct flexio_wq_attr attr;

static int setup(void **state)
{
	struct flexio_cq_attr cq_attr = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ };

	process = bed_process();
	attr.uar_id = cq_attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
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

/* Made one after the other; ended from the first, then from the last, then here and there. */
#define MANY_OF(kind, create)                                               \
	do {                                                                \
		struct flexio_##kind **all = calloc(MANY, sizeof(*all));    \
		unsigned int i;                                             \
                                                                            \
		for (i = 0; i < MANY; i++)                                  \
			assert_ok(create);                                  \
		for (i = 0; i < MANY / 2; i++)                              \
			assert_ok(flexio_##kind##_destroy(all[i]));         \
		for (i = MANY; i-- > MANY / 2;)                             \
			if (i % 3)                                          \
				assert_ok(flexio_##kind##_destroy(all[i])); \
		for (i = MANY / 2; i < MANY; i++)                           \
			if (i % 3 == 0)                                     \
				assert_ok(flexio_##kind##_destroy(all[i])); \
		free(all);                                                  \
	} while (0)

static void test_sqs(void **state)
{
	MANY_OF(sq, flexio_sq_create(process, NULL, flexio_cq_get_cq_num(cq), &attr, &all[i]));
}

static void test_rqs(void **state)
{
	MANY_OF(rq, flexio_rq_create(process, NULL, flexio_cq_get_cq_num(cq), &attr, &all[i]));
}

static void test_rmps(void **state)
{
	struct flexio_wq_attr cyclic = attr;

	cyclic.rq.wq_type = FLEXIO_WQ_TYPE_CYCLIC;
	MANY_OF(rmp, flexio_rmp_create(process, NULL, &cyclic, &all[i]));
}

static void test_uars(void **state)
{
	MANY_OF(uar, (flexio_uar_create)(process, &all[i]));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sqs),
		cmocka_unit_test(test_rqs),
		cmocka_unit_test(test_rmps),
		cmocka_unit_test(test_uars),
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
