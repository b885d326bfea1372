// SPDX-License-Identifier: MIT
/*
 * MLX_QP_ALLOC_TYPE, MLX_CQ_ALLOC_TYPE and MLX_SRQ_ALLOC_TYPE, which programs set for the pages of their rings. HUGE is
 * refused where no huge page is free, the others do without; all that is made works. And an SRQ whose size was left at 0.
 */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const variables[] = { "MLX_QP_ALLOC_TYPE", "MLX_CQ_ALLOC_TYPE",
					 "MLX_SRQ_ALLOC_TYPE" };

static void set_all(const char *value)
{
	for (int i = 0; i < 3; i++)
		check_eq(value ? setenv(variables[i], value, 1) : unsetenv(variables[i]), 0);
}

static unsigned long free_huge_pages(void)
{
	unsigned long pages = 0;
	char line[128];
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");

	if (file && fgets(line, sizeof(line), file))
		pages = strtoul(line, NULL, 10);
	if (file)
		fclose(file);
	return pages;
}

/* Everything on such pages, and a message through it. */
static void talk(const char *value)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;

	set_all(value);
	attr.srq = true;
	node_pair(&a, &b, &attr);
	check_eq(node_recv(&b, 1, 4096, 64), 0);
	memset(a.buf, 7, 64);
	check_eq(node_send(&a, 2, 0, 64, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, 1, IBV_WC_SUCCESS);
	check(!memcmp(a.buf, b.buf + 4096, 64), "the data");
	node_close(&a);
	node_close(&b);
}

/* Each object by itself: nothing else may be made with these settings. */
static void refuse_huge(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	struct ibv_cq *cq;

	set_all("HUGE");
	errno = 0;
	check(!ibv_create_cq(ctx, 16, NULL, NULL, 0) && errno == ENOMEM, "CQ");
	check(!ibv_create_srq(pd, &srq) && errno == ENOMEM, "SRQ");
	unsetenv("MLX_CQ_ALLOC_TYPE");
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	check(cq, "%s", strerror(errno));
	qp.send_cq = qp.recv_cq = cq;
	errno = 0;
	check(!ibv_create_qp(pd, &qp) && errno == ENOMEM, "QP");
	check_eq(ibv_destroy_cq(cq), 0);
	check_eq(ibv_dealloc_pd(pd), 0);
	check_eq(ibv_close_device(ctx), 0);
}

/* Rings of all sizes on huge pages, destroyed in another order; what was reserved is given back. */
static void many_huge(unsigned long pages)
{
	enum { COUNT = 100 };
	struct ibv_context *ctx = device_open();
	struct ibv_cq *cq[COUNT];

	set_all("PREFER_HUGE");
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < COUNT; i++) {
			cq[i] = ibv_create_cq(ctx, 1 << (i + round) % 17, NULL, NULL, 0);
			check(cq[i], "%s", strerror(errno));
		}
		for (int i = 0; i < COUNT; i++)
			check_eq(ibv_destroy_cq(cq[i * 37 % COUNT]), 0);
	}
	check_eq(ibv_close_device(ctx), 0);
	check_eq(free_huge_pages(), pages);
}

/* pyverbs and others leave max_wr at 0. */
static void empty_srq(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 0 } };
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_srq_attr got;
	struct node node;

	node_open(&node, &attr);
	check_eq(ibv_destroy_qp(node.qp), 0);
	node.srq = ibv_create_srq(node.pd, &init);
	check(node.srq, "%s", strerror(errno));
	check(init.attr.max_wr >= 1, "no room");
	check_eq(ibv_query_srq(node.srq, &got), 0);
	check_eq(got.max_wr, init.attr.max_wr);
	node.qp = node_create_qp(&node);
	check(node.qp, "%s", strerror(errno));
	sge = (struct ibv_sge){ (uintptr_t)node.buf, 64, node.mr->lkey };
	for (uint32_t i = 0; i < got.max_wr; i++)
		check_eq(ibv_post_srq_recv(node.srq, &wr, &bad), 0);
	check_eq(ibv_post_srq_recv(node.srq, &wr, &bad), ENOMEM);
	node_close(&node);
}

int main(void)
{
	static const char *const kinds[] = { NULL,     "ANON",          "anon", "PREFER_HUGE",
					     "CONTIG", "PREFER_CONTIG", "ALL",  "all",
					     "",       "nonsense",      "ANON " };
	unsigned long pages = free_huge_pages();

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		talk(kinds[i]);
	many_huge(pages);
	if (pages >= 8)
		talk("HUGE");
	else if (!pages)
		refuse_huge();
	set_all(NULL);
	empty_srq();
	return 0;
}
