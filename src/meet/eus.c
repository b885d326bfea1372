// SPDX-License-Identifier: MIT
/*
 * Owns the rules of EU groups and partitions, and the text that a store is made of. Touches no
 * file; who calls it holds the store's lock, or has the only copy.
 *
 * The text, one object a line, cards in the order in which they came, objects by number:
 *
 *	verbatim-eus 1
 *	card mlx5_0
 *	partition 1 1 10-20 mlx5_1       number, groups it reserves, EUs, its adapters
 *	group 1 6-8 rx queue             number, EUs, name: the rest of the line
 *	end 4a1c0b1de9d4a5f2             FNV-1a of all lines above
 *
 * Reading one creates the objects by the same functions as dpaeumgmt, so that a text cannot say
 * what no command could have made; writing what was read must then give the same text again.
 */
#include "meet/eus.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE "verbatim-eus 1"
#define LAST_LINE  "end"

enum { WORDS = VB_CONFIG_MAX_EUS / 64 };

__attribute__((format(printf, 3, 4))) static int eus_refuse(char *why, int err, const char *fmt,
							    ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, VB_EU_WHY, fmt, args);
	va_end(args);
	return err;
}

/* ---- sets ---- */

bool vb_eu_set_has(const struct vb_eu_set *set, unsigned int eu)
{
	return eu < VB_CONFIG_MAX_EUS && set->word[eu / 64] >> eu % 64 & 1;
}

void vb_eu_set_add(struct vb_eu_set *set, unsigned int eu)
{
	set->word[eu / 64] |= 1ull << eu % 64;
}

static void set_remove(struct vb_eu_set *set, const struct vb_eu_set *others)
{
	for (unsigned int i = 0; i < WORDS; i++)
		set->word[i] &= ~others->word[i];
}

/* The first EU that is in both, or -1. */
static int set_common(const struct vb_eu_set *a, const struct vb_eu_set *b)
{
	for (unsigned int i = 0; i < WORDS; i++)
		if (a->word[i] & b->word[i])
			return (int)i * 64 + __builtin_ctzll(a->word[i] & b->word[i]);
	return -1;
}

unsigned int vb_eu_set_count(const struct vb_eu_set *set)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < WORDS; i++)
		n += (unsigned int)__builtin_popcountll(set->word[i]);
	return n;
}

int vb_eu_set_last(const struct vb_eu_set *set)
{
	for (int i = WORDS - 1; i >= 0; i--)
		if (set->word[i])
			return i * 64 + 63 - __builtin_clzll(set->word[i]);
	return -1;
}

unsigned int vb_eu_set_list(const struct vb_eu_set *set, unsigned int *list)
{
	unsigned int n = 0;

	for (unsigned int eu = 0; eu < VB_CONFIG_MAX_EUS; eu++)
		if (vb_eu_set_has(set, eu))
			list[n++] = eu;
	return n;
}

/* Decimal digits only, at most six of them: no sign, no space, no overflow. */
static const char *eus_parse_number(const char *text, unsigned int *value)
{
	unsigned int digits = 0;

	for (*value = 0; isdigit((unsigned char)*text) && digits < 6; digits++)
		*value = *value * 10 + (unsigned int)(*text++ - '0');
	return digits && !isdigit((unsigned char)*text) ? text : NULL;
}

static int eus_add_range(struct vb_eu_set *set, unsigned int first, unsigned int last,
			 unsigned int count, char *why)
{
	if (first > last)
		return eus_refuse(why, -EINVAL, "%u-%u: a range begins with the smaller number",
				  first, last);
	if (last >= count)
		return eus_refuse(why, -EINVAL, "EU %u does not exist; EUs are numbered 0 to %u",
				  last, count - 1);
	for (unsigned int eu = first; eu <= last; eu++) {
		if (vb_eu_set_has(set, eu))
			return eus_refuse(why, -EINVAL, "EU %u is named twice", eu);
		vb_eu_set_add(set, eu);
	}
	return 0;
}

