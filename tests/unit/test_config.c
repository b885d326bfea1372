// SPDX-License-Identifier: MIT
/*
 * The configuration: what a good file gives, what a bad file is told, and what is made up where
 * there is no file.
 *
 * The machine's own interfaces are unknown here, so good files use what every machine has: lo and
 * 127.0.0.0/8. The rules that need other interfaces are tested on made-up lists of them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/config.h"
#include "base/interfaces.h"

static char path[] = "/tmp/verbatim-test-config.XXXXXX";
static char err[512];

static int write_and_read(const char *text, struct vb_config *config)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	memset(config, 0xa5, sizeof(*config));
	err[0] = '\0';
	return vb_config_read(path, config, err, sizeof(err));
}

static void assert_address(const struct in6_addr *address, const char *text)
{
	char buf[INET6_ADDRSTRLEN];

	assert_non_null(inet_ntop(AF_INET6, address, buf, sizeof(buf)));
	assert_string_equal(buf, text);
}

static void full_file(void **state)
{
	struct vb_config config;
	const struct vb_config_adapter *a = config.adapter;

	assert_int_equal(
		write_and_read(
			"; two adapters of this host\n"
			"[adapter mlx5_7]\n"
			"address = 127.0.0.1   ; both are local\n"
			"address=127.0.0.9\n"
			"  mtu = 1024\n"
			"\tmax_qp = 128\n"
			"max_cq = 64\nmax_mr = 32\nmax_srq = 16\ndpa_eus = 8\nrpc_timeout = 250\ndpa_check = heap,continue\n"
			"dpa_heap = 96\n"
			"dpa_stack = 64\n"
			"\n"
			"[memory]\narena = all\narena_size = 77\nshare = off\n"
			"# any name, with the format told\n"
			"[adapter left.card-1]\n"
			"format = mlx5\n"
			"interface = lo\n",
			&config),
		0);
	assert_int_equal(config.num_adapters, 2);
	assert_int_equal(config.arena, VB_CONFIG_ARENA_ALL);
	assert_int_equal(config.arena_size, 77);
	assert_true(config.share_off);
	assert_string_equal(a[0].name, "mlx5_7");
	assert_int_equal(a[0].format, VB_FORMAT_MLX5);
	assert_string_equal(a[0].interface, "lo");
	assert_int_equal(a[0].num_addresses, 2);
	assert_address(&a[0].address[0], "::ffff:127.0.0.1");
	assert_address(&a[0].address[1], "::ffff:127.0.0.9");
	assert_int_not_equal(a[0].ifindex, 0);
	assert_int_equal(a[0].mtu, 1024);
	assert_false(a[0].down);
	assert_int_equal(a[0].max_qp, 128);
	assert_int_equal(a[0].max_cq, 64);
	assert_int_equal(a[0].max_mr, 32);
	assert_int_equal(a[0].max_srq, 16);
	assert_int_equal(a[0].dpa_eus, 8);
	assert_int_equal(a[0].rpc_timeout, 250);
	assert_int_equal(a[0].dpa_check, VB_CHECK_HEAP | VB_CHECK_CONTINUE);
	assert_int_equal(a[0].dpa_heap, 96);
	assert_int_equal(a[0].dpa_stack, 64);
	assert_int_equal(a[1].dpa_stack, 0);
	assert_string_equal(a[1].name, "left.card-1");
	assert_address(&a[1].address[0], "::ffff:127.0.0.1");
	assert_int_equal(a[1].mtu, 4096);
	assert_int_equal(a[1].max_qp, 0);
	assert_int_equal(a[1].dpa_heap, 0);
	assert_false(a[1].down);
}

static void section_without_keys(void **state)
{
	struct vb_config config, made_up;

	assert_int_equal(write_and_read("[adapter mlx5_0]\n[adapter mlx5_1]\n[adapter mlx4_0]\n"
					"[adapter hbl_0]\n[adapter hbl_1]",
					&config),
			 0);
	vb_config_default(&made_up);
	assert_memory_equal(&config, &made_up, sizeof(config));
}

static void hbl_adapters(void **state)
{
	struct vb_config config;
	const struct vb_config_adapter *a = config.adapter;

	assert_int_equal(write_and_read("[adapter hbl_0]\n"
					"[adapter hbl_63]\ngeneration = gaudi3\nports = 24\n"
					"[adapter mlx5_0]\n",
					&config),
			 0);
	assert_int_equal(a[0].format, VB_FORMAT_HBL);
	assert_int_equal(a[0].generation, VB_GAUDI2);
	assert_int_equal(a[0].ports, 4);
	assert_int_equal(a[0].hbl_number, 0);
	assert_int_equal(a[1].generation, VB_GAUDI3);
	assert_int_equal(a[1].ports, 24);
	assert_int_equal(a[1].hbl_number, 63);
	assert_int_equal(a[2].ports, 1);
}

static void emulated_functions(void **state)
{
	struct vb_config config;
	const struct vb_config_adapter *a = config.adapter;

	assert_int_equal(write_and_read("[adapter mlx5_0]\n"
					"[adapter mlx5_1]\nfunctions = 0\n"
					"[adapter mlx5_2]\nfunctions = 16\nfunction_queues = 1\n"
					"[adapter mlx5_3]\nfunctions = 1\nfunction_vectors = 256\n"
					"[adapter mlx4_0]\n[adapter hbl_0]\n",
					&config),
			 0);
	assert_int_equal(a[0].functions, 4);
	assert_int_equal(a[0].function_queues, 64);
	assert_int_equal(a[0].function_vectors, 64);
	assert_int_equal(a[1].functions, 0);
	assert_int_equal(a[2].functions, 16);
	assert_int_equal(a[2].function_queues, 1);
	assert_int_equal(a[3].functions, 1);
	assert_int_equal(a[3].function_vectors, 256);
	assert_int_equal(a[4].functions, 0);
	assert_int_equal(a[5].functions, 0);
}

static void parts(void **state)
{
	struct vb_config config;
	const struct vb_config_adapter *a = config.adapter;

	assert_int_equal(write_and_read("[adapter mlx5_0]\n"
					"[adapter mlx5_1]\npart = connectx-5\n"
					"[adapter mlx5_2]\npart = 4123\n"
					"[adapter mlx5_3]\npart = 0xa2d6\n"
					"[adapter mlx5_4]\npart = 0xffff\n"
					"[adapter mlx4_0]\n[adapter hbl_0]\n",
					&config),
			 0);
	assert_int_equal(a[0].part, 0xa2dc);
	assert_int_equal(a[1].part, 0x1017);
	assert_int_equal(a[2].part, 4123);
	assert_int_equal(a[3].part, 0xa2d6);
	assert_int_equal(a[4].part, 0xffff);
	assert_int_equal(a[5].part, 0);
	assert_int_equal(a[6].part, 0);
}

static void missing_takes_port_down(void **state)
{
	struct vb_config config;
	const struct vb_config_adapter *a = config.adapter;

	/* 192.0.2.0/24 and 2001:db8::/32 are for documentation; 203.0.113.77 too. */
	assert_int_equal(
		write_and_read("[adapter mlx5_0]\naddress = 203.0.113.77\n"
			       "[adapter mlx5_1]\ninterface = nosuchif0\n"
			       "[adapter mlx5_2]\naddress = 127.0.0.1\naddress = 2001:db8::77\n",
			       &config),
		0);
	assert_true(a[0].down);
	assert_int_equal(a[0].ifindex, 0);
	assert_address(&a[0].address[0], "::ffff:203.0.113.77");
	assert_true(a[1].down);
	assert_string_equal(a[1].interface, "nosuchif0");
	assert_int_equal(a[1].num_addresses, 0);
	assert_true(a[2].down);
	assert_int_equal(a[2].num_addresses, 2);
}

