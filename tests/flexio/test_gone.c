// SPDX-License-Identifier: MIT
/*
 * Device memory that goes while the host uses it: an RPC that runs out of time loses its stack, and another thread of the
 * same process has just named that stack to the host. Whatever happens to the copy, the program goes on.
 */
#include "bed.h"

#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/device/rtos.h"

enum { STACK_BYTES = 40000, RACES = 10 };

/* One call on a host thread of its own. */
struct call {
	struct flexio_process *process;
	const char *name;
	uint64_t arg, result;
	flexio_status status;
	_Atomic bool ended;
	pthread_t thread;
};

static void *run_call(void *arg)
{
	struct call *c = arg;

	c->status = bed_call(c->process, c->name, c->arg, &c->result);
	c->ended = true;
	return NULL;
}

static void call_start(struct call *c, struct flexio_process *process, const char *name,
		       uint64_t arg)
{
	*c = (struct call){ .process = process, .name = name, .arg = arg };
	assert_int_equal(pthread_create(&c->thread, NULL, run_call, c), 0);
}

static flexio_status call_end(struct call *c)
{
	pthread_join(c->thread, NULL);
	return c->status;
}

/* Start the call whose stack will go; the address of its buffer. */
static uint64_t stack_start(struct call *c, struct flexio_process *process, flexio_uintptr_t word)
{
	bed_write(process, word, 0);
	call_start(c, process, "show_stack", word);
	bed_await(process, word, 1);
	return bed_read(process, word);
}

/*
 * A stream whose reader waits: a long message stays half way in. Batch mode, because a call writes synchronous streams
 * out itself and could not run out of time before the reader comes.
 */
struct narrow {
	FILE *file;
	int fds[2];
	struct flexio_msg_stream *stream;
};

static void narrow_open(struct narrow *n, struct flexio_process *process)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_BATCH,
					  .level = FLEXIO_MSG_DEV_INFO };

	assert_int_equal(pipe(n->fds), 0);
	assert_true(fcntl(n->fds[1], F_SETPIPE_SZ, 4096) > 0);
	n->file = fdopen(n->fds[1], "w");
	assert_ok(flexio_msg_stream_create(process, &attr, n->file, NULL, &n->stream));
}

static bool narrow_full(const struct narrow *n)
{
	struct pollfd room = { .fd = n->fds[1], .events = POLLOUT };

	return !poll(&room, 1, 0);
}

static void *read_all(void *arg)
{
	static char buf[4096];
	ssize_t n, total = 0;

	while ((n = read(*(int *)arg, buf, sizeof(buf))) > 0)
		total += n;
	return (void *)total;
}

/* Let the reader come, end the stream; how many bytes came out. */
static size_t narrow_close(struct narrow *n, struct call *sender)
{
	pthread_t reader;
	void *total;

	assert_int_equal(pthread_create(&reader, NULL, read_all, &n->fds[0]), 0);
	call_end(sender);
	assert_ok(flexio_msg_stream_destroy(n->stream));
	fclose(n->file);
	pthread_join(reader, &total);
	close(n->fds[0]);
	return (size_t)total;
}

/*
 * name(args) makes the host print the buffer of a call that runs out of time while the stream is stuck. False: the call
 * ran out of time before it came to that.
 */
static bool print_gone(const char *name, const uint64_t args[5], unsigned int at)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8), list = bed_alloc(process, 64);
	struct call owner, sender;
	struct narrow narrow;
	uint64_t copy[5];
	size_t bytes;
	bool stuck;

	memcpy(copy, args, sizeof(copy));
	narrow_open(&narrow, process);
	copy[at] = stack_start(&owner, process, word);
	assert_ok(flexio_host2dev_memcpy(process, copy, sizeof(copy), list));
	call_start(&sender, process, name, list);
	while (!(stuck = narrow_full(&narrow)) && !sender.ended)
		usleep(1000);
	assert_int_equal(call_end(&owner), FLEXIO_STATUS_TIMEOUT);
	bytes = narrow_close(&narrow, &sender);
	assert_true(!stuck || (bytes >= 2048 && bytes < STACK_BYTES));
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
	return stuck;
}

static void test_message(void **state)
{
	while (!print_gone("raw_call", (uint64_t[]){ VB_RTOS_MSG, 0, 4, 0, STACK_BYTES }, 3))
		;
}

static void test_line(void **state)
{
	while (!print_gone("hold_line", (uint64_t[5]){ 0, STACK_BYTES }, 0))
		;
}

/* A copy or a fill that the host itself asked for: it succeeds or fails. */
static void test_host_calls(void **state)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8);
	static char data[STACK_BYTES];

	for (unsigned int i = 0; i < RACES; i++) {
		struct call owner;
		uint64_t stack = stack_start(&owner, process, word);

		if (i % 2)
			while (!flexio_buf_dev_memset(process, 1, STACK_BYTES, stack))
				;
		else
			while (!flexio_host2dev_memcpy(process, data, STACK_BYTES, stack))
				;
		assert_int_equal(call_end(&owner), FLEXIO_STATUS_TIMEOUT);
	}
	assert_int_equal(bed_value(process, "add_one", 1), 2);
	bed_process_end(process);
}

