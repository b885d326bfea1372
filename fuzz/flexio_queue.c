// SPDX-License-Identifier: MIT
/*
 * Random bytes as rings, doorbell records and outbox stores of device code, through libflexio: whatever a device program
 * does to its queues, the host program goes on and the queues can be reset.
 *
 * The input is a little program:
 *
 *	byte 0        which queue (RC, UC, UD, raw), and which fields are mended to be valid
 *	bytes 1, 2    receive doorbell record, consumer index of the CQs
 *	byte 3        number of steps
 *	10 bytes each what, where, value (8 bytes): a store to the outbox, a load, or a call
 *	the rest      the receive ring, then the send ring
 *
 * Mending matters: with random numbers and keys every doorbell and request would stop at the first check.
 */
#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx5dv.h>
#include <libflexio/flexio.h>

enum { LOG = 4, MEMORY = 4096, STEPS = 16, QUEUES = 4, RINGS = (16 << LOG) + (64 << LOG) };
enum { MEND_KEYS = 4, MEND_ADDRESSES = 8, MEND_REMOTE = 16, MEND_NUMBERS = 32, LIE_CQ = 64 };

struct step {
	uint64_t what, where, value;
};

struct steps {
	uint64_t number;
	struct step step[STEPS];
};

/* The registers that do something, to be met often. */
static const uint16_t registers[] = { 0x1c0, 0x100, 0x280, 0x1c0, 0x000, 0x140, 0x340, 0x300 };

struct queue {
	struct flexio_qp *qp;
	struct flexio_sq *sq;
	flexio_uintptr_t rings, dbr;
	uint32_t number;
};

static struct ibv_context *ctx;
static struct flexio_process *process;
static struct flexio_event_handler *handler;
static struct flexio_cq *cqs[2];
static flexio_uintptr_t cq_dbr[2], memory, steps_daddr;
static uint32_t cqn[2], key;
static flexio_func_t *run;
static struct queue queues[QUEUES];
static union ibv_gid gid;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- set-up ---- */

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_flexio_queue: %s failed\n", what);
	abort();
}

static void *read_device(size_t *size)
{
	FILE *file = fopen(DEVICE_ELF, "rb");
	char *elf = malloc(1 << 20);

	need(file && elf, "opening " DEVICE_ELF);
	*size = fread(elf, 1, 1 << 20, file);
	fclose(file);
	return elf;
}

static flexio_uintptr_t alloc(size_t size)
{
	flexio_uintptr_t addr;

	need(!flexio_buf_dev_alloc(process, size, &addr), "flexio_buf_dev_alloc");
	flexio_buf_dev_memset(process, 0, size, addr);
	return addr;
}

static uint32_t uar_id(void)
{
	return flexio_uar_get_id(flexio_process_get_uar(process));
}

/* One CQ that is polled and too small, one that wakes a handler; both compress. */
static void open_cqs(void)
{
	for (int i = 0; i < 2; i++) {
		struct flexio_cq_attr attr = {
			.log_cq_depth = (uint8_t)(i ? LOG : 1),
			.element_type = i ? FLEXIO_CQ_ELEMENT_TYPE_DPA_THREAD
					  : FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ,
			.uar_id = uar_id(),
			.overrun_ignore = (uint8_t)i,
			.cqe_comp_type = FLEXIO_CQE_COMP_ENABLE,
			.cq_ring_qmem = { .daddr = alloc(64 << LOG) },
			.cq_dbr_daddr = alloc(8),
		};

		if (i)
			attr.thread = flexio_event_handler_get_thread(handler);
		cq_dbr[i] = attr.cq_dbr_daddr;
		need(!flexio_cq_create(process, NULL, &attr, &cqs[i]), "flexio_cq_create");
		cqn[i] = flexio_cq_get_cq_num(cqs[i]);
	}
}