int vb_eu_set_parse(const char *text, unsigned int count, struct vb_eu_set *set, char *why)
{
	const char *p = text;
	unsigned int first, last;
	int err;

	memset(set, 0, sizeof(*set));
	do {
		p = eus_parse_number(p, &first);
		last = first;
		if (p && *p == '-')
			p = eus_parse_number(p + 1, &last);
		if (!p || (*p && *p != ','))
			return eus_refuse(why, -EINVAL,
					  "'%.64s' is not a list of EUs such as 0-7,12", text);
		err = eus_add_range(set, first, last, count, why);
		if (err)
			return err;
	} while (*p++);
	return 0;
}

char *vb_eu_set_text(const struct vb_eu_set *set, bool ranges)
{
	const char *comma = "";
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	for (unsigned int eu = 0; eu < VB_CONFIG_MAX_EUS; eu++) {
		unsigned int last = eu;

		if (!vb_eu_set_has(set, eu))
			continue;
		while (ranges && vb_eu_set_has(set, last + 1))
			last++;
		fprintf(f, last > eu ? "%s%u-%u" : "%s%u", comma, eu, last);
		comma = ",";
		eu = last;
	}
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- cards ---- */

struct vb_eus *vb_eus_new(void)
{
	return calloc(1, sizeof(struct vb_eus));
}

void vb_eus_free(struct vb_eus *eus)
{
	for (unsigned int i = 0; eus && i < eus->num_cards; i++)
		free(eus->card[i]);
	free(eus);
}

struct vb_eu_card *vb_eus_card(const struct vb_eus *eus, const char *name)
{
	for (unsigned int i = 0; i < eus->num_cards; i++)
		if (!strcmp(eus->card[i]->name, name))
			return eus->card[i];
	return NULL;
}

static bool card_is_empty(const struct vb_eu_card *card)
{
	for (unsigned int i = 0; i < VB_EU_GROUPS; i++)
		if (card->group[i].name[0])
			return false;
	for (unsigned int i = 0; i < VB_EU_PARTITIONS; i++)
		if (card->partition[i].max_groups)
			return false;
	return true;
}

bool vb_eus_is_empty(const struct vb_eus *eus)
{
	return !eus->num_cards;
}

/* As the configuration allows them: a file is named after it. */
static bool is_card_name(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("_-.", name[i]))
			return false;
	return len && len < VB_NAME_MAX;
}

/* The card of this name, made where there is none. */
static struct vb_eu_card *card_get(struct vb_eus *eus, const char *name, char *why)
{
	struct vb_eu_card *card = vb_eus_card(eus, name);

	if (card)
		return card;
	card = eus->num_cards < VB_EU_CARDS ? calloc(1, sizeof(*card)) : NULL;
	if (!card) {
		eus_refuse(why, 0, "no room for groups of a further adapter");
		return NULL;
	}
	snprintf(card->name, sizeof(card->name), "%s", name);
	eus->card[eus->num_cards++] = card;
	return card;
}

/* After something was removed: cards with nothing in them are not kept. */
static void card_put(struct vb_eus *eus, struct vb_eu_card *card)
{
	if (!card_is_empty(card))
		return;
	for (unsigned int i = 0; i < eus->num_cards; i++) {
		if (eus->card[i] != card)
			continue;
		memmove(&eus->card[i], &eus->card[i + 1],
			(eus->num_cards - i - 1) * sizeof(eus->card[0]));
		eus->num_cards--;
		free(card);
		return;
	}
}

/* The partition that an adapter is in, NULL for its own default partition. */
static const struct vb_eu_partition *partition_of(const struct vb_eus *eus, const char *name,
						  const struct vb_eu_card **manager,
						  unsigned int *id)
{
	for (unsigned int c = 0; c < eus->num_cards; c++) {
		for (unsigned int i = 0; i < VB_EU_PARTITIONS; i++) {
			const struct vb_eu_partition *p = &eus->card[c]->partition[i];

			for (unsigned int v = 0; p->max_groups && v < p->num_vhcas; v++) {
				if (strcmp(p->vhca[v], name))
					continue;
				*manager = eus->card[c];
				*id = i + 1;
				return p;
			}
		}
	}
	return NULL;
}

/* The groups of a card, and those that its partitions have reserved. */
static unsigned int groups_taken(const struct vb_eu_card *card)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < VB_EU_GROUPS; i++)
		n += card->group[i].name[0] != 0;
	for (unsigned int i = 0; i < VB_EU_PARTITIONS; i++)
		n += card->partition[i].max_groups;
	return n;
}

