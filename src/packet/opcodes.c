// SPDX-License-Identifier: MIT
/*
 * Owns the opcodes of the BTH (IBTA table 38; XRC: annex A14; CNP: annex A17) and the headers of each.
 *
 *	bits 7 6 5          4 3 2 1 0
 *	     0 0 0  RC      operation and position: roce_rows[]
 *	     0 0 1  UC
 *	     0 1 1  UD
 *	     1 0 1  XRC
 *	     1 0 0          CNP is 0x81
 *	     1 1 0  ours    enum vb_roce_opcode
 */
#include "packet/opcodes.h"

#include "base/util.h"
#include "packet/roce.h"

enum {
	FAMILY_SHIFT = 5,
	FAMILY_XRC = 5,
	CODE_MASK = 0x1f,
	/* What the low bits of vb_pkt.flags say of an opcode. */
	FORM_FLAGS = VB_PKT_ONLY | VB_PKT_IMM | VB_PKT_INVALIDATE,
};
_Static_assert(FORM_FLAGS == 15, "an index of roce_codes[]");

static const struct {
	uint8_t op, flags;
	uint32_t headers;
} roce_rows[] = {
	[0x00] = { VB_PKT_SEND, VB_PKT_FIRST, ROCE_DATA },
	[0x01] = { VB_PKT_SEND, 0, ROCE_DATA },
	[0x02] = { VB_PKT_SEND, VB_PKT_LAST, ROCE_DATA },
	[0x03] = { VB_PKT_SEND, VB_PKT_LAST | VB_PKT_IMM, ROCE_IMM | ROCE_DATA },
	[0x04] = { VB_PKT_SEND, VB_PKT_ONLY, ROCE_DATA },
	[0x05] = { VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_IMM, ROCE_IMM | ROCE_DATA },
	[0x06] = { VB_PKT_WRITE, VB_PKT_FIRST, ROCE_RETH | ROCE_DATA },
	[0x07] = { VB_PKT_WRITE, 0, ROCE_DATA },
	[0x08] = { VB_PKT_WRITE, VB_PKT_LAST, ROCE_DATA },
	[0x09] = { VB_PKT_WRITE, VB_PKT_LAST | VB_PKT_IMM, ROCE_IMM | ROCE_DATA },
	[0x0a] = { VB_PKT_WRITE, VB_PKT_ONLY, ROCE_RETH | ROCE_DATA },
	[0x0b] = { VB_PKT_WRITE, VB_PKT_ONLY | VB_PKT_IMM, ROCE_RETH | ROCE_IMM | ROCE_DATA },
	[0x0c] = { VB_PKT_READ, VB_PKT_ONLY, ROCE_RETH },
	[0x0d] = { VB_PKT_READ_RESPONSE, VB_PKT_FIRST, ROCE_AETH | ROCE_DATA },
	[0x0e] = { VB_PKT_READ_RESPONSE, 0, ROCE_DATA },
	[0x0f] = { VB_PKT_READ_RESPONSE, VB_PKT_LAST, ROCE_AETH | ROCE_DATA },
	[0x10] = { VB_PKT_READ_RESPONSE, VB_PKT_ONLY, ROCE_AETH | ROCE_DATA },
	[0x11] = { VB_PKT_ACK, VB_PKT_ONLY, ROCE_AETH },
	[0x12] = { VB_PKT_ATOMIC_RESPONSE, VB_PKT_ONLY, ROCE_AETH | ROCE_ATOMIC_ACK },
	[0x13] = { VB_PKT_COMPARE_SWAP, VB_PKT_ONLY, ROCE_ATOMIC },
	[0x14] = { VB_PKT_FETCH_ADD, VB_PKT_ONLY, ROCE_ATOMIC },
	[0x16] = { VB_PKT_SEND, VB_PKT_LAST | VB_PKT_INVALIDATE, ROCE_IETH | ROCE_DATA },
	[0x17] = { VB_PKT_SEND, VB_PKT_ONLY | VB_PKT_INVALIDATE, ROCE_IETH | ROCE_DATA },
};

