// SPDX-License-Identifier: MIT
/*
 * Random bytes as a peer's table of shared memory, and as what the peer does to its files meanwhile: whatever the table
 * says, a place that is found lies in a window that was mapped for it, nothing faults outside of host/fault.h, and no
 * mapping and no descriptor is left behind.
 *
 *	1 byte     which file holds the table: mostly one as it must be
 *	then, as often as there are bytes for it, an operation and what it needs (enum op)
 *
 * Writes with the top bit of the operation set are made over and over by another thread, in turn with what was there
 * before, until the end of the input. Addresses and numbers are drawn from few, so that tables lead somewhere.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/fault.h"
#include "fabric/peer.h"
#include "fabric/reach.h"
#include "fabric/running.h"
#include "fabric/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* What reach.c needs of the rest of the fabric. */
struct vb_fabric *vb_running_begin(void)
{
	return NULL;
}

struct vb_fabric *vb_running_next(struct vb_fabric *fabric)
{
	return NULL;
}

void vb_running_end(void)
{
}

void vb_segment_wait_range(struct vb_fabric *fabric, uintptr_t base, size_t len)
{
}

enum op {
	OP_ROOT,   /* 1: which entry, 2: number of a table */
	OP_MIDDLE, /* 1: which table and entry, 2: number of a table */
	OP_LEAF,   /* 2: which table and entry, 1: file, 2: page; or 8 bytes as they are */
	OP_FILE, /* 1: place, 1: which file of the peer, 1: which field is something else, 8: what */
	OP_HEAD,   /* 1: a field of the peer's segment, 8: what */
	OP_LOOK,   /* 3: address, 2: length; or 8 and 8 */
	OP_SHRINK, /* 1: which file, 1: to how many MiB */
	OP_MOVE,   /* 1: which file, 1: another one that gets its descriptor */
	OPS
};

enum { TABLE_BYTES = VB_SHARED_FIRST + VB_SHARED_TABLES * VB_SHARED_TABLE_BYTES };
enum { MIB = 1 << 20, WINDOWS = 4096, FLIPS = 64, LOOKS = 64 };

/* Descriptors of the peer, which is us. The first ones are as they must be. */
enum file {
	FILE_TABLE,
	FILE_FIRST,
	FILE_SECOND,
	FILE_OPEN,      /* can shrink */
	FILE_READ_ONLY, /* sealed against writing */
	FILE_HUGE,      /* there is no page for it */
	FILE_LEASED,
	FILE_SHORT,
	FILE_DISK,
	FILE_FOLDER,
	FILE_NULL,
	FILE_PIPE,
	FILE_CLOSED,
	FILES
};

static struct {
	int fd;
	struct stat st;
} files[FILES];
static struct vb_shared_map *table;

/* --- mappings ------------------------------------------------------------------------------------ */

static struct {
	char *at;
	size_t len;
} maps[WINDOWS];
static unsigned int num_maps;

void *__real_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t len);
int __wrap_munmap(void *addr, size_t len);

void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *at = __real_mmap64(addr, len, prot, flags, fd, offset);

	if (at == MAP_FAILED)
		return at;
	if (num_maps == WINDOWS)
		abort();
	maps[num_maps].at = at;
	maps[num_maps++].len = len;
	return at;
}

int __wrap_munmap(void *addr, size_t len)
{
	for (unsigned int i = 0; i < num_maps; i++)
		if (maps[i].at == addr && maps[i].len == len) {
			maps[i] = maps[--num_maps];
			return __real_munmap(addr, len);
		}
	abort();
}

static void check_inside(const char *at, uint64_t len)
{
	for (unsigned int i = 0; i < num_maps; i++)
		if (maps[i].len == VB_REACH_WINDOW && at >= maps[i].at &&
		    len <= VB_REACH_WINDOW - (size_t)(at - maps[i].at))
			return;
	abort();
}

/* --- writes to the table --------------------------------------------------------------------------- */

/* A word that changes while it is read, of 4 or of 8 bytes. */
struct flip {
	void *at;
	uint64_t values[2];
	bool wide;
};

static struct flip flips[FLIPS];
static _Atomic unsigned int num_flips; /* 0: the thread rests */
static _Atomic bool flipping;          /* it is in the middle of it */

