// SPDX-License-Identifier: MIT
/*
 * Several rings from one process to another: which one a queue's packets take, that it is always the same, that rings
 * have nothing to do with each other, that a thread that reads one keeps no other busy, and what happens where there is
 * no memory for them or where their owner lies. The fabric alone, with a sink that counts: packets are numbered by queue.
 *
 *	here: paths, senders ---- rings ----> reader (a process): two threads poll, the sink checks
 *	      sink            <--------------  a liar: it shows rings that are none
 */
#include "../programs/common.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rcu.h"
#include "fabric/peer.h"
#include "fabric/state.h"

enum { QUEUES = 64, SENDERS = 6, EACH = 3000, LONGEST = 3000 };

/* A packet of queue MEET waits in the sink until one of queue MEET + 1 is there. */
enum { MEET = 1000 };

/* The program thread that reads a packet of queue LONG takes LONG_MS for it. */
enum { LONG = 1002, LONG_MS = 100, LONG_TRIES = 100 };

static uint32_t expected[QUEUES]; /* the ring's lock is held by whoever looks */
static _Atomic uint32_t taken;
static _Atomic bool met;
static _Atomic uint32_t rounds; /* of the background thread */
static bool read_long;          /* a program thread took a packet of LONG, */
static uint32_t rounds_of_long; /* and meanwhile the background thread went round so often, */
static uint64_t ms_of_long;     /* in so many milliseconds */

/* The program's host without a card. */
static struct vb_host host = { .meet = &vb_registry_program, .fabric = &vb_fabric_program };

/* --- a sink ----------------------------------------------------------------------------------- */

static uint8_t byte_of(uint32_t queue, uint32_t psn)
{
	return (uint8_t)(queue * 7 + psn * 3 + 1);
}

static void await_other(void)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (!met)
		check(now_us() < end, "nobody reads the other ring");
}

static bool in_background(void)
{
	return gettid() == atomic_load(&vb_fabric_program.thread_id);
}

static void take_long(void)
{
	uint32_t before = rounds;
	uint64_t begin = now_us();

	if (in_background())
		return;
	sleep_ms(LONG_MS);
	read_long = true;
	rounds_of_long = rounds - before;
	ms_of_long = (now_us() - begin) / 1000;
}

static void take(struct vb_card *card, const struct vb_pkt *pkt)
{
	const uint8_t *payload = pkt->iov->iov_base;

	(void)card;
	if (pkt->sqpn == MEET)
		await_other();
	if (pkt->sqpn == MEET + 1)
		met = true;
	if (pkt->sqpn == LONG)
		take_long();
	if (pkt->sqpn < QUEUES) {
		check(pkt->psn == expected[pkt->sqpn], "queue %u: packet %u, not %u", pkt->sqpn,
		      pkt->psn, expected[pkt->sqpn]);
		expected[pkt->sqpn]++;
		for (uint32_t i = 0; i < pkt->len; i++)
			check_eq(payload[i], byte_of(pkt->sqpn, pkt->psn));
	}
	taken++;
}

static void nothing(struct vb_card *card)
{
	(void)card;
}

static bool never_first(struct vb_card *card, const struct vb_pkt *pkt)
{
	(void)card;
	(void)pkt;
	return false;
}

static uint64_t no_work(struct vb_card *card, bool all)
{
	(void)card;
	(void)all;
	rounds += in_background();
	return UINT64_MAX;
}

static enum vb_pending none_pending(struct vb_card *card, bool all)
{
	(void)card;
	(void)all;
	return VB_PENDING_NONE;
}

static bool is_here(struct vb_card *card, const union ibv_gid *gid)
{
	(void)card;
	(void)gid;
	return true;
}

static const struct vb_sink sink = {
	.receive = take,
	.received = nothing,
	.delivers_first = never_first,
	.work = no_work,
	.pending = none_pending,
	.is_local = is_here,
};

/* --- the other process ------------------------------------------------------------------------ */

/* What the reader is told: so many packets are to come. 0: the end. */
static void *poll_for(void *arg)
{
	uint32_t count = *(uint32_t *)arg;

	while (taken < count)
		vb_fabric_poll(&vb_fabric_program);
	return NULL;
}

