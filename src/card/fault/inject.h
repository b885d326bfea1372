/* SPDX-License-Identifier: MIT */
/*
 * Faults on demand: what they are called, and who carries them out.
 *
 *	verbatim inject --- service --.
 *	VERBATIM_INJECT=FILE ---------+--> vb_inject_apply() --> ports, queue pairs, devices, creations: the card
 *	                                                   `--> execution units: whoever has them (vb_inject_serve_eus)
 *
 * A fault takes the card's own ways: a port that is down has paths that lead nowhere, a queue pair
 * fails as it does after an error of its own. The data path asks nobody whether there is a fault:
 * functions and paths of the objects concerned are exchanged (inject_port.c, inject_qp.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/config.h"
#include "base/public.h"

struct vb_adapter;
struct vb_card;

enum vb_inject_kind {
	VB_INJECT_PORT,     /* up, port */
	VB_INJECT_QP_ERROR, /* which, number */
	VB_INJECT_QP_NEXT,  /* which, number, status */
	VB_INJECT_QP_RECV,  /* which, number, status */
	VB_INJECT_FATAL,
	VB_INJECT_FAIL, /* object, count */
	VB_INJECT_EU,   /* number, slow */
};

enum vb_inject_which {
	VB_INJECT_NUMBER, /* by number */
	VB_INJECT_NTH,    /* the one that the program created as its n-th on the card, from 1 */
	VB_INJECT_ALL,
};

enum vb_inject_object {
	VB_INJECT_PD,
	VB_INJECT_MR,
	VB_INJECT_CQ,
	VB_INJECT_SRQ,
	VB_INJECT_QP,
	VB_INJECT_ANY,
	VB_INJECT_OBJECTS,
};

#define VB_INJECT_STUCK UINT32_MAX

struct vb_inject {
	enum vb_inject_kind kind;
	uint64_t at_ns; /* after the first adapter was opened */
	bool timed;     /* a time was given */
	char card[VB_NAME_MAX];
	enum vb_inject_which which;
	uint32_t number; /* of the port, queue pair or EU */
	bool up;
	enum ibv_wc_status status;
	enum vb_inject_object object;
	uint32_t count; /* of creations that fail */
	uint32_t
		slow; /* 0: as always; VB_INJECT_STUCK; else how many times as long everything takes */
};

enum { VB_INJECT_LINE = 256, VB_INJECT_LINES = 4096 };

/* What tools ask for a fault (control/ask/client.h): its line. */
#define VB_INJECT_SERVICE "inject"

/*
 * One line, not longer than VB_INJECT_LINE. 0; 1 where it is empty or a comment; -EINVAL and words.
 * The words are cut to what fits.
 */
VB_PUBLIC int vb_inject_parse(const char *line, struct vb_inject *fault, char *words, size_t size);

/*
 * A whole script: faults in the order of their times. The number of them, which the caller frees, or
 * -errno and words that name file and line.
 */
VB_PUBLIC int vb_inject_read(const char *file, struct vb_inject **faults, char *words, size_t size);

/*
 * Carry it out on this card, whatever its time. early: a port, EUs and creations may be of a card
 * that is not open yet. 0, or -errno and words: -ENODEV: the card is not open here; -ENOENT: no such
 * object; -EINVAL: not in its state; -EOPNOTSUPP: not on such a card.
 */
VB_PUBLIC int vb_inject_apply(struct vb_card *card, const struct vb_inject *fault, bool early,
			      char *words, size_t size);

/*
 * Who makes EUs slow: called for what was asked for before, then for each fault. It must not call the
 * card. 0, -ENOENT: no such EU. NULL: no more.
 */
VB_PUBLIC void vb_inject_serve_eus(const struct vb_adapter *adapter,
				   int (*serve)(void *arg, uint32_t eu, uint32_t slow), void *arg);

/* A creation on it that is about to be done: 0, -ENOMEM where it is asked to fail, -EIO where fatal. */
int vb_inject_refuse(const struct vb_adapter *adapter, bool fatal, enum vb_inject_object object);
