// SPDX-License-Identifier: MIT
/* Windows onto host memory, from device code in both argument forms. */
#include "check.h"

extern struct flexio_app *now, *then;
extern flexio_func_t now_sum, now_reverse, now_refusals, both;
extern flexio_func_t then_sum, then_reverse, then_refusals;

enum { WORDS = 1000 };

struct form {
	struct flexio_app *app;
	flexio_func_t *sum, *reverse, *refusals;
};

static void check(struct ibv_context *ctx, const struct form *form)
{
	uint64_t source[WORDS], target[WORDS], result = 1;
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *from, *to;
	struct flexio_process *process;
	struct flexio_window *window;
	uint16_t id;

	for (uint64_t i = 0; i < WORDS; i++)
		source[i] = i;
	memset(target, 0, sizeof(target));
	from = ibv_reg_mr(pd, source, sizeof(source), IBV_ACCESS_LOCAL_WRITE);
	to = ibv_reg_mr(pd, target, sizeof(target), IBV_ACCESS_LOCAL_WRITE);
	CHECK(from && to);
	OK(flexio_process_create(ctx, form->app, NULL, &process));
	OK(flexio_window_create(process, pd, &window));
	id = (uint16_t)flexio_window_get_id(window);

	OK(flexio_process_call(process, form->sum, &result, id, from->lkey, (uint64_t)source,
			       WORDS));
	CHECK(result == WORDS * (WORDS - 1) / 2);
	for (uint64_t i = 0; i < WORDS; i++)
		CHECK(source[i] == 2 * i);
	OK(flexio_process_call(process, form->reverse, &result, id, from->lkey, (uint64_t)source,
			       to->lkey, (uint64_t)(target + 10), 64));
	CHECK(result == 0);
	for (uint64_t i = 0; i < 64; i++)
		CHECK(target[10 + i] == source[63 - i]);
	CHECK(target[9] == 0 && target[74] == 0);
	OK(flexio_process_call(process, form->refusals, &result, id, from->lkey, (uint64_t)source,
			       (uint32_t)sizeof(source)));
	CHECK(result == 0x1ff);
	if (form->app == now) {
		OK(flexio_process_call(process, both, &result, id, from->lkey, (uint64_t)source,
				       to->lkey, (uint64_t)target, WORDS));
		CHECK(result == 0 && !memcmp(source, target, sizeof(source)));
	}
	OK(flexio_window_destroy(window));
	OK(flexio_process_destroy(process));
	CHECK(!ibv_dereg_mr(from) && !ibv_dereg_mr(to) && !ibv_dealloc_pd(pd));
}

int main(void)
{
	struct ibv_context *ctx = open_device();

	check(ctx, &(struct form){ now, now_sum, now_reverse, now_refusals });
	check(ctx, &(struct form){ then, then_sum, then_reverse, then_refusals });
	CHECK(!ibv_close_device(ctx));
	return 0;
}
