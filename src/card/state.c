// SPDX-License-Identifier: MIT
/* Owns the card's state as it begins, and the card of the program; see state.h. */
#include "card/state.h"

#include <stdlib.h>

#include "base/util.h"
#include "card/device.h"
#include "steer/steer.h"

static struct vb_card vb_card;
struct vb_host vb_host_program = { .meet = &vb_registry_program,
				   .fabric = &vb_fabric_program,
				   .card = &vb_card };
static struct vb_card *_Atomic begun; /* &vb_card once it is one, for vb_card_begun() */

static struct vb_lock cards_lock; /* of changing the list */
static _Atomic(struct vb_card *)
	cards; /* NULL-ended; whole at any time, as a forked child may find it */

static void begin_numbers(struct vb_card *card)
{
	card->numbers.pd = (struct vb_ids)VB_IDS_INIT(1, VB_PD_MAX);
	/* Keys below 0x1000 mean things in the queue formats (mlx5 and mlx4 end a list with 0x100). */
	card->numbers.mr = (struct vb_ids)VB_IDS_INIT(16, VB_SEG_MR_CHUNK * VB_SEG_MR_CHUNKS - 16);
	card->numbers.cq = (struct vb_ids)VB_IDS_INIT(1, VB_CQ_MAX);
	card->numbers.eq = (struct vb_ids)VB_IDS_INIT(1, VB_EQ_MAX);
	card->numbers.srq = (struct vb_ids)VB_IDS_INIT(1, VB_SRQ_MAX);
	card->numbers.qp =
		(struct vb_ids)VB_IDS_INIT(VB_QP_FIRST_INDEX, VB_QP_MAX_INDEX - VB_QP_FIRST_INDEX);
	card->numbers.umem = (struct vb_ids)VB_IDS_INIT(1, VB_UMEM_MAX);
	card->numbers.uar = (struct vb_ids)VB_IDS_INIT(1, VB_UAR_MAX);
	card->numbers.tir = (struct vb_ids)VB_IDS_INIT(1, VB_TIR_MAX);
	card->numbers.transport_domain = (struct vb_ids)VB_IDS_INIT(1, VB_TIR_MAX);
	card->numbers.emu_map = (struct vb_ids)VB_IDS_INIT(1, VB_EMU_MAPS);
	card->numbers.emu_eq = (struct vb_ids)VB_IDS_INIT(1, VB_EMU_EQS);
}

void vb_card_begin(struct vb_card *card, struct vb_host *host)
{
	card->host = host;
	card->fabric = host->fabric;
	card->meet = host->meet;
	begin_numbers(card);
	pthread_mutex_init(&card->adapters.interfaces_lock, NULL);
	pthread_mutex_init(&card->mr.lock, NULL);
	pthread_cond_init(&card->mr.called, NULL);
	pthread_mutex_init(&card->flow.lock, NULL);
	pthread_mutex_init(&card->tir.lock, NULL);
	pthread_mutex_init(&card->tap.lock, NULL);
	pthread_mutex_init(&card->emulation.lock, NULL);
	pthread_mutex_init(&card->umem_lock, NULL);
	atomic_init(&card->alarms.next, UINT64_MAX);
	pthread_mutex_init(&card->inject.lock, NULL);
	pthread_mutex_init(&card->inject.script_lock, NULL);
	pthread_mutex_init(&card->hbl.lock, NULL);
}

static struct vb_card *card_next(_Atomic(struct vb_card *) *link)
{
	return atomic_load_explicit(link, memory_order_relaxed);
}

/* With the lock: what leads to the card, or the end of the list. */
static _Atomic(struct vb_card *) *card_link(const struct vb_card *card)
{
	_Atomic(struct vb_card *) *link = &cards;

	while (card_next(link) && card_next(link) != card)
		link = &card_next(link)->next;
	return link;
}

void vb_card_join(struct vb_card *card)
{
	vb_lock(&cards_lock);
	/* The program's is there already in a child that was forked at the end of program_begin(). */
	if (!card_next(card_link(card))) {
		atomic_store_explicit(&card->next, card_next(&cards), memory_order_relaxed);
		/* Pairs with vb_cards_each(). */
		atomic_store_explicit(&cards, card, memory_order_release);
	}
	vb_unlock(&cards_lock);
}

static void card_leave(struct vb_card *card)
{
	_Atomic(struct vb_card *) *link;

	vb_lock(&cards_lock);
	link = card_link(card);
	if (card_next(link))
		atomic_store_explicit(link, card_next(&card->next), memory_order_relaxed);
	vb_unlock(&cards_lock);
}

void vb_cards_each(void (*call)(struct vb_card *card))
{
	struct vb_card *card = atomic_load_explicit(&cards, memory_order_acquire);

	for (; card; card = card_next(&card->next))
		call(card);
}

void vb_card_end(struct vb_card *card)
{
	struct vb_ids *ids[] = { &card->numbers.pd,     &card->numbers.mr,
				 &card->numbers.cq,     &card->numbers.eq,
				 &card->numbers.srq,    &card->numbers.qp,
				 &card->numbers.umem,   &card->numbers.uar,
				 &card->numbers.tir,    &card->numbers.emu_map,
				 &card->numbers.emu_eq, &card->numbers.transport_domain };

	card_leave(card);
	for (unsigned int i = 0; i < ARRAY_SIZE(ids); i++)
		free(ids[i]->used);
	free(card->inject.eus);
	for (unsigned int i = 0; i < VB_CONFIG_MAX_ADAPTERS; i++)
		for (unsigned int k = 0; k < VB_FLOW_DOMAINS; k++)
			if (card->flow.domain[i][k])
				vb_steer_destroy(card->flow.domain[i][k]);
}

static void program_begin(void)
{
	vb_card_begin(&vb_card, &vb_host_program);
	vb_adapters_init(&vb_card, vb_config_get());
	atomic_store_explicit(&begun, &vb_card, memory_order_release);
	vb_card_join(&vb_card);
}

struct vb_card *vb_card_program(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, program_begin);
	return &vb_card;
}

struct vb_card *vb_card_begun(void)
{
	/* Pairs with program_begin(). */
	return atomic_load_explicit(&begun, memory_order_acquire);
}
