// SPDX-License-Identifier: MIT
/*
 * Device memory: memory of the card that a program copies to and from, and registers. Here it is pages
 * of the process that others can map (host/shared/shared.h), counted against what the adapter has. A registration is zero-based and keeps the
 * memory from being freed.
 *
 * Addresses of operations (host/trap/trap.h) do not: what is left of them has no operation any more when
 * the memory goes. The operations are atomic to those of the card, which are the processor's, too.
 */
#include "objects.h"

#include "host/fault.h"
#include "host/shared/shared.h"
#include "host/trap/trap.h"

/* As hardware accesses it. */
enum { WORD = 4, LOG_ALIGN_MAX = 12 };

/* Bytes in use, by adapter. */
static _Atomic size_t used[VB_CONFIG_MAX_ADAPTERS];

static int dm_check_access(const struct api_dm *dm, uint64_t offset, size_t length)
{
	if (offset % WORD || length % WORD)
		return api_refuse(combination, "device memory is accessed in words of 4 bytes");
	if (offset > dm->length || length > dm->length - offset) {
		vb_refuse_range("dm_offset and length", offset + length, 0, dm->length);
		return api_fail(EFAULT);
	}
	return 0;
}

static int copy_to(struct ibv_dm *ibdm, uint64_t offset, const void *from, size_t length)
{
	struct api_dm *dm = to_dm(ibdm);
	int err;

	API_CALL_AS("ibv_memcpy_to_dm", .kind = "DM", .number = ibdm->handle);
	err = dm_check_access(dm, offset, length);
	if (!err)
		memcpy((char *)dm->buf + offset, from, length);
	return err;
}

static int copy_from(void *to, struct ibv_dm *ibdm, uint64_t offset, size_t length)
{
	struct api_dm *dm = to_dm(ibdm);
	int err;

	API_CALL_AS("ibv_memcpy_from_dm", .kind = "DM", .number = ibdm->handle);
	err = dm_check_access(dm, offset, length);
	if (!err)
		memcpy(to, (char *)dm->buf + offset, length);
	return err;
}

/* Counts the memory of a new object: 0 or a positive errno. */
static int dm_take(unsigned int adapter, size_t length, size_t most)
{
	size_t before = atomic_load_explicit(&used[adapter], memory_order_relaxed);

	do {
		if (length > most - before)
			return -vb_refuse_memory("so much device memory: see max_dm_size");
	} while (!atomic_compare_exchange_weak_explicit(&used[adapter], &before, before + length,
							memory_order_relaxed,
							memory_order_relaxed));
	return 0;
}

static void dm_give(struct api_dm *dm)
{
	vb_trap_end(dm);
	vb_shared_free(dm->buf, dm->length);
	atomic_fetch_sub_explicit(&used[context_adapter(dm->ibv.context)->index], dm->length,
				  memory_order_relaxed);
}

static int dm_check_attr(const struct ibv_alloc_dm_attr *attr)
{
	if (!attr)
		return -vb_refuse_null("attr");
	if (attr->comp_mask)
		return -vb_refuse_bits("comp_mask", attr->comp_mask);
	if (!attr->length)
		return -vb_refuse_value("length", 0);
	if (attr->log_align_req > LOG_ALIGN_MAX)
		return -vb_refuse_range("log_align_req", attr->log_align_req, 0, LOG_ALIGN_MAX);
	return 0;
}

struct ibv_dm *api_dm_alloc(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	static atomic_uint numbers;
	unsigned int adapter = context_adapter(context)->index;
	struct api_dm *dm;
	int err;

	API_CALL_AS("ibv_alloc_dm", API_DEVICE(context));
	err = dm_check_attr(attr);
	if (!err)
		err = dm_take(adapter, attr->length, provider_of(context)->max_dm);
	if (err)
		return api_null(err);
	dm = calloc(1, sizeof(*dm));
	if (dm)
		dm->buf = vb_shared_alloc(attr->length);
	if (!dm || !dm->buf) {
		free(dm);
		atomic_fetch_sub_explicit(&used[adapter], attr->length, memory_order_relaxed);
		return api_refuse_null(memory, "device memory");
	}
	dm->length = attr->length;
	dm->ibv = (struct ibv_dm){ .context = context,
				   .memcpy_to_dm = copy_to,
				   .memcpy_from_dm = copy_from,
				   .handle = atomic_fetch_add_explicit(&numbers, 1,
								       memory_order_relaxed) };
	api_track(context, API_KIND_DM, &dm->node);
	return &dm->ibv;
}

