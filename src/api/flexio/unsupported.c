// SPDX-License-Identifier: MIT
/*
 * Functions that exist and do not work yet: core dumps. Each says so in the log and
 * fails as documented, so that programs link and notice. docs/deviations.md lists them.
 */
#include "internal.h"

#define not_yet(what) fail(what " are not supported yet")

flexio_status flexio_coredump_create(struct flexio_process *process, const char *outfile)
{
	API_CALL();
	return not_yet("core dumps");
}
