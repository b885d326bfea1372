// SPDX-License-Identifier: MIT
/*
 * verbatim devices: the adapters that a program would see, as a table; with -v everything about
 * each.
 */
#include <argp.h>
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"
#include "card/emulation/emulation.h"
#include "tools/cmd.h"

struct arguments {
	const char *config;
	bool verbose;
};

static error_t devices_parse_opt(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;

	switch (key) {
	case 'c':
		args->config = arg;
		return 0;
	case 'v':
		args->verbose = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const char *devices_state_name(enum ibv_port_state state)
{
	return state == IBV_PORT_ACTIVE ? "ACTIVE" : state == IBV_PORT_DOWN ? "DOWN" : "?";
}

static unsigned int devices_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* As people write it: an IPv4 address where the GID holds one. */
static const char *gid_address(const union ibv_gid *gid, char buf[INET6_ADDRSTRLEN])
{
	struct in6_addr address;

	memcpy(&address, gid, sizeof(address));
	if (IN6_IS_ADDR_V4MAPPED(&address))
		return inet_ntop(AF_INET, &address.s6_addr[12], buf, INET6_ADDRSTRLEN);
	return inet_ntop(AF_INET6, &address, buf, INET6_ADDRSTRLEN);
}

static const char *or_dash(const char *text)
{
	return *text ? text : "-";
}

static void print_row(const struct vb_adapter *a)
{
	char address[INET6_ADDRSTRLEN] = "-";
	struct ibv_port_attr port = { 0 };

	vb_adapter_query_port(a, 1, &port);
	if (a->config->num_addresses)
		gid_address((const union ibv_gid *)&a->config->address[0], address);
	printf("%-12s %-7s %-7s %-15s %5u  %-12s %5u\n", a->config->name,
	       vb_format_name(a->config->format), devices_state_name(port.state), address,
	       devices_mtu_bytes(port.active_mtu), or_dash(a->config->interface), a->num_gids);
}

static void print_gids(const struct vb_adapter *a)
{
	for (unsigned int i = 0; i < a->num_gids; i++) {
		const uint8_t *raw = a->gids[i].gid.raw;
		char buf[INET6_ADDRSTRLEN];

		printf("  GID %-2u      ", i);
		for (unsigned int j = 0; j < 16; j += 2)
			printf("%s%02x%02x", j ? ":" : "", raw[j], raw[j + 1]);
		printf("  RoCE v%d  %s\n", a->gids[i].type == IBV_GID_TYPE_ROCE_V1 ? 1 : 2,
		       gid_address(&a->gids[i].gid, buf));
	}
}

/* Which vhca_ids they have is what a program has to know. */
static void devices_print_functions(const struct vb_adapter *a)
{
	struct vb_function_info first, last;

	if (!vb_function_info(a, 0, &first) ||
	    !vb_function_info(a, a->config->functions - 1, &last))
		return;
	printf("  functions   %u emulated, vhca_id 0x%x to 0x%x, %u queues and %u vectors each\n",
	       a->config->functions, first.vhca_id, last.vhca_id, first.queues, first.vectors);
}

static void print_all(const struct vb_adapter *a)
{
	const struct vb_identity *identity = vb_adapter_identity(a);
	struct ibv_port_attr port = { 0 };
	const uint8_t *mac = a->config->mac;
	uint64_t guid = be64toh(a->guid);

	vb_adapter_query_port(a, 1, &port);
	printf("%s\n", a->config->name);
	printf("  format      %s\n", vb_format_name(a->config->format));
	if (a->config->format == VB_FORMAT_HBL)
		printf("  generation  %s, %u ports\n",
		       a->config->generation == VB_GAUDI3 ? "gaudi3" : "gaudi2", a->config->ports);
	printf("  part        0x%04x, firmware %s, board %s\n", identity->part_id,
	       identity->firmware, identity->board);
	printf("  state       %s\n", devices_state_name(port.state));
	if (a->config->down)
		printf("              the configured %s is missing on this machine\n",
		       a->config->num_addresses ? "address" : "interface");
	printf("  node GUID   %04x:%04x:%04x:%04x\n", (unsigned int)(guid >> 48),
	       (unsigned int)(guid >> 32 & 0xffff), (unsigned int)(guid >> 16 & 0xffff),
	       (unsigned int)(guid & 0xffff));
	printf("  interface   %s\n", or_dash(a->config->interface));
	printf("  MAC         %02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1], mac[2], mac[3],
	       mac[4], mac[5]);
	printf("  path MTU    %u active, %u at most\n", devices_mtu_bytes(port.active_mtu),
	       devices_mtu_bytes(port.max_mtu));
	print_gids(a);
	devices_print_functions(a);
	printf("  limits      %" PRIu32 " QPs, %" PRIu32 " CQs, %" PRIu32 " SRQs, %" PRIu32
	       " MRs, %" PRIu32 " PDs, %" PRIu32 " AHs\n",
	       a->max_qp, a->max_cq, a->max_srq, a->max_mr, a->max_pd, a->max_ah);
	printf("              %d WRs in a queue, %d SGEs, %d bytes inline, %d CQEs, %u bytes in a message\n",
	       VB_MAX_QP_WR, VB_MAX_SGE, VB_MAX_INLINE, VB_MAX_CQE, 1u << VB_MAX_MSG_LOG);
}

int cmd_devices(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "verbose", 'v', NULL, 0, "Everything about each adapter", 0 },
		{ "config", 'c', "FILE", 0,
		  "Take the adapters from FILE (default: $VERBATIM_CONFIG)", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = devices_parse_opt,
		.doc = "List the adapters that programs under `verbatim run` see.",
	};
	struct arguments args = { 0 };
	struct vb_adapter *const *list;
	unsigned int count;
	int ret;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (tools_use_config("verbatim devices", args.config))
		return 1;
	ret = vb_card_adapters(vb_card_program(), &list, &count);
	if (ret) {
		fprintf(stderr, "verbatim devices: %s\n", strerror(-ret));
		return 1;
	}
	if (!args.verbose)
		printf("%-12s %-7s %-7s %-15s %5s  %-12s %5s\n", "NAME", "FORMAT", "STATE",
		       "ADDRESS", "MTU", "INTERFACE", "GIDS");
	for (unsigned int i = 0; i < count; i++) {
		if (args.verbose)
			print_all(list[i]);
		else
			print_row(list[i]);
	}
	return 0;
}
