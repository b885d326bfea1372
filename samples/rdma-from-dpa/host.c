// SPDX-License-Identifier: MIT
/*
 * Two processes. The server is an ordinary verbs program that registers memory, connects a queue pair and then only
 * looks at its memory. The client gives device code a queue pair to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

#include "shared.h"

extern struct flexio_app *rdma_from_dpa;
extern flexio_func_t turn_around;

#define TEXT "the accelerator was here"

/* What the two sides tell each other over a socket. */
struct address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t memory;
};

/*
 * The GID of both sides: 3 is RoCE v2 over IPv4, here as on most hardware. Two queue pairs must have GIDs of the same
 * version.
 */
enum { GID_INDEX = 3 };

struct shared_memory {
	char text[sizeof(TEXT) - 1], answer[sizeof(TEXT)];
	uint64_t counter;
};

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "rdma-from-dpa: %s failed\n", what);
	exit(1);
}

static struct ibv_context *open_first_device(union ibv_gid *gid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	need(list && list[0], "finding an RDMA device (did you say verbatim run?)");
	ctx = ibv_open_device(list[0]);
	need(ctx && !ibv_query_gid(ctx, 1, GID_INDEX, gid), "ibv_open_device");
	ibv_free_device_list(list);
	return ctx;
}

static void exchange(int fd, const struct address *mine, struct address *theirs)
{
	need(write(fd, mine, sizeof(*mine)) == sizeof(*mine), "write");
	need(recv(fd, theirs, sizeof(*theirs), MSG_WAITALL) == sizeof(*theirs), "recv");
}

/* ---- server ---- */

static void server_connect(struct ibv_qp *qp, const struct address *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	attr.qp_access_flags =
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	need(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	     "ibv_modify_qp to INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
				     .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = peer->qpn,
				     .max_dest_rd_atomic = 1,
				     .min_rnr_timer = 12,
				     .ah_attr = { .is_global = 1, .port_num = 1 } };
	attr.ah_attr.grh.sgid_index = GID_INDEX;
	attr.ah_attr.grh.dgid = peer->gid;
	attr.ah_attr.grh.hop_limit = 64;
	need(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     "ibv_modify_qp to RTR");
}

static void server(int fd)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct shared_memory *memory = calloc(1, sizeof(*memory));
	struct address mine = { 0 }, peer;
	struct ibv_context *ctx = open_first_device(&mine.gid);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char done;

	memcpy(memory->text, TEXT, sizeof(memory->text));
	init.send_cq = init.recv_cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	qp = ibv_create_qp(pd, &init);
	mr = ibv_reg_mr(pd, memory, sizeof(*memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_ATOMIC);
	need(qp && mr, "making verbs objects");
	mine.qpn = qp->qp_num;
	mine.rkey = mr->rkey;
	mine.memory = (uintptr_t)memory;
	exchange(fd, &mine, &peer);
	server_connect(qp, &peer);
	need(write(fd, "c", 1) == 1, "write");
	need(read(fd, &done, 1) == 1, "read"); /* nothing to do here meanwhile */
	printf("server: answer \"%s\", counter %lu\n", memory->answer,
	       (unsigned long)memory->counter);
	exit(strlen(memory->answer) == sizeof(TEXT) - 1 ? 0 : 1);
}

/* ---- client ---- */

static flexio_uintptr_t device_zeros(struct flexio_process *process, size_t size)
{
	flexio_uintptr_t addr;

	need(!flexio_buf_dev_alloc(process, size, &addr), "flexio_buf_dev_alloc");
	need(!flexio_buf_dev_memset(process, 0, size, addr), "flexio_buf_dev_memset");
	return addr;
}

static struct flexio_cq *make_cq(struct flexio_process *process, struct job *job)
{
	struct mlx5_cqe64 ring[DEPTH] = { 0 };
	struct flexio_cq_attr attr = { .log_cq_depth = LOG_DEPTH,
				       .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ };
	struct flexio_cq *cq;

	/* No entry is valid yet. */
	for (int i = 0; i < DEPTH; i++)
		mlx5dv_set_cqe_owner(&ring[i], 1);
	need(!flexio_copy_from_host(process, ring, sizeof(ring), &job->cq),
	     "flexio_copy_from_host");
	job->cq_dbr = device_zeros(process, 8);
	attr.cq_ring_qmem.daddr = job->cq;
	attr.cq_dbr_daddr = job->cq_dbr;
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	need(!flexio_cq_create(process, NULL, &attr, &cq), "flexio_cq_create");
	job->cqn = flexio_cq_get_cq_num(cq);
	return cq;
}

