// SPDX-License-Identifier: MIT
/*
 * Owns apps: device programs by name, with a copy of their ELF file. Normally created before main() by
 * code that dpacc made.
 */
#include "internal.h"

#include <stdlib.h>

static pthread_mutex_t apps_lock = PTHREAD_MUTEX_INITIALIZER;
static struct flexio_app *apps; /* in the order of creation */

bool vb_name_valid(const char *text)
{
	return text && *text && strnlen(text, FLEXIO_MAX_NAME_LEN + 1) <= FLEXIO_MAX_NAME_LEN;
}

bool vb_app_get(struct flexio_app *app)
{
	bool valid;

	pthread_mutex_lock(&apps_lock);
	valid = vb_handle_valid(HANDLE_APP, app);
	if (valid)
		atomic_fetch_add(&app->users, 1);
	pthread_mutex_unlock(&apps_lock);
	return valid;
}

void vb_app_put(struct flexio_app *app)
{
	atomic_fetch_sub(&app->users, 1);
}

static void app_free(struct flexio_app *app)
{
	for (unsigned int i = 0; i < FUNC_BUCKETS; i++) {
		struct func *func = atomic_load(&app->funcs[i]), *next;

		for (; func; func = next) {
			next = func->next;
			free(func);
		}
	}
	vb_dpa_image_free(app->image);
	pthread_mutex_destroy(&app->mutex);
	free(app->elf);
	free(app);
}

static flexio_status app_create(const char *name, const void *elf, size_t size,
				struct flexio_app **out)
{
	struct vb_dpa_error error = { "" };
	struct flexio_app *app, **link;

	if (!out || !elf || !size)
		return fail("no ELF file, or nowhere to put the app");
	if (!vb_name_valid(name))
		return fail("the name must have 1 to %d bytes", FLEXIO_MAX_NAME_LEN);
	app = calloc(1, sizeof(*app));
	if (!app)
		return fail("no memory");
	pthread_mutex_init(&app->mutex, NULL);
	strcpy(app->name, name);
	if (vb_dpa_image_read(elf, size, &app->image, &error)) {
		app_free(app);
		return fail("%s: %s", name, error.text);
	}
	app->elf = malloc(size);
	if (!app->elf || !vb_handle_add(HANDLE_APP, app)) {
		app_free(app);
		return fail("no memory");
	}
	memcpy(app->elf, elf, size);
	app->elf_size = size;
	pthread_mutex_lock(&apps_lock);
	for (link = &apps; *link; link = &(*link)->next)
		;
	*link = app;
	pthread_mutex_unlock(&apps_lock);
	*out = app;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_create(struct flexio_app_attr *fattr, struct flexio_app **app)
{
	if (!fattr)
		return fail("no attributes");
	return app_create(fattr->app_name, fattr->app_ptr, fattr->app_bsize, app);
}

/* The attributes as they were before 24.10. */
struct app_attr_v0 {
	const char *app_name;
	void *app_ptr;
	size_t app_bsize;
	char *app_sig_sec_name;
};

FLEXIO_STABLE flexio_status flexio_app_create_v0(struct app_attr_v0 *fattr,
						 struct flexio_app **app);

flexio_status flexio_app_create_v0(struct app_attr_v0 *fattr, struct flexio_app **app)
{
	if (!fattr)
		return fail("no attributes");
	return app_create(fattr->app_name, fattr->app_ptr, fattr->app_bsize, app);
}

flexio_status flexio_app_destroy(struct flexio_app *app)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);
	struct flexio_app **link;
	unsigned int users;

	if (!pin)
		return fail("not an app");
	pthread_mutex_lock(&apps_lock);
	users = atomic_load(&app->users);
	if (users) {
		pthread_mutex_unlock(&apps_lock);
		/* No error of the program's where a destructor asks for it: many leave their processes to exit(). */
		log_warn("%s is in use by %u processes", app->name, users);
		return FLEXIO_STATUS_FAILED;
	}
	/* Nothing that is pinned takes apps_lock. */
	if (!vb_handle_end(&pin)) {
		pthread_mutex_unlock(&apps_lock);
		return fail("not an app");
	}
	for (link = &apps; *link != app; link = &(*link)->next)
		;
	*link = app->next;
	pthread_mutex_unlock(&apps_lock);
	app_free(app);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- finding ---- */

