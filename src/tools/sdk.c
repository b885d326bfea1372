// SPDX-License-Identifier: MIT
/*
 * verbatim sdk: becomes a command that finds this tree at the vendor's paths.
 *
 * Build scripts name /opt/mellanox/doca/tools/dpacc and the like, and /opt is not ours to write. So
 * the command gets a mount namespace of its own, with a tmpfs on /opt:
 *
 *   /opt/OTHER               bind mount of what was there
 *   /opt/mellanox/OTHER      the same
 *   /opt/mellanox/doca       tools -> PREFIX/bin, include, lib/ARCH-linux-gnu -> PREFIX/lib,
 *                            applications (VERSION)
 *   /opt/mellanox/flexio     bin, include, lib -> PREFIX/...
 *
 * An ordinary user may do that inside a user namespace, in which he stays himself; root needs none.
 * There is no process in between: exit code, signals and the current directory are the command's
 * own.
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cmd.h"

#define OPT    "/opt"
#define VENDOR "/opt/mellanox"

static const char who[] = "verbatim sdk";

static const struct {
	const char *link, *target; /* below VENDOR; below PREFIX */
} links[] = {
	{ "doca/tools", "bin" },
	{ "doca/include", "include" },
	{ "doca/lib/x86_64-linux-gnu", "lib" },
	{ "doca/lib/aarch64-linux-gnu", "lib" },
	/*
	 * where ../.. of its pkgconfig folder leads those who count names instead of following
	 * links
	 */
	{ "doca/lib/lib", "lib" },
	{ "doca/lib/include", "include" },
	{ "doca/lib/share", "share" },
	{ "doca/applications", "share/verbatim/doca/applications" },
	{ "flexio/bin", "bin" },
	{ "flexio/include", "include" },
	{ "flexio/lib", "lib" },
	{ "flexio/share", "share" }, /* for its pkgconfig folder, as above */
};

static error_t sdk_parse_opt(int key, char *arg, struct argp_state *state)
{
	char ***command = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		*command = &state->argv[state->next - 1];
		state->next = state->argc; /* the rest is the command's */
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which command?");
		return EINVAL;
	}
	return ARGP_ERR_UNKNOWN;
}

static int sdk_write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* A user namespace in which the user and his group are themselves. */
static int enter_user_namespace(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];
	int ret;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -errno;
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	ret = sdk_write_text("/proc/self/uid_map", map);
	if (!ret)
		ret = sdk_write_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	if (!ret)
		ret = sdk_write_text("/proc/self/gid_map", map);
	return ret;
}

