// SPDX-License-Identifier: MIT
#include "gdb_fake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void fake_init(struct vb_dpa_debug *fake)
{
	memset(fake, 0, sizeof(*fake));
	pthread_mutex_init(&fake->lock, NULL);
	fake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (unsigned int i = 0; i < FAKE_SIZE; i++)
		fake->process.memory[i] = (uint8_t)i;
}

void fake_free(struct vb_dpa_debug *fake)
{
	close(fake->fd);
	pthread_mutex_destroy(&fake->lock);
}

void fake_add(struct vb_dpa_debug *fake, uint32_t number, const char *name, bool idle)
{
	struct fake_thread *t = &fake->threads[fake->nthreads++];

	t->number = number;
	snprintf(t->info.name, sizeof(t->info.name), "%s", name);
	t->info.idle = idle;
	t->info.eu = number + 2;
	for (unsigned int i = 0; i < 32; i++)
		t->state.x[i] = number * 0x100 + i;
	t->state.pc = FAKE_ENTRY;
	t->state.instret = 77;
}

static void set_stopped(struct vb_dpa_debug *fake, const struct vb_dpa_stopped *stop)
{
	uint64_t one = 1;

	if (fake->stopped)
		return;
	fake->stopped = true;
	fake->stop = *stop;
	if (write(fake->fd, &one, sizeof(one)) < 0)
		return;
}

void fake_stop(struct vb_dpa_debug *fake, const struct vb_dpa_stopped *stop)
{
	pthread_mutex_lock(&fake->lock);
	set_stopped(fake, stop);
	pthread_mutex_unlock(&fake->lock);
}

/* ---- dpa/observe/debug.h ---- */

int vb_dpa_debug_fd(const struct vb_dpa_debug *debug)
{
	return debug->fd;
}

void vb_dpa_debug_hold(struct vb_dpa_debug *debug)
{
	pthread_mutex_lock(&debug->lock);
	debug->holds++;
	set_stopped(debug, &(struct vb_dpa_stopped){ .why = VB_DPA_STOP_ASKED });
	pthread_mutex_unlock(&debug->lock);
}

bool vb_dpa_debug_stopped(struct vb_dpa_debug *debug, struct vb_dpa_stopped *out)
{
	bool stopped;

	pthread_mutex_lock(&debug->lock);
	stopped = debug->stopped;
	if (stopped)
		*out = debug->stop;
	pthread_mutex_unlock(&debug->lock);
	return stopped;
}

int vb_dpa_debug_resume(struct vb_dpa_debug *debug, const struct vb_dpa_resume *how, unsigned int n)
{
	uint64_t value;
	int err = -EINVAL;

	pthread_mutex_lock(&debug->lock);
	if (debug->stopped) {
		err = 0;
		debug->stopped = false;
		debug->resumes++;
		memcpy(debug->how, how, n * sizeof(*how));
		debug->nhow = n;
		if (read(debug->fd, &value, sizeof(value)) < 0)
			err = 0;
		if (debug->script)
			set_stopped(debug, &debug->next);
		debug->script = debug->every;
	}
	pthread_mutex_unlock(&debug->lock);
	return err;
}

int vb_dpa_debug_break(struct vb_dpa_debug *debug, uint64_t addr, bool set)
{
	unsigned int i = 0;

	if (!debug->stopped)
		return -EINVAL;
	if (addr < FAKE_BASE || addr >= FAKE_BASE + FAKE_TEXT)
		return -EFAULT;
	while (i < debug->nbreaks && debug->breaks[i] != addr)
		i++;
	if (set && i == debug->nbreaks) {
		if (debug->nbreaks == 8)
			return -ENOMEM;
		debug->breaks[debug->nbreaks++] = addr;
	} else if (!set && i < debug->nbreaks) {
		debug->breaks[i] = debug->breaks[--debug->nbreaks];
	}
	return 0;
}

