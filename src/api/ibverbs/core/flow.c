// SPDX-License-Identifier: MIT
/*
 * ibv_create_flow(): a flow becomes a rule of its adapter's domain of verbs flows (card/ether/flow.h).
 *
 *	NORMAL       a rule of its priority
 *	MC_DEFAULT   multicast, behind all priorities
 *	ALL_DEFAULT  multicast and unicast, behind all priorities
 *	SNIFFER      everything that is received, and everything that is sent: copies
 *
 * A flow with DONT_TRAP gets copies: the frame goes on to those behind it. Of one priority these come
 * first, as with mlx5's driver.
 *
 * Flows of one priority and mask share a matcher, so that a frame costs one look-up for all of them, and
 * so that several flows with the same value all get it. Of different masks with the same priority the
 * older one decides. Matchers are shared by all contexts of the process.
 */
#include "flow.h"

#include "base/fork.h"

enum { DEFAULT_PRIORITY = 0xffff, RULES = 2, ACTIONS = 3 };

/* A matcher and how many rules it has. */
struct shared_matcher {
	struct shared_matcher *next;
	struct vb_steer *domain;
	struct vb_steer_table *table;
	struct vb_steer_matcher *matcher;
	uint16_t priority;
	uint8_t criteria;
	uint32_t rules;
	uint8_t mask[VB_STEER_PARAM];
};

static pthread_mutex_t matchers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared_matcher *matchers; /* NULL-ended list of all; under the lock */

/*
 * Another thread of the parent may have had it: the child has no such thread. The list stays, for the
 * parent's flows that the child destroys; a new flow of the child has another domain.
 */
static void flow_forked(void)
{
	pthread_mutex_init(&matchers_lock, NULL);
}

VB_STAGE(FLOWS, .child = flow_forked);

struct api_flow {
	struct vb_verbs_flow verbs; /* first */
	struct vb_list node;
	struct vb_qp *qp;
	struct api_counters *counters; /* or NULL */
	bool sniffs;
	uint32_t num_actions, num_rules;
	struct vb_steer_action *action[ACTIONS];
	struct vb_steer_rule *rule[RULES];
	struct shared_matcher *matcher[RULES];
};

/* --- matchers --------------------------------------------------------------------------------- */

static void matcher_free(struct shared_matcher *m)
{
	if (m->matcher)
		vb_steer_matcher_destroy(m->matcher);
	if (m->table)
		vb_steer_table_destroy(m->table);
	free(m);
}

static int matcher_make(struct vb_steer *domain, uint16_t priority, const struct flow_match *match,
			struct shared_matcher **out)
{
	struct shared_matcher *m = calloc(1, sizeof(*m));
	const char *why = "a field";
	int rc;

	if (!m)
		return vb_refuse_memory("the flow");
	m->domain = domain;
	m->priority = priority;
	m->criteria = match->criteria;
	memcpy(m->mask, match->mask, sizeof(m->mask));
	rc = vb_steer_table_create(domain, 0, &m->table);
	if (!rc)
		rc = vb_steer_matcher_create(m->table, priority, match->criteria, match->mask,
					     sizeof(match->mask), &m->matcher, &why);
	if (rc) {
		matcher_free(m);
		return rc == -EOPNOTSUPP ? vb_refuse_unsupported(why) : rc;
	}
	*out = m;
	return 0;
}

/* The matcher of a mask, with one more rule: 0 or -errno. */
static int matcher_take(struct vb_steer *domain, uint16_t priority, const struct flow_match *match,
			struct shared_matcher **out)
{
	struct shared_matcher *m;
	int rc = 0;

	pthread_mutex_lock(&matchers_lock);
	for (m = matchers; m; m = m->next)
		if (m->domain == domain && m->priority == priority &&
		    m->criteria == match->criteria &&
		    !memcmp(m->mask, match->mask, sizeof(m->mask)))
			break;
	if (!m) {
		rc = matcher_make(domain, priority, match, &m);
		if (!rc) {
			m->next = matchers;
			matchers = m;
		}
	}
	if (!rc) {
		m->rules++;
		*out = m;
	}
	pthread_mutex_unlock(&matchers_lock);
	return rc;
}

static void matcher_give(struct shared_matcher *m)
{
	struct shared_matcher **at;

	pthread_mutex_lock(&matchers_lock);
	if (!--m->rules) {
		for (at = &matchers; *at != m; at = &(*at)->next)
			;
		*at = m->next;
		matcher_free(m);
	}
	pthread_mutex_unlock(&matchers_lock);
}

