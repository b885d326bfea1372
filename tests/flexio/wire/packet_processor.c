// SPDX-License-Identifier: MIT
/* What samples/packet-processor answers, against what it should by the protocols. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

enum { IP_A = 0x0a070001, IP_US = 0x0a070002, MANY = 3000, WINDOW = 16 };

static const uint64_t mac_a = 0x020000000a01, mac_us = 0x02427e7feb02, all = 0xffffffffffff;

static uint32_t make_arp(uint8_t *f, uint64_t dst, uint64_t src, uint16_t op, const uint32_t ip[2],
			 uint64_t target)
{
	uint32_t at = put_eth(f, 0, dst, src, 0x0806);

	put32(f + at, 0x00010800);
	put32(f + at + 4, 0x06040000u | op);
	put_eth(f, at + 8, 0, 0, 0);
	put16(f + at + 8, (unsigned int)(src >> 32));
	put32(f + at + 10, (uint32_t)src);
	put32(f + at + 14, ip[0]);
	put16(f + at + 18, (unsigned int)(target >> 32));
	put32(f + at + 20, (uint32_t)target);
	put32(f + at + 24, ip[1]);
	memset(f + 42, 0, 18);
	return 60;
}

static void expect(struct station *s, const uint8_t *frame, uint32_t len)
{
	struct got got;

	station_get(s, &got);
	check_eq(got.len, len);
	for (uint32_t i = 0; i < len; i++)
		check(got.data[i] == frame[i], "byte %u is %#x, not %#x", i, got.data[i], frame[i]);
}

static void arp(struct station *s)
{
	static const uint32_t ask[2] = { IP_A, IP_US }, other[2] = { IP_A, IP_US + 1 };
	static const uint32_t answer[2] = { IP_US, IP_A };
	uint8_t f[64];

	/* Not for us, no request, and then one that is answered. */
	station_send(s, f, make_arp(f, all, mac_a, 1, other, 0), 0);
	station_send(s, f, make_arp(f, mac_us, mac_a, 2, ask, 0), 0);
	station_send(s, f, make_arp(f, all, mac_a, 1, ask, 0), 0);
	expect(s, f, make_arp(f, mac_a, mac_us, 2, answer, mac_a));
}

static uint32_t make_ping(uint8_t *f, bool reply, uint32_t payload)
{
	uint32_t at = put_eth(f, 0, reply ? mac_a : mac_us, reply ? mac_us : mac_a, 0x0800), icmp;

	icmp = put_ip4(f, at, 1, reply ? IP_US : IP_A, reply ? IP_A : IP_US, 8 + payload);
	put16(f + icmp, reply ? 0 : 0x0800);
	put16(f + icmp + 2, 0);
	put16(f + icmp + 4, 77);
	put16(f + icmp + 6, payload);
	pattern_fill(f + icmp + 8, payload, payload);
	put16(f + icmp + 2, (uint16_t)~sum_of(f + icmp, 8 + payload, 0));
	at = icmp + 8 + payload;
	if (at < 60)
		memset(f + at, 0, 60 - at);
	return at < 60 ? 60 : at;
}

static void pings(struct station *s)
{
	static const uint32_t sizes[] = { 0, 1, 17, 18, 56, 57, 1000, 1472 };
	uint8_t f[2048];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		station_send(s, f, make_ping(f, false, sizes[i]), 0);
		expect(s, f, make_ping(f, true, sizes[i]));
	}
}

static uint32_t make_udp(uint8_t *f, uint32_t dst, uint16_t port, uint32_t payload)
{
	uint32_t at = put_eth(f, 0, mac_us, mac_a, 0x0800);

	at = put_ip4(f, at, 17, IP_A, dst, 8 + payload);
	at = put_udp(f, at, 4000, port, payload);
	pattern_fill(f + at, payload, port);
	at += payload;
	if (at < 60)
		memset(f + at, 0, 60 - at);
	return at < 60 ? 60 : at;
}

