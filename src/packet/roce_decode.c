// SPDX-License-Identifier: MIT
/*
 * Owns the decoder: bytes as the packet and the addresses that roce_encode.c made them of. Whatever the bytes are, only
 * those that the lengths allow are looked at: the lengths of a frame, of IP and of UDP first, the ICRC next, and
 * what the BTH and the headers behind it say only after that.
 */
#include "packet/roce.h"

#include "base/util.h"
#include "packet/frame/bytes.h"
#include "packet/icrc.h"
#include "packet/network.h"
#include "packet/opcodes.h"

const char *vb_roce_error_name(enum vb_roce_error error)
{
	static const char *const names[VB_ROCE_ERRORS] = {
		[VB_ROCE_OK] = "ok",
		[VB_ROCE_SHORT] = "short",
		[VB_ROCE_ETHERTYPE] = "ethertype",
		[VB_ROCE_IP_VERSION] = "ip-version",
		[VB_ROCE_IP_OPTIONS] = "ip-options",
		[VB_ROCE_IP_LENGTH] = "ip-length",
		[VB_ROCE_IP_CHECKSUM] = "ip-checksum",
		[VB_ROCE_FRAGMENT] = "fragment",
		[VB_ROCE_PROTOCOL] = "protocol",
		[VB_ROCE_UDP_PORT] = "udp-port",
		[VB_ROCE_UDP_LENGTH] = "udp-length",
		[VB_ROCE_UDP_CHECKSUM] = "udp-checksum",
		[VB_ROCE_BAD_ICRC] = "icrc",
		[VB_ROCE_VERSION] = "version",
		[VB_ROCE_OPCODE] = "opcode",
		[VB_ROCE_FOREIGN] = "foreign",
		[VB_ROCE_HEADERS] = "headers",
		[VB_ROCE_PAD] = "pad",
		[VB_ROCE_NO_DATA] = "no-data",
		[VB_ROCE_TOO_LONG] = "too-long",
	};

	return (unsigned int)error < VB_ROCE_ERRORS ? names[error] : "unknown";
}

/* --- headers ---------------------------------------------------------------------------------- */

static uint32_t roce_get24(const uint8_t **at)
{
	uint32_t value = read32(*at) & 0xffffff;

	*at += 4;
	return value;
}

static uint32_t roce_get32(const uint8_t **at)
{
	uint32_t value = read32(*at);

	*at += 4;
	return value;
}

static uint64_t roce_get64(const uint8_t **at)
{
	uint64_t high = roce_get32(at);

	return high << 32 | roce_get32(at);
}

/* Those of roce_put_ours(), in its order. */
static const uint8_t *roce_get_ours(const uint8_t *at, uint32_t headers, struct vb_pkt *pkt)
{
	if (headers & ROCE_HBLETH) {
		pkt->hbl_tag = roce_get32(&at);
		pkt->hbl_entry = roce_get32(&at);
	}
	if (headers & ROCE_RETH) {
		pkt->va = roce_get64(&at);
		pkt->rkey = roce_get32(&at);
		pkt->dma_len = roce_get32(&at);
	}
	if (headers & ROCE_OPERANDS) {
		pkt->swap_add = roce_get64(&at);
		pkt->compare = roce_get64(&at);
	}
	if (headers & ROCE_MASKS) {
		pkt->swap_mask = roce_get64(&at);
		pkt->compare_mask = roce_get64(&at);
	}
	if (headers & ROCE_DC_ASK) {
		pkt->dc_connection = roce_get64(&at);
		pkt->dc_key = roce_get64(&at);
		pkt->dc_version = *at & VB_TRANSPORT_V1;
		at += 4;
	}
	if (headers & ROCE_DC_ANSWER) {
		pkt->dc_connection = roce_get64(&at);
		pkt->dc_end = roce_get32(&at);
	}
	if (headers & ROCE_FRAMEETH) {
		memcpy(&pkt->origin.adapter, at, 8);
		at += 8;
		pkt->origin.cable = roce_get64(&at);
		pkt->origin.ways = roce_get32(&at);
		pkt->origin.ns = roce_get64(&at);
	}
	return at;
}

