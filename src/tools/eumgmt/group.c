// SPDX-License-Identifier: MIT
/*
 * dpaeumgmt eu_group: EU groups of one adapter, in the partition that the adapter is in. Output is
 * as the vendor's tool prints it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/eumgmt/eumgmt.h"

int group_info(struct work *work)
{
	struct vb_eu_view view = view_of(work);

	cJSON_AddNumberToObject(work->out, "max_eu_groups", view.max_groups);
	cJSON_AddNumberToObject(work->out, "max_eus_in_group", view.count);
	cJSON_AddNumberToObject(work->out, "max_eus", view.count);
	cJSON_AddNumberToObject(work->out, "max_name_length", VB_EU_NAME_MAX);
	if (work->args->json)
		return 0;
	printf("Max number of DPA EU groups: %u\n", view.max_groups);
	printf("Max number of DPA EUs in one DPA EU group: %u\n", view.count);
	printf("Max DPA EU number available to use: %u\n", view.count);
	printf("Max EU group name length is %d chars\n", VB_EU_NAME_MAX);
	return 0;
}

static const struct vb_eu_group *group_find(const struct work *work, unsigned int id)
{
	const struct vb_eu_card *card = vb_eus_card(work->eus, work->adapter->name);

	return id && id <= VB_EU_GROUPS && card && card->group[id - 1].name[0]
		       ? &card->group[id - 1]
		       : NULL;
}

static cJSON *group_to_json(unsigned int id, const struct vb_eu_group *group)
{
	cJSON *object = cJSON_CreateObject();

	cJSON_AddNumberToObject(object, "id", id);
	cJSON_AddStringToObject(object, "name", group->name);
	cJSON_AddItemToObject(object, "eus", eus_json(&group->eus));
	return object;
}

static void group_print(unsigned int id, const struct vb_eu_group *group)
{
	char *eus = eus_text(&group->eus);

	printf("EU group ID: %u\nEU group name: %s\nMember EUs are: %s\n", id, group->name, eus);
	free(eus);
}

/* One group, alone. */
static int group_show(struct work *work, unsigned int id)
{
	if (work->args->json)
		cJSON_AddItemToObject(work->out, "eu_group",
				      group_to_json(id, group_find(work, id)));
	else
		group_print(id, group_find(work, id));
	return 0;
}

static int show_all(struct work *work)
{
	cJSON *list = cJSON_AddArrayToObject(work->out, "eu_groups");
	unsigned int n = 0;

	for (unsigned int id = 1; id <= VB_EU_GROUPS; id++) {
		if (!group_find(work, id))
			continue;
		cJSON_AddItemToArray(list, group_to_json(id, group_find(work, id)));
		n++;
		if (work->args->json)
			continue;
		printf("%u) ", n);
		group_print(id, group_find(work, id));
		printf("\n");
	}
	if (!work->args->json)
		printf("In total there are %u EU groups configured.\n", n);
	return 0;
}

/* The group that -g or -n names; 0 after a message where there is none. */
static unsigned int named(const struct work *work)
{
	const struct arguments *args = work->args;
	unsigned int id = args->id_group;

	if (args->given & OPT_NAME_GROUP)
		id = vb_eus_group_find(work->eus, work->adapter->name, args->name);
	if (group_find(work, id))
		return id;
	if (args->given & OPT_NAME_GROUP)
		refuse("there is no EU group '%s' on %s", args->name, work->adapter->name);
	else
		refuse("there is no EU group %u on %s", id, work->adapter->name);
	return 0;
}

int group_create(struct work *work)
{
	struct vb_eu_view view = view_of(work);
	struct vb_eu_set set;
	char why[VB_EU_WHY];
	int id;

	if (vb_eu_set_parse(work->args->range, view.count, &set, why))
		return refuse("%s", why);
	id = vb_eus_group_create(work->eus, work->adapter->name, work->count, work->args->name,
				 &set, why);
	if (id < 0)
		return refuse("%s", why);
	if (save(work))
		return 1;
	if (!work->args->json)
		printf("Group created successfully-\n");
	return group_show(work, (unsigned int)id);
}

int group_query(struct work *work)
{
	unsigned int id;

	if (!(work->args->given & (OPT_ID_GROUP | OPT_NAME_GROUP)))
		return show_all(work);
	id = named(work);
	return id ? group_show(work, id) : 1;
}

static int check_unused(const struct work *work, unsigned int id)
{
	pid_t user = group_user(work, id);

	return user ? refuse("EU group %u is in use by process %d", id, (int)user) : 0;
}

int group_destroy(struct work *work)
{
	unsigned int id = named(work);
	char why[VB_EU_WHY];

	if (!id || check_unused(work, id))
		return 1;
	if (vb_eus_group_destroy(work->eus, work->adapter->name, id, why))
		return refuse("%s", why);
	if (save(work))
		return 1;
	cJSON_AddNumberToObject(work->out, "destroyed_eu_group", id);
	if (!work->args->json)
		printf("Group with group id: %u, was destroyed successfully\n", id);
	return 0;
}

char *group_file(const char *path, size_t *len)
{
	FILE *f = !strcmp(path, "-") ? stdin : fopen(path, "re");
	struct stat st;
	char *text;

	if (!f || fstat(fileno(f), &st) || S_ISDIR(st.st_mode)) {
		refuse("%s: %s", path, strerror(f && S_ISDIR(st.st_mode) ? EISDIR : errno));
		return NULL;
	}
	text = malloc(2 * VB_EU_TEXT_MAX);
	*len = text ? fread(text, 1, 2 * VB_EU_TEXT_MAX - 1, f) : 0;
	if (!text || ferror(f)) {
		refuse("%s: %s", path, strerror(errno));
		free(text);
		text = NULL;
	} else {
		text[*len] = 0;
	}
	if (f != stdin)
		fclose(f);
	return text;
}

int group_apply(struct work *work)
{
	char why[VB_EU_WHY];

	for (unsigned int id = 1; id <= VB_EU_GROUPS; id++)
		if (group_find(work, id) && check_unused(work, id))
			return 1;
	if (groups_from_json(work->eus, work->adapter->name, work->count, work->text,
			     work->text_len, why))
		return refuse("%s: %s", work->args->file, why);
	return save(work) ? 1 : show_all(work);
}
