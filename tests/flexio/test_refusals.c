// SPDX-License-Identifier: MIT
/*
 * A refusal says why: each call that fails leaves one line, "<public function> <line> - <object and reason>". Every public
 * function is here with its reasons; one that is missing fails the last test.
 */
#include "bed.h"

#include <dlfcn.h>
#include <regex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct ibv_context *other_ctx, *mlx4_ctx; /* mlx5_1, mlx4_0 */
static struct flexio_process *process;
static char long_name[FLEXIO_MAX_NAME_LEN + 2];
static uint64_t junk[8]; /* what is not a handle */

/* ---- what a call leaves on standard error ---- */

static struct {
	FILE *file;
	int saved;
} capture;

static char covered[256][64];
static unsigned int num_covered;

static bool listen_begin(void)
{
	fflush(stderr);
	capture.file = tmpfile();
	capture.saved = dup(STDERR_FILENO);
	return capture.file && dup2(fileno(capture.file), STDERR_FILENO) >= 0;
}

static void cover(const char *name)
{
	for (unsigned int i = 0; i < num_covered; i++)
		if (!strcmp(covered[i], name))
			return;
	strcpy(covered[num_covered++], name);
}

static bool matches(const char *text, const char *pattern)
{
	regex_t regex;
	bool found;

	assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
	found = !regexec(&regex, text, 0, NULL, 0);
	regfree(&regex);
	return found;
}

/* One line, in the name of the function, with a reason that matches the pattern. */
static void listen_end(const char *call, const char *reason, int line)
{
	char text[4096], name[64], head[128];
	size_t n = strcspn(call, "( ");

	dup2(capture.saved, STDERR_FILENO);
	close(capture.saved);
	rewind(capture.file);
	text[fread(text, 1, sizeof(text) - 1, capture.file)] = 0;
	fclose(capture.file);
	assert_true(n < sizeof(name));
	snprintf(name, sizeof(name), "%.*s", (int)n, call);
	cover(name);
	snprintf(head, sizeof(head), "^%s [0-9]+ - [^\n]+\n$", name);
	if (!matches(text, head) || !matches(text, reason) || strstr(text, "did not say why"))
		fail_msg("line %d, %s: '%s' is not one line of %s with '%s'", line, call, text,
			 name, reason);
}

#define EXPECT(call, result, reason)                               \
	do {                                                       \
		bool right = listen_begin() && (call) == (result); \
		listen_end(#call, reason, __LINE__);               \
		assert_true(right);                                \
	} while (0)
#define REFUSED(call, reason)    EXPECT(call, FLEXIO_STATUS_FAILED, reason)
#define NO_NUMBER(call, reason)  EXPECT(call, UINT32_MAX, reason)
#define NO_POINTER(call, reason) EXPECT(call, NULL, reason)

/* What every function says of handles: none, and one that is not alive. */
#define BAD(type) ((struct type *)junk)

/* ---- apps and functions ---- */

static void stub(void)
{
}

static void pack(void *argbuf, va_list ap)
{
}

static void test_apps(void **state)
{
	struct flexio_app *app = NULL, **list = NULL;
	struct flexio_app_attr attr = { .app_name = "again" };
	struct flexio_app_select_attr select = { .app_name = "nobody" };
	struct flexio_process *own = bed_process();
	char text[64] = "no ELF file at all, but long enough for a header of one";
	uint64_t word = 0;
	uint32_t n;

	REFUSED(flexio_app_create(NULL, &app), "fattr is NULL");
	REFUSED(flexio_app_create(&attr, NULL), "app is NULL");
	REFUSED(flexio_app_create(&attr, &app), "again: no ELF file \\(app_ptr .*, app_bsize 0\\)");
	attr.app_ptr = text;
	attr.app_bsize = sizeof(text);
	REFUSED(flexio_app_create(&attr, &app), "again: .*ELF");
	attr.app_name = long_name;
	REFUSED(flexio_app_create(&attr, &app), "app_name must have 1 to 256 bytes");
	REFUSED(flexio_app_destroy(NULL), "the app is NULL");
	REFUSED(flexio_app_destroy(BAD(flexio_app)), "is no app, or not any more");
	REFUSED(flexio_app_destroy(bed_app), "bare is in use by [0-9]+ processes");
	REFUSED(flexio_app_get(NULL, &app), "fattr is NULL");
	REFUSED(flexio_app_get(&select, NULL), "app is NULL");
	REFUSED(flexio_app_get(&select, &app), "no app is called nobody");
	select.app_name = "";
	REFUSED(flexio_app_get(&select, &app), "1 to 256 bytes");
	REFUSED(flexio_app_hw_model_register(NULL, FLEXIO_HW_MODEL_BF3), "the app is NULL");
	REFUSED(flexio_app_hw_model_register(bed_app, (enum flexio_hw_model_id)9),
		"bare: 9 is not a hardware model; allowed: 1 to 4");
	assert_ok(flexio_app_hw_model_register(bed_app, FLEXIO_HW_MODEL_BF3));
	REFUSED(flexio_app_hw_model_register(bed_app, FLEXIO_HW_MODEL_CX7),
		"bare was registered for BlueField-3 .*ConnectX-7");
	select = (struct flexio_app_select_attr){ "bare", FLEXIO_HW_MODEL_CX7, NULL };
	REFUSED(flexio_app_get(&select, &app), "bare is there for .*BlueField-3 .*-mcpu");
	REFUSED(flexio_app_get_list(NULL, &n), "app_list is NULL");
	REFUSED(flexio_app_get_list(&list, NULL), "num_apps is NULL");
	REFUSED(flexio_app_list_free(NULL), "the list of apps is NULL");
	REFUSED(flexio_app_list_free((struct flexio_app **)junk), "is no list of apps");
	NO_POINTER(flexio_app_get_name(NULL), "the app is NULL");
	EXPECT(flexio_app_get_elf_size(NULL), 0, "the app is NULL");
	REFUSED(flexio_app_get_elf(NULL, &word, 8), "the app is NULL");
	REFUSED(flexio_app_get_elf(bed_app, NULL, SIZE_MAX), "bin_buff is NULL");
	REFUSED(flexio_app_get_elf(bed_app, &word, 8), "bare has [0-9]+ bytes; the buffer has 8 ");
	assert_null(app);
	bed_process_end(own);
}

static void test_functions(void **state)
{
	flexio_func_t *func;
	char name[4];

	REFUSED(flexio_func_register(NULL, "x", &func), "the app is NULL");
	REFUSED(flexio_func_register(bed_app, "x", NULL), "bare: out_func is NULL");
	REFUSED(flexio_func_register(bed_app, long_name, &func), "bare: dev_func_name must have");
	REFUSED(flexio_func_register(bed_app, "nothing", &func),
		"bare has no device function nothing");
	REFUSED(flexio_func_pup_register(NULL, "a", "b", stub, 8, pack), "the app is NULL");
	REFUSED(flexio_func_pup_register(bed_app, "", "b", stub, 8, pack), "dev_func_name must");
	REFUSED(flexio_func_pup_register(bed_app, "a", "", stub, 8, pack), "dev_unpack_func_name");
	REFUSED(flexio_func_pup_register(bed_app, "many", "b", NULL, 8, pack),
		"many: host_stub_func_addr is NULL");
	REFUSED(flexio_func_pup_register(bed_app, "many", "b", stub, 8, NULL),
		"many: host_pack_func is NULL");
	REFUSED(flexio_func_pup_register(bed_app, "many", "b", stub, 5000, pack),
		"many: arguments of 5000 bytes; the most is 4096");
	REFUSED(flexio_func_pup_register(bed_app, "none", "b", stub, 8, pack),
		"no .*function none");
	REFUSED(flexio_func_pup_register(bed_app, "many", "b", stub, 8, pack), "no .*function b");
	assert_ok(flexio_func_pup_register(bed_app, "many", "unpack_many", stub, 8, pack));
	REFUSED(flexio_func_pup_register(bed_app, "many", "unpack_many", stub, 8, pack),
		"many: the stub at .* is registered already");
	REFUSED(flexio_func_get_register_info(NULL, stub, NULL, NULL, NULL, 0, NULL, NULL, NULL,
					      NULL),
		"the app is NULL");
	REFUSED(flexio_func_get_register_info(bed_app, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL,
					      NULL),
		"bare: the host function is NULL");
	REFUSED(flexio_func_get_register_info(bed_app, (flexio_func_t *)test_functions, NULL, NULL,
					      NULL, 0, NULL, NULL, NULL, NULL),
		"is not a function of bare");
	REFUSED(flexio_func_get_register_info(bed_app, stub, NULL, name, NULL, 4, NULL, NULL, NULL,
					      NULL),
		"many: func_name_size is 4; names take up to 257");
}

/* Nobody reads standard error any more: the line is lost, and the program goes on. */
static void test_no_reader(void **state)
{
	int saved = dup(STDERR_FILENO), ends[2];
	enum flexio_log_lvl level;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	level = flexio_log_lvl_set((enum flexio_log_lvl)17);
	dup2(saved, STDERR_FILENO);
	close(saved);
	assert_int_equal(level, FLEXIO_LOG_LVL_ERR);
}

static void test_library(void **state)
{
	REFUSED(flexio_version_set(FLEXIO_CURRENT_VERSION + 1), "is newer than");
	assert_ok(flexio_version_set(FLEXIO_CURRENT_VERSION));
	REFUSED(flexio_version_set(0), "was set before; 0x0 is another one");
	EXPECT(flexio_log_lvl_set((enum flexio_log_lvl)17), FLEXIO_LOG_LVL_ERR,
	       "17 is not a log level; allowed: 0 to 3");
	EXPECT(flexio_hw_model_id_get(NULL), FLEXIO_HW_MODEL_NA, "ibv_ctx is NULL");
}

/* ---- processes ---- */

static void test_processes(void **state)
{
	struct flexio_process_attr attr = { .name = long_name };
	struct ibv_context *again = ibv_open_device(bed_ctx->device);
	struct flexio_heap_mem_info info;
	struct flexio_process *p = NULL;
	struct flexio_outbox_attr outbox_attr = { 0 };
	struct flexio_outbox *outbox;
	struct flexio_cq_attr cq_attr = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ,
					  .cq_ring_qmem.memtype = FLEXIO_MEMTYPE_HOST };
	struct flexio_cq *cq;

	REFUSED(flexio_process_create(NULL, bed_app, NULL, &p), "ibv_ctx is NULL");
	REFUSED(flexio_process_create(bed_ctx, bed_app, NULL, NULL), "process_ptr is NULL");
	REFUSED(flexio_process_create(bed_ctx, NULL, NULL, &p), "the app is NULL");
	REFUSED(flexio_process_create(bed_ctx, bed_app, &attr, &p), "the name has more than 256");
	REFUSED(flexio_process_create(mlx4_ctx, bed_app, NULL, &p), "mlx4_0 has no accelerator");
	attr = (struct flexio_process_attr){ .pd = ibv_alloc_pd(again) };
	REFUSED(flexio_process_create(bed_ctx, bed_app, &attr, &p),
		"protection domain is of another context of mlx5_0");
	assert_int_equal(ibv_dealloc_pd(attr.pd), 0);
	assert_int_equal(ibv_close_device(again), 0);
	assert_null(p);
	REFUSED(flexio_process_destroy(BAD(flexio_process)), "is no process, or not any more");
	attr = (struct flexio_process_attr){ .name = "mine" };
	assert_ok(flexio_process_create(bed_ctx, bed_app, &attr, &p));
	assert_ok(flexio_outbox_create(p, &outbox_attr, &outbox));
	REFUSED(flexio_process_destroy(p), "mine still has 0 event handlers, .* 1 queues, UARs or");
	assert_ok(flexio_outbox_destroy(outbox));
	cq_attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	cq_attr.cq_ring_qmem.umem_id = flexio_process_get_dumem_id(p);
	cq_attr.cq_ring_qmem.humem_offset = bed_alloc(p, 64);
	cq_attr.cq_dbr_daddr = bed_alloc(process, 8);
	assert_ok(flexio_cq_create(process, NULL, &cq_attr, &cq));
	REFUSED(flexio_process_destroy(p),
		"queues of other processes lie in the memory of .* mine");
	assert_ok(flexio_cq_destroy(cq));
	REFUSED(flexio_process_mem_info_get(NULL, &info), "the process is NULL");
	REFUSED(flexio_process_mem_info_get(p, NULL), "info is NULL");
	assert_ok(flexio_process_destroy(p));
	NO_POINTER(flexio_process_get_pd(p), "is no process, or not any more");
	NO_POINTER(flexio_process_get_uar(NULL), "the process is NULL");
	NO_NUMBER(flexio_process_get_dumem_id(NULL), "the process is NULL");
	EXPECT(flexio_process_udbg_token_get(NULL), 0, "the process is NULL");
	EXPECT(flexio_err_handler_fd(NULL), -1, "the process is NULL");
	EXPECT(flexio_err_status_get(p), -1, "is no process");
}