#define NOT_A_PART(value)                                                                   \
	"2: part: '" value "' is not a part; allowed: 1 to 65535, 0x1 to 0xffff, "          \
	"connectx-4, connectx-4-lx, connectx-5, connectx-5-ex, connectx-6, connectx-6-dx, " \
	"connectx-6-lx, connectx-7, bluefield, bluefield-2, bluefield-3"

/* Text of a bad file, and what its message must be behind "FILE:". */
static const struct {
	const char *text, *message;
} bad[] = {
	{ "", " no adapter; write at least one section [adapter NAME]" },
	{ "; nothing\n\n", " no adapter; write at least one section [adapter NAME]" },
	{ "mtu = 1024\n", "1: mtu: stands outside of any section; begin one with [adapter NAME]" },
	{ "[adapter mlx5_0]\n[card]\n",
	  "2: [card]: unknown section; allowed: [adapter NAME], [memory]" },
	{ "[adapter mlx5_0]\n[memory]\nspeed = 1\n",
	  "3: speed: unknown key; allowed: share, arena, arena_size, huge" },
	{ "[adapter mlx5_0]\n[memory]\nhuge = off\n",
	  "3: huge: 'off' is neither ordinary nor strict" },
	{ "[adapter mlx5_0]\n[memory]\nshare = 0\n", "3: share: '0' is neither on nor off" },
	{ "[adapter mlx5_0]\n[memory]\narena = 64\n",
	  "3: arena: '64' is not one of aligned, all, off; a size is for arena_size" },
	{ "[adapter mlx5_0]\n[memory]\narena_size = 0\n",
	  "3: arena_size: '0' is not a size in MiB, 1 or more" },
	{ "[adapter mlx5_0]\n[memory]\narena_size = much\n",
	  "3: arena_size: 'much' is not a size in MiB, 1 or more" },
	{ "[adapter mlx5_0\n", "1: neither [section] nor key = value nor ; comment" },
	{ "[adapter mlx5_0]\n[adapter mlx5_1]\n\nwhat is this\n",
	  "4: neither [section] nor key = value nor ; comment" },
	{ "\n[adapter mlx5_0]\n\nspeed = 400\n",
	  "4: speed: unknown key; allowed: format, interface, address, mtu, max_qp, max_cq, max_mr, max_srq, dpa_eus, dpa_heap, dpa_stack, dpa_check, cqe_size, rpc_timeout, generation, ports, cable, tap, functions, function_queues, function_vectors, part" },
	{ "[adapter mlx5_0]\nfunctions = 17\n",
	  "2: functions: '17' is not a number of emulated functions; allowed: 0 to 16" },
	{ "[adapter mlx5_0]\nfunction_queues = 0\n",
	  "2: function_queues: '0' is not how many each function has; allowed: 1 to 256" },
	{ "[adapter mlx5_0]\nfunction_vectors = 257\n",
	  "2: function_vectors: '257' is not how many each function has; allowed: 1 to 256" },
	{ "[adapter mlx4_0]\nfunctions = 1\n",
	  "2: functions: only adapters of the format mlx5 have this key" },
	{ "[adapter hbl_0]\nfunction_queues = 1\n",
	  "2: function_queues: only adapters of the format mlx5 have this key" },
	{ "[adapter mlx4_0]\n\npart = connectx-5\n",
	  "3: part: only adapters of the format mlx5 have this key" },
	{ "[adapter mlx5_0]\npart = connectx-3\n", NOT_A_PART("connectx-3") },
	{ "[adapter mlx5_0]\npart = 0\n", NOT_A_PART("0") },
	{ "[adapter mlx5_0]\npart = 65536\n", NOT_A_PART("65536") },
	{ "[adapter mlx5_0]\npart = 0x\n", NOT_A_PART("0x") },
	{ "[adapter mlx5_0]\npart = 0x1017g\n", NOT_A_PART("0x1017g") },
	{ "[adapter mlx5_0]\npart = -4119\n", NOT_A_PART("-4119") },
	{ "[adapter mlx5_0]\npart = 99999999999999999999\n", NOT_A_PART("99999999999999999999") },
	{ "[adapter mlx5_0]\npart = 4119\npart = 4119\n",
	  "3: part: is given twice for this adapter" },
	{ "[adapter mlx5_0]\ntap = a/b\n",
	  "2: tap: 'a/b' is not an interface name; allowed: 1 to 15 characters, as `ip link` lists them" },
	{ "[adapter mlx5_0]\ntap = vtap%d\n",
	  "2: tap: 'vtap%d' is not an interface name; allowed: 1 to 15 characters, as `ip link` lists them" },
	{ "[adapter mlx5_0]\ntap = t\n[adapter mlx4_0]\ntap = t\n",
	  "4: tap: 't' is already that of mlx5_0" },
	{ "[adapter mlx5_0]\ntap = t\ncable = c\n",
	  "2: tap: a port ends in a cable or in a TAP, not in both" },
	{ "[adapter hbl_0]\n\ntap = t\n",
	  "3: tap: only adapters of the formats mlx5 and mlx4 have this key" },
	{ "[adapter mlx5_0]\n[adapter mlx5_1]\n[adapter mlx5_0]\n",
	  "3: [adapter mlx5_0]: this adapter is already defined in line 1" },
	{ "[adapter a b]\n",
	  "1: [adapter a b]: 'a b' is not a device name; allowed: 1 to 31 letters, digits, '_', '-', '.'" },
	{ "[adapter ../x]\n",
	  "1: [adapter ../x]: '../x' is not a device name; allowed: 1 to 31 letters, digits, '_', '-', '.'" },
	{ "[adapter eth_card]\n",
	  "1: format: the name 'eth_card' does not tell it, so the key must; allowed: mlx5, mlx4, hbl" },
	{ "[adapter mlx5_0]\nformat = ib\n",
	  "2: format: 'ib' is not a queue format; allowed: mlx5, mlx4, hbl" },
	{ "[adapter mlx4_0]\ncqe_size = 48\n",
	  "2: cqe_size: '48' is not the size of an entry; allowed: 32, 64" },
	{ "\n[adapter mlx5_0]\ncqe_size = 64\n",
	  "3: cqe_size: only adapters of the format mlx4 have a choice" },
	{ "[adapter mlx5_0]\nmtu = 1500\n",
	  "2: mtu: '1500' is not a path MTU; allowed: 256, 512, 1024, 2048, 4096" },
	{ "[adapter mlx5_0]\nmtu = 128\n",
	  "2: mtu: '128' is not a path MTU; allowed: 256, 512, 1024, 2048, 4096" },
	{ "[adapter mlx5_0]\nmtu = 1024k\n",
	  "2: mtu: '1024k' is not a path MTU; allowed: 256, 512, 1024, 2048, 4096" },
	{ "[adapter mlx5_0]\nmtu = 1024\nmtu = 1024\n", "3: mtu: is given twice for this adapter" },
	{ "[adapter hbl_0]\ngeneration = gaudi1\n",
	  "2: generation: 'gaudi1' is not one; allowed: gaudi2, gaudi3" },
	{ "[adapter hbl_0]\nports = 25\n",
	  "2: ports: '25' is not a number of ports; allowed: 1 to 24" },
	{ "[adapter hbl_64]\n",
	  "1: [adapter hbl_64]: an adapter of the format hbl must be called hbl_0 to hbl_63" },
	{ "[adapter hbl_01]\n",
	  "1: [adapter hbl_01]: an adapter of the format hbl must be called hbl_0 to hbl_63" },
	{ "[adapter mine]\nformat = hbl\n",
	  "1: [adapter mine]: an adapter of the format hbl must be called hbl_0 to hbl_63" },
	{ "[adapter mlx5_0]\nports = 2\n",
	  "2: ports: only adapters of the format hbl have this key" },
	{ "[adapter mlx5_0]\ngeneration = gaudi2\n",
	  "2: generation: only adapters of the format hbl have this key" },
	{ "[adapter hbl_0]\nports = 2\n[adapter x]\nmtu = 256\nports = 3\n\nformat = mlx4\n[adapter hbl_1]\n",
	  "5: ports: only adapters of the format hbl have this key" },
	/* the first mistake of a section, by line */
	{ "[adapter mlx5_0]\nports = 2\ngeneration = gaudi2\n",
	  "2: ports: only adapters of the format hbl have this key" },
	{ "[adapter mlx5_0]\ngeneration = gaudi2\nports = 2\n",
	  "2: generation: only adapters of the format hbl have this key" },
	{ "[adapter mlx5_0]\ndpa_stack = 3\n",
	  "2: dpa_stack: '3' is not a size in KiB; allowed: 4 to 1024" },
	{ "[adapter mlx5_0]\ndpa_stack = 1025\n",
	  "2: dpa_stack: '1025' is not a size in KiB; allowed: 4 to 1024" },
	{ "[adapter mlx5_0]\ndpa_heap = 0\n",
	  "2: dpa_heap: '0' is not a size in MiB; allowed: 1 to 1536" },
	{ "[adapter mlx5_0]\ndpa_heap = 1537\n",
	  "2: dpa_heap: '1537' is not a size in MiB; allowed: 1 to 1536" },
	{ "[adapter mlx5_0]\ndpa_heap = 1G\n",
	  "2: dpa_heap: '1G' is not a size in MiB; allowed: 1 to 1536" },
	{ "[adapter mlx5_0]\ndpa_check = heap,moon\n",
	  "2: dpa_check: 'moon' is nothing to check; allowed: heap, uninit, continue" },
	{ "[adapter mlx5_0]\nrpc_timeout = 0\n",
	  "2: rpc_timeout: '0' is not a time in milliseconds; allowed: 1 to 3600000" },
	{ "[adapter mlx5_0]\nmax_qp = 0\n",
	  "2: max_qp: '0' is not a limit; allowed: 1 to 16777215" },
	{ "[adapter mlx5_0]\nmax_cq = -1\n",
	  "2: max_cq: '-1' is not a limit; allowed: 1 to 16777215" },
	{ "[adapter mlx5_0]\nmax_mr = 99999999999999999999\n",
	  "2: max_mr: '99999999999999999999' is not a limit; allowed: 1 to 16777215" },
	{ "[adapter mlx5_0]\naddress = 10.0.0.300\n",
	  "2: address: '10.0.0.300' is not an address; allowed: IPv4 (10.0.0.1) or IPv6 (fd00::1)" },
	{ "[adapter mlx5_0]\naddress = 224.0.0.1\n",
	  "2: address: '224.0.0.1' is not the address of one host" },
	{ "[adapter mlx5_0]\naddress = ::\n", "2: address: '::' is not the address of one host" },
	{ "[adapter mlx5_0]\naddress = ::1\naddress = 0:0::1\n",
	  "3: address: '0:0::1' is given twice" },
	{ "[adapter mlx5_0]\naddress = ::1\ninterface = lo\n",
	  "3: interface: give either an interface or addresses, not both" },
	{ "[adapter mlx5_0]\ninterface = lo\naddress = ::1\n",
	  "3: address: give either an interface or addresses, not both" },
	{ "[adapter mlx5_0]\ninterface = an-interface-name-too-long\n",
	  "2: interface: 'an-interface-name-too-long' is not an interface name; allowed: 1 to 15 characters, as `ip link` lists them" },
};

