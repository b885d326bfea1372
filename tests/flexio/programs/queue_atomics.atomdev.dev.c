// SPDX-License-Identifier: MIT
/* Work that the host lists. */
#include "queue_dev.h"

__dpa_rpc__ uint64_t run_work(struct work *w)
{
	return do_work(w);
}
