// SPDX-License-Identifier: MIT
/*
 * The same over AF_PACKET sockets on a pair of virtual Ethernet devices: what a host program has
 * without a card.
 */
#include "reflect.h"

#include <errno.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

struct packets {
	int fd;
	uint8_t data[BATCH][SLOT];
	struct iovec iov[BATCH];
	struct mmsghdr msg[BATCH];
};

bool veth_make(void)
{
	return !system("{ ip link add reflect0 type veth peer name reflect1 && ip link set reflect0 up &&"
		       " ip link set reflect1 up; } 2>/dev/null") &&
	       if_nametoindex("reflect1");
}

static void packets_open(struct packets *p, const char *device)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = (int)if_nametoindex(device) };
	int one = 1;

	p->fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	if (p->fd < 0 || bind(p->fd, (struct sockaddr *)&to, sizeof(to)) ||
	    setsockopt(p->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)))
		die("AF_PACKET");
	setsockopt(p->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one));
	for (int i = 0; i < BATCH; i++) {
		p->iov[i] = (struct iovec){ p->data[i], SLOT };
		p->msg[i].msg_hdr = (struct msghdr){ .msg_iov = &p->iov[i], .msg_iovlen = 1 };
	}
}

static void packets_send(struct packets *p, int count)
{
	for (int done = 0, n; done < count; done += n) {
		n = sendmmsg(p->fd, p->msg + done, (unsigned int)(count - done), 0);
		if (n < 0 && errno != ENOBUFS && errno != EAGAIN)
			die("sendmmsg");
		n = n < 0 ? 0 : n;
	}
}

/* Frames for the MAC, at the front; others (the kernel's own) are dropped. */
static int packets_take(struct packets *p, const uint8_t mac[6])
{
	int count, mine = 0;

	for (int i = 0; i < BATCH; i++)
		p->iov[i] = (struct iovec){ p->data[i], SLOT };
	count = recvmmsg(p->fd, p->msg, BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < count; i++)
		if (!memcmp(p->data[i], mac, 6))
			p->iov[mine++] = (struct iovec){ p->data[i], p->msg[i].msg_len };
	return mine;
}

static const uint8_t reflector_mac[6] = { 0x02, 0x42, 0x7e, 0x7f, 0xeb, 0x03 };
static const uint8_t sender_mac[6] = { 0x02, 0x00, 0xbe, 0x00, 0x00, 0x01 };

void veth_reflect(void)
{
	static struct packets p;

	packets_open(&p, "reflect1");
	ready("AF_PACKET");
	for (;;) {
		int count = packets_take(&p, reflector_mac);

		for (int i = 0; i < count; i++)
			swap_macs(p.iov[i].iov_base);
		packets_send(&p, count);
	}
}

static struct packets out, in;

static void sender_open(uint32_t size)
{
	packets_open(&in, "reflect0");
	out = in;
	for (uint32_t i = 0; i < BATCH; i++) {
		make_frame(out.data[i], size, i);
		out.iov[i] = (struct iovec){ out.data[i], size };
		out.msg[i].msg_hdr = (struct msghdr){ .msg_iov = &out.iov[i], .msg_iovlen = 1 };
	}
}

static void sender_run(uint64_t n, uint64_t *lost)
{
	uint64_t sent = 0, got = 0;
	double since = now();

	while (got < n) {
		int count;

		for (; sent - got + BATCH <= WINDOW; sent += BATCH)
			packets_send(&out, BATCH);
		count = packets_take(&in, sender_mac);
		got += (uint64_t)count;
		if (count) {
			since = now();
		} else if (now() - since > GIVE_UP * 1e6) {
			*lost += sent - got;
			sent = got;
			since = now();
		}
	}
	for (since = now(); got < sent && now() - since < GIVE_UP * 1e6;)
		got += (uint64_t)packets_take(&in, sender_mac);
}

static void sender_close(void)
{
	close(in.fd);
}

const struct sender veth_sender = { sender_open, sender_run, sender_close };
