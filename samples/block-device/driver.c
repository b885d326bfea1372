// SPDX-License-Identifier: MIT
/*
 * The driver of the block device: a program that knows virtio and nothing of the accelerator. It opens the emulated
 * function, sets up a queue in the memory that it shares with the device, rings by a plain store and waits for interrupts.
 *
 * It also does what a driver must not do, and looks whether the device takes it well.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <verbatim/emulation.h>

#include "shared.h"

/* Guest memory: registers, the queue, then buffers. */
enum {
	SIZE = 16, /* of the queue */
	DESC_AT = 0x1000,
	AVAIL_AT = 0x2000,
	USED_AT = 0x3000,
	HEADERS_AT = 0x4000,  /* one for each head, */
	STATUS_AT = 0x5000,   /* a status, */
	BUFFERS_AT = 0x10000, /* and a buffer of up to */
	BUFFER = 8 * SECTOR,
	WAIT_MS = 20000,
};

static struct verbatim_function *function;
static volatile uint32_t *doorbell;
static int interrupt;
static char *memory;
static struct registers *registers;
static struct virtq_desc *desc;
static struct virtq_avail *avail;
static struct virtq_used *used;
static uint16_t next_avail, next_used;

static void need(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "driver: %s\n", what);
	exit(1);
}

/* ---- the device ---- */

static void ring(void)
{
	doorbell[QUEUE] = QUEUE; /* what virtio stores is the queue's number */
}

static void wait_for_interrupt(void)
{
	struct pollfd fd = { .fd = interrupt, .events = POLLIN };
	uint64_t count;

	need(poll(&fd, 1, WAIT_MS) == 1, "no interrupt came: is the device still there?");
	need(read(interrupt, &count, sizeof(count)) == sizeof(count), "reading the eventfd");
}

static void open_function(void)
{
	struct verbatim_function_info first;

	need(verbatim_function_list(&first, 1) > 0, "there is no emulated function");
	function = verbatim_function_open(first.vhca_id);
	need(function != NULL,
	     errno == EBUSY ? "another driver has the function"
			    : "the function cannot be opened (did you say verbatim run?)");
	doorbell = verbatim_function_doorbells(function);
	interrupt = verbatim_function_eventfd(function, VECTOR);
	need(doorbell && interrupt >= 0, "no doorbells, or no interrupts");
	for (int i = 0; i < WAIT_MS && verbatim_function_served(function, QUEUE) != 1; i++)
		usleep(1000);
	need(verbatim_function_served(function, QUEUE) == 1, "nobody serves the function");
}

static void map_memory(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	need(fd >= 0, path);
	memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	need(memory != MAP_FAILED, "mmap");
	close(fd);
	registers = (struct registers *)memory;
	desc = (struct virtq_desc *)(memory + DESC_AT);
	avail = (struct virtq_avail *)(memory + AVAIL_AT);
	used = (struct virtq_used *)(memory + USED_AT);
	for (int i = 0;
	     i < WAIT_MS && __atomic_load_n(&registers->magic, __ATOMIC_ACQUIRE) != MAGIC; i++)
		usleep(1000);
	need(registers->magic == MAGIC && registers->device_id == BLOCK_DEVICE,
	     "the memory has no block device");
}

/* The device shows the status when it has acted on it. */
static void set_status(uint32_t status)
{
	__atomic_store_n(&registers->driver_status, status, __ATOMIC_RELEASE);
	ring();
	while (__atomic_load_n(&registers->device_status, __ATOMIC_ACQUIRE) != status)
		wait_for_interrupt();
}

static void start_device(void)
{
	set_status(0);
	memset(memory + DESC_AT, 0, HEADERS_AT - DESC_AT);
	next_avail = next_used = 0;
	registers->queue_size = SIZE;
	registers->desc = DESC_AT;
	registers->avail = AVAIL_AT;
	registers->used = USED_AT;
	set_status(STATUS_RUNNING);
}

/* ---- requests ---- */

static void publish(uint16_t head)
{
	avail->ring[next_avail++ % SIZE] = head;
	__atomic_store_n(&avail->idx, next_avail, __ATOMIC_SEQ_CST);
}

/* The head of the next answer, and how many bytes were written. */
static uint32_t take_answer(uint32_t *written)
{
	struct virtq_used_elem *elem;

	while (__atomic_load_n(&used->idx, __ATOMIC_ACQUIRE) == next_used)
		wait_for_interrupt();
	elem = &used->ring[next_used++ % SIZE];
	*written = elem->len;
	return elem->id;
}

