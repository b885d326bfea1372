// SPDX-License-Identifier: MIT
/* samples/flow-counter: card and device code count what was sent, flow by flow. */
#include <string.h>

#include "wire.h"

enum { FLOWS = 7, TOTAL = 200 }; /* fewer than the sample has buffers: none is lost */

static const uint64_t mac_a = 0x020000000a01;

/* A frame of the flow, of about so many bytes. */
static uint32_t make(uint8_t *f, uint32_t flow, uint32_t payload)
{
	static const uint8_t protocol[] = { 1, 6, 17, 50 };
	uint32_t at;

	memset(f, 0, 1600);
	switch (flow) {
	case 4:
		at = put_eth(f, 0, mac_a + 1, mac_a, 0x86dd);
		at = put_ip6(f, at, 17, 1, 2, payload);
		break;
	case 5:
		at = put_eth(f, 0, 0xffffffffffff, mac_a, 0x0806);
		break;
	case 6:
		at = put_eth(f, 0, mac_a + 1, mac_a, 0x88b5);
		break;
	default:
		at = put_eth(f, 0, mac_a + 1, mac_a, 0x0800);
		at = put_ip4(f, at, protocol[flow], 0x0a070001, 0x0a070002, payload);
	}
	return at + payload < 60 ? 60 : at + payload;
}

void wire_flow_counter(char **command)
{
	static const char *const names[FLOWS] = { "ICMP", "TCP", "UDP",  "other IPv4",
						  "IPv6", "ARP", "other" };
	static const char *const args[] = { "-n", "200", "mlx5_0", NULL };
	unsigned long frames[FLOWS] = { 0 }, bytes[FLOWS] = { 0 };
	uint64_t random = 7;
	struct sample sample;
	struct station s;
	uint8_t f[1600];

	sample_start(&sample, command, args);
	station_open(&s, "mlx5_1");
	for (uint32_t i = 0; i < TOTAL; i++) {
		uint32_t flow = i < FLOWS ? i : next_random(&random) % FLOWS;
		uint32_t len = make(f, flow, 20 + next_random(&random) % 300);

		station_send(&s, f, len, 0);
		frames[flow]++;
		bytes[flow] += len;
	}
	sample_find(&sample, "flow ");
	for (int i = 0; i < FLOWS; i++) {
		unsigned long n[4];

		check_eq(strncmp(sample_line(&sample), names[i], strlen(names[i])), 0);
		check_eq(sscanf(sample.line + 12, "%lu %lu %lu %lu", &n[0], &n[1], &n[2], &n[3]),
			 4);
		check_eq(n[0], frames[i]);
		check_eq(n[1], bytes[i]);
		check_eq(n[2], frames[i]);
		check_eq(n[3], bytes[i]);
	}
	sample_end(&sample, 0);
	station_close(&s);
}
