/* SPDX-License-Identifier: MIT */
/* Faults on demand, as the rest of the card meets them; and words for completions with errors. */
#pragma once

#include "card/fault/inject.h"
#include "card/queue/objects.h"

/* --- inject.c --- */
/* Whether an object may be created: 0, -ENOMEM or -EIO after a log line. */
int vb_inject_create(struct vb_dev *dev, enum vb_inject_object object);
void vb_inject_opened(struct vb_dev *dev);
void vb_inject_closing(struct vb_dev *dev);
void vb_inject_forked(struct vb_card *card);

/* --- inject_ask.c --- */
/* The first adapter is being opened: what a script asks for. 0, or -EINVAL after a log line. */
int vb_inject_begin(struct vb_card *card);

/* --- inject_port.c --- */
static inline bool vb_port_is_cut(const struct vb_adapter *adapter, uint32_t port)
{
	return atomic_load_explicit(&adapter->card->inject.at[adapter->index].cut,
				    memory_order_relaxed) >>
		       port &
	       1;
}

/* Under inject.lock. */
void vb_inject_port(struct vb_adapter *adapter, bool up);
/* A queue pair of a port that may be down is new in the table. */
void vb_inject_qp_created(struct vb_qp *qp);
/* Both queue locks held: another path, for when the port is up. Returns the one before. */
struct vb_path vb_qp_set_path(struct vb_qp *qp, const struct vb_path *path);

/* --- inject_qp.c --- */
int vb_inject_qp(const struct vb_adapter *adapter, const struct vb_inject *fault, char *words,
		 size_t size);
/* All queue pairs of the device fail, without events of their own. */
void vb_inject_fail_all(struct vb_dev *dev);
/* Both queue locks held: which function decodes the send WQEs. */
void vb_inject_choose_decoder(struct vb_qp *qp);
/* The format's own. */
typedef int (*vb_decoder)(const void *ring, uint32_t blocks, uint32_t shift, uint32_t index,
			  struct vb_wr *wr);
static inline vb_decoder vb_qp_decoder(const struct vb_qp *qp)
{
	return qp->type == IBV_QPT_UD           ? qp->codec->send_ud
	       : qp->type == IBV_QPT_RAW_PACKET ? qp->codec->send_raw
	       : qp->dci                        ? qp->codec->send_dc
						: qp->codec->send;
}
/* What decode() says of a work request that must fail. */
static inline enum ibv_wc_status vb_decode_status(int ret)
{
	return ret > 0 ? (enum ibv_wc_status)ret : IBV_WC_LOC_QP_OP_ERR;
}

/* --- why.c: log lines of error completions --- */
void vb_why_send(struct vb_qp *qp, const struct vb_wr *wr, enum ibv_wc_status status)
	__attribute__((cold));
/* pkt: the request that met the error. */
void vb_why_receive(const struct vb_qp *qp, const struct vb_pkt *pkt, enum ibv_wc_status status)
	__attribute__((cold));
/* A packet of the other version of RoCE is dropped. */
void vb_why_mixed(struct vb_qp *qp, const struct vb_pkt *pkt) __attribute__((cold));
void vb_why_flushed(const struct vb_qp *qp, uint32_t count, const char *queue)
	__attribute__((cold));
