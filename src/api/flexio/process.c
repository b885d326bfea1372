// SPDX-License-Identifier: MIT
/*
 * Owns device processes: an app loaded on an adapter, and the order in which its parts are created
 * and destroyed.
 *
 *	guest memory:  program | host's heap (dpa_heap) | device malloc (128 MiB) | stacks, ...
 *
 * All of it ends below 2 GiB, so a larger heap leaves less room for threads. Heap and malloc pages
 * are reserved, not used, until somebody touches them.
 */
#include "api/flexio/process.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/flexio/crash.h"
#include "api/flexio/stream.h"
#include "api/ibverbs/accessors.h"
#include "base/lock.h"
#include "card/queue/umem.h"

#define GUEST_LIMIT ((2ULL << 30) - 65536) /* the most that the accelerator takes */
#define OTHER_SIZE  (896ULL << 20)         /* program and threads, where there is room */
#define BRK_SIZE    (128ULL << 20)

static _Atomic uint32_t next_id = 1;

/* ---- guest memory of one thread: its context ---- */

int vb_guest_init(struct guest *guest, struct flexio_process *process, enum guest_kind kind,
		  const char *name, uint64_t tls, uint32_t flags, uint64_t extra)
{
	struct vb_rtos_thread ctx;
	uint64_t addr = 0;
	int err;

	err = vb_dpa_mem_map(process->dpa, &addr, sizeof(struct vb_rtos_thread) + extra,
			     VB_DPA_READ | VB_DPA_WRITE);
	if (err)
		return err;
	*guest = (struct guest){ .process = process, .ctx_addr = addr, .kind = kind };
	guest->len = sizeof(struct vb_rtos_thread) + extra;
	guest->continuable = flags & VB_RTOS_THREAD_CONTINUABLE;
	guest->thread_id =
		atomic_fetch_add_explicit(&process->next_thread_id, 1, memory_order_relaxed);
	guest->ctx = vb_dpa_mem_host(process->dpa, addr, sizeof(ctx), VB_DPA_READ | VB_DPA_WRITE);
	ctx = (struct vb_rtos_thread){
		.version = VB_RTOS_ABI_VERSION,
		.metadata_parameter = addr + offsetof(struct vb_rtos_thread, thread_id),
		.thread_id = guest->thread_id,
		.flags = flags | (kind == GUEST_CALL ? VB_RTOS_THREAD_RPC : 0),
		.tls = tls,
	};
	snprintf(ctx.name, sizeof(ctx.name), "%s", name);
	(void)vb_view_write(guest->ctx, &ctx, sizeof(ctx));
	vb_outbox_reset(guest);
	vb_shown_thread_begin(&guest->shown, &process->shown, guest->thread_id, name);
	return 0;
}

void vb_guest_free(struct guest *guest)
{
	if (guest->ctx_addr)
		vb_dpa_mem_unmap(guest->process->dpa, guest->ctx_addr, guest->len);
	guest->ctx_addr = 0;
	vb_shown_thread_end(&guest->shown);
	vb_crash_forget(guest);
}

void vb_guest_flush(struct guest *guest)
{
	uint32_t len = (uint32_t)ctx_get(guest, line_len);
	struct vb_dpa_view text = { 0 };

	if (likely(!len))
		return;
	ctx_put(guest, line_len, 0);
	if (len <= MESSAGE_MAX)
		text = vb_dpa_mem_host(guest->process->dpa, ctx_get(guest, line), len, VB_DPA_READ);
	if (!vb_view_is_none(text))
		vb_streams_message(guest, FLEXIO_MSG_DEV_DEFAULT_STREAM_ID,
				   FLEXIO_MSG_DEV_ALWAYS_PRINT, text, len);
}

/* ---- memory ---- */

/* Whether device memory lives as long as the process; stacks and contexts of threads do not. */
static bool stays(const struct flexio_process *process, uint64_t addr, uint64_t size)
{
	uint64_t last = addr + size - 1;

	if (addr >= process->heap.base && last < process->heap.base + process->heap.size)
		return true;
	if (addr >= process->brk_base && last < process->brk_end)
		return true;
	if (vb_dpa_check_malloc_holds(process->dpa, addr, size))
		return true;
	return vb_dpa_program_holds(process->dpa, addr, size);
}

struct vb_dpa_view vb_process_lasting(struct flexio_process *process, uint64_t addr, uint64_t size)
{
	struct vb_dpa_view at =
		vb_dpa_mem_host(process->dpa, addr, size, VB_DPA_READ | VB_DPA_WRITE);

	return vb_view_is_none(at) || !stays(process, addr, size) ? (struct vb_dpa_view){ 0 } : at;
}

void *vb_process_queue_memory(struct flexio_process *process, uint64_t addr, uint64_t size)
{
	return vb_view_lend(vb_process_lasting(process, addr, size));
}

