/* SPDX-License-Identifier: MIT */
/*
 * A host: what one computer of a network has. A program has one, vb_host_program, unless it simulates several.
 *
 *	struct vb_host
 *	  meet     slot, generation and life of this host in the registry      meet/registry.h
 *	  fabric   segment, peers, links, background thread, wake word         fabric/state.h
 *	  card     adapters and all that they remember                         card/state.h
 *
 * Objects know their way up: peer->fabric, card->fabric, fabric->host. A thread is inside of one host at a
 * time. Two hosts of a process have two slots, two life words, two segments and two background threads: they
 * meet like two processes.
 */
#pragma once

#include "base/public.h"

struct vb_registry;
struct vb_fabric;
struct vb_card;

struct vb_host {
	struct vb_registry *meet;
	struct vb_fabric *fabric;
	struct vb_card *card;
};

/* The host that programs see. Defined beside its card; looked up at the edge (api/) alone. */
VB_PUBLIC extern struct vb_host vb_host_program;

/* What it is made of. Nothing but the definition of vb_host_program names them. */
extern struct vb_registry vb_registry_program;
extern struct vb_fabric vb_fabric_program;

/* A further host without a card, which has not started: 0 or -ENOMEM. */
int vb_host_make(struct vb_host **host);
/* It has stopped. The card is the caller's. */
void vb_host_free(struct vb_host *host);
