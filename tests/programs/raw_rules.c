// SPDX-License-Identifier: MIT
/*
 * Rules of mlx5 direct verbs in several processes: each has its own, for the same frames, and a process that is killed takes
 * its rules along and nothing else.
 *
 *	sender (this process, mlx5_1) -- frames --> receivers (mlx5_0): root table --> table of level 1 --> queue pair
 *	                              <-- socket -- number of each frame that they got
 */
#include <dirent.h>
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
#include <infiniband/mlx5dv.h>

#include "station.h"

enum { LEN = 64, FLOOD = 1000, DMAC = 8 };

static const uint64_t here = 0x020000000001, there = 0x020000000002, other = 0x020000000003;

/* --- receivers ------------------------------------------------------------------------------------- */

struct match {
	size_t size;
	uint8_t bytes[64];
};

static struct mlx5dv_flow_match_parameters *dmac(struct match *m, uint64_t mac)
{
	*m = (struct match){ .size = sizeof(m->bytes) };
	for (int i = 0; i < 6; i++)
		m->bytes[DMAC + i] = (uint8_t)(mac >> (40 - 8 * i));
	return (struct mlx5dv_flow_match_parameters *)m;
}

struct chain {
	struct mlx5dv_dr_domain *domain;
	struct mlx5dv_dr_table *table[2];
	struct mlx5dv_dr_matcher *matcher[2];
	struct mlx5dv_dr_action *action[2];
	struct mlx5dv_dr_rule *rule[2];
};

static void chain_open(struct chain *c, struct station *s)
{
	struct match m;

	c->domain = mlx5dv_dr_domain_create(s->ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	check(c->domain, "%s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		c->table[i] = mlx5dv_dr_table_create(c->domain, (uint32_t)i);
		check(c->table[i]);
		c->matcher[i] = mlx5dv_dr_matcher_create(c->table[i], 0, 1, dmac(&m, ~0ull));
		check(c->matcher[i]);
	}
	c->action[0] = mlx5dv_dr_action_create_dest_table(c->table[1]);
	c->action[1] = mlx5dv_dr_action_create_dest_ibv_qp(s->qp);
	for (int i = 0; i < 2; i++) {
		check(c->action[i]);
		c->rule[i] = mlx5dv_dr_rule_create(c->matcher[i], dmac(&m, here), 1, &c->action[i]);
		check(c->rule[i], "%s", strerror(errno));
	}
}

static void chain_close(struct chain *c)
{
	for (int i = 0; i < 2; i++) {
		check_eq(mlx5dv_dr_rule_destroy(c->rule[i]), 0);
		check_eq(mlx5dv_dr_action_destroy(c->action[i]), 0);
		check_eq(mlx5dv_dr_matcher_destroy(c->matcher[i]), 0);
	}
	check_eq(mlx5dv_dr_table_destroy(c->table[1]), 0);
	check_eq(mlx5dv_dr_table_destroy(c->table[0]), 0);
	check_eq(mlx5dv_dr_domain_destroy(c->domain), 0);
}

static void receiver(void)
{
	struct station s;
	struct chain chain;
	struct got got;
	char byte = 1;

	station_open(&s, "mlx5_0");
	chain_open(&chain, &s);
	msg_send(ROLE_FD, &byte, 1);
	while (recv(ROLE_FD, &byte, 1, MSG_DONTWAIT) < 0) {
		if (station_poll(&s, &got)) {
			check_eq(got.status, IBV_WC_SUCCESS);
			check_eq(got.len, LEN);
			send(ROLE_FD, got.data + 14, 4, MSG_DONTWAIT | MSG_NOSIGNAL);
		} else {
			sched_yield();
		}
	}
	chain_close(&chain);
	station_close(&s);
}

struct peer {
	pid_t pid;
	int fd;
};

static struct peer start(void)
{
	struct peer p;
	char ready;

	p.pid = spawn_self("receiver", &p.fd);
	msg_recv(p.fd, &ready, 1);
	return p;
}

static void end(struct peer *p)
{
	msg_send(p->fd, "e", 1);
	spawn_wait(p->pid);
	close(p->fd);
}

static void end_by_force(struct peer *p)
{
	int status;

	if (!spawn_is_process()) {
		end(p);
		return;
	}
	check_eq(kill(p->pid, SIGKILL), 0);
	check_eq(waitpid(p->pid, &status, 0), p->pid);
	check(WIFSIGNALED(status));
	close(p->fd);
}

/* --- the sender ---------------------------------------------------------------------------------------- */

static struct station tx;
static uint32_t number;

static void send_frame(uint64_t dst)
{
	uint8_t f[LEN] = { 0 };

	put_eth(f, 0, dst, there, 0x88b5);
	put32(f + 14, ++number);
	station_send(&tx, f, LEN, 0);
}

static uint32_t next_number(struct peer *p)
{
	uint8_t got[4];

	msg_recv(p->fd, got, sizeof(got));
	return (uint32_t)got[0] << 24 | (uint32_t)got[1] << 16 | (uint32_t)got[2] << 8 | got[3];
}

/* Its next frame is the one that was sent last. */
static void reaches(struct peer *p)
{
	check_eq(next_number(p), number);
}

/* Frames go on to it: of a flood some may be lost, so they are sent until one of them is there. */
static void goes_on(struct peer *p)
{
	struct pollfd readable = { .fd = p->fd, .events = POLLIN };
	uint32_t last = number;

	for (int patience = 600; patience; patience--) {
		send_frame(here);
		while (poll(&readable, 1, 50) == 1)
			if (next_number(p) > last)
				return;
	}
	check(false, "no frame arrives any more");
}

static void both_and_one(void)
{
	struct peer a = start(), b = start();

	send_frame(here);
	reaches(&a);
	reaches(&b);
	send_frame(other); /* no rule, no flow: nobody */
	send_frame(here);
	reaches(&a);
	reaches(&b);
	end_by_force(&a);
	send_frame(here);
	reaches(&b);
	a = start();
	send_frame(here);
	reaches(&a);
	reaches(&b);
	end(&b);
	send_frame(here);
	reaches(&a);
	end(&a);
	send_frame(here); /* nobody is waited for */
}

/* The one that is killed in the middle of a flood does not disturb the other. */
static void in_a_flood(void)
{
	struct peer victim = start(), stays = start();

	for (int i = 0; i < FLOOD; i++) {
		send_frame(here);
		if (i == FLOOD / 2)
			end_by_force(&victim);
	}
	goes_on(&stays);
	end(&stays);
}

static unsigned int count_files(const char *path)
{
	char below[512];
	unsigned int count = 0;
	struct dirent *entry;
	DIR *dir = opendir(path);

	check(dir);
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		count++;
		snprintf(below, sizeof(below), "%s/%.200s", path, entry->d_name);
		if (entry->d_type == DT_DIR)
			count += count_files(below);
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/verbatim-test-rules.XXXXXX", command[64];
	unsigned int files;

	if (argc > 1) {
		receiver();
		return 0;
	}
	if (!enter_namespaces(CLONE_NEWNET))
		test_skip("no network namespace: %s", strerror(errno));
	check(mkdtemp(dir));
	setenv("VERBATIM_SHM_DIR", dir, 1);
	station_open(&tx, "mlx5_1");
	both_and_one();
	files = count_files(dir);
	for (int i = 0; i < 3; i++) {
		both_and_one();
		in_a_flood();
	}
	/* The dead leave nothing behind: places are taken again. */
	check(count_files(dir) <= files, "%u files, before %u", count_files(dir), files);
	station_close(&tx);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	check_eq(system(command), 0);
	return 0;
}
