// SPDX-License-Identifier: MIT
/*
 * Writes, reads and atomics between two processes that the initiator does itself: in the target's memory and completion
 * queue, with no thread of the target's. Nothing may show but the speed: order, content, full queues, a target that is
 * stopped. What may go wrong is in lent_broken.c.
 *
 * usage: lent CASE
 */
#include "lent.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/shared/shared.h"
#include "card/card.h"

/* --- no thread wakes up ------------------------------------------------------------------------------------------- */

/* Times that the card's thread of this process went to sleep. */
static unsigned long naps(void)
{
	struct dirent *entry;
	DIR *tasks = opendir("/proc/self/task");
	unsigned long count = 0;
	bool found = false;

	CHECK(tasks);
	while (!found && (entry = readdir(tasks))) {
		char path[300], line[200] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!f)
			continue;
		found = fgets(line, sizeof(line), f) && !strcmp(line, "Name:\tverbatim\n");
		while (found && fgets(line, sizeof(line), f))
			sscanf(line, "voluntary_ctxt_switches: %lu", &count);
		fclose(f);
	}
	closedir(tasks);
	CHECK(found);
	return count;
}

/* Whether the peer maps what it writes to: the card's memory, or this program's, and the CQ. */
static bool is_mapped(bool host)
{
	return !is_off("VERBATIM_SHARE") && (!host || vb_shared_covers(t.mem.host, t.mem.size));
}

static void unwoken(int number, int fd)
{
	enum { ROUNDS = 500, FEW = ROUNDS / 50 };
	const char *kind = getenv("VERBATIM_TEST_MEMORY");
	unsigned long before;

	/* Pages that the program took back are written to by packets. */
	for (int host = 0; host < (kind && !strcmp(kind, "left") ? 1 : 2); host++) {
		open_side(number, host);
		connect_side(fd, &(struct end_attr){ .port = 1 });
		to_and_fro(number, 10);
		usleep(100000); /* it sleeps by now */
		meet(fd);
		before = naps();
		to_and_fro(number, ROUNDS);
		CHECK(naps() - before < FEW);
		meet(fd);
		close_side();
		meet(fd);
	}
}

/* --- which way, and reads and atomics as well ---------------------------------------------------------------------- */

/* How messages left, since the last call. */
static struct vb_path_counters ways(void)
{
	static struct vb_path_counters last;
	struct vb_path_counters now, since;

	vb_path_counters(vb_card_program(), &now);
	since = (struct vb_path_counters){ now.calls - last.calls, now.stores - last.stores,
					   now.copies - last.copies, now.packets - last.packets };
	last = now;
	return since;
}

/* One write each, and many at once, which are not worth a system call each. */
static void count_ways(int number, int fd, bool host)
{
	enum { ROUNDS = 50, BATCH = 40 };
	struct vb_path_counters w;
	unsigned long before;

	to_and_fro(number, 10);
	ways();
	to_and_fro(number, ROUNDS);
	w = ways();
	CHECK(w.stores == (is_mapped(host) ? ROUNDS : 0));
	CHECK(w.copies == (is_mapped(host) ? 0 : ROUNDS));
	CHECK(!w.packets && !w.calls);
	usleep(100000); /* the card's thread sleeps by now */
	meet(fd);
	before = naps();
	for (uint32_t r = 0; r < ROUNDS; r++) {
		for (uint32_t i = 0; !number && i < BATCH; i++)
			post(i, 8, i, i == BATCH - 1);
		for (uint32_t i = 0; i < BATCH; i++) {
			if (number)
				received(i, 8, i);
			else
				sent(i);
		}
		meet(fd);
	}
	w = ways();
	if (!number && is_mapped(host))
		CHECK(w.stores == ROUNDS * BATCH && !w.packets && !w.copies);
	else if (!number)
		CHECK(w.stores == 0 && w.packets > 0);
	if (is_mapped(host))
		CHECK(naps() - before < ROUNDS / 5);
}

