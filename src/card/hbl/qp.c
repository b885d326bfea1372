// SPDX-License-Identifier: MIT
/*
 * Owns queue pairs as objects: numbers, work queue memory, the state machine, the way to the peer.
 *
 *	RESET --INIT: a number on a port--> INIT --RTR: the peer--> RTR --RTS: work queues in memory--> RTS
 *	  ^                                                                                            |
 *	  +----------------------------- RESET from anywhere; ERR from anywhere -----------------------+
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

enum { PRIORITIES = 4, NARROW_SHIFT = 5, WIDE_SHIFT = 6 };

struct vb_hbl_qp *vb_hbl_qp_find(struct vb_card *card, uint32_t address)
{
	struct vb_hbl *hbl = vb_hbl_find(card, address >> 18);
	uint32_t port = address >> 13 & 0x1f;
	struct vb_hbl_qp *_Atomic *qps;

	if (!hbl || port < 1 || port > hbl->adapter->config->ports)
		return NULL;
	/* Pairs with vb_hbl_port_setup(). */
	qps = atomic_load_explicit(&hbl->ports[port].qps, memory_order_acquire);
	return qps ? atomic_load_explicit(&qps[address & VB_HBL_MAX_QPN], memory_order_acquire)
		   : NULL;
}

void vb_hbl_qp_fail(struct vb_hbl_qp *qp, enum ibv_event_type event, enum vb_hbl_syndrome syndrome)
{
	uint32_t before = atomic_exchange_explicit(&qp->state, IBV_QPS_ERR, memory_order_acq_rel);

	vb_hbl_recall(qp);
	if (before == IBV_QPS_ERR)
		return;
	vb_hbl_show_state(qp);
	vb_warn("%s port %u: syndrome 0x%x, QP %u: %s", qp->hbl->adapter->config->name,
		qp->port->number, syndrome, qp->qpn,
		atomic_load_explicit(&qp->sq.blamed, memory_order_relaxed)
			? "it was asked to fail"
			: vb_hbl_syndrome_text(syndrome));
	vb_notice_set(&qp->notice, 1ull << event);
}

/* path_lock held. A path that is open already was left by a port that was down meanwhile. */
static void hbl_qp_open_path(struct vb_hbl_qp *qp)
{
	struct vb_slot_info owner;

	if (atomic_load_explicit(&qp->port->cut, memory_order_seq_cst))
		return;
	if (!vb_path_can(&qp->path, VB_PATH_REACHES) &&
	    (!vb_registry_claimant(qp->hbl->card->meet, qp->peer_device, &owner) ||
	     vb_path_open_slot(qp->hbl->card->fabric, &qp->path, owner.slot,
			       vb_hbl_address(qp->hbl->number, qp->port->number, qp->qpn)) ||
	     !vb_path_can(&qp->path, VB_PATH_REACHES)))
		return;
	if (qp->path.mtu < qp->mtu)
		qp->mtu = qp->path.mtu;
	/* Pairs with the acquire below. */
	atomic_store_explicit(&qp->connected, true, memory_order_release);
}

bool vb_hbl_qp_connect(struct vb_hbl_qp *qp)
{
	if (atomic_load_explicit(&qp->connected, memory_order_acquire))
		return true;
	vb_lock(&qp->path_lock);
	if (!atomic_load_explicit(&qp->connected, memory_order_acquire))
		hbl_qp_open_path(qp);
	vb_unlock(&qp->path_lock);
	return atomic_load_explicit(&qp->connected, memory_order_acquire);
}

/* --- memory ----------------------------------------------------------------------------------- */

static size_t swq_bytes(const struct vb_hbl_qp *qp)
{
	return (size_t)qp->wqes << qp->wqe_shift;
}

static size_t rwq_bytes(const struct vb_hbl_qp *qp)
{
	return (size_t)qp->wqes * VB_HBL_RWQE_SIZE;
}

