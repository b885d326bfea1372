/* SPDX-License-Identifier: MIT */
/*
 * Everything that the card of one host remembers, except per thread (burst.h, deferred.c, doorbell_page.c,
 * hbl/fifo.c). Objects lead here: adapter->card, dev->adapter->card, qp->card. A program has one card,
 * vb_card_program(); vb_card_open() (open.h) makes others.
 *
 * Each part belongs to the file that is named, which alone changes it. An instance is made of zeros
 * and vb_card_begin(): with the tables by number it would take megabytes of the library's file otherwise.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/interfaces.h"
#include "base/lock.h"
#include "card/deferred.h"
#include "card/fault/inject.h"
#include "card/hbl/hbl.h"
#include "card/memory/mr.h"
#include "card/queue/counter_set.h"
#include "card/queue/eq.h"
#include "card/queue/objects.h"
#include "card/transport/pace.h"
#include "control/show/layout.h"
#include "control/show/monitor.h"
#include "fabric/host.h"

enum {
	VB_CQ_MAX = 1 << 16,
	VB_SRQ_MAX = 1 << 16,
	VB_PD_MAX = 1 << 16,
	VB_UMEM_MAX = 1 << 16,
	VB_UAR_MAX = 1 << 16,
	VB_TIR_MAX = 1 << 16,
	VB_EQ_MAX = VB_EQ_VECTORS - 1,
	VB_EMU_MAPS = 4096,
	VB_EMU_EQS = 4096,
	VB_QP_FIRST_INDEX = 64, /* 0 and 1 are special on every fabric; the rest is reserved */
	VB_QP_MAX_INDEX = 1 << VB_QPN_INDEX_BITS,
	VB_FLOW_DOMAINS = 6,     /* enum vb_steer_kind, and that of verbs flows */
	VB_CABLE_MACS = 1024,    /* that a cable's switch remembers; power of two */
	VB_DEFERRED_SHARDS = 16, /* power of two; more threads than that share */
};

typedef _Atomic(struct vb_deferred *) vb_deferred_stack;

/* The port of one adapter as the end of a TAP. */
struct vb_tap {
	uint32_t users; /* of raw Ethernet on the adapter */
	bool running;   /* there is a thread */
	pthread_t thread;
	struct vb_file file;  /* of the TAP; changed by the thread, while it does not carry */
	_Atomic bool carries; /* this process has the TAP */
	_Atomic bool stop;    /* the thread is to end */
};

/* By number; each in the file of the object. */
struct vb_card_tables {
	_Atomic(struct vb_qp *) qp[VB_QP_MAX_INDEX];
	_Atomic(struct vb_cq *) cq[VB_CQ_MAX + 1];
	_Atomic(struct vb_eq *) eq[VB_EQ_MAX + 1];
	_Atomic(struct vb_srq *) srq[VB_SRQ_MAX + 1];
	struct vb_umem *umem[VB_UMEM_MAX + 1]; /* umem_lock */
	_Atomic(struct vb_emu_map *) emu_map[VB_EMU_MAPS + 1];
	_Atomic(struct vb_emu_eq *) emu_eq[VB_EMU_EQS + 1];
	struct { /* doorbell_page.c: rings that wait for the background thread */
		_Atomic uint64_t qps[VB_QP_MAX_INDEX / 64]; /* a bit per index of a QP, */
		_Atomic uint64_t cqs[VB_CQ_MAX / 64 + 1];   /* and per number of a CQ */
		_Atomic uint32_t eqs[VB_EQ_MAX + 1];        /* RUNG | consumer index */
		_Atomic bool any;
	} rung;
	struct vb_uar
		*uar[VB_UAR_MAX + 1]; /* doorbell_page.c: those with a number; umem_lock, too */
};

struct vb_card {
	_Atomic(struct vb_card *) next; /* state.c: of all that the process has */
	struct vb_host *host;
	struct vb_fabric *fabric; /* of the host, as is the next: for the data path */
	struct vb_registry *meet;

	struct { /* adapter.c */
		struct vb_adapter all[VB_CONFIG_MAX_ADAPTERS];
		struct vb_adapter *list[VB_CONFIG_MAX_ADAPTERS];
		unsigned int count;
		int status;
		struct vb_interfaces interfaces; /* of the machine, once they were read: */
		pthread_mutex_t interfaces_lock;
		bool interfaces_read;
	} adapters;

	struct { /* each in the file of the object */
		struct vb_ids pd, mr, cq, eq, srq, qp, umem, uar, tir, transport_domain, emu_map,
			emu_eq;
	} numbers;

	struct { /* mr.c */
		_Atomic uint8_t next_variant;
		pthread_mutex_t
			lock; /* of the watches: few, and only looked at when keys come and go */
		pthread_cond_t called; /* a gone() or changed() has returned */
		struct vb_mr_watch *first;
	} mr;

	struct { /* shown.c */
		struct vb_lock lock;
		uint32_t
			epoch; /* of the fabric; another one: none of what follows is this process's */
		struct {
			uint32_t users;
			struct vb_monitor_place place;
			struct vb_monitor_traffic past; /* of queue pairs that are gone; private */
		} adapter[VB_CONFIG_MAX_ADAPTERS];
	} shown;

