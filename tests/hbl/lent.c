// SPDX-License-Identifier: MIT
/*
 * Writes between two processes that the sender delivers itself: into the target's memory and completion queue, with no
 * thread of the target's. Nothing may show but the speed: order, content, full queues, a target that is stopped, a sender
 * that is killed at any moment, and what a hostile process writes into the memory that the two share.
 *
 * usage: lent CASE
 */
#include "hbl.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/segment.h"

enum { SLOTS = 64, SLOT = 20000, BYTES = SLOTS * SLOT, SKIPPED = 77 };

static struct {
	struct dev dev;
	struct mem mem; /* the first half is sent from, the second written to */
	struct end end;
	struct fifo fifo;
	struct address peer;
} t;

static uint32_t next_number(void)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

static void open_side(int number, bool host)
{
	dev_open(&t.dev, number);
	set_port(&t.dev, 1);
	if (host)
		mem_host(&t.mem, &t.dev, 2 * BYTES);
	else
		mem_device(&t.mem, &t.dev, 2 * BYTES);
	fifo_create(&t.fifo, &t.dev, 1, HBLDV_USR_FIFO_TYPE_DB);
}

static void connect_side(int fd, const struct end_attr *attr)
{
	struct address own = { 0 };

	hbl_end_create(&t.end, &t.dev, attr);
	hbl_end_address(&t.end, &own);
	own.va = t.mem.va + BYTES;
	tell(fd, &own, sizeof(own));
	hear(fd, &t.peer, sizeof(t.peer));
	hbl_end_connect(&t.end, &t.peer, NULL);
	meet(fd);
}

static void close_side(void)
{
	hbl_end_destroy(&t.end);
	CHECK(!hbldv_destroy_usr_fifo(t.fifo.usr));
	mem_free(&t.mem);
	dev_close(&t.dev);
}

static char *from(uint32_t slot)
{
	return (char *)t.mem.host + slot * SLOT;
}

static const char *to(uint32_t slot)
{
	return (char *)t.mem.host + BYTES + slot * SLOT;
}

static void post(uint32_t slot, uint32_t size, uint32_t tag, bool ring)
{
	fill(from(slot), size, tag);
	hbl_end_post(&t.end,
		     &(struct wqe){ .opcode = LINEAR,
				    .size = size,
				    .tag = tag,
				    .completion = CQ,
				    .local = t.mem.va + slot * SLOT,
				    .remote = t.peer.va + slot * SLOT },
		     true);
	if (ring)
		fifo_ring(&t.fifo, t.end.q.qp_num, hbl_end_pi(&t.end));
}

static void sent(uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end.req, &cqe);
	CHECK(cqe.requester && cqe.tag == ~tag);
}

static void received(uint32_t slot, uint32_t size, uint32_t tag)
{
	struct cqe cqe;

	hbl_cq_wait(&t.end.res, &cqe);
	CHECK(!cqe.requester && cqe.tag == tag && cqe.size == size);
	CHECK(cqe.qpn == t.end.q.qp_num);
	CHECK(is_filled(to(slot), size, tag));
}

/* --- no thread wakes up ------------------------------------------------------------------------------------------- */

/* Times that the card's thread of this process went to sleep. */
static unsigned long naps(void)
{
	struct dirent *entry;
	DIR *tasks = opendir("/proc/self/task");
	unsigned long count = 0;
	bool found = false;

	CHECK(tasks);
	while (!found && (entry = readdir(tasks))) {
		char path[300], line[200] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!f)
			continue;
		found = fgets(line, sizeof(line), f) && !strcmp(line, "Name:\tverbatim\n");
		while (found && fgets(line, sizeof(line), f))
			sscanf(line, "voluntary_ctxt_switches: %lu", &count);
		fclose(f);
	}
	closedir(tasks);
	CHECK(found);
	return count;
}

static void to_and_fro(int number, uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		if (number)
			received(i % SLOTS, 8, i);
		post(i % SLOTS, 8, i, true);
		sent(i);
		if (!number)
			received(i % SLOTS, 8, i);
	}
}

static void unwoken(int number, int fd)
{
	enum { ROUNDS = 500, FEW = ROUNDS / 50 };
	unsigned long before;

	for (int host = 0; host < 2; host++) {
		open_side(number, host);
		connect_side(fd, &(struct end_attr){ .port = 1 });
		to_and_fro(number, 10);
		usleep(100000); /* it sleeps by now */
		meet(fd);
		before = naps();
		to_and_fro(number, ROUNDS);
		CHECK(naps() - before < FEW);
		meet(fd);
		close_side();
		meet(fd);
	}
}

/* --- order and content -------------------------------------------------------------------------------------------- */

