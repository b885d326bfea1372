// SPDX-License-Identifier: MIT
/*
 * Owns what direct users register with the card by number and name in queues later: memory for
 * rings (umem), and the numbers of doorbell pages.
 */
#include "card/queue/umem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "card/device.h"
#include "card/memory/keys.h"
#include "card/queue/doorbell.h"

struct vb_umem {
	struct vb_dev *dev;
	uint32_t number;
	unsigned int users; /* queues in it; under the table's lock */
	uint8_t *addr;
	size_t size;
	bool writable;                                            /* by the card */
	void *(*find)(void *arg, uint64_t offset, uint64_t size); /* instead of the two */
	void *arg;
};

static int umem_add(const struct vb_umem *content, struct vb_umem **out)
{
	struct vb_card *card = vb_dev_card(content->dev);
	int64_t number = vb_ids_take(&card->numbers.umem, VB_UMEM_MAX);
	struct vb_umem *umem;

	if (number < 0)
		return vb_refuse_numbers(VB_UMEM_MAX, "umems");
	umem = calloc(1, sizeof(*umem));
	if (!umem) {
		vb_ids_give(&card->numbers.umem, (uint32_t)number);
		return vb_refuse_memory("the umem");
	}
	*umem = *content;
	umem->number = (uint32_t)number;
	pthread_mutex_lock(&card->umem_lock);
	card->tables.umem[number] = umem;
	pthread_mutex_unlock(&card->umem_lock);
	atomic_fetch_add_explicit(&umem->dev->objects, 1, memory_order_release);
	*out = umem;
	return 0;
}

int vb_umem_reg(struct vb_dev *dev, void *addr, size_t size, unsigned int access,
		struct vb_umem **out)
{
	struct vb_umem content = { .dev = dev, .addr = addr, .size = size };
	int ret;

	content.writable = access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_ATOMIC);
	if (vb_dev_stale(dev))
		return vb_refuse_forked();
	if (!size)
		return vb_refuse_value("size", 0);
	ret = vb_mr_check_memory(addr, size, access);
	return ret ? ret : umem_add(&content, out);
}

int vb_umem_reg_owned(struct vb_dev *dev, void *(*find)(void *arg, uint64_t offset, uint64_t size),
		      void *arg, struct vb_umem **out)
{
	struct vb_umem content = { .dev = dev, .writable = true, .find = find, .arg = arg };

	return vb_dev_stale(dev) ? vb_refuse_forked() : umem_add(&content, out);
}

void vb_umem_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->umem_lock, NULL);
}

int vb_umem_dereg(struct vb_umem *umem)
{
	struct vb_card *card = vb_dev_card(umem->dev);
	bool busy;

	pthread_mutex_lock(&card->umem_lock);
	busy = umem->users;
	if (!busy)
		card->tables.umem[umem->number] = NULL;
	pthread_mutex_unlock(&card->umem_lock);
	if (busy)
		return vb_refuse_busy("queues");
	vb_ids_give(&card->numbers.umem, umem->number);
	atomic_fetch_sub_explicit(&umem->dev->objects, 1, memory_order_release);
	free(umem);
	return 0;
}

uint32_t vb_umem_number(const struct vb_umem *umem)
{
	return umem->number;
}

bool vb_umem_writable(const struct vb_umem *umem)
{
	return umem->writable;
}

/* Under the table's lock. */
static void *umem_place(const struct vb_umem *umem, uint64_t offset, uint64_t size)
{
	if (umem->find)
		return umem->find(umem->arg, offset, size);
	return size <= umem->size && offset <= umem->size - size ? umem->addr + offset : NULL;
}

struct vb_umem *vb_umem_get(struct vb_dev *dev, uint32_t number, uint64_t offset, uint64_t size,
			    void **addr)
{
	struct vb_card *card = vb_dev_card(dev);
	struct vb_umem *umem;
	void *at = NULL;

	if (number > VB_UMEM_MAX)
		return NULL;
	pthread_mutex_lock(&card->umem_lock);
	umem = card->tables.umem[number];
	if (umem && umem->dev == dev)
		at = umem_place(umem, offset, size);
	if (at)
		umem->users++;
	pthread_mutex_unlock(&card->umem_lock);
	if (!at)
		return NULL;
	*addr = at;
	return umem;
}

void vb_umem_put(struct vb_umem *umem)
{
	struct vb_card *card = vb_dev_card(umem->dev);

	pthread_mutex_lock(&card->umem_lock);
	umem->users--;
	pthread_mutex_unlock(&card->umem_lock);
}

int64_t vb_uar_number_take(struct vb_card *card)
{
	return vb_ids_take(&card->numbers.uar, VB_UAR_MAX);
}

void vb_uar_number_give(struct vb_card *card, uint32_t number)
{
	vb_ids_give(&card->numbers.uar, number);
}
