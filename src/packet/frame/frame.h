/* SPDX-License-Identifier: MIT */
/*
 * Bytes of an Ethernet frame: where its headers are, checksums, the hash that spreads frames over
 * receive queues, segmentation, tags and tunnels. Knows no queues, no formats of CQEs, no other
 * process.
 *
 *	           +- outer -----------------+        +- inner -----------+
 *	[headroom] | Ethernet tags MPLS IP L4| tunnel | Ethernet tags IP L4| payload  padding
 *	           ^ data                    ^ tunnel_at                   ^ inner.payload
 *
 * A frame may lie in memory that another process goes on writing. So what decides about an address
 * is read from it once, by vb_frame_parse(), and kept in struct vb_frame; whatever is read later
 * decides about no address.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	VB_FRAME_HEADER = 14,   /* an Ethernet header */
	VB_FRAME_SHORTEST = 60, /* on a wire, without the FCS */
	VB_FRAME_VLANS = 2,     /* tags that are looked at, per level */
	VB_FRAME_EXTENSIONS =
		8, /* IPv6 extension headers that are followed; behind more there is no L4 */
	VB_FRAME_LABELS = 8, /* MPLS labels likewise */
	VB_FRAME_HASH_KEY = 40,
};

enum vb_l4 {
	VB_L4_NONE, /* also: a fragment, a truncated header */
	VB_L4_TCP,
	VB_L4_UDP,
	VB_L4_ICMP,
	VB_L4_ICMPV6,
	VB_L4_ESP,
	VB_L4_AH,
};

enum vb_tunnel {
	VB_TUNNEL_NONE,
	VB_TUNNEL_VXLAN,     /* UDP 4789 */
	VB_TUNNEL_VXLAN_GPE, /* UDP 4790 */
	VB_TUNNEL_GENEVE,    /* UDP 6081 */
	VB_TUNNEL_GTPU,      /* UDP 2152 */
	VB_TUNNEL_GRE,
	VB_TUNNEL_NVGRE, /* GRE with key, protocol 0x6558 */
	VB_TUNNEL_IP,    /* IP in IP: no header of its own */
	VB_TUNNEL_MPLS,  /* labels behind UDP 6635; behind GRE they are VB_TUNNEL_GRE */
};

/* One level of headers. Offsets count from the frame's first byte; 0: there is none. */
struct vb_layer {
	bool has_l2;      /* an Ethernet header at l2; an inner level may begin with IP */
	uint8_t vlans;    /* tags, at most VB_FRAME_VLANS */
	uint8_t ip;       /* 0, 4 or 6 */
	uint8_t protocol; /* behind IP and its extensions, whether or not it is known */
	uint8_t l4_type;  /* enum vb_l4 */
	bool options;     /* IPv4 options, IPv6 extension headers */
	bool fragment;    /* of a datagram: no l4, so that all its fragments are treated alike */
	bool bad_l3;      /* an IP header does not fit, or announces more than the frame has */
	bool bad_l4;      /* the L4 header that IP announces does not fit */
	uint16_t vlan_type[VB_FRAME_VLANS]; /* 0x8100 or 0x88a8, the outer tag first */
	uint16_t vlan[VB_FRAME_VLANS];      /* priority, CFI, number */
	uint16_t ethertype;                 /* behind the tags; 0 without an Ethernet header */
	uint16_t tcp_flags;                 /* nine bits: NS, CWR ... FIN */
	uint16_t l2, mpls, l3, l4;
	uint16_t l3_len;  /* with options and extension headers */
	uint16_t payload; /* behind the last header of this level that is known */
	uint32_t end; /* of what IP carries: a short frame is padded behind it. Without IP: len */
};

struct vb_frame {
	uint8_t *data;
	uint32_t len;
	/* Bytes before data and behind data + len that may be written, for edits. */
	uint32_t headroom, tailroom;
	/* The rest is set by vb_frame_parse() and vb_frame_parse_swp(). */
	uint8_t tunnel;        /* enum vb_tunnel */
	bool has_inner;        /* a tunnel may carry what is not known */
	uint16_t tunnel_at;    /* its header; 0: none */
	uint16_t tunnel_mpls;  /* the first label behind UDP or GRE; 0: none */
	struct vb_layer outer; /* of a frame without a tunnel: the only one */
	struct vb_layer inner;
};

