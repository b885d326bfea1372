// SPDX-License-Identifier: MIT
/*
 * What a process has when the library is loaded, when a card is open, and when it is closed again:
 * threads, descriptors, signal handlers, masks, limits, environment and the like. Loading changes
 * nothing. An open card is a thread that no signal of the program's reaches, descriptors above the
 * standard ones that no executed program inherits, and our handlers for two signals. Closing gives
 * back threads and descriptors.
 *
 *	usage: guest LIBRARY, where this program is not linked with it
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <infiniband/verbs.h>

extern char **environ;

enum { MOST = 64, SIGNALS = 65 };

static int failures;

#define expect(condition, ...)                                                 \
	do {                                                                   \
		if (!(condition)) {                                            \
			printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
			printf(__VA_ARGS__);                                   \
			putchar('\n');                                         \
			failures++;                                            \
		}                                                              \
	} while (0)

/* As the kernel has it: handler, flags, restorer, mask. */
struct kernel_action {
	uint64_t handler, flags, restorer, mask;
};

struct state {
	int threads[MOST], num_threads;
	int fds[MOST], num_fds;
	struct kernel_action actions[SIGNALS];
	uint64_t mask;
	struct rlimit limits[RLIM_NLIMITS];
	uint64_t environment; /* a sum over all of it */
	char name[16], folder[256];
	mode_t umask;
	int dumpable, keeps, no_new_privs, subreaper;
	struct itimerval timer;
	stack_t stack;
	struct __user_cap_data_struct caps[2];
	cpu_set_t cpus;
};

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Of a folder below /proc/self; own: whether the descriptor that it is read by is one of them. */
static int list(const char *path, bool own, int *numbers)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir)) && n < MOST)
		if (entry->d_name[0] != '.' && (!own || atoi(entry->d_name) != dirfd(dir)))
			numbers[n++] = atoi(entry->d_name);
	if (dir)
		closedir(dir);
	qsort(numbers, (size_t)n, sizeof(numbers[0]), by_number);
	return n;
}

static uint64_t sum_environment(void)
{
	uint64_t sum = 0;

	for (char **p = environ; *p; p++)
		for (const char *c = *p; *c; c++)
			sum = sum * 31 + (unsigned char)*c;
	return sum;
}

static void look(struct state *s)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };

	memset(s, 0, sizeof(*s));
	s->num_threads = list("/proc/self/task", false, s->threads);
	s->num_fds = list("/proc/self/fd", true, s->fds);
	for (int sig = 1; sig < SIGNALS; sig++)
		syscall(SYS_rt_sigaction, sig, NULL, &s->actions[sig], 8);
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &s->mask, 8);
	for (int i = 0; i < RLIM_NLIMITS; i++)
		getrlimit((__rlimit_resource_t)i, &s->limits[i]);
	s->environment = sum_environment();
	prctl(PR_GET_NAME, s->name, 0, 0, 0);
	if (!getcwd(s->folder, sizeof(s->folder)))
		s->folder[0] = '\0';
	s->umask = umask(0);
	umask(s->umask);
	s->dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
	s->keeps = prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0);
	s->no_new_privs = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
	prctl(PR_GET_CHILD_SUBREAPER, &s->subreaper, 0, 0, 0);
	getitimer(ITIMER_REAL, &s->timer);
	sigaltstack(NULL, &s->stack);
	syscall(SYS_capget, &header, s->caps);
	sched_getaffinity(0, sizeof(s->cpus), &s->cpus);
}

/* libc takes them when the first thread is made. */
static bool is_libcs(int sig)
{
	return sig == 32 || sig == 33;
}

/* What never changes. */
static void same(const char *when, const struct state *a, const struct state *b)
{
	expect(a->mask == b->mask, "%s", when);
	expect(!memcmp(a->limits, b->limits, sizeof(a->limits)), "%s", when);
	expect(a->environment == b->environment, "%s", when);
	expect(!strcmp(a->name, b->name) && !strcmp(a->folder, b->folder), "%s", when);
	expect(a->umask == b->umask, "%s", when);
	expect(a->dumpable == b->dumpable && a->keeps == b->keeps, "%s", when);
	expect(a->no_new_privs == b->no_new_privs && a->subreaper == b->subreaper, "%s", when);
	expect(!memcmp(&a->timer, &b->timer, sizeof(a->timer)), "%s", when);
	expect(a->stack.ss_flags == b->stack.ss_flags, "%s", when);
	expect(!memcmp(a->caps, b->caps, sizeof(a->caps)), "%s", when);
	expect(!memcmp(&a->cpus, &b->cpus, sizeof(a->cpus)), "%s", when);
	for (int sig = 1; sig < SIGNALS; sig++)
		expect(sig == SIGSEGV || sig == SIGBUS || is_libcs(sig) ||
			       !memcmp(&a->actions[sig], &b->actions[sig], sizeof(a->actions[sig])),
		       "%s: signal %d", when, sig);
}

