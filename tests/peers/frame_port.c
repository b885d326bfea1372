// SPDX-License-Identifier: MIT
/*
 * A user's program on raw Ethernet, for test_cable.py: prints each frame that its queue pair gets, and sends those that it
 * reads.
 *
 *	frame_port DEVICE [PORT]     all frames, or those of UDP to this port
 *	stdout: ready                then a line for each frame: got HEX
 *	stdin:  send HEX             the end of the file ends the program
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/station.h"

static struct ibv_flow *flow_udp(struct ibv_qp *qp, uint16_t port)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_ipv4 ip;
		struct ibv_flow_spec_tcp_udp udp;
	} __attribute__((packed, aligned(4))) flow = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL,
			  .size = sizeof(flow),
			  .num_of_specs = 3,
			  .port = 1 },
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(flow.eth) },
		.ip = { .type = IBV_FLOW_SPEC_IPV4, .size = sizeof(flow.ip) },
		.udp = { .type = IBV_FLOW_SPEC_UDP,
			 .size = sizeof(flow.udp),
			 .val.dst_port = htobe16(port),
			 .mask.dst_port = 0xffff },
	};
	struct ibv_flow *made = ibv_create_flow(qp, &flow.attr);

	check(made);
	return made;
}

static void print_frame(const struct got *got)
{
	check_eq(got->status, IBV_WC_SUCCESS);
	fputs("got ", stdout);
	for (uint32_t i = 0; i < got->len; i++)
		printf("%02x", got->data[i]);
	puts("");
	fflush(stdout);
}

static void send_hex(struct station *s, const char *hex)
{
	static uint8_t frame[STATION_SLOT];
	uint32_t len = 0;
	unsigned int byte;

	while (len < sizeof(frame) && sscanf(hex + 2 * len, "%2x", &byte) == 1)
		frame[len++] = (uint8_t)byte;
	station_send(s, frame, len, 0);
}

/* Do what was asked for; false at the end. */
static bool obey(struct station *s)
{
	static char line[2 * STATION_SLOT];
	static size_t len;
	ssize_t n = read(STDIN_FILENO, line + len, sizeof(line) - 1 - len);
	char *end;

	if (n <= 0)
		return n < 0 && errno == EAGAIN;
	len += (size_t)n;
	line[len] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		check(!strncmp(line, "send ", 5));
		send_hex(s, line + 5);
		len -= (size_t)(end + 1 - line);
		memmove(line, end + 1, len + 1);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct station s;
	struct ibv_flow *flow;
	struct got got;

	if (argc < 2)
		return 2;
	check_eq(fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK), 0);
	station_open(&s, argv[1]);
	flow = argc > 2 ? flow_udp(s.qp, (uint16_t)atoi(argv[2])) : flow_all(s.qp);
	puts("ready");
	fflush(stdout);
	while (obey(&s)) {
		if (station_poll(&s, &got))
			print_frame(&got);
		else
			sched_yield();
	}
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
	return 0;
}
