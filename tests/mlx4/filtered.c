// SPDX-License-Identifier: MIT
/*
 * A program that closes itself in by a filter of system calls between its doorbells, one that ends it for anything but what
 * it does itself. Doorbells by store go on, and nothing of how they are made faster asks the kernel for something then.
 */
#include "raw.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FEW = 10, RINGS = 500 };

static void ring(struct raw *raw)
{
	struct mlx4_cqe cqe;
	struct raw_wqe wqe;

	raw_begin(&wqe, MLX4_OPCODE_NOP, MLX4_WQE_CTRL_CQ_UPDATE, 0);
	check(raw_post(raw, &wqe));
	raw_ring(raw);
	raw_expect(&raw->send, raw->node->qp->qp_num, true, &cqe);
	raw_free(raw, &cqe);
}

static void close_in(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	check_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		test_skip("no filters of system calls: %s", strerror(errno));
}

int main(void)
{
	static struct raw raw;
	static struct node node;
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address self;

	node_open(&node, &attr);
	node_address(&node, &self);
	node_connect(&node, &self);
	raw_open(&raw, &node);
	for (int i = 0; i < FEW; i++)
		ring(&raw);
	close_in();
	for (int i = 0; i < RINGS; i++)
		ring(&raw);
	_exit(0); /* closing the device opens files */
}
