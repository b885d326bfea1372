/* SPDX-License-Identifier: MIT */
/* Two hosts in one process, without cards: what their fabrics tell is counted. */
#pragma once

#include <stdatomic.h>

#include "fabric/fabric.h"
#include "fabric/state.h"

enum { FAR_AWAY = 0x20 }; /* the first byte of GIDs that are on no host of this machine */

/* What the fabric of a host tells its card. */
struct vb_card {
	_Atomic uint32_t
		taken; /* packets, each with the number that is due, and what send_one() sent */
};

struct pair {
	struct vb_card card[2];
	struct vb_host *host[2];
};

extern const struct vb_sink counting_sink;

void host_make(struct pair *pair, int i);
/* That, and start it. */
void host_start(struct pair *pair, int i);
/* Stop it and free it. */
void host_stop(struct pair *pair, int i);
void pair_start(struct pair *pair);
void pair_stop(struct pair *pair);

/* A path between them by shared memory. */
void open_to(struct vb_path *path, const struct pair *pair, int from, int to);
int send_one(struct vb_path *path, uint32_t psn);
/* Until the card has taken so many, and no more. */
void await_taken(const struct vb_card *card, uint32_t count);
/* So many packets from one to the other, whose background thread takes them; there may be more than a ring holds. */
void talk(struct pair *pair, int from, int to, uint32_t count);
