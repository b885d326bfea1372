// SPDX-License-Identifier: MIT
/*
 * Owns raw Ethernet: frames that RAW_PACKET queues send, and who gets them.
 *
 *	send WQE --> frame, checksums filled in --> every receiver of the same adapter in this process, but the sender
 *	                                             |  a queue pair with a receive queue: that
 *	                                             +- one with an indirection table: the receive WQ that the hash names
 *
 * There is no steering and no wire yet: a frame goes to all, as on a hub. A receiver without a WQE loses it.
 *
 * The list of raw queue pairs is read inside read sections and written under its lock.
 */
#include "card/internal.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/mlx4dv.h>

#include "base/fault.h"
#include "base/rcu.h"

enum { ETH_HEADER = 14, VLAN_TAG = 4, ETH_IPV4 = 0x0800, ETH_IPV6 = 0x86dd, ETH_VLAN = 0x8100 };

static struct vb_lock list_lock;
static _Atomic(struct vb_qp *) raw_list;

void vb_raw_add(struct vb_qp *qp)
{
	vb_lock(&list_lock);
	atomic_store_explicit(&qp->next_raw, atomic_load(&raw_list), memory_order_relaxed);
	atomic_store_explicit(&raw_list, qp, memory_order_release);
	vb_unlock(&list_lock);
}

/* The caller waits for readers before it frees the queue pair. */
void vb_raw_remove(struct vb_qp *qp)
{
	_Atomic(struct vb_qp *) *at = &raw_list;

	vb_lock(&list_lock);
	while (atomic_load(at) && atomic_load(at) != qp)
		at = &atomic_load(at)->next_raw;
	if (atomic_load(at))
		atomic_store(at, atomic_load(&qp->next_raw));
	vb_unlock(&list_lock);
}

void vb_raw_forked(void)
{
	list_lock.held = 0;
	atomic_store(&raw_list, NULL);
}

/* --- receive side scaling -------------------------------------------------------------------------------------------- */

int vb_rss_check(const struct vb_dev *dev, const struct vb_rss *rss)
{
	for (uint32_t i = 0; i < rss->count; i++)
		if (!rss->wq[i] || rss->wq[i]->dev != dev || !rss->wq[i]->init.wq)
			return -EINVAL;
	return rss->count && rss->count <= VB_MAX_RSS && !(rss->count & (rss->count - 1)) ? 0
											  : -EINVAL;
}

/* The Toeplitz hash: for every bit that is set, the 32 bits of the key that start at its place. */
static uint32_t toeplitz(const uint8_t *key, const uint8_t *data, size_t len)
{
	uint32_t window, hash = 0;
	size_t next = 32;

	memcpy(&window, key, sizeof(window));
	window = be32toh(window);
	for (size_t i = 0; i < len; i++) {
		for (int bit = 7; bit >= 0; bit--, next++) {
			if (data[i] & 1 << bit)
				hash ^= window;
			window = window << 1 | (key[next / 8] >> (7 - next % 8) & 1);
		}
	}
	return hash;
}

/* --- frames ---------------------------------------------------------------------------------------------------------- */

struct frame {
	uint8_t *data;
	uint32_t len;
	uint32_t l3, l4;  /* offsets of the headers; 0: none that is known */
	bool ipv4;        /* l3 */
	uint8_t protocol; /* of l4: TCP or UDP */
	uint32_t status;  /* as CQEs have it */
	uint16_t checksum;
};

static uint16_t read16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void write16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static void parse_ipv4(struct frame *f)
{
	const uint8_t *ip = f->data + f->l3;
	uint32_t header;

	if (f->len < f->l3 + 20 || ip[0] >> 4 != 4)
		return;
	header = (ip[0] & 0xf) * 4u;
	if (header < 20 || f->len < f->l3 + header)
		return;
	f->ipv4 = true;
	/* Only the first piece of a datagram has the ports, and none a checksum that could be looked at. */
	if (!(read16(ip + 6) & 0x3fff))
		f->l4 = f->l3 + header;
	f->protocol = ip[9];
}