static void free_queues(struct vb_hbl_qp *qp)
{
	if (qp->swq)
		munmap(qp->swq, swq_bytes(qp));
	if (qp->rwq)
		munmap(qp->rwq, rwq_bytes(qp));
	free(qp->sq.flight);
	free(qp->rq.rdv);
	qp->swq = qp->rwq = NULL;
	qp->sq.flight = NULL;
	qp->rq.rdv = NULL;
}

/* At RTR, because requests may come from then on; the program sees the addresses from RTS on. */
static int make_queues(struct vb_hbl_qp *qp)
{
	qp->swq = vb_hbl_pages(swq_bytes(qp));
	qp->rwq = vb_hbl_pages(rwq_bytes(qp));
	qp->sq.flight = calloc(qp->wqes, sizeof(*qp->sq.flight));
	qp->rq.rdv = calloc(qp->wqes, sizeof(*qp->rq.rdv));
	if (qp->swq && qp->rwq && qp->sq.flight && qp->rq.rdv) {
		qp->sq.sender.ring = (char *)qp->sq.flight;
		qp->sq.sender.stride = sizeof(*qp->sq.flight);
		qp->sq.sender.mask = qp->wqes - 1;
		return 0;
	}
	free_queues(qp);
	return -ENOMEM;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static bool hbl_qp_is_used(const struct vb_hbl_port *port, uint32_t qpn)
{
	return atomic_load_explicit(&vb_hbl_port_qps(port)[qpn], memory_order_relaxed);
}

static bool is_reserved(const struct vb_hbl *hbl, uint32_t qpn)
{
	return hbl->reserved[qpn / 64] >> qpn % 64 & 1;
}

/* The device's mutex held: on some port. */
static bool is_used_anywhere(struct vb_hbl *hbl, uint32_t qpn)
{
	for (uint32_t p = 1; p <= hbl->adapter->config->ports; p++)
		if (hbl->ports[p].ready && hbl_qp_is_used(&hbl->ports[p], qpn))
			return true;
	return false;
}

/* From the highest down: ordinary ones come from below. */
static int reserve_number(struct vb_hbl *hbl, uint32_t *qpn)
{
	for (uint32_t n = VB_HBL_MAX_QPN; n; n--) {
		if (is_reserved(hbl, n) || is_used_anywhere(hbl, n))
			continue;
		hbl->reserved[n / 64] |= 1ull << n % 64;
		*qpn = n;
		return 0;
	}
	return vb_refuse_hbl_used_up("number that all ports have", 1);
}

int vb_hbl_qpn_reserve(struct vb_hbl *hbl, uint32_t *qpn)
{
	int ret;

	if (vb_hbl_stale(hbl))
		return vb_refuse_forked();
	if (hbl->generation != VB_GAUDI3)
		return vb_refuse_unsupported("collective queue pairs of Gaudi2");
	pthread_mutex_lock(&hbl->mutex);
	ret = reserve_number(hbl, qpn);
	pthread_mutex_unlock(&hbl->mutex);
	return ret;
}

/*
 * The device's mutex held. Numbers come back late: peers hold on to them. Beside those in use a port
 * has a free one that is not reserved, unless most are reserved.
 */
static int hbl_qp_find_number(const struct vb_hbl_port *port, uint32_t hint, uint32_t *qpn)
{
	if (hint) {
		if (hint > VB_HBL_MAX_QPN || !is_reserved(port->hbl, hint))
			return vb_refuse_value("qp_num_hint", hint);
		if (hbl_qp_is_used(port, hint))
			return vb_refuse_hbl_used_up("queue pair of this number", port->number);
		*qpn = hint;
		return 0;
	}
	*qpn = port->last_qpn;
	for (uint32_t i = 0; i < VB_HBL_MAX_QPN; i++) {
		*qpn = *qpn % VB_HBL_MAX_QPN + 1;
		if (!hbl_qp_is_used(port, *qpn) && !is_reserved(port->hbl, *qpn))
			return 0;
	}
	return -ENOMEM;
}

static int hbl_qp_take_number(struct vb_hbl_qp *qp, struct vb_hbl_port *port, uint32_t hint)
{
	uint32_t qpn = 0;
	int ret;

	if (port->num_qps >= port->attr.max_wqs)
		return -ENOMEM;
	ret = hbl_qp_find_number(port, hint, &qpn);
	if (ret)
		return ret;
	if (!hint)
		port->last_qpn = qpn;
	port->num_qps++;
	qp->port = port;
	qp->qpn = qpn;
	vb_hbl_work_init(qp);
	vb_hbl_show_qp(qp);
	atomic_store_explicit(&vb_hbl_port_qps(port)[qpn], qp, memory_order_release);
	return 0;
}

/* The device's mutex held. When this returns nobody on the data path knows the QP any more. */
static void give_number(struct vb_hbl_qp *qp)
{
	if (!qp->port)
		return;
	atomic_store_explicit(&vb_hbl_port_qps(qp->port)[qp->qpn], NULL, memory_order_release);
	atomic_store_explicit(&qp->state, IBV_QPS_RESET, memory_order_release);
	vb_hbl_work_remove(qp);
	vb_hbl_take_back(qp);
	vb_hbl_hide_qp(qp);
	qp->port->num_qps--;
	if (is_reserved(qp->hbl, qp->qpn) && !is_used_anywhere(qp->hbl, qp->qpn))
		qp->hbl->reserved[qp->qpn / 64] &= ~(1ull << qp->qpn % 64);
	qp->port = NULL;
	qp->qpn = 0;
}

static void hbl_qp_reset(struct vb_hbl_qp *qp)
{
	give_number(qp);
	vb_path_close(&qp->path);
	atomic_store_explicit(&qp->connected, false, memory_order_release);
	free_queues(qp);
	if (qp->encap)
		qp->encap->users--;
	qp->encap = NULL;
	memset(&qp->sq, 0, sizeof(qp->sq));
	memset(&qp->rq, 0, sizeof(qp->rq));
	memset(&qp->ibv, 0, sizeof(qp->ibv));
	qp->attr = (struct vb_hbl_qp_attr){ 0 };
	atomic_store_explicit(&qp->state, IBV_QPS_RESET, memory_order_release);
}

/* --- creation --------------------------------------------------------------------------------- */

int vb_hbl_qp_create(struct vb_hbl *hbl, struct vb_hbl_cq *req_cq, struct vb_hbl_cq *res_cq,
		     uint32_t max_wqes, void *cookie, struct vb_hbl_qp **out)
{
	struct vb_card *card = hbl->card;
	struct vb_hbl_qp *qp = NULL;
	int ret;

	if (req_cq->hbl != hbl || res_cq->hbl != hbl || req_cq->info.cc || res_cq->info.cc ||
	    max_wqes > VB_HBL_WQES_MAX)
		return vb_refuse_combination(
			"a CQ is of another device or for congestion control, or max_send_wr is too large");
	ret = vb_hbl_inject_create(hbl, VB_INJECT_QP);
	if (ret)
		return ret;
	if (posix_memalign((void **)&qp, _Alignof(struct vb_hbl_qp), sizeof(*qp)))
		return -ENOMEM;
	memset(qp, 0, sizeof(*qp));
	qp->serial = 1 + atomic_fetch_add_explicit(&card->inject.at[hbl->adapter->index].qps, 1,
						   memory_order_relaxed);
	qp->path = vb_path_none;
	qp->hbl = hbl;
	qp->req_cq = req_cq;
	qp->res_cq = res_cq;
	qp->cookie = cookie;
	qp->wqes = VB_HBL_WQES_MIN;
	while (qp->wqes < max_wqes)
		qp->wqes *= 2;
	vb_card_enter();
	pthread_mutex_lock(&hbl->mutex);
	req_cq->users++;
	res_cq->users++;
	/* A CQ with two users has more than one writer. */
	if (req_cq->lender)
		vb_hbl_take_back(req_cq->lender);
	if (res_cq->lender)
		vb_hbl_take_back(res_cq->lender);
	qp->next = hbl->qps;
	if (hbl->qps)
		hbl->qps->prev = qp;
	hbl->qps = qp;
	pthread_mutex_unlock(&hbl->mutex);
	vb_card_leave();
	*out = qp;
	return 0;
}

void vb_hbl_qp_destroy(struct vb_hbl_qp *qp)
{
	struct vb_hbl *hbl = qp->hbl;

	if (vb_hbl_stale(hbl))
		return;
	vb_card_enter();
	pthread_mutex_lock(&hbl->mutex);
	hbl_qp_reset(qp);
	qp->req_cq->users--;
	qp->res_cq->users--;
	if (qp->next)
		qp->next->prev = qp->prev;
	if (qp->prev)
		qp->prev->next = qp->next;
	else
		hbl->qps = qp->next;
	pthread_mutex_unlock(&hbl->mutex);
	vb_card_leave();
	free(qp);
}

void vb_hbl_qp_query(struct vb_hbl_qp *qp, struct vb_hbl_qp_info *info)
{
	pthread_mutex_lock(&qp->hbl->mutex);
	*info = (struct vb_hbl_qp_info){ .qpn = qp->qpn,
					 .state = atomic_load_explicit(&qp->state,
								       memory_order_relaxed),
					 .attr = qp->ibv };
	if (info->state == IBV_QPS_RTS || (info->state == IBV_QPS_ERR && qp->sq.sender.window)) {
		info->swq = qp->swq;
		info->rwq = qp->rwq;
	}
	pthread_mutex_unlock(&qp->hbl->mutex);
}

/* --- the state machine ------------------------------------------------------------------------ */

enum {
	INIT_MASK = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RTS_MASK = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
};

/* One type of work, or writes together with one kind of rendezvous. */
static bool is_wq_type(uint32_t type)
{
	switch (type) {
	case VB_HBL_WQ_WRITE:
	case VB_HBL_WQ_RECV_RDV:
	case VB_HBL_WQ_READ_RDV:
	case VB_HBL_WQ_WRITE | VB_HBL_WQ_RECV_RDV:
	case VB_HBL_WQ_WRITE | VB_HBL_WQ_READ_RDV:
	case VB_HBL_WQ_SEND_RDV:
	case VB_HBL_WQ_READ_RDV_ENDP:
		return true;
	default:
		return false;
	}
}

static bool serves(const struct vb_hbl_cq *cq, const struct vb_hbl_port *port)
{
	return !cq->port || cq->port == port;
}

static int to_init(struct vb_hbl_qp *qp, const struct ibv_qp_attr *attr,
		   const struct vb_hbl_qp_attr *hbl)
{
	struct vb_hbl_port *port = vb_hbl_port(qp->hbl, attr->port_num);
	int ret;

	if (!port)
		return vb_refuse_hbl_port(attr->port_num);
	if (attr->pkey_index)
		return vb_refuse_range("pkey_index", attr->pkey_index, 0, 0);
	if (!is_wq_type(hbl->wq_type))
		return vb_refuse_value("wq_type", hbl->wq_type);
	if (!port->ready)
		return vb_refuse_hbl_not_set_up(port->number);
	/* A CQ may belong to a port; a work queue is no larger than the port's, nor its entries. */
	if (!serves(qp->req_cq, port) || !serves(qp->res_cq, port) ||
	    qp->wqes > port->attr.max_wqes || (hbl->wide && !port->attr.wide))
		return vb_refuse_combination(
			"a CQ is of another port, or the work queue is larger than the port's");
	qp->wqe_shift = hbl->wide ? WIDE_SHIFT : NARROW_SHIFT;
	qp->attr = (struct vb_hbl_qp_attr){ .wq_type = hbl->wq_type, .wide = hbl->wide };
	ret = hbl_qp_take_number(qp, port, hbl->qpn_hint);
	if (ret)
		return ret;
	qp->ibv.port_num = attr->port_num;
	qp->ibv.qp_access_flags = attr->qp_access_flags;
	return 0;
}

static uint32_t hbl_qp_mtu_bytes(int mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= VB_HBL_PATH_MTU_8192 ? 128u << mtu : 0;
}

static int find_encap(struct vb_hbl_qp *qp, const struct vb_hbl_qp_attr *hbl,
		      struct vb_hbl_encap **encap)
{
	*encap = NULL;
	if (!(hbl->caps & VB_HBL_QP_ENCAP))
		return 0;
	*encap = qp->port->encap;
	return *encap && vb_hbl_encap_number(*encap) == hbl->encap ? 0 : -EINVAL;
}

static int to_rtr(struct vb_hbl_qp *qp, const struct ibv_qp_attr *attr,
		  const struct vb_hbl_qp_attr *hbl)
{
	const uint64_t known =
		VB_HBL_QP_LOOPBACK | VB_HBL_QP_CONG_CTRL | VB_HBL_QP_COMPRESSION | VB_HBL_QP_ENCAP;
	struct vb_hbl_encap *encap;
	uint32_t device, port;
	int ret;

	if ((hbl->caps & ~known) || !hbl_qp_mtu_bytes((int)attr->path_mtu) || !attr->dest_qp_num ||
	    attr->dest_qp_num > VB_HBL_MAX_QPN || attr->rq_psn > 0xffffff ||
	    hbl->priority >= PRIORITIES || find_encap(qp, hbl, &encap))
		return vb_refuse_combination(
			"caps, path_mtu, dest_qp_num, rq_psn, priority or encap_num is out of range");
	if ((hbl->caps & VB_HBL_QP_CONG_CTRL) && !qp->port->attr.advanced)
		return vb_refuse_hbl_not_advanced(qp->port->number);
	ret = vb_hbl_resolve(qp->port, qp->hbl, &attr->ah_attr.grh.dgid,
			     hbl->caps & VB_HBL_QP_LOOPBACK, &device, &port);
	if (ret)
		return vb_refuse_hbl_unreachable();
	ret = make_queues(qp);
	if (ret)
		return vb_refuse_memory("the work queues");
	qp->mtu = hbl_qp_mtu_bytes((int)attr->path_mtu);
	qp->span = qp->mtu < VB_SHM_SPAN ? qp->mtu : VB_SHM_SPAN;
	qp->peer_device = device;
	qp->peer = vb_hbl_address(device, port, attr->dest_qp_num);
	vb_receiver_reset(&qp->rq.receiver, attr->rq_psn);
	qp->rq.syndrome = VB_SYN_ACK;
	qp->attr.caps = hbl->caps;
	qp->attr.local_key = hbl->local_key;
	qp->attr.priority = hbl->priority;
	qp->encap = encap;
	if (encap)
		encap->users++;
	vb_hbl_qp_connect(qp); /* or later, when the peer is there */
	qp->ibv.ah_attr = attr->ah_attr;
	qp->ibv.path_mtu = attr->path_mtu;
	qp->ibv.dest_qp_num = attr->dest_qp_num;
	qp->ibv.rq_psn = attr->rq_psn;
	qp->ibv.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	qp->ibv.min_rnr_timer = attr->min_rnr_timer;
	return 0;
}

static int to_rts(struct vb_hbl_qp *qp, const struct ibv_qp_attr *attr,
		  const struct vb_hbl_qp_attr *hbl)
{
	if (attr->sq_psn > 0xffffff || attr->timeout > 31 || attr->retry_cnt > 7 ||
	    hbl->priority >= PRIORITIES || hbl->congestion_window > VB_HBL_MAX_WINDOW)
		return vb_refuse_combination(
			"sq_psn, timeout, retry_cnt, priority or congestion_wnd is out of range");
	/* A side that announces buffers must know how many its peer can keep. */
	if ((qp->attr.wq_type & VB_HBL_WQ_RECV_RDV) &&
	    (!hbl->dest_wq_size || hbl->dest_wq_size > VB_HBL_WQES_MAX))
		return vb_refuse_range("dest_wq_size", hbl->dest_wq_size, 1, VB_HBL_WQES_MAX);
	qp->attr.remote_key = hbl->remote_key;
	qp->attr.dest_wq_size = hbl->dest_wq_size;
	qp->attr.priority = hbl->priority;
	vb_lock(&qp->sq.lock);
	qp->sq.sender.timeout = attr->timeout ? 1000ull << (attr->timeout + 2) : UINT64_MAX;
	qp->sq.sender.retry_limit = attr->retry_cnt;
	qp->sq.sender.window = hbl->congestion_window ? hbl->congestion_window : VB_HBL_MAX_WINDOW;
	vb_sender_reset(&qp->sq.sender, attr->sq_psn);
	qp->sq.first_psn = attr->sq_psn;
	vb_unlock(&qp->sq.lock);
	qp->ibv.timeout = attr->timeout;
	qp->ibv.retry_cnt = attr->retry_cnt;
	qp->ibv.rnr_retry = attr->rnr_retry;
	qp->ibv.sq_psn = attr->sq_psn;
	qp->ibv.max_rd_atomic = attr->max_rd_atomic;
	return 0;
}

static int hbl_qp_move(struct vb_hbl_qp *qp, const struct ibv_qp_attr *attr, int mask,
		       const struct vb_hbl_qp_attr *hbl)
{
	uint32_t state = atomic_load_explicit(&qp->state, memory_order_acquire);
	int ret = -EINVAL;

	mask &= ~IBV_QP_CUR_STATE;
	if (attr->qp_state == IBV_QPS_RESET) {
		if (mask == IBV_QP_STATE)
			hbl_qp_reset(qp);
		return mask == IBV_QP_STATE ? 0 : -EINVAL;
	}
	if (attr->qp_state == IBV_QPS_ERR) {
		if (mask == IBV_QP_STATE && state != IBV_QPS_RESET) {
			atomic_store_explicit(&qp->state, IBV_QPS_ERR, memory_order_release);
			vb_hbl_take_back(qp);
			ret = 0;
		}
		return ret;
	}
	if (atomic_load_explicit(&qp->hbl->fatal, memory_order_relaxed))
		return vb_refuse_device_fatal(qp->hbl->adapter->config->name);
	if (state == IBV_QPS_RESET && attr->qp_state == IBV_QPS_INIT && mask == INIT_MASK)
		ret = to_init(qp, attr, hbl);
	else if (state == IBV_QPS_INIT && attr->qp_state == IBV_QPS_RTR && mask == RTR_MASK)
		ret = to_rtr(qp, attr, hbl);
	else if (state == IBV_QPS_RTR && attr->qp_state == IBV_QPS_RTS && mask == RTS_MASK)
		ret = to_rts(qp, attr, hbl);
	/* A request that came at RTR may have failed it in the meantime: that stays. */
	if (!ret &&
	    !atomic_compare_exchange_strong_explicit(&qp->state, &state, attr->qp_state,
						     memory_order_acq_rel, memory_order_acquire))
		ret = -EINVAL;
	if (!ret)
		vb_hbl_lend(qp);
	return ret;
}

int vb_hbl_qp_modify(struct vb_hbl_qp *qp, const struct ibv_qp_attr *attr, int mask,
		     const struct vb_hbl_qp_attr *hbl)
{
	int ret;

	if (vb_hbl_stale(qp->hbl)) {
		vb_refuse_forked();
		return -EIO; /* what the driver of the hardware says */
	}
	if (!(mask & IBV_QP_STATE) ||
	    ((mask & IBV_QP_CUR_STATE) &&
	     attr->cur_qp_state != atomic_load_explicit(&qp->state, memory_order_acquire)))
		return -EINVAL;
	vb_card_enter();
	pthread_mutex_lock(&qp->hbl->mutex);
	ret = hbl_qp_move(qp, attr, mask, hbl);
	vb_hbl_show_state(qp);
	pthread_mutex_unlock(&qp->hbl->mutex);
	vb_card_leave();
	return ret;
}