static struct flexio_qp *make_qp(struct flexio_process *process, struct job *job)
{
	struct flexio_qp_attr attr = { .transport_type = FLEXIO_QPC_ST_RC,
				       .log_sq_depth = LOG_DEPTH,
				       .sq_cqn = job->cqn,
				       .rq_type = FLEXIO_QP_QPC_RQ_TYPE_ZERO_SIZE_RQ };
	struct flexio_qp *qp;

	job->sq = device_zeros(process, 64 * DEPTH);
	attr.qp_wq_buff_qmem.daddr = job->sq;
	attr.qp_wq_dbr_qmem.daddr = device_zeros(process, 8);
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	need(!flexio_qp_create(process, NULL, &attr, &qp), "flexio_qp_create");
	job->qpn = flexio_qp_get_qp_num(qp);
	return qp;
}

static void connect_qp(struct flexio_qp *qp, const struct address *peer)
{
	static const enum flexio_qp_state way[] = { FLEXIO_QP_STATE_INIT, FLEXIO_QP_STATE_RTR,
						    FLEXIO_QP_STATE_RTS };
	struct flexio_qp_attr_opt_param_mask mask = { 0 };
	struct flexio_qp_attr attr = { .remote_qp_num = peer->qpn,
				       .gid_table_index = GID_INDEX,
				       .rgid_or_rip = peer->gid,
				       .path_mtu = FLEXIO_QP_QPC_MTU_BYTES_1K,
				       .retry_count = 7,
				       .vhca_port_num = 1,
				       .grh = 1 };

	for (int i = 0; i < 3; i++) {
		attr.next_state = way[i];
		need(!flexio_qp_modify(qp, &attr, &mask), "flexio_qp_modify");
	}
}

static void client(int fd)
{
	flexio_msg_stream_attr_t stream_attr = { .data_bsize = 4096,
						 .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
						 .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_mkey_attr mkey_attr = { .len = 4096, .access = IBV_ACCESS_LOCAL_WRITE };
	struct job job = { .text_size = sizeof(TEXT) - 1 };
	struct flexio_process *process;
	struct flexio_msg_stream *stream;
	struct flexio_mkey *mkey;
	struct address mine = { 0 }, peer;
	struct ibv_context *ctx = open_first_device(&mine.gid);
	struct flexio_cq *cq;
	struct flexio_qp *qp;
	flexio_uintptr_t job_daddr;
	uint64_t failed;
	char connected;

	need(!flexio_process_create(ctx, rdma_from_dpa, NULL, &process), "flexio_process_create");
	need(!flexio_msg_stream_create(process, &stream_attr, stdout, NULL, &stream),
	     "flexio_msg_stream_create");
	cq = make_cq(process, &job);
	qp = make_qp(process, &job);
	mine.qpn = job.qpn;
	exchange(fd, &mine, &peer);
	connect_qp(qp, &peer);
	need(read(fd, &connected, 1) == 1, "read");

	job.buffer = mkey_attr.daddr = device_zeros(process, mkey_attr.len);
	need(!flexio_device_mkey_create(process, &mkey_attr, &mkey), "flexio_device_mkey_create");
	job.lkey = flexio_mkey_get_id(mkey);
	job.rkey = peer.rkey;
	job.remote_text = peer.memory + offsetof(struct shared_memory, text);
	job.remote_answer = peer.memory + offsetof(struct shared_memory, answer);
	job.remote_counter = peer.memory + offsetof(struct shared_memory, counter);
	need(!flexio_copy_from_host(process, &job, sizeof(job), &job_daddr),
	     "flexio_copy_from_host");
	need(!flexio_process_call(process, &turn_around, &failed, job_daddr),
	     "flexio_process_call");
	need(!failed, "device code");
	fflush(stdout);
	need(write(fd, "d", 1) == 1, "write");

	need(!flexio_qp_destroy(qp) && !flexio_cq_destroy(cq), "destroying queues");
	need(!flexio_device_mkey_destroy(mkey), "flexio_device_mkey_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
}

int main(void)
{
	int fds[2], status;
	pid_t pid;

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "socketpair");
	pid = fork(); /* before anything of a device is opened */
	if (!pid)
		server(fds[1]);
	client(fds[0]);
	need(waitpid(pid, &status, 0) == pid && !status, "the server");
	return 0;
}
