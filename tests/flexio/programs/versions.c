// SPDX-License-Identifier: MIT
/* A program of the time before 24.07: the forms that names had then. */
#include <libflexio/flexio_ver.h>
#define FLEXIO_VER_USED FLEXIO_VER(24, 1, 0)
#include "check.h"

extern struct flexio_app *old;
extern flexio_func_t die;

int main(void)
{
	struct ibv_context *ctx = open_device();
	struct flexio_app_attr app_attr = { .app_name = "again", .app_sig_sec_name = NULL };
	struct flexio_log_dev_attr log_attr = { .data_bsize = 2048,
						.sync_mode = FLEXIO_LOG_DEV_SYNC_MODE_SYNC };
	enum flexio_log_dev_sync_mode mode = FLEXIO_LOG_DEV_SYNC_MODE_ASYNC;
	enum flexio_err_status status;
	struct flexio_process *process;
	struct flexio_uar *uar = NULL;
	flexio_func_t *func;
	struct flexio_app *app;

	OK(flexio_version_set(FLEXIO_VER_USED));
	CHECK(USER_EUS_LIMIT == 254 && EU_BITMASK_LEN == 32 && mode == 1);
	app_attr.app_bsize = flexio_app_get_elf_size(old);
	app_attr.app_ptr = malloc(app_attr.app_bsize);
	OK(flexio_app_get_elf(old, app_attr.app_ptr, app_attr.app_bsize));
	OK(flexio_app_create(&app_attr, &app));
	free(app_attr.app_ptr);
	OK(flexio_func_register(app, "die", &func));
	for (uint64_t code = 0x90; code; code = code == 0x90 ? 1 : 0) {
		OK(flexio_process_create(ctx, app, NULL, &process));
		OK(flexio_log_dev_init(process, &log_attr, stdout, NULL));
		/* three arguments then; UARs of one's own come with the queues */
		CHECK(flexio_uar_create(process, (struct mlx5dv_devx_uar *)NULL, &uar) ==
		      FLEXIO_STATUS_FAILED);
		status = flexio_err_status_get(process);
		CHECK(status == FLEXIO_DEV_NO_ERROR);
		CHECK(flexio_process_call(process, func, NULL, code) == FLEXIO_STATUS_FATAL_ERR);
		status = flexio_err_status_get(process);
		CHECK(status == (code == 0x90 ? FLEXIO_DEV_USER_ERROR : FLEXIO_DEV_FATAL_ERROR));
		OK(flexio_process_destroy(process));
	}
	OK(flexio_app_destroy(app));
	CHECK(flexio_err_status_get(NULL) == FLEXIO_DEV_NO_ERROR);
	CHECK(!ibv_close_device(ctx));
	return 0;
}