static void *flexio_process_find_memory(void *arg, uint64_t offset, uint64_t size)
{
	return vb_process_queue_memory(arg, offset, size);
}

static int make_umem(struct flexio_process *process)
{
	int err;

	CARD_WORDS(words);
	err = vb_umem_reg_owned(vb_verbs_dev(process->ctx), flexio_process_find_memory, process,
				&process->umem);
	if (err)
		fail("process %s: no umem for its memory: %s", process->name,
		     card_reason(&words, err));
	else
		process->dumem_id = vb_umem_number(process->umem);
	return err;
}

/* ---- create ---- */

static int check_abi(struct flexio_process *process)
{
	uint64_t addr, version;

	if (vb_dpa_symbol_value(process->dpa, VB_RTOS_SYM_VERSION, &addr, NULL) ||
	    vb_dpa_mem_read(process->dpa, addr, &version, sizeof(version))) {
		fail("%s was not linked with libflexio_dev; build it with dpacc",
		     process->app->name);
		return -ENOEXEC;
	}
	if (version != VB_RTOS_ABI_VERSION) {
		fail("%s has device interface %llu, this library has %d; build it again",
		     process->app->name, (unsigned long long)version, VB_RTOS_ABI_VERSION);
		return -ENOEXEC;
	}
	return 0;
}

static int flexio_process_load(struct flexio_process *process)
{
	uint64_t size = process->accel->heap_size + BRK_SIZE + OTHER_SIZE;
	struct vb_dpa_process_attr attr = { .limit = size < GUEST_LIMIT ? size : GUEST_LIMIT,
					    .ops = &vb_rtos_ops,
					    .ops_arg = process,
					    .name = process->name,
					    .check = process->accel->check,
					    .share_data = true,
					    .stack_size = process->accel->stack_size };
	struct vb_dpa_error error = { "" };
	int err;

	if (attr.stack_size < STACK_MOST)
		attr.stack_spare = STACK_MOST - attr.stack_size;
	err = vb_dpa_process_create(process->accel->dpa, process->app->elf, process->app->elf_size,
				    &attr, &process->dpa, &error);
	if (err)
		fail("%s cannot be loaded: %s", process->app->name, error.text);
	return err ? err : check_abi(process);
}

static int make_memory(struct flexio_process *process)
{
	uint64_t base = 0, end, levels_size, heap = process->accel->heap_size;
	int err;

	err = vb_dpa_mem_map_shareable(process->dpa, &base, heap);
	if (!err)
		err = vb_arena_init(&process->heap, base, heap);
	if (!err)
		process->checked = vb_dpa_check_heap(process->dpa, &process->heap);
	if (!err)
		err = vb_dpa_mem_map_shareable(process->dpa, &process->brk_base, BRK_SIZE);
	if (err) {
		fail("process %s: no memory for a device heap of %llu MiB (dpa_heap of the configuration): %s",
		     process->name, (unsigned long long)(heap >> 20), strerror(-err));
		return err;
	}
	end = process->brk_base + BRK_SIZE;
	process->brk = process->brk_base;
	process->brk_end = end;
	if (vb_dpa_symbol_value(process->dpa, VB_RTOS_SYM_LEVELS, &process->levels_addr,
				&levels_size) ||
	    vb_view_is_none(vb_dpa_mem_host(process->dpa, process->levels_addr, MAX_STREAMS + 1,
					    VB_DPA_READ | VB_DPA_WRITE)))
		process->levels_addr = 0;
	return 0;
}

static int make_pd(struct flexio_process *process, struct ibv_pd *pd)
{
	CARD_WORDS(words);
	if (pd && pd->context != process->ctx) {
		fail("the protection domain is of another context of %s than ibv_ctx",
		     pd->context->device->name);
		return -EINVAL;
	}
	process->own_pd = !pd;
	process->pd = pd ? pd : ibv_alloc_pd(process->ctx);
	if (!process->pd) {
		fail("process %s: no protection domain: %s", process->name,
		     card_reason(&words, -errno));
		return -ENOMEM;
	}
	vb_verbs_hold(process->ctx, process->pd);
	return 0;
}

/* A closed context, and all of it, goes with the last reference. */
static void pd_end(struct flexio_process *process)
{
	vb_verbs_hold(process->ctx, NULL);
	vb_verbs_release(process->ctx, process->pd);
	if (process->own_pd)
		ibv_dealloc_pd(process->pd);
	vb_verbs_release(process->ctx, NULL);
}

static struct vb_lock spare_lock;
static struct flexio_process *spare_processes;

/* The last fields of reused memory keep their values: see struct flexio_process. */
static struct flexio_process *process_memory(void)
{
	struct flexio_process *process;

