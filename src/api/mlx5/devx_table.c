// SPDX-License-Identifier: MIT
/*
 * Owns the table of commands (DEVX) and the list of objects that commands made, one per context.
 *
 * A command is a struct of big-endian bit fields, and its first 16 bits name it. devx_run() finds
 * its row, checks what the kernel and the firmware check of every command, and calls the row's
 * handler. An object is in its context's list from the end of its creation to the begin of its
 * destruction.
 *
 *	struct devx_context -- first --> youngest object -- next --> ... --> oldest
 */
#include "devx_table.h"

#include "base/lock.h"
#include "card/card.h"
#include "devx_bits.h"
#include "devx_queue.h"
#include "mlx5.h"

/* --- rows ------------------------------------------------------------------------------------- */

/* clang-format off: one on a line */
static const struct devx_row *const families[] = {
	devx_alloc_rows, devx_cap_rows,       devx_counter_rows,     devx_cq_rows,
	devx_dct_rows,   devx_emulation_rows, devx_flow_action_rows, devx_flow_entry_rows,
	devx_flow_rows,  devx_general_rows,   devx_mkey_rows,        devx_q_counter_rows,
	devx_qp_rows,    devx_rq_rows,        devx_rqt_rows,         devx_sq_rows,
	devx_tir_rows,
};
/* clang-format on */

enum { FAMILIES = sizeof(families) / sizeof(families[0]) };

/* Commands of the manual that the card does not have: refused by their names, with BAD_OP. */
static const struct {
	const char *name;
	uint16_t opcode;
} absent[] = {
	{ "QUERY_ADAPTER", 0x101 },
	{ "INIT_HCA", 0x102 },
	{ "TEARDOWN_HCA", 0x103 },
	{ "ENABLE_HCA", 0x104 },
	{ "DISABLE_HCA", 0x105 },
	{ "MANAGE_PAGES", 0x108 },
	{ "SET_HCA_CAP", 0x109 },
	{ "SET_ISSI", 0x10b },
	{ "CREATE_EQ", 0x301 },
	{ "DESTROY_EQ", 0x302 },
	{ "QUERY_EQ", 0x303 },
	{ "MAD_IFC", 0x50d },
	{ "SUSPEND_QP", 0x50f },
	{ "RESUME_QP", 0x510 },
	{ "CREATE_PSV", 0x600 },
	{ "DESTROY_PSV", 0x601 },
	{ "CREATE_SRQ", 0x700 },
	{ "DESTROY_SRQ", 0x701 },
	{ "QUERY_SRQ", 0x702 },
	{ "ARM_RQ", 0x703 },
	{ "CREATE_XRC_SRQ", 0x705 },
	{ "DESTROY_XRC_SRQ", 0x706 },
	{ "QUERY_XRC_SRQ", 0x707 },
	{ "ARM_XRC_SRQ", 0x708 },
	{ "DRAIN_DCT", 0x712 },
	{ "ARM_DCT_FOR_KEY_VIOLATION", 0x714 },
	{ "CREATE_XRQ", 0x717 },
	{ "DESTROY_XRQ", 0x718 },
	{ "QUERY_XRQ", 0x719 },
	{ "ARM_XRQ", 0x71a },
	{ "QUERY_ESW_FUNCTIONS", 0x740 },
	{ "QUERY_VPORT_STATE", 0x750 },
	{ "MODIFY_VPORT_STATE", 0x751 },
	{ "MODIFY_ESW_VPORT_CONTEXT", 0x753 },
	{ "SET_ROCE_ADDRESS", 0x761 },
	{ "QUERY_HCA_VPORT_CONTEXT", 0x762 },
	{ "QUERY_HCA_VPORT_GID", 0x764 },
	{ "QUERY_VNIC_ENV", 0x76f },
	{ "QUERY_VPORT_COUNTER", 0x770 },
	{ "SET_PP_RATE_LIMIT", 0x780 },
	{ "QUERY_RATE_LIMIT", 0x781 },
	{ "CREATE_SCHEDULING_ELEMENT", 0x782 },
	{ "DESTROY_SCHEDULING_ELEMENT", 0x783 },
	{ "QUERY_SCHEDULING_ELEMENT", 0x784 },
	{ "MODIFY_SCHEDULING_ELEMENT", 0x785 },
	{ "ATTACH_TO_MCG", 0x806 },
	{ "DETACH_FROM_MCG", 0x807 },
	{ "ALLOC_XRCD", 0x80e },
	{ "DEALLOC_XRCD", 0x80f },
	{ "ADD_VXLAN_UDP_DPORT", 0x827 },
	{ "DELETE_VXLAN_UDP_DPORT", 0x828 },
	{ "SET_L2_TABLE_ENTRY", 0x829 },
	{ "DELETE_L2_TABLE_ENTRY", 0x82b },
	{ "CREATE_LAG", 0x840 },
	{ "MODIFY_LAG", 0x841 },
	{ "QUERY_LAG", 0x842 },
	{ "DESTROY_LAG", 0x843 },
	{ "SET_FLOW_TABLE_ROOT", 0x92f },
	{ "MODIFY_GENERAL_OBJECT", 0xa01 },
	{ "CREATE_UMEM", 0xa08 },
	{ "DESTROY_UMEM", 0xa0a },
	{ "SYNC_STEERING", 0xb00 },
	{ "QUERY_EMULATED_FUNCTIONS_INFO", 0xb03 },
	{ "ACCESS_REGISTER_USER", 0xb0c },
	{ "QUERY_MATCH_SAMPLE_INFO", 0xb13 },
	{ "ALLOW_OTHER_VHCA_ACCESS", 0xb16 },
	{ "GENERATE_WQE", 0xb17 },
	{ "HOTPLUG", 0xb20 },
	{ "HOTUNPLUG", 0xb21 },
	{ "QUERY_VUID", 0xb22 },
};