static void by_ways(int number, int fd)
{
	const char *kind = getenv("VERBATIM_TEST_MEMORY");

	/* Of mixed pages each message goes its own way. */
	bool mixed = kind && (!strcmp(kind, "mixed") || !strcmp(kind, "left"));

	for (int host = 0; host < (mixed ? 1 : 2); host++) {
		open_side(number, host);
		connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64 });
		count_ways(number, fd, host);
		meet(fd);
		close_side();
		meet(fd);
	}
}

static void ask(uint32_t opcode, uint32_t size, uint32_t tag, uint64_t at, uint64_t add)
{
	hbl_end_post(&t.end,
		     &(struct wqe){ .opcode = opcode,
				    .size = size,
				    .tag = tag,
				    .completion = tag % 2 ? CQ : NONE,
				    .local = t.mem.va,
				    .remote = t.peer.va + at,
				    .add = add },
		     true);
	fifo_ring(&t.fifo, t.end.q.qp_num, hbl_end_pi(&t.end));
}

static void told(uint32_t size, uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end.res, &cqe);
	CHECK(!cqe.requester && cqe.tag == tag && cqe.size == size);
}

/* The target is not asked: its thread sleeps on, and sees nothing but the completions. */
static void reads(int number, int fd)
{
	enum { ROUNDS = 200, FEW = ROUNDS / 20 };
	static const uint32_t sizes[] = { 0, 1, 8, 4096, 8193, SLOT };
	unsigned long before;
	bool mapped;

	for (int host = 0; host < 2; host++) {
		open_side(number, host);
		mapped = is_mapped(host);
		for (uint32_t i = 0; number && i < SLOTS; i++)
			fill((char *)to(i), SLOT, i);
		connect_side(fd, &(struct end_attr){ .port = 1,
						     .type = number ? HBLDV_WQ_READ_RDV_ENDP
								    : HBLDV_WQ_READ_RDV });
		usleep(100000);
		meet(fd);
		ways();
		before = naps();
		for (uint32_t i = 0; i < ROUNDS; i++) {
			uint32_t size = sizes[i % 6], slot = i % SLOTS;

			if (!number) {
				ask(RDV_READ, size, i, slot * SLOT, 0);
				sent(i);
				CHECK(is_filled(t.mem.host, size, slot));
			} else if (i % 2) {
				told(size, i);
			}
		}
		if (!is_off("VERBATIM_SHARE"))
			CHECK(naps() - before < FEW);
		if (!number && mapped)
			CHECK(ways().stores == ROUNDS);
		meet(fd);
		close_side();
		meet(fd);
	}
}

/* The target's program changes the word at the same time. */
static void adds(int number, int fd)
{
	enum { ROUNDS = 2000, FEW = ROUNDS / 20 };
	_Atomic uint64_t *word;
	uint64_t last = 0;
	unsigned long before;

	open_side(number, false);
	word = (_Atomic uint64_t *)to(1);
	connect_side(fd, &(struct end_attr){ .port = 1, .wide = true, .res_cqes = 4096 });
	usleep(100000);
	meet(fd);
	ways();
	before = naps();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (number) {
			atomic_fetch_add(word, 1);
			if (i % 2)
				told(8, i);
			continue;
		}
		ask(t.dev.gaudi3 ? FETCH_ADD_G3 : FETCH_ADD_R, 8, i, SLOT, 1ull << 32);
		sent(i);
		CHECK(*(uint64_t *)t.mem.host >> 32 == i);
		CHECK((uint32_t) * (uint64_t *)t.mem.host >= (uint32_t)last);
		last = *(uint64_t *)t.mem.host;
	}
	if (is_mapped(false))
		CHECK(naps() - before < FEW);
	if (!number)
		CHECK(ways().stores == (is_mapped(false) ? ROUNDS : 0));
	meet(fd);
	if (number)
		CHECK(*word == ((uint64_t)ROUNDS << 32 | ROUNDS));
	close_side();
}

/* The same for a program that looks at the entry itself, whose first word is written after all others. */
static void received_valid(uint32_t slot, uint32_t size, uint32_t tag)
{
	_Atomic uint32_t *entry =
		(_Atomic uint32_t *)t.end.res.q.mem_cpu_addr + 4 * (t.end.res.ci & t.end.res.mask);
	uint64_t start = now_ns();

	while (!(atomic_load_explicit(entry, memory_order_acquire) >> 31)) {
		CHECK(now_ns() - start < 20000000000ull);
		sched_yield();
	}
	CHECK(entry[2] == tag && entry[3] == size);
	CHECK(is_filled(to(slot), size, tag));
	received(slot, size, tag);
}

