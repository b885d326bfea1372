// SPDX-License-Identifier: MIT
/*
 * Owns open hbl devices: who has one, their ports, and which device and port a GID belongs to.
 *
 * A device is acquired when its accelerator file is opened (or by a context that opens it itself)
 * and let go when both the file is closed and the context is gone. On the host it has one owner:
 * the claim lies in the registry, where it ends with the process.
 *
 *	accel_open ----> vb_hbl: memory ----> vb_hbl_open: ports, QPs, ... ----> vb_hbl_close ----> accel_close
 */
#include "card/hbl/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/rcu.h"
#include "base/util.h"
#include "host/fault.h"

struct vb_hbl *vb_hbl_find(struct vb_card *card, uint32_t number)
{
	return number < VB_HBL_DEVICES
		       ? atomic_load_explicit(&card->hbl.devices[number], memory_order_acquire)
		       : NULL;
}

bool vb_hbl_stale(const struct vb_hbl *hbl)
{
	return hbl->epoch != vb_fabric_epoch(hbl->card->fabric);
}

/* Its CQs; one for several ports is made the child's own several times, which does no harm. */
static void take_copies(struct vb_hbl *hbl)
{
	for (uint32_t p = 1; p <= hbl->adapter->config->ports; p++) {
		struct vb_hbl_port *port = &hbl->ports[p];
		struct vb_hbl_cq *cc = atomic_load_explicit(&port->cc_cq, memory_order_relaxed);

		for (uint32_t i = 0; i < VB_HBL_CQS; i++)
			if (port->cqs[i])
				vb_hbl_cq_forked(port->cqs[i]);
		if (cc)
			vb_hbl_cq_forked(cc);
	}
}

/* A forked child owns none of its parent's devices; the memory behind them stays where it is. */
void vb_hbl_forked(struct vb_card *card)
{
	pthread_mutex_init(&card->hbl.lock, NULL);
	for (uint32_t i = 0; i < VB_HBL_DEVICES; i++) {
		struct vb_hbl *hbl = vb_hbl_find(card, i);

		if (hbl)
			take_copies(hbl);
		atomic_store_explicit(&card->hbl.devices[i], NULL, memory_order_release);
	}
}

/* The lock of the devices held. */
static struct vb_hbl *by_fd(struct vb_card *card, int fd)
{
	for (uint32_t i = 0; i < VB_HBL_DEVICES; i++) {
		struct vb_hbl *hbl = vb_hbl_find(card, i);

		if (hbl && vb_hbl_memory_is_file(&hbl->memory, fd))
			return hbl;
	}
	return NULL;
}

struct vb_hbl *vb_hbl_lock_fd(struct vb_card *card, int fd)
{
	struct vb_hbl *hbl;

	pthread_mutex_lock(&card->hbl.lock);
	hbl = by_fd(card, fd);
	if (!hbl)
		pthread_mutex_unlock(&card->hbl.lock);
	return hbl;
}

void vb_hbl_unlock(struct vb_card *card)
{
	pthread_mutex_unlock(&card->hbl.lock);
}

struct vb_hbl_port *vb_hbl_port(struct vb_hbl *hbl, uint32_t number)
{
	return number >= 1 && number <= hbl->adapter->config->ports && hbl->ports[number].used
		       ? &hbl->ports[number]
		       : NULL;
}

void vb_hbl_tell(struct vb_hbl *hbl, uint64_t events, void *cookie, uint32_t port)
{
	for (; hbl->async && events; events &= events - 1) {
		struct vb_event event = { .type = (enum ibv_event_type)__builtin_ctzll(events),
					  .cookie = cookie,
					  .port = (uint8_t)port };

		hbl->async(hbl->async_arg, &event);
	}
}

static void hbl_device_tell(struct vb_notice *notice, uint64_t events)
{
	struct vb_hbl_port *port = container_of(notice, struct vb_hbl_port, notice);

	vb_hbl_tell(port->hbl, events, NULL, port->number);
}

void vb_hbl_port_event(struct vb_hbl_port *port, enum ibv_event_type type)
{
	vb_notice_set(&port->notice, 1ull << type);
}

/* --- acquiring -------------------------------------------------------------------------------- */

