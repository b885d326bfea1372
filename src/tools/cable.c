// SPDX-License-Identifier: MIT
/*
 * verbatim cable: becomes PREFIX/libexec/verbatim/verbatim-cable. libpcap, with all that it loads, is
 * in that program alone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"

int cmd_cable(int argc, char **argv)
{
	char path[PATH_MAX];
	int ret = tools_path(path, "libexec/verbatim/verbatim-cable");

	if (ret) {
		tools_missing("verbatim cable", path, ret);
		return 1;
	}
	execv(path, argv);
	fprintf(stderr, "verbatim cable: %s: %s\n", path, strerror(errno));
	return 1;
}
