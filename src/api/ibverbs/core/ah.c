// SPDX-License-Identifier: MIT
/*
 * Address handles: where a datagram goes, kept as the address vector that the provider copies into
 * each WQE.
 *
 * On RoCE a route is always global: a GID of ours and one of the destination. A received datagram
 * has 40 bytes in front of its data, laid out as a global routing header; for IPv4 the last 20 of
 * them are the IPv4 header.
 */
#include "objects.h"

#include <arpa/inet.h>
#include <net/if_arp.h>
#include <netinet/ip.h>
#include <stdio.h>

#include "card/card.h"

enum { FLOW_LABEL_MASK = 0xfffff };

/* --- GIDs and Ethernet addresses -------------------------------------------------------------- */

static bool gid_is_ipv4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

static bool gid_is_multicast(const union ibv_gid *gid)
{
	return gid_is_ipv4(gid) ? (gid->raw[12] & 0xf0) == 0xe0 : gid->raw[0] == 0xff;
}

/* A link-local address in EUI-64 form contains the Ethernet address. */
static bool mac_from_link_local(const union ibv_gid *gid, uint8_t mac[ETHERNET_LL_SIZE])
{
	const uint8_t *id = gid->raw + 8;

	if (gid->raw[0] != 0xfe || (gid->raw[1] & 0xc0) != 0x80 || id[3] != 0xff || id[4] != 0xfe)
		return false;
	memcpy(mac, id, 3);
	memcpy(mac + 3, id + 5, 3);
	mac[0] ^= 2;
	return true;
}

static bool mac_from_arp(const union ibv_gid *gid, uint8_t mac[ETHERNET_LL_SIZE])
{
	char line[256], address[INET_ADDRSTRLEN], wanted[INET_ADDRSTRLEN];
	unsigned int flags, m[ETHERNET_LL_SIZE];
	bool found = false;
	FILE *file;

	if (!gid_is_ipv4(gid) || !inet_ntop(AF_INET, gid->raw + 12, wanted, sizeof(wanted)))
		return false;
	file = fopen("/proc/net/arp", "re");
	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%15s 0x%*x 0x%x %x:%x:%x:%x:%x:%x", address, &flags, &m[0], &m[1],
			   &m[2], &m[3], &m[4], &m[5]) != 8)
			continue;
		found = (flags & ATF_COM) && !strcmp(address, wanted);
	}
	fclose(file);
	for (int i = 0; found && i < ETHERNET_LL_SIZE; i++)
		mac[i] = (uint8_t)m[i];
	return found;
}

static bool resolve_mac(const struct vb_adapter *adapter, const union ibv_gid *gid,
			uint8_t mac[ETHERNET_LL_SIZE])
{
	if (vb_card_gid_is_local(adapter->card, gid)) {
		memcpy(mac, adapter->config->mac, ETHERNET_LL_SIZE);
		return true;
	}
	return mac_from_link_local(gid, mac) || mac_from_arp(gid, mac);
}

static int check_route(const struct vb_adapter *adapter, const struct ibv_ah_attr *attr)
{
	if (attr->port_num != 1)
		return -vb_refuse_port(attr->port_num, adapter->config->ports,
				       adapter->config->name);
	if (!attr->is_global)
		return -vb_refuse_no_grh();
	if (attr->grh.sgid_index >= adapter->num_gids)
		return -vb_refuse_sgid_index(attr->grh.sgid_index, adapter->num_gids,
					     adapter->config->name);
	return 0;
}

/* No VLAN is ever used, so *vid stays as the caller set it. */
VB_PUBLIC int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					  uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	uint8_t mac[ETHERNET_LL_SIZE];
	int err;

	API_CALL(API_DEVICE(context));
	if (!context || !attr || !eth_mac)
		return api_refuse(null, "context, attr or eth_mac");
	err = check_route(context_adapter(context), attr);
	if (err)
		return api_fail(err);
	if (!resolve_mac(context_adapter(context), &attr->grh.dgid, mac))
		return api_refuse(no_neighbour);
	memcpy(eth_mac, mac, sizeof(mac));
	return 0;
}

/* --- address handles -------------------------------------------------------------------------- */

static int verbs_ah_check_attr(const struct vb_adapter *adapter, const struct ibv_ah_attr *attr)
{
	int err = check_route(adapter, attr);

	if (err)
		return err;
	return gid_is_multicast(&attr->grh.dgid) ? -vb_refuse_unsupported("multicast") : 0;
}