static void test_settings(void **state)
{
	struct flexio_process *p = NULL;

	setenv("VERBATIM_RPC_TIMEOUT_MS", "soon", 1);
	REFUSED(flexio_process_create(other_ctx, bed_app, NULL, &p),
		"VERBATIM_RPC_TIMEOUT_MS=soon is not a time; allowed: 1 to 3600000");
	setenv("VERBATIM_RPC_TIMEOUT_MS", "50", 1);
	assert_ok(flexio_process_create(other_ctx, bed_app, NULL, &p));
	unsetenv("VERBATIM_RPC_TIMEOUT_MS");
	EXPECT(flexio_process_call(p, bed_func("forever"), NULL, UINT64_C(0)),
	       FLEXIO_STATUS_TIMEOUT, "PROCESS_.*: forever took longer than 50 ms .*rpc_timeout");
	assert_ok(flexio_process_destroy(p));
}

static void test_calls(void **state)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	struct flexio_process *p = bed_process();
	struct flexio_event_handler *h, *g = NULL;
	uint64_t result;

	REFUSED(flexio_process_call(NULL, bed_func("add_one"), &result, UINT64_C(1)),
		"the process is NULL");
	REFUSED(flexio_process_call(p, NULL, &result, UINT64_C(1)), "the host function is NULL");
	REFUSED(flexio_process_call(p, (flexio_func_t *)test_calls, &result, UINT64_C(1)),
		"is not a function of bare");
	assert_ok(flexio_event_handler_create(p, &attr, &h));
	EXPECT(flexio_process_call(p, bed_func("fault"), &result, UINT64_C(5)),
	       FLEXIO_STATUS_FATAL_ERR,
	       "Fatal error \\(0x6\\) in device thread [0-9]+ of process .*load-access-fault");
	EXPECT(flexio_process_call(p, bed_func("add_one"), &result, UINT64_C(1)),
	       FLEXIO_STATUS_FATAL_ERR, "has ended, with status 0x6: load-access-fault");
	EXPECT(flexio_event_handler_create(p, &attr, &g), FLEXIO_STATUS_FATAL_ERR,
	       "has ended, with status 0x6");
	EXPECT(flexio_event_handler_run(h, 0), FLEXIO_STATUS_FATAL_ERR, "has ended, with status");
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(p);
}

/* A function's name is the file's: it makes no line of its own, and no terminal obeys it. */
static void test_hostile_name(void **state)
{
	struct flexio_app_attr attr = { .app_name = "hostile" };
	struct flexio_process *p;
	flexio_func_t *func;
	struct flexio_app *app;
	unsigned int renamed = 0;
	uint64_t result;
	char *elf = attr.app_ptr = bed_elf(&attr.app_bsize);

	for (size_t i = 0; i + 7 <= attr.app_bsize; i++)
		if (!memcmp(elf + i, "\0fault", 7)) {
			memcpy(elf + i, "\0f\n\033lt", 7);
			renamed++;
		}
	assert_true(renamed);
	assert_ok(flexio_app_create(&attr, &app));
	assert_ok(flexio_process_create(bed_ctx, app, NULL, &p));
	assert_ok(flexio_func_register(app, "f\n\033lt", &func));
	EXPECT(flexio_process_call(p, func, &result, UINT64_C(5)), FLEXIO_STATUS_FATAL_ERR,
	       "\\(f\\\\x0a\\\\x1blt\\+0x");
	assert_ok(flexio_process_destroy(p));
	assert_ok(flexio_app_destroy(app));
	free(elf);
}

