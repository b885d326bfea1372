// SPDX-License-Identifier: MIT
/*
 * dpaeumgmt partition: EUs that one adapter gives to others, which then number them from 0. Output
 * is as the vendor's tool prints it. A VHCA is an adapter; its number is its place in the
 * configuration, as `dpaeumgmt info vhca` prints it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eumgmt/eumgmt.h"

int partition_info(struct work *work)
{
	struct vb_eu_view view = view_of(work);
	unsigned int partitions = view.partition ? 0 : VB_EU_PARTITIONS;

	cJSON_AddNumberToObject(work->out, "max_partitions", partitions);
	cJSON_AddNumberToObject(work->out, "max_vhcas_in_partition", VB_EU_VHCAS);
	cJSON_AddNumberToObject(work->out, "max_eu_groups", view.max_groups);
	cJSON_AddNumberToObject(work->out, "max_eus", view.count);
	if (work->args->json)
		return 0;
	printf("Max number of DPA EU partitions: %u\n", partitions);
	printf("Max number of VHCAs associated with a single partition: %d\n", VB_EU_VHCAS);
	printf("Max number of DPA EU groups: %u\n", view.max_groups);
	printf("Note- an allocation of a partition consumes from the number of DPA EU *groups* available to create\n");
	printf("Max number of DPA EUs available to use: %u\n", view.count);
	return 0;
}

static const struct vb_eu_partition *partition_find(const struct work *work, unsigned int id)
{
	const struct vb_eu_card *card = vb_eus_card(work->eus, work->adapter->name);

	return id && id <= VB_EU_PARTITIONS && card && card->partition[id - 1].max_groups
		       ? &card->partition[id - 1]
		       : NULL;
}

/* The number of an adapter; -1: this configuration has none of the name. */
static int vhca_number(const struct work *work, const char *name)
{
	for (unsigned int i = 0; i < work->config->num_adapters; i++)
		if (!strcmp(work->config->adapter[i].name, name))
			return (int)i;
	return -1;
}

static cJSON *partition_to_json(const struct work *work, unsigned int id)
{
	const struct vb_eu_partition *p = partition_find(work, id);
	cJSON *object = cJSON_CreateObject(), *list;

	cJSON_AddNumberToObject(object, "id", id);
	cJSON_AddNumberToObject(object, "max_eu_groups", p->max_groups);
	list = cJSON_AddArrayToObject(object, "vhcas");
	for (unsigned int i = 0; i < p->num_vhcas; i++) {
		cJSON *vhca = cJSON_CreateObject();
		int number = vhca_number(work, p->vhca[i]);

		if (number >= 0)
			cJSON_AddNumberToObject(vhca, "id", number);
		cJSON_AddStringToObject(vhca, "device", p->vhca[i]);
		cJSON_AddItemToArray(list, vhca);
	}
	cJSON_AddItemToObject(object, "eus", eus_json(&p->eus));
	return object;
}

static void partition_print(const struct work *work, unsigned int id)
{
	const struct vb_eu_partition *p = partition_find(work, id);
	char *eus = eus_text(&p->eus);

	printf("EU Partition ID: %u\nMaximal number of groups: %u\n", id, p->max_groups);
	printf("The partition has a total of %u associated VHCA IDs, namely: ", p->num_vhcas);
	for (unsigned int i = 0; i < p->num_vhcas; i++) {
		int number = vhca_number(work, p->vhca[i]);

		if (number >= 0)
			printf("%s%d", i ? "," : "", number);
		else
			printf("%s%s", i ? "," : "", p->vhca[i]);
	}
	printf("\nPartition's member EUs are: %s\n", eus);
	free(eus);
}

static int partition_show(struct work *work, unsigned int id)
{
	if (work->args->json)
		cJSON_AddItemToObject(work->out, "partition", partition_to_json(work, id));
	else
		partition_print(work, id);
	return 0;
}

