// SPDX-License-Identifier: MIT
/*
 * Serves a block device: an emulated function of the first adapter whose device side is device.c. The host only makes the
 * objects; requests never come here.
 *
 *	driver (another program) --doorbell--> CQ --> on_doorbell() on the accelerator --> CQ --> emulated EQ --MSI-X--> driver
 */
#include <endian.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/mlx5dv.h>
#include <libflexio/flexio.h>
#include <verbatim/emulation.h>

#include "shared.h"

extern struct flexio_app *block_device;
extern flexio_func_t on_doorbell, start;

enum { LOG_CQ = 4 };

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct registers *guest;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "block-device: %s failed\n", what);
	exit(1);
}

static void open_first_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	need(list && list[0], "finding an RDMA device (did you say verbatim run?)");
	ctx = ibv_open_device(list[0]);
	need(ctx != NULL, "ibv_open_device");
	ibv_free_device_list(list);
}

static uint32_t first_function(void)
{
	struct verbatim_function_info first;

	need(verbatim_function_list(&first, 1) > 0 &&
		     !strcmp(first.adapter, ibv_get_device_name(ctx->device)),
	     "finding an emulated function");
	return first.vhca_id;
}

/* What driver and device share. */
static void map_memory(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	need(fd >= 0 && !ftruncate(fd, MEMORY_SIZE), path);
	guest = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(guest != MAP_FAILED, "mmap");
	close(fd);
	memset(guest, 0, sizeof(*guest));
	guest->device_id = BLOCK_DEVICE;
	guest->capacity = SECTORS;
}

/* An event queue whose CQs raise a vector of the function: EMULATED_DEV_EQ of the programmer's reference manual. */
static struct mlx5dv_devx_obj *make_eq(uint32_t vhca_id, uint32_t vector, uint32_t *number)
{
	uint32_t in[20] = { 0 }, out[4] = { 0 };
	struct mlx5dv_devx_obj *eq;

	in[0] = htobe32(0xa00u << 16); /* CREATE_GENERAL_OBJECT */
	in[1] = htobe32(0x49);         /* EMULATED_DEV_EQ */
	in[4 + 3] = htobe32(vhca_id);  /* device_emulation_id */
	in[4 + 13] = htobe32(vector);  /* intr */
	eq = mlx5dv_devx_obj_create(ctx, in, sizeof(in), out, sizeof(out));
	need(eq != NULL, "making an emulated event queue");
	*number = be32toh(out[2]);
	return eq;
}

/* A CQ of 2^log entries, none of them valid. */
static struct flexio_cq *make_cq(struct flexio_cq_attr attr, uint32_t log, uint64_t *ring,
				 uint64_t *dbr)
{
	struct mlx5_cqe64 *entries = calloc(1u << log, sizeof(*entries));
	struct flexio_cq *cq;
	uint64_t zero = 0;

	need(entries != NULL, "calloc");
	for (uint32_t i = 0; i < 1u << log; i++)
		mlx5dv_set_cqe_owner(&entries[i], 1);
	need(!flexio_copy_from_host(process, entries, sizeof(*entries) << log, ring) &&
		     !flexio_copy_from_host(process, &zero, sizeof(zero), dbr),
	     "flexio_copy_from_host");
	free(entries);
	attr.log_cq_depth = (uint8_t)log;
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	attr.cq_ring_qmem.daddr = *ring;
	attr.cq_dbr_daddr = *dbr;
	need(!flexio_cq_create(process, NULL, &attr, &cq), "flexio_cq_create");
	return cq;
}

static void wait_for_end(void)
{
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	__atomic_store_n(&guest->magic, MAGIC, __ATOMIC_RELEASE); /* drivers may come */
	sigwait(&set, &sig);
}

static void say_what_was_done(flexio_uintptr_t daddr)
{
	struct device d;
	struct flexio_mem to = { FLEXIO_MEMTYPE_HOST, { .haddr = (uintptr_t)&d } };
	struct flexio_mem from = { FLEXIO_MEMTYPE_DPA, { .daddr = daddr } };

	need(!flexio_memcpy(process, &to, &from, sizeof(d)), "flexio_memcpy");
	printf("device: %llu requests, %llu of them refused\n", (unsigned long long)d.requests,
	       (unsigned long long)d.errors);
}

