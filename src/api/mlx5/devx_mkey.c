// SPDX-License-Identifier: MIT
/*
 * Memory keys by command (DEVX): over memory of a umem, or free for work requests of a send queue to
 * lay out (UMR). A list of other keys in the command itself (KLM, KSM) is not taken.
 */
#include "mlx5.h"

#include "devx_bits.h"
#include "devx_table.h"

/* Bits of the command. */
enum {
	UMEM_VALID = 0x61,
	MKC = 0x80,
	UMEM_ID = 0x320,
	UMEM_OFFSET = 0x340,
	CREATE_BYTES = 272,
	MKC_BYTES = 64,
};

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
	MKC_CRYPTO = 0x1e3,
};

enum { MODE_MTT = 1, MODE_KLM = 2, ANY_QP = 0xffffff, MOST_PIECES = 0xffff };

struct mkey {
	struct vb_mr *card;
	struct vb_umem *umem; /* NULL: work requests lay it out */
	uint8_t context[MKC_BYTES];
};

static unsigned int access_of(const uint8_t *mkc)
{
	return (get(mkc, MKC_LOCAL_WRITE, 1) ? IBV_ACCESS_LOCAL_WRITE : 0) |
	       (get(mkc, MKC_REMOTE_WRITE, 1) ? IBV_ACCESS_REMOTE_WRITE : 0) |
	       (get(mkc, MKC_REMOTE_READ, 1) ? IBV_ACCESS_REMOTE_READ : 0) |
	       (get(mkc, MKC_ATOMIC, 1) ? IBV_ACCESS_REMOTE_ATOMIC : 0);
}

static uint32_t mode_of(const uint8_t *mkc)
{
	return get(mkc, MKC_MODE_4_2, 3) << 2 | get(mkc, MKC_MODE_1_0, 2);
}

static bool is_free(const uint8_t *mkc)
{
	return mode_of(mkc) == MODE_KLM && get(mkc, MKC_FREE, 1) && get(mkc, MKC_UMR, 1);
}

static int check(const struct devx_cmd *cmd, const uint8_t *mkc)
{
	uint32_t mode = mode_of(mkc), pieces = get(mkc, MKC_PIECES, 32);
	uint32_t qpn = get(mkc, MKC_QPN, 24);

	if (is_free(mkc) ? get(cmd->in, UMEM_VALID, 1) : !get(cmd->in, UMEM_VALID, 1))
		return vb_refuse_value("mkey_umem_valid", get(cmd->in, UMEM_VALID, 1));
	if (is_free(mkc) && (!pieces || pieces > MOST_PIECES))
		return vb_refuse_range("translations_octword_size", pieces, 1, MOST_PIECES);
	if (!is_free(mkc) && (mode != MODE_MTT || get(mkc, MKC_FREE, 1) || get(mkc, MKC_UMR, 1)))
		return vb_refuse_unsupported_value("free, umr_en and access_mode", mode);
	if (get(mkc, MKC_LENGTH64, 1))
		return vb_refuse_unsupported("a key over all addresses (length64)");
	if (get(mkc, MKC_BSF, 1) || get(mkc, MKC_CRYPTO, 2))
		return vb_refuse_unsupported("signatures and encryption (bsf_en, crypto_en)");
	if (qpn && qpn != ANY_QP)
		return vb_refuse_unsupported("a key of one queue pair");
	return is_free(mkc) || get64(mkc, MKC_LENGTH) ? 0 : vb_refuse_value("len", 0);
}

/* Its low byte may change, as UMR of the manual has it; peers may invalidate it where en_rinval is set. */
static int make_free(struct vb_pd *pd, struct mkey *mkey)
{
	const uint8_t *mkc = mkey->context;
	const struct vb_mkey_attr attr = {
		.flags = (uint8_t)(VB_MKEY_UPDATE_TAG |
				   (get(mkc, MKC_INVALIDATE, 1) ? VB_MKEY_REMOTE_INVALIDATE : 0)),
		.max_entries = (uint16_t)get(mkc, MKC_PIECES, 32),
		.has_variant = true,
		.variant = (uint8_t)get(mkc, MKC_VARIANT, 8),
	};

	return vb_mkey_create(pd, &attr, &mkey->card);
}

static int make(struct devx_cmd *cmd, struct mkey *mkey)
{
	const uint8_t *mkc = mkey->context;
	uint64_t length = get64(mkc, MKC_LENGTH), offset = get64(cmd->in, UMEM_OFFSET);
	uint32_t pdn = get(mkc, MKC_PD, 24), umem = get(cmd->in, UMEM_ID, 32);
	struct vb_pd *pd = vb_pd_get(cmd->dev, pdn);
	void *addr;
	int err;

	if (!pd)
		return devx_refuse(cmd, DEVX_BAD_RES, vb_refuse_value("pd", pdn));
	if (is_free(mkc)) {
		err = make_free(pd, mkey);
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
	if (access_of(mkc) & ~(unsigned int)IBV_ACCESS_REMOTE_READ && !vb_umem_writable(mkey->umem))
		err = vb_refuse_combination("the key may be written, its umem may not");
	else
		err = vb_mr_reg_variant(pd, addr, length, get64(mkc, MKC_START), access_of(mkc),
					(uint8_t)get(mkc, MKC_VARIANT, 8), &mkey->card);
	vb_pd_put(pd); /* the key holds it itself */
	if (err)
		vb_umem_put(mkey->umem);
	return err;
}

static int create_mkey(struct devx_cmd *cmd)
{
	int err = check(cmd, cmd->in + MKC / 8);
	struct mkey *mkey;

	if (err)
		return err;
	mkey = calloc(1, sizeof(*mkey));
	if (!mkey)
		return vb_refuse_memory("the memory key");
	memcpy(mkey->context, cmd->in + MKC / 8, sizeof(mkey->context));
	err = make(cmd, mkey);
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