static int enter_namespaces(void)
{
	int ret = 0;

	if (unshare(CLONE_NEWNS))
		ret = errno == EPERM ? enter_user_namespace() : -errno;
	if (!ret && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		ret = -errno;
	return ret;
}

/* One entry of a folder that is covered shows again at the same path. */
static int keep_entry(int old, const char *dir, const char *name)
{
	char from[64 + NAME_MAX], to[PATH_MAX], target[PATH_MAX];
	struct stat st;
	ssize_t len;
	int fd;

	snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", old, name);
	if (snprintf(to, sizeof(to), "%s/%s", dir, name) >= (int)sizeof(to))
		return -ENAMETOOLONG;
	if (fstatat(old, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (S_ISLNK(st.st_mode)) {
		len = readlinkat(old, name, target, sizeof(target) - 1);
		if (len < 0)
			return -errno;
		target[len] = '\0';
		return symlink(target, to) ? -errno : 0;
	}
	if (S_ISDIR(st.st_mode)) {
		if (mkdir(to, 0755))
			return -errno;
	} else {
		fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			return -errno;
		close(fd);
	}
	return mount(from, to, NULL, MS_BIND | MS_REC, NULL) ? -errno : 0;
}

/* All entries of a covered folder but those named. */
static int keep_entries(int old, const char *dir, const char *const *without)
{
	int copy = dup(old), ret = 0;
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!d) {
		ret = -errno;
		if (copy >= 0)
			close(copy);
		return ret;
	}
	while (!ret && (entry = readdir(d))) {
		bool ours = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");

		for (int i = 0; without[i]; i++)
			ours |= !strcmp(entry->d_name, without[i]);
		if (!ours)
			ret = keep_entry(old, dir, entry->d_name);
	}
	closedir(d);
	return ret;
}

static int make_links(const char *prefix)
{
	char path[PATH_MAX], target[PATH_MAX + 16];
	char *slash;

	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		snprintf(path, sizeof(path), VENDOR "/%s", links[i].link);
		for (slash = path + sizeof(VENDOR); (slash = strchr(slash, '/')); slash++) {
			*slash = '\0';
			if (mkdir(path, 0755) && errno != EEXIST)
				return -errno;
			*slash = '/';
		}
		snprintf(target, sizeof(target), "%s/%s", prefix, links[i].target);
		if (symlink(target, path))
			return -errno;
	}
	return 0;
}

static int cover(const char *prefix)
{
	static const char *const vendor[] = { "mellanox", NULL }, *const ours[] = { "doca",
										    "flexio",
										    NULL };
	int opt = open(OPT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int mellanox, ret;

	if (opt < 0)
		return -errno;
	mellanox = openat(opt, "mellanox", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = mount("tmpfs", OPT, "tmpfs", 0, "mode=755") ? -errno : 0;
	if (!ret)
		ret = keep_entries(opt, OPT, vendor);
	if (!ret && mkdir(VENDOR, 0755))
		ret = -errno;
	if (!ret && mellanox >= 0)
		ret = keep_entries(mellanox, VENDOR, ours);
	if (!ret)
		ret = make_links(prefix);
	if (mellanox >= 0)
		close(mellanox);
	close(opt);
	return ret;
}

/* 0, or -errno after a message. */
static int make_view(void)
{
	char prefix[PATH_MAX], *cwd;
	int ret = tools_path(prefix, ".");

	if (ret) {
		tools_missing(who, prefix, ret);
		return ret;
	}
	prefix[strlen(prefix) - 2] = '\0'; /* "/." */
	if (!strncmp(prefix, VENDOR "/", sizeof(VENDOR)))
		return 0; /* it stands there already */
	cwd = getcwd(NULL, 0);
	ret = enter_namespaces();
	if (!ret)
		ret = cover(prefix);
	/* below /opt the same path is another mount now */
	if (!ret && cwd && chdir(cwd))
		ret = -errno;
	free(cwd);
	if (ret)
		fprintf(stderr,
			"%s: cannot show the vendor's paths: %s. Where user or mount namespaces are refused, let root make the links in " VENDOR
			" once: make install-vendor-paths\n",
			who, strerror(-ret));
	return ret;
}

static int set_environment(void)
{
	char dir[PATH_MAX];
	int ret = tools_put_libraries_first(who);

	if (!ret)
		ret = tools_path(dir, "lib/pkgconfig");
	if (!ret)
		ret = tools_prepend("PKG_CONFIG_PATH", dir);
	/* the vendor's own set-up has its tools in PATH, and some scripts rely on it */
	if (!ret)
		ret = tools_path(dir, "bin");
	if (!ret)
		ret = tools_prepend("PATH", dir);
	return ret;
}

int cmd_sdk(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = sdk_parse_opt,
		.args_doc = "[--] COMMAND [ARGUMENT...]",
		.doc = "Run COMMAND, such as a build script for the vendor's SDK, with this tree at /opt/mellanox/doca "
		       "and /opt/mellanox/flexio."
		       "\vThe exit code is the command's; 125 where Verbatim failed before it started, 126 where it "
		       "cannot be executed, 127 where it was not found.\n\n"
		       "Example: verbatim sdk -- ./build.sh",
	};
	char **command = NULL;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &command);
	if (make_view() || set_environment())
		return CMD_FAILED;
	return tools_become(who, command);
}