static int reader(void)
{
	uint32_t slot, count;

	check_eq(vb_fabric_start(&host, &sink), 0);
	slot = vb_fabric_slot(&vb_fabric_program);
	msg_send(ROLE_FD, &slot, sizeof(slot));
	for (;;) {
		pthread_t second;

		msg_recv(ROLE_FD, &count, sizeof(count));
		if (!count)
			break;
		check_eq(pthread_create(&second, NULL, poll_for, &count), 0);
		poll_for(&count);
		pthread_join(second, NULL);
		check_eq(taken, count);
		taken = 0;
		msg_send(ROLE_FD, "d", 1);
	}
	vb_fabric_stop(&vb_fabric_program);
	return 0;
}

/* It does not poll: what comes is taken by the background thread. */
static int sleeper(void)
{
	uint32_t slot;

	check_eq(vb_fabric_start(&host, &sink), 0);
	slot = vb_fabric_slot(&vb_fabric_program);
	msg_send(ROLE_FD, &slot, sizeof(slot));
	for (int ms = 0; !taken; ms++) {
		check(ms < PATIENCE_MS, "nothing came");
		sleep_ms(1);
	}
	vb_fabric_stop(&vb_fabric_program);
	return 0;
}

static int send_one(struct vb_path *path, uint32_t queue, uint32_t psn, uint32_t len)
{
	uint8_t payload[LONGEST];
	struct iovec iov = { payload, len };
	struct vb_pkt pkt = {
		.op = VB_PKT_SEND,
		.flags = VB_PKT_ONLY,
		.transport = IBV_QPT_RC,
		.sqpn = queue,
		.psn = psn,
		.iov = &iov,
		.iov_cnt = 1,
		.len = len,
	};
	int ret;

	memset(payload, byte_of(queue, psn), len);
	vb_read_lock();
	ret = vb_path_send(path, &pkt);
	vb_path_flush(path);
	vb_read_unlock();
	return ret;
}

static void send_surely(struct vb_path *path, uint32_t queue, uint32_t psn, uint32_t len)
{
	int ret;

	while ((ret = send_one(path, queue, psn, len)) == -EAGAIN)
		sched_yield();
	check_eq(ret, 0);
}

/* Slots are given out in turn: come and go until that one is next. */
static int passer(void)
{
	uint32_t wanted, slot;

	msg_recv(ROLE_FD, &wanted, sizeof(wanted));
	do {
		check_eq(vb_fabric_start(&host, &sink), 0);
		slot = vb_fabric_slot(&vb_fabric_program);
		vb_fabric_stop(&vb_fabric_program);
	} while ((slot + 1) % VB_SLOTS != wanted);
	return 0;
}

/* Rings that are none, in all ways there are; what the liar sends by its first ring is sound. */
static int liar(void)
{
	uint32_t slot, generation;
	struct vb_ring_shared *first;
	struct vb_path path;

	check_eq(vb_fabric_start(&host, &sink), 0);
	msg_recv(ROLE_FD, &slot, sizeof(slot));
	check_eq(vb_path_open_slot(&vb_fabric_program, &path, slot, 1), 0);
	first = path.peer->tx[0].ring.shared;
	generation = path.peer->generation;
	first->further[0] = vb_ring_place(generation, VB_SEG_MAX_SIZE, VB_RING_MIN);
	first->further[1] = vb_ring_place(generation, 64, VB_RING_MIN);
	first->further[2] = (uint64_t)generation << 32 | 63u << 24 | 0xfff000;
	first->further[3] = (uint64_t)generation << 32 | 0xff000000u | 0xffffff;
	first->further[4] = (uint64_t)generation << 32 | 13u << 24 | 0xfff000;
	first->further[5] = ~0ull;
	first->further[6] = (uint64_t)generation << 32;
	atomic_fetch_add(&path.peer->segment->inbound_epoch, 1);
	for (uint32_t psn = 0; psn < 100; psn++)
		send_surely(&path, 0, psn, 100);
	vb_path_close(&path);
	msg_recv(ROLE_FD, &slot, sizeof(slot));
	vb_fabric_stop(&vb_fabric_program);
	return 0;
}

/* Packets that take long to read, one whenever it is asked for. */
static int slow_sender(void)
{
	struct vb_path path;
	uint32_t slot;
	char next;

	check_eq(vb_fabric_start(&host, &sink), 0);
	msg_recv(ROLE_FD, &slot, sizeof(slot));
	check_eq(vb_path_open_slot(&vb_fabric_program, &path, slot, 1), 0);
	for (msg_recv(ROLE_FD, &next, 1); next; msg_recv(ROLE_FD, &next, 1))
		send_surely(&path, LONG, 0, 8);
	vb_path_close(&path);
	vb_fabric_stop(&vb_fabric_program);
	return 0;
}

