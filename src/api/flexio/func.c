// SPDX-License-Identifier: MIT
/*
 * Owns the functions of an app: what a host stub stands for. Registered under the app's mutex,
 * looked up without a lock; a function stays until the app goes.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

static struct func *_Atomic *func_bucket_of(struct flexio_app *app, flexio_func_t *stub)
{
	return &app->funcs[((uintptr_t)stub * 0x9e3779b97f4a7c15ULL) >> 58];
}

_Static_assert(FUNC_BUCKETS == 1 << (64 - 58), "the hash's width");

const struct func *vb_func_find(struct flexio_app *app, flexio_func_t *stub)
{
	/* Pairs with the release in func_publish(). */
	const struct func *func =
		atomic_load_explicit(func_bucket_of(app, stub), memory_order_acquire);

	while (func && func->stub != stub)
		func = func->next;
	return func;
}

flexio_status vb_func_fail(const struct flexio_app *app, flexio_func_t *stub)
{
	if (!stub)
		return fail("%s: the host function is NULL", app->name);
	return fail("%p is not a function of %s; functions are those that its device code marks "
		    "__dpa_rpc__ or __dpa_global__, or that were registered",
		    (void *)(uintptr_t)stub, app->name);
}

/* Under app.mutex. */
static void func_publish(struct flexio_app *app, struct func *func)
{
	struct func *_Atomic *bucket = func_bucket_of(app, func->stub);

	func->next = atomic_load_explicit(bucket, memory_order_relaxed);
	atomic_store_explicit(bucket, func, memory_order_release);
}

static struct func *func_new(struct flexio_app *app, const char *name)
{
	struct func *func = calloc(1, sizeof(*func));

	if (!func) {
		fail("%s: no memory for function %s", app->name, name);
		return NULL;
	}
	if (vb_dpa_image_symbol(app->image, name, &func->addr, NULL)) {
		fail("%s has no device function %s", app->name, name);
		free(func);
		return NULL;
	}
	strcpy(func->name, name);
	return func;
}

/* Under app.mutex. */
static struct func *find_by_name(struct flexio_app *app, const char *name)
{
	for (unsigned int i = 0; i < FUNC_BUCKETS; i++)
		for (struct func *f = atomic_load_explicit(&app->funcs[i], memory_order_relaxed); f;
		     f = f->next)
			if (!f->unpack && !strcmp(f->name, name))
				return f;
	return NULL;
}

flexio_status flexio_func_register(struct flexio_app *app, const char *dev_func_name,
				   flexio_func_t **out_func)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);
	struct func *func;

	API_CALL();
	if (!pin)
		return bad_handle(app, "app");
	if (!out_func)
		return fail("%s: out_func is NULL", app->name);
	if (!vb_name_valid(dev_func_name))
		return fail("%s: dev_func_name must have 1 to %d bytes", app->name,
			    FLEXIO_MAX_NAME_LEN);
	pthread_mutex_lock(&app->mutex);
	func = find_by_name(app, dev_func_name);
	if (!func) {
		func = func_new(app, dev_func_name);
		if (func) {
			func->stub = (flexio_func_t *)(uintptr_t)func;
			func_publish(app, func);
		}
	}
	pthread_mutex_unlock(&app->mutex);
	if (!func)
		return failed();
	*out_func = func->stub;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_func_pup_register(struct flexio_app *app, const char *dev_func_name,
				       const char *dev_unpack_func_name,
				       flexio_func_t *host_stub_func_addr, size_t argbuf_size,
				       flexio_func_arg_pack_fn_t *host_pack_func)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);
	struct func *func;

	API_CALL();
	if (!pin)
		return bad_handle(app, "app");
	if (!vb_name_valid(dev_func_name) || !vb_name_valid(dev_unpack_func_name))
		return fail("%s: %s must have 1 to %d bytes", app->name,
			    vb_name_valid(dev_func_name) ? "dev_unpack_func_name" : "dev_func_name",
			    FLEXIO_MAX_NAME_LEN);
	if (!host_stub_func_addr || !host_pack_func)
		return fail("%s: %s is NULL", dev_func_name,
			    host_stub_func_addr ? "host_pack_func" : "host_stub_func_addr");
	if (argbuf_size > VB_RTOS_ARGBUF_SIZE)
		return fail("%s: arguments of %zu bytes; the most is %u", dev_func_name,
			    argbuf_size, VB_RTOS_ARGBUF_SIZE);
	func = func_new(app, dev_func_name);
	if (!func)
		return failed();
	if (vb_dpa_image_symbol(app->image, dev_unpack_func_name, &func->unpack, NULL)) {
		free(func);
		return fail("%s has no device function %s", app->name, dev_unpack_func_name);
	}
	strcpy(func->unpack_name, dev_unpack_func_name);
	func->stub = host_stub_func_addr;
	func->argbuf_size = argbuf_size;
	func->pack = host_pack_func;
	pthread_mutex_lock(&app->mutex);
	if (vb_func_find(app, host_stub_func_addr)) {
		pthread_mutex_unlock(&app->mutex);
		free(func);
		return fail("%s: the stub at %p is registered already", dev_func_name,
			    (void *)(uintptr_t)host_stub_func_addr);
	}
	func_publish(app, func);
	pthread_mutex_unlock(&app->mutex);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_func_get_register_info(struct flexio_app *app,
					    flexio_func_t *host_stub_func_addr, uint32_t *pup,
					    char *dev_func_name, char *dev_unpack_func_name,
					    size_t func_name_size, size_t *argbuf_size,
					    flexio_func_arg_pack_fn_t **host_pack_func,
					    flexio_uintptr_t *dev_func_addr,
					    flexio_uintptr_t *dev_unpack_func_addr)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);
	const struct func *func;

	API_CALL();
	if (!pin)
		return bad_handle(app, "app");
	func = vb_func_find(app, host_stub_func_addr);
	if (!func)
		return vb_func_fail(app, host_stub_func_addr);
	if ((dev_func_name && strlen(func->name) >= func_name_size) ||
	    (dev_unpack_func_name && strlen(func->unpack_name) >= func_name_size))
		return fail("%s: func_name_size is %zu; names take up to %d", func->name,
			    func_name_size, FLEXIO_MAX_NAME_LEN + 1);
	if (pup)
		*pup = func->unpack != 0;
	if (dev_func_name)
		strcpy(dev_func_name, func->name);
	if (dev_unpack_func_name)
		strcpy(dev_unpack_func_name, func->unpack_name);
	if (argbuf_size)
		*argbuf_size = func->argbuf_size;
	if (host_pack_func)
		*host_pack_func = func->pack;
	if (dev_func_addr)
		*dev_func_addr = func->addr;
	if (dev_unpack_func_addr)
		*dev_unpack_func_addr = func->unpack;
	return FLEXIO_STATUS_SUCCESS;
}
