// SPDX-License-Identifier: MIT
/*
 * Owns the accelerators of this program: one per adapter that has a process, shared by all its
 * processes there, gone with the last of them.
 */
#include "internal.h"

#include <stdlib.h>

#include "base/env.h"

#define TIMEOUT_DEFAULT_MS 6000
#define HEAP_DEFAULT_MIB   1024

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct accel *table[VB_CONFIG_MAX_ADAPTERS];

/* Names are unique in a configuration. */
const struct vb_adapter *vb_accel_adapter(struct ibv_context *ctx)
{
	struct vb_adapter *const *list;
	unsigned int count;

	if (!ctx || !ctx->device || vb_card_adapters(&list, &count))
		return NULL;
	for (unsigned int i = 0; i < count; i++)
		if (!strcmp(list[i]->config->name, ctx->device->name))
			return list[i]->config->format == VB_FORMAT_MLX5 ? list[i] : NULL;
	return NULL;
}

/* The environment wins over the configuration. */
static int read_timeout(const struct vb_adapter *adapter, uint64_t *ns)
{
	const char *text = vb_getenv("VERBATIM_RPC_TIMEOUT_MS");
	unsigned long ms =
		adapter->config->rpc_timeout ? adapter->config->rpc_timeout : TIMEOUT_DEFAULT_MS;
	char *end;

	if (text && *text) {
		errno = 0;
		ms = strtoul(text, &end, 10);
		if (errno || *end || !ms || ms > VB_CONFIG_MAX_RPC_TIMEOUT) {
			fail("VERBATIM_RPC_TIMEOUT_MS=%s is not a time; allowed: 1 to %u milliseconds",
			     text, VB_CONFIG_MAX_RPC_TIMEOUT);
			return -EINVAL;
		}
	}
	*ns = ms * 1000000ULL;
	return 0;
}

/* VERBATIM_RPC_LEND=off: every call queues for an EU, for tests and measurements. */
static bool lending_off(void)
{
	const char *text = vb_getenv("VERBATIM_RPC_LEND");

	return text && !strcmp(text, "off");
}

/* Device code that polls a queue sees what arrives for it. */
static void progress(void *arg)
{
	vb_progress_once();
}

/* Tools see how busy its EUs are. */
static void show(struct accel *a)
{
	struct vb_monitor_accelerator *entry;
	unsigned int eus = vb_dpa_eu_count(a->dpa);

	if (vb_monitor_add(VB_MONITOR_ACCELERATOR, &a->shown))
		return;
	entry = a->shown.entry;
	snprintf(entry->adapter, sizeof(entry->adapter), "%s", a->name);
	a->busy = vb_monitor_alloc(&a->shown, eus * sizeof(*a->busy), &a->busy_offset);
	if (a->busy) {
		entry->eus = eus;
		entry->busy = a->busy_offset;
		vb_dpa_show_eus(a->dpa, a->busy);
	}
	vb_monitor_show(&a->shown);
}

static int accel_create(const struct vb_adapter *adapter, struct accel **accel)
{
	struct accel *a = calloc(1, sizeof(*a));
	int err = a ? 0 : -ENOMEM;

	if (!err)
		err = read_timeout(adapter, &a->timeout_ns);
	if (!err)
		err = vb_dpa_create(
			&(struct vb_dpa_attr){ .eus = adapter->config->dpa_eus, .poll = progress },
			&a->dpa);
	if (err) {
		fail("%s: the accelerator cannot be used: %s", adapter->config->name,
		     strerror(-err));
		free(a);
		return err;
	}
	memcpy(a->name, adapter->config->name, sizeof(a->name));
	a->heap_size = adapter->config->dpa_heap ? adapter->config->dpa_heap : HEAP_DEFAULT_MIB;
	a->heap_size <<= 20;
	a->check = adapter->config->dpa_check;
	a->lend = !vb_dpa_deterministic(a->dpa) && !lending_off();
	show(a);
	*accel = a;
	return 0;
}

int vb_accel_get(struct ibv_context *ctx, struct accel **accel)
{
	const struct vb_adapter *adapter = vb_accel_adapter(ctx);
	int err = 0;

	if (!adapter) {
		fail("%s has no accelerator; adapters of the format mlx5 have one",
		     ctx && ctx->device ? ctx->device->name : "the device");
		return -ENODEV;
	}
	pthread_mutex_lock(&table_lock);
	if (!table[adapter->index])
		err = accel_create(adapter, &table[adapter->index]);
	if (!err) {
		table[adapter->index]->users++;
		*accel = table[adapter->index];
	}
	pthread_mutex_unlock(&table_lock);
	return err;
}

void vb_accel_put(struct accel *accel)
{
	unsigned int eus;
	bool last;

	pthread_mutex_lock(&table_lock);
	last = !--accel->users;
	for (unsigned int i = 0; last && i < ARRAY_SIZE(table); i++)
		if (table[i] == accel)
			table[i] = NULL;
	pthread_mutex_unlock(&table_lock);
	if (!last)
		return;
	eus = vb_dpa_eu_count(accel->dpa);
	vb_dpa_destroy(accel->dpa);
	if (accel->busy)
		vb_monitor_give(&accel->shown, accel->busy, eus * sizeof(*accel->busy),
				accel->busy_offset);
	vb_monitor_remove(&accel->shown);
	free(accel);
}

int vb_accel_affinity(const struct accel *accel, const struct flexio_affinity *affinity,
		      struct vb_dpa_thread_attr *attr)
{
	switch (affinity->type) {
	case FLEXIO_AFFINITY_NONE:
		return 0;
	case FLEXIO_AFFINITY_STRICT:
		if (affinity->id >= vb_dpa_eu_count(accel->dpa)) {
			fail("EU %u does not exist; %s has EUs 0 to %u (dpa_eus of the configuration)",
			     affinity->id, accel->name, vb_dpa_eu_count(accel->dpa) - 1);
			return -EINVAL;
		}
		attr->affinity = VB_DPA_AFFINITY_STRICT;
		attr->eu = affinity->id;
		return 0;
	case FLEXIO_AFFINITY_GROUP:
		fail("EU group %u does not exist on %s: there are no groups yet", affinity->id,
		     accel->name);
		return -EINVAL;
	default:
		fail("%u is not a type of affinity", (unsigned int)affinity->type);
		return -EINVAL;
	}
}
