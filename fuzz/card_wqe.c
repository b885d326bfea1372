// SPDX-License-Identifier: MIT
/*
 * Random bytes as send ring, receive ring and doorbells of mlx5 QPs (RC, UC, UD), through card.h: whatever a program
 * that writes its own queues does, the card never crashes and can be reset.
 *
 * The input is a little program:
 *
 *	byte 0        which QP, and which fields are mended to be valid (keys, addresses, own QP number)
 *	byte 1        receive doorbell
 *	byte 2        send doorbell
 *	byte 3        consumer index of the CQ, where it is to lie
 *	64 bytes each receive WQEs up to the ring's size, as many as byte 1 says, then send WQEs
 *
 * Mending matters: with random keys every request would stop at the first check.
 */
#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/unit/bare.h"

enum { HEADER = 4, MEND_KEYS = 4, MEND_ADDRESSES = 8, MEND_SEGMENTS = 16, LIE_CQ = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct bare bares[3];
static struct vb_mr *mkeys[3]; /* for work requests to lay out */

static void open_all(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (int i = 0; i < 3; i++) {
		const struct vb_mkey_attr attr = { .flags = VB_MKEY_UPDATE_TAG, .max_entries = 64 };

		if (bare_open(&bares[i], types[i]) || vb_mkey_create(bares[i].pd, &attr, &mkeys[i]))
			abort();
	}
}

/* An address inside of the memory, and a length that may just not fit. */
static void mend_data(struct bare *bare, struct mlx5_wqe_data_seg *seg, uint8_t how)
{
	if (how & MEND_KEYS)
		seg->lkey = htobe32(vb_mr_key(bare->mr));
	if (how & MEND_ADDRESSES) {
		seg->addr = htobe64((uintptr_t)bare->memory + be64toh(seg->addr) % BARE_MEMORY);
		seg->byte_count &= htobe32(0x8000ffff);
	}
}

/* Every 16-byte unit behind the control segment may be a remote address or a data segment: both are tried. */
static void mend_block(struct bare *bare, uint8_t *block, uint8_t how)
{
	struct mlx5_wqe_ctrl_seg *ctrl = (void *)block;

	ctrl->qpn_ds = htobe32(vb_qp_number(bare->qp) << 8 | (be32toh(ctrl->qpn_ds) & 0x3f));
	for (int unit = 1; unit < 4; unit++) {
		struct mlx5_wqe_raddr_seg *remote = (void *)(block + unit * 16);

		if (unit == 1 && (how & MEND_SEGMENTS)) {
			remote->rkey = htobe32(vb_mr_key(bare->mr));
			remote->raddr = htobe64((uintptr_t)bare->memory +
						be64toh(remote->raddr) % BARE_MEMORY);
		} else {
			mend_data(bare, (void *)remote, how);
		}
	}
	if (bare->type == IBV_QPT_UD && (how & MEND_SEGMENTS)) {
		struct mlx5_wqe_datagram_seg *to = (void *)(block + 16);

		to->av.dqp_dct = htobe32(vb_qp_number(bare->qp) | 1u << 31);
		to->av.key.qkey.qkey = htobe32(1);
		memcpy(to->av.rgid, &bare->gid, sizeof(bare->gid));
	}
}

/*
 * A configuration of a key: of ours, and what points to a list, in the third block, points into the memory.
 */
static void mend_umr(struct bare *bare, uint8_t *blocks, uint8_t how)
{
	struct mlx5_wqe_ctrl_seg *ctrl = (void *)blocks;

	if ((be32toh(ctrl->opmod_idx_opcode) & 0xff) != MLX5_OPCODE_UMR)
		return;
	ctrl->imm = htobe32(vb_mr_key(mkeys[bare - bares]));
	mend_data(bare, (void *)(blocks + 2 * 64), how);
}

/* The next 64 bytes of input, padded with zeroes at its end. */
static const uint8_t *take(const uint8_t **data, size_t *size, uint8_t *block)
{
	size_t n = *size < 64 ? *size : 64;

	memset(block, 0, 64);
	memcpy(block, *data, n);
	*data += n;
	*size -= n;
	return block;
}

static void fill_rings(struct bare *bare, const uint8_t *data, size_t size, uint8_t how,
		       unsigned int recvs)
{
	uint8_t block[64];

	for (unsigned int i = 0; i < recvs && i < BARE_RECVS && size; i++) {
		take(&data, &size, block);
		for (int unit = 0; unit < 4; unit++)
			mend_data(bare, (void *)(block + unit * 16), how);
		memcpy(bare->rq + i * 64, block, 64);
	}
	for (unsigned int i = 0; i < BARE_BLOCKS && size; i++) {
		take(&data, &size, block);
		if (how & (MEND_KEYS | MEND_ADDRESSES | MEND_SEGMENTS))
			mend_block(bare, block, how);
		memcpy(bare->sq + i * 64, block, 64);
	}
	for (unsigned int i = 0; i + 2 < BARE_BLOCKS && (how & MEND_SEGMENTS); i++)
		mend_umr(bare, bare->sq + i * 64, how);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bare *bare;
	uint32_t pi;

	if (size < HEADER)
		return 0;
	if (!bares[0].dev)
		open_all();
	bare = &bares[data[0] % 3];
	if (bare_connect(bare))
		abort();
	memset(bare->sq, 0, BARE_BLOCKS * 64);
	memset(bare->rq, 0, BARE_RECVS * 64);
	fill_rings(bare, data + HEADER, size - HEADER, data[0], data[1] % (BARE_RECVS + 1));
	bare->qp_dbr[0] = htobe32(data[1]);
	/* Twice: the second bell comes while work of the first may still be waiting. */
	pi = data[2] & 0x7f;
	vb_qp_ring_sq(bare->qp, pi / 2);
	if (data[0] & LIE_CQ)
		bare->cq_dbr[0] = htobe32(data[3] * 0x10101u);
	vb_qp_ring_sq(bare->qp, pi);
	vb_qp_ring_rq(bare->qp);
	vb_progress(bare->dev);
	while (bare_poll(bare))
		;
	return 0;
}
