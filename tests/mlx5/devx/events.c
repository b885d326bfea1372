// SPDX-License-Identifier: MIT
/*
 * Command channels and event channels: order, cookies, what is lost and what is not, and which
 * events an object has. Events of real queues are told by who makes them; here a test tells them.
 */
#include "commands.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/devx.h"
#include "card/fault/inject.h"

enum { COMPLETION = 0x0, CQ_ERROR = 0x4, WQ_CATAS = 0x5, PORT_CHANGE = 0x9, ACCESS_ERROR = 0x11 };
enum { HEAD = 8, EVENT = HEAD + 64 };

static struct command c;

static bool readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

static void nonblocking(int fd)
{
	assert_ok(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
}

/* An object that another library made. */
static void lend(struct mlx5dv_devx_obj *obj, enum vb_devx_kind kind, uint32_t number)
{
	*obj = (struct mlx5dv_devx_obj){ .mark = VB_DEVX_MARK,
					 .kind = kind,
					 .number = number,
					 .lent = true,
					 .context = kit.ctx };
}

static struct mlx5dv_devx_event_channel *channel(bool omit)
{
	struct mlx5dv_devx_event_channel *ch = mlx5dv_devx_create_event_channel(
		kit.ctx, omit ? MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA : 0);

	assert_non_null(ch);
	nonblocking(ch->fd);
	return ch;
}

static int subscribe(struct mlx5dv_devx_event_channel *ch, struct mlx5dv_devx_obj *obj,
		     uint16_t event, uint64_t cookie)
{
	return mlx5dv_devx_subscribe_devx_event(ch, obj, sizeof(event), &event, cookie);
}

/* The next event: its cookie, and its entry of the event queue in c.out + HEAD. */
static uint64_t next_event(struct mlx5dv_devx_event_channel *ch, size_t bytes)
{
	uint64_t cookie;

	assert_true(readable(ch->fd));
	assert_int_equal(mlx5dv_devx_get_event(ch, (void *)c.out, sizeof(c.out)), bytes);
	memcpy(&cookie, c.out, sizeof(cookie));
	return cookie;
}

static void assert_empty(struct mlx5dv_devx_event_channel *ch)
{
	assert_false(readable(ch->fd));
	errno = 0;
	assert_int_equal(mlx5dv_devx_get_event(ch, (void *)c.out, sizeof(c.out)), -1);
	assert_int_equal(errno, EAGAIN);
}

/* --- commands --------------------------------------------------------------------------------- */

static void answers(void **state)
{
	struct mlx5dv_devx_cmd_comp *comp = mlx5dv_devx_create_cmd_comp(kit.ctx);
	struct mlx5dv_devx_async_cmd_hdr *hdr = (void *)c.out;
	struct mlx5dv_devx_obj *counters;
	uint32_t first;

	(void)state;
	assert_non_null(comp);
	nonblocking(comp->fd);
	counters = make_counters(0, &first);
	assert_false(readable(comp->fd));
	assert_int_equal(mlx5dv_devx_get_async_cmd_comp(comp, hdr, 64), EAGAIN);
	command(&c, 0x93b, 32, 32);
	put_bits(c.in, 0xe0, 32, first);
	for (uint64_t id = 100; id < 103; id++)
		assert_ok(mlx5dv_devx_obj_query_async(counters, c.in, 32, 32, id, comp));
	put_bits(c.in, 0xe0, 32, first + 1); /* refused by the firmware: in the answer */
	assert_ok(mlx5dv_devx_obj_query_async(counters, c.in, 32, 32, 103, comp));
	put_bits(c.in, 0, 16, 0x902); /* refused by the kernel: at once */
	assert_int_equal(mlx5dv_devx_obj_query_async(counters, c.in, 32, 32, 104, comp), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_query_async(counters, c.in, 32, 32, 104, NULL), EINVAL);
	assert_int_equal(mlx5dv_devx_obj_query_async(NULL, c.in, 32, 32, 104, comp), EINVAL);
	/* in order; one that finds no room stays */
	for (uint64_t id = 100; id < 104; id++) {
		assert_true(readable(comp->fd));
		assert_int_equal(mlx5dv_devx_get_async_cmd_comp(comp, hdr, 8 + 31), ENOSPC);
		assert_ok(mlx5dv_devx_get_async_cmd_comp(comp, hdr, 8 + 32));
		assert_int_equal(hdr->wr_id, id);
		assert_int_equal(hdr->out_data[0], id == 103 ? BAD_RES : OK);
	}
	assert_false(readable(comp->fd));
	assert_int_equal(mlx5dv_devx_get_async_cmd_comp(NULL, hdr, 40), EINVAL);
	destroy(counters);
	mlx5dv_devx_destroy_cmd_comp(comp);
	mlx5dv_devx_destroy_cmd_comp(NULL);
}

/* A megabyte of answers that nobody took: the next call waits for who takes one. */
static void full(void **state)
{
	struct mlx5dv_devx_cmd_comp *comp = mlx5dv_devx_create_cmd_comp(kit.ctx);
	struct mlx5dv_devx_obj *counters;
	uint32_t first;
	int n = 0;
	static uint8_t room[70000];

	(void)state;
	assert_non_null(comp);
	counters = make_counters(0, &first);
	command(&c, 0x93b, 32, 32);
	put_bits(c.in, 0xe0, 32, first);
	while (!mlx5dv_devx_obj_query_async(counters, c.in, 32, 65535, (uint64_t)n, comp))
		n++;
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(n, (1 << 20) / (65535 + 8));
	assert_ok(mlx5dv_devx_get_async_cmd_comp(comp, (void *)room, sizeof(room)));
	assert_ok(mlx5dv_devx_obj_query_async(counters, c.in, 32, 65535, 0, comp));
	destroy(counters);
	mlx5dv_devx_destroy_cmd_comp(comp); /* with answers in it */
}

struct later {
	uint32_t first;
	struct mlx5dv_devx_obj *counters;
	struct mlx5dv_devx_cmd_comp *comp;
};

static void *answer_later(void *arg)
{
	const struct later *later = arg;
	static struct command in;

	usleep(20000);
	command(&in, 0x93b, 32, 32);
	put_bits(in.in, 0xe0, 32, later->first);
	assert_ok(mlx5dv_devx_obj_query_async(later->counters, in.in, 32, 32, 77, later->comp));
	return NULL;
}

/* A channel that blocks waits for an answer of another thread. */
static void waiting(void **state)
{
	struct later arg = { .comp = mlx5dv_devx_create_cmd_comp(kit.ctx) };
	struct mlx5dv_devx_async_cmd_hdr *hdr = (void *)c.out;
	pthread_t thread;

	(void)state;
	arg.counters = make_counters(0, &arg.first);
	assert_ok(pthread_create(&thread, NULL, answer_later, &arg));
	assert_ok(mlx5dv_devx_get_async_cmd_comp(arg.comp, hdr, 40));
	assert_int_equal(hdr->wr_id, 77);
	assert_ok(pthread_join(thread, NULL));
	destroy(arg.counters);
	mlx5dv_devx_destroy_cmd_comp(arg.comp);
}

/* --- events ----------------------------------------------------------------------------------- */

static void events_of_cqs(void **state)
{
	struct mlx5dv_devx_event_channel *ch = channel(false);
	uint16_t both[] = { COMPLETION, CQ_ERROR };
	static struct mlx5dv_devx_obj cq;

	(void)state;
	lend(&cq, VB_DEVX_CQ, 0x123);
	assert_ok(mlx5dv_devx_subscribe_devx_event(ch, &cq, sizeof(both), both, 0xabcdef0123));
	assert_empty(ch);
	vb_listeners_complete(&cq.listeners, cq.number);
	vb_listeners_tell(&cq.listeners, IBV_EVENT_CQ_ERR, cq.number);
	vb_listeners_complete(&cq.listeners, cq.number);
	assert_int_equal(mlx5dv_devx_get_event(ch, (void *)c.out, EVENT - 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(next_event(ch, EVENT), 0xabcdef0123);
	assert_int_equal(c.out[HEAD + 1], COMPLETION);
	assert_int_equal(get_bits(c.out + HEAD, 56 * 8, 32), 0x123);
	assert_int_equal(next_event(ch, EVENT), 0xabcdef0123);
	assert_int_equal(c.out[HEAD + 1], CQ_ERROR);
	assert_int_equal(get_bits(c.out + HEAD, 32 * 8, 32), 0x123);
	assert_int_equal(c.out[HEAD + 43], 1); /* overrun */
	next_event(ch, EVENT);
	assert_empty(ch);
	/* the object ends first */
	vb_listeners_complete(&cq.listeners, cq.number);
	vb_listeners_end(&cq.listeners);
	vb_listeners_complete(&cq.listeners, cq.number);
	next_event(ch, EVENT);
	assert_empty(ch);
	mlx5dv_devx_destroy_event_channel(ch);
	mlx5dv_devx_destroy_event_channel(NULL);
}

/* A doorbell in a signal handler may be what makes the event, and malloc() what was interrupted. */
static void nothing_allocated(void **state)
{
	struct mlx5dv_devx_event_channel *ch = channel(false);
	static struct mlx5dv_devx_obj cq;
	size_t before;

	(void)state;
	lend(&cq, VB_DEVX_CQ, 3);
	assert_ok(subscribe(ch, &cq, COMPLETION, 1));
	before = mallinfo2().uordblks;
	for (int i = 0; i < 1000; i++)
		vb_listeners_complete(&cq.listeners, cq.number);
	assert_int_equal(mallinfo2().uordblks, before);
	for (int i = 0; i < 1000; i++)
		next_event(ch, EVENT);
	assert_empty(ch);
	/* as many as there is room for, and then the mark of what was lost; twice, from room that was used */
	for (int turn = 0; turn < 2; turn++) {
		size_t n = 0;

		for (size_t i = 0; i < (8 << 20) / EVENT + 10; i++)
			vb_listeners_complete(&cq.listeners, cq.number);
		assert_int_equal(mlx5dv_devx_get_event(ch, (void *)c.out, sizeof(c.out)), -1);
		assert_int_equal(errno, EOVERFLOW);
		while (mlx5dv_devx_get_event(ch, (void *)c.out, sizeof(c.out)) == EVENT)
			n++;
		assert_int_equal(n, (8 << 20) / EVENT);
		assert_empty(ch);
	}
	mlx5dv_devx_destroy_event_channel(ch);
}

/* Without data, an event that waits is not queued twice. */
static void cookies_only(void **state)
{
	struct mlx5dv_devx_event_channel *ch = channel(true);
	static struct mlx5dv_devx_obj cq, qp;

	(void)state;
	lend(&cq, VB_DEVX_CQ, 1);
	lend(&qp, VB_DEVX_QP, 2);
	assert_ok(subscribe(ch, &cq, COMPLETION, 11));
	assert_ok(subscribe(ch, &qp, WQ_CATAS, 22));
	for (int i = 0; i < 5; i++)
		vb_listeners_complete(&cq.listeners, 1);
	vb_listeners_tell(&qp.listeners, IBV_EVENT_QP_FATAL, 2);
	vb_listeners_tell(&qp.listeners, IBV_EVENT_QP_ACCESS_ERR, 2); /* nobody asked */
	vb_listeners_complete(&cq.listeners, 1);
	assert_int_equal(next_event(ch, HEAD), 11);
	vb_listeners_complete(&cq.listeners, 1);
	assert_int_equal(next_event(ch, HEAD), 22);
	assert_int_equal(next_event(ch, HEAD), 11);
	assert_empty(ch);
	vb_listeners_complete(&cq.listeners, 1);
	mlx5dv_devx_destroy_event_channel(ch); /* with an event in it */
	vb_listeners_complete(&cq.listeners, 1);
}

static void events_of_queues(void **state)
{
	static const struct {
		enum ibv_event_type verbs;
		uint8_t type;
	} events[] = { { IBV_EVENT_QP_FATAL, 0x5 },       { IBV_EVENT_QP_REQ_ERR, 0x10 },
		       { IBV_EVENT_QP_ACCESS_ERR, 0x11 }, { IBV_EVENT_COMM_EST, 0x2 },
		       { IBV_EVENT_SQ_DRAINED, 0x3 },     { IBV_EVENT_PATH_MIG, 0x1 },
		       { IBV_EVENT_PATH_MIG_ERR, 0x7 },   { IBV_EVENT_QP_LAST_WQE_REACHED, 0x13 } };
	struct mlx5dv_devx_event_channel *ch = channel(false);
	static struct mlx5dv_devx_obj qp;

	(void)state;
	lend(&qp, VB_DEVX_QP, 0x777);
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		assert_ok(subscribe(ch, &qp, events[i].type, i));
		vb_listeners_tell(&qp.listeners, events[i].verbs, qp.number);
		assert_int_equal(next_event(ch, EVENT), i);
		assert_int_equal(c.out[HEAD + 1], events[i].type);
		assert_int_equal(get_bits(c.out + HEAD, 56 * 8, 32), 0x777);
	}
	assert_empty(ch);
	mlx5dv_devx_destroy_event_channel(ch);
}

static void inject(const char *words)
{
	char line[128], why[256];
	struct vb_inject fault;

	snprintf(line, sizeof(line), "%s %s", kit.ctx->device->name, words);
	assert_ok(vb_inject_parse(line, &fault, why, sizeof(why)));
	assert_ok(vb_inject_apply(vb_card_program(), &fault, false, why, sizeof(why)));
}

static void port(void **state)
{
	struct mlx5dv_devx_event_channel *ch = channel(false);
	uint64_t count;
	int fd = eventfd(0, EFD_NONBLOCK);

	(void)state;
	assert_ok(subscribe(ch, NULL, PORT_CHANGE, 5));
	assert_ok(mlx5dv_devx_subscribe_devx_event_fd(ch, fd, NULL, PORT_CHANGE));
	inject("port 1 down");
	inject("port 1 up");
	assert_int_equal(next_event(ch, EVENT), 5);
	assert_int_equal(c.out[HEAD + 1], PORT_CHANGE);
	assert_int_equal(c.out[HEAD + 3], 1); /* down */
	assert_int_equal(c.out[HEAD + 40], 1 << 4);
	assert_int_equal(next_event(ch, EVENT), 5);
	assert_int_equal(c.out[HEAD + 3], 4); /* active */
	assert_empty(ch);
	assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 2);
	assert_ok(close(fd)); /* the subscription has its own */
	inject("port 1 down");
	inject("port 1 up");
	next_event(ch, EVENT);
	mlx5dv_devx_destroy_event_channel(ch);
}

/* An eventfd that can count no further: whoever makes the event does not wait for its reader. */
static void limit(void **state)
{
	struct mlx5dv_devx_event_channel *ch = channel(false);
	static struct mlx5dv_devx_obj cq;
	uint64_t count = UINT64_MAX - 1;
	int fd = eventfd(0, 0), next;

	(void)state;
	assert_int_equal(write(fd, &count, sizeof(count)), sizeof(count));
	lend(&cq, VB_DEVX_CQ, 1);
	assert_ok(mlx5dv_devx_subscribe_devx_event_fd(ch, fd, &cq, COMPLETION));
	vb_listeners_complete(&cq.listeners, 1);
	assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
	assert_true(count == UINT64_MAX - 1);
	vb_listeners_complete(&cq.listeners, 1);
	assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1);
	/* the subscription's own descriptor is not for programs that this one executes */
	next = dup(fd);
	for (int i = 0; i < next; i++) {
		char path[32], name[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		if (i != fd && readlink(path, name, sizeof(name) - 1) > 0 &&
		    !strcmp(name, "anon_inode:[eventfd]"))
			assert_int_equal(fcntl(i, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	}
	close(next);
	close(fd);
	mlx5dv_devx_destroy_event_channel(ch);
}

static void refusals(void **state)
{
	struct mlx5dv_devx_event_channel *ch = channel(false);
	static struct mlx5dv_devx_obj cq, thread;
	struct ibv_context *other = ibv_open_device(kit.ctx->device);
	uint16_t events[2] = { CQ_ERROR, ACCESS_ERROR };
	uint32_t eqn, next;
	int fds[2];

	(void)state;
	lend(&cq, VB_DEVX_CQ, 1);
	lend(&thread, VB_DEVX_THREAD, 1);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, &cq, 4, events, 0), EINVAL);
	assert_null(cq.listeners.first); /* not the first of the two either */
	assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, &cq, 3, events, 0), EINVAL);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, &cq, 0, events, 0), EINVAL);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event(ch, &cq, 2, NULL, 0), EINVAL);
	assert_int_equal(subscribe(NULL, &cq, CQ_ERROR, 0), EINVAL);
	assert_int_equal(subscribe(ch, NULL, CQ_ERROR, 0), EINVAL);
	assert_int_equal(subscribe(ch, &cq, PORT_CHANGE, 0), EINVAL);
	assert_int_equal(subscribe(ch, &cq, 0x104, 0), EINVAL);
	assert_int_equal(subscribe(ch, &thread, COMPLETION, 0), EINVAL);
	cq.context = other;
	assert_int_equal(subscribe(ch, &cq, CQ_ERROR, 0), EINVAL);
	cq.context = kit.ctx;
	assert_ok(pipe(fds));
	assert_int_equal(mlx5dv_devx_subscribe_devx_event_fd(ch, fds[1], &cq, CQ_ERROR), EINVAL);
	assert_int_equal(mlx5dv_devx_subscribe_devx_event_fd(ch, -1, &cq, CQ_ERROR), EBADF);
	close(fds[0]);
	close(fds[1]);
	assert_null_errno(mlx5dv_devx_create_event_channel(kit.ctx, 2), EINVAL);
	assert_null_errno(mlx5dv_devx_create_event_channel(NULL, 0), EINVAL);
	assert_null_errno(mlx5dv_devx_create_cmd_comp(NULL), EINVAL);
	assert_int_equal(mlx5dv_devx_get_event(NULL, (void *)c.out, 72), -1);
	mlx5dv_devx_destroy_event_channel(ch);
	assert_ok(ibv_close_device(other));

	assert_ok(mlx5dv_devx_query_eqn(kit.ctx, 0, &eqn));
	assert_in_range(eqn, 192, 255);
	if (kit.ctx->num_comp_vectors > 1) {
		assert_ok(mlx5dv_devx_query_eqn(kit.ctx, 1, &next));
		assert_int_equal(next, eqn + 1);
	}
	assert_int_equal(mlx5dv_devx_query_eqn(kit.ctx, (uint32_t)kit.ctx->num_comp_vectors, &eqn),
			 EINVAL);
	assert_int_equal(mlx5dv_devx_query_eqn(kit.ctx, 0, NULL), EINVAL);
	assert_int_equal(mlx5dv_devx_query_eqn(NULL, 0, &eqn), EINVAL);
}

