// SPDX-License-Identifier: MIT
/*
 * Work between two processes that the initiator does itself, when things go wrong: processes that are killed, at any moment
 * and on either side, memory that is taken back meanwhile, nonsense in what the two share.
 */
#include "lent.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/shared/shared.h"
#include "fabric/segment.h"

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

/* This process's own. */
static struct vb_segment *own_segment(void)
{
	static struct vb_segment *own;
	struct vb_segment *segments[8];
	size_t sizes[8];
	int count = own ? 0 : find_segments(segments, sizes, 8);

	for (int i = 0; i < count; i++) {
		if (segments[i]->pid == (uint32_t)getpid())
			own = segments[i];
		else
			munmap(segments[i], sizes[i]);
	}
	CHECK(own);
	return own;
}

static struct vb_window *own_window(uint32_t device)
{
	uint64_t offset = own_segment()->window[device];

	CHECK(offset);
	return (struct vb_window *)((char *)own_segment() + offset);
}

static bool has_event(void)
{
	struct pollfd pfd = { .fd = t.dev.context->async_fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

/* Until the QP fails, which it does when its target is gone. */
static void send_until_refused(void)
{
	uint64_t start = now_ns();
	struct cqe cqe;

	for (uint32_t i = 0; !has_event(); i++) {
		hbl_end_post(&t.end,
			     &(struct wqe){ .opcode = LINEAR,
					    .size = 64,
					    .local = t.mem.va,
					    .remote = t.peer.va + i % SLOTS * SLOT },
			     true);
		fifo_ring(&t.fifo, t.end.q.qp_num, hbl_end_pi(&t.end));
		do
			CHECK(now_ns() - start < 20000000000ull);
		while (!hbl_cq_poll(&t.end.req, &cqe) && !has_event());
	}
	expect_event(&t.dev, IBV_EVENT_QP_FATAL);
}

/* --- a sender that is killed -------------------------------------------------------------------------------------- */

enum { KILLS = 25, GONE = 10 };

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

int killed(void)
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
void forged(int number, int fd)
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

/* --- a sender that ended in the middle ------------------------------------------------------------------------------ */

/*
 * As a sender leaves things that is killed behind its so manieth store: the body of the entry, its word with the valid bit,
 * the index, its count.
 */
static void leave_unfinished(unsigned int stores, uint32_t tag)
{
	struct vb_window *window = own_window(1);
	struct vb_window_queue *queue = NULL;
	uint32_t *entry =
		(uint32_t *)t.end.res.q.mem_cpu_addr + 4 * (t.end.res.ci & t.end.res.mask);

	for (uint32_t i = 0; i < VB_WINDOW_QUEUES && !queue; i++)
		if (window->queue[i].open)
			queue = &window->queue[i];
	CHECK(queue && queue->produced == t.end.res.ci);
	/* Of a process in our own slot that is not there any more. */
	queue->busy = vb_pin(own_segment()->generation + 1, 0, own_segment()->slot, 0);
	if (stores > 0) {
		entry[1] = 0;
		entry[2] = tag;
		entry[3] = 8;
	}
	if (stores > 1)
		entry[0] = 1u << 31 | t.end.q.qp_num;
	if (stores > 2)
		*(uint64_t *)t.end.res.q.pi_cpu_addr = t.end.res.ci + 1;
	if (stores > 3)
		queue->produced++;
}

void unfinished(int number, int fd)
{
	enum { ROUNDS = 10 };
	struct mem more;
	struct cqe cqe;

	open_side(number, false);
	connect_side(fd, &(struct end_attr){ .port = 1, .cqes = 16 });
	for (uint32_t r = 0; r < ROUNDS; r++) {
		to_and_fro(number, 7);
		meet(fd);
		if (number)
			leave_unfinished(r % 5, 1000 + r);
		/* What waits for others meanwhile does not take it for finished. */
		if (number && r >= 5) {
			mem_device(&more, &t.dev, 4096);
			mem_free(&more);
		}
		CHECK(!ibv_destroy_qp(t.end.qp));
		if (number && r % 5 > 1) {
			CHECK(hbl_cq_poll(&t.end.res, &cqe));
			CHECK(cqe.tag == 1000 + r && cqe.size == 8);
		}
		CHECK(!hbl_cq_poll(&t.end.res, &cqe));
		meet(fd);
		t.end.pi = 0;
		connect_again(fd);
	}
	to_and_fro(number, 20);
	meet(fd);
	close_side();
}

/* --- a target that is killed --------------------------------------------------------------------------------------- */

static void receive_until_killed(int fd)
{
	struct cqe cqe;

	open_side(1, false);
	connect_side(fd, &(struct end_attr){ .port = 1 });
	for (;;)
		hbl_cq_poll(&t.end.res, &cqe);
}

/* The sender hears of it, and goes on with the next one. */
static void send_to_killed(int fds[][2], int go)
{
	open_side(0, false);
	for (int r = 0; r < GONE; r++) {
		connect_side(fds[r][0], &(struct end_attr){ .port = 1 });
		tell(go, "", 1);
		send_until_refused();
		hbl_end_destroy(&t.end);
		t.end = (struct end){ 0 };
	}
	close_side();
}

int gone(void)
{
	int fd[GONE][2], go[2], status;
	pid_t target, sender;
	char ready;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, go));
	for (int r = 0; r < GONE; r++)
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd[r]));
	sender = start();
	if (!sender) {
		send_to_killed(fd, go[1]);
		exit(0);
	}
	for (int r = 0; r < GONE; r++) {
		target = start();
		if (!target) {
			receive_until_killed(fd[r][1]);
			exit(1);
		}
		hear(go[0], &ready, 1);
		usleep(next_number() % 20000);
		CHECK(!kill(target, SIGKILL));
		CHECK(waitpid(target, &status, 0) == target && WIFSIGNALED(status));
	}
	CHECK(waitpid(sender, &status, 0) == sender);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