void vb_eus_view(const struct vb_eus *eus, const char *name, unsigned int count,
		 struct vb_eu_view *view)
{
	const struct vb_eu_card *card = vb_eus_card(eus, name), *manager = NULL;
	unsigned int id = 0;
	const struct vb_eu_partition *in = partition_of(eus, name, &manager, &id);

	memset(view, 0, sizeof(*view));
	view->count = in ? vb_eu_set_count(&in->eus) : count;
	view->max_groups = in ? in->max_groups : VB_EU_GROUPS;
	view->partition = id;
	if (in)
		memcpy(view->manager, manager->name, sizeof(view->manager));
	for (unsigned int eu = 0; eu < view->count; eu++)
		vb_eu_set_add(&view->usable, eu);
	for (unsigned int i = 0; card && i < VB_EU_PARTITIONS; i++) {
		if (!card->partition[i].max_groups)
			continue;
		set_remove(&view->usable, &card->partition[i].eus);
		view->max_groups -= card->partition[i].max_groups;
	}
	view->pool = view->usable;
	for (unsigned int i = 0; card && i < VB_EU_GROUPS; i++) {
		if (!card->group[i].name[0])
			continue;
		set_remove(&view->pool, &card->group[i].eus);
		view->num_groups++;
	}
}

/* ---- groups ---- */

static int check_name(const char *name, char *why)
{
	size_t len = strlen(name);

	if (!len || len > VB_EU_NAME_MAX)
		return eus_refuse(why, -EINVAL,
				  "the name of a group has 1 to %d characters, this one %zu",
				  VB_EU_NAME_MAX, len);
	for (size_t i = 0; i < len; i++)
		if (!isprint((unsigned char)name[i]))
			return eus_refuse(
				why, -EINVAL,
				"the name of a group consists of printable ASCII characters");
	if (name[0] == ' ' || name[len - 1] == ' ')
		return eus_refuse(why, -EINVAL,
				  "the name of a group neither begins nor ends with a space");
	return 0;
}

unsigned int vb_eus_group_find(const struct vb_eus *eus, const char *card_name, const char *name)
{
	const struct vb_eu_card *card = vb_eus_card(eus, card_name);

	for (unsigned int i = 0; card && name[0] && i < VB_EU_GROUPS; i++)
		if (!strcmp(card->group[i].name, name))
			return i + 1;
	return 0;
}

/* Against what the adapter has: numbers, other groups, partitions. */
static int eus_check_group(const struct vb_eu_card *card, const struct vb_eu_view *view,
			   const struct vb_eu_set *set, char *why)
{
	int eu = vb_eu_set_last(set);

	if (eu < 0)
		return eus_refuse(why, -EINVAL, "no EU is named");
	if (eu >= (int)view->count)
		return eus_refuse(why, -EINVAL, "EU %d does not exist; EUs are numbered 0 to %u",
				  eu, view->count - 1);
	for (unsigned int i = 0; card && i < VB_EU_GROUPS; i++) {
		eu = card->group[i].name[0] ? set_common(set, &card->group[i].eus) : -1;
		if (eu >= 0)
			return eus_refuse(why, -EEXIST, "EU %d is in EU group %u (%s)", eu, i + 1,
					  card->group[i].name);
	}
	for (unsigned int i = 0; card && i < VB_EU_PARTITIONS; i++) {
		eu = card->partition[i].max_groups ? set_common(set, &card->partition[i].eus) : -1;
		if (eu >= 0)
			return eus_refuse(why, -EEXIST, "EU %d belongs to EU partition %u", eu,
					  i + 1);
	}
	return 0;
}

