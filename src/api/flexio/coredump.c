// SPDX-License-Identifier: MIT
/*
 * Owns core dumps: all threads and all memory of a process, as a core file of RISC-V Linux.
 *
 * A process that has crashed is shown as its thread was at the fault; that thread comes first, so
 * that a debugger begins with it. A process that lives goes on meanwhile (dpa/observe/snapshot.c).
 */
#include "api/flexio/crash.h"

#include <signal.h>
#include <stdlib.h>

#include "api/flexio/process.h"
#include "base/cancel.h"

/* As Linux would have called it. */
static int coredump_signal_of(const struct crash *c)
{
	if (c->status >= 0x80 || c->status == VB_RTOS_STATUS_ILLEGAL_ERR)
		return SIGABRT;
	switch (c->snapshot.state.cause) {
	case VB_DPA_CAUSE_ILLEGAL:
		return SIGILL;
	case VB_DPA_CAUSE_BREAKPOINT:
		return SIGTRAP;
	case VB_DPA_CAUSE_LOAD_MISALIGNED:
	case VB_DPA_CAUSE_STORE_MISALIGNED:
		return SIGBUS;
	case VB_DPA_CAUSE_ECALL:
		return SIGSYS;
	case VB_DPA_CAUSE_WATCHDOG:
		return SIGXCPU;
	default:
		return SIGSEGV;
	}
}

/* As messages and the log call it. */
static uint32_t thread_id(struct vb_dpa_thread *thread)
{
	const struct guest *guest = vb_dpa_thread_user(thread);

	return guest->thread_id;
}

static int write_bytes(const void *bytes, size_t len, void *arg)
{
	const struct dump_file *file = arg;

	return vb_dump_write(file->fd, bytes, len);
}

/* As dpacc -keep calls it. */
static const char *program_name(const struct flexio_app *app)
{
	switch (atomic_load_explicit(&app->model, memory_order_relaxed)) {
	case FLEXIO_HW_MODEL_CX7:
		return "device_exec.cx7";
	case FLEXIO_HW_MODEL_CX8:
		return "device_exec.cx8";
	case FLEXIO_HW_MODEL_CX9:
		return "device_exec.cx9";
	default:
		return "device_exec.bf3";
	}
}

/* The crash first, then the others. */
static int write_core(const struct flexio_process *process, const struct vb_dpa_snapshot *list,
		      size_t count, struct dump_file *file)
{
	const struct crash *c = atomic_load_explicit(&process->crash, memory_order_acquire);
	const struct vb_dpa_snapshot **threads = malloc((count + 1) * sizeof(*threads));
	char words[80];
	struct vb_dpa_core core = { .threads = threads,
				    .signal = c ? coredump_signal_of(c) : 0,
				    .program = program_name(process->app),
				    .words = words,
				    .write = write_bytes,
				    .arg = file };
	int err;

	if (!threads)
		return -ENOMEM;
	snprintf(words, sizeof(words), "%.30s of app %.30s", process->name, process->app->name);
	if (c)
		threads[core.count++] = &c->snapshot;
	for (size_t i = 0; i < count; i++)
		if (!c || list[i].id != c->thread_id)
			threads[core.count++] = &list[i];
	err = vb_dpa_core_write(process->dpa, &core);
	free(threads);
	return err;
}

flexio_status flexio_coredump_create(struct flexio_process *process, const char *outfile)
{
	VB_NO_CANCEL;
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct vb_dpa_snapshot *list;
	struct dump_file file;
	flexio_status status;
	unsigned int late = 0;
	size_t count;

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	/* Only the owner may read it: all of the process's memory is in there. */
	if (!vb_dump_open(&file, process, outfile, "core", 0600))
		return failed();
	if (vb_dpa_snapshots_take(process->dpa, thread_id, &list, &count))
		return vb_dump_close(&file, process, -ENOMEM);
	for (size_t i = 0; i < count; i++)
		late += list[i].late;
	if (late)
		log_warn(
			"process %s: %u threads did not come out of a call in time; their registers are those of the call",
			process->name, late);
	status = vb_dump_close(&file, process, write_core(process, list, count, &file));
	vb_dpa_snapshots_free(list, count);
	return status;
}