/* The other way round: one more than the row, by operation and flags. 0: there is no such packet. */
static const uint8_t roce_codes[VB_PKT_OPS][FORM_FLAGS + 1] = {
	[VB_PKT_SEND] = { [VB_PKT_FIRST] = 1 + 0x00,
			  [0] = 1 + 0x01,
			  [VB_PKT_LAST] = 1 + 0x02,
			  [VB_PKT_LAST | VB_PKT_IMM] = 1 + 0x03,
			  [VB_PKT_ONLY] = 1 + 0x04,
			  [VB_PKT_ONLY | VB_PKT_IMM] = 1 + 0x05,
			  [VB_PKT_LAST | VB_PKT_INVALIDATE] = 1 + 0x16,
			  [VB_PKT_ONLY | VB_PKT_INVALIDATE] = 1 + 0x17 },
	[VB_PKT_WRITE] = { [VB_PKT_FIRST] = 1 + 0x06,
			   [0] = 1 + 0x07,
			   [VB_PKT_LAST] = 1 + 0x08,
			   [VB_PKT_LAST | VB_PKT_IMM] = 1 + 0x09,
			   [VB_PKT_ONLY] = 1 + 0x0a,
			   [VB_PKT_ONLY | VB_PKT_IMM] = 1 + 0x0b },
	[VB_PKT_READ_RESPONSE] = { [VB_PKT_FIRST] = 1 + 0x0d,
				   [0] = 1 + 0x0e,
				   [VB_PKT_LAST] = 1 + 0x0f,
				   [VB_PKT_ONLY] = 1 + 0x10 },
	/* Those that are always one packet, whatever their flags say. */
	[VB_PKT_READ] = { [VB_PKT_ONLY] = 1 + 0x0c },
	[VB_PKT_ACK] = { [VB_PKT_ONLY] = 1 + 0x11 },
	[VB_PKT_ATOMIC_RESPONSE] = { [VB_PKT_ONLY] = 1 + 0x12 },
	[VB_PKT_COMPARE_SWAP] = { [VB_PKT_ONLY] = 1 + 0x13 },
	[VB_PKT_FETCH_ADD] = { [VB_PKT_ONLY] = 1 + 0x14 },
};

static const struct {
	uint32_t codes; /* rows that the family has; 0: there is no such family */
	uint32_t headers;
	uint8_t transport; /* of requests */
} roce_families[8] = {
	[0] = { 0x00dfffff, 0, IBV_QPT_RC },
	/* The specification reserves 0x36 and 0x37; mlx5 has SEND with invalidate on UC. */
	[1] = { 0x00c00fff, 0, IBV_QPT_UC },
	[3] = { 0x00000030, ROCE_DETH, IBV_QPT_UD },
	[FAMILY_XRC] = { 0x00dfffff, ROCE_XRCETH, IBV_QPT_XRC_SEND },
};

/* By bit of enum vb_roce_headers. */
static const uint8_t roce_sizes[ROCE_HEADERS] = { 8,  8,  4,  8, 16, 28, 16, 16,
						  20, 12, 28, 4, 8,  4,  4,  16 };

uint32_t vb_roce_headers_size(uint32_t headers)
{
	uint32_t size = 0;

	for (headers &= ~(uint32_t)ROCE_DATA; headers; headers &= headers - 1)
		size += roce_sizes[__builtin_ctz(headers)];
	return size;
}

uint32_t vb_roce_data_max(uint8_t transport)
{
	return transport == VB_TRANSPORT_HBL     ? VB_ROCE_HBL_DATA
	       : transport == IBV_QPT_RAW_PACKET ? VB_FRAME_MAX
						 : VB_ROCE_DATA;
}

bool vb_roce_has_version(uint8_t transport)
{
	return transport != VB_TRANSPORT_HBL && transport != VB_TRANSPORT_DC &&
	       transport != IBV_QPT_RAW_PACKET;
}

static bool roce_is_response(uint8_t op)
{
	return op >= VB_PKT_ACK;
}

bool vb_roce_may_ask(const struct vb_pkt *pkt)
{
	uint8_t type = vb_transport_type(pkt->transport);

	return (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND) && !roce_is_response(pkt->op);
}

/* --- ours ------------------------------------------------------------------------------------- */

static bool form_of_hbl(const struct vb_pkt *pkt, struct vb_roce_form *form)
{
	static const uint32_t headers[VB_PKT_OPS] = {
		[VB_PKT_SEND] = ROCE_DATA,
		[VB_PKT_WRITE] = ROCE_RETH | ROCE_DATA,
		[VB_PKT_READ] = ROCE_RETH,
		[VB_PKT_FETCH_ADD] = ROCE_RETH | ROCE_OPERANDS,
		[VB_PKT_ACK] = ROCE_VETH,
		[VB_PKT_READ_RESPONSE] = ROCE_DATA,
		[VB_PKT_ATOMIC_RESPONSE] = ROCE_ATOMIC_ACK,
	};

	*form = (struct vb_roce_form){ ROCE_OP_HBL, ROCE_VETH | headers[pkt->op] };
	if (!roce_is_response(pkt->op))
		form->headers |= ROCE_HBLETH;
	return headers[pkt->op];
}

static bool form_of_dc(const struct vb_pkt *pkt, struct vb_roce_form *form)
{
	bool asks = pkt->op == VB_PKT_COMPARE_SWAP;

	*form = (struct vb_roce_form){ ROCE_OP_DC,
				       ROCE_VETH | (asks ? ROCE_DC_ASK : ROCE_DC_ANSWER) };
	return asks || pkt->op == VB_PKT_ATOMIC_RESPONSE;
}