/* --- order and content -------------------------------------------------------------------------------------------- */

/* Alone and in batches, small and large, so that both ways are taken in turns. */
static void mixed(int number, int fd)
{
	enum { ROUNDS = 150 };
	static const uint32_t sizes[] = { 0, 1, 8, 64, 4096, 8193, SLOT };
	uint32_t tag = 0;

	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64 });
	for (int r = 0; r < ROUNDS; r++) {
		uint32_t count = r % 2 ? 1 + next_number() % 40 : 1, each = next_number() % 2;
		uint32_t first = next_number();

		for (uint32_t i = 0; !number && i < count; i++)
			post(i, sizes[(first + i) % 7], tag + i, each || i == count - 1);
		for (uint32_t i = 0; i < count; i++) {
			if (!number)
				sent(tag + i);
			else if (i % 2)
				received_valid(i, sizes[(first + i) % 7], tag + i);
			else
				received(i, sizes[(first + i) % 7], tag + i);
		}
		tag += count;
		meet(fd);
	}
	CHECK(no_event(&t.dev));
	close_side();
}

/* --- a completion queue without room ------------------------------------------------------------------------------ */

static void full(int number, int fd)
{
	enum { MESSAGES = 40, ROUNDS = 5 };

	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64, .res_cqes = 4 });
	for (uint32_t r = 0; r < ROUNDS; r++) {
		for (uint32_t i = 0; !number && i < MESSAGES; i++)
			post(i, 8, r * MESSAGES + i, true);
		for (uint32_t i = 0; i < MESSAGES; i++) {
			if (!number)
				sent(r * MESSAGES + i);
			else
				received(i, 8, r * MESSAGES + i);
			if (number && i % 8 == 0)
				usleep(1000);
		}
		meet(fd);
	}
	close_side();
}

/* --- a target that is stopped ------------------------------------------------------------------------------------- */

static void stopped(int number, int fd)
{
	enum { MESSAGES = 20 };
	pid_t self = getpid(), peer;

	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1 });
	tell(fd, &self, sizeof(self));
	hear(fd, &peer, sizeof(peer));
	meet(fd);
	if (!number) {
		CHECK(!kill(peer, SIGSTOP));
		for (uint32_t i = 0; i < MESSAGES; i++) {
			post(i, SLOT, i, true);
			sent(i);
		}
		CHECK(!kill(peer, SIGCONT));
	}
	for (uint32_t i = 0; number && i < MESSAGES; i++)
		received(i, SLOT, i);
	meet(fd);
	close_side();
}

/* --- which -------------------------------------------------------------------------------------------------------- */

/* Without process_vm_writev all goes in packets, which other tests are about. */
static bool can_deliver(void)
{
	char here = 1, there = 2;
	struct iovec near = { &here, 1 }, far = { &there, 1 };
	int status;
	pid_t pid = start();

	if (!pid)
		exit(process_vm_writev(getppid(), &near, 1, &far, 1, 0) != 1);
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*side)(int number, int fd);
	} cases[] = {
		{ "unwoken", unwoken },
		{ "mixed", mixed },
		{ "full", full },
		{ "stopped", stopped },
		{ "forged", forged },
		{ "ways", by_ways },
		{ "reads", reads },
		{ "adds", adds },
		{ "unmapped", unmapped },
		{ "given", given },
		{ "unfinished", unfinished },
	};

	CHECK(argc == 2);
	if (!can_deliver() || is_off("VERBATIM_DIRECT")) {
		printf("the kernel refuses process_vm_writev between processes, or it is not wanted\n");
		return SKIPPED;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(argv[1], cases[i].name))
			return run_pair(cases[i].side);
	if (!strcmp(argv[1], "killed"))
		return killed();
	if (!strcmp(argv[1], "gone"))
		return gone();
	CHECK(!strcmp(argv[1], "hostile"));
	return hostile();
}
