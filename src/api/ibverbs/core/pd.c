// SPDX-License-Identifier: MIT
/*
 * Protection domains, thread domains, parent domains, and the memory of rings.
 *
 * A parent domain is a handle that looks like a protection domain and adds two options: memory for
 * rings from the program's own allocator, and (with a thread domain) no locks. It holds references
 * to both domains.
 */
#include "objects.h"

#include <strings.h>
#include <unistd.h>
#include <infiniband/mlx5dv.h>

#include "base/env.h"
#include "card/memory/mr.h"

/* --- users of a handle ------------------------------------------------------------------------ */

void api_pd_get(struct ibv_pd *pd)
{
	atomic_fetch_add_explicit(&to_pd(pd)->users, 1, memory_order_relaxed);
}

void api_pd_put(struct ibv_pd *pd)
{
	atomic_fetch_sub_explicit(&to_pd(pd)->users, 1, memory_order_release);
}

/* One object of libflexio more, or less (-1), that works in the domain. */
void api_pd_lend(struct ibv_pd *ibpd, int by)
{
	struct api_pd *pd = to_pd(ibpd), *base = pd->base ? pd->base : pd;

	atomic_fetch_add_explicit(&base->lent, by, memory_order_release);
	atomic_fetch_add_explicit(&pd->users, by, memory_order_release);
}

bool api_pd_lent(struct ibv_pd *ibpd)
{
	const struct api_pd *pd = to_pd(ibpd), *base = pd->base ? pd->base : pd;

	return atomic_load_explicit(&base->lent, memory_order_acquire);
}

bool api_pd_single_threaded(struct ibv_pd *pd)
{
	return pd && to_pd(pd)->td;
}

/* --- ring memory ------------------------------------------------------------------------------ */

/*
 * The resource types that a parent domain's allocator is called with. Only mlx5dv.h defines any, so
 * mlx4 devices use them, too.
 */
static const uint64_t res_type[] = {
	[API_BUF_QP] = MLX5DV_RES_TYPE_QP,   [API_BUF_RWQ] = MLX5DV_RES_TYPE_RWQ,
	[API_BUF_SRQ] = MLX5DV_RES_TYPE_SRQ, [API_BUF_CQ] = MLX5DV_RES_TYPE_CQ,
	[API_BUF_DBR] = MLX5DV_RES_TYPE_DBR,
};

/*
 * The program's allocator has no alignment argument: it is asked for whole pages, and must return
 * memory that is aligned to a cache line.
 */
static int alloc_own(struct api_buf *buf, const struct api_allocators *own, size_t size,
		     enum api_buf_type type)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *ptr;

	size = (size + page - 1) & ~(page - 1);
	ptr = own->alloc(size, own->data);
	if (!ptr)
		return vb_refuse_memory("a ring: the program's own allocator gave none");
	if ((uintptr_t)ptr % 64) {
		own->free(ptr, own->data);
		return vb_refuse_combination(
			"the program's own allocator gave memory that is not aligned to 64 bytes");
	}
	memset(ptr, 0, size);
	*buf = (struct api_buf){ .ptr = ptr, .bytes = size, .own = *own, .type = type };
	return 0;
}

/*
 * What kind of pages a ring shall have: MLX_QP_ALLOC_TYPE and its relatives, as the real library
 * reads them. No hardware reads these pages, so they need not be contiguous: CONTIG gets ordinary
 * ones.
 */
enum page_type { PAGES_ANON, PAGES_PREFER_HUGE, PAGES_HUGE };

static enum page_type page_type(enum api_buf_type type)
{
	static const char *const variables[] = {
		[API_BUF_QP] = "MLX_QP_ALLOC_TYPE",
		[API_BUF_RWQ] = "MLX_RWQ_ALLOC_TYPE",
		[API_BUF_SRQ] = "MLX_SRQ_ALLOC_TYPE",
		[API_BUF_CQ] = "MLX_CQ_ALLOC_TYPE",
		[API_BUF_DBR] = NULL,
	};
	const char *value = variables[type] ? vb_getenv(variables[type]) : NULL;

	if (!value)
		return PAGES_ANON;
	if (!strcasecmp(value, "HUGE"))
		return PAGES_HUGE;
	if (!strcasecmp(value, "PREFER_HUGE") || !strcasecmp(value, "ALL"))
		return PAGES_PREFER_HUGE;
	return PAGES_ANON;
}

static int alloc_default(struct api_buf *buf, size_t size, size_t align, enum api_buf_type type)
{
	enum page_type pages = page_type(type);
	void *ptr = NULL;

	if (pages != PAGES_ANON)
		ptr = api_huge_alloc(size);
	if (ptr) {
		*buf = (struct api_buf){ .ptr = ptr, .bytes = size, .huge = size, .type = type };
	} else if (pages == PAGES_HUGE) {
		return vb_refuse_memory(
			"a ring: no huge page is free, and MLX_..._ALLOC_TYPE=HUGE wants one");
	} else {
		if (posix_memalign(&ptr, align, size))
			return vb_refuse_memory("a ring");
		*buf = (struct api_buf){ .ptr = ptr, .bytes = size, .type = type };
	}
	memset(ptr, 0, size);
	return 0;
}

/*
 * Zeroed memory for a ring or doorbell record. A parent domain's allocator is asked first; it may
 * refuse (NULL) or pass (IBV_ALLOCATOR_USE_DEFAULT). pd may be NULL. Then the context's own, if the
 * program gave it any.
 */