static void open_queue(struct queue *q, unsigned int type)
{
	q->rings = alloc(RINGS);
	q->dbr = alloc(8);
	if (type < 3) {
		struct flexio_qp_attr attr = {
			.transport_type = (enum flexio_qp_transport_type)type,
			.uar_id = uar_id(),
			.log_sq_depth = LOG,
			.log_rq_depth = LOG,
			.sq_cqn = cqn[0],
			.rq_cqn = cqn[1],
			.qp_wq_buff_qmem = { .daddr = q->rings },
			.qp_wq_dbr_qmem = { .daddr = q->dbr },
		};

		need(!flexio_qp_create(process, NULL, &attr, &q->qp), "flexio_qp_create");
		q->number = flexio_qp_get_qp_num(q->qp);
	} else {
		struct flexio_wq_attr attr = { .log_wq_depth = LOG,
					       .uar_id = uar_id(),
					       .wq_ring_qmem = { .daddr = q->rings + (16 << LOG) },
					       .wq_dbr_qmem = { .daddr = q->dbr } };

		need(!flexio_sq_create(process, NULL, cqn[0], &attr, &q->sq), "flexio_sq_create");
		q->number = flexio_sq_get_wq_num(q->sq);
	}
}

static void open_all(void)
{
	struct flexio_app_attr app_attr = { .app_name = "fuzz" };
	struct flexio_event_handler_attr handler_attr = { 0 };
	struct flexio_mkey_attr mkey_attr = { .len = MEMORY,
					      .access = IBV_ACCESS_LOCAL_WRITE |
							IBV_ACCESS_REMOTE_WRITE |
							IBV_ACCESS_REMOTE_READ |
							IBV_ACCESS_REMOTE_ATOMIC };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct flexio_mkey *mkey;
	struct flexio_app *app;

	need(list && list[0], "ibv_get_device_list");
	ctx = ibv_open_device(list[0]);
	need(ctx && !ibv_query_gid(ctx, 1, 0, &gid), "ibv_open_device");
	ibv_free_device_list(list);
	app_attr.app_ptr = read_device(&app_attr.app_bsize);
	need(!flexio_app_create(&app_attr, &app), "flexio_app_create");
	free(app_attr.app_ptr); /* the app has its own */
	need(!flexio_func_register(app, "steps", &run), "flexio_func_register");
	need(!flexio_func_register(app, "nothing", &handler_attr.host_stub_func), "func_register");
	need(!flexio_process_create(ctx, app, NULL, &process), "flexio_process_create");
	need(!flexio_event_handler_create(process, &handler_attr, &handler), "handler_create");
	need(!flexio_event_handler_run(handler, 0), "flexio_event_handler_run");
	memory = mkey_attr.daddr = alloc(MEMORY);
	steps_daddr = alloc(sizeof(struct steps));
	need(!flexio_device_mkey_create(process, &mkey_attr, &mkey), "flexio_device_mkey_create");
	key = flexio_mkey_get_id(mkey);
	open_cqs();
	for (unsigned int i = 0; i < QUEUES; i++)
		open_queue(&queues[i], i);
}

/* Every input begins with a queue pair that talks to itself. */
static void connect(struct queue *q)
{
	struct flexio_qp_attr attr = { .remote_qp_num = q->number,
				       .qp_access_mask = IBV_ACCESS_REMOTE_WRITE |
							 IBV_ACCESS_REMOTE_READ |
							 IBV_ACCESS_REMOTE_ATOMIC,
				       .fl = 1,
				       .path_mtu = FLEXIO_QP_QPC_MTU_BYTES_1K,
				       .vhca_port_num = 1,
				       .q_key = 1 };
	static const enum flexio_qp_state way[] = { FLEXIO_QP_STATE_RST, FLEXIO_QP_STATE_INIT,
						    FLEXIO_QP_STATE_RTR, FLEXIO_QP_STATE_RTS };

	if (!q->qp) { /* a raw queue has no way back but a new one */
		need(!flexio_sq_destroy(q->sq), "flexio_sq_destroy");
		open_queue(q, 3);
		return;
	}
	for (int i = 0; i < 4; i++) {
		attr.next_state = way[i];
		need(!flexio_qp_modify(q->qp, &attr, NULL), "flexio_qp_modify");
	}
}

