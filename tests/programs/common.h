/* SPDX-License-Identifier: MIT */
/*
 * What every test program needs: checks, one open device with a queue pair (a "node"), and a second process.
 *
 * A test is a program that exits 0 (passed), 1 (failed, after one line that says where and why) or 77 (skipped, after
 * one line that says what is missing). State of libibverbs must not cross a fork(), so a second process is always a
 * new program: spawn_self() executes the test again with a role, and a socket pair joins the two.
 *
 *	process 1                      process 2
 *	spawn_self("target", &fd) ---> main(): role "target", socket is ROLE_FD
 *	struct node                    struct node
 *	     node_address  <-- socket -->  node_address
 *	     node_connect                  node_connect
 *
 * With VERBATIM_TEST_HOSTS=two the second side is a thread of the same process, whose devices are those of a second
 * host (hosts.h); it runs the same main() with the same role.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>
#include <infiniband/verbs.h>

enum { EXIT_SKIP = 77, ROLE_PROCESS_FD = 3 };

/* The socket of a second side: ROLE_PROCESS_FD in a process of its own. */
extern _Thread_local int role_fd;
#define ROLE_FD role_fd

/* How long something that must happen may take before the test calls it lost; never a measure of speed. */
enum { PATIENCE_MS = 20000 };

#define ACCESS_ALL                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define ACCESS_REMOTE (ACCESS_ALL & ~IBV_ACCESS_LOCAL_WRITE)

/* --- checks -------------------------------------------------------------------------------------- */