/* How many pages below the heap, where the program lies, take the doorbell record of a CQ. */
static unsigned int pages_for_queues(struct flexio_process *process)
{
	struct flexio_cq_attr attr = { .element_type = FLEXIO_CQ_ELEMENT_TYPE_NON_DPA_CQ };
	struct flexio_heap_mem_info heap;
	struct flexio_cq *cq;
	unsigned int pages = 0;

	assert_ok(flexio_process_mem_info_get(process, &heap));
	attr.uar_id = flexio_uar_get_id(flexio_process_get_uar(process));
	attr.cq_ring_qmem.daddr = bed_alloc(process, 64);
	for (uint64_t page = 4096; page < heap.base_addr; page += 4096) {
		attr.cq_dbr_daddr = page;
		if (flexio_cq_create(process, NULL, &attr, &cq))
			continue;
		assert_ok(flexio_cq_destroy(cq));
		pages++;
	}
	return pages;
}

/*
 * The card uses rings and records for as long as a queue lives. So they lie in memory that stays: that of threads does
 * not, also where it fills the gaps around the program because all else is full.
 */
static void test_queue_memory(void **state)
{
	enum { MOST = 20000 };
	struct flexio_event_handler **handler = calloc(MOST, sizeof(*handler));
	struct flexio_process *process = bed_process();
	struct flexio_event_handler_attr attr = { .host_stub_func = bed_func("handler") };
	unsigned int before = pages_for_queues(process), n = 0;

	assert_true(before >= 1); /* the program's variables */
	while (n < MOST && !flexio_event_handler_create(process, &attr, &handler[n]))
		n++;
	assert_in_range(n, 1000, MOST - 1);
	assert_int_equal(pages_for_queues(process), before);
	while (n--)
		assert_ok(flexio_event_handler_destroy(handler[n]));
	free(handler);
	bed_process_end(process);
}

/* The program with the symbol of the traces' table at an address of its own choice. */
static struct flexio_app *forged_app(uint64_t value)
{
	static const char old[] = "__flexio_dev_msg_levels", new[] = "g_dev_p_tracer_ctx";
	struct flexio_app_attr attr = { .app_name = "forged" };
	uint8_t *elf = bed_elf(&attr.app_bsize);
	Elf64_Ehdr *eh = (Elf64_Ehdr *)elf;
	Elf64_Shdr *sh = (Elf64_Shdr *)(elf + eh->e_shoff);
	struct flexio_app *app = NULL;
	unsigned int forged = 0;

	for (unsigned int i = 0; i < eh->e_shnum; i++) {
		Elf64_Sym *sym = (Elf64_Sym *)(elf + sh[i].sh_offset);
		char *names = (char *)elf + sh[sh[i].sh_link].sh_offset;

		for (size_t n = 0; sh[i].sh_type == SHT_SYMTAB && n < sh[i].sh_size / sizeof(*sym);
		     n++) {
			if (strcmp(names + sym[n].st_name, old))
				continue;
			strcpy(names + sym[n].st_name, new);
			sym[n].st_value = value;
			forged++;
		}
	}
	assert_int_equal(forged, 1);
	attr.app_ptr = elf;
	assert_ok(flexio_app_create(&attr, &app));
	free(elf);
	return app;
}

/* Where the stack of a call lies: in the same place in every process of the program. */
static uint64_t stack_of_call(void)
{
	struct flexio_process *process = bed_process();
	flexio_uintptr_t word = bed_alloc(process, 8);
	struct call owner;
	uint64_t stack = stack_start(&owner, process, word);

	assert_int_equal(call_end(&owner), FLEXIO_STATUS_TIMEOUT);
	bed_process_end(process);
	return stack;
}

/* Wherever the file says that the address of the traces' table has to be stored, the program goes on. */
static void test_forged_tracer(void **state)
{
	const uint64_t values[] = {
		0,         1,         4096,      0x10000,        0x10004,
		1UL << 30, 3UL << 30, 1UL << 63, UINT64_MAX - 3, stack_of_call()
	};
	static char format[] = "%d\n";
	char *formats[] = { format, NULL };
	flexio_msg_stream_attr_t attr = { .data_bsize = 2048,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_TRACER,
					  .level = FLEXIO_MSG_DEV_INFO,
					  .tracer_msg_formats = formats };
	struct flexio_app *own = bed_app;

	for (unsigned int i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct flexio_msg_stream *stream;
		struct flexio_process *process;
		flexio_uintptr_t word;
		struct call owner;

		bed_app = forged_app(values[i]);
		process = bed_process();
		word = bed_alloc(process, 8);
		stack_start(&owner, process, word); /* its stack goes about now */
		while (!owner.ended) {
			assert_ok(flexio_msg_stream_create(process, &attr, stderr, NULL, &stream));
			assert_ok(flexio_msg_stream_destroy(stream));
		}
		assert_int_equal(call_end(&owner), FLEXIO_STATUS_TIMEOUT);
		assert_int_equal(bed_value(process, "add_one", 1), 2);
		bed_process_end(process);
		assert_ok(flexio_app_destroy(bed_app));
	}
	bed_app = own;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message),       cmocka_unit_test(test_line),
		cmocka_unit_test(test_host_calls),    cmocka_unit_test(test_queue_memory),
		cmocka_unit_test(test_forged_tracer),
	};

	setenv("VERBATIM_RPC_TIMEOUT_MS", "300", 1);
	bed_init(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