static void bad_files(void **state)
{
	struct vb_config config, before;

	memset(&before, 0xa5, sizeof(before));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char expected[512];

		snprintf(expected, sizeof(expected), "%s:%s", path, bad[i].message);
		assert_int_equal(write_and_read(bad[i].text, &config), -EINVAL);
		assert_string_equal(err, expected);
		assert_memory_equal(&config, &before, sizeof(config));
	}
}

static void too_many(void **state)
{
	struct vb_config config;
	char text[4096] = "", *end = text;

	for (int i = 0; i < VB_CONFIG_MAX_ADAPTERS; i++)
		end += sprintf(end, "[adapter mlx5_%d]\naddress = 127.0.0.1\n", i);
	assert_int_equal(write_and_read(text, &config), 0);
	assert_int_equal(config.num_adapters, VB_CONFIG_MAX_ADAPTERS);
	sprintf(end, "[adapter mlx5_16]\n");
	assert_int_equal(write_and_read(text, &config), -EINVAL);
	assert_non_null(strstr(err, ":33: [adapter mlx5_16]: at most 16 adapters are allowed"));

	end = text + sprintf(text, "[adapter mlx5_0]\n");
	for (int i = 1; i <= VB_CONFIG_MAX_ADDRESSES + 1; i++)
		end += sprintf(end, "address = 127.0.0.%d\n", i);
	assert_int_equal(write_and_read(text, &config), -EINVAL);
	assert_non_null(strstr(err, ":10: address: an adapter has at most 8 addresses"));

	sprintf(text, "[adapter mlx5_0]\n; %01000d\n", 0);
	assert_int_equal(write_and_read(text, &config), -EINVAL);
	assert_non_null(strstr(err, ":2: the line is longer than"));
}

