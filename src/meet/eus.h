/* SPDX-License-Identifier: MIT */
/*
 * Who may run on which execution units (EUs) of an accelerator: groups and partitions, as dpaeumgmt
 * makes them and FlexIO obeys them.
 *
 *	mlx5_0   EUs 0 ... 189, its default partition
 *	         |- group 1 "rx"    6-8        affinity GROUP 1: only these
 *	         |- partition 1     10-20      no longer mlx5_0's; mlx5_1 has them, as EUs 0 ... 10
 *	         `- all others                 affinity NONE: the pool
 *	mlx5_1   EUs 0 ... 10, because a partition of mlx5_0 names it; groups of its own in them
 *
 * An adapter that no partition names has an accelerator of its own. EU numbers of an adapter in a
 * partition are virtual: 0 is the first EU of the partition. Groups of one adapter do not overlap,
 * neither do its partitions, nor a group and a partition.
 *
 * All this is part of the registry (registry.h). eus.c has the rules and the text form; they touch no file.
 * eus_store.c keeps the text in the registry's directory, where it outlives all processes. eus_uses.c has the
 * entries of processes that use it, which go with their slots. eus_user.c is what a program that runs
 * device code does with all that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/config.h"
#include "base/public.h"
#include "meet/registry.h"

enum {
	VB_EUS_DEFAULT = 190,  /* of an accelerator, as BlueField-3 has them */
	VB_EU_GROUPS = 15,     /* of one adapter, those that its partitions reserve included */
	VB_EU_PARTITIONS = 15, /* of one adapter */
	VB_EU_VHCAS = 32,      /* adapters in one partition */
	VB_EU_NAME_MAX = 15,   /* characters of a group's name */
	VB_EU_CARDS = 64, /* adapters in a store: programs may have configurations of their own */
	VB_EU_WHY = 256,  /* room for a reason, in bytes */
	VB_EU_TEXT_MAX = 1024 * 1024, /* longest store */
};

struct vb_eu_set {
	uint64_t word[VB_CONFIG_MAX_EUS / 64];
};

/* Number id - 1 of its card's array. */
struct vb_eu_group {
	char name[VB_EU_NAME_MAX + 1]; /* empty: there is no such group */
	struct vb_eu_set eus;          /* as the card numbers them */
};

struct vb_eu_partition {
	unsigned int max_groups; /* that its adapters may have; 0: there is no such partition */
	unsigned int num_vhcas;
	char vhca[VB_EU_VHCAS]
		 [VB_NAME_MAX]; /* names of adapters: a number depends on the configuration */
	struct vb_eu_set eus;
};

struct vb_eu_card {
	char name[VB_NAME_MAX];
	struct vb_eu_group group[VB_EU_GROUPS];
	struct vb_eu_partition partition[VB_EU_PARTITIONS];
};

struct vb_eus {
	unsigned int num_cards;
	struct vb_eu_card *card[VB_EU_CARDS];
};

/* An accelerator as programs on one adapter see it. */
struct vb_eu_view {
	unsigned int count;      /* EUs are numbered below this */
	unsigned int max_groups; /* that there may be at one time */
	unsigned int num_groups;
	unsigned int partition;    /* the adapter is in this one, 0: in its own default partition */
	char manager[VB_NAME_MAX]; /* ... of this adapter */
	struct vb_eu_set usable;   /* without those that were given to partitions */
	struct vb_eu_set pool;     /* usable and in no group: where affinity NONE runs */
};

/* ---- eus.c: sets, rules, text; why has room for VB_EU_WHY bytes ---- */

VB_PUBLIC bool vb_eu_set_has(const struct vb_eu_set *set, unsigned int eu);
void vb_eu_set_add(struct vb_eu_set *set, unsigned int eu);
VB_PUBLIC unsigned int vb_eu_set_count(const struct vb_eu_set *set);
/* The highest number in it; -1: it is empty. */
int vb_eu_set_last(const struct vb_eu_set *set);
/* The members in ascending order; returns how many. list has room for VB_CONFIG_MAX_EUS. */
VB_PUBLIC unsigned int vb_eu_set_list(const struct vb_eu_set *set, unsigned int *list);
/* "6-8,16": numbers below count, each once. 0, or -EINVAL with the reason. */
int vb_eu_set_parse(const char *text, unsigned int count, struct vb_eu_set *set, char *why);
/* As it is written, "6-8,16", or every number, "6,7,8,16". malloc()ed; NULL: no memory. */
char *vb_eu_set_text(const struct vb_eu_set *set, bool ranges);

