// SPDX-License-Identifier: MIT
/*
 * fork() in the middle of everything: several threads fork again and again while messages go to another process, device code
 * runs and writes to a stream, tools inject faults and look for debuggers, and timeline and profile are on. Children exit, open
 * the card for themselves, run device code of their own, and fork; the parent goes on.
 */
#include "bed.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/common.h"

enum { FORKERS = 3, FORKS = 24, WORKERS = 4, LEN = 4096, LIMIT_S = 100 };

static struct flexio_process *process;
static struct flexio_msg_stream *stream;
static struct address target;
static struct node node;
static _Atomic bool done;

/* --- the other process ------------------------------------------------------------------------ */

/* Memory that the parent writes and reads; it ends when the socket does. */
static int be_target(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct address peer;
	char byte;

	alarm(LIMIT_S);
	node_open(&node, &attr);
	node_meet(&node, ROLE_FD, &peer);
	check_eq(read(ROLE_FD, &byte, 1), 0);
	node_close(&node);
	return 0;
}

/* --- work of the parent ----------------------------------------------------------------------- */

static void write_and_read(uint64_t i)
{
	pattern_fill(node.buf, LEN, (uint32_t)i);
	check_eq(node_rdma(&node, i, IBV_WR_RDMA_WRITE, 0, LEN, &target, 0), 0);
	cq_expect(node.send_cq, i, IBV_WC_SUCCESS);
	memset(node.buf + LEN, 0, LEN);
	check_eq(node_rdma(&node, i, IBV_WR_RDMA_READ, LEN, LEN, &target, 0), 0);
	cq_expect(node.send_cq, i, IBV_WC_SUCCESS);
	check_eq(pattern_check(node.buf + LEN, LEN, (uint32_t)i), LEN);
}

static void call(uint64_t i)
{
	check_eq(bed_value(process, "add_one", i), i + 1);
}

static void talk(uint64_t i)
{
	bed_words(
		process, "say",
		(uint64_t[]){ (uint64_t)flexio_msg_stream_get_id(stream), FLEXIO_MSG_DEV_INFO, i },
		3);
}

/* One tool that must find this program, and one that lists what listens: children may be gone by then. */
static void ask(uint64_t i)
{
	const char *tool = getenv("VERBATIM_TEST_TOOL");
	char command[1024];

	if (i % 2)
		snprintf(command, sizeof(command), "exec %s gdb >/dev/null 2>&1", tool);
	else
		snprintf(command, sizeof(command),
			 "exec %s inject --pid %d mlx5_0 eu 170 normal >/dev/null", tool,
			 (int)getpid());
	check(system(command) == 0 || i % 2, "%s", command);
	usleep(1000);
}

struct worker {
	void (*work)(uint64_t i);
	uint64_t rounds;
	pthread_t thread;
};

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	while (!atomic_load(&done))
		worker->work(worker->rounds++);
	return NULL;
}

/* --- children --------------------------------------------------------------------------------- */

static void use_verbs(void)
{
	struct node_attr attr = node_attr(IBV_QPT_RC);
	struct node a, b;

	node_pair(&a, &b, &attr);
	pattern_fill(a.buf, LEN, 7);
	check_eq(node_recv(&b, 1, 0, LEN), 0);
	check_eq(node_send(&a, 2, 0, LEN, IBV_SEND_SIGNALED), 0);
	cq_expect(a.send_cq, 2, IBV_WC_SUCCESS);
	cq_expect(b.recv_cq, 1, IBV_WC_SUCCESS);
	check_eq(pattern_check(b.buf, LEN, 7), LEN);
	node_close(&a);
	node_close(&b);
}

/* Device code of the child's own, on an adapter whose accelerator the parent uses. */
static void use_device_code(void)
{
	struct flexio_process *own;

	bed_ctx = ibv_open_device(bed_ctx->device);
	check(bed_ctx, "%s", strerror(errno));
	own = bed_process();
	check_eq(bed_value(own, "add_one", 41), 42);
	bed_process_end(own);
	check_eq(ibv_close_device(bed_ctx), 0);
	/* What is the parent's is not waited for. */
	check_eq(flexio_msg_stream_flush(stream), FLEXIO_STATUS_SUCCESS);
	check_eq(flexio_log_dev_flush(process), FLEXIO_STATUS_SUCCESS);
	check_eq(flexio_msg_stream_destroy(stream), FLEXIO_STATUS_SUCCESS);
	check_eq(flexio_process_destroy(process), FLEXIO_STATUS_SUCCESS);
}