/* "1,3-4": adapters by number, into names. */
static int read_vhcas(const struct work *work, struct vb_eu_partition *what)
{
	unsigned int list[VB_CONFIG_MAX_EUS], n;
	struct vb_eu_set set;
	char why[VB_EU_WHY];

	/* Numbers are written as those of EUs are; what they are is looked at below. */
	if (vb_eu_set_parse(work->args->vhcas, VB_CONFIG_MAX_EUS, &set, why))
		return refuse("'%s' is not a list of VHCAs such as 1,3: %s", work->args->vhcas,
			      why);
	n = vb_eu_set_list(&set, list);
	if (n > VB_EU_VHCAS)
		return refuse("a partition has at most %d VHCAs, not %u", VB_EU_VHCAS, n);
	for (unsigned int i = 0; i < n; i++) {
		if (list[i] >= work->config->num_adapters)
			return refuse("VHCA %u does not exist; `dpaeumgmt info vhca` lists them",
				      list[i]);
		if (work->config->adapter[list[i]].format != VB_FORMAT_MLX5)
			return refuse("VHCA %u is %s, which has no accelerator", list[i],
				      work->config->adapter[list[i]].name);
		memcpy(what->vhca[i], work->config->adapter[list[i]].name, VB_NAME_MAX);
	}
	what->num_vhcas = n;
	return 0;
}

/* EUs that change hands must not have device processes on them. */
static int check_idle(const struct work *work, const char *card)
{
	unsigned int n;
	pid_t one;

	n = processes_on(work, card, &one);
	return n ? refuse("%u device processes run on %s, one of process %d", n, card, (int)one)
		 : 0;
}

int partition_create(struct work *work)
{
	struct vb_eu_partition what = { .max_groups = work->args->max_groups };
	char why[VB_EU_WHY];
	int id;

	if (read_vhcas(work, &what))
		return 1;
	if (vb_eu_set_parse(work->args->range, view_of(work).count, &what.eus, why))
		return refuse("%s", why);
	if (check_idle(work, work->adapter->name))
		return 1;
	for (unsigned int i = 0; i < what.num_vhcas; i++)
		if (check_idle(work, what.vhca[i]))
			return 1;
	id = vb_eus_partition_create(work->eus, work->adapter->name, work->count, &what, why);
	if (id < 0)
		return refuse("%s", why);
	if (save(work))
		return 1;
	if (!work->args->json)
		printf("Partition created successfully-\n");
	return partition_show(work, (unsigned int)id);
}

int partition_query(struct work *work)
{
	cJSON *list;
	unsigned int n = 0;

	if (work->args->given & OPT_ID_PARTITION) {
		if (!partition_find(work, work->args->id_partition))
			return refuse("there is no EU partition %u on %s", work->args->id_partition,
				      work->adapter->name);
		return partition_show(work, work->args->id_partition);
	}
	list = cJSON_AddArrayToObject(work->out, "partitions");
	for (unsigned int id = 1; id <= VB_EU_PARTITIONS; id++) {
		if (!partition_find(work, id))
			continue;
		cJSON_AddItemToArray(list, partition_to_json(work, id));
		n++;
		if (work->args->json)
			continue;
		printf("%u) ", n);
		partition_print(work, id);
		printf("\n");
	}
	if (!work->args->json)
		printf("In total there are %u EU partitions configured.\n", n);
	return 0;
}

int partition_destroy(struct work *work)
{
	unsigned int id = work->args->id_partition;
	const struct vb_eu_partition *p = partition_find(work, id);
	char why[VB_EU_WHY];

	for (unsigned int i = 0; p && i < p->num_vhcas; i++)
		if (check_idle(work, p->vhca[i]))
			return 1;
	if (vb_eus_partition_destroy(work->eus, work->adapter->name, id, why))
		return refuse("%s", why);
	if (save(work))
		return 1;
	cJSON_AddNumberToObject(work->out, "destroyed_partition", id);
	if (!work->args->json)
		printf("Partition with partition id: %u, was destroyed successfully\n", id);
	return 0;
}
