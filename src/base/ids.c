// SPDX-License-Identifier: MIT
/* Owns the bitmap allocator of ids.h: next fit, so that reuse is put off. */
#include "base/ids.h"

#include <errno.h>
#include <stdlib.h>

int64_t vb_ids_take(struct vb_ids *ids, uint32_t limit)
{
	int64_t id = -ENOMEM;

	pthread_mutex_lock(&ids->lock);
	if (!ids->used)
		ids->used = calloc((ids->count + 63) / 64, sizeof(uint64_t));
	if (!ids->used || ids->in_use >= limit)
		goto unlock;
	for (uint32_t n = 0; n < ids->count; n++) {
		uint32_t i = (ids->next + n) % ids->count;

		if (ids->used[i / 64] & 1ull << i % 64)
			continue;
		ids->used[i / 64] |= 1ull << i % 64;
		ids->next = (i + 1) % ids->count;
		ids->in_use++;
		id = ids->first + i;
		break;
	}
unlock:
	pthread_mutex_unlock(&ids->lock);
	return id;
}

void vb_ids_give(struct vb_ids *ids, uint32_t id)
{
	uint32_t i = id - ids->first;

	pthread_mutex_lock(&ids->lock);
	ids->used[i / 64] &= ~(1ull << i % 64);
	ids->in_use--;
	pthread_mutex_unlock(&ids->lock);
}
