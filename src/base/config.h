/* SPDX-License-Identifier: MIT */
/*
 * The one configuration of a process: which adapters exist, their addresses and limits.
 *
 * It is read once, on first use, from the file named by VERBATIM_CONFIG, or made up where that is
 * unset. A bad file is an error that names file, line and key; nothing of it is used then. Form
 * (INI, read with inih):
 *
 *	[adapter mlx5_0]          ; sections in the order the devices shall be listed
 *	format = mlx5             ; default: what the name starts with; or mlx4
 *	interface = eth0          ; or:  address = 10.0.0.1   (IPv4 or IPv6; may be given more than once)
 *	mtu = 4096                ; largest path MTU, default from the interface
 *	max_qp = 16384            ; limits may be lowered, never raised above the card's own
 *	dpa_eus = 190             ; execution units of the accelerator
 *	dpa_heap = 1024           ; device heap of each FlexIO process, in MiB
 *	dpa_stack = 8             ; stack of each device thread, in KiB
 *	dpa_check = heap,uninit   ; find bugs of device code, see docs/debugging.md
 *	cqe_size = 64             ; mlx4: bytes of a completion queue entry, 32 or 64
 *	rpc_timeout = 6000        ; milliseconds that a call of device code may take
 *	generation = gaudi2       ; hbl: or gaudi3
 *	ports = 4                 ; hbl: 1 to 24, the last quarter of them scale-out
 *	cable = lab               ; mlx4, mlx5: ports of one name hang on one switch
 *	tap = tap0                ; ... instead of cable: frames go to and from a TAP interface
 *	functions = 4             ; mlx5: emulated functions, see docs/emulation.md
 *	function_queues = 64      ; ... queues of each
 *	function_vectors = 64     ; ... MSI-X vectors of each
 *
 *	part = bluefield-3        ; mlx5: the card that it says it is, by name or PCI device ID
 *
 *	[memory]
 *	share = off               ; no memory lies in memfds
 *	arena = all               ; which program memory is born shared: aligned, all or off
 *	arena_size = 512          ; MiB of it
 *	huge = strict             ; no ordinary pages in place of huge ones
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <net/if.h>
#include <netinet/in.h>

#include "base/public.h"

enum {
	VB_CONFIG_MAX_ADAPTERS = 16,
	VB_CONFIG_MAX_ADDRESSES = 8,
	VB_NAME_MAX = 32,
	VB_CONFIG_MAX_EUS = 4096,
	VB_CONFIG_MIN_STACK = 4, /* KiB */
	VB_CONFIG_MAX_STACK = 1024,
	VB_CONFIG_MAX_HEAP = 1536, /* MiB; guest memory ends at 2 GiB, and stacks need some of it */
	VB_CONFIG_MAX_RPC_TIMEOUT = 3600000,
	VB_CONFIG_MAX_PORTS = 24,
	VB_HBL_DEVICES = 64, /* hbl_0 ... hbl_63 */
	VB_FUNCTIONS = 16,   /* emulated ones of an adapter */
	VB_FUNCTION_QUEUES = 256,
	VB_FUNCTION_VECTORS = 256,
};

/* The queue formats; VB_FORMATS counts them. */
enum vb_format { VB_FORMAT_MLX5, VB_FORMAT_MLX4, VB_FORMAT_HBL, VB_FORMATS };

/* Of hbl devices. */
enum vb_generation { VB_GAUDI2, VB_GAUDI3 };

/* What device code is checked for: dpa_check, VERBATIM_DPA_CHECK. */
enum vb_check {
	VB_CHECK_HEAP = 1,     /* accesses outside of what was allocated, bad frees, leaks */
	VB_CHECK_UNINIT = 2,   /* reads of what nobody wrote */
	VB_CHECK_CONTINUE = 4, /* go on after a finding */
	VB_CHECK_NOTHING = 8,  /* look at every access and find nothing: to measure that */
};

