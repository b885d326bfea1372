// SPDX-License-Identifier: MIT
/* User FIFOs: numbers and places, every kind of store, order, back pressure, overrun, destruction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "hbl.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "card/card.h"

static struct dev dev;

static int open_one(void **state)
{
	dev_open(&dev, 0);
	set_port(&dev, 1);
	return 0;
}

static int close_one(void **state)
{
	dev_close(&dev);
	return 0;
}

static struct hbldv_usr_fifo *new_fifo(uint32_t port, int type, uint32_t hint)
{
	struct hbldv_usr_fifo_attr attr = { .port_num = port,
					    .usr_fifo_num_hint = hint,
					    .usr_fifo_type = (enum hbldv_usr_fifo_type)type };

	errno = 0;
	return hbldv_create_usr_fifo(dev.context, &attr);
}

static uint32_t ci_of(const struct hbldv_usr_fifo *fifo)
{
	return atomic_load_explicit((_Atomic uint32_t *)fifo->ci_cpu_addr, memory_order_acquire);
}

/* A QP connected to itself: what it writes it also receives. */
static void end_connect_self(struct end *end)
{
	struct address self;

	hbl_end_address(end, &self);
	hbl_end_connect(end, &self, NULL);
}

/* --- places ----------------------------------------------------------------------------------------------------- */

static void numbers(void **state)
{
	struct hbldv_usr_fifo *fifo[30];

	for (uint32_t i = 0; i < 30; i++) {
		fifo[i] = new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 0);
		assert_non_null(fifo[i]);
		assert_int_equal(fifo[i]->usr_fifo_num, i + 1);
		assert_int_equal(fifo[i]->regs_offset, i % 2 ? 0x80 : 0);
		assert_int_equal(fifo[i]->size, dev.gaudi3 ? 256 : 512);
		assert_int_equal(fifo[i]->bp_thresh, fifo[i]->size / 2);
		assert_int_equal(ci_of(fifo[i]), 0);
	}
	assert_null(new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 0));
	assert_int_equal(errno, EBUSY);
	assert_int_equal(hbldv_destroy_usr_fifo(fifo[7]), 0);
	fifo[7] = new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 0);
	assert_int_equal(fifo[7]->usr_fifo_num, 8);
	for (int i = 0; i < 30; i++)
		assert_int_equal(hbldv_destroy_usr_fifo(fifo[i]), 0);
	/* Another port has its own, the first at offset 0. */
	set_port(&dev, 2);
	fifo[0] = new_fifo(2, HBLDV_USR_FIFO_TYPE_DB, 0);
	assert_int_equal(fifo[0]->usr_fifo_num, 1);
	assert_int_equal(fifo[0]->regs_offset, 0);
	assert_int_equal(hbldv_destroy_usr_fifo(fifo[0]), 0);
}

static void hints(void **state)
{
	struct hbldv_usr_fifo *a, *b;

	a = new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 30);
	assert_non_null(a);
	assert_int_equal(a->usr_fifo_num, 30);
	assert_int_equal(a->regs_offset, 0x80);
	assert_null(new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 30));
	assert_int_equal(errno, EBUSY);
	assert_null(new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 31));
	assert_int_equal(errno, EINVAL);
	b = new_fifo(1, HBLDV_USR_FIFO_TYPE_CC, 0);
	assert_int_equal(b->usr_fifo_num, 1);
	assert_int_equal(hbldv_destroy_usr_fifo(a), 0);
	a = new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 30);
	assert_non_null(a);
	assert_int_equal(hbldv_destroy_usr_fifo(a), 0);
	assert_int_equal(hbldv_destroy_usr_fifo(b), 0);
}