	vb_lock(&spare_lock);
	process = spare_processes;
	if (process)
		spare_processes = process->next_spare;
	vb_unlock(&spare_lock);
	if (process) {
		memset(process, 0, offsetof(struct flexio_process, mutex));
		return process;
	}
	process = aligned_alloc(64, (sizeof(*process) + 63) & ~63UL);
	if (!process)
		return NULL;
	memset(process, 0, sizeof(*process));
	pthread_mutex_init(&process->mutex, NULL);
	pthread_mutex_init(&process->slot_lock, NULL);
	pthread_cond_init(&process->slot_free, NULL);
	return process;
}

/* Undo what was made, in reverse; works on a half-made process. */
static void flexio_process_free(struct flexio_process *process)
{
	vb_flexio_debug_end(process);
	vb_handlers_destroy(process);
	vb_streams_destroy(process);
	vb_recoverables_dump(process);
	vb_shown_process_end(&process->shown);
	vb_flexio_uar_finish(process);
	if (process->umem)
		vb_umem_dereg(process->umem); /* of a half-made process: cannot be in use */
	if (process->dpa)
		vb_dpa_process_destroy(process->dpa);
	vb_tracers_free(process); /* no device thread sees the memory any more */
	vb_pcc_free(process);
	vb_arena_destroy(&process->heap);
	if (process->pd)
		pd_end(process);
	vb_error_free(process);
	vb_crash_free(process);
	vb_accel_put(process->accel);
	vb_app_put(process->app);
	pthread_rwlock_destroy(&process->streams_lock);
	pthread_mutex_destroy(&process->cmdqs_lock);
	pthread_mutex_destroy(&process->brk_lock);
	pthread_mutex_destroy(&process->recover_lock);
	vb_lock(&spare_lock);
	process->next_spare = spare_processes;
	spare_processes = process;
	vb_unlock(&spare_lock);
}

/* Constructors of the device program, if it has any. */
static int run_init(struct flexio_process *process)
{
	uint64_t pc;

	if (vb_dpa_symbol_value(process->dpa, VB_RTOS_SYM_INIT, &pc, NULL))
		return 0;
	return vb_call_plain(process, pc, "its constructors");
}

static int flexio_process_build(struct flexio_process *process,
				const struct flexio_process_attr *attr)
{
	int err;

	err = vb_error_init(process);
	if (!err)
		err = make_pd(process, attr ? attr->pd : NULL);
	if (!err)
		err = flexio_process_load(process);
	if (!err)
		err = make_memory(process);
	if (!err)
		vb_shown_process_begin(&process->shown, process->name, process->accel->name,
				       process->id, vb_dpa_deterministic(process->accel->dpa));
	if (!err)
		err = make_umem(process);
	if (!err)
		err = vb_flexio_uar_init(process);
	if (!err)
		err = vb_outbox_init(process);
	if (!err && attr && attr->en_pcc)
		err = vb_pcc_init(process);
	if (!err) {
		vb_calls_open(process);
		err = vb_flexio_debug_begin(process);
	}
	if (!err)
		err = run_init(process);
	if (!err && !vb_handle_add(HANDLE_PROCESS, process))
		err = -ENOMEM;
	if (!err && !vb_handle_add(HANDLE_UAR, &process->uar)) {
		struct handle *pin = vb_handle_pin(HANDLE_PROCESS, process);

		vb_handle_end(&pin);
		err = -ENOMEM;
	}
	return err;
}

static struct flexio_process *process_new(struct flexio_app *app, struct ibv_context *ctx,
					  struct accel *accel, const char *name)
{
	struct flexio_process *process = process_memory();
	pthread_rwlockattr_t writers_first;

	if (!process) {
		fail("%s: no memory for a process", app->name);
		return NULL;
	}
	process->app = app;
	process->ctx = ctx;
	process->accel = accel;
	process->error_file = VB_NO_FILE;
	process->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
	atomic_init(&process->next_thread_id, 1);
	if (name)
		strcpy(process->name, name);
	else
		snprintf(process->name, sizeof(process->name), "PROCESS_%u", process->id);
	pthread_mutex_init(&process->recover_lock, NULL);
	pthread_mutex_init(&process->brk_lock, NULL);
	pthread_mutex_init(&process->cmdqs_lock, NULL);
	/*
	 * Device code that prints all the time must not keep streams from being opened and closed.
	 */
	pthread_rwlockattr_init(&writers_first);
	pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&process->streams_lock, &writers_first);
	pthread_rwlockattr_destroy(&writers_first);
	return process;
}

flexio_status flexio_process_create(struct ibv_context *ibv_ctx, struct flexio_app *app,
				    const struct flexio_process_attr *process_attr,
				    struct flexio_process **process_ptr)
{
	const char *name = process_attr ? process_attr->name : NULL;
	struct flexio_process *process;
	struct accel *accel;

