// SPDX-License-Identifier: MIT
/*
 * Owns work that stays on the card: copies of local memory (LDMA), transposed matrices, and waiting
 * until a word of local memory has a value. Keys and rights are those of the queue's protection
 * domain. Inside a read section, under the send queue's lock.
 */
#include "card/transport/local.h"

#include <endian.h>

#include "card/memory/indirect.h"
#include "card/memory/keys.h"
#include "card/queue/objects.h"
#include "card/transport/message.h"
#include "host/fault.h"

enum { FROM, TO };

/* The two sides of a copy; LOC_PROT_ERR where a key does not cover one. */
static enum ibv_wc_status local_translate(const struct vb_qp *qp, const struct vb_wr *wr,
					  char **from, char **to)
{
	uint32_t pdn = qp->init.pd->number;

	*from = vb_mr_translate(qp->card, wr->sge[FROM].lkey, pdn, wr->sge[FROM].addr,
				wr->sge[FROM].len, 0);
	*to = vb_mr_translate(qp->card, wr->sge[TO].lkey, pdn, wr->sge[TO].addr, wr->sge[TO].len,
			      IBV_ACCESS_LOCAL_WRITE);
	return *from && *to ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

/* One side, or both, may be an indirect key, whose memory has no address. */
static bool is_scattered(const struct vb_qp *qp, const struct vb_wr *wr)
{
	return vb_indirect_is(qp->card, wr->sge[FROM].lkey) ||
	       vb_indirect_is(qp->card, wr->sge[TO].lkey);
}

static __attribute__((noinline, cold)) enum ibv_wc_status copy_scattered(const struct vb_qp *qp,
									 const struct vb_wr *wr)
{
	uint8_t bounce[4096];

	for (uint32_t at = 0, n, len = wr->sge[FROM].len; at < len; at += n) {
		n = len - at < sizeof(bounce) ? len - at : (uint32_t)sizeof(bounce);
		if (vb_message_move(qp, &wr->sge[FROM], at, bounce, n, false) ||
		    vb_message_move(qp, &wr->sge[TO], at, bounce, n, true))
			return IBV_WC_LOC_PROT_ERR;
	}
	return IBV_WC_SUCCESS;
}

enum ibv_wc_status vb_local_copy(const struct vb_qp *qp, const struct vb_wr *wr)
{
	char *from, *to;

	if (wr->sge[FROM].len != wr->sge[TO].len)
		return IBV_WC_LOC_LEN_ERR;
	if (local_translate(qp, wr, &from, &to) != IBV_WC_SUCCESS)
		return is_scattered(qp, wr) ? copy_scattered(qp, wr) : IBV_WC_LOC_PROT_ERR;
	return vb_fault_copy(to, from, wr->sge[FROM].len) ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
}

/* The same for a matrix. */
static __attribute__((noinline, cold)) enum ibv_wc_status
transpose_scattered(const struct vb_qp *qp, const struct vb_wr *wr)
{
	uint32_t size = wr->matrix.element, rows = wr->matrix.rows, cols = wr->matrix.cols;
	uint8_t element[UINT8_MAX];

	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t c = 0; c < cols; c++)
			if (vb_message_move(qp, &wr->sge[FROM], (uint64_t)(r * cols + c) * size,
					    element, size, false) ||
			    vb_message_move(qp, &wr->sge[TO], (uint64_t)(c * rows + r) * size,
					    element, size, true))
				return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}

enum ibv_wc_status vb_local_transpose(const struct vb_qp *qp, const struct vb_wr *wr)
{
	uint32_t size = wr->matrix.element, rows = wr->matrix.rows, cols = wr->matrix.cols;
	enum ibv_wc_status status;
	char *from, *to;

	if (!size || !rows || !cols || wr->sge[FROM].len != size * rows * cols ||
	    wr->sge[TO].len != size * rows * cols)
		return IBV_WC_LOC_LEN_ERR;
	status = local_translate(qp, wr, &from, &to);
	if (status != IBV_WC_SUCCESS && is_scattered(qp, wr))
		return transpose_scattered(qp, wr);
	for (uint32_t r = 0; r < rows && status == IBV_WC_SUCCESS; r++)
		for (uint32_t c = 0; c < cols; c++)
			if (vb_fault_copy(to + (size_t)(c * rows + r) * size,
					  from + (size_t)(r * cols + c) * size, size))
				return IBV_WC_LOC_PROT_ERR;
	return status;
}

static bool local_holds(uint8_t condition, uint64_t word, uint64_t value)
{
	switch (condition & VB_WAIT_CONDITION) {
	case VB_WAIT_ALWAYS:
		return true;
	case VB_WAIT_EQUAL:
		return word == value;
	case VB_WAIT_BIGGER:
		return word > value;
	case VB_WAIT_SMALLER:
		return word < value;
	case VB_WAIT_CYCLIC_BIGGER:
		return (int64_t)(word - value) > 0;
	default: /* CYCLIC_SMALLER; the codec lets no other pass */
		return (int64_t)(word - value) < 0;
	}
}

enum ibv_wc_status vb_local_look(const struct vb_qp *qp, const struct vb_wr *wr, bool *true_now)
{
	const void *at = vb_mr_translate(qp->card, wr->rkey, qp->init.pd->number, wr->raddr, 8, 0);
	uint64_t word;

	if (!at || vb_fault_copy(&word, at, sizeof(word)))
		return IBV_WC_LOC_PROT_ERR;
	*true_now = local_holds(wr->wait, be64toh(word) & wr->swap_add,
				wr->compare & wr->swap_add) != !!(wr->wait & VB_WAIT_INVERT);
	return IBV_WC_SUCCESS;
}
