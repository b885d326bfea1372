// SPDX-License-Identifier: MIT
/* Apps and functions: files good and bad, names, lists, lives. */
#include "bed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char long_name[FLEXIO_MAX_NAME_LEN + 2];

static flexio_status create(const char *name, void *elf, size_t size, struct flexio_app **app)
{
	struct flexio_app_attr attr = { .app_name = name, .app_ptr = elf, .app_bsize = size };

	return flexio_app_create(&attr, app);
}

static void test_life(void **state)
{
	struct flexio_app *app = NULL, *untouched = (void *)16;
	char name[FLEXIO_MAX_NAME_LEN + 1];
	uint64_t *copy;
	size_t size;
	void *elf = bed_elf(&size);

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_ok(create(name, elf, size, &app)); /* the longest */
	assert_string_equal(flexio_app_get_name(app), name);
	assert_int_equal(flexio_app_get_elf_size(app), size);
	copy = calloc(1, size + 8);
	assert_failed(flexio_app_get_elf(app, copy, size - 1));
	assert_failed(flexio_app_get_elf(app, NULL, size));
	assert_ok(flexio_app_get_elf(app, copy, size));
	assert_memory_equal(copy, elf, size);
	free(copy);
	assert_ok(flexio_app_destroy(app));
	assert_failed(flexio_app_destroy(app)); /* twice */
	assert_null(flexio_app_get_name(app));
	assert_int_equal(flexio_app_get_elf_size(app), 0);

	assert_failed(flexio_app_create(NULL, &untouched));
	assert_failed(create(long_name, elf, size, &untouched));
	assert_failed(create("", elf, size, &untouched));
	assert_failed(create(NULL, elf, size, &untouched));
	assert_failed(create("a", NULL, size, &untouched));
	assert_failed(create("a", elf, 0, &untouched));
	assert_failed(create("a", elf, size, NULL));
	assert_ptr_equal(untouched, (void *)16);
	assert_failed(flexio_app_destroy(NULL));
	assert_failed(flexio_app_destroy((struct flexio_app *)&size));
	free(elf);
}

/* Damaged files are refused, or at least loaded or refused later; nothing crashes. */
static void test_corrupt(void **state)
{
	struct flexio_process *process;
	struct flexio_app *app;
	unsigned int seed = 1, refused = 0;
	size_t size;
	uint8_t *elf = bed_elf(&size), *bad = malloc(size);

	for (size_t len = 1; len < size; len += len < 128 ? 1 : 613) {
		memcpy(bad, elf, len);
		app = NULL;
		if (create("cut", bad, len, &app) == FLEXIO_STATUS_SUCCESS)
			assert_ok(flexio_app_destroy(app));
		else
			refused++;
	}
	assert_true(refused > 100);
	assert_failed(create("archive", (void *)(uintptr_t) "!<arch>\n0123456789abcdef", 24, &app));
	for (unsigned int i = 0; i < 300; i++) {
		memcpy(bad, elf, size);
		for (unsigned int k = 0; k < 8; k++)
			bad[(unsigned int)rand_r(&seed) % (i % 2 ? 400 : size)] =
				(uint8_t)rand_r(&seed);
		if (create("flipped", bad, size, &app) != FLEXIO_STATUS_SUCCESS)
			continue;
		process = NULL;
		if (i % 8 == 0 &&
		    flexio_process_create(bed_ctx, app, NULL, &process) == FLEXIO_STATUS_SUCCESS)
			bed_process_end(process);
		assert_ok(flexio_app_destroy(app));
	}
	memset(bad, 0, size);
	assert_failed(create("zeros", bad, size, &app));
	memset(bad, 0xff, size);
	assert_failed(create("ones", bad, size, &app));
	free(bad);
	free(elf);
}

