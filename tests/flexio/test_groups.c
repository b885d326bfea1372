// SPDX-License-Identifier: MIT
/*
 * EU groups and partitions, made by the dpaeumgmt command and obeyed by libflexio: on which
 * execution units handlers run is read from the scheduler, so the library is linked by its objects.
 * A store of its own: other tests must not run in our groups.
 */
#undef FLEXIO_ALLOW_EXPERIMENTAL_API /* defined there */
#include "../../src/api/flexio/process.h"
#undef fail

#include "bed.h"

#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/device/rtos.h"

/* The first words of the struct in bare/device.c. */
struct shared {
	uint64_t runs, arg, seen_tls, id, how, next, hops, hold, in, continued;
};

static const char *tool_path, *self_path;
static struct ibv_context *other_ctx; /* mlx5_1 */

/* ---- the command ---- */

static char said[4096];
static int max_files; /* of dpaeumgmt; 0: as many as it wants */

/* Runs dpaeumgmt and returns its exit code; what it printed is in said. */
__attribute__((format(printf, 1, 2))) static int tool(const char *fmt, ...)
{
	char command[1024];
	size_t n = (size_t)snprintf(command, sizeof(command), "exec 2>&1; ");
	va_list args;
	FILE *f;

	if (max_files)
		n += (size_t)snprintf(command + n, sizeof(command) - n, "ulimit -n %d; ",
				      max_files);
	n += (size_t)snprintf(command + n, sizeof(command) - n, "exec %s ", tool_path);

	va_start(args, fmt);
	vsnprintf(command + n, sizeof(command) - n, fmt, args);
	va_end(args);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(said, 1, sizeof(said) - 1, f);
	said[n] = 0;
	return WEXITSTATUS(pclose(f));
}

static void assert_said(const char *text)
{
	if (!strstr(said, text))
		fail_msg("no '%s' in: %s", text, said);
}

/* ---- handlers ---- */

struct runner {
	struct flexio_event_handler *handler;
	flexio_uintptr_t shared;
	uint64_t runs;
};

static flexio_status create(struct flexio_process *process, struct flexio_affinity affinity,
			    struct flexio_event_handler **handler)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler"),
						  .affinity = affinity };

	return flexio_event_handler_create(process, &attr, handler);
}

static struct runner runner(struct flexio_process *process, enum flexio_affinity_type type,
			    uint32_t id)
{
	struct runner r = { .shared = bed_alloc(process, sizeof(struct shared)) };

	assert_ok(create(process, (struct flexio_affinity){ type, id }, &r.handler));
	bed_write(process, r.shared + offsetof(struct shared, how), VB_RTOS_RESCHEDULE);
	assert_ok(flexio_event_handler_run(r.handler, r.shared));
	return r;
}

/* One run, and its end. */
static void trigger(struct flexio_process *process, struct runner *r)
{
	uint32_t id = flexio_event_handler_get_activation_id(r->handler);

	assert_int_equal(bed_value(process, "activate", id), 0);
	bed_await(process, r->shared + offsetof(struct shared, runs), ++r->runs);
}

static uint64_t slices(struct flexio_process *process, unsigned int first, unsigned int last)
{
	struct vb_dpa_eu_counters counters;
	uint64_t sum = 0;

	for (unsigned int eu = first; eu <= last; eu++) {
		assert_int_equal(vb_dpa_eu_counters(process->accel->dpa, eu, &counters), 0);
		sum += counters.slices;
	}
	return sum;
}

static void test_group(void **state)
{
	struct flexio_process *process;
	struct runner r[12];

	assert_int_equal(tool("eu_group create -d mlx5_0 -n four -r 3-5,9"), 0);
	assert_said("EU group ID: 1\n");
	process = bed_process();
	for (unsigned int i = 0; i < 12; i++)
		r[i] = runner(process, FLEXIO_AFFINITY_GROUP, 1);
	for (unsigned int n = 0; n < 20; n++)
		for (unsigned int i = 0; i < 12; i++)
			trigger(process, &r[i]);
	assert_true(slices(process, 3, 5) + slices(process, 9, 9) >= 240);
	assert_int_equal(slices(process, 0, 2) + slices(process, 6, 8) + slices(process, 10, 189),
			 0);
	for (unsigned int i = 0; i < 12; i++)
		assert_ok(flexio_event_handler_destroy(r[i].handler));
	bed_process_end(process);
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -n four"), 0);
}

