// SPDX-License-Identifier: MIT
/*
 * Indirect keys whose layouts no driver writes: rights and bounds are those of the key and of each key below it, whatever
 * the layout says, and at every moment. A codec of the test gives layouts to the card.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "bare.h"
#include "base/rcu.h"
#include "card/memory/indirect.h"

enum { PIECES = 8, HERE = 1 << 12 };

static struct bare bare;
static struct vb_codec codec;
static struct vb_qp qp;
static struct vb_layout wanted;
static struct vb_piece wanted_pieces[PIECES];
static void (*in_layout)(void); /* the key's lock is held */

static int give_layout(const struct vb_wr *wr, const void *list, struct vb_layout *layout)
{
	(void)wr;
	(void)list;
	if (in_layout)
		in_layout();
	if (wanted.count > layout->max)
		return -EINVAL;
	memcpy(layout->piece, wanted_pieces, wanted.count * sizeof(wanted_pieces[0]));
	layout->count = wanted.count;
	layout->repeat = wanted.repeat;
	return 0;
}

static int open_bare(void **state)
{
	int ret = bare_open(&bare, IBV_QPT_RC);

	(void)state;
	if (ret)
		return ret;
	codec.layout = give_layout;
	qp.card = vb_card_program();
	qp.codec = &codec;
	qp.init.pd = bare.pd;
	return 0;
}

static int close_bare(void **state)
{
	(void)state;
	bare_close(&bare);
	return 0;
}

static struct vb_mr *make_key(void)
{
	const struct vb_mkey_attr attr = { .flags = VB_MKEY_UPDATE_TAG, .max_entries = PIECES };
	struct vb_mr *key;

	assert_int_equal(vb_mkey_create(bare.pd, &attr, &key), 0);
	return key;
}

static void piece(uint32_t i, uint32_t key, uint64_t addr, uint32_t len, uint64_t stride)
{
	wanted_pieces[i] =
		(struct vb_piece){ .addr = addr, .key = key, .len = len, .stride = stride };
	wanted.count = i + 1;
	wanted.repeat = 1;
}

static enum ibv_wc_status configure(const struct vb_mr *key, uint8_t tag, uint64_t length)
{
	const struct vb_wr wr = {
		.op = VB_WR_UMR,
		.imm = vb_mr_key(key),
		.umr = { .set = VB_UMR_LAYOUT | VB_UMR_START | VB_UMR_LENGTH | VB_UMR_TAG,
			 .tag = tag,
			 .access_mask = ~0u,
			 .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
			 .start = 0,
			 .length = length },
	};
	enum ibv_wc_status status;

	vb_read_lock();
	status = vb_indirect_configure(&qp, &wr);
	vb_read_unlock();
	return status;
}

static int move(uint32_t key, uint64_t addr, void *buf, size_t len, bool write)
{
	uint32_t pdn = vb_pd_number(bare.pd);
	int ret;

	vb_read_lock();
	ret = write ? vb_indirect_write(vb_card_program(), key, pdn, addr, buf, len,
					IBV_ACCESS_LOCAL_WRITE)
		    : vb_indirect_read(vb_card_program(), key, pdn, addr, buf, len, 0);
	vb_read_unlock();
	return ret;
}

/* --- a key that is given away while somebody waits for its lock --------------------------------- */

static uint32_t old_key;
static _Atomic int begun;
static int result;

static void *use_old(void *arg)
{
	char byte;

	(void)arg;
	atomic_store(&begun, 1);
	result = move(old_key, 0, &byte, 1, false);
	return NULL;
}

static pthread_t user;

static void start_user(void)
{
	const struct timespec while_it_waits = { .tv_nsec = 50000000 };

	in_layout = NULL;
	assert_int_equal(pthread_create(&user, NULL, use_old, NULL), 0);
	while (!atomic_load(&begun))
		;
	nanosleep(&while_it_waits, NULL);
}

/* Who has the old key gets nothing of the new one's memory. */
static void given_away(void **state)
{
	struct vb_mr *key = make_key();
	uint8_t tag = (uint8_t)vb_mr_key(key);

	(void)state;
	piece(0, vb_mr_key(bare.mr), (uintptr_t)bare.memory, 16, 0);
	assert_int_equal(configure(key, tag, 16), IBV_WC_SUCCESS);
	old_key = vb_mr_key(key);
	assert_int_equal(move(old_key, 0, &(char){ 0 }, 1, false), 0);
	in_layout = start_user;
	assert_int_equal(configure(key, (uint8_t)(tag + 1), 16), IBV_WC_SUCCESS);
	assert_int_equal(pthread_join(user, NULL), 0);
	assert_int_equal(result, -EACCES);
	assert_int_equal(vb_mr_dereg(key), 0);
}

/* --- layouts ------------------------------------------------------------------------------------ */

/* Keys of keys, of themselves and of each other, lead nowhere. */
static void cycles(void **state)
{
	struct vb_mr *a = make_key(), *b = make_key();
	char buf[16];

	(void)state;
	piece(0, vb_mr_key(b), 0, 16, 0);
	assert_int_equal(configure(a, (uint8_t)vb_mr_key(a), 16), IBV_WC_SUCCESS);
	piece(0, vb_mr_key(a), 0, 16, 0);
	assert_int_equal(configure(b, (uint8_t)vb_mr_key(b), 16), IBV_WC_SUCCESS);
	assert_int_equal(move(vb_mr_key(a), 0, buf, 16, false), -EACCES);
	piece(0, vb_mr_key(a), 0, 16, 0);
	assert_int_equal(configure(a, (uint8_t)vb_mr_key(a), 16), IBV_WC_SUCCESS);
	assert_int_equal(move(vb_mr_key(a), 0, buf, 16, true), -EACCES);
	assert_int_equal(vb_mr_dereg(a), 0);
	assert_int_equal(vb_mr_dereg(b), 0);
}

