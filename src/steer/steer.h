/* SPDX-License-Identifier: MIT */
/*
 * The steering engine: tables of rules that decide where a frame goes and what is changed on the
 * way. It knows frames and metadata; it knows no queues, ports or processes. Destinations are its
 * owner's, opaque.
 *
 *	domain -+- table, level 0 (root) -+- matcher, priority 0, mask -- rules: value, actions
 *	        |                         +- matcher, priority 1, mask -- ...
 *	        +- table, level 1 ...  <---------- "forward to table" of a rule above
 *
 * A frame enters at the root and meets the matchers in order of priority (small first; equal ones:
 * the older first). A matcher takes the fields that its mask has from the frame and looks them up
 * in its hash table: one look-up, however many rules. The first matcher with a rule for it decides.
 *
 * Control calls (create, destroy) may come from any thread, but not from inside a read section and
 * not from emit. They return 0 or -errno; on error nothing has changed, and *why, where asked for,
 * is a constant text with the reason: the name of the match field or action. vb_steer_run() may
 * come from many threads at once, inside read sections (base/rcu.h), while rules come and go: a
 * frame meets a rule wholly or not at all.
 *
 * Lifetime. What is in use cannot go: -EBUSY. A rule is out of use when vb_steer_rule_destroy()
 * returns, for frames that enter later; an earlier frame may still be under way with it.
 * vb_steer_action_destroy() waits for those: what an action points to (destination, counter) may be
 * freed when it has returned, not before.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/public.h"
#include "packet/frame/frame.h"

/* Limits. Where a call would exceed one: -ENOSPC. Frames: see vb_steer_run(). */
enum {
	VB_STEER_PARAM = 512,            /* bytes of struct fte_match_param */
	VB_STEER_MAX_TABLES = 1 << 16,   /* of a domain */
	VB_STEER_MAX_MATCHERS = 1 << 12, /* of a table; of all root tables of a domain */
	VB_STEER_MAX_RULES = 1 << 24,    /* of a matcher */
	VB_STEER_MAX_ACTIONS = 16,       /* of a rule */
	VB_STEER_MAX_DESTS = 64,         /* of an array */
	VB_STEER_MAX_MODIFY = 128,       /* SET, ADD, COPY of one modify action */
	VB_STEER_MAX_REFORMAT = 256,     /* bytes that a reformat action puts in front */
	VB_STEER_MAX_HOPS = 64,          /* tables that a frame meets on one way */
	VB_STEER_MAX_SPLITS = 4,         /* arrays on one way, each of which multiplies the frame */
	VB_STEER_MAX_BRANCHES = 1024,    /* of a frame, on all its ways together */
	VB_STEER_FRAME_MAX = 9216,       /* longest frame that can be edited */
	VB_STEER_HEADROOM = 512,         /* by which it can grow in front */
};

/* Bytes of a scratch area, where frames are edited. */
#define VB_STEER_SCRATCH ((VB_STEER_MAX_SPLITS + 1) * (VB_STEER_HEADROOM + VB_STEER_FRAME_MAX + 64))

enum vb_steer_kind {
	VB_STEER_NIC_RX,
	VB_STEER_NIC_TX,
	VB_STEER_FDB,
	VB_STEER_SNIFFER_RX,
	VB_STEER_SNIFFER_TX,
};

/* Sections of struct fte_match_param, as programs name them in a matcher. */
enum vb_steer_criteria {
	VB_STEER_OUTER = 1 << 0,
	VB_STEER_MISC = 1 << 1,
	VB_STEER_INNER = 1 << 2,
	VB_STEER_MISC2 = 1 << 3,
	VB_STEER_MISC3 = 1 << 4,
	VB_STEER_MISC4 = 1 << 5,
	VB_STEER_MISC5 = 1 << 6,
};

struct vb_steer;
struct vb_steer_table;
struct vb_steer_matcher;
struct vb_steer_rule;
struct vb_steer_action;

/* --- domains, tables, matchers ---------------------------------------------------------------- */

/* It takes a secret for its hash tables from getrandom(), whose errors it returns. */
VB_PUBLIC int vb_steer_create(enum vb_steer_kind kind, struct vb_steer **steer);
/* -EBUSY: it has tables. */
VB_PUBLIC int vb_steer_destroy(struct vb_steer *steer);
VB_PUBLIC enum vb_steer_kind vb_steer_kind(const struct vb_steer *steer);

/*
 * Which Geneve option the fields geneve_tlv_option_0_* mean; masks with them are refused before.
 * -EBUSY: a matcher has such a mask.
 */
VB_PUBLIC int vb_steer_set_geneve_option(struct vb_steer *steer, uint16_t class, uint8_t type);

/* All tables of level 0 are the root: their matchers stand in one order of priority. */
VB_PUBLIC int vb_steer_table_create(struct vb_steer *steer, uint32_t level,
				    struct vb_steer_table **table);
