/* SPDX-License-Identifier: MIT */
/* An open adapter and its protection domains, inside of the card. */
#pragma once

#include "base/lock.h"
#include "base/refusal.h"
#include "card/burst.h"
#include "card/card.h"
#include "card/format/format.h"
#include "card/state.h"

struct vb_dev {
	struct vb_adapter *adapter;
	void (*async)(void *arg, const struct vb_event *event);
	void *async_arg;
	uint32_t epoch; /* of the fabric when it was opened: a forked child must not touch it */
	_Atomic uint32_t objects;
	_Atomic bool fatal;          /* it has failed: nothing can be made on it any more */
	struct vb_dev *next, **link; /* of inject.devs of the card; under its lock */
	struct {
		struct vb_lock lock;
		struct vb_pd *first;
	} pds;
	struct {
		struct vb_lock lock;
		uint32_t log;       /* how many at a time */
		uint32_t next, end; /* reserved and not used yet */
	} wq_indices;
};

struct vb_pd {
	struct vb_dev *dev;
	uint32_t number;
	_Atomic uint32_t refs;
	struct vb_pd *next; /* of its device; under the lock of the list */
};

static inline struct vb_card *vb_dev_card(const struct vb_dev *dev)
{
	return dev->adapter->card;
}

/* Makes the adapters of a card; config NULL: it was bad, and vb_card_adapters() says so. */
void vb_adapters_init(struct vb_card *card, const struct vb_config *config);
/* In a forked child: what a thread of the parent had locked is free. */
void vb_adapters_forked(struct vb_card *card);
/* The port is on the cable that the configuration names, wherever it was. */
void vb_adapter_plug_in(struct vb_adapter *adapter);
void vb_adapter_identify(struct vb_adapter *adapter);
void vb_dev_event(struct vb_dev *dev, enum ibv_event_type type, void *cookie); /* no lock held */
/* An event of an object: to its own callback, or to the device. No lock held. */
static inline void vb_object_event(struct vb_dev *dev,
				   void (*own)(void *cookie, enum ibv_event_type type),
				   void *cookie, enum ibv_event_type type)
{
	if (own)
		own(cookie, type);
	else
		vb_dev_event(dev, type, cookie);
}

const struct vb_codec *vb_adapter_codec(const struct vb_adapter *adapter);
