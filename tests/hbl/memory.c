// SPDX-License-Identifier: MIT
/* Device memory: the ioctls of /dev/accel/accelN, addresses, hints, mappings, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <fcntl.h>
#include <misc/habanalabs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the DRM driver: numbers of its own begin at 0x40. */
#define DRM_MEMORY 0xc0286444u
#define DRM_DEBUG  0xc0286445u

static int fd;

static int open_one(void **state)
{
	fd = open("/dev/accel/accel0", O_RDWR);
	return fd < 0;
}

static int close_one(void **state)
{
	return close(fd);
}

static int call(union hl_mem_args *args)
{
	return ioctl(fd, HL_IOCTL_MEMORY, args) ? errno : 0;
}

static int alloc(uint64_t size, uint64_t *handle)
{
	union hl_mem_args args = { .in = { .op = HL_MEM_OP_ALLOC, .alloc.mem_size = size } };
	int err = call(&args);

	*handle = args.out.handle;
	return err;
}

static int map(uint64_t handle, uint64_t hint, uint32_t flags, uint64_t *va)
{
	union hl_mem_args args = { .in = { .op = HL_MEM_OP_MAP, .flags = flags } };
	int err;

	args.in.map_device.handle = handle;
	args.in.map_device.hint_addr = hint;
	err = call(&args);
	*va = args.out.device_virt_addr;
	return err;
}

static int map_host(void *host, uint64_t size, uint64_t hint, uint64_t *va)
{
	union hl_mem_args args = { .in = { .op = HL_MEM_OP_MAP, .flags = HL_MEM_USERPTR } };
	int err;

	args.in.map_host.host_virt_addr = (uintptr_t)host;
	args.in.map_host.mem_size = size;
	args.in.map_host.hint_addr = hint;
	err = call(&args);
	*va = args.out.device_virt_addr;
	return err;
}

static int unmap(uint64_t va)
{
	union hl_mem_args args = { .in = { .op = HL_MEM_OP_UNMAP, .unmap.device_virt_addr = va } };

	return call(&args);
}

static int release(uint64_t handle)
{
	union hl_mem_args args = { .in = { .op = HL_MEM_OP_FREE, .free.handle = handle } };

	return call(&args);
}

/* A known program keeps only 16 of the low 32 bits. */
static void low_bits(void **state)
{
	uint64_t va[16], handle;
	char *host = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 16; i++) {
		if (i % 2) {
			assert_int_equal(map_host(host + i * 100, 5000, 0, &va[i]), 0);
			assert_int_equal(va[i] & 0xfff, (uintptr_t)(host + i * 100) & 0xfff);
		} else {
			assert_int_equal(alloc(3 << 20, &handle), 0);
			assert_int_equal(map(handle, 0, 0, &va[i]), 0);
		}
		assert_true((uint32_t)va[i] < 65536);
		for (int k = 0; k < i; k++)
			assert_true(va[i] >> 32 != va[k] >> 32);
	}
	munmap(host, 65536);
}

static void allocate_and_map(void **state)
{
	uint64_t handle, other, va, again;
	char *p, *q;

	assert_int_equal(alloc(10000, &handle), 0);
	assert_int_equal(alloc(10000, &other), 0);
	assert_int_not_equal(handle, other);
	p = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)handle);
	q = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)other);
	assert_true(p != MAP_FAILED && q != MAP_FAILED);
	memset(p, 1, 10000);
	memset(q, 2, 10000);
	assert_int_equal(p[9999], 1);
	assert_int_equal(map(handle, 0, 0, &va), 0);
	assert_int_equal(map(handle, 0, 0, &again), 0); /* a second address */
	assert_int_not_equal(va, again);
	assert_int_equal(release(handle), EINVAL); /* mapped */
	assert_int_equal(unmap(va), 0);
	assert_int_equal(unmap(va), EINVAL);
	assert_int_equal(release(handle), EINVAL);
	assert_int_equal(unmap(again), 0);
	assert_int_equal(release(handle), 0);
	assert_int_equal(release(handle), EINVAL);
	assert_int_equal(map(handle, 0, 0, &va), EINVAL);
	assert_int_equal(release(other), 0);
	munmap(p, 10000);
	munmap(q, 10000);
}

static void hints(void **state)
{
	uint64_t handle, va, other;
	static char host[8192] __attribute__((aligned(4096)));

	assert_int_equal(alloc(8192, &handle), 0);
	assert_int_equal(map(handle, 0x123400000000, 0, &va), 0);
	assert_int_equal(va, 0x123400000000);
	/* Taken: another address, or an error where it was forced. */
	assert_int_equal(map_host(host, 8192, va, &other), 0);
	assert_int_not_equal(other, va);
	assert_int_equal(unmap(other), 0);
	assert_int_equal(map(handle, va, 0x8, &other), EINVAL);
	/* Free again: a host buffer can take the place of a device buffer. */
	assert_int_equal(unmap(va), 0);
	assert_int_equal(map_host(host, 8192, va, &other), 0);
	assert_int_equal(other, va);
	assert_int_equal(unmap(other), 0);
	assert_int_equal(map(handle, 1ull << 60, 0, &va), 0); /* no such address */
	assert_true(va < 1ull << 48);
}

