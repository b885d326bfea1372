// SPDX-License-Identifier: MIT
/*
 * Emulated functions with driver and device in two processes: no doorbell is lost, either side may be
 * killed, and what one of them writes into the shared page does the other no harm.
 *
 *	emu_peer                 runs the others
 *	emu_peer server FD PIPE  the device: two queues, until the other end of the pipe is closed
 *	emu_peer driver FD N     a driver that publishes N times on both queues; 0: until it is killed
 *	emu_peer late FD 0       a driver that comes while another one has the function
 *	emu_peer poor FD 0       a driver that has no descriptor left when it rings
 */
#define _GNU_SOURCE
#include "emu_kit.h"

#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

extern struct flexio_app *peeremu;
extern flexio_func_t on_doorbell, emu_arm;

enum { QUEUES = 2, MANY = 50000 };

static struct emu_shared *shared; /* one for each queue */
static int shared_fd;

static void map_shared(int fd)
{
	shared_fd = fd;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
}

static uint64_t load(uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* ---- no descriptors ---- */

static int taken[256];
static unsigned int num_taken;

static void take_descriptors(void)
{
	struct rlimit limit = { 256, 256 };
	int fd;

	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	while (num_taken < 256 && (fd = open("/dev/null", O_RDONLY)) >= 0)
		taken[num_taken++] = fd;
	CHECK(num_taken);
}

static void give_descriptors(void)
{
	while (num_taken)
		close(taken[--num_taken]);
}

/* ---- the device ---- */

/* Until nobody needs it any more. */
static void obey(int pipe_fd)
{
	char c;

	while (read(pipe_fd, &c, 1) == 1) {
		if (c == 't')
			take_descriptors();
		else
			give_descriptors();
		CHECK(write(pipe_fd, &c, 1) == 1);
	}
}

static int server(int pipe_fd)
{
	struct verbatim_function_info info = first_function("mlx5_0");
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, shared, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct flexio_process *process;
	struct flexio_window *window;
	struct emu_queue q[QUEUES];
	uint64_t err;

	CHECK(mr);
	OK(flexio_process_create(ctx, peeremu, NULL, &process));
	OK(flexio_window_create(process, pd, &window));
	for (uint32_t i = 0; i < QUEUES; i++) {
		struct emu_state state = { .window_id = flexio_window_get_id(window),
					   .mkey = mr->lkey,
					   .shared = (uintptr_t)&shared[i],
					   .served = load(&shared[i].served),
					   .rearm = 1 };

		emu_queue_open(&q[i], ctx, process, on_doorbell, &info, i, i, state);
		OK(flexio_process_call(process, emu_arm, &err, q[i].state.cq.number,
				       q[i].state.emu_id));
		CHECK(!err);
	}
	CHECK(write(pipe_fd, "r", 1) == 1);
	obey(pipe_fd);
	for (uint32_t i = 0; i < QUEUES; i++)
		emu_queue_close(&q[i]);
	OK(flexio_window_destroy(window));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(ctx));
	return 0;
}

/* ---- the driver ---- */

struct publisher {
	struct verbatim_function *function;
	uint32_t queue;
	uint64_t count; /* 0: for ever */
};

static void await_served(uint32_t queue, int fd)
{
	for (int i = 0; load(&shared[queue].served) != shared[queue].published; i++) {
		/* Now and then as a driver does, by its interrupt. */
		if (i > 1000)
			interrupts(fd);
		else
			sched_yield();
	}
}

static void *publish(void *arg)
{
	const struct publisher *p = arg;
	volatile uint32_t *doorbell = verbatim_function_doorbells(p->function);
	struct emu_shared *s = &shared[p->queue];
	int fd = verbatim_function_eventfd(p->function, p->queue);
	unsigned int seed = p->queue + 1;

	CHECK(doorbell && fd >= 0);
	for (uint64_t i = 0; !p->count || i < p->count; i++) {
		__atomic_add_fetch(&s->published, 1, __ATOMIC_SEQ_CST);
		if (i % 3)
			doorbell[p->queue] = (uint32_t)i;
		else
			CHECK(!verbatim_function_ring(p->function, p->queue, (uint32_t)i));
		/* Races of doorbell and arming need pauses of all lengths. */
		if (!(rand_r(&seed) % 16))
			await_served(p->queue, fd);
		for (int k = rand_r(&seed) % 64; k; k--)
			__asm__ volatile("");
	}
	await_served(p->queue, fd);
	return NULL;
}

