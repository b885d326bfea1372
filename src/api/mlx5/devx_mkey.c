// SPDX-License-Identifier: MIT
/*
 * Memory keys by command (DEVX): over memory of a umem, over a list of pieces of other keys, or free
 * for work requests of a send queue to lay out (UMR).
 *
 *	MTT   | one stretch of a umem |
 *	KLM   | piece | longer piece | ... |        each of its own length
 *	KSM   | piece | piece | ... |               all of 1 << log_page_size bytes
 */
#include "mlx5.h"

#include "card/memory/mr.h"
#include "card/queue/umem.h"
#include "devx_bits.h"
#include "devx_table.h"

/* Bits of the command. */
enum {
	UMEM_VALID = 0x61,
	MKC = 0x80,
	UMEM_ID = 0x320,
	UMEM_OFFSET = 0x340,
	LIST_COUNT = 0x300, /* translations_octword_actual_size */
	LIST = 0x880,       /* pieces of 16 bytes each */
	CREATE_BYTES = 272,
	MKC_BYTES = 64,
	PIECE_BYTES = 16,
};

/* Bits of a piece. */
enum { PIECE_LENGTH = 0x0, PIECE_KEY = 0x20, PIECE_ADDRESS = 0x40 };

/* Bits of the memory key context. */
enum mkc {
	MKC_FREE = 0x1,
	MKC_MODE_4_2 = 0x3,
	MKC_UMR = 0x10,
	MKC_ATOMIC = 0x11,
	MKC_REMOTE_WRITE = 0x12,
	MKC_REMOTE_READ = 0x13,
	MKC_LOCAL_WRITE = 0x14,
	MKC_MODE_1_0 = 0x16,
	MKC_QPN = 0x20,
	MKC_VARIANT = 0x38,
	MKC_LENGTH64 = 0x60,
	MKC_BSF = 0x61,
	MKC_INVALIDATE = 0x67,
	MKC_PD = 0x68,
	MKC_START = 0x80,
	MKC_LENGTH = 0xc0,
	MKC_PIECES = 0x1a0,
	MKC_PIECE_LOG = 0x1db,
	MKC_CRYPTO = 0x1e3,
};

enum {
	MODE_MTT = 1,
	MODE_KLM = 2,
	MODE_KSM = 3,
	MOST_PIECE_LOG = 31,
	ANY_QP = 0xffffff,
	MOST_PIECES = 0xffff
};

struct mkey {
	struct vb_mr *card;
	struct vb_umem *umem; /* NULL: it is made of other keys */
	uint8_t context[MKC_BYTES];
};