/*
 * Find the headers; data and len are set. Any length is allowed, headers are looked for in the
 * first 65535 bytes.
 */
void vb_frame_parse(struct vb_frame *f);
/*
 * The same with the lengths in IP headers not trusted: a header whose lengths are yet to be made.
 */
void vb_frame_parse_template(struct vb_frame *f);

/* --- checksums -------------------------------------------------------------------------------- */

/* Which checksums; the values are those of an mlx5 send WQE. */
enum vb_csum {
	VB_CSUM_INNER_L3 = 0x10,
	VB_CSUM_INNER_L4 = 0x20,
	VB_CSUM_L3 = 0x40,
	VB_CSUM_L4 = 0x80,
	VB_CSUM_ALL = 0xf0,
};

/*
 * Those of the asked checksums that are right. L3: a sound IP header, for IPv4 with the right sum.
 * L4: TCP or UDP (not a fragment) with the right sum, or UDP without one (0, over IPv4). A level
 * that the frame has not is not right.
 */
uint8_t vb_frame_verify(const struct vb_frame *f, uint8_t which);
/* Fill in; what the frame has not is left out. Inner sums first, so that an outer L4 sum holds. */
void vb_frame_fill_checksums(struct vb_frame *f, uint8_t which);
/* One's complement sum of the frame from byte 14 on, as CHECKSUM_COMPLETE; 0 of a shorter frame. */
uint16_t vb_frame_sum(const struct vb_frame *f);
/* Sum of bytes, folded to 16 bits, not complemented; sum: what was added before. */
uint16_t vb_frame_sum16(const uint8_t *data, uint32_t len, uint32_t sum);

/*
 * Where headers are by the word of the sender ("software parser"): offsets in units of two bytes,
 * 0: none.
 */
enum vb_swp_flags {
	VB_SWP_INNER_IPV6 = 0x01,
	VB_SWP_INNER_UDP = 0x02,
	VB_SWP_OUTER_IPV6 = 0x10,
	VB_SWP_OUTER_UDP = 0x20,
};

struct vb_swp {
	uint8_t outer_l4, outer_l3, inner_l4, inner_l3;
	uint8_t flags; /* enum vb_swp_flags, the values of an mlx5 send WQE */
};

/*
 * In place of vb_frame_parse(): take the offsets instead of looking at types. -EINVAL where one is
 * outside of the frame or its header is cut off; the frame then has no headers.
 */
int vb_frame_parse_swp(struct vb_frame *f, const struct vb_swp *swp);

/* --- receive side scaling --------------------------------------------------------------------- */

/* The byte rss_hash_type of an mlx5 CQE: which fields the hash is of, two bits each. */
enum vb_hash_type {
	VB_HASH_SRC_IPV4 = 1 << 0,
	VB_HASH_SRC_IPV6 = 2 << 0,
	VB_HASH_DST_IPV4 = 1 << 2,
	VB_HASH_DST_IPV6 = 2 << 2,
	VB_HASH_SRC_TCP = 1 << 4,
	VB_HASH_SRC_UDP = 2 << 4,
	VB_HASH_SRC_SPI = 3 << 4,
	VB_HASH_DST_TCP = 1 << 6,
	VB_HASH_DST_UDP = 2 << 6,
	VB_HASH_DST_SPI = 3 << 6,
};

/*
 * The Toeplitz hash of the chosen fields (IBV_RX_HASH_*) that the frame has, and what went in
 * (type, may be NULL). IBV_RX_HASH_INNER: of the inner headers, where there are any; a frame
 * without a tunnel has hash 0 then. symmetric: both directions of a flow have one hash; of
 * addresses, and likewise of ports, OR and XOR go in.
 */
uint32_t vb_frame_hash(const struct vb_frame *f, const uint8_t key[VB_FRAME_HASH_KEY],
		       uint64_t fields, bool symmetric, uint8_t *type);

