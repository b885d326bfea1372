// SPDX-License-Identifier: MIT
/*
 * The socket at which tools ask a program, and its table of services: who is found, served, made to wait and
 * refused, and what is left after fork and exit. Program and tool are this process, or a child.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/tsan.h"
#include "control/ask/ask.h"
#include "control/ask/client.h"

enum { STATUS = 7, FLOOD = 2000, CROWD = 300, DESCRIPTORS = 80, PATIENCE_MS = 30000 };

/* ---- services -------------------------------------------------------------------------------- */

static _Atomic unsigned int served; /* by turns */
static sem_t entered, go_on;        /* of turns */

/* Answers with the words, and then each byte that follows. */
static void echo_serve(const struct vb_file *file, const char *words)
{
	char byte;

	if (!vb_ask_answer(file, 0, (uint32_t)strlen(words), words))
		return;
	vb_peer_patience(file->fd, 0);
	while (vb_peer_read(file->fd, &byte, 1) && vb_peer_write(file->fd, &byte, 1))
		;
}

/* Answers when it is let go on. */
static void turn_serve(const struct vb_file *file, const char *words)
{
	atomic_fetch_add(&served, 1);
	sem_post(&entered);
	sem_wait(&go_on);
	vb_ask_answer(file, -EBUSY, 0, "my turn is over");
}

static _Atomic int *left; /* shared with children */

static void echo_leave(int status)
{
	atomic_store(left, status);
}

static struct vb_ask_service echo = {
	.name = "echo", .at_once = UINT_MAX, .serve = echo_serve, .leave = echo_leave
};
static struct vb_ask_service turns = { .name = "turns", .at_once = 1, .serve = turn_serve };

/* ---- tools ----------------------------------------------------------------------------------- */

static uint32_t key;

static int ask(const char *service, const char *words, struct vb_ask_answer *answer)
{
	return vb_ask_open(&(struct vb_ask_process){ .key = key }, service, words, answer);
}

/* A connection without a request. */
static int peer(void)
{
	struct sockaddr_un to;
	char name[96];
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name, sizeof(name), "verbatim/%u/%llu/%d/%08x", geteuid(), vb_peer_namespace(),
		 (int)getpid(), key);
	len = vb_peer_address(&to, name);
	assert_true(fd >= 0 && !connect(fd, (struct sockaddr *)&to, len));
	return fd;
}

static struct vb_ask_request request(const char *service, const char *words)
{
	struct vb_ask_request r = { .magic = VB_ASK_MAGIC };

	snprintf(r.service, sizeof(r.service), "%s", service);
	snprintf(r.words, sizeof(r.words), "%s", words);
	return r;
}

/* What is answered to bytes, at the end of which the peer waits: the status, 1 where there is none. */
static int status_of(const void *bytes, size_t len)
{
	struct vb_ask_answer answer;
	int fd = peer(), status = 1;

	assert_true(vb_peer_write(fd, bytes, len));
	if (vb_peer_read(fd, &answer, sizeof(answer)))
		status = answer.status;
	close(fd);
	return status;
}

static bool echoes(int fd)
{
	char byte = 'x';

	return vb_peer_write(fd, "e", 1) && vb_peer_read(fd, &byte, 1) && byte == 'e';
}

static bool ended(int fd)
{
	char byte;

	vb_peer_patience(fd, PATIENCE_MS / 1000);
	return recv(fd, &byte, 1, 0) == 0;
}

static unsigned int descriptors(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Other programs of the user may listen, too. */
static bool listens(void)
{
	uint32_t *keys;
	int n = vb_ask_list(&keys);
	bool found = false;

	assert_true(n >= 0);
	for (int i = 0; i < n; i++)
		found |= keys[i] == key;
	free(keys);
	return found;
}

static void await_silence(void)
{
	for (int ms = 0; listens(); ms += 10) {
		assert_true(ms < PATIENCE_MS);
		usleep(10000);
	}
}

static int setup(void **state)
{
	vb_ask_serve(&echo);
	vb_ask_serve(&turns);
	vb_ask_serve(&echo); /* is there already */
	return vb_ask_hold(&key);
}

static int teardown(void **state)
{
	vb_ask_release();
	return 0;
}

/* ---- services and requests ------------------------------------------------------------------- */

static void test_words_and_what_follows(void **state)
{
	struct vb_ask_process program = { .key = key };
	struct vb_ask_answer answer;
	int fd = vb_ask_open(&program, "echo", "some words", &answer);

	assert_true(fd >= 0);
	assert_int_equal(program.pid, getpid());
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.count, 10);
	assert_string_equal(answer.words, "some words");
	for (int i = 0; i < 1000; i++)
		assert_true(echoes(fd));
	close(fd);
}