	API_CALL();
	if (!ibv_ctx || !process_ptr)
		return fail("%s is NULL", !ibv_ctx ? "ibv_ctx" : "process_ptr");
	if (name && strnlen(name, FLEXIO_MAX_NAME_LEN + 1) > FLEXIO_MAX_NAME_LEN)
		return fail("the name has more than %d bytes", FLEXIO_MAX_NAME_LEN);
	if (!vb_app_get(app))
		return bad_handle(app, "app");
	if (vb_accel_get(ibv_ctx, &accel)) {
		vb_app_put(app);
		return failed();
	}
	process = process_new(app, ibv_ctx, accel, name);
	if (!process) {
		vb_accel_put(accel);
		vb_app_put(app);
		return failed();
	}
	if (flexio_process_build(process, process_attr)) {
		/*
		 * A call with a stale handle, of the process that had this memory before, may be in
		 * a slot.
		 */
		while (process->open && !vb_calls_destroy(process))
			sched_yield();
		flexio_process_free(process);
		return failed();
	}
	*process_ptr = process;
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- destroy ---- */

bool vb_process_inherited(const struct flexio_process *process)
{
	return vb_dev_stale(vb_verbs_dev(process->ctx));
}

bool vb_process_hold(struct flexio_process *process, enum process_part part)
{
	bool open;

	pthread_mutex_lock(&process->mutex);
	open = process->open;
	if (open)
		atomic_fetch_add_explicit(&process->parts[part], 1, memory_order_relaxed);
	pthread_mutex_unlock(&process->mutex);
	if (!open)
		fail("process %s is being destroyed", process->name);
	return open;
}

void vb_process_release(struct flexio_process *process, enum process_part part)
{
	atomic_fetch_sub_explicit(&process->parts[part], 1, memory_order_release);
}

/* False, after a log line: the process still has objects. */
static bool is_bare(struct flexio_process *process)
{
	unsigned int parts[PARTS], sum = 0;

	for (unsigned int i = 0; i < PARTS; i++) {
		/* Pairs with the release in vb_process_release(). */
		parts[i] = atomic_load_explicit(&process->parts[i], memory_order_acquire);
		sum += parts[i];
	}
	if (sum)
		fail("process %s still has %u event handlers, %u command queues, %u mkeys, %u windows and %u queues, UARs or outboxes",
		     process->name, parts[PART_HANDLER], parts[PART_CMDQ], parts[PART_MKEY],
		     parts[PART_WINDOW], parts[PART_QUEUE]);
	return !sum;
}

flexio_status flexio_process_destroy(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct handle *uar_pin;

	CARD_WORDS(words);
	API_CALL();
	if (!process)
		return FLEXIO_STATUS_SUCCESS;
	if (!pin)
		return bad_handle(process, "process");
	if (!is_bare(process))
		return failed();
	if (vb_process_inherited(process)) {
		vb_handle_end(&pin);
		return FLEXIO_STATUS_SUCCESS;
	}
	if (!vb_calls_destroy(process))
		return fail("process %s: a call is under way, or another thread destroys it",
			    process->name);
	/*
	 * From here on vb_process_hold() fails. An object that got in before keeps the process
	 * alive.
	 */
	if (!is_bare(process)) {
		vb_calls_open(process);
		return failed();
	}
	if (vb_umem_dereg(process->umem)) {
		vb_calls_open(process);
		return fail("queues of other processes lie in the memory of process %s",
			    process->name);
	}
	process->umem = NULL;
	/*
	 * Only one thread gets here. Wait until other threads have left functions that use the
	 * process.
	 */
	vb_handle_end(&pin);
	uar_pin = vb_handle_pin(HANDLE_UAR, &process->uar);
	vb_handle_end(&uar_pin);
	if (!process_dead(process))
		vb_dpa_check_leaks(process->dpa);
	flexio_process_free(process);
	return FLEXIO_STATUS_SUCCESS;
}

/* ---- queries ---- */

flexio_status flexio_process_mem_info_get(const struct flexio_process *process,
					  struct flexio_heap_mem_info *info)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!info)
		return fail("info is NULL");
	vb_device_info((struct flexio_process *)process, info);
	return FLEXIO_STATUS_SUCCESS;
}

struct ibv_pd *flexio_process_get_pd(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin) {
		bad_handle(process, "process");
		return NULL;
	}
	return process->pd;
}

struct flexio_uar *flexio_process_get_uar(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin) {
		bad_handle(process, "process");
		return NULL;
	}
	return &process->uar;
}

uint32_t flexio_process_get_dumem_id(struct flexio_process *process)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);

	API_CALL();
	if (!pin) {
		bad_handle(process, "process");
		return UINT32_MAX;
	}
	return process->dumem_id;
}
