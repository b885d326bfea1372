// SPDX-License-Identifier: MIT
/*
 * Owns what a program with device code says to dpaeumgmt, and hears from it: which adapters and
 * groups it uses, and what the registry says about them.
 *
 * A group is taken under the lock of the registry, and destroyed under it by a tool that looks for users first. So
 * no group is destroyed that a thread is about to run in. Partitions change only while no program runs on
 * the adapters concerned: count never changes under a user.
 *
 * Called by libflexio, at the creation of processes and handlers; never on the data path.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/lock.h"
#include "base/log.h"
#include "meet/eus.h"
#include "meet/registry_file.h"

struct vb_eus_user {
	struct vb_registry *registry;
	uint32_t slot, generation; /* of the host there, when it began */
	char card[VB_NAME_MAX];
	unsigned int count;
	struct vb_registry_file *file; /* with its entries */
	struct vb_eu_use *use;         /* ours there, as long as the host has its slot */
	struct vb_lock lock; /* of all below; under the lock of the registry where both are held */
	unsigned int taken[VB_EU_GROUPS + 1];
	uint32_t seen; /* changes of the store, when it was last read */
};

/* The user's entry, NULL where it is not ours any more: in a forked child, or where the host has left. */
static struct vb_eu_use *eus_user_entry(const struct vb_eus_user *user)
{
	const struct vb_registry *r = user->registry;

	return vb_registry_is_joined(r) && r->self.slot == user->slot &&
			       r->self.generation == user->generation
		       ? user->use
		       : NULL;
}

/* ---- the registry, locked ---- */

struct eus_access {
	struct vb_registry *at;
	struct vb_registry visited;
	sigset_t before;
};

/*
 * By the descriptors of the host. A program that has closed them, and a forked child that has not joined, look by
 * name.
 */
static int eus_user_lock(struct vb_registry *registry, struct eus_access *access)
{
	int err = vb_registry_is_joined(registry)
			  ? vb_registry_lock(registry, VB_LOCK_JOIN_MS, &access->before)
			  : -EBADF;

	access->at = registry;
	if (!err && !vb_file_is_open(&registry->place.dir)) {
		vb_registry_unlock(registry, &access->before);
		err = -EBADF;
	}
	if (err != -EBADF)
		return err;
	access->at = &access->visited;
	vb_registry_init(&access->visited);
	return vb_registry_visit(&access->visited, false, &access->before);
}

static void eus_user_unlock(struct eus_access *access)
{
	if (access->at == &access->visited)
		vb_registry_quit(&access->visited, &access->before);
	else
		vb_registry_unlock(access->at, &access->before);
}

static uint32_t eus_user_changes(const struct vb_eus_user *user)
{
	/* Pairs with vb_eus_write(). */
	return atomic_load_explicit(&user->file->eus_changes, memory_order_acquire);
}

/* ---- begin, end ---- */

static void eus_user_free(struct vb_eus_user *user)
{
	vb_eu_uses_unmap(user->file);
	free(user);
}

static int eus_user_begin(struct vb_eus_user *user, struct vb_eu_view *view)
{
	struct vb_eus *eus = NULL;
	struct eus_access access;
	int err = eus_user_lock(user->registry, &access);

	if (err)
		return err;
	err = vb_eus_read(access.at, &eus);
	if (!err)
		err = vb_eu_uses_map(access.at, &user->file);
	if (!err) {
		vb_eus_view(eus, user->card, user->count, view);
		user->seen = eus_user_changes(user);
		user->use = vb_eu_use_begin(user->registry, user->file, user->card);
		err = user->use ? 0 : -ENOSPC;
	}
	if (!err)
		vb_eu_use_processes(user->use, 1);
	eus_user_unlock(&access);
	vb_eus_free(eus);
	return err;
}

int vb_eus_user_begin(struct vb_registry *registry, const char *card, unsigned int count,
		      struct vb_eus_user **out, struct vb_eu_view *view)
{
	VB_NO_CANCEL;
	struct vb_eus_user *user;
	int err;

	if (!vb_registry_is_joined(registry))
		return -ENODEV;
	user = calloc(1, sizeof(*user));
	if (!user)
		return -ENOMEM;
	user->registry = registry;
	user->slot = registry->self.slot;
	user->generation = registry->self.generation;
	snprintf(user->card, sizeof(user->card), "%s", card);
	user->count = count;
	err = eus_user_begin(user, view);
	if (err)
		eus_user_free(user);
	else
		*out = user;
	return err;
}

void vb_eus_user_end(struct vb_eus_user *user)
{
	if (!user)
		return;
	if (eus_user_entry(user))
		vb_eu_use_end(user->use);
	eus_user_free(user);
}

void vb_eus_user_processes(struct vb_eus_user *user, unsigned int n)
{
	if (eus_user_entry(user))
		vb_eu_use_processes(user->use, n);
}

/* ---- groups ---- */

bool vb_eus_user_look(struct vb_eus_user *user, struct vb_eu_view *view)
{
	VB_NO_CANCEL;
	struct vb_eus *eus = NULL;
	struct eus_access access;
	bool changed;

	vb_lock(&user->lock);
	changed = eus_user_entry(user) && user->seen != eus_user_changes(user);
	vb_unlock(&user->lock);
	if (!changed || eus_user_lock(user->registry, &access))
		return false;
	changed = !vb_eus_read(access.at, &eus);
	if (changed) {
		vb_lock(&user->lock);
		user->seen = eus_user_changes(user);
		vb_unlock(&user->lock);
		vb_eus_view(eus, user->card, user->count, view);
	}
	eus_user_unlock(&access);
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

int vb_eus_user_take(struct vb_eus_user *user, unsigned int id, struct vb_eu_set *set, char *why)
{
	VB_NO_CANCEL;
	struct vb_eus *eus = NULL;
	struct eus_access access;
	int err = eus_user_lock(user->registry, &access);

	snprintf(why, VB_EU_WHY, "the store of groups cannot be used");
	if (err)
		return err;
	err = vb_eus_read(access.at, &eus);
	if (!err)
		err = eus_user_find_group(user, eus, id, set, why);
	if (!err) {
		vb_lock(&user->lock);
		if (!user->taken[id]++ && eus_user_entry(user))
			vb_eu_use_group(user->use, id, true);
		vb_unlock(&user->lock);
	}
	eus_user_unlock(&access);
	vb_eus_free(eus);
	return err;
}

void vb_eus_user_drop(struct vb_eus_user *user, unsigned int id)
{
	vb_lock(&user->lock);
	if (!--user->taken[id] && eus_user_entry(user))
		vb_eu_use_group(user->use, id, false);
	vb_unlock(&user->lock);
}
