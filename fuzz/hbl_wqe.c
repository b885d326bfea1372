// SPDX-License-Identifier: MIT
/*
 * Random doorbells, congestion-control messages and work queue entries of hbl queue pairs, through card/hbl/hbl.h: whatever a
 * program stores and writes, the card never crashes, the FIFO's index moves on, and the queue pair can be reset.
 *
 * The input is a little program:
 *
 *	byte 0      queue type of both ends (2 x 3 bits), wide entries, mended fields
 *	byte 1      number of entries for each end; the rest of the input is entries and stores in turn
 *
 * Mending matters: with random addresses every entry would stop at the first check.
 */
#include <misc/habanalabs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "card/hbl/hbl.h"

enum { MEMORY = 65536, WQES = 16, MEND = 0x80, WIDE = 0x40 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct end {
	struct vb_hbl *hbl;
	int fd;
	uint64_t va;
	struct vb_hbl_cq *req, *res;
	struct vb_hbl_qp *qp;
	struct vb_hbl_fifo *db, *cc;
	struct vb_hbl_qp_info info;
	union ibv_gid gid;
};

static struct end ends[2];
static struct vb_adapter *adapters[2];
static const enum vb_hbl_wq_type types[8] = {
	VB_HBL_WQ_WRITE,    VB_HBL_WQ_WRITE,    VB_HBL_WQ_WRITE,         VB_HBL_WQ_RECV_RDV,
	VB_HBL_WQ_SEND_RDV, VB_HBL_WQ_READ_RDV, VB_HBL_WQ_READ_RDV_ENDP, VB_HBL_WQ_WRITE,
};

static void must(int ret)
{
	if (ret < 0)
		abort();
}

static void open_end(struct end *end, unsigned int i)
{
	union hl_mem_args args = { .in = { .op = HL_MEM_OP_ALLOC, .alloc.mem_size = MEMORY } };
	struct vb_hbl_port_attr port = { .port = 1,
					 .max_wqs = 8,
					 .max_wqes = WQES,
					 .wide = true,
					 .advanced = true,
					 .no_index_check = i };
	struct vb_gid gid;

	end->fd = vb_hbl_accel_open(adapters[i]->config->hbl_number, 0);
	must(end->fd);
	must(vb_hbl_accel_ioctl(end->fd, HL_IOCTL_MEMORY, &args));
	args.in.map_device.handle = args.out.handle;
	args.in.map_device.hint_addr = 0;
	args.in.op = HL_MEM_OP_MAP;
	args.in.flags = 0;
	must(vb_hbl_accel_ioctl(end->fd, HL_IOCTL_MEMORY, &args));
	end->va = args.out.device_virt_addr;
	must(vb_hbl_open(adapters[i], end->fd, 0, NULL, NULL, &end->hbl));
	must(vb_hbl_port_setup(end->hbl, &port));
	must(vb_hbl_fifo_create(end->hbl, 1, VB_HBL_FIFO_DB, 0, &end->db));
	must(vb_hbl_fifo_create(end->hbl, 1, VB_HBL_FIFO_CC, 0, &end->cc));
	must(vb_adapter_gid(adapters[i], 1, 0, &gid));
	end->gid = gid.gid;
}

static void open_all(void)
{
	struct vb_adapter *const *list;
	unsigned int count, found = 0;

	setenv("VERBATIM_LOG", "error", 1);
	must(vb_card_adapters(&list, &count));
	for (unsigned int i = 0; i < count && found < 2; i++)
		if (list[i]->config->format == VB_FORMAT_HBL)
			adapters[found++] = list[i];
	if (found < 2)
		abort();
	for (unsigned int i = 0; i < 2; i++)
		open_end(&ends[i], i);
}

static void make_qp(struct end *end, enum vb_hbl_wq_type type, bool wide)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct vb_hbl_qp_attr hbl = { .wq_type = type, .wide = wide };

	must(vb_hbl_cq_create(end->hbl, 1, 16, false, NULL, &end->req));
	must(vb_hbl_cq_create(end->hbl, 1, 16, false, NULL, &end->res));
	must(vb_hbl_qp_create(end->hbl, end->req, end->res, WQES, NULL, &end->qp));
	must(vb_hbl_qp_modify(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			      &hbl));
	vb_hbl_qp_query(end->qp, &end->info);
}

