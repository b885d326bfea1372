/* SPDX-License-Identifier: MIT */
/*
 * A station of raw Ethernet: a RAW_PACKET queue pair with buffers posted, what it sends and what it gets. And frames to
 * send. A frame from one station of a process has reached the others when its send has completed.
 */
#pragma once

#include "common.h"

enum { STATION_SLOTS = 64, STATION_SLOT = 9216 + 64, STATION_LARGE = 1 << 17 };

struct station {
	struct ibv_context *ctx;
	bool own_ctx;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq;
	struct ibv_cq_ex *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;   /* slots to receive, then STATION_LARGE bytes to send from */
	uint32_t slots; /* buffers that are posted */
	bool has_tag;   /* mlx5: completions have flow tag and VLAN */
};

/* A frame that was received. */
struct got {
	const uint8_t *data;
	uint32_t len;
	enum ibv_wc_status status;
	unsigned int flags; /* wc_flags */
	uint32_t tag;
	uint16_t vlan;
	uint32_t qpn;
};

struct ibv_context *open_device(const char *name);
/* On a device of its own context, or (ctx) in another's. */
void station_open(struct station *s, const char *device);
void station_open_in(struct station *s, struct ibv_context *ctx);
/* The same with options of the queue pair. */
void station_open_with(struct station *s, const char *device, uint32_t create_flags,
		       uint16_t max_tso_header);
/* The same with so many buffers posted. */
void station_open_deep(struct station *s, const char *device, uint32_t slots);
void station_close(struct station *s);

enum ibv_wc_status station_try_send(struct station *s, const void *frame, uint32_t len, int flags);
void station_send(struct station *s, const void *frame, uint32_t len, int flags);
/* The next completion of its receive queue, at once; false: none. Its buffer is posted again. */
bool station_poll(struct station *s, struct got *got);
/* It must come. */
void station_get(struct station *s, struct got *got);
/* Exactly this frame came, and nothing behind it. */
#define station_expect(s, frame, len) station_expect_at(__FILE__, __LINE__, s, frame, len)
void station_expect_at(const char *file, int line, struct station *s, const void *frame,
		       uint32_t len);
#define station_quiet(s) station_quiet_at(__FILE__, __LINE__, s)
void station_quiet_at(const char *file, int line, struct station *s);

/* --- frames ------------------------------------------------------------------------------------ */

void put16(uint8_t *at, unsigned int value);
void put32(uint8_t *at, uint32_t value);
/* Each appends a header and returns the length then. */
uint32_t put_eth(uint8_t *f, uint32_t at, uint64_t dst, uint64_t src, uint16_t type);
uint32_t put_tag(uint8_t *f, uint32_t at, uint16_t tag, uint16_t type); /* behind put_eth(0x8100) */
uint32_t put_ip4(uint8_t *f, uint32_t at, uint8_t protocol, uint32_t src, uint32_t dst,
		 uint32_t payload);
uint32_t put_ip6(uint8_t *f, uint32_t at, uint8_t protocol, uint8_t src, uint8_t dst,
		 uint32_t payload);
uint32_t put_udp(uint8_t *f, uint32_t at, uint16_t sport, uint16_t dport, uint32_t payload);
uint32_t put_tcp(uint8_t *f, uint32_t at, uint16_t sport, uint16_t dport, uint8_t flags);
/* One's complement sum of bytes, not folded to its complement. */
uint16_t sum_of(const uint8_t *p, uint32_t len, uint32_t start);
/* Whether the IPv4 header at l3, and the TCP or UDP behind its 20 bytes, have right checksums. */
bool ip4_right(const uint8_t *f, uint32_t l3);
bool l4_right(const uint8_t *f, uint32_t l3);
