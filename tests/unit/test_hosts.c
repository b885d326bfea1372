// SPDX-License-Identifier: MIT
/*
 * Two hosts in one process: each has its own slot, life word, segment and background thread, they talk by the rings of shared
 * memory as two processes do, and one sees the other go. The fabric alone: a card is what a sink counts.
 *
 *	host a: sink, card a ---- rings ----> host b: sink, card b
 *	   registry: slot of a, slot of b, one pid
 */
#include "../programs/common.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hosts_kit.h"
#include "base/rcu.h"
#include "fabric/direct.h"
#include "fabric/running.h"
#include "fabric/segment.h"
#include "host/shared/shared.h"

static uint32_t life_of(const struct vb_host *host)
{
	return atomic_load(&host->fabric->segment->life);
}

/* --- the registry ----------------------------------------------------------------------------- */

struct listed {
	pid_t pid;
	unsigned int count;
	uint32_t slot[4];
};

static void list_one(void *arg, const struct vb_slot_info *info)
{
	struct listed *listed = arg;

	if (info->pid == listed->pid && listed->count < 4)
		listed->slot[listed->count++] = info->slot;
}

static struct listed slots_of(pid_t pid)
{
	struct listed listed = { .pid = pid };

	check(vb_registry_list(list_one, &listed) >= 0, "the registry cannot be read");
	return listed;
}

/* --- cases ------------------------------------------------------------------------------------ */

static void apart(void)
{
	struct listed listed;
	struct pair pair;
	uint32_t slot[2];

	pair_start(&pair);
	for (int i = 0; i < 2; i++) {
		const struct vb_fabric *fabric = pair.host[i]->fabric;

		slot[i] = fabric->segment->slot;
		check_eq(life_of(pair.host[i]), (uint32_t)fabric->thread_id);
		check_eq(fabric->segment->pid, (uint32_t)getpid());
	}
	check(slot[0] != slot[1], "both hosts have slot %u", slot[0]);
	check(life_of(pair.host[0]) != life_of(pair.host[1]), "both hosts have one life");
	check(pair.host[0]->fabric->segment != pair.host[1]->fabric->segment, "one segment");
	listed = slots_of(getpid());
	check_eq(listed.count, 2);
	for (int i = 0; i < 2; i++) {
		check(listed.slot[i] == slot[0] || listed.slot[i] == slot[1], "slot %u",
		      listed.slot[i]);
		/* Each sees the other's lock, and its own. */
		for (int k = 0; k < 2; k++)
			check(vb_registry_alive(pair.host[i]->meet, slot[k],
						pair.host[k]->fabric->segment->generation),
			      "host %d takes host %d for dead", i, k);
	}
	pair_stop(&pair);
	check_eq(slots_of(getpid()).count, 0);
}

static void packets(void)
{
	struct pair pair;

	pair_start(&pair);
	talk(&pair, 0, 1, 5000);
	talk(&pair, 1, 0, 5000);
	check_eq(pair.card[0].taken, 5000);
	pair_stop(&pair);
}

/* One thread polls both hosts in turn: each gets its own. */
static void polled_in_turn(void)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;
	struct vb_path there, back;
	struct pair pair;

	pair_start(&pair);
	open_to(&there, &pair, 0, 1);
	open_to(&back, &pair, 1, 0);
	for (uint32_t psn = 0; psn < 1000; psn++) {
		check_eq(send_one(&there, psn), 0);
		check_eq(send_one(&back, psn), 0);
		while (pair.card[0].taken <= psn || pair.card[1].taken <= psn) {
			check(now_us() < end, "packet %u did not come", psn);
			vb_fabric_poll(pair.host[0]->fabric);
			vb_fabric_poll(pair.host[1]->fabric);
		}
	}
	vb_path_close(&there);
	vb_path_close(&back);
	pair_stop(&pair);
}