static void test_unknown_service(void **state)
{
	struct vb_ask_answer answer;

	assert_int_equal(ask("nothing", "", &answer), -EPROTONOSUPPORT);
	assert_int_equal(ask("", "", &answer), -EPROTONOSUPPORT);
	assert_int_equal(ask("ech", "", &answer), -EPROTONOSUPPORT);
	assert_int_equal(ask("echoes", "", &answer), -EPROTONOSUPPORT);
}

static void test_requests_that_are_wrong(void **state)
{
	struct vb_ask_request r = request("echo", "x");

	r.magic++;
	assert_int_equal(status_of(&r, sizeof(r)), -EPROTONOSUPPORT);
	r = request("echo", "x");
	memset(r.service, 'e', sizeof(r.service));
	assert_int_equal(status_of(&r, sizeof(r)), -EPROTONOSUPPORT);
	r = request("echo", "x");
	memset(r.words, 'x', sizeof(r.words));
	assert_int_equal(status_of(&r, sizeof(r)), -EINVAL);
	r.words[sizeof(r.words) - 1] = '\0';
	assert_int_equal(status_of(&r, sizeof(r)), 0);
}

/* Byte by byte, or with an end in the middle. */
static void test_half_requests(void **state)
{
	struct vb_ask_request r = request("echo", "slow");
	struct vb_ask_answer answer;
	int fd;

	for (size_t len = 0; len < sizeof(r); len += 31) {
		fd = peer();
		assert_true(vb_peer_write(fd, &r, len));
		shutdown(fd, SHUT_WR);
		assert_true(ended(fd));
		close(fd);
	}
	fd = peer();
	for (size_t i = 0; i < sizeof(r); i++)
		assert_true(vb_peer_write(fd, (char *)&r + i, 1));
	assert_true(vb_peer_read(fd, &answer, sizeof(answer)));
	assert_string_equal(answer.words, "slow");
	close(fd);
}

/* ---- several at a time ----------------------------------------------------------------------- */

struct question {
	pthread_t thread;
	const char *service;
	struct vb_ask_answer answer;
	int ret;
};

static void *question_main(void *arg)
{
	struct question *q = arg;

	q->ret = ask(q->service, "now", &q->answer);
	if (q->ret >= 0)
		close(q->ret);
	return NULL;
}

static void question_begin(struct question *q, const char *service)
{
	q->service = service;
	assert_int_equal(pthread_create(&q->thread, NULL, question_main, q), 0);
}

/* One that waits keeps neither the listener nor another service. */
static void test_two_services_at_once(void **state)
{
	struct question slow, quick;
	struct vb_ask_answer answer;
	int fd = ask("echo", "", &answer);

	question_begin(&slow, "turns");
	sem_wait(&entered);
	question_begin(&quick, "echo");
	pthread_join(quick.thread, NULL);
	assert_true(quick.ret >= 0);
	assert_true(echoes(fd));
	sem_post(&go_on);
	pthread_join(slow.thread, NULL);
	assert_int_equal(slow.ret, -EBUSY);
	assert_string_equal(slow.answer.words, "my turn is over");
	close(fd);
}

/* One at a time, where the service says so; one that has gone is passed over. */
static void test_turns(void **state)
{
	struct vb_ask_request r = request("turns", "gone");
	struct question q[8];
	int gone[8];

	atomic_store(&served, 0);
	question_begin(&q[0], "turns");
	sem_wait(&entered);
	for (int i = 0; i < 8; i++) {
		gone[i] = peer();
		assert_true(vb_peer_write(gone[i], &r, sizeof(r)));
		close(gone[i]);
	}
	for (int i = 1; i < 8; i++)
		question_begin(&q[i], "turns");
	assert_int_equal(atomic_load(&served), 1);
	for (int i = 0; i < 8; i++)
		sem_post(&go_on);
	for (int i = 0; i < 8; i++) {
		pthread_join(q[i].thread, NULL);
		assert_int_equal(q[i].ret, -EBUSY);
	}
	assert_int_equal(atomic_load(&served), 8);
	while (!sem_trywait(&entered))
		;
}

/* ---- hostile peers --------------------------------------------------------------------------- */