static bool form_of_masked(const struct vb_pkt *pkt, struct vb_roce_form *form)
{
	uint8_t type = vb_transport_type(pkt->transport);
	bool xrc = type == IBV_QPT_XRC_SEND;

	*form = (struct vb_roce_form){ xrc ? ROCE_OP_XRC_MASKED : ROCE_OP_MASKED,
				       ROCE_VETH | ROCE_RETH | ROCE_OPERANDS | ROCE_MASKS |
					       (xrc ? ROCE_XRCETH : 0) };
	return xrc || type == IBV_QPT_RC;
}

/* --- both ways -------------------------------------------------------------------------------- */

static int roce_family_of(uint8_t type, bool response)
{
	switch (type) {
	case IBV_QPT_RC:
		return 0;
	case IBV_QPT_UC:
		return 1;
	case IBV_QPT_UD:
		return 3;
	case IBV_QPT_XRC_SEND:
		return response ? -1 : FAMILY_XRC;
	case IBV_QPT_XRC_RECV:
		return response ? FAMILY_XRC : -1;
	default:
		return -1;
	}
}

static bool roce_has_position(uint8_t op)
{
	return op == VB_PKT_SEND || op == VB_PKT_WRITE || op == VB_PKT_READ_RESPONSE;
}

bool vb_roce_form_of(const struct vb_pkt *pkt, struct vb_roce_form *form)
{
	uint8_t type = vb_transport_type(pkt->transport), flags, code;
	int family;

	if (pkt->op == VB_PKT_CNP) {
		*form = (struct vb_roce_form){ ROCE_OP_CNP, ROCE_CNP_RESERVED };
		return true;
	}
	if (!pkt->op || pkt->op >= VB_PKT_OPS)
		return false;
	if (unlikely(pkt->transport == VB_TRANSPORT_HBL))
		return form_of_hbl(pkt, form);
	if (unlikely(pkt->transport == VB_TRANSPORT_DC))
		return form_of_dc(pkt, form);
	if (unlikely(pkt->transport == IBV_QPT_RAW_PACKET)) {
		*form = (struct vb_roce_form){ ROCE_OP_FRAME,
					       ROCE_VETH | ROCE_FRAMEETH | ROCE_DATA };
		return pkt->op == VB_PKT_SEND;
	}
	if (unlikely(vb_pkt_is_masked(pkt)))
		return form_of_masked(pkt, form);
	family = roce_family_of(type, roce_is_response(pkt->op));
	flags = roce_has_position(pkt->op) ? pkt->flags & FORM_FLAGS : VB_PKT_ONLY;
	code = roce_codes[pkt->op][flags];
	if (family < 0 || !code-- || !(roce_families[family].codes >> code & 1))
		return false;
	form->opcode = (uint8_t)(family << FAMILY_SHIFT | code);
	form->headers = roce_rows[code].headers | roce_families[family].headers;
	if (roce_is_response(pkt->op))
		form->headers &= ~(uint32_t)ROCE_XRCETH;
	return true;
}

static uint8_t roce_transport_of_ours(uint8_t opcode)
{
	switch (opcode) {
	case ROCE_OP_MASKED:
		return IBV_QPT_RC;
	case ROCE_OP_XRC_MASKED:
		return IBV_QPT_XRC_SEND;
	case ROCE_OP_DC:
		return VB_TRANSPORT_DC;
	case ROCE_OP_HBL:
		return VB_TRANSPORT_HBL;
	case ROCE_OP_FRAME:
		return IBV_QPT_RAW_PACKET;
	default:
		return 0;
	}
}

bool vb_roce_form_read(uint8_t opcode, struct vb_pkt *pkt, struct vb_roce_form *form)
{
	uint8_t family = opcode >> FAMILY_SHIFT, code = opcode & CODE_MASK;

	form->opcode = opcode;
	if (opcode == ROCE_OP_CNP) {
		pkt->op = VB_PKT_CNP;
		pkt->flags = VB_PKT_ONLY;
		return vb_roce_form_of(pkt, form);
	}
	if (opcode >= ROCE_OP_MASKED) {
		pkt->transport = roce_transport_of_ours(opcode);
		form->headers = ROCE_VETH;
		return pkt->transport;
	}
	if (!(roce_families[family].codes >> code & 1))
		return false;
	pkt->op = roce_rows[code].op;
	pkt->flags = roce_rows[code].flags;
	pkt->transport = roce_families[family].transport;
	form->headers = roce_rows[code].headers | roce_families[family].headers;
	if (family == FAMILY_XRC && roce_is_response(pkt->op)) {
		pkt->transport = IBV_QPT_XRC_RECV;
		form->headers &= ~(uint32_t)ROCE_XRCETH;
	}
	return true;
}
