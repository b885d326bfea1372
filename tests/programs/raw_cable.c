// SPDX-License-Identifier: MIT
/*
 * Cables: frames from one adapter to others and to other processes. Each receiver is a process of its own, on the device
 * that its role names, and reports what it gets.
 *
 *	sender (this process) -- frames --> receivers
 *	                      <-- socket -- number of each frame that they got
 *
 * A frame that must not come is followed by one that must: frames of one sender come in order.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "station.h"

enum { LEN = 64, FLOOD = 2000 };

static const uint64_t broadcast = 0xffffffffffff, mac = 0x020000000100;

/* --- receivers ------------------------------------------------------------------------------------- */

struct command {
	char what; /* 's': send a frame, 'e': end */
	uint64_t dst, src;
	uint32_t number;
};

static void make_frame(uint8_t *f, uint64_t dst, uint64_t src, uint32_t number)
{
	memset(f, 0, LEN);
	put_eth(f, 0, dst, src, 0x88b5);
	put32(f + 14, number);
}

static void receiver(const char *device)
{
	struct station s;
	struct command command;
	struct ibv_flow *flow;
	struct got got;
	uint8_t f[LEN];
	char ready = 1;

	station_open(&s, device);
	flow = flow_all(s.qp);
	msg_send(ROLE_FD, &ready, 1);
	for (;;) {
		ssize_t n = recv(ROLE_FD, &command, sizeof(command), MSG_DONTWAIT);

		if (!n || (n > 0 && command.what == 'e'))
			break;
		if (n > 0) {
			make_frame(f, command.dst, command.src, command.number);
			station_send(&s, f, LEN, 0);
			msg_send(ROLE_FD, &command.number, 4);
		}
		if (station_poll(&s, &got)) {
			uint32_t number = (uint32_t)(got.data[14] << 24 | got.data[15] << 16 |
						     got.data[16] << 8 | got.data[17]);

			check_eq(got.status, IBV_WC_SUCCESS);
			check_eq(got.len, LEN);
			send(ROLE_FD, &number, 4, MSG_DONTWAIT | MSG_NOSIGNAL);
		} else {
			sched_yield();
		}
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
}

struct peer {
	pid_t pid;
	int fd;
};

static struct peer start(const char *device)
{
	struct peer p;
	char ready;

	p.pid = spawn_self(device, &p.fd);
	msg_recv(p.fd, &ready, 1);
	return p;
}

static void end(struct peer *p)
{
	msg_send(p->fd, &(struct command){ .what = 'e' }, sizeof(struct command));
	spawn_wait(p->pid);
	close(p->fd);
}

/* Its next frame has this number. */
static void expect(struct peer *p, uint32_t number)
{
	uint32_t got;

	msg_recv(p->fd, &got, sizeof(got));
	check_eq(got, number);
}

/* It sends a frame. */
static void let_send(struct peer *p, uint64_t dst, uint64_t src, uint32_t number)
{
	struct command command = { .what = 's', .dst = dst, .src = src, .number = number };

	msg_send(p->fd, &command, sizeof(command));
	expect(p, number);
}

static void send_to(struct station *s, uint64_t dst, uint64_t src, uint32_t number)
{
	uint8_t f[LEN];

	make_frame(f, dst, src, number);
	station_send(s, f, LEN, 0);
}

/* --- tests --------------------------------------------------------------------------------------------- */

/* All ports hang on one switch: unknown destinations reach all others, multicast the sender's port, too. */
static void all_ports(void)
{
	struct peer on5 = start("mlx5_0"), on5b = start("mlx5_1"), on4 = start("mlx4_0");
	struct station s, local;
	struct ibv_flow *flow;
	struct got got;

	station_open(&s, "mlx5_0");
	station_open(&local, "mlx5_1");
	flow = flow_all(local.qp);
	for (uint32_t i = 0; i < 100; i++) {
		send_to(&s, i & 1 ? broadcast : mac + 99, mac, i);
		station_get(&local, &got);
		check_eq(got.data[17], i);
		if (i & 1)
			expect(&on5, i);
		expect(&on5b, i);
		expect(&on4, i);
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&local);
	station_close(&s);
	/* The other way round. */
	station_open(&s, "mlx4_0");
	send_to(&s, broadcast, mac + 1, 1000);
	expect(&on5, 1000);
	expect(&on5b, 1000);
	expect(&on4, 1000);
	station_close(&s);
	end(&on4);
	end(&on5b);
	end(&on5);
}

/*
 * A program that answers everything it gets, by another queue: its answers go to the sender, and are no frames that it gets.
 * Nor does another process on its port get them, unless a flow names the address.
 */
static void answers(const char *device, uint64_t own)
{
	enum { QUESTIONS = 4 };
	struct ibv_flow *flow, *far_flow, *named;
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
	} in = { .attr = { .size = sizeof(in), .num_of_specs = 1, .port = 1 },
		 .eth = { .type = IBV_FLOW_SPEC_ETH,
			  .size = sizeof(in.eth),
			  .mask.dst_mac = { 255, 255, 255, 255, 255, 255 } } };
	const uint64_t asker = own + 1;
	struct station rx, tx, far, other;
	struct peer p = start(device);
	struct got got;
	uint8_t f[LEN];

	station_open(&rx, device);
	station_open(&tx, device);
	station_open(&other, device);
	station_open(&far, !strcmp(device, "mlx5_0") ? "mlx5_1" : "mlx5_0");
	flow = flow_all(rx.qp);
	far_flow = flow_all(far.qp);
	for (uint32_t i = 0; i < QUESTIONS; i++) {
		send_to(&far, own, asker, i);
		expect(&p, i);
	}
	for (uint32_t i = 0; i < QUESTIONS; i++) {
		station_get(&rx, &got);
		check_eq(got.data[17], i);
		send_to(&tx, asker, own, 100 + i);
		station_get(&far, &got);
		check_eq(got.data[17], 100 + i);
	}
	station_quiet(&rx);
	/* A flow that names the address makes it the port's. */
	make_frame(f, asker, 0, 0);
	memcpy(in.eth.val.dst_mac, f, 6);
	named = ibv_create_flow(other.qp, &in.attr);
	check(named, "%s", strerror(errno));
	send_to(&tx, asker, own, 200);
	station_get(&other, &got);
	check_eq(got.data[17], 200);
	station_get(&far, &got);
	station_quiet(&rx);
	send_to(&tx, broadcast, own, 201);
	expect(&p, 201);
	station_get(&rx, &got);
	check_eq(got.data[17], 201);
	check_eq(ibv_destroy_flow(named), 0);
	check_eq(ibv_destroy_flow(far_flow), 0);
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&far);
	station_close(&other);
	station_close(&tx);
	station_close(&rx);
	end(&p);
}