/* Silent ones give way: there are as many descriptors as places, and a tool that speaks is served. */
static void test_crowd(void **state)
{
	static int crowd[CROWD];
	unsigned int before = descriptors();
	struct vb_ask_answer answer;
	int fd;

	for (int i = 0; i < CROWD; i++)
		crowd[i] = peer();
	fd = ask("echo", "", &answer);
	assert_true(fd >= 0);
	assert_true(descriptors() - before < CROWD + DESCRIPTORS);
	for (int i = 0; i < CROWD; i++)
		close(crowd[i]);
	assert_true(echoes(fd));
	close(fd);
}

static void test_flood(void **state)
{
	struct vb_ask_request r = request("echo", "flood");
	struct vb_ask_answer answer;
	int fd;

	for (int i = 0; i < FLOOD; i++) {
		fd = peer();
		assert_true(vb_peer_write(fd, &r, (size_t)i % (sizeof(r) + 1)));
		close(fd);
	}
	fd = ask("echo", "after", &answer);
	assert_true(fd >= 0);
	close(fd);
}

/* More than there are places for, each with a thread: the rest is told so. */
static void test_too_many_that_are_served(void **state)
{
	struct vb_ask_answer answer;
	int fds[DESCRIPTORS], n = 0;

	do
		fds[n] = ask("echo", "", &answer);
	while (fds[n] >= 0 && ++n < DESCRIPTORS);
	assert_true(n >= 32 && n < DESCRIPTORS);
	assert_int_equal(fds[n], -EUSERS);
	for (int i = 0; i < n; i++) {
		assert_true(echoes(fds[i]));
		close(fds[i]);
	}
	/* Their places come back. */
	while ((fds[0] = ask("echo", "", &answer)) == -EUSERS)
		usleep(1000);
	assert_true(fds[0] >= 0);
	close(fds[0]);
}

/* ---- listening ------------------------------------------------------------------------------- */

static int wakes;

static int wake(void *arg)
{
	wakes++;
	vb_ask_asked();
	return 0;
}

static int wake_nothing(void *arg)
{
	return -ESRCH;
}

/* Only while it is held, or was asked lately. */
static void test_only_while_asked(void **state)
{
	struct vb_ask_process program = { .pid = getpid() };
	struct vb_ask_answer answer;
	int fd;

	vb_ask_release();
	await_silence();
	assert_int_equal(vb_ask_open(&program, "echo", "", &answer), -ENOENT);
	program.wake = wake_nothing;
	assert_int_equal(vb_ask_open(&program, "echo", "", &answer), -ESRCH);
	program.wake = wake;
	fd = vb_ask_open(&program, "echo", "", &answer);
	assert_true(fd >= 0);
	assert_true(wakes > 0);
	assert_true(listens());
	await_silence();
	assert_true(echoes(fd)); /* what is served stays */
	close(fd);
	assert_int_equal(vb_ask_hold(&key), 0);
}

/* The program closes what it did not open. */
static void test_socket_that_the_program_closes(void **state)
{
	struct vb_ask_answer answer;
	int fd, on = 0;
	socklen_t len = sizeof(on);
	uint32_t again;

	for (fd = 3; fd < 4096; fd++)
		if (!getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) && on)
			close(fd);
	assert_int_equal(vb_ask_hold(&again), 0);
	assert_int_equal(again, key);
	fd = ask("echo", "", &answer);
	assert_true(fd >= 0);
	close(fd);
	vb_ask_release();
}

/* ---- fork and exit --------------------------------------------------------------------------- */

