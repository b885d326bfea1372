// SPDX-License-Identifier: MIT
/* The table of shared pages: what was added is found, piece by piece, until it is removed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "host/shared/shared.h"

enum { PAGE = VB_SHARED_PAGE, PAGES = 2048 }; /* more than one leaf */

struct memory {
	int fd;
	char *at;
};

static struct memory map_file(size_t bytes)
{
	struct memory m = { .fd = vb_shared_memfd("test", bytes) };

	assert_true(m.fd > STDERR_FILENO);
	m.at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
	assert_true(m.at != MAP_FAILED);
	return m;
}

static void unmap_file(struct memory *m, size_t bytes)
{
	vb_shared_remove(m->at, bytes);
	munmap(m->at, bytes);
	close(m->fd);
}

static void finds(const void *addr, size_t len, const struct memory *m, uint64_t offset,
		  size_t found)
{
	struct vb_shared_piece piece;
	struct stat st;

	assert_int_equal(fstat(m->fd, &st), 0);
	assert_true(vb_shared_find(addr, len, &piece));
	assert_int_equal(piece.fd, m->fd);
	assert_true(piece.dev == st.st_dev && piece.ino == st.st_ino);
	assert_int_equal(piece.offset, offset);
	assert_int_equal(piece.len, found);
}

static void finds_none(const void *addr, size_t len, size_t found)
{
	struct vb_shared_piece piece;

	assert_false(vb_shared_find(addr, len, &piece));
	assert_int_equal(piece.len, found);
}

static void test_find(void **state)
{
	struct memory m = map_file(PAGES * PAGE);

	(void)state;
	finds_none(m.at, 100, 100);
	assert_int_equal(vb_shared_add(m.at, PAGES * PAGE, m.fd, 0), 0);
	finds(m.at, 1, &m, 0, 1);
	finds(m.at + 17, PAGES * PAGE - 17, &m, 17, PAGES * PAGE - 17);
	finds(m.at + 5 * PAGE + 3, 2 * PAGE, &m, 5 * PAGE + 3, 2 * PAGE);
	finds(m.at + (PAGES - 1) * PAGE, 3 * PAGE, &m, (PAGES - 1) * PAGE, PAGE);
	assert_true(vb_shared_covers(m.at, PAGES * PAGE));
	assert_false(vb_shared_covers(m.at, PAGES * PAGE + 1));
	assert_int_equal(vb_shared_add(m.at, PAGE, m.fd, 0), -EEXIST);
	finds(m.at, PAGE, &m, 0, PAGE);
	unmap_file(&m, PAGES * PAGE);
	finds_none(m.at, PAGES * PAGE, PAGES * PAGE);
}

/* A part ends, and comes back elsewhere in the file or in another one. */
static void test_parts(void **state)
{
	struct memory m = map_file(PAGES * PAGE), other = map_file(16 * PAGE);

	(void)state;
	assert_int_equal(vb_shared_add(m.at, PAGES * PAGE, m.fd, 0), 0);
	vb_shared_remove(m.at + 10 * PAGE + 1, PAGE); /* touches two pages */
	finds(m.at, PAGES * PAGE, &m, 0, 10 * PAGE);
	finds_none(m.at + 10 * PAGE, 4 * PAGE, 2 * PAGE);
	finds(m.at + 12 * PAGE, PAGE, &m, 12 * PAGE, PAGE);
	/* Same file, but not in line. */
	assert_int_equal(vb_shared_add(m.at + 10 * PAGE, PAGE, m.fd, 100 * PAGE), 0);
	finds(m.at, PAGES * PAGE, &m, 0, 10 * PAGE);
	finds(m.at + 10 * PAGE, 4 * PAGE, &m, 100 * PAGE, PAGE);
	/* Another file, where the page would be in line. */
	assert_int_equal(vb_shared_add(m.at + 11 * PAGE, PAGE, other.fd, 11 * PAGE), 0);
	finds(m.at + 11 * PAGE, 4 * PAGE, &other, 11 * PAGE, PAGE);
	assert_true(vb_shared_covers(m.at, PAGES * PAGE));
	/* One page that is taken undoes all of it. */
	vb_shared_remove(m.at, 5 * PAGE);
	assert_int_equal(vb_shared_add(m.at, 6 * PAGE, m.fd, 0), -EEXIST);
	finds_none(m.at, 6 * PAGE, 5 * PAGE);
	unmap_file(&m, PAGES * PAGE);
	unmap_file(&other, 16 * PAGE);
}

