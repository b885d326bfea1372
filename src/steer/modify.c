// SPDX-License-Identifier: MIT
/*
 * Header modification: SET, ADD and COPY of fields of a frame's outer headers and of registers.
 *
 * A field is some bits of 1, 2 or 4 bytes in a header, or a register. Whoever changes bytes that a
 * checksum is over adjusts it by the difference (RFC 1624), so that a wrong sum stays wrong; a UDP
 * checksum of 0 stays 0.
 */
#include <errno.h>

#include "steer/internal.h"

enum where { ETH, ETH_TYPE, ETH_TAG, ANY_IP, IPV4, IPV6, TCP, UDP, GTPU, REGISTER };

struct place {
	uint16_t id; /* as programs say it */
	uint8_t where, at, size, shift, width;
};

/* IP_DSCP and IP_ECN are those of IPv4; IPv6 has them two bits of a byte further, see locate(). */
static const struct place places[] = {
	{ 0x01, ETH, 6, 4, 0, 32 },      { 0x02, ETH, 10, 2, 0, 16 },
	{ 0x03, ETH_TYPE, 0, 2, 0, 16 }, { 0x04, ETH, 0, 4, 0, 32 },
	{ 0x05, ETH, 4, 2, 0, 16 },      { 0x06, ANY_IP, 1, 1, 2, 6 },
	{ 0x07, TCP, 12, 2, 0, 9 },      { 0x08, TCP, 0, 2, 0, 16 },
	{ 0x09, TCP, 2, 2, 0, 16 },      { 0x0a, IPV4, 8, 1, 0, 8 },
	{ 0x0b, UDP, 0, 2, 0, 16 },      { 0x0c, UDP, 2, 2, 0, 16 },
	{ 0x0d, IPV6, 8, 4, 0, 32 },     { 0x0e, IPV6, 12, 4, 0, 32 },
	{ 0x0f, IPV6, 16, 4, 0, 32 },    { 0x10, IPV6, 20, 4, 0, 32 },
	{ 0x11, IPV6, 24, 4, 0, 32 },    { 0x12, IPV6, 28, 4, 0, 32 },
	{ 0x13, IPV6, 32, 4, 0, 32 },    { 0x14, IPV6, 36, 4, 0, 32 },
	{ 0x15, IPV4, 12, 4, 0, 32 },    { 0x16, IPV4, 16, 4, 0, 32 },
	{ 0x17, ETH_TAG, 0, 2, 0, 12 },  { 0x47, IPV6, 7, 1, 0, 8 },
	{ 0x49, REGISTER, 0, 4, 0, 32 }, { 0x50, REGISTER, 1, 4, 0, 32 },
	{ 0x51, REGISTER, 2, 4, 0, 32 }, { 0x52, REGISTER, 3, 4, 0, 32 },
	{ 0x53, REGISTER, 4, 4, 0, 32 }, { 0x54, REGISTER, 5, 4, 0, 32 },
	{ 0x55, REGISTER, 6, 4, 0, 32 }, { 0x56, REGISTER, 7, 4, 0, 32 },
	{ 0x57, REGISTER, 8, 4, 0, 32 }, { 0x58, REGISTER, 9, 4, 0, 32 },
	{ 0x59, TCP, 4, 4, 0, 32 },      { 0x5b, TCP, 8, 4, 0, 32 },
	{ 0x6e, GTPU, 4, 4, 0, 32 },     { 0x73, ANY_IP, 1, 1, 0, 2 },
};

/* --- compile ---------------------------------------------------------------------------------- */

#define ROW(high)                                                                           \
	"modify field 0x" high "0", "modify field 0x" high "1", "modify field 0x" high "2", \
		"modify field 0x" high "3", "modify field 0x" high "4",                     \
		"modify field 0x" high "5", "modify field 0x" high "6",                     \
		"modify field 0x" high "7", "modify field 0x" high "8",                     \
		"modify field 0x" high "9", "modify field 0x" high "a",                     \
		"modify field 0x" high "b", "modify field 0x" high "c",                     \
		"modify field 0x" high "d", "modify field 0x" high "e", "modify field 0x" high "f"

