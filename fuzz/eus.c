// SPDX-License-Identifier: MIT
/*
 * What dpaeumgmt reads: the store of EU groups and partitions, and the JSON of `eu_group apply`.
 *
 * The first byte chooses: an even one makes the rest a store, as it is and with the sum that belongs
 * to it; an odd one makes it a file of groups for an adapter in a partition, or for its manager. A
 * store that is taken must give the same text again, and groups that are taken must make such a
 * store.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eumgmt/eumgmt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* To text and back. */
static void round_trip(const struct vb_eus *eus)
{
	struct vb_eus *back = NULL;
	char why[VB_EU_WHY], *text, *again;
	size_t len, again_len;

	text = vb_eus_text(eus, &len);
	assert(text && !vb_eus_parse(text, len, &back, why));
	again = vb_eus_text(back, &again_len);
	assert(again && len == again_len && !memcmp(text, again, len));
	vb_eus_free(back);
	free(again);
	free(text);
}

static void store(const char *text, size_t len)
{
	struct vb_eus *eus = NULL;
	char why[VB_EU_WHY] = "";

	if (!vb_eus_parse(text, len, &eus, why)) {
		round_trip(eus);
		vb_eus_free(eus);
	} else {
		assert(!eus && memchr(why, 0, sizeof(why)) && why[0]);
	}
}

static void store_with_sum(const char *text, size_t len)
{
	uint64_t h = 0xcbf29ce484222325ull;
	char *all = malloc(len + 32);

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
	memcpy(all, text, len);
	len += (size_t)snprintf(all + len, 32, "end %016" PRIx64 "\n", h);
	store(all, len);
	free(all);
}

static void groups(const char *card, const char *text, size_t len)
{
	struct vb_eu_partition what = { .max_groups = 3, .num_vhcas = 1, .vhca = { "mlx5_1" } };
	struct vb_eus *eus = vb_eus_new();
	char why[VB_EU_WHY] = "", *copy = malloc(len + 1);

	assert(!vb_eu_set_parse("40-49", 190, &what.eus, why));
	assert(vb_eus_partition_create(eus, "mlx5_0", 190, &what, why) == 1);
	memcpy(copy, text, len);
	copy[len] = 0;
	if (!groups_from_json(eus, card, 190, copy, len, why))
		round_trip(eus);
	else
		assert(memchr(why, 0, sizeof(why)) && why[0]);
	free(copy);
	vb_eus_free(eus);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (!size)
		return 0;
	switch (data[0] & 3) {
	case 0:
		store(text, size - 1);
		break;
	case 2:
		store_with_sum(text, size - 1);
		break;
	default:
		groups(data[0] & 2 ? "mlx5_1" : "mlx5_0", text, size - 1);
	}
	return 0;
}
