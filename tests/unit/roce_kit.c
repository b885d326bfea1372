// SPDX-License-Identifier: MIT
#include "roce_kit.h"

#include <string.h>

#include "base/util.h"

/* --- random packets --------------------------------------------------------------------------- */

struct source {
	const uint8_t *at;
	size_t left;
};

static void take(struct source *s, void *to, size_t len)
{
	size_t n = len < s->left ? len : s->left;

	memset(to, 0, len);
	if (n)
		memcpy(to, s->at, n);
	s->at += n;
	s->left -= n;
}

static uint64_t take64(struct source *s)
{
	uint64_t value;

	take(s, &value, sizeof(value));
	return value;
}

static uint32_t take32(struct source *s)
{
	uint32_t value;

	take(s, &value, sizeof(value));
	return value;
}

static uint8_t take8(struct source *s)
{
	uint8_t value;

	take(s, &value, sizeof(value));
	return value;
}

static void make_route(struct vb_roce_route *r, struct source *s)
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

	r->network = take8(s) % 3;
	take(s, r->dmac, 6);
	take(s, r->smac, 6);
	take(s, &r->sgid, 16);
	take(s, &r->dgid, 16);
	r->tagged = take8(s) & 1;
	r->vlan = r->tagged ? (uint16_t)take32(s) : 0;
	r->traffic_class = take8(s);
	r->hop_limit = take8(s);
	r->pkey = (uint16_t)take32(s);
	r->migreq = take8(s) & 1;
	r->fecn = take8(s) & 1;
	r->becn = take8(s) & 1;
	r->reserved = take8(s) & 0x7f;
	if (r->network != VB_ROCE_V1)
		r->sport = (uint16_t)take32(s);
	if (r->network != VB_ROCE_IPV4) {
		r->flow_label = take32(s) & 0xfffff;
		return;
	}
	r->ip_id = (uint16_t)take32(s);
	r->ip_df = take8(s) & 1;
	memcpy(&r->sgid, mapped, sizeof(mapped));
	memcpy(&r->dgid, mapped, sizeof(mapped));
}

void roce_case_set_len(struct roce_case *c, uint32_t len)
{
	uint32_t third = len / 3;

	c->iov[0] = (struct iovec){ c->data, third };
	c->iov[1] = (struct iovec){ c->data + third, 0 };
	c->iov[2] = (struct iovec){ c->data + third, len - third };
	c->pkt.iov = c->iov;
	c->pkt.iov_cnt = 3;
	c->pkt.len = len;
}

static bool is_ours(uint8_t transport)
{
	return transport == VB_TRANSPORT_HBL || transport == VB_TRANSPORT_DC ||
	       transport == IBV_QPT_RAW_PACKET;
}

void roce_case_make(struct roce_case *c, const uint8_t *bytes, size_t size)
{
	static const uint8_t transports[] = { IBV_QPT_RC,       IBV_QPT_UC,        IBV_QPT_UD,
					      IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,  VB_TRANSPORT_HBL,
					      VB_TRANSPORT_DC,  IBV_QPT_RAW_PACKET };
	static const uint32_t lengths[] = { 0,    1,    2,    3,    4,    5,    64,  255,
					    1024, 4093, 4096, 4097, 8192, 8193, 9216 };
	struct source s = { bytes, size };
	struct vb_pkt *p = &c->pkt;
	uint32_t len;

	memset(c, 0, offsetof(struct roce_case, data));
	p->op = take8(&s) % (VB_PKT_OPS + 1);
	if (p->op == VB_PKT_OPS)
		p->op = VB_PKT_CNP;
	p->transport = p->op == VB_PKT_CNP ? 0 : transports[take8(&s) % sizeof(transports)];
	p->flags = take8(&s) & 0x3f;
	len = take8(&s);
	p->syndrome = take8(&s) & 0x7f;
	make_route(&c->route, &s);
	if (c->route.network == VB_ROCE_V1 && !is_ours(p->transport))
		p->transport |= VB_TRANSPORT_V1;
	p->dqpn = take32(&s) & 0xffffff;
	p->sqpn = take32(&s) & 0xffffff;
	p->psn = take32(&s) & 0xffffff;
	p->imm = take32(&s);
	p->inv_rkey = take32(&s);
	p->msn = take32(&s) & 0xffffff;
	p->qkey = take32(&s);
	p->acked_psn = take32(&s);
	p->hbl_entry = take32(&s);
	p->xrc_srqn = take32(&s) & 0xffffff;
	p->va = take64(&s);
	p->rkey = take32(&s);
	p->dma_len = take32(&s);
	p->swap_add = take64(&s);
	p->compare = take64(&s);
	p->swap_mask = take64(&s);
	p->compare_mask = take64(&s);
	p->origin = (struct vb_frame_origin){
		.adapter = take64(&s), .cable = take64(&s), .ways = take32(&s), .ns = take64(&s)
	};
	take(&s, c->data, 64);
	for (uint32_t i = 64; i < sizeof(c->data); i++)
		c->data[i] = (uint8_t)(c->data[i - 64] + i);
	roce_case_set_len(c, len < 128 ? lengths[len % ARRAY_SIZE(lengths)] : len);
}