static void test_event_handlers(void **state)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	struct flexio_event_handler *h = NULL;

	REFUSED(flexio_event_handler_create(NULL, &attr, &h), "the process is NULL");
	REFUSED(flexio_event_handler_create(process, NULL, &h), "fattr is NULL");
	REFUSED(flexio_event_handler_create(process, &attr, NULL), "event_handler_ptr is NULL");
	attr.name = long_name;
	REFUSED(flexio_event_handler_create(process, &attr, &h), "the name has more than 256");
	attr.name = NULL;
	attr.affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 16 };
	REFUSED(flexio_event_handler_create(process, &attr, &h),
		"EU 16 does not exist; mlx5_0 has EUs 0 to 15 \\(dpa_eus of the configuration\\)");
	attr.affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 2 };
	REFUSED(flexio_event_handler_create(process, &attr, &h),
		"EU group 2 of mlx5_0: there is no such group");
	attr.affinity = (struct flexio_affinity){ (enum flexio_affinity_type)3, 0 };
	REFUSED(flexio_event_handler_create(process, &attr, &h), "3 is not a type of affinity");
	attr.affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_NONE, 0 };
	attr.host_stub_func = NULL;
	REFUSED(flexio_event_handler_create(process, &attr, &h), "the host function is NULL");
	attr.host_stub_func = bed_func("handler");
	assert_null(h);
	assert_ok(flexio_event_handler_create(process, &attr, &h));
	assert_ok(flexio_event_handler_run(h, 0));
	REFUSED(flexio_event_handler_run(h, 0), "event handler [0-9]+ was run before");
	assert_ok(flexio_event_handler_destroy(h));
	REFUSED(flexio_event_handler_run(h, 0), "is no event handler, or not any more");
	REFUSED(flexio_event_handler_destroy(NULL), "the event handler is NULL");
	NO_NUMBER(flexio_event_handler_get_id(NULL), "the event handler is NULL");
	NO_NUMBER(flexio_event_handler_get_obj_id(NULL), "the event handler is NULL");
	NO_NUMBER(flexio_event_handler_get_activation_id(NULL), "the event handler is NULL");
	NO_POINTER(flexio_event_handler_get_thread(NULL), "the event handler is NULL");
	NO_POINTER(flexio_event_handler_get_thread_obj(NULL), "the event handler is NULL");
}

/* ---- memory ---- */

static void test_heap(void **state)
{
	flexio_uintptr_t a = 0;

	REFUSED(flexio_buf_dev_alloc(NULL, 8, &a), "the process is NULL");
	REFUSED(flexio_buf_dev_alloc(process, 8, NULL), "dest_daddr_p is NULL");
	REFUSED(flexio_buf_dev_alloc(process, 0, &a), "buff_bsize is 0");
	REFUSED(flexio_buf_dev_alloc(process, 1UL << 40, &a),
		"no room for 1099511627776 bytes on the device heap, of whose 25165824 bytes [0-9]+ "
		"are in use \\(dpa_heap of the configuration, 24 MiB\\)");
	REFUSED(flexio_buf_dev_memalign(process, 96, 8, &a), "alignment of 96 is not a power");
	REFUSED(flexio_recoverable_buf_dev_alloc(NULL, 8, 1, &a), "the process is NULL");
	REFUSED(flexio_recoverable_buf_dev_alloc(process, 8, 1, NULL), "dest_daddr_p is NULL");
	REFUSED(flexio_recoverable_buf_dev_alloc(process, 0, 1, &a), "of 0 bytes");
	REFUSED(flexio_recoverable_buf_dev_alloc(process, 8, 1, &a), "has key 0x1");
	REFUSED(flexio_buf_dev_free(NULL, 8), "the process is NULL");
	REFUSED(flexio_buf_dev_free(process, 8), "no buffer of the device heap begins at 0x8");
}

static void test_copies(void **state)
{
	/* Made here, behind cmocka's own handlers of faults: where these cannot be seen (TSan) ours come first again. */
	struct flexio_process *own = bed_process();
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct flexio_mem host = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)pages };
	struct flexio_mem dev = { .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = bed_alloc(own, 8192) };
	struct flexio_mem odd = { .mem_type = (enum flexio_memtype)5 };
	struct flexio_heap_mem_info heap;
	char pattern[80];
	flexio_uintptr_t out;

	munmap(pages + 4096, 4096);
	REFUSED(flexio_buf_dev_memset(NULL, 0, 8, dev.daddr), "the process is NULL");
	REFUSED(flexio_buf_dev_memset(own, 0, 0, dev.daddr), "buff_bsize is 0");
	REFUSED(flexio_buf_dev_memset(own, 0, 8, 16),
		"8 bytes at device address 0x10 are not all writable memory");
	assert_ok(flexio_process_mem_info_get(own, &heap));
	REFUSED(flexio_buf_dev_memset(own, 0, 128, heap.base_addr + heap.size - 64),
		"128 bytes at device address 0x.* are partly outside of the device heap, which is");
	REFUSED(flexio_host2dev_memcpy(NULL, pages, 8, dev.daddr), "the process is NULL");
	REFUSED(flexio_host2dev_memcpy(own, NULL, 8, dev.daddr), "the host address is NULL");
	REFUSED(flexio_host2dev_memcpy(own, pages, 8, 16), "device address 0x10 are not all");
	snprintf(pattern, sizeof(pattern), "8192 bytes at host address %p cannot all be read",
		 (void *)pages);
	REFUSED(flexio_host2dev_memcpy(own, pages, 8192, dev.daddr), pattern);
	REFUSED(flexio_copy_from_host(own, pages, 8192, &out), pattern);
	REFUSED(flexio_memcpy(own, &dev, &host, 8192), pattern);
	snprintf(pattern, sizeof(pattern), "8192 bytes at host address %p cannot all be written",
		 (void *)pages);
	REFUSED(flexio_memcpy(own, &host, &dev, 8192), pattern);
	REFUSED(flexio_copy_from_host(own, NULL, 8, &out), "src_haddr is NULL");
	REFUSED(flexio_copy_from_host(own, pages, 8, NULL), "dest_daddr_p is NULL");
	REFUSED(flexio_copy_from_host(own, pages, 0, &out), "buff_bsize is 0");
	REFUSED(flexio_copy_from_host(NULL, pages, 8, &out), "the process is NULL");
	REFUSED(flexio_memcpy(NULL, &dev, &host, 8), "the process is NULL");
	REFUSED(flexio_memcpy(own, NULL, &host, 8), "dest is NULL");
	REFUSED(flexio_memcpy(own, &dev, NULL, 8), "src is NULL");
	REFUSED(flexio_memcpy(own, &dev, &host, 0), "buff_bsize is 0");
	REFUSED(flexio_memcpy(own, &dev, &odd, 8), "5 is not a type of memory");
	munmap(pages, 4096);
	bed_process_end(own);
}