/* Alone and in batches, small and large, so that both ways are taken in turns. */
static void mixed(int number, int fd)
{
	enum { ROUNDS = 150 };
	static const uint32_t sizes[] = { 0, 1, 8, 64, 4096, 8193, SLOT };
	uint32_t tag = 0;

	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64 });
	for (int r = 0; r < ROUNDS; r++) {
		uint32_t count = r % 2 ? 1 + next_number() % 40 : 1, each = next_number() % 2;
		uint32_t first = next_number();

		for (uint32_t i = 0; !number && i < count; i++)
			post(i, sizes[(first + i) % 7], tag + i, each || i == count - 1);
		for (uint32_t i = 0; i < count; i++) {
			if (number)
				received(i, sizes[(first + i) % 7], tag + i);
			else
				sent(tag + i);
		}
		tag += count;
		meet(fd);
	}
	CHECK(no_event(&t.dev));
	close_side();
}

/* --- a completion queue without room ------------------------------------------------------------------------------ */

static void full(int number, int fd)
{
	enum { MESSAGES = 40, ROUNDS = 5 };

	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64, .res_cqes = 4 });
	for (uint32_t r = 0; r < ROUNDS; r++) {
		for (uint32_t i = 0; !number && i < MESSAGES; i++)
			post(i, 8, r * MESSAGES + i, true);
		for (uint32_t i = 0; i < MESSAGES; i++) {
			if (!number)
				sent(r * MESSAGES + i);
			else
				received(i, 8, r * MESSAGES + i);
			if (number && i % 8 == 0)
				usleep(1000);
		}
		meet(fd);
	}
	close_side();
}

/* --- a target that is stopped ------------------------------------------------------------------------------------- */

static void stopped(int number, int fd)
{
	enum { MESSAGES = 20 };
	pid_t self = getpid(), peer;

	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1 });
	tell(fd, &self, sizeof(self));
	hear(fd, &peer, sizeof(peer));
	meet(fd);
	if (!number) {
		CHECK(!kill(peer, SIGSTOP));
		for (uint32_t i = 0; i < MESSAGES; i++) {
			post(i, SLOT, i, true);
			sent(i);
		}
		CHECK(!kill(peer, SIGCONT));
	}
	for (uint32_t i = 0; number && i < MESSAGES; i++)
		received(i, SLOT, i);
	meet(fd);
	close_side();
}

/* --- a sender that is killed -------------------------------------------------------------------------------------- */

enum { KILLS = 25 };

static void send_until_killed(int fd)
{
	open_side(0, false);
	connect_side(fd, &(struct end_attr){ .port = 1 });
	for (uint32_t i = 0;; i++) {
		post(i % SLOTS, 8, i, true);
		sent(i);
	}
}

/* A new QP on the same CQs, which go on where the last one left them. */
static void connect_again(int fd)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct hbldv_qp_attr hbl = { .wq_type = HBLDV_WQ_WRITE };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = t.end.req.ibv,
					 .recv_cq = t.end.res.ibv,
					 .cap.max_send_wr = 64 };
	struct address own = { 0 };

	t.end.qp = ibv_create_qp(t.dev.pd, &attr);
	CHECK(t.end.qp);
	CHECK(!hbldv_modify_qp(t.end.qp, &init,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			       &hbl));
	CHECK(!hbldv_query_qp(t.end.qp, &t.end.q));
	hbl_end_address(&t.end, &own);
	own.va = t.mem.va + BYTES;
	tell(fd, &own, sizeof(own));
	hear(fd, &t.peer, sizeof(t.peer));
	hbl_end_connect(&t.end, &t.peer, NULL);
	meet(fd);
}

/* Messages arrive in order from 0 on, in each round, until its sender is gone. */
static void receive_from_killed(const int *fds, int go)
{
	char killed;

	open_side(1, false);
	hbl_end_create(&t.end, &t.dev, &(struct end_attr){ .port = 1, .cqes = 16 });
	CHECK(!ibv_destroy_qp(t.end.qp));
	for (int r = 0; r < KILLS; r++) {
		uint32_t next = 0;
		struct cqe cqe;

		connect_again(fds[r]);
		tell(go, "", 1);
		CHECK(!fcntl(go, F_SETFL, O_NONBLOCK));
		do {
			while (hbl_cq_poll(&t.end.res, &cqe)) {
				CHECK(cqe.tag == next && cqe.size == 8);
				next++;
			}
			sched_yield();
		} while (read(go, &killed, 1) != 1);
		CHECK(!fcntl(go, F_SETFL, 0));
		CHECK(!ibv_destroy_qp(t.end.qp));
		while (hbl_cq_poll(&t.end.res, &cqe)) {
			CHECK(cqe.tag == next && cqe.size == 8);
			next++;
		}
	}
	t.end.qp = NULL;
	close_side();
}