enum { ABSENT = sizeof(absent) / sizeof(absent[0]) };
enum { GENERAL_FIRST = 0xa00, GENERAL_LAST = 0xa03 }; /* commands of general objects */

static bool is_typed(uint32_t opcode)
{
	return opcode >= GENERAL_FIRST && opcode <= GENERAL_LAST;
}

/* One opcode may have a row for each of two calls; where none is for this one, any will do. */
static const struct devx_row *row_of(enum devx_call call, const uint8_t *in)
{
	uint32_t opcode = get(in, DEVX_OPCODE, 16);
	uint32_t type = is_typed(opcode) ? get(in, DEVX_OBJECT_TYPE, 16) : 0;
	const struct devx_row *found = NULL;

	for (size_t i = 0; i < FAMILIES; i++)
		for (const struct devx_row *row = families[i]; row->name; row++)
			if (row->opcode == opcode && row->type == type &&
			    (!found || row->call == call))
				found = row;
	return found;
}

static const struct devx_row *destroyer_of(enum vb_devx_kind kind)
{
	for (size_t i = 0; i < FAMILIES; i++)
		for (const struct devx_row *row = families[i]; row->name; row++)
			if (row->call == DEVX_DESTROY && row->kind == kind)
				return row;
	return NULL;
}

bool devx_has(uint16_t opcode)
{
	for (size_t i = 0; i < FAMILIES; i++)
		for (const struct devx_row *row = families[i]; row->name; row++)
			if (row->opcode == opcode)
				return true;
	return false;
}

bool devx_has_type(uint16_t type)
{
	for (size_t i = 0; type && i < FAMILIES; i++)
		for (const struct devx_row *row = families[i]; row->name; row++)
			if (row->type == type)
				return true;
	return false;
}

static const char *absent_name(uint32_t opcode)
{
	for (size_t i = 0; i < ABSENT; i++)
		if (absent[i].opcode == opcode)
			return absent[i].name;
	return NULL;
}

const char *devx_name(const void *in, size_t inlen)
{
	const struct devx_row *row;

	if (!in || inlen < DEVX_LEAST)
		return NULL;
	row = row_of(DEVX_GENERAL, in);
	return row ? row->name : absent_name(get(in, DEVX_OPCODE, 16));
}

