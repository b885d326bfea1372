// SPDX-License-Identifier: MIT
/* Owns the words for operations and statuses in notes of the timeline. */
#include "card/notes.h"

#include <stddef.h>

#include "card/format/format.h"
#include "card/format/hbl.h"
#include "fabric/fabric.h"

static const char *const packet_ops[] = {
	[VB_PKT_SEND] = "SEND",
	[VB_PKT_WRITE] = "WRITE",
	[VB_PKT_READ] = "READ",
	[VB_PKT_COMPARE_SWAP] = "COMPARE_SWAP",
	[VB_PKT_FETCH_ADD] = "FETCH_ADD",
	[VB_PKT_MASKED_COMPARE_SWAP] = "MASKED_COMPARE_SWAP",
	[VB_PKT_MASKED_FETCH_ADD] = "MASKED_FETCH_ADD",
	[VB_PKT_ACK] = "ACK",
	[VB_PKT_READ_RESPONSE] = "READ_RESPONSE",
	[VB_PKT_ATOMIC_RESPONSE] = "ATOMIC_RESPONSE",
};

static const char *const work_ops[] = {
	[VB_WR_SEND] = "SEND",
	[VB_WR_WRITE] = "WRITE",
	[VB_WR_READ] = "READ",
	[VB_WR_COMPARE_SWAP] = "COMPARE_SWAP",
	[VB_WR_FETCH_ADD] = "FETCH_ADD",
	[VB_WR_MASKED_COMPARE_SWAP] = "MASKED_COMPARE_SWAP",
	[VB_WR_MASKED_FETCH_ADD] = "MASKED_FETCH_ADD",
	[VB_WR_LSO] = "LSO",
	[VB_WR_NOP] = "NOP",
	[VB_WR_LOCAL_INVALIDATE] = "LOCAL_INVALIDATE",
	[VB_WR_COPY] = "LDMA",
	[VB_WR_TRANSPOSE] = "TRANSPOSE",
	[VB_WR_UMR] = "UMR",
	[VB_WR_WAIT] = "WAIT",
};

static const char *const hbl_ops[] = {
	[VB_HBL_OP_NOP] = "NOP",
	[VB_HBL_OP_WRITE] = "WRITE",
	[VB_HBL_OP_SEND] = "SEND",
	[VB_HBL_OP_RDV_WRITE] = "RDV_WRITE",
	[VB_HBL_OP_READ] = "READ",
	[VB_HBL_OP_FETCH_ADD] = "FETCH_ADD",
	[VB_HBL_OP_FETCH_ADD_SILENT] = "FETCH_ADD",
};

static const char *const statuses[] = {
	[IBV_WC_SUCCESS] = "success",
	[IBV_WC_LOC_LEN_ERR] = "local length error",
	[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
	[IBV_WC_LOC_PROT_ERR] = "local protection error",
	[IBV_WC_WR_FLUSH_ERR] = "flushed",
	[IBV_WC_MW_BIND_ERR] = "memory window bind error",
	[IBV_WC_BAD_RESP_ERR] = "bad response",
	[IBV_WC_LOC_ACCESS_ERR] = "local access error",
	[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
	[IBV_WC_REM_ACCESS_ERR] = "remote access error",
	[IBV_WC_REM_OP_ERR] = "remote operation error",
	[IBV_WC_RETRY_EXC_ERR] = "retries exceeded",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retries exceeded",
};

#define TABLE(table)                                    \
	{                                               \
		table, sizeof(table) / sizeof(*(table)) \
	}

static const struct {
	const char *const *text;
	size_t count;
} tables[VB_NOTE_KINDS] = {
	[VB_NOTE_WQE] = TABLE(work_ops),    [VB_NOTE_COPIED] = TABLE(work_ops),
	[VB_NOTE_HBL_WQE] = TABLE(hbl_ops), [VB_NOTE_CQE] = TABLE(statuses),
	[VB_NOTE_SENT] = TABLE(packet_ops), [VB_NOTE_RECEIVED] = TABLE(packet_ops),
};

const char *vb_note_code_text(const struct vb_note *note)
{
	if (note->kind >= VB_NOTE_KINDS || note->code >= tables[note->kind].count ||
	    !tables[note->kind].text[note->code])
		return "?";
	return tables[note->kind].text[note->code];
}
