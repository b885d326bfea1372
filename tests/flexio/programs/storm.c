// SPDX-License-Identifier: MIT
/*
 * A million activations among event handlers: rings, trees and random nets. Every message that is sent is handled, which
 * fails for good if one wake-up is lost. And handlers that never stop share their execution unit.
 */
#include "check.h"

#include "storm.h"

#include <pthread.h>
#include <stddef.h>

extern struct flexio_app *net;
extern flexio_func_t node, post, spin, activate;

enum { CELLS = 64, MESSAGES = 125000 };

struct world {
	struct flexio_process *process;
	struct flexio_event_handler *handler[CELLS];
	flexio_uintptr_t cells, remaining;
	struct cell copy[CELLS];
};

static void fetch(struct flexio_process *process, void *to, flexio_uintptr_t from, size_t size)
{
	struct flexio_mem host = { FLEXIO_MEMTYPE_HOST, { .haddr = (uintptr_t)to } };
	struct flexio_mem dev = { FLEXIO_MEMTYPE_DPA, { .daddr = from } };

	OK(flexio_memcpy(process, &host, &dev, size));
}

static flexio_uintptr_t cell_at(const struct world *w, unsigned int i)
{
	return w->cells + i * sizeof(struct cell);
}

static uint32_t id_of(const struct world *w, unsigned int i)
{
	return flexio_event_handler_get_activation_id(w->handler[i]);
}

/* Which cell is the t-th target of cell i; -1: there is none. */
typedef int target_fn(unsigned int i, unsigned int t);

static int ring(unsigned int i, unsigned int t)
{
	return t ? -1 : (int)((i + 1) % CELLS);
}

/* Two children; leaves tell the root. */
static int tree(unsigned int i, unsigned int t)
{
	unsigned int child = 2 * i + 1 + t;

	if (t > 1)
		return -1;
	return 2 * i + 2 < CELLS ? (int)child : t ? -1 : 0;
}

static int anyone(unsigned int i, unsigned int t)
{
	return (int)((i * 2654435761u + t * 40503u + 7) >> 3) & (CELLS - 1);
}

/* All tell one, which tells them back in turns of three. */
static int star(unsigned int i, unsigned int t)
{
	return i ? (t ? -1 : 0) : (int)(1 + t);
}

static void wire(struct world *w, target_fn *target, int end)
{
	for (unsigned int i = 0; i < CELLS; i++) {
		struct cell *c = &w->copy[i];

		*c = (struct cell){ .end = end < 0 ? i % 3 : (uint64_t)end,
				    .remaining = w->remaining };
		for (unsigned int t = 0; t < MAX_TARGETS && target(i, t) >= 0; t++) {
			c->target[t] = cell_at(w, (unsigned int)target(i, t));
			c->activation[t] = id_of(w, (unsigned int)target(i, t));
			c->targets++;
		}
	}
	OK(flexio_host2dev_memcpy(w->process, w->copy, sizeof(w->copy), w->cells));
}

static void create(struct world *w, struct flexio_process *process, enum flexio_affinity_type type,
		   unsigned int eus)
{
	w->process = process;
	OK(flexio_buf_dev_alloc(process, sizeof(w->copy), &w->cells));
	OK(flexio_buf_dev_alloc(process, 64, &w->remaining));
	for (unsigned int i = 0; i < CELLS; i++) {
		struct flexio_event_handler_attr attr = {
			.host_stub_func = node,
			.continuable = 1,
			.affinity = { type, eus ? i % eus : 0 },
		};

		OK(flexio_event_handler_create(process, &attr, &w->handler[i]));
		OK(flexio_event_handler_run(w->handler[i], cell_at(w, i)));
	}
}

static void destroy(struct world *w)
{
	for (unsigned int i = 0; i < CELLS; i++)
		OK(flexio_event_handler_destroy(w->handler[i]));
	OK(flexio_buf_dev_free(w->process, w->cells));
	OK(flexio_buf_dev_free(w->process, w->remaining));
}

static uint64_t handled(struct world *w)
{
	uint64_t sum = 0;

	fetch(w->process, w->copy, w->cells, sizeof(w->copy));
	for (unsigned int i = 0; i < CELLS; i++)
		sum += w->copy[i].handled;
	return sum;
}

/* Start with some messages; wait for all of them and what they lead to. */
static void run(struct world *w, target_fn *target, int end, unsigned int first, uint64_t messages)
{
	uint64_t want = first + messages, seen = 0, last;

	OK(flexio_host2dev_memcpy(w->process, &messages, sizeof(messages), w->remaining));
	wire(w, target, end);
	for (unsigned int i = 0; i < first; i++) {
		unsigned int at = target == star ? 0 : i * (CELLS / first);

		OK(flexio_process_call(w->process, post, NULL, cell_at(w, at), id_of(w, at),
				       (uint64_t)1));
	}
	/* until nothing has moved for much longer than a loaded machine keeps a thread waiting */
	for (int still = 0; seen < want && still < 20000; still = seen == last ? still + 1 : 0) {
		usleep(seen ? 2000 : 500);
		last = seen;
		seen = handled(w);
	}
	CHECK(handled(w) == want);
	for (unsigned int i = 0; i < CELLS; i++)
		CHECK(w->copy[i].inbox == 0 && w->copy[i].runs <= w->copy[i].handled + 1);
}

