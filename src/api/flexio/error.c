// SPDX-License-Identifier: MIT
/*
 * Owns how a device process dies: the first fatal error is its status for ever, wakes the error fd and
 * tells every thread of the process to stop. Nothing here waits, because it runs in callbacks of those
 * threads.
 */
#include "internal.h"

#include <sys/eventfd.h>
#include <unistd.h>

int vb_error_init(struct flexio_process *process)
{
	process->error_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (process->error_fd < 0) {
		log_err("no file descriptor for errors: %s", strerror(errno));
		return -errno;
	}
	return 0;
}

void vb_error_free(struct flexio_process *process)
{
	if (process->error_fd >= 0)
		close(process->error_fd);
}

void vb_process_fatal(struct flexio_process *process, int status)
{
	uint64_t one = 1;
	int alive = 0;

	if (!atomic_compare_exchange_strong(&process->status, &alive, status))
		return;
	/* From here on no thread starts: see process_dead() in call.c and event_handler.c. */
	vb_calls_halt(process);
	vb_handlers_halt(process);
	if (write(process->error_fd, &one, sizeof(one)) < 0)
		log_err("cannot wake the error fd: %s", strerror(errno));
}

int flexio_err_handler_fd(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	if (!pin) {
		log_err("not a process");
		return -1;
	}
	return process->error_fd;
}

int flexio_err_status_get(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	if (!process)
		return 0;
	if (!pin) {
		log_err("not a process");
		return -1;
	}
	return atomic_load(&process->status);
}

FLEXIO_STABLE enum flexio_err_status flexio_err_status_get_v0(struct flexio_process *process);

/* As it was before 24.10: only whose error it is. */
enum flexio_err_status flexio_err_status_get_v0(struct flexio_process *process)
{
	int status = flexio_err_status_get(process);

	return !status          ? FLEXIO_DEV_NO_ERROR
	       : status >= 0x80 ? FLEXIO_DEV_USER_ERROR
				: FLEXIO_DEV_FATAL_ERROR;
}