/* --- this one --------------------------------------------------------------------------------- */

struct other {
	pid_t pid;
	int fd;
	uint32_t slot;
};

static struct other start_reader(void)
{
	struct other other;

	other.pid = spawn_self("reader", &other.fd);
	msg_recv(other.fd, &other.slot, sizeof(other.slot));
	return other;
}

static void stop_reader(const struct other *other)
{
	msg_send(other->fd, &(uint32_t){ 0 }, sizeof(uint32_t));
	spawn_wait(other->pid);
	close(other->fd);
}

static void expect_packets(const struct other *other, uint32_t count)
{
	msg_send(other->fd, &count, sizeof(count));
}

static void await_packets(const struct other *other)
{
	char done;

	msg_recv(other->fd, &done, 1);
}

static uint32_t ring_of(const struct other *other, uint32_t queue)
{
	struct vb_path path;
	uint32_t ring;

	check_eq(vb_path_open_slot(&vb_fabric_program, &path, other->slot, queue), 0);
	check(vb_path_can(&path, VB_PATH_REACHES), "no path");
	ring = path.ring;
	vb_path_close(&path);
	return ring;
}

/* As many rings as there can be, for numbers that are any power of two apart; and always the same ones. */
static void spread(const struct other *other)
{
	struct vb_address to = { .dgid = &(union ibv_gid){ { 0 } } };
	uint32_t was[QUEUES];
	struct vb_path path;

	check_eq(ring_of(other, VB_NO_QUEUE), 0);
	check_eq(ring_of(other, 5), 0); /* the first that is connected has the one that is there */
	for (uint32_t i = 0; i < QUEUES; i++)
		was[i] = ring_of(other, i);
	for (uint32_t step = 1; step < 1u << VB_QPN_INDEX_BITS; step *= 2) {
		uint32_t seen = 0;

		for (uint32_t i = 0; i < VB_RINGS; i++)
			seen |= 1u << ring_of(other, (i * step) & VB_QPN_INDEX_MASK);
		if (step * VB_RINGS <= 1u << VB_QPN_INDEX_BITS)
			check(seen == (1u << VB_RINGS) - 1, "step %u: rings %#x", step, seen);
	}
	for (uint32_t i = 0; i < QUEUES; i++)
		check_eq(ring_of(other, i), was[i]);
	check_eq(ring_of(other, VB_NO_QUEUE), 0);
	vb_read_lock();
	vb_path_peek(&vb_fabric_program, &path, &to, other->slot << VB_QPN_INDEX_BITS);
	check_eq(path.ring, 0);
	vb_read_unlock();
}

static void *send_many(void *arg)
{
	const struct other *other = ((void **)arg)[0];
	uint32_t sender = (uint32_t)(uintptr_t)((void **)arg)[1];
	struct vb_path path[QUEUES];
	uint64_t seed = sender;

	for (uint32_t q = sender; q < QUEUES; q += SENDERS)
		check_eq(vb_path_open_slot(&vb_fabric_program, &path[q], other->slot, q), 0);
	for (uint32_t psn = 0; psn < EACH; psn++)
		for (uint32_t q = sender; q < QUEUES; q += SENDERS)
			send_surely(&path[q], q, psn,
				    next_random(&seed) % 8 ? 8 : next_random(&seed) % LONGEST);
	for (uint32_t q = sender; q < QUEUES; q += SENDERS)
		vb_path_close(&path[q]);
	return NULL;
}

/* More queues than rings, from several threads at once: each queue's packets arrive in order, and whole. */
static void order(const struct other *other)
{
	pthread_t thread[SENDERS];
	void *arg[SENDERS][2];

	expect_packets(other, QUEUES * EACH);
	for (uintptr_t i = 0; i < SENDERS; i++) {
		arg[i][0] = (void *)other;
		arg[i][1] = (void *)i;
		check_eq(pthread_create(&thread[i], NULL, send_many, arg[i]), 0);
	}
	for (int i = 0; i < SENDERS; i++)
		pthread_join(thread[i], NULL);
	await_packets(other);
}