/* ---- the objects ---- */

static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct flexio_window *window;
static struct flexio_event_handler *handler;
static struct flexio_cq *doorbells, *interrupts;
static struct flexio_emu_db_to_cq_ctx *map;
static struct mlx5dv_devx_obj *eq;

static void make_process(void)
{
	struct flexio_event_handler_attr attr = { .host_stub_func = &on_doorbell };

	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, guest, MEMORY_SIZE, IBV_ACCESS_LOCAL_WRITE);
	need(mr != NULL, "ibv_reg_mr");
	need(!flexio_process_create(ctx, block_device, NULL, &process), "flexio_process_create");
	need(!flexio_window_create(process, pd, &window), "flexio_window_create");
	need(!flexio_event_handler_create(process, &attr, &handler), "flexio_event_handler_create");
}

/* Doorbells of the driver wake the handler; whatever that puts into the other CQ is an interrupt of the driver. */
static void make_queues(uint32_t vhca_id, struct device *d)
{
	struct flexio_cq_attr wakes = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD,
					.thread = flexio_event_handler_get_thread(handler) };
	struct flexio_cq_attr raises = { .element_type =
						 FLEXIO_CQ_ELEMENT_TYPE_DPA_MSIX_EMULATED_CQ };
	uint64_t ring, dbr;

	doorbells = make_cq(wakes, LOG_CQ, &d->cq_ring, &d->cq_dbr);
	need(!flexio_emu_db_to_cq_map(ctx, vhca_id, QUEUE, doorbells, &map),
	     "flexio_emu_db_to_cq_map (does another program serve the function?)");
	eq = make_eq(vhca_id, VECTOR, &raises.emulated_eqn);
	interrupts = make_cq(raises, 0, &ring, &dbr);
	d->log_cq = LOG_CQ;
	d->cqn = flexio_cq_get_cq_num(doorbells);
	d->emu_id = flexio_emu_db_to_cq_ctx_get_id(map);
	d->msix_cqn = flexio_cq_get_cq_num(interrupts);
}

static flexio_uintptr_t start_device(struct device *d)
{
	flexio_uintptr_t daddr;
	uint64_t ignored;

	d->window_id = flexio_window_get_id(window);
	d->mkey = mr->lkey;
	d->memory = (uintptr_t)guest;
	need(!flexio_buf_dev_alloc(process, SECTORS * SECTOR, &d->disk) &&
		     !flexio_buf_dev_memset(process, 0, SECTORS * SECTOR, d->disk),
	     "flexio_buf_dev_alloc");
	need(!flexio_copy_from_host(process, d, sizeof(*d), &daddr), "flexio_copy_from_host");
	need(!flexio_event_handler_run(handler, daddr), "flexio_event_handler_run");
	need(!flexio_process_call(process, &start, &ignored, daddr), "flexio_process_call");
	return daddr;
}

static void end(flexio_uintptr_t daddr)
{
	need(!flexio_emu_db_to_cq_unmap(map), "flexio_emu_db_to_cq_unmap");
	need(!flexio_cq_destroy(doorbells) && !flexio_cq_destroy(interrupts), "flexio_cq_destroy");
	need(!mlx5dv_devx_obj_destroy(eq), "mlx5dv_devx_obj_destroy");
	need(!flexio_event_handler_destroy(handler), "flexio_event_handler_destroy");
	say_what_was_done(daddr);
	need(!flexio_window_destroy(window) && !flexio_process_destroy(process),
	     "flexio_process_destroy");
	need(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx),
	     "closing the device");
}

int main(int argc, char **argv)
{
	struct device d = { 0 };
	flexio_uintptr_t daddr;

	if (argc != 2) {
		fprintf(stderr,
			"usage: block-device MEMORY   (a file, which the driver maps, too)\n");
		return 2;
	}
	open_first_device();
	map_memory(argv[1]);
	make_process();
	make_queues(first_function(), &d);
	daddr = start_device(&d);
	wait_for_end();
	end(daddr);
	return 0;
}
