// SPDX-License-Identifier: MIT
/*
 * What an adapter says it is: the numbers and names by which programs tell cards apart. libibverbs
 * reports them, and the files that `verbatim run` shows below /sys have them, too.
 */
#include "card/device.h"

#include <stdio.h>

enum { OUI_MELLANOX = 0x02c9, PCI_MELLANOX = 0x15b3, PCI_HABANA = 0x1da3 };

/*
 * mlx5 cards by their PCI device IDs: the first part of the firmware's version tells the chip, and
 * boards have numbers of their own.
 */
static const struct {
	uint32_t part_id;
	const char *firmware, *board;
} mlx5_parts[] = {
	{ 0x1013, "12.28.2006", "MT_2190110032" }, /* ConnectX-4 */
	{ 0x1015, "14.32.1010", "MT_2420110034" }, /* ConnectX-4 Lx */
	{ 0x1017, "16.35.4030", "MT_0000000008" }, /* ConnectX-5 */
	{ 0x1019, "16.35.4030", "MT_0000000009" }, /* ConnectX-5 Ex */
	{ 0x101b, "20.41.1000", "MT_0000000225" }, /* ConnectX-6 */
	{ 0x101d, "22.41.1000", "MT_0000000359" }, /* ConnectX-6 Dx */
	{ 0x101f, "26.41.1000", "MT_0000000547" }, /* ConnectX-6 Lx */
	{ 0x1021, "28.41.1000", "MT_0000000838" }, /* ConnectX-7 */
	{ 0xa2d2, "18.33.1048", "MT_0000000256" }, /* BlueField */
	{ 0xa2d6, "24.41.1000", "MT_0000000540" }, /* BlueField-2 */
	{ 0xa2dc, "32.41.1000", "MT_0000000884" }, /* BlueField-3 */
};

/* A part that the table does not know has this firmware on a board without a number. */
static const struct vb_identity mlx5 = {
	.vendor_id = OUI_MELLANOX,
	.hw_version = 1,
	.firmware = "32.41.1000",
	.pci_vendor = PCI_MELLANOX,
	.board = "MT_0000000000",
	.driver = "mlx5_core",
};

static const struct vb_identity connectx3 = {
	.vendor_id = OUI_MELLANOX,
	.part_id = 4099,
	.hw_version = 1,
	.firmware = "2.42.5000",
	.pci_vendor = PCI_MELLANOX,
	.hca_type = "MT4099",
	.board = "MT_1090120019",
	.driver = "mlx4_core",
};

/* Indexed by enum vb_generation. */
static const struct vb_identity gaudi[] = {
	[VB_GAUDI2] = {
		.vendor_id = PCI_HABANA,
		.part_id = 0x1020,
		.hw_version = 1,
		.firmware = "gaudi2",
		.pci_vendor = PCI_HABANA,
		.hca_type = "GAUDI2",
		.board = "GAUDI2",
		.driver = "habanalabs",
	},
	[VB_GAUDI3] = {
		.vendor_id = PCI_HABANA,
		.part_id = 0x1060,
		.hw_version = 1,
		.firmware = "gaudi3",
		.pci_vendor = PCI_HABANA,
		.hca_type = "GAUDI3",
		.board = "GAUDI3",
		.driver = "habanalabs",
	},
};

static void init_mlx5(struct vb_adapter *adapter)
{
	struct vb_identity *identity = &adapter->identity;

	*identity = mlx5;
	identity->part_id = adapter->config->part;
	snprintf(adapter->hca_type, sizeof(adapter->hca_type), "MT%u", identity->part_id);
	identity->hca_type = adapter->hca_type;
	for (size_t i = 0; i < sizeof(mlx5_parts) / sizeof(mlx5_parts[0]); i++) {
		if (mlx5_parts[i].part_id != identity->part_id)
			continue;
		identity->firmware = mlx5_parts[i].firmware;
		identity->board = mlx5_parts[i].board;
	}
}

void vb_adapter_identify(struct vb_adapter *adapter)
{
	switch (adapter->config->format) {
	case VB_FORMAT_MLX4:
		adapter->identity = connectx3;
		break;
	case VB_FORMAT_HBL:
		adapter->identity = gaudi[adapter->config->generation];
		break;
	default:
		init_mlx5(adapter);
	}
}

const struct vb_identity *vb_adapter_identity(const struct vb_adapter *adapter)
{
	return &adapter->identity;
}
