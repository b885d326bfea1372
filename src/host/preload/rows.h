/* SPDX-License-Identifier: MIT */
/*
 * Which paths a program finds under `verbatim run` that are not on the machine, and how a device
 * node is kept.
 *
 * `verbatim run` (tools/files.c) writes the files into a private directory, the tree, and names it
 * in VERBATIM_FILES. The preload puts the tree's name in front of every path that a row covers:
 *
 *	/sys/class/infiniband/mlx5_0/ports/1/state
 *	/dev/shm/verbatim-files-.../sys/class/infiniband/mlx5_0/ports/1/state
 *
 * What follows, links and directories included, is the kernel's work. Links in the tree are
 * relative, as in sysfs, so that they mean the same under both names.
 */
#pragma once

#include <sys/stat.h>

#define VB_FILES_VARIABLE "VERBATIM_FILES"

/* An empty file of the tree that each process which uses it has mapped, so that it is seen to do so. */
#define VB_FILES_MARK "/verbatim/used"

/* Adapter N is the PCI device N of a domain of its own, which no firmware hands out. */
#define VB_FILES_PCI_DOMAIN "5642"
#define VB_FILES_PCI_ROOT   "/sys/devices/pci" VB_FILES_PCI_DOMAIN ":00"
#define VB_FILES_PCI        "/sys/bus/pci"

/*
 * A row covers its path and all below it. It counts only where the tree has it. A new row needs
 * nothing but its files in tools/files.c, and where these are nodes, how their names begin below.
 */
static const char *const vb_files_rows[] = {
	"/dev/accel",
	"/dev/infiniband",
	"/sys/class/infiniband",
	"/sys/class/infiniband_verbs",
	VB_FILES_PCI "/devices",
	VB_FILES_PCI "/drivers/habanalabs",
	VB_FILES_PCI "/drivers/mlx4_core",
	VB_FILES_PCI "/drivers/mlx5_core",
	VB_FILES_PCI_ROOT,
};

/*
 * Below these rows the machine's own entries are to be seen, too. The tree has absolute links to
 * them, for listings and for paths that start from an open directory; a path by its name is left as
 * it is where it leads to a PCI device that is not of our domain.
 */
#define VB_FILES_MIXED VB_FILES_PCI "/"

/* A program may open the directory of a node and then the node in it. */
static const char *const vb_files_nodes[] = { "accel", "uverbs" };

enum {
	VB_FILES_ROWS = sizeof(vb_files_rows) / sizeof(vb_files_rows[0]),
	VB_FILES_NODES = sizeof(vb_files_nodes) / sizeof(vb_files_nodes[0]),
};

/*
 * Only root may make device nodes, so a node is an empty file with a mode that no other file of the
 * tree has, and the number of the device for a time of modification. Whoever has its struct stat
 * knows all that there is to know.
 */
enum { VB_FILES_NODE_MODE = S_IFREG | S_ISVTX | 0666 };