struct vb_eus *vb_eus_new(void);
VB_PUBLIC void vb_eus_free(struct vb_eus *eus);
/* The card of this name, or NULL. */
struct vb_eu_card *vb_eus_card(const struct vb_eus *eus, const char *name);
/* Nothing is in it. */
bool vb_eus_is_empty(const struct vb_eus *eus);

/* count: the EUs that the adapter's own accelerator has. */
void vb_eus_view(const struct vb_eus *eus, const char *card, unsigned int count,
		 struct vb_eu_view *view);

/*
 * The id, or -errno with the reason, and nothing is changed then. count as above: 0 for a text that
 * is read, where the configuration is not known.
 */
int vb_eus_group_create(struct vb_eus *eus, const char *card, unsigned int count, const char *name,
			const struct vb_eu_set *set, char *why);
int vb_eus_group_destroy(struct vb_eus *eus, const char *card, unsigned int id, char *why);
/* The id of a name, 0 where there is none. */
unsigned int vb_eus_group_find(const struct vb_eus *eus, const char *card, const char *name);
/* vhcas: *what is to be created, with names and sets filled in. */
int vb_eus_partition_create(struct vb_eus *eus, const char *card, unsigned int count,
			    const struct vb_eu_partition *what, char *why);
int vb_eus_partition_destroy(struct vb_eus *eus, const char *card, unsigned int id, char *why);

/* The store's text: malloc()ed, NULL where there is no memory. */
char *vb_eus_text(const struct vb_eus *eus, size_t *len);
/*
 * Back from it: 0, or -EUCLEAN with the reason. Only what vb_eus_text() could have written is
 * accepted, to the byte.
 */
int vb_eus_parse(const char *text, size_t len, struct vb_eus **eus, char *why);

/* ---- eus_store.c: what is kept; under the lock of the registry ---- */

/* What is in it; where there is no registry, nothing. 0, or -errno after a log line. */
int vb_eus_read(const struct vb_registry *registry, struct vb_eus **eus);
/* Replace it as a whole. 0, or -errno after a log line, and then the old one is there. */
int vb_eus_write(const struct vb_registry *registry, const struct vb_eus *eus);

/* ---- eus_uses.c: which process uses what ---- */

struct vb_eu_use; /* an entry of the registry file (registry_file.h) */

/* Under the lock: the registry file with its entries, mapped. 0, or -errno after a log line. */
int vb_eu_uses_map(const struct vb_registry *registry, struct vb_registry_file **file);
void vb_eu_uses_unmap(struct vb_registry_file *file);
/* Under the lock: an entry of this host for an adapter; NULL after a log line where all are taken. */
struct vb_eu_use *vb_eu_use_begin(const struct vb_registry *registry, struct vb_registry_file *file,
				  const char *card);
/* By the host that has it, without the lock, but for a group that is being taken. */
void vb_eu_use_end(struct vb_eu_use *use);
void vb_eu_use_group(struct vb_eu_use *use, unsigned int id, bool on);
void vb_eu_use_processes(struct vb_eu_use *use, unsigned int n);

/*
 * Under the lock: how many processes have threads in a group, or how many device processes there are on an adapter,
 * and the host process of one of them. -errno after a log line where that cannot be seen.
 */
int vb_eus_group_users(const struct vb_registry *registry, const char *card, unsigned int id,
		       pid_t *one);
int vb_eus_processes(const struct vb_registry *registry, const char *card, pid_t *one);

/* ---- eus_user.c: a program with device code ---- */

struct vb_eus_user;

/* For a host that has joined the registry: 0, -ENODEV where it has not, or -errno after a log line. */
VB_PUBLIC int vb_eus_user_begin(struct vb_registry *registry, const char *card, unsigned int count,
				struct vb_eus_user **user, struct vb_eu_view *view);
VB_PUBLIC void vb_eus_user_end(struct vb_eus_user *user);
/* The number of device processes that the program has on the adapter. */
VB_PUBLIC void vb_eus_user_processes(struct vb_eus_user *user, unsigned int n);
/*
 * Look at the store: true where it may have changed since the last look, and then *view is what it
 * says now. A store that cannot be read changes nothing.
 */
VB_PUBLIC bool vb_eus_user_look(struct vb_eus_user *user, struct vb_eu_view *view);
/*
 * Use a group: 0 and its EUs, or -errno with the reason. As often as it is taken it is dropped.
 */
VB_PUBLIC int vb_eus_user_take(struct vb_eus_user *user, unsigned int id, struct vb_eu_set *set,
			       char *why);
VB_PUBLIC void vb_eus_user_drop(struct vb_eus_user *user, unsigned int id);