/* A channel outlives its context; its subscriptions do not. */
static void closed(void **state)
{
	struct ibv_context *ctx = ibv_open_device(kit.ctx->device);
	struct mlx5dv_devx_event_channel *ch = mlx5dv_devx_create_event_channel(ctx, 0);

	(void)state;
	assert_non_null(ch);
	assert_ok(subscribe(ch, NULL, PORT_CHANGE, 5));
	assert_ok(ibv_close_device(ctx));
	inject("port 1 down");
	inject("port 1 up");
	nonblocking(ch->fd);
	assert_empty(ch);
	mlx5dv_devx_destroy_event_channel(ch);
}

static struct mlx5dv_devx_obj shared;
static _Atomic bool stop;

static void *tell(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop))
		vb_listeners_complete(&shared.listeners, 1);
	return NULL;
}

/* Channels come and go while events are told. */
static void threads(void **state)
{
	pthread_t thread;

	(void)state;
	lend(&shared, VB_DEVX_CQ, 1);
	assert_ok(pthread_create(&thread, NULL, tell, NULL));
	for (int i = 0; i < 200; i++) {
		struct mlx5dv_devx_event_channel *ch = channel(i & 1);

		assert_ok(subscribe(ch, &shared, COMPLETION, 1));
		if (i % 3)
			while (mlx5dv_devx_get_event(ch, (void *)c.out, sizeof(c.out)) < 0)
				;
		if (i % 5 == 0)
			vb_listeners_end(&shared.listeners);
		mlx5dv_devx_destroy_event_channel(ch);
	}
	atomic_store(&stop, true);
	assert_ok(pthread_join(thread, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers),
		cmocka_unit_test(full),
		cmocka_unit_test(waiting),
		cmocka_unit_test(events_of_cqs),
		cmocka_unit_test(cookies_only),
		cmocka_unit_test(events_of_queues),
		cmocka_unit_test(port),
		cmocka_unit_test(refusals),
		cmocka_unit_test(closed),
		cmocka_unit_test(limit),
		cmocka_unit_test(nothing_allocated),
		cmocka_unit_test(threads),
	};

	return cmocka_run_group_tests(tests, kit_open, kit_close);
}
