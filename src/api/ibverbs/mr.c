/* SPDX-License-Identifier: MIT */
/*
 * Memory regions. The card keeps key, bounds and rights; here are the checks that the kernel makes
 * before a card hears of a registration, and the fork helpers, which have nothing to do: no page is
 * pinned.
 */
#include "driver.h"

#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static int check_access(unsigned int access)
{
	const unsigned int known =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

	if (access & ~known)
		return EINVAL;
	if (access & IBV_ACCESS_ON_DEMAND)
		return EOPNOTSUPP;
	/* IBA 10.6.3.1: remote write and atomic access need local write access. */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return 0;
}

/* The rights that the card enforces; hints about pages and ordering end here. */
static unsigned int card_access(unsigned int access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC);
}

static bool range_is_valid(const void *addr, size_t length)
{
	return length && (uintptr_t)addr + length > (uintptr_t)addr;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			     unsigned int access)
{
	struct api_mr *mr;
	int err;

	if (!pd)
		return api_null(EINVAL);
	if (context_driver(pd->context))
		return api_null(EOPNOTSUPP);
	err = check_access(access);
	if (!err && !range_is_valid(addr, length))
		err = EINVAL;
	if (err)
		return api_null(err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return api_null(ENOMEM);
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	err = -vb_mr_reg(pd_card(pd), addr, length, iova, card_access(access), &mr->card);
	if (err) {
		free(mr);
		return api_null(err);
	}
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	mr->ibv.lkey = mr->ibv.rkey = vb_mr_key(mr->card);
	mr->ibv.handle = mr->ibv.lkey >> 8;
	api_track(pd->context, API_KIND_MR, &mr->node);
	return &mr->ibv;
}

VB_PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

VB_PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, unsigned int access)
{
	const uint64_t page_mask = (uint64_t)sysconf(_SC_PAGESIZE) - 1;

	/*
	 * Pages are translated whole, so the address in the page has to be the same on both sides.
	 */
	if (((uintptr_t)addr ^ iova) & page_mask)
		return api_null(EINVAL);
	return reg_mr(pd, addr, length, iova, access);
}

VB_PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					 uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

static int rereg_refuse(int err)
{
	errno = err;
	return IBV_REREG_MR_ERR_INPUT;
}

VB_PUBLIC int ibv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr,
			   size_t length, int access)
{
	struct api_mr *mr = to_mr(ibmr);
	int rc;

	if (!ibmr || !flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		return rereg_refuse(EINVAL);
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && !range_is_valid(addr, length))
		return rereg_refuse(EINVAL);
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != ibmr->context))
		return rereg_refuse(EINVAL);
	if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return rereg_refuse(EINVAL);
	rc = check_access((unsigned int)access);
	if (rc)
		return rereg_refuse(rc);
	rc = vb_mr_rereg(mr->card, flags, flags & IBV_REREG_MR_CHANGE_PD ? pd_card(pd) : NULL, addr,
			 length, (uintptr_t)addr, card_access((unsigned int)access));
	if (rc)
		return rereg_refuse(-rc); /* the card left the old region as it was */
	if (flags & IBV_REREG_MR_CHANGE_PD)
		ibmr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		ibmr->addr = addr;
		ibmr->length = length;
	}
	ibmr->lkey = ibmr->rkey = vb_mr_key(mr->card);
	return 0;
}

VB_PUBLIC int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct api_mr *mr = to_mr(ibmr);
	int rc;

	if (!ibmr)
		return api_fail(EINVAL);
	rc = vb_mr_dereg(mr->card);
	if (rc)
		return api_status(rc);
	api_untrack(ibmr->context, &mr->node);
	free(mr);
	return 0;
}

/* --- fork ------------------------------------------------------------------------------------- */

/*
 * The real library keeps registered pages out of children, because a pinned page that is copied on
 * write would leave the parent with the wrong one. The card of this process uses addresses, never
 * physical pages.
 */
VB_PUBLIC int ibv_fork_init(void)
{
	return 0;
}

VB_PUBLIC enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

VB_PUBLIC int ibv_dontfork_range(void *base, size_t size);
VB_PUBLIC int ibv_dofork_range(void *base, size_t size);

VB_PUBLIC int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

VB_PUBLIC int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}
