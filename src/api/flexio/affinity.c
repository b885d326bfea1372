// SPDX-License-Identifier: MIT
/*
 * Owns the way from an affinity to execution units (EUs): one EU, a group that dpaeumgmt made, or
 * the pool of those that are in no group and in no partition.
 *
 * A program looks at the store of groups when it makes a process or a device thread. The pool that
 * it finds then counts from the next start of each thread without affinity. A thread in a group has
 * the EUs that the group had when the thread was made; the group cannot be destroyed meanwhile.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

/* 0, or -errno after a log line. */
int vb_accel_use_view(struct accel *accel, const struct vb_eu_view *view)
{
	unsigned int *list = malloc(VB_CONFIG_MAX_EUS * sizeof(*list)), n;
	int err = list ? 0 : -ENOMEM;

	if (!err) {
		n = vb_eu_set_list(&view->pool, list);
		/* An empty pool stops nobody who runs: only new threads are refused. */
		if (n)
			err = vb_dpa_set_pool(accel->dpa, list, n);
		accel->usable = view->usable;
		atomic_store_explicit(&accel->pool_empty, !n, memory_order_relaxed);
	}
	free(list);
	if (err)
		fail("%s: its execution units cannot be used: %s", accel->name, strerror(-err));
	return err;
}

void vb_accel_refresh(struct accel *accel)
{
	struct vb_eu_view view;

	pthread_mutex_lock(&accel->eus_lock);
	if (vb_eus_user_look(accel->eus, &view))
		vb_accel_use_view(accel, &view);
	pthread_mutex_unlock(&accel->eus_lock);
}

int vb_accel_check_pool(struct accel *accel)
{
	vb_accel_refresh(accel);
	if (!atomic_load_explicit(&accel->pool_empty, memory_order_relaxed))
		return 0;
	fail("every EU of %s is in an EU group or an EU partition: there is none for a thread without affinity",
	     accel->name);
	return -EBUSY;
}

static int strict(struct accel *accel, unsigned int eu, struct vb_dpa_thread_attr *attr)
{
	bool usable;

	vb_accel_refresh(accel);
	if (eu >= vb_dpa_eu_count(accel->dpa)) {
		fail("EU %u does not exist; %s has EUs 0 to %u (%s)", eu, accel->name,
		     vb_dpa_eu_count(accel->dpa) - 1,
		     accel->in_partition ? "its EU partition" : "dpa_eus of the configuration");
		return -EINVAL;
	}
	pthread_mutex_lock(&accel->eus_lock);
	usable = vb_eu_set_has(&accel->usable, eu);
	pthread_mutex_unlock(&accel->eus_lock);
	if (!usable) {
		fail("EU %u of %s belongs to an EU partition of other adapters", eu, accel->name);
		return -EINVAL;
	}
	attr->affinity = VB_DPA_AFFINITY_STRICT;
	attr->eu = eu;
	return 0;
}

/* The list is the caller's to free. */
static int group(struct accel *accel, unsigned int id, struct vb_dpa_thread_attr *attr)
{
	unsigned int *list = malloc(VB_CONFIG_MAX_EUS * sizeof(*list));
	struct vb_eu_set set;
	char why[VB_EU_WHY];
	int err;

	if (!list) {
		fail("no memory for EU group %u", id);
		return -ENOMEM;
	}
	vb_accel_refresh(accel);
	err = vb_eus_user_take(accel->eus, id, &set, why);
	if (err) {
		fail("EU group %u of %s: %s", id, accel->name, why);
		free(list);
		return err;
	}
	attr->affinity = VB_DPA_AFFINITY_GROUP;
	attr->group = list;
	attr->group_size = vb_eu_set_list(&set, list);
	return 0;
}

int vb_accel_affinity(struct accel *accel, const struct flexio_affinity *affinity,
		      struct vb_dpa_thread_attr *attr)
{
	switch (affinity->type) {
	case FLEXIO_AFFINITY_NONE:
		return vb_accel_check_pool(accel);
	case FLEXIO_AFFINITY_STRICT:
		return strict(accel, affinity->id, attr);
	case FLEXIO_AFFINITY_GROUP:
		return group(accel, affinity->id, attr);
	default:
		fail("%u is not a type of affinity", (unsigned int)affinity->type);
		return -EINVAL;
	}
}

void vb_accel_affinity_end(struct accel *accel, unsigned int group)
{
	if (group)
		vb_eus_user_drop(accel->eus, group);
}
