// SPDX-License-Identifier: MIT
/*
 * Checksums of IP, TCP and UDP. All that decides about an address is in the facts of
 * the frame; the bytes that are added up may change meanwhile, and then the sum is wrong, nothing
 * else.
 */
#include "packet/frame/bytes.h"

static uint16_t fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/*
 * Words are added in the byte order of the machine and the result is swapped: the sum does not care
 * (RFC 1071).
 */
uint16_t vb_frame_sum16(const uint8_t *data, uint32_t len, uint32_t before)
{
	uint64_t sum = 0;

	for (; len >= 8; len -= 8, data += 8) {
		struct bytes4 words[2];

		memcpy(words, data, sizeof(words));
		sum += (uint64_t)words[0].value + words[1].value;
	}
	for (; len > 1; len -= 2, data += 2)
		sum += ((const struct bytes2 *)data)->value;
	if (len)
		sum += htobe16((uint16_t)(*data << 8));
	return fold((uint64_t)be16toh(fold(sum)) + before);
}

static uint16_t ip_sum(const struct vb_frame *f, const struct vb_layer *l)
{
	return vb_frame_sum16(f->data + l->l3, l->l3_len, 0);
}

/* Over the pseudo header and all that IP carries: 0xffff where the checksum inside is right. */
static uint16_t l4_sum(const struct vb_frame *f, const struct vb_layer *l)
{
	const uint8_t *ip = f->data + l->l3;
	uint32_t sum, len;

	if (l->end < l->payload)
		return 0;
	len = l->end - l->l4;
	sum = l->protocol + (len & 0xffff) + (len >> 16);
	sum = l->ip == 4 ? vb_frame_sum16(ip + 12, 8, sum) : vb_frame_sum16(ip + 8, 32, sum);
	return vb_frame_sum16(f->data + l->l4, len, sum);
}

static bool has_l4_sum(const struct vb_layer *l)
{
	return l->ip && (l->l4_type == VB_L4_TCP || l->l4_type == VB_L4_UDP);
}

static bool l3_right(const struct vb_frame *f, const struct vb_layer *l)
{
	return l->ip && !l->bad_l3 && (l->ip == 6 || ip_sum(f, l) == 0xffff);
}

static bool l4_right(const struct vb_frame *f, const struct vb_layer *l)
{
	if (!has_l4_sum(l))
		return false;
	if (l->l4_type == VB_L4_UDP && l->ip == 4 && !read16(f->data + l->l4 + 6))
		return true; /* the sender made none */
	return l4_sum(f, l) == 0xffff;
}

uint8_t vb_frame_verify(const struct vb_frame *f, uint8_t which)
{
	unsigned int right = 0;

	if (which & VB_CSUM_L3 && l3_right(f, &f->outer))
		right |= VB_CSUM_L3;
	if (which & VB_CSUM_L4 && l4_right(f, &f->outer))
		right |= VB_CSUM_L4;
	if (which & VB_CSUM_INNER_L3 && l3_right(f, &f->inner))
		right |= VB_CSUM_INNER_L3;
	if (which & VB_CSUM_INNER_L4 && l4_right(f, &f->inner))
		right |= VB_CSUM_INNER_L4;
	return (uint8_t)right;
}

static void fill_l3(const struct vb_frame *f, const struct vb_layer *l)
{
	uint8_t *at = f->data + l->l3 + 10;

	if (l->ip != 4)
		return;
	write16(at, 0);
	write16(at, (uint16_t)~ip_sum(f, l));
}

static void fill_l4(const struct vb_frame *f, const struct vb_layer *l)
{
	bool tcp = l->l4_type == VB_L4_TCP;
	uint8_t *at = f->data + l->l4 + (tcp ? 16 : 6);
	uint16_t sum;

	if (!has_l4_sum(l))
		return;
	write16(at, 0);
	sum = (uint16_t)~l4_sum(f, l);
	write16(at, sum || tcp ? sum : 0xffff); /* 0 would say that there is none */
}

void vb_frame_fill_checksums(struct vb_frame *f, uint8_t which)
{
	if (which & VB_CSUM_INNER_L3)
		fill_l3(f, &f->inner);
	if (which & VB_CSUM_INNER_L4)
		fill_l4(f, &f->inner);
	if (which & VB_CSUM_L3)
		fill_l3(f, &f->outer);
	if (which & VB_CSUM_L4)
		fill_l4(f, &f->outer);
}

uint16_t vb_frame_sum(const struct vb_frame *f)
{
	if (f->len < VB_FRAME_HEADER)
		return 0;
	return vb_frame_sum16(f->data + VB_FRAME_HEADER, f->len - VB_FRAME_HEADER, 0);
}
