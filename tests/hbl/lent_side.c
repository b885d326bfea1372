// SPDX-License-Identifier: MIT
/* One side of a pair, whose peer is in another process: its device, memory, queues and messages. */
#include "lent.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

struct side t;

uint32_t next_number(void)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

void open_side(int number, bool host)
{
	dev_open(&t.dev, number);
	set_port(&t.dev, 1);
	if (host)
		mem_host(&t.mem, &t.dev, 2 * BYTES);
	else
		mem_device(&t.mem, &t.dev, 2 * BYTES);
	fifo_create(&t.fifo, &t.dev, 1, HBLDV_USR_FIFO_TYPE_DB);
}

void connect_side(int fd, const struct end_attr *attr)
{
	struct address own = { 0 };

	hbl_end_create(&t.end, &t.dev, attr);
	hbl_end_address(&t.end, &own);
	own.va = t.mem.va + BYTES;
	tell(fd, &own, sizeof(own));
	hear(fd, &t.peer, sizeof(t.peer));
	hbl_end_connect(&t.end, &t.peer, NULL);
	meet(fd);
}

void close_side(void)
{
	hbl_end_destroy(&t.end);
	CHECK(!hbldv_destroy_usr_fifo(t.fifo.usr));
	mem_free(&t.mem);
	dev_close(&t.dev);
}

static char *from(uint32_t slot)
{
	return (char *)t.mem.host + slot * SLOT;
}

const char *to(uint32_t slot)
{
	return (char *)t.mem.host + BYTES + slot * SLOT;
}

void post(uint32_t slot, uint32_t size, uint32_t tag, bool ring)
{
	fill(from(slot), size, tag);
	hbl_end_post(&t.end,
		     &(struct wqe){ .opcode = LINEAR,
				    .size = size,
				    .tag = tag,
				    .completion = CQ,
				    .local = t.mem.va + slot * SLOT,
				    .remote = t.peer.va + slot * SLOT },
		     true);
	if (ring)
		fifo_ring(&t.fifo, t.end.q.qp_num, hbl_end_pi(&t.end));
}

void sent(uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end.req, &cqe);
	CHECK(cqe.requester && cqe.tag == ~tag);
}

void received(uint32_t slot, uint32_t size, uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end.res, &cqe);
	CHECK(!cqe.requester && cqe.tag == tag && cqe.size == size);
	CHECK(cqe.qpn == t.end.q.qp_num);
	CHECK(is_filled(to(slot), size, tag));
}

bool is_off(const char *name)
{
	const char *value = getenv(name);

	return value && !strcmp(value, "off");
}

void to_and_fro(int number, uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		if (number)
			received(i % SLOTS, 8, i);
		post(i % SLOTS, 8, i, true);
		sent(i);
		if (!number)
			received(i % SLOTS, 8, i);
	}
}

pid_t start(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}