static struct vb_adapter *hbl_device_find_adapter(struct vb_card *card, unsigned int number)
{
	struct vb_adapter *const *list;
	unsigned int count;

	if (vb_card_adapters(card, &list, &count))
		return NULL;
	for (unsigned int i = 0; i < count; i++)
		if (list[i]->config->format == VB_FORMAT_HBL &&
		    list[i]->config->hbl_number == number)
			return list[i];
	return NULL;
}

static int hbl_device_open_file(struct vb_hbl *hbl, int flags)
{
	VB_NO_CANCEL;
	int fd, ours, ret;

	fd = memfd_create("verbatim-accel",
			  MFD_ALLOW_SEALING | (flags & O_CLOEXEC ? MFD_CLOEXEC : 0));
	if (fd < 0)
		return -errno;
	/* As files must be that peers map: host/shared/shared.h. */
	if (fchmod(fd, 0600) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	ours = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	ret = ours < 0 ? -errno
		       : vb_hbl_memory_init(&hbl->memory, ours, hbl->card->fabric,
					    vb_window_own(hbl->card->fabric, hbl->number));
	if (ret) {
		if (ours >= 0)
			close(ours);
		close(fd);
		return ret;
	}
	hbl->fd = fd;
	return 0;
}

static int hbl_device_make(struct vb_adapter *adapter, int flags, struct vb_hbl **out)
{
	struct vb_hbl *hbl = calloc(1, sizeof(*hbl));
	uint32_t number = adapter->config->hbl_number;
	int ret;

	if (!hbl)
		return -ENOMEM;
	hbl->card = adapter->card;
	hbl->adapter = adapter;
	hbl->number = number;
	hbl->generation = adapter->config->generation;
	pthread_mutex_init(&hbl->mutex, NULL);
	ret = vb_fault_arm();
	if (!ret)
		ret = vb_fabric_start(adapter->card->host, &vb_card_sink);
	if (ret)
		goto free_device;
	hbl->epoch = vb_fabric_epoch(adapter->card->fabric);
	vb_fabric_unpolled(adapter->card->fabric); /* completions are read from memory */
	ret = vb_registry_claim(adapter->card->meet, number);
	if (ret)
		goto stop_fabric;
	ret = hbl_device_open_file(hbl, flags);
	if (ret)
		goto release;
	*out = hbl;
	return 0;

release:
	vb_registry_release(adapter->card->meet, number);
stop_fabric:
	vb_fabric_stop(adapter->card->fabric);
free_device:
	pthread_mutex_destroy(&hbl->mutex);
	free(hbl);
	return ret;
}

/* The lock of the devices held. */
static void hbl_device_let_go(struct vb_hbl *hbl)
{
	struct vb_card *card = hbl->card;

	atomic_store_explicit(&card->hbl.devices[hbl->number], NULL, memory_order_release);
	vb_read_wait(); /* packets for it may be under way */
	vb_hbl_memory_destroy(&hbl->memory);
	vb_registry_release(card->meet, hbl->number);
	vb_fabric_stop(card->fabric);
	pthread_mutex_destroy(&hbl->mutex);
	free(hbl);
}

/*
 * Another descriptor of the same file, which the program keeps: shells and many programs move a
 * descriptor to another number by dup2() and close().
 */
static int find_duplicate(struct vb_hbl *hbl, int closing)
{
	DIR *dir = opendir("/proc/thread-self/fd");
	struct dirent *entry;
	int found = -1;

	while (dir && found < 0 && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (entry->d_name[0] != '.' && fd != closing && fd != hbl->memory.fd &&
		    vb_hbl_memory_is_file(&hbl->memory, fd))
			found = fd;
	}
	if (dir)
		closedir(dir);
	return found;
}

/*
 * The lock of the devices held: whether the program has closed the file behind our back, by close_range(),
 * dup2() or fclose(), and no context stands on it.
 */
static bool is_forsaken(struct vb_hbl *hbl)
{
	if (hbl->has_context)
		return false;
	if (!vb_hbl_memory_is_file(&hbl->memory, hbl->fd))
		hbl->fd = find_duplicate(hbl, -1);
	return hbl->fd < 0;
}

/* The lock of the devices held. */
static int acquire(struct vb_adapter *adapter, int flags, struct vb_hbl **hbl)
{
	struct vb_card *card = adapter->card;
	struct vb_hbl *there = vb_hbl_find(card, adapter->config->hbl_number);
	int ret;

	if (there && !is_forsaken(there))
		return vb_refuse_hbl_owned(adapter->config->name);
	if (there)
		hbl_device_let_go(there);
	ret = hbl_device_make(adapter, flags, hbl);
	if (!ret)
		atomic_store_explicit(&card->hbl.devices[adapter->config->hbl_number], *hbl,
				      memory_order_release);
	return ret;
}

int vb_hbl_accel_open(unsigned int number, int flags)
{
	struct vb_card *card = vb_card_program();
	struct vb_adapter *adapter = hbl_device_find_adapter(card, number);
	struct vb_hbl *hbl;
	int ret;

	if (!adapter)
		return -ENOENT;
	pthread_mutex_lock(&card->hbl.lock);
	ret = acquire(adapter, flags, &hbl);
	if (!ret)
		ret = hbl->fd;
	pthread_mutex_unlock(&card->hbl.lock);
	return ret;
}

/*
 * Without the lock: most descriptors are none of ours, and some are closed by us with the lock
 * held.
 */
static bool is_accel(struct vb_card *card, int fd)
{
	bool found = false;

	vb_read_lock();
	for (uint32_t i = 0; i < VB_HBL_DEVICES && !found; i++) {
		struct vb_hbl *hbl = vb_hbl_find(card, i);

		found = hbl && hbl->fd == fd && !hbl->own_fd;
	}
	vb_read_unlock();
	return found;
}

void vb_hbl_accel_close(int fd)
{
	struct vb_card *card = vb_card_begun();

	if (!card || !is_accel(card, fd))
		return;
	pthread_mutex_lock(&card->hbl.lock);
	for (uint32_t i = 0; i < VB_HBL_DEVICES; i++) {
		struct vb_hbl *hbl = vb_hbl_find(card, i);

		if (!hbl || hbl->fd != fd || hbl->own_fd)
			continue;
		hbl->fd = find_duplicate(hbl, fd);
		if (hbl->fd < 0 && !hbl->has_context)
			hbl_device_let_go(hbl);
	}
	pthread_mutex_unlock(&card->hbl.lock);
}

/* --- contexts --------------------------------------------------------------------------------- */

static void init_ports(struct vb_hbl *hbl, uint64_t mask)
{
	uint32_t count = hbl->adapter->config->ports, out = (count + 3) / 4;

	memset(hbl->reserved, 0, sizeof(hbl->reserved));
	for (uint32_t i = 1; i <= count; i++) {
		struct vb_hbl_port *port = &hbl->ports[i];

		memset(port, 0, sizeof(*port));
		port->number = i;
		port->hbl = hbl;
		port->notice.tell = hbl_device_tell;
		port->used = !mask || (mask >> i & 1);
		port->scale_out = i > count - out;
	}
}

/* A context without direct verbs: the driver sets the ports up. */
static int setup_all(struct vb_hbl *hbl)
{
	int ret = 0;

	for (uint32_t i = 1; i <= hbl->adapter->config->ports && !ret; i++)
		ret = vb_hbl_port_setup(
			hbl, &(struct vb_hbl_port_attr){ .port = i,
							 .max_wqs = VB_HBL_DEFAULT_WQS,
							 .max_wqes = VB_HBL_DEFAULT_WQES });
	return ret;
}

static int take_context(struct vb_adapter *adapter, int core_fd, struct vb_hbl **out)
{
	struct vb_hbl *hbl = core_fd < 0 ? NULL : by_fd(adapter->card, core_fd);
	int ret = 0;

	if (core_fd < 0)
		ret = acquire(adapter, O_CLOEXEC, &hbl);
	else if (!hbl)
		ret = fcntl(core_fd, F_GETFD) < 0 ? -EBADF : vb_refuse_hbl_fd(core_fd);
	else if (hbl->adapter != adapter)
		ret = vb_refuse_combination("core_fd is of another accelerator");
	else if (hbl->has_context)
		ret = vb_refuse_hbl_owned(adapter->config->name);
	if (ret)
		return ret;
	hbl->own_fd = core_fd < 0;
	hbl->has_context = true;
	*out = hbl;
	return 0;
}

int vb_hbl_open(struct vb_adapter *adapter, int core_fd, uint64_t ports_mask,
		void (*async)(void *arg, const struct vb_event *event), void *arg,
		struct vb_hbl **out)
{
	struct vb_card *card = adapter->card;
	uint64_t all = ((2ull << adapter->config->ports) - 1) & ~1ull;
	struct vb_hbl *hbl;
	int ret;

	if (adapter->config->format != VB_FORMAT_HBL)
		return -EOPNOTSUPP;
	if (ports_mask & ~all)
		return vb_refuse_bits("ports_mask", ports_mask & ~all);
	pthread_mutex_lock(&card->hbl.lock);
	ret = take_context(adapter, core_fd, &hbl);
	pthread_mutex_unlock(&card->hbl.lock);
	if (ret)
		return ret;
	init_ports(hbl, ports_mask);
	vb_show_adapter(adapter, 1);
	hbl->async = async;
	hbl->async_arg = arg;
	ret = core_fd < 0 ? setup_all(hbl) : 0;
	if (ret) {
		vb_hbl_close(hbl);
		return ret;
	}
	vb_hbl_inject_opened(hbl);
	*out = hbl;
	return 0;
}

static void destroy_fifos(struct vb_hbl_port *port)
{
	for (uint32_t i = 0; i < VB_HBL_FIFOS; i++) {
		struct vb_hbl_fifo *fifo =
			atomic_load_explicit(&port->fifos[i], memory_order_relaxed);

		if (fifo)
			vb_hbl_fifo_destroy(fifo);
	}
}

static void destroy_objects(struct vb_hbl_port *port)
{
	struct vb_hbl_cq *cc = atomic_load_explicit(&port->cc_cq, memory_order_relaxed);

	for (uint32_t i = 0; i < VB_HBL_CQS; i++)
		if (port->cqs[i])
			vb_hbl_cq_destroy(port->cqs[i]);
	if (cc)
		vb_hbl_cq_destroy(cc);
	if (port->encap)
		vb_hbl_encap_destroy(port->encap);
}

/* Peers may still send: nobody looks at a table any more when it goes. */
static void free_ports(struct vb_hbl *hbl)
{
	struct vb_hbl_qp *_Atomic *qps[VB_CONFIG_MAX_PORTS + 1];

	for (uint32_t i = 1; i <= hbl->adapter->config->ports; i++)
		qps[i] = atomic_exchange_explicit(&hbl->ports[i].qps, NULL, memory_order_acq_rel);
	vb_read_wait();
	for (uint32_t i = 1; i <= hbl->adapter->config->ports; i++) {
		free(qps[i]);
		memset(&hbl->ports[i], 0, sizeof(hbl->ports[i]));
	}
}

void vb_hbl_close(struct vb_hbl *hbl)
{
	struct vb_card *card = hbl->card;
	VB_NO_CANCEL;

	if (vb_hbl_stale(hbl))
		return; /* a forked child: it is the parent's */
	vb_hbl_inject_closing(hbl);
	for (uint32_t i = 1; i <= hbl->adapter->config->ports; i++)
		destroy_fifos(&hbl->ports[i]);
	while (hbl->qps)
		vb_hbl_qp_destroy(hbl->qps);
	for (uint32_t i = 1; i <= hbl->adapter->config->ports; i++)
		destroy_objects(&hbl->ports[i]);
	free_ports(hbl);
	vb_show_adapter(hbl->adapter, -1);
	pthread_mutex_lock(&card->hbl.lock);
	hbl->has_context = false;
	hbl->async = NULL;
	if (hbl->own_fd && vb_hbl_memory_is_file(&hbl->memory, hbl->fd))
		close(hbl->fd);
	if (hbl->own_fd || hbl->fd < 0)
		hbl_device_let_go(hbl);
	pthread_mutex_unlock(&card->hbl.lock);
}

uint64_t vb_hbl_ports(const struct vb_hbl *hbl)
{
	uint64_t mask = 0;

	for (uint32_t i = 1; i <= VB_CONFIG_MAX_PORTS; i++)
		mask |= (uint64_t)hbl->ports[i].used << i;
	return mask;
}

/* --- ports ------------------------------------------------------------------------------------ */

int vb_hbl_port_setup(struct vb_hbl *hbl, const struct vb_hbl_port_attr *attr)
{
	struct vb_hbl_port *port = vb_hbl_port(hbl, attr->port);
	struct vb_hbl_qp *_Atomic *qps;
	int ret = 0;

	if (!port)
		return vb_refuse_hbl_port(attr->port);
	if (attr->max_wqs < 2 || attr->max_wqs > VB_HBL_MAX_QPN ||
	    attr->max_wqes < VB_HBL_WQES_MIN || attr->max_wqes > VB_HBL_WQES_MAX ||
	    (attr->max_wqes & (attr->max_wqes - 1)) || (attr->no_index_check && !attr->advanced))
		return vb_refuse_combination(
			"the number of work queues or of their entries cannot be, or needs an advanced port");
	qps = calloc(VB_HBL_MAX_QPN + 1, sizeof(*qps));
	if (!qps)
		return -ENOMEM;
	pthread_mutex_lock(&hbl->mutex);
	if (port->ready) {
		ret = vb_refuse_hbl_set_up(port->number);
		free(qps);
	} else {
		port->attr = *attr;
		port->ready = true;
		atomic_store_explicit(&port->qps, qps, memory_order_release);
	}
	pthread_mutex_unlock(&hbl->mutex);
	return ret;
}

/* The device's mutex held. */
static uint32_t highest_qpn(const struct vb_hbl_port *port)
{
	uint32_t qpn = port->ready ? VB_HBL_MAX_QPN : 0;

	while (qpn && !atomic_load_explicit(&vb_hbl_port_qps(port)[qpn], memory_order_relaxed))
		qpn--;
	return qpn;
}

int vb_hbl_port_query(struct vb_hbl *hbl, uint32_t number, struct vb_hbl_port_info *info)
{
	struct vb_hbl_port *port = vb_hbl_port(hbl, number);

	if (!port)
		return vb_refuse_hbl_port(number);
	pthread_mutex_lock(&hbl->mutex);
	*info = (struct vb_hbl_port_info){
		.max_qps = port->attr.max_wqs,
		.qps = port->num_qps,
		.max_qpn = highest_qpn(port),
		.advanced = port->attr.advanced,
		.scale_out = port->scale_out,
	};
	pthread_mutex_unlock(&hbl->mutex);
	return 0;
}

/* --- who a GID is ----------------------------------------------------------------------------- */

static bool has_gid(const struct vb_adapter *adapter, uint32_t port, const union ibv_gid *gid)
{
	struct vb_gid entry;

	for (unsigned int i = 0; !vb_adapter_gid(adapter, port, i, &entry); i++)
		if (!memcmp(&entry.gid, gid, sizeof(*gid)))
			return true;
	return false;
}

/*
 * The first GID of a port is its own. One that several ports share (an IP address of the host)
 * means the port of the same number on another device, which is how such devices are cabled, and
 * the own one where no other has it.
 */
int vb_hbl_resolve(const struct vb_hbl_port *from, const struct vb_hbl *hbl,
		   const union ibv_gid *gid, bool loopback, uint32_t *device, uint32_t *port)
{
	struct vb_adapter *const *list;
	unsigned int count;
	int best = 0;

	*device = hbl->number;
	*port = from->number;
	if (loopback)
		return 0;
	if (vb_card_adapters(hbl->card, &list, &count))
		return -EHOSTUNREACH;
	for (unsigned int i = 0; i < count; i++) {
		if (list[i]->config->format != VB_FORMAT_HBL)
			continue;
		for (uint32_t p = 1; p <= list[i]->config->ports; p++) {
			int score = 1 + (list[i] != hbl->adapter) + 2 * (p == from->number);

			if (score <= best || !has_gid(list[i], p, gid))
				continue;
			best = score;
			*device = list[i]->config->hbl_number;
			*port = p;
		}
	}
	return best ? 0 : -EHOSTUNREACH;
}