/* Memory of one host, by a key of its own, written by the other: both have the same address space. */
static void direct(void)
{
	enum { INDEX = 70, KEY = 0x1234 << 8 | 0x56, PD = 9 };
	static uint64_t word = 1, new = 2;
	struct iovec iov = { &new, sizeof(new) };
	struct vb_direct_done done;
	struct vb_fabric *fabric;
	struct vb_seg_qp *qp;
	struct vb_seg_mr *mr;
	struct vb_path path;
	struct pair pair;
	uint32_t dqpn;

	pair_start(&pair);
	fabric = pair.host[1]->fabric;
	qp = vb_segment_qp(fabric, INDEX);
	mr = vb_segment_mr(fabric, KEY >> 8);
	check(qp && mr, "no entries");
	qp->remote_qpn = 1;
	qp->access = IBV_ACCESS_REMOTE_WRITE;
	qp->pdn = PD;
	qp->transport = IBV_QPT_RC;
	atomic_store(&qp->ready, 1);
	*mr = (struct vb_seg_mr){ .access = IBV_ACCESS_REMOTE_WRITE,
				  .pdn = PD,
				  .addr = (uintptr_t)&word,
				  .iova = (uintptr_t)&word,
				  .length = sizeof(word) };
	atomic_store(&mr->key, KEY);
	check(vb_segment_find_mr(fabric, KEY >> 8) == mr, "the own entry is not found");
	check(!vb_segment_find_mr(pair.host[0]->fabric, KEY >> 8), "it is found by the other host");
	open_to(&path, &pair, 0, 1);
	path.transport = IBV_QPT_RC;
	dqpn = vb_fabric_slot(fabric) << VB_QPN_INDEX_BITS | INDEX;
	vb_read_lock();
	check_eq(vb_direct_copy(&path, 1, dqpn, true, &iov, 1, (uintptr_t)&word, KEY, sizeof(word),
				&done),
		 VB_DIRECT_OK);
	check_eq(word, 2);
	vb_read_unlock();
	vb_segment_wait_mr(fabric, KEY >> 8); /* no pin was left */
	vb_path_close(&path);
	pair_stop(&pair);
}

static void await_gone(struct vb_path *path)
{
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;
	bool alive;

	do {
		check(now_us() < end, "the host that has stopped is taken for alive");
		vb_read_lock();
		alive = vb_path_alive(path);
		vb_read_unlock();
	} while (alive);
}

/* One stops while the process goes on: the other sees it, and meets the next one. */
static void leaves(void)
{
	struct vb_path path;
	struct pair pair;
	uint32_t slot, generation;

	pair_start(&pair);
	talk(&pair, 0, 1, 10);
	open_to(&path, &pair, 0, 1);
	slot = vb_fabric_slot(pair.host[1]->fabric);
	generation = pair.host[1]->fabric->segment->generation;
	host_stop(&pair, 1);
	await_gone(&path);
	check_eq(send_one(&path, 0), -EHOSTDOWN);
	check(!vb_registry_alive(pair.host[0]->meet, slot, generation), "its slot is taken");
	check(!vb_registry_lingers(pair.host[0]->meet, slot), "its slot is locked");
	check_eq(slots_of(getpid()).count, 1);
	pair.card[1].taken = 0;
	host_start(&pair, 1);
	talk(&pair, 0, 1, 10);
	talk(&pair, 1, 0, 10);
	vb_path_close(&path);
	pair_stop(&pair);
}

/* A child has neither host; it may start one. The parent's go on. */
static void forks(void)
{
	uint32_t epoch;
	struct pair pair;
	pid_t pid;

	pair_start(&pair);
	talk(&pair, 0, 1, 10);
	epoch = vb_fabric_epoch(pair.host[0]->fabric);
	pid = fork();
	if (!pid) {
		bool ok = !pair.host[0]->fabric->segment && !pair.host[1]->fabric->segment &&
			  vb_fabric_epoch(pair.host[0]->fabric) != epoch &&
			  !vb_fabric_start(pair.host[0], &counting_sink) &&
			  slots_of(getpid()).count == 1;

		if (ok)
			vb_fabric_stop(pair.host[0]->fabric);
		_exit(!ok);
	}
	spawn_wait(pid);
	talk(&pair, 0, 1, 10);
	talk(&pair, 1, 0, 10);
	pair_stop(&pair);
}

static _Atomic pid_t handler_child; /* 0 in the child itself, and before the handler */
static bool handler_forked;

static void fork_in_handler(int sig)
{
	pid_t pid;

	(void)sig;
	handler_forked = true;
	pid = fork();
	if (!pid)
		alarm(20); /* instead of a hang */
	handler_child = pid;
}

/* The child has returned from the handler, and to the end of what it interrupted. */
static void use_in_child(struct pair *pair)
{
	check(handler_forked, "no signal came");
	if (handler_child)
		return;
	if (vb_fabric_start(pair->host[0], &counting_sink))
		_exit(1);
	vb_fabric_stop(pair->host[0]->fabric); /* waits for walks */
	_exit(0);
}

