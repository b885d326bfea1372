// SPDX-License-Identifier: MIT
/*
 * Event handlers as the stages of a pipeline, with short queues between them:
 *
 *	source 1, 2, 3 ... --> square --> add 1 --> sink, sums up
 *
 * The host starts the first stage and waits for the end; everything in between is device code waking device code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

#include "shared.h"

enum { NUMBERS = 1000 };

extern struct flexio_app *pipeline_app;
extern flexio_func_t source, middle, sink, begin;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "pipeline: %s failed\n", what);
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

static struct flexio_event_handler *create_stage(struct flexio_process *process, uint32_t index)
{
	flexio_func_t *func = index == 0 ? &source : index == STAGES - 1 ? &sink : &middle;
	struct flexio_event_handler_attr attr = { .host_stub_func = func };
	struct flexio_event_handler *handler;

	need(!flexio_event_handler_create(process, &attr, &handler), "flexio_event_handler_create");
	return handler;
}

int main(void)
{
	struct ibv_context *ctx = open_first_device();
	struct flexio_event_handler *handler[STAGES];
	struct stage stage[STAGES] = { 0 };
	struct flexio_process *process;
	flexio_uintptr_t daddr;
	uint32_t ids[STAGES];

	need(!flexio_process_create(ctx, pipeline_app, NULL, &process), "flexio_process_create");
	need(!flexio_buf_dev_alloc(process, sizeof(stage), &daddr), "flexio_buf_dev_alloc");
	for (uint32_t i = 0; i < STAGES; i++) {
		handler[i] = create_stage(process, i);
		ids[i] = flexio_event_handler_get_activation_id(handler[i]);
	}
	for (uint32_t i = 0; i < STAGES; i++) {
		stage[i].index = i;
		stage[i].previous = i ? ids[i - 1] : 0;
		stage[i].next = i < STAGES - 1 ? ids[i + 1] : 0;
		stage[i].to = i < STAGES - 1 ? daddr + (i + 1) * sizeof(stage[0]) : 0;
	}
	stage[0].total = NUMBERS;
	need(!flexio_host2dev_memcpy(process, stage, sizeof(stage), daddr),
	     "flexio_host2dev_memcpy");
	/* From here on they react; what came before would have been lost. */
	for (uint32_t i = 0; i < STAGES; i++)
		need(!flexio_event_handler_run(handler[i], daddr + i * sizeof(stage[0])),
		     "flexio_event_handler_run");

	need(!flexio_process_call(process, &begin, NULL, ids[0]), "flexio_process_call");
	do {
		usleep(1000);
		copy_back(process, daddr, stage, sizeof(stage));
	} while (stage[STAGES - 1].taken < NUMBERS);

	printf("%lu numbers went through queues of %d; the sum of their squares plus 1 is %lu\n",
	       (unsigned long)stage[STAGES - 1].taken, SLOTS,
	       (unsigned long)stage[STAGES - 1].total);

	for (int i = 0; i < STAGES; i++)
		need(!flexio_event_handler_destroy(handler[i]), "flexio_event_handler_destroy");
	need(!flexio_buf_dev_free(process, daddr), "flexio_buf_dev_free");
	need(!flexio_process_destroy(process), "flexio_process_destroy");
	ibv_close_device(ctx);
	return 0;
}
