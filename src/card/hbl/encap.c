// SPDX-License-Identifier: MIT
/*
 * Owns encapsulation objects: the header that a port puts in front of a queue pair's packets. One
 * per port; queue pairs name it when they are connected. In shared memory packets need no headers;
 * a wire will read them from here.
 */
#include "card/hbl/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "host/fault.h"

enum { ENCAP_NUMBER = 1 };

/* Address, port and protocol are what the program says, 0 too. */
static bool encap_is_valid(const struct vb_hbl_encap_attr *attr)
{
	switch (attr->type) {
	case VB_HBL_ENCAP_NONE:
		return true;
	case VB_HBL_ENCAP_IPV4:
	case VB_HBL_ENCAP_UDP:
		return attr->header_size <= VB_HBL_ENCAP_HEADER_MAX;
	default:
		return false;
	}
}

static int encap_enter(struct vb_hbl_encap *encap)
{
	int ret = 0;

	pthread_mutex_lock(&encap->hbl->mutex);
	if (!encap->port->ready)
		ret = vb_refuse_hbl_not_set_up(encap->port->number);
	else if (encap->port->encap)
		ret = vb_refuse_hbl_used_up("encapsulation", encap->port->number);
	else
		encap->port->encap = encap;
	pthread_mutex_unlock(&encap->hbl->mutex);
	return ret;
}

int vb_hbl_encap_create(struct vb_hbl *hbl, const struct vb_hbl_encap_attr *attr,
			struct vb_hbl_encap **out)
{
	struct vb_hbl_port *port = vb_hbl_port(hbl, attr->port);
	struct vb_hbl_encap *encap;
	int ret;

	if (!port)
		return vb_refuse_hbl_port(attr->port);
	if (!encap_is_valid(attr))
		return vb_refuse_combination("encap_type or tnl_hdr_size cannot be");
	ret = vb_hbl_inject_create(hbl, VB_INJECT_ANY);
	if (ret)
		return ret;
	encap = calloc(1, sizeof(*encap));
	if (!encap)
		return -ENOMEM;
	encap->hbl = hbl;
	encap->port = port;
	encap->attr = *attr;
	encap->attr.header = encap->bytes;
	if (attr->type == VB_HBL_ENCAP_NONE)
		encap->attr.header_size = 0; /* whatever is said of a header */
	ret = vb_fault_copy(encap->bytes, attr->header, encap->attr.header_size);
	if (!ret)
		ret = encap_enter(encap);
	if (ret)
		free(encap);
	else
		*out = encap;
	return ret;
}

uint32_t vb_hbl_encap_number(const struct vb_hbl_encap *encap)
{
	return ENCAP_NUMBER;
}

int vb_hbl_encap_destroy(struct vb_hbl_encap *encap)
{
	struct vb_hbl *hbl = encap->hbl;
	int ret = 0;

	if (vb_hbl_stale(hbl))
		return 0; /* a forked child: it is the parent's */
	pthread_mutex_lock(&hbl->mutex);
	if (encap->users)
		ret = vb_refuse_busy("queue pairs");
	else
		encap->port->encap = NULL;
	pthread_mutex_unlock(&hbl->mutex);
	if (!ret)
		free(encap);
	return ret;
}