/* Words with commas between them, as enum vb_check. -EINVAL, with what is wrong with them. */
VB_PUBLIC int vb_check_words(const char *text, uint32_t *checks, char *err, size_t size);

struct vb_config_adapter {
	char name[VB_NAME_MAX];
	enum vb_format format;
	char interface[IF_NAMESIZE]; /* empty: found by address, or none */
	struct in6_addr address
		[VB_CONFIG_MAX_ADDRESSES]; /* IPv4 as ::ffff:a.b.c.d; becomes the GID table */
	unsigned int num_addresses;
	unsigned int ifindex; /* 0 where the address is on no interface */
	uint8_t mac[6];
	unsigned int mtu;                         /* largest path MTU in bytes: 256 ... 4096 */
	bool down;                                /* a configured interface or address is missing */
	uint32_t max_qp, max_cq, max_mr, max_srq; /* 0: the card's own limit */
	uint32_t dpa_eus;     /* execution units of the accelerator; 0: its default */
	uint32_t dpa_stack;   /* stack of a device thread in KiB; 0: the default */
	uint32_t dpa_heap;    /* device heap of a FlexIO process in MiB; 0: the default */
	uint32_t dpa_check;   /* enum vb_check */
	uint32_t cqe_size;    /* mlx4: bytes of a completion queue entry, 32 or 64 */
	uint32_t rpc_timeout; /* longest call of device code, in milliseconds; 0: the default */
	enum vb_generation generation; /* hbl */
	uint32_t ports;                /* hbl: 1 ... VB_CONFIG_MAX_PORTS; others: 1 */
	uint32_t hbl_number;           /* N of hbl_N, and of /dev/accel/accelN */
	char cable[VB_NAME_MAX];       /* raw Ethernet: what the port's cable is called */
	char tap[IF_NAMESIZE]; /* ... the TAP interface that the port ends in; empty: none */
	uint32_t functions;    /* mlx5: emulated ones; others: 0 */
	uint32_t function_queues, function_vectors; /* of each */
	uint32_t part; /* mlx5: the PCI device ID that it shows; others: 0 */
};

/* Which memory of a program is born shared. */
enum vb_config_arena {
	VB_CONFIG_ARENA_ALIGNED, /* allocations at page boundaries, and mappings */
	VB_CONFIG_ARENA_ALL,     /* large ones of malloc(), too */
	VB_CONFIG_ARENA_OFF,
};

struct vb_config {
	enum vb_config_arena arena; /* [memory] */
	uint32_t arena_size;        /* ... MiB that may be born shared; 0: the default */
	bool share_off;             /* ... no memory of the process lies in memfds */
	bool huge_strict;           /* ... huge pages that are not there are refused */
	unsigned int num_adapters;
	struct vb_config_adapter adapter[VB_CONFIG_MAX_ADAPTERS];
};

/* functions = 0 was given, until vb_config_finish(); 0 there: the key was not given. */
#define VB_CONFIG_NO_FUNCTIONS UINT32_MAX

/* Fill in what the keys left open, for config.c. */
void vb_config_finish(struct vb_config *config);

/* "mlx5", "mlx4", ... */
const char *vb_format_name(enum vb_format format);

/*
 * The process's configuration; read on the first call, from any thread. Returns NULL with errno
 * (EINVAL for a bad file, after one log line that says what to mend). The same answer every time.
 */
VB_PUBLIC const struct vb_config *vb_config_get(void);

/*
 * Read one file into *config without touching the process's own; 0 or -errno with a message in err.
 */
int vb_config_read(const char *path, struct vb_config *config, char *err, unsigned int err_len);
/* The same from a text in the form of such a file. */
int vb_config_read_text(const char *text, struct vb_config *config, char *err,
			unsigned int err_len);

/*
 * What is used where no file is named: mlx5_0, mlx5_1 and mlx4_0 on the machine's interfaces,
 * 127.0.0.1 where it has none.
 */
void vb_config_default(struct vb_config *config);
