// SPDX-License-Identifier: MIT
/* Snapshots of threads, and core files: what is in them, and what it costs. */
#include "bed.h"

#include <elf.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static struct bed bed;
static uint64_t page;
static int spin, back;

/*
 *   spin(n)  stores n + 1, n + 2... below its stack pointer, and keeps the same number in t0
 *   back()   returns
 */
static int setup(void **state)
{
	(void)state;
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	rv_init(&bed.p);
	rv_data(&bed.p, NULL, 64, 64);
	spin = rv_label(&bed.p);
	rv_place(&bed.p, spin);
	rv_emit(&bed.p, OP_addi, 2, 2, 0, -16);
	rv_emit(&bed.p, OP_addi, 5, 10, 0, 0);
	{
		int top = rv_label(&bed.p);

		rv_place(&bed.p, top);
		rv_emit(&bed.p, OP_addi, 5, 5, 0, 1);
		rv_emit(&bed.p, OP_sd, 0, 2, 5, 8);
		rv_jump(&bed.p, 0, top);
	}
	back = rv_label(&bed.p);
	rv_place(&bed.p, back);
	rv_emit(&bed.p, OP_jalr, 0, 1, 0, 0);
	bed_open(&bed, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	bed_close(&bed);
	return 0;
}

/* ---- a core in memory ---- */

struct file {
	uint8_t *bytes;
	size_t len, room;
	unsigned int writes, fail_at; /* 0: never */
};

static int append(const void *bytes, size_t len, void *arg)
{
	struct file *f = arg;

	if (++f->writes == f->fail_at)
		return -ENOSPC;
	if (f->len + len > f->room) {
		f->room = 2 * (f->len + len);
		f->bytes = realloc(f->bytes, f->room);
		assert_non_null(f->bytes);
	}
	memcpy(f->bytes + f->len, bytes, len);
	f->len += len;
	return 0;
}

static int write_core(const struct vb_dpa_snapshot *list, size_t count, struct file *f)
{
	const struct vb_dpa_snapshot *threads[16];
	struct vb_dpa_core core = { .threads = threads,
				    .count = count,
				    .signal = SIGSEGV,
				    .program = "a name that is much too long for it",
				    .words = "words",
				    .write = append,
				    .arg = f };

	assert_true(count <= 16);
	for (size_t i = 0; i < count; i++)
		threads[i] = &list[i];
	return vb_dpa_core_write(bed.process, &core);
}

static const Elf64_Phdr *header(const struct file *f, unsigned int i)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)f->bytes;

	return i < e->e_phnum ? (const Elf64_Phdr *)(f->bytes + e->e_phoff) + i : NULL;
}

/* A word of guest memory as a debugger reads it. False: the core does not have the address. */
static bool core_word(const struct file *f, uint64_t addr, uint64_t *word)
{
	const Elf64_Phdr *p;

	for (unsigned int i = 1; (p = header(f, i)); i++) {
		if (addr < p->p_vaddr || addr - p->p_vaddr >= p->p_memsz)
			continue;
		*word = 0;
		if (addr - p->p_vaddr < p->p_filesz)
			memcpy(word, f->bytes + p->p_offset + (addr - p->p_vaddr), sizeof(*word));
		return true;
	}
	return false;
}

static uint64_t word_of(const struct file *f, uint64_t addr)
{
	uint64_t word = 0;

	assert_true(core_word(f, addr, &word));
	return word;
}

/* Everything that can be said of any core of ours. */
static void check_form(const struct file *f)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)f->bytes;
	const Elf64_Phdr *note = header(f, 0), *p;
	uint64_t end = 0, data = 0;

	assert_memory_equal(e->e_ident, ELFMAG, SELFMAG);
	assert_int_equal(e->e_type, ET_CORE);
	assert_int_equal(e->e_machine, EM_RISCV);
	assert_int_equal(note->p_type, PT_NOTE);
	data = (note->p_offset + note->p_filesz + page - 1) & ~(page - 1);
	for (unsigned int i = 1; (p = header(f, i)); i++) {
		assert_int_equal(p->p_type, PT_LOAD);
		assert_true(p->p_vaddr >= end && p->p_filesz <= p->p_memsz && p->p_memsz);
		assert_int_equal(p->p_offset, data);
		end = p->p_vaddr + p->p_memsz;
		data += p->p_filesz;
	}
	assert_int_equal(data, f->len);
}