int vb_dpa_debug_watch(struct vb_dpa_debug *debug, uint64_t addr, uint64_t len, unsigned int watch,
		       bool set)
{
	unsigned int i = 0;

	if (!debug->stopped)
		return -EINVAL;
	while (i < debug->nwatches &&
	       (debug->watches[i].addr != addr || debug->watches[i].len != len))
		i++;
	if (!set && i == debug->nwatches)
		return -ENOENT;
	if (i == 8)
		return -ENOMEM;
	if (i == debug->nwatches) {
		debug->nwatches++;
		debug->watches[i].addr = addr;
		debug->watches[i].len = len;
		debug->watches[i].watch = 0;
	}
	debug->watches[i].watch =
		set ? debug->watches[i].watch | watch : debug->watches[i].watch & ~watch;
	if (!debug->watches[i].watch)
		debug->watches[i] = debug->watches[--debug->nwatches];
	return 0;
}

unsigned int vb_dpa_debug_threads(struct vb_dpa_debug *debug, uint32_t *numbers, unsigned int max)
{
	for (unsigned int i = 0; i < debug->nthreads && i < max; i++)
		numbers[i] = debug->threads[i].number;
	return debug->stopped ? debug->nthreads : 0;
}

static struct fake_thread *find(struct vb_dpa_debug *debug, uint32_t thread)
{
	for (unsigned int i = 0; i < debug->nthreads; i++)
		if (debug->threads[i].number == thread)
			return &debug->threads[i];
	return NULL;
}

static int check(struct vb_dpa_debug *debug, uint32_t thread)
{
	if (!debug->stopped)
		return -EINVAL;
	return find(debug, thread) ? 0 : -ESRCH;
}

int vb_dpa_debug_info(struct vb_dpa_debug *debug, uint32_t thread, struct vb_dpa_thread_info *out)
{
	int err = check(debug, thread);

	if (!err)
		*out = find(debug, thread)->info;
	return err;
}

int vb_dpa_debug_state(struct vb_dpa_debug *debug, uint32_t thread, struct vb_dpa_state *out)
{
	int err = check(debug, thread);

	if (!err)
		*out = find(debug, thread)->state;
	return err;
}

int vb_dpa_debug_set_state(struct vb_dpa_debug *debug, uint32_t thread,
			   const struct vb_dpa_state *state)
{
	int err = check(debug, thread);

	if (!err)
		find(debug, thread)->state = *state;
	return err;
}

static int copy(struct vb_dpa_process *process, uint64_t addr, void *bytes, uint64_t len,
		bool write, uint64_t *done)
{
	for (*done = 0; *done < len; (*done)++) {
		uint64_t at = addr + *done - FAKE_BASE;

		if (at >= FAKE_SIZE || (write && at < FAKE_TEXT))
			return -EFAULT;
		if (write)
			process->memory[at] = ((uint8_t *)bytes)[*done];
		else
			((uint8_t *)bytes)[*done] = process->memory[at];
	}
	return 0;
}

int vb_dpa_debug_read(struct vb_dpa_debug *debug, uint32_t thread, uint64_t addr, void *to,
		      uint64_t len, uint64_t *done)
{
	int err = check(debug, thread);

	return err ? err : copy(&debug->process, addr, to, len, false, done);
}

int vb_dpa_debug_write(struct vb_dpa_debug *debug, uint32_t thread, uint64_t addr, const void *from,
		       uint64_t len, uint64_t *done)
{
	int err = check(debug, thread);

	return err ? err : copy(&debug->process, addr, (void *)from, len, true, done);
}

/* ---- dpa/dpa.h ---- */

uint64_t vb_dpa_process_entry(const struct vb_dpa_process *process)
{
	return FAKE_ENTRY;
}

uint64_t vb_dpa_clock(const struct vb_dpa_process *process, uint64_t instret)
{
	return instret + 1;
}

int vb_dpa_mem_read(struct vb_dpa_process *process, uint64_t addr, void *to, uint64_t len)
{
	uint64_t done;

	return copy(process, addr, to, len, false, &done);
}

int vb_dpa_mem_write(struct vb_dpa_process *process, uint64_t addr, const void *from, uint64_t len)
{
	uint64_t done;

	return copy(process, addr, (void *)from, len, true, &done);
}
