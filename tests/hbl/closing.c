// SPDX-License-Identifier: MIT
/*
 * A device is closed and opened again while its peer goes on sending to it: packets for what is gone are dropped, and the
 * next owner of the same numbers gets what is meant for it.
 */
#include "hbl.h"

enum { ROUNDS = 200, MESSAGES = 16, SIZE = 4096 };

/* To the first QP of the peer, whether it is there or not; nobody waits for an answer. */
static void send_blindly(int fd)
{
	struct address peer;
	struct dev dev;
	struct fifo fifo;
	struct mem mem;
	struct end end;
	char go_on;

	dev_open(&dev, 0);
	set_port(&dev, 1);
	mem_device(&mem, &dev, SIZE);
	fifo_create(&fifo, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	hear(fd, &peer, sizeof(peer));
	do {
		hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
		hbl_end_connect(&end, &peer, NULL);
		for (uint32_t i = 0; i < MESSAGES; i++)
			hbl_end_write(&end, &fifo, mem.va, peer.va, SIZE, i);
		hbl_end_destroy(&end);
		tell(fd, "", 1);
		hear(fd, &go_on, 1);
	} while (go_on);
	CHECK(!hbldv_destroy_usr_fifo(fifo.usr));
	mem_free(&mem);
	dev_close(&dev);
}

static void open_and_close(int fd)
{
	struct address own, nobody = { .qpn = 8000 };
	struct hbldv_ucontext_attr attr;
	struct dev dev;
	struct mem mem;
	struct end end;
	char byte, go_on = 1;

	dev_open(&dev, 1);
	attr = (struct hbldv_ucontext_attr){ .core_fd = dev.accel };
	mem_device(&mem, &dev, SIZE);
	CHECK(!ibv_query_gid(dev.context, 1, 0, &own.gid));
	own.qpn = 1;
	own.va = mem.va;
	nobody.gid = own.gid;
	tell(fd, &own, sizeof(own));
	for (int i = 0; i < ROUNDS; i++) {
		/* While this goes on the other side sends once. */
		set_port(&dev, 1);
		hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
		CHECK(end.q.qp_num == own.qpn);
		hbl_end_connect(&end, &nobody, NULL);
		hbl_end_destroy(&end);
		CHECK(!ibv_dealloc_pd(dev.pd) && !ibv_close_device(dev.context));
		dev.context = hbldv_open_device(find_device(1), &attr);
		CHECK(dev.context);
		dev.pd = ibv_alloc_pd(dev.context);
		CHECK(dev.pd);
		hear(fd, &byte, 1);
		go_on = i < ROUNDS - 1;
		tell(fd, &go_on, 1);
	}
	CHECK(no_event(&dev));
	mem_free(&mem);
	dev_close(&dev);
}

static void side(int number, int fd)
{
	if (number)
		open_and_close(fd);
	else
		send_blindly(fd);
}

int main(void)
{
	return run_pair(side);
}