static void no_such_file(void **state)
{
	struct vb_config config;

	assert_int_equal(vb_config_read("/nonexistent/verbatim.conf", &config, err, sizeof(err)),
			 -ENOENT);
	assert_string_equal(err, "/nonexistent/verbatim.conf: No such file or directory");
	assert_int_equal(vb_config_read("/", &config, err, sizeof(err)), -EISDIR);
	assert_string_equal(err, "/: Is a directory");
	assert_int_equal(vb_config_read("/dev/zero", &config, err, sizeof(err)), -EINVAL);
	assert_string_equal(err, "/dev/zero: not a regular file");
}

static void default_is_usable(void **state)
{
	struct vb_config config;

	vb_config_default(&config);
	assert_int_equal(config.num_adapters, 5);
	assert_string_equal(config.adapter[0].name, "mlx5_0");
	assert_string_equal(config.adapter[1].name, "mlx5_1");
	assert_string_equal(config.adapter[2].name, "mlx4_0");
	assert_int_equal(config.adapter[2].format, VB_FORMAT_MLX4);
	assert_int_equal(config.adapter[2].cqe_size, 64);
	assert_string_equal(config.adapter[3].name, "hbl_0");
	assert_string_equal(config.adapter[4].name, "hbl_1");
	for (int i = 0; i < 5; i++) {
		assert_false(config.adapter[i].down);
		assert_in_range(config.adapter[i].num_addresses, 1, VB_CONFIG_MAX_ADDRESSES);
		assert_in_range(config.adapter[i].mtu, 256, 4096);
		assert_int_equal(config.adapter[i].mtu & (config.adapter[i].mtu - 1), 0);
	}
}

