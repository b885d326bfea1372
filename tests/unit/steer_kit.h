/* SPDX-License-Identifier: MIT */
/*
 * What the tests of src/steer share: frames to steer, match parameters by bit, and a net that
 * catches what is emitted.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "steer/steer.h"

enum { KIT_CAUGHT = 16, KIT_BYTES = 512 };

/* Bits of struct fte_match_param. */
enum {
	BIT_SMAC = 0x0,
	BIT_ETHERTYPE = 0x30,
	BIT_DMAC = 0x40,
	BIT_FIRST_VID = 0x74,
	BIT_PROTOCOL = 0x80,
	BIT_UDP_DPORT = 0xf0,
	BIT_DST_IPV4 = 0x1e0,
	BIT_REG_C0 = 0x760,
};

struct caught {
	struct vb_steer_dest dest;
	uint8_t bytes[KIT_BYTES];
	uint32_t len;
	struct vb_steer_meta meta;
	const uint8_t *data;
};

struct kit {
	struct vb_steer *steer;
	struct vb_steer_table *root;
	struct vb_steer_meta meta;
	uint8_t frame[KIT_BYTES];
	uint32_t len;
	struct caught caught[KIT_CAUGHT];
	unsigned int count;  /* of caught */
	unsigned int result; /* of the last run */
};

struct param {
	uint8_t bytes[VB_STEER_PARAM];
};

void kit_set(struct param *param, uint32_t bit, uint32_t width, uint64_t value);
struct param kit_param(uint32_t bit, uint32_t width, uint64_t value);

/* A domain of the kind with a root table. */
void kit_open(struct kit *kit, enum vb_steer_kind kind);
/* All objects that a test made are gone by then. */
void kit_close(struct kit *kit);
/* A UDP datagram over IPv4 to this MAC and port. */
void kit_udp(struct kit *kit, uint64_t dmac, uint16_t dport);
/* Steer the frame; true: exactly one was caught, for this number of VB_STEER_DO_DEST. */
void kit_run(struct kit *kit);
void kit_expect(struct kit *kit, uint64_t number);
void kit_expect_to(struct kit *kit, enum vb_steer_to to);
void kit_expect_nothing(struct kit *kit, unsigned int result);

struct vb_steer_action *kit_dest(uint64_t number);
struct vb_steer_action *kit_table(struct vb_steer_table *table);
struct vb_steer_action *kit_plain(enum vb_steer_do what);
struct vb_steer_action *kit_action(const struct vb_steer_action_attr *attr);
struct vb_steer_matcher *kit_matcher(struct vb_steer_table *table, uint16_t priority, uint32_t bit,
				     uint32_t width);
struct vb_steer_rule *kit_rule(struct vb_steer_matcher *matcher, uint32_t bit, uint32_t width,
			       uint64_t value, struct vb_steer_action *action);
struct vb_steer_rule *kit_rule_of(struct vb_steer_matcher *matcher, const struct param *value,
				  struct vb_steer_action *const *actions, size_t count);
