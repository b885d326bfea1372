// SPDX-License-Identifier: MIT
/*
 * One word that everybody counts up: the program that owns it by C11 atomics, device code of another process by its queue
 * pair, and two more processes by theirs. No count is lost, whichever way the atomics go: by packets, because the word is
 * in memory that nobody else can map, or because that is switched off; or by instructions in memory that is shared.
 */
#include "queue_host.h"
#include "queue_kit.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

extern struct flexio_app *atomdev;
extern flexio_func_t run_work;

enum { LOG = 6, BATCHES = 100, COUNTS = BATCHES * WORK_OPS, OWN = 200000, PEERS = 3, PAGE = 4096 };

/* Calls, stores, copies and packets of this process, as the card counts them. */
struct ways {
	uint64_t calls, stores, copies, packets;
};

static void *find(const char *name)
{
	void *self = dlopen(NULL, RTLD_NOW), *symbol = dlsym(self, name);

	CHECK(symbol);
	return symbol;
}

static struct ways ways(void)
{
	void *(*program)(void) = (void *(*)(void))find("vb_card_program");
	void (*count)(void *, struct ways *) =
		(void (*)(void *, struct ways *))find("vb_path_counters");
	struct ways now;

	count(program(), &now);
	return now;
}

/* All of them went one way. */
static void check_ways(const struct ways *before, bool shared)
{
	struct ways now = ways();

	CHECK(now.stores - before->stores == (shared ? COUNTS : 0));
	CHECK(now.packets - before->packets == (shared ? 0 : COUNTS));
}

/* ---- a host program ---- */

static void host_main(int fd, bool shared)
{
	struct ibv_sge sge = { .length = 8 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED,
				  .sg_list = &sge,
				  .num_sge = 1 },
			   *wrong;
	struct ways before;
	struct ibv_wc wc;
	struct peer p;
	char c;

	peer_open(&p, fd);
	hear(fd, &c, 1);
	hear(fd, &p.other, sizeof(p.other));
	sge.addr = (uintptr_t)p.buf;
	sge.lkey = p.mr->lkey;
	wr.wr.atomic.remote_addr = p.other.addr;
	wr.wr.atomic.rkey = p.other.key;
	wr.wr.atomic.compare_add = 1;
	before = ways();
	for (int i = 0; i < COUNTS; i++) {
		CHECK(!ibv_post_send(p.qp, &wr, &wrong));
		while (!ibv_poll_cq(p.cq, 1, &wc))
			;
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	check_ways(&before, shared);
	tell(fd, "d", 1);
	hear(fd, &c, 1);
	_exit(0);
}

/* ---- a program with device code ---- */

static void connect_device(struct ibv_context *ctx, struct kit_qp *qp, int fd, struct hello *other)
{
	struct hello self = { .qpn = qp->work.number };
	struct flexio_qp_attr attr;
	char c;

	hear(fd, other, sizeof(*other));
	CHECK(!ibv_query_gid(ctx, 1, 0, &self.gid));
	tell(fd, &self, sizeof(self));
	attr = qp_link(other->qpn, &other->gid);
	qp_to_rts(qp->qp, &attr);
	hear(fd, &c, 1);
	tell(fd, "r", 1);
	hear(fd, other, sizeof(*other));
}

static void device_main(int fd, bool shared)
{
	struct flexio_process *process;
	struct kit_cq send_cq, recv_cq;
	struct ibv_context *ctx = open_device();
	struct flexio_qp_attr attr;
	struct kit_mem mem;
	flexio_uintptr_t daddr;
	struct hello other;
	struct ways before;
	struct kit_qp qp;
	struct work w;
	char c;

	OK(flexio_process_create(ctx, atomdev, NULL, &process));
	mem_make(process, 8 * WORK_OPS, &mem);
	cq_simple(process, LOG, NULL, &send_cq);
	cq_simple(process, LOG, NULL, &recv_cq);
	attr = qp_attr(process, LOG, LOG, send_cq.work.number, recv_cq.work.number);
	qp_make(process, NULL, &attr, &qp);
	connect_device(ctx, &qp, fd, &other);
	daddr = dev_alloc(process, sizeof(w));
	w = (struct work){
		.cq = send_cq.work, .qp = qp.work, .nops = WORK_OPS, .expect = WORK_OPS
	};
	for (unsigned int i = 0; i < WORK_OPS; i++)
		w.ops[i] = (struct work_op){ .type = SEG_FAA,
					     .ce = CE_ALWAYS,
					     .lkey = mem.key,
					     .rkey = other.key,
					     .laddr = mem.addr + 8 * i,
					     .raddr = other.addr,
					     .len = 8,
					     .swap_add = 1 };
	before = ways();
	for (int i = 0; i < BATCHES; i++) {
		work_run(process, run_work, daddr, &w);
		CHECK(w.os_errno == 0);
		for (unsigned int n = 0; n < WORK_OPS; n++)
			CHECK(w.cqes[n].opcode == 0);
		/* what each found: more than the one before it */
		for (unsigned int n = 1; n < WORK_OPS; n++)
			CHECK(dev_read(process, mem.addr + 8 * n) >
			      dev_read(process, mem.addr + 8 * n - 8));
	}
	check_ways(&before, shared);
	tell(fd, "d", 1);
	hear(fd, &c, 1);
	OK(flexio_qp_destroy(qp.qp));
	OK(flexio_cq_destroy(send_cq.cq));
	OK(flexio_cq_destroy(recv_cq.cq));
	mem_end(&mem);
	OK(flexio_process_destroy(process));
	_exit(0);
}

/* ---- the owner ---- */

static pid_t start(int *fd, bool device, bool shared)
{
	int fds[2];
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		close(fds[0]);
		(device ? device_main : host_main)(fds[1], shared);
	}
	close(fds[1]);
	*fd = fds[0];
	return pid;
}

