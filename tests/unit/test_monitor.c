// SPDX-License-Identifier: MIT
/*
 * What a process shows: entries come, change and go while others read; files that are not what they
 * should be; fork and exit.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "meet/registry.h"
#include "control/show/monitor.h"

static struct vb_registry registry = VB_REGISTRY_INIT;

static int setup(void **state)
{
	struct vb_slot_info self;

	assert_int_equal(vb_registry_join(&registry, &self), 0);
	vb_monitor_start(&registry, &self);
	return 0;
}

static int teardown(void **state)
{
	vb_monitor_stop(&registry);
	vb_registry_leave(&registry);
	vb_registry_close(&registry);
	return 0;
}

/* ---- looking ---- */

struct found {
	int32_t pid;           /* of whom */
	unsigned int programs; /* 0 or 1: it shows something */
	unsigned int count;
	struct vb_monitor_thread last;
};

static int look(struct vb_monitor_view *view, void *arg)
{
	struct found *found = arg;
	struct vb_monitor_thread t;
	uint32_t count = vb_monitor_count(view, VB_MONITOR_DPA_THREAD);

	if (vb_monitor_pid(view) != found->pid)
		return 0; /* another test's */
	found->programs++;
	for (uint32_t i = 0; i < count; i++) {
		int ret = vb_monitor_read(view, VB_MONITOR_DPA_THREAD, i, 0, &t, sizeof(t));

		if (ret == -ENOENT)
			continue;
		assert_int_equal(ret, 0);
		found->count++;
		found->last = t;
	}
	return 0;
}

static struct found find(int32_t pid)
{
	struct found found = { .pid = pid };

	assert_int_equal(vb_monitor_each(look, &found), 0);
	return found;
}

static void show(struct vb_monitor_place *place, uint32_t id)
{
	struct vb_monitor_thread *t;

	assert_int_equal(vb_monitor_add(VB_MONITOR_DPA_THREAD, place), 0);
	t = place->entry;
	t->id = id;
	snprintf(t->name, sizeof(t->name), "thread %u", id);
	vb_monitor_show(place);
}

/* ---- cases ---- */

/* Bytes of shared memory that this process's file takes. */
static off_t file_bytes(void)
{
	char path[64], name[256];
	struct stat st;

	for (int fd = 3; fd < 256; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name) - 1);
		if (n < 5 || strncmp(name + n - 5, ".show", 5) || fstat(fd, &st))
			continue;
		assert_int_equal(st.st_mode & 0777, 0600);
		return st.st_blocks * 512;
	}
	fail_msg("there is no file");
	return 0;
}

static void test_entries(void **state)
{
	struct vb_monitor_place one, two;
	struct found found = find(getpid());

	assert_int_equal(found.programs, 0); /* nothing to show: no file */
	show(&one, 1);
	found = find(getpid());
	assert_int_equal(found.programs, 1);
	assert_int_equal(found.count, 1);
	assert_int_equal(found.last.id, 1);
	assert_string_equal(found.last.name, "thread 1");
	assert_true(file_bytes() <= 65536);
	assert_int_equal(vb_monitor_add(VB_MONITOR_DPA_THREAD, &two), 0);
	assert_int_equal(find(getpid()).count,
			 1); /* not shown yet: the reader does not wait for it */
	vb_monitor_show(&two);
	assert_int_equal(find(getpid()).count, 2);
	vb_monitor_remove(&one);
	vb_monitor_remove(&two);
	assert_int_equal(find(getpid()).count, 0);
	vb_monitor_remove(&two); /* empty now */
}

/* Over several chunks; room that became free is used again. */
static void test_many(void **state)
{
	enum { MANY = 16384 };
	struct vb_monitor_place *places = calloc(MANY, sizeof(*places)), again;
	struct found found;

	assert_non_null(places);
	for (uint32_t i = 0; i < MANY; i++)
		show(&places[i], i);
	assert_true(file_bytes() <= (off_t)(2 * MANY * sizeof(struct vb_monitor_thread) + 65536));
	found = find(getpid());
	assert_int_equal(found.count, MANY);
	assert_int_equal(found.last.id, MANY - 1);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(places[i].index, i);
	vb_monitor_remove(&places[77]);
	show(&again, 5);
	assert_int_equal(again.index, 77);
	places[77] = again;
	for (uint32_t i = 0; i < MANY; i++)
		vb_monitor_remove(&places[i]);
	assert_int_equal(find(getpid()).count, 0);
	free(places);
}

