// SPDX-License-Identifier: MIT
/*
 * The GID table has the order of real cards: RoCE v1 and v2 of the link-local address, then v1 and v2 of each IP address,
 * IPv4 first, so that index 3 is RoCE v2 over IPv4. Every GID connects to every other one of its version. Queue pairs of
 * different versions do not hear each other: RC ends with "retry exceeded", UC loses its messages, nothing is written.
 */
#include "end.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ADDRESSES = 8 };

/* What the file says, and in which order the table has it; without an interface the MAC address is 0. */
static const struct {
	const char *configured[MAX_ADDRESSES], *table[MAX_ADDRESSES + 1];
	bool no_interface;
} cases[] = {
	{ { "127.0.0.1" }, { "127.0.0.1" }, false },
	{ { "::1", "127.0.0.2", "127.0.0.1" }, { "127.0.0.2", "127.0.0.1", "::1" }, false },
	{ { "::1" }, { "::1" }, false },
	/* The link-local address that the MAC address makes is in front already; another one is like any address. */
	{ { "fe80::200:ff:fe00:0", "203.0.113.9" }, { "203.0.113.9" }, true },
	{ { "fe80::1", "203.0.113.9" }, { "203.0.113.9", "fe80::1" }, true },
	{ { "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6",
	    "127.0.0.7", "127.0.0.8" },
	  { "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6",
	    "127.0.0.7", "127.0.0.8" },
	  false },
};

enum { CASES = sizeof(cases) / sizeof(cases[0]), FULL = CASES - 1 };

/* --- the table ----------------------------------------------------------------------------------- */

static char path[64];

static void remove_config(void)
{
	unlink(path);
}

static void write_config(unsigned int n)
{
	static const char *const adapters[] = { "mlx5_0", "mlx4_0" };
	FILE *file = fopen(path, "w");

	check(file, "%s: %s", path, strerror(errno));
	for (int a = 0; a < 2; a++) {
		fprintf(file, "[adapter %s]\n", adapters[a]);
		for (int i = 0; i < MAX_ADDRESSES && cases[n].configured[i]; i++)
			fprintf(file, "address = %s\n", cases[n].configured[i]);
	}
	check_eq(fclose(file), 0);
	setenv("VERBATIM_CONFIG", path, 1);
}

static void to_gid(const char *text, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (inet_pton(AF_INET, text, gid->raw + 12) == 1)
		gid->raw[10] = gid->raw[11] = 0xff;
	else
		check_eq(inet_pton(AF_INET6, text, gid->raw), 1);
}

/* In the private node of the library; perftest and libfabric call it. 0: RoCE v1, 1: v2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);

static void check_entry(struct ibv_context *ctx, unsigned int index, const union ibv_gid *want)
{
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	int type = -1;

	check_eq(ibv_query_gid_ex(ctx, 1, index, &entry, 0), 0);
	check(!memcmp(&entry.gid, want, sizeof(gid)), "GID %u", index);
	check_eq(entry.gid_index, index);
	check_eq(entry.gid_type, index % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
	check_eq(ibv_query_gid(ctx, 1, (int)index, &gid), 0);
	check(!memcmp(&gid, want, sizeof(gid)), "GID %u", index);
	check_eq(ibv_query_gid_type(ctx, 1, index, &type), 0);
	check_eq(type, index % 2);
}

static void check_table(unsigned int n)
{
	struct ibv_context *ctx = device_open();
	struct ibv_gid_entry entry, table[64];
	struct ibv_port_attr port;
	union ibv_gid gid;
	unsigned int count = 2;

	check_eq(ibv_query_gid(ctx, 1, 0, &gid), 0);
	check_eq(gid.raw[0] << 8 | gid.raw[1], 0xfe80);
	check_eq(gid.raw[11] << 8 | gid.raw[12], 0xfffe);
	if (cases[n].no_interface)
		to_gid("fe80::200:ff:fe00:0", &gid);
	check_entry(ctx, 0, &gid);
	check_entry(ctx, 1, &gid);
	for (int i = 0; cases[n].table[i]; i++) {
		to_gid(cases[n].table[i], &gid);
		check_entry(ctx, count++, &gid);
		check_entry(ctx, count++, &gid);
	}
	check_eq(ibv_query_gid_ex(ctx, 1, count, &entry, 0), ENODATA);
	check_eq(ibv_query_gid_table(ctx, table, 64, 0), count);
	check_eq(ibv_query_port(ctx, 1, &port), 0);
	check(port.gid_tbl_len >= 18, "only %d entries", port.gid_tbl_len);
	check_eq(ibv_query_gid_ex(ctx, 1, (uint32_t)port.gid_tbl_len - 1, &entry, 0), ENODATA);
	check_eq(ibv_query_gid_ex(ctx, 1, (uint32_t)port.gid_tbl_len, &entry, 0), EINVAL);
	check_eq(ibv_close_device(ctx), 0);
}

/* Each in a process or on a host of its own, because a process reads its configuration once. */
static void tables(void)
{
	for (unsigned int n = 0; n < CASES; n++) {
		char role[16];
		pid_t pid;
		int fd;

		snprintf(role, sizeof(role), "table%u", n);
		write_config(n);
		pid = spawn_self(role, &fd);
		spawn_wait(pid);
		close(fd);
	}
}