/* id 0: the first that is free. */
static int group_create(struct vb_eus *eus, const char *card_name, unsigned int count,
			unsigned int id, const char *name, const struct vb_eu_set *set, char *why)
{
	struct vb_eu_card *card = vb_eus_card(eus, card_name);
	struct vb_eu_view view;
	int err;

	vb_eus_view(eus, card_name, count, &view);
	err = check_name(name, why);
	if (!err)
		err = eus_check_group(card, &view, set, why);
	if (err)
		return err;
	if (vb_eus_group_find(eus, card_name, name))
		return eus_refuse(why, -EEXIST, "there is an EU group %u of the name %s",
				  vb_eus_group_find(eus, card_name, name), name);
	if (view.num_groups >= view.max_groups)
		return eus_refuse(why, -ENOSPC, "%s has %u EU groups; there cannot be more",
				  card_name, view.num_groups);
	card = card_get(eus, card_name, why);
	if (!card)
		return -ENOSPC;
	for (unsigned int i = 0; !id; i++)
		if (!card->group[i].name[0])
			id = i + 1;
	if (id > VB_EU_GROUPS || card->group[id - 1].name[0])
		return eus_refuse(why, -EEXIST, "EU group %u cannot be", id);
	snprintf(card->group[id - 1].name, sizeof(card->group[0].name), "%s", name);
	card->group[id - 1].eus = *set;
	return (int)id;
}

int vb_eus_group_create(struct vb_eus *eus, const char *card, unsigned int count, const char *name,
			const struct vb_eu_set *set, char *why)
{
	return group_create(eus, card, count, 0, name, set, why);
}

int vb_eus_group_destroy(struct vb_eus *eus, const char *card_name, unsigned int id, char *why)
{
	struct vb_eu_card *card = vb_eus_card(eus, card_name);

	if (!card || !id || id > VB_EU_GROUPS || !card->group[id - 1].name[0])
		return eus_refuse(why, -ENOENT, "there is no EU group %u on %s", id, card_name);
	memset(&card->group[id - 1], 0, sizeof(card->group[0]));
	card_put(eus, card);
	return 0;
}

/* ---- partitions ---- */

static int check_vhcas(const struct vb_eus *eus, const char *card_name,
		       const struct vb_eu_partition *what, char *why)
{
	if (!what->num_vhcas || what->num_vhcas > VB_EU_VHCAS)
		return eus_refuse(why, -EINVAL, "a partition has 1 to %d VHCAs, this one %u",
				  VB_EU_VHCAS, what->num_vhcas);
	for (unsigned int i = 0; i < what->num_vhcas; i++) {
		const struct vb_eu_card *manager;
		const char *name = what->vhca[i];
		unsigned int id;

		if (!is_card_name(name))
			return eus_refuse(why, -EINVAL, "'%.32s' is not the name of an adapter",
					  name);
		if (!strcmp(name, card_name))
			return eus_refuse(why, -EINVAL,
					  "%s manages the partitions and stays in its default one",
					  name);
		if (partition_of(eus, name, &manager, &id))
			return eus_refuse(why, -EEXIST, "%s is in EU partition %u of %s", name, id,
					  manager->name);
		if (vb_eus_card(eus, name))
			return eus_refuse(why, -EBUSY, "%s has EU groups or partitions of its own",
					  name);
		for (unsigned int j = 0; j < i; j++)
			if (!strcmp(what->vhca[j], name))
				return eus_refuse(why, -EINVAL, "%s is named twice", name);
	}
	return 0;
}

static int check_partition(const struct vb_eus *eus, const char *card_name, unsigned int count,
			   const struct vb_eu_partition *what, char *why)
{
	const struct vb_eu_card *card = vb_eus_card(eus, card_name), *manager;
	unsigned int id, taken = card ? groups_taken(card) : 0;
	struct vb_eu_view view;
	int err;

	if (partition_of(eus, card_name, &manager, &id))
		return eus_refuse(
			why, -EPERM,
			"%s is in EU partition %u of %s and cannot have partitions itself",
			card_name, id, manager->name);
	if (!what->max_groups || what->max_groups > VB_EU_GROUPS)
		return eus_refuse(why, -EINVAL, "a partition has 1 to %d EU groups at most, not %u",
				  VB_EU_GROUPS, what->max_groups);
	err = check_vhcas(eus, card_name, what, why);
	if (err)
		return err;
	vb_eus_view(eus, card_name, count, &view);
	err = eus_check_group(card, &view, &what->eus, why);
	if (err)
		return err;
	if (taken + what->max_groups > VB_EU_GROUPS)
		return eus_refuse(why, -ENOSPC, "%u of the %d EU groups of %s are free, not %u",
				  VB_EU_GROUPS - taken, VB_EU_GROUPS, card_name, what->max_groups);
	return 0;
}