/* -EBUSY: it has matchers, or an action leads to it. */
VB_PUBLIC int vb_steer_table_destroy(struct vb_steer_table *table);
VB_PUBLIC uint32_t vb_steer_table_level(const struct vb_steer_table *table);
VB_PUBLIC struct vb_steer *vb_steer_table_domain(const struct vb_steer_table *table);

/*
 * mask: struct fte_match_param as programs write it, big-endian; len: up to VB_STEER_PARAM, what is
 * missing is 0. criteria: enum vb_steer_criteria. Sections outside of it are not looked at (level
 * 0: must be 0, -EINVAL). -EOPNOTSUPP: the mask has a field that this card has not, *why names it
 * ("outer_headers.x", "misc4.x", ...).
 */
VB_PUBLIC int vb_steer_matcher_create(struct vb_steer_table *table, uint16_t priority,
				      uint8_t criteria, const void *mask, size_t len,
				      struct vb_steer_matcher **matcher, const char **why);
/* -EBUSY: it has rules. */
VB_PUBLIC int vb_steer_matcher_destroy(struct vb_steer_matcher *matcher);
VB_PUBLIC struct vb_steer_table *vb_steer_matcher_table(const struct vb_steer_matcher *matcher);

/* --- actions ---------------------------------------------------------------------------------- */

enum vb_steer_do {
	VB_STEER_DO_DEST,  /* the end: to the owner's destination */
	VB_STEER_DO_TABLE, /* the end here: on in a table of a higher level of the same domain */
	VB_STEER_DO_ARRAY, /* the end: to several */
	VB_STEER_DO_MISS,  /* the end: as if no rule of this table had matched */
	VB_STEER_DO_DROP,  /* the end */
	VB_STEER_DO_MODIFY,
	VB_STEER_DO_REFORMAT,
	VB_STEER_DO_TAG,
	VB_STEER_DO_COUNT,
	VB_STEER_DO_PUSH_VLAN,
	VB_STEER_DO_POP_VLAN,
};

/* Where emit is told to bring a frame. */
enum vb_steer_to {
	VB_STEER_TO_OWNER,   /* a VB_STEER_DO_DEST action's; kind, number, object are its */
	VB_STEER_TO_DEFAULT, /* as without rules */
	VB_STEER_TO_WIRE,    /* a miss below the root of NIC_TX */
	VB_STEER_TO_MANAGER, /* a miss below the root of FDB: the e-switch manager, vport 0 */
};

struct vb_steer_dest {
	enum vb_steer_to to;
	uint32_t kind;   /* the owner's: TIR, QP, vport, wire ... */
	uint64_t number; /* the owner's */
	void *object;    /* the owner's */
};

/*
 * The owner's memory; packets and bytes of frames as they came to the rule. Read with relaxed
 * loads.
 */
struct vb_steer_counter {
	_Atomic uint64_t packets, bytes;
};

/* One of several destinations. */
struct vb_steer_branch {
	struct vb_steer_action *dest;     /* DEST, TABLE, MISS, DROP, or COUNT: count only */
	struct vb_steer_action *reformat; /* before it; NULL: none */
};

struct vb_steer_action_attr {
	enum vb_steer_do what;
	union {
		struct vb_steer_dest dest;    /* DEST; to is VB_STEER_TO_OWNER */
		struct vb_steer_table *table; /* TABLE */
		struct {
			const struct vb_steer_branch *branch;
			uint32_t count;
		} array; /* ARRAY; copied, its actions are in use as long as it lives */
		struct {
			const void
				*actions; /* 8 bytes each, big-endian: set, add or copy_action_in */
			uint32_t count;
		} modify; /* MODIFY; copied */
		struct {
			enum vb_reformat type;
			const void *data;
			uint32_t len;
		} reformat;                       /* REFORMAT; copied */
		uint32_t tag;                     /* TAG: 24 bits */
		struct vb_steer_counter *counter; /* COUNT */
		uint32_t vlan;                    /* PUSH_VLAN: EtherType << 16 | tag */
	};
};

/*
 * -EINVAL: a value out of range; -EOPNOTSUPP: a modify field that this card has not (*why: its
 * number). An action may be in many rules; only TABLE and what contains it belongs to a domain.
 */
VB_PUBLIC int vb_steer_action_create(const struct vb_steer_action_attr *attr,
				     struct vb_steer_action **action, const char **why);
/* -EBUSY: it is in a rule or in an array. Waits for readers. */
VB_PUBLIC int vb_steer_action_destroy(struct vb_steer_action *action);

/* --- rules ------------------------------------------------------------------------------------ */

enum vb_steer_rule_flags {
	VB_STEER_UNIQUE = 1 << 0, /* -EEXIST where the matcher has a rule with this value */
	/*
	 * Level 0: the rule gets a copy, and the frame goes on to the matchers behind its own. All
	 * rules of a matcher have it, or none.
	 */
	VB_STEER_COPY = 1 << 1,
};

