// SPDX-License-Identifier: MIT
/*
 * Frames that were sent arrive, though their sender ends at once: a receiver that does not run in that moment gets them when
 * it does. Also where it has never heard of the sender before.
 *
 *	this process: stops the receiver --> lets the sender send and end --> lets the receiver go on
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "station.h"

enum { LEN = 64, FRAMES = 16 };

static const uint64_t here = 0x020000000001, there = 0x020000000002;

static int receiver(void)
{
	struct ibv_flow *flow;
	struct station s;
	uint32_t frames;

	station_open(&s, "mlx5_0");
	flow = flow_all(s.qp);
	msg_send(ROLE_FD, "", 1);
	while (msg_try_recv(ROLE_FD, &frames, sizeof(frames))) {
		struct got got;

		for (uint32_t i = 0; i < frames; i++) {
			station_get(&s, &got);
			check_eq(got.len, LEN);
			check_eq(got.data[14], i);
		}
		msg_send(ROLE_FD, "", 1);
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
	return 0;
}

/* closes: in order; otherwise the program just ends, with everything open. */
static int sender(bool closes)
{
	struct station s;
	uint8_t f[LEN];
	uint32_t frames;

	station_open(&s, "mlx5_1");
	msg_send(ROLE_FD, "", 1);
	while (msg_try_recv(ROLE_FD, &frames, sizeof(frames)) && frames) {
		for (uint32_t i = 0; i < frames; i++) {
			memset(f, 0, sizeof(f));
			put_eth(f, 0, here, there, 0x88b5);
			f[14] = (uint8_t)i;
			station_send(&s, f, sizeof(f), 0);
		}
		msg_send(ROLE_FD, "", 1);
	}
	if (closes)
		station_close(&s);
	return 0;
}

static void leave(int signal)
{
	(void)signal;
	exit(0);
}

/* Ends in a signal handler, in the middle of a send. */
static _Noreturn void interrupted(void)
{
	struct station s;
	uint8_t f[LEN] = { 0 };

	station_open(&s, "mlx5_1");
	put_eth(f, 0, there, here, 0x88b5); /* not to the receiver */
	signal(SIGALRM, leave);
	ualarm(2000, 0);
	for (;;)
		station_try_send(&s, f, sizeof(f), 0);
}

static void order(int fd, uint32_t frames)
{
	msg_send(fd, &frames, sizeof(frames));
}

static void await(int fd)
{
	char done;

	msg_recv(fd, &done, 1);
}

/* known: the receiver has read something of the sender before. */
static void end_at_once(pid_t to, int to_fd, const char *role, bool known)
{
	int fd;
	pid_t pid = spawn_self(role, &fd);

	await(fd);
	if (known) {
		order(fd, FRAMES);
		await(fd);
		order(to_fd, FRAMES);
		await(to_fd);
	}
	check_eq(kill(to, SIGSTOP), 0);
	order(fd, FRAMES);
	await(fd);
	order(fd, 0); /* it ends now */
	sleep_ms(50);
	check_eq(kill(to, SIGCONT), 0);
	spawn_wait(pid);
	close(fd);
	order(to_fd, FRAMES);
	await(to_fd);
}

int main(int argc, char **argv)
{
	pid_t to;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "receiver"))
		return receiver();
	if (argc > 1 && !strcmp(argv[1], "interrupted"))
		interrupted();
	if (argc > 1)
		return sender(!strcmp(argv[1], "closer"));
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	to = spawn_self("receiver", &fd);
	await(fd);
	for (int i = 0; i < 4; i++) {
		end_at_once(to, fd, "closer", i & 1);
		end_at_once(to, fd, "leaver", i & 1);
	}
	for (int i = 0; i < 30; i++) {
		int other;

		spawn_wait(spawn_self("interrupted", &other));
		close(other);
	}
	kill(to, SIGKILL); /* it may have got some of these */
	close(fd);
	return 0;
}
