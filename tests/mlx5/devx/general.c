// SPDX-License-Identifier: MIT
/* Commands that ask about the card: answers are those of verbs, and limits those of creation. */
#include "commands.h"

#include <endian.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct command c;
static struct ibv_device_attr_ex attr;

static uint32_t cap(uint32_t group, uint32_t at, uint32_t bits)
{
	command(&c, 0x100, 16, CAPABILITIES);
	put_bits(c.in, 0x30, 16, group << 1 | 1);
	assert_ok(general(&c));
	assert_int_equal(c.out[0], OK);
	return (uint32_t)get_bits(c.out, 0x80 + at, bits);
}

static void capabilities(void **state)
{
	static uint8_t current[CAPABILITIES];
	struct ibv_port_attr port;

	(void)state;
	assert_ok(ibv_query_device_ex(kit.ctx, NULL, &attr));
	assert_ok(ibv_query_port(kit.ctx, 1, &port));
	assert_int_equal(1 << cap(0, 0x9b, 5), attr.orig_attr.max_qp);
	assert_int_equal(1 << cap(0, 0x88, 8), attr.orig_attr.max_qp_wr);
	assert_int_equal(1 << cap(0, 0xdb, 5), attr.orig_attr.max_cq);
	assert_int_equal(1 << cap(0, 0xab, 5), attr.orig_attr.max_srq);
	assert_int_equal((1 << cap(0, 0xc8, 8)) - 1, attr.orig_attr.max_cqe);
	assert_int_equal((1 << cap(0, 0x80, 8)) - 1, attr.orig_attr.max_srq_wr);
	assert_int_equal(1 << cap(0, 0x32b, 5), attr.orig_attr.max_pd);
	assert_in_range(attr.orig_attr.max_mr, 1u << cap(0, 0xea, 6), (2u << cap(0, 0xea, 6)) - 1);
	assert_int_equal(1 << cap(0, 0x14a, 6), attr.orig_attr.max_qp_init_rd_atom);
	assert_int_equal(1 << cap(0, 0x15a, 6), attr.orig_attr.max_qp_rd_atom);
	assert_int_equal(8 << cap(0, 0x170, 16), port.gid_tbl_len);
	assert_int_equal(1u << cap(0, 0x1c3, 5), port.max_msg_sz);
	assert_int_equal(cap(0, 0x1b8, 8), attr.orig_attr.phys_port_cnt);
	assert_int_equal(cap(0, 0x4e0, 32), attr.hca_core_clock);
	assert_int_equal(1 << cap(0, 0x393, 5), attr.rss_caps.max_rwq_indirection_table_size);
	assert_int_equal(1 << cap(1, 0xb, 5), attr.tso_caps.max_tso);
	assert_int_equal(cap(0, 0x1a8, 1), attr.max_dm_size != 0);
	assert_int_equal(cap(0xf, 0x0, 1), attr.max_dm_size != 0);
	assert_int_equal(cap(0xf, 0xa0, 32), attr.max_dm_size);
	assert_int_equal(cap(0, 0x1fc, 4), 1); /* cqe_version */
	assert_int_equal(cap(0, 0x1b6, 2), 1); /* Ethernet */
	assert_int_equal(cap(0, 0x21e, 1), attr.orig_attr.atomic_cap != IBV_ATOMIC_NONE);
	assert_int_equal(cap(3, 0x40, 2), 1);    /* results in the host's byte order */
	assert_int_equal(cap(3, 0x90, 16), 0xf); /* compare and swap, fetch and add; with masks */
	assert_int_equal(cap(3, 0xb0, 16), 12);  /* of 4 and 8 bytes */
	assert_int_equal(cap(4, 0xf0, 16), port.gid_tbl_len);
	assert_int_equal(cap(7, 0x200, 1), 1);
	/* the maximum is what is current */
	memcpy(current, c.out, sizeof(current));
	put_bits(c.in, 0x30, 16, 7 << 1);
	assert_ok(general(&c));
	assert_memory_equal(c.out, current, sizeof(current));
}