static struct blk_header *header_of(uint16_t head)
{
	return (struct blk_header *)(memory + HEADERS_AT) + head;
}

static uint8_t *status_of(uint16_t head)
{
	return (uint8_t *)memory + STATUS_AT + head;
}

static char *buffer_of(uint16_t head)
{
	return memory + BUFFERS_AT + head * BUFFER;
}

static uint64_t at(const void *p)
{
	return (uint64_t)((const char *)p - memory);
}

/*
 * Three descriptors from 3 * slot on: header, data, status. A request without data has two. Five slots fit the queue.
 */
static uint16_t fill(unsigned int slot, uint32_t type, uint64_t sector, uint32_t bytes)
{
	uint16_t head = (uint16_t)(3 * slot), last = (uint16_t)(head + 2);

	*header_of(head) = (struct blk_header){ .type = type, .sector = sector };
	*status_of(head) = 0xff;
	desc[head] = (struct virtq_desc){ at(header_of(head)), sizeof(struct blk_header), DESC_NEXT,
					  bytes ? (uint16_t)(head + 1) : last };
	desc[head + 1] =
		(struct virtq_desc){ at(buffer_of(head)), bytes,
				     type == BLK_OUT ? DESC_NEXT : DESC_NEXT | DESC_WRITE, last };
	desc[last] = (struct virtq_desc){ at(status_of(head)), 1, DESC_WRITE, 0 };
	return head;
}

static uint8_t run(uint16_t head, uint32_t *written)
{
	publish(head);
	ring();
	need(take_answer(written) == head, "another request was answered");
	return *status_of(head);
}

static uint8_t request(uint32_t type, uint64_t sector, uint32_t bytes, uint32_t *written)
{
	return run(fill(0, type, sector, bytes), written);
}

/* ---- what a driver does ---- */

static void use(void)
{
	static const char text[SECTOR] = "sectors of a disk that is memory of the accelerator";
	uint32_t written;

	need(request(BLK_GET_ID, 0, ID_BYTES, &written) == BLK_OK && written == ID_BYTES + 1,
	     "GET_ID");
	printf("disk \"%.*s\", %llu sectors\n", ID_BYTES, buffer_of(0),
	       (unsigned long long)registers->capacity);
	memcpy(buffer_of(0), text, sizeof(text));
	need(request(BLK_OUT, 7, SECTOR, &written) == BLK_OK && written == 1, "OUT");
	need(request(BLK_FLUSH, 0, 0, &written) == BLK_OK && written == 1, "FLUSH");
	memset(buffer_of(0), 0, SECTOR);
	need(request(BLK_IN, 7, SECTOR, &written) == BLK_OK && written == SECTOR + 1, "IN");
	need(!memcmp(buffer_of(0), text, sizeof(text)), "the sector is not what was written");
	printf("sector 7: %s\n", buffer_of(0));
}

/* Several at a time, anywhere; a copy of the disk says what must come back. */
static void use_much(void)
{
	enum { SLOTS = 5, ROUNDS = 2000 };
	static char copy[SECTORS * SECTOR];
	unsigned int seed = 1, requests = 0;

	for (uint64_t s = 0; s < SECTORS; s += BUFFER / SECTOR) {
		uint32_t written;

		memset(buffer_of(0), (int)s, BUFFER);
		memset(copy + s * SECTOR, (int)s, BUFFER);
		need(request(BLK_OUT, s, BUFFER, &written) == BLK_OK, "OUT");
	}
	for (int round = 0; round < ROUNDS; round++) {
		struct {
			uint16_t head;
			uint32_t bytes;
			uint64_t sector;
			int out;
		} slot[SLOTS];
		unsigned int count = 1 + (unsigned int)rand_r(&seed) % SLOTS;
		uint32_t written;

		for (unsigned int i = 0; i < count; i++) {
			/* Each slot has its part of the disk: requests may be done in any order. */
			slot[i].bytes = SECTOR * (1 + (uint32_t)rand_r(&seed) % 8);
			slot[i].sector = 100 * i + (uint32_t)rand_r(&seed) % 90;
			slot[i].out = rand_r(&seed) & 1;
			slot[i].head = fill(i, slot[i].out ? BLK_OUT : BLK_IN, slot[i].sector,
					    slot[i].bytes);
			if (slot[i].out) {
				for (uint32_t b = 0; b < slot[i].bytes; b++)
					buffer_of(slot[i].head)[b] = (char)rand_r(&seed);
				memcpy(copy + slot[i].sector * SECTOR, buffer_of(slot[i].head),
				       slot[i].bytes);
			}
			publish(slot[i].head);
			ring();
		}
		for (unsigned int i = 0; i < count; i++, requests++)
			take_answer(&written);
		for (unsigned int i = 0; i < count; i++)
			need(*status_of(slot[i].head) == BLK_OK &&
				     (slot[i].out ||
				      !memcmp(copy + slot[i].sector * SECTOR,
					      buffer_of(slot[i].head), slot[i].bytes)),
			     "a request failed, or data is not what was written");
	}
	printf("%u requests, all data as written\n", requests);
}

