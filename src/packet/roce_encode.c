// SPDX-License-Identifier: MIT
/*
 * Owns the encoder: a packet and its addresses as the bytes of a frame. roce_decode.c is its inverse.
 */
#include "packet/roce.h"

#include <errno.h>

#include "base/util.h"
#include "packet/frame/bytes.h"
#include "packet/icrc.h"
#include "packet/network.h"
#include "packet/opcodes.h"

_Static_assert(
	VB_FRAME_HEADER + VLAN_TAG + VB_NETWORK_MAX + ROCE_BTH + 60 <= VB_ROCE_HEAD_MAX,
	"the longest: an atomic with masks on XRC has VETH, XRCETH, RETH, operands and masks");

/* As rdma_flow_label_to_udp_sport() has it. */
uint16_t vb_roce_source_port(uint32_t label, uint32_t a, uint32_t b)
{
	uint64_t mixed = (uint64_t)a * b;

	if (!label) {
		mixed ^= mixed >> 20;
		mixed ^= mixed >> 40;
		label = (uint32_t)mixed & 0xfffff;
	}
	return (uint16_t)(0xc000 | ((label & 0x3fff) ^ (label & 0xfc000) >> 14));
}

/* --- headers ---------------------------------------------------------------------------------- */

static uint8_t *roce_put24(uint8_t *at, uint8_t high, uint32_t value)
{
	write32(at, (uint32_t)high << 24 | (value & 0xffffff));
	return at + 4;
}

static uint8_t *roce_put32(uint8_t *at, uint32_t value)
{
	write32(at, value);
	return at + 4;
}

static uint8_t *roce_put64(uint8_t *at, uint64_t value)
{
	write32(at, (uint32_t)(value >> 32));
	write32(at + 4, (uint32_t)value);
	return at + 8;
}

static uint8_t *roce_put_ethernet(uint8_t *at, const struct vb_roce_route *r)
{
	memcpy(at, r->dmac, 6);
	memcpy(at + 6, r->smac, 6);
	at += 12;
	if (r->tagged) {
		write16(at, ETH_CVLAN);
		write16(at + 2, r->vlan);
		at += VLAN_TAG;
	}
	write16(at, r->network == VB_ROCE_V1     ? ETH_ROCE_V1
		    : r->network == VB_ROCE_IPV4 ? ETH_IPV4
						 : ETH_IPV6);
	return at + 2;
}

static uint8_t *roce_put_bth(uint8_t *at, const struct vb_roce_route *r, const struct vb_pkt *pkt,
			     uint8_t opcode, uint32_t pad)
{
	bool asks = (pkt->flags & VB_PKT_ACK_REQ) && vb_roce_may_ask(pkt);
	bool becn = r->becn || opcode == ROCE_OP_CNP;

	at[0] = opcode;
	at[1] = (uint8_t)((pkt->flags & VB_PKT_SOLICITED ? BTH_SOLICITED : 0) |
			  (r->migreq ? BTH_MIGRATED : 0) | pad << BTH_PAD_SHIFT);
	write16(at + 2, r->pkey);
	roce_put24(at + 4, (uint8_t)((r->fecn ? BTH_FECN : 0) | (becn ? BTH_BECN : 0)), pkt->dqpn);
	roce_put24(at + 8, (uint8_t)((asks ? BTH_ACK_REQUEST : 0) | (r->reserved & 0x7f)),
		   pkt->psn);
	return at + ROCE_BTH;
}

static uint8_t *roce_put_reth(uint8_t *at, const struct vb_pkt *pkt)
{
	at = roce_put64(at, pkt->va);
	at = roce_put32(at, pkt->rkey);
	return roce_put32(at, pkt->dma_len);
}

static uint8_t *roce_put_atomic(uint8_t *at, const struct vb_pkt *pkt)
{
	at = roce_put64(at, pkt->va);
	at = roce_put32(at, pkt->rkey);
	at = roce_put64(at, pkt->swap_add);
	return roce_put64(at, pkt->op == VB_PKT_COMPARE_SWAP ? pkt->compare : 0);
}

/* Those that only our cards send; see README.md. */
static uint8_t *roce_put_ours(uint8_t *at, uint32_t headers, const struct vb_pkt *pkt)
{
	if (headers & ROCE_HBLETH) {
		at = roce_put32(at, pkt->hbl_tag);
		at = roce_put32(at, pkt->hbl_entry);
	}
	if (headers & ROCE_RETH)
		at = roce_put_reth(at, pkt);
	if (headers & ROCE_OPERANDS) {
		at = roce_put64(at, pkt->swap_add);
		at = roce_put64(at, pkt->compare);
	}
	if (headers & ROCE_MASKS) {
		at = roce_put64(at, pkt->swap_mask);
		at = roce_put64(at, pkt->compare_mask);
	}
	if (headers & ROCE_DC_ASK) {
		at = roce_put64(at, pkt->dc_connection);
		at = roce_put64(at, pkt->dc_key);
		at = roce_put24(at, pkt->dc_version & VB_TRANSPORT_V1, 0);
	}
	if (headers & ROCE_DC_ANSWER) {
		at = roce_put64(at, pkt->dc_connection);
		at = roce_put32(at, pkt->dc_end);
	}
	if (headers & ROCE_FRAMEETH) {
		memcpy(at, &pkt->origin.adapter, 8);
		at = roce_put64(at + 8, pkt->origin.cable);
		at = roce_put32(at, pkt->origin.ways);
		at = roce_put64(at, pkt->origin.ns);
	}
	return at;
}

