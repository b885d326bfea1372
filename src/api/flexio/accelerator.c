// SPDX-License-Identifier: MIT
/*
 * Owns the accelerators of this program: one per adapter that has a process, shared by all its
 * processes there, gone with the last of them.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

#include "api/ibverbs/accessors.h"
#include "base/env.h"
#include "base/fork.h"
#include "card/card.h"
#include "card/fault/inject.h"
#include "card/state.h"

#define TIMEOUT_DEFAULT_MS 6000
#define HEAP_DEFAULT_MIB   1024
#define STACK_DEFAULT_KIB  8 /* as on a card */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct accel *accels; /* of adapters of all hosts; under the lock */

/*
 * In a child of fork(): execution units are threads, which it does not have. Processes of the parent keep its
 * accelerators; those of the child have others.
 */
static void accelerators_forked(void)
{
	pthread_mutex_init(&list_lock, NULL);
	accels = NULL;
}

VB_STAGE(ACCELERATORS, .child = accelerators_forked);

const struct vb_adapter *vb_accel_adapter(struct ibv_context *ctx)
{
	const struct vb_adapter *adapter =
		ctx && ctx->device ? vb_verbs_adapter(ctx->device) : NULL;

	return adapter && adapter->config->format == VB_FORMAT_MLX5 ? adapter : NULL;
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
static void accelerator_progress(void *arg)
{
	const struct accel *accel = arg;

	vb_progress_once(accel->adapter->card);
}

/* Tools see how busy its EUs are. */
static void accelerator_show(struct accel *a)
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

static void accel_free(struct accel *accel)
{
	unsigned int eus = accel->dpa ? vb_dpa_eu_count(accel->dpa) : 0;

	if (accel->dpa)
		vb_dpa_destroy(accel->dpa);
	if (accel->busy)
		vb_monitor_give(&accel->shown, accel->busy, eus * sizeof(*accel->busy),
				accel->busy_offset);
	vb_monitor_remove(&accel->shown);
	vb_eus_user_end(accel->eus);
	pthread_mutex_destroy(&accel->eus_lock);
	free(accel);
}

/* The accelerator with the execution units that the adapter has, in a partition or not. */
static int make_dpa(struct accel *a, const struct vb_adapter *adapter)
{
	unsigned int eus = adapter->config->dpa_eus ? adapter->config->dpa_eus : VB_EUS_DEFAULT;
	struct vb_eu_view view;
	int err = vb_eus_user_begin(adapter->card->meet, a->name, eus, &a->eus, &view);

	if (!err)
		err = vb_dpa_create(&(struct vb_dpa_attr){ .eus = view.count,
							   .poll = accelerator_progress,
							   .poll_arg = a },
				    &a->dpa);
	if (err)
		return err;
	a->in_partition = view.partition != 0;
	return vb_accel_use_view(a, &view);
}

static int accel_create(const struct vb_adapter *adapter, struct accel **accel)
{
	struct accel *a = calloc(1, sizeof(*a));
	int err;

	if (!a) {
		fail("%s: no memory for the accelerator", adapter->config->name);
		return -ENOMEM;
	}
	pthread_mutex_init(&a->eus_lock, NULL);
	a->adapter = adapter;
	memcpy(a->name, adapter->config->name, sizeof(a->name));
	err = read_timeout(adapter, &a->timeout_ns);
	if (!err)
		err = make_dpa(a, adapter);
	if (err) {
		fail("%s: the accelerator cannot be used: %s", adapter->config->name,
		     strerror(-err));
		accel_free(a);
		return err;
	}
	a->heap_size = adapter->config->dpa_heap ? adapter->config->dpa_heap : HEAP_DEFAULT_MIB;
	a->heap_size <<= 20;
	a->stack_size = adapter->config->dpa_stack ? adapter->config->dpa_stack : STACK_DEFAULT_KIB;
	a->stack_size <<= 10;
	a->check = adapter->config->dpa_check;
	a->lend = !vb_dpa_deterministic(a->dpa) && !lending_off();
	accelerator_show(a);
	*accel = a;
	return 0;
}

/* A fault on demand. A call on a lent thread would be on no EU: from now on all queue for one. */
static int hamper(void *arg, uint32_t eu, uint32_t slow)
{
	struct accel *accel = arg;

	atomic_store_explicit(&accel->lend, false, memory_order_relaxed);
	return vb_dpa_eu_hamper(accel->dpa, eu, slow) ? -ENOENT : 0;
}

int vb_accel_get(struct ibv_context *ctx, struct accel **accel)
{
	const struct vb_adapter *adapter = vb_accel_adapter(ctx);
	struct accel *a;
	int err = 0;

	if (!adapter) {
		fail("%s has no accelerator; adapters of the format mlx5 have one",
		     ctx && ctx->device ? ctx->device->name : "the device");
		return -ENODEV;
	}
	pthread_mutex_lock(&list_lock);
	for (a = accels; a && a->adapter != adapter;)
		a = a->next;
	if (!a) {
		err = accel_create(adapter, &a);
		if (!err) {
			a->next = accels;
			accels = a;
			vb_inject_serve_eus(adapter, hamper, a);
		}
	}
	if (!err) {
		*accel = a;
		vb_eus_user_processes(a->eus, ++a->users);
		vb_accel_refresh(a);
	}
	pthread_mutex_unlock(&list_lock);
	return err;
}

void vb_accel_put(struct accel *accel)
{
	struct accel **link = &accels;
	bool last;

	pthread_mutex_lock(&list_lock);
	last = !--accel->users;
	if (last)
		vb_inject_serve_eus(accel->adapter, NULL, NULL);
	if (!last) {
		vb_eus_user_processes(accel->eus, accel->users);
	} else {
		/* Before the next one of the adapter begins: a program has one entry for an adapter. */
		vb_eus_user_end(accel->eus);
		accel->eus = NULL;
		/* In a forked child the list has no accelerator of the parent. */
		while (*link && *link != accel)
			link = &(*link)->next;
		if (*link)
			*link = accel->next;
	}
	pthread_mutex_unlock(&list_lock);
	if (!last)
		return;
	accel_free(accel);
}
