// SPDX-License-Identifier: MIT
/*
 * The table of start, fork and exit (base/fork.h): in which order stages are called, forks inside of forks, rows that come
 * and go while a fork is on its way, and signals.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fork.h"
#include "base/util.h"

/* Parent and children write here: what was called, in its order. */
static struct {
	atomic_uint len;
	char text[1024];
} * said;

static void say(char what)
{
	unsigned int at = atomic_fetch_add(&said->len, 1);

	if (at < sizeof(said->text) - 1)
		said->text[at] = what;
}

static void forget(void)
{
	memset(said, 0, sizeof(*said));
}

static void open_page(void)
{
	said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (said == MAP_FAILED)
		_exit(99);
}

/* In the child of a fork: what body returns; 0 without one. */
static int in_child(int (*body)(void))
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		alarm(20); /* a lock that nobody gives back */
		_exit(body ? body() : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* --- rows of this program --------------------------------------------------------------------- */

/* Capital letters for the upper stage. */
#define CALLS(stage, a, b, c, d, e)      \
	static void stage##_start(void)  \
	{                                \
		say(a);                  \
	}                                \
	static void stage##_before(void) \
	{                                \
		say(b);                  \
	}                                \
	static void stage##_parent(void) \
	{                                \
		say(c);                  \
	}                                \
	static void stage##_child(void)  \
	{                                \
		say(d);                  \
	}                                \
	static void stage##_exit(void)   \
	{                                \
		say(e);                  \
	}
CALLS(low, 's', 'b', 'p', 'c', 'e')
CALLS(high, 'S', 'B', 'P', 'C', 'E')

#define ROW(stage, name)                                                                          \
	{                                                                                         \
		VB_STAGE_##stage, NULL, name##_start, name##_before, name##_parent, name##_child, \
			name##_exit                                                               \
	}

/* In the table twice, in either order: the stages count. */
static const struct vb_stage_row high_row = ROW(STREAMS, high), low_row = ROW(LOG, low);
static const struct vb_stage_row *const falling[] = { &high_row, &low_row };
static const struct vb_stage_row *const rising[] = { &low_row, &high_row };

static void stages_have_an_order(void **state)
{
	const struct vb_stage_row *const *orders[] = { falling, rising };

	for (unsigned int i = 0; i < ARRAY_SIZE(orders); i++) {
		forget();
		vb_stages_join(orders[i], 2);
		assert_string_equal(said->text, "sS");
		forget();
		assert_int_equal(in_child(NULL), 0);
		/* Parent and child go their ways at the same time. */
		assert_memory_equal(said->text, "Bb", 2);
		assert_int_equal(said->len, 6);
		assert_true(strchr(said->text, 'p') < strchr(said->text, 'P'));
		assert_true(strchr(said->text, 'c') < strchr(said->text, 'C'));
		forget();
		vb_stages_leave(orders[i], 2);
		assert_string_equal(said->text, "Ee");
		forget();
		assert_int_equal(in_child(NULL), 0);
		assert_int_equal(said->len, 0);
	}
}

/* --- the row that VB_STAGE() made ------------------------------------------------------------- */

static bool started, watched_at_start;
static bool says_exit;

static void image_start(void)
{
	started = true;
	watched_at_start = vb_forks_are_watched();
}

static void image_exit(void)
{
	if (says_exit)
		say('x');
}

VB_STAGE(REACH, .start = image_start, .exit = image_exit);

static int exit_now(void)
{
	says_exit = true;
	exit(3);
}

static void exit_in_signal(int sig)
{
	exit(4);
}

static int exit_in_handler(void)
{
	says_exit = true;
	signal(SIGUSR1, exit_in_signal);
	raise(SIGUSR1);
	return 0;
}

static void program_has_one_start_and_exit(void **state)
{
	assert_true(started && watched_at_start);
	forget();
	assert_int_equal(in_child(exit_now), 3 << 8);
	assert_string_equal(said->text, "x");
	forget();
	assert_int_equal(in_child(exit_in_handler), 4 << 8);
	assert_string_equal(said->text, "x");
}

/* --- forks inside of forks -------------------------------------------------------------------- */

/* What a row would lock; one that is unlocked by another thread, or twice, says so. */
static pthread_mutex_t guard;
static unsigned int wrong;

static void guard_init(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&guard, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void guard_before(void)
{
	wrong += pthread_mutex_lock(&guard) != 0;
	errno = EXDEV; /* libc's fork() does not say this */
}

static void guard_parent(void)
{
	wrong += pthread_mutex_unlock(&guard) != 0;
	errno = EXDEV;
}

static const struct vb_stage_row guard_row = {
	VB_STAGE_FABRIC, NULL, guard_init, guard_before, guard_parent, guard_init,
};
static const struct vb_stage_row *const guard_rows[] = { &guard_row };

/* 0 where this process is out of all forks: no lock, no signal that is still blocked. */
static int is_whole(void)
{
	sigset_t mask;

	if (wrong || pthread_mutex_trylock(&guard) || pthread_mutex_unlock(&guard))
		return 1;
	return pthread_sigmask(SIG_BLOCK, NULL, &mask) || sigismember(&mask, SIGUSR1) ? 2 : 0;
}

enum where { NOWHERE, IN_PREPARE, IN_PARENT, IN_CHILD };

static enum where forks_in;
static bool stays; /* the inner child goes on in the outer fork, and ends after it */
static unsigned int inner_depth;

/*
 * A handler of the program that is older than ours: it is called with our locks held. The inner fork calls
 * it as well.
 */
static void fork_inside(enum where here)
{
	int status;
	pid_t pid;

	if (here != forks_in)
		return;
	forks_in = NOWHERE;
	pid = fork();
	if (!pid) {
		inner_depth++;
		if (!stays)
			_exit(0);
		return;
	}
	/* One that stays ends without waiting for what the outer fork has locked. */
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		wrong++;
}

static void program_before(void)
{
	fork_inside(IN_PREPARE);
}

static void program_parent(void)
{
	fork_inside(IN_PARENT);
}

static void program_child(void)
{
	fork_inside(IN_CHILD);
}

/* Before the constructor of base/fork_rows.c. */
__attribute__((constructor(101))) static void program_watches(void)
{
	pthread_atfork(program_before, program_parent, program_child);
	open_page();
}

static int fork_around(enum where where, bool staying)
{
	int status = 0;
	pid_t pid;

	forks_in = where;
	stays = staying;
	alarm(20);
	pid = fork();
	if (!pid)
		_exit(is_whole());
	/* An inner child that comes from the parent's handler is not the parent. */
	if (!(inner_depth && where == IN_PARENT) &&
	    (pid < 0 || waitpid(pid, &status, 0) != pid || status))
		return 3;
	return is_whole();
}

static int forks_around_it(void)
{
	int ret;

	for (int where = IN_PREPARE; where <= IN_CHILD; where++)
		for (int staying = 0; staying < 2; staying++) {
			ret = fork_around((enum where)where, staying);
			if (inner_depth)
				_exit(ret);
			if (ret)
				return 10 * where + ret;
		}
	return 0;
}

static void forks_inside_of_forks(void **state)
{
	vb_stages_join(guard_rows, 1);
	assert_int_equal(in_child(forks_around_it), 0);
	assert_int_equal(is_whole(), 0);
	vb_stages_leave(guard_rows, 1);
}

static void errno_stays(void **state)
{
	int status;
	pid_t pid;

	vb_stages_join(guard_rows, 1);
	errno = ENOENT;
	pid = fork();
	if (!pid)
		_exit(errno == EXDEV);
	assert_int_not_equal(errno, EXDEV);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	vb_stages_leave(guard_rows, 1);
}

/* --- signals ---------------------------------------------------------------------------------- */

static atomic_int handled;

/* It would wait for ever if it came while the thread has the lock. */
static void fork_in_signal(int sig)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(is_whole() == 1);
	if (waitpid(pid, &status, 0) == pid && !status)
		atomic_fetch_add(&handled, 1);
}

static void signal_before(void)
{
	static bool once;

	if (!once)
		raise(SIGUSR1);
	once = true;
}

static void signals_wait_for_the_end(void **state)
{
	static const struct vb_stage_row row = { VB_STAGE_LOCKS, .prepare = signal_before };
	static const struct vb_stage_row *const rows[] = { &guard_row, &row };
	struct sigaction action = { .sa_handler = fork_in_signal };

	sigaction(SIGUSR1, &action, NULL);
	vb_stages_join(rows, 2);
	assert_int_equal(in_child(is_whole), 0);
	assert_int_equal(atomic_load(&handled), 1);
	assert_int_equal(is_whole(), 0);
	vb_stages_leave(rows, 2);
	signal(SIGUSR1, SIG_DFL);
}

/* --- rows that come and go -------------------------------------------------------------------- */

static const struct vb_stage_row late_row = { VB_STAGE_RQTS, .parent = low_parent,
					      .child = low_child };
static const struct vb_stage_row *const late_rows[] = { &late_row };

static void library_comes(void)
{
	vb_stages_join(late_rows, 1);
}

/* A library that is loaded during a fork was not prepared for it; locks of its threads are not the child's. */
static void library_comes_during_a_fork(void **state)
{
	static const struct vb_stage_row row = { VB_STAGE_LOCKS, .prepare = library_comes };
	static const struct vb_stage_row *const rows[] = { &row };

	forget();
	vb_stages_join(rows, 1);
	assert_int_equal(in_child(NULL), 0);
	assert_string_equal(said->text, "c");
	vb_stages_leave(rows, 1);
	vb_stages_leave(late_rows, 1);
	assert_int_equal(in_child(NULL), 0);
	assert_string_equal(said->text, "c");
}

static void library_leaves(void)
{
	vb_stages_leave(rising, 2);
}

/* As exit() of another thread: what was prepared is ended. */
static void library_goes_during_a_fork(void **state)
{
	static const struct vb_stage_row row = { VB_STAGE_LOCKS, .prepare = library_leaves };
	static const struct vb_stage_row *const rows[] = { &row };

	vb_stages_join(rising, 2);
	vb_stages_join(rows, 1);
	forget();
	assert_int_equal(in_child(NULL), 0);
	assert_memory_equal(said->text, "BbEe", 4);
	assert_int_equal(said->len, 8);
	assert_true(strchr(said->text, 'p') < strchr(said->text, 'P'));
	assert_true(strchr(said->text, 'c') < strchr(said->text, 'C'));
	vb_stages_leave(rows, 1);
	forget();
	assert_int_equal(in_child(NULL), 0);
	assert_int_equal(said->len, 0);
}

static void more_than_there_is_room_for(void **state)
{
	static const struct vb_stage_row *const many[] = { &low_row, &low_row, &low_row, &low_row,
							   &low_row, &low_row, &low_row, &low_row };

	vb_stages_join(many, ARRAY_SIZE(many));
	forget();
	assert_int_equal(in_child(NULL), 0);
	assert_true(said->len >= 3);
	vb_stages_leave(many, ARRAY_SIZE(many));
	forget();
	assert_int_equal(in_child(NULL), 0);
	assert_int_equal(said->len, 0);
}

static atomic_bool done;

/* As dlopen() and dlclose() of a library that can be unloaded: its rows have child functions alone. */
static void *come_and_go(void *arg)
{
	static const struct vb_stage_row row = { VB_STAGE_FLOWS, .child = guard_init };
	static const struct vb_stage_row *const rows[] = { &row };

	while (!atomic_load(&done)) {
		vb_stages_join(rows, 1);
		vb_stages_leave(rows, 1);
		sched_yield();
	}
	return NULL;
}

static void *fork_often(void *arg)
{
	for (int i = 0; i < 200; i++) {
		int status = -1;
		pid_t pid = fork();

		if (!pid)
			_exit(is_whole());
		if (waitpid(pid, &status, 0) != pid || status)
			return &done; /* anything */
	}
	return NULL;
}

static void libraries_come_and_go(void **state)
{
	pthread_t threads[3], other;
	void *failed = NULL;

	vb_stages_join(guard_rows, 1);
	atomic_store(&done, false);
	assert_int_equal(pthread_create(&other, NULL, come_and_go, NULL), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fork_often, NULL), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(threads); i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	atomic_store(&done, true);
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_int_equal(is_whole(), 0);
	vb_stages_leave(guard_rows, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages_have_an_order),
		cmocka_unit_test(program_has_one_start_and_exit),
		cmocka_unit_test(forks_inside_of_forks),
		cmocka_unit_test(errno_stays),
		cmocka_unit_test(signals_wait_for_the_end),
		cmocka_unit_test(library_comes_during_a_fork),
		cmocka_unit_test(library_goes_during_a_fork),
		cmocka_unit_test(more_than_there_is_room_for),
		cmocka_unit_test(libraries_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