/* --- rules ------------------------------------------------------------------------------------ */

static int add_action(struct api_flow *flow, const struct vb_steer_action_attr *attr)
{
	int rc = vb_steer_action_create(attr, &flow->action[flow->num_actions], NULL);

	if (!rc)
		flow->num_actions++;
	return rc;
}

static int add_actions(struct api_flow *flow, const struct flow_match *match)
{
	int rc = 0;

	if (match->tags)
		rc = add_action(flow, &(struct vb_steer_action_attr){ .what = VB_STEER_DO_TAG,
								      .tag = match->tag });
	if (!rc && flow->counters)
		rc = add_action(flow, &(struct vb_steer_action_attr){
					      .what = VB_STEER_DO_COUNT,
					      .counter = &flow->counters->counter });
	if (rc)
		return rc;
	if (match->drop)
		return add_action(flow, &(struct vb_steer_action_attr){ .what = VB_STEER_DO_DROP });
	return add_action(flow, &(struct vb_steer_action_attr){
					.what = VB_STEER_DO_DEST,
					.dest = { .kind = VB_FLOW_QP, .object = flow->qp } });
}

static int add_rule(struct api_flow *flow, struct vb_steer *domain, uint16_t priority,
		    const struct flow_match *match, unsigned int flags)
{
	struct shared_matcher **matcher = &flow->matcher[flow->num_rules];
	int rc;

	if (!domain)
		return vb_refuse_memory("the flow");
	rc = matcher_take(domain, priority, match, matcher);
	if (rc)
		return rc;
	rc = vb_steer_rule_create((*matcher)->matcher, match->value, sizeof(match->value),
				  flow->action, flow->num_actions, flags,
				  &flow->rule[flow->num_rules], NULL);
	if (rc)
		matcher_give(*matcher);
	else
		flow->num_rules++;
	return rc;
}

/* Behind all others: frames to groups, and all: those to one station, too. */
static int add_default(struct api_flow *flow, struct vb_dev *dev, bool all)
{
	enum { DMAC = 8, GROUP = 1 };
	struct vb_steer *domain = vb_flow_verbs_domain(dev);
	struct flow_match match = { .criteria = VB_STEER_OUTER };
	int rc;

	match.mask[DMAC] = match.value[DMAC] = GROUP;
	rc = add_rule(flow, domain, DEFAULT_PRIORITY, &match, 0);
	match.value[DMAC] = 0;
	return rc || !all ? rc : add_rule(flow, domain, DEFAULT_PRIORITY, &match, 0);
}

static int add_rules(struct api_flow *flow, struct vb_dev *dev, const struct ibv_flow_attr *attr,
		     const struct flow_match *match)
{
	bool copies = attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	int rc;

	switch (attr->type) {
	case IBV_FLOW_ATTR_ALL_DEFAULT:
	case IBV_FLOW_ATTR_MC_DEFAULT:
		return add_default(flow, dev, attr->type == IBV_FLOW_ATTR_ALL_DEFAULT);
	case IBV_FLOW_ATTR_SNIFFER:
		rc = add_rule(flow, vb_flow_domain(dev, VB_STEER_SNIFFER_RX), 0, match, 0);
		return rc ? rc
			  : add_rule(flow, vb_flow_domain(dev, VB_STEER_SNIFFER_TX), 0, match, 0);
	default:
		return add_rule(flow, vb_flow_verbs_domain(dev),
				(uint16_t)(attr->priority * 2 + !copies), match,
				copies ? VB_STEER_COPY : 0);
	}
}

/* --- flows ------------------------------------------------------------------------------------ */

static int verbs_flow_check_attr(struct ibv_context *context, const struct ibv_flow_attr *attr)
{
	const uint32_t known = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
	uint16_t most = provider_of(context)->max_flow_priority;
	uint32_t ports = context_adapter(context)->config->ports;

	if (attr->comp_mask)
		return -vb_refuse_bits("comp_mask", attr->comp_mask);
	if (attr->flags & ~known)
		return -vb_refuse_bits("flags", attr->flags & ~known);
	if (attr->flags & IBV_FLOW_ATTR_FLAGS_EGRESS)
		return -vb_refuse_unsupported("IBV_FLOW_ATTR_FLAGS_EGRESS");
	if (attr->flags && attr->type != IBV_FLOW_ATTR_NORMAL)
		return -vb_refuse_combination("only flows of type NORMAL have DONT_TRAP");
	if ((unsigned int)attr->type > IBV_FLOW_ATTR_SNIFFER)
		return -vb_refuse_value("type", attr->type);
	if (attr->port < 1 || attr->port > ports)
		return -vb_refuse_port(attr->port, ports, context->device->name);
	if (attr->type == IBV_FLOW_ATTR_NORMAL && attr->priority > most)
		return -vb_refuse_range("priority", attr->priority, 0, most);
	return 0;
}