/* Behind the VETH, whose fields are known; the bytes are there. */
static void roce_get_headers(const uint8_t *at, uint32_t headers, struct vb_pkt *pkt)
{
	if (headers & ROCE_DETH) {
		pkt->qkey = roce_get32(&at);
		pkt->sqpn = roce_get24(&at);
	}
	if (headers & ROCE_XRCETH)
		pkt->xrc_srqn = roce_get24(&at);
	at = roce_get_ours(at, headers, pkt);
	if (headers & ROCE_ATOMIC) {
		pkt->va = roce_get64(&at);
		pkt->rkey = roce_get32(&at);
		pkt->swap_add = roce_get64(&at);
		pkt->compare = roce_get64(&at);
		if (pkt->op != VB_PKT_COMPARE_SWAP)
			pkt->compare = 0; /* reserved */
	}
	if (headers & ROCE_AETH) {
		pkt->syndrome = *at;
		pkt->msn = roce_get24(&at);
	}
	if (headers & ROCE_ATOMIC_ACK)
		pkt->original = roce_get64(&at);
	if (headers & ROCE_IMM) {
		memcpy(&pkt->imm, at, 4);
		at += 4;
	}
	if (headers & ROCE_IETH)
		pkt->inv_rkey = roce_get32(&at);
}

/* What follows from a VETH: which packet it is, and its other headers. len: bytes from the VETH on. */
static enum vb_roce_error roce_get_veth(const uint8_t *at, size_t len, struct vb_pkt *pkt,
					struct vb_roce_form *form)
{
	uint8_t opcode = form->opcode;

	if (len < vb_roce_headers_size(ROCE_VETH))
		return VB_ROCE_HEADERS;
	if (at[0] != VETH_MARK || at[1] != VETH_VERSION)
		return VB_ROCE_FOREIGN;
	pkt->op = at[2];
	pkt->flags = at[3];
	/* An operation of another opcode, or of none. */
	if ((at[3] & ~VB_PKT_ONLY) || pkt->op >= VB_PKT_OPS || !vb_roce_form_of(pkt, form) ||
	    form->opcode != opcode)
		return VB_ROCE_HEADERS;
	if (pkt->op >= VB_PKT_ACK)
		pkt->syndrome = at[4];
	pkt->sqpn = read32(at + 4) & 0xffffff;
	return VB_ROCE_OK;
}

/* --- a packet --------------------------------------------------------------------------------- */

static void roce_get_bth(const uint8_t *bth, struct vb_roce_packet *p)
{
	struct vb_roce_route *r = &p->route;

	r->migreq = bth[1] & BTH_MIGRATED;
	r->pkey = read16(bth + 2);
	r->fecn = bth[4] & BTH_FECN;
	r->becn = bth[4] & BTH_BECN;
	r->reserved = bth[8] & 0x7f;
	p->pkt.dqpn = read32(bth + 4) & 0xffffff;
	p->pkt.psn = read32(bth + 8) & 0xffffff;
	if (bth[1] & BTH_SOLICITED)
		p->pkt.flags |= VB_PKT_SOLICITED;
	if ((bth[8] & BTH_ACK_REQUEST) && vb_roce_may_ask(&p->pkt))
		p->pkt.flags |= VB_PKT_ACK_REQ;
}

/* The pieces of len bytes behind the BTH, without the ICRC. */
static enum vb_roce_error roce_get_body(const uint8_t *at, size_t len, uint32_t pad,
					const struct vb_roce_form *form, struct vb_roce_packet *p)
{
	struct vb_pkt *pkt = &p->pkt;
	uint32_t headers = vb_roce_headers_size(form->headers);

	if (len < headers)
		return VB_ROCE_HEADERS;
	roce_get_headers(at + ((form->headers & ROCE_VETH) ? vb_roce_headers_size(ROCE_VETH) : 0),
			 form->headers, pkt);
	/* The bit is reserved, and syndromes that have it mean something else inside of a host. */
	if (pkt->syndrome & 0x80)
		return VB_ROCE_HEADERS;
	len -= headers;
	if (len % 4 || pad > len)
		return VB_ROCE_PAD;
	if (len && !(form->headers & ROCE_DATA))
		return VB_ROCE_NO_DATA;
	if (len - pad > vb_roce_data_max(pkt->transport))
		return VB_ROCE_TOO_LONG;
	p->iov = (struct iovec){ (void *)(at + headers), len - pad };
	pkt->len = (uint32_t)p->iov.iov_len;
	pkt->iov_cnt = 1;
	return VB_ROCE_OK;
}

/* header: the network's, with the BTH behind it; len: bytes at bth, which may be elsewhere. */
static enum vb_roce_error roce_decode(const uint8_t *header, const uint8_t *bth, size_t len,
				      struct vb_roce_packet *p)
{
	bool v1 = p->route.network == VB_ROCE_V1;
	enum vb_roce_error error;
	struct vb_roce_form form;
	uint32_t crc;

