// SPDX-License-Identifier: MIT
/* Senders that flood many queue pairs, a handler that receives, and one that never ends. */
#include "queue_dev.h"
#include "queue_flood.h"

static void drain(struct flood *f, uint64_t until)
{
	struct flexio_dev_cqe64 *cqe;

	while (f->completions < until && !f->stop) {
		cqe = cq_peek(&f->cq);
		if (!cqe)
			continue;
		f->errors += flexio_dev_cqe_get_opcode(cqe) != 0;
		cq_consume(&f->cq);
		f->completions++;
	}
}

/* One message to each queue pair per round; all of a batch of rounds are out at a time. */
__dpa_rpc__ uint64_t run_flood(struct flood *f)
{
	struct work_qp *qp = (struct work_qp *)f->qps;
	struct work_op op = { .type = FLEXIO_CTRL_SEG_SEND_RC,
			      .ce = 2,
			      .lkey = f->lkey,
			      .laddr = f->buffer,
			      .len = 8 };

	for (uint32_t round = 0; round < f->rounds && !f->stop; round++) {
		for (uint32_t i = 0; i < f->number; i++) {
			post_send(&qp[i], &op);
			RING(qp[i].pi, qp[i].number);
			f->sent++;
		}
		if (round % f->batch == f->batch - 1)
			drain(f, f->sent);
	}
	drain(f, f->sent);
	return f->completions;
}

__dpa_rpc__ uint64_t fill_recv(struct work_handler *w)
{
	for (uint32_t i = 0; i < 1u << w->qp.log_rq; i++)
		post_recv(&w->qp, w->buffers + (uint64_t)i * w->size, w->size, w->lkey);
	return 0;
}

__dpa_rpc__ uint64_t wake(uint32_t activation_id)
{
	flexio_dev_event_handler_activate(activation_id);
	return 0;
}

__dpa_global__ void receive(uint64_t arg)
{
	do_receive((struct work_handler *)arg);
}

/* Never gives its EU up by itself. */
__dpa_global__ void spin(uint64_t arg)
{
	volatile uint64_t *word = (volatile uint64_t *)arg;

	word[0] = 1;
	while (!word[1])
		;
	flexio_dev_thread_finish();
}
