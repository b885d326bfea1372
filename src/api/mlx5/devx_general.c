// SPDX-License-Identifier: MIT
/*
 * Commands that ask about the card and its port, and make nothing (mlx5dv_devx_general_cmd): special
 * keys, contexts of virtual ports, RoCE addresses, the command interface itself, registers.
 */
#include "mlx5.h"

#include <endian.h>

#include "card/card.h"
#include "card/ether/flow.h"
#include "devx_bits.h"
#include "devx_table.h"

/* --- the command interface -------------------------------------------------------------------- */

enum { ISSI_CURRENT = 0x50, ISSI_SUPPORTED = 0x360, ISSI_BYTES = 112 };

/* Interface step 1, as all firmware of today has it; 0 is there, too. */
static int query_issi(struct devx_cmd *cmd)
{
	put(cmd->out, ISSI_CURRENT, 16, 1);
	put(cmd->out, ISSI_SUPPORTED, 32, 1 << 1 | 1 << 0);
	return 0;
}

/* The card needs no pages of the host. */
static int query_pages(struct devx_cmd *cmd)
{
	uint32_t when = get(cmd->in, DEVX_OP_MOD, 16);

	if (when < 1 || when > 3)
		return vb_refuse_range("op_mod", when, 1, 3);
	return 0;
}

/*
 * There are no special keys: neither one that discards what is written, nor one for all memory. The
 * capability bits say so.
 */
static int query_special_contexts(struct devx_cmd *cmd)
{
	return 0;
}

/* --- virtual ports ---------------------------------------------------------------------------- */

enum { OTHER_VPORT = 0x40, VPORT_NUMBER = 0x50, LIST_TYPE = 0x65 };

enum nic_vport_context {
	INLINE_MODE = 0x5,
	NO_LOOPBACK = 0x1d, /* multicast, unicast */
	ROCE_ENABLED = 0x1f,
	MTU = 0x130,
	SYSTEM_GUID = 0x140,
	PORT_GUID = 0x180,
	NODE_GUID = 0x1c0,
	PROMISCUOUS = 0x780, /* unicast, multicast, all */
	ADDRESS_LIST = 0x785,
	PERMANENT_ADDRESS = 0x7a0,
};

enum { VPORT_CONTEXT = 0x80, VPORT_BYTES = 272 };

static int check_vport(struct devx_cmd *cmd)
{
	uint32_t vport = get(cmd->in, VPORT_NUMBER, 16);

	if (get(cmd->in, OTHER_VPORT, 1) ? vport != VB_VPORT_WIRE && vport != VB_VPORT_MANAGER
					 : vport != VB_VPORT_MANAGER)
		return devx_refuse(cmd, DEVX_BAD_INDEX, vb_refuse_value("vport_number", vport));
	return 0;
}

/* The context of the port itself; the wire has none. */
static int check_own_vport(struct devx_cmd *cmd)
{
	uint32_t vport = get(cmd->in, VPORT_NUMBER, 16);

	return vport == VB_VPORT_MANAGER
		       ? 0
		       : devx_refuse(cmd, DEVX_BAD_INDEX, vb_refuse_value("vport_number", vport));
}

static void fill_vport(const struct vb_adapter *adapter, uint8_t *out, uint32_t at)
{
	const uint8_t *mac = adapter->config->mac;

	put(out, at + ROCE_ENABLED, 1, 1);
	put(out, at + MTU, 16, VB_CABLE_LONGEST - 18);
	put64(out, at + SYSTEM_GUID, be64toh(adapter->guid));
	put64(out, at + PORT_GUID, be64toh(adapter->guid));
	put64(out, at + NODE_GUID, be64toh(adapter->guid));
	memcpy(out + (at + PERMANENT_ADDRESS) / 8 + 2, mac, 6);
}

static int query_nic_vport(struct devx_cmd *cmd)
{
	int err = check_own_vport(cmd);

	if (err)
		return err;
	fill_vport(vb_dev_adapter(cmd->dev), cmd->out, VPORT_CONTEXT);
	/* No list of addresses: a port takes what rules and flows of its adapter ask for. */
	put(cmd->out, VPORT_CONTEXT + ADDRESS_LIST, 3, get(cmd->in, LIST_TYPE, 3));
	return 0;
}

/* Bits of field_select, and the fields that they stand for. Lists of addresses are empty. */
static const struct {
	uint8_t bit;
	uint8_t bits;
	uint16_t at;
} selectable[] = {
	{ 0x14, 1, NO_LOOPBACK + 1 }, { 0x15, 1, NO_LOOPBACK },        { 0x16, 64, NODE_GUID },
	{ 0x17, 64, PORT_GUID },      { 0x18, 3, INLINE_MODE },        { 0x19, 16, MTU },
	{ 0x1b, 3, PROMISCUOUS },     { 0x1c, 64, PERMANENT_ADDRESS }, { 0x1e, 1, ROCE_ENABLED },
};

enum { FIELD_SELECT = 0x60, MODIFY_CONTEXT = 0x800, MODIFY_BYTES = 512 };

/* The port is as its configuration has it: what a command sets must be so already. */
static int modify_nic_vport(struct devx_cmd *cmd)
{
	uint8_t now[VPORT_BYTES] = { 0 };
	uint32_t select = get(cmd->in, FIELD_SELECT, 32);
	int err = check_own_vport(cmd);

	if (err)
		return err;
	fill_vport(vb_dev_adapter(cmd->dev), now, VPORT_CONTEXT);
	for (size_t i = 0; i < sizeof(selectable) / sizeof(selectable[0]); i++) {
		uint32_t bit = 1u << (31 - selectable[i].bit), at = selectable[i].at;
		bool same;

		if (!(select & bit))
			continue;
		select &= ~bit;
		if (selectable[i].bits == 64)
			same = get64(cmd->in, MODIFY_CONTEXT + at) ==
			       get64(now, VPORT_CONTEXT + at);
		else
			same = get(cmd->in, MODIFY_CONTEXT + at, selectable[i].bits) ==
			       get(now, VPORT_CONTEXT + at, selectable[i].bits);
		if (!same)
			return vb_refuse_unsupported_value("a change of the port, field_select",
							   bit);
	}
	return select ? vb_refuse_bits("field_select", select) : 0;
}

