// SPDX-License-Identifier: MIT
/*
 * Linked into a test program: every process of it loses, repeats and swaps packets that it sends to others, as
 * VERBATIM_TEST_IMPAIR="loss=PERCENT,repeat=PERCENT,swap=PERCENT,seed=NUMBER" says. The same seed makes the same choices
 * for the same packets.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "fabric/fabric.h"

enum { HELD_MAX = 16 << 10 };

static struct {
	struct vb_link_ops ops;
	struct vb_link link; /* over that of shared memory */
	pthread_mutex_t lock;
	unsigned int loss, repeat, swap;
	uint64_t random;
	/* The packet that goes behind the next one of its path. */
	struct vb_path *held_path;
	struct vb_pkt held;
	struct vb_grh grh;
	struct iovec iov;
	uint8_t bytes[HELD_MAX];
} impair = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool draw(unsigned int percent)
{
	return next_random(&impair.random) % 100 < percent;
}

/* Keep a copy, payload included; false where that cannot be. */
static bool hold(struct vb_path *path, const struct vb_pkt *pkt)
{
	size_t n = 0;

	if (impair.held_path || pkt->len > HELD_MAX)
		return false;
	for (uint32_t i = 0; i < pkt->iov_cnt; i++) {
		memcpy(impair.bytes + n, pkt->iov[i].iov_base, pkt->iov[i].iov_len);
		n += pkt->iov[i].iov_len;
	}
	impair.held = *pkt;
	if (pkt->grh) {
		impair.grh = *pkt->grh;
		impair.held.grh = &impair.grh;
	}
	impair.iov = (struct iovec){ impair.bytes, n };
	impair.held.iov = &impair.iov;
	impair.held.iov_cnt = pkt->iov_cnt ? 1 : 0;
	impair.held_path = path;
	return true;
}

static int impaired_send(struct vb_link *link, struct vb_path *path, const struct vb_pkt *pkt)
{
	int ret = 0;

	pthread_mutex_lock(&impair.lock);
	if (draw(impair.loss))
		goto unlock;
	if (draw(impair.swap) && hold(path, pkt))
		goto unlock;
	ret = vb_link_pass.send(link, path, pkt);
	if (ret)
		goto unlock;
	if (draw(impair.repeat))
		vb_link_pass.send(link, path, pkt);
	if (impair.held_path == path) {
		impair.held_path = NULL;
		vb_link_pass.send(link, path, &impair.held);
	}
unlock:
	pthread_mutex_unlock(&impair.lock);
	return ret;
}

__attribute__((constructor)) static void start(void)
{
	const char *text = getenv("VERBATIM_TEST_IMPAIR");
	unsigned int seed = 1;

	if (!text)
		return;
	if (sscanf(text, "loss=%u,repeat=%u,swap=%u,seed=%u", &impair.loss, &impair.repeat,
		   &impair.swap, &seed) != 4) {
		fprintf(stderr, "VERBATIM_TEST_IMPAIR=%s\n", text);
		exit(1);
	}
	impair.random = seed;
	impair.ops = vb_link_pass;
	impair.ops.name = "impair";
	impair.ops.send = impaired_send;
	impair.link.ops = &impair.ops;
	if (vb_link_wrap(vb_host_program.fabric, "shm", &impair.link))
		abort();
}
