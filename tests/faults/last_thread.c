// SPDX-License-Identifier: MIT
/*
 * A program ends with its own last thread, as it does without a card: its main thread may end first (pthread_exit), others
 * that never heard of the card may be the last. Then handlers of atexit() run and the status is 0. Signals are for the
 * program's threads: one that all of them block is there for whoever waits for it, and SIGTERM ends the process. A program
 * whose main thread has ended can open a card, although /proc/self shows little of such a process.
 */
#include "../programs/common.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

static void at_exit(void)
{
	msg_send(ROLE_FD, "e", 1);
}

static void *end_later(void *arg)
{
	sleep_ms(50);
	msg_send(ROLE_FD, "t", 1);
	return arg;
}

static void *wait_for_term(void *arg)
{
	sigset_t set;
	int sig = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	msg_send(ROLE_FD, "r", 1);
	check_eq(sigwait(&set, &sig), 0);
	check_eq(sig, SIGTERM);
	msg_send(ROLE_FD, "s", 1);
	return arg;
}

static void *stay(void *arg)
{
	msg_send(ROLE_FD, "r", 1);
	for (;;)
		pause();
	return arg;
}

static void start(void *(*body)(void *), bool detached, void *arg)
{
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, body, arg), 0);
	if (detached)
		pthread_detach(thread);
}

/* The card with all its threads: one that was there before them would not know of them. */
static void use_card(struct node *a, struct node *b)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.events = true;
	node_pair(a, b, &attr);
	check_eq(node_recv(b, 1, 0, 64), 0);
	check_eq(node_send(a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(a->send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(b->recv_cq, 1, IBV_WC_SUCCESS);
}

/* The main thread has ended when /proc/self has no working directory any more. */
static void *open_later(void *arg)
{
	static struct node a, b;
	char name[4096];

	while (readlink("/proc/self/cwd", name, sizeof(name)) >= 0)
		sleep_ms(1);
	use_card(&a, &b);
	msg_send(ROLE_FD, "o", 1);
	if (arg) {
		node_close(&a);
		node_close(&b);
	}
	return NULL;
}

static int program(const char *role)
{
	struct node a, b;
	sigset_t set;

	check_eq(atexit(at_exit), 0);
	if (!strcmp(role, "early"))
		start(end_later, true, NULL);
	if (!strcmp(role, "late") || !strcmp(role, "late closed")) {
		start(open_later, true, !strcmp(role, "late closed") ? &set : NULL);
		pthread_exit(NULL);
	}
	use_card(&a, &b);
	if (!strcmp(role, "closed")) {
		node_close(&a);
		node_close(&b);
	}
	if (!strcmp(role, "others"))
		for (int i = 0; i < 4; i++)
			start(end_later, i % 2, NULL);
	if (!strcmp(role, "sigwait")) {
		sigfillset(&set);
		pthread_sigmask(SIG_SETMASK, &set, NULL);
		start(wait_for_term, true, NULL);
	}
	if (!strcmp(role, "stay"))
		start(stay, true, NULL);
	pthread_exit(NULL);
}

/* It says this, in this order, and ends with this status. */
static void run(const char *role, const char *says, int signal_after, int status)
{
	int fd, ended = -1;
	pid_t pid = spawn_self(role, &fd);
	char word;

	for (int i = 0; says[i]; i++) {
		msg_recv(fd, &word, 1);
		check(word == says[i], "%s: said '%c', not '%c'", role, word, says[i]);
		if (i + 1 == signal_after)
			check_eq(kill(pid, SIGTERM), 0);
	}
	check_eq(waitpid(pid, &ended, 0), pid);
	check(ended == status, "%s: wait status %#x, not %#x", role, (unsigned int)ended,
	      (unsigned int)status);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return program(argv[1]);
	for (int i = 0; i < campaign(3, 300); i++) {
		run("alone", "e", 0, 0);
		run("closed", "e", 0, 0);
		run("early", "te", 0, 0);
		run("late", "oe", 0, 0);
		run("late closed", "oe", 0, 0);
		run("others", "tttte", 0, 0);
		run("sigwait", "rse", 1, 0);
		run("stay", "r", 1, SIGTERM);
	}
	return 0;
}