/*
 * What the flow matches and does. The kernel's drivers read the specifications of any flow, and ignore
 * them where its type is not NORMAL.
 */
static int read_match(struct ibv_context *context, const struct ibv_flow_attr *attr,
		      struct flow_match *match)
{
	int err = api_flow_match(context, attr, match);

	if (attr->type != IBV_FLOW_ATTR_NORMAL)
		memset(match, 0, sizeof(*match));
	if (!err && match->drop && attr->flags)
		err = -vb_refuse_combination("a flow that drops leaves nothing to go on");
	return err;
}

/* The card's side of a flow; what was made so far goes again. */
static void dismantle(struct api_flow *flow)
{
	while (flow->num_rules) {
		flow->num_rules--;
		vb_steer_rule_destroy(flow->rule[flow->num_rules]);
		matcher_give(flow->matcher[flow->num_rules]);
	}
	if (flow->sniffs)
		vb_cable_sniff(to_context(flow->verbs.ibv.context)->dev, -1);
	/* Waits for frames that are under way to the queue pair. */
	while (flow->num_actions)
		vb_steer_action_destroy(flow->action[--flow->num_actions]);
	vb_flow_release_qp(flow->qp);
	if (flow->counters)
		atomic_fetch_sub_explicit(&flow->counters->users, 1, memory_order_release);
}

static int assemble(struct api_flow *flow, struct vb_dev *dev, const struct ibv_flow_attr *attr,
		    const struct flow_match *match)
{
	int rc = vb_flow_hold_qp(flow->qp);

	if (rc)
		return vb_refuse_combination("flows need a RAW_PACKET queue pair that receives");
	if (match->counters) {
		flow->counters = to_counters(match->counters);
		atomic_fetch_add_explicit(&flow->counters->users, 1, memory_order_relaxed);
	}
	rc = add_actions(flow, match);
	if (!rc)
		rc = add_rules(flow, dev, attr, match);
	if (rc) {
		dismantle(flow);
		return rc;
	}
	flow->sniffs = attr->type == IBV_FLOW_ATTR_SNIFFER;
	if (flow->sniffs)
		vb_cable_sniff(dev, 1);
	return 0;
}

static int verbs_flow_destroy(struct vb_verbs_flow *verbs)
{
	struct api_flow *flow = container_of(verbs, struct api_flow, verbs);

	api_untrack(verbs->ibv.context, &flow->node);
	dismantle(flow);
	free(flow);
	return 0;
}

struct ibv_flow *api_flow_create(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	static atomic_uint numbers;
	struct flow_match match;
	struct api_flow *flow;
	int err;

	API_CALL_AS("ibv_create_flow", API_QP(qp));
	if (!qp || !attr)
		return api_refuse_null(null, "qp or flow_attr");
	err = verbs_flow_check_attr(qp->context, attr);
	if (!err)
		err = read_match(qp->context, attr, &match);
	if (err)
		return api_null(err);
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return api_refuse_null(memory, "the flow");
	flow->verbs.ibv.context = qp->context;
	flow->verbs.destroy = verbs_flow_destroy;
	flow->verbs.ibv.handle = 1 + atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed);
	flow->qp = to_qp(qp)->card;
	err = -assemble(flow, to_context(qp->context)->dev, attr, &match);
	if (err) {
		free(flow);
		return api_null(err);
	}
	api_track(qp->context, API_KIND_FLOW, &flow->node);
	return &flow->verbs.ibv;
}

/* Flows and flow actions of any library: each knows who destroys it (accessors.h). */
int api_flow_destroy(struct ibv_flow *flow)
{
	struct vb_verbs_flow *f = (struct vb_verbs_flow *)flow;

	API_CALL_AS("ibv_destroy_flow");
	if (!flow)
		return api_refuse(null, "flow_id");
	return api_status(-f->destroy(f));
}

int api_flow_action_destroy(struct ibv_flow_action *action)
{
	struct vb_verbs_flow_action *a = (struct vb_verbs_flow_action *)action;

	API_CALL_AS("ibv_destroy_flow_action");
	if (!action)
		return api_refuse(null, "action");
	return api_status(-a->destroy(a));
}

void api_flow_abandon(struct vb_list *node)
{
	dismantle(container_of(node, struct api_flow, node));
}
