// SPDX-License-Identifier: MIT
/*
 * Owns which device processes debuggers can attach to: all, when the tool of a debugger asks the program
 * for it (gdb/listen.h); before, those whose token the program asked for. Until then there is neither
 * a socket nor a thread.
 *
 *	VERBATIM_DPA_DEBUG=off          no tool can ask
 *	VERBATIM_DPA_DEBUG=on           every process, from its creation on
 *	VERBATIM_DPA_DEBUG=wait         the same, and the first one waits for a debugger before it executes
 *	VERBATIM_DPA_DEBUG=wait:NAME    the same, and a tool that listens on NAME is told its token
 */
#include "api/flexio/crash.h"

#include <stdio.h>
#include <unistd.h>

#include "api/flexio/process.h"
#include "base/cancel.h"
#include "base/env.h"
#include "base/file.h"

enum debug_mode { DEBUG_OFF, DEBUG_ASKED, DEBUG_ON, DEBUG_WAIT };

/* -EINVAL after a reason. *tool: who is told, or NULL. */
static int read_mode(enum debug_mode *mode, const char **tool)
{
	const char *text = vb_getenv("VERBATIM_DPA_DEBUG");

	*tool = NULL;
	if (!text || !*text) {
		*mode = DEBUG_ASKED;
	} else if (!strcmp(text, "off")) {
		*mode = DEBUG_OFF;
	} else if (!strcmp(text, "on")) {
		*mode = DEBUG_ON;
	} else if (!strcmp(text, "wait")) {
		*mode = DEBUG_WAIT;
	} else if (!strncmp(text, "wait:", 5) && text[5]) {
		*mode = DEBUG_WAIT;
		*tool = text + 5;
	} else {
		fail("VERBATIM_DPA_DEBUG=%s is not known; allowed: off, on, wait", text);
		return -EINVAL;
	}
	return 0;
}

static void name_thread(void *arg, uint32_t thread, char *name, size_t size)
{
	vb_calls_name(arg, thread, name, size);
}

/* Under process.mutex. */
static int offer(struct flexio_process *process, bool started)
{
	struct vb_gdb_offer_attr attr = { .process = process->dpa,
					  .id = process->id,
					  .name = process->name,
					  .app = process->app->name,
					  .adapter = process->accel->name,
					  .elf = process->app->elf,
					  .elf_len = process->app->elf_size,
					  .thread_name = name_thread,
					  .arg = process,
					  .started = started };
	int err = process->offer ? 0 : vb_gdb_offer(&attr, &process->offer);

	if (err)
		fail("process %s: no socket for a debugger: %s", process->name, strerror(-err));
	return err;
}

struct offers {
	int count, err;
};

static void offer_one(void *handle, void *arg)
{
	struct flexio_process *process = handle;
	struct offers *offers = arg;
	int err;

	if (vb_process_inherited(process))
		return;
	pthread_mutex_lock(&process->mutex);
	err = process->open ? offer(process, false) : -ENOENT;
	pthread_mutex_unlock(&process->mutex);
	if (!err)
		offers->count++;
	else if (err != -ENOENT)
		offers->err = err;
}

/* A tool asks. 0, -ENOENT: there is no device process; or why one cannot be attached to. */
static int offer_all(void)
{
	struct offers offers = { 0 };

	vb_api_begin("debugger");
	vb_handles_visit(HANDLE_PROCESS, offer_one, &offers);
	return offers.count ? 0 : offers.err ? offers.err : -ENOENT;
}

/* Whatever the level of the log is: nothing goes on before somebody has read it. */
static void say_waiting(const struct flexio_process *process)
{
	unsigned long long token = vb_gdb_offer_token(process->offer);
	char text[256 + FLEXIO_MAX_NAME_LEN];
	int len = snprintf(
		text, sizeof(text),
		"verbatim: process %s waits for a debugger: verbatim gdb 0x%llx, or dpa-gdbserver %s -T 0x%llx\n",
		process->name, token, process->accel->name, token);

	vb_file_write(STDERR_FILENO, text, (size_t)len);
}

/*
 * A tool debugs one process. Others that have its name in their environment, such as the second program
 * of a script, go on.
 */
static void await(struct flexio_process *process, const char *tool)
{
	int err = tool ? vb_gdb_offer_announce(process->offer, tool) : 0;

	if (err) {
		log_info("process %s does not wait for a debugger: nobody is at %s: %s",
			 process->name, tool, strerror(-err));
		return;
	}
	if (!tool)
		say_waiting(process);
	vb_gdb_offer_await(process->offer);
}

int vb_flexio_debug_begin(struct flexio_process *process)
{
	static _Atomic bool waited; /* the first process has */
	enum debug_mode mode;
	const char *tool;
	int err;

	VB_NO_CANCEL;
	err = read_mode(&mode, &tool);
	if (!err && mode != DEBUG_OFF)
		vb_gdb_serve_tools(offer_all);
	if (err || mode <= DEBUG_ASKED)
		return err;
	pthread_mutex_lock(&process->mutex);
	err = offer(process, tool);
	pthread_mutex_unlock(&process->mutex);
	if (err || mode != DEBUG_WAIT ||
	    atomic_exchange_explicit(&waited, true, memory_order_relaxed))
		return err;
	await(process, tool);
	return 0;
}

void vb_flexio_debug_end(struct flexio_process *process)
{
	vb_gdb_offer_end(process->offer);
	process->offer = NULL;
}

uint64_t flexio_process_udbg_token_get(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	uint64_t token = 0;

	VB_NO_CANCEL;
	API_CALL();
	if (!pin) {
		bad_handle(process, "process");
		return 0;
	}
	pthread_mutex_lock(&process->mutex);
	if (!offer(process, false))
		token = vb_gdb_offer_token(process->offer);
	pthread_mutex_unlock(&process->mutex);
	return token;
}