/* The nth note of a type; NULL: there are not so many. */
static const uint8_t *note_of(const struct file *f, uint32_t type, unsigned int n, size_t *len)
{
	const Elf64_Phdr *note = header(f, 0);
	uint64_t at = note->p_offset, end = at + note->p_filesz;

	while (at < end) {
		const Elf64_Nhdr *h = (const Elf64_Nhdr *)(f->bytes + at);

		assert_int_equal(h->n_namesz, 5);
		assert_string_equal((const char *)(h + 1), "CORE");
		assert_int_equal(h->n_descsz % 4, 0);
		at += sizeof(*h) + 8 + h->n_descsz;
		assert_true(at <= end);
		*len = h->n_descsz;
		if (h->n_type == type && !n--)
			return f->bytes + at - h->n_descsz;
	}
	return NULL;
}

static uint64_t note_word(const uint8_t *note, size_t offset, size_t size)
{
	uint64_t word = 0;

	memcpy(&word, note + offset, size);
	return word;
}

/* ---- tests ---- */

static uint32_t ten_times(struct vb_dpa_thread *thread)
{
	return 10 * vb_dpa_thread_number(thread);
}

static struct vb_dpa_thread *make(int label, uint64_t arg)
{
	struct vb_dpa_thread *thread;

	assert_int_equal(vb_dpa_thread_create(bed.process, NULL, &thread), 0);
	assert_int_equal(vb_dpa_thread_set_call(thread, rv_address(&bed.p, label), &arg, 1), 0);
	return thread;
}

static void test_notes(void **state)
{
	struct vb_dpa_thread *other = make(spin, 1);
	struct vb_dpa_snapshot *list;
	struct file f = { 0 };
	const uint8_t *note;
	size_t count, len;

	(void)state;
	for (unsigned int i = 1; i < 32; i++)
		bed_state(&bed)->x[i] = 0x1000 + i;
	bed_state(&bed)->pc = 0x77777;
	bed_state(&bed)->tval = 0x12345678;
	assert_int_equal(vb_dpa_snapshots_take(bed.process, ten_times, &list, &count), 0);
	assert_int_equal(count, 2);
	assert_int_equal(write_core(list, count, &f), 0);
	check_form(&f);
	note = note_of(&f, NT_PRSTATUS, 0, &len);
	assert_non_null(note);
	assert_int_equal(len, 376);
	assert_int_equal(note_word(note, 12, 2), SIGSEGV);
	assert_int_equal(note_word(note, 32, 4), 10);
	assert_int_equal(note_word(note, 112, 8), 0x77777);
	for (unsigned int i = 1; i < 32; i++)
		assert_int_equal(note_word(note, 112 + 8 * i, 8), 0x1000 + i);
	note = note_of(&f, NT_PRSTATUS, 1, &len);
	assert_non_null(note);
	assert_int_equal(note_word(note, 12, 2), SIGSEGV); /* of the process, as Linux has it */
	assert_int_equal(note_word(note, 32, 4), 20);
	assert_int_equal(note_word(note, 112, 8), rv_address(&bed.p, spin));
	assert_null(note_of(&f, NT_PRSTATUS, 2, &len));
	note = note_of(&f, NT_PRPSINFO, 0, &len);
	assert_non_null(note);
	assert_int_equal(len, 136);
	assert_string_equal((const char *)note + 40, "a name that is "); /* 15 bytes */
	assert_string_equal((const char *)note + 56, "words");
	note = note_of(&f, NT_SIGINFO, 0, &len);
	assert_non_null(note);
	assert_int_equal(note_word(note, 16, 8), 0x12345678);
	vb_dpa_snapshots_free(list, count);
	free(f.bytes);
	assert_int_equal(vb_dpa_thread_destroy(other), 0);
	bed_reset(&bed);
}