/* Reasons are constant texts, so there is one for each number. */
static const char numbers[256][sizeof("modify field 0x00")] = {
	ROW("0"), ROW("1"), ROW("2"), ROW("3"), ROW("4"), ROW("5"), ROW("6"), ROW("7"),
	ROW("8"), ROW("9"), ROW("a"), ROW("b"), ROW("c"), ROW("d"), ROW("e"), ROW("f"),
};

static int modify_find_place(uint32_t id, uint8_t *place, const char **why)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (places[i].id == id) {
			*place = (uint8_t)i;
			return 0;
		}
	}
	*why = id < ARRAY_SIZE(numbers) ? numbers[id] : "modify field above 0xff";
	return -EOPNOTSUPP;
}

static int modify_check_range(uint8_t place, uint32_t offset, uint32_t length, const char **why)
{
	*why = "offset and length exceed the field";
	return offset + length <= places[place].width ? 0 : -EINVAL;
}

/*
 * The words of set_action_in and copy_action_in: type 4, field 12, reserved 3, offset 5, reserved
 * 3, length 5.
 */
int steer_modify_compile(const uint8_t *action, struct modify_op *op, const char **why)
{
	uint32_t first = read32(action), second = read32(action + 4);
	uint32_t length = first & 0x1f ? first & 0x1f : 32;
	int err;

	*op = (struct modify_op){ .type = (uint8_t)(first >> 28), .data = second };
	op->bits = (uint32_t)(0xffffffffull >> (32 - length));
	switch (op->type) {
	case MODIFY_SET:
		err = modify_find_place(first >> 16 & 0xfff, &op->field, why);
		op->offset = (uint8_t)(first >> 8 & 0x1f);
		return err ? err : modify_check_range(op->field, op->offset, length, why);
	case MODIFY_ADD:
		return modify_find_place(first >> 16 & 0xfff, &op->field, why);
	case MODIFY_COPY:
		err = modify_find_place(first >> 16 & 0xfff, &op->source, why);
		if (!err)
			err = modify_find_place(second >> 16 & 0xfff, &op->field, why);
		op->source_offset = (uint8_t)(first >> 8 & 0x1f);
		op->offset = (uint8_t)(second >> 8 & 0x1f);
		if (!err)
			err = modify_check_range(op->source, op->source_offset, length, why);
		return err ? err : modify_check_range(op->field, op->offset, length, why);
	default:
		*why = "the type of a header modification";
		return -EINVAL;
	}
}

bool steer_modify_is_meta(const struct vb_steer_action *action)
{
	for (uint32_t i = 0; i < action->count; i++)
		if (places[action->modify[i].field].where != REGISTER)
			return false;
	return true;
}

/* --- where fields are ------------------------------------------------------------------------- */

/*
 * The field's place in this frame: IPv6 has another one than IPv4. at: from the frame's begin. 0:
 * the frame has it not.
 */
static bool locate(const struct vb_frame *f, const struct place *place, struct place *found,
		   uint32_t *at)
{
	const struct vb_layer *l = &f->outer;

	*found = *place;
	switch (place->where) {
	case ETH:
		*at = place->at;
		return l->has_l2;
	case ETH_TYPE:
		*at = 12u + l->vlans * VLAN_TAG;
		return l->has_l2;
	case ETH_TAG:
		*at = VB_FRAME_HEADER;
		return l->vlans;
	case ANY_IP:
		*at = l->l3 + (uint32_t)place->at;
		if (l->ip == 6) { /* version 4, traffic class 8, flow label 4 */
			found->size = 2;
			found->shift = (uint8_t)(place->shift + 4);
			*at = l->l3;
		}
		return l->ip;
	case IPV4:
	case IPV6:
		*at = l->l3 + (uint32_t)place->at;
		return l->ip == (place->where == IPV4 ? 4 : 6);
	case GTPU:
		*at = f->tunnel_at + (uint32_t)place->at;
		return f->tunnel == VB_TUNNEL_GTPU;
	default:
		*at = l->l4 + (uint32_t)place->at;
		return l->l4_type == (place->where == TCP ? VB_L4_TCP : VB_L4_UDP);
	}
}

static uint32_t *modify_find_register(struct vb_steer_meta *meta, uint32_t index)
{
	return !index ? &meta->reg_a : index == 1 ? &meta->reg_b : &meta->reg_c[index - 2];
}