/* The same frame with its source and destination changed; checksums are judged apart. */
static void expect_udp(struct station *s, uint8_t *f, uint32_t len)
{
	struct got got;

	station_get(s, &got);
	check_eq(got.len, len);
	check(ip4_right(got.data, 14) && l4_right(got.data, 14));
	put_eth(f, 0, mac_a, mac_us, 0x0800);
	f[22]--;
	put16(f + 36, (unsigned int)(f[36] << 8 | f[37]) + 1);
	memcpy(f + 24, got.data + 24, 2);
	memcpy(f + 40, got.data + 40, 2);
	check(!memcmp(f, got.data, len));
}

static void datagrams(struct station *s)
{
	static const uint32_t sizes[] = { 0, 1, 18, 19, 512, 1472 };
	uint8_t f[2048];
	uint32_t len;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		len = make_udp(f, IP_US, (uint16_t)(7000 + i), sizes[i]);
		station_send(s, f, len, 0);
		expect_udp(s, f, len);
	}
	/* For somebody else, at the end of its life, a fragment: nothing comes back. */
	station_send(s, f, make_udp(f, IP_US + 1, 1, 20), 0);
	len = make_udp(f, IP_US, 1, 20);
	f[22] = 1;
	station_send(s, f, len, 0);
	f[22] = 64;
	f[20] = 0x20;
	station_send(s, f, len, 0);
	station_send(s, f, make_udp(f, IP_US, 65535, 20), 0);
	station_get(s, &(struct got){ 0 });
}

/* Many, and all of them in order. */
static void stream(struct station *s)
{
	uint32_t sent = 0, len;
	uint8_t f[256];

	for (uint32_t got = 0; got < MANY; got++) {
		for (; sent < MANY && sent < got + WINDOW; sent++) {
			len = make_udp(f, IP_US, (uint16_t)sent, sent % 90);
			station_send(s, f, len, 0);
		}
		len = make_udp(f, IP_US, (uint16_t)got, got % 90);
		expect_udp(s, f, len);
	}
}

void wire_packet_processor(char **command)
{
	static const char *const none[] = { "mlx5_0", NULL };
	static const char *const two[] = { "-v", "-n", "2", NULL };
	struct ibv_flow *flow;
	struct sample sample;
	struct station s;
	unsigned long frames, arps, echoes, datagrams_sent, ignored;
	uint8_t f[256];

	sample_start(&sample, command, none);
	check(strstr(sample.line, "10.7.0.2 at 02:42:7e:7f:eb:02"), "%s", sample.line);
	station_open(&s, "mlx5_1");
	flow = flow_all(s.qp);
	arp(&s);
	pings(&s);
	datagrams(&s);
	stream(&s);
	station_quiet(&s);
	check_eq(kill(sample.pid, SIGTERM), 0);
	check_eq(
		sscanf(sample_line(&sample),
		       "%lu frames: %lu ARP requests and %lu pings answered, %lu UDP datagrams sent on, %lu ignored",
		       &frames, &arps, &echoes, &datagrams_sent, &ignored),
		5);
	check_eq(arps, 1);
	check_eq(echoes, 8);
	check_eq(datagrams_sent, MANY + 7);
	check_eq(ignored, 5);
	check_eq(frames, arps + echoes + datagrams_sent + ignored);
	sample_end(&sample, 0);

	/* It ends by itself, and says what it does. */
	sample_start(&sample, command, two);
	station_send(&s, f, make_ping(f, false, 5), 0);
	expect(&s, f, make_ping(f, true, 5));
	check(strstr(sample_line(&sample), "ICMP: echo 5 of 10.7.0.1"), "%s", sample.line);
	station_send(&s, f, make_udp(f, IP_US, 5, 5), 0);
	station_get(&s, &(struct got){ 0 });
	check(strstr(sample_line(&sample), "UDP: port 5 becomes 6"), "%s", sample.line);
	sample_end(&sample, 0);
	check_eq(ibv_destroy_flow(flow), 0);
	station_close(&s);
}
