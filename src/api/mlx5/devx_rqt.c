// SPDX-License-Identifier: MIT
/* Tables of receive queues by command (DEVX). A table keeps its queues from being destroyed. */
#include "devx_rqt.h"

#include "base/fork.h"
#include "card/queue/qp.h"
#include "devx_queue.h"

enum { RQT_CTX = 0x100, RQT_LIST = 0x780, MAX_SIZE = 0xb0, SIZE = 0xd0, LIST_TYPE = 0xa5 };

pthread_mutex_t devx_rqt_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Another thread of the parent may have had it: the child has no such thread. */
static void rqt_forked(void)
{
	pthread_mutex_init(&devx_rqt_mutex, NULL);
}

VB_STAGE(RQTS, .child = rqt_forked);

int devx_rqt_attach(struct devx_rqt *rqt, struct vb_tir *tir)
{
	struct devx_rqt_user *user = malloc(sizeof(*user));

	if (!user)
		return vb_refuse_memory("the TIR");
	*user = (struct devx_rqt_user){ tir, rqt->users };
	rqt->users = user;
	return 0;
}

void devx_rqt_detach(struct devx_rqt *rqt, const struct vb_tir *tir)
{
	struct devx_rqt_user **at = &rqt->users, *user;

	while (*at && (*at)->tir != tir)
		at = &(*at)->next;
	user = *at;
	if (!user) /* in a forked child the list may lack it */
		return;
	*at = user->next;
	free(user);
}

static void put_rqs(struct vb_rss *queues)
{
	while (queues->count)
		vb_rq_put(queues->wq[--queues->count]);
}

/* The list of a command, each queue held. */
static int devx_rqt_read_list(struct devx_cmd *cmd, struct vb_rss *queues)
{
	uint32_t count = get(cmd->in, RQT_CTX + SIZE, 16);

	queues->count = 0;
	if (get(cmd->in, RQT_CTX + LIST_TYPE, 3))
		return vb_refuse_unsupported_value("list_q_type",
						   get(cmd->in, RQT_CTX + LIST_TYPE, 3));
	if (!count || count & (count - 1) || count > VB_MAX_RSS)
		return vb_refuse_combination("rqt_actual_size is no power of two up to 128");
	if (cmd->inlen < (RQT_CTX + RQT_LIST) / 8 + 4 * (size_t)count)
		return devx_refuse(
			cmd, DEVX_BAD_INP_LEN,
			vb_refuse_combination("the command ends before its list of queues"));
	for (uint32_t i = 0; i < count; i++) {
		uint32_t number = get(cmd->in, RQT_CTX + RQT_LIST + 32 * i + 8, 24);

		queues->wq[i] = vb_rq_get(cmd->dev, number);
		if (!queues->wq[i]) {
			put_rqs(queues);
			return devx_refuse(cmd, DEVX_BAD_RES,
					   vb_refuse_no_object("rq_num", number));
		}
		queues->count = i + 1;
	}
	return 0;
}

static int create_rqt(struct devx_cmd *cmd)
{
	static _Atomic uint32_t next;
	struct devx_rqt *rqt = calloc(1, sizeof(*rqt));
	int err;

	if (!rqt)
		return vb_refuse_memory("the table of receive queues");
	err = devx_rqt_read_list(cmd, &rqt->queues);
	if (err) {
		free(rqt);
		return err;
	}
	rqt->max_size = get(cmd->in, RQT_CTX + MAX_SIZE, 16);
	if (rqt->max_size < rqt->queues.count)
		rqt->max_size = rqt->queues.count;
	cmd->obj->number = devx_new_number(cmd, &next);
	cmd->obj->rqt = rqt;
	return 0;
}

static int destroy_rqt(struct devx_cmd *cmd)
{
	put_rqs(&cmd->obj->rqt->queues);
	free(cmd->obj->rqt);
	return 0;
}

/* TIRs that have the table follow it, one after the other. */
static int modify_rqt(struct devx_cmd *cmd)
{
	enum { LIST = 1 << 0 };
	struct devx_rqt *rqt = cmd->obj->rqt;
	uint64_t bits = get64(cmd->in, DEVX_BITMASK);
	struct vb_rss queues, old;
	int err;

	if (bits & ~(uint64_t)LIST)
		return vb_refuse_unsupported_value("bitmask", bits & ~(uint64_t)LIST);
	if (!bits)
		return 0;
	err = devx_rqt_read_list(cmd, &queues);
	if (err)
		return err;
	pthread_mutex_lock(&devx_rqt_mutex);
	old = queues;
	if (queues.count > rqt->max_size) {
		err = vb_refuse_range("rqt_actual_size", queues.count, 1, rqt->max_size);
	} else {
		for (struct devx_rqt_user *user = rqt->users; user; user = user->next)
			vb_tir_set_rss(user->tir, &queues, VB_TIR_QUEUES);
		old = rqt->queues;
		rqt->queues.count = queues.count;
		memcpy(rqt->queues.wq, queues.wq, sizeof(queues.wq));
	}
	pthread_mutex_unlock(&devx_rqt_mutex);
	put_rqs(&old);
	return err;
}

static int query_rqt(struct devx_cmd *cmd)
{
	const struct devx_rqt *rqt = cmd->obj->rqt;
	uint8_t *rqtc = cmd->out + RQT_CTX / 8;
	int err = 0;

	pthread_mutex_lock(&devx_rqt_mutex);
	if (cmd->outlen < (RQT_CTX + RQT_LIST) / 8 + 4 * (size_t)rqt->queues.count) {
		err = devx_refuse(cmd, DEVX_BAD_OUTP_LEN,
				  vb_refuse_combination("the answer is too short for the list"));
	} else {
		put(rqtc, MAX_SIZE, 16, rqt->max_size);
		put(rqtc, SIZE, 16, rqt->queues.count);
		for (uint32_t i = 0; i < rqt->queues.count; i++)
			put(rqtc, RQT_LIST + 32 * i, 32, vb_qp_number(rqt->queues.wq[i]));
	}
	pthread_mutex_unlock(&devx_rqt_mutex);
	return err;
}

const struct devx_row devx_rqt_rows[] = {
	{ "CREATE_RQT", 0x916, 0, DEVX_CREATE, VB_DEVX_RQT, 272, 16, DEVX_NUMBER, create_rqt },
	{ "MODIFY_RQT", 0x917, 0, DEVX_MODIFY, VB_DEVX_RQT, 272, 16, DEVX_NUMBER, modify_rqt },
	{ "DESTROY_RQT", 0x918, 0, DEVX_DESTROY, VB_DEVX_RQT, 16, 16, DEVX_NUMBER, destroy_rqt },
	{ "QUERY_RQT", 0x919, 0, DEVX_QUERY, VB_DEVX_RQT, 16, 272, DEVX_NUMBER, query_rqt },
	{ 0 },
};