/* A thread that is in the middle of reading or writing one ring keeps nobody from another. */
static void independence(const struct other *other)
{
	struct vb_path a, b;

	check_eq(vb_path_open_slot(&vb_fabric_program, &a, other->slot, 1), 0);
	check_eq(vb_path_open_slot(&vb_fabric_program, &b, other->slot, 2), 0);
	check(a.ring != b.ring, "queues 1 and 2 share ring %u", a.ring);
	expect_packets(other, 2);
	vb_lock(&a.peer->tx[a.ring].lock);
	check_eq(send_one(&b, QUEUES, 0, 8), 0);
	vb_unlock(&a.peer->tx[a.ring].lock);
	check_eq(send_one(&a, QUEUES, 0, 8), 0);
	await_packets(other);
	expect_packets(other, 2);
	check_eq(send_one(&a, MEET, 0, 8), 0);
	sleep_ms(5);
	check_eq(send_one(&b, MEET + 1, 0, 8), 0);
	await_packets(other);
	vb_path_close(&a);
	vb_path_close(&b);
}

static _Atomic int in_record; /* 1: a thread is in the middle of one, 2: it was */

static void *write_slowly(void *arg)
{
	struct vb_peer_tx *tx = arg;

	vb_lock(&tx->lock);
	in_record = 1;
	usleep(50000);
	in_record = 2;
	vb_unlock(&tx->lock);
	return NULL;
}

/* A thread is still writing to the process that is gone: the next one has the ring after that. */
static void leave_to(const struct other *other, struct vb_path *former)
{
	pthread_t thread;

	check_eq(pthread_create(&thread, NULL, write_slowly, &former->peer->tx[former->ring]), 0);
	while (!in_record)
		sched_yield();
	ring_of(other, VB_NO_QUEUE);
	check_eq(in_record, 2);
	pthread_join(thread, NULL);
	check_eq(send_one(former, 0, 0, 100), -EHOSTDOWN);
	vb_path_close(former);
}

/* The next process in the same slot gets the same rings: no memory is lost with those that end. */
static void successors(void)
{
	struct other other = start_reader();
	uint32_t slot = other.slot;
	struct vb_path former;
	uint64_t size;
	pid_t pid;
	int fd;

	order(&other);
	check_eq(vb_path_open_slot(&vb_fabric_program, &former, slot, 0), 0);
	stop_reader(&other);
	size = atomic_load(&vb_fabric_program.segment->size);
	pid = spawn_self("passer", &fd);
	msg_send(fd, &slot, sizeof(slot));
	spawn_wait(pid);
	close(fd);
	other = start_reader();
	check_eq(other.slot, slot);
	leave_to(&other, &former);
	order(&other);
	check_eq(atomic_load(&vb_fabric_program.segment->size), size);
	stop_reader(&other);
}

static void lies(void)
{
	uint32_t slot = vb_fabric_slot(&vb_fabric_program), begin = taken;
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;
	int fd;
	pid_t pid = spawn_self("liar", &fd);

	msg_send(fd, &slot, sizeof(slot));
	while (taken < begin + 100) {
		vb_fabric_poll(&vb_fabric_program);
		check(now_us() < end, "%u packets of the liar came", taken - begin);
	}
	msg_send(fd, &slot, sizeof(slot));
	spawn_wait(pid);
	close(fd);
}

/* Words of a peer that cannot be: what waits for them ends. */
static void damaged_head(uint64_t (*make)(uint64_t tail))
{
	struct other other = start_reader();
	struct vb_ring_tx *ring;
	struct vb_path path;
	uint32_t psn = 0;

	check_eq(vb_path_open_slot(&vb_fabric_program, &path, other.slot, 1), 0);
	check_eq(kill(other.pid, SIGSTOP), 0);
	check_eq(waitpid(other.pid, NULL, WUNTRACED), other.pid);
	while (!send_one(&path, QUEUES, psn++, LONGEST))
		;
	check_eq(send_one(&path, QUEUES, psn, LONGEST), -EAGAIN);
	ring = &path.peer->tx[path.ring].ring;
	atomic_store(&ring->shared->head, make(ring->tail));
	check_eq(send_one(&path, QUEUES, psn, LONGEST), -EHOSTDOWN);
	check_eq(send_one(&path, QUEUES, psn, LONGEST), -EHOSTDOWN);
	check(vb_path_drained(&path), "a damaged ring is waited for");
	check_eq(kill(other.pid, SIGCONT), 0);
	vb_path_close(&path);
	stop_reader(&other);
}

static uint64_t beyond(uint64_t tail)
{
	return tail + VB_RING_LINE;
}

static uint64_t long_ago(uint64_t tail)
{
	return tail - 2 * VB_RING_MAX;
}

static uint64_t in_a_line(uint64_t tail)
{
	return tail - 1;
}

