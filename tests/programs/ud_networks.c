// SPDX-License-Identifier: MIT
/*
 * Datagrams over every GID of the port: what the work completion says about the network that carried them. On RoCE mlx5
 * reports that where InfiniBand has the service level (bits 2:0: 0 GRH, 1 IPv6, 2 IPv4; bit 3: UDP), and programs decide
 * by it where in the 40 bytes in front of the data the addresses are. mlx4 reports no service level.
 */
#include "common.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

enum { GRH = 40, LEN = 64, SL_UDP = 8, SL_IPV6 = 1, SL_IPV4 = 2, PART_MLX4 = 4099 };

static struct node a, b;
static struct ibv_cq_ex *cqx;

static void open_nodes(void)
{
	struct node_attr attr = node_attr(IBV_QPT_UD);
	struct ibv_cq_init_attr_ex init = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };

	node_open(&a, &attr);
	node_open_other(&b, &attr);
	check_eq(ibv_destroy_qp(b.qp), 0);
	check_eq(ibv_destroy_cq(b.recv_cq), 0);
	cqx = ibv_create_cq_ex(b.ctx, &init);
	check(cqx, "%s", strerror(errno));
	b.recv_cq = ibv_cq_ex_to_cq(cqx);
	b.qp = node_create_qp(&b);
	check(b.qp, "%s", strerror(errno));
	node_connect(&a, NULL);
	node_connect(&b, NULL);
}

static void send_over(const struct ibv_gid_entry *entry)
{
	struct ibv_ah_attr attr;
	struct ibv_sge sge = { (uintptr_t)a.buf, LEN, a.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { .remote_qpn = b.qp->qp_num,
					     .remote_qkey = TEST_QKEY } },
			   *bad;

	ah_attr_to(&attr, &entry->gid);
	attr.grh.sgid_index = (uint8_t)entry->gid_index;
	wr.wr.ud.ah = ibv_create_ah(a.pd, &attr);
	check(wr.wr.ud.ah, "%s", strerror(errno));
	check_eq(node_recv(&b, 1, 0, LEN + GRH), 0);
	check_eq(ibv_post_send(a.qp, &wr, &bad), 0);
	cq_expect(a.send_cq, 0, IBV_WC_SUCCESS);
	check_eq(ibv_destroy_ah(wr.wr.ud.ah), 0);
}

static int expected_sl(const struct ibv_gid_entry *entry)
{
	struct ibv_device_attr attr;

	check_eq(ibv_query_device(b.ctx, &attr), 0);
	if (attr.vendor_part_id == PART_MLX4 || entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return 0;
	return SL_UDP |
	       (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)&entry->gid) ? SL_IPV4 : SL_IPV6);
}

/* A header of the version that the completion tells, with the destination's address in its place. */
static void check_header(const struct ibv_gid_entry *entry)
{
	if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)&entry->gid) &&
	    entry->gid_type == IBV_GID_TYPE_ROCE_V2) {
		check_eq(b.buf[20], 0x45);
		check(!memcmp(b.buf + 36, &entry->gid.raw[12], 4), "destination");
	} else {
		check_eq(b.buf[0] >> 4, 6);
		check(!memcmp(b.buf + 24, &entry->gid, 16), "destination");
	}
}

static void try_entry(const struct ibv_gid_entry *entry)
{
	struct ibv_poll_cq_attr none = { 0 };
	uint64_t end = now_us() + PATIENCE_MS * 1000ull;
	struct ibv_wc wc;
	int err;

	send_over(entry);
	cq_expect_at(__FILE__, __LINE__, b.recv_cq, 1, IBV_WC_SUCCESS, &wc);
	check_eq(wc.sl, expected_sl(entry));
	check(wc.wc_flags & IBV_WC_GRH, "no GRH");
	check_header(entry);

	send_over(entry);
	while ((err = ibv_start_poll(cqx, &none)) == ENOENT && now_us() < end)
		;
	check_eq(err, 0);
	check_eq(cqx->status, IBV_WC_SUCCESS);
	check_eq(ibv_wc_read_sl(cqx), expected_sl(entry));
	check(ibv_wc_read_wc_flags(cqx) & IBV_WC_GRH, "no GRH");
	ibv_end_poll(cqx);
}

int main(void)
{
	struct ibv_gid_entry entries[64];
	ssize_t n;

	open_nodes();
	n = ibv_query_gid_table(a.ctx, entries, 64, 0);
	check(n > 0, "no GID");
	for (ssize_t i = 0; i < n; i++)
		try_entry(&entries[i]);
	node_close(&a);
	node_close(&b);
	return 0;
}
