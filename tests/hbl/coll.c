// SPDX-License-Identifier: MIT
/*
 * What the vendor's collective library asks for beyond the manual pages: it loads libhbl by name, verbs as hlibv_*, and
 * reserves numbers that queue pairs of several ports have in common.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <dlfcn.h>

static struct dev dev;

static int open_one(void **state)
{
	dev_open(&dev, 0);
	set_port(&dev, 1);
	set_port(&dev, 2);
	return 0;
}

static int close_one(void **state)
{
	dev_close(&dev);
	return 0;
}

/* A queue pair on a port, with a hint or without (0); 0 or errno. */
static int make_qp(struct end *end, uint32_t port, uint32_t hint)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct hbldv_qp_attr hbl = { .caps = HBLDV_QP_CAP_COLL,
				     .qp_num_hint = hint,
				     .wq_type = HBLDV_WQ_WRITE };
	int ret;

	hbl_end_create(end, &dev, &(struct end_attr){ .port = port });
	if (!hint)
		return 0;
	assert_int_equal(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = (uint8_t)port;
	ret = hbldv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			      &hbl);
	if (!ret)
		assert_int_equal(hbldv_query_qp(end->qp, &end->q), 0);
	return ret;
}

static uint32_t reserve(void)
{
	struct hbldv_coll_qp_attr attr = { .is_scale_out = 1 };
	struct hbldv_coll_qp coll = { 0 };

	assert_int_equal(hbldv_reserve_coll_qps(dev.pd, &attr, &coll), 0);
	assert_in_range(coll.qp_num, 1, 8191);
	return coll.qp_num;
}

static void common_numbers(void **state)
{
	struct hbldv_coll_qp_attr attr = { 0 };
	struct hbldv_coll_qp coll = { .qp_num = 4711 };
	struct end end[2], other;
	uint32_t first, second;

	assert_int_equal(hbldv_reserve_coll_qps(NULL, &attr, &coll), EINVAL);
	assert_int_equal(hbldv_reserve_coll_qps(dev.pd, NULL, &coll), EINVAL);
	assert_int_equal(hbldv_reserve_coll_qps(dev.pd, &attr, NULL), EINVAL);
	if (!dev.gaudi3) {
		assert_int_equal(hbldv_reserve_coll_qps(dev.pd, &attr, &coll), EOPNOTSUPP);
		assert_int_equal(coll.qp_num, 4711);
		return;
	}
	first = reserve();
	second = reserve();
	assert_int_not_equal(first, second);
	/* On each port once; another number is not to be had by a hint. */
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(make_qp(&end[i], i + 1, first), 0);
		assert_int_equal(end[i].q.qp_num, first);
	}
	assert_int_equal(make_qp(&other, 1, first), EBUSY);
	hbl_end_destroy(&other);
	assert_int_equal(make_qp(&other, 1, first == 1 || second == 1 ? 2 : 1), EINVAL);
	hbl_end_destroy(&other);
	assert_int_equal(make_qp(&other, 1, 1 << 20), EINVAL);
	hbl_end_destroy(&other);
	/* The two talk to each other as any two do. */
	ends_connect(&end[0], &end[1], NULL);
	/* The number goes with the last of them. */
	hbl_end_destroy(&end[0]);
	assert_int_equal(make_qp(&end[0], 1, first), 0);
	hbl_end_destroy(&end[0]);
	hbl_end_destroy(&end[1]);
	assert_int_equal(make_qp(&other, 1, first), EINVAL);
	hbl_end_destroy(&other);
}

/* All numbers, and then ordinary queue pairs get those that are not reserved. */
static void all_numbers(void **state)
{
	struct hbldv_coll_qp_attr attr = { 0 };
	struct hbldv_coll_qp coll;
	struct end ordinary, none;
	uint32_t last = 0;

	if (!dev.gaudi3)
		skip();
	hbl_end_create(&ordinary, &dev, &(struct end_attr){ .port = 2 });
	for (uint32_t i = 0; i < 8190; i++) {
		last = reserve();
		assert_int_not_equal(last, ordinary.q.qp_num);
	}
	assert_int_equal(hbldv_reserve_coll_qps(dev.pd, &attr, &coll), EBUSY);
	/* Port 1 does not have the one that is left. */
	hbl_end_create(&none, &dev, &(struct end_attr){ .port = 1 });
	assert_int_equal(none.q.qp_num, ordinary.q.qp_num);
	hbl_end_destroy(&none);
	assert_int_equal(make_qp(&none, 1, last), 0);
	hbl_end_destroy(&none);
	hbl_end_destroy(&ordinary);
	/* A new context begins with none. */
	dev_close(&dev);
	open_one(NULL);
	for (int i = 0; i < 3; i++)
		reserve();
}

