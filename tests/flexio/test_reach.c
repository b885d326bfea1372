// SPDX-License-Identifier: MIT
/*
 * Device memory of another process, reached by its key: device code there sees what arrives while it looks, counts on a
 * word together with two processes, and the card's counters say which way the data went: loads and stores, unless that
 * is switched off. The same of a global variable of device code. A child of fork() has device memory of its own in either case.
 */
#include "bed.h"

#include "../programs/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "card/card.h"

enum {
	SIZE = 65536,
	WORD = 0,
	FLAG = 8,
	DATA = 4096,
	LEN = 50000,
	COUNTS = 3000,
	OWN = 200000,
	GLOBAL = 1000
};

/* What the owner of the memory says of it. */
struct told {
	uint64_t daddr;
	uint64_t global; /* a variable of device code */
	uint32_t key, global_key;
	uint32_t files; /* of device memory that it has open */
	pid_t pid;
};

static bool is(const char *variable, const char *value)
{
	return getenv(variable) && !strcmp(getenv(variable), value);
}

static uint64_t change(struct node *node, const struct address *peer, uint64_t add)
{
	struct ibv_sge sge = { (uintptr_t)node->buf, 8, node->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 7,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					.send_flags = IBV_SEND_SIGNALED };

	wr.wr.atomic.remote_addr = peer->addr;
	wr.wr.atomic.rkey = peer->rkey;
	wr.wr.atomic.compare_add = add;
	check_eq(ibv_post_send(node->qp, &wr, &bad), 0);
	cq_expect(node->send_cq, 7, IBV_WC_SUCCESS);
	return *(volatile uint64_t *)node->buf;
}

static void open_small(struct node *node)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);

	attr.size = SIZE;
	node_open(node, &attr);
}

/* The address of the memory in place of the peer's buffer. */
static struct told meet(struct node *node, int fd, struct address *peer)
{
	struct told told;

	node_meet(node, fd, peer);
	msg_recv(fd, &told, sizeof(told));
	peer->addr = told.daddr;
	peer->rkey = told.key;
	return told;
}

/* ---- the owner ---- */

static struct flexio_process *process;
static uint64_t memory, global;

static uint32_t device_files(void)
{
	uint32_t files = 0;

	for (int fd = 0; fd < 256; fd++) {
		char path[32], name[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) > 0)
			files += strstr(name, "memfd:verbatim-dpa") != NULL;
	}
	return files;
}

/* Of the memory, and of the variable. */
static void tell_keys(struct node *node, int fd, struct flexio_mkey *mkeys[2])
{
	struct flexio_mkey_attr attr = {
		.pd = node->pd, .daddr = memory, .len = SIZE, .access = ACCESS_ALL
	};
	struct flexio_mkey_attr small = {
		.pd = node->pd, .daddr = global, .len = 8, .access = ACCESS_ALL
	};
	struct address peer;
	struct told told = {
		.daddr = memory, .global = global, .files = device_files(), .pid = getpid()
	};

	assert_ok(flexio_device_mkey_create(process, &attr, &mkeys[0]));
	assert_ok(flexio_device_mkey_create(process, &small, &mkeys[1]));
	told.key = flexio_mkey_get_id(mkeys[0]);
	told.global_key = flexio_mkey_get_id(mkeys[1]);
	node_meet(node, fd, &peer);
	msg_send(fd, &told, sizeof(told));
}

static void see_writes(void)
{
	static uint8_t expected[LEN];
	uint64_t want = 0;

	bed_words(process, "wait_for", (uint64_t[]){ memory + FLAG, 1 }, 2);
	pattern_fill(expected, LEN, 7);
	for (unsigned int i = 0; i < LEN; i++)
		want = want * 31 + expected[i];
	check_eq(bed_words(process, "sum", (uint64_t[]){ memory + DATA, LEN }, 2), want);
}

/* Each has what was there at the fork, and then its own. */
static void fork_memory(void)
{
	uint64_t untouched = memory + DATA + LEN;
	int pair[2], status;
	pid_t pid;
	char go;

	bed_write(process, memory + FLAG, 100);
	check_eq(pipe(pair), 0);
	pid = fork();
	if (!pid) {
		if (read(pair[0], &go, 1) != 1 || bed_read(process, memory + FLAG) != 100 ||
		    bed_read(process, untouched) || device_files())
			_exit(1);
		bed_write(process, memory + FLAG, 300);
		bed_write(process, untouched, 300);
		_exit(bed_read(process, memory + FLAG) != 300 ||
		      bed_read(process, untouched) != 300);
	}
	bed_write(process, memory + FLAG, 200);
	check_eq(write(pair[1], "", 1), 1);
	check_eq(waitpid(pid, &status, 0), pid);
	check_eq(status, 0);
	check_eq(bed_read(process, memory + FLAG), 200);
	check_eq(bed_read(process, untouched), 0);
	close(pair[0]);
	close(pair[1]);
}