/* --- objects of a context --------------------------------------------------------------------- */

struct devx_context {
	struct vb_verbs_extra extra;   /* first */
	struct vb_listeners listeners; /* to events of the port and the device */
	struct vb_lock lock;           /* of the list */
	struct mlx5dv_devx_obj *first;
	struct devx_left *left;
};

static struct vb_lock contexts_lock; /* of who makes one */

static struct devx_context *devx_of(struct ibv_context *context);

static int destroy_object(struct mlx5dv_devx_obj *obj)
{
	const struct devx_row *row = destroyer_of(obj->kind);
	struct devx_cmd cmd = {
		.row = row,
		.context = obj->context,
		.dev = vb_verbs_dev(obj->context),
		.obj = obj,
	};
	int err = row->run(&cmd);

	if (!err)
		vb_listeners_end(&obj->listeners);
	return err;
}

struct vb_listeners *devx_port_listeners(struct ibv_context *context)
{
	struct devx_context *devx = devx_of(context);

	return devx ? &devx->listeners : NULL;
}

/* True: some object could go. */
static bool close_objects(struct devx_context *devx)
{
	struct mlx5dv_devx_obj **at = &devx->first;
	bool some = false;

	while (*at) {
		struct mlx5dv_devx_obj *obj = *at;

		if (obj->users || destroy_object(obj)) {
			at = &obj->next;
			continue;
		}
		*at = obj->next;
		obj->mark = VB_DEVX_CLOSED;
		some = true;
	}
	return some;
}

/* The same. Ending one may take others from the list: a flow's own actions. */
static bool close_left(struct devx_context *devx)
{
	struct devx_left *left = devx->left;
	bool some = false;

	while (left) {
		if (left->end(left)) {
			left = left->next;
			continue;
		}
		devx_left_remove(left);
		left->context = NULL;
		left = devx->left;
		some = true;
	}
	return some;
}

/*
 * The context is closed. What others still use waits for them: rounds, until nothing more can go.
 * The program's structs stay, since it may still hold pointers to them. Called again when the last
 * user of the context is gone.
 */
static void devx_table_close_context(struct vb_verbs_extra *extra)
{
	struct devx_context *devx = (struct devx_context *)extra;
	bool some = true;

	while (some) {
		some = close_objects(devx);
		some |= close_left(devx);
	}
	/* Rules of other contexts lead to what is left of receive queues: no frame goes in. */
	for (struct mlx5dv_devx_obj *obj = devx->first; obj; obj = obj->next)
		if (obj->kind == VB_DEVX_RQ)
			devx_rq_stop(obj);
}

static void devx_table_free_context(struct vb_verbs_extra *extra)
{
	struct devx_context *devx = (struct devx_context *)extra;

	vb_listeners_end(&devx->listeners);
	free(devx);
}

static void context_event(struct vb_verbs_extra *extra, const struct vb_event *event)
{
	vb_listeners_tell(&((struct devx_context *)extra)->listeners, event->type, event->port);
}

static struct devx_context *devx_of(struct ibv_context *context)
{
	struct vb_verbs_extra *_Atomic *slot = vb_verbs_private(context)->objects->extra(context);
	struct devx_context *devx;

	vb_lock(&contexts_lock);
	devx = (struct devx_context *)atomic_load_explicit(slot, memory_order_relaxed);
	if (!devx) {
		devx = calloc(1, sizeof(*devx));
		if (devx) {
			devx->extra =
				(struct vb_verbs_extra){ devx_table_close_context,
							 devx_table_free_context, context_event };
			/* Pairs with the acquire in api_async_event(). */
			atomic_store_explicit(slot, &devx->extra, memory_order_release);
		}
	}
	vb_unlock(&contexts_lock);
	return devx;
}

bool devx_left_add(struct ibv_context *context, struct devx_left *left)
{
	struct devx_context *devx = devx_of(context);

	if (!devx)
		return false;
	left->context = context;
	vb_lock(&devx->lock);
	left->next = devx->left;
	devx->left = left;
	vb_unlock(&devx->lock);
	return true;
}

