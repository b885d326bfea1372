// SPDX-License-Identifier: MIT
/* Host half of form_new.c and form_old.c. With -DOLD also in the host's older forms and names. */
#ifdef OLD
#include <libflexio/flexio_ver.h>
#define FLEXIO_VER_USED FLEXIO_VER(24, 7, 0)
#endif
#include "need.h"

extern struct flexio_app *form_app;
extern flexio_func_t refused;

#ifdef OLD
static void check_old_names(struct flexio_process *process)
{
	struct flexio_log_dev_attr attr = { .data_bsize = 4096,
					    .sync_mode = FLEXIO_LOG_DEV_SYNC_MODE_SYNC,
					    .level = FLEXIO_MSG_DEV_INFO };
	struct flexio_app *copy;
	struct flexio_app_attr app_attr = { .app_name = "copy" };

	need(!flexio_log_dev_init(process, &attr, stdout, NULL));
	need(!flexio_log_dev_flush(process));
	need(!flexio_log_dev_destroy(process));
	need(flexio_err_status_get(process) == FLEXIO_DEV_NO_ERROR);
	/* an app by hand, from the one that dpacc made */
	app_attr.app_bsize = flexio_app_get_elf_size(form_app);
	need(app_attr.app_bsize);
	app_attr.app_ptr = malloc(app_attr.app_bsize);
	need(app_attr.app_ptr);
	need(!flexio_app_get_elf(form_app, (uint64_t *)app_attr.app_ptr, app_attr.app_bsize));
	need(!flexio_app_create(&app_attr, &copy));
	free(app_attr.app_ptr);
	need(!strcmp(flexio_app_get_name(copy), "copy"));
	need(!flexio_app_destroy(copy));
}
#endif

int main(void)
{
	struct ibv_context *ctx = open_device("mlx5_0");
	struct flexio_process *process;
	uint64_t result = 0;

	need(!flexio_version_set(FLEXIO_VER_USED));
	need(!flexio_process_create(ctx, form_app, NULL, &process));
	need(!flexio_process_call(process, &refused, &result));
	need(result == 15);
#ifdef OLD
	check_old_names(process);
#endif
	need(!flexio_process_destroy(process));
	ibv_close_device(ctx);
	puts("done");
	return 0;
}