static _Atomic uint64_t *make_word(bool private)
{
	void *(*alloc)(size_t);
	void *page;

	if (private) {
		/* with a flag that the allocator of `verbatim run` leaves alone */
		page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		CHECK(page != MAP_FAILED);
		return page;
	}
	alloc = (void *(*)(size_t))find("vb_shared_alloc");
	page = alloc(PAGE);
	CHECK(page);
	return page;
}

static void finish(const pid_t *pid, const int *fd)
{
	int status;

	for (int i = 0; i < PEERS; i++) {
		tell(fd[i], "e", 1);
		CHECK(waitpid(pid[i], &status, 0) == pid[i] && !status);
	}
}

static void own(bool private, bool shared)
{
	_Atomic uint64_t *word;
	struct peer peers[PEERS];
	struct hello at;
	pid_t pid[PEERS];
	int fd[PEERS];
	char c;

	for (int i = 0; i < PEERS; i++)
		pid[i] = start(&fd[i], !i, shared);
	for (int i = 0; i < PEERS; i++) {
		peer_open(&peers[i], fd[i]);
		hear(fd[i], &c, 1);
	}
	word = make_word(private);
	for (int i = 0; i < PEERS; i++) {
		struct ibv_mr *mr = ibv_reg_mr(peers[i].pd, (void *)word, PAGE,
					       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);

		CHECK(mr);
		at = (struct hello){ .key = mr->rkey, .addr = (uintptr_t)word };
		tell(fd[i], &at, sizeof(at));
	}
	for (int i = 0; i < OWN; i++)
		atomic_fetch_add(word, 1);
	for (int i = 0; i < PEERS; i++)
		hear(fd[i], &c, 1);
	CHECK(atomic_load(word) == OWN + PEERS * COUNTS);
	finish(pid, fd);
	_exit(0);
}

/* In a process of its own, which has not opened anything yet. */
static void run(bool private, bool packets)
{
	const char *share = getenv("VERBATIM_SHARE"), *direct = getenv("VERBATIM_DIRECT");
	bool off = (share && !strcmp(share, "off")) || (direct && !strcmp(direct, "off"));
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (!pid) {
		if (packets)
			setenv("VERBATIM_DIRECT", "off", 1);
		own(private, !private && !packets && !off);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
}

int main(void)
{
	run(true, false);
	run(false, false);
	run(false, true);
	return 0;
}
