// SPDX-License-Identifier: MIT
/* One owner per device on a host: a second process is refused, a dead owner's device is free, its peer hears of it. */
#include "hbl.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that owns hbl_1, is connected to what it is told, and waits to be killed. */
static pid_t start_owner(int fd[2])
{
	struct address mine, peer;
	struct dev dev;
	struct end end;
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	pid = fork();
	CHECK(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dev_open(&dev, 1);
	set_port(&dev, 1);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	hbl_end_address(&end, &mine);
	tell(fd[1], &mine, sizeof(mine));
	hear(fd[1], &peer, sizeof(peer));
	hbl_end_connect(&end, &peer, NULL);
	tell(fd[1], &mine, 1);
	for (;;)
		pause();
}

static void end_owner(pid_t pid, int fd[2])
{
	int status;

	CHECK(!kill(pid, SIGKILL));
	CHECK(waitpid(pid, &status, 0) == pid);
	close(fd[0]);
	close(fd[1]);
}

int main(void)
{
	struct address mine, peer;
	struct dev dev, other;
	struct fifo fifo;
	struct mem mem;
	struct end end;
	int fd[2];
	pid_t pid = start_owner(fd);
	char byte;

	dev_open(&dev, 0);
	set_port(&dev, 1);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	mem_host(&mem, &dev, 4096);
	fifo_create(&fifo, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	hear(fd[0], &peer, sizeof(peer));

	/* The other process has it, in every way. */
	CHECK(try_open(&other, 1, 0) == EBUSY);
	CHECK(open("/dev/accel/accel1", O_RDWR) == -1 && errno == EBUSY);
	CHECK(!ibv_open_device(find_device(1)) && errno == EBUSY);

	hbl_end_address(&end, &mine);
	hbl_end_connect(&end, &peer, &(struct conn_attr){ .timeout = 20 });
	tell(fd[0], &mine, sizeof(mine));
	hear(fd[0], &byte, 1);

	/* It dies: what was on the way to it fails, and the device is free. */
	end_owner(pid, fd);
	hbl_end_write(&end, &fifo, mem.va, 1ull << 44, 64, 0);
	expect_event(&dev, IBV_EVENT_QP_FATAL);
	CHECK(!try_open(&other, 1, 0));
	CHECK(!ibv_dealloc_pd(other.pd) && !ibv_close_device(other.context) && !close(other.accel));

	/* And the next owner is another process again. */
	pid = start_owner(fd);
	hear(fd[0], &peer, sizeof(peer));
	CHECK(try_open(&other, 1, 0) == EBUSY);
	end_owner(pid, fd);

	CHECK(!hbldv_destroy_usr_fifo(fifo.usr));
	hbl_end_destroy(&end);
	mem_free(&mem);
	dev_close(&dev);
	return 0;
}