static void migration(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct hbldv_qp_attr hbl = { .caps = HBLDV_QP_CAP_MIGRATE };
	struct end end;

	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	assert_int_equal(hbldv_migrate_qp(NULL), EINVAL);
	assert_int_equal(hbldv_migrate_qp(end.qp), EOPNOTSUPP);
	assert_int_equal(hbldv_modify_qp(end.qp, &attr, IBV_QP_STATE, &hbl), EOPNOTSUPP);
	hbl_end_destroy(&end);
}

/* As it is loaded: one handle, everything by name. */
static void names(void **state)
{
	static const char *const wanted[] = {
		"hbldv_open_device",     "hbldv_set_port_ex",      "hbldv_create_cq",
		"hbldv_query_qp",        "hbldv_reserve_coll_qps", "hbldv_modify_qp",
		"hbldv_create_usr_fifo", "hbldv_destroy_usr_fifo", "hbldv_query_port",
		"hbldv_is_supported",    "hbldv_query_device",     "hbldv_migrate_qp",
		"hlibv_get_device_list", "hlibv_get_device_name",  "hlibv_free_device_list",
		"hlibv_alloc_pd",        "hlibv_close_device",     "hlibv_dealloc_pd",
		"hlibv_destroy_cq",      "hlibv_create_qp",        "hlibv_modify_qp",
		"hlibv_destroy_qp",      "hlibv_get_async_event",  "hlibv_ack_async_event",
		"hlibv_query_qp",        "hlibv_query_port",       "hlibv_query_gid",
		"hlibv_query_gid_type",
	};
	struct ibv_device **(*get_list)(int *count);
	void (*free_list)(struct ibv_device * *list);
	const char *(*get_name)(struct ibv_device * device);
	int (*query_port)(struct ibv_context * context, uint8_t port, struct ibv_port_attr * attr);
	int (*query_gid)(struct ibv_context * context, uint8_t port, int index, union ibv_gid *gid);
	int (*query_type)(struct ibv_context * context, uint8_t port, unsigned int index,
			  int *type);
	void *lib = dlopen("libhbl.so.1", RTLD_LOCAL | RTLD_NOW);
	struct ibv_port_attr port = { 0 };
	struct ibv_device **list;
	union ibv_gid gid, same;
	int count = 0, type = -1;

	assert_non_null(lib);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (!dlsym(lib, wanted[i]))
			fail_msg("%s", wanted[i]);
	*(void **)&get_list = dlsym(lib, "hlibv_get_device_list");
	*(void **)&free_list = dlsym(lib, "hlibv_free_device_list");
	*(void **)&get_name = dlsym(lib, "hlibv_get_device_name");
	*(void **)&query_port = dlsym(lib, "hlibv_query_port");
	*(void **)&query_gid = dlsym(lib, "hlibv_query_gid");
	*(void **)&query_type = dlsym(lib, "hlibv_query_gid_type");
	list = get_list(&count);
	assert_non_null(list);
	assert_true(count >= 2);
	assert_string_equal(get_name(list[0]), "hbl_0");
	free_list(list);
	assert_int_equal(query_port(dev.context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(query_gid(dev.context, 1, 0, &gid), 0);
	assert_int_equal(ibv_query_gid(dev.context, 1, 0, &same), 0);
	assert_memory_equal(&gid, &same, sizeof(gid));
	assert_int_equal(query_type(dev.context, 1, 0, &type), 0);
	assert_in_range(type, 0, 1);
	dlclose(lib);
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_one, close_one)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DEVICE(common_numbers),
		WITH_DEVICE(all_numbers),
		WITH_DEVICE(migration),
		WITH_DEVICE(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