static void test_mkeys(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(other_ctx);
	struct flexio_mkey_attr attr = { .daddr = bed_alloc(process, 64), .len = 64 };
	struct flexio_mkey *mkey = NULL, *all[3];

	REFUSED(flexio_device_mkey_create(NULL, &attr, &mkey), "the process is NULL");
	REFUSED(flexio_device_mkey_create(process, NULL, &mkey), "fattr is NULL");
	REFUSED(flexio_device_mkey_create(process, &attr, NULL), "mkey is NULL");
	attr.pd = pd;
	REFUSED(flexio_device_mkey_create(process, &attr, &mkey),
		"protection domain is of mlx5_1, process .* of mlx5_0");
	attr.pd = NULL;
	attr.access = 1 << 30;
	REFUSED(flexio_device_mkey_create(process, &attr, &mkey),
		"access 0x40000000 has bits that");
	attr.access = 0;
	attr.daddr = 16;
	REFUSED(flexio_device_mkey_create(process, &attr, &mkey),
		"64 bytes at device address 0x10");
	attr.daddr = bed_alloc(process, 64);
	for (unsigned int i = 0; i < 3; i++)
		assert_ok(flexio_device_mkey_create(process, &attr, &all[i]));
	REFUSED(flexio_device_mkey_create(process, &attr, &mkey),
		"no key for 64 bytes at .*: the adapter has no more than 3 .*max_mr");
	for (unsigned int i = 0; i < 3; i++)
		assert_ok(flexio_device_mkey_destroy(all[i]));
	REFUSED(flexio_device_mkey_destroy(BAD(flexio_mkey)), "is no mkey, or not any more");
	NO_NUMBER(flexio_mkey_get_id(NULL), "the mkey is NULL");
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* ---- streams ---- */

static void test_streams(void **state)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096, .level = FLEXIO_MSG_DEV_INFO }, bad;
	struct flexio_msg_stream *stream = NULL, *second = NULL;
	FILE *out = fopen("/dev/null", "w");

	REFUSED(flexio_log_dev_flush(process), "process .* has no default stream");
	REFUSED(flexio_log_dev_destroy(process), "process .* has no default stream");
	REFUSED(flexio_log_dev_flush(NULL), "the process is NULL");
	REFUSED(flexio_msg_stream_create(NULL, &attr, out, NULL, &stream), "the process is NULL");
	REFUSED(flexio_msg_stream_create(process, NULL, out, NULL, &stream),
		"stream_fattr is NULL");
	REFUSED(flexio_msg_stream_create(process, &attr, NULL, NULL, &stream), "out is NULL");
	REFUSED(flexio_msg_stream_create(process, &attr, out, NULL, NULL), "stream is NULL");
	bad = attr;
	bad.data_bsize = 1UL << 31;
	REFUSED(flexio_msg_stream_create(process, &bad, out, NULL, &stream),
		"data_bsize is 2147483648; it must be a power of two from 2048 to 1073741824");
	bad = attr;
	bad.sync_mode = (flexio_msg_dev_sync_mode)9;
	REFUSED(flexio_msg_stream_create(process, &bad, out, NULL, &stream),
		"9 is not a sync_mode");
	bad.sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_TRACER;
	REFUSED(flexio_msg_stream_create(process, &bad, out, NULL, &stream),
		"tracer_msg_formats is NULL");
	bad = attr;
	bad.level = FLEXIO_MSG_DEV_ALWAYS_PRINT;
	REFUSED(flexio_msg_stream_create(process, &bad, out, NULL, &stream), "1 is not the level");
	bad = attr;
	bad.stream_name = long_name;
	REFUSED(flexio_msg_stream_create(process, &bad, out, NULL, &stream),
		"stream_name has more");
	bad = attr;
	bad.mgmt_affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 99 };
	REFUSED(flexio_log_dev_init(process, &bad, out, NULL), "EU 99 does not exist");
	assert_ok(flexio_log_dev_init(process, &attr, out, NULL));
	REFUSED(flexio_log_dev_init(process, &attr, out, NULL), "has a default stream");
	assert_ok(flexio_msg_stream_create(process, &attr, out, NULL, &second));
	REFUSED(flexio_msg_stream_level_set(second, 1), "1 is not the level of a stream; allowed");
	REFUSED(flexio_msg_stream_level_set(NULL, 4), "the message stream is NULL");
	assert_ok(flexio_msg_stream_destroy(second));
	assert_ok(flexio_log_dev_destroy(process));
	assert_ok(flexio_msg_stream_create(process, &attr, out, NULL, &stream));
	REFUSED(flexio_msg_stream_level_set(stream, 4), "of the default stream cannot be changed");
	for (unsigned int i = 1; i < FLEXIO_MSG_DEV_MAX_STREAMS_AMOUNT; i++) {
		attr.sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_ASYNC;
		assert_ok(flexio_msg_stream_create(process, &attr, out, NULL, &second));
	}
	REFUSED(flexio_msg_stream_create(process, &attr, out, NULL, &second), "all 255 streams");
	assert_ok(flexio_msg_stream_destroy(stream));
	REFUSED(flexio_msg_stream_destroy(stream), "is no message stream, or not any more");
	REFUSED(flexio_msg_stream_flush(NULL), "the message stream is NULL");
	EXPECT(flexio_msg_stream_get_id(NULL), -1, "the message stream is NULL");
}

/* ---- doorbells and windows ---- */

static void test_uars(void **state)
{
	struct flexio_uar *u = flexio_process_get_uar(process), *own = NULL, *far = NULL;

	REFUSED(flexio_uar_create(NULL, &own), "the process is NULL");
	REFUSED(flexio_uar_create(process, NULL), "flexio_uar is NULL");
	assert_ok(flexio_uar_create(process, &own));
	REFUSED(flexio_uar_extend(NULL, other_ctx, &far), "the UAR is NULL");
	REFUSED(flexio_uar_extend(own, NULL, &far), "to_extend is NULL");
	REFUSED(flexio_uar_extend(own, other_ctx, NULL), "extended is NULL");
	REFUSED(flexio_uar_extend(own, mlx4_ctx, &far), "mlx4_0 is no adapter of the format mlx5");
	REFUSED(flexio_uar_extend(own, bed_ctx, &far), "UAR [0-9]+ is of mlx5_0 itself");
	assert_ok(flexio_uar_extend(own, other_ctx, &far));
	REFUSED(flexio_uar_extend(far, bed_ctx, &u), "UAR [0-9]+ is an extension");
	REFUSED(flexio_uar_extend(own, other_ctx, &u),
		"is extended to mlx5_1 already, as UAR [0-9]+");
	REFUSED(flexio_uar_destroy(own), "queues or extensions still use UAR [0-9]+");
	assert_ok(flexio_uar_destroy(far));
	assert_ok(flexio_uar_destroy(own));
	REFUSED(flexio_uar_destroy(own), "is no UAR, or not any more");
	REFUSED(flexio_uar_destroy(flexio_process_get_uar(process)),
		"UAR [0-9]+ is process .*'s own");
	NO_NUMBER(flexio_uar_get_id(NULL), "the UAR is NULL");
	NO_NUMBER(flexio_uar_get_extended_id(NULL), "the UAR is NULL");
	NO_NUMBER(flexio_uar_get_extended_id(flexio_process_get_uar(process)), "is no extension");
}