/* Fails the test where cond is false; an optional message says what was seen. */
#define check(cond, ...)                                                         \
	do {                                                                     \
		if (!(cond))                                                     \
			test_failed(__FILE__, __LINE__, #cond, " " __VA_ARGS__); \
	} while (0)

/* Two integers are equal; both are printed where not. */
#define check_eq(a, b)                                                                             \
	do {                                                                                       \
		long long check_a_ = (long long)(a), check_b_ = (long long)(b);                    \
		if (check_a_ != check_b_)                                                          \
			test_failed(__FILE__, __LINE__, #a " == " #b, " %lld, not %lld", check_a_, \
				    check_b_);                                                     \
	} while (0)

/* The work completion has this status, and the vendor's error that belongs to it. */
#define check_status(wc, want) check_status_at(__FILE__, __LINE__, wc, want)

/* What a failed check does: print and exit(1), unless a suite sets its own (cmocka: fail this case only). */
extern void (*test_fail_hook)(const char *file, int line);

void test_failed(const char *file, int line, const char *cond, const char *fmt, ...)
	__attribute__((format(printf, 4, 5), cold));
void check_status_at(const char *file, int line, const struct ibv_wc *wc, enum ibv_wc_status want);
/* Ends the program as skipped. */
void test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

uint64_t now_us(void);
void sleep_ms(unsigned int ms);
/* A reproducible stream of numbers; the state is the caller's. */
uint32_t next_random(uint64_t *state);
/*
 * Buffers of the kind of memory that the test is run with (kinds.c): VERBATIM_TEST_MEMORY=private, shared, mixed, left or arena.
 * NULL where there is none.
 */
void *kind_map(size_t len, int prot);
void kind_unmap(void *buf, size_t len);
/* mprotect(2), as whoever has such memory does it. */
int kind_protect(void *buf, size_t len, int prot);
/* Whether others can load and store in what kind_map() gives, or in its first page. */
bool kind_is_shared(void);

/* The byte that belongs at position i of a message made from seed. */
void pattern_fill(void *buf, size_t len, uint32_t seed);
/* Index of the first byte that differs from the pattern, or len. */
size_t pattern_check(const void *buf, size_t len, uint32_t seed);

/* --- one side of a connection -------------------------------------------------------------------- */

/* What a node is made of; start from node_attr() and change what the test is about. */
struct node_attr {
	enum ibv_qp_type type;
	struct ibv_qp_cap cap;
	int cqe;  /* of each of the two CQs */
	bool srq; /* receive from an SRQ of cap.max_recv_wr entries */
	bool sig_all;
	bool events;       /* both CQs have the node's completion channel */
	uint64_t send_ops; /* not 0: an extended QP with these IBV_QP_EX_WITH_* operations */
	size_t size;       /* bytes of the buffer */
	int access;        /* of its MR */
	int qp_access;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t rd_atomic, dest_rd_atomic;
	uint8_t gid_index; /* of its own GID */
};

/* What a peer must know. */
struct address {
	uint32_t qpn, psn, rkey;
	uint32_t pad;
	uint64_t addr;
	uint64_t size;
	union ibv_gid gid;
};

struct node {
	struct node_attr attr;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	union ibv_gid gid;
	enum ibv_mtu mtu;  /* of the port */
	struct host *host; /* that node_close() closes, or NULL */
};

/* The GID is the one that guides name: RoCE v2 over IPv4. gids.c tries all of them. */
enum { TEST_QKEY = 0x11223344, TEST_PSN = 0x123456, TEST_GID_INDEX = 3 };

/* The device under test: the one named by VERBATIM_TEST_DEVICE, else the first. */
struct ibv_context *device_open(void);
struct node_attr node_attr(enum ibv_qp_type type);
void node_open(struct node *node, const struct node_attr *attr);
/* A flow that brings all frames to a RAW_PACKET queue pair. */
struct ibv_flow *flow_all(struct ibv_qp *qp);
/* A RAW_PACKET queue pair from RESET to RTS. */
void raw_to_rts(struct ibv_qp *qp);
/* The same for the other side of a test of one process: with VERBATIM_TEST_HOSTS=two on a host of its own. */
void node_open_other(struct node *node, const struct node_attr *attr);
/* Destroys all that is left; fails the test where that is refused. */
void node_close(struct node *node);
void node_address(const struct node *node, struct address *address);
/* From any state to RTS towards the peer (UD: peer is not used and may be NULL). */
void node_connect(struct node *node, const struct address *peer);
void node_to_init(struct node *node);
void node_to_rtr(struct node *node, const struct address *peer);
void node_to_rts(struct node *node);
/* Two nodes of one process, connected; the second is from node_open_other(). */
void node_pair(struct node *a, struct node *b, const struct node_attr *attr);

/* A QP of the node's kind on its PD and CQs; NULL with errno where refused. */
struct ibv_qp *node_create_qp(struct node *node);
int qp_set_state(struct ibv_qp *qp, enum ibv_qp_state state);
enum ibv_qp_state qp_get_state(struct ibv_qp *qp);
void ah_attr_to(struct ibv_ah_attr *ah, const union ibv_gid *gid);

/* Post to the node's own buffer; 0 or errno. remote is an offset into the peer's buffer. */
int node_send(struct node *node, uint64_t wr_id, size_t offset, uint32_t len, int flags);
int node_recv(struct node *node, uint64_t wr_id, size_t offset, uint32_t len);
int node_rdma(struct node *node, uint64_t wr_id, enum ibv_wr_opcode opcode, size_t offset,
	      uint32_t len, const struct address *peer, size_t remote);

/* One completion within the time; false where none came. */
bool cq_wait(struct ibv_cq *cq, struct ibv_wc *wc, unsigned int timeout_ms);
/* The next completion is there in time and has this wr_id and status. */
#define cq_expect(cq, wr_id, status) cq_expect_at(__FILE__, __LINE__, cq, wr_id, status, NULL)
void cq_expect_at(const char *file, int line, struct ibv_cq *cq, uint64_t wr_id,
		  enum ibv_wc_status status, struct ibv_wc *out);
/* The next async event within the time, acknowledged; -1 where none came. */
int event_wait(struct ibv_context *ctx, unsigned int timeout_ms);

/* --- a second process, or a thread on a second host ---------------------------------------------- */

/* Execute this program again as `PROGRAM role`; *fd is our end of a SEQPACKET pair, the child's is ROLE_FD. */
pid_t spawn_self(const char *role, int *fd);
/* Wait for it; fails the test unless it exited with 0. */
void spawn_wait(pid_t pid);
/* Whether it can be stopped and killed, and has an environment of its own: it is no thread of this process. */
bool spawn_is_process(void);
/* exit(status) of the second side, from its first thread. */
void role_exit(int status) __attribute__((noreturn));
/* Whole messages; fail the test where the other side is gone. */
void msg_send(int fd, const void *msg, size_t len);
void msg_recv(int fd, void *msg, size_t len);
/* As msg_recv, but false where the other side closed. */
bool msg_try_recv(int fd, void *msg, size_t len);
/* Exchange addresses over fd and connect. */
void node_meet(struct node *node, int fd, struct address *peer);

/* New namespaces (CLONE_NEW*) for this process, in a user namespace where it takes one; false with errno. */
bool enter_namespaces(int flags);
/* A tmpfs of its own, with these options, in place of /dev/shm, and the registry in it; a skip where that is not allowed. */
void enter_small_shm(const char *options);
/* The directory that registries are in. */
const char *shm_path(void);
/* Where the long campaigns are wanted (VERBATIM_TEST_LONG=1): long_count, else count. */
int campaign(int count, int long_count);
