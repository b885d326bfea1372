// SPDX-License-Identifier: MIT
/*
 * A program that closes itself in by a filter of system calls after it opened a card and talked to its peers: with a filter
 * that refuses (EPERM) or ends the process for everything that docs/security.md does not name. All kinds of work go on,
 * between processes and inside of one, for the one that posts and for the one that is posted to; objects can be destroyed;
 * and a peer that is killed then is noticed. Also with a filter that is not announced by prctl(), and refuses membarrier only.
 */
#include "../programs/common.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 200, LEN = 3000 };

enum filter { NONE, REFUSES, KILLS, NO_MEMBARRIER, FILTERS };

/* What docs/security.md says is always needed, */
static const int needed[] = {
	SYS_futex, SYS_sched_yield, SYS_nanosleep, SYS_rt_sigprocmask, SYS_getpid,
	SYS_fcntl, SYS_newfstatat,  SYS_read,      SYS_write,          SYS_close,
	SYS_mmap,  SYS_munmap,      SYS_madvise,   SYS_mprotect,       SYS_brk,
	SYS_exit,  SYS_exit_group,
};
/* what it uses where it may, and a filter that ends the process must let pass, */
static const int wanted[] = { SYS_process_vm_readv, SYS_process_vm_writev, SYS_fallocate };
/* and what this test itself calls. */
static const int own[] = { SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_poll,
			   SYS_ppoll,  SYS_kill,     SYS_wait4,   SYS_pause };

struct program {
	struct sock_filter code[128];
	unsigned short n;
};

static void add(struct program *p, struct sock_filter code)
{
	p->code[p->n++] = code;
}

static void add_calls(struct program *p, const int *calls, size_t count, uint32_t result)
{
	for (size_t i = 0; i < count; i++) {
		add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i],
						    0, 1));
		add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, result));
	}
}

#define ADD_CALLS(p, calls, result) add_calls(p, calls, sizeof(calls) / sizeof(calls[0]), result)

static void close_in(enum filter how)
{
	static const int membarrier[] = { SYS_membarrier };
	uint32_t refused = SECCOMP_RET_ERRNO | EPERM, otherwise = SECCOMP_RET_ALLOW;
	struct program p = { .n = 0 };
	struct sock_fprog filter;

	if (how == NONE)
		return;
	add(&p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					     offsetof(struct seccomp_data, nr)));
	if (how == NO_MEMBARRIER) {
		ADD_CALLS(&p, membarrier, refused);
	} else {
		ADD_CALLS(&p, needed, SECCOMP_RET_ALLOW);
		ADD_CALLS(&p, own, SECCOMP_RET_ALLOW);
		ADD_CALLS(&p, wanted, how == KILLS ? SECCOMP_RET_ALLOW : refused);
		otherwise = how == KILLS ? SECCOMP_RET_KILL_PROCESS : refused;
	}
	add(&p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise));
	filter = (struct sock_fprog){ p.n, p.code };
	/* Past the function that would note it, as a program that installs its filter by system calls alone. */
	if (how == NO_MEMBARRIER)
		syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	else
		check_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter))
		test_skip("no filters of system calls: %s", strerror(errno));
}

/* ---- work ---- */

struct pair {
	struct node to, local, other; /* to the peer, and two that are connected with each other */
	struct address peer;
};

static void open_all(struct pair *p, int fd)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.timeout = 12;
	attr.retry_cnt = 1;
	attr.rnr_retry = 7;
	attr.events = true;
	node_open(&p->to, &attr);
	node_meet(&p->to, fd, &p->peer);
	attr.events = false;
	node_pair(&p->local, &p->other, &attr);
}

static void one_sided(struct node *node, const struct address *peer, enum ibv_wc_status status)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };

	for (unsigned int i = 0; i < 3; i++) {
		check_eq(node_rdma(node, i, opcodes[i], 0, i < 2 ? LEN : 8, peer, 0), 0);
		cq_expect(node->send_cq, i, status);
		if (status != IBV_WC_SUCCESS)
			return;
	}
}

/* Wait for a completion by its event. */
static void await_event(struct node *node, struct ibv_cq *cq)
{
	struct ibv_cq *which;
	void *context;

	check_eq(ibv_req_notify_cq(cq, 0), 0);
	if (!cq_wait(cq, &(struct ibv_wc){ 0 }, 0)) {
		check_eq(ibv_get_cq_event(node->channel, &which, &context), 0);
		ibv_ack_cq_events(which, 1);
		check(cq_wait(cq, &(struct ibv_wc){ 0 }, 10000));
	}
}

