// SPDX-License-Identifier: MIT
/*
 * Random bytes as what a program shows to tools: libdpa_stats reads all of it, and neither looks outside of the file nor
 * believes what it says about its size.
 *
 *	1 byte     bit 0: the file is shorter than it says; bits 1 to 7: how short, in pieces of 256 bytes. One that becomes
 *	           shorter while it is read is in tests/unit/test_monitor.c: copies that fault do not come back here, because
 *	           the sanitizer's own memmove has too large a frame (host/fault.c, is_guarded)
 *	then, as often as there are bytes for it, changes to a file that is right:
 *	2 bytes    where, in words
 *	1 byte     how many bytes follow, 1 to 8
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <dpa_stats.h>

#include "control/show/monitor.h"

enum { SIZE = 32768, PROCESSES = 8192, THREADS = 11264, BUFFER = 24576, SAMPLES = 64, SLOT = 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_vb_monitor_each(int (*visit)(struct vb_monitor_view *view, void *arg), void *arg);

static int file = -1;

static void make_section(struct vb_monitor_section *s, enum vb_monitor_kind kind, uint32_t size,
			 uint32_t base, uint64_t chunk)
{
	s->entry_size = size;
	s->base = base;
	s->count = 4;
	s->chunk[0] = chunk;
	s->kind = kind;
}

/* Four processes of mlx5_0, each with a thread; one has samples. */
static void make_file(uint8_t *image)
{
	struct vb_monitor_header *header = (void *)image;
	struct vb_monitor_process *p = (void *)(image + PROCESSES);
	struct vb_monitor_thread *t = (void *)(image + THREADS);
	struct vb_monitor_sample *s = (void *)(image + BUFFER);

	memset(image, 0, SIZE);
	header->magic = VB_MONITOR_MAGIC;
	header->slot = SLOT;
	header->size = SIZE;
	make_section(&header->section[0], VB_MONITOR_DPA_PROCESS, sizeof(*p), 16, PROCESSES);
	make_section(&header->section[1], VB_MONITOR_DPA_THREAD, sizeof(*t), 64, THREADS);
	for (uint32_t i = 0; i < 4; i++) {
		p[i].seq.used = t[i].seq.used = 1;
		p[i].id = t[i].process_id = SLOT << 20 | i;
		strcpy(p[i].adapter, "mlx5_0");
		t[i].process = i;
		t[i].id = i;
	}
	p[0].buffer = BUFFER;
	p[0].samples = SAMPLES;
	for (uint32_t i = 0; i < SAMPLES; i++) {
		s[i].seq.number = 2;
		s[i].type = i % 2 ? VB_MONITOR_OUT : VB_MONITOR_IN;
	}
}

int __wrap_vb_monitor_each(int (*visit)(struct vb_monitor_view *view, void *arg), void *arg)
{
	struct vb_monitor_view *view;
	int ret = vb_monitor_view_open(file, &view);

	if (ret)
		return 0;
	ret = visit(view, arg);
	vb_monitor_view_close(view);
	return ret;
}

static void check_name(const char *name)
{
	if (!memchr(name, 0, DPA_STATS_NAME_SIZE))
		abort();
}

/* slot: as the file says. */
static void read_all(dpa_stats_handler_t *h, uint32_t slot)
{
	dpa_stats_process_list *processes = NULL;
	dpa_stats_thread_list *threads = NULL;
	dpa_stats_perf_cumul_list *counters = NULL;
	dpa_stats_perf_event_list *samples = NULL;

	if (dpa_stats_read_processes_list(h, DPA_STATS_ALL_PROCESSES, &processes) ||
	    processes->process_num > VB_MONITOR_REQUESTS)
		abort();
	for (uint32_t i = 0; i < processes->process_num; i++) {
		check_name(processes->processes[i].process_name);
		if (processes->processes[i].dpa_process_id >> 20 != slot)
			abort();
	}
	dpa_stats_read_thread_list(h, processes, &threads);
	for (uint32_t i = 0; threads && i < threads->threads_num; i++)
		check_name(threads->threads[i].thread_name);
	dpa_stats_read_process_cumul_info_list(h, DPA_STATS_ALL_PROCESSES, DPA_STATS_ALL_THREADS,
					       &counters);
	dpa_stats_read_perf_event_list(h, processes, &samples);
	dpa_stats_free_process_list(processes);
	dpa_stats_free_thread_list(threads);
	dpa_stats_free_cumul_info_list(counters);
	dpa_stats_free_perf_event_list(samples);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static dpa_stats_handler_t *h;
	static _Alignas(64) uint8_t image[SIZE];
	uint32_t slot;
	size_t whole;

	if (file < 0)
		file = memfd_create("show", MFD_CLOEXEC);
	if (!h)
		h = dpa_stats_open("mlx5_0");
	if (file < 0 || !h)
		abort();
	make_file(image);
	for (size_t at = 1; at + 4 <= size;) {
		size_t where = (size_t)(data[at] | data[at + 1] << 8) * 8 % SIZE;
		size_t len = 1 + data[at + 2] % 8;

		at += 3;
		if (len > size - at)
			len = size - at;
		memcpy(image + where, data + at, len);
		at += len;
	}
	whole = size && data[0] & 1 ? (data[0] >> 1) * 256 : SIZE;
	if (ftruncate(file, 0) || pwrite(file, image, whole, 0) != (ssize_t)whole)
		abort();
	slot = ((struct vb_monitor_header *)image)->slot;
	read_all(h, slot);
	for (int state = 1; state < 4; state++)
		for (int type = 0; type < 2; type++)
			dpa_stats_set_counter_state(h, DPA_STATS_ALL_PROCESSES,
						    (dpa_stats_counter_state)state,
						    (dpa_stats_sample_type)type);
	read_all(h, slot);
	return 0;
}