/* A signal in the middle of a walk over the hosts. */
static void forks_in_walk(void)
{
	struct vb_fabric *fabric;
	struct pair pair;

	pair_start(&pair);
	signal(SIGUSR1, fork_in_handler);
	handler_forked = false;
	fabric = vb_running_begin();
	raise(SIGUSR1);
	for (; fabric; fabric = vb_running_next(fabric))
		check(fabric->segment, "a fabric that does not run");
	vb_running_end();
	use_in_child(&pair);
	spawn_wait(handler_child);
	talk(&pair, 0, 1, 10);
	pair_stop(&pair);
}

enum { SHARED_KEY = 20 };

struct waiting {
	pthread_t thread;
	void *page;
	_Atomic uint64_t *pin;
};

/* Once the other thread waits for the pin, it gets a signal; the pin goes when the child has ended. */
static void *interrupt(void *arg)
{
	struct waiting *waiting = arg;
	struct vb_shared_piece piece;
	int status = -1;

	while (vb_shared_find(waiting->page, 1, &piece))
		sched_yield();
	usleep(20000);
	check_eq(pthread_kill(waiting->thread, SIGUSR1), 0);
	while (!handler_child)
		sched_yield();
	check_eq(waitpid(handler_child, &status, 0), handler_child);
	check_eq(status, 0);
	atomic_store(waiting->pin, 0);
	return NULL;
}

/*
 * Host b is in the middle of using memory that the process takes back. The wait for it is interrupted, as a program
 * expects that waits for a process that is stopped can be.
 */
static void forks_in_wait(void)
{
	struct waiting waiting = { .thread = pthread_self() };
	struct vb_seg_mr *mr;
	struct pair pair;
	uint32_t slot;
	pthread_t thread;
	int fd;

	pair_start(&pair);
	signal(SIGUSR1, fork_in_handler);
	handler_forked = false;
	handler_child = 0;
	fd = vb_shared_memfd("page", VB_SHARED_PAGE);
	check(fd >= 0, "no memory file");
	waiting.page = mmap(NULL, VB_SHARED_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(waiting.page != MAP_FAILED, "no memory");
	check_eq(vb_shared_add(waiting.page, VB_SHARED_PAGE, fd, 0), 0);
	mr = vb_segment_mr(pair.host[0]->fabric, SHARED_KEY);
	check(mr, "no entry of a key");
	mr->addr = (uintptr_t)waiting.page;
	mr->length = VB_SHARED_PAGE;
	slot = vb_fabric_slot(pair.host[1]->fabric);
	waiting.pin = &pair.host[0]->fabric->segment->pins[slot][0];
	atomic_store(waiting.pin,
		     (uint64_t)(vb_registry_generation(pair.host[0]->meet, slot) & 0x7fff) << 49 |
			     1ull << 48 | SHARED_KEY);
	check_eq(pthread_create(&thread, NULL, interrupt, &waiting), 0);
	vb_shared_remove(waiting.page, VB_SHARED_PAGE);
	use_in_child(&pair);
	check_eq(pthread_join(thread, NULL), 0);
	munmap(waiting.page, VB_SHARED_PAGE);
	close(fd);
	mr->length = 0;
	talk(&pair, 0, 1, 10);
	pair_stop(&pair);
}

/* A process with two hosts that says so, and then waits; or exits, without stopping them. */
static int role(bool exits)
{
	struct pair pair;

	pair_start(&pair);
	msg_send(ROLE_FD, "s", 1);
	if (!exits)
		pause();
	msg_recv(ROLE_FD, &(char){ 0 }, 1);
	return 0;
}

/* Both slots go with their process, however it ends. */
static void ends(const char *how)
{
	struct pair pair;
	int fd, status;
	pid_t pid;

	memset(&pair, 0, sizeof(pair));
	host_start(&pair, 0);
	pid = spawn_self(how, &fd);
	msg_recv(fd, &(char){ 0 }, 1);
	check_eq(slots_of(pid).count, 2);
	if (!strcmp(how, "exits"))
		msg_send(fd, "e", 1);
	else
		kill(pid, SIGKILL);
	check_eq(waitpid(pid, &status, 0), pid);
	check_eq(slots_of(pid).count, 0);
	vb_registry_reap(pair.host[0]->meet);
	check_eq(slots_of(getpid()).count, 1);
	close(fd);
	host_stop(&pair, 0);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return role(!strcmp(argv[1], "exits"));
	apart();
	packets();
	polled_in_turn();
	direct();
	leaves();
	forks();
	forks_in_walk();
	forks_in_wait();
	ends("killed");
	ends("exits");
	return 0;
}
