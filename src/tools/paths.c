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
	static const char self[] = "/proc/self/exe";
	char exe[PATH_MAX];
	ssize_t len = readlink(self, exe, sizeof(exe) - 1);
	char *slash;
	int n;

	if (len < 0) {
		n = -errno;
		snprintf(path, PATH_MAX, "%s", self);
		return n;
	}
	exe[len] = '\0';
	snprintf(path, PATH_MAX, "%s", relative); /* for a message */
	for (int up = 0; up < 2; up++) {          /* off with "/verbatim", off with "/bin" */
		slash = strrchr(exe, '/');
		if (!slash)
			return -ENOENT;
		*slash = '\0';
	}
	n = snprintf(exe + strlen(exe), sizeof(exe) - strlen(exe), "/%s", relative);
	if (n < 0 || strlen(exe) == sizeof(exe) - 1)
		return -ENAMETOOLONG;
	memcpy(path, exe, strlen(exe) + 1);
	return 0;
}

void tools_missing(const char *who, const char *path, int err)
{
	fprintf(stderr, "%s: %s: %s; is %s?\n", who, path, strerror(-err),
		strncmp(path, "/proc/", 6) ? "the installation complete" : "/proc mounted");
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
	if (!realpath(file, absolute) || setenv("VERBATIM_CONFIG", absolute, 1) ||
	    (config.huge_strict && setenv("VERBATIM_HUGE", "strict", 1))) {
		ret = -errno;
		fprintf(stderr, "%s: %s: %s\n", who, file, strerror(-ret));
		return ret;
	}
	return 0;
}