/* Every mapped page is there, with what it has; what nobody touched takes no room. */
static void test_memory(void **state)
{
	uint64_t heap = 0x10000000, size = 512ull << 20, word;
	struct vb_dpa_range range = { 0 };
	struct file f = { 0 };
	size_t before;

	(void)state;
	assert_int_equal(write_core(NULL, 0, &f), 0);
	before = f.len;
	assert_int_equal(vb_dpa_mem_map(bed.process, &heap, size, VB_DPA_READ | VB_DPA_WRITE), 0);
	f.len = 0;
	assert_int_equal(write_core(NULL, 0, &f), 0);
	check_form(&f);
	assert_true(f.len <= before + page);
	assert_int_equal(word_of(&f, heap), 0);
	assert_int_equal(word_of(&f, heap + size - 8), 0);
	assert_false(core_word(&f, heap + size, &word));
	/* touched but zero, far apart, close together, at both ends */
	for (uint64_t at = 0; at < 64 * page; at += page)
		assert_int_equal(
			vb_dpa_mem_write(bed.process, heap + (1 << 20) + at, &(uint64_t){ 0 }, 8),
			0);
	for (unsigned int i = 0; i < 6; i++) {
		static const uint64_t at[] = { 0, 5, 100, 116, 117, 131071 };

		word = 0xabc0 + i;
		assert_int_equal(vb_dpa_mem_write(bed.process, heap + at[i] * 4096 + 8, &word, 8),
				 0);
	}
	f.len = 0;
	assert_int_equal(write_core(NULL, 0, &f), 0);
	check_form(&f);
	assert_true(f.len <= before + 32 * 4096 + page);
	for (uint64_t addr = 0; vb_dpa_mem_next(bed.process, addr, &range);
	     addr = range.addr + range.len)
		for (uint64_t at = 8; at < range.len; at += page) {
			assert_int_equal(vb_dpa_mem_read(bed.process, range.addr + at, &word, 8),
					 0);
			assert_int_equal(word_of(&f, range.addr + at), word);
		}
	free(f.bytes);
	assert_int_equal(vb_dpa_mem_unmap(bed.process, heap, size), 0);
}

/* The file of device memory, or -1. */
static int device_file(void)
{
	char path[32], name[64];

	for (int fd = 0; fd < 256; fd++) {
		memset(name, 0, sizeof(name));
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "verbatim-dpa"))
			return fd;
	}
	return -1;
}

/* Memory that peers can map: what they wrote is in the core, whether or not we have seen it. */
static void test_filed(void **state)
{
	uint64_t heap = 0, size = 16 << 20, word = 4711;
	struct file f = { 0 };
	size_t before;
	int fd;

	(void)state;
	assert_int_equal(write_core(NULL, 0, &f), 0);
	before = f.len;
	assert_int_equal(vb_dpa_mem_map_shareable(bed.process, &heap, size), 0);
	assert_int_equal(vb_dpa_mem_write(bed.process, heap + (5 << 20), &word, 8), 0);
	fd = device_file();
	if (fd >= 0) { /* private elsewhere */
		assert_int_equal(pwrite(fd, &word, 8, (off_t)(heap + (9 << 20))), 8);
		assert_int_equal(vb_dpa_mem_unmap(bed.process, heap, size), -EINVAL);
		assert_int_equal(vb_dpa_mem_protect(bed.process, heap, page, VB_DPA_READ), -EINVAL);
	}
	f.len = 0;
	assert_int_equal(write_core(NULL, 0, &f), 0);
	check_form(&f);
	assert_true(f.len <= before + 4 * page);
	assert_int_equal(word_of(&f, heap + (5 << 20)), 4711);
	assert_int_equal(word_of(&f, heap + (9 << 20)), fd >= 0 ? 4711 : 0);
	assert_int_equal(word_of(&f, heap + size - 8), 0);
	if (fd >= 0) { /* without its descriptor */
		word = 13;
		assert_int_equal(pwrite(fd, &word, 8, (off_t)(heap + (7 << 20))), 8);
		close(fd);
		f.len = 0;
		assert_int_equal(write_core(NULL, 0, &f), 0);
		assert_int_equal(word_of(&f, heap + (7 << 20)), 13);
	}
	free(f.bytes);
}

/* Threads that run: each is of one moment, and goes on. */
static void test_running(void **state)
{
	struct vb_dpa_thread *threads[3];
	struct vb_dpa_snapshot *list;
	size_t count;

	(void)state;
	for (uint64_t i = 0; i < 3; i++) {
		threads[i] = make(spin, i << 60);
		assert_int_equal(vb_dpa_thread_start(threads[i]), 0);
	}
	for (unsigned int round = 0; round < 50; round++) {
		struct file f = { 0 };

		assert_int_equal(vb_dpa_snapshots_take(bed.process, NULL, &list, &count), 0);
		assert_int_equal(count, 4);
		assert_int_equal(write_core(list, count, &f), 0);
		check_form(&f);
		for (unsigned int i = 1; i < 4; i++) {
			uint64_t t0 = list[i].state.x[5], sp = list[i].state.x[2];

			if (list[i].late || !list[i].stack_len)
				continue; /* a busy machine; or it has not begun */
			/* between the two instructions, or behind both */
			assert_in_range(t0 - word_of(&f, sp + 8), 0, 1);
			assert_int_equal(t0 >> 60, i - 1);
		}
		vb_dpa_snapshots_free(list, count);
		free(f.bytes);
	}
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(vb_dpa_thread_stop(threads[i]), 0);
		assert_true(vb_dpa_thread_state(threads[i])->x[5] > (uint64_t)i << 60);
		assert_int_equal(vb_dpa_thread_destroy(threads[i]), 0);
	}
}

