/* SPDX-License-Identifier: MIT */
/* What the programs here share: open an adapter, go on or say what failed. C and C++. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>
#include <libflexio/flexio.h>

#define need(expr)                                                                 \
	do {                                                                       \
		if (!(expr)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #expr); \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

static inline struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	need(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	need(ctx);
	ibv_free_device_list(list);
	return ctx;
}