static uint8_t *roce_put_veth(uint8_t *at, const struct vb_pkt *pkt)
{
	at[0] = VETH_MARK;
	at[1] = VETH_VERSION;
	at[2] = pkt->op;
	at[3] = pkt->flags & VB_PKT_ONLY;
	return roce_put24(at + 4, pkt->op >= VB_PKT_ACK ? pkt->syndrome : 0, pkt->sqpn);
}

/* What the BTH's opcode announces, in the order of enum vb_roce_headers. */
static uint8_t *roce_put_headers(uint8_t *at, uint32_t headers, const struct vb_pkt *pkt)
{
	if (headers & ROCE_VETH)
		at = roce_put_veth(at, pkt);
	if (headers & ROCE_DETH) {
		at = roce_put32(at, pkt->qkey);
		at = roce_put24(at, 0, pkt->sqpn);
	}
	if (headers & ROCE_XRCETH)
		at = roce_put24(at, 0, pkt->xrc_srqn);
	if (headers & ROCE_VETH)
		at = roce_put_ours(at, headers, pkt);
	else if (headers & ROCE_RETH)
		at = roce_put_reth(at, pkt);
	if (headers & ROCE_ATOMIC)
		at = roce_put_atomic(at, pkt);
	if (headers & ROCE_AETH)
		at = roce_put24(at, pkt->syndrome, pkt->msn);
	if (headers & ROCE_ATOMIC_ACK)
		at = roce_put64(at, pkt->original);
	if (headers & ROCE_IMM) {
		memcpy(at, &pkt->imm, 4);
		at += 4;
	}
	if (headers & ROCE_IETH)
		at = roce_put32(at, pkt->inv_rkey);
	if (headers & ROCE_CNP_RESERVED) {
		memset(at, 0, 16);
		at += 16;
	}
	return at;
}

/* --- a packet --------------------------------------------------------------------------------- */

/* 0, -EINVAL or -EMSGSIZE: whether the form can carry the packet on this network. */
static int roce_check(const struct vb_roce_route *r, const struct vb_pkt *pkt,
		      const struct vb_roce_form *form)
{
	bool v1 = r->network == VB_ROCE_V1;

	if (form->opcode == ROCE_OP_CNP ? v1 || pkt->transport
					: vb_roce_has_version(pkt->transport) &&
						  v1 != !!(pkt->transport & VB_TRANSPORT_V1))
		return -EINVAL;
	if (pkt->flags & (VB_PKT_PLACED | VB_PKT_ACKS) || pkt->source.lkey)
		return -EINVAL;
	if (pkt->op >= VB_PKT_ACK && (pkt->syndrome & 0x80))
		return -EINVAL; /* a reserved bit on a wire: only ours have it */
	if (pkt->len && !(form->headers & ROCE_DATA))
		return -EINVAL;
	return pkt->len > vb_roce_data_max(pkt->transport) ? -EMSGSIZE : 0;
}

int vb_roce_encode(const struct vb_roce_route *route, const struct vb_pkt *pkt,
		   struct vb_roce_bytes *out)
{
	uint32_t pad = -pkt->len & 3, left = pkt->len, headers, crc;
	struct vb_roce_form form;
	uint8_t *network, *bth, *at;
	int ret;

	if (!vb_roce_form_of(pkt, &form))
		return -EINVAL;
	ret = roce_check(route, pkt, &form);
	if (ret)
		return ret;
	network = roce_put_ethernet(out->head, route);
	headers = vb_roce_headers_size(form.headers);
	bth = vb_network_put(network, route, ROCE_BTH + headers + pkt->len + pad + ROCE_ICRC);
	at = roce_put_bth(bth, route, pkt, form.opcode, pad);
	roce_put_headers(at, form.headers, pkt);
	crc = vb_frame_crc(vb_icrc_begin(route->network, network), at, headers);
	for (uint32_t i = 0; i < pkt->iov_cnt && pkt->len; i++) {
		if (pkt->iov[i].iov_len > left)
			return -EINVAL;
		crc = vb_frame_crc(crc, pkt->iov[i].iov_base, pkt->iov[i].iov_len);
		left -= (uint32_t)pkt->iov[i].iov_len;
	}
	if (left)
		return -EINVAL;
	memset(out->tail, 0, pad);
	vb_icrc_put(vb_frame_crc(crc, out->tail, pad), out->tail + pad);
	out->network = (uint8_t)(network - out->head);
	out->bth = (uint8_t)(bth - out->head);
	out->head_len = (uint8_t)(at + headers - out->head);
	out->tail_len = (uint8_t)(pad + ROCE_ICRC);
	return 0;
}

uint32_t vb_roce_gather(const struct vb_roce_bytes *bytes, const struct vb_pkt *pkt,
			enum vb_roce_from from, struct iovec *iov)
{
	uint8_t at = from == VB_ROCE_BTH       ? bytes->bth
		     : from == VB_ROCE_NETWORK ? bytes->network
					       : 0;
	uint32_t n = 0;

	iov[n++] = (struct iovec){ (void *)(bytes->head + at), bytes->head_len - at };
	for (uint32_t i = 0; i < pkt->iov_cnt && pkt->len; i++)
		iov[n++] = pkt->iov[i];
	iov[n++] = (struct iovec){ (void *)bytes->tail, bytes->tail_len };
	return n;
}
