/* SPDX-License-Identifier: MIT */
/*
 * A test with two ends, written once and run twice: both ends in one process, and one of them in another (or, with
 * VERBATIM_TEST_HOSTS=two, on another host: hosts.h).
 *
 * An end is a node (common.h) that does what it is told by requests. Where the end is HERE a request is a function
 * call; where it is ELSEWHERE it goes through a socket to a process that executes the same function. Addresses and
 * keys are those of the process of the end, so a test never looks at an end's memory itself: end_fill(), end_check().
 *
 *	test body ---- end_*() ----> HERE:       execute(node)
 *	                   \-------> ELSEWHERE:  socket ---> end_main() ---> execute(node)
 */
#pragma once

#include "common.h"

enum end_place { HERE, ELSEWHERE };
enum end_queue { SQ, RQ };

enum { END_MAX_SGE = 32 };

struct end {
	enum end_place place;
	pid_t pid;
	int fd;
	struct node *node;   /* HERE */
	struct address self; /* of its QP and first MR */
	uint32_t lkey;
};

/* A memory region beyond the first. */
struct end_mr {
	uint32_t key;
	uint64_t addr;
	uint64_t len;
};

/* A work request; sge addresses are the end's own. */
struct end_wr {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	int flags;
	uint32_t imm; /* or the key to invalidate */
	uint64_t remote;
	uint32_t rkey;
	uint64_t compare_add, swap;
	uint32_t num_sge;
	struct ibv_sge sge[END_MAX_SGE];
	struct address to; /* UD */
	uint32_t qkey;     /* UD */
};

/* Must come first in main(): does not return in a process that was started to be an end. */
void end_main(int argc, char **argv);

void end_open(struct end *end, enum end_place place, const struct node_attr *attr);
void end_close(struct end *end);
/* Both to RTS towards each other, from whatever state; nothing of earlier work is left in their CQs. */
void end_connect(struct end *a, struct end *b);
/* One here and one at the place, connected. */
void end_pair_open(struct end *a, struct end *b, enum end_place place, struct node_attr attr);
void end_pair_close(struct end *a, struct end *b);
/* One end, only up to that state. */
void end_connect_to(struct end *end, const struct address *peer, enum ibv_qp_state upto);
/* Used from the next connect on; the capacities cannot change. */
void end_set_attr(struct end *end, const struct node_attr *attr);

int end_post_send(struct end *end, const struct end_wr *wr);
int end_post_recv(struct end *end, uint64_t wr_id, uint64_t addr, uint32_t len, uint32_t lkey);
bool end_poll(struct end *end, enum end_queue queue, struct ibv_wc *wc, unsigned int timeout_ms);
/* The next completion of the queue; it must come and must have this wr_id and status. */
#define end_expect(end, queue, wr_id, status) \
	end_expect_at(__FILE__, __LINE__, end, queue, wr_id, status, NULL)
#define end_expect_wc(end, queue, wr_id, status, wc) \
	end_expect_at(__FILE__, __LINE__, end, queue, wr_id, status, wc)
void end_expect_at(const char *file, int line, struct end *end, enum end_queue queue,
		   uint64_t wr_id, enum ibv_wc_status status, struct ibv_wc *wc);
/* The QP is in this state, or comes there soon: a responder learns of an error later than the requester. */
#define end_expect_state(end, state) end_expect_state_at(__FILE__, __LINE__, end, state)
void end_expect_state_at(const char *file, int line, struct end *end, enum ibv_qp_state state);
enum ibv_qp_state end_state(struct end *end);
int end_set_state(struct end *end, enum ibv_qp_state state);
void end_destroy_qp(struct end *end);
/* The next async event, or -1. */
int end_event(struct end *end, unsigned int timeout_ms);

/* Fresh memory (not in any MR); 0 where refused. */
uint64_t end_map(struct end *end, uint64_t len, int prot);
/* guard: nobody may map something else there afterwards. */
void end_unmap(struct end *end, uint64_t addr, uint64_t len, bool guard);
/* Fresh memory of a file that end_truncate() makes empty again: touching it then is a SIGBUS. */
uint64_t end_map_file(struct end *end, uint64_t len);
void end_truncate(struct end *end);
/* 0 or errno; other_pd: on a protection domain that is not the QP's. */
int end_reg(struct end *end, uint64_t addr, uint64_t len, uint64_t iova, int access, bool other_pd,
	    struct end_mr *mr);
int end_rereg(struct end *end, struct end_mr *mr, int flags, uint64_t addr, uint64_t len,
	      int access, bool other_pd);
int end_dereg(struct end *end, const struct end_mr *mr);

void end_fill(struct end *end, uint64_t addr, uint64_t len, uint32_t seed);
/* The bytes are those of end_fill(seed) on the sending side. */
#define end_check(end, addr, len, seed) end_check_at(__FILE__, __LINE__, end, addr, len, seed)
void end_check_at(const char *file, int line, struct end *end, uint64_t addr, uint64_t len,
		  uint32_t seed);
uint64_t end_read64(struct end *end, uint64_t addr);
void end_write64(struct end *end, uint64_t addr, uint64_t value);

/* --- building work requests ---------------------------------------------------------------------- */

/* SEND of the start of the end's buffer; change the rest as needed. */
struct end_wr end_wr_send(const struct end *end, uint64_t wr_id, uint32_t len);
/* One-sided work towards the start of the peer's buffer. */
struct end_wr end_wr_rdma(const struct end *end, uint64_t wr_id, enum ibv_wr_opcode opcode,
			  uint32_t len, const struct end *peer);

/* --- cmocka suites over both places -------------------------------------------------------------- */

struct end_case {
	const char *name;
	void (*run)(enum end_place place);
};

/*
 * Run every case HERE and ELSEWHERE, as cases "name (one process)" and "name (two processes)"; with VERBATIM_TEST_HOSTS=two
 * only as "name (two hosts)".
 */
int end_run_cases(const char *suite, const struct end_case *cases, size_t count);