static unsigned int devx_mkey_access_of(const uint8_t *mkc)
{
	return (get(mkc, MKC_LOCAL_WRITE, 1) ? IBV_ACCESS_LOCAL_WRITE : 0) |
	       (get(mkc, MKC_REMOTE_WRITE, 1) ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (get(mkc, MKC_REMOTE_READ, 1) ? IBV_ACCESS_REMOTE_READ : 0) |
	       (get(mkc, MKC_ATOMIC, 1) ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static uint32_t devx_mkey_mode_of(const uint8_t *mkc)
{
	return get(mkc, MKC_MODE_4_2, 3) << 2 | get(mkc, MKC_MODE_1_0, 2);
}

static bool devx_mkey_is_free(const uint8_t *mkc)
{
	return devx_mkey_mode_of(mkc) == MODE_KLM && get(mkc, MKC_FREE, 1) && get(mkc, MKC_UMR, 1);
}

/* A list of pieces is in the command. */
static bool is_list(const uint8_t *mkc)
{
	return (devx_mkey_mode_of(mkc) == MODE_KLM || devx_mkey_mode_of(mkc) == MODE_KSM) &&
	       !get(mkc, MKC_FREE, 1);
}

static int check_mode(const uint8_t *mkc)
{
	uint32_t mode = devx_mkey_mode_of(mkc);

	if (mode == MODE_MTT && !get(mkc, MKC_FREE, 1) && !get(mkc, MKC_UMR, 1))
		return 0;
	if (devx_mkey_is_free(mkc) || is_list(mkc))
		return 0;
	return vb_refuse_unsupported_value("free, umr_en and access_mode", mode);
}

static int check_list(struct devx_cmd *cmd, const uint8_t *mkc)
{
	uint32_t room = get(mkc, MKC_PIECES, 32), count = get(cmd->in, LIST_COUNT, 32);
	uint32_t log = get(mkc, MKC_PIECE_LOG, 5);

	if (!count || count > room)
		return vb_refuse_range("translations_octword_actual_size", count, 1, room);
	if (cmd->inlen < CREATE_BYTES + (uint64_t)PIECE_BYTES * count)
		return devx_refuse(cmd, DEVX_BAD_INP_LEN,
				   vb_refuse_combination("the command ends before its list"));
	if (devx_mkey_mode_of(mkc) == MODE_KSM && (!log || log > MOST_PIECE_LOG))
		return vb_refuse_range("log_page_size", log, 1, MOST_PIECE_LOG);
	return 0;
}

static int devx_mkey_check(struct devx_cmd *cmd, const uint8_t *mkc)
{
	uint32_t pieces = get(mkc, MKC_PIECES, 32), qpn = get(mkc, MKC_QPN, 24);
	int err = check_mode(mkc);

	if (err)
		return err;
	if (get(cmd->in, UMEM_VALID, 1) != (devx_mkey_mode_of(mkc) == MODE_MTT))
		return vb_refuse_value("mkey_umem_valid", get(cmd->in, UMEM_VALID, 1));
	if (devx_mkey_mode_of(mkc) != MODE_MTT && (!pieces || pieces > MOST_PIECES))
		return vb_refuse_range("translations_octword_size", pieces, 1, MOST_PIECES);
	if (get(mkc, MKC_LENGTH64, 1))
		return vb_refuse_unsupported("a key over all addresses (length64)");
	if (get(mkc, MKC_BSF, 1) || get(mkc, MKC_CRYPTO, 2))
		return vb_refuse_unsupported("signatures and encryption (bsf_en, crypto_en)");
	if (qpn && qpn != ANY_QP)
		return vb_refuse_unsupported("a key of one queue pair");
	if (!devx_mkey_is_free(mkc) && !get64(mkc, MKC_LENGTH))
		return vb_refuse_value("len", 0);
	return is_list(mkc) ? check_list(cmd, mkc) : 0;
}

static bool is_padding(const uint8_t *piece, uint32_t mode)
{
	return !get(piece, PIECE_KEY, 32) && !get64(piece, PIECE_ADDRESS) &&
	       (mode == MODE_KSM || !get(piece, PIECE_LENGTH, 32));
}

/*
 * The pieces of a list, which drivers pad to four with zeros. A piece without key or length in
 * between, or fewer bytes than the key has, would be holes.
 */
static int devx_mkey_read_list(const struct devx_cmd *cmd, const uint8_t *mkc,
			       struct vb_mkey_piece *piece, uint16_t *count)
{
	uint32_t all = get(cmd->in, LIST_COUNT, 32), log = get(mkc, MKC_PIECE_LOG, 5), n = 0;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < all; i++) {
		const uint8_t *at = cmd->in + LIST / 8 + (size_t)PIECE_BYTES * i;
		uint32_t len =
			devx_mkey_mode_of(mkc) == MODE_KSM ? 1u << log : get(at, PIECE_LENGTH, 32);

		if (is_padding(at, devx_mkey_mode_of(mkc)))
			continue;
		if (n != i || !get(at, PIECE_KEY, 32))
			return vb_refuse_value("mkey of a piece", 0);
		if (!len)
			return vb_refuse_value("byte_count of a piece", 0);
		piece[n++] = (struct vb_mkey_piece){ .addr = get64(at, PIECE_ADDRESS),
						     .key = get(at, PIECE_KEY, 32),
						     .len = len };
		bytes += len;
	}
	*count = (uint16_t)n;
	return get64(mkc, MKC_LENGTH) <= bytes
		       ? 0
		       : vb_refuse_range("len", get64(mkc, MKC_LENGTH), 1, bytes);
}

/*
 * Without a umem. Work requests may change it where umr_en is set: its low byte too, as UMR of the
 * manual has it; peers may invalidate it where en_rinval is set.
 */
static int devx_mkey_make_indirect(struct devx_cmd *cmd, struct vb_pd *pd, struct mkey *mkey)
{
	const uint8_t *mkc = mkey->context;
	struct vb_mkey_piece *piece = NULL;
	struct vb_mkey_attr attr = {
		.flags = (uint8_t)((get(mkc, MKC_UMR, 1) ? VB_MKEY_UPDATE_TAG : VB_MKEY_FIXED) |
				   (get(mkc, MKC_INVALIDATE, 1) ? VB_MKEY_REMOTE_INVALIDATE : 0)),
		.max_entries = (uint16_t)get(mkc, MKC_PIECES, 32),
		.has_variant = true,
		.variant = (uint8_t)get(mkc, MKC_VARIANT, 8),
		.start = get64(mkc, MKC_START),
		.length = get64(mkc, MKC_LENGTH),
		.access = devx_mkey_access_of(mkc),
	};
	int err = 0;

	if (is_list(mkc)) {
		attr.piece = piece = malloc(get(cmd->in, LIST_COUNT, 32) * sizeof(*piece));
		err = piece ? devx_mkey_read_list(cmd, mkc, piece, &attr.count)
			    : vb_refuse_memory("the list of pieces");
	}
	if (!err)
		err = vb_mkey_create(pd, &attr, &mkey->card);
	free(piece);
	return err;
}

static int devx_mkey_make(struct devx_cmd *cmd, struct mkey *mkey)
{
	const uint8_t *mkc = mkey->context;
	uint64_t length = get64(mkc, MKC_LENGTH), offset = get64(cmd->in, UMEM_OFFSET);
	uint32_t pdn = get(mkc, MKC_PD, 24), umem = get(cmd->in, UMEM_ID, 32);
	struct vb_pd *pd = vb_pd_get(cmd->dev, pdn);
	void *addr;
	int err;

	if (!pd)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("pd", pdn));
	if (devx_mkey_mode_of(mkc) != MODE_MTT) {
		err = devx_mkey_make_indirect(cmd, pd, mkey);
		vb_pd_put(pd);
		return err;
	}
	mkey->umem = vb_umem_get(cmd->dev, umem, offset, length, &addr);
	if (!mkey->umem) {
		vb_pd_put(pd);
		return devx_refuse(
			cmd, DEVX_BAD_RES,
			vb_refuse_value("mkey_umem_id, with offset and len inside of it,", umem));
	}
	/* A right of any kind to write is one that the umem must have. */
	if (devx_mkey_access_of(mkc) & ~(unsigned int)IBV_ACCESS_REMOTE_READ &&
	    !vb_umem_writable(mkey->umem))
		err = vb_refuse_combination("the key may be written, its umem may not");
	else
		err = vb_mr_reg_variant(pd, addr, length, get64(mkc, MKC_START),
					devx_mkey_access_of(mkc), (uint8_t)get(mkc, MKC_VARIANT, 8),
					&mkey->card);
	vb_pd_put(pd); /* the key holds it itself */
	if (err)
		vb_umem_put(mkey->umem);
	return err;
}

static int create_mkey(struct devx_cmd *cmd)
{
	int err = devx_mkey_check(cmd, cmd->in + MKC / 8);
	struct mkey *mkey;

	if (err)
		return err;
	mkey = calloc(1, sizeof(*mkey));
	if (!mkey)
		return vb_refuse_memory("the memory key");
	memcpy(mkey->context, cmd->in + MKC / 8, sizeof(mkey->context));
	err = devx_mkey_make(cmd, mkey);
	if (err) {
		free(mkey);
		return err;
	}
	cmd->obj->data = mkey;
	cmd->obj->number = vb_mr_key(mkey->card) >> 8;
	return 0;
}

static int query_mkey(struct devx_cmd *cmd)
{
	const struct mkey *mkey = cmd->obj->data;

	memcpy(cmd->out + MKC / 8, mkey->context, sizeof(mkey->context));
	return 0;
}

static int destroy_mkey(struct devx_cmd *cmd)
{
	struct mkey *mkey = cmd->obj->data;
	int err = vb_mr_dereg(mkey->card);

	if (err)
		return err;
	if (mkey->umem)
		vb_umem_put(mkey->umem);
	free(mkey);
	return 0;
}

const struct devx_row devx_mkey_rows[] = {
	{ "CREATE_MKEY", 0x200, 0, DEVX_CREATE, VB_DEVX_MKEY, CREATE_BYTES, 16, DEVX_NUMBER,
	  create_mkey },
	{ "QUERY_MKEY", 0x201, 0, DEVX_QUERY, VB_DEVX_MKEY, 16, CREATE_BYTES, DEVX_NUMBER,
	  query_mkey },
	{ "DESTROY_MKEY", 0x202, 0, DEVX_DESTROY, VB_DEVX_MKEY, 16, 16, DEVX_NUMBER, destroy_mkey },
	{ 0 },
};