static int owner(void)
{
	char *argv[] = { (char *)"owner", getenv("REACH_ELF"), NULL };
	struct flexio_mkey *mkeys[4];
	struct node nodes[2];
	pid_t pid;
	char go;
	int fd;

	bed_init(2, argv);
	open_small(&nodes[0]);
	open_small(&nodes[1]);
	assert_ok(flexio_process_create(nodes[0].ctx, bed_app, NULL, &process));
	memory = bed_alloc(process, SIZE);
	assert_ok(flexio_buf_dev_memset(process, 0, SIZE, memory));
	global = bed_value(process, "global_addr", 0);
	tell_keys(&nodes[0], ROLE_FD, mkeys);
	see_writes();
	msg_send(ROLE_FD, "", 1);
	pid = spawn_self("adder", &fd);
	tell_keys(&nodes[1], fd, mkeys + 2);
	msg_send(fd, "", 1);
	msg_send(ROLE_FD, "", 1);
	bed_words(process, "add_often", (uint64_t[]){ memory + WORD, 1, OWN }, 3);
	msg_recv(fd, &go, 1);
	msg_recv(ROLE_FD, &go, 1);
	check_eq(bed_read(process, memory + WORD), OWN + 2 * COUNTS);
	if (!is("REACH_FORK", "no"))
		fork_memory();
	msg_send(ROLE_FD, "", 1); /* shared with the peer as before: see main() */
	msg_recv(ROLE_FD, &go, 1);
	check_eq(bed_read(process, memory + FLAG), 4711);
	check_eq(bed_value(process, "count", 1), GLOBAL + 5 + 1);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &go, 1);
	msg_send(fd, "", 1);
	spawn_wait(pid);
	for (int i = 0; i < 4; i++)
		assert_ok(flexio_device_mkey_destroy(mkeys[i]));
	bed_process_end(process);
	check_eq(device_files(), 0);
	node_close(&nodes[0]);
	node_close(&nodes[1]);
	return 0;
}

/* ---- peers ---- */

/* It has nothing but packets. */
static int adder(void)
{
	struct address peer;
	struct node node;
	char go;

	setenv("VERBATIM_DIRECT", "off", 1);
	open_small(&node);
	meet(&node, ROLE_FD, &peer);
	msg_recv(ROLE_FD, &go, 1);
	for (int i = 0; i < COUNTS; i++)
		change(&node, &peer, 1);
	msg_send(ROLE_FD, "", 1);
	msg_recv(ROLE_FD, &go, 1);
	node_close(&node);
	return 0;
}

/* Whether a file of the kernel has this text. */
static bool says(const char *path, const char *text)
{
	char line[128] = "";
	FILE *file = fopen(path, "r");

	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = 0;
	fclose(file);
	return strstr(line, text) != NULL;
}

/* Device memory lies in files unless that costs something, and unless it is forbidden. */
static void check_files(const struct told *told)
{
	if (is("VERBATIM_SHARE", "off") || is("REACH_SHARE", "off"))
		check_eq(told->files, 0);
	else if (!says("/sys/kernel/mm/transparent_hugepage/enabled", "[always]") &&
		 !says("/proc/sys/vm/overcommit_memory", "2"))
		check_eq(told->files, 1);
}

/* The counters that one-sided work and atomics add to: a word of the structure. */
static void expected_ways(const struct told *told, struct vb_path_counters *now, uint64_t **data,
			  uint64_t **atomics)
{
	uint64_t word;
	struct iovec local = { &word, 8 }, remote = { (void *)8, 8 };

	*data = *atomics = &now->packets;
	if (is("VERBATIM_DIRECT", "off"))
		return;
	if (told->files) {
		*data = *atomics = &now->stores;
		return;
	}
	/* Address 8 is nobody's: EFAULT where the kernel would have looked. */
	if (process_vm_readv(told->pid, &local, 1, &remote, 1, 0) < 0 && errno == EFAULT)
		*data = &now->copies;
}

