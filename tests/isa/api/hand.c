// SPDX-License-Identifier: MIT
#include "hand.h"

void hand_begin(struct hand *h)
{
	static const uint64_t uses[33] = { 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 };

	memset(h, 0, sizeof(*h));
	h->text = (struct vb_text){ .lo = RV_TEXT, .hi = RV_TEXT + 4096 };
	h->jit.text = &h->text;
	h->jit.limit = HAND_LIMIT;
	h->epoch.table_disp = -(2 << 20);
	choose_registers(uses, h->epoch.host);
	memcpy(h->gen.host, h->epoch.host, sizeof(h->gen.host));
	h->gen.sites = h->sites;
	h->gen.nsites = HAND_SITES;
	h->tx = (struct tx){ .jit = &h->jit, .epoch = &h->epoch, .gen = &h->gen };
	h->tx.c = (struct code){ h->bytes, h->bytes, h->bytes + sizeof(h->bytes), false };
	emit_thunks(&h->tx);
	h->c = &h->tx.c;
	for (unsigned i = 0; i < HAND_SITES; i++)
		h->sites[i].host = code_offset(h->c) + i;
}

void hand_leader(struct hand *h)
{
	h->offsets[h->leaders++] = code_offset(h->c);
}

void hand_leave(struct hand *h)
{
	jmp_to(h->c, h->tx.thunks.leave);
}

void hand_raw(struct hand *h, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put8(h->c, (uint8_t)bytes[i]);
}

int hand_verify(const struct hand *h, char *why, size_t size)
{
	struct verify v = { .code = h->bytes,
			    .len = code_offset(h->c),
			    .host = h->gen.host,
			    .limit = HAND_LIMIT,
			    .text_lo = h->text.lo,
			    .text_len = h->text.hi - h->text.lo,
			    .table = h->epoch.table_disp,
			    .gen = &h->gen,
			    .sites = h->gen.sites,
			    .nsites = h->gen.nsites,
			    .offsets = h->offsets,
			    .noffsets = 8,
			    .enter = h->tx.thunks.enter,
			    .miss = h->tx.thunks.miss,
			    .fences = h->fences,
			    .forget = true };
	char full[160] = "";
	int err = vb_jit_verify(&v, full, sizeof(full));

	v.forget = false;
	why[0] = 0;
	assert_int_equal(vb_jit_verify(&v, why, size), err);
	assert_string_equal(why, full);
	return err;
}

void hand_expect(const char *what, void (*make)(struct hand *h), const char *refusal)
{
	struct hand *h = malloc(sizeof(*h));
	char why[160];
	int err;

	hand_begin(h);
	hand_leader(h);
	make(h);
	hand_leave(h);
	err = hand_verify(h, why, sizeof(why));
	if (!refusal && err)
		fail_msg("%s: refused: %s", what, why);
	if (refusal && (err != -EBADMSG || !strstr(why, refusal)))
		fail_msg("%s: %d, \"%s\"; expected \"%s\"", what, err, why, refusal);
	free(h);
}