static void refusals(void **state)
{
	assert_null(hbldv_create_usr_fifo(dev.context, NULL));
	assert_int_equal(errno, EINVAL);
	assert_null(hbldv_create_usr_fifo(NULL, NULL));
	assert_int_equal(errno, EINVAL);
	assert_null(new_fifo(0, HBLDV_USR_FIFO_TYPE_DB, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(new_fifo(25, HBLDV_USR_FIFO_TYPE_DB, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(new_fifo(1, 2, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(new_fifo(2, HBLDV_USR_FIFO_TYPE_DB, 0)); /* not set up */
	assert_int_equal(errno, EPERM);
	assert_int_equal(try_set_port(&dev, 2, 0, false), 0);
	assert_null(new_fifo(2, HBLDV_USR_FIFO_TYPE_CC, 0)); /* needs ADVANCED */
	assert_int_equal(errno, EINVAL);
	assert_int_equal(hbldv_destroy_usr_fifo(NULL), EINVAL);
}

/* --- stores ----------------------------------------------------------------------------------------------------- */

/* One kind of store after the other; each must be one doorbell, in order. */
static void ring_with(struct fifo *fifo, int kind, uint32_t qpn, uint32_t pi)
{
	uint64_t value = (uint64_t)qpn << 32 | pi;
	uint64_t pair[2] __attribute__((unused)) = { value, 0 }; /* x86-64 */
	char *regs = (char *)fifo->usr->regs_cpu_addr + fifo->usr->regs_offset;

	switch (kind) {
	case 0:
		fifo_ring(fifo, qpn, pi);
		return;
	case 1:
		fifo_ring32(fifo, qpn, pi);
		return;
	case 2: /* the port byte is not looked at */
		*(volatile uint64_t *)regs = value | 0xabull << 56;
		break;
	case 3: /* and neither are the reserved bits */
		*(volatile uint64_t *)regs = value | 0x3ffull << 22;
		break;
	case 4:
		memcpy(regs, &value, 8);
		break;
#ifdef __x86_64__
	case 5:
		__asm__ volatile("movnti %0, (%1)" : : "r"(value), "r"(regs) : "memory");
		break;
	case 6: /* a vector store reaches the first two registers, and two that are none */
		__asm__ volatile("movdqu %0, %%xmm0; movdqa %%xmm0, (%1)"
				 :
				 : "m"(pair), "r"(regs)
				 : "memory", "xmm0");
		break;
#endif
	default: /* a second store of the first register is the one that counts */
		((volatile uint32_t *)regs)[0] = 0x123;
		((volatile uint32_t *)regs)[0] = pi;
		((volatile uint32_t *)regs)[1] = qpn;
	}
	fifo->pi++;
}

static void kinds_of_stores(void **state)
{
	struct mem mem;
	struct fifo fifo;
	struct end end;
	struct cqe cqe;

	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	end_connect_self(&end);
	mem_host(&mem, &dev, 4096);
	/* The second FIFO, so that the offset is not 0. */
	struct hbldv_usr_fifo *first = new_fifo(1, HBLDV_USR_FIFO_TYPE_DB, 0);

	fifo_create(&fifo, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	assert_int_equal(fifo.usr->regs_offset, 0x80);
	for (int i = 0; i < 200; i++) {
		hbl_end_post(&end,
			     &(struct wqe){ .opcode = LINEAR,
					    .size = 8,
					    .tag = (uint32_t)i,
					    .completion = CQ,
					    .local = mem.va,
					    .remote = mem.va + 64 },
			     true);
		ring_with(&fifo, i % 8, end.q.qp_num, hbl_end_pi(&end));
		hbl_cq_wait(&end.res, &cqe);
		assert_int_equal(cqe.tag, i);
		hbl_cq_wait(&end.req, &cqe);
		assert_int_equal(cqe.tag, ~(uint32_t)i);
		assert_int_equal(ci_of(fifo.usr), dev.gaudi3 ? 2 * (i + 1) : (i + 1) % 64);
	}
	/* Stores that reach no register are nothing, and the page reads as zero. */
	volatile char *page = fifo.usr->regs_cpu_addr;

	page[0x80] = 1;
	*(volatile uint16_t *)(page + 0x84) = 1;
	*(volatile uint32_t *)(page + 0x88) = 1;
	*(volatile uint64_t *)(page + 0) = ~0ull;
	*(volatile uint32_t *)(page + 4092) = 1;
	assert_int_equal(*(volatile uint64_t *)(page + 0x80), 0);
	assert_true(no_event(&dev));
	assert_int_equal(hbldv_destroy_usr_fifo(fifo.usr), 0);
	assert_int_equal(hbldv_destroy_usr_fifo(first), 0);
	hbl_end_destroy(&end);
	mem_free(&mem);
}

/* Threads that write two halves at the same time do not get each other's. */
static struct fifo shared;

struct ringer {
	pthread_t thread;
	struct end end;
	struct mem *mem;
	int count;
	bool halves;
};

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

/* Space is counted by the program, as on hardware; the stores themselves are not under the lock. */
static void take_space(void)
{
	for (;;) {
		pthread_mutex_lock(&shared_lock);
		if (fifo_free(&shared) > 8) {
			shared.pi++;
			pthread_mutex_unlock(&shared_lock);
			return;
		}
		pthread_mutex_unlock(&shared_lock);
		sched_yield();
	}
}

static void *ring_many(void *arg)
{
	struct ringer *r = arg;
	volatile uint32_t *regs =
		(uint32_t *)((char *)shared.usr->regs_cpu_addr + shared.usr->regs_offset);
	struct cqe cqe;

	for (int i = 0; i < r->count; i++) {
		bool last = i % 32 == 31 || i == r->count - 1;

		hbl_end_post(&r->end, &(struct wqe){ .opcode = NOP, .tag = (uint32_t)i }, last);
		take_space();
		if (r->halves) {
			regs[0] = hbl_end_pi(&r->end);
			regs[1] = r->end.q.qp_num;
		} else {
			*(volatile uint64_t *)regs =
				(uint64_t)r->end.q.qp_num << 32 | hbl_end_pi(&r->end);
		}
		if (!last)
			continue;
		hbl_cq_wait(&r->end.req, &cqe);
		CHECK(cqe.tag == ~(uint32_t)i);
	}
	return NULL;
}

/* A doorbell that is lost leaves its completion out for ever; one too many is a bad index. */
static void ring_from_threads(int count, bool halves)
{
	struct ringer r[2];

	fifo_create(&shared, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	for (int i = 0; i < 2; i++) {
		r[i] = (struct ringer){ .count = count, .halves = halves };
		hbl_end_create(&r[i].end, &dev, &(struct end_attr){ .port = 1 });
		end_connect_self(&r[i].end);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&r[i].thread, NULL, ring_many, &r[i]), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_join(r[i].thread, NULL), 0);
	assert_int_equal(ci_of(shared.usr),
			 dev.gaudi3 ? 4u * (uint32_t)count & 0x7ff : 2u * (uint32_t)count & 63);
	assert_true(no_event(&dev));
	assert_int_equal(hbldv_destroy_usr_fifo(shared.usr), 0);
	for (int i = 0; i < 2; i++)
		hbl_end_destroy(&r[i].end);
}

static void million_doorbells(void **state)
{
	ring_from_threads(500000, false);
}

static void halves_from_threads(void **state)
{
	ring_from_threads(50000, true);
}

/* The registers of a FIFO belong to the FIFO: halves of many may be under way at once, and one may come from each thread. */
enum { MANY = 24 };

static void *ring_second_half(void *arg)
{
	volatile uint32_t *regs =
		(uint32_t *)((char *)shared.usr->regs_cpu_addr + shared.usr->regs_offset);
	struct end *end = arg;

	regs[1] = end->q.qp_num;
	return NULL;
}

static void halves_apart(void **state)
{
	struct fifo fifo[MANY];
	pthread_t thread;
	struct end end;
	struct cqe cqe;

	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	end_connect_self(&end);
	for (int i = 0; i < MANY; i++) {
		fifo_create(&fifo[i], &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
		hbl_end_post(&end, &(struct wqe){ .opcode = NOP, .tag = (uint32_t)i }, true);
		*(volatile uint32_t *)((char *)fifo[i].usr->regs_cpu_addr +
				       fifo[i].usr->regs_offset) = hbl_end_pi(&end);
	}
	for (int i = 0; i < MANY; i++) {
		*(volatile uint32_t *)((char *)fifo[i].usr->regs_cpu_addr +
				       fifo[i].usr->regs_offset + 4) = end.q.qp_num;
		hbl_cq_wait(&end.req, &cqe);
		assert_int_equal(cqe.tag, ~(uint32_t)i);
	}
	shared = fifo[0];
	hbl_end_post(&end, &(struct wqe){ .opcode = NOP, .tag = MANY }, true);
	*(volatile uint32_t *)((char *)shared.usr->regs_cpu_addr + shared.usr->regs_offset) =
		hbl_end_pi(&end);
	assert_int_equal(pthread_create(&thread, NULL, ring_second_half, &end), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	hbl_cq_wait(&end.req, &cqe);
	assert_int_equal(cqe.tag, ~(uint32_t)MANY);
	assert_true(no_event(&dev));
	for (int i = 0; i < MANY; i++)
		assert_int_equal(hbldv_destroy_usr_fifo(fifo[i].usr), 0);
	hbl_end_destroy(&end);
}

/* All that two devices have, in one process. */
static void all_fifos(void **state)
{
	struct hbldv_usr_fifo *fifo[2][48][30];
	struct dev both[2] = { dev };
	struct ibv_device_attr attr;
	uint32_t ports;

	dev_open(&both[1], 1);
	assert_int_equal(ibv_query_device(dev.context, &attr), 0);
	ports = attr.phys_port_cnt;
	for (int d = 0; d < 2; d++)
		for (uint32_t p = 0; p < ports; p++) {
			if (d || p)
				set_port(&both[d], p + 1);
			for (int i = 0; i < 30; i++) {
				struct hbldv_usr_fifo_attr at = { .port_num = p + 1 };

				fifo[d][p][i] = hbldv_create_usr_fifo(both[d].context, &at);
				assert_non_null(fifo[d][p][i]);
			}
		}
	/* Each is a page of its own. */
	*(volatile uint64_t *)((char *)fifo[1][ports - 1][29]->regs_cpu_addr + 0x80) = 8000ull
										       << 32;
	expect_event(&both[1], IBV_EVENT_PORT_ERR);
	assert_int_equal(ci_of(fifo[1][ports - 1][29]), dev.gaudi3 ? 2 : 1);
	assert_int_equal(ci_of(fifo[1][ports - 1][28]), 0);
	for (int d = 0; d < 2; d++)
		for (uint32_t p = 0; p < ports; p++)
			for (int i = 0; i < 30; i++)
				assert_int_equal(hbldv_destroy_usr_fifo(fifo[d][p][i]), 0);
	dev_close(&both[1]);
}

/* --- back pressure ---------------------------------------------------------------------------------------------- */

enum { BIG = 64 << 20, COPIES = 16 }; /* one doorbell, a second's work */

struct slow {
	pthread_t thread;
	struct end end;
	struct mem mem;
	atomic_bool started, finished;
};

/* The store returns when the card has carried the copy out: until then the FIFO stands still. */
static void *ring_slow(void *arg)
{
	struct slow *s = arg;

	s->started = true;
	*(volatile uint64_t *)((char *)shared.usr->regs_cpu_addr + shared.usr->regs_offset) =
		(uint64_t)s->end.q.qp_num << 32 | hbl_end_pi(&s->end);
	s->finished = true;
	return NULL;
}

static void start_slow(struct slow *s)
{
	for (int i = 0; i < COPIES; i++)
		hbl_end_post(&s->end,
			     &(struct wqe){ .opcode = LINEAR,
					    .size = BIG / 2,
					    .local = s->mem.va,
					    .remote = s->mem.va + BIG / 2 },
			     i == COPIES - 1);
	s->started = s->finished = false;
	shared.pi++;
	CHECK(!pthread_create(&s->thread, NULL, ring_slow, s));
	/* Until its doorbell was taken: what comes now waits behind it. */
	while (!s->started || (fifo_free(&shared) < (dev.gaudi3 ? 128 : 64) && !s->finished))
		sched_yield();
}

static void finish_slow(struct slow *s)
{
	struct cqe cqe;

	CHECK(!pthread_join(s->thread, NULL));
	hbl_cq_wait(&s->end.req, &cqe);
}

static uint32_t capacity(void)
{
	return dev.gaudi3 ? 128 : 64;
}

static void open_slow(struct slow *slow, struct end *end)
{
	fifo_create(&shared, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	hbl_end_create(&slow->end, &dev, &(struct end_attr){ .port = 1 });
	hbl_end_create(end, &dev, &(struct end_attr){ .port = 1, .wqes = 4096, .cqes = 8192 });
	end_connect_self(&slow->end);
	end_connect_self(end);
	mem_device(&slow->mem, &dev, BIG);
}

static void close_slow(struct slow *slow, struct end *end)
{
	assert_int_equal(hbldv_destroy_usr_fifo(shared.usr), 0);
	hbl_end_destroy(end);
	hbl_end_destroy(&slow->end);
	mem_free(&slow->mem);
}

/* A store that looks at no index. */
static void ring_uncounted(struct end *end)
{
	*(volatile uint64_t *)((char *)shared.usr->regs_cpu_addr + shared.usr->regs_offset) =
		(uint64_t)end->q.qp_num << 32 | hbl_end_pi(end);
}

static void expect_tags(struct end *end, uint32_t count)
{
	struct cqe cqe;

	for (uint32_t i = 0; i < count; i++) {
		hbl_cq_wait(&end->req, &cqe);
		assert_int_equal(cqe.tag, ~i);
	}
}

/* A program that counts never loses one, however long the FIFO stands still. */
static void full_fifo(void **state)
{
	struct slow slow = { 0 };
	bool waited = false;
	struct end end;
	uint32_t rung;

	open_slow(&slow, &end);
	for (int round = 0; round < 20 && !waited; round++) {
		start_slow(&slow);
		for (rung = 0; rung < capacity() + 50; rung++) {
			waited |= fifo_free(&shared) <= 2 && !slow.finished;
			hbl_end_post(&end, &(struct wqe){ .opcode = NOP, .tag = rung }, true);
			fifo_ring(&shared, end.q.qp_num, hbl_end_pi(&end));
		}
		expect_tags(&end, rung);
		finish_slow(&slow);
	}
	assert_true(waited);
	assert_true(no_event(&dev));
	close_slow(&slow, &end);
}

/* Nor does one that does not count: hardware takes doorbells faster than a program can store them. */
static void *ring_on(void *arg)
{
	struct end *end = arg;

	for (uint32_t i = 0; i < 2 * capacity(); i++) {
		hbl_end_post(end, &(struct wqe){ .opcode = NOP, .tag = i }, true);
		ring_uncounted(end);
	}
	return NULL;
}

static void uncounted_fifo(void **state)
{
	struct slow slow = { 0 };
	struct end end[3];
	pthread_t thread[3];
	uint32_t before;

	open_slow(&slow, &end[0]);
	for (int i = 1; i < 3; i++) {
		hbl_end_create(&end[i], &dev,
			       &(struct end_attr){ .port = 1, .wqes = 4096, .cqes = 8192 });
		end_connect_self(&end[i]);
	}
	for (int round = 0; round < 3; round++) {
		shared.pi = ci_of(shared.usr) / (dev.gaudi3 ? 2 : 1);
		before = ci_of(shared.usr);
		start_slow(&slow);
		for (int i = 0; i < 3; i++)
			assert_int_equal(pthread_create(&thread[i], NULL, ring_on, &end[i]), 0);
		for (int i = 0; i < 3; i++)
			assert_int_equal(pthread_join(thread[i], NULL), 0);
		finish_slow(&slow);
		for (int i = 0; i < 3; i++)
			expect_tags(&end[i], 2 * capacity());
		/* Every doorbell was counted. */
		assert_int_equal((ci_of(shared.usr) - before) & (dev.gaudi3 ? 0x7ff : 63),
				 (6 * capacity() + 1) * (dev.gaudi3 ? 2 : 1) &
					 (dev.gaudi3 ? 0x7ff : 63));
	}
	assert_true(no_event(&dev));
	hbl_end_destroy(&end[1]);
	hbl_end_destroy(&end[2]);
	close_slow(&slow, &end[0]);
}

/*
 * A handler that interrupted the card cannot wait for it: what it stores is kept, each queue's newest
 * index at least. 3000 doorbells for one queue, and then some for others.
 */
enum { INSIDE = 3000, OTHERS = 4 };

static void full_from_inside(void **state)
{
	struct slow slow = { 0 };
	struct end end, other[OTHERS];
	bool stood = false;
	uint32_t before;

	open_slow(&slow, &end);
	for (int i = 0; i < OTHERS; i++) {
		hbl_end_create(&other[i], &dev, &(struct end_attr){ .port = 1 });
		end_connect_self(&other[i]);
	}
	for (int round = 0; round < 20 && !stood; round++) {
		shared.pi = ci_of(shared.usr) / (dev.gaudi3 ? 2 : 1);
		before = ci_of(shared.usr);
		start_slow(&slow);
		vb_card_enter();
		for (uint32_t i = 0; i < INSIDE; i++) {
			hbl_end_post(&end, &(struct wqe){ .opcode = NOP, .tag = i }, true);
			ring_uncounted(&end);
		}
		for (int i = 0; i < OTHERS; i++) {
			hbl_end_post(&other[i], &(struct wqe){ .opcode = NOP, .tag = 0 }, true);
			ring_uncounted(&other[i]);
		}
		stood = !slow.finished;
		vb_card_leave();
		finish_slow(&slow);
		expect_tags(&end, INSIDE);
		for (int i = 0; i < OTHERS; i++)
			expect_tags(&other[i], 1);
		assert_int_equal((ci_of(shared.usr) - before) & (dev.gaudi3 ? 0x7ff : 63),
				 (INSIDE + OTHERS + 1) * (dev.gaudi3 ? 2 : 1) &
					 (dev.gaudi3 ? 0x7ff : 63));
	}
	assert_true(stood);
	assert_true(no_event(&dev));
	for (int i = 0; i < OTHERS; i++)
		hbl_end_destroy(&other[i]);
	close_slow(&slow, &end);
}

/* Messages of congestion control do not replace one another: too many of them from inside are an overrun. */
static struct fifo messages;

static void tell_card(const struct end *end)
{
	volatile uint64_t *regs =
		(uint64_t *)((char *)messages.usr->regs_cpu_addr + messages.usr->regs_offset);

	regs[0] = 0;
	regs[1] = (uint64_t)end->q.qp_num << 32; /* no field is valid */
}

static void *tell_slow(void *arg)
{
	tell_card(arg);
	return NULL;
}

static void overrun_from_inside(void **state)
{
	struct slow slow = { 0 };
	bool overrun = false;
	pthread_t thread;
	struct end end;

	open_slow(&slow, &end);
	fifo_create(&messages, &dev, 1, HBLDV_USR_FIFO_TYPE_CC);
	for (int round = 0; round < 20 && !overrun; round++) {
		shared.pi = ci_of(shared.usr) / (dev.gaudi3 ? 2 : 1);
		start_slow(&slow);
		/* It waits for the copy, and the FIFO for it. */
		assert_int_equal(pthread_create(&thread, NULL, tell_slow, &slow.end), 0);
		vb_card_enter();
		for (int i = 0; i < 5000; i++)
			tell_card(&slow.end);
		overrun = !slow.finished;
		vb_card_leave();
		assert_int_equal(pthread_join(thread, NULL), 0);
		finish_slow(&slow);
		while (!overrun && !no_event(&dev)) /* filled and emptied any number of times */
			;
	}
	assert_true(overrun);
	expect_event(&dev, IBV_EVENT_PORT_ERR);
	assert_true(no_event(&dev)); /* one, not one for each */
	/* The FIFO goes on. */
	hbl_end_post(&end, &(struct wqe){ .opcode = NOP, .tag = 0 }, true);
	tell_card(&end);
	ring_uncounted(&end);
	expect_tags(&end, 1);
	assert_int_equal(hbldv_destroy_usr_fifo(messages.usr), 0);
	close_slow(&slow, &end);
}

/* --- the end of a FIFO ------------------------------------------------------------------------------------------ */

static void destroy_drains(void **state)
{
	struct slow slow = { 0 };
	struct end end;
	struct cqe cqe;
	uint32_t first;

	fifo_create(&shared, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	first = shared.usr->usr_fifo_num;
	hbl_end_create(&slow.end, &dev, &(struct end_attr){ .port = 1 });
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	end_connect_self(&slow.end);
	end_connect_self(&end);
	mem_device(&slow.mem, &dev, BIG);
	start_slow(&slow);
	for (uint32_t i = 0; i < 20; i++) {
		hbl_end_post(&end, &(struct wqe){ .opcode = NOP, .tag = i }, true);
		fifo_ring(&shared, end.q.qp_num, hbl_end_pi(&end));
	}
	assert_int_equal(hbldv_destroy_usr_fifo(shared.usr), 0);
	for (uint32_t i = 0; i < 20; i++) {
		assert_true(hbl_cq_poll(&end.req, &cqe)); /* now, not later */
		assert_int_equal(cqe.tag, ~i);
	}
	finish_slow(&slow);
	/* The next owner of the number starts at 0. */
	fifo_create(&shared, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	assert_int_equal(shared.usr->usr_fifo_num, first);
	assert_int_equal(ci_of(shared.usr), 0);
	assert_int_equal(hbldv_destroy_usr_fifo(shared.usr), 0);
	hbl_end_destroy(&end);
	hbl_end_destroy(&slow.end);
	mem_free(&slow.mem);
}

static sigjmp_buf back;

static void on_segv(int sig)
{
	siglongjmp(back, 1);
}

static void destroyed_page_faults(void **state)
{
	struct sigaction action = { .sa_handler = on_segv }, before;
	struct fifo fifo;
	volatile uint64_t *regs;
	bool faulted = false;

	fifo_create(&fifo, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	regs = (uint64_t *)((char *)fifo.usr->regs_cpu_addr + fifo.usr->regs_offset);
	*regs = (uint64_t)8000 << 32; /* no such QP: an event, and the index moves on */
	expect_event(&dev, IBV_EVENT_PORT_ERR);
	assert_int_equal(ci_of(fifo.usr), dev.gaudi3 ? 2 : 1);
	assert_int_equal(hbldv_destroy_usr_fifo(fifo.usr), 0);
	assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
	if (!sigsetjmp(back, 1))
		*regs = 1;
	else
		faulted = true;
	assert_true(faulted);
	assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
}

/* A thread that blocks every signal rings, too. */
static void *ring_blocked(void *arg)
{
	struct end *end = arg;
	sigset_t all;
	struct cqe cqe;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	for (uint32_t i = 0; i < 100; i++) {
		hbl_end_post(end, &(struct wqe){ .opcode = NOP, .tag = i }, true);
		fifo_ring(&shared, end->q.qp_num, hbl_end_pi(end));
		hbl_cq_wait(&end->req, &cqe);
		CHECK(cqe.tag == ~i);
	}
	return NULL;
}

static void blocked_signals(void **state)
{
	pthread_t thread;
	struct end end;

	fifo_create(&shared, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	end_connect_self(&end);
	assert_int_equal(pthread_create(&thread, NULL, ring_blocked, &end), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(hbldv_destroy_usr_fifo(shared.usr), 0);
	hbl_end_destroy(&end);
}

/* --- doorbells in a handler of an asynchronous signal ------------------------------------------------------------- */

/* What the handler rings: a queue pair of its own, on the FIFO that the program uses, too. */
static struct {
	struct end end;
	uint32_t rung, wanted;
} in_handler;

static void ring_in_handler(int sig)
{
	int saved = errno;

	/* Its queue has room, and so has the FIFO, by the count that the program shares with it. */
	if (in_handler.rung < in_handler.wanted && fifo_free(&shared) > 32) {
		hbl_end_post(&in_handler.end,
			     &(struct wqe){ .opcode = NOP, .tag = in_handler.rung++ }, true);
		__atomic_fetch_add(&shared.pi, 1, __ATOMIC_RELAXED);
		*(volatile uint64_t *)((char *)shared.usr->regs_cpu_addr +
				       shared.usr->regs_offset) =
			(uint64_t)in_handler.end.q.qp_num << 32 | hbl_end_pi(&in_handler.end);
	}
	errno = saved;
}

static void take_from_handler(uint32_t *seen)
{
	struct cqe cqe;

	while (hbl_cq_poll(&in_handler.end.req, &cqe)) {
		assert_int_equal(cqe.tag, ~*seen);
		++*seen;
		__atomic_fetch_add(&in_handler.wanted, 1, __ATOMIC_RELAXED);
	}
}

/* Inside of the card in every way: a doorbell, a state change, a creation, a destruction. */
static void work_with_signals(uint32_t round, struct end *end, struct mem *mem)
{
	struct hbldv_query_qp_attr q;
	struct end other;
	struct cqe cqe;

	hbl_end_post(end,
		     &(struct wqe){ .opcode = LINEAR,
				    .size = 2048,
				    .tag = round,
				    .local = mem->va,
				    .remote = mem->va + 2048 },
		     true);
	while (fifo_free(&shared) <= 8)
		sched_yield();
	__atomic_fetch_add(&shared.pi, 1, __ATOMIC_RELAXED);
	*(volatile uint64_t *)((char *)shared.usr->regs_cpu_addr + shared.usr->regs_offset) =
		(uint64_t)end->q.qp_num << 32 | hbl_end_pi(end);
	hbl_cq_wait(&end->req, &cqe);
	assert_int_equal(cqe.tag, ~round);
	assert_int_equal(hbldv_query_qp(end->qp, &q), 0);
	if (round % 16)
		return;
	hbl_end_create(&other, &dev, &(struct end_attr){ .port = 1 });
	end_connect_self(&other);
	hbl_end_destroy(&other);
}

static void signals_ring(void **state)
{
	struct itimerval every = { { 0, 100 }, { 0, 100 } }, never = { 0 };
	struct sigaction action = { .sa_handler = ring_in_handler, .sa_flags = SA_RESTART };
	struct sigaction before;
	uint32_t seen = 0;
	struct mem mem;
	struct end end;

	fifo_create(&shared, &dev, 1, HBLDV_USR_FIFO_TYPE_DB);
	hbl_end_create(&end, &dev, &(struct end_attr){ .port = 1 });
	hbl_end_create(&in_handler.end, &dev, &(struct end_attr){ .port = 1 });
	end_connect_self(&end);
	end_connect_self(&in_handler.end);
	mem_device(&mem, &dev, 4096);
	in_handler.rung = 0;
	in_handler.wanted = 32;
	assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
	for (uint32_t i = 0; i < 5000 || seen < 200; i++) {
		work_with_signals(i, &end, &mem);
		take_from_handler(&seen);
	}
	assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
	assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
	/* Every ring of a handler was carried out, the last one before the FIFO is gone. */
	assert_int_equal(hbldv_destroy_usr_fifo(shared.usr), 0);
	take_from_handler(&seen);
	assert_int_equal(seen, in_handler.rung);
	assert_true(no_event(&dev));
	hbl_end_destroy(&end);
	hbl_end_destroy(&in_handler.end);
	mem_free(&mem);
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, open_one, close_one)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DEVICE(numbers),           WITH_DEVICE(hints),
		WITH_DEVICE(refusals),          WITH_DEVICE(kinds_of_stores),
		WITH_DEVICE(million_doorbells), WITH_DEVICE(halves_from_threads),
		WITH_DEVICE(halves_apart),      WITH_DEVICE(all_fifos),
		WITH_DEVICE(full_fifo),         WITH_DEVICE(uncounted_fifo),
		WITH_DEVICE(full_from_inside),  WITH_DEVICE(overrun_from_inside),
		WITH_DEVICE(destroy_drains),    WITH_DEVICE(destroyed_page_faults),
		WITH_DEVICE(blocked_signals),   WITH_DEVICE(signals_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