/* Where a source was seen, frames for it go, and nowhere else. */
static void learning(void)
{
	struct peer on5b = start("mlx5_1"), on4 = start("mlx4_0");
	struct station s;

	station_open(&s, "mlx5_0");
	send_to(&s, mac + 5, mac, 1); /* not known yet */
	expect(&on5b, 1);
	expect(&on4, 1);
	let_send(&on5b, broadcast, mac + 5, 2);
	expect(&on4, 2);
	send_to(&s, mac + 5, mac, 3);
	expect(&on5b, 3);
	send_to(&s, broadcast, mac, 4);
	expect(&on4, 4); /* 3 was not for it */
	expect(&on5b, 4);
	/* It moves to another port. */
	let_send(&on4, broadcast, mac + 5, 5);
	expect(&on5b, 5);
	send_to(&s, mac + 5, mac, 6);
	expect(&on4, 6);
	send_to(&s, broadcast, mac, 7);
	expect(&on5b, 7);
	expect(&on4, 7);
	station_close(&s);
	end(&on4);
	end(&on5b);
}

/* Whatever becomes of a receiver, sending goes on, others hear, and a new one does. */
static void killed_receiver(const char *device)
{
	struct peer victim = start(device), other = start(device);
	struct station s;
	uint32_t number = 0;
	int status;

	station_open(&s, "mlx5_0");
	for (int i = 0; i < FLOOD; i++) {
		if (i == FLOOD / 2)
			check_eq(kill(victim.pid, SIGKILL), 0);
		send_to(&s, broadcast, mac, ++number);
	}
	check_eq(waitpid(victim.pid, &status, 0), victim.pid);
	close(victim.fd);
	end(&other);
	victim = start(device);
	send_to(&s, broadcast, mac, 77777);
	expect(&victim, 77777);
	end(&victim);
	station_close(&s);
}