/* vb_config_get() answers once for the life of a process, so this is the only test that calls it.
 */
static void process_config_is_kept(void **state)
{
	const struct vb_config *first;

	assert_int_equal(setenv("VERBATIM_CONFIG", "", 1), 0);
	first = vb_config_get();
	assert_non_null(first);
	assert_int_equal(setenv("VERBATIM_CONFIG", "/nonexistent", 1), 0);
	assert_ptr_equal(vb_config_get(), first);
	assert_int_equal(unsetenv("VERBATIM_CONFIG"), 0);
}

static void usable_interfaces(void **state)
{
	struct vb_interfaces all = {
		.count = 5,
		.list = { { .name = "lo", .up = true, .loopback = true, .reachable = true },
			  { .name = "off0", .up = false, .reachable = true },
			  { .name = "eth0", .up = true, .reachable = true },
			  { .name = "bare0", .up = true },
			  { .name = "eth1", .up = true, .reachable = true } }
	};

	assert_string_equal(vb_interface_usable(&all, 0)->name, "eth0");
	assert_string_equal(vb_interface_usable(&all, 1)->name, "eth1");
	assert_string_equal(vb_interface_usable(&all, 2)->name, "eth1");
	all.count = 2;
	assert_null(vb_interface_usable(&all, 0));
	assert_string_equal(vb_interface_by_name(&all, "off0")->name, "off0");
	assert_null(vb_interface_by_name(&all, "eth0"));
}