/* A file that has no device library in it. */
static void test_foreign(void **state)
{
	struct flexio_process *process = (void *)16;
	struct flexio_app *app;
	static const char symbol[] = "__flexio_dev_abi_version";
	size_t size;
	uint8_t *elf = bed_elf(&size), *found;

	found = memmem(elf, size, symbol, sizeof(symbol));
	assert_non_null(found);
	*found = 'x';
	assert_ok(create("foreign", elf, size, &app));
	assert_failed(flexio_process_create(bed_ctx, app, NULL, &process));
	assert_ptr_equal(process, (void *)16);
	assert_ok(flexio_app_destroy(app));
	free(elf);
}

static void test_list(void **state)
{
	struct flexio_app *a, *b, **list;
	uint32_t before = 0, n = 0;
	size_t size;
	void *elf = bed_elf(&size);

	assert_ok(flexio_app_get_list(&list, &before));
	assert_ptr_equal(list[0], bed_app);
	assert_ok(flexio_app_list_free(list));
	assert_failed(flexio_app_list_free(list));
	assert_failed(flexio_app_list_free(NULL));
	assert_ok(create("a", elf, size, &a));
	assert_ok(create("b", elf, size, &b));
	assert_ok(flexio_app_get_list(&list, &n));
	assert_int_equal(n, before + 2);
	assert_ptr_equal(list[n - 2], a);
	assert_ptr_equal(list[n - 1], b);
	assert_ok(flexio_app_list_free(list));
	n = 1; /* no more than these */
	assert_ok(flexio_app_get_list(&list, &n));
	assert_int_equal(n, 1);
	assert_ptr_equal(list[0], bed_app);
	assert_null(list[1]);
	assert_ok(flexio_app_list_free(list));
	n = before + 1;
	assert_ok(flexio_app_get_list(&list, &n));
	assert_int_equal(n, before + 1);
	assert_ptr_equal(list[n - 1], a);
	assert_ok(flexio_app_list_free(list));
	n = UINT32_MAX;
	assert_ok(flexio_app_get_list(&list, &n));
	assert_int_equal(n, before + 2);
	assert_ok(flexio_app_list_free(list));
	assert_failed(flexio_app_get_list(NULL, &n));
	assert_failed(flexio_app_get_list(&list, NULL));
	assert_ok(flexio_app_destroy(a));
	assert_ok(flexio_app_destroy(b));
	free(elf);
}

static void test_select(void **state)
{
	struct flexio_app_select_attr select = { .app_name = "chosen" };
	struct flexio_app *cx7, *bf3, *app = NULL;
	size_t size;
	void *elf = bed_elf(&size);

	assert_int_equal(flexio_hw_model_id_get(bed_ctx), FLEXIO_HW_MODEL_BF3);
	assert_int_equal(flexio_hw_model_id_get(NULL), FLEXIO_HW_MODEL_NA);
	assert_ok(create("chosen", elf, size, &cx7));
	assert_ok(create("chosen", elf, size, &bf3));
	assert_ok(flexio_app_hw_model_register(cx7, FLEXIO_HW_MODEL_CX7));
	assert_ok(flexio_app_hw_model_register(bf3, FLEXIO_HW_MODEL_BF3));
	assert_ok(flexio_app_hw_model_register(bf3, FLEXIO_HW_MODEL_BF3));
	assert_failed(flexio_app_hw_model_register(bf3, FLEXIO_HW_MODEL_CX7));
	assert_failed(flexio_app_hw_model_register(bf3, FLEXIO_HW_MODEL_NA));
	assert_failed(flexio_app_hw_model_register(NULL, FLEXIO_HW_MODEL_BF3));

	select.ibv_ctx = bed_ctx;
	assert_ok(flexio_app_get(&select, &app));
	assert_ptr_equal(app, bf3);
	select.hw_model_id = FLEXIO_HW_MODEL_CX7; /* wins over the context */
	assert_ok(flexio_app_get(&select, &app));
	assert_ptr_equal(app, cx7);
	select.hw_model_id = FLEXIO_HW_MODEL_CX9;
	assert_failed(flexio_app_get(&select, &app));
	select = (struct flexio_app_select_attr){ .app_name = "chosen" };
	assert_ok(flexio_app_get(&select, &app));
	select = (struct flexio_app_select_attr){ .app_name = "bare", .ibv_ctx = bed_ctx };
	assert_ok(flexio_app_get(&select, &app)); /* registered for no model: fits all */
	assert_ptr_equal(app, bed_app);
	select.app_name = "absent";
	assert_failed(flexio_app_get(&select, &app));
	select.app_name = NULL;
	assert_failed(flexio_app_get(&select, &app));
	assert_failed(flexio_app_get(NULL, &app));
	assert_ok(flexio_app_destroy(cx7));
	assert_ok(flexio_app_destroy(bf3));
	free(elf);
}

