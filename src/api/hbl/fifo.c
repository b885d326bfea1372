// SPDX-License-Identifier: MIT
/*
 * hbl direct verbs: user FIFOs and encapsulation. The handles are the public structs, followed by
 * pointers to the card's objects.
 */
#include "hbldv.h"

#include <stddef.h>
#include <stdlib.h>

struct hbl_fifo {
	struct hbldv_usr_fifo usr; /* first */
	struct vb_hbl_fifo *card;
};

struct hbl_encap {
	struct hbldv_encap usr; /* first */
	struct vb_hbl_encap *card;
};

struct hbldv_usr_fifo *hbldv_create_usr_fifo(struct ibv_context *context,
					     struct hbldv_usr_fifo_attr *attr)
{
	struct vb_hbl_fifo_info info;
	struct hbl_fifo *fifo;

	API_CALL(API_DEVICE(context));
	if (hbl_check(context, attr))
		return NULL;
	if (attr->usr_fifo_type != HBLDV_USR_FIFO_TYPE_DB &&
	    attr->usr_fifo_type != HBLDV_USR_FIFO_TYPE_CC)
		return api_refuse_null(value, "usr_fifo_type", attr->usr_fifo_type);
	fifo = calloc(1, sizeof(*fifo));
	if (!fifo)
		return api_refuse_null(memory, "the FIFO");
	if (api_status(vb_hbl_fifo_create(
		    hbl_device(context), attr->port_num,
		    attr->usr_fifo_type == HBLDV_USR_FIFO_TYPE_CC ? VB_HBL_FIFO_CC : VB_HBL_FIFO_DB,
		    attr->usr_fifo_num_hint, &fifo->card))) {
		free(fifo);
		return NULL;
	}
	vb_hbl_fifo_query(fifo->card, &info);
	fifo->usr = (struct hbldv_usr_fifo){
		.ci_cpu_addr = info.ci,
		.regs_cpu_addr = info.regs,
		.regs_offset = info.regs_offset,
		.usr_fifo_num = info.number,
		.size = info.size,
		.bp_thresh = info.bp_thresh,
	};
	return &fifo->usr;
}

int hbldv_destroy_usr_fifo(struct hbldv_usr_fifo *usr_fifo)
{
	if (!usr_fifo)
		return api_refuse(null, "usr_fifo");
	vb_hbl_fifo_destroy(((struct hbl_fifo *)usr_fifo)->card);
	free(usr_fifo);
	return 0;
}

struct hbldv_encap *hbldv_create_encap(struct ibv_context *context, struct hbldv_encap_attr *attr)
{
	struct hbl_encap *encap;
	int rc;

	API_CALL(API_DEVICE(context));
	if (hbl_check(context, attr))
		return NULL;
	encap = calloc(1, sizeof(*encap));
	if (!encap)
		return api_refuse_null(memory, "the encapsulation");
	rc = vb_hbl_encap_create(hbl_device(context),
				 &(struct vb_hbl_encap_attr){
					 .port = attr->port_num,
					 .type = (enum vb_hbl_encap_type)attr->encap_type,
					 .ipv4_addr = attr->ipv4_addr,
					 .proto_or_port = attr->udp_dst_port,
					 .header = (const void *)(uintptr_t)attr->tnl_hdr_ptr,
					 .header_size = attr->tnl_hdr_size,
				 },
				 &encap->card);
	if (rc) {
		free(encap);
		api_status(rc);
		return NULL;
	}
	encap->usr.encap_num = vb_hbl_encap_number(encap->card);
	return &encap->usr;
}

int hbldv_destroy_encap(struct hbldv_encap *usr)
{
	struct hbl_encap *encap = (struct hbl_encap *)usr;
	int rc;

	API_CALL(.kind = "encapsulation", .number = usr ? usr->encap_num : 0);
	if (!usr)
		return api_refuse(null, "hbl_encap");
	rc = vb_hbl_encap_destroy(encap->card);
	if (!rc)
		free(encap);
	return api_status(rc);
}
