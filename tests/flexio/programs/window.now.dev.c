// SPDX-License-Identifier: MIT
/* The forms since 24.10, and what only they have: a second window. */
#define NAME(what)    now_##what
#define FIRST(entity) FLEXIO_DEV_WINDOW_ENTITY_##entity
#include "window.inc"

/* Copy words between two regions that are seen at the same time. */
__dpa_rpc__ uint64_t both(uint16_t window, uint32_t from_key, uint64_t from, uint32_t to_key,
			  uint64_t to, uint32_t words)
{
	flexio_uintptr_t source, target;

	if (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, window, from_key) ||
	    flexio_dev_multi_window_config(FLEXIO_DEV_WINDOW_ENTITY_1, window, to_key) ||
	    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, from, &source) ||
	    flexio_dev_multi_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_1, to, &target))
		return 1;
	for (uint32_t i = 0; i < words; i++)
		((uint64_t *)target)[i] = ((uint64_t *)source)[i];
	return flexio_dev_multi_window_mkey_config(FLEXIO_DEV_WINDOW_ENTITY_NUM, to_key) !=
	       FLEXIO_DEV_STATUS_FAILED;
}
