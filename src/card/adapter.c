// SPDX-License-Identifier: MIT
/*
 * Owns the adapters of a card, open devices and protection domains.
 */
#include "card/device.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/time.h"
#include "base/interfaces.h"
#include "card/ether/ether.h"
#include "card/fault/fault.h"
#include "card/memory/mr.h"
#include "card/shown.h"
#include "card/sink.h"
#include "host/fault.h"

static uint32_t limit(uint32_t configured, uint32_t own)
{
	return configured && configured < own ? configured : own;
}

/*
 * The node GUID as hardware derives it: the MAC address with ff:fe in the middle, made distinct per
 * adapter.
 */
static __be64 make_guid(const uint8_t mac[6], unsigned int index)
{
	uint8_t guid[8] = { (uint8_t)(mac[0] ^ 2),    mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4],
			    (uint8_t)(mac[5] + index) };
	__be64 value;

	memcpy(&value, guid, sizeof(value));
	return value;
}

/*
 * The link-local address that the MAC address makes: hardware has it in front of the GID table,
 * whatever the interface has.
 */
static void link_local(const uint8_t mac[6], union ibv_gid *gid)
{
	__be64 id = make_guid(mac, 0);

	*gid = (union ibv_gid){ .raw = { 0xfe, 0x80 } };
	memcpy(&gid->raw[8], &id, sizeof(id));
}

static void add_gid(struct vb_adapter *adapter, const union ibv_gid *gid, enum ibv_gid_type type)
{
	if (adapter->num_gids < adapter->gid_table_len)
		adapter->gids[adapter->num_gids++] =
			(struct vb_gid){ *gid, type, adapter->config->ifindex };
}

static void add_both(struct vb_adapter *adapter, const union ibv_gid *gid)
{
	add_gid(adapter, gid, IBV_GID_TYPE_ROCE_V1);
	add_gid(adapter, gid, IBV_GID_TYPE_ROCE_V2);
}

/*
 *	0, 1    link-local, RoCE v1 and v2
 *	2, 3    the first IPv4 address, v1 and v2: guides tell people to use index 3
 *	4, 5    the next one; IPv6 addresses follow
 */
static void init_gids(struct vb_adapter *adapter)
{
	const struct vb_config_adapter *config = adapter->config;
	union ibv_gid own, gid;

	adapter->gid_table_len = VB_GID_TABLE_LEN;
	link_local(config->mac, &own);
	add_both(adapter, &own);
	for (int ipv4 = 1; ipv4 >= 0; ipv4--) {
		for (unsigned int i = 0; i < config->num_addresses; i++) {
			memcpy(&gid, &config->address[i], sizeof(gid));
			if (!IN6_IS_ADDR_V4MAPPED(&config->address[i]) == !ipv4 &&
			    memcmp(&gid, &own, sizeof(gid)))
				add_both(adapter, &gid);
		}
	}
}

/* Behind the GID that each port has of its own, see vb_adapter_gid(). */
static void init_hbl_gids(struct vb_adapter *adapter)
{
	const struct vb_config_adapter *config = adapter->config;
	union ibv_gid gid;

	adapter->gid_table_len = VB_HBL_GID_TABLE_LEN;
	for (unsigned int i = 0; i < config->num_addresses; i++) {
		memcpy(&gid, &config->address[i], sizeof(gid));
		add_gid(adapter, &gid, IBV_GID_TYPE_ROCE_V2);
	}
}

/* A port with a TAP is alone on its cable, whose name no other can have. */
static uint64_t adapter_cable_of(const struct vb_config_adapter *config)
{
	char name[sizeof(config->tap) + 4];

	if (!config->tap[0])
		return vb_cable_number(config->cable);
	snprintf(name, sizeof(name), "tap/%s", config->tap);
	return vb_cable_number(name);
}

void vb_adapter_plug_in(struct vb_adapter *adapter)
{
	atomic_store_explicit(&adapter->cable, adapter_cable_of(adapter->config),
			      memory_order_relaxed);
}

static void init_adapter(struct vb_card *card, unsigned int index,
			 const struct vb_config_adapter *config)
{
	struct vb_adapter *adapter = &card->adapters.all[index];

	adapter->card = card;
	adapter->index = index;
	adapter->config = config;
	vb_adapter_identify(adapter);
	adapter->guid = make_guid(config->mac, index);
	vb_adapter_plug_in(adapter);
	adapter->max_qp = limit(config->max_qp, 32768);
	adapter->max_cq = limit(config->max_cq, 65536);
	adapter->max_mr = limit(config->max_mr, 262128);
	adapter->max_srq = limit(config->max_srq, 32768);
	adapter->max_pd = 65536;
	adapter->max_ah = 1 << 20;
	if (config->format == VB_FORMAT_HBL)
		init_hbl_gids(adapter);
	else
		init_gids(adapter);
	card->adapters.list[index] = adapter;
}