static void stub(void)
{
}

static void other_stub(void)
{
}

static void pack(void *argbuf, va_list ap)
{
	*(uint64_t *)argbuf = va_arg(ap, uint64_t);
}

static void test_functions(void **state)
{
	char name[FLEXIO_MAX_NAME_LEN + 1], unpack[FLEXIO_MAX_NAME_LEN + 1];
	flexio_func_arg_pack_fn_t *packer = NULL;
	flexio_uintptr_t addr = 0, unpack_addr = 0;
	flexio_func_t *func = NULL, *again = NULL;
	size_t argbuf_size = 0;
	uint32_t pup = 9;

	assert_ok(flexio_func_register(bed_app, "add_one", &func));
	assert_ok(flexio_func_register(bed_app, "add_one", &again));
	assert_ptr_equal(func, again);
	assert_failed(flexio_func_register(bed_app, "absent", &func));
	assert_failed(flexio_func_register(bed_app, long_name, &func));
	assert_failed(flexio_func_register(bed_app, NULL, &func));
	assert_failed(flexio_func_register(bed_app, "add_one", NULL));
	assert_failed(flexio_func_register(NULL, "add_one", &func));

	assert_failed(flexio_func_pup_register(bed_app, "absent", "unpack_many", stub, 40, pack));
	assert_failed(flexio_func_pup_register(bed_app, "many", "absent", stub, 40, pack));
	assert_failed(flexio_func_pup_register(bed_app, "many", long_name, stub, 40, pack));
	assert_failed(flexio_func_pup_register(bed_app, "many", "unpack_many", NULL, 40, pack));
	assert_failed(flexio_func_pup_register(bed_app, "many", "unpack_many", stub, 40, NULL));
	assert_failed(
		flexio_func_pup_register(bed_app, "many", "unpack_many", stub, 1UL << 40, pack));
	assert_ok(flexio_func_pup_register(bed_app, "many", "unpack_many", stub, 40, pack));
	assert_failed(flexio_func_pup_register(bed_app, "many", "unpack_many", stub, 40, pack));

	assert_ok(flexio_func_get_register_info(bed_app, stub, &pup, name, unpack, sizeof(name),
						&argbuf_size, &packer, &addr, &unpack_addr));
	assert_int_equal(pup, 1);
	assert_string_equal(name, "many");
	assert_string_equal(unpack, "unpack_many");
	assert_int_equal(argbuf_size, 40);
	assert_ptr_equal(packer, pack);
	assert_true(addr && unpack_addr && addr != unpack_addr);
	assert_ok(flexio_func_get_register_info(bed_app, func, &pup, name, NULL, sizeof(name), NULL,
						NULL, &addr, NULL));
	assert_int_equal(pup, 0);
	assert_string_equal(name, "add_one");
	assert_failed(flexio_func_get_register_info(bed_app, stub, &pup, name, unpack, 4, NULL,
						    NULL, NULL, NULL));
	assert_failed(flexio_func_get_register_info(bed_app, other_stub, &pup, NULL, NULL, 0, NULL,
						    NULL, NULL, NULL));
	assert_failed(flexio_func_get_register_info(bed_app, NULL, &pup, NULL, NULL, 0, NULL, NULL,
						    NULL, NULL));
}

static void test_in_use(void **state)
{
	struct flexio_process *process;
	struct flexio_app *app;
	size_t size;
	void *elf = bed_elf(&size);

	assert_ok(create("used", elf, size, &app));
	free(elf);
	assert_ok(flexio_process_create(bed_ctx, app, NULL, &process));
	assert_failed(flexio_app_destroy(app));
	bed_process_end(process);
	assert_ok(flexio_app_destroy(app));
	assert_failed(flexio_process_create(bed_ctx, app, NULL, &process));
}

