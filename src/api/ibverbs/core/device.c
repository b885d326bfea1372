// SPDX-License-Identifier: MIT
/*
 * The device list: one ibv_device per adapter of the configuration.
 *
 * Devices are made once per process and stay, so that a pointer taken from a list is good after the
 * list was freed (the real library promises that only for opened devices; programs rely on more).
 */
#include "objects.h"

#include "card/card.h"

static pthread_once_t devices_once = PTHREAD_ONCE_INIT;
static struct vb_verbs_device *devices;
static unsigned int num_devices_found;
static int devices_error; /* of the configuration; positive errno */

static void devices_init(void)
{
	struct vb_adapter *const *list;
	unsigned int count;
	int rc = vb_card_adapters(vb_card_program(), &list, &count);

	if (rc) {
		devices_error = -rc;
		return;
	}
	devices = calloc(count ? count : 1, sizeof(*devices));
	if (!devices) {
		devices_error = ENOMEM;
		return;
	}
	for (unsigned int i = 0; i < count; i++)
		vb_verbs_device_init(&devices[i], list[i]);
	num_devices_found = count;
}

VB_PUBLIC struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list;

	if (num_devices)
		*num_devices = 0;
	pthread_once(&devices_once, devices_init);
	if (devices_error)
		return api_null(devices_error);
	list = calloc(num_devices_found + 1, sizeof(*list));
	if (!list)
		return api_refuse_null(memory, "the list");
	for (unsigned int i = 0; i < num_devices_found; i++)
		list[i] = &devices[i].ibv;
	if (num_devices)
		*num_devices = (int)num_devices_found;
	return list;
}

VB_PUBLIC void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

VB_PUBLIC const char *ibv_get_device_name(struct ibv_device *device)
{
	return device ? device->name : NULL;
}

VB_PUBLIC int ibv_get_device_index(struct ibv_device *device)
{
	return device ? (int)to_device(device)->adapter->index : -1;
}

VB_PUBLIC __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return device ? to_device(device)->adapter->guid : 0;
}

/*
 * The name under which providers open a device (IBVERBS_PRIVATE_34); only the hbl provider reads
 * private_data.
 */
VB_PUBLIC struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data)
{
	API_CALL(.kind = device ? device->name : NULL);
	if (!device)
		return api_refuse_null(null, "device");
	return api_context_open(to_device(device), private_data);
}

VB_PUBLIC struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	API_CALL(.kind = device ? device->name : NULL);
	if (!device)
		return api_refuse_null(null, "device");
	return api_context_open(to_device(device), NULL);
}
