// SPDX-License-Identifier: MIT
/*
 * A compiled program, as static file and as static PIE: symbols by name and by address,
 * relocations, thread-local data per thread, segment rights, the dump with names, the file for
 * profilers.
 *
 *   dpa-compiled interp|jit STATIC.elf PIE.elf          compiled.sh makes the two from guest.c
 */
#include "bed.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t image[2][1 << 20];
static size_t size[2];

static struct {
	struct vb_dpa *dpa;
	struct vb_dpa_process *process;
	struct vb_dpa_thread *thread;
} at;

static void open_file(int pie)
{
	struct vb_dpa_process_attr pa = { .tier = bed_tier, .name = "guest" };
	struct vb_dpa_error error = { "" };

	assert_int_equal(vb_dpa_create(NULL, &at.dpa), 0);
	if (vb_dpa_process_create(at.dpa, image[pie], size[pie], &pa, &at.process, &error))
		fail_msg("%s: %s", pie ? "PIE" : "static", error.text);
	assert_int_equal(vb_dpa_thread_create(at.process, NULL, &at.thread), 0);
}

static void close_file(void)
{
	assert_int_equal(vb_dpa_thread_destroy(at.thread), 0);
	assert_int_equal(vb_dpa_process_destroy(at.process), 0);
	assert_int_equal(vb_dpa_destroy(at.dpa), 0);
}

static uint64_t symbol(const char *name)
{
	uint64_t value, len;

	assert_int_equal(vb_dpa_symbol_value(at.process, name, &value, &len), 0);
	return value;
}

static uint64_t call(struct vb_dpa_thread *thread, const char *name, uint64_t arg)
{
	uint64_t result = 0;

	assert_int_equal(vb_dpa_call(thread, symbol(name), &arg, 1, &result), 0);
	return result;
}

static void symbols(int pie)
{
	uint64_t value, len, offset;

	open_file(pie);
	assert_int_equal(vb_dpa_symbol_value(at.process, "counter", &value, &len), 0);
	assert_int_equal(len, 8);
	assert_int_equal(vb_dpa_symbol_value(at.process, "no_such_thing", &value, &len), -ENOENT);
	assert_string_equal(vb_dpa_symbol_name(at.process, symbol("add"), &offset), "add");
	assert_int_equal(offset, 0);
	assert_string_equal(vb_dpa_symbol_name(at.process, symbol("add") + 2, &offset), "add");
	assert_int_equal(offset, 2);
	assert_string_equal(vb_dpa_symbol_name(at.process, symbol("counter") + 7, NULL), "counter");
	assert_null(vb_dpa_symbol_name(at.process, 0, NULL));
	assert_null(vb_dpa_symbol_name(at.process, ~0ull, NULL));
	assert_string_equal(vb_dpa_symbol_name(at.process, vb_dpa_process_entry(at.process), NULL),
			    "_start");
	close_file();
}

static void test_symbols(void **state)
{
	(void)state;
	symbols(0);
	symbols(1);
}

/* Each thread has its own thread-local data, with its first values; all else is shared. */
static void values(int pie)
{
	struct vb_dpa_thread *other;
	char name[4];

	open_file(pie);
	assert_int_equal(vb_dpa_thread_create(at.process, NULL, &other), 0);
	/* twice(1) + 5 + 3 + 'o' + 12 * 1000 + 2 * 100000 */
	assert_int_equal(call(at.thread, "everything", 1), 7 + 3 + 'o' + 12000 + 200000);
	assert_int_equal(call(at.thread, "everything", 1), 7 + 3 + 'o' + 13000 + 400000);
	assert_int_equal(call(other, "everything", 2), 9 + 3 + 't' + 13000 + 400000);
	assert_int_equal(call(at.thread, "everything", 0), 5 + 3 + 'z' + 13000 + 400000);
	assert_int_equal(vb_dpa_mem_read(at.process, call(other, "name_address", 2), name, 4), 0);
	assert_string_equal(name, "two");
	assert_int_equal(vb_dpa_thread_destroy(other), 0);
	close_file();
}

static void test_values(void **state)
{
	(void)state;
	values(0);
	values(1);
}