bool devx_left_remove(struct devx_left *left)
{
	struct devx_context *devx;
	struct devx_left **at;

	if (!left->context)
		return true;
	/* The list that a forked child has from its parent may be half changed. */
	if (vb_dev_stale(vb_verbs_dev(left->context)))
		return false;
	devx = devx_of(left->context);
	vb_lock(&devx->lock);
	for (at = &devx->left; *at && *at != left; at = &(*at)->next)
		;
	if (*at)
		*at = left->next;
	vb_unlock(&devx->lock);
	return false;
}

int devx_list_add(struct mlx5dv_devx_obj *obj)
{
	struct devx_context *devx = devx_of(obj->context);

	if (!devx)
		return vb_refuse_memory("the list of objects");
	vb_lock(&devx->lock);
	obj->next = devx->first;
	devx->first = obj;
	vb_unlock(&devx->lock);
	return 0;
}

int devx_list_remove(struct mlx5dv_devx_obj *obj)
{
	struct devx_context *devx = devx_of(obj->context);
	struct mlx5dv_devx_obj **at = &devx->first;

	vb_lock(&devx->lock);
	if (obj->users) {
		vb_unlock(&devx->lock);
		return vb_refuse_busy("other objects");
	}
	while (*at && *at != obj)
		at = &(*at)->next;
	if (!*at) { /* it comes back to the list where its parts are in use */
		vb_unlock(&devx->lock);
		return vb_refuse_busy("a thread that destroys it");
	}
	*at = obj->next;
	vb_unlock(&devx->lock);
	return 0;
}

struct mlx5dv_devx_obj *devx_get_in(struct ibv_context *context, enum vb_devx_kind kind,
				    uint32_t number,
				    uint32_t (*count)(const struct mlx5dv_devx_obj *obj))
{
	struct devx_context *devx = devx_of(context);
	struct mlx5dv_devx_obj *obj;

	if (!devx)
		return NULL;
	vb_lock(&devx->lock);
	for (obj = devx->first; obj; obj = obj->next)
		if (obj->kind == kind && number - obj->number < (count ? count(obj) : 1))
			break;
	if (obj)
		obj->users++;
	vb_unlock(&devx->lock);
	return obj;
}

struct mlx5dv_devx_obj *devx_get(struct ibv_context *context, enum vb_devx_kind kind,
				 uint32_t number)
{
	return devx_get_in(context, kind, number, NULL);
}

void devx_put(struct mlx5dv_devx_obj *obj)
{
	struct devx_context *devx = devx_of(obj->context);

	vb_lock(&devx->lock);
	obj->users--;
	vb_unlock(&devx->lock);
}

/* --- a command -------------------------------------------------------------------------------- */

static enum devx_status devx_table_status_of(int err)
{
	switch (-err) {
	case ENOMEM:
		return DEVX_NO_RES;
	case EBUSY:
		return DEVX_RES_BUSY;
	case ENOENT:
		return DEVX_BAD_RES;
	default:
		return DEVX_BAD_PARAM;
	}
}

/* The firmware refuses. */
static int refused(void *out, size_t outlen, enum devx_status status, uint32_t syndrome)
{
	memset(out, 0, outlen);
	put(out, DEVX_STATUS, 8, status);
	put(out, DEVX_SYNDROME, 32, syndrome);
	return EREMOTEIO;
}

static int no_such_command(enum devx_call call, const uint8_t *in, void *out, size_t outlen)
{
	uint32_t opcode = get(in, DEVX_OPCODE, 16);
	const char *name = absent_name(opcode);

	if (name) {
		vb_refuse_unsupported(name);
		return refused(out, outlen, DEVX_BAD_OP, 0);
	}
	if (opcode == GENERAL_FIRST && call == DEVX_CREATE) {
		vb_refuse_unsupported_value("general object type", get(in, DEVX_OBJECT_TYPE, 16));
		return refused(out, outlen, DEVX_BAD_PARAM, 0);
	}
	vb_refuse_unsupported_value("command", opcode);
	return EINVAL;
}