/* --- connections --------------------------------------------------------------------------------- */

static void open_ends(struct end *a, struct end *b, enum end_place place, enum ibv_qp_type type)
{
	struct node_attr attr = node_attr(type);

	attr.timeout = 10; /* 4 ms: where nobody answers, nobody will */
	attr.retry_cnt = 1;
	end_open(a, HERE, &attr);
	end_open(b, place, &attr);
}

static void connect_from(struct end *a, uint8_t i, struct end *b, uint8_t j, enum ibv_qp_type type)
{
	struct node_attr attr = node_attr(type);

	attr.timeout = i % 2 == j % 2 ? 14 : 10;
	attr.retry_cnt = i % 2 == j % 2 ? 7 : 1;
	attr.gid_index = i;
	end_set_attr(a, &attr);
	attr.gid_index = j;
	end_set_attr(b, &attr);
	check_eq(ibv_query_gid(a->node->ctx, 1, i, &a->self.gid), 0);
	check_eq(ibv_query_gid(a->node->ctx, 1, j, &b->self.gid), 0);
	end_connect(a, b);
}

/* How far to go through the 18 GIDs: a new process for each pair of them would be the longest part. */
static unsigned int gids_at(enum end_place place)
{
	return place == HERE ? 18 : 6;
}

static void one_version(enum end_place place)
{
	struct end a, b;

	open_ends(&a, &b, place, IBV_QPT_RC);
	for (uint8_t i = 0; i < gids_at(place); i++) {
		for (uint8_t j = i % 2; j < gids_at(place); j += 2) {
			struct end_wr wr = end_wr_send(&a, 1, 100);

			connect_from(&a, i, &b, j, IBV_QPT_RC);
			end_fill(&a, a.self.addr, 4096, i * 32u + j);
			check_eq(end_post_recv(&b, 2, b.self.addr + 8192, 100, b.lkey), 0);
			check_eq(end_post_send(&a, &wr), 0);
			end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
			end_expect(&b, RQ, 2, IBV_WC_SUCCESS);
			end_check(&b, b.self.addr + 8192, 100, i * 32u + j);
			wr = end_wr_rdma(&a, 3, IBV_WR_RDMA_WRITE, 4096, &b);
			check_eq(end_post_send(&a, &wr), 0);
			end_expect(&a, SQ, 3, IBV_WC_SUCCESS);
			end_check(&b, b.self.addr, 4096, i * 32u + j);
		}
	}
	end_pair_close(&a, &b);
}

static void mixed_rc(enum end_place place)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct end a, b;
	struct ibv_wc wc;

	open_ends(&a, &b, place, IBV_QPT_RC);
	for (uint8_t i = 0; i < 4; i++) {
		for (int k = 0; k < 4; k++) {
			struct end_wr wr =
				k ? end_wr_rdma(&a, 1, ops[k], 8, &b) : end_wr_send(&a, 1, 8);

			connect_from(&a, i, &b, i ^ 1, IBV_QPT_RC);
			end_write64(&b, b.self.addr, 7);
			check_eq(end_post_recv(&b, 2, b.self.addr + 8192, 100, b.lkey), 0);
			check_eq(end_post_send(&a, &wr), 0);
			end_expect(&a, SQ, 1, IBV_WC_RETRY_EXC_ERR);
			check(!end_poll(&b, RQ, &wc, 1), "it arrived");
			check_eq(end_read64(&b, b.self.addr), 7);
			end_expect_state(&b, IBV_QPS_RTS);
		}
	}
	end_pair_close(&a, &b);
}

static void mixed_uc(enum end_place place)
{
	struct end a, b;
	struct end_wr wr;
	struct ibv_wc wc;

	open_ends(&a, &b, place, IBV_QPT_UC);
	for (uint8_t i = 0; i < 4; i++) {
		connect_from(&a, i, &b, i ^ 1, IBV_QPT_UC);
		wr = end_wr_send(&a, 1, 8);
		check_eq(end_post_recv(&b, 2, b.self.addr + 8192, 100, b.lkey), 0);
		end_write64(&b, b.self.addr, 7);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, 1, IBV_WC_SUCCESS);
		wr = end_wr_rdma(&a, 3, IBV_WR_RDMA_WRITE, 8, &b);
		check_eq(end_post_send(&a, &wr), 0);
		end_expect(&a, SQ, 3, IBV_WC_SUCCESS);
		check(!end_poll(&b, RQ, &wc, 5), "it arrived");
		check_eq(end_read64(&b, b.self.addr), 7);
	}
	end_pair_close(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct end_case connections[] = {
		{ "one version", one_version },
		{ "two versions, reliable", mixed_rc },
		{ "two versions, unreliable", mixed_uc },
	};

	end_main(argc, argv);
	if (argc > 1 && !strncmp(argv[1], "table", 5)) {
		check_table((unsigned int)atoi(argv[1] + 5));
		return 0;
	}
	snprintf(path, sizeof(path), "/tmp/gids-%d.conf", (int)getpid());
	atexit(remove_config);
	/* This process reads its own before those of others. */
	write_config(FULL);
	check_eq(ibv_close_device(device_open()), 0);
	tables();
	write_config(FULL);
	return end_run_cases("gids", connections, sizeof(connections) / sizeof(connections[0]));
}