/* Threads without affinity stay out of groups; one EU can be named though a group has it. */
static void test_pool(void **state)
{
	struct flexio_process *process;
	struct runner none, one;

	assert_int_equal(tool("eu_group create -d mlx5_0 -n most -r 0-187"), 0);
	process = bed_process();
	none = runner(process, FLEXIO_AFFINITY_NONE, 0);
	one = runner(process, FLEXIO_AFFINITY_STRICT, 7);
	for (unsigned int n = 0; n < 20; n++)
		trigger(process, &none);
	assert_int_equal(slices(process, 0, 187), 0);
	assert_true(slices(process, 188, 189) >= 20);
	trigger(process, &one);
	assert_int_equal(slices(process, 0, 187), slices(process, 7, 7));
	assert_true(slices(process, 7, 7) >= 1);
	/* A group that comes meanwhile counts from the next thing the program makes. */
	assert_int_equal(tool("eu_group create -d mlx5_0 -n last -r 189"), 0);
	assert_ok(flexio_event_handler_destroy(one.handler));
	one = runner(process, FLEXIO_AFFINITY_GROUP, 2);
	for (unsigned int n = 0; n < 20; n++) {
		uint64_t before = slices(process, 189, 189);

		trigger(process, &none);
		assert_int_equal(slices(process, 189, 189), before);
	}
	assert_ok(flexio_event_handler_destroy(none.handler));
	assert_ok(flexio_event_handler_destroy(one.handler));
	bed_process_end(process);
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 0);
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 2"), 0);
}

static void test_empty_pool(void **state)
{
	struct flexio_event_handler *h = NULL;
	struct flexio_process *process;
	struct runner r;
	uint64_t result;

	assert_int_equal(tool("eu_group create -d mlx5_0 -n all -r 0-189"), 0);
	process = bed_process();
	assert_failed(create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_NONE, 0 }, &h));
	assert_null(h);
	assert_failed(bed_call(process, "activate", 0, &result));
	assert_ok(create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 1 }, &h));
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 1);
	assert_ok(flexio_event_handler_destroy(h));
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 0);
	r = runner(process, FLEXIO_AFFINITY_NONE, 0);
	trigger(process, &r);
	assert_ok(flexio_event_handler_destroy(r.handler));
	bed_process_end(process);
}

static void test_no_such_group(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_event_handler *h = NULL;
	static const uint32_t ids[] = { 0, 2, 15, 16, UINT32_MAX };

	assert_int_equal(tool("eu_group create -d mlx5_0 -n one -r 0"), 0);
	assert_int_equal(tool("eu_group create -d mlx5_1 -n two -r 0"), 0); /* not ours */
	for (unsigned int i = 0; i < ARRAY_SIZE(ids); i++)
		assert_failed(create(
			process, (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, ids[i] }, &h));
	assert_null(h);
	assert_ok(create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 1 }, &h));
	assert_ok(flexio_event_handler_destroy(h));
	bed_process_end(process);
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 0);
	assert_int_equal(tool("eu_group destroy -d mlx5_1 -g 1"), 0);
}

/* mgmt_affinity of a stream: checked as one of a thread is; the host manages streams, so no group is in use. */
static void test_stream_affinity(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096, .level = FLEXIO_MSG_DEV_INFO };
	static const struct {
		struct flexio_affinity affinity;
		bool allowed;
	} cases[] = {
		{ { FLEXIO_AFFINITY_NONE, 0 }, true },
		{ { FLEXIO_AFFINITY_NONE, 1000 }, true },
		{ { FLEXIO_AFFINITY_STRICT, 0 }, true },
		{ { FLEXIO_AFFINITY_STRICT, 189 }, true },
		{ { FLEXIO_AFFINITY_STRICT, 190 }, false },
		{ { FLEXIO_AFFINITY_GROUP, 1 }, true },
		{ { FLEXIO_AFFINITY_GROUP, 0 }, false },
		{ { FLEXIO_AFFINITY_GROUP, 2 }, false },
		{ { (enum flexio_affinity_type)3, 0 }, false },
	};

	assert_int_equal(tool("eu_group create -d mlx5_0 -n one -r 0-1"), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		struct flexio_msg_stream *stream = NULL;

		attr.mgmt_affinity = cases[i].affinity;
		assert_int_equal(flexio_msg_stream_create(process, &attr, stdout, NULL, &stream),
				 cases[i].allowed ? FLEXIO_STATUS_SUCCESS : FLEXIO_STATUS_FAILED);
		if (stream)
			assert_ok(flexio_msg_stream_destroy(stream));
	}
	attr.mgmt_affinity = (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 1 };
	assert_ok(flexio_log_dev_init(process, &attr, stdout, NULL));
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 0);
	assert_ok(flexio_log_dev_destroy(process));
	bed_process_end(process);
}