/* What the kernel checks. */
static int check_carrier(const struct devx_row *row, enum devx_call call,
			 const struct mlx5dv_devx_obj *obj, const uint8_t *in, size_t inlen)
{
	if (row->call != call)
		return vb_refuse_combination("the command does not belong to this call");
	if (call != DEVX_MODIFY && call != DEVX_QUERY)
		return 0;
	if (obj->lent || row->kind != obj->kind)
		return vb_refuse_combination("the command is for another kind of object");
	if (row->number && row->number / 32u * 4 + 4 <= inlen &&
	    get(in, row->number, 32 - row->number % 32) != obj->number)
		return vb_refuse_combination("the command names another object");
	return 0;
}

/* in and out share no memory. */
static int run_apart(enum devx_call call, struct ibv_context *context, struct mlx5dv_devx_obj *obj,
		     const void *in, size_t inlen, void *out, size_t outlen)
{
	struct devx_cmd cmd = { .context = context, .obj = obj, .in = in, .inlen = inlen };
	int err;

	if (!in || !out)
		return -vb_refuse_null(in ? "out" : "in");
	if (inlen < DEVX_LEAST || outlen < DEVX_LEAST)
		return -vb_refuse_combination("the command or its answer is shorter than 16 bytes");
	if (inlen > DEVX_MOST || outlen > DEVX_MOST)
		return -vb_refuse_combination("the command or its answer is longer than 64 KiB");
	cmd.row = row_of(call, in);
	if (!cmd.row)
		return no_such_command(call, in, out, outlen);
	err = check_carrier(cmd.row, call, obj, in, inlen);
	if (err)
		return -err;
	cmd.dev = vb_verbs_dev(context);
	if (vb_dev_stale(cmd.dev))
		return -vb_refuse_forked();
	if (inlen < cmd.row->in) {
		vb_refuse_range("the command's length", inlen, cmd.row->in, DEVX_MOST);
		return refused(out, outlen, DEVX_BAD_INP_LEN, 0);
	}
	if (outlen < cmd.row->out) {
		vb_refuse_range("the answer's length", outlen, cmd.row->out, DEVX_MOST);
		return refused(out, outlen, DEVX_BAD_OUTP_LEN, 0);
	}
	memset(out, 0, outlen);
	cmd.out = out;
	cmd.outlen = outlen;
	if (call == DEVX_CREATE)
		obj->kind = cmd.row->kind;
	err = cmd.row->run(&cmd);
	if (err)
		return refused(out, outlen, cmd.status ? cmd.status : devx_table_status_of(err),
			       cmd.syndrome);
	if (call == DEVX_CREATE && cmd.row->number)
		put(out, cmd.row->number, 32 - cmd.row->number % 32u, obj->number);
	return 0;
}

int devx_run(enum devx_call call, struct ibv_context *context, struct mlx5dv_devx_obj *obj,
	     const void *in, size_t inlen, void *out, size_t outlen)
{
	void *copy;
	int err;

	if ((uintptr_t)in - (uintptr_t)out >= outlen && (uintptr_t)out - (uintptr_t)in >= inlen)
		return run_apart(call, context, obj, in, inlen, out, outlen);
	if (!in || inlen > DEVX_MOST)
		return run_apart(call, context, obj, in, inlen, out, outlen); /* refused */
	/* The kernel copies a command, so that programs may have the answer in the same place. */
	copy = malloc(inlen ? inlen : 1);
	if (!copy)
		return -vb_refuse_memory("the command");
	memcpy(copy, in, inlen);
	err = run_apart(call, context, obj, copy, inlen, out, outlen);
	free(copy);
	return err;
}

/* --- calls ------------------------------------------------------------------------------------ */

int devx_check(const struct mlx5dv_devx_obj *obj)
{
	if (!obj)
		return vb_refuse_null("obj");
	return obj->mark == VB_DEVX_MARK ? 0 : vb_refuse_combination("obj is no DEVX object");
}