flexio_status flexio_app_get(struct flexio_app_select_attr *fattr, struct flexio_app **app)
{
	enum flexio_hw_model_id model;
	struct flexio_app *a, *any = NULL;

	if (!fattr || !app || !vb_name_valid(fattr->app_name))
		return fail("no name, or nowhere to put the app");
	model = fattr->hw_model_id;
	if (model == FLEXIO_HW_MODEL_DEF && fattr->ibv_ctx)
		model = flexio_hw_model_id_get(fattr->ibv_ctx);
	pthread_mutex_lock(&apps_lock);
	for (a = apps; a; a = a->next) {
		if (strcmp(a->name, fattr->app_name))
			continue;
		if (model == FLEXIO_HW_MODEL_DEF || a->model == model)
			break;
		/* Compiled for no hardware in particular: fits where nothing better does. */
		if (a->model == FLEXIO_HW_MODEL_DEF && !any)
			any = a;
	}
	pthread_mutex_unlock(&apps_lock);
	a = a ? a : any;
	if (!a)
		return fail("no app %s for hardware model %u", fattr->app_name,
			    (unsigned int)model);
	*app = a;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_hw_model_register(struct flexio_app *app,
					   enum flexio_hw_model_id hw_model_id)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);
	enum flexio_hw_model_id model = FLEXIO_HW_MODEL_DEF;

	if (!pin)
		return fail("not an app");
	if (hw_model_id < FLEXIO_HW_MODEL_CX7 || hw_model_id > FLEXIO_HW_MODEL_CX9)
		return fail("%u is not a hardware model", (unsigned int)hw_model_id);
	if (!atomic_compare_exchange_strong(&app->model, &model, hw_model_id) &&
	    model != hw_model_id)
		return fail("%s was registered for model %u", app->name, (unsigned int)model);
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_get_list(struct flexio_app ***app_list, uint32_t *num_apps)
{
	struct flexio_app **list;
	uint32_t n = 0;

	if (!app_list || !num_apps)
		return fail("nowhere to put the list");
	pthread_mutex_lock(&apps_lock);
	for (struct flexio_app *a = apps; a; a = a->next)
		n++;
	list = calloc(n + 1, sizeof(*list)); /* ends with NULL, too */
	n = 0;
	for (struct flexio_app *a = apps; list && a; a = a->next)
		list[n++] = a;
	pthread_mutex_unlock(&apps_lock);
	if (!list || !vb_handle_add(HANDLE_APP_LIST, list)) {
		free(list);
		return fail("no memory");
	}
	*app_list = list;
	*num_apps = n;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_list_free(struct flexio_app **apps_list)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP_LIST, apps_list);

	if (!vb_handle_end(&pin))
		return fail("not a list of apps");
	free(apps_list);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- what is asked ---- */

const char *flexio_app_get_name(struct flexio_app *app)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);

	if (!pin) {
		log_err("not an app");
		return NULL;
	}
	return app->name;
}

size_t flexio_app_get_elf_size(struct flexio_app *app)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);

	if (!pin) {
		log_err("not an app");
		return 0;
	}
	return app->elf_size;
}

flexio_status flexio_app_get_elf(struct flexio_app *app, uint64_t *bin_buff, size_t bin_size)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);

	if (!pin)
		return fail("not an app");
	if (!bin_buff || bin_size < app->elf_size)
		return fail("the buffer is too small: %zu bytes for %zu", bin_size, app->elf_size);
	memcpy(bin_buff, app->elf, app->elf_size);
	return FLEXIO_STATUS_SUCCESS;
}