static void refusals(void **state)
{
	union hl_mem_args args = { .in.op = 77 };
	uint64_t handle, va;
	int file = open("/dev/null", O_RDONLY);
	char *gone, *only_read;

	assert_int_equal(call(&args), ENOTTY);
	assert_int_equal(alloc(0, &handle), EINVAL);
	assert_int_equal(alloc(1ull << 50, &handle), EINVAL);
	assert_int_equal(map(12345, 0, 0, &va), EINVAL);
	assert_int_equal(map_host(NULL, 4096, 0, &va), EINVAL);
	assert_int_equal(map_host(&args, 0, 0, &va), EINVAL);
	assert_int_equal(map_host((void *)-4096, 65536, 0, &va), EINVAL);
	gone = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(map_host(gone, 8192, 0, &va), EFAULT);
	only_read = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(unmap(0), EINVAL);
	assert_int_equal(ioctl(fd, HL_IOCTL_MEMORY, NULL), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ioctl(fd, HL_IOCTL_MEMORY, gone), -1);
	assert_int_equal(errno, EFAULT);
	/* Arguments that can be read but not written: nothing happens. */
	((union hl_mem_args *)only_read)->in =
		(struct hl_mem_in){ .op = HL_MEM_OP_ALLOC, .alloc.mem_size = 4096 };
	mprotect(only_read, 4096, PROT_READ);
	assert_int_equal(ioctl(fd, HL_IOCTL_MEMORY, only_read), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(alloc(4096, &handle), 0);
	assert_int_equal(release(handle - 4096), EINVAL);
	assert_int_equal(release(handle), 0);
	assert_int_equal(ioctl(file, HL_IOCTL_MEMORY, &args), -1);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(ioctl(fd, 12345, &args), -1);
	munmap(gone, 8192);
	munmap(only_read, 4096);
	close(file);
}

static void both_numbers(void **state)
{
	union hl_mem_args args = { .in = { .op = HL_MEM_OP_ALLOC, .alloc.mem_size = 4096 } };
	int copy = dup(fd);

	assert_int_equal(ioctl(fd, DRM_MEMORY, &args), 0);
	assert_true(args.out.handle);
	args = (union hl_mem_args){ .in = { .op = HL_MEM_OP_ALLOC, .alloc.mem_size = 4096 } };
	assert_int_equal(ioctl(copy, DRM_MEMORY, &args), 0);
	close(copy);
	args = (union hl_mem_args){ .in = { .op = HL_MEM_OP_ALLOC, .alloc.mem_size = 4096 } };
	assert_int_equal(ioctl(fd, DRM_DEBUG, &args), -1); /* another one */
	assert_int_equal(errno, ENOTTY);
}

static void closing_frees(void **state)
{
	uint64_t handle, va, again;

	assert_int_equal(alloc(8192, &handle), 0);
	assert_int_equal(map(handle, 0, 0, &va), 0);
	assert_int_equal(close(fd), 0);
	fd = open("/dev/accel/accel0", O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(unmap(va), EINVAL);
	assert_int_equal(alloc(8192, &handle), 0);
	assert_int_equal(map(handle, 0, 0, &again), 0);
	assert_int_equal(again, va);
}

/* The file is closed in other ways than by close(). */
static void closed_otherwise(void **state)
{
	int null = open("/dev/null", O_RDONLY), copy = dup(fd);
	uint64_t handle;

	assert_true(null >= 0 && copy >= 0);
	assert_int_equal(dup2(null, fd), fd);
	assert_int_equal(open("/dev/accel/accel0", O_RDWR), -1); /* there is another descriptor */
	assert_int_equal(errno, EBUSY);
	assert_int_equal(dup2(null, copy), copy);
	assert_int_equal(close(null), 0);
	null = fd;
	assert_int_equal(open_one(state), 0);
	assert_int_equal(alloc(4096, &handle), 0);
	assert_int_equal(close(null), 0);
	assert_int_equal(close(copy), 0);
	assert_int_equal(alloc(4096, &handle), 0);
}

/* A program that closes descriptors it does not know, and gets their numbers again, keeps its own files. */
static void foreign_descriptor(void **state)
{
	char path[] = "/tmp/verbatim-test-hbl.XXXXXX";
	int file = mkstemp(path), inner = -1;
	struct stat mine, st;
	uint64_t handle;

	assert_int_equal(fstat(fd, &mine), 0);
	for (int i = 0; i < 1024 && inner < 0; i++)
		if (i != fd && !fstat(i, &st) && st.st_ino == mine.st_ino &&
		    st.st_dev == mine.st_dev)
			inner = i;
	assert_true(file >= 0 && inner >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ftruncate(file, 1 << 20), 0);
	assert_int_equal(alloc(4096, &handle), 0);
	assert_int_equal(dup2(file, inner), inner);
	assert_int_equal(alloc(4096, &handle), EBADF);
	assert_int_equal(fstat(file, &st), 0);
	assert_int_equal(st.st_size, 1 << 20);
	assert_int_equal(close(fd), 0);
	assert_int_equal(fcntl(inner, F_GETFD), 0); /* still the program's */
	assert_int_equal(close(inner), 0);
	assert_int_equal(close(file), 0);
	assert_int_equal(open_one(state), 0);
	assert_int_equal(alloc(4096, &handle), 0);
}

/* Addresses of one device mean nothing on another. */
static void devices_are_apart(void **state)
{
	int mine = fd, other = open("/dev/accel/accel1", O_RDWR);
	uint64_t handle, va;

	assert_true(other >= 0);
	assert_int_equal(alloc(4096, &handle), 0);
	assert_int_equal(map(handle, 0, 0, &va), 0);
	fd = other;
	assert_int_equal(unmap(va), EINVAL);
	assert_int_equal(release(handle), EINVAL);
	fd = mine;
	assert_int_equal(unmap(va), 0);
	close(other);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_one, close_one)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(low_bits),          TEST(allocate_and_map), TEST(hints),
		TEST(refusals),          TEST(both_numbers),     TEST(closing_frees),
		TEST(devices_are_apart), TEST(closed_otherwise), TEST(foreign_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