static void test_forked(void **state)
{
	struct vb_monitor_place place, own;
	struct vb_monitor_thread *t;
	struct vb_slot_info self;
	int status, parent = getpid();
	pid_t child;

	show(&place, 9);
	t = place.entry;
	child = fork();
	if (!child) {
		/* What the child writes, nobody sees. */
		vb_monitor_write_begin(&t->seq);
		t->id = 10;
		vb_monitor_write_end(&t->seq);
		vb_monitor_remove(&place);
		vb_registry_forked(&registry);
		if (vb_monitor_add(VB_MONITOR_DPA_THREAD, &own) != -ENODEV)
			_exit(1); /* it has not joined */
		if (vb_registry_join(&registry, &self))
			_exit(2);
		vb_monitor_start(&registry, &self);
		show(&own, 11);
		if (find(getpid()).last.id != 11 || find(parent).last.id != 9)
			_exit(3);
		vb_monitor_stop(&registry);
		vb_monitor_remove(&own); /* outlives the file */
		vb_registry_leave(&registry);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(find(parent).last.id, 9);
	vb_monitor_remove(&place);
}

static void test_killed(void **state)
{
	struct vb_monitor_place place;
	struct vb_slot_info self;
	int status, pipes[2];
	pid_t child;
	char byte;

	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (!child) {
		vb_registry_forked(&registry);
		if (vb_registry_join(&registry, &self))
			_exit(1);
		vb_monitor_start(&registry, &self);
		show(&place, 12);
		vb_monitor_write_begin(&((struct vb_monitor_thread *)place.entry)->seq);
		if (write(pipes[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(pipes[0], &byte, 1), 1);
	kill(child, SIGKILL); /* in the middle of a change */
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(find(child).count, 0);
	vb_registry_reap(&registry);
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- no torn copies ---- */

/* Until the reader has met the writer so often; other load may keep them apart. */
enum { COPIES = 5000000, CHANGES = 100000 };

static _Atomic bool stop;

static void *change(void *arg)
{
	struct vb_monitor_counters *c = &((struct vb_monitor_thread *)arg)->counters;

	for (uint64_t i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i++) {
		vb_monitor_write_begin(&c->seq);
		atomic_store_explicit(&c->ticks, i, memory_order_relaxed);
		atomic_store_explicit(&c->instructions, i * 3, memory_order_relaxed);
		atomic_store_explicit(&c->executions, ~i, memory_order_relaxed);
		vb_monitor_write_end(&c->seq);
		for (volatile uint64_t pause = 0; pause < i % 64; pause++)
			; /* so that a reader meets it at any point */
	}
	return NULL;
}

static int copy(struct vb_monitor_view *view, void *arg)
{
	struct vb_monitor_counters c;
	unsigned int *changes = arg;
	uint64_t last = 0;

	if (vb_monitor_pid(view) != getpid())
		return 0;
	for (unsigned int i = 0; i < COPIES && *changes < CHANGES; i++) {
		int ret = vb_monitor_read(view, VB_MONITOR_DPA_THREAD, 0,
					  offsetof(struct vb_monitor_thread, counters), &c,
					  sizeof(c));

		if (ret == -EAGAIN)
			continue;
		assert_int_equal(ret, 0);
		assert_int_equal(c.instructions, c.ticks * 3);
		assert_int_equal(c.executions, ~c.ticks);
		*changes += c.ticks != last;
		last = c.ticks;
	}
	return 0;
}

static int copy_one(struct vb_monitor_view *view, void *arg)
{
	struct vb_monitor_counters c;

	if (vb_monitor_pid(view) == getpid())
		*(int *)arg = vb_monitor_read(view, VB_MONITOR_DPA_THREAD, 0,
					      offsetof(struct vb_monitor_thread, counters), &c,
					      sizeof(c));
	return 0;
}

/* An owner that stopped in the middle of a change: there is no copy of it, and no reader that hangs. */
static void test_stopped(void **state)
{
	struct vb_monitor_place place;
	struct vb_monitor_thread *t;
	int ret = 0;

	show(&place, 1);
	t = place.entry;
	vb_monitor_write_begin(&t->counters.seq);
	assert_int_equal(vb_monitor_each(copy_one, &ret), 0);
	assert_int_equal(ret, -EAGAIN);
	vb_monitor_write_end(&t->counters.seq);
	assert_int_equal(vb_monitor_each(copy_one, &ret), 0);
	assert_int_equal(ret, 0);
	vb_monitor_remove(&place);
}

static void test_whole(void **state)
{
	struct vb_monitor_place place;
	struct vb_monitor_thread *t;
	unsigned int changes = 0;
	pthread_t writer;

	show(&place, 1);
	t = place.entry;
	atomic_store(&t->counters.executions, UINT64_MAX);
	stop = false;
	assert_int_equal(pthread_create(&writer, NULL, change, place.entry), 0);
	assert_int_equal(vb_monitor_each(copy, &changes), 0);
	stop = true;
	pthread_join(writer, NULL);
	assert_true(changes > 0);
	vb_monitor_remove(&place);
}

/* ---- bad files ---- */

static int view_of(const void *bytes, size_t len, struct vb_monitor_view **view, int *fd)
{
	*fd = memfd_create("show", MFD_CLOEXEC);
	assert_true(*fd >= 0);
	assert_int_equal(pwrite(*fd, bytes, len, 0), (ssize_t)len);
	return vb_monitor_view_open(*fd, view);
}

static void test_bad_files(void **state)
{
	uint64_t page[1024 * 8] = { VB_MONITOR_MAGIC }, value = 0;
	struct vb_monitor_header *header = (void *)page;
	struct vb_monitor_section *s = &header->section[3];
	struct vb_monitor_view *view;
	struct vb_monitor_thread t;
	int fd;

	assert_int_equal(view_of(page, 100, &view, &fd), -EUCLEAN); /* too short */
	close(fd);
	page[0]++;
	assert_int_equal(view_of(page, sizeof(page), &view, &fd), -EUCLEAN);
	close(fd);
	page[0]--;
	/* A section whose numbers lead everywhere. */
	s->kind = VB_MONITOR_DPA_THREAD;
	s->entry_size = sizeof(t);
	s->base = 1;
	s->count = UINT32_MAX;
	s->chunk[0] = UINT64_MAX - 100;
	s->chunk[1] = 0x8000000000000000;
	s->chunk[2] = 64;               /* the header */
	s->chunk[3] = sizeof(page) - 8; /* the end */
	s->chunk[4] = 8193;             /* misaligned */
	assert_int_equal(view_of(page, sizeof(page), &view, &fd), 0);
	assert_int_equal(vb_monitor_count(view, VB_MONITOR_DPA_THREAD), sizeof(page) / (sizeof(t)));
	assert_int_equal(vb_monitor_count(view, VB_MONITOR_DPA_PROCESS), 0);
	for (uint32_t i = 0; i < 400; i++)
		assert_int_equal(vb_monitor_read(view, VB_MONITOR_DPA_THREAD, i, 0, &t, sizeof(t)),
				 -ENOENT);
	assert_int_equal(vb_monitor_read(view, VB_MONITOR_DPA_THREAD, UINT32_MAX, 0, &t, 8),
			 -ENOENT);
	assert_int_equal(vb_monitor_read_at(view, 0, &t, sizeof(t)), -EFAULT);
	assert_int_equal(vb_monitor_read_at(view, UINT64_MAX - 7, &t, sizeof(t)), -EFAULT);
	assert_int_equal(vb_monitor_load(view, VB_MONITOR_PAGE, &value), -EFAULT);
	assert_int_equal(vb_monitor_load(view, 4, &value), -EFAULT);
	assert_int_equal(vb_monitor_swap(view, 8, &value, 5), 0);
	assert_int_equal(vb_monitor_swap(view, 8, &value, 6), -EAGAIN);
	assert_int_equal(value, 5);
	/* The file becomes shorter while it is looked at. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(vb_monitor_load(view, 0, &value), -EFAULT);
	assert_int_equal(vb_monitor_swap(view, 0, &value, 1), -EFAULT);
	assert_int_equal(vb_monitor_read_at(view, 8192, &t, sizeof(t)), -EFAULT);
	vb_monitor_view_close(view);
	close(fd);
}

/* All entries are in the middle of a change for good, and there are more than anybody has. */
static void test_never_whole(void **state)
{
	const uint32_t odd = 1;
	uint64_t page[2048] = { VB_MONITOR_MAGIC };
	struct vb_monitor_header *header = (void *)page;
	struct vb_monitor_section *s = &header->section[0];
	struct vb_monitor_view *view;
	struct vb_monitor_accelerator a;
	struct vb_monitor_thread t;
	uint64_t offset = sizeof(page);
	uint32_t count;
	int fd;

	for (unsigned int i = 0; i < 2; i++) {
		s[i].kind = i ? VB_MONITOR_ACCELERATOR : VB_MONITOR_DPA_THREAD;
		s[i].entry_size = i ? sizeof(a) : sizeof(t);
		s[i].base = 64;
		s[i].count = UINT32_MAX;
		for (unsigned int k = 0; k < VB_MONITOR_CHUNKS; k++) {
			s[i].chunk[k] = offset;
			offset += i ? 0 : (uint64_t)(64 << k) * sizeof(t);
		}
	}
	fd = memfd_create("show", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, VB_MONITOR_MAX_SIZE), 0);
	assert_int_equal(pwrite(fd, page, sizeof(page), 0), sizeof(page));
	for (uint64_t at = sizeof(page); at < VB_MONITOR_MAX_SIZE; at += sizeof(t))
		assert_int_equal(pwrite(fd, &odd, sizeof(odd), (off_t)at), sizeof(odd));
	assert_int_equal(vb_monitor_view_open(fd, &view), 0);
	assert_int_equal(vb_monitor_count(view, VB_MONITOR_ACCELERATOR), 256);
	count = vb_monitor_count(view, VB_MONITOR_DPA_THREAD);
	assert_int_equal(count, 131072);
	for (uint32_t i = 0; i < count; i++)
		assert_int_not_equal(
			vb_monitor_read(view, VB_MONITOR_DPA_THREAD, i, 0, &t, sizeof(t)), 0);
	vb_monitor_view_close(view);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_entries, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_forked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stopped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
		cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_never_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