/*
 * value: as the mask; a bit outside of the mask is -EINVAL. Of actions at most one ends the way, at
 * most one each of modify, tag, counter, decapsulation (reformat 0, 2), encapsulation (1, 3), and
 * two each of push and pop; else -EINVAL. Without one that ends the way the frame then goes as
 * after a miss. A table must have a higher level than the matcher's (so tables cannot lead in a
 * circle), else -EINVAL.
 *
 * Rules with equal values: at level 0 each of them gets the frame, as it came; deeper the oldest.
 * They are a list, so making or removing one costs time in proportion to those that are there.
 */
VB_PUBLIC int vb_steer_rule_create(struct vb_steer_matcher *matcher, const void *value, size_t len,
				   struct vb_steer_action *const *actions, size_t count,
				   unsigned int flags, struct vb_steer_rule **rule,
				   const char **why);
/* Always succeeds. */
VB_PUBLIC void vb_steer_rule_destroy(struct vb_steer_rule *rule);

/* --- frames ----------------------------------------------------------------------------------- */

/* What travels with a frame. Register C6 and C7 are matched and modified as the others. */
struct vb_steer_meta {
	uint32_t reg_a; /* NIC_TX, FDB: the metadata of the send WQE */
	uint32_t reg_b; /* NIC_RX: the flow-table metadata of the CQE */
	uint32_t reg_c[8];
	uint32_t tag;         /* 24 bits; 0: no rule set one */
	uint32_t source_sqn;  /* the queue that sent it, where it is known */
	uint16_t source_port; /* vport */
	/*
	 * NIC_RX: the port itself has sent it, to a unicast address that is not known as the port's.
	 * A rule that names the whole address makes it the port's: then this is false.
	 */
	bool foreign;
};

/*
 * A frame for a destination; frame and metadata are valid during the call and must not be changed.
 * It may be the frame that was given to vb_steer_run(), or an edited copy in the scratch area.
 */
typedef void vb_steer_emit(void *arg, const struct vb_steer_dest *dest,
			   const struct vb_frame *frame, const struct vb_steer_meta *meta);

/* What became of a frame; several bits where it was multiplied. */
enum vb_steer_result {
	VB_STEER_EMITTED = 1 << 0, /* emit was called */
	/* No rule ended its way: VB_STEER_TO_DEFAULT, _WIRE, _MANAGER, or a drop. */
	VB_STEER_MISSED = 1 << 1,
	/* By a rule, or by the miss of a NIC_RX table below the root or of a sniffer. */
	VB_STEER_DROPPED = 1 << 2,
	/* Over VB_STEER_MAX_HOPS, _SPLITS or _BRANCHES: what is beyond it is dropped. */
	VB_STEER_TOO_FAR = 1 << 3,
	/* An edit had no room, or there was no scratch area: dropped. */
	VB_STEER_NO_ROOM = 1 << 4,
};

/*
 * Bring a parsed frame through the tables, inside a read section. Misses: at level 0 TO_DEFAULT
 * (sniffers: drop); below NIC_RX and sniffers drop, NIC_TX TO_WIRE, FDB TO_MANAGER. A MISS inside
 * an array is TO_DEFAULT for NIC_RX at any level, since who mirrors a frame wants it to go its way.
 *
 * Each destination of an array, and each of several rules of equal value, is a branch. Arrays behind
 * arrays multiply; VB_STEER_MAX_BRANCHES bounds how often emit is called and how long a run takes.
 *
 * The actions of a rule take effect in the order of the hardware, not of the list: count, tag,
 * decapsulate, pop, modify, push, encapsulate, then go. An edit of what the frame has not (a tag to
 * pop, a TCP port of a UDP datagram) does nothing; a decapsulation of a frame without that tunnel
 * drops it. Modified fields have their IP, TCP and UDP checksums adjusted.
 *
 * The frame itself is never changed: edits happen in scratch (VB_STEER_SCRATCH bytes, one thread's
 * at a time; NULL: rules that edit drop). No allocation, no lock. Returns enum vb_steer_result
 * bits.
 */
VB_PUBLIC unsigned int vb_steer_run(struct vb_steer *steer, const struct vb_frame *frame,
				    const struct vb_steer_meta *meta, void *scratch,
				    vb_steer_emit *emit, void *arg);

/* No table has a matcher with a rule: vb_steer_run() would only say TO_DEFAULT. */
VB_PUBLIC bool vb_steer_empty(const struct vb_steer *steer);

/* --- looking at it ---------------------------------------------------------------------------- */

/* As text, a line per object: for mlx5dv_dump_dr_*(). NULL table: the whole domain. */
VB_PUBLIC void vb_steer_dump(struct vb_steer *steer, const struct vb_steer_table *table, FILE *to);
/* A matcher and its own rules; one rule. */
VB_PUBLIC void vb_steer_matcher_dump(const struct vb_steer_matcher *matcher, FILE *to);
VB_PUBLIC void vb_steer_rule_dump(struct vb_steer_rule *rule, FILE *to);

struct vb_steer_usage {
	uint64_t tables, matchers, rules;
	uint64_t bytes; /* of memory that tables, matchers and rules take */
};

VB_PUBLIC void vb_steer_usage(struct vb_steer *steer, struct vb_steer_usage *usage);