static void damaged_wake(void)
{
	struct vb_path path;
	struct other other;

	other.pid = spawn_self("sleeper", &other.fd);
	msg_recv(other.fd, &other.slot, sizeof(other.slot));
	check_eq(vb_path_open_slot(&vb_fabric_program, &path, other.slot, 1), 0);
	/* Of the ring that it has got by now. */
	do
		sleep_ms(20);
	while (atomic_load(&path.peer->segment->wake) != VB_WAKE_SLEEP);
	atomic_store(&path.peer->segment->wake, 0x5eed);
	check_eq(send_one(&path, QUEUES, 0, 8), 0);
	spawn_wait(other.pid);
	close(other.fd);
	vb_path_close(&path);
}

/*
 * While a program thread is in the middle of reading a ring, the background thread has nothing to do: it looks once a
 * tick (1 ms) and sleeps in between, instead of taking a core from the reader.
 */
static void patience(void)
{
	uint32_t slot = vb_fabric_slot(&vb_fabric_program);
	int fd;
	pid_t pid = spawn_self("slow", &fd);

	msg_send(fd, &slot, sizeof(slot));
	for (int i = 0; i < LONG_TRIES && !read_long; i++) {
		uint64_t end = now_us() + PATIENCE_MS * 1000ull;

		taken = 0;
		msg_send(fd, "n", 1);
		while (!taken) {
			vb_fabric_poll(&vb_fabric_program);
			check(now_us() < end, "no packet came");
		}
	}
	check(read_long, "all packets were read in the background");
	check(rounds_of_long <= 100 + 2 * ms_of_long,
	      "the background thread went round %u times while another read for %llu ms",
	      rounds_of_long, (unsigned long long)ms_of_long);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	close(fd);
}

/* --- little memory ---------------------------------------------------------------------------- */

static uint64_t room(void)
{
	struct statvfs vfs;

	check_eq(statvfs("/dev/shm", &vfs), 0);
	return (uint64_t)vfs.f_bavail * vfs.f_frsize;
}

static void fill_up_to(uint64_t left)
{
	int fd = open("/dev/shm/filler", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	check(fd >= 0, "%s", strerror(errno));
	check_eq(posix_fallocate(fd, 0, (off_t)(room() - left)), 0);
	close(fd);
}

/* Some queues have rings of their own when memory becomes short; the others share the first, for good. */
static void shortage(void)
{
	struct other other = start_reader();

	check_eq(ring_of(&other, 0), 0);
	check_eq(ring_of(&other, 1), 1);
	check_eq(ring_of(&other, 2), 2);
	fill_up_to(12 << 20);
	for (uint32_t q = 3; q < VB_RINGS; q++)
		check_eq(ring_of(&other, q), 0);
	order(&other);
	check_eq(unlink("/dev/shm/filler"), 0);
	check_eq(ring_of(&other, 1), 1);
	check_eq(ring_of(&other, 2), 2);
	check_eq(ring_of(&other, 3), 0);
	stop_reader(&other);
	/* Nor does a process that was never met have more than one, where there was no room from the start. */
	fill_up_to(1 << 20);
	other = start_reader();
	check_eq(ring_of(&other, 9), 0);
	order(&other);
	stop_reader(&other);
}

static void small_memory(void)
{
	enter_small_shm("size=64m,mode=1777");
	check_eq(vb_fabric_start(&host, &sink), 0);
	shortage();
	vb_fabric_stop(&vb_fabric_program);
}

int main(int argc, char **argv)
{
	struct other other;

	if (argc > 1 && !strcmp(argv[1], "reader"))
		return reader();
	if (argc > 1 && !strcmp(argv[1], "sleeper"))
		return sleeper();
	if (argc > 1 && !strcmp(argv[1], "liar"))
		return liar();
	if (argc > 1 && !strcmp(argv[1], "slow"))
		return slow_sender();
	if (argc > 1 && !strcmp(argv[1], "passer"))
		return passer();
	if (argc > 1 && !strcmp(argv[1], "short")) {
		small_memory();
		return 0;
	}
	check_eq(vb_fabric_start(&host, &sink), 0);
	patience(); /* first: the background thread waits for readers where it has peers to forget */
	other = start_reader();
	spread(&other);
	independence(&other);
	order(&other);
	stop_reader(&other);
	successors();
	lies();
	damaged_wake();
	damaged_head(beyond);
	damaged_head(long_ago);
	damaged_head(in_a_line);
	vb_fabric_stop(&vb_fabric_program);
	return 0;
}
