/* SPDX-License-Identifier: MIT */
/*
 * Packets as bytes on a wire: RoCE v2 over IPv4 and IPv6 (IBTA annex A17), RoCE v1 (annex A16).
 *
 *	          +- v2 ----------------------+
 *	Ethernet  | IPv4 or IPv6   UDP 4791   |  BTH  headers   data   pad  ICRC
 *	[tag]     | v1: GRH, ethertype 0x8915 |
 *	|-------- head ----------------------------------------|      |- tail -|
 *
 * Nothing here allocates or remembers anything, and nothing knows a queue pair: which addresses a packet has,
 * how a message is cut into packets and what follows from one is the caller's.
 */
#pragma once

#include <stddef.h>

#include "packet/packet.h"

enum {
	VB_ROCE_DATA = 4096,     /* of a packet of the specification: the largest path MTU */
	VB_ROCE_HBL_DATA = 8192, /* of a packet of hbl */
	VB_ROCE_HEAD_MAX =
		144, /* bytes in front of the data, the Ethernet header with a tag included */
	VB_ROCE_TAIL_MAX = 8,  /* bytes behind it: pad and ICRC */
	VB_ROCE_PKEY = 0xffff, /* the default partition */
};

enum vb_roce_network { VB_ROCE_V1, VB_ROCE_IPV4, VB_ROCE_IPV6 };

/* What stands in a packet's headers beside what struct vb_pkt has. */
struct vb_roce_route {
	uint8_t dmac[6], smac[6];
	bool tagged;
	uint16_t vlan;            /* tagged: priority, DEI and number */
	uint8_t network;          /* enum vb_roce_network */
	union ibv_gid sgid, dgid; /* IPv4: the last four bytes count; read as ::ffff:a.b.c.d */
	uint8_t traffic_class;    /* DSCP and ECN */
	uint8_t hop_limit;
	uint32_t flow_label; /* GRH and IPv6: 20 bits */
	uint16_t sport;      /* v2: UDP source port */
	uint16_t ip_id;      /* IPv4: identification */
	bool ip_df;          /* IPv4: not to be fragmented; always so in what we send */
	/* BTH */
	uint16_t pkey;
	bool migreq;      /* set by hardware in every packet */
	bool fecn, becn;  /* a CNP always has BECN */
	uint8_t reserved; /* 7 bits behind AckReq: 0, others ignore them; covered by the ICRC */
};

/* The UDP source port of a flow, 0xc000 or more. Without a label both directions of two queue pairs have one. */
uint16_t vb_roce_source_port(uint32_t flow_label, uint32_t a, uint32_t b);

/* --- encoder ---------------------------------------------------------------------------------- */

struct vb_roce_bytes {
	uint8_t head[VB_ROCE_HEAD_MAX], tail[VB_ROCE_TAIL_MAX];
	uint8_t network, bth; /* where they begin in the head */
	uint8_t head_len, tail_len;
};

/*
 * The bytes around a packet's data. pkt->iov is read for the ICRC, so it must be memory that stays: of one that
 * may vanish or change, the caller has a copy. Fields that the packet's operation does not use are ignored.
 *
 * -EINVAL: there is no such packet on a wire (operation, position and transport do not go together; data with
 * one that has none, described or placed; a syndrome of ours; VB_TRANSPORT_V1 without a GRH, or the reverse).
 * -EMSGSIZE: more data than a packet can have.
 */
int vb_roce_encode(const struct vb_roce_route *route, const struct vb_pkt *pkt,
		   struct vb_roce_bytes *out);

/* Where a sender begins: with a frame, an IP packet (v1: GRH), or what a UDP socket is given. */
enum vb_roce_from { VB_ROCE_ETHERNET, VB_ROCE_NETWORK, VB_ROCE_BTH };

/* The whole packet as pieces; iov has room for two more than the packet's data. Returns their number. */
uint32_t vb_roce_gather(const struct vb_roce_bytes *bytes, const struct vb_pkt *pkt,
			enum vb_roce_from from, struct iovec *iov);

/* --- decoder ---------------------------------------------------------------------------------- */

/* Why bytes are not a packet, in the order of the checks. */
enum vb_roce_error {
	VB_ROCE_OK,
	VB_ROCE_SHORT,        /* they end inside of a header */
	VB_ROCE_ETHERTYPE,    /* neither IP nor RoCE v1, behind at most one tag */
	VB_ROCE_IP_VERSION,   /* other than the ethertype says */
	VB_ROCE_IP_OPTIONS,   /* an IPv4 header that is not 20 bytes long */
	VB_ROCE_IP_LENGTH,    /* more than there is */
	VB_ROCE_IP_CHECKSUM,  /* of the IPv4 header */
	VB_ROCE_FRAGMENT,     /* of a datagram */
	VB_ROCE_PROTOCOL,     /* not UDP; v1: not a BTH behind the GRH */
	VB_ROCE_UDP_PORT,     /* not to port 4791 */
	VB_ROCE_UDP_LENGTH,   /* not what IP carries */
	VB_ROCE_UDP_CHECKSUM, /* neither 0 nor right */
	VB_ROCE_BAD_ICRC,
	VB_ROCE_VERSION,  /* TVer of the BTH */
	VB_ROCE_OPCODE,   /* unknown, or not of this network */
	VB_ROCE_FOREIGN,  /* an opcode of ours that somebody else, or a later version, has sent */
	VB_ROCE_HEADERS,  /* end before the ICRC, or say what cannot be */
	VB_ROCE_PAD,      /* not to a multiple of four, or more of it than there is */
	VB_ROCE_NO_DATA,  /* data with an operation that has none */
	VB_ROCE_TOO_LONG, /* more data than a packet can have */
	VB_ROCE_ERRORS,
};

/* A packet that was read; pkt points into the struct and into the bytes. */
struct vb_roce_packet {
	struct vb_roce_route route;
	struct vb_pkt pkt;
	struct iovec iov;  /* its data, in one piece */
	struct vb_grh grh; /* UD */
};

/*
 * What came, checked; *out is set on success only. The bytes are the caller's alone: nobody writes them meanwhile.
 * A packet of a connection does not name its sender: sqpn is 0, but for UD and for what only our cards send.
 * Lengths that only the receiver's MTU makes wrong are not judged, as they are answered, not dropped.
 */
enum vb_roce_error vb_roce_decode_frame(const void *data, size_t len, struct vb_roce_packet *out);
/* From the IP header (network: which) or the GRH on; bytes behind its length are padding. */
enum vb_roce_error vb_roce_decode_network(enum vb_roce_network network, const void *data,
					  size_t len, struct vb_roce_packet *out);
/*
 * What a UDP socket has received: the BTH and the rest. The route tells what it cannot see and the ICRC covers:
 * network, addresses, source port, identification and DF.
 */
enum vb_roce_error vb_roce_decode_udp(const struct vb_roce_route *route, const void *data,
				      size_t len, struct vb_roce_packet *out);

/* In lower case, with dashes; for counters and logs. */
const char *vb_roce_error_name(enum vb_roce_error error);