static uint32_t modify_load(const uint8_t *at, uint32_t size)
{
	return size == 1 ? read8(at) : size == 2 ? read16(at) : read32(at);
}

static uint32_t width_mask(const struct place *place)
{
	return (uint32_t)(0xffffffffull >> (32 - place->width));
}

static bool get(const struct vb_frame *f, struct vb_steer_meta *meta, const struct place *place,
		uint32_t *value)
{
	struct place found;
	uint32_t at;

	if (place->where == REGISTER) {
		*value = *modify_find_register(meta, place->at);
		return true;
	}
	if (!locate(f, place, &found, &at))
		return false;
	*value = modify_load(f->data + at, found.size) >> found.shift & width_mask(&found);
	return true;
}

/* --- sums ------------------------------------------------------------------------------------- */

/*
 * The sum of the 16-bit words that the bytes are in; bytes of a word are counted from the header's
 * begin, which is even.
 */
static uint32_t words_sum(uint32_t value, uint32_t size, uint32_t at)
{
	if (size == 1)
		return at & 1 ? value : value << 8;
	return (value & 0xffff) + (value >> 16);
}

static void adjust(uint8_t *sum_at, uint32_t before, uint32_t after)
{
	uint32_t sum = (uint16_t)~read16(sum_at);

	sum += after + (0xffff - before % 0xffff);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	write16(sum_at, (uint16_t)~sum);
}

static void adjust_l4(struct vb_frame *f, uint32_t before, uint32_t after)
{
	uint8_t *l4 = f->data + f->outer.l4;

	switch (f->outer.l4_type) {
	case VB_L4_TCP:
		adjust(l4 + 16, before, after);
		break;
	case VB_L4_UDP:
		if (!read16(l4 + 6))
			break;
		adjust(l4 + 6, before, after);
		if (!read16(l4 + 6))
			write16(l4 + 6, 0xffff);
		break;
	case VB_L4_ICMPV6:
		adjust(l4 + 2, before, after);
	}
}

static void adjust_sums(struct vb_frame *f, const struct place *place, uint32_t at, uint32_t before,
			uint32_t after)
{
	bool address = (place->where == IPV4 && place->at >= 12) ||
		       (place->where == IPV6 && place->at >= 8);

	before = words_sum(before, place->size, at);
	after = words_sum(after, place->size, at);
	if (f->outer.ip == 4 && (place->where == IPV4 || place->where == ANY_IP))
		adjust(f->data + f->outer.l3 + 10, before, after);
	if (address || place->where == TCP || place->where == UDP || place->where == GTPU)
		adjust_l4(f, before, after);
}

static void set(struct vb_frame *f, struct vb_steer_meta *meta, const struct place *place,
		uint32_t value)
{
	struct place found;
	uint32_t at, mask, before, after;
	uint8_t *byte;

	if (place->where == REGISTER) {
		*modify_find_register(meta, place->at) = value;
		return;
	}
	if (!locate(f, place, &found, &at))
		return;
	byte = f->data + at;
	mask = width_mask(&found) << found.shift;
	before = modify_load(byte, found.size);
	after = (before & ~mask) | (value << found.shift & mask);
	if (found.size == 1)
		*byte = (uint8_t)after;
	else if (found.size == 2)
		write16(byte, after);
	else
		write32(byte, after);
	adjust_sums(f, &found, place->at, before, after);
}

/* --- run -------------------------------------------------------------------------------------- */

void steer_modify_run(const struct modify_op *op, uint32_t count, struct vb_frame *f,
		      struct vb_steer_meta *meta)
{
	bool changed = false;

	for (uint32_t i = 0; i < count; i++, op++) {
		const struct place *place = &places[op->field];
		uint32_t value, source;

		if (!get(f, meta, place, &value))
			continue;
		switch (op->type) {
		case MODIFY_SET:
			value = (value & ~(op->bits << op->offset)) | (op->data & op->bits)
									      << op->offset;
			break;
		case MODIFY_ADD:
			value = (value + op->data) & width_mask(place);
			break;
		default:
			if (!get(f, meta, &places[op->source], &source))
				continue;
			source = source >> op->source_offset & op->bits;
			value = (value & ~(op->bits << op->offset)) | source << op->offset;
		}
		set(f, meta, place, value);
		changed |= place->where != REGISTER;
	}
	if (changed)
		vb_frame_parse(f);
}
