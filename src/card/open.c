// SPDX-License-Identifier: MIT
/* Owns the memory of cards that tests open; see open.h. */
#include "card/open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/util.h"
#include "card/state.h"
#include "card/device.h"
#include "fabric/host.h"

/* Megabytes, nearly all of them tables that stay zeros: mapped, so that they take no memory. */
struct opened {
	struct vb_card card;
	struct vb_config config; /* adapters point into it */
};

/* config NULL: the configuration of the process. */
static int opened_configure(struct opened *new, const char *config, char *words, unsigned int size)
{
	const struct vb_config *own;

	if (config)
		return vb_config_read_text(config, &new->config, words, size);
	own = vb_config_get();
	if (!own) {
		snprintf(words, size, "the configuration of the process is bad");
		return -errno;
	}
	new->config = *own;
	return 0;
}

int vb_card_open(const char *config, struct vb_card **card, char *words, unsigned int size)
{
	struct opened *new = mmap(NULL, sizeof(*new), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct vb_host *host;
	int ret;

	if (new == MAP_FAILED) {
		snprintf(words, size, "no memory for a card");
		return -ENOMEM;
	}
	ret = opened_configure(new, config, words, size);
	if (!ret) {
		ret = vb_host_make(&host);
		if (ret)
			snprintf(words, size, "no memory for a host");
	}
	if (ret) {
		munmap(new, sizeof(*new));
		return ret;
	}
	host->card = &new->card;
	vb_card_begin(&new->card, host);
	vb_adapters_init(&new->card, &new->config);
	vb_card_join(&new->card);
	*card = &new->card;
	return 0;
}

static bool opened_has_devices(struct vb_card *card)
{
	bool open;

	pthread_mutex_lock(&card->inject.lock);
	open = card->inject.devs;
	pthread_mutex_unlock(&card->inject.lock);
	for (uint32_t i = 0; i < VB_HBL_DEVICES; i++)
		open |= atomic_load_explicit(&card->hbl.devices[i], memory_order_relaxed) != NULL;
	return open;
}

int vb_card_close(struct vb_card *card)
{
	if (opened_has_devices(card))
		return vb_refuse_busy("devices");
	vb_card_end(card); /* no fork finds it any more */
	vb_host_free(card->host);
	munmap(container_of(card, struct opened, card), sizeof(struct opened));
	return 0;
}