/* What was removed is not found and may be added again; peers see the mark until it is forgotten. */
static void test_forget(void **state)
{
	struct memory m = map_file(4 * PAGE);

	(void)state;
	assert_int_equal(vb_shared_add(m.at, 4 * PAGE, m.fd, 0), 0);
	vb_shared_remove(m.at, 2 * PAGE);
	vb_shared_forget(m.at, 4 * PAGE); /* not those that are shared */
	finds_none(m.at, 4 * PAGE, 2 * PAGE);
	finds(m.at + 2 * PAGE, 2 * PAGE, &m, 2 * PAGE, 2 * PAGE);
	vb_shared_remove(m.at + 2 * PAGE, PAGE);
	finds_none(m.at, 4 * PAGE, 3 * PAGE);
	assert_int_equal(vb_shared_add(m.at, 3 * PAGE, m.fd, 0), 0);
	assert_true(vb_shared_covers(m.at, 4 * PAGE));
	unmap_file(&m, 4 * PAGE);
}

static void test_refused(void **state)
{
	struct memory m = map_file(4 * PAGE);

	(void)state;
	assert_int_equal(vb_shared_add(m.at + 1, PAGE, m.fd, 0), -EINVAL);
	assert_int_equal(vb_shared_add(m.at, 100, m.fd, 0), -EINVAL);
	assert_int_equal(vb_shared_add(m.at, PAGE, m.fd, 1), -EINVAL);
	assert_int_equal(vb_shared_add(m.at, 0, m.fd, 0), -EINVAL);
	assert_int_equal(vb_shared_add(m.at, PAGE, m.fd, -PAGE), -EINVAL);
	assert_int_equal(vb_shared_add((void *)-(uintptr_t)PAGE, PAGE, m.fd, 0), -EINVAL);
	assert_int_equal(vb_shared_add(m.at, PAGE, -1, 0), -EBADF);
	vb_shared_remove(NULL, SIZE_MAX); /* everything, which is nothing */
	finds_none((void *)-(uintptr_t)PAGE, PAGE - 1, PAGE - 1);
	finds_none(m.at, 4 * PAGE, 4 * PAGE);
	unmap_file(&m, 4 * PAGE);
}

