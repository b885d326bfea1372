// SPDX-License-Identifier: MIT
/*
 * What an adapter says it is: the numbers and names by which programs tell cards apart. libibverbs
 * reports them, and the files that `verbatim run` shows below /sys have them, too.
 */
#include "card/card.h"

enum { OUI_MELLANOX = 0x02c9, PCI_MELLANOX = 0x15b3, PCI_HABANA = 0x1da3 };

static const struct vb_identity bluefield3 = {
	.vendor_id = OUI_MELLANOX,
	.part_id = 0xa2dc,
	.hw_version = 1,
	.firmware = "32.41.1000",
	.pci_vendor = PCI_MELLANOX,
	.hca_type = "MT41692",
	.board = "MT_0000000884",
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

const struct vb_identity *vb_adapter_identity(const struct vb_adapter *adapter)
{
	switch (adapter->config->format) {
	case VB_FORMAT_MLX4:
		return &connectx3;
	case VB_FORMAT_HBL:
		return &gaudi[adapter->config->generation];
	default:
		return &bluefield3;
	}
}
