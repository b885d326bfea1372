// SPDX-License-Identifier: MIT
/*
 * The files of the card that programs look at themselves, as the kernel's RDMA drivers would show
 * them: which there are and what is in them, taken from the adapters of the configuration.
 * host/preload/rows.h says how programs come to see them.
 *
 *	/dev/infiniband/uverbsN, /dev/accel/accelN                device nodes
 *	/sys/class/infiniband_verbs/uverbsN    link ----+
 *	/sys/class/infiniband/NAME             link --+ |
 *	/sys/bus/pci/devices/5642:00:0N.0      link --|-|-+       beside the machine's own devices
 *	/sys/bus/pci/drivers/DRIVER/5642:...   link --|-|-+
 *	/sys/devices/pci5642:00/5642:00:0N.0/  <------|-|-+       the adapter as a PCI device
 *	    vendor, device, uevent, numa_node, ...    | |
 *	    net/INTERFACE              link to the machine's own
 *	    infiniband/NAME/           <--------------+ |         node_guid, fw_ver, ports/P/state, ports/P/gids/I, ...
 *	    infiniband_verbs/uverbsN/  <----------------+
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "meet/registry_dir.h"
#include "card/card.h"
#include "host/preload/rows.h"
#include "tools/cmd.h"
#include "tools/tree.h"

enum { UVERBS_MAJOR = 231, UVERBS_MINOR = 192, ACCEL_MAJOR = 261, LINE = 1024 };

/* --- the machine's own files ------------------------------------------------------------------------------------- */

