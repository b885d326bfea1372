// SPDX-License-Identifier: MIT
/* Small arithmetic and the list of base/util.h, and descriptors that base/cancel.h closes. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/cancel.h"
#include "base/util.h"

struct item {
	int value;
	struct vb_list node;
};

static void arithmetic(void **state)
{
	(void)state;
	assert_int_equal(min_u32(3, 4), 3);
	assert_int_equal(max_u32(3, UINT32_MAX), UINT32_MAX);
	assert_int_equal(align_up(0, 64), 0);
	assert_int_equal(align_up(1, 64), 64);
	assert_int_equal(align_up(64, 64), 64);
	assert_int_equal(roundup_pow2(0), 1);
	assert_int_equal(roundup_pow2(1), 1);
	assert_int_equal(roundup_pow2(5), 8);
	assert_int_equal(roundup_pow2(8), 8);
	assert_int_equal(roundup_pow2(1u << 31), 1u << 31);
	assert_int_equal(ilog2(1), 0);
	assert_int_equal(ilog2(9), 3);
	assert_int_equal(ilog2(UINT32_MAX), 31);
}

static void expect(const struct vb_list *head, const int *values, int count)
{
	const struct vb_list *node = head;

	for (int i = 0; i < count; i++) {
		node = node->next;
		assert_ptr_equal(node->prev->next, node);
		assert_int_equal(container_of(node, struct item, node)->value, values[i]);
	}
	assert_ptr_equal(node->next, head);
	assert_ptr_equal(head->prev, node);
}

static void keeps_order(void **state)
{
	struct item item[4] = { { .value = 0 }, { .value = 1 }, { .value = 2 }, { .value = 3 } };
	struct vb_list head, *node, *after;

	(void)state;
	vb_list_init(&head);
	assert_true(vb_list_empty(&head));
	vb_list_add_tail(&head, &item[1].node);
	vb_list_add_tail(&head, &item[2].node);
	vb_list_add_head(&head, &item[0].node);
	vb_list_add_tail(&head, &item[3].node);
	assert_false(vb_list_empty(&head));
	expect(&head, (const int[]){ 0, 1, 2, 3 }, 4);
	vb_list_del(&item[2].node);
	expect(&head, (const int[]){ 0, 1, 3 }, 3);
	vb_list_for_each_safe(node, after, &head)
		if (container_of(node, struct item, node)->value != 1)
			vb_list_del(node);
	expect(&head, (const int[]){ 1 }, 1);
	vb_list_del(&item[1].node);
	assert_true(vb_list_empty(&head));
	vb_list_for_each_safe(node, after, &head)
		fail();
}

static void *use_descriptor(void *arg)
{
	_Atomic int *used = arg;
	int fd = vb_sys_open("/", O_PATH | O_CLOEXEC);
	struct stat st;
	bool good = !fstat(fd, &st) && !vb_sys_close(fd) && fcntl(fd, F_GETFD) < 0;

	atomic_store_explicit(used, good ? fd : INT_MAX, memory_order_relaxed);
	return NULL;
}

/*
 * Two threads use a descriptor of the same number, one after the other. Only the kernel orders them:
 * ThreadSanitizer reports a race unless it was told of the first one's end.
 */
static void passes_numbers_on(void **state)
{
	_Atomic int used = -1;
	pthread_t thread;
	DIR *dir;
	int fd;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, use_descriptor, &used), 0);
	while ((fd = atomic_load_explicit(&used, memory_order_relaxed)) < 0)
		sched_yield();
	dir = opendir("/");
	assert_non_null(dir);
	assert_int_equal(dirfd(dir), fd);
	assert_int_equal(closedir(dir), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arithmetic),
		cmocka_unit_test(keeps_order),
		cmocka_unit_test(passes_numbers_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