static void store(void *at, uint64_t value, bool wide)
{
	if (wide)
		atomic_store_explicit((_Atomic uint64_t *)at, value, memory_order_release);
	else
		atomic_store_explicit((_Atomic uint32_t *)at, (uint32_t)value,
				      memory_order_release);
}

static void *flip_all(void *arg)
{
	for (unsigned int turn = 0;; turn++) {
		unsigned int n;

		atomic_store(&flipping, true);
		n = atomic_load(&num_flips);
		for (unsigned int i = 0; i < n; i++)
			store(flips[i].at, flips[i].values[(turn >> i % 8) & 1], flips[i].wide);
		atomic_store(&flipping, false);
		if (!n)
			usleep(20);
	}
	return arg;
}

static void stop_flipping(void)
{
	atomic_store(&num_flips, 0);
	while (atomic_load(&flipping))
		sched_yield();
}

static void write_word(void *at, uint64_t value, bool wide, bool flip)
{
	unsigned int n = atomic_load_explicit(&num_flips, memory_order_relaxed);

	if (flip && n < FLIPS) {
		flips[n].at = at;
		flips[n].values[0] = wide ? *(uint64_t *)at : *(uint32_t *)at;
		flips[n].values[1] = value;
		flips[n].wide = wide;
		atomic_store(&num_flips, n + 1);
	}
	store(at, value, wide);
}

/* --- the input ------------------------------------------------------------------------------------- */

struct input {
	const uint8_t *data;
	size_t size;
};

/* Bytes that are not there are 0. */
static uint64_t take(struct input *in, size_t n)
{
	uint64_t value = 0;

	n = n < in->size ? n : in->size;
	memcpy(&value, in->data, n);
	in->data += n;
	in->size -= n;
	return value;
}

/* Of the few that mean something, or any. */
static uint32_t table_number(struct input *in)
{
	uint32_t n = (uint32_t)take(in, 2);
	static const uint32_t odd[] = { 0,
					VB_REACH_CHUNK,
					VB_REACH_CHUNK + 1,
					VB_SHARED_TABLES,
					VB_SHARED_TABLES + 1,
					UINT32_MAX,
					1u << 31,
					VB_SHARED_TABLES - 1 };

	return n & 0x100 ? odd[n & 7] : n & 0x200 ? n << 12 : n & 7;
}

/* Root, middle, leaf: 2 bits each and what is left; the last one of each is the last there is. */
static uint64_t address(struct input *in)
{
	uint64_t n = take(in, 3);
	uint64_t root = n & 3, middle = n >> 2 & 3, leaf = n >> 4 & 15;

	root = root == 3 ? VB_SHARED_ROOT - 1 + (n >> 8 & 1) : root;
	middle = middle == 3 ? VB_SHARED_MIDDLE - 1 : middle;
	leaf = leaf == 15 ? VB_SHARED_LEAF - 1 : leaf;
	return ((root * VB_SHARED_MIDDLE + middle) * VB_SHARED_LEAF + leaf) * VB_SHARED_PAGE +
	       (n >> 9 & (VB_SHARED_PAGE - 1));
}

static char *table_place(uint32_t number)
{
	return (char *)table + VB_SHARED_FIRST +
	       (size_t)((number - 1) % VB_SHARED_TABLES) * VB_SHARED_TABLE_BYTES;
}

static void write_leaf(struct input *in, bool flip)
{
	uint32_t where = (uint32_t)take(in, 2), at = where >> 3 & 15;
	uint64_t file = take(in, 1), page = take(in, 2);
	uint64_t entry = VB_SHARED_ENTRY(file & 3, page & 0xfff);

	if (file & 128)
		entry = take(in, 8);
	else if (file & 64) /* at the end of a window, or of the last one */
		entry = VB_SHARED_ENTRY(
			file & 3, (file & 4 ? VB_REACH_WINDOWS : page & 3) *
						  (uint64_t)(VB_REACH_WINDOW / VB_SHARED_PAGE) -
					  (page >> 8 & 3));
	else if (file & 32)
		entry = VB_SHARED_LEFT;
	at = at == 15 ? VB_SHARED_LEAF - 1 : at;
	write_word(table_place((where & 7) + 1) + at * 8, entry, true, flip);
}