/* --- segmentation ----------------------------------------------------------------------------- */

/*
 * A large TCP send. Every segment is the header with its fields set, and up to mss bytes of what
 * follows it: IPv4 total length and identification (counting on), IPv6 payload length, TCP sequence
 * number; FIN and PSH only in the last, CWR only in the first; of a tunnel with known headers both
 * levels, and the length of an outer UDP.
 */
struct vb_lso {
	const uint8_t *header; /* bytes that begin every segment; private memory */
	uint32_t header_len;
	uint32_t len;             /* header and payload */
	uint32_t mss;             /* payload of a segment, 1 to 65535 */
	uint8_t checksums;        /* enum vb_csum, filled into each segment */
	const struct vb_swp *swp; /* NULL: look for the headers */
	uint8_t *buffer;          /* a segment is made here */
	uint32_t room;            /* of the buffer */
	/* Copy payload bytes; not 0: stop, vb_frame_segment() returns it. */
	int (*read)(void *arg, uint8_t *to, uint32_t offset, uint32_t len);
	/* A segment, with facts as parsed; not 0: stop likewise. */
	int (*emit)(void *arg, struct vb_frame *segment);
	void *arg;
};

/*
 * Number of segments, or before any was emitted: -EINVAL (mss 0, a header that is longer than the
 * frame or that ends inside of TCP's), -EOPNOTSUPP (no TCP in the header), -ENOSPC (a segment is
 * larger than the buffer or than IP can say).
 */
int vb_frame_segment(const struct vb_lso *lso);

/* --- edits ------------------------------------------------------------------------------------ */

/*
 * In place. Each keeps the facts true by parsing again. -ENOSPC: no headroom or tailroom; -EINVAL:
 * the frame has not what is to be removed. Nothing has changed then.
 */
int vb_frame_push_vlan(struct vb_frame *f, uint16_t type, uint16_t tag);
int vb_frame_pop_vlan(struct vb_frame *f);

/* The values are those of mlx5dv_flow_action_packet_reformat_type. */
enum vb_reformat {
	VB_REFORMAT_L2_TUNNEL_TO_L2 =
		0, /* remove everything before the inner Ethernet header; no data */
	VB_REFORMAT_L2_TO_L2_TUNNEL = 1, /* put data in front of the frame */
	VB_REFORMAT_L3_TUNNEL_TO_L2 =
		2, /* put data, an Ethernet header, in place of everything before the inner IP */
	VB_REFORMAT_L2_TO_L3_TUNNEL = 3, /* put data in place of the Ethernet header and its tags */
};

/*
 * Data that was put in front gets its lengths from the frame as hardware sets them: IPv4 total
 * length and header checksum, IPv6 payload length, UDP length. UDP checksums, headers behind UDP
 * and EtherTypes stay as given. Data of L3_TUNNEL_TO_L2 has 14 or 18 bytes.
 */
int vb_frame_reformat(struct vb_frame *f, enum vb_reformat type, const uint8_t *data, uint32_t len);

/* Zeroes up to VB_FRAME_SHORTEST. */
int vb_frame_pad(struct vb_frame *f);
/* The FCS: CRC-32 of Ethernet, sent the low byte first. */
uint32_t vb_frame_fcs(const uint8_t *data, uint32_t len);
/*
 * The register of that CRC behind more bytes; it begins with ones, and the CRC is its complement at the end.
 */
uint32_t vb_frame_crc(uint32_t crc, const void *data, size_t len);

/* --- for people ------------------------------------------------------------------------------- */

enum { VB_FRAME_LINE = 512 }; /* characters that are enough for every line */

/*
 * What the frame is, as `tcpdump -e` would say it: addresses, type, length, what it carries. In memory
 * that nobody else writes. Returns the number of characters, without the 0 behind them.
 */
size_t vb_frame_line(const struct vb_frame *f, char *text, size_t size);

/* --- names for logs and tests ----------------------------------------------------------------- */

const char *vb_l4_name(uint8_t l4);
const char *vb_tunnel_name(uint8_t tunnel);