static void test_outboxes_and_windows(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(other_ctx);
	struct flexio_outbox_attr attr = { 0 };
	struct flexio_outbox *outbox[256];
	struct flexio_window *window = NULL;
	unsigned int n = 0;

	REFUSED(flexio_outbox_create(NULL, &attr, &outbox[0]), "the process is NULL");
	REFUSED(flexio_outbox_create(process, NULL, &outbox[0]), "fattr is NULL");
	REFUSED(flexio_outbox_create(process, &attr, NULL), "outbox is NULL");
	attr.en_pcc = 1;
	REFUSED(flexio_outbox_create(process, &attr, &outbox[0]),
		"en_pcc: process .* was created without it");
	attr.en_pcc = 0;
	for (; n < 255; n++)
		assert_ok(flexio_outbox_create(process, &attr, &outbox[n]));
	REFUSED(flexio_outbox_create(process, &attr, &outbox[255]), "has 256 outboxes");
	while (n--)
		assert_ok(flexio_outbox_destroy(outbox[n]));
	REFUSED(flexio_outbox_destroy(outbox[0]), "is no outbox, or not any more");
	NO_NUMBER(flexio_outbox_get_id(NULL), "the outbox is NULL");
	NO_POINTER(flexio_outbox_get_uar(NULL), "the outbox is NULL");
	REFUSED(flexio_window_create(NULL, pd, &window), "the process is NULL");
	REFUSED(flexio_window_create(process, NULL, &window), "pd is NULL");
	REFUSED(flexio_window_create(process, pd, NULL), "window is NULL");
	REFUSED(flexio_window_create(process, pd, &window), "protection domain is of mlx5_1");
	REFUSED(flexio_window_destroy(NULL), "the window is NULL");
	NO_NUMBER(flexio_window_get_id(BAD(flexio_window)), "is no window");
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void test_cmdqs(void **state)
{
	struct flexio_cmdq_attr attr = { 0 };
	struct flexio_cmdq *cmdq;

	REFUSED(flexio_cmdq_create(NULL, &attr, &cmdq), "the process is NULL");
	REFUSED(flexio_cmdq_create(process, NULL, &cmdq), "fattr is NULL");
	REFUSED(flexio_cmdq_create(process, &attr, NULL), "cmdq is NULL");
	REFUSED(flexio_cmdq_create(process, &attr, &cmdq), "0 workers; there can be 1 to 16384");
	attr.workers = 16384;
	REFUSED(flexio_cmdq_create(process, &attr, &cmdq), "a batch_size of 0");
	attr.batch_size = 1;
	attr.state = (enum flexio_cmdq_state)2;
	REFUSED(flexio_cmdq_create(process, &attr, &cmdq), "2 is not a state");
	attr.state = FLEXIO_CMDQ_STATE_PENDING;
	REFUSED(flexio_cmdq_create(process, &attr, &cmdq),
		"no device thread for worker [0-9]+ of 16384: memory is full");
	attr.workers = 1;
	assert_ok(flexio_cmdq_create(process, &attr, &cmdq));
	REFUSED(flexio_cmdq_task_add(cmdq, NULL, 0), "function|NULL");
	REFUSED(flexio_cmdq_task_add(cmdq, (flexio_func_t *)test_cmdqs, 0), "function");
	assert_ok(flexio_cmdq_destroy(cmdq));
	REFUSED(flexio_cmdq_destroy(cmdq), "is no command queue, or not any more");
	REFUSED(flexio_cmdq_destroy(NULL), "the command queue is NULL");
	REFUSED(flexio_cmdq_task_add(NULL, stub, 0), "the command queue is NULL");
	REFUSED(flexio_cmdq_state_running(NULL), "the command queue is NULL");
	EXPECT(flexio_cmdq_is_empty(NULL), 1, "the command queue is NULL");
}

static void test_later(void **state)
{
	static char name[5000];

	REFUSED(flexio_coredump_create(NULL, "x"), "the process is NULL");
	REFUSED(flexio_coredump_create(process, "/nowhere/x"),
		"no file /nowhere/x.[0-9]+.core: No such file or directory");
	REFUSED(flexio_coredump_create(process, "nowhere/x"),
		"no file /tmp/nowhere/x.[0-9]+.core: No such file or directory");
	memset(name, 'n', sizeof(name) - 1);
	REFUSED(flexio_coredump_create(process, name), "no file /tmp/n+: File name too long");
	REFUSED(flexio_crash_data(NULL, "x"), "the process is NULL");
	REFUSED(flexio_crash_data(process, "x"), "has not crashed");
}

static void test_error_handler(void **state)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	struct flexio_event_handler *h;
	flexio_func_t *func = bed_func("add_one");

	REFUSED(flexio_process_error_handler_set(NULL, func), "the process is NULL");
	REFUSED(flexio_process_error_handler_set(process, NULL), "function|NULL");
	assert_ok(flexio_event_handler_create(process, &attr, &h));
	REFUSED(flexio_process_error_handler_set(process, func),
		"has had event handlers or command queues; set the error handler before");
	assert_ok(flexio_event_handler_destroy(h));
}

/* ---- queues ---- */

static uint32_t uar_id(void)
{
	return flexio_uar_get_id(flexio_process_get_uar(process));
}

static struct flexio_cq_attr cq_attr(void)
{
	return (struct flexio_cq_attr){
		.element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ,
		.uar_id = uar_id(),
		.cq_ring_qmem.daddr = bed_alloc(process, 64),
		.cq_dbr_daddr = bed_alloc(process, 8),
	};
}

static struct flexio_cq *make_cq(void)
{
	struct flexio_cq_attr attr = cq_attr();
	struct flexio_cq *cq = NULL;

	assert_ok(flexio_cq_create(process, NULL, &attr, &cq));
	return cq;
}

/* With one attribute changed. */
#define REFUSED_WITH(attr, change, call, reason) \
	do {                                     \
		typeof(attr) a = attr;           \
		change;                          \
		REFUSED(call, reason);           \
	} while (0)
#define CQ_WITH(change, reason) \
	REFUSED_WITH(attr, change, flexio_cq_create(process, NULL, &a, &cq), reason)

static void test_cqs(void **state)
{
	struct flexio_event_handler_attr handler_attr = { .host_stub_func = bed_func("handler") };
	struct flexio_cq_attr attr = cq_attr();
	struct flexio_event_handler *handler;
	struct flexio_cq *cq = NULL, *all[4];
	uint16_t value;

	REFUSED(flexio_cq_create(NULL, NULL, &attr, &cq), "the process is NULL");
	REFUSED(flexio_cq_create(process, NULL, NULL, &cq), "fattr is NULL");
	REFUSED(flexio_cq_create(process, NULL, &attr, NULL), "cq is NULL");
	REFUSED(flexio_cq_create(process, mlx4_ctx, &attr, &cq), "mlx4_0 has no queues of this");
	REFUSED(flexio_cq_create(process, other_ctx, &attr, &cq), "has no UAR [0-9]+ for mlx5_1");
	CQ_WITH(a.log_cq_depth = 23, "log_cq_depth is 23; allowed: 0 to 22");
	CQ_WITH(a.element_type = 5, "0x5 is not an element_type");
	CQ_WITH(a.cqe_comp_type = (enum flexio_cqe_comp_type)7, "7 is not a cqe_comp_type");
	CQ_WITH(a.cqe_comp_format = (enum flexio_cqe_comp_format)7, "7 is not a cqe_comp_format");
	CQ_WITH(a.cq_period_mode = (enum flexio_cq_period_mode)7, "7 is not a cq_period_mode");
	CQ_WITH(a.uar_id = 0, "process .* has no UAR 0 for mlx5_0");
	CQ_WITH(a.uar_base_addr = junk, "uar_base_addr: .* is not in a page [0-9]+ of the host");
	CQ_WITH(a.element_type = 0, "is not the thread of an event handler");
	CQ_WITH((a.element_type = 2, a.emulated_eqn = 77),
		"event queue 77 does not exist on mlx5_0");
	CQ_WITH((a.element_type = 9, a.emulated_eqn = 77),
		"emulated event queue 77 does not exist on mlx5_0");
	CQ_WITH(a.cq_ring_qmem.daddr = 16,
		"the CQ's ring: 64 bytes at device address 0x10 are not");
	CQ_WITH(a.cq_ring_qmem.daddr += 8, "the CQ's ring: the address is not a multiple of 64");
	CQ_WITH(a.cq_ring_qmem.memtype = (enum flexio_memtype)3, "ring: 3 is not a type of memory");
	CQ_WITH(a.cq_ring_qmem =
			((struct flexio_qmem){ .memtype = FLEXIO_MEMTYPE_HOST, .umem_id = 9999 }),
		"ring: 64 bytes at offset 0x0 are not in a umem 9999 of the device");
	CQ_WITH(a.cq_dbr_daddr = 16, "the CQ's doorbell record: 8 bytes at device address 0x10");
	assert_null(cq);
	for (unsigned int i = 0; i < 4; i++)
		all[i] = make_cq();
	REFUSED(flexio_cq_create(process, NULL, &attr, &cq),
		"mlx5_0 refuses the CQ: .*no more than 4 completion queues .*max_cq");
	for (unsigned int i = 0; i < 4; i++)
		assert_ok(flexio_cq_destroy(all[i]));
	REFUSED(flexio_cq_destroy(all[0]), "is no CQ, or not any more");
	assert_ok(flexio_event_handler_create(process, &handler_attr, &handler));
	attr.element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD;
	attr.thread = flexio_event_handler_get_thread(handler);
	assert_ok(flexio_cq_create(process, NULL, &attr, &cq));
	REFUSED(flexio_event_handler_destroy(handler), "CQs still use event handler [0-9]+");
	REFUSED(flexio_cq_modify_moderation(NULL, 1, 1, 0), "the CQ is NULL");
	REFUSED(flexio_cq_modify_moderation(cq, 1, 1, 5), "CQ 0x.*: 5 is not a period mode");
	REFUSED(flexio_cq_query_moderation(NULL, &value, &value, &value), "the CQ is NULL");
	REFUSED(flexio_cq_query_moderation(cq, NULL, &value, &value), "max_count is NULL");
	REFUSED(flexio_cq_query_moderation(cq, &value, NULL, &value), "period is NULL");
	REFUSED(flexio_cq_query_moderation(cq, &value, &value, NULL), "mode is NULL");
	NO_NUMBER(flexio_cq_get_cq_num(NULL), "the CQ is NULL");
	NO_POINTER(flexio_cq_get_obj(NULL), "the CQ is NULL");
	assert_ok(flexio_cq_destroy(cq));
	assert_ok(flexio_event_handler_destroy(handler));
}

