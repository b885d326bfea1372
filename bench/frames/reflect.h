/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the reflector benchmark share: the table (reflect.c), RAW_PACKET queue pairs
 * (reflect_qp.c), AF_PACKET (reflect_veth.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The MAC that samples/l2-reflector takes frames for, and that of who sends them. */
#define REFLECTOR_MAC 0x02427e7feb03ull
#define SENDER_MAC    0x0200be000001ull

enum {
	BATCH = 16,   /* frames that are posted together */
	WINDOW = 64,  /* frames on their way, at most */
	SLOT = 2048,  /* bytes of a buffer */
	FLOWS = 64,   /* UDP ports that the sender uses in turn */
	GIVE_UP = 200 /* ms without a frame: what is on its way is lost */
};

double now(void);         /* nanoseconds */
void ready(const char *); /* a reflector says that it is there */
void die(const char *what) __attribute__((noreturn));

/* A frame of a flow; both MACs are set. */
void make_frame(uint8_t *frame, uint32_t size, uint32_t flow);
/* In place; the frame lies at an even address. */
void swap_macs(uint8_t *frame);

/* A sender: open once for a frame size, then send until n have come back; adds to *lost what did not. */
struct sender {
	void (*open)(uint32_t size);
	void (*run)(uint64_t n, uint64_t *lost);
	void (*close)(void);
};

extern const struct sender qp_sender, veth_sender;

/* Reflect until killed. */
void qp_reflect(void) __attribute__((noreturn));
void veth_reflect(void) __attribute__((noreturn));
/* A pair of network devices for it; false: not allowed here. */
bool veth_make(void);
