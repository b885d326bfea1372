// SPDX-License-Identifier: MIT
/*
 * A driver of the sample block-device that has lost its mind: random bytes in the registers, the descriptors and the rings, and
 * doorbells in between. Half of the time they are near what is right, so that they are looked at.
 *
 * usage: scribble MEMORY SEED
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <verbatim/emulation.h>

#include "../../../samples/block-device/shared.h"

enum { DESC_AT = 0x1000, AVAIL_AT = 0x2000, USED_AT = 0x3000, SIZE = 16, ROUNDS = 20000 };

static unsigned int seed;

static uint32_t any(uint32_t below)
{
	return (uint32_t)rand_r(&seed) % below;
}

static uint64_t word(void)
{
	return (uint64_t)rand_r(&seed) << 40 ^ (uint64_t)rand_r(&seed) << 20 ^
	       (uint64_t)rand_r(&seed);
}

static void scribble_desc(struct virtq_desc *desc)
{
	*desc = (struct virtq_desc){ .addr = any(4) ? any(MEMORY_SIZE + 64) : word(),
				     .len = any(4) ? any(4096) : (uint32_t)word(),
				     .flags = (uint16_t)(any(8) ? any(4) : word()),
				     .next = (uint16_t)(any(8) ? any(SIZE + 1) : word()) };
}

/* A reset and a queue, so that there is something to break; now and then not quite. */
static void begin(char *memory, volatile uint32_t *doorbell)
{
	struct registers *r = (struct registers *)memory;

	r->driver_status = 0;
	doorbell[QUEUE] = 0;
	usleep(300);
	((struct virtq_avail *)(memory + AVAIL_AT))->idx = 0;
	r->queue_size = any(8) ? SIZE : (uint32_t)word();
	r->desc = any(8) ? DESC_AT : word() & ~15ull;
	r->avail = any(8) ? AVAIL_AT : word();
	r->used = any(8) ? USED_AT : word();
	r->driver_status = any(8) ? STATUS_RUNNING : (uint32_t)word();
	doorbell[QUEUE] = 0;
	usleep(300);
}

static void scribble(char *memory)
{
	struct virtq_avail *avail = (struct virtq_avail *)(memory + AVAIL_AT);

	switch (any(8)) {
	case 0:
	case 1:
		avail->idx = (uint16_t)(any(256) ? avail->idx + any(4) : word());
		break;
	case 2:
	case 3:
		avail->ring[any(SIZE)] = (uint16_t)(any(256) ? any(SIZE) : word());
		break;
	case 4:
		memory[any(MEMORY_SIZE - 64) + 64] = (char)word();
		break;
	default:
		scribble_desc((struct virtq_desc *)(memory + DESC_AT) + any(SIZE));
	}
}

int main(int argc, char **argv)
{
	struct verbatim_function_info first;
	struct verbatim_function *function;
	volatile uint32_t *doorbell;
	char *memory;
	int fd;

	if (argc != 3 || verbatim_function_list(&first, 1) < 1)
		return 1;
	seed = (unsigned int)atoi(argv[2]);
	fd = open(argv[1], O_RDWR);
	memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	function = verbatim_function_open(first.vhca_id);
	doorbell = function ? verbatim_function_doorbells(function) : NULL;
	if (fd < 0 || memory == MAP_FAILED || !doorbell) {
		perror("scribble");
		return 1;
	}
	for (int i = 0; i < ROUNDS; i++) {
		if (i % 200 == 0)
			begin(memory, doorbell);
		scribble(memory);
		if (!any(4))
			doorbell[QUEUE] = (uint32_t)word();
		if (!any(64))
			usleep(100);
	}
	return verbatim_function_close(function) != 0;
}
