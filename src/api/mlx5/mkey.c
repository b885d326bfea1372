// SPDX-License-Identifier: MIT
/* Indirect memory keys, which work requests of mlx5dv_wr_*() configure. */
#include "mlx5.h"

#include "base/util.h"
#include "card/memory/mr.h"
#include "devx_table.h"

struct mkey {
	struct vb_verbs_mkey verbs; /* first: struct mlx5dv_mkey is its beginning */
	struct ibv_pd *pd;
	struct vb_mr *card;
	struct devx_left left;
};

_Static_assert(offsetof(struct vb_verbs_mkey, lkey) == offsetof(struct mlx5dv_mkey, lkey) &&
		       offsetof(struct vb_verbs_mkey, rkey) == offsetof(struct mlx5dv_mkey, rkey),
	       "a key as programs see it");

/* Layouts are padded to four entries, so there is room for as many. */
static uint16_t entries(uint16_t wanted)
{
	enum { MOST = 0xfffc };

	return wanted > MOST ? MOST : wanted < 4 ? 4 : (uint16_t)((wanted + 3) & ~3);
}

static int mlx5_mkey_check_flags(uint32_t flags)
{
	const uint32_t none =
		MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO;
	const uint32_t known = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
			       MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG |
			       MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;

	if (flags & none)
		return -vb_refuse_unsupported("signatures and crypto");
	if (flags & ~known)
		return -vb_refuse_bits("create_flags", flags & ~known);
	/* There are no other keys to make here. */
	return flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT
		       ? 0
		       : -vb_refuse_unsupported("a key that is not indirect");
}

/* It stays as long as a memory region would: see mr_abandon() of libibverbs. */
static int end_mkey(struct devx_left *left)
{
	struct mkey *mkey = container_of(left, struct mkey, left);

	if (vb_verbs_private(left->context)->objects->pd_lent(mkey->pd))
		return -EBUSY;
	return vb_mr_dereg(mkey->card);
}

VB_PUBLIC struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *attr)
{
	struct ibv_pd *pd = attr ? attr->pd : NULL;
	struct vb_mkey_attr card = { 0 };
	struct mkey *mkey;
	int err;

	API_CALL(API_DEVICE(pd ? pd->context : NULL));
	if (!pd)
		return api_refuse_null(null, "mkey_init_attr or pd");
	if (!mlx5dv_is_supported(pd->context->device))
		return api_refuse_null(not_mlx5);
	err = mlx5_mkey_check_flags(attr->create_flags);
	if (err)
		return api_null(err);
	mkey = calloc(1, sizeof(*mkey));
	if (!mkey)
		return api_refuse_null(memory, "the key");
	card.max_entries = entries(attr->max_entries);
	card.flags = (uint8_t)((attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG
					? VB_MKEY_UPDATE_TAG
					: 0) |
			       (attr->create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE
					? VB_MKEY_REMOTE_INVALIDATE
					: 0));
	err = -vb_mkey_create(vb_verbs_pd(pd), &card, &mkey->card);
	if (err) {
		free(mkey);
		return api_null(err);
	}
	mkey->left.end = end_mkey;
	if (!devx_left_add(pd->context, &mkey->left)) {
		vb_mr_dereg(mkey->card);
		free(mkey);
		return api_refuse_null(memory, "the key");
	}
	mkey->pd = pd;
	mkey->verbs.lkey = mkey->verbs.rkey = vb_mr_key(mkey->card);
	mkey->verbs.max_entries = attr->max_entries = card.max_entries;
	mkey->verbs.update_tag = card.flags & VB_MKEY_UPDATE_TAG;
	return (struct mlx5dv_mkey *)&mkey->verbs;
}

VB_PUBLIC int mlx5dv_destroy_mkey(struct mlx5dv_mkey *dv_mkey)
{
	struct mkey *mkey = (struct mkey *)dv_mkey;
	int err = 0;

	API_CALL(.kind = "mkey", .number = mkey ? mkey->verbs.lkey : 0);
	if (!mkey)
		return api_refuse(null, "mkey");
	if (!devx_left_remove(&mkey->left))
		err = -vb_mr_dereg(mkey->card);
	if (err) {
		devx_left_add(mkey->left.context, &mkey->left);
		return api_fail(err);
	}
	free(mkey);
	return 0;
}