void vb_adapters_init(struct vb_card *card, const struct vb_config *config)
{
	if (!config) {
		card->adapters.status = -EINVAL;
		return;
	}
	card->adapters.count = config->num_adapters;
	for (unsigned int i = 0; i < card->adapters.count; i++)
		init_adapter(card, i, &config->adapter[i]);
}

int vb_card_adapters(struct vb_card *card, struct vb_adapter *const **list, unsigned int *count)
{
	if (card->adapters.status)
		return card->adapters.status;
	*list = card->adapters.list;
	*count = card->adapters.count;
	return 0;
}

static enum ibv_mtu mtu_enum(unsigned int mtu)
{
	return mtu >= 4096   ? IBV_MTU_4096
	       : mtu >= 2048 ? IBV_MTU_2048
	       : mtu >= 1024 ? IBV_MTU_1024
	       : mtu >= 512  ? IBV_MTU_512
			     : IBV_MTU_256;
}

void vb_adapter_query_port(const struct vb_adapter *adapter, uint32_t port,
			   struct ibv_port_attr *attr)
{
	bool up = !adapter->config->down && !vb_port_is_cut(adapter, port);

	*attr = (struct ibv_port_attr){
		.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_enum(adapter->config->mtu),
		.gid_tbl_len = (int)adapter->gid_table_len,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = 1u << VB_MAX_MSG_LOG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2,  /* 4x */
		.active_speed = 64, /* HDR: the card's own copy is about as fast as such a link */
		.phys_state = up ? 5 : 3,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};
}

/*
 * Ports of hbl adapters may share the host's addresses, so each has a link-local GID of its own in
 * front, made of the adapter's GUID and the port.
 */
int vb_adapter_gid(const struct vb_adapter *adapter, uint32_t port, unsigned int index,
		   struct vb_gid *out)
{
	bool own = adapter->config->format == VB_FORMAT_HBL;

	if (own && !index) {
		*out = (struct vb_gid){ .gid.raw = { 0xfe, 0x80 }, .type = IBV_GID_TYPE_ROCE_V2 };
		memcpy(&out->gid.raw[8], &adapter->guid, sizeof(adapter->guid));
		out->gid.raw[14] ^= (uint8_t)port;
		out->ifindex = adapter->config->ifindex;
		return 0;
	}
	index -= own;
	if (index >= adapter->num_gids)
		return -ENODATA;
	*out = adapter->gids[index];
	return 0;
}

/* Once: what comes and goes later is not seen. */
static const struct vb_interfaces *read_interfaces(struct vb_card *card)
{
	VB_NO_CANCEL; /* getifaddrs() is a cancellation point */
	struct vb_interfaces *interfaces = &card->adapters.interfaces;

	pthread_mutex_lock(&card->adapters.interfaces_lock);
	if (!card->adapters.interfaces_read && vb_interfaces_read(interfaces))
		interfaces->count = 0; /* then only configured addresses are known to be ours */
	card->adapters.interfaces_read = true;
	pthread_mutex_unlock(&card->adapters.interfaces_lock);
	return interfaces;
}

void vb_adapters_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->adapters.interfaces_lock, NULL);
}

/*
 * The GID that an adapter on one of the interfaces has in front, also in a process with another
 * configuration.
 */
static bool is_made_of_mac(const struct vb_interfaces *interfaces, const union ibv_gid *gid)
{
	union ibv_gid made;

	for (unsigned int i = 0; i < interfaces->count; i++) {
		link_local(interfaces->list[i].mac, &made);
		if (!memcmp(&made, gid, sizeof(made)))
			return true;
	}
	return false;
}

bool vb_card_gid_is_local(struct vb_card *card, const union ibv_gid *gid)
{
	const struct vb_interfaces *interfaces;

	for (unsigned int a = 0; a < card->adapters.count; a++)
		for (unsigned int i = 0; i < card->adapters.all[a].num_gids; i++)
			if (!memcmp(&card->adapters.all[a].gids[i].gid, gid, sizeof(*gid)))
				return true;
	interfaces = read_interfaces(card);
	return vb_interface_by_address(interfaces, (const struct in6_addr *)gid) ||
	       is_made_of_mac(interfaces, gid);
}

const struct vb_codec *vb_adapter_codec(const struct vb_adapter *adapter)
{
	static const struct vb_codec *const codecs[VB_FORMATS] = {
		[VB_FORMAT_MLX5] = &vb_codec_mlx5,
		[VB_FORMAT_MLX4] = &vb_codec_mlx4,
	};

	return codecs[adapter->config->format];
}

uint64_t vb_clock(void)
{
	return vb_now_ns();
}

/* --- devices ---------------------------------------------------------------------------------- */