static bool tools_files_read_line(char line[LINE], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The first line of a file; false, and line unchanged, where there is none. */
static bool tools_files_read_line(char line[LINE], const char *format, ...)
{
	char path[LINE], text[LINE];
	va_list args;
	FILE *file;
	bool ok;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	file = fopen(path, "re");
	if (!file)
		return false;
	ok = fgets(text, sizeof(text), file) && *text != '\n';
	fclose(file);
	if (ok)
		snprintf(line, LINE, "%.*s", (int)strcspn(text, "\n"), text);
	return ok;
}

/* Whether /sys shows the adapter's interface. It may be that of another network namespace. */
static bool has_interface(const struct vb_config_adapter *config)
{
	char line[LINE];

	return *config->interface &&
	       tools_files_read_line(line, "/sys/class/net/%s/ifindex", config->interface) &&
	       strtoul(line, NULL, 10) == config->ifindex;
}

/* A list such as 0-3,8 as a mask in hexadecimal, 32 bits to a word, as /sys writes it. */
static void mask_of_list(const char *list, char mask[LINE])
{
	enum { WORDS = 64 };
	uint32_t word[WORDS] = { 0 };
	unsigned long from, to, last = 0;
	char *next;

	while (*list >= '0' && *list <= '9') {
		from = to = strtoul(list, &next, 10);
		if (*next == '-')
			to = strtoul(next + 1, &next, 10);
		for (unsigned long cpu = from; cpu <= to && cpu < 32 * WORDS; cpu++) {
			word[cpu / 32] |= 1u << cpu % 32;
			last = cpu > last ? cpu : last;
		}
		list = *next == ',' ? next + 1 : next;
	}
	mask += sprintf(mask, "%0*x", (int)(last % 32 / 4 + 1), word[last / 32]);
	for (last /= 32; last--;)
		mask += sprintf(mask, ",%08x", word[last]);
}

/* --- the adapter as a PCI device ---------------------------------------------------------------------------------- */

/* Near which processors it is: near its interface, or near all. */
static void add_locality(struct tree_text *text, const struct vb_config_adapter *config)
{
	char node[LINE] = "-1", list[LINE], mask[LINE];
	bool real = has_interface(config);

	snprintf(list, sizeof(list), "0-%ld", sysconf(_SC_NPROCESSORS_ONLN) - 1);
	tools_files_read_line(list, "/sys/devices/system/cpu/online");
	if (real) {
		tools_files_read_line(node, "/sys/class/net/%s/device/numa_node",
				      config->interface);
		tools_files_read_line(list, "/sys/class/net/%s/device/local_cpulist",
				      config->interface);
	}
	mask_of_list(list, mask);
	tree_file(text, "numa_node", "%s\n", node);
	tree_file(text, "local_cpulist", "%s\n", list);
	tree_file(text, "local_cpus", "%s\n", mask);
}

/*
 * Links to all that the machine has in a directory of the same name. Where an address of ours is
 * there, which the kernel never hands out, it is not shown.
 */
static void add_machines(struct tree_text *text, const char *path)
{
	struct dirent **list;
	int count = scandir(path, &list, NULL, alphasort);

	tree_dir(text, "%s", path);
	for (int i = 0; i < count; i++) {
		const char *name = list[i]->d_name;

		if (*name != '.' && strncmp(name, VB_FILES_PCI_DOMAIN ":", 5))
			tree_link(text, name, "%s/%s", path, name);
		free(list[i]);
	}
	if (count >= 0)
		free(list);
}

/* The bus: all devices, and of the drivers those that adapters have. */
static void add_bus(struct tree_text *text, struct vb_adapter *const *list, unsigned int count)
{
	add_machines(text, VB_FILES_PCI "/devices");
	for (unsigned int i = 0; i < count; i++) {
		const char *driver = vb_adapter_identity(list[i])->driver;
		char path[LINE];
		bool seen = false;

		for (unsigned int k = 0; k < i; k++)
			seen |= !strcmp(driver, vb_adapter_identity(list[k])->driver);
		snprintf(path, sizeof(path), VB_FILES_PCI "/drivers/%s", driver);
		if (!seen)
			add_machines(text, path);
	}
}

/* What udev and DPDK read, and where the bus has links to the device. */
static void add_bus_device(struct tree_text *text, const struct vb_identity *identity,
			   unsigned int class, const char *pci)
{
	char alias[128];

	snprintf(alias, sizeof(alias), "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		 identity->pci_vendor, identity->part_id, identity->pci_vendor, identity->part_id,
		 class >> 16, class >> 8 & 0xff, class & 0xff);
	tree_file(text, "modalias", "%s\n", alias);
	tree_file(text, "uevent",
		  "DRIVER=%s\nPCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\n"
		  "PCI_SLOT_NAME=%s\nMODALIAS=%s\n",
		  identity->driver, class, identity->pci_vendor, identity->part_id,
		  identity->pci_vendor, identity->part_id, pci, alias);
	tree_dir(text, VB_FILES_PCI "/devices");
	tree_link(text, pci, "../../../devices/pci" VB_FILES_PCI_DOMAIN ":00/%s", pci);
	tree_dir(text, VB_FILES_PCI "/drivers/%s", identity->driver);
	tree_link(text, pci, "../../../../devices/pci" VB_FILES_PCI_DOMAIN ":00/%s", pci);
}

/* No BAR: there is no memory of the device that a program could map. */
static void add_resources(struct tree_text *text)
{
#define NO_BAR "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
	tree_file(text, "resource", NO_BAR NO_BAR NO_BAR NO_BAR NO_BAR NO_BAR NO_BAR);
#undef NO_BAR
}

/*
 * Programs ask an interface that they find here for its addresses. Where /sys is that of another
 * network namespace, only what does not change is there.
 */
static void add_interface(struct tree_text *text, const struct vb_config_adapter *config,
			  const char *pci)
{
	const uint8_t *mac = config->mac;

	if (!*config->interface || !config->ifindex)
		return;
	tree_dir(text, VB_FILES_PCI_ROOT "/%s/net", pci);
	if (has_interface(config)) {
		tree_link(text, config->interface, "/sys/class/net/%s", config->interface);
		return;
	}
	tree_dir(text, VB_FILES_PCI_ROOT "/%s/net/%s", pci, config->interface);
	tree_file(text, "address", "%02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1], mac[2],
		  mac[3], mac[4], mac[5]);
	tree_file(text, "dev_id", "0x0\n");
	tree_file(text, "dev_port", "0\n");
	tree_file(text, "ifindex", "%u\n", config->ifindex);
	tree_link(text, "device", "../../../%s", pci);
}

static void add_pci(struct tree_text *text, const struct vb_adapter *adapter, const char *pci)
{
	const struct vb_identity *identity = vb_adapter_identity(adapter);
	const struct vb_config_adapter *config = adapter->config;
	unsigned int class = config->format == VB_FORMAT_HBL ? 0x120000 : 0x020000;

	tree_dir(text, VB_FILES_PCI_ROOT "/%s", pci);
	tree_file(text, "vendor", "0x%04x\n", identity->pci_vendor);
	tree_file(text, "device", "0x%04x\n", identity->part_id);
	tree_file(text, "subsystem_vendor", "0x%04x\n", identity->pci_vendor);
	tree_file(text, "subsystem_device", "0x%04x\n", identity->part_id);
	tree_file(text, "class", "0x%06x\n", class);
	tree_file(text, "revision", "0x%02x\n", identity->hw_version);
	tree_file(text, "sriov_numvfs", "0\n");
	tree_file(text, "sriov_totalvfs", "0\n");
	tree_link(text, "driver", "../../../bus/pci/drivers/%s", identity->driver);
	tree_link(text, "subsystem", "../../../bus/pci");
	add_resources(text);
	add_locality(text, config);
	add_bus_device(text, identity, class, pci);
	add_interface(text, config, pci);
}

/* --- the adapter as an RDMA device -------------------------------------------------------------------------------- */

static const char *port_state(enum ibv_port_state state)
{
	static const char *const names[] = { "NOP",   "DOWN",   "INIT",
					     "ARMED", "ACTIVE", "ACTIVE_DEFER" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "UNKNOWN";
}

static const char *phys_state(unsigned int state)
{
	static const char *const names[] = {
		"",
		"Sleep",
		"Polling",
		"Disabled",
		"PortConfigurationTraining",
		"LinkUp",
		"LinkErrorRecovery",
		"Phy Test",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "";
}

/* The speed of a lane by the bit of active_speed, as the kernel names it; in tenths of Gb/s. */
static void add_rate(struct tree_text *text, const struct ibv_port_attr *port)
{
	static const struct {
		unsigned int tenths;
		const char *name;
	} speeds[] = { { 25, " SDR" },  { 50, " DDR" },  { 100, " QDR" }, { 100, " FDR10" },
		       { 140, " FDR" }, { 250, " EDR" }, { 500, " HDR" }, { 1000, " NDR" } };
	unsigned int lanes = port->active_width == 1   ? 1
			     : port->active_width == 2 ? 4
			     : port->active_width == 4 ? 8
			     : port->active_width == 8 ? 12
						       : 2;
	unsigned int speed = 0, rate;
	char fraction[4] = "";

	while (speed + 1 < sizeof(speeds) / sizeof(speeds[0]) && port->active_speed >> (speed + 1))
		speed++;
	rate = lanes * speeds[speed].tenths;
	if (rate % 10)
		snprintf(fraction, sizeof(fraction), ".%u", rate % 10);
	tree_file(text, "rate", "%u%s Gb/sec (%uX%s)\n", rate / 10, fraction, lanes,
		  speeds[speed].name);
}

static void add_guid(struct tree_text *text, const char *name, const uint8_t *raw, unsigned int len)
{
	char guid[48], *p = guid;

	for (unsigned int i = 0; i < len; i += 2)
		p += sprintf(p, "%s%02x%02x", i ? ":" : "", raw[i], raw[i + 1]);
	tree_file(text, name, "%s\n", guid);
}

/* An empty entry of the table has zeros for its GID, and neither type nor interface. */
static void add_gids(struct tree_text *text, const struct vb_adapter *adapter, unsigned int number,
		     const char *dir, unsigned int count)
{
	char name[16], interface[IF_NAMESIZE];
	struct vb_gid gid;

	for (unsigned int i = 0; i < count; i++) {
		bool valid = !vb_adapter_gid(adapter, number, i, &gid);

		if (!valid)
			memset(&gid, 0, sizeof(gid));
		snprintf(name, sizeof(name), "%u", i);
		tree_dir(text, "%s/gids", dir);
		add_guid(text, name, gid.gid.raw, sizeof(gid.gid.raw));
		if (!valid)
			continue;
		tree_dir(text, "%s/gid_attrs/types", dir);
		tree_file(text, name, "%s\n",
			  gid.type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
		tree_dir(text, "%s/gid_attrs/ndevs", dir);
		if (gid.ifindex && if_indextoname(gid.ifindex, interface))
			tree_file(text, name, "%s\n", interface);
	}
}

static void add_port(struct tree_text *text, const struct vb_adapter *adapter, const char *device,
		     unsigned int number)
{
	struct ibv_port_attr port = { 0 };
	char dir[PATH_MAX / 8];

	vb_adapter_query_port(adapter, number, &port);
	snprintf(dir, sizeof(dir), "%s/ports/%u", device, number);
	tree_dir(text, "%s", dir);
	tree_file(text, "state", "%d: %s\n", port.state, port_state(port.state));
	tree_file(text, "phys_state", "%u: %s\n", port.phys_state, phys_state(port.phys_state));
	tree_file(text, "link_layer", "%s\n",
		  port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	add_rate(text, &port);
	tree_file(text, "lid", "0x%x\n", port.lid);
	tree_file(text, "lid_mask_count", "%u\n", port.lmc);
	tree_file(text, "sm_lid", "0x%x\n", port.sm_lid);
	tree_file(text, "sm_sl", "%u\n", port.sm_sl);
	tree_file(text, "cap_mask", "0x%08x\n", port.port_cap_flags);
	tree_dir(text, "%s/pkeys", dir);
	for (unsigned int i = 0; i < port.pkey_tbl_len; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		tree_file(text, name, "0xffff\n");
	}
	add_gids(text, adapter, number, dir, (unsigned int)port.gid_tbl_len);
}

static void add_rdma(struct tree_text *text, const struct vb_adapter *adapter, const char *pci)
{
	const struct vb_identity *identity = vb_adapter_identity(adapter);
	const char *name = adapter->config->name;
	char dir[PATH_MAX / 16];

	snprintf(dir, sizeof(dir), VB_FILES_PCI_ROOT "/%s/infiniband/%s", pci, name);
	tree_dir(text, "%s", dir);
	tree_file(text, "node_type", "%d: CA\n", IBV_NODE_CA);
	add_guid(text, "node_guid", (const uint8_t *)&adapter->guid, sizeof(adapter->guid));
	add_guid(text, "sys_image_guid", (const uint8_t *)&adapter->guid, sizeof(adapter->guid));
	tree_file(text, "node_desc", "%s\n", name);
	tree_file(text, "fw_ver", "%s\n", identity->firmware);
	tree_file(text, "hw_rev", "%x\n", identity->hw_version);
	tree_file(text, "hca_type", "%s\n", identity->hca_type);
	tree_file(text, "board_id", "%s\n", identity->board);
	tree_link(text, "device", "../../../%s", pci);
	tree_link(text, "subsystem", "../../../../../class/infiniband");
	for (unsigned int port = 1; port <= adapter->config->ports; port++)
		add_port(text, adapter, dir, port);
	tree_dir(text, "/sys/class/infiniband");
	tree_link(text, name, "../../devices/pci" VB_FILES_PCI_DOMAIN ":00/%s/infiniband/%s", pci,
		  name);
}

/* The character device through which verbs reach the kernel. */
static void add_uverbs(struct tree_text *text, const struct vb_adapter *adapter, const char *pci)
{
	unsigned int minor = UVERBS_MINOR + adapter->index;
	char name[16];

	snprintf(name, sizeof(name), "uverbs%u", adapter->index);
	tree_dir(text, VB_FILES_PCI_ROOT "/%s/infiniband_verbs/%s", pci, name);
	tree_file(text, "dev", "%u:%u\n", UVERBS_MAJOR, minor);
	tree_file(text, "ibdev", "%s\n", adapter->config->name);
	tree_file(text, "abi_version", "1\n");
	tree_link(text, "device", "../../../%s", pci);
	tree_link(text, "subsystem", "../../../../../class/infiniband_verbs");
	tree_dir(text, "/sys/class/infiniband_verbs");
	tree_link(text, name, "../../devices/pci" VB_FILES_PCI_DOMAIN ":00/%s/infiniband_verbs/%s",
		  pci, name);
	tree_dir(text, "/dev/infiniband");
	tree_node(text, name, makedev(UVERBS_MAJOR, minor));
}

static void add_adapter(struct tree_text *text, const struct vb_adapter *adapter)
{
	char pci[32], name[16];

	snprintf(pci, sizeof(pci), VB_FILES_PCI_DOMAIN ":00:%02x.0", adapter->index);
	add_pci(text, adapter, pci);
	add_rdma(text, adapter, pci);
	add_uverbs(text, adapter, pci);
	if (adapter->config->format == VB_FORMAT_HBL) {
		snprintf(name, sizeof(name), "accel%u", adapter->config->hbl_number);
		tree_dir(text, "/dev/accel");
		tree_node(text, name, makedev(ACCEL_MAJOR, adapter->config->hbl_number));
	}
}

/*
 * A program that asks libraries needs none of this: where it cannot be had, that is said and is no
 * reason to stop.
 */
int tools_show_files(const char *who)
{
	struct vb_adapter *const *list;
	struct tree_text text;
	char path[PATH_MAX];
	unsigned int count;
	int ret = vb_card_adapters(vb_card_program(), &list, &count);

	if (ret)
		return ret;
	ret = tree_begin(&text);
	if (!ret) {
		tree_dir(&text, "/verbatim");
		tree_file(&text, "used", "%s", "");
		tree_dir(&text, "/sys/class/infiniband_verbs");
		tree_file(&text, "abi_version", "6\n");
		add_bus(&text, list, count);
		for (unsigned int i = 0; i < count; i++)
			add_adapter(&text, list[i]);
		ret = tree_end(&text, path);
	}
	if (!ret && setenv(VB_FILES_VARIABLE, path, 1))
		ret = -errno;
	if (ret) {
		unsetenv(VB_FILES_VARIABLE);
		fprintf(stderr,
			"%s: warning: cannot make the files of /dev/infiniband and /sys/class/infiniband in %s: %s; programs that look there will not see the card\n",
			who, vb_dir_root_path(), strerror(-ret));
	}
	return 0;
}
