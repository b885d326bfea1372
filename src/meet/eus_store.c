// SPDX-License-Identifier: MIT
/*
 * Owns what the registry remembers of EU groups and partitions while no process lives: a file of its directory.
 *
 *	DIRECTORY/eu-groups       the text of eus.c, replaced as a whole by rename(2); no file: there are no groups
 *	DIRECTORY/eu-groups.new   what a writer that was killed has left, if anything
 *
 * It is read and replaced under the lock of the registry (registry_lock.c), and keeps the directory there when the last
 * process leaves (registry_dir.c). It is gone after a reboot, as it is with hardware. Which process uses
 * which group is in eus_uses.c.
 *
 * Called by dpaeumgmt, which changes it, and by eus_user.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/file.h"
#include "base/log.h"
#include "meet/eus.h"
#include "meet/registry_dir.h"
#include "meet/registry_file.h"

#define NEW_NAME VB_DIR_GROUPS ".new"

/* All of a file. */
static int eus_store_read_all(int fd, char **text, size_t *len)
{
	struct stat st;
	ssize_t n = 0;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_size > VB_EU_TEXT_MAX)
		return -EFBIG;
	*text = malloc((size_t)st.st_size + 1);
	if (!*text)
		return -ENOMEM;
	for (*len = 0; *len < (size_t)st.st_size; *len += (size_t)n) {
		n = read(fd, *text + *len, (size_t)st.st_size - *len);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			break;
	}
	if (n >= 0)
		return 0;
	free(*text);
	*text = NULL;
	return -errno;
}

int vb_eus_read(const struct vb_registry *registry, struct vb_eus **eus)
{
	VB_NO_CANCEL;
	const struct vb_registry_place *place = &registry->place;
	int fd = place->file ? vb_dir_open_file(place->dir.fd, VB_DIR_GROUPS, false) : -ENOENT, ret;
	char *text = NULL, why[VB_EU_WHY];
	size_t len = 0;

	if (fd == -ENOENT) {
		*eus = vb_eus_new();
		return *eus ? 0 : -ENOMEM;
	}
	ret = fd < 0 ? fd : eus_store_read_all(fd, &text, &len);
	if (fd >= 0)
		close(fd);
	if (!ret)
		ret = vb_eus_parse(text, len, eus, why);
	else
		snprintf(why, sizeof(why), "%s", strerror(-ret));
	free(text);
	if (ret)
		vb_error("%s/%s/" VB_DIR_GROUPS " is damaged and not used: %s; remove that file",
			 registry->root, place->name, why);
	return ret;
}

static int eus_store_replace(int dir, const char *text, size_t len)
{
	int fd = vb_dir_open_file(dir, NEW_NAME, true), ret = 0;

	if (fd < 0)
		return fd;
	if (ftruncate(fd, 0))
		ret = -errno;
	for (size_t at = 0; !ret && at < len;) {
		ssize_t n = vb_file_write(fd, text + at, len - at);

		if (n < 0 && errno != EINTR)
			ret = -errno;
		at += n < 0 ? 0 : (size_t)n;
	}
	if (!ret && renameat(dir, NEW_NAME, dir, VB_DIR_GROUPS))
		ret = -errno;
	close(fd);
	if (ret)
		unlinkat(dir, NEW_NAME, 0);
	return ret;
}

int vb_eus_write(const struct vb_registry *registry, const struct vb_eus *eus)
{
	VB_NO_CANCEL;
	const struct vb_registry_place *place = &registry->place;
	size_t len = 0;
	char *text;
	int ret;

	/*
	 * First: a program that sees it waits for the lock before it reads, and a writer that is killed after
	 * the replacement has told of it. Pairs with vb_eus_user_look().
	 */
	atomic_fetch_add_explicit(&place->file->eus_changes, 1, memory_order_release);
	if (vb_eus_is_empty(eus)) {
		ret = unlinkat(place->dir.fd, VB_DIR_GROUPS, 0) && errno != ENOENT ? -errno : 0;
	} else {
		text = vb_eus_text(eus, &len);
		ret = text ? eus_store_replace(place->dir.fd, text, len) : -ENOMEM;
		free(text);
	}
	if (ret)
		vb_error("cannot write %s/%s/" VB_DIR_GROUPS ": %s", registry->root, place->name,
			 strerror(-ret));
	return ret;
}
