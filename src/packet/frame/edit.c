// SPDX-License-Identifier: MIT
/*
 * Edits of a frame in private memory: tags, tunnels, padding. What is put in front goes into the
 * headroom.
 */
#include <errno.h>

#include "packet/frame/bytes.h"

enum { MACS = 12 };

/* Where the frame begins, by n bytes earlier (grows) or later. */
static void move_front(struct vb_frame *f, int n)
{
	f->data -= n;
	f->len += (uint32_t)n;
	f->headroom -= (uint32_t)n;
}

int vb_frame_push_vlan(struct vb_frame *f, uint16_t type, uint16_t tag)
{
	if (f->len < VB_FRAME_HEADER)
		return -EINVAL;
	if (f->headroom < VLAN_TAG)
		return -ENOSPC;
	move_front(f, VLAN_TAG);
	memmove(f->data, f->data + VLAN_TAG, MACS);
	write16(f->data + MACS, type);
	write16(f->data + MACS + 2, tag);
	vb_frame_parse(f);
	return 0;
}

int vb_frame_pop_vlan(struct vb_frame *f)
{
	if (!f->outer.vlans)
		return -EINVAL;
	memmove(f->data + VLAN_TAG, f->data, MACS);
	move_front(f, -VLAN_TAG);
	vb_frame_parse(f);
	return 0;
}

/* Lengths in the first n bytes of the frame, which were put there. */
static void fix_lengths(struct vb_frame *f, uint32_t n)
{
	const struct vb_layer *l = &f->outer;
	uint8_t *ip;

	vb_frame_parse_template(f);
	ip = f->data + l->l3;
	if (!l->ip || l->l3 + (uint32_t)l->l3_len > n)
		return;
	if (l->ip == 4) {
		write16(ip + 2, f->len - l->l3);
		vb_frame_fill_checksums(f, VB_CSUM_L3);
	} else {
		write16(ip + 4, f->len - l->l3 - IPV6_HEADER);
	}
	if (l->l4_type == VB_L4_UDP && l->payload <= n)
		write16(f->data + l->l4 + 4, f->len - l->l4);
}

/* Put data in place of the first n bytes. */
static int replace_front(struct vb_frame *f, uint32_t n, const uint8_t *data, uint32_t len)
{
	if (len > n + f->headroom)
		return -ENOSPC;
	move_front(f, (int)len - (int)n);
	if (len)
		memcpy(f->data, data, len);
	return 0;
}

static int encapsulate(struct vb_frame *f, uint32_t n, const uint8_t *data, uint32_t len)
{
	int err;

	if (len < VB_FRAME_HEADER)
		return -EINVAL;
	err = replace_front(f, n, data, len);
	if (err)
		return err;
	fix_lengths(f, len);
	vb_frame_parse(f);
	return 0;
}

static int decapsulate(struct vb_frame *f, uint32_t n, const uint8_t *data, uint32_t len)
{
	int err = replace_front(f, n, data, len);

	if (!err)
		vb_frame_parse(f);
	return err;
}

int vb_frame_reformat(struct vb_frame *f, enum vb_reformat type, const uint8_t *data, uint32_t len)
{
	if (f->len < VB_FRAME_HEADER || len > 0xffff)
		return -EINVAL;
	switch (type) {
	case VB_REFORMAT_L2_TO_L2_TUNNEL:
		return encapsulate(f, 0, data, len);
	case VB_REFORMAT_L2_TO_L3_TUNNEL:
		return encapsulate(f, VB_FRAME_HEADER + f->outer.vlans * VLAN_TAG, data, len);
	case VB_REFORMAT_L2_TUNNEL_TO_L2:
		return f->inner.has_l2 && !len ? decapsulate(f, f->inner.l2, NULL, 0) : -EINVAL;
	case VB_REFORMAT_L3_TUNNEL_TO_L2:
		if (!f->inner.ip || f->inner.has_l2 ||
		    (len != VB_FRAME_HEADER && len != VB_FRAME_HEADER + VLAN_TAG))
			return -EINVAL;
		return decapsulate(f, f->inner.l3, data, len);
	default:
		return -EINVAL;
	}
}

int vb_frame_pad(struct vb_frame *f)
{
	uint32_t n;

	if (f->len >= VB_FRAME_SHORTEST)
		return 0;
	n = VB_FRAME_SHORTEST - f->len;
	if (f->tailroom < n)
		return -ENOSPC;
	memset(f->data + f->len, 0, n);
	f->len += n;
	f->tailroom -= n;
	vb_frame_parse(f);
	return 0;
}