/* Sizes that are nothing, more than 64 bits, or wrap around the addresses. */
static void sizes(void **state)
{
	uint32_t below = vb_mr_key(bare.mr);
	uint64_t memory = (uintptr_t)bare.memory;
	struct vb_mr *key = make_key();
	uint32_t k = vb_mr_key(key);
	uint8_t tag = (uint8_t)k;
	char buf[32];

	(void)state;
	memset(bare.memory, 7, HERE);
	piece(0, below, memory, 0, 0); /* no bytes */
	assert_int_equal(configure(key, tag, 16), IBV_WC_MW_BIND_ERR);
	piece(0, below, memory, 16, 0);
	wanted.repeat = 0;
	assert_int_equal(configure(key, tag, 16), IBV_WC_MW_BIND_ERR);
	/* 8 pieces of 4 GiB, 4 G times, are just 2^67 bytes */
	for (uint32_t i = 0; i < PIECES; i++)
		piece(i, below, memory, UINT32_MAX, 0);
	wanted.repeat = UINT32_MAX;
	assert_int_equal(configure(key, tag, UINT64_MAX), IBV_WC_MW_BIND_ERR);
	/* one is less than 2^64: all of it can be named, what is below is checked */
	piece(0, below, memory, UINT32_MAX, 0);
	wanted.repeat = UINT32_MAX;
	assert_int_equal(configure(key, tag, UINT64_MAX), IBV_WC_SUCCESS);
	assert_int_equal(move(k, 0, buf, 16, false), 0);
	assert_int_equal(move(k, UINT64_MAX, buf, 1, false), -EACCES);
	assert_int_equal(move(k, UINT64_MAX - 15, buf, 32, false), -EACCES);
	assert_int_equal(move(k, BARE_MEMORY - 8, buf, 16, true), -EACCES);
	/* empty pieces between others; a stride that is nothing, and one that wraps */
	piece(0, below, memory, 0, 0);
	piece(1, below, memory + 1, 1, 0);
	piece(2, below, memory + 2, 0, 0);
	piece(3, below, memory + 3, 1, UINT64_MAX); /* backwards */
	piece(4, below, memory + 4, 0, 0);
	wanted.repeat = 3;
	assert_int_equal(configure(key, tag, 6), IBV_WC_SUCCESS);
	for (uint8_t i = 0; i < 8; i++)
		bare.memory[i] = i;
	assert_int_equal(move(k, 0, buf, 6, false), 0);
	assert_memory_equal(buf, "\1\3\1\2\1\1", 6);
	assert_int_equal(move(k, 0, buf, 7, false), -EACCES);
	wanted.repeat = 6; /* the piece passes the first byte of the memory */
	assert_int_equal(configure(key, tag, 12), IBV_WC_SUCCESS);
	assert_int_equal(move(k, 10, buf, 2, false), -EACCES);
	/* a length that is more than the layout */
	piece(0, below, memory, 16, 0);
	assert_int_equal(configure(key, tag, UINT64_MAX), IBV_WC_SUCCESS);
	assert_int_equal(move(k, 15, buf, 2, false), -EACCES);
	assert_int_equal(vb_mr_dereg(key), 0);
}

/* What the key below loses, is lost at once; of a key that is gone nothing is left. */
static void below(void **state)
{
	struct vb_mr *mr, *again, *key = make_key();
	uint32_t k = vb_mr_key(key);
	struct vb_pd *other;
	char buf[16] = { 0 };

	(void)state;
	assert_int_equal(vb_pd_alloc(bare.dev, &other), 0);
	assert_int_equal(vb_mr_reg(bare.pd, bare.memory, 64, 0, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
	piece(0, vb_mr_key(mr), 0, 16, 0);
	assert_int_equal(configure(key, (uint8_t)k, 16), IBV_WC_SUCCESS);
	assert_int_equal(move(k, 0, buf, 16, true), 0);
	assert_int_equal(vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0, 0), 0);
	assert_int_equal(move(k, 0, buf, 16, true), -EACCES);
	assert_int_equal(move(k, 0, buf, 16, false), 0);
	assert_int_equal(
		vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bare.memory, 8, 0, 0), 0);
	assert_int_equal(move(k, 0, buf, 16, false), -EACCES);
	assert_int_equal(vb_mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0, 0), 0);
	assert_int_equal(move(k, 0, buf, 8, false), -EACCES);
	assert_int_equal(vb_mr_dereg(mr), 0);
	assert_int_equal(vb_mr_reg(bare.pd, bare.memory, 64, 0, IBV_ACCESS_LOCAL_WRITE, &again), 0);
	assert_int_equal(move(k, 0, buf, 8, false), -EACCES);
	assert_int_equal(vb_mr_dereg(again), 0);
	assert_int_equal(vb_mr_dereg(key), 0);
	assert_int_equal(move(k, 0, buf, 8, false), -EACCES);
	assert_int_equal(vb_pd_dealloc(other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(given_away),
		cmocka_unit_test(cycles),
		cmocka_unit_test(sizes),
		cmocka_unit_test(below),
	};

	return cmocka_run_group_tests(tests, open_bare, close_bare);
}
