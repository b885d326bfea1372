// SPDX-License-Identifier: MIT
/*
 * Owns apps: device programs by name, with a copy of their ELF file. Normally created before main()
 * by code that dpacc made.
 */
#include "api/flexio/process.h"

#include <stdlib.h>

#include "api/flexio/stream.h"
#include "base/fork.h"
#include "base/mask.h"

static pthread_mutex_t apps_lock = PTHREAD_MUTEX_INITIALIZER;
static struct flexio_app *apps; /* in the order of creation */

static void apps_forked(void)
{
	pthread_mutex_init(&apps_lock, NULL);
}

VB_STAGE(APPS, .child = apps_forked);

/* Destructors of the program destroy apps: no handler of its, which may exit, runs in a thread that has the lock. */
static void apps_take(sigset_t *before)
{
	vb_signal_block(before);
	pthread_mutex_lock(&apps_lock);
}

static void apps_give(const sigset_t *before)
{
	pthread_mutex_unlock(&apps_lock);
	vb_signal_unblock(before);
}

bool vb_name_valid(const char *text)
{
	return text && *text && strnlen(text, FLEXIO_MAX_NAME_LEN + 1) <= FLEXIO_MAX_NAME_LEN;
}

/*
 * The program is exiting. The destructor that dpacc generates then destroys the app, and many
 * programs leave their processes to exit(), so an app in use is no error. The handler runs before
 * destructors, because it is registered after the start.
 */
static atomic_bool leaving;

static void app_leave(void)
{
	atomic_store_explicit(&leaving, true, memory_order_relaxed);
	vb_streams_leave();
}

static void register_leave(void)
{
	atexit(app_leave);
}

bool vb_app_get(struct flexio_app *app)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	sigset_t before;
	bool valid;

	pthread_once(&once, register_leave);
	apps_take(&before);
	valid = vb_handle_valid(HANDLE_APP, app);
	if (valid)
		atomic_fetch_add_explicit(&app->users, 1, memory_order_relaxed);
	apps_give(&before);
	return valid;
}

void vb_app_put(struct flexio_app *app)
{
	atomic_fetch_sub_explicit(&app->users, 1, memory_order_release);
}