static void expect_store_trap(uint64_t address)
{
	uint64_t result;
	char text[8192];

	assert_int_equal(vb_dpa_call(at.thread, symbol("wild"), &address, 1, &result), -EFAULT);
	assert_int_equal(vb_dpa_thread_state(at.thread)->cause, VB_DPA_CAUSE_STORE);
	assert_int_equal(vb_dpa_thread_state(at.thread)->tval, address);
	vb_dpa_state_format(at.process, vb_dpa_thread_state(at.thread), text, sizeof(text));
	assert_non_null(strstr(text, "wild")); /* the dump names the function */
}

static void test_rights(void **state)
{
	(void)state;
	for (int pie = 0; pie < 2; pie++) {
		open_file(pie);
		expect_store_trap(call(at.thread, "name_address", 1) & ~7ull); /* .rodata */
		expect_store_trap(symbol("add"));                              /* text */
		assert_null(
			vb_view_lend(vb_dpa_mem_host(at.process, symbol("add"), 4, VB_DPA_WRITE)));
		assert_non_null(vb_view_lend(vb_dpa_mem_host(at.process, symbol("counter"), 8,
							     VB_DPA_READ | VB_DPA_WRITE)));
		close_file();
	}
}

/* With VERBATIM_DPA_PERF_MAP=1, lines "address size name" for the profiler; nothing without. */
static void test_perf_map(void **state)
{
	char path[64], line[512];
	unsigned named = 0;
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	unlink(path);
	open_file(0);
	close_file();
	assert_int_not_equal(access(path, F_OK), 0);
	if (bed_tier != VB_DPA_TIER_JIT)
		return;
	setenv("VERBATIM_DPA_PERF_MAP", "1", 1);
	open_file(0);
	close_file();
	unsetenv("VERBATIM_DPA_PERF_MAP");
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long long start, len;
		char name[256];

		assert_int_equal(sscanf(line, "%llx %llx %255s", &start, &len, name), 3);
		assert_true(start && len && len < 1 << 20);
		named += strstr(name, "everything") != NULL || strstr(name, "twice") != NULL;
	}
	fclose(f);
	unlink(path);
	assert_true(named >= 2);
}

/* A child of its own number, with whatever waits in its way; 0: the map was written, 1: it was not. */
static int map_in_child(const char *target, bool hard, int owner)
{
	pid_t pid = fork();
	char path[64];
	struct stat st;
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
		if (hard ? link(target, path) : symlink(target, path))
			_exit(9);
		if (owner && lchown(path, (uid_t)owner, (gid_t)owner))
			_exit(9);
		setenv("VERBATIM_DPA_PERF_MAP", "1", 1);
		open_file(0);
		close_file();
		if (lstat(path, &st))
			_exit(8);
		unlink(path);
		_exit(S_ISREG(st.st_mode) && st.st_size && st.st_nlink == 1 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Whoever can guess our number can put a link there first: its target stays as it is. */
static void test_perf_map_links(void **state)
{
	char target[] = "/tmp/perf-target-XXXXXX";
	int fd = mkstemp(target);
	struct stat st;

	(void)state;
	assert_true(fd >= 0);
	if (bed_tier == VB_DPA_TIER_JIT) {
		assert_int_equal(map_in_child(target, false, 0), 0);
		assert_int_equal(map_in_child(target, true, 0), 0);
		if (!geteuid()) /* somebody else's link: not ours to remove */
			assert_int_equal(map_in_child(target, false, 65534), 1);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, 0);
		assert_int_equal(st.st_nlink, 1);
	}
	close(fd);
	unlink(target);
}

static void read_file(const char *path, int pie)
{
	FILE *f = fopen(path, "rb");

	if (!f) {
		perror(path);
		exit(1);
	}
	size[pie] = fread(image[pie], 1, sizeof(image[pie]), f);
	fclose(f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols),        cmocka_unit_test(test_values),
		cmocka_unit_test(test_rights),         cmocka_unit_test(test_perf_map),
		cmocka_unit_test(test_perf_map_links),
	};

	if (argc < 4)
		return 2;
	bed_main(argc, argv);
	read_file(argv[2], 0);
	read_file(argv[3], 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
