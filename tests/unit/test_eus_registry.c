// SPDX-License-Identifier: MIT
/*
 * EU groups as entries of the registry: they outlive all processes, what a process uses goes with it, and neither what
 * another process wrote nor what an earlier version left is believed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "../programs/common.h"
#include "meet/eus.h"
#include "meet/registry_file.h"
#include "registry_kit.h"

enum { EUS = VB_EUS_DEFAULT };

static char why[VB_EU_WHY];

/* ---- what dpaeumgmt does ---- */

static int change(unsigned int destroy, const char *name, const char *range)
{
	struct vb_registry visit = VB_REGISTRY_INIT;
	struct vb_eus *eus = NULL;
	struct vb_eu_set set;
	sigset_t before;
	int ret = vb_registry_visit(&visit, true, &before);

	if (ret)
		return ret;
	ret = vb_eus_read(&visit, &eus);
	if (!ret && destroy)
		ret = vb_eus_group_destroy(eus, "mlx5_0", destroy, why);
	else if (!ret)
		ret = vb_eu_set_parse(range, EUS, &set, why)
			      ? -1
			      : vb_eus_group_create(eus, "mlx5_0", EUS, name, &set, why);
	if (ret >= 0 && vb_eus_write(&visit, eus))
		ret = -1;
	vb_registry_quit(&visit, &before);
	vb_eus_free(eus);
	return ret;
}

/* Groups of mlx5_0, as one who has not joined sees them. */
static int groups(void)
{
	struct vb_registry visit = VB_REGISTRY_INIT;
	struct vb_eu_view view;
	struct vb_eus *eus = NULL;
	sigset_t before;
	int ret = vb_registry_visit(&visit, false, &before);

	if (ret)
		return ret;
	ret = vb_eus_read(&visit, &eus);
	if (!ret) {
		vb_eus_view(eus, "mlx5_0", EUS, &view);
		ret = (int)view.num_groups;
	}
	vb_registry_quit(&visit, &before);
	vb_eus_free(eus);
	return ret;
}

/* Device processes on mlx5_0 (group 0), or users of a group of it. */
static int users(unsigned int group, pid_t *one)
{
	struct vb_registry visit = VB_REGISTRY_INIT;
	sigset_t before;
	int ret = vb_registry_visit(&visit, false, &before);

	if (ret)
		return ret;
	ret = group ? vb_eus_group_users(&visit, "mlx5_0", group, one)
		    : vb_eus_processes(&visit, "mlx5_0", one);
	vb_registry_quit(&visit, &before);
	return ret;
}

/* The files of the registry; -1: there is no directory. */
static int files(void)
{
	char path[128];
	struct dirent *entry;
	int count = 0;
	DIR *dir;

	find_directory(path, sizeof(path));
	dir = opendir(path);
	if (!dir)
		return -1;
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* ---- life ---- */

/* A process that has device processes, threads in group 1, and a child that lives on; its pid, or -1. */
static pid_t start_user(void)
{
	struct vb_eus_user *user;
	struct vb_eu_view view;
	struct vb_eu_set set;
	int ready[2];
	char word = 0;
	pid_t pid;

	if (pipe(ready))
		return -1;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (join() || vb_eus_user_begin(&registry, "mlx5_0", EUS, &user, &view) ||
		    vb_eus_user_take(user, 1, &set, why))
			_exit(1);
		vb_eus_user_processes(user, 3);
		if (write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &word, 1) != 1)
		pid = -1;
	close(ready[0]);
	return pid;
}

static int outlive(void)
{
	struct vb_eus_user *user;
	struct vb_eu_view view;
	struct vb_eu_set set;
	pid_t pid, one = 0;

	if (mount_shm(NULL, 0))
		return 99;
	if (groups() || directories()) /* a look makes nothing */
		return 1;
	if (change(0, "one", "0-3") != 1 || files() != 2 || groups() != 1)
		return 2; /* nobody has ever joined */
	pid = start_user();
	if (pid < 0 || users(0, &one) != 3 || one != pid || users(1, &one) != 1 || users(2, &one) ||
	    change(0, "two", "4") != 2)
		return 3;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (users(0, &one) || users(1, &one) || files() != 2 || groups() != 2)
		return 4; /* with what it used, its files are gone */
	if (join() || vb_eus_user_begin(&registry, "mlx5_0", EUS, &user, &view) ||
	    view.num_groups != 2 || vb_eus_user_take(user, 2, &set, why) || !vb_eu_set_has(&set, 4))
		return 5;
	if (vb_eus_user_look(user, &view) || change(1, NULL, NULL) ||
	    !vb_eus_user_look(user, &view) || view.num_groups != 1 || vb_eus_user_look(user, &view))
		return 6; /* a change is seen, and once */
	vb_registry_leave(&registry);
	if (users(2, &one) || files() != 2)
		return 7; /* who leaves by exit() does not end what he uses */
	vb_eus_user_drop(user, 2);
	vb_eus_user_end(user);
	vb_registry_close(&registry);
	return change(2, NULL, NULL) || directories() ? 8 : 0;
}

