// SPDX-License-Identifier: MIT
/* Waits with a mask of their own, which lasts no longer than they do. */
#include "rows.h"

#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static const struct timespec now, never = { .tv_nsec = -1 };
static int ends[2];

static void handler(int sig)
{
}

static void say_mask(void)
{
	sigset_t mask;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	say_set("mask", &mask);
}

/* Descriptor 0 of ends can be read. */
static void make_pipe(void)
{
	if (pipe(ends) || write(ends[1], "x", 1) != 1)
		_exit(1);
}

static void fill(sigset_t *set)
{
	memset(set, 0xff, sizeof(*set));
}

/* One that waits, and that an empty mask lets in. */
static void send_blocked(int sig)
{
	sigset_t set;

	signal(sig, handler);
	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(sig);
}

/* It has no other result. */
static void good_sigsuspend(void)
{
	sigset_t none;

	sigemptyset(&none);
	send_blocked(SIGUSR1);
	CALL(NUMBER, sigsuspend(&none));
	say_mask();
}

static void bad_sigsuspend(void)
{
	CALL(NUMBER, sigsuspend(NULL));
	say_mask();
}

static void good_ppoll(void)
{
	struct pollfd fds[2];
	sigset_t all, none;

	make_pipe();
	fill(&all);
	sigemptyset(&none);
	fds[0] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = -1 };
	CALL(NUMBER, ppoll(fds, 2, NULL, &all));
	CALL(NUMBER, ppoll(fds, 2, &now, NULL));
	CALL(NUMBER, ppoll(fds + 1, 1, &now, &all));
	say_mask();
	send_blocked(SIGUSR1);
	CALL(NUMBER, ppoll(fds + 1, 1, NULL, &none));
	say_mask();
}

static void bad_ppoll(void)
{
	struct pollfd one = { .fd = -1 };
	sigset_t all;

	fill(&all);
	CALL(NUMBER, ppoll(&one, 1, &never, &all));
	CALL(NUMBER, ppoll((struct pollfd *)8, 1, &now, &all));
	CALL(NUMBER, ppoll(&one, 1ul << 40, &now, &all));
	say_mask();
}

typedef int ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		      const sigset_t *set, size_t size);

static void good___ppoll_chk(void)
{
	ppoll_chk *checked = named("__ppoll_chk");
	struct pollfd one = { .events = POLLIN };
	sigset_t all;

	make_pipe();
	fill(&all);
	one.fd = ends[0];
	CALL(NUMBER, checked(&one, 1, NULL, &all, sizeof(one)));
	say_mask();
}

static void bad___ppoll_chk(void)
{
	ppoll_chk *checked = named("__ppoll_chk");
	struct pollfd one = { .fd = -1 };

	CALL(NUMBER, checked(&one, 1, &never, NULL, sizeof(one)));
	SAY_END(checked(&one, 2, &now, NULL, sizeof(one)));
}

static void good_pselect(void)
{
	sigset_t all, none;
	fd_set set;

	make_pipe();
	fill(&all);
	sigemptyset(&none);
	FD_ZERO(&set);
	FD_SET(ends[0], &set);
	CALL(NUMBER, pselect(ends[0] + 1, &set, NULL, NULL, NULL, &all));
	CALL(NUMBER, pselect(0, NULL, NULL, NULL, &now, &all));
	CALL(NUMBER, pselect(0, NULL, NULL, NULL, &now, NULL));
	say_mask();
	send_blocked(SIGUSR1);
	CALL(NUMBER, pselect(0, NULL, NULL, NULL, NULL, &none));
	say_mask();
}

static void bad_pselect(void)
{
	sigset_t all;
	fd_set set;

	fill(&all);
	FD_ZERO(&set);
	FD_SET(999, &set);
	CALL(NUMBER, pselect(1000, &set, NULL, NULL, &now, &all));
	CALL(NUMBER, pselect(-1, NULL, NULL, NULL, &now, &all));
	CALL(NUMBER, pselect(0, NULL, NULL, NULL, &never, &all));
	say_mask();
}

/* A set of descriptors that has one that can be read. */
static int watch(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd = epoll_create1(0);

	make_pipe();
	if (epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], &event))
		_exit(1);
	return fd;
}

static void good_epoll_pwait(void)
{
	struct epoll_event event;
	sigset_t all, none;
	int fd = watch(), empty = epoll_create1(0);

	fill(&all);
	sigemptyset(&none);
	CALL(NUMBER, epoll_pwait(fd, &event, 1, -1, &all));
	CALL(NUMBER, epoll_pwait(empty, &event, 1, 0, &all));
	CALL(NUMBER, epoll_pwait(empty, &event, 1, 0, NULL));
	say_mask();
	send_blocked(SIGUSR1);
	CALL(NUMBER, epoll_pwait(empty, &event, 1, -1, &none));
	say_mask();
}

static void bad_epoll_pwait(void)
{
	struct epoll_event event;
	sigset_t all;

	fill(&all);
	CALL(NUMBER, epoll_pwait(-1, &event, 1, 0, &all));
	CALL(NUMBER, epoll_pwait(STDIN_FILENO, &event, 1, 0, &all));
	CALL(NUMBER, epoll_pwait(epoll_create1(0), &event, 0, 0, &all));
	say_mask();
}

static void good_epoll_pwait2(void)
{
	struct epoll_event event;
	sigset_t all;
	int fd = watch(), empty = epoll_create1(0);

	fill(&all);
	CALL(NUMBER, epoll_pwait2(fd, &event, 1, NULL, &all));
	CALL(NUMBER, epoll_pwait2(empty, &event, 1, &now, &all));
	CALL(NUMBER, epoll_pwait2(empty, &event, 1, &now, NULL));
	say_mask();
}

static void bad_epoll_pwait2(void)
{
	struct epoll_event event;
	sigset_t all;

	fill(&all);
	CALL(NUMBER, epoll_pwait2(-1, &event, 1, &now, &all));
	CALL(NUMBER, epoll_pwait2(epoll_create1(0), &event, 1, &never, &all));
	say_mask();
}

/*
 * The two signals that Verbatim keeps, sent by a process while the program blocks them: without a
 * card there is no handler of ours that would hold them off (docs/in-your-process.md).
 */
static void held_faults(void)
{
	struct pollfd none = { .fd = -1 };
	sigset_t empty;

	sigemptyset(&empty);
	send_blocked(SIGSEGV);
	CALL(NUMBER, sigsuspend(&empty));
	say_mask();
	send_blocked(SIGBUS);
	CALL(NUMBER, ppoll(&none, 1, NULL, &empty));
	say_mask();
	send_blocked(SIGSEGV);
	CALL(NUMBER, epoll_pwait(epoll_create1(0), &(struct epoll_event){ 0 }, 1, -1, &empty));
	send_blocked(SIGBUS);
	CALL(NUMBER, pselect(0, NULL, NULL, NULL, NULL, &empty));
	say_mask();
}

static const struct row rows[] = {
	ROW(sigsuspend),
	ROW(ppoll),
	ROW(__ppoll_chk),
	ROW(pselect),
	ROW(epoll_pwait),
	ROW(epoll_pwait2),
	{ "a fault that is sent while blocked", held_faults, NULL },
};
ROWS(wait_rows, rows);
