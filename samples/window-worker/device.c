// SPDX-License-Identifier: MIT
/* A worker that takes its jobs from host memory and leaves the results there. */
#include <dpaintrin.h>
#include <libflexio-dev/flexio_dev.h>
#include <libflexio-dev/flexio_dev_err.h>

#include "shared.h"

static void work(struct job *job)
{
	uint32_t letters = 0;

	for (uint32_t i = 0; i < TEXT_SIZE && job->text[i]; i++) {
		char c = job->text[i];

		letters += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
		if (c >= 'a' && c <= 'z')
			job->text[i] = (char)(c - 'a' + 'A');
	}
	job->letters = letters;
}

__dpa_global__ void worker(uint64_t arg)
{
	const struct worker *w = (const struct worker *)arg;
	flexio_uintptr_t at;
	struct job *jobs;

	/* The window's object and the key of the memory; then host addresses have device addresses. */
	if (flexio_dev_window_config(FLEXIO_DEV_WINDOW_ENTITY_0, (uint16_t)w->window_id, w->mkey) ||
	    flexio_dev_window_ptr_acquire(FLEXIO_DEV_WINDOW_ENTITY_0, w->jobs, &at))
		flexio_dev_error(0x80);
	jobs = (struct job *)at;
	for (int i = 0; i < JOBS; i++) {
		if (*(volatile uint32_t *)&jobs[i].state != JOB_READY)
			continue;
		__dpa_thread_window_read_inv(); /* the job behind its state, not from before it */
		work(&jobs[i]);
		__dpa_thread_window_writeback(); /* the result before the state */
		*(volatile uint32_t *)&jobs[i].state = JOB_DONE;
	}
	flexio_dev_thread_reschedule();
}

__dpa_rpc__ void wake(uint32_t activation_id)
{
	flexio_dev_event_handler_activate(activation_id);
}