	if (len < ROCE_BTH + ROCE_ICRC)
		return VB_ROCE_SHORT;
	len -= ROCE_BTH + ROCE_ICRC;
	crc = vb_frame_crc(vb_icrc_begin(p->route.network, header), bth + ROCE_BTH, len);
	if (!vb_icrc_is(crc, bth + ROCE_BTH + len))
		return VB_ROCE_BAD_ICRC;
	if (bth[1] & BTH_VERSION)
		return VB_ROCE_VERSION;
	if (!vb_roce_form_read(bth[0], &p->pkt, &form) || (v1 && form.opcode == ROCE_OP_CNP))
		return VB_ROCE_OPCODE;
	if (form.headers & ROCE_VETH) {
		error = roce_get_veth(bth + ROCE_BTH, len, &p->pkt, &form);
		if (error)
			return error;
	}
	roce_get_bth(bth, p);
	error = roce_get_body(bth + ROCE_BTH, len, bth[1] >> BTH_PAD_SHIFT & 3, &form, p);
	if (v1 && vb_roce_has_version(p->pkt.transport))
		p->pkt.transport |= VB_TRANSPORT_V1;
	return error;
}

/* Whole and right: it becomes the caller's. */
static void roce_give(const struct vb_roce_packet *p, struct vb_roce_packet *out)
{
	*out = *p;
	out->pkt.iov = &out->iov;
	if (vb_transport_type(out->pkt.transport) != IBV_QPT_UD)
		return;
	out->grh = (struct vb_grh){ .sgid = p->route.sgid,
				    .dgid = p->route.dgid,
				    .traffic_class = p->route.traffic_class,
				    .hop_limit = p->route.hop_limit };
	out->pkt.grh = &out->grh;
}

static enum vb_roce_error roce_decode_network(const uint8_t *at, size_t len,
					      struct vb_roce_packet *p, struct vb_roce_packet *out)
{
	size_t bth_len;
	enum vb_roce_error error = vb_network_get(at, len, &p->route, &bth_len);

	if (!error)
		error = roce_decode(at, at + vb_network_size(p->route.network), bth_len, p);
	if (!error)
		roce_give(p, out);
	return error;
}

enum vb_roce_error vb_roce_decode_network(enum vb_roce_network network, const void *data,
					  size_t len, struct vb_roce_packet *out)
{
	struct vb_roce_packet p = { .route.network = (uint8_t)network };

	return roce_decode_network(data, len, &p, out);
}

enum vb_roce_error vb_roce_decode_frame(const void *data, size_t len, struct vb_roce_packet *out)
{
	struct vb_roce_packet p = { .route.tagged = false };
	size_t header = VB_FRAME_HEADER;
	const uint8_t *at = data;

	if (len < header)
		return VB_ROCE_SHORT;
	if (read16(at + 12) == ETH_CVLAN) {
		header += VLAN_TAG;
		if (len < header)
			return VB_ROCE_SHORT;
		p.route.tagged = true;
		p.route.vlan = read16(at + 14);
	}
	switch (read16(at + header - 2)) {
	case ETH_ROCE_V1:
		p.route.network = VB_ROCE_V1;
		break;
	case ETH_IPV4:
		p.route.network = VB_ROCE_IPV4;
		break;
	case ETH_IPV6:
		p.route.network = VB_ROCE_IPV6;
		break;
	default:
		return VB_ROCE_ETHERTYPE;
	}
	memcpy(p.route.dmac, at, 6);
	memcpy(p.route.smac, at + 6, 6);
	return roce_decode_network(at + header, len - header, &p, out);
}

enum vb_roce_error vb_roce_decode_udp(const struct vb_roce_route *route, const void *data,
				      size_t len, struct vb_roce_packet *out)
{
	struct vb_roce_packet p = { .route = *route };
	uint8_t header[VB_NETWORK_MAX + ROCE_BTH];
	enum vb_roce_error error;

	if (len < ROCE_BTH + ROCE_ICRC)
		return VB_ROCE_SHORT;
	if (len > 0xffff - VB_NETWORK_MAX)
		return VB_ROCE_TOO_LONG;
	memcpy(vb_network_put(header, route, (uint32_t)len), data, ROCE_BTH);
	error = roce_decode(header, data, len, &p);
	if (!error)
		roce_give(&p, out);
	return error;
}