static void same_numbers(const char *when, const struct state *a, const struct state *b)
{
	expect(a->num_threads == b->num_threads, "%s: %d threads, then %d", when, a->num_threads,
	       b->num_threads);
	expect(a->num_fds == b->num_fds && !memcmp(a->fds, b->fds, sizeof(a->fds)),
	       "%s: %d descriptors, then %d", when, a->num_fds, b->num_fds);
}

static bool has(const int *numbers, int count, int number)
{
	return bsearch(&number, numbers, (size_t)count, sizeof(number), by_number);
}

static void new_descriptors(const struct state *before, const struct state *now)
{
	for (int i = 0; i < now->num_fds; i++) {
		int fd = now->fds[i];

		if (has(before->fds, before->num_fds, fd))
			continue;
		expect(fd > 2, "descriptor %d is a standard one", fd);
		expect(fcntl(fd, F_GETFD) & FD_CLOEXEC, "descriptor %d is inherited", fd);
	}
}

static uint64_t blocked(int thread)
{
	char path[64], line[256];
	unsigned long long mask = 0;
	FILE *status;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status))
		sscanf(line, "SigBlk: %llx", &mask);
	if (status)
		fclose(status);
	return mask;
}

/* Of all signals it takes the faults, and the two by which libc speaks to its threads. */
static void new_threads(const struct state *before, const struct state *now)
{
	static const int taken[] = { SIGSEGV, SIGBUS, SIGKILL, SIGSTOP, 32, 33 };
	uint64_t wanted = ~0ull;

	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		wanted &= ~(1ull << (taken[i] - 1));
	expect(now->num_threads > before->num_threads, "no thread");
	for (int i = 0; i < now->num_threads; i++) {
		int thread = now->threads[i];

		if (!has(before->threads, before->num_threads, thread))
			expect(blocked(thread) == wanted, "thread %d blocks %016llx", thread,
			       (unsigned long long)blocked(thread));
	}
}

/* What a process may read, it can read: valgrind looks at all of it, and takes a fault for each word. */
static void readable(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512], rights[5], byte;

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || strcmp(rights, "rw-s"))
			continue;
		for (unsigned long last = to - 1, i = 0; i < 2; i++, last = from) {
			struct iovec here = { &byte, 1 }, there = { (void *)last, 1 };

			expect(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1, "%s", line);
		}
	}
	if (maps)
		fclose(maps);
}

int main(int argc, char **argv)
{
	static struct state plain, loaded, open, closed, again;
	void *lib;
	struct ibv_device **(*get)(int *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	void (*free_list)(struct ibv_device **);
	struct ibv_device **devices;
	struct ibv_context *context;

	expect(!dlerror(), "an error of dlsym() before the program begins");
	look(&plain);
	lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
	if (!lib) {
		printf("%s\n", argc > 1 ? dlerror() : "no library");
		return 1;
	}
	look(&loaded);
	same("loaded", &plain, &loaded);
	same_numbers("loaded", &plain, &loaded);
	expect(!memcmp(plain.actions, loaded.actions, sizeof(plain.actions)), "loaded");
	*(void **)&get = dlsym(lib, "ibv_get_device_list");
	*(void **)&open_device = dlsym(lib, "ibv_open_device");
	*(void **)&close_device = dlsym(lib, "ibv_close_device");
	*(void **)&free_list = dlsym(lib, "ibv_free_device_list");
	for (int i = 0; i < 2; i++) {
		devices = get(NULL);
		context = devices ? open_device(devices[0]) : NULL;
		expect(context, "%s", strerror(errno));
		expect(!dlerror(), "an error of dlsym() in ibv_open_device()");
		look(&open);
		same("open", &plain, &open);
		new_descriptors(&plain, &open);
		new_threads(&plain, &open);
		readable();
		expect(context && !close_device(context), "%s", strerror(errno));
		free_list(devices);
		look(i ? &again : &closed);
	}
	same("closed", &plain, &closed);
	expect(closed.num_threads == 1, "%d threads are left", closed.num_threads);
	same_numbers("closed twice", &closed, &again);
	printf("closed: %d descriptors, %d before\n", closed.num_fds, plain.num_fds);
	return failures ? 1 : 0;
}