static void write_file(struct input *in, bool flip)
{
	struct vb_shared_file *to = &table->files[take(in, 1) & 3];
	unsigned int which = (unsigned int)take(in, 1) % FILES, field = (unsigned int)take(in, 1);

	to->fd = files[which].fd;
	to->dev = files[which].st.st_dev;
	to->ino = files[which].st.st_ino;
	switch (field & 7) {
	case 1:
		to->fd = (int32_t)take(in, 4);
		break;
	case 2:
		to->dev = take(in, 8);
		break;
	case 3:
		to->ino = take(in, 8);
		break;
	default:
		break;
	}
	write_word(&to->generation, field >> 3, false, flip);
}

static void write_head(struct vb_segment *segment, struct input *in)
{
	unsigned int field = (unsigned int)take(in, 1) & 7;
	uint64_t value = take(in, 8);

	if (field == 0)
		segment->shared_fd = (int32_t)value;
	else if (field == 1)
		segment->shared_ino = value;
	else if (field == 2)
		segment->shared_dev = value;
	else if (field == 3)
		table->magic = value;
}

/* --- files of the peer ----------------------------------------------------------------------------- */

static void know(enum file file, int fd)
{
	files[file].fd = fd;
	if (fd < 0 || fstat(fd, &files[file].st))
		memset(&files[file].st, 0, sizeof(files[file].st));
}

