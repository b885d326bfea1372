// SPDX-License-Identifier: MIT
/*
 * Cuts a large TCP send into frames.
 *
 *	header | payload ...   -->   header 0 | mss bytes,  ...  header n | the rest
 *
 * Where the headers are is found once, in the given header; each copy is then changed at these
 * places.
 */
#include <errno.h>

#include "packet/frame/bytes.h"

enum { TCP_FIN = 0x01, TCP_PSH = 0x08, TCP_CWR = 0x80 };

struct cut {
	const struct vb_lso *lso;
	struct vb_frame header;     /* facts of the given header */
	const struct vb_layer *tcp; /* the level that has TCP */
	uint32_t count;             /* of segments */
};

static int find_tcp(struct cut *cut)
{
	const struct vb_lso *lso = cut->lso;
	struct vb_frame *h = &cut->header;
	int err = 0;

	h->data = (uint8_t *)(uintptr_t)lso->header; /* only read */
	h->len = lso->header_len;
	if (lso->swp)
		err = vb_frame_parse_swp(h, lso->swp);
	else
		vb_frame_parse_template(h);
	if (err)
		return err;
	cut->tcp = h->inner.l4_type == VB_L4_TCP ? &h->inner : &h->outer;
	if (cut->tcp->l4_type == VB_L4_TCP)
		return 0;
	return h->outer.bad_l4 || h->inner.bad_l4 ? -EINVAL : -EOPNOTSUPP;
}

static int frame_segment_check(struct cut *cut)
{
	const struct vb_lso *lso = cut->lso;
	uint32_t payload, longest;
	int err;

	if (!lso->mss || lso->mss > 0xffff || lso->header_len > lso->len ||
	    lso->header_len > 0xffff)
		return -EINVAL;
	err = find_tcp(cut);
	if (err)
		return err;
	payload = lso->len - lso->header_len;
	longest = lso->header_len + (payload < lso->mss ? payload : lso->mss);
	if (longest > lso->room || longest - cut->header.outer.l3 > 0xffff)
		return -ENOSPC;
	cut->count = payload ? (payload + lso->mss - 1) / lso->mss : 1;
	return 0;
}

/* Lengths and identification of one level; its IP header and all behind it are the segment's. */
static void set_lengths(uint8_t *data, uint32_t len, const struct vb_layer *l, uint32_t index)
{
	uint8_t *ip = data + l->l3;

	if (l->ip == 4) {
		write16(ip + 2, len - l->l3);
		write16(ip + 4, read16(ip + 4) + index);
	} else if (l->ip == 6) {
		write16(ip + 4, len - l->l3 - IPV6_HEADER);
	}
	if (l->l4_type == VB_L4_UDP)
		write16(data + l->l4 + 4, len - l->l4);
}

static void set_tcp(const struct cut *cut, uint8_t *data, uint32_t index)
{
	uint8_t *tcp = data + cut->tcp->l4;

	write32(tcp + 4, read32(tcp + 4) + index * cut->lso->mss);
	if (index + 1 < cut->count)
		tcp[13] &= (uint8_t) ~(TCP_FIN | TCP_PSH);
	if (index)
		tcp[13] &= (uint8_t)~TCP_CWR;
}

static int frame_segment_make_segment(const struct cut *cut, uint32_t index)
{
	const struct vb_lso *lso = cut->lso;
	uint32_t offset = index * lso->mss, left = lso->len - lso->header_len - offset;
	uint32_t n = left < lso->mss ? left : lso->mss;
	struct vb_frame f = { .data = lso->buffer, .len = lso->header_len + n };
	int err = 0;

	memcpy(f.data, lso->header, lso->header_len);
	if (n)
		err = lso->read(lso->arg, f.data + lso->header_len, offset, n);
	if (err)
		return err;
	set_lengths(f.data, f.len, &cut->header.outer, index);
	set_lengths(f.data, f.len, &cut->header.inner, index);
	if (cut->header.tunnel == VB_TUNNEL_GTPU)
		write16(f.data + cut->header.tunnel_at + 2, f.len - cut->header.tunnel_at - 8);
	set_tcp(cut, f.data, index);
	f.tailroom = lso->room - f.len;
	if (lso->swp)
		err = vb_frame_parse_swp(&f, lso->swp);
	else
		vb_frame_parse(&f);
	if (err)
		return err;
	vb_frame_fill_checksums(&f, lso->checksums);
	return lso->emit(lso->arg, &f);
}

int vb_frame_segment(const struct vb_lso *lso)
{
	struct cut cut = { .lso = lso };
	int err = frame_segment_check(&cut);

	for (uint32_t i = 0; !err && i < cut.count; i++)
		err = frame_segment_make_segment(&cut, i);
	return err ? err : (int)cut.count;
}