static void connect_qp(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = peer->info.qpn,
				    .ah_attr.grh.dgid = peer->gid };
	struct vb_hbl_qp_attr hbl = { .dest_wq_size = 4 };

	must(vb_hbl_qp_modify(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER,
			      &hbl));
	attr.qp_state = IBV_QPS_RTS;
	must(vb_hbl_qp_modify(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
			      &hbl));
	vb_hbl_qp_query(end->qp, &end->info);
}

static void destroy_qp(struct end *end)
{
	vb_hbl_qp_destroy(end->qp);
	must(vb_hbl_cq_destroy(end->req));
	must(vb_hbl_cq_destroy(end->res));
}

/* Valid index, addresses inside of the memory, sizes that may just not fit. */
static void mend(struct end *end, const struct end *peer, uint8_t *wqe, uint32_t at)
{
	uint32_t word;
	uint64_t va;

	wqe[1] = (uint8_t)at;
	memcpy(&word, wqe + 4, 4);
	word &= 0x1ffff;
	memcpy(wqe + 4, &word, 4);
	memcpy(&va, wqe + 8, 8);
	va = (wqe[3] & 0x40 ? peer : end)->va + va % MEMORY;
	memcpy(wqe + 8, &va, 8);
	if (wqe[3] & 0x40)
		return;
	memcpy(&va, wqe + 16, 8);
	va = peer->va + va % MEMORY;
	memcpy(wqe + 16, &va, 8);
}

static void take(const uint8_t **data, size_t *size, void *to, size_t len)
{
	size_t n = *size < len ? *size : len;

	memset(to, 0, len);
	memcpy(to, *data, n);
	*data += n;
	*size -= n;
}

/* A store, mended to name the QP that exists. */
static void store(struct end *end, const uint8_t *bytes, uint8_t how)
{
	struct vb_hbl_fifo *fifo = bytes[0] & 1 ? end->cc : end->db;
	uint32_t word[4];
	struct vb_hbl_fifo_info info;

	vb_hbl_fifo_query(fifo, &info);
	memcpy(word, bytes, sizeof(word));
	if (!(how & MEND)) {
		vb_hbl_fifo_store(fifo, bytes[1] * 4u, word, 1 + bytes[2] % 16);
		return;
	}
	if (fifo == end->cc) {
		word[2] = 0; /* no pace: nothing is left for later */
		word[3] = end->info.qpn | (word[3] & 0x0f000000);
		vb_hbl_fifo_store(fifo, info.regs_offset, word, 16);
	} else {
		word[0] &= WQES - 1;
		word[1] = end->info.qpn;
		vb_hbl_fifo_store(fifo, info.regs_offset, word, 8);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how, counts, wqe[64], bytes[16];

	if (size < 2)
		return 0;
	if (!ends[0].hbl)
		open_all();
	how = data[0];
	counts = data[1];
	data += 2;
	size -= 2;
	make_qp(&ends[0], types[how & 7], how & WIDE);
	make_qp(&ends[1], types[how >> 3 & 7], how & WIDE);
	connect_qp(&ends[0], &ends[1]);
	connect_qp(&ends[1], &ends[0]);
	for (uint32_t i = 0; i < 2; i++) {
		for (uint32_t at = 0; at < WQES && at < (counts >> 4 * i & 0xf) && size; at++) {
			uint32_t len = how & WIDE ? 64 : 32;

			take(&data, &size, wqe, len);
			if (how & MEND)
				mend(&ends[i], &ends[!i], wqe, at);
			memcpy((char *)ends[i].info.swq + (size_t)at * len, wqe, len);
			take(&data, &size, (char *)ends[i].info.rwq + (size_t)at * 16, 16);
		}
	}
	for (int turn = 0; size && turn < 64; turn++) {
		take(&data, &size, bytes, sizeof(bytes));
		store(&ends[bytes[15] & 1], bytes, how);
	}
	destroy_qp(&ends[0]);
	destroy_qp(&ends[1]);
	return 0;
}
