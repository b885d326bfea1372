// SPDX-License-Identifier: MIT
/* The wait object: sleeps end by the word, by a descriptor and by time, and no wake-up is lost. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/time.h"
#include "host/wait.h"

enum { AWAKE, ASLEEP, ROUNDS = 2000 };

struct bed {
	struct vb_wait wait;
	_Atomic uint32_t *word; /* shared with children */
};

static void wake(void *arg)
{
	struct bed *bed = arg;

	atomic_store(bed->word, AWAKE);
	vb_wait_wake(&bed->wait);
}

static int setup(void **state)
{
	static struct bed bed;

	bed.word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(bed.word != MAP_FAILED);
	vb_wait_init(&bed.wait, wake, &bed);
	bed.wait.word = bed.word;
	*state = &bed;
	return 0;
}

static int teardown(void **state)
{
	struct bed *bed = *state;

	vb_wait_destroy(&bed->wait);
	munmap((void *)bed->word, 4096);
	return 0;
}

/* Returns once somebody has set the word to AWAKE. */
static void sleep_until_woken(struct bed *bed)
{
	while (atomic_load(bed->word) == ASLEEP)
		vb_wait_sleep(&bed->wait, ASLEEP, UINT64_MAX);
}

static void test_word(void **state)
{
	struct bed *bed = *state;

	/* The word does not say so any more: no sleep. */
	atomic_store(bed->word, AWAKE);
	vb_wait_sleep(&bed->wait, ASLEEP, UINT64_MAX);
	/* Time ends it. */
	atomic_store(bed->word, ASLEEP);
	vb_wait_sleep(&bed->wait, ASLEEP, vb_now_ns() + 1000000);
	assert_int_equal(atomic_load(bed->word), ASLEEP);
}

/* Another process changes the word, as a peer does. */
static void test_other_process(void **state)
{
	struct bed *bed = *state;
	pid_t pid;
	int status;

	atomic_store(bed->word, ASLEEP);
	pid = fork();
	if (!pid) {
		for (int i = 0; i < ROUNDS; i++) {
			while (atomic_load(bed->word) != ASLEEP)
				;
			wake(bed);
		}
		_exit(0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		sleep_until_woken(bed);
		if (i + 1 < ROUNDS)
			atomic_store(bed->word, ASLEEP);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void *ring(void *arg)
{
	eventfd_write(*(int *)arg, 1);
	return NULL;
}

/* A descriptor ends the sleep, is handed out once, and again when there is something new. */
static void test_descriptor(void **state)
{
	struct bed *bed = *state;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	eventfd_t value;

	assert_int_equal(vb_wait_add(&bed->wait, fd), 0);
	assert_int_equal(vb_wait_take(&bed->wait), -1);
	for (int i = 0; i < 200; i++) {
		pthread_t thread;

		atomic_store(bed->word, ASLEEP);
		assert_int_equal(pthread_create(&thread, NULL, ring, &fd), 0);
		sleep_until_woken(bed);
		pthread_join(thread, NULL);
		assert_int_equal(vb_wait_take(&bed->wait), fd);
		assert_int_equal(eventfd_read(fd, &value), 0);
		/* It was armed again while still readable: that report is allowed, and stands for nothing. */
		if (vb_wait_take(&bed->wait) == fd)
			assert_int_equal(eventfd_read(fd, &value), -1);
	}
	vb_wait_remove(&bed->wait, fd);
	eventfd_write(fd, 1);
	usleep(2000);
	assert_int_equal(vb_wait_take(&bed->wait), -1);
	close(fd);
}

/* Two descriptors and the word at once: nothing is lost. */
static void test_both(void **state)
{
	struct bed *bed = *state;
	int fds[2] = { eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
		       eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) };
	uint64_t seen = 0;
	eventfd_t value;

	for (int i = 0; i < 2; i++)
		assert_int_equal(vb_wait_add(&bed->wait, fds[i]), 0);
	for (uint64_t sent = 0; sent < ROUNDS; sent++) {
		int fd;

		atomic_store(bed->word, ASLEEP);
		eventfd_write(fds[sent % 2], 1);
		while (seen <= sent) {
			sleep_until_woken(bed);
			atomic_store(bed->word, ASLEEP);
			while ((fd = vb_wait_take(&bed->wait)) >= 0)
				while (!eventfd_read(fd, &value))
					seen += value;
		}
	}
	assert_int_equal(seen, ROUNDS);
	for (int i = 0; i < 2; i++)
		close(fds[i]);
}

static void test_bad_descriptor(void **state)
{
	struct bed *bed = *state;

	assert_int_equal(vb_wait_add(&bed->wait, -1), -EBADF);
	vb_wait_remove(&bed->wait, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_word, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_process, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptor, setup, teardown),
		cmocka_unit_test_setup_teardown(test_both, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_descriptor, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