static void test_memfd(void **state)
{
	struct memory m = map_file(4 * PAGE);
	struct rlimit before, small = { 0 };
	struct stat st;

	(void)state;
	assert_int_equal(fstat(m.fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, 4 * PAGE);
	assert_int_equal(fcntl(m.fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(ftruncate(m.fd, PAGE), -1);
	assert_int_equal(ftruncate(m.fd, 8 * PAGE), 0);
	unmap_file(&m, 4 * PAGE);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){ PAGE, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(vb_shared_memfd("test", 2 * PAGE), -EFBIG); /* and no SIGXFSZ */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* Numbers of files come round, however many there were. */
static void test_many_files(void **state)
{
	(void)state;
	for (int i = 0; i < 3 * VB_SHARED_FILES; i++) {
		struct memory m = map_file(PAGE);

		assert_int_equal(vb_shared_add(m.at, PAGE, m.fd, 0), 0);
		finds(m.at, PAGE, &m, 0, PAGE);
		unmap_file(&m, PAGE);
	}
}

static struct {
	unsigned int made, waits;
	uintptr_t base;
	size_t len;
	bool was_shared;
} heard;

static void on_made(void)
{
	heard.made++;
}

static void on_wait(uintptr_t base, size_t len)
{
	struct vb_shared_piece piece;

	heard.waits++;
	heard.base = base;
	heard.len = len;
	heard.was_shared = vb_shared_find((void *)base, len, &piece);
}

/* Peers are waited for where a page was shared, and after it is not any more. */
static void test_hooks(void **state)
{
	static const struct vb_shared_hooks hooks = { on_made, on_wait };
	struct memory m = map_file(4 * PAGE);

	(void)state;
	memset(&heard, 0, sizeof(heard));
	vb_shared_set_hooks(&hooks);
	vb_shared_remove(m.at, 4 * PAGE);
	assert_int_equal(heard.waits, 0);
	assert_int_equal(vb_shared_add(m.at, 4 * PAGE, m.fd, 0), 0);
	vb_shared_remove(m.at + PAGE, PAGE);
	assert_int_equal(heard.waits, 1);
	assert_true(heard.base == (uintptr_t)m.at + PAGE && heard.len == PAGE);
	assert_false(heard.was_shared);
	vb_shared_set_hooks(NULL);
	unmap_file(&m, 4 * PAGE);
	assert_int_equal(heard.waits, 1);
}

/* Whether a peer that looks at the table now finds this file there. */
static bool is_named(ino_t ino)
{
	struct vb_shared_map *map;
	struct vb_file table;
	bool named = false;

	assert_int_equal(vb_shared_table(&table), 0);
	map = mmap(NULL, VB_SHARED_FIRST, PROT_READ, MAP_SHARED, table.fd, 0);
	assert_true(map != MAP_FAILED);
	for (int i = 0; i < VB_SHARED_FILES; i++)
		named |= map->files[i].generation && map->files[i].ino == ino;
	munmap(map, VB_SHARED_FIRST);
	return named;
}

static struct {
	struct memory next;
	ino_t ino;
	bool named;
} replaced;

static void add_while_waiting(uintptr_t base, size_t len)
{
	(void)base, (void)len;
	if (replaced.next.at)
		return;
	replaced.next = map_file(PAGE);
	assert_int_equal(vb_shared_add(replaced.next.at, PAGE, replaced.next.fd, 0), 0);
	replaced.named = is_named(replaced.ino);
}

/*
 * A peer that read an entry just before it was removed looks for its file afterwards: no other file
 * is in that place until the peer has done.
 */
static void test_place_of_file(void **state)
{
	static const struct vb_shared_hooks hooks = { on_made, add_while_waiting };
	struct memory m = map_file(PAGE);
	struct stat st;

	(void)state;
	assert_int_equal(fstat(m.fd, &st), 0);
	replaced.ino = st.st_ino;
	vb_shared_set_hooks(&hooks);
	assert_int_equal(vb_shared_add(m.at, PAGE, m.fd, 0), 0);
	vb_shared_remove(m.at, PAGE);
	assert_true(replaced.named);
	vb_shared_set_hooks(NULL);
	unmap_file(&replaced.next, PAGE);
	unmap_file(&m, PAGE);
}

/* A child has what it adds itself, in a table of its own. */
static void test_fork(void **state)
{
	struct memory m = map_file(4 * PAGE);
	struct vb_file parents, childs;
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(vb_shared_add(m.at, 4 * PAGE, m.fd, 0), 0);
	assert_int_equal(vb_shared_table(&parents), 0);
	pid = fork();
	if (!pid) {
		struct vb_shared_piece piece;

		if (vb_shared_find(m.at, PAGE, &piece) || vb_shared_table(&childs) != -ENOENT)
			_exit(1);
		vb_shared_remove(m.at, PAGE);
		if (vb_shared_add(m.at + PAGE, PAGE, m.fd, PAGE) || vb_shared_table(&childs))
			_exit(2);
		if (!vb_shared_find(m.at + PAGE, PAGE, &piece) || childs.ino == parents.ino)
			_exit(3);
		vb_shared_remove(m.at, 4 * PAGE);
		_exit(vb_file_is_open(&childs) ? 0 : 4);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	finds(m.at, 4 * PAGE, &m, 0, 4 * PAGE);
	unmap_file(&m, 4 * PAGE);
}

struct race {
	struct memory m;
	_Atomic bool stop;
	_Atomic unsigned int seen;
};

static void *look(void *arg)
{
	struct race *race = arg;

	while (!race->stop) {
		struct vb_shared_piece piece;

		/* Never a mixture of both places. */
		if (vb_shared_find(race->m.at, PAGE, &piece)) {
			assert_int_equal(piece.fd, race->m.fd);
			assert_true(piece.offset == 0 || piece.offset == 8 * PAGE);
			race->seen++;
		}
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct race race = { .m = map_file(16 * PAGE) };
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, look, &race), 0);
	for (int i = 0; i < 20000 || !race.seen; i++) {
		assert_int_equal(
			vb_shared_add(race.m.at, 2 * PAGE, race.m.fd, i & 1 ? 8 * PAGE : 0), 0);
		vb_shared_remove(race.m.at, 2 * PAGE);
	}
	race.stop = true;
	pthread_join(thread, NULL);
	unmap_file(&race.m, 16 * PAGE);
}

static struct memory of_handler;
static volatile sig_atomic_t handled;

static void on_alarm(int sig)
{
	(void)sig;
	if (!vb_shared_add(of_handler.at, PAGE, of_handler.fd, 0))
		vb_shared_remove(of_handler.at, PAGE);
	handled++;
}

/* A handler that unmaps and maps does not wait for the thread that it interrupted. */
static void test_handlers(void **state)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART }, before;
	struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { 0 };
	struct memory m = map_file(PAGES * PAGE);

	(void)state;
	of_handler = map_file(PAGE);
	assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (int i = 0; i < 200 || handled < 100; i++) {
		assert_int_equal(vb_shared_add(m.at, PAGES * PAGE, m.fd, 0), 0);
		vb_shared_remove(m.at, PAGES * PAGE);
	}
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
	unmap_file(&of_handler, PAGE);
	unmap_file(&m, PAGES * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),          cmocka_unit_test(test_parts),
		cmocka_unit_test(test_refused),       cmocka_unit_test(test_memfd),
		cmocka_unit_test(test_many_files),    cmocka_unit_test(test_hooks),
		cmocka_unit_test(test_place_of_file), cmocka_unit_test(test_fork),
		cmocka_unit_test(test_forget),        cmocka_unit_test(test_threads),
		cmocka_unit_test(test_handlers),
	};

	return cmocka_run_group_tests_name("shared", tests, NULL, NULL);
}