/* ---- what a driver must not do ---- */

static void expect(const char *what, uint16_t head, uint8_t status)
{
	uint32_t written;
	uint8_t got = run(head, &written);

	need(got == status, what);
	printf("%s: status %u\n", what, got);
}

static void misuse(void)
{
	uint32_t written;
	uint16_t head;

	expect("a type that does not exist", fill(0, 77, 0, SECTOR), BLK_UNSUPP);
	expect("a sector beyond the end", fill(0, BLK_IN, SECTORS, SECTOR), BLK_IOERR);
	expect("the last sector and one more", fill(0, BLK_OUT, SECTORS - 1, 2 * SECTOR),
	       BLK_IOERR);
	expect("the largest sector", fill(0, BLK_IN, UINT64_MAX, SECTOR), BLK_IOERR);
	expect("half a sector", fill(0, BLK_IN, 0, SECTOR / 2), BLK_IOERR);
	head = fill(0, BLK_IN, 0, SECTOR);
	desc[head].len = 8;
	expect("half a header", head, BLK_IOERR);
	/* A bad descriptor in the middle: the status is the last byte that is writable before it. */
	head = fill(0, BLK_IN, 0, SECTOR);
	desc[head + 2].next = head;
	desc[head + 2].flags |= DESC_NEXT; /* reads again behind what is written */
	expect("a chain in a circle", head, BLK_IOERR);
	head = fill(0, BLK_IN, 0, 0);
	desc[head + 2].next = (uint16_t)(head + 2);
	desc[head + 2].flags |= DESC_NEXT;
	expect("a descriptor that leads to itself", head, BLK_IOERR);
	head = fill(0, BLK_IN, 0, 0);
	desc[head + 2].next = SIZE;
	desc[head + 2].flags |= DESC_NEXT;
	expect("a next that does not exist", head, BLK_IOERR);
	head = fill(0, BLK_IN, 0, 0);
	desc[head + 2].next = 15;
	desc[head + 2].flags |= DESC_NEXT;
	desc[15] = (struct virtq_desc){ MEMORY_SIZE - 8, SECTOR, DESC_WRITE, 0 };
	expect("memory beyond the end", head, BLK_IOERR);
	desc[15] = (struct virtq_desc){ UINT64_MAX - 4, 8, DESC_WRITE, 0 };
	expect("an address that wraps", head, BLK_IOERR);
	desc[15] = (struct virtq_desc){ at(buffer_of(0)), SECTOR, DESC_INDIRECT, 0 };
	expect("an indirect descriptor", head, BLK_IOERR);
	/* No place for a status: answered all the same. */
	head = fill(0, BLK_OUT, 0, SECTOR);
	desc[head + 1].flags = 0;
	need(run(head, &written) == 0xff && written == 0, "a request without a status");
	/* What the queue itself cannot survive needs a reset, which the device asks for. */
	publish(SIZE);
	ring();
	while (!(__atomic_load_n(&registers->device_status, __ATOMIC_ACQUIRE) & STATUS_NEEDS_RESET))
		wait_for_interrupt();
	start_device();
	__atomic_store_n(&avail->idx, (uint16_t)(next_avail + SIZE + 1), __ATOMIC_SEQ_CST);
	ring();
	while (!(__atomic_load_n(&registers->device_status, __ATOMIC_ACQUIRE) & STATUS_NEEDS_RESET))
		wait_for_interrupt();
	start_device();
	printf("two broken queues, two resets\n");
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: driver MEMORY   (the file that block-device was given)\n");
		return 2;
	}
	open_function();
	map_memory(argv[1]);
	start_device();
	use();
	misuse();
	use_much();
	set_status(0);
	need(!verbatim_function_close(function), "closing the function");
	return 0;
}