/* Bits of what is not there are 0, and a group that is not there is all zeros. */
static void lacking(void **state)
{
	static const struct {
		uint32_t group, at, bits;
	} none[] = { { 0, 0x23c, 1 } /* xrc */,          { 0, 0x3c0, 1 } /* hairpin */,
		     { 0, 0x469, 1 } /* crypto */,       { 0, 0x119, 1 } /* null_mkey */,
		     { 0, 0x5f0, 1 } /* tag_matching */, { 0, 0x27b, 1 } /* lag_master */ };
	static const uint32_t groups[] = { 2, 5, 6, 0x1a, 0x20, 0x3f, 0x7fff };

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(cap(none[i].group, none[i].at, none[i].bits), 0);
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		assert_int_equal(cap(groups[i], 0, 32), 0);
		assert_status(&c, OK);
	}
	command(&c, 0x100, 16, 15);
	assert_int_equal(general(&c), EINVAL);
	command(&c, 0x100, 16, CAPABILITIES);
	put_bits(c.in, 0x40, 1, 1); /* of another function */
	refuse_general(&c, BAD_PARAM);
}

/* Who knows fewer fields asks for fewer bytes. */
static void short_answers(void **state)
{
	static uint8_t whole[CAPABILITIES];

	(void)state;
	cap(0, 0, 1);
	memcpy(whole, c.out, sizeof(whole));
	for (size_t len = 16; len < CAPABILITIES; len += 4) {
		command(&c, 0x100, 16, len);
		put_bits(c.in, 0x30, 16, 1);
		assert_ok(general(&c));
		assert_memory_equal(c.out, whole, len);
		assert_int_equal(c.out[len], 0xa5);
	}
}

/* Creation really allows what the numbers say, and no more. */
static void limits(void **state)
{
	struct mlx5dv_devx_obj *table;
	uint32_t log_size = cap(7, 0x222, 6), levels = cap(7, 0x238, 8);

	(void)state;
	command(&c, 0x930, 64, 16);
	put_bits(c.in, 0xd8, 8, log_size);
	put_bits(c.in, 0xc8, 8, levels - 1);
	table = create(&c);
	assert_non_null(table);
	destroy(table);
	put_bits(c.in, 0xd8, 8, log_size + 1);
	refuse_create(&c, EXCEED_LIM);
	put_bits(c.in, 0xd8, 8, log_size);
	put_bits(c.in, 0xc8, 8, levels);
	refuse_create(&c, EXCEED_LIM);
	/* types of general objects: those that can be made */
	assert_int_equal(cap(0, 0x420, 32), 0);
	assert_int_equal(cap(0, 0x400, 32), 1u << (0x32 - 32));
}

static void interface(void **state)
{
	(void)state;
	assert_ok(general(command(&c, 0x10a, 16, 112)));
	assert_int_equal(get_bits(c.out, 0x50, 16), 1);
	assert_int_equal(get_bits(c.out, 0x360, 32), 3);
	command(&c, 0x107, 16, 16);
	refuse_general(&c, BAD_PARAM);
	for (uint32_t when = 1; when <= 3; when++) {
		put_bits(c.in, 0x30, 16, when);
		assert_ok(general(&c));
		assert_status(&c, OK); /* no pages */
	}
	assert_ok(general(command(&c, 0x203, 16, 32)));
	assert_status(&c, OK); /* no special keys */
}

/* The address of the interface that the adapter is on: that of its first GID. 0 on loopback. */
static uint64_t interface_address(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ibv_gid_entry entry;
	struct ifreq request = { 0 };

	assert_ok(ibv_query_gid_ex(kit.ctx, 1, 0, &entry, 0));
	assert_non_null(if_indextoname(entry.ndev_ifindex, request.ifr_name));
	assert_ok(ioctl(fd, SIOCGIFHWADDR, &request));
	assert_ok(close(fd));
	return get_bits((uint8_t *)request.ifr_hwaddr.sa_data, 0, 48);
}

static void vports(void **state)
{
	uint64_t guid = be64toh(ibv_get_device_guid(kit.ctx->device)), mac;

	(void)state;
	assert_ok(general(command(&c, 0x754, 16, 272)));
	assert_int_equal(get_bits(c.out, 0x80 + 0x1f, 1), 1);
	assert_int_equal(get_bits(c.out, 0x80 + 0x1c0, 64), guid);
	assert_int_equal(get_bits(c.out, 0x80 + 0x780, 3), 0);
	mac = get_bits(c.out, 0x80 + 0x7a0, 64);
	assert_int_equal(mac, interface_address());
	put_bits(c.in, 0x40, 1, 1);
	put_bits(c.in, 0x50, 16, 3);
	refuse_general(&c, BAD_INDEX);
	assert_ok(general(command(&c, 0x752, 16, 272)));
	assert_status(&c, OK);
	put_bits(c.in, 0x40, 1, 1);
	put_bits(c.in, 0x50, 16, 0xffff);
	assert_ok(general(&c));
	put_bits(c.in, 0x50, 16, 7);
	refuse_general(&c, BAD_INDEX);
	/* setting what is so is fine, changing it is not */
	command(&c, 0x755, 512, 16);
	assert_ok(general(&c));
	put_bits(c.in, 0x60, 32, 1u << (31 - 0x1e) | 1u << (31 - 0x1c));
	put_bits(c.in, 0x800 + 0x1f, 1, 1);
	put_bits(c.in, 0x800 + 0x7a0, 64, mac);
	assert_ok(general(&c));
	put_bits(c.in, 0x800 + 0x7a0, 64, mac ^ 1);
	refuse_general(&c, BAD_PARAM);
	put_bits(c.in, 0x800 + 0x7a0, 64, mac);
	put_bits(c.in, 0x800 + 0x1f, 1, 0);
	refuse_general(&c, BAD_PARAM);
	put_bits(c.in, 0x60, 32, 1);
	refuse_general(&c, BAD_PARAM);
}

