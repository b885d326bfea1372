// SPDX-License-Identifier: MIT
/*
 * Libraries with apps that come and go with dlopen and dlclose. This program itself is linked with nothing of ours but
 * libibverbs: libflexio comes with the library.
 */
#include <dlfcn.h>

#include "need.h"

typedef uint64_t count_fn(struct ibv_context *ctx, uint64_t times);

static uint64_t count(const char *file, const char *name, struct ibv_context *ctx, uint64_t times)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	count_fn *fn;
	uint64_t result;

	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	need(library);
	*(void **)&fn = dlsym(library, name);
	need(fn);
	result = fn(ctx, times);
	need(!dlclose(library));
	return result;
}

/* Apps that are alive, if libflexio is there. */
static uint32_t apps(void)
{
	void *library = dlopen("libflexio.so.1", RTLD_NOW | RTLD_NOLOAD);
	flexio_status (*get)(struct flexio_app * **list, uint32_t * count);
	flexio_status (*release)(struct flexio_app * *list);
	struct flexio_app **list;
	uint32_t n = 0;

	if (!library)
		return 0;
	*(void **)&get = dlsym(library, "flexio_app_get_list");
	*(void **)&release = dlsym(library, "flexio_app_list_free");
	need(get && release);
	need(!get(&list, &n));
	need(!release(list));
	dlclose(library);
	return n;
}

int main(void)
{
	struct ibv_context *ctx = open_device("mlx5_0");
	void *kept;

	for (uint64_t i = 1; i <= 10; i++) {
		need(count("./libones.so", "count_ones", ctx, i) == i);
		need(count("./libtens.so", "count_tens", ctx, i) == 10 * i);
		need(apps() == 0);
	}
	kept = dlopen("./libones.so", RTLD_NOW);
	need(kept && apps() == 1);
	need(count("./libtens.so", "count_tens", ctx, 3) == 30);
	need(apps() == 1);
	need(!dlclose(kept) && apps() == 0);
	ibv_close_device(ctx);
	puts("done");
	return 0;
}