/* --- what becomes of them --------------------------------------------------------------------- */

size_t roce_case_encode(const struct roce_case *c, enum vb_roce_from from, uint8_t *out)
{
	struct vb_roce_bytes bytes;
	struct iovec iov[5];
	uint32_t n;
	size_t len = 0;

	if (vb_roce_encode(&c->route, &c->pkt, &bytes))
		return 0;
	n = vb_roce_gather(&bytes, &c->pkt, from, iov);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(out + len, iov[i].iov_base, iov[i].iov_len);
		len += iov[i].iov_len;
	}
	return len;
}

static void expect_hbl(const struct vb_pkt *in, struct vb_pkt *want)
{
	bool reth = in->op == VB_PKT_WRITE || in->op == VB_PKT_READ || in->op == VB_PKT_FETCH_ADD;

	if (in->op < VB_PKT_ACK) {
		want->hbl_tag = in->hbl_tag;
		want->hbl_entry = in->hbl_entry;
	}
	if (reth) {
		want->va = in->va;
		want->rkey = in->rkey;
		want->dma_len = in->dma_len;
	}
	if (in->op == VB_PKT_FETCH_ADD) {
		want->swap_add = in->swap_add;
		want->compare = in->compare;
	}
	if (in->op == VB_PKT_ATOMIC_RESPONSE)
		want->original = in->original;
}

/* Fields of what only our cards send. */
static void expect_ours(const struct vb_pkt *in, struct vb_pkt *want)
{
	want->sqpn = in->sqpn;
	want->flags |= in->flags & VB_PKT_ONLY;
	want->syndrome = in->op >= VB_PKT_ACK ? in->syndrome : 0;
	if (in->transport == VB_TRANSPORT_HBL)
		expect_hbl(in, want);
	if (in->transport == IBV_QPT_RAW_PACKET)
		want->origin = in->origin;
	if (in->transport == VB_TRANSPORT_DC) {
		want->dc_connection = in->dc_connection;
		if (in->op == VB_PKT_ATOMIC_RESPONSE) {
			want->dc_end = in->dc_end;
		} else {
			want->dc_key = in->dc_key;
			want->dc_version = in->dc_version & VB_TRANSPORT_V1;
		}
	}
	if (vb_pkt_is_masked(in)) {
		want->va = in->va;
		want->rkey = in->rkey;
		want->word = in->word;
		want->swap_add = in->swap_add;
		want->compare = in->compare;
		want->swap_mask = in->swap_mask;
		want->compare_mask = in->compare_mask;
	}
}

static void expect_standard(const struct vb_pkt *in, struct vb_pkt *want)
{
	bool many =
		in->op == VB_PKT_SEND || in->op == VB_PKT_WRITE || in->op == VB_PKT_READ_RESPONSE;
	bool first = in->flags & VB_PKT_FIRST;

	want->flags |= many ? in->flags & VB_PKT_ONLY : VB_PKT_ONLY;
	if (many && in->op != VB_PKT_READ_RESPONSE)
		want->flags |= in->flags & (VB_PKT_IMM | VB_PKT_INVALIDATE);
	if (want->flags & VB_PKT_IMM)
		want->imm = in->imm;
	if (want->flags & VB_PKT_INVALIDATE)
		want->inv_rkey = in->inv_rkey;
	if (vb_transport_type(in->transport) == IBV_QPT_UD) {
		want->sqpn = in->sqpn;
		want->qkey = in->qkey;
	}
	if (in->op == VB_PKT_READ || (in->op == VB_PKT_WRITE && first))
		want->dma_len = in->dma_len;
	if (in->op == VB_PKT_READ || (in->op == VB_PKT_WRITE && first) || vb_pkt_is_atomic(in)) {
		want->va = in->va;
		want->rkey = in->rkey;
	}
	if (vb_pkt_is_atomic(in))
		want->swap_add = in->swap_add;
	if (in->op == VB_PKT_COMPARE_SWAP)
		want->compare = in->compare;
	if (in->op == VB_PKT_ACK || in->op == VB_PKT_ATOMIC_RESPONSE ||
	    (in->op == VB_PKT_READ_RESPONSE && (in->flags & VB_PKT_ONLY))) {
		want->syndrome = in->syndrome;
		want->msn = in->msn;
	}
	if (in->op == VB_PKT_ATOMIC_RESPONSE)
		want->original = in->original;
}