/* --- a hostile target ---------------------------------------------------------------------------------------------- */

/* An address of this process that is of some use, or none at all. */
static uint64_t some_address(void)
{
	const uint64_t pages[] = { (uintptr_t)t.mem.host,
				   (uintptr_t)t.end.res.q.mem_cpu_addr,
				   (uintptr_t)t.end.res.q.pi_cpu_addr,
				   0,
				   1ull << 47,
				   ~0ull << 47,
				   ~0ull - 4095,
				   (uint64_t)next_number() << 32 | next_number() };
	static const uint64_t offsets[] = { 0, 1, 4080, 4088, 4090, 4095, 4096, 1 << 20 };

	return pages[next_number() % 8] + offsets[next_number() % 8];
}

/* Addresses and sizes: the sender must not believe that they make sense, nor that they stay. */
static void lie(struct vb_window *window)
{
	struct vb_window_map *map = &window->map[next_number() % 2];

	for (uint32_t i = 0; i < VB_WINDOW_QUEUES; i++) {
		struct vb_window_queue *queue = &window->queue[i];

		if (!queue->self)
			continue;
		switch (next_number() % 6) {
		case 0:
			queue->cq = some_address();
			break;
		case 1:
			queue->index = some_address();
			break;
		case 2:
			queue->taken = some_address();
			break;
		case 3:
			queue->entries = next_number() >> next_number() % 32;
			break;
		case 4:
			queue->taken_shift = next_number();
			break;
		case 5:
			queue->produced = next_number();
			break;
		}
	}
	if (next_number() % 2)
		map->memory = some_address();
	else
		map->size = next_number() % 2 ? ~0ull : 2 * BYTES;
}

static void lie_for_ever(int fd)
{
	struct vb_window *window;

	open_side(1, false);
	connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64 });
	window = own_window(1);
	for (;;)
		lie(window);
}

/* As many as go; one that waits for nothing any more ends it. */
static void send_to_liar(int fd, uint32_t seed)
{
	enum { MESSAGES = 3000, PATIENCE_NS = 100000000 };
	uint64_t start;
	struct cqe cqe;

	open_side(0, false);
	connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64 });
	fill(t.mem.host, BYTES, seed);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		start = now_ns();
		while (hbl_cq_poll(&t.end.req, &cqe) ||
		       (t.end.pi - t.end.req.ci >= 48 && now_ns() - start < PATIENCE_NS))
			;
		if (t.end.pi - t.end.req.ci >= 48)
			break;
		hbl_end_write(&t.end, &t.fifo, t.mem.va + i % SLOT, t.peer.va + i % SLOT,
			      next_number() % (i % 50 ? 64 : SLOT), i);
	}
	CHECK(is_filled(t.mem.host, BYTES, seed));
}