static void path_mtu(void **state)
{
	static const struct {
		unsigned int interface, path;
	} cases[] = { { 65536, 4096 }, { 9000, 4096 }, { 4156, 4096 }, { 4155, 2048 },
		      { 2108, 2048 },  { 1500, 1024 }, { 1084, 1024 }, { 1083, 512 },
		      { 576, 512 },    { 280, 256 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vb_interface interface = { .mtu = cases[i].interface };

		assert_int_equal(vb_interface_path_mtu(&interface), cases[i].path);
	}
}

static void machine_has_loopback(void **state)
{
	static struct vb_interfaces all;
	const struct vb_interface *lo;
	struct in6_addr address;

	assert_int_equal(vb_interfaces_read(&all), 0);
	lo = vb_interface_by_name(&all, "lo");
	assert_non_null(lo);
	assert_true(lo->loopback);
	assert_int_equal(vb_interface_path_mtu(lo), 4096);
	assert_int_equal(inet_pton(AF_INET6, "::ffff:127.1.2.3", &address), 1);
	assert_ptr_equal(vb_interface_by_address(&all, &address), lo);
	for (unsigned int i = 0; i < all.count; i++)
		for (unsigned int j = 0; j < all.list[i].num_addresses; j++)
			assert_int_equal(IN6_IS_ADDR_V4MAPPED(&all.list[i].address[j]),
					 j < all.list[i].num_ipv4);
}

static int make_file(void **state)
{
	int fd = mkstemp(path);

	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_file),
		cmocka_unit_test(section_without_keys),
		cmocka_unit_test(hbl_adapters),
		cmocka_unit_test(emulated_functions),
		cmocka_unit_test(parts),
		cmocka_unit_test(missing_takes_port_down),
		cmocka_unit_test(bad_files),
		cmocka_unit_test(too_many),
		cmocka_unit_test(no_such_file),
		cmocka_unit_test(default_is_usable),
		cmocka_unit_test(process_config_is_kept),
		cmocka_unit_test(usable_interfaces),
		cmocka_unit_test(path_mtu),
		cmocka_unit_test(machine_has_loopback),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