static void write_words(struct node *node, const struct address *peer, uint64_t word)
{
	memcpy(node->buf, &word, 8);
	check_eq(node_rdma(node, 2, IBV_WR_RDMA_WRITE, 0, 8, peer, FLAG), 0);
	cq_expect(node->send_cq, 2, IBV_WC_SUCCESS);
}

static void work(struct node *node, const struct address *peer, const struct told *told, int fd)
{
	struct vb_path_counters now;
	uint64_t *data, *atomics, before, was;
	char go;

	expected_ways(told, &now, &data, &atomics);
	vb_path_counters(vb_card_program(), &now);
	before = *data;
	pattern_fill(node->buf + DATA, LEN, 7);
	check_eq(node_rdma(node, 1, IBV_WR_RDMA_WRITE, DATA, LEN, peer, DATA), 0);
	cq_expect(node->send_cq, 1, IBV_WC_SUCCESS);
	write_words(node, peer, 1);
	msg_recv(fd, &go, 1);
	memset(node->buf, 0, SIZE);
	check_eq(node_rdma(node, 3, IBV_WR_RDMA_READ, DATA, LEN, peer, DATA), 0);
	cq_expect(node->send_cq, 3, IBV_WC_SUCCESS);
	check_eq(pattern_check(node->buf + DATA, LEN, 7), LEN);
	vb_path_counters(vb_card_program(), &now);
	check_eq(*data - before, 3);

	msg_recv(fd, &go, 1);
	before = *atomics;
	was = change(node, peer, 1);
	for (int i = 1; i < COUNTS; i++) {
		uint64_t old = change(node, peer, 1);

		check(old > was, "it went from %llu to %llu", (unsigned long long)was,
		      (unsigned long long)old);
		was = old;
	}
	vb_path_counters(vb_card_program(), &now);
	check_eq(*atomics - before, COUNTS);
	msg_send(fd, "", 1);
	msg_recv(fd, &go, 1); /* it has forked since */
	before = *data;
	write_words(node, peer, 4711);
	vb_path_counters(vb_card_program(), &now);
	check_eq(*data - before, 1);
}

/* The variable that device code counts in: see owner(). */
static void change_global(struct node *node, const struct told *told, int fd)
{
	struct address peer = { .addr = told->global, .rkey = told->global_key };
	struct vb_path_counters now;
	uint64_t *data, *atomics, before[2], word = GLOBAL;
	char go;

	expected_ways(told, &now, &data, &atomics);
	vb_path_counters(vb_card_program(), &now);
	before[0] = *data;
	before[1] = *atomics;
	memcpy(node->buf, &word, 8);
	check_eq(node_rdma(node, 4, IBV_WR_RDMA_WRITE, 0, 8, &peer, 0), 0);
	cq_expect(node->send_cq, 4, IBV_WC_SUCCESS);
	check_eq(change(node, &peer, 5), GLOBAL);
	vb_path_counters(vb_card_program(), &now);
	check_eq(*data - before[0], data == atomics ? 2 : 1);
	check_eq(*atomics - before[1], data == atomics ? 2 : 1);
	msg_send(fd, "", 1);
	msg_recv(fd, &go, 1); /* it has counted once more */
	vb_path_counters(vb_card_program(), &now);
	before[0] = *data;
	check_eq(node_rdma(node, 5, IBV_WR_RDMA_READ, 0, 8, &peer, 0), 0);
	cq_expect(node->send_cq, 5, IBV_WC_SUCCESS);
	check_eq(*(volatile uint64_t *)node->buf, GLOBAL + 5 + 1);
	vb_path_counters(vb_card_program(), &now);
	check_eq(*data - before[0], 1);
	msg_send(fd, "", 1);
}

int main(int argc, char **argv)
{
	struct address peer;
	struct told told;
	struct node node;
	pid_t pid;
	int fd;

	check(argc > 1, "usage: %s bare.elf [no-fork]", argv[0]);
	if (!strcmp(argv[1], "owner"))
		return owner();
	if (!strcmp(argv[1], "adder"))
		return adder();
	setenv("REACH_ELF", argv[1], 1);
	if (argc > 2)
		setenv("REACH_FORK", "no", 1);
	pid = spawn_self("owner", &fd);
	open_small(&node);
	told = meet(&node, fd, &peer);
	check_files(&told);
	work(&node, &peer, &told, fd);
	change_global(&node, &told, fd);
	spawn_wait(pid);
	close(fd);
	node_close(&node);
	return 0;
}
