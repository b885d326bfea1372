// SPDX-License-Identifier: MIT
/*
 * Owns what a program with device code says to dpaeumgmt, and hears from it: which adapters and
 * groups it uses, and what the store says about them.
 *
 * A group is taken under the store's lock for readers, and destroyed under the one for a writer,
 * who looks for users first. So no group is destroyed that a thread is about to run in. Partitions
 * change only while no program runs on the adapters concerned: count never changes under a user.
 *
 * Called by libflexio, at the creation of processes and handlers; never on the data path.
 */
#include "meet/eus.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/log.h"
#include "host/signals.h"

struct vb_eus_user {
	struct vb_eus_user *next; /* of those of this process; under users_lock */
	char card[VB_NAME_MAX];
	unsigned int count;
	pthread_mutex_t lock;   /* of all below */
	struct vb_file use;     /* with our record locks */
	struct vb_file dir;     /* of the store; may be another than that of later openers */
	unsigned int announced; /* device processes */
	unsigned int taken[VB_EU_GROUPS + 1];
	/* which store was seen last: one that changed is another file */
	dev_t dev;
	ino_t ino;
	struct timespec changed;
};

static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vb_eus_user *users; /* of this process; under users_lock */

/* ---- the store ---- */

static void eus_user_note(struct vb_eus_user *user, const struct stat *st)
{
	user->dev = st->st_dev;
	user->ino = st->st_ino;
	user->changed = st->st_mtim;
}

static bool is_noted(const struct vb_eus_user *user, const struct stat *st)
{
	return user->dev == st->st_dev && user->ino == st->st_ino &&
	       user->changed.tv_sec == st->st_mtim.tv_sec &&
	       user->changed.tv_nsec == st->st_mtim.tv_nsec;
}

/* The store's file now; all zeros where there is none. */
static void eus_user_look_at(const struct vb_eus_user *user, struct stat *st)
{
	if (!vb_file_is_open(&user->dir) || fstatat(user->dir.fd, "store", st, AT_SYMLINK_NOFOLLOW))
		memset(st, 0, sizeof(*st));
}

/* Under user.lock; with signals blocked. */
static int read_view(struct vb_eus_user *user, struct vb_eus **eus, struct vb_eu_view *view)
{
	struct vb_eus_store store;
	struct stat st;
	int err = vb_eus_store_open(&store, false, false);

	if (err)
		return err;
	eus_user_look_at(user, &st);
	err = vb_eus_store_read(&store, eus);
	vb_eus_store_close(&store, false);
	if (err)
		return err;
	eus_user_note(user, &st);
	vb_eus_view(*eus, user->card, user->count, view);
	return 0;
}

/* ---- begin, end ---- */

static int keep_files(struct vb_eus_user *user, struct vb_eus_store *store)
{
	int fd = vb_eus_users_open(store, user->card, true), err;

	err = fd < 0 ? fd : vb_file_keep(&user->use, vb_file_above_stdio(fd));
	if (!err)
		err = vb_file_keep(&user->dir, vb_file_above_stdio(store->dir));
	store->dir = -1;
	return err;
}

static int eus_user_begin(struct vb_eus_user *user, struct vb_eu_view *view)
{
	struct vb_eus *eus = NULL;
	struct vb_eus_store store;
	struct stat st;
	int err = vb_eus_store_open(&store, false, true);

	if (err)
		return err;
	err = vb_eus_store_read(&store, &eus);
	if (!err) {
		vb_eus_view(eus, user->card, user->count, view);
		vb_eus_free(eus);
		err = keep_files(user, &store);
		if (err)
			vb_error("%s: cannot say that its accelerator is used: %s", user->card,
				 strerror(-err));
	}
	if (!err) {
		eus_user_look_at(user, &st);
		eus_user_note(user, &st);
		err = vb_eus_users_announce(user->use.fd, 0, user->announced = 1);
	}
	vb_eus_store_close(&store, false);
	return err;
}

int vb_eus_user_begin(const char *card, unsigned int count, struct vb_eus_user **out,
		      struct vb_eu_view *view)
{
	VB_NO_CANCEL;
	struct vb_eus_user *user = calloc(1, sizeof(*user));
	sigset_t before;
	int err;

	if (!user)
		return -ENOMEM;
	snprintf(user->card, sizeof(user->card), "%s", card);
	user->count = count;
	user->use = user->dir = VB_NO_FILE;
	pthread_mutex_init(&user->lock, NULL);
	vb_signal_block(&before);
	pthread_mutex_lock(&users_lock);
	err = eus_user_begin(user, view);
	if (!err) {
		user->next = users;
		users = user;
	}
	pthread_mutex_unlock(&users_lock);
	vb_signal_unblock(&before);
	if (err) {
		vb_file_close(&user->use);
		vb_file_close(&user->dir);
		free(user);
		return err;
	}
	*out = user;
	return 0;
}