static int driver(uint64_t count)
{
	struct verbatim_function_info info = first_function("mlx5_0");
	struct verbatim_function *f = verbatim_function_open(info.vhca_id);
	struct publisher p[QUEUES];
	pthread_t thread[QUEUES];

	CHECK(f && verbatim_function_served(f, 0) == 1);
	for (uint32_t i = 0; i < QUEUES; i++) {
		p[i] = (struct publisher){ f, i, count };
		CHECK(!pthread_create(&thread[i], NULL, publish, &p[i]));
	}
	for (uint32_t i = 0; i < QUEUES; i++)
		CHECK(!pthread_join(thread[i], NULL));
	CHECK(!verbatim_function_close(f));
	return 0;
}

static int late(void)
{
	CHECK(!verbatim_function_open(first_function("mlx5_0").vhca_id) && errno == EBUSY);
	return 0;
}

/* The doorbell is not lost, although the device cannot be told of it at once. */
static int poor(void)
{
	struct verbatim_function *f = verbatim_function_open(first_function("mlx5_0").vhca_id);
	int fd = f ? verbatim_function_eventfd(f, 0) : -1;

	CHECK(fd >= 0);
	shared[0].published++;
	take_descriptors();
	verbatim_function_doorbells(f)[0] = 1;
	give_descriptors();
	interrupts(fd);
	CHECK(!verbatim_function_close(f));
	return 0;
}

/* ---- all of them ---- */

static pid_t start(const char *what, uint64_t number)
{
	char fd[16], text[32];
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	snprintf(fd, sizeof(fd), "%d", shared_fd);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	execl("/proc/self/exe", "emu_peer", what, fd, text, (char *)NULL);
	_exit(127);
}

static void ends(pid_t pid, int signal)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(signal ? WIFSIGNALED(status) && WTERMSIG(status) == signal : !status);
}

struct device {
	pid_t pid;
	int pipe;
};

static struct device start_device(void)
{
	struct device d;
	int fd[2];
	char c;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	CHECK(!fcntl(fd[0], F_SETFD, FD_CLOEXEC));
	d.pid = start("server", (uint64_t)fd[1]);
	d.pipe = fd[0];
	close(fd[1]);
	CHECK(read(d.pipe, &c, 1) == 1);
	return d;
}

static void end_device(struct device *d)
{
	close(d->pipe);
	ends(d->pid, 0);
}

static void nap(unsigned int us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000L }, NULL);
}

static void obeys(const struct device *d, char what)
{
	char c;

	CHECK(write(d->pipe, &what, 1) == 1 && read(d->pipe, &c, 1) == 1 && c == what);
}

/* The same for an interrupt, whose device has no descriptor left. */
static void poor_device(void)
{
	struct device d = start_device();
	struct verbatim_function *f;
	int fd;

	ends(start("poor", 0), 0);
	end_device(&d);
	d = start_device();
	f = verbatim_function_open(first_function("mlx5_0").vhca_id);
	fd = f ? verbatim_function_eventfd(f, 0) : -1;
	CHECK(fd >= 0);
	obeys(&d, 't');
	shared[0].published++;
	CHECK(!verbatim_function_ring(f, 0, 1));
	while (load(&shared[0].served) != shared[0].published)
		sched_yield();
	nap(20000); /* it raises the interrupt behind that */
	obeys(&d, 'g');
	interrupts(fd);
	CHECK(!verbatim_function_close(f));
	end_device(&d);
}