static void app_free(struct flexio_app *app)
{
	for (unsigned int i = 0; i < FUNC_BUCKETS; i++) {
		struct func *func = atomic_load_explicit(&app->funcs[i], memory_order_relaxed),
			    *next;

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
	sigset_t before;

	if (!out)
		return fail("app is NULL: nowhere to put the app");
	if (!vb_name_valid(name))
		return fail("app_name must have 1 to %d bytes", FLEXIO_MAX_NAME_LEN);
	if (!elf || !size)
		return fail("%s: no ELF file (app_ptr %p, app_bsize %zu)", name, elf, size);
	app = calloc(1, sizeof(*app));
	if (!app)
		return fail("%s: no memory", name);
	pthread_mutex_init(&app->mutex, NULL);
	strcpy(app->name, name);
	if (vb_dpa_image_read(elf, size, &app->image, &error)) {
		app_free(app);
		return fail("%s: %s", name, error.text);
	}
	app->elf = malloc(size);
	if (!app->elf || !vb_handle_add(HANDLE_APP, app)) {
		app_free(app);
		return fail("%s: no memory for a file of %zu bytes", name, size);
	}
	memcpy(app->elf, elf, size);
	app->elf_size = size;
	apps_take(&before);
	for (link = &apps; *link; link = &(*link)->next)
		;
	*link = app;
	apps_give(&before);
	*out = app;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_create(struct flexio_app_attr *fattr, struct flexio_app **app)
{
	API_CALL();
	if (!fattr)
		return fail("fattr is NULL");
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
	vb_api_begin("flexio_app_create");
	if (!fattr)
		return fail("fattr is NULL");
	return app_create(fattr->app_name, fattr->app_ptr, fattr->app_bsize, app);
}

static flexio_status fail_in_use(const struct flexio_app *app, unsigned int users)
{
	if (!atomic_load_explicit(&leaving, memory_order_relaxed))
		return fail("%s is in use by %u processes; destroy them first", app->name, users);
	log_warn("%s is in use by %u processes", app->name, users);
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_app_destroy(struct flexio_app *app)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);
	struct flexio_app **link;
	unsigned int users;
	sigset_t before;

	API_CALL();
	if (!pin)
		return bad_handle(app, "app");
	/* Memory goes with the process. A call that exit() interrupted, in a signal handler, may have it pinned. */
	if (atomic_load_explicit(&leaving, memory_order_relaxed)) {
		users = atomic_load_explicit(&app->users, memory_order_relaxed);
		return users ? fail_in_use(app, users) : FLEXIO_STATUS_SUCCESS;
	}
	apps_take(&before);
	/* Pairs with the release in vb_app_put(). */
	users = atomic_load_explicit(&app->users, memory_order_acquire);
	if (users) {
		apps_give(&before);
		return fail_in_use(app, users);
	}
	/* Nothing that is pinned takes apps_lock. */
	if (!vb_handle_end(&pin)) {
		apps_give(&before);
		return bad_handle(app, "app");
	}
	for (link = &apps; *link != app; link = &(*link)->next)
		;
	*link = app->next;
	apps_give(&before);
	app_free(app);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- finding ---- */

flexio_status flexio_app_get(struct flexio_app_select_attr *fattr, struct flexio_app **app)
{
	enum flexio_hw_model_id model, other = FLEXIO_HW_MODEL_DEF;
	struct flexio_app *a, *any = NULL;
	sigset_t before;

	API_CALL();
	if (!fattr || !app)
		return fail("%s is NULL", !fattr ? "fattr" : "app");
	if (!vb_name_valid(fattr->app_name))
		return fail("app_name must have 1 to %d bytes", FLEXIO_MAX_NAME_LEN);
	model = fattr->hw_model_id;
	if (model == FLEXIO_HW_MODEL_DEF && fattr->ibv_ctx)
		model = vb_hw_model(fattr->ibv_ctx);
	apps_take(&before);
	for (a = apps; a; a = a->next) {
		enum flexio_hw_model_id own = atomic_load_explicit(&a->model, memory_order_relaxed);

		if (strcmp(a->name, fattr->app_name))
			continue;
		if (model == FLEXIO_HW_MODEL_DEF || own == model)
			break;
		/* Compiled for no hardware in particular: fits where nothing better does. */
		if (own == FLEXIO_HW_MODEL_DEF && !any)
			any = a;
		other = own;
	}
	apps_give(&before);
	a = a ? a : any;
	if (!a && other)
		return fail(
			"%s is there for hardware model %s, not for %s; dpacc -mcpu adds models",
			fattr->app_name, vb_hw_model_name(other), vb_hw_model_name(model));
	if (!a)
		return fail("no app is called %s; dpacc -app-name gives the name", fattr->app_name);
	*app = a;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_hw_model_register(struct flexio_app *app,
					   enum flexio_hw_model_id hw_model_id)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);
	enum flexio_hw_model_id model = FLEXIO_HW_MODEL_DEF;

	API_CALL();
	if (!pin)
		return bad_handle(app, "app");
	if (hw_model_id < FLEXIO_HW_MODEL_CX7 || hw_model_id > FLEXIO_HW_MODEL_CX9)
		return fail("%s: %u is not a hardware model; allowed: %u to %u", app->name,
			    (unsigned int)hw_model_id, FLEXIO_HW_MODEL_CX7, FLEXIO_HW_MODEL_CX9);
	if (!atomic_compare_exchange_strong_explicit(&app->model, &model, hw_model_id,
						     memory_order_relaxed, memory_order_relaxed) &&
	    model != hw_model_id)
		return fail("%s was registered for %s before, and cannot be for %s too", app->name,
			    vb_hw_model_name(model), vb_hw_model_name(hw_model_id));
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_get_list(struct flexio_app ***app_list, uint32_t *num_apps)
{
	struct flexio_app **list;
	uint32_t n = 0, most;
	sigset_t before;

	API_CALL();
	if (!app_list || !num_apps)
		return fail("%s is NULL", !app_list ? "app_list" : "num_apps");
	most = *num_apps ? *num_apps : UINT32_MAX;
	apps_take(&before);
	for (struct flexio_app *a = apps; a && n < most; a = a->next)
		n++;
	list = calloc(n + 1UL, sizeof(*list)); /* ends with NULL, too */
	most = n;
	n = 0;
	for (struct flexio_app *a = apps; list && n < most; a = a->next)
		list[n++] = a;
	apps_give(&before);
	if (!list || !vb_handle_add(HANDLE_APP_LIST, list)) {
		free(list);
		return fail("no memory for a list of apps");
	}
	*app_list = list;
	*num_apps = n;
	return FLEXIO_STATUS_SUCCESS;
}

flexio_status flexio_app_list_free(struct flexio_app **apps_list)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP_LIST, apps_list);

	API_CALL();
	if (!vb_handle_end(&pin))
		return bad_handle(apps_list, "list of apps");
	free(apps_list);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- queries ---- */

const char *flexio_app_get_name(struct flexio_app *app)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);

	API_CALL();
	if (!pin) {
		bad_handle(app, "app");
		return NULL;
	}
	return app->name;
}

size_t flexio_app_get_elf_size(struct flexio_app *app)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);

	API_CALL();
	if (!pin) {
		bad_handle(app, "app");
		return 0;
	}
	return app->elf_size;
}

flexio_status flexio_app_get_elf(struct flexio_app *app, uint64_t *bin_buff, size_t bin_size)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_APP, app);

	API_CALL();
	if (!pin)
		return bad_handle(app, "app");
	if (!bin_buff)
		return fail("bin_buff is NULL: nowhere to put the %zu bytes of %s", app->elf_size,
			    app->name);
	if (bin_size < app->elf_size)
		return fail("%s has %zu bytes; the buffer has %zu (flexio_app_get_elf_size tells)",
			    app->name, app->elf_size, bin_size);
	memcpy(bin_buff, app->elf, app->elf_size);
	return FLEXIO_STATUS_SUCCESS;
}