/*
 * The sender lives on, and so does what is its own. What becomes of the target is the target's affair: it has its own
 * memory written to.
 */
int hostile(void)
{
	enum { ROUNDS = 12 };
	pid_t sender, target;
	int fd[2], status;

	for (uint32_t r = 0; r < ROUNDS; r++) {
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
		for (uint32_t i = 0; i < r; i++)
			next_number(); /* other lies */
		target = start();
		if (!target) {
			lie_for_ever(fd[1]);
			exit(1);
		}
		sender = start();
		if (!sender) {
			send_to_liar(fd[0], r);
			_exit(0); /* without asking the target for anything */
		}
		CHECK(waitpid(sender, &status, 0) == sender);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
		CHECK(!kill(target, SIGKILL));
		CHECK(waitpid(target, &status, 0) == target && WIFSIGNALED(status));
		close(fd[0]);
		close(fd[1]);
	}
	return 0;
}

/* --- memory that is taken back ------------------------------------------------------------------------------------- */

/* Behind the call that unmaps device memory nothing is written there. */
void unmapped(int number, int fd)
{
	enum { ROUNDS = 15 };

	for (uint32_t r = 0; r < ROUNDS; r++) {
		open_side(number, false);
		connect_side(fd, &(struct end_attr){ .port = 1, .wqes = 64 });
		if (!number) {
			send_until_refused();
		} else {
			volatile char *seen = (volatile char *)to(0);

			usleep(next_number() % 3000);
			mem_unmap(&t.mem);
			memset((char *)seen, 0x5a, BYTES);
			usleep(5000);
			for (size_t i = 0; i < BYTES; i++)
				CHECK(seen[i] == 0x5a);
		}
		meet(fd);
		if (number)
			mem_map(&t.mem); /* for close_side() */
		close_side();
		meet(fd);
	}
}

/*
 * Pages that the program gives to somebody else while the peer writes there, as an allocator does: behind the call that
 * takes them back nothing of the peer's comes into them. Messages are long and end behind these pages, so that most of them
 * are under way just then.
 */
static void give_pages(void)
{
	enum { PAGES = 16 * 4096, AT = 55 * SLOT };
	char *at = (char *)((uintptr_t)((char *)t.mem.host + BYTES + AT + 4095) & ~4095ul), *other;
	struct vb_shared_piece old;
	struct cqe cqe;

	CHECK(vb_shared_find(at, PAGES, &old) && old.len == PAGES);
	vb_shared_remove(at, PAGES);
	/* Until here packets come into them, carried out by the card of this process. */
	CHECK(mmap(at, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == at);
	other = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, old.fd, (off_t)old.offset);
	CHECK(other != MAP_FAILED);
	memset(other, 0x5a, PAGES);
	vb_shared_forget(at, PAGES);
	for (int n = 0; n < 3; n++)
		hbl_cq_wait(&t.end.res, &cqe);
	for (size_t i = 0; i < PAGES; i++)
		CHECK(other[i] == 0x5a);
	CHECK(!munmap(other, PAGES));
	CHECK(mmap(at, PAGES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, old.fd,
		   (off_t)old.offset) == at);
	CHECK(!vb_shared_add(at, PAGES, old.fd, (off_t)old.offset));
}

void given(int number, int fd)
{
	enum { ROUNDS = 100 };
	struct cqe cqe;
	char done = 0;

	if (is_off("VERBATIM_SHARE"))
		exit(SKIPPED);
	CHECK(!setenv("VERBATIM_TEST_MEMORY", "shared", 1));
	open_side(number, true);
	connect_side(fd, &(struct end_attr){ .port = 1 });
	for (int r = 0; number && r < ROUNDS; r++) {
		hbl_cq_wait(&t.end.res, &cqe);
		usleep(next_number() % 300);
		give_pages();
	}
	if (number) {
		tell(fd, &done, 1);
		while (hbl_cq_wait(&t.end.res, &cqe), cqe.tag != 1)
			;
	}
	if (!number)
		CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK));
	for (bool last = number; !last;) {
		last = read(fd, &done, 1) == 1;
		hbl_end_write(&t.end, &t.fifo, t.mem.va, t.peer.va, 60 * SLOT, last);
		hbl_cq_wait(&t.end.req, &cqe);
	}
	CHECK(!fcntl(fd, F_SETFL, 0));
	meet(fd);
	close_side();
}