static void work_locally(struct pair *p)
{
	struct address other;

	node_address(&p->other, &other);
	one_sided(&p->local, &other, IBV_WC_SUCCESS);
	check_eq(node_recv(&p->other, 1, 0, LEN), 0);
	check_eq(node_send(&p->local, 2, 0, LEN, IBV_SEND_SIGNALED), 0);
	cq_expect(p->local.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(p->other.recv_cq, 1, IBV_WC_SUCCESS);
}

/* Both sides: a message each way, one of them waited for, and memory of the other. */
static void work(struct pair *p, bool first)
{
	for (int i = 0; i < ROUNDS; i++) {
		check_eq(node_recv(&p->to, 1, 0, LEN), 0);
		if (first) {
			check_eq(node_send(&p->to, 2, 0, LEN, IBV_SEND_SIGNALED), 0);
			cq_expect(p->to.send_cq, 2, IBV_WC_SUCCESS);
			await_event(&p->to, p->to.recv_cq);
		} else {
			await_event(&p->to, p->to.recv_cq);
			check_eq(node_send(&p->to, 2, 0, LEN, IBV_SEND_SIGNALED), 0);
			cq_expect(p->to.send_cq, 2, IBV_WC_SUCCESS);
		}
		one_sided(&p->to, &p->peer, IBV_WC_SUCCESS);
		if (i % 20 == 0)
			work_locally(p);
	}
}

/* New objects, and the end of them and of old ones: each waits until no thread looks at it. */
static void change_objects(struct pair *p)
{
	struct ibv_cq *cq = ibv_create_cq(p->local.ctx, 16, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(p->local.pd, p->local.buf, 4096, IBV_ACCESS_LOCAL_WRITE);

	check(cq && mr, "%s", strerror(errno));
	check_eq(ibv_dereg_mr(mr), 0);
	check_eq(ibv_destroy_cq(cq), 0);
	check_eq(ibv_destroy_qp(p->other.qp), 0);
	p->other.qp = NULL;
}

static void __attribute__((noreturn)) peer_role(enum filter how)
{
	struct pair p;
	char word;

	open_all(&p, ROLE_FD);
	work(&p, false);
	close_in(how);
	msg_send(ROLE_FD, "c", 1);
	msg_recv(ROLE_FD, &word, 1);
	work(&p, false);
	change_objects(&p);
	msg_send(ROLE_FD, "d", 1);
	for (;;)
		pause();
}

/* In a process of its own: the filter stays. */
static int writer_role(enum filter own_filter, enum filter peers)
{
	char role[] = { 'p', (char)('0' + peers), 0 }, word;
	struct pair p;
	int fd, status;
	pid_t pid = spawn_self(role, &fd);

	open_all(&p, fd);
	work(&p, true);
	msg_recv(fd, &word, 1);
	close_in(own_filter);
	msg_send(fd, "g", 1);
	work(&p, true);
	msg_recv(fd, &word, 1);
	change_objects(&p);
	check_eq(kill(pid, SIGKILL), 0);
	check_eq(waitpid(pid, &status, 0), pid);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "peer: %#x",
	      (unsigned int)status);
	one_sided(&p.to, &p.peer, IBV_WC_RETRY_EXC_ERR);
	node_close(&p.to);
	node_close(&p.local);
	node_close(&p.other);
	return 0;
}

static void run(enum filter own_filter, enum filter peers)
{
	char role[] = { 'w', (char)('0' + own_filter), (char)('0' + peers), 0 };
	int fd, status = -1;
	pid_t pid = spawn_self(role, &fd);

	check_eq(waitpid(pid, &status, 0), pid);
	check(!status, "filters %d and %d: %#x", (int)own_filter, (int)peers, (unsigned int)status);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1 && argv[1][0] == 'p')
		peer_role((enum filter)(argv[1][1] - '0'));
	if (argc > 1)
		return writer_role((enum filter)(argv[1][1] - '0'),
				   (enum filter)(argv[1][2] - '0'));
	for (int own_filter = 0; own_filter < FILTERS; own_filter++)
		for (int peers = 0; peers < FILTERS; peers++) {
#ifdef __SANITIZE_THREAD__
			/* ThreadSanitizer has a thread with calls of its own. */
			if (own_filter == KILLS || peers == KILLS)
				continue;
#endif
			run((enum filter)own_filter, (enum filter)peers);
		}
	return 0;
}
