// SPDX-License-Identifier: MIT
/*
 * Owns the carrying out of faults (inject.h): which adapter and device a fault is for, creations that
 * fail, devices that have failed, and what EUs were asked for.
 *
 * One lock, which is held while a fault is carried out: two faults do not meet halfway, and no device
 * goes away meanwhile, because closing one takes it, too. No call of the data path takes it.
 */
#include "card/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rcu.h"
#include "card/fault/fault.h"
#include "card/hbl/sink.h"

/* --- creations -------------------------------------------------------------------------------- */

/* One less, unless there is none left. */
static bool count_down(_Atomic uint32_t *left)
{
	uint32_t n = atomic_load_explicit(left, memory_order_relaxed);

	while (n)
		if (atomic_compare_exchange_weak_explicit(left, &n, n - 1, memory_order_relaxed,
							  memory_order_relaxed))
			return true;
	return false;
}

int vb_inject_create(struct vb_dev *dev, enum vb_inject_object object)
{
	return vb_inject_refuse(dev->adapter,
				atomic_load_explicit(&dev->fatal, memory_order_relaxed), object);
}

int vb_inject_refuse(const struct vb_adapter *adapter, bool fatal, enum vb_inject_object object)
{
	struct vb_card *card = adapter->card;
	_Atomic uint32_t *fail = card->inject.at[adapter->index].fail;

	if (__builtin_expect(fatal, 0))
		return vb_refuse_device_fatal(adapter->config->name);
	if (count_down(&fail[object]) || count_down(&fail[VB_INJECT_ANY]))
		return vb_refuse_injected();
	return 0;
}

/* --- devices ---------------------------------------------------------------------------------- */

void vb_inject_opened(struct vb_dev *dev)
{
	struct vb_card *card = vb_dev_card(dev);

	pthread_mutex_lock(&card->inject.lock);
	dev->next = card->inject.devs;
	dev->link = &card->inject.devs;
	if (dev->next)
		dev->next->link = &dev->next;
	card->inject.devs = dev;
	pthread_mutex_unlock(&card->inject.lock);
}

void vb_inject_closing(struct vb_dev *dev)
{
	struct vb_card *card = vb_dev_card(dev);

	pthread_mutex_lock(&card->inject.lock);
	*dev->link = dev->next;
	if (dev->next)
		dev->next->link = dev->link;
	pthread_mutex_unlock(&card->inject.lock);
}

/* The parent's devices are not the child's, and neither are the faults of the parent's card. */
void vb_inject_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->inject.lock, NULL);
	pthread_mutex_init(&card->inject.script_lock, NULL);
	card->inject.devs = NULL;
	for (unsigned int i = 0; i < VB_CONFIG_MAX_ADAPTERS; i++) {
		atomic_store_explicit(&card->inject.at[i].cut, 0, memory_order_relaxed);
		if (i < card->adapters.count)
			vb_adapter_plug_in(&card->adapters.all[i]);
		for (unsigned int k = 0; k < VB_INJECT_OBJECTS; k++)
			atomic_store_explicit(&card->inject.at[i].fail[k], 0, memory_order_relaxed);
		card->inject.at[i].serve = NULL;
	}
	card->inject.num_eus = 0;
}

static bool is_hbl(const struct vb_adapter *adapter)
{
	return adapter->config->format == VB_FORMAT_HBL;
}

static bool inject_is_open(const struct vb_adapter *adapter)
{
	struct vb_card *card = adapter->card;
	const struct vb_dev *dev = card->inject.devs;

	while (dev && dev->adapter != adapter)
		dev = dev->next;
	return dev;
}

/* First what a program finds when it hears of it: nothing can be made, and all queues are in error. */
static int fail_devices(const struct vb_adapter *adapter)
{
	struct vb_card *card = adapter->card;
	struct vb_dev *dev;

	if (is_hbl(adapter))
		vb_hbl_inject_fatal(adapter);
	for (dev = card->inject.devs; dev; dev = dev->next) {
		if (dev->adapter != adapter ||
		    atomic_exchange_explicit(&dev->fatal, true, memory_order_relaxed))
			continue;
		vb_inject_fail_all(dev);
		vb_dev_event(dev, IBV_EVENT_DEVICE_FATAL, NULL);
	}
	return 0;
}

static int change_port(struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
		       size_t size)
{
	if (fault->number > adapter->config->ports) {
		snprintf(words, size, "%s has ports 1 to %u", fault->card, adapter->config->ports);
		return -ENOENT;
	}
	if (is_hbl(adapter))
		vb_hbl_inject_port(adapter, fault->number, fault->up);
	else
		vb_inject_port(adapter, fault->up);
	return 0;
}

static int fail_creations(const struct vb_adapter *adapter, const struct vb_inject *fault)
{
	struct vb_card *card = adapter->card;

	atomic_store_explicit(&card->inject.at[adapter->index].fail[fault->object], fault->count,
			      memory_order_relaxed);
	return 0;
}

