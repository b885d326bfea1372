// SPDX-License-Identifier: MIT
/*
 * Owns device mkeys: a memory region of the card over guest memory. Its addresses are device
 * addresses, so device code and remote peers name the memory in the same way.
 */
#include "internal.h"

#include <stdlib.h>

struct flexio_mkey {
	struct flexio_process *process;
	struct ibv_mr *mr;
};

flexio_status flexio_device_mkey_create(struct flexio_process *process,
					struct flexio_mkey_attr *fattr, struct flexio_mkey **mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_PROCESS, process);
	struct flexio_mkey *m;
	struct ibv_pd *pd;
	void *host;

	if (!pin)
		return fail("not a process");
	if (!fattr || !mkey)
		return fail("no attributes, or nowhere to put the mkey");
	pd = fattr->pd ? fattr->pd : process->pd;
	if (strcmp(pd->context->device->name, process->ctx->device->name))
		return fail("the protection domain is of %s, the process of %s",
			    pd->context->device->name, process->ctx->device->name);
	host = vb_dpa_mem_host(process->dpa, fattr->daddr, fattr->len, VB_DPA_READ | VB_DPA_WRITE);
	if (!host)
		return fail("0x%llx and %zu bytes are not memory of the process",
			    (unsigned long long)fattr->daddr, fattr->len);
	m = calloc(1, sizeof(*m));
	if (!m)
		return fail("no memory");
	m->process = process;
	if (!vb_process_hold(process, PART_MKEY))
		goto free_mkey;
	m->mr = ibv_reg_mr_iova2(pd, host, fattr->len, fattr->daddr, (unsigned int)fattr->access);
	if (!m->mr) {
		log_err("cannot register %zu bytes with access 0x%x: %s", fattr->len,
			(unsigned int)fattr->access, strerror(errno));
		goto release_process;
	}
	if (!vb_handle_add(HANDLE_MKEY, m))
		goto deregister;
	*mkey = m;
	return FLEXIO_STATUS_SUCCESS;

deregister:
	ibv_dereg_mr(m->mr);
release_process:
	vb_process_release(process, PART_MKEY);
free_mkey:
	free(m);
	return FLEXIO_STATUS_FAILED;
}

flexio_status flexio_device_mkey_destroy(struct flexio_mkey *mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);
	int err;

	if (!mkey)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_handle_end(&pin))
		return fail("not an mkey");
	err = ibv_dereg_mr(mkey->mr);
	if (err) {
		vb_handle_add(HANDLE_MKEY, mkey);
		return fail("cannot deregister: %s", strerror(err));
	}
	vb_process_release(mkey->process, PART_MKEY);
	free(mkey);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_mkey_get_id(struct flexio_mkey *mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);

	if (!pin) {
		log_err("not an mkey");
		return UINT32_MAX;
	}
	return mkey->mr->lkey;
}