static void test_outlive(void **state)
{
	assert_int_equal(in_child(outlive), 0);
	assert_string_equal(said, "");
}

/* The directory of another namespace that has groups stays, and one that has none goes. */
static int stay_elsewhere(void)
{
	int status;

	if (mount_shm(NULL, 0))
		return 99;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();

		if (!pid) {
			if (!enter_namespaces(CLONE_NEWNET))
				_exit(NO_NAMESPACES);
			if (join() || (!i && change(0, "one", "0-3") != 1))
				_exit(1);
			_exit(0); /* without leaving */
		}
		waitpid(pid, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	if (directories() != 2 || join() || directories() != 2)
		return 2; /* one of them, and our own */
	if (groups())
		return 3; /* which has no part in the other's groups */
	vb_registry_leave(&registry);
	return directories() == 1 ? 0 : 4;
}

static void test_elsewhere(void **state)
{
	assert_int_equal(in_child(stay_elsewhere), 0);
	assert_string_equal(said, "");
}

/* What a child has inherited is its parent's. */
static int inherit(void)
{
	struct vb_eus_user *user;
	struct vb_eu_view view;
	struct vb_eu_set set;
	int status;
	pid_t pid, one;

	if (mount_shm(NULL, 0) || change(0, "one", "0-3") != 1 || join() ||
	    vb_eus_user_begin(&registry, "mlx5_0", EUS, &user, &view) ||
	    vb_eus_user_take(user, 1, &set, why))
		return 99;
	pid = fork();
	if (!pid) {
		vb_registry_forked(&registry);
		vb_eus_user_processes(user, 9);
		if (vb_eus_user_look(user, &view) || vb_eus_user_take(user, 1, &set, why))
			_exit(1);
		vb_eus_user_drop(user, 1);
		vb_eus_user_drop(user, 1);
		if (join()) /* the host of the child has another slot */
			_exit(2);
		vb_eus_user_processes(user, 9);
		vb_eus_user_end(user);
		vb_registry_leave(&registry);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return 1;
	if (users(0, &one) != 1 || one != getpid() || users(1, &one) != 1)
		return 2;
	vb_eus_user_end(user);
	return users(0, &one) || users(1, &one) ? 3 : 0;
}

static void test_inherit(void **state)
{
	assert_int_equal(in_child(inherit), 0);
	assert_string_equal(said, "");
}

/* Two hosts of a process use an adapter each, though both call it mlx5_0. */
static int two_hosts(void)
{
	struct vb_registry other = VB_REGISTRY_INIT;
	struct vb_slot_info self;
	struct vb_eus_user *user[2];
	struct vb_eu_view view;
	struct vb_eu_set set;
	pid_t one;

	if (mount_shm(NULL, 0) || change(0, "one", "0-3") != 1 || join() ||
	    vb_registry_join(&other, &self) ||
	    vb_eus_user_begin(&registry, "mlx5_0", EUS, &user[0], &view) ||
	    vb_eus_user_begin(&other, "mlx5_0", EUS, &user[1], &view))
		return 99;
	if (users(0, &one) != 2 || vb_eus_user_take(user[0], 1, &set, why) || users(1, &one) != 1 ||
	    vb_eus_user_take(user[1], 1, &set, why) || users(1, &one) != 2)
		return 1;
	vb_eus_user_end(user[0]);
	if (users(0, &one) != 1 || users(1, &one) != 1)
		return 2;
	vb_registry_leave(&other);
	return users(0, &one) || users(1, &one) ? 3 : 0;
}

static void test_two_hosts(void **state)
{
	assert_int_equal(in_child(two_hosts), 0);
}

/* ---- the lock ---- */

/* A child that was forked during a visit does not keep the registry locked. */
static int fork_in_visit(void)
{
	struct vb_registry visit = VB_REGISTRY_INIT;
	sigset_t before;
	pid_t child;
	int ret;

	/* With groups the directory stays, and its lock. */
	if (mount_shm(NULL, 0) || change(0, "one", "0-3") != 1 ||
	    vb_registry_visit(&visit, true, &before))
		return 99;
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	vb_registry_quit(&visit, &before);
	ret = join();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return ret;
}

static int visit_locked(void)
{
	pid_t pid;
	int ret;

	if (mount_shm(NULL, 0))
		return 99;
	pid = hold_lock();
	ret = pid < 0 ? 98 : -change(0, "one", "0");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return ret;
}

static void test_lock(void **state)
{
	assert_int_equal(in_child(fork_in_visit), 0);
	assert_string_equal(said, "");
	assert_int_equal(in_child(visit_locked), ETIMEDOUT);
	assert_said("/registry locked; is it stopped?");
}

/* Visits and ends as the others do, all at once; 1 where it was another directory. */
static int visit_together(_Atomic unsigned int *ready, unsigned int all)
{
	struct vb_registry visit = VB_REGISTRY_INIT;
	char path[128];
	sigset_t before;
	int other;

	find_directory(path, sizeof(path));
	atomic_fetch_add(ready, 1);
	while (atomic_load(ready) < all)
		sched_yield();
	if (vb_registry_visit(&visit, true, &before))
		return 2;
	other = strcmp(visit.place.name, strrchr(path, '/') + 1) != 0;
	vb_registry_quit(&visit, &before);
	return other;
}

/* Processes that find no directory at the same time make one, not one each. */
static int make_once(void)
{
	enum { ROUNDS = 60, CHILDREN = 4 };
	_Atomic unsigned int *ready =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, wrong = 0;

	if (ready == MAP_FAILED || mount_shm(NULL, 0))
		return 99;
	for (int round = 0; round < ROUNDS && !wrong; round++) {
		atomic_store(ready, 0);
		for (int i = 0; i < CHILDREN; i++)
			if (!fork())
				_exit(visit_together(ready, CHILDREN));
		for (int i = 0; i < CHILDREN; i++)
			wrong |= wait(&status) > 0 ? status : 1;
		wrong |= directories();
	}
	return wrong ? 1 : 0;
}

static void test_make_once(void **state)
{
	assert_int_equal(in_child(make_once), 0);
	assert_string_equal(said, "");
}

/* ---- what others wrote ---- */

static struct vb_registry_file *map_file(void)
{
	char path[160];
	void *at;
	int fd;

	find_directory(path, sizeof(path));
	strcat(path, "/registry");
	fd = open(path, O_RDWR | O_CLOEXEC);
	at = mmap(NULL, sizeof(struct vb_registry_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

/* Any bytes in the entries, or in slots, too: numbers that could be, no crash, and room for a program. */
static int nonsense(void)
{
	struct vb_registry_file *file;
	struct vb_eus_user *user;
	struct vb_eu_view view;
	pid_t one;

	if (mount_shm(NULL, 0) || join() || users(0, &one) || /* there are no entries yet */
	    vb_eus_user_begin(&registry, "mlx5_0", EUS, &user, &view) || !(file = map_file()))
		return 99;
	vb_eus_user_end(user);
	srandom(1);
	for (int round = 0; round < 200; round++) {
		bool slots = round % 2;
		unsigned char *at = slots ? (void *)file->slot : (void *)file->use;
		size_t size = slots ? sizeof(file->slot) + sizeof(file->use) : sizeof(file->use);
		struct vb_slot own = file->slot[registry.self.slot];

		for (size_t i = 0; i < size; i++)
			at[i] = (unsigned char)(random() >> 7);
		file->slot[registry.self.slot] = own;
		if (users(0, &one) || users(1 + (unsigned int)round % 15, &one))
			return 1; /* nobody has those */
		if (vb_eus_user_begin(&registry, "mlx5_0", EUS, &user, &view))
			return 2;
		if (users(0, &one) != 1 || one != getpid())
			return 3;
		vb_eus_user_end(user);
	}
	return 0;
}

static int entries(void)
{
	static struct vb_eus_user *user[VB_EU_USES];
	struct vb_registry_file *file;
	struct vb_eus_user *more = NULL;
	struct vb_eu_view view;
	pid_t one;

	if (mount_shm(NULL, 0) || join())
		return 99;
	for (unsigned int i = 0; i < VB_EU_USES; i++)
		if (vb_eus_user_begin(&registry, "mlx5_0", EUS, &user[i], &view))
			return 1;
	if (!(file = map_file()))
		return 98;
	/* As many as a process says, and not more than it can have: the sum is a number. */
	for (unsigned int i = 0; i < VB_EU_USES; i++)
		file->use[i].processes = UINT32_MAX;
	if (users(0, &one) != VB_EU_USES << 16)
		return 2;
	/* A name without an end is no name of an adapter. */
	for (unsigned int i = 0; i < VB_EU_USES; i++)
		memset(file->use[i].card, 'm', sizeof(file->use[i].card));
	if (users(0, &one))
		return 3;
	if (vb_eus_user_begin(&registry, "mlx5_1", EUS, &more, &view) != -ENOSPC || more)
		return 4;
	vb_eus_user_end(user[77]);
	return vb_eus_user_begin(&registry, "mlx5_1", EUS, &more, &view) ? 5 : 0;
}

/* The file became shorter during a visit: who uses what cannot be seen, and nothing ends. */
static int shorter(void)
{
	struct vb_registry visit = VB_REGISTRY_INIT;
	sigset_t before;
	pid_t one;
	int ret;

	if (mount_shm(NULL, 0) || vb_registry_visit(&visit, true, &before))
		return 99;
	if (ftruncate(visit.place.lock.fd, 100))
		return 98;
	ret = vb_eus_processes(&visit, "mlx5_0", &one);
	vb_registry_quit(&visit, &before);
	return -ret;
}

static void test_nonsense(void **state)
{
	assert_int_equal(in_child(nonsense), 0);
	assert_string_equal(said, "");
	assert_int_equal(in_child(entries), 0);
	assert_said("places for programs with device code are taken");
	assert_int_equal(in_child(shorter), EUCLEAN);
	assert_said("cannot read /dev/shm/verbatim-");
}

/* A writer that was killed has left half a file: the one before counts, and the half goes with it. */
static int half_written(void)
{
	char path[160];
	FILE *f;

	if (mount_shm(NULL, 0) || change(0, "one", "0-3") != 1)
		return 99;
	find_directory(path, sizeof(path));
	strcat(path, "/eu-groups.new");
	f = fopen(path, "w");
	if (!f || fputs("verbatim-eus 1\ncard mlx5_0\ngro", f) < 0 || fclose(f))
		return 98;
	if (groups() != 1 || change(0, "two", "4") != 2 || groups() != 2)
		return 1;
	return change(1, NULL, NULL) || change(2, NULL, NULL) || directories() ? 2 : 0;
}

/* What an earlier version has left is neither read nor removed, and a file of it under our name is refused. */
static int earlier(void)
{
	char path[160], old[200];
	uint64_t magic = 0x3476676572626576ull; /* version 4 */
	int fd;

	if (mount_shm(NULL, 0))
		return 99;
	find_directory(path, sizeof(path));
	snprintf(old, sizeof(old), "%.*s-v4-eus", (int)strlen(path) - 3, path);
	if (mkdir(old, 0700))
		return 98;
	strcat(old, "/store");
	close(open(old, O_WRONLY | O_CREAT, 0600));
	if (groups() || join())
		return 1;
	vb_registry_leave(&registry);
	vb_registry_close(&registry);
	if (access(old, F_OK) || directories() != 1 || mkdir(path, 0700))
		return 2;
	strcat(path, "/registry");
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	if (fd < 0 || write(fd, &magic, sizeof(magic)) != sizeof(magic) || ftruncate(fd, 16448))
		return 3;
	close(fd);
	return -groups();
}

static void test_left_over(void **state)
{
	assert_int_equal(in_child(half_written), 0);
	assert_string_equal(said, "");
	assert_int_equal(in_child(earlier), EUCLEAN);
	assert_said("is damaged; remove that directory");
}

/* No room: what was there is still there. */
static int full(void)
{
	char path[160], name[16];
	int fd;

	if (mount_shm("size=256k", 0) || change(0, "one", "0-3") != 1)
		return 99;
	snprintf(path, sizeof(path), "/dev/shm/fill");
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	while (write(fd, path, sizeof(path)) == sizeof(path))
		;
	snprintf(name, sizeof(name), "%s", "two");
	if (change(0, name, "4") != -1 || groups() != 1)
		return 1;
	close(fd);
	unlink(path);
	return change(0, name, "4") == 2 && files() == 2 ? 0 : 2;
}

/* No room for entries is an error of the program that needs one, and of no other. */
static int full_for_entries(void)
{
	struct vb_eus_user *user = NULL;
	struct vb_eu_view view;
	int ret;

	if (mount_shm("size=32k", 0) || join())
		return 99;
	ret = -vb_eus_user_begin(&registry, "mlx5_0", EUS, &user, &view);
	return user || groups() || join() ? 98 : ret;
}

static void test_full(void **state)
{
	assert_int_equal(in_child(full), 0);
	assert_said("cannot write /dev/shm/verbatim-");
	assert_int_equal(in_child(full_for_entries), ENOSPC);
	assert_said("/dev/shm is full");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outlive),  cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_inherit),  cmocka_unit_test(test_two_hosts),
		cmocka_unit_test(test_lock),     cmocka_unit_test(test_make_once),
		cmocka_unit_test(test_nonsense), cmocka_unit_test(test_left_over),
		cmocka_unit_test(test_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
