// SPDX-License-Identifier: MIT
/*
 * A peer that forges packets and doorbells. A READ that was never asked for, with a sequence number of the past, is not
 * answered from a queue that takes writes only. Doorbells for queues that do not exist fill neither the log nor memory.
 */
#include "hbl.h"

#include <unistd.h>

#include "fabric/fabric.h"

enum { SIZE = 64, ROUNDS = 3, BAD_DOORBELLS = 20000, LOCAL_KEY = 7, WRONG_KEY = 0xdead };

static uint64_t secret;
static _Atomic bool forge;
static _Atomic unsigned int reads;

/* Behind each WRITE a READ with the number before. */
static int forging_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	struct vb_pkt forged = *pkt;
	int ret = vb_link_pass.send(link, path, pkt);

	if (ret || pkt->op != VB_PKT_WRITE || !atomic_load(&forge))
		return ret;
	forged.op = VB_PKT_READ;
	forged.psn = (pkt->psn - 1) & 0xffffff;
	forged.va = secret;
	forged.rkey = WRONG_KEY;
	forged.dma_len = SIZE;
	forged.iov_cnt = 0;
	forged.len = 0;
	forged.flags = VB_PKT_LAST;
	vb_link_pass.send(link, path, &forged);
	return ret;
}

static void counting_receive(struct vb_link *link, const struct vb_pkt *pkt)
{
	if (pkt->op == VB_PKT_READ_RESPONSE)
		atomic_fetch_add(&reads, 1);
	vb_link_pass.receive(link, pkt);
}

/* Lines on standard error, which is a file here. */
static long log_bytes(void)
{
	return lseek(STDERR_FILENO, 0, SEEK_CUR);
}

static void flood(struct dev *dev, struct fifo *fifo)
{
	char name[] = "/tmp/verbatim-forged-XXXXXX";
	int saved = dup(STDERR_FILENO), file = mkstemp(name);
	long before, after;
	unsigned int more = 0;

	CHECK(saved >= 0 && file >= 0);
	unlink(name);
	dup2(file, STDERR_FILENO);
	before = log_bytes();
	for (uint32_t i = 0; i < BAD_DOORBELLS; i++)
		fifo_ring(fifo, 900 + i % 50, 1);
	fifo_wait(fifo);
	after = log_bytes();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(file);
	CHECK(after - before > 0 && after - before < BAD_DOORBELLS);
	expect_event(dev, IBV_EVENT_PORT_ERR);
	while (!no_event(dev)) /* those that came after one was read */
		more++;
	CHECK(more < BAD_DOORBELLS / 100);
}

static void side(int number, int fd)
{
	static struct vb_link_ops ops;
	static struct vb_link link = { .ops = &ops };
	struct end_attr attr = { .port = 1, .wqes = 128, .type = HBLDV_WQ_WRITE };
	struct conn_attr conn = { .local_key = LOCAL_KEY, .remote_key = LOCAL_KEY };
	struct address own = { 0 }, peer;
	struct fifo fifo;
	struct end end;
	struct mem mem;
	struct dev dev;

	dev_open(&dev, number);
	set_port(&dev, 1);
	mem_device(&mem, &dev, 1 << 16);
	fifo_create(&fifo, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	hbl_end_create(&end, &dev, &attr);
	hbl_end_address(&end, &own);
	own.va = mem.va;
	tell(fd, &own, sizeof(own));
	hear(fd, &peer, sizeof(peer));
	ops = vb_link_pass;
	ops.name = "forging";
	ops.send = forging_send;
	ops.receive = counting_receive;
	CHECK(!vb_link_wrap(vb_host_program.fabric, "shm", &link));
	hbl_end_connect(&end, &peer, &conn);
	meet(fd);
	if (number == 0) {
		struct cqe cqe;

		secret = peer.va + 4096;
		for (uint32_t i = 0; i < ROUNDS; i++) {
			atomic_store(&forge, i > 0);
			hbl_end_write(&end, &fifo, mem.va, peer.va, SIZE, i);
			hbl_cq_wait(&end.req, &cqe);
		}
	}
	meet(fd); /* its answers have come before */
	CHECK(!atomic_load(&reads));
	if (number == 0)
		flood(&dev, &fifo);
	meet(fd);
	CHECK(!hbldv_destroy_usr_fifo(fifo.usr));
	hbl_end_destroy(&end);
	mem_free(&mem);
	dev_close(&dev);
}

int main(void)
{
	return run_pair(side);
}
