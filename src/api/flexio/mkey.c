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

	API_CALL();
	if (!pin)
		return bad_handle(process, "process");
	if (!fattr || !mkey)
		return fail("%s is NULL", !fattr ? "fattr" : "mkey");
	pd = fattr->pd ? fattr->pd : process->pd;
	if (strcmp(pd->context->device->name, process->ctx->device->name))
		return fail("the protection domain is of %s, process %s of %s",
			    pd->context->device->name, process->name, process->ctx->device->name);
	host = vb_dpa_mem_host(process->dpa, fattr->daddr, fattr->len, VB_DPA_READ | VB_DPA_WRITE);
	if (!host)
		return fail(
			"process %s: %zu bytes at device address 0x%llx are not all writable memory",
			process->name, fattr->len, (unsigned long long)fattr->daddr);
	m = calloc(1, sizeof(*m));
	if (!m)
		return fail("process %s: no memory for an mkey", process->name);
	m->process = process;
	if (!vb_process_hold(process, PART_MKEY))
		goto free_mkey;
	m->mr = ibv_reg_mr_iova2(pd, host, fattr->len, fattr->daddr, (unsigned int)fattr->access);
	if (!m->mr) {
		fail("process %s: cannot register %zu bytes at device address 0x%llx with access 0x%x: %s",
		     process->name, fattr->len, (unsigned long long)fattr->daddr,
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
	return failed();
}

flexio_status flexio_device_mkey_destroy(struct flexio_mkey *mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);
	int err;

	API_CALL();
	if (!mkey)
		return FLEXIO_STATUS_SUCCESS;
	if (!vb_handle_end(&pin))
		return bad_handle(mkey, "mkey");
	err = ibv_dereg_mr(mkey->mr);
	if (err) {
		vb_handle_add(HANDLE_MKEY, mkey);
		return fail("mkey 0x%x cannot be deregistered: %s", mkey->mr->lkey, strerror(err));
	}
	vb_process_release(mkey->process, PART_MKEY);
	free(mkey);
	return FLEXIO_STATUS_SUCCESS;
}

uint32_t flexio_mkey_get_id(struct flexio_mkey *mkey)
{
	struct handle *pin AUTO_UNPIN = vb_handle_pin(HANDLE_MKEY, mkey);

	API_CALL();
	if (!pin) {
		bad_handle(mkey, "mkey");
		return UINT32_MAX;
	}
	return mkey->mr->lkey;
}
