// SPDX-License-Identifier: MIT
/* Receive side scaling: the Toeplitz hash over fields of a frame. */
#include <infiniband/verbs.h>

#include "packet/frame/bytes.h"

/*
 * For every bit that is set, the 32 bits of the key that start at its place. The data has at most
 * 36 bytes: IPv6 addresses and ports, or addresses and SPI; so the window of the last byte ends
 * with the key.
 */
static uint32_t toeplitz(const uint8_t *key, const uint8_t *data, uint32_t len)
{
	uint32_t hash = 0;

	for (uint32_t i = 0; i < len; i++) {
		uint64_t window = (uint64_t)read32(key + i) << 8 | key[i + 4];

		for (unsigned int bit = 0; bit < 8; bit++)
			hash ^= (uint32_t)(window >> (8 - bit)) &
				-(uint32_t)(data[i] >> (7 - bit) & 1);
	}
	return hash;
}

struct input {
	uint8_t data[36];
	uint32_t len;
	uint8_t type;
};

/*
 * Source and destination, those of them that are chosen. Symmetric, where both are: (source OR destination), (source XOR
 * destination), as mlx5's rx_hash_symmetric has it.
 */
static void add_pair(struct input *in, const uint8_t *from, uint32_t size, bool src, bool dst,
		     bool symmetric)
{
	uint8_t pair[32];

	memcpy(pair, from, 2 * size);
	for (uint32_t i = 0; src && dst && symmetric && i < size; i++) {
		uint8_t a = pair[i], b = pair[size + i];

		pair[i] = a | b;
		pair[size + i] = a ^ b;
	}
	if (src) {
		memcpy(in->data + in->len, pair, size);
		in->len += size;
	}
	if (dst) {
		memcpy(in->data + in->len, pair + size, size);
		in->len += size;
	}
}

static void hash_add_ip(struct input *in, const struct vb_frame *f, const struct vb_layer *l,
			uint64_t fields, bool symmetric)
{
	bool v4 = l->ip == 4;
	bool src = fields & (v4 ? IBV_RX_HASH_SRC_IPV4 : IBV_RX_HASH_SRC_IPV6);
	bool dst = fields & (v4 ? IBV_RX_HASH_DST_IPV4 : IBV_RX_HASH_DST_IPV6);

	add_pair(in, f->data + l->l3 + (v4 ? 12 : 8), v4 ? 4 : 16, src, dst, symmetric);
	if (src)
		in->type |= v4 ? VB_HASH_SRC_IPV4 : VB_HASH_SRC_IPV6;
	if (dst)
		in->type |= v4 ? VB_HASH_DST_IPV4 : VB_HASH_DST_IPV6;
}

static void hash_add_l4(struct input *in, const struct vb_frame *f, const struct vb_layer *l,
			uint64_t fields, bool symmetric)
{
	bool tcp = l->l4_type == VB_L4_TCP;
	bool src = fields & (tcp ? IBV_RX_HASH_SRC_PORT_TCP : IBV_RX_HASH_SRC_PORT_UDP);
	bool dst = fields & (tcp ? IBV_RX_HASH_DST_PORT_TCP : IBV_RX_HASH_DST_PORT_UDP);

	if (l->l4_type == VB_L4_ESP || l->l4_type == VB_L4_AH) {
		if (!(fields & IBV_RX_HASH_IPSEC_SPI))
			return;
		memcpy(in->data + in->len, f->data + l->l4 + (l->l4_type == VB_L4_AH ? 4 : 0), 4);
		in->len += 4;
		in->type |= VB_HASH_SRC_SPI | VB_HASH_DST_SPI;
		return;
	}
	if (!tcp && l->l4_type != VB_L4_UDP)
		return;
	add_pair(in, f->data + l->l4, 2, src, dst, symmetric);
	if (src)
		in->type |= tcp ? VB_HASH_SRC_TCP : VB_HASH_SRC_UDP;
	if (dst)
		in->type |= tcp ? VB_HASH_DST_TCP : VB_HASH_DST_UDP;
}

uint32_t vb_frame_hash(const struct vb_frame *f, const uint8_t key[VB_FRAME_HASH_KEY],
		       uint64_t fields, bool symmetric, uint8_t *type)
{
	const struct vb_layer *l = fields & IBV_RX_HASH_INNER ? &f->inner : &f->outer;
	struct input in = { .len = 0 };

	if (l->ip) {
		hash_add_ip(&in, f, l, fields, symmetric);
		hash_add_l4(&in, f, l, fields, symmetric);
	}
	if (type)
		*type = in.type;
	return toeplitz(key, in.data, in.len);
}