static int partition_create(struct vb_eus *eus, const char *card_name, unsigned int count,
			    unsigned int id, const struct vb_eu_partition *what, char *why)
{
	int err = check_partition(eus, card_name, count, what, why);
	struct vb_eu_card *card;

	if (err)
		return err;
	card = card_get(eus, card_name, why);
	if (!card)
		return -ENOSPC;
	/* Each reserves a group at least, so that there is a number as long as there are groups. */
	for (unsigned int i = 0; !id; i++)
		if (!card->partition[i].max_groups)
			id = i + 1;
	if (id > VB_EU_PARTITIONS || card->partition[id - 1].max_groups)
		return eus_refuse(why, -EEXIST, "EU partition %u cannot be", id);
	card->partition[id - 1] = *what;
	return (int)id;
}

int vb_eus_partition_create(struct vb_eus *eus, const char *card, unsigned int count,
			    const struct vb_eu_partition *what, char *why)
{
	return partition_create(eus, card, count, 0, what, why);
}

int vb_eus_partition_destroy(struct vb_eus *eus, const char *card_name, unsigned int id, char *why)
{
	struct vb_eu_card *card = vb_eus_card(eus, card_name);
	struct vb_eu_partition *p;

	if (!card || !id || id > VB_EU_PARTITIONS || !card->partition[id - 1].max_groups)
		return eus_refuse(why, -ENOENT, "there is no EU partition %u on %s", id, card_name);
	p = &card->partition[id - 1];
	for (unsigned int i = 0; i < p->num_vhcas; i++)
		if (vb_eus_card(eus, p->vhca[i]))
			return eus_refuse(why, -EBUSY, "%s has EU groups in EU partition %u",
					  p->vhca[i], id);
	memset(p, 0, sizeof(*p));
	card_put(eus, card);
	return 0;
}

/* ---- text ---- */

static int print_partition(FILE *f, unsigned int id, const struct vb_eu_partition *p)
{
	char *set = vb_eu_set_text(&p->eus, true);

	if (!set)
		return -ENOMEM;
	fprintf(f, "partition %u %u %s ", id, p->max_groups, set);
	for (unsigned int i = 0; i < p->num_vhcas; i++)
		fprintf(f, "%s%s", i ? "," : "", p->vhca[i]);
	fputc('\n', f);
	free(set);
	return 0;
}

static int print_card(FILE *f, const struct vb_eu_card *card)
{
	fprintf(f, "card %s\n", card->name);
	for (unsigned int i = 0; i < VB_EU_PARTITIONS; i++)
		if (card->partition[i].max_groups && print_partition(f, i + 1, &card->partition[i]))
			return -ENOMEM;
	for (unsigned int i = 0; i < VB_EU_GROUPS; i++) {
		char *set;

		if (!card->group[i].name[0])
			continue;
		set = vb_eu_set_text(&card->group[i].eus, true);
		if (!set)
			return -ENOMEM;
		fprintf(f, "group %u %s %s\n", i + 1, set, card->group[i].name);
		free(set);
	}
	return 0;
}

/* FNV-1a: finds what a crash or an editor did to the file. It is not against an enemy. */
static uint64_t eus_hash(const char *text, size_t len)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
	return h;
}

char *vb_eus_text(const struct vb_eus *eus, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);
	int err = 0;

	if (!f)
		return NULL;
	fputs(FIRST_LINE "\n", f);
	for (unsigned int i = 0; i < eus->num_cards && !err; i++)
		err = print_card(f, eus->card[i]);
	if (!err && !fflush(f))
		fprintf(f, LAST_LINE " %016" PRIx64 "\n", eus_hash(text, *len));
	if (!fclose(f) && !err)
		return text;
	free(text);
	return NULL;
}

/* Cut the next word off; NULL where there is none, or nothing behind it. */
static char *next_word(char **line)
{
	char *word = *line, *space = strchr(word, ' ');

	if (!space || space == word)
		return NULL;
	*space = 0;
	*line = space + 1;
	return word;
}

/* "ID " at the front of a line. */
static bool read_id(char **line, unsigned int *id)
{
	char *word = next_word(line);
	const char *end = word ? eus_parse_number(word, id) : NULL;

	return end && !*end && *id;
}

