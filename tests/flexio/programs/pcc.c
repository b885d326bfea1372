// SPDX-License-Identifier: MIT
/* Doorbells of congestion control queues: what they say is in the table, and only where the process has one. */
#include "check.h"

extern struct flexio_app *control;
extern flexio_func_t decide, decide_through, halves, many, seen, scribble, table;

static struct ibv_context *ctx;

struct entry {
	uint32_t rate;
	uint8_t next_act, rtt_req;
	uint16_t zero;
	uint64_t high, doorbells, spare;
};

/* The 32 bytes of a queue, as device code reads them. */
static struct entry look(struct flexio_process *process, uint64_t ccq)
{
	struct entry e;
	uint64_t word[4];

	for (uint64_t i = 0; i < 4; i++)
		OK(flexio_process_call(process, seen, &word[i], ccq, i));
	memcpy(&e, word, sizeof(e));
	return e;
}

static void doorbells(struct flexio_process *process)
{
	uint64_t err;
	struct entry e;

	OK(flexio_process_call(process, decide, &err, (uint64_t)7, (uint64_t)0x80001234,
			       (uint64_t)1, (uint64_t)2));
	CHECK(!err);
	e = look(process, 7);
	CHECK(e.rate == 0x80001234 && e.rtt_req == 1 && e.next_act == 2 && e.doorbells == 1);
	CHECK(!e.high && !e.zero && !e.spare);
	OK(flexio_process_call(process, decide, &err, (uint64_t)0xffff, (uint64_t)5, (uint64_t)0,
			       (uint64_t)1));
	e = look(process, 0xffff);
	CHECK(e.rate == 5 && !e.rtt_req && e.next_act == 1 && e.doorbells == 1);
	/* the upper half goes with the next lower one, once */
	OK(flexio_process_call(process, halves, &err, (uint64_t)0x1122334455667788,
			       (uint64_t)9 << 48 | 77));
	CHECK(!err);
	e = look(process, 9);
	CHECK(e.rate == 77 && e.high == 0x1122334455667788 && e.doorbells == 1);
	OK(flexio_process_call(process, many, &err, (uint64_t)9, (uint64_t)1000));
	e = look(process, 9);
	CHECK(e.rate == 999 && !e.high && e.doorbells == 1001);
	CHECK(look(process, 8).doorbells == 0);
}

/* An outbox rings them where it was created for it. */
static void outboxes(struct flexio_process *process)
{
	struct flexio_outbox_attr attr = { .en_pcc = 1 }, plain_attr = { 0 };
	struct flexio_outbox *cc, *plain;
	uint64_t err;

	OK(flexio_outbox_create(process, &attr, &cc));
	OK(flexio_outbox_create(process, &plain_attr, &plain));
	OK(flexio_process_call(process, decide_through, &err, (uint64_t)flexio_outbox_get_id(cc),
			       (uint64_t)20, (uint64_t)30));
	CHECK(!err && look(process, 20).rate == 30 && look(process, 20).high == 31);
	OK(flexio_process_call(process, decide_through, &err, (uint64_t)flexio_outbox_get_id(plain),
			       (uint64_t)20, (uint64_t)40));
	CHECK(err == (22ull << 32 | 22)); /* EINVAL */
	CHECK(look(process, 20).rate == 30 && look(process, 20).doorbells == 1);
	OK(flexio_outbox_destroy(cc));
	OK(flexio_outbox_destroy(plain));
	/* The number is free, and what it could do goes with it. */
	OK(flexio_outbox_create(process, &plain_attr, &plain));
	OK(flexio_process_call(process, decide_through, &err, (uint64_t)flexio_outbox_get_id(plain),
			       (uint64_t)20, (uint64_t)50));
	CHECK(err == (22ull << 32 | 22) && look(process, 20).doorbells == 1);
	OK(flexio_outbox_destroy(plain));
}

int main(void)
{
	struct flexio_process_attr attr = { .en_pcc = 1 };
	struct flexio_outbox_attr outbox_attr = { .en_pcc = 1 };
	struct flexio_outbox *outbox = NULL;
	struct flexio_process *with, *without;
	uint64_t value;

	ctx = open_device();
	OK(flexio_process_create(ctx, control, &attr, &with));
	OK(flexio_process_create(ctx, control, NULL, &without));
	OK(flexio_outbox_create(with, &outbox_attr, &outbox));
	CHECK(flexio_outbox_create(without, &outbox_attr, &outbox) == FLEXIO_STATUS_FAILED);
	OK(flexio_process_call(with, table, &value, (uint64_t)0));
	CHECK(value);
	OK(flexio_process_call(with, table, &value, (uint64_t)77)); /* of nobody */
	CHECK(!value);
	OK(flexio_process_call(without, table, &value, (uint64_t)0));
	CHECK(!value);
	doorbells(with);
	outboxes(with);
	OK(flexio_process_call(without, decide, &value, (uint64_t)7, (uint64_t)1, (uint64_t)1,
			       (uint64_t)0));
	CHECK(value == 22); /* EINVAL */
	OK(flexio_outbox_destroy(outbox));
	/* the table cannot be written */
	CHECK(flexio_process_call(with, scribble, &value) == FLEXIO_STATUS_FATAL_ERR);
	OK(flexio_process_destroy(with));
	OK(flexio_process_destroy(without));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