/* --- execution units -------------------------------------------------------------------------- */

static int remember_eu(struct vb_card *card, const struct vb_inject *fault)
{
	struct vb_inject *all = card->inject.eus;
	uint32_t n = card->inject.num_eus;

	for (uint32_t i = 0; i < n; i++) {
		if (all[i].number == fault->number && !strcmp(all[i].card, fault->card)) {
			all[i] = *fault;
			return 0;
		}
	}
	all = realloc(all, (n + 1) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	card->inject.eus = all;
	all[card->inject.num_eus++] = *fault;
	return 0;
}

/* Where nobody has EUs yet, it is kept for who comes. */
static int change_eu(const struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
		     size_t size)
{
	struct vb_card *card = adapter->card;
	int ret = 0;

	if (card->inject.at[adapter->index].serve)
		ret = card->inject.at[adapter->index].serve(
			card->inject.at[adapter->index].serve_arg, fault->number, fault->slow);
	if (ret == -ENOENT)
		snprintf(words, size, "%s has no EU %u", fault->card, fault->number);
	else if (ret)
		snprintf(words, size, "EU %u: %s", fault->number, strerror(-ret));
	return ret ? ret : remember_eu(adapter->card, fault);
}

static struct vb_adapter *inject_find_adapter(struct vb_card *card, const char *name)
{
	struct vb_adapter *const *list;
	unsigned int count;

	if (vb_card_adapters(card, &list, &count))
		return NULL;
	for (unsigned int i = 0; i < count; i++)
		if (!strcmp(list[i]->config->name, name))
			return list[i];
	return NULL;
}

void vb_inject_serve_eus(const struct vb_adapter *adapter,
			 int (*serve)(void *arg, uint32_t eu, uint32_t slow), void *arg)
{
	struct vb_card *card = adapter->card;
	const char *name = adapter->config->name;

	pthread_mutex_lock(&card->inject.lock);
	card->inject.at[adapter->index].serve = serve;
	card->inject.at[adapter->index].serve_arg = arg;
	for (uint32_t i = 0; serve && i < card->inject.num_eus; i++) {
		const struct vb_inject *eu = &card->inject.eus[i];

		if (!strcmp(eu->card, name) && serve(arg, eu->number, eu->slow))
			vb_warn("inject: %s has no EU %u", name, eu->number);
	}
	pthread_mutex_unlock(&card->inject.lock);
}

/* --- all -------------------------------------------------------------------------------------- */

static int inject_apply(struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
			size_t size)
{
	switch (fault->kind) {
	case VB_INJECT_PORT:
		return change_port(adapter, fault, words, size);
	case VB_INJECT_QP_ERROR:
	case VB_INJECT_QP_NEXT:
	case VB_INJECT_QP_RECV:
		return is_hbl(adapter) ? vb_hbl_inject_qp(adapter, fault, words, size)
				       : vb_inject_qp(adapter, fault, words, size);
	case VB_INJECT_FATAL:
		return fail_devices(adapter);
	case VB_INJECT_FAIL:
		return fail_creations(adapter, fault);
	case VB_INJECT_EU:
		return change_eu(adapter, fault, words, size);
	}
	return -EINVAL;
}

/* Before a card is opened there is nothing that could fail but the port, EUs and creations. */
static bool needs_device(const struct vb_inject *fault)
{
	return fault->kind == VB_INJECT_QP_ERROR || fault->kind == VB_INJECT_QP_NEXT ||
	       fault->kind == VB_INJECT_QP_RECV || fault->kind == VB_INJECT_FATAL;
}

int vb_inject_apply(struct vb_card *card, const struct vb_inject *fault, bool early, char *words,
		    size_t size)
{
	struct vb_adapter *adapter = inject_find_adapter(card, fault->card);
	int ret;

	words[0] = '\0';
	if (!adapter) {
		snprintf(words, size, "no card is called %s", fault->card);
		return -ENODEV;
	}
	if (is_hbl(adapter) && fault->kind == VB_INJECT_FAIL &&
	    (fault->object == VB_INJECT_MR || fault->object == VB_INJECT_SRQ)) {
		snprintf(words, size, "%s is an hbl card, which has neither MRs nor SRQs",
			 fault->card);
		return -EOPNOTSUPP;
	}
	if (fault->kind == VB_INJECT_EU && adapter->config->format != VB_FORMAT_MLX5) {
		snprintf(words, size, "%s has no EUs; mlx5 cards have", fault->card);
		return -EOPNOTSUPP;
	}
	vb_card_enter();
	pthread_mutex_lock(&card->inject.lock);
	if ((needs_device(fault) || !early) && !inject_is_open(adapter)) {
		snprintf(words, size, "%s is not open", fault->card);
		ret = -ENODEV;
	} else {
		ret = inject_apply(adapter, fault, words, size);
	}
	pthread_mutex_unlock(&card->inject.lock);
	vb_card_leave();
	return ret;
}