/* No tags are put in or taken off on the way to a port. */
static int query_esw_vport(struct devx_cmd *cmd)
{
	return check_vport(cmd);
}

/* --- RoCE addresses --------------------------------------------------------------------------- */

enum { ADDRESS_INDEX = 0x40, ADDRESS_PORT = 0x5c, ADDRESS = 0x80, ADDRESS_BYTES = 48 };
enum { SOURCE_MAC = 0x90, L3_TYPE = 0xd4, ROCE_VERSION = 0xd8, VERSION_2 = 2 };

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

static int query_roce_address(struct devx_cmd *cmd)
{
	const struct vb_adapter *adapter = vb_dev_adapter(cmd->dev);
	uint32_t index = get(cmd->in, ADDRESS_INDEX, 16), port = get(cmd->in, ADDRESS_PORT, 4);
	struct vb_gid gid;

	port = port ? port : 1;
	if (port > adapter->config->ports)
		return devx_refuse(
			cmd, DEVX_BAD_INDEX,
			vb_refuse_range("vhca_port_num", port, 1, adapter->config->ports));
	if (index >= adapter->gid_table_len)
		return devx_refuse(cmd, DEVX_BAD_INDEX,
				   vb_refuse_range("roce_address_index", index, 0,
						   adapter->gid_table_len - 1));
	if (vb_adapter_gid(adapter, port, index, &gid))
		return 0; /* an empty entry is all zeros */
	memcpy(cmd->out + ADDRESS / 8, gid.gid.raw, sizeof(gid.gid.raw));
	memcpy(cmd->out + (ADDRESS + SOURCE_MAC) / 8, adapter->config->mac, 6);
	put(cmd->out, ADDRESS + L3_TYPE, 4, !is_ipv4(&gid.gid));
	put(cmd->out, ADDRESS + ROCE_VERSION, 8, gid.type == IBV_GID_TYPE_ROCE_V2 ? VERSION_2 : 0);
	return 0;
}

/* --- registers -------------------------------------------------------------------------------- */

enum { REGISTER_ID = 0x50, REGISTER = 0x80, PAOS = 0x5006, PAOS_BYTES = 16 };
enum { LOCAL_PORT = 0x8, ADMIN_STATUS = 0x14, OPER_STATUS = 0x1c, UP = 1, DOWN = 2 };

/* Whether the port is up; the only register. */
static int access_register(struct devx_cmd *cmd)
{
	const struct vb_adapter *adapter = vb_dev_adapter(cmd->dev);
	uint32_t id = get(cmd->in, REGISTER_ID, 16);
	struct ibv_port_attr attr;
	uint32_t port;

	if (id != PAOS)
		return vb_refuse_unsupported_value("register_id", id);
	if (get(cmd->in, DEVX_OP_MOD, 16) != 1)
		return vb_refuse_unsupported("writing a register");
	if (cmd->inlen < 16 + PAOS_BYTES)
		return devx_refuse(cmd, DEVX_BAD_INP_LEN,
				   vb_refuse_combination("the command ends before its register"));
	if (cmd->outlen < 16 + PAOS_BYTES)
		return devx_refuse(cmd, DEVX_BAD_OUTP_LEN,
				   vb_refuse_combination("the answer is too short for a register"));
	port = get(cmd->in, REGISTER + LOCAL_PORT, 8);
	if (port < 1 || port > adapter->config->ports)
		return devx_refuse(cmd, DEVX_BAD_INDEX,
				   vb_refuse_range("local_port", port, 1, adapter->config->ports));
	vb_adapter_query_port(adapter, port, &attr);
	put(cmd->out, REGISTER + LOCAL_PORT, 8, port);
	put(cmd->out, REGISTER + ADMIN_STATUS, 4, UP);
	put(cmd->out, REGISTER + OPER_STATUS, 4, attr.state == IBV_PORT_ACTIVE ? UP : DOWN);
	return 0;
}

#define GENERAL_ROW(name, opcode, in, out, run)                                           \
	{                                                                                 \
		name, opcode, 0, DEVX_GENERAL, VB_DEVX_NONE, in, out, DEVX_NO_NUMBER, run \
	}

const struct devx_row devx_general_rows[] = {
	GENERAL_ROW("QUERY_PAGES", 0x107, 16, 16, query_pages),
	GENERAL_ROW("QUERY_ISSI", 0x10a, 16, ISSI_BYTES, query_issi),
	GENERAL_ROW("QUERY_SPECIAL_CONTEXTS", 0x203, 16, 20, query_special_contexts),
	GENERAL_ROW("QUERY_ESW_VPORT_CONTEXT", 0x752, 16, VPORT_BYTES, query_esw_vport),
	GENERAL_ROW("QUERY_NIC_VPORT_CONTEXT", 0x754, 16, VPORT_BYTES, query_nic_vport),
	GENERAL_ROW("MODIFY_NIC_VPORT_CONTEXT", 0x755, MODIFY_BYTES, 16, modify_nic_vport),
	GENERAL_ROW("QUERY_ROCE_ADDRESS", 0x760, 16, ADDRESS_BYTES, query_roce_address),
	GENERAL_ROW("ACCESS_REGISTER", 0x805, 16, 16, access_register),
	{ 0 },
};