static void reap(pid_t pid, unsigned int i)
{
	int status = -1;

	check(pid >= 0, "%s", strerror(errno));
	check_eq(waitpid(pid, &status, 0), pid);
	check(status == 0, "child %u: wait status %#x", i, status);
}

static void be_child(unsigned int i)
{
	alarm(LIMIT_S); /* a lock that nobody gives back */
	if (i % 4 == 0)
		_exit(0);
	if (i % 4 == 3) { /* once more, before it has opened a card */
		pid_t pid = fork();

		if (!pid) {
			use_verbs();
			exit(0);
		}
		reap(pid, i);
	}
	if (i % 4 >= 2)
		use_verbs();
	if (i % 4 == 2)
		use_device_code();
	exit(0);
}

static void *forker_main(void *arg)
{
	for (unsigned int i = 0; i < FORKS; i++) {
		pid_t pid = fork();

		if (!pid)
			be_child(i);
		reap(pid, i);
	}
	return arg;
}

/* --- all of it -------------------------------------------------------------------------------- */

static void run(void)
{
	struct worker workers[WORKERS] = { { write_and_read }, { call }, { talk }, { ask } };
	pthread_t forkers[FORKERS];

	for (int i = 0; i < WORKERS; i++)
		check_eq(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	for (int i = 0; i < FORKERS; i++)
		check_eq(pthread_create(&forkers[i], NULL, forker_main, NULL), 0);
	for (int i = 0; i < FORKERS; i++)
		check_eq(pthread_join(forkers[i], NULL), 0);
	atomic_store(&done, true);
	for (int i = 0; i < WORKERS; i++) {
		check_eq(pthread_join(workers[i].thread, NULL), 0);
		check(workers[i].rounds > 1, "worker %d", i);
		workers[i].work(workers[i].rounds); /* and it still works */
	}
}

static void open_all(int argc, char **argv, FILE *out, int *fd, pid_t *other)
{
	flexio_msg_stream_attr_t attr = { .data_bsize = 4096,
					  .sync_mode = FLEXIO_MSG_DEV_SYNC_MODE_SYNC,
					  .level = FLEXIO_MSG_DEV_INFO };
	struct node_attr rc = node_attr(IBV_QPT_RC);

	*other = spawn_self("target", fd);
	bed_init(argc, argv);
	node_open(&node, &rc);
	node_meet(&node, *fd, &target);
	process = bed_process();
	check_eq(flexio_msg_stream_create(process, &attr, out, NULL, &stream),
		 FLEXIO_STATUS_SUCCESS);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

/* The timeline's variable counts when the program starts. */
static int start_again(char **argv)
{
	char dir[] = "/dev/shm/test-fork-XXXXXX";

	if (!mkdtemp(dir) || setenv("VERBATIM_TRACE", dir, 1) ||
	    setenv("VERBATIM_TRACE_MIB", "1", 1) || setenv("VERBATIM_DPA_PROFILE", dir, 1) ||
	    setenv("VERBATIM_DPA_DEBUG", "on", 1))
		return 1;
	execv("/proc/self/exe", argv);
	return 1;
}

int main(int argc, char **argv)
{
	FILE *out = fopen("/dev/null", "w");
	pid_t other;
	int fd;

	if (argc > 1 && !strcmp(argv[1], "target"))
		return be_target();
	if (!getenv("VERBATIM_TRACE"))
		return start_again(argv);
	alarm(LIMIT_S);
	open_all(argc, argv, out, &fd, &other);
	run();
	bed_process_end(process);
	node_close(&node);
	close(fd);
	spawn_wait(other);
	check_eq(flexio_app_destroy(bed_app), FLEXIO_STATUS_SUCCESS);
	check_eq(ibv_close_device(bed_ctx), 0);
	fclose(out);
	check_eq(nftw(getenv("VERBATIM_TRACE"), remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
	return 0;
}
