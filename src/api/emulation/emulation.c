// SPDX-License-Identifier: MIT
/*
 * Owns the public names of <verbatim/emulation.h>: arguments are checked here, all else is the card's
 * (card/emulation/emulation.h).
 */
#include <verbatim/emulation.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/edge.h"
#include "base/public.h"
#include "card/card.h"
#include "card/emulation/emulation.h"

enum { MARK = 0x656d7566 };

struct verbatim_function {
	uint32_t mark; /* MARK while it is open */
	struct vb_emu_driver *card;
};

_Static_assert(sizeof(((struct verbatim_function_info *)0)->adapter) == VB_NAME_MAX,
	       "names of adapters fit");

/* 0, or -EINVAL after a log line. */
static int emulation_check(const struct verbatim_function *function)
{
	if (!function)
		return vb_refuse_null("function");
	return function->mark == MARK ? 0 : vb_refuse_combination("function is not an open one");
}

/* From the card's convention, with errno for those who print it. */
static int result(int ret)
{
	return ret < 0 ? -api_fail(-ret) : ret;
}

static void emulation_fill(struct verbatim_function_info *to, const struct vb_function_info *from)
{
	*to = (struct verbatim_function_info){ .vhca_id = from->vhca_id,
					       .queues = from->queues,
					       .vectors = from->vectors };
	snprintf(to->adapter, sizeof(to->adapter), "%s", from->adapter->config->name);
}

VB_PUBLIC int verbatim_function_list(struct verbatim_function_info *list, unsigned int max)
{
	struct vb_adapter *const *adapters;
	struct vb_function_info info;
	unsigned int count, found = 0;
	int err;

	API_CALL();
	if (max && !list)
		return result(vb_refuse_null("list"));
	err = vb_card_adapters(vb_card_program(), &adapters, &count);
	if (err)
		return result(err);
	for (unsigned int i = 0; i < count; i++)
		for (unsigned int n = 0; vb_function_info(adapters[i], n, &info); n++, found++)
			if (found < max)
				emulation_fill(&list[found], &info);
	return (int)found;
}

VB_PUBLIC struct verbatim_function *verbatim_function_open(uint32_t vhca_id)
{
	struct verbatim_function *function;
	int err;

	API_CALL(.kind = "function", .number = vhca_id);
	function = calloc(1, sizeof(*function));
	if (!function)
		return api_refuse_null(memory, "the function");
	err = vb_emu_driver_open(vb_card_program(), vhca_id, &function->card);
	if (err) {
		free(function);
		return api_null(-err);
	}
	function->mark = MARK;
	return function;
}

VB_PUBLIC int verbatim_function_close(struct verbatim_function *function)
{
	int err;

	API_CALL();
	if (!function)
		return 0;
	err = emulation_check(function);
	if (err)
		return result(err);
	function->mark = 0;
	vb_emu_driver_close(function->card);
	free(function);
	return 0;
}

VB_PUBLIC int verbatim_function_query(const struct verbatim_function *function,
				      struct verbatim_function_info *info)
{
	int err;

	API_CALL();
	err = emulation_check(function);
	if (!err && !info)
		err = vb_refuse_null("info");
	if (err)
		return result(err);
	emulation_fill(info, vb_emu_driver_info(function->card));
	return 0;
}

VB_PUBLIC volatile uint32_t *verbatim_function_doorbells(struct verbatim_function *function)
{
	void *page;
	int err;

	API_CALL();
	err = emulation_check(function);
	if (err)
		return api_null(-err);
	page = vb_emu_driver_page(function->card);
	return page ? page : api_null(ENOTSUP);
}

VB_PUBLIC int verbatim_function_ring(struct verbatim_function *function, uint32_t queue,
				     uint32_t value)
{
	int err;

	API_CALL();
	err = emulation_check(function);
	return result(err ? err : vb_emu_driver_ring(function->card, queue, value));
}

VB_PUBLIC int verbatim_function_eventfd(struct verbatim_function *function, uint32_t vector)
{
	int err;

	API_CALL();
	err = emulation_check(function);
	return result(err ? err : vb_emu_driver_eventfd(function->card, vector));
}

VB_PUBLIC int verbatim_function_served(const struct verbatim_function *function, uint32_t queue)
{
	int err;

	API_CALL();
	err = emulation_check(function);
	return result(err ? err : vb_emu_driver_served(function->card, queue));
}