/* The stack of a thread that is gone stays in the core, whatever is mapped there now. */
static void test_gone(void **state)
{
	struct vb_dpa_thread *thread = make(spin, 41);
	struct vb_dpa_snapshot *list;
	struct file f = { 0 };
	enum vb_dpa_why why;
	uint64_t sp, word;
	size_t count;

	(void)state;
	assert_int_equal(vb_dpa_thread_run(thread, 4, &why), 0);
	assert_int_equal(vb_dpa_snapshots_take(bed.process, NULL, &list, &count), 0);
	assert_int_equal(count, 2);
	sp = list[1].state.x[2];
	assert_int_equal(vb_dpa_thread_destroy(thread), 0);
	assert_int_equal(vb_dpa_mem_read(bed.process, sp, &word, 8), -EFAULT);
	assert_int_equal(write_core(list, count, &f), 0);
	check_form(&f);
	assert_int_equal(word_of(&f, sp + 8), 42);
	vb_dpa_snapshots_free(list, count);
	free(f.bytes);
}

/* Stack pointers that point to no stack, or below it: then all of it was in use. */
static void test_wild_stack(void **state)
{
	struct vb_dpa_thread *thread = make(spin, 0);
	struct vb_dpa_stack stack;
	struct vb_dpa_snapshot *list;
	size_t count;

	(void)state;
	vb_dpa_thread_stack(thread, &stack);
	for (unsigned int i = 0; i < 8; i++) {
		const uint64_t sp[] = { 0,
					1,
					UINT64_MAX,
					1ull << 40,
					stack.addr + stack.size,
					RV_TEXT,
					stack.addr + 3,
					stack.addr - 1 };
		static const uint64_t off[] = { 0, 0, 1, 1, 1, 0, 3, 0 };
		struct file f = { 0 };

		vb_dpa_thread_state(thread)->x[2] = sp[i];
		assert_int_equal(vb_dpa_snapshots_take(bed.process, NULL, &list, &count), 0);
		assert_int_equal(list[1].stack_len, off[i] == 1 ? 0 : stack.size - off[i]);
		assert_int_equal(write_core(list, count, &f), 0);
		check_form(&f);
		vb_dpa_snapshots_free(list, count);
		free(f.bytes);
	}
	assert_int_equal(vb_dpa_thread_destroy(thread), 0);
}

/* An error of the file ends it at once, wherever it comes. */
static void test_full(void **state)
{
	struct file f = { 0 };
	unsigned int writes;

	(void)state;
	assert_int_equal(write_core(NULL, 0, &f), 0);
	writes = f.writes;
	for (unsigned int i = 1; i <= writes; i++) {
		f.writes = 0;
		f.fail_at = i;
		f.len = 0;
		assert_int_equal(write_core(NULL, 0, &f), -ENOSPC);
		assert_int_equal(f.writes, i);
	}
	free(f.bytes);
}

static atomic_bool over;

static void *come_and_go(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		struct vb_dpa_thread *thread = make(spin, 7);

		if (vb_dpa_thread_start(thread))
			abort();
		vb_dpa_thread_stop(thread);
		vb_dpa_thread_destroy(thread);
	}
	return NULL;
}

static void *call_on(void *arg)
{
	struct vb_dpa_thread *thread = make(back, 0);

	(void)arg;
	while (!atomic_load(&over))
		if (vb_dpa_call(thread, rv_address(&bed.p, back), NULL, 0, NULL))
			abort();
	vb_dpa_thread_destroy(thread);
	return NULL;
}

/* Threads come and go, and are called, while others take snapshots at the same time. */
static void test_storm(void **state)
{
	pthread_t threads[4];

	(void)state;
	atomic_store(&over, false);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, i < 2 ? come_and_go : call_on, NULL), 0);
	for (unsigned int i = 0; i < 300; i++) {
		struct vb_dpa_snapshot *list;
		struct file f = { 0 };
		size_t count;

		assert_int_equal(vb_dpa_snapshots_take(bed.process, NULL, &list, &count), 0);
		assert_in_range(count, 1, 5);
		assert_int_equal(write_core(list, count, &f), 0);
		check_form(&f);
		vb_dpa_snapshots_free(list, count);
		free(f.bytes);
	}
	atomic_store(&over, true);
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_notes), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_filed), cmocka_unit_test(test_running),
		cmocka_unit_test(test_gone),  cmocka_unit_test(test_wild_stack),
		cmocka_unit_test(test_full),  cmocka_unit_test(test_storm),
	};

	bed_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