int vb_dev_open(struct vb_adapter *adapter, void (*async)(void *arg, const struct vb_event *event),
		void *arg, struct vb_dev **out)
{
	struct vb_dev *dev;
	int ret;

	if (!adapter)
		return -EINVAL;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return -ENOMEM;
	ret = vb_fault_arm();
	if (!ret)
		ret = vb_fabric_start(adapter->card->host, &vb_card_sink);
	if (ret) {
		free(dev);
		return ret;
	}
	ret = vb_inject_begin(adapter->card);
	if (ret) {
		vb_fabric_stop(adapter->card->fabric);
		free(dev);
		return ret;
	}
	dev->adapter = adapter;
	dev->async = async;
	dev->async_arg = arg;
	dev->epoch = vb_fabric_epoch(adapter->card->fabric);
	vb_cable_joined(adapter->card);
	vb_show_adapter(adapter, 1);
	vb_inject_opened(dev);
	*out = dev;
	return 0;
}

int vb_dev_close(struct vb_dev *dev)
{
	if (vb_dev_stale(dev)) {
		free(dev);
		return 0;
	}
	if (atomic_load_explicit(&dev->objects, memory_order_acquire))
		return vb_refuse_busy("objects of other libraries");
	vb_inject_closing(dev);
	vb_dev_set_wq_range(dev, 0);
	vb_show_adapter(dev->adapter, -1);
	vb_fabric_stop(vb_dev_card(dev)->fabric);
	free(dev);
	return 0;
}

const struct vb_adapter *vb_dev_adapter(const struct vb_dev *dev)
{
	return dev->adapter;
}

bool vb_dev_stale(const struct vb_dev *dev)
{
	return dev->epoch != vb_fabric_epoch(vb_dev_card(dev)->fabric);
}

void vb_dev_event(struct vb_dev *dev, enum ibv_event_type type, void *cookie)
{
	if (dev->async)
		dev->async(dev->async_arg,
			   &(struct vb_event){ .type = type, .cookie = cookie, .port = 1 });
}

bool vb_progress_once(struct vb_card *card)
{
	return vb_fabric_progress(card->fabric);
}

void vb_progress_unpolled(struct vb_dev *dev)
{
	vb_fabric_unpolled(vb_dev_card(dev)->fabric);
}

bool vb_progress(struct vb_dev *dev)
{
	return !vb_dev_stale(dev) && vb_fabric_poll(vb_dev_card(dev)->fabric);
}

/* --- protection domains ----------------------------------------------------------------------- */

int vb_pd_alloc(struct vb_dev *dev, struct vb_pd **out)
{
	struct vb_pd *pd;
	int64_t number;
	int ret = vb_inject_create(dev, VB_INJECT_PD);

	if (ret)
		return ret;
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return vb_refuse_memory("the protection domain");
	number = vb_ids_take(&dev->adapter->card->numbers.pd, dev->adapter->max_pd);
	if (number < 0) {
		free(pd);
		return vb_refuse_numbers(dev->adapter->max_pd, "protection domains");
	}
	pd->dev = dev;
	pd->number = (uint32_t)number;
	atomic_fetch_add_explicit(&dev->objects, 1, memory_order_release);
	vb_lock(&dev->pds.lock);
	pd->next = dev->pds.first;
	dev->pds.first = pd;
	vb_unlock(&dev->pds.lock);
	*out = pd;
	return 0;
}

int vb_pd_dealloc(struct vb_pd *pd)
{
	struct vb_pd **at = &pd->dev->pds.first;

	vb_lock(&pd->dev->pds.lock);
	if (atomic_load_explicit(&pd->refs, memory_order_acquire)) {
		vb_unlock(&pd->dev->pds.lock);
		return vb_refuse_busy("memory regions, queue pairs or SRQs");
	}
	while (*at && *at != pd) /* in a forked child the list may lack it */
		at = &(*at)->next;
	if (*at)
		*at = pd->next;
	vb_unlock(&pd->dev->pds.lock);
	vb_ids_give(&pd->dev->adapter->card->numbers.pd, pd->number);
	atomic_fetch_sub_explicit(&pd->dev->objects, 1, memory_order_release);
	free(pd);
	return 0;
}

struct vb_pd *vb_pd_get(struct vb_dev *dev, uint32_t number)
{
	struct vb_pd *pd;

	vb_lock(&dev->pds.lock);
	for (pd = dev->pds.first; pd && pd->number != number; pd = pd->next)
		;
	if (pd)
		atomic_fetch_add_explicit(&pd->refs, 1, memory_order_release);
	vb_unlock(&dev->pds.lock);
	return pd;
}

void vb_pd_put(struct vb_pd *pd)
{
	/* Pairs with the acquire in vb_pd_dealloc(). */
	atomic_fetch_sub_explicit(&pd->refs, 1, memory_order_release);
}

uint32_t vb_pd_number(const struct vb_pd *pd)
{
	return pd->number;
}
