/* SPDX-License-Identifier: MIT */
/* Device programs by name, and their functions by the address of a stub: app.c, func.c. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#define FLEXIO_ALLOW_EXPERIMENTAL_API
#include <libflexio/flexio.h>

#include "dpa/dpa.h"

/* A registered function. Found by the address of its stub; lives as long as the app. */
struct func {
	struct func *next;   /* in its bucket; written before it is published */
	flexio_func_t *stub; /* of the host; func_register: the address of this struct */
	uint64_t addr;       /* of the device function */
	uint64_t unpack;     /* of the device's unpack function; 0: takes one uint64_t */
	size_t argbuf_size;
	flexio_func_arg_pack_fn_t *pack;
	char name[FLEXIO_MAX_NAME_LEN + 1];
	char unpack_name[FLEXIO_MAX_NAME_LEN + 1];
};

#define FUNC_BUCKETS 64

struct flexio_app {
	char name[FLEXIO_MAX_NAME_LEN + 1];
	_Atomic(enum flexio_hw_model_id) model; /* DEF: not registered */
	void *elf;
	size_t elf_size;
	struct vb_dpa_image *image; /* for symbols */
	pthread_mutex_t mutex;      /* registration */
	struct func *_Atomic funcs[FUNC_BUCKETS];
	_Atomic unsigned int users; /* processes */
	struct flexio_app *next;    /* list of all apps, in the order of creation */
};

/* True where text is a string of 1 to FLEXIO_MAX_NAME_LEN bytes. */
bool vb_name_valid(const char *text);
/* Take a reference: the app cannot be destroyed. False: not a valid app. */
bool vb_app_get(struct flexio_app *app);
void vb_app_put(struct flexio_app *app);
/* NULL: the stub is not registered with the app. */
const struct func *vb_func_find(struct flexio_app *app, flexio_func_t *stub);
/* Fail because the app has no function of this stub. */
flexio_status vb_func_fail(const struct flexio_app *app, flexio_func_t *stub);
