/* SPDX-License-Identifier: MIT */
/*
 * A link of a simulated network, in one process: what a queue pair sends arrives at the card again after the link's
 * latency in the card's time, unless the test has it lost.
 *
 *	requester, responder --send()--> [loses()] --> queue --(latency)--> the link's thread --> sink of the card
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "fabric/link.h"

enum { SIM_LINK_PACKETS = 64, SIM_LINK_MTU = 4096 };

struct sim_link {
	struct vb_link link;
	bool (*loses)(struct sim_link *link, const struct vb_pkt *pkt); /* by the sending thread */
	uint64_t latency;                                               /* ns */
	_Atomic uint32_t sent, lost;
	pthread_t thread;
	pthread_mutex_t lock;     /* of all below */
	_Atomic uint32_t changed; /* what the thread sleeps on: counts packets, and the end */
	bool ends;
	uint32_t head, tail;
	struct sim_packet {
		uint64_t due;
		struct vb_pkt pkt;
		struct iovec iov;
		uint8_t bytes[SIM_LINK_MTU];
	} packet[SIM_LINK_PACKETS];
};

void sim_link_begin(struct sim_link *link, uint64_t latency,
		    bool (*loses)(struct sim_link *link, const struct vb_pkt *pkt));
/* Nothing uses it any more. */
void sim_link_end(struct sim_link *link);
/* A path over the link. */
struct vb_path sim_link_path(struct sim_link *link, uint8_t transport);
