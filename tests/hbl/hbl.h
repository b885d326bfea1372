/* SPDX-License-Identifier: MIT */
/*
 * What the hbl tests share, written as a program of the hardware's vendor would be: an accelerator file with device
 * memory, a context, ports, and ends (a queue pair with its CQs and FIFO).
 */
#pragma once

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/hbldv.h>

#define CHECK(cond)                                                                              \
	do {                                                                                     \
		if (!(cond)) {                                                                   \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #cond, \
				errno, strerror(errno));                                         \
			exit(1);                                                                 \
		}                                                                                \
	} while (0)

/* An open device. */
struct dev {
	int number;
	int accel;
	bool gaudi3;
	struct ibv_context *context;
	struct ibv_pd *pd;
};

struct mem {
	struct dev *dev;
	void *host;
	uint64_t va;
	uint64_t handle; /* 0: host memory */
	size_t size;
};

/* A queue as a program reads it. */
struct cq {
	struct ibv_cq *ibv;
	struct hbldv_query_cq_attr q;
	uint32_t ci, mask;
	bool gaudi3;
};

struct cqe {
	uint32_t qpn, index, tag, size;
	bool requester;
};

struct fifo {
	struct hbldv_usr_fifo *usr;
	uint32_t pi;
	bool gaudi3;
};

struct end {
	struct dev *dev;
	uint32_t port;
	struct ibv_qp *qp;
	struct hbldv_query_qp_attr q;
	struct cq req, res;
	uint32_t wqes, pi; /* pi: free running */
	bool wide;
};

/* What the two sides tell each other. */
struct address {
	uint32_t qpn;
	union ibv_gid gid;
	uint64_t va;
};

struct end_attr {
	uint32_t port, wqes, cqes;   /* cqes: of both CQs, 0: 256 each */
	uint32_t req_cqes, res_cqes; /* of one of them, where not 0 */
	enum hbldv_qp_wq_types type;
	bool wide;
};

struct conn_attr {
	uint64_t caps;
	uint32_t local_key, remote_key, window, dest_wq_size;
	uint8_t encap, timeout, retry, mtu; /* 0: 14, 7, 8192 */
};

/* device.c: an error ends the test, unless the name says try */
struct ibv_device *find_device(int number);
int try_open(struct dev *dev, int number, uint64_t ports); /* 0 or errno */
void dev_open(struct dev *dev, int number);
void dev_close(struct dev *dev);
int try_set_port(struct dev *dev, uint32_t port, uint64_t caps, bool wide);
void set_port(struct dev *dev, uint32_t port);
void mem_device(struct mem *mem, struct dev *dev,
		size_t size); /* HBM, mapped into the program too */
/* The program's own, of the kind that VERBATIM_TEST_MEMORY names (tests/programs/kinds.c). */
void mem_host(struct mem *mem, struct dev *dev, size_t size);
void *kind_map(size_t len, int prot);
void kind_unmap(void *buf, size_t len);
bool kind_is_shared(void);
void mem_free(struct mem *mem);
/* For the device alone: the address goes, or there is another one. */
void mem_unmap(struct mem *mem);
void mem_map(struct mem *mem);

/* end.c */
void hbl_cq_create(struct cq *cq, struct dev *dev, uint32_t port, int cqes);
bool hbl_cq_poll(struct cq *cq, struct cqe *cqe);
void hbl_cq_wait(struct cq *cq, struct cqe *cqe); /* at most 20 s */
void fifo_create(struct fifo *fifo, struct dev *dev, uint32_t port, enum hbldv_usr_fifo_type type);
uint32_t fifo_free(const struct fifo *fifo); /* entries, by the program's own count */
void fifo_wait(struct fifo *fifo);
void fifo_ring(struct fifo *fifo, uint32_t qpn, uint32_t pi); /* one 64-bit store, waits for room */
void fifo_ring32(struct fifo *fifo, uint32_t qpn, uint32_t pi); /* two 32-bit stores */
void hbl_end_create(struct end *end, struct dev *dev, const struct end_attr *attr);
void hbl_end_address(struct end *end, struct address *address);
int try_connect(struct end *end, const struct address *peer, const struct conn_attr *attr);
void hbl_end_connect(struct end *end, const struct address *peer, const struct conn_attr *attr);
void hbl_end_destroy(struct end *end); /* one that is gone already, or never was: nothing */
/* Two ends in this process. */
void ends_connect(struct end *a, struct end *b, const struct conn_attr *attr);

struct wqe {
	uint32_t opcode, size, tag, completion; /* completion: at the responder */
	uint64_t local, remote, add;
	const void *data; /* inline */
	uint32_t stride[4], count[4], chunk;
};

enum { NONE = 0, SOB = 1, CQ = 2, NOP = 0, SEND = 1, LINEAR = 2, STRIDE = 3, MULTI_STRIDE = 4 };
enum { RDV_WRITE = 5, RDV_READ = 6, FETCH_ADD_W = 9, FETCH_ADD_R = 10, FETCH_ADD_G3 = 7 };

/* Write send WQE and receive WQE; requester: whether a requester completion is wanted, with tag ~tag. */
void hbl_end_post(struct end *end, const struct wqe *wqe, bool requester);
uint32_t hbl_end_pi(const struct end *end); /* as a doorbell carries it */
/* Post a LINEAR write and ring. */
void hbl_end_write(struct end *end, struct fifo *fifo, uint64_t local, uint64_t remote,
		   uint32_t size, uint32_t tag);
/* The next asynchronous event of a type, at most 20 s. */
void expect_event(struct dev *dev, enum ibv_event_type type);
bool no_event(struct dev *dev);

/* pair.c: run both sides in processes of their own; each gets a descriptor to talk to the other. The exit status. */
int run_pair(void (*side)(int number, int fd));
void tell(int fd, const void *data, size_t len);
void hear(int fd, void *data, size_t len);
void meet(int fd); /* both are here */

uint64_t now_ns(void);
void fill(void *data, size_t len, uint32_t seed);
bool is_filled(const void *data, size_t len, uint32_t seed);