static pid_t start(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static int killed(void)
{
	int fd[KILLS][2], ends[KILLS], go[2], status;
	pid_t target, sender;
	char ready;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, go));
	for (int r = 0; r < KILLS; r++) {
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd[r]));
		ends[r] = fd[r][1];
	}
	target = start();
	if (!target) {
		receive_from_killed(ends, go[1]);
		exit(0);
	}
	for (int r = 0; r < KILLS; r++) {
		sender = start();
		if (!sender) {
			send_until_killed(fd[r][0]);
			exit(1);
		}
		hear(go[0], &ready, 1);
		usleep(next_number() % 20000);
		CHECK(!kill(sender, SIGKILL));
		CHECK(waitpid(sender, &status, 0) == sender && WIFSIGNALED(status));
		tell(go[0], "", 1);
	}
	CHECK(waitpid(target, &status, 0) == target);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

/* --- forged state ------------------------------------------------------------------------------------------------- */

/* The segments that this process has mapped: its own, and those of its peers. */
static int find_segments(struct vb_segment **out, size_t *sizes, int most)
{
	char line[512], path[300], last[300] = "";
	FILE *maps = fopen("/proc/self/maps", "r");
	int count = 0;

	CHECK(maps);
	while (count < most && fgets(line, sizeof(line), maps)) {
		struct vb_segment *segment;
		struct stat st;
		int fd;

		if (sscanf(line, "%*s %*s %*s %*s %*s %299s", path) != 1 || !strcmp(path, last) ||
		    strncmp(path, "/dev/shm/", 9))
			continue;
		strcpy(last, path);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && st.st_size >= (off_t)sizeof(*segment)) {
			segment = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED,
				       fd, 0);
			CHECK(segment != MAP_FAILED);
			if (segment->magic == VB_SEG_MAGIC) {
				sizes[count] = (size_t)st.st_size;
				out[count++] = segment;
			}
		}
		close(fd);
	}
	fclose(maps);
	return count;
}

/* Everything but addresses, and the size that bounds them: whoever can change those can write there itself. */
static void scribble(struct vb_window *window)
{
	for (uint32_t i = 0; i < VB_WINDOW_QUEUES; i++) {
		struct vb_window_queue *queue = &window->queue[i];

		if (!queue->self)
			continue;
		switch (next_number() % 8) {
		case 0:
			queue->open = next_number() % 3;
			break;
		case 1:
			queue->busy = (uint64_t)next_number() << 32 | next_number();
			break;
		case 2:
			queue->psn = next_number();
			break;
		case 3:
			queue->produced = next_number();
			break;
		case 4:
			queue->seen = next_number();
			break;
		case 5:
			queue->messages = queue->bytes = next_number();
			break;
		case 6:
			queue->key = next_number() % 2;
			break;
		case 7:
			queue->peer = next_number();
			break;
		}
	}
	window->count = next_number();
	window->version = next_number();
}

static void forge(void)
{
	struct vb_segment *segments[8];
	size_t sizes[8];
	int count = find_segments(segments, sizes, 8), windows = 0;

	for (int s = 0; s < count; s++)
		for (int d = 0; d < VB_WINDOWS; d++) {
			uint64_t offset = segments[s]->window[d];

			if (!offset || offset + sizeof(struct vb_window) > sizes[s])
				continue;
			windows++;
			scribble((struct vb_window *)((char *)segments[s] + offset));
		}
	for (int s = 0; s < count; s++)
		munmap(segments[s], sizes[s]);
	CHECK(windows >= 2);
}

/* Nobody reads completions here: there is nothing that they could be held to. */
static void forged(int number, int fd)
{
	enum { ROUNDS = 20, MESSAGES = 8 };

	open_side(number, false);
	for (int r = 0; r < ROUNDS; r++) {
		connect_side(fd, &(struct end_attr){ .port = 1 });
		for (uint32_t i = 0; i < MESSAGES; i++) {
			if (!number)
				forge();
			post(i, 8, i, true);
		}
		meet(fd);
		hbl_end_destroy(&t.end);
		meet(fd);
	}
	/* New queues know nothing of it. */
	close_side();
	meet(fd);
	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1 });
	to_and_fro(number, 50);
	meet(fd);
	close_side();
}

/* --- which -------------------------------------------------------------------------------------------------------- */

/* Without process_vm_writev all goes in packets, which other tests are about. */
static bool can_deliver(void)
{
	char here = 1, there = 2;
	struct iovec near = { &here, 1 }, far = { &there, 1 };
	int status;
	pid_t pid = start();

	if (!pid)
		exit(process_vm_writev(getppid(), &near, 1, &far, 1, 0) != 1);
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*side)(int number, int fd);
	} cases[] = {
		{ "unwoken", unwoken }, { "mixed", mixed },   { "full", full },
		{ "stopped", stopped }, { "forged", forged },
	};
	const char *direct = getenv("VERBATIM_DIRECT");

	CHECK(argc == 2);
	if (!can_deliver() || (direct && !strcmp(direct, "off"))) {
		printf("the kernel refuses process_vm_writev between processes\n");
		return SKIPPED;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(argv[1], cases[i].name))
			return run_pair(cases[i].side);
	CHECK(!strcmp(argv[1], "killed"));
	return killed();
}