/* A child that waits does not outlive a test that fails. Under ThreadSanitizer children start no threads. */
static pid_t child_begin(void)
{
	pid_t child;

#ifdef VB_TSAN
	skip();
#endif
	fflush(NULL);
	child = fork();

	assert_true(child >= 0);
	if (!child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

static void child_end(pid_t child, int status)
{
	int got;

	assert_int_equal(waitpid(child, &got, 0), child);
	assert_true(WIFEXITED(got));
	assert_int_equal(WEXITSTATUS(got), status);
}

/* A child has neither socket nor connection of its parent, and can be asked itself. */
static void test_fork_with_a_connection(void **state)
{
	struct vb_ask_answer answer;
	int fd = ask("echo", "", &answer), pipes[2], own;
	uint32_t other;
	pid_t child;
	char byte;

	assert_true(fd >= 0 && !pipe(pipes));
	child = child_begin();
	if (!child) {
		close(fd);
		if (vb_ask_hold(&other) || other == key)
			_exit(1);
		key = other;
		own = ask("echo", "of the child", &answer);
		if (own < 0 || !echoes(own))
			_exit(2);
		vb_ask_release();
		if (write(pipes[1], &other, sizeof(other)) != sizeof(other))
			_exit(3);
		pause();
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &other, sizeof(other)), sizeof(other));
	assert_true(echoes(fd));
	/* The end is the service's, though the child lives. */
	shutdown(fd, SHUT_WR);
	vb_peer_patience(fd, PATIENCE_MS / 1000);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(pipes[0]);
}

static void child_main(int out, int in)
{
	uint32_t own;
	char byte;

	if (vb_ask_hold(&own) || write(out, &own, sizeof(own)) != sizeof(own) ||
	    read(in, &byte, 1) != 1)
		_exit(1);
	exit(STATUS);
}

/* Services hear of it; its status stays, and nobody is waited for. */
static void test_exit_with_a_connection(void **state)
{
	uint32_t mine = key;
	struct vb_ask_answer answer;
	int out[2], in[2], fd, other;
	pid_t child;

	assert_true(!pipe(out) && !pipe(in));
	atomic_store(left, -1);
	child = child_begin();
	if (!child)
		child_main(out[1], in[0]);
	close(out[1]);
	close(in[0]);
	assert_int_equal(read(out[0], &key, sizeof(key)), sizeof(key));
	fd = ask("echo", "", &answer);
	assert_true(fd >= 0 && echoes(fd));
	other = vb_ask_open(&(struct vb_ask_process){ .pid = child }, "echo", "by its pid",
			    &answer);
	assert_true(other >= 0);
	assert_int_equal(write(in[1], "", 1), 1);
	child_end(child, STATUS);
	assert_int_equal(atomic_load(left), STATUS);
	assert_true(ended(fd));
	assert_true(ended(other));
	assert_int_equal(ask("echo", "", &answer), -ENOENT);
	close(fd);
	close(other);
	close(out[0]);
	close(in[1]);
	key = mine;
}

/* A child that no handler of forks saw exits: to the debuggers of its parent that means nothing. */
static void test_exit_of_a_raw_child(void **state)
{
	struct vb_ask_answer answer;
	int fd = ask("echo", "", &answer);
	pid_t child;

	assert_true(fd >= 0);
	atomic_store(left, -1);
	fflush(NULL);
	child = _Fork();
	if (!child)
		exit(STATUS);
	child_end(child, STATUS);
	assert_int_equal(atomic_load(left), -1);
	assert_true(echoes(fd));
	close(fd);
}

/* A program that is asked while it forks, again and again: all answers come, and no child hangs. */
static void *ask_for_long(void *arg)
{
	_Atomic bool *over = arg;
	struct vb_ask_answer answer;

	while (!atomic_load(over)) {
		int fd = ask("echo", "", &answer);

		if (fd < 0 && fd != -EUSERS) /* the ones before may still be leaving */
			return arg;
		close(fd);
	}
	return NULL;
}

static void test_forks_while_asked(void **state)
{
	_Atomic bool over = false;
	struct vb_ask_answer answer;
	uint32_t other;
	pthread_t thread;
	void *failure;
	pid_t child;

#ifdef VB_TSAN
	skip();
#endif
	assert_int_equal(pthread_create(&thread, NULL, ask_for_long, &over), 0);
	for (int i = 0; i < 50; i++) {
		child = child_begin();
		if (!child) {
			bool good = !vb_ask_hold(&other);

			key = other;
			_exit(good && ask("echo", "", &answer) >= 0 ? 0 : 1);
		}
		child_end(child, 0);
	}
	atomic_store(&over, true);
	pthread_join(thread, &failure);
	assert_null(failure);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_and_what_follows),
		cmocka_unit_test(test_unknown_service),
		cmocka_unit_test(test_requests_that_are_wrong),
		cmocka_unit_test(test_half_requests),
		cmocka_unit_test(test_two_services_at_once),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_too_many_that_are_served),
		cmocka_unit_test(test_only_while_asked),
		cmocka_unit_test(test_socket_that_the_program_closes),
		cmocka_unit_test(test_fork_with_a_connection),
		cmocka_unit_test(test_exit_with_a_connection),
		cmocka_unit_test(test_exit_of_a_raw_child),
		cmocka_unit_test(test_forks_while_asked),
	};

	sem_init(&entered, 0, 0);
	sem_init(&go_on, 0, 0);
	left = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, setup, teardown);
}