static int eus_read_group(struct vb_eus *eus, const char *card, char *line, char *why)
{
	struct vb_eu_set set;
	unsigned int id;
	char *word;
	int err;

	if (!read_id(&line, &id) || !(word = next_word(&line)))
		return eus_refuse(why, -EINVAL, "not a group");
	err = vb_eu_set_parse(word, VB_CONFIG_MAX_EUS, &set, why);
	return err ? err : group_create(eus, card, VB_CONFIG_MAX_EUS, id, line, &set, why);
}

static int read_partition(struct vb_eus *eus, const char *card, char *line, char *why)
{
	struct vb_eu_partition what = { 0 };
	unsigned int id;
	char *word, *save = NULL;
	int err;

	if (!read_id(&line, &id) || !read_id(&line, &what.max_groups) || !(word = next_word(&line)))
		return eus_refuse(why, -EINVAL, "not a partition");
	err = vb_eu_set_parse(word, VB_CONFIG_MAX_EUS, &what.eus, why);
	if (err)
		return err;
	for (word = strtok_r(line, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (what.num_vhcas == VB_EU_VHCAS || strlen(word) >= VB_NAME_MAX)
			return eus_refuse(why, -EINVAL, "not a partition");
		strcpy(what.vhca[what.num_vhcas++], word);
	}
	return partition_create(eus, card, VB_CONFIG_MAX_EUS, id, &what, why);
}

/* One line of a card; *card is the one that it belongs to. */
static int eus_read_line(struct vb_eus *eus, struct vb_eu_card **card, char *line, char *why)
{
	const char *word = next_word(&line);

	if (word && !strcmp(word, "card")) {
		if (!is_card_name(line) || vb_eus_card(eus, line))
			return eus_refuse(why, -EINVAL, "not the name of a card");
		*card = card_get(eus, line, why);
		return *card ? 0 : -ENOSPC;
	}
	if (word && *card && !strcmp(word, "group"))
		return eus_read_group(eus, (*card)->name, line, why);
	if (word && *card && !strcmp(word, "partition"))
		return read_partition(eus, (*card)->name, line, why);
	return eus_refuse(why, -EINVAL, "neither a card, a group nor a partition");
}

static int eus_read_lines(struct vb_eus *eus, char *text, char *why)
{
	struct vb_eu_card *card = NULL;
	char reason[VB_EU_WHY];
	unsigned int number = 1;

	for (char *line = text, *end; *line; line = end + 1) {
		end = strchr(line, '\n');
		if (!end)
			return eus_refuse(why, -EUCLEAN, "line %u has no end", number);
		*end = 0;
		if (number == 1 ? strcmp(line, FIRST_LINE) != 0
				: strncmp(line, LAST_LINE " ", 4) &&
					  eus_read_line(eus, &card, line, reason) < 0)
			return eus_refuse(why, -EUCLEAN, "line %u: %.200s", number,
					  number == 1 ? "not of this version" : reason);
		number++;
	}
	for (unsigned int i = 0; i < eus->num_cards; i++)
		if (card_is_empty(eus->card[i]))
			return eus_refuse(why, -EUCLEAN, "%s has nothing", eus->card[i]->name);
	return 0;
}

int vb_eus_parse(const char *text, size_t len, struct vb_eus **out, char *why)
{
	struct vb_eus *eus = vb_eus_new();
	char *copy = len <= VB_EU_TEXT_MAX ? malloc(len + 1) : NULL, *again = NULL;
	size_t again_len = 0;
	int err = 0;

	if (!eus || !copy)
		err = eus_refuse(why, len > VB_EU_TEXT_MAX ? -EUCLEAN : -ENOMEM, "%s",
				 len > VB_EU_TEXT_MAX ? "it is too long" : "no memory");
	if (!err) {
		memcpy(copy, text, len);
		copy[len] = 0;
		err = eus_read_lines(eus, copy, why);
	}
	if (!err)
		again = vb_eus_text(eus, &again_len);
	if (!err && (again_len != len || !again || memcmp(text, again, len)))
		err = eus_refuse(why, -EUCLEAN, "it is cut off, or not as it was written");
	free(again);
	free(copy);
	if (err)
		vb_eus_free(eus);
	else
		*out = eus;
	return err;
}
