// SPDX-License-Identifier: MIT
/*
 * dpaeumgmt info: what the accelerator is, what is on it now, and the numbers of the adapters.
 */
#include <stdio.h>
#include <string.h>

#include "tools/eumgmt/eumgmt.h"

enum { EUS_PER_CORE = 16, MAX_THREADS = 65536, MAX_PROCESS_THREADS = 16384, STACK_SIZE = 8192 };

struct row {
	const char *name;
	unsigned int value;
};

static int info_show(struct work *work, const struct row *rows, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		cJSON_AddNumberToObject(work->out, rows[i].name, rows[i].value);
		if (!work->args->json)
			printf("%s: %u\n", rows[i].name, rows[i].value);
	}
	return 0;
}

int info_chip(struct work *work)
{
	struct row rows[] = {
		{ "num_cores", (work->count + EUS_PER_CORE - 1) / EUS_PER_CORE },
		{ "eu_num", EUS_PER_CORE },
		{ "max_threads", MAX_THREADS },
		{ "max_threads_per_process", MAX_PROCESS_THREADS },
		{ "thread_stack_size", STACK_SIZE },
		{ "usable_eus", work->count },
	};

	return info_show(work, rows, sizeof(rows) / sizeof(rows[0]));
}

int info_status(struct work *work)
{
	const struct vb_eu_card *card = vb_eus_card(work->eus, work->adapter->name);
	struct vb_eu_view view = view_of(work);
	unsigned int partitions = 0;
	pid_t one;

	for (unsigned int i = 0; card && i < VB_EU_PARTITIONS; i++)
		partitions += card->partition[i].max_groups != 0;
	struct row rows[] = {
		{ "root", !view.partition },
		{ "processes", processes_on(work, work->adapter->name, &one) },
		{ "number_of_partitions", partitions },
		{ view.partition ? "number_of_groups" : "number_of_root_groups", view.num_groups },
		{ "eus", vb_eu_set_count(&view.usable) },
		{ "eus_in_no_group", vb_eu_set_count(&view.pool) },
	};
	return info_show(work, rows, sizeof(rows) / sizeof(rows[0]));
}

int info_vhca(struct work *work)
{
	cJSON *list = cJSON_AddArrayToObject(work->out, "vhcas");

	if (!work->args->json)
		printf("%-8s %-16s %s\n", "VHCA ID", "Device", "EU partition");
	for (unsigned int i = 0; i < work->config->num_adapters; i++) {
		const struct vb_config_adapter *a = &work->config->adapter[i];
		struct vb_eu_view view;
		cJSON *vhca;

		if (a->format != VB_FORMAT_MLX5)
			continue;
		vb_eus_view(work->eus, a->name, a->dpa_eus ? a->dpa_eus : VB_EUS_DEFAULT, &view);
		vhca = cJSON_CreateObject();
		cJSON_AddNumberToObject(vhca, "id", i);
		cJSON_AddStringToObject(vhca, "device", a->name);
		cJSON_AddNumberToObject(vhca, "partition", view.partition);
		if (view.partition)
			cJSON_AddStringToObject(vhca, "partition_of", view.manager);
		cJSON_AddItemToArray(list, vhca);
		if (work->args->json)
			continue;
		if (view.partition)
			printf("%-8u %-16s %u of %s\n", i, a->name, view.partition, view.manager);
		else
			printf("%-8u %-16s default\n", i, a->name);
	}
	return 0;
}
