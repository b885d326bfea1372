// SPDX-License-Identifier: MIT
/* Owns the bitmap allocator of ids.h: next fit, so that reuse is put off. */
#include "base/ids.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* Of n numbers from index i on. */
static bool ids_is_free(const struct vb_ids *ids, uint32_t i, uint32_t n)
{
	if ((ids->first + i) % n || n > ids->count - i)
		return false;
	for (; n; n--, i++)
		if (ids->used[i / 64] & 1ull << i % 64)
			return false;
	return true;
}

int64_t vb_ids_take_range(struct vb_ids *ids, uint32_t n, uint32_t limit)
{
	int64_t id = -ENOMEM;

	vb_lock(&ids->lock);
	if (!ids->used)
		ids->used = calloc((ids->count + 63) / 64, sizeof(uint64_t));
	if (!ids->used || ids->in_use >= limit || n > limit - ids->in_use)
		goto unlock;
	for (uint32_t tried = 0; tried < ids->count; tried++) {
		uint32_t i = (ids->next + tried) % ids->count;

		if (!ids_is_free(ids, i, n))
			continue;
		for (uint32_t k = i; k < i + n; k++)
			ids->used[k / 64] |= 1ull << k % 64;
		ids->next = (i + n) % ids->count;
		ids->in_use += n;
		id = ids->first + i;
		break;
	}
unlock:
	vb_unlock(&ids->lock);
	return id;
}

int64_t vb_ids_take(struct vb_ids *ids, uint32_t limit)
{
	return vb_ids_take_range(ids, 1, limit);
}

void vb_ids_give(struct vb_ids *ids, uint32_t id)
{
	uint32_t i = id - ids->first;

	vb_lock(&ids->lock);
	ids->used[i / 64] &= ~(1ull << i % 64);
	ids->in_use--;
	vb_unlock(&ids->lock);
}