VB_PUBLIC int mlx5dv_devx_general_cmd(struct ibv_context *context, const void *in, size_t inlen,
				      void *out, size_t outlen)
{
	int err;

	API_CALL(API_DEVICE(context), .detail = devx_name(in, inlen));
	if (!context || !mlx5dv_is_supported(context->device))
		return api_refuse(not_mlx5);
	err = devx_run(DEVX_GENERAL, context, NULL, in, inlen, out, outlen);
	return err ? api_fail(err) : 0;
}

VB_PUBLIC struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *context,
							 const void *in, size_t inlen, void *out,
							 size_t outlen)
{
	struct mlx5dv_devx_obj *obj;
	int err;

	API_CALL(API_DEVICE(context), .detail = devx_name(in, inlen));
	if (!context || !mlx5dv_is_supported(context->device))
		return api_refuse_null(not_mlx5);
	obj = calloc(1, sizeof(*obj));
	if (!obj || !devx_of(context)) { /* so that adding it to the list cannot fail */
		free(obj);
		return api_refuse_null(memory, "the object");
	}
	obj->context = context;
	err = devx_run(DEVX_CREATE, context, obj, in, inlen, out, outlen);
	if (err) {
		free(obj);
		return api_null(err);
	}
	obj->mark = VB_DEVX_MARK;
	devx_list_add(obj);
	return obj;
}

VB_PUBLIC int mlx5dv_devx_obj_modify(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen,
				     void *out, size_t outlen)
{
	int err;

	API_CALL(.kind = "DEVX object", .detail = devx_name(in, inlen));
	err = devx_check(obj);
	if (!err)
		err = -devx_run(DEVX_MODIFY, obj->context, obj, in, inlen, out, outlen);
	return err ? api_fail(-err) : 0;
}

/* A query of what libflexio made. As the kernel has it, the command names the object's number again. */
static int query_lent(const struct mlx5dv_devx_obj *obj, const uint8_t *in, uint8_t *out,
		      size_t outlen)
{
	const struct vb_devx_lender *lender = obj->lender;

	if (!out || outlen < DEVX_LEAST || outlen > DEVX_MOST)
		return -vb_refuse_combination("the answer has no 16 bytes to 64 KiB");
	if (get(in, DEVX_NUMBER, 24) != obj->number)
		return -vb_refuse_value("number", get(in, DEVX_NUMBER, 24));
	if (outlen < (size_t)lender->at + lender->size) {
		vb_refuse_combination("the answer is too short for the context");
		return refused(out, outlen, DEVX_BAD_OUTP_LEN, 0);
	}
	memset(out, 0, outlen);
	lender->look(obj, out + lender->at);
	return 0;
}

int devx_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen, void *out, size_t outlen)
{
	int err = devx_check(obj);

	if (err)
		return -err;
	if (obj->lender && in && inlen >= DEVX_LEAST &&
	    get(in, DEVX_OPCODE, 16) == obj->lender->query)
		return query_lent(obj, in, out, outlen);
	return devx_run(DEVX_QUERY, obj->context, obj, in, inlen, out, outlen);
}

VB_PUBLIC int mlx5dv_devx_obj_query(struct mlx5dv_devx_obj *obj, const void *in, size_t inlen,
				    void *out, size_t outlen)
{
	int err;

	API_CALL(.kind = "DEVX object", .detail = devx_name(in, inlen));
	err = devx_query(obj, in, inlen, out, outlen);
	return err ? api_fail(err) : 0;
}

VB_PUBLIC int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *obj)
{
	int err;

	API_CALL(.kind = "DEVX object");
	if (obj && obj->mark == VB_DEVX_CLOSED) {
		obj->mark = 0;
		free(obj);
		return 0;
	}
	err = devx_check(obj);
	if (!err && obj->lent)
		err = vb_refuse_combination("the object is part of one of libflexio");
	if (!err)
		err = devx_list_remove(obj);
	if (err)
		return api_fail(-err);
	err = destroy_object(obj);
	if (err) {
		devx_list_add(obj);
		return api_fail(-err);
	}
	obj->mark = 0;
	free(obj);
	return 0;
}