void roce_case_expect(const struct roce_case *c, enum vb_roce_from from, struct roce_case *want)
{
	const struct vb_pkt *in = &c->pkt;
	struct vb_pkt *p = &want->pkt;
	uint8_t type = vb_transport_type(in->transport);

	want->route = c->route;
	if (from == VB_ROCE_NETWORK) {
		memset(want->route.dmac, 0, 6);
		memset(want->route.smac, 0, 6);
		want->route.tagged = false;
		want->route.vlan = 0;
	}
	if (in->op == VB_PKT_CNP)
		want->route.becn = true;
	*p = (struct vb_pkt){ .op = in->op,
			      .transport = in->transport,
			      .flags = in->flags & VB_PKT_SOLICITED,
			      .dqpn = in->dqpn,
			      .psn = in->psn,
			      .len = in->len,
			      .iov = c->iov,
			      .iov_cnt = 3 };
	if ((type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND) && in->op < VB_PKT_ACK)
		p->flags |= in->flags & VB_PKT_ACK_REQ;
	if (type == IBV_QPT_XRC_SEND)
		p->xrc_srqn = in->xrc_srqn;
	if (in->op == VB_PKT_CNP)
		p->flags |= VB_PKT_ONLY;
	else if (is_ours(type) || vb_pkt_is_masked(in))
		expect_ours(in, p);
	else
		expect_standard(in, p);
}

enum vb_roce_error roce_case_decode(const struct roce_case *c, enum vb_roce_from from,
				    const uint8_t *bytes, size_t len, struct vb_roce_packet *got)
{
	return from == VB_ROCE_ETHERNET  ? vb_roce_decode_frame(bytes, len, got)
	       : from == VB_ROCE_NETWORK ? vb_roce_decode_network(c->route.network, bytes, len, got)
					 : vb_roce_decode_udp(&c->route, bytes, len, got);
}

/* --- comparing -------------------------------------------------------------------------------- */

static const char *differ_in_data(const struct vb_pkt *want, const struct vb_pkt *got)
{
	const uint8_t *at = got->iov->iov_base;

	if (got->len != want->len || got->iov_cnt != 1 || got->iov->iov_len != want->len)
		return "len";
	for (uint32_t i = 0; i < want->iov_cnt && want->len; i++) {
		if (want->iov[i].iov_len && memcmp(at, want->iov[i].iov_base, want->iov[i].iov_len))
			return "data";
		at += want->iov[i].iov_len;
	}
	return NULL;
}

static const char *differ_in_grh(const struct vb_roce_route *r, const struct vb_roce_packet *got)
{
	const struct vb_grh *grh = got->pkt.grh;

	if (vb_transport_type(got->pkt.transport) != IBV_QPT_UD)
		return grh ? "a grh" : NULL;
	return grh != &got->grh || memcmp(&grh->sgid, &r->sgid, 16) ||
			       memcmp(&grh->dgid, &r->dgid, 16) ||
			       grh->traffic_class != r->traffic_class ||
			       grh->hop_limit != r->hop_limit
		       ? "grh"
		       : NULL;
}

#define SAME(a, b, field)             \
	do {                          \
		if ((a) != (b))       \
			return field; \
	} while (0)

static const char *differ_in_route(const struct vb_roce_route *want,
				   const struct vb_roce_route *got)
{
#define ROUTE(field) SAME(want->field, got->field, "route: " #field)
#define BYTES(field) SAME(memcmp(&want->field, &got->field, sizeof(want->field)), 0, #field)
	BYTES(dmac);
	BYTES(smac);
	BYTES(sgid);
	BYTES(dgid);
	ROUTE(tagged);
	ROUTE(vlan);
	ROUTE(network);
	ROUTE(traffic_class);
	ROUTE(hop_limit);
	ROUTE(flow_label);
	ROUTE(sport);
	ROUTE(ip_id);
	ROUTE(ip_df);
	ROUTE(pkey);
	ROUTE(migreq);
	ROUTE(fecn);
	ROUTE(becn);
	ROUTE(reserved);
	return NULL;
}

static const char *differ_in_fields(const struct vb_pkt *want, const struct vb_pkt *got)
{
#define PACKET(field) SAME(want->field, got->field, #field)
	PACKET(op);
	PACKET(syndrome);
	PACKET(transport);
	PACKET(flags);
	PACKET(dqpn);
	PACKET(sqpn);
	PACKET(psn);
	PACKET(imm);
	PACKET(inv_rkey);
	PACKET(msn);
	PACKET(qkey);
	PACKET(acked_psn);
	PACKET(hbl_entry);
	PACKET(xrc_srqn);
	PACKET(va);
	PACKET(rkey);
	PACKET(dma_len);
	PACKET(generation);
	PACKET(swap_add);
	PACKET(compare);
	PACKET(swap_mask);
	PACKET(compare_mask);
	PACKET(source.lkey);
	PACKET(origin.adapter);
	PACKET(origin.cable);
	PACKET(origin.ways);
	PACKET(origin.ns);
	return NULL;
}

const char *roce_differ(const struct vb_roce_route *route, const struct vb_pkt *pkt,
			const struct vb_roce_packet *got)
{
	const char *field = differ_in_route(route, &got->route);

	if (!field)
		field = differ_in_fields(pkt, &got->pkt);
	if (!field)
		field = differ_in_data(pkt, &got->pkt);
	return field ? field : differ_in_grh(route, got);
}