static void check_nets(struct flexio_process *process, enum flexio_affinity_type type,
		       unsigned int eus, uint64_t messages)
{
	static struct world w;

	/* A handler in a yield goes on with its old cell: what does not yield comes first. */
	create(&w, process, type, eus);
	run(&w, ring, 0, 1, messages);
	run(&w, tree, 1, 1, messages);
	run(&w, anyone, 1, 8, messages);
	run(&w, star, -1, 4, messages);
	destroy(&w);
}

/* ---- posts from many host threads at once ---- */

static struct world crowd;

static void *post_thread(void *arg)
{
	unsigned int at = (unsigned int)(uintptr_t)arg;

	for (unsigned int i = 0; i < 100; i++)
		OK(flexio_process_call(crowd.process, post, NULL, cell_at(&crowd, (at + i) % 4),
				       id_of(&crowd, (at + i) % 4), (uint64_t)100));
	return NULL;
}

static void check_crowd(struct flexio_process *process)
{
	pthread_t thread[8];
	uint64_t none = 0;

	create(&crowd, process, FLEXIO_AFFINITY_NONE, 0);
	OK(flexio_host2dev_memcpy(process, &none, sizeof(none), crowd.remaining));
	wire(&crowd, ring, -1);
	for (uintptr_t i = 0; i < 8; i++)
		CHECK(!pthread_create(&thread[i], NULL, post_thread, (void *)i));
	for (unsigned int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; handled(&crowd) < 8 * 100 * 100 && i < 5000; i++)
		usleep(1000);
	CHECK(handled(&crowd) == 8 * 100 * 100);
	destroy(&crowd);
}

/* ---- shares ---- */

enum { SPINNERS = 6, SLICE = 100000 };

/* Instructions that each had since the first call. */
static uint64_t shares(struct flexio_process *process, flexio_uintptr_t at, const uint64_t *before,
		       uint64_t *now)
{
	struct spinner s[SPINNERS];
	uint64_t least = UINT64_MAX;

	fetch(process, s, at, sizeof(s));
	for (unsigned int i = 0; i < SPINNERS; i++) {
		now[i] = s[i].instructions - (before ? before[i] : 0);
		least = now[i] < least ? now[i] : least;
	}
	return least;
}

/*
 * Handlers that never stop take turns on one execution unit: while the one with the least gets 20 slices, nobody gets
 * more than some slices more. (Where the run of the least is cut in two by our look at it, one on either side.)
 */
static void check_shares(struct flexio_process *process)
{
	uint64_t before[SPINNERS], now[SPINNERS], least, one = 1;
	struct flexio_event_handler *h[SPINNERS];
	flexio_uintptr_t at;

	OK(flexio_buf_dev_alloc(process, SPINNERS * sizeof(struct spinner), &at));
	OK(flexio_buf_dev_memset(process, 0, SPINNERS * sizeof(struct spinner), at));
	for (unsigned int i = 0; i < SPINNERS; i++) {
		struct flexio_event_handler_attr attr = {
			.host_stub_func = spin,
			.affinity = { FLEXIO_AFFINITY_STRICT, 3 },
		};

		OK(flexio_event_handler_create(process, &attr, &h[i]));
		OK(flexio_event_handler_run(h[i], at + i * sizeof(struct spinner)));
		OK(flexio_process_call(process, activate, NULL,
				       flexio_event_handler_get_activation_id(h[i])));
	}
	for (int i = 0; !shares(process, at, NULL, before) && i < 20000; i++)
		usleep(500);
	for (int i = 0; shares(process, at, before, now) < 20 * SLICE && i < 20000; i++)
		usleep(500);
	least = shares(process, at, before, now);
	CHECK(least >= 20 * SLICE);
	for (unsigned int i = 0; i < SPINNERS; i++)
		CHECK(now[i] <= least + 4 * SLICE);
	for (unsigned int i = 0; i < SPINNERS; i++) {
		OK(flexio_host2dev_memcpy(process, &one, sizeof(one),
					  at + i * sizeof(struct spinner) +
						  offsetof(struct spinner, stop)));
		OK(flexio_event_handler_destroy(h[i]));
	}
	OK(flexio_buf_dev_free(process, at));
}

int main(void)
{
	struct ibv_context *ctx = open_device();
	struct flexio_process *process;

	OK(flexio_process_create(ctx, net, NULL, &process));
	check_nets(process, FLEXIO_AFFINITY_NONE, 0, MESSAGES);
	check_nets(process, FLEXIO_AFFINITY_STRICT, 3, MESSAGES);
	check_nets(process, FLEXIO_AFFINITY_STRICT, 1, MESSAGES / 8);
	check_crowd(process);
	check_shares(process);
	CHECK(flexio_err_status_get(process) == 0);
	OK(flexio_process_destroy(process));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