/* ---- mending ---- */

static void mend_data(struct mlx5_wqe_data_seg *seg, uint8_t how)
{
	if (how & MEND_KEYS)
		seg->lkey = htobe32(key);
	if (how & MEND_ADDRESSES) {
		seg->addr = htobe64(memory + be64toh(seg->addr) % MEMORY);
		seg->byte_count &= htobe32(0x80001fff);
	}
}

static void mend_send(const struct queue *q, uint8_t *block, uint8_t how)
{
	struct mlx5_wqe_raddr_seg *remote = (void *)(block + 16);

	for (int unit = 1; unit < 4; unit++)
		mend_data((void *)(block + unit * 16), how);
	if (!(how & MEND_REMOTE))
		return;
	if (q == &queues[2]) {
		struct mlx5_wqe_datagram_seg *to = (void *)(block + 16);

		to->av.dqp_dct = htobe32(q->number | 1u << 31);
		to->av.key.qkey.qkey = htobe32(1);
		memcpy(to->av.rgid, &gid, sizeof(gid));
		return;
	}
	remote->rkey = htobe32(key);
	remote->raddr = htobe64(memory + be64toh(remote->raddr) % MEMORY);
}

static void fill_rings(const struct queue *q, const uint8_t *data, size_t size, uint8_t how)
{
	uint8_t rings[RINGS] = { 0 };

	memcpy(rings, data, size < RINGS ? size : RINGS);
	for (int i = 0; i < 1 << LOG; i++)
		mend_data((void *)(rings + 16 * i), how);
	for (int i = 0; i < 1 << LOG; i++)
		mend_send(q, rings + (16 << LOG) + 64 * i, how);
	flexio_host2dev_memcpy(process, rings, sizeof(rings), q->rings);
}

/* A doorbell of our own queues, most of the time. */
static void mend_step(const struct queue *q, struct step *step)
{
	uint64_t low = step->value & 0xff;

	step->where = registers[step->where % (sizeof(registers) / sizeof(registers[0]))];
	if (step->where == 0x1c0)
		step->value = low % 33 | (uint64_t)q->number << 32;
	else
		step->value = cqn[low & 1] | (step->value >> 40) << 32;
}

static const uint8_t *read_steps(const struct queue *q, const uint8_t *data, size_t *size,
				 uint8_t number, uint8_t how)
{
	struct steps list = { 0 };

	for (; list.number < number % (STEPS + 1) && *size >= 10; *size -= 10, data += 10) {
		struct step *step = &list.step[list.number++];

		step->what = data[0] & 7;
		step->where = data[1] * 8u;
		memcpy(&step->value, data + 2, 8);
		if (how & MEND_NUMBERS) {
			step->what = step->what < 5 ? 3 : step->what;
			mend_step(q, step);
		}
	}
	flexio_host2dev_memcpy(process, &list, sizeof(list), steps_daddr);
	return data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct queue *q;
	uint32_t word;
	uint64_t sum;

	if (size < 4)
		return 0;
	if (!process) {
		open_all();
		flexio_log_lvl_set(FLEXIO_LOG_LVL_ERR);
	}
	q = &queues[data[0] % QUEUES];
	connect(q);
	size -= 4;
	fill_rings(q, read_steps(q, data + 4, &size, data[3], data[0]), size, data[0]);
	word = htobe32(data[1]);
	flexio_host2dev_memcpy(process, &word, sizeof(word), q->dbr);
	word = htobe32(data[0] & LIE_CQ ? data[2] * 0x10101u : data[2]);
	for (int i = 0; i < 2; i++)
		flexio_host2dev_memcpy(process, &word, sizeof(word), cq_dbr[i]);
	/* Nothing that it does to its queues may end the process. */
	need(!flexio_process_call(process, run, &sum, steps_daddr), "flexio_process_call");
	return 0;
}