static void parse_ipv6(struct frame *f)
{
	const uint8_t *ip = f->data + f->l3;

	if (f->len < f->l3 + 40 || ip[0] >> 4 != 6)
		return;
	f->l4 = f->l3 + 40;
	f->protocol = ip[6];
}

static void parse(struct frame *f)
{
	uint32_t at = ETH_HEADER;
	uint16_t type = read16(f->data + 12);

	if (type == ETH_VLAN && f->len >= at + VLAN_TAG) {
		type = read16(f->data + 16);
		at += VLAN_TAG;
	}
	if (type != ETH_IPV4 && type != ETH_IPV6)
		return;
	f->l3 = at;
	if (type == ETH_IPV4)
		parse_ipv4(f);
	else
		parse_ipv6(f);
	if (!f->ipv4 && !f->l4) {
		f->l3 = 0;
		return;
	}
	if (f->l4 && ((f->protocol != IPPROTO_TCP && f->protocol != IPPROTO_UDP) ||
		      f->len < f->l4 + (f->protocol == IPPROTO_TCP ? 20u : 8u)))
		f->l4 = 0;
}

static uint32_t sum16(const uint8_t *data, uint32_t len, uint32_t sum)
{
	for (; len > 1; len -= 2, data += 2)
		sum += read16(data);
	return len ? sum + ((uint32_t)data[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* The end of what IP carries: a short frame is padded behind it. */
static uint32_t payload_end(const struct frame *f)
{
	const uint8_t *ip = f->data + f->l3;
	uint32_t end = f->l3 + (f->ipv4 ? read16(ip + 2) : 40u + read16(ip + 4));

	return end < f->len ? end : f->len;
}

/* Over the pseudo header and everything behind it: 0xffff where the checksum inside is right. */
static uint16_t l4_sum(const struct frame *f)
{
	const uint8_t *ip = f->data + f->l3;
	uint32_t end = payload_end(f), sum = f->protocol;

	if (end < f->l4)
		return 0;
	sum += end - f->l4;
	sum = f->ipv4 ? sum16(ip + 12, 8, sum) : sum16(ip + 8, 32, sum);
	return fold(sum16(f->data + f->l4, end - f->l4, sum));
}

static void fill_checksums(struct frame *f, uint8_t flags)
{
	uint8_t *ip = f->data + f->l3, *at;
	uint16_t sum;

	if (f->ipv4 && (flags & VB_WR_IP_CSUM)) {
		write16(ip + 10, 0);
		write16(ip + 10, (uint16_t)~fold(sum16(ip, (ip[0] & 0xf) * 4u, 0)));
	}
	if (!f->l4 || !(flags & VB_WR_L4_CSUM))
		return;
	at = f->data + f->l4 + (f->protocol == IPPROTO_TCP ? 16 : 6);
	write16(at, 0);
	sum = (uint16_t)~l4_sum(f);
	write16(at, sum || f->protocol == IPPROTO_TCP ? sum : 0xffff);
}

/* What a receiver is told about the frame. */
static void judge(struct frame *f)
{
	const uint8_t *ip = f->data + f->l3;

	f->checksum = fold(sum16(f->data + ETH_HEADER, f->len - ETH_HEADER, 0));
	if (f->ipv4) {
		f->status |= MLX4_CQE_STATUS_IPV4_PKT;
		if (fold(sum16(ip, (ip[0] & 0xf) * 4u, 0)) == 0xffff)
			f->status |= MLX4_CQE_STATUS_IP_HDR_CSUM_OK;
	}
	if (f->l4 && l4_sum(f) == 0xffff)
		f->status |= MLX4_CQE_STATUS_TCP_UDP_CSUM_OK;
}

/* The fields that the receiver hashes, of those that the frame has. */
static uint32_t hash_frame(const struct vb_rss *rss, const struct frame *f)
{
	const uint8_t *ip = f->data + f->l3;
	uint32_t size = f->ipv4 ? 4 : 16, addresses = f->ipv4 ? 12 : 8;
	uint64_t source = f->ipv4 ? IBV_RX_HASH_SRC_IPV4 : IBV_RX_HASH_SRC_IPV6;
	uint64_t destination = f->ipv4 ? IBV_RX_HASH_DST_IPV4 : IBV_RX_HASH_DST_IPV6;
	bool tcp = f->protocol == IPPROTO_TCP;
	uint8_t input[36];
	size_t n = 0;

	if (!f->l3)
		return 0;
	if (rss->fields & source) {
		memcpy(input, ip + addresses, size);
		n = size;
	}
	if (rss->fields & destination) {
		memcpy(input + n, ip + addresses + size, size);
		n += size;
	}
	if (f->l4 && (rss->fields & (tcp ? IBV_RX_HASH_SRC_PORT_TCP : IBV_RX_HASH_SRC_PORT_UDP))) {
		memcpy(input + n, f->data + f->l4, 2);
		n += 2;
	}
	if (f->l4 && (rss->fields & (tcp ? IBV_RX_HASH_DST_PORT_TCP : IBV_RX_HASH_DST_PORT_UDP))) {
		memcpy(input + n, f->data + f->l4 + 2, 2);
		n += 2;
	}
	return toeplitz(rss->key, input, n);
}

static void deliver(struct vb_qp *to, const struct frame *f)
{
	struct vb_completion c = {
		.byte_len = f->len,
		.frame_status = f->status,
		.frame_checksum = f->checksum,
	};
	uint32_t hash;

	if (to->rss) {
		hash = hash_frame(to->rss, f);
		c.imm = htobe32(hash);
		to = to->rss->wq[hash & (to->rss->count - 1)];
	}
	if (to->rq.count)
		vb_responder_frame(to, f->data, f->len, &c);
}

/* sq.lock is held, inside a read section. */
enum ibv_wc_status vb_raw_send(struct vb_qp *qp, const struct vb_wr *wr, const struct iovec *iov,
			       int cnt)
{
	struct frame f = { .data = qp->frame };
	struct vb_qp *to;

	if (wr->op != VB_WR_SEND)
		return IBV_WC_LOC_QP_OP_ERR; /* large frames are not cut yet */
	if (wr->len < ETH_HEADER || wr->len > VB_MAX_FRAME)
		return IBV_WC_LOC_LEN_ERR;
	for (int i = 0; i < cnt; i++) {
		if (vb_fault_copy(f.data + f.len, iov[i].iov_base, iov[i].iov_len))
			return IBV_WC_LOC_PROT_ERR;
		f.len += (uint32_t)iov[i].iov_len;
	}
	parse(&f);
	fill_checksums(&f, wr->flags);
	judge(&f);
	for (to = atomic_load_explicit(&raw_list, memory_order_acquire); to;
	     to = atomic_load_explicit(&to->next_raw, memory_order_acquire))
		if (to != qp && to->dev->adapter == qp->dev->adapter &&
		    vb_qp_receives(vb_qp_state(to)))
			deliver(to, &f);
	return IBV_WC_SUCCESS;
}

/* --- receive work queues ----------------------------------------------------------------------------------------------- */

int vb_wq_modify(struct vb_qp *qp, enum ibv_wq_state to)
{
	enum ibv_qp_state from = vb_qp_state(qp);

	if (vb_dev_stale(qp->dev) || !qp->init.wq)
		return -EINVAL;
	switch (to) {
	case IBV_WQS_RESET:
		break;
	case IBV_WQS_RDY:
		if (from != IBV_QPS_RESET && from != IBV_QPS_RTR)
			return -EINVAL;
		break;
	case IBV_WQS_ERR:
		if (from == IBV_QPS_RESET)
			return -EINVAL;
		break;
	default:
		return -EINVAL;
	}
	vb_read_lock();
	vb_lock(&qp->rq.lock);
	atomic_store(&qp->state, to == IBV_WQS_RDY   ? IBV_QPS_RTR
				 : to == IBV_WQS_ERR ? IBV_QPS_ERR
						     : IBV_QPS_RESET);
	if (to == IBV_WQS_RESET)
		vb_responder_reset(qp, 0);
	else if (to == IBV_WQS_ERR)
		vb_responder_flush(qp);
	vb_unlock(&qp->rq.lock);
	vb_read_unlock();
	return 0;
}