	struct { /* qp.c: counters of queue pairs that are gone */
		struct vb_lock lock;
		struct vb_path_counters counters;
		struct vb_traffic traffic[VB_CONFIG_MAX_ADAPTERS];
		struct vb_traffic told[VB_CONFIG_MAX_ADAPTERS]; /* the most */
	} retired;

	struct {                      /* flow.c */
		pthread_mutex_t lock; /* of the making of domains */
		struct vb_steer *_Atomic domain[VB_CONFIG_MAX_ADAPTERS][VB_FLOW_DOMAINS];
	} flow;

	struct { /* tir.c */
		pthread_mutex_t lock;
		struct vb_tir *first; /* NULL-ended list of all */
	} tir;

	struct { /* pace.c */
		struct vb_lock lock;
		struct vb_pace {
			uint32_t kbps, burst;
			uint32_t users; /* 0: free */
			bool dedicated;
		} at[VB_CONFIG_MAX_ADAPTERS][VB_PACES];
	} pace;

	struct { /* counter_set.c */
		struct vb_lock lock;
		struct vb_counter_set *at[VB_COUNTER_SETS]; /* by number; 0 is nobody's */
	} counter_sets;

	struct { /* cable.c */
		struct vb_lock lock;
		uint32_t listeners; /* reasons to be sent the frames of other processes */
		uint32_t capturing; /* of them: captures */
		uint32_t sniffers;  /* reasons to be shown the packets of queue pairs */
		/* By adapter; of a cable's first one only: MAC << 16 | tag of the port */
		_Atomic uint64_t learned[VB_CONFIG_MAX_ADAPTERS][VB_CABLE_MACS];
		struct vb_capture *_Atomic captures; /* NULL-ended; written under the lock */
	} cable;

	struct {                      /* tap.c */
		pthread_mutex_t lock; /* of users, running and the threads */
		struct vb_tap at[VB_CONFIG_MAX_ADAPTERS];
	} tap;

	struct {                                     /* emulation.c */
		pthread_mutex_t lock;                /* of the making of functions */
		_Atomic(struct vb_function *) first; /* NULL-ended list of those in use */
		_Atomic uint64_t retry; /* ns: when to tell those who could not be; 0: never */
	} emulation;

	pthread_mutex_t umem_lock; /* umem.c: of the table */

	_Atomic uint64_t dc_connection; /* dci.c: number of the newest */

	struct {                                               /* alarm.c */
		_Alignas(64) _Atomic(struct vb_alarm *) fresh; /* set, not on the list yet */
		struct vb_lock
			lock; /* of the list; held for a few instructions, never over look() */
		struct vb_alarm *first;
		_Atomic uint64_t next;  /* look then, ns; UINT64_MAX: never */
		_Atomic uint32_t looks; /* odd while a thread looks: next is not known then */
	} alarms;

	struct { /* deferred.c */
		struct {
			_Alignas(64) vb_deferred_stack work;
		} shard[VB_DEFERRED_SHARDS];
		_Alignas(64) vb_deferred_stack blocked;
		_Alignas(64) vb_deferred_stack rest; /* newest first */
		vb_deferred_stack turn;              /* taken from there, oldest first */
	} deferred;

	struct {                      /* inject.c, inject_port.c, inject_ask.c */
		pthread_mutex_t lock; /* of what is not atomic; over the carrying out of a fault */
		struct vb_dev *devs;  /* NULL-ended list of all that are open */
		struct {
			_Atomic uint64_t cut; /* ports that are down: bit n for port n */
			_Atomic uint32_t qps; /* created so far */
			_Atomic uint32_t fail[VB_INJECT_OBJECTS]; /* creations to come that fail */
			int (*serve)(void *arg, uint32_t eu, uint32_t slow);
			void *serve_arg;
		} at[VB_CONFIG_MAX_ADAPTERS];
		struct vb_inject *eus; /* what EUs were asked for, in order */
		uint32_t num_eus;
		pthread_mutex_t script_lock; /* over the first opening of a device; before lock */
		bool scripted;               /* VERBATIM_INJECT was looked at */
	} inject;

	struct { /* hbl/device.c, hbl/fifo.c */
		struct vb_hbl *_Atomic devices[VB_HBL_DEVICES];
		pthread_mutex_t lock; /* of the devices */
		_Atomic bool
			deferred; /* entries of signal handlers are left to the background thread */
	} hbl;

	struct vb_card_tables tables;
};

/* The program's card, or NULL: nothing has asked for it yet. Reads no configuration, so that close() may. */
struct vb_card *vb_card_begun(void);
/* An instance of zeros becomes the card of a host, and has no adapters yet. */
void vb_card_begin(struct vb_card *card, struct vb_host *host);
/* It has its adapters: from here on it is one of those that a fork resets in the child. */
void vb_card_join(struct vb_card *card);
/* All devices of the card are closed: it leaves the list of cards, and what it has allocated is freed. */
void vb_card_end(struct vb_card *card);
/* In a forked child: call it for each card of the process, whether its host runs or not. */
void vb_cards_each(void (*call)(struct vb_card *card));

static inline void vb_add_counters(struct vb_path_counters *to, const struct vb_path_counters *from)
{
	to->calls += from->calls;
	to->stores += from->stores;
	to->copies += from->copies;
	to->packets += from->packets;
}