#define NOT_HERE "is not supported; allowed: RC, UC and UD"
#define QP_WITH(change, reason) \
	REFUSED_WITH(attr, change, flexio_qp_create(process, NULL, &a, &qp), reason)

static void test_qps(void **state)
{
	struct ibv_context *again = ibv_open_device(bed_ctx->device);
	struct ibv_pd *pd = ibv_alloc_pd(again);
	struct flexio_cq *cq = make_cq();
	struct flexio_qp_attr attr = {
		.uar_id = uar_id(),
		.sq_cqn = flexio_cq_get_cq_num(cq),
		.rq_cqn = flexio_cq_get_cq_num(cq),
		.qp_wq_buff_qmem.daddr = bed_alloc(process, 128),
		.qp_wq_dbr_qmem.daddr = bed_alloc(process, 8),
	};
	struct flexio_qp *qp = NULL, *all[6];

	REFUSED(flexio_qp_create(NULL, NULL, &attr, &qp), "the process is NULL");
	REFUSED(flexio_qp_create(process, NULL, NULL, &qp), "qp_fattr is NULL");
	REFUSED(flexio_qp_create(process, NULL, &attr, NULL), "qp_ptr is NULL");
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_XRC, "transport_type XRC " NOT_HERE);
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_IBL2, "transport_type IBL2 " NOT_HERE);
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_DCI, "transport_type DCI " NOT_HERE);
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_QP0, "transport_type QP0 " NOT_HERE);
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_QP1, "transport_type QP1 " NOT_HERE);
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_RAW_DATAGRAM,
		"transport_type RAW_DATAGRAM " NOT_HERE);
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_REG_UMR, "transport_type REG_UMR " NOT_HERE);
	QP_WITH(a.transport_type = FLEXIO_QPC_ST_DC_CNAK, "transport_type DC_CNAK " NOT_HERE);
	QP_WITH(a.transport_type = (enum flexio_qp_transport_type)6,
		"6 is not a transport_type; allowed: RC, UC and UD");
	QP_WITH(a.log_sq_depth = 16, "log_sq_depth is 16; allowed: 0 to 15");
	QP_WITH(a.log_sq_depth = -1, "log_sq_depth is -1; allowed: 0 to 15");
	QP_WITH(a.log_rq_depth = 16, "log_rq_depth is 16; allowed: 0 to 15");
	QP_WITH(a.log_rq_depth = -1, "log_rq_depth is -1; allowed: 0 to 15");
	QP_WITH(a.rq_type = 2, "2 is not a rq_type");
	QP_WITH((a.rq_type = 3, a.no_sq = 1), "neither a send nor a receive queue");
	QP_WITH((a.rq_type = 1, a.rmpqn = 0x777), "process .* has no RMP 0x777 on mlx5_0");
	QP_WITH(a.user_index = 1 << 24, "user_index 0x1000000 has more than 24 bits");
	QP_WITH(a.qp_access_mask = 1 << 30, "qp_access_mask is 0x40000000; allowed: bits of 0xf");
	QP_WITH(a.qp_access_mask = IBV_ACCESS_MW_BIND, "qp_access_mask is 0x10; allowed: bits of");
	QP_WITH(a.sq_cqn = 0xfffff, "sq_cqn: CQ 0xfffff does not exist on mlx5_0");
	QP_WITH(a.rq_cqn = 0xfffff, "rq_cqn: CQ 0xfffff does not exist on mlx5_0");
	QP_WITH(a.uar_id = 0, "has no UAR 0 for mlx5_0");
	QP_WITH(a.pd = pd, "protection domain is of another context of mlx5_0 than the queue");
	QP_WITH(a.qp_wq_buff_qmem.daddr = 16, "the QP's buffer: 80 bytes at device address 0x10");
	QP_WITH(a.qp_wq_dbr_qmem.daddr = 16, "the QP's doorbell record: 8 bytes");
	assert_null(qp);
	for (unsigned int i = 0; i < 6; i++)
		assert_ok(flexio_qp_create(process, NULL, &attr, &all[i]));
	REFUSED(flexio_qp_create(process, NULL, &attr, &qp),
		"mlx5_0 refuses the QP: .*no more than 6 queue pairs .*max_qp");
	for (unsigned int i = 0; i < 6; i++)
		assert_ok(flexio_qp_destroy(all[i]));
	REFUSED(flexio_qp_destroy(all[0]), "is no QP, or not any more");
	NO_NUMBER(flexio_qp_get_qp_num(NULL), "the QP is NULL");
	EXPECT(flexio_qp_state_get(NULL), FLEXIO_QP_STATE_ERR, "the QP is NULL");
	assert_ok(flexio_cq_destroy(cq));
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(again), 0);
}

#define MODIFY_WITH(change, reason) \
	REFUSED_WITH(link, change, flexio_qp_modify(qp, &a, NULL), reason)

static void test_qp_states(void **state)
{
	struct flexio_cq *cq = make_cq();
	struct flexio_qp_attr attr = {
		.uar_id = uar_id(),
		.sq_cqn = flexio_cq_get_cq_num(cq),
		.rq_cqn = flexio_cq_get_cq_num(cq),
		.qp_wq_buff_qmem.daddr = bed_alloc(process, 128),
		.qp_wq_dbr_qmem.daddr = bed_alloc(process, 8),
	};
	struct flexio_qp_attr link = { .next_state = FLEXIO_QP_STATE_INIT,
				       .path_mtu = FLEXIO_QP_QPC_MTU_BYTES_1K };
	struct flexio_qp *qp;

	assert_ok(flexio_qp_create(process, NULL, &attr, &qp));
	REFUSED(flexio_cq_destroy(cq), "queues still use CQ 0x");
	REFUSED(flexio_qp_modify(NULL, &link, NULL), "the QP is NULL");
	REFUSED(flexio_qp_modify(qp, NULL, NULL), "fattr is NULL");
	MODIFY_WITH(a.next_state = (enum flexio_qp_state)9, "QP 0x.*: next_state 9 is not a state");
	MODIFY_WITH(a.next_state = FLEXIO_QP_STATE_RTS, "there is no way from RST to RTS");
	MODIFY_WITH(a.qp_access_mask = 1 << 30, "qp_access_mask is 0x40000000; allowed: bits of");
	MODIFY_WITH(a.log_rra_max = 9, "log_rra_max is 9, log_sra_max 0; allowed: up to 4");
	MODIFY_WITH(a.log_sra_max = 5, "log_rra_max is 0, log_sra_max 5; allowed: up to 4");
	MODIFY_WITH(a.retry_count = 9, "min_rnr_nak_timer is 0, retry_count 9; allowed: up to 31");
	MODIFY_WITH(a.min_rnr_nak_timer = 32, "min_rnr_nak_timer is 32, retry_count 0; allowed");
	MODIFY_WITH(a.min_rnr_nak_timer = 257, "min_rnr_nak_timer is 257, retry_count 0; allowed");
	MODIFY_WITH(a.vhca_port_num = 3, "vhca_port_num is 3; mlx5_0 has ports 1 to 1");
	assert_ok(flexio_qp_modify(qp, &link, NULL));
	link.next_state = FLEXIO_QP_STATE_RTR;
	MODIFY_WITH((void)a, "rgid_or_rip is 0; mlx5_0 is RoCE, where a GID is the address");
	MODIFY_WITH(a.rlid = 7, "rlid is 7 and rgid_or_rip 0; mlx5_0 is RoCE");
	memcpy(link.rgid_or_rip.raw, (uint8_t[]){ 0x20, 0x01, 0x0d, 0xb8 },
	       4); /* of no host here */
	MODIFY_WITH(a.gid_table_index = 200, "gid_table_index is 200; mlx5_0 has GIDs 0 to [0-9]+");
	MODIFY_WITH(
		a.path_mtu = FLEXIO_QP_QPC_MTU_BYTES_4K,
		"path_mtu is 5; .*to another host on mlx5_0 up to 2048 bytes \\(mtu of the configuration\\)");
	MODIFY_WITH(a.path_mtu = 0, "path_mtu is 0; allowed: 1");
	MODIFY_WITH(a.remote_qp_num = 1 << 24, "remote_qp_num is 0x1000000, .*24 bits");
	/* No wire, no limit. */
	link.path_mtu = FLEXIO_QP_QPC_MTU_BYTES_4K;
	link.fl = 1;
	assert_ok(flexio_qp_modify(qp, &link, NULL));
	assert_ok(flexio_qp_destroy(qp));
	assert_ok(flexio_cq_destroy(cq));
}