int api_dm_free(struct ibv_dm *ibdm)
{
	struct api_dm *dm = to_dm(ibdm);

	API_CALL_AS("ibv_free_dm", .kind = "DM", .number = ibdm ? ibdm->handle : 0);
	if (!ibdm)
		return api_refuse(null, "dm");
	/* Pairs with the release in api_dm_put(). */
	if (atomic_load_explicit(&dm->users, memory_order_acquire))
		return api_refuse(busy, "memory regions");
	api_untrack(ibdm->context, &dm->node);
	dm_give(dm);
	free(dm);
	return 0;
}

/* ibv_close_device(); -EBUSY: a memory region of it stays. */
int api_dm_abandon(struct vb_list *node)
{
	struct api_dm *dm = container_of(node, struct api_dm, node);

	if (atomic_load_explicit(&dm->users, memory_order_acquire))
		return -EBUSY;
	dm_give(dm);
	return 0;
}

void api_dm_put(struct api_dm *dm)
{
	atomic_fetch_sub_explicit(&dm->users, 1, memory_order_release);
}

/* --- addresses of operations ------------------------------------------------------------------ */

/* Where the operation takes place; NULL: it does not. The last page of the address is whole. */
static void *dm_place(const struct api_dm *dm, size_t offset, size_t size)
{
	if (offset > dm->length || size > dm->length - offset)
		return NULL;
	return (char *)dm->buf + offset;
}

static bool increment(void *arg, size_t offset, bool load, uint64_t *value, size_t size)
{
	void *at = dm_place(arg, offset, size);

	if (load || !at)
		return false;
	if (size == 1)
		__atomic_fetch_add((uint8_t *)at, (uint8_t)*value, __ATOMIC_SEQ_CST);
	else if (size == 2)
		__atomic_fetch_add((uint16_t *)at, (uint16_t)*value, __ATOMIC_SEQ_CST);
	else if (size == 4)
		__atomic_fetch_add((uint32_t *)at, (uint32_t)*value, __ATOMIC_SEQ_CST);
	else
		__atomic_fetch_add((uint64_t *)at, *value, __ATOMIC_SEQ_CST);
	return true;
}

/* To all ones, as rdma-core's own tests of the version that we speak want it. */
static bool test_and_set(void *arg, size_t offset, bool load, uint64_t *value, size_t size)
{
	void *at = dm_place(arg, offset, size);

	if (!load || !at)
		return false;
	if (size == 1)
		*value = __atomic_exchange_n((uint8_t *)at, UINT8_MAX, __ATOMIC_SEQ_CST);
	else if (size == 2)
		*value = __atomic_exchange_n((uint16_t *)at, UINT16_MAX, __ATOMIC_SEQ_CST);
	else if (size == 4)
		*value = __atomic_exchange_n((uint32_t *)at, UINT32_MAX, __ATOMIC_SEQ_CST);
	else
		*value = __atomic_exchange_n((uint64_t *)at, UINT64_MAX, __ATOMIC_SEQ_CST);
	return true;
}

void *api_dm_map_op(struct ibv_dm *ibdm, uint8_t op)
{
	static vb_trap_op *const ops[API_DM_OPS] = {
		[API_DM_INCREMENT] = increment, [API_DM_TEST_AND_SET] = test_and_set
	};

	return vb_trap_map_op(to_dm(ibdm)->length, ops[op], to_dm(ibdm));
}

/* --- registrations ---------------------------------------------------------------------------- */

struct ibv_mr *api_dm_reg(struct ibv_pd *pd, struct ibv_dm *ibdm, uint64_t offset, size_t length,
			  unsigned int access)
{
	struct api_dm *dm = to_dm(ibdm);
	struct ibv_mr *mr;

	API_CALL_AS("ibv_reg_dm_mr", API_DEVICE(pd ? pd->context : NULL));
	if (!pd || !ibdm)
		return api_refuse_null(null, "pd or dm");
	if (pd->context != ibdm->context)
		return api_refuse_null(other_context, "dm");
	if (!(access & IBV_ACCESS_ZERO_BASED))
		return api_refuse_null(combination, "device memory needs IBV_ACCESS_ZERO_BASED");
	if (offset > dm->length || length > dm->length - offset)
		return api_refuse_null(range, "dm_offset and length", offset + length, 0,
				       dm->length);
	mr = api_mr_reg_any(pd, (char *)dm->buf + offset, length, 0, access);
	if (!mr)
		return NULL;
	mr->addr = NULL; /* where it is is the card's to know */
	to_mr(mr)->dm = dm;
	atomic_fetch_add_explicit(&dm->users, 1, memory_order_relaxed);
	return mr;
}
