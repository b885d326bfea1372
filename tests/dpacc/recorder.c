// SPDX-License-Identifier: MIT
/*
 * A libflexio that only writes down what the code made by dpacc asks of it, so that the order of constructors and every
 * packed argument can be seen without a card. recorder_call packs as flexio_process_call does and prints the slots.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct flexio_app_attr {
	uint64_t *flexio_dev_versions;
	size_t flexio_dev_versions_len_size;
	uint64_t dpa_api_version;
	const char *app_name;
	void *app_ptr;
	size_t app_bsize;
	void *sig_ptr;
	size_t sig_bsize;
};

struct function {
	void (*stub)(void);
	size_t size;
	void (*pack)(void *argbuf, va_list ap);
};

struct flexio_app {
	char name[300];
	struct function functions[100];
	int n;
};

int flexio_app_create(struct flexio_app_attr *attr, struct flexio_app **app);
int flexio_app_destroy(struct flexio_app *app);
int flexio_app_hw_model_register(struct flexio_app *app, unsigned int model);
int flexio_func_pup_register(struct flexio_app *app, const char *name, const char *unpack,
			     void (*stub)(void), size_t size,
			     void (*pack)(void *argbuf, va_list ap));
void recorder_call(struct flexio_app *app, void (*stub)(void), ...);

static int fails(const char *step)
{
	const char *wanted = getenv("RECORDER_FAIL");

	return wanted && !strcmp(wanted, step) ? 22 : 0;
}

int flexio_app_create(struct flexio_app_attr *attr, struct flexio_app **app)
{
	if (fails("create"))
		return 22;
	*app = calloc(1, sizeof(**app));
	snprintf((*app)->name, sizeof((*app)->name), "%s", attr->app_name);
	printf("create %s %s\n", attr->app_name,
	       attr->app_bsize > 64 && !memcmp(attr->app_ptr, "\177ELF", 4) ? "elf" : "garbage");
	return 0;
}

int flexio_app_destroy(struct flexio_app *app)
{
	printf("destroy %s\n", app->name);
	fflush(stdout);
	free(app);
	return 0;
}

int flexio_app_hw_model_register(struct flexio_app *app, unsigned int model)
{
	printf("model %s %u\n", app->name, model);
	return fails("model");
}

int flexio_func_pup_register(struct flexio_app *app, const char *name, const char *unpack,
			     void (*stub)(void), size_t size,
			     void (*pack)(void *argbuf, va_list ap))
{
	printf("function %s %s %s %zu\n", app->name, name, unpack, size);
	app->functions[app->n++] = (struct function){ stub, size, pack };
	return fails("function");
}

void recorder_call(struct flexio_app *app, void (*stub)(void), ...)
{
	uint64_t slots[64] = { 0 };
	va_list ap;

	for (int i = 0; i < app->n; i++) {
		if (app->functions[i].stub != stub)
			continue;
		va_start(ap, stub);
		app->functions[i].pack(slots, ap);
		va_end(ap);
		printf("call");
		for (size_t j = 0; j < app->functions[i].size / 8; j++)
			printf(" %llx", (unsigned long long)slots[j]);
		printf("\n");
		return;
	}
	printf("call of a stranger\n");
}