static void addresses(void **state)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;

	(void)state;
	assert_ok(ibv_query_port(kit.ctx, 1, &port));
	for (uint32_t i = 0; i < (uint32_t)port.gid_tbl_len; i++) {
		command(&c, 0x760, 16, 48);
		put_bits(c.in, 0x40, 16, i);
		assert_ok(general(&c));
		if (ibv_query_gid_ex(kit.ctx, 1, i, &entry, 0)) {
			assert_status(&c, OK);
			continue;
		}
		assert_memory_equal(c.out + 16, entry.gid.raw, 16);
		assert_int_equal(get_bits(c.out, 0x80 + 0xd8, 8),
				 entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 0);
		assert_int_equal(get_bits(c.out, 0x80 + 0x90, 48), interface_address());
	}
	put_bits(c.in, 0x40, 16, (uint32_t)port.gid_tbl_len);
	refuse_general(&c, BAD_INDEX);
	put_bits(c.in, 0x40, 16, 0);
	put_bits(c.in, 0x5c, 4, 2);
	refuse_general(&c, BAD_INDEX);
}

static void registers(void **state)
{
	(void)state;
	command(&c, 0x805, 32, 32);
	put_bits(c.in, 0x30, 16, 1);
	put_bits(c.in, 0x50, 16, 0x5006);
	put_bits(c.in, 0x88, 8, 1);
	assert_ok(general(&c));
	assert_int_equal(get_bits(c.out, 0x80 + 0x8, 8), 1);
	assert_int_equal(get_bits(c.out, 0x80 + 0x14, 4), 1);
	assert_int_equal(get_bits(c.out, 0x80 + 0x1c, 4), 1);
	c.inlen = 31;
	refuse_general(&c, BAD_INP_LEN);
	c.inlen = 32;
	c.outlen = 31;
	refuse_general(&c, BAD_OUTP_LEN);
	c.outlen = 32;
	put_bits(c.in, 0x88, 8, 2);
	refuse_general(&c, BAD_INDEX);
	put_bits(c.in, 0x88, 8, 1);
	put_bits(c.in, 0x30, 16, 0); /* a write */
	refuse_general(&c, BAD_PARAM);
	put_bits(c.in, 0x30, 16, 1);
	put_bits(c.in, 0x50, 16, 0x5007);
	refuse_general(&c, BAD_PARAM);
}

/* Pages are pinned, as on hardware: as much as there is memory, from one byte on. */
static void umems(void **state)
{
	static const size_t sizes[] = { 1, 4095, 4096, 4097, 1 << 20, 1 << 26 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		void *memory = mmap(NULL, sizes[i], PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct mlx5dv_devx_umem *umem;

		assert_ptr_not_equal(memory, MAP_FAILED);
		umem = mlx5dv_devx_umem_reg(kit.ctx, memory, sizes[i], IBV_ACCESS_LOCAL_WRITE);
		assert_non_null(umem);
		assert_ok(mlx5dv_devx_umem_dereg(umem));
		assert_ok(munmap(memory, sizes[i]));
	}
	assert_null_errno(mlx5dv_devx_umem_reg(kit.ctx, (void *)4096, SIZE_MAX - 100, 0), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(capabilities),  cmocka_unit_test(lacking),
		cmocka_unit_test(short_answers), cmocka_unit_test(limits),
		cmocka_unit_test(interface),     cmocka_unit_test(vports),
		cmocka_unit_test(addresses),     cmocka_unit_test(registers),
		cmocka_unit_test(umems),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
