// SPDX-License-Identifier: MIT
/* samples/l2-reflector: every frame comes back with its MACs swapped, and each queue got those that its hash says. */
#include <signal.h>
#include <string.h>

#include "wire.h"

enum { FLOWS = 64, EACH = 20, WINDOW = 16, QUEUES = 8 };

static const uint64_t mac_a = 0x020000000a01, mac_us = 0x02427e7feb03;

/* A bit of the key at a time, as its definition has it. */
static uint32_t toeplitz(const uint8_t *data, uint32_t len)
{
	static const uint8_t key[2] = { 0x6d, 0x5a };
	uint32_t hash = 0;

	for (uint32_t bit = 0; bit < 8 * len; bit++)
		for (uint32_t i = 0; i < 32 && data[bit / 8] & 0x80 >> bit % 8; i++)
			hash ^= (uint32_t)(key[(bit + i) / 8 % 2] >> (7 - (bit + i) % 8) & 1)
				<< (31 - i);
	return hash;
}

/* The frame; *queue becomes where it must go. */
static uint32_t make(uint8_t *f, uint32_t flow, uint32_t number, uint32_t *queue)
{
	uint8_t tuple[12];
	uint32_t at, payload = 22 + number % 7;

	at = put_eth(f, 0, mac_us, mac_a, 0x0800);
	at = put_ip4(f, at, 17, 0x0a070001 + flow, 0x0a0700ff, payload);
	at = put_udp(f, at, (uint16_t)(1000 + 13 * flow), 4000, payload - 8);
	pattern_fill(f + at, payload - 8, number);
	memcpy(tuple, f + 26, 12); /* addresses, ports: as they follow one another in the frame */
	*queue = toeplitz(tuple, sizeof(tuple)) % QUEUES;
	return at + payload - 8 < 60 ? 60 : at + payload - 8;
}

void wire_l2_reflector(char **command)
{
	static const char *const args[] = { "-q", "8", "mlx5_0", NULL };
	unsigned long want[QUEUES] = { 0 }, bytes[QUEUES] = { 0 };
	uint32_t sent = 0, queue, len;
	struct ibv_flow *flow;
	struct sample sample;
	struct station s;
	struct got got;
	uint8_t f[256] = { 0 };
	bool seen[FLOWS * EACH] = { false };

	sample_start(&sample, command, args);
	station_open(&s, "mlx5_1");
	flow = flow_all(s.qp);
	for (uint32_t n = 0; n < FLOWS * EACH; n++) {
		for (; sent < FLOWS * EACH && sent < n + WINDOW; sent++) {
			memset(f, 0, sizeof(f));
			len = make(f, sent % FLOWS, sent, &queue);
			put16(f + 18, sent); /* identification; its checksum is not looked at */
			station_send(&s, f, len, 0);
			want[queue]++;
			bytes[queue] += len;
		}
		/* Queues are not in order among themselves. */
		station_get(&s, &got);
		queue = (uint32_t)(got.data[18] << 8 | got.data[19]);
		check(queue < FLOWS * EACH && !seen[queue]);
		seen[queue] = true;
		memset(f, 0, sizeof(f));
		len = make(f, queue % FLOWS, queue, &(uint32_t){ 0 });
		put16(f + 18, queue);
		put_eth(f, 0, mac_a, mac_us, 0x0800);
		check_eq(got.len, len);
		check(!memcmp(got.data, f, len));
	}
	station_quiet(&s);
	check_eq(kill(sample.pid, SIGINT), 0);
	sample_find(&sample, "queue");
	for (uint32_t i = 0; i < QUEUES; i++) {
		unsigned long index, frames, sum;

		check_eq(sscanf(sample_line(&sample), "%lu %lu %lu", &index, &frames, &sum), 3);
		check_eq(index, i);
		check_eq(frames, want[i]);
		check_eq(sum, bytes[i]);
		check(frames > 0);
	}
	sample_end(&sample, 0);
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
}