VB_PUBLIC struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	const struct api_provider *provider;
	const struct vb_adapter *adapter;
	uint8_t mac[ETHERNET_LL_SIZE];
	struct api_ah *ah;
	int err;

	API_CALL(API_DEVICE(pd ? pd->context : NULL));
	if (!pd || !attr)
		return api_refuse_null(null, "pd or attr");
	provider = provider_of(pd->context);
	if (!provider->fill_ah)
		return api_refuse_null(unsupported, "address handles of this adapter");
	adapter = context_adapter(pd->context);
	err = verbs_ah_check_attr(adapter, attr);
	if (err)
		return api_null(err);
	ah = calloc(1, provider->ah_bytes);
	if (!ah)
		return api_refuse_null(memory, "the address handle");
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	if (!resolve_mac(adapter, &attr->grh.dgid, mac))
		memset(mac, 0, sizeof(mac));
	provider->fill_ah(ah, adapter, attr, mac);
	api_pd_get(pd);
	return &ah->ibv;
}

VB_PUBLIC int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (!ah)
		return api_refuse(null, "ah");
	api_pd_put(ah->pd);
	free(ah);
	return 0;
}

/* --- answering a datagram --------------------------------------------------------------------- */

static int find_gid(const struct vb_adapter *adapter, const union ibv_gid *gid,
		    enum ibv_gid_type type)
{
	for (unsigned int i = 0; i < adapter->num_gids; i++) {
		if (adapter->gids[i].type == type &&
		    !memcmp(&adapter->gids[i].gid, gid, sizeof(*gid)))
			return (int)i;
	}
	return -1;
}

static void map_ipv4(uint32_t address, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &address, sizeof(address));
}

/*
 * Sender, our own GID and route parameters from the 40 bytes. IPv6 and IPv4 are told apart by the
 * version field, RoCE v1 from v2 over IPv6 by what follows the header.
 */
static int route_from_grh(const struct ibv_grh *grh, union ibv_gid *own, enum ibv_gid_type *type,
			  struct ibv_global_route *route)
{
	enum { IB_NEXT_HEADER = 0x1b };
	uint32_t version_tclass_flow = be32toh(grh->version_tclass_flow);
	struct iphdr ip;

	*type = IBV_GID_TYPE_ROCE_V2;
	if (version_tclass_flow >> 28 == 6) {
		if (grh->next_hdr == IB_NEXT_HEADER)
			*type = IBV_GID_TYPE_ROCE_V1;
		else if (grh->next_hdr != IPPROTO_UDP)
			return -1;
		route->dgid = grh->sgid;
		*own = grh->dgid;
		route->flow_label = version_tclass_flow & FLOW_LABEL_MASK;
		route->hop_limit = grh->hop_limit;
		route->traffic_class = (uint8_t)(version_tclass_flow >> 20);
		return 0;
	}
	memcpy(&ip, (const char *)grh + sizeof(*grh) - sizeof(ip), sizeof(ip));
	if (ip.version != 4 || ip.ihl != 5)
		return -1;
	map_ipv4(ip.saddr, &route->dgid);
	map_ipv4(ip.daddr, own);
	route->flow_label = 0;
	route->hop_limit = ip.ttl;
	route->traffic_class = ip.tos;
	return 0;
}

VB_PUBLIC int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
				  struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
{
	struct ibv_ah_attr attr = { 0 };
	enum ibv_gid_type type;
	union ibv_gid own;
	int index;

	API_CALL(API_DEVICE(context));
	if (!context || !wc || !ah_attr) {
		api_refuse(null, "context, wc or ah_attr");
		return -1;
	}
	if (port < 1 || port > context_adapter(context)->config->ports) {
		api_refuse(port, port, context_adapter(context)->config->ports,
			   context->device->name);
		return -1;
	}
	attr.dlid = wc->slid;
	attr.sl = wc->sl;
	attr.src_path_bits = wc->dlid_path_bits;
	attr.port_num = port;
	if (wc->wc_flags & IBV_WC_GRH) {
		index = grh && !route_from_grh(grh, &own, &type, &attr.grh)
				? find_gid(context_adapter(context), &own, type)
				: -1;
		if (index < 0) {
			api_refuse(combination,
				   "the GRH is missing, malformed, or for a GID of nobody here");
			return -1;
		}
		attr.is_global = 1;
		attr.grh.sgid_index = (uint8_t)index;
	}
	*ah_attr = attr;
	return 0;
}

VB_PUBLIC struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
					       struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	API_CALL(API_DEVICE(pd ? pd->context : NULL));
	if (!pd)
		return api_refuse_null(null, "pd");
	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