/* A sender that dies in the middle takes nothing along. */
static void killed_sender(void)
{
	struct station rx, tx;
	struct ibv_flow *flow;
	struct got got;
	int status;

	station_open(&rx, "mlx5_1");
	flow = flow_all(rx.qp);
	for (int round = 0; round < 5; round++) {
		struct peer p;

		p.pid = spawn_self("flood", &p.fd);
		for (int i = 0; i < 100; i++)
			station_get(&rx, &got);
		check_eq(kill(p.pid, SIGKILL), 0);
		check_eq(waitpid(p.pid, &status, 0), p.pid);
		close(p.fd);
		while (station_poll(&rx, &got))
			check_eq(got.len, LEN);
	}
	station_open(&tx, "mlx5_0");
	/* What the last one left may come still, and take the buffers. */
	do {
		send_to(&tx, broadcast, mac, 5);
		station_get(&rx, &got);
	} while (got.data[17] != 5 || got.data[11] != (mac & 0xff));
	station_close(&tx);
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&rx);
}

static void flood(void)
{
	struct station s;

	station_open(&s, "mlx5_0");
	for (uint32_t i = 0;; i++)
		send_to(&s, broadcast, mac + 3, i);
}

/* Flows of two processes for the same frames: both get them, and one that goes leaves the other alone. */
static void two_processes(void)
{
	struct peer a = start("mlx5_0"), b = start("mlx5_0");
	struct station s;

	station_open(&s, "mlx5_1");
	send_to(&s, mac, mac + 9, 1);
	expect(&a, 1);
	expect(&b, 1);
	end(&a);
	send_to(&s, mac, mac + 9, 2);
	expect(&b, 2);
	station_close(&s);
	end(&b);
}

static void write_config(void)
{
	/* Names with one 32-bit hash (FNV-1a). */
	static const char text[] = "[adapter mlx5_0]\ncable = liquid\n"
				   "[adapter mlx5_1]\ncable = costarring\n"
				   "[adapter mlx4_0]\ncable = liquid\n";
	static char path[] = "/tmp/verbatim-test-cable.XXXXXX";
	int fd = mkstemp(path);

	check(fd >= 0 && write(fd, text, sizeof(text) - 1) == sizeof(text) - 1);
	close(fd);
	setenv("VERBATIM_CONFIG", path, 1);
}

/* Ports on different cables do not meet. */
static void other_cables(void)
{
	struct peer on5b = start("mlx5_1"), on4 = start("mlx4_0"), on5 = start("mlx5_0");
	struct station s, t;

	station_open(&s, "mlx5_0");
	station_open(&t, "mlx5_1");
	send_to(&s, broadcast, mac, 1);
	expect(&on4, 1);
	expect(&on5, 1);
	send_to(&t, broadcast, mac, 2);
	expect(&on5b, 2); /* the same port */
	send_to(&s, broadcast, mac, 3);
	expect(&on4, 3);
	expect(&on5, 3);
	station_close(&t);
	station_close(&s);
	end(&on5);
	end(&on4);
	end(&on5b);
}

int main(int argc, char **argv)
{
	bool cables = argc > 1 && !strcmp(argv[1], "cables");

	if (argc > 1 && !cables) {
		if (!strcmp(argv[1], "flood"))
			flood();
		receiver(argv[1]);
		return 0;
	}
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	if (cables) {
		write_config();
		other_cables();
		unlink(getenv("VERBATIM_CONFIG"));
		return 0;
	}
	all_ports();
	answers("mlx5_0", 0x020000000200);
	answers("mlx4_0", 0x020000000300);
	learning();
	two_processes();
	if (!spawn_is_process())
		return 0;
	killed_receiver("mlx5_0");
	killed_receiver("mlx5_1");
	killed_receiver("mlx4_0");
	killed_sender();
	return 0;
}
