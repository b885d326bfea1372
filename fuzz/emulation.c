// SPDX-License-Identifier: MIT
/*
 * Random bytes as what the other side of an emulated function does: words of the shared page that are nonsense, between calls
 * and doorbells of ours. Nothing crashes or hangs, and no map makes more completions than it was armed for.
 *
 * The input is a list of steps, each an opcode and what it needs of the following bytes (0 where they end):
 *
 *	0  a word of the page, then its value       5  a doorbell by call: queue, value
 *	1  the same, but a small owner               6  a doorbell by store: offset, width, value
 *	2  arm a map                                 7  raise a vector
 *	3  trigger a map                             8  what a woken process does
 *	4  the value of a map                        9  make or end a map, an event queue or the driver
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "card/emulation/emulation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAPS = 4, DEPTH = 16, PAGE = 4096, OWNER = 0x77 };

static struct vb_dev *dev;
static struct vb_function_info info;
static volatile uint64_t *page;

static struct side {
	struct vb_cq *cq;
	struct vb_emu_map *map;
	uint64_t *ring;
	__be32 *dbr;
	unsigned int armed;
	_Atomic unsigned int events;
} sides[MAPS];

static struct vb_emu_eq *eq;
static struct vb_emu_driver *driver;

static void need(int ok)
{
	if (!ok)
		abort();
}

static void on_event(void *cookie)
{
	struct side *side = cookie;

	atomic_fetch_add(&side->events, 1);
}

/* The page as another process finds it, in a directory of this one alone. */
static void map_page(const char *root)
{
	char path[512];
	DIR *dir = opendir(root);
	struct dirent *entry;
	int fd = -1;

	need(dir != NULL);
	while (fd < 0 && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s/function-mlx5_0-0", root, entry->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	need(fd >= 0);
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(page != MAP_FAILED);
	close(fd);
	closedir(dir);
}

static void open_all(void)
{
	static char root[] = "/tmp/fuzz-emulation-XXXXXX";
	struct vb_adapter *const *list;
	unsigned int count;

	need(mkdtemp(root) != NULL);
	setenv("VERBATIM_SHM_DIR", root, 1);
	need(!vb_card_adapters(&list, &count) && vb_function_info(list[0], 0, &info));
	need(!vb_dev_open(list[0], NULL, NULL, &dev));
	for (int i = 0; i < MAPS; i++) {
		struct side *s = &sides[i];

		s->ring = aligned_alloc(64, 64 * DEPTH);
		s->dbr = aligned_alloc(64, 64);
		need(s->ring && s->dbr);
		memset(s->ring, 0, 64 * DEPTH);
		memset(s->dbr, 0, 64);
		need(!vb_cq_create(dev,
				   &(struct vb_cq_attr){ .buf = s->ring,
							 .cqe_cnt = DEPTH,
							 .cqe_size = 64,
							 .dbr = s->dbr,
							 .ignore_overrun = true,
							 .always_armed = true,
							 .cookie = s,
							 .notify = on_event,
							 .owner = OWNER },
				   &s->cq));
	}
	need(!vb_emu_driver_open(info.vhca_id, &driver));
	map_page(root);
}

/* ---- steps ---- */

struct input {
	const uint8_t *data;
	size_t size;
};

static uint8_t byte(struct input *in)
{
	if (!in->size)
		return 0;
	in->size--;
	return *in->data++;
}

static uint64_t word(struct input *in)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | byte(in);
	return value;
}

static void write_page(struct input *in, uint64_t mask)
{
	unsigned int at = (unsigned int)(byte(in) << 8 | byte(in)) % (PAGE / 8);

	page[at] = word(in) & mask;
}

static uint32_t id_of(const struct side *s)
{
	return s->map ? vb_emu_map_id(s->map) : 1;
}

static void store(struct input *in)
{
	size_t at = (size_t)(byte(in) << 8 | byte(in)) % (info.queues * 4 - 8);
	volatile char *to = driver ? (volatile char *)vb_emu_driver_page(driver) + at : NULL;
	uint8_t width = byte(in) % 4;
	uint64_t value = word(in);

	if (!to)
		return;
	if (width == 0)
		*to = (char)value;
	else if (width == 1)
		*(volatile uint16_t __attribute__((aligned(1))) *)to = (uint16_t)value;
	else if (width == 2)
		*(volatile uint32_t __attribute__((aligned(1))) *)to = (uint32_t)value;
	else
		*(volatile uint64_t __attribute__((aligned(1))) *)to = value;
}

/* Those that are there end, those that are not begin: either may be refused by what the page says. */
static void toggle(struct input *in)
{
	uint8_t which = byte(in) % (MAPS + 2);

	if (which < MAPS) {
		struct side *s = &sides[which];

		if (s->map)
			vb_emu_unmap(s->map);
		if (s->map || vb_emu_map(dev, info.vhca_id, byte(in), vb_cq_number(s->cq), &s->map))
			s->map = NULL;
	} else if (which == MAPS) {
		if (eq)
			need(!vb_emu_eq_destroy(eq));
		if (eq || vb_emu_eq_create(dev, info.vhca_id, byte(in), &eq))
			eq = NULL;
	} else {
		if (driver)
			vb_emu_driver_close(driver);
		if (driver || vb_emu_driver_open(info.vhca_id, &driver))
			driver = NULL;
		if (driver)
			need(vb_emu_driver_eventfd(driver, 0) >= 0);
	}
}

static void step(struct input *in)
{
	uint8_t op = byte(in);
	struct side *s = &sides[op / 16 % MAPS];
	uint32_t value;

	switch (op % 16) {
	case 0:
		write_page(in, UINT64_MAX);
		break;
	case 1:
		write_page(in, 0xff0000000full);
		break;
	case 2:
		s->armed += !vb_doorbell_emu_arm(OWNER, vb_cq_number(s->cq), id_of(s));
		break;
	case 3:
		vb_doorbell_emu_trigger(OWNER, vb_cq_number(s->cq), id_of(s));
		break;
	case 4:
		vb_doorbell_emu_value(byte(in) & 1 ? OWNER : 0, id_of(s), &value);
		break;
	case 5:
		if (driver)
			vb_emu_driver_ring(driver, byte(in), (uint32_t)word(in));
		break;
	case 6:
		store(in);
		break;
	case 7:
		if (eq)
			vb_emu_eq_raise(eq);
		break;
	case 8:
		vb_progress_once();
		break;
	default:
		toggle(in);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };

	if (!dev)
		open_all();
	while (in.size)
		step(&in);
	for (int i = 0; i < MAPS; i++) {
		if (sides[i].map)
			vb_emu_unmap(sides[i].map);
		sides[i].map = NULL;
		need(atomic_load(&sides[i].events) <= sides[i].armed);
	}
	return 0;
}