static int memfd(unsigned int flags, off_t bytes, int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd >= 0 && (ftruncate(fd, bytes) || (seals && fcntl(fd, F_ADD_SEALS, seals)))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void make_files(void)
{
	char disk[] = "/tmp/fuzz-reach-XXXXXX";
	int pair[2];

	know(FILE_TABLE, memfd(0, TABLE_BYTES, F_SEAL_SHRINK));
	know(FILE_FIRST, memfd(0, 64 * MIB, F_SEAL_SHRINK));
	know(FILE_SECOND, memfd(0, (off_t)VB_REACH_WINDOWS * VB_REACH_WINDOW, F_SEAL_SHRINK));
	know(FILE_OPEN, memfd(0, TABLE_BYTES, 0));
	know(FILE_READ_ONLY, memfd(0, TABLE_BYTES, F_SEAL_SHRINK | F_SEAL_WRITE));
	know(FILE_HUGE, memfd(MFD_HUGETLB, 66 * MIB, F_SEAL_SHRINK));
	know(FILE_LEASED, memfd(0, TABLE_BYTES, F_SEAL_SHRINK));
	know(FILE_SHORT, memfd(0, VB_SHARED_PAGE, F_SEAL_SHRINK));
	know(FILE_DISK, mkostemp(disk, O_CLOEXEC));
	know(FILE_FOLDER, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	know(FILE_NULL, open("/dev/null", O_RDWR | O_CLOEXEC));
	if (pipe2(pair, O_CLOEXEC))
		abort();
	know(FILE_PIPE, pair[0]);
	unlink(disk);
	if (ftruncate(files[FILE_DISK].fd, TABLE_BYTES) || files[FILE_TABLE].fd < 0)
		abort();
	fcntl(files[FILE_LEASED].fd, F_SETLEASE, F_WRLCK);
	know(FILE_CLOSED, dup(files[FILE_FIRST].fd));
	close(files[FILE_CLOSED].fd);
	table = __real_mmap64(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			      files[FILE_TABLE].fd, 0);
	if (table == MAP_FAILED)
		abort();
}

static void shrink(struct input *in)
{
	unsigned int which = (unsigned int)take(in, 1) % FILES;
	uint64_t to = take(in, 1) * MIB;

	/* Those that are sealed refuse, and what is no file. */
	if (files[which].fd >= 0 && ftruncate(files[which].fd, (off_t)to))
		return;
}

/* The peer closes a file and gets another one by the same number. Put back at the end of the input. */
static void move(struct input *in, int saved[FILES])
{
	unsigned int which = (unsigned int)take(in, 1) % FILES,
		     to = (unsigned int)take(in, 1) % FILES;

	if (saved[which] >= 0 || files[which].fd < 0 || files[to].fd < 0 || which == FILE_CLOSED ||
	    to == FILE_CLOSED)
		return;
	saved[which] = fcntl(files[which].fd, F_DUPFD_CLOEXEC, 500);
	if (dup3(files[to].fd, files[which].fd, O_CLOEXEC) < 0 && to != which)
		abort();
}

static void put_back(int saved[FILES])
{
	for (unsigned int i = 0; i < FILES; i++)
		if (saved[i] >= 0) {
			dup3(saved[i], files[i].fd, O_CLOEXEC);
			close(saved[i]);
		}
	if (ftruncate(files[FILE_OPEN].fd, TABLE_BYTES))
		abort();
}

/* --- looking ----------------------------------------------------------------------------------------- */

static void look(struct vb_peer *peer, uint64_t addr, uint64_t len)
{
	static char bytes[VB_SHARED_PAGE];
	uint64_t piece = 0;
	char *at = vb_reach_at(peer, addr, len, &piece);

	if (!piece || piece > len)
		abort();
	if (!at || at == VB_REACH_NOT)
		return;
	check_inside(at, piece);
	/* A file that is too short, or has shrunk, is a fault that is answered. */
	vb_fault_copy(bytes, at, piece < sizeof(bytes) ? piece : sizeof(bytes));
	vb_fault_copy(at + piece - 1, bytes, 1);
}

static void work(struct vb_peer *peer, struct input *in, int saved[FILES])
{
	for (unsigned int looks = 0; in->size && looks < LOOKS;) {
		uint8_t byte = (uint8_t)take(in, 1);
		bool flip = byte & 128, raw = byte & 64;
		uint32_t where;

		switch ((enum op)((byte & 63) % OPS)) {
		case OP_ROOT:
			where = (uint32_t)take(in, 1) & 3;
			where = where == 3 ? VB_SHARED_ROOT - 1 : where;
			write_word(&table->root[where], table_number(in), false, flip);
			break;
		case OP_MIDDLE:
			where = (uint32_t)take(in, 1);
			write_word(table_place((where & 7) + 1) + (where >> 3 & 3
									   ? where >> 3 & 3
									   : VB_SHARED_MIDDLE - 1) *
									  4,
				   table_number(in), false, flip);
			break;
		case OP_LEAF:
			write_leaf(in, flip);
			break;
		case OP_FILE:
			write_file(in, flip);
			break;
		case OP_HEAD:
			write_head(peer->segment, in);
			break;
		case OP_SHRINK:
			shrink(in);
			break;
		case OP_MOVE:
			move(in, saved);
			break;
		default: {
			uint64_t addr = raw ? take(in, 8) : address(in);
			uint64_t len = raw ? take(in, 8) : take(in, 2) * 64;

			look(peer, addr, len ? len : 1);
			looks++;
		}
		}
	}
}

/* A descriptor that nobody has. */
static int free_descriptor(void)
{
	int fd = dup(files[FILE_NULL].fd);

	close(fd);
	return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	pthread_t thread;

	make_files();
	if (vb_fault_arm() || pthread_create(&thread, NULL, flip_all, NULL))
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct vb_segment segment;
	static struct vb_peer peer;
	struct input in = { data, size };
	int saved[FILES], descriptor = free_descriptor();
	unsigned int before = num_maps;
	enum file holder;

	memset(saved, -1, sizeof(saved));
	memset(&peer, 0, sizeof(peer));
	peer.pid = getpid();
	peer.thread = (pid_t)syscall(SYS_gettid);
	peer.segment = &segment;
	holder = (enum file)take(&in, 1);
	holder = holder < FILES ? holder : FILE_TABLE;
	segment.shared_fd = files[holder].fd;
	segment.shared_dev = files[holder].st.st_dev;
	segment.shared_ino = files[holder].st.st_ino;
	atomic_store(&segment.shared, 1);
	table->magic = VB_SHARED_MAGIC;
	for (unsigned int i = 0; i < 4; i++) {
		table->files[i].fd = files[i].fd;
		table->files[i].dev = files[i].st.st_dev;
		table->files[i].ino = files[i].st.st_ino;
		atomic_store(&table->files[i].generation, i + 1);
	}
	/* Two ways through the tables that lead somewhere. */
	atomic_store(&table->root[0], 1);
	atomic_store((_Atomic uint32_t *)table_place(1), 2);
	atomic_store((_Atomic uint64_t *)table_place(2), VB_SHARED_ENTRY(1, 0));
	work(&peer, &in, saved);
	stop_flipping();
	vb_reach_close(&peer.reach);
	put_back(saved);
	if (num_maps != before || free_descriptor() != descriptor)
		abort();
	if (fallocate(files[FILE_TABLE].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      TABLE_BYTES))
		abort();
	return 0;
}