/* As the first one of a process. */
static bool version_accepted(uint64_t version)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(flexio_version_set(version) || flexio_version_set(version) ||
		      flexio_version_set(version ^ 1) != FLEXIO_STATUS_FAILED);
	return waitpid(child, &status, 0) == child && status == 0;
}

static void test_version(void **state)
{
	assert_true(version_accepted(FLEXIO_LAST_SUPPORTED_VERSION));
	assert_true(version_accepted(FLEXIO_VER(24, 10, 0)));
	assert_true(version_accepted(FLEXIO_CURRENT_VERSION));
	assert_failed(flexio_version_set(FLEXIO_CURRENT_VERSION + 1));
	assert_failed(flexio_version_set(FLEXIO_VER_LATEST));
	assert_failed(flexio_version_set(UINT64_MAX));
	assert_ok(flexio_version_set(FLEXIO_VER(24, 7, 0)));
	assert_ok(flexio_version_set(FLEXIO_VER(24, 7, 0)));
	assert_failed(flexio_version_set(FLEXIO_CURRENT_VERSION));
	assert_failed(flexio_version_set(0));
}

static void test_log_level(void **state)
{
	assert_int_equal(flexio_log_lvl_set(FLEXIO_LOG_LVL_DBG), FLEXIO_LOG_LVL_ERR);
	assert_int_equal(flexio_log_lvl_set(FLEXIO_LOG_LVL_WARN), FLEXIO_LOG_LVL_DBG);
	assert_int_equal(flexio_log_lvl_set((enum flexio_log_lvl)17), FLEXIO_LOG_LVL_WARN);
	assert_int_equal(flexio_log_lvl_set(FLEXIO_LOG_LVL_ERR), FLEXIO_LOG_LVL_WARN);
}

/* Lines "function line - text" on standard error. */
static void test_log_form(void **state)
{
	char line[256] = "", function[64], text[128];
	int saved = dup(STDERR_FILENO), fds[2], number = 0;

	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	flexio_app_destroy(NULL);
	dup2(saved, STDERR_FILENO);
	assert_true(read(fds[0], line, sizeof(line) - 1) > 0);
	assert_int_equal(sscanf(line, "%63s %d - %127[^\n]", function, &number, text), 3);
	assert_string_equal(function, "flexio_app_destroy");
	assert_true(number > 0);
	assert_int_equal(line[strlen(line) - 1], '\n');
	close(saved);
	close(fds[0]);
	close(fds[1]);
}

/* Adapters of other kinds have no accelerator. */
static void test_other_adapters(void **state)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct flexio_process *process = (void *)16;

	for (unsigned int i = 0; list[i]; i++) {
		struct ibv_context *ctx;
		bool mlx5 = !strncmp(ibv_get_device_name(list[i]), "mlx5", 4);

		ctx = ibv_open_device(list[i]);
		if (!ctx) /* some have one owner at a time */
			continue;
		assert_int_equal(flexio_hw_model_id_get(ctx),
				 mlx5 ? FLEXIO_HW_MODEL_BF3 : FLEXIO_HW_MODEL_NA);
		if (!mlx5)
			assert_failed(flexio_process_create(ctx, bed_app, NULL, &process));
		ibv_close_device(ctx);
	}
	assert_ptr_equal(process, (void *)16);
	ibv_free_device_list(list);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),           cmocka_unit_test(test_corrupt),
		cmocka_unit_test(test_foreign),        cmocka_unit_test(test_list),
		cmocka_unit_test(test_select),         cmocka_unit_test(test_functions),
		cmocka_unit_test(test_in_use),         cmocka_unit_test(test_version),
		cmocka_unit_test(test_log_level),      cmocka_unit_test(test_log_form),
		cmocka_unit_test(test_other_adapters),
	};

	memset(long_name, 'x', sizeof(long_name) - 1);
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
