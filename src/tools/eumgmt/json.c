// SPDX-License-Identifier: MIT
/*
 * Owns the form of a file for `dpaeumgmt eu_group apply`:
 *
 *	{ "eu_groups": [ { "name": "hg1", "range": "178-180" }, { "name": "hg2", "range": "2-10" } ] }
 *
 * text ends with a NUL. Strict: no other member, none twice, nothing behind the object. A typing error that is taken for
 * nothing would leave a program without its group.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/eumgmt/eumgmt.h"

enum { JSON_MAX = 1024 * 1024 };

/* The member of an object, which must be a string. */
static int string_of(const cJSON *object, const char *name, unsigned int at, const char **text,
		     char *why)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

	if (!item || !cJSON_IsString(item)) {
		snprintf(why, VB_EU_WHY, "group %u of the file: \"%s\" is %s", at, name,
			 item ? "not a string" : "missing");
		return -EINVAL;
	}
	*text = item->valuestring;
	return 0;
}

static int eumgmt_json_read_group(struct vb_eus *eus, const char *card, unsigned int count,
				  const cJSON *item, unsigned int at, char *why)
{
	const char *name, *range;
	char reason[VB_EU_WHY];
	struct vb_eu_set set;
	int ret;

	if (!cJSON_IsObject(item) || cJSON_GetArraySize(item) != 2) {
		snprintf(why, VB_EU_WHY,
			 "group %u of the file is not {\"name\": NAME, \"range\": EUS}", at);
		return -EINVAL;
	}
	ret = string_of(item, "name", at, &name, why);
	if (!ret)
		ret = string_of(item, "range", at, &range, why);
	if (ret)
		return ret;
	ret = vb_eu_set_parse(range, VB_CONFIG_MAX_EUS, &set, reason);
	if (!ret)
		ret = vb_eus_group_create(eus, card, count, name, &set, reason);
	if (ret < 0)
		snprintf(why, VB_EU_WHY, "group %u of the file: %.200s", at, reason);
	return ret < 0 ? ret : 0;
}

static int read_groups(struct vb_eus *eus, const char *card, unsigned int count, const cJSON *json,
		       char *why)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "eu_groups"), *item;
	unsigned int at = 0;
	int ret;

	if (!cJSON_IsArray(list) || cJSON_GetArraySize(json) != 1) {
		snprintf(why, VB_EU_WHY, "the file is not {\"eu_groups\": [GROUP, ...]}");
		return -EINVAL;
	}
	for (unsigned int id = 1; id <= VB_EU_GROUPS; id++)
		vb_eus_group_destroy(eus, card, id, why);
	cJSON_ArrayForEach(item, list)
	{
		ret = eumgmt_json_read_group(eus, card, count, item, ++at, why);
		if (ret)
			return ret;
	}
	return 0;
}

int groups_from_json(struct vb_eus *eus, const char *card, unsigned int count, const char *text,
		     size_t len, char *why)
{
	const char *end = NULL;
	cJSON *json;
	int ret;

	if (len > JSON_MAX) {
		snprintf(why, VB_EU_WHY, "the file is longer than %d bytes", JSON_MAX);
		return -EFBIG;
	}
	/* A string with a NUL in it would be another one than the file has. */
	if (memchr(text, 0, len) || strstr(text, "\\u0000")) {
		snprintf(why, VB_EU_WHY, "the file has a NUL character in it");
		return -EINVAL;
	}
	json = cJSON_ParseWithLengthOpts(text, len + 1, &end, true);
	if (!json) {
		unsigned int line = 1;

		for (const char *p = text; end && p < end && p < text + len; p++)
			line += *p == '\n';
		snprintf(why, VB_EU_WHY, "the file is not JSON: line %u", line);
		return -EINVAL;
	}
	ret = cJSON_IsObject(json) ? read_groups(eus, card, count, json, why) : -EINVAL;
	if (!cJSON_IsObject(json))
		snprintf(why, VB_EU_WHY, "the file is not {\"eu_groups\": [GROUP, ...]}");
	cJSON_Delete(json);
	return ret;
}
