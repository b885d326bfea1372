// SPDX-License-Identifier: MIT
/*
 * Owns how a device process dies: the first fatal error is its status for ever, wakes the error fd
 * and tells every thread of the process to stop. Nothing here waits, because it runs in callbacks
 * of those threads. ecalls.c decides which fault is fatal, and runs the error handler before.
 */
#include "api/flexio/crash.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "api/flexio/process.h"
#include "base/cancel.h"
#include "base/file.h"

int vb_error_init(struct flexio_process *process)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int err = fd < 0 ? -errno : vb_file_keep(&process->error_file, fd);

	if (err)
		fail("%s: no file descriptor for errors: %s; ulimit -n says how many there may be",
		     process->name, strerror(-err));
	return err;
}

void vb_error_free(struct flexio_process *process)
{
	vb_file_close(&process->error_file);
}

void vb_process_fatal(struct flexio_process *process, int status)
{
	VB_NO_CANCEL;
	uint64_t one = 1;
	int alive = 0;

	/* seq_cst: with the loads in vb_calls_halt(), against the fence in run_queued(). */
	if (!atomic_compare_exchange_strong_explicit(&process->status, &alive, status,
						     memory_order_seq_cst, memory_order_relaxed))
		return;
	/* From here on no thread starts: see process_dead() in call.c, event_handler.c, cmdq.c. */
	vb_calls_halt(process);
	vb_handlers_halt(process);
	vb_cmdqs_halt(process);
	/* A program that has closed it does not want to know; the number may be its file by now. */
	if (vb_file_is_open(&process->error_file) &&
	    vb_sys_write(process->error_file.fd, &one, sizeof(one)) < 0)
		log_err("cannot wake the error fd: %s", strerror(errno));
}

const char *vb_status_text(int status)
{
	if (status >= 0x80)
		return "flexio_dev_error() of device code";
	if (status == VB_RTOS_STATUS_FINISHED)
		return "flexio_dev_process_finish()";
	if (status == VB_RTOS_STATUS_ILLEGAL_ERR)
		return "flexio_dev_error() with a code below 0x80";
	if (status == VB_RTOS_STATUS_STACK)
		return "stack overflow";
	if (status == VB_RTOS_STATUS_WATCHDOG)
		return "the error handler took too long";
	return vb_dpa_cause_name((enum vb_dpa_cause)(status - VB_RTOS_STATUS_FAULT));
}

flexio_status vb_process_fail_dead(const struct flexio_process *process)
{
	int status = atomic_load_explicit(&process->status, memory_order_relaxed);

	fail("process %s has ended, with status 0x%x: %s", process->name, (unsigned int)status,
	     vb_status_text(status));
	return FLEXIO_STATUS_FATAL_ERR;
}

flexio_status flexio_process_error_handler_set(struct flexio_process *process,
					       flexio_func_t *error_handler)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	const struct func *func;
	bool threaded;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	func = vb_func_find(process->app, error_handler);
	if (!func)
		return vb_func_fail(process->app, error_handler);
	if (process_dead(process))
		return vb_process_fail_dead(process);
	pthread_mutex_lock(&process->mutex);
	threaded = process->threaded;
	if (!threaded)
		atomic_store_explicit(&process->error_handler, func->addr, memory_order_relaxed);
	pthread_mutex_unlock(&process->mutex);
	return threaded
		       ? fail("process %s has had event handlers or command queues; set the error handler before the first one",
			      process->name)
		       : FLEXIO_STATUS_SUCCESS;
}

int flexio_err_handler_fd(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin) {
		bad_handle(process, "process");
		return -1;
	}
	return process->error_file.fd;
}

static int status_get(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	if (!process)
		return 0;
	if (!pin) {
		bad_handle(process, "process");
		return -1;
	}
	return atomic_load_explicit(&process->status, memory_order_acquire);
}

int flexio_err_status_get(struct flexio_process *process)
{
	API_CALL();
	return status_get(process);
}

FLEXIO_STABLE enum flexio_err_status flexio_err_status_get_v0(struct flexio_process *process);

/* The form before 24.10, which only tells a user's error from a fatal one. */
enum flexio_err_status flexio_err_status_get_v0(struct flexio_process *process)
{
	int status;

	vb_api_begin("flexio_err_status_get");
	status = status_get(process);
	return !status          ? FLEXIO_DEV_NO_ERROR
	       : status >= 0x80 ? FLEXIO_DEV_USER_ERROR
				: FLEXIO_DEV_FATAL_ERROR;
}