int api_buf_alloc(struct api_buf *buf, struct ibv_context *context, struct ibv_pd *pd, size_t size,
		  size_t align, enum api_buf_type type)
{
	const struct api_allocators *own = &to_context(context)->allocators;
	struct api_pd *from = pd ? to_pd(pd) : NULL;
	void *ptr = IBV_ALLOCATOR_USE_DEFAULT;

	/* As in the real libraries: a ring has its pages for itself, and is all of them. */
	size = (size + align - 1) & ~(align - 1);
	if (unlikely(own->alloc) && !(from && from->alloc))
		return alloc_own(buf, own, size, type);
	if (from && from->alloc)
		ptr = from->alloc(pd, from->alloc_context, size, align, res_type[type]);
	if (ptr == IBV_ALLOCATOR_USE_DEFAULT)
		return alloc_default(buf, size, align, type);
	if (!ptr)
		return vb_refuse_memory("a ring");
	memset(ptr, 0, size);
	*buf = (struct api_buf){ .ptr = ptr, .bytes = size, .from = from, .type = type };
	return 0;
}

void api_buf_free(struct api_buf *buf)
{
	if (!buf->ptr)
		return;
	if (buf->own.alloc)
		buf->own.free(buf->ptr, buf->own.data);
	else if (buf->huge)
		api_huge_free(buf->ptr, buf->huge);
	else if (buf->from)
		buf->from->free(&buf->from->ibv, buf->from->alloc_context, buf->ptr,
				res_type[buf->type]);
	else
		free(buf->ptr);
	buf->ptr = NULL;
}

/* --- protection domains ----------------------------------------------------------------------- */

static int count_pd(struct ibv_context *context)
{
	const struct api_provider *provider = provider_of(context);

	return provider->pd_added ? provider->pd_added(to_context(context)) : 0;
}

static void discount_pd(struct ibv_context *context)
{
	const struct api_provider *provider = provider_of(context);

	if (provider->pd_removed)
		provider->pd_removed(to_context(context));
}

VB_PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct api_pd *pd;
	int rc;

	API_CALL(API_DEVICE(context));
	if (!context)
		return api_refuse_null(null, "context");
	rc = count_pd(context);
	if (rc)
		return api_null(-rc);
	pd = calloc(1, sizeof(*pd));
	rc = pd ? vb_pd_alloc(to_context(context)->dev, &pd->card)
		: vb_refuse_memory("the protection domain");
	if (rc) {
		discount_pd(context);
		free(pd);
		return api_null(-rc);
	}
	pd->ibv.context = context;
	pd->ibv.handle = vb_pd_number(pd->card);
	api_track(context, API_KIND_PD, &pd->node);
	return &pd->ibv;
}

static int parent_domain_dealloc(struct api_pd *pd)
{
	api_pd_put(&pd->base->ibv);
	if (pd->td)
		atomic_fetch_sub_explicit(&pd->td->users, 1, memory_order_release);
	free(pd);
	return 0;
}

VB_PUBLIC int ibv_dealloc_pd(struct ibv_pd *ibpd)
{
	struct api_pd *pd;
	int rc;

	API_CALL(.kind = "PD", .number = ibpd ? ibpd->handle : 0);
	if (!ibpd)
		return api_refuse(null, "pd");
	pd = to_pd(ibpd);
	/* Pairs with the release in api_pd_put(). */
	if (atomic_load_explicit(&pd->users, memory_order_acquire))
		return api_refuse(busy,
				  "address handles, parent domains, queues or FlexIO objects");
	if (pd->base)
		return parent_domain_dealloc(pd);
	rc = vb_pd_dealloc(pd->card);
	if (rc)
		return api_status(rc);
	api_untrack(ibpd->context, &pd->node);
	discount_pd(ibpd->context);
	free(pd);
	return 0;
}

/* --- thread and parent domains ---------------------------------------------------------------- */

struct ibv_td *api_td_alloc(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct api_td *td;

	API_CALL_AS("ibv_alloc_td", API_DEVICE(context));
	if (!attr)
		return api_refuse_null(null, "init_attr");
	if (attr->comp_mask)
		return api_refuse_null(bits, "comp_mask", attr->comp_mask);
	td = calloc(1, sizeof(*td));
	if (!td)
		return api_refuse_null(memory, "the thread domain");
	td->ibv.context = context;
	return &td->ibv;
}

int api_td_dealloc(struct ibv_td *ibtd)
{
	struct api_td *td = (struct api_td *)ibtd;

	API_CALL_AS("ibv_dealloc_td", API_DEVICE(ibtd->context));
	/* Pairs with the release in parent_domain_dealloc(). */
	if (atomic_load_explicit(&td->users, memory_order_acquire))
		return api_refuse(busy, "parent domains");
	free(td);
	return 0;
}

struct ibv_pd *api_parent_domain_alloc(struct ibv_context *context,
				       struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known =
		IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct api_pd *pd;

	API_CALL_AS("ibv_alloc_parent_domain", API_DEVICE(context));
	if (!attr)
		return api_refuse_null(null, "attr");
	if (!attr->pd || attr->pd->context != context || (attr->td && attr->td->context != context))
		return api_refuse_null(other_context, "pd or td");
	if (to_pd(attr->pd)->base)
		return api_refuse_null(combination, "pd is a parent domain itself");
	if (attr->comp_mask & ~known)
		return api_refuse_null(bits, "comp_mask", attr->comp_mask & ~known);
	if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) &&
	    (!attr->alloc || !attr->free))
		return api_refuse_null(null, "alloc or free");
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return api_refuse_null(memory, "the parent domain");
	pd->ibv = *attr->pd;
	pd->base = to_pd(attr->pd);
	api_pd_get(attr->pd);
	if (attr->td) {
		pd->td = (struct api_td *)attr->td;
		atomic_fetch_add_explicit(&pd->td->users, 1, memory_order_relaxed);
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->alloc_context = attr->pd_context;
	return &pd->ibv;
}