/* ---- who uses what ---- */

static void test_in_use(void **state)
{
	struct flexio_process *process = bed_process(), *second = bed_process();
	struct flexio_event_handler *h[2];
	char user[64];

	snprintf(user, sizeof(user), "EU group 1 is in use by process %d\n", (int)getpid());
	assert_int_equal(tool("info status -d mlx5_0"), 0);
	assert_said("processes: 2\n");
	assert_int_equal(tool("eu_group create -d mlx5_0 -n busy -r 1-2"), 0);
	for (unsigned int i = 0; i < 2; i++)
		assert_ok(create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 1 },
				 &h[i]));
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 1);
		assert_said(user);
		assert_int_equal(tool("eu_group apply -d mlx5_0 -f /dev/null"), 1);
		assert_said(user);
		assert_ok(flexio_event_handler_destroy(h[i]));
	}
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 0);
	bed_process_end(second);
	assert_int_equal(tool("info status -d mlx5_0"), 0);
	assert_said("processes: 1\n");
	bed_process_end(process);
	assert_int_equal(tool("info status -d mlx5_0"), 0);
	assert_said("processes: 0\n");
}

static void *end_process(void *process)
{
	bed_process_end(process);
	return NULL;
}

/* The last process ends while another one begins, at all moments of its end: the tool sees the one that is there. */
static void test_successor(void **state)
{
	struct flexio_process *process = bed_process(), *next;
	pthread_t thread;

	for (unsigned int i = 0; i < 150; i++) {
		assert_int_equal(pthread_create(&thread, NULL, end_process, process), 0);
		usleep(10 * i);
		next = bed_process();
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(tool("info status -d mlx5_0"), 0);
		assert_said("processes: 1\n");
		process = next;
	}
	bed_process_end(process);
}

/* Started as another program: takes group 1, says so, and waits for its end. */
static int hold_group(void)
{
	struct flexio_event_handler *h = NULL;
	struct flexio_process *process = NULL;

	if (flexio_process_create(bed_ctx, bed_app, NULL, &process) ||
	    create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 1 }, &h))
		return 1;
	if (write(STDOUT_FILENO, "x", 1) != 1)
		return 1;
	pause();
	return 0;
}

static void test_killed_user(void **state)
{
	char byte, text[32];
	int fds[2], status;
	pid_t pid;

	assert_int_equal(tool("eu_group create -d mlx5_0 -n held -r 1-2"), 0);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		dup2(fds[1], STDOUT_FILENO);
		execl(self_path, self_path, bed_elf_path, tool_path, "hold", NULL);
		_exit(1);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -n held"), 1);
	snprintf(text, sizeof(text), "by process %d\n", (int)pid);
	assert_said(text);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -n held"), 0);
	close(fds[0]);
}

/* A forked child does not keep what its parent gave back. */
static void test_forked_child(void **state)
{
	struct flexio_process *process = bed_process();
	struct flexio_event_handler *h = NULL;
	int status;
	pid_t pid;

	assert_int_equal(tool("eu_group create -d mlx5_0 -n held -r 1-2"), 0);
	assert_ok(create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 1 }, &h));
	pid = fork();
	if (!pid) {
		pause();
		_exit(0);
	}
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 1);
	assert_ok(flexio_event_handler_destroy(h));
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 0);
	bed_process_end(process);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* ---- partitions ---- */

