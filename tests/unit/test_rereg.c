// SPDX-License-Identifier: MIT
/*
 * A region whose translation changes while a peer writes to it and reads from it: the same addresses mean one memory now and
 * another then, as only the card's own interface allows. No request that succeeds is done half here and half there,
 * whichever way it took: a direct copy, packets, or shared by both sides; nor over a network that loses packets, where a
 * READ is asked for in parts.
 */
#include "api/ibverbs/accessors.h"
#include "../programs/common.h"
#include "card/memory/mr.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUIET = 4 };

/* Of a message; over a bad network smaller ones, more time for each, and some that are given up. */
static size_t size = 4 << 20;
static uint32_t count = 200, flip_within_us = 1500;
static bool impaired;

/* What the peer says: make the connection anew, change the region in a moment, look, be ready for READs, that was all. */
enum command { CONNECT, CHANGE, WRITTEN, READS, DONE };

struct message {
	uint32_t command;
	uint32_t value;
};

/* --- the owner of the region -------------------------------------------------------------------------- */

static struct node node;
static uint8_t *place[2]; /* the first is where the region was registered */
static pthread_mutex_t still = PTHREAD_MUTEX_INITIALIZER;
static sem_t changes; /* wanted */
static atomic_bool stop;

/* Now or a little later: before, during or after the request. */
static void *flipper(void *arg)
{
	struct vb_mr *mr = vb_verbs_mr(node.mr);
	uint32_t key = vb_mr_key(mr);
	uint64_t seed = 11;

	for (int i = 1;; i++) {
		uint64_t end;

		sem_wait(&changes);
		if (atomic_load(&stop))
			return arg;
		for (end = now_us() + next_random(&seed) % flip_within_us; now_us() < end;)
			;
		pthread_mutex_lock(&still);
		check_eq(vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, place[i % 2], size,
				     (uintptr_t)place[0], 0),
			 0);
		check_eq(vb_mr_key(mr), key);
		pthread_mutex_unlock(&still);
	}
}

/* Beside the copies of the card, in another thread: as a program that polls memory looks. */
__attribute__((no_sanitize("thread"))) static bool is_filled(const uint8_t *mem, uint32_t value)
{
	for (size_t i = 0; i < size; i += 4)
		if (*(const uint32_t *)(mem + i) != value)
			return false;
	return true;
}

__attribute__((no_sanitize("thread"))) static void fill(uint8_t *mem, uint32_t value)
{
	for (size_t i = 0; i < size; i += 4)
		*(uint32_t *)(mem + i) = value;
}

static bool look(const struct message *m)
{
	bool ok = true;

	pthread_mutex_lock(&still);
	if (m->command == READS) {
		fill(place[0], 1);
		fill(place[1], 2);
	} else {
		ok = is_filled(place[0], m->value) || is_filled(place[1], m->value);
	}
	pthread_mutex_unlock(&still);
	return ok;
}

/* Polls all the time, so that it has its part in what is written to it. */
static void serve(int fd)
{
	struct address peer;
	struct message m = { CONNECT, 0 };
	struct ibv_wc wc;

	for (;;) {
		if (m.command == DONE)
			return;
		if (m.command == CONNECT) {
			node_meet(&node, fd, &peer);
			for (int i = 0; i < 64; i++)
				check_eq(node_recv(&node, 1, 0, 0), 0);
		} else if (m.command == CHANGE) {
			sem_post(&changes);
		} else {
			char ok = look(&m);

			msg_send(fd, &ok, 1);
		}
		while (recv(fd, &m, sizeof(m), MSG_DONTWAIT | MSG_PEEK) < 0)
			ibv_poll_cq(node.recv_cq, 1, &wc);
		msg_recv(fd, &m, sizeof(m));
	}
}

/* --- the peer ------------------------------------------------------------------------------------------ */

static struct node mine;
static struct address peer;

static void say(enum command command, uint32_t value)
{
	struct message m = { command, value };

	msg_send(ROLE_FD, &m, sizeof(m));
}

static void reconnect(void)
{
	say(CONNECT, 0);
	node_meet(&mine, ROLE_FD, &peer);
}

static bool ask(enum command command, uint32_t value)
{
	char ok;

	say(command, value);
	msg_recv(ROLE_FD, &ok, 1);
	return ok;
}

/* Whether it succeeded; where not it was refused, and the connection is made again. Some find everything quiet. */
static bool try_one(uint32_t n, enum ibv_wr_opcode opcode)
{
	struct ibv_wc wc;

	if (n % QUIET == 0)
		reconnect();
	else
		say(CHANGE, 0);
	check_eq(node_rdma(&mine, 1, opcode, 0, (uint32_t)size, &peer, 0), 0);
	check(cq_wait(mine.send_cq, &wc, PATIENCE_MS), "no completion");
	if (wc.status == IBV_WC_SUCCESS)
		return true;
	if (!impaired || wc.status != IBV_WC_RETRY_EXC_ERR)
		check_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
	reconnect();
	return false;
}

static int work(struct node_attr *attr)
{
	int done[3] = { 0 };

	node_open(&mine, attr);
	node_meet(&mine, ROLE_FD, &peer);
	for (uint32_t n = 1; n <= 2 * count; n++) {
		bool imm = n / QUIET % 2;

		fill(mine.buf, n);
		if (!try_one(n, imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE))
			continue;
		done[imm]++;
		check(ask(WRITTEN, n), "a WRITE is half here and half there");
	}
	check(ask(READS, 0), "fill");
	for (uint32_t n = 1; n <= count; n++) {
		fill(mine.buf, 0);
		if (!try_one(n, IBV_WR_RDMA_READ))
			continue;
		done[2]++;
		check(is_filled(mine.buf, 1) || is_filled(mine.buf, 2),
		      "a READ is half from here and half from there");
	}
	printf("of %u each: %d WRITEs, %d with immediate data, %d READs\n", count, done[0], done[1],
	       done[2]);
	say(DONE, 0);
	node_close(&mine);
	return 0;
}

int main(int argc, char **argv)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	pthread_t thread;
	pid_t pid;
	int fd;

	impaired = getenv("VERBATIM_TEST_IMPAIR");
	if (impaired) {
		size = 512 << 10;
		count = 100;
		flip_within_us = 6000;
		attr.timeout = 10; /* 4 ms */
	}
	attr.size = 2 * size;
	if (argc > 1 && !strcmp(argv[1], "peer"))
		return work(&attr);
	pid = spawn_self("peer", &fd);
	node_open(&node, &attr);
	place[0] = node.buf;
	place[1] = node.buf + size;
	check_eq(ibv_rereg_mr(node.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, place[0], size, 0),
		 0);
	sem_init(&changes, 0, 0);
	check_eq(pthread_create(&thread, NULL, flipper, NULL), 0);
	serve(fd);
	atomic_store(&stop, true);
	sem_post(&changes);
	pthread_join(thread, NULL);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}
