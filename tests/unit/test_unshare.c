// SPDX-License-Identifier: MIT
/*
 * Pages that stop being shared while another process writes to them: when vb_shared_remove() returns, no other process
 * stores into their file any more, be it by itself or through the kernel, and what is written from then on lands where the
 * address leads, in new private memory. Bytes of a peer never turn up in pages of the file that are somebody else's by then.
 */
#include "../programs/common.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "host/shared/shared.h"

enum { BYTES = 64 << 10, ROUNDS = 300 };

/* Write without an end, small and large, until the other side says so. */
static int writer(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node node;
	struct address peer;
	uint64_t count = 0;
	char go;

	attr.size = BYTES;
	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &peer, sizeof(peer));
	do {
		uint32_t len = ++count % 8 ? 4096 : BYTES;

		memset(node.buf, (int)(count % 255) + 1, len);
		check_eq(node_rdma(&node, count, IBV_WR_RDMA_WRITE, 0, len, &peer, 0), 0);
		cq_expect(node.send_cq, count, IBV_WC_SUCCESS);
		check_eq(node_rdma(&node, count, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, &peer, 0), 0);
		cq_expect(node.send_cq, count, IBV_WC_SUCCESS);
	} while (recv(ROLE_FD, &go, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	msg_send(ROLE_FD, &count, sizeof(count));
	node_close(&node);
	return 0;
}

/* Until the byte changes. */
static void wait_written(volatile uint8_t *at)
{
	uint8_t before = *at;
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;

	while (*at == before)
		check(now_us() < end, "nothing is written");
}

static void rounds(uint8_t *at, uint8_t *file, int fd)
{
	static uint8_t seen[BYTES];

	for (int i = 0; i < ROUNDS; i++) {
		wait_written(at + 100);
		vb_shared_remove(at, BYTES);
		/* Our own card may write there yet, to what is mapped. */
		check(mmap(at, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at,
		      "%s", strerror(errno));
		memcpy(seen, file, BYTES);
		vb_shared_forget(at, i % 2 ? BYTES : 0);
		wait_written(at + 100);
		check(!memcmp(seen, file, BYTES), "stored in the file after it was taken back");
		check(mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at,
		      "%s", strerror(errno));
		check_eq(vb_shared_add(at, BYTES, fd, 0), 0);
	}
}

int main(int argc, char **argv)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer, target;
	struct node node;
	struct ibv_mr *mr;
	uint8_t *at, *file;
	uint64_t count;
	pid_t pid;
	int fd, memfd;

	if (argc > 1)
		return writer();
	memfd = vb_shared_memfd("test", BYTES);
	check(memfd >= 0, "%s", strerror(-memfd));
	at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	file = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, memfd, 0);
	check(at != MAP_FAILED && file != MAP_FAILED, "%s", strerror(errno));
	check_eq(vb_shared_add(at, BYTES, memfd, 0), 0);
	pid = spawn_self("writer", &fd);
	node_open(&node, &attr);
	mr = ibv_reg_mr(node.pd, at, BYTES, ACCESS_ALL);
	check(mr, "%s", strerror(errno));
	node_meet(&node, fd, &peer);
	node_address(&node, &target);
	target.addr = (uintptr_t)at;
	target.rkey = mr->rkey;
	msg_send(fd, &target, sizeof(target));
	rounds(at, file, memfd);
	msg_send(fd, "", 1);
	msg_recv(fd, &count, sizeof(count));
	check(count > ROUNDS, "");
	spawn_wait(pid);
	check_eq(ibv_dereg_mr(mr), 0);
	node_close(&node);
	vb_shared_remove(at, BYTES);
	return 0;
}