static void test_partition(void **state)
{
	struct flexio_process *first, *process = NULL;
	struct flexio_event_handler *h = NULL;
	struct runner none, one;

	first = bed_process();
	assert_int_equal(tool("partition create -d mlx5_0 -v 1 -r 10-12 -m 1"), 1);
	assert_said("1 device processes run on mlx5_0");
	bed_process_end(first);
	assert_int_equal(tool("partition create -d mlx5_0 -v 1 -r 10-12 -m 1"), 0);

	/* The adapter in the partition has three EUs, numbered from 0. */
	assert_ok(flexio_process_create(other_ctx, bed_app, NULL, &process));
	assert_int_equal(vb_dpa_eu_count(process->accel->dpa), 3);
	assert_failed(create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 3 }, &h));
	assert_failed(create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 10 }, &h));
	one = runner(process, FLEXIO_AFFINITY_STRICT, 2);
	trigger(process, &one);
	assert_true(slices(process, 2, 2) >= 1);
	assert_int_equal(slices(process, 0, 1), 0);
	assert_ok(flexio_event_handler_destroy(one.handler));
	assert_int_equal(tool("eu_group create -d mlx5_1 -n mine -r 0-1"), 0);
	one = runner(process, FLEXIO_AFFINITY_GROUP, 1);
	assert_int_equal(tool("partition destroy -d mlx5_0 -p 1"), 1);
	assert_said("1 device processes run on mlx5_1");
	assert_ok(flexio_event_handler_destroy(one.handler));
	bed_process_end(process);

	/* Its manager has the others. */
	first = bed_process();
	assert_int_equal(vb_dpa_eu_count(first->accel->dpa), 190);
	assert_failed(create(first, (struct flexio_affinity){ FLEXIO_AFFINITY_STRICT, 10 }, &h));
	none = runner(first, FLEXIO_AFFINITY_NONE, 0);
	for (unsigned int i = 0; i < 40; i++)
		trigger(first, &none);
	assert_int_equal(slices(first, 10, 12), 0);
	assert_ok(flexio_event_handler_destroy(none.handler));
	bed_process_end(first);
	assert_int_equal(tool("partition destroy -d mlx5_0 -p 1"), 1);
	assert_said("mlx5_1 has EU groups in EU partition 1");
	assert_int_equal(tool("eu_group destroy -d mlx5_1 -g 1"), 0);
	assert_int_equal(tool("partition destroy -d mlx5_0 -p 1"), 0);
	assert_ok(flexio_process_create(other_ctx, bed_app, NULL, &process));
	assert_int_equal(vb_dpa_eu_count(process->accel->dpa), 190);
	bed_process_end(process);
}

/* ---- the store ---- */

static void store_path(char *path, size_t size)
{
	char pattern[256];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/verbatim-*/eu-groups", getenv("VERBATIM_SHM_DIR"));
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	snprintf(path, size, "%s", found.gl_pathv[0]);
	globfree(&found);
}

static void test_damaged_store(void **state)
{
	struct flexio_process *process = NULL;
	char path[256];
	FILE *f;

	assert_int_equal(tool("eu_group create -d mlx5_0 -n one -r 0-3"), 0);
	store_path(path, sizeof(path));
	f = fopen(path, "r+");
	assert_non_null(f);
	fseek(f, 20, SEEK_SET);
	fputc('7', f);
	fclose(f);
	assert_failed(flexio_process_create(bed_ctx, bed_app, NULL, &process));
	assert_null(process);
	assert_int_equal(tool("eu_group query -d mlx5_0"), 1);
	assert_said("/eu-groups is damaged and not used");
	assert_int_equal(tool("eu_group create -d mlx5_0 -n two -r 9"), 1);
	assert_int_equal(unlink(path), 0);
	process = bed_process();
	bed_process_end(process);
}

/* A command that has too few descriptors to see who uses the adapter does not take it for unused. */
static void test_few_files(void **state)
{
	struct flexio_process *process = bed_process();

	for (max_files = 4; max_files < 24; max_files++)
		assert_int_not_equal(tool("eu_group destroy -d mlx5_0 -g 7"), 0);
	max_files = 0;
	assert_int_equal(tool("info status -d mlx5_0"), 0);
	assert_said("processes: 1");
	bed_process_end(process);
}

