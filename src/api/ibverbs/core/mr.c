// SPDX-License-Identifier: MIT
/*
 * Memory regions. The card keeps key, bounds and rights; here are the checks that the kernel makes
 * before a card hears of a registration, and the fork helpers, which have nothing to do: no page is
 * pinned.
 */
#include "objects.h"

#include <unistd.h>

#include "card/memory/mr.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static int verbs_mr_check_access(unsigned int access)
{
	const unsigned int known =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

	if (access & ~known)
		return -vb_refuse_bits("access", access & ~known);
	if (access & IBV_ACCESS_ON_DEMAND)
		return -vb_refuse_unsupported("IBV_ACCESS_ON_DEMAND");
	/* IBA 10.6.3.1: remote write and atomic access need local write access. */
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE))
		return -vb_refuse_remote_without_local(access);
	return 0;
}

/* The rights that the card enforces; hints about pages and ordering end here. */
static unsigned int card_access(unsigned int access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC);
}

static int verbs_mr_check_range(const void *addr, size_t length)
{
	if (!length)
		return -vb_refuse_value("length", 0);
	return (uintptr_t)addr + length > (uintptr_t)addr ? 0 : -vb_refuse_wraps(addr, length);
}

struct ibv_mr *api_mr_reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned int access)
{
	int err = verbs_mr_check_range(addr, length);

	return err ? api_null(err) : api_mr_reg_any(pd, addr, length, iova, access);
}

struct ibv_mr *api_mr_reg_any(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			      unsigned int access)
{
	struct api_mr *mr;
	int err = verbs_mr_check_access(access);

	if (err)
		return api_null(err);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return api_refuse_null(memory, "the memory region");
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

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			     unsigned int access)
{
	if (!pd)
		return api_refuse_null(null, "pd");
	if (!provider_of(pd->context)->reg_mr)
		return api_refuse_null(unsupported, "memory regions of this adapter");
	return provider_of(pd->context)->reg_mr(pd, addr, length, iova, access);
}

VB_PUBLIC struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	API_CALL(API_DEVICE(pd ? pd->context : NULL));
	return reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

VB_PUBLIC struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, unsigned int access)
{
	const uint64_t page_mask = (uint64_t)sysconf(_SC_PAGESIZE) - 1;

	API_CALL_AS("ibv_reg_mr_iova", API_DEVICE(pd ? pd->context : NULL));
	/*
	 * Pages are translated whole, so the address in the page has to be the same on both sides.
	 */
	if (((uintptr_t)addr ^ iova) & page_mask)
		return api_refuse_null(combination, "addr and iova differ within the page");
	return reg_mr(pd, addr, length, iova, access);
}

VB_PUBLIC struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					 uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

static int rereg_refuse(int err)
{
	api_fail(err);
	return IBV_REREG_MR_ERR_INPUT;
}

VB_PUBLIC int ibv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr,
			   size_t length, int access)
{
	struct api_mr *mr = to_mr(ibmr);
	int rc;

	API_CALL(.kind = "MR", .number = ibmr ? ibmr->lkey : 0);
	if (!ibmr)
		return rereg_refuse(-vb_refuse_null("mr"));
	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		return rereg_refuse(-vb_refuse_bits("flags", (unsigned int)flags));
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != ibmr->context))
		return rereg_refuse(-vb_refuse_other_context("pd"));
	if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return rereg_refuse(
			-vb_refuse_combination("access without IBV_REREG_MR_CHANGE_ACCESS"));
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && mr->dm)
		return rereg_refuse(-vb_refuse_combination("device memory stays where it is"));
	rc = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? verbs_mr_check_range(addr, length) : 0;
	if (!rc)
		rc = verbs_mr_check_access((unsigned int)access);
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

	API_CALL(.kind = "MR", .number = ibmr ? ibmr->lkey : 0);
	if (!ibmr)
		return api_refuse(null, "mr");
	rc = vb_mr_dereg(mr->card);
	if (rc)
		return api_status(rc);
	api_untrack(ibmr->context, &mr->node);
	if (mr->dm)
		api_dm_put(mr->dm);
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