static void killed_drivers(void)
{
	for (unsigned int i = 0; i < 10; i++) {
		pid_t pid = start("driver", 0);

		nap(3000 + i * 3000);
		kill(pid, SIGKILL);
		ends(pid, SIGKILL);
	}
	ends(start("driver", 1000), 0);
}

/* Rings all the time, whoever is there. */
static _Atomic bool stop;

static void *ring(void *arg)
{
	volatile uint32_t *doorbell = verbatim_function_doorbells(arg);

	while (!stop) {
		doorbell[0] = 1;
		doorbell[1] = 1;
	}
	return NULL;
}

static void killed_devices(void)
{
	struct verbatim_function *f = verbatim_function_open(first_function("mlx5_0").vhca_id);
	struct device d;
	pthread_t thread;

	CHECK(f);
	ends(start("late", 0), 0);
	for (int i = 0; i < 5; i++) {
		d = start_device();
		CHECK(verbatim_function_served(f, 0) == 1);
		shared[0].published++;
		CHECK(!verbatim_function_ring(f, 0, 1));
		await_served(0, verbatim_function_eventfd(f, 0));
		stop = false;
		CHECK(!pthread_create(&thread, NULL, ring, f));
		nap(2000);
		kill(d.pid, SIGKILL);
		ends(d.pid, SIGKILL);
		close(d.pipe);
		nap(1000);
		stop = true;
		CHECK(!pthread_join(thread, NULL));
		CHECK(verbatim_function_served(f, 0) == 0);
		/* For the next one, which has never heard of us. */
		shared[1].published++;
		CHECK(!verbatim_function_ring(f, 1, 1));
	}
	d = start_device();
	await_served(1, verbatim_function_eventfd(f, 1));
	end_device(&d);
	CHECK(verbatim_function_served(f, 0) == 0);
	CHECK(!verbatim_function_close(f));
}

/* What is in the page is never more than a hint. */
static void hostile_page(void)
{
	struct device d = start_device();
	pid_t pid = start("driver", 0);
	uint64_t seed = 1;
	volatile uint64_t *page;
	const char *shm = getenv("VERBATIM_SHM_DIR");
	char pattern[256];
	glob_t found;
	int fd;

	snprintf(pattern, sizeof(pattern), "%s/verbatim-*/function-mlx5_0-0",
		 shm ? shm : "/dev/shm");
	CHECK(!glob(pattern, 0, NULL, &found));
	CHECK(found.gl_pathc == 1);
	fd = open(found.gl_pathv[0], O_RDWR);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(fd >= 0 && page != MAP_FAILED);
	for (uint64_t was = load(&shared[0].published); load(&shared[0].published) < was + 100;)
		sched_yield();
	for (int i = 0; i < 2000000; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		/* Now and then something near the truth: small numbers are slots. */
		page[(seed >> 33) % 512] = seed & 64 ? seed : seed >> 30 & 0xff0000000full;
	}
	kill(pid, SIGKILL);
	ends(pid, SIGKILL);
	end_device(&d);
	for (int i = 0; i < 512; i++)
		page[i] = 0xaaaaaaaaaaaaaaaa;
	close(fd);
	globfree(&found);
	/* Owners that do not exist are no owners. */
	d = start_device();
	ends(start("driver", 1000), 0);
	end_device(&d);
}

int main(int argc, char **argv)
{
	struct device d;

	if (argc == 4) {
		map_shared(atoi(argv[2]));
		if (!strcmp(argv[1], "late"))
			return late();
		if (!strcmp(argv[1], "poor"))
			return poor();
		return strcmp(argv[1], "server") ? driver(strtoull(argv[3], NULL, 0))
						 : server(atoi(argv[3]));
	}
	map_shared(memfd_create("shared", 0));
	CHECK(!ftruncate(shared_fd, 4096));
	d = start_device();
	ends(start("driver", MANY), 0);
	CHECK(shared[0].served == MANY && shared[1].served == MANY);
	killed_drivers();
	end_device(&d);
	poor_device();
	killed_devices();
	hostile_page();
	return 0;
}
