/* SPDX-License-Identifier: MIT */
/*
 * Cards besides that of the program, for tests and simulations: each is the card of a host of its own, with
 * adapters of its own configuration and tables of its own. No installed header names them, and the devices
 * that a program lists are never theirs.
 */
#pragma once

#include "card/card.h"

/*
 * A card with the adapters of a configuration, in the form of its file (base/config.h); NULL: the process's own, for
 * a host like that of the program. 0, or -errno and words: -EINVAL where the configuration is bad, -ENOMEM.
 */
VB_PUBLIC int vb_card_open(const char *config, struct vb_card **card, char *words,
			   unsigned int size);
/* -EBUSY while a device of it is open. */
VB_PUBLIC int vb_card_close(struct vb_card *card);