#define SQ_WITH(change, reason) \
	REFUSED_WITH(attr, change, flexio_sq_create(process, NULL, cqn, &a, &sq), reason)
#define RQ_WITH(change, reason) \
	REFUSED_WITH(attr, change, flexio_rq_create(process, NULL, cqn, &a, &rq), reason)

static void test_raw_queues(void **state)
{
	struct flexio_uar *far = NULL;
	struct flexio_cq *cq = make_cq();
	uint32_t cqn = flexio_cq_get_cq_num(cq);
	struct flexio_wq_attr attr = {
		.uar_id = uar_id(),
		.wq_ring_qmem.daddr = bed_alloc(process, 64),
		.wq_dbr_qmem.daddr = bed_alloc(process, 8),
	};
	struct flexio_sq *sq = NULL;
	struct flexio_rq *rq = NULL;

	REFUSED(flexio_sq_create(NULL, NULL, cqn, &attr, &sq), "the process is NULL");
	REFUSED(flexio_sq_create(process, NULL, cqn, NULL, &sq), "fattr is NULL");
	REFUSED(flexio_sq_create(process, NULL, cqn, &attr, NULL), "flexio_sq_ptr is NULL");
	REFUSED(flexio_sq_create(process, NULL, 0xfffff, &attr, &sq), "CQ 0xfffff does not exist");
	REFUSED(flexio_sq_create(process, mlx4_ctx, cqn, &attr, &sq), "mlx4_0 has no queues");
	SQ_WITH(a.log_wq_depth = 16, "log_wq_depth is 16; allowed: 0 to 15");
	SQ_WITH(a.log_wq_stride = 5, "log_wq_stride is 5; a send queue has 6");
	SQ_WITH(a.user_index = 1 << 24, "user_index 0x1000000");
	SQ_WITH(a.uar_id = 0, "has no UAR 0");
	SQ_WITH(a.sq.tis = BAD(flexio_sq_tis), "is not a TIS of mlx5_0");
	SQ_WITH(a.wq_ring_qmem.daddr = 16, "the SQ's ring: 64 bytes");
	SQ_WITH(a.wq_dbr_qmem.daddr = 16, "the SQ's doorbell record: 8 bytes");
	REFUSED(flexio_sq_create_cross_dev(NULL, other_ctx, cqn, &attr, &sq), "process is NULL");
	REFUSED(flexio_sq_create_cross_dev(process, bed_ctx, cqn, &attr, &sq),
		"ibv_ctx must be of another device than process .* on mlx5_0");
	REFUSED(flexio_sq_create_cross_dev(process, other_ctx, cqn, &attr, &sq),
		"has no UAR [0-9]+ for mlx5_1");
	REFUSED(flexio_sq_destroy(BAD(flexio_sq)), "is no SQ");
	NO_NUMBER(flexio_sq_get_wq_num(NULL), "the SQ is NULL");

	REFUSED(flexio_rq_create(NULL, NULL, cqn, &attr, &rq), "the process is NULL");
	REFUSED(flexio_rq_create(process, NULL, cqn, NULL, &rq), "fattr is NULL");
	REFUSED(flexio_rq_create(process, NULL, cqn, &attr, NULL), "flexio_rq_ptr is NULL");
	REFUSED(flexio_rq_create(process, NULL, 0xfffff, &attr, &rq), "CQ 0xfffff does not exist");
	RQ_WITH(a.rq.wq_type = (enum flexio_wq_type)4, "4 is not a wq_type");
	RQ_WITH(a.rq.end_pad_mode = (enum flexio_wq_end_pad_mode)4, "4 is not an end_pad_mode");
	RQ_WITH(a.log_wq_depth = 16, "log_wq_depth is 16, log_wq_stride 0; allowed: 0 to 15");
	RQ_WITH(a.rq.td = BAD(flexio_transport_domain), "is not a transport domain of mlx5_0");
	RQ_WITH(a.wq_ring_qmem.daddr = 16, "the receive ring: 16 bytes at device address 0x10");
	RQ_WITH(a.wq_dbr_qmem.daddr = 0, "doorbell record: 8 bytes at device address 0x0");
	REFUSED(flexio_rq_create_cross_dev(process, NULL, cqn, &attr, &rq), "ibv_ctx must be of");
	REFUSED(flexio_rq_create_cross_dev(process, bed_ctx, cqn, &attr, &rq),
		"ibv_ctx must be of another device than process .* on mlx5_0");
	REFUSED(flexio_rq_create_cross_dev(process, mlx4_ctx, cqn, &attr, &rq),
		"mlx4_0 has no queues of this kind");
	REFUSED(flexio_sq_create_cross_dev(process, mlx4_ctx, cqn, &attr, &sq),
		"mlx4_0 has no queues of this kind");
	assert_ok(flexio_uar_extend(flexio_process_get_uar(process), other_ctx, &far));
	REFUSED(flexio_rq_create_cross_dev(process, other_ctx, cqn, &attr, &rq),
		"the protection domain is of mlx5_0, the queue of mlx5_1");
	assert_ok(flexio_uar_destroy(far));
	REFUSED(flexio_rq_set_err_state(NULL), "the RQ is NULL");
	REFUSED(flexio_rq_destroy(BAD(flexio_rq)), "is no RQ");
	NO_NUMBER(flexio_rq_get_wq_num(NULL), "the RQ is NULL");
	NO_POINTER(flexio_rq_get_tir(NULL), "the RQ is NULL");
	NO_POINTER(flexio_rq_get_object(NULL), "the RQ is NULL");
	assert_true(!sq && !rq);
	assert_ok(flexio_cq_destroy(cq));
}