/* The files of the registry, one name after the other. */
static void list_files(char *names, size_t size)
{
	char pattern[256];
	size_t len = 0;
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/verbatim-*/*", getenv("VERBATIM_SHM_DIR"));
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++)
		len += (size_t)snprintf(names + len, size - len, "%s ", found.gl_pathv[i]);
	assert_true(len < size);
	globfree(&found);
}

/* The last group leaves nothing of its own behind, whether or not programs run. */
static void test_tidy(void **state)
{
	struct flexio_process *process;
	char before[2048], after[2048];

	list_files(before, sizeof(before));
	process = bed_process();
	assert_int_equal(tool("eu_group create -d mlx5_0 -n one -r 0"), 0);
	list_files(after, sizeof(after));
	assert_string_not_equal(before, after);
	assert_int_equal(tool("eu_group destroy -d mlx5_0 -g 1"), 0);
	bed_process_end(process);
	list_files(after, sizeof(after));
	assert_string_equal(before, after);
}

/* A program that leaves its processes to exit() uses nothing any more, and leaves no file. */
static void test_exit(void **state)
{
	char before[2048], after[2048];
	int status;
	pid_t pid;

	list_files(before, sizeof(before));
	pid = fork();
	if (!pid) {
		execl(self_path, self_path, bed_elf_path, tool_path, "exit", NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	list_files(after, sizeof(after));
	assert_string_equal(before, after);
	assert_int_equal(tool("info status -d mlx5_0"), 0);
	assert_said("processes: 0\n");
}

/*
 * A program that has closed all descriptors that it did not open: what it says to dpaeumgmt needs none, and it finds the
 * groups by name.
 */
static int closed_all(void)
{
	struct flexio_event_handler *h = NULL;
	struct flexio_process *process = NULL;

	if (flexio_process_create(bed_ctx, bed_app, NULL, &process))
		return 1;
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	if (create(process, (struct flexio_affinity){ FLEXIO_AFFINITY_GROUP, 1 }, &h))
		return 2;
	if (tool("eu_group destroy -d mlx5_0 -g 1") != 1 || !strstr(said, "is in use by process"))
		return 3;
	if (flexio_event_handler_destroy(h))
		return 4;
	return tool("eu_group destroy -d mlx5_0 -g 1") ? 5 : 0;
}

static void test_closed_descriptors(void **state)
{
	int status;
	pid_t pid;

	assert_int_equal(tool("eu_group create -d mlx5_0 -n held -r 1-2"), 0);
	pid = fork();
	if (!pid) {
		execl(self_path, self_path, bed_elf_path, tool_path, "closed", NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void open_other(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (unsigned int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "mlx5_1"))
			other_ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!other_ctx)
		exit(1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_group),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_empty_pool),
		cmocka_unit_test(test_no_such_group),
		cmocka_unit_test(test_stream_affinity),
		cmocka_unit_test(test_in_use),
		cmocka_unit_test(test_successor),
		cmocka_unit_test(test_killed_user),
		cmocka_unit_test(test_forked_child),
		cmocka_unit_test(test_partition),
		cmocka_unit_test(test_damaged_store),
		cmocka_unit_test(test_few_files),
		cmocka_unit_test(test_tidy),
		cmocka_unit_test(test_exit),
		cmocka_unit_test(test_closed_descriptors),
	};
	char folder[] = "/tmp/verbatim-groups-XXXXXX";
	bool holder = argc > 3;
	int failed;

	self_path = "/proc/self/exe";
	tool_path = argv[2];
	if (!holder && (!mkdtemp(folder) || setenv("VERBATIM_SHM_DIR", folder, 1)))
		return 1;
	bed_init(argc, argv);
	if (holder && !strcmp(argv[3], "exit"))
		return flexio_process_create(bed_ctx, bed_app, NULL,
					     &(struct flexio_process *){ 0 });
	if (holder && !strcmp(argv[3], "closed"))
		return closed_all();
	if (holder)
		return hold_group();
	open_other();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	flexio_app_destroy(bed_app);
	ibv_close_device(other_ctx);
	ibv_close_device(bed_ctx);
	if (rmdir(folder)) {
		perror(folder); /* nothing is left of the registry */
		return 1;
	}
	return failed;
}
