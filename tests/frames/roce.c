// SPDX-License-Identifier: MIT
/*
 * What src/packet makes of packets, for roce.py to compare with scapy. A line in, a line out, bytes in hex:
 *
 *	encode BYTES     a packet made of these bytes (tests/unit/roce_kit.h): its fields, frame=FRAME; or "refused"
 *	decode FRAME     the fields of the packet, data=DATA; or "error NAME"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/roce_kit.h"

static char line[1 << 16];
static uint8_t bytes[1 << 15];

static uint32_t unhex(const char *text, uint8_t *to)
{
	uint32_t n = 0;
	unsigned int byte;

	for (; text && sscanf(text, "%2x", &byte) == 1; text += 2)
		to[n++] = (uint8_t)byte;
	return n;
}

static void print_bytes(const char *name, const void *data, size_t len)
{
	printf(" %s=", name);
	for (size_t i = 0; i < len; i++)
		printf("%02x", ((const uint8_t *)data)[i]);
}

static void print_fields(const struct vb_roce_route *r, const struct vb_pkt *p)
{
	print_bytes("dmac", r->dmac, 6);
	print_bytes("smac", r->smac, 6);
	print_bytes("sgid", &r->sgid, 16);
	print_bytes("dgid", &r->dgid, 16);
	printf(" tagged=%u vlan=%u network=%u tclass=%u hops=%u flow=%u sport=%u id=%u df=%u",
	       r->tagged, r->vlan, r->network, r->traffic_class, r->hop_limit, r->flow_label,
	       r->sport, r->ip_id, r->ip_df);
	printf(" pkey=%u migreq=%u fecn=%u becn=%u reserved=%u", r->pkey, r->migreq, r->fecn,
	       r->becn, r->reserved);
	printf(" op=%u transport=%u flags=%u dqpn=%u sqpn=%u psn=%u syndrome=%u msn=%u", p->op,
	       p->transport, p->flags, p->dqpn, p->sqpn, p->psn, p->syndrome, p->msn);
	print_bytes("imm", &p->imm, 4);
	printf(" inv_rkey=%u qkey=%u srqn=%u va=%lu rkey=%u dma_len=%u swap_add=%lu compare=%lu",
	       p->inv_rkey, p->qkey, p->xrc_srqn, (unsigned long)p->va, p->rkey, p->dma_len,
	       (unsigned long)p->swap_add, (unsigned long)p->compare);
}

static void do_encode(const char *word)
{
	static struct roce_case c;
	static uint8_t frame[ROCE_FRAME_MAX];
	size_t len;

	roce_case_make(&c, bytes, unhex(word, bytes));
	len = roce_case_encode(&c, VB_ROCE_ETHERNET, frame);
	if (!len) {
		printf("refused");
		return;
	}
	print_fields(&c.route, &c.pkt);
	print_bytes("data", c.data, c.pkt.len);
	print_bytes("frame", frame, len);
}

static void do_decode(const char *word)
{
	struct vb_roce_packet got;
	enum vb_roce_error error = vb_roce_decode_frame(bytes, unhex(word, bytes), &got);

	if (error) {
		printf("error %s", vb_roce_error_name(error));
		return;
	}
	print_fields(&got.route, &got.pkt);
	print_bytes("data", got.iov.iov_base, got.pkt.len);
}

int main(void)
{
	while (fgets(line, sizeof(line), stdin)) {
		char *what = strtok(line, " \n"), *word = strtok(NULL, " \n");

		if (what && !strcmp(what, "encode"))
			do_encode(word);
		else if (what && !strcmp(what, "decode"))
			do_decode(word);
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
