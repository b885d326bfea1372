// SPDX-License-Identifier: MIT
/*
 * Many device threads at once: each worker is an event handler bound to an execution unit of its own (strict affinity).
 * One RPC starts them all; the host waits until the last one has finished.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

#include "shared.h"

enum { LIMIT = 400000 };

extern struct flexio_app *multithread_app;
extern flexio_func_t count_primes, start_all;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "multithread: %s failed\n", what);
	exit(1);
}

static struct ibv_context *open_first_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;

	need(list && list[0], "finding an RDMA device (did you say verbatim run?)");
	ctx = ibv_open_device(list[0]);
	need(ctx != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	return ctx;
}

static void copy_back(struct flexio_process *process, flexio_uintptr_t from, void *to, size_t size)
{
	struct flexio_mem src = { .mem_type = FLEXIO_MEMTYPE_DPA, .daddr = from };
	struct flexio_mem dst = { .mem_type = FLEXIO_MEMTYPE_HOST, .haddr = (uintptr_t)to };

	need(!flexio_memcpy(process, &dst, &src, size), "flexio_memcpy");
}

static struct flexio_event_handler *create_worker(struct flexio_process *process, uint32_t eu,
						  flexio_uintptr_t share)
{
	struct flexio_event_handler_attr attr = {
		.host_stub_func = &count_primes,
		.affinity = { .type = FLEXIO_AFFINITY_STRICT, .id = eu },
	};
	struct flexio_event_handler *handler;

	need(!flexio_event_handler_create(process, &attr, &handler), "flexio_event_handler_create");
	need(!flexio_event_handler_run(handler, share), "flexio_event_handler_run");
	return handler;
}

int main(void)
{
	struct ibv_context *ctx = open_first_device();
	struct flexio_event_handler *handler[WORKERS];
	struct share share[WORKERS] = { 0 };
	struct team team = { 0 };
	flexio_uintptr_t team_daddr, share_daddr, ids_daddr;
	struct flexio_process *process;
	uint32_t ids[WORKERS];

	need(!flexio_process_create(ctx, multithread_app, NULL, &process), "flexio_process_create");
	need(!flexio_copy_from_host(process, &team, sizeof(team), &team_daddr),
	     "flexio_copy_from_host");
	for (int i = 0; i < WORKERS; i++) {
		share[i].first = (uint64_t)i * LIMIT / WORKERS;
		share[i].end = (uint64_t)(i + 1) * LIMIT / WORKERS;
		share[i].team = team_daddr;
	}
	need(!flexio_copy_from_host(process, share, sizeof(share), &share_daddr),
	     "flexio_copy_from_host");
	for (uint32_t i = 0; i < WORKERS; i++) {
		handler[i] = create_worker(process, i, share_daddr + i * sizeof(share[0]));
		ids[i] = flexio_event_handler_get_activation_id(handler[i]);
	}
	need(!flexio_copy_from_host(process, ids, sizeof(ids), &ids_daddr),
	     "flexio_copy_from_host");

	need(!flexio_process_call(process, &start_all, NULL, ids_daddr, (uint32_t)WORKERS),
	     "flexio_process_call");
	do {
		usleep(1000);
		copy_back(process, team_daddr, &team, sizeof(team));
	} while (team.finished < WORKERS);

	copy_back(process, share_daddr, share, sizeof(share));
	for (int i = 0; i < WORKERS; i += 5)
		printf("EU %2d: %lu primes from %lu on\n", i, (unsigned long)share[i].primes,
		       (unsigned long)share[i].first);
	printf("%d workers: %lu primes below %d, the largest is %lu\n", WORKERS,
	       (unsigned long)team.total, LIMIT, (unsigned long)team.largest);

	for (int i = 0; i < WORKERS; i++)
		need(!flexio_event_handler_destroy(handler[i]), "flexio_event_handler_destroy");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
	return 0;
}