static void test_rmps(void **state)
{
	struct flexio_cq *cq = make_cq();
	struct flexio_wq_attr attr = {
		.rq.wq_type = FLEXIO_WQ_TYPE_CYCLIC,
		.wq_ring_qmem.daddr = bed_alloc(process, 64),
		.wq_dbr_qmem.daddr = bed_alloc(process, 8),
	};
	struct flexio_qp_attr qp_attr = {
		.uar_id = uar_id(),
		.no_sq = 1,
		.rq_cqn = flexio_cq_get_cq_num(cq),
		.rq_type = FLEXIO_QP_QPC_RQ_TYPE_SRQ_RMP_XRC_SRQ_XRQ,
		.qp_wq_dbr_qmem.daddr = bed_alloc(process, 8),
	};
	struct flexio_rmp *rmp = NULL, *second;
	struct flexio_qp *qp;

	REFUSED(flexio_rmp_create(NULL, NULL, &attr, &rmp), "the process is NULL");
	REFUSED(flexio_rmp_create(process, NULL, NULL, &rmp), "fattr is NULL");
	REFUSED(flexio_rmp_create(process, NULL, &attr, NULL), "flexio_rmp_ptr is NULL");
	REFUSED_WITH(attr, a.rq.wq_type = 0, flexio_rmp_create(process, NULL, &a, &rmp),
		     "log_wq_stride 0; allowed: .* and 5 to 10 \\(a linked list\\)");
	REFUSED_WITH(attr, a.wq_ring_qmem.daddr = 16, flexio_rmp_create(process, NULL, &a, &rmp),
		     "the receive ring: 16 bytes");
	assert_ok(flexio_rmp_create(process, NULL, &attr, &rmp));
	assert_ok(flexio_rmp_create(process, NULL, &attr, &second));
	REFUSED(flexio_rmp_create(process, NULL, &attr, &rmp),
		"mlx5_0 refuses the RMP: .*no more than 2 SRQs .*max_srq");
	qp_attr.rmpqn = flexio_rmp_get_wq_num(rmp);
	assert_ok(flexio_qp_create(process, NULL, &qp_attr, &qp));
	REFUSED(flexio_rmp_destroy(rmp), "QPs still use RMP 0x");
	assert_ok(flexio_qp_destroy(qp));
	assert_ok(flexio_rmp_destroy(second));
	assert_ok(flexio_rmp_destroy(rmp));
	REFUSED(flexio_rmp_destroy(rmp), "is no RMP, or not any more");
	NO_NUMBER(flexio_rmp_get_wq_num(NULL), "the RMP is NULL");
	assert_ok(flexio_cq_destroy(cq));
}

static void test_domains(void **state)
{
	struct flexio_transport_domain *td = NULL;
	struct flexio_sq_tis *tis = NULL;

	REFUSED(flexio_transport_domain_create(NULL, &td), "ibv_ctx is no adapter of the format");
	REFUSED(flexio_transport_domain_create(mlx4_ctx, &td),
		"mlx4_0 is no adapter of the format");
	REFUSED(flexio_transport_domain_create(bed_ctx, NULL), "td is NULL");
	assert_ok(flexio_transport_domain_create(bed_ctx, &td));
	REFUSED(flexio_sq_tis_create(bed_ctx, NULL, &tis), "the transport domain is NULL");
	REFUSED(flexio_sq_tis_create(NULL, td, &tis), "ibv_ctx is NULL");
	REFUSED(flexio_sq_tis_create(bed_ctx, td, NULL), "tis is NULL");
	REFUSED(flexio_sq_tis_create(other_ctx, td, &tis), "domain is of another device context");
	assert_ok(flexio_sq_tis_create(bed_ctx, td, &tis));
	REFUSED(flexio_transport_domain_destroy(td), "RQs or TISes still use transport domain 0x");
	assert_ok(flexio_sq_tis_destroy(tis));
	REFUSED(flexio_sq_tis_destroy(tis), "is no TIS, or not any more");
	assert_ok(flexio_transport_domain_destroy(td));
	REFUSED(flexio_transport_domain_destroy(td), "is no transport domain, or not any more");
}

/* ---- all of them ---- */

static bool is_covered(const char *name)
{
	for (unsigned int i = 0; i < num_covered; i++)
		if (!strcmp(covered[i], name))
			return true;
	return false;
}

/* Every function that the library exports was refused above. Older forms (_v0) are reached through older headers. */
static void test_emulation(void **state)
{
	struct flexio_emu_db_to_cq_ctx *map = NULL, *made;
	struct flexio_cq *cq = make_cq(), *mlx5_1_cq = (struct flexio_cq *)junk;

	REFUSED(flexio_emu_db_to_cq_map(NULL, 0x100, 0, cq, &map), "ibv_ctx is NULL");
	REFUSED(flexio_emu_db_to_cq_map(bed_ctx, 0x100, 0, cq, NULL), "emu_db_to_cq_ctx is NULL");
	REFUSED(flexio_emu_db_to_cq_map(bed_ctx, 0x100, 0, NULL, &map), "the CQ is NULL");
	REFUSED(flexio_emu_db_to_cq_map(bed_ctx, 0x100, 0, mlx5_1_cq, &map), "is no CQ, or not");
	REFUSED(flexio_emu_db_to_cq_map(mlx4_ctx, 0x100, 0, cq, &map),
		"mlx4_0 has no emulated functions");
	REFUSED(flexio_emu_db_to_cq_map(other_ctx, 0x110, 0, cq, &map),
		"the CQ is of another device context, of mlx5_0");
	REFUSED(flexio_emu_db_to_cq_map(bed_ctx, 0x99, 0, cq, &map),
		"mlx5_0 refuses to map queue 0 of function 0x99: .*no emulated function.*functions =");
	REFUSED(flexio_emu_db_to_cq_map(bed_ctx, 0x110, 0, cq, &map), "no emulated function");
	REFUSED(flexio_emu_db_to_cq_map(bed_ctx, 0x100, 64, cq, &map),
		"queue_id is 64; allowed: 0 to 63");
	assert_null(map);
	assert_ok(flexio_emu_db_to_cq_map(bed_ctx, 0x100, 0, cq, &made));
	REFUSED(flexio_emu_db_to_cq_map(bed_ctx, 0x100, 0, cq, &map),
		"still used by another map of this queue");
	REFUSED(flexio_cq_destroy(cq), "doorbells are mapped to it");
	assert_ok(flexio_emu_db_to_cq_unmap(made));
	REFUSED(flexio_emu_db_to_cq_unmap(made), "is no map of a doorbell, or not any more");
	NO_NUMBER(flexio_emu_db_to_cq_ctx_get_id(made), "is no map of a doorbell, or not any more");
	NO_NUMBER(flexio_emu_db_to_cq_ctx_get_id(NULL), "the map of a doorbell is NULL");
	assert_ok(flexio_cq_destroy(cq));
}

static void test_complete(void **state)
{
	char command[512], name[128];
	unsigned int found = 0;
	Dl_info info;
	FILE *nm;

	assert_true(dladdr((void *)(uintptr_t)&flexio_version_set, &info));
	snprintf(command, sizeof(command),
		 "nm -D --defined-only %s | sed -n 's/.* T \\(flexio_[a-z0-9_]*\\).*/\\1/p'",
		 info.dli_fname);
	nm = popen(command, "r");
	assert_non_null(nm);
	while (fscanf(nm, "%127s", name) == 1) {
		size_t len = strlen(name);

		found++;
		if (len > 3 && !strcmp(name + len - 3, "_v0"))
			name[len - 3] = 0;
		if (!is_covered(name))
			fail_msg("%s is not refused here", name);
	}
	assert_int_equal(pclose(nm), 0);
	assert_true(found > 100);
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

static int setup(void **state)
{
	memset(long_name, 'x', sizeof(long_name) - 1);
	other_ctx = open_named("mlx5_1");
	mlx4_ctx = open_named("mlx4_0");
	process = bed_process();
	return !other_ctx || !mlx4_ctx;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_apps),
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_library),
		cmocka_unit_test(test_no_reader),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_hostile_name),
		cmocka_unit_test(test_event_handlers),
		cmocka_unit_test(test_heap),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_mkeys),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_uars),
		cmocka_unit_test(test_outboxes_and_windows),
		cmocka_unit_test(test_cmdqs),
		cmocka_unit_test(test_later),
		cmocka_unit_test(test_error_handler),
		cmocka_unit_test(test_cqs),
		cmocka_unit_test(test_qps),
		cmocka_unit_test(test_qp_states),
		cmocka_unit_test(test_raw_queues),
		cmocka_unit_test(test_rmps),
		cmocka_unit_test(test_domains),
		cmocka_unit_test(test_emulation),
		cmocka_unit_test(test_complete),
	};

	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, setup, NULL);
}
