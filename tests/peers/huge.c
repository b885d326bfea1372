// SPDX-License-Identifier: MIT
/*
 * Huge pages under `verbatim run` on a machine that has too few: programs that map them unchecked, as many for DPAs do, get
 * ordinary pages. Without an argument the program uses a card; "plain": it is one that has nothing to do with cards, and "strict":
 * one that wants to know (VERBATIM_HUGE=strict). Both see what the kernel says.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#ifdef WITH_CARD
#include <infiniband/verbs.h>
#endif

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #what); \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

enum { HUGE_2MB = 21 << 26, ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB };

static size_t read_meminfo(const char *key)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[256];
	size_t value = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			value = strtoul(line + strlen(key), NULL, 10);
	fclose(file);
	return value;
}

/* More than there is. */
static size_t size, page;

static void check_refused(void)
{
	errno = 0;
	CHECK(mmap(NULL, size, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0) == MAP_FAILED);
	CHECK(errno == ENOMEM);
	CHECK(shmget(IPC_PRIVATE, size, IPC_CREAT | SHM_HUGETLB | 0600) < 0);
	puts("as the kernel says");
}

#ifdef WITH_CARD
static void register_it(void *p, size_t len)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_mr *mr;

	CHECK(pd);
	mr = ibv_reg_mr(pd, p, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(mr && !ibv_dereg_mr(mr));
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(list);
}

static void check_mapped(int prot, int flags, size_t len)
{
	char *p;

	errno = 123;
	p = mmap(NULL, len, prot, flags, -1, 0);
	CHECK(p != MAP_FAILED && errno == 123);
	CHECK((uintptr_t)p % page == 0);
	CHECK(*p == 0 && p[len - 1] == 0);
	if (prot & PROT_WRITE) {
		/* Whole huge pages, as from the kernel. */
		memset(p, 0x5a,
		       (len + page - 1) / page * page < 8 * page ? (len + page - 1) / page * page
								 : len);
		register_it(p, len);
	}
	CHECK(!munmap(p, (len + page - 1) / page * page));
}

static void check_given(void)
{
	void *at =
		mmap(NULL, 4 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	void *fixed = (void *)(((uintptr_t)at + page - 1) / page * page);
	int id;
	char *p;

	check_mapped(PROT_READ | PROT_WRITE, ANONYMOUS, size);
	check_mapped(PROT_READ | PROT_WRITE, ANONYMOUS | MAP_POPULATE, size + 5);
	check_mapped(PROT_READ | PROT_WRITE, ANONYMOUS | HUGE_2MB, size);
	check_mapped(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, size);
	check_mapped(PROT_READ, ANONYMOUS, size);
	/* At a place of its own choice a program counts pages itself, as DPDK does. */
	CHECK(at != MAP_FAILED);
	CHECK(mmap(fixed, size, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_FIXED, -1, 0) ==
		      MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(!munmap(at, 4 * size));
	CHECK(mmap(NULL, 0, PROT_READ, ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
	errno = 123;
	id = shmget(IPC_PRIVATE, size, IPC_CREAT | SHM_HUGETLB | 0600);
	CHECK(id >= 0 && errno == 123);
	p = shmat(id, NULL, 0);
	CHECK(p != (void *)-1);
	memset(p, 1, size);
	CHECK(!shmctl(id, IPC_RMID, NULL) && !shmdt(p));
	puts("ordinary pages");
}
#endif

int main(int argc, char **argv)
{
	page = read_meminfo("Hugepagesize:") << 10;
	if (!page) {
		puts("this kernel has no huge pages");
		return 77;
	}
	size = (read_meminfo("HugePages_Total:") + 2) * page;
#ifdef WITH_CARD
	if (argc < 2) {
		check_given();
		return 0;
	}
#endif
	check_refused();
	return 0;
}