/* With users_lock, when this process has no users file open any more. */
static void tidy(void)
{
	struct vb_eus_store store;

	if (!vb_eus_store_open(&store, false, false))
		vb_eus_store_close(&store, true);
}

/*
 * Many programs leave their device processes to exit(). Threads may still look at the objects, so
 * these stay; a lock that somebody holds is not waited for.
 */
static void eus_exit(void)
{
	struct vb_eus_user *user;

	if (!users || pthread_mutex_trylock(&users_lock))
		return;
	for (user = users; user; user = user->next)
		vb_file_close(&user->use);
	tidy();
	pthread_mutex_unlock(&users_lock);
}

VB_STAGE(EUS, .exit = eus_exit);

void vb_eus_user_end(struct vb_eus_user *user)
{
	VB_NO_CANCEL;
	struct vb_eus_user **at = &users;
	sigset_t before;

	if (!user)
		return;
	vb_signal_block(&before);
	pthread_mutex_lock(&users_lock);
	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
	vb_file_close(&user->use); /* and its locks are gone */
	vb_file_close(&user->dir);
	if (!users)
		tidy();
	pthread_mutex_unlock(&users_lock);
	vb_signal_unblock(&before);
	pthread_mutex_destroy(&user->lock);
	free(user);
}

void vb_eus_user_processes(struct vb_eus_user *user, unsigned int n)
{
	pthread_mutex_lock(&user->lock);
	if (vb_file_is_open(&user->use))
		vb_eus_users_announce(user->use.fd, user->announced, n);
	user->announced = n;
	pthread_mutex_unlock(&user->lock);
}

/* ---- groups ---- */

bool vb_eus_user_look(struct vb_eus_user *user, struct vb_eu_view *view)
{
	VB_NO_CANCEL;
	struct vb_eus *eus = NULL;
	bool changed = false;
	struct stat st;
	sigset_t before;

	vb_signal_block(&before);
	pthread_mutex_lock(&user->lock);
	eus_user_look_at(user, &st);
	if (!is_noted(user, &st))
		changed = !read_view(user, &eus, view);
	pthread_mutex_unlock(&user->lock);
	vb_signal_unblock(&before);
	vb_eus_free(eus);
	return changed;
}

/* The EUs of a group, as they are on this accelerator. */
static int eus_user_find_group(const struct vb_eus_user *user, const struct vb_eus *eus,
			       unsigned int id, struct vb_eu_set *set, char *why)
{
	const struct vb_eu_card *card = vb_eus_card(eus, user->card);
	struct vb_eu_view view;

	if (!id || id > VB_EU_GROUPS || !card || !card->group[id - 1].name[0]) {
		snprintf(why, VB_EU_WHY, "there is no such group; dpaeumgmt makes them");
		return -ENOENT;
	}
	vb_eus_view(eus, user->card, user->count, &view);
	if (vb_eu_set_last(&card->group[id - 1].eus) >= (int)view.count) {
		snprintf(why, VB_EU_WHY, "EU %d is in it; there are EUs 0 to %u",
			 vb_eu_set_last(&card->group[id - 1].eus), view.count - 1);
		return -ERANGE;
	}
	*set = card->group[id - 1].eus;
	return 0;
}

static int eus_user_take(struct vb_eus_user *user, unsigned int id, struct vb_eu_set *set,
			 char *why)
{
	struct vb_eus *eus = NULL;
	struct vb_eus_store store;
	int err = vb_eus_store_open(&store, false, false);

	snprintf(why, VB_EU_WHY, "the store of groups cannot be used");
	if (err)
		return err;
	err = vb_eus_store_read(&store, &eus);
	if (!err)
		err = eus_user_find_group(user, eus, id, set, why);
	if (!err && !user->taken[id] && vb_file_is_open(&user->use))
		err = vb_eus_users_group(user->use.fd, id, true);
	vb_eus_store_close(&store, false);
	vb_eus_free(eus);
	return err;
}

int vb_eus_user_take(struct vb_eus_user *user, unsigned int id, struct vb_eu_set *set, char *why)
{
	VB_NO_CANCEL;
	sigset_t before;
	int err;

	vb_signal_block(&before);
	pthread_mutex_lock(&user->lock);
	err = eus_user_take(user, id, set, why);
	if (!err)
		user->taken[id]++;
	pthread_mutex_unlock(&user->lock);
	vb_signal_unblock(&before);
	return err;
}

void vb_eus_user_drop(struct vb_eus_user *user, unsigned int id)
{
	pthread_mutex_lock(&user->lock);
	if (!--user->taken[id] && vb_file_is_open(&user->use))
		vb_eus_users_group(user->use.fd, id, false);
	pthread_mutex_unlock(&user->lock);
}
