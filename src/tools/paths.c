// SPDX-License-Identifier: MIT
/*
 * Where things are: the installed tree, found from the executable, and the configuration file.
 */
#include "tools/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/env.h"

int tools_path(char path[PATH_MAX], const char *relative)
{
	char exe[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *slash;
	int n;

	if (len < 0)
		return -errno;
	exe[len] = '\0';
	for (int up = 0; up < 2; up++) { /* off with "/verbatim", off with "/bin" */
		slash = strrchr(exe, '/');
		if (!slash)
			return -ENOENT;
		*slash = '\0';
	}
	n = snprintf(path, PATH_MAX, "%s/%s", exe, relative);
	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int tools_use_config(const char *who, const char *file)
{
	struct vb_config config;
	char absolute[PATH_MAX], err[512];
	int ret;

	if (!file) {
		file = vb_getenv("VERBATIM_CONFIG");
		if (!file || !*file)
			return 0;
	}
	ret = vb_config_read(file, &config, err, sizeof(err));
	if (ret) {
		fprintf(stderr, "%s: %s\n", who, err);
		return ret;
	}
	if (!realpath(file, absolute) || setenv("VERBATIM_CONFIG", absolute, 1)) {
		ret = -errno;
		fprintf(stderr, "%s: %s: %s\n", who, file, strerror(-ret));
		return ret;
	}
	return 0;
}
